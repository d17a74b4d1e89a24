/* The head of a reply: every byte of it, at given times. */
#include "http/message/response.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gb_test.h"

time_t __real_time(time_t *ret);
time_t __wrap_time(time_t *ret);

static time_t present = -1; /* what time() says; -1: the truth */

time_t __wrap_time(time_t *ret) {
    time_t now = present == -1 ? __real_time(NULL) : present;

    if (ret)
        *ret = now;
    return now;
}

static struct gb_http_request request;
static struct gb_http_response response;

static void begin(void) {
    memset(&request, 0, sizeof(request));
    memset(&response, 0, sizeof(response));
    request.method = GB_HTTP_PUT;
    strcpy(request.id, "7f");
    response.status = 200;
    present = 784111777;
}

static void expect(uint64_t body_len, bool close, const char *wanted) {
    char out[1024];
    size_t n = gb_head_write(&request, &response, body_len, close, out, sizeof(out));

    ck_assert_uint_lt(n, sizeof(out));
    out[n] = '\0';
    ck_assert_str_eq(out, wanted);
}

#define ID "X-Request-Id: 7f\r\n"
#define DATE "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n" ID

/* The example of RFC 9110, the first second, a leap day, and the first and last of a year. One thread writes them all:
 * what it keeps of one second is not sent in another. */
START_TEST(dates) {
    static const struct {
        time_t at;
        const char *date;
    } cases[] = {{784111777, "Sun, 06 Nov 1994 08:49:37 GMT"},  {784111777, "Sun, 06 Nov 1994 08:49:37 GMT"},
                 {784111778, "Sun, 06 Nov 1994 08:49:38 GMT"},  {0, "Thu, 01 Jan 1970 00:00:00 GMT"},
                 {951782400, "Tue, 29 Feb 2000 00:00:00 GMT"},  {1735689599, "Tue, 31 Dec 2024 23:59:59 GMT"},
                 {1735689600, "Wed, 01 Jan 2025 00:00:00 GMT"}, {1753488000, "Sat, 26 Jul 2025 00:00:00 GMT"},
                 {4133980799, "Fri, 31 Dec 2100 23:59:59 GMT"}, {253402300799, "Fri, 31 Dec 9999 23:59:59 GMT"},
                 {1745798400, "Mon, 28 Apr 2025 00:00:00 GMT"}};
    char wanted[200];
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        present = cases[i].at;
        snprintf(wanted, sizeof(wanted), "HTTP/1.1 200 OK\r\nDate: %s\r\n" ID "Content-Length: 0\r\n\r\n",
                 cases[i].date);
        expect(0, false, wanted);
    }
}
END_TEST

/* Every day of four years, against strftime (in the C locale). */
START_TEST(days) {
    char wanted[200];
    char date[64];
    struct tm tm;
    int day;

    for (day = 0; day < 4 * 366; day++) {
        present = 1672531200 + (time_t)day * 86400 + (day * 977) % 86400;
        gmtime_r(&present, &tm);
        strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
        snprintf(wanted, sizeof(wanted), "HTTP/1.1 200 OK\r\nDate: %s\r\n" ID "Content-Length: 0\r\n\r\n", date);
        expect(0, false, wanted);
    }
}
END_TEST

START_TEST(fields) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_http_response_header(&response, &err, "ETag", "\"%d\"", 7), err);
    gb_assert_ok(gb_http_response_header(&response, &err, "X", "%s", ""), err);
    expect(12345678901, false, "HTTP/1.1 200 OK\r\n" DATE "ETag: \"7\"\r\nX: \r\nContent-Length: 12345678901\r\n\r\n");
    expect(GB_HEAD_UNTIL_END, true, "HTTP/1.1 200 OK\r\n" DATE "ETag: \"7\"\r\nX: \r\nConnection: close\r\n\r\n");
    response.headers = 0;
    response.status = 204;
    expect(0, false, "HTTP/1.1 204 No Content\r\n" DATE "\r\n");
    response.status = 507;
    request.http10 = true;
    expect(3, false,
           "HTTP/1.1 507 Insufficient Storage\r\n" DATE "Content-Length: 3\r\nConnection: keep-alive\r\n\r\n");
    expect(3, true, "HTTP/1.1 507 Insufficient Storage\r\n" DATE "Content-Length: 3\r\nConnection: close\r\n\r\n");
    request.http10 = false;
    request.method = GB_HTTP_GET;
    response.status = 304;
    expect(3, false,
           "HTTP/1.1 304 Not Modified\r\n" DATE "X-Content-Type-Options: nosniff\r\n"
           "Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-cache\r\n\r\n");
    gb_assert_ok(gb_http_response_header(&response, &err, "Cache-Control", "no-store"), err);
    expect(3, false,
           "HTTP/1.1 304 Not Modified\r\n" DATE "X-Content-Type-Options: nosniff\r\n"
           "Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store\r\n\r\n");
}
END_TEST

/* A head that does not fit is none, and nothing is written behind the room. */
START_TEST(room) {
    char out[256];
    size_t whole = gb_head_write(&request, &response, 5, true, out, sizeof(out));
    size_t size;
    size_t n;
    size_t i;

    ck_assert_uint_gt(whole, 0);
    for (size = 0; size < whole + 3; size++) {
        memset(out, '#', sizeof(out));
        n = gb_head_write(&request, &response, 5, true, out, size);
        if (size < whole)
            ck_assert_uint_eq(n, 0);
        if (size > whole) /* with room to spare */
            ck_assert_uint_eq(n, whole);
        for (i = size; i < sizeof(out); i++)
            ck_assert_int_eq(out[i], '#');
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("head writer");
    TCase *tcase = tcase_create("head");

    tcase_add_checked_fixture(tcase, begin, NULL);
    tcase_add_test(tcase, dates);
    tcase_add_test(tcase, days);
    tcase_add_test(tcase, fields);
    tcase_add_test(tcase, room);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
