/* The name that a mistyped word may have been meant for. */
#include "base/text.h"

#include <string.h>

#include "gb_test.h"

static const struct {
    const char *word;
    const char *name; /* NULL: none of them */
} cases[] = {
    {"get", "get"},
    {"gte", "get"},
    {"lits", "list"},
    {"stat", "stats"},
    {"state", "stats"},
    {"stas", "stats"},
    {"gist", "list"},
    {"fist", "list"},
    {"sort", NULL},
    {"cat", NULL},
    {"chekpoint", "checkpoints"},
    {"sl", "ls"},
    {"l", NULL},
    {"", NULL},
    {"x", NULL},
    {"checkpoint", "checkpoints"},
    {"nothing", NULL},
    {"zz", NULL},
    {"0123456789012345678901234567890123456789012345", NULL},
};

START_TEST(test_nearest) {
    static const char *const names[] = {"get",   "ls",          "list",
                                        "stats", "checkpoints", "a-name-that-is-so-long-that-it-is-near-to-nothing"};
    struct gb_nearest nearest;
    size_t i;

    gb_nearest_begin(&nearest, cases[_i].word, strlen(cases[_i].word));
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        gb_nearest_try(&nearest, names[i]);
    ck_assert_pstr_eq(nearest.name, cases[_i].name);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("nearest");
    TCase *tc = tcase_create("nearest");

    tcase_add_loop_test(tc, test_nearest, 0, (int)(sizeof(cases) / sizeof(cases[0])));
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
