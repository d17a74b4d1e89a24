/* Room for an allocation that found none: buffers that can do without their memory for a while give it up. What they
 * are is known above (core->make_room); here the allocation asks and waits. */
#ifndef GB_CORE_MEMORY_ROOM_H
#define GB_CORE_MEMORY_ROOM_H

#include "core/device/pool.h"
#include "core/runtime/runtime.h"

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

#endif
