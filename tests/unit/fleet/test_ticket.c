/* Tickets: what they are bound to, and the keys that sign them. */
#include <string.h>

#include "fleet/ticket.h"
#include "gb_test.h"

#define NOW 1000000000

static struct gb_error err;
static struct gb_ticket_keys keys;
static char ticket[GB_FLEET_TICKET_SIZE];
static char who[GB_NAME_MAX + 1];

static const struct gb_ticket_scope scope = {.method = "PUT", .path = "/v1/sessions/s", .query = "a=b", .node = "n"};

static void add_key(uint64_t id, int64_t made_s) {
    struct gb_ticket_key key = {.id = id, .made_s = made_s};

    memset(key.key, (int)id, sizeof(key.key));
    gb_ticket_keys_add(&keys, &key);
}

static void setup(void) {
    err = GB_ERROR_INIT;
    memset(&keys, 0, sizeof(keys));
    add_key(11, NOW - 5000);
    gb_assert_ok(gb_ticket_make(&keys, NOW, &scope, "token.1", ticket, &err), err);
}

static int check(const struct gb_ticket_scope *at, int64_t now) {
    return gb_ticket_check(&keys, now, at, ticket, who, sizeof(who), &err);
}

START_TEST(it_opens_what_it_is_for) {
    gb_assert_ok(check(&scope, NOW), err);
    ck_assert_str_eq(who, "token.1");
    gb_assert_ok(check(&scope, NOW + GB_TICKET_LIFE_S), err);
    gb_assert_ok(check(&scope, NOW - GB_TICKET_LIFE_S / 2), err); /* clocks that are a little apart */
}
END_TEST

START_TEST(it_fits_a_url) {
    ck_assert_uint_eq(strspn(ticket, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."),
                      strlen(ticket));
    memset(who, 'x', GB_NAME_MAX);
    who[GB_NAME_MAX] = '\0';
    gb_assert_ok(gb_ticket_make(&keys, INT32_MAX, &scope, who, ticket, &err), err);
    gb_assert_ok(check(&scope, INT32_MAX), err);
    ck_assert_uint_eq(strlen(who), GB_NAME_MAX);
}
END_TEST

static const struct gb_ticket_scope others[] = {
    {.method = "GET", .path = "/v1/sessions/s", .query = "a=b", .node = "n"},
    {.method = "PUT", .path = "/v1/sessions/t", .query = "a=b", .node = "n"},
    {.method = "PUT", .path = "/v1/sessions/s", .query = "a=c", .node = "n"},
    {.method = "PUT", .path = "/v1/sessions/s", .query = NULL, .node = "n"},
    {.method = "PUT", .path = "/v1/sessions/s", .query = "a=b", .node = "m"},
    {.method = "PUT", .path = "/v1/sessions/sa=b", .query = "", .node = "n"},
    {.method = "PUT/v1", .path = "/sessions/s", .query = "a=b", .node = "n"},
};

START_TEST(it_opens_nothing_else) {
    gb_assert_fails(check(&others[_i], NOW), err, GB_ERR_TICKET_INVALID);
}
END_TEST

START_TEST(it_ends) {
    gb_assert_fails(check(&scope, NOW + GB_TICKET_LIFE_S + 1), err, GB_ERR_TICKET_INVALID);
    gb_assert_fails(check(&scope, NOW - 3600), err, GB_ERR_TICKET_INVALID);
}
END_TEST

START_TEST(each_byte_counts) {
    char good[GB_FLEET_TICKET_SIZE];
    size_t i;

    strcpy(good, ticket);
    for (i = 0; i < strlen(good); i++) {
        strcpy(ticket, good);
        ticket[i] = ticket[i] == '1' ? '2' : '1';
        gb_assert_fails(check(&scope, NOW), err, GB_ERR_TICKET_INVALID);
        strcpy(ticket, good);
        ticket[i] = '\0';
        gb_assert_fails(check(&scope, NOW), err, GB_ERR_TICKET_INVALID);
    }
}
END_TEST

static const char *const no_tickets[] = {
    "",
    ".",
    "...",
    "....",
    "11.1000000300.dG9rZW4uMQ.",
    "11.99999999999999999999.dG9rZW4uMQ.AAAA",
    "11.-5.dG9rZW4uMQ.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "11.1000000300.AAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "11.1000000300.%.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
};

START_TEST(what_is_no_ticket) {
    strcpy(ticket, no_tickets[_i]);
    gb_assert_fails(check(&scope, NOW), err, GB_ERR_TICKET_INVALID);
}
END_TEST

START_TEST(a_long_text_is_no_ticket) {
    char text[5000];

    memset(text, '1', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    gb_assert_fails(gb_ticket_check(&keys, NOW, &scope, text, who, sizeof(who), &err), err, GB_ERR_TICKET_INVALID);
}
END_TEST

START_TEST(without_a_key_there_is_none) {
    keys.count = 0;
    gb_assert_fails(gb_ticket_make(&keys, NOW, &scope, "t", ticket, &err), err, GB_ERR_DIRECTORY_UNAVAILABLE);
    gb_assert_fails(check(&scope, NOW), err, GB_ERR_TICKET_INVALID);
}
END_TEST

START_TEST(a_new_key_signs_when_all_know_it) {
    struct gb_ticket_keys before = keys;
    struct gb_ticket_keys both;

    add_key(12, NOW);
    both = keys;
    gb_assert_ok(gb_ticket_make(&both, NOW + 5, &scope, "t", ticket, &err), err);
    keys = before; /* a node that has not learnt the new key */
    gb_assert_ok(check(&scope, NOW + 5), err);
    gb_assert_ok(gb_ticket_make(&both, NOW + GB_TICKET_PROPAGATION_S, &scope, "t", ticket, &err), err);
    gb_assert_fails(check(&scope, NOW + GB_TICKET_PROPAGATION_S), err, GB_ERR_TICKET_INVALID);
    keys = both;
    gb_assert_ok(check(&scope, NOW + GB_TICKET_PROPAGATION_S), err);
}
END_TEST

START_TEST(keys_stay_in_order_and_few) {
    add_key(9, 1);
    add_key(15, 2);
    add_key(12, 3);
    ck_assert_uint_eq(keys.count, 4);
    add_key(8, 4); /* older than all */
    ck_assert_uint_eq(keys.keys[0].id, 9);
    add_key(13, 5);
    add_key(13, 6); /* again */
    ck_assert_uint_eq(keys.count, 4);
    ck_assert_uint_eq(keys.keys[0].id, 11);
    ck_assert_uint_eq(keys.keys[1].id, 12);
    ck_assert_uint_eq(keys.keys[2].id, 13);
    ck_assert_int_eq(keys.keys[2].made_s, 6);
    ck_assert_uint_eq(keys.keys[3].id, 15);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ticket");
    TCase *tcase = tcase_create("ticket");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, it_opens_what_it_is_for);
    tcase_add_test(tcase, it_fits_a_url);
    tcase_add_loop_test(tcase, it_opens_nothing_else, 0, sizeof(others) / sizeof(others[0]));
    tcase_add_test(tcase, it_ends);
    tcase_add_test(tcase, each_byte_counts);
    tcase_add_loop_test(tcase, what_is_no_ticket, 0, sizeof(no_tickets) / sizeof(no_tickets[0]));
    tcase_add_test(tcase, a_long_text_is_no_ticket);
    tcase_add_test(tcase, without_a_key_there_is_none);
    tcase_add_test(tcase, a_new_key_signs_when_all_know_it);
    tcase_add_test(tcase, keys_stay_in_order_and_few);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
