/* Pools and streams of a session, and devices. Every session sees the devices' default pools. */
#include <stdio.h>
#include <string.h>

#include "api/async.h"
#include "api/body.h"
#include "api/context.h"
#include "api/render.h"
#include "base/clock.h"

/* The session's name from the path, when there is such a session. */
static int find_session(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    struct gb_session_view view;

    if (gb_param_name(request, 0, "session name", ret, err) < 0)
        return -1;
    return gb_session_get(gb_api_of(request)->core, ret, &view, err);
}

static enum gb_step send(struct gb_out *out, struct gb_http_response *response, struct gb_error *err) {
    return gb_out_reply(out, response, 200, err) < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

enum gb_step gb_api_pool_list(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_pool_view view;
    struct gb_out out = {0};
    struct gb_name session;
    unsigned i;

    if (find_session(request, &session, err) < 0)
        return GB_STEP_ERROR;
    gb_render_list_open(&out);
    for (i = 0; i < gb_pool_count(api->core); i++) {
        if (gb_pool_at(api->core, i, &view, err) < 0) {
            gb_out_done(&out);
            return GB_STEP_ERROR;
        }
        gb_render_pool(&out, NULL, api, &view);
    }
    gb_render_list_close(&out, false, 0);
    return send(&out, response, err);
}

static enum gb_step send_pool(struct gb_http_request *request, const struct gb_name *session,
                              const struct gb_name *pool, struct gb_http_response *response, struct gb_error *err) {
    struct gb_pool_view view;
    struct gb_out out = {0};

    if (gb_pool_get(gb_api_of(request)->core, session, pool, &view, err) < 0)
        return GB_STEP_ERROR;
    gb_render_pool(&out, NULL, gb_api_of(request), &view);
    return send(&out, response, err);
}

enum gb_step gb_api_pool_get(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct gb_name session;
    struct gb_name pool;

    if (find_session(request, &session, err) < 0 || gb_param_name(request, 1, "pool name", &pool, err) < 0)
        return GB_STEP_ERROR;
    return send_pool(request, &session, &pool, response, err);
}

static enum gb_step reply_trimmed(struct gb_http_request *request, const struct gb_call *call,
                                  struct gb_http_response *response, struct gb_error *err) {
    struct gb_name session;
    struct gb_name pool;

    (void)call;
    if (gb_param_name(request, 0, "session name", &session, err) < 0 ||
        gb_param_name(request, 1, "pool name", &pool, err) < 0)
        return GB_STEP_ERROR;
    return send_pool(request, &session, &pool, response, err);
}

enum gb_step gb_api_pool_trim(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_core *core = gb_api_of(request)->core;
    struct gb_pool_view view;
    struct gb_call *call;
    struct gb_name session;
    struct gb_name pool;
    uint64_t keep_bytes = 0;
    json_t *body;
    int r;

    if (find_session(request, &session, err) < 0 || gb_param_name(request, 1, "pool name", &pool, err) < 0 ||
        gb_pool_get(core, &session, &pool, &view, err) < 0 ||
        gb_body_object(request, "keep_bytes", true, &body, err) < 0)
        return GB_STEP_ERROR;
    r = gb_json_u64(body, "keep_bytes", &keep_bytes, err);
    json_decref(body);
    if (r < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, err);
    if (!call)
        return GB_STEP_ERROR;
    gb_pool_trim_to(core, &session, &pool, keep_bytes, call);
    return gb_async_end(request, response, reply_trimmed, 0, err);
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

static int find_stream(const struct gb_http_request *request, struct gb_name *ret_session, struct gb_name *ret_stream,
                       struct gb_error *err) {
    if (find_session(request, ret_session, err) < 0 || gb_param_name(request, 1, "stream name", ret_stream, err) < 0)
        return -1;
    if (strcmp(ret_stream->s, "default") != 0)
        return gb_error_set(err, GB_ERR_STREAM_NOT_FOUND, "the session '%s' has no stream '%s'", ret_session->s,
                            ret_stream->s);
    return 0;
}

enum gb_step gb_api_stream_list(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_out out = {0};
    struct gb_name session;

    if (find_session(request, &session, err) < 0)
        return GB_STEP_ERROR;
    gb_render_list_open(&out);
    gb_render_stream(&out, NULL, session.s, "default");
    gb_render_list_close(&out, false, 0);
    return send(&out, response, err);
}

static enum gb_step send_stream(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_out out = {0};
    struct gb_name session;
    struct gb_name stream;

    if (find_stream(request, &session, &stream, err) < 0)
        return GB_STEP_ERROR;
    gb_render_stream(&out, NULL, session.s, stream.s);
    return send(&out, response, err);
}

enum gb_step gb_api_stream_get(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    return send_stream(request, response, err);
}

static enum gb_step reply_synced(struct gb_http_request *request, const struct gb_call *call,
                                 struct gb_http_response *response, struct gb_error *err) {
    (void)call;
    return send_stream(request, response, err);
}

#define SYNC_WAIT_S 30
#define SYNC_WAIT_MAX_S 60

enum gb_step gb_api_stream_sync(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    unsigned wait_s = gb_http_prefer_wait(request, SYNC_WAIT_S, SYNC_WAIT_MAX_S, NULL);
    struct gb_call *call;
    struct gb_name session;
    struct gb_name stream;
    json_t *body;

    if (find_stream(request, &session, &stream, err) < 0 || gb_body_object(request, "", true, &body, err) < 0)
        return GB_STEP_ERROR;
    json_decref(body);
    call = gb_async_begin(request, err);
    if (!call)
        return GB_STEP_ERROR;
    gb_stream_sync_call(gb_api_of(request)->core, &session, &stream, call);
    return gb_async_end(request, response, reply_synced, gb_clock_ns() + wait_s * GB_NS_PER_S, err);
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

enum gb_step gb_api_device_list(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_api *api = gb_api_of(request);
    struct gb_device_rec rec;
    struct gb_out out = {0};
    int i;

    gb_render_list_open(&out);
    for (i = 0; i < api->devices; i++) {
        if (gb_device_get(api->core, i, &rec, err) < 0) {
            gb_out_done(&out);
            return GB_STEP_ERROR;
        }
        gb_render_device(&out, NULL, &rec);
    }
    gb_render_list_close(&out, false, 0);
    return send(&out, response, err);
}

enum gb_step gb_api_device_get(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_core *core = gb_api_of(request)->core;
    struct gb_device_rec rec;
    struct gb_out out = {0};
    int device;

    if (strlen(request->param[0].s) != request->param[0].len) {
        gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "a device is named by its index or UUID");
        return GB_STEP_ERROR;
    }
    if (gb_device_find(core, request->param[0].s, &device, err) < 0 || gb_device_get(core, device, &rec, err) < 0)
        return GB_STEP_ERROR;
    gb_render_device(&out, NULL, &rec);
    return send(&out, response, err);
}
