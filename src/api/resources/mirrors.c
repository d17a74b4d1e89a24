/* POST /v1/sessions/{session}/buffers/{buffer}/{sync,reserve,release}: the two sides of a mirrored buffer. */
#include <string.h>

#include "api/context.h"
#include "api/middleware/async.h"
#include "api/middleware/conditional.h"
#include "api/middleware/hook.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/reply/timing.h"
#include "api/request/actions.h"
#include "api/request/body.h"
#include "api/request/json.h"
#include "api/request/path_params.h"
#include "api/request/wait.h"
#include "api/route.h"

static int add_etag(const struct gb_buffer_call *call, struct gb_http_response *response, struct gb_error *err) {
    char etag[GB_ETAG_SIZE];

    return gb_http_response_header(response, err, "ETag", "\"%s\"", gb_etag_buffer(&call->buffer, etag));
}

static enum gb_step reply_synced(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                 struct gb_error *err) {
    const struct gb_buffer_call *call = result;
    struct gb_json_writer out = {0};

    if (add_etag(call, response, err) < 0 || gb_add_timing(request, &call->times, response, err) < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    gb_render_buffer_members(&out, gb_api_of(request), request->param[0].s, &call->buffer);
    gb_json_put_bool(&out, "copied", call->copied);
    gb_json_put_string(&out, "way", gb_copy_way_name(call->way));
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

static enum gb_step reply_sides(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                struct gb_error *err) {
    const struct gb_buffer_call *call = result;
    struct gb_json_writer out = {0};

    if (add_etag(call, response, err) < 0)
        return GB_STEP_ERROR;
    gb_render_buffer(&out, NULL, gb_api_of(request), request->param[0].s, &call->buffer);
    return gb_reply_json(&out, 200, response, err);
}

static int read_sync(const struct gb_http_request *request, struct gb_sides *ret_to, struct gb_name *ret_stream,
                     struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "to stream", false, &body, err) < 0)
        return -1;
    r = gb_action_read_sides(body, "to", false, ret_to, err);
    if (r == 0)
        r = gb_json_name(body, "stream", ret_stream, err);
    json_decref(body);
    return r < 0 ? -1 : 0;
}

static int read_reserve(const struct gb_http_request *request, struct gb_mirror_reserve *ret, struct gb_error *err) {
    struct gb_sides side;
    json_t *body;
    int r;

    if (gb_body_object(request, "bytes side stream", false, &body, err) < 0)
        return -1;
    r = gb_json_u64(body, "bytes", &ret->bytes, err);
    if (r == 0)
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'bytes': the least that the side is to hold");
    if (r > 0)
        r = gb_action_read_sides(body, "side", false, &side, err);
    if (r == 0) {
        ret->host = side.host;
        r = gb_json_name(body, "stream", &ret->stream, err);
    }
    json_decref(body);
    return r < 0 ? -1 : 0;
}

static int read_release(const struct gb_http_request *request, struct gb_sides *ret, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "side", false, &body, err) < 0)
        return -1;
    r = gb_action_read_sides(body, "side", true, ret, err);
    json_decref(body);
    return r;
}

/* Reads the conditions and begins the call. Returns NULL with *err. */
static struct gb_buffer_call *begin(struct gb_http_request *request, struct gb_buffer_check *ret_check,
                                    struct gb_error *err) {
    struct gb_conditions *conditions;
    struct gb_buffer_call *call;

    if (gb_conditions_read(request, &conditions, err) < 0)
        return NULL;
    call = gb_async_begin(request, sizeof(*call), err);
    if (call)
        *ret_check = gb_conditions_buffer_check(conditions);
    else
        gb_conditions_free(conditions);
    return call;
}

/* A wrong name is refused also when there is nothing to do. */
static int use_stream(struct gb_http_request *request, const struct gb_locator *buffer, const struct gb_name *stream,
                      struct gb_error *err) {
    struct gb_locator at = {buffer->session, *stream};
    struct gb_stream_view unused;

    if (gb_stream_get(gb_api_of(request)->core, &at, &unused, err) < 0)
        return -1;
    gb_request_hooks_stream(request, stream);
    return 0;
}

enum gb_step gb_api_buffer_sync(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_name stream = {"default"};
    struct gb_buffer_check check;
    struct gb_buffer_call *call;
    struct gb_locator at;
    struct gb_sides to;

    if (gb_path_locator(request, "buffer name", &at, err) < 0 || read_sync(request, &to, &stream, err) < 0 ||
        use_stream(request, &at, &stream, err) < 0)
        return GB_STEP_ERROR;
    call = begin(request, &check, err);
    if (!call)
        return GB_STEP_ERROR;
    gb_buffer_mirror_sync(gb_api_of(request)->core, &at, to.host, &stream, &check, call);
    return gb_async_end(request, response, reply_synced, gb_sync_deadline_ns(request), err);
}

enum gb_step gb_api_buffer_reserve(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct gb_mirror_reserve what = {.stream = {"default"}};
    struct gb_buffer_check check;
    struct gb_buffer_call *call;
    struct gb_locator at;

    if (gb_path_locator(request, "buffer name", &at, err) < 0 || read_reserve(request, &what, err) < 0 ||
        use_stream(request, &at, &what.stream, err) < 0)
        return GB_STEP_ERROR;
    what.wait_ms = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL) * 1000;
    call = begin(request, &check, err);
    if (!call)
        return GB_STEP_ERROR;
    gb_buffer_mirror_reserve(gb_api_of(request)->core, &at, &what, &check, call);
    return gb_async_end(request, response, reply_sides, 0, err);
}

enum gb_step gb_api_buffer_release(struct gb_http_request *request, struct gb_http_response *response,
                                   struct gb_error *err) {
    struct gb_buffer_check check;
    struct gb_buffer_call *call;
    struct gb_locator at;
    struct gb_sides side;

    if (gb_path_locator(request, "buffer name", &at, err) < 0 || read_release(request, &side, err) < 0)
        return GB_STEP_ERROR;
    call = begin(request, &check, err);
    if (!call)
        return GB_STEP_ERROR;
    gb_buffer_mirror_release(gb_api_of(request)->core, &at, side.host, side.device, &check, call);
    return gb_async_end(request, response, reply_sides, 0, err);
}
