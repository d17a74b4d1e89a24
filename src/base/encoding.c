/* Decimal and hexadecimal digits, and base64. Reading accepts exactly what the functions write, or all of a text is
 * refused. All folders call it, and libgpubuf too. */
#include "base/encoding.h"

#include <stdlib.h>
#include <string.h>

static const char hex[] = "0123456789abcdef";

/* --- digits ------------------------------------------------------------------------------------------------------- */

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
        at[i - 1] = hex[value & 15];
    return at + width;
}

/* --- hexadecimal -------------------------------------------------------------------------------------------------- */

int gb_hex_digit(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

bool gb_hex_lower(const char *text, size_t n) {
    return strspn(text, hex) == n && text[n] == '\0';
}

bool gb_hex_u64(const char *text, size_t n, uint64_t *ret) {
    uint64_t value = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        int digit = gb_hex_digit(text[i]);

        if (digit < 0)
            return false;
        value = value << 4 | (uint64_t)digit;
    }
    *ret = value;
    return true;
}

bool gb_hex_u32(const char *text, size_t n, uint32_t *ret) {
    uint64_t value;

    if (n != GB_HEX_U32 || !gb_hex_u64(text, n, &value))
        return false;
    *ret = (uint32_t)value;
    return true;
}

void gb_hex(const void *bytes, size_t n, char *ret) {
    const unsigned char *in = bytes;
    size_t i;

    for (i = 0; i < n; i++)
        ret = gb_digits_hex(ret, in[i], 2);
    *ret = '\0';
}

bool gb_hex_read(const char *text, void *ret, size_t n) {
    unsigned char *out = ret;
    uint64_t byte;
    size_t i;

    if (strlen(text) != 2 * n)
        return false;
    for (i = 0; i < n; i++) {
        if (!gb_hex_u64(text + 2 * i, 2, &byte))
            return false;
        out[i] = (unsigned char)byte;
    }
    return true;
}

void gb_uuid_text(const void *bytes, char ret[GB_UUID_SIZE]) {
    const unsigned char *in = bytes;
    unsigned i;

    for (i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *ret++ = '-';
        ret = gb_digits_hex(ret, in[i], 2);
    }
    *ret = '\0';
}

/* --- base64 ------------------------------------------------------------------------------------------------------- */

static const char standard[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char of_urls[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void gb_base64_write(const void *bytes, size_t n, bool url, char *ret) {
    const char *alphabet = url ? of_urls : standard;
    const unsigned char *in = bytes;
    size_t i;
    size_t k;

    for (i = 0; i < n; i += 3) {
        size_t have = n - i < 3 ? n - i : 3;
        uint32_t bits = (uint32_t)in[i] << 16;

        if (have > 1)
            bits |= (uint32_t)in[i + 1] << 8;
        if (have > 2)
            bits |= in[i + 2];
        for (k = 0; k <= have; k++)
            *ret++ = alphabet[bits >> (18 - 6 * k) & 63];
        for (; k < 4 && !url; k++)
            *ret++ = '=';
    }
    *ret = '\0';
}

char *gb_base64(const void *bytes, size_t n, bool url) {
    char *ret = malloc(GB_BASE64_SIZE(n));

    if (ret)
        gb_base64_write(bytes, n, url, ret);
    return ret;
}

/* Reads `digits` characters of the alphabet, digits * 3 / 4 bytes. The remaining bits must be zero, so that the same
 * bytes have one text. */
static bool decode(const char *text, size_t digits, const char *alphabet, unsigned char *ret) {
    uint32_t bits = 0;
    unsigned have = 0;
    size_t i;

    for (i = 0; i < digits; i++) {
        const char *at = text[i] ? strchr(alphabet, text[i]) : NULL;

        if (!at)
            return false;
        bits = bits << 6 | (uint32_t)(at - alphabet);
        have += 6;
        if (have >= 8) {
            have -= 8;
            *ret++ = (unsigned char)(bits >> have);
        }
    }
    return (bits & ((1u << have) - 1)) == 0;
}

bool gb_base64_read(const char *text, size_t n, bool url, char **ret, size_t *ret_bytes) {
    char *out;

    if (!url && n % 4 != 0)
        return false;
    if (!url && n > 0 && text[n - 1] == '=')
        n -= text[n - 2] == '=' ? 2 : 1;
    if (n % 4 == 1)
        return false;
    out = malloc(n / 4 * 3 + 3);
    if (!out)
        return false;
    if (!decode(text, n, url ? of_urls : standard, (unsigned char *)out)) {
        free(out);
        return false;
    }
    *ret_bytes = n * 3 / 4;
    out[*ret_bytes] = '\0';
    *ret = out;
    return true;
}

bool gb_base64_exact(const char *text, size_t n, void *ret, size_t bytes) {
    size_t digits = (bytes * 8 + 5) / 6;
    size_t i;

    if (n != digits && n != GB_BASE64_SIZE(bytes) - 1)
        return false;
    for (i = digits; i < n; i++) {
        if (text[i] != '=')
            return false;
    }
    return decode(text, digits, standard, ret);
}
