#include "http/mhd/request.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/map.h"
#include "http/exchange/client.h"
#include "http/exchange/detached.h"
#include "http/exchange/reply_memory.h"
#include "http/exchange/step.h"
#include "http/mhd/begin.h"
#include "http/mhd/handover.h"
#include "http/mhd/head.h"
#include "http/mhd/leave.h"
#include "http/mhd/reply.h"
#include "http/mhd/stream.h"
#include "http/mhd/suspend.h"

/* --- requests that are made again and again ----------------------------------------------------------------------- */

/* Over TLS, what is read again and again need not go through the front. */
static bool is_secure_read(const struct gb_exchange *ex) {
    return ex->info->secure && ex->req.method <= GB_HTTP_HEAD;
}

/* A connection that transfers the same once more is better off on the transfer loop, which need not parse the head
 * again. A body that is about to leave goes there with the head that it came with. */
static void expect_more(struct gb_exchange *ex) {
    if (!ex->close && !ex->req.chunked && ex->req.route &&
        (ex->req.route->body == GB_BODY_STREAM || ex->resp.source || is_secure_read(ex)))
        gb_head_keep(ex);
}

static bool asks_again(struct gb_exchange *ex) {
    struct gb_conn *c = ex->info;
    uint32_t target = gb_map_hash(ex->req.target.s);
    bool again = c->last_target == target;

    c->last_target = target;
    return again && ex->req.route && (ex->req.route->body == GB_BODY_STREAM || is_secure_read(ex)) &&
           ex->phase == GB_PHASE_REPLY && !ex->close && (ex->resp.status < 300 || is_secure_read(ex)) &&
           gb_mhd_held(ex) == 0;
}

/* The connection goes to a transfer loop, or to the feed. */
static int leave(struct gb_loop *loop, struct gb_exchange *ex) {
    bool was_suspended = ex->suspended;

    gb_mhd_unlist(loop, ex);
    expect_more(ex);
    if ((ex->resp.listener ? gb_mhd_listen(loop, ex) : gb_mhd_detach(loop, ex)) < 0)
        return -1;
    if (was_suspended)
        atomic_fetch_sub(&loop->server->suspended, 1);
    return 0;
}

/* The same for a request that waits long. It counts as suspended until its end, which is near when it continues. */
static int park(struct gb_loop *loop, struct gb_exchange *ex) {
    /* Set before it leaves: from then on it is another thread's. */
    ex->parked = true;
    atomic_fetch_add(&loop->server->suspended, 1);
    if (leave(loop, ex) == 0)
        return 0;
    ex->parked = false;
    atomic_fetch_sub(&loop->server->suspended, 1);
    return -1;
}

/* --- the callbacks ------------------------------------------------------------------------------------------------ */

static struct gb_conn *conn_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *ctx = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return ctx ? ctx->socket_context : NULL;
}

/* libmicrohttpd silently forgets a request if it has no room for the query parameters. So the query is cut from its
 * copy of the line, because message/request.c reads our copy. gb_mhd_forgotten ends requests that it forgets all the
 * same. */
void *gb_mhd_on_uri(void *cls, const char *uri, struct MHD_Connection *connection) {
    struct gb_conn *c = conn_of(connection);
    char *query = uri ? strchr((char *)(uintptr_t)uri, '?') : NULL;
    struct gb_loop *loop = cls;

    if (!c)
        return NULL;
    gb_mhd_forgotten(c);
    loop->progress++;
    c->begun = gb_exchange_new(loop->server, uri ? uri : "");
    if (query && query[1] != '\0')
        query[1] = '\0';
    return c->begun;
}

void gb_mhd_forgotten(struct gb_conn *c) {
    if (c->begun)
        gb_exchange_end(c->begun);
    c->begun = NULL;
}

void gb_mhd_finished(struct gb_exchange *ex) {
    struct gb_conn *c = ex->info;

    if (c) {
        struct gb_loop *loop = c->loop;
        const union MHD_ConnectionInfo *header =
            MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

        /* It may end while it waits: libmicrohttpd timed it out. */
        gb_mhd_unlist(loop, ex);
        if (ex->suspended)
            atomic_fetch_sub(&loop->server->suspended, 1);
        loop->progress++;
        c->ex = NULL;
        c->idle_ns = loop->now_ns;
        c->asked = true;
        gb_quiet_enter(loop, c);
        c->peek_ns = 0;
        c->half_closed_ns = 0;
        c->replied_ns = 0;
        c->read_all = false;
        c->progress = (struct gb_progress){.began_ns = 0};
        c->consumed += (header ? header->header_size : 0) + ex->body_received;
        gb_server_ended(loop->own.latency, ex);
    }
    gb_exchange_end(ex);
}

/* The reply goes out: through libmicrohttpd, or from a transfer loop when it is long. */
static enum MHD_Result send_reply(struct gb_loop *loop, struct gb_exchange *ex) {
    struct gb_error err = GB_ERROR_INIT;
    bool is_long;

    gb_reply_admit(ex);
    is_long = ex->resp.source && ex->req.method != GB_HTTP_HEAD && ex->resp.source_len > 0;
    if (gb_peer_send(ex->info->fd, &ex->resp) < 0) {
        /* The end of the connection undoes what goes with the descriptors. */
        ex->close = true;
        if (errno != ETOOMANYREFS)
            return MHD_NO;
        gb_error_set(&err, GB_ERR_SATURATED,
                     "clients do not take their descriptors, and the system permits no more on their way; try again");
        gb_http_response_done(&ex->resp);
        gb_exchange_fail(ex, &err);
    }
    if (ex->resp.listener && ex->phase == GB_PHASE_REPLY) {
        if (leave(loop, ex) == 0)
            return MHD_YES;
        gb_error_set(&err, GB_ERR_SATURATED, "no file descriptor is free to send events with; try again");
        gb_http_response_done(&ex->resp);
        gb_exchange_fail(ex, &err);
        is_long = false;
    }
    if (is_long && gb_peer_busy(ex->info->peer)) {
        if (gb_reply_charge(ex, GB_MHD_STREAM_BYTES))
            ex->phase = GB_PHASE_STREAM;
    } else if (is_long) {
        /* If libmicrohttpd holds bytes of a next request, they are lost: the client must send it again. */
        if (gb_mhd_held(ex) != 0)
            ex->close = true;
        if (leave(loop, ex) == 0)
            return MHD_YES;
        gb_error_set(&err, GB_ERR_SATURATED, "no file descriptor is free to send the data with; try again");
        gb_http_response_done(&ex->resp);
        gb_exchange_fail(ex, &err);
    }
    /* If libmicrohttpd may hold bytes of a next request, a long body goes through it, and nothing is lost: a copy costs
     * less than a new connection. */
    if (gb_reply_bytes(ex) > GB_LONG_REPLY && gb_mhd_held(ex) == 0 && leave(loop, ex) == 0)
        return MHD_YES;
    if (asks_again(ex) && leave(loop, ex) == 0)
        return MHD_YES;
    ex->info->replied_ns = loop->now_ns;
    ex->info->progress = (struct gb_progress){.began_ns = 0};
    if (ex->phase != GB_PHASE_STREAM)
        ex->phase = GB_PHASE_DONE;
    return gb_mhd_reply(ex) == 0 ? MHD_YES : MHD_NO;
}

/* What a handler began is most often done when the turn ends. So libmicrohttpd keeps the connection for one turn more,
 * and calls again in the next: suspending and resuming it would cost four system calls. Each resume makes it walk all
 * suspended connections besides. */
static void wait(struct gb_loop *loop, struct gb_exchange *ex) {
    if (ex->req.park && !ex->suspended && gb_mhd_held(ex) == 0 && park(loop, ex) == 0)
        return;
    if (ex->req.park || !loop->server->config.end_turn) {
        gb_mhd_suspend(loop, ex);
        return;
    }
    ex->lingers = true;
    loop->progress++;
}

/* Acts on the phase after a step; inside a callback. */
static enum MHD_Result proceed(struct gb_loop *loop, struct gb_exchange *ex) {
    if (ex->phase == GB_PHASE_GATHER && !gb_exchange_gather(ex)) {
        gb_mhd_suspend(loop, ex);
        return MHD_YES;
    }
    if (ex->phase == GB_PHASE_WAIT) {
        wait(loop, ex);
        return MHD_YES;
    }
    return send_reply(loop, ex);
}

/* A refusal at the headers. Its way depends on how much of the body may already be on its way. */
static enum MHD_Result refuse(struct gb_loop *loop, struct gb_exchange *ex) {
    bool no_body = !ex->req.chunked && ex->req.content_length == 0;

    if (ex->unframed)
        return leave(loop, ex) == 0 ? MHD_YES : MHD_NO;
    if (no_body)
        return MHD_YES; /* answered in the second call: an answer in the first closes the connection */
    if (ex->req.expect_continue)
        return send_reply(loop, ex);
    if (!ex->req.chunked && ex->req.content_length <= GB_DISCARD_MAX) {
        ex->phase = GB_PHASE_DISCARD;
        return MHD_YES;
    }
    return leave(loop, ex) == 0 ? MHD_YES : MHD_NO;
}

/* The request's header is complete. */
static void take_up(struct gb_loop *loop, struct gb_conn *c, struct gb_exchange *ex) {
    loop->progress++;
    c->begun = NULL;
    c->ex = ex;
    gb_quiet_leave(loop, c);
    c->idle_ns = 0;
    ex->conn = c->mhd;
    ex->info = c;
    ex->fd = c->fd;
    ex->loop = &loop->exchanges;
    gb_exchange_own(ex, &loop->exchanges.wake_queue);
    atomic_fetch_add_explicit(&loop->exchanges.active, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&loop->exchanges.requests, 1, memory_order_relaxed);
}

/* If no descriptor is free, libmicrohttpd sends the refusal and ends the connection. */
static enum MHD_Result hand_over(struct gb_loop *loop, struct gb_exchange *ex) {
    struct gb_error err = GB_ERROR_INIT;

    if (gb_mhd_hand_over(loop, ex) == 0)
        return MHD_YES;
    gb_error_set(&err, GB_ERR_SATURATED, "no file descriptor is free to receive the body with; try again");
    ex->close = true;
    gb_exchange_fail(ex, &err);
    return send_reply(loop, ex);
}

static enum MHD_Result first_call(struct gb_loop *loop, struct gb_exchange *ex, const char *method, const char *url,
                                  const char *version) {
    gb_mhd_begin(ex, method, url, version);
    if (ex->phase == GB_PHASE_REPLY || ex->phase == GB_PHASE_GATHER)
        return refuse(loop, ex);
    /* The reply is known and waits for the database (Idempotency-Key): the body is not read. */
    if (ex->phase == GB_PHASE_WAIT && (ex->req.chunked || ex->req.content_length > 0)) {
        ex->close = true;
        return leave(loop, ex) == 0 ? MHD_YES : MHD_NO;
    }
    if (ex->phase == GB_PHASE_BODY && ex->req.chunked)
        return hand_over(loop, ex);
    /* A client that waits for 100 Continue has sent nothing yet, if the proof holds: its body goes straight to a
     * transfer loop. Other bodies have come in part, and leave with the next call. */
    if (ex->phase == GB_PHASE_BODY && ex->req.expect_continue && ex->req.has_content_length &&
        ex->req.content_length >= ex->server->config.takeover_bytes && gb_mhd_held(ex) == 0)
        (void)leave(loop, ex);
    return MHD_YES;
}

static enum MHD_Result body_call(struct gb_loop *loop, struct gb_exchange *ex, const char *data, size_t *size) {
    size_t taken;

    loop->progress++;
    if (ex->phase == GB_PHASE_DISCARD) {
        ex->body_received += *size;
        ex->moved_ns = gb_clock_ns();
        *size = 0;
        return MHD_YES;
    }
    if (ex->phase != GB_PHASE_BODY)
        return MHD_NO;
    if (gb_exchange_feed(ex, data, *size, &taken) < 0) {
        /* libmicrohttpd takes no answer in the middle of a body; a transfer loop can give one. */
        ex->close = true;
        return leave(loop, ex) == 0 ? MHD_YES : MHD_NO;
    }
    *size -= taken;
    if (*size > 0) {
        gb_mhd_suspend(loop, ex);
        return MHD_YES;
    }
    /* libmicrohttpd's buffer is empty now: a transfer loop receives the rest straight into place. */
    if (ex->body_received < ex->req.content_length)
        (void)leave(loop, ex);
    return MHD_YES;
}

/* The turn in which the wait began has ended. */
static enum MHD_Result look_again(struct gb_loop *loop, struct gb_exchange *ex) {
    if (loop->unsettled)
        return MHD_YES;
    ex->lingers = false;
    gb_exchange_step(ex, ex->req.resume);
    if (ex->phase != GB_PHASE_WAIT)
        return proceed(loop, ex);
    gb_mhd_suspend(loop, ex);
    return MHD_YES;
}

static enum MHD_Result last_call(struct gb_loop *loop, struct gb_exchange *ex) {
    switch (ex->phase) {
    case GB_PHASE_HEAD:
    case GB_PHASE_BODY:
        gb_exchange_step(ex, ex->req.route->handler);
        return proceed(loop, ex);
    case GB_PHASE_DISCARD:
        ex->phase = GB_PHASE_REPLY;
        return proceed(loop, ex);
    case GB_PHASE_WAIT:
        if (ex->lingers)
            return look_again(loop, ex);
        /* fall through */
    case GB_PHASE_GATHER:
        ex->info->fruitless++;
        gb_mhd_suspend(loop, ex); /* resumed for nothing */
        return MHD_YES;
    case GB_PHASE_REPLY:
        return proceed(loop, ex);
    case GB_PHASE_STREAM:
    case GB_PHASE_DONE:
        break;
    }
    return MHD_NO;
}

int gb_mhd_on_request(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                      const char *version, const char *upload_data, size_t *upload_data_size, void **con_cls) {
    struct gb_conn *c = conn_of(connection);
    struct gb_exchange *ex = *con_cls;
    struct gb_loop *loop = cls;

    if (!ex || !c || c->left)
        return MHD_NO; /* there was no memory for it, or it has left */
    if (!ex->conn) {
        take_up(loop, c, ex);
        return first_call(loop, ex, method, url, version);
    }
    if (*upload_data_size > 0)
        return body_call(loop, ex, upload_data, upload_data_size);
    /* After its 100 Continue, 0.9.75 reports a body of no bytes if a next request is in its buffer. No answer is
     * possible then; the last call follows. */
    if (upload_data)
        return MHD_YES;
    return last_call(loop, ex);
}

/* --- errors of libmicrohttpd's own -------------------------------------------------------------------------------- */

/* If 0.9.75 cannot read a Content-Length, or has no room for the cookies, it answers and continues: the head of that
 * answer is sent twice. At that time the header is complete and no callback has come, which is true of no other
 * connection. */
static bool is_failing(const struct gb_conn *c) {
    const union MHD_ConnectionInfo *header =
        c->begun ? MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE) : NULL;

    return header && header->header_size > 0;
}

static void find_reason(struct gb_exchange *ex, struct gb_error *err) {
    const char *length = MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "Content-Length");

    if (gb_mhd_read_headers(ex, NULL, err) < 0 || gb_request_check(&ex->req, &ex->server->rules, err) < 0)
        return;
    if (length && length[strspn(length, "0123456789")] != '\0')
        gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "Content-Length must be a decimal number, without blanks after it");
    else
        gb_error_set(err, GB_ERR_HEADERS_TOO_LARGE, "the header has more cookies than this daemon has room for");
}

void gb_mhd_on_error(struct gb_loop *loop) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_conn *c = loop->conns;
    struct gb_exchange *ex;

    while (c && !is_failing(c))
        c = c->next;
    if (!c)
        return;
    ex = c->begun;
    take_up(loop, c, ex);
    gb_mhd_start(ex);
    ex->close = true;
    ex->req.from = c->from;
    find_reason(ex, &err);
    gb_exchange_refused(ex, &err);
    gb_exchange_fail(ex, &err);
    if (leave(loop, ex) < 0)
        shutdown(c->fd, SHUT_RDWR);
}

/* --- outside the callbacks ---------------------------------------------------------------------------------------- */

void gb_mhd_woken(struct gb_loop *loop, struct gb_exchange *ex) {
    if (ex->req.detached) {
        gb_detached_woken(&loop->exchanges, ex);
        return;
    }
    if (!ex->suspended)
        return; /* the next callback will see it */
    if (ex->phase == GB_PHASE_WAIT) {
        gb_exchange_step(ex, ex->req.resume);
        if (ex->phase == GB_PHASE_WAIT)
            return;
    }
    if (ex->phase == GB_PHASE_GATHER && !gb_exchange_gather(ex))
        return;
    gb_mhd_resume(loop, ex);
}

void gb_mhd_timed_out(struct gb_loop *loop, struct gb_exchange *ex) {
    struct gb_error err = GB_ERROR_INIT;

    ex->req.timed_out = true;
    if (ex->phase == GB_PHASE_WAIT) {
        gb_exchange_step(ex, ex->req.resume);
    } else if (ex->phase == GB_PHASE_STREAM) {
        ex->phase = GB_PHASE_DONE; /* the next piece is refused, which breaks the reply off */
    } else {
        gb_error_set(&err, GB_ERR_TIMED_OUT, "the bytes did not come from the device in the permitted time");
        gb_http_response_done(&ex->resp); /* its headers too belong to the bytes */
        gb_exchange_fail(ex, &err);
    }
    gb_mhd_resume(loop, ex);
}

void gb_mhd_answer_early(struct gb_loop *loop, struct gb_exchange *ex) {
    ex->phase = GB_PHASE_REPLY;
    ex->close = true;
    if (leave(loop, ex) < 0)
        shutdown(ex->info->fd, SHUT_RDWR);
}

void gb_mhd_drop(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_error *err) {
    gb_http_response_done(&ex->resp); /* its headers belong to another answer */
    gb_exchange_fail(ex, err);
    gb_mhd_answer_early(loop, ex);
}

void gb_mhd_revoked(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_error *err) {
    switch (ex->phase) {
    case GB_PHASE_BODY:
        gb_mhd_drop(loop, ex, err);
        break;
    case GB_PHASE_WAIT:
    case GB_PHASE_GATHER:
        gb_http_response_done(&ex->resp);
        gb_exchange_fail(ex, err);
        gb_mhd_resume(loop, ex);
        break;
    default: /* it was refused already, or its reply is on its way */
        break;
    }
}
