/* Decides which bytes a download sends, in which form, and which ranges of them. */
#include <inttypes.h>
#include <stdlib.h>

#include "api/middleware/conditional.h"
#include "api/request/media.h"
#include "api/request/query.h"
#include "api/request/tensor_names.h"
#include "api/transfer/download_plan.h"
#include "format/npy.h"
#include "format/safetensors.h"
#include "format/slice.h"
#include "format/values.h"
#include "http/message/fields.h"

static const char *why_lost(const struct gb_buffer_rec *rec) {
    if (rec->adopted)
        return "were in memory of another process, whose connection has ended; adopt or upload them again";
    if (rec->durability == GB_DURABILITY_SYNC)
        return "are lost, as their file is missing or has another length; upload them again, or put the file back and "
               "start the daemon anew";
    return "died with an earlier process, with the device or with their pool; upload them again";
}

static int check_state(const struct gb_buffer_rec *rec, struct gb_error *err) {
    if (rec->state == GB_BUFFER_LOST)
        return gb_error_set(err, GB_ERR_CONTENT_LOST, "the bytes of '%s' %s", rec->name.s, why_lost(rec));
    if (rec->state == GB_BUFFER_PARTIAL)
        return gb_error_set(err, GB_ERR_BUFFER_PARTIAL, "an in-place upload of '%s' broke off; upload it again",
                            rec->name.s);
    return 0;
}

/* --- which bytes -------------------------------------------------------------------------------------------------- */

/* Picks bytes [offset, offset + length). */
static int choose_cut(struct download *d, const struct gb_http_request *request, struct gb_http_response *response,
                      struct gb_error *err) {
    uint64_t offset = 0;
    uint64_t length;
    int r;

    if (gb_query_u64(request, "offset", &offset, err) < 0 || (r = gb_query_u64(request, "length", &length, err)) < 0)
        return -1;
    if (gb_http_header(request, "Range"))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "give the part by ?offset= and ?length= or by the header Range, not by both");
    if (r == 0)
        length = offset < d->rec.bytes ? d->rec.bytes - offset : 0;
    if (offset > d->rec.bytes || length > d->rec.bytes - offset) {
        gb_http_response_header(response, err, "Content-Range", "bytes */%" PRIu64, d->rec.bytes);
        return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE,
                            "%" PRIu64 " bytes at offset %" PRIu64 " are beyond the %" PRIu64 " bytes of the buffer",
                            length, offset, d->rec.bytes);
    }
    d->view = gb_view_plain(offset, length);
    return 0;
}

static int choose_bytes(struct download *d, const struct gb_http_request *request, struct gb_http_response *response,
                        struct gb_error *err) {
    const struct gb_http_text *slice = gb_http_query(request, "slice");

    d->sliced = slice != NULL;
    d->cut = gb_http_query(request, "offset") || gb_http_query(request, "length");
    d->shape = d->rec.shape;
    d->view = gb_view_plain(0, d->rec.bytes);
    if (d->sliced && d->cut)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a slice is of elements, offset and length are of bytes: give one or the other");
    if (d->cut)
        return choose_cut(d, request, response, err);
    if (d->sliced)
        return gb_slice_parse(slice->s, slice->len, &d->rec.shape, d->rec.dtype, &d->shape, &d->view, NULL, err);
    return 0;
}

/* --- in which form ------------------------------------------------------------------------------------------------ */

/* Bytes that are cut out have no shape, so only the raw form describes them truly. */
static unsigned offered_forms(const struct download *d) {
    unsigned offered = 1u << GB_FORM_RAW;

    if (gb_dtype_npy(d->rec.dtype) && !d->cut)
        offered |= 1u << GB_FORM_NPY;
    if (gb_dtype_safetensors(d->rec.dtype) && !d->cut)
        offered |= 1u << GB_FORM_SAFETENSORS;
    return offered;
}

static int check_values(const struct download *d, const char *format, struct gb_error *err) {
    if (d->view.bytes <= GB_VALUES_BYTES_MAX)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "%" PRIu64
                        " bytes are too many for format=%s, which writes the values of at most %d; pick some "
                        "of them with ?slice=, or leave format out",
                        d->view.bytes, format, GB_VALUES_BYTES_MAX);
}

static int choose_form(struct download *d, const struct gb_http_request *request, struct gb_error *err) {
    const struct gb_http_text *format = gb_http_query(request, "format");
    unsigned offered = offered_forms(d);

    d->notation = GB_NOTATION_NONE;
    d->form = GB_FORM_RAW;
    if (!format)
        return gb_media_accept(gb_http_header(request, "Accept"), offered, &d->form, err);
    if (gb_media_form(format->s, &d->form, &d->notation, err) < 0)
        return -1;
    if (d->notation && !d->cut)
        return check_values(d, format->s, err);
    if ((offered & 1u << d->form) && !d->notation)
        return 0;
    if (d->cut)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "bytes at an offset have no shape and are sent raw; a part of the tensor is had by ?slice=");
    return gb_error_set(err, GB_ERR_NOT_ACCEPTABLE, "%s has no %s; ask for ?format=raw%s",
                        d->form == GB_FORM_NPY ? "a .npy" : "safetensors", gb_dtype_name(d->rec.dtype),
                        offered == 1u << GB_FORM_RAW ? ""
                        : d->form == GB_FORM_NPY     ? " or safetensors"
                                                     : " or npy");
}

static int make_head(struct download *d, struct gb_error *err) {
    struct gb_json_writer out = {0};
    char name[GB_LABELS_MAX];

    free(d->head);
    d->head = NULL;
    d->head_size = 0;
    if (d->form == GB_FORM_SAFETENSORS) {
        gb_safetensors_open(&out);
        gb_safetensors_add(&out, gb_tensor_name(&d->rec, name), d->rec.dtype, &d->shape, 0, d->view.bytes);
        if (gb_safetensors_close(&out, err) < 0) {
            gb_json_done(&out);
            return -1;
        }
        d->head = out.s;
        d->head_size = out.used;
    } else if (d->form == GB_FORM_NPY) {
        d->head = malloc(GB_NPY_WRITE_MAX);
        if (!d->head)
            return gb_error_set(err, GB_ERR_SATURATED, "no memory for the download; try again later");
        d->head_size = gb_npy_write_header(d->rec.dtype, &d->shape, d->head);
    }
    return 0;
}

/* --- which ranges ------------------------------------------------------------------------------------------------- */

/* Computes each range's share of the bytes; the source computes that of the header. */
static void span_ranges(struct download *d) {
    unsigned i;

    d->length = 0;
    for (i = 0; i < d->ranges.count; i++) {
        const struct gb_range *r = &d->ranges.range[i];
        uint64_t end = r->first + r->length;
        uint64_t first = r->first > d->head_size ? r->first : d->head_size;

        d->spans[i] = (struct gb_span){.first = first - d->head_size, .length = end > first ? end - first : 0};
        if (d->spans[i].length == 0)
            d->spans[i].first = 0;
        d->length += d->spans[i].length;
    }
}

static int choose_ranges(struct download *d, const struct gb_http_request *request, struct gb_http_response *response,
                         struct gb_error *err) {
    const char *if_range = gb_http_header(request, "If-Range");
    const char *range = gb_http_header(request, "Range");

    /* Only GET knows ranges (RFC 9110, 14.2); of values there are none. */
    if (request->method == GB_HTTP_HEAD || d->notation || (if_range && !gb_etag_if_range(if_range, d->etag)))
        range = NULL;
    d->range_kind = gb_range_parse(range, d->total, &d->ranges);
    if (d->range_kind == GB_RANGE_UNSATISFIABLE) {
        gb_http_response_header(response, err, "Content-Range", "bytes */%" PRIu64, d->total);
        return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE, "the data has %" PRIu64 " bytes", d->total);
    }
    if (d->range_kind == GB_RANGE_WHOLE)
        d->ranges = (struct gb_range_set){.count = 1, .range = {{.first = 0, .length = d->total}}};
    span_ranges(d);
    d->body_length = d->ranges.range[0].length;
    if (!download_several(d))
        return 0;
    if (gb_byteranges_init(&d->multipart, gb_media_type(d->form), d->total, err) < 0)
        return -1;
    d->body_length = gb_byteranges_length(&d->multipart, &d->ranges);
    return 0;
}

/* A condition that fails is told before bytes that are not there (RFC 9110, 13.2.2). */
static int refuse_range(const struct download *d, const struct gb_http_request *request,
                        struct gb_http_response *response, struct gb_error *err) {
    struct gb_http_response unsent = {.status = 200};
    struct gb_error why = GB_ERROR_INIT;
    char etag[GB_ETAG_SIZE];

    if (err->code == GB_ERR_RANGE_NOT_SATISFIABLE &&
        gb_conditions_get(request, gb_etag_data(&d->rec, GB_FORM_RAW, etag), &unsent, &why) < 0) {
        gb_http_response_done(response); /* it says which bytes there are */
        *err = why;
    }
    gb_http_response_done(&unsent);
    return -1;
}

int gb_download_plan(struct download *d, const struct gb_http_request *request, struct gb_http_response *response,
                     struct gb_error *err) {
    int r;

    if (check_state(&d->rec, err) < 0)
        return -1;
    if (choose_bytes(d, request, response, err) < 0)
        return refuse_range(d, request, response, err);
    if (choose_form(d, request, err) < 0)
        return -1;
    if (d->notation)
        gb_etag_values(&d->rec, d->notation, d->etag);
    else if (d->sliced && d->form == GB_FORM_RAW)
        gb_etag_slice(&d->rec, d->etag);
    else
        gb_etag_data(&d->rec, d->form, d->etag);
    if (make_head(d, err) < 0)
        return -1;
    d->total = d->head_size + d->view.bytes;
    r = gb_conditions_get(request, d->etag, response, err);
    if (r == 0 && !d->notation)
        response->unsent_len = d->total;
    if (r <= 0)
        return r;
    return choose_ranges(d, request, response, err) < 0 ? -1 : 1;
}
