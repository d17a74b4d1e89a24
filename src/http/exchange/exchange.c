#include "http/exchange/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/server.h"

/* --- wake queue ------------------------------------------------------------------------------------------------------ */

int gb_wake_queue_init(struct gb_wake_queue *wake_queue, struct gb_error *err) {
    *wake_queue = (struct gb_wake_queue){.event_fd = -1};
    pthread_mutex_init(&wake_queue->lock, NULL);
    wake_queue->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_queue->event_fd < 0)
        return gb_error_errno(err, GB_ERR_INTERNAL, "eventfd", errno);
    return 0;
}

void gb_wake_queue_done(struct gb_wake_queue *wake_queue) {
    struct gb_exchange *ex;

    while ((ex = gb_wake_queue_take(wake_queue)))
        gb_exchange_unref(ex);
    if (wake_queue->event_fd >= 0)
        close(wake_queue->event_fd);
    pthread_mutex_destroy(&wake_queue->lock);
}

void gb_wake_queue_signal(struct gb_wake_queue *wake_queue) {
    uint64_t one = 1;

    /* Full means that a signal is already pending. */
    if (write(wake_queue->event_fd, &one, sizeof(one)) < 0)
        return;
}

void gb_wake_queue_clear(struct gb_wake_queue *wake_queue) {
    uint64_t count;

    if (read(wake_queue->event_fd, &count, sizeof(count)) < 0)
        return;
}

unsigned gb_wake_queue_visit(struct gb_wake_queue *wake_queue) {
    unsigned count;

    gb_wake_queue_clear(wake_queue);
    pthread_mutex_lock(&wake_queue->lock);
    count = wake_queue->count;
    pthread_mutex_unlock(&wake_queue->lock);
    return count;
}

/* Who puts one where others are does not signal. */
void gb_wake_queue_leave(struct gb_wake_queue *wake_queue) {
    bool more;

    pthread_mutex_lock(&wake_queue->lock);
    more = wake_queue->head != NULL;
    pthread_mutex_unlock(&wake_queue->lock);
    if (more)
        gb_wake_queue_signal(wake_queue);
}

static void inbox_put(struct gb_wake_queue *wake_queue, struct gb_exchange *ex) {
    bool was_empty;

    ex->wake_next = NULL;
    pthread_mutex_lock(&wake_queue->lock);
    was_empty = wake_queue->head == NULL;
    if (was_empty)
        wake_queue->head = ex;
    else
        wake_queue->tail->wake_next = ex;
    wake_queue->tail = ex;
    wake_queue->count++;
    pthread_mutex_unlock(&wake_queue->lock);
    if (was_empty)
        gb_wake_queue_signal(wake_queue);
}

/* Pops the first, whoever owns it now. */
static struct gb_exchange *inbox_pop(struct gb_wake_queue *wake_queue) {
    struct gb_exchange *ex;

    pthread_mutex_lock(&wake_queue->lock);
    ex = wake_queue->head;
    if (ex) {
        wake_queue->count--;
        wake_queue->head = ex->wake_next;
        if (!wake_queue->head)
            wake_queue->tail = NULL;
    }
    pthread_mutex_unlock(&wake_queue->lock);
    return ex;
}

struct gb_exchange *gb_wake_queue_take(struct gb_wake_queue *wake_queue) {
    struct gb_exchange *ex;

    while ((ex = inbox_pop(wake_queue))) {
        struct gb_wake_queue *owner;

        pthread_mutex_lock(&ex->wake_lock);
        owner = ex->owner;
        ex->queued = owner && owner != wake_queue;
        if (ex->queued)
            inbox_put(owner, ex); /* it moved to another thread meanwhile; the reference goes along */
        pthread_mutex_unlock(&ex->wake_lock);
        if (owner == wake_queue)
            return ex;
        if (!owner)
            gb_exchange_unref(ex);
    }
    return NULL;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

struct gb_exchange *gb_exchange_of(struct gb_http_request *request) {
    return (struct gb_exchange *)request;
}

struct gb_exchange *gb_exchange_new(struct gb_http_server *server, const char *target) {
    /* Not zeroed as a whole: the arrays are large, and their counts say what is filled. */
    struct gb_exchange *ex = malloc(sizeof(*ex));
    size_t n = strlen(target);

    if (!ex)
        return NULL;
    memset(&ex->req, 0, offsetof(struct gb_http_request, query));
    ex->req.queries = 0;
    memset((char *)ex + offsetof(struct gb_http_request, headers), 0,
           offsetof(struct gb_exchange, texts) - offsetof(struct gb_http_request, headers));
    gb_text_arena_init(&ex->texts, server->config.connection_memory * 2 + 1024);
    memset((char *)ex + offsetof(struct gb_exchange, texts) + sizeof(ex->texts), 0,
           offsetof(struct gb_exchange, resp) - offsetof(struct gb_exchange, texts) - sizeof(ex->texts));
    memset(&ex->resp, 0, offsetof(struct gb_http_response, text));
    memset((char *)&ex->resp + offsetof(struct gb_http_response, text_used), 0,
           sizeof(ex->resp) - offsetof(struct gb_http_response, text_used));
    memset((char *)ex + offsetof(struct gb_exchange, err), 0, sizeof(*ex) - offsetof(struct gb_exchange, err));
    atomic_init(&ex->refs, 1);
    ex->resp.status = 200;
    ex->server = server;
    ex->req.app = server->config.app;
    ex->req.method = GB_HTTP_METHOD_COUNT;
    pthread_mutex_init(&ex->wake_lock, NULL);
    ex->req.target.s = gb_text_arena_copy(&ex->texts, target, n);
    ex->req.target.len = n;
    if (!ex->req.target.s) {
        gb_exchange_unref(ex);
        return NULL;
    }
    return ex;
}

struct gb_exchange *gb_exchange_ref(struct gb_exchange *ex) {
    atomic_fetch_add_explicit(&ex->refs, 1, memory_order_relaxed);
    return ex;
}

void gb_exchange_unref(struct gb_exchange *ex) {
    if (atomic_fetch_sub_explicit(&ex->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (ex->origin)
        gb_exchange_unref(ex->origin);
    free(ex->spare);
    pthread_mutex_destroy(&ex->wake_lock);
    gb_text_arena_done(&ex->texts);
    free(ex);
}

void gb_exchange_end(struct gb_exchange *ex) {
    gb_exchange_own(ex, NULL);
    if (ex->parked)
        atomic_fetch_sub(&ex->server->suspended, 1);
    ex->parked = false;
    if (ex->req.sink) {
        ex->req.sink->failed = ex->err.code;
        ex->req.sink->free(ex->req.sink);
    }
    ex->req.sink = NULL;
    gb_http_response_done(&ex->resp);
    gb_reply_release(ex);
    free(ex->gathered);
    ex->gathered = NULL;
    free(ex->early);
    ex->early = NULL;
    if (ex->req.state_free)
        ex->req.state_free(ex->req.state);
    ex->req.state = NULL;
    ex->req.state_free = NULL;
    if (ex->req.hooks_free)
        ex->req.hooks_free(ex->req.hooks);
    ex->req.hooks = NULL;
    ex->req.hooks_free = NULL;
    ex->req.peer = NULL;
    gb_peer_unref(ex->peer);
    ex->peer = NULL;
    ex->phase = GB_PHASE_DONE;
    gb_exchange_unref(ex);
}

/* --- waking ------------------------------------------------------------------------------------------------------- */

void gb_exchange_own(struct gb_exchange *ex, struct gb_wake_queue *owner) {
    pthread_mutex_lock(&ex->wake_lock);
    ex->owner = owner;
    pthread_mutex_unlock(&ex->wake_lock);
}

void gb_http_wake(struct gb_http_request *request) {
    struct gb_exchange *ex = gb_exchange_of(request);
    struct gb_exchange *forward;

    pthread_mutex_lock(&ex->wake_lock);
    forward = ex->forward ? gb_exchange_ref(ex->forward) : NULL;
    if (!forward && ex->owner && !ex->queued) {
        ex->queued = true;
        gb_exchange_ref(ex);
        inbox_put(ex->owner, ex);
    }
    pthread_mutex_unlock(&ex->wake_lock);
    if (forward) {
        gb_http_wake(&forward->req);
        gb_exchange_unref(forward);
    }
}

struct gb_http_request *gb_http_request_ref(struct gb_http_request *request) {
    gb_exchange_ref(gb_exchange_of(request));
    return request;
}

void gb_http_request_unref(struct gb_http_request *request) {
    gb_exchange_unref(gb_exchange_of(request));
}
