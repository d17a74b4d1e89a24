/* Monotonic and wall-clock time, and the date of a time. All folders call it. */
#include "base/clock.h"

#include <time.h>

#include "base/encoding.h"

uint64_t gb_clock_ns(void) {
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * GB_NS_PER_S + (uint64_t)ts.tv_nsec;
}

int64_t gb_wall_us(void) {
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* Writes the date. A reply has several times, and gmtime_r() takes a lock and reads the time zone for each. Years are
 * counted from March on, so that a leap day is the last of its year. */
static char *put_date(char *at, uint64_t days_since_1970) {
    uint64_t days = days_since_1970 + 719468; /* since the first of March of the year 0 */
    uint64_t of_400 = days % 146097;
    uint64_t year = (of_400 - of_400 / 1460 + of_400 / 36524 - of_400 / 146096) / 365;
    uint64_t of_year = of_400 - (365 * year + year / 4 - year / 100);
    uint64_t month = (5 * of_year + 2) / 153; /* 0 is March */
    uint64_t day = of_year - (153 * month + 2) / 5 + 1;

    at = gb_digits_padded(at, days / 146097 * 400 + year + (month >= 10), 4);
    *at++ = '-';
    at = gb_digits_padded(at, month < 10 ? month + 3 : month - 9, 2);
    *at++ = '-';
    return gb_digits_padded(at, day, 2);
}

char *gb_rfc3339(int64_t wall_us, char *out) {
    uint64_t ms = wall_us > 0 ? (uint64_t)wall_us / 1000 : 0;
    uint64_t seconds = ms / 1000;
    char *at = put_date(out, seconds / 86400);

    *at++ = 'T';
    at = gb_digits_padded(at, seconds / 3600 % 24, 2);
    *at++ = ':';
    at = gb_digits_padded(at, seconds / 60 % 60, 2);
    *at++ = ':';
    at = gb_digits_padded(at, seconds % 60, 2);
    *at++ = '.';
    at = gb_digits_padded(at, ms % 1000, 3);
    *at++ = 'Z';
    *at = '\0';
    return out;
}
