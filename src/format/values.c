/* Elements of tensors as text: the shortest that reads back as the same number, and rows of them. Pure. */
#include "format/values.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- values ------------------------------------------------------------------------------------------------------- */

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

/* --- floats of at most two bytes ---------------------------------------------------------------------------------- */

/* Where infinity and NaN are: IEEE has the highest exponent for both, FINITE has one NaN with all bits set,
 * UNSIGNED_ZERO has one in place of -0, SCALE is an exponent alone. */
enum kind { NOT_NARROW, IEEE, FINITE, UNSIGNED_ZERO, SCALE };

struct narrow {
    enum kind kind;
    int exponent; /* bits */
    int mantissa; /* bits */
    int bias;
};

static const struct narrow narrow[GB_DTYPE_COUNT] = {
    [GB_DTYPE_FLOAT16] = {IEEE, 5, 10, 15},
    [GB_DTYPE_BFLOAT16] = {IEEE, 8, 7, 127},
    [GB_DTYPE_FLOAT8_E5M2] = {IEEE, 5, 2, 15},
    [GB_DTYPE_FLOAT8_E4M3] = {IEEE, 4, 3, 7},
    [GB_DTYPE_FLOAT8_E3M4] = {IEEE, 3, 4, 3},
    [GB_DTYPE_FLOAT8_E4M3FN] = {FINITE, 4, 3, 7},
    [GB_DTYPE_FLOAT8_E4M3FNUZ] = {UNSIGNED_ZERO, 4, 3, 8},
    [GB_DTYPE_FLOAT8_E5M2FNUZ] = {UNSIGNED_ZERO, 5, 2, 16},
    [GB_DTYPE_FLOAT8_E4M3B11FNUZ] = {UNSIGNED_ZERO, 4, 3, 11},
    [GB_DTYPE_FLOAT8_E8M0FNU] = {SCALE, 8, 0, 127},
};

static unsigned highest(const struct narrow *f) {
    return (1u << (f->exponent + f->mantissa)) - 1;
}

static bool is_finite(const struct narrow *f, unsigned magnitude) {
    switch (f->kind) {
    case IEEE:
        return magnitude >> f->mantissa != (1u << f->exponent) - 1;
    case FINITE:
    case SCALE:
        return magnitude != highest(f);
    default:
        return true;
    }
}

static bool is_infinite(const struct narrow *f, unsigned magnitude) {
    return f->kind == IEEE && magnitude == highest(f) - (1u << f->mantissa) + 1;
}

static double narrow_value(const struct narrow *f, unsigned code) {
    bool negative = f->kind != SCALE && code > highest(f);
    unsigned magnitude = code & highest(f);
    unsigned fraction = magnitude & ((1u << f->mantissa) - 1);
    int exponent = (int)(magnitude >> f->mantissa);
    double value;

    if (is_infinite(f, magnitude))
        value = INFINITY;
    else if (!is_finite(f, magnitude) || (f->kind == UNSIGNED_ZERO && negative && magnitude == 0))
        value = NAN;
    else if (exponent == 0 && f->kind != SCALE)
        value = ldexp(fraction, 1 - f->bias - f->mantissa);
    else
        value = ldexp((1u << f->mantissa) | fraction, exponent - f->bias - f->mantissa);
    return negative ? -value : value;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static void write_special(double value, enum gb_notation notation, char *out) {
    const char *sign = signbit(value) && !isnan(value) ? "-" : "";
    bool json = notation == GB_NOTATION_JSON;

    snprintf(out, GB_NUMBER_SIZE / 2, "%s%s%s%s", json ? "\"" : "", sign,
             isnan(value) ? (json ? "NaN" : "nan")
             : json       ? "Infinity"
                          : "inf",
             json ? "\"" : "");
}

/* So that it is read as a float. */
static void add_point(char *text) {
    if (!strpbrk(text, ".e"))
        strcat(text, ".0");
}

static void write_float(double value, bool is_single, enum gb_notation notation, char *out) {
    int digits = is_single ? 6 : 15; /* as many as always come back */
    bool same;
    int n;

    if (!isfinite(value)) {
        write_special(value, notation, out);
        return;
    }
    do {
        n = snprintf(out, GB_NUMBER_SIZE / 2, "%.*g", digits, value);
        same = n < GB_NUMBER_SIZE / 2 && (is_single ? strtof(out, NULL) == (float)value : strtod(out, NULL) == value);
    } while (!same && ++digits <= 17);
    add_point(out);
}

static void write_complex(double re, double im, bool is_single, enum gb_notation notation, char *out) {
    char real[GB_NUMBER_SIZE / 2];
    char imaginary[GB_NUMBER_SIZE / 2];

    write_float(re, is_single, notation, real);
    write_float(im, is_single, notation, imaginary);
    if (notation == GB_NOTATION_JSON)
        snprintf(out, GB_NUMBER_SIZE, "[%.30s,%.30s]", real, imaginary);
    else
        snprintf(out, GB_NUMBER_SIZE, "%.30s%s%.30sj", real, imaginary[0] == '-' ? "" : "+", imaginary);
}

/* As the machine has it: least byte first. */
static uint64_t code_of(const void *element, size_t bytes) {
    uint64_t code = 0;

    memcpy(&code, element, bytes);
    return code;
}

static void write_signed(uint64_t code, size_t bytes, char *out) {
    unsigned unused = 64 - 8 * (unsigned)bytes;

    snprintf(out, GB_NUMBER_SIZE, "%" PRId64, (int64_t)(code << unused) >> unused);
}

static void write_wide(enum gb_dtype dtype, enum gb_notation notation, const void *element, char *out) {
    bool is_single = dtype == GB_DTYPE_FLOAT32 || dtype == GB_DTYPE_COMPLEX64;
    float single[2] = {0};
    double value[2] = {0};

    if (is_single) {
        memcpy(single, element, gb_dtype_bytes(dtype));
        value[0] = single[0];
        value[1] = single[1];
    } else {
        memcpy(value, element, gb_dtype_bytes(dtype));
    }
    if (dtype == GB_DTYPE_FLOAT32 || dtype == GB_DTYPE_FLOAT64)
        write_float(value[0], is_single, notation, out);
    else
        write_complex(value[0], value[1], is_single, notation, out);
}

void gb_number_write(enum gb_dtype dtype, enum gb_notation notation, const void *element, char *out) {
    size_t bytes = gb_dtype_bytes(dtype);

    switch (dtype) {
    case GB_DTYPE_BOOL:
        if (notation == GB_NOTATION_JSON)
            strcpy(out, code_of(element, 1) ? "true" : "false");
        else
            strcpy(out, code_of(element, 1) ? "1" : "0");
        break;
    case GB_DTYPE_UINT8:
    case GB_DTYPE_UINT16:
    case GB_DTYPE_UINT32:
    case GB_DTYPE_UINT64:
        snprintf(out, GB_NUMBER_SIZE, "%" PRIu64, code_of(element, bytes));
        break;
    case GB_DTYPE_INT8:
    case GB_DTYPE_INT16:
    case GB_DTYPE_INT32:
    case GB_DTYPE_INT64:
        write_signed(code_of(element, bytes), bytes, out);
        break;
    case GB_DTYPE_FLOAT32:
    case GB_DTYPE_FLOAT64:
    case GB_DTYPE_COMPLEX64:
    case GB_DTYPE_COMPLEX128:
        write_wide(dtype, notation, element, out);
        break;
    default:
        write_float(narrow_value(&narrow[dtype], (unsigned)code_of(element, bytes)), true, notation, out);
    }
}
