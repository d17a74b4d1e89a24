/* /v1/sessions/{session}/buffers: metadata. The bytes are in transfer/upload.c and transfer/download.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/list/page.h"
#include "api/middleware/async.h"
#include "api/middleware/conditional.h"
#include "api/middleware/hook.h"
#include "api/middleware/longpoll.h"
#include "api/reply/render.h"
#include "api/reply/reply_json.h"
#include "api/request/body.h"
#include "api/request/buffer_fields.h"
#include "api/request/json.h"
#include "api/request/query.h"
#include "api/request/wait.h"
#include "api/route.h"
#include "base/clock.h"

static int read_path(const struct gb_http_request *request, struct gb_locator *ret, struct gb_error *err) {
    if (gb_param_name(request, 0, "session name", &ret->session, err) < 0)
        return -1;
    return gb_param_name(request, 1, "buffer name", &ret->name, err);
}

static enum gb_step send_buffer(struct gb_http_request *request, const struct gb_buffer_rec *rec, int status,
                                struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};

    gb_render_buffer(&out, NULL, gb_api_of(request), request->param[0].s, rec);
    return gb_reply_json(&out, status, response, err);
}

/* --- create ------------------------------------------------------------------------------------------------------- */

enum gb_step gb_api_buffer_create(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_buffer_params params = {.dtype = GB_DTYPE_UINT8, .kind = GB_KIND_DEVICE, .stream = {"default"}};
    unsigned wait_s = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL);
    struct gb_buffer_call *call;
    json_t *body;
    int r;

    if (gb_param_name(request, 0, "session name", &params.session, err) < 0 ||
        gb_body_object(request,
                       "name bytes dtype shape kind pool device stream mirrored durability spill resident labels",
                       false, &body, err) < 0)
        return GB_STEP_ERROR;
    r = gb_buffer_params_read(gb_api_of(request), body, "name", &params, err);
    json_decref(body);
    if (r == 0)
        r = gb_api_reach(request, params.name.s, err);
    gb_request_hooks_stream(request, &params.stream);
    call = r < 0 ? NULL : gb_async_begin(request, sizeof(*call), err);
    if (call)
        gb_buffer_create(gb_api_of(request)->core, &params, wait_s * 1000, call);
    gb_text_unref(params.labels);
    if (!call)
        return GB_STEP_ERROR;
    return gb_async_end(request, response, gb_reply_buffer, 0, err);
}

/* --- read --------------------------------------------------------------------------------------------------------- */

static void render_address(struct gb_json_writer *out, const char *key, uint64_t address) {
    char text[24];

    snprintf(text, sizeof(text), "0x%" PRIx64, address);
    if (address > 0)
        gb_json_put_string(out, key, text);
    else
        gb_json_put_null(out, key);
}

static void render_last(struct gb_json_writer *out, const struct gb_last_transfer *last) {
    if (last->bytes == 0) {
        gb_json_put_null(out, "last_transfer");
        return;
    }
    gb_json_open(out, "last_transfer", '{');
    gb_json_put_string(out, "direction", last->direction == GB_UPLOAD ? "upload" : "download");
    gb_json_put_u64(out, "bytes", last->bytes);
    gb_json_put_number(out, "queue_ms", (double)last->queue_ns / GB_NS_PER_MS);
    gb_json_put_number(out, "copy_ms", (double)last->copy_ns / GB_NS_PER_MS);
    gb_json_put_time(out, "finished_at", last->finished_at_us);
    gb_json_close(out, '}');
}

/* Adds the times of the last large transfer, if the request asks for them. Returns 0 or -1. */
static int add_last(struct gb_json_writer *out, const struct gb_http_request *request, const struct gb_locator *at,
                    struct gb_error *err) {
    struct gb_last_transfer last;
    bool wanted = false;

    if (gb_query_bool(request, "last_transfer", &wanted, err) < 0 ||
        (wanted && gb_buffer_last_transfer(gb_api_of(request)->core, at, &last, err) < 0))
        return -1;
    if (wanted)
        render_last(out, &last);
    return 0;
}

static enum gb_step reply_attributes(struct gb_http_request *request, const void *result,
                                     struct gb_http_response *response, struct gb_error *err) {
    const struct gb_attributes_call *call = result;
    const struct gb_api *api = gb_api_of(request);
    const struct gb_mem_attr *attr = &call->attr;
    struct gb_json_writer out = {0};
    struct gb_locator at;

    gb_json_open(&out, NULL, '{');
    gb_render_buffer_members(&out, api, request->param[0].s, &call->buffer);
    gb_json_open(&out, "attributes", '{');
    gb_json_put_string(&out, "memory_type", gb_memory_type_name(attr->type));
    if (attr->device >= 0)
        gb_render_device_id(&out, "device", api, attr->device);
    else
        gb_json_put_null(&out, "device");
    render_address(&out, "device_address", attr->device_address);
    render_address(&out, "host_address", attr->host_address);
    gb_json_put_bool(&out, "from_pool", attr->from_pool);
    gb_json_put_bool(&out, "from_this_pool", attr->this_pool);
    gb_json_close(&out, '}');
    if (read_path(request, &at, err) < 0 || add_last(&out, request, &at, err) < 0) {
        gb_json_done(&out);
        return GB_STEP_ERROR;
    }
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

/* Replies with what the driver of the device knows of the memory. Addresses are for administrators. */
static enum gb_step get_attributes(struct gb_http_request *request, const struct gb_locator *at,
                                   struct gb_http_response *response, struct gb_error *err) {
    struct gb_attributes_call *call;

    if (gb_api_permit(request, GB_SCOPE_ADMIN, at->session.s, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_buffer_attributes(gb_api_of(request)->core, at, call);
    return gb_async_end(request, response, reply_attributes, 0, err);
}

/* Without an entity tag: a download changes these times and no tag. */
static enum gb_step get_last(struct gb_http_request *request, const struct gb_locator *at,
                             struct gb_http_response *response, struct gb_error *err) {
    const struct gb_api *api = gb_api_of(request);
    struct gb_json_writer out = {0};
    struct gb_buffer_rec rec;
    int r;

    if (gb_buffer_get(api->core, at, &rec, err) < 0)
        return GB_STEP_ERROR;
    gb_json_open(&out, NULL, '{');
    gb_render_buffer_members(&out, api, at->session.s, &rec);
    gb_buffer_rec_done(&rec);
    r = add_last(&out, request, at, err);
    gb_json_close(&out, '}');
    if (r == 0)
        return gb_reply_json(&out, 200, response, err);
    gb_json_done(&out);
    return GB_STEP_ERROR;
}

static bool same_buffer(struct gb_core *core, const struct gb_http_request *request, const char *tag) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    struct gb_locator at;
    char etag[GB_ETAG_SIZE];

    if (read_path(request, &at, &err) < 0 || gb_buffer_get(core, &at, &rec, &err) < 0)
        return false;
    gb_buffer_rec_done(&rec);
    return strcmp(gb_etag_buffer(&rec, etag), tag) == 0;
}

enum gb_step gb_api_buffer_get(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_buffer_rec rec;
    struct gb_locator at;
    char etag[GB_ETAG_SIZE];
    bool attributes = false;
    bool last = false;
    uint64_t sequence = gb_core_sequence(gb_api_of(request)->core);
    enum gb_step step;
    int r;

    if (read_path(request, &at, err) < 0 || gb_query_bool(request, "attributes", &attributes, err) < 0 ||
        gb_query_bool(request, "last_transfer", &last, err) < 0)
        return GB_STEP_ERROR;
    if (attributes)
        return get_attributes(request, &at, response, err);
    if (last)
        return get_last(request, &at, response, err);
    if (gb_buffer_get(gb_api_of(request)->core, &at, &rec, err) < 0)
        return GB_STEP_ERROR;
    r = gb_conditions_get(request, gb_etag_buffer(&rec, etag), response, err);
    if (r < 0)
        step = GB_STEP_ERROR;
    else if (r == 0)
        step = gb_poll_unchanged(gb_api_of(request)->polls, request, response, gb_api_buffer_get, same_buffer, etag,
                                 sequence);
    else
        step = send_buffer(request, &rec, 200, response, err);
    gb_buffer_rec_done(&rec);
    return step;
}

static int read_state(const char *word, size_t len, int *ret_state, struct gb_error *err) {
    enum gb_buffer_state state;

    if (gb_buffer_state_parse(word, len, &state, err) < 0)
        return -1;
    *ret_state = state;
    return 0;
}

static int visit(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    struct gb_walk *walk = arg;

    const struct gb_list_item item = {
        .id = rec->id,
        .name = rec->name.s,
        .buffer = rec->name.s,
        .labels = gb_labels_text(rec->labels),
        .state = rec->state,
        .kind = rec->kind,
        .sort = {0, (uint64_t)rec->created_at_us, (uint64_t)rec->updated_at_us, rec->bytes}};

    (void)err;
    if (gb_walk_takes(walk, &item))
        gb_render_buffer(&walk->out, NULL, walk->api, walk->session.s, rec);
    return walk->full;
}

static int list(struct gb_walk *walk, struct gb_error *err) {
    return gb_buffer_list(walk->api->core, &walk->session, &walk->page, visit, walk, err);
}

enum gb_step gb_api_buffer_list(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    static const struct gb_list_offer offer = {
        .state = read_state, .sorts = {"name", "created_at", "updated_at", "bytes"}, .sort_count = 4};

    return gb_reply_page(request, response, &offer, list, err);
}

/* --- change ------------------------------------------------------------------------------------------------------- */

/* Reads another durability, what may take the bytes out of memory, another dtype and shape of the same bytes, and
 * labels to be merged. The latter two build on the record as it is now; the conditions make sure that it is the same
 * when the change is made. */
static int read_patch(const json_t *body, const struct gb_buffer_rec *rec, struct gb_buffer_params *params,
                      struct gb_error *err) {
    int has_dtype;
    int has_shape;
    int has_labels;
    int has_durability = gb_json_durability(body, "durability", &params->durability, err);

    if (has_durability < 0 || gb_buffer_place_read(body, params, err) < 0)
        return -1;
    params->has_durability = has_durability > 0;
    params->dtype = rec->dtype;
    params->shape = rec->shape;
    has_dtype = gb_json_dtype(body, "dtype", &params->dtype, err);
    has_shape = has_dtype < 0 ? -1 : gb_json_shape(body, "shape", &params->shape, err);
    if (has_shape < 0)
        return -1;
    if (gb_shape_bytes(&params->shape, params->dtype, &params->bytes, err) < 0)
        return -1;
    if (params->bytes != rec->bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "dtype and shape make %llu bytes, the buffer has %llu%s",
                            (unsigned long long)params->bytes, (unsigned long long)rec->bytes,
                            has_shape ? "" : "; give 'shape' beside 'dtype'");
    params->has_shape = has_dtype || has_shape;
    has_labels = gb_json_take_labels(body, "labels", gb_labels_text(rec->labels), &params->labels, err);
    params->has_labels = has_labels > 0;
    return has_labels < 0 ? -1 : 0;
}

static int prepare_patch(const struct gb_http_request *request, const struct gb_locator *at,
                         struct gb_buffer_params *params, struct gb_conditions *conditions, struct gb_error *err) {
    struct gb_buffer_rec rec = {.labels = NULL};
    json_t *body;
    int r;

    if (gb_body_object(request, "labels dtype shape durability spill resident", false, &body, err) < 0)
        return -1;
    r = gb_buffer_get(gb_api_of(request)->core, at, &rec, err);
    if (r == 0)
        r = read_patch(body, &rec, params, err);
    if (r == 0 && params->has_shape)
        conditions->generation = rec.generation;
    if (r == 0 && params->has_labels)
        r = gb_conditions_labels(conditions, gb_labels_text(rec.labels), err);
    gb_buffer_rec_done(&rec);
    json_decref(body);
    return r;
}

enum gb_step gb_api_buffer_patch(struct gb_http_request *request, struct gb_http_response *response,
                                 struct gb_error *err) {
    struct gb_buffer_params params = {.has_shape = false};
    struct gb_buffer_check check;
    struct gb_conditions *conditions;
    struct gb_buffer_call *call = NULL;
    struct gb_locator at;

    if (read_path(request, &at, err) < 0 || gb_conditions_read(request, &conditions, err) < 0)
        return GB_STEP_ERROR;
    params.session = at.session;
    params.name = at.name;
    if (prepare_patch(request, &at, &params, conditions, err) == 0)
        call = gb_async_begin(request, sizeof(*call), err);
    if (!call) {
        gb_text_unref(params.labels);
        gb_conditions_free(conditions);
        return GB_STEP_ERROR;
    }
    check = gb_conditions_buffer_check(conditions);
    gb_async_retry(request, gb_api_buffer_patch);
    gb_buffer_patch(gb_api_of(request)->core, &params, &check, call);
    gb_text_unref(params.labels);
    return gb_async_end(request, response, gb_reply_buffer, 0, err);
}

static enum gb_step reply_deleted(struct gb_http_request *request, const void *result,
                                  struct gb_http_response *response, struct gb_error *err) {
    const struct gb_buffer_call *call = result;
    struct gb_json_writer out = {0};

    if (call->held_bytes == 0)
        return gb_reply_nothing(request, result, response, err);
    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "held_bytes", call->held_bytes);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 202, response, err);
}

static int read_when(const struct gb_http_request *request, bool *ret_unmapped, struct gb_error *err) {
    const struct gb_http_text *when = gb_http_query(request, "when");

    *ret_unmapped = when != NULL;
    if (when && strcmp(when->s, "unmapped") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "when must be unmapped; without it the buffer is deleted now");
    return 0;
}

enum gb_step gb_api_buffer_delete(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_buffer_check check;
    struct gb_buffer_call *call;
    struct gb_locator at;
    bool when_unmapped;

    if (read_path(request, &at, err) < 0 || read_when(request, &when_unmapped, err) < 0)
        return GB_STEP_ERROR;
    call = gb_buffer_call_begin(request, &check, err);
    if (!call)
        return GB_STEP_ERROR;
    if (when_unmapped)
        gb_buffer_delete_when_unmapped(gb_api_of(request)->core, &at, &check, call);
    else
        gb_buffer_delete(gb_api_of(request)->core, &at, &check, call);
    return gb_async_end(request, response, reply_deleted, 0, err);
}

enum gb_step gb_api_buffer_seal(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    return gb_path_buffer_call(request, response, gb_buffer_seal, gb_reply_buffer, err);
}
