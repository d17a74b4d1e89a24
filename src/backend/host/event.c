/* Events: a position in a stream's order, the moment it was reached, and the watches on it. */
#include <stdlib.h>

#include "backend/host/host.h"

#include "base/clock.h"

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

void gb_host_event_unref_locked(struct gb_event *event) {
    if (--event->refs > 0)
        return;
    gb_host_stream_unref_locked(event->stream);
    free(event->all);
    free(event);
}

void gb_host_event_destroy(struct gb_backend *be, struct gb_event *event) {
    struct gb_host *host = gb_host_of(be);

    if (!event)
        return;
    pthread_mutex_lock(&host->lock);
    gb_host_event_unref_locked(event);
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

    /* Before the operation is queued: it may run at once. */
    event->stream = gb_host_stream_ref_locked(stream);
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

/* The gather stream remembers only the last few streams that it waited for. */
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

/* A wait that is queued behind nothing is checked here and now, and never drops the lock: the list stays as it is. */
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

/* --- waiting ------------------------------------------------------------------------------------------------------ */

/* The event covers every stream that the device had then, and both lists have falling ids. */
static void all_synced_locked(struct gb_event *event) {
    struct gb_stream *stream = event->host->devices[event->device].streams;
    size_t i;

    for (i = 0; i < event->all_count; i++) {
        while (stream && stream->id > event->all[i].stream_id)
            stream = stream->next;
        if (stream && stream->id == event->all[i].stream_id)
            gb_host_synced_locked(stream, event->all[i].seq);
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
                    gb_host_synced_locked(stream, deps[i].seq);
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
    stream = event->stream ? gb_host_stream_ref_locked(event->stream) : NULL;
    if (stream) {
        gb_host_drain_locked(stream, seq, false);
        gb_host_synced_locked(stream, seq);
        synced_locked(host, event->deps.dep, event->deps.count);
        all_synced_locked(event);
        gb_host_stream_unref_locked(stream);
    }
    gone = gb_host_release_locked(host);
    pthread_mutex_unlock(&host->lock);
    gb_host_segment_unmap(gone);
    return 0;
}

/* --- checking ----------------------------------------------------------------------------------------------------- */

struct gb_host_watch *gb_host_event_reached_locked(struct gb_event *event, struct gb_stream *stream, uint64_t seq) {
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
    gb_host_event_unref_locked(event);
    return fired;
}

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

void gb_host_fire(struct gb_host_watch *watches) {
    while (watches) {
        struct gb_host_watch *watch = watches;

        watches = watch->next;
        watch->fn(watch->arg, NULL);
        free(watch);
    }
}

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
        gb_host_wake_locked(host);
    } else {
        watch->stream = event->stream;
        watch->seq = event->seq;
        watch->next = event->watches;
        event->watches = watch;
    }
    pthread_mutex_unlock(&host->lock);
    return 0;
}
