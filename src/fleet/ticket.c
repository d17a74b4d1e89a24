/* Tickets: a permission by one node for a request at another, signed with a key that all nodes share. The directory has
 * one key for each day, made by the first node that finds no key of that day. The API makes and checks tickets;
 * member.c reads and rotates the keys. */
#include "fleet/ticket.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/hash.h"
#include "base/text.h"
#include "fleet/directory.h"
#include "fleet/messages.h"
#include "fleet/state.h"

/* --- ticket ------------------------------------------------------------------------------------------------------- */

/* KID.EXPIRES.WHO.SIGNATURE, the last two as base64 of URLs. */

#define MAC_BYTES 32

void gb_ticket_keys_add(struct gb_ticket_keys *keys, const struct gb_ticket_key *key) {
    size_t at;

    for (at = 0; at < keys->count && keys->keys[at].id < key->id; at++)
        ;
    if (at < keys->count && keys->keys[at].id == key->id) {
        keys->keys[at] = *key;
        return;
    }
    if (keys->count == GB_TICKET_KEYS_MAX) {
        if (at == 0)
            return;
        memmove(keys->keys, keys->keys + 1, (keys->count - 1) * sizeof(*keys->keys));
        keys->count--;
        at--;
    }
    memmove(keys->keys + at + 1, keys->keys + at, (keys->count - at) * sizeof(*keys->keys));
    keys->keys[at] = *key;
    keys->count++;
}

/* The newest key that all nodes have had time to read, or else the oldest key. */
static const struct gb_ticket_key *signing_key(const struct gb_ticket_keys *keys, int64_t now_s) {
    size_t i;

    for (i = keys->count; i > 1; i--)
        if (keys->keys[i - 1].made_s + GB_TICKET_PROPAGATION_S <= now_s)
            return &keys->keys[i - 1];
    return keys->count > 0 ? &keys->keys[0] : NULL;
}

static const struct gb_ticket_key *find_key(const struct gb_ticket_keys *keys, uint64_t id) {
    size_t i;

    for (i = 0; i < keys->count; i++)
        if (keys->keys[i].id == id)
            return &keys->keys[i];
    return NULL;
}

/* Adds a part after its length, so that no two lists of parts give the same bytes. */
static int add(gnutls_hmac_hd_t mac, const char *part) {
    char length[24];
    int n = snprintf(length, sizeof(length), "%zu:", strlen(part));

    if (gnutls_hmac(mac, length, (size_t)n) < 0)
        return -1;
    return gnutls_hmac(mac, part, strlen(part));
}

static int sign(const struct gb_ticket_key *key, const struct gb_ticket_scope *scope, const char *expires,
                const char *who, unsigned char ret[MAC_BYTES]) {
    gnutls_hmac_hd_t mac;
    int r;

    if (gnutls_hmac_init(&mac, GNUTLS_MAC_SHA256, key->key, sizeof(key->key)) < 0)
        return -1;
    r = add(mac, "gpubuf ticket 1");
    r = r < 0 ? r : add(mac, scope->method);
    r = r < 0 ? r : add(mac, scope->path);
    r = r < 0 ? r : add(mac, scope->query ? scope->query : "");
    r = r < 0 ? r : add(mac, scope->node);
    r = r < 0 ? r : add(mac, expires);
    r = r < 0 ? r : add(mac, who);
    gnutls_hmac_deinit(mac, ret);
    return r < 0 ? -1 : 0;
}

int gb_ticket_make(const struct gb_ticket_keys *keys, int64_t now_s, const struct gb_ticket_scope *scope,
                   const char *who, char ret[GB_FLEET_TICKET_SIZE], struct gb_error *err) {
    const struct gb_ticket_key *key = signing_key(keys, now_s);
    unsigned char mac[MAC_BYTES];
    char expires[24];
    char *who_text;
    char *mac_text;
    int n = -1;

    if (!key)
        return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "the fleet's keys for tickets are not known yet");
    if (strlen(who) > GB_TICKET_WHO_MAX)
        return gb_error_set(err, GB_ERR_INTERNAL, "the name of the token is too long for a ticket");
    snprintf(expires, sizeof(expires), "%" PRId64, now_s + GB_TICKET_LIFE_S);
    if (sign(key, scope, expires, who, mac) < 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "GnuTLS signs no ticket");
    who_text = gb_base64(who, strlen(who), true);
    mac_text = gb_base64(mac, sizeof(mac), true);
    if (who_text && mac_text)
        n = snprintf(ret, GB_FLEET_TICKET_SIZE, "%" PRIu64 ".%s.%s.%s", key->id, expires, who_text, mac_text);
    free(who_text);
    free(mac_text);
    if (n < 0 || n >= GB_FLEET_TICKET_SIZE)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for a ticket");
    return 0;
}

/* --- checking ----------------------------------------------------------------------------------------------------- */

struct parts {
    uint64_t id;
    char expires[24];
    uint64_t expires_s;
    char *who;
    char *mac;
    size_t who_bytes;
    size_t mac_bytes;
};

/* Takes the part up to the next dot, or to the end for the last. */
static bool next_part(const char **at, bool last, const char **ret, size_t *ret_n) {
    size_t n = strcspn(*at, ".");

    if (((*at)[n] == '\0') != last)
        return false;
    *ret = *at;
    *ret_n = n;
    *at += last ? n : n + 1;
    return true;
}

static bool split(const char *ticket, struct parts *ret) {
    const char *part;
    size_t n;

    if (strlen(ticket) >= GB_FLEET_TICKET_SIZE)
        return false;
    if (!next_part(&ticket, false, &part, &n) || gb_parse_u64(part, n, &ret->id) != GB_PARSE_OK)
        return false;
    if (!next_part(&ticket, false, &part, &n) || n >= sizeof(ret->expires) ||
        gb_parse_u64(part, n, &ret->expires_s) != GB_PARSE_OK || ret->expires_s > INT64_MAX)
        return false;
    snprintf(ret->expires, sizeof(ret->expires), "%.*s", (int)n, part);
    if (!next_part(&ticket, false, &part, &n) || !gb_base64_read(part, n, true, &ret->who, &ret->who_bytes))
        return false;
    return next_part(&ticket, true, &part, &n) && gb_base64_read(part, n, true, &ret->mac, &ret->mac_bytes) &&
           ret->mac_bytes == MAC_BYTES && strlen(ret->who) == ret->who_bytes;
}

static int check(const struct gb_ticket_keys *keys, int64_t now_s, const struct gb_ticket_scope *scope,
                 const struct parts *parts, struct gb_error *err) {
    const struct gb_ticket_key *key = find_key(keys, parts->id);
    unsigned char mac[MAC_BYTES];

    if (!key || sign(key, scope, parts->expires, parts->who, mac) < 0 || gnutls_memcmp(mac, parts->mac, MAC_BYTES) != 0)
        return gb_error_set(err, GB_ERR_TICKET_INVALID, "the ticket is not for this request at this node");
    if ((int64_t)parts->expires_s < now_s)
        return gb_error_set(err, GB_ERR_TICKET_INVALID, "the ticket has expired; ask the first node again");
    if ((int64_t)parts->expires_s - now_s > 2 * GB_TICKET_LIFE_S)
        return gb_error_set(err, GB_ERR_TICKET_INVALID, "the ticket is of a time to come: the clocks are apart");
    return 0;
}

int gb_ticket_check(const struct gb_ticket_keys *keys, int64_t now_s, const struct gb_ticket_scope *scope,
                    const char *ticket, char *ret_who, size_t who_size, struct gb_error *err) {
    struct parts parts = {0};
    int r;

    if (split(ticket, &parts))
        r = check(keys, now_s, scope, &parts, err);
    else
        r = gb_error_set(err, GB_ERR_TICKET_INVALID, "this is no ticket");
    if (r == 0)
        snprintf(ret_who, who_size, "%s", parts.who);
    free(parts.who);
    free(parts.mac);
    return r;
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

void gb_keys_learn(struct gb_fleet *fleet, const struct gb_kvs *kvs) {
    struct gb_ticket_keys keys = {0};
    struct gb_ticket_key key;
    struct gb_name id;
    char prefix[GB_FLEET_KEY_SIZE];
    size_t i;

    gb_fleet_key(fleet, "keys", "", NULL, prefix);
    for (i = 0; i < kvs->count; i++) {
        const struct gb_kv *kv = &kvs->items[i];

        if (!gb_fleet_name_of(kv->key, prefix, &id) ||
            gb_fleet_key_read(kv->value, kv->bytes, key.key, &key.made_s) < 0)
            continue;
        key.id = strtoull(id.s, NULL, 10);
        gb_ticket_keys_add(&keys, &key);
    }
    pthread_mutex_lock(&fleet->lock);
    fleet->keys = keys;
    pthread_mutex_unlock(&fleet->lock);
}

static void delete_old_keys(struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_ticket_keys *keys) {
    char id[24];
    size_t i;

    for (i = 0; i + 1 < keys->count; i++) {
        snprintf(id, sizeof(id), "%llu", (unsigned long long)keys->keys[i].id);
        gb_fleet_delete(fleet, txn, "keys", id, NULL);
    }
}

char *gb_keys_rotation(struct gb_fleet *fleet) {
    int64_t now_s = gb_etcd_now_s(&fleet->etcd);
    uint64_t slot = (uint64_t)now_s / GB_TICKET_SLOT_S;
    const struct gb_ticket_keys *keys = &fleet->keys; /* only this thread changes them */
    struct gb_txn txn = {0};
    unsigned char bytes[32];
    char id[24];
    char *value;

    if (keys->count > 0 && keys->keys[keys->count - 1].id >= slot)
        return NULL;
    value = gb_random(bytes, sizeof(bytes), NULL) == 0 ? gb_fleet_key_write(bytes, now_s) : NULL;
    if (!value)
        return NULL;
    snprintf(id, sizeof(id), "%llu", (unsigned long long)slot);
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_compare(fleet, &txn, "keys", id, NULL, GB_TXN_CREATED, 0);
    gb_fleet_put(fleet, &txn, "keys", id, NULL, value, 0);
    delete_old_keys(fleet, &txn, keys);
    free(value);
    return gb_txn_finish(&txn);
}

/* --- tickets of this node ----------------------------------------------------------------------------------------- */

int gb_fleet_ticket_make(struct gb_fleet *fleet, const char *method, const char *path, const char *query,
                         const struct gb_name *node, const char *who, char ret[GB_FLEET_TICKET_SIZE],
                         struct gb_error *err) {
    struct gb_ticket_scope scope = {.method = method, .path = path, .query = query, .node = node->s};
    struct gb_ticket_keys keys;

    pthread_mutex_lock(&fleet->lock);
    keys = fleet->keys;
    pthread_mutex_unlock(&fleet->lock);
    return gb_ticket_make(&keys, gb_etcd_now_s(&fleet->etcd), &scope, who, ret, err);
}

char *gb_fleet_ticket_query(struct gb_fleet *fleet, const char *method, const char *path, const struct gb_name *node,
                            const char *who) {
    char ticket[GB_FLEET_TICKET_SIZE];
    char *query;

    if (gb_fleet_ticket_make(fleet, method, path, "", node, who, ticket, NULL) < 0 ||
        asprintf(&query, "ticket=%s", ticket) < 0)
        return NULL;
    return query;
}

int gb_fleet_ticket_check(struct gb_fleet *fleet, const char *ticket, const char *method, const char *path,
                          const char *query, char *ret_who, size_t who_size, struct gb_error *err) {
    struct gb_ticket_scope scope = {.method = method, .path = path, .query = query, .node = fleet->own.name.s};
    struct gb_ticket_keys keys;

    pthread_mutex_lock(&fleet->lock);
    keys = fleet->keys;
    pthread_mutex_unlock(&fleet->lock);
    return gb_ticket_check(&keys, gb_etcd_now_s(&fleet->etcd), &scope, ticket, ret_who, who_size, err);
}
