/* Every status that the daemon answers with has its phrase. */
#include "base/error.h"
#include "gb_test.h"
#include "http/message/response.h"

START_TEST(test_errors) {
    int code;

    for (code = GB_OK + 1; code < GB_CODE_COUNT; code++)
        ck_assert_str_ne(gb_http_reason(gb_code_status((enum gb_code)code)), "Unknown");
}
END_TEST

START_TEST(test_phrases) {
    ck_assert_str_eq(gb_http_reason(200), "OK");
    ck_assert_str_eq(gb_http_reason(451), "Unavailable For Legal Reasons");
    ck_assert_str_eq(gb_http_reason(503), "Service Unavailable");
    ck_assert_str_eq(gb_http_reason(599), "Unknown");
    ck_assert_str_eq(gb_http_reason(99), "Unknown");
    ck_assert_str_eq(gb_http_reason(600), "Unknown");
    ck_assert_str_eq(gb_http_reason(-1), "Unknown");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("status");
    TCase *tcase = tcase_create("status");

    tcase_add_test(tcase, test_errors);
    tcase_add_test(tcase, test_phrases);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
