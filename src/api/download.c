/* GET and HEAD .../data */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/conditional.h"
#include "api/context.h"
#include "api/digest.h"
#include "api/media.h"
#include "api/npy.h"
#include "api/safetensors.h"
#include "api/tensor_names.h"
#include "base/clock.h"
#include "http/conditions.h"
#include "http/range.h"

/* What is to be sent: part of the form's header (raw bytes have none), then part of the bytes. */
struct download {
    struct gb_http_source source; /* first */
    struct gb_download *core;     /* NULL where no byte of the buffer is sent */
    struct gb_buffer_rec rec;
    enum gb_form form;
    char *head;
    size_t head_size;
    uint64_t total; /* of the representation */
    enum gb_range_kind range_kind;
    struct gb_range range; /* of the representation */
    size_t head_at;        /* what is still to be sent of head: [head_at, head_end) */
    size_t head_end;
    uint64_t offset; /* of the bytes */
    uint64_t length;
    const char *block; /* the first block, got before the header went out */
    size_t block_n;
};

/* --- as a source -------------------------------------------------------------------------------------------------- */

static int source_next(struct gb_http_source *source, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct download *d = (struct download *)source;

    if (d->head_at < d->head_end) {
        *ret_ptr = d->head + d->head_at;
        *ret_n = d->head_end - d->head_at;
        return 1;
    }
    if (d->block_n > 0) {
        *ret_ptr = d->block;
        *ret_n = d->block_n;
        return 1;
    }
    if (!d->core)
        return gb_error_set(err, GB_ERR_INTERNAL, "more was asked for than there is to send");
    return gb_download_next(d->core, ret_ptr, ret_n, err);
}

static void source_sent(struct gb_http_source *source, size_t n) {
    struct download *d = (struct download *)source;

    if (d->head_at < d->head_end) {
        d->head_at += n;
        return;
    }
    if (d->block_n > 0) {
        d->block += n;
        d->block_n -= n;
    }
    gb_download_sent(d->core, n);
}

static void source_pause(struct gb_http_source *source) {
    struct download *d = (struct download *)source;

    d->block_n = 0; /* what is left of it comes again from the core */
    if (d->core)
        gb_download_pause(d->core);
}

static void source_free(struct gb_http_source *source, bool complete) {
    struct download *d = (struct download *)source;

    gb_download_free(d->core, complete);
    free(d->head);
    free(d);
}

static void state_free(void *state) {
    source_free(state, false);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

/* --- what to send ------------------------------------------------------------------------------------------------- */

static int choose_format(const struct gb_http_request *request, enum gb_dtype dtype, enum gb_form *ret,
                         struct gb_error *err) {
    const struct gb_http_text *format = gb_http_query(request, "format");
    unsigned offered = 1u << GB_FORM_RAW;

    if (gb_dtype_npy(dtype))
        offered |= 1u << GB_FORM_NPY;
    if (gb_dtype_safetensors(dtype))
        offered |= 1u << GB_FORM_SAFETENSORS;
    if (!format)
        return gb_media_accept(gb_http_header(request, "Accept"), offered, ret, err);
    if (gb_media_form(format->s, ret, err) < 0)
        return -1;
    if (offered & 1u << *ret)
        return 0;
    return gb_error_set(err, GB_ERR_NOT_ACCEPTABLE, "%s has no %s; ask for ?format=raw%s",
                        *ret == GB_FORM_NPY ? "a .npy" : "safetensors", gb_dtype_name(dtype),
                        offered == 1u << GB_FORM_RAW ? ""
                        : *ret == GB_FORM_NPY        ? " or safetensors"
                                                     : " or npy");
}

static int make_head(struct download *d, struct gb_error *err) {
    struct gb_out out = {0};
    char name[GB_LABELS_MAX];

    free(d->head);
    d->head = NULL;
    d->head_size = 0;
    if (d->form == GB_FORM_SAFETENSORS) {
        gb_safetensors_open(&out);
        gb_safetensors_add(&out, gb_tensor_name(&d->rec, name), d->rec.dtype, &d->rec.shape, 0, d->rec.bytes);
        if (gb_safetensors_close(&out, err) < 0) {
            gb_out_done(&out);
            return -1;
        }
        d->head = out.s;
        d->head_size = out.used;
    } else if (d->form == GB_FORM_NPY) {
        d->head = malloc(GB_NPY_WRITE_MAX);
        if (!d->head)
            return gb_error_set(err, GB_ERR_SATURATED, "no memory for the download; try again later");
        d->head_size = gb_npy_write_header(d->rec.dtype, &d->rec.shape, d->head);
    }
    return 0;
}

static int check_state(const struct gb_buffer_rec *rec, struct gb_error *err) {
    if (rec->state == GB_BUFFER_LOST)
        return gb_error_set(
            err, GB_ERR_CONTENT_LOST,
            "the bytes of '%s' died with an earlier process, with the device or with their pool; upload them again",
            rec->name.s);
    if (rec->state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL, "an in-place upload of '%s' broke off; upload it again",
                            rec->name.s);
    return 0;
}

/* The part of the representation that was asked for, as a part of the header and a part of the bytes. */
static void cut(struct download *d) {
    uint64_t end = d->range.first + d->range.length;

    d->head_at = d->range.first < d->head_size ? (size_t)d->range.first : d->head_size;
    d->head_end = end < d->head_size ? (size_t)end : d->head_size;
    d->offset = d->range.first > d->head_size ? d->range.first - d->head_size : 0;
    d->length = d->range.length - (d->head_end - d->head_at);
}

/* Decides on what the record says. 1: send; 0: the response is complete; -1. The response holds the ETag afterwards. */
static int decide(struct download *d, const struct gb_http_request *request, struct gb_http_response *response,
                  struct gb_error *err) {
    const char *if_range = gb_http_header(request, "If-Range");
    const char *range = gb_http_header(request, "Range");
    char etag[GB_ETAG_SIZE];
    int r;

    if (check_state(&d->rec, err) < 0 || choose_format(request, d->rec.dtype, &d->form, err) < 0)
        return -1;
    gb_etag_data(&d->rec, d->form, etag);
    r = gb_conditions_get(request, etag, response, err);
    if (r <= 0)
        return r;
    if (make_head(d, err) < 0)
        return -1;
    d->total = d->head_size + d->rec.bytes;
    if (if_range && !gb_etag_if_range(if_range, etag))
        range = NULL;
    d->range_kind = gb_range_parse(range, d->total, &d->range);
    if (d->range_kind == GB_RANGE_UNSATISFIABLE) {
        gb_http_response_header(response, err, "Content-Range", "bytes */%" PRIu64, d->total);
        return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE, "the data has %" PRIu64 " bytes", d->total);
    }
    if (d->range_kind == GB_RANGE_WHOLE)
        d->range = (struct gb_range){.first = 0, .length = d->total};
    cut(d);
    return 1;
}

/* --- the reply ---------------------------------------------------------------------------------------------------- */

static int add_headers(const struct download *d, const struct gb_http_request *request,
                       struct gb_http_response *response, struct gb_error *err) {
    char etag[GB_ETAG_SIZE];
    char shape[GB_SHAPE_TEXT_SIZE];
    int r = 0;

    gb_shape_text(&d->rec.shape, shape);
    r |= gb_http_response_header(response, err, "Content-Type", "%s", gb_media_type(d->form));
    r |= gb_http_response_header(response, err, "Accept-Ranges", "bytes");
    r |= gb_http_response_header(response, err, "Vary", "Accept");
    r |= gb_http_response_header(response, err, "X-Content-Type-Options", "nosniff");
    r |= gb_http_response_header(response, err, "Gpubuf-Dtype", "%s", gb_dtype_name(d->rec.dtype));
    if (d->rec.shape.dims > 0) /* libmicrohttpd takes no header without a value */
        r |= gb_http_response_header(response, err, "Gpubuf-Shape", "%s", shape);
    r |= gb_http_response_header(response, err, "Gpubuf-Generation", "%" PRId64, d->rec.generation);
    if (d->rec.has_crc32c)
        r |= gb_http_response_header(response, err, "Gpubuf-Crc32c", "%08" PRIx32, d->rec.crc32c);
    if (d->range_kind == GB_RANGE_PART) {
        response->status = 206;
        r |= gb_http_response_header(response, err, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                                     d->range.first, d->range.first + d->range.length - 1, d->total);
    }
    r |=
        gb_digest_headers(request, gb_etag_data(&d->rec, d->form, etag), d->range_kind != GB_RANGE_PART, response, err);
    return r;
}

/* What is known of the times before the first byte goes out; everything, where one block is all. */
static int add_timing(const struct download *d, const struct gb_http_request *request,
                      struct gb_http_response *response, struct gb_error *err) {
    struct gb_transfer_times times = {.queue_ms = 0};

    if (d->core)
        gb_download_times(d->core, &times);
    if (d->block_n < d->length)
        return gb_http_response_header(response, err, "Server-Timing", "queue;dur=%.3f", times.queue_ms);
    return gb_http_response_header(response, err, "Server-Timing", "queue;dur=%.3f, copy;dur=%.3f, total;dur=%.3f",
                                   times.queue_ms, times.copy_ms, (double)(gb_clock_ns() - request->started_ns) * 1e-6);
}

/* Nothing that was prepared goes out with an error: its headers describe other bytes. */
static enum gb_step fail(struct gb_http_response *response) {
    gb_http_response_done(response);
    return GB_STEP_ERROR;
}

/* The request's state becomes the response's source. */
static enum gb_step send(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct download *d = request->state;

    if (add_headers(d, request, response, err) < 0 ||
        (request->method != GB_HTTP_HEAD && add_timing(d, request, response, err) < 0))
        return fail(response);
    if (d->range.length > 0) {
        request->state = NULL;
        request->state_free = NULL;
        gb_http_response_source(response, &d->source, d->range.length);
    }
    return GB_STEP_REPLY;
}

/* Waits for the first block, so that a device that fails is told by the status, and short downloads know their times. */
static enum gb_step first_block(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct download *d = request->state;
    const void *block;
    int r;

    r = gb_download_next(d->core, &block, &d->block_n, err);
    if (r > 0) {
        d->block = block;
        return send(request, response, err);
    }
    if (r == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the device did not give the first bytes in the permitted time");
    return fail(response);
}

static bool same_content(const struct gb_buffer_rec *a, const struct gb_buffer_rec *b) {
    return a->id == b->id && a->generation == b->generation && a->version == b->version;
}

/* Holds the bytes against replacement. When they were replaced since the decision, it is taken again. As decide. */
static int open_bytes(struct download *d, struct gb_http_request *request, struct gb_http_response *response,
                      struct gb_error *err) {
    struct gb_name session;
    struct gb_name stream = {"default"};
    const struct gb_buffer_rec *rec;

    if (gb_param_name(request, 0, "session name", &session, err) < 0 ||
        gb_query_name(request, "stream", &stream, err) < 0 ||
        gb_download_open(gb_api_of(request)->core, &session, &d->rec.name, &stream, wake, request, &d->core, err) < 0) {
        fail(response);
        return -1;
    }
    rec = gb_download_record(d->core);
    if (same_content(rec, &d->rec))
        return 1;
    d->rec = *rec;
    gb_http_response_done(response);
    return decide(d, request, response, err);
}

static int read_record(const struct gb_http_request *request, struct gb_buffer_rec *ret, struct gb_error *err) {
    struct gb_name session;
    struct gb_name name;

    if (gb_param_name(request, 0, "session name", &session, err) < 0 ||
        gb_param_name(request, 1, "buffer name", &name, err) < 0)
        return -1;
    return gb_buffer_get(gb_api_of(request)->core, &session, &name, ret, err);
}

/* The digest that is asked for is not known yet. Nothing is held meanwhile. */
static enum gb_step await_digest(const struct gb_representation *what, struct gb_http_request *request,
                                 struct gb_http_response *response, struct gb_error *err) {
    struct download *d = request->state;
    enum gb_step step;

    request->state = NULL;
    request->state_free = NULL;
    gb_http_response_done(response);
    step = gb_digest_await(request, what, gb_api_data_get, response, err);
    state_free(d);
    return step;
}

enum gb_step gb_api_data_get(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct download *d = calloc(1, sizeof(*d));
    struct gb_representation what;
    char etag[GB_ETAG_SIZE];
    int missing;
    int r;

    if (!d) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the download; try again later");
        return GB_STEP_ERROR;
    }
    d->source =
        (struct gb_http_source){.next = source_next, .sent = source_sent, .pause = source_pause, .free = source_free};
    request->state = d;
    request->state_free = state_free;
    if (read_record(request, &d->rec, err) < 0)
        return GB_STEP_ERROR;
    r = decide(d, request, response, err);
    if (r > 0) {
        what = (struct gb_representation){
            .rec = &d->rec, .tag = gb_etag_data(&d->rec, d->form, etag), .head = d->head, .head_n = d->head_size};
        missing = gb_digest_missing(request, &what, err);
        if (missing != 0)
            return missing < 0 ? fail(response) : await_digest(&what, request, response, err);
    }
    if (r > 0 && request->method != GB_HTTP_HEAD && d->length > 0)
        r = open_bytes(d, request, response, err);
    if (r <= 0)
        return r < 0 ? GB_STEP_ERROR : GB_STEP_REPLY;
    if (!d->core || d->length == 0)
        return send(request, response, err);
    if (gb_download_start(d->core, d->offset, d->length, err) < 0)
        return fail(response);
    request->resume = first_block;
    return first_block(request, response, err);
}
