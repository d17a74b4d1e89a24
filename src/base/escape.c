#include "base/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/encoding.h"

size_t gb_utf8_len(const char *s) {
    const unsigned char *at = (const unsigned char *)s;
    size_t n = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    uint32_t code = at[0] & (0x7fu >> n);
    size_t i;

    if (n == 1)
        return 1;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    for (i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    if ((n == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
        (n == 4 && (code < 0x10000 || code > 0x10ffff)))
        return 0;
    return n;
}

static bool is_control(const unsigned char *at) {
    return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0);
}

size_t gb_escape(char *out, size_t size, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;

    while (*at) {
        size_t n = gb_utf8_len((const char *)at);
        bool raw = n > 0 && !is_control(at);
        size_t i;

        n = n > 0 ? n : 1;
        if (used + (raw ? n : 4 * n) >= size)
            break;
        for (i = 0; i < n; i++) {
            if (raw) {
                out[used++] = (char)at[i];
                continue;
            }
            out[used++] = '\\';
            out[used++] = 'x';
            gb_digits_hex(out + used, at[i], 2);
            used += 2;
        }
        at += n;
    }
    out[used] = '\0';
    return used;
}
