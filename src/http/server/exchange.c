/* One request and its answer, from the head to the last byte: the phases, the calls of handlers, sinks and sources,
 * and the pace that a client must keep. The same on HTTP loops and transfer loops; all on the thread that has the
 * exchange. */
#include "http/server/exchange.h"

#include <inttypes.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/thread.h"
#include "http/http.h"
#include "http/message/response.h"
#include "http/message/router.h"
#include "http/server/state.h"
#include "http/tls/tls.h"

/* --- reply memory ------------------------------------------------------------------------------------------------- */

/* An action is done before its reply is made, and a client that does not know would ask for it again: so only replies
 * to GET and HEAD are refused. Actions whose replies grow with the request check before they act (gb_http_reply_room).
 * Canned bodies are in memory anyway, however many connections send them. */

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

static void reply_release(struct gb_exchange *ex) {
    if (ex->charged > 0 && ex->payer)
        atomic_fetch_sub(&ex->payer->replies, ex->charged);
    if (ex->charged > 0)
        atomic_fetch_sub_explicit(&ex->server->reply_memory[ex->charged_long], ex->charged, memory_order_relaxed);
    ex->charged = 0;
}

static void refuse_saturated(struct gb_exchange *ex, size_t bytes, uint64_t used, uint64_t share) {
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
    reply_release(ex);
    gb_bound_refuse_reply(ex, share / 2, &err);
    gb_http_response_done(&ex->resp);
    gb_exchange_fail(ex, &err);
    return true;
}

/* A reply that is alone may be larger than the limit: otherwise it would never be sent. */
bool gb_reply_charge(struct gb_exchange *ex, size_t bytes) {
    bool is_long = bytes > GB_LONG_REPLY && !ex->resp.is_vital;
    struct gb_client *payer = gb_bound_payer(ex);
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
    reply_release(ex);
    refuse_saturated(ex, bytes, used, share);
    return false;
}

/* Whether the reply has Strict-Transport-Security: a browser then does not ask this host without TLS any more. */
static bool sends_hsts(const struct gb_exchange *ex) {
    return ex->server->config.hsts_s > 0 && ex->req.secure;
}

/* Once: a reply that leaves libmicrohttpd is admitted a second time. */
static void add_transport_security(struct gb_exchange *ex) {
    static const char name[] = "Strict-Transport-Security";
    unsigned i;

    if (!sends_hsts(ex))
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

/* --- exchange ----------------------------------------------------------------------------------------------------- */

struct gb_exchange *gb_exchange_of(struct gb_http_request *request) {
    return (struct gb_exchange *)request;
}

struct gb_exchange *gb_exchange_new(struct gb_http_server *server, const char *target) {
    /* Not zeroed as a whole: the arrays are large, and their counts say what is filled. */
    struct gb_exchange *ex = malloc(sizeof(*ex));

    if (!ex)
        return NULL;
    memset(&ex->req, 0, offsetof(struct gb_http_request, query));
    ex->req.queries = 0;
    memset((char *)ex + offsetof(struct gb_http_request, headers), 0,
           offsetof(struct gb_exchange, texts) - offsetof(struct gb_http_request, headers));
    gb_text_arena_init(&ex->texts, server->config.connection_memory * 2 + 1024);
    memset((char *)ex + offsetof(struct gb_exchange, texts) + sizeof(ex->texts), 0,
           offsetof(struct gb_exchange, resp) - offsetof(struct gb_exchange, texts) - sizeof(ex->texts));
    memset(&ex->resp, 0, offsetof(struct gb_http_response, text));
    memset((char *)&ex->resp + offsetof(struct gb_http_response, text_used), 0,
           sizeof(ex->resp) - offsetof(struct gb_http_response, text_used));
    memset((char *)ex + offsetof(struct gb_exchange, err), 0, sizeof(*ex) - offsetof(struct gb_exchange, err));
    atomic_init(&ex->refs, 1);
    ex->resp.status = 200;
    ex->server = server;
    ex->fd = -1;
    ex->req.app = server->config.app;
    ex->req.method = GB_HTTP_METHOD_COUNT;
    gb_mutex_init(&ex->wake_lock);
    if (!target)
        return ex;
    ex->req.target.len = strlen(target);
    ex->req.target.s = gb_text_arena_copy(&ex->texts, target, ex->req.target.len);
    if (ex->req.target.s)
        return ex;
    gb_exchange_unref(ex);
    return NULL;
}

uint64_t gb_exchange_loop_id(struct gb_exchange_loop *loop) {
    return loop->next_id++;
}

struct gb_exchange *gb_exchange_ref(struct gb_exchange *ex) {
    atomic_fetch_add_explicit(&ex->refs, 1, memory_order_relaxed);
    return ex;
}

/* What a token opens with must not lie in memory that is given to others, or dumped. */
static void wipe(struct gb_exchange *ex) {
    if (ex->secret.len > 0)
        explicit_bzero((char *)ex->secret.s, ex->secret.len);
    if (ex->secret.len > 0 && ex->raw)
        explicit_bzero(ex->raw, ex->raw_len);
}

void gb_exchange_unref(struct gb_exchange *ex) {
    if (atomic_fetch_sub_explicit(&ex->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (ex->origin)
        gb_exchange_unref(ex->origin);
    if (ex->like)
        gb_exchange_unref(ex->like);
    free(ex->spare);
    wipe(ex);
    free(ex->raw);
    pthread_mutex_destroy(&ex->wake_lock);
    gb_text_arena_done(&ex->texts);
    free(ex);
}

void gb_exchange_own(struct gb_exchange *ex, struct gb_wake_queue *owner) {
    pthread_mutex_lock(&ex->wake_lock);
    ex->owner = owner;
    pthread_mutex_unlock(&ex->wake_lock);
}

void gb_exchange_end(struct gb_exchange *ex) {
    gb_exchange_own(ex, NULL);
    if (ex->parked)
        atomic_fetch_sub(&ex->server->suspended, 1);
    ex->parked = false;
    if (ex->req.sink) {
        ex->req.sink->failed = ex->err.code;
        ex->req.sink->free(ex->req.sink);
    }
    ex->req.sink = NULL;
    gb_http_response_done(&ex->resp);
    reply_release(ex);
    gb_bound_leave(ex);
    free(ex->gathered);
    ex->gathered = NULL;
    free(ex->early);
    ex->early = NULL;
    if (ex->req.hooks_free) /* before the state, which an operation may cancel */
        ex->req.hooks_free(ex->req.hooks);
    ex->req.hooks = NULL;
    ex->req.hooks_free = NULL;
    if (ex->req.state_free)
        ex->req.state_free(ex->req.state);
    ex->req.state = NULL;
    ex->req.state_free = NULL;
    if (ex->req.certificate)
        gb_tls_certificate_unref(ex->req.certificate);
    ex->req.certificate = NULL;
    ex->req.peer = NULL;
    gb_peer_unref(ex->peer);
    ex->peer = NULL;
    ex->fd = -1;
    ex->phase = GB_PHASE_DONE;
    gb_exchange_unref(ex);
}

struct gb_http_request *gb_http_request_ref(struct gb_http_request *request) {
    gb_exchange_ref(gb_exchange_of(request));
    return request;
}

void gb_http_request_unref(struct gb_http_request *request) {
    gb_exchange_unref(gb_exchange_of(request));
}

/* --- step --------------------------------------------------------------------------------------------------------- */

void gb_exchange_fail(struct gb_exchange *ex, const struct gb_error *err) {
    const struct gb_http_server_config *config = &ex->server->config;

    ex->err = *err;
    gb_response_drop_listener(&ex->resp);
    if (config->explain)
        config->explain(config->app, &ex->req, &ex->err, &ex->resp);
    gb_bound_explain(ex);
    gb_http_problem(&ex->resp, &ex->req, &ex->err);
    ex->phase = GB_PHASE_REPLY;
}

void gb_exchange_answer(struct gb_exchange *ex) {
    gb_bound_advertise(ex);
    ex->phase = GB_PHASE_REPLY;
}

/* A small source is collected, so that libmicrohttpd can send it with keep-alive. HEAD never starts a source. */
static bool wants_gathering(const struct gb_exchange *ex) {
    return ex->resp.source && ex->req.method != GB_HTTP_HEAD && ex->resp.source_len > 0 &&
           ex->resp.source_len < ex->server->config.takeover_bytes;
}

static void apply_step(struct gb_exchange *ex, enum gb_step step, struct gb_error *err) {
    uint64_t longest;

    switch (step) {
    case GB_STEP_REPLY:
        gb_bound_advertise(ex);
        ex->phase = wants_gathering(ex) ? GB_PHASE_GATHER : GB_PHASE_REPLY;
        return;
    case GB_STEP_WAIT:
        if (ex->req.timed_out || !ex->req.resume) {
            gb_error_set(err, GB_ERR_TIMED_OUT, "the work did not finish in the permitted time");
            break;
        }
        if (ex->req.park && gb_bound_may_wait(ex, err) < 0)
            break;
        longest = gb_clock_ns() + ex->server->config.wait_max_s * GB_NS_PER_S;
        if (ex->req.deadline_ns == 0 || ex->req.deadline_ns > longest)
            ex->req.deadline_ns = longest;
        ex->phase = GB_PHASE_WAIT;
        return;
    case GB_STEP_BODY:
        if (ex->req.sink && ex->phase == GB_PHASE_HEAD) {
            ex->phase = GB_PHASE_BODY;
            return;
        }
        gb_error_set(err, GB_ERR_INTERNAL, "the handler asked for a body at the wrong time");
        break;
    case GB_STEP_ERROR:
        break;
    }
    gb_error_set(err, GB_ERR_INTERNAL, "the handler failed without an error");
    gb_exchange_fail(ex, err);
}

static enum gb_step end_sink(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    return request->sink->end(request->sink, request, response, err);
}

void gb_exchange_step(struct gb_exchange *ex, gb_http_handler *handler) {
    const struct gb_http_server_config *config = &ex->server->config;
    struct gb_error err = GB_ERROR_INIT;
    enum gb_step step;

    if (ex->req.sink && ex->phase == GB_PHASE_BODY) {
        if (ex->req.route->body == GB_BODY_JSON || ex->req.route->body == GB_BODY_LIST)
            gb_body_buffer_end(ex->req.sink, &ex->req);
        else
            handler = end_sink;
    }
    step = config->around ? config->around(handler, &ex->req, &ex->resp, &err) : handler(&ex->req, &ex->resp, &err);
    apply_step(ex, step, &err);
}

int gb_exchange_feed(struct gb_exchange *ex, const char *data, size_t n, size_t *ret_taken) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_http_sink *sink = ex->req.sink;
    size_t taken = 0;
    void *room;
    size_t size;
    int r = 1;

    while (taken < n && (r = sink->room(sink, &room, &size, &err)) > 0) {
        if (size > n - taken)
            size = n - taken;
        memcpy(room, data + taken, size);
        taken += size;
        ex->body_received += size;
        if (sink->fill(sink, size, &err) < 0) {
            r = -1;
            break;
        }
    }
    *ret_taken = taken;
    if (taken > 0)
        ex->moved_ns = gb_clock_ns();
    gb_exchange_room(ex, r != 0);
    if (r < 0) {
        gb_exchange_fail(ex, &err);
        return -1;
    }
    return 0;
}

bool gb_exchange_body_whole(const struct gb_exchange *ex) {
    if (ex->req.chunked)
        return ex->framing.state == GB_CHUNKED_DONE;
    return ex->body_received >= ex->req.content_length;
}

bool gb_exchange_gather(struct gb_exchange *ex) {
    struct gb_http_source *source = ex->resp.source;
    size_t total = (size_t)ex->resp.source_len;
    struct gb_error err = GB_ERROR_INIT;
    const void *at;
    size_t n;
    int r = 1;

    if (!ex->gathered)
        ex->gathered = malloc(total);
    if (!ex->gathered) {
        gb_error_set(&err, GB_ERR_SATURATED, "no memory for a reply of %zu bytes; try again later", total);
        r = -1;
    }
    while (r > 0 && ex->gathered_len < total && (r = source->next(source, &at, &n, &err)) > 0) {
        if (n > total - ex->gathered_len)
            n = total - ex->gathered_len;
        memcpy(ex->gathered + ex->gathered_len, at, n);
        ex->gathered_len += n;
        source->sent(source, n);
    }
    if (r == 0)
        return false;
    source->free(source, r > 0);
    ex->resp.source = NULL;
    if (r < 0) {
        gb_http_response_done(&ex->resp);
        gb_exchange_fail(ex, &err);
        return true;
    }
    gb_http_response_take(&ex->resp, ex->gathered, total);
    ex->gathered = NULL;
    ex->phase = GB_PHASE_REPLY;
    return true;
}

void gb_exchange_room(struct gb_exchange *ex, bool has_room) {
    if (has_room == (ex->blocked_ns == 0))
        return;
    if (!has_room) {
        ex->blocked_ns = gb_clock_ns();
        return;
    }
    ex->moved_ns = gb_clock_ns();
    ex->excused_ns += ex->moved_ns - ex->blocked_ns;
    ex->blocked_ns = 0;
}

static uint64_t last_moved_ns(const struct gb_exchange *ex) {
    return ex->moved_ns ? ex->moved_ns : ex->req.started_ns;
}

bool gb_exchange_stalled(const struct gb_exchange *ex, uint64_t now_ns, struct gb_error *err) {
    const struct gb_http_server_config *config = &ex->server->config;
    uint64_t patience_ns = config->stall_timeout_s * GB_NS_PER_S;
    uint64_t elapsed_ns = now_ns - ex->req.started_ns - ex->excused_ns;
    uint64_t moved_ns = last_moved_ns(ex);

    if (patience_ns == 0 || elapsed_ns < patience_ns || ex->blocked_ns != 0)
        return false;
    if (now_ns > moved_ns && now_ns - moved_ns >= patience_ns) {
        gb_error_set(err, GB_ERR_REQUEST_TIMEOUT, "no byte of the body came for %u seconds, after %llu bytes",
                     config->stall_timeout_s, (unsigned long long)ex->body_received);
        return true;
    }
    if (ex->body_received / ((double)elapsed_ns / GB_NS_PER_S) < (double)config->min_rate_bytes_s) {
        gb_error_set(err, GB_ERR_REQUEST_TIMEOUT,
                     "the body came at less than %llu bytes a second: %llu bytes in %.0f seconds",
                     (unsigned long long)config->min_rate_bytes_s, (unsigned long long)ex->body_received,
                     (double)elapsed_ns / GB_NS_PER_S);
        return true;
    }
    return false;
}

/* Most clients send a small body right behind its head. */
#define REST_NS GB_NS_PER_S

bool gb_exchange_rest_late(const struct gb_exchange *ex, uint64_t now_ns) {
    uint64_t moved_ns = last_moved_ns(ex);

    return (now_ns > moved_ns && now_ns - moved_ns >= REST_NS) || gb_exchange_stalled(ex, now_ns, NULL);
}

/* --- progress ----------------------------------------------------------------------------------------------------- */

/* Checks come each second, more often, or a moment later. */
#define LOOK_MAX_NS (2 * GB_NS_PER_S)

uint64_t gb_socket_queued(int fd) {
    int bytes = 0;

    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (uint64_t)bytes : 0;
}

void gb_socket_abandon(int fd) {
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

/* *ret: all bytes that a TCP client ever acknowledged. False: the kernel does not say. */
static bool acknowledged(int fd, int64_t *ret) {
    struct tcp_info info;
    socklen_t len = sizeof(info);

    memset(&info, 0, sizeof(info));
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
        len < offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof(info.tcpi_bytes_acked))
        return false;
    *ret = (int64_t)info.tcpi_bytes_acked;
    return true;
}

/* A number that rises by the bytes taken. It is not known how much libmicrohttpd has given to the kernel; the kernel's
 * queue alone would be the same whenever it was filled again. */
static int64_t reading(const struct gb_progress *p, int fd, bool local) {
    int64_t bytes;

    if (!p->counted && !local && acknowledged(fd, &bytes))
        return bytes;
    return (int64_t)p->out - (int64_t)gb_socket_queued(fd);
}

void gb_progress_begin(struct gb_progress *p, uint64_t now_ns) {
    *p = (struct gb_progress){.counted = true, .began_ns = now_ns, .moved_ns = now_ns, .looked_ns = now_ns};
}

/* The rest of a time without a check does not count: the loop was late, and may have given the client nothing. */
static void skip_unchecked(struct gb_progress *p, uint64_t now_ns) {
    uint64_t late_ns = now_ns - p->looked_ns;

    if (p->looked_ns == 0 || late_ns <= LOOK_MAX_NS)
        return;
    late_ns -= LOOK_MAX_NS;
    p->began_ns += late_ns;
    p->moved_ns += late_ns;
}

void gb_progress_look(struct gb_progress *p, int fd, bool local, uint64_t now_ns) {
    int64_t at = reading(p, fd, local);

    skip_unchecked(p, now_ns);
    if (!p->looked && (!p->counted || at < 0)) {
        /* Nothing is known of the time before: neither the first reading, nor how much of the queue an earlier reply
         * has left. */
        p->began_ns = p->moved_ns = now_ns;
        p->at = at;
    } else if (at > p->at) {
        p->taken += (uint64_t)(at - p->at);
        p->moved_ns = now_ns;
        p->at = at;
    } else if (!p->counted) {
        p->at = at; /* the queue was filled again: the next byte taken is progress all the same */
    }
    p->looked = true;
    p->looked_ns = now_ns;
}

void gb_progress_excuse(struct gb_progress *p, uint64_t now_ns) {
    if (p->began_ns == 0)
        return;
    p->began_ns += now_ns - p->looked_ns;
    p->moved_ns = now_ns;
    p->looked_ns = now_ns;
}

bool gb_progress_slow(const struct gb_progress *p, const struct gb_http_server_config *config, uint64_t now_ns) {
    uint64_t patience_ns = config->stall_timeout_s * GB_NS_PER_S;
    uint64_t elapsed_ns = now_ns - p->began_ns;

    if (patience_ns == 0 || p->began_ns == 0 || elapsed_ns < patience_ns)
        return false;
    return now_ns - p->moved_ns >= patience_ns ||
           (double)p->taken / ((double)elapsed_ns / GB_NS_PER_S) < (double)config->min_rate_bytes_s;
}

/* --- repeat ------------------------------------------------------------------------------------------------------- */

/* What the head says; the rest is the request's own. */
static void copy_head(struct gb_http_request *to, const struct gb_http_request *from) {
    to->method = from->method;
    to->route = from->route;
    to->target = from->target;
    to->shown = from->shown;
    memcpy(to->aside, from->aside, sizeof(to->aside));
    memcpy(to->param, from->param, sizeof(to->param));
    memcpy(to->query, from->query, from->queries * sizeof(to->query[0]));
    to->queries = from->queries;
    memcpy(to->header, from->header, from->headers * sizeof(to->header[0]));
    to->headers = from->headers;
    to->close = from->close;
    to->has_content_length = from->has_content_length;
    to->content_length = from->content_length;
    to->expect_continue = from->expect_continue;
}

struct gb_exchange *gb_exchange_repeat(struct gb_exchange *like) {
    struct gb_exchange *ex = gb_exchange_new(like->server, NULL);

    if (!ex)
        return NULL;
    copy_head(&ex->req, &like->req);
    ex->like = gb_exchange_ref(like);
    ex->loop = like->loop;
    return ex;
}

/* --- open --------------------------------------------------------------------------------------------------------- */

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
        return gb_error_memory(err, "body");
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

/* --- detached ----------------------------------------------------------------------------------------------------- */

/* What the handler waits for has not ended and the client has its answer. The exchange that has the connection stays as
 * it is; state, sink and hook continue in another one, which libmicrohttpd does not know. */

int gb_http_may_detach(struct gb_http_request *request, struct gb_error *err) {
    struct gb_exchange *ex = gb_exchange_of(request);

    if (!ex->spare)
        ex->spare = calloc(1, sizeof(*ex));
    return ex->spare ? 0 : gb_error_memory(err, "request");
}

struct gb_http_request *gb_http_detach(struct gb_http_request *request) {
    struct gb_exchange *ex = gb_exchange_of(request);
    struct gb_exchange *bg = ex->spare;

    ex->spare = NULL;
    bg->req = ex->req;
    bg->req.detached = true;
    bg->req.names = NULL; /* the connection's */
    bg->req.deadline_ns = 0;
    bg->req.timed_out = false;
    bg->server = ex->server;
    bg->peer = gb_peer_ref(ex->peer);
    bg->loop = ex->loop;
    bg->fd = -1;
    bg->phase = GB_PHASE_WAIT;
    bg->resp.status = 200;
    atomic_init(&bg->refs, 1);
    gb_mutex_init(&bg->wake_lock);
    bg->origin = gb_exchange_ref(ex);
    bg->owner = &ex->loop->wake_queue;
    ex->req.state = NULL;
    ex->req.state_free = NULL;
    ex->req.hooks = NULL;
    ex->req.hooks_free = NULL;
    ex->req.certificate = NULL; /* its reference goes along */
    ex->req.cancel = NULL;
    ex->req.sink = NULL;
    atomic_fetch_add_explicit(&ex->loop->active, 1, memory_order_relaxed);
    pthread_mutex_lock(&ex->wake_lock);
    ex->forward = gb_exchange_ref(bg);
    pthread_mutex_unlock(&ex->wake_lock);
    /* The wake may have come in between. */
    gb_http_wake(&bg->req);
    return &bg->req;
}

static void finish(struct gb_exchange_loop *loop, struct gb_exchange *bg) {
    struct gb_exchange *forward;

    if (bg->listed) {
        bg->listed = false;
        if (bg->prev)
            bg->prev->next = bg->next;
        else
            loop->detached = bg->next;
        if (bg->next)
            bg->next->prev = bg->prev;
    }
    pthread_mutex_lock(&bg->origin->wake_lock);
    forward = bg->origin->forward;
    bg->origin->forward = NULL;
    pthread_mutex_unlock(&bg->origin->wake_lock);
    if (forward)
        gb_exchange_unref(forward);
    gb_exchange_end(bg);
    atomic_fetch_sub_explicit(&loop->active, 1, memory_order_release);
}

void gb_detached_woken(struct gb_exchange_loop *loop, struct gb_exchange *bg) {
    if (bg->phase != GB_PHASE_WAIT)
        return;
    if (!bg->listed) {
        bg->listed = true;
        bg->prev = NULL;
        bg->next = loop->detached;
        if (bg->next)
            bg->next->prev = bg;
        loop->detached = bg;
    }
    gb_exchange_step(bg, bg->req.resume);
    if (bg->phase != GB_PHASE_WAIT)
        finish(loop, bg);
}

void gb_detached_stop(struct gb_exchange_loop *loop) {
    struct gb_exchange *bg;

    while ((bg = loop->detached)) {
        bg->req.timed_out = true;
        gb_exchange_step(bg, bg->req.resume);
        finish(loop, bg);
    }
}

void gb_detached_done(struct gb_exchange_loop *loop) {
    struct gb_exchange *bg;

    while ((bg = gb_wake_queue_take(&loop->wake_queue))) {
        if (bg->req.detached && bg->phase == GB_PHASE_WAIT)
            finish(loop, bg);
        gb_exchange_unref(bg);
    }
    while ((bg = loop->detached))
        finish(loop, bg);
}

/* --- handoff ------------------------------------------------------------------------------------------------------ */

void gb_handoff_end(struct gb_conn_slots *slots, const struct gb_handoff *handoff) {
    gb_peer_end(handoff->peer);
    if (handoff->tls)
        gb_tls_end(handoff->tls);
    gb_tls_free(handoff->tls);
    if (handoff->fd >= 0)
        close(handoff->fd);
    gb_conn_slot_end(slots, handoff->source);
}
