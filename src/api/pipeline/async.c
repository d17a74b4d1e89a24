/* The wait of a request for a call of the core: begun by the handler, woken by the call's end, answered by a function
 * of the handler's. A call that fails because the record has changed may run the handler again. Every resource whose
 * work takes time calls this, on the request's loop. */
#include "api/pipeline/async.h"

#include <stdlib.h>

#include "api/context.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/hook.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"

/* Under contention each round lets one of the rivals through. */
#define TRIES 16

struct wait {
    struct gb_call *call;
    gb_async_reply *reply;
    gb_http_handler *retry; /* may be NULL */
    enum gb_code retry_on;  /* PRECONDITION_FAILED, or what gb_async_again was given */
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

    /* The call may end after the request. */
    if (wait)
        wait->call = gb_call_new(size, wake, gb_http_request_ref(request));
    if (!wait || !wait->call) {
        if (wait)
            gb_http_request_unref(request);
        free(wait);
        gb_error_memory(err, "request");
        return NULL;
    }
    if (request->state) {
        gb_request_hooks_offer(request, NULL); /* as while bytes are loaded: hook.c */
        wait->tries = ((struct wait *)request->state)->tries + 1;
        wait_free(request->state);
    }
    wait->call->mark = gb_request_hooks_mark(request);
    request->state = wait;
    request->state_free = wait_free;
    return wait->call;
}

const void *gb_async_call(const struct gb_http_request *request) {
    return ((const struct wait *)request->state)->call;
}

void gb_async_retry(struct gb_http_request *request, gb_http_handler *handler) {
    struct wait *wait = request->state;

    if (wait->tries < TRIES && !gb_http_header(request, "If-Match") && !gb_http_header(request, "If-None-Match"))
        *wait = (struct wait){
            .call = wait->call, .retry = handler, .retry_on = GB_ERR_PRECONDITION_FAILED, .tries = wait->tries};
}

void gb_async_again(struct gb_http_request *request, gb_http_handler *handler, enum gb_code exists) {
    struct wait *wait = request->state;

    if (wait->tries < TRIES)
        *wait = (struct wait){.call = wait->call, .retry = handler, .retry_on = exists, .tries = wait->tries};
}

static enum gb_step rerun(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                          struct gb_error *err) {
    (void)result;
    return ((struct wait *)request->state)->retry(request, response, err);
}

/* The other request's change is on the way to the database. */
static enum gb_step await_other(struct gb_http_request *request, gb_http_handler *handler, unsigned tries,
                                struct gb_http_response *response, struct gb_error *err) {
    struct gb_call *call = gb_async_begin(request, sizeof(*call), err);
    struct wait *wait = request->state;

    if (!call)
        return GB_STEP_ERROR;
    wait->retry = handler;
    wait->tries = tries;
    gb_core_flush(gb_api_of(request)->core, call);
    return gb_async_end(request, response, rerun, 0, err);
}

unsigned gb_async_tries(const struct gb_http_request *request) {
    return request->state ? ((const struct wait *)request->state)->tries : 0;
}

bool gb_async_rerun(struct gb_http_request *request, gb_http_handler *handler, unsigned tries,
                    struct gb_http_response *response, enum gb_step *ret, struct gb_error *err) {
    if (tries >= TRIES)
        return false;
    *ret = await_other(request, handler, tries + 1, response, err);
    return true;
}

static enum gb_step resume(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct wait *wait = request->state;

    if (atomic_load(&wait->call->finished)) {
        if (wait->call->error.code == GB_OK)
            gb_request_hooks_done(request);
        if (wait->call->error.code == GB_OK)
            return wait->reply(request, wait->call, response, err);
        if (wait->retry && wait->call->error.code == wait->retry_on && !request->timed_out)
            return wait->retry_on == GB_ERR_PRECONDITION_FAILED
                       ? wait->retry(request, response, err)
                       : await_other(request, wait->retry, wait->tries + 1, response, err);
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
    /* A call that is tried again cannot be cancelled by this one. */
    gb_request_hooks_offer(request, wait->retry ? NULL : cancel);
    request->deadline_ns = deadline_ns;
    return resume(request, response, err);
}

/* --- whole handlers ----------------------------------------------------------------------------------------------- */

enum gb_step gb_path_call(struct gb_http_request *request, struct gb_http_response *response, const char *what,
                          gb_named_fn *fn, struct gb_error *err) {
    struct gb_locator at;
    struct gb_call *call;

    if (gb_path_locator(request, what, &at, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    fn(gb_api_of(request)->core, &at, call);
    return gb_async_end(request, response, gb_reply_nothing, 0, err);
}

struct gb_buffer_call *gb_buffer_call_begin(struct gb_http_request *request, struct gb_buffer_check *ret_check,
                                            struct gb_error *err) {
    struct gb_conditions *conditions;
    struct gb_buffer_call *call;
    struct gb_name stream = {""};

    if (gb_query_name(request, "stream", &stream, err) < 0 || gb_conditions_read(request, &conditions, err) < 0)
        return NULL;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call) {
        gb_conditions_free(conditions);
        return NULL;
    }
    call->stream = stream;
    *ret_check = gb_conditions_buffer_check(conditions);
    return call;
}

enum gb_step gb_path_buffer_call(struct gb_http_request *request, struct gb_http_response *response, gb_buffer_fn *fn,
                                 gb_async_reply *reply, struct gb_error *err) {
    struct gb_buffer_check check;
    struct gb_buffer_call *call;
    struct gb_locator at;

    if (gb_path_locator(request, "buffer name", &at, err) < 0 || gb_body_no_fields(request, err) < 0)
        return GB_STEP_ERROR;
    call = gb_buffer_call_begin(request, &check, err);
    if (!call)
        return GB_STEP_ERROR;
    fn(gb_api_of(request)->core, &at, &check, call);
    return gb_async_end(request, response, reply, 0, err);
}

/* --- replies ------------------------------------------------------------------------------------------------------ */

enum gb_step gb_reply_nothing(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                              struct gb_error *err) {
    (void)request;
    (void)result;
    (void)err;
    response->status = 204;
    return GB_STEP_REPLY;
}

enum gb_step gb_reply_buffer(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                             struct gb_error *err) {
    const struct gb_buffer_call *call = result;
    struct gb_json_writer out = {0};
    char etag[GB_ETAG_SIZE];

    if (gb_http_response_header(response, err, "ETag", "\"%s\"", gb_etag_buffer(&call->buffer, etag)) < 0)
        return GB_STEP_ERROR;
    if (call->created && gb_http_response_header(response, err, "Location", "/v1/sessions/%s/buffers/%s",
                                                 request->param[0].s, call->buffer.name.s) < 0)
        return GB_STEP_ERROR;
    gb_render_buffer(&out, NULL, gb_api_of(request), request->param[0].s, &call->buffer);
    return gb_reply_json(&out, call->created ? 201 : 200, response, err);
}

enum gb_step gb_written_reply(struct gb_http_request *request, const struct gb_buffer_call *call,
                              void (*more)(struct gb_json_writer *out, const void *call),
                              struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};
    char etag[GB_ETAG_SIZE];

    if (gb_http_response_header(response, err, "ETag", "\"%s\"", gb_etag_data(&call->buffer, GB_FORM_RAW, etag)) < 0 ||
        (call->created && gb_http_response_header(response, err, "Location", "/v1/sessions/%s/buffers/%s",
                                                  request->param[0].s, call->buffer.name.s) < 0) ||
        gb_add_timing(request, &call->times, response, err) < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    gb_render_buffer_members(&out, gb_api_of(request), request->param[0].s, &call->buffer);
    if (more)
        more(&out, call);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, call->created ? 201 : 200, response, err);
}
