/* Labels that are asked for, cursors of selections, and the ranking of items. */
#include "gb_test.h"

#include <string.h>

#include "api/pipeline/list.h"

static int read_label(const char *text, struct gb_label_query *ret, struct gb_error *err) {
    struct gb_http_request request = {.queries = 1};

    request.query[0].name = (struct gb_http_text){"label", 5};
    request.query[0].value = (struct gb_http_text){text, strlen(text)};
    return gb_label_query_read(&request, ret, err);
}

static const struct {
    const char *query;
    const char *labels;
    bool fits;
} labels[] = {
    {"a", "{}", false},
    {"a", "{\"a\":\"\"}", true},
    {"a", "{\"b\":\"a\"}", false},
    {"a", "{\"b\":\"1\",\"a\":\"2\"}", true},
    {"a", "{\"ab\":\"1\"}", false},
    {"a=2", "{\"b\":\"1\",\"a\":\"2\"}", true},
    {"a=2", "{\"a\":\"22\"}", false},
    {"a=", "{\"a\":\"\"}", true},
    {"a=", "{\"a\":\"x\"}", false},
    {"a=b=c", "{\"a\":\"b=c\"}", true},
    {"a=1", "{\"b\":\",\\\"a\\\":\\\"1\",\"c\":\"\"}", false}, /* it stands in a value */
    {"a=1", "{\"b\":\"x\\\\\",\"a\":\"1\"}", true},            /* a value ends with a backslash */
    {"q\"=\n", "{\"q\\\"\":\"\\n\"}", true},                   /* escaped as the labels are */
    {"\xc3\xa4", "{\"\xc3\xa4\":\"\"}", true},
};

START_TEST(test_label) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_label_query query;

    gb_assert_ok(read_label(labels[_i].query, &query, &err), err);
    ck_assert_msg(gb_label_query_fits(&query, labels[_i].labels) == labels[_i].fits, "%s in %s", labels[_i].query,
                  labels[_i].labels);
}
END_TEST

START_TEST(test_bad_label) {
    static const char *const bad[] = {"", "=", "=x", "\xff", "a=\xff"};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_label_query query;
    char long_text[GB_LABELS_MAX + 1];
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        gb_assert_fails(read_label(bad[i], &query, &err), err, GB_ERR_INVALID_ARGUMENT);
    memset(long_text, 'a', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    gb_assert_fails(read_label(long_text, &query, &err), err, GB_ERR_INVALID_ARGUMENT);
}
END_TEST

/* Each cursor is read by its own selection alone. */
START_TEST(test_cursor) {
    struct gb_selection selections[] = {
        {.sorted = false},
        {.prefix = {"a"}},
        {.prefix = {"ab"}},
        {.label = {.len = 4, .text = "\"a\":"}},
        {.has_state = true},
        {.has_state = true, .state = 1},
        {.has_kind = true},
        {.sorted = true},
        {.sorted = true, .down = true},
        {.sorted = true, .sort = 1},
        {.sorted = true, .prefix = {"a"}},
    };
    struct gb_list_place place = {.number = INT64_MAX, .name = {"x.y-1.z"}};
    struct gb_error err = GB_ERROR_INIT;
    char cursor[GB_LIST_CURSOR_SIZE];
    struct gb_list_place back;
    size_t i;
    size_t k;

    for (i = 0; i < sizeof(selections) / sizeof(selections[0]); i++) {
        gb_list_cursor_text(&selections[i], &place, cursor);
        ck_assert(selections[i].sorted || strlen(cursor) < 32); /* the room in records of libgpubuf */
        for (k = 0; k < sizeof(selections) / sizeof(selections[0]); k++) {
            if (i != k) {
                gb_assert_fails(gb_list_cursor_parse(&selections[k], cursor, strlen(cursor), &back, &err), err,
                                GB_ERR_INVALID_ARGUMENT);
                continue;
            }
            gb_assert_ok(gb_list_cursor_parse(&selections[k], cursor, strlen(cursor), &back, &err), err);
            ck_assert_uint_eq(back.number, place.number);
            ck_assert_str_eq(back.name.s, selections[i].sorted ? place.name.s : "");
        }
    }
}
END_TEST

/* The first of many, in any order of their coming. */
START_TEST(test_best) {
    struct gb_error err = GB_ERROR_INIT;
    bool down = _i & 1;
    size_t keep = _i < 2 ? 1 : 7;
    struct gb_best best;
    size_t i;

    gb_assert_ok(gb_best_init(&best, keep, down, &err), err);
    for (i = 0; i < 101; i++) {
        struct gb_list_place place = {.number = i * 37 % 101 / 2};

        place.name.s[0] = (char)('a' + i * 37 % 101 % 2);
        gb_best_offer(&best, &place, (int64_t)(i * 37 % 101));
    }
    gb_best_end(&best);
    ck_assert_uint_eq(best.count, keep);
    for (i = 0; i < keep; i++)
        ck_assert_int_eq(best.items[i].id, (int64_t)(down ? 100 - i : i));
    gb_best_done(&best);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("list");
    TCase *tables = tcase_create("tables");

    tcase_add_loop_test(tables, test_label, 0, sizeof(labels) / sizeof(labels[0]));
    tcase_add_loop_test(tables, test_best, 0, 4);
    suite_add_tcase(suite, tables);
    gb_test_add(suite, "bad_label", test_bad_label, 4);
    gb_test_add(suite, "cursor", test_cursor, 4);
    return gb_test_run(suite);
}
