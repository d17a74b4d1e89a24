/* The body of an upload. Only the header of a .npy or safetensors file (or the few bytes that show there is none) is
 * gathered here; every byte after it goes straight into the memory that the core gives. */
#include <stdlib.h>

#include "api/context.h"
#include "api/middleware/conditional.h"
#include "api/middleware/filters.h"
#include "api/middleware/hook.h"
#include "api/request/media.h"
#include "api/transfer/upload_reply.h"
#include "api/transfer/upload_request.h"
#include "api/transfer/upload_sink.h"
#include "base/clock.h"
#include "format/npy.h"
#include "format/safetensors.h"

enum stage {
    STAGE_PROBE,  /* the first bytes, which tell what the body is */
    STAGE_HEADER, /* the rest of the header of a form that has one */
    STAGE_PAYLOAD,
    STAGE_ENDED /* the core knows that all bytes have arrived */
};

struct sink {
    struct gb_http_sink sink; /* first */
    const struct gb_api *api;
    struct gb_core *core;
    struct gb_upload_request plan;
    struct gb_upload *upload;
    enum stage stage;
    enum gb_form form; /* from STAGE_HEADER on */
    bool has_length;
    uint64_t length; /* of the body */
    char *head;
    size_t head_used;
    size_t head_need;
    size_t spilled; /* of head, given to the core as payload */
    size_t spill;   /* of head, payload in all */
    uint64_t payload;
    const char *room; /* where the next payload bytes go */
    uint64_t recv_ns;
};

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SATURATED, "no memory for the upload; try again later");
}

/* Begins the upload of a complete request. */
static int begin(struct sink *s, struct gb_error *err) {
    bool open_ended = s->plan.params.open_ended;

    if (gb_upload_request_permit(&s->plan, err) < 0 ||
        (s->plan.coded && !open_ended && gb_filters_permit(s->api, s->plan.params.bytes, err) < 0))
        return -1;
    if (gb_upload_begin(s->core, &s->plan.params, &s->upload, err) < 0)
        return -1;
    s->plan.params.check.arg = NULL; /* the core's now */
    s->stage = STAGE_PAYLOAD;
    return 0;
}

/* Begins a raw upload with the bytes gathered so far as payload. */
static int begin_raw(struct sink *s, struct gb_error *err) {
    if ((s->has_length || !gb_upload_request_open(&s->plan)) &&
        gb_upload_request_raw(&s->plan, s->has_length, s->length, err) < 0)
        return -1;
    s->spill = s->head_used;
    return begin(s, err);
}

/* The header is there. */
static int begin_said(struct sink *s, struct gb_error *err) {
    if (gb_upload_request_header(&s->plan, s->form, s->head, s->head_used, s->has_length, s->length, err) < 0)
        return -1;
    return begin(s, err);
}

/* The first bytes are there. */
static int look(struct sink *s, struct gb_error *err) {
    char *bigger;

    s->form = gb_upload_request_recognize(&s->plan, s->head, s->head_used);
    if (s->form == GB_FORM_RAW)
        return begin_raw(s, err);
    if (gb_upload_request_header_bytes(&s->plan, s->form, s->head, s->head_used, &s->head_need, err) < 0)
        return -1;
    if (s->has_length && s->head_need > s->length)
        return gb_upload_request_cut(&s->plan, s->form, s->length, err);
    bigger = realloc(s->head, s->head_need);
    if (!bigger)
        return no_memory(err);
    s->head = bigger;
    s->stage = STAGE_HEADER;
    return s->head_used == s->head_need ? begin_said(s, err) : 0;
}

/* Gives gathered payload to the core. Returns 1 when all is given, 0 to wait, or -1. */
static int push_spill(struct sink *s, struct gb_error *err) {
    size_t before = s->spilled;
    int r = gb_upload_copy_in(s->upload, s->head, s->spill, &s->spilled, err);

    s->payload += s->spilled - before;
    return r;
}

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    int r;

    if (s->stage < STAGE_PAYLOAD) {
        *ret_ptr = s->head + s->head_used;
        *ret_n = s->head_need - s->head_used;
        return 1;
    }
    r = push_spill(s, err);
    if (r <= 0)
        return r;
    if (s->payload == s->plan.params.bytes && !s->plan.params.open_ended)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "dtype and shape make %llu bytes, the body has more",
                            (unsigned long long)s->plan.params.bytes);
    r = gb_upload_room(s->upload, ret_ptr, ret_n, err);
    if (r > 0)
        s->room = *ret_ptr;
    return r;
}

static int sink_fill(struct gb_http_sink *sink, size_t n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    if (s->stage >= STAGE_PAYLOAD) {
        if (s->plan.never_npy && s->payload == 0 && gb_npy_magic(s->room, n))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "the body is a .npy, which says dtype and shape itself; leave them out, or give "
                                "?format=raw to store the file as it is");
        s->payload += n;
        return gb_upload_fill(s->upload, n, err);
    }
    s->head_used += n;
    if (s->head_used < s->head_need)
        return 0;
    return s->stage == STAGE_PROBE ? look(s, err) : begin_said(s, err);
}

static void sink_pause(struct gb_http_sink *sink, bool stalled) {
    struct sink *s = (struct sink *)sink;

    if (s->upload)
        gb_upload_pause(s->upload, stalled);
}

/* Tells the core, once, that the whole body has arrived. Returns 1 when that is done, 0 to wait, or -1. */
static int conclude(struct sink *s, const struct gb_http_request *request, struct gb_error *err) {
    struct gb_store_mark mark;
    int r;

    if (s->stage == STAGE_PROBE && look(s, err) < 0)
        return -1;
    if (s->stage == STAGE_HEADER)
        return gb_upload_request_cut(&s->plan, s->form, s->head_used, err);
    if (s->stage == STAGE_ENDED)
        return 1;
    r = push_spill(s, err);
    if (r <= 0)
        return r;
    if (s->payload != s->plan.params.bytes && !s->plan.params.open_ended)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "dtype and shape make %llu bytes, the body has %llu",
                            (unsigned long long)s->plan.params.bytes, (unsigned long long)s->payload);
    mark = gb_request_hooks_mark(request);
    gb_upload_mark(s->upload, &mark);
    if (gb_upload_end(s->upload, err) < 0)
        return -1;
    s->stage = STAGE_ENDED;
    return 1;
}

static bool cancel(struct gb_http_request *request, bool act) {
    return gb_upload_cancel(((struct sink *)request->sink)->upload, act);
}

/* Also runs at each wake until the result is there. */
static enum gb_step finish(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)request->sink;
    struct gb_transfer_times times;
    struct gb_buffer_rec rec;
    enum gb_step step;
    bool created;
    int r = conclude(s, request, err);

    if (r > 0)
        r = gb_upload_result(s->upload, &rec, &created, &times, err);
    if (r < 0)
        return GB_STEP_ERROR;
    if (r > 0) {
        gb_request_hooks_done(request);
        step = gb_upload_reply(request, &rec, created, s->plan.warning, &times, s->recv_ns, response, err);
        gb_buffer_rec_done(&rec);
        return step;
    }
    if (!request->timed_out) {
        if (!request->detached)
            request->cancel = s->stage == STAGE_ENDED ? cancel : NULL;
        return GB_STEP_WAIT;
    }
    gb_error_set(err, GB_ERR_TIMED_OUT,
                 "the bytes arrived, but the device or the database did not finish in the permitted time");
    return GB_STEP_ERROR;
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    s->recv_ns = gb_clock_ns();
    request->resume = finish;
    request->deadline_ns = 0;
    return finish(request, response, err);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    gb_upload_blame(s->upload, s->sink.failed);
    gb_upload_free(s->upload);
    gb_conditions_free(s->plan.params.check.arg);
    gb_session_unref(s->plan.params.session);
    free(s->head);
    free(s);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

static int check_bytes(const struct sink *s, uint64_t bytes, bool again, struct gb_error *err) {
    struct gb_upload_params params = s->plan.params;
    bool fits = params.offset <= s->plan.existing_bytes && bytes <= s->plan.existing_bytes - params.offset;

    /* A write in place or of a part takes no more than the buffer, if it fits at all. */
    if (s->plan.exists && (params.partial || params.in_place || s->plan.adopted) && fits) {
        bytes = s->plan.existing_bytes;
        params.offset = 0;
    }
    params.asked_before = again;
    params.bytes = bytes;
    params.buffer.bytes = bytes;
    params.buffer.dtype = GB_DTYPE_UINT8;
    params.buffer.shape = (struct gb_shape){.dims = 1, .dim = {bytes}};
    params.buffer.has_shape = true;
    return gb_upload_check(s->core, &params, err);
}

/* The least number of bytes that a body with a possible header carries: its length without the longest header. A
 * safetensors header that the client did not announce counts as no longer than that of a .npy. An upload far over quota
 * is thus refused before it is sent. */
static int check_early(const struct sink *s, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    uint64_t header =
        s->plan.said == GB_FORM_SAFETENSORS ? GB_SAFETENSORS_LENGTH + GB_SAFETENSORS_HEADER_MAX : GB_NPY_HEADER_MAX;
    uint64_t least = s->has_length && s->length > header ? s->length - header : 0;

    if (s->plan.sliced)
        return gb_upload_check(s->core, &s->plan.params, err);
    if (check_bytes(s, least, true, &why) == 0)
        return 0;
    /* The numbers that the client knows read better; a request refused for fewer bytes is refused for more. */
    if (check_bytes(s, least == 0 ? 0 : s->length, false, err) == 0)
        *err = why;
    return -1;
}

static int prepare(struct sink *s, struct gb_error *err) {
    if (!s->plan.may_say)
        return begin_raw(s, err);
    if (s->has_length && s->length > INT64_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a body of more than 2^63 - 1 bytes");
    if (check_early(s, err) < 0)
        return -1;
    s->head_need = s->has_length && s->length < GB_NPY_PREFIX ? (size_t)s->length : GB_NPY_PREFIX;
    s->head = malloc(GB_NPY_PREFIX);
    if (!s->head)
        return no_memory(err);
    /* No byte will come that could decide. */
    return s->head_need == 0 ? look(s, err) : 0;
}

struct gb_http_sink *gb_upload_sink_new(struct gb_http_request *request, const struct gb_upload_request *plan,
                                        struct gb_error *err) {
    struct sink *s = calloc(1, sizeof(*s));

    if (!s) {
        gb_conditions_free(plan->params.check.arg);
        gb_session_unref(plan->params.session);
        no_memory(err);
        return NULL;
    }
    s->sink = (struct gb_http_sink){
        .room = sink_room, .fill = sink_fill, .pause = sink_pause, .end = sink_end, .free = sink_free};
    s->api = gb_api_of(request);
    s->core = s->api->core;
    s->plan = *plan;
    s->plan.params.waker = (struct gb_waker){wake, request};
    s->has_length = request->has_content_length && !plan->coded;
    s->length = request->content_length;
    if (prepare(s, err) < 0) {
        sink_free(&s->sink);
        return NULL;
    }
    return &s->sink;
}
