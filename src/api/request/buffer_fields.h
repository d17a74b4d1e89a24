/* What a body says of a buffer that is to be made. */
#ifndef GB_API_REQUEST_BUFFER_FIELDS_H
#define GB_API_REQUEST_BUFFER_FIELDS_H

#include <jansson.h>

#include "api/context.h"

/* Reads the fields bytes, dtype, shape, kind, pool, device, stream, mirrored, labels, and the one that names the buffer, key.
 * Returns 0 or -1. */
int gb_buffer_params_read(const struct gb_api *api, const json_t *body, const char *key,
                          struct gb_buffer_params *params, struct gb_error *err);

/* Reads bytes, dtype and shape alone, which say one thing in two ways: the missing fields follow from the others. Returns 0
 * or -1. */
int gb_buffer_layout_read(const json_t *body, struct gb_buffer_params *params, struct gb_error *err);

#endif
