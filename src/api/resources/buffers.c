/* Buffers without their bytes: made, shown, changed, deleted, compared with digests; the two sides of a mirrored
 * buffer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/pipeline/async.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/pipeline/hook.h"
#include "api/pipeline/list.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/table.h"
#include "base/clock.h"

/* --- buffers ------------------------------------------------------------------------------------------------------ */

/* /v1/sessions/{session}/buffers: metadata. The bytes are in download.c, upload.c and resumable.c. */

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

/* A table by its layout: its header is the buffer's first bytes. *ret stays NULL if the body has no "tensors". */
static int read_tensors(json_t *body, struct gb_table **ret, struct gb_error *err) {
    static const char *const others[] = {"bytes", "dtype", "shape", "mirrored"};
    const json_t *tensors = json_object_get(body, "tensors");
    json_t *bytes;
    size_t i;

    if (!tensors && json_object_get(body, "metadata"))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'metadata' goes with 'tensors'");
    if (!tensors)
        return 0;
    for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (json_object_get(body, others[i]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'tensors' or '%s', not both", others[i]);
    }
    *ret = gb_tables_make(tensors, json_object_get(body, "metadata"), err);
    if (!*ret)
        return -1;
    bytes = json_integer((json_int_t)gb_table_bytes(*ret));
    return json_object_set_new(body, "bytes", bytes) < 0 ? gb_error_memory(err, "request") : 0;
}

static int read_create(struct gb_http_request *request, json_t *body, struct gb_buffer_params *params,
                       struct gb_table **ret_table, struct gb_error *err) {
    const char *head;

    if (read_tensors(body, ret_table, err) < 0 ||
        gb_buffer_params_read(gb_api_of(request), body, "name", params, err) < 0)
        return -1;
    if (*ret_table) {
        params->dtype = GB_DTYPE_TENSORS;
        params->head_bytes = gb_table_head(*ret_table, &head);
        params->head = head;
    }
    return gb_api_reach(request, params->name.s, err);
}

enum gb_step gb_api_buffer_create(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_buffer_params params = {.dtype = GB_DTYPE_UINT8, .kind = GB_KIND_DEVICE, .stream = {"default"}};
    unsigned wait_s = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL);
    struct gb_table *table = NULL;
    struct gb_buffer_call *call;
    json_t *body;
    int r;

    if (gb_param_name(request, 0, "session name", &params.session, err) < 0 ||
        gb_body_object(
            request,
            "name bytes dtype shape tensors metadata kind pool device stream mirrored durability spill resident labels",
            false, &body, err) < 0)
        return GB_STEP_ERROR;
    r = read_create(request, body, &params, &table, err);
    json_decref(body);
    gb_request_hooks_stream(request, &params.stream);
    call = r < 0 ? NULL : gb_async_begin(request, sizeof(*call), err);
    if (call)
        gb_buffer_create(gb_api_of(request)->core, &params, wait_s * 1000, call);
    gb_text_unref(params.labels);
    gb_table_unref(table);
    if (!call)
        return GB_STEP_ERROR;
    return gb_async_end(request, response, gb_reply_buffer, 0, err);
}

/* --- read --------------------------------------------------------------------------------------------------------- */

static void render_address(struct gb_json_writer *out, const char *key, uint64_t address) {
    char text[24];

    snprintf(text, sizeof(text), "0x%" PRIx64, address);
    gb_json_put_string(out, key, address > 0 ? text : NULL);
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
    render_address(&out, "context", attr->context);
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

/* --- verify ------------------------------------------------------------------------------------------------------- */

/* POST /v1/sessions/{session}/buffers/{buffer}/verify: compares the bytes with their checksum or digests. */

static int read_algorithms(const json_t *body, unsigned *ret, struct gb_error *err) {
    const json_t *list = json_object_get(body, "algorithms");
    enum gb_digest_alg alg;
    json_t *value;
    size_t i;

    if (list && !json_is_array(list))
        return gb_error_set(err, GB_ERR_WRONG_TYPE, "the field 'algorithms' must be a list such as [\"sha-256\"]");
    json_array_foreach(list, i, value) {
        if (!json_is_string(value))
            return gb_error_set(err, GB_ERR_WRONG_TYPE, "an algorithm must be a string");
        if (!gb_digest_find(json_string_value(value), json_string_length(value), &alg))
            return gb_digest_unknown(json_string_value(value), err);
        *ret |= 1u << alg;
    }
    return 0;
}

static int read_body(const struct gb_http_request *request, unsigned *ret_algs, struct gb_digest_set *expected,
                     struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "digest algorithms", true, &body, err) < 0)
        return -1;
    r = gb_digest_set_read(body, expected, err) < 0 || read_algorithms(body, ret_algs, err) < 0 ? -1 : 0;
    *ret_algs |= expected->given;
    json_decref(body);
    return r;
}

static void render(struct gb_json_writer *out, const struct gb_scan_call *call, unsigned algs, bool compared,
                   bool match) {
    char text[GB_BASE64_SIZE_MAX];
    char crc[9];
    unsigned i;

    gb_json_open(out, NULL, '{');
    if (compared)
        gb_json_put_bool(out, "match", match);
    else
        gb_json_put_null(out, "match"); /* there was no checksum to compare with */
    snprintf(crc, sizeof(crc), "%08" PRIx32, call->crc32c);
    gb_json_put_string(out, "crc32c", crc);
    snprintf(crc, sizeof(crc), "%08" PRIx32, call->buffer.crc32c);
    if (call->had_crc32c)
        gb_json_put_string(out, "stored_crc32c", crc);
    else
        gb_json_put_null(out, "stored_crc32c");
    gb_json_put_i64(out, "generation", call->buffer.generation);
    gb_json_put_u64(out, "bytes", call->buffer.bytes);
    gb_json_open(out, "digest", '{');
    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (!(algs & 1u << i))
            continue;
        gb_digest_text(&call->digest[i], text);
        gb_json_put_string(out, gb_digest_name((enum gb_digest_alg)i), text);
    }
    gb_json_close(out, '}');
    gb_json_close(out, '}');
}

/* The body is read a second time. It was valid before, and lives as long as the request. */
static enum gb_step reply_verified(struct gb_http_request *request, const void *result,
                                   struct gb_http_response *response, struct gb_error *err) {
    const struct gb_scan_call *call = result;
    struct gb_digest_set expected = {.given = 0};
    bool match = !call->had_crc32c || call->crc32c == call->buffer.crc32c;
    struct gb_json_writer out = {0};
    char etag[GB_ETAG_SIZE];
    unsigned algs = 0;
    unsigned i;

    if (read_body(request, &algs, &expected, err) < 0 ||
        gb_http_response_header(response, err, "ETag", "\"%s\"", gb_etag_data(&call->buffer, GB_FORM_RAW, etag)) < 0)
        return GB_STEP_ERROR;
    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (expected.given & 1u << i)
            match = match && gb_digest_equal(&expected.digest[i], &call->digest[i]);
    }
    render(&out, call, algs, call->had_crc32c || expected.given, match);
    return gb_reply_json(&out, 200, response, err);
}

enum gb_step gb_api_buffer_verify(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_scan_params params = {.verify = true, .stream = {"default"}};
    struct gb_conditions *conditions;
    struct gb_digest_set expected = {.given = 0};
    struct gb_scan_call *call;

    if (gb_path_names(request, "buffer name", &params.session, &params.name, err) < 0 ||
        gb_query_name(request, "stream", &params.stream, err) < 0 ||
        read_body(request, &params.digests, &expected, err) < 0 || gb_conditions_read(request, &conditions, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call) {
        gb_conditions_free(conditions);
        return GB_STEP_ERROR;
    }
    params.check = gb_conditions_buffer_check(conditions);
    gb_buffer_scan(gb_api_of(request)->core, &params, call);
    return gb_async_end(request, response, reply_verified, gb_sync_deadline_ns(request), err);
}

/* --- mirrors ------------------------------------------------------------------------------------------------------ */

/* POST /v1/sessions/{session}/buffers/{buffer}/{sync,reserve,release}: the two sides of a mirrored buffer. */

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

/* bytes, or elements of a dtype. */
static int read_capacity(const json_t *body, uint64_t *ret, struct gb_error *err) {
    enum gb_dtype dtype = GB_DTYPE_UINT8;
    uint64_t elements = 0;
    int has_bytes = gb_json_u64(body, "bytes", ret, err);
    int has_elements = has_bytes < 0 ? -1 : gb_json_u64(body, "elements", &elements, err);
    int has_dtype = has_elements < 0 ? -1 : gb_json_dtype(body, "dtype", &dtype, err);

    if (has_dtype < 0)
        return -1;
    if (has_elements != has_dtype || has_bytes == has_elements)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "give the least that the side is to hold: 'bytes', or in their place 'elements' and 'dtype'");
    if (has_elements && (!gb_mul_u64(elements, gb_dtype_bytes(dtype), ret) || *ret > INT64_MAX))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "%llu elements of %s have more than 2^63 - 1 bytes: give fewer",
                            (unsigned long long)elements, gb_dtype_name(dtype));
    return 0;
}

static int read_reserve(const struct gb_http_request *request, struct gb_mirror_reserve *ret, struct gb_error *err) {
    struct gb_sides side;
    json_t *body;
    int r;

    if (gb_body_object(request, "bytes elements dtype side stream", false, &body, err) < 0)
        return -1;
    r = read_capacity(body, &ret->bytes, err);
    if (r == 0)
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
    call = gb_buffer_call_begin(request, &check, err);
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
    call = gb_buffer_call_begin(request, &check, err);
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
    call = gb_buffer_call_begin(request, &check, err);
    if (!call)
        return GB_STEP_ERROR;
    gb_buffer_mirror_release(gb_api_of(request)->core, &at, side.host, side.device, &check, call);
    return gb_async_end(request, response, reply_sides, 0, err);
}
