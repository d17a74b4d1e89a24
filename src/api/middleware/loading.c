#include "api/middleware/loading.h"

#include <stdlib.h>

#include "api/context.h"
#include "api/middleware/hook.h"
#include "base/clock.h"
#include "core/core.h"

/* How long a request waits without "Prefer: wait", unless --wait-max is less. */
#define WAIT_S 3600

struct loading {
    struct gb_load_waiter waiter;
    struct gb_core *core;
    struct gb_http_request *request; /* a reference */
};

static void wake(void *arg) {
    gb_http_wake(arg);
}

static void loading_free(void *state) {
    struct loading *loading = state;

    gb_loads_leave(loading->core, &loading->waiter);
    gb_http_request_unref(loading->request);
    free(loading);
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct loading *loading = request->state;

    if (request->timed_out) {
        gb_error_set(err, GB_ERR_TIMED_OUT,
                     "the bytes are on disk and were not loaded in the permitted time; try again");
        return GB_STEP_ERROR;
    }
    request->state = NULL;
    request->state_free = NULL;
    loading_free(loading);
    return request->route->handler(request, response, err);
}

/* The work of a handler that was refused is dropped with its state, and before it the way to cancel it, which another
 * thread may be about to go. */
static bool wait_for_load(struct gb_http_request *request, struct gb_http_response *response, uint64_t sequence) {
    uint64_t wait_s = gb_http_prefer_wait(request, WAIT_S, WAIT_S, NULL);
    struct loading *loading = wait_s > 0 ? calloc(1, sizeof(*loading)) : NULL;

    if (!loading)
        return false;
    gb_request_hooks_offer(request, NULL);
    if (request->state_free)
        request->state_free(request->state);
    gb_http_response_done(response);
    loading->core = gb_api_of(request)->core;
    loading->request = gb_http_request_ref(request);
    loading->waiter.waker = (struct gb_waker){wake, request};
    request->state = loading;
    request->state_free = loading_free;
    request->resume = resume;
    request->deadline_ns = request->started_ns + wait_s * GB_NS_PER_S;
    if (!gb_loads_wait(loading->core, sequence, &loading->waiter))
        gb_http_wake(request);
    return true;
}

enum gb_step gb_loading_run(gb_http_handler *handler, struct gb_http_request *request,
                            struct gb_http_response *response, struct gb_error *err) {
    uint64_t sequence = gb_loads_sequence(gb_api_of(request)->core);
    enum gb_step step = handler(request, response, err);

    if (step != GB_STEP_ERROR || err->code != GB_ERR_NOT_LOADED || request->timed_out ||
        request->route->body == GB_BODY_STREAM || !wait_for_load(request, response, sequence))
        return step;
    *err = GB_ERROR_INIT;
    return GB_STEP_WAIT;
}
