/* Synchronization and holds of streams. No thread is blocked by a synchronization: it ends with the watches of its
 * events. A hold ends by a thread of its own. Handlers call this. */

#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"
#include "core/session/session.h"

/* --- sync --------------------------------------------------------------------------------------------------------- */

/* Synchronization without a blocked thread: an event is recorded on each stream and device concerned and is watched.
 * A client's event was recorded before. When it is complete the lane synchronizes it, which takes no time then. The
 * pools learn of the finished frees and give back what is above their release threshold. The call ends with the last
 * event. */

struct sync_part {
    struct gb_task task;
    struct sync_op *op;
    struct gb_core_stream *stream; /* used; NULL: the whole device, or the op has a mark */
    int device;
    struct gb_ev *ev;
};

struct sync_op {
    struct gb_core *core;
    struct gb_session *session; /* NULL: of a device */
    struct gb_event_mark *mark; /* a reference; has the events. NULL: each part has its own */
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
    gb_event_mark_unref(op->mark);
    gb_session_unref(op->session);
    pthread_mutex_destroy(&op->lock);
    free(op);
    gb_core_leave(core);
}

static void part_end(struct sync_part *part, const struct gb_error *error) {
    struct sync_op *op = part->op;

    gb_core_report_error(op->core, error);
    if (!op->mark)
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

static void release_unused(struct gb_task *task) {
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
    part->task.run = release_unused;
    gb_lane_post(&part->op->core->devices[part->device].lane, &part->task);
}

/* The free cache was emptied before this task of the lane. */
static void sync_part(struct gb_task *task) {
    struct sync_part *part = gb_container_of(task, struct sync_part, task);
    struct gb_core *core = part->op->core;
    struct gb_backend *be = core->backend;
    struct gb_error err = GB_ERROR_INIT;
    bool marked = part->op->mark != NULL;
    int r = marked ? 0 : -1;

    if (!marked)
        part->ev = gb_event_pool_take(&core->devices[part->device].events, &err);
    if (marked)
        part->ev = part->op->mark->evs[part->device];
    else if (part->ev && part->stream)
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

void gb_event_sync_call(struct gb_core *core, const struct gb_locator *at, struct gb_event_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = gb_op_session(core, &at->session, &err);
    struct gb_event_mark *mark = NULL;
    struct sync_op *op = NULL;
    int i;

    if (s && gb_event_mark_get(s, &at->name, &call->event, &mark, &err) == 0) {
        op = op_new(core, (size_t)core->device_count, &call->base);
        if (!op)
            gb_no_memory(&err);
    }
    if (!op) {
        gb_event_mark_unref(mark);
        refuse(s, &err, &call->base);
        return;
    }
    call->event.done = true; /* when the call ends without an error */
    op->session = s;
    op->mark = mark;
    for (i = 0; mark && i < core->device_count; i++) {
        if (mark->evs[i])
            add(op, NULL, i);
    }
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

/* --- hold --------------------------------------------------------------------------------------------------------- */

/* Holding streams. Each hold is queued on a lane and ends at its time, by a thread that the first hold starts: the
 * lanes may wait for a held stream, so none of them could end it. */

/* From the request until its end. The lock of gb_holds guards next and hold. */
struct held {
    struct held *next;
    struct gb_core_stream *stream; /* a reference */
    int device;
    uint64_t end_ns;
    struct gb_hold *hold; /* NULL: not queued yet */
};

struct gb_holds {
    pthread_mutex_t lock;
    struct held *first;
    unsigned count;
    bool over; /* the daemon stops */
    bool timed;
    struct gb_worker timer;
};

struct hold_op {
    struct gb_op base; /* first */
    struct gb_task task;
    struct gb_hold_call *call;
    struct gb_core_stream *stream; /* used */
    struct held *held;             /* in the list, until the hold is queued */
};

struct gb_holds *gb_holds_new(void) {
    struct gb_holds *holds = calloc(1, sizeof(*holds));

    if (!holds)
        return NULL;
    gb_mutex_init(&holds->lock);
    gb_worker_init(&holds->timer);
    return holds;
}

void gb_holds_free(struct gb_holds *holds) {
    if (!holds)
        return;
    gb_worker_done(&holds->timer);
    pthread_mutex_destroy(&holds->lock);
    free(holds);
}

/* --- the end of holds --------------------------------------------------------------------------------------------- */

static void take_out_locked(struct gb_holds *holds, struct held *held) {
    struct held **at = &holds->first;

    while (*at != held)
        at = &(*at)->next;
    *at = held->next;
    holds->count--;
}

/* The hold was taken out of its list. */
static void end(struct gb_core *core, struct held *held) {
    if (held->hold)
        gb_stream_release(core->backend, held->hold);
    gb_core_stream_unref(held->stream);
    free(held);
}

/* One whose time has come, out of the list; NULL: none. *ret_end_ns: when the next one's comes. */
static struct held *take_due(struct gb_holds *holds, uint64_t now_ns, uint64_t *ret_end_ns) {
    struct held *due = NULL;
    struct held *held;

    *ret_end_ns = UINT64_MAX;
    pthread_mutex_lock(&holds->lock);
    for (held = holds->first; held && !due; held = held->next) {
        if (held->hold && held->end_ns <= now_ns)
            due = held;
        else if (held->hold && held->end_ns < *ret_end_ns)
            *ret_end_ns = held->end_ns;
    }
    if (due)
        take_out_locked(holds, due);
    pthread_mutex_unlock(&holds->lock);
    return due;
}

/* The timer's run. */
static uint64_t end_due(void *arg) {
    struct gb_core *core = arg;
    uint64_t now_ns = gb_clock_ns();
    uint64_t end_ns;
    struct held *due;

    while ((due = take_due(core->holds, now_ns, &end_ns)))
        end(core, due);
    return end_ns == UINT64_MAX ? 0 : (end_ns - now_ns) / GB_NS_PER_MS + 1;
}

void gb_holds_release(struct gb_core *core) {
    struct gb_holds *holds = core->holds;
    struct held *due;
    uint64_t end_ns;

    if (!holds)
        return;
    pthread_mutex_lock(&holds->lock);
    holds->over = true;
    pthread_mutex_unlock(&holds->lock);
    gb_worker_stop(&holds->timer);
    while ((due = take_due(holds, UINT64_MAX, &end_ns)))
        end(core, due);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

static int check_locked(const struct gb_holds *holds, const struct hold_op *op, struct gb_error *err) {
    const struct held *held;

    if (holds->over)
        return gb_error_set(err, GB_ERR_DRAINING, "the daemon is stopping");
    if (holds->count == GB_HOLDS_MAX)
        return gb_error_set(err, GB_ERR_SATURATED, "%u streams are held, the permitted number; ask again when one ends",
                            holds->count);
    for (held = holds->first; held; held = held->next) {
        if (held->stream == op->stream && held->device == op->call->device)
            return gb_error_set(err, GB_ERR_STREAM_HELD,
                                "the stream \"%s\" is held on device %d; ask again when that hold has ended",
                                op->stream->name.s, held->device);
    }
    return 0;
}

/* Takes a place in the list, and sees that the timer runs. */
static int enter(struct hold_op *op, struct gb_error *err) {
    struct gb_core *core = op->base.session->core;
    struct gb_holds *holds = core->holds;
    struct held *held = calloc(1, sizeof(*held));
    int r = held ? 0 : gb_no_memory(err);

    pthread_mutex_lock(&holds->lock);
    if (r == 0)
        r = check_locked(holds, op, err);
    if (r == 0 && !holds->timed)
        r = gb_worker_start(&holds->timer, "gb-hold", 0, end_due, core, err);
    holds->timed = holds->timed || r == 0;
    if (r == 0) {
        *held =
            (struct held){.next = holds->first, .stream = gb_core_stream_ref(op->stream), .device = op->call->device};
        holds->first = held;
        holds->count++;
        op->held = held;
    }
    pthread_mutex_unlock(&holds->lock);
    if (r < 0)
        free(held);
    return r;
}

/* The daemon may have begun to stop meanwhile. */
static void begin(struct hold_op *op, struct gb_hold *hold) {
    struct gb_core *core = op->base.session->core;
    struct held *over = NULL;

    pthread_mutex_lock(&core->holds->lock);
    op->held->end_ns = gb_clock_ns() + op->call->ms * GB_NS_PER_MS;
    op->held->hold = hold;
    if (core->holds->over || !hold) {
        over = op->held;
        take_out_locked(core->holds, over);
    }
    pthread_mutex_unlock(&core->holds->lock);
    op->call->until_us = gb_wall_us() + (int64_t)op->call->ms * 1000;
    if (over)
        end(core, over);
    else
        gb_worker_kick(&core->holds->timer);
}

static void op_end(struct hold_op *op, const struct gb_error *error) {
    gb_core_stream_unuse(op->stream);
    gb_op_end(&op->base, error);
}

/* On the lane. */
static void queue_hold(struct gb_task *task) {
    struct hold_op *op = gb_container_of(task, struct hold_op, task);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_hold *hold = NULL;
    struct gb_stream *part;
    int r = gb_core_stream_part_make(op->stream, op->call->device, &part, &err);

    if (r == 0)
        r = gb_stream_hold(op->base.session->core->backend, part, &hold, &err);
    begin(op, r == 0 ? hold : NULL);
    op_end(op, r < 0 ? &err : NULL);
}

static int check_params(struct gb_core *core, int device, uint64_t ms, struct gb_error *err) {
    if (device < 0 || device >= core->device_count)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", device,
                            core->device_count);
    if (ms < 1 || ms > GB_HOLD_MS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'ms' must be 1 to %d milliseconds",
                            GB_HOLD_MS_MAX);
    return 0;
}

void gb_stream_hold_call(struct gb_core *core, const struct gb_locator *at, int device, uint64_t ms,
                         struct gb_hold_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = check_params(core, device, ms, &err) < 0 ? NULL : gb_op_session(core, &at->session, &err);
    struct hold_op *op = gb_op_new(sizeof(*op), s, &call->base, NULL, NULL, &err);
    int r;

    if (!op)
        return;
    op->task.run = queue_hold;
    op->call = call;
    call->device = device;
    call->ms = ms;
    pthread_mutex_lock(&s->lock);
    r = gb_core_stream_use_locked(s, &at->name, &op->stream, &err);
    pthread_mutex_unlock(&s->lock);
    if (r == 0) {
        call->stream = op->stream->name;
        r = enter(op, &err);
    }
    if (r == 0)
        gb_lane_post(&core->devices[device].lane, &op->task);
    else
        op_end(op, &err);
}
