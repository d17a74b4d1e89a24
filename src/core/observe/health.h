/* The last reading of how each device is. NVML may take its time, and with a sick driver for ever: it is asked on a thread that
 * nobody waits for, and what a reader gets is the last reading, whose time shows how old it is. */
#ifndef GB_CORE_OBSERVE_HEALTH_H
#define GB_CORE_OBSERVE_HEALTH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/error.h"

struct gb_core;
struct gb_health_watch;

/* What a notice of the feed (device.health) is about. */
enum gb_health_change {
    GB_HEALTH_ECC_ROSE,    /* there are more errors that ECC could not correct */
    GB_HEALTH_SLOWED_DOWN, /* a thermal or power-brake slowdown began */
    GB_HEALTH_RECOVERED,   /* it ended */
    GB_HEALTH_LOST,        /* the device was known, and is no longer */
    GB_HEALTH_CHANGES
};

/* What happened between two readings of a device: bits 1u << enum gb_health_change. */
unsigned gb_health_changes(const struct gb_health *before, const struct gb_health *now);

/* Starts the thread, which reads at once and then each interval. Devices are copied. */
int gb_health_watch_start(enum gb_health_policy policy, const char *root, uint64_t interval_ms,
                          const struct gb_device_rec *devices, int count, struct gb_health_watch **ret,
                          struct gb_error *err);

/* Ends the thread, or leaves it behind with what it uses when it does not come back soon. NULL is accepted. */
void gb_health_watch_stop(struct gb_health_watch *watch);

/* [now] NULL: there is no watch. */
void gb_health_watch_get(struct gb_health_watch *watch, int device, struct gb_health *ret);

/* The core's: started with it where an interval is configured. */
int gb_core_health_start(struct gb_core *core, struct gb_error *err);

/* The housekeeper's: looks whether there was a change since its last look. */
void gb_core_health_tick(struct gb_core *core);

#endif
