#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"

#include "http/message/fields.h"

struct sample {
    const char *value;
    uint64_t size;
    enum gb_range_kind kind;
    uint64_t first;
    uint64_t length;
};

static const struct sample samples[] = {
    {NULL, 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=0-0", 10, GB_RANGE_PART, 0, 1},
    {"bytes=0-9", 10, GB_RANGE_PART, 0, 10},
    {"bytes=0-99", 10, GB_RANGE_PART, 0, 10},
    {"bytes=3-5", 10, GB_RANGE_PART, 3, 3},
    {"Bytes=3-5", 10, GB_RANGE_PART, 3, 3},
    {"bytes= 3-5 ", 10, GB_RANGE_PART, 3, 3},
    {"bytes=9-", 10, GB_RANGE_PART, 9, 1},
    {"bytes=0-", 10, GB_RANGE_PART, 0, 10},
    {"bytes=-1", 10, GB_RANGE_PART, 9, 1},
    {"bytes=-10", 10, GB_RANGE_PART, 0, 10},
    {"bytes=-11", 10, GB_RANGE_PART, 0, 10},
    {"bytes=-99999999999999999999999", 10, GB_RANGE_PART, 0, 10},
    {"bytes=2-18446744073709551615", 10, GB_RANGE_PART, 2, 8},
    {"bytes=2-18446744073709551616", 10, GB_RANGE_PART, 2, 8},
    {"bytes=18446744073709551614-18446744073709551614", UINT64_MAX, GB_RANGE_PART, UINT64_MAX - 1, 1},
    {"bytes=10-", 10, GB_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=10-20", 10, GB_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=99999999999999999999999-", 10, GB_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-0", 10, GB_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=0-", 0, GB_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=-5", 0, GB_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=5-3", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=0-1,4-3", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=0-1,x", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=0-1 3-4", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=,", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=10-,-0", 10, GB_RANGE_UNSATISFIABLE, 0, 0},
    {"bytes=10-,3-4", 10, GB_RANGE_PART, 3, 2},
    {"bytes=0-4,2-7", 10, GB_RANGE_PART, 0, 8},
    {"bytes=2-7,0-4,-3", 10, GB_RANGE_PART, 0, 10},
    {"bytes=,3-4,", 10, GB_RANGE_PART, 3, 2},
    {"items=0-1", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes 0-1", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=-", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=--1", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=a-b", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=0x1-2", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=1 -2", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=+1-2", 10, GB_RANGE_WHOLE, 0, 0},
};

START_TEST(test_range) {
    const struct sample *s = &samples[_i];
    struct gb_range_set ranges = {0};

    ck_assert_msg(gb_range_parse(s->value, s->size, &ranges) == s->kind, "%s", s->value ? s->value : "(none)");
    ck_assert_uint_eq(ranges.count, s->kind == GB_RANGE_PART ? 1 : 0);
    ck_assert_uint_eq(ranges.range[0].first, s->first);
    ck_assert_uint_eq(ranges.range[0].length, s->length);
}
END_TEST

/* --- several ------------------------------------------------------------------------------------------------------ */

static void expect(const char *value, uint64_t size, const char *wanted) {
    struct gb_range_set ranges = {0};
    char text[512] = "";
    size_t at = 0;
    unsigned i;

    ck_assert_int_eq(gb_range_parse(value, size, &ranges), GB_RANGE_PART);
    for (i = 0; i < ranges.count; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%llu+%llu", i > 0 ? " " : "",
                               (unsigned long long)ranges.range[i].first, (unsigned long long)ranges.range[i].length);
    ck_assert_str_eq(text, wanted);
}

START_TEST(test_several) {
    expect("bytes=0-1,3-4", 10, "0+2 3+2");
    expect("bytes=0-1, -1 , ,5-", 10, "0+2 5+5");
    expect("bytes=8-9,0-1,4-5", 10, "8+2 0+2 4+2"); /* in the order asked for */
    expect("bytes=0-1,2-3", 10, "0+2 2+2");         /* neighbours share no byte */
    expect("bytes=0-1,6-7,2-3,1-6", 10, "0+8");     /* a range that joins all */
    expect("bytes=6-7,0-1,3-4,1-3", 10, "6+2 0+5"); /* in the place of the first */
    expect("bytes=3-4,0-1,8-,1-3", 10, "0+5 8+2");
    expect("bytes=0-0,0-0,0-0", 10, "0+1");
    expect("bytes=0-18446744073709551614,99999999999999999999-", UINT64_MAX, "0+18446744073709551615");
}
END_TEST

START_TEST(test_bound) {
    char value[1024] = "bytes=0-0";
    struct gb_range_set ranges = {0};
    size_t at = strlen(value);
    unsigned i;

    for (i = 1; i < GB_RANGES_MAX; i++)
        at += (size_t)snprintf(value + at, sizeof(value) - at, ",%u-%u", i * 2, i * 2);
    ck_assert_int_eq(gb_range_parse(value, 1000, &ranges), GB_RANGE_PART);
    ck_assert_uint_eq(ranges.count, GB_RANGES_MAX);
    ck_assert_uint_eq(ranges.range[GB_RANGES_MAX - 1].first, (GB_RANGES_MAX - 1) * 2);
    snprintf(value + at, sizeof(value) - at, ",0-0");
    ranges.count = 0;
    ck_assert_int_eq(gb_range_parse(value, 1000, &ranges), GB_RANGE_WHOLE);
    ck_assert_uint_eq(ranges.count, 0);
}
END_TEST

/* Random ranges: each byte that was asked for comes once, and no other. */
START_TEST(test_random) {
    enum { SIZE = 40 };
    unsigned seed = (unsigned)_i + 1;
    struct gb_range_set ranges = {0};
    char value[512] = "bytes=";
    bool want[SIZE] = {false};
    unsigned got[SIZE] = {0};
    size_t at = strlen(value);
    unsigned i;
    unsigned k;

    for (i = 0; i < 1 + (unsigned)_i % 12; i++) {
        unsigned first = (unsigned)rand_r(&seed) % SIZE;
        unsigned last = first + (unsigned)rand_r(&seed) % 8;

        at += (size_t)snprintf(value + at, sizeof(value) - at, "%s%u-%u", i > 0 ? "," : "", first, last);
        for (k = first; k <= last && k < SIZE; k++)
            want[k] = true;
    }
    ck_assert_int_eq(gb_range_parse(value, SIZE, &ranges), GB_RANGE_PART);
    for (i = 0; i < ranges.count; i++) {
        for (k = 0; k < ranges.range[i].length; k++)
            got[ranges.range[i].first + k]++;
    }
    for (k = 0; k < SIZE; k++)
        ck_assert_msg(got[k] == (want[k] ? 1 : 0), "%s: byte %u is sent %u times", value, k, got[k]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("range");
    TCase *tcase = tcase_create("range");

    tcase_add_loop_test(tcase, test_range, 0, sizeof(samples) / sizeof(samples[0]));
    tcase_add_test(tcase, test_several);
    tcase_add_test(tcase, test_bound);
    tcase_add_loop_test(tcase, test_random, 0, 200);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
