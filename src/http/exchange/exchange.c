#include "http/exchange/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "http/exchange/client.h"
#include "http/exchange/peer.h"
#include "http/exchange/reply_memory.h"
#include "http/exchange/server_state.h"
#include "http/tls/tls.h"

struct gb_exchange *gb_exchange_new(struct gb_http_server *server, const char *target) {
    /* Not zeroed as a whole: the arrays are large, and their counts say what is filled. */
    struct gb_exchange *ex = malloc(sizeof(*ex));

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
    ex->fd = -1;
    ex->req.app = server->config.app;
    ex->req.method = GB_HTTP_METHOD_COUNT;
    gb_mutex_init(&ex->wake_lock);
    if (!target)
        return ex;
    ex->req.target.len = strlen(target);
    ex->req.target.s = gb_text_arena_copy(&ex->texts, target, ex->req.target.len);
    if (ex->req.target.s)
        return ex;
    gb_exchange_unref(ex);
    return NULL;
}

struct gb_exchange *gb_exchange_ref(struct gb_exchange *ex) {
    atomic_fetch_add_explicit(&ex->refs, 1, memory_order_relaxed);
    return ex;
}

/* What a token opens with must not lie in memory that is given to others, or dumped. */
static void wipe(struct gb_exchange *ex) {
    if (ex->secret.len > 0)
        explicit_bzero((char *)ex->secret.s, ex->secret.len);
    if (ex->secret.len > 0 && ex->raw)
        explicit_bzero(ex->raw, ex->raw_len);
}

void gb_exchange_unref(struct gb_exchange *ex) {
    if (atomic_fetch_sub_explicit(&ex->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (ex->origin)
        gb_exchange_unref(ex->origin);
    if (ex->like)
        gb_exchange_unref(ex->like);
    free(ex->spare);
    wipe(ex);
    free(ex->raw);
    pthread_mutex_destroy(&ex->wake_lock);
    gb_text_arena_done(&ex->texts);
    free(ex);
}

void gb_exchange_own(struct gb_exchange *ex, struct gb_wake_queue *owner) {
    pthread_mutex_lock(&ex->wake_lock);
    ex->owner = owner;
    pthread_mutex_unlock(&ex->wake_lock);
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
    gb_exchange_leave_client(ex);
    free(ex->gathered);
    ex->gathered = NULL;
    free(ex->early);
    ex->early = NULL;
    if (ex->req.hooks_free) /* before the state, which an operation may cancel */
        ex->req.hooks_free(ex->req.hooks);
    ex->req.hooks = NULL;
    ex->req.hooks_free = NULL;
    if (ex->req.state_free)
        ex->req.state_free(ex->req.state);
    ex->req.state = NULL;
    ex->req.state_free = NULL;
    gb_tls_certificate_unref(ex->req.certificate);
    ex->req.certificate = NULL;
    ex->req.peer = NULL;
    gb_peer_unref(ex->peer);
    ex->peer = NULL;
    ex->fd = -1;
    ex->phase = GB_PHASE_DONE;
    gb_exchange_unref(ex);
}

struct gb_http_request *gb_http_request_ref(struct gb_http_request *request) {
    gb_exchange_ref(gb_exchange_of(request));
    return request;
}

void gb_http_request_unref(struct gb_http_request *request) {
    gb_exchange_unref(gb_exchange_of(request));
}
