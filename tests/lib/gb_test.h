/* Helpers of all check programs. */
#ifndef GB_TEST_H
#define GB_TEST_H

#include <check.h>

#include "base/error.h"

/* Runs the suite, prints check's summary line, returns the exit status for main. */
int gb_test_run(Suite *suite);

/* A test case with one function in it, added to the suite; timeout_s bounds it. */
void gb_test_add(Suite *suite, const char *name, const TTest *test, double timeout_s);

/* The same test, run for each _i in [0, count). */
void gb_test_add_loop(Suite *suite, const char *name, const TTest *test, double timeout_s, int count);

/* From one allocation to be failed to the next, where each takes a run of its own: 4, or 1, which is all of them, with
 * GB_E2E_ROUNDS=4, which check --all sets. */
unsigned gb_test_stride(void);

/* Removes a folder with all that is in it. */
void gb_test_remove(const char *folder);

/* Asserts that an expression returned 0 and prints the error otherwise. */
#define gb_assert_ok(expr, err) ck_assert_msg((expr) == 0, "%s: %s (%s)", #expr, (err).detail, gb_code_slug((err).code))

/* Asserts that an expression returned -1 with this code, then clears the error. */
#define gb_assert_fails(expr, err, expected)                                                                           \
    do {                                                                                                               \
        ck_assert_int_eq((expr), -1);                                                                                  \
        ck_assert_str_eq(gb_code_slug((err).code), gb_code_slug(expected));                                            \
        (err) = GB_ERROR_INIT;                                                                                         \
    } while (0)

#endif
