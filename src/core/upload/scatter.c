/* Uploads whose bytes do not lie side by side in the buffer. */
#include <stdlib.h>

#include "core/upload/upload.h"

#define SCRATCH_BYTES (64u * 1024u)
#define SLOT_BOXES 64 /* copies out of one slot: they are queued at once, and CUDA's queue is bounded */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* --- by the CPU --------------------------------------------------------------------------------------------------- */

int gb_scatter_room_locked(struct gb_upload *u, void **ret_ptr, struct gb_error *err) {
    uint64_t left = u->plan.payload - u->filled;

    if (!u->scratch && !(u->scratch = malloc(least(u->plan.payload, SCRATCH_BYTES))))
        return gb_no_memory(err);
    *ret_ptr = u->scratch + u->scratch_n;
    u->room = least(left, SCRATCH_BYTES - u->scratch_n);
    u->touched = true;
    return 1;
}

static void unpack(struct gb_upload *u, uint64_t at, const char *from, size_t n) {
    struct gb_cut cut;
    uint64_t offset;
    uint64_t packed;
    uint64_t i;

    for (; n > 0; at += cut.bytes, from += cut.bytes, n -= cut.bytes) {
        gb_view_cut(&u->plan.view, at, n, UINT64_MAX, &cut);
        for (i = 0; i < cut.boxes; i++) {
            gb_cut_box(&cut, i, &offset, &packed);
            gb_box_copy(&cut.box, (char *)u->content->ptr + offset, (char *)(uintptr_t)from + packed, false);
        }
    }
}

void gb_scatter_fill(struct gb_upload *u, size_t n) {
    u->scratch_n += n;
    if (u->scratch_n < SCRATCH_BYTES && u->filled < u->plan.payload)
        return;
    unpack(u, u->filled - u->scratch_n, u->scratch, u->scratch_n);
    u->scratch_n = 0;
}

/* --- by the device ------------------------------------------------------------------------------------------------ */

size_t gb_scatter_slot(const struct gb_upload *u) {
    uint64_t most = least(u->plan.payload - u->filled, u->t.core->slots.slot_bytes);
    uint64_t boxes = SLOT_BOXES;
    uint64_t bytes = 0;
    struct gb_cut cut;

    while (bytes < most && boxes > 0) {
        gb_view_cut(&u->plan.view, u->filled + bytes, most - bytes, boxes, &cut);
        bytes += cut.bytes;
        boxes -= cut.boxes;
    }
    return bytes;
}

int gb_scatter_queue(struct gb_upload *u, struct gb_staged_copy *f, struct gb_error *err) {
    uint64_t at = u->filled - f->bytes;
    uint64_t done;
    uint64_t offset;
    uint64_t packed;
    uint64_t i;
    struct gb_cut cut;

    for (done = 0; done < f->bytes; done += cut.bytes) {
        gb_view_cut(&u->plan.view, at + done, f->bytes - done, SLOT_BOXES, &cut);
        for (i = 0; i < cut.boxes; i++) {
            struct gb_location place;

            gb_cut_box(&cut, i, &offset, &packed);
            place = gb_content_location(u->content, offset);
            if (gb_staged_copy_box(f, &place, done + packed, &cut.box, GB_COPY_TO_DEVICE, err) < 0)
                return -1;
        }
    }
    return 0;
}
