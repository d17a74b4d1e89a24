/* Look-ups and registrations, and the end of what is open. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet_fixture.h"
#include "gb_test.h"
#include "model/model.h"

#define KEY(rest) "/gpubuf/main/" rest
#define TXN "/v3/kv/txn"

static struct node a;
static struct asked asked;

static void setup(void) {
    memset(&a, 0, sizeof(a));
    asked_init(&asked);
    fleet_setup();
    node_open_long(&a, "a", NODE_UUID);
}

static void teardown(void) {
    if (a.fleet)
        node_close(&a);
    fleet_teardown();
}

static unsigned txns(void) {
    return etcd_fake_requests(etcd, TXN);
}

/* --- look-ups ----------------------------------------------------------------------------------------------------- */

START_TEST(a_session_and_its_owner) {
    struct gb_fleet_find find;
    const struct gb_name network = {"default"};
    bool linearizable = _i == 1;

    fleet_add_b(true);
    ck_assert_int_eq(find_session(&a, "s", linearizable, &find), GB_OK);
    ck_assert_str_eq(find.session.name.s, "s");
    ck_assert_str_eq(find.session.node.s, "b");
    ck_assert_uint_eq(find.session.epoch, 3);
    ck_assert_uint_eq(find.session.quota_bytes, 4096);
    ck_assert_str_eq(find.session.labels, "{\"k\":\"v\"}");
    ck_assert_int_eq(find.session.on_partition, GB_ON_PARTITION_STOP);
    ck_assert_str_eq(gb_fleet_url_on(&find.owner, &network), "http://10.0.0.2:7070");
    ck_assert(find.owner.alive);
    ck_assert(!find.stale);
    ck_assert_uint_eq(find.absent_s, 0);
}
END_TEST

START_TEST(an_owner_that_is_not_alive) {
    struct gb_fleet_find find;

    fleet_add_b(false);
    ck_assert_int_eq(find_session(&a, "s", false, &find), GB_OK);
    ck_assert(!find.owner.alive);
    ck_assert_uint_ge(find.absent_s, 1);
    etcd_fake_put(etcd, KEY("alive/b"), ALIVE_B, 0);
    ck_assert_int_eq(find_session(&a, "s", true, &find), GB_OK);
    ck_assert(find.owner.alive);
    ck_assert_uint_eq(find.absent_s, 0);
}
END_TEST

START_TEST(a_session_that_is_not_there_is_asked_for_twice) {
    unsigned before = txns();

    ck_assert_int_eq(find_session(&a, "s", false, NULL), GB_ERR_SESSION_NOT_FOUND);
    ck_assert_uint_eq(txns() - before, 2); /* a majority has confirmed it */
    ck_assert_int_eq(find_session(&a, "t", true, NULL), GB_ERR_SESSION_NOT_FOUND);
    ck_assert_uint_eq(txns() - before, 3);
    ck_assert_uint_eq(stat_of(&a).lookups_failed, 0);
}
END_TEST

START_TEST(what_was_found_is_remembered) {
    struct gb_fleet_stat stat;
    unsigned before;

    fleet_add_b(true);
    ck_assert_int_eq(find_session(&a, "s", false, NULL), GB_OK);
    ck_assert_int_eq(find_session(&a, "t", false, NULL), GB_ERR_SESSION_NOT_FOUND);
    before = txns();
    ck_assert_int_eq(find_session(&a, "t", false, NULL), GB_ERR_SESSION_NOT_FOUND);
    stat = stat_of(&a);
    ck_assert_uint_eq(stat.lookups, 3);
    ck_assert_uint_eq(stat.lookups_cached + (txns() - before) / 2, 1);
    ck_assert_int_eq(find_session(&a, "s", true, NULL), GB_OK); /* surely: not out of memory */
    ck_assert_uint_gt(txns(), before);
}
END_TEST

START_TEST(what_is_remembered_serves_while_the_directory_is_silent) {
    struct gb_fleet_find find;

    fleet_add_b(true);
    ck_assert_int_eq(find_session(&a, "s", false, NULL), GB_OK);
    if (_i == 0)
        etcd_fake_set_status(etcd, 503);
    else
        etcd_fake_set_cluster(etcd, 7); /* another directory, which may say what it likes */
    do
        ck_assert_int_eq(find_session(&a, "s", false, &find), GB_OK);
    while (!find.stale); /* fresh for a moment yet */
    ck_assert_str_eq(find.owner.name.s, "b");
    ck_assert_int_eq(find_session(&a, "s", true, NULL), GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_int_eq(find_session(&a, "t", false, NULL), GB_ERR_DIRECTORY_UNAVAILABLE); /* never: not found */
    ck_assert_uint_ge(stat_of(&a).lookups_failed, 2);
}
END_TEST

START_TEST(records_that_are_no_records) {
    struct gb_fleet_find find;

    fleet_add_b(true);
    etcd_fake_put(etcd, _i == 0 ? KEY("sessions/s") : _i == 1 ? KEY("nodes/b") : KEY("alive/b"), "{\"uuid\":[]}", 0);
    if (_i < 2) {
        ck_assert_int_eq(find_session(&a, "s", false, NULL), GB_ERR_DIRECTORY_UNAVAILABLE);
    } else {
        ck_assert_int_eq(find_session(&a, "s", false, &find), GB_OK);
        ck_assert(!find.owner.alive);
    }
}
END_TEST

START_TEST(an_owner_that_was_forgotten) {
    struct gb_fleet_find find;

    fleet_add_b(true);
    etcd_fake_delete(etcd, KEY("nodes/b"));
    ck_assert_int_eq(find_session(&a, "s", false, &find), GB_OK);
    ck_assert(!find.owner.alive);
    ck_assert_uint_eq(find.owner.url_count, 0);
}
END_TEST

START_TEST(many_ask_for_one_session_and_the_directory_is_asked_once) {
    static struct find finds[40];
    struct waiter waiter;
    unsigned before;
    int i;

    waiter_init(&waiter);
    fleet_add_b(true);
    etcd_fake_set_silent(etcd, true);
    before = txns();
    ck_assert(!find_begin(&a, "s", false, &finds[0], &waiter));
    etcd_fake_wait_requests(etcd, TXN, before + 1); /* under way, and not answered */
    for (i = 1; i < 40; i++)
        ck_assert(!find_begin(&a, "s", false, &finds[i], &waiter));
    waiter_wait(&waiter, 40);
    ck_assert_uint_eq(txns() - before, 1);
    for (i = 0; i < 40; i++)
        ck_assert_int_eq(finds[i].find.ask.error.code, GB_ERR_DIRECTORY_UNAVAILABLE);
}
END_TEST

static struct find finds[64];

/* 64 look-ups that wait. */
static void fill(struct waiter *waiter) {
    char name[16];
    int i;

    etcd_fake_set_silent(etcd, true);
    for (i = 0; i < 64; i++) {
        snprintf(name, sizeof(name), "s%d", i);
        ck_assert(!find_begin(&a, name, false, &finds[i], waiter));
    }
}

START_TEST(sixty_four_look_ups_are_open_at_most) {
    static struct waiter waiter; /* those of the end are answered when the node closes */
    struct find one;

    waiter_init(&waiter);
    fill(&waiter);
    ck_assert(find_begin(&a, "s", false, &one, &waiter)); /* at once */
    ck_assert_int_eq(one.find.ask.error.code, GB_ERR_SATURATED);
    if (_i == 0) {
        int i;

        for (i = 0; i < 64; i++)
            gb_fleet_cancel(a.fleet, &finds[i].find.ask);
        memset(finds, 0xee, sizeof(finds)); /* they are the caller's again */
    } else {
        waiter_wait(&waiter, 64);
    }
    etcd_fake_set_silent(etcd, false);
    fill(&waiter); /* all are free again */
}
END_TEST

START_TEST(an_ask_is_left_while_it_is_answered) {
    struct waiter waiter;
    char name[16];
    int i;

    waiter_init(&waiter);
    fleet_add_b(true);
    for (i = 0; i < 300; i++) {
        struct find *one = calloc(1, sizeof(*one));
        unsigned before = txns();

        snprintf(name, sizeof(name), "s%d", i);
        if (!find_begin(&a, name, true, one, &waiter)) {
            etcd_fake_wait_requests(etcd, TXN, before + 1); /* the answer may come at this very moment */
            gb_fleet_cancel(a.fleet, &one->find.ask);
        }
        free(one); /* a done that runs afterwards would meet this */
    }
    ck_assert_int_eq(find_session(&a, "s", true, NULL), GB_OK);
}
END_TEST

/* --- registering -------------------------------------------------------------------------------------------------- */

START_TEST(a_session_is_registered) {
    struct gb_fleet_register made;
    struct gb_fleet_find find;

    ck_assert_int_eq(find_session(&a, "s", false, NULL), GB_ERR_SESSION_NOT_FOUND);
    ck_assert_int_eq(register_session(&a, "s", &made), GB_OK);
    ck_assert_str_eq(made.session.node.s, "a");
    ck_assert_uint_eq(made.session.epoch, 1);
    ck_assert_str_ne(made.session.claim, "");
    ck_assert_ptr_nonnull(etcd_fake_get(etcd, KEY("owned/a/s")));
    ck_assert_int_eq(find_session(&a, "s", false, &find), GB_OK); /* that it was absent is forgotten */
    ck_assert_str_eq(find.session.claim, made.session.claim);
}
END_TEST

START_TEST(a_session_that_another_has) {
    struct gb_fleet_register made;

    fleet_add_b(true);
    ck_assert_int_eq(register_session(&a, "s", &made), GB_ERR_SESSION_EXISTS);
    ck_assert_str_eq(made.owner.name.s, "b");
    ck_assert_str_eq(made.session.node.s, "b");
    ck_assert_str_eq(made.owner.urls[0].url, "http://10.0.0.2:7070");
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), SESSION_OF_B);
    ck_assert_ptr_null(etcd_fake_get(etcd, KEY("owned/a/s")));
}
END_TEST

START_TEST(an_answer_that_is_lost) {
    struct gb_fleet_register made;
    char before[1024];

    etcd_fake_lose_answers(etcd, KEY("owned/a/s"), (unsigned)_i + 1);
    ck_assert_int_eq(register_session(&a, "s", &made), GB_OK);
    ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("sessions/s")), made.session.claim));
    snprintf(before, sizeof(before), "%s", etcd_fake_get(etcd, KEY("sessions/s")));
    ck_assert_int_eq(register_session(&a, "s", NULL), GB_ERR_SESSION_EXISTS);
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), before);
}
END_TEST

/* Waits until there are no sessions. */
static void wait_empty(void) {
    unsigned seen; /* before the look: what comes in between is not waited for */

    for (seen = txns(); etcd_fake_count(etcd, KEY("sessions/")) > 0; seen = txns())
        etcd_fake_wait_requests(etcd, TXN, seen + 1);
}

START_TEST(all_answers_are_lost_and_nothing_stays) {
    etcd_fake_lose_answers(etcd, KEY("owned/a/s"), 5); /* libcurl sends the first twice */
    ck_assert_int_eq(register_session(&a, "s", NULL), GB_ERR_DIRECTORY_UNAVAILABLE);
    wait_empty();
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/")), 0);
}
END_TEST

START_TEST(who_has_not_joined_registers_nothing) {
    struct node b = {0};
    enum gb_code code;

    node_open(&b, "a", 77); /* a name that is taken */
    node_wait(&b, GB_FLEET_DUPLICATE);
    ck_assert_int_eq(register_session(&b, "s", NULL), GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("sessions/")), 0);
    do /* the other nodes do not suspect the directory: it asks once it knows that */
        code = find_session(&b, "s", false, NULL);
    while (code == GB_ERR_OWNER_UNKNOWN);
    ck_assert_int_eq(code, GB_ERR_SESSION_NOT_FOUND);
    node_close(&b);
}
END_TEST

START_TEST(labels_of_the_greatest_length) {
    struct gb_fleet_find find;

    memset(asked.registration.session.labels, 'x', GB_FLEET_LABELS_SIZE);
    memcpy(asked.registration.session.labels, "{\"k\":\"", 6);
    strcpy(asked.registration.session.labels + GB_FLEET_LABELS_SIZE - 3, "\"}");
    asked.registration.session.name = name_of("s");
    gb_fleet_register(a.fleet, &asked.registration);
    ck_assert_int_eq(asked_wait(&asked), GB_OK);
    ck_assert_int_eq(find_session(&a, "s", true, &find), GB_OK);
    ck_assert_str_eq(find.session.labels, asked.registration.session.labels);
}
END_TEST

START_TEST(the_nodes_own_record_may_have_changed) {
    gb_fleet_set_draining(a.fleet, true); /* at the same time */
    ck_assert_int_eq(register_session(&a, "s", NULL), GB_OK);
    gb_fleet_set_draining(a.fleet, false);
    ck_assert_int_eq(register_session(&a, "t", NULL), GB_OK);
}
END_TEST

START_TEST(a_registration_that_is_left_is_taken_back) {
    unsigned before = txns();

    asked.registration.session.name = name_of("s");
    etcd_fake_lose_answers(etcd, KEY("owned/a/s"), 1);
    gb_fleet_register(a.fleet, &asked.registration);
    gb_fleet_cancel(a.fleet, &asked.ask);
    etcd_fake_wait_requests(etcd, TXN, before + 4); /* lost, again, read, deleted; libcurl may send the first twice */
    wait_empty();
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/")), 0);
    ck_assert_uint_eq(asked.waiter.done, 0);
}
END_TEST

START_TEST(a_session_is_unregistered_by_its_claim) {
    struct gb_fleet_register made;
    unsigned before;

    ck_assert_int_eq(register_session(&a, "s", &made), GB_OK);
    before = txns();
    gb_fleet_unregister(a.fleet, &made.session.name, "another", true);
    etcd_fake_wait_requests(etcd, TXN, before + 1);
    ck_assert_int_eq(find_session(&a, "s", true, NULL), GB_OK);
    gb_fleet_unregister(a.fleet, &made.session.name, made.session.claim, true);
    wait_empty();
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/")), 0);
    ck_assert_int_eq(find_session(&a, "s", true, NULL), GB_ERR_SESSION_NOT_FOUND);
}
END_TEST

START_TEST(unregistering_waits_for_the_directory) {
    struct node b = {0};
    struct gb_fleet_register made[2];

    node_open(&b, "b", 77); /* with a short lease */
    node_wait(&b, GB_FLEET_JOINED);
    ck_assert_int_eq(register_session(&b, "s", &made[0]), GB_OK);
    ck_assert_int_eq(register_session(&b, "t", &made[1]), GB_OK);
    etcd_fake_set_status(etcd, 503);
    node_wait(&b, GB_FLEET_ALONE);
    gb_fleet_unregister(b.fleet, &made[0].session.name, made[0].session.claim, true);
    gb_fleet_unregister(b.fleet, &made[1].session.name, made[1].session.claim, true);
    etcd_fake_set_status(etcd, 0);
    wait_empty();
    node_close(&b);
}
END_TEST

START_TEST(a_name_that_is_just_given_back_is_free) {
    struct gb_fleet_register made;
    int i;

    ck_assert_int_eq(register_session(&a, "s", &made), GB_OK);
    for (i = 0; i < 50; i++) {
        gb_fleet_unregister(a.fleet, &made.session.name, made.session.claim, true);
        ck_assert_int_eq(register_session(&a, "s", &made), GB_OK);
    }
    ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("sessions/s")), made.session.claim));
    ck_assert_ptr_nonnull(etcd_fake_get(etcd, KEY("owned/a/s")));
}
END_TEST

/* --- tickets and the end ------------------------------------------------------------------------------------------ */

START_TEST(a_ticket_from_one_node_to_another) {
    struct gb_name name = name_of("b");
    char ticket[GB_FLEET_TICKET_SIZE];
    char who[64];
    struct node b = {0};

    node_open_long(&b, "b", 77);
    gb_assert_ok(gb_fleet_ticket_make(a.fleet, "GET", "/v1/x", "", &name, "t", ticket, &err), err);
    gb_assert_ok(gb_fleet_ticket_check(b.fleet, ticket, "GET", "/v1/x", NULL, who, sizeof(who), &err), err);
    ck_assert_str_eq(who, "t");
    gb_assert_fails(gb_fleet_ticket_check(a.fleet, ticket, "GET", "/v1/x", NULL, who, sizeof(who), &err), err,
                    GB_ERR_TICKET_INVALID);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("keys/")), 1);
    node_close(&b);
}
END_TEST

START_TEST(asks_that_are_open_end_when_it_closes) {
    static struct asked many[6];
    struct waiter waiter;
    struct find find;
    unsigned before = txns();
    int i;

    waiter_init(&waiter);
    for (i = 0; i < 6; i++)
        asked_init(&many[i]);
    etcd_fake_set_silent(etcd, true);
    many[0].registration.session.name = name_of("s");
    gb_fleet_register(a.fleet, &many[0].registration);
    gb_fleet_list_nodes(a.fleet, &many[1].nodes);
    gb_fleet_list_sessions(a.fleet, &many[2].sessions);
    many[3].forget.node = name_of("b");
    gb_fleet_forget(a.fleet, &many[3].forget);
    many[4].place.network = name_of("default");
    gb_fleet_place(a.fleet, &many[4].place);
    many[5].call.method = "POST";
    many[5].call.body = (char *)"{}";
    snprintf(many[5].call.url, sizeof(many[5].call.url), "%s/x", etcd_fake_url(etcd));
    gb_fleet_call(a.fleet, &many[5].call);
    ck_assert(!find_begin(&a, "s", false, &find, &waiter));
    if (_i == 1) { /* all have gone out; else they may not have begun */
        etcd_fake_wait_requests(etcd, TXN, before + 6);
        etcd_fake_wait_requests(etcd, "/x", 1);
    }
    node_close(&a);
    for (i = 0; i < 6; i++) {
        ck_assert_uint_eq(many[i].waiter.done, 1);
        ck_assert_int_eq(many[i].ask.error.code, GB_ERR_DRAINING);
    }
    ck_assert_uint_eq(waiter.done, 1);
    ck_assert_int_eq(find.find.ask.error.code, GB_ERR_DRAINING);
}
END_TEST

static TCase *tcase;

static void add(const TTest *test, int times) {
    tcase_add_loop_test(tcase, test, 0, times);
}

static void add_lookups(void) {
    add(a_session_and_its_owner, 2);
    add(an_owner_that_is_not_alive, 1);
    add(a_session_that_is_not_there_is_asked_for_twice, 1);
    add(what_was_found_is_remembered, 1);
    add(what_is_remembered_serves_while_the_directory_is_silent, 2);
    add(records_that_are_no_records, 3);
    add(an_owner_that_was_forgotten, 1);
    add(many_ask_for_one_session_and_the_directory_is_asked_once, 1);
    add(sixty_four_look_ups_are_open_at_most, 2);
    add(an_ask_is_left_while_it_is_answered, 1);
}

static void add_registrations(void) {
    add(a_session_is_registered, 1);
    add(a_session_that_another_has, 1);
    add(an_answer_that_is_lost, 2);
    add(all_answers_are_lost_and_nothing_stays, 1);
    add(who_has_not_joined_registers_nothing, 1);
    add(labels_of_the_greatest_length, 1);
    add(the_nodes_own_record_may_have_changed, 1);
    add(a_registration_that_is_left_is_taken_back, 1);
    add(a_session_is_unregistered_by_its_claim, 1);
    add(unregistering_waits_for_the_directory, 1);
    add(a_name_that_is_just_given_back_is_free, 1);
}

int main(void) {
    Suite *suite = suite_create("asks");

    tcase = tcase_create("asks");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    add_lookups();
    add_registrations();
    add(a_ticket_from_one_node_to_another, 1);
    add(asks_that_are_open_end_when_it_closes, 2);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
