/* A connection whose body or answer is long, on a transfer loop: it reads the body, writes the answer, reads the next
 * head, and keeps the pace that its client may have. transfer_loop.c calls this, on its thread. */
#include "http/server/transfer_loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/message/request.h"
#include "http/message/response.h"
#include "http/server/exchange.h"
#include "http/server/state.h"
#include "http/tls/tls.h"

/* --- pace --------------------------------------------------------------------------------------------------------- */

/* Watches t's socket for these events and no others. */
static void http_transfer_arm(struct gb_transfer_loop *loop, struct gb_http_transfer *t, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.ptr = t};

    /* The socket has no event for bytes that are decrypted already; it is writable at once. Earlier replies leave while
     * the next request is read. */
    if (t->from.tls &&
        (((events & EPOLLIN) && gb_tls_pending(t->from.tls)) || (gb_tls_flush(t->from.tls) < 0 && errno == EAGAIN)))
        ev.events = events |= EPOLLOUT;
    if (t->watched ? t->armed == events : events == 0)
        return;
    epoll_ctl(loop->epoll_fd, t->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, t->fd, &ev);
    t->watched = true;
    t->armed = events;
}

/* Worth a visit. */
#define PACE_LEAST_BYTES 4096u

static void begin(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (t->paced)
        return;
    t->paced = true;
    atomic_fetch_add(&t->ex->client->pausing, 1);
    atomic_fetch_add(&loop->server->limits.pausing, 1);
    gb_limits_note(&loop->server->limits, GB_HTTP_LIMIT_BYTES);
}

/* It continues, or ends. */
static void pace_end(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (!t->paced)
        return;
    t->paced = false;
    atomic_fetch_sub(&t->ex->client->pausing, 1);
    atomic_fetch_sub(&loop->server->limits.pausing, 1);
}

/* Nothing is held meanwhile that other clients may need. */
static void let_go(struct gb_http_transfer *t) {
    struct gb_exchange *ex = t->ex;

    if (ex->phase == GB_PHASE_BODY && ex->req.sink) {
        gb_exchange_room(ex, false);
        if (ex->req.sink->pause)
            ex->req.sink->pause(ex->req.sink, true);
    }
    if (t->state == GB_HTTP_TRANSFER_SOURCE && ex->resp.source && ex->resp.source->pause)
        ex->resp.source->pause(ex->resp.source);
}

/* Not fewer bytes than are worth a visit, unless all that the rate permits in half a tick is less. */
static uint64_t least_of(struct gb_bucket_rate rate, uint64_t n, bool paced) {
    uint64_t least = rate.per_s / 20 + 1;

    if (paced && least > PACE_LEAST_BYTES)
        least = PACE_LEAST_BYTES;
    return least < n ? least : n;
}

/* What t may have now. Where others of its client wait already, t waits too, and each has its share at its visit. */
static uint64_t share_of(const struct gb_http_transfer *t, struct gb_bucket_rate rate, uint64_t n) {
    const struct gb_client *client = t->ex->client;
    unsigned waiting = atomic_load_explicit(&client->pausing, memory_order_relaxed);
    uint64_t left = gb_bucket_left(&client->bytes, rate, gb_clock_ns());
    uint64_t least = least_of(rate, n, t->paced);
    uint64_t share = waiting > 1 ? left / waiting : left;

    if (left < least || (waiting > 0 && !t->paced))
        return 0;
    return share > least ? share : least;
}

static size_t pace_bounded(struct gb_transfer_loop *loop, struct gb_http_transfer *t, size_t n) {
    struct gb_bucket_rate rate = gb_client_bytes(t->ex->client);
    uint64_t share;

    if (rate.per_s == 0)
        return n;
    share = share_of(t, rate, n);
    if (share > 0) {
        pace_end(loop, t);
        return share < n ? (size_t)share : n;
    }
    begin(loop, t);
    let_go(t);
    http_transfer_arm(loop, t, 0);
    return 0;
}

static void pace_paid(struct gb_http_transfer *t, size_t n) {
    struct gb_bucket_rate rate = gb_client_bytes(t->ex->client);

    if (rate.per_s == 0)
        return;
    gb_bucket_charge(&t->ex->client->bytes, rate, n, gb_clock_ns());
    t->ex->paid_bytes += n;
}

/* How many of n bytes may be moved now. 0: t waits for the tick. A refusal never waits. */
static size_t pace(struct gb_transfer_loop *loop, struct gb_http_transfer *t, size_t n) {
    return t->ex->client && t->ex->err.code == GB_OK ? pace_bounded(loop, t, n) : n;
}

/* That many were moved. */
static void pace_moved(struct gb_http_transfer *t, size_t n) {
    if (t->ex->client)
        pace_paid(t, n);
}

void gb_pace_excuse(struct gb_http_transfer *t, uint64_t now_ns) {
    if (t->paced)
        gb_progress_excuse(&t->progress, now_ns);
}

/* --- members ------------------------------------------------------------------------------------------------------ */

void gb_http_transfer_link(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    t->listed = true;
    t->prev = NULL;
    t->next = loop->transfers;
    if (t->next)
        t->next->prev = t;
    loop->transfers = t;
}

static void unlink_transfer(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    t->listed = false;
    if (t->prev)
        t->prev->next = t->next;
    else
        loop->transfers = t->next;
    if (t->next)
        t->next->prev = t->prev;
}

static void drop_like(struct gb_http_transfer *t) {
    if (t->like)
        gb_exchange_unref(t->like);
    t->like = NULL;
}

/* Ends t's exchange; the connection continues. */
static void http_transfer_end_exchange(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (t->ex->raw && t->like != t->ex) {
        drop_like(t);
        t->like = gb_exchange_ref(t->ex);
    }
    pace_end(loop, t);
    gb_server_ended(loop->latency, t->ex);
    gb_exchange_end(t->ex);
    t->ex = NULL;
}

/* Frees t. The descriptor stays open, and in the epoll set if it was there. */
static void forget(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (t->ex)
        http_transfer_end_exchange(loop, t);
    drop_like(t);
    unlink_transfer(loop, t);
    atomic_fetch_sub(&loop->load, 1);
    atomic_fetch_sub(&loop->server->transfers, 1);
    free(t);
}

void gb_http_transfer_drop(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    struct gb_handoff socket = t->from;

    if (t->ex)
        t->ex->broken = true;
    /* The connection may have a duplicate (state.c): closing would not take it out of the set. */
    if (t->from.peer && t->watched)
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, t->fd, NULL);
    forget(loop, t);
    gb_handoff_end(&loop->server->places, &socket);
}

void gb_http_transfer_hand_back(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    struct gb_handoff socket = t->from;

    if (t->watched)
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, t->fd, NULL);
    socket.returning = true;
    forget(loop, t);
    loop->hand_back(loop->server, loop->loop, &socket);
}

/* --- receive ------------------------------------------------------------------------------------------------------ */

/* First come the bytes that libmicrohttpd had read behind the header, then those of the socket. */

#define LARGE_BYTES (4u << 20)
#define LARGE_MARK (1 << 20)
#define SHORT_MARK (256 << 10)
#define LEAST_BYTES (512u << 10) /* of a body for a mark to be worth its calls */

/* The cost of a read besides its bytes, in bytes, so that chunks of one byte do not hold up others. */
#define READ_COST 16384

/* Of framing, in one call: the end of a chunk and the beginning of the next are far shorter. */
#define PEEK_BYTES 128

/* The states CONTINUE and BODY. */
static enum gb_transfer_outcome http_transfer_continue(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";

    /* A socket on which nothing was sent yet takes 25 bytes; otherwise the connection is not worth keeping. */
    if (gb_wire_send(t->fd, t->from.tls, line, sizeof(line) - 1, false) != (ssize_t)sizeof(line) - 1) {
        gb_http_transfer_drop(loop, t);
        return GB_TRANSFER_GONE;
    }
    t->state = GB_HTTP_TRANSFER_BODY;
    return GB_TRANSFER_AGAIN;
}

/* With a low-water mark the kernel doubles the socket's buffer at once, which otherwise grows step by step with what is
 * read. It also wakes for many bytes, not for each segment. Large bodies over new connections take a third less
 * time. */
static void http_transfer_mark(struct gb_http_transfer *t, int bytes) {
    if (bytes != t->mark && setsockopt(t->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0)
        t->mark = bytes;
}

/* Never more than is still to come: otherwise the last bytes would wait for the tick. */
static void choose_mark(struct gb_http_transfer *t) {
    uint64_t length = t->ex->req.content_length;
    uint64_t remaining = length - t->ex->body_received;
    int most = length < LARGE_BYTES ? SHORT_MARK : LARGE_MARK;

    /* The buffer of a connection that has brought the same before has grown already. TLS is slower than the socket, and
     * decrypts while bytes come. */
    if (!t->from.peer && !t->from.tls && length >= LEAST_BYTES && (length >= LARGE_BYTES || !t->ex->like))
        http_transfer_mark(t, remaining < (uint64_t)most ? (int)remaining : most);
}

bool gb_http_transfer_has_bytes(const struct gb_http_transfer *t) {
    int n = 0;

    return t->state == GB_HTTP_TRANSFER_BODY && t->armed == EPOLLIN && (ioctl(t->fd, FIONREAD, &n) == 0 && n > 0);
}

/* --- where bytes come from ---------------------------------------------------------------------------------------- */

static size_t early_left(const struct gb_exchange *ex) {
    return ex->early_len - ex->early_used;
}

static ssize_t read_data(struct gb_http_transfer *t, void *room, size_t n) {
    struct gb_exchange *ex = t->ex;

    if (early_left(ex) == 0)
        return gb_wire_recv(t->fd, t->from.tls, room, n);
    if (n > early_left(ex))
        n = early_left(ex);
    memcpy(room, ex->early + ex->early_used, n);
    ex->early_used += n;
    return (ssize_t)n;
}

/* Bytes behind the framing stay in the socket: after the last chunk they are the next request. */
static ssize_t read_from_socket(struct gb_http_transfer *t, const char **ret_why) {
    char bytes[PEEK_BYTES];
    ssize_t n = gb_wire_peek(t->fd, t->from.tls, bytes, sizeof(bytes));

    if (n <= 0)
        return n;
    n = gb_chunked_read(&t->ex->framing, bytes, (size_t)n, ret_why);
    return n > 0 ? gb_wire_recv(t->fd, t->from.tls, bytes, (size_t)n) : n;
}

static ssize_t read_framing(struct gb_http_transfer *t, const char **ret_why) {
    struct gb_exchange *ex = t->ex;
    ssize_t n;

    if (early_left(ex) == 0)
        return read_from_socket(t, ret_why);
    n = gb_chunked_read(&ex->framing, ex->early + ex->early_used, early_left(ex), ret_why);
    if (n > 0)
        ex->early_used += (size_t)n;
    return n;
}

/* --- pieces of a body --------------------------------------------------------------------------------------------- */

static void after_step(struct gb_http_transfer *t) {
    t->state = t->ex->phase == GB_PHASE_WAIT ? GB_HTTP_TRANSFER_WAIT : GB_HTTP_TRANSFER_HEAD;
}

static void say_ended(const struct gb_exchange *ex, struct gb_error *err) {
    if (ex->req.chunked)
        gb_error_set(err, GB_ERR_INCOMPLETE_BODY,
                     "the connection ended after %llu bytes, before the last chunk; nothing was changed",
                     (unsigned long long)ex->body_received);
    else
        gb_error_set(err, GB_ERR_INCOMPLETE_BODY, "the connection ended after %llu of %llu bytes; nothing was changed",
                     (unsigned long long)ex->body_received, (unsigned long long)ex->req.content_length);
}

/* A read brought nothing. Returns as receive_piece. */
static int64_t no_bytes(struct gb_transfer_loop *loop, struct gb_http_transfer *t, ssize_t got, struct gb_error *err) {
    struct gb_exchange *ex = t->ex;

    if (got == 0) {
        say_ended(ex, err);
        return -1;
    }
    if (errno != EAGAIN && errno != EINTR) {
        gb_http_transfer_drop(loop, t);
        return -2;
    }
    if (ex->req.sink->pause)
        ex->req.sink->pause(ex->req.sink, false);
    http_transfer_arm(loop, t, EPOLLIN);
    return 0;
}

/* The lines between chunks. Returns as receive_piece. */
static int64_t receive_framing(struct gb_transfer_loop *loop, struct gb_http_transfer *t, struct gb_error *err) {
    const char *why = NULL;
    ssize_t got = read_framing(t, &why);

    if (why)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "the chunked body is malformed: %s", why);
    return got > 0 ? got : no_bytes(loop, t, got, err);
}

/* Receives one piece. Returns the bytes received, 0 to wait, -1 with *err, or -2 if t is gone. *ret_drained: the socket
 * had less than there was room for. */
static int64_t receive_piece(struct gb_transfer_loop *loop, struct gb_http_transfer *t, bool *ret_drained,
                             struct gb_error *err) {
    struct gb_exchange *ex = t->ex;
    uint64_t remaining = ex->req.chunked ? ex->framing.left : ex->req.content_length - ex->body_received;
    bool early = early_left(ex) > 0;
    void *room;
    size_t size;
    ssize_t got;
    int r;

    if (ex->req.chunked && ex->framing.state != GB_CHUNKED_DATA)
        return receive_framing(loop, t, err);
    r = ex->req.sink->room(ex->req.sink, &room, &size, err);

    if (r < 0)
        return -1;
    gb_exchange_room(ex, r != 0);
    if (r == 0) {
        http_transfer_arm(loop, t, 0);
        return 0;
    }
    if (size > remaining)
        size = (size_t)remaining;
    size = pace(loop, t, size);
    if (size == 0)
        return 0;
    got = read_data(t, room, size);
    if (got <= 0)
        return no_bytes(loop, t, got, err);
    ex->body_received += (uint64_t)got;
    ex->moved_ns = gb_clock_ns();
    if (ex->req.chunked)
        gb_chunked_took(&ex->framing, (uint64_t)got);
    pace_moved(t, (size_t)got);
    *ret_drained = !early && (size_t)got < size;
    return ex->req.sink->fill(ex->req.sink, (size_t)got, err) < 0 ? -1 : got;
}

/* The request was refused at its head. */
static enum gb_transfer_outcome discard(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    char waste[GB_DISCARD_MAX];
    struct gb_exchange *ex = t->ex;
    ssize_t got = gb_wire_recv(t->fd, t->from.tls, waste, (size_t)(ex->req.content_length - ex->body_received));

    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        gb_http_transfer_drop(loop, t);
        return GB_TRANSFER_GONE;
    }
    if (got > 0) {
        ex->body_received += (uint64_t)got;
        ex->moved_ns = gb_clock_ns();
    }
    if (!gb_exchange_body_whole(ex)) {
        http_transfer_arm(loop, t, EPOLLIN);
        return GB_TRANSFER_LATER;
    }
    ex->phase = GB_PHASE_REPLY;
    t->state = GB_HTTP_TRANSFER_HEAD;
    return GB_TRANSFER_AGAIN;
}

static enum gb_transfer_outcome http_transfer_receive(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    struct gb_exchange *ex = t->ex;
    struct gb_error err = GB_ERROR_INIT;
    bool drained = false;
    uint64_t turn = 0;
    int64_t got;

    if (ex->phase == GB_PHASE_DISCARD)
        return discard(loop, t);
    if (ex->phase != GB_PHASE_BODY) { /* it came here for its answer alone */
        after_step(t);
        return GB_TRANSFER_AGAIN;
    }
    while (!gb_exchange_body_whole(ex)) {
        choose_mark(t);
        /* Asking an empty socket again would cost a system call and bring nothing. */
        if (turn >= loop->turn_bytes || drained) {
            /* The socket has no event for bytes that libmicrohttpd had read; it is writable at once. */
            http_transfer_arm(loop, t, early_left(ex) > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
            return GB_TRANSFER_LATER;
        }
        got = receive_piece(loop, t, &drained, &err);
        if (got == -2)
            return GB_TRANSFER_GONE;
        if (got < 0) {
            ex->close = true;
            gb_exchange_fail(ex, &err);
            t->state = GB_HTTP_TRANSFER_HEAD;
            return GB_TRANSFER_AGAIN;
        }
        if (got == 0)
            return GB_TRANSFER_LATER;
        turn += (uint64_t)got + READ_COST;
    }
    gb_exchange_step(ex, ex->req.route->handler);
    after_step(t);
    return GB_TRANSFER_AGAIN;
}

/* --- repeat ------------------------------------------------------------------------------------------------------- */

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

static void attach_exchange(struct gb_transfer_loop *loop, struct gb_http_transfer *t, struct gb_exchange *ex) {
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
    gb_bound_resolve(ex);
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

/* The connection waits for its next request, whose first bytes are there. If they are the head of the last one, the
 * request begins, and true is returned. Else nothing is taken from the socket. */
static bool http_transfer_repeat(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
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
    attach_exchange(loop, t, ex);
    t->state = state_of(ex);
    return true;
}

/* --- the reply, and the way back ---------------------------------------------------------------------------------- */

#define LINGER_BYTES (256u << 20)

static enum gb_transfer_outcome wait_for_handler(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    if (t->ex->phase == GB_PHASE_WAIT)
        gb_exchange_step(t->ex, t->ex->req.resume);
    if (t->ex->phase == GB_PHASE_WAIT) {
        /* Most often the wait ends with the turn, and the socket need not be armed again for it. */
        if (t->waits || t->ex->parked)
            http_transfer_arm(loop, t, t->ex->parked && !t->half_closed ? EPOLLRDHUP : 0);
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
    size_t may = pace(loop, t, n);
    ssize_t sent;

    if (may == 0)
        return 0;
    sent = gb_wire_send(t->fd, t->from.tls, at, may, more);
    if (sent > 0) {
        pace_moved(t, (size_t)sent);
        t->moved_ns = gb_clock_ns();
        t->progress.out += (uint64_t)sent;
        return sent;
    }
    if (sent == 0 || errno == EAGAIN || errno == EINTR) {
        http_transfer_arm(loop, t, EPOLLOUT);
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
        http_transfer_mark(t, 1); /* a request comes next, or the end */
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
    http_transfer_end_exchange(loop, t);
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
    http_transfer_arm(loop, t, EPOLLIN); /* most clients end now, and libmicrohttpd need not know */
    return GB_TRANSFER_LATER;
}

static enum gb_transfer_outcome send_block(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
    uint64_t turn = 0;
    ssize_t n;

    while (t->sent < t->block_len) {
        if (turn >= loop->turn_bytes) {
            http_transfer_arm(loop, t, EPOLLOUT);
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
            http_transfer_arm(loop, t, EPOLLOUT);
            return GB_TRANSFER_LATER;
        }
        r = source->next(source, &at, &size, &err);
        if (r == 0) {
            http_transfer_arm(loop, t, 0);
            return GB_TRANSFER_LATER;
        }
        if (r > 0)
            n = push(loop, t, at, size < t->out_len - t->sent ? size : (size_t)(t->out_len - t->sent), false);
        if (r < 0 || n < 0) {
            gb_http_transfer_drop(
                loop, t); /* the length is announced: only the end of the connection shows the client the failure */
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

    if (http_transfer_repeat(loop, t))
        return GB_TRANSFER_AGAIN;
    n = gb_wire_peek(t->fd, t->from.tls, &byte, 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        http_transfer_arm(loop, t, EPOLLIN);
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
            http_transfer_arm(loop, t, EPOLLIN);
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
            next = http_transfer_continue(loop, t);
            break;
        case GB_HTTP_TRANSFER_BODY:
            next = http_transfer_receive(loop, t);
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
