/* The prepared answer that many clients poll. */
#include "gb_test.h"

#include <stdio.h>

#include "api/reply.h"

/* settled 0: the whole text. */
static struct gb_http_canned *put(struct gb_response_cache *cache, uint64_t sequence, uint64_t now_ns, const char *text,
                                  size_t settled) {
    struct gb_json_writer out = {0};
    struct gb_http_canned *canned;

    gb_json_put_string(&out, NULL, text);
    canned = gb_response_cache_put(cache, sequence, now_ns, 1, &out, settled > 0 ? settled : out.used);
    ck_assert_ptr_nonnull(canned);
    ck_assert_ptr_null(out.s);
    return canned;
}

/* Fresh while neither the sequence nor the time has moved on; an equal text stays the same answer, tag included. */
START_TEST(test_fresh) {
    const uint64_t age = GB_RESPONSE_CACHE_AGE_NS;
    struct gb_http_canned *a;
    struct gb_http_canned *b;
    struct gb_response_cache *cache = gb_response_cache_new();

    ck_assert_ptr_nonnull(cache);
    ck_assert_ptr_null(gb_response_cache_get(cache, 0, 0));
    a = put(cache, 5, 100, "one", 0);
    b = gb_response_cache_get(cache, 5, 100 + age - 1);
    ck_assert_ptr_eq(a, b);
    gb_http_canned_unref(b);
    ck_assert_ptr_null(gb_response_cache_get(cache, 6, 100));
    ck_assert_ptr_null(gb_response_cache_get(cache, 5, 100 + age));
    b = put(cache, 6, 200, "one", 0);
    ck_assert_ptr_eq(a, b);
    gb_http_canned_unref(b);
    b = put(cache, 6, 200 + age, "two", 0);
    ck_assert_ptr_ne(a, b);
    gb_http_canned_unref(a);
    /* A text begun before a newer one was put does not replace it. */
    a = put(cache, 5, 300 + age, "old", 0);
    ck_assert_ptr_eq(a, b);
    gb_http_canned_unref(a);
    gb_http_canned_unref(b);
    ck_assert_uint_eq(cache->revision, 2);
    gb_response_cache_free(cache);
}
END_TEST

/* What stands behind the settled part is new each time, and its tag is not. */
START_TEST(test_settled) {
    struct gb_http_canned *a;
    struct gb_http_canned *b;
    struct gb_response_cache *cache = gb_response_cache_new();
    char etag[80];

    ck_assert_ptr_nonnull(cache);
    a = put(cache, 1, 0, "same 1", 5);
    snprintf(etag, sizeof(etag), "%s", cache->etag);
    ck_assert_str_eq(etag, "W/\"1.1.1\"");
    b = put(cache, 2, 1, "same 2", 5);
    ck_assert_ptr_ne(a, b);
    ck_assert_str_eq(cache->etag, etag);
    gb_http_canned_unref(a);
    gb_http_canned_unref(b);
    b = put(cache, 3, 2, "sane 2", 5);
    ck_assert_str_eq(cache->etag, "W/\"1.3.2\"");
    gb_http_canned_unref(b);
    b = put(cache, 4, 3, "sane 2", 6);
    ck_assert_str_eq(cache->etag, "W/\"1.4.3\"");
    gb_http_canned_unref(b);
    gb_response_cache_free(cache);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("response cache");

    gb_test_add(suite, "fresh", test_fresh, 4);
    gb_test_add(suite, "settled", test_settled, 4);
    return gb_test_run(suite);
}
