/* What a request says outside its body: the parameters of its query, the names in its path, its media types, and how
 * long it waits. */
#include "api/request/query.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/context.h"
#include "base/clock.h"
#include "base/text.h"
#include "core/core.h"

/* --- query -------------------------------------------------------------------------------------------------------- */

int gb_query_bool(const struct gb_http_request *request, const char *name, bool *ret, struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, name);

    if (!text)
        return 0;
    if (text->len == 0 || gb_parse_bool(text->s, text->len, ret) != GB_PARSE_OK)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s must be true or false", name);
    return 1;
}

int gb_query_flag(const struct gb_http_request *request, const char *name, bool *ret, struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, name);

    if (!text || text->len > 0)
        return gb_query_bool(request, name, ret, err);
    *ret = true;
    return 1;
}

int gb_query_u64(const struct gb_http_request *request, const char *name, uint64_t *ret, struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, name);
    uint64_t value;
    enum gb_parse r;

    if (!text)
        return 0;
    r = gb_parse_u64(text->s, text->len, &value);
    if (r == GB_PARSE_NEGATIVE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s must not be negative", name);
    if (r == GB_PARSE_OVERFLOW || (r == GB_PARSE_OK && value > INT64_MAX))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s is larger than 2^63 - 1", name);
    if (r != GB_PARSE_OK)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s must be a whole number", name);
    *ret = value;
    return 1;
}

int gb_query_name(const struct gb_http_request *request, const char *name, struct gb_name *ret, struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, name);

    if (!text)
        return 0;
    return gb_name_parse(name, text->s, text->len, ret, err) < 0 ? -1 : 1;
}

int gb_param_name(const struct gb_http_request *request, unsigned n, const char *what, struct gb_name *ret,
                  struct gb_error *err) {
    return gb_name_parse(what, request->param[n].s, request->param[n].len, ret, err);
}

int gb_query_limit(const struct gb_http_request *request, unsigned *ret_limit, struct gb_error *err) {
    const struct gb_http_text *limit = gb_http_query(request, "limit");

    *ret_limit = GB_PAGE_LIMIT;
    return limit ? gb_limit_parse(limit->s, limit->len, ret_limit, err) : 0;
}

int gb_page_read(const struct gb_http_request *request, struct gb_page *ret, struct gb_error *err) {
    const struct gb_http_text *cursor = gb_http_query(request, "cursor");
    struct gb_page page = {.after = 0};

    if (cursor && gb_cursor_parse(cursor->s, cursor->len, &page.after, err) < 0)
        return -1;
    if (gb_query_limit(request, &page.limit, err) < 0)
        return -1;
    *ret = page;
    return 0;
}

/* --- cursors and limits ------------------------------------------------------------------------------------------- */

/* The pure part of pages: cursors and limits. */

char *gb_cursor_text(int64_t id, char *out) {
    snprintf(out, GB_CURSOR_SIZE, "%" PRId64, id);
    return out;
}

int gb_cursor_parse(const char *text, size_t len, int64_t *ret_id, struct gb_error *err) {
    uint64_t id;

    if (gb_parse_u64(text, len, &id) != GB_PARSE_OK || id > INT64_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the cursor is not one; give next_cursor of the page before, or none for the first");
    *ret_id = (int64_t)id;
    return 0;
}

int gb_limit_parse(const char *text, size_t len, unsigned *ret_limit, struct gb_error *err) {
    uint64_t limit;

    if (gb_parse_u64(text, len, &limit) != GB_PARSE_OK || limit < 1 || limit > GB_PAGE_LIMIT_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "limit must be a whole number from 1 to %d",
                            GB_PAGE_LIMIT_MAX);
    *ret_limit = (unsigned)limit;
    return 0;
}

/* --- times -------------------------------------------------------------------------------------------------------- */

#define US_PER_S 1000000LL
#define YEARS_100_S 3153600000ULL

static int absolute(const char *name, const struct gb_http_text *text, int64_t now_us, int64_t *ret,
                    struct gb_error *err) {
    switch (gb_timestamp_parse(text->s, text->len, ret)) {
    case GB_TIMESTAMP_MALFORMED:
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "%s must be a time such as 2026-01-02T03:04:05Z, or seconds before now such as -3600",
                            name);
    case GB_TIMESTAMP_NO_ZONE:
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "%s must end in its zone: Z, or an offset such as +01:00 (in a URL: %%2B01:00)", name);
    case GB_TIMESTAMP_IMPOSSIBLE:
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s is not a time that there is since 1970", name);
    case GB_TIMESTAMP_OK:
        break;
    }
    /* Rounding up to a step would give the last year of four digits a fifth. */
    if (*ret > now_us && *ret - now_us > (int64_t)YEARS_100_S * US_PER_S)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s is more than a hundred years ahead", name);
    return 0;
}

int gb_query_time(const struct gb_http_request *request, const char *name, int64_t now_us, int64_t *ret,
                  struct gb_error *err) {
    const struct gb_http_text *text = gb_http_query(request, name);
    uint64_t ago_s;
    int64_t value;

    if (!text)
        return 0;
    if (text->len > 0 && text->s[0] == '-') {
        if (gb_parse_u64(text->s + 1, text->len - 1, &ago_s) != GB_PARSE_OK || ago_s > YEARS_100_S)
            return gb_error_set(
                err, GB_ERR_INVALID_ARGUMENT,
                "%s must be a time such as 2026-01-02T03:04:05Z, or whole seconds before now such as -3600, "
                "at most a hundred years",
                name);
        value = now_us - (int64_t)ago_s * US_PER_S;
        *ret = value > 0 ? value : 0;
        return 1;
    }
    return absolute(name, text, now_us, ret, err) < 0 ? -1 : 1;
}

/* --- labels ------------------------------------------------------------------------------------------------------- */

/* Appends s[0..n) as JSON writes it. Returns 0, or -1 if it is no UTF-8, or there is no room. */
static int add(struct gb_label_query *query, const char *s, size_t n) {
    size_t room = sizeof(query->text) - query->len;
    json_t *string = json_stringn(s, n);
    size_t used = string ? json_dumpb(string, query->text + query->len, room, JSON_ENCODE_ANY | JSON_COMPACT) : 0;

    json_decref(string);
    if (used == 0 || used >= room)
        return -1;
    query->len += used;
    return 0;
}

int gb_label_query_read(const struct gb_http_request *request, struct gb_label_query *ret, struct gb_error *err) {
    const struct gb_http_text *label = gb_http_query(request, "label");
    size_t n = label ? strcspn(label->s, "=") : 0;

    ret->len = 0;
    if (!label)
        return 0;
    if (n == 0 || strlen(label->s) != label->len)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "label is a label's name, or name=value");
    if (add(ret, label->s, n) == 0) {
        ret->text[ret->len++] = ':';
        if (label->s[n] == '\0' || add(ret, label->s + n + 1, label->len - n - 1) == 0)
            return 0;
    }
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "label is UTF-8 of less than %d bytes: a label's name, or name=value", GB_LABELS_MAX);
}

/* The end of the JSON string that begins at s. */
static const char *after_string(const char *s) {
    for (s++; *s != '"' && *s != '\0'; s++) {
        if (*s == '\\' && s[1] != '\0')
            s++;
    }
    return *s == '"' ? s + 1 : s;
}

/* The text is that of an object without spaces, whose values are all strings. A comparison begins where a name does,
 * and both end with a quotation mark: nothing within a value is taken for a label. */
bool gb_label_query_fits(const struct gb_label_query *query, const char *labels) {
    const char *s = labels + (*labels == '{');

    if (query->len == 0)
        return true;
    while (*s == '"') {
        if (strncmp(s, query->text, query->len) == 0)
            return true;
        s = after_string(s);
        s = after_string(s + (*s == ':'));
        s += *s == ',';
    }
    return false;
}

/* --- the path ----------------------------------------------------------------------------------------------------- */

int gb_path_session(const struct gb_http_request *request, struct gb_name *ret, struct gb_error *err) {
    struct gb_session_view view;

    if (gb_param_name(request, 0, "session name", ret, err) < 0)
        return -1;
    if (gb_session_get(gb_api_of(request)->core, ret, &view, err) < 0)
        return -1;
    gb_session_rec_done(&view.rec);
    return 0;
}

int gb_path_names(const struct gb_http_request *request, const char *what, struct gb_name *ret_session,
                  struct gb_name *ret, struct gb_error *err) {
    if (gb_path_session(request, ret_session, err) < 0)
        return -1;
    return gb_param_name(request, 1, what, ret, err);
}

int gb_path_locator(const struct gb_http_request *request, const char *what, struct gb_locator *ret,
                    struct gb_error *err) {
    return gb_path_names(request, what, &ret->session, &ret->name, err);
}

/* --- how long ----------------------------------------------------------------------------------------------------- */

enum gb_step gb_body_await(const struct gb_http_request *request, const char *what, struct gb_error *err) {
    if (!request->timed_out)
        return GB_STEP_WAIT;
    gb_error_set(err, GB_ERR_TIMED_OUT, "the bytes arrived, but the %s did not finish in the permitted time", what);
    return GB_STEP_ERROR;
}

uint64_t gb_sync_deadline_ns(const struct gb_http_request *request) {
    return gb_clock_ns() + gb_http_prefer_wait(request, GB_SYNC_WAIT_S, GB_SYNC_WAIT_MAX_S, NULL) * GB_NS_PER_S;
}

/* --- names of tensors --------------------------------------------------------------------------------------------- */

static bool permitted(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int gb_tensor_buffer(const char *prefix, const char *tensor, struct gb_name *ret, struct gb_error *err) {
    struct gb_name name = {""};
    size_t n = (size_t)snprintf(name.s, sizeof(name.s), "%s", prefix);

    if (n == 0 && !permitted(tensor[0]))
        name.s[n++] = 'x';
    for (; *tensor && n < GB_NAME_MAX; tensor++) {
        /* The first byte of a long character is replaced, the others are left out. */
        if (((unsigned char)*tensor & 0xc0) != 0x80)
            name.s[n++] = permitted(*tensor) || strchr("._-", *tensor) ? *tensor : '_';
    }
    name.s[n] = '\0';
    while (((unsigned char)*tensor & 0xc0) == 0x80)
        tensor++;
    if (*tensor)
        return gb_error_set(
            err, GB_ERR_INVALID_NAME,
            "the name of the tensor %.60s... is too long for a buffer%s, which has %d characters at most", name.s,
            prefix[0] ? " with that prefix" : "", GB_NAME_MAX);
    *ret = name;
    return 0;
}

const char *gb_tensor_name(const struct gb_buffer_rec *rec, char *out) {
    json_t *labels = NULL;
    const char *name = NULL;

    /* Most buffers have no labels, and reading JSON costs time. */
    if (strstr(gb_text_s(rec->labels), GB_TENSOR_LABEL))
        labels = json_loads(gb_text_s(rec->labels), 0, NULL);
    if (labels)
        name = json_string_value(json_object_get(labels, GB_TENSOR_LABEL));
    snprintf(out, GB_LABELS_MAX, "%s", name ? name : rec->name.s);
    json_decref(labels);
    return out;
}

static int dump(const json_t *labels, char out[GB_LABELS_MAX], const struct gb_name *buffer, struct gb_error *err) {
    size_t n = json_dumpb(labels, out, GB_LABELS_MAX - 1, JSON_COMPACT);

    if (n == 0 || n >= GB_LABELS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the labels of \"%s\" with its tensor's name would have more than %d bytes", buffer->s,
                            GB_LABELS_MAX - 1);
    out[n] = '\0';
    return 1;
}

int gb_tensor_labels(const char *old, const struct gb_name *buffer, const char *tensor, char out[GB_LABELS_MAX],
                     struct gb_error *err) {
    bool own = strcmp(buffer->s, tensor) == 0;
    const char *present;
    json_t *labels;
    int r;

    if (own && !strstr(old, GB_TENSOR_LABEL))
        return 0;
    labels = json_loads(old, 0, NULL);
    if (!labels)
        return gb_error_memory(err, "labels");
    present = json_string_value(json_object_get(labels, GB_TENSOR_LABEL));
    if (own ? !present : present && strcmp(present, tensor) == 0)
        r = 0;
    else if (own ? json_object_del(labels, GB_TENSOR_LABEL) < 0
                 : json_object_set_new(labels, GB_TENSOR_LABEL, json_string(tensor)) < 0)
        r = gb_error_memory(err, "labels");
    else
        r = dump(labels, out, buffer, err);
    json_decref(labels);
    return r;
}

/* --- of a whole file ---------------------------------------------------------------------------------------------- */

struct pair {
    const char *tensor;
    const struct gb_name *buffer;
};

static int by_buffer(const void *a, const void *b) {
    return strcmp(((const struct pair *)a)->buffer->s, ((const struct pair *)b)->buffer->s);
}

static int check_distinct(const struct gb_safetensors *file, const struct gb_name *names, struct gb_error *err) {
    struct pair *pairs = malloc((file->count + 1) * sizeof(*pairs));
    size_t i;
    int r = 0;

    if (!pairs)
        return gb_error_memory(err, "request");
    for (i = 0; i < file->count; i++)
        pairs[i] = (struct pair){.tensor = file->tensors[i].name, .buffer = &names[i]};
    qsort(pairs, file->count, sizeof(*pairs), by_buffer);
    for (i = 1; i < file->count && r == 0; i++) {
        if (by_buffer(&pairs[i - 1], &pairs[i]) == 0)
            r = gb_error_set(err, GB_ERR_INVALID_NAME,
                             "the tensors \"%.80s\" and \"%.80s\" would both be the buffer \"%s\"; rename one of them",
                             pairs[i - 1].tensor, pairs[i].tensor, pairs[i].buffer->s);
    }
    free(pairs);
    return r;
}

int gb_tensors_names(const struct gb_safetensors *file, const char *prefix, struct gb_name **ret,
                     struct gb_error *err) {
    struct gb_name *names = calloc(file->count + 1, sizeof(*names));
    size_t i;
    int r = 0;

    if (!names)
        return gb_error_memory(err, "request");
    for (i = 0; i < file->count && r == 0; i++)
        r = gb_tensor_buffer(prefix, file->tensors[i].name, &names[i], err);
    if (r < 0 || check_distinct(file, names, err) < 0) {
        free(names);
        return -1;
    }
    *ret = names;
    return 0;
}

/* --- media -------------------------------------------------------------------------------------------------------- */

/* The length of the type without its parameters. */
static size_t type_len(const char *value) {
    size_t n = strcspn(value, ";,");

    while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
        n--;
    return n;
}

static bool is(const char *value, size_t n, const char *type) {
    return strlen(type) == n && strncasecmp(value, type, n) == 0;
}

static int refused(const char *header, const char *value, const char *permitted, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];

    return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE, "the %s \"%s\" is not supported here; send %s", header,
                        gb_word_quote(value, strlen(value), quoted), permitted);
}

int gb_media_json(const char *content_type, struct gb_error *err) {
    size_t n = content_type ? type_len(content_type) : 0;

    if (!content_type || is(content_type, n, GB_MEDIA_JSON) || is(content_type, n, GB_MEDIA_FORM))
        return 0;
    if (n > 5 && strncasecmp(content_type + n - 5, "+json", 5) == 0)
        return 0;
    return refused("Content-Type", content_type, GB_MEDIA_JSON, err);
}

int gb_media_bytes(const char *content_type, struct gb_error *err) {
    size_t n = content_type ? type_len(content_type) : 0;

    if (!content_type || (!is(content_type, n, GB_MEDIA_FORM) && !is(content_type, n, GB_MEDIA_FORM_PARTS)))
        return 0;
    return gb_error_set(err, GB_ERR_UNSUPPORTED_MEDIA_TYPE,
                        "a form (%.*s) does not have the bytes of a file as they are; send them with curl -T FILE, or "
                        "with the Content-Type " GB_MEDIA_RAW,
                        (int)n, content_type);
}

int gb_media_tensor(const char *content_type, enum gb_form *ret, struct gb_error *err) {
    size_t n = content_type ? type_len(content_type) : 0;

    if (gb_media_bytes(content_type, err) < 0)
        return -1;
    if (!content_type || is(content_type, n, GB_MEDIA_RAW))
        *ret = GB_FORM_RAW;
    else if (is(content_type, n, GB_MEDIA_NPY))
        *ret = GB_FORM_NPY;
    else if (is(content_type, n, GB_MEDIA_SAFETENSORS) || is(content_type, n, GB_MEDIA_SAFETENSORS_VENDOR))
        *ret = GB_FORM_SAFETENSORS;
    else
        return refused("Content-Type", content_type, GB_MEDIA_RAW ", " GB_MEDIA_NPY " or " GB_MEDIA_SAFETENSORS, err);
    return 0;
}

int gb_media_form(const char *format, enum gb_form *ret, enum gb_notation *ret_notation, struct gb_error *err) {
    static const char *const names[GB_FORM_COUNT] = {"raw", "npy", "safetensors"};
    int i;

    for (i = 0; i < GB_FORM_COUNT; i++) {
        if (strcmp(format, names[i]) == 0) {
            *ret = (enum gb_form)i;
            return 0;
        }
    }
    if (ret_notation && (strcmp(format, "json") == 0 || strcmp(format, "text") == 0)) {
        *ret_notation = format[0] == 'j' ? GB_NOTATION_JSON : GB_NOTATION_TEXT;
        return 0;
    }
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "format must be raw, npy%s",
                        ret_notation ? ", safetensors, json or text" : " or safetensors");
}

const char *gb_media_type(enum gb_form form) {
    return form == GB_FORM_NPY ? GB_MEDIA_NPY : form == GB_FORM_SAFETENSORS ? GB_MEDIA_SAFETENSORS : GB_MEDIA_RAW;
}

const char *gb_media_notation_type(enum gb_notation notation) {
    return notation == GB_NOTATION_JSON ? GB_MEDIA_JSON : "text/plain; charset=utf-8";
}

int gb_media_encoding(const char *content_encoding, struct gb_error *err) {
    if (!content_encoding || is(content_encoding, type_len(content_encoding), "identity"))
        return 0;
    return refused("Content-Encoding", content_encoding, "the bytes as they are", err);
}

/* --- Accept ------------------------------------------------------------------------------------------------------- */

/* How much a client wants one type: q in thousandths, and how precisely the header names the type. */
struct wish {
    int q;
    int precision; /* 0: not mentioned, 1: * / *, 2: its group, as application / *, 3: by name */
};

/* Reads the weight among the parameters params[0..n), in thousandths. An unreadable one counts as 1. */
static int weight(const char *params, size_t n) {
    const char *end = params + n;
    const char *at = params;
    int q = 0;
    int unit = 100;

    while (at < end && (at = memchr(at, ';', (size_t)(end - at)))) {
        at++;
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        if (end - at < 3 || strncasecmp(at, "q=", 2) != 0)
            continue;
        at += 2;
        if (*at != '0')
            return 1000;
        for (at++; at < end && (*at == '.' || (*at >= '0' && *at <= '9')); at++) {
            if (*at == '.')
                continue;
            q += (*at - '0') * unit;
            unit /= 10;
        }
        return q;
    }
    return 1000;
}

/* "application / *" for a type of that group. */
static bool is_group(const char *value, size_t n, const char *type) {
    size_t group = strcspn(type, "/") + 1;

    return n == group + 1 && value[group] == '*' && strncasecmp(value, type, group) == 0;
}

static void wish_for(struct wish *wish, const char *type, const char *element, size_t type_n, int q) {
    int precision = is(element, type_n, type)         ? 3
                    : is_group(element, type_n, type) ? 2
                    : is(element, type_n, "*/*")      ? 1
                                                      : 0;

    if (precision > wish->precision)
        *wish = (struct wish){.q = q, .precision = precision};
}

/* What each of n types is worth to the client. */
static void read_wishes(const char *accept, const char *const *types, struct wish *wishes, int count) {
    const char *at = accept;
    int i;

    while (*at) {
        size_t n;
        size_t type_n;
        int q;

        at += strspn(at, ", \t");
        n = strcspn(at, ",");
        type_n = type_len(at);
        q = type_n < n ? weight(at + type_n, n - type_n) : 1000;
        for (i = 0; i < count; i++)
            wish_for(&wishes[i], types[i], at, type_n, q);
        at += n;
    }
}

bool gb_media_prefers(const char *accept, const char *type, const char *other) {
    const char *const types[] = {type, other};
    struct wish wishes[2] = {{0}};

    if (accept)
        read_wishes(accept, types, wishes, 2);
    return wishes[0].precision == 3 && wishes[0].q > 0 && wishes[0].q >= wishes[1].q;
}

static int none_pleases(unsigned offered, struct gb_error *err) {
    char list[128] = "";
    int i;

    for (i = 0; i < GB_FORM_COUNT; i++) {
        if (!(offered & 1u << i))
            continue;
        if (list[0] != '\0')
            strcat(list, ", ");
        strcat(list, gb_media_type((enum gb_form)i));
    }
    return gb_error_set(err, GB_ERR_NOT_ACCEPTABLE, "what is here can be had as %s", list);
}

int gb_media_accept(const char *accept, unsigned offered, enum gb_form *ret, struct gb_error *err) {
    const char *const types[] = {GB_MEDIA_RAW, GB_MEDIA_NPY, GB_MEDIA_SAFETENSORS, GB_MEDIA_SAFETENSORS_VENDOR};
    struct wish wishes[GB_FORM_COUNT + 1] = {{0}};
    enum gb_form best = GB_FORM_RAW;
    int i;

    while (!(offered & 1u << best))
        best++;
    if (!accept || accept[strspn(accept, " \t")] == '\0') {
        *ret = best;
        return 0;
    }
    read_wishes(accept, types, wishes, GB_FORM_COUNT + 1);
    if (wishes[GB_FORM_COUNT].precision > wishes[GB_FORM_SAFETENSORS].precision)
        wishes[GB_FORM_SAFETENSORS] = wishes[GB_FORM_COUNT];
    for (i = 0; i < GB_FORM_COUNT; i++) {
        const struct wish *w = &wishes[i];
        bool better = w->q > wishes[best].q || (w->q == wishes[best].q && w->precision > wishes[best].precision);

        if ((offered & 1u << i) && w->q > 0 && better)
            best = (enum gb_form)i;
    }
    if (wishes[best].q == 0)
        return none_pleases(offered, err);
    *ret = best;
    return 0;
}
