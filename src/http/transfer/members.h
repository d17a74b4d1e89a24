/* The transfers of a transfer loop: how they are watched, and how they leave. */
#ifndef GB_HTTP_TRANSFER_MEMBERS_H
#define GB_HTTP_TRANSFER_MEMBERS_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/exchange/exchange.h"
#include "http/exchange/handoff.h"
#include "http/exchange/progress.h"
#include "http/exchange/server_state.h"
#include "http/exchange/wake_queue.h"
#include "http/message/head_writer.h"

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
    bool paced;             /* it waits for the bytes of its client, see pace.h */
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
    bool unsettled; /* the application has put off what the turns so far began; outside an HTTP loop */
    atomic_uint load;
    struct gb_latency_table *latency; /* of the requests that end on its thread; borrowed */
};

/* Lists t among the loop's transfers. */
void gb_http_transfer_link(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

/* Watches t's socket for these events and no others. */
void gb_http_transfer_arm(struct gb_transfer_loop *loop, struct gb_http_transfer *t, uint32_t events);

/* Ends t's exchange; the connection continues. */
void gb_http_transfer_end_exchange(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

/* Drops the connection at once. Frees t. */
void gb_http_transfer_drop(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

/* The client asks again: its connection goes back to an HTTP loop. Frees t. */
void gb_http_transfer_hand_back(struct gb_transfer_loop *loop, struct gb_http_transfer *t);

#endif
