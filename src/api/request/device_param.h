/* A device as a request names it: by index or UUID. */
#ifndef GB_API_REQUEST_DEVICE_PARAM_H
#define GB_API_REQUEST_DEVICE_PARAM_H

#include <jansson.h>

#include "api/context.h"

/* Reads text[0..len). Returns 1, or -1 with DEVICE_NOT_FOUND. */
int gb_device_text(const struct gb_api *api, const char *text, size_t len, int *ret, struct gb_error *err);
/* Reads a field of a body, a number or a string. Returns 1 when it is given, 0 when not (then *ret is left alone),
 * -1 with WRONG_TYPE or DEVICE_NOT_FOUND. */
int gb_device_field(const struct gb_api *api, const json_t *object, const char *key, int *ret, struct gb_error *err);

#endif
