/* The bytes of one append. The first bytes may have to be read before there is memory for the rest: the header of a
 * .npy, which may itself come in pieces. */
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/request/media.h"
#include "api/transfer/resumable_sink.h"
#include "api/transfer/upload_request.h"
#include "api/transfer/uploads.h"
#include "format/npy.h"

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
    bool first;       /* no byte has come yet */
    const char *room; /* where the next bytes go */
    char id[GB_MULTIPART_ID_SIZE];
    struct gb_upload_request before; /* the plan, if whole */
    struct gb_error why;             /* it was refused */
};

/* --- what it is --------------------------------------------------------------------------------------------------- */

static int describe(struct sink *s, uint64_t skip, struct gb_error *err) {
    if (gb_append_describe(s->append, &s->plan->params, skip, err) < 0)
        return -1;
    s->plan->params.check.arg = NULL; /* the core's now */
    return 0;
}

static int describe_raw(struct sink *s, const struct gb_multipart_view *view, struct gb_error *err) {
    if (gb_upload_request_raw(s->plan, view->has_length, view->length, err) < 0 ||
        gb_append_length(s->append, s->plan->params.bytes, err) < 0)
        return -1;
    return describe(s, 0, err);
}

/* Describes the upload by its complete header. */
static int describe_said(struct sink *s, const struct gb_multipart_view *view, enum gb_form form,
                         struct gb_error *err) {
    const char *lead;
    size_t n;

    lead = gb_append_header(s->append, &n);
    if (gb_upload_request_header(s->plan, form, lead, n, view->has_length, view->length, err) < 0 ||
        gb_append_length(s->append, n + s->plan->params.bytes, err) < 0)
        return -1;
    return describe(s, n, err);
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
                            "the header of the safetensors file has %zu bytes and %d are kept for an upload that can "
                            "be resumed; PUT the whole, or give ?format=raw for raw bytes",
                            *ret, GB_MULTIPART_HEADER_MAX);
    return 0;
}

/* Describes the upload to the core as soon as that is possible. */
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
    return r;
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

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

/* --- the end ------------------------------------------------------------------------------------------------------ */

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
    if (s->completes && (gb_append_length(s->append, view->offset, err) < 0 || look(s, err) < 0))
        return -1;
    if (!s->completes || gb_append_described(s->append))
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
            return 1;
    }
    if (!s->ended)
        r = gb_append_end(s->append, err);
    if (r <= 0)
        return r;
    s->ended = true;
    return gb_append_result(s->append, view, err);
}

/* Also runs at each wake until the append is over. */
static enum gb_step finish(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)request->sink;
    struct gb_multipart_view view;
    int r = conclude(s, &view, err);

    if (r < 0)
        return GB_STEP_ERROR;
    if (r > 0)
        return s->completes ? complete(s, request, response, err) : appended(s, request, &view, response, err);
    if (!request->timed_out)
        return GB_STEP_WAIT;
    gb_error_set(err, GB_ERR_TIMED_OUT, "the bytes arrived, but the device did not finish in the permitted time");
    return GB_STEP_ERROR;
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    ((struct sink *)sink)->whole = false;
    request->resume = finish;
    request->deadline_ns = 0;
    return finish(request, response, err);
}

/* What made an upload makes none. */
static void discard(struct sink *s) {
    s->spoiled = s->spoiled || s->creates;
    gb_append_discard(s->append);
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

/* The client may go on at once where the upload stood. */
static enum gb_step sink_refused(struct gb_http_sink *sink, struct gb_http_request *request, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    s->why = *err;
    *err = GB_ERROR_INIT;
    discard(s);
    request->resume = refuse;
    request->deadline_ns = 0;
    return refuse(request, NULL, err);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    if (s->whole)
        discard(s);
    gb_append_free(s->append, s->spoiled);
    free(s);
}

struct gb_http_sink *gb_resumable_sink_new(struct gb_http_request *request, struct gb_append *append, bool creates,
                                           bool completes, bool whole, struct gb_error *err) {
    struct sink *s = calloc(1, sizeof(*s));
    struct gb_multipart_view view;

    if (!s) {
        gb_append_free(append, creates);
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return NULL;
    }
    s->sink = (struct gb_http_sink){.room = sink_room,
                                    .fill = sink_fill,
                                    .pause = sink_pause,
                                    .end = sink_end,
                                    .refused = sink_refused,
                                    .free = sink_free};
    s->core = gb_api_of(request)->core;
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
