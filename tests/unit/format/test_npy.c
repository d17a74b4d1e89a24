/* Headers of .npy files, those of numpy itself among them. */
#include "gb_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/npy.h"

/* A file's header around this dictionary; version 1 unless said otherwise. Returns its length. */
static size_t make(char *out, int version, const char *dictionary) {
    size_t at = version == 1 ? 10 : 12;
    size_t n = strlen(dictionary);

    memcpy(out, GB_NPY_MAGIC, 6);
    out[6] = (char)version;
    out[7] = 0;
    memset(out + 8, 0, 4);
    out[8] = (char)(n & 0xff);
    out[9] = (char)(n >> 8);
    memcpy(out + at, dictionary, n);
    return at + n;
}

struct good {
    const char *dictionary;
    const char *dtype;
    const char *shape;
};

static const struct good goods[] = {
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }        \n", "float32", "3,4"},
    {"{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }  \n", "uint8", "5"},
    {"{'descr': '<f8', 'fortran_order': False, 'shape': (), } \n", "float64", ""},
    {"{'descr': '|b1', 'fortran_order': False, 'shape': (2, 0, 3), } \n", "bool", "2,0,3"},
    {"{'descr': '<c16', 'fortran_order': False, 'shape': (1,)}", "complex128", "1"},
    {"{'shape': (7,), 'fortran_order': False, 'descr': '<i8'}", "int64", "7"},
    {"{\"descr\": \"<f2\", \"fortran_order\": False, \"shape\": (1, 2)}", "float16", "1,2"},
    {"{'descr':'<f4','fortran_order':False,'shape':(3,4)}", "float32", "3,4"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 4L)}", "float32", "3,4"},
    /* Other writers than numpy.save: what numpy.load reads. */
    {"{u'descr': u'<f8', u'fortran_order': False, u\"shape\": (3, 4), }", "float64", "3,4"},
    {"{'descr': 'f8', 'fortran_order': False, 'shape': (3, 4)}", "float64", "3,4"},
    {"{'descr': 'float64', 'fortran_order': False, 'shape': (3, 4)}", "float64", "3,4"},
    {"{'descr': '<d', 'fortran_order': False, 'shape': (3, 4)}", "float64", "3,4"},
    {"{'descr': '=f', 'fortran_order': False, 'shape': (3, 4)}", "float32", "3,4"},
    {"{'descr': '|f4', 'fortran_order': False, 'shape': (3, 4)}", "float32", "3,4"},
    {"{'descr': '?', 'fortran_order': False, 'shape': (3, 4)}", "bool", "3,4"},
    {"{'descr': '>B', 'fortran_order': False, 'shape': (3, 4)}", "uint8", "3,4"},
    {"{'descr': 'l', 'fortran_order': False, 'shape': (3, 4)}", "int64", "3,4"},
    {"{'descr': '<D', 'fortran_order': False, 'shape': (3, 4)}", "complex128", "3,4"},
    {"{'descr': 'float', 'fortran_order': False, 'shape': (3, 4)}", "float64", "3,4"},
    {"{'descr': 'int', 'fortran_order': False, 'shape': (3, 4)}", "int64", "3,4"},
    {"{'descr': 'byte', 'fortran_order': False, 'shape': (3, 4)}", "int8", "3,4"},
    {"{'descr': 'double', 'fortran_order': False, 'shape': (3, 4)}", "float64", "3,4"},
    /* In Fortran order, but with one dimension at most the bytes are the same. */
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (6,), }", "float32", "6"},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 6, 1), }", "float32", "1,6,1"},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (), }", "float32", ""},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (3, 0), }", "float32", "3,0"},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", "float32", "2,3"},
    {"{'descr': '<V2', 'fortran_order': True, 'shape': (2, 1, 3), }", "bfloat16", "2,1,3"},
    {"{'descr': '|u1', 'fortran_order': False, 'shape': (18446744073709551615,)}", "uint8", "18446744073709551615"},
    {"{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", "uint8",
     "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"},
};

START_TEST(test_good) {
    const struct good *g = &goods[_i];
    struct gb_error err = GB_ERROR_INIT;
    char shape[GB_SHAPE_TEXT_SIZE];
    struct gb_npy npy;
    char file[512];
    size_t told;
    size_t n;
    int version;

    for (version = 1; version <= 3; version++) {
        n = make(file, version, g->dictionary);
        ck_assert(gb_npy_magic(file, n));
        gb_assert_ok(gb_npy_header_bytes(file, &told, &err), err);
        ck_assert_uint_eq(told, n);
        gb_assert_ok(gb_npy_parse_header(file, n, &npy, &err), err);
        ck_assert_str_eq(gb_dtype_name(npy.dtype), g->dtype);
        gb_shape_text(&npy.shape, shape);
        ck_assert_str_eq(shape, g->shape);
        ck_assert(npy.fortran == (strstr(g->dictionary, "True") && strchr(g->shape, '2')));
    }
}
END_TEST

struct bad {
    const char *dictionary;
    enum gb_code code;
    const char *word; /* that the detail must hold */
};

static const struct bad bads[] = {
    {"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", GB_ERR_UNSUPPORTED_ARRAY, "Python objects"},
    {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", GB_ERR_UNSUPPORTED_ARRAY, "big-endian"},
    {"{'descr': '<U3', 'fortran_order': False, 'shape': (2,), }", GB_ERR_UNSUPPORTED_ARRAY, "<U3"},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", GB_ERR_UNSUPPORTED_ARRAY, "structured"},
    {"{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (2,), }", GB_ERR_UNSUPPORTED_ARRAY, "structured"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", GB_ERR_UNSUPPORTED_ARRAY,
     "dimensions"},
    {"{'descr': '', 'fortran_order': False, 'shape': (2,), }", GB_ERR_UNSUPPORTED_ARRAY, "type"},
    {"{'descr': '>d', 'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "big-endian"},
    {"{'descr': '<float64', 'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "type"},
    {"{'descr': 'f1', 'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "type"},
    {"{'descr': 'V2', 'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "type"},
    {"{'descr': 'g', 'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "type"},
    {"{u 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "at byte 12 of the file"},
    {"{'descr': '<f4', 'fortran_order': False}", GB_ERR_UNSUPPORTED_ARRAY, "missing"},
    {"{'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "missing"},
    {"{}            ", GB_ERR_UNSUPPORTED_ARRAY, "missing"},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "twice"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", GB_ERR_UNSUPPORTED_ARRAY, "unknown"},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "fortran_order"},
    {"{'descr': '<f4', 'fortran_order': false, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "fortran_order"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", GB_ERR_UNSUPPORTED_ARRAY, "tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", GB_ERR_UNSUPPORTED_ARRAY, "tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': [2]}", GB_ERR_UNSUPPORTED_ARRAY, "tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", GB_ERR_UNSUPPORTED_ARRAY, "whole number"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}", GB_ERR_UNSUPPORTED_ARRAY, "comma"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}", GB_ERR_UNSUPPORTED_ARRAY, "comma"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", GB_ERR_UNSUPPORTED_ARRAY, "whole number"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,,3)}", GB_ERR_UNSUPPORTED_ARRAY, "whole number"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,)}", GB_ERR_UNSUPPORTED_ARRAY, "64 bits"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,", GB_ERR_UNSUPPORTED_ARRAY, "whole number"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", GB_ERR_UNSUPPORTED_ARRAY, "comma is missing"},
    {"{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "comma"},
    {"{'descr' '<f4', 'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "colon"},
    {"{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "type"},
    {"{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2,)}", GB_ERR_UNSUPPORTED_ARRAY, "does not end"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", GB_ERR_UNSUPPORTED_ARRAY, "follows"},
    {"__import__('os').system('true')", GB_ERR_UNSUPPORTED_ARRAY, "begin"},
};

START_TEST(test_bad) {
    const struct bad *b = &bads[_i];
    struct gb_error err = GB_ERROR_INIT;
    struct gb_npy npy = {.dtype = GB_DTYPE_COUNT};
    char file[512];
    size_t n = make(file, 1, b->dictionary);

    ck_assert_int_eq(gb_npy_parse_header(file, n, &npy, &err), -1);
    ck_assert_msg(err.code == b->code, "%s: %s", b->dictionary, err.detail);
    ck_assert_msg(strstr(err.detail, b->word) != NULL, "%s: %s", b->dictionary, err.detail);
    ck_assert_int_eq(npy.dtype, GB_DTYPE_COUNT); /* outputs are written on success only */
}
END_TEST

/* Every shortened form of a good header is refused, and read no further than it goes: the copy is as long as itself,
 * so a sanitizer sees it. */
START_TEST(test_truncated) {
    char file[512];
    size_t n = make(file, 1, goods[0].dictionary);
    size_t used = (size_t)(strchr(goods[0].dictionary, '}') - goods[0].dictionary) + 10;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_npy npy;
    size_t i;

    for (i = 0; i < n; i++) {
        char *part = malloc(i + 1);

        memcpy(part, file, i);
        if (i >= GB_NPY_PREFIX) {
            part[8] = (char)(i - 10);
            part[9] = 0;
        }
        if (i > used)
            gb_assert_ok(gb_npy_parse_header(part, i, &npy, &err), err);
        else
            gb_assert_fails(gb_npy_parse_header(part, i, &npy, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
        free(part);
    }
}
END_TEST

START_TEST(test_prefix) {
    struct gb_error err = GB_ERROR_INIT;
    char p[GB_NPY_PREFIX];
    size_t bytes = 0;

    ck_assert(gb_npy_magic("\x93NUMPY", 6));
    ck_assert(!gb_npy_magic("\x93NUMPY", 5));
    ck_assert(!gb_npy_magic("\x93NUMPX", 6));
    memcpy(p, "\x93NUMPY\x01\x00\x76\x00{'", 12);
    gb_assert_ok(gb_npy_header_bytes(p, &bytes, &err), err);
    ck_assert_uint_eq(bytes, 128);
    memcpy(p, "\x93NUMPY\x02\x00\x34\x01\x00\x00", 12);
    gb_assert_ok(gb_npy_header_bytes(p, &bytes, &err), err);
    ck_assert_uint_eq(bytes, 12 + 0x134);
    memcpy(p, "\x93NUMPY\x03\x00\xff\xff\xff\xff", 12);
    gb_assert_fails(gb_npy_header_bytes(p, &bytes, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
    memcpy(p, "\x93NUMPY\x04\x00\x34\x01\x00\x00", 12);
    gb_assert_fails(gb_npy_header_bytes(p, &bytes, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
    memcpy(p, "\x93NUMPY\x01\x01\x76\x00{'", 12);
    gb_assert_fails(gb_npy_header_bytes(p, &bytes, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
    memcpy(p, "\x93NUMPY\x01\x00\x01\x00{'", 12);
    gb_assert_fails(gb_npy_header_bytes(p, &bytes, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
    memcpy(p, "PK\x03\x04xxxxxxxx", 12);
    gb_assert_fails(gb_npy_header_bytes(p, &bytes, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
}
END_TEST

/* What numpy 1.24's save wrote, byte by byte. */
static const struct {
    enum gb_dtype dtype;
    struct gb_shape shape;
    const char *text;
} written[] = {
    {GB_DTYPE_FLOAT32,
     {.dims = 2, .dim = {3, 4}},
     "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"
     "                                                          \n"},
    {GB_DTYPE_UINT8,
     {.dims = 1, .dim = {5}},
     "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }"
     "                                                            \n"},
    {GB_DTYPE_FLOAT64,
     {.dims = 0},
     "{'descr': '<f8', 'fortran_order': False, 'shape': (), }"
     "                                                              \n"},
    {GB_DTYPE_BOOL,
     {.dims = 3, .dim = {2, 0, 3}},
     "{'descr': '|b1', 'fortran_order': False, 'shape': (2, 0, 3), }"
     "                                                       \n"},
};

START_TEST(test_write) {
    char out[GB_NPY_WRITE_MAX];
    size_t n = gb_npy_write_header(written[_i].dtype, &written[_i].shape, out);

    ck_assert_uint_eq(n, 128);
    ck_assert_mem_eq(out, "\x93NUMPY\x01\x00\x76\x00", 10);
    ck_assert_mem_eq(out + 10, written[_i].text, 118);
}
END_TEST

/* Every dtype and number of dimensions, with the widest numbers: aligned, and read back as written. */
START_TEST(test_round_trip) {
    struct gb_error err = GB_ERROR_INIT;
    char out[GB_NPY_WRITE_MAX];
    struct gb_npy npy;
    int dtype;
    unsigned dims;
    unsigned i;
    size_t n;

    for (dtype = 0; dtype < GB_DTYPE_COUNT; dtype++) {
        for (dims = 0; dims <= GB_DIMS_MAX; dims++) {
            struct gb_shape shape = {.dims = dims};

            for (i = 0; i < dims; i++)
                shape.dim[i] = UINT64_MAX - i;
            n = gb_npy_write_header((enum gb_dtype)dtype, &shape, out);
            if (!gb_dtype_npy((enum gb_dtype)dtype)) {
                ck_assert_uint_eq(n, 0);
                continue;
            }
            ck_assert(n > 0 && n % 64 == 0 && n <= sizeof(out) && out[n - 1] == '\n');
            gb_assert_ok(gb_npy_parse_header(out, n, &npy, &err), err);
            ck_assert_int_eq(npy.dtype, dtype);
            ck_assert_uint_eq(npy.shape.dims, dims);
            for (i = 0; i < dims; i++)
                ck_assert_uint_eq(npy.shape.dim[i], shape.dim[i]);
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("npy");
    TCase *tables = tcase_create("tables");

    tcase_add_loop_test(tables, test_good, 0, sizeof(goods) / sizeof(goods[0]));
    tcase_add_loop_test(tables, test_bad, 0, sizeof(bads) / sizeof(bads[0]));
    tcase_add_loop_test(tables, test_write, 0, sizeof(written) / sizeof(written[0]));
    suite_add_tcase(suite, tables);
    gb_test_add(suite, "truncated", test_truncated, 10);
    gb_test_add(suite, "prefix", test_prefix, 4);
    gb_test_add(suite, "round trip", test_round_trip, 10);
    return gb_test_run(suite);
}
