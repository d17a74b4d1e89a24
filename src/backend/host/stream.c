/* Streams: a queue of operations each, run by the workers in order. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/host/host.h"

#define RING_FIRST 16u
#define TURN_OPS 32u

/* --- dependencies ------------------------------------------------------------------------------------------------- */

/* Forgetting the oldest is safe: it only costs a chance to reuse memory. */
void gb_host_deps_add(struct gb_host_deps *deps, uint64_t stream_id, uint64_t seq) {
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

struct gb_stream *gb_host_stream_ref_locked(struct gb_stream *stream) {
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
    stream->id = ++host->next_stream_id; /* the list has falling ids: events of the device rely on it */
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

void gb_host_drain_locked(struct gb_stream *stream, uint64_t seq, bool idle) {
    stream->syncing++;
    while (stream->done_seq < seq || (idle && stream->state != GB_HOST_IDLE))
        pthread_cond_wait(&stream->progress, &stream->host->lock);
    stream->syncing--;
}

void gb_host_synced_locked(struct gb_stream *stream, uint64_t seq) {
    if (stream->synced_seq < seq)
        stream->synced_seq = seq;
}

void gb_host_stream_destroy(struct gb_backend *be, struct gb_stream *stream) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_segment *gone;

    if (!stream)
        return;
    pthread_mutex_lock(&host->lock);
    gb_host_drain_locked(stream, stream->last_seq, true);
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
    gb_host_drain_locked(stream, seq, false);
    gb_host_synced_locked(stream, seq);
    gone = gb_host_release_locked(host);
    pthread_mutex_unlock(&host->lock);
    gb_host_segment_unmap(gone);
    return 0;
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
        gb_host_wake_locked(stream->host);
    }
}

/* Runs the first operation, or a slice of it; the lock is dropped meanwhile where that takes time. True: it is done. */
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
        gb_host_enter_call_locked(host);
        pthread_mutex_unlock(&host->lock);
        op.u.call.fn(op.u.call.arg);
        pthread_mutex_lock(&host->lock);
        gb_host_leave_call_locked(host);
        return true;
    case GB_HOST_PROTECT:
        pthread_mutex_unlock(&host->lock);
        (void)mprotect(op.u.protect.base, op.u.protect.bytes, op.u.protect.open ? PROT_READ | PROT_WRITE : PROT_NONE);
        pthread_mutex_lock(&host->lock);
        return true;
    case GB_HOST_RECORD:
        *ret_fired = gb_host_event_reached_locked(op.u.record.event, stream, stream->done_seq + 1);
        return true;
    case GB_HOST_WAIT:
        gb_host_stream_unref_locked(op.u.wait.stream);
        return true;
    default:
        return true;
    }
}

/* True when the first operation waits for another stream; the stream is then in that one's list. */
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

static void fire_locked(struct gb_host *host, struct gb_host_watch *fired) {
    struct gb_host_segment *gone = gb_host_release_locked(host);

    pthread_mutex_unlock(&host->lock);
    gb_host_fire(fired);
    gb_host_segment_unmap(gone);
    pthread_mutex_lock(&host->lock);
}

/* Returns how much of a turn it took. */
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

/* Runs a stream that is in no queue until it is empty, waits, or has had its turn; at most max_ops of it. */
static void run_some_locked(struct gb_stream *stream, unsigned max_ops) {
    struct gb_host *host = stream->host;
    unsigned ops = 0;

    stream->state = GB_HOST_RUNNING;
    while (stream->ring_count > 0) {
        if (park_locked(stream))
            return;
        if (ops >= max_ops) {
            ready_locked(stream);
            gb_host_wake_locked(host);
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

void gb_host_run_locked(struct gb_stream *stream) {
    run_some_locked(stream, TURN_OPS);
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

/* Cheaper to do at once than to wake a thread for. */
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
        gb_host_wake_locked(stream->host);
    }
    return 0;
}

int gb_host_stream_follow_locked(struct gb_stream *stream, struct gb_stream *other, uint64_t seq, const char *call,
                                 struct gb_error *err) {
    struct gb_host_op op = {.kind = GB_HOST_WAIT, .u.wait = {.stream = other, .seq = seq}};

    if (other->done_seq < seq) {
        gb_host_stream_ref_locked(other);
        if (gb_host_submit_locked(stream, &op, call, err) < 0) {
            gb_host_stream_unref_locked(other);
            return -1;
        }
    }
    gb_host_deps_add(&stream->deps, other->id, seq);
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
            gb_host_deps_add(&stream->deps, event->deps.dep[i].stream_id, event->deps.dep[i].seq);
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
