/* Preconditions on records. */
#include "gb_test.h"

#include <stdlib.h>
#include <string.h>

#include "api/pipeline/conditional.h"

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
    struct gb_buffer_rec rec = {.id = 7, .generation = 3, .version = 9, .run = 0xab, .record_run = 0xab};
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
    struct gb_buffer_rec rec = {.id = 7, .generation = 3, .version = 9, .run = 0xab, .record_run = 0xab};
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

int main(void) {
    Suite *suite = suite_create("conditional");
    TCase *tables = tcase_create("tables");

    tcase_add_loop_test(tables, test_buffer_change, 0, sizeof(changes) / sizeof(changes[0]));
    tcase_add_loop_test(tables, test_read, 0, sizeof(reads) / sizeof(reads[0]));
    suite_add_tcase(suite, tables);
    gb_test_add(suite, "session", test_session_change, 4);
    gb_test_add(suite, "basis", test_basis, 4);
    gb_test_add(suite, "lines", test_several_lines_are_one_list, 4);
    return gb_test_run(suite);
}
