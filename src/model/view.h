/* Which bytes of a buffer are meant, as one sequence: all, a part, or the elements that a slice picks. Pure.
 *
 * A view is taken in pieces ("cuts") that fit into a slot, and a cut in boxes: what one strided copy of a device
 * does. */
#ifndef GB_MODEL_VIEW_H
#define GB_MODEL_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "model/tensor.h"

struct gb_axis {
    uint64_t count;  /* at least 1 */
    uint64_t stride; /* in bytes of the memory, from one to the next */
};

/* `run` bytes that lie side by side, again for each step along the axes, the last axis fastest. No byte is met twice.
 * The sequence goes upwards in memory, except that of an array in Fortran order. */
struct gb_view {
    uint64_t offset; /* of the first byte in the memory */
    uint64_t bytes;  /* of the sequence; 0: empty */
    uint64_t run;
    unsigned axes; /* 0: the bytes lie side by side */
    struct gb_axis axis[GB_DIMS_MAX];
};

/* [offset, offset + bytes). */
struct gb_view gb_view_plain(uint64_t offset, uint64_t bytes);

/* Elements of `width` bytes along axes that lie within a C-ordered tensor whose bytes 64 bits can count. Axes of one
 * step vanish, those that continue each other become one. */
struct gb_view gb_view_make(uint64_t offset, uint64_t width, const struct gb_axis *axis, unsigned axes);

/* The elements of a C-ordered tensor in Fortran order: along the same axes, the first one fastest. */
struct gb_view gb_view_fortran(uint64_t offset, uint64_t width, const struct gb_axis *axis, unsigned axes);
/* All of a C-ordered tensor that begins at offset. axis: GB_DIMS_MAX of them, its axes afterwards. */
void gb_view_axes(const struct gb_shape *shape, uint64_t width, struct gb_axis *axis);

bool gb_view_upwards(const struct gb_view *view);

/* The last byte's end in the memory; 64 bits hold it where gb_view_make's promise is kept. */
uint64_t gb_view_end(const struct gb_view *view);

/* --- boxes -------------------------------------------------------------------------------------------------------- */

/* planes of rows of bytes, in memory with its pitches (bytes from row to row, from plane to plane), and packed
 * elsewhere with others. */
struct gb_box {
    uint64_t width; /* bytes of a row; 0: empty */
    uint64_t rows;
    uint64_t planes;
    uint64_t pitch;
    uint64_t plane;
    uint64_t packed_pitch;
    uint64_t packed_plane;
};

/* Rows and planes do not overlap, and a plane's pitch is a multiple of a row's, on either side: what cudaMemcpy3D asks
 * for. *ret_extent, *ret_packed: bytes from the first to behind the last, on the one side and the other. Returns 0, or
 * -1 with INVALID_ARGUMENT. */
int gb_box_check(const struct gb_box *box, uint64_t *ret_extent, uint64_t *ret_packed, struct gb_error *err);

/* By the CPU: packs (or unpacks) it. */
void gb_box_copy(const struct gb_box *box, void *memory, void *packed, bool pack);

/* --- cuts --------------------------------------------------------------------------------------------------------- */

/* The next bytes of a view, in boxes of one form. */
struct gb_cut {
    uint64_t bytes; /* of the sequence */
    uint64_t boxes;
    struct gb_box box;
    uint64_t offset; /* of the first box in the memory */
    unsigned axes;   /* along which boxes are repeated */
    struct {
        uint64_t count;
        uint64_t stride;
        uint64_t packed;
    } axis[GB_DIMS_MAX];
};

/* From byte `at` of the sequence, at < view->bytes, at most `most` > 0 bytes in at most boxes_max > 0 boxes; never
 * nothing. */
void gb_view_cut(const struct gb_view *view, uint64_t at, uint64_t most, uint64_t boxes_max, struct gb_cut *ret);

/* Where the i-th box begins: in the memory, and from the beginning of the cut. */
void gb_cut_box(const struct gb_cut *cut, uint64_t i, uint64_t *ret_offset, uint64_t *ret_packed);

/* The bytes of a cut in the order in which they lie in the memory: where they are in the memory, and where they are in
 * the packed cut. Both are of the same bytes in the same order. */
void gb_cut_upwards(const struct gb_cut *cut, struct gb_view *ret_memory, struct gb_view *ret_packed);

/* How many bytes lie side by side from byte `at` on. */
uint64_t gb_view_straight(const struct gb_view *view, uint64_t at);

#endif
