/* Places of connections: the share of UNIX sockets, the bound of an address, and connections that give way. */
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "gb_test.h"
#include "http/server/loop.h"
#include "http/server/state.h"
#include "http_fixture.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define ALL 10u

static struct gb_http_fixture f;

static unsigned sources_of(struct gb_conn_slots *places) {
    unsigned count = 0;
    unsigned i;

    pthread_mutex_lock(&places->lock);
    for (i = 0; i < GB_CONN_SLOTS_BUCKETS; i++)
        count += places->bucket[i] != NULL;
    pthread_mutex_unlock(&places->lock);
    return count;
}

/* --- the server --------------------------------------------------------------------------------------------------- */

static void few(struct gb_http_server_config *config) {
    config->connections_max = ALL;
}

static struct gb_http_server_stat stat_of(void) {
    struct gb_http_server_stat stat;

    gb_http_server_stat(f.server, &stat);
    return stat;
}

static void await_accepted(uint64_t n) {
    while (stat_of().accepted < n)
        usleep(1000);
}

/* A loop has taken it: from now on a later connection has been silent for less long. */
static void await_first_silent(void) {
    while (atomic_load(&f.server->loops[0].quiet[false][false].since_ns) == 0 &&
           atomic_load(&f.server->loops[1].quiet[false][false].since_ns) == 0)
        usleep(1000);
}

static void await_requests(uint64_t n) {
    while (stat_of().requests < n)
        usleep(1000);
}

static void pass_a_second(void) {
    uint64_t end_ns = gb_clock_ns() + GB_NS_PER_S + 100 * GB_NS_PER_MS;

    while (gb_clock_ns() < end_ns)
        usleep(10000);
}

/* A newcomer retries, as the refusal says, until it is answered. */
static int insist(const char *request) {
    int status;
    int fd;

    do {
        fd = gb_client(&f);
        gb_client_text(fd, request);
        status = gb_client_reply(fd, NULL, 0, NULL, NULL);
        if (status == 503) {
            close(fd);
            usleep(20000);
        }
    } while (status == 503);
    ck_assert_int_eq(status, 200);
    return fd;
}

/* Whether the server has ended the connection by now. */
static bool ended(int fd) {
    char byte;

    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* The connection that has been silent longest goes; the others stay. */
START_TEST(silent_connections_give_way) {
    int silent[ALL];
    unsigned i;
    int fd;

    gb_http_fixture_start(&f, few);
    for (i = 0; i < ALL; i++) {
        silent[i] = gb_client(&f);
        gb_client_text(silent[i], i % 2 ? "GET /canned HTTP/1.1\r\nHost: lo" : "");
        await_accepted(i + 1);
        await_first_silent();
    }
    fd = insist(GET("/canned"));
    ck_assert(gb_client_at_end(silent[0]));
    for (i = 1; i < ALL; i++)
        ck_assert(!ended(silent[i]));
    ck_assert_uint_eq(stat_of().displaced, 1);
    gb_client_text(silent[1], "calhost\r\n\r\n");
    ck_assert_int_eq(gb_client_reply(silent[1], NULL, 0, NULL, NULL), 200);
    for (i = 0; i < ALL; i++)
        close(silent[i]);
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

/* Silent connections go first, then those that keep their connection; never one with a request under way. */
START_TEST(who_gives_way) {
    int busy[ALL - 2];
    int silent;
    int kept;
    int first;
    int second;
    unsigned i;

    gb_http_fixture_start(&f, few);
    kept = gb_client(&f);
    gb_client_text(kept, GET("/canned"));
    ck_assert_int_eq(gb_client_reply(kept, NULL, 0, NULL, NULL), 200);
    for (i = 0; i < ALL - 2; i++) {
        busy[i] = gb_client(&f);
        gb_client_text(busy[i], GET("/wait?never"));
    }
    await_requests(ALL - 1);
    silent = gb_client(&f);
    await_accepted(ALL);
    pass_a_second(); /* a younger connection does not give way */
    first = insist(GET("/canned"));
    ck_assert(gb_client_at_end(silent));
    ck_assert(!ended(kept));
    gb_client_text(first, GET("/wait?never"));
    second = insist(GET("/canned"));
    ck_assert(gb_client_at_end(kept));
    gb_client_text(second, GET("/wait?never"));
    await_requests(ALL + 3);
    ck_assert_uint_eq(stat_of().displaced, 2);
    for (i = 0; i < ALL - 2; i++) {
        ck_assert(!ended(busy[i]));
        close(busy[i]);
    }
    close(silent);
    close(kept);
    close(first);
    close(second);
    gb_http_fixture_stop(&f);
}
END_TEST

START_TEST(requests_under_way_do_not_give_way) {
    int busy[ALL];
    char body[1024] = "";
    unsigned i;
    int fd;

    gb_http_fixture_start(&f, few);
    for (i = 0; i < ALL; i++) {
        busy[i] = gb_client(&f);
        gb_client_text(busy[i], i % 2 ? GET("/wait?never")
                                      : "PUT /drop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\nabc");
    }
    await_requests(ALL);
    fd = gb_client(&f);
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 503);
    ck_assert_ptr_nonnull(strstr(body, "10 of 10 connections are in use"));
    close(fd);
    for (i = 0; i < ALL; i++)
        close(busy[i]);
    gb_http_fixture_stop(&f);
}
END_TEST

/* After a large body a connection is on a transfer loop; when it is quiet, it gives way as any other. */
START_TEST(connections_of_large_bodies_give_way) {
    char *data = calloc(1, 100000);
    int kept[ALL];
    unsigned i;
    int fd;

    gb_http_fixture_start(&f, few);
    for (i = 0; i < ALL; i++) {
        kept[i] = gb_client(&f);
        gb_client_text(kept[i], "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
        gb_client_send(kept[i], data, 100000);
        ck_assert_int_eq(gb_client_reply(kept[i], NULL, 0, NULL, NULL), 200);
    }
    fd = insist(GET("/canned"));
    close(fd);
    for (i = 0; i < ALL; i++)
        close(kept[i]);
    free(data);
    gb_http_fixture_stop(&f);
}
END_TEST

static void brief_headers(struct gb_http_server_config *config) {
    config->header_timeout_s = 1;
}

START_TEST(a_first_header_has_less_time) {
    static const char *const beginnings[] = {"", "GET /canned HT", "GET /canned HTTP/1.1\r\nHost: localhost\r\nX-"};
    int kept;
    int fds[3];
    int i;

    gb_http_fixture_start(&f, brief_headers);
    kept = gb_client(&f);
    gb_client_text(kept, GET("/canned"));
    ck_assert_int_eq(gb_client_reply(kept, NULL, 0, NULL, NULL), 200);
    for (i = 0; i < 3; i++) {
        fds[i] = gb_client(&f);
        gb_client_text(fds[i], beginnings[i]);
    }
    for (i = 0; i < 3; i++) {
        ck_assert(gb_client_at_end(fds[i]));
        close(fds[i]);
    }
    gb_client_text(kept, GET("/canned"));
    ck_assert_int_eq(gb_client_reply(kept, NULL, 0, NULL, NULL), 200);
    close(kept);
    gb_http_fixture_stop(&f);
}
END_TEST

/* --- UNIX sockets ------------------------------------------------------------------------------------------------- */

static struct sockaddr_un local = {.sun_family = AF_UNIX};

static void both(struct gb_http_server_config *config) {
    static int fds[2];

    snprintf(local.sun_path, sizeof(local.sun_path), "/tmp/gb-places-%d", (int)getpid());
    unlink(local.sun_path);
    fds[0] = config->listen_fds[0];
    fds[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(fds[1], (struct sockaddr *)&local, sizeof(local)), 0);
    ck_assert_int_eq(listen(fds[1], 100), 0);
    config->listen_fds = fds;
    config->listen_fd_count = 2;
    config->connections_max = ALL;
}

START_TEST(tcp_leaves_a_share_to_unix_sockets) {
    char body[1024] = "";
    int busy[ALL / 2];
    int here[ALL / 2];
    unsigned i;
    int fd;

    gb_http_fixture_start(&f, both);
    for (i = 0; i < ALL / 2; i++) {
        busy[i] = gb_client(&f);
        gb_client_text(busy[i], GET("/wait?never"));
    }
    await_requests(ALL / 2);
    fd = gb_client(&f);
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 503);
    ck_assert_ptr_nonnull(strstr(body, "5 of 5 connections over TCP are in use; 5 are kept for the UNIX socket"));
    close(fd);
    for (i = 0; i < ALL / 2; i++) {
        here[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(connect(here[i], (struct sockaddr *)&local, sizeof(local)), 0);
        gb_client_text(here[i], GET("/canned"));
        ck_assert_int_eq(gb_client_reply(here[i], NULL, 0, NULL, NULL), 200);
    }
    for (i = 0; i < ALL / 2; i++) {
        close(busy[i]);
        close(here[i]);
    }
    unlink(local.sun_path);
    gb_http_fixture_stop(&f);
}
END_TEST

/* --- the bound of an address -------------------------------------------------------------------------------------- */

static struct sockaddr_in outside = {.sin_family = AF_INET};

static bool find_outside(void) {
    struct ifaddrs *list;
    struct ifaddrs *at;

    ck_assert_int_eq(getifaddrs(&list), 0);
    for (at = list; at && outside.sin_addr.s_addr == 0; at = at->ifa_next) {
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && !(at->ifa_flags & IFF_LOOPBACK))
            memcpy(&outside, at->ifa_addr, sizeof(outside));
    }
    freeifaddrs(list);
    return outside.sin_addr.s_addr != 0;
}

static void two_of_each(struct gb_http_server_config *config) {
    socklen_t len = sizeof(outside);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    outside.sin_port = 0;
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&outside, sizeof(outside)), 0);
    ck_assert_int_eq(listen(fd, 100), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&outside, &len), 0);
    ck_assert_int_ge(dup3(fd, config->listen_fds[0], O_CLOEXEC), 0);
    close(fd);
    config->source_max = 2;
}

static int reach(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(connect(fd, (struct sockaddr *)&outside, sizeof(outside)), 0);
    gb_client_text(fd, GET("/canned"));
    return fd;
}

START_TEST(an_address_has_its_bound) {
    char body[1024] = "";
    int fds[3];
    int i;

    if (!find_outside())
        return; /* this machine has no address but loopback; test_conn_slots has the rest */
    gb_http_fixture_start(&f, two_of_each);
    for (i = 0; i < 3; i++) {
        fds[i] = reach();
        ck_assert_int_eq(gb_client_reply(fds[i], body, sizeof(body), NULL, NULL), i < 2 ? 200 : 429);
    }
    ck_assert_ptr_nonnull(strstr(body, "2 connections of this address are open"));
    ck_assert_uint_eq(stat_of().refused_source, 1);
    for (i = 0; i < 3; i++)
        close(fds[i]);
    while (stat_of().connections > 0)
        usleep(1000);
    fds[0] = reach();
    ck_assert_int_eq(gb_client_reply(fds[0], NULL, 0, NULL, NULL), 200);
    close(fds[0]);
    gb_http_fixture_stop(&f);
}
END_TEST

/* However connections end, each gives its place back once. */
START_TEST(every_end_gives_its_place_back) {
    static const char *const heads[] = {"",
                                        "GET /can",
                                        GET("/canned"),
                                        GET("/wait"),
                                        GET("/wait?never"),
                                        GET("/b/x"),
                                        "PUT /drop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 150000\r\n\r\n",
                                        "PUT /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 150000\r\n\r\n",
                                        "PUT /b/x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"};
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    struct gb_conn_slots *places;
    char *data = calloc(1, 150000);
    unsigned seed = 1;
    int fds[40];
    int i;

    gb_http_fixture_start(&f, few);
    places = &f.server->places;
    atomic_store(&f.stored, 5000000);
    for (i = 0; i < 600; i++) {
        int at = i % 40;

        if (i >= 40 && rand_r(&seed) % 2)
            setsockopt(fds[at], SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
        if (i >= 40)
            close(fds[at]);
        fds[at] = gb_client(&f);
        gb_client_text(fds[at], heads[(unsigned)rand_r(&seed) % 9]);
        send(fds[at], data, (size_t)rand_r(&seed) % 150000, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    for (i = 0; i < 40; i++)
        close(fds[i]);
    /* A sweep finds the end of connections that wait. */
    while (atomic_load(&places->taken) > 0 || sources_of(places) > 0)
        usleep(1000);
    ck_assert_uint_eq(atomic_load(&places->remote) + atomic_load(&f.server->squeezed), 0);
    free(data);
    gb_http_fixture_stop(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("http server, places of connections");

    gb_test_add(suite, "silent", silent_connections_give_way, 60);
    gb_test_add(suite, "who", who_gives_way, 60);
    gb_test_add(suite, "busy", requests_under_way_do_not_give_way, 60);
    gb_test_add(suite, "large", connections_of_large_bodies_give_way, 60);
    gb_test_add(suite, "header", a_first_header_has_less_time, 60);
    gb_test_add(suite, "unix", tcp_leaves_a_share_to_unix_sockets, 60);
    gb_test_add(suite, "bound", an_address_has_its_bound, 60);
    gb_test_add(suite, "ends", every_end_gives_its_place_back, 120);
    return gb_test_run(suite);
}
