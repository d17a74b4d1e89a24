/* Counters that many threads add to: those of counters.def. */
#ifndef GB_CORE_TALLY_H
#define GB_CORE_TALLY_H

#include <stdatomic.h>
#include <stdint.h>

#include "model/failure.h"
#include "model/model.h"

struct gb_tally {
#define GB_COUNTER(name) _Atomic uint64_t name;
#include "model/counters.def"
#undef GB_COUNTER
};

struct gb_kind_tally {
    _Atomic uint64_t count;
    _Atomic uint64_t bytes;
    _Atomic uint64_t copy_ns;
    _Atomic uint64_t queue_ns;
};

void gb_kind_tally_add(struct gb_kind_tally *tally, uint64_t bytes, uint64_t copy_ns, uint64_t queue_ns);

/* One more failure, and of that reason. */
void gb_tally_failed(struct gb_tally *tally, enum gb_failed what, enum gb_failure why);

/* Not of one moment: each counter is right, two of them may be apart by what happened between the reads. */
void gb_tally_read(struct gb_tally *tally, struct gb_counters *ret);
void gb_tally_set(struct gb_tally *tally, const struct gb_counters *counters);

/* Adds to the daemon's counter and, where there is one, to the session's. */
#define GB_TALLY(core, session, name, n)                                                                               \
    do {                                                                                                               \
        uint64_t gb_tally_n_ = (n);                                                                                    \
        atomic_fetch_add_explicit(&(core)->tally.name, gb_tally_n_, memory_order_relaxed);                             \
        atomic_fetch_add_explicit(&(session)->tally.name, gb_tally_n_, memory_order_relaxed);                          \
    } while (0)

#endif
