/* Which sessions have series of their own: the largest. There may be ten thousand, and series are for ever where they are collected. */
#ifndef GB_API_OBSERVE_METRICS_SESSIONS_H
#define GB_API_OBSERVE_METRICS_SESSIONS_H

#include "api/observe/metrics_snapshot.h"

/* What is to be known of all to choose. */
struct gb_metrics_candidate {
    struct gb_name name;
    int64_t id;
    uint64_t used_bytes;
    uint64_t pinned_bytes;
    uint64_t buffers;
    uint64_t quota_bytes;
};

struct gb_metrics_sessions {
    uint64_t most; /* that are chosen; 0: none, and no rest either */
    struct gb_metrics_candidate *items;
    size_t count;
    size_t room;
};

/* -1: memory is exhausted. The owner frees items. */
int gb_metrics_sessions_add(struct gb_metrics_sessions *list, const struct gb_session_view *view);

/* Into sheet->sessions: those with the most bytes (of equal ones the older), and all others as one. Sorts the list.
 * SATURATED. */
int gb_metrics_sessions_pick(struct gb_metrics_sessions *list, struct gb_core *core,
                             struct gb_metrics_snapshot *snapshot, struct gb_error *err);

#endif
