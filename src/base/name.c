#include "base/name.h"

#include <string.h>

static bool is_alnum(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

int gb_name_parse(const char *what, const char *text, size_t len, struct gb_name *ret_name, struct gb_error *err) {
    size_t i;

    if (len == 0)
        return gb_error_set(err, GB_ERR_INVALID_NAME, "the %s is empty; it needs 1 to %d characters", what,
                            GB_NAME_MAX);
    if (len > GB_NAME_MAX)
        return gb_error_set(err, GB_ERR_INVALID_NAME, "the %s has %zu characters; at most %d are permitted", what, len,
                            GB_NAME_MAX);
    for (i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (is_alnum((char)c) || (i > 0 && (c == '.' || c == '_' || c == '-')))
            continue;
        return gb_error_set(err, GB_ERR_INVALID_NAME,
                            "the %s has the byte 0x%02x at position %zu; permitted are letters, digits and, after the "
                            "first character, '.', '_' and '-'",
                            what, c, i + 1);
    }
    memcpy(ret_name->s, text, len);
    ret_name->s[len] = '\0';
    return 0;
}

bool gb_name_equal(const struct gb_name *a, const struct gb_name *b) {
    return strcmp(a->s, b->s) == 0;
}
