/* The .npy format: its preamble and header, read from bytes as they arrive, and written. Pure. */
#include "format/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* --- npy ---------------------------------------------------------------------------------------------------------- */

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

/* --- npy header --------------------------------------------------------------------------------------------------- */

/* Reads the dictionary of a .npy header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }. */

struct reader {
    const char *begin; /* of the file */
    const char *at;
    const char *end;
    struct gb_error *err;
};

struct text {
    const char *s;
    size_t len;
};

static int malformed(struct reader *r, const char *what) {
    return gb_error_set(r->err, GB_ERR_UNSUPPORTED_ARRAY,
                        "the .npy header is malformed at byte %zu of the file: %s; it must be a dictionary of descr, "
                        "fortran_order and shape",
                        (size_t)(r->at - r->begin), what);
}

static void skip_space(struct reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

/* Takes c when it is next, after any white space. */
static bool accept(struct reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool accept_word(struct reader *r, const char *word) {
    size_t n = strlen(word);

    skip_space(r);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* A quoted string without escapes: the names and types of numpy hold none. Programs of Python 2 wrote u'...'. */
static int read_string(struct reader *r, struct text *ret) {
    char quote;

    if (!accept(r, 'u'))
        accept(r, 'U');
    if (r->at == r->end || (*r->at != '\'' && *r->at != '"'))
        return malformed(r, "a string is missing");
    quote = *r->at++;
    ret->s = r->at;
    while (r->at < r->end && *r->at != quote && *r->at != '\\' && (unsigned char)*r->at >= 0x20)
        r->at++;
    if (r->at == r->end || *r->at != quote)
        return malformed(r, "a string does not end");
    ret->len = (size_t)(r->at - ret->s);
    r->at++;
    return 0;
}

static int read_descr(struct reader *r, enum gb_dtype *ret) {
    struct text descr;

    skip_space(r);
    if (r->at < r->end && (*r->at == '[' || *r->at == '(' || *r->at == '{'))
        return gb_error_set(r->err, GB_ERR_UNSUPPORTED_ARRAY,
                            "a structured array cannot be stored; upload each field by itself, as "
                            "numpy.ascontiguousarray(a['field']) gives it");
    if (read_string(r, &descr) < 0)
        return -1;
    return gb_dtype_parse_npy(descr.s, descr.len, ret, r->err);
}

static int read_fortran(struct reader *r, bool *ret) {
    if (accept_word(r, "False"))
        *ret = false;
    else if (accept_word(r, "True"))
        *ret = true;
    else
        return malformed(r, "fortran_order is neither True nor False");
    return 0;
}

static int read_dimension(struct reader *r, struct gb_shape *shape) {
    const char *digits;
    enum gb_parse parsed;

    skip_space(r);
    digits = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    if (shape->dims == GB_DIMS_MAX)
        return gb_error_set(r->err, GB_ERR_UNSUPPORTED_ARRAY,
                            "the array has more than %d dimensions; reshape it before the upload", GB_DIMS_MAX);
    parsed = gb_parse_u64(digits, (size_t)(r->at - digits), &shape->dim[shape->dims]);
    if (parsed == GB_PARSE_OVERFLOW)
        return malformed(r, "a dimension does not fit in 64 bits");
    if (parsed != GB_PARSE_OK)
        return malformed(r, "a dimension is not a whole number");
    shape->dims++;
    /* Python 2 wrote long integers with an L. */
    if (r->at < r->end && *r->at == 'L')
        r->at++;
    return 0;
}

static int read_shape(struct reader *r, struct gb_shape *ret) {
    struct gb_shape shape = {0};
    bool comma = false;

    if (!accept(r, '('))
        return malformed(r, "the shape is not a tuple");
    while (!accept(r, ')')) {
        if (shape.dims > 0 && !comma)
            return malformed(r, "a comma is missing in the shape");
        if (read_dimension(r, &shape) < 0)
            return -1;
        comma = accept(r, ',');
    }
    /* In Python (3) is a number, (3,) a tuple. */
    if (shape.dims == 1 && !comma)
        return malformed(r, "the shape is not a tuple");
    *ret = shape;
    return 0;
}

enum { DESCR = 1, FORTRAN = 2, SHAPE = 4, ALL = 7 };

static int read_member(struct reader *r, unsigned *seen, struct gb_npy *npy) {
    struct text key;
    unsigned which = 0;

    if (read_string(r, &key) < 0)
        return -1;
    if (key.len == 5 && memcmp(key.s, "descr", 5) == 0)
        which = DESCR;
    else if (key.len == 13 && memcmp(key.s, "fortran_order", 13) == 0)
        which = FORTRAN;
    else if (key.len == 5 && memcmp(key.s, "shape", 5) == 0)
        which = SHAPE;
    if (which == 0)
        return malformed(r, "a key is unknown");
    if (*seen & which)
        return malformed(r, "a key is given twice");
    *seen |= which;
    if (!accept(r, ':'))
        return malformed(r, "a colon is missing");
    if (which == DESCR)
        return read_descr(r, &npy->dtype);
    return which == FORTRAN ? read_fortran(r, &npy->fortran) : read_shape(r, &npy->shape);
}

static int read_dictionary(struct reader *r, struct gb_npy *npy) {
    unsigned seen = 0;
    bool comma = true;

    if (!accept(r, '{'))
        return malformed(r, "it does not begin with {");
    while (!accept(r, '}')) {
        if (!comma)
            return malformed(r, "a comma is missing");
        if (read_member(r, &seen, npy) < 0)
            return -1;
        comma = accept(r, ',');
    }
    skip_space(r);
    if (r->at != r->end)
        return malformed(r, "something follows the dictionary");
    return seen == ALL ? 0 : malformed(r, "a key is missing");
}

/* Both orders lay out the same bytes unless two dimensions exceed one. */
static bool order_matters(const struct gb_shape *shape) {
    unsigned large = 0;
    unsigned i;

    for (i = 0; i < shape->dims; i++) {
        if (shape->dim[i] == 0)
            return false;
        large += shape->dim[i] > 1;
    }
    return large > 1;
}

int gb_npy_parse_header(const void *data, size_t n, struct gb_npy *ret, struct gb_error *err) {
    const char *bytes = data;
    struct reader r = {.begin = bytes, .at = bytes, .end = bytes + n, .err = err};
    struct gb_npy npy = {0};
    size_t said;

    if (n < GB_NPY_PREFIX)
        return malformed(&r, "it is too short");
    if (gb_npy_header_bytes(data, &said, err) < 0)
        return -1;
    if (said != n)
        return malformed(&r, "its length is wrong");
    r.at += bytes[6] == 1 ? 10 : 12;
    if (read_dictionary(&r, &npy) < 0)
        return -1;
    npy.fortran = npy.fortran && order_matters(&npy.shape);
    *ret = npy;
    return 0;
}
