/* Downloads: out of the memory itself where the CPU reaches it and the bytes lie side by side, else through slots. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/download/cold.h"
#include "core/download/download.h"
#include "core/memory/last_transfer.h"

static void destroy(struct gb_core_transfer *t) {
    struct gb_download *d = (struct gb_download *)t;

    gb_content_drop_later(d->content); /* this may be a backend's thread */
    gb_stored_unref(d->stored);
    gb_host_block_unref(d->block);
    if (d->behind)
        gb_event_pool_give(&t->device->events, d->behind);
    gb_core_transfer_done(t);
    gb_buffer_rec_done(&d->rec);
    free(d->scratch);
    free(d);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void set_road(struct gb_download *d) {
    if (d->content) {
        d->t.device = d->content->device;
        d->direct = gb_kind_direct_out(d->t.device, d->content->kind);
    } else {
        d->t.device = &d->t.core->devices[0]; /* zeros: none is asked */
        d->direct = true;
    }
}

/* Bytes that are read for the second time within this time are wanted in memory. */
#define AGAIN_NS (60 * GB_NS_PER_S)

/* Bytes that are on disk or in host memory alone are sent from there. Returns false if there are none of that name. */
static bool hold_stored_locked(struct gb_download *d, const struct gb_name *name) {
    struct gb_buffer *b = gb_buffer_find_locked(d->t.session, name, NULL);
    uint64_t now_ns = gb_clock_ns();
    uint64_t before_ns;

    if (!b || b->rec.state != GB_BUFFER_STORED)
        return false;
    d->stored = gb_stored_ref(b->stored);
    d->block = gb_host_block_ref(b->stored->block);
    gb_buffer_copy_locked(b, &d->rec);
    before_ns = atomic_exchange(&b->stored->read_ns, now_ns);
    if (before_ns > 0 && now_ns - before_ns < AGAIN_NS) /* the clock may have begun less than that ago */
        gb_buffer_want_locked(d->t.session, b, NULL);
    return true;
}

static int hold_locked(struct gb_download *d, const struct gb_name *name, const struct gb_name *stream,
                       struct gb_error *err) {
    if (gb_core_stream_use_locked(d->t.session, stream, &d->t.stream, err) < 0)
        return -1;
    if (!hold_stored_locked(d, name) && gb_buffer_hold_locked(d->t.session, name, &d->rec, &d->content, err) < 0)
        return -1;
    set_road(d);
    return 0;
}

static struct gb_download *make(struct gb_session *s, struct gb_waker waker) {
    struct gb_download *d = calloc(1, sizeof(*d));
    unsigned i;

    if (!d)
        return NULL;
    gb_core_transfer_init(&d->t, s, waker, destroy);
    for (i = 0; i < GB_DOWNLOAD_COPIES; i++)
        d->blocks[i].f.transfer = &d->t;
    return d;
}

struct gb_download *gb_download_of(struct gb_session *session, struct gb_core_stream *stream,
                                   struct gb_content *content, enum gb_kind kind, uint64_t bytes,
                                   struct gb_waker waker) {
    struct gb_download *d = make(session, waker);

    if (!d)
        return NULL;
    d->t.stream = gb_core_stream_use_more(stream);
    d->content = content;
    d->rec.kind = kind;
    d->rec.bytes = bytes;
    set_road(d);
    return d;
}

int gb_download_open_in(struct gb_session *s, const struct gb_name *name, const struct gb_name *stream,
                        struct gb_waker waker, struct gb_download **ret, struct gb_error *err) {
    struct gb_download *d;
    int r;

    if (gb_core_alive(s->core, err) < 0 || gb_session_alive(s, err) < 0)
        return -1;
    gb_session_touch(s);
    d = make(s, waker);
    if (!d)
        return gb_no_memory(err);
    pthread_mutex_lock(&s->lock);
    r = hold_locked(d, name, stream, err);
    pthread_mutex_unlock(&s->lock);
    if (r < 0) {
        gb_core_transfer_unref(&d->t);
        return -1;
    }
    *ret = d;
    return 0;
}

int gb_download_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                     const struct gb_name *stream, struct gb_waker waker, struct gb_download **ret,
                     struct gb_error *err) {
    struct gb_session *s = gb_core_alive(core, err) < 0 ? NULL : gb_session_use(core, session, err);
    int r = s ? gb_download_open_in(s, name, stream, waker, ret, err) : -1;

    gb_session_unref(s);
    return r;
}

const struct gb_buffer_rec *gb_download_record(const struct gb_download *download) {
    return &download->rec;
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

static int check_spans(const struct gb_view *view, const struct gb_span *spans, unsigned count, struct gb_error *err) {
    unsigned i;

    for (i = 0; i < count; i++) {
        if (spans[i].first > view->bytes || spans[i].length > view->bytes - spans[i].first)
            return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE,
                                "%llu bytes at offset %llu are beyond the %llu there are",
                                (unsigned long long)spans[i].length, (unsigned long long)spans[i].first,
                                (unsigned long long)view->bytes);
    }
    return 0;
}

static int check_view(const struct gb_download *d, struct gb_error *err) {
    if (d->view.bytes == 0 || gb_view_end(&d->view) <= d->rec.bytes)
        return 0;
    return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE, "the view ends at byte %llu of the buffer's %llu",
                        (unsigned long long)gb_view_end(&d->view), (unsigned long long)d->rec.bytes);
}

/* Bytes that do not lie side by side are picked from memory. */
static int want_memory(struct gb_download *d, struct gb_error *err) {
    struct gb_session *s = d->t.session;
    struct gb_buffer *b;
    int r;

    pthread_mutex_lock(&s->lock);
    b = gb_buffer_find_locked(s, &d->rec.name, err);
    r = b ? gb_buffer_want_locked(s, b, err) : -1;
    if (r == 0) /* it has them by now */
        r = gb_error_set(err, GB_ERR_BUFFER_BUSY, "the bytes have just been loaded; try again");
    pthread_mutex_unlock(&s->lock);
    return r;
}

int gb_download_start_view(struct gb_download *d, const struct gb_view *view, const struct gb_span *spans,
                           unsigned count, struct gb_error *err) {
    unsigned i;

    if (d->started)
        return gb_error_set(err, GB_ERR_INTERNAL, "a download starts once");
    d->view = view ? *view : gb_view_plain(0, d->rec.bytes);
    d->whole = (struct gb_span){.first = 0, .length = d->view.bytes};
    d->spans = spans ? spans : &d->whole;
    d->span_count = spans ? count : 1;
    if (check_view(d, err) < 0 || check_spans(&d->view, d->spans, d->span_count, err) < 0)
        return -1;
    if (d->stored && d->view.axes > 0)
        return want_memory(d, err);
    for (i = 0; i < d->span_count; i++)
        d->length += d->spans[i].length;
    d->started = true;
    d->t.started_ns = gb_clock_ns();
    if (d->silent)
        return 0;
    atomic_fetch_add(&d->t.core->downloads_running, 1);
    gb_core_changed(d->t.core);
    return 0;
}

int gb_download_start(struct gb_download *download, uint64_t offset, uint64_t length, struct gb_error *err) {
    const struct gb_view all = gb_view_plain(0, download->rec.bytes);
    const struct gb_view view = gb_view_plain(offset, length);
    const struct gb_span span = {.first = offset, .length = length};

    if (check_spans(&all, &span, 1, err) < 0)
        return -1;
    return gb_download_start_view(download, &view, NULL, 0, err);
}

uint64_t gb_download_locate(const struct gb_download *d, uint64_t pos, uint64_t *ret_left) {
    unsigned i = 0;

    while (i + 1 < d->span_count && pos >= d->spans[i].length)
        pos -= d->spans[i++].length;
    *ret_left = d->spans[i].length - pos;
    return d->spans[i].first + pos;
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

int gb_download_next(struct gb_download *download, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int r;

    pthread_mutex_lock(&download->t.lock);
    download->t.want_wake = false;
    r = gb_core_transfer_check_locked(&download->t, true, err);
    pthread_mutex_unlock(&download->t.lock);
    if (r < 0)
        return -1;
    if (!download->started || download->sent == download->length)
        return gb_error_set(err, GB_ERR_INTERNAL, "no bytes of the download are left");
    if (download->stored)
        r = gb_download_cold(download, ret_ptr, ret_n, &why);
    else if (download->direct)
        r = gb_download_direct(download, ret_ptr, ret_n, &why);
    else
        r = gb_download_slot(download, ret_ptr, ret_n, &why);
    if (r < 0) {
        gb_core_transfer_fail(&download->t, &why);
        gb_error_move(err, &why);
    }
    return r;
}

bool gb_download_replaced(const struct gb_download *download) {
    return download->replaced;
}

void gb_download_sent(struct gb_download *download, size_t n) {
    struct gb_block *b = &download->blocks[download->first];

    download->sent += n;
    if (download->scratch)
        download->scratch_sent += n;
    if (download->count == 0)
        return;
    b->sent += n;
    if (b->sent < b->f.bytes)
        return;
    gb_staged_copy_release(&b->f);
    download->first = (download->first + 1) % GB_DOWNLOAD_COPIES;
    download->count--;
}

void gb_download_times(const struct gb_download *download, struct gb_transfer_times *ret) {
    gb_transfer_times((struct gb_core_transfer *)&download->t, ret);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Without an error of its own the client went away. */
static void count_failure(struct gb_download *d) {
    enum gb_failure why = GB_FAILURE_incomplete_body;

    pthread_mutex_lock(&d->t.lock);
    if (d->t.error.code != GB_OK)
        why = gb_failure_of(d->t.error.code, GB_FAILED_DOWNLOAD);
    pthread_mutex_unlock(&d->t.lock);
    gb_live_counters_failed(&d->t.core->live_counters, GB_FAILED_DOWNLOAD, why);
    gb_live_counters_failed(&d->t.session->live_counters, GB_FAILED_DOWNLOAD, why);
}

void gb_download_free(struct gb_download *d, bool complete) {
    struct gb_core *core;
    bool pending = false;
    unsigned i;

    if (!d)
        return;
    core = d->t.core;
    gb_core_transfer_close(&d->t);
    gb_cold_free(d->cold);
    for (i = 0; i < d->count; i++)
        pending |= !gb_download_release(d, &d->blocks[(d->first + i) % GB_DOWNLOAD_COPIES]);
    if (d->silent) {
        ; /* as if it had never begun */
    } else if (d->started && complete) {
        GB_COUNT(core, d->t.session, downloads, 1);
        GB_COUNT(core, d->t.session, download_bytes, d->length);
        GB_COUNT(core, d->t.session, download_ns, gb_clock_ns() - d->t.started_ns);
        GB_COUNT(core, d->t.session, download_copy_ns, d->t.copy_ns);
        GB_COUNT(core, d->t.session, download_queue_ns, d->t.queue_ns);
        gb_kind_live_counters_add(&core->kinds[GB_DOWNLOAD][d->content ? d->content->kind : d->rec.kind], d->length,
                                  d->t.copy_ns, d->t.queue_ns);
        gb_last_transfer_keep(d->content, GB_DOWNLOAD, d->length, d->t.queue_ns, d->t.copy_ns);
    } else if (d->started) {
        count_failure(d);
    }
    if (d->started && !d->silent) {
        atomic_fetch_sub(&core->downloads_running, 1);
        gb_core_changed(core);
    }
    /* Freed in the order of its home, so after the copies there; what is pending elsewhere ends before the transfer. */
    pthread_mutex_lock(&d->t.lock);
    if (d->direct)
        pending = d->watching;
    else
        pending = d->watching || ((pending || d->unsettled) && d->content->alloc_stream != d->t.stream);
    pthread_mutex_unlock(&d->t.lock);
    if (!pending) {
        gb_content_drop(d->content, NULL, NULL);
        d->content = NULL;
    }
    gb_core_transfer_unref(&d->t);
}
