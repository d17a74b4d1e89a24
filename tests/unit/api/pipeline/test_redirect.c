/* What becomes of a request for a session that is not here. */
#include <string.h>

#include "api/pipeline/redirect.h"
#include "gb_test.h"

static const struct {
    const char *node;
    bool alive;
    const char *network; /* that the owner is in */
    const char *via;     /* NULL: none */
    bool local;
    enum gb_redirect_way want;
} samples[] = {
    {"b", true, "default", NULL, false, GB_REDIRECT_GO},       {"a", true, "default", NULL, false, GB_REDIRECT_HERE},
    {"a", true, "default", "1.1", false, GB_REDIRECT_HERE},    {"a", true, "default", NULL, true, GB_REDIRECT_HERE},
    {"b", true, "default", NULL, true, GB_REDIRECT_LOCAL},     {"b", false, "default", NULL, true, GB_REDIRECT_LOCAL},
    {"b", false, "default", NULL, false, GB_REDIRECT_ABSENT},  {"b", true, "lan", NULL, false, GB_REDIRECT_UNREACHABLE},
    {"b", true, "default", "4.1", false, GB_REDIRECT_GO},      {"b", true, "default", "4.2", false, GB_REDIRECT_GO},
    {"b", true, "default", "4.3", false, GB_REDIRECT_KNOWN},   {"b", true, "default", "5.1", false, GB_REDIRECT_KNOWN},
    {"b", true, "default", "6.1", false, GB_REDIRECT_KNOWN},   {"b", false, "default", "5.1", false, GB_REDIRECT_KNOWN},
    {"b", false, "default", "4.1", false, GB_REDIRECT_ABSENT},
};

static struct gb_http_request request_with(const char *via) {
    struct gb_http_request request = {.queries = 0};

    if (via)
        request.aside[GB_ASIDE_VIA] = (struct gb_http_text){.s = via, .len = strlen(via)};
    return request;
}

START_TEST(test_way) {
    struct gb_fleet_find find = {.session = {.epoch = 5}, .owner = {.alive = samples[_i].alive, .url_count = 1}};
    struct gb_http_request request = request_with(samples[_i].via);
    const struct gb_name self = {"a"};
    const struct gb_name network = {"default"};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_via via;

    strcpy(find.session.node.s, samples[_i].node);
    strcpy(find.owner.urls[0].network.s, samples[_i].network);
    strcpy(find.owner.urls[0].url, "http://b:1");
    gb_assert_ok(gb_via_read(&request, &via, &err), err);
    ck_assert_int_eq(gb_redirect_way_of(&find, &self, &network, &via, samples[_i].local), samples[_i].want);
}
END_TEST

static const char *const malformed[] = {"",      ".",   "1",   "1.",   ".1",
                                        "1.2.3", "a.1", "1.a", "-1.1", "18446744073709551616.1"};

START_TEST(test_malformed) {
    struct gb_http_request request = request_with(malformed[_i]);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_via via;

    ck_assert_int_eq(gb_via_read(&request, &via, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("redirect");
    TCase *tcase = tcase_create("redirect");

    tcase_add_loop_test(tcase, test_way, 0, sizeof(samples) / sizeof(samples[0]));
    tcase_add_loop_test(tcase, test_malformed, 0, sizeof(malformed) / sizeof(malformed[0]));
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
