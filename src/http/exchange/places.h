/* How many connections there may be: in all, over TCP, and from one address.
 *
 * A share of all is kept for UNIX sockets, so that no number of TCP connections shuts out the clients of this machine. A
 * connection over TCP carries the record of its address from the accept to its end, through libmicrohttpd, bulk loops and the
 * feed; the end gives the place back. */
#ifndef GB_HTTP_PLACES_H
#define GB_HTTP_PLACES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct sockaddr;
struct gb_source; /* an address, and how many connections it has */

#define GB_PLACES_BUCKETS 1024u

struct gb_places {
    uint64_t max;        /* connections */
    uint64_t remote_max; /* of them over TCP */
    unsigned source_max; /* of one address; 0: as many as there are places */
    atomic_uint_fast64_t taken;
    atomic_uint_fast64_t remote; /* of them over TCP */
    uint64_t seed;               /* clients choose their addresses, and must not know the buckets */
    bool ready;
    pthread_mutex_t lock; /* a leaf */
    struct gb_source *bucket[GB_PLACES_BUCKETS];
};

enum gb_place {
    GB_PLACE_TAKEN,
    GB_PLACE_FULL,   /* all are in use, or all of TCP */
    GB_PLACE_SOURCE, /* the address has as many connections as it may */
    GB_PLACE_MEMORY  /* memory is exhausted */
};

/* Of `max`, those that TCP may not have: a sixteenth, at least 8, never more than half. */
uint64_t gb_places_kept(uint64_t max);

/* local: there is a UNIX socket, for which places are kept. */
int gb_places_init(struct gb_places *places, uint64_t max, unsigned source_max, bool local, struct gb_error *err);
void gb_places_done(struct gb_places *places); /* after all connections have ended; a zeroed value is accepted */

/* [any thread] A place for a connection from that address; NULL: of a UNIX socket. beyond: also when there is none, because
 * another connection is about to end. *ret is NULL for a UNIX socket. */
enum gb_place gb_place_take(struct gb_places *places, const struct sockaddr *from, bool beyond, struct gb_source **ret);

/* [any thread] The connection has ended. */
void gb_place_end(struct gb_places *places, struct gb_source *source);
/* The connection goes on, but not among the connections: it counts for its address alone, until gb_source_end. */
void gb_place_leave(struct gb_places *places, const struct gb_source *source);
void gb_source_end(struct gb_source *source); /* NULL is accepted */

#endif
