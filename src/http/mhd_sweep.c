/* What no event tells of a connection in libmicrohttpd: silence, slowness, and ends that it has missed. */
#include <errno.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/server.h"

#define PAUSE_NS (50 * GB_NS_PER_MS)
#define PEEK_MAX_NS (16000 * GB_NS_PER_MS)

/* libmicrohttpd misses the end of a stream that arrives together with the last bytes it reads. */
static bool has_ended(const struct gb_conn *c) {
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Of one that waits for its answer. Who closes only its own side is taken for gone as well: the two look alike. */
static bool has_left(const struct gb_conn *c) {
    char byte;
    ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void sweep_idle(struct gb_conn *c, uint64_t now_ns) {
    struct gb_http_server *server = c->server;
    const struct gb_http_server_config *config = &server->config;
    bool first = !c->asked && config->header_timeout_s && config->header_timeout_s < config->idle_timeout_s;
    uint64_t patience_ns = (first ? config->header_timeout_s : config->idle_timeout_s) * GB_NS_PER_S;
    bool over =
        atomic_load(&server->draining) || (patience_ns && now_ns - c->idle_ns > patience_ns && !gb_peer_busy(c->peer));

    if (over || (now_ns >= c->peek_ns && has_ended(c)))
        shutdown(c->fd, SHUT_RDWR);
    /* An end may come unnoticed at any time, with a part of a header; looked for ever more rarely: there may be thousands. */
    if (now_ns >= c->peek_ns) {
        c->peek_ns = now_ns + (now_ns - c->idle_ns) / 2;
        if (c->peek_ns > now_ns + PEEK_MAX_NS)
            c->peek_ns = now_ns + PEEK_MAX_NS;
    }
}

static void sweep_replying(struct gb_conn *c, uint64_t now_ns) {
    const struct gb_http_server_config *config = &c->server->config;
    uint64_t patience_ns = config->stall_timeout_s * GB_NS_PER_S;

    if (config->min_rate_bytes_s)
        patience_ns += c->reply_bytes * GB_NS_PER_S / config->min_rate_bytes_s;
    if (patience_ns && now_ns - c->replied_ns > patience_ns)
        shutdown(c->fd, SHUT_RDWR);
}

void gb_mhd_sweep(struct gb_loop *loop, struct gb_conn *c, uint64_t now_ns) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_exchange *ex = c->ex;

    if (c->left)
        return;
    if (c->idle_ns) {
        sweep_idle(c, now_ns);
    } else if (c->replied_ns) {
        if (ex && ex->phase == GB_PHASE_STREAM && ex->resp.source && ex->resp.source->pause &&
            now_ns - c->replied_ns > PAUSE_NS)
            ex->resp.source->pause(ex->resp.source);
        sweep_replying(c, now_ns);
    } else if (ex && ex->phase == GB_PHASE_WAIT) {
        if (ex->req.cancel && has_left(c))
            ex->req.cancel(&ex->req, true);
        else if (ex->req.park && has_left(c))
            gb_mhd_timed_out(loop, ex);
    } else if (ex && (ex->phase == GB_PHASE_BODY || ex->phase == GB_PHASE_DISCARD)) {
        if (!ex->suspended && has_ended(c))
            gb_error_set(&err, GB_ERR_INCOMPLETE_BODY, "the connection ended after %llu bytes of the body",
                         (unsigned long long)ex->body_received);
        if (ex->phase == GB_PHASE_BODY && ex->req.sink->pause)
            ex->req.sink->pause(ex->req.sink, now_ns - ex->moved_ns > PAUSE_NS);
        if (err.code != GB_OK || gb_exchange_stalled(ex, now_ns, &err))
            gb_mhd_drop(loop, ex, &err);
    }
}
