/* The bytes of a buffer: memory of a pool with a count of who reads it. Its bytes count against the session's quota from
 * gb_content_new_locked, before the device is asked, until the memory was given back. */
#ifndef GB_CORE_MEMORY_CONTENT_H
#define GB_CORE_MEMORY_CONTENT_H

#include "core/runtime/runtime.h"
#include "core/share/lease_table.h"

struct gb_session;

struct gb_content {
    atomic_uint refs; /* the buffer's, each reader's, the writer's */
    struct gb_session *session;
    struct gb_core_device *device;
    enum gb_kind kind;
    struct gb_core_pool *pool;           /* a reference; the device's own for other kinds than DEVICE */
    struct gb_core_stream *alloc_stream; /* where it is allocated, and freed in order; see stream.h */
    const char *buffer;                  /* name of the one that it was made for, behind this */
    struct gb_alloc_log_link alloc_log;
    uint64_t bytes;
    void *ptr;                    /* NULL: nothing allocated (yet), or zero bytes */
    atomic_bool blank;            /* reads as zeros, which are put there when somebody needs them */
    atomic_bool left;             /* no buffer has it, or is to get it, any more; the session's lock */
    bool given;                   /* its bytes are out of the quota; the session's lock */
    bool counted;                 /* as freed */
    struct gb_adoption *adoption; /* its memory is another process's; NULL: the daemon's own */
    struct gb_ev *ready;          /* recorded after the last write; NULL: complete before anyone could see it */
    /* The session's lock: */
    struct gb_lease_list leases; /* each with a reference; none may be written in place or freed meanwhile */
    unsigned lease_count;
    unsigned lease_writers;
    bool mapping_for_write;  /* one for writing is on its way to the database: nobody may begin to read */
    bool held;               /* mapped, and no buffer has it any more */
    bool tainted;            /* a lease for writing was ended from outside: its process may write on */
    struct gb_content *next; /* in a list of those to be dropped */
    struct gb_ev *used;      /* kinds that are not from a pool: when the last use is over */
    struct gb_task task;
    void (*then)(void *arg);
    void *then_arg;
    void (*list_then)(void *arg); /* of gb_content_drop_list, for the rest of the list */
    void *list_arg;
};

/* Reserves and makes a description, for a buffer of that name; no memory yet. QUOTA_EXCEEDED. The session's lock is held. */
int gb_content_new_locked(struct gb_session *session, struct gb_core_pool *pool, enum gb_kind kind,
                          struct gb_core_stream *alloc_stream, const struct gb_name *buffer, uint64_t bytes,
                          struct gb_content **ret, struct gb_error *err);
/* One of memory that another process owns, which counts against no quota of bytes. kind and ptr are set when it is there;
 * kind is none of a pool. NULL when memory is exhausted. */
struct gb_content *gb_content_foreign_new(struct gb_session *session, struct gb_core_device *device, uint64_t bytes);
struct gb_content *gb_content_ref(struct gb_content *content);

/* A buffer gets it, or gives it up. The session's lock is held. */
void gb_content_attach_locked(struct gb_content *content);
void gb_content_detach_locked(struct gb_content *content);

/* On a lane, before the memory is read, or written in part: fresh memory that nobody wrote is zeroed, in the order of its
 * home; ready is recorded behind that. NULL is accepted. */
int gb_content_materialize(struct gb_content *content, struct gb_error *err);

/* Drops a reference; NULL is accepted. The last one queues the free in the order of its home, and the bytes leave the
 * quota. Work on other streams must be done before. then(arg), if given, runs once: after that free when this was the last
 * reference, else at once; memory that is in no pool is not waited for while work still uses it. Not under the session's lock, and not on a backend's thread: there gb_content_drop_later. */
void gb_content_drop(struct gb_content *content, void (*then)(void *arg), void *arg);

/* The same for one whose last use was in the order of its home, from any thread: the bytes leave the quota and then(arg) runs
 * at once, and the memory may serve the next of that size (free_cache.h). */
void gb_content_retire(struct gb_content *content, void (*then)(void *arg), void *arg);

/* gb_content_drop from any thread: the lane frees. */
void gb_content_drop_later(struct gb_content *content);

/* Drops a list linked by next. */
void gb_content_drop_all(struct gb_content *list);

/* The same, one after the other; then(arg) runs after the last. */
void gb_content_drop_list(struct gb_content *list, void (*then)(void *arg), void *arg);

/* Puts what comes (a list; NULL is accepted) before the list. */
void gb_content_list_add(struct gb_content **list, struct gb_content *more);

/* The memory is given back: out of the quota, then runs, freed. */
void gb_content_end(struct gb_content *content);

/* On the lane: gives memory of a pool back to the device, and ends the content. */
void gb_content_free_memory(struct gb_content *content);

/* Counts the allocation of what content has now. */
void gb_content_count_alloc(struct gb_content *content);

/* Counts the free, once. */
void gb_content_count_free(struct gb_content *content);

/* --- getting memory ------------------------------------------------------------------------------------------------------ */

struct gb_alloc {
    struct gb_task task;
    struct gb_alloc *next;
    struct gb_content *content; /* borrowed: ptr is set; somebody uses its home */
    uint64_t deadline_ns;       /* wait for memory until then; 0: do not */
    atomic_bool cancelled;      /* stop waiting */
    struct gb_error error;      /* on its way from the slow lane */
    bool at_limit;              /* the last try failed at the pool's own limit; the lane's */
    bool room_made;             /* what the pools kept unused was asked for */
    bool anywhere;              /* done asks the device for nothing: it may run on the caller's thread */
    void (*done)(struct gb_alloc *alloc,
                 const struct gb_error *error); /* on the lane, or see anywhere; error NULL: there it is */
};

/* Makes the home's part on the device if need be and allocates content->bytes on it. When memory is exhausted: trims the
 * pool and what others keep, tries once more, waits for frees until the deadline. */
void gb_alloc_start(struct gb_alloc *alloc, unsigned wait_ms);

/* On the lane: counts it, calls done. error NULL: the memory is there. */
void gb_alloc_finish(struct gb_alloc *alloc, struct gb_error *error);

/* [any thread] Counts and tells what was refused without asking: it is more than the pool can ever give. */
void gb_alloc_denied(struct gb_session *session, struct gb_core_pool *pool, uint64_t bytes,
                     const struct gb_error *error);

/* The lane's: tries those again that wait. True while there are any. */
bool gb_alloc_retry(void *device);

#endif
