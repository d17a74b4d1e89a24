/* The memory of replies that wait for their clients, all together.
 *
 * An action has happened when its reply is there, and a client that is not told would ask for it again: only the reply to GET
 * or HEAD is refused. Actions whose replies grow with what they are asked to do look before they do it (gb_http_reply_room).
 * Canned bodies are there anyway, however many connections send them. */
#include <inttypes.h>
#include <stdlib.h>

#include "http/exchange.h"
#include "http/server.h"

/* What a poll reads costs no more than the connection that it comes over, and is not counted. */
#define SMALL 4096

size_t gb_reply_bytes(const struct gb_exchange *ex) {
    const struct gb_http_response *resp = &ex->resp;

    if (ex->req.method == GB_HTTP_HEAD)
        return 0;
    if (!resp->canned)
        return resp->body_len;
    return gb_http_canned_known(resp->canned, &ex->req) ? 0 : gb_canned_len(resp->canned);
}

static bool is_safe(const struct gb_exchange *ex) {
    return ex->req.method == GB_HTTP_GET || ex->req.method == GB_HTTP_HEAD;
}

static void refuse(struct gb_exchange *ex, uint64_t bytes, uint64_t used) {
    struct gb_http_server *server = ex->server;
    struct gb_error err = GB_ERROR_INIT;

    atomic_fetch_add_explicit(&server->replies_refused, 1, memory_order_relaxed);
    gb_error_set(&err, GB_ERR_SATURATED,
                 "a reply of %" PRIu64 " bytes does not fit beside %" PRIu64
                 " bytes of replies that their clients have not read: "
                 "%" PRIu64 " are permitted in all (--max-reply-memory); try again, or ask for less",
                 bytes, used, server->config.reply_memory_max);
    gb_http_response_done(&ex->resp);
    gb_exchange_fail(ex, &err);
}

/* The one that is alone may be larger than the limit: it would never be sent. */
bool gb_reply_charge(struct gb_exchange *ex, size_t bytes) {
    struct gb_http_server *server = ex->server;
    uint64_t used = atomic_fetch_add_explicit(&server->reply_memory, bytes, memory_order_relaxed);
    uint64_t max = server->config.reply_memory_max;

    ex->charged = bytes;
    if (max == 0 || used == 0 || used + bytes <= max || !is_safe(ex))
        return true;
    ex->charged = 0;
    atomic_fetch_sub_explicit(&server->reply_memory, bytes, memory_order_relaxed);
    refuse(ex, bytes, used);
    return false;
}

void gb_reply_admit(struct gb_exchange *ex) {
    struct gb_http_response *resp = &ex->resp;

    if (resp->body_len <= SMALL || ex->charged > 0 || resp->listener)
        return;
    if (ex->req.method != GB_HTTP_HEAD) {
        gb_reply_charge(ex, resp->body_len);
        return;
    }
    /* Its length is all that is sent. */
    resp->unsent_len = resp->body_len;
    gb_http_response_take(resp, NULL, 0);
}

int gb_http_reply_room(const struct gb_http_request *request, struct gb_error *err) {
    struct gb_http_server *server = gb_http_server_of(request);
    uint64_t max = server->config.reply_memory_max;
    uint64_t used = atomic_load_explicit(&server->reply_memory, memory_order_relaxed);

    if (max == 0 || used < max)
        return 0;
    atomic_fetch_add_explicit(&server->replies_refused, 1, memory_order_relaxed);
    return gb_error_set(err, GB_ERR_SATURATED,
                        "replies that their clients have not read fill %" PRIu64 " bytes, and %" PRIu64
                        " are permitted (--max-reply-memory); nothing was done: try again",
                        used, max);
}
