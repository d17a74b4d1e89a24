#include "http/mhd/sweep.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/exchange/step.h"
#include "http/mhd/front.h"
#include "http/mhd/request.h"

#define PAUSE_NS (50 * GB_NS_PER_MS)

/* A client that has closed its side and waits is asked so often whether it is there. */
#define ASK_NS (5000 * GB_NS_PER_MS)

#define PEEK_MAX_NS (16000 * GB_NS_PER_MS)

/* libmicrohttpd misses the end of a stream that arrives together with the last bytes it reads. */
static bool has_ended(const struct gb_conn *c) {
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Over TCP a client that has closed its own side alone seems to be gone. After a while an interim response
 * distinguishes them: the one discards it (RFC 9110, 15.2), the other's kernel resets the connection. */
static void ask_half_closed(struct gb_conn *c, uint64_t now_ns) {
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const ssize_t n = sizeof(line) - 1;

    if (c->half_closed_ns == 0)
        c->half_closed_ns = now_ns;
    if (c->local || c->ex->req.http10 || now_ns - c->half_closed_ns < ASK_NS)
        return;
    c->half_closed_ns = now_ns;
    if (send(c->fd, line, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
        shutdown(c->fd, SHUT_RDWR);
}

/* Whether a client that waits for its answer has gone. If it may still read, a change continues (transfer/loop.c). */
static bool has_left(struct gb_conn *c, uint64_t now_ns) {
    struct pollfd gone = {.fd = c->fd, .events = 0};
    char byte;
    ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n != 0)
        return n < 0 && errno != EAGAIN && errno != EINTR;
    if (gb_http_is_safe(c->ex->req.method) || poll(&gone, 1, 0) > 0)
        return true;
    ask_half_closed(c, now_ns);
    return false;
}

/* Replies in the kernel's queue are unread too. A connection that polls all the time is not checked. */
static void sweep_unread(struct gb_conn *c, uint64_t now_ns) {
    if (c->read_all || now_ns - c->idle_ns < GB_NS_PER_S || gb_peer_busy(c->peer))
        return;
    c->read_all = gb_socket_queued(gb_front_wire(c)) == 0;
    if (c->read_all)
        return;
    gb_progress_look(&c->progress, gb_front_wire(c), c->local, now_ns);
    if (gb_progress_slow(&c->progress, &c->loop->server->config, now_ns))
        gb_front_drop(c);
}

static void sweep_idle(struct gb_conn *c, uint64_t now_ns) {
    struct gb_http_server *server = c->loop->server;
    const struct gb_http_server_config *config = &server->config;
    bool first = !c->asked && config->header_timeout_s && config->header_timeout_s < config->idle_timeout_s;
    uint64_t patience_ns = (first ? config->header_timeout_s : config->idle_timeout_s) * GB_NS_PER_S;
    bool over =
        atomic_load(&server->draining) || (patience_ns && now_ns - c->idle_ns > patience_ns && !gb_peer_busy(c->peer));

    sweep_unread(c, now_ns);
    if (over || (now_ns >= c->peek_ns && has_ended(c)))
        gb_front_cut(c);
    /* An end may come unnoticed at any time, with a part of a header. The checks become rarer, because there may be
     * thousands of connections. */
    if (now_ns >= c->peek_ns) {
        c->peek_ns = now_ns + (now_ns - c->idle_ns) / 2;
        if (c->peek_ns > now_ns + PEEK_MAX_NS)
            c->peek_ns = now_ns + PEEK_MAX_NS;
    }
}

/* A wait for the source's next bytes does not count against the client, and is bounded elsewhere. */
static void sweep_replying(struct gb_conn *c, bool waits, uint64_t now_ns) {
    if (waits)
        gb_progress_excuse(&c->progress, now_ns);
    else
        gb_progress_look(&c->progress, gb_front_wire(c), c->local, now_ns);
    if (gb_progress_slow(&c->progress, &c->loop->server->config, now_ns))
        gb_front_drop(c);
}

void gb_mhd_sweep(struct gb_loop *loop, struct gb_conn *c, uint64_t now_ns) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_exchange *ex = c->ex;

    if (c->left || c->handover)
        return;
    if (c->idle_ns) {
        sweep_idle(c, now_ns);
    } else if (c->replied_ns) {
        if (ex && ex->phase == GB_PHASE_STREAM && ex->resp.source && ex->resp.source->pause &&
            now_ns - c->replied_ns > PAUSE_NS)
            ex->resp.source->pause(ex->resp.source);
        sweep_replying(c, ex && ex->suspended, now_ns);
    } else if (ex && ex->phase == GB_PHASE_WAIT) {
        if (ex->req.cancel && has_left(c, now_ns))
            ex->req.cancel(&ex->req, true);
        else if (ex->req.park && has_left(c, now_ns))
            gb_mhd_timed_out(loop, ex);
    } else if (ex && ex->phase == GB_PHASE_DISCARD) {
        if (has_ended(c) || gb_exchange_rest_late(ex, now_ns))
            gb_mhd_answer_early(loop, ex);
    } else if (ex && ex->phase == GB_PHASE_BODY) {
        if (!ex->suspended && has_ended(c))
            gb_error_set(&err, GB_ERR_INCOMPLETE_BODY, "the connection ended after %llu bytes of the body",
                         (unsigned long long)ex->body_received);
        if (ex->req.sink->pause)
            ex->req.sink->pause(ex->req.sink, now_ns - ex->moved_ns > PAUSE_NS);
        if (err.code != GB_OK || gb_exchange_stalled(ex, now_ns, &err))
            gb_mhd_drop(loop, ex, &err);
    }
}

void gb_mhd_end_revoked(struct gb_loop *loop, struct gb_conn *c) {
    struct gb_error err = GB_ERROR_INIT;

    if (c->left || c->handover || !c->ex || !gb_server_revoked(c->ex, gb_front_tls(c), &err))
        return;
    if (c->replied_ns)
        gb_front_drop(c); /* a reply that has begun can only break off */
    else
        gb_mhd_revoked(loop, c->ex, &err);
}
