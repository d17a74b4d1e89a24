/* Times of short copies, of which a sample is measured.
 *
 * To time a copy takes three events and two questions, which cost the CPU more than a copy of a few kilobytes. A
 * transfer that is one copy therefore takes the times of the last one that was measured, if that was on the same part
 * of a stream, in the same direction, of the same size, and not longer ago than a millisecond. */
#ifndef GB_CORE_DEVICE_COPY_SAMPLE_H
#define GB_CORE_DEVICE_COPY_SAMPLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

struct gb_copy_times {
    uint64_t queue_ns; /* waited behind earlier work */
    uint64_t copy_ns;
};

/* One for each direction of a part of a stream. */
struct gb_copy_sample {
    pthread_mutex_t lock; /* a leaf */
    struct gb_copy_times times;
    size_t bytes; /* 0: none was measured */
    uint64_t at_ns;
};

void gb_copy_sample_init(struct gb_copy_sample *sample);
void gb_copy_sample_done(struct gb_copy_sample *sample);

/* Returns true if a copy of so many bytes need not be measured now, with its times. [any thread] */
bool gb_copy_sample_get(struct gb_copy_sample *sample, size_t bytes, struct gb_copy_times *ret);
/* A copy was measured. [any thread] */
void gb_copy_sample_put(struct gb_copy_sample *sample, size_t bytes, const struct gb_copy_times *times);

#endif
