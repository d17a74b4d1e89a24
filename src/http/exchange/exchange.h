/* One request and its way to an answer, inside the http layer. */
#ifndef GB_HTTP_EXCHANGE_EXCHANGE_H
#define GB_HTTP_EXCHANGE_EXCHANGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/http.h"
#include "http/message/chunked.h"

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

/* Bytes of text that most requests do with. */
#define GB_EXCHANGE_SMALL 1024

/* The request is the first member: handlers see that alone. */
struct gb_exchange {
    struct gb_http_request req;
    atomic_int refs;
    struct gb_http_server *server;
    char *text; /* holds target, header and query text: small, then more */
    size_t text_size;
    size_t text_used;
    char small[GB_EXCHANGE_SMALL];
    char *more;           /* made when small is full */
    struct gb_loop *loop; /* on which it began */
    struct gb_peer *peer; /* until it has ended; a reference, or NULL */
    bool http10;
    bool close;    /* the client or we want the connection closed after the reply */
    bool unframed; /* where the request ends is not known: answer, then close */

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

/* Copies text into the exchange; NULL when memory or the bound is exhausted. */
char *gb_exchange_text(struct gb_exchange *ex, const char *s, size_t n);

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

/* --- pure parts, each in a file of its own ---------------------------------------------------------------------------- */

/* request.c: splits the target into path and query and decodes the query. Returns 0 or -1 with *err. */
int gb_request_parse_target(struct gb_exchange *ex, struct gb_http_text *ret_path, struct gb_error *err);
bool gb_http_named(const struct gb_http_pair *header, const char *name, size_t len); /* whatever its case */
/* Percent-decodes in place within the exchange's text; -1 when malformed. */
int gb_percent_decode(const char *s, size_t n, char *out, size_t *ret_n);

/* request_checks.c: what libmicrohttpd lets through and should not. */
struct gb_request_rules {
    const char *const *hosts;
    size_t host_count;
    const char *const *pages; /* see gb_http_server_config */
    size_t page_count;
};
int gb_request_check(struct gb_exchange *ex, const struct gb_request_rules *rules, struct gb_error *err);

/* router.c: the routes, taken apart once. */
#define GB_ROUTER_SEGMENTS 8
struct gb_router_pattern {
    const struct gb_http_route *route;
    struct gb_http_text segment[GB_ROUTER_SEGMENTS]; /* s NULL: a capture */
};
struct gb_router {
    const struct gb_http_route *routes; /* borrowed */
    size_t count;
    struct gb_router_pattern *list;                          /* by their segments; of as many, in the routes' order */
    struct gb_router_pattern *first[GB_ROUTER_SEGMENTS + 2]; /* of those with so many; the last one is the end */
};
int gb_router_init(struct gb_router *router, const struct gb_http_route *routes, size_t count, struct gb_error *err);
void gb_router_done(struct gb_router *router);
/* Finds the route and sets param. NO_ROUTE or METHOD_NOT_ALLOWED; then *ret_allow (at least 64 bytes) lists
 * the methods. method GB_HTTP_METHOD_COUNT stands for an unknown one. */
int gb_router_match(struct gb_exchange *ex, const struct gb_router *router, struct gb_http_text path, char *ret_allow,
                    struct gb_error *err);
int gb_router_check_query(const struct gb_http_request *request, struct gb_error *err);

/* problem.c: the problem document of an error, into the response. Headers that stand there are kept. */
void gb_problem_fill(struct gb_http_response *response, const struct gb_http_request *request,
                     const struct gb_error *error);

/* In every reply to a request that reads: browsers neither guess what it is nor show it to pages of other origins. A request of
 * such a page that changes something is refused, and its reply cannot be shown. */
static inline bool gb_reply_is_read(const struct gb_exchange *ex) {
    return gb_http_is_safe(ex->req.method) || ex->req.method == GB_HTTP_METHOD_COUNT;
}
#define GB_EVERY_REPLY(FIELD)                                                                                          \
    FIELD("X-Content-Type-Options", "nosniff")                                                                         \
    FIELD("Cross-Origin-Resource-Policy", "same-origin")
#define GB_EVERY_REPLY_LINE(name, value) name ": " value "\r\n"
#define GB_EVERY_REPLY_LINES GB_EVERY_REPLY(GB_EVERY_REPLY_LINE)

/* wire.c: the head of a reply that we send ourselves, into out; returns its length or 0 when it does not fit. */
#define GB_HEAD_UNTIL_END UINT64_MAX /* body_len: the body ends with the connection */
size_t gb_head_write(const struct gb_exchange *ex, int status, uint64_t body_len, bool close, char *out, size_t size);

/* reply.c */
const char *gb_http_reason(int status);
size_t gb_canned_len(const struct gb_http_canned *canned);
/* Takes a canned answer apart: status and headers into the response, which keeps the reference that *ret_body lives by. */
void gb_canned_unpack(struct gb_exchange *ex, const char **ret_body, size_t *ret_n);

/* reply_memory.c: before the reply's first byte, the response becomes what it is in the end. A body that has to wait for its
 * client is counted until the exchange ends; one too many for --max-reply-memory is replaced with SATURATED. */
void gb_reply_admit(struct gb_exchange *ex);
/* The same of what else is allocated for the reply. False: the response is the refusal. */
bool gb_reply_charge(struct gb_exchange *ex, size_t bytes);
void gb_reply_release(struct gb_exchange *ex);
/* Bytes of the body in memory that is to be sent; of a canned one that is not long, at most. */
size_t gb_reply_bytes(const struct gb_exchange *ex);

/* body_buffer.c: a sink that gathers a bounded body in memory. NULL when memory is exhausted. */
struct gb_http_sink *gb_body_buffer_new(size_t max);
/* All of it has arrived: sets the request's body. */
void gb_body_buffer_end(struct gb_http_sink *sink, struct gb_http_request *request);

#endif
