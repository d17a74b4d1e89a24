#include "fleet/messages.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"

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

/* Moves on to that list. */
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
    /* A key that is not there has no revision of changes to compare. */
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
    put_bytes(&txn->out, "key", range->key, strlen(range->key) + range->after); /* the NUL is the smallest step */
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
