/* Pools and streams of devices in memory. A pool is a device's own, or one that a session made. Contents hold a
 * reference, so the backend's pool is destroyed only after all of its memory was freed. A stream has a part on each
 * device. */
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

enum gb_pool_state {
    GB_POOL_MAKING, /* reserves its name; gives no memory */
    GB_POOL_LIVE,
    GB_POOL_REMOVING, /* the database stores its end; clients do not see it */
    GB_POOL_DEAD      /* removed; some of its memory may still be used */
};

struct gb_core_pool {
    atomic_uint refs; /* the session's or the device's, each content's, each call's */
    struct gb_core *core;
    struct gb_core_device *device; /* NULL: the device is missing */
    bool own;                      /* the device's own: always live, without a record */
    _Atomic int state;             /* changes under the session's lock */
    /* Guarded by the session's lock and stat_lock, or of a device's own pool by stat_lock. Name, id and device are
     * fixed. */
    struct gb_pool_rec rec;
    struct gb_text *name;       /* that of the record, for its buffers */
    struct gb_pool *pool;       /* the backend's; NULL: lost. Set before the pool is live */
    struct gb_error why;        /* why the pool is lost */
    struct gb_fifo_lock fifo;   /* the session's lock */
    _Atomic uint64_t occupants; /* contents that a buffer has or is about to get */
    _Atomic uint64_t live_buffers;
    _Atomic uint64_t leases;       /* of its contents, also of those that no buffer has any more */
    _Atomic uint64_t cached_bytes; /* of the free cache: in use for the device, and free for clients */

    struct gb_core_pool *next; /* of the device's pools; only the lane uses it */
    struct gb_task task;       /* destroys the pool after the last reference */

    atomic_bool exported; /* a pointer was exported, so no memory goes back before the pool's end */
    pthread_mutex_t stat_lock;
    struct gb_pool_stat stat;
    uint64_t kept_bytes;      /* the stat_lock: reserved at the first export, and growth since */
    uint64_t kept_seen_bytes; /* the stat_lock: the last number that the device reported */
    struct gb_alloc_counters memory;
    _Atomic uint64_t reuses;  /* allocations from memory that the pool had */
    _Atomic uint64_t growths; /* allocations for which the pool took more of the device */
    struct {
        _Atomic uint64_t looked_ns; /* the time of the last sample, or when the pool was made */
    } past;
    _Atomic int access[]; /* of each device: enum gb_pool_access, or GB_POOL_CLOSED */
};

/* No access, and copies do not open it: a client closed it, or the device cannot open it. */
#define GB_POOL_CLOSED -1

/* Makes a pool with one reference in state MAKING. Copies rec. device NULL: the device is missing. Returns NULL if
 * memory is exhausted. */
struct gb_core_pool *gb_core_pool_new(struct gb_core *core, struct gb_core_device *device,
                                      const struct gb_pool_rec *rec);
struct gb_core_pool *gb_core_pool_ref(struct gb_core_pool *pool);

/* Drops a reference; the last one lets the lane destroy the backend's pool. NULL is accepted. [any thread, never
 * blocks] */
void gb_core_pool_unref(struct gb_core_pool *pool);

/* Opens the device's own pool, which may be absent, before threads start. gb_core_pool_close drops its reference after
 * the lane has ended. */
int gb_core_pool_open(struct gb_core_device *device, struct gb_error *err);
void gb_core_pool_close(struct gb_core_pool *pool);

/* Makes the backend's pool and links it to its device. On the lane. Returns 0 or -1. */
int gb_core_pool_create(struct gb_core_pool *pool, struct gb_error *err);

/* Takes over the settings, version and time of rec. Of a device's own pool on the lane, else under the session's
 * lock. */
void gb_core_pool_configured(struct gb_core_pool *pool, const struct gb_pool_rec *rec);

/* Reads the device's numbers into *ret and into the pool. Returns 0 or -1. */
int gb_core_pool_read(struct gb_core_pool *pool, struct gb_pool_stat *ret, struct gb_error *err);
/* As gb_core_pool_read; if that fails, the pool keeps its numbers. */
void gb_core_pool_refresh(struct gb_core_pool *pool);
void gb_core_pool_stat(struct gb_core_pool *pool, struct gb_pool_stat *ret); /* as of the last reading */
void gb_core_pool_view(struct gb_core_pool *pool, struct gb_pool_view *ret); /* under the session's lock */

/* Exports memory of the pool to another process by the way "pool". On the lane. Returns 0 or -1. */
int gb_core_pool_export(struct gb_core_pool *pool, const struct gb_location *place, uint64_t bytes, bool writable,
                        struct gb_export *ret, struct gb_error *err);

/* As gb_pool_trim. Returns 0 at once for an exported pool, which gives nothing back. On the lane. */
int gb_core_pool_trim(struct gb_core_pool *pool, uint64_t keep_bytes, struct gb_error *err);

/* Gives back the bytes that the pools of the device keep above their release threshold, as CUDA does at a
 * synchronization. On the lane, after gb_event_sync. */
void gb_core_pool_release(struct gb_core_device *device);

/* As gb_core_pool_release, but the lane does it soon. [any thread, never blocks] */
void gb_core_pool_relieve(struct gb_core_device *device);

/* Lets the device notice finished frees before a trim. Takes a millisecond, and 20 if a stream is held up. On the
 * lane. */
void gb_core_pool_notice_frees(struct gb_core_device *device);

/* As gb_mem_alloc, counted as reuse or growth of the pool. Reads the pool's numbers. On the lane. Returns 0 or -1. */
int gb_core_pool_alloc(struct gb_core_pool *pool, struct gb_stream *stream, uint64_t bytes, void **ret,
                       struct gb_error *err);

uint64_t gb_core_pool_limit(const struct gb_core_pool *pool);

/* Gives back unused memory of this pool when memory is exhausted and, if the pool's own limit was not the obstacle, of
 * the device's other pools. Returns how many pools were trimmed. On the lane. */
unsigned gb_core_pool_make_room(struct gb_core_pool *pool, uint64_t bytes);

/* Returns 0; -1 if the pool is lost or no longer live, or if its device has no pools (UNSUPPORTED with the reason). */
int gb_core_pool_check(struct gb_core_pool *pool, struct gb_error *err);

/* Returns true for the own pool of a device without memory pools. It gives no memory, and clients do not see it. */
static inline bool gb_core_pool_absent(const struct gb_core_pool *pool) {
    return pool->own && !pool->pool;
}

/* The kind of a buffer if the client names none: memory of the device, from a pool if the device has pools. */
enum gb_kind gb_core_usual_kind(const struct gb_core_device *device);

/* Returns 0 if the device offers this kind of memory, else -1 with UNSUPPORTED and the reason. */
int gb_core_offers(const struct gb_core_device *device, enum gb_kind kind, struct gb_error *err);

/* --- times of short copies ---------------------------------------------------------------------------------------- */

/* Times of short copies, of which a sample is measured.
 *
 * Timing a copy takes three events and two queries, which cost the CPU more than a copy of a few kilobytes. A transfer
 * that is one copy therefore takes the times of the last measured one. That one must be on the same part of a stream,
 * in the same direction, of the same size, and at most a millisecond old. */

struct gb_copy_times {
    uint64_t queue_ns; /* the wait behind earlier work */
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

/* Returns true, with times, if a copy of that many bytes need not be measured now. [any thread] */
bool gb_copy_sample_get(struct gb_copy_sample *sample, size_t bytes, struct gb_copy_times *ret);
/* Keeps the times of a measured copy. [any thread] */
void gb_copy_sample_put(struct gb_copy_sample *sample, size_t bytes, const struct gb_copy_times *times);

/* --- stream ------------------------------------------------------------------------------------------------------- */

/* A session's stream: an order of work with a part on each device.
 *
 * A stream has two counts: refs keeps the description, users keeps the parts. The session is one user as long as the
 * stream has its name, and so is each piece of work that queues on it. After the last user the lanes let the queued
 * work finish and destroy the parts.
 *
 * A content holds only refs to its alloc_stream, which orders its allocation and free. When that stream has drained,
 * all of its work is done, and the session's default stream reads and frees the memory as well. Work that uses the
 * memory on another stream must therefore hold the content until it is done. */

struct gb_ev;
struct gb_core;

struct gb_stream_part {
    struct gb_task task;
    struct gb_core_stream *owner;
    int device;
    struct gb_stream *_Atomic stream; /* made and destroyed on the device's lane */
    struct gb_ev *ev;                 /* while the part is taken down */
    struct gb_copy_sample samples[2]; /* by GB_COPY_TO_DEVICE, GB_COPY_FROM_DEVICE */
};

/* Called once for each stream, when its parts are gone. [any thread] */
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
    bool drains;     /* it was removed, and its last user has ended */
    int64_t id;      /* 0: "default" */
    struct gb_name name;
    struct gb_text *name_text; /* the same, for buffers */
    int64_t created_at_us;
    struct gb_frontier *frontier; /* the session's lock; NULL: it has waited for no event */
    atomic_uint parts_open;       /* parts that are being taken down, and one */
    struct gb_stream_part parts[];
};

/* Makes a stream with one reference and one user. Returns NULL if memory is exhausted. */
struct gb_core_stream *gb_core_stream_new(struct gb_core *core, const struct gb_stream_owner *owner, void *arg,
                                          const struct gb_name *name, int64_t id);
struct gb_core_stream *gb_core_stream_ref(struct gb_core_stream *stream);
void gb_core_stream_unref(struct gb_core_stream *stream); /* NULL is accepted */

/* Adds a reference and a user to a stream that the caller uses already. */
struct gb_core_stream *gb_core_stream_use_more(struct gb_core_stream *stream);

/* As above, of a stream that may have drained. Returns false, and does nothing, if it has: it takes no more work. */
bool gb_core_stream_try_use(struct gb_core_stream *stream);

/* Drops a reference and a user. The caller still holds the session, but not its lock. NULL is accepted. [any thread,
 * never blocks] */
void gb_core_stream_unuse(struct gb_core_stream *stream);

/* The part on that device, or NULL if no work was queued there yet. [any thread] */
struct gb_stream *gb_core_stream_part(struct gb_core_stream *stream, int device);

/* Makes the part unless the stream has it. On the device's lane; another device's lane may make that of a session's
 * default stream, which stays as long as the session. Returns 0 or -1. */
int gb_core_stream_part_make(struct gb_core_stream *stream, int device, struct gb_stream **ret, struct gb_error *err);

/* Takes the parts down after the last work was queued, then calls the owner. */
void gb_core_stream_take_down(struct gb_core_stream *stream);

#endif
