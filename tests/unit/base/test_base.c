/* The base layer: names, numbers, the map, errors, time, checksums and digests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/text.h"
#include "gb_test.h"

START_TEST(names) {
    static const char *const good[] = {"a", "0", "A.b_c-9", "x..", "9-"};
    static const char *const bad[] = {"", ".a", "_a", "-a", "a b", "a/b", "a%", "\xc3\xa9", "a\n"};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name name = {"untouched"};
    struct gb_name other;
    char text[GB_NAME_MAX + 1];
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        gb_assert_fails(gb_name_parse("thing", bad[i], strlen(bad[i]), &name, &err), err, GB_ERR_INVALID_NAME);
    gb_assert_fails(gb_name_parse("thing", "a\0b", 3, &name, &err), err, GB_ERR_INVALID_NAME);
    memset(text, 'n', sizeof(text));
    gb_assert_fails(gb_name_parse("thing", text, GB_NAME_MAX + 1, &name, &err), err, GB_ERR_INVALID_NAME);
    ck_assert_str_eq(name.s, "untouched");
    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        gb_assert_ok(gb_name_parse("thing", good[i], strlen(good[i]), &name, &err), err);
        ck_assert_str_eq(name.s, good[i]);
    }
    gb_assert_ok(gb_name_parse("thing", text, GB_NAME_MAX, &name, &err), err);
    ck_assert_uint_eq(strlen(name.s), GB_NAME_MAX);
    gb_assert_ok(gb_name_parse("thing", "abc", 2, &other, &err), err);
    ck_assert_str_eq(other.s, "ab");
    ck_assert(!gb_name_equal(&name, &other));
    ck_assert(gb_name_equal(&other, &other));
    gb_name_parse("buffer name", "a b", 3, &name, &err);
    ck_assert_ptr_nonnull(strstr(err.detail, "buffer name"));
    ck_assert_ptr_nonnull(strstr(err.detail, "0x20 at position 2"));
}
END_TEST

START_TEST(numbers) {
    static const struct {
        const char *text;
        enum gb_parse result;
        uint64_t value;
    } cases[] = {
        {"0", GB_PARSE_OK, 0},
        {"007", GB_PARSE_OK, 7},
        {"18446744073709551615", GB_PARSE_OK, UINT64_MAX},
        {"18446744073709551616", GB_PARSE_OVERFLOW, 0},
        {"99999999999999999999999", GB_PARSE_OVERFLOW, 0},
        {"-1", GB_PARSE_NEGATIVE, 0},
        {"-", GB_PARSE_MALFORMED, 0},
        {"-x", GB_PARSE_MALFORMED, 0},
        {"+1", GB_PARSE_MALFORMED, 0},
        {" 1", GB_PARSE_MALFORMED, 0},
        {"1 ", GB_PARSE_MALFORMED, 0},
        {"0x10", GB_PARSE_MALFORMED, 0},
        {"1.0", GB_PARSE_MALFORMED, 0},
        {"99999999999999999999999x", GB_PARSE_MALFORMED, 0},
        {"", GB_PARSE_MALFORMED, 0},
    };
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t value = 4711;

        ck_assert_msg(gb_parse_u64(cases[i].text, strlen(cases[i].text), &value) == cases[i].result, "%s",
                      cases[i].text);
        ck_assert_uint_eq(value, cases[i].result == GB_PARSE_OK ? cases[i].value : 4711);
    }
}
END_TEST

START_TEST(sizes) {
    static const struct {
        const char *text;
        enum gb_parse result;
        uint64_t value;
    } cases[] = {
        {"12", GB_PARSE_OK, 12},
        {"1K", GB_PARSE_OK, 1024},
        {"3MiB", GB_PARSE_OK, 3 << 20},
        {"2G", GB_PARSE_OK, 2ULL << 30},
        {"16777215T", GB_PARSE_OK, 16777215ULL << 40},
        {"16777216T", GB_PARSE_OVERFLOW, 0},
        {"99999999999999999999K", GB_PARSE_OVERFLOW, 0},
        {"-1K", GB_PARSE_NEGATIVE, 0},
        {"1k", GB_PARSE_MALFORMED, 0},
        {"1Mi", GB_PARSE_MALFORMED, 0},
        {"1MB", GB_PARSE_MALFORMED, 0},
        {"1MiBs", GB_PARSE_MALFORMED, 0},
        {"1 M", GB_PARSE_MALFORMED, 0},
        {"M", GB_PARSE_MALFORMED, 0},
        {"", GB_PARSE_MALFORMED, 0},
    };
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t value = 4711;

        ck_assert_msg(gb_parse_size(cases[i].text, strlen(cases[i].text), &value) == cases[i].result, "%s",
                      cases[i].text);
        ck_assert_uint_eq(value, cases[i].result == GB_PARSE_OK ? cases[i].value : 4711);
    }
}
END_TEST

START_TEST(flags) {
    static const char *const yes[] = {"true", "1", "yes", "on", ""};
    static const char *const no[] = {"false", "0", "no", "off"};
    static const char *const bad[] = {"True", "tru", "2", " on", "true "};
    bool value;
    size_t i;

    for (i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        value = false;
        ck_assert_int_eq(gb_parse_bool(yes[i], strlen(yes[i]), &value), GB_PARSE_OK);
        ck_assert(value);
    }
    for (i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        value = true;
        ck_assert_int_eq(gb_parse_bool(no[i], strlen(no[i]), &value), GB_PARSE_OK);
        ck_assert(!value);
    }
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(gb_parse_bool(bad[i], strlen(bad[i]), &value), GB_PARSE_MALFORMED);
}
END_TEST

START_TEST(map_holds_what_is_put) {
    static char keys[2000][16];
    static char marks[2000];
    struct gb_map map = {0};
    size_t at = 0;
    size_t seen = 0;
    char *value;
    int i;

    ck_assert_ptr_null(gb_map_get(&map, "k"));
    ck_assert_ptr_null(gb_map_take(&map, "k"));
    ck_assert_ptr_null(gb_map_next(&map, &at));
    for (i = 0; i < 2000; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%d", i);
        ck_assert_int_eq(gb_map_put(&map, keys[i], &marks[i]), 0);
    }
    ck_assert_int_eq(gb_map_put(&map, keys[5], &marks[6]), 0);
    ck_assert_ptr_eq(gb_map_get(&map, "k5"), &marks[6]);
    ck_assert_int_eq(gb_map_put(&map, keys[5], &marks[5]), 0);
    ck_assert_uint_eq(map.count, 2000);
    for (i = 0; i < 2000; i += 2)
        ck_assert_ptr_eq(gb_map_take(&map, keys[i]), &marks[i]);
    for (i = 0; i < 2000; i++)
        ck_assert_ptr_eq(gb_map_get(&map, keys[i]), i % 2 ? &marks[i] : NULL);
    while ((value = gb_map_next(&map, &at))) {
        ck_assert_int_eq((value - marks) % 2, 1);
        *value = 1;
        ck_assert_ptr_eq(gb_map_take(&map, keys[value - marks]), value);
        seen++;
    }
    ck_assert_uint_eq(seen, 1000);
    ck_assert_uint_eq(map.count, 0);
    for (i = 1; i < 2000; i += 2)
        ck_assert_int_eq(marks[i], 1);
    gb_map_done(&map);
}
END_TEST

/* Inserting and removing names must not fill the map with deleted slots. */
START_TEST(map_does_not_grow_by_turnover) {
    static char keys[20000][16];
    struct gb_map map = {0};
    int i;

    for (i = 0; i < 20000; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%d", i);
        ck_assert_int_eq(gb_map_put(&map, keys[i], keys[i]), 0);
        if (i >= 10)
            ck_assert_ptr_eq(gb_map_take(&map, keys[i - 10]), keys[i - 10]);
    }
    ck_assert_uint_eq(map.count, 10);
    ck_assert_uint_le(map.capacity, 64);
    gb_map_done(&map);
}
END_TEST

START_TEST(the_first_error_wins) {
    struct gb_error err = GB_ERROR_INIT;
    char longer[600];

    ck_assert_int_eq(gb_error_set(&err, GB_ERR_OUT_OF_MEMORY, "needs %d", 5), -1);
    ck_assert_int_eq(gb_error_set(&err, GB_ERR_INTERNAL, "later"), -1);
    ck_assert_int_eq(err.code, GB_ERR_OUT_OF_MEMORY);
    ck_assert_str_eq(err.detail, "needs 5");
    gb_error_native_text(&err, "cuda", 2, "cudaErrorMemoryAllocation", "cudaMallocFromPoolAsync", "out of memory");
    gb_error_native_text(&err, "errno", 5, "EIO", "read", "other words");
    ck_assert_str_eq(err.native_name, "cudaErrorMemoryAllocation");
    ck_assert_str_eq(err.call, "cudaMallocFromPoolAsync");
    ck_assert_str_eq(err.native_text, "out of memory");
    ck_assert_int_eq(err.native_code, 2);
    gb_error_numbers(&err, 1, 2, 3);
    gb_error_numbers(&err, 4, 5, 6);
    ck_assert_uint_eq(err.limit_bytes, 1);
    ck_assert_uint_eq(err.requested_bytes, 3);
    ck_assert_int_eq(gb_error_set(NULL, GB_ERR_INTERNAL, "nowhere"), -1);
    gb_error_native(NULL, "x", 1, NULL, "y");
    gb_error_numbers(NULL, 1, 2, 3);
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    err = GB_ERROR_INIT;
    gb_error_set(&err, GB_ERR_INTERNAL, "%s", longer);
    gb_error_native(&err, longer, 1, NULL, longer);
    ck_assert_uint_eq(strlen(err.detail), sizeof(err.detail) - 1);
    ck_assert_uint_eq(strlen(err.call), sizeof(err.call) - 1);
    ck_assert_str_eq(err.native_name, "unknown");
}
END_TEST

START_TEST(error_facts) {
    struct gb_error err = GB_ERROR_INIT;
    int i;
    int j;

    ck_assert_int_eq(gb_code_status(GB_ERR_QUOTA_EXCEEDED), 507);
    ck_assert_str_eq(gb_code_slug(GB_ERR_OUT_OF_MEMORY), "out_of_memory");
    ck_assert(gb_code_retryable(GB_ERR_DRAINING));
    ck_assert(!gb_code_retryable(GB_ERR_CONTENT_LOST));
    /* A request beyond the total size never fits. */
    gb_error_set(&err, GB_ERR_OUT_OF_MEMORY, "full");
    ck_assert(gb_error_retryable(&err));
    gb_error_numbers(&err, 100, 50, 100);
    ck_assert(gb_error_retryable(&err));
    err.requested_bytes = 101;
    ck_assert(!gb_error_retryable(&err));
    err.code = GB_ERR_DRAINING;
    ck_assert(gb_error_retryable(&err));
    err = GB_ERROR_INIT;
    ck_assert_str_eq(gb_code_title((enum gb_code)9999), gb_code_title(GB_ERR_INTERNAL));
    ck_assert_int_eq(gb_code_status((enum gb_code) - 1), 500);
    for (i = 1; i < GB_CODE_COUNT; i++) {
        ck_assert_int_ge(gb_code_status((enum gb_code)i), 400);
        ck_assert_int_lt(gb_code_status((enum gb_code)i), 600);
        for (j = 1; j < i; j++)
            ck_assert_str_ne(gb_code_slug((enum gb_code)i), gb_code_slug((enum gb_code)j));
    }
    ck_assert_int_eq(gb_error_errno(&err, GB_ERR_INTERNAL, "open", 2), -1);
    ck_assert_str_eq(err.native_domain, "errno");
    ck_assert_str_eq(err.native_name, "ENOENT");
    ck_assert_int_eq(err.native_code, 2);
    ck_assert_ptr_nonnull(strstr(err.detail, "No such file"));
    err = GB_ERROR_INIT;
    ck_assert_int_eq(gb_error_memory(&err, "reply"), -1);
    ck_assert_int_eq(err.code, GB_ERR_SATURATED);
    ck_assert_str_eq(err.detail, "no memory for the reply; try again later");
}
END_TEST

/* Each day of 430 years, against the C library. */
START_TEST(dates) {
    char text[GB_RFC3339_SIZE];
    char other[GB_RFC3339_SIZE];
    time_t day;
    struct tm tm;

    for (day = 0; day < 157000; day++) {
        time_t seconds = day * 86400 + day % 86400;

        gmtime_r(&seconds, &tm);
        strftime(other, sizeof(other), "%Y-%m-%dT%H:%M:%S.007Z", &tm);
        ck_assert_str_eq(gb_rfc3339((int64_t)seconds * 1000000 + 7999, text), other);
    }
}
END_TEST

START_TEST(times) {
    char text[GB_RFC3339_SIZE];
    uint64_t ns = gb_clock_ns();

    ck_assert_str_eq(gb_rfc3339(0, text), "1970-01-01T00:00:00.000Z");
    ck_assert_str_eq(gb_rfc3339(1709210096123456, text), "2024-02-29T12:34:56.123Z");
    ck_assert_str_eq(gb_rfc3339(1767225599999999, text), "2025-12-31T23:59:59.999Z");
    ck_assert_int_gt(gb_wall_us(), 1700000000000000);
    ck_assert_uint_ge(gb_clock_ns(), ns);
}
END_TEST

START_TEST(crc32c_known_answers) {
    unsigned char zeros[32] = {0};
    unsigned char ones[32];
    unsigned char up[32];
    unsigned char large[5000];
    uint32_t whole;
    size_t cut;
    int i;

    memset(ones, 0xff, sizeof(ones));
    for (i = 0; i < 32; i++)
        up[i] = (unsigned char)i;
    ck_assert_uint_eq(gb_crc32c(0, "", 0), 0);
    ck_assert_uint_eq(gb_crc32c(0, "123456789", 9), 0xe3069283);
    ck_assert_uint_eq(gb_crc32c(0, zeros, 32), 0x8a9136aa); /* this vector and the next two: RFC 3720, B.4 */
    ck_assert_uint_eq(gb_crc32c(0, ones, 32), 0x62a8ab43);
    ck_assert_uint_eq(gb_crc32c(0, up, 32), 0x46dd794e);
    for (cut = 0; cut < sizeof(large); cut++)
        large[cut] = (unsigned char)(cut * 7 + cut / 256);
    whole = gb_crc32c(0, large, sizeof(large));
    for (cut = 0; cut <= sizeof(large); cut += 333)
        ck_assert_uint_eq(gb_crc32c(gb_crc32c(0, large, cut), large + cut, sizeof(large) - cut), whole);
}
END_TEST

START_TEST(digests) {
    char hex[GB_SHA256_HEX_SIZE];
    unsigned char a[32] = {0};
    unsigned char b[32] = {0};
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_sha256_hex("abc", 3, hex, &err), err);
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    gb_assert_ok(gb_sha256_hex("", 0, hex, &err), err);
    ck_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    gb_assert_ok(gb_random(a, sizeof(a), &err), err);
    gb_assert_ok(gb_random(b, sizeof(b), &err), err);
    ck_assert_mem_ne(a, b, sizeof(a));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("base");

    gb_test_add(suite, "names", names, 30);
    gb_test_add(suite, "numbers", numbers, 30);
    gb_test_add(suite, "sizes", sizes, 30);
    gb_test_add(suite, "flags", flags, 30);
    gb_test_add(suite, "map", map_holds_what_is_put, 30);
    gb_test_add(suite, "map_turnover", map_does_not_grow_by_turnover, 30);
    gb_test_add(suite, "error", the_first_error_wins, 30);
    gb_test_add(suite, "error_facts", error_facts, 30);
    gb_test_add(suite, "dates", dates, 30);
    gb_test_add(suite, "times", times, 30);
    gb_test_add(suite, "crc32c", crc32c_known_answers, 30);
    gb_test_add(suite, "digests", digests, 30);
    return gb_test_run(suite);
}
