/* Media types, cursors and limits. */
#include "gb_test.h"

#include <string.h>

#include "api/request/query.h"

static const struct {
    const char *type;
    bool json;
    bool tensor;
    enum gb_form form;
} types[] = {
    {NULL, true, true, GB_FORM_RAW},
    {"application/json", true, false, GB_FORM_RAW},
    {"Application/JSON; charset=utf-8", true, false, GB_FORM_RAW},
    {"application/merge-patch+json", true, false, GB_FORM_RAW},
    {"application/x-www-form-urlencoded", true, false, GB_FORM_RAW},
    {"application/octet-stream", false, true, GB_FORM_RAW},
    {"application/octet-stream ; x=y", false, true, GB_FORM_RAW},
    {"application/x-npy", false, true, GB_FORM_NPY},
    {"APPLICATION/X-NPY", false, true, GB_FORM_NPY},
    {"application/x-safetensors", false, true, GB_FORM_SAFETENSORS},
    {"application/vnd.safetensors;v=1", false, true, GB_FORM_SAFETENSORS},
    {"application/x-npyx", false, false, GB_FORM_RAW},
    {"text/plain", false, false, GB_FORM_RAW},
    {"+json", false, false, GB_FORM_RAW},
    {"json", false, false, GB_FORM_RAW},
    {"", false, false, GB_FORM_RAW},
    {"multipart/form-data; boundary=application/json", false, false, GB_FORM_RAW},
};

START_TEST(test_type) {
    struct gb_error err = GB_ERROR_INIT;
    enum gb_form form = GB_FORM_RAW;

    if (types[_i].json)
        gb_assert_ok(gb_media_json(types[_i].type, &err), err);
    else
        gb_assert_fails(gb_media_json(types[_i].type, &err), err, GB_ERR_UNSUPPORTED_MEDIA_TYPE);
    if (types[_i].tensor)
        gb_assert_ok(gb_media_tensor(types[_i].type, &form, &err), err);
    else
        gb_assert_fails(gb_media_tensor(types[_i].type, &form, &err), err, GB_ERR_UNSUPPORTED_MEDIA_TYPE);
    ck_assert_int_eq(form, types[_i].form);
}
END_TEST

START_TEST(test_form) {
    struct gb_error err = GB_ERROR_INIT;
    enum gb_form form = GB_FORM_COUNT;

    gb_assert_ok(gb_media_form("raw", &form, NULL, &err), err);
    ck_assert_int_eq(form, GB_FORM_RAW);
    gb_assert_ok(gb_media_form("npy", &form, NULL, &err), err);
    ck_assert_int_eq(form, GB_FORM_NPY);
    gb_assert_ok(gb_media_form("safetensors", &form, NULL, &err), err);
    ck_assert_int_eq(form, GB_FORM_SAFETENSORS);
    gb_assert_fails(gb_media_form("", &form, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_media_form("NPY", &form, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(test_encoding) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_media_encoding(NULL, &err), err);
    gb_assert_ok(gb_media_encoding("identity", &err), err);
    gb_assert_fails(gb_media_encoding("gzip", &err), err, GB_ERR_UNSUPPORTED_MEDIA_TYPE);
    gb_assert_fails(gb_media_encoding("", &err), err, GB_ERR_UNSUPPORTED_MEDIA_TYPE);
}
END_TEST

enum { RAW, NPY, SAFE, NONE };

static const struct {
    const char *accept;
    int exists; /* what is sent of a dtype that has every form */
    int lacks;  /* and of one that is only raw */
} accepts[] = {
    {NULL, RAW, RAW},
    {"", RAW, RAW},
    {"*/*", RAW, RAW},
    {"application/*", RAW, RAW},
    {"application/octet-stream", RAW, RAW},
    {"application/x-npy", NPY, NONE},
    {"Application/X-NPY", NPY, NONE},
    {"application/x-npy, */*", NPY, RAW},
    {"application/x-npy, */*;q=0.1", NPY, RAW},
    {"application/x-npy;q=0.5, */*;q=0.8", RAW, RAW},
    {"application/x-npy;q=0.5, application/octet-stream;q=0.4", NPY, RAW},
    {"application/octet-stream, application/x-npy", RAW, RAW},
    {"application/octet-stream;q=0, */*", NPY, NONE},
    {"application/octet-stream;q=0.0, application/*;q=0.001", NPY, NONE},
    {"application/x-npy; version=1 ; q=0.3, application/octet-stream; q=0.2", NPY, RAW},
    {"text/html, application/xhtml+xml, */*;q=0.8", RAW, RAW},
    {"text/html", NONE, NONE},
    {"*/*;q=0", NONE, NONE},
    {"application/x-npy;q=0", NONE, NONE},
    {"application/json", NONE, NONE},
    {" , application/x-npy ,", NPY, NONE},
    {"application/x-safetensors", SAFE, NONE},
    {"application/vnd.safetensors", SAFE, NONE},
    {"application/x-safetensors, application/x-npy", NPY, NONE},
    {"application/x-safetensors, application/x-npy;q=0.9", SAFE, NONE},
    {"application/x-safetensors, */*;q=0.5", SAFE, RAW},
    {"application/octet-stream;q=0, application/x-npy;q=0, */*", SAFE, NONE},
};

static int accepted(const char *accept, bool exists) {
    struct gb_error err = GB_ERROR_INIT;
    enum gb_form form;

    if (gb_media_accept(accept, exists ? 7 : 1, &form, &err) == 0)
        return (int)form;
    ck_assert_int_eq(err.code, GB_ERR_NOT_ACCEPTABLE);
    ck_assert_ptr_nonnull(strstr(err.detail, GB_MEDIA_RAW));
    ck_assert_int_eq(strstr(err.detail, GB_MEDIA_SAFETENSORS) != NULL, exists);
    return NONE;
}

START_TEST(test_accept) {
    ck_assert_msg(accepted(accepts[_i].accept, true) == accepts[_i].exists, "%s", accepts[_i].accept);
    ck_assert_msg(accepted(accepts[_i].accept, false) == accepts[_i].lacks, "%s, lacking", accepts[_i].accept);
}
END_TEST

static const struct {
    const char *text;
    int64_t id; /* -1: refused */
} cursors[] = {
    {"0", 0},   {"1", 1},  {"9223372036854775807", INT64_MAX}, {"", -1},   {"-1", -1}, {"9223372036854775808", -1},
    {"1 ", -1}, {"x", -1}, {"18446744073709551617", -1},       {"+1", -1}, {"1e3", -1}};

START_TEST(test_cursor) {
    struct gb_error err = GB_ERROR_INIT;
    const char *text = cursors[_i].text;
    char back[GB_CURSOR_SIZE];
    int64_t id = -1;

    if (cursors[_i].id < 0) {
        gb_assert_fails(gb_cursor_parse(text, strlen(text), &id, &err), err, GB_ERR_INVALID_ARGUMENT);
        return;
    }
    gb_assert_ok(gb_cursor_parse(text, strlen(text), &id, &err), err);
    ck_assert_int_eq(id, cursors[_i].id);
    ck_assert_str_eq(gb_cursor_text(id, back), text);
}
END_TEST

START_TEST(test_limit) {
    static const char *const bad[] = {"0", "1001", "-1", "", "ten", "1.5", "99999999999999999999"};
    struct gb_error err = GB_ERROR_INIT;
    unsigned limit = 7;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        gb_assert_fails(gb_limit_parse(bad[i], strlen(bad[i]), &limit, &err), err, GB_ERR_INVALID_ARGUMENT);
    ck_assert_uint_eq(limit, 7);
    gb_assert_ok(gb_limit_parse("1", 1, &limit, &err), err);
    ck_assert_uint_eq(limit, 1);
    gb_assert_ok(gb_limit_parse("1000", 4, &limit, &err), err);
    ck_assert_uint_eq(limit, 1000);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("media");
    TCase *tables = tcase_create("tables");

    tcase_add_loop_test(tables, test_type, 0, sizeof(types) / sizeof(types[0]));
    tcase_add_loop_test(tables, test_accept, 0, sizeof(accepts) / sizeof(accepts[0]));
    tcase_add_loop_test(tables, test_cursor, 0, sizeof(cursors) / sizeof(cursors[0]));
    suite_add_tcase(suite, tables);
    gb_test_add(suite, "form", test_form, 4);
    gb_test_add(suite, "encoding", test_encoding, 4);
    gb_test_add(suite, "limit", test_limit, 4);
    return gb_test_run(suite);
}
