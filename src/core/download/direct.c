/* Downloads straight from memory; what does not lie side by side is packed first. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/download/download.h"

static const char zeros[65536]; /* the bytes of a mirrored buffer before its first write */

#define DIRECT_BYTES (64u << 20) /* at once: the socket takes what it can */

static void content_ready(void *arg, const struct gb_error *error) {
    struct gb_download *d = arg;

    gb_core_report_error(d->t.core, error);
    pthread_mutex_lock(&d->t.lock);
    if (error && d->t.error.code == GB_OK)
        d->t.error = *error;
    d->watching = false;
    gb_core_transfer_unlock_wake(&d->t);
    gb_core_transfer_unref(&d->t);
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
    gb_core_transfer_ref(&d->t);
    if (gb_watch(be, ev->event, content_ready, d, err) == 0)
        return 0;
    gb_core_transfer_unref(&d->t); /* never the last: the caller has one */
    return -1;
}

/* The work queued on the stream before the download comes before it. */
static int fall_behind(struct gb_download *d, struct gb_error *err) {
    struct gb_stream *part = gb_core_transfer_part(&d->t);
    bool idle = false;

    if (d->asked || !part)
        return 0;
    d->asked = true;
    if (gb_stream_query(d->t.core->backend, part, &idle, err) < 0 || idle)
        return idle ? 0 : -1;
    d->behind = gb_event_pool_take(&d->t.device->events, err);
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

/* As many bytes as fit, from the first that was not sent. */
static int pack(struct gb_download *d, struct gb_error *err) {
    uint64_t size = d->length < GB_SCRATCH_BYTES ? d->length : GB_SCRATCH_BYTES;
    uint64_t offset;
    uint64_t packed;
    uint64_t i;

    if (!d->scratch && !(d->scratch = malloc(size)))
        return gb_no_memory(err);
    d->scratch_n = d->scratch_sent = 0;
    while (d->scratch_n < size && d->sent + d->scratch_n < d->length) {
        struct gb_cut cut;
        uint64_t left;
        uint64_t at = gb_download_locate(d, d->sent + d->scratch_n, &left);
        uint64_t room = size - d->scratch_n;

        gb_view_cut(&d->view, at, left < room ? left : room, UINT64_MAX, &cut);
        for (i = 0; i < cut.boxes; i++) {
            gb_cut_box(&cut, i, &offset, &packed);
            gb_box_copy(&cut.box, (char *)d->content->ptr + offset, d->scratch + d->scratch_n + packed, true);
        }
        d->scratch_n += cut.bytes;
    }
    return 0;
}

int gb_download_direct(struct gb_download *d, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    uint64_t left;
    uint64_t at;
    int r;

    if (!d->content) {
        left = d->length - d->sent;
        *ret_ptr = zeros;
        *ret_n = left < sizeof(zeros) ? left : sizeof(zeros);
        return 1;
    }
    r = wait_ready(d, err);
    if (r <= 0)
        return r;
    if (d->view.axes > 0) {
        if (d->scratch_sent == d->scratch_n && pack(d, err) < 0)
            return -1;
        *ret_ptr = d->scratch + d->scratch_sent;
        *ret_n = d->scratch_n - d->scratch_sent;
        return 1;
    }
    at = gb_download_locate(d, d->sent, &left);
    *ret_ptr = (char *)d->content->ptr + d->view.offset + at;
    *ret_n = left < DIRECT_BYTES ? left : DIRECT_BYTES;
    return 1;
}
