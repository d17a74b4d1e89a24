/* Element types and shapes. */
#ifndef GB_MODEL_TENSOR_H
#define GB_MODEL_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum gb_dtype {
#define GB_DTYPE(symbol, name, bytes, descr, reads, st) GB_DTYPE_##symbol,
#include "model/dtype.def"
#undef GB_DTYPE
    GB_DTYPE_COUNT
};

#define GB_DIMS_MAX 16

/* C order. dims == 0 is a scalar of one element. Dimensions of zero are permitted. */
struct gb_shape {
    unsigned dims;
    uint64_t dim[GB_DIMS_MAX];
};

const char *gb_dtype_name(enum gb_dtype dtype);
size_t gb_dtype_bytes(enum gb_dtype dtype);

/* What a .npy header says, or NULL where none says this type so that it can be read again. */
const char *gb_dtype_npy(enum gb_dtype dtype);

/* What a safetensors header says, or NULL where that format has no such type. */
const char *gb_dtype_safetensors(enum gb_dtype dtype);
/* By that. Returns 0, or -1 with UNSUPPORTED_ARRAY. */
int gb_dtype_parse_safetensors(const char *name, size_t len, enum gb_dtype *ret_dtype, struct gb_error *err);

/* By numpy's name. Returns 0, or -1 with INVALID_ARGUMENT listing the permitted names. */
int gb_dtype_parse(const char *name, size_t len, enum gb_dtype *ret_dtype, struct gb_error *err);

/* By that, or by what others call the type: numpy ("f4", "<f4"), torch ("torch.float32"), safetensors ("F32"). Returns
 * 0, or -1 with INVALID_ARGUMENT listing numpy's names. */
int gb_dtype_read(const char *name, size_t len, enum gb_dtype *ret_dtype, struct gb_error *err);

/* By a .npy descr such as "<f4", or as numpy.dtype takes it ("f4", "<f", "float32"). Big-endian and object types are
 * refused with UNSUPPORTED_ARRAY. Returns 0 or -1. */
int gb_dtype_parse_npy(const char *descr, size_t len, enum gb_dtype *ret_dtype, struct gb_error *err);

/* Bytes of shape times dtype. What a shape may be is said here, wherever it comes from: no dimension, and no product of
 * those that are not zero with the element's bytes, is beyond INT64_MAX, as many programs know no larger number.
 * Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_shape_bytes(const struct gb_shape *shape, enum gb_dtype dtype, uint64_t *ret_bytes, struct gb_error *err);

/* "2,3,4", "" for a scalar; a trailing comma is permitted. Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_shape_parse(const char *text, size_t len, struct gb_shape *ret_shape, struct gb_error *err);

bool gb_shape_equal(const struct gb_shape *a, const struct gb_shape *b);

/* Writes "2,3,4" and a NUL. GB_SHAPE_TEXT_SIZE always suffices. */
#define GB_SHAPE_TEXT_SIZE (GB_DIMS_MAX * 21 + 1)
void gb_shape_text(const struct gb_shape *shape, char *out);

#endif
