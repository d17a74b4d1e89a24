/* One request and its way to an answer, inside the http layer. */
#ifndef GB_HTTP_SERVER_EXCHANGE_H
#define GB_HTTP_SERVER_EXCHANGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "http/http.h"
#include "http/limits/limits.h"
#include "http/message/chunked.h"
#include "http/message/fields.h"
#include "http/server/mailbox.h"
#include "http/server/state.h"

struct gb_conn_slots;

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
    struct gb_client *client;     /* whose bounds it has met; a reference, or NULL */
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

struct gb_exchange *gb_exchange_of(struct gb_http_request *request);

/* target: as received; copied. NULL: it is set later. Returns NULL if memory is exhausted. */
struct gb_exchange *gb_exchange_new(struct gb_http_server *server, const char *target);
struct gb_exchange *gb_exchange_ref(struct gb_exchange *ex);
void gb_exchange_unref(struct gb_exchange *ex);

/* [any thread] From now on wakes of the exchange go to that queue. NULL: they are dropped. */
void gb_exchange_own(struct gb_exchange *ex, struct gb_wake_queue *owner);

/* The request has ended: frees sink, response and handler state at once, whatever references are left. Gives the
 * caller's reference back. */
void gb_exchange_end(struct gb_exchange *ex);

/* What an exchange knows of the HTTP loop on which it began. The loop embeds it. */

struct gb_exchange_loop {
    struct gb_wake_queue wake_queue;
    struct gb_exchange *detached; /* requests without a client; the loop's thread alone touches them */
    /* A count for each loop: with one for all, the loops would contend for its cache line. */
    atomic_uint_fast64_t active; /* requests in progress that began here */
    atomic_uint_fast64_t requests;
    uint64_t next_id; /* the loop's thread alone touches it */
};

/* [the loop's thread] Returns the id of the next request. Unique as long as a loop sees fewer than 2^48. */
uint64_t gb_exchange_loop_id(struct gb_exchange_loop *loop);

/* The calls of handlers, sinks and sources, and the phase that follows from their answers; the same on HTTP loops and
 * transfer loops. All on the thread that has the exchange. */

/* Runs the handler step that is due: the sink's end where a streamed body is whole, else `handler` (the route's handler
 * or resume). Afterwards the phase is WAIT, BODY, GATHER or REPLY. */
void gb_exchange_step(struct gb_exchange *ex, gb_http_handler *handler);

/* The response is complete before a handler was called. The phase is REPLY. */
void gb_exchange_answer(struct gb_exchange *ex);

/* Makes the reply the problem document of *err, in place of any other. The phase is REPLY. */
void gb_exchange_fail(struct gb_exchange *ex, const struct gb_error *err);

/* Feeds n bytes that stand elsewhere to the sink; *ret_taken of them were taken. Returns 0, or -1 if the sink failed;
 * then the phase is REPLY. If fewer than n were taken with 0, a wake follows. */
int gb_exchange_feed(struct gb_exchange *ex, const char *data, size_t n, size_t *ret_taken);

/* Whether all of the body has arrived. */
bool gb_exchange_body_whole(const struct gb_exchange *ex);

/* Collects a small source. True: the response is a plain body, or a problem document. False: a wake follows. */
bool gb_exchange_gather(struct gb_exchange *ex);

/* Records whether the sink has room: time without room does not count against the client. */
void gb_exchange_room(struct gb_exchange *ex, bool has_room);

/* Whether the body is too slow; then *err is REQUEST_TIMEOUT. */
bool gb_exchange_stalled(const struct gb_exchange *ex, uint64_t now_ns, struct gb_error *err);

/* Whether a refusal no longer waits for the rest of its body (GB_PHASE_DISCARD): the client has paused, or is too
 * slow. */
bool gb_exchange_rest_late(const struct gb_exchange *ex, uint64_t now_ns);

/* How far a reply has come with its client.
 *
 * Bytes in the kernel's queue are no progress: a client that takes nothing is as far after the first megabyte as before
 * it. Bytes are taken when the client's system has acknowledged them (TCP), or the client has read them (UNIX). */

struct gb_http_server_config;

/* Zeroed: nothing is known yet, and the first check begins it. */
struct gb_progress {
    bool counted; /* out is known, in bytes of the reply that the kernel was given; else it is 0 */
    bool looked;
    uint64_t out;      /* set by the sender */
    int64_t at;        /* of the last check: rises with what is taken */
    uint64_t taken;    /* bytes, since it began */
    uint64_t began_ns; /* 0: no check yet */
    uint64_t moved_ns;
    uint64_t looked_ns;
};

/* Begins, for a reply whose sender counts. */
void gb_progress_begin(struct gb_progress *p, uint64_t now_ns);
/* Asks the kernel, with one system call. local: a UNIX socket. Expected each second or more often: if checks come
 * later, two seconds count of the time between. */
void gb_progress_look(struct gb_progress *p, int fd, bool local, uint64_t now_ns);
/* The time since the last check does not count against the client: there was nothing that it could take. */
void gb_progress_excuse(struct gb_progress *p, uint64_t now_ns);
/* Whether, as of the last check, nothing was taken for stall_timeout_s, or less than min_rate_bytes_s on average. */
bool gb_progress_slow(const struct gb_progress *p, const struct gb_http_server_config *config, uint64_t now_ns);

/* Bytes that the kernel was given and the client has not taken; of a UNIX socket, the memory that they fill. */
uint64_t gb_socket_queued(int fd);
/* From now on, closing the socket drops its queue at once: a client that takes nothing would keep it. */
void gb_socket_abandon(int fd);

/* The memory of replies that wait for their clients, all together. */

/* A body in memory longer than this leaves libmicrohttpd, where that is safe. The least that a fresh socket takes at
 * once, over Ethernet's segments of 1448 bytes, is 46 KB (the loopback 2.8 MB, a UNIX socket the size set in
 * connection.c). */
#define GB_LONG_REPLY (64u << 10)

/* Admits the response, before the reply's first byte. A body that has to wait for its client is counted until the
 * exchange ends. If it does not fit into --max-reply-memory, SATURATED takes its place. */
void gb_reply_admit(struct gb_exchange *ex);
/* Counts other memory that is allocated for the reply. False: the response is the refusal. */
bool gb_reply_charge(struct gb_exchange *ex, size_t bytes);
/* Returns the bytes of the body in memory that is to be sent; of a canned one that is not long, at most. */
size_t gb_reply_bytes(const struct gb_exchange *ex);

/* A request whose head is, byte for byte, that of an earlier one: what was read from that head holds for it too. */

/* A new exchange with the head that `like` has, and a reference to it. NULL when memory is exhausted. */
struct gb_exchange *gb_exchange_repeat(struct gb_exchange *like);

/* The beginning of a request whose head is known. */

/* Gives the request an id and notes when it began and over which connection. peer: a reference is taken; NULL: TCP. */
void gb_exchange_start(struct gb_exchange *ex, struct gb_exchange_loop *loop, struct gb_peer *peer);

/* The head is read and the route found: asks for permission, makes the place for the body, and calls the handler of a
 * streamed one. The phase is HEAD (the handler is due), BODY, WAIT, GATHER or REPLY afterwards. */
void gb_exchange_open(struct gb_exchange *ex);

/* Requests that continue without a client; handlers begin them with gb_http_detach. All on the loop's thread. */

/* One of them was woken. */
void gb_detached_woken(struct gb_exchange_loop *loop, struct gb_exchange *ex);
/* The server stops: each is resumed once more, timed out, and ends. */
void gb_detached_stop(struct gb_exchange_loop *loop);
/* After all threads have ended: ends those that came too late. */
void gb_detached_done(struct gb_exchange_loop *loop);

/* A connected socket on its way to a loop, and what is known of it. */

struct gb_front;
struct gb_tls;

struct gb_handoff {
    int fd;
    bool local;               /* a UNIX socket */
    struct gb_peer *peer;     /* of a UNIX socket; a reference, which goes along */
    struct gb_source *source; /* of a TCP socket; its count goes along */
    struct gb_http_address from;
    bool secure;            /* of a listener for TLS */
    unsigned listener;      /* which one it came by */
    struct gb_tls *tls;     /* owned, goes along; NULL: plain, or the handshake has not begun */
    struct gb_front *front; /* while libmicrohttpd takes one end of its pair */
    bool squeezed;          /* admitted beyond the limit: the loop ends a quiet connection for it, or refuses it */
    bool returning;         /* it has been here before: a client that keeps its connection */
    bool counted;           /* taken is known */
    uint64_t taken;         /* bytes that were read from it before */
};

/* [any thread] The connection ends here: gives the peer back, closes the socket if fd >= 0, and gives the place
 * back. */
void gb_handoff_end(struct gb_conn_slots *slots, const struct gb_handoff *handoff);

#endif
