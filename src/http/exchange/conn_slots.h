/* How many connections there may be: in all, over TCP, and from one address.
 *
 * A share of all is kept for UNIX sockets, so that no number of TCP connections shuts out the clients of this machine.
 * A connection over TCP carries the record of its address from accept to its end, through libmicrohttpd, transfer loops
 * and the feed. Its end gives the place back. */
#ifndef GB_HTTP_EXCHANGE_CONN_SLOTS_H
#define GB_HTTP_EXCHANGE_CONN_SLOTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

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

#endif
