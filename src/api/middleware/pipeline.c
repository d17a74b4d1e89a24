#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/middleware/hook.h"
#include "api/middleware/loading.h"
#include "api/middleware/operations.h"
#include "api/reply/reply_json.h"
#include "api/route.h"

static void end_operation(struct gb_request_hooks *hooks, struct gb_http_response *response) {
    struct gb_operation *op = hooks->op;

    hooks->op = NULL;
    if (op && op->number > 0)
        gb_operation_end(hooks->api->operations, op, response, &hooks->error);
    else if (op)
        gb_operations_give_back(hooks->api->operations, op);
}

static void hooks_free(void *arg) {
    struct gb_http_response none = {.status = 503};
    struct gb_request_hooks *hooks = arg;

    /* An operation that is still there: the server ended before the work did. */
    gb_error_set(&hooks->error, GB_ERR_DRAINING, "the daemon has stopped");
    end_operation(hooks, &none);
    gb_idempotency_free(hooks);
    free(hooks);
}

void gb_request_hooks_stream(const struct gb_http_request *request, const struct gb_name *stream) {
    if (request->hooks)
        ((struct gb_request_hooks *)request->hooks)->stream = *stream;
}

void gb_request_hooks_stay(struct gb_http_request *request, bool stays) {
    if (request->hooks)
        ((struct gb_request_hooks *)request->hooks)->stays = stays;
}

/* Work that begins when the client has left already, as of a request that asked the fleet's directory first. */
void gb_request_hooks_offer(struct gb_http_request *request,
                            bool (*cancel)(struct gb_http_request *request, bool act)) {
    struct gb_request_hooks *hooks = request->hooks;

    if (request->detached && hooks && hooks->op)
        gb_operation_offer(hooks->api->operations, hooks->op, request, cancel);
    else
        request->cancel = cancel;
}

struct gb_store_mark gb_request_hooks_mark(const struct gb_http_request *request) {
    struct gb_request_hooks *hooks = request->hooks;

    return hooks && hooks->claimed ? gb_key_mark(hooks->api->core, &hooks->key) : (struct gb_store_mark){.key = ""};
}

void gb_request_hooks_done(const struct gb_http_request *request) {
    if (request->hooks)
        ((struct gb_request_hooks *)request->hooks)->done = true;
}

/* --- leaving ------------------------------------------------------------------------------------------------------ */

static enum gb_step reply_accepted(struct gb_operations *ops, struct gb_operation *op,
                                   struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};

    gb_operation_render(ops, op, &out);
    if (gb_http_response_header(response, err, "Location", "/v1/operations/%s", op->id) < 0 ||
        gb_http_response_header(response, err, "Preference-Applied", "respond-async") < 0) {
        gb_json_done(&out);
        return GB_STEP_ERROR;
    }
    return gb_reply_json(&out, 202, response, err);
}

/* The handler waits, so the client gets its 202 and the request goes on detached. */
static enum gb_step leave(struct gb_request_hooks *hooks, struct gb_http_request *request,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_operations *ops = hooks->api->operations;
    struct gb_operation *op = hooks->op;
    enum gb_step step;

    op->stream = hooks->stream;
    if (gb_operation_publish(ops, op, request, err) < 0) {
        *err = GB_ERROR_INIT;
        return GB_STEP_WAIT;
    }
    if (hooks->claimed)
        gb_key_note(hooks->api->core, &hooks->key, op->id);
    gb_operation_ref(ops, op);
    gb_operation_attach(ops, op, gb_http_detach(request)); /* the detached request owns hooks now */
    step = reply_accepted(ops, op, response, err);
    gb_operation_unref(ops, op);
    return step;
}

/* The work of a key goes on and its reply is kept, also when the client does not wait that long. */
static enum gb_step outlast(struct gb_http_request *request, struct gb_error *err) {
    gb_http_detach(request);
    gb_error_set(
        err, GB_ERR_TIMED_OUT,
        "the work has not ended in the permitted time; it goes on: ask again with the same key for its answer");
    return GB_STEP_ERROR;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void explain_cancelled(struct gb_operations *ops, const struct gb_operation *op, struct gb_error *err) {
    if (err->code != GB_ERR_CANCELLED || gb_operation_cancel_said(ops, op))
        return;
    *err = GB_ERROR_INIT;
    if (op->gone == GB_ERR_SESSION_MOVING)
        gb_error_set(err, op->gone,
                     "the session \"%s\" has gone to another node of the fleet meanwhile; ask there for it again",
                     op->session.s);
    else if (op->gone == GB_ERR_SUPERSEDED)
        gb_error_set(err, op->gone, "another node of the fleet has the session \"%s\" now", op->session.s);
    else
        gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "the session \"%s\" was deleted meanwhile", op->session.s);
}

static enum gb_step conclude(struct gb_request_hooks *hooks, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    if (request->detached && hooks->step == GB_STEP_ERROR) {
        gb_http_problem(response, request, &hooks->error);
        hooks->step = GB_STEP_REPLY;
    }
    end_operation(hooks, response);
    if (hooks->step == GB_STEP_ERROR)
        *err = hooks->error;
    return hooks->step;
}

static enum gb_step end(struct gb_request_hooks *hooks, enum gb_step step, struct gb_http_request *request,
                        struct gb_http_response *response, struct gb_error *err) {
    hooks->step = step;
    if (step == GB_STEP_ERROR) {
        if (request->detached && hooks->op)
            explain_cancelled(hooks->api->operations, hooks->op, err);
        hooks->error = *err;
        *err = GB_ERROR_INIT;
    }
    if (hooks->claimed && gb_idempotency_end(hooks, request, response))
        return GB_STEP_WAIT;
    return conclude(hooks, request, response, err);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

/* Replies with the operation of the first request with this key, to a client that asks for one as well. */
static enum gb_step join(struct gb_request_hooks *hooks, struct gb_http_response *response, struct gb_error *err) {
    struct gb_operations *ops = hooks->api->operations;
    const char *note = hooks->first.note;
    struct gb_operation *op = hooks->op && note[0] ? gb_operation_find(ops, note, NULL) : NULL;
    enum gb_step step;

    if (!op)
        return GB_STEP_ERROR;
    *err = GB_ERROR_INIT;
    step = reply_accepted(ops, op, response, err);
    gb_operation_unref(ops, op);
    return step;
}

/* The bodies that come here are whole, or say in other ways where they belong. Ignoring it would take a part for the
 * whole, or put it elsewhere (RFC 9110, 14.5). */
static int refuse_range(const struct gb_http_request *request, struct gb_error *err) {
    bool sends = request->method == GB_HTTP_PUT || request->method == GB_HTTP_PATCH || request->method == GB_HTTP_POST;

    if (!sends || !gb_http_header(request, "Content-Range"))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "Content-Range is not taken; send a part of data to ?offset=N, or append it at Upload-Offset: "
                        "N, where the route has these, and else the whole");
}

/* Reads what the request asks for. Returns WAIT to go on with *ret, which is NULL when it asks for nothing; any other
 * step is the reply. */
static enum gb_step begin(struct gb_http_request *request, struct gb_http_response *response,
                          struct gb_request_hooks **ret, struct gb_error *err) {
    const struct gb_route *route = gb_route_of(request);
    bool keyed = gb_idempotency_wanted(request);
    struct gb_request_hooks *hooks;
    bool async = false;
    enum gb_step step;

    if (refuse_range(request, err) < 0)
        return GB_STEP_ERROR;
    if (route->operation[0])
        gb_http_prefer_wait(request, 0, 0, &async);
    if (!async && !keyed)
        return GB_STEP_WAIT;
    hooks = calloc(1, sizeof(*hooks));
    if (!hooks) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    hooks->api = gb_api_of(request);
    request->hooks = hooks;
    request->hooks_free = hooks_free;
    if (gb_http_may_detach(request, err) < 0)
        return GB_STEP_ERROR;
    hooks->op = async ? gb_operations_reserve(hooks->api->operations, gb_route_reads(route), err) : NULL;
    if (async && !hooks->op)
        return GB_STEP_ERROR;
    *ret = hooks;
    if (!keyed)
        return GB_STEP_WAIT;
    step = gb_idempotency_begin(hooks, request, response, err);
    return step == GB_STEP_ERROR && err->code == GB_ERR_KEY_IN_USE ? join(hooks, response, err) : step;
}

enum gb_step gb_api_pipeline(gb_http_handler *handler, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct gb_request_hooks *hooks = request->hooks;
    enum gb_step step = GB_STEP_WAIT;

    if (!hooks)
        step = begin(request, response, &hooks, err);
    if (step != GB_STEP_WAIT)
        return step;
    if (!hooks)
        return gb_loading_run(handler, request, response, err);
    if (hooks->saving)
        return gb_idempotency_saved(hooks) || request->timed_out ? conclude(hooks, request, response, err)
                                                                 : GB_STEP_WAIT;
    if (hooks->claimed && request->timed_out && !request->detached)
        return outlast(request, err);
    step = gb_loading_run(handler, request, response, err);
    if (step == GB_STEP_BODY)
        return hooks->claimed ? gb_key_sink_wrap(hooks, request, err) : step;
    hooks->began = true;
    if (step != GB_STEP_WAIT)
        return end(hooks, step, request, response, err);
    /* A client that leaves does not end the work of its key: it will ask again. */
    if (hooks->claimed && !hooks->op && !request->detached)
        request->cancel = NULL;
    if (!hooks->op || request->detached || hooks->stays)
        return step;
    return leave(hooks, request, response, err);
}
