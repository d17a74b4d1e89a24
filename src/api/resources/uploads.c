/* /v1/sessions/{session}/uploads: one generation of a buffer in several requests. Parts come at any time and in any
 * order; the buffer changes when the upload is completed. resumable.c completes its uploads here too. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/pipeline/async.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/pipeline/list.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/table.h"
#include "api/resources/upload.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "base/hash.h"

/* --- uploads ------------------------------------------------------------------------------------------------------ */

/* An upload to a buffer that the token does not reach is reported like one that does not exist. */
static int check_reach(const struct gb_http_request *request, const struct gb_name *session, const char *id,
                       struct gb_error *err) {
    struct gb_core *core = gb_api_of(request)->core;
    struct gb_multipart_view view;
    struct gb_name prefix;

    if (gb_api_prefix(request, &prefix, err) < 0)
        return -1;
    if (prefix.s[0] == '\0')
        return 0;
    if (gb_multipart_get(core, session, id, &view, err) < 0)
        return -1;
    return gb_api_has_prefix(&prefix, view.buffer.s) ? 0 : gb_multipart_get(core, session, "", &view, err);
}

int gb_path_upload(const struct gb_http_request *request, struct gb_name *ret_session, const char **ret_id,
                   struct gb_error *err) {
    const struct gb_http_text *id = &request->param[1];

    *ret_id = strlen(id->s) == id->len ? id->s : "";
    if (gb_param_name(request, 0, "session name", ret_session, err) < 0)
        return -1;
    return check_reach(request, ret_session, *ret_id, err);
}

int gb_uploads_filters(const struct gb_http_request *request, struct gb_http_response *response, struct gb_filters *ret,
                       struct gb_error *err) {
    unsigned i;

    if (gb_media_bytes(gb_http_header(request, "Content-Type"), err) < 0 ||
        gb_filters_read(request, response, ret, err) < 0)
        return -1;
    if (ret->coded)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE,
                            "an upload in several requests takes bytes as they are: leave Content-Encoding out, or PUT "
                            "the whole to .../data");
    for (i = 0; i < ret->digests; i++) {
        if (strcasecmp(ret->digest[i].header, "Content-Digest") != 0)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "%s is not checked here, as this is not the whole; give Content-Digest of each body, "
                                "or {\"crc32c\"} or {\"digest\"} when an upload in parts is completed",
                                ret->digest[i].header);
    }
    return 0;
}

/* --- an upload as JSON -------------------------------------------------------------------------------------------- */

static int64_t seconds_left(const struct gb_multipart_view *view) {
    int64_t left = (view->expires_at_us - gb_wall_us()) / 1000000;

    return left > 0 ? left : 0;
}

int gb_multipart_headers(const struct gb_multipart_view *view, bool complete, struct gb_http_response *response,
                         struct gb_error *err) {
    if (gb_http_response_header(response, err, "Upload-Offset", "%" PRIu64, view->offset) < 0 ||
        gb_http_response_header(response, err, "Upload-Complete", "?%d", complete) < 0 ||
        gb_http_response_header(response, err, "Upload-Limit", "max-age=%" PRId64, seconds_left(view)) < 0)
        return -1;
    if (!view->has_length)
        return 0;
    return gb_http_response_header(response, err, "Upload-Length", "%" PRIu64, view->length);
}

static void render_gaps(struct gb_json_writer *out, const struct gb_multipart_view *view) {
    size_t i;

    gb_json_open(out, "missing", '[');
    for (i = 0; i < view->gaps_given; i++) {
        gb_json_open(out, NULL, '{');
        gb_json_put_u64(out, "offset", view->gaps[i].offset);
        gb_json_put_u64(out, "bytes", view->gaps[i].bytes);
        gb_json_close(out, '}');
    }
    gb_json_close(out, ']');
    gb_json_put_u64(out, "missing_ranges", view->gap_count);
}

static void render(struct gb_json_writer *out, const char *session, const struct gb_multipart_view *view) {
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "id", view->id);
    gb_json_put_string(out, "session", session);
    gb_json_put_string(out, "buffer", view->buffer.s);
    gb_json_put_string(out, "takes", view->appends ? "appends" : "parts");
    gb_json_put_string(out, "state", view->completed ? "completed" : "open");
    if (view->has_bytes)
        gb_json_put_u64(out, "bytes", view->bytes);
    else
        gb_json_put_null(out, "bytes");
    gb_json_put_u64(out, "received_bytes", view->received_bytes);
    render_gaps(out, view);
    gb_json_put_u64(out, "parts", view->parts);
    gb_json_put_u64(out, "running", view->running);
    gb_json_open(out, "limits", '{');
    gb_json_put_u64(out, "parts", GB_MULTIPART_PARTS_MAX);
    gb_json_put_u64(out, "missing_told", GB_MULTIPART_GAPS_MAX);
    gb_json_close(out, '}');
    gb_json_put_time(out, "created_at", view->created_at_us);
    gb_json_put_time(out, "expires_at", view->expires_at_us);
    gb_json_close(out, '}');
}

enum gb_step gb_multipart_reply(struct gb_http_request *request, const struct gb_multipart_view *view, int status,
                                struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};

    if (gb_http_response_header(response, err, "Cache-Control", "no-store") < 0 ||
        (view->appends && gb_multipart_headers(view, view->completed, response, err) < 0) ||
        (status == 201 && gb_http_response_header(response, err, "Location", "/v1/sessions/%s/uploads/%s",
                                                  request->param[0].s, view->id) < 0))
        return GB_STEP_ERROR;
    render(&out, request->param[0].s, view);
    return gb_reply_json(&out, status, response, err);
}

/* --- begin -------------------------------------------------------------------------------------------------------- */

static enum gb_step reply_begun(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                struct gb_error *err) {
    const struct gb_multipart_call *call = result;

    return gb_multipart_reply(request, &call->multipart, 201, response, err);
}

/* A safetensors file: its parts are those of the file, and its layout in memory has to be known before they come. */
static int read_header(json_t *body, struct gb_table **ret, struct gb_error *err) {
    static const char *const others[] = {"dtype", "shape", "mirrored"};
    const json_t *bytes = json_object_get(body, "bytes");
    struct gb_error why = GB_ERROR_INIT;
    const char *text = NULL;
    size_t head = 0;
    char *header;
    size_t i;
    size_t n;
    int r = gb_json_string(body, "header", &text, err);

    if (r <= 0)
        return r;
    for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (json_object_get(body, others[i]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the 'header' says what the file is: leave '%s' out",
                                others[i]);
    }
    if (!gb_base64_read(text, strlen(text), false, &header, &n))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the field 'header' must be the first bytes of a safetensors file, its length and its "
                            "header, as base64");
    if (n < GB_SAFETENSORS_PREFIX)
        gb_error_set(&why, GB_ERR_UNSUPPORTED_ARRAY, "it has %zu bytes", n);
    else if (gb_safetensors_data_at(header, &head, &why) == 0 && head != n)
        gb_error_set(&why, GB_ERR_UNSUPPORTED_ARRAY, "it has %zu bytes and says that it has %zu", n, head);
    *ret = why.code == GB_OK ? gb_table_new(header, n, &why) : NULL;
    free(header);
    if (!*ret)
        return gb_error_set(err, why.code, "the field 'header': %s", why.detail);
    if (bytes && (!json_is_integer(bytes) || (uint64_t)json_integer_value(bytes) != gb_table_file_bytes(*ret)))
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the header makes a file of %" PRIu64 " bytes, and 'bytes' is "
                            "another number",
                            gb_table_file_bytes(*ret));
    return json_object_set_new(body, "bytes", json_integer((json_int_t)gb_table_bytes(*ret))) < 0
               ? gb_error_memory(err, "request")
               : 0;
}

static int read_begin(const struct gb_http_request *request, struct gb_upload_params *params,
                      struct gb_table **ret_table, struct gb_error *err) {
    struct gb_buffer_params *buffer = &params->buffer;
    json_t *body;
    int r;

    buffer->dtype = GB_DTYPE_UINT8;
    buffer->kind = GB_KIND_DEVICE;
    strcpy(buffer->stream.s, "default");
    if (gb_param_name(request, 0, "session name", &buffer->session, err) < 0 ||
        gb_body_object(request,
                       "buffer bytes dtype shape header kind pool device stream mirrored durability spill resident "
                       "labels",
                       false, &body, err) < 0)
        return -1;
    r = read_header(body, ret_table, err);
    if (r == 0)
        r = gb_buffer_params_read(gb_api_of(request), body, "buffer", buffer, err);
    if (*ret_table)
        buffer->dtype = GB_DTYPE_TENSORS;
    buffer->has_mirrored = json_object_get(body, "mirrored") != NULL;
    json_decref(body);
    if (r == 0)
        r = gb_api_reach(request, buffer->name.s, err);
    params->bytes = buffer->bytes;
    params->wait_ms = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL) * 1000;
    return r;
}

enum gb_step gb_api_upload_create(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_upload_params params = {.wait_ms = 0};
    struct gb_conditions *conditions = NULL;
    struct gb_multipart_call *call = NULL;
    struct gb_place place = {0};
    struct gb_table *table = NULL;
    struct gb_gaps gaps = {0};

    if (read_begin(request, &params, &table, err) == 0 && gb_conditions_read(request, &conditions, err) == 0 &&
        gb_bounds_upload(request, &place, err) == 0)
        call = gb_async_begin(request, sizeof(*call), err);
    if (call) {
        params.check = gb_conditions_buffer_check(conditions);
        params.place = &place;
        gaps = table ? gb_tables_gaps(table) : gaps;
        params.gaps = table ? &gaps : NULL;
        gb_multipart_begin(gb_api_of(request)->core, &params, call);
    } else {
        gb_conditions_free(conditions);
    }
    if (gaps.free_arg) /* it was not taken */
        gaps.free_arg(gaps.arg);
    gb_bounds_upload_release(&place);
    gb_table_unref(table);
    gb_text_unref(params.buffer.labels);
    return call ? gb_async_end(request, response, reply_begun, 0, err) : GB_STEP_ERROR;
}

/* --- read --------------------------------------------------------------------------------------------------------- */

static enum gb_step reply_stands(const struct gb_multipart_view *view, struct gb_http_response *response,
                                 struct gb_error *err) {
    if (gb_http_response_header(response, err, "Cache-Control", "no-store") < 0 ||
        gb_multipart_headers(view, view->completed, response, err) < 0)
        return GB_STEP_ERROR;
    response->status = 204;
    return GB_STEP_REPLY;
}

static enum gb_step reply_ended(struct gb_http_request *request, const void *result, struct gb_http_response *response,
                                struct gb_error *err) {
    const struct gb_multipart_call *call = result;

    (void)request;
    return reply_stands(&call->multipart, response, err);
}

enum gb_step gb_api_upload_get(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_multipart_view view;
    struct gb_name session;
    struct gb_multipart_call *call;
    const char *id;

    if (gb_path_upload(request, &session, &id, err) < 0)
        return GB_STEP_ERROR;
    /* HEAD interrupts a running append. A client that may only read must not do that, and gets the present state. */
    if (request->method != GB_HTTP_HEAD || gb_api_permit(request, GB_SCOPE_WRITE, session.s, NULL) < 0) {
        if (gb_multipart_get(gb_api_of(request)->core, &session, id, &view, err) < 0)
            return GB_STEP_ERROR;
        if (request->method == GB_HTTP_HEAD)
            return reply_stands(&view, response, err);
        return gb_multipart_reply(request, &view, 200, response, err);
    }
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_multipart_drain(gb_api_of(request)->core, &session, id, call);
    return gb_async_end(request, response, reply_ended, 0, err);
}

static int visit(void *arg, const struct gb_multipart_view *view, struct gb_error *err) {
    struct gb_walk *walk = arg;

    const struct gb_list_item item = {.id = view->number, .name = view->buffer.s, .buffer = view->buffer.s};

    (void)err;
    if (gb_walk_takes(walk, &item))
        render(&walk->out, walk->session.s, view);
    return walk->full;
}

static int list(struct gb_walk *walk, struct gb_error *err) {
    return gb_multipart_list(walk->api->core, &walk->session, &walk->page, visit, walk, err);
}

enum gb_step gb_api_upload_list(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    static const struct gb_list_offer offer = {.sort_count = 0};

    return gb_reply_page(request, response, &offer, list, err);
}

/* --- complete ----------------------------------------------------------------------------------------------------- */

/* Adds the missing ranges, for programs. */
static enum gb_step incomplete(const struct gb_multipart_view *view, struct gb_http_response *response,
                               struct gb_error *err) {
    struct gb_json_writer out = {.comma = true};

    if (!view->has_bytes) {
        gb_error_set(err, GB_ERR_UPLOAD_INCOMPLETE, "what arrived does not yet tell what it is");
        return GB_STEP_ERROR;
    }
    render_gaps(&out, view);
    gb_json_put_u64(&out, "received_bytes", view->received_bytes);
    if (out.failed)
        gb_json_done(&out);
    gb_http_response_problem(response, NULL, out.s, out.used);
    gb_error_set(err, GB_ERR_UPLOAD_INCOMPLETE, "%" PRIu64 " of %" PRIu64 " bytes arrived; %zu ranges are missing",
                 view->received_bytes, view->bytes, view->gap_count);
    return GB_STEP_ERROR;
}

struct completion {
    struct gb_multipart_call call; /* first */
    const char *warning;           /* as in struct gb_upload_request */
};

static enum gb_step reply_complete(struct gb_http_request *request, const void *result,
                                   struct gb_http_response *response, struct gb_error *err) {
    const struct completion *completion = result;
    const struct gb_multipart_call *call = &completion->call;

    if (!call->multipart.completed)
        return incomplete(&call->multipart, response, err);
    return gb_upload_reply(request, &call->buffer, call->created, completion->warning, &call->times, gb_clock_ns(),
                           response, err);
}

enum gb_step gb_multipart_finish(struct gb_http_request *request, const char *id, const struct gb_buffer_check *check,
                                 const struct gb_multipart_expected *expected, const char *warning,
                                 struct gb_http_response *response, struct gb_error *err) {
    struct completion *completion = NULL;
    struct gb_name session;

    if (gb_param_name(request, 0, "session name", &session, err) == 0)
        completion = gb_async_begin(request, sizeof(*completion), err);
    if (!completion) {
        if (check && check->free_arg)
            check->free_arg(check->arg);
        return GB_STEP_ERROR;
    }
    completion->warning = warning;
    gb_multipart_complete(gb_api_of(request)->core, &session, id, check, expected, &completion->call);
    return gb_async_end(request, response, reply_complete, 0, err);
}

/* {"crc32c": "e3069283", "digest": {"sha-256": "base64"}} */
static int read_complete(const struct gb_http_request *request, struct gb_multipart_expected *ret,
                         struct gb_error *err) {
    const char *text = NULL;
    json_t *body;
    int r;

    if (gb_body_object(request, "crc32c digest", true, &body, err) < 0)
        return -1;
    r = gb_json_string(body, "crc32c", &text, err);
    if (r > 0 && (!gb_hex_lower(text, GB_HEX_U32) || !gb_hex_u32(text, GB_HEX_U32, &ret->crc32c)))
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "crc32c must be 8 lower-case hexadecimal digits");
    ret->has_crc32c = r > 0;
    if (r >= 0)
        r = gb_digest_set_read(body, &ret->digests, err);
    json_decref(body);
    return r < 0 ? -1 : 0;
}

enum gb_step gb_api_upload_complete(struct gb_http_request *request, struct gb_http_response *response,
                                    struct gb_error *err) {
    struct gb_multipart_expected expected = {.has_crc32c = false};
    struct gb_conditions *conditions;
    struct gb_buffer_check check;
    struct gb_name session;
    const char *id;

    if (gb_http_header(request, "Repr-Digest")) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                     "say the digest of the whole in the body: {\"digest\": {\"sha-256\": \"(base64)\"}}");
        return GB_STEP_ERROR;
    }
    if (gb_path_upload(request, &session, &id, err) < 0 || read_complete(request, &expected, err) < 0 ||
        gb_conditions_read(request, &conditions, err) < 0)
        return GB_STEP_ERROR;
    check = gb_conditions_buffer_check(conditions);
    return gb_multipart_finish(request, id, &check, &expected, NULL, response, err);
}

/* --- abandon ------------------------------------------------------------------------------------------------------ */

enum gb_step gb_api_upload_delete(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_name session;
    struct gb_multipart_call *call;
    const char *id;

    if (gb_path_upload(request, &session, &id, err) < 0)
        return GB_STEP_ERROR;
    call = gb_async_begin(request, sizeof(*call), err);
    if (!call)
        return GB_STEP_ERROR;
    gb_multipart_delete(gb_api_of(request)->core, &session, id, call);
    return gb_async_end(request, response, gb_reply_nothing, 0, err);
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

/* PUT .../parts?offset=N: any number at once. If a part that has arrived comes again because its reply was lost,
 * nothing is written; its bytes are read for their checksum alone. */

#define SCRATCH_BYTES (64u << 10)

struct sink {
    struct gb_http_sink sink; /* first */
    struct gb_core *core;
    struct gb_upload *part;
    struct gb_name session;
    const char *id; /* the request's */
    uint64_t offset;
    uint64_t bytes;
    bool replace;
    char *scratch; /* the part has arrived before: used instead of part */
    uint64_t read;
    uint32_t crc;
    uint32_t arrived_crc;
};

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    if (!s->scratch)
        return gb_part_room(s->part, ret_ptr, ret_n, err);
    *ret_ptr = s->scratch;
    *ret_n = s->bytes - s->read < SCRATCH_BYTES ? (size_t)(s->bytes - s->read) : SCRATCH_BYTES;
    return 1;
}

static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    if (!s->scratch)
        return gb_part_fill(s->part, n, err);
    s->crc = gb_crc32c(s->crc, s->scratch, n);
    s->read += n;
    return 0;
}

static void sink_pause(struct gb_http_sink *sink, bool stalled) {
    struct sink *s = (struct sink *)sink;

    if (s->part)
        gb_upload_pause(s->part, stalled);
}

static enum gb_step reply(const struct sink *s, const struct gb_multipart_view *view, uint32_t crc,
                          struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};
    char text[9];

    snprintf(text, sizeof(text), "%08" PRIx32, crc);
    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "upload", view->id);
    gb_json_put_u64(&out, "offset", s->offset);
    gb_json_put_u64(&out, "bytes", s->bytes);
    gb_json_put_string(&out, "crc32c", text);
    gb_json_put_u64(&out, "received_bytes", view->received_bytes);
    gb_json_put_u64(&out, "missing_ranges", view->gap_count);
    gb_json_close(&out, '}');
    return gb_reply_json(&out, 200, response, err);
}

/* Also runs at each wake until the last copy is done. */
static enum gb_step finish(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)request->sink;
    struct gb_multipart_view view;
    uint32_t crc;
    int r = gb_part_result(s->part, &crc, &view, err);

    if (r < 0)
        return GB_STEP_ERROR;
    return r > 0 ? reply(s, &view, crc, response, err) : gb_body_await(request, "device", err);
}

/* Compares the checksums. The part may have been overwritten meanwhile; then there is nothing to compare, and the reply
 * repeats the first one. */
static enum gb_step compare(const struct sink *s, struct gb_http_response *response, struct gb_error *err) {
    struct gb_multipart_view view;

    if (s->crc == s->arrived_crc)
        return gb_multipart_get(s->core, &s->session, s->id, &view, err) < 0 ? GB_STEP_ERROR
                                                                             : reply(s, &view, s->crc, response, err);
    gb_error_set(err, GB_ERR_UPLOAD_OVERLAP,
                 "the range arrived with the CRC32C %08" PRIx32 ", these bytes have %08" PRIx32
                 ": ?replace=true overwrites it",
                 s->arrived_crc, s->crc);
    return GB_STEP_ERROR;
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    if (s->scratch)
        return compare(s, response, err);
    if (gb_upload_end(s->part, err) < 0)
        return GB_STEP_ERROR;
    return gb_http_await(request, finish, response, err);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    gb_upload_free(s->part);
    free(s->scratch);
    free(s);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

static int read_part(const struct gb_http_request *request, struct sink *s, struct gb_error *err) {
    int r = gb_query_u64(request, "offset", &s->offset, err);

    if (r < 0 || gb_query_bool(request, "replace", &s->replace, err) < 0)
        return -1;
    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "say where the part begins: ?offset=N");
    if (!request->has_content_length)
        return gb_error_set(err, GB_ERR_LENGTH_REQUIRED, "send Content-Length: it tells where the part ends");
    s->bytes = request->content_length;
    return gb_path_upload(request, &s->session, &s->id, err);
}

static int begin(struct gb_http_request *request, struct sink *s, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_multipart_part(s->core, &s->session, s->id, s->offset, s->bytes, s->replace,
                          (struct gb_waker){wake, request}, &s->part, &why) == 0)
        return 0;
    if (why.code == GB_ERR_UPLOAD_OVERLAP && !s->replace &&
        gb_multipart_arrived(s->core, &s->session, s->id, s->offset, s->bytes, &s->arrived_crc)) {
        s->scratch = malloc(SCRATCH_BYTES);
        return s->scratch ? 0 : gb_error_memory(err, "request");
    }
    *err = why;
    return -1;
}

enum gb_step gb_api_upload_part(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_filters filters;
    struct sink *s;

    if (gb_uploads_filters(request, response, &filters, err) < 0)
        return GB_STEP_ERROR;
    s = calloc(1, sizeof(*s));
    if (!s) {
        gb_error_memory(err, "request");
        return GB_STEP_ERROR;
    }
    s->sink = (struct gb_http_sink){
        .room = sink_room, .fill = sink_fill, .pause = sink_pause, .end = sink_end, .free = sink_free};
    s->core = gb_api_of(request)->core;
    if (read_part(request, s, err) < 0 || begin(request, s, err) < 0) {
        free(s);
        return GB_STEP_ERROR;
    }
    return gb_filters_wrap(request, &filters, &s->sink, err);
}
