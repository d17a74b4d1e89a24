/* Pickles: the bytes of single values, as Python's pickletools shows them, and of batches. What a whole snapshot is
 * to pickle.loads, tests/e2e/test_snapshots.py asks. */
#include <string.h>

#include "format/pickle.h"
#include "gb_test.h"

static const struct {
    uint64_t value;
    bool is_signed;
    const char *bytes;
    size_t n;
} numbers[] = {
    {0, false, "K\0", 2},
    {255, false, "K\xff", 2},
    {256, false, "M\0\1", 3},
    {65535, false, "M\xff\xff", 3},
    {65536, false, "J\0\0\1\0", 5},
    {0x7fffffff, false, "J\xff\xff\xff\x7f", 5},
    {0x80000000, false, "\x8a\5\0\0\0\x80\0", 7}, /* with the byte that makes it positive */
    {0x7f0000000000, false, "\x8a\6\0\0\0\0\0\x7f", 8},
    {INT64_MAX, false, "\x8a\x8\xff\xff\xff\xff\xff\xff\xff\x7f", 10},
    {1ull << 63, false, "\x8a\x9\0\0\0\0\0\0\0\x80\0", 11},
    {UINT64_MAX, false, "\x8a\x9\xff\xff\xff\xff\xff\xff\xff\xff\0", 11},
    {UINT64_MAX, true, "\x8a\1\xff", 3},         /* -1 */
    {(uint64_t)-129, true, "\x8a\2\x7f\xff", 4}, /* -129 */
    {7, true, "K\7", 2},
};

START_TEST(integers) {
    struct gb_pickle p = {0};

    gb_pickle_begin(&p);
    if (numbers[_i].is_signed)
        gb_pickle_i64(&p, NULL, (int64_t)numbers[_i].value);
    else
        gb_pickle_u64(&p, NULL, numbers[_i].value);
    gb_pickle_end(&p);
    ck_assert(!p.failed);
    ck_assert_uint_eq(p.used, numbers[_i].n + 3);
    ck_assert_mem_eq(p.s, "\x80\2", 2);
    ck_assert_mem_eq(p.s + 2, numbers[_i].bytes, numbers[_i].n);
    ck_assert_int_eq(p.s[p.used - 1], '.');
    gb_pickle_done(&p);
}
END_TEST

START_TEST(structure) {
    static const char wanted[] = "\x80\2}(X\1\0\0\0aq\0](\x88\x89NX\2\0\0\0xyeX\1\0\0\0bq\1}(h\0h\1uu.";
    struct gb_pickle p = {0};

    gb_pickle_begin(&p);
    gb_pickle_open(&p, NULL, '{');
    gb_pickle_open(&p, "a", '[');
    gb_pickle_bool(&p, NULL, true);
    gb_pickle_bool(&p, NULL, false);
    gb_pickle_null(&p, NULL);
    gb_pickle_string(&p, NULL, "xy");
    gb_pickle_close(&p);
    gb_pickle_open(&p, "b", '{');
    gb_pickle_word(&p, "a", "b");
    gb_pickle_close(&p);
    gb_pickle_close(&p);
    gb_pickle_end(&p);
    ck_assert(!p.failed);
    ck_assert_uint_eq(p.used, sizeof(wanted) - 1);
    ck_assert_mem_eq(p.s, wanted, p.used);
    gb_pickle_done(&p);
}
END_TEST

/* No more than a batch stands between a MARK and its APPENDS. */
START_TEST(batches) {
    struct gb_pickle p = {0};
    unsigned since = 0;
    unsigned all = 0;
    size_t i;

    gb_pickle_begin(&p);
    gb_pickle_open(&p, NULL, '[');
    for (i = 0; i < 3 * GB_PICKLE_BATCH + 7; i++)
        gb_pickle_null(&p, NULL);
    gb_pickle_close(&p);
    gb_pickle_end(&p);
    for (i = 0; i < p.used; i++) {
        since = p.s[i] == '(' ? 0 : since + (p.s[i] == 'N');
        all += p.s[i] == 'N';
        ck_assert_uint_le(since, GB_PICKLE_BATCH);
    }
    ck_assert_uint_eq(all, 3 * GB_PICKLE_BATCH + 7);
    gb_pickle_done(&p);
}
END_TEST

START_TEST(too_deep) {
    struct gb_pickle p = {0};
    int i;

    for (i = 0; i <= GB_PICKLE_DEPTH; i++)
        gb_pickle_open(&p, NULL, '[');
    ck_assert(p.failed);
    gb_pickle_done(&p);
    gb_pickle_close(&p);
    ck_assert(p.failed);
    gb_pickle_done(&p);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pickle");

    gb_test_add_loop(suite, "integers", integers, 10, sizeof(numbers) / sizeof(numbers[0]));
    gb_test_add(suite, "structure", structure, 10);
    gb_test_add(suite, "batches", batches, 10);
    gb_test_add(suite, "too_deep", too_deep, 10);
    return gb_test_run(suite);
}
