/* The sessions that have series of their own: the largest. There may be ten thousand, and collectors keep each series
 * for ever. */
#ifndef GB_API_OBSERVE_METRICS_SESSIONS_H
#define GB_API_OBSERVE_METRICS_SESSIONS_H

#include "api/observe/metrics_snapshot.h"

/* The facts of all sessions that the choice needs. */
struct gb_metrics_candidate {
    struct gb_name name;
    int64_t id;
    uint64_t used_bytes;
    uint64_t pinned_bytes;
    uint64_t buffers;
    uint64_t quota_bytes;
};

struct gb_metrics_sessions {
    uint64_t most; /* the most that are chosen; 0: none, and no rest either */
    struct gb_metrics_candidate *items;
    size_t count;
    size_t room;
};

/* Adds a session. The owner frees items. Returns 0, or -1 when memory is exhausted. */
int gb_metrics_sessions_add(struct gb_metrics_sessions *list, const struct gb_session_view *view);

/* Fills snapshot->sessions: the sessions with the most bytes (the older of equal ones), and all others as one. Sorts
 * the list. Returns 0, or -1 with SATURATED. */
int gb_metrics_sessions_pick(struct gb_metrics_sessions *list, struct gb_core *core,
                             struct gb_metrics_snapshot *snapshot, struct gb_error *err);

#endif
