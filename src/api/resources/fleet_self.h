/* What the node tells its fleet of itself; see api.h. */
#ifndef GB_API_RESOURCES_FLEET_SELF_H
#define GB_API_RESOURCES_FLEET_SELF_H

#include "api/context.h"
#include "fleet/fleet.h"

size_t gb_fleet_devices(struct gb_api *api, struct gb_fleet_device *ret);

/* This node as others see it, without asking the directory. The node is in a fleet. */
void gb_fleet_self(struct gb_api *api, struct gb_fleet_node *ret);

#endif
