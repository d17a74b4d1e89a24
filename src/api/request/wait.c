#include "api/request/wait.h"

#include "base/clock.h"

uint64_t gb_sync_deadline_ns(const struct gb_http_request *request) {
    return gb_clock_ns() + gb_http_prefer_wait(request, GB_SYNC_WAIT_S, GB_SYNC_WAIT_MAX_S, NULL) * GB_NS_PER_S;
}
