/* The objects that have numbers, and the labels of each. */
#ifndef GB_API_OBSERVE_METRICS_SERIES_H
#define GB_API_OBSERVE_METRICS_SERIES_H

#include "api/observe/metrics_snapshot.h"

/* GB_SCOPE(name, type of v in the lines of metrics.def). Another scope takes a line here and a function in
 * metrics_series.c. */
#define GB_SCOPES(GB_SCOPE)                                                                                            \
    GB_SCOPE(DAEMON, struct gb_daemon_numbers)                                                                         \
    GB_SCOPE(BUILD, struct gb_daemon_numbers)                                                                          \
    GB_SCOPE(PROCESS, struct gb_daemon_numbers)                                                                        \
    GB_SCOPE(STORAGE, struct gb_storage_numbers)                                                                       \
    GB_SCOPE(SCRUB, struct gb_scrub_numbers)                                                                           \
    GB_SCOPE(STORAGE_STATE, uint64_t)                                                                                  \
    GB_SCOPE(FLEET, struct gb_fleet_numbers)                                                                           \
    GB_SCOPE(FLEET_STATE, uint64_t)                                                                                    \
    GB_SCOPE(HUB, struct gb_hub_numbers)                                                                               \
    GB_SCOPE(PULLS, struct gb_pulls_numbers)                                                                           \
    GB_SCOPE(EVICTION, uint64_t)                                                                                       \
    GB_SCOPE(LIMIT, uint64_t)                                                                                          \
    GB_SCOPE(FAILURE, uint64_t)                                                                                        \
    GB_SCOPE(DEVICE, struct gb_device_rec)                                                                             \
    GB_SCOPE(DEVICE_INFO, struct gb_device_rec)                                                                        \
    GB_SCOPE(MEMORY, struct gb_memory_numbers)                                                                         \
    GB_SCOPE(MEMORY_FAILURE, uint64_t)                                                                                 \
    GB_SCOPE(HEALTH, struct gb_metrics_snapshot_health)                                                                \
    GB_SCOPE(HEALTH_PROCESS, uint64_t)                                                                                 \
    GB_SCOPE(REASON, uint64_t)                                                                                         \
    GB_SCOPE(POOL, struct gb_pool_view)                                                                                \
    GB_SCOPE(POOL_FAILURE, uint64_t)                                                                                   \
    GB_SCOPE(SESSION, struct gb_metrics_snapshot_session)                                                              \
    GB_SCOPE(DIRECTION, struct gb_direction_numbers)                                                                   \
    GB_SCOPE(SOCKET, struct gb_direction_numbers)                                                                      \
    GB_SCOPE(SOCKET_FAILURE, uint64_t)                                                                                 \
    GB_SCOPE(KIND, struct gb_kind_counters)                                                                            \
    GB_SCOPE(KIND_MEMORY, struct gb_memory_numbers)                                                                    \
    GB_SCOPE(KIND_FAILURE, uint64_t)                                                                                   \
    GB_SCOPE(OPERATION, uint64_t)

enum gb_scope_of_metric {
#define GB_SCOPE(name, type) GB_METRIC_OF_##name,
    GB_SCOPES(GB_SCOPE)
#undef GB_SCOPE
        GB_METRIC_SCOPES
};

/* The size of two names, or of what a device is, and the text around them. */
#define GB_SERIES_LABELS_SIZE (3 * (GB_NAME_MAX + 1) + 160)

/* One object of a scope. */
struct gb_series {
    char labels[GB_SERIES_LABELS_SIZE];
    const void *v;
};

struct gb_series_list {
    struct gb_series *items;
    size_t count;
    size_t room;
    bool failed; /* memory was exhausted */
};

/* Makes the series of all scopes. Labels are the same in every family of a scope, so they are written once. v points
 * into the snapshot. The caller frees items. */
void gb_series_fill(struct gb_series_list *list, const struct gb_metrics_snapshot *snapshot,
                    enum gb_scope_of_metric scope);

void gb_series_label(struct gb_series *series, const char *name, const char *value);

#endif
