/* Views: the bytes of a memory that a slice selects, cut into boxes, which strided copies move. Functions work on their
 * arguments alone. Transfers and the formats call it. */
#include "model/view.h"

#include <string.h>

#include "base/text.h"

/* --- view --------------------------------------------------------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

struct gb_view gb_view_plain(uint64_t offset, uint64_t bytes) {
    return (struct gb_view){.offset = offset, .bytes = bytes, .run = bytes};
}

struct gb_view gb_view_make(uint64_t offset, uint64_t width, const struct gb_axis *axis, unsigned axes) {
    struct gb_view view = {.offset = offset, .bytes = width, .run = width};
    unsigned i;

    for (i = 0; i < axes; i++) {
        struct gb_axis *last = &view.axis[view.axes];

        view.bytes *= axis[i].count;
        if (axis[i].count == 0)
            return (struct gb_view){.offset = offset};
        if (axis[i].count == 1)
            continue;
        if (view.axes > 0 && (last - 1)->stride == axis[i].count * axis[i].stride) {
            (last - 1)->count *= axis[i].count;
            (last - 1)->stride = axis[i].stride;
            continue;
        }
        *last = axis[i];
        view.axes++;
    }
    if (view.axes > 0 && view.axis[view.axes - 1].stride == width) {
        view.axes--;
        view.run *= view.axis[view.axes].count;
    }
    return view;
}

struct gb_view gb_view_fortran(uint64_t offset, uint64_t width, const struct gb_axis *axis, unsigned axes) {
    struct gb_axis reversed[GB_DIMS_MAX];
    unsigned i;

    for (i = 0; i < axes; i++)
        reversed[i] = axis[axes - 1 - i];
    return gb_view_make(offset, width, reversed, axes);
}

void gb_view_axes(const struct gb_shape *shape, uint64_t width, struct gb_axis *axis) {
    unsigned i;

    for (i = shape->dims; i-- > 0; width *= shape->dim[i])
        axis[i] = (struct gb_axis){shape->dim[i], width};
}

bool gb_view_upwards(const struct gb_view *view) {
    unsigned i;

    for (i = 1; i < view->axes; i++) {
        if (view->axis[i].stride > view->axis[i - 1].stride)
            return false;
    }
    return true;
}

uint64_t gb_view_end(const struct gb_view *view) {
    uint64_t end = view->offset + view->run;
    unsigned i;

    for (i = 0; i < view->axes; i++)
        end += (view->axis[i].count - 1) * view->axis[i].stride;
    return end;
}

uint64_t gb_view_straight(const struct gb_view *view, uint64_t at) {
    return view->run - at % view->run;
}

/* --- cuts --------------------------------------------------------------------------------------------------------- */

/* A cut while it is worked out: `count` steps of axis `first` and all of those behind it. */
struct shape {
    const struct gb_view *view;
    unsigned first;
    uint64_t count;
    uint64_t packed[GB_DIMS_MAX]; /* bytes of the sequence in a step along each axis */
};

static uint64_t count_of(const struct shape *s, unsigned axis) {
    return axis == s->first ? s->count : s->view->axis[axis].count;
}

/* Where row r begins, and the steps along each axis that lead there. */
static uint64_t locate(const struct gb_view *view, uint64_t row, uint64_t *step) {
    uint64_t offset = view->offset;
    unsigned i;

    for (i = view->axes; i-- > 0;) {
        step[i] = row % view->axis[i].count;
        row /= view->axis[i].count;
        offset += step[i] * view->axis[i].stride;
    }
    return offset;
}

/* The largest part from here on whose axes behind the first are whole. */
static void enclose(struct shape *s, const uint64_t *step, uint64_t most) {
    const struct gb_view *view = s->view;
    uint64_t inner = view->run;

    s->first = view->axes - 1;
    s->packed[s->first] = inner;
    while (s->first > 0 && step[s->first] == 0 && inner <= most / view->axis[s->first].count) {
        inner *= view->axis[s->first].count;
        s->first--;
        s->packed[s->first] = inner;
    }
    s->count = least(view->axis[s->first].count - step[s->first], most / inner);
}

/* Which axes are the rows and the planes of a box, so that few boxes do: *ret_row, *ret_plane; the number of axes
 * stands for none. Returns the number of boxes. */
static uint64_t choose(const struct shape *s, unsigned *ret_row, unsigned *ret_plane) {
    const struct gb_view *view = s->view;
    uint64_t rows = 1;
    uint64_t best = 0;
    unsigned row;
    unsigned plane;

    *ret_row = *ret_plane = view->axes;
    for (row = s->first; row < view->axes; row++) {
        rows *= count_of(s, row);
        if (count_of(s, row) > best) {
            best = count_of(s, row);
            *ret_row = row;
            *ret_plane = view->axes;
        }
        for (plane = s->first; plane < row; plane++) {
            if (count_of(s, plane) > 1 && count_of(s, row) > 1 && count_of(s, plane) * count_of(s, row) > best &&
                view->axis[plane].stride % view->axis[row].stride == 0) {
                best = count_of(s, plane) * count_of(s, row);
                *ret_row = row;
                *ret_plane = plane;
            }
        }
    }
    return rows / best;
}

static void fill(const struct shape *s, unsigned row, unsigned plane, struct gb_cut *cut) {
    const struct gb_view *view = s->view;
    unsigned i;

    cut->bytes = s->count * s->packed[s->first];
    cut->box.width = view->run;
    cut->box.rows = count_of(s, row);
    cut->box.pitch = view->axis[row].stride;
    cut->box.packed_pitch = s->packed[row];
    if (plane < view->axes) {
        cut->box.planes = count_of(s, plane);
        cut->box.plane = view->axis[plane].stride;
        cut->box.packed_plane = s->packed[plane];
    }
    for (i = s->first; i < view->axes; i++) {
        if (i == row || i == plane || count_of(s, i) == 1)
            continue;
        cut->axis[cut->axes].count = count_of(s, i);
        cut->axis[cut->axes].stride = view->axis[i].stride;
        cut->axis[cut->axes].packed = s->packed[i];
        cut->axes++;
    }
}

void gb_view_cut(const struct gb_view *view, uint64_t at, uint64_t most, uint64_t boxes_max, struct gb_cut *ret) {
    uint64_t into = at % view->run;
    struct gb_cut cut = {.boxes = 1, .box = {.rows = 1, .planes = 1}};
    uint64_t step[GB_DIMS_MAX];
    struct shape s = {.view = view};
    unsigned row;
    unsigned plane;

    most = least(most, view->bytes - at);
    cut.offset = locate(view, at / view->run, step) + into;
    if (into > 0 || most < view->run || view->axes == 0) {
        cut.bytes = cut.box.width = least(most, view->run - into);
        *ret = cut;
        return;
    }
    enclose(&s, step, most);
    while ((cut.boxes = choose(&s, &row, &plane)) > boxes_max) {
        if (s.count > 1) {
            s.count = (s.count + 1) / 2;
        } else {
            s.first++;
            s.count = view->axis[s.first].count;
        }
    }
    fill(&s, row, plane, &cut);
    *ret = cut;
}

void gb_cut_box(const struct gb_cut *cut, uint64_t i, uint64_t *ret_offset, uint64_t *ret_packed) {
    uint64_t offset = cut->offset;
    uint64_t packed = 0;
    unsigned k;

    for (k = cut->axes; k-- > 0;) {
        offset += i % cut->axis[k].count * cut->axis[k].stride;
        packed += i % cut->axis[k].count * cut->axis[k].packed;
        i /= cut->axis[k].count;
    }
    *ret_offset = offset;
    *ret_packed = packed;
}

/* Puts an axis among the others, the largest step in the memory first. */
static void insert(struct gb_axis *memory, struct gb_axis *packed, unsigned *axes, uint64_t count, uint64_t stride,
                   uint64_t packed_stride) {
    unsigned i;

    if (count == 1)
        return;
    for (i = (*axes)++; i > 0 && memory[i - 1].stride < stride; i--) {
        memory[i] = memory[i - 1];
        packed[i] = packed[i - 1];
    }
    memory[i] = (struct gb_axis){count, stride};
    packed[i] = (struct gb_axis){count, packed_stride};
}

void gb_cut_upwards(const struct gb_cut *cut, struct gb_view *ret_memory, struct gb_view *ret_packed) {
    const struct gb_box *box = &cut->box;
    struct gb_axis memory[GB_DIMS_MAX];
    struct gb_axis packed[GB_DIMS_MAX];
    unsigned axes = 0;
    unsigned i;

    insert(memory, packed, &axes, box->rows, box->pitch, box->packed_pitch);
    insert(memory, packed, &axes, box->planes, box->plane, box->packed_plane);
    for (i = 0; i < cut->axes; i++)
        insert(memory, packed, &axes, cut->axis[i].count, cut->axis[i].stride, cut->axis[i].packed);
    *ret_memory = gb_view_make(cut->offset, box->width, memory, axes);
    *ret_packed = gb_view_make(0, box->width, packed, axes);
}

/* --- box ---------------------------------------------------------------------------------------------------------- */

/* Boxes: their rules, and copying one by the CPU. */

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
