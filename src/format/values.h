/* The values of a small tensor, to be read by people and by programs without numpy. Pure. */
#ifndef GB_FORMAT_VALUES_H
#define GB_FORMAT_VALUES_H

#include <stddef.h>

#include "base/json_writer.h"
#include "model/tensor.h"

/* One element of a tensor as the shortest text that reads back as the same number. Pure.
 *
 * Floats of less than four bytes are written as float32 would be: what reads them may not know their type. */

enum gb_notation {
    GB_NOTATION_NONE,
    GB_NOTATION_JSON, /* true; 1.0; "NaN", "Infinity", "-Infinity"; a complex number is [1.0,2.0] */
    GB_NOTATION_TEXT, /* 1; 1.0; nan, inf, -inf; a complex number is 1.0+2.0j */
    GB_NOTATION_COUNT
};

#define GB_NUMBER_SIZE 64

/* Reads gb_dtype_bytes(dtype) bytes. Writes the text and a NUL into out, which has GB_NUMBER_SIZE bytes. */
void gb_number_write(enum gb_dtype dtype, enum gb_notation notation, const void *element, char *out);

/* The bytes that are written so. */
#define GB_VALUES_BYTES_MAX (64 * 1024)

/* {"dtype": "float32", "shape": [2, 2], "values": [[1.0, 2.0], [3.0, 4.0]]}; a scalar's values are one number, those of
 * a tensor without elements []. bytes: all elements, C-ordered. */
void gb_values_json(struct gb_json_writer *out, enum gb_dtype dtype, const struct gb_shape *shape, const void *bytes);

/* As numpy.savetxt does: a line for each row of the last axis, with blanks between the numbers, or for each number of a
 * tensor of one axis. An empty line ends each matrix but the last. */
void gb_values_text(struct gb_json_writer *out, enum gb_dtype dtype, const struct gb_shape *shape, const void *bytes);

#endif
