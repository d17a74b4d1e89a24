/* The bounds of a server's clients: what is configured, which clients there are, and how often a bound was met. */
#ifndef GB_HTTP_LIMITS_LIMITS_H
#define GB_HTTP_LIMITS_LIMITS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "http/http.h"

/* A token bucket in one number: the time at which it will be full again. Lock-free.
 *
 * A bucket is empty when that time lies `burst` of the rate in the future. What is charged without asking takes it
 * further: a debt, which is paid with time. */

struct gb_bucket {
    atomic_uint_fast64_t full_ns; /* on gb_clock_ns() */
};

/* What a bucket holds, and how fast it fills. per_s: not 0. */
struct gb_bucket_rate {
    uint64_t per_s;
    uint64_t burst;
};

/* How long n take to come; a few decades at most. */
uint64_t gb_bucket_ns(struct gb_bucket_rate rate, uint64_t n);
/* Takes n, if they are there; true. */
bool gb_bucket_take(struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns);
/* Takes n, whether they are there or not. */
void gb_bucket_charge(struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns);
/* What is there. */
uint64_t gb_bucket_left(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t now_ns);
/* The time until n are there (of at most the burst). */
uint64_t gb_bucket_wait_ns(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t n, uint64_t now_ns);
/* The debt: the time until the bucket is no longer below empty. */
uint64_t gb_bucket_debt_ns(const struct gb_bucket *bucket, struct gb_bucket_rate rate, uint64_t now_ns);

/* The clients that have a bound, or have failed to authenticate: a table of fixed size.
 *
 * A client is a token, a user of this machine (over the UNIX socket), or an address; of IPv6 a network of 64 bits, as
 * http/server/state.c counts them. A newcomer takes the place of the client that was seen longest ago and has nothing
 * open. Without one it shares a record with all others that find no place. So a flood of addresses takes neither
 * memory nor time. */

enum gb_client_kind { GB_CLIENT_ADDRESS, GB_CLIENT_USER, GB_CLIENT_TOKEN };

struct gb_client_key {
    uint64_t high;
    uint64_t low;
    enum gb_client_kind kind;
};

/* What a client may have open at a time. */
enum gb_open { GB_OPEN_UPLOADS, GB_OPEN_WAITS, GB_OPEN_LISTENERS, GB_OPENS };

/* A number that other threads may change. */
struct gb_client_bound {
    atomic_uint_fast64_t requests_s;
    atomic_uint_fast64_t requests_burst;
    atomic_uint_fast64_t bytes_s;
    atomic_uint_fast64_t bytes_burst;
    atomic_uint_fast64_t open[GB_OPENS];
};

struct gb_clients_shard;

struct gb_client {
    struct gb_client_key key;       /* this and the next five: the shard's lock */
    struct gb_client *next;         /* of the same bucket */
    struct gb_client *older;        /* seen before */
    struct gb_client *newer;        /* seen since */
    unsigned failures;              /* to authenticate */
    uint64_t failed_ns;             /* the last of them */
    uint64_t barred_ns;             /* until then, a further one is not checked */
    struct gb_clients_shard *shard; /* NULL: never used */
    atomic_uint refs;               /* raised under the shard's lock, or by the owner of another */
    struct gb_client_bound bound;
    struct gb_bucket requests;
    struct gb_bucket bytes;
    struct gb_bucket handshakes;
    atomic_uint_fast64_t open[GB_OPENS];
    atomic_uint_fast64_t replies; /* bytes of replies that it has not read */
    atomic_uint pausing;          /* connections that wait for the bucket of bytes */
};

#define GB_CLIENTS_SHARDS 16u

struct gb_clients_shard {
    pthread_mutex_t lock; /* a leaf, held while a record is found */
    struct gb_client **bucket;
    struct gb_client *items;
    struct gb_client *oldest;
    struct gb_client *newest;
    struct gb_client shared; /* of those that find no place */
    size_t used;
    struct gb_clients *clients;
};

struct gb_clients {
    atomic_uint refs; /* the server's, and one of each open upload: those may end after the server */
    struct gb_clients_shard shard[GB_CLIENTS_SHARDS];
    size_t each;    /* clients of a shard */
    size_t buckets; /* of a shard; a power of two */
    uint64_t seed;  /* clients choose their addresses, and must not know the buckets */
};

/* Room for about max clients, of which memory is used when they come. Returns NULL with *err. */
struct gb_clients *gb_clients_new(size_t max, struct gb_error *err);
struct gb_clients *gb_clients_of(const struct gb_client *client);
struct gb_clients *gb_clients_ref(struct gb_clients *clients);
void gb_clients_unref(struct gb_clients *clients); /* NULL is accepted */

/* The record of a client, with a reference. Never NULL. */
struct gb_client *gb_client_get(struct gb_clients *clients, struct gb_client_key key);
/* The same, and what it may do from now on. */
struct gb_client *gb_client_get_bound(struct gb_clients *clients, struct gb_client_key key,
                                      const struct gb_http_bound *bound);
struct gb_client *gb_client_ref(struct gb_client *client); /* the caller has one */
void gb_client_unref(struct gb_client *client);            /* NULL is accepted */

/* Of an address; all that are unknown are one client. *ret_loopback: it stands for this machine. */
struct gb_client_key gb_client_key_of(const struct gb_http_address *address, bool *ret_loopback);

/* What the client may have open. False: it has as many. */
bool gb_client_open(struct gb_client *client, enum gb_open what);
void gb_client_close(struct gb_client *client, enum gb_open what);

/* The rates; per_s is 0 if there is no bound. */
struct gb_bucket_rate gb_client_requests(const struct gb_client *client);
struct gb_bucket_rate gb_client_bytes(const struct gb_client *client);

/* A failed authentication: returns for how long the next is not checked; 0: it is. More than `permitted`
 * take a time that doubles, up to GB_CLIENT_BARRED_MAX_S. What comes while the client is barred does not count, and a
 * success between them changes nothing. */
#define GB_CLIENT_BARRED_MAX_S 60
#define GB_CLIENT_FORGIVEN_S 600 /* after this time without one, earlier ones are forgotten */
uint64_t gb_client_failed(struct gb_client *client, unsigned permitted, uint64_t now_ns);

/* Records that are in use. */
uint64_t gb_clients_count(struct gb_clients *clients);

struct gb_limits {
    struct gb_http_bounds config; /* bursts are set */
    struct gb_clients *clients;
    bool bounds_address;
    bool bounds_token;
    atomic_uint_fast64_t met[GB_HTTP_LIMITS];
    atomic_uint_fast64_t pausing; /* connections that wait for their client's bytes, now */
};

/* Returns 0 or -1 with *err; gb_limits_done is due either way. */
int gb_limits_init(struct gb_limits *limits, const struct gb_http_bounds *config, struct gb_error *err);
void gb_limits_done(struct gb_limits *limits); /* a zeroed one is accepted */

/* The bound, with a burst for each rate. Unless it is given, that of requests is two seconds' worth, and that of bytes
 * one second's; it is never less than a quarter of a second's, because paused connections are visited ten times a
 * second. */
struct gb_http_bound gb_limits_whole(const struct gb_http_bound *bound);
bool gb_limits_any(const struct gb_http_bound *bound);

/* A bound was met. */
void gb_limits_note(struct gb_limits *limits, enum gb_http_limit limit);

/* [any thread] A connection over TLS begins from there. False, and it is noted: its address has as many a second as it
 * may. */
bool gb_limits_handshake(struct gb_limits *limits, const struct gb_http_address *from);

/* Why a request was refused. */
struct gb_refusal_of {
    enum gb_http_limit limit;
    bool of_token;
    uint64_t permitted; /* a second, or at a time; of failures: before it has to wait */
    uint64_t burst;     /* of rates */
    uint64_t wait_ns;   /* until another is permitted; 0: not known */
};

/* Sets TOO_MANY_REQUESTS. Returns -1. */
int gb_limits_refuse(const struct gb_refusal_of *why, struct gb_error *err);
/* Adds what a program can read of it to the response: Retry-After, RateLimit-Policy, RateLimit, and the member "limit"
 * of the problem. */
void gb_limits_explain(const struct gb_refusal_of *why, struct gb_http_response *response);
/* Adds what is left of the client's requests to a reply. */
void gb_limits_advertise(const struct gb_client *client, struct gb_http_response *response);

#endif
