/* All numbers of the daemon at one time; /metrics is written from them. The size is fixed but for pools and the largest
 * sessions: there is no series for each buffer. */
#ifndef GB_API_RESOURCES_METRICS_SNAPSHOT_H
#define GB_API_RESOURCES_METRICS_SNAPSHOT_H

#include "api/context.h"
#include "api/pipeline/operations.h"
#include "base/process.h"
#include "fleet/fleet.h"
#include "fleet/hub/hub.h"
#include "fleet/pull/pull.h"
#include "fleet/replica/replica.h"
#include "format/exposition.h"

/* The types of v in the lines of metrics.def. */
struct gb_daemon_numbers {
    struct gb_core_stats core;
    struct gb_storage_numbers storage;
    struct gb_scrub_numbers scrub;
    struct gb_key_stats keys;
    struct gb_http_server_stat http;
    struct gb_process process;
    uint64_t started_ns; /* the process */
};

/* Uploads, downloads, copies between buffers. */
struct gb_direction_numbers {
    const char *name;
    uint64_t count;
    uint64_t bytes;
    uint64_t copy_ns;
    uint64_t queue_ns;
    uint64_t ns;
};

#define GB_METRICS_SNAPSHOT_DIRECTIONS 3
#define GB_METRICS_SNAPSHOT_SOCKETS 2 /* the first of them */

/* A pool and its owner; session is "" for a device's own. */
struct gb_metrics_snapshot_pool {
    struct gb_name session;
    struct gb_pool_view view;
};

/* A session with series of its own, or all others together. The latter has the name GB_SESSION_REST; numbers that
 * cannot be added up are not known. */
struct gb_metrics_snapshot_session {
    struct gb_name name;
    bool rest;
    uint64_t used_bytes;
    uint64_t pinned_bytes;
    uint64_t buffers;
    uint64_t quota_bytes;
    struct gb_session_stats stats;
};
#define GB_SESSION_REST "_other" /* no name that a session may have */
#define GB_OF_ONE(v, value) ((v)->rest ? GB_METRIC_UNKNOWN : (value))

/* The last reading of a device. */
struct gb_metrics_snapshot_health {
    struct gb_health health;
    uint64_t age_ns;    /* GB_METRIC_UNKNOWN: there is no reading */
    uint64_t own_bytes; /* of the device, that this process has */
    uint64_t others_bytes;
};

/* Of a node that is in a fleet. */
struct gb_fleet_numbers {
    bool present;
    struct gb_fleet_stat stat;
    struct gb_replica_stat copies;
    uint64_t redirects;
    uint64_t offset_ns; /* of the directory's clock, whichever is ahead */
};
#define GB_FLEET_STATES (GB_FLEET_DUPLICATE + 1)

/* Of a node that passes requests of others on. */
struct gb_hub_numbers {
    bool present;
    struct gb_hub_stat stat;
};

/* Of a daemon that may copy from others. */
struct gb_pulls_numbers {
    bool present;
    struct gb_pulls_stat stat;
};

#define GB_STORAGE_STATES (GB_DISK_UNAVAILABLE + 1)

struct gb_metrics_snapshot {
    struct gb_daemon_numbers daemon;
    uint64_t storage_states[GB_STORAGE_STATES]; /* 1 for the present state, else 0 */
    struct gb_fleet_numbers fleet;
    uint64_t fleet_states[GB_FLEET_STATES]; /* the same */
    struct gb_hub_numbers hub;
    struct gb_pulls_numbers pulls;
    uint64_t evictions_on_request;
    const char *version; /* borrowed, as the next two */
    const char *backend;
    const struct gb_http_route *routes;
    size_t route_count;
    struct gb_direction_numbers directions[GB_METRICS_SNAPSHOT_DIRECTIONS];
    uint64_t failed[GB_FAILED_COUNTED][GB_FAILURES];
    uint64_t operations[GB_OPERATION_STATES];
    struct gb_device_rec *devices;
    int device_count;
    struct gb_memory_numbers *memory;          /* of each device */
    struct gb_metrics_snapshot_health *health; /* of each */
    uint64_t *reasons;                         /* [device * GB_CLOCK_REASONS + reason]: 1, 0 or GB_METRIC_UNKNOWN */
    struct gb_metrics_snapshot_pool *pools;
    size_t pool_count;
    size_t pool_room;
    struct gb_metrics_snapshot_session *sessions; /* the largest, at most as many as configured, and the rest */
    size_t session_count;
};

/* Reads all numbers, and asks neither device nor database. [now] Returns 0, or -1 with SATURATED. */
int gb_metrics_snapshot_read(struct gb_metrics_snapshot *snapshot, struct gb_api *api, struct gb_http_server *server,
                             struct gb_error *err);
void gb_metrics_snapshot_done(struct gb_metrics_snapshot *snapshot);

#endif
