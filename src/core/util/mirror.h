/* Mirrored buffers: which side is current, and what each action does to the sides. */
#ifndef GB_CORE_UTIL_MIRROR_H
#define GB_CORE_UTIL_MIRROR_H

#include "model/model.h"

enum gb_mirror_action {
    GB_MIRROR_WRITE_HOST, /* all bytes */
    GB_MIRROR_WRITE_DEVICE,
    GB_MIRROR_MERGE_HOST, /* some bytes, the others stay */
    GB_MIRROR_MERGE_DEVICE,
    GB_MIRROR_READ,
    GB_MIRROR_SYNC_HOST,
    GB_MIRROR_SYNC_DEVICE,
    GB_MIRROR_RELEASE_HOST,
    GB_MIRROR_RELEASE_DEVICE,
    GB_MIRROR_RELEASE_ALL,
    GB_MIRROR_ACTIONS
};

enum gb_mirror_step {
    GB_MIRROR_GO,          /* the action needs no step before it */
    GB_MIRROR_ZERO,        /* the bytes are zeros: nothing is to be copied, the side is to be zeroed */
    GB_MIRROR_COPY,        /* first the bytes of the other side are copied */
    GB_MIRROR_FROM_HOST,   /* read this side */
    GB_MIRROR_FROM_DEVICE, /* read that one */
    GB_MIRROR_REFUSED      /* the bytes would be lost */
};

struct gb_mirror_move {
    enum gb_head next;
    enum gb_mirror_step step;
};

/* The table of all moves. */
struct gb_mirror_move gb_mirror_move(enum gb_head head, enum gb_mirror_action action);

static inline enum gb_mirror_action gb_mirror_write(enum gb_side side, bool merge) {
    return side == GB_SIDE_HOST ? (merge ? GB_MIRROR_MERGE_HOST : GB_MIRROR_WRITE_HOST)
                                : (merge ? GB_MIRROR_MERGE_DEVICE : GB_MIRROR_WRITE_DEVICE);
}

static inline enum gb_side gb_other_side(enum gb_side side) {
    return side == GB_SIDE_HOST ? GB_SIDE_DEVICE : GB_SIDE_HOST;
}

#endif
