/* How length, dtype and shape of an upload fit together. */
#include "gb_test.h"

#include <stdlib.h>
#include <string.h>

#include "api/resources/upload.h"
#include "format/npy.h"

static const struct {
    enum gb_dtype dtype;
    const char *shape; /* NULL: not given */
    bool partial;
    bool has_length;
    uint64_t length;
    enum gb_code code;
    const char *result;
} raws[] = {
    {GB_DTYPE_UINT8, NULL, false, true, 5, GB_OK, "5"},
    {GB_DTYPE_UINT8, NULL, false, true, 0, GB_OK, "0"},
    {GB_DTYPE_FLOAT32, NULL, false, true, 8, GB_OK, "2"},
    {GB_DTYPE_FLOAT32, NULL, false, true, 9, GB_ERR_SHAPE_MISMATCH, ""},
    {GB_DTYPE_FLOAT32, "2,3", false, true, 24, GB_OK, "2,3"},
    {GB_DTYPE_FLOAT32, "2,3", false, false, 0, GB_OK, "2,3"},
    {GB_DTYPE_FLOAT32, "", false, true, 4, GB_OK, ""},
    {GB_DTYPE_FLOAT32, "2,3", false, true, 23, GB_ERR_SHAPE_MISMATCH, ""},
    {GB_DTYPE_FLOAT32, "2,3", false, true, 25, GB_ERR_SHAPE_MISMATCH, ""},
    {GB_DTYPE_FLOAT32, "4611686018427387904,2", false, true, 24, GB_ERR_INVALID_ARGUMENT, ""},
    {GB_DTYPE_FLOAT32, "2305843009213693952", false, false, 0, GB_ERR_INVALID_ARGUMENT, ""},
    {GB_DTYPE_UINT8, NULL, false, true, UINT64_MAX, GB_ERR_INVALID_ARGUMENT, ""},
    {GB_DTYPE_UINT8, NULL, false, false, 0, GB_ERR_LENGTH_REQUIRED, ""},
    {GB_DTYPE_FLOAT32, NULL, false, false, 0, GB_ERR_LENGTH_REQUIRED, ""},
    {GB_DTYPE_UINT8, NULL, true, false, 0, GB_ERR_LENGTH_REQUIRED, ""},
    {GB_DTYPE_FLOAT32, NULL, true, true, 3, GB_OK, ""},
};

START_TEST(test_raw) {
    struct gb_upload_request *plan = calloc(1, sizeof(*plan));
    struct gb_error err = GB_ERROR_INIT;
    char shape[GB_SHAPE_TEXT_SIZE];

    plan->params.buffer.dtype = raws[_i].dtype;
    plan->params.partial = raws[_i].partial;
    plan->has_shape = raws[_i].shape != NULL;
    if (raws[_i].shape)
        gb_assert_ok(gb_shape_parse(raws[_i].shape, strlen(raws[_i].shape), &plan->params.buffer.shape, &err), err);
    ck_assert_int_eq(gb_upload_request_raw(plan, raws[_i].has_length, raws[_i].length, &err),
                     raws[_i].code == GB_OK ? 0 : -1);
    ck_assert_msg(err.code == raws[_i].code, "%s", err.detail);
    if (raws[_i].code == GB_OK) {
        gb_shape_text(&plan->params.buffer.shape, shape);
        ck_assert_str_eq(shape, raws[_i].result);
        if (raws[_i].has_length)
            ck_assert_uint_eq(plan->params.bytes, raws[_i].length);
        if (!raws[_i].partial)
            ck_assert_uint_eq(plan->params.buffer.bytes, plan->params.bytes);
    }
    free(plan);
}
END_TEST

/* Which bodies may have any length. */
START_TEST(test_open) {
    static const struct {
        struct gb_upload_request plan;
        bool open;
        uint64_t bytes;
    } asked[] = {
        {{.chunked = false}, false, 0},
        {{.chunked = true}, true, INT64_MAX},
        {{.coded = true}, true, INT64_MAX},
        {{.chunked = true, .has_max = true, .max_bytes = 7}, true, 7},
        {{.chunked = true, .has_shape = true}, false, 0},
        {{.chunked = true, .sliced = true}, false, 0},
        {{.chunked = true, .params = {.partial = true}}, true, INT64_MAX},
        {{.chunked = true, .exists = true, .params = {.in_place = true}}, false, 0},
        {{.chunked = true, .params = {.in_place = true}}, true, INT64_MAX},
        {{.chunked = true, .exists = true, .adopted = true}, false, 0},
    };
    struct gb_upload_request *plan = malloc(sizeof(*plan));

    *plan = asked[_i].plan;
    ck_assert_int_eq(gb_upload_request_open(plan), asked[_i].open);
    ck_assert_int_eq(plan->params.open_ended, asked[_i].open);
    ck_assert_int_eq(plan->params.reserve, asked[_i].plan.has_max);
    ck_assert_uint_eq(plan->params.bytes, asked[_i].bytes);
    free(plan);
}
END_TEST

/* A chunked body that is written in place has the size of what is there. */
START_TEST(test_in_place) {
    struct gb_upload_request *plan = calloc(1, sizeof(*plan));
    struct gb_error err = GB_ERROR_INIT;

    plan->chunked = plan->exists = plan->params.in_place = true;
    plan->existing_bytes = 12;
    plan->params.buffer.dtype = GB_DTYPE_FLOAT32;
    gb_assert_ok(gb_upload_request_raw(plan, false, 0, &err), err);
    ck_assert_uint_eq(plan->params.bytes, 12);
    ck_assert_uint_eq(plan->params.buffer.shape.dim[0], 3);
    free(plan);
}
END_TEST

START_TEST(test_max) {
    struct gb_upload_request *plan = calloc(1, sizeof(*plan));
    struct gb_error err = GB_ERROR_INIT;

    plan->params.bytes = 8;
    gb_assert_ok(gb_upload_request_permit(plan, &err), err);
    plan->has_max = true;
    plan->max_bytes = 8;
    gb_assert_ok(gb_upload_request_permit(plan, &err), err);
    plan->max_bytes = 7;
    gb_assert_fails(gb_upload_request_permit(plan, &err), err, GB_ERR_BODY_TOO_LARGE);
    free(plan);
}
END_TEST

static int read_npy(struct gb_upload_request *plan, const struct gb_npy *npy, bool has_length, uint64_t payload,
                    struct gb_error *err) {
    char header[GB_NPY_WRITE_MAX];
    size_t n = gb_npy_write_header(npy->dtype, &npy->shape, header);

    return gb_upload_request_header(plan, GB_FORM_NPY, header, n, has_length, n + payload, err);
}

START_TEST(test_npy) {
    struct gb_npy npy = {.dtype = GB_DTYPE_FLOAT32, .shape = {.dims = 2, .dim = {2, 3}}};
    struct gb_upload_request *plan = calloc(1, sizeof(*plan));
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_fails(read_npy(plan, &npy, true, 23, &err), err, GB_ERR_SHAPE_MISMATCH);
    gb_assert_ok(read_npy(plan, &npy, true, 24, &err), err);
    ck_assert_uint_eq(plan->params.bytes, 24);
    ck_assert_uint_eq(plan->params.buffer.bytes, 24);
    ck_assert_int_eq(plan->params.buffer.dtype, GB_DTYPE_FLOAT32);
    ck_assert_uint_eq(plan->params.buffer.shape.dims, 2);
    gb_assert_ok(read_npy(plan, &npy, false, 0, &err), err);
    /* A write at an offset keeps the buffer's shape and must be of its dtype. */
    *plan = (struct gb_upload_request){.params = {.partial = true, .buffer = {.dtype = GB_DTYPE_FLOAT32}}};
    gb_assert_ok(read_npy(plan, &npy, true, 24, &err), err);
    ck_assert(plan->params.bytes == 24 && plan->params.buffer.shape.dims == 0);
    plan->params.buffer.dtype = GB_DTYPE_INT32;
    gb_assert_fails(read_npy(plan, &npy, true, 24, &err), err, GB_ERR_SHAPE_MISMATCH);
    npy.shape.dim[0] = UINT64_MAX;
    gb_assert_fails(read_npy(plan, &npy, false, 0, &err), err, GB_ERR_UNSUPPORTED_ARRAY);
    free(plan);
}
END_TEST

/* Places an array of 2 by 3 in Fortran order. */
static int read_fortran(struct gb_upload_request *plan, struct gb_error *err) {
    static const char header[] = GB_NPY_MAGIC "\x01\x00\x37\x00"
                                              "{'descr': '<f4', 'fortran_order': True, 'shape': (2,3)}";

    return gb_upload_request_header(plan, GB_FORM_NPY, header, sizeof(header) - 1, true, sizeof(header) - 1 + 24, err);
}

START_TEST(test_fortran) {
    struct gb_upload_request *plan = calloc(1, sizeof(*plan));
    const struct gb_upload_params *params = &plan->params;
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(read_fortran(plan, &err), err);
    ck_assert(params->scattered && params->bytes == 24 && params->view.bytes == 24 && params->view.run == 4);
    ck_assert(params->view.axes == 2 && params->view.axis[0].stride == 4 && params->view.axis[1].stride == 12);
    *plan = (struct gb_upload_request){
        .existing_bytes = 100, .params = {.partial = true, .offset = 76, .buffer = {.dtype = GB_DTYPE_FLOAT32}}};
    gb_assert_ok(read_fortran(plan, &err), err);
    ck_assert(params->scattered && params->offset == 0 && params->view.offset == 76);
    plan->params.offset = 77;
    gb_assert_fails(read_fortran(plan, &err), err, GB_ERR_SHAPE_MISMATCH);
    plan->params.offset = UINT64_MAX;
    gb_assert_fails(read_fortran(plan, &err), err, GB_ERR_SHAPE_MISMATCH);
    free(plan);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("upload request");
    TCase *tables = tcase_create("tables");

    tcase_add_loop_test(tables, test_raw, 0, sizeof(raws) / sizeof(raws[0]));
    tcase_add_loop_test(tables, test_open, 0, 10);
    suite_add_tcase(suite, tables);
    gb_test_add(suite, "npy", test_npy, 4);
    gb_test_add(suite, "fortran", test_fortran, 4);
    gb_test_add(suite, "in place", test_in_place, 4);
    gb_test_add(suite, "max", test_max, 4);
    return gb_test_run(suite);
}
