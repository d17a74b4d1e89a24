/* One request and its way to an answer, inside the http layer. */
#ifndef GB_HTTP_EXCHANGE_EXCHANGE_H
#define GB_HTTP_EXCHANGE_EXCHANGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/http.h"
#include "http/limits/limits.h"
#include "http/message/chunked.h"
#include "http/message/text_arena.h"

struct MHD_Connection;
struct gb_conn;
struct gb_exchange_loop;
struct gb_http_transfer;
struct gb_peer;
struct gb_wake_queue;

/* A refused body up to this size is read and dropped, so that the connection can stay. */
#define GB_DISCARD_MAX (64 * 1024)

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
    struct gb_text_arena texts; /* target, header and query, unless like has them */
    struct gb_exchange *like;   /* the earlier exchange with the same head; a reference, or NULL */
    struct gb_http_text secret; /* the value of Authorization, in texts; wiped with them */
    char *raw;                  /* the head as received; malloc'd, NULL: not kept */
    size_t raw_len;
    struct gb_exchange_loop *loop; /* on which it began */
    int fd;                        /* the socket of its connection; -1: no longer any */
    struct gb_peer *peer;          /* until it has ended; a reference, or NULL */
    bool close;                    /* the connection is to be closed after the reply */
    bool unframed;                 /* the end of the request is not known: answer, then close */

    enum gb_phase phase;
    struct gb_http_response resp;
    struct gb_error err;
    unsigned checked; /* server->rechecks when the caller was last found in force */
    uint64_t body_received;
    uint64_t body_sent;        /* by a transfer loop */
    struct gb_chunked framing; /* of a chunked body */
    char *early;               /* bytes behind the header that libmicrohttpd had read; malloc'd, or NULL */
    size_t early_len;
    size_t early_used;
    uint64_t moved_ns;            /* when the body last moved */
    uint64_t blocked_ns;          /* since when the sink has had no room; 0: it has */
    uint64_t excused_ns;          /* time for which the sink had no room: it does not count against the client */
    bool broken;                  /* the connection is gone; finish without an answer */
    struct gb_client *client;     /* whose bounds it has met; a reference, NULL: none */
    struct gb_client *payer;      /* of charged; the same */
    bool counted_wait;            /* among the client's waiting requests */
    uint64_t paid_bytes;          /* of the client's bytes */
    struct gb_refusal_of refusal; /* if err is TOO_MANY_REQUESTS */
    char *gathered;
    size_t gathered_len;
    bool charged_long;     /* from the share of long replies */
    size_t charged;        /* bytes of the reply, of the memory that all replies may have */
    const char *long_body; /* what libmicrohttpd sends by pieces; in resp */
    size_t long_len;

    /* Where wakes go. */
    pthread_mutex_t wake_lock;
    struct gb_wake_queue *owner; /* NULL: wakes are dropped */
    bool queued;
    struct gb_exchange *wake_next;
    struct gb_exchange *forward; /* the detached request: wakes go there; a reference */

    struct gb_exchange *spare;  /* memory for the detached request */
    struct gb_exchange *origin; /* of a detached request: the exchange that has its texts; a reference */

    /* In the owner's list: of requests that wait on an HTTP loop, or of detached ones. */
    struct gb_exchange *prev;
    struct gb_exchange *next;
    bool listed;

    /* On an HTTP loop. */
    struct MHD_Connection *conn;
    struct gb_conn *info;
    const char *head_at; /* in libmicrohttpd's buffer, if it stands there as it was received; NULL: not known */
    bool suspended;
    bool lingers; /* it waits, and is checked again in the next turn */
    bool parked;  /* counted among the suspended, on a transfer loop */

    struct gb_http_transfer *transfer; /* on a transfer loop */
};

static inline struct gb_exchange *gb_exchange_of(struct gb_http_request *request) {
    return (struct gb_exchange *)request;
}

/* target: as received; copied. NULL: it is set later. Returns NULL if memory is exhausted. */
struct gb_exchange *gb_exchange_new(struct gb_http_server *server, const char *target);
struct gb_exchange *gb_exchange_ref(struct gb_exchange *ex);
void gb_exchange_unref(struct gb_exchange *ex);

/* [any thread] From now on wakes of the exchange go to that queue. NULL: they are dropped. */
void gb_exchange_own(struct gb_exchange *ex, struct gb_wake_queue *owner);

/* The request has ended: frees sink, response and handler state at once, whatever references are left. Gives the
 * caller's reference back. */
void gb_exchange_end(struct gb_exchange *ex);

#endif
