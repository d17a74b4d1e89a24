/* One element of a tensor as the shortest text that reads back as the same number. Pure.
 *
 * Floats of less than four bytes are written as float32 would be: what reads them may not know their type. */
#ifndef GB_FORMAT_NUMBER_H
#define GB_FORMAT_NUMBER_H

#include <stddef.h>

#include "model/tensor.h"

enum gb_notation {
    GB_NOTATION_NONE,
    GB_NOTATION_JSON, /* true; 1.0; "NaN", "Infinity", "-Infinity"; a complex number is [1.0,2.0] */
    GB_NOTATION_TEXT, /* 1; 1.0; nan, inf, -inf; a complex number is 1.0+2.0j */
    GB_NOTATION_COUNT
};

#define GB_NUMBER_SIZE 64

/* Reads gb_dtype_bytes(dtype) bytes. Writes the text and a NUL into out, which has GB_NUMBER_SIZE bytes. */
void gb_number_write(enum gb_dtype dtype, enum gb_notation notation, const void *element, char *out);

#endif
