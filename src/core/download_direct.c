/* Downloads straight from memory. */
#include "base/clock.h"
#include "core/download.h"

static const char zeros[65536]; /* what a mirrored buffer reads as that nobody has written */

#define DIRECT_BYTES (64u << 20) /* at once: the socket takes what it can */

static void content_ready(void *arg, const struct gb_error *error) {
    struct gb_download *d = arg;

    gb_core_note(d->t.core, error);
    pthread_mutex_lock(&d->t.lock);
    if (error && d->t.error.code == GB_OK)
        d->t.error = *error;
    d->watching = false;
    gb_transfer_unlock_wake(&d->t);
    gb_transfer_unref(&d->t);
}

/* 1: the event has come, or there is none; 0: wake comes; -1. */
static int wait_event(struct gb_download *d, struct gb_ev *ev, struct gb_error *err) {
    struct gb_backend *be = d->t.core->backend;
    bool watching;
    bool done = true;

    if (ev && gb_event_query(be, ev->event, &done, err) < 0)
        return -1;
    pthread_mutex_lock(&d->t.lock);
    watching = d->watching;
    d->watching = watching || !done;
    d->t.want_wake = watching || !done;
    pthread_mutex_unlock(&d->t.lock);
    if (watching || done)
        return !watching;
    gb_transfer_ref(&d->t);
    if (gb_watch(be, ev->event, content_ready, d, err) == 0)
        return 0;
    gb_transfer_unref(&d->t); /* never the last: the caller has one */
    return -1;
}

/* The work queued on the stream before the download comes before it. */
static int fall_behind(struct gb_download *d, struct gb_error *err) {
    struct gb_stream *part = gb_transfer_part(&d->t);
    bool idle = false;

    if (d->asked || !part)
        return 0;
    d->asked = true;
    if (gb_stream_query(d->t.core->backend, part, &idle, err) < 0 || idle)
        return idle ? 0 : -1;
    d->behind = gb_events_take(&d->t.device->events, err);
    return d->behind ? gb_event_record(d->t.core->backend, d->behind->event, part, err) : -1;
}

/* 1: the CPU may read; 0: wake comes; -1. */
static int wait_ready(struct gb_download *d, struct gb_error *err) {
    int r;

    if (d->ready)
        return 1;
    if (fall_behind(d, err) < 0)
        return -1;
    r = wait_event(d, d->behind, err);
    if (r > 0)
        r = wait_event(d, d->content->ready, err);
    if (r <= 0)
        return r;
    d->ready = true;
    pthread_mutex_lock(&d->t.lock);
    d->t.queue_ns = d->behind || d->content->ready ? gb_clock_ns() - d->t.started_ns : 0;
    pthread_mutex_unlock(&d->t.lock);
    return 1;
}

int gb_download_direct(struct gb_download *d, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    uint64_t left = d->length - d->sent;
    int r;

    if (!d->content) {
        *ret_ptr = zeros;
        *ret_n = left < sizeof(zeros) ? left : sizeof(zeros);
        return 1;
    }
    r = wait_ready(d, err);
    if (r <= 0)
        return r;
    *ret_ptr = (char *)d->content->ptr + d->offset + d->sent;
    *ret_n = left < DIRECT_BYTES ? left : DIRECT_BYTES;
    return 1;
}
