/* Middleware around every handler: Prefer: respond-async (pipeline.c) and Idempotency-Key (idempotency.c). Handlers
 * need not know of it. */
#ifndef GB_API_MIDDLEWARE_HOOK_H
#define GB_API_MIDDLEWARE_HOOK_H

#include "api/context.h"
#include "http/http.h"

/* gb_http_server_config.around: runs the handler with the two, as the columns of the route permit. */
enum gb_step gb_api_pipeline(gb_http_handler *handler, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err);

/* request->hooks of a request that asks for one of the two. */
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
/* gb_request_hooks_mark returns the mark that the call carries into the database (key "": none). gb_request_hooks_done
 * says that the work of the request has been carried out. */
struct gb_store_mark gb_request_hooks_mark(const struct gb_http_request *request);
void gb_request_hooks_done(const struct gb_http_request *request);
/* Before work that other processes carry out: the database learns that the request's key may have been used. Returns
 * true when it has, or if there is no key; else a wake follows, and the caller calls again. */
bool gb_request_hooks_intend(struct gb_http_request *request, const char *note);

/* --- idempotency.c ------------------------------------------------------------------------------------------------ */

/* Tells whether the request brings a key and its route hears it. */
bool gb_idempotency_wanted(const struct gb_http_request *request);
/* Claims the key. Returns WAIT when it is claimed, REPLY when the response is filled with the first reply, ERROR, or
 * BODY to compare the body with that of the first request. */
enum gb_step gb_idempotency_begin(struct gb_request_hooks *hooks, struct gb_http_request *request,
                                  struct gb_http_response *response, struct gb_error *err);
/* The reply to a request whose key is not claimed, as hooks->first says. Returns REPLY or ERROR. */
enum gb_step gb_idempotency_repeat(struct gb_request_hooks *hooks, struct gb_http_response *response,
                                   struct gb_error *err);
int gb_idempotency_reused(struct gb_error *err); /* sets KEY_REUSED; -1 */
/* Ends the key after the handler has ended with hooks->step and hooks->error. Returns true when the response is
 * complete and its write to the database has begun: request->resume is set, and the reply waits. */
bool gb_idempotency_end(struct gb_request_hooks *hooks, struct gb_http_request *request,
                        struct gb_http_response *response);
/* Tells whether that write has ended. */
bool gb_idempotency_saved(const struct gb_request_hooks *hooks);
void gb_idempotency_free(struct gb_request_hooks *hooks);

/* --- key_sink.c: what body a streamed request with a key has ------------------------------------------------------ */

/* Around request->sink: the key is described when the body has arrived. Returns BODY, or ERROR without a sink. */
enum gb_step gb_key_sink_wrap(struct gb_request_hooks *hooks, struct gb_http_request *request, struct gb_error *err);
/* Instead of one: reads the body, then hooks->first is the reply if it has that body. Returns BODY or ERROR. */
enum gb_step gb_key_sink_compare(struct gb_request_hooks *hooks, struct gb_http_request *request, struct gb_error *err);
/* Writes GB_KEY_BODY characters and a NUL: a body that has not been read. */
void gb_key_body_unread(const struct gb_http_request *request, char *out);

#endif
