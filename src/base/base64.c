#include "base/base64.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char standard[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char of_urls[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

char *gb_base64(const void *bytes, size_t n, bool url) {
    const char *alphabet = url ? of_urls : standard;
    const unsigned char *in = bytes;
    char *ret = malloc((n + 2) / 3 * 4 + 1);
    size_t at = 0;
    size_t i;
    size_t k;

    if (!ret)
        return NULL;
    for (i = 0; i < n; i += 3) {
        size_t have = n - i < 3 ? n - i : 3;
        uint32_t bits = (uint32_t)in[i] << 16;

        if (have > 1)
            bits |= (uint32_t)in[i + 1] << 8;
        if (have > 2)
            bits |= in[i + 2];
        for (k = 0; k <= have; k++)
            ret[at++] = alphabet[bits >> (18 - 6 * k) & 63];
        for (; k < 4 && !url; k++)
            ret[at++] = '=';
    }
    ret[at] = '\0';
    return ret;
}

static int digit(char c, const char *alphabet) {
    const char *at = c ? strchr(alphabet, c) : NULL;

    return at ? (int)(at - alphabet) : -1;
}

bool gb_base64_read(const char *text, size_t n, bool url, char **ret, size_t *ret_bytes) {
    uint32_t bits = 0;
    unsigned have = 0;
    size_t at = 0;
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
    for (; n > 0; n--, text++) {
        int value = digit(*text, url ? of_urls : standard);

        if (value < 0) {
            free(out);
            return false;
        }
        bits = bits << 6 | (uint32_t)value;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[at++] = (char)(bits >> have & 255);
        }
    }
    if ((bits & ((1u << have) - 1)) != 0) { /* another text of the same bytes */
        free(out);
        return false;
    }
    out[at] = '\0';
    *ret = out;
    *ret_bytes = at;
    return true;
}
