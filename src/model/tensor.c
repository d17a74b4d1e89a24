/* Element types and shapes: their names in numpy, torch, safetensors and .npy headers, and their texts. A name is read
 * only if it means one type. The formats, the API and the core call it. */
#include "model/tensor.h"

#include <stdbool.h>
#include <string.h>

#include "base/encoding.h"
#include "base/text.h"

static const char *const names[GB_DTYPE_COUNT] = {
#define GB_DTYPE(symbol, name, bytes, descr, reads, st) #name,
#include "model/dtype.def"
#undef GB_DTYPE
};

static const unsigned char sizes[GB_DTYPE_COUNT] = {
#define GB_DTYPE(symbol, name, bytes, descr, reads, st) bytes,
#include "model/dtype.def"
#undef GB_DTYPE
};

static const char *const descrs[GB_DTYPE_COUNT] = {
#define GB_DTYPE(symbol, name, bytes, descr, reads, st) descr,
#include "model/dtype.def"
#undef GB_DTYPE
};

/* One more descr that is taken. */
static const char *const reads[GB_DTYPE_COUNT] = {
#define GB_DTYPE(symbol, name, bytes, descr, reads, st) reads,
#include "model/dtype.def"
#undef GB_DTYPE
};

static const char *const safetensors[GB_DTYPE_COUNT] = {
#define GB_DTYPE(symbol, name, bytes, descr, reads, st) st,
#include "model/dtype.def"
#undef GB_DTYPE
};

const char *gb_dtype_name(enum gb_dtype dtype) {
    return (unsigned)dtype < GB_DTYPE_COUNT ? names[dtype] : "unknown";
}

size_t gb_dtype_bytes(enum gb_dtype dtype) {
    return (unsigned)dtype < GB_DTYPE_COUNT ? sizes[dtype] : 0;
}

const char *gb_dtype_npy(enum gb_dtype dtype) {
    return (unsigned)dtype < GB_DTYPE_COUNT && descrs[dtype][0] != '\0' ? descrs[dtype] : NULL;
}

const char *gb_dtype_safetensors(enum gb_dtype dtype) {
    return (unsigned)dtype < GB_DTYPE_COUNT && safetensors[dtype][0] != '\0' ? safetensors[dtype] : NULL;
}

/* By one of the first count names. */
static int parse_of(size_t count, const char *name, size_t len, enum gb_dtype *ret_dtype, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("dtype", names, count, name, len, &index, err) < 0)
        return -1;
    *ret_dtype = (enum gb_dtype)index;
    return 0;
}

int gb_dtype_parse(const char *name, size_t len, enum gb_dtype *ret_dtype, struct gb_error *err) {
    return parse_of(GB_DTYPE_COUNT, name, len, ret_dtype, err);
}

/* Of an element: what a client may name. TENSORS is the last. */
static int parse_element(const char *name, size_t len, enum gb_dtype *ret_dtype, struct gb_error *err) {
    return parse_of(GB_DTYPE_TENSORS, name, len, ret_dtype, err);
}

/* Whether text[0..len) names the type of descr. Byte order is written in several ways: "<" and "=" mean ours (the
 * daemon runs on little-endian machines only), and one byte has none, whatever sign stands there. */
static int descr_matches(const char *text, size_t len, const char *descr) {
    if (descr[0] == '\0' || len != strlen(descr) || memcmp(text + 1, descr + 1, len - 1) != 0)
        return 0;
    /* numpy's void types, whose content is unknown, say "|V". */
    if (descr[1] == 'V')
        return text[0] == '<';
    if (descr[0] == '|')
        return strchr("|<>=", text[0]) != NULL;
    return text[0] == '<' || text[0] == '=';
}

int gb_dtype_parse_safetensors(const char *name, size_t len, enum gb_dtype *ret_dtype, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    int i;

    for (i = 0; i < GB_DTYPE_COUNT && len > 0; i++) {
        if (strlen(safetensors[i]) == len && memcmp(safetensors[i], name, len) == 0) {
            *ret_dtype = (enum gb_dtype)i;
            return 0;
        }
    }
    return gb_error_set(
        err, GB_ERR_UNSUPPORTED_ARRAY,
        "the type \"%s\" in the safetensors file is not one that can be stored; upload the tensor's bytes "
        "with ?dtype=uint8",
        gb_word_quote(name, len, quoted));
}

/* Returns 0, or -1 with nothing said. */
static int find_descr(const char *descr, size_t len, enum gb_dtype *ret_dtype) {
    int i;

    for (i = 0; i < GB_DTYPE_COUNT && len > 1; i++) {
        if (memchr(descr, '\0', len) == NULL &&
            (descr_matches(descr, len, descrs[i]) || descr_matches(descr, len, reads[i]))) {
            *ret_dtype = (enum gb_dtype)i;
            return 0;
        }
    }
    return -1;
}

/* numpy takes a descr without its byte order too. ml_dtypes writes "<f1" and "<V2", of which only the whole says the
 * type. */
static int parse_short(const char *name, size_t len, enum gb_dtype *ret_dtype) {
    char descr[8] = "<";

    if (len < 2 || len > sizeof(descr) - 2 || !strchr("biufc", name[0]) || (len == 2 && memcmp(name, "f1", len) == 0))
        return -1;
    memcpy(descr + 1, name, len);
    return find_descr(descr, len + 1, ret_dtype);
}

/* What numpy and torch call some types besides. */
enum { NUMPY = 1, TORCH = 2, FILE_OF_NUMPY = 4 };

static const struct {
    const char *name;
    enum gb_dtype dtype;
    unsigned of; /* who calls it so; the others mean another type */
} others[] = {
    {"half", GB_DTYPE_FLOAT16, NUMPY | TORCH},
    {"single", GB_DTYPE_FLOAT32, NUMPY},
    {"double", GB_DTYPE_FLOAT64, NUMPY | TORCH},
    {"short", GB_DTYPE_INT16, NUMPY | TORCH},
    {"long", GB_DTYPE_INT64, NUMPY | TORCH},
    {"?", GB_DTYPE_BOOL, NUMPY},
    {"float", GB_DTYPE_FLOAT32, TORCH},
    {"int", GB_DTYPE_INT32, TORCH},
    {"byte", GB_DTYPE_UINT8, TORCH},
    {"char", GB_DTYPE_INT8, TORCH},
    {"cfloat", GB_DTYPE_COMPLEX64, TORCH},
    {"cdouble", GB_DTYPE_COMPLEX128, TORCH},
    /* In a .npy it is numpy that speaks. */
    {"float", GB_DTYPE_FLOAT64, FILE_OF_NUMPY},
    {"complex", GB_DTYPE_COMPLEX128, FILE_OF_NUMPY},
    {"csingle", GB_DTYPE_COMPLEX64, FILE_OF_NUMPY},
    {"cdouble", GB_DTYPE_COMPLEX128, FILE_OF_NUMPY},
    {"int", GB_DTYPE_INT64, FILE_OF_NUMPY},
    {"uint", GB_DTYPE_UINT64, FILE_OF_NUMPY},
    {"byte", GB_DTYPE_INT8, FILE_OF_NUMPY},
    {"ubyte", GB_DTYPE_UINT8, FILE_OF_NUMPY},
    {"ushort", GB_DTYPE_UINT16, FILE_OF_NUMPY},
    {"intc", GB_DTYPE_INT32, FILE_OF_NUMPY},
    {"uintc", GB_DTYPE_UINT32, FILE_OF_NUMPY},
    {"ulong", GB_DTYPE_UINT64, FILE_OF_NUMPY},
    {"longlong", GB_DTYPE_INT64, FILE_OF_NUMPY},
    {"ulonglong", GB_DTYPE_UINT64, FILE_OF_NUMPY},
    {"intp", GB_DTYPE_INT64, FILE_OF_NUMPY},
    {"uintp", GB_DTYPE_UINT64, FILE_OF_NUMPY},
};

/* Returns 0, or -1 with nothing said: there is no such name, or it does not say which type is meant. */
static int parse_other(const char *name, size_t len, unsigned of, enum gb_dtype *ret_dtype) {
    size_t i;

    for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if ((others[i].of & of) && strlen(others[i].name) == len && memcmp(others[i].name, name, len) == 0) {
            *ret_dtype = others[i].dtype;
            return 0;
        }
    }
    return -1;
}

/* The letters of numpy's types, as on 64-bit Linux. Returns 0, or -1 with nothing said. */
static int parse_letter(char letter, enum gb_dtype *ret_dtype) {
    static const char letters[] = "?bBhHiIlLqQpPefdFD";
    static const unsigned char meant[] = {
        GB_DTYPE_BOOL,   GB_DTYPE_INT8,    GB_DTYPE_UINT8,   GB_DTYPE_INT16,   GB_DTYPE_UINT16,    GB_DTYPE_INT32,
        GB_DTYPE_UINT32, GB_DTYPE_INT64,   GB_DTYPE_UINT64,  GB_DTYPE_INT64,   GB_DTYPE_UINT64,    GB_DTYPE_INT64,
        GB_DTYPE_UINT64, GB_DTYPE_FLOAT16, GB_DTYPE_FLOAT32, GB_DTYPE_FLOAT64, GB_DTYPE_COMPLEX64, GB_DTYPE_COMPLEX128};
    const char *at = letter != '\0' ? strchr(letters, letter) : NULL;

    if (!at)
        return -1;
    *ret_dtype = (enum gb_dtype)meant[at - letters];
    return 0;
}

/* numpy.save writes a descr such as "<f8". numpy.load takes what numpy.dtype takes: "f8", "<d", "float64". */
static int parse_as_numpy(const char *descr, size_t len, enum gb_dtype *ret_dtype) {
    bool ordered = len > 0 && strchr("<|=>", descr[0]) != NULL;
    const char *type = descr + ordered;
    size_t n = len - ordered;
    enum gb_dtype dtype;

    if (find_descr(descr, len, ret_dtype) == 0)
        return 0;
    if (!ordered &&
        (parse_element(descr, len, ret_dtype, NULL) == 0 || parse_other(descr, len, NUMPY, ret_dtype) == 0 ||
         parse_other(descr, len, FILE_OF_NUMPY, ret_dtype) == 0))
        return 0;
    if ((n == 1 ? parse_letter(type[0], &dtype) : parse_short(type, n, &dtype)) < 0 ||
        (ordered && descr[0] == '>' && gb_dtype_bytes(dtype) > 1))
        return -1;
    *ret_dtype = dtype;
    return 0;
}

int gb_dtype_parse_npy(const char *descr, size_t len, enum gb_dtype *ret_dtype, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    const char *reason = "is not one that can be stored; give the bytes as a known type";

    if (parse_as_numpy(descr, len, ret_dtype) == 0)
        return 0;
    if (len > 1 && descr[1] == 'O')
        reason = "holds Python objects, which have no bytes of their own; convert it to a number type";
    else if (len > 1 && descr[1] == 'V')
        reason =
            "does not say what its bytes are (numpy writes so of the fp8 types, too); upload them raw with ?dtype= and "
            "?shape=, or as safetensors";
    else if (len > 1 && descr[0] == '>')
        reason = "is big-endian; convert it to little-endian";
    return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the array's type \"%s\" %s", gb_word_quote(descr, len, quoted),
                        reason);
}

/* numpy's float is torch's double. */
static bool is_ambiguous(const char *name, size_t len) {
    return (len == 5 && memcmp(name, "float", len) == 0) || (len == 3 && memcmp(name, "int", len) == 0);
}

int gb_dtype_read(const char *name, size_t len, enum gb_dtype *ret_dtype, struct gb_error *err) {
    static const char torch[] = "torch.";
    size_t prefix = sizeof(torch) - 1;

    if (len > prefix && memcmp(name, torch, prefix) == 0)
        return parse_other(name + prefix, len - prefix, TORCH, ret_dtype) == 0
                   ? 0
                   : parse_element(name + prefix, len - prefix, ret_dtype, err);
    if (parse_other(name, len, NUMPY, ret_dtype) == 0 || gb_dtype_parse_safetensors(name, len, ret_dtype, NULL) == 0 ||
        find_descr(name, len, ret_dtype) == 0 || parse_short(name, len, ret_dtype) == 0)
        return 0;
    if (len > 1 && name[0] == '>')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the dtype is big-endian; convert the array to little-endian, and give \"<%.*s\"",
                            (int)(len < 8 ? len - 1 : 7),
                            gb_word_quote(name + 1, len - 1, (char[GB_WORD_QUOTE_SIZE]){0}));
    if (is_ambiguous(name, len))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the dtype \"%.*s\" has 64 bits in numpy and 32 in torch; give its bits, as \"%.*s32\"",
                            (int)len, name, (int)len, name);
    return parse_element(name, len, ret_dtype, err);
}

/* A dimension of zero empties the array; the others are held to the same bound, as strides are products of them. */
int gb_shape_bytes(const struct gb_shape *shape, enum gb_dtype dtype, uint64_t *ret_bytes, struct gb_error *err) {
    uint64_t bytes = gb_dtype_bytes(dtype);
    bool empty = false;
    unsigned i;

    for (i = 0; i < shape->dims; i++) {
        if (shape->dim[i] > INT64_MAX)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "the shape has a dimension of %llu, and 2^63 - 1 is the largest",
                                (unsigned long long)shape->dim[i]);
        if (shape->dim[i] == 0)
            empty = true;
        else if (!gb_mul_u64(bytes, shape->dim[i], &bytes) || bytes > INT64_MAX)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "the shape times %s has more than 2^63 - 1 bytes (dimensions of zero left out); make "
                                "it smaller",
                                gb_dtype_name(dtype));
    }
    *ret_bytes = empty ? 0 : bytes;
    return 0;
}

static int dimension_refused(const char *text, size_t len, enum gb_parse why, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    const char *reason = "is not a whole number";

    if (why == GB_PARSE_NEGATIVE)
        reason = "is negative";
    else if (why == GB_PARSE_OVERFLOW)
        reason = "does not fit in 64 bits";
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "the dimension \"%s\" of the shape %s; a shape is written like \"2,3,4\", empty for a scalar",
                        gb_word_quote(text, len, quoted), reason);
}

int gb_shape_parse(const char *text, size_t len, struct gb_shape *ret_shape, struct gb_error *err) {
    struct gb_shape shape = {0};
    const char *end = text + len;

    while (text < end) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        size_t n = (size_t)((comma ? comma : end) - text);
        enum gb_parse r;

        if (shape.dims == GB_DIMS_MAX)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the shape has more than %d dimensions", GB_DIMS_MAX);
        r = gb_parse_u64(text, n, &shape.dim[shape.dims]);
        if (r != GB_PARSE_OK)
            return dimension_refused(text, n, r, err);
        shape.dims++;
        text += comma ? n + 1 : n;
    }
    *ret_shape = shape;
    return 0;
}

bool gb_shape_equal(const struct gb_shape *a, const struct gb_shape *b) {
    return a->dims == b->dims && memcmp(a->dim, b->dim, a->dims * sizeof(a->dim[0])) == 0;
}

void gb_shape_text(const struct gb_shape *shape, char *out) {
    char *at = out;
    unsigned i;

    for (i = 0; i < shape->dims && i < GB_DIMS_MAX; i++) {
        if (i > 0)
            *at++ = ',';
        at = gb_digits(at, shape->dim[i]);
    }
    *at = '\0';
}
