/* Values as JSON and as text. test_values.py has all elements of every type. */
#include <string.h>

#include "gb_test.h"

#include "format/values.h"

struct sample {
    enum gb_dtype dtype;
    uint64_t code;
    const char *json;
    const char *text;
};

static const struct sample samples[] = {
    {GB_DTYPE_BOOL, 1, "true", "1"},
    {GB_DTYPE_BOOL, 0, "false", "0"},
    {GB_DTYPE_UINT8, 255, "255", "255"},
    {GB_DTYPE_INT8, 128, "-128", "-128"},
    {GB_DTYPE_INT16, 0xffff, "-1", "-1"},
    {GB_DTYPE_UINT64, UINT64_MAX, "18446744073709551615", "18446744073709551615"},
    {GB_DTYPE_INT64, 1ull << 63, "-9223372036854775808", "-9223372036854775808"},
    {GB_DTYPE_FLOAT16, 0x3c00, "1.0", "1.0"},
    {GB_DTYPE_FLOAT16, 0x8000, "-0.0", "-0.0"},
    {GB_DTYPE_FLOAT16, 0x7bff, "65504.0", "65504.0"},
    {GB_DTYPE_FLOAT16, 0x0001, "5.9604645e-08", "5.9604645e-08"},
    {GB_DTYPE_FLOAT16, 0x7c00, "\"Infinity\"", "inf"},
    {GB_DTYPE_FLOAT16, 0xfc00, "\"-Infinity\"", "-inf"},
    {GB_DTYPE_FLOAT16, 0xfe00, "\"NaN\"", "nan"},
    {GB_DTYPE_BFLOAT16, 0x3dcd, "0.100097656", "0.100097656"},
    {GB_DTYPE_FLOAT8_E4M3FN, 0x7e, "448.0", "448.0"},
    {GB_DTYPE_FLOAT8_E4M3FN, 0x7f, "\"NaN\"", "nan"},
    {GB_DTYPE_FLOAT8_E4M3FNUZ, 0x80, "\"NaN\"", "nan"},
    {GB_DTYPE_FLOAT8_E4M3FNUZ, 0x7f, "240.0", "240.0"},
    {GB_DTYPE_FLOAT8_E5M2FNUZ, 0x7f, "57344.0", "57344.0"},
    {GB_DTYPE_FLOAT8_E8M0FNU, 127, "1.0", "1.0"},
    {GB_DTYPE_FLOAT8_E8M0FNU, 255, "\"NaN\"", "nan"},
    {GB_DTYPE_FLOAT32, 0x3dcccccd, "0.1", "0.1"},
    {GB_DTYPE_FLOAT32, 0x7f7fffff, "3.4028235e+38", "3.4028235e+38"},
    {GB_DTYPE_FLOAT64, 0x3fb999999999999a, "0.1", "0.1"},
    {GB_DTYPE_FLOAT64, 0x3fd5555555555555, "0.3333333333333333", "0.3333333333333333"},
    {GB_DTYPE_COMPLEX64, 0xbf8000003f800000, "[1.0,-1.0]", "1.0-1.0j"},
    {GB_DTYPE_COMPLEX64, 0x7f8000007fc00000, "[\"NaN\",\"Infinity\"]", "nan+infj"},
};

START_TEST(test_number) {
    const struct sample *s = &samples[_i];
    char out[GB_NUMBER_SIZE];

    gb_number_write(s->dtype, GB_NOTATION_JSON, &s->code, out);
    ck_assert_str_eq(out, s->json);
    gb_number_write(s->dtype, GB_NOTATION_TEXT, &s->code, out);
    ck_assert_str_eq(out, s->text);
}
END_TEST

/* The longest of each type has room. */
START_TEST(test_longest) {
    static const double pair[2] = {-2.2250738585072011e-308, -2.2250738585072011e-308};
    char out[GB_NUMBER_SIZE];

    gb_number_write(GB_DTYPE_COMPLEX128, GB_NOTATION_JSON, pair, out);
    ck_assert_str_eq(out, "[-2.225073858507201e-308,-2.225073858507201e-308]");
    gb_number_write(GB_DTYPE_COMPLEX128, GB_NOTATION_TEXT, pair, out);
    ck_assert_str_eq(out, "-2.225073858507201e-308-2.225073858507201e-308j");
}
END_TEST

static const unsigned char bytes[] = {0, 1, 2, 3, 4, 5, 6, 7};

static struct {
    struct gb_shape shape;
    const char *json;
    const char *text;
} const shapes[] = {
    {{0, {0}}, "\"shape\":[],\"values\":0}\n", "0\n"},
    {{1, {3}}, "\"shape\":[3],\"values\":[0,1,2]}\n", "0\n1\n2\n"},
    {{2, {2, 3}}, "\"shape\":[2,3],\"values\":[[0,1,2],[3,4,5]]}\n", "0 1 2\n3 4 5\n"},
    {{2, {1, 1}}, "\"shape\":[1,1],\"values\":[[0]]}\n", "0\n"},
    {{3, {2, 2, 2}}, "\"shape\":[2,2,2],\"values\":[[[0,1],[2,3]],[[4,5],[6,7]]]}\n", "0 1\n2 3\n\n4 5\n6 7\n"},
    {{2, {1ull << 40, 0}}, "\"shape\":[1099511627776,0],\"values\":[]}\n", ""},
};

START_TEST(test_shape) {
    struct gb_json_writer out = {0};

    gb_values_json(&out, GB_DTYPE_UINT8, &shapes[_i].shape, bytes);
    ck_assert_uint_eq(out.used, strlen(shapes[_i].json) + strlen("{\"dtype\":\"uint8\","));
    ck_assert_int_eq(memcmp(out.s + strlen("{\"dtype\":\"uint8\","), shapes[_i].json, strlen(shapes[_i].json)), 0);
    gb_json_done(&out);
    gb_values_text(&out, GB_DTYPE_UINT8, &shapes[_i].shape, bytes);
    ck_assert_uint_eq(out.used, strlen(shapes[_i].text));
    if (out.used > 0)
        ck_assert_int_eq(memcmp(out.s, shapes[_i].text, out.used), 0);
    gb_json_done(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("values");
    TCase *tables = tcase_create("tables");

    tcase_add_loop_test(tables, test_number, 0, sizeof(samples) / sizeof(samples[0]));
    tcase_add_loop_test(tables, test_shape, 0, sizeof(shapes) / sizeof(shapes[0]));
    suite_add_tcase(suite, tables);
    gb_test_add(suite, "longest", test_longest, 4);
    return gb_test_run(suite);
}
