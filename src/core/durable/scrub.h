/* The scrubber: one thread, which exists while a pass runs. */
#ifndef GB_CORE_DURABLE_SCRUB_H
#define GB_CORE_DURABLE_SCRUB_H

#include <stdint.h>

#include "core/public/durable.h"
#include "core/runtime/runtime.h"

struct gb_scrubber;

/* NULL when memory is exhausted. gb_scrubber_free accepts NULL. */
struct gb_scrubber *gb_scrubber_new(void);
void gb_scrubber_free(struct gb_scrubber *scrubber);

/* Once a second: begins a pass if the latest ended --scrub-interval ago and there are files. [never blocks] */
void gb_scrub_tick(struct gb_core *core);

/* The daemon stops: ends the pass at its next block, and permits no further ones. [blocks until the thread has
 * ended] */
void gb_scrub_stop(struct gb_core *core);

/* A pace: work of `rate` bytes a second at most. Time in which nothing was done is not made up for, so that no work
 * comes in bursts. The caller waits; the pace only counts. */

struct gb_pace {
    uint64_t rate; /* bytes a second; 0: as fast as it goes */
    uint64_t due_ns;
};

/* Counts n bytes, at most 16 GiB, at the time now_ns. Returns how long to wait before the next ones. */
uint64_t gb_pace_take(struct gb_pace *pace, uint64_t now_ns, uint64_t n);

#endif
