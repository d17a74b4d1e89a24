#include "http/message/conditions.h"

#include <string.h>

static const char *skip_space(const char *s) {
    return s + strspn(s, " \t");
}

/* What may stand between the quotes: any visible byte but the quote itself. */
static bool is_etagc(unsigned char c) {
    return c == 0x21 || (c >= 0x23 && c != 0x7f);
}

static int read_tag(const char **at, struct gb_etag *ret) {
    const char *s = *at;
    struct gb_etag tag = {0};

    if (s[0] == 'W' && s[1] == '/') {
        tag.weak = true;
        s += 2;
    }
    if (*s != '"')
        return -1;
    tag.s = ++s;
    while (is_etagc((unsigned char)*s))
        s++;
    if (*s != '"')
        return -1;
    tag.len = (size_t)(s - tag.s);
    *at = s + 1;
    *ret = tag;
    return 1;
}

int gb_etag_next(const char *list, const char **at, struct gb_etag *ret) {
    const char *s = skip_space(*at);
    bool first = *at == list;

    if (first && *s == '*') {
        if (*skip_space(s + 1) != '\0')
            return -1;
        *ret = (struct gb_etag){.any = true};
        *at = s + strlen(s);
        return 1;
    }
    if (!first) {
        if (*s == '\0')
            return 0;
        if (*s != ',')
            return -1;
    }
    /* Empty elements between commas are permitted by the list syntax. */
    while (*s == ',')
        s = skip_space(s + 1);
    if (*s == '\0') {
        *at = s;
        return first ? -1 : 0;
    }
    if (read_tag(&s, ret) < 0)
        return -1;
    *at = s;
    return 1;
}

int gb_etag_list_check(const char *header, const char *list, struct gb_error *err) {
    const char *at = list;
    struct gb_etag tag;
    int r;

    while ((r = gb_etag_next(list, &at, &tag)) > 0) {
    }
    if (r < 0)
        return gb_error_set(err, GB_ERR_MALFORMED_REQUEST,
                            "%s must be * or a list of entity tags in double quotes, such as \"7.3\", \"7.4\"", header);
    return 0;
}

static bool tag_is(const struct gb_etag *tag, const char *text) {
    return strlen(text) == tag->len && memcmp(text, tag->s, tag->len) == 0;
}

bool gb_etag_list_match(const char *list, bool weak, const char *const *tags, size_t count) {
    const char *at = list;
    struct gb_etag tag;
    bool found = false;
    size_t i;
    int r;

    while ((r = gb_etag_next(list, &at, &tag)) > 0) {
        if (tag.any)
            return true;
        if (tag.weak && !weak)
            continue;
        for (i = 0; i < count; i++)
            found = found || tag_is(&tag, tags[i]);
    }
    return r == 0 && found;
}

bool gb_etag_if_range(const char *value, const char *tag) {
    const char *at = skip_space(value);
    struct gb_etag given;

    return read_tag(&at, &given) > 0 && *skip_space(at) == '\0' && !given.weak && tag_is(&given, tag);
}
