/* Requests that were left to themselves: what becomes of each, for as long as the process lives.
 *
 * An operation is reserved before the handler runs, published when the request leaves, and ended with what the client would
 * have been answered. One lock for the table; it is held across request->cancel. */
#ifndef GB_API_MIDDLEWARE_OPERATIONS_H
#define GB_API_MIDDLEWARE_OPERATIONS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "base/name.h"
#include "format/json_writer.h"
#include "http/http.h"

#define GB_OPERATION_ID_SIZE 32
/* Results of ended operations in all; the oldest go first. */
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
/* False when there is no such state. */
bool gb_operation_state_parse(const char *text, enum gb_operation_state *ret);

struct gb_operation_waiter {
    struct gb_operation_waiter *prev;
    struct gb_operation_waiter *next;
    struct gb_operation *op; /* a reference */
    struct gb_http_request *request;
};

/* All but refs and what is fixed at the publication is guarded by the table's lock. */
struct gb_operation {
    unsigned refs;
    int64_t number; /* 0: not published */
    char id[GB_OPERATION_ID_SIZE];
    const char *kind;
    struct gb_name session; /* "" when it belongs to none */
    struct gb_name stream;  /* "" when it has none */
    char *target;
    enum gb_operation_state ended; /* RUNNING until it has */
    bool cancel_said;              /* it ends as cancelled */
    bool session_gone;
    int64_t created_us;
    int64_t started_us; /* when it was first known to run; 0: not yet */
    int64_t ended_us;
    uint64_t ended_ns;
    int status; /* of the reply */
    char *reply;
    size_t reply_len;
    struct gb_http_request *request; /* while it can be asked */
    struct gb_operation_waiter *waiters;
    struct gb_operation *prev; /* all published, by number */
    struct gb_operation *next;
    struct gb_operation *next_ended;
    struct gb_operation_room *room;
};

/* Reading and writing have bounds of their own, so that clients that only read take no place from a writer, nor drive out
 * what became of its operations. */
struct gb_operation_room {
    struct gb_operation *first_ended; /* by the time of their end */
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
    const struct gb_api_limits *limits; /* NULL: not made yet */
};

struct gb_api_limits;
/* limits is borrowed, and fixed before the first one. */
int gb_operations_init(struct gb_operations *ops, const struct gb_api_limits *limits, struct gb_error *err);
/* No request is under way any more. A zeroed one is accepted. */
void gb_operations_done(struct gb_operations *ops);

/* What this request would be as an operation, NULL where Prefer: respond-async is not heard. */
const char *gb_operation_kind(const struct gb_http_request *request);

/* A place for one more. NULL with SATURATED. */
struct gb_operation *gb_operations_reserve(struct gb_operations *ops, bool reads, struct gb_error *err);
/* The request was answered as ever. */
void gb_operations_give_back(struct gb_operations *ops, struct gb_operation *op);

/* From now on it is found. 0, or -1 with SATURATED when memory is exhausted. The caller keeps its reference for
 * gb_operation_end. */
int gb_operation_publish(struct gb_operations *ops, struct gb_operation *op, const struct gb_http_request *request,
                         struct gb_error *err);
/* The request that goes on; unless it has ended. */
void gb_operation_attach(struct gb_operations *ops, struct gb_operation *op, struct gb_http_request *request);
/* With the reply to the request, whose body it takes; error GB_OK: success. Drops the reference. */
void gb_operation_end(struct gb_operations *ops, struct gb_operation *op, struct gb_http_response *response,
                      const struct gb_error *error);

/* With a reference, or NULL with OPERATION_NOT_FOUND. */
struct gb_operation *gb_operation_find(struct gb_operations *ops, const char *id, struct gb_error *err);
void gb_operation_ref(struct gb_operations *ops, struct gb_operation *op);
void gb_operation_unref(struct gb_operations *ops, struct gb_operation *op); /* NULL is accepted */

/* OPERATION_RUNNING, OPERATION_ENDED. 0: it is cancelled. */
int gb_operation_cancel(struct gb_operations *ops, struct gb_operation *op, struct gb_error *err);
/* Those of the session end, failed, as far as they can. */
void gb_operations_session_gone(struct gb_operations *ops, const char *session);

/* One object. Returns its state. */
enum gb_operation_state gb_operation_render(struct gb_operations *ops, struct gb_operation *op,
                                            struct gb_json_writer *out);

/* Drops those that have been kept long enough. Every look does so first. */
void gb_operations_expire_locked(struct gb_operations *ops);

struct gb_operation_filter {
    const char *session; /* NULL: all */
    bool has_state;
    enum gb_operation_state state;
    int64_t after;
    unsigned limit;
};
/* Items of a list, without results and problems: together they may have GB_OPERATIONS_RESULT_BYTES_MAX. *ret_last: the number of the last one. Returns whether there are more. */
bool gb_operations_list(struct gb_operations *ops, const struct gb_operation_filter *filter, struct gb_json_writer *out,
                        int64_t *ret_last);
void gb_operations_count(struct gb_operations *ops, uint64_t counts[GB_OPERATION_STATES]);

/* waiter->op and request are set: the request is woken at the end. False: it has ended already. */
bool gb_operation_wait(struct gb_operations *ops, struct gb_operation_waiter *waiter);
void gb_operation_wait_end(struct gb_operations *ops, struct gb_operation_waiter *waiter);
bool gb_operation_ended(struct gb_operations *ops, const struct gb_operation *op);

#endif
