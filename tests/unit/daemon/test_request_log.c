/* How many lines refusals have in the log, and that those that are left out are counted. */
#include <stdio.h>

#include "daemon/request_log.h"
#include "gb_test.h"

#define MINUTE GB_REFUSAL_LINES_NS

static struct gb_refusal_lines lines;

/* That many refusals of one client. Returns how many have lines. */
static unsigned refuse(const char *client, enum gb_code code, unsigned times, uint64_t at_ns) {
    unsigned written = 0;

    while (times-- > 0)
        written += gb_refusal_lines_take(&lines, client, code, at_ns);
    return written;
}

static uint64_t told(bool all, uint64_t at_ns) {
    struct gb_refusal_kind kind;
    uint64_t left_out = 0;

    while (gb_refusal_lines_next(&lines, all, at_ns, &kind))
        left_out += kind.left_out;
    return left_out;
}

START_TEST(one_client) {
    struct gb_refusal_kind kind;

    gb_refusal_lines_init(&lines);
    ck_assert_uint_eq(refuse("a", GB_ERR_UNAUTHENTICATED, 1000, 5 * MINUTE), GB_REFUSAL_LINES_EACH);
    ck_assert_uint_eq(refuse("a", GB_ERR_FORBIDDEN, 2, 5 * MINUTE), 2);
    ck_assert_uint_eq(refuse("b", GB_ERR_UNAUTHENTICATED, 2, 5 * MINUTE), 2);
    ck_assert(!gb_refusal_lines_next(&lines, false, 6 * MINUTE - 1, &kind));
    ck_assert(gb_refusal_lines_next(&lines, false, 6 * MINUTE, &kind));
    ck_assert_str_eq(kind.client, "a");
    ck_assert_int_eq(kind.code, GB_ERR_UNAUTHENTICATED);
    ck_assert_uint_eq(kind.left_out, 1000 - GB_REFUSAL_LINES_EACH);
    ck_assert_uint_eq(kind.since_ns, 5 * MINUTE);
    ck_assert(!gb_refusal_lines_next(&lines, true, 6 * MINUTE, &kind));
    ck_assert_uint_eq(refuse("a", GB_ERR_UNAUTHENTICATED, 1000, 6 * MINUTE), GB_REFUSAL_LINES_EACH);
    ck_assert_uint_eq(told(true, 6 * MINUTE), 1000 - GB_REFUSAL_LINES_EACH);
    gb_refusal_lines_done(&lines);
}
END_TEST

/* One that is refused now and then has all its lines. */
START_TEST(now_and_then) {
    uint64_t i;

    gb_refusal_lines_init(&lines);
    for (i = 1; i < 1000; i++)
        ck_assert_uint_eq(refuse("a", GB_ERR_FORBIDDEN, 1, i * MINUTE / 5), 1);
    ck_assert_uint_eq(told(true, 1000 * MINUTE), 0);
    gb_refusal_lines_done(&lines);
}
END_TEST

/* However many they are, and each is counted. */
START_TEST(many_clients) {
    unsigned written = 0;
    char client[32];
    int i;

    gb_refusal_lines_init(&lines);
    for (i = 0; i < 10000; i++) {
        snprintf(client, sizeof(client), "10.0.%d.%d", i / 250, i % 250);
        written += refuse(client, GB_ERR_UNAUTHENTICATED, 7, MINUTE);
    }
    ck_assert_uint_le(written, GB_REFUSAL_LINES_ALL);
    ck_assert_uint_ge(written, GB_REFUSAL_LINES_KINDS);
    ck_assert_uint_eq(told(false, 2 * MINUTE), 70000 - written);
    ck_assert_uint_eq(refuse("new", GB_ERR_FORBIDDEN, 1, 3 * MINUTE), 1); /* places are free again */
    ck_assert_uint_eq(refuse("new", GB_ERR_FORBIDDEN, 100, 3 * MINUTE), GB_REFUSAL_LINES_EACH - 1);
    gb_refusal_lines_done(&lines);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("refusal_lines");

    gb_test_add(suite, "one client", one_client, 60);
    gb_test_add(suite, "now and then", now_and_then, 60);
    gb_test_add(suite, "many clients", many_clients, 60);
    return gb_test_run(suite);
}
