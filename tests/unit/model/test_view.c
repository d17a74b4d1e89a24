/* Views, cuts and boxes, compared with a loop over single elements. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"

#include "model/view.h"

#define MEMORY 40000

static unsigned char memory[MEMORY];
static unsigned char wanted[MEMORY];
static unsigned char got[MEMORY];

static unsigned below(unsigned *seed, unsigned n) {
    return (unsigned)rand_r(seed) % n;
}

/* Random axes of a random tensor that fits, outermost first. */
static unsigned make_axes(unsigned *seed, unsigned width, struct gb_axis *axis, uint64_t *ret_offset) {
    unsigned dims = 1 + below(seed, 6);
    uint64_t stride = width;
    uint64_t offset = 0;
    unsigned i;

    for (i = dims; i-- > 0;) {
        unsigned room = (unsigned)(MEMORY / stride);
        unsigned dim = 1 + below(seed, room < 9 ? room : 9);
        unsigned step = 1 + below(seed, 3);
        unsigned first = below(seed, dim);

        if (below(seed, 3) == 0)
            step = 1, first = 0;
        axis[i].count = (dim - first + step - 1) / step;
        if (below(seed, 4) == 0)
            axis[i].count = 1 + below(seed, (unsigned)axis[i].count);
        axis[i].stride = step * stride;
        offset += first * stride;
        stride *= dim;
    }
    *ret_offset = offset;
    return dims;
}

/* Visits the elements in order, one by one. */
static uint64_t enumerate(uint64_t offset, unsigned width, const struct gb_axis *axis, unsigned axes) {
    uint64_t step[GB_DIMS_MAX] = {0};
    uint64_t n = 0;
    unsigned i;

    for (;;) {
        uint64_t at = offset;

        for (i = 0; i < axes; i++)
            at += step[i] * axis[i].stride;
        memcpy(wanted + n, memory + at, width);
        n += width;
        for (i = axes; i-- > 0 && ++step[i] == axis[i].count;)
            step[i] = 0;
        if (i == UINT_MAX)
            return n;
    }
}

static void copy_cut(const struct gb_cut *cut, unsigned char *to) {
    uint64_t i;

    for (i = 0; i < cut->boxes; i++) {
        struct gb_error err = GB_ERROR_INIT;
        uint64_t extent;
        uint64_t packed_extent;
        uint64_t offset;
        uint64_t packed;

        gb_cut_box(cut, i, &offset, &packed);
        gb_assert_ok(gb_box_check(&cut->box, &extent, &packed_extent, &err), err);
        ck_assert_uint_le(offset + extent, MEMORY);
        ck_assert_uint_le(packed + packed_extent, cut->bytes);
        gb_box_copy(&cut->box, memory + offset, to + packed, true);
    }
}

/* A test is a process, which costs more than many cases do under a sanitizer. */
#define CASES 100

static void random_case(unsigned seed) {
    static const unsigned widths[] = {1, 2, 4, 8, 16};
    unsigned width = widths[below(&seed, 5)];
    struct gb_axis axis[GB_DIMS_MAX];
    struct gb_view view;
    uint64_t offset;
    uint64_t bytes;
    uint64_t at;
    unsigned axes = make_axes(&seed, width, axis, &offset);
    uint64_t most = 1 + below(&seed, below(&seed, 2) ? 100 : 20000);
    uint64_t boxes = 1 + below(&seed, 10);

    for (at = 0; at < MEMORY; at++)
        memory[at] = (unsigned char)rand_r(&seed);
    view = gb_view_make(offset, width, axis, axes);
    bytes = enumerate(offset, width, axis, axes);
    ck_assert_uint_eq(view.bytes, bytes);
    memset(got, 0, sizeof(got));
    for (at = below(&seed, (unsigned)bytes); at < bytes;) {
        struct gb_cut cut;
        uint64_t straight = gb_view_straight(&view, at);

        gb_view_cut(&view, at, most, boxes, &cut);
        ck_assert_uint_gt(cut.bytes, 0);
        ck_assert_uint_le(cut.bytes, most);
        ck_assert_uint_le(cut.bytes, bytes - at);
        ck_assert_uint_ge(cut.bytes, most < straight ? most : straight);
        ck_assert_uint_gt(cut.boxes, 0);
        ck_assert_uint_le(cut.boxes, boxes);
        copy_cut(&cut, got + at);
        ck_assert_mem_eq(got + at, wanted + at, cut.bytes);
        at += cut.bytes;
    }
}

START_TEST(test_random) {
    unsigned i;

    for (i = 1; i <= CASES; i++)
        random_case((unsigned)_i * CASES + i);
}
END_TEST

/* In Fortran order: the same elements as with reversed axes. */
static void fortran_case(unsigned seed) {
    static const unsigned widths[] = {1, 2, 4, 8, 16};
    unsigned width = widths[below(&seed, 5)];
    struct gb_axis axis[GB_DIMS_MAX];
    struct gb_axis reversed[GB_DIMS_MAX];
    struct gb_view view;
    uint64_t offset;
    uint64_t bytes;
    uint64_t at;
    unsigned i;
    unsigned axes = make_axes(&seed, width, axis, &offset);
    uint64_t most = 1 + below(&seed, below(&seed, 2) ? 100 : 20000);

    for (at = 0; at < MEMORY; at++)
        memory[at] = (unsigned char)rand_r(&seed);
    for (i = 0; i < axes; i++)
        reversed[i] = axis[axes - 1 - i];
    view = gb_view_fortran(offset, width, axis, axes);
    bytes = enumerate(offset, width, reversed, axes);
    ck_assert_uint_eq(view.bytes, bytes);
    for (at = below(&seed, (unsigned)bytes); at < bytes;) {
        struct gb_view upwards;
        struct gb_view packed;
        struct gb_cut cut;
        struct gb_cut there;
        struct gb_cut here;
        uint64_t done;

        gb_view_cut(&view, at, most, UINT64_MAX, &cut);
        copy_cut(&cut, got + at);
        ck_assert_mem_eq(got + at, wanted + at, cut.bytes);
        /* The same bytes, as they lie in the memory. */
        gb_cut_upwards(&cut, &upwards, &packed);
        ck_assert(gb_view_upwards(&upwards) && upwards.bytes == cut.bytes && packed.bytes == cut.bytes);
        for (done = 0; done < cut.bytes; done += gb_view_straight(&upwards, done)) {
            gb_view_cut(&upwards, done, 1, 1, &there);
            gb_view_cut(&packed, done, 1, 1, &here);
            ck_assert_uint_eq(memory[there.offset], wanted[at + here.offset]);
        }
        at += cut.bytes;
    }
}

START_TEST(test_fortran) {
    unsigned i;

    for (i = 1; i <= CASES; i++)
        fortran_case((unsigned)_i * CASES + i);
}
END_TEST

/* What a whole array in Fortran order fills of a slot is one box in the memory. */
static void one_box_case(uint64_t most) {
    const struct gb_shape shape = {.dims = 5, .dim = {7, 3, 5, 4, 6}};
    struct gb_axis axis[GB_DIMS_MAX];
    struct gb_view upwards;
    struct gb_view packed;
    struct gb_view view;
    struct gb_cut cut;
    uint64_t at;

    gb_view_axes(&shape, 8, axis);
    view = gb_view_fortran(16, 8, axis, shape.dims);
    ck_assert_uint_eq(gb_view_end(&view), 16 + view.bytes);
    ck_assert(!gb_view_upwards(&view));
    for (at = 0; at < view.bytes; at += cut.bytes) {
        gb_view_cut(&view, at, most, UINT64_MAX, &cut);
        gb_cut_upwards(&cut, &upwards, &packed);
        gb_view_cut(&upwards, 0, upwards.bytes, UINT64_MAX, &cut);
        ck_assert(cut.boxes == 1 && cut.bytes == upwards.bytes);
    }
}

START_TEST(test_one_box) {
    uint64_t i;

    for (i = 1; i <= CASES; i++)
        one_box_case(8 * ((uint64_t)_i * CASES + i));
}
END_TEST

START_TEST(test_joined) {
    const struct gb_axis whole[] = {{2, 60}, {3, 20}, {5, 4}};
    const struct gb_axis rows[] = {{7, 4096}, {3, 1024}, {16, 4}};
    const struct gb_axis none[] = {{7, 4096}, {0, 1024}, {16, 4}};
    struct gb_view view = gb_view_make(8, 4, whole, 3);
    struct gb_cut cut;

    ck_assert_uint_eq(view.axes, 0); /* a contiguous view costs as much as a plain range */
    ck_assert_uint_eq(view.offset, 8);
    ck_assert_uint_eq(view.run, 120);
    view = gb_view_make(0, 4, rows, 3);
    ck_assert_uint_eq(view.axes, 2);
    ck_assert_uint_eq(view.run, 64);
    gb_view_cut(&view, 0, UINT64_MAX, 1, &cut);
    ck_assert_uint_eq(cut.bytes, 7 * 3 * 64);
    ck_assert_uint_eq(cut.box.rows, 3);
    ck_assert_uint_eq(cut.box.planes, 7);
    gb_view_cut(&view, 10, 3 * 64, 9, &cut); /* in the middle of a run: to its end */
    ck_assert_uint_eq(cut.bytes, 54);
    gb_view_cut(&view, 64, 200, 9, &cut); /* to the end of the plane */
    ck_assert_uint_eq(cut.bytes, 128);
    view = gb_view_make(0, 4, none, 3);
    ck_assert_uint_eq(view.bytes, 0);
}
END_TEST

/* The longest axes make the box, not the last ones. */
START_TEST(test_few_boxes) {
    const struct gb_axis axis[] = {{1000, 27}, {2, 9}, {2, 3}, {2, 1}};
    struct gb_view view = gb_view_make(0, 1, axis, 4);
    struct gb_cut cut;

    gb_view_cut(&view, 0, 4096, 64, &cut);
    ck_assert_uint_eq(cut.bytes, 4096);
    ck_assert_uint_eq(cut.boxes, 2);
    ck_assert_uint_eq(cut.box.rows * cut.box.planes, 1024);
}
END_TEST

struct wrong {
    struct gb_box box;
    bool ok;
};

static const struct wrong boxes[] = {
    {{4, 1, 1, 0, 0, 0, 0}, true},
    {{0, 9, 9, 1, 1, 1, 1}, true}, /* nothing */
    {{4, 2, 1, 4, 0, 4, 0}, true},
    {{4, 2, 1, 3, 0, 4, 0}, false},
    {{4, 2, 1, 4, 0, 3, 0}, false},
    {{4, 2, 3, 8, 16, 4, 8}, true},
    {{4, 2, 3, 8, 20, 4, 8}, false},
    {{4, 2, 3, 8, 8, 4, 8}, false},
    {{4, 2, 3, 8, 16, 4, 4}, false},
    {{4, 1, 3, 0, 5, 0, 4}, true},
    {{4, 1, 3, 0, 3, 0, 4}, false},
    {{4, 2, 1, UINT64_MAX, 0, 4, 0}, false},
    {{4, 3, 1, UINT64_MAX / 2, 0, 4, 0}, false},
    {{UINT64_MAX, 2, 1, UINT64_MAX, 0, UINT64_MAX, 0}, false},
};

START_TEST(test_box_rules) {
    struct gb_error err = GB_ERROR_INIT;
    uint64_t extent = 7;
    uint64_t packed = 7;
    int r = gb_box_check(&boxes[_i].box, &extent, &packed, &err);

    ck_assert_int_eq(r, boxes[_i].ok ? 0 : -1);
    if (r < 0)
        ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    else
        ck_assert_uint_ge(extent, packed);
}
END_TEST

START_TEST(test_unpack) {
    const struct gb_box box = {
        .width = 3, .rows = 2, .planes = 2, .pitch = 5, .plane = 20, .packed_pitch = 3, .packed_plane = 6};
    char text[41] = "........................................";
    char packed[] = "abcdefghijkl";

    gb_box_copy(&box, text, packed, false);
    ck_assert_str_eq(text, "abc..def............ghi..jkl............");
    memset(packed, 0, sizeof(packed));
    gb_box_copy(&box, text, packed, true);
    ck_assert_str_eq(packed, "abcdefghijkl");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("view");
    TCase *tcase = tcase_create("view");

    tcase_add_loop_test(tcase, test_random, 0, 2000 / CASES);
    tcase_add_loop_test(tcase, test_fortran, 0, 500 / CASES);
    tcase_add_loop_test(tcase, test_one_box, 0, 2600 / CASES);
    tcase_add_test(tcase, test_joined);
    tcase_add_test(tcase, test_few_boxes);
    tcase_add_loop_test(tcase, test_box_rules, 0, sizeof(boxes) / sizeof(boxes[0]));
    tcase_add_test(tcase, test_unpack);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
