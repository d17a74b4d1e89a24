#include "http/exchange/open.h"

#include "base/clock.h"
#include "base/encoding.h"
#include "http/exchange/peer.h"
#include "http/exchange/server_state.h"
#include "http/exchange/step.h"
#include "http/message/body_buffer.h"
#include "http/message/router.h"

void gb_exchange_start(struct gb_exchange *ex, struct gb_exchange_loop *loop, struct gb_peer *peer) {
    ex->req.started_ns = gb_clock_ns();
    ex->req.local = peer != NULL;
    ex->peer = gb_peer_ref(peer);
    ex->phase = GB_PHASE_HEAD;
    *gb_digits_hex(ex->req.id, gb_exchange_loop_id(loop), 16) = '\0';
}

static int permit(struct gb_exchange *ex, struct gb_error *err) {
    const struct gb_http_server_config *config = &ex->server->config;

    ex->checked = atomic_load(&ex->server->rechecks);
    if (config->authorize && config->authorize(config->app, &ex->req, err) < 0)
        return -1;
    return gb_router_check_query(&ex->req, err);
}

static int collect(struct gb_exchange *ex, size_t max, struct gb_error *err) {
    if (ex->req.content_length > max)
        return gb_error_set(err, GB_ERR_BODY_TOO_LARGE, "a JSON body of %llu bytes; at most %zu are permitted",
                            (unsigned long long)ex->req.content_length, max);
    ex->req.sink = gb_body_buffer_new(max);
    if (!ex->req.sink)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the body; try again later");
    ex->phase = GB_PHASE_BODY;
    return 0;
}

static int check_body(struct gb_exchange *ex, struct gb_error *err) {
    const struct gb_http_server_config *config = &ex->server->config;

    switch (ex->req.route->body) {
    case GB_BODY_NONE:
        if (ex->req.chunked || ex->req.content_length > 0)
            return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "%s on this path takes no body",
                                gb_http_method_name(ex->req.method));
        return 0;
    case GB_BODY_JSON:
        return collect(ex, config->json_max, err);
    case GB_BODY_LIST:
        return collect(ex, config->json_list_max, err);
    case GB_BODY_STREAM:
        if (ex->req.chunked || ex->req.has_content_length)
            return 0;
        /* A request without a body may begin a resumable upload; elsewhere it is a mistake. */
        if (!gb_http_header(&ex->req, "Upload-Complete"))
            return gb_error_set(err, GB_ERR_LENGTH_REQUIRED, "send Content-Length or Transfer-Encoding: chunked");
        ex->req.has_content_length = true;
        return 0;
    }
    return 0;
}

void gb_exchange_open(struct gb_exchange *ex) {
    struct gb_error err = GB_ERROR_INIT;

    /* What can never be permitted on this connection may be on another one. */
    if (ex->req.certificate && gb_http_certificate_check(ex->req.certificate, NULL) < 0)
        ex->close = true;
    if (permit(ex, &err) < 0 || check_body(ex, &err) < 0)
        gb_exchange_fail(ex, &err);
    else if (ex->req.route->body == GB_BODY_STREAM)
        gb_exchange_step(ex, ex->req.route->handler);
}
