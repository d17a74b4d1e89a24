/* How the length of a body, a dtype and a shape fit together. */
#include "api/upload.h"

#include "base/parse.h"

static int too_large(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the shape has more than 2^63 - 1 bytes");
}

static int length_required(const struct gb_upload_plan *plan, struct gb_error *err) {
    if (plan->params.partial)
        return gb_error_set(err, GB_ERR_LENGTH_REQUIRED, "%s",
                            plan->coded ? "send the bytes as they are, with Content-Length: that of an encoded body "
                                          "does not tell how many bytes are to be written"
                                        : "send Content-Length: nothing else tells how many bytes are to be written");
    if (plan->coded)
        return gb_error_set(
            err, GB_ERR_LENGTH_REQUIRED,
            "give ?shape= (and ?dtype=), or send a .npy: the Content-Length of an encoded body does not "
            "tell how large the buffer is to be");
    return gb_error_set(err, GB_ERR_LENGTH_REQUIRED,
                        "send Content-Length, or ?dtype= and ?shape=, or a .npy: without one of them nothing tells how "
                        "large the buffer is to be");
}

int gb_upload_plan_raw(struct gb_upload_plan *plan, bool has_length, uint64_t length, struct gb_error *err) {
    struct gb_upload_params *params = &plan->params;
    struct gb_buffer_params *buffer = &params->buffer;
    size_t width = gb_dtype_bytes(buffer->dtype);
    uint64_t bytes;

    if (!has_length && (params->partial || !plan->has_shape))
        return length_required(plan, err);
    if (has_length && length > INT64_MAX)
        return too_large(err);
    if (params->partial) {
        params->bytes = length;
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
    if (bytes > INT64_MAX)
        return too_large(err);
    if (has_length && bytes != length)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "dtype and shape make %llu bytes, the body has %llu; a .npy needs neither, or ?format=npy",
                            (unsigned long long)bytes, (unsigned long long)length);
    params->bytes = bytes;
    buffer->bytes = bytes;
    buffer->has_shape = true;
    return 0;
}

int gb_upload_plan_npy(struct gb_upload_plan *plan, const struct gb_npy *npy, bool has_length, uint64_t length,
                       struct gb_error *err) {
    struct gb_buffer_params *buffer = &plan->params.buffer;
    uint64_t bytes;

    if (gb_shape_bytes(&npy->shape, npy->dtype, &bytes, err) < 0)
        return -1;
    if (bytes > INT64_MAX)
        return too_large(err);
    if (has_length && bytes != length)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "dtype and shape of the .npy make %llu bytes, %llu follow its header",
                            (unsigned long long)bytes, (unsigned long long)length);
    if (plan->params.partial && npy->dtype != buffer->dtype)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "the .npy holds %s, the buffer %s; give ?format=raw for bytes",
                            gb_dtype_name(npy->dtype), gb_dtype_name(buffer->dtype));
    plan->params.bytes = bytes;
    if (plan->params.partial)
        return 0;
    buffer->bytes = bytes;
    buffer->dtype = npy->dtype;
    buffer->shape = npy->shape;
    buffer->has_shape = true;
    return 0;
}
