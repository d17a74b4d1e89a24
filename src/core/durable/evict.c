/* Taking a buffer's bytes out of memory on request: what the disk has already is dropped, anything else is written
 * first, to the disk or to host memory. Bytes that are not durable end with the process there as well. */
#include "core/buffer/guard.h"
#include "core/buffer/op.h"
#include "core/durable/durable.h"
#include "core/memory/kind.h"
#include "core/public/durable.h"
#include "core/stored/disks.h"
#include "core/stored/load.h"

struct evict_op {
    struct gb_buffer_op base; /* first */
    enum gb_spill to;         /* NEVER: as the buffer's own spill says */
    struct gb_content *gone;
};

static struct evict_op *op_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct evict_op, base);
}

/* Only the buffer may have its bytes. */
static int check_unused_locked(const struct gb_buffer *b, struct gb_error *err) {
    int i;

    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (gb_guard_check_unmapped_locked(b, "wait until it has ended", err) < 0)
        return -1;
    for (i = 0; i < GB_BUFFER_CONTENTS; i++) {
        const struct gb_content *c = gb_buffer_content_at(b, i);

        if (c && atomic_load(&c->refs) > 1)
            return gb_error_set(err, GB_ERR_BUFFER_BUSY, "others use the buffer's bytes; try again");
    }
    return 0;
}

static int check_locked(const struct gb_session *s, const struct gb_buffer *b, struct gb_error *err) {
    if (b->rec.state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                            "a write in place broke off here; upload the whole buffer again");
    if (b->rec.state == GB_BUFFER_LOST)
        return gb_lost(b, err);
    if (b->rec.durability == GB_DURABILITY_NONE && b->rec.bytes <= GB_STORED_INLINE_BYTES)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "buffers of at most %u bytes stay in memory, unless they are durable",
                            GB_STORED_INLINE_BYTES);
    if (gb_disks_check_durability(s->core, GB_DURABILITY_BEHIND, err) < 0 ||
        gb_adopted_check_locked(b, "they cannot be taken out of it", err) < 0 ||
        gb_guard_check_writers_locked(b, err) < 0)
        return -1;
    return check_unused_locked(b, err);
}

/* Bytes of a device alone: what is in the host's memory gains nothing there, nor does what has a host side. */
static bool may_go_to_host(const struct gb_buffer *b) {
    return b->content && gb_kind_of_device(b->content->kind) && b->rec.bytes > GB_STORED_INLINE_BYTES;
}

static enum gb_spill destination(const struct evict_op *op, const struct gb_buffer *b) {
    if (op->to != GB_SPILL_NEVER)
        return op->to;
    return b->rec.spill == GB_SPILL_HOST && may_go_to_host(b) ? GB_SPILL_HOST : GB_SPILL_DISK;
}

static int check_host(const struct gb_buffer *b, struct gb_error *err) {
    if (may_go_to_host(b))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "only bytes of a device go to host memory, and from %u bytes on; evict these to \"disk\"",
                        GB_STORED_INLINE_BYTES + 1);
}

/* What is to be written, and where. Bytes that the disk has go to host memory beside it on request alone, and durable
 * ones that it has not go to the disk in every case. */
static int plan_locked(const struct evict_op *op, struct gb_transaction *c, const struct gb_buffer *b,
                       struct gb_error *err) {
    bool asked = op->to == GB_SPILL_HOST;

    if (b->rec.state == GB_BUFFER_STORED) {
        if (op->to == GB_SPILL_DISK && b->stored->in_host)
            c->spills = GB_SPILL_DISK;
        return 0;
    }
    if (asked && check_host(b, err) < 0)
        return -1;
    c->strictly = asked;
    if (!gb_buffer_on_disk(b)) {
        c->stores = b->rec.durability != GB_DURABILITY_NONE;
        c->spills = c->stores ? GB_SPILL_NEVER : destination(op, b);
    } else if (asked) {
        c->warms = true;
        c->spills = GB_SPILL_HOST;
    }
    return 0;
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    if (gb_buffer_op_check_locked(gb_buffer_op_of(transaction), b, err) < 0)
        return -1;
    if (b->rec.state != GB_BUFFER_STORED && check_locked(transaction->session, b, err) < 0)
        return -1;
    if (plan_locked(op_of(transaction), transaction, b, err) < 0)
        return -1;
    gb_buffer_copy_locked(b, &transaction->rec);
    transaction->unrecorded = !transaction->stores;
    return 0;
}

/* A lease may have begun while the bytes were written: then they stay, and host memory need not have them. */
static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct evict_op *op = op_of(transaction);
    struct gb_session *s = transaction->session;
    struct gb_notice notice;

    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(s, b, &transaction->rec, b->content);
    if (b->rec.state == GB_BUFFER_READY && b->rec.leases == 0 && !b->in_place && gb_buffer_on_disk(b)) {
        op->gone = gb_buffer_lose_locked(s, b);
        op->base.call->copied = true;
        atomic_fetch_add(&s->core->loads->evicted, 1);
        notice = gb_notice_of_buffer(s, &transaction->rec, GB_NOTICE_BUFFER_EVICTED);
        gb_notice_post(s->core, &notice);
        atomic_fetch_add(&s->core->loads->evicted_to_host, b->stored->block != NULL);
    } else if (b->rec.state == GB_BUFFER_READY || op->to == GB_SPILL_DISK) {
        op->base.call->copied = transaction->spills == GB_SPILL_DISK && b->rec.state == GB_BUFFER_STORED;
        gb_buffer_cool_locked(s, b);
    }
    gb_buffer_copy_locked(b, &op->base.call->buffer);
}

static void gone(void *arg) {
    struct evict_op *op = arg;

    gb_buffer_op_end(&op->base, &op->base.transaction.error);
}

static void end(struct gb_transaction *transaction) {
    struct evict_op *op = op_of(transaction);

    gb_content_drop_list(op->gone, gone, op);
}

static void start(struct evict_op *op, enum gb_spill to) {
    if (!op)
        return;
    op->to = to;
    op->base.transaction.validate_locked = validate_locked;
    op->base.transaction.publish_locked = publish_locked;
    op->base.transaction.end = end;
    op->base.transaction.upkeep = true;
    gb_transaction_start(&op->base.transaction);
}

void gb_buffer_evict_to(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                        enum gb_spill to, struct gb_buffer_call *call) {
    start(gb_buffer_op_new(sizeof(struct evict_op), core, at, check, call), to);
}

void gb_buffer_evict_in(struct gb_session *session, const struct gb_name *name, const struct gb_buffer_check *check,
                        enum gb_spill to, struct gb_buffer_call *call) {
    start(gb_buffer_op_new_in(sizeof(struct evict_op), gb_session_ref(session), name, check, call), to);
}

void gb_buffer_evict(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call) {
    gb_buffer_evict_to(core, at, check, GB_SPILL_NEVER, call);
}
