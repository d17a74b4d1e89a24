/* Reading of what the gateway answers. Nothing of it is trusted: it may be any text. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"
#include "base/text.h"
#include "fleet/messages.h"

static int malformed(struct gb_error *err, const char *what) {
    return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory's answer is malformed: %s", what);
}

/* --- members ------------------------------------------------------------------------------------------------------ */

/* A number of 64 bits, as text or number; 0 if it is left out. */
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

/* The same with a sign; only -1 is ever meant by one. */
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

/* Text out of base64, "" if it is left out. A key has no NUL in it. */
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

/* --- transactions ------------------------------------------------------------------------------------------------- */

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

/* --- leases ------------------------------------------------------------------------------------------------------- */

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
    /* The answer of a stream is wrapped. An error within one comes with status 200. */
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
