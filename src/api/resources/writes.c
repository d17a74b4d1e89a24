/* POST /v1/sessions/{session}/buffers/{buffer}/{copy,fill}: writes that the device makes. A copy whose source another
 * daemon has goes to fleet/pull.c, one from a URL or a file to sources.c. */
#include <jansson.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/fleet/ask.h"
#include "api/pipeline/async.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/hook.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/leases.h"
#include "api/resources/sources.h"
#include "api/resources/upload.h"
#include "base/json_writer.h"
#include "core/core.h"
#include "http/http.h"

static void render_way(struct gb_json_writer *out, const void *call) {
    gb_json_put_string(out, "way", gb_copy_way_name(((const struct gb_buffer_call *)call)->way));
}

static enum gb_step reply_copied(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                 struct gb_error *err) {
    return gb_written_reply(request, result, render_way, response, err);
}

static enum gb_step reply_filled(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                 struct gb_error *err) {
    return gb_written_reply(request, result, NULL, response, err);
}

static enum gb_step write_buffer(struct gb_http_request *request, struct gb_device_write_params *params,
                                 struct gb_http_response *response, struct gb_error *err) {
    struct gb_buffer_call *call;

    if (params->share && gb_buffer_link_load(gb_api_of(request)->core, params, err) < 0)
        return GB_STEP_ERROR;
    params->wait_ms = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL) * 1000;
    params->holder = gb_share_holder(request);
    gb_request_hooks_stream(request, &params->stream);
    call = gb_buffer_call_begin(request, &params->check, err);
    if (!call)
        return GB_STEP_ERROR;
    (params->share ? gb_buffer_link : gb_buffer_write)(gb_api_of(request)->core, params, call);
    return gb_async_end(request, response, params->copy ? reply_copied : reply_filled, 0, err);
}

static int read_path(const struct gb_http_request *request, struct gb_device_write_params *params,
                     struct gb_error *err) {
    return gb_path_names(request, "buffer name", &params->session, &params->name, err);
}

/* From a buffer of this daemon, or of the node of its fleet that has the session. */
static enum gb_step copy(struct gb_http_request *request, const json_t *body, struct gb_http_response *response,
                         struct gb_error *err) {
    struct gb_device_write_params params = {.copy = true};
    struct gb_session_bond bond;

    if (read_path(request, &params, err) < 0 || gb_json_known(body, "copy", GB_COPY_FIELDS, err) < 0 ||
        gb_action_read_write(body, &params, err) < 0 || gb_conditions_source(body, &params, err) < 0)
        return GB_STEP_ERROR;
    /* The route needs scope write in its own session; the source is read in its session. */
    if (gb_api_permit(request, GB_SCOPE_READ, params.from_session.s, err) < 0 ||
        gb_api_reach(request, params.from.s, err) < 0)
        return GB_STEP_ERROR;
    if (gb_api_of(request)->fleet && !gb_session_bond(gb_api_of(request)->core, params.from_session.s, &bond))
        return gb_api_pull_session(request, &params.from_session, response, err);
    return write_buffer(request, &params, response, err);
}

enum gb_step gb_api_buffer_copy(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    enum gb_step step;
    json_t *body;

    if (gb_body_object(request, GB_COPY_OR_PULL_FIELDS " " GB_SOURCE_OWN_FIELDS, false, &body, err) < 0)
        return GB_STEP_ERROR;
    if (gb_api_source_is_asked(body))
        step = gb_api_source(request, body, response, err);
    else if (gb_json_known(body, "the body", GB_COPY_OR_PULL_FIELDS, err) < 0)
        step = GB_STEP_ERROR;
    else if (gb_api_pull_is_asked(body))
        step = gb_api_pull(request, body, response, err);
    else
        step = copy(request, body, response, err);
    json_decref(body);
    return step;
}

enum gb_step gb_api_buffer_fill(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_device_write_params params = {.copy = false};
    json_t *body;
    int r;

    if (read_path(request, &params, err) < 0 || gb_body_object(request, GB_FILL_FIELDS, false, &body, err) < 0)
        return GB_STEP_ERROR;
    r = gb_action_read_write(body, &params, err);
    json_decref(body);
    return r < 0 ? GB_STEP_ERROR : write_buffer(request, &params, response, err);
}
