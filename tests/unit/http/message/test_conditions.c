#include "gb_test.h"

#include "http/message/fields.h"

struct sample {
    const char *list;
    bool well_formed;
    bool strong; /* holds 1.2 or 1.2-npy, compared strongly */
    bool weak;   /* the same, compared weakly */
};

static const struct sample samples[] = {
    {"*", true, true, true},
    {" * ", true, true, true},
    {"\"1.2\"", true, true, true},
    {"\"1.2-npy\"", true, true, true},
    {"  \"1.2\"  ", true, true, true},
    {"\"0.1\", \"1.2\"", true, true, true},
    {"\"0.1\",\"1.2\"", true, true, true},
    {"\"0.1\" , , \"1.2\"", true, true, true},
    {", \"1.2\",", true, true, true},
    {"W/\"1.2\"", true, false, true},
    {"W/\"0\", \"1.2\"", true, true, true},
    {"\"1.3\"", true, false, false},
    {"\"1.20\"", true, false, false},
    {"\"\"", true, false, false},
    {"\"1,2\"", true, false, false},
    {"\"1\\\"", true, false, false},
    {"\"\xc3\xa9\"", true, false, false},
    {"", false, false, false},
    {" ", false, false, false},
    {",", false, false, false},
    {"1.2", false, false, false},
    {"\"1.2", false, false, false},
    {"1.2\"", false, false, false},
    {"w/\"1.2\"", false, false, false},
    {"W/ \"1.2\"", false, false, false},
    {"\"1.2\" \"1.3\"", false, false, false},
    {"\"1.2\"x", false, false, false},
    {"*, \"1.2\"", false, false, false},
    {"\"1.2\", *", false, false, false},
    {"**", false, false, false},
    {"\"1 2\"", false, false, false},
    {"\"1.2\", \"x", false, false, false},
};

START_TEST(test_list) {
    static const char *const tags[] = {"1.2", "1.2-npy"};
    const struct sample *s = &samples[_i];
    struct gb_error err = GB_ERROR_INIT;

    if (s->well_formed)
        gb_assert_ok(gb_etag_list_check("If-Match", s->list, &err), err);
    else
        gb_assert_fails(gb_etag_list_check("If-Match", s->list, &err), err, GB_ERR_MALFORMED_REQUEST);
    ck_assert_msg(gb_etag_list_match(s->list, false, tags, 2) == s->strong, "strong: %s", s->list);
    ck_assert_msg(gb_etag_list_match(s->list, true, tags, 2) == s->weak, "weak: %s", s->list);
}
END_TEST

START_TEST(test_nothing_matches_no_tags) {
    ck_assert(!gb_etag_list_match("\"1.2\"", true, NULL, 0));
    ck_assert(gb_etag_list_match("*", false, NULL, 0));
}
END_TEST

START_TEST(test_if_range) {
    ck_assert(gb_etag_if_range("\"1.2\"", "1.2"));
    ck_assert(gb_etag_if_range(" \"1.2\" ", "1.2"));
    ck_assert(!gb_etag_if_range("\"1.3\"", "1.2"));
    ck_assert(!gb_etag_if_range("W/\"1.2\"", "1.2"));
    ck_assert(!gb_etag_if_range("\"1.2\", \"1.3\"", "1.2"));
    ck_assert(!gb_etag_if_range("Wed, 21 Oct 2015 07:28:00 GMT", "1.2"));
    ck_assert(!gb_etag_if_range("*", "1.2"));
    ck_assert(!gb_etag_if_range("", "1.2"));
}
END_TEST

START_TEST(test_walk) {
    const char *list = "\"a\", W/\"bc\" ,,\"\"";
    const char *at = list;
    struct gb_etag tag;

    ck_assert_int_eq(gb_etag_next(list, &at, &tag), 1);
    ck_assert(tag.len == 1 && tag.s[0] == 'a' && !tag.weak && !tag.any);
    ck_assert_int_eq(gb_etag_next(list, &at, &tag), 1);
    ck_assert(tag.len == 2 && tag.s[0] == 'b' && tag.weak);
    ck_assert_int_eq(gb_etag_next(list, &at, &tag), 1);
    ck_assert(tag.len == 0 && !tag.weak);
    ck_assert_int_eq(gb_etag_next(list, &at, &tag), 0);
    ck_assert_int_eq(gb_etag_next(list, &at, &tag), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("conditions");
    TCase *tcase = tcase_create("list");

    tcase_add_loop_test(tcase, test_list, 0, sizeof(samples) / sizeof(samples[0]));
    suite_add_tcase(suite, tcase);
    gb_test_add(suite, "no tags", test_nothing_matches_no_tags, 4);
    gb_test_add(suite, "if-range", test_if_range, 4);
    gb_test_add(suite, "walk", test_walk, 4);
    return gb_test_run(suite);
}
