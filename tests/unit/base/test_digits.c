/* Numbers as digits, against printf. */
#include "base/digits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gb_test.h"

static const uint64_t values[] = {0,          1,          9,           10,          11,         99,
                                  100,        999,        1000,        1234567890,  UINT32_MAX, 1ull << 32,
                                  INT64_MAX,  1ull << 63, 9999999999u, 10000000000, UINT64_MAX, UINT64_MAX - 1,
                                  0xdeadbeef, 1000000007};
#define VALUES (sizeof(values) / sizeof(values[0]))

/* What was written, and that nothing was written behind it. */
static void expect(const char *text, const char *end, const char *wanted) {
    ck_assert_uint_eq((size_t)(end - text), strlen(wanted));
    ck_assert_msg(memcmp(text, wanted, strlen(wanted)) == 0, "'%.*s', not '%s'", (int)(end - text), text, wanted);
    ck_assert_int_eq(*end, '#');
}

START_TEST(decimal) {
    char wanted[40];
    char text[40];
    size_t i;

    for (i = 0; i < VALUES; i++) {
        memset(text, '#', sizeof(text));
        snprintf(wanted, sizeof(wanted), "%" PRIu64, values[i]);
        ck_assert_uint_le(strlen(wanted), GB_DIGITS_MAX);
        expect(text, gb_digits(text, values[i]), wanted);
    }
}
END_TEST

START_TEST(with_a_width) {
    unsigned width;
    char wanted[40];
    char text[40];
    size_t i;

    for (i = 0; i < VALUES; i++) {
        snprintf(wanted, sizeof(wanted), "%020" PRIu64, values[i]);
        for (width = 0; width <= 20; width++) {
            memset(text, '#', sizeof(text));
            expect(text, gb_digits_padded(text, values[i], width), wanted + 20 - width);
        }
        snprintf(wanted, sizeof(wanted), "%016" PRIx64, values[i]);
        for (width = 0; width <= 16; width++) {
            memset(text, '#', sizeof(text));
            expect(text, gb_digits_hex(text, values[i], width), wanted + 16 - width);
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("digits");

    gb_test_add(suite, "decimal", decimal, 4);
    gb_test_add(suite, "width", with_a_width, 4);
    return gb_test_run(suite);
}
