/* Devices. Comes with core.h. */
#ifndef GB_CORE_PUBLIC_DEVICE_H
#define GB_CORE_PUBLIC_DEVICE_H

#include "core/public/types.h"

struct gb_core;

/* [now] Properties read at start; free_bytes as of the last housekeeping. DEVICE_NOT_FOUND. By index or UUID text. */
int gb_device_count(struct gb_core *core);
int gb_device_get(struct gb_core *core, int device, struct gb_device_rec *ret, struct gb_error *err);
int gb_device_find(struct gb_core *core, const char *index_or_uuid, int *ret_device, struct gb_error *err);
/* [now] The last reading of how the device is; its at_us says when that was. DEVICE_NOT_FOUND. */
int gb_device_health(struct gb_core *core, int device, struct gb_health *ret, struct gb_error *err);

#endif
