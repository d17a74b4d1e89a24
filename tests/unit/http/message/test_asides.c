/* Query parameters that are set apart: no handler sees them, and no document or log shows them. */
#include <string.h>

#include "gb_test.h"
#include "http/message/request.h"

static const char *const names[] = {"via", "ticket"};

static const struct {
    const char *target;
    const char *shown; /* NULL: the target as it is */
    const char *via;
    const char *ticket;
    unsigned queries; /* that are left */
} samples[] = {
    {"/a", NULL, NULL, NULL, 0},
    {"/a?b=1&c=2", NULL, NULL, NULL, 2},
    {"/a?via=1.1", "/a", "1.1", NULL, 0},
    {"/a?via=1.1&ticket=x", "/a", "1.1", "x", 0},
    {"/a?b=1&via=1.1&ticket=x&c=2", "/a?b=1&c=2", "1.1", "x", 2},
    {"/a?ticket=x&b=1", "/a?b=1", NULL, "x", 1},
    {"/a?&&via=1.1&&b=1&", "/a?b=1", "1.1", NULL, 1},
    {"/a?%76ia=1.1&b=1", "/a?b=1", "1.1", NULL, 1},
    {"/a?vias=1&ticke=2", NULL, NULL, NULL, 2},
    {"/a?ticket", "/a", NULL, "", 0},
    {"/a?b=via=1&ticket=x%20y", "/a?b=via=1", NULL, "x y", 1},
};

static void same(const char *got, const char *want) {
    if (want)
        ck_assert_str_eq(got, want);
    else
        ck_assert_ptr_null(got);
}

START_TEST(test_asides) {
    struct gb_http_request request = {.queries = 0};
    struct gb_text_arena texts;
    struct gb_http_text path;
    struct gb_error err = GB_ERROR_INIT;
    unsigned i;

    gb_text_arena_init(&texts, 4096);
    request.target = (struct gb_http_text){.s = samples[_i].target, .len = strlen(samples[_i].target)};
    gb_assert_ok(gb_request_parse_target(&request, &texts, &path, &err), err);
    gb_assert_ok(gb_request_set_aside(&request, &texts, names, 2, &err), err);
    same(request.shown.s, samples[_i].shown);
    same(request.aside[0].s, samples[_i].via);
    same(request.aside[1].s, samples[_i].ticket);
    ck_assert_uint_eq(request.queries, samples[_i].queries);
    for (i = 0; i < 2; i++)
        ck_assert_ptr_null(gb_http_query(&request, names[i]));
    gb_text_arena_done(&texts);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("asides");
    TCase *tcase = tcase_create("asides");

    tcase_add_loop_test(tcase, test_asides, 0, sizeof(samples) / sizeof(samples[0]));
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
