/* Replies that take long to make: they are made on a thread of the core while the request waits, so that no HTTP loop
 * walks thousands of objects. */
#ifndef GB_API_REPLY_DEFERRED_H
#define GB_API_REPLY_DEFERRED_H

#include <stdatomic.h>

#include "api/context.h"

/* Embedded in what the reply is made of. The first three members are given. */
struct gb_deferred {
    /* Makes the reply, on a thread of the core. The request must not be used. Returns 0, or -1; without *err memory was
     * exhausted. */
    int (*make)(struct gb_deferred *deferred, struct gb_error *err);
    /* Fills the response, on the request's loop. */
    enum gb_step (*reply)(struct gb_deferred *deferred, struct gb_http_request *request,
                          struct gb_http_response *response, struct gb_error *err);
    /* Frees it, on either thread. make and reply may not have been called: the request can end before. */
    void (*release)(struct gb_deferred *deferred);

    struct gb_api *api;
    struct gb_http_request *request; /* a reference, until the work has woken it */
    struct gb_core_task work;
    atomic_int refs;      /* the request's and the work's */
    atomic_bool left;     /* the client has gone: make need not begin */
    atomic_bool finished; /* error and what make has made may be read */
    struct gb_error error;
};

/* The rest of a handler. Takes deferred over. Returns GB_STEP_WAIT. */
enum gb_step gb_deferred_start(struct gb_http_request *request, struct gb_deferred *deferred);

#endif
