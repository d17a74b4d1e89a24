/* Uploads whose bytes do not lie side by side in the buffer, or come in another order: slices, and arrays in Fortran
 * order. */
#include <stdlib.h>
#include <string.h>

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

void gb_scatter_flush(struct gb_upload *u) {
    unpack(u, u->plan.at + u->filled - u->scratch_n, u->scratch, u->scratch_n);
    u->scratch_n = 0;
}

void gb_scatter_fill(struct gb_upload *u, size_t n) {
    u->scratch_n += n;
    if (u->scratch_n == SCRATCH_BYTES || u->filled == u->plan.payload)
        gb_scatter_flush(u);
}

/* --- by the device ------------------------------------------------------------------------------------------------ */

/* How many boxes a cut takes when its bytes are in the order of the memory: one, or the number of rows that a slice
 * leaves apart. */
static uint64_t boxes_upwards(const struct gb_cut *cut) {
    struct gb_view memory;
    struct gb_view packed;
    struct gb_cut whole;

    gb_cut_upwards(cut, &memory, &packed);
    gb_view_cut(&memory, 0, memory.bytes, UINT64_MAX, &whole);
    return whole.boxes;
}

/* The next cut of a view, of at most `most` bytes, that takes at most boxes_max boxes. Returns how many it takes. */
static uint64_t next_cut(const struct gb_view *view, uint64_t at, uint64_t most, uint64_t boxes_max,
                         struct gb_cut *ret) {
    uint64_t boxes;

    if (gb_view_upwards(view)) {
        gb_view_cut(view, at, most, boxes_max, ret);
        return ret->boxes;
    }
    for (;; most = (ret->bytes + 1) / 2) {
        gb_view_cut(view, at, most, UINT64_MAX, ret);
        boxes = boxes_upwards(ret);
        if (boxes <= boxes_max)
            return boxes;
    }
}

size_t gb_scatter_slot(const struct gb_upload *u) {
    uint64_t most = least(u->plan.payload - u->filled, u->t.core->slots.slot_bytes);
    uint64_t at = u->plan.at + u->filled;
    uint64_t boxes = SLOT_BOXES;
    uint64_t bytes = 0;
    struct gb_cut cut;

    while (bytes < most && boxes > 0) {
        boxes -= next_cut(&u->plan.view, at + bytes, most - bytes, boxes, &cut);
        bytes += cut.bytes;
    }
    return bytes;
}

/* Queues the copies of `bytes` of the slot, from `from` on, to where the view has them from `at` on. */
static int queue(struct gb_upload *u, struct gb_staged_copy *f, uint64_t from, const struct gb_view *view, uint64_t at,
                 uint64_t bytes, struct gb_error *err) {
    uint64_t done;
    uint64_t offset;
    uint64_t packed;
    uint64_t i;
    struct gb_cut cut;

    for (done = 0; done < bytes; done += cut.bytes) {
        gb_view_cut(view, at + done, bytes - done, SLOT_BOXES, &cut);
        for (i = 0; i < cut.boxes; i++) {
            struct gb_location place;

            gb_cut_box(&cut, i, &offset, &packed);
            place = gb_content_location(u->content, offset);
            if (gb_staged_copy_box(f, &place, from + done + packed, &cut.box, GB_COPY_TO_DEVICE, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* Brings packed bytes into the order of the view. */
static int reorder(char *bytes, const struct gb_view *view, struct gb_error *err) {
    char *ordered = malloc(view->bytes);
    uint64_t done;
    uint64_t offset;
    uint64_t packed;
    uint64_t i;
    struct gb_cut cut;

    if (!ordered)
        return gb_no_memory(err);
    for (done = 0; done < view->bytes; done += cut.bytes) {
        gb_view_cut(view, done, view->bytes - done, UINT64_MAX, &cut);
        for (i = 0; i < cut.boxes; i++) {
            gb_cut_box(&cut, i, &offset, &packed);
            gb_box_copy(&cut.box, bytes + offset, ordered + done + packed, true);
        }
    }
    memcpy(bytes, ordered, view->bytes);
    free(ordered);
    return 0;
}

/* A device copies rows, and each element would be one: the bytes are brought into the order of the memory first, which
 * makes rows as long as the slot permits. */
static int queue_reordered(struct gb_upload *u, struct gb_staged_copy *f, uint64_t at, struct gb_error *err) {
    struct gb_view memory;
    struct gb_view packed;
    struct gb_cut cut;
    uint64_t done;

    for (done = 0; done < f->bytes; done += cut.bytes) {
        (void)next_cut(&u->plan.view, at + done, f->bytes - done, SLOT_BOXES, &cut);
        gb_cut_upwards(&cut, &memory, &packed);
        if (reorder((char *)f->slot + done, &packed, err) < 0 || queue(u, f, done, &memory, 0, memory.bytes, err) < 0)
            return -1;
    }
    return 0;
}

int gb_scatter_queue(struct gb_upload *u, struct gb_staged_copy *f, struct gb_error *err) {
    uint64_t at = u->plan.at + u->filled - f->bytes;

    if (gb_view_upwards(&u->plan.view))
        return queue(u, f, 0, &u->plan.view, at, f->bytes, err);
    return queue_reordered(u, f, at, err);
}
