/* The facts about devices that never change, read once. */
#ifndef GB_API_RESOURCES_DEVICES_H
#define GB_API_RESOURCES_DEVICES_H

#include "api/context.h"

/* Fills devices, uuid and peers. Returns 0, or -1 when memory is exhausted. */
int gb_api_read_devices(struct gb_api *api, struct gb_backend *backend);

#endif
