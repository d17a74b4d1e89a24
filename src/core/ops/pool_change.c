/* What changing and removing a pool does once it is decided. */
#include "core/ops/pool_op.h"

#include <string.h>

#include "base/clock.h"

/* --- patch -------------------------------------------------------------------------------------------------------- */

/* The database refused the record: restores the old configuration. */
static void unpatch_on_lane(struct gb_task *task) {
    struct gb_pool_op *op = gb_pool_op_of(task);

    gb_pool_configure(op->pool->core->backend, op->pool->pool, &op->pool->rec.config, NULL);
    gb_pool_op_leave(op);
}

static void patched(void *arg, const struct gb_error *error) {
    struct gb_pool_op *op = arg;
    struct gb_session *s = op->base.session;

    pthread_mutex_lock(&s->lock);
    gb_pool_op_note_result_locked(op, error);
    if (op->error.code == GB_OK) {
        gb_core_pool_configured(op->pool, &op->rec);
        gb_core_pool_view(op->pool, &op->call->pool);
    }
    pthread_mutex_unlock(&s->lock);
    if (op->error.code == GB_OK) {
        gb_notice_post_pool(s, op->pool, GB_NOTICE_POOL_CHANGED);
        gb_pool_op_leave(op);
        return;
    }
    op->task.run = unpatch_on_lane;
    gb_lane_post(&op->pool->device->lane, &op->task);
}

void gb_pool_patch_on_lane(struct gb_task *task) {
    struct gb_pool_op *op = gb_pool_op_of(task);

    if (gb_pool_configure(op->pool->core->backend, op->pool->pool, &op->rec.config, &op->error) < 0)
        gb_pool_op_leave(op);
    else
        gb_store_put_pool(op->base.session->core->store, &op->rec, gb_call_mark(op->base.call), patched, op);
}

/* --- a device's own pool ------------------------------------------------------------------------------------------ */

/* The lane alone changes it, so changes by several sessions come one after the other. It has no record: what the
 * daemon starts with comes back with the next start. */
static void patch_own_on_lane(struct gb_task *task) {
    struct gb_pool_op *op = gb_pool_op_of(task);
    struct gb_core_pool *p = op->pool;
    struct gb_backend *be = p->core->backend;

    if (gb_core_pool_check(p, &op->error) < 0) {
        gb_pool_op_end(op);
        return;
    }
    op->rec = p->rec;
    gb_pool_rec_merge(&op->rec, &op->params.rec, &op->params.given);
    op->rec.updated_at_us = gb_wall_us();
    if (gb_pool_configure(be, p->pool, &op->rec.config, &op->error) < 0) {
        gb_pool_configure(be, p->pool, &p->rec.config, NULL);
    } else {
        gb_core_pool_configured(p, &op->rec);
        gb_core_pool_view(p, &op->call->pool);
        gb_notice_post_pool(op->base.session, p, GB_NOTICE_POOL_CHANGED);
    }
    gb_pool_op_end(op);
}

void gb_pool_patch_own(struct gb_pool_op *op) {
    op->task.run = patch_own_on_lane;
    gb_lane_post(&op->pool->device->lane, &op->task);
}

/* --- remove ------------------------------------------------------------------------------------------------------- */

static struct gb_content *lose_buffers_locked(struct gb_session *s, const struct gb_core_pool *p) {
    struct gb_content *list = NULL;
    struct gb_buffer *b;
    size_t at = 0;

    while ((b = gb_map_next(&s->buffers, &at))) {
        if (b->live && gb_buffer_in_pool(b, p))
            gb_content_list_add(&list, gb_buffer_lose_locked(s, b));
    }
    return list;
}

/* Mirrored buffers whose device side has no memory. The pool is out of the session. */
static void leave_pool_locked(struct gb_session *s, const struct gb_core_pool *p) {
    struct gb_buffer *b;
    size_t at = 0;

    while ((b = gb_map_next(&s->buffers, &at))) {
        if (b->live && strcmp(gb_text_s(b->rec.pool), p->rec.name.s) == 0)
            gb_buffer_leave_pool_locked(s, b);
    }
}

/* Passes through the lane until the frees are queued, then drops the reference to the pool. The call ends one round
 * later, when the backend's pool is destroyed, unless a reader still holds it. */
static void behind_frees(struct gb_task *task) {
    struct gb_pool_op *op = gb_pool_op_of(task);

    if (op->rounds++ == 2) {
        op->pool = NULL; /* given back before the second round */
        gb_pool_op_end(op);
        return;
    }
    if (op->rounds == 2)
        gb_core_pool_unref(op->pool);
    gb_lane_post(&op->device->lane, &op->task);
}

/* The loss of the buffers is not written to the database, because the next start marks every buffer lost. */
void gb_pool_removed(void *arg, const struct gb_error *error) {
    struct gb_pool_op *op = arg;
    struct gb_session *s = op->base.session;
    struct gb_core_pool *p = op->pool;
    struct gb_core_pool *forgotten = NULL;
    struct gb_content *lost = NULL;
    struct gb_pool_op *next;
    uint64_t lost_buffers;

    pthread_mutex_lock(&s->lock);
    lost_buffers = s->lost_buffers;
    gb_pool_op_note_result_locked(op, error);
    if (op->error.code == GB_OK) {
        lost = lose_buffers_locked(s, p);
        forgotten = gb_pool_op_forget_locked(s, p);
        leave_pool_locked(s, p);
    } else if (atomic_load(&p->state) == GB_POOL_REMOVING) {
        atomic_store(&p->state, GB_POOL_LIVE);
    }
    lost_buffers = s->lost_buffers - lost_buffers;
    next = gb_pool_op_release_locked(op);
    pthread_mutex_unlock(&s->lock);
    if (op->error.code == GB_OK)
        gb_notice_post_pool(s, p, GB_NOTICE_POOL_DELETED);
    gb_notice_post_lost(s, lost_buffers, "their pool was deleted");
    gb_content_drop_all(lost);
    gb_core_pool_unref(forgotten);
    if (op->error.code == GB_OK && p->device) {
        op->device = p->device;
        op->task.run = behind_frees;
        behind_frees(&op->task);
    } else {
        gb_pool_op_end(op);
    }
    gb_pool_op_run(next);
}
