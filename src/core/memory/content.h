/* The bytes of a buffer: memory of one kind, with a count of its users. Its bytes count against the session's quota
 * from gb_content_new_locked, before the device is asked, until the memory has been given back. */
#ifndef GB_CORE_MEMORY_CONTENT_H
#define GB_CORE_MEMORY_CONTENT_H

#include <sys/queue.h>
#include <sys/types.h>

#include "core/memory/alloc_log.h"
#include "core/memory/alloc_stats.h"
#include "core/memory/room.h"
#include "core/session/session.h"

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
    struct gb_core_stream *alloc_stream; /* where it is allocated and freed in order; see device/stream.h */
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
    struct gb_last_transfer *last; /* NULL: none so large; last_transfer.h */
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
 * quota and then(arg) runs at once; the memory may serve the next allocation of its size (free_cache.h). */
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

/* Gives memory of a pool back to the device and ends the content. On the lane. */
void gb_content_free_memory(struct gb_content *content);

/* Counts and logs the allocation of the memory that content has now. */
void gb_content_count_alloc(struct gb_content *content);

/* Counts and logs the free, once. */
void gb_content_count_free(struct gb_content *content);

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

#endif
