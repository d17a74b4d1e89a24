/* Streams and events of the host backend. Each stream has a queue of operations, and a few threads run the streams. A
 * stream is on one thread at a time, so its work keeps its order. host.c puts the functions into the vtable; memory.c
 * and share.c queue work with gb_host_submit_locked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/common.h"
#include "backend/host/internal.h"
#include "base/clock.h"
#include "base/thread.h"

#define RING_FIRST 16u
#define TURN_OPS 32u

/* --- dependencies ------------------------------------------------------------------------------------------------- */

/* Dropping the oldest dependency is safe: it only costs a chance to reuse memory. */
static void deps_add(struct gb_host_deps *deps, uint64_t stream_id, uint64_t seq) {
    unsigned i;

    for (i = 0; i < deps->count; i++) {
        if (deps->dep[i].stream_id == stream_id) {
            if (deps->dep[i].seq < seq)
                deps->dep[i].seq = seq;
            return;
        }
    }
    if (deps->count == GB_HOST_DEPS_MAX) {
        memmove(deps->dep, deps->dep + 1, (GB_HOST_DEPS_MAX - 1) * sizeof(deps->dep[0]));
        deps->count--;
    }
    deps->dep[deps->count++] = (struct gb_host_dep){.stream_id = stream_id, .seq = seq};
}

bool gb_host_deps_has(const struct gb_host_deps *deps, uint64_t stream_id, uint64_t seq) {
    unsigned i;

    for (i = 0; i < deps->count; i++) {
        if (deps->dep[i].stream_id == stream_id)
            return deps->dep[i].seq >= seq;
    }
    return false;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static struct gb_stream *ref_locked(struct gb_stream *stream) {
    stream->refs++;
    return stream;
}

void gb_host_stream_unref_locked(struct gb_stream *stream) {
    if (!stream || --stream->refs > 0)
        return;
    pthread_cond_destroy(&stream->progress);
    free(stream->ring);
    free(stream);
}

struct gb_stream *gb_host_stream_new(struct gb_host *host, int device) {
    struct gb_stream *stream = calloc(1, sizeof(*stream));

    if (!stream)
        return NULL;
    stream->ring = calloc(RING_FIRST, sizeof(struct gb_host_op));
    if (!stream->ring) {
        free(stream);
        return NULL;
    }
    stream->ring_size = RING_FIRST;
    stream->host = host;
    stream->device = device;
    stream->refs = 1;
    pthread_cond_init(&stream->progress, NULL);
    pthread_mutex_lock(&host->lock);
    stream->id = ++host->next_stream_id;
    pthread_mutex_unlock(&host->lock);
    return stream;
}

int gb_host_stream_create(struct gb_backend *be, int device, struct gb_stream **ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_stream *stream;

    if (!gb_host_device_ok(host, device, "cudaStreamCreateWithFlags", err))
        return -1;
    stream = gb_host_stream_new(host, device);
    if (!stream)
        return gb_host_no_memory(err, "cudaStreamCreateWithFlags");
    pthread_mutex_lock(&host->lock);
    stream->id = ++host->next_stream_id; /* the list has falling ids, which events of the device rely on */
    stream->next = host->devices[device].streams;
    if (stream->next)
        stream->next->prev = stream;
    host->devices[device].streams = stream;
    pthread_mutex_unlock(&host->lock);
    *ret = stream;
    return 0;
}

static void unlist_locked(struct gb_stream *stream) {
    if (stream->prev)
        stream->prev->next = stream->next;
    else
        stream->host->devices[stream->device].streams = stream->next;
    if (stream->next)
        stream->next->prev = stream->prev;
}

static void drain_locked(struct gb_stream *stream, uint64_t seq, bool idle) {
    stream->syncing++;
    while (stream->done_seq < seq || (idle && stream->state != GB_HOST_IDLE))
        pthread_cond_wait(&stream->progress, &stream->host->lock);
    stream->syncing--;
}

static void note_synced_locked(struct gb_stream *stream, uint64_t seq) {
    if (stream->synced_seq < seq)
        stream->synced_seq = seq;
}

void gb_host_lock(struct gb_host *host) {
    pthread_mutex_lock(&host->lock);
    while (host->freeing > 0)
        pthread_cond_wait(&host->freed, &host->lock);
}

/* A stream of the device that was made by then and has work, or NULL. */
static struct gb_stream *busy_locked(struct gb_host *host, int device, uint64_t id_max) {
    struct gb_stream *stream = host->devices[device].streams;

    while (stream && (stream->id > id_max || stream->done_seq == stream->last_seq))
        stream = stream->next;
    return stream;
}

void gb_host_drain_locked(struct gb_host *host, int device) {
    uint64_t id_max = host->next_stream_id;
    struct gb_stream *stream;
    int i;

    for (i = 0; i < host->device_count; i++) {
        while ((device < 0 || device == i) && (stream = busy_locked(host, i, id_max))) {
            ref_locked(stream);
            drain_locked(stream, stream->last_seq, false);
            gb_host_stream_unref_locked(stream);
        }
    }
}

void gb_host_stream_destroy(struct gb_backend *be, struct gb_stream *stream) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_segment *gone;

    if (!stream)
        return;
    pthread_mutex_lock(&host->lock);
    drain_locked(stream, stream->last_seq, true);
    unlist_locked(stream);
    gb_host_forget_stream_locked(host, stream);
    gone = gb_host_release_locked(host);
    gb_host_stream_unref_locked(stream);
    pthread_mutex_unlock(&host->lock);
    gb_host_segment_unmap(gone);
}

int gb_host_stream_query(struct gb_backend *be, struct gb_stream *stream, bool *ret_done, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    (void)err;
    pthread_mutex_lock(&host->lock);
    *ret_done = stream->done_seq >= stream->last_seq;
    pthread_mutex_unlock(&host->lock);
    return 0;
}

int gb_host_stream_sync(struct gb_backend *be, struct gb_stream *stream, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_segment *gone;
    uint64_t seq;

    (void)err;
    pthread_mutex_lock(&host->lock);
    seq = stream->last_seq;
    drain_locked(stream, seq, false);
    note_synced_locked(stream, seq);
    gone = gb_host_release_locked(host);
    pthread_mutex_unlock(&host->lock);
    gb_host_segment_unmap(gone);
    return 0;
}

/* --- waking workers ----------------------------------------------------------------------------------------------- */

static void *worker_main(void *arg);

/* Starts one more worker. Returns 0 or an errno number. */
static int spawn_locked(struct gb_host *host) {
    struct gb_host_worker *worker = NULL;
    struct gb_error why = GB_ERROR_INIT;
    unsigned i;

    for (i = 0; i < GB_HOST_WORKERS_MAX && !worker; i++) {
        if (host->workers[i].state != GB_HOST_SLOT_RUNNING)
            worker = &host->workers[i];
    }
    if (!worker)
        return EAGAIN;
    if (worker->state == GB_HOST_SLOT_EXITED)
        pthread_join(worker->thread, NULL);
    worker->state = GB_HOST_SLOT_FREE;
    worker->host = host;
    if (gb_thread_start(&worker->thread, "gb-host", worker_main, worker, &why) < 0)
        return why.native_code != 0 ? (int)why.native_code : ENOMEM;
    worker->state = GB_HOST_SLOT_RUNNING;
    host->workers_running++;
    return 0;
}

/* Wakes a worker, or starts one, after a queue got something. */
static void wake_locked(struct gb_host *host) {
    if (host->workers_idle > host->workers_woken) {
        host->workers_woken++;
        pthread_cond_signal(&host->work);
    } else if (host->workers_running - host->workers_in_call < host->workers_base && !host->stopping) {
        /* If that fails, the work waits for the present workers. */
        (void)spawn_locked(host);
    }
}

static void enter_call_locked(struct gb_host *host) {
    host->workers_in_call++;
    if (host->run_head || host->fire_head)
        wake_locked(host);
}

static void leave_call_locked(struct gb_host *host) {
    host->workers_in_call--;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static void ready_locked(struct gb_stream *stream) {
    struct gb_host *host = stream->host;

    stream->state = GB_HOST_READY;
    stream->run_next = NULL;
    if (host->run_tail)
        host->run_tail->run_next = stream;
    else
        host->run_head = stream;
    host->run_tail = stream;
}

static void unpark_waiters_locked(struct gb_stream *stream) {
    struct gb_stream **at = &stream->waiters;

    while (*at) {
        struct gb_stream *waiter = *at;

        if (waiter->wait_seq > stream->done_seq) {
            at = &waiter->wait_next;
            continue;
        }
        *at = waiter->wait_next;
        waiter->wait_next = NULL;
        ready_locked(waiter);
        wake_locked(stream->host);
    }
}

static void event_unref_locked(struct gb_event *event) {
    if (--event->refs > 0)
        return;
    gb_host_stream_unref_locked(event->stream);
    free(event->all);
    free(event);
}

static struct gb_host_watch *event_reached_locked(struct gb_event *event, struct gb_stream *stream, uint64_t seq) {
    struct gb_host_watch **at = &event->watches;
    struct gb_host_watch *fired = NULL;
    struct gb_host_watch **tail = &fired;

    if (event->stream == stream && event->seq == seq)
        event->time_ns = gb_clock_ns();
    while (*at) {
        struct gb_host_watch *watch = *at;

        if (watch->stream != stream || watch->seq != seq) {
            at = &watch->next;
            continue;
        }
        *at = watch->next;
        watch->next = NULL;
        *tail = watch;
        tail = &watch->next;
    }
    event_unref_locked(event);
    return fired;
}

/* Runs the first operation, or a slice of it, and drops the lock meanwhile if that takes time. Returns true if it is
 * done. */
static bool run_op_locked(struct gb_stream *stream, struct gb_host_watch **ret_fired) {
    struct gb_host *host = stream->host;
    struct gb_host_op op = stream->ring[stream->ring_head];

    switch (op.kind) {
    case GB_HOST_COPY:
    case GB_HOST_BOX:
    case GB_HOST_FILL:
        pthread_mutex_unlock(&host->lock);
        gb_host_work(&op);
        pthread_mutex_lock(&host->lock);
        /* The ring may have moved. */
        stream->ring[stream->ring_head] = op;
        return gb_host_worked(&op);
    case GB_HOST_CALL:
        enter_call_locked(host);
        pthread_mutex_unlock(&host->lock);
        op.u.call.fn(op.u.call.arg);
        pthread_mutex_lock(&host->lock);
        leave_call_locked(host);
        return true;
    case GB_HOST_PROTECT:
        pthread_mutex_unlock(&host->lock);
        (void)mprotect(op.u.protect.base, op.u.protect.bytes, op.u.protect.open ? PROT_READ | PROT_WRITE : PROT_NONE);
        pthread_mutex_lock(&host->lock);
        return true;
    case GB_HOST_RECORD:
        *ret_fired = event_reached_locked(op.u.record.event, stream, stream->done_seq + 1);
        return true;
    case GB_HOST_WAIT:
        gb_host_stream_unref_locked(op.u.wait.stream);
        return true;
    default:
        return true;
    }
}

/* Parks the stream in another stream's list if the first operation waits for that one. Returns true if so. */
static bool park_locked(struct gb_stream *stream) {
    const struct gb_host_op *op = &stream->ring[stream->ring_head];
    struct gb_stream *other = op->u.wait.stream;

    if (op->kind != GB_HOST_WAIT || other->done_seq >= op->u.wait.seq)
        return false;
    stream->state = GB_HOST_PARKED;
    stream->wait_seq = op->u.wait.seq;
    stream->wait_next = other->waiters;
    other->waiters = stream;
    return true;
}

static void fire(struct gb_host_watch *watches) {
    while (watches) {
        struct gb_host_watch *watch = watches;

        watches = watch->next;
        watch->fn(watch->arg, NULL);
        free(watch);
    }
}

static void fire_locked(struct gb_host *host, struct gb_host_watch *fired) {
    struct gb_host_segment *gone = gb_host_release_locked(host);

    pthread_mutex_unlock(&host->lock);
    fire(fired);
    gb_host_segment_unmap(gone);
    pthread_mutex_lock(&host->lock);
}

/* Runs the first operation or a slice of it. Returns how many operations of a turn it counts for. */
static unsigned step_locked(struct gb_stream *stream) {
    struct gb_host_watch *fired = NULL;

    if (!run_op_locked(stream, &fired))
        return TURN_OPS / 4;
    stream->ring_head = (stream->ring_head + 1) & (stream->ring_size - 1);
    stream->ring_count--;
    stream->done_seq++;
    if (stream->waiters)
        unpark_waiters_locked(stream);
    if (stream->syncing > 0)
        pthread_cond_broadcast(&stream->progress);
    if (fired)
        fire_locked(stream->host, fired);
    return 1;
}

/* Runs a stream that is in no queue until it is empty, waits, or has run max_ops operations. */
static void run_some_locked(struct gb_stream *stream, unsigned max_ops) {
    struct gb_host *host = stream->host;
    unsigned ops = 0;

    stream->state = GB_HOST_RUNNING;
    while (stream->ring_count > 0) {
        if (park_locked(stream))
            return;
        if (ops >= max_ops) {
            ready_locked(stream);
            wake_locked(host);
            return;
        }
        ops += step_locked(stream);
        if (ops >= TURN_OPS && !host->run_head)
            ops = 0;
    }
    stream->state = GB_HOST_IDLE;
    if (stream->syncing > 0)
        pthread_cond_broadcast(&stream->progress);
}

/* --- queueing ----------------------------------------------------------------------------------------------------- */

static bool push_locked(struct gb_stream *stream, const struct gb_host_op *op) {
    size_t i;

    if (stream->ring_count == stream->ring_size) {
        struct gb_host_op *ring = malloc(stream->ring_size * 2 * sizeof(*ring));

        if (!ring)
            return false;
        for (i = 0; i < stream->ring_count; i++)
            ring[i] = stream->ring[(stream->ring_head + i) & (stream->ring_size - 1)];
        free(stream->ring);
        stream->ring = ring;
        stream->ring_head = 0;
        stream->ring_size *= 2;
    }
    stream->ring[(stream->ring_head + stream->ring_count) & (stream->ring_size - 1)] = *op;
    stream->ring_count++;
    stream->last_seq++;
    return true;
}

/* Returns true if running the operation costs less than waking a thread. */
static bool small(const struct gb_host_op *op) {
    const uint64_t limit = 16384;

    if (op->kind == GB_HOST_COPY)
        return op->u.copy.bytes <= limit;
    if (op->kind == GB_HOST_BOX)
        return op->u.box.box.width * op->u.box.box.rows * op->u.box.box.planes <= limit;
    if (op->kind == GB_HOST_FILL)
        return op->u.fill.count * op->u.fill.width <= limit;
    return op->kind != GB_HOST_CALL;
}

int gb_host_submit_locked(struct gb_stream *stream, const struct gb_host_op *op, const char *call,
                          struct gb_error *err) {
    if (!push_locked(stream, op))
        return gb_host_no_memory(err, call);
    if (stream->state != GB_HOST_IDLE)
        return 0;
    if (small(op)) {
        run_some_locked(stream, 1);
    } else {
        ready_locked(stream);
        wake_locked(stream->host);
    }
    return 0;
}

int gb_host_stream_follow_locked(struct gb_stream *stream, struct gb_stream *other, uint64_t seq, const char *call,
                                 struct gb_error *err) {
    struct gb_host_op op = {.kind = GB_HOST_WAIT, .u.wait = {.stream = other, .seq = seq}};

    if (other->done_seq < seq) {
        ref_locked(other);
        if (gb_host_submit_locked(stream, &op, call, err) < 0) {
            gb_host_stream_unref_locked(other);
            return -1;
        }
    }
    deps_add(&stream->deps, other->id, seq);
    return 0;
}

int gb_host_stream_wait(struct gb_backend *be, struct gb_stream *stream, struct gb_event *event, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    unsigned i;
    int r = 0;

    pthread_mutex_lock(&host->lock);
    if (event->stream && event->stream != stream) {
        r = gb_host_stream_follow_locked(stream, event->stream, event->seq, "cudaStreamWaitEvent", err);
        for (i = 0; r == 0 && i < event->deps.count; i++)
            deps_add(&stream->deps, event->deps.dep[i].stream_id, event->deps.dep[i].seq);
    }
    pthread_mutex_unlock(&host->lock);
    return r;
}

int gb_host_stream_call(struct gb_backend *be, struct gb_stream *stream, void (*fn)(void *), void *arg,
                        struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_CALL, .u.call = {.fn = fn, .arg = arg}};
    int r;

    pthread_mutex_lock(&host->lock);
    r = gb_host_submit_locked(stream, &op, "cudaLaunchHostFunc", err);
    pthread_mutex_unlock(&host->lock);
    return r;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

/* An event has a position in a stream's order, the time when it was reached, and watches. */

int gb_host_event_create(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_event *event;

    if (!gb_host_device_ok(host, device, "cudaEventCreate", err))
        return -1;
    event = calloc(1, sizeof(*event));
    if (!event)
        return gb_host_no_memory(err, "cudaEventCreate");
    event->host = host;
    event->device = device;
    event->refs = 1;
    *ret = event;
    return 0;
}

void gb_host_event_destroy(struct gb_backend *be, struct gb_event *event) {
    struct gb_host *host = gb_host_of(be);

    if (!event)
        return;
    pthread_mutex_lock(&host->lock);
    event_unref_locked(event);
    pthread_mutex_unlock(&host->lock);
}

static bool done_locked(const struct gb_event *event) {
    return !event->stream || event->stream->done_seq >= event->seq;
}

static int record_locked(struct gb_event *event, struct gb_stream *stream, struct gb_error *err) {
    struct gb_host_op op = {.kind = GB_HOST_RECORD, .u.record.event = event};
    struct gb_stream *old = event->stream;
    bool old_recorded = event->recorded;
    uint64_t old_seq = event->seq;

    /* Set before the operation is queued, because it may run at once. */
    event->stream = ref_locked(stream);
    event->seq = stream->last_seq + 1;
    event->recorded = true;
    event->refs++;
    if (gb_host_submit_locked(stream, &op, "cudaEventRecord", err) == 0) {
        event->deps = stream->deps;
        event->all_count = 0;
        gb_host_stream_unref_locked(old);
        return 0;
    }
    gb_host_stream_unref_locked(stream);
    event->stream = old;
    event->seq = old_seq;
    event->recorded = old_recorded;
    event->refs--;
    return -1;
}

int gb_host_event_record(struct gb_backend *be, struct gb_event *event, struct gb_stream *stream,
                         struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    int r;

    if (event->device != stream->device)
        return gb_host_error(err, GB_HOST_INVALID_HANDLE, "cudaEventRecord", "event and stream are of two devices");
    pthread_mutex_lock(&host->lock);
    r = record_locked(event, stream, err);
    pthread_mutex_unlock(&host->lock);
    return r;
}

/* Keeps the position of every stream, because the gather stream keeps only its last few dependencies. Returns 0 or
 * -1. */
static int note_all_locked(struct gb_event *event, struct gb_error *err) {
    struct gb_stream *first = event->host->devices[event->device].streams;
    struct gb_stream *stream;
    struct gb_host_dep *all;
    size_t count = 0;

    for (stream = first; stream; stream = stream->next)
        count++;
    all = calloc(count + 1, sizeof(*all));
    if (!all)
        return gb_host_no_memory(err, "cudaEventRecord");
    free(event->all);
    event->all = all;
    event->all_count = count;
    for (stream = first; stream; stream = stream->next)
        *all++ = (struct gb_host_dep){.stream_id = stream->id, .seq = stream->last_seq};
    return 0;
}

/* The lock is not dropped here, because the gather stream runs a wait at once; so the list of streams does not
 * change. */
int gb_host_event_record_device(struct gb_backend *be, struct gb_event *event, int device, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_stream *gather;
    struct gb_stream *stream;
    int r = 0;

    if (!gb_host_device_ok(host, device, "cudaEventRecord", err))
        return -1;
    if (event->device != device)
        return gb_host_error(err, GB_HOST_INVALID_HANDLE, "cudaEventRecord", "the event is of another device");
    gather = host->devices[device].gather;
    pthread_mutex_lock(&host->lock);
    for (stream = host->devices[device].streams; stream && r == 0; stream = stream->next)
        r = gb_host_stream_follow_locked(gather, stream, stream->last_seq, "cudaStreamWaitEvent", err);
    if (r == 0)
        r = record_locked(event, gather, err);
    if (r == 0)
        r = note_all_locked(event, err);
    pthread_mutex_unlock(&host->lock);
    return r;
}

/* --- events: waiting ---------------------------------------------------------------------------------------------- */

/* Notes the wait for every stream that the device had at the record. Both lists have falling ids. */
static void all_synced_locked(struct gb_event *event) {
    struct gb_stream *stream = event->host->devices[event->device].streams;
    size_t i;

    for (i = 0; i < event->all_count; i++) {
        while (stream && stream->id > event->all[i].stream_id)
            stream = stream->next;
        if (stream && stream->id == event->all[i].stream_id)
            note_synced_locked(stream, event->all[i].seq);
    }
}

static void synced_locked(struct gb_host *host, const struct gb_host_dep *deps, size_t count) {
    struct gb_stream *stream;
    int device;
    size_t i;

    for (device = 0; device < host->device_count; device++) {
        for (stream = host->devices[device].streams; stream; stream = stream->next) {
            for (i = 0; i < count; i++) {
                if (deps[i].stream_id == stream->id)
                    note_synced_locked(stream, deps[i].seq);
            }
        }
    }
}

int gb_host_event_sync(struct gb_backend *be, struct gb_event *event, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_segment *gone;
    struct gb_stream *stream;
    uint64_t seq;

    (void)err;
    pthread_mutex_lock(&host->lock);
    seq = event->seq;
    stream = event->stream ? ref_locked(event->stream) : NULL;
    if (stream) {
        drain_locked(stream, seq, false);
        note_synced_locked(stream, seq);
        synced_locked(host, event->deps.dep, event->deps.count);
        all_synced_locked(event);
        gb_host_stream_unref_locked(stream);
    }
    gone = gb_host_release_locked(host);
    pthread_mutex_unlock(&host->lock);
    gb_host_segment_unmap(gone);
    return 0;
}

/* --- events: queries ---------------------------------------------------------------------------------------------- */

int gb_host_event_mark(struct gb_backend *be, struct gb_event *event, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    (void)err;
    pthread_mutex_lock(&host->lock);
    gb_host_stream_unref_locked(event->stream);
    event->stream = NULL;
    event->recorded = true;
    event->time_ns = gb_clock_ns();
    event->deps.count = 0;
    pthread_mutex_unlock(&host->lock);
    return 0;
}

int gb_host_event_query(struct gb_backend *be, struct gb_event *event, bool *ret_done, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    (void)err;
    pthread_mutex_lock(&host->lock);
    *ret_done = done_locked(event);
    pthread_mutex_unlock(&host->lock);
    return 0;
}

int gb_host_event_elapsed(struct gb_backend *be, struct gb_event *start, struct gb_event *end, uint64_t *ret_ns,
                          struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    int r = 0;

    pthread_mutex_lock(&host->lock);
    if (start->device != end->device || !start->recorded || !end->recorded)
        r = gb_host_error(err, GB_HOST_INVALID_HANDLE, "cudaEventElapsedTime",
                          "both events must have been recorded, on one device");
    else if (start->shared || end->shared)
        r = gb_host_error(err, GB_HOST_INVALID_HANDLE, "cudaEventElapsedTime", "a shared event has no time");
    else if (!done_locked(start) || !done_locked(end))
        r = gb_host_error(err, GB_HOST_NOT_READY, "cudaEventElapsedTime", "an event has not completed yet");
    else
        *ret_ns = end->time_ns > start->time_ns ? end->time_ns - start->time_ns : 0;
    pthread_mutex_unlock(&host->lock);
    return r;
}

/* --- watches ------------------------------------------------------------------------------------------------------ */

int gb_host_watch(struct gb_backend *be, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_watch *watch = calloc(1, sizeof(*watch));

    if (!watch)
        return gb_host_no_memory(err, "watch");
    watch->fn = fn;
    watch->arg = arg;
    pthread_mutex_lock(&host->lock);
    if (done_locked(event)) {
        if (host->fire_tail)
            host->fire_tail->next = watch;
        else
            host->fire_head = watch;
        host->fire_tail = watch;
        wake_locked(host);
    } else {
        watch->stream = event->stream;
        watch->seq = event->seq;
        watch->next = event->watches;
        event->watches = watch;
    }
    pthread_mutex_unlock(&host->lock);
    return 0;
}

/* --- workers ------------------------------------------------------------------------------------------------------ */

/* A few threads run always, and more run while stream_call blocks some of them. */

static void pop_watch_locked(struct gb_host *host) {
    struct gb_host_watch *watch = host->fire_head;

    host->fire_head = watch->next;
    if (!host->fire_head)
        host->fire_tail = NULL;
    watch->next = NULL;
    pthread_mutex_unlock(&host->lock);
    fire(watch);
    pthread_mutex_lock(&host->lock);
}

static void pop_stream_locked(struct gb_host *host) {
    struct gb_stream *stream = host->run_head;

    host->run_head = stream->run_next;
    if (!host->run_head)
        host->run_tail = NULL;
    stream->run_next = NULL;
    run_some_locked(stream, TURN_OPS);
}

static bool surplus_locked(const struct gb_host *host) {
    return host->stopping || host->workers_running - host->workers_in_call > host->workers_base;
}

static void *worker_main(void *arg) {
    struct gb_host_worker *worker = arg;
    struct gb_host *host = worker->host;

    pthread_mutex_lock(&host->lock);
    for (;;) {
        if (host->fire_head) {
            pop_watch_locked(host);
        } else if (host->run_head) {
            pop_stream_locked(host);
        } else if (surplus_locked(host)) {
            break;
        } else {
            host->workers_idle++;
            pthread_cond_wait(&host->work, &host->lock);
            host->workers_idle--;
            if (host->workers_woken > 0)
                host->workers_woken--;
        }
    }
    host->workers_running--;
    worker->state = GB_HOST_SLOT_EXITED;
    pthread_mutex_unlock(&host->lock);
    return NULL;
}

int gb_host_workers_start(struct gb_host *host, struct gb_error *err) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int r = 0;

    host->workers_base = processors < 2 ? 2 : processors > 8 ? 8 : (unsigned)processors;
    pthread_mutex_lock(&host->lock);
    while (r == 0 && host->workers_running < 2)
        r = spawn_locked(host);
    pthread_mutex_unlock(&host->lock);
    return r == 0 ? 0 : gb_error_errno(err, GB_ERR_INTERNAL, "pthread_create", r);
}

void gb_host_workers_stop(struct gb_host *host) {
    unsigned i;

    pthread_mutex_lock(&host->lock);
    host->stopping = true;
    pthread_cond_broadcast(&host->work);
    for (i = 0; i < GB_HOST_WORKERS_MAX; i++) {
        struct gb_host_worker *worker = &host->workers[i];

        if (worker->state == GB_HOST_SLOT_FREE)
            continue;
        pthread_mutex_unlock(&host->lock);
        pthread_join(worker->thread, NULL);
        pthread_mutex_lock(&host->lock);
        worker->state = GB_HOST_SLOT_FREE;
    }
    pthread_mutex_unlock(&host->lock);
}

/* --- holds -------------------------------------------------------------------------------------------------------- */

/* A hold is a worker that waits at a gate. */

struct gb_hold {
    struct gb_gate *gate;
};

int gb_host_stream_hold(struct gb_backend *be, struct gb_stream *stream, struct gb_hold **ret, struct gb_error *err) {
    struct gb_hold *hold = calloc(1, sizeof(*hold));

    if (hold)
        hold->gate = gb_gate_new();
    if (!hold || !hold->gate) {
        free(hold);
        return gb_host_no_memory(err, "cuStreamWaitValue32");
    }
    if (gb_host_stream_call(be, stream, gb_gate_pass, hold->gate, err) < 0) {
        gb_gate_free(hold->gate);
        free(hold);
        return -1;
    }
    *ret = hold;
    return 0;
}

void gb_host_stream_release(struct gb_backend *be, struct gb_hold *hold) {
    (void)be;
    gb_gate_open(hold->gate);
    free(hold);
}
