#include "format/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool gb_npy_magic(const void *data, size_t n) {
    return n >= GB_NPY_MAGIC_BYTES && memcmp(data, GB_NPY_MAGIC, GB_NPY_MAGIC_BYTES) == 0;
}

int gb_npy_header_bytes(const void *prefix, size_t *ret_bytes, struct gb_error *err) {
    const unsigned char *p = prefix;
    size_t bytes;

    if (!gb_npy_magic(prefix, GB_NPY_PREFIX))
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY,
                            "the body does not begin as a .npy file; send raw bytes with ?format=raw");
    if (p[6] < 1 || p[6] > 3 || p[7] != 0)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY,
                            "the .npy has the version %u.%u; 1.0, 2.0 and 3.0 can be read", p[6], p[7]);
    if (p[6] == 1)
        bytes = 10 + ((size_t)p[8] | (size_t)p[9] << 8);
    else
        bytes = 12 + ((size_t)p[8] | (size_t)p[9] << 8 | (size_t)p[10] << 16 | (size_t)p[11] << 24);
    if (bytes > GB_NPY_HEADER_MAX)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the .npy header has %zu bytes; at most %d are read", bytes,
                            GB_NPY_HEADER_MAX);
    if (bytes < GB_NPY_PREFIX)
        return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the .npy header is empty");
    *ret_bytes = bytes;
    return 0;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* numpy leaves room for the first dimension to grow to this many digits in place. */
#define GROWTH_DIGITS 21

static size_t write_shape(const struct gb_shape *shape, char *out, size_t size) {
    size_t at = (size_t)snprintf(out, size, "(");
    unsigned i;

    for (i = 0; i < shape->dims; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%" PRIu64, i > 0 ? ", " : "", shape->dim[i]);
    at += (size_t)snprintf(out + at, size - at, "%s)", shape->dims == 1 ? "," : "");
    return at;
}

size_t gb_npy_write_header(enum gb_dtype dtype, const struct gb_shape *shape, char *out) {
    const char *descr = gb_dtype_npy(dtype);
    char *text = out + 10;
    size_t size = GB_NPY_WRITE_MAX - 10;
    size_t used;
    size_t total;

    if (!descr || shape->dims > GB_DIMS_MAX)
        return 0;
    used = (size_t)snprintf(text, size, "{'descr': '%s', 'fortran_order': False, 'shape': ", descr);
    used += write_shape(shape, text + used, size - used);
    used += (size_t)snprintf(text + used, size - used, ", }");
    if (shape->dims > 0) {
        int digits = snprintf(NULL, 0, "%" PRIu64, shape->dim[0]);

        used += (size_t)snprintf(text + used, size - used, "%*s", GROWTH_DIGITS - digits, "");
    }
    total = (10 + used + 1 + 63) / 64 * 64;
    memset(text + used, ' ', total - 10 - used);
    out[total - 1] = '\n';
    memcpy(out, GB_NPY_MAGIC "\x01\x00", 8);
    out[8] = (char)((total - 10) & 0xff);
    out[9] = (char)((total - 10) >> 8);
    return total;
}
