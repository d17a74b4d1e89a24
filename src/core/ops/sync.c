/* Synchronization without a blocked thread: an event is recorded on each stream and device concerned and is watched.
 * When it is complete the lane synchronizes it, which takes no time then. The pools learn of the finished frees and
 * give back what is above their release threshold. The call ends with the last event. */
#include <stdlib.h>

#include "base/container.h"
#include "base/thread.h"
#include "core/session/op.h"

struct sync_part {
    struct gb_task task;
    struct sync_op *op;
    struct gb_core_stream *stream; /* used; NULL: the whole device */
    int device;
    struct gb_ev *ev;
};

struct sync_op {
    struct gb_core *core;
    struct gb_session *session; /* NULL: of a device */
    struct gb_call *call;
    pthread_mutex_t lock; /* for the error */
    struct gb_error error;
    atomic_uint open;
    size_t count;
    struct sync_part parts[];
};

static struct sync_op *op_new(struct gb_core *core, size_t parts, struct gb_call *call) {
    struct sync_op *op = calloc(1, sizeof(*op) + parts * sizeof(op->parts[0]));

    if (!op)
        return NULL;
    op->core = core;
    op->call = call;
    atomic_init(&op->open, 1);
    gb_mutex_init(&op->lock);
    gb_core_enter(core);
    return op;
}

static void op_leave(struct sync_op *op) {
    struct gb_core *core = op->core;

    if (atomic_fetch_sub(&op->open, 1) != 1)
        return;
    gb_call_finish(op->call, op->error.code == GB_OK ? NULL : &op->error);
    gb_session_unref(op->session);
    pthread_mutex_destroy(&op->lock);
    free(op);
    gb_core_leave(core);
}

static void part_end(struct sync_part *part, const struct gb_error *error) {
    struct sync_op *op = part->op;

    gb_core_report_error(op->core, error);
    gb_event_pool_give(&op->core->devices[part->device].events, part->ev);
    if (error) {
        pthread_mutex_lock(&op->lock);
        if (op->error.code == GB_OK)
            op->error = *error;
        pthread_mutex_unlock(&op->lock);
    }
    gb_core_stream_unuse(part->stream);
    op_leave(op);
}

static void settle(struct gb_task *task) {
    struct sync_part *part = gb_container_of(task, struct sync_part, task);
    struct gb_core_device *device = &part->op->core->devices[part->device];
    struct gb_error err = GB_ERROR_INIT;

    if (gb_event_sync(part->op->core->backend, part->ev->event, &err) < 0) {
        part_end(part, &err);
        return;
    }
    gb_core_pool_release(device);
    part_end(part, NULL);
}

static void reached(void *arg, const struct gb_error *error) {
    struct sync_part *part = arg;

    if (error) {
        part_end(part, error);
        return;
    }
    part->task.run = settle;
    gb_lane_post(&part->op->core->devices[part->device].lane, &part->task);
}

/* Memory that the free cache kept has been freed before this task of the lane. */
static void sync_part(struct gb_task *task) {
    struct sync_part *part = gb_container_of(task, struct sync_part, task);
    struct gb_core *core = part->op->core;
    struct gb_backend *be = core->backend;
    struct gb_error err = GB_ERROR_INIT;
    int r = -1;

    part->ev = gb_event_pool_take(&core->devices[part->device].events, &err);
    if (part->ev && part->stream)
        r = gb_event_record(be, part->ev->event, gb_core_stream_part(part->stream, part->device), &err);
    else if (part->ev)
        r = gb_event_record_device(be, part->ev->event, part->device, &err);
    if (r < 0 || gb_watch(be, part->ev->event, reached, part, &err) < 0)
        part_end(part, &err);
}

/* One more to wait for. The stream's use goes to the part. */
static void add(struct sync_op *op, struct gb_core_stream *stream, int device) {
    op->parts[op->count++] = (struct sync_part){.task.run = sync_part, .op = op, .stream = stream, .device = device};
}

/* The parts that the stream has. The session's lock is held: a user more each. */
static void add_stream_locked(struct sync_op *op, struct gb_core_stream *st) {
    int i;

    for (i = 0; i < op->core->device_count; i++) {
        if (!gb_core_stream_part(st, i))
            continue;
        atomic_fetch_add(&st->users, 1);
        add(op, gb_core_stream_ref(st), i);
    }
}

static void start(struct sync_op *op) {
    size_t count = op->count; /* the op may end with its last part */
    size_t i;

    atomic_store(&op->open, (unsigned)count + 1);
    for (i = 0; i < count; i++)
        gb_lane_post(&op->core->devices[op->parts[i].device].lane, &op->parts[i].task);
    op_leave(op);
}

static void refuse(struct gb_session *session, struct gb_error *err, struct gb_call *call) {
    gb_session_unref(session);
    gb_call_finish(call, err);
}

void gb_stream_sync_call(struct gb_core *core, const struct gb_locator *at, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = gb_op_session(core, &at->session, &err);
    struct gb_core_stream *st = NULL;
    struct sync_op *op = NULL;

    if (s) {
        pthread_mutex_lock(&s->lock);
        if (gb_core_stream_use_locked(s, &at->name, &st, &err) == 0) {
            op = op_new(core, (size_t)core->device_count, call);
            if (op)
                add_stream_locked(op, st);
            else
                gb_no_memory(&err);
        }
        pthread_mutex_unlock(&s->lock);
        gb_core_stream_unuse(st);
    }
    if (!op) {
        refuse(s, &err, call);
        return;
    }
    op->session = s;
    start(op);
}

void gb_session_sync_call(struct gb_core *core, const struct gb_name *session, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = gb_op_session(core, session, &err);
    struct sync_op *op = NULL;

    if (s) {
        struct gb_core_stream *st;
        size_t at = 0;

        pthread_mutex_lock(&s->lock);
        op = op_new(core, (s->streams.count + 1) * (size_t)core->device_count, call);
        if (op) {
            add_stream_locked(op, s->standard);
            while ((st = gb_map_next(&s->streams, &at)))
                add_stream_locked(op, st);
        } else {
            gb_no_memory(&err);
        }
        pthread_mutex_unlock(&s->lock);
    }
    if (!op) {
        refuse(s, &err, call);
        return;
    }
    op->session = s;
    start(op);
}

void gb_device_sync_call(struct gb_core *core, int device, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct sync_op *op = NULL;

    if (device < 0 || device >= core->device_count)
        gb_error_set(&err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", device, core->device_count);
    else if (gb_core_alive(core, &err) == 0 && !(op = op_new(core, 1, call)))
        gb_no_memory(&err);
    if (!op) {
        gb_call_finish(call, &err);
        return;
    }
    add(op, NULL, device);
    start(op);
}

/* --- the core's own work ------------------------------------------------------------------------------------------ */

struct flush {
    struct gb_core *core;
    struct gb_call *call;
    struct gb_task task;
    int device; /* the next one */
};

static void flushed(void *arg, const struct gb_error *error) {
    struct flush *f = arg;
    struct gb_core *core = f->core;

    gb_call_finish(f->call, error);
    free(f);
    gb_core_leave(core);
}

/* A lane works in order, and a pool goes to the database from there. */
static void flush_next(struct gb_task *task) {
    struct flush *f = gb_container_of(task, struct flush, task);

    if (f->device < f->core->device_count)
        gb_lane_post(&f->core->devices[f->device++].lane, &f->task);
    else
        gb_store_flush(f->core->store, flushed, f);
}

void gb_core_flush(struct gb_core *core, struct gb_call *call) {
    struct flush *f = calloc(1, sizeof(*f));
    struct gb_error err = GB_ERROR_INIT;

    if (!f) {
        gb_no_memory(&err);
        gb_call_finish(call, &err);
        return;
    }
    gb_core_enter(core);
    *f = (struct flush){.core = core, .call = call, .task = {.run = flush_next}};
    flush_next(&f->task);
}
