/* POST /v1/sessions/{session}/pools/{pool}/{trim,reset-peak,access} */
#include <string.h>

#include "api/context.h"
#include "api/middleware/async.h"
#include "api/reply/render.h"
#include "api/request/body.h"
#include "api/request/device_param.h"
#include "api/request/json.h"
#include "api/request/path_params.h"
#include "api/resources/pools.h"
#include "api/route.h"

static enum gb_step reply_trimmed(struct gb_http_request *request, const void *result,
                                  struct gb_http_response *response, struct gb_error *err) {
    const struct gb_pool_call *call = result;
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "reserved_before_bytes", call->trim.before_bytes);
    gb_json_put_u64(&out, "reserved_after_bytes", call->trim.after_bytes);
    if (call->pool.exported)
        gb_json_put_string(
            &out, "note", "memory of the pool was exported: nothing goes back to the system until the pool is deleted");
    else if (call->trim.kept)
        gb_json_put_string(&out, "note",
                           "what is left is in pieces of which a part is in use, or whose free is still queued");
    return gb_pool_reply(request, &out, &call->pool, 200, response, err);
}

enum gb_step gb_api_pool_trim(struct gb_http_request *request, struct gb_http_response *response,
                              struct gb_error *err) {
    struct gb_pool_call *call;
    struct gb_locator at;
    uint64_t keep_bytes = 0;
    json_t *body;
    int r;

    if (gb_path_locator(request, "pool name", &at, err) < 0 ||
        gb_body_object(request, "keep_bytes", true, &body, err) < 0)
        return GB_STEP_ERROR;
    r = gb_json_u64(body, "keep_bytes", &keep_bytes, err);
    json_decref(body);
    if (r < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_pool_trim_to(gb_api_of(request)->core, &at, keep_bytes, call);
    return gb_async_end(request, response, reply_trimmed, 0, err);
}

static enum gb_step reply_pool(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                               struct gb_error *err) {
    const struct gb_pool_call *call = result;
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    return gb_pool_reply(request, &out, &call->pool, 200, response, err);
}

enum gb_step gb_api_pool_reset_peak(struct gb_http_request *request, struct gb_http_response *response,
                                    struct gb_error *err) {
    struct gb_pool_call *call;
    struct gb_locator at;
    json_t *body;

    if (gb_path_locator(request, "pool name", &at, err) < 0 || gb_pool_permit(request, &at, err) < 0 ||
        gb_body_object(request, "", true, &body, err) < 0)
        return GB_STEP_ERROR;
    json_decref(body);
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_pool_peak_reset(gb_api_of(request)->core, &at, call);
    return gb_async_end(request, response, reply_pool, 0, err);
}

static int read_access(const struct gb_api *api, const json_t *body, int *ret_device, enum gb_pool_access *ret_access,
                       struct gb_error *err) {
    const char *word = NULL;
    int r = gb_device_field(api, body, "device", ret_device, err);

    if (r > 0)
        r = gb_json_string(body, "access", &word, err);
    if (r < 0)
        return -1;
    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "give 'device', which is to reach the pool, and 'access': none or read_write");
    return gb_pool_access_parse(word, strlen(word), ret_access, err);
}

enum gb_step gb_api_pool_access(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    enum gb_pool_access access;
    struct gb_pool_call *call;
    struct gb_locator at;
    json_t *body;
    int device;
    int r;

    if (gb_path_locator(request, "pool name", &at, err) < 0 || gb_pool_permit(request, &at, err) < 0 ||
        gb_body_object(request, "device access", false, &body, err) < 0)
        return GB_STEP_ERROR;
    r = read_access(gb_api_of(request), body, &device, &access, err);
    json_decref(body);
    if (r < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_pool_peer_set(gb_api_of(request)->core, &at, device, access, call);
    return gb_async_end(request, response, reply_pool, 0, err);
}
