/* A pool in memory: a device's own, or one that a session made. Contents hold a reference, so the backend's pool is
 * destroyed only after the last of its memory was given back. */
#ifndef GB_CORE_DEVICE_POOL_H
#define GB_CORE_DEVICE_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/public/pool.h"
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
    struct gb_pool_rec rec;        /* the session's lock; name, id and device never change */
    struct gb_pool *pool;          /* the backend's; NULL: lost. Set before it is live */
    struct gb_error why;           /* it is lost */
    struct gb_fifo_lock fifo;      /* the session's lock */
    _Atomic uint64_t occupants;    /* contents that a buffer has or is about to get */
    _Atomic uint64_t live_buffers;
    _Atomic uint64_t leases;       /* of its contents, those included that no buffer has any more */
    _Atomic uint64_t cached_bytes; /* free_cache.h; used on the device, and nobody's */

    struct gb_core_pool *next; /* of the device's pools; the lane's alone */
    struct gb_task task;       /* when the last reference is gone */

    pthread_mutex_t stat_lock;
    struct gb_pool_stat stat;
    struct gb_alloc_counters memory;
    struct {
        _Atomic uint64_t looked_ns; /* as of the last sample; before the first: when it was made */
    } past;
    _Atomic int access[]; /* of each device: enum gb_pool_access, or GB_POOL_CLOSED */
};

/* No access, and none is to be given unasked: somebody said so, or the device cannot. */
#define GB_POOL_CLOSED -1

/* rec is copied; device NULL: missing. One reference, state MAKING. NULL when memory is exhausted. */
struct gb_core_pool *gb_core_pool_new(struct gb_core *core, struct gb_core_device *device,
                                      const struct gb_pool_rec *rec);
struct gb_core_pool *gb_core_pool_ref(struct gb_core_pool *pool);

/* NULL is accepted. [any thread, never blocks] The last one lets the lane destroy the backend's pool. */
void gb_core_pool_unref(struct gb_core_pool *pool);

/* A device's own pool, before there are threads; its reference is given back by gb_core_pool_close after the lane has
 * ended. */
int gb_core_pool_open(struct gb_core_device *device, struct gb_error *err);
void gb_core_pool_close(struct gb_core_pool *pool);

/* On the lane: the backend's pool, and its place among the device's. */
int gb_core_pool_create(struct gb_core_pool *pool, struct gb_error *err);

/* Reads the numbers anew. */
void gb_core_pool_refresh(struct gb_core_pool *pool);
void gb_core_pool_stat(struct gb_core_pool *pool, struct gb_pool_stat *ret); /* as of the last reading */
void gb_core_pool_view(struct gb_core_pool *pool, struct gb_pool_view *ret); /* under the session's lock */

/* [any thread, never blocks] Pools of the device give back what they keep above their release threshold, soon. */
void gb_core_pool_relieve(struct gb_core_device *device);

/* On the lane, before a trim. Takes a millisecond at most. */
void gb_core_pool_notice_frees(struct gb_core_device *device);

uint64_t gb_core_pool_limit(const struct gb_core_pool *pool);

/* On the lane, when memory is exhausted: what this pool keeps unused goes back, and where its own limit is not what
 * stopped it, what the device's other pools keep. Returns how many were trimmed. */
unsigned gb_core_pool_make_room(struct gb_core_pool *pool, uint64_t bytes);

/* The pool that the session sees under that name, lost ones included; no reference is taken. "" is the first device's own.
 * The session's lock is held. POOL_NOT_FOUND. */
struct gb_core_pool *gb_core_pool_find_locked(struct gb_session *session, const struct gb_name *name,
                                              struct gb_error *err);

/* The same by the names of both, with the lock of its session taken, which goes to *ret_session, until gb_core_pool_unlock(). NULL: nothing
 * is taken. */
struct gb_core_pool *gb_core_pool_lock(struct gb_core *core, const struct gb_name *session, const struct gb_name *pool,
                                       struct gb_session **ret_session, struct gb_error *err);
void gb_core_pool_unlock(struct gb_session *session);

/* Into the session's map and list, which takes over a reference on success. The session's lock is held. */
int gb_core_pool_enroll_locked(struct gb_session *session, struct gb_core_pool *pool, struct gb_error *err);

/* -1 where the pool is lost, or no longer live. */
int gb_core_pool_check(struct gb_core_pool *pool, struct gb_error *err);

#endif
