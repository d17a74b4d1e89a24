/* The state that all threads of a server share.
 *
 * Loops, transfer loops and the feed hang here for the folders that know them; http/server.c makes and ends them. */
#ifndef GB_HTTP_EXCHANGE_SERVER_STATE_H
#define GB_HTTP_EXCHANGE_SERVER_STATE_H

#include <stdatomic.h>

#include "http/exchange/conn_slots.h"
#include "http/exchange/exchange.h"
#include "http/exchange/fd_mailbox.h"
#include "http/exchange/latency.h"
#include "http/http.h"
#include "http/limits/limits.h"
#include "http/message/request_checks.h"
#include "http/message/router.h"

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

/* The request has ended: ends its accounting and tells the access log. On the thread that owns the table. */
void gb_server_ended(struct gb_latency_table *latency, struct gb_exchange *ex);

#endif
