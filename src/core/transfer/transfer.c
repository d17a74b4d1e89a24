/* What uploads and downloads share: a transfer, and copies through slots of staging memory. Every watch, slot grant and
 * commit holds a reference, and the last reference destroys the transfer. The files of this folder call this. */
#include "core/transfer/transfer.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"

/* --- transfer ----------------------------------------------------------------------------------------------------- */

static void slot_granted(struct gb_slot_waiter *waiter) {
    struct gb_core_transfer *t = gb_container_of(waiter, struct gb_core_transfer, waiter);

    pthread_mutex_lock(&t->lock);
    t->slot_waiting = false;
    gb_core_transfer_unlock_wake(t);
    gb_core_transfer_unref(t);
}

void gb_core_transfer_init(struct gb_core_transfer *t, struct gb_session *session, struct gb_waker waker,
                           void (*destroy)(struct gb_core_transfer *transfer)) {
    pthread_mutexattr_t attr;

    atomic_init(&t->refs, 1);
    t->core = session->core;
    t->session = gb_session_ref(session);
    t->destroy = destroy;
    t->waker = waker;
    t->waiter.granted = slot_granted;
    t->started_ns = gb_clock_ns();
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&t->wake_lock, &attr);
    pthread_mutexattr_destroy(&attr);
    gb_mutex_init(&t->lock);
    atomic_fetch_add(&session->transfers, 1);
}

void gb_core_transfer_done(struct gb_core_transfer *t) {
    if (t->mark)
        gb_event_pool_give(&t->device->events, t->mark);
    if (!t->silent) {
        gb_session_touch(t->session);
        atomic_fetch_sub(&t->session->transfers, 1);
    }
    gb_core_stream_unuse(t->stream);
    gb_session_unref(t->session);
    pthread_mutex_destroy(&t->wake_lock);
    pthread_mutex_destroy(&t->lock);
}

void gb_core_transfer_silence(struct gb_core_transfer *t) {
    t->silent = true;
    atomic_fetch_sub(&t->session->transfers, 1);
}

void gb_core_transfer_ref(struct gb_core_transfer *transfer) {
    atomic_fetch_add(&transfer->refs, 1);
}

void gb_core_transfer_unref(struct gb_core_transfer *transfer) {
    if (atomic_fetch_sub(&transfer->refs, 1) == 1)
        transfer->destroy(transfer);
}

void gb_core_transfer_unlock_wake(struct gb_core_transfer *t) {
    bool wanted = t->want_wake || (t->wake_on_error && t->error.code != GB_OK);

    t->want_wake = false;
    pthread_mutex_unlock(&t->lock);
    if (!wanted)
        return;
    pthread_mutex_lock(&t->wake_lock);
    gb_waker_run(&t->waker);
    pthread_mutex_unlock(&t->wake_lock);
}

void gb_core_transfer_fail(struct gb_core_transfer *t, const struct gb_error *error) {
    gb_core_report_error(t->core, error);
    pthread_mutex_lock(&t->lock);
    if (t->error.code == GB_OK)
        t->error = *error;
    gb_core_transfer_unlock_wake(t);
}

int gb_core_transfer_check_locked(struct gb_core_transfer *t, bool reads, struct gb_error *err) {
    bool reads_on = reads && atomic_load(&t->session->left);

    if (t->error.code == GB_OK && atomic_load(&t->session->state) == GB_SESSION_DEAD && !reads_on)
        gb_session_alive(t->session, &t->error);
    if (t->error.code == GB_OK && gb_core_alive(t->core, &t->error) == 0)
        return 0;
    return gb_error_move(err, &t->error);
}

void *gb_core_transfer_slot_locked(struct gb_core_transfer *t) {
    void *slot;

    if (t->slot_waiting)
        return NULL;
    /* These are set before standing in line, because the grant may come at once, and waits for the lock. */
    gb_core_transfer_ref(t);
    t->slot_waiting = t->slot_asked = true;
    slot = gb_slots_take(&t->core->slots, &t->waiter);
    if (slot) {
        t->slot_waiting = false;
        atomic_fetch_sub(&t->refs, 1); /* never the last: the caller has one */
    }
    return slot;
}

void gb_core_transfer_close(struct gb_core_transfer *t) {
    bool asked;

    pthread_mutex_lock(&t->wake_lock);
    t->waker.fn = NULL;
    pthread_mutex_unlock(&t->wake_lock);
    pthread_mutex_lock(&t->lock);
    asked = t->slot_asked;
    pthread_mutex_unlock(&t->lock);
    if (asked && gb_slots_cancel(&t->core->slots, &t->waiter))
        gb_core_transfer_unref(t); /* never the last: the caller has one */
}

struct gb_stream *gb_core_transfer_part(struct gb_core_transfer *transfer) {
    return gb_core_stream_part(transfer->stream, transfer->device->index);
}

void gb_transfer_times(struct gb_core_transfer *t, struct gb_transfer_times *ret) {
    pthread_mutex_lock(&t->lock);
    ret->queue_ms = (double)t->queue_ns / GB_NS_PER_MS;
    ret->copy_ms = (double)t->copy_ns / GB_NS_PER_MS;
    ret->sampled = t->sampled;
    pthread_mutex_unlock(&t->lock);
}

/* --- staged copy -------------------------------------------------------------------------------------------------- */

void gb_staged_copy_whole(struct gb_staged_copy *f, enum gb_copy_direction direction, size_t bytes) {
    struct gb_core_transfer *t = f->transfer;

    f->sample = &t->stream->parts[t->device->index].samples[direction];
    f->sampled = gb_copy_sample_get(f->sample, bytes, &f->times);
    t->sampled = t->sampled || f->sampled;
}

static int take_events(struct gb_staged_copy *f, struct gb_error *err) {
    struct gb_core_transfer *t = f->transfer;
    struct gb_event_pool *events = &t->device->events;

    f->end = gb_event_pool_take(events, err);
    if (!f->end)
        return -1;
    if (f->sampled)
        return 0;
    f->start = gb_event_pool_take(events, err);
    if (!f->start)
        return -1;
    f->first = !t->mark;
    if (!f->first)
        return 0;
    t->mark = gb_event_pool_take(events, err);
    return t->mark ? gb_event_mark(t->core->backend, t->mark->event, err) : -1;
}

static int copy(struct gb_staged_copy *f, const struct gb_location *place, size_t at, size_t bytes,
                enum gb_copy_direction direction, struct gb_error *err) {
    struct gb_backend *be = f->transfer->core->backend;
    bool in = direction == GB_COPY_TO_DEVICE;
    const struct gb_location slot = {GB_KIND_PINNED, place->device, (char *)f->slot + at};
    enum gb_copy_way way;

    if (place->kind != GB_KIND_DEVICE)
        return gb_mem_move(be, in ? place : &slot, in ? &slot : place, bytes, f->stream, &way, err);
    return gb_mem_copy(be, in ? place->ptr : slot.ptr, in ? slot.ptr : place->ptr, bytes, direction, f->stream, err);
}

int gb_staged_copy_open(struct gb_staged_copy *f, struct gb_stream *stream, struct gb_error *err) {
    f->stream = stream;
    if (take_events(f, err) < 0)
        return -1;
    return f->start ? gb_event_record(f->transfer->core->backend, f->start->event, stream, err) : 0;
}

int gb_staged_copy_close(struct gb_staged_copy *f, struct gb_error *err) {
    return gb_event_record(f->transfer->core->backend, f->end->event, f->stream, err);
}

int gb_staged_copy_box(struct gb_staged_copy *f, const struct gb_location *place, size_t at, const struct gb_box *box,
                       enum gb_copy_direction direction, struct gb_error *err) {
    if (box->rows == 1 && box->planes == 1)
        return copy(f, place, at, box->width, direction, err);
    return gb_mem_box(f->transfer->core->backend, place, (char *)f->slot + at, box, direction, f->stream, err);
}

int gb_staged_copy_copy(struct gb_staged_copy *f, const struct gb_location *place, enum gb_copy_direction direction,
                        struct gb_stream *stream, struct gb_error *err) {
    if (gb_staged_copy_open(f, stream, err) < 0 || copy(f, place, 0, f->bytes, direction, err) < 0)
        return -1;
    return gb_staged_copy_close(f, err);
}

void gb_staged_copy_account(struct gb_staged_copy *f) {
    struct gb_core_transfer *t = f->transfer;
    struct gb_backend *be = t->core->backend;

    if (f->start) {
        f->times = (struct gb_copy_times){.queue_ns = 0};
        /* A time that the device does not give fails no transfer. */
        gb_event_elapsed(be, f->start->event, f->end->event, &f->times.copy_ns, NULL);
        if (f->first)
            gb_event_elapsed(be, t->mark->event, f->start->event, &f->times.queue_ns, NULL);
        if (f->sample)
            gb_copy_sample_put(f->sample, f->bytes, &f->times);
    }
    pthread_mutex_lock(&t->lock);
    t->copy_ns += f->times.copy_ns;
    t->queue_ns += f->times.queue_ns;
    pthread_mutex_unlock(&t->lock);
}

void gb_staged_copy_release(struct gb_staged_copy *f) {
    struct gb_core_transfer *t = f->transfer;

    gb_event_pool_give(&t->device->events, f->start);
    gb_event_pool_give(&t->device->events, f->end);
    f->start = NULL;
    f->end = NULL;
    f->sample = NULL;
    f->sampled = false;
    if (f->slot)
        gb_slots_give(&t->core->slots, f->slot);
    f->slot = NULL;
}

static void error_finished(void *arg, const struct gb_error *error) {
    struct gb_staged_copy *f = arg;
    struct gb_core_transfer *t = f->transfer;

    gb_core_report_error(t->core, error);
    gb_staged_copy_release(f);
    gb_core_transfer_unref(t);
}

static void finish_after_error(struct gb_task *task) {
    struct gb_staged_copy *f = gb_container_of(task, struct gb_staged_copy, task);
    struct gb_backend *be = f->transfer->core->backend;

    /* Others use the lane, so it waits for the stream only if the event cannot be watched. */
    if (f->end) {
        if (gb_event_record(be, f->end->event, f->stream, NULL) == 0 &&
            gb_watch(be, f->end->event, error_finished, f, NULL) == 0)
            return;
        gb_stream_sync(be, f->stream, NULL);
    }
    error_finished(f, NULL);
}

void gb_staged_copy_abandon(struct gb_staged_copy *f) {
    f->task.run = finish_after_error;
    gb_lane_post(&f->transfer->device->lane, &f->task);
}
