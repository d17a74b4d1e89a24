/* Slices. Any text is refused, or gives a view whose bytes lie within the buffer, go upwards and are as many as its
 * shape says. What was written from numbers picks the elements that the numbers say. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/slice.h"
#include "fuzz.h"

#define WALK_MAX 4096

const char *const gb_fuzz_seeds[] = {
    "\x03\x05\x06\x07\x04"
    "0:16,3,:",
    "\x02\x05\x06\x14"
    "...,-1",
    "\x02\x85\x86\x08"
    "::2,-3:",
    "\x01\xf0\x07"
    "5:99999999999999999999:3",
    "\x13\x04\x05\x06\x0f\x01\x02\x03\x01\x01\x05\x02\x02\x03\x01",
    NULL,
};

static void read_shape(struct gb_fuzz_in *in, struct gb_shape *ret, enum gb_dtype *ret_dtype) {
    uint64_t bytes;
    unsigned i;

    memset(ret, 0, sizeof(*ret));
    ret->dims = (gb_fuzz_byte(in) & 7) % 6;
    for (i = 0; i < ret->dims; i++) {
        uint8_t b = gb_fuzz_byte(in);

        ret->dim[i] = b < 0x80 ? b & 15 : (uint64_t)1 << (b & 63);
    }
    *ret_dtype = (enum gb_dtype)(gb_fuzz_byte(in) % GB_DTYPE_COUNT);
    if (gb_shape_bytes(ret, *ret_dtype, &bytes, NULL) < 0)
        *ret = (struct gb_shape){.dims = 1, .dim = {7}};
}

/* Where each byte of a cut lies in the memory. Boxes may interleave, and none has a byte of another. */
static void place(const struct gb_cut *cut, uint64_t *where) {
    uint64_t row;
    uint64_t byte;
    uint64_t i;

    for (i = 0; i < cut->bytes; i++)
        where[i] = UINT64_MAX;
    for (i = 0; i < cut->boxes; i++) {
        uint64_t offset;
        uint64_t packed;

        gb_cut_box(cut, i, &offset, &packed);
        for (row = 0; row < cut->box.rows * cut->box.planes; row++) {
            uint64_t r = row % cut->box.rows;
            uint64_t p = row / cut->box.rows;
            uint64_t to = packed + r * cut->box.packed_pitch + p * cut->box.packed_plane;

            for (byte = 0; byte < cut->box.width; byte++) {
                FUZZ_ASSERT(to + byte < cut->bytes && where[to + byte] == UINT64_MAX);
                where[to + byte] = offset + r * cut->box.pitch + p * cut->box.plane + byte;
            }
        }
    }
}

/* Each byte of the view once, upwards in memory if it is in C order. Appends the offsets of its elements to ret, unless
 * NULL. */
static void walk(const struct gb_view *view, bool upwards, uint64_t total, uint64_t width, uint64_t most,
                 uint64_t *ret) {
    static uint64_t where[WALK_MAX];
    struct gb_cut cut;
    uint64_t last = 0;
    uint64_t at;
    uint64_t i;

    for (at = 0; at < view->bytes; at += cut.bytes) {
        gb_view_cut(view, at, most, 3, &cut);
        FUZZ_ASSERT(cut.bytes > 0 && cut.bytes <= most && cut.boxes > 0 && cut.boxes <= 3);
        place(&cut, where);
        for (i = 0; i < cut.bytes; i++) {
            FUZZ_ASSERT((where[i] >= last || !upwards) && where[i] < total);
            last = where[i] + 1;
            if (ret && (at + i) % width == 0)
                *ret++ = where[i];
        }
    }
}

static void check_view(const struct gb_shape *shape, enum gb_dtype dtype, const struct gb_shape *picked,
                       const struct gb_view *view, bool upwards, uint64_t most) {
    uint64_t total = 0;
    uint64_t bytes = 0;

    FUZZ_ASSERT(gb_shape_bytes(shape, dtype, &total, NULL) == 0 && gb_shape_bytes(picked, dtype, &bytes, NULL) == 0);
    FUZZ_ASSERT(picked->dims <= shape->dims && view->bytes == bytes && bytes <= total);
    if (bytes > 0)
        FUZZ_ASSERT(gb_view_end(view) <= total && view->offset < total && bytes % view->run == 0);
    if (bytes <= WALK_MAX)
        walk(view, upwards, total, gb_dtype_bytes(dtype), most, NULL);
}

/* --- from numbers ------------------------------------------------------------------------------------------------- */

struct range {
    uint64_t start;
    uint64_t stop;
    uint64_t step;
    bool index;
};

/* Numbers from the end stand for the same place where they can. */
static int write_place(char *out, uint64_t place, uint64_t dim, bool from_end) {
    return from_end && place < dim ? sprintf(out, "-%" PRIu64, dim - place) : sprintf(out, "%" PRIu64, place);
}

static size_t write_ranges(struct gb_fuzz_in *in, const struct gb_shape *shape, struct range *range, char *out) {
    size_t n = 0;
    unsigned i;

    for (i = 0; i < shape->dims; i++) {
        uint8_t how = gb_fuzz_byte(in);
        uint64_t dim = shape->dim[i];

        range[i] = (struct range){gb_fuzz_byte(in) & 15, gb_fuzz_byte(in) & 31, 1 + (how >> 5), how & 1};
        if (range[i].index && dim > 0) {
            range[i].start %= dim;
            range[i].stop = range[i].start + 1;
        }
        range[i].index = range[i].index && dim > 0;
        range[i].step = range[i].index ? 1 : range[i].step;
        n += (size_t)sprintf(out + n, i > 0 ? "," : "");
        n += (size_t)write_place(out + n, range[i].start, dim, how & 2);
        if (range[i].index)
            continue;
        n += (size_t)sprintf(out + n, how & 4 ? " : " : ":");
        n += (size_t)write_place(out + n, range[i].stop, dim, how & 8);
        if (range[i].step > 1 || how & 16)
            n += (size_t)sprintf(out + n, ":+%" PRIu64, range[i].step);
    }
    return n;
}

static size_t pick(const struct gb_shape *shape, const struct range *range, uint64_t width, uint64_t *ret) {
    uint64_t at[8] = {0};
    size_t n = 0;
    unsigned i;

    for (;;) {
        uint64_t place = 0;
        bool in = true;

        for (i = 0; i < shape->dims; i++) {
            place = place * shape->dim[i] + at[i];
            in = in && at[i] >= range[i].start && at[i] < range[i].stop && at[i] < shape->dim[i] &&
                 (at[i] - range[i].start) % range[i].step == 0;
        }
        if (in)
            ret[n++] = place * width;
        for (i = shape->dims; i > 0 && ++at[i - 1] >= shape->dim[i - 1]; i--)
            at[i - 1] = 0;
        if (i == 0)
            return n;
    }
}

/* The same elements, the first axis of the result fastest. */
static void check_fortran(const struct gb_shape *picked, const uint64_t *want, const uint64_t *got, size_t count) {
    size_t k;
    unsigned i;

    for (k = 0; k < count; k++) {
        uint64_t at[8] = {0};
        uint64_t place = 0;
        size_t rest = k;

        for (i = 0; i < picked->dims; i++) {
            at[i] = rest % picked->dim[i];
            rest /= picked->dim[i];
        }
        for (i = 0; i < picked->dims; i++)
            place = place * picked->dim[i] + at[i];
        FUZZ_ASSERT(got[k] == want[place]);
    }
}

static void check_written(struct gb_fuzz_in *in, const struct gb_shape *shape, enum gb_dtype dtype, uint64_t most) {
    static uint64_t want[WALK_MAX];
    static uint64_t got[WALK_MAX];
    uint64_t width = gb_dtype_bytes(dtype);
    struct range range[8];
    struct gb_shape picked;
    struct gb_view fortran;
    struct gb_view view;
    char text[512];
    size_t n = write_ranges(in, shape, range, text);
    uint64_t bytes;
    size_t count;

    if (shape->dims == 0 || gb_shape_bytes(shape, dtype, &bytes, NULL) < 0 || bytes > WALK_MAX)
        return;
    FUZZ_ASSERT(gb_slice_parse(text, n, shape, dtype, &picked, &view, &fortran, NULL) == 0);
    check_view(shape, dtype, &picked, &view, true, most);
    check_view(shape, dtype, &picked, &fortran, false, most);
    count = bytes > 0 ? pick(shape, range, width, want) : 0;
    FUZZ_ASSERT(view.bytes == count * width);
    walk(&view, true, bytes, width, most, got);
    FUZZ_ASSERT(memcmp(want, got, count * sizeof(got[0])) == 0);
    walk(&fortran, false, bytes, width, most, got);
    check_fortran(&picked, want, got, count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_fuzz_in in = {data, size};
    struct gb_error err = GB_ERROR_INIT;
    bool written = size > 0 && data[0] & 16;
    uint64_t most = size > 0 ? 1 + (data[0] >> 5) * 29u : 1;
    struct gb_shape picked;
    struct gb_shape shape;
    struct gb_view fortran;
    struct gb_view view;
    enum gb_dtype dtype;

    read_shape(&in, &shape, &dtype);
    most = most < gb_dtype_bytes(dtype) ? gb_dtype_bytes(dtype) : most;
    if (written) {
        check_written(&in, &shape, dtype, most);
    } else if (gb_slice_parse((const char *)in.at, in.n, &shape, dtype, &picked, &view, &fortran, &err) == 0) {
        check_view(&shape, dtype, &picked, &view, true, most);
        check_view(&shape, dtype, &picked, &fortran, false, most);
    } else {
        FUZZ_ASSERT_SAYS(err);
    }
    return 0;
}
