/* Heads of answers, as a pull reads them. */
#include <stdlib.h>
#include <string.h>

#include "fleet/pull/source.h"
#include "gb_test.h"

static struct gb_pull_head head;

static int take(const char *text) {
    return gb_pull_head_read(text, strlen(text), &head);
}

START_TEST(a_range) {
    static const char text[] = "HTTP/1.1 206 Partial Content\r\nETag: \"1.1.a\"\r\ncontent-length:  100 \r\n"
                               "Content-Range: bytes 5-104/1000\r\nGpubuf-Crc32c: 0a1b2c3d\r\nGpubuf-Generation: 7\r\n"
                               "Retry-After: 3\r\nConnection: keep-alive\r\n\r\n";

    ck_assert_int_eq(take(text), (int)sizeof(text) - 1);
    ck_assert_int_eq(head.status, 206);
    ck_assert(head.has_length && head.length == 100);
    ck_assert(head.has_range && head.first == 5 && head.last == 104 && head.total == 1000);
    ck_assert(head.has_crc32c && head.crc32c == 0x0a1b2c3d);
    ck_assert(head.has_generation && head.generation == 7);
    ck_assert_str_eq(head.tag, "\"1.1.a\"");
    ck_assert_uint_eq(head.retry_after_s, 3);
    ck_assert(!head.coded && !head.closes && !head.registered);
}
END_TEST

START_TEST(of_a_registered_session) {
    ck_assert_int_gt(take("HTTP/1.1 200 OK\r\nGpubuf-Epoch: 3\r\n\r\n"), 0);
    ck_assert(head.registered);
    ck_assert_int_gt(take("HTTP/1.1 200 OK\r\nGpubuf-Replica: true\r\n\r\n"), 0);
    ck_assert(head.registered);
}
END_TEST

START_TEST(whole_or_not_yet) {
    static const char text[] = "HTTP/1.1 200 OK\nContent-Length: 1\nLocation: http://h/x\n\nbody";
    size_t n;

    for (n = 0; n < strlen(text) - 4; n++)
        ck_assert_int_eq(gb_pull_head_read(text, n, &head), 0);
    ck_assert_int_eq(take(text), (int)strlen(text) - 4);
    ck_assert_str_eq(head.location, "http://h/x");
}
END_TEST

static const struct {
    const char *text;
    bool coded;
    bool closes;
} said[] = {
    {"HTTP/1.0 200 OK\r\n\r\n", false, true},
    {"HTTP/1.1 200\r\n\r\n", false, false},
    {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", false, true},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true, false},
    {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", true, false},
    {"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\n\r\n", false, false},
    {"HTTP/1.1 416 X\r\nContent-Range: bytes */5\r\n\r\n", false, false}, /* of a refusal, not of bytes */
};

START_TEST(what_it_says) {
    ck_assert_int_eq(take(said[_i].text), (int)strlen(said[_i].text));
    ck_assert_int_eq(head.coded, said[_i].coded);
    ck_assert_int_eq(head.closes, said[_i].closes);
    ck_assert(!head.has_range && !head.has_length);
}
END_TEST

static const char *const none[] = {
    "SSH-2.0-OpenSSH\r\n",
    "HTTP/2 200\r\n\r\n",
    "HTTP/1.1 20 OK\r\n\r\n",
    "HTTP/1.1 099 X\r\n\r\n",
    "HTTP/1.1 200OK\r\n\r\n",
    "HTTP/1.x 200 OK\r\n\r\n",
    "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    "HTTP/1.1 200 OK\r\n: nameless\r\n\r\n",
    "HTTP/1.1 200 OK\r\nA: b\r\n folded: c\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "HTTP/1.1 206 X\r\nContent-Range: bytes 5-4/10\r\n\r\n",
    "HTTP/1.1 206 X\r\nContent-Range: bytes 0-10/10\r\n\r\n",
    "HTTP/1.1 206 X\r\nContent-Range: bytes 0-9/*\r\n\r\n",
    "HTTP/1.1 206 X\r\nContent-Range: items 0-9/10\r\n\r\n",
    "HTTP/1.1 206 X\r\nContent-Range: bytes\r\n\r\n",
};

START_TEST(what_is_none) {
    ck_assert_int_eq(take(none[_i]), -1);
}
END_TEST

START_TEST(one_that_never_ends) {
    static char text[GB_PULL_HEAD_MAX];

    memset(text, 'x', sizeof(text));
    ck_assert_int_eq(gb_pull_head_read(text, sizeof(text), &head), -1);
    memcpy(text, "HTTP/1.1 200 OK\r\n", 17);
    ck_assert_int_eq(gb_pull_head_read(text, sizeof(text) - 1, &head), 0);
    ck_assert_int_eq(gb_pull_head_read(text, sizeof(text), &head), -1);
}
END_TEST

START_TEST(what_is_too_long_is_left_out) {
    char *text = calloc(1, 8192);

    ck_assert_ptr_nonnull(text);
    strcpy(text, "HTTP/1.1 200 OK\r\nETag: \"");
    memset(text + strlen(text), 'e', 200);
    strcat(text, "\"\r\nLocation: ");
    memset(text + strlen(text), 'l', GB_PULL_LOCATION_SIZE);
    strcat(text, "\r\nGpubuf-Crc32c: 12345\r\n\r\n");
    ck_assert_int_gt(take(text), 0);
    ck_assert_str_eq(head.tag, "");
    ck_assert_str_eq(head.location, "");
    ck_assert(!head.has_crc32c);
    free(text);
    ck_assert_int_gt(take("HTTP/1.1 200 OK\r\nETag: \"a\tb\"\r\nRetry-After: 99999999\r\n\r\n"), 0);
    ck_assert_str_eq(head.tag, ""); /* it goes into a request */
    ck_assert_uint_eq(head.retry_after_s, 3600);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("head");
    TCase *tcase = tcase_create("head");

    tcase_add_test(tcase, a_range);
    tcase_add_test(tcase, of_a_registered_session);
    tcase_add_test(tcase, whole_or_not_yet);
    tcase_add_loop_test(tcase, what_it_says, 0, sizeof(said) / sizeof(said[0]));
    tcase_add_loop_test(tcase, what_is_none, 0, sizeof(none) / sizeof(none[0]));
    tcase_add_test(tcase, one_that_never_ends);
    tcase_add_test(tcase, what_is_too_long_is_left_out);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
