#include "api/reply/timing.h"

#include <string.h>

#include "base/clock.h"
#include "base/encoding.h"

/* Four metrics with their numbers. */
#define TEXT_SIZE 160

/* One metric: milliseconds with three decimals. Returns the end of what was written. */
static char *put(char *at, const char *name, double ms) {
    uint64_t us = ms > 0 ? (uint64_t)(ms * 1000 + 0.5) : 0;

    at = stpcpy(stpcpy(at, name), ";dur=");
    at = gb_digits(at, us / 1000);
    *at++ = '.';
    at = gb_digits_padded(at, us % 1000, 3);
    *at = '\0';
    return at;
}

static double ms_since(const struct gb_http_request *request, uint64_t now_ns) {
    return (double)(now_ns - request->started_ns) / GB_NS_PER_MS;
}

static int add(const struct gb_http_request *request, const struct gb_transfer_times *times, char *text, char *at,
               struct gb_http_response *response, struct gb_error *err) {
    if (!times->sampled) { /* else they are another's */
        at = put(at, "queue", times->queue_ms);
        at = put(stpcpy(at, ", "), "copy", times->copy_ms);
        at = stpcpy(at, ", ");
    }
    put(at, "total", ms_since(request, gb_clock_ns()));
    return gb_http_response_header(response, err, "Server-Timing", "%s", text);
}

int gb_add_timing(const struct gb_http_request *request, const struct gb_transfer_times *times,
                  struct gb_http_response *response, struct gb_error *err) {
    char text[TEXT_SIZE];

    return add(request, times, text, text, response, err);
}

int gb_add_upload_timing(const struct gb_http_request *request, const struct gb_transfer_times *times, uint64_t recv_ns,
                         struct gb_http_response *response, struct gb_error *err) {
    char text[TEXT_SIZE];
    char *at = put(text, "recv", ms_since(request, recv_ns));

    return add(request, times, text, stpcpy(at, ", "), response, err);
}
