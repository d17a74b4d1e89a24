/* The .npy format, versions 1.0 to 3.0. The header is a Python dictionary in text; it is read by hand, strictly, and
 * nothing is evaluated. Pure functions. */
#ifndef GB_FORMAT_NPY_H
#define GB_FORMAT_NPY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "model/tensor.h"

#define GB_NPY_MAGIC "\x93NUMPY"
#define GB_NPY_MAGIC_BYTES 6
/* Bytes of any .npy that tell how long its header is; no valid file is shorter. */
#define GB_NPY_PREFIX 12
/* A header this long or shorter is read; numpy's own rarely pass 128 bytes. */
#define GB_NPY_HEADER_MAX 65536

struct gb_npy {
    enum gb_dtype dtype;
    struct gb_shape shape;
    bool fortran; /* the elements come with the first index fastest, and that is another order than C's */
};

/* Tells whether data[0..n), n >= GB_NPY_MAGIC_BYTES, begins as a .npy. */
bool gb_npy_magic(const void *data, size_t n);

/* Reads the header's whole length, magic included, from the first GB_NPY_PREFIX bytes. Returns 0, or -1 with
 * UNSUPPORTED_ARRAY (no .npy, another version, or too long). */
int gb_npy_header_bytes(const void *prefix, size_t *ret_bytes, struct gb_error *err);

/* Reads the whole header data[0..n), n as gb_npy_header_bytes gave it. Returns 0, or -1 with UNSUPPORTED_ARRAY: no such
 * header, and at which byte of the file, or an array that cannot be stored, and what to do. */
int gb_npy_parse_header(const void *data, size_t n, struct gb_npy *ret, struct gb_error *err);

/* Writes the header that numpy.save would write, a multiple of 64 bytes, into out (GB_NPY_WRITE_MAX bytes). Returns its
 * length, 0 when numpy has no such dtype. */
#define GB_NPY_WRITE_MAX 640
size_t gb_npy_write_header(enum gb_dtype dtype, const struct gb_shape *shape, char *out);

#endif
