/* A distribution of times: two buckets a decade from 100 us to 100 s, the same for all measurements. */
#ifndef GB_BASE_HISTOGRAM_H
#define GB_BASE_HISTOGRAM_H

#include <stdint.h>

#define GB_HISTOGRAM_BOUNDS 13

struct gb_histogram {
    uint64_t bucket[GB_HISTOGRAM_BOUNDS + 1]; /* times of at most its bound and more than the one before */
    uint64_t ns;                              /* in all */
    uint64_t max_ns;
};

/* The upper bound; UINT64_MAX of the last. */
uint64_t gb_histogram_bound_ns(unsigned bucket);
unsigned gb_histogram_bucket(uint64_t ns);

void gb_histogram_add(struct gb_histogram *histogram, uint64_t ns);
uint64_t gb_histogram_count(const struct gb_histogram *histogram);

#endif
