#include "http_fixture.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"

/* --- the application ---------------------------------------------------------------------------------------------- */

struct sink {
    struct gb_http_sink sink;
    struct gb_http_fixture *f;
    struct gb_http_request *request; /* a reference, for slow sinks */
    size_t used;
    bool slow;
    bool full;   /* there is never room */
    char *waste; /* takes every byte of a body that is dropped; NULL: the bytes go to the fixture's memory */
    atomic_bool ready;
};

#define WASTE_SIZE 65536

static void *wake_main(void *arg) {
    struct sink *s = arg;

    atomic_store(&s->ready, true);
    gb_http_wake(s->request);
    return NULL;
}

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    pthread_t thread;

    if (s->used == GB_FIXTURE_MEMORY && !s->waste)
        return gb_error_set(err, GB_ERR_BODY_TOO_LARGE, "larger than the memory");
    if (s->full) {
        atomic_fetch_add(&s->f->rooms_awaited, 1);
        return 0;
    }
    if (s->slow && !atomic_load(&s->ready)) {
        ck_assert_int_eq(pthread_create(&thread, NULL, wake_main, s), 0);
        pthread_join(thread, NULL); /* the wake comes before the return: permitted, and the hardest case */
        return 0;
    }
    *ret_ptr = s->waste ? s->waste : s->f->memory + s->used;
    *ret_n = s->waste ? WASTE_SIZE : GB_FIXTURE_MEMORY - s->used;
    if (s->slow && *ret_n > 1000)
        *ret_n = 1000;
    return 1;
}

static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    (void)err;
    s->used += n;
    atomic_store(&s->ready, false);
    return 0;
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    char *text = NULL;
    int n = asprintf(&text, "%zu", s->used);

    (void)request;
    (void)err;
    ck_assert_int_gt(n, 0);
    atomic_store(&s->f->stored, s->used);
    gb_http_response_take(response, text, (size_t)n);
    return GB_STEP_REPLY;
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    atomic_fetch_sub(&s->f->sinks_open, 1);
    gb_http_request_unref(s->request);
    free(s->waste);
    free(s);
}

static struct sink *put_any(struct gb_http_request *request, bool slow, bool drop) {
    struct sink *s = calloc(1, sizeof(*s));

    ck_assert_ptr_nonnull(s);
    s->sink = (struct gb_http_sink){.room = sink_room, .fill = sink_fill, .end = sink_end, .free = sink_free};
    s->f = request->app;
    s->request = gb_http_request_ref(request);
    s->slow = slow;
    s->waste = drop ? malloc(WASTE_SIZE) : NULL;
    atomic_fetch_add(&s->f->sinks_open, 1);
    request->sink = &s->sink;
    return s;
}

static enum gb_step on_put(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    (void)response;
    (void)err;
    put_any(request, false, false);
    return GB_STEP_BODY;
}

static enum gb_step on_slow(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    (void)response;
    (void)err;
    put_any(request, true, false);
    return GB_STEP_BODY;
}

static enum gb_step on_drop(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct sink *sink;

    (void)response;
    (void)err;
    sink = put_any(request, gb_http_query(request, "slow") != NULL, true);
    sink->full = sink->f->may_hold && gb_http_query(request, "full") != NULL;
    return GB_STEP_BODY;
}

static enum gb_step on_refused(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    (void)request;
    (void)response;
    gb_error_set(err, GB_ERR_QUOTA_EXCEEDED, "this path refuses every body");
    return GB_STEP_ERROR;
}

struct source {
    struct gb_http_source source;
    struct gb_http_fixture *f;
    size_t at;
};

static int source_next(struct gb_http_source *source, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct source *s = (struct source *)source;

    (void)err;
    *ret_ptr = s->f->memory + s->at;
    *ret_n = atomic_load(&s->f->stored) - s->at;
    return 1;
}

static void source_sent(struct gb_http_source *source, size_t n) {
    ((struct source *)source)->at += n;
}

static void source_free(struct gb_http_source *source, bool complete) {
    (void)complete;
    atomic_fetch_sub(&((struct source *)source)->f->sources_open, 1);
    free(source);
}

static enum gb_step on_get(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_http_fixture *f = request->app;
    struct source *s = calloc(1, sizeof(*s));

    (void)err;
    ck_assert_ptr_nonnull(s);
    s->source = (struct gb_http_source){.next = source_next, .sent = source_sent, .free = source_free};
    s->f = f;
    atomic_fetch_add(&f->sources_open, 1);
    gb_http_response_source(response, &s->source, atomic_load(&f->stored));
    return GB_STEP_REPLY;
}

static enum gb_step on_json(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    char *text = NULL;
    int n = asprintf(&text, "%zu", request->body_len);

    (void)err;
    ck_assert_int_gt(n, 0);
    gb_http_response_take(response, text, (size_t)n);
    return GB_STEP_REPLY;
}

static void *wake_request(void *arg) {
    gb_http_wake(arg);
    gb_http_request_unref(arg);
    return NULL;
}

void gb_http_wake_later(struct gb_http_request *request) {
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, wake_request, gb_http_request_ref(request)), 0);
    pthread_detach(thread);
}

static enum gb_step on_wait(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    const struct gb_http_fixture *f = request->app;

    (void)response;
    (void)err;
    request->resume = on_json;
    if (f->may_hold && gb_http_query(request, "held")) {
        request->resume = on_wait;
        request->park = strcmp(gb_http_query(request, "held")->s, "parked") == 0;
        return GB_STEP_WAIT;
    }
    if (gb_http_query(request, "never")) {
        request->resume = on_wait;
        if (!request->timed_out)
            request->deadline_ns = gb_clock_ns() + 100 * GB_NS_PER_MS;
        return GB_STEP_WAIT;
    }
    gb_http_wake_later(request);
    return GB_STEP_WAIT;
}

static enum gb_step on_canned(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_http_fixture *f = request->app;

    (void)err;
    gb_http_response_canned(response, gb_http_canned_ref(f->canned));
    return GB_STEP_REPLY;
}

static const struct gb_http_route routes[] = {
    {GB_HTTP_PUT, "/b/{name}", on_put, GB_BODY_STREAM, 0, ""},
    {GB_HTTP_GET, "/b/{name}", on_get, GB_BODY_NONE, 0, ""},
    {GB_HTTP_PUT, "/slow", on_slow, GB_BODY_STREAM, 0, ""},
    {GB_HTTP_PUT, "/drop", on_drop, GB_BODY_STREAM, 0, "slow full"},
    {GB_HTTP_PUT, "/refused", on_refused, GB_BODY_STREAM, 0, ""},
    {GB_HTTP_POST, "/json", on_json, GB_BODY_JSON, 0, ""},
    {GB_HTTP_GET, "/wait", on_wait, GB_BODY_NONE, 0, "never held"},
    {GB_HTTP_GET, "/canned", on_canned, GB_BODY_NONE, 0, ""},
};

static void on_ended(void *app, const struct gb_http_request *request, const struct gb_http_end *end) {
    struct gb_http_fixture *f = app;

    (void)request;
    (void)end;
    atomic_fetch_add(&f->ended, 1);
}

/* --- start and stop ----------------------------------------------------------------------------------------------- */

void gb_http_fixture_start(struct gb_http_fixture *f, void (*tweak)(struct gb_http_server_config *config)) {
    struct gb_http_server_config config = {.app = f,
                                           .routes = routes,
                                           .route_count = sizeof(routes) / sizeof(routes[0]),
                                           .ended = on_ended,
                                           .listen_fd_count = 1,
                                           .loops = 2,
                                           .bulk_loops = 2,
                                           .connections_max = 2000,
                                           .connection_memory = 16384,
                                           .json_max = 65536,
                                           .takeover_bytes = 65536,
                                           .idle_timeout_s = 60,
                                           .stall_timeout_s = 60,
                                           .min_rate_bytes_s = 0,
                                           .wait_max_s = 30};
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    struct gb_error err = GB_ERROR_INIT;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    memset(f, 0, sizeof(*f));
    f->memory = calloc(1, GB_FIXTURE_MEMORY);
    f->canned = gb_http_canned_new(200, "text/plain", "\"one\"", "constant", 8);
    ck_assert(f->memory && f->canned);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    ck_assert_int_eq(listen(fd, 4096), 0);
    getsockname(fd, (struct sockaddr *)&addr, &len);
    f->port = ntohs(addr.sin_port);
    config.listen_fds = &fd;
    if (tweak)
        tweak(&config);
    ck_assert_msg(gb_http_server_start(&config, &f->server, &err) == 0, "%s", err.detail);
}

void gb_http_fixture_stop(struct gb_http_fixture *f) {
    gb_http_server_stop(f->server, 3000);
    gb_http_canned_unref(f->canned);
    free(f->memory);
    ck_assert_uint_eq(atomic_load(&f->sinks_open), 0);
    ck_assert_uint_eq(atomic_load(&f->sources_open), 0);
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

int gb_client(const struct gb_http_fixture *f) {
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)f->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

void gb_client_send(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);

        if (sent <= 0)
            return; /* the reply tells why */
        data += sent;
        n -= (size_t)sent;
    }
}

void gb_client_text(int fd, const char *text) {
    gb_client_send(fd, text, strlen(text));
}

int gb_client_reply(int fd, char *body, size_t size, size_t *ret_len, bool *ret_close) {
    char head[8192];
    size_t used = 0;
    const char *at;
    size_t len;
    size_t got;
    int status;

    do {
        if (used == sizeof(head) - 1 || recv(fd, head + used, 1, 0) != 1)
            return 0;
        head[++used] = '\0';
    } while (used < 4 || memcmp(head + used - 4, "\r\n\r\n", 4) != 0);
    ck_assert_int_eq(sscanf(head, "HTTP/1.1 %d", &status), 1);
    at = strcasestr(head, "\r\nContent-Length:");
    len = at && status != 304 && status != 100 ? strtoull(at + 17, NULL, 10) : 0;
    for (got = 0; got < len;) {
        char waste[65536];
        size_t want = len - got < sizeof(waste) ? len - got : sizeof(waste);
        ssize_t n = recv(fd, waste, want, 0);

        if (n <= 0)
            break;
        if (body && got < size)
            memcpy(body + got, waste, got + (size_t)n <= size ? (size_t)n : size - got);
        got += (size_t)n;
    }
    if (body && got < size)
        body[got] = '\0';
    if (ret_len)
        *ret_len = got;
    if (ret_close)
        *ret_close = strcasestr(head, "\r\nConnection: close") != NULL;
    return status;
}

bool gb_client_at_end(int fd) {
    char c;

    return recv(fd, &c, 1, 0) <= 0;
}
