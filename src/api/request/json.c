#include "api/request/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"
#include "base/text.h"

static const char *type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "a number";
    case JSON_REAL:
        return "a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    case JSON_NULL:
        break;
    }
    return "null";
}

static int wrong_type(const char *key, const char *wanted, const json_t *value, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_WRONG_TYPE, "the field '%s' must be %s, not %s", key, wanted, type_name(value));
}

/* jansson gives the kind of an error as a number and its place as line and column. */
static int refuse(const json_error_t *error, struct gb_error *err) {
    const char *near = strstr(error->text, " near '");

    switch (json_error_code(error)) {
    case json_error_duplicate_key:
        return gb_error_set(err, GB_ERR_DUPLICATE_KEY, "the JSON gives a key twice%s (line %d, column %d)",
                            near ? near : "", error->line, error->column);
    case json_error_numeric_overflow:
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "a number in the JSON does not fit in 64 bits with a sign, 2^63 - 1 at most (line %d, column %d)",
            error->line, error->column);
    default:
        return gb_error_set(err, GB_ERR_MALFORMED_JSON, "the JSON cannot be read: %s (line %d, column %d)", error->text,
                            error->line, error->column);
    }
}

static bool listed(const char *fields, const char *key) {
    size_t len = strlen(key);

    while (*fields) {
        size_t n = strcspn(fields, " ");

        if (n == len && memcmp(fields, key, n) == 0)
            return true;
        fields += n + (fields[n] == ' ');
    }
    return false;
}

int gb_json_known(const json_t *object, const char *what, const char *fields, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value) {
        if (!listed(fields, key))
            return gb_error_set(err, GB_ERR_UNKNOWN_FIELD, "the field '%s' of %s is unknown; %s%s",
                                gb_word_quote(key, strlen(key), quoted), what,
                                fields[0] ? "permitted: " : "none is permitted", fields);
    }
    return 0;
}

int gb_json_object(const char *text, size_t n, const char *fields, json_t **ret, struct gb_error *err) {
    json_error_t error;
    json_t *root;

    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return refuse(&error, err);
    if (!json_is_object(root)) {
        gb_error_set(err, GB_ERR_WRONG_TYPE, "the body must be a JSON object, not %s", type_name(root));
        json_decref(root);
        return -1;
    }
    if (gb_json_known(root, "the body", fields, err) < 0) {
        json_decref(root);
        return -1;
    }
    *ret = root;
    return 0;
}

static int read_whole(const json_t *value, const char *key, const char *wanted, uint64_t *ret, struct gb_error *err) {
    /* JSON Schema counts 5.0 as a whole number, and some languages write it so. Beyond 2^53 it might stand for another
     * number. */
    if (json_is_real(value) && json_real_value(value) >= 0 && json_real_value(value) <= 9007199254740992.0 &&
        json_real_value(value) == (double)(uint64_t)json_real_value(value)) {
        *ret = (uint64_t)json_real_value(value);
        return 1;
    }
    if (!json_is_integer(value))
        return wrong_type(key, wanted, value, err);
    if (json_integer_value(value) < 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field '%s' must not be negative, and is %lld", key,
                            (long long)json_integer_value(value));
    *ret = (uint64_t)json_integer_value(value);
    return 1;
}

int gb_json_u64(const json_t *object, const char *key, uint64_t *ret, struct gb_error *err) {
    const json_t *value = json_object_get(object, key);

    return value ? read_whole(value, key, "a whole number", ret, err) : 0;
}

int gb_json_limit(const json_t *object, const char *key, uint64_t *ret, struct gb_error *err) {
    const json_t *value = json_object_get(object, key);

    if (!value)
        return 0;
    if (json_is_null(value)) {
        *ret = GB_UNLIMITED;
        return 1;
    }
    return read_whole(value, key, "a whole number, or null for no limit", ret, err);
}

int gb_json_bool(const json_t *object, const char *key, bool *ret, struct gb_error *err) {
    const json_t *value = json_object_get(object, key);

    if (!value)
        return 0;
    if (!json_is_boolean(value))
        return wrong_type(key, "true or false", value, err);
    *ret = json_is_true(value);
    return 1;
}

/* "0x" and 1 to 16 hexadecimal digits. */
static int read_hex(const char *text, const char *key, uint64_t *ret, struct gb_error *err) {
    size_t digits = strlen(text) > 2 ? strlen(text) - 2 : 0;

    if (text[0] != '0' || (text[1] != 'x' && text[1] != 'X') || digits < 1 || digits > 16 ||
        !gb_hex_u64(text + 2, digits, ret))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the field '%s' as a string must be 0x and 1 to 16 hexadecimal digits", key);
    return 1;
}

int gb_json_pattern(const json_t *object, const char *key, unsigned width, uint64_t *ret, struct gb_error *err) {
    const json_t *value = json_object_get(object, key);
    uint64_t pattern;
    int r;

    if (!value)
        return 0;
    r = json_is_string(value)
            ? read_hex(json_string_value(value), key, &pattern, err)
            : read_whole(value, key, "a whole number, or a string of hexadecimal digits such as \"0xff\"", &pattern,
                         err);
    if (r < 0)
        return -1;
    if (width < 8 && pattern >> (8 * width) != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the field '%s' is 0x%" PRIx64 ", which %u byte%s cannot hold", key, pattern, width,
                            width == 1 ? "" : "s");
    *ret = pattern;
    return 1;
}

int gb_json_string(const json_t *object, const char *key, const char **ret, struct gb_error *err) {
    const json_t *value = json_object_get(object, key);

    if (!value)
        return 0;
    if (!json_is_string(value))
        return wrong_type(key, "a string", value, err);
    *ret = json_string_value(value);
    return 1;
}

int gb_json_phrase(const json_t *object, const char *key, struct gb_phrase *ret, struct gb_error *err) {
    const char *text;
    int r = gb_json_string(object, key, &text, err);

    if (r <= 0)
        return r;
    if (strlen(text) > GB_PHRASE_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field '%s' has %zu bytes; %d are permitted", key,
                            strlen(text), GB_PHRASE_MAX);
    strcpy(ret->s, text);
    return 1;
}

int gb_json_child(const json_t *object, const char *key, const json_t **ret, struct gb_error *err) {
    const json_t *value = json_object_get(object, key);

    if (!value)
        return 0;
    if (!json_is_object(value))
        return wrong_type(key, "an object", value, err);
    *ret = value;
    return 1;
}

int gb_json_name(const json_t *object, const char *key, struct gb_name *ret, struct gb_error *err) {
    const char *text;
    int r = gb_json_string(object, key, &text, err);

    if (r <= 0)
        return r;
    return gb_name_parse(key, text, strlen(text), ret, err) < 0 ? -1 : 1;
}

int gb_json_dtype(const json_t *object, const char *key, enum gb_dtype *ret, struct gb_error *err) {
    const char *text;
    int r = gb_json_string(object, key, &text, err);

    if (r <= 0)
        return r;
    return gb_dtype_read(text, strlen(text), ret, err) < 0 ? -1 : 1;
}

int gb_json_durability(const json_t *object, const char *key, enum gb_durability *ret, struct gb_error *err) {
    const char *text;
    int r = gb_json_string(object, key, &text, err);

    if (r <= 0)
        return r;
    return gb_durability_parse(text, strlen(text), ret, err) < 0 ? -1 : 1;
}

int gb_json_spill(const json_t *object, const char *key, enum gb_spill *ret, struct gb_error *err) {
    const char *text;
    int r = gb_json_string(object, key, &text, err);

    if (r <= 0)
        return r;
    return gb_spill_parse(text, strlen(text), ret, err) < 0 ? -1 : 1;
}

int gb_json_kind(const json_t *object, const char *key, enum gb_kind *ret, struct gb_error *err) {
    const char *text;
    int r = gb_json_string(object, key, &text, err);

    if (r <= 0)
        return r;
    return gb_kind_parse(text, strlen(text), ret, err) < 0 ? -1 : 1;
}

int gb_json_shape(const json_t *object, const char *key, struct gb_shape *ret, struct gb_error *err) {
    const json_t *value = json_object_get(object, key);
    struct gb_shape shape = {0};
    size_t i;

    if (!value)
        return 0;
    if (!json_is_array(value))
        return wrong_type(key, "a list of whole numbers", value, err);
    if (json_array_size(value) > GB_DIMS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field '%s' has %zu dimensions; at most %d are permitted",
                            key, json_array_size(value), GB_DIMS_MAX);
    for (i = 0; i < json_array_size(value); i++) {
        if (read_whole(json_array_get(value, i), key, "a list of whole numbers", &shape.dim[i], err) < 0)
            return -1;
    }
    shape.dims = (unsigned)json_array_size(value);
    *ret = shape;
    return 1;
}

/* Adds the given labels to `into`. null removes a label where that is permitted. */
static int merge_labels(json_t *into, const json_t *given, const char *key, bool removable, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)given, name, value) {
        if (name[0] == '\0')
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a name in '%s' is empty", key);
        if (json_is_null(value) && removable) {
            json_object_del(into, name);
            continue;
        }
        if (!json_is_string(value))
            return gb_error_set(err, GB_ERR_WRONG_TYPE, "the value of '%s' in '%s' must be a string%s, not %s",
                                gb_word_quote(name, strlen(name), quoted), key, removable ? " or null" : "",
                                type_name(value));
        if (json_object_set(into, name, value) < 0)
            return gb_error_set(err, GB_ERR_SATURATED, "no memory for '%s'; try again later", key);
    }
    return 0;
}

static int dump_labels(const json_t *labels, const char *key, char out[GB_LABELS_MAX], struct gb_error *err) {
    size_t n = json_dumpb(labels, NULL, 0, JSON_COMPACT);

    if (n == 0)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for '%s'; try again later", key);
    if (n >= GB_LABELS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'%s' has %zu bytes as JSON text; at most %d are permitted",
                            key, n, GB_LABELS_MAX - 1);
    json_dumpb(labels, out, n, JSON_COMPACT);
    out[n] = '\0';
    return 1;
}

int gb_json_labels(const json_t *object, const char *key, const char *old, char out[GB_LABELS_MAX],
                   struct gb_error *err) {
    const json_t *given;
    json_t *labels;
    int r = gb_json_child(object, key, &given, err);

    if (r <= 0)
        return r;
    /* This daemon wrote the labels in the database; unreadable text counts as none. */
    labels = old ? json_loads(old, 0, NULL) : NULL;
    if (!json_is_object(labels)) {
        json_decref(labels);
        labels = json_object();
    }
    r = merge_labels(labels, given, key, old != NULL, err);
    if (r == 0)
        r = dump_labels(labels, key, out, err);
    json_decref(labels);
    return r;
}

int gb_json_take_labels(const json_t *object, const char *key, const char *old, struct gb_text **ret_labels,
                        struct gb_error *err) {
    char text[GB_LABELS_MAX];
    int r = gb_json_labels(object, key, old, text, err);

    *ret_labels = NULL;
    return r > 0 && gb_labels_make(text, ret_labels, err) < 0 ? -1 : r;
}
