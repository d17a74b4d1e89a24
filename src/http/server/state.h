/* The server as its loops share it: places of connections, latency by route, and the peers of UNIX sockets.
 *
 * Places: a share of all is kept for UNIX sockets, so that no number of TCP connections shuts out the clients of this
 * machine. A connection over TCP carries the record of its address from accept to its end, through libmicrohttpd,
 * transfer loops and the feed. Its end gives the place back. */
#ifndef GB_HTTP_SERVER_STATE_H
#define GB_HTTP_SERVER_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/histogram.h"
#include "http/http.h"
#include "http/limits/limits.h"
#include "http/message/request.h"
#include "http/message/router.h"
#include "http/server/mailbox.h"

struct gb_exchange;
struct sockaddr;
struct gb_source; /* an address, and how many connections it has */

#define GB_CONN_SLOTS_BUCKETS 1024u

struct gb_conn_slots {
    uint64_t max;        /* connections */
    uint64_t remote_max; /* of them over TCP */
    unsigned source_max; /* of one address; 0: as many as there are places */
    atomic_uint_fast64_t taken;
    atomic_uint_fast64_t remote; /* of them over TCP */
    uint64_t seed;               /* clients choose their addresses, and must not know the buckets */
    bool bound_loopback;         /* source_max is loopback's, too; to be set after init, before connections come */
    bool ready;
    pthread_mutex_t lock; /* a leaf */
    struct gb_source *bucket[GB_CONN_SLOTS_BUCKETS];
};

enum gb_conn_slot {
    GB_CONN_SLOT_TAKEN,
    GB_CONN_SLOT_FULL,   /* all are in use, or all of TCP */
    GB_CONN_SLOT_SOURCE, /* the address has as many connections as it may */
    GB_CONN_SLOT_MEMORY  /* memory is exhausted */
};

/* Returns how many of `max` TCP may not have: a sixteenth, at least 8, never more than half. */
uint64_t gb_conn_slots_kept(uint64_t max);

/* local: there is a UNIX socket, for which places are kept. Returns 0 or -1 with *err. */
int gb_conn_slots_init(struct gb_conn_slots *places, uint64_t max, unsigned source_max, bool local,
                       struct gb_error *err);
void gb_conn_slots_done(
    struct gb_conn_slots *places); /* after all connections have ended; a zeroed value is accepted */

/* [any thread] Takes a place for a connection from that address; NULL: of a UNIX socket. beyond: also if all are taken,
 * because another connection is about to end. *ret is the record of the address, NULL for a UNIX socket. */
enum gb_conn_slot gb_conn_slot_take(struct gb_conn_slots *places, const struct sockaddr *from, bool beyond,
                                    struct gb_source **ret);

/* [any thread] The connection has ended: gives its place and its count for the address back. */
void gb_conn_slot_end(struct gb_conn_slots *places, struct gb_source *source);
/* [any thread] The connection continues as a listener: it counts for its address alone, until gb_source_end. */
void gb_conn_slot_leave(struct gb_conn_slots *places, const struct gb_source *source);
void gb_source_end(struct gb_source *source); /* NULL is accepted */

/* How long requests took and how they ended, by route. Each thread that ends requests counts into a table of its own; a
 * reader adds them up. */

struct gb_http_server;

enum gb_outcome {
    GB_OUTCOME_2XX,
    GB_OUTCOME_3XX,
    GB_OUTCOME_4XX,
    GB_OUTCOME_5XX,
    GB_OUTCOME_BROKEN, /* the connection ended before the answer was out */
    GB_OUTCOMES
};
/* "2xx", "broken". */
const char *gb_outcome_name(enum gb_outcome outcome);

struct gb_latency {
    struct gb_histogram time; /* the longest is not kept */
    uint64_t outcome[GB_OUTCOMES];
};

/* [any thread] Sums up the ended requests of a route (index into gb_http_server_config.routes); route_count: of those
 * that were refused before their route was known. The counts are not of one moment. */
void gb_http_latency(const struct gb_http_server *server, size_t route, struct gb_latency *ret);

/* --- inside the http layer ---------------------------------------------------------------------------------------- */

struct gb_latency_table;

/* For routes 0 to route_count. Returns NULL if memory is exhausted. */
struct gb_latency_table *gb_latency_table_new(size_t route_count);
void gb_latency_table_free(struct gb_latency_table *table);

/* [the thread that owns the table] Counts a request. status 0: broken. */
void gb_latency_record(struct gb_latency_table *table, size_t route, int status, uint64_t ns);

/* [any thread] Adds the table's counts to *sum. NULL is an empty table. */
void gb_latency_add(const struct gb_latency_table *table, size_t route, struct gb_latency *sum);

/* The state that all threads of a server share.
 *
 * Loops, transfer loops and the feed hang here for the folders that know them; http/server.c makes and ends them. */

struct gb_http_feed;
struct gb_loop;
struct gb_tls;
struct gb_transfer_loop;

struct gb_http_server {
    struct gb_http_server_config config;
    struct gb_request_rules rules;
    struct gb_router router;
    char **hosts;
    int *listen_fds;
    atomic_int *listen_next;            /* another socket for the place of each, or -1 */
    atomic_uint listen_turn;            /* raised when one took its place: each loop then watches it */
    bool *listen_local;                 /* which of them are UNIX sockets */
    bool *listen_tls;                   /* which of them are for TLS */
    pthread_mutex_t tls_lock;           /* a leaf, for the reference in tls */
    struct gb_tls_context *_Atomic tls; /* of new connections; NULL: there is no such listener */
    atomic_uint_fast64_t tls_handshakes;
    atomic_uint_fast64_t tls_failures;
    struct gb_loop *loops;                   /* config.loops of them */
    struct gb_transfer_loop *transfer_loops; /* config.bulk_loops of them */
    struct gb_http_feed *feed;               /* NULL: none */
    struct gb_latency_table **latency;       /* of each loop, then of each transfer loop */
    size_t latency_count;
    atomic_uint accepting; /* loops that accept */
    int peers_fd;          /* reports the ends of watched connections to the first loop */
    struct gb_fd_mailboxes fd_mailboxes;
    int dead_fd; /* each read gives the end; stands in for sockets that left */
    uint64_t id_seed;
    atomic_uint rechecks; /* raised when permissions have changed: each loop then asks for its callers again */
    atomic_bool draining;
    atomic_bool stopping;
    struct gb_conn_slots places;
    atomic_uint squeezed; /* newcomers on their way for which a quiet connection is to end */
    atomic_uint_fast64_t suspended;
    atomic_uint_fast64_t transfers;
    atomic_uint_fast64_t accepted;
    atomic_uint_fast64_t refused;
    atomic_uint_fast64_t reply_memory[2]; /* of those up to GB_LONG_REPLY, and of longer ones */
    atomic_uint_fast64_t replies_refused;
    atomic_uint_fast64_t refused_source; /* of them, by the bound of their address */
    atomic_uint_fast64_t displaced;
    struct gb_limits limits;
    atomic_uint_fast64_t proxied;
    atomic_uint_fast64_t proxy_failures;
};

/* A server without threads. Returns NULL with *err; then the listening sockets stay the caller's. */
struct gb_http_server *gb_server_state_new(const struct gb_http_server_config *config, struct gb_error *err);
/* After all threads have ended and their state is taken apart. */
void gb_server_state_free(struct gb_http_server *server);

/* Whether one of the listening sockets is a UNIX socket, for which shares of all limits are kept. */
bool gb_server_is_local(const struct gb_http_server *server);

/* Whether the caller of the request is no longer in force: *err is then the client's answer. A comparison, unless
 * permissions have changed since it was asked last. On the thread that owns the exchange. */
bool gb_server_revoked(struct gb_exchange *ex, struct gb_tls *tls, struct gb_error *err);

/* [the connection's thread] What the client of a connection has shown, verified by the authorities that are in force: a
 * reference. NULL: nothing, or the connection is plain (tls is NULL). */
const struct gb_http_certificate *gb_server_certificate(struct gb_http_server *server, struct gb_tls *tls);

/* The request has ended: ends its accounting and writes its line of the access log. On the thread that owns the
 * table. */
void gb_server_ended(struct gb_latency_table *latency, struct gb_exchange *ex);

/* The other end of a UNIX socket, inside the http layer. It travels with the connection: gb_handoff, gb_conn. */

struct gb_peer {
    struct gb_http_peer seen; /* the part that handlers see */
    atomic_int refs;          /* the connection's, its requests', and the watch's */
    struct gb_http_server *server;
    bool held;    /* the application has something for it; changed and read where the connection is */
    int watch_fd; /* from then on; a duplicate, open as long as the peer lives */
};

/* Of a connected UNIX socket. Returns NULL if memory is exhausted or the kernel does not name the process. */
struct gb_peer *gb_peer_new(struct gb_http_server *server, int fd);
struct gb_peer *gb_peer_ref(struct gb_peer *peer); /* both take NULL */
void gb_peer_unref(struct gb_peer *peer);

/* The connection ends: gives its reference back. NULL is accepted. */
void gb_peer_end(struct gb_peer *peer);

/* Whether the application still holds something for it, so that a quiet connection is not idle. NULL: no. */
bool gb_peer_busy(const struct gb_peer *peer);

/* Sends the response's descriptors with an interim response, and closes them here in any case. Returns 0, also without
 * any, or -1 with errno: the connection cannot be used any more. */
int gb_peer_send(int sock, struct gb_http_response *response);

/* Sends descriptors, which stay the caller's, with an interim response. Returns 0, or -1 with errno; then nothing was
 * sent. */
int gb_peer_hand(int sock, const int *fds, unsigned count);

void gb_peers_event(struct gb_http_server *server);

/* A request and the bounds of its client. http.h has what the application calls. */

struct gb_client;
struct gb_exchange;

/* Behind a trusted proxy, the request's address becomes the client's; one that came over a UNIX socket is then no local
 * one any more. When from, local and peer are those of the connection, and before the header is checked. */
void gb_bound_resolve(struct gb_exchange *ex);

/* The request was refused with *err before it could be authorized: it counts for its address. *err becomes
 * TOO_MANY_REQUESTS if that has no more. */
void gb_bound_refused(struct gb_exchange *ex, struct gb_error *err);

/* The request may wait for long. Returns 0, or -1 with TOO_MANY_REQUESTS. Once is enough; ends with the request. */
int gb_bound_may_wait(struct gb_exchange *ex, struct gb_error *err);

/* The client's connection becomes a listener. *ret: for gb_bound_listener_ended, NULL if it has no bound. Returns 0, or
 * -1 with TOO_MANY_REQUESTS. */
int gb_bound_listener_opens(struct gb_http_request *request, struct gb_client **ret, struct gb_error *err);
void gb_bound_listener_ended(struct gb_client *client); /* [any thread] NULL is accepted */

/* The response is the problem of ex->err: adds what is known of the bound. */
void gb_bound_explain(struct gb_exchange *ex);
/* The response is a good one: adds what is left, if the client has a bound. */
void gb_bound_advertise(struct gb_exchange *ex);

/* Gives the client back. */
void gb_bound_leave(struct gb_exchange *ex);

/* Whose share of the memory of replies it takes: NULL is a client without one. The reference is the exchange's. */
struct gb_client *gb_bound_payer(struct gb_exchange *ex);
/* The client has as much of that memory as it may. Returns -1 with TOO_MANY_REQUESTS. */
int gb_bound_refuse_reply(struct gb_exchange *ex, uint64_t permitted, struct gb_error *err);

#endif
