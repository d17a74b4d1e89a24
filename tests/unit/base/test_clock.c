/* Times and durations that people write. */
#include <string.h>

#include "base/clock.h"
#include "gb_test.h"

static const struct {
    const char *text;
    enum gb_timestamp result;
    int64_t us;
} times[] = {
    {"1970-01-01T00:00:00Z", GB_TIMESTAMP_OK, 0},
    {"2026-01-02T03:04:05Z", GB_TIMESTAMP_OK, 1767323045000000},
    {"2026-01-02T03:04:05.678901999+01:00", GB_TIMESTAMP_OK, 1767319445678901},
    {"2026-01-02 03:04:05 01:00", GB_TIMESTAMP_OK, 1767319445000000},
    {"2026-01-02T03:04:05", GB_TIMESTAMP_NO_ZONE, 0},
    {"2026-01-02T03:04:05Zx", GB_TIMESTAMP_NO_ZONE, 0},
    {"2026-01-02T03:04:05.Z", GB_TIMESTAMP_MALFORMED, 0},
    {"2026-01-02", GB_TIMESTAMP_MALFORMED, 0},
    {"", GB_TIMESTAMP_MALFORMED, 0},
    {"2026-02-29T00:00:00Z", GB_TIMESTAMP_IMPOSSIBLE, 0},
    {"2026-13-01T00:00:00Z", GB_TIMESTAMP_IMPOSSIBLE, 0},
    {"1969-12-31T23:59:59Z", GB_TIMESTAMP_IMPOSSIBLE, 0},
};

START_TEST(test_times) {
    int64_t us = -1;

    ck_assert_int_eq(gb_timestamp_parse(times[_i].text, strlen(times[_i].text), &us), times[_i].result);
    ck_assert_int_eq(us, times[_i].result == GB_TIMESTAMP_OK ? times[_i].us : -1);
}
END_TEST

static const struct {
    const char *text;
    int result;
    uint64_t seconds;
} durations[] = {
    {"0", 0, 0},
    {"90", 0, 90},
    {"90s", 0, 90},
    {"15m", 0, 900},
    {"12h", 0, 43200},
    {"30d", 0, 2592000},
    {"2w", 0, 1209600},
    {"3153600000", 0, 3153600000},
    {"36500d", 0, 3153600000},
    {"36501d", -1, 0},
    {"3153600001", -1, 0},
    {"18446744073709551615w", -1, 0},
    {"", -1, 0},
    {"d", -1, 0},
    {"-1d", -1, 0},
    {"1y", -1, 0},
    {"1.5h", -1, 0},
    {"1h30m", -1, 0},
    {" 1h", -1, 0},
    {"1 h", -1, 0},
};

START_TEST(test_durations) {
    uint64_t seconds = 4242;

    ck_assert_int_eq(gb_duration_parse(durations[_i].text, strlen(durations[_i].text), &seconds), durations[_i].result);
    ck_assert_uint_eq(seconds, durations[_i].result == 0 ? durations[_i].seconds : 4242);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("timestamp");

    gb_test_add_loop(suite, "times", test_times, 60, (int)(sizeof(times) / sizeof(times[0])));
    gb_test_add_loop(suite, "durations", test_durations, 60, (int)(sizeof(durations) / sizeof(durations[0])));
    return gb_test_run(suite);
}
