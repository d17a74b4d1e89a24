/* What one client may take: requests, bytes, uploads, waits, listeners and failures. A client is a token, a user of a
 * UNIX socket or an address; its record stands in a table of fixed size, whose locks are leaves. The loops call this
 * for each request that has a bound. */
#include "http/limits/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/thread.h"

/* --- limits ------------------------------------------------------------------------------------------------------- */

#define CLIENTS 65536

/* Many clients behind one address may start together. */
#define HANDSHAKES_BURST_S 10

static const struct {
    const char *name;
    const char *unit;    /* of a problem's member */
    const char *quota;   /* the unit of the RateLimit fields; NULL: no field for it */
    const char *address; /* options */
    const char *token;
    const char *text; /* what the bound counts */
} about[GB_HTTP_LIMITS] = {
    [GB_HTTP_LIMIT_REQUESTS] = {"requests", "requests/s", "requests", "--rate-requests", "--token-rate-requests",
                                "requests a second"},
    [GB_HTTP_LIMIT_BYTES] = {"bytes", "bytes/s", "content-bytes", "--rate-bytes", "--token-rate-bytes",
                             "bytes a second"},
    [GB_HTTP_LIMIT_CONNECTIONS] = {"connections", "connections", NULL, "--max-connections-per-address", "",
                                   "connections at a time"},
    [GB_HTTP_LIMIT_UPLOADS] = {"uploads", "uploads", NULL, "--max-uploads-per-client", "--max-uploads-per-token",
                               "open uploads in several requests"},
    [GB_HTTP_LIMIT_WAITS] = {"waits", "requests", "concurrent-requests", "--max-waits-per-client",
                             "--max-waits-per-token", "waiting requests at a time"},
    [GB_HTTP_LIMIT_LISTENERS] = {"listeners", "connections", "concurrent-requests", "--max-listeners-per-client",
                                 "--max-listeners-per-token", "listeners of the feed at a time"},
    [GB_HTTP_LIMIT_REPLIES] = {"replies", "bytes", NULL, "--max-reply-memory", "--max-reply-memory",
                               "bytes of replies that wait to be read"},
    [GB_HTTP_LIMIT_FAILURES] = {"failures", "requests", NULL, "--auth-failures", "", "failed authentications"},
    [GB_HTTP_LIMIT_HANDSHAKES] = {"handshakes", "connections/s", NULL, "--rate-handshakes", "",
                                  "new connections over TLS a second"},
};

const char *gb_http_limit_name(enum gb_http_limit limit) {
    return about[limit].name;
}

bool gb_limits_any(const struct gb_http_bound *bound) {
    return bound->requests_s || bound->bytes_s || bound->uploads || bound->waits || bound->listeners;
}

struct gb_http_bound gb_limits_whole(const struct gb_http_bound *bound) {
    struct gb_http_bound whole = *bound;

    if (whole.requests_burst == 0)
        whole.requests_burst = whole.requests_s * 2;
    if (whole.bytes_burst == 0)
        whole.bytes_burst = whole.bytes_s;
    if (whole.bytes_burst < whole.bytes_s / 4 + 1)
        whole.bytes_burst = whole.bytes_s / 4 + 1;
    return whole;
}

int gb_limits_init(struct gb_limits *limits, const struct gb_http_bounds *config, struct gb_error *err) {
    limits->config = *config;
    limits->config.address = gb_limits_whole(&config->address);
    limits->config.token = gb_limits_whole(&config->token);
    limits->bounds_address = gb_limits_any(&config->address);
    limits->bounds_token = gb_limits_any(&config->token);
    limits->clients = gb_clients_new(config->clients_max ? config->clients_max : CLIENTS, err);
    return limits->clients ? 0 : -1;
}

void gb_limits_done(struct gb_limits *limits) {
    gb_clients_unref(limits->clients);
}

void gb_limits_note(struct gb_limits *limits, enum gb_http_limit limit) {
    atomic_fetch_add_explicit(&limits->met[limit], 1, memory_order_relaxed);
}

bool gb_limits_handshake(struct gb_limits *limits, const struct gb_http_address *from) {
    const struct gb_http_bounds *config = &limits->config;
    struct gb_bucket_rate rate = {config->handshakes_s, config->handshakes_s * HANDSHAKES_BURST_S};
    struct gb_client *client;
    struct gb_client_key key;
    bool loopback;
    bool may;

    if (rate.per_s == 0 || from->family == 0 || gb_http_networks_have(config->trusted, config->trusted_count, from))
        return true;
    key = gb_client_key_of(from, &loopback);
    if (loopback && !config->local)
        return true;
    client = gb_client_get(limits->clients, key);
    may = gb_bucket_take(&client->handshakes, rate, 1, gb_clock_ns());
    gb_client_unref(client);
    if (!may)
        gb_limits_note(limits, GB_HTTP_LIMIT_HANDSHAKES);
    return may;
}

/* --- what the client learns --------------------------------------------------------------------------------------- */

static bool is_rate(enum gb_http_limit limit) {
    return limit == GB_HTTP_LIMIT_REQUESTS || limit == GB_HTTP_LIMIT_BYTES;
}

static uint64_t seconds_of(uint64_t ns) {
    return ns > GB_NS_PER_S ? (ns + GB_NS_PER_S - 1) / GB_NS_PER_S : 1;
}

int gb_limits_refuse(const struct gb_refusal_of *why, struct gb_error *err) {
    const char *whose = why->of_token ? "this token" : "this address";
    const char *option = why->of_token ? about[why->limit].token : about[why->limit].address;

    if (why->limit == GB_HTTP_LIMIT_FAILURES)
        return gb_error_set(err, GB_ERR_TOO_MANY_REQUESTS,
                            "more than %" PRIu64 " requests of this address had a token that is not known "
                            "(%s): the next is looked at in %" PRIu64 " s; one with a valid token is answered",
                            why->permitted, option, seconds_of(why->wait_ns));
    if (is_rate(why->limit))
        return gb_error_set(err, GB_ERR_TOO_MANY_REQUESTS,
                            "%s of %s are bounded by %" PRIu64 ", %" PRIu64 " at once (%s): ask again in %" PRIu64 " s",
                            about[why->limit].text, whose, why->permitted, why->burst, option,
                            seconds_of(why->wait_ns));
    return gb_error_set(err, GB_ERR_TOO_MANY_REQUESTS,
                        "%s of %s are bounded by %" PRIu64 ", which is reached (%s): %s one of them first",
                        about[why->limit].text, whose, why->permitted, option,
                        why->limit == GB_HTTP_LIMIT_REPLIES ? "read" : "end");
}

static void add_policy(const struct gb_refusal_of *why, uint64_t left, uint64_t wait_ns,
                       struct gb_http_response *response) {
    const char *name = about[why->limit].name;
    const char *quota = about[why->limit].quota;

    if (!quota)
        return;
    if (!is_rate(why->limit)) {
        gb_http_response_header(response, NULL, "RateLimit-Policy", "\"%s\";q=%" PRIu64 ";qu=\"%s\"", name,
                                why->permitted, quota);
        gb_http_response_header(response, NULL, "RateLimit", "\"%s\";r=%" PRIu64, name, left);
        return;
    }
    gb_http_response_header(response, NULL, "RateLimit-Policy", "\"%s\";q=%" PRIu64 ";w=%" PRIu64 ";qu=\"%s\"", name,
                            why->burst, (why->burst + why->permitted - 1) / why->permitted, quota);
    gb_http_response_header(response, NULL, "RateLimit", "\"%s\";r=%" PRIu64 ";t=%" PRIu64, name, left,
                            wait_ns > 0 ? seconds_of(wait_ns) : 0);
}

void gb_limits_explain(const struct gb_refusal_of *why, struct gb_http_response *response) {
    uint64_t seconds = seconds_of(why->wait_ns);
    char text[256];
    char *copy;
    int n;

    gb_http_response_header(response, NULL, "Retry-After", "%" PRIu64, seconds);
    add_policy(why, 0, why->wait_ns, response);
    n = snprintf(text, sizeof(text),
                 ",\"limit\":{\"name\":\"%s\",\"of\":\"%s\",\"permitted\":%" PRIu64 ",\"unit\":\"%s\"",
                 about[why->limit].name, why->of_token ? "token" : "address", why->permitted, about[why->limit].unit);
    if (is_rate(why->limit))
        n += snprintf(text + n, sizeof(text) - (size_t)n, ",\"burst\":%" PRIu64, why->burst);
    n += snprintf(text + n, sizeof(text) - (size_t)n, ",\"retry_after_s\":%" PRIu64 "}", seconds);
    copy = strdup(text);
    gb_http_response_problem(response, NULL, copy, copy ? (size_t)n : 0);
}

void gb_limits_advertise(const struct gb_client *client, struct gb_http_response *response) {
    struct gb_bucket_rate rate = gb_client_requests(client);
    struct gb_refusal_of what = {.limit = GB_HTTP_LIMIT_REQUESTS, .permitted = rate.per_s, .burst = rate.burst};
    uint64_t now_ns = gb_clock_ns();

    if (rate.per_s > 0)
        add_policy(&what, gb_bucket_left(&client->requests, rate, now_ns),
                   gb_bucket_wait_ns(&client->requests, rate, rate.burst, now_ns), response);
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

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

/* --- bucket ------------------------------------------------------------------------------------------------------- */

/* Longer than any process lasts, and the sum of a few of it is still a number. */
#define FOREVER_NS (1ull << 60)

uint64_t gb_bucket_ns(struct gb_bucket_rate rate, uint64_t n) {
    double ns = (double)n * GB_NS_PER_S / (double)rate.per_s;

    return ns < (double)FOREVER_NS ? (uint64_t)ns : FOREVER_NS;
}

static uint64_t full_ns(const struct gb_bucket *bucket, uint64_t now_ns) {
    uint64_t full = atomic_load_explicit(&bucket->full_ns, memory_order_relaxed);

    return full > now_ns ? full : now_ns;
}

bool gb_bucket_take(struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns) {
    uint64_t room_ns = gb_bucket_ns(rate, rate.burst);
    uint64_t ns = gb_bucket_ns(rate, n);
    uint_fast64_t was = atomic_load_explicit(&bucket->full_ns, memory_order_relaxed);
    uint64_t full;

    do {
        full = (was > now_ns ? was : now_ns) + ns;
        if (full - now_ns > room_ns)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&bucket->full_ns, &was, full, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

void gb_bucket_charge(struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns) {
    uint_fast64_t was = atomic_load_explicit(&bucket->full_ns, memory_order_relaxed);
    uint64_t ns = gb_bucket_ns(rate, n);
    uint64_t full;

    do {
        full = (was > now_ns ? was : now_ns) + ns;
        if (full - now_ns > FOREVER_NS)
            full = now_ns + FOREVER_NS;
    } while (!atomic_compare_exchange_weak_explicit(&bucket->full_ns, &was, full, memory_order_relaxed,
                                                    memory_order_relaxed));
}

uint64_t gb_bucket_left(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t now_ns) {
    uint64_t used_ns = full_ns(bucket, now_ns) - now_ns;
    uint64_t room_ns = gb_bucket_ns(rate, rate.burst);
    double left = used_ns < room_ns ? (double)(room_ns - used_ns) * (double)rate.per_s / GB_NS_PER_S : 0;

    return left < (double)rate.burst ? (uint64_t)left : rate.burst;
}

uint64_t gb_bucket_wait_ns(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns) {
    uint64_t used_ns = full_ns(bucket, now_ns) - now_ns;
    uint64_t room_ns = gb_bucket_ns(rate, rate.burst);
    uint64_t want_ns = gb_bucket_ns(rate, n);

    if (want_ns > room_ns)
        want_ns = room_ns;
    return used_ns + want_ns > room_ns ? used_ns + want_ns - room_ns : 0;
}

uint64_t gb_bucket_debt_ns(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t now_ns) {
    return gb_bucket_wait_ns(bucket, rate, 0, now_ns);
}
