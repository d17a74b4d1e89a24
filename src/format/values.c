#include "format/values.h"

static const char *put_nested(struct gb_json_writer *out, const char *key, enum gb_dtype dtype,
                              const struct gb_shape *shape, unsigned axis, const char *at) {
    char number[GB_NUMBER_SIZE];
    uint64_t i;

    if (axis == shape->dims) {
        gb_number_write(dtype, GB_NOTATION_JSON, at, number);
        gb_json_put_raw(out, key, number);
        return at + gb_dtype_bytes(dtype);
    }
    gb_json_open(out, key, '[');
    for (i = 0; i < shape->dim[axis]; i++)
        at = put_nested(out, NULL, dtype, shape, axis + 1, at);
    gb_json_close(out, ']');
    return at;
}

static uint64_t elements(enum gb_dtype dtype, const struct gb_shape *shape) {
    uint64_t bytes = 0;

    gb_shape_bytes(shape, dtype, &bytes, NULL);
    return bytes / gb_dtype_bytes(dtype);
}

void gb_values_json(struct gb_json_writer *out, enum gb_dtype dtype, const struct gb_shape *shape, const void *bytes) {
    unsigned i;

    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "dtype", gb_dtype_name(dtype));
    gb_json_open(out, "shape", '[');
    for (i = 0; i < shape->dims; i++)
        gb_json_put_u64(out, NULL, shape->dim[i]);
    gb_json_close(out, ']');
    /* A billion empty rows are no more than none. */
    if (elements(dtype, shape) == 0)
        gb_json_put_raw(out, "values", "[]");
    else
        put_nested(out, "values", dtype, shape, 0, bytes);
    gb_json_close(out, '}');
    gb_json_end(out);
}

void gb_values_text(struct gb_json_writer *out, enum gb_dtype dtype, const struct gb_shape *shape, const void *bytes) {
    uint64_t row = shape->dims > 1 ? shape->dim[shape->dims - 1] : 1;
    uint64_t matrix = shape->dims > 2 ? row * shape->dim[shape->dims - 2] : 0;
    size_t width = gb_dtype_bytes(dtype);
    uint64_t n = elements(dtype, shape);
    char number[GB_NUMBER_SIZE];
    uint64_t i;

    for (i = 0; i < n; i++) {
        gb_number_write(dtype, GB_NOTATION_TEXT, (const char *)bytes + i * width, number);
        gb_json_put_text(out, number);
        gb_json_put_text(out, (i + 1) % row > 0 ? " " : "\n");
        if (matrix > 0 && (i + 1) % matrix == 0 && i + 1 < n)
            gb_json_put_text(out, "\n");
    }
}
