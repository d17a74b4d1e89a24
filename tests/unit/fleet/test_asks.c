/* What is asked of the fleet: look-ups, registrations, lists, placement, calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet_fixture.h"
#include "gb_test.h"
#include "model/model.h"

#define KEY(rest) "/gpubuf/main/" rest
#define TXN "/v3/kv/txn"
#define OF_B                                                                                                           \
    "{\"node\":\"b\",\"epoch\":3,\"claim\":\"6\",\"on_partition\":\"stop\",\"quota\":4096,\"labels\":{\"k\":\"v\"}}"
#define NODE_B "{\"uuid\":\"77\",\"urls\":{\"default\":\"http://10.0.0.2:7070\"},\"labels\":{\"site\":\"y\"}}"
#define ALIVE_B "{\"uuid\":\"77\",\"incarnation\":6,\"state\":\"ready\",\"free\":[],\"committed\":[]}"

static struct node a;
static struct asked asked;

/* A lease of an hour: what the node does by itself is over when it has joined. */
static void open_long(struct node *node, const char *name, uint64_t uuid) {
    struct gb_fleet_config config = config_of(node, name, uuid);

    config.ttl_s = 3600;
    node_open_with(node, &config);
    node_wait(node, GB_FLEET_JOINED);
}

static void setup(void) {
    memset(&a, 0, sizeof(a));
    asked_init(&asked);
    fleet_setup();
    open_long(&a, "a", NODE_UUID);
}

static void teardown(void) {
    if (a.fleet)
        node_close(&a);
    fleet_teardown();
}

static void add_b(bool alive) {
    etcd_fake_put(etcd, KEY("nodes/b"), NODE_B, 0);
    if (alive)
        etcd_fake_put(etcd, KEY("alive/b"), ALIVE_B, 0);
    etcd_fake_put(etcd, KEY("sessions/s"), OF_B, 0);
    etcd_fake_put(etcd, KEY("owned/b/s"), "", 0);
}

static unsigned txns(void) {
    return etcd_fake_requests(etcd, TXN);
}

/* --- look-ups ----------------------------------------------------------------------------------------------------- */

START_TEST(a_session_and_its_owner) {
    struct gb_fleet_find find;
    const struct gb_name network = {"default"};
    bool surely = _i == 1;

    add_b(true);
    ck_assert_int_eq(find_session(&a, "s", surely, &find), GB_OK);
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

    add_b(false);
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

    add_b(true);
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

    add_b(true);
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

    add_b(true);
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

    add_b(true);
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
    add_b(true);
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
    struct waiter waiter;
    struct find one;

    waiter_init(&waiter);
    fill(&waiter);
    ck_assert(find_begin(&a, "s", false, &one, &waiter)); /* at once */
    ck_assert_int_eq(one.find.ask.error.code, GB_ERR_SATURATED);
    if (_i == 0) {
        int i;

        for (i = 0; i < 64; i++)
            gb_fleet_leave(a.fleet, &finds[i].find.ask);
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
    add_b(true);
    for (i = 0; i < 300; i++) {
        struct find *one = calloc(1, sizeof(*one));
        unsigned before = txns();

        snprintf(name, sizeof(name), "s%d", i);
        if (!find_begin(&a, name, true, one, &waiter)) {
            etcd_fake_wait_requests(etcd, TXN, before + 1); /* the answer may come at this very moment */
            gb_fleet_leave(a.fleet, &one->find.ask);
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

    add_b(true);
    ck_assert_int_eq(register_session(&a, "s", &made), GB_ERR_SESSION_EXISTS);
    ck_assert_str_eq(made.owner.name.s, "b");
    ck_assert_str_eq(made.session.node.s, "b");
    ck_assert_str_eq(made.owner.urls[0].url, "http://10.0.0.2:7070");
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("sessions/s")), OF_B);
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
    while (etcd_fake_count(etcd, KEY("sessions/")) > 0)
        etcd_fake_wait_requests(etcd, TXN, txns() + 1);
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

    node_open(&b, "a", 77); /* a name that is taken */
    node_wait(&b, GB_FLEET_DUPLICATE);
    ck_assert_int_eq(register_session(&b, "s", NULL), GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("sessions/")), 0);
    ck_assert_int_eq(find_session(&b, "s", false, NULL), GB_ERR_SESSION_NOT_FOUND); /* but it may ask */
    node_close(&b);
}
END_TEST

START_TEST(labels_that_are_too_long) {
    memset(asked.registration.session.labels, 'x', GB_FLEET_LABELS_SIZE);
    memcpy(asked.registration.session.labels, "{\"k\":\"", 6);
    strcpy(asked.registration.session.labels + 1000, "\"}");
    asked.registration.session.name = name_of("s");
    gb_fleet_register(a.fleet, &asked.registration);
    ck_assert_int_eq(asked_wait(&asked), GB_ERR_INVALID_ARGUMENT);
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
    gb_fleet_leave(a.fleet, &asked.ask);
    etcd_fake_wait_requests(etcd, TXN, before + 4); /* lost, again, read, deleted */
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("sessions/")), 0);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/")), 0);
    ck_assert_uint_eq(asked.waiter.done, 0);
}
END_TEST

START_TEST(a_session_is_unregistered_by_its_claim) {
    struct gb_fleet_register made;
    unsigned before;

    ck_assert_int_eq(register_session(&a, "s", &made), GB_OK);
    before = txns();
    gb_fleet_unregister(a.fleet, &made.session.name, "another");
    etcd_fake_wait_requests(etcd, TXN, before + 1);
    ck_assert_int_eq(find_session(&a, "s", true, NULL), GB_OK);
    gb_fleet_unregister(a.fleet, &made.session.name, made.session.claim);
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
    gb_fleet_unregister(b.fleet, &made[0].session.name, made[0].session.claim);
    gb_fleet_unregister(b.fleet, &made[1].session.name, made[1].session.claim);
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
        gb_fleet_unregister(a.fleet, &made.session.name, made.session.claim);
        ck_assert_int_eq(register_session(&a, "s", &made), GB_OK);
    }
    ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("sessions/s")), made.session.claim));
    ck_assert_ptr_nonnull(etcd_fake_get(etcd, KEY("owned/a/s")));
}
END_TEST

/* --- lists -------------------------------------------------------------------------------------------------------- */

START_TEST(all_nodes) {
    char key[64];
    int i;

    add_b(true);
    etcd_fake_put(etcd, KEY("nodes/broken"), "{", 0);
    for (i = 0; i < 600; i++) { /* more than two pages */
        snprintf(key, sizeof(key), KEY("nodes/x%03d"), i);
        etcd_fake_put(etcd, key, NODE_B, 0);
        snprintf(key, sizeof(key), KEY("alive/x%03d"), i);
        if (i % 2)
            etcd_fake_put(etcd, key, ALIVE_B, 0);
    }
    gb_fleet_list_nodes(a.fleet, &asked.nodes);
    ck_assert_int_eq(asked_wait(&asked), GB_OK);
    ck_assert_uint_eq(asked.nodes.count, 602);
    ck_assert_str_eq(asked.nodes.items[0].name.s, "a");
    ck_assert(asked.nodes.items[0].alive);
    ck_assert_uint_eq(asked.nodes.items[0].devices[0].free_bytes, 900);
    ck_assert_str_eq(asked.nodes.items[1].name.s, "b");
    ck_assert_str_eq(asked.nodes.items[601].name.s, "x599");
    ck_assert(asked.nodes.items[601].alive);
    ck_assert(!asked.nodes.items[600].alive);
    free(asked.nodes.items);
}
END_TEST

/* The names of a page, each of one letter and a number, as one text. */
static void list(const char *node, const char *after, size_t limit, char *ret, size_t size, bool *ret_more) {
    size_t i;

    asked_init(&asked);
    if (node[0])
        asked.sessions.node = name_of(node);
    if (after[0])
        asked.sessions.after = name_of(after);
    asked.sessions.limit = limit;
    gb_fleet_list_sessions(a.fleet, &asked.sessions);
    ck_assert_int_eq(asked_wait(&asked), GB_OK);
    ret[0] = '\0';
    for (i = 0; i < asked.sessions.count; i++)
        snprintf(ret + strlen(ret), size - strlen(ret), "%s ", asked.sessions.items[i].name.s);
    *ret_more = asked.sessions.more;
    free(asked.sessions.items);
}

START_TEST(sessions_by_pages) {
    char text[256];
    char key[64];
    bool more;
    int i;

    for (i = 0; i < 9; i++) {
        snprintf(key, sizeof(key), KEY("sessions/s%d"), i);
        etcd_fake_put(etcd, key, i == 4 ? "broken" : OF_B, 0);
        snprintf(key, sizeof(key), KEY("owned/b/s%d"), i);
        if (i % 2)
            etcd_fake_put(etcd, key, "", 0);
    }
    etcd_fake_put(etcd, KEY("owned/b/lost"), "", 0);
    list("", "", 3, text, sizeof(text), &more);
    ck_assert_str_eq(text, "s0 s1 s2 ");
    ck_assert(more);
    list("", "s2", 3, text, sizeof(text), &more);
    ck_assert_str_eq(text, "s3 s5 s6 ");
    ck_assert(more);
    list("", "s6", 3, text, sizeof(text), &more);
    ck_assert_str_eq(text, "s7 s8 ");
    ck_assert(!more);
    list("b", "", 2, text, sizeof(text), &more);
    ck_assert_str_eq(text, "s1 s3 ");
    ck_assert(more);
    list("b", "s3", 10, text, sizeof(text), &more);
    ck_assert_str_eq(text, "s5 s7 ");
    ck_assert(!more);
    list("a", "", 10, text, sizeof(text), &more);
    ck_assert_str_eq(text, "");
    ck_assert(!more);
}
END_TEST

START_TEST(many_sessions) {
    char key[64];
    int i;

    for (i = 0; i < 300; i++) {
        snprintf(key, sizeof(key), KEY("sessions/s%03d"), i);
        etcd_fake_put(etcd, key, OF_B, 0);
        snprintf(key, sizeof(key), KEY("owned/b/s%03d"), i);
        etcd_fake_put(etcd, key, "", 0);
    }
    if (_i == 1)
        asked.sessions.node = name_of("b");
    asked.sessions.limit = 200;
    gb_fleet_list_sessions(a.fleet, &asked.sessions);
    ck_assert_int_eq(asked_wait(&asked), GB_OK);
    ck_assert_uint_eq(asked.sessions.count, 200);
    ck_assert(asked.sessions.more);
    ck_assert_str_eq(asked.sessions.items[199].name.s, "s199");
    free(asked.sessions.items);
}
END_TEST

/* --- forgetting --------------------------------------------------------------------------------------------------- */

static enum gb_code forget(const char *node) {
    asked_init(&asked);
    asked.forget.node = name_of(node);
    gb_fleet_forget(a.fleet, &asked.forget);
    return asked_wait(&asked);
}

START_TEST(a_node_is_forgotten_with_what_it_owns) {
    char key[64];
    int i;

    add_b(false);
    for (i = 0; i < 100; i++) { /* more than one transaction has */
        snprintf(key, sizeof(key), KEY("sessions/s%d"), i);
        etcd_fake_put(etcd, key, OF_B, 0);
        snprintf(key, sizeof(key), KEY("owned/b/s%d"), i);
        etcd_fake_put(etcd, key, "", 0);
    }
    etcd_fake_put(etcd, KEY("owned/b/s7"), "", 0);
    ck_assert_int_eq(register_session(&a, "mine", NULL), GB_OK);
    etcd_fake_put(etcd, KEY("owned/b/mine"), "", 0); /* it is another's */
    ck_assert_int_eq(find_session(&a, "s7", false, NULL), GB_OK);
    ck_assert_int_eq(forget("b"), GB_OK);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("sessions/")), 1);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/")), 1);
    ck_assert_ptr_null(etcd_fake_get(etcd, KEY("nodes/b")));
    ck_assert_int_eq(find_session(&a, "s7", false, NULL), GB_ERR_SESSION_NOT_FOUND);
    ck_assert_int_eq(forget("b"), GB_ERR_NODE_NOT_FOUND);
}
END_TEST

START_TEST(a_node_that_is_alive_is_not_forgotten) {
    add_b(true);
    ck_assert_int_eq(forget("b"), GB_ERR_NODE_ALIVE);
    ck_assert_int_eq(forget("a"), GB_ERR_NODE_ALIVE);
    ck_assert_int_eq(find_session(&a, "s", true, NULL), GB_OK);
}
END_TEST

/* --- placing and calling ------------------------------------------------------------------------------------------ */

static enum gb_code place(const char *select, uint64_t bytes, const char *network) {
    asked_init(&asked);
    strcpy(asked.place.select, select);
    asked.place.bytes = bytes;
    asked.place.network = name_of(network);
    gb_fleet_place(a.fleet, &asked.place);
    return asked_wait(&asked);
}

START_TEST(a_place_for_a_session) {
    add_b(true);
    ck_assert_int_eq(place("", 0, "default"), GB_OK);
    ck_assert_uint_eq(asked.place.count, 2);
    ck_assert_str_eq(asked.place.nodes[0].name.s, "a");
    ck_assert_int_eq(place("{\"site\":\"y\"}", 0, "default"), GB_OK);
    ck_assert_uint_eq(asked.place.count, 1);
    ck_assert_str_eq(asked.place.nodes[0].name.s, "b");
    ck_assert_int_eq(place("", 901, "default"), GB_ERR_NO_NODE_FITS);
    ck_assert_uint_eq(asked.place.count, 0);
    ck_assert_int_eq(place("", 0, "lan"), GB_ERR_NO_NODE_FITS);
}
END_TEST

static enum gb_code call(const char *url, const char *path, const char *body) {
    char text[64];

    asked_init(&asked);
    snprintf(asked.call.url, sizeof(asked.call.url), "%s%s", url, path);
    snprintf(text, sizeof(text), "%s", body);
    asked.call.method = "POST";
    asked.call.body = text;
    gb_fleet_call(a.fleet, &asked.call);
    memset(text, 0, sizeof(text)); /* it was copied */
    return asked_wait(&asked);
}

START_TEST(a_call_to_another) {
    ck_assert_int_eq(call(etcd_fake_url(etcd), "/v3/lease/timetolive", "{\"ID\":\"7\"}"), GB_OK);
    ck_assert_int_eq(asked.call.status, 200);
    ck_assert_ptr_nonnull(strstr(asked.call.answer, "\"TTL\":\"-1\""));
    ck_assert_uint_eq(asked.call.bytes, strlen(asked.call.answer));
    free(asked.call.answer);
    ck_assert_int_eq(call(etcd_fake_url(etcd), "/nothing", "{}"), GB_OK);
    ck_assert_int_eq(asked.call.status, 404);
    free(asked.call.answer);
}
END_TEST

START_TEST(one_that_does_not_answer_is_left_alone) {
    struct etcd_fake *other = etcd_fake_start();
    int i;

    etcd_fake_set_answer(other, "ok");
    ck_assert_int_eq(call(etcd_fake_url(other), "/x", "{}"), GB_OK);
    free(asked.call.answer);
    etcd_fake_set_silent(other, true);
    for (i = 0; i < 3; i++)
        ck_assert_int_eq(call(etcd_fake_url(other), "/x", "{}"), GB_ERR_NODE_UNREACHABLE);
    ck_assert_ptr_null(asked.call.answer);
    etcd_fake_set_silent(other, false);
    ck_assert_int_eq(call(etcd_fake_url(other), "/x", "{}"), GB_ERR_NODE_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(asked.ask.error.detail, "left alone"));
    ck_assert_uint_eq(etcd_fake_requests(other, "/x"), 4);
    do /* until it is asked again */
        i = call(etcd_fake_url(other), "/x", "{}");
    while (i != GB_OK);
    free(asked.call.answer);
    etcd_fake_stop(other);
}
END_TEST

START_TEST(an_answer_that_is_too_long) {
    char *text = malloc((1u << 20) + 2);

    memset(text, 'x', (1u << 20) + 1);
    text[(1u << 20) + 1] = '\0';
    etcd_fake_set_answer(etcd, text);
    ck_assert_int_eq(call(etcd_fake_url(etcd), "/x", "{}"), GB_ERR_NODE_UNREACHABLE);
    text[1u << 20] = '\0';
    etcd_fake_set_answer(etcd, text);
    ck_assert_int_eq(call(etcd_fake_url(etcd), "/x", "{}"), GB_OK);
    ck_assert_uint_eq(asked.call.bytes, 1u << 20);
    free(asked.call.answer);
    free(text);
}
END_TEST

/* --- tickets and the end ------------------------------------------------------------------------------------------ */

START_TEST(a_ticket_from_one_node_to_another) {
    struct gb_name name = name_of("b");
    char ticket[GB_FLEET_TICKET_SIZE];
    char who[64];
    struct node b = {0};

    open_long(&b, "b", 77);
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
    add(labels_that_are_too_long, 1);
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
    add(all_nodes, 1);
    add(sessions_by_pages, 1);
    add(many_sessions, 2);
    add(a_node_is_forgotten_with_what_it_owns, 1);
    add(a_node_that_is_alive_is_not_forgotten, 1);
    add(a_place_for_a_session, 1);
    add(a_call_to_another, 1);
    add(one_that_does_not_answer_is_left_alone, 1);
    add(an_answer_that_is_too_long, 1);
    add(a_ticket_from_one_node_to_another, 1);
    add(asks_that_are_open_end_when_it_closes, 2);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
