/* What all handlers share. */
#ifndef GB_API_CONTEXT_H
#define GB_API_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "api/options.h"
#include "base/process.h"
#include "core/core.h"
#include "http/http.h"

/* The numbers that the kernel last gave of this process. */
struct gb_process_look {
    pthread_mutex_t lock; /* held for the microseconds that the kernel is asked */
    struct gb_process process;
    uint64_t at_ns; /* 0: not asked yet */
};

struct gb_backend;
struct gb_digests;
struct gb_fleet;
struct gb_handovers;
struct gb_hub;
struct gb_metrics;
struct gb_moves;
struct gb_operations;
struct gb_polls;
struct gb_pulls;
struct gb_replicas;
struct gb_response_cache;

/* gb_http_request.app. A folder above owns what it keeps behind a pointer here, and knows it alone. */
struct gb_api {
    struct gb_core *core;
    const struct gb_http_route *routes;
    size_t route_count;
    char *version;
    char *backend_name;
    char *data_dir;     /* of the bytes of durable buffers; "": no durable buffers */
    int64_t started_us; /* makes the entity tags of this process differ from those of earlier ones */
    atomic_bool draining;
    pthread_mutex_t reach_lock;
    struct gb_error reach; /* why clients cannot reach a socket */
    struct gb_api_limits limits;
    struct gb_map_peers map_peers;
    atomic_int reports;              /* long replies that are being made */
    atomic_uint decoders;            /* bodies that are being decoded */
    char (*uuid)[GB_UUID_TEXT_SIZE]; /* by device index; fixed while the process runs */
    int devices;
    struct gb_peer_rec *peers; /* [device * devices + peer]; fixed as well */
    struct gb_http_canned *live;
    struct gb_http_canned *root[2]; /* while no token is needed; while one is */
    struct gb_http_canned *openapi;
    struct gb_response_cache *stats; /* the reply to GET /v1/stats */
    struct gb_metrics *metrics;
    struct gb_process_look process;
    uint64_t process_started_ns; /* since the epoch */
    struct gb_digests *digests;
    struct gb_tables *tables;
    struct gb_operations *operations;
    struct gb_polls *polls;
    struct gb_pulls *pulls;       /* borrowed; NULL: nothing is pulled */
    const char *const *pull_from; /* origins that options name */
    size_t pull_from_count;
    const char *const *files_from; /* folders that options name */
    size_t files_from_count;
    struct gb_fleet *fleet; /* borrowed; NULL: the node is in no fleet */
    struct gb_moves *moves; /* borrowed; NULL: likewise */
    struct gb_replicas *replicas;
    struct gb_hub *hub; /* borrowed; NULL: the node is no hub */
    struct gb_handovers *handovers;
    pthread_mutex_t
        fleet_lock; /* held where the core reports to the fleet, so that the fleet is not closed meanwhile */
    struct gb_api_fleet fleet_is; /* its options */
    _Atomic uint64_t redirects;   /* answers 307 */
};

static inline struct gb_api *gb_api_of(const struct gb_http_request *request) {
    return request->app;
}

/* The columns of the table of routes, and the handlers in it. */

/* The scope that a token needs. OWN: a token that is bound to a session will do as well; the handler asks for the
 * session. SEE: scope verify or map. */
enum gb_access {
    GB_ACCESS_OPEN,
    GB_ACCESS_VERIFY,
    GB_ACCESS_READ,
    GB_ACCESS_WRITE,
    GB_ACCESS_MAP,
    GB_ACCESS_ADMIN,
    GB_ACCESS_FLEET,
    GB_ACCESS_OWN_VERIFY,
    GB_ACCESS_OWN_SEE,
    GB_ACCESS_OWN_WRITE,
    GB_ACCESS_OWN_MAP
};

/* What the path names. From SESSION on, its first parameter is a session's name. */
enum gb_target {
    GB_TARGET_DAEMON,  /* nothing of a session */
    GB_TARGET_SESSION, /* a session itself */
    GB_TARGET_MEMBER,  /* something within a session */
    GB_TARGET_BUFFER   /* a buffer, or something of it: the second parameter is its name */
};

/* What a token with a prefix may do here, which reaches only buffers whose names begin with that. */
enum gb_reach {
    GB_REACH_NEVER, /* nothing: the route cannot be limited to them */
    GB_REACH_FREE,  /* all that its scope permits: the route shows no single buffer */
    GB_REACH_NAMED, /* if the buffer that the path names has the prefix */
    GB_REACH_ASKED  /* the handler asks for each name that it reads or shows (gb_api_reach, gb_api_prefix) */
};

/* The columns of routes.def that the pipeline reads. */
struct gb_route {
    enum gb_access access;
    enum gb_target target;
    enum gb_reach reach;
    bool keyed;            /* an Idempotency-Key replays the first answer */
    const char *operation; /* what Prefer: respond-async makes of it; "": the preference is ignored */
};

/* Whether what the route does changes nothing: a token of scope read may do it. */
static inline bool gb_route_reads(const struct gb_route *route) {
    switch (route->access) {
    case GB_ACCESS_OPEN:
    case GB_ACCESS_VERIFY:
    case GB_ACCESS_READ:
    case GB_ACCESS_OWN_VERIFY:
    case GB_ACCESS_OWN_SEE:
        return true;
    case GB_ACCESS_WRITE:
    case GB_ACCESS_MAP:
    case GB_ACCESS_ADMIN:
    case GB_ACCESS_FLEET:
    case GB_ACCESS_OWN_WRITE:
    case GB_ACCESS_OWN_MAP:
        break;
    }
    return false;
}

/* Returns the columns of the request's route. The request has been routed. */
static inline const struct gb_route *gb_route_of(const struct gb_http_request *request) {
    return request->route->app;
}

/* What the resources give api.c beside their handlers. */

/* gb_http_server_config.ended: notes the request if the audit records such. [any thread of the server, never blocks] */
void gb_api_audit_ended(void *app, const struct gb_http_request *request, const struct gb_http_end *end);

/* Fills devices, uuid and peers, which never change. Returns 0, or -1 when memory is exhausted. */
int gb_api_read_devices(struct gb_api *api, struct gb_backend *backend);

/* gb_http_server_config.feed. */
extern const struct gb_http_feed_hooks gb_api_feed_hooks;

/* The texts of /metrics that were written last, one for each format. */
struct gb_metrics *gb_metrics_new(void);          /* NULL: memory is exhausted */
void gb_metrics_free(struct gb_metrics *metrics); /* NULL is accepted */

/* Handlers, by the names in routes.def. */
#define GB_ROUTE(method, path, name, body, access, target, reach, key, operation, query) gb_http_handler gb_api_##name;
#include "api/routes.def"
#undef GB_ROUTE

/* --- the page ----------------------------------------------------------------------------------------------------- */

struct gb_web_file {
    const char *name; /* below /ui/ */
    const char *type; /* media type */
    const char *tag;  /* entity tag of the plain form, without quotes; the packed form's is this and "-gz" */
    const unsigned char *plain;
    size_t plain_len;
    const unsigned char *packed; /* the same, packed by gzip */
    size_t packed_len;
};

extern const struct gb_web_file gb_web_files[];
extern const size_t gb_web_file_count;

/* The paths of the page: gb_http_server_config.pages. */
extern const char *const gb_api_pages[];
extern const size_t gb_api_page_count;

#endif
