/* A transfer loop: many transfers on one thread. */
#ifndef GB_HTTP_SERVER_TRANSFER_LOOP_H
#define GB_HTTP_SERVER_TRANSFER_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "http/server/exchange.h"
#include "http/server/mailbox.h"
#include "http/server/state.h"

struct gb_http_transfer;
struct gb_loop;

/* Takes a connection back to an HTTP loop. own: the loop on whose thread it is called, or NULL. */
typedef void gb_hand_back(struct gb_http_server *server, struct gb_loop *own, const struct gb_handoff *handoff);

/* Moves transfers: with a thread of its own for large bodies, or inside an HTTP loop's thread for those that end in
 * well under a millisecond. */
struct gb_transfer_loop {
    struct gb_http_server *server;
    struct gb_loop *loop; /* inside whose thread it runs; NULL: it has its own */
    gb_hand_back *hand_back;
    /* Whether a request with that many bytes had better go to another loop; NULL outside an HTTP loop. */
    bool (*crowded)(struct gb_loop *loop, uint64_t bytes);
    pthread_t thread;
    bool started;
    int epoll_fd;
    struct gb_wake_queue wake_queue;
    struct gb_http_transfer *transfers;
    struct gb_http_transfer *entering; /* given by the thread itself and not visited yet; linked by next */
    uint64_t turn_bytes;               /* moved for one transfer before the others get their turn */
    uint64_t next_tick_ns;
    bool commit_pending; /* the application has put off what the turns so far began; outside an HTTP loop */
    atomic_uint load;
    struct gb_latency_table *latency; /* of the requests that end on its thread; borrowed */
};

/* Inside an HTTP loop, which waits in the epoll set of this one. The caller has set server, loop, hand_back, latency
 * and turn_bytes. Returns 0 or -1 with *err; gb_transfer_loop_done is due either way. */
int gb_transfer_loop_init(struct gb_transfer_loop *loop, struct gb_error *err);
/* An event of a transfer; of the wake queue (data.ptr is NULL); time. */
void gb_transfer_loop_event(struct gb_transfer_loop *loop, struct gb_http_transfer *t, uint32_t events);
void gb_transfer_loop_woken(struct gb_transfer_loop *loop, bool had_event);
void gb_transfer_loop_tick(struct gb_transfer_loop *loop);
/* Visits the transfers that the thread gave itself. */
void gb_transfer_loop_enter(struct gb_transfer_loop *loop);

/* With a thread of its own. The caller has set server, hand_back and latency. Returns 0 or -1 with *err;
 * gb_transfer_loop_done is due either way. */
int gb_transfer_loop_start(struct gb_transfer_loop *loop, struct gb_error *err);
/* After server->stopping; also for one that was never started. */
void gb_transfer_loop_join(struct gb_transfer_loop *loop);
/* After all threads have ended. A zeroed loop is accepted. */
void gb_transfer_loop_done(struct gb_transfer_loop *loop);

/* [an HTTP loop's thread] Gives the exchange and its socket to that loop's own transfer loop if little is left to move,
 * else to the least loaded transfer loop. Returns 0, or -1 if memory is exhausted: then both stay the caller's. */
int gb_transfer_loop_give(struct gb_transfer_loop *own, struct gb_exchange *ex, const struct gb_handoff *socket);

#endif
