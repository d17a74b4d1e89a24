/* How a device is, as JSON. */
#ifndef GB_API_OBSERVE_HEALTH_H
#define GB_API_OBSERVE_HEALTH_H

#include "format/json_writer.h"
#include "model/health.h"

/* The object "health". Numbers that are not known are null; without a source there is only the reason. */
void gb_render_health(struct gb_json_writer *out, const struct gb_health *health);

#endif
