/* One transfer on a transfer loop: after the body it answers, and gives the connection back. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/message/canned.h"
#include "http/message/head_writer.h"
#include "http/transfer/steps.h"

#define LINGER_BYTES (256u << 20)

/* --- the handler ------------------------------------------------------------------------------------------------------ */

static enum outcome wait_for_handler(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t) {
    if (t->ex->phase == GB_PHASE_WAIT)
        gb_exchange_step(t->ex, t->ex->req.resume);
    if (t->ex->phase == GB_PHASE_WAIT) {
        gb_http_transfer_arm(transfer_loop, t, t->ex->parked ? EPOLLRDHUP : 0);
        return LATER;
    }
    t->state = GB_HTTP_TRANSFER_HEAD;
    return AGAIN;
}

/* --- sending ----------------------------------------------------------------------------------------------------------- */

/* Sends up to n bytes. Returns bytes sent, 0 to wait for room in the socket, -1 when the client is gone. */
static ssize_t push(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t, const void *at, size_t n,
                    bool more) {
    ssize_t sent = send(t->fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));

    if (sent > 0) {
        t->moved_ns = gb_clock_ns();
        t->progress.out += (uint64_t)sent;
        return sent;
    }
    if (sent == 0 || errno == EAGAIN || errno == EINTR) {
        gb_http_transfer_arm(transfer_loop, t, EPOLLOUT);
        return 0;
    }
    return -1;
}

/* A small body goes out with the head. */
static void join_block(struct gb_http_transfer *t) {
    if (t->block_len > 0)
        memcpy(t->head + t->head_len, t->block, t->block_len);
    t->head_len += t->block_len;
    t->out_len -= t->block_len;
    t->block_len = 0;
}

static bool begin_reply(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t) {
    struct gb_exchange *ex = t->ex;
    struct gb_http_response *resp = &ex->resp;
    bool unread;

    gb_reply_admit(ex);
    /* Bytes that libmicrohttpd had read behind the body would be lost: the client must send that request again. */
    unread = ex->phase != GB_PHASE_DONE && (!gb_exchange_body_whole(ex) || ex->early_used < ex->early_len);

    if (t->mark > 1)
        gb_http_transfer_mark(t, 1); /* what comes next is a request, or the end */
    t->close = ex->close || unread || atomic_load(&transfer_loop->server->draining);
    t->block = resp->body;
    t->block_len = resp->body_len;
    if (resp->canned)
        gb_canned_unpack(resp, &ex->req, &t->block, &t->block_len);
    t->out_len = resp->source ? resp->source_len : t->block_len;
    if (ex->req.method == GB_HTTP_HEAD && resp->unsent_len > 0)
        t->out_len = resp->unsent_len;
    t->head_len = gb_head_write(&ex->req, resp, t->out_len, t->close, t->head, sizeof(t->head));
    ex->phase = GB_PHASE_DONE;
    t->sent = 0;
    t->began_ns = t->moved_ns = gb_clock_ns();
    gb_progress_begin(&t->progress, t->began_ns);
    if (t->head_len > 0 && ex->req.method != GB_HTTP_HEAD && t->block_len <= sizeof(t->head) - t->head_len)
        join_block(t);
    return t->head_len > 0;
}

static enum outcome send_head(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t) {
    bool has_body = t->ex->req.method != GB_HTTP_HEAD;
    ssize_t n;

    if (t->head_len == 0 && (!begin_reply(transfer_loop, t) || gb_peer_send(t->fd, &t->ex->resp) < 0)) {
        gb_http_transfer_drop(transfer_loop, t);
        return GONE;
    }
    while (t->sent < t->head_len) {
        n = push(transfer_loop, t, t->head + t->sent, t->head_len - t->sent, has_body && t->out_len > 0);
        if (n < 0) {
            gb_http_transfer_drop(transfer_loop, t);
            return GONE;
        }
        if (n == 0)
            return LATER;
        t->sent += (uint64_t)n;
    }
    t->sent = 0;
    if (!has_body)
        t->out_len = t->block_len = 0;
    t->state = t->ex->resp.source && has_body ? GB_HTTP_TRANSFER_SOURCE : GB_HTTP_TRANSFER_BLOCK;
    return AGAIN;
}

static enum outcome send_block(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t) {
    uint64_t turn = 0;
    ssize_t n;

    while (t->sent < t->block_len) {
        if (turn >= transfer_loop->turn_bytes) {
            gb_http_transfer_arm(transfer_loop, t, EPOLLOUT);
            return LATER;
        }
        n = push(transfer_loop, t, t->block + t->sent, t->block_len - t->sent, false);
        if (n < 0) {
            gb_http_transfer_drop(transfer_loop, t);
            return GONE;
        }
        if (n == 0)
            return LATER;
        t->sent += (uint64_t)n;
        turn += (uint64_t)n;
    }
    gb_http_transfer_finish(transfer_loop, t);
    return GONE;
}

static enum outcome send_source(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t) {
    struct gb_http_source *source = t->ex->resp.source;
    struct gb_error err = GB_ERROR_INIT;
    uint64_t turn = 0;
    const void *at;
    size_t size;
    ssize_t n = 1;
    int r;

    while (t->sent < t->out_len) {
        if (turn >= transfer_loop->turn_bytes) {
            gb_http_transfer_arm(transfer_loop, t, EPOLLOUT);
            return LATER;
        }
        r = source->next(source, &at, &size, &err);
        if (r == 0) {
            gb_http_transfer_arm(transfer_loop, t, 0);
            return LATER;
        }
        if (r > 0)
            n = push(transfer_loop, t, at, size < t->out_len - t->sent ? size : (size_t)(t->out_len - t->sent), false);
        if (r < 0 || n < 0) {
            gb_http_transfer_drop(transfer_loop, t); /* the length is announced: only breaking off tells the client */
            return GONE;
        }
        if (n == 0)
            return LATER;
        t->sent += (uint64_t)n;
        turn += (uint64_t)n;
        source->sent(source, (size_t)n);
    }
    source->free(source, true);
    t->ex->resp.source = NULL;
    gb_http_transfer_finish(transfer_loop, t);
    return GONE;
}

static enum outcome await_next(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t) {
    char byte;
    ssize_t n = recv(t->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        gb_http_transfer_arm(transfer_loop, t, EPOLLIN);
        return LATER;
    }
    if (n > 0)
        gb_http_transfer_hand_back(transfer_loop, t);
    else
        gb_http_transfer_drop(transfer_loop, t);
    return GONE;
}

/* --- the end ----------------------------------------------------------------------------------------------------------- */

static enum outcome linger(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t) {
    static _Thread_local char waste[64 * 1024];
    uint64_t turn = 0;
    ssize_t n = 0;

    while (turn < transfer_loop->turn_bytes && (n = recv(t->fd, waste, sizeof(waste), MSG_DONTWAIT)) > 0)
        turn += (uint64_t)n;
    t->lingered += turn;
    if (turn >= transfer_loop->turn_bytes || (n < 0 && (errno == EAGAIN || errno == EINTR))) {
        if (t->lingered < LINGER_BYTES) {
            gb_http_transfer_arm(transfer_loop, t, EPOLLIN);
            return LATER;
        }
    }
    gb_http_transfer_drop(transfer_loop, t);
    return GONE;
}

void gb_transfer_loop_fail(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t,
                           const struct gb_error *err) {
    gb_http_response_done(&t->ex->resp); /* what stands there belongs to another refusal */
    t->ex->close = true;
    gb_exchange_fail(t->ex, err);
    t->state = GB_HTTP_TRANSFER_HEAD;
    gb_http_transfer_run(transfer_loop, t);
}

void gb_http_transfer_run(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t) {
    enum outcome next = AGAIN;

    while (next == AGAIN) {
        switch (t->state) {
        case GB_HTTP_TRANSFER_CONTINUE:
            next = gb_http_transfer_continue(transfer_loop, t);
            break;
        case GB_HTTP_TRANSFER_BODY:
            next = gb_http_transfer_receive(transfer_loop, t);
            break;
        case GB_HTTP_TRANSFER_WAIT:
            next = wait_for_handler(transfer_loop, t);
            break;
        case GB_HTTP_TRANSFER_HEAD:
            next = send_head(transfer_loop, t);
            break;
        case GB_HTTP_TRANSFER_BLOCK:
            next = send_block(transfer_loop, t);
            break;
        case GB_HTTP_TRANSFER_SOURCE:
            next = send_source(transfer_loop, t);
            break;
        case GB_HTTP_TRANSFER_IDLE:
            next = await_next(transfer_loop, t);
            break;
        case GB_HTTP_TRANSFER_LINGER:
            next = linger(transfer_loop, t);
            break;
        }
    }
}
