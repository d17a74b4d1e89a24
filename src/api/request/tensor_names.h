/* Between the names of tensors in files and those of buffers. */
#ifndef GB_API_REQUEST_TENSOR_NAMES_H
#define GB_API_REQUEST_TENSOR_NAMES_H

#include <stddef.h>

#include "base/error.h"
#include "base/name.h"
#include "model/model.h"

/* The label that keeps a tensor's name where a buffer cannot have it. */
#define GB_TENSOR_LABEL "safetensors.name"

/* The buffer's name for a tensor: prefix and the tensor's name, each character that a name may not have as '_'. Where it
 * would begin with another than a letter or digit, an x stands before it. Returns 0, or -1 with INVALID_NAME: too long. */
int gb_tensor_buffer(const char *prefix, const char *tensor, struct gb_name *ret, struct gb_error *err);

/* The name of a buffer's tensor: the label's, else the buffer's own. Returns out, of GB_LABELS_MAX bytes. */
const char *gb_tensor_name(const struct gb_buffer_rec *rec, char *out);

/* The labels of a buffer that is to hold that tensor: those in `old`, and the tensor's name where it is not the buffer's.
 * Returns 1: they are in out; 0: they are as they were; -1 with INVALID_ARGUMENT (too long), or SATURATED. */
int gb_tensor_labels(const char *old, const struct gb_name *buffer, const char *tensor, char out[GB_LABELS_MAX],
                     struct gb_error *err);

#endif
