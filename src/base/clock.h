/* Time: a monotonic clock for durations, a wall clock for records, and times and durations as text. */
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

enum gb_timestamp { GB_TIMESTAMP_OK, GB_TIMESTAMP_MALFORMED, GB_TIMESTAMP_NO_ZONE, GB_TIMESTAMP_IMPOSSIBLE };

/* RFC 3339 ("2026-01-02T03:04:05Z", "...05.678+01:00"); a space may stand for the "T" and for the "+". *ret_us:
 * microseconds since the epoch; written on success. IMPOSSIBLE: there is no such time since 1970. */
enum gb_timestamp gb_timestamp_parse(const char *text, size_t len, int64_t *ret_us);

/* "90", "90s", "15m", "12h", "30d", "2w". Returns 0, or -1 if it is neither or more than a hundred years. */
int gb_duration_parse(const char *text, size_t len, uint64_t *ret_s);

#endif
