/* What the daemon's options say about the HTTP interface. */
#ifndef GB_API_OPTIONS_H
#define GB_API_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* What requests may take. */
struct gb_api_limits {
    uint64_t expanded_bytes;   /* of one body that comes in a content coding */
    unsigned decoders;         /* such bodies at a time */
    uint64_t operations_max;   /* under way at a time; as many ended ones are kept */
    uint64_t batch_max;        /* operations of one batch */
    uint64_t operation_ttl_s;  /* how long an ended operation is kept */
    uint64_t lease_age_max_s;  /* of a mapping; 0: no bound */
    uint64_t export_ttl_max_s; /* the longest life of an export */
    uint64_t metrics_sessions; /* sessions that have series of their own in /metrics */
};

#define GB_MAP_IDS_MAX 64
struct gb_id_list {
    bool any;
    unsigned count;
    uint32_t id[GB_MAP_IDS_MAX];
};

/* The users and groups that may map while no token is in force, besides root and the daemon's own user. */
struct gb_map_peers {
    struct gb_id_list uids;
    struct gb_id_list gids;
};

struct gb_fleet_url;

/* What the options say of the fleet that the node is in. Texts are borrowed. */
struct gb_api_fleet {
    const char *name;
    struct gb_name node;
    uint64_t uuid;
    const char *labels;             /* a JSON object */
    const struct gb_name *networks; /* of each listener; "": a UNIX socket, which has no URL */
    size_t network_count;
    const struct gb_fleet_url *urls; /* of the node; GB_FLEET_NETWORKS_MAX at most */
    size_t url_count;
    uint64_t orphan_ttl_s; /* of sessions that were set aside */
};

#endif
