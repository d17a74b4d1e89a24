/* An HTTP loop: libmicrohttpd's epoll inside our own, so that wakes, handoffs and time-outs are ours.
 *
 * A connection lives on one loop. When a body is large, or an answer must go out in the middle of one, the connection
 * *leaves*: a transfer loop gets a duplicate of the descriptor, libmicrohttpd's own is replaced by a dead socket, sees
 * its end and forgets the connection. After the reply the descriptor comes back to a loop as a new connection, so
 * keep-alive holds. This needs nothing of libmicrohttpd but suspend and resume. */
#ifndef GB_HTTP_MHD_LOOP_H
#define GB_HTTP_MHD_LOOP_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/exchange/exchange_loop.h"
#include "http/exchange/server_state.h"
#include "http/mhd/conn.h"
#include "http/mhd/handoff_queue.h"
#include "http/mhd/handshakes.h"
#include "http/mhd/quiet.h"
#include "http/transfer/loop.h"

struct gb_loop {
    struct gb_http_server *server;
    pthread_t thread;
    bool started;
    struct MHD_Daemon *mhd;
    struct gb_exchange_loop exchanges;
    struct gb_handoff_queue handoffs;
    const struct gb_handoff *adopting; /* while MHD_add_connection runs */
    bool accepts;                      /* until the server drains */
    bool listening;                    /* the listening sockets are in the epoll set */
    unsigned listen_turn;              /* the server's, when they were put there */
    uint64_t listen_again_ns;          /* when they will be again, after descriptors had run out */
    struct gb_conn *conns;
    struct gb_front *fronts; /* connections over TLS */
    struct gb_front *fed;    /* of them: libmicrohttpd has been given something in this turn */
    struct gb_front *buried; /* ended in this turn */
    struct gb_handshakes handshakes;
    struct gb_quiet quiet[2][2]; /* [UNIX socket][has asked] */
    struct gb_proxy *proxies;    /* connections that wait for their header of the PROXY protocol */
    unsigned proxy_count;
    struct gb_proxy *buried_proxies; /* ended in this turn */
    struct gb_exchange *waiting;
    struct gb_transfer_loop own;   /* short transfers; its epoll set is the loop's */
    struct MHD_Response *handover; /* the answer that makes libmicrohttpd hand a connection over */
    unsigned handovers;            /* connections that are being handed over */
    uint64_t progress;             /* rises with each thing that libmicrohttpd does for a connection */
    unsigned idle_turns;           /* since the last sweep: turns that libmicrohttpd asked for and did nothing in */
    bool reads_leniently;          /* libmicrohttpd does: see head.h */
    bool resumed;    /* there are connections that libmicrohttpd sees when it runs, but does not ask to run for */
    bool unsettled;  /* the application has put off what the turns so far began */
    uint64_t now_ns; /* when this turn began */
    uint64_t next_tick_ns;
    uint64_t next_sweep_ns;
    unsigned rechecks;       /* of the server, as of the last check of all callers */
    uint64_t weighed_ns;     /* when the loop was last checked, and */
    uint64_t weighed_cpu_ns; /* the thread's time until then */
    unsigned surplus;        /* connections with small requests that had better go to another loop */
    atomic_uint load;        /* connections, including those on their way */
};

/* Returns 0 or -1 with *err; gb_loop_done is due either way. */
int gb_loop_init(struct gb_loop *loop, struct gb_http_server *server, struct gb_error *err);
/* After all loops are initialized: they hand connections to each other. */
int gb_loop_start(struct gb_loop *loop, struct gb_error *err);
/* After server->stopping; also for one that was never started. */
void gb_loop_join(struct gb_loop *loop);
/* After all threads have ended. A zeroed loop is accepted. */
void gb_loop_done(struct gb_loop *loop);

#endif
