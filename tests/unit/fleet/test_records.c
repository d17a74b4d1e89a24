/* The records of the directory. */
#include <stdlib.h>
#include <string.h>

#include "fleet/records.h"
#include "gb_test.h"
#include "model/model.h"

static struct gb_error err;

static void setup(void) {
    err = GB_ERROR_INIT;
}

static struct gb_fleet_node a_node(void) {
    struct gb_fleet_node node = {
        .name = {"a"},
        .uuid = INT64_MAX,
        .version = "1.2",
        .labels = "{\"site\":\"x\"}",
        .urls = {{.network = {"lan"}, .url = "http://10.0.0.5:7070"}, {.network = {"wan"}, .url = "https://[::1]:1/p"}},
        .url_count = 2,
        .devices = {{.uuid = "GPU-1", .name = "H100", .bytes = 1ull << 40}},
        .device_count = 1,
    };

    return node;
}

START_TEST(a_node_there_and_back) {
    struct gb_fleet_node node = a_node();
    struct gb_fleet_node back = {.name = {"a"}};
    char *text = gb_fleet_node_write(&node, NULL, &err);

    ck_assert_msg(text, "%s", err.detail);
    gb_assert_ok(gb_fleet_node_read(text, strlen(text), &back, &err), err);
    ck_assert_str_eq(back.name.s, "a");
    ck_assert_uint_eq(back.uuid, INT64_MAX);
    ck_assert_str_eq(back.labels, "{\"site\":\"x\"}");
    ck_assert_str_eq(back.version, "1.2");
    ck_assert_uint_eq(back.url_count, 2);
    ck_assert_str_eq(gb_fleet_url_on(&back, &node.urls[1].network), "https://[::1]:1/p");
    ck_assert_ptr_null(gb_fleet_url_on(&back, &node.name));
    ck_assert_uint_eq(back.device_count, 1);
    ck_assert_uint_eq(back.devices[0].bytes, 1ull << 40);
    ck_assert(!back.alive);
    free(text);
}
END_TEST

START_TEST(members_of_a_session_of_later_versions_are_kept) {
    static const char record[] =
        "{\"node\":\"a\",\"epoch\":3,\"claim\":\"1-1\",\"on_partition\":\"serve\",\"labels\":{},"
        "\"quota\":null,\"state\":\"live\",\"later\":{\"a\":[1]},\"color\":\"red\"}";
    struct gb_fleet_session session;
    char *text;

    gb_assert_ok(gb_fleet_session_read(record, strlen(record), &session, &err), err);
    session.epoch = 4;
    text = gb_fleet_session_write(&session, &err);
    ck_assert_ptr_nonnull(strstr(text, "\"epoch\":4"));
    ck_assert_ptr_nonnull(strstr(text, "\"later\":{\"a\":[1]}"));
    ck_assert_ptr_nonnull(strstr(text, "\"color\":\"red\""));
    free(text);
    session.later[0] = '\0';
    text = gb_fleet_session_write(&session, &err);
    ck_assert_ptr_null(strstr(text, "red"));
    free(text);
}
END_TEST

START_TEST(members_of_later_versions_are_kept) {
    struct gb_fleet_node node = a_node();
    struct gb_fleet_alive alive = {.uuid = 7, .incarnation = 9};
    char *text = gb_fleet_node_write(&node, "{\"uuid\":\"7\",\"later\":{\"a\":[1]},\"version\":\"0\"}", &err);

    ck_assert_ptr_nonnull(strstr(text, "\"later\":{\"a\":[1]}"));
    ck_assert_ptr_nonnull(strstr(text, "\"version\":\"1.2\""));
    free(text);
    text = gb_fleet_alive_write(&alive, "{\"later\":1,\"state\":\"draining\"}", &err);
    ck_assert_ptr_nonnull(strstr(text, "\"later\":1"));
    ck_assert_ptr_nonnull(strstr(text, "\"state\":\"ready\""));
    free(text);
    text = gb_fleet_alive_write(&alive, "no JSON", &err);
    ck_assert_ptr_nonnull(text);
    free(text);
}
END_TEST

/* Labels and names of the greatest length, while it is being taken over. */
START_TEST(the_longest_record_fits) {
    struct gb_fleet_session session = {.name = {"s"}, .epoch = INT64_MAX, .quota_bytes = INT64_MAX};
    char *text;

    memset(session.labels, 'x', sizeof(session.labels) - 1);
    memcpy(session.labels, "{\"k\":\"", 6);
    strcpy(session.labels + sizeof(session.labels) - 3, "\"}");
    memset(session.node.s, 'n', GB_NAME_MAX);
    memset(session.claim, 'c', sizeof(session.claim) - 1);
    session.former = (struct gb_fleet_former){.node = session.node, .epoch = INT64_MAX};
    memcpy(session.former.claim, session.claim, sizeof(session.claim));
    text = gb_fleet_session_write(&session, &err);
    ck_assert_msg(text != NULL, "%s", err.detail);
    free(text);
}
END_TEST

START_TEST(alive_there_and_back) {
    struct gb_fleet_alive alive = {.uuid = 7, .incarnation = 9, .draining = true, .count = 2};
    struct gb_fleet_alive back;
    struct gb_fleet_node node = a_node();
    char *text;

    alive.free_bytes[1] = 5;
    alive.committed_bytes[0] = UINT64_MAX; /* cut to what JSON has */
    text = gb_fleet_alive_write(&alive, NULL, &err);
    gb_assert_ok(gb_fleet_alive_read(text, strlen(text), &back, &err), err);
    ck_assert_uint_eq(back.uuid, 7);
    ck_assert_uint_eq(back.incarnation, 9);
    ck_assert(back.draining);
    ck_assert_uint_eq(back.free_bytes[1], 5);
    ck_assert_uint_eq(back.committed_bytes[0], INT64_MAX);
    free(text);
    gb_fleet_node_set_alive(&node, &back); /* of another uuid */
    ck_assert(!node.alive);
    node.uuid = 7;
    gb_fleet_node_set_alive(&node, &back);
    ck_assert(node.alive && node.draining);
    ck_assert_uint_eq(node.incarnation, 9);
    ck_assert_uint_eq(node.devices[0].committed_bytes, INT64_MAX);
}
END_TEST

START_TEST(a_session_there_and_back) {
    struct gb_fleet_session session = {.name = {"s"}, .node = {"a"}, .epoch = 3, .claim = "c-1"};
    struct gb_fleet_session back = {.name = {"s"}};
    char *text;

    session.on_partition = _i == 0 ? GB_ON_PARTITION_SERVE : GB_ON_PARTITION_STOP;
    session.quota_bytes = _i == 0 ? GB_UNLIMITED : 4096;
    text = gb_fleet_session_write(&session, &err);
    ck_assert_msg(text, "%s", err.detail);
    gb_assert_ok(gb_fleet_session_read(text, strlen(text), &back, &err), err);
    ck_assert_str_eq(back.name.s, "s");
    ck_assert_str_eq(back.node.s, "a");
    ck_assert_str_eq(back.claim, "c-1");
    ck_assert_str_eq(back.labels, "{}");
    ck_assert_uint_eq(back.epoch, 3);
    ck_assert_int_eq(back.on_partition, session.on_partition);
    ck_assert_uint_eq(back.quota_bytes, session.quota_bytes);
    free(text);
}
END_TEST

static const char *const no_nodes[] = {
    "",
    "[]",
    "{}",
    "{\"uuid\":7}",
    "{\"uuid\":\"0\"}",
    "{\"uuid\":\"9223372036854775808\"}",
    "{\"uuid\":\"7\",\"urls\":[]}",
    "{\"uuid\":\"7\",\"urls\":{\"a\":7}}",
    "{\"uuid\":\"7\",\"urls\":{\"a b\":\"http://h\"}}",
    "{\"uuid\":\"7\",\"urls\":{\"a\":\"ftp://h\"}}",
    "{\"uuid\":\"7\",\"urls\":{\"a\":\"http://\"}}",
    "{\"uuid\":\"7\",\"urls\":{\"a\":\"http://h\\r\\nSet-Cookie: x\"}}",
    "{\"uuid\":\"7\",\"urls\":{\"a\":\"http://user@h\"}}",
    "{\"uuid\":\"7\",\"urls\":{\"a\":\"http://h?q\"}}",
    "{\"uuid\":\"7\",\"urls\":{\"a\":\"http://a\",\"b\":\"http://a\",\"c\":\"http://a\",\"d\":\"http://a\",\"e\":"
    "\"http://a\"}}",
    "{\"uuid\":\"7\",\"labels\":[]}",
    "{\"uuid\":\"7\",\"labels\":{\"a\":1}}",
    "{\"uuid\":\"7\",\"version\":\"a\\nb\"}",
    "{\"uuid\":\"7\",\"version\":\"0123456789012345678901234567890123456789\"}",
    "{\"uuid\":\"7\",\"devices\":{}}",
    "{\"uuid\":\"7\",\"devices\":[7]}",
    "{\"uuid\":\"7\",\"devices\":[{\"uuid\":\"u\",\"name\":\"n\"}]}",
    "{\"uuid\":\"7\",\"devices\":[{\"uuid\":\"u\",\"name\":\"n\",\"bytes\":-1}]}",
};

START_TEST(what_is_no_node) {
    struct gb_fleet_node node = {.name = {"a"}, .url_count = 3};

    gb_assert_fails(gb_fleet_node_read(no_nodes[_i], strlen(no_nodes[_i]), &node, &err), err,
                    GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_str_eq(node.name.s, "a");
    ck_assert_uint_eq(node.url_count, 0);
}
END_TEST

static const char *const no_alives[] = {
    "{}",
    "{\"uuid\":\"7\",\"state\":\"ready\"}",
    "{\"uuid\":\"7\",\"incarnation\":0,\"state\":\"ready\"}",
    "{\"uuid\":\"7\",\"incarnation\":1}",
    "{\"uuid\":\"7\",\"incarnation\":1,\"state\":\"ready\",\"free\":{}}",
    "{\"uuid\":\"7\",\"incarnation\":1,\"state\":\"ready\",\"free\":[1]}",
    "{\"uuid\":\"7\",\"incarnation\":1,\"state\":\"ready\",\"free\":[1],\"committed\":[-1]}",
    "{\"uuid\":\"7\",\"incarnation\":1,\"state\":\"ready\",\"free\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"committed\":["
    "]}",
};

START_TEST(what_is_not_alive) {
    struct gb_fleet_alive alive;

    gb_assert_fails(gb_fleet_alive_read(no_alives[_i], strlen(no_alives[_i]), &alive, &err), err,
                    GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_uint_eq(alive.count, 0);
}
END_TEST

static const char *const no_sessions[] = {
    "{}",
    "{\"node\":\"a b\",\"epoch\":1,\"claim\":\"c\",\"on_partition\":\"serve\"}",
    "{\"node\":\"a\",\"epoch\":0,\"claim\":\"c\",\"on_partition\":\"serve\"}",
    "{\"node\":\"a\",\"epoch\":\"1\",\"claim\":\"c\",\"on_partition\":\"serve\"}",
    "{\"node\":\"a\",\"epoch\":1,\"claim\":7,\"on_partition\":\"serve\"}",
    "{\"node\":\"a\",\"epoch\":1,\"claim\":\"0123456789012345678901234567890123456789\",\"on_partition\":\"serve\"}",
    "{\"node\":\"a\",\"epoch\":1,\"claim\":\"c\",\"on_partition\":\"maybe\"}",
    "{\"node\":\"a\",\"epoch\":1,\"claim\":\"c\",\"on_partition\":\"serve\",\"quota\":\"7\"}",
    "{\"node\":\"a\",\"epoch\":1,\"claim\":\"c\",\"on_partition\":\"serve\",\"labels\":7}",
    "{\"node\":\"a\",\"epoch\":1,\"claim\":\"c\",\"on_partition\":\"serve\",\"holders\":7}",
    "{\"node\":\"a\",\"epoch\":1,\"claim\":\"c\",\"on_partition\":\"serve\",\"holders\":[7]}",
    "{\"node\":\"a\",\"epoch\":1,\"claim\":\"c\",\"on_partition\":\"serve\",\"holders\":[{\"node\":\"b\"}]}",
    "{\"node\":\"a\",\"epoch\":1,\"claim\":\"c\",\"on_partition\":\"serve\",\"replicas\":-1}",
    "{\"node\":\"a\",\"epoch\":1,\"claim\":\"c\",\"on_partition\":\"serve\",\"failover_after_s\":\"8\"}",
};

START_TEST(what_is_no_session) {
    struct gb_fleet_session session = {.name = {"s"}};

    gb_assert_fails(gb_fleet_session_read(no_sessions[_i], strlen(no_sessions[_i]), &session, &err), err,
                    GB_ERR_DIRECTORY_UNAVAILABLE);
    ck_assert_uint_eq(session.epoch, 0);
}
END_TEST

START_TEST(meta_and_keys) {
    unsigned char key[32] = {1, 2, 3};
    unsigned char back[32];
    char uuid[40];
    int64_t made;
    char *text = gb_fleet_key_write(key, 77);

    ck_assert_int_eq(gb_fleet_key_read(text, strlen(text), back, &made), 0);
    ck_assert_mem_eq(key, back, 32);
    ck_assert_int_eq(made, 77);
    free(text);
    ck_assert_int_eq(gb_fleet_key_read("{\"key\":\"AAAA\",\"made\":1}", 23, back, &made), -1);
    gb_assert_ok(gb_fleet_meta_read("{\"uuid\":\"u\",\"schema\":1}", 23, uuid, &err), err);
    ck_assert_str_eq(uuid, "u");
    gb_assert_fails(gb_fleet_meta_read("{\"uuid\":\"u\",\"schema\":2}", 23, uuid, &err), err,
                    GB_ERR_DIRECTORY_UNAVAILABLE);
    gb_assert_fails(gb_fleet_meta_read("{\"uuid\":\"\",\"schema\":1}", 22, uuid, &err), err,
                    GB_ERR_DIRECTORY_UNAVAILABLE);
}
END_TEST

START_TEST(labels_match) {
    ck_assert(gb_fleet_labels_match("{\"a\":\"1\",\"b\":\"2\"}", ""));
    ck_assert(gb_fleet_labels_match("{\"a\":\"1\",\"b\":\"2\"}", "{\"b\":\"2\"}"));
    ck_assert(!gb_fleet_labels_match("{\"a\":\"1\"}", "{\"a\":\"2\"}"));
    ck_assert(!gb_fleet_labels_match("{\"a\":\"1\"}", "{\"c\":\"1\"}"));
    ck_assert(!gb_fleet_labels_match("", "{\"c\":\"1\"}"));
    ck_assert(!gb_fleet_labels_match("{}", "no JSON"));
    ck_assert(gb_fleet_labels_are_valid("{\"a\":\"1\"}"));
    ck_assert(!gb_fleet_labels_are_valid("{\"a\":1}"));
    ck_assert(!gb_fleet_labels_are_valid("[]"));
}
END_TEST

/* As many as there may be, with the longest names. */
START_TEST(holders_there_and_back) {
    struct gb_fleet_session session = {.epoch = 1, .quota_bytes = 5, .failover_after_s = 8, .replicas = 2};
    struct gb_fleet_session back = {.epoch = 0};
    struct gb_fleet_session listed = {.epoch = 0};
    char *record;
    struct gb_text *text;
    size_t i;

    strcpy(session.node.s, "a");
    strcpy(session.claim, "1-1");
    memset(session.labels, ' ', sizeof(session.labels) - 1);
    memcpy(session.labels, "{", 1);
    session.labels[sizeof(session.labels) - 2] = '}';
    for (i = 0; i < GB_FLEET_HOLDERS_MAX; i++) {
        memset(session.holders[i].node.s, 'n', GB_NAME_MAX);
        session.holders[i].node.s[0] = (char)('a' + i);
        session.holders[i].number = INT64_MAX - i;
    }
    session.holder_count = GB_FLEET_HOLDERS_MAX;
    record = gb_fleet_session_write(&session, &err);
    ck_assert_ptr_nonnull(record);
    ck_assert_int_eq(gb_fleet_session_read(record, strlen(record), &back, &err), 0);
    ck_assert_int_eq(gb_fleet_holders_text(&session, &text), 0);
    ck_assert(gb_fleet_holders_read(gb_text_s(text), &listed));
    ck_assert_uint_eq(back.holder_count, GB_FLEET_HOLDERS_MAX);
    ck_assert_uint_eq(listed.holder_count, GB_FLEET_HOLDERS_MAX);
    ck_assert_uint_eq(back.failover_after_s, 8);
    ck_assert_uint_eq(back.replicas, 2);
    for (i = 0; i < GB_FLEET_HOLDERS_MAX; i++) {
        ck_assert_str_eq(back.holders[i].node.s, session.holders[i].node.s);
        ck_assert_uint_eq(back.holders[i].number, session.holders[i].number);
        ck_assert_str_eq(listed.holders[i].node.s, session.holders[i].node.s);
        ck_assert_uint_eq(listed.holders[i].number, session.holders[i].number);
        ck_assert_ptr_eq(gb_fleet_holder_of(&back, &session.holders[i].node), &back.holders[i]);
    }
    ck_assert_ptr_null(gb_fleet_holder_of(&back, &session.node));
    ck_assert(gb_fleet_holders_read("", &listed) && listed.holder_count == 0);
    ck_assert(!gb_fleet_holders_read("a", &listed) && !gb_fleet_holders_read("a:x", &listed));
    ck_assert(!gb_fleet_holders_read(":1", &listed) && !gb_fleet_holders_read("a:1,,b:2", &listed));
    free(record);
    gb_text_unref(text);
}
END_TEST

#define LOOP(test, list) tcase_add_loop_test(tcase, test, 0, sizeof(list) / sizeof((list)[0]))

int main(void) {
    Suite *suite = suite_create("records");
    TCase *tcase = tcase_create("records");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, a_node_there_and_back);
    tcase_add_test(tcase, members_of_later_versions_are_kept);
    tcase_add_test(tcase, members_of_a_session_of_later_versions_are_kept);
    tcase_add_test(tcase, the_longest_record_fits);
    tcase_add_test(tcase, alive_there_and_back);
    tcase_add_loop_test(tcase, a_session_there_and_back, 0, 2);
    LOOP(what_is_no_node, no_nodes);
    LOOP(what_is_not_alive, no_alives);
    LOOP(what_is_no_session, no_sessions);
    tcase_add_test(tcase, holders_there_and_back);
    tcase_add_test(tcase, meta_and_keys);
    tcase_add_test(tcase, labels_match);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
