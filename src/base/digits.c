#include "base/digits.h"

#include <string.h>

char *gb_digits(char *at, uint64_t value) {
    char text[GB_DIGITS_MAX];
    unsigned n = 0;

    do {
        text[GB_DIGITS_MAX - ++n] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    memcpy(at, text + GB_DIGITS_MAX - n, n);
    return at + n;
}

char *gb_digits_padded(char *at, uint64_t value, unsigned width) {
    unsigned i;

    for (i = width; i > 0; i--, value /= 10)
        at[i - 1] = (char)('0' + value % 10);
    return at + width;
}

char *gb_digits_hex(char *at, uint64_t value, unsigned width) {
    unsigned i;

    for (i = width; i > 0; i--, value >>= 4)
        at[i - 1] = "0123456789abcdef"[value & 15];
    return at + width;
}
