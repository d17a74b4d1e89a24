/* Counters that many threads add to: those of counters.def, and the levels of memory. */
#ifndef GB_CORE_UTIL_COUNTERS_H
#define GB_CORE_UTIL_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/public/types.h"
#include "model/history.h"
#include "model/model.h"

struct gb_live_counters {
#define GB_COUNTER(name) _Atomic uint64_t name;
#include "model/counters.def"
#undef GB_COUNTER
};

struct gb_kind_live_counters {
    _Atomic uint64_t count;
    _Atomic uint64_t bytes;
    _Atomic uint64_t copy_ns;
    _Atomic uint64_t queue_ns;
};

void gb_kind_live_counters_add(struct gb_kind_live_counters *live_counters, uint64_t bytes, uint64_t copy_ns,
                               uint64_t queue_ns);

/* The level of memory of the daemon or of a session, beside its counters. */
struct gb_level {
    _Atomic uint64_t bytes;
    _Atomic uint64_t peak_bytes;
    _Atomic uint64_t largest_bytes;
};

/* Allocations of one device, pool or kind of memory. */
struct gb_alloc_counters {
    struct gb_level level;
    _Atomic uint64_t allocations;
    _Atomic uint64_t allocated_bytes;
    _Atomic uint64_t frees;
    _Atomic uint64_t freed_bytes;
    _Atomic uint64_t retries;
    _Atomic uint64_t trims;
    _Atomic uint64_t failures;
    _Atomic uint64_t failure[GB_FAILURES];
    struct { /* as of the last sample */
        _Atomic uint64_t allocations;
        _Atomic uint64_t frees;
        _Atomic uint64_t failures;
    } past;
};

void gb_level_read(struct gb_level *level, struct gb_level_numbers *ret);
void gb_alloc_counters_read(struct gb_alloc_counters *live_counters, struct gb_memory_numbers *ret);

/* Counts one more failure, and its reason. */
void gb_live_counters_failed(struct gb_live_counters *live_counters, enum gb_failed what, enum gb_failure why);

/* Not of one moment: each counter is right, but two may differ by what was counted between their reads. */
void gb_live_counters_read(struct gb_live_counters *live_counters, struct gb_counters *ret);
void gb_live_counters_set(struct gb_live_counters *live_counters, const struct gb_counters *counters);

/* Adds to the daemon's counter and to the session's. */
#define GB_COUNT(core, session, name, n)                                                                               \
    do {                                                                                                               \
        uint64_t gb_count_n_ = (n);                                                                                    \
        atomic_fetch_add_explicit(&(core)->live_counters.name, gb_count_n_, memory_order_relaxed);                     \
        atomic_fetch_add_explicit(&(session)->live_counters.name, gb_count_n_, memory_order_relaxed);                  \
    } while (0)

#endif
