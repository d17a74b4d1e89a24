/* Damaged files are written again from memory. The buffer keeps its generation and its entity tags: the bytes are
 * those that it had, which their checksum shows. */
#include "core/buffer/guard.h"
#include "core/buffer/op.h"
#include "core/scrub/scrub.h"
#include "core/session/notices.h"

struct heal {
    struct gb_buffer_op base;
    struct gb_stored *stored; /* the damaged one; a reference */
};

static struct heal *heal_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct heal, base);
}

static int check_locked(const struct heal *heal, const struct gb_buffer *b, struct gb_error *err) {
    if (b->stored != heal->stored || b->rec.state != GB_BUFFER_READY ||
        b->rec.generation != heal->stored->rec.generation)
        return gb_error_set(err, GB_ERR_CONTENT_LOST, "memory has not the bytes of generation %lld",
                            (long long)heal->stored->rec.generation);
    return gb_guard_check_settled_locked(b, "they are never written to disk", err);
}

/* What is read from memory must have the checksum that was written. */
static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct heal *heal = heal_of(transaction);

    if (gb_buffer_op_check_locked(&heal->base, b, err) < 0 || check_locked(heal, b, err) < 0)
        return -1;
    gb_buffer_copy_locked(b, &transaction->rec);
    transaction->rec.has_crc32c = true;
    transaction->rec.crc32c = heal->stored->rec.crc32c;
    transaction->spills = heal->stored->spilled ? GB_SPILL_DISK : GB_SPILL_NEVER;
    transaction->unrecorded = heal->stored->spilled;
    transaction->stores = !heal->stored->spilled;
    return 0;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct heal *heal = heal_of(transaction);
    struct gb_session *s = transaction->session;
    struct gb_notice notice;

    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(s, b, &transaction->rec, b->content);
    gb_buffer_copy_locked(b, &heal->base.call->buffer);
    heal->base.call->copied = true;
    atomic_store(&heal->stored->set_aside, true);
    notice = gb_notice_of_buffer(s, &transaction->rec, GB_NOTICE_BUFFER_HEALED);
    gb_notice_post(s->core, &notice);
}

static void end(struct gb_transaction *transaction) {
    struct heal *heal = heal_of(transaction);

    gb_stored_unref(heal->stored);
    gb_buffer_op_end(&heal->base, &transaction->error);
}

void gb_scrub_heal(struct gb_session *session, const struct gb_name *buffer, struct gb_stored *stored,
                   struct gb_buffer_call *call) {
    struct heal *heal = gb_buffer_op_new_in(sizeof(*heal), gb_session_ref(session), buffer, NULL, call);

    if (!heal)
        return;
    heal->stored = gb_stored_ref(stored);
    heal->base.transaction.validate_locked = validate_locked;
    heal->base.transaction.publish_locked = publish_locked;
    heal->base.transaction.end = end;
    heal->base.transaction.upkeep = true;
    gb_transaction_start(&heal->base.transaction);
}
