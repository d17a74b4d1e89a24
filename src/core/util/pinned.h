/* The ceiling of page-locked host memory, of all sessions together: the system cannot move or swap such memory out, so
 * too much of it harms everything else on the machine. A page counts whole. */
#ifndef GB_CORE_UTIL_PINNED_H
#define GB_CORE_UTIL_PINNED_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/error.h"

struct gb_pinned {
    uint64_t limit_bytes; /* GB_UNLIMITED: there is no ceiling */
    _Atomic uint64_t used_bytes;
};

/* limit_bytes 0: no ceiling. */
void gb_pinned_init(struct gb_pinned *pinned, uint64_t limit_bytes);

/* Would as many bytes fit now? PINNED_LIMIT with the numbers. */
int gb_pinned_check(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err);

/* Counts the bytes, before they are locked. PINNED_LIMIT: nothing is counted. [any thread, never blocks] */
int gb_pinned_take(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err);

/* The same number of bytes is given back as was taken, after they were unlocked. [any thread, never blocks] */
void gb_pinned_give(struct gb_pinned *pinned, uint64_t bytes);

#endif
