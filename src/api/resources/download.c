/* GET and HEAD .../data: which bytes in which form, and the body. The content that a download has opened stays as it is
 * until the last byte, whatever is written meanwhile. The handler decides with the record, then again if the content
 * was replaced before it was opened. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/context.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/pipeline/hook.h"
#include "api/reply.h"
#include "api/request/query.h"
#include "api/resources/table.h"
#include "base/container.h"
#include "core/core.h"
#include "format/npy.h"
#include "format/safetensors.h"
#include "format/slice.h"
#include "format/values.h"
#include "http/http.h"
#include "http/message/fields.h"
#include "model/view.h"

/* A download between the headers and the last byte. */

/* What comes next in the body. Each part has its own text, its share of the header and its share of the bytes. */
enum download_stage { DOWNLOAD_TEXT, DOWNLOAD_HEAD, DOWNLOAD_BYTES, DOWNLOAD_END };

/* The representation is the header of the form (raw bytes have no header) followed by the bytes of view. The ranges are
 * of the representation. */
struct download {
    struct gb_http_source source; /* first */
    struct gb_session *session;   /* a reference; found once */
    struct gb_download *core;     /* NULL when no byte of the buffer is sent */
    struct gb_name name;          /* of the buffer */
    struct gb_name stream;
    struct gb_buffer_rec rec;

    /* The plan: */
    enum gb_form form;         /* raw if values are written */
    enum gb_notation notation; /* of the values in place of the bytes; values have no ranges */
    char etag[GB_ETAG_SIZE];
    bool cut;               /* ?offset= or ?length=: bytes that have no shape */
    bool sliced;            /* ?slice= */
    struct gb_table *table; /* of a buffer of many tensors, if it is needed: a reference */
    bool file;           /* all of that, as the file that it came from: a representation without a header of its own */
    enum gb_dtype dtype; /* of the tensor that is meant */
    uint64_t base;       /* its first byte in the buffer */
    uint64_t size;       /* its length */
    struct gb_shape shape; /* of what view picks, unless cut */
    struct gb_view view;   /* of the buffer's bytes */
    char *head;
    size_t head_size;
    uint64_t total; /* of the representation */
    enum gb_range_kind range_kind;
    struct gb_range_set ranges;          /* of the representation: one for the whole, zero if it is empty */
    struct gb_span spans[GB_RANGES_MAX]; /* of the view, one for each range; some may be empty */
    struct gb_span *stretches;           /* of file: the same bytes, by where they lie in the memory; malloc'd */
    unsigned stretch_count;
    uint64_t length;                /* of all spans */
    struct gb_byteranges multipart; /* several ranges */
    char text[GB_MULTIPART_TEXT_SIZE];
    uint64_t body_length;

    /* Where the body is: */
    enum download_stage stage;
    unsigned part;
    const char *at; /* of text or head: the bytes still to send */
    size_t at_n;
    uint64_t left;     /* of the part's bytes */
    const char *block; /* the first block, got before the header went out */
    size_t block_n;
    char *bytes; /* all of them, if values are written; block_n says how many are there */
};

static inline bool download_several(const struct download *d) {
    return d->ranges.count > 1;
}

/* --- what a download sends ---------------------------------------------------------------------------------------- */

/* Decides which bytes a download sends, in which form, and which ranges of them. */

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
        length = offset < d->size ? d->size - offset : 0;
    if (offset > d->size || length > d->size - offset) {
        gb_http_response_header(response, err, "Content-Range", "bytes */%" PRIu64, d->size);
        return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE,
                            "%" PRIu64 " bytes at offset %" PRIu64 " are beyond the %" PRIu64 " bytes of the %s",
                            length, offset, d->size, d->table ? "tensor" : "buffer");
    }
    d->view = gb_view_plain(offset, length);
    return 0;
}

/* Which tensor is meant: that of the buffer, or one of its table. */
static int choose_tensor(struct download *d, const struct gb_http_request *request, struct gb_error *err) {
    const struct gb_http_text *name = gb_http_query(request, "tensor");
    const struct gb_safetensor *tensor;
    int64_t i;

    d->dtype = d->rec.dtype;
    d->shape = d->rec.shape;
    d->base = 0;
    d->size = d->rec.bytes;
    d->file = d->table && !name;
    if (!name)
        return 0;
    if (!d->table)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "the buffer is one tensor, of dtype %s: leave out ?tensor=, which picks one of a file of many",
            gb_dtype_name(d->rec.dtype));
    i = gb_table_find(d->table, name->s, name->len, err);
    if (i < 0)
        return -1;
    tensor = gb_table_tensor(d->table, (size_t)i, &d->base);
    d->dtype = tensor->dtype;
    d->shape = tensor->shape;
    d->size = tensor->end - tensor->begin;
    return 0;
}

static int choose_bytes(struct download *d, const struct gb_http_request *request, struct gb_http_response *response,
                        struct gb_error *err) {
    const struct gb_http_text *slice = gb_http_query(request, "slice");

    d->sliced = slice != NULL;
    d->cut = gb_http_query(request, "offset") || gb_http_query(request, "length");
    if (choose_tensor(d, request, err) < 0)
        return -1;
    d->view = gb_view_plain(0, d->size);
    if (d->dtype == GB_DTYPE_TENSORS && d->sliced)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer holds many tensors: name one with ?tensor=, and the slice is of that");
    if (d->sliced && d->cut)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a slice is of elements, offset and length are of bytes: give one or the other");
    if (d->cut)
        return choose_cut(d, request, response, err);
    if (d->sliced)
        return gb_slice_parse(slice->s, slice->len, &d->shape, d->dtype, &d->shape, &d->view, NULL, err);
    return 0;
}

/* --- in which form ------------------------------------------------------------------------------------------------ */

/* Bytes that are cut out have no shape, so only the raw form describes them truly. */
static unsigned offered_forms(const struct download *d) {
    unsigned offered = 1u << GB_FORM_RAW;

    if (gb_dtype_npy(d->dtype) && !d->cut)
        offered |= 1u << GB_FORM_NPY;
    if ((gb_dtype_safetensors(d->dtype) || d->file) && !d->cut)
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
    if (!format && d->file && !d->cut)
        offered = 1u << GB_FORM_SAFETENSORS; /* the raw bytes have gaps: who wants these says so */
    if (!format)
        return gb_media_accept(gb_http_header(request, "Accept"), offered, &d->form, err);
    if (gb_media_form(format->s, &d->form, &d->notation, err) < 0)
        return -1;
    if (d->dtype == GB_DTYPE_TENSORS && (d->notation || d->form == GB_FORM_NPY))
        return gb_error_set(err, GB_ERR_NOT_ACCEPTABLE,
                            "the buffer holds many tensors, which safetensors has; name one with ?tensor= for %s",
                            format->s);
    if (d->notation && !d->cut)
        return check_values(d, format->s, err);
    if ((offered & 1u << d->form) && !d->notation)
        return 0;
    if (d->cut)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "bytes at an offset have no shape and are sent raw; a part of the tensor is had by ?slice=");
    return gb_error_set(err, GB_ERR_NOT_ACCEPTABLE, "%s has no %s; ask for ?format=raw%s",
                        d->form == GB_FORM_NPY ? "a .npy" : "safetensors", gb_dtype_name(d->dtype),
                        offered == 1u << GB_FORM_RAW ? ""
                        : d->form == GB_FORM_NPY     ? " or safetensors"
                                                     : " or npy");
}

static int make_head(struct download *d, const struct gb_http_request *request, struct gb_error *err) {
    struct gb_json_writer out = {0};
    char name[GB_LABELS_MAX];

    free(d->head);
    d->head = NULL;
    d->head_size = 0;
    d->file = d->file && d->form == GB_FORM_SAFETENSORS;
    if (d->file)
        return 0;
    if (d->form == GB_FORM_SAFETENSORS) {
        const struct gb_http_text *tensor = gb_http_query(request, "tensor");

        gb_safetensors_open(&out);
        gb_safetensors_add(&out, tensor ? tensor->s : gb_tensor_name(&d->rec, name), d->dtype, &d->shape, 0,
                           d->view.bytes);
        if (gb_safetensors_close(&out, err) < 0) {
            gb_json_done(&out);
            return -1;
        }
        d->head = out.s;
        d->head_size = out.used;
    } else if (d->form == GB_FORM_NPY) {
        d->head = malloc(GB_NPY_WRITE_MAX);
        if (!d->head)
            return gb_error_memory(err, "download");
        d->head_size = gb_npy_write_header(d->dtype, &d->shape, d->head);
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

static int add_stretch(struct download *d, size_t *room, uint64_t first, uint64_t length, struct gb_error *err) {
    struct gb_span *more;

    if (d->stretch_count == *room) {
        *room = *room ? 2 * *room : 16;
        more = realloc(d->stretches, *room * sizeof(*more));
        if (!more)
            return gb_error_memory(err, "download");
        d->stretches = more;
    }
    d->stretches[d->stretch_count++] = (struct gb_span){.first = first, .length = length};
    return 0;
}

/* The stretches of the memory that the ranges of the file lie in. */
static int find_stretches(struct download *d, struct gb_error *err) {
    size_t room = 0;
    uint64_t at;
    uint64_t n;
    unsigned i;

    free(d->stretches);
    d->stretches = NULL;
    d->stretch_count = 0;
    for (i = 0; i < d->ranges.count; i++) {
        struct gb_range left = d->ranges.range[i];

        for (; left.length > 0; left.first += n, left.length -= n) {
            n = gb_table_stretch(d->table, left.first, left.length, &at);
            if (add_stretch(d, &room, at, n, err) < 0)
                return -1;
        }
    }
    return 0;
}

static int choose_ranges(struct download *d, const struct gb_http_request *request, struct gb_http_response *response,
                         struct gb_error *err) {
    const char *if_range = gb_http_header(request, "If-Range");
    const char *range = gb_http_header(request, "Range");

    /* Only GET has ranges (RFC 9110, 14.2); values have no ranges. */
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
    if (d->file && find_stretches(d, err) < 0)
        return -1;
    d->body_length = d->ranges.range[0].length;
    if (!download_several(d))
        return 0;
    if (gb_byteranges_init(&d->multipart, gb_media_type(d->form), d->total, err) < 0)
        return -1;
    d->body_length = gb_byteranges_length(&d->multipart, &d->ranges);
    return 0;
}

/* A condition that fails is reported before bytes that are missing (RFC 9110, 13.2.2). */
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

/* Decides by the record. The response has the ETag afterwards. Returns 1 to send, 0 when the response is complete, or
 * -1. */
static int download_plan(struct download *d, const struct gb_http_request *request, struct gb_http_response *response,
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
    else if ((d->sliced || d->base > 0) && d->form == GB_FORM_RAW)
        gb_etag_slice(&d->rec, d->etag);
    else
        gb_etag_data(&d->rec, d->form, d->etag);
    if (make_head(d, request, err) < 0)
        return -1;
    d->total = d->file ? gb_table_file_bytes(d->table) : d->head_size + d->view.bytes;
    d->view.offset += d->base;
    r = gb_conditions_get(request, d->etag, response, err);
    if (r == 0 && !d->notation)
        response->unsent_len = d->total;
    if (r <= 0)
        return r;
    return choose_ranges(d, request, response, err) < 0 ? -1 : 1;
}

/* --- the body as bytes -------------------------------------------------------------------------------------------- */

/* The body of a download. */

static const struct gb_range *range_of(const struct download *d) {
    return &d->ranges.range[d->part];
}

/* Begins with the part's share of the header. */
static void enter_head(struct download *d) {
    const struct gb_range *r = range_of(d);
    uint64_t end = r->first + r->length;

    if (r->first < d->head_size) {
        d->at = d->head + r->first;
        d->at_n = (size_t)((end < d->head_size ? end : d->head_size) - r->first);
    }
    d->stage = DOWNLOAD_HEAD;
}

static void enter_part(struct download *d) {
    if (!download_several(d)) {
        enter_head(d);
        return;
    }
    d->at = d->text;
    d->at_n = gb_byteranges_head(&d->multipart, &d->ranges, d->part, d->text);
    d->stage = DOWNLOAD_TEXT;
}

static void leave_part(struct download *d) {
    if (++d->part < d->ranges.count) {
        enter_part(d);
        return;
    }
    if (download_several(d)) {
        d->at = d->text;
        d->at_n = gb_byteranges_tail(&d->multipart, d->text);
    }
    d->stage = DOWNLOAD_END;
}

/* Continues with the next stage that has bytes. */
static void advance(struct download *d) {
    while (d->at_n == 0 && d->left == 0 && d->stage != DOWNLOAD_END) {
        switch (d->stage) {
        case DOWNLOAD_TEXT:
            enter_head(d);
            break;
        case DOWNLOAD_HEAD:
            d->left = d->spans[d->part].length;
            d->stage = DOWNLOAD_BYTES;
            break;
        default:
            leave_part(d);
        }
    }
}

static int source_next(struct gb_http_source *source, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct download *d = (struct download *)source;
    int r = 1;

    advance(d);
    if (d->at_n > 0) {
        *ret_ptr = d->at;
        *ret_n = d->at_n;
        return 1;
    }
    if (d->left == 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "more was asked for than there is to send");
    if (d->block_n > 0) {
        *ret_ptr = d->block;
        *ret_n = d->block_n;
    } else {
        r = gb_download_next(d->core, ret_ptr, ret_n, err);
    }
    if (r > 0 && *ret_n > d->left)
        *ret_n = (size_t)d->left;
    return r;
}

static void source_sent(struct gb_http_source *source, size_t n) {
    struct download *d = (struct download *)source;

    if (d->at_n > 0) {
        d->at += n;
        d->at_n -= n;
        return;
    }
    d->left -= n;
    if (d->block_n > 0) {
        d->block += n;
        d->block_n -= n;
    }
    gb_download_sent(d->core, n);
}

static void source_pause(struct gb_http_source *source) {
    struct download *d = (struct download *)source;

    d->block_n = 0; /* the core gives the rest of it again */
    if (d->core)
        gb_download_pause(d->core);
}

static void source_free(struct gb_http_source *source, bool complete) {
    struct download *d = (struct download *)source;

    gb_download_free(d->core, complete);
    gb_session_unref(d->session);
    gb_buffer_rec_done(&d->rec);
    gb_table_unref(d->table);
    free(d->stretches);
    free(d->head);
    free(d->bytes);
    free(d);
}

/* Makes the source of a plan, before the first byte. */
static void download_source_init(struct download *d) {
    d->source =
        (struct gb_http_source){.next = source_next, .sent = source_sent, .pause = source_pause, .free = source_free};
    d->part = 0;
    d->at_n = 0;
    d->left = 0;
    enter_part(d);
}

/* --- the body as JSON or text ------------------------------------------------------------------------------------- */

/* [never blocks] Takes the bytes that are there into d->bytes. Returns 1 when it has all, 0: wait for wake, or -1. */
static int download_collect(struct download *d, struct gb_error *err) {
    const void *block;
    size_t n;
    int r;

    if (!d->bytes)
        d->bytes = malloc(d->view.bytes);
    if (!d->bytes)
        return gb_error_memory(err, "values");
    while (d->block_n < d->view.bytes) {
        r = gb_download_next(d->core, &block, &n, err);
        if (r <= 0)
            return r;
        memcpy(d->bytes + d->block_n, block, n);
        d->block_n += n;
        gb_download_sent(d->core, n);
    }
    return 1;
}

struct writing {
    struct gb_deferred deferred;
    struct download *d;
    struct gb_json_writer out;
};

static int make(struct gb_deferred *deferred, struct gb_error *err) {
    struct writing *w = gb_container_of(deferred, struct writing, deferred);
    const struct download *d = w->d;

    (void)err;
    if (d->notation == GB_NOTATION_JSON)
        gb_values_json(&w->out, d->dtype, &d->shape, d->bytes);
    else
        gb_values_text(&w->out, d->dtype, &d->shape, d->bytes);
    return w->out.failed ? -1 : 0;
}

static enum gb_step reply(struct gb_deferred *deferred, struct gb_http_request *request,
                          struct gb_http_response *response, struct gb_error *err) {
    struct writing *w = gb_container_of(deferred, struct writing, deferred);

    (void)request;
    (void)err;
    gb_http_response_take(response, w->out.s, w->out.used);
    w->out = (struct gb_json_writer){0};
    return GB_STEP_REPLY;
}

static void release(struct gb_deferred *deferred) {
    struct writing *w = gb_container_of(deferred, struct writing, deferred);

    w->d->source.free(&w->d->source, true);
    gb_json_done(&w->out);
    free(w);
}

/* The last step of a handler whose response has its headers. Takes d, the request's state. */
static enum gb_step download_write(struct gb_http_request *request, struct gb_error *err) {
    struct download *d = request->state;
    struct writing *w = calloc(1, sizeof(*w));

    if (!w) {
        gb_error_memory(err, "values");
        return GB_STEP_ERROR;
    }
    gb_download_free(d->core, true);
    d->core = NULL;
    w->d = d;
    w->deferred = (struct gb_deferred){.make = make, .reply = reply, .release = release};
    return gb_deferred_start(request, &w->deferred);
}

/* --- the handler -------------------------------------------------------------------------------------------------- */

/* GET and HEAD .../data: the handler. */

static void state_free(void *state) {
    struct download *d = state;

    d->source.free(&d->source, false);
}

static void wake(void *arg) {
    gb_http_wake(arg);
}

/* --- the reply ---------------------------------------------------------------------------------------------------- */

/* Digests are kept by entity tag, and a cut, a slice or a tensor shares the tag of the whole. Values are no bytes of
 * it. */
static bool may_digest(const struct download *d) {
    return !d->cut && !d->sliced && !d->notation && (!d->table || d->file) && gb_etag_holds(&d->rec);
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
    r |= gb_http_response_header(response, err, "Gpubuf-Dtype", "%s", gb_dtype_name(d->dtype));
    if (d->shape.dims > 0 && !d->cut) /* libmicrohttpd takes no header without a value */
        r |= gb_http_response_header(response, err, "Gpubuf-Shape", "%s", shape);
    r |= gb_http_response_header(response, err, "Gpubuf-Generation", "%" PRId64, d->rec.generation);
    if (d->rec.has_crc32c && !d->cut && !d->sliced && !d->table)
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
        step = download_write(request, err);
        return step == GB_STEP_ERROR ? fail(response) : step;
    }
    if (d->body_length > 0) {
        request->state = NULL;
        request->state_free = NULL;
        download_source_init(d);
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
    int r = d->notation ? download_collect(d, err) : gb_download_next(d->core, &block, &d->block_n, err);

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

#define AGAIN 2 /* the handler runs again from its start */

/* Pins the bytes against replacement, unless they are already. If they were replaced since the decision, it is taken
 * again. Returns as download_plan, or AGAIN. */
static int open_bytes(struct download *d, struct gb_http_request *request, struct gb_http_response *response,
                      struct gb_error *err) {
    const struct gb_buffer_rec *rec;

    if (d->core)
        return 1;
    /* A write that was accepted since is later than this request. */
    if (gb_download_open_in(d->session, &d->name, &d->stream, (struct gb_waker){wake, request}, &d->core, err) < 0) {
        fail(response);
        return -1;
    }
    rec = gb_download_record(d->core);
    if (same_content(rec, &d->rec))
        return 1;
    if (d->table || rec->dtype == GB_DTYPE_TENSORS)
        return AGAIN;
    gb_buffer_rec_set(&d->rec, rec);
    gb_http_response_done(response);
    return download_plan(d, request, response, err);
}

/* Finds the session, which is held from here on. */
static int read_names(struct download *d, const struct gb_http_request *request, struct gb_error *err) {
    struct gb_name session;

    d->stream = (struct gb_name){"default"};
    if (gb_param_name(request, 0, "session name", &session, err) < 0 ||
        gb_param_name(request, 1, "buffer name", &d->name, err) < 0 ||
        gb_query_name(request, "stream", &d->stream, err) < 0)
        return -1;
    d->session = gb_session_use(gb_api_of(request)->core, &session, err);
    return d->session ? 0 : -1;
}

/* Returns 1 when the digest that is asked for is not known yet. */
static int digest_missing(struct download *d, const struct gb_http_request *request, struct gb_representation *ret,
                          struct gb_error *err) {
    *ret = (struct gb_representation){.rec = &d->rec, .tag = d->etag, .head = d->head, .head_n = d->head_size};
    return may_digest(d) ? gb_digest_missing(request, ret, err) : 0;
}

/* The digest of a file of many tensors leaves out the gaps of its memory. */
static uint64_t run_of_file(const void *table, uint64_t at, bool *ret_left_out) {
    *ret_left_out = true; /* the buffer has become a longer one, whose digest is not kept */
    return at < gb_table_bytes(table) ? gb_table_run(table, at, ret_left_out) : UINT64_MAX;
}

static void unref_table(void *table) {
    gb_table_unref(table);
}

/* Computes the digest, and holds nothing meanwhile. */
static enum gb_step await_digest(struct gb_representation *what, struct gb_http_request *request,
                                 struct gb_http_response *response, struct gb_error *err) {
    struct download *d = request->state;
    enum gb_step step;

    request->state = NULL;
    request->state_free = NULL;
    if (d->file)
        what->choice = (struct gb_scan_choice){run_of_file, gb_table_ref(d->table), unref_table};
    gb_http_response_done(response);
    step = gb_digest_await(request, what, gb_api_data_get, response, err);
    state_free(d);
    return step;
}

/* The route takes scope verify, which sees heads and whether a tag still holds. */
static int check_content(const struct download *d, const struct gb_http_request *request, struct gb_error *err) {
    if (request->method == GB_HTTP_HEAD && !d->notation) /* the length of a text depends on the values */
        return 0;
    return gb_api_permit(request, GB_SCOPE_READ, request->param[0].s, err);
}

/* The raw bytes of a buffer of many tensors need no table. A client that takes nothing else gets them. */
static bool needs_table(const struct download *d, const struct gb_http_request *request) {
    const struct gb_http_text *format = gb_http_query(request, "format");
    const char *accept = gb_http_header(request, "Accept");
    bool raw = format ? strcmp(format->s, "raw") == 0 : accept && strcmp(accept, "application/octet-stream") == 0;

    return d->rec.dtype == GB_DTYPE_TENSORS && !d->table && d->rec.state != GB_BUFFER_LOST &&
           d->rec.state != GB_BUFFER_PARTIAL && (gb_http_query(request, "tensor") || !raw);
}

static enum gb_step read_table(const struct download *d, struct gb_http_request *request,
                               struct gb_http_response *response, struct gb_error *err) {
    struct gb_name stream = d->stream;

    return gb_tables_read(request, &stream, gb_api_data_get, response, err);
}

/* d->rec is what the request sees. */
static enum gb_step decide(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct download *d = request->state;
    struct gb_representation what;
    int missing;
    int r;

    if (needs_table(d, request) && !(d->table = gb_tables_find(gb_api_of(request)->tables, &d->rec)))
        return read_table(d, request, response, err);
    r = download_plan(d, request, response, err);
    if (r > 0 && check_content(d, request, err) < 0)
        return fail(response);
    missing = r > 0 ? digest_missing(d, request, &what, err) : 0;
    if (missing != 0)
        return missing < 0 ? fail(response) : await_digest(&what, request, response, err);
    if (r > 0 && (request->method != GB_HTTP_HEAD || d->notation) && d->length > 0)
        r = open_bytes(d, request, response, err);
    if (r == AGAIN)
        return begin_anew(request, response, err);
    if (r < 0 || (r == 0 && add_vary(response, err) < 0)) /* a 304 has it as well (RFC 9110, 15.4.5) */
        return GB_STEP_ERROR;
    if (r == 0)
        return GB_STEP_REPLY;
    if (!d->core || d->length == 0 || (request->method == GB_HTTP_HEAD && !d->notation))
        return send(request, response, err);
    if (gb_download_start_view(d->core, &d->view, d->file ? d->stretches : d->spans,
                               d->file ? d->stretch_count : d->ranges.count, err) < 0)
        return fail(response);
    request->resume = first_block;
    return first_block(request, response, err);
}

/* Waits for the earlier write of the stream. Also runs at each wake. */
static enum gb_step turn(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct download *d = request->state;
    int r = gb_download_turn(d->core, err);

    if (r == 0 && !request->timed_out)
        return GB_STEP_WAIT;
    if (r == 0)
        gb_error_set(err, GB_ERR_TIMED_OUT, "an earlier write on the stream did not end in the permitted time");
    if (r <= 0)
        return GB_STEP_ERROR;
    gb_buffer_rec_set(&d->rec, gb_download_record(d->core));
    return decide(request, response, err);
}

enum gb_step gb_api_data_get(struct gb_http_request *request, struct gb_http_response *response, struct gb_error *err) {
    struct download *d = calloc(1, sizeof(*d));

    if (!d) {
        gb_error_memory(err, "download");
        return GB_STEP_ERROR;
    }
    download_source_init(d);
    request->state = d;
    request->state_free = state_free;
    if (read_names(d, request, err) < 0)
        return GB_STEP_ERROR;
    if (gb_download_awaits(d->session, &d->name, &d->stream)) {
        if (gb_download_open_after(d->session, &d->name, &d->stream, (struct gb_waker){wake, request}, &d->core, err) <
            0)
            return GB_STEP_ERROR;
        request->resume = turn;
        return turn(request, response, err);
    }
    if (gb_buffer_get_in(d->session, &d->name, &d->rec, err) < 0)
        return GB_STEP_ERROR;
    return decide(request, response, err);
}
