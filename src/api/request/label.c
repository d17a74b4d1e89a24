#include "api/request/label.h"

#include <jansson.h>
#include <string.h>

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
