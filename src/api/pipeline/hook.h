/* Around every handler: Prefer: respond-async, Idempotency-Key, and the wait for bytes that are on disk. Handlers do
 * not know of it. */
#ifndef GB_API_PIPELINE_HOOK_H
#define GB_API_PIPELINE_HOOK_H

#include "api/context.h"
#include "http/http.h"

/* gb_http_server_config.around: runs the handler with all three, as the columns of the route permit. */
enum gb_step gb_api_pipeline(gb_http_handler *handler, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err);

/* request->hooks of a request that has one of those header fields. */
struct gb_request_hooks {
    struct gb_api *api;
    struct gb_operation *op; /* reserved, or that of a detached request */
    struct gb_name stream;

    bool stays;   /* the client does not leave yet */
    bool claimed; /* the key is to be kept or given up */
    bool began;   /* work may be under way */
    bool done;    /* the work was carried out */
    struct gb_key key;
    struct gb_key_claim first; /* what there was of the key; its answer is a reference */
    struct gb_saving *saving;  /* the write of the reply to the database */
    struct gb_saving *intent;  /* the write of gb_request_hooks_intend */

    enum gb_step step; /* how the handler ended */
    struct gb_error error;
};

/* Tells the operation which stream the work of the request is queued on. */
void gb_request_hooks_stream(const struct gb_http_request *request, const struct gb_name *stream);
/* What the handler waits for decides where the request goes: its client gets no operation before that is known. */
void gb_request_hooks_stay(struct gb_http_request *request, bool stays);
/* From now on the work of the request is cancelled by that; NULL: it cannot be. Sets request->cancel. */
void gb_request_hooks_offer(struct gb_http_request *request, bool (*cancel)(struct gb_http_request *request, bool act));
/* gb_request_hooks_mark returns the mark that the call carries into the database (key "": no mark).
 * gb_request_hooks_done says that the work of the request has been carried out. */
struct gb_store_mark gb_request_hooks_mark(const struct gb_http_request *request);
void gb_request_hooks_done(const struct gb_http_request *request);
/* Before work that other processes carry out: the database learns that the request's key may have been used. Returns
 * true when it has, or if there is no key; else a wake follows, and the caller calls again. */
bool gb_request_hooks_intend(struct gb_http_request *request, const char *note);

/* Requests for bytes that are on disk wait for their load, around every handler. */

/* Runs the handler. If it is refused with NOT_LOADED, the request waits for the end of a load, at most as long as it
 * prefers, and its route's handler runs again from its start. A request whose body is a stream does not wait: its error
 * reply says when to try again. */
enum gb_step gb_loading_run(gb_http_handler *handler, struct gb_http_request *request,
                            struct gb_http_response *response, struct gb_error *err);

#endif
