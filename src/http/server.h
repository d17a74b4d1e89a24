/* The server's threads: HTTP loops that accept, around libmicrohttpd, and transfer loops for large bodies.
 *
 * A connection lives on one HTTP loop. When a body is large, or an answer must go out in the middle of one, the
 * connection *leaves*: a transfer loop gets a duplicate of the descriptor, libmicrohttpd's own is replaced by a dead socket,
 * sees its end and forgets the connection. After the reply the descriptor comes back to a loop as a new connection, so
 * keep-alive holds. This needs nothing of libmicrohttpd but suspend and resume. */
#ifndef GB_HTTP_SERVER_H
#define GB_HTTP_SERVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/exchange/conn_slots.h"
#include "http/exchange/exchange.h"
#include "http/exchange/fd_mailbox.h"
#include "http/exchange/latency.h"
#include "http/exchange/peer.h"
#include "http/exchange/progress.h"
#include "http/feed/feed.h"
#include "http/http.h"
#include "http/message/request_checks.h"
#include "http/message/router.h"

struct MHD_Daemon;
struct MHD_Connection;
struct MHD_Response;
struct gb_handover;
struct gb_head;

/* One connection on an HTTP loop; touched by that loop's thread alone. */
struct gb_conn {
    struct gb_exchange *begun; /* its headers are being read */
    struct gb_conn *prev;
    struct gb_conn *next;
    struct gb_http_server *server;
    struct MHD_Connection *mhd;
    struct gb_exchange *ex; /* the request in progress, or NULL */
    int fd;
    bool local;
    struct gb_peer *peer;     /* NULL: a TCP socket; or it has gone on with the connection */
    struct gb_source *source; /* NULL: a UNIX socket; or it has gone on with the connection */
    bool asked;               /* it has had a whole request */
    bool quiet;               /* listed in quiet.c */
    struct gb_conn *quiet_prev;
    struct gb_conn *quiet_next;
    bool returning;               /* see gb_handoff */
    uint64_t peek_ns;             /* when to look next for an end that came unnoticed; 0: with the next sweep */
    bool left;                    /* a transfer loop has the socket */
    struct gb_handover *handover; /* of the socket and the bytes behind the header; NULL: there is none under way */
    uint64_t base;                /* bytes that were read from the socket before it came to this loop */
    uint64_t consumed;            /* bytes of finished requests since */
    uint64_t idle_ns;             /* since when no request is in progress; 0: one is */
    uint64_t replied_ns;          /* when libmicrohttpd got the reply; 0: not yet */
    struct gb_progress progress;  /* of that reply, or of what it left in the kernel */
    bool read_all;                /* idle, and the client has taken all replies */
    unsigned fruitless;           /* callbacks since the last sweep that had nothing to do */
    bool suspect;                 /* it may be what a loop turns for, see watchdog.c */
};

/* A connected socket on its way to a loop, and what is known of it. */
struct gb_handoff {
    int fd;
    bool local;               /* a UNIX socket */
    struct gb_peer *peer;     /* of that; a reference, which goes along */
    struct gb_source *source; /* of a TCP socket; its count goes along */
    bool squeezed;            /* admitted beyond the limit: the loop ends a quiet connection for it, or refuses it */
    bool returning;           /* it has been here before: a client that keeps its connection */
    bool counted;             /* taken is known */
    uint64_t taken;           /* bytes that were read from it before */
};

struct gb_handoff_queue {
    pthread_mutex_t lock;
    struct gb_handoff *list;
    size_t count;
    size_t size;
};

enum gb_http_transfer_state {
    GB_HTTP_TRANSFER_CONTINUE, /* "100 Continue" is to be sent */
    GB_HTTP_TRANSFER_BODY,     /* the body comes in */
    GB_HTTP_TRANSFER_WAIT,     /* the handler waits */
    GB_HTTP_TRANSFER_HEAD,     /* the reply goes out: head, */
    GB_HTTP_TRANSFER_BLOCK,    /* a body in memory, */
    GB_HTTP_TRANSFER_SOURCE,   /* or a source */
    GB_HTTP_TRANSFER_IDLE,     /* answered; whether the client ends or asks again is not known yet */
    GB_HTTP_TRANSFER_LINGER    /* our side is closed; the client's last bytes are read so that it sees the reply */
};

/* A connection on a transfer loop, with the request in progress; touched by that loop's thread alone. */
struct gb_http_transfer {
    struct gb_http_transfer *prev;
    struct gb_http_transfer *next;
    struct gb_exchange *ex; /* NULL in IDLE and LINGER */
    int fd;
    enum gb_http_transfer_state state;
    struct gb_handoff from; /* for the way back: taken is what was read before this request's body */
    bool listed;            /* among the transfer loop's transfers */
    uint32_t armed;         /* events that epoll watches */
    bool watched;           /* it is in the epoll set */
    int mark;               /* the system tells of so many bytes and not of fewer; the tick looks for those */
    bool close;             /* after the reply */
    char head[GB_HTTP_RESPONSE_TEXT_SIZE + 1024];
    size_t head_len;
    const char *block;
    size_t block_len;
    uint64_t out_len; /* bytes of the reply's body */
    uint64_t sent;    /* of what is being sent */
    uint64_t began_ns;
    uint64_t moved_ns;
    struct gb_progress progress; /* of the reply, or of what it left in the kernel */
    uint64_t lingered;
};

/* Moves transfers: with a thread of its own for large bodies, or inside an HTTP loop's thread for those that are over
 * in well under a millisecond. */
struct gb_transfer_loop {
    struct gb_http_server *server;
    struct gb_loop *loop; /* inside whose thread it runs; NULL: it has its own */
    pthread_t thread;
    bool started;
    int epoll_fd;
    struct gb_wake_queue wake_queue;
    struct gb_http_transfer *transfers;
    struct gb_http_transfer *entering; /* given by the thread itself, not visited yet; linked by next */
    uint64_t turn_bytes;               /* moved for one transfer before the others get their turn */
    uint64_t next_tick_ns;
    atomic_uint load;
    struct gb_latency_table *latency; /* of the requests that end on its thread */
};

/* Connections without a request, the longest quiet first; the loop's thread alone touches them. */
struct gb_quiet {
    struct gb_conn *first;
    struct gb_conn *last;
    atomic_uint_fast64_t since_ns; /* of the first, for other threads; 0: there is none */
};

struct gb_loop {
    struct gb_http_server *server;
    pthread_t thread;
    bool started;
    struct MHD_Daemon *mhd;
    struct gb_wake_queue wake_queue;
    struct gb_handoff_queue handoffs;
    const struct gb_handoff *adopting; /* while libmicrohttpd is being told of it */
    bool accepts;                      /* until the server drains */
    bool listening;                    /* the listening sockets are in the epoll set */
    uint64_t listen_again_ns;          /* when they will be, after descriptors had run out */
    struct gb_conn *conns;
    struct gb_quiet quiet[2][2]; /* [UNIX socket][has asked] */
    struct gb_exchange *waiting;
    struct gb_exchange *detached;  /* those that left */
    struct gb_transfer_loop own;   /* short transfers; its epoll set is the loop's */
    struct MHD_Response *handover; /* makes libmicrohttpd hand a connection over */
    unsigned handovers;            /* connections that are being handed over */
    uint64_t progress;             /* rises with whatever libmicrohttpd has done for a connection */
    unsigned idle_turns;           /* since the last sweep: libmicrohttpd asked for them and did nothing */
    bool reads_leniently;          /* libmicrohttpd: see head.c */
    bool resumed;                  /* connections that libmicrohttpd sees when it runs, and does not ask to run for */
    uint64_t now_ns;               /* when this turn began */
    uint64_t next_tick_ns;
    uint64_t next_sweep_ns;
    uint64_t next_id;
    atomic_uint load; /* connections, those on their way included */
    /* One count for all loops would be a cache line that they fight for. */
    atomic_uint_fast64_t active; /* requests in progress that began here */
    atomic_uint_fast64_t requests;
};

struct gb_http_server {
    struct gb_http_server_config config;
    struct gb_request_rules rules;
    struct gb_router router;
    char **hosts;
    int *listen_fds;
    bool *listen_local; /* which of them are UNIX sockets */
    struct gb_loop *loops;
    struct gb_transfer_loop *transfer_loops;
    atomic_uint accepting; /* loops that accept */
    int peers_fd;          /* reports the ends of connections that are watched; the first loop looks */
    struct gb_fd_mailboxes fd_mailboxes;
    struct gb_http_feed feed;
    unsigned listeners_remote_max; /* of config.listeners_max, over TCP */
    int dead_fd;                   /* reads as ended; stands in for sockets that left */
    uint64_t id_seed;
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
};

/* loop.c, handoff.c */
int gb_loop_init(struct gb_loop *loop, struct gb_http_server *server, struct gb_error *err);
int gb_loop_start(struct gb_loop *loop, struct gb_error *err); /* after all are made: they hand connections on */
void gb_loop_join(struct gb_loop *loop);                       /* after server->stopping; also for one never started */
void gb_loop_done(struct gb_loop *loop);                       /* after all threads have ended */
/* Hands a connected socket to a loop, which owns it from then on; it is closed when memory is exhausted. */
void gb_loop_give(struct gb_loop *loop, const struct gb_handoff *handoff);
bool gb_handoff_take(struct gb_handoff_queue *handoffs, struct gb_handoff *ret); /* false: there is none */
/* As gb_loop_give, from the loop's own thread and outside libmicrohttpd's callbacks. */
void gb_loop_adopt(struct gb_loop *loop, const struct gb_handoff *handoff);
/* For the next request, on the loop's thread. Unique as long as a loop sees fewer than 2^48. */
static inline uint64_t gb_loop_id(struct gb_loop *loop) {
    return loop->server->id_seed + ((uint64_t)(loop - loop->server->loops) << 48) + loop->next_id++;
}
/* The least loaded; the given one (NULL: none) when there is no less loaded. */
struct gb_loop *gb_loop_pick(struct gb_http_server *server, struct gb_loop *own);
/* The first that has no more than slack connections more than the least loaded; a body under way counts as more. */
struct gb_loop *gb_loop_fill(struct gb_http_server *server, unsigned slack);

/* request.c: libmicrohttpd's callbacks. */
void gb_mhd_forgotten(struct gb_conn *c); /* the connection ends, or has a next request */
void *gb_mhd_on_uri(void *cls, const char *uri, struct MHD_Connection *connection);
int gb_mhd_on_request(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                      const char *version, const char *upload_data, size_t *upload_data_size, void **con_cls);
/* libmicrohttpd reports an error of its own. Where it would send its head twice, the client gets our answer instead. */
void gb_mhd_on_error(struct gb_loop *loop);
/* What became due outside a callback: a wake, a deadline, a stalled body. */
void gb_mhd_woken(struct gb_loop *loop, struct gb_exchange *ex);
void gb_mhd_suspend(struct gb_loop *loop, struct gb_exchange *ex);
void gb_mhd_timed_out(struct gb_loop *loop, struct gb_exchange *ex);
void gb_mhd_drop(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_error *err);
/* The request is over, whichever way. */
void gb_mhd_finished(struct gb_exchange *ex);

/* begin.c: what the headers decide. After it the phase is HEAD, BODY or REPLY. */
void gb_mhd_begin(struct gb_exchange *ex, const char *method, const char *url, const char *version);
/* The parts of it that need no request line; head may be NULL. */
void gb_mhd_start(struct gb_exchange *ex);
int gb_mhd_read_headers(struct gb_exchange *ex, struct gb_head *head, struct gb_error *err);

/* head.c: is the header, in libmicrohttpd's buffer, what it was taken for? With the strings of the first callback, then
 * each field in order, then the end; false: it is not. */
struct gb_head {
    const char *begin;
    const char *at; /* where the next line has to begin; NULL: libmicrohttpd can be trusted */
};
bool gb_head_request_line(struct gb_head *head, const struct gb_exchange *ex, const char *method, const char *url,
                          const char *version);
bool gb_head_line(struct gb_head *head, const char *name, size_t name_len, const char *value, size_t value_len);
bool gb_head_end(const struct gb_head *head, const struct gb_exchange *ex);

/* detached.c: requests that go on without a client, on the loop's thread. One of them was woken; the server stops; after
 * all threads have ended, what came too late. */
void gb_detached_woken(struct gb_loop *loop, struct gb_exchange *ex);
void gb_detached_stop(struct gb_loop *loop);
void gb_detached_done(struct gb_loop *loop);

/* leave.c: moves the connection to a transfer loop. 0, or -1 and everything stays as it was. */
int gb_mhd_detach(struct gb_loop *loop, struct gb_exchange *ex);
/* The parts of it: what is known of the socket, for when it comes back (fd is -1); a duplicate of the socket, or -1; gives the
 * exchange to a transfer loop, with a socket that libmicrohttpd knows no more. */
struct gb_handoff gb_mhd_describe(const struct gb_exchange *ex);
int gb_mhd_duplicate(const struct gb_exchange *ex);
void gb_mhd_give(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_handoff *socket);
/* The connection goes to the feed, and the request is over. As gb_mhd_detach. */
int gb_mhd_listen(struct gb_loop *loop, struct gb_exchange *ex);
/* Bytes that libmicrohttpd may have read beyond the current request's header; 0 is a proof. */
uint64_t gb_mhd_held(const struct gb_exchange *ex);
/* Bytes received by the kernel less those still unread, 0 where the kernel does not say. */
uint64_t gb_socket_taken(int fd);

/* handover.c: moves the connection to a transfer loop together with the bytes behind the header that libmicrohttpd has read.
 * From a request's first callback; libmicrohttpd has to run once more for it. 0, or -1 and everything stays as it was. */
int gb_mhd_handover_init(struct gb_loop *loop, struct gb_error *err);
void gb_mhd_handover_done(struct gb_loop *loop); /* both on a loop without connections */
int gb_mhd_hand_over(struct gb_loop *loop, struct gb_exchange *ex);
/* libmicrohttpd ended the connection instead: the transfer loop gets it without those bytes, and answers. */
void gb_mhd_not_handed_over(struct gb_loop *loop, struct gb_exchange *ex);

/* A body in memory longer than this leaves libmicrohttpd, where that is safe. The least that a fresh socket takes at once, over
 * Ethernet's segments of 1448 bytes, is 46 KB (the loopback 2.8 MB, a UNIX socket what accept.c gives it). */
#define GB_LONG_REPLY (64u << 10)

/* reply.c: queues the reply that stands in ex. 0 or -1. */
int gb_mhd_reply(struct gb_exchange *ex);

/* stream.c: a source's bytes by way of libmicrohttpd, in phase STREAM; ex outlives the response's use. NULL when memory is
 * exhausted. */
struct MHD_Response *gb_mhd_stream(struct gb_exchange *ex);
/* The same of a long body in memory, by pieces that tell how far it has come. */
struct MHD_Response *gb_mhd_pieces(struct gb_exchange *ex, const char *body, size_t n);
#define GB_MHD_STREAM_BYTES (256u << 10) /* that libmicrohttpd allocates for a source */

/* sweep.c: the look at a connection that is due every second. */
void gb_mhd_sweep(struct gb_loop *loop, struct gb_conn *c, uint64_t now_ns);

/* watchdog.c: due with each sweep, before idle_turns begins anew. */
void gb_mhd_watch_turns(struct gb_loop *loop);

/* quiet.c, on the loop's thread. The connection has no request from now on; it has one, or ends. */
void gb_quiet_enter(struct gb_loop *loop, struct gb_conn *c);
void gb_quiet_leave(struct gb_loop *loop, struct gb_conn *c);
/* [any thread] The loop that has the connection that should give way to a newcomer; local: over a UNIX socket. NULL: there is
 * none. */
struct gb_loop *gb_quiet_longest(struct gb_http_server *server, bool local);
/* Ends it, on that loop's thread. False: there is none. */
bool gb_quiet_give_way(struct gb_loop *loop, bool local);

/* accept.c, on the loop's thread. */
/* For one that was squeezed in: false when no connection gave way, and it was refused and its place given back. */
bool gb_accept_squeeze(struct gb_loop *loop, const struct gb_handoff *handoff);
int gb_listen_start(struct gb_loop *loop, struct gb_error *err);
/* Is the data of an event that of a listening socket? Then accepts what waits there. */
bool gb_listen_event(struct gb_loop *loop, const void *data);
/* Listens again after a pause, or ends it when the server drains. */
void gb_listen_tick(struct gb_loop *loop, uint64_t now_ns);

/* loop.c */
int gb_transfer_loop_init(struct gb_transfer_loop *transfer_loop, struct gb_http_server *server, uint64_t turn_bytes,
                          struct gb_error *err);
/* For a loop, whose epoll set is that of its own gb_transfer_loop: an event of a transfer; the wake queue's (data.ptr is NULL); time. */
void gb_transfer_loop_event(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t, uint32_t events);
void gb_transfer_loop_woken(struct gb_transfer_loop *transfer_loop);
void gb_transfer_loop_tick(struct gb_transfer_loop *transfer_loop);
/* With a thread of its own. */
int gb_transfer_loop_start(struct gb_transfer_loop *transfer_loop, struct gb_http_server *server, struct gb_error *err);
void gb_transfer_loop_join(struct gb_transfer_loop *transfer_loop);
void gb_transfer_loop_done(struct gb_transfer_loop *transfer_loop);
/* Gives the exchange and its socket to the loop itself when what is left to move is short, else to the least loaded bulk
 * loop. 0 or -1 when memory is exhausted. */
int gb_transfer_loop_give(struct gb_loop *loop, struct gb_exchange *ex, const struct gb_handoff *socket);
/* On its thread: visits those that the thread gave itself. */
void gb_transfer_loop_enter(struct gb_transfer_loop *transfer_loop);

/* transfer.c: goes on with a transfer as far as it gets without blocking; may free it. */
void gb_http_transfer_run(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t);
bool gb_http_transfer_has_bytes(const struct gb_http_transfer *t); /* of its body, and waits for more */
/* Drops the connection at once. Frees t. */
void gb_http_transfer_drop(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t);
/* Answers with an error, whatever was going on before the reply began. */
void gb_transfer_loop_fail(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t,
                           const struct gb_error *err);
/* The client asks again: its connection goes back to an HTTP loop. Frees t. */
void gb_http_transfer_hand_back(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t);
/* The reply is out: keep the connection, or a lingering close. Frees t, or goes on with it. */
void gb_http_transfer_finish(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t);
void gb_http_transfer_arm(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t, uint32_t events);

/* Ends the exchange's accounting and tells the access log. On the thread of that bulk, or that of its loop. */
void gb_server_ended(struct gb_transfer_loop *transfer_loop, struct gb_exchange *ex);

#endif
