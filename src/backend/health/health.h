/* How devices are, from NVML where its library is found at run time, else from what the kernel shows (Jetson). Not part
 * of a backend: NVML knows devices by UUID, and nothing here touches CUDA.
 *
 * One thread at a time. Every function but gb_health_policy_parse may take long, and a faulty driver may block it for
 * ever: call them from a thread that is never joined. */
#ifndef GB_BACKEND_HEALTH_HEALTH_H
#define GB_BACKEND_HEALTH_HEALTH_H

#include "base/error.h"
#include "model/model.h"

/* AUTO: NVML for GPUs, and the kernel's files for what it does not say of an integrated one; nothing for simulated
 * devices. */
enum gb_health_policy { GB_HEALTH_AUTO, GB_HEALTH_ONLY_NVML, GB_HEALTH_ONLY_SYSTEM, GB_HEALTH_OFF, GB_HEALTH_POLICIES };
/* "auto", "nvml", "system" or "none". INVALID_ARGUMENT. */
int gb_health_policy_parse(const char *word, enum gb_health_policy *ret, struct gb_error *err);

/* "580.95.05", or "" where nothing says it. root: where the kernel's files are found ("": /). */
void gb_driver_release(const char *root, char ret[GB_RELEASE_SIZE]);

struct gb_health_reader;

/* root: where the kernel's files are found ("" or NULL: /). Opens nothing yet. NULL when memory is exhausted. */
struct gb_health_reader *gb_health_reader_new(enum gb_health_policy policy, const char *root);
void gb_health_reader_free(struct gb_health_reader *reader); /* NULL is accepted */

/* What is known of the device now; at_us is set. Where there is nothing the record says why. */
void gb_health_read(struct gb_health_reader *reader, const struct gb_device_rec *device, struct gb_health *ret);

#endif
