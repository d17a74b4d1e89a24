/* Requests through a hub: who gets which answer, whose leases are used, and the end of what is open. */
#include "fleet/hub/hub.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/encoding.h"
#include "fleet/messages.h"
#include "fleet_fixture.h"
#include "gb_test.h"

#define KEY(rest) "/gpubuf/main/" rest
#define TXN "/v3/kv/txn"
#define KEEPALIVE "/v3/lease/keepalive"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define N_UUID 99

static struct node a;
static struct gb_hub *hub;
static pthread_mutex_t lock;
static pthread_cond_t ended;

struct sent {
    struct gb_hub_ask ask;
    bool done;
};

static void setup(void) {
    struct gb_hub_config config = {.name = "main"};

    memset(&a, 0, sizeof(a));
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&ended, NULL);
    fleet_setup();
    node_open_long(&a, "a", NODE_UUID);
    config.fleet = a.fleet;
    gb_assert_ok(gb_hub_open(&config, &hub, &err), err);
}

static void teardown(void) {
    gb_hub_close(hub);
    node_close(&a);
    fleet_teardown();
    pthread_cond_destroy(&ended);
    pthread_mutex_destroy(&lock);
}

static void on_done(struct gb_hub_ask *ask) {
    pthread_mutex_lock(&lock);
    gb_container_of(ask, struct sent, ask)->done = true;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

static int try_send(struct sent *sent, const char *node, const char *op, const char *body) {
    *sent = (struct sent){.ask = {.op = op, .body = body, .done = on_done}};
    sent->ask.node = name_of(node);
    return gb_hub_send(hub, &sent->ask, &err);
}

static void send(struct sent *sent, const char *node, const char *op, const char *body) {
    gb_assert_ok(try_send(sent, node, op, body), err);
}

static enum gb_code wait_for(struct sent *sent) {
    pthread_mutex_lock(&lock);
    while (!sent->done)
        pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    return sent->ask.error.code;
}

static bool is_done(struct sent *sent) {
    bool ret;

    pthread_mutex_lock(&lock);
    ret = sent->done;
    pthread_mutex_unlock(&lock);
    return ret;
}

static struct gb_hub_stat stat_of_hub(void) {
    struct gb_hub_stat stat;

    gb_hub_stat(hub, &stat);
    return stat;
}

static void read_text(const char *const keys[], size_t count, char *ret, size_t size) {
    size_t used = (size_t)snprintf(ret, size, "{\"success\":[");
    size_t i;

    for (i = 0; i < count; i++) {
        char *key = gb_base64(keys[i], strlen(keys[i]), false);

        used +=
            (size_t)snprintf(ret + used, size - used, "%s{\"request_range\":{\"key\":\"%s\"}}", i > 0 ? "," : "", key);
        free(key);
    }
    used += (size_t)snprintf(ret + used, size - used, "]}");
    ck_assert_uint_lt(used, size);
}

/* Asks for one key, with nothing else. */
static void send_read(struct sent *sent, const char *node, const char *key) {
    char text[512];

    read_text(&key, 1, text, sizeof(text));
    send(sent, node, "txn", text);
}

/* The values of an answer's results, with commas between. */
static void assert_values(struct sent *sent, const char *expected) {
    struct gb_txn_answer answer = {0};
    char all[512] = "";
    size_t i;

    ck_assert_msg(wait_for(sent) == GB_OK, "%s", sent->ask.error.detail);
    ck_assert_int_eq(sent->ask.status, 200);
    gb_assert_ok(gb_txn_read(sent->ask.answer, strlen(sent->ask.answer), &answer, &err), err);
    ck_assert(answer.succeeded);
    ck_assert_uint_ne(answer.cluster_id, 0);
    for (i = 0; i < answer.count; i++) {
        const struct gb_kvs *kvs = gb_txn_result(&answer, i);

        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i > 0 ? "," : "",
                 kvs->count > 0 ? kvs->items[0].value : "-");
    }
    ck_assert_str_eq(all, expected);
    gb_txn_answer_done(&answer);
    free(sent->ask.answer);
}

/* --- readings ----------------------------------------------------------------------------------------------------- */

/* The first is sent at once; those that come before it is answered, and those of a moment, are sent together. */
START_TEST(readings_go_on_together) {
    static const char *const two[] = {KEY("sessions/y"), KEY("sessions/none")};
    static const char *const keys[] = {KEY("sessions/x"), KEY("sessions/z"), KEY("sessions/none"), KEY("sessions/y")};
    static const char *const expected[] = {"1", "3", "-", "2"};
    struct sent sent[41];
    char text[512];
    unsigned before;
    size_t i;

    etcd_fake_put(etcd, KEY("sessions/x"), "1", 0);
    etcd_fake_put(etcd, KEY("sessions/y"), "2", 0);
    etcd_fake_put(etcd, KEY("sessions/z"), "3", 0);
    before = etcd_fake_requests(etcd, TXN);
    for (i = 0; i < 40; i++)
        send_read(&sent[i], i % 2 ? "n" : "m", keys[i % COUNT(keys)]);
    read_text(two, 2, text, sizeof(text));
    send(&sent[40], "n", "txn", text);
    for (i = 0; i < 40; i++)
        assert_values(&sent[i], expected[i % COUNT(keys)]);
    assert_values(&sent[40], "2,-");
    ck_assert_uint_lt(etcd_fake_requests(etcd, TXN) - before, 41);
    ck_assert_uint_gt(stat_of_hub().gathered, 1);
    ck_assert_uint_eq(stat_of_hub().requests, 41);
    ck_assert_uint_eq(stat_of_hub().sent, etcd_fake_requests(etcd, TXN) - before);
}
END_TEST

/* More than one transaction may have. */
START_TEST(many_readings) {
    static const char *keys[50];
    struct sent sent[9];
    char text[8192];
    size_t i;

    etcd_fake_put(etcd, KEY("sessions/x"), "1", 0);
    for (i = 0; i < COUNT(keys); i++)
        keys[i] = i % 2 ? KEY("sessions/x") : KEY("sessions/none");
    for (i = 0; i < COUNT(sent); i++) {
        read_text(keys, COUNT(keys) - i, text, sizeof(text));
        send(&sent[i], "n", "txn", text);
    }
    for (i = 0; i < COUNT(sent); i++) {
        struct gb_txn_answer answer = {0};

        ck_assert_int_eq(wait_for(&sent[i]), GB_OK);
        gb_assert_ok(gb_txn_read(sent[i].ask.answer, strlen(sent[i].ask.answer), &answer, &err), err);
        ck_assert_uint_eq(answer.count, COUNT(keys) - i);
        ck_assert_uint_eq(gb_txn_result(&answer, 0)->count, 0);
        ck_assert_uint_eq(gb_txn_result(&answer, 1)->count, 1);
        gb_txn_answer_done(&answer);
        free(sent[i].ask.answer);
    }
    ck_assert_uint_ge(stat_of_hub().sent, 3);
}
END_TEST

/* A refusal of what was gathered may be for one of them alone: each is asked for again by itself. */
START_TEST(what_one_is_refused_is_not_for_others) {
    struct sent sent[10];
    unsigned before;
    size_t i;

    before = etcd_fake_requests(etcd, TXN);
    etcd_fake_set_status(etcd, 400);
    for (i = 0; i < COUNT(sent); i++)
        send_read(&sent[i], "n", KEY("meta"));
    for (i = 0; i < COUNT(sent); i++) {
        ck_assert_int_eq(wait_for(&sent[i]), GB_OK);
        ck_assert_int_eq(sent[i].ask.status, 400);
        ck_assert_ptr_nonnull(strstr(sent[i].ask.answer, "\"code\":14"));
        free(sent[i].ask.answer);
    }
    ck_assert_uint_ge(etcd_fake_requests(etcd, TXN) - before, COUNT(sent));
    etcd_fake_set_status(etcd, 0);
}
END_TEST

START_TEST(an_answer_that_is_none) {
    struct sent sent[3];
    size_t i;

    etcd_fake_set_answer(etcd, _i == 0 ? "<html>" : "{\"responses\":[]}");
    for (i = 0; i < COUNT(sent); i++)
        send_read(&sent[i], "n", KEY("meta"));
    for (i = 0; i < COUNT(sent); i++) {
        /* One that was sent alone is passed on as it is, and refused by the node. */
        if (wait_for(&sent[i]) == GB_OK)
            ck_assert_str_eq(sent[i].ask.answer, "<html>");
        free(sent[i].ask.answer);
    }
    etcd_fake_set_answer(etcd, "");
    send(&sent[0], "n", "timetolive", "{\"ID\":\"1\"}");
    ck_assert_int_eq(wait_for(&sent[0]), GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_ptr_null(sent[0].ask.answer);
    etcd_fake_set_answer(etcd, NULL);
}
END_TEST

START_TEST(a_directory_that_fails) {
    struct sent sent[5];
    size_t i;

    etcd_fake_set_status(etcd, 503);
    for (i = 0; i < COUNT(sent); i++)
        send_read(&sent[i], "n", KEY("meta"));
    for (i = 0; i < COUNT(sent); i++) {
        ck_assert_int_eq(wait_for(&sent[i]), GB_ERR_DIRECTORY_UNAVAILABLE);
        ck_assert_ptr_null(sent[i].ask.answer);
    }
}
END_TEST

/* --- what does not pass ------------------------------------------------------------------------------------------- */

START_TEST(what_is_refused_is_not_sent) {
    struct sent sent;
    char text[512];
    const char *other = "/gpubuf/other/meta";
    unsigned before = etcd_fake_requests(etcd, TXN);

    read_text(&other, 1, text, sizeof(text));
    gb_assert_fails(try_send(&sent, "n", "txn", text), err, GB_ERR_FORBIDDEN);
    gb_assert_fails(try_send(&sent, "n", "txn", "{"), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(try_send(&sent, "n", "watch", "{}"), err, GB_ERR_INVALID_ARGUMENT);
    gb_hub_cancel(hub, &sent.ask); /* as its owner does in any case */
    ck_assert(!sent.done);
    ck_assert_uint_eq(etcd_fake_requests(etcd, TXN), before);
    ck_assert_uint_eq(stat_of_hub().requests, 3);
    ck_assert_uint_eq(stat_of_hub().refused, 3);
}
END_TEST

/* --- leases ------------------------------------------------------------------------------------------------------- */

START_TEST(a_lease_of_another_is_not_used) {
    static const char *const ops[] = {"keepalive", "revoke"};
    struct sent sent;
    unsigned before = etcd_fake_requests(etcd, KEEPALIVE);

    etcd_fake_grant(etcd, N_UUID, 1000);
    send(&sent, "n", ops[_i], "{\"ID\":\"4242\"}"); /* of a, which is there */
    ck_assert_int_eq(wait_for(&sent), GB_ERR_FORBIDDEN);
    ck_assert_ptr_nonnull(strstr(sent.ask.error.detail, "\"n\""));
    send(&sent, "n", ops[_i], "{\"ID\":\"99\"}"); /* of none */
    ck_assert_int_eq(wait_for(&sent), GB_ERR_FORBIDDEN);
    ck_assert(etcd_fake_has_lease(etcd, NODE_UUID));
    ck_assert(etcd_fake_has_lease(etcd, N_UUID));
    ck_assert_uint_eq(etcd_fake_requests(etcd, KEEPALIVE), before);
    ck_assert_uint_eq(stat_of_hub().refused, 2);
    /* By its record it is n's. */
    etcd_fake_put(etcd, KEY("nodes/n"), "{\"uuid\":\"99\",\"urls\":{}}", 0);
    send(&sent, "n", ops[_i], "{\"ID\":\"99\"}");
    ck_assert_int_eq(wait_for(&sent), GB_OK);
    ck_assert_int_eq(sent.ask.status, 200);
    ck_assert_int_eq(etcd_fake_has_lease(etcd, N_UUID), _i == 0);
    free(sent.ask.answer);
    send(&sent, "m", ops[_i], "{\"ID\":\"99\"}");
    ck_assert_int_eq(wait_for(&sent), GB_ERR_FORBIDDEN);
}
END_TEST

START_TEST(a_lease_that_was_granted_here_is_known) {
    struct sent sent;
    unsigned before;

    send(&sent, "n", "grant", "{\"ID\":\"99\",\"TTL\":\"30\"}");
    ck_assert_int_eq(wait_for(&sent), GB_OK);
    ck_assert_int_eq(sent.ask.status, 200);
    free(sent.ask.answer);
    before = etcd_fake_requests(etcd, TXN);
    send(&sent, "n", "keepalive", "{\"ID\":\"99\"}");
    ck_assert_int_eq(wait_for(&sent), GB_OK);
    free(sent.ask.answer);
    ck_assert_uint_eq(etcd_fake_requests(etcd, TXN), before); /* its record is not read */
    /* One that is there is not granted, and is not n's for having been asked for. */
    send(&sent, "n", "grant", "{\"ID\":\"4242\",\"TTL\":\"30\"}");
    ck_assert_int_eq(wait_for(&sent), GB_OK);
    ck_assert_int_eq(sent.ask.status, 412);
    free(sent.ask.answer);
    send(&sent, "n", "keepalive", "{\"ID\":\"4242\"}");
    ck_assert_int_eq(wait_for(&sent), GB_ERR_FORBIDDEN);
    send(&sent, "m", "revoke", "{\"ID\":\"99\"}");
    ck_assert_int_eq(wait_for(&sent), GB_ERR_FORBIDDEN);
    ck_assert(etcd_fake_has_lease(etcd, N_UUID));
    /* All may look. */
    send(&sent, "m", "timetolive", "{\"ID\":\"99\"}");
    ck_assert_int_eq(wait_for(&sent), GB_OK);
    free(sent.ask.answer);
}
END_TEST

enum { NODES = 40 };

static char node_names[NODES][16];
static char renewals[NODES][64];

/* Leases of that many nodes, from that number on. */
static void grant_all(int64_t first, int count) {
    struct sent sent;
    char text[64];
    int i;

    for (i = 0; i < count; i++) {
        snprintf(node_names[i], sizeof(node_names[i]), "m%d", i);
        snprintf(renewals[i], sizeof(renewals[i]), "{\"ID\":\"%" PRId64 "\"}", first + i);
        snprintf(text, sizeof(text), "{\"ID\":\"%" PRId64 "\",\"TTL\":\"30\"}", first + i);
        send(&sent, node_names[i], "grant", text);
        ck_assert_int_eq(wait_for(&sent), GB_OK);
        free(sent.ask.answer);
    }
}

static void renew_all(struct sent *sent, int count) {
    int i;

    for (i = 0; i < count; i++)
        send(&sent[i], node_names[i], "keepalive", renewals[i]);
}

/* Each node has its own answer, though one request has those of many; the longest numbers fit into what the gateway
 * reads of a body, so that none is sent twice. */
START_TEST(renewals_go_on_together) {
    const int64_t first = _i == 0 ? 1000 : INT64_MAX - NODES;
    struct sent sent[NODES];
    unsigned before;
    int i;

    grant_all(first, NODES);
    etcd_fake_expire(etcd, first + 7);
    before = etcd_fake_requests(etcd, KEEPALIVE);
    renew_all(sent, NODES);
    for (i = 0; i < NODES; i++) {
        struct gb_lease_answer answer = {0};
        char id[32];

        ck_assert_msg(wait_for(&sent[i]) == GB_OK, "%s", sent[i].ask.error.detail);
        gb_assert_ok(gb_lease_read(sent[i].ask.answer, strlen(sent[i].ask.answer), &answer, &err), err);
        ck_assert_int_eq(answer.ttl_s, i == 7 ? 0 : 30);
        snprintf(id, sizeof(id), "\"%" PRId64 "\"", first + i);
        ck_assert_ptr_nonnull(strstr(sent[i].ask.answer, id));
        gb_lease_answer_done(&answer);
        free(sent[i].ask.answer);
    }
    ck_assert_uint_lt(etcd_fake_requests(etcd, KEEPALIVE) - before, NODES / 2);
    ck_assert_uint_gt(stat_of_hub().gathered, NODES / 2);
}
END_TEST

/* An answer that is no renewal's, or that ends early: the others are asked for one by one. */
START_TEST(renewals_without_an_answer_go_on_one_by_one) {
    struct sent sent[4];
    unsigned before;
    int i;

    grant_all(1000, 4);
    etcd_fake_set_answer(etcd, "{\"result\":{\"ID\":\"1\",\"TTL\":\"30\"}}\n{\"error\":{\"message\":\"no\"}}");
    before = etcd_fake_requests(etcd, KEEPALIVE);
    renew_all(sent, 4);
    for (i = 0; i < 4; i++) {
        ck_assert_int_eq(wait_for(&sent[i]), GB_OK);
        ck_assert_ptr_nonnull(strstr(sent[i].ask.answer, "\"error\"")); /* as etcd said to it alone */
        free(sent[i].ask.answer);
    }
    ck_assert_uint_gt(etcd_fake_requests(etcd, KEEPALIVE) - before, 4);
}
END_TEST

START_TEST(a_refusal_is_for_all_whose_renewals_went_on_together) {
    struct sent sent[NODES];
    unsigned before;
    int i;

    grant_all(1000, NODES);
    etcd_fake_set_status(etcd, 503);
    before = etcd_fake_requests(etcd, KEEPALIVE);
    renew_all(sent, NODES);
    for (i = 0; i < NODES; i++) {
        wait_for(&sent[i]);
        ck_assert_msg(sent[i].ask.error.code != GB_OK || sent[i].ask.status == 503, "%d", sent[i].ask.status);
        free(sent[i].ask.answer);
    }
    ck_assert_uint_lt(etcd_fake_requests(etcd, KEEPALIVE) - before, NODES);
    etcd_fake_set_status(etcd, 0);
}
END_TEST

/* --- orders ------------------------------------------------------------------------------------------------------- */

START_TEST(orders_go_to_the_node_that_they_are_for) {
    struct sent n;
    struct sent m;
    struct sent n2;

    send(&n, "n", "wait", "{\"wait_ms\":30000}");
    send(&m, "m", "wait", "{\"wait_ms\":30000}");
    send(&n2, "n2", "wait", "{\"wait_ms\":30000}");
    etcd_fake_put(etcd, KEY("ctl/n2/1"), "to n2", 0);
    assert_values(&n2, "to n2");
    etcd_fake_put(etcd, KEY("ctl/m/1"), "to m", 0);
    assert_values(&m, "to m");
    ck_assert(!is_done(&n));
    etcd_fake_put(etcd, KEY("ctl/n/1"), "to n", 0);
    assert_values(&n, "to n");
}
END_TEST

/* An empty reading: nothing was ordered. */
START_TEST(a_wait_ends) {
    struct sent sent;

    send(&sent, "n", "wait", "{\"wait_ms\":700}");
    assert_values(&sent, "-");
}
END_TEST

START_TEST(waits_end_when_the_hub_is_to_stop) {
    struct sent sent[3];
    unsigned before = etcd_fake_requests(etcd, TXN);
    size_t i;

    for (i = 0; i < 2; i++)
        send(&sent[i], i ? "n" : "m", "wait", "{\"wait_ms\":30000}");
    etcd_fake_wait_requests(etcd, TXN, before + 2); /* the second look begins when the first is answered */
    gb_hub_drain(hub);
    assert_values(&sent[0], "-");
    assert_values(&sent[1], "-");
    send(&sent[2], "n", "wait", "{\"wait_ms\":30000}"); /* and those that come then */
    assert_values(&sent[2], "-");
}
END_TEST

/* A wait does not end as if the directory had been looked at. */
START_TEST(a_directory_that_falls_silent_while_one_waits) {
    unsigned before = etcd_fake_requests(etcd, TXN);
    struct sent sent;

    send(&sent, "n", "wait", "{\"wait_ms\":3000}");
    etcd_fake_wait_requests(etcd, TXN, before + 2);
    etcd_fake_set_status(etcd, 503);
    ck_assert_int_eq(wait_for(&sent), GB_ERR_DIRECTORY_UNAVAILABLE);
}
END_TEST

/* --- the end ------------------------------------------------------------------------------------------------------ */

START_TEST(an_answer_that_is_not_wanted_any_more) {
    unsigned before = etcd_fake_requests(etcd, TXN);
    struct sent left[4];
    struct sent sent;
    size_t i;

    etcd_fake_set_silent(etcd, true);
    send_read(&left[0], "n", KEY("meta"));
    etcd_fake_wait_requests(etcd, TXN, before + 1);
    send_read(&left[1], "n", KEY("meta"));
    send(&left[2], "n", "wait", "{\"wait_ms\":1000}");
    send(&left[3], "n", "keepalive", "{\"ID\":\"99\"}");
    gb_hub_cancel(hub, &left[0].ask);
    gb_hub_cancel(hub, &left[1].ask);
    gb_hub_cancel(hub, &left[2].ask);
    gb_hub_cancel(hub, &left[3].ask);
    gb_hub_cancel(hub, &left[3].ask); /* again, which is nothing */
    memset(left, 0xa5, sizeof(left)); /* they are the owner's again */
    etcd_fake_set_silent(etcd, false);
    /* The hub has seen the end of all when this has been answered after them. */
    send(&sent, "n", "wait", "{\"wait_ms\":5000}");
    wait_for(&sent);
    free(sent.ask.answer);
    for (i = 0; i < sizeof(left); i++)
        ck_assert_int_eq(((unsigned char *)left)[i], 0xa5);
}
END_TEST

static void *leave_all(void *arg) {
    struct sent *sent = arg;
    size_t i;

    for (i = 0; i < 200; i++)
        gb_hub_cancel(hub, &sent[i].ask);
    return NULL;
}

/* Against answers that come at that time: done has ended when leave returns, or does not run. */
START_TEST(leaving_while_answers_come) {
    static struct sent sent[200];
    static bool before[200];
    pthread_t thread;
    size_t i;

    for (i = 0; i < COUNT(sent); i++)
        send_read(&sent[i], "n", KEY("meta"));
    ck_assert_int_eq(pthread_create(&thread, NULL, leave_all, sent), 0);
    pthread_join(thread, NULL);
    for (i = 0; i < COUNT(sent); i++)
        before[i] = is_done(&sent[i]);
    gb_hub_close(hub);
    hub = NULL;
    for (i = 0; i < COUNT(sent); i++) {
        ck_assert_int_eq(before[i], is_done(&sent[i]));
        free(sent[i].ask.answer);
    }
}
END_TEST

START_TEST(all_are_answered_at_the_end) {
    unsigned before = etcd_fake_requests(etcd, TXN);
    struct sent sent[5];
    size_t i;

    etcd_fake_set_silent(etcd, true);
    send_read(&sent[0], "n", KEY("meta"));
    etcd_fake_wait_requests(etcd, TXN, before + 1);
    send_read(&sent[1], "n", KEY("meta"));
    send(&sent[2], "n", "wait", "{\"wait_ms\":30000}");
    send(&sent[3], "n", "keepalive", "{\"ID\":\"99\"}");
    send(&sent[4], "n", "timetolive", "{\"ID\":\"99\"}");
    gb_hub_close(hub);
    hub = NULL;
    for (i = 0; i < COUNT(sent); i++) {
        ck_assert(is_done(&sent[i]));
        ck_assert(sent[i].ask.error.code == GB_ERR_DRAINING || sent[i].ask.error.code == GB_ERR_DIRECTORY_UNAVAILABLE);
        ck_assert_ptr_null(sent[i].ask.answer);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("hub");
    TCase *tcase = tcase_create("hub");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, readings_go_on_together);
    tcase_add_test(tcase, many_readings);
    tcase_add_test(tcase, what_one_is_refused_is_not_for_others);
    tcase_add_loop_test(tcase, an_answer_that_is_none, 0, 2);
    tcase_add_test(tcase, a_directory_that_fails);
    tcase_add_test(tcase, what_is_refused_is_not_sent);
    tcase_add_loop_test(tcase, a_lease_of_another_is_not_used, 0, 2);
    tcase_add_test(tcase, a_lease_that_was_granted_here_is_known);
    tcase_add_loop_test(tcase, renewals_go_on_together, 0, 2);
    tcase_add_test(tcase, renewals_without_an_answer_go_on_one_by_one);
    tcase_add_test(tcase, a_refusal_is_for_all_whose_renewals_went_on_together);
    tcase_add_test(tcase, orders_go_to_the_node_that_they_are_for);
    tcase_add_test(tcase, a_wait_ends);
    tcase_add_test(tcase, waits_end_when_the_hub_is_to_stop);
    tcase_add_test(tcase, a_directory_that_falls_silent_while_one_waits);
    tcase_add_test(tcase, an_answer_that_is_not_wanted_any_more);
    tcase_add_test(tcase, leaving_while_answers_come);
    tcase_add_test(tcase, all_are_answered_at_the_end);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
