/* An action is done before its reply is made, and a client that does not know would ask for it again: so only replies
 * to GET and HEAD are refused. Actions whose replies grow with the request check before they act (gb_http_reply_room).
 * Canned bodies are in memory anyway, however many connections send them. */
#include "http/exchange/reply_memory.h"

#include <inttypes.h>
#include <stdlib.h>

#include "http/exchange/client.h"
#include "http/exchange/server_state.h"
#include "http/exchange/step.h"
#include "http/message/canned.h"

/* The reply to a poll costs no more than its connection, and is not counted. */
#define SMALL 4096

size_t gb_reply_bytes(const struct gb_exchange *ex) {
    const struct gb_http_response *resp = &ex->resp;
    size_t n;

    if (ex->req.method == GB_HTTP_HEAD)
        return 0;
    if (!resp->canned)
        return resp->body_len;
    n = resp->canned->body_len;
    /* If it is not long, it does not matter whether it will be a 304, and finding out takes time. */
    return n > GB_LONG_REPLY && gb_http_canned_known(resp->canned, &ex->req) ? 0 : n;
}

/* Long lists that clients do not read must not block the metrics: a quarter is for the metrics, and for replies no
 * longer than a socket takes. */
static uint64_t share_of(const struct gb_http_server *server, bool is_long) {
    uint64_t max = server->config.reply_memory_max;

    return is_long ? max - max / 4 : max / 4;
}

/* Of a share, for the UNIX sockets: clients of other machines that do not read cannot fill it. */
static uint64_t kept_of(const struct gb_exchange *ex, bool is_long) {
    return ex->req.local || !gb_server_is_local(ex->server) ? 0 : share_of(ex->server, is_long) / 16;
}

static void refuse(struct gb_exchange *ex, size_t bytes, uint64_t used, uint64_t share) {
    struct gb_error err = GB_ERROR_INIT;

    atomic_fetch_add_explicit(&ex->server->replies_refused, 1, memory_order_relaxed);
    gb_error_set(&err, GB_ERR_SATURATED,
                 "a reply of %zu bytes does not fit beside %" PRIu64
                 " bytes of replies that their clients have not read; such replies "
                 "may have %" PRIu64 " (of --max-reply-memory): try again, or ask for less",
                 bytes, used, share);
    gb_http_response_done(&ex->resp);
    gb_exchange_fail(ex, &err);
}

/* One client may have half of a share, unless it has all that is used. */
static bool refuse_greedy(struct gb_exchange *ex, size_t bytes, uint64_t used, uint64_t own, uint64_t share) {
    struct gb_error err = GB_ERROR_INIT;

    if (used <= own || own + bytes <= share / 2)
        return false;
    atomic_fetch_add_explicit(&ex->server->replies_refused, 1, memory_order_relaxed);
    gb_reply_release(ex);
    gb_exchange_refuse_reply(ex, share / 2, &err);
    gb_http_response_done(&ex->resp);
    gb_exchange_fail(ex, &err);
    return true;
}

/* A reply that is alone may be larger than the limit: otherwise it would never be sent. */
bool gb_reply_charge(struct gb_exchange *ex, size_t bytes) {
    bool is_long = bytes > GB_LONG_REPLY && !ex->resp.is_vital;
    struct gb_client *payer = gb_exchange_payer(ex);
    uint64_t own = payer ? atomic_fetch_add(&payer->replies, bytes) : 0;
    uint64_t used = atomic_fetch_add_explicit(&ex->server->reply_memory[is_long], bytes, memory_order_relaxed);
    uint64_t share = share_of(ex->server, is_long) - kept_of(ex, is_long);

    ex->charged = bytes;
    ex->charged_long = is_long;
    if (share == 0 || used == 0 || !gb_http_is_safe(ex->req.method))
        return true;
    if (payer && refuse_greedy(ex, bytes, used, own, share))
        return false;
    if (used + bytes <= share)
        return true;
    gb_reply_release(ex);
    refuse(ex, bytes, used, share);
    return false;
}

void gb_reply_release(struct gb_exchange *ex) {
    if (ex->charged > 0 && ex->payer)
        atomic_fetch_sub(&ex->payer->replies, ex->charged);
    if (ex->charged > 0)
        atomic_fetch_sub_explicit(&ex->server->reply_memory[ex->charged_long], ex->charged, memory_order_relaxed);
    ex->charged = 0;
}

/* Whether the reply has Strict-Transport-Security: a browser then does not ask this host without TLS any more. */
static bool pledges(const struct gb_exchange *ex) {
    return ex->server->config.hsts_s > 0 && ex->req.secure;
}

/* Once: a reply that leaves libmicrohttpd is settled again. */
static void add_transport_security(struct gb_exchange *ex) {
    static const char name[] = "Strict-Transport-Security";
    unsigned i;

    if (!pledges(ex))
        return;
    for (i = 0; i < ex->resp.headers; i++) {
        if (ex->resp.header[i].name == name)
            return;
    }
    gb_http_response_header(&ex->resp, NULL, name, "max-age=%llu", (unsigned long long)ex->server->config.hsts_s);
}

void gb_reply_admit(struct gb_exchange *ex) {
    struct gb_http_response *resp = &ex->resp;

    add_transport_security(ex);
    if (resp->body_len <= SMALL || ex->charged > 0 || resp->listener)
        return;
    if (ex->req.method != GB_HTTP_HEAD) {
        gb_reply_charge(ex, resp->body_len);
        return;
    }
    /* Only its length is sent. */
    resp->unsent_len = resp->body_len;
    gb_http_response_take(resp, NULL, 0);
}

int gb_http_reply_room(const struct gb_http_request *request, struct gb_error *err) {
    struct gb_http_server *server = ((const struct gb_exchange *)request)->server;
    uint64_t share = share_of(server, true);
    uint64_t used = atomic_load_explicit(&server->reply_memory[1], memory_order_relaxed);

    if (share == 0 || used < share)
        return 0;
    atomic_fetch_add_explicit(&server->replies_refused, 1, memory_order_relaxed);
    return gb_error_set(err, GB_ERR_SATURATED,
                        "replies that their clients have not read fill the %" PRIu64
                        " bytes that long ones may have (of "
                        "--max-reply-memory); nothing was done: try again",
                        share);
}
