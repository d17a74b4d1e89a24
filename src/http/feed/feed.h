/* The feed's thread: sends events, which the application renders, to many connections that only listen.
 *
 * Such a connection has left libmicrohttpd (mhd/leave.c), and costs one small record. All listeners share the frames,
 * which are reference counted. Each listener has a place in the ring of the newest frames, and no queue of its own. A
 * listener further back than the ring reads the missing frames piece by piece, as fast as its socket takes them. A
 * listener that falls out of the ring while its socket takes nothing is dropped. */
#ifndef GB_HTTP_FEED_FEED_H
#define GB_HTTP_FEED_FEED_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/feed/listener.h"

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
    bool (*in_force)(void *app, uint64_t caller); /* as the server's; NULL: none is */
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
