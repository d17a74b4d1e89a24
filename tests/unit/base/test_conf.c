/* Lines of a configuration file. */
#include <stdio.h>

#include "base/conf.h"
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

int main(void) {
    Suite *suite = suite_create("conf");
    TCase *tc = tcase_create("conf");

    tcase_add_test(tc, test_trims);
    tcase_add_test(tc, test_splits);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
