/* What a checkpoint is to keep: the bytes of all its buffers, held as of one moment. */
#ifndef GB_CORE_CHECKPOINT_HOLD_H
#define GB_CORE_CHECKPOINT_HOLD_H

#include "core/buffer/buffer.h"
#include "core/checkpoint/checkpoint.h"
#include "core/stored/persist.h"

/* Where the bytes are. */
enum gb_checkpoint_way {
    GB_CHECKPOINT_LINK,   /* in a file that was synced */
    GB_CHECKPOINT_INLINE, /* in the database alone */
    GB_CHECKPOINT_COPY,   /* in a file that cannot be linked */
    GB_CHECKPOINT_MEMORY
};

struct gb_checkpoint_item {
    enum gb_checkpoint_way way;
    struct gb_buffer_rec rec;   /* holds a reference to the labels */
    struct gb_content *content; /* MEMORY: a reference; NULL for a mirrored buffer that was never written */
    struct gb_stored *stored;   /* else: a reference */
    struct gb_persist persist;  /* MEMORY: the creation's */
    struct gb_checkpoint_item *next;
    void *owner;
};

struct gb_checkpoint_hold {
    struct gb_checkpoint_item *items;
    size_t count;
    int64_t as_of_us;
};

/* Holds all buffers under one hold of the session's lock. Those that are left out are noted in the call. */
int gb_checkpoint_hold(struct gb_session *session, const struct gb_checkpoint_params *params,
                       struct gb_checkpoint_call *call, struct gb_checkpoint_hold *ret, struct gb_error *err);
/* Whether the buffer of the item still has the same stored bytes. */
bool gb_checkpoint_still(struct gb_session *session, const struct gb_checkpoint_item *item);
/* Releases the bytes; the record stays. */
void gb_checkpoint_release(struct gb_checkpoint_item *item);
void gb_checkpoint_hold_done(struct gb_checkpoint_hold *hold); /* a zeroed one is accepted */

#endif
