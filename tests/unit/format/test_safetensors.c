/* Headers of safetensors files, hostile ones among them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"

#include "api/request/query.h"
#include "format/safetensors.h"

static const struct {
    const char *header;
    size_t count;
    uint64_t bytes;
} good[] = {
    {"{}", 0, 0},
    {"{  }   ", 0, 0},
    {"{\"__metadata__\":{}}", 0, 0},
    {"{\"__metadata__\": null }", 0, 0},
    {"{\"__metadata__\" : {\"format\":\"pt\",\"\\u00e9\":\"\"}}", 0, 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 1, 24},
    {"{\"a\":{\"data_offsets\":[0,1],\"shape\":[],\"dtype\":\"BOOL\"}}", 1, 1},
    {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]}}", 1, 0},
    {"{ \"b\" : { \"dtype\" : \"U8\" , \"shape\" : [ 4 ] , \"data_offsets\" : [ 8 , 12 ] } ,\n"
     "\t\"a\" : { \"dtype\" : \"I64\" , \"shape\" : [ 1 ] , \"data_offsets\" : [ 0 , 8 ] } }\r\n ",
     2, 12},
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]},\"c\":{\"dtype\":\"U8\",\"shape\":[0],"
     "\"data_offsets\":[4,4]},\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     3, 4},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":[{\"x\":[true,false,null,-1.5e3,\"\"]}]}}",
     1, 1},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 1},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":[0,-0,-0.0e-0,10.5E+9,1e400,9,-7]}}", 1, 1},
};

START_TEST(read) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_safetensors file;
    uint64_t at = 0;
    size_t i;

    gb_assert_ok(gb_safetensors_parse(good[_i].header, strlen(good[_i].header), &file, &err), err);
    ck_assert_uint_eq(file.count, good[_i].count);
    ck_assert_uint_eq(file.bytes, good[_i].bytes);
    for (i = 0; i < file.count; i++) {
        ck_assert_uint_eq(file.tensors[i].begin, at);
        at = file.tensors[i].end;
        ck_assert_uint_eq(strlen(file.tensors[i].name), file.tensors[i].name_len);
    }
    ck_assert_uint_eq(at, file.bytes);
    gb_safetensors_done(&file);
}
END_TEST

#define ONE(members) "{\"a\":{" members "}}"
#define PLACE "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":"

static const struct {
    const char *header;
    enum gb_code code;
} bad[] = {
    {"", GB_ERR_UNSUPPORTED_ARRAY},
    {" {}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{", GB_ERR_UNSUPPORTED_ARRAY},
    {"[]", GB_ERR_UNSUPPORTED_ARRAY},
    {"{}x", GB_ERR_UNSUPPORTED_ARRAY},
    {"{,}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\"}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\":1}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\":{}}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\\", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\\u00", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\\u000g\":0}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\\u0000\":0}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\\ud800\":0}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\\udc00\\ud800\":0}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\\x\":0}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\n\":0}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"\x80\":0}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"\xc0\x80\":0}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"\xed\xa0\x80\":0}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"\xf5\x80\x80\x80\":0}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"\xe2\x82", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"__metadata__\":[]}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"__metadata__\":{\"a\":1}}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4]") "}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\":{" PLACE "[0,4]},}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\":{" PLACE "[0,4]},\"a\":{" PLACE "[4,8]}}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\":{" PLACE "[0,4]},\"\\u0061\":{" PLACE "[4,8]}}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\":{" PLACE "[0,4]},\"b\":{" PLACE "[0,4]}}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\":{" PLACE "[0,4]},\"b\":{" PLACE "[3,7]}}", GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\":{" PLACE "[0,4]},\"b\":{" PLACE "[5,9]}}", GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[1,5]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,3]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[4,0]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4,8]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[-0,4]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4.0]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4e0]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,04]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,18446744073709551616]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4],\"shape\":[4]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4],\"x\":{\"y\":}"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4],\"x\":01"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4],\"x\":+1"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4],\"x\":-"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4],\"x\":.5"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4],\"x\":1."), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4],\"x\":1.2.3"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4],\"x\":1e"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4],\"x\":1e+"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE(PLACE "[0,4],\"x\":1-2"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE("\"dtype\":\"U8\",\"shape\":[4]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE("\"dtype\":\"U8\",\"shape\":[4,],\"data_offsets\":[0,4]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE("\"dtype\":\"U8\",\"shape\":4,\"data_offsets\":[0,4]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE("\"dtype\":8,\"shape\":[4],\"data_offsets\":[0,4]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE("\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]"), GB_ERR_UNSUPPORTED_ARRAY},
    {ONE("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"),
     GB_ERR_UNSUPPORTED_ARRAY},
    {ONE("\"dtype\":\"F64\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), GB_ERR_UNSUPPORTED_ARRAY},
};

START_TEST(refused) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_safetensors file = {.count = 77};
    size_t n = strlen(bad[_i].header);
    char *exact = malloc(n + 1); /* what reads past its end is seen */

    memcpy(exact, bad[_i].header, n);
    ck_assert_int_eq(gb_safetensors_parse(exact, n, &file, &err), -1);
    ck_assert_msg(err.code == bad[_i].code, "%s: %s", bad[_i].header, err.detail);
    ck_assert_str_ne(err.detail, "");
    ck_assert_uint_eq(file.count, 77); /* outputs are written on success only */
    free(exact);
}
END_TEST

/* Cut off anywhere, a header is refused. */
START_TEST(cut_off) {
    const char *whole = good[8].header;
    struct gb_safetensors file;
    size_t i;

    for (i = 0; i + 3 < strlen(whole); i++) {
        struct gb_error err = GB_ERROR_INIT;
        char *part = malloc(i + 1);

        memcpy(part, whole, i);
        gb_assert_fails(gb_safetensors_parse(part, i, &file, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
        free(part);
    }
}
END_TEST

static size_t nesting(char *header, size_t size, int levels) {
    static const char brackets[] = "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]";

    return (size_t)snprintf(header, size, ONE(PLACE "[0,4],\"x\":%.*s1%s"), levels, brackets,
                            brackets + sizeof(brackets) - 1 - levels);
}

START_TEST(nested) {
    char header[4200] = "";
    struct gb_error err = GB_ERROR_INIT;
    struct gb_safetensors file;

    gb_assert_ok(gb_safetensors_parse(header, nesting(header, sizeof(header), 32), &file, &err), err);
    gb_safetensors_done(&file);
    ck_assert_int_eq(gb_safetensors_parse(header, nesting(header, sizeof(header), 33), &file, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.detail, "nested"));
    strcpy(header, "{\"a\":{\"x\":");
    memset(header + strlen(header), '[', 4000);
    ck_assert_int_eq(gb_safetensors_parse(header, strlen(header), &file, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.detail, "nested"));
}
END_TEST

static size_t many(char *header, size_t size, int count) {
    size_t n = (size_t)snprintf(header, size, "{");
    int i;

    for (i = 0; i < count; i++)
        n += (size_t)snprintf(header + n, size - n,
                              "%s\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}", i > 0 ? "," : "",
                              count - i, i, i + 1);
    return n + (size_t)snprintf(header + n, size - n, "}");
}

START_TEST(count) {
    size_t size = (GB_SAFETENSORS_TENSORS_MAX + 1) * 80;
    char *header = malloc(size);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_safetensors file;

    gb_assert_ok(gb_safetensors_parse(header, many(header, size, GB_SAFETENSORS_TENSORS_MAX), &file, &err), err);
    ck_assert_uint_eq(file.count, GB_SAFETENSORS_TENSORS_MAX);
    ck_assert_str_eq(file.tensors[0].name, "t65536");
    gb_safetensors_done(&file);
    gb_assert_fails(gb_safetensors_parse(header, many(header, size, GB_SAFETENSORS_TENSORS_MAX + 1), &file, &err), err,
                    GB_ERR_BODY_TOO_LARGE);
    free(header);
}
END_TEST

START_TEST(prefix) {
    struct gb_error err = GB_ERROR_INIT;
    size_t at = 0;

    gb_assert_ok(gb_safetensors_data_at("\2\0\0\0\0\0\0\0{", &at, &err), err);
    ck_assert_uint_eq(at, 10);
    gb_assert_ok(gb_safetensors_data_at("\0\341\365\5\0\0\0\0{", &at, &err), err);
    ck_assert_uint_eq(at, 8 + GB_SAFETENSORS_HEADER_MAX);
    ck_assert_int_eq(gb_safetensors_data_at("\1\341\365\5\0\0\0\0{", &at, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_BODY_TOO_LARGE);
    ck_assert_uint_eq(err.limit_bytes, GB_SAFETENSORS_HEADER_MAX);
    err = GB_ERROR_INIT;
    gb_assert_fails(gb_safetensors_data_at("\2\0\0\0\0\0\0\200{", &at, &err), err, GB_ERR_BODY_TOO_LARGE);
    gb_assert_fails(gb_safetensors_data_at("\1\0\0\0\0\0\0\0{", &at, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
    gb_assert_fails(gb_safetensors_data_at("\2\0\0\0\0\0\0\0[", &at, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
}
END_TEST

/* Bytes that begin as a file are meant as one, even if the rest is damaged; arrays of numbers rarely do. */
START_TEST(begins) {
    static const struct {
        const char *data;
        size_t n;
        bool begins;
    } looks[] = {
        {"\x40\0\0\0\0\0\0\0{\"w\"", 12, true},
        {"\x40\0\0\0\0\0\0\0{\"_", 11, true},
        {"\x40\0\0\0\0\0\0\0{\"", 10, true},
        {"\x40\0\0\0\0\0\0\0{", 9, true},
        {"\x40\0\0\0\0\0\0\0", 8, false},
        {"\x40\0\0\0\0\0\0\0{ \n\"", 12, true},
        {"\x40\0\0\0\0\0\0\0{\"\xc3\xa9", 12, true},
        {"\xff\xff\xff\xff\xff\0\0\0{\"w\"", 12, true},
        {"\0\0\0\0\0\1\0\0{\"w\"", 12, false},
        {"message {\"a\"", 12, false},
        {"\2\0\0\0\0\0\0\0{}ab", 12, true},
        {"\4\0\0\0\0\0\0\0{}  ", 12, true},
        {"\4\0\0\0\0\0\0\0{}\0\0", 12, false},
        {"\x40\0\0\0\0\0\0\0{\"\"\n", 12, true},
        {"\x40\0\0\0\0\0\0\0{\"\"\1", 12, false},
        {"\5\0\0\0\0\0\0\0{\0\0\0", 12, false},
        {"\5\0\0\0\0\0\0\0{\"\0\0", 12, false}, /* 5 and 8827 as int64 */
        {"\5\0\0\0\0\0\0\0{\"\x21\5", 12, false},
        {"\5\0\0\0\0\0\0\0[\"a\"", 12, false},
    };
    size_t i;

    for (i = 0; i < sizeof(looks) / sizeof(looks[0]); i++)
        ck_assert_msg(gb_safetensors_begins(looks[i].data, looks[i].n) == looks[i].begins, "%zu", i);
}
END_TEST

/* What is wrong is said with its place in the file. */
START_TEST(place) {
    static const char header[] = "{\"a\":{\"dtype\":1";
    struct gb_error err = GB_ERROR_INIT;
    struct gb_safetensors file;

    ck_assert_int_eq(gb_safetensors_parse(header, strlen(header), &file, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.detail, "at byte 22 of the file"));
}
END_TEST

START_TEST(written_is_read) {
    static const char *const names[] = {"a.weight", "quoted \" and \\ \x01", "\xe2\x82\xac", "x/y"};
    const struct gb_shape shapes[] = {
        {.dims = 2, .dim = {2, 3}}, {.dims = 0}, {.dims = 1, .dim = {0}}, {.dims = 1, .dim = {5}}};
    const enum gb_dtype dtypes[] = {GB_DTYPE_COMPLEX64, GB_DTYPE_BFLOAT16, GB_DTYPE_BFLOAT16, GB_DTYPE_FLOAT8_E5M2};
    const uint64_t ends[] = {48, 50, 50, 55};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_json_writer out = {0};
    struct gb_safetensors file;
    size_t at = 0;
    size_t i;

    gb_safetensors_open(&out);
    for (i = 0; i < 4; i++)
        gb_safetensors_add(&out, names[i], dtypes[i], &shapes[i], i > 0 ? ends[i - 1] : 0, ends[i]);
    gb_assert_ok(gb_safetensors_close(&out, &err), err);
    ck_assert_uint_eq(out.used % 8, 0);
    gb_assert_ok(gb_safetensors_data_at(out.s, &at, &err), err);
    ck_assert_uint_eq(at, out.used);
    gb_assert_ok(gb_safetensors_parse(out.s + 8, out.used - 8, &file, &err), err);
    ck_assert_uint_eq(file.count, 4);
    ck_assert_uint_eq(file.bytes, 55);
    for (i = 0; i < 4; i++) {
        ck_assert_str_eq(file.tensors[i].name, names[i]);
        ck_assert_int_eq(file.tensors[i].dtype, dtypes[i]);
        ck_assert_uint_eq(file.tensors[i].shape.dims, shapes[i].dims);
        ck_assert_uint_eq(file.tensors[i].end, ends[i]);
    }
    gb_safetensors_done(&file);
    gb_json_done(&out);
}
END_TEST

/* --- names -------------------------------------------------------------------------------------------------------- */

START_TEST(names) {
    static const struct {
        const char *prefix, *tensor, *name;
    } mapped[] = {{"", "model.layers.0.weight", "model.layers.0.weight"},
                  {"", "a/b c:d", "a_b_c_d"},
                  {"", "_orig_mod.x", "x_orig_mod.x"},
                  {"", ".a", "x.a"},
                  {"", "", "x"},
                  {"",
                   "\xe2\x82\xac"
                   "5",
                   "x_5"},
                  {"", "a\xe2\x82\xac\xc3\xa9z", "a__z"},
                  {"v1.", "_a", "v1._a"},
                  {"p", "", "p"}};
    char longest[GB_NAME_MAX + 8];
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name name;
    size_t i;

    for (i = 0; i < sizeof(mapped) / sizeof(mapped[0]); i++) {
        gb_assert_ok(gb_tensor_buffer(mapped[i].prefix, mapped[i].tensor, &name, &err), err);
        ck_assert_str_eq(name.s, mapped[i].name);
    }
    memset(longest, 'a', GB_NAME_MAX);
    strcpy(longest + GB_NAME_MAX, "");
    gb_assert_ok(gb_tensor_buffer("", longest, &name, &err), err);
    ck_assert_str_eq(name.s, longest);
    gb_assert_fails(gb_tensor_buffer("p", longest, &name, &err), err, GB_ERR_INVALID_NAME);
    strcpy(longest + GB_NAME_MAX - 1, "\xe2\x82\xac");
    gb_assert_ok(gb_tensor_buffer("", longest, &name, &err), err);
    strcpy(longest + GB_NAME_MAX, "b");
    gb_assert_fails(gb_tensor_buffer("", longest, &name, &err), err, GB_ERR_INVALID_NAME);
}
END_TEST

START_TEST(labels) {
    struct gb_buffer_rec rec = {.name = {"a_b"}};
    struct gb_error err = GB_ERROR_INIT;
    char text[GB_LABELS_MAX];
    char name[GB_LABELS_MAX];
    char full[GB_LABELS_MAX] = "{\"k\":\"";

    ck_assert_int_eq(gb_tensor_labels("{}", &rec.name, "a_b", text, &err), 0);
    ck_assert_int_eq(gb_tensor_labels("{\"k\":\"v\"}", &rec.name, "a/\"b\"", text, &err), 1);
    gb_assert_ok(gb_labels_make(text, &rec.labels, &err), err);
    ck_assert_str_eq(gb_tensor_name(&rec, name), "a/\"b\"");
    ck_assert_ptr_nonnull(strstr(text, "\"k\":\"v\""));
    ck_assert_int_eq(gb_tensor_labels(gb_labels_text(rec.labels), &rec.name, "a/\"b\"", text, &err), 0);
    ck_assert_int_eq(gb_tensor_labels(gb_labels_text(rec.labels), &rec.name, "a_b", text, &err), 1);
    ck_assert_str_eq(text, "{\"k\":\"v\"}");
    gb_buffer_rec_done(&rec);
    gb_assert_ok(gb_labels_make(text, &rec.labels, &err), err);
    ck_assert_str_eq(gb_tensor_name(&rec, name), "a_b");
    gb_buffer_rec_done(&rec);
    memset(full + strlen(full), 'v', 2020);
    strcat(full, "\"}");
    gb_assert_fails(gb_tensor_labels(full, &rec.name, "a b", text, &err), err, GB_ERR_INVALID_ARGUMENT);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("safetensors");
    TCase *tables = tcase_create("tables");

    tcase_add_loop_test(tables, read, 0, sizeof(good) / sizeof(good[0]));
    tcase_add_loop_test(tables, refused, 0, sizeof(bad) / sizeof(bad[0]));
    suite_add_tcase(suite, tables);
    gb_test_add(suite, "cut", cut_off, 30);
    gb_test_add(suite, "nested", nested, 30);
    gb_test_add(suite, "count", count, 30);
    gb_test_add(suite, "prefix", prefix, 30);
    gb_test_add(suite, "begins", begins, 30);
    gb_test_add(suite, "place", place, 30);
    gb_test_add(suite, "written", written_is_read, 30);
    gb_test_add(suite, "names", names, 30);
    gb_test_add(suite, "labels", labels, 30);
    return gb_test_run(suite);
}
