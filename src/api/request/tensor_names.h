/* Names of tensors in files, and the names of their buffers. */
#ifndef GB_API_REQUEST_TENSOR_NAMES_H
#define GB_API_REQUEST_TENSOR_NAMES_H

#include <stddef.h>

#include "base/error.h"
#include "base/text.h"
#include "format/safetensors.h"
#include "model/model.h"

/* The label that keeps a tensor's name when a buffer cannot have it. */
#define GB_TENSOR_LABEL "safetensors.name"

/* Makes the name of a tensor's buffer: prefix and the tensor's name, with '_' for each character that a name may not
 * have. If the name would not begin with a letter or digit, an x goes before it. Returns 0, or -1 with INVALID_NAME
 * when it is too long. */
int gb_tensor_buffer(const char *prefix, const char *tensor, struct gb_name *ret, struct gb_error *err);

/* Finds the name of a buffer's tensor: that of the label, else the buffer's own. Returns out, of GB_LABELS_MAX
 * bytes. */
const char *gb_tensor_name(const struct gb_buffer_rec *rec, char *out);

/* Makes the labels of a buffer that is to hold this tensor: those in `old`, and the tensor's name when the buffer
 * has another. Returns 1 with the labels in out, 0 when `old` stays, or -1 with INVALID_ARGUMENT (too long) or
 * SATURATED. */
int gb_tensor_labels(const char *old, const struct gb_name *buffer, const char *tensor, char out[GB_LABELS_MAX],
                     struct gb_error *err);

/* Makes the names of all buffers, one for each tensor of the file. *ret is malloc'd. Returns 0, or -1 with INVALID_NAME
 * (too long, or two tensors would share a buffer) or SATURATED. */
int gb_tensors_names(const struct gb_safetensors *file, const char *prefix, struct gb_name **ret, struct gb_error *err);

#endif
