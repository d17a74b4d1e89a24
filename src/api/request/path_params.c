#include "api/request/path_params.h"

#include "api/reply/render.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "base/clock.h"
#include "base/crc32c.h"

int gb_path_session(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    struct gb_session_view view;

    if (gb_param_name(request, 0, "session name", ret, err) < 0)
        return -1;
    return gb_session_get(gb_api_of(request)->core, ret, &view, err);
}

int gb_path_names(const struct gb_http_request *request, const char *what, struct gb_name *ret_session,
                  struct gb_name *ret, struct gb_error *err) {
    if (gb_path_session(request, ret_session, err) < 0)
        return -1;
    return gb_param_name(request, 1, what, ret, err);
}

int gb_device_text(const struct gb_api *api, const char *text, size_t len, int *ret, struct gb_error *err) {
    if (strlen(text) != len)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "a device is named by its index or UUID");
    return gb_device_find(api->core, text, ret, err) < 0 ? -1 : 1;
}

int gb_device_field(const struct gb_api *api, const json_t *object, const char *key, int *ret, struct gb_error *err) {
    const json_t *value = json_object_get(object, key);
    const char *text;
    uint64_t index;

    if (json_is_string(value))
        return gb_json_string(object, key, &text, err) < 0 ? -1 : gb_device_text(api, text, strlen(text), ret, err);
    if (value && !json_is_integer(value))
        return gb_error_set(err, GB_ERR_WRONG_TYPE,
                            "the field '%s' must be a device: its index, or its UUID as a string", key);
    switch (gb_json_u64(object, key, &index, err)) {
    case 0:
        return 0;
    case 1:
        break;
    default:
        return -1;
    }
    if (index >= (uint64_t)api->devices)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND,
                            "there is no device %llu; GET /v1/devices lists the %d there are",
                            (unsigned long long)index, api->devices);
    *ret = (int)index;
    return 1;
}

int gb_body_stream(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    struct gb_name stream = {"default"};
    json_t *body;
    int r;

    if (gb_body_object(request, "stream", true, &body, err) < 0)
        return -1;
    r = gb_json_name(body, "stream", &stream, err);
    json_decref(body);
    if (r < 0)
        return -1;
    *ret = stream;
    return 0;
}

int gb_body_name(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "name", false, &body, err) < 0)
        return -1;
    r = gb_json_name(body, "name", ret, err);
    json_decref(body);
    if (r == 0)
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'name' is needed");
    return r > 0 ? 0 : -1;
}

uint64_t gb_sync_deadline_ns(const struct gb_http_request *request) {
    return gb_clock_ns() + gb_http_prefer_wait(request, GB_SYNC_WAIT_S, GB_SYNC_WAIT_MAX_S, NULL) * GB_NS_PER_S;
}

int gb_add_timing(const struct gb_http_request *request, const struct gb_transfer_times *times,
                  struct gb_http_response *response, struct gb_error *err) {
    return gb_http_response_header(response, err, "Server-Timing", "queue;dur=%.3f, copy;dur=%.3f, total;dur=%.3f",
                                   times->queue_ms, times->copy_ms,
                                   (double)(gb_clock_ns() - request->started_ns) * 1e-6);
}

enum gb_step gb_reply_json(struct gb_json_writer *out, int status, struct gb_http_response *response,
                           struct gb_error *err) {
    return gb_json_reply(out, response, status, err) < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
}

enum gb_step gb_reply_tagged(struct gb_json_writer *out, char kind, struct gb_http_response *response,
                             struct gb_error *err) {
    struct gb_http_canned *canned = NULL;
    char tag[40];

    gb_json_end(out);
    if (!out->failed) {
        snprintf(tag, sizeof(tag), "\"%c%08" PRIx32 "-%zx\"", kind, gb_crc32c(0, out->s, out->used), out->used);
        canned = gb_http_canned_new(200, "application/json", tag, out->s, out->used);
    }
    gb_json_done(out);
    if (!canned) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
        return GB_STEP_ERROR;
    }
    gb_http_response_canned(response, canned);
    return GB_STEP_REPLY;
}

enum gb_step gb_reply_nothing(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                              struct gb_error *err) {
    (void)request;
    (void)result;
    (void)err;
    response->status = 204;
    return GB_STEP_REPLY;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

enum gb_step gb_path_call(struct gb_http_request *request, struct gb_http_response *response, const char *what,
                          gb_named_fn *fn, struct gb_error *err) {
    struct gb_name session;
    struct gb_name name;
    struct gb_call *call;

    if (gb_path_names(request, what, &session, &name, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    fn(gb_api_of(request)->core, &session, &name, call);
    return gb_async_end(request, response, gb_reply_nothing, 0, err);
}

bool gb_walk_full(struct gb_walk *walk) {
    walk->full = gb_render_list_full(&walk->out);
    return walk->full;
}

enum gb_step gb_reply_page(struct gb_http_request *request, struct gb_http_response *response,
                           int (*list)(struct gb_walk *walk, bool *ret_more, struct gb_error *err),
                           struct gb_error *err) {
    struct gb_walk walk = {.api = gb_api_of(request)};
    bool more = false;

    if (gb_param_name(request, 0, "session name", &walk.session, err) < 0 || gb_page_read(request, &walk.page, err) < 0)
        return GB_STEP_ERROR;
    gb_render_list_open(&walk.out);
    if (list(&walk, &more, err) < 0) {
        gb_json_done(&walk.out);
        return GB_STEP_ERROR;
    }
    gb_render_list_close(&walk.out, more || walk.full, walk.last_id);
    return gb_reply_json(&walk.out, 200, response, err);
}

int gb_add_upload_timing(const struct gb_http_request *request, const struct gb_transfer_times *times, uint64_t recv_ns,
                         struct gb_http_response *response, struct gb_error *err) {
    const double ms = 1e-6;

    return gb_http_response_header(response, err, "Server-Timing",
                                   "recv;dur=%.3f, queue;dur=%.3f, copy;dur=%.3f, total;dur=%.3f",
                                   (double)(recv_ns - request->started_ns) * ms, times->queue_ms, times->copy_ms,
                                   (double)(gb_clock_ns() - request->started_ns) * ms);
}
