/* URLs of sources, and what a source says of itself. */
#include <stdlib.h>
#include <string.h>

#include "fleet/pull/source.h"
#include "gb_test.h"

static struct gb_error err;

static void setup(void) {
    err = GB_ERROR_INIT;
}

static const struct {
    const char *text;
    const char *origin;
} urls[] = {
    {"http://h/v1/sessions/s/buffers/b", "http://h:80"},
    {"HTTP://Host.Example:7070/v1/sessions/s/buffers/b", "http://host.example:7070"},
    {"https://h/v1/sessions/s/buffers/b", "https://h:443"},
    {"http://[::1]:1/v1/sessions/s/buffers/b", "http://[::1]:1"},
};

START_TEST(urls_of_buffers) {
    struct gb_pull_url url;

    ck_assert(gb_pull_url_is(urls[_i].text));
    ck_assert_int_eq(gb_pull_url_read(urls[_i].text, &url, &err), 0);
    ck_assert_str_eq(url.origin, urls[_i].origin);
    ck_assert_str_eq(url.session.s, "s");
    ck_assert_str_eq(url.buffer.s, "b");
}
END_TEST

START_TEST(names_are_no_urls) {
    ck_assert(!gb_pull_url_is("s/b"));
    ck_assert(!gb_pull_url_is("b"));
}
END_TEST

static const char *const wrong[] = {
    "http://",
    "http://h",
    "http://h/v1/sessions/s/buffers/",
    "http://h/v1/sessions//buffers/b",
    "http://h/v1/sessions/s/buffers/b/",
    "http://h/v1/sessions/s/buffers/b?a=b",
    "http://h/v1/sessions/s/buffers/b#a",
    "http://h/v1/sessions/s/buffers/a%2fb",
    "http://h/v2/sessions/s/buffers/b",
    "http://h/x/../v1/sessions/s/buffers/b",
    "http://u@h/v1/sessions/s/buffers/b",
    "http://u:p@h/v1/sessions/s/buffers/b",
    "http://h:0x50/v1/sessions/s/buffers/b",
    "gopher://h/v1/sessions/s/buffers/b",
};

START_TEST(urls_of_nothing) {
    struct gb_pull_url url;

    ck_assert_int_eq(gb_pull_url_read(wrong[_i], &url, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(origins) {
    char origin[GB_PULL_ORIGIN_SIZE];

    ck_assert_int_eq(gb_pull_origin_read("http://H:7070", origin, &err), 0);
    ck_assert_str_eq(origin, "http://h:7070");
    ck_assert_int_eq(gb_pull_origin_read("https://h/", origin, &err), 0);
    ck_assert_str_eq(origin, "https://h:443");
    ck_assert_int_eq(gb_pull_origin_read("http://h/v1", origin, NULL), -1);
    ck_assert_int_eq(gb_pull_origin_read("http://h?x", origin, NULL), -1);
    ck_assert_int_eq(gb_pull_origin_read("h:7070", origin, NULL), -1);
    ck_assert_int_eq(gb_pull_origin_read("", origin, NULL), -1);
}
END_TEST

START_TEST(a_record) {
    static const char text[] = "{\"name\":\"x\",\"bytes\":24,\"dtype\":\"float32\",\"shape\":[2,3],\"generation\":7,"
                               "\"labels\":{\"a\":\"b\"},\"a member of a later version\":[1]}";
    struct gb_pull_source source = {.bytes = 0};

    ck_assert_int_eq(gb_pull_record_read(text, sizeof(text) - 1, &source, &err), 0);
    ck_assert_uint_eq(source.bytes, 24);
    ck_assert_uint_eq(source.generation, 7);
    ck_assert_int_eq(source.dtype, GB_DTYPE_FLOAT32);
    ck_assert(source.shape.dims == 2 && source.shape.dim[1] == 3);
    ck_assert_str_eq(gb_labels_text(source.labels), "{\"a\":\"b\"}");
    ck_assert(!source.sealed);
    gb_text_unref(source.labels);
}
END_TEST

START_TEST(a_record_of_sealed_bytes) {
    static const char text[] = "{\"bytes\":1,\"dtype\":\"uint8\",\"shape\":[1],\"labels\":{},\"sealed\":true}";
    struct gb_pull_source source = {.bytes = 0};

    ck_assert_int_eq(gb_pull_record_read(text, sizeof(text) - 1, &source, &err), 0);
    ck_assert(source.sealed);
    gb_text_unref(source.labels);
}
END_TEST

static const struct gb_pull_source whole = {.bytes = 8,
                                            .dtype = GB_DTYPE_UINT8,
                                            .shape = {.dims = 1, .dim = {8}},
                                            .sealed = true,
                                            .has_crc32c = true,
                                            .crc32c = 1};

START_TEST(the_same_bytes) {
    struct gb_pull_source other = whole;

    strcpy(other.tag, "\"9.9.b\""); /* each daemon has its own, and generations too */
    other.generation = 9;
    ck_assert(gb_pull_same_bytes(&whole, &other, false));
    other.has_crc32c = false;
    ck_assert(!gb_pull_same_bytes(&whole, &other, false));
    ck_assert(!gb_pull_same_bytes(&other, &whole, false));
    ck_assert(gb_pull_same_bytes(&whole, &other, true)); /* the digest is compared with all bytes in the end */
}
END_TEST

START_TEST(other_bytes) {
    struct gb_pull_source others[] = {whole, whole, whole, whole, whole};
    size_t i;

    others[0].sealed = false;
    others[1].bytes = 9;
    others[2].dtype = GB_DTYPE_INT8;
    others[3].shape = (struct gb_shape){.dims = 2, .dim = {2, 4}};
    others[4].crc32c = 2;
    for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        ck_assert(!gb_pull_same_bytes(&whole, &others[i], true));
        ck_assert(!gb_pull_same_bytes(&others[i], &whole, true));
    }
}
END_TEST

static const char *const records[] = {
    "",
    "[]",
    "{\"bytes\":4",
    "{\"bytes\":4,\"bytes\":5,\"dtype\":\"uint8\",\"shape\":[4],\"labels\":{}}",
    "{\"bytes\":4.5,\"dtype\":\"uint8\",\"shape\":[4],\"labels\":{}}",
    "{\"bytes\":4,\"dtype\":\"uint8\",\"shape\":[-4],\"labels\":{}}",
    "{\"bytes\":4,\"dtype\":\"uint8\",\"shape\":4,\"labels\":{}}",
    "{\"bytes\":4,\"dtype\":\"uint9\",\"shape\":[4],\"labels\":{}}",
    "{\"bytes\":4,\"dtype\":\"uint8\",\"shape\":[4]}",
    "{\"bytes\":4,\"dtype\":\"uint8\",\"shape\":[9223372036854775807,9223372036854775807],\"labels\":{}}",
};

START_TEST(no_record) {
    struct gb_pull_source source = {.bytes = 0};

    ck_assert_int_eq(gb_pull_record_read(records[_i], strlen(records[_i]), &source, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_SOURCE_REFUSED);
    ck_assert_ptr_null(source.labels);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("source");
    TCase *tcase = tcase_create("source");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_loop_test(tcase, urls_of_buffers, 0, sizeof(urls) / sizeof(urls[0]));
    tcase_add_test(tcase, names_are_no_urls);
    tcase_add_loop_test(tcase, urls_of_nothing, 0, sizeof(wrong) / sizeof(wrong[0]));
    tcase_add_test(tcase, origins);
    tcase_add_test(tcase, a_record);
    tcase_add_test(tcase, a_record_of_sealed_bytes);
    tcase_add_test(tcase, the_same_bytes);
    tcase_add_test(tcase, other_bytes);
    tcase_add_loop_test(tcase, no_record, 0, sizeof(records) / sizeof(records[0]));
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
