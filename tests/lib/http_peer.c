#include "http_peer.h"

#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PIECE 100000

/* --- the application ---------------------------------------------------------------------------------------------- */

static struct gb_http_peers *peers_of(void *app) {
    return app;
}

static void count(struct gb_http_peers *p, unsigned *what) {
    pthread_mutex_lock(&p->lock);
    (*what)++;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void on_gone(void *app, struct gb_http_peer *peer) {
    struct gb_http_peers *p = peers_of(app);

    ck_assert_ptr_eq(peer->app, p);
    count(p, &p->gone);
}

static void on_free(void *app, struct gb_http_peer *peer) {
    struct gb_http_peers *p = peers_of(app);

    ck_assert_ptr_eq(peer->app, p);
    count(p, &p->freed);
}

static bool is_busy(void *app, const struct gb_http_peer *peer) {
    return peer->app == app;
}

static int make_fd(void) {
    int fd = memfd_create("gb-test", MFD_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "bytes", 5), 5);
    return fd;
}

static enum gb_step give(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    unsigned n = gb_http_query(request, "five") ? 5 : gb_http_query(request, "four") ? 4 : 1;

    while (n-- > 0) {
        if (gb_http_response_fd(response, make_fd(), err) < 0)
            return GB_STEP_ERROR;
    }
    gb_http_response_take(response, strdup("given"), 5);
    if (!gb_http_query(request, "fail"))
        return GB_STEP_REPLY;
    gb_error_set(err, GB_ERR_QUOTA_EXCEEDED, "as was asked for");
    return GB_STEP_ERROR;
}

static enum gb_step on_fd(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_http_peer *peer = request->peer;

    if (!peer) {
        gb_error_set(err, GB_ERR_LOCAL_ONLY, "no descriptors here");
        return GB_STEP_ERROR;
    }
    ck_assert_int_eq(peer->pid, getpid());
    ck_assert_uint_eq(peer->uid, getuid());
    ck_assert_uint_eq(peer->gid, getgid());
    ck_assert(gb_http_peer_in_group(request, getgid()) && !gb_http_peer_in_group(request, 54321));
    if (!peer->app)
        ck_assert_int_eq(gb_http_peer_hold(request, request->app, err), 0);
    if (!gb_http_query(request, "later"))
        return give(request, response, err);
    request->resume = give;
    gb_http_wake_later(request);
    return GB_STEP_WAIT;
}

static enum gb_step on_park(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    (void)response;
    (void)err;
    request->resume = on_park;
    request->park = true;
    return GB_STEP_WAIT;
}

static int no_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    (void)sink, (void)ret_ptr, (void)ret_n, (void)err;
    return 0;
}

static void sink_free(struct gb_http_sink *sink) {
    free(sink);
}

static enum gb_step on_blocked(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    (void)response;
    (void)err;
    request->sink = calloc(1, sizeof(*request->sink));
    ck_assert_ptr_nonnull(request->sink);
    *request->sink = (struct gb_http_sink){.room = no_room, .free = sink_free};
    return GB_STEP_BODY;
}

struct source {
    struct gb_http_source source;
    struct gb_http_peers *p;
    struct gb_http_request *request;
    size_t at;
    bool ready;
    bool never;
};

static int source_next(struct gb_http_source *source, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct source *s = (struct source *)source;
    size_t left = atomic_load(&s->p->f.stored) - s->at;

    (void)err;
    if (s->never)
        return 0;
    s->ready = !s->ready;
    if (s->ready) {
        gb_http_wake_later(s->request);
        return 0;
    }
    *ret_ptr = s->p->f.memory + s->at;
    *ret_n = left < PIECE ? left : PIECE;
    return 1;
}

static void source_sent(struct gb_http_source *source, size_t n) {
    ((struct source *)source)->at += n;
}

static void source_free(struct gb_http_source *source, bool complete) {
    struct source *s = (struct source *)source;

    ck_assert(!complete || s->at == atomic_load(&s->p->f.stored));
    gb_http_request_unref(s->request);
    free(s);
}

static enum gb_step on_slow(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct source *s = calloc(1, sizeof(*s));

    (void)err;
    ck_assert_ptr_nonnull(s);
    s->source = (struct gb_http_source){.next = source_next, .sent = source_sent, .free = source_free};
    s->p = peers_of(request->app);
    s->never = gb_http_query(request, "never") != NULL;
    s->request = gb_http_request_ref(request);
    gb_http_response_source(response, &s->source, atomic_load(&s->p->f.stored));
    return GB_STEP_REPLY;
}

/* --- start and stop ----------------------------------------------------------------------------------------------- */

static void listen_locally(struct gb_http_server_config *config) {
    static const struct gb_http_route more[] = {
        {GB_HTTP_POST, "/fd", on_fd, GB_BODY_NONE, 0, "one four five later fail"},
        {GB_HTTP_GET, "/park", on_park, GB_BODY_NONE, 0, ""},
        {GB_HTTP_GET, "/slow/x", on_slow, GB_BODY_NONE, 0, "never"},
        {GB_HTTP_PUT, "/blocked", on_blocked, GB_BODY_STREAM, 0, ""},
    };
    static struct gb_http_route routes[32];
    struct gb_http_peers *p = peers_of(config->app);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(p->path, sizeof(p->path), "/tmp/gb-peer-%d", (int)getpid());
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", p->path);
    unlink(p->path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    ck_assert_int_eq(listen(fd, 4096), 0);
    /* The fixture's own socket keeps its number, which the server gets. */
    ck_assert_int_ge(dup3(fd, config->listen_fds[0], O_CLOEXEC), 0);
    close(fd);
    memcpy(routes, config->routes, config->route_count * sizeof(routes[0]));
    memcpy(routes + config->route_count, more, sizeof(more));
    config->routes = routes;
    config->route_count += sizeof(more) / sizeof(more[0]);
    if (p->more_count > 0)
        memcpy(routes + config->route_count, p->more, p->more_count * sizeof(routes[0]));
    config->route_count += p->more_count;
    config->closer = p->closer;
    config->peer_gone = on_gone;
    config->peer_free = on_free;
    config->peer_busy = is_busy;
    config->idle_timeout_s = 1;
    config->wait_max_s = 2;
}

void gb_http_peers_start(struct gb_http_peers *p) {
    p->gone = p->freed = 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    gb_http_fixture_start(&p->f, listen_locally);
}

void gb_http_peers_stop(struct gb_http_peers *p) {
    gb_http_fixture_stop(&p->f);
    unlink(p->path);
    ck_assert_uint_eq(p->gone, p->freed);
}

void gb_await(struct gb_http_peers *p, const unsigned *what, unsigned n) {
    pthread_mutex_lock(&p->lock);
    while (*what < n)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

int gb_local_client(const struct gb_http_peers *p) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 20};
    struct timeval short_patience = {.tv_usec = 200000};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", p->path);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &short_patience, sizeof(short_patience));
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

/* Reads the interim response. Returns the number of descriptors that came with it. */
static unsigned take_fds(int fd, int *ret, unsigned max) {
    static const char wanted[] = "HTTP/1.1 103 Early Hints\r\n\r\n";
    char text[sizeof(wanted)] = "";
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = text, .iov_len = sizeof(wanted) - 1};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control)};
    struct cmsghdr *c;
    unsigned n;

    ck_assert_int_eq(recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_WAITALL), sizeof(wanted) - 1);
    ck_assert_str_eq(text, wanted);
    c = CMSG_FIRSTHDR(&msg);
    ck_assert_ptr_nonnull(c);
    ck_assert_int_eq(c->cmsg_type, SCM_RIGHTS);
    n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    ck_assert_uint_le(n, max);
    memcpy(ret, CMSG_DATA(c), n * sizeof(int));
    return n;
}

void gb_local_take(int fd, const char *request, unsigned n) {
    char body[64];
    int fds[8];
    unsigned got;

    gb_client_text(fd, request);
    got = take_fds(fd, fds, 8);
    ck_assert_uint_eq(got, n);
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
    ck_assert_str_eq(body, "given");
    while (got > 0) {
        got--;
        ck_assert_int_eq(pread(fds[got], body, 5, 0), 5);
        ck_assert_int_eq(memcmp(body, "bytes", 5), 0);
        close(fds[got]);
    }
}

unsigned gb_open_files(void) {
    unsigned n = 0;
    int i;

    for (i = 0; i < 1024; i++)
        n += fcntl(i, F_GETFD) >= 0;
    return n;
}

unsigned gb_local_fds(int fd, int *ret, unsigned max) {
    char text[12] = "";

    ck_assert_int_eq(recv(fd, text, sizeof(text), MSG_PEEK | MSG_WAITALL), sizeof(text));
    return memcmp(text, "HTTP/1.1 103", sizeof(text)) == 0 ? take_fds(fd, ret, max) : 0;
}

void gb_lingering(int ret[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(bind(door, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(door, 1), 0);
    ck_assert_int_eq(getsockname(door, (struct sockaddr *)&at, &len), 0);
    ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(ret[0], (struct sockaddr *)&at, sizeof(at)), 0);
    ret[1] = accept4(door, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(ret[1], 0);
    close(door);
}
