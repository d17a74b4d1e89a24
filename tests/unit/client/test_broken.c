/* libgpubuf: faulty replies of a server, and the requests that the library retries. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client_fixture.h"

#define HEAD(status, bytes) "HTTP/1.1 " status "\r\nContent-Length: " bytes "\r\n\r\n"
#define BUFFER "{\"name\":\"x\",\"bytes\":3}"
#define GOOD HEAD("200 OK", "22") BUFFER

static struct fake_server fake;
static struct { struct gpubuf_error err; } f;

static void setup(void) {
    memset(&fake, 0, sizeof(fake));
}

/* --- answers that are none ---------------------------------------------------------------------------------------- */

static const struct {
    const char *answer;
    int code;
    int status;
    bool retryable;
    unsigned looks; /* no HTTP came: a second connection asks whether TLS is spoken, a third for HTTP without it */
} bad[] = {
    {"", GPUBUF_CONNECTION_LOST, 0, true, 2},
    {"HTTP/1.1 200 OK\r\nContent-Le", GPUBUF_BAD_ANSWER, 0, false, 0},
    {"SSH-2.0-OpenSSH_9.2\r\n\r\n", GPUBUF_BAD_ANSWER, 0, false, 1},
    {HEAD("200 OK", "100") "{\"name\":", GPUBUF_CONNECTION_LOST, 0, true, 0},
    {HEAD("200 OK", "0"), GPUBUF_BAD_ANSWER, 0, false, 0},
    {HEAD("200 OK", "5") "hello", GPUBUF_BAD_ANSWER, 0, false, 0},
    {HEAD("200 OK", "2") "[]", GPUBUF_BAD_ANSWER, 0, false, 0},
    {HEAD("200 OK", "2") "{}", GPUBUF_BAD_ANSWER, 0, false, 0},
    {HEAD("200 OK", "10") "{\"id\":\"17\"}", GPUBUF_BAD_ANSWER, 0, false, 0},
    {HEAD("200 OK", "8") "{\"id\":\"x\",\"state\":\"done\"}", GPUBUF_BAD_ANSWER, 0, false, 0},
    {"HTTP/1.1 204 No Content\r\n\r\n", GPUBUF_BAD_ANSWER, 0, false, 0},
    {"HTTP/1.1 304 Not Modified\r\n\r\n", GPUBUF_BAD_ANSWER, 0, false, 0},
    {"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", GPUBUF_BAD_ANSWER, 0, false,
     0},
    {HEAD("202 Accepted", "10") "{\"id\":\"1\"}", GPUBUF_BAD_ANSWER, 0, false, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", GPUBUF_CONNECTION_LOST, 0, true, 0},
    {HEAD("500 Oops", "13") "<html></html>", GPUBUF_BAD_ANSWER, 500, false, 0},
    {HEAD("502 Bad Gateway", "0"), GPUBUF_BAD_ANSWER, 502, true, 0},
    {HEAD("404 Not Found", "42") "{\"code\":\"buffer_not_found\",\"status\":\"404\"}", GPUBUF_BAD_ANSWER, 404, false,
     0},
    {HEAD("409 Conflict", "36") "{\"code\":\"of_tomorrow\",\"status\":409 }", GPUBUF_UNKNOWN_PROBLEM, 409, false, 0},
    {HEAD("507 Full", "55") "{\"code\":\"out_of_memory\",\"status\":507,\"retryable\":false}", GPUBUF_OUT_OF_MEMORY,
     507, false, 0},
};

START_TEST(bad_answers) {
    const char *const answers[] = {bad[_i].answer, NULL};
    gpubuf_client *client;

    fake_start(&fake, answers);
    client = fake_client(&fake);
    ck_assert_int_eq(gpubuf_operation_wait(client, "x", 1, &f.err), -1);
    ck_assert_msg(f.err.code == bad[_i].code, "%d: %s: %s", _i, f.err.slug, f.err.detail);
    ck_assert_int_eq(f.err.status, bad[_i].status);
    ck_assert_int_eq(f.err.retryable, bad[_i].retryable);
    if (bad[_i].code == GPUBUF_UNKNOWN_PROBLEM)
        ck_assert_str_eq(f.err.slug, "of_tomorrow");
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 1 + bad[_i].looks);
}
END_TEST

START_TEST(silence) {
    static const char *const half[] = {HEAD("200 OK", "10") "abc", NULL};
    static const char *const none[] = {"", NULL};
    gpubuf_client *client;

    fake.keep = true;
    fake_start(&fake, _i == 0 ? half : none);
    client = fake_client(&fake);
    client_fails(&f, client_ask(client, "GET", "/v1/sessions/s/buffers/x", NULL, &f.err), GPUBUF_CLIENT_TIMEOUT);
    gpubuf_close(client);
    fake_stop(&fake);
}
END_TEST

/* An operation is asked for until it has ended; the error of one that failed is the call's. */
START_TEST(operations) {
    static const char *const failed[] = {
        HEAD("200 OK", "29") "{\"id\":\"17\",\"state\":\"running\"}",
        HEAD("200 OK", "90") "{\"id\":\"17\",\"state\":\"failed\",\"problem\":"
                             "{\"code\":\"out_of_memory\",\"status\":507,\"detail\":\"no\"}}",
        HEAD("200 OK", "28") "{\"id\":\"17\",\"state\":\"failed\"}",
        HEAD("200 OK", "31") "{\"id\":\"17\",\"state\":\"cancelled\"}", NULL};
    gpubuf_client *client;

    fake_start(&fake, failed);
    client = fake_client(&fake);
    client_fails(&f, gpubuf_operation_wait(client, "17", 0, &f.err), GPUBUF_OUT_OF_MEMORY);
    ck_assert_int_eq(f.err.status, 507);
    client_fails(&f, gpubuf_operation_wait(client, "17", 0, &f.err), GPUBUF_BAD_ANSWER);
    client_fails(&f, gpubuf_operation_wait(client, "17", 0, &f.err), GPUBUF_CANCELLED);
    client_fails(&f, gpubuf_operation_wait(client, "", 0, &f.err), GPUBUF_BAD_ARGUMENT);
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 4);
}
END_TEST

/* --- again -------------------------------------------------------------------------------------------------------- */

#define BUSY                                                                                                           \
    "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 50\r\n\r\n"                                                \
    "{\"code\":\"saturated\",\"status\":503,\"retryable\":true}"

static gpubuf_client *patient_client(void) {
    struct gpubuf_options options = {.url = fake.url};
    gpubuf_client *client = NULL;

    ck_assert_int_eq(gpubuf_open(&options, &client, &f.err), 0);
    return client;
}

START_TEST(repeated) {
    static const char *const busy[] = {BUSY, "", GOOD, NULL};
    static const char *const lost[] = {
        "", HEAD("404 Not Found", "41") "{\"code\":\"buffer_not_found\",\"status\":404} ", NULL};
    static const char *const key[] = {"Idempotency-Key: k", NULL};
    static const char *const only[] = {"If-Match: \"1\"", NULL};
    gpubuf_client *client;

    fake_start(&fake, busy);
    client = patient_client();
    client_ok(&f, client_ask(client, "GET", "/v1/sessions/s/buffers/x", NULL, &f.err));
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 3);
    fake_start(&fake, busy);
    client = patient_client();
    client_fails(&f, client_ask(client, "POST", "/v1/sessions/s/buffers/x/seal", "{}", &f.err), GPUBUF_SATURATED);
    client_ok(&f, gpubuf_request(client, "POST", "/v1/sessions/s/buffers/x/seal", key, "{}", 2, &f.err));
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 3);
    fake_start(&fake, lost);
    client = patient_client();
    client_ok(&f, client_ask(client, "DELETE", "/v1/sessions/s/buffers/x", NULL, &f.err));
    client_fails(&f, client_ask(client, "DELETE", "/v1/sessions/s/buffers/x", NULL, &f.err), GPUBUF_BUFFER_NOT_FOUND);
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 3);
    fake_start(&fake, lost);
    client = patient_client();
    client_fails(&f, gpubuf_request(client, "DELETE", "/v1/sessions/s/buffers/x", only, NULL, 0, &f.err),
                 GPUBUF_CONNECTION_LOST);
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 2); /* the second asks whether TLS is spoken there */
}
END_TEST

#define BROKEN "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 10\r\n\r\nabcd"
#define REST(etag, from)                                                                                               \
    "HTTP/1.1 206 Partial\r\nETag: " etag "\r\nContent-Range: bytes " from "-9/10\r\nContent-Length: 6\r\n\r\nefghij"

START_TEST(goes_on) {
    static const char *const good[] = {BROKEN, REST("\"1\"", "4"), NULL};
    static const char *const other[] = {BROKEN, REST("\"2\"", "4"), NULL};
    static const char *const wrong[] = {BROKEN, REST("\"1\"", "3"), NULL};
    static const char *const whole[] = {BROKEN, BROKEN, NULL};
    static const char *const *const all[] = {good, other, wrong, whole};
    gpubuf_client *client;
    char back[11] = "";

    fake_start(&fake, all[_i]);
    client = patient_client();
    if (_i == 0) {
        client_ok(&f, gpubuf_get(client, "s", "x", gpubuf_to_memory(back, 10), NULL, NULL, &f.err));
        ck_assert_str_eq(back, "abcdefghij");
    } else {
        client_fails(&f, gpubuf_get(client, "s", "x", gpubuf_to_memory(back, 10), NULL, NULL, &f.err),
                     GPUBUF_BAD_ANSWER);
    }
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 2);
    ck_assert_ptr_nonnull(strstr(fake.last, "Range: bytes=4-\r\n"));
    ck_assert_ptr_nonnull(strstr(fake.last, "If-Match: \"1\"\r\n"));
}
END_TEST

/* A body in memory is sent again from its beginning; one from a pipe is not. */
START_TEST(sent_again) {
    static const char *const busy[] = {BUSY, GOOD, NULL};
    gpubuf_client *client;
    int ends[2];

    fake_start(&fake, busy);
    client = patient_client();
    client_ok(&f, gpubuf_put(client, "s", "x", gpubuf_from_memory("abc", 3), NULL, NULL, &f.err));
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 2);
    ck_assert_ptr_nonnull(strstr(fake.last, "Content-Length: 3\r\n"));
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(write(ends[1], "abc", 3), 3);
    fake_start(&fake, busy);
    client = patient_client();
    client_fails(&f, gpubuf_put(client, "s", "x", gpubuf_from_fd(ends[0], -1, 3), NULL, NULL, &f.err),
                 GPUBUF_SATURATED);
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 1);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

#define MIB (1u << 20)

static bool put_expects(gpubuf_client *client, struct gpubuf_source source) {
    client_ok(&f, gpubuf_put(client, "s", "x", source, NULL, NULL, &f.err));
    return strstr(fake.last, "\r\nExpect: 100-continue\r\n") != NULL;
}

/* A body that a refusal would save from being sent is announced: a large one, and one that cannot be sent again. */
START_TEST(expects) {
    static const char *const answers[] = {GOOD, NULL};
    static const char bytes[MIB + 1];
    gpubuf_client *client;
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(write(ends[1], "abcabc", 6), 6);
    fake_start(&fake, answers);
    client = fake_client(&fake);
    client_ok(&f, client_ask(client, "POST", "/v1/sessions/s/buffers", "{\"name\":\"x\"}", &f.err));
    ck_assert_ptr_null(strcasestr(fake.last, "\r\nExpect:"));
    ck_assert(!put_expects(client, gpubuf_from_memory(bytes, 0)));
    ck_assert(!put_expects(client, gpubuf_from_memory(bytes, 3)));
    ck_assert(!put_expects(client, gpubuf_from_memory(bytes, MIB)));
    ck_assert(put_expects(client, gpubuf_from_memory(bytes, MIB + 1)));
    ck_assert(put_expects(client, gpubuf_from_fd(ends[0], -1, 3)));
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_uint_eq(fake.served, 6);
    fake.keep = true; /* it reads no chunks: to close would break them off */
    fake_start(&fake, answers);
    client = fake_client(&fake);
    close(ends[1]);
    ck_assert(put_expects(client, gpubuf_from_fd(ends[0], -1, GPUBUF_UNKNOWN)));
    close(ends[0]);
    gpubuf_close(client);
    fake_stop(&fake);
}
END_TEST

/* A part has another generation, another range, or no body. */
static const char *const parts[][3] = {
    {"HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 10\r\n\r\n", GOOD, NULL},
    {"HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 10\r\n\r\n", REST("\"1\"", "4"), NULL},
    {"HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 10\r\n\r\n", "", NULL},
};

START_TEST(bad_parts) {
    struct gpubuf_get_params params = {.connections = 2, .part_bytes = 6};
    gpubuf_client *client;
    char back[10];

    fake_start(&fake, parts[_i]);
    client = fake_client(&fake);
    client_fails(&f, gpubuf_get(client, "s", "x", gpubuf_to_memory(back, 10), &params, NULL, &f.err),
                 _i == 2 ? GPUBUF_CONNECTION_LOST : GPUBUF_BAD_ANSWER);
    gpubuf_close(client);
    fake_stop(&fake);
}
END_TEST

START_TEST(checksums) {
    static const char *const get[] = {"HTTP/1.1 200 OK\r\nGpubuf-Crc32c: 00000001\r\nContent-Length: 3\r\n\r\nabc",
                                      HEAD("200 OK", "3") "abc", NULL};
    struct gpubuf_get_params params = {.check = true};
    struct gpubuf_put_params put = {.check = true};
    static const char *const made[] = {GOOD, NULL};
    gpubuf_client *client;
    char back[3];

    fake_start(&fake, get);
    client = fake_client(&fake);
    client_fails(&f, gpubuf_get(client, "s", "x", gpubuf_to_memory(back, 3), &params, NULL, &f.err),
                 GPUBUF_CHECK_FAILED);
    client_fails(&f, gpubuf_get(client, "s", "x", gpubuf_to_memory(back, 3), &params, NULL, &f.err),
                 GPUBUF_CHECK_FAILED);
    gpubuf_close(client);
    fake_stop(&fake);
    fake_start(&fake, made);
    client = fake_client(&fake);
    client_fails(&f, gpubuf_put(client, "s", "x", gpubuf_from_memory("abc", 3), &put, NULL, &f.err),
                 GPUBUF_CHECK_FAILED);
    client_fails(&f, gpubuf_put(client, "s", "x", gpubuf_from_memory("abcd", 4), &put, NULL, &f.err),
                 GPUBUF_CHECK_FAILED);
    gpubuf_close(client);
    fake_stop(&fake);
}
END_TEST

/* --- mappings ----------------------------------------------------------------------------------------------------- */

#define EARLY "HTTP/1.1 103 Early Hints\r\n\r\n"
#define LEASE(way, fds, map)                                                                                           \
    "{\"lease\":\"17\",\"way\":\"" way "\",\"bytes\":4096,\"map_bytes\":" map ",\"fds\":" fds "}"

static const struct {
    const char *answer;
    unsigned fds;
    int code;
} grants[] = {
    {"", 0, GPUBUF_CONNECTION_LOST},
    {"junk\r\n", 0, GPUBUF_BAD_ANSWER},
    {EARLY "HTTP/1.1 200 OK\r\n\r\n", 1, GPUBUF_BAD_ANSWER},
    {EARLY HEAD("200 OK", "99999999999"), 1, GPUBUF_BAD_ANSWER},
    {EARLY HEAD("200 OK", "100") "{", 1, GPUBUF_CONNECTION_LOST},
    {EARLY HEAD("200 OK", "2") "{}", 1, GPUBUF_BAD_ANSWER},
    {EARLY HEAD("200 OK", "2") "{}more", 1, GPUBUF_BAD_ANSWER},
    {EARLY HEAD("200 OK", "66") LEASE("memfd", "1", "4096"), 0, GPUBUF_BAD_ANSWER},
    {EARLY HEAD("200 OK", "66") LEASE("memfd", "1", "4096"), 2, GPUBUF_BAD_ANSWER},
    {EARLY HEAD("200 OK", "66") LEASE("memfd", "1", "4096"), 12, GPUBUF_BAD_ANSWER},
    {EARLY HEAD("200 OK", "66") LEASE("memfd", "1", "8192"), 1, GPUBUF_BAD_ANSWER},
    {EARLY HEAD("200 OK", "66") LEASE("memfd", "1", "4095"), 1, GPUBUF_BAD_ANSWER},
    {EARLY HEAD("200 OK", "67") LEASE("legacy", "0", "4096"), 0, GPUBUF_BAD_ANSWER},
    {EARLY HEAD("200 OK", "66") LEASE("magic", "1", "4096"), 1, GPUBUF_CANNOT_MAP},
    {HEAD("403 No", "49") "{\"code\":\"local_only\",\"status\":403,\"detail\":\"no\"} ", 0, GPUBUF_LOCAL_ONLY},
    {EARLY HEAD("200 OK", "66") LEASE("memfd", "1", "4096"), 1, GPUBUF_OK},
};

/* Descriptors open in this process. */
static int open_fds(void) {
    int count = 0;
    int fd;

    for (fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

START_TEST(bad_grants) {
    const char *const answers[] = {grants[_i].answer, NULL};
    gpubuf_mapping *m = NULL;
    gpubuf_client *client;
    int before;

    fake.local = true;
    fake.fds = grants[_i].fds;
    fake.send_fd = memfd_create("test", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(fake.send_fd, 4096), 0);
    before = open_fds();
    fake_start(&fake, answers);
    client = fake_client(&fake);
    if (grants[_i].code == GPUBUF_OK) {
        client_ok(&f, gpubuf_map(client, "s", "x", NULL, &m, &f.err));
        ck_assert_uint_eq(gpubuf_mapping_info_of(m)->bytes, 4096);
        gpubuf_unmap(m, &f.err);
    } else {
        client_fails(&f, gpubuf_map(client, "s", "x", NULL, &m, &f.err), grants[_i].code);
        ck_assert_ptr_null(m);
    }
    gpubuf_close(client);
    fake_stop(&fake);
    ck_assert_int_eq(open_fds(), before);
    close(fake.send_fd);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

int main(void) {
    Suite *suite = suite_create("client_broken");
    TCase *tcase = tcase_create("broken");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_loop_test(tcase, bad_answers, 0, COUNT(bad));
    tcase_add_loop_test(tcase, silence, 0, 2);
    tcase_add_test(tcase, operations);
    tcase_add_test(tcase, repeated);
    tcase_add_loop_test(tcase, goes_on, 0, 4);
    tcase_add_test(tcase, sent_again);
    tcase_add_test(tcase, expects);
    tcase_add_loop_test(tcase, bad_parts, 0, COUNT(parts));
    tcase_add_test(tcase, checksums);
    tcase_add_loop_test(tcase, bad_grants, 0, COUNT(grants));
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
