/* A listener's place in the feed. */
#ifndef GB_HTTP_FEED_LISTENER_H
#define GB_HTTP_FEED_LISTENER_H

#include <stdatomic.h>

#include "http/http.h"

struct gb_peer;
struct gb_source;

#define GB_FEED_HELD 8u /* frames of one send */

/* A listener, from the response to its end. */
struct gb_feed_listener {
    struct gb_feed_listener *prev;
    struct gb_feed_listener *next;
    atomic_uint *counted; /* gives its place back at the end */
    atomic_uint *remote;  /* the same among listeners over TCP; NULL: of a UNIX socket */
    int fd;
    struct gb_tls *tls; /* NULL: plain */
    struct gb_peer *peer;
    struct gb_source *source; /* of a TCP socket */
    struct gb_client *client; /* one of whose listeners it is; a reference, NULL: that has no bound */
    char owner[129];          /* "": hears all */
    char prefix[129];         /* of the names that it may hear of */
    size_t prefix_len;        /* 0: all */
    uint64_t caller;          /* the request's */
    unsigned epoch;           /* read before the listener was permitted */
    uint64_t topics;
    uint64_t begin; /* only frames with a higher id */
    uint64_t after; /* id of the last frame that was read, while it is behind the ring */
    uint64_t seq;   /* its next frame in the ring */
    bool behind;
    bool blocked; /* waits for EPOLLOUT */
    uint64_t blocked_ns;
    uint64_t sent_ns;
    struct gb_http_frame *hold[GB_FEED_HELD]; /* frames on their way; references */
    unsigned held;
    size_t sent; /* of the first */
    struct gb_http_frame **piece;
    size_t piece_at;
    size_t piece_count;
};

/* Takes a place among *count, of at most max. Returns NULL with SATURATED. */
struct gb_feed_listener *gb_feed_listener_new(atomic_uint *count, unsigned max, struct gb_error *err);
void gb_feed_listener_free(struct gb_feed_listener *listener); /* closes; NULL is accepted */

#endif
