/* What handlers share. */
#ifndef GB_API_CONTEXT_H
#define GB_API_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/api.h"
#include "api/middleware/digest.h"
#include "api/middleware/longpoll.h"
#include "api/middleware/operations.h"
#include "api/observe/metrics.h"
#include "api/observe/response_cache.h"
#include "api/request/query.h"
#include "base/process.h"

/* gb_http_route.access. OWN: also for a token that is bound to a session; the handler asks for which. SEE: scope read or
 * map. */
enum gb_access {
    GB_ACCESS_OPEN,
    GB_ACCESS_READ,
    GB_ACCESS_WRITE,
    GB_ACCESS_MAP,
    GB_ACCESS_ADMIN,
    GB_ACCESS_OWN_READ,
    GB_ACCESS_OWN_SEE,
    GB_ACCESS_OWN_WRITE,
    GB_ACCESS_OWN_MAP
};

/* The last look at this process. */
struct gb_process_look {
    pthread_mutex_t lock; /* held while the kernel is asked: some microseconds */
    struct gb_process process;
    uint64_t at_ns; /* 0: none yet */
};

struct gb_api {
    struct gb_core *core;
    char *version;
    char *backend_name;
    char *backend_note;
    int64_t started_us; /* tells the entity tags of this process from those of earlier ones */
    atomic_bool draining;
    struct gb_api_limits limits;
    struct gb_map_peers map_peers;
    atomic_int reports;              /* long answers that are being made */
    atomic_uint decoders;            /* bodies that are being decoded */
    char (*uuid)[GB_UUID_TEXT_SIZE]; /* by device index; fixed while the process runs */
    int devices;
    struct gb_peer_rec *peers; /* [device * devices + peer]; fixed as well */
    struct gb_http_canned *live;
    struct gb_http_canned *root;
    struct gb_http_canned *openapi;
    struct gb_response_cache stats;
    struct gb_metrics metrics;
    struct gb_process_look process;
    uint64_t process_started_ns; /* since the epoch */
    struct gb_digests digests;
    struct gb_operations operations;
    struct gb_polls polls;
};

static inline struct gb_api *gb_api_of(const struct gb_http_request *request) {
    return request->app;
}

/* Handlers, by the names in routes.def. */
#define GB_ROUTE(method, path, name, body, access, query) gb_http_handler gb_api_##name;
#include "api/routes.def"
#undef GB_ROUTE

#endif
