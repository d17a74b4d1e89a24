/* Uploads in several requests after a broken connection (draft-ietf-httpbis-resumable-upload). An append continues
 * where the upload stands; bytes that do not match their digest are taken back. data.c calls this for a new upload, the
 * route of uploads for an append. */
#include "api/resources/resumable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/request/query.h"
#include "api/resources/table.h"
#include "api/resources/upload.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "core/core.h"
#include "format/npy.h"
#include "http/http.h"
#include "http/message/fields.h"

/* --- the bytes of an append --------------------------------------------------------------------------------------- */

/* The bytes of one append. The first bytes may have to be read before there is memory for the rest: the header of a
 * .npy, which may itself come in pieces. */

struct sink {
    struct gb_http_sink sink; /* first */
    struct gb_core *core;
    struct gb_append *append;
    struct gb_upload_request *plan; /* the upload's */
    bool creates;
    bool completes;
    bool whole;   /* until all bytes are there and compared: what came may have to be taken back */
    bool spoiled; /* the upload cannot succeed */
    bool ended;
    bool first; /* no byte has come yet */
    struct gb_http_request *request;
    struct gb_heading *long_head; /* of a header that is longer than most; NULL: of none */
    bool parses;
    const char *room; /* where the next bytes go */
    char id[GB_MULTIPART_ID_SIZE];
    struct gb_upload_request before; /* the plan, if whole */
    struct gb_error why;             /* it was refused */
};

static void wake(void *arg) {
    gb_http_wake(arg);
}

/* --- the form of the bytes ---------------------------------------------------------------------------------------- */

static int describe(struct sink *s, uint64_t skip, struct gb_error *err) {
    struct gb_gaps gaps = {0};
    int r;

    if (s->plan->table) {
        gaps = gb_tables_gaps(s->plan->table);
        s->plan->params.gaps = &gaps;
        skip = 0; /* the header is a part of the buffer */
    }
    r = gb_append_describe(s->append, &s->plan->params, skip, err);
    s->plan->params.gaps = NULL;
    if (gaps.free_arg)
        gaps.free_arg(gaps.arg);
    if (r < 0)
        return -1;
    s->plan->params.check.arg = NULL; /* the core's now, and so is the table */
    gb_table_unref(s->plan->table);
    s->plan->table = NULL;
    return 0;
}

static int describe_raw(struct sink *s, const struct gb_multipart_view *view, struct gb_error *err) {
    if (gb_upload_request_raw(s->plan, view->has_length, view->length, err) < 0 ||
        gb_append_length(s->append, s->plan->params.bytes, err) < 0)
        return -1;
    return describe(s, 0, err);
}

/* Parses a long header on the thread for that. Returns 1, 0: wait for wake, or -1. */
static int parse_long(struct sink *s, const struct gb_multipart_view *view, const char *lead, size_t n,
                      struct gb_error *err) {
    struct gb_safetensors file;
    struct gb_table *table;
    char *text;
    int r;

    if (!s->long_head)
        s->long_head = gb_heading_new(gb_api_of(s->request)->tables, n, (struct gb_waker){wake, s->request});
    if (!s->long_head)
        return gb_error_memory(err, "request");
    if (!s->parses) {
        r = gb_heading_room(s->long_head, &text, err);
        if (r <= 0)
            return r;
        memcpy(text, lead, n);
        gb_heading_parse(s->long_head, gb_upload_request_least(s->plan));
        s->parses = true;
    }
    r = gb_heading_result(s->long_head, &table, &file, err);
    if (r != 0) {
        gb_heading_free(s->long_head);
        s->long_head = NULL;
        s->parses = false;
    }
    return r <= 0                                                                                        ? r
           : gb_upload_request_parsed(s->plan, table, &file, n, view->has_length, view->length, err) < 0 ? -1
                                                                                                         : 1;
}

/* Describes the upload by its complete header. Returns 1, 0: wait for wake, or -1. */
static int describe_said(struct sink *s, const struct gb_multipart_view *view, enum gb_form form,
                         struct gb_error *err) {
    const char *lead;
    size_t n;
    int r;

    lead = gb_append_header(s->append, &n);
    if (form == GB_FORM_SAFETENSORS && n > GB_HEADING_LONG) {
        r = parse_long(s, view, lead, n, err);
        if (r <= 0)
            return r;
    } else if (gb_upload_request_header(s->plan, form, lead, n, view->has_length, view->length, err) < 0) {
        return -1;
    }
    if (gb_append_length(s->append, s->plan->table ? gb_table_file_bytes(s->plan->table) : n + s->plan->params.bytes,
                         err) < 0)
        return -1;
    return describe(s, n, err) < 0 ? -1 : 1;
}

/* Finds how many bytes of the beginning are needed before the payload, and the form as far as it is known. */
static int lead_need(const struct sink *s, const struct gb_multipart_view *view, size_t *ret, enum gb_form *ret_form,
                     struct gb_error *err) {
    const char *lead;
    size_t n;

    lead = gb_append_header(s->append, &n);
    *ret_form = s->plan->said;
    *ret = 0;
    if (s->plan->may_say)
        *ret = view->has_length && view->length < GB_NPY_PREFIX ? (size_t)view->length : GB_NPY_PREFIX;
    if (n < *ret || !s->plan->may_say)
        return 0;
    *ret_form = gb_upload_request_recognize(s->plan, lead, n);
    if (*ret_form == GB_FORM_RAW)
        return 0;
    if (gb_upload_request_header_bytes(s->plan, *ret_form, lead, n, ret, err) < 0)
        return -1;
    if (view->has_length && *ret > view->length)
        return gb_upload_request_cut(s->plan, *ret_form, view->length, err);
    if (*ret > GB_MULTIPART_HEADER_MAX)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY,
                            "the header of the safetensors file has %zu bytes and %u are kept for an upload that can "
                            "be resumed; PUT the whole in one request, or give ?format=raw for raw bytes",
                            *ret, GB_MULTIPART_HEADER_MAX);
    return 0;
}

/* Describes the upload to the core as soon as that is possible. Returns 0, or -1; a long header may be parsed still. */
static int look(struct sink *s, struct gb_error *err) {
    struct gb_multipart_view view;
    enum gb_form form;
    size_t need;
    int r = 0;

    if (gb_append_described(s->append))
        return 0;
    gb_append_view(s->append, &view);
    if (lead_need(s, &view, &need, &form, err) < 0)
        r = -1;
    else if (view.offset >= need)
        r = form == GB_FORM_RAW ? describe_raw(s, &view, err) : describe_said(s, &view, form, err);
    s->spoiled = s->spoiled || (r < 0 && !s->whole);
    return r < 0 ? -1 : 0;
}

/* --- the sink ----------------------------------------------------------------------------------------------------- */

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    struct gb_multipart_view view;
    enum gb_form form;
    size_t need;
    int r;

    if (gb_append_described(s->append)) {
        r = gb_append_room(s->append, ret_ptr, ret_n, err);
        if (r > 0)
            s->room = *ret_ptr;
        return r;
    }
    if (s->long_head) {
        if (look(s, err) < 0)
            return -1;
        return s->long_head ? 0 : sink_room(sink, ret_ptr, ret_n, err);
    }
    gb_append_view(s->append, &view);
    if (lead_need(s, &view, &need, &form, err) < 0)
        return -1;
    return gb_append_header_room(s->append, need, ret_ptr, ret_n, err);
}

static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    if (gb_append_described(s->append)) {
        bool mistaken = s->first && s->plan->never_npy && gb_npy_magic(s->room, n);

        s->spoiled = mistaken && !s->whole;
        if (mistaken)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "the bytes are those of a .npy, which says dtype and shape itself; leave them out, or "
                                "give ?format=raw to store the file as it is");
        s->first = false;
        return gb_append_fill(s->append, n, err);
    }
    s->first = false;
    gb_append_header_fill(s->append, n);
    return look(s, err);
}

static void sink_pause(struct gb_http_sink *sink, bool stalled) {
    gb_append_pause(((struct sink *)sink)->append, stalled);
}

/* --- the end of an append ----------------------------------------------------------------------------------------- */

static enum gb_step appended(struct sink *s, struct gb_http_request *request, const struct gb_multipart_view *view,
                             struct gb_http_response *response, struct gb_error *err) {
    if (s->creates)
        return gb_multipart_reply(request, view, 201, response, err);
    if (gb_multipart_headers(view, false, response, err) < 0)
        return GB_STEP_ERROR;
    response->status = 204;
    return GB_STEP_REPLY;
}

static enum gb_step complete(struct sink *s, struct gb_http_request *request, struct gb_http_response *response,
                             struct gb_error *err) {
    const char *warning = s->plan->warning;

    gb_append_free(s->append, false); /* and perhaps the plan */
    s->append = NULL;
    /* The reply from here on is that of the whole upload. */
    if (gb_http_response_header(response, err, "Upload-Complete", "?1") < 0)
        return GB_STEP_ERROR;
    return gb_multipart_finish(request, s->id, NULL, NULL, warning, response, err);
}

/* The body has ended before its form is known. */
static int conclude_lead(struct sink *s, struct gb_multipart_view *view, struct gb_error *err) {
    enum gb_form form;
    const char *lead;
    size_t n;

    gb_append_view(s->append, view);
    if (s->completes && gb_append_length(s->append, view->offset, err) < 0)
        return -1;
    if ((s->completes || s->long_head) && look(s, err) < 0)
        return -1;
    if (!s->completes || s->long_head || gb_append_described(s->append))
        return 0;
    s->spoiled = true;
    lead = gb_append_header(s->append, &n);
    form = gb_upload_request_recognize(s->plan, lead, n);
    return gb_upload_request_cut(s->plan, form, view->offset, err);
}

/* Returns 1 when every byte that came is in its place, 0 to wait, or -1. */
static int conclude(struct sink *s, struct gb_multipart_view *view, struct gb_error *err) {
    int r = 1;

    if (!gb_append_described(s->append)) {
        if (conclude_lead(s, view, err) < 0)
            return -1;
        if (!gb_append_described(s->append))
            return s->long_head == NULL;
    }
    if (!s->ended)
        r = gb_append_end(s->append, err);
    if (r <= 0)
        return r;
    s->ended = true;
    return gb_append_result(s->append, view, err);
}

/* Also runs at each wake until the append has ended. */
static enum gb_step finish(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)request->sink;
    struct gb_multipart_view view;
    int r = conclude(s, &view, err);

    if (r < 0)
        return GB_STEP_ERROR;
    if (r > 0)
        return s->completes ? complete(s, request, response, err) : appended(s, request, &view, response, err);
    return gb_body_await(request, "device", err);
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    ((struct sink *)sink)->whole = false;
    return gb_http_await(request, finish, response, err);
}

/* An upload that this request made ends; an older one is again as before the request. */
static void discard(struct sink *s) {
    s->spoiled = s->spoiled || s->creates;
    gb_append_discard(s->append);
    if (s->plan->table != s->before.table)
        gb_table_unref(s->plan->table);
    *s->plan = s->before;
    s->whole = false;
}

static enum gb_step refuse(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)request->sink;

    (void)response;
    if (!gb_append_discarded(s->append) && !request->timed_out)
        return GB_STEP_WAIT;
    *err = s->why;
    return GB_STEP_ERROR;
}

/* The client may continue at once from the former offset. */
static enum gb_step sink_refused(struct gb_http_sink *sink, struct gb_http_request *request, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    s->why = *err;
    *err = GB_ERROR_INIT;
    discard(s);
    return gb_http_await(request, refuse, NULL, err);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    if (s->whole)
        discard(s);
    gb_append_free(s->append, s->spoiled);
    gb_heading_free(s->long_head);
    free(s);
}

/* Makes a sink for the bytes. Takes append, also on failure. creates: the request made the upload. completes:
 * Upload-Complete is ?1. whole: the bytes are to be compared with a digest, and count when that was done or not at all.
 * Returns NULL with *err. */
static struct gb_http_sink *resumable_sink_new(struct gb_http_request *request, struct gb_append *append, bool creates,
                                               bool completes, bool whole, struct gb_error *err) {
    struct sink *s = calloc(1, sizeof(*s));
    struct gb_multipart_view view;

    if (!s) {
        gb_append_free(append, creates);
        gb_error_memory(err, "request");
        return NULL;
    }
    s->sink = (struct gb_http_sink){.room = sink_room,
                                    .fill = sink_fill,
                                    .pause = sink_pause,
                                    .end = sink_end,
                                    .refused = sink_refused,
                                    .free = sink_free};
    s->core = gb_api_of(request)->core;
    s->request = request;
    s->append = append;
    s->plan = gb_append_app(append);
    s->creates = creates;
    s->completes = completes;
    s->whole = whole;
    s->before = *s->plan;
    if (whole)
        gb_append_whole(append);
    gb_append_view(append, &view);
    s->first = view.offset == 0;
    memcpy(s->id, view.id, sizeof(s->id));
    if (look(s, err) < 0) {
        sink_free(&s->sink);
        return NULL;
    }
    return &s->sink;
}

/* --- the headers of uploads that can be resumed ------------------------------------------------------------------- */

/* Returns 1 with *ret; 0 if the header is absent; -1 if it is malformed. */
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

/* A malformed field must not take a part for the whole. */
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
    gb_table_unref(plan->table);
    free(plan);
}

/* Refuses early what can be refused before the first bytes are there. */
static int check_early(const struct gb_http_request *request, const struct gb_upload_request *plan, bool has_length,
                       uint64_t length, struct gb_error *err) {
    /* A safetensors header that the client did not announce counts as no longer than that of a .npy. */
    uint64_t header = plan->said == GB_FORM_SAFETENSORS ? GB_MULTIPART_HEADER_MAX : GB_NPY_HEADER_MAX;
    struct gb_upload_params params = plan->params;
    struct gb_buffer_params *buffer = &params.buffer;

    if (!plan->may_say)
        return 0;
    params.fresh = true;
    params.bytes = has_length && length > header ? length - header : 0;
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
    struct gb_http_sink *sink = resumable_sink_new(request, append, creates, completes, filters->digests > 0, err);

    return gb_filters_wrap(request, filters, sink, err);
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
        gb_error_memory(err, "request");
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
        gb_bounds_upload_release(&place);
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
