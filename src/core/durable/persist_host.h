/* Part of persist.c: bytes that go to host memory. */
#ifndef GB_CORE_DURABLE_PERSIST_HOST_H
#define GB_CORE_DURABLE_PERSIST_HOST_H

#include "core/stored/persist.h"

/* As gb_durable_persist, for a content of a device, after gb_disks_start. Returns 0, or -1: done will not run. */
int gb_persist_to_host(struct gb_core *core, struct gb_persist *persist, struct gb_error *err);

#endif
