/* Downloads: out of the memory itself where the CPU reaches it, else through slots, the next copy under way meanwhile. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/download.h"

static void destroy(struct gb_transfer *t) {
    struct gb_download *d = (struct gb_download *)t;

    gb_content_drop_later(d->content); /* this may be a backend's thread */
    if (d->behind)
        gb_events_give(&t->device->events, d->behind);
    gb_transfer_done(t);
    free(d);
}

/* --- opening ---------------------------------------------------------------------------------------------------------------- */

static int hold_locked(struct gb_download *d, const struct gb_name *name, const struct gb_name *stream,
                       struct gb_error *err) {
    if (gb_core_stream_use_locked(d->t.session, stream, &d->t.stream, err) < 0 ||
        gb_buffer_hold_locked(d->t.session, name, &d->rec, &d->content, err) < 0)
        return -1;
    if (d->content) {
        d->t.device = d->content->device;
        d->direct = gb_kind_direct_out(d->t.device, d->content->kind);
    } else {
        d->t.device = &d->t.core->devices[0]; /* zeros: none is asked */
        d->direct = true;
    }
    return 0;
}

int gb_download_open(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                     const struct gb_name *stream, void (*wake)(void *arg), void *arg, struct gb_download **ret,
                     struct gb_error *err) {
    struct gb_session *s;
    struct gb_download *d;
    unsigned i;
    int r;

    if (gb_core_alive(core, err) < 0)
        return -1;
    s = gb_session_use(core, session, err);
    if (!s)
        return -1;
    d = calloc(1, sizeof(*d));
    if (!d) {
        gb_session_unref(s);
        return gb_no_memory(err);
    }
    gb_transfer_init(&d->t, s, wake, arg, destroy);
    for (i = 0; i < GB_DOWNLOAD_FLIGHTS; i++)
        d->blocks[i].f.transfer = &d->t;
    pthread_mutex_lock(&s->lock);
    r = hold_locked(d, name, stream, err);
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    if (r < 0) {
        gb_transfer_unref(&d->t);
        return -1;
    }
    *ret = d;
    return 0;
}

const struct gb_buffer_rec *gb_download_record(const struct gb_download *download) {
    return &download->rec;
}

int gb_download_start(struct gb_download *download, uint64_t offset, uint64_t length, struct gb_error *err) {
    if (download->started)
        return gb_error_set(err, GB_ERR_INTERNAL, "a download starts once");
    if (offset > download->rec.bytes || length > download->rec.bytes - offset)
        return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE, "%llu bytes at offset %llu are beyond the buffer's %llu",
                            (unsigned long long)length, (unsigned long long)offset,
                            (unsigned long long)download->rec.bytes);
    download->offset = offset;
    download->length = length;
    download->started = true;
    download->t.started_ns = gb_clock_ns();
    if (download->silent)
        return 0;
    atomic_fetch_add(&download->t.core->downloads_running, 1);
    gb_core_changed(download->t.core);
    return 0;
}

/* --- through slots ---------------------------------------------------------------------------------------------------------- */

static void arrived(void *arg, const struct gb_error *error) {
    struct gb_block *b = arg;
    struct gb_transfer *t = b->f.transfer;
    bool abandoned;

    gb_core_note(t->core, error);
    pthread_mutex_lock(&t->lock);
    b->fired = true;
    abandoned = b->abandoned;
    if (error && t->error.code == GB_OK)
        t->error = *error;
    gb_transfer_unlock_wake(t);
    if (abandoned)
        gb_flight_release(&b->f);
    gb_transfer_unref(t);
}

static void make_part(struct gb_task *task) {
    struct gb_download *d = (struct gb_download *)((char *)task - offsetof(struct gb_download, task));
    struct gb_error err = GB_ERROR_INIT;
    struct gb_stream *part;

    if (gb_core_stream_part_make(d->t.stream, d->t.device->index, &part, &err) < 0 ||
        gb_content_settle(d->content, &err) < 0)
        gb_transfer_fail(&d->t, &err);
    pthread_mutex_lock(&d->t.lock);
    d->watching = false;
    gb_transfer_unlock_wake(&d->t);
    gb_transfer_unref(&d->t);
}

/* True: the stream has a part on the device, and the memory has its zeros; else wake comes. */
static bool have_part(struct gb_download *d) {
    bool mine;

    if (gb_transfer_part(&d->t) && !atomic_load(&d->content->blank))
        return true;
    pthread_mutex_lock(&d->t.lock);
    mine = !d->watching;
    d->watching = true;
    d->t.want_wake = true;
    pthread_mutex_unlock(&d->t.lock);
    if (mine) {
        gb_transfer_ref(&d->t);
        d->task.run = make_part;
        gb_lane_post(&d->t.device->lane, &d->task);
    }
    return false;
}

/* Queues the copy of the next block, if there is a slot for it. The first may stand in line, others take what is free. */
static int queue_block(struct gb_download *d, struct gb_error *err) {
    struct gb_block *b = &d->blocks[(d->first + d->count) % GB_DOWNLOAD_FLIGHTS];
    struct gb_stream *stream = gb_transfer_part(&d->t);
    uint64_t left = d->length - d->queued;
    struct gb_ev *ready = d->content->ready;
    struct gb_place src = gb_content_place(d->content, d->offset + d->queued);

    if (!d->ordered && ready && gb_stream_wait(d->t.core->backend, stream, ready->event, err) < 0)
        return -1;
    d->ordered = true;
    if (d->count > 0) {
        b->f.slot = gb_slots_try(&d->t.core->slots);
    } else {
        pthread_mutex_lock(&d->t.lock);
        b->f.slot = gb_transfer_slot_locked(&d->t);
        d->t.want_wake = !b->f.slot;
        pthread_mutex_unlock(&d->t.lock);
    }
    if (!b->f.slot)
        return 0;
    b->f.bytes = left < d->t.core->slots.slot_bytes ? left : d->t.core->slots.slot_bytes;
    b->sent = 0;
    b->arrived = b->watched = b->fired = false;
    if (gb_flight_copy(&b->f, &src, GB_COPY_FROM_DEVICE, stream, err) < 0) {
        gb_transfer_ref(&d->t);
        gb_flight_settle(&b->f);
        d->unsettled = true;
        return -1;
    }
    d->count++;
    d->queued += b->f.bytes;
    return 1;
}

/* 1: the first block is in its slot; 0: wake comes; -1. */
static int wait_block(struct gb_download *d, struct gb_error *err) {
    struct gb_block *b = &d->blocks[d->first];
    struct gb_backend *be = d->t.core->backend;
    bool done = false;

    /* A watch that was set is waited for: the event must not be used again before it has fired. */
    pthread_mutex_lock(&d->t.lock);
    done = b->fired;
    d->t.want_wake = !done;
    pthread_mutex_unlock(&d->t.lock);
    if (!done && b->watched)
        return 0;
    if (!done && gb_event_query(be, b->f.end->event, &done, err) < 0)
        return -1;
    if (done) {
        b->arrived = true;
        gb_flight_account(&b->f);
        return 1;
    }
    pthread_mutex_lock(&d->t.lock);
    b->watched = true;
    pthread_mutex_unlock(&d->t.lock);
    gb_transfer_ref(&d->t);
    if (gb_watch(be, b->f.end->event, arrived, b, err) == 0)
        return 0;
    pthread_mutex_lock(&d->t.lock);
    b->watched = false;
    pthread_mutex_unlock(&d->t.lock);
    gb_transfer_unref(&d->t); /* never the last: the caller has one */
    return -1;
}

static int next_slot(struct gb_download *d, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct gb_block *b = &d->blocks[d->first];
    int r = 1;

    if (!have_part(d))
        return 0;
    while (r > 0 && d->count < GB_DOWNLOAD_FLIGHTS && d->queued < d->length)
        r = queue_block(d, err);
    if (r < 0 || d->count == 0)
        return r;
    if (!b->arrived && (r = wait_block(d, err)) <= 0)
        return r;
    *ret_ptr = (char *)b->f.slot + b->sent;
    *ret_n = b->f.bytes - b->sent;
    return 1;
}

int gb_download_next(struct gb_download *download, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int r;

    pthread_mutex_lock(&download->t.lock);
    download->t.want_wake = false;
    r = gb_transfer_check_locked(&download->t, err);
    pthread_mutex_unlock(&download->t.lock);
    if (r < 0)
        return -1;
    if (!download->started || download->sent == download->length)
        return gb_error_set(err, GB_ERR_INTERNAL, "no bytes of the download are left");
    if (download->direct)
        r = gb_download_direct(download, ret_ptr, ret_n, &why);
    else
        r = next_slot(download, ret_ptr, ret_n, &why);
    if (r < 0) {
        gb_transfer_fail(&download->t, &why);
        if (err && err->code == GB_OK)
            *err = why;
    }
    return r;
}

void gb_download_sent(struct gb_download *download, size_t n) {
    struct gb_block *b = &download->blocks[download->first];

    download->sent += n;
    if (download->direct || download->count == 0)
        return;
    b->sent += n;
    if (b->sent < b->f.bytes)
        return;
    gb_flight_release(&b->f);
    download->first = (download->first + 1) % GB_DOWNLOAD_FLIGHTS;
    download->count--;
}

/* The copy has ended, and no watch on it is to come. */
static bool at_rest(struct gb_download *d, struct gb_block *b) {
    bool watched;
    bool done;

    pthread_mutex_lock(&d->t.lock);
    done = b->arrived || b->fired;
    watched = b->watched;
    pthread_mutex_unlock(&d->t.lock);
    if (done || watched)
        return done;
    return gb_event_query(d->t.core->backend, b->f.end->event, &done, NULL) == 0 && done;
}

void gb_download_pause(struct gb_download *d) {
    unsigned i;

    if (d->count == 0 || !gb_slots_wanted(&d->t.core->slots))
        return;
    for (i = 0; i < d->count; i++) {
        if (!at_rest(d, &d->blocks[(d->first + i) % GB_DOWNLOAD_FLIGHTS]))
            return;
    }
    for (i = 0; i < d->count; i++) {
        struct gb_block *b = &d->blocks[(d->first + i) % GB_DOWNLOAD_FLIGHTS];

        if (!b->arrived)
            gb_flight_account(&b->f);
        gb_flight_release(&b->f);
    }
    d->count = 0;
    d->queued = d->sent;
}

void gb_download_times(const struct gb_download *download, struct gb_transfer_times *ret) {
    gb_transfer_times((struct gb_transfer *)&download->t, ret);
}

/* --- the end ------------------------------------------------------------------------------------------------------------------ */

/* The slots go back when their copies are done, which nobody waits for. False: not done yet. */
static bool release_block(struct gb_download *d, struct gb_block *b) {
    struct gb_backend *be = d->t.core->backend;
    bool done;
    bool leave;

    pthread_mutex_lock(&d->t.lock);
    done = b->arrived || b->fired;
    leave = b->watched && !b->fired;
    b->abandoned = !done;
    pthread_mutex_unlock(&d->t.lock);
    if (leave)
        return false;
    if (done || (gb_event_query(be, b->f.end->event, &done, NULL) == 0 && done)) {
        gb_flight_release(&b->f);
        return true;
    }
    gb_transfer_ref(&d->t);
    if (gb_watch(be, b->f.end->event, arrived, b, NULL) < 0)
        gb_flight_settle(&b->f);
    return false;
}

void gb_download_free(struct gb_download *d, bool complete) {
    struct gb_core *core;
    bool pending = false;
    unsigned i;

    if (!d)
        return;
    core = d->t.core;
    gb_transfer_close(&d->t);
    for (i = 0; i < d->count; i++)
        pending |= !release_block(d, &d->blocks[(d->first + i) % GB_DOWNLOAD_FLIGHTS]);
    if (d->silent) {
        ; /* as if it had never begun */
    } else if (d->started && complete) {
        GB_TALLY(core, d->t.session, downloads, 1);
        GB_TALLY(core, d->t.session, download_bytes, d->length);
        GB_TALLY(core, d->t.session, download_ns, gb_clock_ns() - d->t.started_ns);
        GB_TALLY(core, d->t.session, download_copy_ns, d->t.copy_ns);
        GB_TALLY(core, d->t.session, download_queue_ns, d->t.queue_ns);
        gb_kind_tally_add(&core->kinds[GB_DOWNLOAD][d->content ? d->content->kind : d->rec.kind], d->length,
                          d->t.copy_ns, d->t.queue_ns);
    } else if (d->started) {
        GB_TALLY(core, d->t.session, downloads_failed, 1);
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
        pending = d->watching || ((pending || d->unsettled) && d->content->home != d->t.stream);
    pthread_mutex_unlock(&d->t.lock);
    if (!pending) {
        gb_content_drop(d->content, NULL, NULL);
        d->content = NULL;
    }
    gb_transfer_unref(&d->t);
}
