/* Bodies and their fields. */
#include "gb_test.h"

#include <stdio.h>
#include <string.h>

#include "api/request/body.h"

#define FIELDS "name bytes labels shape dtype kind quota pattern force note"

static json_t *parse(const char *text) {
    struct gb_error err = GB_ERROR_INIT;
    json_t *object = NULL;

    gb_assert_ok(gb_json_object(text, strlen(text), FIELDS, &object, &err), err);
    return object;
}

struct refusal {
    const char *text;
    enum gb_code code;
    const char *word; /* that the detail must hold */
};

static const struct refusal refusals[] = {
    {"", GB_ERR_MALFORMED_JSON, "line 1"},
    {"{", GB_ERR_MALFORMED_JSON, "line 1"},
    {"{\"name\":}", GB_ERR_MALFORMED_JSON, "line 1"},
    {"{'name':1}", GB_ERR_MALFORMED_JSON, "line 1"},
    {"{\"name\":1}x", GB_ERR_MALFORMED_JSON, "end of file"},
    {"{\"name\":1,}", GB_ERR_MALFORMED_JSON, "line 1"},
    {"{\"bytes\":01}", GB_ERR_MALFORMED_JSON, "line 1"},
    {"{\"bytes\":NaN}", GB_ERR_MALFORMED_JSON, "line 1"},
    {"{\"name\":\"a\\u0000b\"}", GB_ERR_MALFORMED_JSON, "u0000"},
    {"{\"name\":\"\xff\"}", GB_ERR_MALFORMED_JSON, "0xff"},
    {"{\"name\":\n\n1 2}", GB_ERR_MALFORMED_JSON, "line 3"},
    {"{\"bytes\":1,\"bytes\":1}", GB_ERR_DUPLICATE_KEY, "bytes"},
    {"{\"quota\":{\"a\":1,\"a\":2}}", GB_ERR_DUPLICATE_KEY, "a"},
    {"{\"bytes\":18446744073709551616}", GB_ERR_INVALID_ARGUMENT, "64 bits"},
    {"{\"bytes\":9223372036854775808}", GB_ERR_INVALID_ARGUMENT, "64 bits"},
    {"{\"bytes\":18446744073709551614}", GB_ERR_INVALID_ARGUMENT, "64 bits"},
    {"{\"bytes\":184467440737095516150}", GB_ERR_INVALID_ARGUMENT, "64 bits"},
    {"{\"bytes\":118446744073709551615}", GB_ERR_INVALID_ARGUMENT, "64 bits"},
    {"{\"bytes\":-18446744073709551615}", GB_ERR_INVALID_ARGUMENT, "64 bits"},
    {"{\"bytes\":18446744073709551615,\"name\":18446744073709551616}", GB_ERR_INVALID_ARGUMENT, "column 57"},
    {"18446744073709551615", GB_ERR_MALFORMED_JSON, "line 1"},
    {"{\"bytes\":-9223372036854775809}", GB_ERR_INVALID_ARGUMENT, "64 bits"},
    {"{\"bytes\":1e999}", GB_ERR_INVALID_ARGUMENT, "64 bits"},
    {"[]", GB_ERR_WRONG_TYPE, "a list"},
    {"{\"size\":1}", GB_ERR_UNKNOWN_FIELD, "'size'"},
    {"{\"\":1}", GB_ERR_UNKNOWN_FIELD, "permitted: name bytes"},
    {"{\"nam\":1}", GB_ERR_UNKNOWN_FIELD, "'nam'"},
    {"{\"name bytes\":1}", GB_ERR_UNKNOWN_FIELD, "name bytes"},
};

START_TEST(test_refusal) {
    const struct refusal *r = &refusals[_i];
    struct gb_error err = GB_ERROR_INIT;
    json_t *object = NULL;

    ck_assert_int_eq(gb_json_object(r->text, strlen(r->text), FIELDS, &object, &err), -1);
    ck_assert_msg(err.code == r->code, "%s: %s: %s", r->text, gb_code_slug(err.code), err.detail);
    ck_assert_msg(strstr(err.detail, r->word) != NULL, "%s: %s", r->text, err.detail);
    ck_assert_ptr_null(object);
}
END_TEST

/* Deeper than any real body: refused, not recursed into without bound. */
START_TEST(test_depth) {
    enum { DEPTH = 100000 };
    struct gb_error err = GB_ERROR_INIT;
    static char text[DEPTH + 16];
    json_t *object = NULL;
    size_t n = (size_t)snprintf(text, sizeof(text), "{\"name\":");

    memset(text + n, '[', DEPTH);
    gb_assert_fails(gb_json_object(text, n + DEPTH, "name", &object, &err), err, GB_ERR_MALFORMED_JSON);
}
END_TEST

START_TEST(test_no_fields) {
    struct gb_error err = GB_ERROR_INIT;
    json_t *object = NULL;

    gb_assert_ok(gb_json_object("{}", 2, "", &object, &err), err);
    json_decref(object);
    object = NULL;
    ck_assert_int_eq(gb_json_object("{\"a\":1}", 7, "", &object, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_UNKNOWN_FIELD);
    ck_assert_ptr_nonnull(strstr(err.detail, "none is permitted"));
}
END_TEST

/* --- fields ------------------------------------------------------------------------------------------------------- */

static int read_u64(const json_t *object, struct gb_error *err) {
    uint64_t value;

    return gb_json_u64(object, "bytes", &value, err);
}

static int read_limit(const json_t *object, struct gb_error *err) {
    uint64_t value;

    return gb_json_limit(object, "bytes", &value, err);
}

static int read_bool(const json_t *object, struct gb_error *err) {
    bool value;

    return gb_json_bool(object, "force", &value, err);
}

static int read_pattern1(const json_t *object, struct gb_error *err) {
    uint64_t value;

    return gb_json_pattern(object, "pattern", 1, &value, err);
}

static int read_pattern4(const json_t *object, struct gb_error *err) {
    uint64_t value;

    return gb_json_pattern(object, "pattern", 4, &value, err);
}

static int read_pattern8(const json_t *object, struct gb_error *err) {
    uint64_t value;

    return gb_json_pattern(object, "pattern", 8, &value, err);
}

static int read_string(const json_t *object, struct gb_error *err) {
    const char *value;

    return gb_json_string(object, "name", &value, err);
}

static int read_name(const json_t *object, struct gb_error *err) {
    struct gb_name value;

    return gb_json_name(object, "name", &value, err);
}

#define X51 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
static int read_phrase(const json_t *object, struct gb_error *err) {
    struct gb_phrase value;

    return gb_json_phrase(object, "note", &value, err);
}

static int read_shape(const json_t *object, struct gb_error *err) {
    struct gb_shape value;

    return gb_json_shape(object, "shape", &value, err);
}

static int read_dtype(const json_t *object, struct gb_error *err) {
    enum gb_dtype value;

    return gb_json_dtype(object, "dtype", &value, err);
}

static int read_kind(const json_t *object, struct gb_error *err) {
    enum gb_kind value;

    return gb_json_kind(object, "kind", &value, err);
}

static int read_labels(const json_t *object, struct gb_error *err) {
    char value[GB_LABELS_MAX];

    return gb_json_labels(object, "labels", NULL, value, err);
}

static const struct {
    int (*read)(const json_t *object, struct gb_error *err);
    const char *text;
    enum gb_code code; /* GB_OK: given and good */
    const char *word;
} fields[] = {
    {read_u64, "{\"bytes\":0}", GB_OK, ""},
    {read_u64, "{\"bytes\":9223372036854775807}", GB_OK, ""},
    {read_u64, "{\"bytes\":-1}", GB_ERR_INVALID_ARGUMENT, "negative"},
    {read_u64, "{\"bytes\":1.5}", GB_ERR_WRONG_TYPE, "a fraction"},
    {read_u64, "{\"bytes\":1e16}", GB_ERR_WRONG_TYPE, "a fraction"},
    {read_u64, "{\"bytes\":\"1\"}", GB_ERR_WRONG_TYPE, "'bytes' must be a whole number, not a string"},
    {read_u64, "{\"bytes\":null}", GB_ERR_WRONG_TYPE, "null"},
    {read_u64, "{\"bytes\":true}", GB_ERR_WRONG_TYPE, "true or false"},
    {read_u64, "{\"bytes\":[]}", GB_ERR_WRONG_TYPE, "a list"},
    {read_u64, "{\"bytes\":{}}", GB_ERR_WRONG_TYPE, "an object"},
    {read_limit, "{\"bytes\":null}", GB_OK, ""},
    {read_limit, "{\"bytes\":5}", GB_OK, ""},
    {read_limit, "{\"bytes\":\"5\"}", GB_ERR_WRONG_TYPE, "null for no limit"},
    {read_limit, "{\"bytes\":-5}", GB_ERR_INVALID_ARGUMENT, "negative"},
    {read_u64, "{\"bytes\":18446744073709551615}", GB_ERR_INVALID_ARGUMENT, "2^63 - 1"},
    {read_shape, "{\"shape\":[18446744073709551615]}", GB_ERR_INVALID_ARGUMENT, "2^63 - 1"},
    {read_name, "{\"name\":18446744073709551615}", GB_ERR_WRONG_TYPE, "not a number"},
    {read_bool, "{\"force\":true}", GB_OK, ""},
    {read_bool, "{\"force\":false}", GB_OK, ""},
    {read_bool, "{\"force\":1}", GB_ERR_WRONG_TYPE, "true or false, not a number"},
    {read_bool, "{\"force\":\"true\"}", GB_ERR_WRONG_TYPE, "a string"},
    {read_bool, "{\"force\":null}", GB_ERR_WRONG_TYPE, "null"},
    {read_pattern1, "{\"pattern\":255}", GB_OK, ""},
    {read_pattern1, "{\"pattern\":256}", GB_ERR_INVALID_ARGUMENT, "0x100, which 1 byte cannot hold"},
    {read_pattern1, "{\"pattern\":\"0x00000000000000ff\"}", GB_OK, ""},
    {read_pattern1, "{\"pattern\":\"0x100\"}", GB_ERR_INVALID_ARGUMENT, "1 byte"},
    {read_pattern4, "{\"pattern\":4294967295}", GB_OK, ""},
    {read_pattern4, "{\"pattern\":4294967296}", GB_ERR_INVALID_ARGUMENT, "4 bytes"},
    {read_pattern8, "{\"pattern\":9223372036854775807}", GB_OK, ""},
    {read_pattern8, "{\"pattern\":\"0xFFFFFFFFFFFFFFFF\"}", GB_OK, ""},
    {read_pattern8, "{\"pattern\":\"0x10000000000000000\"}", GB_ERR_INVALID_ARGUMENT, "16 hexadecimal digits"},
    {read_pattern8, "{\"pattern\":\"0x\"}", GB_ERR_INVALID_ARGUMENT, "hexadecimal"},
    {read_pattern8, "{\"pattern\":\"\"}", GB_ERR_INVALID_ARGUMENT, "hexadecimal"},
    {read_pattern8, "{\"pattern\":\"0\"}", GB_ERR_INVALID_ARGUMENT, "hexadecimal"},
    {read_pattern8, "{\"pattern\":\"0x-1\"}", GB_ERR_INVALID_ARGUMENT, "hexadecimal"},
    {read_pattern8, "{\"pattern\":\"255\"}", GB_ERR_INVALID_ARGUMENT, "hexadecimal"},
    {read_pattern8, "{\"pattern\":-1}", GB_ERR_INVALID_ARGUMENT, "negative"},
    {read_pattern8, "{\"pattern\":1.5}", GB_ERR_WRONG_TYPE, "0xff"},
    {read_string, "{\"name\":\"\"}", GB_OK, ""},
    {read_string, "{\"name\":5}", GB_ERR_WRONG_TYPE, "a string, not a number"},
    {read_name, "{\"name\":\"a.b-c_d\"}", GB_OK, ""},
    {read_name, "{\"name\":\"\"}", GB_ERR_INVALID_NAME, "empty"},
    {read_name, "{\"name\":\"a/b\"}", GB_ERR_INVALID_NAME, "0x2f"},
    {read_name, "{\"name\":null}", GB_ERR_WRONG_TYPE, "null"},
    {read_phrase, "{\"note\":\"\"}", GB_OK, ""},
    {read_phrase, "{\"note\":\"" X51 X51 X51 X51 X51 "\"}", GB_OK, ""},
    {read_phrase, "{\"note\":\"" X51 X51 X51 X51 X51 "x\"}", GB_ERR_INVALID_ARGUMENT, "256 bytes; 255"},
    {read_phrase, "{\"note\":5}", GB_ERR_WRONG_TYPE, "a string, not a number"},
    {read_shape, "{\"shape\":[]}", GB_OK, ""},
    {read_shape, "{\"shape\":[2,0,3]}", GB_OK, ""},
    {read_shape, "{\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", GB_OK, ""},
    {read_shape, "{\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", GB_ERR_INVALID_ARGUMENT, "17 dimensions"},
    {read_shape, "{\"shape\":[2,-3]}", GB_ERR_INVALID_ARGUMENT, "negative"},
    {read_shape, "{\"shape\":[2,\"3\"]}", GB_ERR_WRONG_TYPE, "a list of whole numbers"},
    {read_shape, "{\"shape\":[2.5]}", GB_ERR_WRONG_TYPE, "a fraction"},
    {read_shape, "{\"shape\":\"2,3\"}", GB_ERR_WRONG_TYPE, "a string"},
    {read_dtype, "{\"dtype\":\"bfloat16\"}", GB_OK, ""},
    {read_dtype, "{\"dtype\":\"float\"}", GB_ERR_INVALID_ARGUMENT, "float32"},
    {read_dtype, "{\"dtype\":4}", GB_ERR_WRONG_TYPE, "a string"},
    {read_kind, "{\"kind\":\"device\"}", GB_OK, ""},
    {read_kind, "{\"kind\":\"gpu\"}", GB_ERR_INVALID_ARGUMENT, "device"},
    {read_labels, "{\"labels\":{}}", GB_OK, ""},
    {read_labels, "{\"labels\":{\"a\":\"b\"}}", GB_OK, ""},
    {read_labels, "{\"labels\":{\"a\":null}}", GB_ERR_WRONG_TYPE, "'a'"},
    {read_labels, "{\"labels\":{\"a\":1}}", GB_ERR_WRONG_TYPE, "'a'"},
    {read_labels, "{\"labels\":{\"a\":{}}}", GB_ERR_WRONG_TYPE, "'a'"},
    {read_labels, "{\"labels\":{\"\":\"b\"}}", GB_ERR_INVALID_ARGUMENT, "empty"},
    {read_labels, "{\"labels\":[]}", GB_ERR_WRONG_TYPE, "an object"},
    {read_labels, "{\"labels\":null}", GB_ERR_WRONG_TYPE, "an object"},
};

START_TEST(test_field) {
    struct gb_error err = GB_ERROR_INIT;
    json_t *object = parse(fields[_i].text);
    json_t *empty = json_object();

    ck_assert_int_eq(fields[_i].read(empty, &err), 0);
    ck_assert_int_eq(fields[_i].read(object, &err), fields[_i].code == GB_OK ? 1 : -1);
    ck_assert_msg(err.code == fields[_i].code, "%s: %s", fields[_i].text, err.detail);
    ck_assert_msg(strstr(err.detail, fields[_i].word) != NULL, "%s: %s", fields[_i].text, err.detail);
    json_decref(object);
    json_decref(empty);
}
END_TEST

START_TEST(test_values) {
    struct gb_error err = GB_ERROR_INIT;
    json_t *object = parse("{\"bytes\":9223372036854775807,\"shape\":[2,3],\"name\":\"x\"}");
    struct gb_shape shape;
    struct gb_phrase phrase;
    struct gb_name name;
    uint64_t value = 0;
    bool flag = false;

    ck_assert_int_eq(gb_json_u64(object, "bytes", &value, &err), 1);
    ck_assert_uint_eq(value, INT64_MAX);
    ck_assert_int_eq(gb_json_limit(object, "bytes", &value, &err), 1);
    ck_assert_uint_eq(value, INT64_MAX);
    ck_assert_int_eq(gb_json_shape(object, "shape", &shape, &err), 1);
    ck_assert(shape.dims == 2 && shape.dim[0] == 2 && shape.dim[1] == 3);
    ck_assert_int_eq(gb_json_name(object, "name", &name, &err), 1);
    ck_assert_str_eq(name.s, "x");
    json_decref(object);
    object = parse("{\"pattern\":\"0xFedCba9876543210\",\"force\":true}");
    ck_assert_int_eq(gb_json_pattern(object, "pattern", 8, &value, &err), 1);
    ck_assert_uint_eq(value, 0xfedcba9876543210);
    ck_assert_int_eq(gb_json_bool(object, "force", &flag, &err), 1);
    ck_assert(flag);
    json_decref(object);
    object = parse("{\"note\":\"for the \\u00fc-tests\"}");
    ck_assert_int_eq(gb_json_phrase(object, "note", &phrase, &err), 1);
    ck_assert_str_eq(phrase.s, "for the \u00fc-tests");
    ck_assert_int_eq(gb_json_phrase(object, "other", &phrase, &err), 0);
    json_decref(object);
}
END_TEST

/* What means "no limit"; and the digits elsewhere, which mean nothing of the kind. */
START_TEST(test_no_limit) {
    static const char *const texts[] = {"{\"bytes\":null}", "{\"bytes\":18446744073709551615}",
                                        "{\"name\":\"\\\"18446744073709551615\",\"bytes\": 18446744073709551615 }",
                                        "{\"bytes\":1.8446744073709552e19}"};
    struct gb_error err = GB_ERROR_INIT;
    json_t *object = parse(texts[_i]);
    uint64_t value = 0;

    ck_assert_int_eq(gb_json_limit(object, "bytes", &value, &err), 1);
    ck_assert_uint_eq(value, GB_UNLIMITED);
    if (_i == 2)
        ck_assert_str_eq(json_string_value(json_object_get(object, "name")), "\"18446744073709551615");
    json_decref(object);
}
END_TEST

/* --- labels ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *old;
    const char *given;
    const char *merged;
} merges[] = {
    {NULL, "{\"b\":\"2\",\"a\":\"1\"}", "{\"b\":\"2\",\"a\":\"1\"}"},
    {"{}", "{\"a\":\"1\"}", "{\"a\":\"1\"}"},
    {"{\"a\":\"1\"}", "{}", "{\"a\":\"1\"}"},
    {"{\"a\":\"1\"}", "{\"a\":\"2\"}", "{\"a\":\"2\"}"},
    {"{\"a\":\"1\",\"b\":\"2\"}", "{\"a\":null,\"c\":\"3\"}", "{\"b\":\"2\",\"c\":\"3\"}"},
    {"{\"a\":\"1\"}", "{\"z\":null}", "{\"a\":\"1\"}"},
    {"", "{\"a\":\"1\"}", "{\"a\":\"1\"}"},
    {"{}", "{\"\xc3\xa9\":\"\xe2\x82\xac\"}", "{\"\xc3\xa9\":\"\xe2\x82\xac\"}"},
    {"{}", "{\"a\":\"\\\"\\n\"}", "{\"a\":\"\\\"\\n\"}"},
};

START_TEST(test_merge) {
    struct gb_error err = GB_ERROR_INIT;
    char body[256];
    char out[GB_LABELS_MAX];
    json_t *object;

    snprintf(body, sizeof(body), "{\"labels\":%s}", merges[_i].given);
    object = parse(body);
    ck_assert_int_eq(gb_json_labels(object, "labels", merges[_i].old, out, &err), 1);
    ck_assert_str_eq(out, merges[_i].merged);
    json_decref(object);
}
END_TEST

START_TEST(test_labels_size) {
    struct gb_error err = GB_ERROR_INIT;
    static char body[GB_LABELS_MAX * 2];
    char out[GB_LABELS_MAX];
    json_t *object;
    size_t n;

    /* {"a":"..."} has 8 bytes beside the value. */
    for (n = GB_LABELS_MAX - 1; n <= GB_LABELS_MAX; n++) {
        snprintf(body, sizeof(body), "{\"labels\":{\"a\":\"%0*d\"}}", (int)(n - 8), 0);
        object = parse(body);
        if (n < GB_LABELS_MAX) {
            ck_assert_int_eq(gb_json_labels(object, "labels", "{}", out, &err), 1);
            ck_assert_uint_eq(strlen(out), n);
        } else {
            ck_assert_int_eq(gb_json_labels(object, "labels", "{}", out, &err), -1);
            ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
        }
        json_decref(object);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("json");
    TCase *tables = tcase_create("tables");

    tcase_add_loop_test(tables, test_refusal, 0, sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_loop_test(tables, test_field, 0, sizeof(fields) / sizeof(fields[0]));
    tcase_add_loop_test(tables, test_merge, 0, sizeof(merges) / sizeof(merges[0]));
    suite_add_tcase(suite, tables);
    gb_test_add(suite, "depth", test_depth, 10);
    gb_test_add(suite, "no fields", test_no_fields, 4);
    gb_test_add(suite, "values", test_values, 4);
    gb_test_add_loop(suite, "no limit", test_no_limit, 4, 4);
    gb_test_add(suite, "labels size", test_labels_size, 4);
    return gb_test_run(suite);
}
