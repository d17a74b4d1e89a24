/* Time: a monotonic clock for durations, a wall clock for records. */
#ifndef GB_BASE_CLOCK_H
#define GB_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define GB_NS_PER_S 1000000000ULL
#define GB_NS_PER_MS 1000000ULL

/* Nanoseconds on CLOCK_MONOTONIC. */
uint64_t gb_clock_ns(void);

/* Microseconds since the epoch, UTC. */
int64_t gb_wall_us(void);

/* Writes an RFC 3339 UTC timestamp with milliseconds ("2026-01-02T03:04:05.678Z") into out, which holds at least
 * GB_RFC3339_SIZE bytes. Returns out. */
#define GB_RFC3339_SIZE 32
char *gb_rfc3339(int64_t wall_us, char *out);

#endif
