#include "http/message/proxy_header.h"

#include <string.h>

#include "base/parse.h"

#define FIRST_MAX 107 /* of version 1, with CR LF */
#define SECOND_SIZE 16

static const char signature[12] = "\r\n\r\n\0\r\nQUIT\n";

/* --- version 1 ---------------------------------------------------------------------------------------------------- */

struct word {
    const char *s;
    size_t n;
};

/* Splits a line at single blanks. Returns the number of words, -1 if there are more than max or one is empty. */
static int split(const char *s, size_t n, struct word *words, int max) {
    int count = 0;
    size_t i;

    words[0] = (struct word){s, 0};
    for (i = 0; i <= n; i++) {
        if (i < n && s[i] != ' ')
            continue;
        words[count].n = (size_t)(s + i - words[count].s);
        if (words[count].n == 0 || ++count > max || (i < n && count == max))
            return -1;
        if (i < n)
            words[count].s = s + i + 1;
    }
    return count;
}

static bool is_port(const struct word *w) {
    uint64_t port;

    return gb_parse_u64(w->s, w->n, &port) == GB_PARSE_OK && port <= 65535;
}

static int read_line(const char *s, size_t n, struct gb_http_address *ret) {
    struct gb_http_address from;
    struct gb_http_address to;
    struct word words[6];
    bool four;

    if (n >= 13 && memcmp(s, "PROXY UNKNOWN", 13) == 0 && (n == 13 || s[13] == ' '))
        return 0;
    if (split(s, n, words, 6) != 6 || words[1].n != 4 || memcmp(words[1].s, "TCP", 3) != 0)
        return -1;
    four = words[1].s[3] == '4';
    if ((!four && words[1].s[3] != '6') || !gb_http_address_read(words[2].s, words[2].n, &from) ||
        !gb_http_address_read(words[3].s, words[3].n, &to) || !is_port(&words[4]) || !is_port(&words[5]) ||
        four != !memchr(words[2].s, ':', words[2].n) || four != !memchr(words[3].s, ':', words[3].n))
        return -1;
    *ret = from;
    return 0;
}

static int read_first(const char *s, size_t n, struct gb_http_address *ret) {
    const char *end = memchr(s, '\n', n < FIRST_MAX ? n : FIRST_MAX);

    if (!end)
        return n < FIRST_MAX ? 0 : -1;
    if (end == s || end[-1] != '\r' || read_line(s, (size_t)(end - s - 1), ret) < 0)
        return -1;
    return (int)(end - s + 1);
}

/* --- version 2 ---------------------------------------------------------------------------------------------------- */

static int read_second(const uint8_t *b, size_t n, struct gb_http_address *ret) {
    struct gb_http_address from = {.family = 0};
    unsigned command = b[12] & 15;
    unsigned family = b[13] >> 4;
    size_t len = (size_t)b[14] << 8 | b[15];
    size_t least = family == 1 ? 12 : family == 2 ? 36 : family == 3 ? 216 : 0;

    if (b[12] >> 4 != 2 || command > 1 || family > 3 || (b[13] & 15) > 2 || len + SECOND_SIZE > GB_PROXY_HEADER_MAX ||
        (command == 1 && len < least))
        return -1;
    if (n < len + SECOND_SIZE)
        return 0;
    if (command == 1 && (family == 1 || family == 2)) {
        from.family = family == 1 ? 4 : 6;
        memcpy(from.bytes, b + SECOND_SIZE, family == 1 ? 4 : 16);
        *ret = gb_http_address_plain(&from);
    }
    return (int)(len + SECOND_SIZE);
}

int gb_proxy_header_read(const void *bytes, size_t n, struct gb_http_address *ret) {
    static const char first[] = "PROXY ";
    size_t least = n < 6 ? n : 6;
    size_t more = n < sizeof(signature) ? n : sizeof(signature);

    if (n == 0)
        return 0;
    if (memcmp(bytes, first, least) == 0)
        return n < 6 ? 0 : read_first(bytes, n, ret);
    if (memcmp(bytes, signature, more) != 0)
        return -1;
    return n < SECOND_SIZE ? 0 : read_second(bytes, n, ret);
}
