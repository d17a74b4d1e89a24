/* A pace: bytes a second, without bursts. */
#include "core/durable/scrub.h"

#include "gb_test.h"

#define SECOND 1000000000ull

START_TEST(test_steady) {
    struct gb_pace pace = {.rate = 1000};
    uint64_t now = 5 * SECOND;
    int i;

    for (i = 0; i < 10; i++) {
        uint64_t wait = gb_pace_take(&pace, now, 500);

        ck_assert_uint_eq(wait, SECOND / 2);
        now += wait;
    }
    ck_assert_uint_eq(now, 10 * SECOND);
}
END_TEST

START_TEST(test_what_is_not_waited_for_adds_up) {
    struct gb_pace pace = {.rate = 1000};

    ck_assert_uint_eq(gb_pace_take(&pace, SECOND, 1), SECOND / 1000);
    ck_assert_uint_eq(gb_pace_take(&pace, SECOND, 1), 2 * SECOND / 1000);
    ck_assert_uint_eq(gb_pace_take(&pace, SECOND + SECOND / 1000, 1), 2 * SECOND / 1000);
}
END_TEST

START_TEST(test_idle_time_is_not_made_up_for) {
    struct gb_pace pace = {.rate = 1000};

    gb_pace_take(&pace, SECOND, 1000);
    ck_assert_uint_eq(gb_pace_take(&pace, 3600 * SECOND, 1000), SECOND);
    ck_assert_uint_eq(gb_pace_take(&pace, 3600 * SECOND, 1000), 2 * SECOND);
}
END_TEST

START_TEST(test_no_rate) {
    struct gb_pace pace = {.rate = 0};

    ck_assert_uint_eq(gb_pace_take(&pace, SECOND, 1ull << 34), 0);
}
END_TEST

START_TEST(test_large_numbers) {
    struct gb_pace fast = {.rate = 1ull << 40};
    struct gb_pace slow = {.rate = 1};

    ck_assert_uint_eq(gb_pace_take(&fast, SECOND, 1ull << 34), SECOND / 64);
    ck_assert_uint_eq(gb_pace_take(&slow, SECOND, 1ull << 34), (1ull << 34) * SECOND);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pace");

    gb_test_add(suite, "steady", test_steady, 10);
    gb_test_add(suite, "adds up", test_what_is_not_waited_for_adds_up, 10);
    gb_test_add(suite, "idle time", test_idle_time_is_not_made_up_for, 10);
    gb_test_add(suite, "no rate", test_no_rate, 10);
    gb_test_add(suite, "large numbers", test_large_numbers, 10);
    return gb_test_run(suite);
}
