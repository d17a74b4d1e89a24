/* What files become in memory, which ranges of them the parts read, and what may be asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"
#include "source/source.h"

static struct gb_error err;

static void setup(void) {
    err = GB_ERROR_INIT;
}

/* A safetensors file with that header. Returns the length of header and length. */
static size_t safetensors(const char *header, char *ret) {
    size_t n = strlen(header);

    memset(ret, 0, 8);
    ret[0] = (char)(n & 0xff);
    ret[1] = (char)(n >> 8);
    memcpy(ret + 8, header, n);
    return n + 8;
}

#define TWO                                                                                                            \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"                                                  \
    "\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[3,3]},"                                                   \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[300],\"data_offsets\":[3,303]}}"
#define ONE "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}"

/* --- formats ------------------------------------------------------------------------------------------------------ */

static const struct {
    enum gb_image_format said;
    bool has_dtype;
    enum gb_image_format named;
    const char *head;
    size_t n;
    enum gb_image_format format;
    enum gb_code code;
} looks[] = {
    {GB_IMAGE_AUTO, false, GB_IMAGE_AUTO, "", 0, GB_IMAGE_RAW, GB_OK},
    {GB_IMAGE_AUTO, false, GB_IMAGE_SAFETENSORS, "plain bytes.", 12, GB_IMAGE_SAFETENSORS, GB_ERR_UNSUPPORTED_ARRAY},
    {GB_IMAGE_AUTO, false, GB_IMAGE_SAFETENSORS, "version https://", 16, GB_IMAGE_SAFETENSORS,
     GB_ERR_UNSUPPORTED_ARRAY},
    {GB_IMAGE_AUTO, false, GB_IMAGE_SAFETENSORS, "\x10\0\0\0\0\0\0\0[\"a\"", 12, GB_IMAGE_SAFETENSORS,
     GB_ERR_UNSUPPORTED_ARRAY},
    {GB_IMAGE_AUTO, false, GB_IMAGE_SAFETENSORS, "", 0, GB_IMAGE_SAFETENSORS, GB_ERR_UNSUPPORTED_ARRAY},
    {GB_IMAGE_AUTO, false, GB_IMAGE_SAFETENSORS, "\x93NUMPY\x01\x00\x76\x00{'", 12, GB_IMAGE_SAFETENSORS,
     GB_ERR_UNSUPPORTED_ARRAY},
    {GB_IMAGE_AUTO, true, GB_IMAGE_SAFETENSORS, "plain bytes.", 12, GB_IMAGE_RAW, GB_OK},
    {GB_IMAGE_AUTO, false, GB_IMAGE_NPY, "\x93NUMPY\x01\x00\x76\x00{'", 12, GB_IMAGE_NPY, GB_OK},
    {GB_IMAGE_AUTO, false, GB_IMAGE_NPY, "plain bytes.", 12, GB_IMAGE_NPY, GB_ERR_UNSUPPORTED_ARRAY},
    {GB_IMAGE_AUTO, false, GB_IMAGE_NPY, "", 0, GB_IMAGE_NPY, GB_ERR_UNSUPPORTED_ARRAY},
    {GB_IMAGE_RAW, false, GB_IMAGE_NPY, "plain bytes.", 12, GB_IMAGE_RAW, GB_OK},
    {GB_IMAGE_AUTO, false, GB_IMAGE_AUTO, "\x93NUMPY\x01\x00\x76\x00{'", 12, GB_IMAGE_NPY, GB_OK},
    {GB_IMAGE_AUTO, true, GB_IMAGE_AUTO, "\x93NUMPY\x01\x00\x76\x00{'", 12, GB_IMAGE_RAW, GB_ERR_INVALID_ARGUMENT},
    {GB_IMAGE_RAW, true, GB_IMAGE_AUTO, "\x93NUMPY\x01\x00\x76\x00{'", 12, GB_IMAGE_RAW, GB_OK},
    {GB_IMAGE_AUTO, false, GB_IMAGE_AUTO, "\x93NUMPY\x09\x00\x76\x00{'", 12, GB_IMAGE_NPY, GB_ERR_UNSUPPORTED_ARRAY},
    {GB_IMAGE_AUTO, false, GB_IMAGE_AUTO, "\x93NUMPY\x01", 7, GB_IMAGE_NPY, GB_ERR_UNSUPPORTED_ARRAY},
    {GB_IMAGE_NPY, false, GB_IMAGE_AUTO, "plain bytes.", 12, GB_IMAGE_NPY, GB_ERR_UNSUPPORTED_ARRAY},
    {GB_IMAGE_AUTO, false, GB_IMAGE_SAFETENSORS, "\x10\0\0\0\0\0\0\0{\"a\"", 12, GB_IMAGE_SAFETENSORS, GB_OK},
    {GB_IMAGE_AUTO, false, GB_IMAGE_AUTO, "\x10\0\0\0\0\0\0\0{\"a\"", 12, GB_IMAGE_RAW, GB_OK},
    {GB_IMAGE_AUTO, true, GB_IMAGE_SAFETENSORS, "\x10\0\0\0\0\0\0\0{\"a\"", 12, GB_IMAGE_RAW, GB_OK},
    {GB_IMAGE_AUTO, false, GB_IMAGE_SAFETENSORS, "\0\0\0\0\x01\0\0\0{\"a\"", 12, GB_IMAGE_SAFETENSORS,
     GB_ERR_BODY_TOO_LARGE},
    {GB_IMAGE_SAFETENSORS, false, GB_IMAGE_AUTO, "plain bytes.", 12, GB_IMAGE_SAFETENSORS, GB_ERR_UNSUPPORTED_ARRAY},
    {GB_IMAGE_SAFETENSORS, false, GB_IMAGE_AUTO, "\x10", 1, GB_IMAGE_SAFETENSORS, GB_ERR_UNSUPPORTED_ARRAY},
};

START_TEST(the_first_bytes_tell) {
    struct gb_image_ask ask = {.format = looks[_i].said, .has_dtype = looks[_i].has_dtype};
    enum gb_image_format format;
    size_t need;
    int r = gb_image_look(&ask, looks[_i].head, looks[_i].n, looks[_i].named, &format, &need, &err);

    ck_assert_int_eq(format, looks[_i].format);
    ck_assert_str_eq(gb_code_slug(err.code), gb_code_slug(looks[_i].code));
    ck_assert_int_eq(r, looks[_i].code == GB_OK ? 0 : -1);
    if (r == 0)
        ck_assert_uint_eq(need, format == GB_IMAGE_NPY ? 128 : format == GB_IMAGE_SAFETENSORS ? 24 : 0);
}
END_TEST

START_TEST(raw_bytes_have_what_is_said) {
    struct gb_image_ask ask = {.has_dtype = true, .dtype = GB_DTYPE_FLOAT32};
    struct gb_image image;

    gb_assert_ok(gb_image_plan(&ask, GB_IMAGE_RAW, "", 0, 24, &image, &err), err);
    ck_assert_uint_eq(image.shape.dim[0], 6);
    gb_assert_fails(gb_image_plan(&ask, GB_IMAGE_RAW, "", 0, 25, &image, &err), err, GB_ERR_SHAPE_MISMATCH);
    gb_assert_fails(gb_image_plan(&ask, GB_IMAGE_RAW, "", 0, UINT64_MAX - 7, &image, &err), err,
                    GB_ERR_INVALID_ARGUMENT);
    gb_assert_ok(gb_image_plan(&ask, GB_IMAGE_RAW, "", 0, GB_UNLIMITED, &image, &err), err);
    ck_assert(image.open);
    ask.has_shape = true;
    ask.shape = (struct gb_shape){.dims = 2, .dim = {2, 3}};
    gb_assert_ok(gb_image_plan(&ask, GB_IMAGE_RAW, "", 0, GB_UNLIMITED, &image, &err), err);
    ck_assert(!image.open);
    ck_assert_uint_eq(image.bytes, 24);
    gb_assert_fails(gb_image_plan(&ask, GB_IMAGE_RAW, "", 0, 28, &image, &err), err, GB_ERR_SHAPE_MISMATCH);
}
END_TEST

START_TEST(one_tensor_is_an_array) {
    struct gb_image_ask ask = {.format = GB_IMAGE_AUTO};
    struct gb_image image;
    char head[256];
    size_t n = safetensors(ONE, head);
    uint64_t file;
    bool gap;

    gb_assert_ok(gb_image_plan(&ask, GB_IMAGE_SAFETENSORS, head, n, n + 24, &image, &err), err);
    ck_assert_ptr_null(image.table);
    ck_assert_int_eq(image.dtype, GB_DTYPE_FLOAT32);
    ck_assert_uint_eq(gb_image_run(&image, 4, &gap, &file), 20);
    ck_assert_uint_eq(file, n + 4);
    ck_assert(!gap);
    gb_image_done(&image);
    gb_assert_fails(gb_image_plan(&ask, GB_IMAGE_SAFETENSORS, head, n, n + 25, &image, &err), err,
                    GB_ERR_SHAPE_MISMATCH);
    gb_image_done(&image);
    ask.pack = true;
    gb_assert_ok(gb_image_plan(&ask, GB_IMAGE_SAFETENSORS, head, n, n + 24, &image, &err), err);
    ck_assert_ptr_nonnull(image.table);
    gb_image_done(&image);
}
END_TEST

static const struct {
    const char *header;
    int more; /* bytes than the header says */
    enum gb_code code;
} damaged[] = {
    {"{}", 0, GB_ERR_UNSUPPORTED_ARRAY},
    {"{\"a\":3}", 0, GB_ERR_UNSUPPORTED_ARRAY},
    {TWO, 1, GB_ERR_SHAPE_MISMATCH},
    {TWO, -1, GB_ERR_SHAPE_MISMATCH},
};

START_TEST(damaged_files_are_refused) {
    struct gb_image_ask ask = {.format = GB_IMAGE_AUTO};
    struct gb_image image;
    char head[256];
    size_t n = safetensors(damaged[_i].header, head);

    gb_assert_fails(
        gb_image_plan(&ask, GB_IMAGE_SAFETENSORS, head, n, n + 303 + (uint64_t)damaged[_i].more, &image, &err), err,
        damaged[_i].code);
    gb_image_done(&image);
    /* A file that ends within its header. */
    gb_assert_fails(gb_image_plan(&ask, GB_IMAGE_SAFETENSORS, head, n, n - 1, &image, &err), err,
                    GB_ERR_UNSUPPORTED_ARRAY);
    gb_image_done(&image);
}
END_TEST

/* --- memory and file ---------------------------------------------------------------------------------------------- */

/* Writes the memory in steps of at most `step` bytes, as parts do. */
static void write_memory(const struct gb_image *image, const char *file, uint64_t step, char *ret) {
    uint64_t at;
    uint64_t run;
    uint64_t from;
    bool gap;

    for (at = 0; at < image->bytes; at += run) {
        run = gb_image_run(image, at, &gap, &from);
        ck_assert_uint_gt(run, 0);
        run = run < step ? run : step;
        ck_assert_uint_le(at + run, image->bytes);
        if (gap)
            memset(ret + at, 0, run);
        else
            memcpy(ret + at, file + from, run);
    }
}

START_TEST(a_table_has_gaps) {
    struct gb_image_ask ask = {.format = GB_IMAGE_AUTO};
    const struct gb_safetensor *tensor;
    struct gb_image image;
    char memory[2048];
    char file[1024];
    size_t n = safetensors(TWO, file);
    uint64_t at;
    size_t i;

    for (i = 0; i < 303; i++)
        file[n + i] = (char)(i % 251 + 1);
    gb_assert_ok(gb_image_plan(&ask, GB_IMAGE_SAFETENSORS, file, n, n + 303, &image, &err), err);
    ck_assert_uint_eq(image.file_bytes, n + 303);
    memset(memory, 0x55, sizeof(memory));
    write_memory(&image, file, (uint64_t)_i + 1, memory);
    ck_assert_int_eq(memcmp(memory, file, n), 0);
    for (i = 0; i < gb_table_count(image.table); i++) {
        tensor = gb_table_tensor(image.table, i, &at);
        ck_assert_int_eq(memcmp(memory + at, file + n + tensor->begin, tensor->end - tensor->begin), 0);
    }
    gb_table_tensor(image.table, 0, &at);
    ck_assert_int_eq(memory[at + 3], 0);
    ck_assert_int_eq(memory[at + 255], 0);
    gb_image_done(&image);
}
END_TEST

static const struct {
    uint64_t bytes;
    unsigned wanted;
    unsigned count;
} cuts[] = {
    {0, 4, 0},
    {1, 4, 1},
    {8u << 20, 16, 1},
    {(8u << 20) + 1, 16, 2},
    {100u << 20, 0, 4},
    {100u << 20, 16, 13},
    {UINT64_MAX >> 1, 16, 16},
};

START_TEST(parts_cover_all_bytes_once) {
    uint64_t at[GB_PULL_CONNECTIONS_MAX];
    uint64_t bytes[GB_PULL_CONNECTIONS_MAX];
    unsigned n = gb_fetch_cut(cuts[_i].bytes, cuts[_i].wanted, at, bytes);
    uint64_t end = 0;
    unsigned i;

    ck_assert_uint_eq(n, cuts[_i].count);
    for (i = 0; i < n; i++) {
        ck_assert_uint_eq(at[i], end);
        ck_assert_uint_gt(bytes[i], 0);
        end += bytes[i];
    }
    ck_assert_uint_eq(end, cuts[_i].bytes);
}
END_TEST

/* --- what may be asked for ---------------------------------------------------------------------------------------- */

START_TEST(headers_of_the_connection_are_the_daemons) {
    static const char *const mine[] = {"Authorization", "X-Amz-Date", "Cookie", "accept", "User-Agent"};
    static const char *const its[] = {"Host",
                                      "range",
                                      "If-Match",
                                      "IF-RANGE",
                                      "Content-Type",
                                      "TE",
                                      "Upgrade",
                                      "Transfer-Encoding",
                                      "Accept-Encoding",
                                      "Expect",
                                      "",
                                      "a b",
                                      "a:b",
                                      "\xc3\xa4"};
    size_t i;

    for (i = 0; i < sizeof(mine) / sizeof(mine[0]); i++)
        ck_assert_msg(gb_source_header_permitted(mine[i], strlen(mine[i])), "%s", mine[i]);
    for (i = 0; i < sizeof(its) / sizeof(its[0]); i++)
        ck_assert_msg(!gb_source_header_permitted(its[i], strlen(its[i])), "%s", its[i]);
}
END_TEST

START_TEST(urls_have_an_origin) {
    static const char *const wrong[] = {"",
                                        "x",
                                        "ftp://h/",
                                        "http://",
                                        "http://u@h/",
                                        "http://h/ ",
                                        "http://h/#f",
                                        "http://h/\x80",
                                        "http://u:p@h/?secret"};
    char origin[GB_PULL_ORIGIN_SIZE];
    size_t i;

    gb_assert_ok(gb_source_url_read("HTTPS://Bucket.Example/a%2Fb?X=%2F&y", origin, &err), err);
    ck_assert_str_eq(origin, "https://bucket.example:443");
    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_int_eq(gb_source_url_read(wrong[i], origin, &err), -1);
        ck_assert_ptr_null(strstr(err.detail, "secret"));
        err = GB_ERROR_INIT;
    }
}
END_TEST

START_TEST(paths_stay_below) {
    static const char *const right[] = {"a", "a/b.c", "..a/b..", "a/./b"};
    static const char *const wrong[] = {"", "/a", "..", "../a", "a/..", "a/../b", "a//b", "a/"};
    size_t i;

    for (i = 0; i < sizeof(right) / sizeof(right[0]); i++)
        gb_assert_ok(gb_source_file_read(right[i], &err), err);
    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        gb_assert_fails(gb_source_file_read(wrong[i], &err), err, GB_ERR_INVALID_ARGUMENT);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("source_image");
    TCase *tc = tcase_create("images");

    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_loop_test(tc, the_first_bytes_tell, 0, sizeof(looks) / sizeof(looks[0]));
    tcase_add_test(tc, raw_bytes_have_what_is_said);
    tcase_add_test(tc, one_tensor_is_an_array);
    tcase_add_loop_test(tc, damaged_files_are_refused, 0, sizeof(damaged) / sizeof(damaged[0]));
    tcase_add_loop_test(tc, a_table_has_gaps, 0, 40);
    tcase_add_loop_test(tc, parts_cover_all_bytes_once, 0, sizeof(cuts) / sizeof(cuts[0]));
    tcase_add_test(tc, headers_of_the_connection_are_the_daemons);
    tcase_add_test(tc, urls_have_an_origin);
    tcase_add_test(tc, paths_stay_below);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
