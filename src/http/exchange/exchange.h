/* One request and its way to an answer, inside the http layer. */
#ifndef GB_HTTP_EXCHANGE_EXCHANGE_H
#define GB_HTTP_EXCHANGE_EXCHANGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/http.h"
#include "http/message/chunked.h"
#include "http/message/text_arena.h"

/* An wake queue of a thread: woken exchanges, and a descriptor that its epoll watches. */
struct gb_wake_queue {
    pthread_mutex_t lock;
    struct gb_exchange *head; /* in order of arrival */
    struct gb_exchange *tail;
    unsigned count;
    int event_fd;
};

int gb_wake_queue_init(struct gb_wake_queue *wake_queue, struct gb_error *err);
void gb_wake_queue_done(struct gb_wake_queue *wake_queue);
void gb_wake_queue_signal(struct gb_wake_queue *wake_queue);
/* Clears the descriptor. Call before taking. */
void gb_wake_queue_clear(struct gb_wake_queue *wake_queue);
/* A visit: clears, and says how many to take. Those that come meanwhile, from those that were taken too, are for the next
 * visit, which gb_wake_queue_leave asks for: between the two others have their turn. */
unsigned gb_wake_queue_visit(struct gb_wake_queue *wake_queue);
void gb_wake_queue_leave(struct gb_wake_queue *wake_queue);

enum gb_phase {
    GB_PHASE_HEAD,    /* headers are known, the handler has not run */
    GB_PHASE_BODY,    /* the sink takes the body */
    GB_PHASE_DISCARD, /* refused; the rest of a small body is read and dropped */
    GB_PHASE_WAIT,    /* the handler waits for a wake */
    GB_PHASE_GATHER,  /* a small source is collected into one block */
    GB_PHASE_REPLY,   /* the response is ready to go out */
    GB_PHASE_STREAM,  /* libmicrohttpd takes it from the source */
    GB_PHASE_DONE     /* handed to libmicrohttpd or to a transfer loop's last steps */
};

/* The request is the first member: handlers see that alone. */
struct gb_exchange {
    struct gb_http_request req;
    atomic_int refs;
    struct gb_http_server *server;
    struct gb_text_arena texts; /* target, header and query */
    struct gb_loop *loop;       /* on which it began */
    struct gb_peer *peer;       /* until it has ended; a reference, or NULL */
    bool close;                 /* the client or we want the connection closed after the reply */
    bool unframed;              /* where the request ends is not known: answer, then close */

    enum gb_phase phase;
    struct gb_http_response resp;
    struct gb_error err;
    uint64_t body_received;
    struct gb_chunked framing; /* of a chunked body */
    char *early;               /* bytes behind the header that libmicrohttpd had read; malloc'd, or NULL */
    size_t early_len;
    size_t early_used;
    uint64_t moved_ns;   /* when the body last moved */
    uint64_t blocked_ns; /* since when the sink has had no room; 0: it has */
    uint64_t excused_ns; /* time for which the sink had none: not the client's */
    bool broken;         /* the connection is gone; finish quietly */
    char *gathered;
    size_t gathered_len;
    bool charged_long;     /* from the share of long replies */
    size_t charged;        /* bytes of the reply, of the memory that all replies may have */
    const char *long_body; /* what libmicrohttpd sends by pieces; in resp */
    size_t long_len;

    /* Where wakes go. */
    pthread_mutex_t wake_lock;
    struct gb_wake_queue *owner; /* NULL: nobody cares any more */
    bool queued;
    struct gb_exchange *wake_next;
    struct gb_exchange *forward; /* it has left: wakes go there; a reference */

    struct gb_exchange *spare;  /* for when it leaves */
    struct gb_exchange *origin; /* of one that left: the texts are there; a reference */

    /* Owner's lists: of those that wait on an HTTP loop, or of transfers on a transfer loop. */
    struct gb_exchange *prev;
    struct gb_exchange *next;
    bool listed;

    /* On an HTTP loop. */
    struct MHD_Connection *conn;
    struct gb_conn *info;
    bool suspended;
    bool parked; /* counted among the suspended, on a transfer loop */

    struct gb_http_transfer *transfer; /* on a transfer loop */
};

struct gb_exchange *gb_exchange_of(struct gb_http_request *request);

/* target: as received. NULL when memory is exhausted. */
struct gb_exchange *gb_exchange_new(struct gb_http_server *server, const char *target);
struct gb_exchange *gb_exchange_ref(struct gb_exchange *ex);
void gb_exchange_unref(struct gb_exchange *ex);

/* The request is over: frees sink, response and handler state at once, whoever still holds references. */
void gb_exchange_end(struct gb_exchange *ex);

void gb_exchange_own(struct gb_exchange *ex, struct gb_wake_queue *owner);
/* Takes the first woken exchange with its reference, or NULL. */
struct gb_exchange *gb_wake_queue_take(struct gb_wake_queue *wake_queue);

/* Runs the handler step that is due (the route's handler, sink end, or resume) and settles the outcome: afterwards the
 * phase is WAIT, BODY, GATHER or REPLY. */
void gb_exchange_step(struct gb_exchange *ex, gb_http_handler *handler);
/* Replaces whatever was to be answered with the problem document of *err. */
void gb_exchange_fail(struct gb_exchange *ex, const struct gb_error *err);
/* Feeds bytes that stand elsewhere to the sink: *ret_taken of n; less than n with 0 means wait for a wake. -1: failed, the
 * phase is REPLY. */
int gb_exchange_feed(struct gb_exchange *ex, const char *data, size_t n, size_t *ret_taken);
/* Has all of the body arrived? */
bool gb_exchange_body_whole(const struct gb_exchange *ex);
/* Collects a small source; true when the response has become a plain body (or failed), false: wait for a wake. */
bool gb_exchange_gather(struct gb_exchange *ex);
/* What the sink's room said last: time without room does not count against the client. */
void gb_exchange_room(struct gb_exchange *ex, bool has_room);
/* A body that is too slow: true, and err says REQUEST_TIMEOUT. */
bool gb_exchange_stalled(const struct gb_exchange *ex, uint64_t now_ns, struct gb_error *err);

/* reply_memory.c: before the reply's first byte, the response becomes what it is in the end. A body that has to wait for its
 * client is counted until the exchange ends; one too many for --max-reply-memory is replaced with SATURATED. */
void gb_reply_admit(struct gb_exchange *ex);
/* The same of what else is allocated for the reply. False: the response is the refusal. */
bool gb_reply_charge(struct gb_exchange *ex, size_t bytes);
void gb_reply_release(struct gb_exchange *ex);
/* Bytes of the body in memory that is to be sent; of a canned one that is not long, at most. */
size_t gb_reply_bytes(const struct gb_exchange *ex);

#endif
