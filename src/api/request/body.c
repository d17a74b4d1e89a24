/* JSON bodies: read strictly into one object with known fields, and the groups of fields that several routes have. A
 * field of the wrong type is refused, never ignored. Handlers call this on the request's loop. */
#include "api/request/body.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/context.h"
#include "api/request/query.h"
#include "base/encoding.h"
#include "base/text.h"
#include "fleet/pull/pull.h"

/* UINT64_MAX, with which CUDA says "no limit". jansson refuses it, so it is read as the fraction that it rounds to. */
static const char unlimited[] = "18446744073709551615";
static const char unlimited_real[] = "184467440737095516e2";

static bool is_unlimited(const json_t *value) {
    return json_is_real(value) && json_real_value(value) == 18446744073709551616.0;
}

/* --- JSON objects ------------------------------------------------------------------------------------------------- */

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
        return is_unlimited(value) ? "a number" : "a fraction";
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

static bool of_number(const char *text, size_t n, size_t at) {
    return at < n && text[at] != '\0' && strchr("+-.0123456789eE", text[at]);
}

/* Both texts have one length, so that the places in errors stay right. */
static void write_unlimited(char *text, size_t n) {
    const size_t len = sizeof(unlimited) - 1;
    bool quoted = false;
    size_t i;

    for (i = 0; i < n; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && i + len <= n && memcmp(text + i, unlimited, len) == 0 && !of_number(text, n, i - 1) &&
                 !of_number(text, n, i + len))
            memcpy(text + i, unlimited_real, len);
    }
}

static json_t *load(const char *text, size_t n, json_error_t *error) {
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, error);
    char *copy = NULL;

    if (!root && json_error_code(error) == json_error_numeric_overflow)
        copy = malloc(n);
    if (!copy)
        return root;
    memcpy(copy, text, n);
    write_unlimited(copy, n);
    root = json_loadb(copy, n, JSON_REJECT_DUPLICATES, error);
    free(copy);
    return root;
}

int gb_json_object(const char *text, size_t n, const char *fields, json_t **ret, struct gb_error *err) {
    json_error_t error;
    json_t *root = load(text, n, &error);

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
    if (is_unlimited(value))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field '%s' must be 2^63 - 1 at most", key);
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
    if (json_is_null(value) || is_unlimited(value)) {
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

int gb_json_prefix(const json_t *object, struct gb_name *ret, struct gb_error *err) {
    const char *text;
    int r = gb_json_string(object, "prefix", &text, err);

    if (r > 0 && text[0] != '\0')
        r = gb_name_parse("prefix", text, strlen(text), ret, err);
    return r < 0 ? -1 : 0;
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
    /* This daemon wrote the labels in the database; text that cannot be read counts as no labels. */
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

/* --- bodies ------------------------------------------------------------------------------------------------------- */

static int check_media(const struct gb_http_request *request, struct gb_error *err) {
    return gb_media_encoding(gb_http_header(request, "Content-Encoding"), err) < 0
               ? -1
               : gb_media_json(gb_http_header(request, "Content-Type"), err);
}

int gb_body_json(const struct gb_http_request *request, struct gb_error *err) {
    if (request->body_len == 0)
        return gb_error_set(err, GB_ERR_MALFORMED_JSON, "a JSON object is needed as the body");
    if (strlen(request->body) != request->body_len)
        return gb_error_set(err, GB_ERR_MALFORMED_JSON, "the body has a NUL");
    return check_media(request, err);
}

int gb_body_object(const struct gb_http_request *request, const char *fields, bool optional, json_t **ret,
                   struct gb_error *err) {
    if (request->body_len == 0 && optional) {
        *ret = json_object();
        return *ret ? 0 : gb_error_memory(err, "request");
    }
    if (request->body_len == 0)
        return gb_error_set(err, GB_ERR_MALFORMED_JSON, "a JSON object is needed as the body%s%s",
                            fields[0] ? "; its fields: " : "", fields);
    if (check_media(request, err) < 0)
        return -1;
    return gb_json_object(request->body, request->body_len, fields, ret, err);
}

int gb_body_no_fields(const struct gb_http_request *request, struct gb_error *err) {
    json_t *body;

    if (gb_body_object(request, "", true, &body, err) < 0)
        return -1;
    json_decref(body);
    return 0;
}

int gb_body_stream(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    struct gb_name stream = {"default"};
    json_t *body;
    int r;

    if (gb_body_object(request, "stream", true, &body, err) < 0)
        return -1;
    r = gb_json_name(body, "stream", &stream, err);
    json_decref(body);
    if (r < 0)
        return -1;
    *ret = stream;
    return 0;
}

int gb_body_name(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    json_t *body;
    int r;

    if (gb_body_object(request, "name", false, &body, err) < 0)
        return -1;
    r = gb_json_name(body, "name", ret, err);
    json_decref(body);
    if (r == 0)
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'name' is needed");
    return r > 0 ? 0 : -1;
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

int gb_device_text(const struct gb_api *api, const char *text, size_t len, int *ret, struct gb_error *err) {
    if (strlen(text) != len)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "a device is named by its index or UUID");
    return gb_device_find(api->core, text, ret, err) < 0 ? -1 : 1;
}

int gb_device_field(const struct gb_api *api, const json_t *object, const char *key, int *ret, struct gb_error *err) {
    const json_t *value = json_object_get(object, key);
    const char *text;
    uint64_t index;

    if (json_is_string(value))
        return gb_json_string(object, key, &text, err) < 0 ? -1 : gb_device_text(api, text, strlen(text), ret, err);
    if (value && !json_is_number(value))
        return gb_error_set(err, GB_ERR_WRONG_TYPE,
                            "the field '%s' must be a device: its index, or its UUID as a string", key);
    if (json_is_integer(value) && json_integer_value(value) < 0)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "the field '%s' must not be negative, and is %lld; without it the device is 0, or that of the pool", key,
            (long long)json_integer_value(value));
    switch (gb_json_u64(object, key, &index, err)) {
    case 0:
        return 0;
    case 1:
        break;
    default:
        return -1;
    }
    if (index >= (uint64_t)api->devices)
        return gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND,
                            "there is no device %llu; GET /v1/devices lists the %d there are",
                            (unsigned long long)index, api->devices);
    *ret = (int)index;
    return 1;
}

/* --- fields of buffers -------------------------------------------------------------------------------------------- */

int gb_buffer_layout_read(const json_t *body, struct gb_buffer_params *params, struct gb_error *err) {
    uint64_t bytes = 0;
    uint64_t of_shape;
    int has_bytes = gb_json_u64(body, "bytes", &bytes, err);
    int r = has_bytes < 0 ? -1 : gb_json_dtype(body, "dtype", &params->dtype, err);
    int has_shape = r < 0 ? -1 : gb_json_shape(body, "shape", &params->shape, err);
    size_t width;

    if (has_shape < 0)
        return -1;
    if (!has_shape && !has_bytes)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'bytes', or 'shape' and, unless it is uint8, 'dtype'");
    if (!has_shape) {
        width = gb_dtype_bytes(params->dtype);
        if (bytes % width != 0)
            return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "%llu bytes are no whole number of %s, which has %zu each",
                                (unsigned long long)bytes, gb_dtype_name(params->dtype), width);
        params->shape = (struct gb_shape){.dims = 1, .dim = {bytes / width}};
    }
    if (gb_shape_bytes(&params->shape, params->dtype, &of_shape, err) < 0)
        return -1;
    if (has_bytes && of_shape != bytes)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH, "dtype and shape make %llu bytes, 'bytes' says %llu",
                            (unsigned long long)of_shape, (unsigned long long)bytes);
    params->bytes = of_shape;
    params->has_shape = true;
    return 0;
}

/* Reads the device. A pool is on a device already, so only one of the two may be given. */
static int read_device(const struct gb_api *api, const json_t *body, struct gb_buffer_params *params,
                       struct gb_error *err) {
    int r = gb_device_field(api, body, "device", &params->device, err);

    params->has_device = r > 0;
    if (r > 0 && params->pool.s[0] != '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'pool' or 'device', not both: a pool is of one device");
    return r < 0 ? -1 : 0;
}

int gb_buffer_place_read(const json_t *body, struct gb_buffer_params *params, struct gb_error *err) {
    int r = gb_json_spill(body, "spill", &params->spill, err);

    if (r < 0)
        return -1;
    params->has_spill = r > 0;
    r = gb_json_bool(body, "resident", &params->resident, err);
    params->has_resident = r > 0;
    return r < 0 ? -1 : 0;
}

int gb_buffer_memory_read(const struct gb_api *api, const json_t *body, struct gb_buffer_params *params,
                          struct gb_error *err) {
    int r = gb_json_kind(body, "kind", &params->kind, err);

    params->has_kind = r > 0;
    if (r < 0 || gb_json_name(body, "pool", &params->pool, err) < 0 ||
        gb_json_name(body, "stream", &params->stream, err) < 0 || read_device(api, body, params, err) < 0)
        return -1;
    r = gb_json_durability(body, "durability", &params->durability, err);
    params->has_durability = r > 0;
    return r < 0 ? -1 : 0;
}

int gb_buffer_params_read(const struct gb_api *api, const json_t *body, const char *key,
                          struct gb_buffer_params *params, struct gb_error *err) {
    int r = gb_json_name(body, key, &params->name, err);

    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field '%s' is needed", key);
    if (r < 0 || gb_buffer_layout_read(body, params, err) < 0)
        return -1;
    if (gb_json_bool(body, "mirrored", &params->mirrored, err) < 0 || gb_buffer_memory_read(api, body, params, err) < 0)
        return -1;
    if (gb_buffer_place_read(body, params, err) < 0)
        return -1;
    r = gb_json_take_labels(body, "labels", NULL, &params->labels, err);
    params->has_labels = r > 0;
    return r < 0 ? -1 : 0;
}

/* --- copies and fills --------------------------------------------------------------------------------------------- */

/* Reads "session/buffer", or "buffer" of the same session. */
static int read_from(const json_t *body, struct gb_device_write_params *params, struct gb_error *err) {
    const char *text;
    const char *slash;
    int r = gb_json_string(body, "from", &text, err);

    if (r < 0)
        return -1;
    if (r == 0)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "give 'from': the buffer to copy, as \"session/buffer\" or, within the session, \"buffer\"");
    if (gb_pull_url_is(text))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a URL as the source goes with POST .../copy alone, and not in a batch");
    slash = strchr(text, '/');
    params->from_session = params->session;
    if (slash && gb_name_parse("from (its session)", text, (size_t)(slash - text), &params->from_session, err) < 0)
        return -1;
    text = slash ? slash + 1 : text;
    return gb_name_parse(slash ? "from (its buffer)" : "from", text, strlen(text), &params->from, err);
}

static int read_pattern(const json_t *body, struct gb_device_write_params *params, struct gb_error *err) {
    uint64_t width = 1;
    int r = gb_json_u64(body, "width", &width, err);

    if (r < 0)
        return -1;
    if (width != 1 && width != 2 && width != 4 && width != 8)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'width' must be 1, 2, 4 or 8 bytes, and is %llu",
                            (unsigned long long)width);
    params->width = (unsigned)width;
    r = gb_json_pattern(body, "pattern", params->width, &params->pattern, err);
    if (r == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give 'pattern': the number that is to fill the bytes");
    return r < 0 ? -1 : 0;
}

static int read_side(const json_t *body, struct gb_device_write_params *params, struct gb_error *err) {
    const char *side = NULL;
    int r = gb_json_string(body, "side", &side, err);

    if (r <= 0)
        return r;
    params->side_named = true;
    params->to_host_side = strcmp(side, "host") == 0;
    if (!params->to_host_side && strcmp(side, "device") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the field 'side' must be host or device");
    return 0;
}

/* The fields that copy and fill share. */
static int read_target(const json_t *body, struct gb_device_write_params *params, struct gb_error *err) {
    int r;

    if (params->stream.s[0] == '\0')
        strcpy(params->stream.s, "default");
    if (gb_json_u64(body, "offset", &params->offset, err) < 0 ||
        gb_json_name(body, "stream", &params->stream, err) < 0 ||
        gb_json_bool(body, "in_place", &params->in_place, err) < 0 || read_side(body, params, err) < 0)
        return -1;
    r = gb_json_u64(body, "bytes", &params->bytes, err);
    params->has_bytes = r > 0;
    return r < 0 ? -1 : 0;
}

/* A link has all bytes of a buffer of its session. */
static int check_link(const json_t *body, const struct gb_device_write_params *params, struct gb_error *err) {
    static const char *const fields[] = {"from_offset", "offset", "bytes", "in_place", "side"};
    size_t i;

    for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (json_object_get(body, fields[i]))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "with 'share' the buffer has all bytes of the other one; leave out '%s'", fields[i]);
    }
    if (!gb_name_equal(&params->session, &params->from_session))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "buffers of two sessions share no bytes; leave out 'share' to copy them");
    return 0;
}

static int read_source(const json_t *body, struct gb_device_write_params *params, struct gb_error *err) {
    if (read_from(body, params, err) < 0 || gb_json_u64(body, "from_offset", &params->from_offset, err) < 0 ||
        gb_json_bool(body, "share", &params->share, err) < 0)
        return -1;
    return params->share ? check_link(body, params, err) : 0;
}

int gb_action_read_write(const json_t *body, struct gb_device_write_params *params, struct gb_error *err) {
    int r = params->copy ? read_source(body, params, err) : read_pattern(body, params, err);

    return r < 0 ? -1 : read_target(body, params, err);
}

int gb_action_read_tag(const json_t *object, const char *field, const char **ret, struct gb_error *err) {
    int r = gb_json_string(object, field, ret, err);
    const char *at = *ret;

    if (r <= 0)
        return r;
    if (*at++ == '"') {
        while (*at > ' ' && *at <= '~' && *at != '"')
            at++;
        if (at - *ret > 1 && at - *ret < GB_PULL_TAG_SIZE - 1 && strcmp(at, "\"") == 0)
            return 1;
    }
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "the field '%s' must be one entity tag as the source's .../data gives it, with its quotes: "
                        "\"\\\"1.1.a1544387\\\"\"",
                        field);
}

/* Reads the field `key`: host, device or, where that makes sense, all. */
int gb_action_read_sides(const json_t *body, const char *key, bool all, struct gb_sides *ret, struct gb_error *err) {
    const char *word = "";
    struct gb_sides sides;
    int r = gb_json_string(body, key, &word, err);
    bool both = all && strcmp(word, "all") == 0;

    if (r < 0)
        return -1;
    sides = (struct gb_sides){.host = both || strcmp(word, "host") == 0, .device = both || strcmp(word, "device") == 0};
    if (!sides.host && !sides.device)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give '%s': %s", key,
                            all ? "host, device or all" : "host or device");
    *ret = sides;
    return 0;
}

/* --- PUT ---------------------------------------------------------------------------------------------------------- */

int gb_put_read(const struct gb_http_request *request, const struct gb_name *name, const char *fields, json_t **ret,
                struct gb_error *err) {
    const char *none_match = gb_http_header(request, "If-None-Match");
    struct gb_name given = *name;

    if (gb_http_header(request, "If-Match"))
        return gb_error_set(err, GB_ERR_PRECONDITION_FAILED,
                            "this PUT changes nothing that exists, and takes no If-Match; PATCH does");
    if (none_match && strcmp(none_match, "*") != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "If-None-Match of this PUT can only be *, with which nothing that exists is confirmed");
    if (gb_body_object(request, fields, true, ret, err) < 0)
        return -1;
    if (gb_json_name(*ret, "name", &given, err) >= 0 && gb_name_equal(&given, name))
        return 0;
    if (!gb_name_equal(&given, name))
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                     "the field 'name' is \"%.40s\", and the path names \"%.40s\"; leave the field out", given.s,
                     name->s);
    json_decref(*ret);
    return -1;
}

void gb_differ(struct gb_differences *differences, bool differs, const char *field) {
    size_t used = strlen(differences->fields);

    if (differs)
        snprintf(differences->fields + used, sizeof(differences->fields) - used, "%s%s", used > 0 ? ", " : "", field);
}

int gb_confirm(const struct gb_http_request *request, const char *what, const struct gb_name *name,
               const struct gb_differences *differences, enum gb_code exists, struct gb_error *err) {
    struct gb_session_view view;
    struct gb_name session;

    if (gb_http_header(request, "If-None-Match"))
        return gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "a %s named \"%s\" exists, and If-None-Match is *", what,
                            name->s);
    if (differences->fields[0] != '\0')
        return gb_error_set(err, exists,
                            "a %s named \"%s\" exists, and these properties differ from those asked for: %s", what,
                            name->s, differences->fields);
    if (gb_param_name(request, 0, "session name", &session, err) < 0 ||
        gb_session_heartbeat(gb_api_of(request)->core, &session, &view, err) < 0)
        return -1;
    gb_session_rec_done(&view.rec);
    return 0;
}
