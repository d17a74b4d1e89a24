#include "gb_test.h"

#include "http/range.h"

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
    {"bytes=0-1,3-4", 10, GB_RANGE_WHOLE, 0, 0},
    {"bytes=0-1, -1", 10, GB_RANGE_WHOLE, 0, 0},
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
    struct gb_range range = {0};

    ck_assert_msg(gb_range_parse(s->value, s->size, &range) == s->kind, "%s", s->value ? s->value : "(none)");
    if (s->kind == GB_RANGE_PART) {
        ck_assert_uint_eq(range.first, s->first);
        ck_assert_uint_eq(range.length, s->length);
    } else {
        ck_assert_uint_eq(range.length, 0);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("range");
    TCase *tcase = tcase_create("range");

    tcase_add_loop_test(tcase, test_range, 0, sizeof(samples) / sizeof(samples[0]));
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
