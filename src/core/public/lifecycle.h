/* The core's beginning and end, and whether it works. Comes with core.h. */
#ifndef GB_CORE_PUBLIC_LIFECYCLE_H
#define GB_CORE_PUBLIC_LIFECYCLE_H

#include "core/public/types.h"

struct gb_core;

/* Loads sessions and buffer records (their bytes are LOST: they died with the earlier process), makes the session
 * "default" when absent, pins the slots, starts the threads. */
int gb_core_open(const struct gb_core_config *config, struct gb_core **ret, struct gb_error *err);

/* All calls and transfers must have ended. Frees device memory, saves the counters, joins the threads. NULL
 * accepted. */
void gb_core_close(struct gb_core *core);

/* [now] The device is dead: -1 with DEVICE_LOST (or what the backend said). Readiness asks this. */
int gb_core_health(struct gb_core *core, struct gb_error *err);
/* [now] The database refuses changes: -1 with STORE_UNAVAILABLE. So does this. */
int gb_core_writable(struct gb_core *core, struct gb_error *err);

#endif
