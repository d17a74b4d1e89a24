/* What a node may ask of the directory through a hub: each request that a member makes passes, and no other does. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"
#include "fleet/hub/check.h"
#include "fleet/messages.h"
#include "gb_test.h"

#define KEY(rest) "/gpubuf/main/" rest
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct gb_error err;
static struct gb_hub_checked is;
static const struct gb_name node = {"n"};

static void setup(void) {
    err = GB_ERROR_INIT;
}

static enum gb_code check_as(const char *fleet, const char *op, const char *text) {
    json_t *body;
    int r;

    err = GB_ERROR_INIT;
    r = gb_hub_check(fleet, &node, op, text, &is, &body, &err);
    ck_assert_int_eq(r == 0, body != NULL);
    ck_assert_int_eq(r == 0, err.code == GB_OK);
    json_decref(body);
    return err.code;
}

static enum gb_code check(const char *op, const char *text) {
    return check_as("main", op, text);
}

static enum gb_code check_txn(struct gb_txn *txn) {
    char *text = gb_txn_finish(txn);
    enum gb_code code;

    ck_assert_ptr_nonnull(text);
    code = check("txn", text);
    free(text);
    return code;
}

/* Base64 of the bytes, in one of a few buffers. */
static const char *b64(const char *bytes, size_t n) {
    static char texts[8][1024];
    static size_t next;
    char *text = gb_base64(bytes, n, false);
    char *ret = texts[next++ % COUNT(texts)];

    ck_assert_uint_lt(strlen(text), sizeof(texts[0]));
    memcpy(ret, text, strlen(text) + 1);
    free(text);
    return ret;
}

static const char *key_of(const char *key) {
    return b64(key, strlen(key));
}

/* --- what a member sends ------------------------------------------------------------------------------------------ */

static void get(struct gb_txn *txn, const char *key, const char *end, bool serializable) {
    struct gb_txn_range range = {.key = key, .end = end, .serializable = serializable};

    gb_txn_get(txn, &range);
}

START_TEST(readings_pass) {
    struct gb_txn txn = {0};
    struct gb_txn_range page = {
        .key = KEY("sessions/"), .after = true, .end = KEY("sessions0"), .limit = 64, .revision = 7, .keys_only = true};

    get(&txn, KEY("meta"), NULL, false);
    get(&txn, KEY("nodes/other"), NULL, false);
    gb_txn_get(&txn, &page);
    ck_assert_int_eq(check_txn(&txn), GB_OK);
    ck_assert_int_eq(is.op, GB_RELAY_TXN);
    ck_assert(is.reads);
    ck_assert(!is.serializable);
    ck_assert_uint_eq(is.ops, 3);
    get(&txn, KEY("meta"), NULL, true);
    get(&txn, KEY("ctl/n/"), KEY("ctl/n0"), true);
    ck_assert_int_eq(check_txn(&txn), GB_OK);
    ck_assert(is.reads && is.serializable);
    /* One that is not makes the transaction one that a majority answers. */
    get(&txn, KEY("meta"), NULL, true);
    get(&txn, KEY("nodes/n"), NULL, false);
    ck_assert_int_eq(check_txn(&txn), GB_OK);
    ck_assert(is.reads && !is.serializable);
    ck_assert_uint_eq(is.ops, 2);
    /* All keys of the fleet, whose end is no key of it. */
    get(&txn, KEY("a"), "/gpubuf/main0", false);
    ck_assert_int_eq(check_txn(&txn), GB_OK);
}
END_TEST

START_TEST(a_transaction_with_comparisons_goes_on_alone) {
    struct gb_txn txn = {0};

    gb_txn_compare(&txn, GB_TXN_CREATED, KEY("meta"), 4);
    gb_txn_compare_there(&txn, KEY("alive/other"));
    get(&txn, KEY("sessions/s"), NULL, false);
    ck_assert_int_eq(check_txn(&txn), GB_OK);
    ck_assert(is.reads && !is.serializable);
    ck_assert_uint_eq(is.ops, 0);
    get(&txn, KEY("sessions/s"), NULL, false);
    gb_txn_else(&txn);
    get(&txn, KEY("sessions/s"), NULL, false);
    ck_assert_int_eq(check_txn(&txn), GB_OK);
    ck_assert_uint_eq(is.ops, 0);
    ck_assert_int_eq(check_txn(&txn), GB_OK); /* an empty one */
    ck_assert_uint_eq(is.ops, 0);
}
END_TEST

/* Its own records, with its lease; a session, and who owns it; an order to another node; a key of tickets. */
START_TEST(writings_pass) {
    static const char *const puts[] = {KEY("nodes/n"),       KEY("alive/n"),        KEY("sessions/s"), KEY("owned/n/s"),
                                       KEY("owned/other/s"), KEY("held/other/s"),   KEY("keys/20500"), KEY("tenants/t"),
                                       KEY("ctl/other/1"),   KEY("ctl/other/meta"), KEY("meta2")};
    struct gb_txn txn = {0};
    size_t i;

    for (i = 0; i < COUNT(puts); i++) {
        gb_txn_compare(&txn, GB_TXN_CREATED, KEY("meta"), 4);
        gb_txn_compare(&txn, GB_TXN_MODIFIED, puts[i], 9);
        gb_txn_put(&txn, puts[i], "{}", i % 2 ? 4242 : 0);
        gb_txn_else(&txn);
        get(&txn, puts[i], NULL, true);
        ck_assert_msg(check_txn(&txn) == GB_OK, "%s: %s", puts[i], err.detail);
        ck_assert(!is.reads && !is.serializable);
        ck_assert_uint_eq(is.ops, 0);
    }
    gb_txn_put(&txn, KEY("sessions/s"), "", 0); /* without comparisons: not gathered, as it is no reading */
    ck_assert_int_eq(check_txn(&txn), GB_OK);
    ck_assert(!is.reads);
}
END_TEST

START_TEST(deletions_pass) {
    static const char *const keys[] = {KEY("sessions/s"),  KEY("owned/other/s"), KEY("held/other/s"), KEY("ctl/n/1"),
                                       KEY("tenants/t/s"), KEY("keys/1"),        KEY("nodes/n"),      KEY("alive/n")};
    struct gb_txn txn = {0};
    size_t i;

    for (i = 0; i < COUNT(keys); i++) {
        gb_txn_compare(&txn, GB_TXN_CREATED, KEY("meta"), 4);
        gb_txn_delete(&txn, keys[i]);
        ck_assert_msg(check_txn(&txn) == GB_OK, "%s: %s", keys[i], err.detail);
        ck_assert(!is.reads);
    }
    gb_txn_delete_below(&txn, KEY("ctl/n/"));
    ck_assert_int_eq(check_txn(&txn), GB_OK);
}
END_TEST

/* As a node is forgotten: the transaction says that it is not alive. */
static void forget(struct gb_txn *txn, const char *gone) {
    gb_txn_compare(txn, GB_TXN_CREATED, KEY("meta"), 4);
    gb_txn_compare(txn, GB_TXN_CREATED, gone, 0);
}

START_TEST(a_node_that_is_gone_is_taken_out) {
    struct gb_txn txn = {0};

    forget(&txn, KEY("alive/other"));
    gb_txn_delete(&txn, KEY("nodes/other"));
    gb_txn_delete_below(&txn, KEY("ctl/other/"));
    ck_assert_int_eq(check_txn(&txn), GB_OK);
}
END_TEST

START_TEST(a_node_that_may_be_alive_is_not_taken_out) {
    static const char *const others[] = {KEY("alive/othe"), KEY("alive/other2"), KEY("alive/n"), KEY("nodes/other")};
    struct gb_txn txn = {0};
    size_t i;

    gb_txn_delete(&txn, KEY("nodes/other"));
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
    gb_txn_delete(&txn, KEY("ctl/other/1"));
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
    gb_txn_delete_below(&txn, KEY("ctl/other/"));
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
    for (i = 0; i < COUNT(others); i++) {
        forget(&txn, others[i]);
        gb_txn_delete(&txn, KEY("nodes/other"));
        ck_assert_msg(check_txn(&txn) == GB_ERR_FORBIDDEN, "%s", others[i]);
    }
    gb_txn_compare(&txn, GB_TXN_CREATED, KEY("alive/other"), 3);
    gb_txn_delete(&txn, KEY("nodes/other"));
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
    gb_txn_compare_there(&txn, KEY("alive/other"));
    gb_txn_delete(&txn, KEY("nodes/other"));
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
    /* What is done if a comparison fails is done if the node is alive. */
    forget(&txn, KEY("alive/other"));
    get(&txn, KEY("meta"), NULL, false);
    gb_txn_else(&txn);
    gb_txn_delete(&txn, KEY("nodes/other"));
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
    /* Nor does it permit more than that. */
    forget(&txn, KEY("alive/other"));
    gb_txn_put(&txn, KEY("nodes/other"), "{}", 0);
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
    forget(&txn, KEY("alive/other"));
    gb_txn_delete(&txn, KEY("alive/other"));
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
}
END_TEST

START_TEST(leases_pass) {
    static const char *const ops[] = {"keepalive", "timetolive", "revoke"};
    static const enum gb_fleet_relay_op is_op[] = {GB_RELAY_KEEPALIVE, GB_RELAY_TIMETOLIVE, GB_RELAY_REVOKE};
    char *text = gb_lease_grant_text(4242, 30);
    size_t i;

    ck_assert_int_eq(check("grant", text), GB_OK);
    ck_assert_int_eq(is.op, GB_RELAY_GRANT);
    ck_assert_int_eq(is.lease, 4242);
    free(text);
    text = gb_lease_grant_text(INT64_MAX, 100 * 24 * 3600);
    ck_assert_int_eq(check("grant", text), GB_OK);
    ck_assert_int_eq(is.lease, INT64_MAX);
    free(text);
    for (i = 0; i < COUNT(ops); i++) {
        text = gb_lease_text(4242, i == 1);
        ck_assert_int_eq(check(ops[i], text), GB_OK);
        ck_assert_int_eq(is.op, is_op[i]);
        ck_assert_int_eq(is.lease, 4242);
        free(text);
    }
    ck_assert_int_eq(check("keepalive", "{\"ID\":4242}"), GB_OK); /* as the gateway takes it */
    ck_assert_int_eq(is.lease, 4242);
}
END_TEST

START_TEST(a_wait_passes) {
    ck_assert_int_eq(check("wait", "{\"wait_ms\":10000}"), GB_OK);
    ck_assert(is.waits);
    ck_assert_uint_eq(is.wait_ms, 10000);
    ck_assert_int_eq(check("wait", "{\"wait_ms\":30000}"), GB_OK);
    ck_assert_int_eq(check("wait", "{\"wait_ms\":1}"), GB_OK);
}
END_TEST

START_TEST(the_most_operations) {
    struct gb_txn txn = {0};
    size_t i;

    for (i = 0; i < GB_HUB_OPS_MAX; i++)
        get(&txn, KEY("sessions/s"), NULL, false);
    ck_assert_int_eq(check_txn(&txn), GB_OK);
    ck_assert_uint_eq(is.ops, GB_HUB_OPS_MAX);
    for (i = 0; i < GB_HUB_OPS_MAX + 1; i++)
        get(&txn, KEY("sessions/s"), NULL, false);
    ck_assert_int_eq(check_txn(&txn), GB_ERR_INVALID_ARGUMENT);
    for (i = 0; i < GB_HUB_OPS_MAX; i++) /* comparisons count as well */
        gb_txn_compare(&txn, GB_TXN_CREATED, KEY("sessions/s"), 0);
    gb_txn_put(&txn, KEY("sessions/s"), "", 0);
    ck_assert_int_eq(check_txn(&txn), GB_ERR_INVALID_ARGUMENT);
}
END_TEST

/* --- keys of others ----------------------------------------------------------------------------------------------- */

/* None is of the fleet. */
static const struct {
    const char *bytes;
    size_t n;
} foreign[] = {
    {"", 0},
    {"\0", 1},
    {"/", 1},
    {"a", 1},
    {"/gpubuf/main", 12},
    {"/gpubuf/main/", 13}, /* no key at all */
    {"/gpubuf/mainX/meta", 18},
    {"/gpubuf/mai/meta", 16},
    {"/gpubuf/main2/meta", 18},
    {"/gpubuf/Main/meta", 17},
    {"/gpubuf//main/meta", 18},
    {"/gpubuf/main\0/meta", 18},
    {"/gpubuf/main0", 13},
    {"/gpubuf/../main/meta", 20},
    {"\0/gpubuf/main/meta", 18},
    {"gpubuf/main/meta", 16},
    {"/gpubuf/other/sessions/s", 24},
    {"/registry/secrets", 17},
};

START_TEST(keys_of_others_are_refused) {
    static const char *const forms[] = {"{\"success\":[{\"request_range\":{\"key\":\"%s\"}}]}",
                                        "{\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"\"}}]}",
                                        "{\"success\":[{\"request_delete_range\":{\"key\":\"%s\"}}]}",
                                        "{\"failure\":[{\"request_range\":{\"key\":\"%s\"}}]}",
                                        "{\"failure\":[{\"request_put\":{\"key\":\"%s\"}}]}",
                                        "{\"compare\":[{\"key\":\"%s\",\"target\":\"CREATE\",\"result\":\"EQUAL\","
                                        "\"create_revision\":\"0\"}]}"};
    char text[2048];
    size_t i;

    for (i = 0; i < COUNT(forms); i++) {
        snprintf(text, sizeof(text), forms[i], b64(foreign[_i].bytes, foreign[_i].n));
        ck_assert_msg(check("txn", text) == GB_ERR_FORBIDDEN, "%s", text);
        snprintf(text, sizeof(text), forms[i], key_of(KEY("sessions/s")));
        ck_assert_msg(check("txn", text) == GB_OK, "%s: %s", text, err.detail);
    }
    /* As the end of a range: only that of all keys of the fleet is good. */
    snprintf(text, sizeof(text), "{\"success\":[{\"request_range\":{\"key\":\"%s\",\"range_end\":\"%s\"}}]}",
             key_of(KEY("a")), b64(foreign[_i].bytes, foreign[_i].n));
    ck_assert_int_eq(check("txn", text), strcmp(foreign[_i].bytes, "/gpubuf/main0") == 0 ? GB_OK : GB_ERR_FORBIDDEN);
}
END_TEST

START_TEST(a_key_with_a_nul_is_not_changed) {
    static const char key[] = "/gpubuf/main/nodes/n\0x";
    const char *text64 = b64(key, sizeof(key) - 1);
    char text[512];

    snprintf(text, sizeof(text), "{\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"\"}}]}", text64);
    ck_assert_int_eq(check("txn", text), GB_ERR_FORBIDDEN);
    snprintf(text, sizeof(text), "{\"success\":[{\"request_delete_range\":{\"key\":\"%s\"}}]}", text64);
    ck_assert_int_eq(check("txn", text), GB_ERR_FORBIDDEN);
    snprintf(text, sizeof(text), "{\"success\":[{\"request_range\":{\"key\":\"%s\"}}]}", text64);
    ck_assert_int_eq(check("txn", text), GB_OK); /* pages are read so */
}
END_TEST

START_TEST(the_fleet_is_that_of_the_hub) {
    struct gb_txn txn = {0};
    char *text;

    get(&txn, KEY("meta"), NULL, false);
    text = gb_txn_finish(&txn);
    ck_assert_int_eq(check_as("main", "txn", text), GB_OK);
    ck_assert_int_eq(check_as("mai", "txn", text), GB_ERR_FORBIDDEN);
    ck_assert_int_eq(check_as("main2", "txn", text), GB_ERR_FORBIDDEN);
    ck_assert_int_eq(check_as("other", "txn", text), GB_ERR_FORBIDDEN);
    free(text);
}
END_TEST

/* --- records of others -------------------------------------------------------------------------------------------- */

static const char *const not_put[] = {KEY("meta"),          KEY("nodes/n2"),  KEY("nodes/other"), KEY("nodes/"),
                                      KEY("nodes/N"),       KEY("alive/n2"),  KEY("alive/m"),     KEY("alive/"),
                                      KEY("nodes/other/n"), KEY("alive/n2/n")};

START_TEST(records_of_others_are_not_written) {
    struct gb_txn txn = {0};

    gb_txn_put(&txn, not_put[_i], "{}", 0);
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
    gb_txn_delete(&txn, not_put[_i]);
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
    /* Behind what is permitted, and if a comparison fails. */
    gb_txn_put(&txn, KEY("alive/n"), "{}", 0);
    gb_txn_put(&txn, not_put[_i], "{}", 0);
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
    get(&txn, KEY("meta"), NULL, false);
    gb_txn_else(&txn);
    gb_txn_put(&txn, not_put[_i], "{}", 0);
    ck_assert_int_eq(check_txn(&txn), GB_ERR_FORBIDDEN);
}
END_TEST

/* --- ranges of changes -------------------------------------------------------------------------------------------- */

static const struct {
    const char *key;
    const char *end;
} ranges[] = {
    {KEY("sessions/"), KEY("sessions0")}, {KEY("a"), "/gpubuf/main0"},        {KEY("nodes/n"), KEY("nodes/o")},
    {KEY("ctl/"), KEY("ctl0")},           {KEY("ctl/a"), KEY("ctl/z")},       {KEY("ctl/n/"), KEY("ctl/n1")},
    {KEY("ctl/n/"), KEY("ctl/o0")},       {KEY("ctl/n/1"), KEY("ctl/n/9")},   {KEY("ctl/n/"), KEY("ctl0")},
    {KEY("ctl//"), KEY("ctl/0")},         {KEY("ctl/n/x/"), KEY("ctl/n/x0")}, {KEY("ctl/n/"), "\xff"},
    {KEY("ctl/n"), KEY("ctl/o")},         {KEY("ctl/n/"), KEY("ctl/n\xff")},  {KEY("ctl/n/"), ""},
};

START_TEST(many_keys_are_not_changed_at_once) {
    char text[1024];

    snprintf(text, sizeof(text), "{\"success\":[{\"request_delete_range\":{\"key\":\"%s\",\"range_end\":\"%s\"}}]}",
             key_of(ranges[_i].key), key_of(ranges[_i].end));
    ck_assert_msg(check("txn", text) == GB_ERR_FORBIDDEN, "%s to %s", ranges[_i].key, ranges[_i].end);
}
END_TEST

/* --- members that are unknown ------------------------------------------------------------------------------------- */

/* etcd takes "rangeEnd" for "range_end": what is not checked must not pass. # is a key of a session, @ the end of
 * all keys that there are. */
static const char *const unknown[] = {
    "{\"success\":[{\"request_range\":{\"key\":\"#\",\"rangeEnd\":\"@\"}}]}",
    "{\"success\":[{\"request_delete_range\":{\"key\":\"#\",\"rangeEnd\":\"@\"}}]}",
    "{\"success\":[{\"request_put\":{\"key\":\"#\",\"rangeEnd\":\"@\"}}]}",
    "{\"success\":[{\"request_put\":{\"key\":\"#\",\"range_end\":\"@\"}}]}",
    "{\"compare\":[{\"key\":\"#\",\"rangeEnd\":\"@\"}]}",
    "{\"compare\":[{\"key\":\"#\",\"range_end\":\"@\"}]}",
    "{\"compare\":[{\"key\":\"#\",\"value\":\"@\"}]}",
    "{\"success\":[{\"requestRange\":{\"key\":\"#\"}}]}",
    "{\"success\":[{\"requestPut\":{\"key\":\"#\"}}]}",
    "{\"success\":[{\"request_range\":{\"key\":\"#\"},\"request_put\":{\"key\":\"#\"}}]}",
    "{\"success\":[{\"request_range\":{\"key\":\"#\"},\"requestPut\":{\"key\":\"#\"}}]}",
    "{\"success\":[{\"request_txn\":{\"success\":[{\"request_range\":{\"key\":\"#\"}}]}}]}",
    "{\"success\":[{\"request_range\":{\"key\":\"#\",\"count_only\":true}}]}",
    "{\"success\":[{}]}",
    "{\"success\":[[]]}",
    "{\"success\":[null]}",
    "{\"success\":[{\"request_range\":null}]}",
    "{\"success\":[{\"request_range\":[\"key\"]}]}",
    "{\"success\":{\"request_range\":{\"key\":\"#\"}}}",
    "{\"success\":\"#\"}",
    "{\"success\":null}",
    "{\"compare\":{\"key\":\"#\"}}",
    "{\"compare\":[null]}",
    "{\"failure\":[{\"request_txn\":{}}]}",
    "{\"more\":1}",
    "{\"success\":[{\"request_range\":{\"key\":\"#\"}}],\"more\":[]}",
    "{\"compares\":[]}",
    /* Which of two the gateway takes is its affair. */
    "{\"success\":[{\"request_range\":{\"key\":\"#\",\"key\":\"@\"}}]}",
    "{\"success\":[],\"success\":[]}",
    "{\"success\":[{\"request_range\":{\"key\":\"#\"}}]} {}",
    "",
    " ",
    "[]",
    "null",
    "1",
    "\"#\"",
    "{\"success\":[{\"request_range\":{\"key\":\"#\"}}]",
    "{'success':[]}",
    "{\"success\":[{\"request_range\":{\"key\":\"#\",\"x\\u0000\":1}}]}",
};

/* The form with its two signs replaced. */
static void fill(const char *form, char *ret, size_t size) {
    const char *key = key_of(KEY("sessions/s"));
    const char *end = b64("\0", 1);
    size_t used = 0;

    for (; *form; form++) {
        const char one[] = {*form, '\0'};
        const char *part = *form == '#' ? key : *form == '@' ? end : one;

        ck_assert_uint_lt(used + strlen(part), size);
        memcpy(ret + used, part, strlen(part) + 1);
        used += strlen(part);
    }
}

START_TEST(what_is_not_known_does_not_pass) {
    char text[1024] = "";

    fill(unknown[_i], text, sizeof(text));
    ck_assert_msg(check("txn", text) == GB_ERR_INVALID_ARGUMENT, "%s: %s", text, gb_code_slug(err.code));
}
END_TEST

/* Keys that are no text, and base64 that is none or that others may read differently. */
START_TEST(keys_that_cannot_be_read) {
    static const char *const keys[] = {"1",
                                       "null",
                                       "[]",
                                       "{}",
                                       "true",
                                       "\"!\"",
                                       "\"L2dwdWJ1Zi9tYWluL2E\"",
                                       "\"L2dwdWJ1Zi9tYWluL3M\\n=\"",
                                       "\"L2dw dWJ1\""};
    char text[256];
    size_t i;

    for (i = 0; i < COUNT(keys); i++) {
        snprintf(text, sizeof(text), "{\"success\":[{\"request_range\":{\"key\":%s}}]}", keys[i]);
        ck_assert_msg(check("txn", text) == GB_ERR_FORBIDDEN, "%s", text);
        snprintf(text, sizeof(text), "{\"success\":[{\"request_delete_range\":{\"key\":%s}}]}", keys[i]);
        ck_assert_msg(check("txn", text) == GB_ERR_FORBIDDEN, "%s", text);
        snprintf(text, sizeof(text), "{\"success\":[{\"request_range\":{\"key\":\"%s\",\"range_end\":%s}}]}",
                 key_of(KEY("a")), keys[i]);
        ck_assert_msg(check("txn", text) == GB_ERR_FORBIDDEN, "%s", text);
    }
    ck_assert_int_eq(check("txn", "{\"success\":[{\"request_range\":{}}]}"), GB_ERR_FORBIDDEN);
    ck_assert_int_eq(check("txn", "{\"compare\":[{}]}"), GB_ERR_FORBIDDEN);
}
END_TEST

/* --- the others --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *op;
    const char *body;
} bad[] = {
    {"grant", "{\"ID\":\"1\"}"},
    {"grant", "{\"ID\":\"1\",\"TTL\":\"0\"}"},
    {"grant", "{\"ID\":\"1\",\"TTL\":0}"},
    {"grant", "{\"ID\":\"1\",\"TTL\":-1}"},
    {"grant", "{\"ID\":\"1\",\"TTL\":\"-1\"}"},
    {"grant", "{\"ID\":\"1\",\"TTL\":8640001}"},
    {"grant", "{\"ID\":\"1\",\"TTL\":\"8640001\"}"},
    {"grant", "{\"ID\":\"1\",\"TTL\":\"9223372036854775808\"}"},
    {"grant", "{\"ID\":\"1\",\"TTL\":1.5}"},
    {"grant", "{\"ID\":\"1\",\"TTL\":\"30\",\"ttl\":\"1\"}"},
    {"grant", "{\"TTL\":\"30\"}"},
    {"grant", "{\"ID\":\"0\",\"TTL\":\"30\"}"}, /* the directory would choose a number */
    {"keepalive", "{}"},
    {"keepalive", "{\"ID\":0}"},
    {"keepalive", "{\"ID\":\"0\"}"},
    {"keepalive", "{\"ID\":\"\"}"},
    {"keepalive", "{\"ID\":\"-1\"}"},
    {"keepalive", "{\"ID\":-1}"},
    {"keepalive", "{\"ID\":\"0x10\"}"},
    {"keepalive", "{\"ID\":\" 1\"}"},
    {"keepalive", "{\"ID\":\"1 \"}"},
    {"keepalive", "{\"ID\":\"9223372036854775808\"}"},
    {"keepalive", "{\"ID\":\"18446744073709551617\"}"},
    {"keepalive", "{\"ID\":9223372036854775808}"},
    {"keepalive", "{\"ID\":1.0}"},
    {"keepalive", "{\"ID\":null}"},
    {"keepalive", "{\"ID\":[1]}"},
    {"keepalive", "{\"ID\":\"1\",\"ID\":\"2\"}"},
    {"keepalive", "{\"id\":\"1\"}"},
    {"keepalive", "{\"ID\":\"1\",\"id\":\"2\"}"},
    {"keepalive", "[]"},
    {"keepalive", ""},
    {"keepalive", "{\"ID\":\"1\"}{\"ID\":\"2\"}"}, /* the gateway takes a stream */
    {"timetolive", "{\"keys\":true}"},
    {"revoke", "{}"},
    {"revoke", "{\"ID\":\"x\"}"},
    {"wait", "{}"},
    {"wait", "{\"wait_ms\":0}"},
    {"wait", "{\"wait_ms\":-1}"},
    {"wait", "{\"wait_ms\":30001}"},
    {"wait", "{\"wait_ms\":1e3}"},
    {"wait", "{\"wait_ms\":null}"},
    {"wait", "{\"wait_ms\":1,\"node\":\"other\"}"},
    {"wait", "null"},
    {"", "{}"},
    {"TXN", "{}"},
    {"txn/", "{}"},
    {"range", "{}"},
    {"put", "{}"},
    {"leases", "{}"},
    {"watch", "{}"},
};

START_TEST(what_is_no_such_request) {
    ck_assert_msg(check(bad[_i].op, bad[_i].body) == GB_ERR_INVALID_ARGUMENT, "%s %s", bad[_i].op, bad[_i].body);
}
END_TEST

/* The longest names there are: nothing is cut. */
START_TEST(long_names) {
    struct gb_name long_node = {""};
    char fleet[GB_NAME_MAX + 1];
    char key[3 * GB_NAME_MAX];
    struct gb_txn txn = {0};
    json_t *body;
    char *text;

    memset(fleet, 'f', GB_NAME_MAX);
    fleet[GB_NAME_MAX] = '\0';
    memset(long_node.s, 'x', GB_NAME_MAX);
    snprintf(key, sizeof(key), "/gpubuf/%s/nodes/%s", fleet, long_node.s);
    gb_txn_put(&txn, key, "{}", 0);
    text = gb_txn_finish(&txn);
    gb_assert_ok(gb_hub_check(fleet, &long_node, "txn", text, &is, &body, &err), err);
    json_decref(body);
    long_node.s[GB_NAME_MAX - 1] = 'y';
    gb_assert_fails(gb_hub_check(fleet, &long_node, "txn", text, &is, &body, &err), err, GB_ERR_FORBIDDEN);
    free(text);
    gb_txn_delete(&txn, key); /* of another, whose name has no end that is near */
    text = gb_txn_finish(&txn);
    gb_assert_fails(gb_hub_check(fleet, &node, "txn", text, &is, &body, &err), err, GB_ERR_FORBIDDEN);
    free(text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("hub_check");
    TCase *tcase = tcase_create("hub_check");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, readings_pass);
    tcase_add_test(tcase, a_transaction_with_comparisons_goes_on_alone);
    tcase_add_test(tcase, writings_pass);
    tcase_add_test(tcase, deletions_pass);
    tcase_add_test(tcase, a_node_that_is_gone_is_taken_out);
    tcase_add_test(tcase, a_node_that_may_be_alive_is_not_taken_out);
    tcase_add_test(tcase, leases_pass);
    tcase_add_test(tcase, a_wait_passes);
    tcase_add_test(tcase, the_most_operations);
    tcase_add_loop_test(tcase, keys_of_others_are_refused, 0, COUNT(foreign));
    tcase_add_test(tcase, a_key_with_a_nul_is_not_changed);
    tcase_add_test(tcase, the_fleet_is_that_of_the_hub);
    tcase_add_loop_test(tcase, records_of_others_are_not_written, 0, COUNT(not_put));
    tcase_add_loop_test(tcase, many_keys_are_not_changed_at_once, 0, COUNT(ranges));
    tcase_add_loop_test(tcase, what_is_not_known_does_not_pass, 0, COUNT(unknown));
    tcase_add_test(tcase, keys_that_cannot_be_read);
    tcase_add_loop_test(tcase, what_is_no_such_request, 0, COUNT(bad));
    tcase_add_test(tcase, long_names);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
