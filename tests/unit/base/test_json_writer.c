/* The JSON writer, whose output is read back by jansson. */
#include "gb_test.h"

#include <jansson.h>
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

int main(void) {
    Suite *suite = suite_create("json writer");

    gb_test_add(suite, "everything", test_everything, 4);
    gb_test_add(suite, "growth", test_growth, 10);
    gb_test_add(suite, "untrusted", test_untrusted, 4);
    gb_test_add(suite, "fixed", test_fixed, 4);
    return gb_test_run(suite);
}
