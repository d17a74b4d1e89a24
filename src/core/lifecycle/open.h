/* Steps of the core's beginning and end, in the order of open.c. */
#ifndef GB_CORE_LIFECYCLE_OPEN_H
#define GB_CORE_LIFECYCLE_OPEN_H

#include <stdbool.h>

#include "base/error.h"

struct gb_core;

/* open_devices.c */
int gb_core_devices_open(struct gb_core *core, struct gb_error *err);
void gb_core_devices_close(struct gb_core *core);

/* restore.c */
int gb_core_restore(struct gb_core *core, struct gb_error *err);
bool gb_core_has_default(struct gb_core *core);
void gb_core_make_default(struct gb_core *core); /* tries once, waits for nothing */

#endif
