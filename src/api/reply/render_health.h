/* The health of a device as JSON. */
#ifndef GB_API_REPLY_RENDER_HEALTH_H
#define GB_API_REPLY_RENDER_HEALTH_H

#include "base/json_writer.h"
#include "model/device.h"

/* Adds the object "health". Unknown numbers are null; without a source there is only the reason. */
void gb_render_health(struct gb_json_writer *out, const struct gb_health *health);

#endif
