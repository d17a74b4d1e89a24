#include "http/message/fields.h"

#include <string.h>

#define DIGITS_MAX 15

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

static bool is_alpha(char c) {
    return is_lower(c) || (c >= 'A' && c <= 'Z');
}

/* Each of these moves *at behind what it read; false: it is something else, or malformed. */

static bool take(const char **at, char c) {
    if (**at != c)
        return false;
    (*at)++;
    return true;
}

static bool take_key(const char **at, const char **ret, size_t *ret_n) {
    const char *s = *at;

    if (!is_lower(*s) && *s != '*')
        return false;
    while (is_lower(*s) || is_digit(*s) || (*s && strchr("_-.*", *s)))
        s++;
    *ret = *at;
    *ret_n = (size_t)(s - *at);
    *at = s;
    return true;
}

static bool take_number(const char **at, struct gb_field *ret) {
    bool minus = take(at, '-');
    const char *first = *at;
    const char *point;
    int64_t value = 0;

    for (; is_digit(**at) && *at - first <= DIGITS_MAX; (*at)++)
        value = value * 10 + (**at - '0');
    if (*at == first || *at - first > DIGITS_MAX)
        return false;
    ret->type = GB_FIELD_INTEGER;
    ret->integer = minus ? -value : value;
    if (**at != '.')
        return true;
    ret->type = GB_FIELD_OTHER;
    if (*at - first > DIGITS_MAX - 3)
        return false;
    point = ++*at;
    while (is_digit(**at) && *at - point <= 3)
        (*at)++;
    return *at > point && *at - point <= 3;
}

static bool take_string(const char **at, struct gb_field *ret) {
    ret->type = GB_FIELD_STRING;
    ret->text = *at + 1;
    for ((*at)++; **at && **at != '"'; (*at)++) {
        if (**at == '\\' && (*++*at != '"' && **at != '\\'))
            return false;
        if (**at < 0x20 || **at > 0x7e)
            return false;
    }
    ret->text_n = (size_t)(*at - ret->text);
    return take(at, '"');
}

static bool take_boolean(const char **at, struct gb_field *ret) {
    ret->type = GB_FIELD_BOOLEAN;
    ret->integer = *++*at == '1';
    return take(at, '0') || take(at, '1');
}

static bool take_token(const char **at) {
    while (is_alpha(**at) || is_digit(**at) || (**at && strchr("!#$%&'*+-.^_`|~:/", **at)))
        (*at)++;
    return true;
}

static bool take_bytes(const char **at, struct gb_field *ret) {
    ret->type = GB_FIELD_BYTES;
    ret->text = ++*at;
    while (is_alpha(**at) || is_digit(**at) || (**at && strchr("+/=", **at)))
        (*at)++;
    ret->text_n = (size_t)(*at - ret->text);
    return take(at, ':');
}

static bool take_bare(const char **at, struct gb_field *ret) {
    char c = **at;

    ret->type = GB_FIELD_OTHER;
    if (is_digit(c) || c == '-')
        return take_number(at, ret);
    if (c == '"')
        return take_string(at, ret);
    if (c == ':')
        return take_bytes(at, ret);
    if (is_alpha(c) || c == '*')
        return take_token(at);
    if (c == '?')
        return take_boolean(at, ret);
    if (c == '@') {
        bool whole = (++*at, take_number(at, ret)) && ret->type == GB_FIELD_INTEGER;

        ret->type = GB_FIELD_OTHER;
        return whole;
    }
    if (c == '%' && (*at)[1] == '"') {
        bool whole = ((*at)++, take_string(at, ret));

        ret->type = GB_FIELD_OTHER;
        return whole;
    }
    return false;
}

static void skip_spaces(const char **at) {
    while (**at == ' ')
        (*at)++;
}

static bool take_params(const char **at) {
    struct gb_field value;
    const char *key;
    size_t n;

    while (take(at, ';')) {
        skip_spaces(at);
        if (!take_key(at, &key, &n) || (take(at, '=') && !take_bare(at, &value)))
            return false;
    }
    return true;
}

static bool take_list(const char **at) {
    struct gb_field item;

    for ((*at)++;;) {
        skip_spaces(at);
        if (take(at, ')'))
            return true;
        if (!take_bare(at, &item) || !take_params(at) || (**at != ' ' && **at != ')'))
            return false;
    }
}

static bool take_member(const char **at, struct gb_field *ret) {
    if (!take_key(at, &ret->key, &ret->key_n))
        return false;
    ret->type = GB_FIELD_BOOLEAN; /* without a value: true */
    ret->integer = 1;
    if (take(at, '=')) {
        ret->type = GB_FIELD_OTHER;
        if (**at == '(' ? !take_list(at) : !take_bare(at, ret))
            return false;
    }
    return take_params(at);
}

int gb_field_next(const char **at, struct gb_field *ret) {
    skip_spaces(at);
    if (**at == '\0')
        return 0;
    if (!take_member(at, ret))
        return -1;
    *at += strspn(*at, " \t");
    if (**at == '\0')
        return 1;
    if (!take(at, ','))
        return -1;
    *at += strspn(*at, " \t");
    return **at ? 1 : -1; /* a comma that nothing follows */
}

int gb_field_item(const char *line, struct gb_field *ret) {
    skip_spaces(&line);
    if (!take_bare(&line, ret) || !take_params(&line))
        return -1;
    skip_spaces(&line);
    return *line == '\0' ? 0 : -1;
}
