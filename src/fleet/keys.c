/* The keys of tickets in the directory: one for each day, made by the first node that finds none, and read by all. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "fleet/internal.h"

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
    char key[GB_FLEET_KEY_SIZE];
    char id[24];
    size_t i;

    for (i = 0; i + 1 < keys->count; i++) {
        snprintf(id, sizeof(id), "%llu", (unsigned long long)keys->keys[i].id);
        gb_fleet_key(fleet, "keys", id, NULL, key);
        gb_txn_delete(txn, key);
    }
}

char *gb_keys_rotation(struct gb_fleet *fleet) {
    int64_t now_s = gb_etcd_now_s(&fleet->etcd);
    uint64_t slot = (uint64_t)now_s / GB_TICKET_SLOT_S;
    const struct gb_ticket_keys *keys = &fleet->keys; /* this thread alone changes them */
    struct gb_txn txn = {0};
    unsigned char bytes[32];
    char key[GB_FLEET_KEY_SIZE];
    char id[24];
    char *value;

    if (keys->count > 0 && keys->keys[keys->count - 1].id >= slot)
        return NULL;
    value = gb_random(bytes, sizeof(bytes), NULL) == 0 ? gb_fleet_key_write(bytes, now_s) : NULL;
    if (!value)
        return NULL;
    snprintf(id, sizeof(id), "%llu", (unsigned long long)slot);
    gb_fleet_key(fleet, "keys", id, NULL, key);
    gb_fleet_compare_meta(fleet, &txn);
    gb_txn_compare(&txn, GB_TXN_CREATED, key, 0);
    gb_txn_put(&txn, key, value, 0);
    delete_old_keys(fleet, &txn, keys);
    free(value);
    return gb_txn_finish(&txn);
}
