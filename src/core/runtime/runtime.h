/* What the files of this layer share: the core and its devices.
 *
 * Threads: one lane per device (lane.h), one housekeeper (housekeeper.h), the backend's watch threads, the store's writer, and
 * the callers'. Locks, in this order: the sessions map, one session, one transfer, then the leaves (slots, events, lanes,
 * a pool's numbers, tokens). None is held across a call of the backend or the store, nor across a caller's callback,
 * but for a transfer's wake lock, which is held across wake alone. */
#ifndef GB_CORE_RUNTIME_RUNTIME_H
#define GB_CORE_RUNTIME_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "core/access/key_table.h"
#include "core/access/tokens.h"
#include "core/core.h"
#include "core/device/pool.h"
#include "core/device/stream.h"
#include "core/lifecycle/housekeeper.h"
#include "core/memory/alloc_log.h"
#include "core/memory/alloc_queue.h"
#include "core/memory/alloc_stats.h"
#include "core/memory/free_cache.h"
#include "core/observe/health.h"
#include "core/observe/sampler.h"
#include "core/runtime/call.h"
#include "core/runtime/notices.h"
#include "core/session/pools.h"
#include "core/share/lease_table.h"
#include "core/util/counters.h"
#include "core/util/event_pool.h"
#include "core/util/idlist.h"
#include "core/util/lane.h"
#include "core/util/staging_slots.h"

struct gb_alloc;

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
    struct gb_task relief;      /* gives back what pools keep above their threshold */
    atomic_bool relieving;      /* it is posted */
    struct gb_lane lane;
    struct gb_lane slow; /* for calls that block: memory that is not from a pool */
    struct gb_lane ends; /* for its frees: CUDA may wait for all work of the device, also that of others */
    struct gb_alloc_queue slow_waiting; /* for memory, the slow lane's alone */
    struct gb_event_pool events;
    struct gb_free_cache free_cache;
    struct gb_alloc_queue waiting; /* for memory of pools; the lane's alone, as the next */
    uint64_t trim_next_ns;         /* what other pools keep may be trimmed for them again */
    struct gb_lease *mapping;      /* leases that wait for their bytes; the lane's alone */
    struct gb_health health_seen;  /* as the housekeeper saw it last; its alone */
};

#define GB_COMPUTE_LANES 2

struct gb_core {
    struct gb_core_config config;
    struct gb_backend *backend;
    struct gb_store *store;
    int64_t started_at_us;
    uint32_t run; /* of this process: a record lost with the power must not bring an old entity tag back */

    int device_count;
    struct gb_core_device *devices;
    struct gb_slots slots; /* none when the CPU reaches all memory */
    bool slots_needed;

    pthread_mutex_t sessions_lock; /* for the two below */
    struct gb_map sessions;        /* by name, those being made and deleted included */
    struct gb_idlist sessions_by_id;
    struct gb_session_pools pool_sessions;
    _Atomic int64_t last_session_id;
    _Atomic int64_t last_buffer_id;
    _Atomic int64_t last_pool_id;
    _Atomic int64_t last_intake;
    _Atomic uint64_t multipart_bytes; /* that open ones hold */

    _Atomic uint64_t sequence;
    struct gb_live_counters live_counters;
    _Atomic uint64_t live_sessions;
    _Atomic uint64_t live_buffers;
    _Atomic uint64_t counted_buffers; /* live and reserved, against buffers_max */
    _Atomic uint64_t buffer_bytes;    /* of buffers that have their bytes */
    _Atomic uint64_t lost_buffers;
    _Atomic uint64_t mirrored_buffers;
    _Atomic uint64_t mirrored_bytes; /* of them: each has its bytes on one side or on both */
    _Atomic uint64_t uploads_running;
    _Atomic uint64_t downloads_running;
    _Atomic uint64_t writes_running;
    struct gb_alloc_log alloc_log;
    struct gb_kind_live_counters kinds[GB_DIRECTION_COUNT][GB_KIND_COUNT];
    struct gb_level level;
    struct gb_alloc_counters memory[GB_KIND_COUNT];

    struct gb_lane compute[GB_COMPUTE_LANES]; /* for work of the CPU that takes long */
    struct gb_lane inspect;                   /* the same that a change waits for */
    atomic_uint scans[GB_HASH_READER_USES];
    atomic_uint scan_number;
    atomic_bool closing;

    struct gb_housekeeper housekeeper;
    struct gb_health_watch *health; /* NULL: nobody looks */
    struct gb_sampler sampler;
    struct gb_tokens tokens;
    struct gb_keys keys;
    struct gb_leases leases;
    struct gb_feed feed;

    pthread_mutex_t objects_lock; /* for the two below */
    pthread_mutex_t blank_lock;   /* zeros are queued under it */
    pthread_cond_t objects_gone;
    uint64_t objects; /* sessions and calls that still use the core */
};

/* Something that uses the core begins and ends; gb_core_close waits for the last. */
void gb_core_enter(struct gb_core *core);
void gb_core_leave(struct gb_core *core);

/* Before every acknowledgement. */
static inline void gb_core_changed(struct gb_core *core) {
    atomic_fetch_add(&core->sequence, 1);
}

/* Tells the housekeeper when err says that the device died. */
void gb_core_report_error(struct gb_core *core, const struct gb_error *err);

/* -1 with DEVICE_LOST when the device is dead. Cheap. */
int gb_core_alive(struct gb_core *core, struct gb_error *err);

/* Is this kind of memory to be had? UNSUPPORTED with the reason. */
int gb_core_offers(const struct gb_core_device *device, enum gb_kind kind, struct gb_error *err);

/* open_devices.c */
int gb_core_devices_open(struct gb_core *core, struct gb_error *err);
void gb_core_devices_close(struct gb_core *core);

/* restore.c */
int gb_core_restore(struct gb_core *core, struct gb_error *err);
bool gb_core_has_default(struct gb_core *core);
void gb_core_make_default(struct gb_core *core); /* tries once, waits for nothing */

#endif
