/* The health of devices, from NVML if its library is found at run time, else from the kernel's files (Jetson). It is
 * not part of a backend: NVML knows devices by UUID, and this folder does not use CUDA.
 *
 * One thread at a time. Every function but gb_health_policy_parse may take long, and a faulty driver may block it for
 * ever, so the calling thread must not be joined. */
#ifndef GB_BACKEND_HEALTH_HEALTH_H
#define GB_BACKEND_HEALTH_HEALTH_H

#include "base/error.h"
#include "model/model.h"

/* AUTO: NVML for GPUs, and the kernel's files for numbers that NVML does not give of an integrated GPU; nothing for
 * simulated devices. */
enum gb_health_policy { GB_HEALTH_AUTO, GB_HEALTH_ONLY_NVML, GB_HEALTH_ONLY_SYSTEM, GB_HEALTH_OFF, GB_HEALTH_POLICIES };
/* Parses "auto", "nvml", "system" or "none". Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_health_policy_parse(const char *word, enum gb_health_policy *ret, struct gb_error *err);

/* "580.95.05", or "" if it is not known. root: where the kernel's files are found ("": /). */
void gb_driver_release(const char *root, char ret[GB_RELEASE_SIZE]);

struct gb_health_reader;

/* root: where the kernel's files are found ("" or NULL: /). Opens nothing yet. Returns NULL if memory is exhausted. */
struct gb_health_reader *gb_health_reader_new(enum gb_health_policy policy, const char *root);
void gb_health_reader_free(struct gb_health_reader *reader); /* NULL is accepted */

/* Reads the device's health now; at_us is set. If nothing is known, the record has the reason. */
void gb_health_read(struct gb_health_reader *reader, const struct gb_device_rec *device, struct gb_health *ret);

#endif
