/* The server against broken and hostile clients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gb_test.h"
#include "http_fixture.h"

static struct gb_http_fixture f;

struct attempt {
    const char *what;
    const char *request;
    int status;
    const char *code;
};

static const struct attempt attempts[] = {
    {"both lengths", "PUT /b/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     400, "ambiguous_length"},
    {"two lengths", "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400,
     "ambiguous_length"},
    {"the same length twice",
     "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400,
     "ambiguous_length"},
    {"gzip coding", "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 400, "ambiguous_length"},
    {"two codings", "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400,
     "ambiguous_length"},
    {"no host", "GET /canned HTTP/1.1\r\n\r\n", 400, "malformed_request"},
    {"two hosts", "GET /canned HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, "malformed_request"},
    {"another host", "GET /canned HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 421, "misdirected_request"},
    {"another origin",
     "POST /json HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n\r\n", 403,
     "cross_origin"},
    {"another site reads", "GET /canned HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n", 403,
     "cross_origin"},
    {"another port reads", "GET /b/x HTTP/1.1\r\nHost: localhost:7070\r\nSec-Fetch-Site: same-site\r\n\r\n", 403,
     "cross_origin"},
    {"a bad escape", "GET /b/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "malformed_request"},
    {"a parameter twice", "GET /wait?never=1&never=2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "malformed_request"},
    {"an unknown parameter", "GET /wait?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "unknown_parameter"},
    {"nothing there", "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "no_route"},
    {"wrong method", "DELETE /canned HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method_not_allowed"},
    {"unknown method", "BREW /canned HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method_not_allowed"},
    {"no length", "PUT /b/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 411, "length_required"},
    {"a body where none belongs", "GET /canned HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 400,
     "malformed_request"},
    {"a large JSON body", "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", 413,
     "body_too_large"},
    {"a control byte in a name", "GET /canned HTTP/1.1\r\nHost: localhost\r\nX\x01Y: 1\r\n\r\n", 400,
     "malformed_request"},
    {"a refused body", "PUT /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 507,
     "quota_exceeded"},
    {"an unfinished body", "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc", 400,
     "incomplete_body"},
    {"an unfinished large body", "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nabc", 400,
     "incomplete_body"},
};

START_TEST(each_gets_its_own_error) {
    size_t i;

    gb_http_fixture_start(&f, NULL);
    for (i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++) {
        const struct attempt *a = &attempts[i];
        char want[80];
        char body[2048];
        int fd = gb_client(&f);
        int status;

        gb_client_text(fd, a->request);
        shutdown(fd, SHUT_WR);
        status = gb_client_reply(fd, body, sizeof(body), NULL, NULL);
        ck_assert_msg(status == a->status, "%s: %d instead of %d", a->what, status, a->status);
        snprintf(want, sizeof(want), "\"code\":\"%s\"", a->code);
        ck_assert_msg(strstr(body, want) != NULL, "%s: %s not in %s", a->what, want, body);
        close(fd);
    }
    ck_assert_uint_eq(atomic_load(&f.stored), 0);
    gb_http_fixture_stop(&f);
}
END_TEST

/* The bytes after an ambiguous request must not be read as a request. */
START_TEST(nothing_is_smuggled) {
    static const char *const pairs[] = {
        "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        "PUT /b/y HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nz",
        "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 60\r\n\r\n"
        "PUT /b/y HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nz",
    };
    size_t i;

    gb_http_fixture_start(&f, NULL);
    for (i = 0; i < 2; i++) {
        int fd = gb_client(&f);
        bool closes;

        gb_client_text(fd, pairs[i]);
        ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, &closes), 400);
        ck_assert(closes);
        ck_assert(gb_client_at_end(fd));
        close(fd);
    }
    ck_assert_uint_eq(atomic_load(&f.stored), 0);
    gb_http_fixture_stop(&f);
}
END_TEST

START_TEST(expecting_clients_are_refused_before_the_body) {
    int fd;

    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    gb_client_text(fd, "PUT /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
                       "Expect: 100-continue\r\n\r\n");
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 507);
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

/* A client that sends at once reads the reason, though its body is not read. */
START_TEST(a_refused_sender_still_reads_why) {
    static const size_t sizes[] = {1000, 65536, 65537, 3000000};
    char *data = calloc(1, 3000000);
    char head[200];
    char body[2048];
    size_t i;

    gb_http_fixture_start(&f, NULL);
    for (i = 0; i < 4; i++) {
        int fd = gb_client(&f);

        snprintf(head, sizeof(head), "PUT /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
                 sizes[i]);
        gb_client_text(fd, head);
        gb_client_send(fd, data, sizes[i]);
        ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 507);
        ck_assert_ptr_nonnull(strstr(body, "this path refuses every body"));
        close(fd);
    }
    free(data);
    gb_http_fixture_stop(&f);
}
END_TEST

/* A body larger than the sink takes fails in its middle: the error still arrives. */
START_TEST(an_error_in_the_middle_of_a_body_arrives) {
    size_t n = GB_FIXTURE_MEMORY + 100000;
    char *data = calloc(1, n);
    char body[2048];
    char head[200];
    int fd;

    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    snprintf(head, sizeof(head), "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", n);
    gb_client_text(fd, head);
    gb_client_send(fd, data, n);
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 413);
    ck_assert_ptr_nonnull(strstr(body, "larger than the memory"));
    close(fd);
    free(data);
    gb_http_fixture_stop(&f);
}
END_TEST

START_TEST(bytes_before_100_continue_are_not_lost) {
    char *data = calloc(1, 100000);
    char body[64];
    int status;
    int fd;

    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    gb_client_text(
        fd, "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\nhello");
    status = gb_client_reply(fd, body, sizeof(body), NULL, NULL);
    gb_client_send(fd, data, 99995);
    if (status == 100)
        status = gb_client_reply(fd, body, sizeof(body), NULL, NULL);
    ck_assert_int_eq(status, 200);
    ck_assert_str_eq(body, "100000");
    ck_assert_int_eq(memcmp(f.memory, "hello", 5), 0);
    close(fd);
    free(data);
    gb_http_fixture_stop(&f);
}
END_TEST

static void impatient(struct gb_http_server_config *config) {
    config->idle_timeout_s = 1;
    config->stall_timeout_s = 1;
    config->min_rate_bytes_s = 1000000;
    config->connections_max = 10;
}

/* Silence, a header that never ends, and bodies that stop: each connection is ended, each body with a 408. */
START_TEST(slow_clients_are_dropped) {
    static const char *const slow[] = {
        "",
        "GET /canned HT",
        "GET /canned HTTP/1.1\r\nHost: localhost\r\nX-",
        "PUT /drop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nabc",
        "PUT /drop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc",
        "PUT /drop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"};
    int fds[6];
    int i;

    gb_http_fixture_start(&f, impatient);
    for (i = 0; i < 6; i++) {
        fds[i] = gb_client(&f);
        gb_client_text(fds[i], slow[i]);
    }
    for (i = 0; i < 6; i++) {
        ck_assert_int_eq(gb_client_reply(fds[i], NULL, 0, NULL, NULL), i < 3 ? 0 : 408);
        ck_assert(gb_client_at_end(fds[i]));
        close(fds[i]);
    }
    gb_http_fixture_stop(&f);
}
END_TEST

static void narrow(struct gb_http_server_config *config) {
    config->connections_max = 10;
}

START_TEST(one_connection_too_many_is_told_so) {
    struct gb_http_server_stat stat;
    int fds[10];
    int fd;
    int i;

    gb_http_fixture_start(&f, narrow);
    for (i = 0; i < 10; i++) {
        fds[i] = gb_client(&f);
        gb_client_text(fds[i], "GET /wait?never HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    do {
        gb_http_server_stat(f.server, &stat);
    } while (stat.requests < 10);
    fd = gb_client(&f);
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 503);
    close(fd);
    gb_http_server_stat(f.server, &stat);
    ck_assert_uint_eq(stat.refused, 1);
    for (i = 0; i < 10; i++)
        close(fds[i]);
    gb_http_fixture_stop(&f);
}
END_TEST

/* Clients that vanish at every stage; the fixture's stop checks that every sink and source was freed. */
START_TEST(resets_leak_nothing) {
    char *data = calloc(1, 200000);
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    unsigned seed = 1;
    int i;

    gb_http_fixture_start(&f, NULL);
    for (i = 0; i < 300; i++) {
        static const char *const heads[] = {
            "PUT /drop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 150000\r\n\r\n",
            "PUT /drop?slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 150000\r\n\r\n",
            "GET /b/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "PUT /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 150000\r\n\r\n",
        };
        int fd = gb_client(&f);

        atomic_store(&f.stored, 20000000);
        gb_client_text(fd, heads[i % 5]);
        gb_client_send(fd, data, (size_t)rand_r(&seed) % 200000);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
        close(fd);
    }
    free(data);
    gb_http_fixture_stop(&f);
}
END_TEST

/* Stopping the server in the middle of everything takes bounded time and leaves nothing behind. */
START_TEST(stop_ends_whatever_runs) {
    static const char *const heads[] = {
        "PUT /drop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 150000\r\n\r\nabc",
        "PUT /drop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "GET /b/x HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /can"};
    struct gb_http_server_stat stat;
    int fds[4];
    int i;

    gb_http_fixture_start(&f, NULL);
    atomic_store(&f.stored, 20000000);
    for (i = 0; i < 4; i++) {
        fds[i] = gb_client(&f);
        gb_client_text(fds[i], heads[i]);
    }
    do { /* until every request that can begin has begun */
        gb_http_server_stat(f.server, &stat);
    } while (stat.requests < 3);
    gb_http_server_stop(f.server, 10);
    f.server = NULL;
    for (i = 0; i < 4; i++)
        close(fds[i]);
    ck_assert_uint_eq(atomic_load(&f.ended), 3);
    gb_http_fixture_stop(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("http server, hostile clients");

    gb_test_add(suite, "errors", each_gets_its_own_error, 60);
    gb_test_add(suite, "smuggling", nothing_is_smuggled, 60);
    gb_test_add(suite, "expect refused", expecting_clients_are_refused_before_the_body, 60);
    gb_test_add(suite, "refused sender", a_refused_sender_still_reads_why, 60);
    gb_test_add(suite, "error in a body", an_error_in_the_middle_of_a_body_arrives, 60);
    gb_test_add(suite, "early body", bytes_before_100_continue_are_not_lost, 60);
    gb_test_add(suite, "slow", slow_clients_are_dropped, 60);
    gb_test_add(suite, "too many", one_connection_too_many_is_told_so, 60);
    gb_test_add(suite, "resets", resets_leak_nothing, 120);
    gb_test_add(suite, "stop", stop_ends_whatever_runs, 60);
    return gb_test_run(suite);
}
