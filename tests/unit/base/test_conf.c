/* Lines of a configuration file. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "gb_test.h"

START_TEST(test_trims) {
    static const char *const cases[][2] = {{"", ""},       {"  \t\n", ""},         {"# all", ""}, {"a # b", "a"},
                                           {"a#b", "a#b"}, {" a  b \r\n", "a  b"}, {"a\t#", "a"}, {" #a", ""}};
    char line[32];
    size_t i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(line, sizeof line, "%s", cases[i][0]);
        ck_assert_str_eq(gb_conf_trim(line), cases[i][1]);
    }
}
END_TEST

START_TEST(test_splits) {
    char plain[] = "a = b = c";
    char bare[] = "ab";
    char empty[] = "=";
    char *name;
    char *value;

    ck_assert(gb_conf_split(plain, &name, &value));
    ck_assert_str_eq(name, "a");
    ck_assert_str_eq(value, "b = c");
    ck_assert(!gb_conf_split(bare, &name, &value));
    ck_assert(gb_conf_split(empty, &name, &value));
    ck_assert_str_eq(name, "");
    ck_assert_str_eq(value, "");
}
END_TEST

static bool says(const char *clause, const char *word) {
    return word == NULL ? clause == NULL : clause != NULL && strstr(clause, word) != NULL;
}

START_TEST(test_what_a_shell_would_change) {
    static const struct {
        const char *value;
        const char *as_path; /* a word of the clause; NULL: it is fine */
        const char *as_value;
    } cases[] = {{"/srv/state", NULL, NULL},
                 {"", NULL, NULL},
                 {"\"/srv/state\"", "quotes", "quotes"},
                 {"'/srv", "quotes", "quotes"},
                 {"`pwd`", "quotes", "quotes"},
                 {"\u201c/srv\u201d", "quotes", "quotes"},
                 {"\xc2", NULL, NULL},
                 {"/srv/bob's", NULL, NULL},
                 {"/srv/\"my state\"", "quotes", NULL},
                 {"~", "~", NULL},
                 {"~/x", "~", NULL},
                 {"~bob/x", "~", NULL},
                 {"./~x", NULL, NULL},
                 {"/srv/~x", NULL, NULL},
                 {"$HOME", "variable", NULL},
                 {"/x/${USER}", "variable", NULL},
                 {"/x/$(id -u)", "variable", NULL},
                 {"$_x", "variable", NULL},
                 {"/x/a$", NULL, NULL},
                 {"/x/$1", NULL, NULL},
                 {"/x/$/y", NULL, NULL}};
    size_t i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t n = strlen(cases[i].value);

        ck_assert_msg(says(gb_conf_path(cases[i].value, n), cases[i].as_path), "%s", cases[i].value);
        ck_assert_msg(says(gb_conf_quotes(cases[i].value, n), cases[i].as_value), "%s", cases[i].value);
    }
    ck_assert_ptr_null(gb_conf_path("/x$HOME", 3)); /* a word among others */
}
END_TEST

START_TEST(test_marks) {
    ck_assert(says(gb_conf_mark("\xef\xbb\xbf"
                                "a = b"),
                   "EF BB BF"));
    ck_assert(says(gb_conf_mark("\xff\xfe"
                                "a"),
                   "UTF-16"));
    ck_assert(says(gb_conf_mark("\xfe\xff"), "UTF-16"));
    ck_assert(says(gb_conf_mark("\xef\xbb"), NULL));
    ck_assert(says(gb_conf_mark(""), NULL));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("conf");
    TCase *tc = tcase_create("conf");

    tcase_add_test(tc, test_trims);
    tcase_add_test(tc, test_splits);
    tcase_add_test(tc, test_what_a_shell_would_change);
    tcase_add_test(tc, test_marks);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
