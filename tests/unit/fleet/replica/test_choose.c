/* Which node is to keep copies. */
#include <stdio.h>
#include <string.h>

#include "fleet/replica/copies.h"
#include "gb_test.h"

static const struct gb_fleet_url lan = {.network = {"lan"}, .url = "http://h"};
static struct gb_arrival_config is;
static struct gb_fleet_node nodes[6]; /* a to f; a is the owner */
static struct gb_replicated replicated;
static struct gb_refusal refusals[2];
static size_t refused;
static uint32_t state;

static uint32_t next_random(void *arg) {
    (void)arg;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static void set_zone(size_t i, const char *zone) {
    snprintf(nodes[i].labels, sizeof(nodes[i].labels), "{\"zone\":\"%s\"}", zone);
}

static void setup(void) {
    size_t i;

    state = 7;
    refused = 0;
    memset(nodes, 0, sizeof(nodes));
    replicated = (struct gb_replicated){.count = 0};
    is = (struct gb_arrival_config){.node = {"a"}, .urls = &lan, .url_count = 1};
    for (i = 0; i < 6; i++) {
        nodes[i] = (struct gb_fleet_node){.alive = true, .labels = "{}", .url_count = 1, .device_count = 1};
        nodes[i].name.s[0] = (char)('a' + i);
        nodes[i].urls[0] = lan;
        nodes[i].devices[0] = (struct gb_fleet_device){.bytes = 1000, .free_bytes = 100 * (i + 1)};
    }
}

static const struct gb_fleet_node *choose(uint64_t bytes) {
    return gb_holder_choose(nodes, 6, &is, &replicated, refusals, refused, bytes, next_random, NULL);
}

/* How often each is chosen. */
static void count(unsigned ret[6]) {
    int i;

    memset(ret, 0, 6 * sizeof(*ret));
    for (i = 0; i < 600; i++)
        ret[choose(0) - nodes]++;
}

START_TEST(of_two_the_one_with_more_memory) {
    unsigned times[6];
    size_t i;

    count(times);
    ck_assert_uint_eq(times[0], 0); /* the owner */
    ck_assert_uint_eq(times[1], 0); /* of any two that fit, the other has more */
    for (i = 2; i < 6; i++)
        ck_assert_uint_gt(times[i], 0);
    ck_assert_uint_gt(times[5], times[2]);
}
END_TEST

START_TEST(another_zone_first) {
    unsigned times[6];

    set_zone(0, "x");
    set_zone(1, "y");
    set_zone(2, "x");
    set_zone(3, "y");
    count(times);
    ck_assert_uint_eq(times[1] + times[3], 600); /* e and f tell no zone */
    replicated.holders[0].is.node = nodes[1].name;
    replicated.count = 1;
    count(times); /* both zones have the bytes by now */
    ck_assert_uint_eq(times[1], 0);
    ck_assert_uint_gt(times[4] + times[5], 0);
}
END_TEST

START_TEST(what_does_not_fit) {
    nodes[1].alive = false;
    nodes[2].draining = true;
    strcpy(nodes[3].urls[0].network.s, "other");
    strcpy(refusals[0].node.s, "e");
    refused = 1;
    ck_assert_ptr_eq(choose(600), &nodes[5]);
    ck_assert_ptr_null(choose(601)); /* it has not so much */
    replicated.holders[0].is.node = nodes[5].name;
    replicated.count = 1;
    ck_assert_ptr_null(choose(0));
}
END_TEST

/* The directory tells a node that has no address; but a node comes to the owner's. */
START_TEST(nodes_without_an_address) {
    size_t i;

    for (i = 1; i < 6; i++)
        nodes[i].url_count = i == 3 ? 0 : 1;
    nodes[1].alive = nodes[2].alive = nodes[4].alive = nodes[5].alive = false;
    ck_assert_ptr_eq(choose(0), &nodes[3]);
    is.url_count = 0;
    ck_assert_ptr_null(choose(0));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("choose");
    TCase *tcase = tcase_create("choose");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, of_two_the_one_with_more_memory);
    tcase_add_test(tcase, another_zone_first);
    tcase_add_test(tcase, what_does_not_fit);
    tcase_add_test(tcase, nodes_without_an_address);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
