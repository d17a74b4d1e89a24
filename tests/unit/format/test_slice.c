/* Slices against Python's own rules, written down again the slow way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"

#include "format/slice.h"

struct sample {
    const char *slice;
    const char *shape;
    const char *result; /* NULL: refused */
    uint64_t offset;    /* or the code */
    uint64_t bytes;
};

#define BAD GB_ERR_INVALID_ARGUMENT
#define BEYOND GB_ERR_RANGE_NOT_SATISFIABLE

static const struct sample samples[] = {
    {":", "10", "10", 0, 40},
    {"...", "10,3", "10,3", 0, 120},
    {"...", "", "", 0, 4},
    {"3", "10", "", 12, 4},
    {"-1", "10", "", 36, 4},
    {"-10", "10", "", 0, 4},
    {"+3", "10", "", 12, 4},
    {"3,", "10", "", 12, 4},
    {" 3 , 1 ", "10,2", "", 28, 4},
    {"2 : 8 : 3", "10", "2", 8, 8},
    {"1:3", "10,5", "2,5", 20, 40},
    {"1:3,...", "10,5", "2,5", 20, 40},
    {"...,2", "10,5", "10", 8, 40},
    {"...,2,:", "10,5", "5", 40, 20},
    {"0,...,0", "2,3,4", "3", 0, 12},
    {"2:8:3", "10", "2", 8, 8},
    {"::4", "10", "3", 0, 12},
    {"-3:", "10", "3", 28, 12},
    {":-3", "10", "7", 0, 28},
    {"5:2", "10", "0", 0, 0},
    {"20:", "10", "0", 0, 0},
    {"-20:20", "10", "10", 0, 40},
    {"-99999999999999999999999:99999999999999999999999", "10", "10", 0, 40},
    {"::99999999999999999999999", "10", "1", 0, 4},
    {"9::18446744073709551615", "10", "1", 36, 4},
    {":,0", "0,5", "0", 0, 0},
    {":", "0,18446744073709551615,18446744073709551615", "0,18446744073709551615,18446744073709551615", 0, 0},
    {":,-1,::2", "0,18446744073709551615,18446744073709551615", "0,9223372036854775808", 0, 0},
    {"", "10", NULL, BAD, 0},
    {",", "10", NULL, BAD, 0},
    {",1", "10", NULL, BAD, 0},
    {"1,,1", "10,10,10", NULL, BAD, 0},
    {"1,,", "10,10,10", NULL, BAD, 0},
    {"...,...", "10,10", NULL, BAD, 0},
    {"..", "10", NULL, BAD, 0},
    {"....", "10", NULL, BAD, 0},
    {"1:2:0", "10", NULL, BAD, 0},
    {"1:2:-0", "10", NULL, BAD, 0},
    {"::-1", "10", NULL, BAD, 0},
    {"1:2:3:4", "10", NULL, BAD, 0},
    {"a", "10", NULL, BAD, 0},
    {"1.5", "10", NULL, BAD, 0},
    {"--1", "10", NULL, BAD, 0},
    {"- 1", "10", NULL, BAD, 0},
    {"-", "10", NULL, BAD, 0},
    {"0x1", "10", NULL, BAD, 0},
    {"None", "10", NULL, BAD, 0},
    {"1 2", "10", NULL, BAD, 0},
    {"0", "", NULL, BAD, 0},
    {":,:", "10", NULL, BAD, 0},
    {"...,0,0", "10", NULL, BAD, 0},
    {"0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", NULL, BAD, 0},
    {"0,0,0,0,0,0,0,0,...,0,0,0,0,0,0,0,0", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "", 0, 4},
    {"10", "10", NULL, BEYOND, 0},
    {"-11", "10", NULL, BEYOND, 0},
    {"99999999999999999999999", "10", NULL, BEYOND, 0},
    {"-99999999999999999999999", "10", NULL, BEYOND, 0},
    {"-9223372036854775808", "10", NULL, BEYOND, 0},
    {"0", "0", NULL, BEYOND, 0},
};

START_TEST(test_table) {
    const struct sample *s = &samples[_i];
    struct gb_error err = GB_ERROR_INIT;
    struct gb_shape shape;
    struct gb_shape result = {.dims = 77};
    struct gb_view view = {.run = 77};
    char text[GB_SHAPE_TEXT_SIZE];
    int r;

    gb_assert_ok(gb_shape_parse(s->shape, strlen(s->shape), &shape, &err), err);
    r = gb_slice_parse(s->slice, strlen(s->slice), &shape, GB_DTYPE_FLOAT32, &result, &view, NULL, &err);
    ck_assert_msg(r == (s->result ? 0 : -1), "\"%s\": %s", s->slice, err.detail);
    if (r < 0) {
        ck_assert_str_eq(gb_code_slug(err.code), gb_code_slug((enum gb_code)s->offset));
        ck_assert(result.dims == 77 && view.run == 77 && err.detail[0] != '\0');
        return;
    }
    gb_shape_text(&result, text);
    ck_assert_str_eq(text, s->result);
    ck_assert_uint_eq(view.bytes, s->bytes);
    ck_assert_uint_eq(view.offset, s->offset);
}
END_TEST

START_TEST(test_commas) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_shape shape = {.dims = 2, .dim = {4, 4}};
    struct gb_shape result;
    struct gb_view view;
    char text[20000];

    memset(text, ',', sizeof(text));
    gb_assert_fails(gb_slice_parse(text, sizeof(text), &shape, GB_DTYPE_UINT8, &result, &view, NULL, &err), err, BAD);
    memset(text, ':', sizeof(text));
    gb_assert_fails(gb_slice_parse(text, sizeof(text), &shape, GB_DTYPE_UINT8, &result, &view, NULL, &err), err, BAD);
    memset(text, '1', sizeof(text));
    gb_assert_fails(gb_slice_parse(text, sizeof(text), &shape, GB_DTYPE_UINT8, &result, &view, NULL, &err), err,
                    BEYOND);
    gb_assert_fails(gb_slice_parse("0\0,1", 4, &shape, GB_DTYPE_UINT8, &result, &view, NULL, &err), err, BAD);
}
END_TEST

/* --- at random ---------------------------------------------------------------------------------------------------- */

static int below(unsigned *seed, int n) {
    return (int)((unsigned)rand_r(seed) % (unsigned)n);
}

/* Which elements of an axis "start:stop:step" picks, as the Python reference says: i = start + n * step, from bounds
 * that count from the end when negative and are then cut. */
static unsigned pick(bool has_start, int start, bool has_stop, int stop, int step, int dim, int *ret) {
    unsigned n = 0;
    int i;

    if (!has_start)
        start = 0;
    if (!has_stop)
        stop = dim;
    if (start < 0)
        start = start + dim < 0 ? 0 : start + dim;
    if (stop < 0)
        stop += dim;
    for (i = start; i < stop && i < dim; i += step)
        ret[n++] = i;
    return n;
}

/* Writes one item and what it picks of an axis. Returns true when it keeps the axis. */
static bool item(unsigned *seed, int dim, char *text, size_t size, int *picked, unsigned *ret_n) {
    bool has_start = below(seed, 3) > 0;
    bool has_stop = below(seed, 3) > 0;
    int start = below(seed, 2 * dim + 5) - dim - 2;
    int stop = below(seed, 2 * dim + 5) - dim - 2;
    int step = 1 + below(seed, 3);
    size_t at;

    if (dim > 0 && below(seed, 3) == 0) {
        start = below(seed, 2 * dim) - dim;
        snprintf(text, size, "%d", start);
        picked[0] = start < 0 ? start + dim : start;
        *ret_n = 1;
        return false;
    }
    at = has_start ? (size_t)snprintf(text, size, "%d:", start) : (size_t)snprintf(text, size, ":");
    if (has_stop)
        at += (size_t)snprintf(text + at, size - at, "%d", stop);
    if (step > 1 || below(seed, 2))
        snprintf(text + at, size - at, ":%d", step);
    *ret_n = pick(has_start, start, has_stop, stop, step, dim, picked);
    return true;
}

/* A test is a process, which costs more than many cases do under a sanitizer. */
#define CASES 100

static void random_case(unsigned seed) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_shape shape = {.dims = (unsigned)below(&seed, 5)};
    struct gb_shape wanted = {.dims = 0};
    struct gb_shape result;
    struct gb_view view;
    struct gb_cut cut;
    char text[256] = "";
    int picked[4][12];
    unsigned n[4];
    uint64_t at = 0;
    unsigned i;
    unsigned k[4] = {0};
    uint64_t total = 1;

    for (i = 0; i < shape.dims; i++) {
        shape.dim[i] = below(&seed, 8) == 0 ? 0 : (uint64_t)(1 + below(&seed, 7));
        if (i > 0)
            strcat(text, ",");
        if (item(&seed, (int)shape.dim[i], text + strlen(text), 40, picked[i], &n[i]))
            wanted.dim[wanted.dims++] = n[i];
        total *= n[i];
    }
    if (shape.dims == 0)
        strcpy(text, "...");
    gb_assert_ok(gb_slice_parse(text, strlen(text), &shape, GB_DTYPE_UINT8, &result, &view, NULL, &err), err);
    ck_assert_uint_eq(result.dims, wanted.dims);
    ck_assert_mem_eq(result.dim, wanted.dim, wanted.dims * sizeof(wanted.dim[0]));
    ck_assert_uint_eq(view.bytes, total);
    for (at = 0; at < total; at++) {
        uint64_t offset = 0;

        for (i = 0; i < shape.dims; i++)
            offset = offset * shape.dim[i] + (uint64_t)picked[i][k[i]];
        gb_view_cut(&view, at, 1, 1, &cut);
        ck_assert_msg(cut.offset == offset, "%s: element %llu", text, (unsigned long long)at);
        for (i = shape.dims; i-- > 0 && ++k[i] == n[i];)
            k[i] = 0;
    }
}

START_TEST(test_random) {
    unsigned i;

    for (i = 0; i < CASES; i++)
        random_case(((unsigned)_i * CASES + i) * 7919 + 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("slice");
    TCase *tcase = tcase_create("slice");

    tcase_add_loop_test(tcase, test_table, 0, sizeof(samples) / sizeof(samples[0]));
    tcase_add_test(tcase, test_commas);
    tcase_add_loop_test(tcase, test_random, 0, 3000 / CASES);
    suite_add_tcase(suite, tcase);
    return gb_test_run(suite);
}
