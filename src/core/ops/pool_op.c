/* Changes of one pool: in turn, on the device first, then in the database, then in sight. */
#include "core/ops/pool_op.h"

#include "base/clock.h"

struct gb_pool_op *gb_pool_op_new(struct gb_core *core, const struct gb_name *session, enum gb_pool_what what,
                                  const struct gb_pool_check *check, struct gb_pool_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s;
    struct gb_pool_op *op;

    /* What is dead can still be removed. */
    s = what == GB_POOL_REMOVES ? gb_session_use(core, session, &err) : gb_op_session(core, session, &err);
    op = gb_op_new(sizeof(*op), s, &call->base, check ? check->free_arg : NULL, check ? check->arg : NULL, &err);
    if (!op)
        return NULL;
    op->what = what;
    op->call = call;
    if (check)
        op->check = *check;
    return op;
}

void gb_pool_op_end(struct gb_pool_op *op) {
    gb_core_changed(op->base.session->core);
    gb_core_pool_unref(op->pool);
    gb_op_end(&op->base, &op->error);
}

struct gb_pool_op *gb_pool_op_release_locked(struct gb_pool_op *op) {
    struct gb_fifo_waiter *next = gb_fifo_lock_release(&op->pool->fifo);

    return next ? gb_container_of(next, struct gb_pool_op, waiter) : NULL;
}

/* Gives the turn on, ends this one. */
void gb_pool_op_leave(struct gb_pool_op *op) {
    struct gb_session *s = op->base.session;
    struct gb_pool_op *next;

    pthread_mutex_lock(&s->lock);
    next = gb_pool_op_release_locked(op);
    pthread_mutex_unlock(&s->lock);
    gb_pool_op_end(op);
    gb_pool_op_run(next);
}

/* A session that was deleted meanwhile took the record with it, or let it not in. */
void gb_pool_op_note_result_locked(struct gb_pool_op *op, const struct gb_error *error) {
    int state = atomic_load(&op->base.session->state);

    if (error)
        op->error = *error;
    if (state == GB_SESSION_DEAD || (error && state != GB_SESSION_LIVE)) {
        op->error = GB_ERROR_INIT;
        gb_session_alive(op->base.session, &op->error);
    }
}

/* Out of the session, if it is still there: the session's reference comes back. */
struct gb_core_pool *gb_pool_op_forget_locked(struct gb_session *s, struct gb_core_pool *p) {
    atomic_store(&p->state, GB_POOL_DEAD);
    if (gb_map_get(&s->pools, p->rec.name.s) != p)
        return NULL;
    gb_map_take(&s->pools, p->rec.name.s);
    gb_idlist_take(&s->pools_by_id, p->rec.id);
    gb_session_pools_update_locked(s->core->pool_sessions, s);
    return p;
}

/* --- in turn ------------------------------------------------------------------------------------------------------ */

static int validate_locked(struct gb_pool_op *op, struct gb_error *err) {
    struct gb_core_pool *p = op->pool;
    uint64_t occupants = atomic_load(&p->occupants);

    if (gb_session_changeable_locked(op->base.session, err) < 0)
        return -1;
    if (atomic_load(&p->state) != GB_POOL_LIVE)
        return gb_error_set(err, GB_ERR_POOL_NOT_FOUND, "session \"%s\" has no pool named \"%s\"",
                            gb_session_told(op->base.session)->s, p->rec.name.s);
    if (op->check.check && op->check.check(op->check.arg, &p->rec, err) < 0)
        return -1;
    if (op->what == GB_POOL_PATCHES) {
        op->rec = p->rec;
        gb_pool_rec_merge(&op->rec, &op->params.rec, &op->params.given);
        op->rec.version++;
        op->rec.updated_at_us = gb_wall_us();
        return gb_core_pool_check(p, err);
    }
    if (atomic_load(&p->leases) > 0)
        return gb_error_set(err, GB_ERR_MAPPED,
                            "other processes map memory of pool \"%s\" (leases: %llu); wait until they have ended",
                            p->rec.name.s, (unsigned long long)atomic_load(&p->leases));
    if (occupants > 0 && !op->force)
        return gb_error_set(
            err, GB_ERR_POOL_BUSY,
            "%llu buffers have their bytes in pool \"%s\"; delete them, or force the deletion (?force=true), which "
            "loses the bytes",
            (unsigned long long)occupants, p->rec.name.s);
    gb_core_pool_view(p, &op->call->pool);
    atomic_store(&p->state, GB_POOL_REMOVING);
    return 0;
}

/* op has the turn. */
void gb_pool_op_run(struct gb_pool_op *op) {
    struct gb_pool_op *next;
    int r;

    for (; op; op = next) {
        struct gb_session *s = op->base.session;

        pthread_mutex_lock(&s->lock);
        r = validate_locked(op, &op->error);
        next = r < 0 ? gb_pool_op_release_locked(op) : NULL;
        pthread_mutex_unlock(&s->lock);
        if (r < 0) {
            gb_pool_op_end(op);
        } else if (op->what == GB_POOL_REMOVES) {
            gb_store_delete_pool(s->core->store, op->pool->rec.id, gb_call_mark(op->base.call), gb_pool_removed, op);
        } else {
            op->task.run = gb_pool_patch_on_lane;
            gb_lane_post(&op->pool->device->lane, &op->task);
        }
    }
}

/* What comes of an operation that entered. One that waits in line may have had its turn, and its end, at any time. */
enum entry { REFUSED, IN_LINE, IN_TURN, OF_A_DEVICE };

static enum entry enter_locked(struct gb_pool_op *op, const struct gb_name *name, struct gb_error *err) {
    struct gb_core_pool *p = gb_core_pool_find_locked(op->base.session, name, err);

    if (!p)
        return REFUSED;
    if (gb_core_pool_absent(p)) {
        gb_core_pool_check(p, err);
        return REFUSED;
    }
    if (p->own && op->what != GB_POOL_PATCHES) {
        gb_error_set(err, GB_ERR_POOL_PROTECTED, "\"%s\" is a device's own pool, which all sessions share",
                     p->rec.name.s);
        return REFUSED;
    }
    op->pool = gb_core_pool_ref(p);
    if (p->own)
        return OF_A_DEVICE;
    return gb_fifo_lock_acquire(&p->fifo, &op->waiter) ? IN_TURN : IN_LINE;
}

static void transaction(struct gb_pool_op *op, const struct gb_name *name) {
    struct gb_session *s = op->base.session;
    enum entry entry;

    pthread_mutex_lock(&s->lock);
    entry = enter_locked(op, name, &op->error);
    pthread_mutex_unlock(&s->lock);
    if (entry == REFUSED)
        gb_pool_op_end(op);
    else if (entry == OF_A_DEVICE)
        gb_pool_patch_own(op);
    else if (entry == IN_TURN)
        gb_pool_op_run(op);
}

void gb_pool_patch(struct gb_core *core, const struct gb_pool_params *params, const struct gb_pool_check *check,
                   struct gb_pool_call *call) {
    struct gb_pool_op *op = gb_pool_op_new(core, &params->session, GB_POOL_PATCHES, check, call);

    if (!op)
        return;
    op->params = *params;
    transaction(op, &params->rec.name);
}

void gb_pool_remove(struct gb_core *core, const struct gb_locator *at, bool force, struct gb_pool_call *call) {
    struct gb_pool_op *op = gb_pool_op_new(core, &at->session, GB_POOL_REMOVES, NULL, call);

    if (!op)
        return;
    op->force = force;
    transaction(op, &at->name);
}
