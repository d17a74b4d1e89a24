/* The JSON writer (what it writes is read back by jansson) and the snapshot of a polled answer. */
#include "gb_test.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/observe/response_cache.h"
#include "format/json_writer.h"
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

/* settled 0: the whole text. */
static struct gb_http_canned *put(struct gb_response_cache *snapshot, uint64_t sequence, uint64_t now_ns,
                                  const char *text, size_t settled) {
    struct gb_json_writer out = {0};
    struct gb_http_canned *canned;

    gb_json_put_string(&out, NULL, text);
    canned = gb_response_cache_put(snapshot, sequence, now_ns, 1, &out, settled > 0 ? settled : out.used);
    ck_assert_ptr_nonnull(canned);
    ck_assert_ptr_null(out.s);
    return canned;
}

/* Fresh while neither the sequence nor the time has moved on; an equal text stays the same answer, tag included. */
START_TEST(test_snapshot) {
    const uint64_t age = GB_RESPONSE_CACHE_AGE_NS;
    struct gb_http_canned *a;
    struct gb_http_canned *b;
    struct gb_response_cache snapshot;

    gb_response_cache_init(&snapshot);
    ck_assert_ptr_null(gb_response_cache_get(&snapshot, 0, 0));
    a = put(&snapshot, 5, 100, "one", 0);
    b = gb_response_cache_get(&snapshot, 5, 100 + age - 1);
    ck_assert_ptr_eq(a, b);
    gb_http_canned_unref(b);
    ck_assert_ptr_null(gb_response_cache_get(&snapshot, 6, 100));
    ck_assert_ptr_null(gb_response_cache_get(&snapshot, 5, 100 + age));
    b = put(&snapshot, 6, 200, "one", 0);
    ck_assert_ptr_eq(a, b);
    gb_http_canned_unref(b);
    b = put(&snapshot, 6, 200 + age, "two", 0);
    ck_assert_ptr_ne(a, b);
    gb_http_canned_unref(a);
    /* A text begun before a newer one was put does not replace it. */
    a = put(&snapshot, 5, 300 + age, "old", 0);
    ck_assert_ptr_eq(a, b);
    gb_http_canned_unref(a);
    gb_http_canned_unref(b);
    ck_assert_uint_eq(snapshot.revision, 2);
    gb_response_cache_done(&snapshot);
}
END_TEST

/* What stands behind the settled part is new each time, and its tag is not. */
START_TEST(test_settled) {
    struct gb_http_canned *a;
    struct gb_http_canned *b;
    struct gb_response_cache snapshot;
    char etag[80];

    gb_response_cache_init(&snapshot);
    a = put(&snapshot, 1, 0, "same 1", 5);
    snprintf(etag, sizeof(etag), "%s", snapshot.etag);
    ck_assert_str_eq(etag, "W/\"1.1.1\"");
    b = put(&snapshot, 2, 1, "same 2", 5);
    ck_assert_ptr_ne(a, b);
    ck_assert_str_eq(snapshot.etag, etag);
    gb_http_canned_unref(a);
    gb_http_canned_unref(b);
    b = put(&snapshot, 3, 2, "sane 2", 5);
    ck_assert_str_eq(snapshot.etag, "W/\"1.3.2\"");
    gb_http_canned_unref(b);
    b = put(&snapshot, 4, 3, "sane 2", 6);
    ck_assert_str_eq(snapshot.etag, "W/\"1.4.3\"");
    gb_http_canned_unref(b);
    gb_response_cache_done(&snapshot);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("out");

    gb_test_add(suite, "everything", test_everything, 4);
    gb_test_add(suite, "growth", test_growth, 10);
    gb_test_add(suite, "snapshot", test_snapshot, 4);
    gb_test_add(suite, "settled", test_settled, 4);
    return gb_test_run(suite);
}
