/* The memory behind a buffer at one generation, what frees it, and what is counted of it. */
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

/* Room for an allocation that found none: buffers that can do without their memory for a while give it up. What they
 * are is known above (core->make_room); here the allocation asks and waits. */

struct gb_alloc;

enum gb_room_state {
    GB_ROOM_UNASKED,
    GB_ROOM_COMING, /* bytes are on their way out */
    GB_ROOM_ENDED
};

struct gb_room_ask {
    struct gb_task task;
    struct gb_core_device *device;          /* where memory is wanted */
    struct gb_core_pool *pool;              /* of this one alone; NULL: of any */
    struct gb_session *session;             /* of the quota of this one alone; NULL: of any */
    const struct gb_content *content;       /* that it is for; NULL: for whatever comes */
    uint64_t sweep;                         /* buffers of this one stay (core/buffer/buffer.h); 0: of none */
    bool partly;                            /* less than that is of use, too */
    uint64_t bytes;                         /* that are missing */
    void (*ended)(struct gb_room_ask *ask); /* on the device's lane; the ask is the caller's again */
    /* The results. */
    uint64_t evictable; /* bytes that may leave, or might soon */
    atomic_bool made;   /* some have left */
    atomic_bool later;  /* some that are in use or came just now may leave soon */
    atomic_size_t pending;
};

/* After a try that found no memory, or no room in the quota (at_quota): should the allocation wait and try again,
 * because bytes of others are leaving memory? Asks them to. On the device's lane. */
bool gb_room_hope(struct gb_alloc *alloc, bool at_quota);

/* Adds to a refusal how many bytes could have left memory, if that was asked. */
void gb_room_tell(const struct gb_alloc *alloc, struct gb_error *error);

/* Allocations and frees of buffers' memory, counted for the daemon, its sessions, devices, pools and kinds of memory.
 * The counts begin with the daemon, or when the session or pool was loaded or made; bytes are those asked for. */

struct gb_content;
struct gb_session;

void gb_alloc_stats_freed(struct gb_content *content);
void gb_alloc_stats_retried(struct gb_content *content);
void gb_alloc_stats_trimmed(struct gb_content *content, unsigned pools);
/* Counts a failure for good. pool_limit: the pool's own limit refused it. */
void gb_alloc_stats_refused(struct gb_content *content, const struct gb_error *why, bool pool_limit);

/* A use of the bytes from outside the daemon: meanwhile they are not written in place and their memory is not freed.
 * The owner of the use embeds the pin. Guarded by the session's lock. */
struct gb_pin {
    int64_t id;
    uint64_t holder; /* the holder, by its number */
    pid_t pid;
    uid_t uid;
    bool write;
    uint64_t ttl_s; /* it ends after so long at most; 0: with its holder */
    TAILQ_ENTRY(gb_pin) link;
};
TAILQ_HEAD(gb_pin_list, gb_pin);

struct gb_content {
    atomic_uint refs; /* the buffer's, each reader's, the writer's */
    struct gb_session *session;
    struct gb_core_device *device;
    enum gb_kind kind;
    struct gb_core_pool *pool;           /* a reference; the device's own for other kinds than DEVICE */
    struct gb_core_stream *alloc_stream; /* where it is allocated and freed in order; see stream.h */
    const char *buffer;                  /* name of the buffer that it was made for, behind this */
    struct gb_alloc_log_link alloc_log;
    uint64_t bytes;
    uint64_t locked_bytes;       /* of another process, that this one page-locked */
    void *ptr;                   /* NULL: nothing allocated (yet), or zero bytes */
    atomic_bool blank;           /* reads as zeros, which are written when they are needed */
    atomic_bool left;            /* no buffer has it, or is to get it, any more; the session's lock */
    bool given;                  /* its bytes are out of the quota; the session's lock */
    bool promised;               /* they are to be in it before the device is asked; the session's lock */
    bool counted;                /* as freed */
    void (*on_freed)(void *arg); /* called once the memory was given back, without locks; NULL: no call */
    void *owner; /* the owner of memory of another process, on_freed's argument; NULL: the daemon's own memory */
    struct gb_ev *ready; /* recorded after the last write; NULL: the bytes were complete before they could be seen */
    /* The session's lock: */
    struct gb_pin_list pins; /* oldest first; each has a reference of its owner's */
    unsigned pin_count;
    unsigned pin_writers;
    bool mapping_for_write;        /* a pin for writing is on its way to the database: no reader may begin */
    bool held;                     /* pinned, and no buffer has it any more */
    bool tainted;                  /* a pin for writing was ended from outside: its process may write on */
    struct gb_last_transfer *last; /* NULL: none so large */
    struct gb_content *next;       /* in a list of those to be dropped */
    struct gb_ev *used;            /* kinds that are not from a pool: when the last use is over */
    struct gb_task task;
    void (*then)(void *arg);
    void *then_arg;
    void (*list_then)(void *arg); /* of gb_content_drop_list, for the rest of the list */
    void *list_arg;
};

/* Reserves the bytes and makes a description without memory, for a buffer of that name. If the quota has no room now,
 * and other buffers of the session may leave memory, gb_alloc_start waits for that and reserves the bytes then.
 * QUOTA_EXCEEDED, PINNED_LIMIT. The session's lock is held. */
int gb_content_new_locked(struct gb_session *session, struct gb_core_pool *pool, enum gb_kind kind,
                          struct gb_core_stream *alloc_stream, const struct gb_name *buffer, uint64_t bytes,
                          struct gb_content **ret, struct gb_error *err);
/* A content of memory that another process owns; its bytes count against no quota. The caller sets kind and ptr when
 * the memory is there; the kind is not DEVICE. NULL if memory is exhausted. */
struct gb_content *gb_content_foreign_new(struct gb_session *session, struct gb_core_device *device, uint64_t bytes);
struct gb_content *gb_content_ref(struct gb_content *content);

/* A buffer gets the content, or gives it up. The session's lock is held. */
void gb_content_attach_locked(struct gb_content *content);
void gb_content_detach_locked(struct gb_content *content);

/* Pins the bytes, or no longer. The session's lock is held. */
void gb_content_pin_locked(struct gb_content *content, struct gb_pin *pin);
void gb_content_unpin_locked(struct gb_content *content, struct gb_pin *pin);

/* Reserves bytes that were only promised. Returns 0, or -1 with QUOTA_EXCEEDED. No lock is held. */
int gb_content_redeem(struct gb_content *content, struct gb_error *err);

/* Writes the zeros of fresh memory that has not been written, in the order of its alloc_stream, and records ready
 * behind them. Called on a lane, before the memory is read or written in part. NULL is accepted. */
int gb_content_materialize(struct gb_content *content, struct gb_error *err);

/* Drops a reference; NULL is accepted. The last one queues the free in the order of the alloc_stream, and the bytes
 * leave the quota. Work on other streams must be done before.
 *
 * then(arg), if given, runs once: after that free if this was the last reference, else at once. Memory that is in no
 * pool is not waited for while work still uses it.
 *
 * Not under the session's lock, and not on a backend's thread: there gb_content_drop_later. */
void gb_content_drop(struct gb_content *content, void (*then)(void *arg), void *arg);

/* The same for a content whose last use was in the order of its alloc_stream, from any thread. The bytes leave the
 * quota and then(arg) runs at once; the memory may serve the next allocation of its size (content.c). */
void gb_content_retire(struct gb_content *content, void (*then)(void *arg), void *arg);

/* gb_content_drop from any thread: the lane frees the memory. */
void gb_content_drop_later(struct gb_content *content);

/* Drops a list linked by next. */
void gb_content_drop_all(struct gb_content *list);

/* The same, one content after the other; then(arg) runs after the last. */
void gb_content_drop_list(struct gb_content *list, void (*then)(void *arg), void *arg);

/* Puts more (a list; NULL is accepted) before the list. */
void gb_content_list_add(struct gb_content **list, struct gb_content *more);

/* Ends the content after its memory was given back: its bytes leave the quota, then runs, the content is freed. */
void gb_content_end(struct gb_content *content);

/* Counts and logs the allocation of the memory that content has now. */
void gb_content_count_alloc(struct gb_content *content);

/* --- getting memory ----------------------------------------------------------------------------------------------- */

struct gb_alloc {
    struct gb_task task;
    struct gb_retry_waiter waiter;
    struct gb_content *content; /* borrowed: its ptr is set; its alloc_stream is in use */
    uint64_t deadline_ns;       /* wait for memory until then; 0: do not */
    atomic_bool cancelled;      /* stop waiting */
    struct gb_error error;      /* on its way from the slow lane */
    bool at_limit;              /* the last try failed at the pool's own limit; the lane's, as all below */
    uint64_t missing;           /* how much the last try lacked, as far as is known */
    struct gb_room_ask room;
    enum gb_room_state room_state;
    uint64_t room_until_ns; /* 0: room was not asked for */
    uint64_t room_next_ns;
    uint64_t copies_went_ns;  /* when copies for other nodes gave way last; 0: they did not */
    uint64_t copies_until_ns; /* until when that is waited for at most */
    bool room_made;           /* unused memory of the pools was asked for */
    bool anywhere;            /* done asks the device for nothing, so it may run on the caller's thread */
    void (*done)(struct gb_alloc *alloc,
                 const struct gb_error *error); /* on the lane, or see anywhere; error NULL: there it is */
};

/* Makes the alloc_stream's part if need be and allocates content->bytes on it. If memory is exhausted it trims the pool
 * and the unused memory of others, tries once more, and then waits for frees until the deadline. */
void gb_alloc_start(struct gb_alloc *alloc, unsigned wait_ms);

/* Counts the result and calls done. error NULL: the memory is there. On the lane. */
void gb_alloc_finish(struct gb_alloc *alloc, struct gb_error *error);

/* Counts and posts a refusal without asking the device: the request is larger than the pool can ever give. [any
 * thread] */
void gb_alloc_denied(struct gb_session *session, struct gb_core_pool *pool, uint64_t bytes,
                     const struct gb_error *error);

/* Tries waiting allocations again. True while there are any. On the lane. */
bool gb_alloc_retry(void *device);

/* Freed pool memory is cached briefly. An allocation with the same pool, stream and size reuses it without asking the
 * device, and the request that freed it waits for no free. In a stream's own order a pool does the same, but a pool
 * must be asked on the lane, and two changes of thread cost more than the rest of a small request.
 *
 * All work on the lane begins by freeing the cached memory, so that no allocation finds less memory than there is.
 * Memory that is not reused is freed after a tick or two. Only memory that the CPU does not reach is cached: elsewhere
 * the pool is asked at once. */

struct gb_content;
struct gb_core_device;

struct gb_free_cache {
    pthread_mutex_t lock;     /* a leaf */
    struct gb_content *first; /* linked by next; the one freed last first */
    atomic_uint count;
    uint64_t bytes;
    _Atomic uint64_t last_ns; /* when memory was cached last */
    uint64_t freed_ns;        /* when all were freed last; the lane's alone */
};

#define GB_FREE_CACHE_COUNT 64
#define GB_FREE_CACHE_BYTES (256ull << 20)

/* NULL if memory is exhausted. gb_free_cache_end accepts NULL; the cache is empty by then. */
struct gb_free_cache *gb_free_cache_new(void);
void gb_free_cache_end(struct gb_free_cache *free_cache);

/* Gives content cached memory of its pool, alloc_stream and size: sets its ptr and counts an allocation. False: there
 * is none. [any thread, never blocks] */
bool gb_free_cache_take(struct gb_content *content);

/* Frees all cached memory. On the lane. */
void gb_free_cache_free(void *device);

/* Frees all cached memory if none was added since the last tick, and now and then in any case. True while it must be
 * called again. On the lane, at each tick. */
bool gb_free_cache_retry(struct gb_core_device *device);

/* The times of a content's last large transfer, which the reply's header left too early to tell. */

/* Keeps the transfer, which ended now, if it was large. content may be NULL. The session's lock is held. */
void gb_last_transfer_keep_locked(struct gb_content *content, enum gb_direction direction, uint64_t bytes,
                                  uint64_t queue_ns, uint64_t copy_ns);

/* The same, with the lock taken where the transfer was large. */
void gb_last_transfer_keep(struct gb_content *content, enum gb_direction direction, uint64_t bytes, uint64_t queue_ns,
                           uint64_t copy_ns);

#endif
