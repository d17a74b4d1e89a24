/* The memory behind a buffer at one generation, its allocation and free, and its statistics. */
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

/* The bytes of a buffer: memory of one kind, with a count of its users. Its bytes count against the session's quota
 * from gb_content_new_locked, before the device is asked, until the memory has been given back. */

/* Room for an allocation that found no memory: buffers whose bytes are stored elsewhere leave memory. core->make_room
 * chooses them; here the allocation asks and waits. */

struct gb_alloc;

enum gb_room_state {
    GB_ROOM_UNASKED,
    GB_ROOM_COMING, /* bytes are leaving memory */
    GB_ROOM_ENDED
};

struct gb_room_ask {
    struct gb_task task;
    struct gb_core_device *device;          /* where memory is needed */
    struct gb_core_pool *pool;              /* only memory of this pool helps; NULL: of any */
    struct gb_session *session;             /* only the quota of this session helps; NULL: of any */
    const struct gb_content *content;       /* the content that needs it; NULL: any */
    uint64_t sweep;                         /* buffers of this sweep stay (core/buffer/buffer.h); 0: no sweep */
    bool partly;                            /* fewer bytes help, too */
    uint64_t bytes;                         /* missing bytes */
    void (*ended)(struct gb_room_ask *ask); /* on the device's lane; the ask is the caller's again */
    /* The results. */
    uint64_t evictable; /* bytes that may leave, now or soon */
    atomic_bool made;   /* bytes have left */
    atomic_bool later;  /* bytes that are in use, or were written just now, may leave soon */
    atomic_size_t pending;
};

/* After a try that found no memory, or no room in the quota (at_quota): asks for room. Returns true if the allocation
 * should wait and try again, because bytes of others are leaving memory. On the device's lane. */
bool gb_room_request(struct gb_alloc *alloc, bool at_quota);

/* Adds to a refusal how many bytes could have left memory, if room was asked for. */
void gb_room_explain(const struct gb_alloc *alloc, struct gb_error *error);

/* Allocations and frees of buffers' memory, counted for the daemon, its sessions, devices, pools and kinds of memory.
 * The counts begin with the daemon, or when the session or pool was loaded or made. Bytes are those that were
 * requested. */

struct gb_content;
struct gb_session;

void gb_alloc_stats_freed(struct gb_content *content);
void gb_alloc_stats_retried(struct gb_content *content);
void gb_alloc_stats_trimmed(struct gb_content *content, unsigned pools);
/* Counts a failure that is not tried again. pool_limit: the pool's own limit refused it. */
void gb_alloc_stats_refused(struct gb_content *content, const struct gb_error *why, bool pool_limit);

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
    atomic_bool blank;           /* reads as zeros, which are written when they are needed */
    atomic_bool left;            /* no buffer has it or will get it; the session's lock */
    bool given;                  /* its bytes do not count in the quota; the session's lock */
    bool promised;               /* its bytes are to be reserved before the device is called; the session's lock */
    bool counted;                /* its free was counted */
    void (*on_freed)(void *arg); /* called once the memory was given back, without locks; NULL: no call */
    void *owner; /* the owner of memory of another process, on_freed's argument; NULL: the daemon's own memory */
    struct gb_ev
        *ready; /* recorded after the last write; NULL: the bytes were complete before readers could see them */
    /* The session's lock: */
    struct gb_pin_list pins; /* oldest first; each has a reference of its owner's */
    unsigned pin_count;
    unsigned pin_writers;
    bool mapping_for_write;        /* the database stores a pin for writing; no reader may begin */
    bool held;                     /* pinned, and no buffer has it any more */
    bool tainted;                  /* a pin for writing was ended by others; its process may still write */
    struct gb_last_transfer *last; /* NULL: no large transfer yet */
    struct gb_content *next;       /* in a list of those to be dropped */
    struct gb_ev *used;            /* kinds that are not from a pool: recorded after the last use */
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

/* A buffer gets the content, or loses it. The session's lock is held. */
void gb_content_attach_locked(struct gb_content *content);
void gb_content_detach_locked(struct gb_content *content);

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
 * memory that is not from a pool, then runs before the free.
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

/* Ends the content after its memory was given back: its bytes leave the quota, then runs, the content is freed. */
void gb_content_end(struct gb_content *content);

/* Counts and logs the allocation of the memory that content has now. */
void gb_content_count_alloc(struct gb_content *content);

/* --- allocation --------------------------------------------------------------------------------------------------- */

struct gb_alloc {
    struct gb_task task;
    struct gb_retry_waiter waiter;
    struct gb_content *content; /* borrowed; gets its ptr, and its alloc_stream is in use */
    uint64_t deadline_ns;       /* the wait for memory ends then; 0: no wait */
    atomic_bool cancelled;      /* stop waiting */
    struct gb_error error;      /* the slow lane's result */
    bool at_limit;              /* the last try failed at the pool's own limit; the lane's, as all below */
    uint64_t missing;           /* bytes that the last try lacked, as far as is known */
    struct gb_room_ask room;
    enum gb_room_state room_state;
    uint64_t room_until_ns; /* 0: no room was asked for */
    uint64_t room_next_ns;
    uint64_t copies_went_ns;  /* when copies for other nodes were dropped last; 0: never */
    uint64_t copies_until_ns; /* the wait for their memory ends then */
    bool room_made;           /* the pools were trimmed */
    bool anywhere;            /* done does not call the device, so it may run on the caller's thread */
    /* Called on the lane, or see anywhere. error NULL: content has its memory. */
    void (*done)(struct gb_alloc *alloc, const struct gb_error *error);
};

/* Makes the alloc_stream's part if necessary and allocates content->bytes on it. If memory is exhausted, trims this
 * pool and others, tries once more, and then waits for frees for wait_ms. done gives the result. */
void gb_alloc_start(struct gb_alloc *alloc, unsigned wait_ms);

/* Counts the result and calls done. error NULL: content has its memory. On the lane. */
void gb_alloc_finish(struct gb_alloc *alloc, struct gb_error *error);

/* Counts and posts a refusal of a request that is larger than the pool can ever give. [any thread] */
void gb_alloc_denied(struct gb_session *session, struct gb_core_pool *pool, uint64_t bytes,
                     const struct gb_error *error);

/* Tries waiting allocations again. Returns true while any wait. On the lane. */
bool gb_alloc_retry(void *device);

/* Freed pool memory is cached briefly. An allocation with the same pool, stream and size reuses it without a call of
 * the device, and the request that freed it waits for no free. In a stream's own order a pool does the same. But a pool
 * is called on the lane, and two changes of thread cost more than the rest of a small request.
 *
 * All work on the lane begins by freeing the cached memory, so that no allocation finds less memory than the device
 * has. Memory that is not reused is freed after a tick or two. Only memory that the CPU does not reach is cached; for
 * other memory the pool is called at once. */

struct gb_content;
struct gb_core_device;

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

/* The times of a content's last large transfer. The reply's header was sent before they were known. */

/* Keeps the times of a transfer that ends now, if it was large. content may be NULL. The session's lock is held. */
void gb_last_transfer_keep_locked(struct gb_content *content, enum gb_direction direction, uint64_t bytes,
                                  uint64_t queue_ns, uint64_t copy_ns);

/* As gb_last_transfer_keep_locked, without the lock. */
void gb_last_transfer_keep(struct gb_content *content, enum gb_direction direction, uint64_t bytes, uint64_t queue_ns,
                           uint64_t copy_ns);

#endif
