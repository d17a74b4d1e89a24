/* The server with well-behaved clients: every path of a body or an answer, and keep-alive after each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gb_test.h"
#include "http_fixture.h"

#define GET_CANNED "GET /canned HTTP/1.1\r\nHost: localhost\r\n\r\n"

static struct gb_http_fixture f;

static char *pattern(size_t n) {
    char *p = malloc(n + 1);
    size_t i;

    ck_assert_ptr_nonnull(p);
    for (i = 0; i < n; i++)
        p[i] = (char)(i * 2654435761u >> 13);
    return p;
}

/* Uploads on fd and checks the bytes that arrived. pieces: the number of sends for the body. */
static void upload(int fd, const char *path, size_t n, bool expect, unsigned pieces) {
    char *data = pattern(n);
    char head[256];
    char body[64];
    size_t step = n / pieces + 1;
    size_t at;

    snprintf(head, sizeof(head), "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n%s\r\n", path, n,
             expect ? "Expect: 100-continue\r\n" : "");
    gb_client_text(fd, head);
    if (expect)
        ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 100);
    for (at = 0; at < n; at += step)
        gb_client_send(fd, data + at, at + step < n ? step : n - at);
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
    ck_assert_uint_eq(strtoull(body, NULL, 10), n);
    ck_assert_msg(memcmp(f.memory, data, n) == 0, "%zu bytes in %u pieces arrived changed", n, pieces);
    free(data);
}

static void expect_canned(int fd) {
    char body[64];

    gb_client_text(fd, GET_CANNED);
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
    ck_assert_str_eq(body, "constant");
}

START_TEST(uploads_keep_the_connection) {
    static const size_t sizes[] = {0, 1, 1000, 16384, 65535, 65536, 300000, 5000001};
    size_t i;
    int fd;

    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        upload(fd, "/b/x", sizes[i], false, 1);
        if (sizes[i] > 0) {
            upload(fd, "/b/x", sizes[i], true, 1);
            upload(fd, "/b/x", sizes[i], false, 7);
            upload(fd, "/slow", sizes[i], false, 3);
        }
        expect_canned(fd);
    }
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

START_TEST(downloads_keep_the_connection) {
    static const size_t sizes[] = {0, 1, 65535, 65536, 7000001};
    char *body = malloc(8000000);
    size_t len;
    size_t i;
    int fd;

    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        bool closes;

        upload(fd, "/b/x", sizes[i], false, 1);
        gb_client_text(fd, "GET /b/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
        ck_assert_int_eq(gb_client_reply(fd, body, 8000000, &len, &closes), 200);
        ck_assert_uint_eq(len, sizes[i]);
        ck_assert(!closes);
        ck_assert_int_eq(memcmp(body, f.memory, len), 0);
    }
    free(body);
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

START_TEST(chunked_bodies_arrive) {
    char body[64];
    int fd;

    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    gb_client_text(fd, "PUT /b/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
    ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
    ck_assert_str_eq(body, "11");
    ck_assert_int_eq(memcmp(f.memory, "hello world", 11), 0);
    expect_canned(fd);
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

START_TEST(json_waits_and_canned_answers) {
    char body[64];
    int fd;
    int i;

    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    for (i = 0; i < 50; i++) {
        gb_client_text(fd, "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}");
        ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
        ck_assert_str_eq(body, "2");
        gb_client_text(fd, "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
        ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 200);
        gb_client_text(fd, "GET /canned HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: \"two\", \"one\"\r\n\r\n");
        ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 304);
        gb_client_text(fd, "HEAD /b/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
        ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 200);
    }
    gb_client_text(fd, "GET /wait?never HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, NULL, NULL), 503);
    expect_canned(fd);
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

START_TEST(pipelined_requests_are_answered_in_order) {
    char body[64];
    int fd;
    int i;

    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    gb_client_text(fd, GET_CANNED "GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n" GET_CANNED GET_CANNED);
    for (i = 0; i < 4; i++) {
        ck_assert_int_eq(gb_client_reply(fd, body, sizeof(body), NULL, NULL), 200);
        ck_assert_str_eq(body, i == 1 ? "0" : "constant");
    }
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

/* libmicrohttpd may hold the second request when the first one's answer leaves for a transfer loop: then the connection
 * must end after the first answer, so that the client asks again. */
START_TEST(a_request_behind_a_long_answer_is_never_lost_silently) {
    bool closes;
    size_t len;
    int fd;

    gb_http_fixture_start(&f, NULL);
    fd = gb_client(&f);
    upload(fd, "/b/x", 1000000, false, 1);
    gb_client_text(fd, "GET /b/x HTTP/1.1\r\nHost: localhost\r\n\r\n" GET_CANNED);
    ck_assert_int_eq(gb_client_reply(fd, NULL, 0, &len, &closes), 200);
    ck_assert_uint_eq(len, 1000000);
    ck_assert(closes);
    ck_assert(gb_client_at_end(fd));
    close(fd);
    gb_http_fixture_stop(&f);
}
END_TEST

static void tight(struct gb_http_server_config *config) {
    config->loops = 1;
}

/* libmicrohttpd's own loop stops when exactly 128 (or a multiple) are ready at once (doc/design/data-path.md, trap
 * 1). */
START_TEST(hundreds_ready_at_once) {
    static const int counts[] = {127, 128, 129, 256, 257, 512};
    int fds[512];
    size_t k;
    int i;

    gb_http_fixture_start(&f, tight);
    for (i = 0; i < 512; i++) {
        fds[i] = gb_client(&f);
        expect_canned(fds[i]);
    }
    for (k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        for (i = 0; i < counts[k]; i++)
            gb_client_text(fds[i], GET_CANNED);
        for (i = 0; i < counts[k]; i++)
            ck_assert_int_eq(gb_client_reply(fds[i], NULL, 0, NULL, NULL), 200);
    }
    for (i = 0; i < 512; i++)
        close(fds[i]);
    gb_http_fixture_stop(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("http server");

    gb_test_add(suite, "uploads", uploads_keep_the_connection, 60);
    gb_test_add(suite, "downloads", downloads_keep_the_connection, 60);
    gb_test_add(suite, "chunked", chunked_bodies_arrive, 60);
    gb_test_add(suite, "small answers", json_waits_and_canned_answers, 60);
    gb_test_add(suite, "pipelining", pipelined_requests_are_answered_in_order, 60);
    gb_test_add(suite, "pipelining behind a long answer", a_request_behind_a_long_answer_is_never_lost_silently, 60);
    gb_test_add(suite, "128 at once", hundreds_ready_at_once, 60);
    return gb_test_run(suite);
}
