/* All numbers of the daemon as they were at one time, read from where they are counted: what /metrics is written from. Fixed in size
 * but for pools: never one for each buffer. */
#ifndef GB_API_SHEET_H
#define GB_API_SHEET_H

#include "api/context.h"
#include "api/exposition.h"
#include "base/process.h"

/* What the lines of metrics.def call v. */
struct gb_daemon_numbers {
    struct gb_core_stats core;
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
    uint64_t failed; /* not of copies: these belong to a socket */
    uint64_t ns;
};

#define GB_SHEET_DIRECTIONS 3
#define GB_SHEET_SOCKETS 2 /* the first of them */

/* A pool and whose it is; session is "" for a device's own. */
struct gb_sheet_pool {
    struct gb_name session;
    struct gb_pool_view view;
};

/* The last reading of a device. */
struct gb_sheet_health {
    struct gb_health health;
    uint64_t age_ns; /* GB_METRIC_UNKNOWN: there is no reading */
};

struct gb_sheet {
    struct gb_daemon_numbers daemon;
    struct gb_direction_numbers directions[GB_SHEET_DIRECTIONS];
    uint64_t operations[GB_OPERATION_STATES];
    struct gb_device_rec *devices;
    int device_count;
    struct gb_sheet_health *health; /* of each */
    uint64_t *reasons;              /* [device * GB_CLOCK_REASONS + reason]: 1, 0 or GB_METRIC_UNKNOWN */
    struct gb_sheet_pool *pools;
    size_t pool_count;
    size_t pool_room;
};

/* [now] Asks neither device nor database. SATURATED. */
int gb_sheet_read(struct gb_sheet *sheet, struct gb_api *api, struct gb_http_server *server, struct gb_error *err);
void gb_sheet_done(struct gb_sheet *sheet);

#endif
