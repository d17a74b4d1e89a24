#include "api/middleware/async.h"

#include <stdlib.h>

#include "api/middleware/hook.h"

/* Under contention each round lets one of the rivals through. */
#define TRIES 16

struct wait {
    struct gb_call *call;
    gb_async_reply *reply;
    gb_http_handler *retry; /* NULL: none */
    unsigned tries;         /* calls before this one */
};

static void wake(void *arg) {
    struct gb_http_request *request = arg;

    gb_http_wake(request);
    gb_http_request_unref(request);
}

static void wait_free(void *state) {
    struct wait *wait = state;

    gb_call_unref(wait->call);
    free(wait);
}

void *gb_async_begin(struct gb_http_request *request, size_t size, struct gb_error *err) {
    struct wait *wait = calloc(1, sizeof(*wait));

    /* The call's end may come after the request's. */
    if (wait)
        wait->call = gb_call_new(size, wake, gb_http_request_ref(request));
    if (!wait || !wait->call) {
        if (wait)
            gb_http_request_unref(request);
        free(wait);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return NULL;
    }
    if (request->state) {
        wait->tries = ((struct wait *)request->state)->tries + 1;
        wait_free(request->state);
    }
    wait->call->mark = gb_request_hooks_mark(request);
    request->state = wait;
    request->state_free = wait_free;
    return wait->call;
}

void gb_async_retry(struct gb_http_request *request, gb_http_handler *handler) {
    struct wait *wait = request->state;

    if (wait->tries < TRIES && !gb_http_header(request, "If-Match") && !gb_http_header(request, "If-None-Match"))
        wait->retry = handler;
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct wait *wait = request->state;

    if (atomic_load(&wait->call->finished)) {
        if (wait->call->error.code == GB_OK)
            gb_request_hooks_done(request);
        if (wait->call->error.code == GB_OK)
            return wait->reply(request, wait->call, response, err);
        if (wait->call->error.code == GB_ERR_PRECONDITION_FAILED && wait->retry && !request->timed_out)
            return wait->retry(request, response, err);
        *err = wait->call->error;
        return GB_STEP_ERROR;
    }
    if (request->timed_out) {
        gb_error_set(err, GB_ERR_TIMED_OUT, "the work was started and has not ended in the permitted time; it goes on");
        return GB_STEP_ERROR;
    }
    return GB_STEP_WAIT;
}

static bool cancel(struct gb_http_request *request, bool act) {
    return gb_call_cancel(((struct wait *)request->state)->call, act);
}

enum gb_step gb_async_end(struct gb_http_request *request, struct gb_http_response *response, gb_async_reply *reply,
                          uint64_t deadline_ns, struct gb_error *err) {
    struct wait *wait = request->state;

    wait->reply = reply;
    request->resume = resume;
    /* What is tried again has no call that stands for it. */
    if (!request->detached)
        request->cancel = wait->retry ? NULL : cancel;
    request->deadline_ns = deadline_ns;
    return resume(request, response, err);
}
