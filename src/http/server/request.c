/* A request while libmicrohttpd has its connection: the access handler as a state machine over the exchange's phase,
 * from the check of the head over the body and the wait to the reply. A connection that is better served without
 * libmicrohttpd leaves it (detach.c). libmicrohttpd and the event loop call this. All on the loop's thread. */
#include "http/server/request.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/map.h"
#include "http/message/fields.h"
#include "http/message/request.h"
#include "http/message/response.h"
#include "http/server/detach.h"
#include "http/server/exchange.h"
#include "http/server/loop.h"
#include "http/server/state.h"
#include "http/server/tls_front.h"

#define GB_MHD_STREAM_BYTES (256u << 10) /* that libmicrohttpd allocates for a source */

/* --- head --------------------------------------------------------------------------------------------------------- */

/* libmicrohttpd 0.9.75 reads leniently: a folded line goes to the end of the field's name, a NUL byte ends a name, a
 * value or a line, a bare LF ends a line. A proxy in front may read the same bytes otherwise, and then the two disagree
 * on the end of the request. In libmicrohttpd's buffer the lines follow each other, with two NULs in place of CR LF, so
 * that anything else leaves a gap.
 *
 * Bytes that libmicrohttpd makes NULs as well leave no gap: a NUL in the place of a line end's CR; behind the last
 * field, the colon of a field without a name, which libmicrohttpd takes for the empty line. No proxy forwards such
 * bytes: each writes its own line ends. */

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* The colon has become a NUL. */
static bool head_line(struct gb_head *head, const char *name, size_t name_len, const char *value, size_t value_len) {
    const char *blank = name + name_len + 1;

    /* Later releases refuse such headers themselves, and have another layout. */
    if (!head->at)
        return true;
    if (name != head->at || !value || value < blank)
        return false;
    while (blank < value && is_blank(*blank))
        blank++;
    head->at = value + value_len + 2;
    return blank == value;
}

/* "GET /x HTTP/1.1": the blanks have become NULs. */
bool gb_head_request_line(struct gb_head *head, const struct gb_exchange *ex, const char *method, const char *url,
                          const char *version) {
    const struct gb_http_text *target = &ex->req.target; /* as received: the query has been cut from url */
    const char *at;

    *head = (struct gb_head){.begin = method, .at = NULL};
    if (!ex->info->loop->reads_leniently)
        return true;
    for (at = method; gb_field_is_token((unsigned char)*at); at++)
        ;
    head->at = version + strlen(version) + 2;
    return *at == '\0' && url == at + 1 && version == url + target->len + 1 && !memchr(target->s, ' ', target->len);
}

bool gb_head_end(const struct gb_head *head, const struct gb_exchange *ex) {
    const union MHD_ConnectionInfo *header = MHD_get_connection_info(ex->conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

    if (!head->at)
        return true;
    /* A byte behind a NUL in the last value would lie there. */
    return header && head->at + 2 == head->begin + header->header_size && memcmp(head->at - 2, "\0\0\0", 4) == 0;
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

/* Puts back what libmicrohttpd made NULs of; the whole was checked when it was read. */
struct restore {
    const char *begin;
    char *raw;
};

static void end_line(const struct restore *r, const char *end) {
    memcpy(r->raw + (end - r->begin), "\r\n", 2);
}

static enum MHD_Result restore_line(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_size,
                                    const char *value, size_t value_size) {
    const struct restore *r = cls;

    (void)kind;
    r->raw[key + key_size - r->begin] = ':';
    end_line(r, value + value_size);
    return MHD_YES;
}

static void restore_request_line(const struct restore *r, const struct gb_http_text *target) {
    size_t method_len = strlen(r->begin);
    size_t version_at = method_len + target->len + 2;

    r->raw[method_len] = ' ';
    memcpy(r->raw + method_len + 1, target->s, target->len); /* the query was cut there */
    r->raw[version_at - 1] = ' ';
    end_line(r, r->begin + version_at + strlen("HTTP/1.1"));
}

void gb_head_keep(struct gb_exchange *ex) {
    const union MHD_ConnectionInfo *header = MHD_get_connection_info(ex->conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    struct restore r = {.begin = ex->head_at};

    if (!r.begin || !header || ex->req.http10 || ex->raw)
        return;
    r.raw = malloc(header->header_size);
    if (!r.raw)
        return;
    memcpy(r.raw, r.begin, header->header_size);
    restore_request_line(&r, &ex->req.target);
    MHD_get_connection_values_n(ex->conn, MHD_HEADER_KIND, restore_line, &r);
    end_line(&r, r.begin + header->header_size - 2);
    ex->raw = r.raw;
    ex->raw_len = header->header_size;
}

/* --- begin -------------------------------------------------------------------------------------------------------- */

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
    if (g->head && !head_line(g->head, key, key_size, value, value_size)) {
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
        gb_bound_refused(ex, err); /* it counts for its client, as what is refused does */
        return err->code == GB_OK ? answer_options(ex, allow, err) : -1;
    }
    gb_bound_refused(ex, err);
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
    gb_bound_resolve(ex);
    return gb_request_check(&ex->req, &ex->server->rules, err);
}

/* What `begin` and `gb_mhd_on_error` share: it needs no head. */
static void start(struct gb_exchange *ex) {
    gb_exchange_start(ex, &ex->info->loop->exchanges, ex->info->peer);
}

/* Afterwards the phase is HEAD, BODY or REPLY. */
static void begin(struct gb_exchange *ex, const char *method, const char *url, const char *version) {
    struct gb_error err = GB_ERROR_INIT;
    int found;

    start(ex);
    ex->req.method = method_of(method);
    ex->req.http10 = strcmp(version, "HTTP/1.0") == 0;
    ex->req.from = ex->info->from;
    ex->req.secure = ex->info->secure;
    ex->req.listener = ex->info->listener;
    if (ex->info->front) {
        ex->req.names = gb_front_names(ex->info);
        ex->req.certificate = gb_front_certificate(ex->info);
    }
    ex->req.peer = ex->peer && !ex->req.http10 ? &ex->peer->seen : NULL;
    if (read_head(ex, method, url, version, &err) < 0) {
        ex->close = true;
        ex->unframed = true;
        gb_bound_refused(ex, &err);
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

/* --- suspend ------------------------------------------------------------------------------------------------------ */

static void list(struct gb_loop *loop, struct gb_exchange *ex) {
    if (ex->listed)
        return;
    ex->listed = true;
    ex->prev = NULL;
    ex->next = loop->waiting;
    if (ex->next)
        ex->next->prev = ex;
    loop->waiting = ex;
}

/* It leaves, or ends, while it waits. */
static void unlist(struct gb_loop *loop, struct gb_exchange *ex) {
    if (!ex->listed)
        return;
    ex->listed = false;
    if (ex->prev)
        ex->prev->next = ex->next;
    else
        loop->waiting = ex->next;
    if (ex->next)
        ex->next->prev = ex->prev;
}

/* Suspends the connection and lists the request. */
static void suspend(struct gb_loop *loop, struct gb_exchange *ex) {
    if (ex->suspended)
        return;
    ex->suspended = true;
    atomic_fetch_add(&loop->server->suspended, 1);
    list(loop, ex);
    MHD_suspend_connection(ex->conn);
}

static void resume(struct gb_loop *loop, struct gb_exchange *ex) {
    unlist(loop, ex);
    loop->progress++;
    if (!ex->suspended)
        return;
    ex->suspended = false;
    atomic_fetch_sub(&loop->server->suspended, 1);
    MHD_resume_connection(ex->conn);
    loop->resumed = true;
}

/* --- stream ------------------------------------------------------------------------------------------------------- */

/* Where libmicrohttpd may hold bytes of a next request, and the connection must not end for that,
 * long answers go its way. It costs a copy. */

/* Over a UNIX socket the kernel reports whole pieces, and a client that takes one in --stall-timeout must be seen
 * moving. With the defaults a piece is half of what --min-rate asks for in that time. */
#define PIECE (16u << 10)

static ssize_t next_piece(void *cls, uint64_t pos, char *buf, size_t max) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_exchange *ex = cls;
    struct gb_http_source *source = ex->resp.source;
    const void *at;
    size_t n;
    int r = -1;

    if (ex->phase == GB_PHASE_STREAM && source)
        r = source->next(source, &at, &n, &err);
    /* The length is announced, so that only the end of the connection shows the client the failure. */
    if (r < 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (r == 0) {
        suspend(ex->info->loop, ex);
        return 0;
    }
    if (n > max)
        n = max;
    memcpy(buf, at, n);
    source->sent(source, n);
    ex->info->replied_ns = ex->info->loop->now_ns;
    ex->info->loop->progress++;
    ex->info->progress.out = pos;
    if (pos + n == ex->resp.source_len) {
        source->free(source, true);
        ex->resp.source = NULL;
    }
    return (ssize_t)n;
}

/* A source's bytes, in phase STREAM; ex outlives the response's use. NULL if memory is exhausted. */
static struct MHD_Response *stream_of_source(struct gb_exchange *ex) {
    gb_progress_begin(&ex->info->progress, ex->info->loop->now_ns);
    return MHD_create_response_from_callback(ex->resp.source_len, GB_MHD_STREAM_BYTES, next_piece, ex, NULL);
}

static ssize_t next_of_memory(void *cls, uint64_t pos, char *buf, size_t max) {
    struct gb_exchange *ex = cls;
    size_t left = ex->long_len - (size_t)pos;
    size_t n = left < max ? left : max;

    if (!ex->info)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    memcpy(buf, ex->long_body + pos, n);
    ex->info->loop->progress++;
    ex->info->progress.out = pos; /* the piece before has gone to the kernel */
    return (ssize_t)n;
}

/* The same for a long body in memory, in pieces that show how far it has come. */
static struct MHD_Response *stream_of_memory(struct gb_exchange *ex, const char *body, size_t n) {
    ex->long_body = body;
    ex->long_len = n;
    gb_progress_begin(&ex->info->progress, ex->info->loop->now_ns);
    return MHD_create_response_from_callback(n, PIECE, next_of_memory, ex, NULL);
}

/* --- reply -------------------------------------------------------------------------------------------------------- */

/* Never called: stands for the body that a reply to HEAD, or a 304, describes but does not send. */
static ssize_t no_body(void *cls, uint64_t pos, char *buf, size_t max) {
    (void)cls;
    (void)pos;
    (void)buf;
    (void)max;
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

/* The exchange's reference keeps the body until libmicrohttpd has sent it. */
static struct MHD_Response *make_canned(struct gb_exchange *ex) {
    size_t whole = ex->resp.canned->body_len;
    const char *body;
    size_t n;

    gb_response_unpack(&ex->resp, &ex->req, &body, &n);
    if (ex->resp.status == 304)
        return MHD_create_response_from_callback(whole, 1024, no_body, NULL, NULL);
    return MHD_create_response_from_buffer(n, (void *)(uintptr_t)body, MHD_RESPMEM_PERSISTENT);
}

static struct MHD_Response *make_response(struct gb_exchange *ex) {
    struct gb_http_response *resp = &ex->resp;
    struct MHD_Response *r;
    const char *body = resp->body;
    size_t n = resp->body_len;

    if (ex->phase == GB_PHASE_STREAM)
        return stream_of_source(ex);
    if (resp->source)
        return MHD_create_response_from_callback(resp->source_len, 1024, no_body, NULL, NULL);
    if (resp->unsent_len > 0)
        return MHD_create_response_from_callback(resp->unsent_len, 1024, no_body, NULL, NULL);
    if (gb_reply_bytes(ex) > GB_LONG_REPLY) {
        if (resp->canned)
            gb_response_unpack(&ex->resp, &ex->req, &body, &n);
        return stream_of_memory(ex, body, n);
    }
    if (resp->canned)
        return make_canned(ex);
    r = MHD_create_response_from_buffer(resp->body_len, resp->body, MHD_RESPMEM_MUST_FREE);
    if (r)
        resp->body = NULL;
    return r;
}

/* Adds the fields that every reply to a request that reads has. */
static bool add_every(struct MHD_Response *response) {
#define ADD(name, value) &&MHD_add_response_header(response, name, value) == MHD_YES
    return true GB_EVERY_REPLY(ADD);
#undef ADD
}

/* Queues the reply that is in ex. Returns 0, or -1 if memory is exhausted. */
static int queue_reply(struct gb_exchange *ex) {
    struct MHD_Response *r = make_response(ex);
    struct gb_cors_field cors[GB_CORS_FIELDS];
    enum MHD_Result ok;
    unsigned cors_count;
    unsigned i;

    if (!r)
        return -1;
    /* Each field costs libmicrohttpd three allocations. */
    ok = !gb_reply_is_read(&ex->req) || add_every(r) ? MHD_YES : MHD_NO;
    if (ok == MHD_YES && gb_reply_is_asked_for_each_time(&ex->req, &ex->resp))
        ok = MHD_add_response_header(r, GB_REPLY_CACHING_NAME, GB_REPLY_CACHING);
    if (ok == MHD_YES)
        ok = MHD_add_response_header(r, GB_REPLY_ID, ex->req.id);
    for (i = 0, cors_count = gb_cors_fields(&ex->req, cors); i < cors_count && ok == MHD_YES; i++)
        ok = MHD_add_response_header(r, cors[i].name, cors[i].value);
    for (i = 0; i < ex->resp.headers && ok == MHD_YES; i++)
        ok = MHD_add_response_header(r, ex->resp.header[i].name, ex->resp.header[i].value);
    if (ok == MHD_YES && (ex->close || atomic_load(&ex->server->draining)))
        ok = MHD_add_response_header(r, "Connection", "close");
    if (ok == MHD_YES)
        ok = MHD_queue_response(ex->conn, (unsigned)ex->resp.status, r);
    MHD_destroy_response(r);
    return ok == MHD_YES ? 0 : -1;
}

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

    unlist(loop, ex);
    expect_more(ex);
    if ((ex->resp.listener ? gb_detach_to_feed(loop, ex) : gb_detach_to_transfer(loop, ex)) < 0)
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

void gb_mhd_request_finished(struct gb_exchange *ex) {
    struct gb_conn *c = ex->info;

    if (c) {
        struct gb_loop *loop = c->loop;
        const union MHD_ConnectionInfo *header =
            MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

        /* It may end while it waits: libmicrohttpd timed it out. */
        unlist(loop, ex);
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
    return queue_reply(ex) == 0 ? MHD_YES : MHD_NO;
}

/* What a handler began is most often done when the turn ends. So libmicrohttpd keeps the connection for one turn more,
 * and calls again in the next: suspending and resuming it would cost four system calls. Each resume makes it walk all
 * suspended connections besides. */
static void wait(struct gb_loop *loop, struct gb_exchange *ex) {
    if (ex->req.park && !ex->suspended && gb_mhd_held(ex) == 0 && park(loop, ex) == 0)
        return;
    if (ex->req.park || !loop->server->config.end_turn) {
        suspend(loop, ex);
        return;
    }
    ex->lingers = true;
    loop->progress++;
}

/* Acts on the phase after a step; inside a callback. */
static enum MHD_Result proceed(struct gb_loop *loop, struct gb_exchange *ex) {
    if (ex->phase == GB_PHASE_GATHER && !gb_exchange_gather(ex)) {
        suspend(loop, ex);
        return MHD_YES;
    }
    if (ex->phase == GB_PHASE_WAIT) {
        wait(loop, ex);
        return MHD_YES;
    }
    return send_reply(loop, ex);
}

/* A refusal at the headers. Its way depends on how much of the body may already be on its way. */
static enum MHD_Result reply_refusal(struct gb_loop *loop, struct gb_exchange *ex) {
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
static void attach_request(struct gb_loop *loop, struct gb_conn *c, struct gb_exchange *ex) {
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

    if (gb_handover_begin(loop, ex) == 0)
        return MHD_YES;
    gb_error_set(&err, GB_ERR_SATURATED, "no file descriptor is free to receive the body with; try again");
    ex->close = true;
    gb_exchange_fail(ex, &err);
    return send_reply(loop, ex);
}

static enum MHD_Result first_call(struct gb_loop *loop, struct gb_exchange *ex, const char *method, const char *url,
                                  const char *version) {
    begin(ex, method, url, version);
    if (ex->phase == GB_PHASE_REPLY || ex->phase == GB_PHASE_GATHER)
        return reply_refusal(loop, ex);
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
        suspend(loop, ex);
        return MHD_YES;
    }
    /* libmicrohttpd's buffer is empty now: a transfer loop receives the rest straight into place. */
    if (ex->body_received < ex->req.content_length)
        (void)leave(loop, ex);
    return MHD_YES;
}

/* The turn in which the wait began has ended. */
static enum MHD_Result look_again(struct gb_loop *loop, struct gb_exchange *ex) {
    if (loop->commit_pending)
        return MHD_YES;
    ex->lingers = false;
    gb_exchange_step(ex, ex->req.resume);
    if (ex->phase != GB_PHASE_WAIT)
        return proceed(loop, ex);
    suspend(loop, ex);
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
        suspend(loop, ex); /* resumed for nothing */
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
        attach_request(loop, c, ex);
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
    attach_request(loop, c, ex);
    start(ex);
    ex->close = true;
    ex->req.from = c->from;
    find_reason(ex, &err);
    gb_bound_refused(ex, &err);
    gb_exchange_fail(ex, &err);
    if (leave(loop, ex) < 0)
        shutdown(c->fd, SHUT_RDWR);
}

/* --- outside the callbacks ---------------------------------------------------------------------------------------- */

void gb_mhd_request_woken(struct gb_loop *loop, struct gb_exchange *ex) {
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
    resume(loop, ex);
}

void gb_mhd_request_timed_out(struct gb_loop *loop, struct gb_exchange *ex) {
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
    resume(loop, ex);
}

void gb_mhd_request_answer_early(struct gb_loop *loop, struct gb_exchange *ex) {
    ex->phase = GB_PHASE_REPLY;
    ex->close = true;
    if (leave(loop, ex) < 0)
        shutdown(ex->info->fd, SHUT_RDWR);
}

void gb_mhd_request_drop(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_error *err) {
    gb_http_response_done(&ex->resp); /* its headers belong to another answer */
    gb_exchange_fail(ex, err);
    gb_mhd_request_answer_early(loop, ex);
}

void gb_mhd_request_revoked(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_error *err) {
    switch (ex->phase) {
    case GB_PHASE_BODY:
        gb_mhd_request_drop(loop, ex, err);
        break;
    case GB_PHASE_WAIT:
    case GB_PHASE_GATHER:
        gb_http_response_done(&ex->resp);
        gb_exchange_fail(ex, err);
        resume(loop, ex);
        break;
    default: /* it was refused already, or its reply is on its way */
        break;
    }
}
