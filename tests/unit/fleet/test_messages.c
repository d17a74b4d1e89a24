/* What is said to etcd's gateway, and what it answers: the shapes that etcd 3.4 has, and others. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/messages.h"
#include "gb_test.h"

static struct gb_error err;

static void setup(void) {
    err = GB_ERROR_INIT;
}

static void assert_same(char *text, const char *expected) {
    json_t *a = json_loads(text, 0, NULL);
    json_t *b = json_loads(expected, 0, NULL);

    ck_assert_msg(a && b && json_equal(a, b), "%s is not %s", text, expected);
    json_decref(a);
    json_decref(b);
    free(text);
}

START_TEST(a_transaction_is_written) {
    struct gb_txn txn = {0};
    struct gb_txn_range range = {.key = "k", .end = "l", .limit = 5, .revision = 7, .serializable = true};

    gb_txn_compare(&txn, GB_TXN_CREATED, "k", 0);
    gb_txn_compare(&txn, GB_TXN_MODIFIED, "k", 9007199254740993);
    gb_txn_put(&txn, "k", "v\"", 4242);
    gb_txn_delete(&txn, "ab");
    gb_txn_else(&txn);
    gb_txn_get(&txn, &range);
    assert_same(gb_txn_finish(&txn),
                "{\"compare\":[{\"key\":\"aw==\",\"target\":\"CREATE\",\"result\":\"EQUAL\",\"create_revision\":\"0\"},"
                "{\"key\":\"aw==\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":\"9007199254740993\"}],"
                "\"success\":[{\"request_put\":{\"key\":\"aw==\",\"value\":\"diI=\",\"lease\":\"4242\"}},"
                "{\"request_delete_range\":{\"key\":\"YWI=\"}}],"
                "\"failure\":[{\"request_range\":{\"key\":\"aw==\",\"range_end\":\"bA==\",\"limit\":\"5\","
                "\"revision\":\"7\",\"serializable\":true}}]}");
}
END_TEST

START_TEST(the_next_page_begins_behind_a_key) {
    struct gb_txn txn = {0};
    struct gb_txn_range range = {.key = "k", .after = true, .end = "l", .keys_only = true};

    gb_txn_get(&txn, &range);
    assert_same(gb_txn_finish(&txn),
                "{\"success\":[{\"request_range\":{\"key\":\"awA=\",\"range_end\":\"bA==\",\"keys_only\":true}}]}");
}
END_TEST

START_TEST(a_revision_of_no_key_is_that_of_its_creation) {
    struct gb_txn txn = {0};

    gb_txn_compare(&txn, GB_TXN_MODIFIED, "k", 0);
    assert_same(gb_txn_finish(&txn), "{\"compare\":[{\"key\":\"aw==\",\"target\":\"CREATE\",\"result\":\"EQUAL\","
                                     "\"create_revision\":\"0\"}]}");
}
END_TEST

START_TEST(leases_are_written) {
    assert_same(gb_lease_grant_text(1311768465173141112, 30), "{\"TTL\":\"30\",\"ID\":\"1311768465173141112\"}");
    assert_same(gb_lease_text(4242, false), "{\"ID\":\"4242\"}");
    assert_same(gb_lease_text(4242, true), "{\"ID\":\"4242\",\"keys\":true}");
}
END_TEST

START_TEST(the_end_of_a_prefix) {
    char end[32];

    gb_prefix_end("/gpubuf/f/nodes/", end, sizeof(end));
    ck_assert_str_eq(end, "/gpubuf/f/nodes0");
    gb_prefix_end("/gpubuf/f/nodes/a\377\377", end, sizeof(end));
    ck_assert_str_eq(end, "/gpubuf/f/nodes/b");
}
END_TEST

/* --- answers ------------------------------------------------------------------------------------------------------ */

#define HEADER                                                                                                         \
    "\"header\":{\"cluster_id\":\"14841639068965178418\",\"member_id\":\"1\",\"revision\":\"8\",\"raft_term\":\"2\"}"

static void read_txn(const char *text, struct gb_txn_answer *ret) {
    gb_assert_ok(gb_txn_read(text, strlen(text), ret, &err), err);
}

START_TEST(a_transaction_that_won) {
    struct gb_txn_answer answer;

    read_txn("{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_put\":{\"header\":{\"revision\":\"3\"}}}]}",
             &answer);
    ck_assert(answer.succeeded);
    ck_assert_uint_eq(answer.cluster_id, 14841639068965178418ull);
    ck_assert_int_eq(answer.revision, 8);
    ck_assert_uint_eq(answer.count, 1);
    ck_assert_uint_eq(gb_txn_result(&answer, 0)->count, 0);
    ck_assert_uint_eq(gb_txn_result(&answer, 1)->count, 0);
    gb_txn_answer_done(&answer);
}
END_TEST

START_TEST(a_transaction_that_lost) {
    struct gb_txn_answer answer;
    const struct gb_kvs *kvs;

    read_txn("{" HEADER ",\"responses\":[{\"response_range\":{\"header\":{\"revision\":\"8\"},\"kvs\":[{\"key\":"
             "\"aw==\",\"create_revision\":\"3\",\"mod_revision\":\"5\",\"version\":\"2\",\"value\":\"e30=\","
             "\"lease\":\"4242\"},{\"key\":\"YWI=\",\"create_revision\":6,\"mod_revision\":6,\"version\":1}],"
             "\"more\":true,\"count\":\"9\"}},{\"response_range\":{\"header\":{}}}]}\n",
             &answer);
    ck_assert(!answer.succeeded);
    ck_assert_uint_eq(answer.count, 2);
    kvs = gb_txn_result(&answer, 0);
    ck_assert(kvs->more);
    ck_assert_uint_eq(kvs->count, 2);
    ck_assert_str_eq(kvs->items[0].key, "k");
    ck_assert_str_eq(kvs->items[0].value, "{}");
    ck_assert_int_eq(kvs->items[0].create_revision, 3);
    ck_assert_int_eq(kvs->items[0].mod_revision, 5);
    ck_assert_str_eq(kvs->items[1].value, ""); /* left out, as all that is empty */
    ck_assert_int_eq(kvs->items[1].mod_revision, 6);
    ck_assert_uint_eq(gb_txn_result(&answer, 1)->count, 0);
    gb_txn_answer_done(&answer);
}
END_TEST

static const char *const no_txns[] = {
    "",
    "{",
    "[]",
    "null",
    "{}",
    "404 page not found",
    "{\"header\":{}}",
    "{\"header\":{\"cluster_id\":\"0\"}}",
    "{\"header\":{\"cluster_id\":\"-1\"}}",
    "{\"header\":{\"cluster_id\":\"99999999999999999999\"}}",
    "{\"header\":{\"cluster_id\":\"1\",\"revision\":\"9223372036854775808\"}}",
    "{\"header\":{\"cluster_id\":\"1\",\"revision\":1.5}}",
    "{" HEADER ",\"responses\":{}}",
    "{" HEADER ",\"responses\":[7]}",
    "{" HEADER ",\"responses\":[{\"response_range\":7}]}",
    "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":{}}}]}",
    "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[null]}}]}",
    "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"a\"}]}}]}",
    "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"AAAA\"}]}}]}", /* NULs in a key */
    "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"aw==\"},{\"key\":\"aw==\",\"value\":1}]}}]}",
    "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"aw==\",\"mod_revision\":\"x\"}]}}]}",
};

START_TEST(what_is_no_answer_is_an_error) {
    struct gb_txn_answer answer;

    gb_assert_fails(gb_txn_read(no_txns[_i], strlen(no_txns[_i]), &answer, &err), err, GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_ptr_null(answer.results);
    ck_assert_uint_eq(answer.count, 0);
}
END_TEST

START_TEST(answers_about_leases) {
    struct gb_lease_answer answer;
    const char *text = "{\"result\":{" HEADER ",\"ID\":\"4242\",\"TTL\":\"30\"}}\n";

    gb_assert_ok(gb_lease_read(text, strlen(text), &answer, &err), err);
    ck_assert_int_eq(answer.ttl_s, 30);
    gb_lease_answer_done(&answer);
    text = "{\"result\":{" HEADER ",\"ID\":\"4242\"}}\n"; /* gone */
    gb_assert_ok(gb_lease_read(text, strlen(text), &answer, &err), err);
    ck_assert_int_eq(answer.ttl_s, 0);
    gb_lease_answer_done(&answer);
    text = "{" HEADER ",\"ID\":\"4242\",\"TTL\":\"-1\"}";
    gb_assert_ok(gb_lease_read(text, strlen(text), &answer, &err), err);
    ck_assert_int_eq(answer.ttl_s, -1);
    gb_lease_answer_done(&answer);
    text = "{" HEADER ",\"TTL\":\"29\",\"grantedTTL\":\"30\",\"keys\":[\"aw==\",\"YWI=\"]}";
    gb_assert_ok(gb_lease_read(text, strlen(text), &answer, &err), err);
    ck_assert_int_eq(answer.ttl_s, 29);
    ck_assert_int_eq(answer.granted_s, 30);
    ck_assert_uint_eq(answer.key_count, 2);
    ck_assert_str_eq(answer.keys[1], "ab");
    gb_lease_answer_done(&answer);
}
END_TEST

static const char *const no_leases[] = {
    "",
    "[]",
    "{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"no leader\"}}", /* of a stream, with status 200 */
    "{\"result\":7}",
    "{" HEADER ",\"TTL\":\"-2\"}",
    "{" HEADER ",\"TTL\":[]}",
    "{" HEADER ",\"TTL\":\"3\",\"keys\":7}",
    "{" HEADER ",\"TTL\":\"3\",\"keys\":[\"aw==\",null]}",
};

START_TEST(what_is_no_answer_about_a_lease_is_an_error) {
    struct gb_lease_answer answer;

    gb_assert_fails(gb_lease_read(no_leases[_i], strlen(no_leases[_i]), &answer, &err), err,
                    GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_ptr_null(answer.keys);
}
END_TEST

START_TEST(refusals) {
    static const char old[] = "{\"error\":\"etcdserver: lease already exists\",\"message\":\"m\",\"code\":9}";
    static const char newer[] = "{\"code\":5,\"message\":\"gone\",\"details\":[]}"; /* 3.6 has no error in it */
    char text[8];

    ck_assert_int_eq(gb_refusal_read(old, strlen(old), text, sizeof(text)), 9);
    ck_assert_str_eq(text, "m");
    ck_assert_int_eq(gb_refusal_read(newer, strlen(newer), text, sizeof(text)), 5);
    ck_assert_int_eq(gb_refusal_read("404 page", 8, text, sizeof(text)), 0);
    ck_assert_str_eq(text, "no reas"); /* cut */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("messages");
    TCase *tcase = tcase_create("messages");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, a_transaction_is_written);
    tcase_add_test(tcase, the_next_page_begins_behind_a_key);
    tcase_add_test(tcase, a_revision_of_no_key_is_that_of_its_creation);
    tcase_add_test(tcase, leases_are_written);
    tcase_add_test(tcase, the_end_of_a_prefix);
    tcase_add_test(tcase, a_transaction_that_won);
    tcase_add_test(tcase, a_transaction_that_lost);
    tcase_add_loop_test(tcase, what_is_no_answer_is_an_error, 0, sizeof(no_txns) / sizeof(no_txns[0]));
    tcase_add_test(tcase, answers_about_leases);
    tcase_add_loop_test(tcase, what_is_no_answer_about_a_lease_is_an_error, 0,
                        sizeof(no_leases) / sizeof(no_leases[0]));
    tcase_add_test(tcase, refusals);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
