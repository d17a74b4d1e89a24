/* Allocation of memory of any kind behind one content: which kind and pool it has, the allocation, and the room that
 * other buffers make for it. */
#ifndef GB_CORE_MEMORY_ALLOC_H
#define GB_CORE_MEMORY_ALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/memory/content.h"
#include "core/runtime/runtime.h"

/* --- kind --------------------------------------------------------------------------------------------------------- */

/* Returns 0, or -1 with INVALID_ARGUMENT if a kind other than DEVICE names a pool. */
int gb_kind_check_pool(enum gb_kind kind, const struct gb_name *pool, struct gb_error *err);

/* As gb_core_pool_check, for kind DEVICE. Other kinds pass. */
int gb_kind_check_source(enum gb_kind kind, struct gb_core_pool *pool, struct gb_error *err);

/* The kind of a new buffer: the requested one, else the usual one of its device. A buffer in a named pool is of kind
 * DEVICE. */
enum gb_kind gb_kind_choose(const struct gb_core *core, const struct gb_buffer_params *params);

/* A mirrored buffer has the kind of its device side, which is the usual one of its device. Returns 0, or -1 with
 * INVALID_ARGUMENT if kind is another one. */
int gb_kind_check_mirrored(const struct gb_core_device *device, enum gb_kind kind, struct gb_error *err);

/* The pool of a new buffer: the named one, else its device's own, which other kinds have too. The session's lock is
 * held; no reference is taken. POOL_NOT_FOUND, DEVICE_NOT_FOUND. */
struct gb_core_pool *gb_kind_pool_locked(struct gb_session *session, const struct gb_buffer_params *params,
                                         struct gb_error *err);

/* Returns true if the CPU writes into the memory itself, without a slot. */
bool gb_kind_direct_in(const struct gb_core_device *device, enum gb_kind kind);

/* Returns true if the CPU reads the memory itself. False if the memory would have to be attached to the CPU, because
 * others may copy from it meanwhile. */
bool gb_kind_direct_out(const struct gb_core_device *device, enum gb_kind kind);

/* Returns true if the CPU may write only while the memory is attached to it (gb_mem_attach). */
bool gb_kind_attaches(const struct gb_core_device *device, enum gb_kind kind);

/* --- room --- */

/* Room for an allocation that found no memory: buffers whose bytes are stored elsewhere leave memory. core->make_room
 * chooses them; here the allocation asks and waits. */

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
    uint64_t frees_made;      /* of those that were put off, by the last try */
    uint64_t frees_until_ns;  /* the wait for them ends then; 0: none began */
    bool room_made;           /* the pools were trimmed */
    bool anywhere;            /* done does not call the device, so it may run on the caller's thread */
    /* Called on the lane, or see anywhere. error NULL: content has its memory. */
    void (*done)(struct gb_alloc *alloc, const struct gb_error *error);
};

/* Makes the alloc_stream's part if necessary and allocates content->bytes on it. If memory is exhausted, trims this
 * pool and others, tries once more, and then waits for frees for wait_ms. done gives the result. */
void gb_alloc_start(struct gb_alloc *alloc, unsigned wait_ms);

/* Counts and posts a refusal of a request that is larger than the pool can ever give. [any thread] */
void gb_alloc_denied(struct gb_session *session, struct gb_core_pool *pool, uint64_t bytes,
                     const struct gb_error *error);

/* Tries waiting allocations again. Returns true while any wait. On the lane. */
bool gb_alloc_retry(void *device);

/* Tries waiting allocations again. Returns true while any wait. On the slow lane. */
bool gb_kind_alloc_retry(void *device);

#endif
