/* The ceiling of page-locked host memory, of all sessions together: the system cannot move or swap such memory out, so
 * too much of it harms everything else on the machine. A page counts whole. */
#ifndef GB_CORE_UTIL_PINNED_H
#define GB_CORE_UTIL_PINNED_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/error.h"

struct gb_pinned {
    uint64_t limit_bytes; /* GB_UNLIMITED: there is no ceiling */
    uint64_t slots_bytes; /* of used_bytes: what the slots hold as long as the daemon runs */
    _Atomic uint64_t used_bytes;
};

/* limit_bytes 0: no ceiling. */
void gb_pinned_init(struct gb_pinned *pinned, uint64_t limit_bytes);

/* Takes the bytes of the slots, before others take any. They count until gb_pinned_give_slots. */
int gb_pinned_take_slots(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err);
void gb_pinned_give_slots(struct gb_pinned *pinned);

/* Would as many bytes fit now? PINNED_LIMIT with the numbers; hopeless where they do not fit beside the slots. */
int gb_pinned_check(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err);

/* Counts the bytes, before they are locked. PINNED_LIMIT: nothing is counted. [any thread, never blocks] */
int gb_pinned_take(struct gb_pinned *pinned, uint64_t bytes, struct gb_error *err);

/* The same number of bytes is given back as was taken, after they were unlocked. [any thread, never blocks] */
void gb_pinned_give(struct gb_pinned *pinned, uint64_t bytes);

#endif
