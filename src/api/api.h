/* The HTTP interface: its routes, and the object that their handlers work on. */
#ifndef GB_API_API_H
#define GB_API_API_H

#include <stdbool.h>
#include <stddef.h>

#include "api/options.h"
#include "base/error.h"
#include "core/core.h"
#include "fleet/fleet.h"
#include "http/http.h"

/* The OpenAPI document, which src/api/document/generate writes. */
extern const char gb_openapi_json[];
extern const size_t gb_openapi_json_len;

/* gb_http_server_config.app of a server with these routes. */
struct gb_api;
struct gb_hub;
struct gb_moves;
struct gb_replicas;
struct gb_pulls;

/* What GET /v1 says of the daemon. */
struct gb_api_about {
    const char *version;
    const char *data_dir;     /* of the bytes of durable buffers; NULL: no durable buffers */
    const char *backend_note; /* the reason for the choice of this backend */
    /* What the daemon has given up. */
    const char *seccomp; /* "errno" */
    int landlock;        /* the version; 0: not set */
    bool privileges;     /* privileges are dropped */
    bool core_dumps;     /* core dumps are permitted */
    /* What it stands behind and on. */
    bool proxied;    /* it takes a proxy's word on clients */
    bool kernel_tls; /* the kernel could encrypt records; it is not asked to */
};

/* Makes the object. core and backend are borrowed until gb_api_free; what `about` has is copied. Returns NULL when
 * memory is exhausted. */
struct gb_api *gb_api_new(struct gb_core *core, struct gb_backend *backend, const struct gb_api_about *about);
/* Frees the object after the server has stopped and the core is closed. NULL is accepted. */
void gb_api_free(struct gb_api *api);

/* Both copy their argument and are called before the server starts. Without them the defaults of
 * src/daemon/options.def hold. */
void gb_api_set_limits(struct gb_api *api, const struct gb_api_limits *limits);
void gb_api_set_map_peers(struct gb_api *api, const struct gb_map_peers *peers);

/* Buffers are pulled from those origins, and from nodes of the fleet. All is borrowed until the server has stopped.
 * Called before gb_api_serve; without it nothing is pulled. */
void gb_api_set_pulls(struct gb_api *api, struct gb_pulls *pulls, const char *const *origins, size_t count);
/* Files below those folders may be copied, by the pulls that were set. Borrowed likewise. */
void gb_api_set_files(struct gb_api *api, const char *const *folders, size_t count);

/* Sessions of other nodes are brought here by those. Borrowed until the server has stopped. */
void gb_api_set_moves(struct gb_api *api, struct gb_moves *moves);
void gb_api_set_replicas(struct gb_api *api, struct gb_replicas *replicas);
/* This node passes requests of others on by that. Borrowed likewise; NULL: no longer. */
void gb_api_set_hub(struct gb_api *api, struct gb_hub *hub);
/* In whose name this node asks another for what no client has asked for: of gb_replicas_config, cut to the size. */
void gb_api_node_who(const struct gb_name *node, char *ret, size_t size);

/* The node is in that fleet; NULL: it will be. Both are borrowed until the server has stopped. Called before
 * gb_api_serve. Deleted sessions that are registered are reported to the fleet until gb_api_leave_fleet, which is due
 * before the fleet is closed. */
void gb_api_set_fleet(struct gb_api *api, struct gb_fleet *fleet, const struct gb_api_fleet *is);
void gb_api_leave_fleet(struct gb_api *api);
/* Does what the directory asks of this node. Returns false if that cannot begin yet: the caller asks again. failed:
 * called if the work fails, at any time on any thread before the moves and the replicas are closed. */
bool gb_api_fleet_follow(struct gb_api *api, enum gb_order_what what, const struct gb_name *session,
                         gb_fleet_followed *failed, void *arg);

/* For gb_fleet_config: what the node reports of its devices and of its registered sessions, and what becomes of a
 * session whose record in the directory differs. [any thread, never blocks] */
size_t gb_api_fleet_devices(struct gb_api *api, struct gb_fleet_device *ret); /* GB_FLEET_DEVICES_MAX at most */
bool gb_api_fleet_has(struct gb_api *api, const struct gb_fleet_session *record);
size_t gb_api_fleet_own_sessions(struct gb_api *api, int64_t *cursor, struct gb_fleet_session *ret, size_t max);
bool gb_api_fleet_own_session(struct gb_api *api, const struct gb_name *name, struct gb_fleet_session *ret);
void gb_api_fleet_raise(struct gb_api *api, const struct gb_fleet_session *mine, uint64_t epoch);
void gb_api_fleet_set_aside(struct gb_api *api, const struct gb_fleet_session *mine);

/* Sets app, the routes, the pages and all hooks of config. config then points into api. */
void gb_api_serve(struct gb_api *api, struct gb_http_server_config *config);

/* The hook `ended` of config, for a hook in its place. */
void gb_api_ended(void *app, const struct gb_http_request *request, const struct gb_http_end *end);

/* From now on /readyz says 503, and no request waits for a change. [any thread, never blocks] */
void gb_api_set_draining(struct gb_api *api);
/* While err is set, clients cannot reach a socket for that reason, and /readyz says 503. [any thread] */
void gb_api_set_reach(struct gb_api *api, const struct gb_error *err);
/* Tokens were put in force, or one has expired: leases end if their token is no longer in force, and the tokens of
 * requests that wait for a change are checked again. The server's recheck ends the rest. [any thread, never blocks] */
void gb_api_tokens_changed(struct gb_api *api);

#endif
