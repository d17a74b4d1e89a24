/* Statistics: the numbers that the core counts. Included by core.h. */
#ifndef GB_CORE_OBSERVE_STATS_H
#define GB_CORE_OBSERVE_STATS_H

#include "core/observe/audit.h"
#include "core/public/types.h"
#include "model/model.h"

struct gb_core;

/* Transfers by direction and kind of memory, since start. */
struct gb_kind_counters {
    uint64_t count;
    uint64_t bytes;
    uint64_t copy_ns;  /* 0 where the CPU reaches the memory */
    uint64_t queue_ns; /* waited behind earlier work */
};

struct gb_core_stats {
    uint64_t sequence; /* raised by every acknowledged change */
    int64_t started_at_us;
    struct gb_counters counters; /* lifetime */
    uint64_t sessions;
    uint64_t buffers;
    uint64_t buffer_bytes;
    uint64_t lost_buffers;
    uint64_t damaged_buffers; /* whose bytes on disk were found so */
    uint64_t stored_buffers;  /* whose bytes are on disk alone */
    uint64_t mirrored_buffers;
    uint64_t mirrored_bytes; /* of these, which have them on one side or on both */
    uint64_t leases;         /* granted, not ended */
    uint64_t held_bytes;     /* deleted, replaced or lost, and still mapped */
    uint64_t adopted;        /* pieces of memory of other processes that are mapped here */
    uint64_t adopted_bytes_max;
    uint64_t uploads_running;
    uint64_t open_upload_bytes; /* held by uploads in several requests that are not completed */
    uint64_t downloads_running;
    uint64_t writes_running; /* copies, fills, syncs of mirrored buffers */
    struct gb_kind_counters kinds[GB_DIRECTION_COUNT][GB_KIND_COUNT];
    struct gb_level_numbers level;                       /* of all memory for buffers */
    struct gb_memory_numbers kind_memory[GB_KIND_COUNT]; /* the same by kind of memory */
    uint64_t pinned_bytes;                               /* page-locked host memory, slots included */
    uint64_t pinned_limit_bytes;                         /* GB_UNLIMITED: none */
    uint64_t slots_total;
    uint64_t slots_free;
    uint64_t slot_bytes;
    uint64_t slot_waits;   /* times a transfer found no slot free */
    uint64_t slots_wanted; /* transfers that stand in line now */
    struct gb_store_stat store;
    struct gb_audit_numbers audit;
};

/* [now] Cheap. */
uint64_t gb_core_sequence(struct gb_core *core);
void gb_core_stats(struct gb_core *core, struct gb_core_stats *ret);

struct gb_session_stats {
    uint64_t sequence;
    struct gb_session_view session;
    struct gb_counters counters; /* since the session was loaded or made */
    struct gb_level_numbers level;
    uint64_t lost_buffers;
    uint64_t leases; /* as gb_core_stats; those being made included */
    uint64_t held_bytes;
    uint64_t adopted;
    uint64_t open_uploads; /* in several requests, not completed */
    uint64_t open_upload_bytes;
};
int gb_session_stats(struct gb_core *core, const struct gb_name *name, struct gb_session_stats *ret,
                     struct gb_error *err);

#endif
