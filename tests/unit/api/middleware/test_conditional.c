/* Preconditions on records, and how length, dtype and shape of an upload fit together. */
#include "gb_test.h"

#include <stdlib.h>
#include <string.h>

#include "api/middleware/conditional.h"
#include "api/transfer/upload.h"

static void add_header(struct gb_http_request *request, const char *name, const char *value) {
    struct gb_http_pair *pair = &request->header[request->headers++];

    pair->name = (struct gb_http_text){.s = name, .len = strlen(name)};
    pair->value = (struct gb_http_text){.s = value, .len = strlen(value)};
}

static const struct {
    const char *if_match;
    const char *if_none_match;
    bool present; /* the change is permitted when the buffer is there */
    bool absent;  /* and when it is not */
} changes[] = {
    {NULL, NULL, true, true},
    {"*", NULL, true, false},
    {"\"7.3.000000ab\"", NULL, true, false},
    {"\"7.3.000000ab-npy9\"", NULL, true, false},
    {"\"7.3.000000ab-st9\"", NULL, true, false},
    {"\"b7.9.000000ab\"", NULL, true, false},
    {"\"1.1.000000ab\", \"7.3.000000ab\"", NULL, true, false},
    {"W/\"7.3.000000ab\"", NULL, false, false},
    {"\"7.2.000000ab\"", NULL, false, false},
    {"\"b7.8.000000ab\"", NULL, false, false},
    {"\"7.9.000000ab\"", NULL, false, false},
    {"\"s7.9\"", NULL, false, false},
    {NULL, "*", false, true},
    {NULL, "\"7.3.000000ab\"", false, true},
    {NULL, "W/\"7.3.000000ab-npy9\"", false, true},
    {NULL, "\"b7.9.000000ab\"", false, true},
    {NULL, "\"7.2.000000ab\"", true, true},
    {"\"7.3.000000ab\"", "\"7.2.000000ab\"", true, false},
    {"\"7.3.000000ab\"", "\"7.3.000000ab\"", false, false},
};

START_TEST(test_buffer_change) {
    struct gb_buffer_rec rec = {.id = 7, .generation = 3, .version = 9, .run = 0xab};
    struct gb_http_request *request = calloc(1, sizeof(*request));
    struct gb_error err = GB_ERROR_INIT;
    struct gb_conditions *c;

    if (changes[_i].if_match)
        add_header(request, "if-match", changes[_i].if_match);
    if (changes[_i].if_none_match)
        add_header(request, "IF-NONE-MATCH", changes[_i].if_none_match);
    gb_assert_ok(gb_conditions_read(request, &c, &err), err);
    if (changes[_i].present)
        gb_assert_ok(gb_conditions_buffer(c, &rec, &err), err);
    else
        gb_assert_fails(gb_conditions_buffer(c, &rec, &err), err, GB_ERR_PRECONDITION_FAILED);
    if (changes[_i].absent)
        gb_assert_ok(gb_conditions_buffer(c, NULL, &err), err);
    else
        gb_assert_fails(gb_conditions_buffer(c, NULL, &err), err, GB_ERR_PRECONDITION_FAILED);
    gb_conditions_free(c);
    free(request);
}
END_TEST

START_TEST(test_session_change) {
    struct gb_session_view view = {.rec = {.id = 7, .version = 9}, .used_bytes = 100, .buffers = 2};
    static const struct {
        const char *list;
        bool match;
    } samples[] = {{"\"s7.9-100-2\"", true}, {"\"s7.9-0-0\"", true},    {"\"s7.9\"", true},  {"*", true},
                   {"\"s7.90\"", false},     {"\"s7.8-100-2\"", false}, {"\"b7.9\"", false}, {"\"s7.\"", false},
                   {"W/\"s7.9\"", false}};
    struct gb_http_request *request = calloc(1, sizeof(*request));
    struct gb_error err = GB_ERROR_INIT;
    struct gb_conditions *c;
    char tag[GB_ETAG_SIZE];
    size_t i;

    ck_assert_str_eq(gb_etag_session(&view, tag), "s7.9-100-2");
    for (i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        request->headers = 0;
        add_header(request, "If-Match", samples[i].list);
        gb_assert_ok(gb_conditions_read(request, &c, &err), err);
        ck_assert_msg((gb_conditions_session(c, &view.rec, &err) == 0) == samples[i].match, "%s", samples[i].list);
        err = GB_ERROR_INIT;
        gb_conditions_free(c);
    }
    free(request);
}
END_TEST

/* A merge holds only for the text that it was made from, dtype alone only for its content. */
START_TEST(test_basis) {
    struct gb_buffer_rec rec = {.id = 7, .generation = 3, .version = 9};
    struct gb_conditions *c = calloc(1, sizeof(*c));
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_labels_make("{\"a\":\"1\"}", &rec.labels, &err), err);
    gb_assert_ok(gb_conditions_labels(c, "{\"a\":\"1\"}", &err), err);
    c->generation = 3;
    gb_assert_ok(gb_conditions_buffer(c, &rec, &err), err);
    rec.generation = 4;
    gb_assert_fails(gb_conditions_buffer(c, &rec, &err), err, GB_ERR_PRECONDITION_FAILED);
    rec.generation = 3;
    gb_buffer_rec_done(&rec);
    gb_assert_fails(gb_conditions_buffer(c, &rec, &err), err, GB_ERR_PRECONDITION_FAILED);
    gb_assert_ok(gb_labels_make("{\"a\":\"2\"}", &rec.labels, &err), err);
    gb_assert_fails(gb_conditions_buffer(c, &rec, &err), err, GB_ERR_PRECONDITION_FAILED);
    gb_buffer_rec_done(&rec);
    gb_conditions_free(c);
}
END_TEST

START_TEST(test_several_lines_are_one_list) {
    struct gb_buffer_rec rec = {.id = 7, .generation = 3, .version = 9, .run = 0xab};
    struct gb_http_request *request = calloc(1, sizeof(*request));
    struct gb_error err = GB_ERROR_INIT;
    struct gb_conditions *c;

    add_header(request, "If-Match", "\"1.1\"");
    add_header(request, "If-Match", "\"7.3.000000ab\"");
    gb_assert_ok(gb_conditions_read(request, &c, &err), err);
    gb_assert_ok(gb_conditions_buffer(c, &rec, &err), err);
    gb_conditions_free(c);
    add_header(request, "If-Match", "*");
    gb_assert_fails(gb_conditions_read(request, &c, &err), err, GB_ERR_MALFORMED_REQUEST);
    request->headers = 0;
    add_header(request, "If-None-Match", "7.3");
    gb_assert_fails(gb_conditions_read(request, &c, &err), err, GB_ERR_MALFORMED_REQUEST);
    free(request);
}
END_TEST

static const struct {
    const char *header;
    const char *value;
    int result; /* of gb_conditions_get for the tag 7.3 */
} reads[] = {
    {"X-Other", "x", 1},        {"If-None-Match", "\"7.3\"", 0},     {"If-None-Match", "W/\"7.3\"", 0},
    {"If-None-Match", "*", 0},  {"If-None-Match", "\"7.3-npy\"", 1}, {"If-None-Match", "\"7.4\"", 1},
    {"If-Match", "\"7.3\"", 1}, {"If-Match", "\"7.4\"", -1},         {"If-Match", "\"7.3-npy\"", -1},
};

START_TEST(test_read) {
    struct gb_http_request *request = calloc(1, sizeof(*request));
    struct gb_http_response *response = calloc(1, sizeof(*response));
    struct gb_error err = GB_ERROR_INIT;

    response->status = 200;
    add_header(request, reads[_i].header, reads[_i].value);
    ck_assert_int_eq(gb_conditions_get(request, "7.3", response, &err), reads[_i].result);
    ck_assert_int_eq(response->status, reads[_i].result == 0 ? 304 : 200);
    ck_assert_int_eq(err.code, reads[_i].result < 0 ? GB_ERR_PRECONDITION_FAILED : GB_OK);
    ck_assert_uint_eq(response->headers, 1);
    ck_assert_str_eq(response->header[0].name, "ETag");
    ck_assert_str_eq(response->header[0].value, "\"7.3\"");
    gb_http_response_done(response);
    free(response);
    free(request);
}
END_TEST

/* --- uploads ------------------------------------------------------------------------------------------------------ */

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

START_TEST(test_npy) {
    struct gb_npy npy = {.dtype = GB_DTYPE_FLOAT32, .shape = {.dims = 2, .dim = {2, 3}}};
    struct gb_upload_request *plan = calloc(1, sizeof(*plan));
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_fails(gb_upload_request_described(plan, ".npy", npy.dtype, &npy.shape, true, 23, &err), err,
                    GB_ERR_SHAPE_MISMATCH);
    gb_assert_ok(gb_upload_request_described(plan, ".npy", npy.dtype, &npy.shape, true, 24, &err), err);
    ck_assert_uint_eq(plan->params.bytes, 24);
    ck_assert_uint_eq(plan->params.buffer.bytes, 24);
    ck_assert_int_eq(plan->params.buffer.dtype, GB_DTYPE_FLOAT32);
    ck_assert_uint_eq(plan->params.buffer.shape.dims, 2);
    gb_assert_ok(gb_upload_request_described(plan, ".npy", npy.dtype, &npy.shape, false, 0, &err), err);
    /* A write at an offset keeps the buffer's shape and must be of its dtype. */
    *plan = (struct gb_upload_request){.params = {.partial = true, .buffer = {.dtype = GB_DTYPE_FLOAT32}}};
    gb_assert_ok(gb_upload_request_described(plan, ".npy", npy.dtype, &npy.shape, true, 24, &err), err);
    ck_assert(plan->params.bytes == 24 && plan->params.buffer.shape.dims == 0);
    plan->params.buffer.dtype = GB_DTYPE_INT32;
    gb_assert_fails(gb_upload_request_described(plan, ".npy", npy.dtype, &npy.shape, true, 24, &err), err,
                    GB_ERR_SHAPE_MISMATCH);
    npy.shape.dim[0] = UINT64_MAX;
    gb_assert_fails(gb_upload_request_described(plan, ".npy", npy.dtype, &npy.shape, false, 0, &err), err,
                    GB_ERR_INVALID_ARGUMENT);
    free(plan);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("conditional");
    TCase *tables = tcase_create("tables");

    tcase_add_loop_test(tables, test_buffer_change, 0, sizeof(changes) / sizeof(changes[0]));
    tcase_add_loop_test(tables, test_read, 0, sizeof(reads) / sizeof(reads[0]));
    tcase_add_loop_test(tables, test_raw, 0, sizeof(raws) / sizeof(raws[0]));
    suite_add_tcase(suite, tables);
    gb_test_add(suite, "session", test_session_change, 4);
    gb_test_add(suite, "basis", test_basis, 4);
    gb_test_add(suite, "lines", test_several_lines_are_one_list, 4);
    gb_test_add(suite, "npy", test_npy, 4);
    return gb_test_run(suite);
}
