/* Operations: requests that continue without their client, each with its state and result for as long as the process
 * lives.
 *
 * An operation is reserved before the handler runs, published when the request is detached, and ended with the reply
 * that the client would have got. One lock guards the table; it is held across request->cancel. */
#ifndef GB_API_PIPELINE_OPERATIONS_H
#define GB_API_PIPELINE_OPERATIONS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/request/query.h"
#include "base/json_writer.h"
#include "base/map.h"
#include "base/text.h"
#include "http/http.h"

#define GB_OPERATION_ID_SIZE 32
/* Results of ended operations in all; the oldest are dropped first. */
#define GB_OPERATIONS_RESULT_BYTES_MAX (64u << 20)

enum gb_operation_state {
    GB_OPERATION_QUEUED, /* it can still be cancelled */
    GB_OPERATION_RUNNING,
    GB_OPERATION_DONE,
    GB_OPERATION_FAILED,
    GB_OPERATION_CANCELLED,
    GB_OPERATION_STATES
};
const char *gb_operation_state_name(enum gb_operation_state state);

struct gb_operation_waiter {
    struct gb_operation_waiter *prev;
    struct gb_operation_waiter *next;
    struct gb_operation *op; /* a reference */
    struct gb_http_request *request;
};

/* The table's lock guards all members but those that are fixed at the publication. */
struct gb_operation {
    unsigned refs;
    int64_t number; /* 0: not published */
    char id[GB_OPERATION_ID_SIZE];
    const char *kind;
    struct gb_name session; /* "" when it belongs to no session */
    int64_t token;          /* the id of the token that asked; 0: no token was needed */
    struct gb_name stream;  /* may be "" */
    char *target;
    enum gb_operation_state ended; /* RUNNING until it has ended */
    bool cancel_said;              /* it ends as cancelled */
    enum gb_code gone;             /* what its session has come to, which cancels it; OK: nothing */
    int64_t created_us;
    int64_t started_us; /* first known to run; 0: not yet */
    int64_t ended_us;
    uint64_t ended_ns;
    int status; /* of the reply */
    char *reply;
    size_t reply_len;
    struct gb_http_request *request; /* while it can be cancelled */
    struct gb_operation_waiter *waiters;
    struct gb_operation *prev; /* all published, by number */
    struct gb_operation *next;
    struct gb_operation *next_ended;
    struct gb_operation_room *room;
};

/* Reads and writes have bounds of their own, so that reading clients neither take the place of a write nor drive its
 * result out. */
struct gb_operation_room {
    struct gb_operation *first_ended; /* by the time of the end */
    struct gb_operation *last_ended;
    uint64_t under_way; /* reserved ones included */
    uint64_t ended;
    uint64_t ended_bytes;
};

struct gb_operations {
    pthread_mutex_t lock;
    struct gb_map by_id;
    struct gb_operation *first;
    struct gb_operation *last;
    uint32_t run;
    int64_t last_number;
    struct gb_operation_room reads;
    struct gb_operation_room writes;
    const struct gb_api_limits *limits;
};

struct gb_api_limits;
/* limits is borrowed, and fixed before the first operation. Returns NULL when memory or random numbers are
 * exhausted. */
struct gb_operations *gb_operations_new(const struct gb_api_limits *limits);
/* Frees the table when no request is under way any more. NULL is accepted. */
void gb_operations_free(struct gb_operations *ops);

/* Reserves a place for one more operation. Returns NULL with SATURATED. */
struct gb_operation *gb_operations_reserve(struct gb_operations *ops, bool reads, struct gb_error *err);
/* Gives the place back when the request was answered without an operation. */
void gb_operations_give_back(struct gb_operations *ops, struct gb_operation *op);

/* Publishes the operation, so that it is found. The caller keeps its reference for gb_operation_end. Returns 0, or -1
 * with SATURATED when memory is exhausted. */
int gb_operation_publish(struct gb_operations *ops, struct gb_operation *op, const struct gb_http_request *request,
                         struct gb_error *err);
/* Attaches the detached request, unless the operation has ended. */
void gb_operation_attach(struct gb_operations *ops, struct gb_operation *op, struct gb_http_request *request);
/* Sets request->cancel of a detached request, and cancels at once if the session is gone. */
void gb_operation_offer(struct gb_operations *ops, struct gb_operation *op, struct gb_http_request *request,
                        bool (*cancel)(struct gb_http_request *request, bool act));
/* Ends the operation with the reply to its request, whose body it takes. error: GB_OK means success. Drops the
 * reference. */
void gb_operation_end(struct gb_operations *ops, struct gb_operation *op, struct gb_http_response *response,
                      const struct gb_error *error);

/* Returns the operation with a reference, or NULL with OPERATION_NOT_FOUND. */
struct gb_operation *gb_operation_find(struct gb_operations *ops, const char *id, struct gb_error *err);
void gb_operation_ref(struct gb_operations *ops, struct gb_operation *op);
void gb_operation_unref(struct gb_operations *ops, struct gb_operation *op); /* NULL is accepted */

/* Cancels the operation. Returns 0, or -1 with OPERATION_RUNNING or OPERATION_ENDED. */
int gb_operation_cancel(struct gb_operations *ops, struct gb_operation *op, struct gb_error *err);
/* It was. While that is just being done, waits for it. */
bool gb_operation_cancel_said(struct gb_operations *ops, const struct gb_operation *op);
/* Ends the operations of a session that is gone as failed, as far as they can be cancelled. why: SESSION_NOT_FOUND,
 * SESSION_MOVING (it went to another node) or SUPERSEDED (another node has it). */
void gb_operations_session_gone(struct gb_operations *ops, const char *session, enum gb_code why);

/* Writes the operation as one object. Returns its state. */
enum gb_operation_state gb_operation_render(struct gb_operations *ops, struct gb_operation *op,
                                            struct gb_json_writer *out);

struct gb_operation_filter {
    const char *session; /* NULL: all */
    bool has_token;
    int64_t token; /* only what it asked for */
    bool has_state;
    enum gb_operation_state state;
};
void gb_operations_count(struct gb_operations *ops, uint64_t counts[GB_OPERATION_STATES]);

#endif
