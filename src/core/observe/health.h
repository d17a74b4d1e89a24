/* The last reading of each device's health. NVML may take long, and with a broken driver for ever. It is asked on a
 * thread that is not waited for, and a reader gets the last reading, whose time shows its age. */
#ifndef GB_CORE_OBSERVE_HEALTH_H
#define GB_CORE_OBSERVE_HEALTH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/error.h"

struct gb_core;
struct gb_health_watch;

/* The changes that a notice device.health tells of. */
enum gb_health_change {
    GB_HEALTH_ECC_ROSE,    /* there are more errors that ECC could not correct */
    GB_HEALTH_SLOWED_DOWN, /* a thermal or power-brake slowdown began */
    GB_HEALTH_RECOVERED,   /* it ended */
    GB_HEALTH_LOST,        /* the device was known, and is no longer */
    GB_HEALTH_CHANGES
};

/* The changes between two readings of a device: bits 1u << enum gb_health_change. */
unsigned gb_health_changes(const struct gb_health *before, const struct gb_health *now);

/* Starts the thread, which reads at once and then each interval. Devices are copied. */
int gb_health_watch_start(enum gb_health_policy policy, const char *root, uint64_t interval_ms,
                          const struct gb_device_rec *devices, int count, struct gb_health_watch **ret,
                          struct gb_error *err);

/* Ends the thread. A thread that does not end soon is left behind with what it uses. NULL is accepted. */
void gb_health_watch_stop(struct gb_health_watch *watch);

/* [now] NULL: there is no watch. */
void gb_health_watch_get(struct gb_health_watch *watch, int device, struct gb_health *ret);

/* Starts the core's watch if an interval is configured. */
int gb_core_health_start(struct gb_core *core, struct gb_error *err);

/* Posts changes since the last look. The housekeeper's thread. */
void gb_core_health_tick(struct gb_core *core);

#endif
