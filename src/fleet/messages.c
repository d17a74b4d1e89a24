/* Writes requests to etcd's JSON gateway and reads its answers. Pure: no connection, no clock. No answer is trusted: it
 * may be any text. directory.c sends the requests; the files of src/fleet write transactions. */
#include "fleet/messages.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"
#include "base/text.h"

/* --- transactions ------------------------------------------------------------------------------------------------- */

static void put_number(struct gb_json_writer *out, const char *key, int64_t value) {
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, value);
    gb_json_put_string(out, key, text);
}

static void put_bytes(struct gb_json_writer *out, const char *key, const char *value, size_t n) {
    char *text = gb_base64(value, n, false);

    if (text)
        gb_json_put_string(out, key, text);
    else
        out->failed = true;
    free(text);
}

static void put_base64(struct gb_json_writer *out, const char *key, const char *value) {
    put_bytes(out, key, value, strlen(value));
}

/* Opens that list, and closes the one before. */
static void enter(struct gb_txn *txn, char list) {
    if (txn->list == list)
        return;
    if (txn->list == '\0')
        gb_json_open(&txn->out, NULL, '{');
    else
        gb_json_close(&txn->out, ']');
    gb_json_open(&txn->out, list == 'c' ? "compare" : list == 's' ? "success" : "failure", '[');
    txn->list = list;
}

static void operation(struct gb_txn *txn, const char *name) {
    if (txn->list != 'f')
        enter(txn, 's');
    gb_json_open(&txn->out, NULL, '{');
    gb_json_open(&txn->out, name, '{');
}

static void operation_end(struct gb_txn *txn) {
    gb_json_close(&txn->out, '}');
    gb_json_close(&txn->out, '}');
}

static void compare(struct gb_txn *txn, bool created, const char *key, const char *result, int64_t revision) {
    enter(txn, 'c');
    gb_json_open(&txn->out, NULL, '{');
    put_base64(&txn->out, "key", key);
    gb_json_put_string(&txn->out, "target", created ? "CREATE" : "MOD");
    gb_json_put_string(&txn->out, "result", result);
    put_number(&txn->out, created ? "create_revision" : "mod_revision", revision);
    gb_json_close(&txn->out, '}');
}

void gb_txn_compare(struct gb_txn *txn, enum gb_txn_target target, const char *key, int64_t revision) {
    /* A missing key has no modification revision: its creation revision is compared. */
    compare(txn, target == GB_TXN_CREATED || revision == 0, key, "EQUAL", revision);
}

void gb_txn_compare_there(struct gb_txn *txn, const char *key) {
    compare(txn, true, key, "GREATER", 0);
}

void gb_txn_else(struct gb_txn *txn) {
    enter(txn, 'f');
}

void gb_txn_get(struct gb_txn *txn, const struct gb_txn_range *range) {
    operation(txn, "request_range");
    put_bytes(&txn->out, "key", range->key, strlen(range->key) + range->after); /* with the NUL it is the next key */
    if (range->end)
        put_base64(&txn->out, "range_end", range->end);
    if (range->limit > 0)
        put_number(&txn->out, "limit", (int64_t)range->limit);
    if (range->revision > 0)
        put_number(&txn->out, "revision", range->revision);
    if (range->serializable)
        gb_json_put_bool(&txn->out, "serializable", true);
    if (range->keys_only)
        gb_json_put_bool(&txn->out, "keys_only", true);
    operation_end(txn);
}

void gb_txn_put(struct gb_txn *txn, const char *key, const char *value, int64_t lease) {
    operation(txn, "request_put");
    put_base64(&txn->out, "key", key);
    put_base64(&txn->out, "value", value);
    if (lease != 0)
        put_number(&txn->out, "lease", lease);
    operation_end(txn);
}

void gb_txn_delete(struct gb_txn *txn, const char *key) {
    operation(txn, "request_delete_range");
    put_base64(&txn->out, "key", key);
    operation_end(txn);
}

void gb_txn_delete_below(struct gb_txn *txn, const char *prefix) {
    char end[512];

    gb_prefix_end(prefix, end, sizeof(end));
    operation(txn, "request_delete_range");
    put_base64(&txn->out, "key", prefix);
    put_base64(&txn->out, "range_end", end);
    operation_end(txn);
}

void gb_prefix_end(const char *prefix, char *ret, size_t size) {
    size_t n = strlen(prefix);

    while (n > 1 && (unsigned char)prefix[n - 1] == 255) /* nothing is greater in that place */
        n--;
    snprintf(ret, size, "%.*s%c", (int)n - 1, prefix, prefix[n - 1] + 1);
}

/* Takes the text out of the writer. */
static char *take(struct gb_json_writer *out) {
    char *text = NULL;

    gb_json_end(out);
    if (!out->failed)
        text = strndup(out->s, out->used);
    gb_json_done(out);
    return text;
}

char *gb_txn_finish(struct gb_txn *txn) {
    char *text;

    if (txn->list != '\0')
        gb_json_close(&txn->out, ']');
    else
        gb_json_open(&txn->out, NULL, '{');
    gb_json_close(&txn->out, '}');
    text = take(&txn->out);
    *txn = (struct gb_txn){0};
    return text;
}

/* --- leases ------------------------------------------------------------------------------------------------------- */

char *gb_lease_grant_text(int64_t id, unsigned ttl_s) {
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    put_number(&out, "TTL", ttl_s);
    put_number(&out, "ID", id);
    gb_json_close(&out, '}');
    return take(&out);
}

char *gb_lease_text(int64_t id, bool keys) {
    struct gb_json_writer out = {0};

    gb_json_open(&out, NULL, '{');
    put_number(&out, "ID", id);
    if (keys)
        gb_json_put_bool(&out, "keys", true);
    gb_json_close(&out, '}');
    return take(&out);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static int malformed(struct gb_error *err, const char *what) {
    return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory's answer is malformed: %s", what);
}

/* --- members ------------------------------------------------------------------------------------------------------ */

/* Reads a number of 64 bits, as text or number. Absent: 0. */
static int read_u64(const json_t *object, const char *key, uint64_t *ret) {
    const json_t *value = json_object_get(object, key);

    *ret = 0;
    if (!value)
        return 0;
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *ret = (uint64_t)json_integer_value(value);
        return 0;
    }
    if (json_is_string(value) && gb_parse_u64(json_string_value(value), json_string_length(value), ret) == GB_PARSE_OK)
        return 0;
    return -1;
}

/* The same with a sign, which only -1 has. */
static int read_i64(const json_t *object, const char *key, int64_t *ret) {
    const json_t *value = json_object_get(object, key);
    uint64_t n;

    *ret = -1;
    if (json_is_string(value) && strcmp(json_string_value(value), "-1") == 0)
        return 0;
    if (json_is_integer(value) && json_integer_value(value) == -1)
        return 0;
    if (read_u64(object, key, &n) < 0 || n > INT64_MAX)
        return -1;
    *ret = (int64_t)n;
    return 0;
}

/* Reads base64. Absent: "". A key has no NUL in it. */
static int read_bytes(const json_t *value, bool key, char **ret, size_t *ret_bytes) {
    const char *text = value ? json_string_value(value) : "";

    if (!text)
        return -1;
    if (!gb_base64_read(text, value ? json_string_length(value) : 0, false, ret, ret_bytes))
        return -1;
    if (key && strlen(*ret) != *ret_bytes) {
        free(*ret);
        *ret = NULL;
        return -1;
    }
    return 0;
}

static int read_header(const json_t *object, uint64_t *ret_cluster, int64_t *ret_revision, uint64_t *ret_term) {
    const json_t *header = json_object_get(object, "header");

    if (!json_is_object(header) || read_u64(header, "cluster_id", ret_cluster) < 0 || *ret_cluster == 0 ||
        read_u64(header, "raft_term", ret_term) < 0)
        return -1;
    return read_i64(header, "revision", ret_revision);
}

static json_t *load(const char *text, size_t n) {
    json_t *root = json_loadb(text, n, 0, NULL);

    if (root && !json_is_object(root)) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* --- answers to transactions -------------------------------------------------------------------------------------- */

static void kvs_done(struct gb_kvs *kvs) {
    size_t i;

    for (i = 0; i < kvs->count; i++) {
        free(kvs->items[i].key);
        free(kvs->items[i].value);
    }
    free(kvs->items);
}

void gb_txn_answer_done(struct gb_txn_answer *answer) {
    size_t i;

    for (i = 0; i < answer->count; i++)
        kvs_done(&answer->results[i]);
    free(answer->results);
    *answer = (struct gb_txn_answer){0};
}

static int read_kv(const json_t *object, struct gb_kv *ret) {
    size_t n;

    if (!json_is_object(object) || read_bytes(json_object_get(object, "key"), true, &ret->key, &n) < 0)
        return -1;
    if (read_bytes(json_object_get(object, "value"), false, &ret->value, &ret->bytes) < 0)
        return -1;
    if (read_i64(object, "create_revision", &ret->create_revision) < 0)
        return -1;
    return read_i64(object, "mod_revision", &ret->mod_revision);
}

static int read_range(const json_t *range, struct gb_kvs *ret) {
    const json_t *list = json_object_get(range, "kvs");
    size_t n = json_array_size(list);
    size_t i;

    ret->more = json_is_true(json_object_get(range, "more"));
    if (list && !json_is_array(list))
        return -1;
    if (n == 0)
        return 0;
    ret->items = calloc(n, sizeof(*ret->items));
    if (!ret->items)
        return -1;
    for (i = 0; i < n; i++) {
        ret->count = i + 1;
        if (read_kv(json_array_get(list, i), &ret->items[i]) < 0)
            return -1;
    }
    return 0;
}

static int read_results(const json_t *root, struct gb_txn_answer *ret) {
    const json_t *list = json_object_get(root, "responses");
    size_t n = json_array_size(list);
    size_t i;

    if (list && !json_is_array(list))
        return -1;
    if (n == 0)
        return 0;
    ret->results = calloc(n, sizeof(*ret->results));
    if (!ret->results)
        return -1;
    ret->count = n;
    for (i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i);
        const json_t *range = json_object_get(one, "response_range");

        if (!json_is_object(one) || (range && !json_is_object(range)))
            return -1;
        if (range && read_range(range, &ret->results[i]) < 0)
            return -1;
    }
    return 0;
}

int gb_txn_read(const char *text, size_t n, struct gb_txn_answer *ret, struct gb_error *err) {
    json_t *root = load(text, n);
    int r;

    *ret = (struct gb_txn_answer){0};
    if (!root)
        return malformed(err, "it is no JSON object");
    r = read_header(root, &ret->cluster_id, &ret->revision, &ret->term);
    if (r == 0)
        r = read_results(root, ret);
    ret->succeeded = json_is_true(json_object_get(root, "succeeded"));
    json_decref(root);
    if (r < 0) {
        gb_txn_answer_done(ret);
        return malformed(err, "it is no answer to a transaction");
    }
    return 0;
}

const struct gb_kvs *gb_txn_result(const struct gb_txn_answer *answer, size_t index) {
    static const struct gb_kvs empty;

    return index < answer->count ? &answer->results[index] : &empty;
}

/* --- answers about leases ----------------------------------------------------------------------------------------- */

void gb_lease_answer_done(struct gb_lease_answer *answer) {
    size_t i;

    for (i = 0; i < answer->key_count; i++)
        free(answer->keys[i]);
    free(answer->keys);
    *answer = (struct gb_lease_answer){0};
}

static int read_keys(const json_t *list, struct gb_lease_answer *ret) {
    size_t n = json_array_size(list);
    size_t bytes;
    size_t i;

    if (list && !json_is_array(list))
        return -1;
    if (n == 0)
        return 0;
    ret->keys = calloc(n, sizeof(*ret->keys));
    if (!ret->keys)
        return -1;
    for (i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i);

        if (!json_is_string(one) || read_bytes(one, true, &ret->keys[i], &bytes) < 0)
            return -1;
        ret->key_count = i + 1;
    }
    return 0;
}

int gb_lease_read(const char *text, size_t n, struct gb_lease_answer *ret, struct gb_error *err) {
    json_t *root = load(text, n);
    const json_t *answer;
    int64_t revision;
    uint64_t term;
    int r;

    *ret = (struct gb_lease_answer){0};
    if (!root)
        return malformed(err, "it is no JSON object");
    /* A stream wraps its answer. An error in a stream has status 200. */
    answer = json_object_get(root, "result");
    if (!answer)
        answer = root;
    r = read_header(answer, &ret->cluster_id, &revision, &term);
    if (r == 0)
        r = read_i64(answer, "TTL", &ret->ttl_s);
    if (r == 0)
        r = read_i64(answer, "grantedTTL", &ret->granted_s);
    if (r == 0)
        r = read_keys(json_object_get(answer, "keys"), ret);
    json_decref(root);
    if (r < 0) {
        gb_lease_answer_done(ret);
        return malformed(err, "it is no answer about a lease");
    }
    return 0;
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

int gb_refusal_read(const char *text, size_t n, char *ret_text, size_t size) {
    json_t *root = load(text, n);
    const char *message = json_string_value(json_object_get(root, "message"));
    const json_t *code = json_object_get(root, "code");
    int ret = 0;

    if (!message)
        message = json_string_value(json_object_get(root, "error"));
    if (!message) /* of a hub */
        message = json_string_value(json_object_get(root, "detail"));
    snprintf(ret_text, size, "%s", message ? message : "no reason");
    if (json_is_integer(code) && json_integer_value(code) > 0 && json_integer_value(code) < 100)
        ret = (int)json_integer_value(code);
    json_decref(root);
    return ret;
}
