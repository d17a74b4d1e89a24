#include "model/token.h"

#include <string.h>

#include "model/word.h"

static const char *const scope_names[GB_SCOPE_COUNT] = {"verify",    "read",  "write", "map",
                                                        "map-write", "admin", "fleet"};

const char *gb_scope_name(enum gb_scope scope) {
    return (unsigned)scope < GB_SCOPE_COUNT ? scope_names[scope] : "unknown";
}

int gb_scope_parse(const char *name, size_t len, enum gb_scope *ret_scope, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("scope", scope_names, GB_SCOPE_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret_scope = (enum gb_scope)index;
    return 0;
}

int gb_scopes_parse(const char *text, size_t len, unsigned *ret_scopes, struct gb_error *err) {
    const char *end = text + len;
    unsigned scopes = 0;

    for (;;) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        enum gb_scope scope;

        if (gb_scope_parse(text, (size_t)((comma ? comma : end) - text), &scope, err) < 0)
            return -1;
        scopes |= 1u << scope;
        if (!comma)
            break;
        text = comma + 1;
    }
    *ret_scopes = scopes;
    return 0;
}

char *gb_scopes_text(unsigned scopes, char *out) {
    char *at = out;
    int i;

    *at = '\0';
    for (i = 0; i < GB_SCOPE_COUNT; i++) {
        if (!(scopes & 1u << i))
            continue;
        if (at > out)
            *at++ = ',';
        at = stpcpy(at, scope_names[i]);
    }
    return out;
}

bool gb_scopes_include(unsigned scopes, enum gb_scope scope) {
    static const unsigned by[GB_SCOPE_COUNT] = {
        [GB_SCOPE_VERIFY] = 1u << GB_SCOPE_VERIFY | 1u << GB_SCOPE_READ | 1u << GB_SCOPE_WRITE,
        [GB_SCOPE_READ] = 1u << GB_SCOPE_READ | 1u << GB_SCOPE_WRITE,
        [GB_SCOPE_WRITE] = 1u << GB_SCOPE_WRITE,
        [GB_SCOPE_MAP] = 1u << GB_SCOPE_MAP | 1u << GB_SCOPE_MAP_WRITE,
        [GB_SCOPE_MAP_WRITE] = 1u << GB_SCOPE_MAP_WRITE,
        [GB_SCOPE_FLEET] = 1u << GB_SCOPE_FLEET,
    };

    return (scopes & (by[scope] | 1u << GB_SCOPE_ADMIN)) != 0;
}
