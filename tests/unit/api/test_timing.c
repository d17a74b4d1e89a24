/* The text of Server-Timing. */
#include "api/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gb_test.h"

uint64_t __wrap_gb_clock_ns(void);

#define STARTED_NS 5000000000000

static uint64_t present_ns;

uint64_t __wrap_gb_clock_ns(void) {
    return present_ns;
}

static struct gb_http_request request;
static struct gb_http_response response;

static void begin(void) {
    memset(&request, 0, sizeof(request));
    memset(&response, 0, sizeof(response));
    request.started_ns = STARTED_NS;
}

static const char *timing(uint64_t total_ns, double queue_ms, double copy_ms) {
    struct gb_transfer_times times = {.queue_ms = queue_ms, .copy_ms = copy_ms};
    struct gb_error err = GB_ERROR_INIT;

    begin();
    present_ns = STARTED_NS + total_ns;
    gb_assert_ok(gb_add_timing(&request, &times, &response, &err), err);
    ck_assert_uint_eq(response.headers, 1);
    ck_assert_str_eq(response.header[0].name, "Server-Timing");
    return response.header[0].value;
}

static const char *upload_timing(uint64_t total_ns, uint64_t recv_ns, double queue_ms, double copy_ms) {
    struct gb_transfer_times times = {.queue_ms = queue_ms, .copy_ms = copy_ms};
    struct gb_error err = GB_ERROR_INIT;

    begin();
    present_ns = STARTED_NS + total_ns;
    gb_assert_ok(gb_add_upload_timing(&request, &times, STARTED_NS + recv_ns, &response, &err), err);
    ck_assert_uint_eq(response.headers, 1);
    ck_assert_str_eq(response.header[0].name, "Server-Timing");
    return response.header[0].value;
}

START_TEST(text) {
    ck_assert_str_eq(timing(0, 0, 0), "queue;dur=0.000, copy;dur=0.000, total;dur=0.000");
    ck_assert_str_eq(timing(12345678, 1.5, 0.25), "queue;dur=1.500, copy;dur=0.250, total;dur=12.346");
    ck_assert_str_eq(upload_timing(2000000, 1000, 0.001, 1.9),
                     "recv;dur=0.001, queue;dur=0.001, copy;dur=1.900, total;dur=2.000");
}
END_TEST

/* The third decimal is rounded; what carries reaches the digits before the point; there is no time before zero. */
START_TEST(rounding) {
    ck_assert_str_eq(timing(999400, 0.0004, 0.0006), "queue;dur=0.000, copy;dur=0.001, total;dur=0.999");
    ck_assert_str_eq(timing(999600, 9.9996, 0.0096), "queue;dur=10.000, copy;dur=0.010, total;dur=1.000");
    ck_assert_str_eq(timing(0, -1, -0.0001), "queue;dur=0.000, copy;dur=0.000, total;dur=0.000");
}
END_TEST

/* Twelve days, and what a transfer cannot take: they have room. */
START_TEST(long_times) {
    ck_assert_str_eq(upload_timing(1000000000000001, 1000000000000000, 1e9, 123456789.5),
                     "recv;dur=1000000000.000, queue;dur=1000000000.000, copy;dur=123456789.500, "
                     "total;dur=1000000000.000");
    ck_assert_str_eq(upload_timing(0, 0, 1e15, 1e15),
                     "recv;dur=0.000, queue;dur=1000000000000000.000, copy;dur=1000000000000000.000, total;dur=0.000");
}
END_TEST

/* Times of another copy are not this one's. */
START_TEST(sampled_times) {
    struct gb_transfer_times times = {.queue_ms = 1, .copy_ms = 2, .sampled = true};
    struct gb_error err = GB_ERROR_INIT;

    begin();
    present_ns = STARTED_NS + 3000;
    gb_assert_ok(gb_add_upload_timing(&request, &times, STARTED_NS + 1000, &response, &err), err);
    ck_assert_str_eq(response.header[0].value, "recv;dur=0.001, total;dur=0.003");
    begin();
    gb_assert_ok(gb_add_timing(&request, &times, &response, &err), err);
    ck_assert_str_eq(response.header[0].value, "total;dur=0.003");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("timing");

    gb_test_add(suite, "text", text, 4);
    gb_test_add(suite, "rounding", rounding, 4);
    gb_test_add(suite, "long", long_times, 4);
    gb_test_add(suite, "sampled", sampled_times, 4);
    return gb_test_run(suite);
}
