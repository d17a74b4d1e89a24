#include "core/util/mirror.h"

#define NONE GB_HEAD_UNINITIALIZED
#define HOST GB_HEAD_HOST
#define DEVICE GB_HEAD_DEVICE
#define SYNCED GB_HEAD_SYNCED

#define GO GB_MIRROR_GO
#define ZERO GB_MIRROR_ZERO
#define COPY GB_MIRROR_COPY
#define FROM_HOST GB_MIRROR_FROM_HOST
#define FROM_DEVICE GB_MIRROR_FROM_DEVICE
#define REFUSED GB_MIRROR_REFUSED

/* By head: uninitialized, host, device, synced. */
static const struct gb_mirror_move moves[GB_MIRROR_ACTIONS][GB_HEAD_COUNT] = {
    [GB_MIRROR_WRITE_HOST] = {{HOST, GO}, {HOST, GO}, {HOST, GO}, {HOST, GO}},
    [GB_MIRROR_WRITE_DEVICE] = {{DEVICE, GO}, {DEVICE, GO}, {DEVICE, GO}, {DEVICE, GO}},
    [GB_MIRROR_MERGE_HOST] = {{HOST, ZERO}, {HOST, GO}, {HOST, COPY}, {HOST, GO}},
    [GB_MIRROR_MERGE_DEVICE] = {{DEVICE, ZERO}, {DEVICE, COPY}, {DEVICE, GO}, {DEVICE, GO}},
    [GB_MIRROR_READ] = {{NONE, ZERO}, {HOST, FROM_HOST}, {DEVICE, FROM_DEVICE}, {SYNCED, FROM_HOST}},
    [GB_MIRROR_SYNC_HOST] = {{HOST, ZERO}, {HOST, GO}, {SYNCED, COPY}, {SYNCED, GO}},
    [GB_MIRROR_SYNC_DEVICE] = {{DEVICE, ZERO}, {SYNCED, COPY}, {DEVICE, GO}, {SYNCED, GO}},
    [GB_MIRROR_RELEASE_HOST] = {{NONE, GO}, {HOST, REFUSED}, {DEVICE, GO}, {DEVICE, GO}},
    [GB_MIRROR_RELEASE_DEVICE] = {{NONE, GO}, {HOST, GO}, {DEVICE, REFUSED}, {HOST, GO}},
    [GB_MIRROR_RELEASE_ALL] = {{NONE, GO}, {NONE, GO}, {NONE, GO}, {NONE, GO}},
};

struct gb_mirror_move gb_mirror_move(enum gb_head head, enum gb_mirror_action action) {
    return moves[action][head];
}
