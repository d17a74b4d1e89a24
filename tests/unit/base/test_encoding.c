/* Numbers as digits, against printf; bytes as digits and base64, there and back. */
#include "base/encoding.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

START_TEST(bytes_as_digits) {
    static const unsigned char bytes[] = {0, 1, 0x7f, 0x80, 0xab, 0xff};
    unsigned char back[sizeof(bytes)];
    char text[GB_HEX_SIZE(sizeof(bytes))];

    gb_hex(bytes, sizeof(bytes), text);
    ck_assert_str_eq(text, "00017f80abff");
    ck_assert(gb_hex_read(text, back, sizeof(bytes)));
    ck_assert_mem_eq(back, bytes, sizeof(bytes));
    ck_assert(gb_hex_read("00017F80aBFf", back, sizeof(bytes)));
    ck_assert_mem_eq(back, bytes, sizeof(bytes));
    ck_assert(!gb_hex_read("00017f80abf", back, sizeof(bytes)));
    ck_assert(!gb_hex_read("00017f80abff0", back, sizeof(bytes)));
    ck_assert(!gb_hex_read("00017f80ab f", back, sizeof(bytes)));
    gb_hex(NULL, 0, text);
    ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(digits_of_a_number) {
    uint64_t value;
    uint32_t crc;
    int c;

    for (c = 0; c < 256; c++) {
        const char digit[] = {(char)c, '\0'};
        bool good = c && strspn(digit, "0123456789abcdefABCDEF") == 1;

        ck_assert_int_eq(gb_hex_digit((char)c), good ? (int)strtol(digit, NULL, 16) : -1);
    }
    ck_assert(gb_hex_u64("fFfffffffffffff0", 16, &value) && value == UINT64_MAX - 15);
    ck_assert(gb_hex_u64("0c0x", 3, &value) && value == 0xc0);
    ck_assert(!gb_hex_u64("0c0x", 4, &value));
    ck_assert(gb_hex_u32("e3069283", 8, &crc) && crc == 0xe3069283);
    ck_assert(!gb_hex_u32("e306928", 7, &crc) && !gb_hex_u32("e30692839", 9, &crc) && !gb_hex_u32("+3069283", 8, &crc));
    ck_assert(gb_hex_lower("0af9", 4) && gb_hex_lower("", 0));
    ck_assert(!gb_hex_lower("0af9", 3) && !gb_hex_lower("0af9", 5) && !gb_hex_lower("0aF9", 4));
}
END_TEST

START_TEST(uuids) {
    static const unsigned char bytes[16] = {0x12, 0x3e, 0x45, 0x67, 0xe8, 0x9b, 0x42, 0xd3,
                                            0xa4, 0x56, 0x42, 0x66, 0x14, 0x17, 0x40, 0x00};
    char text[GB_UUID_SIZE];

    gb_uuid_text(bytes, text);
    ck_assert_str_eq(text, "123e4567-e89b-42d3-a456-426614174000");
}
END_TEST

START_TEST(base64_there_and_back) {
    static const unsigned char bytes[] = {0, 255, 254, 62, 63, 250, 0};
    size_t n;

    for (n = 0; n <= sizeof(bytes); n++) {
        bool url = _i != 0;
        char *text = gb_base64(bytes, n, url);
        char *back;
        size_t count;

        ck_assert(url ? !strpbrk(text, "=+/") : strlen(text) % 4 == 0);
        ck_assert(gb_base64_read(text, strlen(text), url, &back, &count));
        ck_assert_uint_eq(count, n);
        ck_assert_mem_eq(back, bytes, n);
        free(back);
        free(text);
    }
}
END_TEST

START_TEST(what_is_no_base64) {
    static const char *const texts[] = {"a", "ab", "abc", "a===", "====", "ab=c", "ab\n=", "ab==ab==", "ab-_", "aR=="};
    char *back;
    size_t n;

    ck_assert_msg(!gb_base64_read(texts[_i], strlen(texts[_i]), false, &back, &n), "%s", texts[_i]);
}
END_TEST

START_TEST(base64_of_a_known_size) {
    static const char *const wrong[] = {"AP/-", "AP/+A", "AP/+AQ=", "AP/+AR==", "AP/+AQ===", "AP/+AQ=A", "AP/+", ""};
    unsigned char back[4];
    char text[GB_BASE64_SIZE(4)];
    size_t i;

    gb_base64_write("\0\xff\xfe\1", 4, false, text);
    ck_assert_str_eq(text, "AP/+AQ==");
    for (i = 6; i <= 8; i += 2) {
        memset(back, 9, sizeof(back));
        ck_assert(gb_base64_exact(text, i, back, sizeof(back)));
        ck_assert_mem_eq(back, "\0\xff\xfe\1", 4);
    }
    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        ck_assert_msg(!gb_base64_exact(wrong[i], strlen(wrong[i]), back, sizeof(back)), "%s", wrong[i]);
    ck_assert(!gb_base64_exact(NULL, 0, back, sizeof(back)));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("encoding");
    TCase *loops = tcase_create("base64");

    gb_test_add(suite, "decimal", decimal, 4);
    gb_test_add(suite, "width", with_a_width, 4);
    gb_test_add(suite, "hex", bytes_as_digits, 4);
    gb_test_add(suite, "hex_numbers", digits_of_a_number, 4);
    gb_test_add(suite, "uuids", uuids, 4);
    gb_test_add(suite, "exact", base64_of_a_known_size, 4);
    tcase_add_loop_test(loops, base64_there_and_back, 0, 2);
    tcase_add_loop_test(loops, what_is_no_base64, 0, 10);
    suite_add_tcase(suite, loops);
    return gb_test_run(suite);
}
