/* ?slice=, numpy's basic indexing: "0:16,3,:". Pure. */
#ifndef GB_FORMAT_SLICE_H
#define GB_FORMAT_SLICE_H

#include <stddef.h>

#include "model/view.h"

/* Reads text[0..len) as a slice of a C-ordered tensor: the shape of the result, and the bytes that it takes, in C order
 * and in Fortran order (ret_fortran may be NULL). Each axis has an index, or start:stop:step, where each part may be
 * left out and a step is at least 1. Negative numbers count from the end. "..." stands for the missing ":", which else
 * are added at the end. An index drops its axis. Returns 0, or -1 with INVALID_ARGUMENT, or RANGE_NOT_SATISFIABLE for
 * an index beyond its axis. */
int gb_slice_parse(const char *text, size_t len, const struct gb_shape *shape, enum gb_dtype dtype,
                   struct gb_shape *ret_shape, struct gb_view *ret_view, struct gb_view *ret_fortran,
                   struct gb_error *err);

#endif
