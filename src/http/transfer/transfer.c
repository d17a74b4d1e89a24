/* After the body the transfer answers, and gives the connection back. */
#include "http/transfer/transfer.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/exchange/reply_memory.h"
#include "http/exchange/step.h"
#include "http/message/head_writer.h"
#include "http/message/response.h"
#include "http/tls/tls.h"
#include "http/transfer/pace.h"
#include "http/transfer/receive.h"
#include "http/transfer/repeat.h"

#define LINGER_BYTES (256u << 20)

/* --- the handler -------------------------------------------------------------------------------------------------- */

static enum gb_transfer_outcome wait_for_handler(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (t->ex->phase == GB_PHASE_WAIT)
        gb_exchange_step(t->ex, t->ex->req.resume);
    if (t->ex->phase == GB_PHASE_WAIT) {
        /* Most often the wait ends with the turn, and the socket need not be armed again for it. */
        if (t->waits || t->ex->parked)
            gb_http_transfer_arm(loop, t, t->ex->parked && !t->half_closed ? EPOLLRDHUP : 0);
        t->waits = true;
        return GB_TRANSFER_LATER;
    }
    t->waits = false;
    t->state = GB_HTTP_TRANSFER_HEAD;
    return GB_TRANSFER_AGAIN;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* Sends up to n bytes. Returns the bytes sent, 0 to wait for room in the socket, or -1 if the client is gone. */
static ssize_t push(struct gb_transfer_loop *loop, struct gb_http_transfer *t, const void *at, size_t n, bool more) {
    size_t may = gb_pace(loop, t, n);
    ssize_t sent;

    if (may == 0)
        return 0;
    sent = gb_wire_send(t->fd, t->from.tls, at, may, more);
    if (sent > 0) {
        gb_pace_moved(t, (size_t)sent);
        t->moved_ns = gb_clock_ns();
        t->progress.out += (uint64_t)sent;
        return sent;
    }
    if (sent == 0 || errno == EAGAIN || errno == EINTR) {
        gb_http_transfer_arm(loop, t, EPOLLOUT);
        return 0;
    }
    return -1;
}

/* A small body goes out with the head. */
static void join_block(struct gb_http_transfer *t) {
    if (t->block_len > 0)
        memcpy(t->head + t->head_len, t->block, t->block_len);
    t->head_len += t->block_len;
    t->joined = t->block_len;
    t->out_len -= t->block_len;
    t->block_len = 0;
}

static bool begin_reply(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    struct gb_exchange *ex = t->ex;
    struct gb_http_response *resp = &ex->resp;
    bool unread;

    gb_reply_admit(ex);
    /* Bytes that libmicrohttpd had read behind the body would be lost: the client must send that request again. */
    unread = ex->phase != GB_PHASE_DONE && (!gb_exchange_body_whole(ex) || ex->early_used < ex->early_len);

    if (t->mark > 1)
        gb_http_transfer_mark(t, 1); /* a request comes next, or the end */
    t->close = ex->close || unread || atomic_load(&loop->server->draining);
    t->block = resp->body;
    t->block_len = resp->body_len;
    if (resp->canned)
        gb_response_unpack(resp, &ex->req, &t->block, &t->block_len);
    t->out_len = resp->source ? resp->source_len : t->block_len;
    if (ex->req.method == GB_HTTP_HEAD && resp->unsent_len > 0)
        t->out_len = resp->unsent_len;
    t->head_len = gb_head_write(&ex->req, resp, t->out_len, t->close, t->head, sizeof(t->head));
    ex->phase = GB_PHASE_DONE;
    t->sent = t->joined = 0;
    t->began_ns = t->moved_ns = gb_clock_ns();
    gb_progress_begin(&t->progress, t->began_ns);
    if (t->head_len > 0 && ex->req.method != GB_HTTP_HEAD && t->block_len <= sizeof(t->head) - t->head_len)
        join_block(t);
    return t->head_len > 0;
}

static enum gb_transfer_outcome send_head(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    bool has_body = t->ex->req.method != GB_HTTP_HEAD;
    ssize_t n;

    if (t->head_len == 0 && (!begin_reply(loop, t) || gb_peer_send(t->fd, &t->ex->resp) < 0)) {
        gb_http_transfer_drop(loop, t);
        return GB_TRANSFER_GONE;
    }
    while (t->sent < t->head_len) {
        n = push(loop, t, t->head + t->sent, t->head_len - t->sent, has_body && t->out_len > 0);
        if (n < 0) {
            gb_http_transfer_drop(loop, t);
            return GB_TRANSFER_GONE;
        }
        if (n == 0)
            return GB_TRANSFER_LATER;
        t->sent += (uint64_t)n;
    }
    t->sent = 0;
    t->ex->body_sent = t->joined;
    if (!has_body)
        t->out_len = t->block_len = 0;
    t->state = t->ex->resp.source && has_body ? GB_HTTP_TRANSFER_SOURCE : GB_HTTP_TRANSFER_BLOCK;
    return GB_TRANSFER_AGAIN;
}

/* The reply is out: keeps the connection, or begins a lingering close. */
static enum gb_transfer_outcome finish(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    bool close = t->close || atomic_load(&loop->server->draining);

    t->from.taken += t->ex->body_received;
    gb_http_transfer_end_exchange(loop, t);
    t->began_ns = gb_clock_ns();
    t->progress = (struct gb_progress){.began_ns = 0};
    t->state = close ? GB_HTTP_TRANSFER_LINGER : GB_HTTP_TRANSFER_IDLE;
    if (close) {
        /* Closing with bytes unread would reset the connection, and the client would lose the reply. */
        if (t->from.tls)
            gb_tls_end(t->from.tls);
        shutdown(t->fd, SHUT_WR);
        return GB_TRANSFER_AGAIN;
    }
    if (t->from.returning && !t->like) {
        gb_http_transfer_hand_back(loop, t);
        return GB_TRANSFER_GONE;
    }
    gb_http_transfer_arm(loop, t, EPOLLIN); /* most clients end now, and libmicrohttpd need not know */
    return GB_TRANSFER_LATER;
}

static enum gb_transfer_outcome send_block(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    uint64_t turn = 0;
    ssize_t n;

    while (t->sent < t->block_len) {
        if (turn >= loop->turn_bytes) {
            gb_http_transfer_arm(loop, t, EPOLLOUT);
            return GB_TRANSFER_LATER;
        }
        n = push(loop, t, t->block + t->sent, t->block_len - t->sent, false);
        if (n < 0) {
            gb_http_transfer_drop(loop, t);
            return GB_TRANSFER_GONE;
        }
        if (n == 0)
            return GB_TRANSFER_LATER;
        t->ex->body_sent = t->sent += (uint64_t)n;
        turn += (uint64_t)n;
    }
    return finish(loop, t);
}

static enum gb_transfer_outcome send_source(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    struct gb_http_source *source = t->ex->resp.source;
    struct gb_error err = GB_ERROR_INIT;
    uint64_t turn = 0;
    const void *at;
    size_t size;
    ssize_t n = 1;
    int r;

    while (t->sent < t->out_len) {
        if (turn >= loop->turn_bytes) {
            gb_http_transfer_arm(loop, t, EPOLLOUT);
            return GB_TRANSFER_LATER;
        }
        r = source->next(source, &at, &size, &err);
        if (r == 0) {
            gb_http_transfer_arm(loop, t, 0);
            return GB_TRANSFER_LATER;
        }
        if (r > 0)
            n = push(loop, t, at, size < t->out_len - t->sent ? size : (size_t)(t->out_len - t->sent), false);
        if (r < 0 || n < 0) {
            gb_http_transfer_drop(loop,
                                  t); /* the length is announced: only the end of the connection tells the client */
            return GB_TRANSFER_GONE;
        }
        if (n == 0)
            return GB_TRANSFER_LATER;
        t->ex->body_sent = t->sent += (uint64_t)n;
        turn += (uint64_t)n;
        source->sent(source, (size_t)n);
    }
    source->free(source, true);
    t->ex->resp.source = NULL;
    return finish(loop, t);
}

static enum gb_transfer_outcome await_next(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    char byte;
    ssize_t n;

    if (gb_http_transfer_repeat(loop, t))
        return GB_TRANSFER_AGAIN;
    n = gb_wire_peek(t->fd, t->from.tls, &byte, 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        gb_http_transfer_arm(loop, t, EPOLLIN);
        return GB_TRANSFER_LATER;
    }
    if (n > 0)
        gb_http_transfer_hand_back(loop, t);
    else
        gb_http_transfer_drop(loop, t);
    return GB_TRANSFER_GONE;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static enum gb_transfer_outcome linger(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    static _Thread_local char waste[64 * 1024];
    uint64_t turn = 0;
    ssize_t n = 0;

    while (turn < loop->turn_bytes && (n = recv(t->fd, waste, sizeof(waste), MSG_DONTWAIT)) > 0)
        turn += (uint64_t)n;
    t->lingered += turn;
    if (turn >= loop->turn_bytes || (n < 0 && (errno == EAGAIN || errno == EINTR))) {
        if (t->lingered < LINGER_BYTES) {
            gb_http_transfer_arm(loop, t, EPOLLIN);
            return GB_TRANSFER_LATER;
        }
    }
    gb_http_transfer_drop(loop, t);
    return GB_TRANSFER_GONE;
}

void gb_http_transfer_fail(struct gb_transfer_loop *loop, struct gb_http_transfer *t, const struct gb_error *err) {
    gb_http_response_done(&t->ex->resp); /* its headers belong to another answer */
    t->ex->close = true;
    gb_exchange_fail(t->ex, err);
    t->state = GB_HTTP_TRANSFER_HEAD;
    gb_http_transfer_run(loop, t);
}

void gb_http_transfer_run(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    enum gb_transfer_outcome next = GB_TRANSFER_AGAIN;

    while (next == GB_TRANSFER_AGAIN) {
        switch (t->state) {
        case GB_HTTP_TRANSFER_CONTINUE:
            next = gb_http_transfer_continue(loop, t);
            break;
        case GB_HTTP_TRANSFER_BODY:
            next = gb_http_transfer_receive(loop, t);
            break;
        case GB_HTTP_TRANSFER_WAIT:
            next = wait_for_handler(loop, t);
            break;
        case GB_HTTP_TRANSFER_HEAD:
            next = send_head(loop, t);
            break;
        case GB_HTTP_TRANSFER_BLOCK:
            next = send_block(loop, t);
            break;
        case GB_HTTP_TRANSFER_SOURCE:
            next = send_source(loop, t);
            break;
        case GB_HTTP_TRANSFER_IDLE:
            next = await_next(loop, t);
            break;
        case GB_HTTP_TRANSFER_LINGER:
            next = linger(loop, t);
            break;
        }
    }
}
