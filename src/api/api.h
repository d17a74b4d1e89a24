/* The HTTP interface: routes, and the object that their handlers work on. */
#ifndef GB_API_API_H
#define GB_API_API_H

#include <stddef.h>

#include "base/error.h"
#include "core/core.h"
#include "http/http.h"

extern const struct gb_http_route gb_api_routes[];
extern const size_t gb_api_route_count;

/* The page's paths, as gb_http_server_config.pages. */
extern const char *const gb_api_pages[];
extern const size_t gb_api_page_count;

/* etc/openapi.json, embedded by the build. */
extern const char gb_openapi_json[];
extern const size_t gb_openapi_json_len;

/* gb_http_server_config.app of a server with these routes. */
struct gb_api;

/* core and backend are borrowed until gb_api_free; backend_note says why this backend was picked. NULL when memory is
 * exhausted. */
struct gb_api *gb_api_new(struct gb_core *core, struct gb_backend *backend, const char *backend_note,
                          const char *version);
/* What requests may take; before the server starts. Else the defaults of options.def hold. */
struct gb_api_limits {
    uint64_t expanded_bytes;  /* of a body that comes in a content coding */
    unsigned decoders;        /* such bodies at a time */
    uint64_t operations_max;  /* under way at a time, and as many that have ended are kept */
    uint64_t batch_max;       /* operations of one batch */
    uint64_t operation_ttl_s; /* for which one that has ended is kept */
    uint64_t export_ttl_max_s;
    uint64_t metrics_sessions; /* that have series of their own in /metrics */
};
void gb_api_set_limits(struct gb_api *api, const struct gb_api_limits *limits);
/* Who may map while no token is in force, besides root and the daemon's own user; before the server starts. */
#define GB_MAP_IDS_MAX 64
struct gb_id_list {
    bool any;
    unsigned count;
    uint32_t id[GB_MAP_IDS_MAX];
};
struct gb_map_peers {
    struct gb_id_list uids;
    struct gb_id_list gids;
};
void gb_api_set_map_peers(struct gb_api *api, const struct gb_map_peers *peers);
/* The server has stopped, and the core is closed. NULL is accepted. */
void gb_api_free(struct gb_api *api);

/* From now on /readyz says 503. [any thread, never blocks] */
void gb_api_set_draining(struct gb_api *api);
/* Requests that wait for a change: may they still? [any thread, never blocks] */
void gb_api_tokens_changed(struct gb_api *api);

/* gb_http_server_config.authorize: once a token is in force every route that is not open needs one. [now] */
int gb_api_authorize(void *app, const struct gb_http_request *request, struct gb_error *err);

/* gb_http_server_config.around: Prefer: respond-async and Idempotency-Key, for all handlers that change something. */
enum gb_step gb_api_pipeline(gb_http_handler *handler, struct gb_http_request *request,
                             struct gb_http_response *response, struct gb_error *err);

/* gb_http_server_config.feed. */
extern const struct gb_http_feed_hooks gb_api_feed_hooks;

/* The hooks of the same names. The first three: a connection's leases end with it, and while there are any it is not idle.
 * explain: who maps what could not be changed. */
void gb_api_peer_gone(void *app, struct gb_http_peer *peer);
void gb_api_peer_free(void *app, struct gb_http_peer *peer);
bool gb_api_peer_busy(void *app, const struct gb_http_peer *peer);
void gb_api_explain(void *app, const struct gb_http_request *request, const struct gb_error *error,
                    struct gb_http_response *response);

#endif
