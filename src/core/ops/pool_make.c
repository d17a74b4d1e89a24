/* Making pools. */
#include "core/ops/pool_op.h"

#include <string.h>

#include "base/clock.h"

static void made(void *arg, const struct gb_error *error) {
    struct gb_pool_op *op = arg;
    struct gb_session *s = op->base.session;
    struct gb_core_pool *forgotten = NULL;

    pthread_mutex_lock(&s->lock);
    gb_pool_op_note_result_locked(op, error);
    if (op->error.code == GB_OK) {
        atomic_store(&op->pool->state, GB_POOL_LIVE);
        gb_core_pool_view(op->pool, &op->call->pool);
        op->call->created = true;
    } else {
        forgotten = gb_pool_op_forget_locked(s, op->pool);
    }
    pthread_mutex_unlock(&s->lock);
    if (op->error.code == GB_OK)
        gb_notice_post_pool(s, op->pool, GB_NOTICE_POOL_CREATED);
    gb_core_pool_unref(forgotten);
    gb_pool_op_leave(op);
}

static void make_on_lane(struct gb_task *task) {
    struct gb_pool_op *op = gb_pool_op_of(task);
    struct gb_error err = GB_ERROR_INIT;

    if (gb_core_pool_create(op->pool, &err) < 0)
        made(op, &err);
    else
        gb_store_put_pool(op->base.session->core->store, &op->pool->rec, gb_call_mark(op->base.call), made, op);
}

static int check_name(struct gb_session *s, const struct gb_name *name, struct gb_error *err) {
    const char *text = name->s;
    int i;

    for (i = 0; i < s->core->device_count; i++) {
        if (gb_name_equal(name, &s->core->devices[i].pool->rec.name))
            return gb_error_set(err, GB_ERR_POOL_EXISTS, "\"%s\" is device %d's own pool", text, i);
    }
    if (strncmp(text, "default.", 8) == 0)
        return gb_error_set(err, GB_ERR_POOL_PROTECTED,
                            "names that begin with \"default.\" are the devices' own pools; choose another");
    if (gb_map_get(&s->pools, text))
        return gb_error_set(err, GB_ERR_POOL_EXISTS, "session \"%s\" has a pool named \"%s\"", gb_session_told(s)->s,
                            text);
    return 0;
}

static struct gb_pool_rec new_record(struct gb_session *s, const struct gb_pool_params *p) {
    struct gb_pool_rec rec = p->rec;

    rec.id = atomic_fetch_add(&s->core->last_pool_id, 1) + 1;
    rec.session_id = s->id;
    rec.version = 1;
    rec.created_at_us = rec.updated_at_us = gb_wall_us();
    gb_pool_rec_complete(&rec, &p->given);
    return rec;
}

/* The pool keeps its name from here on. */
static int reserve_locked(struct gb_pool_op *op, const struct gb_pool_params *params, struct gb_error *err) {
    struct gb_session *s = op->base.session;
    struct gb_core *core = s->core;
    uint64_t max = core->config.pools_max ? core->config.pools_max : GB_POOLS_MAX;
    struct gb_core_pool *p;
    struct gb_pool_rec rec;

    if (gb_session_changeable_locked(s, err) < 0 || check_name(s, &params->rec.name, err) < 0)
        return -1;
    if (s->pools.count >= max)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "session \"%s\" has %zu pools, the permitted number (--max-pools)", gb_session_told(s)->s,
                            s->pools.count);
    rec = new_record(s, params);
    p = gb_core_pool_new(core, &core->devices[params->rec.device], &rec);
    if (!p)
        return gb_no_memory(err);
    if (gb_core_pool_enroll_locked(s, p, err) < 0) {
        gb_core_pool_unref(p);
        return -1;
    }
    op->pool = gb_core_pool_ref(p);
    gb_fifo_lock_acquire(&p->fifo, &op->waiter);
    return 0;
}

void gb_pool_make(struct gb_core *core, const struct gb_pool_params *params, struct gb_pool_call *call) {
    struct gb_pool_op *op = gb_pool_op_new(core, &params->session, GB_POOL_MAKES, NULL, call);
    int r;

    if (!op)
        return;
    if (params->rec.device < 0 || params->rec.device >= core->device_count) {
        gb_error_set(&op->error, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", params->rec.device,
                     core->device_count);
        gb_pool_op_end(op);
        return;
    }
    if (gb_core_pool_absent(core->devices[params->rec.device].pool)) {
        gb_core_pool_check(core->devices[params->rec.device].pool, &op->error);
        gb_pool_op_end(op);
        return;
    }
    pthread_mutex_lock(&op->base.session->lock);
    r = reserve_locked(op, params, &op->error);
    pthread_mutex_unlock(&op->base.session->lock);
    if (r < 0) {
        gb_pool_op_end(op);
        return;
    }
    op->task.run = make_on_lane;
    gb_lane_post(&op->pool->device->lane, &op->task);
}
