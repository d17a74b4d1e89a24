/* The memory behind a buffer at one generation, its free, and its statistics.
 *
 * A content is memory of one kind, with a count of its users. Its bytes count against the session's quota from
 * gb_content_new_locked, before the device is asked, until the memory has been given back. */
#ifndef GB_CORE_MEMORY_CONTENT_H
#define GB_CORE_MEMORY_CONTENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/error.h"
#include "core/memory/pool.h"
#include "core/public/observe.h"
#include "core/runtime/runtime.h"
#include "core/session/session.h"
#include "model/history.h"

struct gb_buffer;
struct gb_content;
struct gb_core_device;
struct gb_session;

/* --- statistics --------------------------------------------------------------------------------------------------- */

/* Allocations and frees of buffers' memory, counted for the daemon, its sessions, devices, pools and kinds of memory.
 * The counts begin with the daemon, or when the session or pool was loaded or made. Bytes are those that were
 * requested. */

void gb_alloc_stats_retried(struct gb_content *content);
void gb_alloc_stats_trimmed(struct gb_content *content, unsigned pools);
/* Counts a failure that is not tried again. pool_limit: the pool's own limit refused it. */
void gb_alloc_stats_refused(struct gb_content *content, const struct gb_error *why, bool pool_limit);

/* --- content ------------------------------------------------------------------------------------------------------ */

/* A use of the bytes by another process. Meanwhile they are not written in place and their memory is not freed. The
 * owner of the use embeds the pin. Guarded by the session's lock. */
struct gb_pin {
    int64_t id;
    uint64_t holder; /* the holder's number */
    pid_t pid;
    uid_t uid;
    bool write;
    uint64_t ttl_s; /* the longest duration of the use; 0: it ends with its holder */
    TAILQ_ENTRY(gb_pin) link;
};
TAILQ_HEAD(gb_pin_list, gb_pin);

struct gb_content {
    atomic_uint refs; /* the buffer's, each reader's, the writer's */
    struct gb_session *session;
    struct gb_core_device *device;
    enum gb_kind kind;
    struct gb_core_pool *pool;           /* a reference; the device's own if the kind is not DEVICE */
    struct gb_core_stream *alloc_stream; /* the stream that orders its allocation and free; see pool.h */
    const char *buffer;                  /* name of the buffer that it was made for; stored behind this struct */
    struct gb_alloc_log_link alloc_log;
    uint64_t bytes;
    uint64_t locked_bytes;       /* page-locked by this process in memory of another one */
    void *ptr;                   /* NULL: nothing allocated (yet), or zero bytes */
    uint32_t kept;               /* its place in the ledger (kept.h), from 1 on; 0: it is not kept */
    atomic_bool blank;           /* reads as zeros, which are written when they are needed */
    atomic_bool left;            /* no buffer has it or will get it; the session's lock */
    bool given;                  /* its bytes do not count in the quota; the session's lock */
    bool promised;               /* its bytes are to be reserved before the device is called; the session's lock */
    bool counted;                /* its free was counted */
    bool awaited;                /* what follows its end needs its memory: then runs when that is free */
    void (*on_freed)(void *arg); /* called once the memory was given back, without locks; NULL: no call */
    void *owner; /* the owner of memory of another process, on_freed's argument; NULL: the daemon's own memory */
    struct gb_ev
        *ready; /* recorded after the last write; NULL: the bytes were complete before readers could see them */
    /* The session's lock: */
    struct gb_buffer *of;    /* a buffer that has it; NULL: none */
    struct gb_pin_list pins; /* oldest first; each has a reference of its owner's */
    unsigned pin_count;
    unsigned pin_writers;
    bool mapping_for_write;        /* the database stores a pin for writing; no reader may begin */
    bool held;                     /* pinned, and no buffer has it any more */
    bool tainted;                  /* a pin for writing was ended by others; its process may still write */
    struct gb_last_transfer *last; /* NULL: no large transfer yet */
    struct gb_content *next;       /* in a list of those to be dropped */
    struct gb_ev *used; /* kinds that are not from a pool: recorded after the last use; of an awaited pool's memory:
                         * after the free */
    struct gb_task task;
    void (*then)(void *arg);
    void *then_arg;
    void (*list_then)(void *arg); /* of gb_content_drop_list, for the rest of the list */
    void *list_arg;
};

/* Reserves the bytes and makes a content without memory, for a buffer of that name. If the quota has no room now, and
 * other buffers of the session may leave memory, gb_alloc_start waits for that and reserves the bytes then. The
 * session's lock is held. Returns 0 or -1. Errors: QUOTA_EXCEEDED, PINNED_LIMIT. */
int gb_content_new_locked(struct gb_session *session, struct gb_core_pool *pool, enum gb_kind kind,
                          struct gb_core_stream *alloc_stream, const struct gb_name *buffer, uint64_t bytes,
                          struct gb_content **ret, struct gb_error *err);
/* Makes a content of memory that another process owns; its bytes count against no quota. The caller sets kind, which is
 * not DEVICE, and ptr when the memory is imported. Returns NULL if memory is exhausted. */
struct gb_content *gb_content_foreign_new(struct gb_session *session, struct gb_core_device *device, uint64_t bytes);
struct gb_content *gb_content_ref(struct gb_content *content);

/* A buffer gets the content, or the last one that has it loses it. The session's lock is held. */
void gb_content_attach_locked(struct gb_content *content, struct gb_buffer *buffer);
void gb_content_detach_locked(struct gb_content *content);
/* A buffer loses the content, and its reference to it, that another one has. */
void gb_content_detach_one_locked(struct gb_content *content, struct gb_buffer *another);

/* Where its bytes from offset on lie. */
struct gb_location gb_content_location(const struct gb_content *content, uint64_t offset);

/* Queue a copy or a fill with zeros. If bytes is 0, nothing is queued, and *ret_way is NONE. Return 0 or -1. */
int gb_content_move(struct gb_content *dst, uint64_t dst_offset, struct gb_content *src, uint64_t src_offset,
                    uint64_t bytes, struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err);
int gb_content_zero(struct gb_content *dst, uint64_t offset, uint64_t bytes, struct gb_stream *stream,
                    struct gb_error *err);

/* Begin and end a pin. The session's lock is held. */
void gb_content_pin_locked(struct gb_content *content, struct gb_pin *pin);
void gb_content_unpin_locked(struct gb_content *content, struct gb_pin *pin);

/* Reserves bytes that were only promised. Returns 0, or -1 with QUOTA_EXCEEDED. No lock is held. */
int gb_content_redeem(struct gb_content *content, struct gb_error *err);

/* Writes the zeros of blank memory, in the order of its alloc_stream, and records ready behind them. Called on a lane,
 * before the memory is read or written in part. NULL is accepted. Returns 0 or -1. */
int gb_content_materialize(struct gb_content *content, struct gb_error *err);

/* Drops a reference; NULL is accepted. The last one queues the free in the order of the alloc_stream, and the bytes
 * leave the quota. Work on other streams must be done before.
 *
 * then(arg), if given, runs once: after that free if this was the last reference, else at once. If work still uses
 * memory that is not from a pool, then runs before the free, unless content is awaited.
 *
 * Not under the session's lock, and not on a backend's thread, where gb_content_drop_later is right. */
void gb_content_drop(struct gb_content *content, void (*then)(void *arg), void *arg);

/* As gb_content_drop, for a content whose last use was in the order of its alloc_stream. The bytes leave the quota and
 * then(arg) runs at once. The free cache may keep the memory for the next allocation of its size. [any thread] */
void gb_content_retire(struct gb_content *content, void (*then)(void *arg), void *arg);

/* As gb_content_drop, but the lane frees the memory. [any thread, never blocks] */
void gb_content_drop_later(struct gb_content *content);

/* Drops a list linked by next. */
void gb_content_drop_all(struct gb_content *list);

/* Drops a list, one content after the other; then(arg) runs after the last. */
void gb_content_drop_list(struct gb_content *list, void (*then)(void *arg), void *arg);

/* Prepends another list, more; NULL is accepted. */
void gb_content_list_add(struct gb_content **list, struct gb_content *more);

/* Counts and logs the allocation of the memory that content has now. */
void gb_content_count_alloc(struct gb_content *content);

/* --- free cache --------------------------------------------------------------------------------------------------- */

/* Freed pool memory is cached briefly. An allocation with the same pool, stream and size reuses it without a call of
 * the device, and the request that freed it waits for no free. In a stream's own order a pool does the same. But a pool
 * is called on the lane, and two changes of thread cost more than the rest of a small request.
 *
 * All work on the lane begins by freeing the cached memory, so that no allocation finds less memory than the device
 * has. Memory that is not reused is freed after a tick or two. Only memory that the CPU does not reach is cached; for
 * other memory the pool is called at once. */

struct gb_free_cache {
    pthread_mutex_t lock;     /* a leaf */
    struct gb_content *first; /* linked by next; the last freed one is the first */
    atomic_uint count;
    uint64_t bytes;
    _Atomic uint64_t last_ns; /* when memory was cached last */
    uint64_t freed_ns;        /* when all were freed last; only the lane uses it */
};

#define GB_FREE_CACHE_COUNT 64
#define GB_FREE_CACHE_BYTES (256ull << 20)

/* gb_free_cache_new returns NULL if memory is exhausted. gb_free_cache_end accepts NULL; the cache is empty by then. */
struct gb_free_cache *gb_free_cache_new(void);
void gb_free_cache_end(struct gb_free_cache *free_cache);

/* Gives content cached memory of its pool, alloc_stream and size: sets its ptr and counts an allocation. Returns false
 * if the cache has no such memory. [any thread, never blocks] */
bool gb_free_cache_take(struct gb_content *content);

/* Frees all cached memory. On the lane. */
void gb_free_cache_free(void *device);

/* Frees all cached memory if none was added since the last tick, and every ten ticks in any case. Returns true while it
 * must be called again. On the lane, at each tick. */
bool gb_free_cache_retry(struct gb_core_device *device);

/* --- last transfer ------------------------------------------------------------------------------------------------ */

/* The times of a content's last large transfer. The reply's header was sent before they were known. */

/* Keeps the times of a transfer that ends now, if it was large. content may be NULL. The session's lock is held. */
void gb_last_transfer_keep_locked(struct gb_content *content, enum gb_direction direction, uint64_t bytes,
                                  uint64_t queue_ns, uint64_t copy_ns);

/* As gb_last_transfer_keep_locked, without the lock. */
void gb_last_transfer_keep(struct gb_content *content, enum gb_direction direction, uint64_t bytes, uint64_t queue_ns,
                           uint64_t copy_ns);

#endif
