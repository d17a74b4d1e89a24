/* The core and its devices, as all folders of the core know them. The parts that folders above own lie behind pointers.
 *
 * Threads: three lanes for each device (util/lane.h), the compute lanes, those for inspection and reports, one
 * housekeeper (core/housekeeper.c), the backend's watch threads, the store's writer, and the callers'.
 *
 * Locks, in this order: the sessions' map; one session; one transfer; then the leaves (slots, events, lanes, a pool's
 * numbers, tokens). No lock is held across a call of the backend or the store, nor across a caller's callback. The
 * exception is a transfer's wake lock, which is held across wake alone. */
#ifndef GB_CORE_RUNTIME_RUNTIME_H
#define GB_CORE_RUNTIME_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/map.h"
#include "core/public/lifecycle.h"
#include "core/public/types.h"
#include "core/runtime/call.h"
#include "core/util/lane.h"
#include "core/util/sets.h"
#include "core/util/staging.h"
#include "model/history.h"
#include "model/model.h"

/* Counters that many threads add to: those of counters.def, and the levels of memory. */

struct gb_live_counters {
#define GB_COUNTER(name) _Atomic uint64_t name;
#include "model/counters.def"
#undef GB_COUNTER
};

struct gb_kind_live_counters {
    _Atomic uint64_t count;
    _Atomic uint64_t bytes;
    _Atomic uint64_t copy_ns;
    _Atomic uint64_t queue_ns;
};

void gb_kind_live_counters_add(struct gb_kind_live_counters *live_counters, uint64_t bytes, uint64_t copy_ns,
                               uint64_t queue_ns);

/* The level of memory of the daemon or of a session, beside its counters. */
struct gb_level {
    _Atomic uint64_t bytes;
    _Atomic uint64_t peak_bytes;
    _Atomic uint64_t largest_bytes;
};

/* Allocations of one device, pool or kind of memory. */
struct gb_alloc_counters {
    struct gb_level level;
    _Atomic uint64_t allocations;
    _Atomic uint64_t allocated_bytes;
    _Atomic uint64_t frees;
    _Atomic uint64_t freed_bytes;
    _Atomic uint64_t retries;
    _Atomic uint64_t trims;
    _Atomic uint64_t failures;
    _Atomic uint64_t failure[GB_FAILURES];
    struct { /* as of the last sample */
        _Atomic uint64_t allocations;
        _Atomic uint64_t frees;
        _Atomic uint64_t failures;
    } past;
};

void gb_level_read(struct gb_level *level, struct gb_level_numbers *ret);
void gb_alloc_counters_read(struct gb_alloc_counters *live_counters, struct gb_memory_numbers *ret);

/* Counts one more failure, and its reason. */
void gb_live_counters_failed(struct gb_live_counters *live_counters, enum gb_failed what, enum gb_failure why);

/* Not of one moment: each counter is right, but two may differ by what was counted between their reads. */
void gb_live_counters_read(struct gb_live_counters *live_counters, struct gb_counters *ret);
void gb_live_counters_set(struct gb_live_counters *live_counters, const struct gb_counters *counters);

/* Adds to the daemon's counter and to the session's. */
#define GB_COUNT(core, session, name, n)                                                                               \
    do {                                                                                                               \
        uint64_t gb_count_n_ = (n);                                                                                    \
        atomic_fetch_add_explicit(&(core)->live_counters.name, gb_count_n_, memory_order_relaxed);                     \
        atomic_fetch_add_explicit(&(session)->live_counters.name, gb_count_n_, memory_order_relaxed);                  \
    } while (0)

struct gb_alloc_log;
struct gb_audit;
struct gb_buffer;
struct gb_checkpoints;
struct gb_core_pool;
struct gb_disks;
struct gb_feed;
struct gb_free_cache;
struct gb_frees;
struct gb_health_watch;
struct gb_holds;
struct gb_housekeeper;
struct gb_keys;
struct gb_lease;
struct gb_leases;
struct gb_loads;
struct gb_notice_limiters;
struct gb_persist;
struct gb_room_ask;
struct gb_sampler;
struct gb_behind;
struct gb_scrubber;
struct gb_selftests;
struct gb_session;
struct gb_session_pools;
struct gb_tokens;

struct gb_core_device {
    struct gb_core *core;
    int index;
    struct gb_device_rec rec; /* as at start */
    _Atomic uint64_t free_bytes;
    _Atomic uint64_t pools_live; /* as of the last housekeeping, as the next two */
    _Atomic uint64_t pools_used_bytes;
    _Atomic uint64_t reserved_bytes;
    struct gb_alloc_counters memory;
    struct gb_core_pool *pool;  /* its own */
    struct gb_core_pool *pools; /* all on it; the lane's alone */
    struct gb_task relief;      /* gives back the bytes that pools keep above their threshold */
    atomic_bool relieving;      /* it is posted */
    struct gb_lane lane;
    struct gb_lane slow;                /* for calls that block: memory that is not from a pool */
    struct gb_lane ends;                /* for its frees */
    struct gb_frees *frees;             /* those that wait until the device is idle; the lane of frees's alone */
    struct gb_retry_queue slow_waiting; /* allocations without memory; the slow lane's alone */
    struct gb_event_pool events;
    struct gb_free_cache *free_cache;
    struct gb_retry_queue
        waiting;                  /* allocations that their pool has no memory for; the lane's alone, as the next two */
    atomic_bool making_room;      /* because its memory, or a pool of it, is used beyond the high-water mark */
    uint64_t trim_next_ns;        /* what other pools keep may be trimmed for them again */
    struct gb_lease *mapping;     /* leases that wait for their bytes */
    struct gb_lease *finishing;   /* and those that wait for their importer's event */
    struct gb_health health_seen; /* as the housekeeper saw it last; its alone */
};

#define GB_COMPUTE_LANES 2

struct gb_core {
    struct gb_core_config config;
    struct gb_backend *backend;
    struct gb_store *store;
    int64_t started_at_us;
    uint32_t run; /* of this process: if a record is lost with the power, its entity tag must not come back */

    int device_count;
    struct gb_core_device *devices;
    struct gb_slots slots;
    struct gb_pinned pinned; /* slots, buffers and adopted memory */

    pthread_mutex_t sessions_lock; /* for the three below */
    struct gb_map sessions;        /* by name, those being made and deleted included */
    struct gb_idlist sessions_by_id;
    struct gb_session_left *sessions_left; /* names that went to other nodes */
    struct gb_session_pools *pool_sessions;

    pthread_mutex_t gone_lock; /* a leaf, for those below */
    void (*gone)(void *arg, const struct gb_name *name, const char *claim, bool made);
    void *gone_arg;
    void (*copied)(void *arg);
    bool (*shortage)(void *arg, uint64_t bytes);
    void *copied_arg;
    atomic_bool keeps_copies; /* shortage is worth asking */

    _Atomic int64_t last_session_id;
    _Atomic int64_t last_buffer_id;
    _Atomic int64_t last_pool_id;
    _Atomic int64_t last_multipart;
    _Atomic uint64_t multipart_bytes;   /* held by open multipart uploads */
    _Atomic uint64_t multipart_headers; /* bytes of the header prefixes of all of them */

    _Atomic uint64_t sequence;
    struct gb_live_counters live_counters;
    _Atomic uint64_t live_sessions;
    _Atomic uint64_t live_buffers;
    _Atomic uint64_t counted_buffers; /* live and reserved, against buffers_max */
    _Atomic uint64_t buffer_bytes;    /* of buffers that have their bytes */
    _Atomic uint64_t lost_buffers;
    _Atomic uint64_t damaged_buffers; /* whose bytes on disk were found damaged or missing */
    _Atomic uint64_t stored_buffers;  /* whose bytes are on disk alone */
    _Atomic uint64_t stored_bytes;    /* of them */
    _Atomic uint64_t movable_buffers; /* whose bytes are in memory and may leave it when others want it */
    _Atomic uint64_t movable_bytes;   /* of them */
    _Atomic uint64_t behind_buffers;  /* whose latest bytes are to be stored; the two below as of the latest tick */
    _Atomic uint64_t behind_bytes;    /* of them */
    _Atomic uint64_t behind_since_ns; /* the one that waits longest; 0: none */
    _Atomic uint64_t held_bytes;      /* of pinned contents that no buffer has any more */
    _Atomic uint64_t mirrored_buffers;
    _Atomic uint64_t mirrored_bytes; /* of them: each has its bytes on one side or on both */
    _Atomic uint64_t tables;         /* buffers of many tensors */
    _Atomic uint64_t table_bytes;    /* of those that have their bytes */
    _Atomic uint64_t links;          /* names beyond the first of bytes in memory that several have */
    _Atomic uint64_t link_bytes;     /* that would be in memory, too, if each had its own */
    _Atomic uint64_t uploads_running;
    _Atomic uint64_t downloads_running;
    _Atomic uint64_t writes_running;
    struct gb_alloc_log *alloc_log;
    struct gb_kind_live_counters kinds[GB_DIRECTION_COUNT][GB_KIND_COUNT];
    struct gb_level level;
    struct gb_alloc_counters memory[GB_KIND_COUNT];

    struct gb_lane compute[GB_COMPUTE_LANES]; /* for work of the CPU that takes long */
    struct gb_lane inspect;                   /* the same, if a change waits for it */
    struct gb_lane report;                    /* for what clients read: no work of the core waits for it */
    atomic_uint scans[GB_HASH_READER_USES];
    atomic_uint compute_number;
    atomic_bool closing;

    /* Called for an error that says that the device died; set before there are lanes. [any thread, must not block] */
    void (*on_device_lost)(struct gb_core *core);
    /* Writes bytes to disk (core/durable/stored.h). [any thread, never blocks] */
    void (*persist)(struct gb_core *core, struct gb_persist *persist);
    /* The buffer's bytes are on disk and are wanted in memory (core/durable/stored.h). The session's lock is held. */
    int (*want)(struct gb_session *session, struct gb_buffer *buffer, struct gb_error *err);
    /* Makes bytes of other buffers leave memory, then calls ask->ended. [any thread, never blocks] */
    void (*make_room)(struct gb_core *core, struct gb_room_ask *ask);
    /* How many bytes of the session's buffers may leave memory. The session's lock is held. */
    uint64_t (*spare)(struct gb_session *session);
    struct gb_disks *disks;
    struct gb_host_tier *host_tier;
    atomic_uint file_tags;      /* given to files of bytes; the first one is random */
    uint64_t orphans_swept_ns;  /* the housekeeper's alone */
    int storage_told;           /* the housekeeper's alone: an enum gb_disk_state, which the feed has */
    struct gb_core_found found; /* constant after the start */
    struct gb_loads *loads;
    struct gb_behind *behind;
    struct gb_scrubber *scrubber;
    struct gb_checkpoints *checkpoints;
    struct gb_housekeeper *housekeeper;
    struct gb_kept *kept; /* NULL: no memory outlives the process */
    bool lacks_default;   /* the database had no room for the session that always exists */
    struct gb_holds *holds;
    struct gb_health_watch *health; /* NULL: health is not watched */
    struct gb_sampler *sampler;
    struct gb_selftests *selftests;
    struct gb_tokens *tokens;
    struct gb_keys *keys;
    struct gb_leases *leases;
    struct gb_feed *feed;
    struct gb_audit *audit;
    struct gb_notice_limiters *limiters;

    pthread_mutex_t blank_lock;   /* zeros are queued under it */
    pthread_mutex_t objects_lock; /* for the two below */
    pthread_cond_t objects_gone;
    uint64_t objects; /* sessions and calls that still use the core */
};

/* An object that uses the core begins and ends; gb_core_wait returns after the last. */
void gb_core_enter(struct gb_core *core);
void gb_core_leave(struct gb_core *core);
void gb_core_wait(struct gb_core *core);

/* The next of the computing lanes, in turn. [any thread] */
struct gb_lane *gb_core_compute_lane(struct gb_core *core);

/* Called before every acknowledgement of a change. */
void gb_core_changed(struct gb_core *core);

/* Calls on_device_lost if err says that the device died. err may be NULL. */
void gb_core_report_error(struct gb_core *core, const struct gb_error *err);

/* Returns 0 if the device is alive, else -1 with DEVICE_LOST. Cheap. */
int gb_core_alive(struct gb_core *core, struct gb_error *err);

/* --- notices ------------------------------------------------------------------------------------------------------ */

/* Posting notices of what happened, inside the core. A notice is posted when its fact is true and visible, not before.
 * [any thread, never blocks; a leaf: whatever locks are held] */

/* NULL when memory is exhausted. gb_notice_limiters_free accepts NULL. */
struct gb_notice_limiters *gb_notice_limiters_new(void);
void gb_notice_limiters_free(struct gb_notice_limiters *limiters);

/* A notice with its type and time; its device is -1. */
struct gb_notice gb_notice_new(enum gb_notice_type type);
void gb_notice_post(struct gb_core *core, const struct gb_notice *notice);

/* As above, for events that may come many times a second: the first of its type and session is posted at once, then one
 * a second with the number of those that came meanwhile. */
void gb_notice_post_limited(struct gb_core *core, const struct gb_notice *notice);

/* Once a second: posts what the limiters have counted. */
void gb_notices_tick(struct gb_core *core);

#endif
