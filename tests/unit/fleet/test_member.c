/* A node's life in the directory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fleet_fixture.h"
#include "gb_test.h"

#define KEY(rest) "/gpubuf/main/" rest
#define OLD_ALIVE "{\"uuid\":\"4242\",\"incarnation\":5,\"state\":\"ready\",\"free\":[],\"committed\":[]}"
#define TXN "/v3/kv/txn"

static struct node a;
static struct node b;

static void setup(void) {
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    fleet_setup();
}

/* Lets the node speak to the directory a few times more. */
static void let_speak(unsigned n) {
    etcd_fake_wait_requests(etcd, TXN, etcd_fake_requests(etcd, TXN) + n);
}

START_TEST(it_joins_and_leaves) {
    struct gb_fleet_stat stat;

    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    stat = stat_of(&a);
    ck_assert_int_eq(stat.why.code, GB_OK);
    ck_assert_str_eq(stat.cluster_id, "14841639068965178418");
    ck_assert_uint_gt(stat.incarnation, 0);
    ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("nodes/a")), "\"site\":\"x\""));
    ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("alive/a")), "\"free\":[900]"));
    ck_assert(etcd_fake_has_lease(etcd, NODE_UUID));
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("keys/")), 1);
    node_close(&a);
    ck_assert(!etcd_fake_has_lease(etcd, NODE_UUID));
    ck_assert_ptr_null(etcd_fake_get(etcd, KEY("alive/a")));
    ck_assert_ptr_nonnull(etcd_fake_get(etcd, KEY("nodes/a")));
}
END_TEST

START_TEST(without_a_fleet_it_is_alone_until_there_is_one) {
    struct gb_fleet_config config = config_of(&a, "a", NODE_UUID);
    char uuid[40];
    char again[40];

    config.fleet = "other";
    node_open_with(&a, &config);
    let_speak(3);
    ck_assert_int_eq(stat_of(&a).state, GB_FLEET_ALONE);
    ck_assert_ptr_nonnull(strstr(stat_of(&a).why.detail, "gpubuf fleet init"));
    ck_assert_uint_eq(etcd_fake_count(etcd, "/gpubuf/other/"), 0);
    ck_assert_int_eq(gb_fleet_init(&config, uuid, &err), 0);
    ck_assert_int_eq(gb_fleet_init(&config, again, &err), 1);
    ck_assert_str_eq(uuid, again);
    node_wait(&a, GB_FLEET_JOINED);
    node_close(&a);
}
END_TEST

START_TEST(it_renews) {
    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    etcd_fake_wait_requests(etcd, "/v3/lease/keepalive", 5); /* 2.5 s at the least: longer than the lease */
    ck_assert(etcd_fake_has_lease(etcd, NODE_UUID));
    ck_assert_int_eq(stat_of(&a).state, GB_FLEET_JOINED);
    ck_assert_uint_ge(stat_of(&a).renewals, 4);
    node_close(&a);
}
END_TEST

START_TEST(a_second_process_is_a_duplicate) {
    char before[512];

    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    snprintf(before, sizeof(before), "%s", etcd_fake_get(etcd, KEY("alive/a")));
    node_open(&b, _i == 0 ? "a" : "b", NODE_UUID); /* another name does not help */
    node_wait(&b, GB_FLEET_DUPLICATE);
    ck_assert_int_eq(stat_of(&a).state, GB_FLEET_JOINED);
    ck_assert_str_eq(before, etcd_fake_get(etcd, KEY("alive/a")));
    node_close(&b); /* takes nothing with it */
    ck_assert_str_eq(before, etcd_fake_get(etcd, KEY("alive/a")));
    node_close(&a);
}
END_TEST

START_TEST(a_duplicate_joins_when_the_first_has_gone) {
    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    node_open(&b, "a", NODE_UUID);
    node_wait(&b, GB_FLEET_DUPLICATE);
    node_close(&a);
    node_wait(&b, GB_FLEET_JOINED);
    node_close(&b);
}
END_TEST

START_TEST(of_two_that_start_together_one_joins) {
    enum gb_fleet_state one;
    enum gb_fleet_state other;

    if (_i == 1) { /* and both find what one before them left */
        etcd_fake_grant(etcd, NODE_UUID, 2);
        etcd_fake_put(etcd, KEY("alive/a"), OLD_ALIVE, NODE_UUID);
    }
    node_open(&a, "a", NODE_UUID);
    node_open(&b, "a", NODE_UUID);
    one = node_wait_not(&a, GB_FLEET_ALONE);
    other = node_wait_not(&b, GB_FLEET_ALONE);
    ck_assert_msg((one == GB_FLEET_JOINED) + (other == GB_FLEET_JOINED) == 1, "%s and %s", gb_fleet_state_name(one),
                  gb_fleet_state_name(other));
    ck_assert_int_eq((one == GB_FLEET_DUPLICATE) + (other == GB_FLEET_DUPLICATE), 1);
    node_close(&a);
    node_close(&b);
}
END_TEST

START_TEST(a_name_is_of_one_machine) {
    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    node_open(&b, "a", 77);
    node_wait(&b, GB_FLEET_DUPLICATE);
    ck_assert_ptr_nonnull(strstr(stat_of(&b).why.detail, "--fleet-node"));
    ck_assert(!etcd_fake_has_lease(etcd, 77));
    node_close(&a);
    node_wait(&b, GB_FLEET_JOINED); /* it was free, and had no sessions */
    node_close(&b);
}
END_TEST

START_TEST(a_name_with_sessions_is_not_taken_over) {
    etcd_fake_put(etcd, KEY("nodes/a"), "{\"uuid\":\"77\"}", 0);
    etcd_fake_put(etcd, KEY("owned/a/s"), "", 0);
    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_DUPLICATE);
    ck_assert_str_eq(etcd_fake_get(etcd, KEY("nodes/a")), "{\"uuid\":\"77\"}");
    etcd_fake_delete(etcd, KEY("owned/a/s"));
    node_wait(&a, GB_FLEET_JOINED);
    node_close(&a);
}
END_TEST

START_TEST(a_restarted_process_adopts_its_lease) {
    struct gb_fleet_config config = config_of(&a, "a", NODE_UUID);

    config.ttl_s = 4;
    etcd_fake_grant(etcd, NODE_UUID, 4);
    etcd_fake_put(etcd, KEY("nodes/a"), "{\"uuid\":\"4242\",\"later\":1}", 0);
    etcd_fake_put(etcd, KEY("alive/a"), OLD_ALIVE, NODE_UUID);
    node_open_with(&a, &config);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_uint_eq(etcd_fake_requests(etcd, "/v3/lease/grant"), 0);
    ck_assert_ptr_null(strstr(etcd_fake_get(etcd, KEY("alive/a")), "\"incarnation\":5,"));
    ck_assert_ptr_nonnull(strstr(etcd_fake_get(etcd, KEY("nodes/a")), "\"later\":1")); /* kept */
    node_close(&a);
}
END_TEST

START_TEST(a_lease_of_another_name_or_length_is_replaced) {
    etcd_fake_grant(etcd, NODE_UUID, _i == 0 ? 2 : 3);
    etcd_fake_put(etcd, _i == 0 ? KEY("alive/old") : KEY("alive/a"), OLD_ALIVE, NODE_UUID);
    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_ptr_null(etcd_fake_get(etcd, KEY("alive/old")));
    ck_assert_uint_eq(etcd_fake_requests(etcd, "/v3/lease/grant"), 1);
    node_close(&a);
}
END_TEST

START_TEST(an_expired_lease_is_taken_anew) {
    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    etcd_fake_expire(etcd, NODE_UUID);
    node_wait_seen(&a, GB_FLEET_EXPIRED);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_ptr_nonnull(etcd_fake_get(etcd, KEY("alive/a")));
    node_close(&a);
}
END_TEST

START_TEST(while_the_directory_is_silent_it_is_alone) {
    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    if (_i == 0)
        etcd_fake_set_silent(etcd, true);
    else if (_i == 1)
        etcd_fake_set_status(etcd, 503);
    else
        etcd_fake_set_answer(etcd, "[1, 2");
    node_wait(&a, GB_FLEET_ALONE);
    ck_assert_int_eq(stat_of(&a).why.code, GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_uint_gt(stat_of(&a).failures, 0);
    etcd_fake_set_silent(etcd, false);
    etcd_fake_set_status(etcd, 0);
    etcd_fake_set_answer(etcd, NULL);
    node_wait(&a, GB_FLEET_JOINED);
    node_close(&a);
}
END_TEST

static void turn_into_another(int how) {
    if (how == 0) { /* emptied */
        etcd_fake_wipe(etcd);
        etcd_fake_set_cluster(etcd, 7);
    } else if (how == 1) { /* another fleet of that name in the same etcd */
        etcd_fake_put(etcd, KEY("meta"), "{\"uuid\":\"another\",\"schema\":1}", 0);
    } else {
        etcd_fake_delete(etcd, KEY("meta"));
    }
}

START_TEST(another_directory_is_left_alone) {
    uint64_t sum;

    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_int_eq(register_session(&a, "s", NULL), GB_OK);
    turn_into_another(_i);
    node_wait(&a, GB_FLEET_ALONE);
    etcd_fake_delete(etcd, KEY("alive/a")); /* or it would go by itself in between */
    sum = etcd_fake_sum(etcd);
    ck_assert_int_eq(register_session(&a, "t", NULL), GB_ERR_DIRECTORY_UNAVAILABLE);
    let_speak(3);
    ck_assert_uint_eq(etcd_fake_sum(etcd), sum);
    ck_assert_int_eq(stat_of(&a).state, GB_FLEET_ALONE);
    node_close(&a);
    ck_assert_uint_eq(etcd_fake_sum(etcd), sum);
}
END_TEST

START_TEST(it_puts_right_what_a_crash_left) {
    char record[96];
    char key[64];
    int i;

    for (i = 0; i < 150; i++) { /* more than one page */
        snprintf(key, sizeof(key), KEY("sessions/s%d"), i);
        snprintf(record, sizeof(record), "{\"node\":\"a\",\"epoch\":1,\"claim\":\"5-%d\",\"on_partition\":\"serve\"}",
                 i);
        etcd_fake_put(etcd, key, record, 0);
        snprintf(key, sizeof(key), KEY("owned/a/s%d"), i);
        etcd_fake_put(etcd, key, "", 0);
    }
    etcd_fake_put(etcd, KEY("owned/a/lost"), "", 0); /* without a record */
    etcd_fake_put(etcd, KEY("sessions/t"), "{\"node\":\"b\",\"epoch\":2,\"claim\":\"6\",\"on_partition\":\"stop\"}", 0);
    etcd_fake_put(etcd, KEY("owned/b/t"), "", 0);
    etcd_fake_put(etcd, KEY("nodes/a"), "{\"uuid\":\"4242\"}", 0);
    a.has = _i == 1;
    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    while (_i == 0 && etcd_fake_count(etcd, KEY("sessions/s")) > 0) /* not at once: another may have them */
        usleep(1000);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("sessions/s")), _i == 1 ? 150 : 0);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/a/")), _i == 1 ? 150 : 0);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("sessions/t")), 1);
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("owned/b/t")), 1);
    node_close(&a);
}
END_TEST

START_TEST(keys_of_tickets_are_made_anew_each_day) {
    static const char key[] = "{\"key\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\",\"made\":77}";

    etcd_fake_put(etcd, KEY("keys/1"), key, 0);
    etcd_fake_put(etcd, KEY("keys/2"), key, 0);
    etcd_fake_put(etcd, KEY("keys/3"), "{\"key\":\"short\"}", 0);
    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_ptr_null(etcd_fake_get(etcd, KEY("keys/1")));
    ck_assert_ptr_nonnull(etcd_fake_get(etcd, KEY("keys/2"))); /* what it signed is good for a while */
    ck_assert_uint_eq(etcd_fake_count(etcd, KEY("keys/")), 3);
    node_close(&a);
}
END_TEST

/* Waits until alive/a has that in it. */
static void wait_told(const char *what) {
    while (!strstr(etcd_fake_get(etcd, KEY("alive/a")), what))
        let_speak(1);
}

START_TEST(it_tells_of_changes) {
    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    gb_fleet_set_draining(a.fleet, true);
    wait_told("\"draining\"");
    ck_assert(stat_of(&a).draining);
    gb_fleet_set_draining(a.fleet, false);
    wait_told("\"ready\"");
    pthread_mutex_lock(&a.lock);
    a.free_bytes = 100;
    pthread_mutex_unlock(&a.lock);
    wait_told("\"free\":[100]");
    ck_assert_int_eq(stat_of(&a).state, GB_FLEET_JOINED);
    node_close(&a);
}
END_TEST

START_TEST(it_learns_the_directorys_clock) {
    etcd_fake_set_date(etcd, 3600);
    node_open(&a, "a", NODE_UUID);
    node_wait(&a, GB_FLEET_JOINED);
    ck_assert_int_gt(stat_of(&a).clock_offset_ms, 3600000 - 30000);
    ck_assert_int_lt(stat_of(&a).clock_offset_ms, 3600000 + 30000);
    node_close(&a);
}
END_TEST

START_TEST(the_next_endpoint_is_asked) {
    struct gb_fleet_config config = config_of(&a, "a", NODE_UUID);
    struct etcd_fake *gone = etcd_fake_start();
    char endpoints[256];

    snprintf(endpoints, sizeof(endpoints), "%s,%s/", etcd_fake_url(gone), etcd_fake_url(etcd));
    if (_i == 0)
        etcd_fake_stop(gone); /* refused */
    else if (_i == 1)
        etcd_fake_set_silent(gone, true);
    else
        etcd_fake_set_answer(gone, "<html>");
    config.endpoints = endpoints;
    node_open_with(&a, &config);
    node_wait(&a, GB_FLEET_JOINED);
    node_close(&a);
    if (_i != 0)
        etcd_fake_stop(gone);
}
END_TEST

/* The test's time-out is the bound: nothing waits for the directory for long. */
START_TEST(it_closes_though_the_directory_is_silent) {
    if (_i == 0)
        etcd_fake_set_silent(etcd, true);
    node_open(&a, "a", NODE_UUID);
    if (_i == 1) {
        node_wait(&a, GB_FLEET_JOINED);
        etcd_fake_set_silent(etcd, true);
    }
    node_close(&a);
}
END_TEST

START_TEST(a_configuration_that_cannot_be) {
    struct gb_fleet_config config = config_of(&a, "a", NODE_UUID);
    struct gb_fleet_url url = {.network = {"lan"}, .url = "no URL"};
    struct gb_fleet *fleet;

    switch (_i) {
    case 0:
        config.endpoints = "127.0.0.1:2379";
        break;
    case 1:
        config.endpoints = "http://h,";
        break;
    case 2:
        config.uuid = 0;
        break;
    case 3:
        config.ttl_s = 1;
        break;
    case 4:
        config.urls = &url;
        break;
    case 5:
        config.labels = "{\"a\":1}";
        break;
    case 6:
        config.fleet = "a/b";
        break;
    case 7:
        config.ca_file = "/no/such/file";
        break;
    default:
        config.url_count = GB_FLEET_NETWORKS_MAX + 1;
    }
    gb_assert_fails(gb_fleet_open(&config, &fleet, &err), err, GB_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_null(fleet);
}
END_TEST

START_TEST(making_a_fleet_needs_a_directory) {
    struct gb_fleet_config config = {.fleet = "new", .endpoints = etcd_fake_url(etcd)};
    char uuid[40];

    etcd_fake_set_status(etcd, 503);
    gb_assert_fails(gb_fleet_init(&config, uuid, &err), err, GB_ERR_DIRECTORY_UNAVAILABLE);
}
END_TEST

static TCase *tcase;

static void add(const TTest *test, int times) {
    tcase_add_loop_test(tcase, test, 0, times);
}

int main(void) {
    Suite *suite = suite_create("member");

    tcase = tcase_create("member");
    tcase_add_checked_fixture(tcase, setup, fleet_teardown);
    tcase_set_timeout(tcase, 60);
    add(it_joins_and_leaves, 1);
    add(without_a_fleet_it_is_alone_until_there_is_one, 1);
    add(it_renews, 1);
    add(a_second_process_is_a_duplicate, 2);
    add(a_duplicate_joins_when_the_first_has_gone, 1);
    add(of_two_that_start_together_one_joins, 2);
    add(a_name_is_of_one_machine, 1);
    add(a_name_with_sessions_is_not_taken_over, 1);
    add(a_restarted_process_adopts_its_lease, 1);
    add(a_lease_of_another_name_or_length_is_replaced, 2);
    add(an_expired_lease_is_taken_anew, 1);
    add(while_the_directory_is_silent_it_is_alone, 3);
    add(another_directory_is_left_alone, 3);
    add(it_puts_right_what_a_crash_left, 2);
    add(it_tells_of_changes, 1);
    add(keys_of_tickets_are_made_anew_each_day, 1);
    add(it_learns_the_directorys_clock, 1);
    add(the_next_endpoint_is_asked, 3);
    add(a_configuration_that_cannot_be, 9);
    add(making_a_fleet_needs_a_directory, 1);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("closing");
    tcase_add_checked_fixture(tcase, setup, fleet_teardown);
    tcase_set_timeout(tcase, 10);
    add(it_closes_though_the_directory_is_silent, 2);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
