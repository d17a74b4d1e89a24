#include "http/transfer/repeat.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http/exchange/client.h"
#include "http/exchange/exchange_loop.h"
#include "http/exchange/open.h"
#include "http/exchange/peer.h"
#include "http/exchange/repeat.h"
#include "http/exchange/step.h"
#include "http/message/request.h"
#include "http/tls/tls.h"

/* Longer heads are parsed. */
#define HEAD_MAX 4096

/* Bytes of a body that are read together with its head. */
#define BODY_MAX 8192

static bool same_head(const struct gb_http_transfer *t) {
    char head[HEAD_MAX];
    size_t len = t->like->raw_len;

    return len <= sizeof(head) && gb_wire_peek(t->fd, t->from.tls, head, len) == (ssize_t)len &&
           memcmp(head, t->like->raw, len) == 0;
}

/* Takes the head, and what is there of a small body: never a byte of what follows. */
static bool take_head(struct gb_http_transfer *t, struct gb_exchange *ex) {
    char bytes[HEAD_MAX + BODY_MAX];
    size_t head = t->like->raw_len;
    size_t body = ex->req.content_length < BODY_MAX ? (size_t)ex->req.content_length : BODY_MAX;
    ssize_t got;

    if (ex->req.expect_continue)
        body = 0;
    ex->early = body > 0 ? malloc(body) : NULL;
    if (body > 0 && !ex->early)
        return false;
    got = gb_wire_recv(t->fd, t->from.tls, bytes, head + body);
    if (got < (ssize_t)head) /* it was there a moment ago */
        return false;
    ex->early_len = (size_t)got - head;
    if (ex->early_len > 0)
        memcpy(ex->early, bytes + head, ex->early_len);
    t->from.taken += head;
    return true;
}

static void take_up(struct gb_transfer_loop *loop, struct gb_http_transfer *t, struct gb_exchange *ex) {
    struct gb_exchange_loop *exchanges = ex->loop;

    t->ex = ex;
    t->head_len = t->block_len = 0;
    t->out_len = t->sent = 0;
    ex->transfer = t;
    ex->fd = t->fd;
    ex->close = ex->req.close;
    gb_exchange_own(ex, &loop->wake_queue);
    atomic_fetch_add_explicit(&exchanges->active, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&exchanges->requests, 1, memory_order_relaxed);
    gb_exchange_start(ex, exchanges, t->from.peer);
    ex->req.from = t->from.from;
    ex->req.secure = t->from.secure;
    ex->req.listener = t->from.listener;
    ex->req.certificate = gb_server_certificate(loop->server, t->from.tls);
    ex->req.peer = ex->peer ? &ex->peer->seen : NULL;
    gb_request_take_id(&ex->req);
    gb_exchange_resolve(ex);
    gb_exchange_open(ex);
    if (ex->phase == GB_PHASE_HEAD)
        gb_exchange_step(ex, ex->req.route->handler);
}

static enum gb_http_transfer_state state_of(struct gb_exchange *ex) {
    switch (ex->phase) {
    case GB_PHASE_BODY:
        return ex->req.expect_continue ? GB_HTTP_TRANSFER_CONTINUE : GB_HTTP_TRANSFER_BODY;
    case GB_PHASE_WAIT:
        return GB_HTTP_TRANSFER_WAIT;
    default:
        break;
    }
    if (ex->req.content_length == 0 || ex->req.content_length > GB_DISCARD_MAX || ex->req.expect_continue)
        return GB_HTTP_TRANSFER_HEAD;
    /* What came with the head is dropped too. */
    ex->body_received = ex->early_used = ex->early_len;
    if (gb_exchange_body_whole(ex))
        return GB_HTTP_TRANSFER_HEAD;
    ex->phase = GB_PHASE_DISCARD;
    return GB_HTTP_TRANSFER_BODY;
}

bool gb_http_transfer_repeat(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    struct gb_exchange *ex;

    if (!t->like || atomic_load(&loop->server->draining) || !loop->crowded || !same_head(t) ||
        loop->crowded(loop->loop, t->like->req.content_length))
        return false;
    ex = gb_exchange_repeat(t->like);
    if (!ex)
        return false;
    if (!take_head(t, ex)) {
        gb_exchange_end(ex);
        return false;
    }
    take_up(loop, t, ex);
    t->state = state_of(ex);
    return true;
}
