#include "core/transfer/transfer.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"

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
    bool goes_on = reads && atomic_load(&t->session->left);

    if (t->error.code == GB_OK && atomic_load(&t->session->state) == GB_SESSION_DEAD && !goes_on)
        gb_session_alive(t->session, &t->error);
    if (t->error.code == GB_OK && gb_core_alive(t->core, &t->error) == 0)
        return 0;
    return gb_error_move(err, &t->error);
}

void *gb_core_transfer_slot_locked(struct gb_core_transfer *t) {
    void *slot;

    if (t->slot_waiting)
        return NULL;
    /* Before standing in line: the grant may come at once and waits for the lock. */
    gb_core_transfer_ref(t);
    t->slot_waiting = true;
    slot = gb_slots_take(&t->core->slots, &t->waiter);
    if (slot) {
        t->slot_waiting = false;
        atomic_fetch_sub(&t->refs, 1); /* never the last: the caller has one */
    }
    return slot;
}

void gb_core_transfer_close(struct gb_core_transfer *t) {
    pthread_mutex_lock(&t->wake_lock);
    t->waker.fn = NULL;
    pthread_mutex_unlock(&t->wake_lock);
    if (gb_slots_cancel(&t->core->slots, &t->waiter))
        gb_core_transfer_unref(t); /* never the last: the caller has one */
}

void gb_transfer_times(struct gb_core_transfer *t, struct gb_transfer_times *ret) {
    pthread_mutex_lock(&t->lock);
    ret->queue_ms = (double)t->queue_ns / GB_NS_PER_MS;
    ret->copy_ms = (double)t->copy_ns / GB_NS_PER_MS;
    ret->sampled = t->sampled;
    pthread_mutex_unlock(&t->lock);
}
