/* Lists of nodes and sessions, forgetting a node, placing a session, calls to other nodes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet_fixture.h"
#include "gb_test.h"

#define KEY(rest) "/gpubuf/main/" rest

static struct node a;
static struct asked asked;

static void setup(void) {
    asked_init(&asked);
    fleet_setup();
    node_open_long(&a, "a", NODE_UUID);
}

static void teardown(void) {
    node_close(&a);
    fleet_teardown();
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

START_TEST(all_nodes) {
    char key[64];
    int i;

    fleet_add_b(true);
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
        etcd_fake_put(etcd, key, i == 4 ? "broken" : SESSION_OF_B, 0);
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
        etcd_fake_put(etcd, key, SESSION_OF_B, 0);
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

    fleet_add_b(false);
    for (i = 0; i < 100; i++) { /* more than one transaction has */
        snprintf(key, sizeof(key), KEY("sessions/s%d"), i);
        etcd_fake_put(etcd, key, SESSION_OF_B, 0);
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
    fleet_add_b(true);
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
    fleet_add_b(true);
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

static TCase *tcase;

static void add(const TTest *test, int times) {
    tcase_add_loop_test(tcase, test, 0, times);
}

int main(void) {
    Suite *suite = suite_create("lists");

    tcase = tcase_create("lists");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    add(all_nodes, 1);
    add(sessions_by_pages, 1);
    add(many_sessions, 2);
    add(a_node_is_forgotten_with_what_it_owns, 1);
    add(a_node_that_is_alive_is_not_forgotten, 1);
    add(a_place_for_a_session, 1);
    add(a_call_to_another, 1);
    add(one_that_does_not_answer_is_left_alone, 1);
    add(an_answer_that_is_too_long, 1);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
