/* Objects of a file of tokens, in a list or one after another. They are parsed one by one, because the parser does not
 * tell where an object began. */
#include <jansson.h>
#include <string.h>

#include "daemon/tokens_file.h"

struct scan {
    const char *at;
    size_t left;
    unsigned line;
    bool listed; /* within [ ] */
};

static void skip(struct scan *s, size_t n) {
    for (; n > 0; n--, s->at++, s->left--)
        s->line += *s->at == '\n';
}

static void skip_blanks(struct scan *s) {
    while (s->left > 0 && strchr(" \t\r\n", *s->at) && *s->at != '\0')
        skip(s, 1);
}

static int read_object(json_t *object, struct gb_token_entry *ret, struct gb_error *err) {
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value) {
        int key = gb_token_key_find(name, strlen(name), err);

        if (key < 0)
            return -1;
        if (json_is_null(value))
            continue;
        if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s must be a string", name);
        ret->value[key] = json_string_value(value);
    }
    return 0;
}

static int take_object(struct scan *s, gb_token_entry_fn *visit, void *arg, struct gb_error *err) {
    struct gb_token_entry entry = {{NULL}};
    json_error_t why; /* its text repeats what it did not understand, which may be a secret */
    json_t *object = json_loadb(s->at, s->left, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &why);
    int r;

    if (!object) {
        s->line += why.line > 0 ? (unsigned)why.line - 1 : 0;
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "this is not JSON, or an object has a key twice");
    }
    r = read_object(object, &entry, err);
    if (r == 0)
        r = visit(arg, s->line, &entry, err);
    json_decref(object);
    if (r == 0)
        skip(s, (size_t)why.position);
    return r;
}

/* 1: an object follows; 0: the end; -1. */
static int next(struct scan *s, bool first, struct gb_error *err) {
    skip_blanks(s);
    if (first && s->left > 0 && *s->at == '[') {
        s->listed = true;
        skip(s, 1);
        skip_blanks(s);
    } else if (!first && s->listed && s->left > 0 && *s->at == ',') {
        skip(s, 1);
        skip_blanks(s);
        if (s->left > 0 && *s->at == ']')
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "an object must follow the comma");
    } else if (!first && s->listed && s->left > 0 && *s->at == '{') {
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a comma must stand before this object");
    }
    if (s->listed && s->left > 0 && *s->at == ']') {
        skip(s, 1);
        skip_blanks(s);
        s->listed = false;
        return s->left == 0 ? 0 : gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "nothing may follow the list");
    }
    if (s->left == 0)
        return s->listed ? gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the list has no end") : 0;
    return *s->at == '{' ? 1 : gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a token must be an object");
}

int gb_tokens_file_json(const char *text, size_t len, gb_token_entry_fn *visit, void *arg, unsigned *ret_line,
                        struct gb_error *err) {
    struct scan s = {.at = text, .left = len, .line = 1};
    bool first = true;
    int r;

    while ((r = next(&s, first, err)) > 0 && (r = take_object(&s, visit, arg, err)) == 0)
        first = false;
    *ret_line = s.line;
    return r;
}
