#include "base/clock.h"

#include <stdio.h>
#include <time.h>

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
    size_t n;

    gmtime_r(&seconds, &tm);
    n = strftime(out, GB_RFC3339_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, GB_RFC3339_SIZE - n, ".%03dZ", (int)(wall_us / 1000 % 1000));
    return out;
}
