/* The fields of a body that describe a buffer to be made. */
#ifndef GB_API_REQUEST_BUFFER_FIELDS_H
#define GB_API_REQUEST_BUFFER_FIELDS_H

#include <jansson.h>

#include "api/context.h"

/* Reads bytes, dtype, shape, kind, pool, device, stream, mirrored, durability, spill, resident and labels, and the
 * field key, which names the buffer. Returns 0 or -1. */
int gb_buffer_params_read(const struct gb_api *api, const json_t *body, const char *key,
                          struct gb_buffer_params *params, struct gb_error *err);

/* Reads kind, pool, device, stream and durability: where the bytes lie. Returns 0 or -1. */
int gb_buffer_memory_read(const struct gb_api *api, const json_t *body, struct gb_buffer_params *params,
                          struct gb_error *err);

/* Reads spill and resident, which say whether the bytes may leave memory by themselves. Returns 0 or -1. */
int gb_buffer_place_read(const json_t *body, struct gb_buffer_params *params, struct gb_error *err);

/* Reads bytes, dtype and shape alone. bytes and shape say the same thing: the missing one follows from the other.
 * Returns 0 or -1. */
int gb_buffer_layout_read(const json_t *body, struct gb_buffer_params *params, struct gb_error *err);

#endif
