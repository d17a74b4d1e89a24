#include <stdlib.h>
#include <string.h>

#include "api/hook.h"
#include "api/operations.h"

static void hook_free(void *arg) {
    struct gb_http_response none = {.status = 503};
    struct gb_error error = GB_ERROR_INIT;
    struct gb_hook *hook = arg;

    /* The server ended before the work did. */
    if (hook->op && hook->op->number > 0) {
        gb_error_set(&error, GB_ERR_DRAINING, "the daemon has stopped");
        gb_operation_end(&hook->api->operations, hook->op, &none, &error);
    } else if (hook->op) {
        gb_operations_give_back(&hook->api->operations, hook->op);
    }
    free(hook);
}

void gb_hook_stream(const struct gb_http_request *request, const struct gb_name *stream) {
    if (request->hook)
        ((struct gb_hook *)request->hook)->stream = *stream;
}

/* 1: *ret is there; 0: nothing was asked for; -1. */
static int begin(struct gb_http_request *request, struct gb_hook **ret, struct gb_error *err) {
    struct gb_hook *hook;
    bool async = false;

    if (gb_operation_kind(request))
        gb_http_prefer_wait(request, 0, 0, &async);
    if (!async)
        return 0;
    hook = calloc(1, sizeof(*hook));
    if (!hook)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    hook->api = gb_api_of(request);
    request->hook = hook;
    request->hook_free = hook_free;
    if (gb_http_may_leave(request, err) < 0)
        return -1;
    hook->op = gb_operations_reserve(&hook->api->operations, err);
    if (!hook->op)
        return -1;
    *ret = hook;
    return 1;
}

/* --- leaving ------------------------------------------------------------------------------------------------------ */

static enum gb_step reply_accepted(struct gb_operations *ops, struct gb_operation *op,
                                   struct gb_http_response *response, struct gb_error *err) {
    struct gb_out out = {0};

    gb_operation_render(ops, op, &out);
    if (gb_http_response_header(response, err, "Location", "/v1/operations/%s", op->id) < 0 ||
        gb_http_response_header(response, err, "Preference-Applied", "respond-async") < 0) {
        gb_out_done(&out);
        return GB_STEP_ERROR;
    }
    return gb_out_reply(&out, response, 202, err) < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
}

/* The handler waits: the client need not. */
static enum gb_step leave(struct gb_hook *hook, struct gb_http_request *request, struct gb_http_response *response,
                          struct gb_error *err) {
    struct gb_operations *ops = &hook->api->operations;
    struct gb_operation *op = hook->op;
    enum gb_step step;

    op->stream = hook->stream;
    if (gb_operation_publish(ops, op, request, err) < 0)
        return GB_STEP_WAIT;
    gb_operation_ref(ops, op);
    gb_operation_attach(ops, op, gb_http_leave(request)); /* hook is the other's now */
    step = reply_accepted(ops, op, response, err);
    gb_operation_unref(ops, op);
    return step;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void explain_cancelled(const struct gb_operation *op, struct gb_error *err) {
    if (err->code != GB_ERR_CANCELLED || op->cancel_said)
        return;
    *err = GB_ERROR_INIT;
    gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "the session \"%s\" was deleted meanwhile", op->session.s);
}

static enum gb_step end(struct gb_hook *hook, enum gb_step step, struct gb_http_request *request,
                        struct gb_http_response *response, struct gb_error *err) {
    struct gb_operations *ops = &hook->api->operations;
    struct gb_operation *op = hook->op;

    hook->op = NULL;
    if (!op)
        return step;
    if (!request->detached) {
        gb_operations_give_back(ops, op);
        return step;
    }
    if (step == GB_STEP_ERROR) {
        explain_cancelled(op, err);
        gb_http_problem(response, request, err);
    }
    gb_operation_end(ops, op, response, err);
    return GB_STEP_REPLY;
}

enum gb_step gb_api_around(gb_http_handler *handler, struct gb_http_request *request, struct gb_http_response *response,
                           struct gb_error *err) {
    struct gb_hook *hook = request->hook;
    enum gb_step step;
    int r = hook ? 1 : begin(request, &hook, err);

    if (r < 0)
        return GB_STEP_ERROR;
    step = handler(request, response, err);
    if (r == 0 || step == GB_STEP_BODY)
        return step;
    if (step != GB_STEP_WAIT)
        return end(hook, step, request, response, err);
    if (!hook->op || request->detached)
        return step;
    return leave(hook, request, response, err);
}
