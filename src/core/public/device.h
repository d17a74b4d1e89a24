/* Devices. Included by core.h. */
#ifndef GB_CORE_PUBLIC_DEVICE_H
#define GB_CORE_PUBLIC_DEVICE_H

#include "core/public/types.h"

struct gb_core;

/* [now] Find a device by index or UUID text and read its properties. They were read at the start, free_bytes at the
 * last housekeeping. Errors: DEVICE_NOT_FOUND. */
int gb_device_count(struct gb_core *core);
int gb_device_get(struct gb_core *core, int device, struct gb_device_rec *ret, struct gb_error *err);
int gb_device_find(struct gb_core *core, const char *index_or_uuid, int *ret_device, struct gb_error *err);
/* [now] The last reading of the device's health; at_us is its time. Errors: DEVICE_NOT_FOUND. */
int gb_device_health(struct gb_core *core, int device, struct gb_health *ret, struct gb_error *err);

#endif
