#include "http/mhd/begin.h"

#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "http/exchange/client.h"
#include "http/exchange/open.h"
#include "http/exchange/peer.h"
#include "http/exchange/step.h"
#include "http/message/cors.h"
#include "http/message/request.h"
#include "http/mhd/front.h"
#include "http/mhd/loop.h"

/* Larger headers get a problem document. Beyond the connection's memory libmicrohttpd itself answers 431. */
#define HEADER_TEXT_MAX 8192

struct gather {
    struct gb_exchange *ex;
    struct gb_head *head;
    struct gb_error *err;
    size_t bytes;
};

static int malformed(struct gb_error *err) {
    return gb_error_set(
        err, GB_ERR_MALFORMED_REQUEST,
        "the header is malformed: the request line has one blank between its parts, every line ends with "
        "CR LF, and no line is folded or holds a NUL byte");
}

static enum MHD_Result take_header(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_size,
                                   const char *value, size_t value_size) {
    struct gather *g = cls;
    struct gb_http_request *req = &g->ex->req;
    struct gb_http_pair *pair = &req->header[req->headers];

    (void)kind;
    if (g->head && !gb_head_line(g->head, key, key_size, value, value_size)) {
        malformed(g->err);
        return MHD_NO;
    }
    /* Blanks after a value are no part of it, but libmicrohttpd leaves them there. */
    while (value && value_size > 0 && (value[value_size - 1] == ' ' || value[value_size - 1] == '\t'))
        value_size--;
    g->bytes += key_size + value_size + 4;
    if (req->headers == GB_HTTP_HEADERS_MAX || g->bytes > HEADER_TEXT_MAX) {
        gb_error_set(g->err, GB_ERR_HEADERS_TOO_LARGE, "more than %d header fields or %d bytes of them",
                     GB_HTTP_HEADERS_MAX, HEADER_TEXT_MAX);
        return MHD_NO;
    }
    pair->name.s = gb_text_arena_copy(&g->ex->texts, key, key_size);
    pair->name.len = key_size;
    pair->value.s = gb_text_arena_copy(&g->ex->texts, value ? value : "", value ? value_size : 0);
    pair->value.len = value ? value_size : 0;
    if (!pair->name.s || !pair->value.s) {
        gb_error_set(g->err, GB_ERR_HEADERS_TOO_LARGE, "the header is larger than this daemon reads");
        return MHD_NO;
    }
    /* A NUL inside would hide the rest from every check that follows. */
    if (strlen(pair->name.s) != key_size || strlen(pair->value.s) != pair->value.len) {
        gb_error_set(g->err, GB_ERR_MALFORMED_REQUEST, "a header holds a NUL byte");
        return MHD_NO;
    }
    if (key_size == strlen("Authorization") && strcasecmp(key, "Authorization") == 0)
        g->ex->secret = pair->value;
    req->headers++;
    return MHD_YES;
}

int gb_mhd_read_headers(struct gb_exchange *ex, struct gb_head *head, struct gb_error *err) {
    struct gather g = {.ex = ex, .head = head, .err = err};

    MHD_get_connection_values_n(ex->conn, MHD_HEADER_KIND, take_header, &g);
    return err->code == GB_OK ? 0 : -1;
}

static enum gb_http_method method_of(const char *word) {
    int i;

    for (i = 0; i < GB_HTTP_METHOD_COUNT; i++) {
        if (strcmp(word, gb_http_method_name((enum gb_http_method)i)) == 0)
            return (enum gb_http_method)i;
    }
    return GB_HTTP_METHOD_COUNT;
}

/* Nothing of the path's resource is revealed, so that no token is needed. */
static int answer_options(struct gb_exchange *ex, const char *allow, struct gb_error *err) {
    if (gb_cors_options(&ex->req, allow, &ex->resp, err) < 0)
        return -1;
    gb_exchange_answer(ex);
    return 1;
}

/* Returns 0, 1 when the request is answered already, or -1. */
static int find_route(struct gb_exchange *ex, struct gb_error *err) {
    const struct gb_http_server_config *config = &ex->server->config;
    struct gb_http_text path;
    char others[GB_ROUTER_ALLOW_SIZE];
    char allow[GB_ROUTER_ALLOW_SIZE + 16];

    others[0] = '\0';
    if (gb_request_parse_target(&ex->req, &ex->texts, &path, err) == 0 &&
        (config->aside_count == 0 ||
         gb_request_set_aside(&ex->req, &ex->texts, config->asides, config->aside_count, err) == 0) &&
        gb_router_match(&ex->server->router, &ex->req, &ex->texts, path, others, err) == 0)
        return 0;
    snprintf(allow, sizeof(allow), "%s, %s", others, gb_http_method_name(GB_HTTP_OPTIONS));
    if (others[0] && ex->req.method == GB_HTTP_OPTIONS) {
        *err = (struct gb_error)GB_ERROR_INIT;
        gb_exchange_refused(ex, err); /* it counts for its client, as what is refused does */
        return err->code == GB_OK ? answer_options(ex, allow, err) : -1;
    }
    gb_exchange_refused(ex, err);
    if (others[0] && err->code != GB_ERR_TOO_MANY_REQUESTS)
        gb_http_response_header(&ex->resp, NULL, "Allow", "%s", allow);
    return -1;
}

/* HTTP/1.0 closes unless it says otherwise. */
static bool keeps_alive(const struct gb_exchange *ex) {
    const char *connection = gb_http_header(&ex->req, "Connection");

    return connection && strcasestr(connection, "keep-alive") != NULL;
}

/* After an error the end of this request is not known: bytes that follow may be its body or another request. */
static int read_head(struct gb_exchange *ex, const char *method, const char *url, const char *version,
                     struct gb_error *err) {
    struct gb_head head;

    if (!gb_head_request_line(&head, ex, method, url, version))
        return malformed(err);
    if (gb_mhd_read_headers(ex, &head, err) < 0)
        return -1;
    if (!gb_head_end(&head, ex))
        return malformed(err);
    ex->head_at = head.at ? head.begin : NULL;
    gb_request_take_id(&ex->req);
    gb_exchange_resolve(ex);
    return gb_request_check(&ex->req, &ex->server->rules, err);
}

void gb_mhd_start(struct gb_exchange *ex) {
    gb_exchange_start(ex, &ex->info->loop->exchanges, ex->info->peer);
}

void gb_mhd_begin(struct gb_exchange *ex, const char *method, const char *url, const char *version) {
    struct gb_error err = GB_ERROR_INIT;
    int found;

    gb_mhd_start(ex);
    ex->req.method = method_of(method);
    ex->req.http10 = strcmp(version, "HTTP/1.0") == 0;
    ex->req.from = ex->info->from;
    ex->req.secure = ex->info->secure;
    ex->req.listener = ex->info->listener;
    ex->req.names = gb_front_names(ex->info);
    ex->req.certificate = gb_front_certificate(ex->info);
    ex->req.peer = ex->peer && !ex->req.http10 ? &ex->peer->seen : NULL;
    if (read_head(ex, method, url, version, &err) < 0) {
        ex->close = true;
        ex->unframed = true;
        gb_exchange_refused(ex, &err);
        gb_exchange_fail(ex, &err);
        return;
    }
    ex->close = ex->req.close || (ex->req.http10 && !keeps_alive(ex));
    found = find_route(ex, &err);
    if (found < 0)
        gb_exchange_fail(ex, &err);
    else if (found == 0)
        gb_exchange_open(ex);
}
