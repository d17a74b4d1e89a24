/* A buffer whose content never changes again. */
#include "base/clock.h"
#include "core/buffer/guard.h"
#include "core/buffer/op.h"

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    if (gb_buffer_op_check_locked(gb_buffer_op_of(transaction), b, err) < 0 ||
        (!b->rec.sealed &&
         gb_guard_check_settled_locked(
             b, "that one writes when it likes, so they are never sealed; copy them, and seal the copy", err) < 0))
        return -1;
    gb_buffer_copy_locked(b, &transaction->rec);
    if (b->rec.sealed)
        return 0;
    transaction->rec.sealed = true;
    transaction->rec.version++;
    transaction->rec.updated_at_us = gb_wall_us();
    return 0;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    /* What a dead device took while the database was busy stays taken. */
    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(transaction->session, b, &transaction->rec, b->content);
    gb_buffer_copy_locked(b, &gb_buffer_op_of(transaction)->call->buffer);
}

void gb_buffer_seal(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                    struct gb_buffer_call *call) {
    gb_buffer_op_run(core, at, check, call, validate_locked, publish_locked);
}
