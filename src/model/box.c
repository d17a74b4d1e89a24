/* Boxes: their rules, and copying one by the CPU. */
#include <string.h>

#include "base/text.h"
#include "model/view.h"

/* --- rules -------------------------------------------------------------------------------------------------------- */

static bool side_ok(const struct gb_box *box, uint64_t pitch, uint64_t plane, uint64_t *ret_extent) {
    uint64_t rows;
    uint64_t planes;

    if (box->rows > 1 && pitch < box->width)
        return false;
    if (box->planes > 1 && box->rows > 1 && (plane % pitch != 0 || plane / pitch < box->rows))
        return false;
    if (box->planes > 1 && plane < box->width)
        return false;
    return gb_mul_u64(box->rows - 1, pitch, &rows) && gb_mul_u64(box->planes - 1, plane, &planes) &&
           gb_add_u64(rows, planes, ret_extent) && gb_add_u64(*ret_extent, box->width, ret_extent);
}

int gb_box_check(const struct gb_box *box, uint64_t *ret_extent, uint64_t *ret_packed, struct gb_error *err) {
    uint64_t extent = 0;
    uint64_t packed = 0;

    if (box->width > 0 && box->rows > 0 && box->planes > 0 &&
        (!side_ok(box, box->pitch, box->plane, &extent) ||
         !side_ok(box, box->packed_pitch, box->packed_plane, &packed)))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a box of %llu planes of %llu rows of %llu bytes does not go with its pitches",
                            (unsigned long long)box->planes, (unsigned long long)box->rows,
                            (unsigned long long)box->width);
    *ret_extent = extent;
    *ret_packed = packed;
    return 0;
}

/* --- by the CPU --------------------------------------------------------------------------------------------------- */

/* A constant size makes one move of it. */
#define ROWS(n)                                                                                                        \
    for (i = 0; i < rows; i++)                                                                                         \
    memcpy((char *)dst + i * dst_pitch, (const char *)src + i * src_pitch, n)

static void copy_rows(void *dst, uint64_t dst_pitch, const void *src, uint64_t src_pitch, uint64_t width,
                      uint64_t rows) {
    uint64_t i;

    switch (width) {
    case 1:
        ROWS(1);
        break;
    case 2:
        ROWS(2);
        break;
    case 4:
        ROWS(4);
        break;
    case 8:
        ROWS(8);
        break;
    case 16:
        ROWS(16);
        break;
    default:
        ROWS(width);
    }
}

void gb_box_copy(const struct gb_box *box, void *memory, void *packed, bool pack) {
    char *m = memory;
    char *p = packed;
    uint64_t i;

    for (i = 0; i < box->planes; i++, m += box->plane, p += box->packed_plane) {
        if (pack)
            copy_rows(p, box->packed_pitch, m, box->pitch, box->width, box->rows);
        else
            copy_rows(m, box->pitch, p, box->packed_pitch, box->width, box->rows);
    }
}
