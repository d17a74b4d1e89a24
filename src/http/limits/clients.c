#include "http/limits/clients.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/thread.h"

#define LOOPBACK_NET 127
#define LOOKS 8 /* records that are checked for one to replace */

/* --- keys --------------------------------------------------------------------------------------------------------- */

static uint64_t big_endian(const uint8_t *bytes, int n) {
    uint64_t v = 0;
    int i;

    for (i = 0; i < n; i++)
        v = v << 8 | bytes[i];
    return v;
}

struct gb_client_key gb_client_key_of(const struct gb_http_address *address, bool *ret_loopback) {
    struct gb_http_address plain = gb_http_address_plain(address);
    struct gb_client_key key = {.kind = GB_CLIENT_ADDRESS};
    const uint8_t *b = plain.bytes;

    *ret_loopback = plain.family == 4 && b[0] == LOOPBACK_NET;
    if (plain.family == 4) {
        key.low = big_endian(b, 4);
    } else if (plain.family == 6) {
        key.high = big_endian(b, 8);
        /* All machines of a link have the same network. */
        key.low = b[0] == 0xfe && (b[1] & 0xc0) == 0x80 ? big_endian(b + 8, 8) : UINT64_MAX;
        *ret_loopback = key.high == 0 && big_endian(b + 8, 8) == 1;
    }
    return key;
}

static bool same_key(struct gb_client_key a, struct gb_client_key b) {
    return a.high == b.high && a.low == b.low && a.kind == b.kind;
}

static uint64_t hash_of(const struct gb_clients *clients, struct gb_client_key key) {
    uint64_t hash = (key.high ^ clients->seed) * 0x9e3779b97f4a7c15u;

    hash = (hash ^ hash >> 32 ^ key.low) * 0x9e3779b97f4a7c15u;
    return (hash ^ hash >> 29 ^ (uint64_t)key.kind << 7) * 0x9e3779b97f4a7c15u;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static int init(struct gb_clients *clients, size_t max, struct gb_error *err) {
    unsigned i;

    clients->each = max > GB_CLIENTS_SHARDS ? max / GB_CLIENTS_SHARDS : 1;
    for (clients->buckets = 1; clients->buckets < clients->each;)
        clients->buckets *= 2;
    for (i = 0; i < GB_CLIENTS_SHARDS; i++) {
        struct gb_clients_shard *shard = &clients->shard[i];

        gb_mutex_init(&shard->lock);
        shard->shared.shard = shard;
        shard->clients = clients;
        shard->bucket = calloc(clients->buckets, sizeof(struct gb_client *));
        shard->items = calloc(clients->each, sizeof(*shard->items));
        if (!shard->bucket || !shard->items)
            return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the table of clients");
    }
    return gb_random(&clients->seed, sizeof(clients->seed), err);
}

struct gb_clients *gb_clients_new(size_t max, struct gb_error *err) {
    struct gb_clients *clients = calloc(1, sizeof(*clients));

    if (!clients) {
        gb_error_set(err, GB_ERR_INTERNAL, "no memory for the table of clients");
        return NULL;
    }
    atomic_init(&clients->refs, 1);
    if (init(clients, max, err) == 0)
        return clients;
    gb_clients_unref(clients);
    return NULL;
}

struct gb_clients *gb_clients_of(const struct gb_client *client) {
    return client->shard->clients;
}

struct gb_clients *gb_clients_ref(struct gb_clients *clients) {
    atomic_fetch_add(&clients->refs, 1);
    return clients;
}

void gb_clients_unref(struct gb_clients *clients) {
    unsigned i;

    if (!clients || atomic_fetch_sub(&clients->refs, 1) != 1)
        return;
    for (i = 0; i < GB_CLIENTS_SHARDS; i++) {
        struct gb_clients_shard *shard = &clients->shard[i];

        if (shard->shared.shard)
            pthread_mutex_destroy(&shard->lock);
        free(shard->bucket);
        free(shard->items);
    }
    free(clients);
}

static void list_take(struct gb_clients_shard *shard, struct gb_client *c) {
    if (c->older)
        c->older->newer = c->newer;
    else
        shard->oldest = c->newer;
    if (c->newer)
        c->newer->older = c->older;
    else
        shard->newest = c->older;
}

static void list_put(struct gb_clients_shard *shard, struct gb_client *c) {
    c->older = shard->newest;
    c->newer = NULL;
    if (c->older)
        c->older->newer = c;
    else
        shard->oldest = c;
    shard->newest = c;
}

static void bucket_take(struct gb_client **bucket, const struct gb_client *c) {
    for (; *bucket != c; bucket = &(*bucket)->next)
        ;
    *bucket = c->next;
}

/* A record for a newcomer, which is in no list; NULL: all that were checked have something open. */
static struct gb_client *place_locked(struct gb_clients *clients, struct gb_clients_shard *shard) {
    struct gb_client *c = shard->oldest;
    unsigned looks;

    if (shard->used < clients->each)
        return &shard->items[shard->used++];
    for (looks = 0; looks < LOOKS && c; looks++) {
        struct gb_client *newer = c->newer;

        list_take(shard, c);
        if (atomic_load(&c->refs) == 0) {
            bucket_take(&shard->bucket[hash_of(clients, c->key) & (clients->buckets - 1)], c);
            return c;
        }
        list_put(shard, c); /* it is in use: the next search begins with others */
        c = newer;
    }
    return NULL;
}

static void begin_anew(struct gb_client *c, struct gb_clients_shard *shard, struct gb_client_key key) {
    memset(c, 0, sizeof(*c));
    c->shard = shard;
    c->key = key;
}

struct gb_client *gb_client_get(struct gb_clients *clients, struct gb_client_key key) {
    uint64_t hash = hash_of(clients, key);
    struct gb_clients_shard *shard = &clients->shard[hash >> 60];
    struct gb_client **bucket = &shard->bucket[hash & (clients->buckets - 1)];
    struct gb_client *c;

    pthread_mutex_lock(&shard->lock);
    for (c = *bucket; c && !same_key(c->key, key); c = c->next)
        ;
    if (c) {
        list_take(shard, c);
    } else if ((c = place_locked(clients, shard))) {
        begin_anew(c, shard, key);
        c->next = *bucket;
        *bucket = c;
    }
    if (c)
        list_put(shard, c);
    else
        c = &shard->shared;
    atomic_fetch_add(&c->refs, 1);
    pthread_mutex_unlock(&shard->lock);
    return c;
}

static void set(atomic_uint_fast64_t *at, uint64_t v) {
    if (atomic_load_explicit(at, memory_order_relaxed) != v)
        atomic_store_explicit(at, v, memory_order_relaxed);
}

struct gb_client *gb_client_get_bound(struct gb_clients *clients, struct gb_client_key key,
                                      const struct gb_http_bound *bound) {
    struct gb_client *c = gb_client_get(clients, key);

    set(&c->bound.requests_s, bound->requests_s);
    set(&c->bound.requests_burst, bound->requests_burst);
    set(&c->bound.bytes_s, bound->bytes_s);
    set(&c->bound.bytes_burst, bound->bytes_burst);
    set(&c->bound.open[GB_OPEN_UPLOADS], bound->uploads);
    set(&c->bound.open[GB_OPEN_WAITS], bound->waits);
    set(&c->bound.open[GB_OPEN_LISTENERS], bound->listeners);
    return c;
}

struct gb_client *gb_client_ref(struct gb_client *client) {
    atomic_fetch_add(&client->refs, 1);
    return client;
}

void gb_client_unref(struct gb_client *client) {
    if (client)
        atomic_fetch_sub(&client->refs, 1);
}

uint64_t gb_clients_count(struct gb_clients *clients) {
    uint64_t sum = 0;
    unsigned i;

    for (i = 0; i < GB_CLIENTS_SHARDS; i++) {
        pthread_mutex_lock(&clients->shard[i].lock);
        sum += clients->shard[i].used;
        pthread_mutex_unlock(&clients->shard[i].lock);
    }
    return sum;
}

/* --- one client --------------------------------------------------------------------------------------------------- */

bool gb_client_open(struct gb_client *client, enum gb_open what) {
    uint64_t max = atomic_load_explicit(&client->bound.open[what], memory_order_relaxed);
    uint64_t had = atomic_fetch_add(&client->open[what], 1);

    if (max == 0 || had < max)
        return true;
    atomic_fetch_sub(&client->open[what], 1);
    return false;
}

void gb_client_close(struct gb_client *client, enum gb_open what) {
    atomic_fetch_sub(&client->open[what], 1);
}

struct gb_bucket_rate gb_client_requests(const struct gb_client *client) {
    return (struct gb_bucket_rate){atomic_load_explicit(&client->bound.requests_s, memory_order_relaxed),
                                   atomic_load_explicit(&client->bound.requests_burst, memory_order_relaxed)};
}

struct gb_bucket_rate gb_client_bytes(const struct gb_client *client) {
    return (struct gb_bucket_rate){atomic_load_explicit(&client->bound.bytes_s, memory_order_relaxed),
                                   atomic_load_explicit(&client->bound.bytes_burst, memory_order_relaxed)};
}

static uint64_t failed_locked(struct gb_client *c, unsigned permitted, uint64_t now_ns) {
    uint64_t seconds = 1;
    unsigned i;

    if (now_ns < c->barred_ns)
        return c->barred_ns - now_ns;
    if (now_ns - c->failed_ns > GB_CLIENT_FORGIVEN_S * GB_NS_PER_S)
        c->failures = 0;
    c->failed_ns = now_ns;
    if (++c->failures <= permitted)
        return 0;
    for (i = permitted + 1; i < c->failures && seconds < GB_CLIENT_BARRED_MAX_S; i++)
        seconds *= 2;
    if (seconds > GB_CLIENT_BARRED_MAX_S)
        seconds = GB_CLIENT_BARRED_MAX_S;
    c->barred_ns = now_ns + seconds * GB_NS_PER_S;
    return seconds * GB_NS_PER_S;
}

uint64_t gb_client_failed(struct gb_client *client, unsigned permitted, uint64_t now_ns) {
    uint64_t ns;

    pthread_mutex_lock(&client->shard->lock);
    ns = failed_locked(client, permitted, now_ns);
    pthread_mutex_unlock(&client->shard->lock);
    return ns;
}
