/* Reading times and durations that people write. */
#ifndef GB_BASE_TIMESTAMP_H
#define GB_BASE_TIMESTAMP_H

#include <stddef.h>
#include <stdint.h>

enum gb_timestamp { GB_TIMESTAMP_OK, GB_TIMESTAMP_MALFORMED, GB_TIMESTAMP_NO_ZONE, GB_TIMESTAMP_IMPOSSIBLE };

/* RFC 3339 ("2026-01-02T03:04:05Z", "...05.678+01:00"); a space may stand for the "T" and for the "+". *ret_us:
 * microseconds since the epoch; written on success. IMPOSSIBLE: there is no such time since 1970. */
enum gb_timestamp gb_timestamp_parse(const char *text, size_t len, int64_t *ret_us);

/* "90", "90s", "15m", "12h", "30d", "2w". Returns 0, or -1 if it is neither or more than a hundred years. */
int gb_duration_parse(const char *text, size_t len, uint64_t *ret_s);

#endif
