/* An HTTP loop and what it has: sockets on their way to it, connections (`gb_conn`), handshakes, quiet connections, and
 * refusals. balance.c hands out connections. loop.c has the thread: `gb_loop_init`, `_start`, `_join`, `_done`. */
#ifndef GB_HTTP_SERVER_LOOP_H
#define GB_HTTP_SERVER_LOOP_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "http/server/exchange.h"
#include "http/server/state.h"
#include "http/server/transfer_loop.h"

struct gb_conn;
struct gb_handover;
struct gb_loop;

struct gb_handoff_queue {
    pthread_mutex_t lock;
    struct gb_handoff *list;
    size_t count;
    size_t size;
};

/* Takes the next socket. False: the queue is empty. */
bool gb_handoff_take(struct gb_handoff_queue *handoffs, struct gb_handoff *ret);

/* [any thread] Gives a connected socket to a loop, which owns it from then on; it is closed if memory is exhausted. */
void gb_loop_give(struct gb_loop *loop, const struct gb_handoff *handoff);

/* [any thread] The least loaded loop; own (may be NULL) if no loop is less loaded. */
struct gb_loop *gb_loop_pick(struct gb_http_server *server, struct gb_loop *own);

/* Whether a connection whose requests have that many bytes had better go to another loop. */
bool gb_loop_crowded(struct gb_loop *loop, uint64_t bytes);
/* [the loop's thread, at each tick] Checks how busy the loop is. */
void gb_loop_weigh(struct gb_loop *loop, uint64_t now_ns);

/* Connections, shared by all loops. Each loop may have its share of them more than the least busy one before newcomers
 * go to the next. A few threads that are always at work answer more than many that are woken for each request. */
#define GB_LOOP_TOGETHER 128

/* [any thread] The first loop that has no more than slack connections more than the least loaded; a body under way
 * counts as more. */
struct gb_loop *gb_loop_fill(struct gb_http_server *server, unsigned slack);

/* Handshakes of TLS that are not done, the oldest first: when all places are taken, it gives way to a newcomer. */

/* Within its front; the loop's thread alone touches it. */
struct gb_handshake {
    struct gb_handshake *prev;
    struct gb_handshake *next;
    uint64_t since_ns;
    bool listed;
};

struct gb_handshakes {
    struct gb_handshake *first;
    struct gb_handshake *last;
    atomic_uint_fast64_t since_ns; /* of the first, for other threads; 0: none */
};

/* [the loop's thread] Enter: it begins now. Leave: it is done, or has ended; may be called again. */
void gb_handshake_enter(struct gb_handshakes *all, struct gb_handshake *one);
void gb_handshake_leave(struct gb_handshakes *all, struct gb_handshake *one);

/* [any thread] Returns the loop that has the one which should give way, or NULL: each has only just begun. */
struct gb_loop *gb_handshakes_oldest(struct gb_http_server *server);

/* [the loop's thread] Returns that one, or NULL. */
struct gb_handshake *gb_handshakes_first(const struct gb_handshakes *all);

/* Connections without a request: when all places are taken, the one that has been quiet for longest gives way to a
 * newcomer. */

/* Connections without a request, the longest quiet first; the loop's thread alone touches them. */
struct gb_quiet {
    struct gb_conn *first;
    struct gb_conn *last;
    atomic_uint_fast64_t since_ns; /* of the first, for other threads; 0: none */
};

/* [the loop's thread] Enter: the connection has no request from now on. Leave: it has one, or ends. */
void gb_quiet_enter(struct gb_loop *loop, struct gb_conn *c);
void gb_quiet_leave(struct gb_loop *loop, struct gb_conn *c);

/* [any thread] Returns the loop that has the connection that should give way to a newcomer, or NULL. local: the
 * newcomer comes over a UNIX socket. */
struct gb_loop *gb_quiet_longest(struct gb_http_server *server, bool local);

/* An HTTP loop: libmicrohttpd's epoll inside our own, so that wakes, handoffs and time-outs are ours.
 *
 * A connection lives on one loop. If a body is large, or an answer must go out in the middle of one, the connection
 * *leaves*. A transfer loop gets a duplicate of the descriptor; libmicrohttpd's own is replaced by a dead socket, whose
 * end makes it forget the connection. After the reply the descriptor comes back to a loop as a new connection, so
 * keep-alive holds. This needs nothing of libmicrohttpd but suspend and resume. */

/* One connection on an HTTP loop; touched by that loop's thread alone. */
struct gb_conn {
    struct gb_exchange *begun; /* the request whose headers are being read */
    struct gb_conn *prev;
    struct gb_conn *next;
    struct gb_loop *loop;
    struct MHD_Connection *mhd;
    struct gb_exchange *ex; /* the request in progress, or NULL */
    int fd;
    bool local;
    struct gb_peer *peer;     /* NULL: a TCP socket, or it has left with the connection */
    struct gb_source *source; /* NULL: a UNIX socket, or it has left with the connection */
    struct gb_http_address from;
    unsigned listener;      /* as in gb_handoff */
    bool secure;            /* its socket is one end of the pair of a front, and its place is the front's */
    struct gb_front *front; /* NULL: it is not secure, or the front has ended */
    uint32_t last_target;   /* a hash of what the last request asked for */
    bool asked;             /* it has had a whole request */
    bool quiet;             /* listed in `gb_quiet` */
    struct gb_conn *quiet_prev;
    struct gb_conn *quiet_next;
    bool returning;               /* as in gb_handoff */
    uint64_t peek_ns;             /* when to check next for an unnoticed end; 0: with the next sweep */
    bool left;                    /* a transfer loop has the socket */
    struct gb_handover *handover; /* of the socket and the bytes behind the header; NULL: not under way */
    uint64_t base;                /* bytes that were read from the socket before it came to this loop */
    uint64_t consumed;            /* bytes of finished requests since */
    uint64_t half_closed_ns; /* when the client that waits was seen to send no more, or asked about that; 0: not yet */
    uint64_t idle_ns;        /* since when no request is in progress; 0: one is */
    uint64_t replied_ns;     /* when libmicrohttpd got the reply; 0: not yet */
    struct gb_progress progress; /* of that reply, or of its bytes in the kernel's queue */
    bool read_all;               /* idle, and the client has taken all replies */
    unsigned fruitless;          /* callbacks since the last sweep that had nothing to do */
    bool suspect;                /* it may be the one for which the loop turns, see loop.c */
};

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
    struct gb_front *fronts;       /* connections over TLS */
    struct gb_front *fed;          /* of them: libmicrohttpd has been given something in this turn */
    struct gb_front *ended_fronts; /* ended in this turn */
    struct gb_handshakes handshakes;
    struct gb_quiet quiet[2][2]; /* [UNIX socket][has asked] */
    struct gb_proxy *proxies;    /* connections that wait for their header of the PROXY protocol */
    unsigned proxy_count;
    struct gb_proxy *ended_proxies; /* ended in this turn */
    struct gb_exchange *waiting;
    struct gb_transfer_loop own;   /* short transfers; its epoll set is the loop's */
    struct MHD_Response *handover; /* the answer that makes libmicrohttpd hand a connection over */
    unsigned handovers;            /* connections that are being handed over */
    uint64_t progress;             /* rises with each thing that libmicrohttpd does for a connection */
    unsigned idle_turns;           /* since the last sweep: turns that libmicrohttpd asked for and did nothing in */
    bool reads_leniently;          /* libmicrohttpd does: see request.c */
    bool resumed;        /* there are connections that libmicrohttpd sees when it runs, but does not ask to run for */
    bool commit_pending; /* the application has put off what the turns so far began */
    uint64_t now_ns;     /* when this turn began */
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

/* Connections that get 503 and are closed. On a loop's thread. */

enum gb_refusal { GB_REFUSAL_DRAINING, GB_REFUSAL_FULL, GB_REFUSAL_SOURCE, GB_REFUSAL_MEMORY, GB_REFUSAL_PLAIN };

/* Tells the client why, unless it awaits a handshake, and closes the socket. */
void gb_refuse(struct gb_loop *loop, const struct gb_handoff *handoff, enum gb_refusal why);

/* For a newcomer that was squeezed in, a quiet connection ends. False: no connection gave way, so that the newcomer was
 * refused and its place given back. */
bool gb_refuse_or_squeeze(struct gb_loop *loop, const struct gb_handoff *handoff);

#endif
