/* A pool in memory: a device's own, or one that a session made. Contents hold a reference, so the backend's pool is
 * destroyed only after the last of its memory was given back. */
#ifndef GB_CORE_MEMORY_POOL_H
#define GB_CORE_MEMORY_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/public/session.h"
#include "core/util/counters.h"
#include "core/util/fifo_lock.h"
#include "core/util/lane.h"

struct gb_core_device;
struct gb_session;

enum gb_pool_state {
    GB_POOL_MAKING, /* keeps its name; no memory from it */
    GB_POOL_LIVE,
    GB_POOL_REMOVING, /* its end is on the way to the database: out of sight */
    GB_POOL_DEAD      /* gone but for the memory that is still used */
};

struct gb_core_pool {
    atomic_uint refs; /* the session's or the device's, each content's, each call's */
    struct gb_core *core;
    struct gb_core_device *device; /* NULL: it is missing */
    bool own;                      /* the device's: always live, no record */
    _Atomic int state;             /* changes under the session's lock */
    struct gb_pool_rec
        rec;              /* the session's lock and stat_lock; a device's own: stat_lock; name, id, device are fixed */
    struct gb_text *name; /* that of the record, for its buffers */
    struct gb_pool *pool; /* the backend's; NULL: lost. Set before it is live */
    struct gb_error why;  /* it is lost */
    struct gb_fifo_lock fifo;   /* the session's lock */
    _Atomic uint64_t occupants; /* contents that a buffer has or is about to get */
    _Atomic uint64_t live_buffers;
    _Atomic uint64_t leases;       /* of its contents, those included that no buffer has any more */
    _Atomic uint64_t cached_bytes; /* memory/content.c: in use for the device, and free for its clients */

    struct gb_core_pool *next; /* of the device's pools; the lane's alone */
    struct gb_task task;       /* when the last reference is gone */

    atomic_bool exported; /* a pointer of it was: nothing goes back any more */
    pthread_mutex_t stat_lock;
    struct gb_pool_stat stat;
    uint64_t kept_bytes;      /* the stat_lock: reserved at the first export, and what was added since */
    uint64_t kept_seen_bytes; /* the same: the last number that was the device's */
    struct gb_alloc_counters memory;
    _Atomic uint64_t reuses;  /* allocations from memory that it had */
    _Atomic uint64_t growths; /* those for which it took more of the device */
    struct {
        _Atomic uint64_t looked_ns; /* as of the last sample; before the first: when it was made */
    } past;
    _Atomic int access[]; /* of each device: enum gb_pool_access, or GB_POOL_CLOSED */
};

/* No access, and none is given unasked: a client closed it, or the device cannot. */
#define GB_POOL_CLOSED -1

/* Copies rec. device NULL: it is missing. One reference, state MAKING. NULL if memory is exhausted. */
struct gb_core_pool *gb_core_pool_new(struct gb_core *core, struct gb_core_device *device,
                                      const struct gb_pool_rec *rec);
struct gb_core_pool *gb_core_pool_ref(struct gb_core_pool *pool);

/* Drops a reference; the last one lets the lane destroy the backend's pool. NULL is accepted. [any thread, never
 * blocks] */
void gb_core_pool_unref(struct gb_core_pool *pool);

/* The device's own pool, which may be absent, opened before there are threads. gb_core_pool_close gives its reference
 * back after the lane has ended. */
int gb_core_pool_open(struct gb_core_device *device, struct gb_error *err);
void gb_core_pool_close(struct gb_core_pool *pool);

/* Makes the backend's pool and links it to its device. On the lane. */
int gb_core_pool_create(struct gb_core_pool *pool, struct gb_error *err);

/* The pool has the settings of rec now, and its version and time. Of a device's own pool: on the lane. Else: under the
 * session's lock. */
void gb_core_pool_configured(struct gb_core_pool *pool, const struct gb_pool_rec *rec);

/* Reads the numbers anew; *ret has those of the device. */
int gb_core_pool_read(struct gb_core_pool *pool, struct gb_pool_stat *ret, struct gb_error *err);
/* The same; a pool that cannot be asked keeps its numbers. */
void gb_core_pool_refresh(struct gb_core_pool *pool);
void gb_core_pool_stat(struct gb_core_pool *pool, struct gb_pool_stat *ret); /* as of the last reading */
void gb_core_pool_view(struct gb_core_pool *pool, struct gb_pool_view *ret); /* under the session's lock */

/* Makes memory of the pool ready for another process by the way pool. On the lane. */
int gb_core_pool_export(struct gb_core_pool *pool, const struct gb_location *place, uint64_t bytes, bool writable,
                        struct gb_export *ret, struct gb_error *err);

/* gb_pool_trim; of a pool from which was exported nothing goes back, so the device is not asked. On the lane. */
int gb_core_pool_trim(struct gb_core_pool *pool, uint64_t keep_bytes, struct gb_error *err);

/* Gives back what the pools of the device keep above their release threshold, as CUDA does at a synchronization. On the
 * lane, after gb_event_sync. */
void gb_core_pool_release(struct gb_core_device *device);

/* Has the pools of the device give back, soon, what they keep above their release threshold. [any thread, never
 * blocks] */
void gb_core_pool_relieve(struct gb_core_device *device);

/* Lets the device notice finished frees before a trim; takes a millisecond at most. On the lane. */
void gb_core_pool_notice_frees(struct gb_core_device *device);

/* gb_mem_alloc, counted as reuse or growth of the pool. Reads the numbers anew. On the lane. */
int gb_core_pool_alloc(struct gb_core_pool *pool, struct gb_stream *stream, uint64_t bytes, void **ret,
                       struct gb_error *err);

uint64_t gb_core_pool_limit(const struct gb_core_pool *pool);

/* Gives back unused memory of this pool when memory is exhausted and, if the pool's own limit was not the obstacle, of
 * the device's other pools. Returns how many pools were trimmed. On the lane. */
unsigned gb_core_pool_make_room(struct gb_core_pool *pool, uint64_t bytes);

/* -1 if the pool is lost or no longer live, or its device has none: UNSUPPORTED with the reason. */
int gb_core_pool_check(struct gb_core_pool *pool, struct gb_error *err);

/* A device without memory pools has none of its own either: what stands for it gives no memory, and is not shown. */
static inline bool gb_core_pool_absent(const struct gb_core_pool *pool) {
    return pool->own && !pool->pool;
}

/* The kind of a buffer for which none is named: of the device's own memory, from a pool where there are pools. */
enum gb_kind gb_core_usual_kind(const struct gb_core_device *device);

/* Does the device offer this kind of memory? UNSUPPORTED, with the reason, if not. */
int gb_core_offers(const struct gb_core_device *device, enum gb_kind kind, struct gb_error *err);

#endif
