/* What is done around every handler that changes something: Prefer: respond-async (pipeline.c) and Idempotency-Key
 * (idempotency.c). Handlers need not know. */
#ifndef GB_API_MIDDLEWARE_HOOK_H
#define GB_API_MIDDLEWARE_HOOK_H

#include "api/context.h"

/* request->hook of a request that asked for one of the two. */
struct gb_request_hooks {
    struct gb_api *api;
    struct gb_operation *op; /* reserved, or that of a request that has left */
    struct gb_name stream;

    bool claimed; /* key is to be kept or given up */
    bool began;   /* something may be under way */
    bool done;    /* something was carried out */
    struct gb_key key;
    struct gb_saving *saving; /* the answer's way to the database */

    enum gb_step step; /* how the handler ended */
    struct gb_error error;
};

/* For operations: the stream that the request's work is queued on. */
void gb_request_hooks_stream(const struct gb_http_request *request, const struct gb_name *stream);
/* For keys: what the call is to be marked with (key "": none); what the request asked for has been carried out. */
struct gb_store_mark gb_request_hooks_mark(const struct gb_http_request *request);
void gb_request_hooks_done(const struct gb_http_request *request);

/* --- idempotency.c ------------------------------------------------------------------------------------------------ */

/* The request brings a key, and its method hears it. */
bool gb_idempotency_wanted(const struct gb_http_request *request);
/* 1: the key is claimed; 0: the response is filled with the first one's; -1. ret_note (GB_KEY_NOTE_SIZE): of the one under
 * way, with KEY_IN_USE. */
int gb_idempotency_begin(struct gb_request_hooks *hooks, struct gb_http_request *request,
                         struct gb_http_response *response, char *ret_note, struct gb_error *err);
/* The handler has ended with hook->step and hook->error. True: the response stands, and its way to the database has begun:
 * request->resume is set, the answer is to wait. */
bool gb_idempotency_end(struct gb_request_hooks *hooks, struct gb_http_request *request,
                        struct gb_http_response *response);
/* Whether it has got there. */
bool gb_idempotency_saved(const struct gb_request_hooks *hooks);
void gb_idempotency_free(struct gb_request_hooks *hooks);

#endif
