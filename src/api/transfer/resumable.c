/* The headers of uploads that can be resumed. */
#include "api/transfer/resumable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/context.h"
#include "api/middleware/bounds.h"
#include "api/middleware/conditional.h"
#include "api/middleware/filters.h"
#include "api/route.h"
#include "api/transfer/resumable_sink.h"
#include "api/transfer/upload_request.h"
#include "api/transfer/uploads.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "http/message/fields.h"

/* --- fields ------------------------------------------------------------------------------------------------------- */

/* Returns 1 with *ret; 0 if there is none; -1 if it is something else. */
static int read_complete(const struct gb_http_request *request, bool *ret) {
    struct gb_field field;
    int r = gb_http_item(request, "Upload-Complete", &field);

    if (r <= 0 || field.type != GB_FIELD_BOOLEAN)
        return r == 0 ? 0 : -1;
    *ret = field.integer == 1;
    return 1;
}

/* Reads a number in the same way. */
static int read_number(const struct gb_http_request *request, const char *name, uint64_t *ret) {
    struct gb_field field;
    int r = gb_http_item(request, name, &field);

    if (r <= 0 || field.type != GB_FIELD_INTEGER || field.integer < 0)
        return r == 0 ? 0 : -1;
    *ret = (uint64_t)field.integer;
    return 1;
}

static int bad_length(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "Upload-Length must be a whole number of at most 15 digits");
}

/* Refuses a malformed field, because misreading it would take a part for the whole. */
int gb_resumable_asked(const struct gb_http_request *request, bool *ret, struct gb_error *err) {
    bool complete = true;
    uint64_t length;
    int r;

    if (read_complete(request, &complete) < 0)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "Upload-Complete must be ?0 (more is to come) or ?1");
    r = read_number(request, "Upload-Length", &length);
    if (r < 0)
        return bad_length(err);
    if (r > 0) {
        if (complete && request->has_content_length && request->content_length != length)
            return gb_error_set(err, GB_ERR_UPLOAD_LENGTH_MISMATCH,
                                "Upload-Length says %" PRIu64
                                " bytes in all, and this body is the whole and has %" PRIu64,
                                length, request->content_length);
    }
    *ret = !complete;
    return 0;
}

int gb_resumable_refuse(const struct gb_http_request *request, struct gb_error *err) {
    bool more = false;

    if (gb_resumable_asked(request, &more, err) < 0)
        return -1;
    return more ? gb_error_set(
                      err, GB_ERR_INVALID_ARGUMENT,
                      "what is sent here comes in one request: Upload-Complete: ?0 is for PUT or POST of the whole "
                      "of a buffer's data")
                : 0;
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

/* --- lengths ------------------------------------------------------------------------------------------------------ */

static int inconsistent(struct gb_http_response *response, uint64_t length, uint64_t told, struct gb_error *err) {
    gb_http_response_problem(response, GB_PROBLEM_LENGTH, NULL, 0);
    return gb_error_set(err, GB_ERR_UPLOAD_LENGTH_MISMATCH,
                        "the upload has %" PRIu64 " bytes in all, and this request makes it %" PRIu64, length, told);
}

/* Reads all that this request says of the length of the whole, and checks it against earlier requests. */
static int read_lengths(const struct gb_http_request *request, struct gb_append *append, uint64_t offset,
                        bool completes, struct gb_http_response *response, struct gb_error *err) {
    struct gb_multipart_view view;
    uint64_t length;
    uint64_t end;
    int r = read_number(request, "Upload-Length", &length);

    gb_append_view(append, &view);
    if (r < 0)
        return bad_length(err);
    if (r > 0) {
        if (gb_append_length(append, length, err) < 0)
            return inconsistent(response, view.length, length, err);
        view.has_length = true;
        view.length = length;
    }
    if (!request->has_content_length)
        return 0;
    if (!gb_add_u64(offset, request->content_length, &end))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the upload would have more than 2^63 - 1 bytes");
    if (view.has_length && (end > view.length || (completes && end != view.length)))
        return inconsistent(response, view.length, end, err);
    return completes ? gb_append_length(append, end, err) : 0;
}

/* --- begin -------------------------------------------------------------------------------------------------------- */

static void plan_free(void *arg) {
    struct gb_upload_request *plan = arg;

    gb_conditions_free(plan->params.check.arg);
    gb_session_unref(plan->params.session);
    free(plan);
}

/* Refuses early what can be refused before the first bytes are there. */
static int check_early(const struct gb_http_request *request, const struct gb_upload_request *plan, bool has_length,
                       uint64_t length, struct gb_error *err) {
    struct gb_upload_params params = plan->params;
    struct gb_buffer_params *buffer = &params.buffer;

    if (!plan->may_say)
        return 0;
    params.fresh = true;
    params.bytes = has_length && length > GB_MULTIPART_HEADER_MAX ? length - GB_MULTIPART_HEADER_MAX : 0;
    buffer->bytes = params.bytes;
    buffer->dtype = GB_DTYPE_UINT8;
    buffer->shape = (struct gb_shape){.dims = 1, .dim = {params.bytes}};
    buffer->has_shape = true;
    return gb_upload_check(gb_api_of(request)->core, &params, err);
}

static int read_plan(struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err) {
    struct gb_conditions *conditions;

    if (gb_upload_request_read(request, plan, err) < 0)
        return -1;
    if (plan->params.partial || plan->params.in_place)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "an upload that can be resumed makes all of a buffer anew: leave offset, slice and in_place out");
    if (gb_conditions_read(request, &conditions, err) < 0)
        return -1;
    plan->params.check = gb_conditions_buffer_check(conditions);
    return 0;
}

/* Takes append. */
static enum gb_step receive(struct gb_http_request *request, struct gb_append *append, const struct gb_filters *filters,
                            bool creates, bool completes, struct gb_error *err) {
    struct gb_http_sink *sink = gb_resumable_sink_new(request, append, creates, completes, filters->digests > 0, err);

    if (sink)
        sink = gb_filters_wrap(request, filters, sink, err);
    if (!sink)
        return GB_STEP_ERROR;
    request->sink = sink;
    return GB_STEP_BODY;
}

enum gb_step gb_resumable_begin(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct gb_upload_request *plan = NULL;
    struct gb_append *append;
    struct gb_filters filters;
    struct gb_place place;
    uint64_t length = 0;
    bool has_length = read_number(request, "Upload-Length", &length) > 0;

    if (gb_uploads_filters(request, response, &filters, err) < 0)
        return GB_STEP_ERROR;
    plan = calloc(1, sizeof(*plan));
    if (!plan) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return GB_STEP_ERROR;
    }
    if (read_plan(request, plan, err) < 0 || check_early(request, plan, has_length, length, err) < 0 ||
        gb_bounds_upload(request, &place, err) < 0) {
        plan_free(plan);
        return GB_STEP_ERROR;
    }
    /* From here on the plan belongs to the upload. */
    plan->params.place = &place;
    if (gb_append_new(gb_api_of(request)->core, &plan->params, has_length ? &length : NULL, plan, plan_free,
                      (struct gb_waker){wake, request}, &append, err) < 0) {
        gb_bounds_upload_kept(&place);
        return GB_STEP_ERROR;
    }
    plan->params.place = NULL;
    if (read_lengths(request, append, 0, false, response, err) < 0) {
        gb_append_free(append, true);
        return GB_STEP_ERROR;
    }
    return receive(request, append, &filters, true, false, err);
}

/* --- append ------------------------------------------------------------------------------------------------------- */

static int check_type(const struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    const char *type = gb_http_header(request, "Content-Type");
    size_t n = strlen(GB_PARTIAL_UPLOAD);

    if (type && strncasecmp(type, GB_PARTIAL_UPLOAD, n) == 0 && (type[n] == '\0' || strchr("; \t", type[n])))
        return 0;
    gb_http_response_header(response, NULL, "Accept-Patch", "%s", GB_PARTIAL_UPLOAD);
    return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE, "bytes are appended with Content-Type: %s",
                        GB_PARTIAL_UPLOAD);
}

/* Adds the members and headers of the draft to the problem document. */
static void explain(struct gb_http_response *response, uint64_t stands, uint64_t offset, const struct gb_error *err) {
    struct gb_json_writer out = {.comma = true};

    if (err->code == GB_ERR_UPLOAD_COMPLETED)
        gb_http_response_problem(response, GB_PROBLEM_COMPLETED, NULL, 0);
    if (err->code != GB_ERR_UPLOAD_OFFSET_MISMATCH)
        return;
    gb_http_response_header(response, NULL, "Upload-Offset", "%" PRIu64, stands);
    gb_http_response_header(response, NULL, "Upload-Complete", "?0");
    gb_json_put_u64(&out, "expected-offset", stands);
    gb_json_put_u64(&out, "provided-offset", offset);
    if (out.failed)
        gb_json_done(&out);
    gb_http_response_problem(response, GB_PROBLEM_OFFSET, out.s, out.used);
}

static int read_append(const struct gb_http_request *request, uint64_t *ret_offset, bool *ret_completes,
                       struct gb_filters *ret_filters, struct gb_http_response *response, struct gb_error *err) {
    if (check_type(request, response, err) < 0 || gb_uploads_filters(request, response, ret_filters, err) < 0)
        return -1;
    if (read_number(request, "Upload-Offset", ret_offset) <= 0)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST, "say where the bytes go on: Upload-Offset: N");
    if (read_complete(request, ret_completes) <= 0)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST,
                            "say whether these are the last bytes: Upload-Complete: ?1, or ?0");
    return 0;
}

enum gb_step gb_api_upload_append(struct gb_http_request *request, struct gb_http_response *response,
                                  struct gb_error *err) {
    struct gb_append *append;
    struct gb_filters filters;
    struct gb_name session;
    uint64_t offset = 0;
    uint64_t stands = 0;
    bool completes = false;
    const char *id;

    if (gb_path_upload(request, &session, &id, err) < 0 ||
        read_append(request, &offset, &completes, &filters, response, err) < 0)
        return GB_STEP_ERROR;
    if (gb_append_open(gb_api_of(request)->core, &session, id, offset, (struct gb_waker){wake, request}, &append,
                       &stands, err) < 0) {
        explain(response, stands, offset, err);
        return GB_STEP_ERROR;
    }
    if (read_lengths(request, append, offset, completes, response, err) < 0) {
        gb_append_free(append, false);
        return GB_STEP_ERROR;
    }
    return receive(request, append, &filters, false, completes, err);
}
