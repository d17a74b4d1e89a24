/* Calls: blocks of memory with a result, counted by references, that end once. The function that starts work offers the
 * cancellation and finishes the call; handlers make and read calls. All folders of the core use this. */
#include "core/runtime/call.h"

#include <stdlib.h>

#include "base/container.h"
#include "base/thread.h"

void *gb_call_new(size_t size, void (*done)(void *arg), void *arg) {
    struct gb_call *call = calloc(1, size);

    if (!call)
        return NULL;
    atomic_init(&call->refs, 2);
    gb_mutex_init(&call->lock);
    call->done = done;
    call->arg = arg;
    return call;
}

void gb_call_unref(struct gb_call *call) {
    if (!call || atomic_fetch_sub(&call->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&call->lock);
    if (call->free_result)
        call->free_result(call);
    free(call);
}

void gb_session_call_done(struct gb_call *call) {
    gb_session_rec_done(&gb_container_of(call, struct gb_session_call, base)->session.rec);
}

void gb_buffer_call_done(struct gb_call *call) {
    gb_buffer_rec_done(&gb_container_of(call, struct gb_buffer_call, base)->buffer);
}

const struct gb_store_mark *gb_call_mark(const struct gb_call *call) {
    return call && call->mark.key[0] ? &call->mark : NULL;
}

int gb_cancelled(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_CANCELLED, "the work was cancelled while it was queued; nothing was changed");
}

void gb_call_offer(struct gb_call *call, bool (*hold)(void *arg), bool (*cancel)(void *arg, bool act), void *arg) {
    pthread_mutex_lock(&call->lock);
    call->cancel_hold = hold;
    call->cancel = cancel;
    call->cancel_arg = arg;
    pthread_mutex_unlock(&call->lock);
}

int gb_call_withdraw(struct gb_call *call, struct gb_error *err) {
    bool cancelled;

    pthread_mutex_lock(&call->lock);
    call->cancel = NULL;
    cancelled = call->cancelled;
    pthread_mutex_unlock(&call->lock);
    return cancelled ? gb_cancelled(err) : 0;
}

bool gb_call_cancel(struct gb_call *call, bool act) {
    bool (*cancel)(void *arg, bool act);
    void *arg;
    bool r = false;

    pthread_mutex_lock(&call->lock);
    cancel = call->cancel;
    arg = call->cancel_arg;
    if (cancel && call->cancel_hold) {
        cancel = call->cancel_hold(arg) ? cancel : NULL;
    } else if (cancel) {
        r = cancel(arg, act);
        call->cancelled = call->cancelled || (r && act);
        cancel = NULL;
    }
    pthread_mutex_unlock(&call->lock);
    return cancel ? cancel(arg, act) : r;
}

void gb_call_finish(struct gb_call *call, const struct gb_error *error) {
    if (error && call->error.code == GB_OK)
        call->error = *error;
    if (call->on_finish)
        call->on_finish(call);
    atomic_store(&call->finished, true);
    if (call->done)
        call->done(call->arg);
    gb_call_unref(call);
}

int gb_no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INTERNAL, "the daemon has no memory left");
}
