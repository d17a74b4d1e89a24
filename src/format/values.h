/* The values of a small tensor, to be read by people and by programs without numpy. Pure. */
#ifndef GB_FORMAT_VALUES_H
#define GB_FORMAT_VALUES_H

#include "base/json_writer.h"
#include "format/number.h"
#include "model/tensor.h"

/* The bytes that are written so. */
#define GB_VALUES_BYTES_MAX (64 * 1024)

/* {"dtype": "float32", "shape": [2, 2], "values": [[1.0, 2.0], [3.0, 4.0]]}; a scalar's values are one number, those of
 * a tensor without elements []. bytes: all elements, C-ordered. */
void gb_values_json(struct gb_json_writer *out, enum gb_dtype dtype, const struct gb_shape *shape, const void *bytes);

/* As numpy.savetxt does: a line for each row of the last axis, with blanks between the numbers, or for each number of a
 * tensor of one axis. An empty line ends each matrix but the last. */
void gb_values_text(struct gb_json_writer *out, enum gb_dtype dtype, const struct gb_shape *shape, const void *bytes);

#endif
