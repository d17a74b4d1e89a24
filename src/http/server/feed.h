/* The feed: a listener's place in it, and the thread that sends events to all listeners. */
#ifndef GB_HTTP_SERVER_FEED_H
#define GB_HTTP_SERVER_FEED_H

#include <pthread.h>
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

/* The feed's thread: sends events, which the application renders, to many connections that only listen.
 *
 * Such a connection has left libmicrohttpd (detach.c), and costs one small record. All listeners share the frames,
 * which are reference counted. Each listener has a place in the ring of the newest frames, and no queue of its own. A
 * listener further back than the ring reads the missing frames piece by piece, as fast as its socket takes them. A
 * listener that falls out of the ring while its socket takes nothing is dropped. */

#define GB_FEED_RING 4096u /* frames; a power of two */
#define GB_FEED_RING_BYTES (2u << 20)
#define GB_FEED_PIECE 64 /* frames that are asked for at a time */

struct gb_http_feed_config {
    void *app;
    const struct gb_http_feed_hooks *hooks; /* borrowed */
    unsigned heartbeat_ms;
    unsigned stall_ms; /* a listener that takes nothing for so long is dropped */
    unsigned listeners_max;
    unsigned remote_max;                          /* of them, over TCP */
    bool (*in_force)(void *app, uint64_t caller); /* as the server's; NULL: no socket is */
    /* Whether the certificate that the client has shown, if any, is still good; NULL: not asked. */
    bool (*is_certified)(void *server, struct gb_tls *tls);
    void *server;
};

struct gb_http_feed {
    struct gb_http_feed_config config;
    pthread_t thread;
    bool started;
    int epoll_fd;
    int event_fd;
    struct gb_http_frame *heartbeat;
    struct gb_http_frame *farewell;

    /* The thread's alone: */
    unsigned dismissed; /* up to that epoch */
    struct gb_feed_listener *listeners;
    struct gb_http_frame *ring[GB_FEED_RING];
    uint64_t ring_first; /* sequence numbers */
    uint64_t ring_end;
    size_t ring_bytes;
    uint64_t ring_after; /* id: all frames above are in the ring or not read yet */
    uint64_t ring_last;  /* id up to which frames were read */
    uint64_t next_tick_ns;
    uint64_t drain_until_ns;
    bool complete; /* the ring has the last frame of all */

    pthread_mutex_t lock;
    struct gb_feed_listener *entering; /* linked by next */
    atomic_bool draining;
    atomic_bool stopping;
    atomic_uint epoch; /* listeners of earlier epochs are asked for again */
    atomic_uint count;
    atomic_uint remote; /* of them, over TCP */
};

int gb_http_feed_start(struct gb_http_feed *feed, const struct gb_http_feed_config *config, struct gb_error *err);
/* [any thread] There are new events; or draining, stopping or epoch was changed. */
void gb_http_feed_wake(struct gb_http_feed *feed);
/* [any thread] Takes over the listener and what it holds. */
void gb_http_feed_give(struct gb_http_feed *feed, struct gb_feed_listener *listener);
/* Ends the thread and closes the listeners that are left. A zeroed feed is accepted. */
void gb_http_feed_end(struct gb_http_feed *feed);

#endif
