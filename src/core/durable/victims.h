/* Which buffers give up their memory for others. */
#ifndef GB_CORE_DURABLE_VICTIMS_H
#define GB_CORE_DURABLE_VICTIMS_H

#include "core/buffer/buffer.h"
#include "core/memory/room.h"

/* A buffer whose bytes may leave memory. */
struct gb_victim {
    struct gb_session *session; /* a reference */
    int64_t id;                 /* of the buffer */
    uint64_t bytes;             /* that the ask gets by it */
    uint64_t used_ns;
    int priority; /* of the session */
    bool dirty;   /* the disk has not its bytes yet */
};

struct gb_victims {
    struct gb_victim *items;
    size_t count;
    size_t room;
    uint64_t bytes; /* of all of them */
    uint64_t later; /* bytes of those that are in use, or that came just now */
};

/* Adds what the session has for the ask. disk: it takes writes. Its lock is held. */
void gb_victims_add_locked(struct gb_victims *victims, struct gb_session *session, const struct gb_room_ask *ask,
                           bool disk);

/* How many bytes the session could give, now or soon, if the disk takes writes. Its lock is held. */
uint64_t gb_victims_sum_locked(const struct gb_session *session, const struct gb_room_ask *ask);

/* Puts those to the front that go first: of sessions of a low priority, then what the disk has already, then what was
 * not used for longest. Keeps as many as give `bytes`, none if all together give less. */
void gb_victims_choose(struct gb_victims *victims, uint64_t bytes);

void gb_victims_done(struct gb_victims *victims);

#endif
