/* A session that this node gives to another: the one transaction, and what the node knows of it. */
#include <stdio.h>
#include <string.h>

#include "fleet_fixture.h"
#include "gb_test.h"
#include "model/model.h"

#define KEY(rest) "/gpubuf/main/" rest
#define TXN "/v3/kv/txn"
#define OF_A                                                                                                           \
    "{\"node\":\"a\",\"epoch\":2,\"claim\":\"9-9\",\"on_partition\":\"stop\",\"labels\":{\"k\":\"v\"},"                \
    "\"quota\":4096,\"state\":\"live\"}"

static struct node a;

/* The ask is the first member of both; the waiter is asked's. */
static struct giving {
    struct gb_fleet_transfer hand;
    struct waiter waiter;
} giving;

static void given(struct gb_fleet_ask *ask) {
    struct giving *g = (struct giving *)ask;

    pthread_mutex_lock(&g->waiter.lock);
    g->waiter.done++;
    pthread_cond_broadcast(&g->waiter.ended);
    pthread_mutex_unlock(&g->waiter.lock);
}

static void give_begin(void) {
    memset(&giving, 0, sizeof(giving));
    waiter_init(&giving.waiter);
    giving.hand.ask.done = given;
    giving.hand.session.name = name_of("s");
    strcpy(giving.hand.session.claim, "9-9");
    giving.hand.to = name_of("b");
    strcpy(giving.hand.claim, "7-7");
    gb_fleet_transfer(a.fleet, &giving.hand);
}

static enum gb_code give(void) {
    give_begin();
    waiter_wait(&giving.waiter, 1);
    return giving.hand.ask.error.code;
}

static void setup(void) {
    memset(&a, 0, sizeof(a));
    fleet_setup();
    a.has = true;
    etcd_fake_put(etcd, KEY("sessions/s"), OF_A, 0);
    etcd_fake_put(etcd, KEY("owned/a/s"), "", 0);
    etcd_fake_put(etcd, KEY("nodes/b"), NODE_B, 0);
    etcd_fake_put(etcd, KEY("alive/b"), ALIVE_B, 0);
    node_open_long(&a, "a", NODE_UUID);
}

static void teardown(void) {
    if (a.fleet)
        node_close(&a);
    fleet_teardown();
}

/* The record is b's, with all that it had. */
static void assert_given(void) {
    const char *text = etcd_fake_get(etcd, KEY("sessions/s"));

    ck_assert_ptr_nonnull(text);
    ck_assert_msg(strstr(text, "\"node\":\"b\"") && strstr(text, "\"epoch\":3") && strstr(text, "\"7-7\"") &&
                      strstr(text, "\"stop\"") && strstr(text, "{\"k\":\"v\"}") && strstr(text, "4096"),
                  "%s", text);
    ck_assert_ptr_null(etcd_fake_get(etcd, KEY("owned/a/s")));
    ck_assert_ptr_nonnull(etcd_fake_get(etcd, KEY("owned/b/s")));
}

static void assert_kept(void) {
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), OF_A);
    ck_assert_ptr_nonnull(etcd_fake_get(etcd, KEY("owned/a/s")));
    ck_assert_ptr_null(etcd_fake_get(etcd, KEY("owned/b/s")));
}

START_TEST(it_is_given) {
    ck_assert_int_eq(give(), GB_OK);
    ck_assert_str_eq(giving.hand.session.node.s, "b");
    ck_assert_uint_eq(giving.hand.session.epoch, 3);
    assert_given();
    ck_assert_int_eq(give(), GB_OK); /* the same is not done twice */
    ck_assert_uint_eq(giving.hand.session.epoch, 3);
    assert_given();
}
END_TEST

START_TEST(the_answer_is_lost) {
    unsigned before = etcd_fake_requests(etcd, TXN);

    etcd_fake_lose_answers(etcd, "request_put", 1);
    ck_assert_int_eq(give(), GB_OK);
    ck_assert_uint_eq(giving.hand.session.epoch, 3);
    ck_assert_uint_eq(etcd_fake_requests(etcd, TXN) - before, 3); /* read, sent once, read again */
    assert_given();
}
END_TEST

/* Neither yes nor no: the node asks on, and refuses requests for the session until it knows. */
START_TEST(the_directory_falls_silent_behind_it) {
    unsigned before;

    etcd_fake_lose_answers(etcd, "request_put", 1000);
    before = etcd_fake_requests(etcd, TXN);
    give_begin();
    etcd_fake_wait_requests(etcd, TXN, before + 2);
    while (!gb_fleet_owner_is_uncertain(a.fleet, "s"))
        etcd_fake_wait_requests(etcd, TXN, etcd_fake_requests(etcd, TXN));
    etcd_fake_lose_answers(etcd, "request_put", 0);
    waiter_wait(&giving.waiter, 1);
    ck_assert_int_eq(giving.hand.ask.error.code, GB_OK);
    assert_given();
}
END_TEST

START_TEST(the_other_node_is_not_alive) {
    etcd_fake_delete(etcd, KEY("alive/b"));
    ck_assert_int_eq(give(), GB_ERR_NODE_UNREACHABLE);
    ck_assert(!giving.hand.undecided);
    assert_kept();
}
END_TEST

START_TEST(another_has_it) {
    etcd_fake_put(etcd, KEY("sessions/s"), SESSION_OF_B, 0);
    ck_assert_int_eq(give(), GB_ERR_SUPERSEDED);
    ck_assert(!giving.hand.undecided);
}
END_TEST

START_TEST(the_record_is_lost) {
    etcd_fake_delete(etcd, KEY("sessions/s"));
    ck_assert_int_eq(give(), GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert(!giving.hand.undecided);
}
END_TEST

START_TEST(the_directory_is_silent_before) {
    etcd_fake_set_status(etcd, 503);
    ck_assert_int_eq(give(), GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert(!giving.hand.undecided);
    etcd_fake_set_status(etcd, 0);
    assert_kept();
}
END_TEST

/* What it does not know by then, it says. */
START_TEST(the_fleet_is_closed_in_between) {
    unsigned before = etcd_fake_requests(etcd, TXN);

    etcd_fake_lose_answers(etcd, "request_put", 1000);
    give_begin();
    etcd_fake_wait_requests(etcd, TXN, before + 2);
    while (!gb_fleet_owner_is_uncertain(a.fleet, "s"))
        etcd_fake_wait_requests(etcd, TXN, etcd_fake_requests(etcd, TXN));
    node_close(&a);
    ck_assert_uint_eq(giving.waiter.done, 1);
    ck_assert_int_eq(giving.hand.ask.error.code, GB_ERR_DRAINING);
    ck_assert(giving.hand.undecided);
}
END_TEST

START_TEST(claims_differ) {
    char one[GB_FLEET_CLAIM_SIZE];
    char other[GB_FLEET_CLAIM_SIZE];

    ck_assert_int_eq(gb_fleet_claim_make(a.fleet, one, &err), 0);
    ck_assert_int_eq(gb_fleet_claim_make(a.fleet, other, &err), 0);
    ck_assert_str_ne(one, other);
    ck_assert_uint_eq(strlen(one), 33);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fleet_transfer");
    TCase *tc = tcase_create("transfer");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, it_is_given);
    tcase_add_test(tc, the_answer_is_lost);
    tcase_add_test(tc, the_directory_falls_silent_behind_it);
    tcase_add_test(tc, the_other_node_is_not_alive);
    tcase_add_test(tc, another_has_it);
    tcase_add_test(tc, the_record_is_lost);
    tcase_add_test(tc, the_directory_is_silent_before);
    tcase_add_test(tc, the_fleet_is_closed_in_between);
    tcase_add_test(tc, claims_differ);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
