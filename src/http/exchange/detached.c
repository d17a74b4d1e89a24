/* What the handler waits for has not ended and the client has its answer. The exchange that has the connection stays as
 * it is; state, sink and hook continue in another one, which libmicrohttpd does not know. */
#include "http/exchange/detached.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "http/exchange/peer.h"
#include "http/exchange/step.h"

int gb_http_may_detach(struct gb_http_request *request, struct gb_error *err) {
    struct gb_exchange *ex = gb_exchange_of(request);

    if (!ex->spare)
        ex->spare = calloc(1, sizeof(*ex));
    return ex->spare ? 0 : gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
}

struct gb_http_request *gb_http_detach(struct gb_http_request *request) {
    struct gb_exchange *ex = gb_exchange_of(request);
    struct gb_exchange *bg = ex->spare;

    ex->spare = NULL;
    bg->req = ex->req;
    bg->req.detached = true;
    bg->req.names = NULL; /* the connection's */
    bg->req.deadline_ns = 0;
    bg->req.timed_out = false;
    bg->server = ex->server;
    bg->peer = gb_peer_ref(ex->peer);
    bg->loop = ex->loop;
    bg->fd = -1;
    bg->phase = GB_PHASE_WAIT;
    bg->resp.status = 200;
    atomic_init(&bg->refs, 1);
    gb_mutex_init(&bg->wake_lock);
    bg->origin = gb_exchange_ref(ex);
    bg->owner = &ex->loop->wake_queue;
    ex->req.state = NULL;
    ex->req.state_free = NULL;
    ex->req.hooks = NULL;
    ex->req.hooks_free = NULL;
    ex->req.certificate = NULL; /* its reference goes along */
    ex->req.cancel = NULL;
    ex->req.sink = NULL;
    atomic_fetch_add_explicit(&ex->loop->active, 1, memory_order_relaxed);
    pthread_mutex_lock(&ex->wake_lock);
    ex->forward = gb_exchange_ref(bg);
    pthread_mutex_unlock(&ex->wake_lock);
    /* The wake may have come in between. */
    gb_http_wake(&bg->req);
    return &bg->req;
}

static void finish(struct gb_exchange_loop *loop, struct gb_exchange *bg) {
    struct gb_exchange *forward;

    if (bg->listed) {
        bg->listed = false;
        if (bg->prev)
            bg->prev->next = bg->next;
        else
            loop->detached = bg->next;
        if (bg->next)
            bg->next->prev = bg->prev;
    }
    pthread_mutex_lock(&bg->origin->wake_lock);
    forward = bg->origin->forward;
    bg->origin->forward = NULL;
    pthread_mutex_unlock(&bg->origin->wake_lock);
    if (forward)
        gb_exchange_unref(forward);
    gb_exchange_end(bg);
    atomic_fetch_sub_explicit(&loop->active, 1, memory_order_release);
}

void gb_detached_woken(struct gb_exchange_loop *loop, struct gb_exchange *bg) {
    if (bg->phase != GB_PHASE_WAIT)
        return;
    if (!bg->listed) {
        bg->listed = true;
        bg->prev = NULL;
        bg->next = loop->detached;
        if (bg->next)
            bg->next->prev = bg;
        loop->detached = bg;
    }
    gb_exchange_step(bg, bg->req.resume);
    if (bg->phase != GB_PHASE_WAIT)
        finish(loop, bg);
}

void gb_detached_stop(struct gb_exchange_loop *loop) {
    struct gb_exchange *bg;

    while ((bg = loop->detached)) {
        bg->req.timed_out = true;
        gb_exchange_step(bg, bg->req.resume);
        finish(loop, bg);
    }
}

void gb_detached_done(struct gb_exchange_loop *loop) {
    struct gb_exchange *bg;

    while ((bg = gb_wake_queue_take(&loop->wake_queue))) {
        if (bg->req.detached && bg->phase == GB_PHASE_WAIT)
            finish(loop, bg);
        gb_exchange_unref(bg);
    }
    while ((bg = loop->detached))
        finish(loop, bg);
}
