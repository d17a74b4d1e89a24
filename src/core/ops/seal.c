/* A buffer whose content never changes again. */
#include "base/clock.h"
#include "core/buffer/guard.h"
#include "core/buffer/op.h"

static int check_content(const struct gb_buffer *b, struct gb_error *err) {
    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again");
    if (b->rec.state == GB_BUFFER_LOST)
        return gb_lost(b, err);
    if (gb_adopted_check_locked(
            b, "that one writes when it likes, so they are never sealed; copy them, and seal the copy", err) < 0)
        return -1;
    return gb_guard_check_writers_locked(b, err);
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    if (gb_buffer_op_check_locked(gb_buffer_op_of(transaction), b, err) < 0 ||
        (!b->rec.sealed && check_content(b, err) < 0))
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

static void end(struct gb_transaction *transaction) {
    gb_buffer_op_end(gb_buffer_op_of(transaction), &transaction->error);
}

void gb_buffer_seal(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                    struct gb_buffer_call *call) {
    struct gb_buffer_op *op = gb_buffer_op_new(sizeof(*op), core, at, check, call);

    if (!op)
        return;
    op->transaction.validate_locked = validate_locked;
    op->transaction.publish_locked = publish_locked;
    op->transaction.end = end;
    gb_transaction_start(&op->transaction);
}
