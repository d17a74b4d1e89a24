/* The feed's thread, inside the http layer: sends events that others rendered to many connections that only listen.
 *
 * Such a connection has left libmicrohttpd (leave.c), and costs one small record. What goes out to many is one frame with a
 * count of references; each listener has a place in the ring of the newest frames, and no queue of its own. Who is further back
 * than the ring asks for what is missing piece by piece, as fast as its socket takes it; whoever falls out of the ring while the
 * socket takes nothing is dropped. */
#ifndef GB_HTTP_FEED_FEED_H
#define GB_HTTP_FEED_FEED_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/http.h"

struct gb_peer;
struct gb_source;

#define GB_FEED_RING 4096u /* frames; a power of two */
#define GB_FEED_RING_BYTES (2u << 20)
#define GB_FEED_HELD 8u  /* frames of one send */
#define GB_FEED_PIECE 64 /* frames that are asked for at a time */

struct gb_http_feed_config {
    void *app;
    const struct gb_http_feed_hooks *hooks; /* borrowed */
    unsigned heartbeat_ms;
    unsigned stall_ms; /* a socket that takes nothing for so long is dropped */
};

/* A listener, from the response to its end. */
struct gb_feed_listener {
    struct gb_feed_listener *prev;
    struct gb_feed_listener *next;
    atomic_uint *counted; /* gives its place back at the end */
    atomic_uint *remote;  /* the same among those of TCP; NULL: of a UNIX socket */
    int fd;
    struct gb_peer *peer;
    struct gb_source *source; /* of a TCP socket */
    char owner[129];          /* "": hears all */
    unsigned epoch;           /* when it was permitted */
    uint64_t topics;
    uint64_t begin; /* only what has a higher id */
    uint64_t after; /* the last that was looked at, while it is behind the ring */
    uint64_t seq;   /* the next in the ring */
    bool behind;
    bool blocked; /* waits for EPOLLOUT */
    uint64_t blocked_ns;
    uint64_t sent_ns;
    struct gb_http_frame *hold[GB_FEED_HELD]; /* on their way, references */
    unsigned held;
    size_t sent; /* of the first */
    struct gb_http_frame **piece;
    size_t piece_at;
    size_t piece_count;
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
    uint64_t ring_after; /* id: all that is above is in the ring or not asked for yet */
    uint64_t ring_last;  /* id up to which was asked */
    uint64_t next_tick_ns;
    uint64_t drain_until_ns;
    bool complete; /* the ring has the last frame that there will be */

    pthread_mutex_t lock;
    struct gb_feed_listener *entering; /* linked by next */
    atomic_bool draining;
    atomic_bool stopping;
    atomic_uint epoch; /* who listens since an earlier one is to come anew */
    atomic_uint count;
    atomic_uint remote; /* of them, over TCP */
};

int gb_http_feed_start(struct gb_http_feed *feed, const struct gb_http_feed_config *config, struct gb_error *err);
/* [any thread] There is more; or draining, stopping or epoch was changed. */
void gb_http_feed_wake(struct gb_http_feed *feed);
/* [any thread] Takes over the listener and what it holds. */
void gb_http_feed_give(struct gb_http_feed *feed, struct gb_feed_listener *listener);
/* Ends the thread; listeners that are left are closed. A zeroed value is accepted. */
void gb_http_feed_end(struct gb_http_feed *feed);

/* listener.c: a place among count, at most max. NULL with SATURATED. */
struct gb_feed_listener *gb_feed_listener_new(atomic_uint *count, unsigned max, struct gb_error *err);
void gb_feed_listener_free(struct gb_feed_listener *listener); /* closes; NULL is accepted */

/* send.c, on the thread. Sends what there is for it as far as the socket takes it. False: it is of no use any more. */
bool gb_feed_listener_run(struct gb_http_feed *feed, struct gb_feed_listener *l, uint64_t now_ns);
/* It has got all there is. */
bool gb_feed_listener_level(const struct gb_http_feed *feed, const struct gb_feed_listener *l);
/* A last word, where it can be written without breaking into another. */
void gb_feed_listener_farewell(struct gb_http_feed *feed, struct gb_feed_listener *l);

#endif
