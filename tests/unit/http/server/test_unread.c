/* Replies that clients read slowly or not at all: over TCP and UNIX sockets, on each path of a body. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "gb_test.h"
#include "http_fixture.h"

#define LARGE (8u << 20)  /* more than a fresh socket and its client's take together */
#define MIDDLE (1u << 20) /* a UNIX socket takes a fifth of it, the loopback all */
#define WAITS_MS 20000
#define HEAD_SIZE 4096

static struct gb_http_fixture f;
static struct gb_http_canned *canned;
static char path[64];
static uint64_t min_rate;
static uint64_t budget;
static unsigned stall_s;

/* --- the application ---------------------------------------------------------------------------------------------- */

static char byte_at(size_t i) {
    return (char)('a' + (i * 7 + i / 4096) % 26);
}

static char *make_body(size_t n) {
    char *body = malloc(n);
    size_t i;

    ck_assert_ptr_nonnull(body);
    for (i = 0; i < n; i++)
        body[i] = byte_at(i);
    return body;
}

static enum gb_step on_memory(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    const char *s = strrchr(request->target.s, '/') + 1;
    size_t n = strtoull(s, NULL, 10);

    (void)err;
    gb_http_response_take(response, make_body(n), n);
    return GB_STEP_REPLY;
}

static enum gb_step on_canned(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    (void)request;
    (void)err;
    gb_http_response_canned(response, gb_http_canned_ref(canned));
    return GB_STEP_REPLY;
}

static enum gb_step on_grow(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    if (gb_http_reply_room(request, err) < 0)
        return GB_STEP_ERROR;
    return on_memory(request, response, err);
}

/* A handler that keeps its loop for longer than the stall time-out of three seconds. */
static enum gb_step on_late(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    usleep(3500000);
    return on_memory(request, response, err);
}

static const struct gb_http_route routes[] = {
    {GB_HTTP_GET, "/late/{n}", on_late, GB_BODY_NONE, 0, ""},
    {GB_HTTP_GET, "/memory/{n}", on_memory, GB_BODY_NONE, 0, ""},
    {GB_HTTP_POST, "/memory/{n}", on_memory, GB_BODY_JSON, 0, ""},
    {GB_HTTP_POST, "/grow/{n}", on_grow, GB_BODY_JSON, 0, ""},
    {GB_HTTP_GET, "/canned", on_canned, GB_BODY_NONE, 0, ""},
};

/* Both kinds of sockets, and short time-outs. */
static void tweak(struct gb_http_server_config *config) {
    static int fds[2];
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(path, sizeof(path), "/tmp/gb-unread-%d", (int)getpid());
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    unlink(path);
    fds[0] = config->listen_fds[0];
    fds[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(fds[1], (struct sockaddr *)&addr, sizeof(addr)), 0);
    ck_assert_int_eq(listen(fds[1], 64), 0);
    config->listen_fds = fds;
    config->listen_fd_count = 2;
    config->routes = routes;
    config->route_count = sizeof(routes) / sizeof(routes[0]);
    config->stall_timeout_s = stall_s;
    config->min_rate_bytes_s = min_rate;
    config->reply_memory_max = budget;
}

static void start(uint64_t rate, uint64_t bytes, unsigned seconds) {
    char *body = make_body(LARGE);

    min_rate = rate;
    budget = bytes;
    stall_s = seconds;
    canned = gb_http_canned_new(200, "text/plain", "\"long\"", body, LARGE);
    ck_assert_ptr_nonnull(canned);
    free(body);
    gb_http_fixture_start(&f, tweak);
}

static void stop(void) {
    gb_http_fixture_stop(&f);
    gb_http_canned_unref(canned);
    unlink(path);
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

static int client(bool local) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 20};
    int fd;

    if (!local)
        return gb_client(&f);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

static void ask(int fd, const char *method, const char *target) {
    char text[200];

    snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", method, target,
             strcmp(method, "POST") == 0 ? "Content-Length: 0\r\n" : "");
    gb_client_text(fd, text);
}

static struct gb_http_server_stat stat_now(void) {
    struct gb_http_server_stat stat;

    gb_http_server_stat(f.server, &stat);
    return stat;
}

static unsigned expected; /* connections */

static bool all_gone(void) {
    struct gb_http_server_stat stat = stat_now();

    return stat.accepted == expected && stat.connections == 0 && stat.reply_memory == 0;
}

static bool nothing_waits(void) {
    return stat_now().reply_memory == 0;
}

static bool one_waits(void) {
    return stat_now().reply_memory == LARGE;
}

static void await(bool (*happened)(void), const char *what) {
    unsigned ms;

    for (ms = 0; !happened(); ms += 5) {
        ck_assert_msg(ms < WAITS_MS, "not in %d ms: %s", WAITS_MS, what);
        usleep(5000);
    }
}

/* --- nothing is read ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *what;
    const char *first;
    const char *second; /* sent with it, so that libmicrohttpd holds a next request */
    bool local;
} unread[] = {
    {"long, TCP", "/memory/8388608", NULL, false},
    {"long, UNIX", "/memory/8388608", NULL, true},
    {"canned, TCP", "/canned", NULL, false},
    {"canned, UNIX", "/canned", NULL, true},
    {"pipelined, TCP", "/memory/8388608", "/memory/10", false},
    {"pipelined, UNIX", "/memory/8388608", "/memory/10", true},
    {"all in the kernel, TCP", "/memory/2000000", NULL, false},
    {"all in the kernel, UNIX", "/memory/60000", NULL, true},
    {"long and in the kernel, UNIX", "/memory/800000", NULL, true},
    {"many short ones, UNIX", "/memory/60000", "/memory/60000", true},
};
#define UNREAD (sizeof(unread) / sizeof(unread[0]))

/* At one byte a second each would take months. */
START_TEST(a_client_that_takes_nothing_is_gone) {
    int window = 4096;
    int fds[UNREAD];
    size_t i;
    int j;

    start(1, 0, 1);
    for (i = 0; i < UNREAD; i++) {
        fds[i] = client(unread[i].local);
        /* A small window: unread bytes stay in the server's kernel. */
        setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &window, sizeof(window));
        ask(fds[i], "GET", unread[i].first);
        for (j = 0; unread[i].second && j < 8; j++)
            ask(fds[i], "GET", unread[i].second);
    }
    expected = UNREAD;
    await(all_gone, "the end of all connections");
    for (i = 0; i < UNREAD; i++)
        close(fds[i]);
    stop();
}
END_TEST

/* --- slow readers ------------------------------------------------------------------------------------------------- */

struct reader {
    const char *what;
    const char *target;
    size_t bytes; /* of the body */
    bool local;
    bool pipelined; /* another request follows at once */
    int fd;
    char *got;
    size_t used;
    bool over;
    bool whole;
};

static void begin(struct reader *r) {
    r->got = malloc(r->bytes + HEAD_SIZE);
    ck_assert_ptr_nonnull(r->got);
    r->fd = client(r->local);
    ask(r->fd, "GET", r->target);
    if (r->pipelined)
        ask(r->fd, "GET", "/memory/10");
}

/* Reads up to n bytes that are there. */
static void read_some(struct reader *r, size_t n) {
    size_t room = r->bytes + HEAD_SIZE - r->used;
    ssize_t got = recv(r->fd, r->got + r->used, n < room ? n : room, MSG_DONTWAIT);

    if (got > 0)
        r->used += (size_t)got;
    else if (got == 0)
        r->over = true;
}

/* Checks that the first reply is whole and right. */
static bool has_all(const struct reader *r) {
    const char *body = r->used > r->bytes ? memmem(r->got, r->used, "\r\n\r\n", 4) : NULL;
    size_t i;

    if (!body || r->used < (size_t)(body + 4 - r->got) + r->bytes)
        return false;
    for (i = 0; i < r->bytes && body[4 + i] == byte_at(i); i++)
        ;
    ck_assert_msg(i == r->bytes, "%s: another byte at %zu", r->what, i);
    return true;
}

/* Each reads a number of bytes at equal intervals, until it has its first reply whole. */
static void read_all(struct reader *readers, size_t count, size_t bytes, unsigned pause_us) {
    size_t left = count;
    size_t i;

    while (left > 0) {
        usleep(pause_us);
        for (i = 0; i < count; i++) {
            struct reader *r = &readers[i];

            if (r->whole)
                continue;
            read_some(r, bytes);
            ck_assert_msg(!r->over, "%s: ended after %zu bytes", r->what, r->used);
            r->whole = has_all(r);
            left -= r->whole;
        }
    }
}

/* The client reads slowly, for longer than the stall time-out and more than the kernel keeps; then the connection
 * continues. */
START_TEST(a_slow_client_gets_all) {
    struct reader readers[] = {
        {.what = "TCP", .target = "/memory/8388608", .bytes = LARGE},
        {.what = "canned, TCP", .target = "/canned", .bytes = LARGE},
        {.what = "pipelined, TCP", .target = "/memory/8388608", .bytes = LARGE, .pipelined = true},
        {.what = "UNIX", .target = "/memory/8388608", .bytes = LARGE, .local = true},
        {.what = "canned, UNIX", .target = "/canned", .bytes = LARGE, .local = true},
        {.what = "pipelined, UNIX", .target = "/memory/8388608", .bytes = LARGE, .local = true, .pipelined = true},
    };
    size_t count = sizeof(readers) / sizeof(readers[0]);
    size_t i;

    start(100000, 0, 3);
    for (i = 0; i < count; i++)
        begin(&readers[i]);
    read_all(readers, count, 32768, 20000);
    for (i = 0; i < count; i++) {
        struct reader *r = &readers[i];

        while (r->pipelined && r->used < r->bytes + HEAD_SIZE &&
               !memmem(r->got + r->bytes, r->used - r->bytes, "\r\n\r\nahov", 8)) {
            ck_assert_msg(!r->over, "%s: the next reply is lost", r->what);
            read_some(r, HEAD_SIZE);
        }
        ask(r->fd, "HEAD", "/canned");
        ck_assert_msg(recv(r->fd, r->got, 12, MSG_WAITALL) == 12 && memcmp(r->got, "HTTP/1.1 200", 12) == 0,
                      "%s: the connection has not stayed", r->what);
        close(r->fd);
        free(r->got);
    }
    stop();
}
END_TEST

/* The time that the loop needs is not the client's: before the first byte, and while it answers another. */
START_TEST(a_late_loop_blames_no_client) {
    struct reader readers[4];
    size_t i;

    start(1, 0, 3);
    for (i = 0; i < 4; i++) {
        readers[i] = (struct reader){.what = "late", .target = "/late/8388608", .bytes = LARGE, .pipelined = true};
        begin(&readers[i]);
    }
    read_all(readers, 4, 65536, 1000);
    for (i = 0; i < 4; i++) {
        close(readers[i].fd);
        free(readers[i].got);
    }
    stop();
}
END_TEST

/* Size over rate is more time than either client needs for the whole body. */
START_TEST(a_client_below_the_rate_is_dropped) {
    struct reader readers[] = {
        {.what = "TCP", .target = "/memory/8388608", .bytes = LARGE},
        {.what = "UNIX", .target = "/memory/2097152", .bytes = 2 * MIDDLE, .local = true},
    };
    size_t i;

    start(1000000, 0, 1);
    for (i = 0; i < 2; i++)
        begin(&readers[i]);
    /* Never faster than 800 KB/s, because a sleep is never shorter than asked for. */
    while (!readers[0].over || !readers[1].over) {
        usleep(20000);
        for (i = 0; i < 2; i++) {
            read_some(&readers[i], 16000);
            ck_assert_msg(readers[i].used < readers[i].bytes, "%s: it got all", readers[i].what);
            readers[i].over = readers[i].over || stat_now().connections < 2 - i;
        }
    }
    expected = 2;
    await(all_gone, "the end of both connections");
    for (i = 0; i < 2; i++) {
        close(readers[i].fd);
        free(readers[i].got);
    }
    stop();
}
END_TEST

/* --- the memory of all -------------------------------------------------------------------------------------------- */

static int status_of(const char *method, const char *target, char *body, size_t size) {
    int fd = client(false);
    int status;

    ask(fd, method, target);
    status = gb_client_reply(fd, body, size, NULL, NULL);
    close(fd);
    return status;
}

START_TEST(replies_have_a_budget) {
    bool kinds[] = {false, true};
    char body[2048];
    char head[300] = "";
    uint64_t refused = 0;
    size_t i;

    start(1, MIDDLE, 60);
    for (i = 0; i < 2; i++) {
        int fd = client(kinds[i]);
        int other;

        ask(fd, "GET", "/memory/8388608"); /* the first may be larger than the limit of all */
        await(one_waits, "the reply counts");
        memset(body, 0, sizeof(body));
        ck_assert_int_eq(status_of("GET", "/memory/70000", body, sizeof(body) - 1), 503);
        ck_assert_ptr_nonnull(strstr(body, "\"code\":\"saturated\""));
        ck_assert_ptr_nonnull(strstr(body, "--max-reply-memory"));
        ck_assert_int_eq(status_of("POST", "/grow/70000", body, sizeof(body)), 503);
        refused += 2;
        ck_assert_uint_eq(stat_now().replies_refused, refused);
        /* Short replies, canned ones, replies to actions that are done, and lengths pass. */
        ck_assert_int_eq(status_of("GET", "/memory/60000", NULL, 0), 200);
        ck_assert_int_eq(status_of("GET", "/canned", NULL, 0), 200);
        ck_assert_int_eq(status_of("POST", "/memory/100000", NULL, 0), 200);
        other = client(kinds[i]);
        ask(other, "HEAD", "/memory/60000");
        ck_assert_int_gt(recv(other, head, sizeof(head) - 1, 0), 0);
        ck_assert_ptr_nonnull(strstr(head, "Content-Length: 60000\r\n"));
        close(other);
        ck_assert_uint_eq(stat_now().replies_refused, refused);
        close(fd);
        await(nothing_waits, "its memory is given back");
        ck_assert_int_eq(status_of("GET", "/memory/70000", NULL, 0), 200);
        ck_assert_int_eq(status_of("POST", "/grow/70000", NULL, 0), 200);
        await(nothing_waits, "what was read is given back");
    }
    stop();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("http unread");

    gb_test_add(suite, "nothing is read", a_client_that_takes_nothing_is_gone, 60);
    gb_test_add(suite, "slow", a_slow_client_gets_all, 120);
    gb_test_add(suite, "late loop", a_late_loop_blames_no_client, 60);
    gb_test_add(suite, "too slow", a_client_below_the_rate_is_dropped, 60);
    gb_test_add(suite, "budget", replies_have_a_budget, 60);
    return gb_test_run(suite);
}
