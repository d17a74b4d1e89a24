/* Use cases of devices, pools and streams. */
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "core/session.h"

/* --- devices ------------------------------------------------------------------------------------------------------------------ */

int gb_device_count(struct gb_core *core) {
    return core->device_count;
}

int gb_device_get(struct gb_core *core, int device, struct gb_device_rec *ret, struct gb_error *err) {
    if (device < 0 || device >= core->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", device,
                            core->device_count);
    *ret = core->devices[device].rec;
    ret->free_bytes = atomic_load(&core->devices[device].free_bytes);
    return 0;
}

int gb_device_find(struct gb_core *core, const char *index_or_uuid, int *ret_device, struct gb_error *err) {
    uint64_t index;
    int i;

    if (gb_parse_u64(index_or_uuid, strlen(index_or_uuid), &index) == GB_PARSE_OK &&
        index < (uint64_t)core->device_count) {
        *ret_device = (int)index;
        return 0;
    }
    for (i = 0; i < core->device_count; i++) {
        if (strcmp(core->devices[i].rec.uuid, index_or_uuid) == 0) {
            *ret_device = i;
            return 0;
        }
    }
    return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device \"%.60s\"; there are %d", index_or_uuid,
                        core->device_count);
}

/* --- pools -------------------------------------------------------------------------------------------------------------------- */

unsigned gb_pool_count(struct gb_core *core) {
    return (unsigned)core->device_count;
}

int gb_pool_at(struct gb_core *core, unsigned index, struct gb_pool_view *ret, struct gb_error *err) {
    struct gb_core_device *d;

    if (index >= (unsigned)core->device_count)
        return gb_error_set(err, GB_ERR_POOL_NOT_FOUND, "there are %d pools", core->device_count);
    d = &core->devices[index];
    ret->name = d->pool_name;
    ret->device = d->index;
    ret->config = d->pool_config;
    gb_core_pool_stat(d, &ret->stat);
    ret->allocations = atomic_load(&d->allocations);
    ret->frees = atomic_load(&d->frees);
    ret->failures = atomic_load(&d->failures);
    return 0;
}

int gb_pool_get(struct gb_core *core, const struct gb_name *pool, struct gb_pool_view *ret, struct gb_error *err) {
    int device;

    if (gb_core_pool_device(core, pool, &device, err) < 0)
        return -1;
    return gb_pool_at(core, (unsigned)device, ret, err);
}

struct trim_op {
    struct gb_task task; /* first */
    struct gb_core_device *device;
    uint64_t keep_bytes;
    struct gb_call *call;
};

static void trim(struct gb_task *task) {
    struct trim_op *op = (struct trim_op *)task;
    struct gb_core_device *device = op->device;
    struct gb_core *core = device->core;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_call *call = op->call;
    int r = gb_pool_trim(core->backend, device->pool, op->keep_bytes, &err);

    free(op);
    if (r == 0)
        atomic_fetch_add(&core->tally.trims, 1);
    else
        gb_core_note(core, &err);
    gb_core_refresh_pool(device);
    gb_core_changed(core);
    gb_call_finish(call, r < 0 ? &err : NULL);
    gb_core_leave(core);
}

void gb_pool_trim_to(struct gb_core *core, const struct gb_name *pool, uint64_t keep_bytes, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct trim_op *op = NULL;
    int device = 0;

    if (gb_core_pool_device(core, pool, &device, &err) == 0) {
        op = calloc(1, sizeof(*op));
        if (!op)
            gb_no_memory(&err);
    }
    if (!op) {
        gb_call_finish(call, &err);
        return;
    }
    gb_core_enter(core);
    op->task.run = trim;
    op->device = &core->devices[device];
    op->keep_bytes = keep_bytes;
    op->call = call;
    gb_lane_post(&op->device->lane, &op->task);
}

/* --- streams -------------------------------------------------------------------------------------------------------------------- */

/* Goes from device to device: the session's stream has a part on each. */
struct sync_op {
    struct gb_task task; /* first */
    struct gb_session *session;
    struct gb_call *call;
    int device;
    struct gb_ev *ev;
};

static void sync_next(struct sync_op *op, const struct gb_error *error);

static void synced(void *arg, const struct gb_error *error) {
    struct sync_op *op = arg;
    struct gb_core *core = op->session->core;

    gb_core_note(core, error);
    gb_events_give(&core->devices[op->device].events, op->ev);
    op->ev = NULL;
    op->device++;
    sync_next(op, error);
}

static void sync_device(struct gb_task *task) {
    struct sync_op *op = (struct sync_op *)task;
    struct gb_core *core = op->session->core;
    struct gb_stream *stream = gb_session_stream(op->session, op->device);
    struct gb_error err = GB_ERROR_INIT;

    op->ev = gb_events_take(&core->devices[op->device].events, &err);
    if (!op->ev || gb_event_record(core->backend, op->ev->event, stream, &err) < 0 ||
        gb_watch(core->backend, op->ev->event, synced, op, &err) < 0)
        synced(op, &err);
}

static void sync_next(struct sync_op *op, const struct gb_error *error) {
    struct gb_session *s = op->session;
    struct gb_call *call = op->call;

    while (!error && op->device < s->core->device_count && !gb_session_stream(s, op->device))
        op->device++;
    if (!error && op->device < s->core->device_count) {
        op->task.run = sync_device;
        gb_lane_post(&s->core->devices[op->device].lane, &op->task);
        return;
    }
    free(op);
    gb_call_finish(call, error);
    gb_session_unref(s);
}

void gb_stream_sync_call(struct gb_core *core, const struct gb_name *session, const struct gb_name *stream,
                         struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = NULL;
    struct sync_op *op = NULL;

    if (gb_core_alive(core, &err) == 0 && gb_core_check_stream(stream, &err) == 0)
        s = gb_session_use(core, session, &err);
    if (s) {
        op = calloc(1, sizeof(*op));
        if (!op)
            gb_no_memory(&err);
    }
    if (!op) {
        gb_session_unref(s);
        gb_call_finish(call, &err);
        return;
    }
    op->session = s;
    op->call = call;
    sync_next(op, NULL);
}
