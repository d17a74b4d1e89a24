/* Beginnings of connections from proxies: the PROXY protocol. A second reading takes and refuses the same, and finds
 * the same address. What comes in pieces is neither taken nor refused before the piece that decides. */
#include <arpa/inet.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "fuzz.h"
#include "http/message/network.h"

#define LINE_MAX 107
#define UNTOUCHED 77 /* the family of an address that was not set */
#define WORD 64

const unsigned gb_fuzz_mutants = 2000;
const char *const gb_fuzz_seeds[] = {
    "PROXY TCP4 192.0.2.7 192.0.2.99 4711 80\r\nGET / HTTP/1.1\r\n",
    "PROXY TCP6 2001:db8::7 2001:db8::99 0 65535\r\n",
    "PROXY TCP6 ::ffff:192.0.2.7 ::ffff:192.0.2.8 65536 65535\r\n",
    "PROXY UNKNOWN ffff::1 1.2.3.4 x\r\n",
    "PROXY UNKNOWN\r\n",
    "PROXY TCP4 192.0.2.7 192.0.2.99 4711 80\n",
    "PROXY TCP4  192.0.2.7 192.0.2.99 4711 80 \r\n",
    NULL,
};
static const uint8_t signature[] = {13, 10, 13, 10, 0, 13, 10, 'Q', 'U', 'I', 'T', 10};

/* --- the second reading ------------------------------------------------------------------------------------------- */

static bool read_word(int family, const char *word, struct gb_http_address *ret) {
    *ret = (struct gb_http_address){.family = family == AF_INET ? 4 : 6};
    return inet_pton(family, word, ret->bytes) == 1;
}

static int second_line(const char *line, struct gb_http_address *ret) {
    static regex_t form, unknown;
    static bool ready;
    char from[WORD], to[WORD];
    struct gb_http_address a, b;
    unsigned long port[2];
    char family;

    if (!ready)
        FUZZ_ASSERT(regcomp(&unknown, "^PROXY UNKNOWN($| )", REG_EXTENDED | REG_NOSUB) == 0 &&
                    regcomp(&form,
                            "^PROXY TCP[46] [0-9a-fA-F:.]{1,46} [0-9a-fA-F:.]{1,46} [0-9]{1,60} "
                            "[0-9]{1,60}$",
                            REG_EXTENDED | REG_NOSUB) == 0);
    ready = true;
    if (regexec(&unknown, line, 0, NULL, 0) == 0)
        return 0;
    if (regexec(&form, line, 0, NULL, 0) != 0)
        return -1;
    FUZZ_ASSERT(sscanf(line, "PROXY TCP%c %46s %46s %lu %lu", &family, from, to, &port[0], &port[1]) == 5);
    if (!read_word(family == '4' ? AF_INET : AF_INET6, from, &a) ||
        !read_word(family == '4' ? AF_INET : AF_INET6, to, &b) || port[0] > 65535 || port[1] > 65535)
        return -1;
    *ret = gb_http_address_plain(&a);
    return 0;
}

static int second_first(const char *s, size_t n, struct gb_http_address *ret) {
    char line[LINE_MAX + 1];
    size_t i;

    for (i = 0; i < n && i < LINE_MAX && s[i] != '\n'; i++)
        ;
    if (i == LINE_MAX)
        return -1;
    if (i == n)
        return 0;
    if (s[i - 1] != '\r')
        return -1;
    memcpy(line, s, i - 1);
    line[i - 1] = '\0';
    /* A line ends at a NUL for these functions alone; in a line of UNKNOWN all is permitted. */
    if (strlen(line) != i - 1 && strncmp(line, "PROXY UNKNOWN ", 14) != 0)
        return -1;
    return second_line(line, ret) < 0 ? -1 : (int)i + 1;
}

static int second_binary(const uint8_t *b, size_t n, struct gb_http_address *ret) {
    static const size_t least[] = {0, 12, 36, 216};
    size_t len;

    if (n < 16)
        return 0;
    len = b[14] * 256u + b[15];
    if ((b[12] != 0x20 && b[12] != 0x21) || b[13] >= 0x40 || b[13] % 16 > 2 || 16 + len > GB_PROXY_HEADER_MAX)
        return -1;
    if (b[12] == 0x21 && len < least[b[13] / 16])
        return -1;
    if (n < 16 + len)
        return 0;
    if (b[12] == 0x21 && (b[13] / 16 == 1 || b[13] / 16 == 2)) {
        struct gb_http_address a = {.family = b[13] / 16 == 1 ? 4 : 6};

        memcpy(a.bytes, b + 16, a.family == 4 ? 4 : 16);
        *ret = gb_http_address_plain(&a);
    }
    return (int)(16 + len);
}

static int second(const uint8_t *data, size_t n, struct gb_http_address *ret) {
    if (n == 0)
        return 0;
    if (data[0] == 'P')
        return memcmp(data, "PROXY ", n < 6 ? n : 6) != 0 ? -1 : n < 6 ? 0 : second_first((const char *)data, n, ret);
    return memcmp(data, signature, n < 12 ? n : 12) != 0 ? -1 : second_binary(data, n, ret);
}

/* --- the target --------------------------------------------------------------------------------------------------- */

/* The first bytes in a block of their own: the sanitizer sees what is read behind them. */
static int read_first_of(const uint8_t *data, size_t n, struct gb_http_address *ret) {
    uint8_t *block = malloc(n > 0 ? n : 1);
    int used;

    FUZZ_ASSERT(block);
    memcpy(block, data, n);
    *ret = (struct gb_http_address){.family = UNTOUCHED};
    used = gb_proxy_header_read(block, n, ret);
    free(block);
    return used;
}

static bool same(const struct gb_http_address *a, const struct gb_http_address *b) {
    return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

static void check_pieces(const uint8_t *data, size_t n, int whole, const struct gb_http_address *address) {
    size_t most = n < 300 ? n : 300;
    int before = 0;
    size_t i;

    for (i = 0; i <= most; i++) {
        struct gb_http_address part;
        int used = read_first_of(data, i, &part);

        FUZZ_ASSERT(before == 0 || used == before); /* nothing that follows changes what was decided */
        FUZZ_ASSERT(used <= (int)i && (used == 0 || used == whole));
        FUZZ_ASSERT(used > 0 ? same(&part, address) : part.family == UNTOUCHED);
        before = used;
    }
}

/* As text the address is the same client. */
static void check_text(const struct gb_http_address *address) {
    char text[GB_HTTP_ADDRESS_SIZE];
    char line[LINE_MAX + GB_HTTP_ADDRESS_SIZE];
    struct gb_http_address again;
    int n;

    gb_http_address_text(address, text);
    n = snprintf(line, sizeof(line), "PROXY TCP%c %s %s 1 2\r\n", address->family == 4 ? '4' : '6', text, text);
    FUZZ_ASSERT(n <= LINE_MAX && read_first_of((const uint8_t *)line, (size_t)n, &again) == n && same(&again, address));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gb_http_address address, wanted = {.family = UNTOUCHED};
    int used = read_first_of(data, size, &address);

    FUZZ_ASSERT(used >= -1 && used <= GB_PROXY_HEADER_MAX && used <= (int)size);
    FUZZ_ASSERT(used == second(data, size, &wanted) && same(&address, &wanted));
    check_pieces(data, size, used, &address);
    if (address.family != UNTOUCHED)
        check_text(&address);
    return 0;
}
