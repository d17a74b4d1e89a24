#include "base/clock.h"

#include <time.h>

#include "base/digits.h"

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

char *gb_rfc3339(int64_t wall_us, char *out) {
    time_t seconds = (time_t)(wall_us / 1000000);
    struct tm tm;
    char *at = out;

    gmtime_r(&seconds, &tm);
    at = gb_digits_padded(at, (uint64_t)tm.tm_year + 1900, 4);
    *at++ = '-';
    at = gb_digits_padded(at, (uint64_t)tm.tm_mon + 1, 2);
    *at++ = '-';
    at = gb_digits_padded(at, (uint64_t)tm.tm_mday, 2);
    *at++ = 'T';
    at = gb_digits_padded(at, (uint64_t)tm.tm_hour, 2);
    *at++ = ':';
    at = gb_digits_padded(at, (uint64_t)tm.tm_min, 2);
    *at++ = ':';
    at = gb_digits_padded(at, (uint64_t)tm.tm_sec, 2);
    *at++ = '.';
    at = gb_digits_padded(at, (uint64_t)(wall_us / 1000 % 1000), 3);
    *at++ = 'Z';
    *at = '\0';
    return out;
}
