/* Checks requests that nodes send to a hub. A permitted request has only keys of this fleet, and writes no record of
 * another node. Whatever the check does not know is refused. hub.c calls it for each request, and the API on nodes that
 * are not hubs. Pure. */
#include "fleet/hub/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"
#include "base/text.h"

#define LEASE_S_MAX (100 * 24 * 3600) /* of a tombstone */

void gb_hub_key(const char *fleet, const char *kind, const char *name, char ret[GB_HUB_KEY_SIZE]) {
    snprintf(ret, GB_HUB_KEY_SIZE, "/gpubuf/%s/%s%s", fleet, kind, name);
}

struct rules {
    char prefix[GB_HUB_KEY_SIZE]; /* "/gpubuf/FLEET/" */
    size_t prefix_bytes;
    const struct gb_name *node;
    const json_t *compares; /* that hold if the operation runs; NULL: no comparison */
};

static int refuse(struct gb_error *err, enum gb_code code, const char *what, const char *key) {
    return gb_error_set(err, code, "the request to the directory %s%s%.200s%s", what, key[0] ? " \"" : "", key,
                        key[0] ? "\"" : "");
}

static int malformed(struct gb_error *err, const char *what) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a request to the directory has %s", what);
}

/* etcd accepts two spellings, "range_end" and "rangeEnd": an unknown member must not reach it. */
static bool has_only(const json_t *object, const char *const names[]) {
    size_t known = 0;

    for (; *names; names++)
        known += json_object_get(object, *names) != NULL;
    return json_is_object(object) && json_object_size(object) == known;
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Reads base64. The caller frees. */
static char *read_bytes(const json_t *object, const char *member, size_t *ret) {
    const char *text = json_string_value(json_object_get(object, member));
    char *bytes;

    return text && gb_base64_read(text, strlen(text), false, &bytes, ret) ? bytes : NULL;
}

static bool begins(const struct rules *rules, const char *bytes, size_t n) {
    return n > rules->prefix_bytes && memcmp(bytes, rules->prefix, rules->prefix_bytes) == 0;
}

/* The end of a range follows its last key: the end of all keys of the fleet is "/gpubuf/FLEET0". */
static bool is_end(const struct rules *rules, const char *bytes, size_t n) {
    size_t same = rules->prefix_bytes - 1;

    return begins(rules, bytes, n) || (n == rules->prefix_bytes && memcmp(bytes, rules->prefix, same) == 0 &&
                                       bytes[same] == rules->prefix[same] + 1);
}

/* Whether a key, "KIND/NAME...", is of that kind. */
static const char *of_kind(const char *rest, const char *kind) {
    size_t n = strlen(kind);

    return strncmp(rest, kind, n) == 0 && rest[n] == '/' ? rest + n + 1 : NULL;
}

static bool is_own(const struct rules *rules, const char *name) {
    size_t n = strlen(rules->node->s);

    return strncmp(name, rules->node->s, n) == 0 && (name[n] == '\0' || name[n] == '/');
}

/* Whether a comparison requires that the node whose name begins there is not alive. */
static bool is_said_to_be_gone(const struct rules *rules, const char *name) {
    int bytes = (int)strcspn(name, "/");
    char key[GB_HUB_KEY_SIZE + GB_NAME_MAX + 8];
    size_t i;

    if (bytes > GB_NAME_MAX)
        return false;
    snprintf(key, sizeof(key), "%salive/%.*s", rules->prefix, bytes, name);
    for (i = 0; i < json_array_size(rules->compares); i++) {
        const json_t *compare = json_array_get(rules->compares, i);
        const char *target = json_string_value(json_object_get(compare, "target"));
        const char *result = json_string_value(json_object_get(compare, "result"));
        const char *revision = json_string_value(json_object_get(compare, "create_revision"));
        size_t n = 0;
        char *there = read_bytes(compare, "key", &n);
        bool same = there && n == strlen(key) && memcmp(there, key, n) == 0;

        free(there);
        if (same && target && strcmp(target, "CREATE") == 0 && result && strcmp(result, "EQUAL") == 0 && revision &&
            strcmp(revision, "0") == 0)
            return true;
    }
    return false;
}

/* A node may change sessions, because each change compares the record before it. It may write its own records, and no
 * record of the fleet. It may remove a node that is not alive, if the transaction compares that. */
static int check_put(const struct rules *rules, const char *key, struct gb_error *err) {
    const char *rest = key + rules->prefix_bytes;
    const char *name;

    if (strcmp(rest, "meta") == 0)
        return refuse(err, GB_ERR_FORBIDDEN, "would change the fleet's own record", key);
    if (((name = of_kind(rest, "nodes")) || (name = of_kind(rest, "alive"))) && !is_own(rules, name))
        return refuse(err, GB_ERR_FORBIDDEN, "would write another node's record", key);
    return 0;
}

static int check_delete(const struct rules *rules, const char *key, struct gb_error *err) {
    const char *rest = key + rules->prefix_bytes;
    const char *name;

    if (strcmp(rest, "meta") == 0)
        return refuse(err, GB_ERR_FORBIDDEN, "would delete the fleet's own record", key);
    if ((name = of_kind(rest, "alive")) && !is_own(rules, name))
        return refuse(err, GB_ERR_FORBIDDEN, "would delete another node's record", key);
    if (((name = of_kind(rest, "nodes")) || (name = of_kind(rest, "ctl"))) && !is_own(rules, name) &&
        !is_said_to_be_gone(rules, name))
        return refuse(err, GB_ERR_FORBIDDEN, "would delete what is of another node, which may be alive", key);
    return 0;
}

/* The only permitted range is all orders of one node, "ctl/NODE/" to "ctl/NODE0". */
static bool is_orders(const struct rules *rules, const char *key, const char *end, size_t n, size_t end_n) {
    const char *name = of_kind(key + rules->prefix_bytes, "ctl");

    return name && end && strcspn(name, "/") > 0 && name + strcspn(name, "/") == key + n - 1 && end_n == n &&
           memcmp(key, end, n - 1) == 0 && end[n - 1] == '/' + 1;
}

/* --- transactions ------------------------------------------------------------------------------------------------- */

static int check_range(const struct rules *rules, const json_t *range, bool *serializable, struct gb_error *err) {
    static const char *const names[] = {"key", "range_end", "limit", "revision", "serializable", "keys_only", NULL};
    size_t n = 0;
    size_t end_n = 0;
    char *key = read_bytes(range, "key", &n);
    char *end = read_bytes(range, "range_end", &end_n);
    bool valid =
        key && begins(rules, key, n) && (!json_object_get(range, "range_end") || (end && is_end(rules, end, end_n)));

    *serializable &= json_is_true(json_object_get(range, "serializable"));
    free(key);
    free(end);
    if (!has_only(range, names))
        return malformed(err, "a range with members that are unknown");
    return valid ? 0 : refuse(err, GB_ERR_FORBIDDEN, "reads keys that are none of the fleet", "");
}

static int check_change(const struct rules *rules, const json_t *change, bool deletes, struct gb_error *err) {
    static const char *const puts[] = {"key", "value", "lease", NULL};
    static const char *const ranges[] = {"key", "range_end", NULL};
    size_t n = 0;
    size_t end_n = 0;
    char *key = read_bytes(change, "key", &n);
    char *end = read_bytes(change, "range_end", &end_n);
    int r;

    if (!has_only(change, deletes ? ranges : puts))
        r = malformed(err, "a change with members that are unknown");
    else if (!key || !begins(rules, key, n) || strlen(key) != n)
        r = refuse(err, GB_ERR_FORBIDDEN, "changes keys that are none of the fleet", "");
    else if (json_object_get(change, "range_end") && !is_orders(rules, key, end, n, end_n))
        r = refuse(err, GB_ERR_FORBIDDEN, "changes many keys at once", "");
    else
        r = deletes ? check_delete(rules, key, err) : check_put(rules, key, err);
    free(key);
    free(end);
    return r;
}

static int check_operation(const struct rules *rules, const json_t *operation, struct gb_hub_checked *ret,
                           struct gb_error *err) {
    const json_t *what;

    ret->ops++;
    if (json_object_size(operation) != 1)
        return malformed(err, "an operation that is none");
    if ((what = json_object_get(operation, "request_range")))
        return check_range(rules, what, &ret->serializable, err);
    ret->reads = false;
    if ((what = json_object_get(operation, "request_put")))
        return check_change(rules, what, false, err);
    if ((what = json_object_get(operation, "request_delete_range")))
        return check_change(rules, what, true, err);
    return malformed(err, "an operation of another kind than range, put and delete");
}

static int check_operations(const struct rules *rules, const json_t *list, struct gb_hub_checked *ret,
                            struct gb_error *err) {
    size_t i;

    if (list && !json_is_array(list))
        return malformed(err, "operations that are no list");
    for (i = 0; i < json_array_size(list); i++)
        if (check_operation(rules, json_array_get(list, i), ret, err) < 0)
            return -1;
    return 0;
}

static int check_compares(const struct rules *rules, const json_t *list, struct gb_hub_checked *ret,
                          struct gb_error *err) {
    static const char *const names[] = {"key", "target", "result", "create_revision", "mod_revision", NULL};
    size_t i;

    if (list && !json_is_array(list))
        return malformed(err, "comparisons that are no list");
    ret->ops += json_array_size(list);
    for (i = 0; i < json_array_size(list); i++) {
        const json_t *compare = json_array_get(list, i);
        size_t n = 0;
        char *key = read_bytes(compare, "key", &n);
        bool valid = key && begins(rules, key, n);

        free(key);
        if (!has_only(compare, names))
            return malformed(err, "a comparison with members that are unknown");
        if (!valid)
            return refuse(err, GB_ERR_FORBIDDEN, "compares keys that are none of the fleet", "");
    }
    return 0;
}

static int check_txn(struct rules *rules, const json_t *root, struct gb_hub_checked *ret, struct gb_error *err) {
    static const char *const names[] = {"compare", "success", "failure", NULL};
    const json_t *compare = json_object_get(root, "compare");
    const json_t *failure = json_object_get(root, "failure");

    if (!has_only(root, names))
        return malformed(err, "members that are unknown");
    ret->reads = ret->serializable = true;
    if (check_compares(rules, compare, ret, err) < 0)
        return -1;
    rules->compares = compare;
    if (check_operations(rules, json_object_get(root, "success"), ret, err) < 0)
        return -1;
    rules->compares = NULL;
    if (check_operations(rules, failure, ret, err) < 0)
        return -1;
    if (ret->ops > GB_HUB_OPS_MAX)
        return malformed(err, "more operations than etcd takes");
    ret->serializable &= ret->reads;
    if (compare || failure)
        ret->ops = 0; /* it is relayed alone */
    return 0;
}

/* --- the others --------------------------------------------------------------------------------------------------- */

/* Reads a number of the gateway: text or number. */
static bool read_id(const json_t *value, int64_t *ret) {
    const char *text = json_string_value(value);
    uint64_t n = 0;

    if (json_is_integer(value))
        n = json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
    else if (!text || gb_parse_u64(text, strlen(text), &n) != GB_PARSE_OK)
        return false;
    *ret = (int64_t)n;
    return n > 0 && n <= INT64_MAX;
}

static int check_lease(const json_t *root, struct gb_hub_checked *ret, struct gb_error *err) {
    static const char *const grants[] = {"ID", "TTL", NULL};
    static const char *const others[] = {"ID", "keys", NULL};
    int64_t ttl = 0;

    if (!has_only(root, ret->op == GB_RELAY_GRANT ? grants : others))
        return malformed(err, "members that are unknown");
    if (!read_id(json_object_get(root, "ID"), &ret->lease))
        return malformed(err, "no number of a lease");
    if (ret->op == GB_RELAY_GRANT && (!read_id(json_object_get(root, "TTL"), &ttl) || ttl > LEASE_S_MAX))
        return malformed(err, "a lease without a length, or one of too many seconds");
    return 0;
}

static int check_wait(const json_t *root, struct gb_hub_checked *ret, struct gb_error *err) {
    static const char *const names[] = {"wait_ms", NULL};
    int64_t ms = 0;

    if (!has_only(root, names))
        return malformed(err, "members that are unknown");
    if (!read_id(json_object_get(root, "wait_ms"), &ms) || ms > GB_HUB_WAIT_MS)
        return malformed(err, "no time to wait for orders, or too much");
    ret->wait_ms = (uint64_t)ms;
    return 0;
}

static bool read_op(const char *text, struct gb_hub_checked *ret) {
    static const char *const words[] = {
        [GB_RELAY_TXN] = "txn",
        [GB_RELAY_GRANT] = "grant",
        [GB_RELAY_KEEPALIVE] = "keepalive",
        [GB_RELAY_TIMETOLIVE] = "timetolive",
        [GB_RELAY_REVOKE] = "revoke",
    };
    size_t i;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(words[i], text) == 0) {
            ret->op = (enum gb_fleet_relay_op)i;
            return true;
        }
    ret->waits = strcmp(text, "wait") == 0;
    return ret->waits;
}

int gb_hub_check(const char *fleet, const struct gb_name *node, const char *op, const char *text,
                 struct gb_hub_checked *ret, json_t **body, struct gb_error *err) {
    struct rules rules = {.node = node};
    json_t *root;
    int r;

    *ret = (struct gb_hub_checked){.op = GB_RELAY_TXN};
    *body = NULL;
    gb_hub_key(fleet, "", "", rules.prefix);
    rules.prefix_bytes = strlen(rules.prefix);
    if (!read_op(op, ret))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the directory knows txn, grant, keepalive, timetolive, revoke and wait");
    root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        return malformed(err, "a body that is no JSON object");
    }
    if (ret->waits)
        r = check_wait(root, ret, err);
    else
        r = ret->op == GB_RELAY_TXN ? check_txn(&rules, root, ret, err) : check_lease(root, ret, err);
    if (r < 0)
        json_decref(root);
    else
        *body = root;
    return r;
}

int gb_hub_would_take(const char *fleet, const struct gb_name *node, const char *op, const char *body,
                      struct gb_error *err) {
    struct gb_hub_checked checked;
    json_t *root;
    int r = gb_hub_check(fleet, node, op, body, &checked, &root, err);

    json_decref(root);
    return r;
}
