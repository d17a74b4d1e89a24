/* The choice of a node. */
#include <string.h>

#include "fleet/state.h"
#include "gb_test.h"

static struct gb_error err;
static struct gb_fleet_node nodes[8];
static const struct gb_fleet_node *chosen[GB_FLEET_HOPS_MAX];
static const struct gb_name lan = {"lan"};
static struct gb_place_constraints constraints;
static uint32_t state;

static uint32_t next_random(void *arg) {
    (void)arg;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static void setup(void) {
    size_t i;

    err = GB_ERROR_INIT;
    state = 7;
    memset(nodes, 0, sizeof(nodes));
    constraints = (struct gb_place_constraints){.select = "", .network = &lan};
    for (i = 0; i < 8; i++) {
        nodes[i] = (struct gb_fleet_node){.alive = true, .labels = "{\"site\":\"x\"}", .url_count = 1};
        nodes[i].name.s[0] = (char)('a' + i);
        nodes[i].urls[0] = (struct gb_fleet_url){.network = lan, .url = "http://h"};
        nodes[i].device_count = 1;
        nodes[i].devices[0] = (struct gb_fleet_device){.bytes = 1000, .free_bytes = 100 * (i + 1)};
    }
}

static size_t choose(size_t count) {
    return gb_place_choose(nodes, count, &constraints, next_random, NULL, chosen, &err);
}

START_TEST(three_that_differ_and_the_freer_first) {
    unsigned first[8] = {0};
    int i;

    for (i = 0; i < 800; i++) {
        ck_assert_uint_eq(choose(8), 3);
        ck_assert(chosen[0] != chosen[1] && chosen[1] != chosen[2] && chosen[0] != chosen[2]);
        ck_assert_uint_ge(chosen[0]->devices[0].free_bytes, chosen[1]->devices[0].free_bytes);
        first[chosen[0] - nodes]++;
    }
    ck_assert_uint_eq(first[0], 0); /* the fullest never comes before another */
    for (i = 1; i < 8; i++)
        ck_assert_uint_gt(first[i], 0); /* and all others do, at times */
    ck_assert_uint_gt(first[7], first[1]);
}
END_TEST

START_TEST(fewer_than_three) {
    ck_assert_uint_eq(choose(1), 1);
    ck_assert_ptr_eq(chosen[0], &nodes[0]);
    ck_assert_uint_eq(choose(2), 2);
    ck_assert_ptr_eq(chosen[0], &nodes[1]);
}
END_TEST

START_TEST(only_what_fits) {
    int i;

    nodes[0].alive = false;
    nodes[1].draining = true;
    nodes[2].url_count = 0;
    strcpy(nodes[3].labels, "{\"site\":\"y\"}");
    nodes[4].devices[0].free_bytes = 49;
    nodes[5].devices[0].committed_bytes = 960;
    nodes[6].devices[0].committed_bytes = 2000;
    constraints.select = "{\"site\":\"x\"}";
    constraints.bytes = 50;
    for (i = 0; i < 50; i++) {
        ck_assert_uint_eq(choose(8), 1);
        ck_assert_ptr_eq(chosen[0], &nodes[7]);
    }
}
END_TEST

START_TEST(none_fits_and_why) {
    nodes[0].alive = false;
    nodes[1].draining = true;
    nodes[2].url_count = 0;
    strcpy(nodes[3].labels, "{}");
    constraints.select = "{\"site\":\"x\"}";
    constraints.bytes = 900;
    ck_assert_uint_eq(choose(6), 0);
    ck_assert_int_eq(err.code, GB_ERR_NO_NODE_FITS);
    ck_assert_str_eq(err.detail, "of 6 nodes 1 are not alive, 1 drain, 1 are not in this network, 1 lack the labels, 2 "
                                 "lack the memory");
}
END_TEST

START_TEST(no_nodes) {
    ck_assert_uint_eq(choose(0), 0);
    ck_assert_int_eq(err.code, GB_ERR_NO_NODE_FITS);
}
END_TEST

START_TEST(one_device_must_have_it_all) {
    nodes[0].device_count = 2;
    nodes[0].devices[0].free_bytes = 600;
    nodes[0].devices[1] = nodes[0].devices[0];
    constraints.bytes = 601;
    ck_assert_uint_eq(choose(1), 0);
    err = GB_ERROR_INIT;
    nodes[0].devices[1].free_bytes = 601;
    ck_assert_uint_eq(choose(1), 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("place");
    TCase *tcase = tcase_create("place");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, three_that_differ_and_the_freer_first);
    tcase_add_test(tcase, fewer_than_three);
    tcase_add_test(tcase, only_what_fits);
    tcase_add_test(tcase, none_fits_and_why);
    tcase_add_test(tcase, no_nodes);
    tcase_add_test(tcase, one_device_must_have_it_all);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
