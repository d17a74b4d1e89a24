/* The bodies of actions on buffers, for single requests and batches. */
#ifndef GB_API_REQUEST_ACTIONS_H
#define GB_API_REQUEST_ACTIONS_H

#include <jansson.h>

#include "api/context.h"

#define GB_COPY_FIELDS "from from_offset from_if_match offset bytes stream in_place side"
#define GB_FILL_FIELDS "pattern width offset bytes stream in_place side"

/* Reads the body of a copy or fill. params->session and copy are set; a stream that is set replaces "default". Returns
 * 0 or -1. */
int gb_action_read_write(const json_t *body, struct gb_device_write_params *params, struct gb_error *err);

/* Reads the entity tag of a source's bytes, with its quotes; the text is the body's. Returns 1 when the field is given,
 * 0 when it is not, or -1. */
int gb_action_read_tag(const json_t *object, const char *field, const char **ret, struct gb_error *err);

struct gb_sides {
    bool host;
    bool device;
};
int gb_action_read_sides(const json_t *body, const char *key, bool all, struct gb_sides *ret, struct gb_error *err);

#endif
