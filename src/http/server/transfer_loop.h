/* A transfer loop: many transfers on one thread. */
#ifndef GB_HTTP_SERVER_TRANSFER_LOOP_H
#define GB_HTTP_SERVER_TRANSFER_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "http/message/response.h"
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

/* --- a transfer --------------------------------------------------------------------------------------------------- */

enum gb_http_transfer_state {
    GB_HTTP_TRANSFER_CONTINUE, /* "100 Continue" is to be sent */
    GB_HTTP_TRANSFER_BODY,     /* the body comes in */
    GB_HTTP_TRANSFER_WAIT,     /* the handler waits */
    GB_HTTP_TRANSFER_HEAD,     /* the reply goes out: head, */
    GB_HTTP_TRANSFER_BLOCK,    /* a body in memory, */
    GB_HTTP_TRANSFER_SOURCE,   /* or a source */
    GB_HTTP_TRANSFER_IDLE,     /* answered; the client may end or ask again */
    GB_HTTP_TRANSFER_LINGER    /* our side is closed; the client's last bytes are read so that it sees the reply */
};

/* The outcome of a state of a transfer. */
enum gb_transfer_outcome {
    GB_TRANSFER_AGAIN, /* continue with the next state */
    GB_TRANSFER_LATER, /* an event or a wake will come, or the turn has ended */
    GB_TRANSFER_GONE   /* the transfer is freed */
};

/* A connection on a transfer loop, with the request in progress; touched by that loop's thread alone. */
struct gb_http_transfer {
    struct gb_http_transfer *prev;
    struct gb_http_transfer *next;
    struct gb_exchange *ex;   /* NULL in IDLE and LINGER */
    struct gb_exchange *like; /* an earlier one whose head is known; a reference, or NULL */
    int fd;
    enum gb_http_transfer_state state;
    struct gb_handoff from; /* for the way back; taken: bytes that were read before this request's body */
    bool listed;            /* among the loop's transfers */
    uint32_t armed;         /* events that epoll watches */
    bool watched;           /* it is in the epoll set */
    bool paced;             /* it waits for the bytes of its client, see `gb_pace` below */
    bool waits;             /* for the handler, and has been checked since */
    bool half_closed;       /* while it waits: the client sends no more, and may still read */
    int mark;               /* the kernel reports that many bytes and not fewer; the tick polls for fewer */
    bool close;             /* after the reply */
    char head[GB_HTTP_RESPONSE_TEXT_SIZE + GB_HEAD_OWN_SIZE];
    size_t head_len;
    size_t joined; /* bytes of the reply's body that stand behind the head there */
    const char *block;
    size_t block_len;
    uint64_t out_len; /* bytes of the reply's body */
    uint64_t sent;    /* of what is being sent */
    uint64_t began_ns;
    uint64_t moved_ns;
    struct gb_progress progress; /* of the reply, or of what it left in the kernel */
    uint64_t lingered;
};

/* Lists t among the loop's transfers. */
void gb_http_transfer_link(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

/* Drops the connection at once. Frees t. */
void gb_http_transfer_drop(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

/* The connection goes back to an HTTP loop: the client asks again, or may ask for something else after its reply, or
 * has been silent for a moment since. Frees t. */
void gb_http_transfer_hand_back(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

/* One transfer on a transfer loop. These and what follows: on the loop's thread. */

/* Continues with a transfer as far as it gets without blocking; may free it. */
void gb_http_transfer_run(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

/* Answers with an error, whatever happened before the reply began. May free t. */
void gb_http_transfer_fail(struct gb_transfer_loop *loop, struct gb_http_transfer *t, const struct gb_error *err);

/* Whether there are bytes of its body, while it waits for more. */
bool gb_http_transfer_has_bytes(const struct gb_http_transfer *t);

/* Bytes a second of one client: its connections pause, and all others continue.
 *
 * A connection that may move nothing is armed for nothing, and checked again with the loop's tick. What is there then
 * is shared among the client's connections that wait for it. */

/* Before the tick checks the time: that which t was paused does not count against the client. */
void gb_pace_excuse(struct gb_http_transfer *t, uint64_t now_ns);

#endif
