/* Pools and streams of devices in memory. A pool is a device's own, or one that a session made: contents hold a
 * reference, so the backend's pool is destroyed only after the last of its memory was given back. A stream has a part
 * on each device. */
#ifndef GB_CORE_MEMORY_POOL_H
#define GB_CORE_MEMORY_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/text.h"
#include "core/public/session.h"
#include "core/runtime/runtime.h"
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

/* Streams of the core: their parts on devices, and samples of how fast bytes are copied on them. */

/* Times of short copies, of which a sample is measured.
 *
 * To time a copy takes three events and two questions, which cost the CPU more than a copy of a few kilobytes. A
 * transfer that is one copy therefore takes the times of the last one that was measured, if that was on the same part
 * of a stream, in the same direction, of the same size, and not longer ago than a millisecond. */

struct gb_copy_times {
    uint64_t queue_ns; /* waited behind earlier work */
    uint64_t copy_ns;
};

/* One for each direction of a part of a stream. */
struct gb_copy_sample {
    pthread_mutex_t lock; /* a leaf */
    struct gb_copy_times times;
    size_t bytes; /* 0: none was measured */
    uint64_t at_ns;
};

void gb_copy_sample_init(struct gb_copy_sample *sample);
void gb_copy_sample_done(struct gb_copy_sample *sample);

/* Returns true if a copy of so many bytes need not be measured now, with its times. [any thread] */
bool gb_copy_sample_get(struct gb_copy_sample *sample, size_t bytes, struct gb_copy_times *ret);
/* A copy was measured. [any thread] */
void gb_copy_sample_put(struct gb_copy_sample *sample, size_t bytes, const struct gb_copy_times *times);

/* A session's stream: an order of work with a part on each device.
 *
 * A stream has two counts. refs keeps the description. users keeps the parts. The session is one user as long as the
 * stream has its name, and so is each piece of work that queues on it. After the last user the lanes let the queued
 * work finish and destroy the parts.
 *
 * A content holds only refs to its alloc_stream, where it was allocated and is freed in order. When that stream has
 * drained, all work on it is done, and the session's default stream frees the memory as well. Work that uses the memory
 * on another stream must therefore hold the content until it is done. */

struct gb_ev;
struct gb_core;

struct gb_stream_part {
    struct gb_task task;
    struct gb_core_stream *owner;
    int device;
    struct gb_stream *_Atomic stream; /* made and destroyed on the device's lane */
    struct gb_ev *ev;                 /* while it is taken down */
    struct gb_copy_sample samples[2]; /* by GB_COPY_TO_DEVICE, GB_COPY_FROM_DEVICE */
};

/* The owner of streams learns, once for each, that its parts are gone. [any thread] */
struct gb_stream_owner {
    void (*drained)(void *arg); /* of a stream that was removed */
    void (*gone)(void *arg);    /* of a stream that ends with its owner */
};

struct gb_core_stream {
    atomic_uint refs;
    atomic_uint users;
    struct gb_core *core;
    const struct gb_stream_owner *owner;
    void *owner_arg; /* borrowed: every user holds the owner */
    bool drains;     /* removed: its last user is through */
    int64_t id;      /* 0: "default" */
    struct gb_name name;
    struct gb_text *name_text; /* the same, for buffers */
    int64_t created_at_us;
    atomic_uint parts_open; /* while they are taken down */
    struct gb_stream_part parts[];
};

/* One reference, one user. NULL when memory is exhausted. */
struct gb_core_stream *gb_core_stream_new(struct gb_core *core, const struct gb_stream_owner *owner, void *arg,
                                          const struct gb_name *name, int64_t id);
struct gb_core_stream *gb_core_stream_ref(struct gb_core_stream *stream);
void gb_core_stream_unref(struct gb_core_stream *stream); /* NULL is accepted */

/* One more reference and user, of a stream that the caller uses already. */
struct gb_core_stream *gb_core_stream_use_more(struct gb_core_stream *stream);

/* Gives both back. The caller still holds the session, but not its lock. NULL is accepted. [any thread, never
 * blocks] */
void gb_core_stream_unuse(struct gb_core_stream *stream);

/* The part on that device; NULL: there is none yet, so no work is queued there. [any thread] */
struct gb_stream *gb_core_stream_part(struct gb_core_stream *stream, int device);

/* Makes the part if there is none. On the device's lane. */
int gb_core_stream_part_make(struct gb_core_stream *stream, int device, struct gb_stream **ret, struct gb_error *err);

/* No work is queued any more: takes the parts down, then tells the owner. */
void gb_core_stream_take_down(struct gb_core_stream *stream);

#endif
