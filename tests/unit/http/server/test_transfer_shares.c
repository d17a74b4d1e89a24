/* The memory of replies that are not read: what one client may have of it, and what is kept for UNIX sockets. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "gb_test.h"
#include "http_fixture.h"

#define LARGE (8u << 20)   /* more than a fresh socket and its client's take together */
#define BUDGET (64u << 20) /* of which long replies have 48 MiB, those over TCP 45, and one client of theirs 22.5 */
#define WAITS_MS 20000
#define CLIENTS_MAX 16

static struct gb_http_fixture f;
static char path[64];
static int fds[CLIENTS_MAX];
static unsigned count;

static enum gb_step on_large(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    (void)request;
    (void)err;
    gb_http_response_take(response, calloc(1, LARGE), LARGE);
    return GB_STEP_REPLY;
}

static int authorize(void *app, struct gb_http_request *request, struct gb_error *err) {
    (void)app;
    return gb_http_bound_client(request, 0, NULL, err);
}

static const struct gb_http_route routes[] = {{GB_HTTP_GET, "/large", on_large, GB_BODY_NONE, 0, ""}};

static void tweak(struct gb_http_server_config *config) {
    static int listening[2];
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(path, sizeof(path), "/tmp/gb-shares-%d", (int)getpid());
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    unlink(path);
    listening[0] = config->listen_fds[0];
    listening[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(listening[1], (struct sockaddr *)&addr, sizeof(addr)), 0);
    ck_assert_int_eq(listen(listening[1], 64), 0);
    config->listen_fds = listening;
    config->listen_fd_count = 2;
    config->routes = routes;
    config->route_count = 1;
    config->authorize = authorize;
    config->reply_memory_max = BUDGET;
    config->bounds.local = true;
}

static int connect_from(const char *source) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f.port)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in from = {.sin_family = AF_INET};
    int window = 4096;
    int fd = socket(source ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(local.sun_path, sizeof(local.sun_path), "%s", path);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &window, sizeof(window));
    if (!source) {
        ck_assert_int_eq(connect(fd, (struct sockaddr *)&local, sizeof(local)), 0);
        return fd;
    }
    ck_assert_int_eq(inet_pton(AF_INET, source, &from.sin_addr), 1);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Asks for a reply and reads no more of it than its status. source NULL: over the UNIX socket. */
static int status_of(const char *source) {
    char line[16] = "";
    int fd = connect_from(source);

    fds[count++] = fd;
    gb_client_text(fd, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ck_assert_int_eq(recv(fd, line, 12, MSG_WAITALL), 12);
    return atoi(line + 9);
}

static uint64_t waiting(void) {
    struct gb_http_server_stat stat;

    gb_http_server_stat(f.server, &stat);
    return stat.reply_memory;
}

static uint64_t limited(void) {
    struct gb_http_server_stat stat;

    gb_http_server_stat(f.server, &stat);
    return stat.limited[GB_HTTP_LIMIT_REPLIES];
}

static void stop(void) {
    unsigned ms;

    while (count > 0)
        close(fds[--count]);
    for (ms = 0; waiting() > 0; ms += 5) {
        ck_assert_msg(ms < WAITS_MS, "the memory is not given back");
        usleep(5000);
    }
}

START_TEST(one_client_has_half_while_others_wait) {
    unsigned round;
    int i;

    gb_http_fixture_start(&f, tweak);
    for (round = 1; round <= 2; round++) { /* the second: what was given back counts no more */
        for (i = 0; i < 3; i++)
            ck_assert_int_eq(status_of("127.0.0.2"), 200); /* alone, it may have more than half */
        ck_assert_int_eq(status_of("127.0.0.3"), 200);
        ck_assert_int_eq(status_of("127.0.0.2"), 429);
        ck_assert_int_eq(status_of("127.0.0.3"), 200);
        ck_assert_int_eq(status_of("127.0.0.3"), 429);
        ck_assert_uint_eq(limited(), 2 * round);
        ck_assert_int_eq(status_of("127.0.0.4"), 503); /* TCP has all that it may */
        ck_assert_int_eq(status_of(NULL), 200);        /* of what is kept */
        ck_assert_int_eq(status_of(NULL), 503);
        stop();
    }
    gb_http_fixture_stop(&f);
    unlink(path);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("shares of replies");

    gb_test_add(suite, "half", one_client_has_half_while_others_wait, 60);
    return gb_test_run(suite);
}
