/* First come the bytes that libmicrohttpd had read behind the header, then those of the socket. */
#include "http/transfer/receive.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/exchange/step.h"
#include "http/tls/tls.h"
#include "http/transfer/pace.h"

#define LARGE_BYTES (4u << 20)
#define LARGE_MARK (1 << 20)
#define SHORT_MARK (256 << 10)
#define LEAST_BYTES (512u << 10) /* of a body for a mark to be worth its calls */

/* The cost of a read besides its bytes, in bytes, so that chunks of one byte do not hold up others. */
#define READ_COST 16384

/* Of framing, in one call: the end of a chunk and the beginning of the next are far shorter. */
#define PEEK_BYTES 128

enum gb_transfer_outcome gb_http_transfer_continue(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
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
void gb_http_transfer_mark(struct gb_http_transfer *t, int bytes) {
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
        gb_http_transfer_mark(t, remaining < (uint64_t)most ? (int)remaining : most);
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
    gb_http_transfer_arm(loop, t, EPOLLIN);
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
        gb_http_transfer_arm(loop, t, 0);
        return 0;
    }
    if (size > remaining)
        size = (size_t)remaining;
    size = gb_pace(loop, t, size);
    if (size == 0)
        return 0;
    got = read_data(t, room, size);
    if (got <= 0)
        return no_bytes(loop, t, got, err);
    ex->body_received += (uint64_t)got;
    ex->moved_ns = gb_clock_ns();
    if (ex->req.chunked)
        gb_chunked_took(&ex->framing, (uint64_t)got);
    gb_pace_moved(t, (size_t)got);
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
        gb_http_transfer_arm(loop, t, EPOLLIN);
        return GB_TRANSFER_LATER;
    }
    ex->phase = GB_PHASE_REPLY;
    t->state = GB_HTTP_TRANSFER_HEAD;
    return GB_TRANSFER_AGAIN;
}

enum gb_transfer_outcome gb_http_transfer_receive(struct gb_transfer_loop *loop, struct gb_http_transfer *t) {
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
            gb_http_transfer_arm(loop, t, early_left(ex) > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
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
