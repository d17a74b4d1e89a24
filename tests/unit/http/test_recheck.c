/* Requests under way whose caller loses its permission: they end, and those of others continue. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gb_test.h"
#include "http_fixture.h"

#define LARGE (24u << 20) /* more than the kernel holds of a reply */

static struct gb_http_fixture f;
static atomic_bool revoked; /* caller 1 is */

static int authorize(void *app, struct gb_http_request *request, struct gb_error *err) {
    const char *caller = gb_http_header(request, "Caller");

    (void)app;
    request->caller = caller ? strtoull(caller, NULL, 10) : 0;
    if (request->caller == 1 && atomic_load(&revoked))
        return gb_error_set(err, GB_ERR_UNAUTHENTICATED, "revoked before the request");
    return 0;
}

static bool in_force(void *app, uint64_t caller) {
    (void)app;
    ck_assert_uint_ne(caller, 0); /* of requests without a caller nothing is asked */
    return caller != 1 || !atomic_load(&revoked);
}

static void tweak(struct gb_http_server_config *config) {
    config->authorize = authorize;
    config->in_force = in_force;
}

static void start(void) {
    atomic_store(&revoked, false);
    gb_http_fixture_start(&f, tweak);
    f.may_hold = true;
}

static void end_caller(void) {
    atomic_store(&revoked, true);
    gb_http_server_recheck(f.server);
}

static int ask(const char *head, int caller) {
    int fd = gb_client(&f);
    char text[256];

    snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: localhost\r\nCaller: %d\r\n", head, caller);
    gb_client_text(fd, text);
    return fd;
}

static void until_suspended(uint64_t count) {
    struct gb_http_server_stat stat;

    do {
        usleep(1000);
        gb_http_server_stat(f.server, &stat);
    } while (stat.suspended < count);
}

static const char *const waits[] = {"/wait?held", "/wait?held=parked"};

START_TEST(waits_are_answered) {
    char body[512];
    char head[64];
    char byte;
    int other;
    int none;
    int fd;

    start();
    snprintf(head, sizeof(head), "GET %s", waits[_i]);
    fd = ask(head, 1);
    other = ask(head, 2);
    none = ask(head, 0);
    gb_client_text(fd, "\r\n");
    gb_client_text(other, "\r\n");
    gb_client_text(none, "\r\n");
    until_suspended(3);
    end_caller();
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 401);
    ck_assert_ptr_nonnull(strstr(body, "revoked"));
    ck_assert_int_eq(recv(other, &byte, 1, MSG_DONTWAIT), -1);
    ck_assert_int_eq(recv(none, &byte, 1, MSG_DONTWAIT), -1);
    close(fd);
    close(other);
    close(none);
    gb_http_fixture_stop(&f);
}
END_TEST

static const size_t sizes[] = {1000, 60000, 3000000};

/* Half of the body has come, through libmicrohttpd or on a transfer loop. */
static int begin_upload(size_t n, int caller) {
    int fd = ask("PUT /drop", caller);
    char *half = calloc(1, n / 2);
    char line[64];

    ck_assert_ptr_nonnull(half);
    snprintf(line, sizeof(line), "Content-Length: %zu\r\n\r\n", n);
    gb_client_text(fd, line);
    gb_client_send(fd, half, n / 2);
    free(half);
    return fd;
}

START_TEST(uploads_are_refused) {
    char *rest = calloc(1, sizes[_i]);
    char body[512];
    int other;
    int fd;

    ck_assert_ptr_nonnull(rest);
    start();
    fd = begin_upload(sizes[_i], 1);
    other = begin_upload(sizes[_i], 2);
    while (atomic_load(&f.sinks_open) < 2)
        usleep(1000);
    end_caller();
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 401);
    ck_assert(gb_client_at_end(fd));
    gb_client_send(other, rest, sizes[_i] - sizes[_i] / 2);
    ck_assert_int_eq(gb_client_reply(other, body, sizeof(body), NULL, NULL), 200);
    ck_assert_uint_eq(strtoull(body, NULL, 10), sizes[_i]);
    close(fd);
    close(other);
    gb_http_fixture_stop(&f);
    ck_assert_uint_eq(atomic_load(&f.sinks_open), 0);
    free(rest);
}
END_TEST

/* With the head, through libmicrohttpd, and on a transfer loop. */
static const char *const unplaced[] = {"Content-Length: 5\r\n\r\nab", "Transfer-Encoding: chunked\r\n\r\n5\r\nab"};

/* A connection that waits for room in the sink is woken by none of its own events. */
START_TEST(uploads_without_room_are_refused) {
    char body[512];
    int fd;

    start();
    fd = ask("PUT /drop?full", 1);
    gb_client_text(fd, unplaced[_i]);
    while (atomic_load(&f.rooms_awaited) == 0)
        usleep(1000);
    end_caller();
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 401);
    ck_assert(gb_client_at_end(fd));
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

/* The permission has ended before the head came. The refusal goes out though the rest of the body does not come, by
 * libmicrohttpd's connection and by one of a transfer loop that has seen the same head before. */
START_TEST(refusals_wait_for_no_body) {
    static const char head[] = "PUT /drop HTTP/1.1\r\nHost: localhost\r\nCaller: 1\r\nContent-Length: 1000\r\n\r\n";
    char upload[sizeof(head) - 1 + 1000];
    char body[512];
    int before = _i == 0 ? 0 : 4;
    int fd;

    memset(upload, 'x', sizeof(upload));
    memcpy(upload, head, sizeof(head) - 1);
    start();
    fd = gb_client(&f);
    for (; before > 0; before--) {
        gb_client_send(fd, upload, sizeof(upload));
        ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
    }
    end_caller();
    gb_client_send(fd, upload, sizeof(upload) - 500);
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 401);
    ck_assert_ptr_nonnull(strstr(body, "revoked before the request"));
    ck_assert(gb_client_at_end(fd));
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

/* Bytes until the end of the connection, however it ends. */
static size_t drain(int fd) {
    char *waste = malloc(1 << 20);
    size_t sum = 0;
    ssize_t n;

    ck_assert_ptr_nonnull(waste);
    while ((n = recv(fd, waste, 1 << 20, 0)) > 0)
        sum += (size_t)n;
    ck_assert_msg(n == 0 || errno == ECONNRESET, "%s", strerror(errno));
    free(waste);
    return sum;
}

START_TEST(replies_break_off) {
    char *data = calloc(1, LARGE);
    char line[64];
    char byte;
    int fd;

    ck_assert_ptr_nonnull(data);
    start();
    fd = ask("PUT /b/x", 1);
    snprintf(line, sizeof(line), "Content-Length: %u\r\n\r\n", LARGE);
    gb_client_text(fd, line);
    gb_client_send(fd, data, LARGE);
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 200);
    gb_client_text(fd, "GET /b/x HTTP/1.1\r\nHost: localhost\r\nCaller: 1\r\n\r\n");
    ck_assert_int_eq(recv(fd, &byte, 1, MSG_PEEK), 1); /* the reply has begun */
    end_caller();
    while (atomic_load(&f.sources_open) > 0)
        usleep(1000);
    ck_assert_uint_lt(drain(fd), LARGE);
    close(fd);
    gb_http_fixture_stop(&f);
    free(data);
}
END_TEST

/* A connection that is idle stays: its next request is checked again. */
START_TEST(connections_stay) {
    char body[64];
    int fd;

    start();
    fd = ask("GET /canned", 1);
    gb_client_text(fd, "\r\n");
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
    end_caller();
    gb_client_text(fd, "GET /canned HTTP/1.1\r\nHost: localhost\r\nCaller: 2\r\n\r\n");
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("recheck");

    gb_test_add_loop(suite, "waits", waits_are_answered, 60, 2);
    gb_test_add_loop(suite, "uploads", uploads_are_refused, 60, 3);
    gb_test_add_loop(suite, "room", uploads_without_room_are_refused, 60, 2);
    gb_test_add_loop(suite, "refusals", refusals_wait_for_no_body, 60, 2);
    gb_test_add(suite, "replies", replies_break_off, 60);
    gb_test_add(suite, "idle", connections_stay, 60);
    return gb_test_run(suite);
}
