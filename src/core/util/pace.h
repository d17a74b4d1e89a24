/* A pace: work of so many bytes a second at most. Time in which nothing was done is not made up for, so that no work
 * comes in bursts. The caller waits; the pace only counts. */
#ifndef GB_CORE_UTIL_PACE_H
#define GB_CORE_UTIL_PACE_H

#include <stdint.h>

struct gb_pace {
    uint64_t rate; /* bytes a second; 0: as fast as it goes */
    uint64_t due_ns;
};

/* n bytes were worked on, and it is now_ns. n: at most 16 GiB. Returns how long to wait before the next. */
uint64_t gb_pace_take(struct gb_pace *pace, uint64_t now_ns, uint64_t n);

#endif
