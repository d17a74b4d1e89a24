/* The two sources of health.h. */
#ifndef GB_BACKEND_HEALTH_INTERNAL_H
#define GB_BACKEND_HEALTH_INTERNAL_H

#include "backend/health/health.h"

struct gb_nvml;

/* The library, initialised; NULL with the reason. */
struct gb_nvml *gb_nvml_open(char why[GB_HEALTH_REASON_SIZE]);
void gb_nvml_close(struct gb_nvml *nvml); /* NULL is accepted */

/* The driver's release; "" where NVML does not say it. */
void gb_nvml_release(struct gb_nvml *nvml, char ret[GB_RELEASE_SIZE]);

/* Fills what NVML says, and reason where it refused. source stays NONE when it does not know the device, or lost it. */
void gb_nvml_read(struct gb_nvml *nvml, const char *uuid, struct gb_health *health);

/* Adds what the kernel shows and is not there yet. Returns whether that was anything. */
bool gb_health_system_read(const char *root, struct gb_health *health);

/* The name of a process as far as it is to be read, else "". */
void gb_health_process_name(const char *root, uint32_t pid, char ret[GB_PROCESS_NAME_SIZE]);

#endif
