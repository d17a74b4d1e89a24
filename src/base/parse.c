#include "base/parse.h"

#include <string.h>

enum gb_parse gb_parse_u64(const char *text, size_t len, uint64_t *ret_value) {
    uint64_t value = 0;
    size_t i;

    if (len == 0)
        return GB_PARSE_MALFORMED;
    if (text[0] == '-' && len > 1 && text[1] >= '0' && text[1] <= '9')
        return GB_PARSE_NEGATIVE;
    for (i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return GB_PARSE_MALFORMED;
    }
    for (i = 0; i < len; i++) {
        if (!gb_mul_u64(value, 10, &value) || !gb_add_u64(value, (uint64_t)(text[i] - '0'), &value))
            return GB_PARSE_OVERFLOW;
    }
    *ret_value = value;
    return GB_PARSE_OK;
}

enum gb_parse gb_parse_size(const char *text, size_t len, uint64_t *ret_bytes) {
    static const char suffixes[] = "KMGT";
    size_t digits = 0;
    uint64_t value;
    enum gb_parse r;
    const char *at;
    unsigned shift;

    while (digits < len && ((text[digits] >= '0' && text[digits] <= '9') || (digits == 0 && text[0] == '-')))
        digits++;
    r = gb_parse_u64(text, digits, &value);
    if (r != GB_PARSE_OK)
        return r;
    if (digits < len) {
        at = memchr(suffixes, text[digits], sizeof(suffixes) - 1);
        if (!at || (len != digits + 1 && !(len == digits + 3 && memcmp(text + digits + 1, "iB", 2) == 0)))
            return GB_PARSE_MALFORMED;
        shift = (unsigned)(at - suffixes + 1) * 10;
        if (!gb_mul_u64(value, 1ULL << shift, &value))
            return GB_PARSE_OVERFLOW;
    }
    *ret_bytes = value;
    return GB_PARSE_OK;
}

enum gb_parse gb_parse_bool(const char *text, size_t len, bool *ret_value) {
    static const char *const words[2][5] = {{"false", "0", "no", "off", NULL}, {"true", "1", "yes", "on", ""}};
    int side;
    int i;

    for (side = 0; side < 2; side++) {
        for (i = 0; i < 5; i++) {
            const char *w = words[side][i];

            if (w && strlen(w) == len && memcmp(w, text, len) == 0) {
                *ret_value = side == 1;
                return GB_PARSE_OK;
            }
        }
    }
    return GB_PARSE_MALFORMED;
}

bool gb_mul_u64(uint64_t a, uint64_t b, uint64_t *ret) {
    return !__builtin_mul_overflow(a, b, ret);
}

bool gb_add_u64(uint64_t a, uint64_t b, uint64_t *ret) {
    return !__builtin_add_overflow(a, b, ret);
}
