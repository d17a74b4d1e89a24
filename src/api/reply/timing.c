#include "api/reply/timing.h"

#include "base/clock.h"

int gb_add_timing(const struct gb_http_request *request, const struct gb_transfer_times *times,
                  struct gb_http_response *response, struct gb_error *err) {
    return gb_http_response_header(response, err, "Server-Timing", "queue;dur=%.3f, copy;dur=%.3f, total;dur=%.3f",
                                   times->queue_ms, times->copy_ms,
                                   (double)(gb_clock_ns() - request->started_ns) * 1e-6);
}

int gb_add_upload_timing(const struct gb_http_request *request, const struct gb_transfer_times *times, uint64_t recv_ns,
                         struct gb_http_response *response, struct gb_error *err) {
    const double ms = 1e-6;

    return gb_http_response_header(response, err, "Server-Timing",
                                   "recv;dur=%.3f, queue;dur=%.3f, copy;dur=%.3f, total;dur=%.3f",
                                   (double)(recv_ns - request->started_ns) * ms, times->queue_ms, times->copy_ms,
                                   (double)(gb_clock_ns() - request->started_ns) * ms);
}
