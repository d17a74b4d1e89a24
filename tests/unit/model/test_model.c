/* The model layer: element types, shapes, and the words for kinds, states and scopes. */
#include <string.h>

#include "gb_test.h"
#include "model/history.h"
#include "model/model.h"

START_TEST(dtypes_by_name) {
    struct gb_error err = GB_ERROR_INIT;
    enum gb_dtype dtype = GB_DTYPE_COUNT;
    int i;

    for (i = 0; i < GB_DTYPE_COUNT; i++) {
        const char *name = gb_dtype_name((enum gb_dtype)i);

        gb_assert_ok(gb_dtype_parse(name, strlen(name), &dtype, &err), err);
        ck_assert_int_eq(dtype, i);
        ck_assert_uint_gt(gb_dtype_bytes(dtype), 0);
    }
    ck_assert_str_eq(gb_dtype_name(GB_DTYPE_FLOAT8_E4M3FN), "float8_e4m3fn");
    ck_assert_uint_eq(gb_dtype_bytes(GB_DTYPE_COMPLEX128), 16);
    ck_assert_uint_eq(gb_dtype_bytes(GB_DTYPE_BFLOAT16), 2);
    ck_assert_str_eq(gb_dtype_name(GB_DTYPE_COUNT), "unknown");
    ck_assert_uint_eq(gb_dtype_bytes(GB_DTYPE_COUNT), 0);
    ck_assert_ptr_null(gb_dtype_npy(GB_DTYPE_COUNT));
}
END_TEST

START_TEST(unknown_dtypes_are_told_the_known) {
    static const char *const bad[] = {"", "float", "float3", "Float32", "float32 ", "float32x"};
    struct gb_error err = GB_ERROR_INIT;
    enum gb_dtype dtype = GB_DTYPE_COUNT;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        gb_assert_fails(gb_dtype_parse(bad[i], strlen(bad[i]), &dtype, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_dtype_parse("int8\0", 5, &dtype, &err), err, GB_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(dtype, GB_DTYPE_COUNT);
    gb_dtype_parse("a\x01\xff\"quite-long-word-that-does-not-fit-in-a-sentence", 51, &dtype, &err);
    for (i = 0; i < GB_DTYPE_COUNT; i++)
        ck_assert_ptr_nonnull(strstr(err.detail, gb_dtype_name((enum gb_dtype)i)));
    for (i = 0; err.detail[i] != '\0'; i++)
        ck_assert(err.detail[i] >= 0x20 && err.detail[i] < 0x7f);
    ck_assert_ptr_nonnull(strstr(err.detail, "..."));
}
END_TEST

START_TEST(dtypes_by_the_names_of_others) {
    static const struct {
        const char *name;
        enum gb_dtype dtype;
    } given[] = {{"float32", GB_DTYPE_FLOAT32},
                 {"f4", GB_DTYPE_FLOAT32},
                 {"<f4", GB_DTYPE_FLOAT32},
                 {"=f4", GB_DTYPE_FLOAT32},
                 {"torch.float32", GB_DTYPE_FLOAT32},
                 {"F32", GB_DTYPE_FLOAT32},
                 {"BF16", GB_DTYPE_BFLOAT16},
                 {"torch.bfloat16", GB_DTYPE_BFLOAT16},
                 {"<V2", GB_DTYPE_BFLOAT16},
                 {"F8_E4M3", GB_DTYPE_FLOAT8_E4M3FN},
                 {"float8_e4m3", GB_DTYPE_FLOAT8_E4M3},
                 {"torch.float8_e4m3fn", GB_DTYPE_FLOAT8_E4M3FN},
                 {"<f1", GB_DTYPE_FLOAT8_E5M2},
                 {"u1", GB_DTYPE_UINT8},
                 {"|u1", GB_DTYPE_UINT8},
                 {">u1", GB_DTYPE_UINT8},
                 {"b1", GB_DTYPE_BOOL},
                 {"BOOL", GB_DTYPE_BOOL},
                 {"c16", GB_DTYPE_COMPLEX128},
                 {"C64", GB_DTYPE_COMPLEX64},
                 {"half", GB_DTYPE_FLOAT16},
                 {"double", GB_DTYPE_FLOAT64},
                 {"?", GB_DTYPE_BOOL},
                 {"torch.float", GB_DTYPE_FLOAT32},
                 {"torch.double", GB_DTYPE_FLOAT64},
                 {"torch.long", GB_DTYPE_INT64},
                 {"torch.half", GB_DTYPE_FLOAT16}};
    static const char *const bad[] = {
        "",      "torch.", "torch.F32", "torch.f4",     "f1",     "V2",  "f3", "f4 ",  "f",    "<",
        "4f",    "O8",     "f32",       "torch",        "bf16",   ">f4", ">",  "<>f4", "c16x", "numpy.float32",
        "float", "int",    "byte",      "torch.single", "torch.?"};
    struct gb_error err = GB_ERROR_INIT;
    enum gb_dtype dtype;
    size_t i;

    for (i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        dtype = GB_DTYPE_COUNT;
        gb_assert_ok(gb_dtype_read(given[i].name, strlen(given[i].name), &dtype, &err), err);
        ck_assert_msg(dtype == given[i].dtype, "%s is %s", given[i].name, gb_dtype_name(dtype));
    }
    dtype = GB_DTYPE_COUNT;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        gb_assert_fails(gb_dtype_read(bad[i], strlen(bad[i]), &dtype, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_dtype_read("f4\0", 3, &dtype, &err), err, GB_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(dtype, GB_DTYPE_COUNT);
    gb_dtype_read("float", 5, &dtype, &err);
    ck_assert_ptr_nonnull(strstr(err.detail, "as \"float32\""));
    err = GB_ERROR_INIT;
    gb_dtype_read(">f4", 3, &dtype, &err);
    ck_assert_ptr_nonnull(strstr(err.detail, "give \"<f4\""));
}
END_TEST

START_TEST(dtypes_by_safetensors_name) {
    static const char *const bad[] = {"", "f32", "F3", "F32 ", "F4", "F6_E2M3", "C128"};
    struct gb_error err = GB_ERROR_INIT;
    enum gb_dtype dtype = GB_DTYPE_COUNT;
    unsigned known = 0;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        gb_assert_fails(gb_dtype_parse_safetensors(bad[i], strlen(bad[i]), &dtype, &err), err,
                        GB_ERR_UNSUPPORTED_ARRAY);
    gb_assert_fails(gb_dtype_parse_safetensors("U8\0", 3, &dtype, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
    ck_assert_int_eq(dtype, GB_DTYPE_COUNT);
    for (i = 0; i < GB_DTYPE_COUNT; i++) {
        const char *name = gb_dtype_safetensors((enum gb_dtype)i);

        if (!name)
            continue;
        known++;
        gb_assert_ok(gb_dtype_parse_safetensors(name, strlen(name), &dtype, &err), err);
        ck_assert_uint_eq(dtype, i);
    }
    ck_assert_uint_eq(known, 19);
    ck_assert_ptr_null(gb_dtype_safetensors(GB_DTYPE_COMPLEX128));
    ck_assert_ptr_null(gb_dtype_safetensors(GB_DTYPE_COUNT));
}
END_TEST

START_TEST(dtypes_by_npy_descr) {
    static const struct {
        const char *descr;
        enum gb_dtype dtype;
    } good[] = {
        {"<f4", GB_DTYPE_FLOAT32},     {"=f4", GB_DTYPE_FLOAT32},     {"|b1", GB_DTYPE_BOOL},
        {"<u1", GB_DTYPE_UINT8},       {">i1", GB_DTYPE_INT8},        {"<i8", GB_DTYPE_INT64},
        {"<c16", GB_DTYPE_COMPLEX128}, {"<V2", GB_DTYPE_BFLOAT16},    {"<f1", GB_DTYPE_FLOAT8_E5M2},
        {"|f4", GB_DTYPE_FLOAT32},     {"f4", GB_DTYPE_FLOAT32},      {"<f", GB_DTYPE_FLOAT32},
        {"b1", GB_DTYPE_BOOL},         {"float32", GB_DTYPE_FLOAT32},
    };
    static const char *const bad[] = {">f4", "|O",      "|V2", "|V1", "<V1",  "<V3", ">V2", ">f1", "<f16", "<U3",
                                      "|S5", "<M8[ns]", "<",   "",    "<f4 ", "<c1", ">f",  "f1",  "V2",   "<float32"};
    struct gb_error err = GB_ERROR_INIT;
    enum gb_dtype dtype = GB_DTYPE_COUNT;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        gb_assert_fails(gb_dtype_parse_npy(bad[i], strlen(bad[i]), &dtype, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
    gb_assert_fails(gb_dtype_parse_npy("<\0004", 3, &dtype, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
    ck_assert_int_eq(dtype, GB_DTYPE_COUNT);
    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        gb_assert_ok(gb_dtype_parse_npy(good[i].descr, strlen(good[i].descr), &dtype, &err), err);
        ck_assert_int_eq(dtype, good[i].dtype);
    }
    for (i = 0; i < GB_DTYPE_COUNT; i++) {
        const char *descr = gb_dtype_npy((enum gb_dtype)i);

        if (!descr)
            continue;
        gb_assert_ok(gb_dtype_parse_npy(descr, strlen(descr), &dtype, &err), err);
        ck_assert_uint_eq(dtype, i);
    }
    ck_assert_str_eq(gb_dtype_npy(GB_DTYPE_BFLOAT16), "<V2");
    ck_assert_ptr_null(gb_dtype_npy(GB_DTYPE_FLOAT8_E5M2)); /* numpy cannot read "<f1" */
    gb_dtype_parse_npy(">f4", 3, &dtype, &err);
    ck_assert_ptr_nonnull(strstr(err.detail, "big-endian"));
    err = GB_ERROR_INIT;
    gb_dtype_parse_npy("|O", 2, &dtype, &err);
    ck_assert_ptr_nonnull(strstr(err.detail, "Python objects"));
}
END_TEST

START_TEST(shapes_and_text) {
    static const struct {
        const char *text;
        const char *again;
        unsigned dims;
    } good[] = {
        {"", "", 0},
        {"5", "5", 1},
        {"5,", "5", 1},
        {"2,3,4", "2,3,4", 3},
        {"2,3,4,", "2,3,4", 3},
        {"0,18446744073709551615", "0,18446744073709551615", 2},
        {"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", 16},
        {"007", "7", 1},
    };
    static const char *const bad[] = {",",
                                      "1,,2",
                                      "1,2,,",
                                      ",1",
                                      "-1",
                                      "1,-2",
                                      "a",
                                      "1 ,2",
                                      "18446744073709551616",
                                      "0x1",
                                      "1.5",
                                      "(2, 3)",
                                      "1;2",
                                      "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_shape shape = {.dims = 99};
    char text[GB_SHAPE_TEXT_SIZE];
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        gb_assert_fails(gb_shape_parse(bad[i], strlen(bad[i]), &shape, &err), err, GB_ERR_INVALID_ARGUMENT);
    ck_assert_uint_eq(shape.dims, 99);
    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        gb_assert_ok(gb_shape_parse(good[i].text, strlen(good[i].text), &shape, &err), err);
        ck_assert_uint_eq(shape.dims, good[i].dims);
        gb_shape_text(&shape, text);
        ck_assert_str_eq(text, good[i].again);
    }
    shape.dims = GB_DIMS_MAX;
    for (i = 0; i < GB_DIMS_MAX; i++)
        shape.dim[i] = UINT64_MAX;
    gb_shape_text(&shape, text);
    ck_assert_uint_eq(strlen(text), GB_DIMS_MAX * 21 - 1);
}
END_TEST

START_TEST(bytes_of_shapes) {
    static const struct {
        struct gb_shape shape;
        enum gb_dtype dtype;
        uint64_t bytes;
    } good[] = {
        {{0, {0}}, GB_DTYPE_FLOAT64, 8},
        {{3, {2, 3, 4}}, GB_DTYPE_FLOAT32, 96},
        {{3, {2, 0, 4}}, GB_DTYPE_FLOAT32, 0},
        {{2, {INT64_MAX, 0}}, GB_DTYPE_UINT8, 0},
        {{2, {0, INT64_MAX / 4}}, GB_DTYPE_FLOAT32, 0},
        {{1, {INT64_MAX}}, GB_DTYPE_UINT8, INT64_MAX},
        {{1, {(1ULL << 62) - 1}}, GB_DTYPE_UINT16, (1ULL << 63) - 2},
        {{2, {1ULL << 31, (1ULL << 32) - 1}}, GB_DTYPE_BOOL, ((1ULL << 32) - 1) << 31},
    };
    static const struct {
        struct gb_shape shape;
        enum gb_dtype dtype;
    } bad[] = {
        {{1, {UINT64_MAX}}, GB_DTYPE_UINT8},
        {{1, {1ULL << 63}}, GB_DTYPE_UINT8},
        {{2, {UINT64_MAX, 0}}, GB_DTYPE_UINT8},
        {{2, {0, 1ULL << 63}}, GB_DTYPE_UINT8},
        {{3, {1ULL << 32, 1ULL << 31, 0}}, GB_DTYPE_UINT8},
        {{1, {1ULL << 62}}, GB_DTYPE_UINT16},
        {{2, {INT64_MAX / 4 + 1, 0}}, GB_DTYPE_FLOAT32},
        {{2, {1ULL << 31, 1ULL << 32}}, GB_DTYPE_BOOL},
        {{1, {UINT64_MAX}}, GB_DTYPE_UINT16},
        {{1, {1ULL << 61}}, GB_DTYPE_FLOAT64},
        {{2, {1ULL << 32, 1ULL << 32}}, GB_DTYPE_BOOL},
        {{3, {3, 1ULL << 33, 1ULL << 33}}, GB_DTYPE_BOOL},
    };
    struct gb_error err = GB_ERROR_INIT;
    uint64_t bytes = 4711;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        gb_assert_fails(gb_shape_bytes(&bad[i].shape, bad[i].dtype, &bytes, &err), err, GB_ERR_INVALID_ARGUMENT);
    ck_assert_uint_eq(bytes, 4711);
    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        gb_assert_ok(gb_shape_bytes(&good[i].shape, good[i].dtype, &bytes, &err), err);
        ck_assert_uint_eq(bytes, good[i].bytes);
    }
}
END_TEST

/* What each set of scopes permits, in the order of the enum. */
START_TEST(sets_of_scopes) {
    static const struct {
        const char *text;
        const char *as;
        bool permits[GB_SCOPE_COUNT];
    } good[] = {
        {"verify", "verify", {true}},
        {"read", "read", {true, true}},
        {"write", "write", {true, true, true}},
        {"map", "map", {false, false, false, true}},
        {"map-write", "map-write", {false, false, false, true, true}},
        {"map,read", "read,map", {true, true, false, true}},
        {"write,map-write,write", "write,map-write", {true, true, true, true, true}},
        {"admin", "admin", {true, true, true, true, true, true, true}},
        {"fleet", "fleet", {false, false, false, false, false, false, true}},
        {"read,write,map,map-write,admin",
         "read,write,map,map-write,admin",
         {true, true, true, true, true, true, true}},
    };
    static const char *const bad[] = {"", ",", "read,", ",read", "read, map", "map_write", "read,god"};
    struct gb_error err = GB_ERROR_INIT;
    char text[GB_SCOPES_SIZE];
    unsigned scopes;
    size_t i;
    int k;

    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        gb_assert_ok(gb_scopes_parse(good[i].text, strlen(good[i].text), &scopes, &err), err);
        ck_assert_str_eq(gb_scopes_text(scopes, text), good[i].as);
        for (k = 0; k < GB_SCOPE_COUNT; k++)
            ck_assert_msg(gb_scopes_include(scopes, (enum gb_scope)k) == good[i].permits[k], "%s, %d", text, k);
    }
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        gb_assert_fails(gb_scopes_parse(bad[i], strlen(bad[i]), &scopes, &err), err, GB_ERR_INVALID_ARGUMENT);
    ck_assert_str_eq(gb_scopes_text(0, text), "");
}
END_TEST

START_TEST(words) {
    static const char *const kinds[] = {"device", "shared", "managed", "pinned", "pageable", "ipc"};
    static const char *const ways[] = {"vmm", "pool", "legacy", "memfd"};
    static const char *const scopes[] = {"verify", "read", "write", "map", "map-write", "admin", "fleet"};
    struct gb_error err = GB_ERROR_INIT;
    enum gb_kind kind = GB_KIND_COUNT;
    enum gb_export_way way = GB_EXPORT_WAYS;
    enum gb_scope scope = GB_SCOPE_COUNT;
    int i;

    for (i = 0; i < GB_KIND_COUNT; i++) {
        ck_assert_str_eq(gb_kind_name((enum gb_kind)i), kinds[i]);
        gb_assert_ok(gb_kind_parse(kinds[i], strlen(kinds[i]), &kind, &err), err);
        ck_assert_int_eq(kind, i);
    }
    for (i = 0; i < GB_SCOPE_COUNT; i++) {
        ck_assert_str_eq(gb_scope_name((enum gb_scope)i), scopes[i]);
        gb_assert_ok(gb_scope_parse(scopes[i], strlen(scopes[i]), &scope, &err), err);
        ck_assert_int_eq(scope, i);
    }
    for (i = 0; i < GB_EXPORT_WAYS; i++) {
        ck_assert_str_eq(gb_export_way_name((enum gb_export_way)i), ways[i]);
        gb_assert_ok(gb_export_way_find(ways[i], strlen(ways[i]), &way, &err), err);
        ck_assert_int_eq(way, i);
    }
    ck_assert_str_eq(gb_export_way_name(GB_EXPORT_WAYS), "unknown");
    gb_assert_fails(gb_export_way_find("fd", 2, &way, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_kind_parse("Device", 6, &kind, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_kind_parse("gpu", 3, &kind, &err);
    ck_assert_str_eq(err.detail, "the kind \"gpu\" is not permitted; permitted are device, shared, managed, pinned, "
                                 "pageable, ipc");
    err = GB_ERROR_INIT;
    gb_assert_fails(gb_scope_parse("", 0, &scope, &err), err, GB_ERR_INVALID_ARGUMENT);
    ck_assert_str_eq(gb_buffer_state_name(GB_BUFFER_READY), "ready");
    ck_assert_str_eq(gb_buffer_state_name(GB_BUFFER_PARTIAL), "partial");
    ck_assert_str_eq(gb_buffer_state_name(GB_BUFFER_LOST), "lost");
    ck_assert_str_eq(gb_kind_name(GB_KIND_COUNT), "unknown");
    ck_assert_str_eq(gb_scope_name(GB_SCOPE_COUNT), "unknown");
    ck_assert_str_eq(gb_buffer_state_name((enum gb_buffer_state)9), "unknown");
}
END_TEST

START_TEST(words_of_devices) {
    struct gb_error err = GB_ERROR_INIT;
    enum gb_pool_access access = GB_POOL_ACCESS_COUNT;
    int i;

    ck_assert_str_eq(gb_capability_name(GB_CAP_MEMORY_POOLS), "memory_pools");
    ck_assert_str_eq(gb_capability_name(GB_CAP_LEGACY_IPC), "legacy_ipc");
    ck_assert_str_eq(gb_capability_name(GB_CAP_COUNT), "unknown");
    ck_assert_str_eq(gb_memory_type_name(GB_MEMORY_MANAGED), "managed");
    ck_assert_str_eq(gb_memory_type_name(GB_MEMORY_TYPE_COUNT), "unknown");
    ck_assert_str_eq(gb_copy_way_name(GB_WAY_FROM_DEVICE), "from_device");
    ck_assert_str_eq(gb_copy_way_name(GB_WAY_STAGED), "staged");
    ck_assert_str_eq(gb_copy_way_name(GB_WAY_COUNT), "unknown");
    for (i = 0; i < GB_POOL_ACCESS_COUNT; i++) {
        const char *name = gb_pool_access_name((enum gb_pool_access)i);

        gb_assert_ok(gb_pool_access_parse(name, strlen(name), &access, &err), err);
        ck_assert_int_eq(access, i);
    }
    gb_assert_fails(gb_pool_access_parse("read", 4, &access, &err), err, GB_ERR_INVALID_ARGUMENT);
}
END_TEST

/* Each reason is counted for the operations in which it can occur. Each code leads to its reason. Failures without a
 * reason count as `other`. */
START_TEST(test_failures) {
    struct gb_counters c = {.allocation_failures = 7, .uploads_failed = 2, .downloads_failed = 1};

    c.allocation_failures_quota_exceeded = 3;
    c.uploads_failed_incomplete_body = 2;
    ck_assert_uint_eq(gb_counters_failed(&c, GB_FAILED_ALLOCATION, GB_FAILURE_quota_exceeded), 3);
    ck_assert_uint_eq(gb_counters_failed(&c, GB_FAILED_ALLOCATION, GB_FAILURE_incomplete_body), 0);
    ck_assert_uint_eq(gb_counters_failed(&c, GB_FAILED_UPLOAD, GB_FAILURE_incomplete_body), 2);
    gb_counters_explain(&c);
    ck_assert_uint_eq(c.allocation_failures_other, 4);
    ck_assert_uint_eq(c.uploads_failed_other, 0);
    ck_assert_uint_eq(c.downloads_failed_other, 1);
    gb_counters_explain(&c);
    ck_assert_uint_eq(c.allocation_failures_other, 4);
    ck_assert_int_eq(gb_failure_of(GB_ERR_OUT_OF_MEMORY, GB_FAILED_POOL), GB_FAILURE_out_of_memory);
    ck_assert_int_eq(gb_failure_of(GB_ERR_QUOTA_EXCEEDED, GB_FAILED_ALLOCATION), GB_FAILURE_quota_exceeded);
    ck_assert_int_eq(gb_failure_of(GB_ERR_QUOTA_EXCEEDED, GB_FAILED_POOL), GB_FAILURE_other);
    ck_assert_int_eq(gb_failure_of(GB_ERR_SHAPE_MISMATCH, GB_FAILED_UPLOAD), GB_FAILURE_other);
    ck_assert_str_eq(gb_failure_name(GB_FAILURE_pool_limit), "pool_limit");
    ck_assert(gb_failure_may(GB_FAILURE_pool_limit, GB_FAILED_POOL));
    ck_assert(!gb_failure_may(GB_FAILURE_pool_limit, GB_FAILED_DOWNLOAD));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("model");

    gb_test_add(suite, "dtypes", dtypes_by_name, 30);
    gb_test_add(suite, "dtypes of others", dtypes_by_the_names_of_others, 10);
    gb_test_add(suite, "unknown_dtypes", unknown_dtypes_are_told_the_known, 30);
    gb_test_add(suite, "safetensors", dtypes_by_safetensors_name, 30);
    gb_test_add(suite, "npy", dtypes_by_npy_descr, 30);
    gb_test_add(suite, "shapes", shapes_and_text, 30);
    gb_test_add(suite, "bytes", bytes_of_shapes, 30);
    gb_test_add(suite, "words", words, 30);
    gb_test_add(suite, "sets of scopes", sets_of_scopes, 30);
    gb_test_add(suite, "words of devices", words_of_devices, 10);
    gb_test_add(suite, "failures", test_failures, 4);
    return gb_test_run(suite);
}
