/* The bounds of a server's clients: what is configured, which clients there are, and how often a bound was met. */
#ifndef GB_HTTP_LIMITS_LIMITS_H
#define GB_HTTP_LIMITS_LIMITS_H

#include "http/limits/clients.h"

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
