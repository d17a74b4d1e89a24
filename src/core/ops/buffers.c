#include <string.h>

#include "base/clock.h"
#include "core/buffer/guard.h"
#include "core/buffer/op.h"
#include "core/memory/kind.h"
#include "core/stored/disks.h"

/* One call that makes, changes or deletes a buffer. */
struct buffer_op {
    struct gb_buffer_op base; /* first */
    struct gb_buffer_params params;
    struct gb_alloc alloc;
    struct gb_core_stream *stream; /* create: used */
    struct gb_core_pool *pool;     /* create: a reference */
    struct gb_content *content;    /* create: until the buffer has it; delete: what is to be dropped */
    bool unmapped;                 /* delete: the memory is freed when its last mapping ends */
    bool counted;                  /* create: a place in the quota is reserved */
};

static struct buffer_op *op_of(struct gb_transaction *transaction) {
    return gb_container_of(gb_buffer_op_of(transaction), struct buffer_op, base);
}

/* error may be part of op; GB_OK in it is success. */
static void op_end(struct buffer_op *op, const struct gb_error *error) {
    gb_core_stream_unuse(op->stream);
    gb_core_pool_unref(op->pool);
    gb_text_unref(op->params.labels);
    gb_buffer_op_end(&op->base, error);
}

/* --- create ------------------------------------------------------------------------------------------------------- */

static int create_decide_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct buffer_op *op = op_of(transaction);
    struct gb_buffer_rec *rec = &transaction->rec;
    const struct gb_buffer_params *p = &op->params;

    const struct gb_session *s = op->base.base.session;

    (void)b;
    if (gb_kind_check_source(p->kind, op->pool, err) < 0)
        return -1;
    gb_buffer_rec_done(rec);
    *rec = (struct gb_buffer_rec){.name = p->name,
                                  .bytes = p->bytes,
                                  .dtype = p->dtype,
                                  .shape = p->shape,
                                  .kind = p->kind,
                                  .device = op->pool->device->index,
                                  .mirrored = p->mirrored,
                                  .durability = p->has_durability ? p->durability : s->rec.durability,
                                  .spill = p->has_spill ? p->spill : s->rec.spill,
                                  .resident = p->resident,
                                  .stream = op->stream->name,
                                  .state = GB_BUFFER_READY,
                                  .generation = 1,
                                  .version = 1,
                                  .labels = gb_text_ref(p->labels),
                                  .created_at_us = gb_wall_us()};
    rec->updated_at_us = rec->created_at_us;
    if (p->kind == GB_KIND_DEVICE)
        rec->pool = op->pool->rec.name;
    if (p->lost)
        rec->state = GB_BUFFER_LOST;
    transaction->content = op->content;
    return gb_disks_check_durability(s->core, rec->durability, err);
}

static void create_apply_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct buffer_op *op = op_of(transaction);

    gb_buffer_set_locked(op->base.base.session, b, &transaction->rec, op->content);
    op->content = NULL;
    op->counted = false;
    gb_buffer_rec_set(&op->base.call->buffer, &transaction->rec);
    op->base.call->created = true;
}

static void content_gone(void *arg) {
    struct buffer_op *op = arg;

    op_end(op, &op->base.transaction.error);
}

static void create_end(struct gb_transaction *transaction) {
    struct buffer_op *op = op_of(transaction);

    if (op->counted) {
        pthread_mutex_lock(&op->base.base.session->lock);
        gb_quota_give_locked(op->base.base.session, 0, 1);
        pthread_mutex_unlock(&op->base.base.session->lock);
    }
    gb_content_drop(op->content, content_gone, op);
}

/* Runs on the lane. Most buffers are written before they are read. Memory that the CPU cannot access is therefore
 * zeroed only when its bytes are needed. */
static int zero(struct gb_content *c, struct gb_error *err) {
    if (c->bytes == 0)
        return 0;
    atomic_store(&c->blank, true);
    return c->kind == GB_KIND_DEVICE && !c->device->rec.cpu_access ? 0 : gb_content_materialize(c, err);
}

static void create_allocated(struct gb_alloc *alloc, const struct gb_error *error) {
    struct buffer_op *op = gb_container_of(alloc, struct buffer_op, alloc);
    struct gb_error err = GB_ERROR_INIT;

    if (gb_call_withdraw(op->base.base.call, &err) == 0 && error)
        err = *error;
    if (err.code == GB_OK)
        zero(op->content, &err);
    if (err.code == GB_OK) {
        gb_transaction_proceed(&op->base.transaction);
        return;
    }
    gb_transaction_abandon(&op->base.transaction, &err);
}

/* Cancels a creation that waits for memory. */
static bool create_cancel(void *arg, bool act) {
    struct buffer_op *op = arg;

    if (act)
        atomic_store(&op->alloc.cancelled, true);
    return true;
}

/* Everything that the call will need, or nothing. */
static int create_reserve_locked(struct buffer_op *op, struct gb_error *err) {
    struct gb_session *s = op->base.base.session;
    struct gb_core_pool *pool;

    if (gb_session_changeable_locked(s, err) < 0 ||
        gb_core_stream_use_locked(s, &op->params.stream, &op->stream, err) < 0)
        return -1;
    pool = gb_kind_pool_locked(s, &op->params, err);
    if (!pool || gb_kind_check_source(op->params.kind, pool, err) < 0 ||
        gb_core_offers(pool->device, op->params.kind, err) < 0 ||
        gb_transaction_reserve_locked(&op->base.transaction, err) < 0)
        return -1;
    op->pool = gb_core_pool_ref(pool);
    if (gb_quota_take_locked(s, 0, 1, err) == 0) {
        if (op->params.mirrored || op->params.lost ||
            gb_content_new_locked(s, pool, op->params.kind, op->stream, &op->params.name, op->params.bytes,
                                  &op->content, err) == 0) {
            op->counted = true;
            return 0;
        }
        gb_error_append(err, GB_ERR_PINNED_LIMIT, GB_QUOTA_OTHER_KIND);
        gb_quota_give_locked(s, 0, 1);
    }
    return -1;
}

static int create_start(struct buffer_op *op, unsigned wait_ms, struct gb_error *err) {
    struct gb_session *s = op->base.base.session;
    int r;

    op->params.kind = gb_kind_choose(s->core, &op->params);
    if (gb_kind_check_pool(op->params.kind, &op->params.pool, err) < 0)
        return -1;
    if (op->params.mirrored && op->params.kind != GB_KIND_DEVICE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a mirrored buffer is of kind \"device\", not \"%s\"",
                            gb_kind_name(op->params.kind));
    pthread_mutex_lock(&s->lock);
    r = create_reserve_locked(op, err);
    pthread_mutex_unlock(&s->lock);
    if (r < 0)
        return -1;
    if (!op->content) { /* one without bytes, or a mirrored one, whose sides come when they are needed */
        gb_transaction_proceed(&op->base.transaction);
        return 0;
    }
    op->alloc.content = op->content;
    op->alloc.done = create_allocated;
    op->alloc.anywhere = true;
    gb_call_offer(op->base.base.call, NULL, create_cancel, op);
    gb_alloc_start(&op->alloc, wait_ms);
    return 0;
}

void gb_buffer_create(struct gb_core *core, const struct gb_buffer_params *params, unsigned wait_ms,
                      struct gb_buffer_call *call) {
    struct buffer_op *op =
        gb_buffer_op_new(sizeof(*op), core, &(struct gb_locator){params->session, params->name}, NULL, call);
    struct gb_error err = GB_ERROR_INIT;

    if (!op)
        return;
    op->params = *params;
    gb_text_ref(op->params.labels);
    op->base.transaction.validate_locked = create_decide_locked;
    op->base.transaction.publish_locked = create_apply_locked;
    op->base.transaction.end = create_end;
    if (create_start(op, wait_ms, &err) == 0)
        return;
    if (op->base.transaction.buffer)
        gb_transaction_abandon(&op->base.transaction, &err);
    else
        op_end(op, &err);
}

/* --- patch -------------------------------------------------------------------------------------------------------- */

/* sync and behind need bytes that can be stored. With none, the stored bytes are removed, so those in memory are
 * needed; and so they are if the disk has them only until the end of the process. */
static int patch_durability_locked(struct gb_transaction *transaction, struct gb_buffer *b,
                                   enum gb_durability durability, struct gb_error *err) {
    struct gb_session *s = transaction->session;

    if (durability == b->rec.durability)
        return 0;
    if (gb_disks_check_durability(s->core, durability, err) < 0)
        return -1;
    if (durability != GB_DURABILITY_NONE &&
        gb_guard_check_settled_locked(b, "they are never durable; copy them, and make the copy durable", err) < 0)
        return -1;
    if ((durability == GB_DURABILITY_NONE || (b->stored && b->stored->spilled)) && gb_buffer_want_locked(s, b, err) < 0)
        return -1;
    transaction->rec.durability = durability;
    return 0;
}

static int patch_decide_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct buffer_op *op = op_of(transaction);
    const struct gb_buffer_params *p = &op->params;

    if (gb_buffer_op_check_locked(&op->base, b, err) < 0)
        return -1;
    if (p->has_shape && p->bytes != b->rec.bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the buffer has %llu bytes; shape and dtype give %llu",
                            (unsigned long long)b->rec.bytes, (unsigned long long)p->bytes);
    gb_buffer_copy_locked(b, &transaction->rec);
    if (p->has_shape) {
        transaction->rec.dtype = p->dtype;
        transaction->rec.shape = p->shape;
    }
    if (p->has_labels)
        gb_text_set(&transaction->rec.labels, p->labels);
    if (p->has_durability && patch_durability_locked(transaction, b, p->durability, err) < 0)
        return -1;
    if (p->has_spill)
        transaction->rec.spill = p->spill;
    if (p->has_resident)
        transaction->rec.resident = p->resident;
    transaction->rec.version++;
    transaction->rec.updated_at_us = gb_wall_us();
    return 0;
}

static void patch_apply_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct buffer_op *op = op_of(transaction);

    /* What a dead device took while the database was busy stays taken. */
    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(op->base.base.session, b, &transaction->rec, b->content);
    gb_buffer_rec_set(&op->base.call->buffer, &transaction->rec);
}

static void patch_end(struct gb_transaction *transaction) {
    op_end(op_of(transaction), &transaction->error);
}

void gb_buffer_patch(struct gb_core *core, const struct gb_buffer_params *params, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call) {
    struct buffer_op *op =
        gb_buffer_op_new(sizeof(*op), core, &(struct gb_locator){params->session, params->name}, check, call);

    if (!op)
        return;
    op->params = *params;
    gb_text_ref(op->params.labels);
    op->base.transaction.validate_locked = patch_decide_locked;
    op->base.transaction.publish_locked = patch_apply_locked;
    op->base.transaction.end = patch_end;
    gb_transaction_start(&op->base.transaction);
}

/* --- delete ------------------------------------------------------------------------------------------------------- */

static int delete_decide_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    if (gb_buffer_op_check_locked(gb_buffer_op_of(transaction), b, err) < 0)
        return -1;
    if (b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    return op_of(transaction)->unmapped
               ? 0
               : gb_guard_check_unmapped_locked(b, "wait until it has ended, or delete it with when=unmapped", err);
}

static void delete_apply_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct buffer_op *op = op_of(transaction);

    gb_buffer_copy_locked(b, &op->base.call->buffer);
    op->base.call->held_bytes = gb_guard_mapped_bytes_locked(b);
    op->content = gb_buffer_clear_locked(op->base.base.session, b);
}

static void delete_end(struct gb_transaction *transaction) {
    struct buffer_op *op = op_of(transaction);

    if (op->content && !op->content->next)
        gb_content_retire(op->content, content_gone, op);
    else
        gb_content_drop_list(op->content, content_gone, op);
}

/* op: NULL when the call has ended already. */
static void delete_start(struct buffer_op *op, bool unmapped) {
    if (!op)
        return;
    op->unmapped = unmapped;
    op->base.transaction.removes = true;
    op->base.transaction.validate_locked = delete_decide_locked;
    op->base.transaction.publish_locked = delete_apply_locked;
    op->base.transaction.end = delete_end;
    gb_transaction_start(&op->base.transaction);
}

void gb_buffer_delete(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                      struct gb_buffer_call *call) {
    delete_start(gb_buffer_op_new(sizeof(struct buffer_op), core, at, check, call), false);
}

void gb_buffer_delete_when_unmapped(struct gb_core *core, const struct gb_locator *at,
                                    const struct gb_buffer_check *check, struct gb_buffer_call *call) {
    delete_start(gb_buffer_op_new(sizeof(struct buffer_op), core, at, check, call), true);
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

int gb_buffer_get_in(struct gb_session *s, const struct gb_name *name, struct gb_buffer_rec *ret,
                     struct gb_error *err) {
    struct gb_buffer *b;

    ret->labels = NULL;
    pthread_mutex_lock(&s->lock);
    b = gb_session_alive(s, err) < 0 ? NULL : gb_buffer_find_locked(s, name, err);
    if (b)
        gb_buffer_copy_locked(b, ret);
    pthread_mutex_unlock(&s->lock);
    return b ? 0 : -1;
}

int gb_buffer_get(struct gb_core *core, const struct gb_locator *at, struct gb_buffer_rec *ret, struct gb_error *err) {
    struct gb_session *s = gb_session_use(core, &at->session, err);
    int r = s ? gb_buffer_get_in(s, &at->name, ret, err) : -1;

    gb_session_unref(s);
    return r;
}

/* The next one that can be seen; as gb_buffer_copy_locked. */
static bool after(struct gb_session *s, int64_t id, struct gb_buffer_rec *rec) {
    struct gb_buffer *b;
    bool found;

    pthread_mutex_lock(&s->lock);
    do
        b = gb_idlist_after(&s->buffers_by_id, id, &id);
    while (b && (!b->live || b->deleting));
    found = b != NULL;
    if (found)
        gb_buffer_copy_locked(b, rec);
    pthread_mutex_unlock(&s->lock);
    return found;
}

int gb_buffer_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                   int (*visit)(void *, const struct gb_buffer_rec *, struct gb_error *), void *arg,
                   struct gb_error *err) {
    struct gb_session *s = gb_session_use(core, session, err);
    struct gb_buffer_rec rec = {.labels = NULL};
    int64_t id = page->after;
    unsigned n;
    int r = 0;

    if (!s)
        return -1;
    for (n = 0; n < page->limit && r == 0 && after(s, id, &rec); n++) {
        id = rec.id;
        r = visit(arg, &rec, err);
    }
    if (r == 0)
        page->more = after(s, id, &rec);
    gb_buffer_rec_done(&rec);
    gb_session_unref(s);
    return r;
}
