/* Histograms of times with fixed bounds, two buckets a decade. The owner's lock or thread guards one. The daemon, http
 * and the core measure with it. */
#include "base/histogram.h"

#include "base/clock.h"

uint64_t gb_histogram_bound_ns(unsigned bucket) {
    static const uint64_t bounds[GB_HISTOGRAM_BOUNDS] = {
        100000,
        300000,
        GB_NS_PER_MS,
        3 * GB_NS_PER_MS,
        10 * GB_NS_PER_MS,
        30 * GB_NS_PER_MS,
        100 * GB_NS_PER_MS,
        300 * GB_NS_PER_MS,
        GB_NS_PER_S,
        3 * GB_NS_PER_S,
        10 * GB_NS_PER_S,
        30 * GB_NS_PER_S,
        100 * GB_NS_PER_S,
    };

    return bucket < GB_HISTOGRAM_BOUNDS ? bounds[bucket] : UINT64_MAX;
}

unsigned gb_histogram_bucket(uint64_t ns) {
    unsigned i = 0;

    while (i < GB_HISTOGRAM_BOUNDS && ns > gb_histogram_bound_ns(i))
        i++;
    return i;
}

void gb_histogram_add(struct gb_histogram *h, uint64_t ns) {
    h->bucket[gb_histogram_bucket(ns)]++;
    h->ns += ns;
    if (ns > h->max_ns)
        h->max_ns = ns;
}

uint64_t gb_histogram_count(const struct gb_histogram *h) {
    uint64_t sum = 0;
    unsigned i;

    for (i = 0; i <= GB_HISTOGRAM_BOUNDS; i++)
        sum += h->bucket[i];
    return sum;
}
