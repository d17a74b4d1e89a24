/* GET and HEAD .../data: the handler. */
#include <inttypes.h>
#include <stdlib.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/middleware/conditional.h"
#include "api/middleware/digest.h"
#include "api/middleware/loading.h"
#include "api/reply/timing.h"
#include "api/request/media.h"
#include "api/request/query.h"
#include "api/route.h"
#include "api/transfer/download_plan.h"
#include "api/transfer/download_source.h"
#include "api/transfer/download_values.h"

static void state_free(void *state) {
    struct download *d = state;

    d->source.free(&d->source, false);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

/* --- the reply ---------------------------------------------------------------------------------------------------- */

/* Digests are kept by entity tag, and a cut or a slice shares the tag of the whole. Values are no bytes of it. */
static bool may_digest(const struct download *d) {
    return !d->cut && !d->sliced && !d->notation && gb_etag_holds(&d->rec);
}

static int add_vary(struct gb_http_response *response, struct gb_error *err) {
    return gb_http_response_header(response, err, "Vary", "Accept");
}

static int add_headers(const struct download *d, const struct gb_http_request *request,
                       struct gb_http_response *response, struct gb_error *err) {
    const struct gb_range *range = &d->ranges.range[0];
    char shape[GB_SHAPE_TEXT_SIZE];
    int r = 0;

    gb_shape_text(&d->shape, shape);
    if (d->notation)
        r |= gb_http_response_header(response, err, "Content-Type", "%s", gb_media_notation_type(d->notation));
    else if (download_several(d))
        r |= gb_http_response_header(response, err, "Content-Type", "multipart/byteranges; boundary=%s",
                                     d->multipart.boundary);
    else
        r |= gb_http_response_header(response, err, "Content-Type", "%s", gb_media_type(d->form));
    r |= gb_http_response_header(response, err, "Accept-Ranges", "%s", d->cut || d->notation ? "none" : "bytes");
    r |= add_vary(response, err);
    r |= gb_http_response_header(response, err, "Gpubuf-Dtype", "%s", gb_dtype_name(d->rec.dtype));
    if (d->shape.dims > 0 && !d->cut) /* libmicrohttpd takes no header without a value */
        r |= gb_http_response_header(response, err, "Gpubuf-Shape", "%s", shape);
    r |= gb_http_response_header(response, err, "Gpubuf-Generation", "%" PRId64, d->rec.generation);
    if (d->rec.has_crc32c && !d->cut && !d->sliced)
        r |= gb_http_response_header(response, err, "Gpubuf-Crc32c", "%08" PRIx32, d->rec.crc32c);
    if (may_digest(d))
        r |= gb_digest_headers(request, d->etag, d->range_kind != GB_RANGE_PART, response, err);
    if (d->range_kind != GB_RANGE_PART)
        return r;
    response->status = 206;
    if (!download_several(d)) /* otherwise each part has its own */
        r |= gb_http_response_header(response, err, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                                     range->first, range->first + range->length - 1, d->total);
    return r;
}

/* Adds the times that are known before the first byte goes out: all of them when one block is the whole. */
static int add_timing(const struct download *d, const struct gb_http_request *request,
                      struct gb_http_response *response, struct gb_error *err) {
    struct gb_transfer_times times = {.queue_ms = 0};

    if (d->core)
        gb_download_times(d->core, &times);
    if (d->block_n < d->length)
        return gb_http_response_header(response, err, "Server-Timing", "queue;dur=%.3f", times.queue_ms);
    return gb_add_timing(request, &times, response, err);
}

/* Drops the prepared headers, which describe other bytes than those of an error. */
static enum gb_step fail(struct gb_http_response *response) {
    gb_http_response_done(response);
    return GB_STEP_ERROR;
}

/* Sends the download: the request's state becomes the response's source. */
static enum gb_step send(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct download *d = request->state;
    enum gb_step step;

    if (add_headers(d, request, response, err) < 0 ||
        (request->method != GB_HTTP_HEAD && add_timing(d, request, response, err) < 0))
        return fail(response);
    if (d->notation) {
        step = gb_download_write(request, err);
        return step == GB_STEP_ERROR ? fail(response) : step;
    }
    if (d->body_length > 0) {
        request->state = NULL;
        request->state_free = NULL;
        gb_download_source_init(d);
        gb_http_response_source(response, &d->source, d->body_length);
    }
    return GB_STEP_REPLY;
}

/* What the buffer has now is sent instead. */
static enum gb_step begin_anew(struct gb_http_request *request, struct gb_http_response *response,
                               struct gb_error *err) {
    state_free(request->state);
    request->state = NULL;
    request->state_free = NULL;
    gb_http_response_done(response);
    *err = GB_ERROR_INIT;
    return gb_loading_run(gb_api_data_get, request, response, err);
}

/* Waits for the first block, or for all whose values are written. A failure of the device then still becomes the
 * status, and short downloads know their times. */
static enum gb_step first_block(struct gb_http_request *request, struct gb_http_response *response,
                                struct gb_error *err) {
    struct download *d = request->state;
    const void *block = NULL;
    int r = d->notation ? gb_download_collect(d, err) : gb_download_next(d->core, &block, &d->block_n, err);

    if (r > 0) {
        d->block = block;
        return send(request, response, err);
    }
    if (r == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "the device did not give the first bytes in the permitted time");
    if (r < 0 && !request->timed_out && gb_download_replaced(d->core))
        return begin_anew(request, response, err);
    return fail(response);
}

static bool same_content(const struct gb_buffer_rec *a, const struct gb_buffer_rec *b) {
    return a->id == b->id && a->generation == b->generation && a->version == b->version;
}

/* Pins the bytes against replacement. If they were replaced since the decision, it is taken again. Returns as
 * gb_download_plan. */
static int open_bytes(struct download *d, struct gb_http_request *request, struct gb_http_response *response,
                      struct gb_error *err) {
    struct gb_name stream = {"default"};
    const struct gb_buffer_rec *rec;

    if (gb_query_name(request, "stream", &stream, err) < 0 ||
        gb_download_open_in(d->session, &d->rec.name, &stream, (struct gb_waker){wake, request}, &d->core, err) < 0) {
        fail(response);
        return -1;
    }
    rec = gb_download_record(d->core);
    if (same_content(rec, &d->rec))
        return 1;
    gb_buffer_rec_set(&d->rec, rec);
    gb_http_response_done(response);
    return gb_download_plan(d, request, response, err);
}

/* Finds the session, which is held from here on, and what the buffer is now. */
static int read_record(struct download *d, const struct gb_http_request *request, struct gb_error *err) {
    struct gb_name session;
    struct gb_name name;
    struct gb_name stream; /* checked here too, for replies that need no bytes */

    if (gb_param_name(request, 0, "session name", &session, err) < 0 ||
        gb_param_name(request, 1, "buffer name", &name, err) < 0 || gb_query_name(request, "stream", &stream, err) < 0)
        return -1;
    d->session = gb_session_use(gb_api_of(request)->core, &session, err);
    return d->session ? gb_buffer_get_in(d->session, &name, &d->rec, err) : -1;
}

/* Returns 1 when the digest that is asked for is not known yet. */
static int digest_missing(struct download *d, const struct gb_http_request *request, struct gb_representation *ret,
                          struct gb_error *err) {
    *ret = (struct gb_representation){.rec = &d->rec, .tag = d->etag, .head = d->head, .head_n = d->head_size};
    return may_digest(d) ? gb_digest_missing(request, ret, err) : 0;
}

/* Computes the digest, and holds nothing meanwhile. */
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

/* The route takes scope verify, which sees heads and whether a tag still holds. */
static int check_content(const struct download *d, const struct gb_http_request *request, struct gb_error *err) {
    if (request->method == GB_HTTP_HEAD && !d->notation) /* the length of a text tells of the values */
        return 0;
    return gb_api_permit(request, GB_SCOPE_READ, request->param[0].s, err);
}

enum gb_step gb_api_data_get(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct download *d = calloc(1, sizeof(*d));
    struct gb_representation what;
    int missing;
    int r;

    if (!d) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the download; try again later");
        return GB_STEP_ERROR;
    }
    gb_download_source_init(d);
    request->state = d;
    request->state_free = state_free;
    if (read_record(d, request, err) < 0)
        return GB_STEP_ERROR;
    r = gb_download_plan(d, request, response, err);
    if (r > 0 && check_content(d, request, err) < 0)
        return fail(response);
    missing = r > 0 ? digest_missing(d, request, &what, err) : 0;
    if (missing != 0)
        return missing < 0 ? fail(response) : await_digest(&what, request, response, err);
    if (r > 0 && (request->method != GB_HTTP_HEAD || d->notation) && d->length > 0)
        r = open_bytes(d, request, response, err);
    if (r < 0 || (r == 0 && add_vary(response, err) < 0)) /* a 304 has it as well (RFC 9110, 15.4.5) */
        return GB_STEP_ERROR;
    if (r == 0)
        return GB_STEP_REPLY;
    if (!d->core || d->length == 0)
        return send(request, response, err);
    if (gb_download_start_view(d->core, &d->view, d->spans, d->ranges.count, err) < 0)
        return fail(response);
    request->resume = first_block;
    return first_block(request, response, err);
}
