/* How the length of a body, a dtype and a shape fit together. */
#include "api/transfer/upload.h"

#include <string.h>

#include "base/parse.h"
#include "format/safetensors.h"

static int length_required(const struct gb_upload_request *plan, struct gb_error *err) {
    if (plan->params.partial)
        return gb_error_set(err, GB_ERR_LENGTH_REQUIRED, "%s",
                            plan->coded ? "send the bytes as they are, with Content-Length: that of an encoded body "
                                          "does not tell how many bytes are to be written"
                                        : "send Content-Length: nothing else tells how many bytes are to be written");
    if (plan->coded)
        return gb_error_set(
            err, GB_ERR_LENGTH_REQUIRED,
            "give ?shape= (and ?dtype=), or send a .npy or safetensors: the Content-Length of an encoded body does not "
            "tell how large the buffer is to be");
    return gb_error_set(
        err, GB_ERR_LENGTH_REQUIRED,
        "send Content-Length (for an upload in several requests Upload-Length), or ?dtype= and ?shape=, or a .npy or "
        "safetensors: without one of them nothing tells how large the buffer is to be");
}

int gb_upload_request_raw(struct gb_upload_request *plan, bool has_length, uint64_t length, struct gb_error *err) {
    struct gb_upload_params *params = &plan->params;
    struct gb_buffer_params *buffer = &params->buffer;
    size_t width = gb_dtype_bytes(buffer->dtype);
    uint64_t bytes;

    if (!has_length && (params->partial || !plan->has_shape) && !plan->sliced)
        return length_required(plan, err);
    if (has_length && length > INT64_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the body has more than 2^63 - 1 bytes");
    if (plan->sliced && has_length && length != params->view.bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the slice has %llu bytes, the body %llu",
                            (unsigned long long)params->view.bytes, (unsigned long long)length);
    if (params->partial) {
        params->bytes = plan->sliced ? params->view.bytes : length;
        return 0;
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

static bool same_shape(const struct gb_shape *a, const struct gb_shape *b) {
    return a->dims == b->dims && memcmp(a->dim, b->dim, a->dims * sizeof(a->dim[0])) == 0;
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

int gb_upload_request_described(struct gb_upload_request *plan, const char *what, enum gb_dtype dtype,
                                const struct gb_shape *shape, bool has_length, uint64_t length, struct gb_error *err) {
    struct gb_buffer_params *buffer = &plan->params.buffer;
    uint64_t bytes;

    if (gb_shape_bytes(shape, dtype, &bytes, err) < 0)
        return -1;
    if (has_length && bytes != length)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "dtype and shape of the %s make %llu bytes, %llu follow its header", what,
                            (unsigned long long)bytes, (unsigned long long)length);
    if (plan->params.partial && dtype != buffer->dtype)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the %s holds %s, the buffer %s; give ?format=raw for bytes",
                            what, gb_dtype_name(dtype), gb_dtype_name(buffer->dtype));
    if (plan->sliced && !same_shape(shape, &plan->slice))
        return slice_refused(plan, what, shape, err);
    plan->params.bytes = bytes;
    if (plan->params.partial)
        return 0;
    buffer->bytes = bytes;
    buffer->dtype = dtype;
    buffer->shape = *shape;
    buffer->has_shape = true;
    return 0;
}

static int plan_one(struct gb_upload_request *plan, const struct gb_safetensors *file, bool has_length, uint64_t length,
                    struct gb_error *err) {
    const struct gb_safetensor *tensor = file->tensors;

    if (file->count != 1)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY,
                            "the safetensors file holds %zu tensors and this is one buffer; send it to PUT "
                            "/v1/sessions/{s}/tensors, or store the file as it is with ?format=raw",
                            file->count);
    return gb_upload_request_described(plan, "safetensors file", tensor->dtype, &tensor->shape, has_length, length,
                                       err);
}

int gb_upload_request_safetensors(struct gb_upload_request *plan, const char *header, size_t n, bool has_length,
                                  uint64_t length, bool *ret_raw, struct gb_error *err) {
    bool said = plan->said == GB_FORM_SAFETENSORS;
    struct gb_error why = GB_ERROR_INIT;
    struct gb_safetensors file;
    int r;

    *ret_raw = false;
    if (gb_safetensors_parse(header + GB_SAFETENSORS_LENGTH, n - GB_SAFETENSORS_LENGTH, &file, &why) < 0) {
        /* What is such a file but for a type that is not known here is no raw bytes by chance. */
        *ret_raw = !said && why.code == GB_ERR_MALFORMED_REQUEST;
        if (*ret_raw)
            return 0;
        *err = why;
        return -1;
    }
    if (!said && (file.count == 0 || (has_length && file.bytes != length))) {
        *ret_raw = true;
        r = 0;
    } else {
        r = plan_one(plan, &file, has_length, length, err);
    }
    gb_safetensors_done(&file);
    return r;
}
