/* POST /v1/sessions/{session}/buffers/{buffer}/export: CUDA's older handle as JSON, in the form that Triton
 * registers. */
#include <inttypes.h>
#include <stdio.h>

#include "api/context.h"
#include "api/middleware/conditional.h"
#include "api/reply/render.h"
#include "api/request/body.h"
#include "api/request/json.h"
#include "api/request/path_params.h"
#include "api/request/wait.h"
#include "api/route.h"
#include "api/share/grant.h"
#include "api/share/share.h"

/* raw_handle, device_id and byte_size are Triton's words; it ignores the other members. The bytes begin at the start of
 * the handle's memory. */
static void render(struct gb_json_writer *out, const struct gb_http_request *request,
                   const struct gb_lease_call *call) {
    const struct gb_lease_grant *lease = &call->lease;
    const struct gb_buffer_rec *rec = &call->buffer;
    char quoted[GB_ETAG_SIZE + 2];
    char etag[GB_ETAG_SIZE];
    char id[24];

    snprintf(id, sizeof(id), "%" PRId64, lease->id);
    snprintf(quoted, sizeof(quoted), "\"%s\"", gb_etag_data(rec, GB_FORM_RAW, etag));
    gb_json_open(out, NULL, '{');
    gb_json_open(out, "raw_handle", '{');
    gb_grant_handle(out, "b64", lease->export.handle);
    gb_json_close(out, '}');
    gb_json_put_i64(out, "device_id", lease->export.device);
    gb_json_put_u64(out, "byte_size", rec->bytes);
    gb_json_put_string(out, "lease", id);
    gb_json_put_time(out, "expires_at", lease->expires_at_us);
    gb_json_put_string(out, "session", request->param[0].s);
    gb_json_put_string(out, "buffer", rec->name.s);
    gb_json_put_string(out, "mode", lease->write ? "write" : "read");
    gb_json_put_u64(out, "offset", lease->export.offset);
    gb_json_put_string(out, "dtype", gb_dtype_name(rec->dtype));
    gb_render_shape(out, "shape", &rec->shape);
    gb_json_put_i64(out, "generation", rec->generation);
    gb_json_put_string(out, "etag", quoted);
    gb_render_device_id(out, "device", gb_api_of(request), lease->export.device);
    gb_json_put_string(out, "kind", gb_kind_name(lease->kind));
    gb_json_close(out, '}');
}

static int read_ttl(const struct gb_http_request *request, const json_t *body, uint64_t *ret, struct gb_error *err) {
    uint64_t max = gb_api_of(request)->limits.export_ttl_max_s;

    *ret = max < GB_EXPORT_TTL_S ? max : GB_EXPORT_TTL_S;
    if (gb_json_u64(body, "ttl_s", ret, err) < 0)
        return -1;
    if (*ret < 1 || *ret > max)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "ttl_s must be from 1 to %" PRIu64 " seconds, not %" PRIu64 " (--max-export-ttl)", max,
                            *ret);
    return 0;
}

static int read_body(const struct gb_http_request *request, struct gb_export_params *params, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "ttl_s mode", true, &body, err) < 0)
        return -1;
    r = gb_grant_mode(body, &params->write, err);
    if (r == 0)
        r = read_ttl(request, body, &params->ttl_s, err);
    json_decref(body);
    return r;
}

enum gb_step gb_api_buffer_export(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_export_params params = {.uid = (uid_t)-1, .gid = (gid_t)-1};
    struct gb_lease_call *call;

    if (gb_path_names(request, "buffer name", &params.session, &params.name, err) < 0 ||
        read_body(request, &params, err) < 0 ||
        gb_share_permit_export(request, params.session.s, params.write, err) < 0)
        return GB_STEP_ERROR;
    if (request->peer) {
        params.uid = request->peer->uid;
        params.gid = request->peer->gid;
    }
    params.caller = request->caller;
    params.wait_ms = gb_http_prefer_wait(request, GB_SYNC_WAIT_S, GB_SYNC_WAIT_MAX_S, NULL) * 1000;
    call = gb_grant_begin(request, NULL, render, err);
    if (!call)
        return GB_STEP_ERROR;
    gb_lease_export(gb_api_of(request)->core, &params, call);
    return gb_grant_resume(request, response, err);
}
