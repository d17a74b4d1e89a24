/* Steps that handlers of several resources take. */
#ifndef GB_API_REQUEST_PATH_PARAMS_H
#define GB_API_REQUEST_PATH_PARAMS_H

#include <jansson.h>

#include "api/context.h"
#include "api/middleware/async.h"
#include "api/request/query.h"
#include "format/json_writer.h"

/* How long a sync waits when the client does not say, and at most. */
#define GB_SYNC_WAIT_S 30
#define GB_SYNC_WAIT_MAX_S 60
/* How long an allocation waits for memory at most; without "Prefer: wait=N" it does not. */
#define GB_ALLOC_WAIT_MAX_S 60

/* The session of the path, when there is such a session. 0 or -1. */
int gb_path_session(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err);
/* The same and the second name of the path; `what` is "pool name" and the like. */
int gb_path_names(const struct gb_http_request *request, const char *what, struct gb_name *ret_session,
                  struct gb_name *ret, struct gb_error *err);

/* A device by index or UUID, as text or as the field of a body (a number or a string). As the readers of query.h and
 * json.h. */
int gb_device_text(const struct gb_api *api, const char *text, size_t len, int *ret, struct gb_error *err);
int gb_device_field(const struct gb_api *api, const json_t *object, const char *key, int *ret, struct gb_error *err);

/* The body {"stream": name}; "default" where it is left out, also with the whole body. */
int gb_body_stream(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err);

/* The body {"name": name}. */
int gb_body_name(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err);

/* A function of the core that takes a session and the name of something in it, and has no result. */
typedef void gb_named_fn(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                         struct gb_call *call);

/* The whole handler: fn on what the path names, answered with gb_reply_nothing; `what` as in gb_path_names. */
enum gb_step gb_path_call(struct gb_http_request *request, struct gb_http_response *response, const char *what,
                          gb_named_fn *fn, struct gb_error *err);

/* A page of what a session holds, while it is written: visit functions of the core get it as arg, and unless it is full
 * add an item to out and set last_id. */
struct gb_walk {
    struct gb_json_writer out;
    const struct gb_api *api;
    struct gb_name session;
    struct gb_page page;
    int64_t last_id;
    bool full;
};

/* The page is as large as it may be: the visit adds nothing. */
bool gb_walk_full(struct gb_walk *walk);

/* The whole handler: list walks the core from page.after_id, at most page.limit items, and says whether there are more. */
enum gb_step gb_reply_page(struct gb_http_request *request, struct gb_http_response *response,
                           int (*list)(struct gb_walk *walk, bool *ret_more, struct gb_error *err),
                           struct gb_error *err);

/* When a sync that starts now gives up; for gb_async_end. */
uint64_t gb_sync_deadline_ns(const struct gb_http_request *request);

/* The bearer of the request may do this in that session ("" for what belongs to none) as well, beyond what its route asked
 * for. 0, or -1 with UNAUTHENTICATED or FORBIDDEN. */
int gb_api_permit(const struct gb_http_request *request, enum gb_scope scope, const char *session,
                  struct gb_error *err);

/* Who asks: the id of the token that was recognised; 0 while none is needed. UNAUTHENTICATED, or MALFORMED_REQUEST where the
 * header is there twice. */
int gb_api_bearer(const struct gb_http_request *request, int64_t *ret_token, struct gb_error *err);

/* The session that the bearer's token is bound to, "" when to none. As gb_api_permit else. */
int gb_api_bound(const struct gb_http_request *request, enum gb_scope scope, struct gb_name *ret, struct gb_error *err);

/* What a buffer is to be, from the fields bytes, dtype, shape, kind, pool, device, stream, mirrored, labels and the one that
 * names it. 0 or -1. */
int gb_buffer_params_read(const struct gb_api *api, const json_t *body, const char *key,
                          struct gb_buffer_params *params, struct gb_error *err);

/* Its bytes, dtype and shape alone, which say the same thing in two ways: what is missing follows from the rest. */
int gb_buffer_layout_read(const json_t *body, struct gb_buffer_params *params, struct gb_error *err);

/* Server-Timing of a copy that the device made. 0 or -1. */
int gb_add_timing(const struct gb_http_request *request, const struct gb_transfer_times *times,
                  struct gb_http_response *response, struct gb_error *err);

/* Server-Timing of an upload whose last byte came at recv_ns. 0 or -1. */
int gb_add_upload_timing(const struct gb_http_request *request, const struct gb_transfer_times *times, uint64_t recv_ns,
                         struct gb_http_response *response, struct gb_error *err);

/* Ends the text and makes it the reply. */
enum gb_step gb_reply_json(struct gb_json_writer *out, int status, struct gb_http_response *response,
                           struct gb_error *err);
/* The same with an entity tag of what it says, which begins with that letter; 304 for who has it. */
enum gb_step gb_reply_tagged(struct gb_json_writer *out, char kind, struct gb_http_response *response,
                             struct gb_error *err);
/* 204. */
gb_async_reply gb_reply_nothing;
/* The call's buffer, 201 where it was created. */
gb_async_reply gb_reply_buffer;

#endif
