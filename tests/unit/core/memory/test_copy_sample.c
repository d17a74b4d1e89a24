/* When the times of a copy stand for those of another. */
#include "core/memory/pool.h"

#include <stdlib.h>

#include "base/clock.h"
#include "gb_test.h"

uint64_t __wrap_gb_clock_ns(void);

static uint64_t present_ns = 5 * GB_NS_PER_S;
static struct gb_copy_sample sample;
static const struct gb_copy_times measured = {.queue_ns = 7, .copy_ns = 2000};

uint64_t __wrap_gb_clock_ns(void) {
    return present_ns;
}

static void setup(void) {
    gb_copy_sample_init(&sample);
}

static void teardown(void) {
    gb_copy_sample_done(&sample);
}

START_TEST(the_first_is_measured) {
    struct gb_copy_times times;

    ck_assert(!gb_copy_sample_get(&sample, 0, &times));
    ck_assert(!gb_copy_sample_get(&sample, 4096, &times));
}
END_TEST

START_TEST(the_next_takes_its_times) {
    struct gb_copy_times times = {.queue_ns = 0};

    gb_copy_sample_put(&sample, 4096, &measured);
    ck_assert(gb_copy_sample_get(&sample, 4096, &times));
    ck_assert_uint_eq(times.queue_ns, 7);
    ck_assert_uint_eq(times.copy_ns, 2000);
    present_ns += GB_NS_PER_MS - 1;
    ck_assert(gb_copy_sample_get(&sample, 4096, &times));
}
END_TEST

START_TEST(another_size_is_measured) {
    struct gb_copy_times times;

    gb_copy_sample_put(&sample, 4096, &measured);
    ck_assert(!gb_copy_sample_get(&sample, 4095, &times));
    ck_assert(!gb_copy_sample_get(&sample, 0, &times));
}
END_TEST

START_TEST(after_a_millisecond_one_is_measured) {
    struct gb_copy_times times;

    gb_copy_sample_put(&sample, 4096, &measured);
    present_ns += GB_NS_PER_MS;
    ck_assert(!gb_copy_sample_get(&sample, 4096, &times));
    gb_copy_sample_put(&sample, 4096, &measured);
    ck_assert(gb_copy_sample_get(&sample, 4096, &times));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_copy_sample");
    TCase *t = tcase_create("sample");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_first_is_measured);
    tcase_add_test(t, the_next_takes_its_times);
    tcase_add_test(t, another_size_is_measured);
    tcase_add_test(t, after_a_millisecond_one_is_measured);
    suite_add_tcase(suite, t);
    return gb_test_run(suite);
}
