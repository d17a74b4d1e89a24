/* What all handlers share. */
#ifndef GB_API_CONTEXT_H
#define GB_API_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/limits.h"
#include "base/process.h"
#include "core/core.h"
#include "http/http.h"

/* The numbers that the kernel last gave of this process. */
struct gb_process_look {
    pthread_mutex_t lock; /* held for the microseconds that the kernel is asked */
    struct gb_process process;
    uint64_t at_ns; /* 0: none yet */
};

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
    char *data_dir;     /* of the bytes of durable buffers; "": there is none */
    int64_t started_us; /* tells the entity tags of this process from those of earlier ones */
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
    struct gb_operations *operations;
    struct gb_polls *polls;
    struct gb_pulls *pulls;       /* borrowed; NULL: nothing is pulled */
    const char *const *pull_from; /* origins that options name */
    size_t pull_from_count;
    struct gb_fleet *fleet; /* borrowed; NULL: the node is in none */
    struct gb_moves *moves; /* borrowed; NULL: likewise */
    struct gb_replicas *replicas;
    struct gb_hub *hub; /* borrowed; NULL: the node is none */
    struct gb_handovers *handovers;
    pthread_mutex_t fleet_lock;   /* against its end, where the core tells it something */
    struct gb_api_fleet fleet_is; /* what the options say of it */
    _Atomic uint64_t redirects;   /* answers 307 */
};

static inline struct gb_api *gb_api_of(const struct gb_http_request *request) {
    return request->app;
}

#endif
