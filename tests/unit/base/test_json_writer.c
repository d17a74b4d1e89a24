/* The JSON writer, whose output is read back by jansson. */
#include "gb_test.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "model/model.h"

START_TEST(test_everything) {
    struct gb_json_writer out = {0};
    json_error_t error;
    json_t *root;
    json_t *list;

    gb_json_open(&out, NULL, '{');
    gb_json_put_string(&out, "plain", "text");
    gb_json_put_string(&out, "odd", "\"\\/\n\x01\x7f\xc3\xa9");
    gb_json_put_u64(&out, "zero", 0);
    gb_json_put_u64(&out, "large", INT64_MAX);
    gb_json_put_i64(&out, "negative", -5);
    gb_json_put_bool(&out, "yes", true);
    gb_json_put_bool(&out, "no", false);
    gb_json_put_null(&out, "none");
    gb_json_put_limit(&out, "unlimited", GB_UNLIMITED);
    gb_json_put_limit(&out, "limited", 7);
    gb_json_put_seconds(&out, "seconds", 1000000001);
    gb_json_put_time(&out, "time", 1500);
    gb_json_put_raw(&out, "raw", "{\"a\":[1]}");
    gb_json_open(&out, "list", '[');
    gb_json_put_u64(&out, NULL, 1);
    gb_json_open(&out, NULL, '{');
    gb_json_close(&out, '}');
    gb_json_put_string(&out, NULL, "x");
    gb_json_close(&out, ']');
    gb_json_open(&out, "empty", '[');
    gb_json_close(&out, ']');
    gb_json_close(&out, '}');
    gb_json_end(&out);
    ck_assert(!out.failed);
    root = json_loadb(out.s, out.used, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(root != NULL, "%s: %.*s", error.text, (int)out.used, out.s);
    ck_assert_uint_eq(json_object_size(root), 15);
    ck_assert_str_eq(json_string_value(json_object_get(root, "odd")), "\"\\/\n\x01\x7f\xc3\xa9");
    ck_assert_int_eq(json_integer_value(json_object_get(root, "large")), INT64_MAX);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "negative")), -5);
    ck_assert(json_is_null(json_object_get(root, "unlimited")));
    ck_assert_int_eq(json_integer_value(json_object_get(root, "limited")), 7);
    ck_assert_ptr_nonnull(strstr(out.s, "\"seconds\":1.000000001,"));
    ck_assert_str_eq(json_string_value(json_object_get(root, "time")), "1970-01-01T00:00:00.001Z");
    list = json_object_get(root, "list");
    ck_assert_uint_eq(json_array_size(list), 3);
    ck_assert_str_eq(json_string_value(json_array_get(list, 2)), "x");
    ck_assert_uint_eq(json_array_size(json_object_get(root, "empty")), 0);
    json_decref(root);
    gb_json_done(&out);
}
END_TEST

START_TEST(test_growth) {
    struct gb_json_writer out = {0};
    json_t *root;
    int i;

    gb_json_open(&out, NULL, '[');
    for (i = 0; i < 20000; i++)
        gb_json_put_u64(&out, NULL, (uint64_t)i);
    gb_json_close(&out, ']');
    root = json_loadb(out.s, out.used, 0, NULL);
    ck_assert_uint_eq(json_array_size(root), 20000);
    json_decref(root);
    gb_json_done(&out);
}
END_TEST

/* Text that clients choose: no byte of it ends the JSON string, the output is UTF-8, and each character is written
 * whole or not at all. */
START_TEST(test_untrusted) {
    static const struct {
        const char *text;
        size_t max;
        const char *written;
    } cases[] = {
        {"plain", 99, "\"plain\""},
        {"pla\"in\n", 99, "\"pla\\\"in\\u000a\""},
        {"\xff"
         "a",
         99, "\"\\ufffda\""},
        {"\xff"
         "a",
         5, "\"\""},
        {"ab\xc3\xa9", 4, "\"ab\xc3\xa9\""},
        {"ab\xc3\xa9", 3, "\"ab\""},
        {"ab\xc3", 8, "\"ab\\ufffd\""},
        {"\xc2\x9b[2J\x7f", 99, "\"\\u009b[2J\\u007f\""}, /* which clears a terminal */
        {"\xc2\xa0", 2, "\"\xc2\xa0\""},
        {"a\"b", 2, "\"a\""},
        {"", 0, "\"\""},
    };
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gb_json_writer out = {0};

        gb_json_put_untrusted(&out, NULL, cases[i].text, cases[i].max);
        ck_assert(!out.failed);
        ck_assert_msg(out.used == strlen(cases[i].written) && memcmp(out.s, cases[i].written, out.used) == 0,
                      "%zu: %.*s", i, (int)out.used, out.s);
        gb_json_done(&out);
    }
}
END_TEST

/* A fixed buffer takes the text that fits, reports an overflow, and is not freed. */
START_TEST(test_fixed) {
    char text[16];
    struct gb_json_writer out = gb_json_fixed(text, sizeof(text));

    gb_json_open(&out, NULL, '{');
    gb_json_put_u64(&out, "a", 1);
    gb_json_put_members(&out, ",\"b\":2", 6);
    gb_json_close(&out, '}');
    ck_assert(!out.failed);
    ck_assert_uint_eq(out.used, 13);
    ck_assert_ptr_eq(out.s, text);
    ck_assert_int_eq(memcmp(text, "{\"a\":1,\"b\":2}", 13), 0);
    gb_json_put_text(&out, "1234");
    ck_assert(out.failed);
    ck_assert_uint_eq(out.used, 13);
    gb_json_done(&out);
    ck_assert_uint_eq(out.used, 0);
}
END_TEST

/* Escapes at each place of a value, and what stands before and behind it. */
START_TEST(test_escapes) {
    static const struct {
        const char *text;
        const char *written;
    } cases[] = {
        {"", "\"\""},
        {"a", "\"a\""},
        {"\"", "\"\\\"\""},
        {"\\", "\"\\\\\""},
        {"\nabc", "\"\\u000aabc\""},
        {"abc\x1f", "\"abc\\u001f\""},
        {"ab\x7f"
         "c",
         "\"ab\\u007fc\""},
        {"a\"b\"c", "\"a\\\"b\\\"c\""},
        {"\xc3\xa9/ ~", "\"\xc3\xa9/ ~\""},
    };
    char wanted[128];
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gb_json_writer out = {0};

        gb_json_open(&out, NULL, '{');
        gb_json_put_string(&out, "k", cases[i].text);
        gb_json_put_string(&out, "l", cases[i].text);
        gb_json_close(&out, '}');
        gb_json_end(&out);
        snprintf(wanted, sizeof(wanted), "{\"k\":%s,\"l\":%s}\n", cases[i].written, cases[i].written);
        ck_assert(!out.failed);
        ck_assert_uint_eq(out.used, strlen(wanted));
        ck_assert_msg(memcmp(out.s, wanted, out.used) == 0, "%zu: %.*s", i, (int)out.used, out.s);
        gb_json_done(&out);
    }
}
END_TEST

/* Values that end about where the buffer grows, with an escape at their end or none. */
START_TEST(test_long_strings) {
    static char text[4200];
    size_t n;
    int escaped;

    for (n = 1000; n < 4200; n += n < 1040 ? 1 : 61) {
        for (escaped = 0; escaped < 2; escaped++) {
            struct gb_json_writer out = {0};
            json_t *root;

            memset(text, 'x', sizeof(text));
            text[n - 1] = escaped ? '\n' : 'y';
            text[n] = '\0';
            gb_json_open(&out, NULL, '[');
            gb_json_put_string(&out, NULL, text);
            gb_json_put_string(&out, NULL, text);
            gb_json_close(&out, ']');
            ck_assert(!out.failed);
            root = json_loadb(out.s, out.used, 0, NULL);
            ck_assert_uint_eq(json_array_size(root), 2);
            ck_assert_str_eq(json_string_value(json_array_get(root, 0)), text);
            ck_assert_str_eq(json_string_value(json_array_get(root, 1)), text);
            json_decref(root);
            gb_json_done(&out);
        }
    }
}
END_TEST

START_TEST(test_numbers) {
    struct gb_json_writer out = {0};
    const char *wanted = "[0,9223372036854775807,9223372036854775807,-9223372036854775808,-1,0,9223372036854775807,"
                         "0.000000000,18446744073.709551615,1.999999999]";

    gb_json_open(&out, NULL, '[');
    gb_json_put_u64(&out, NULL, 0);
    gb_json_put_u64(&out, NULL, INT64_MAX);
    gb_json_put_u64(&out, NULL, UINT64_MAX);
    gb_json_put_i64(&out, NULL, INT64_MIN);
    gb_json_put_i64(&out, NULL, -1);
    gb_json_put_i64(&out, NULL, 0);
    gb_json_put_i64(&out, NULL, INT64_MAX);
    gb_json_put_seconds(&out, NULL, 0);
    gb_json_put_seconds(&out, NULL, UINT64_MAX);
    gb_json_put_seconds(&out, NULL, 1999999999);
    gb_json_close(&out, ']');
    ck_assert_uint_eq(out.used, strlen(wanted));
    ck_assert_int_eq(memcmp(out.s, wanted, out.used), 0);
    gb_json_done(&out);
}
END_TEST

static void put_sample(struct gb_json_writer *out) {
    gb_json_open(out, NULL, '{');
    gb_json_put_string(out, "plain", "text");
    gb_json_put_string(out, "odd", "ab\ncd");
    gb_json_put_u64(out, "n", 17);
    gb_json_put_untrusted(out, "u", "\xff\"", 20);
    gb_json_open(out, "list", '[');
    gb_json_put_bool(out, NULL, true);
    gb_json_close(out, ']');
    gb_json_close(out, '}');
    gb_json_end(out);
}

/* Fixed buffers of every size: one that is full keeps what it has, which is the beginning of the whole, says so, and is
 * not written beyond. Once the text fits with a few bytes to spare, it is whole. */
START_TEST(test_fixed_sizes) {
    struct gb_json_writer whole = {0};
    char text[256];
    size_t size;
    size_t i;

    put_sample(&whole);
    ck_assert_uint_lt(whole.used + 8, sizeof(text));
    for (size = 0; size <= whole.used + 8; size++) {
        struct gb_json_writer out = gb_json_fixed(text, size);

        memset(text, '#', sizeof(text));
        put_sample(&out);
        ck_assert_uint_le(out.used, size);
        ck_assert_int_eq(memcmp(text, whole.s, out.used), 0);
        for (i = size; i < sizeof(text); i++)
            ck_assert_int_eq(text[i], '#');
        if (size < whole.used)
            ck_assert(out.failed);
        if (size >= whole.used + 8)
            ck_assert(!out.failed);
        if (!out.failed)
            ck_assert_uint_eq(out.used, whole.used);
    }
    gb_json_done(&whole);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("json writer");

    gb_test_add(suite, "everything", test_everything, 4);
    gb_test_add(suite, "growth", test_growth, 10);
    gb_test_add(suite, "untrusted", test_untrusted, 4);
    gb_test_add(suite, "fixed", test_fixed, 4);
    gb_test_add(suite, "escapes", test_escapes, 4);
    gb_test_add(suite, "long strings", test_long_strings, 10);
    gb_test_add(suite, "numbers", test_numbers, 4);
    gb_test_add(suite, "fixed sizes", test_fixed_sizes, 4);
    return gb_test_run(suite);
}
