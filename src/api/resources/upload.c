/* One upload of a buffer's bytes: what its path, query and headers ask, where each byte of its body goes, and the
 * reply. */
#include "api/resources/upload.h"

#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/pipeline/conditional.h"
#include "api/pipeline/digest.h"
#include "api/pipeline/hook.h"
#include "api/reply.h"
#include "api/request/body.h"
#include "api/request/query.h"
#include "api/resources/table.h"
#include "base/clock.h"
#include "base/text.h"
#include "format/npy.h"
#include "format/pickle.h"
#include "format/safetensors.h"
#include "format/slice.h"
#include "format/table.h"

/* --- the reply ---------------------------------------------------------------------------------------------------- */

enum gb_step gb_upload_reply(struct gb_http_request *request, const struct gb_buffer_rec *rec, bool created,
                             const char *warning, const struct gb_transfer_times *times, uint64_t recv_ns,
                             struct gb_http_response *response, struct gb_error *err) {
    struct gb_json_writer out = {0};
    char etag[GB_ETAG_SIZE];

    gb_json_open(&out, NULL, '{');
    gb_render_buffer_members(&out, gb_api_of(request), request->param[0].s, rec);
    if (warning)
        gb_json_put_string(&out, "warning", warning);
    gb_json_close(&out, '}');
    if (gb_http_response_header(response, err, "ETag", "\"%s\"", gb_etag_data(rec, GB_FORM_RAW, etag)) < 0 ||
        (created && gb_http_response_header(response, err, "Location", "/v1/sessions/%s/buffers/%s",
                                            request->param[0].s, rec->name.s) < 0) ||
        gb_add_upload_timing(request, times, recv_ns, response, err) < 0) {
        gb_json_done(&out);
        return GB_STEP_ERROR;
    }
    return gb_reply_json(&out, created ? 201 : 200, response, err);
}

/* --- path, query and headers -------------------------------------------------------------------------------------- */

static const char *name_of(enum gb_form form) {
    return form == GB_FORM_NPY ? ".npy" : "safetensors file";
}

static int read_format(const struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err) {
    const struct gb_http_text *format = gb_http_query(request, "format");
    bool layout = gb_http_query(request, "dtype") || gb_http_query(request, "shape");

    if (gb_media_tensor(gb_http_header(request, "Content-Type"), &plan->said, err) < 0)
        return -1;
    if (format && gb_media_form(format->s, &plan->said, NULL, err) < 0)
        return -1;
    if (plan->said != GB_FORM_RAW && layout)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a %s says dtype and shape itself; leave them out, or give ?format=raw for raw bytes",
                            name_of(plan->said));
    plan->may_say = plan->said != GB_FORM_RAW || (!format && !layout);
    plan->never_npy = !plan->may_say && !format;
    return 0;
}

static int read_layout(const struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err) {
    const struct gb_http_text *dtype = gb_http_query(request, "dtype");
    const struct gb_http_text *shape = gb_http_query(request, "shape");
    struct gb_buffer_params *buffer = &plan->params.buffer;

    buffer->dtype = GB_DTYPE_UINT8;
    if (dtype && gb_dtype_read(dtype->s, dtype->len, &buffer->dtype, err) < 0)
        return -1;
    if (shape && gb_shape_parse(shape->s, shape->len, &buffer->shape, err) < 0)
        return -1;
    plan->has_shape = shape != NULL;
    return 0;
}

static int read_side(const struct gb_http_request *request, struct gb_upload_params *params, struct gb_error *err) {
    const struct gb_http_text *side = gb_http_query(request, "side");

    if (!side)
        return 0;
    params->side_named = true;
    params->to_device_side = strcmp(side->s, "device") == 0;
    if (!params->to_device_side && strcmp(side->s, "host") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "side must be host or device");
    return 0;
}

static int read_device(const struct gb_http_request *request, struct gb_buffer_params *buffer, struct gb_error *err) {
    const struct gb_http_text *device = gb_http_query(request, "device");

    if (!device)
        return 0;
    if (buffer->pool.s[0] != '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give pool or device, not both: a pool is of one device");
    buffer->has_device = true;
    return gb_device_text(gb_api_of(request), device->s, device->len, &buffer->device, err) < 0 ? -1 : 0;
}

static int read_placement(const struct gb_http_request *request, struct gb_upload_params *params,
                          struct gb_error *err) {
    static const char *const fixed[] = {"dtype",    "shape",      "kind",  "pool",     "device",
                                        "mirrored", "durability", "spill", "max_bytes"};
    const struct gb_http_text *spill = gb_http_query(request, "spill");
    const struct gb_http_text *durability = gb_http_query(request, "durability");
    const struct gb_http_text *kind = gb_http_query(request, "kind");
    size_t i;

    if (gb_query_bool(request, "in_place", &params->in_place, err) < 0 ||
        gb_query_name(request, "stream", &params->buffer.stream, err) < 0 ||
        gb_query_name(request, "pool", &params->buffer.pool, err) < 0 ||
        gb_query_bool(request, "mirrored", &params->buffer.mirrored, err) < 0 || read_side(request, params, err) < 0)
        return -1;
    params->buffer.has_mirrored = gb_http_query(request, "mirrored") != NULL;
    params->buffer.has_kind = kind != NULL;
    params->buffer.has_durability = durability != NULL;
    if (durability && gb_durability_parse(durability->s, durability->len, &params->buffer.durability, err) < 0)
        return -1;
    params->buffer.has_spill = spill != NULL;
    if (spill && gb_spill_parse(spill->s, spill->len, &params->buffer.spill, err) < 0)
        return -1;
    if (read_device(request, &params->buffer, err) < 0)
        return -1;
    if (kind && gb_kind_parse(kind->s, kind->len, &params->buffer.kind, err) < 0)
        return -1;
    for (i = 0; params->partial && i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        if (gb_http_query(request, fixed[i]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "a write at an offset or a slice changes nothing but bytes; leave %s out", fixed[i]);
    }
    return 0;
}

/* The payload goes where the view says. */
static void place(struct gb_upload_params *params, const struct gb_view *view) {
    params->view = *view;
    params->scattered = view->axes > 0;
    params->offset = params->scattered ? 0 : view->offset;
}

/* Finds the tensor that ?tensor= names. Its dtype and shape stand in for the buffer's. */
static int find_tensor(const struct gb_http_request *request, const struct gb_http_text *name,
                       const struct gb_buffer_rec *rec, struct gb_upload_request *plan, struct gb_shape *ret_shape,
                       struct gb_error *err) {
    const struct gb_safetensor *tensor;
    struct gb_table *table;
    int64_t i;

    if (plan->needs_table)
        return -1;
    if (rec->dtype != GB_DTYPE_TENSORS)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer is one tensor, of dtype %s: leave out ?tensor=, which picks one of a table",
                            gb_dtype_name(rec->dtype));
    table = gb_tables_find(gb_api_of(request)->tables, rec);
    if (!table) {
        plan->needs_table = true;
        return -1;
    }
    i = gb_table_find(table, name->s, name->len, err);
    if (i >= 0) {
        tensor = gb_table_tensor(table, (size_t)i, &plan->tensor_at);
        plan->tensor_bytes = tensor->end - tensor->begin;
        plan->params.in_table = true;
        plan->params.layout = rec->layout;
        plan->params.buffer.dtype = tensor->dtype;
        *ret_shape = tensor->shape;
    }
    gb_table_unref(table);
    return i < 0 ? -1 : 0;
}

/* Reads where in the tensor the bytes go. */
static int read_slice(const struct gb_http_text *slice, const struct gb_shape *shape, struct gb_upload_request *plan,
                      struct gb_error *err) {
    struct gb_upload_params *params = &plan->params;
    static const char all[] = "...";
    const char *text = slice ? slice->s : all;
    size_t len = slice ? slice->len : sizeof(all) - 1;

    if (gb_slice_parse(text, len, shape, params->buffer.dtype, &plan->slice, &params->view, &plan->slice_fortran, err) <
        0)
        return -1;
    plan->sliced = true;
    params->view.offset += plan->tensor_at;
    plan->slice_fortran.offset += plan->tensor_at;
    place(params, &params->view);
    params->bytes = params->view.bytes;
    return 0;
}

/* Reads where in the buffer the bytes go. */
static int read_part(const struct gb_http_request *request, const struct gb_buffer_rec *rec,
                     struct gb_upload_request *plan, struct gb_error *err) {
    const struct gb_http_text *tensor = gb_http_query(request, "tensor");
    const struct gb_http_text *slice = gb_http_query(request, "slice");
    struct gb_upload_params *params = &plan->params;
    struct gb_shape shape = rec->shape;
    bool offset = gb_http_query(request, "offset");

    params->buffer.shape = rec->shape;
    if (slice && offset)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a slice is of elements, an offset is of bytes: give one or the other");
    if (tensor && find_tensor(request, tensor, rec, plan, &shape, err) < 0)
        return -1;
    if (slice || !offset)
        return read_slice(slice, &shape, plan, err);
    if (gb_query_u64(request, "offset", &params->offset, err) < 0)
        return -1;
    if (plan->params.in_table && params->offset > plan->tensor_bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the offset %llu lies beyond the %llu bytes of the tensor",
                            (unsigned long long)params->offset, (unsigned long long)plan->tensor_bytes);
    params->offset += plan->tensor_at;
    return 0;
}

/* A part of a tensor ends within it. */
static int check_tensor(const struct gb_upload_request *plan, struct gb_error *err) {
    const struct gb_upload_params *params = &plan->params;

    if (!plan->params.in_table || plan->sliced ||
        params->bytes <= plan->tensor_at + plan->tensor_bytes - params->offset)
        return 0;
    return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                        "%llu bytes at offset %llu do not fit into the %llu bytes of the tensor",
                        (unsigned long long)params->bytes, (unsigned long long)(params->offset - plan->tensor_at),
                        (unsigned long long)plan->tensor_bytes);
}

/* A buffer that is replaced stays where it is unless the client says otherwise. */
static int read_existing(const struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err) {
    struct gb_upload_params *params = &plan->params;
    struct gb_error absent = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    bool in_place = false;
    bool pending;
    int r;

    params->session = gb_session_use(gb_api_of(request)->core, &params->buffer.session, err);
    if (!params->session)
        return -1;
    if (gb_query_name(request, "stream", &params->buffer.stream, err) < 0)
        return -1;
    r = gb_buffer_see_in(params->session, &params->buffer.name, &params->buffer.stream, &rec, &pending, &absent);
    plan->needs_table = pending && gb_http_query(request, "tensor");
    if (r < 0 && plan->needs_table)
        return -1;
    if (r < 0) {
        if (absent.code == GB_ERR_BUFFER_NOT_FOUND && !params->partial)
            return 0;
        *err = absent;
        return -1;
    }
    gb_buffer_rec_done(&rec); /* nothing here reads its labels */
    plan->exists = true;
    plan->existing_bytes = rec.bytes;
    params->buffer.kind = rec.kind;
    params->buffer.mirrored = rec.mirrored;
    if (params->partial)
        params->buffer.dtype = rec.dtype;
    if (params->partial && read_part(request, &rec, plan, err) < 0)
        return -1;
    if (gb_query_bool(request, "in_place", &in_place, err) < 0)
        return -1;
    /* Memory of another process is written in place, whatever the request asks for. */
    plan->adopted = rec.adopted && !rec.mirrored && rec.state != GB_BUFFER_LOST;
    in_place |= plan->adopted;
    /* Bytes written in place are bytes of the same tensor. */
    if (in_place && !params->partial && plan->said == GB_FORM_RAW && rec.dtype != GB_DTYPE_TENSORS &&
        !gb_http_query(request, "dtype") && !plan->has_shape) {
        params->buffer.dtype = rec.dtype;
        params->buffer.shape = rec.shape;
        plan->has_shape = true;
    }
    return 0;
}

static int read_max(const struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err) {
    int r = gb_query_u64(request, "max_bytes", &plan->max_bytes, err);

    plan->has_max = r > 0;
    if (r >= 0 && plan->max_bytes > INT64_MAX)
        r = gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "max_bytes is more than 2^63 - 1");
    return r < 0 ? -1 : 0;
}

int gb_upload_request_read(struct gb_http_request *request, struct gb_upload_request *plan, struct gb_error *err) {
    struct gb_upload_params *params = &plan->params;

    params->buffer.kind = GB_KIND_DEVICE;
    strcpy(params->buffer.stream.s, "default");
    params->wait_ms = gb_http_prefer_wait(request, 0, GB_ALLOC_WAIT_MAX_S, NULL) * 1000;
    if (gb_param_name(request, 0, "session name", &params->buffer.session, err) < 0 ||
        gb_param_name(request, 1, "buffer name", &params->buffer.name, err) < 0 ||
        read_format(request, plan, err) < 0 || read_layout(request, plan, err) < 0 ||
        read_max(request, plan, err) < 0 || gb_query_bool(request, "pack", &plan->pack, err) < 0)
        return -1;
    plan->chunked = request->chunked;
    params->partial =
        gb_http_query(request, "offset") || gb_http_query(request, "slice") || gb_http_query(request, "tensor");
    if (read_existing(request, plan, err) < 0 || read_placement(request, params, err) < 0)
        return -1;
    gb_request_hooks_stream(request, &params->buffer.stream);
    return 0;
}

/* --- how the length of a body, a dtype and a shape fit together --------------------------------------------------- */

static int length_required(const struct gb_upload_request *plan, struct gb_error *err) {
    if (plan->params.partial)
        return gb_error_set(err, GB_ERR_LENGTH_REQUIRED,
                            "send Content-Length, or a chunked body: nothing else tells how many bytes are to be "
                            "written");
    return gb_error_set(
        err, GB_ERR_LENGTH_REQUIRED,
        "send Content-Length (for an upload in several requests Upload-Length), or a chunked body in one request, or "
        "?dtype= and ?shape=, or a .npy or safetensors: without one of them nothing tells how large the buffer is to "
        "be");
}

/* Bytes written in place are as many as the buffer has. */
static bool keeps_size(const struct gb_upload_request *plan) {
    return plan->exists && !plan->params.partial && (plan->params.in_place || plan->adopted);
}

bool gb_upload_request_open(struct gb_upload_request *plan) {
    struct gb_upload_params *params = &plan->params;

    if ((!plan->coded && !plan->chunked) || plan->sliced || (plan->has_shape && !params->partial) || keeps_size(plan))
        return false;
    params->open_ended = true;
    params->reserve = plan->has_max;
    params->bytes = plan->has_max ? plan->max_bytes : INT64_MAX;
    if (params->in_table)
        params->bytes = plan->tensor_at + plan->tensor_bytes - params->offset;
    return true;
}

int gb_upload_request_permit(const struct gb_upload_request *plan, struct gb_error *err) {
    if (!plan->has_max || plan->params.bytes <= plan->max_bytes)
        return 0;
    return gb_error_set(err, GB_ERR_BODY_TOO_LARGE, "the body brings %llu bytes, and max_bytes permits %llu",
                        (unsigned long long)plan->params.bytes, (unsigned long long)plan->max_bytes);
}

int gb_upload_request_raw(struct gb_upload_request *plan, bool has_length, uint64_t length, struct gb_error *err) {
    struct gb_upload_params *params = &plan->params;
    struct gb_buffer_params *buffer = &params->buffer;
    size_t width = gb_dtype_bytes(buffer->dtype);
    uint64_t bytes;

    if (!has_length && (plan->coded || plan->chunked) && !plan->has_shape && keeps_size(plan)) {
        has_length = true;
        length = plan->existing_bytes;
    }
    if (!has_length && (params->partial || !plan->has_shape) && !plan->sliced)
        return length_required(plan, err);
    if (has_length && length > INT64_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the body has more than 2^63 - 1 bytes");
    if (plan->sliced && has_length && length != params->view.bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the slice has %llu bytes, the body %llu",
                            (unsigned long long)params->view.bytes, (unsigned long long)length);
    if (params->partial) {
        params->bytes = plan->sliced ? params->view.bytes : length;
        return check_tensor(plan, err);
    }
    if (!plan->has_shape) {
        if (length % width != 0)
            return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                                "the body has %llu bytes, which is no whole number of %s with %zu each",
                                (unsigned long long)length, gb_dtype_name(buffer->dtype), width);
        buffer->shape = (struct gb_shape){.dims = 1, .dim = {length / width}};
    }
    if (gb_shape_bytes(&buffer->shape, buffer->dtype, &bytes, err) < 0)
        return -1;
    if (has_length && bytes != length)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "dtype and shape make %llu bytes, the body has %llu; a .npy or safetensors needs neither",
                            (unsigned long long)bytes, (unsigned long long)length);
    params->bytes = bytes;
    buffer->bytes = bytes;
    buffer->has_shape = true;
    return 0;
}

static int slice_refused(const struct gb_upload_request *plan, const char *what, const struct gb_shape *shape,
                         struct gb_error *err) {
    char is[GB_SHAPE_TEXT_SIZE];
    char wanted[GB_SHAPE_TEXT_SIZE];

    gb_shape_text(shape, is);
    gb_shape_text(&plan->slice, wanted);
    return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the slice has the shape (%s), the %s (%s); nothing is broadcast",
                        wanted, what, is);
}

/* By a form that has dtype and shape. length: of the payload. */
static int described(struct gb_upload_request *plan, const char *what, enum gb_dtype dtype,
                     const struct gb_shape *shape, bool has_length, uint64_t length, struct gb_error *err) {
    struct gb_buffer_params *buffer = &plan->params.buffer;
    uint64_t bytes;

    struct gb_error why = GB_ERROR_INIT;

    if (gb_shape_bytes(shape, dtype, &bytes, &why) < 0)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the %s: %s", what, why.detail);
    if (has_length && bytes != length)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "dtype and shape of the %s make %llu bytes, %llu follow its header", what,
                            (unsigned long long)bytes, (unsigned long long)length);
    if (plan->params.partial && dtype != buffer->dtype)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the %s holds %s, the buffer %s; give ?format=raw for bytes",
                            what, gb_dtype_name(dtype), gb_dtype_name(buffer->dtype));
    if (plan->sliced && !gb_shape_equal(shape, &plan->slice))
        return slice_refused(plan, what, shape, err);
    plan->params.bytes = bytes;
    if (plan->params.partial)
        return check_tensor(plan, err);
    buffer->bytes = bytes;
    buffer->dtype = dtype;
    buffer->shape = *shape;
    buffer->has_shape = true;
    return 0;
}

static int plan_one(struct gb_upload_request *plan, const struct gb_safetensors *file, bool has_length, uint64_t length,
                    struct gb_error *err) {
    const struct gb_safetensor *tensor = file->tensors;

    if (file->count == 0)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the safetensors file holds no tensor");
    if (file->count != 1)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY,
                            "the safetensors file holds %zu tensors, and this writes a part of a buffer: PUT the whole "
                            "file without offset, slice and tensor",
                            file->count);
    return described(plan, name_of(GB_FORM_SAFETENSORS), tensor->dtype, &tensor->shape, has_length, length, err);
}

/* --- what the first bytes say ------------------------------------------------------------------------------------- */

enum gb_form gb_upload_request_recognize(struct gb_upload_request *plan, const char *first, size_t n) {
    if (plan->said != GB_FORM_RAW)
        return plan->said;
    if (gb_npy_magic(first, n))
        return GB_FORM_NPY;
    if (gb_safetensors_begins(first, n))
        return GB_FORM_SAFETENSORS;
    plan->warning = gb_archive_warning(first, n);
    return GB_FORM_RAW;
}

/* Bytes that were taken for a file without a word of the client may be meant as bytes. */
static int refused(const struct gb_upload_request *plan, struct gb_error *err, const struct gb_error *why) {
    bool tell = plan->said == GB_FORM_RAW && strstr(why->detail, "format=raw") == NULL;

    gb_error_move(err, why);
    if (tell)
        gb_error_append(err, why->code, "; ?format=raw stores the bytes as they are");
    return -1;
}

int gb_upload_request_cut(const struct gb_upload_request *plan, enum gb_form form, uint64_t length,
                          struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    gb_error_set(&why, GB_ERR_UNSUPPORTED_ARRAY, "the body ends at byte %llu, within the header of its %s",
                 (unsigned long long)length, name_of(form));
    return refused(plan, err, &why);
}

int gb_upload_request_header_bytes(const struct gb_upload_request *plan, enum gb_form form, const char *first, size_t n,
                                   size_t *ret, struct gb_error *err) {
    size_t least = form == GB_FORM_NPY ? GB_NPY_PREFIX : GB_SAFETENSORS_PREFIX;
    struct gb_error why = GB_ERROR_INIT;
    size_t bytes = 0;

    if (n < least)
        return gb_upload_request_cut(plan, form, n, err);
    if ((form == GB_FORM_NPY ? gb_npy_header_bytes(first, &bytes, &why) : gb_safetensors_data_at(first, &bytes, &why)) <
        0)
        return refused(plan, err, &why);
    if (bytes < n && form == GB_FORM_SAFETENSORS) {
        gb_error_set(&why, GB_ERR_UNSUPPORTED_ARRAY, "the safetensors file holds no tensor");
        return refused(plan, err, &why);
    }
    *ret = bytes;
    return 0;
}

/* The buffer takes the file whole. length: of what follows the header. */
static int plan_table(struct gb_upload_request *plan, bool has_length, uint64_t length, struct gb_error *err) {
    struct gb_buffer_params *buffer = &plan->params.buffer;
    const char *head;
    uint64_t bytes = gb_table_file_bytes(plan->table) - gb_table_head(plan->table, &head);

    if (has_length && bytes != length)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the tensors of the safetensors header have %llu bytes, %llu follow it",
                            (unsigned long long)bytes, (unsigned long long)length);
    buffer->bytes = plan->params.bytes = gb_table_bytes(plan->table);
    buffer->dtype = GB_DTYPE_TENSORS;
    buffer->shape = (struct gb_shape){.dims = 1, .dim = {buffer->bytes}};
    buffer->has_shape = true;
    return 0;
}

size_t gb_upload_request_least(const struct gb_upload_request *plan) {
    return plan->params.partial ? SIZE_MAX : plan->pack ? 0 : 2;
}

static int take_parsed(struct gb_upload_request *plan, struct gb_table *table, struct gb_safetensors *file,
                       bool has_length, uint64_t length, struct gb_error *err) {
    int r;

    plan->table = table;
    r = table ? plan_table(plan, has_length, length, err) : plan_one(plan, file, has_length, length, err);
    gb_safetensors_done(file);
    return r;
}

static int read_safetensors(struct gb_upload_request *plan, const char *header, size_t n, bool has_length,
                            uint64_t length, struct gb_error *err) {
    struct gb_table *table = NULL;
    struct gb_safetensors file;

    if (gb_safetensors_parse(header + GB_SAFETENSORS_LENGTH, n - GB_SAFETENSORS_LENGTH, &file, err) < 0)
        return -1;
    if (file.count >= gb_upload_request_least(plan)) {
        table = gb_table_take(&file, header, n, err);
        file = (struct gb_safetensors){0};
        if (!table)
            return -1;
    }
    return take_parsed(plan, table, &file, has_length, length - n, err);
}

/* The bytes of an array in Fortran order, each to its place in C order. */
static int place_fortran(struct gb_upload_request *plan, const struct gb_npy *npy, struct gb_error *err) {
    struct gb_upload_params *params = &plan->params;
    size_t width = gb_dtype_bytes(npy->dtype);
    struct gb_axis axis[GB_DIMS_MAX];
    struct gb_view view;
    uint64_t end;

    if (plan->sliced) {
        place(params, &plan->slice_fortran);
        return 0;
    }
    if (params->partial && (!gb_add_u64(params->offset, params->bytes, &end) || end > plan->existing_bytes))
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "%llu bytes at offset %llu do not fit into the %llu bytes of the buffer",
                            (unsigned long long)params->bytes, (unsigned long long)params->offset,
                            (unsigned long long)plan->existing_bytes);
    gb_view_axes(&npy->shape, width, axis);
    view = gb_view_fortran(params->offset, width, axis, npy->shape.dims);
    place(params, &view);
    return 0;
}

static int read_npy(struct gb_upload_request *plan, const char *header, size_t n, bool has_length, uint64_t length,
                    struct gb_error *err) {
    struct gb_npy npy;

    if (gb_npy_parse_header(header, n, &npy, err) < 0)
        return -1;
    if (described(plan, name_of(GB_FORM_NPY), npy.dtype, &npy.shape, has_length, length - n, err) < 0)
        return -1;
    return npy.fortran ? place_fortran(plan, &npy, err) : 0;
}

int gb_upload_request_header(struct gb_upload_request *plan, enum gb_form form, const char *header, size_t n,
                             bool has_length, uint64_t length, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if ((form == GB_FORM_NPY ? read_npy : read_safetensors)(plan, header, n, has_length, length, &why) < 0)
        return refused(plan, err, &why);
    return 0;
}

int gb_upload_request_parsed(struct gb_upload_request *plan, struct gb_table *table, struct gb_safetensors *file,
                             size_t n, bool has_length, uint64_t length, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (take_parsed(plan, table, file, has_length, length - n, &why) < 0)
        return refused(plan, err, &why);
    return 0;
}

/* --- the body ----------------------------------------------------------------------------------------------------- */

/* The body of an upload. Only the header of a .npy or safetensors file (or the first bytes, which show that the body
 * has no header) is gathered here; every byte after it goes straight into the memory that the core gives. */

enum stage {
    STAGE_PROBE,  /* the first bytes, which show what the body is */
    STAGE_HEADER, /* the rest of the header of a form that has one */
    STAGE_PARSED, /* a long header is there, and is being parsed */
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
    struct gb_heading *long_head;
    char *head; /* NULL: its bytes are in the table's, or in the long head */
    size_t head_used;
    size_t head_need;
    const char *front; /* what of the head is payload */
    size_t spilled;    /* of front, given to the core */
    size_t spill;      /* of front, in all */
    uint64_t payload;
    const char *room; /* where the next payload bytes go */
    uint64_t recv_ns;
};

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
    s->front = s->head;
    s->spill = s->head_used;
    return begin(s, err);
}

/* The header of a table is a part of the buffer. */
static int begin_described(struct sink *s, struct gb_error *err) {
    free(s->head);
    s->head = NULL;
    if (s->plan.table)
        s->spill = gb_table_head(s->plan.table, &s->front);
    return begin(s, err);
}

/* The header is there. */
static int begin_said(struct sink *s, struct gb_error *err) {
    if (s->long_head) {
        s->stage = STAGE_PARSED;
        gb_heading_parse(s->long_head, gb_upload_request_least(&s->plan));
        return 0;
    }
    if (gb_upload_request_header(&s->plan, s->form, s->head, s->head_used, s->has_length, s->length, err) < 0)
        return -1;
    return begin_described(s, err);
}

/* Returns 1 when a long header is parsed, and the upload has begun; 0 to wait, or -1. */
static int begin_parsed(struct sink *s, struct gb_error *err) {
    struct gb_safetensors file;
    struct gb_table *table;
    struct gb_error why = GB_ERROR_INIT;
    int r = gb_heading_result(s->long_head, &table, &file, &why);

    if (r == 0)
        return 0;
    if (r < 0)
        return refused(&s->plan, err, &why);
    if (gb_upload_request_parsed(&s->plan, table, &file, s->head_need, s->has_length, s->length, err) < 0)
        return -1;
    return begin_described(s, err) < 0 ? -1 : 1;
}

/* Room for the rest of the header. Returns 1, 0 to wait, or -1. */
static int head_room(struct sink *s, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    char *text = s->head;
    int r = s->long_head ? gb_heading_room(s->long_head, &text, err) : 1;

    if (r <= 0)
        return r;
    if (s->long_head && s->head) { /* the first bytes, which said how long it is */
        memcpy(text, s->head, s->head_used);
        free(s->head);
        s->head = NULL;
    }
    *ret_ptr = text + s->head_used;
    *ret_n = s->head_need - s->head_used;
    return 1;
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
    s->stage = STAGE_HEADER;
    if (s->form == GB_FORM_SAFETENSORS && s->head_need > GB_HEADING_LONG) {
        s->long_head = gb_heading_new(s->api->tables, s->head_need, s->plan.params.waker);
        return s->long_head ? 0 : gb_error_memory(err, "upload");
    }
    bigger = realloc(s->head, s->head_need);
    if (!bigger)
        return gb_error_memory(err, "upload");
    s->head = bigger;
    return s->head_used == s->head_need ? begin_said(s, err) : 0;
}

/* Gives gathered payload to the core. Returns 1 when all is given, 0 to wait, or -1. */
static int push_spill(struct sink *s, struct gb_error *err) {
    size_t before = s->spilled;
    int r = gb_upload_copy_in(s->upload, s->front, s->spill, &s->spilled, err);

    s->payload += s->spilled - before;
    return r;
}

/* Fills the gaps of a table with zeros. *ret_run: how many bytes of a tensor come next. Returns as push_spill. */
static int push_gap(struct sink *s, uint64_t *ret_run, struct gb_error *err) {
    size_t room;
    void *ptr;
    bool gap;
    int r;

    while (*ret_run = gb_table_run(s->plan.table, s->payload, &gap), gap) {
        r = gb_upload_room(s->upload, &ptr, &room, err);
        if (r <= 0)
            return r;
        room = room < *ret_run ? room : (size_t)*ret_run;
        memset(ptr, 0, room);
        s->payload += room;
        if (gb_upload_fill(s->upload, room, err) < 0)
            return -1;
    }
    return 1;
}

static int too_long(const struct sink *s, struct gb_error *err) {
    if (s->plan.table)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the safetensors file ends after %llu bytes, as its header says, and the body has more",
                            (unsigned long long)gb_table_file_bytes(s->plan.table));
    return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "dtype and shape make %llu bytes, the body has more",
                        (unsigned long long)s->plan.params.bytes);
}

static int sink_room(struct gb_http_sink *sink, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;
    uint64_t run = UINT64_MAX;
    int r;

    if (s->stage < STAGE_PARSED)
        return head_room(s, ret_ptr, ret_n, err);
    if (s->stage == STAGE_PARSED && (r = begin_parsed(s, err)) <= 0)
        return r;
    r = push_spill(s, err);
    if (r <= 0)
        return r;
    if (s->payload == s->plan.params.bytes && !s->plan.params.open_ended)
        return too_long(s, err);
    if (s->plan.table && (r = push_gap(s, &run, err)) <= 0)
        return r;
    r = gb_upload_room(s->upload, ret_ptr, ret_n, err);
    if (r <= 0)
        return r;
    if (*ret_n > run)
        *ret_n = (size_t)run;
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

static int sink_arrived(struct gb_http_sink *sink, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    return s->upload ? gb_upload_arrived(s->upload, err) : 0;
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
    if (s->stage == STAGE_PARSED && (r = begin_parsed(s, err)) <= 0)
        return r;
    if ((s->plan.params.open_ended || s->payload + s->spill - s->spilled == s->plan.params.bytes) &&
        gb_upload_arrived(s->upload, err) < 0)
        return -1;
    r = push_spill(s, err);
    if (r > 0)
        r = gb_upload_begun(s->upload, err);
    if (r <= 0)
        return r;
    if (s->payload != s->plan.params.bytes && s->plan.table)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the safetensors file has %llu bytes, as its header says, and the body ends before",
                            (unsigned long long)gb_table_file_bytes(s->plan.table));
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
        if (s->plan.table)
            gb_tables_put(s->api->tables, &rec, s->plan.table);
        step = gb_upload_reply(request, &rec, created, s->plan.warning, &times, s->recv_ns, response, err);
        gb_buffer_rec_done(&rec);
        return step;
    }
    if (!request->timed_out && !request->detached)
        request->cancel = s->stage == STAGE_ENDED ? cancel : NULL;
    return gb_body_await(request, "device or the database", err);
}

static enum gb_step sink_end(struct gb_http_sink *sink, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err) {
    struct sink *s = (struct sink *)sink;

    s->recv_ns = gb_clock_ns();
    return gb_http_await(request, finish, response, err);
}

static void sink_free(struct gb_http_sink *sink) {
    struct sink *s = (struct sink *)sink;

    gb_upload_set_reason(s->upload, s->sink.failed);
    gb_upload_free(s->upload);
    gb_conditions_free(s->plan.params.check.arg);
    gb_session_unref(s->plan.params.session);
    gb_table_unref(s->plan.table);
    gb_heading_free(s->long_head);
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
        return gb_error_memory(err, "upload");
    /* No byte will come that could decide. */
    return s->head_need == 0 ? look(s, err) : 0;
}

struct gb_http_sink *gb_upload_sink_new(struct gb_http_request *request, const struct gb_upload_request *plan,
                                        struct gb_error *err) {
    struct sink *s = calloc(1, sizeof(*s));

    if (!s) {
        gb_conditions_free(plan->params.check.arg);
        gb_session_unref(plan->params.session);
        gb_error_memory(err, "upload");
        return NULL;
    }
    s->sink = (struct gb_http_sink){.room = sink_room,
                                    .fill = sink_fill,
                                    .pause = sink_pause,
                                    .arrived = sink_arrived,
                                    .end = sink_end,
                                    .free = sink_free};
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
