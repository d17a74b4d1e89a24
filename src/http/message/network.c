/* Addresses and networks as text, the client's address that a trusted proxy names, and the header of the PROXY
 * protocol. Pure. The daemon reads its options with it, loops the addresses of their clients. */
#include "http/message/network.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/encoding.h"
#include "base/text.h"
#include "http/http.h"

/* --- network ------------------------------------------------------------------------------------------------------ */

/* Networks of addresses, and the client address that proxies name. */

#define TEXT_MAX 64

static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

struct gb_http_address gb_http_address_plain(const struct gb_http_address *address) {
    struct gb_http_address plain = {.family = 4};

    if (address->family != 6 || memcmp(address->bytes, mapped, sizeof(mapped)) != 0)
        return *address;
    memcpy(plain.bytes, address->bytes + sizeof(mapped), 4);
    return plain;
}

bool gb_http_address_read(const char *s, size_t n, struct gb_http_address *ret) {
    struct gb_http_address address = {.family = 4};
    char text[TEXT_MAX];

    if (n == 0 || n >= sizeof(text) || memchr(s, '\0', n))
        return false;
    memcpy(text, s, n);
    text[n] = '\0';
    if (inet_pton(AF_INET, text, address.bytes) != 1) {
        address.family = 6;
        if (inet_pton(AF_INET6, text, address.bytes) != 1)
            return false;
    }
    *ret = gb_http_address_plain(&address);
    return true;
}

bool gb_http_network_read(const char *text, struct gb_http_network *ret) {
    size_t n = strcspn(text, "/");
    uint64_t bits;

    *ret = (struct gb_http_network){.bits = 0};
    if (strcmp(text, "unix") == 0)
        return true;
    if (!gb_http_address_read(text, n, &ret->address))
        return false;
    ret->bits = ret->address.family == 4 ? 32 : 128;
    if (text[n] == '\0')
        return true;
    if (gb_parse_u64(text + n + 1, strlen(text + n + 1), &bits) != GB_PARSE_OK || bits > ret->bits)
        return false;
    ret->bits = (unsigned)bits;
    return true;
}

static bool has(const struct gb_http_network *network, const struct gb_http_address *address) {
    unsigned bytes = network->bits / 8;
    unsigned rest = network->bits % 8;

    if (network->address.family != address->family || memcmp(network->address.bytes, address->bytes, bytes) != 0)
        return false;
    return rest == 0 || ((network->address.bytes[bytes] ^ address->bytes[bytes]) >> (8 - rest)) == 0;
}

bool gb_http_networks_have(const struct gb_http_network *networks, size_t count,
                           const struct gb_http_address *address) {
    struct gb_http_address plain = gb_http_address_plain(address);
    size_t i;

    for (i = 0; i < count; i++) {
        if (has(&networks[i], &plain))
            return true;
    }
    return false;
}

/* --- what proxies say --------------------------------------------------------------------------------------------- */

/* "192.0.2.7", "192.0.2.7:80", "[2001:db8::7]:80", "2001:db8::7", all of them between quotes or not. */
static bool read_node(const char *s, size_t n, struct gb_http_address *ret) {
    const char *end;

    if (n >= 2 && s[0] == '"' && s[n - 1] == '"') {
        s++;
        n -= 2;
    }
    if (n > 0 && s[0] == '[') {
        end = memchr(s, ']', n);
        return end && gb_http_address_read(s + 1, (size_t)(end - s - 1), ret);
    }
    end = memchr(s, ':', n);
    if (end && !memchr(end + 1, ':', n - (size_t)(end - s) - 1))
        n = (size_t)(end - s);
    return gb_http_address_read(s, n, ret);
}

/* The node of the parameter "for" of one element of Forwarded. */
static bool read_for(const char *s, size_t n, struct gb_http_address *ret) {
    while (n > 0) {
        const char *end = memchr(s, ';', n);
        size_t len = end ? (size_t)(end - s) : n;
        const char *at = s;
        size_t left = len;

        for (; left > 0 && (*at == ' ' || *at == '\t'); left--)
            at++;
        for (; left > 0 && (at[left - 1] == ' ' || at[left - 1] == '\t'); left--)
            ;
        if (left > 4 && strncasecmp(at, "for=", 4) == 0)
            return read_node(at + 4, left - 4, ret);
        s += end ? len + 1 : len;
        n -= end ? len + 1 : len;
    }
    return false;
}

/* Moves one element to the left. False: no element is left. */
static bool last_element(const char *s, size_t *end, size_t *ret_at, size_t *ret_len) {
    size_t to = *end;
    size_t at;

    if (to == SIZE_MAX)
        return false;
    for (at = to; at > 0 && s[at - 1] != ','; at--)
        ;
    *end = at > 0 ? at - 1 : SIZE_MAX;
    for (; at < to && (s[at] == ' ' || s[at] == '\t'); at++)
        ;
    for (; to > at && (s[to - 1] == ' ' || s[to - 1] == '\t'); to--)
        ;
    *ret_at = at;
    *ret_len = to - at;
    return true;
}

/* Reads one line of a header from its end. True: *from is no longer a trusted proxy, or cannot be followed. */
static bool follow(const struct gb_http_text *value, bool forwarded, const struct gb_http_network *trusted,
                   size_t count, struct gb_http_address *from) {
    struct gb_http_address address;
    size_t end = value->len;
    size_t at;
    size_t len;

    while (last_element(value->s, &end, &at, &len)) {
        const char *s = value->s + at;

        if (!(forwarded ? read_for(s, len, &address) : read_node(s, len, &address)))
            address = (struct gb_http_address){.family = GB_HTTP_ADDRESS_UNKNOWN};
        *from = address;
        if (!gb_http_networks_have(trusted, count, from))
            return true;
    }
    return false;
}

void gb_forwarded_resolve(struct gb_http_request *request, bool forwarded, const struct gb_http_network *trusted,
                          size_t count) {
    const char *name = forwarded ? "Forwarded" : "X-Forwarded-For";
    unsigned i;

    if (!gb_http_networks_have(trusted, count, &request->from))
        return;
    for (i = request->headers; i > 0; i--) {
        if (strcasecmp(request->header[i - 1].name.s, name) == 0 &&
            follow(&request->header[i - 1].value, forwarded, trusted, count, &request->from))
            return;
    }
}

/* --- proxy header ------------------------------------------------------------------------------------------------- */

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

/* --- address ------------------------------------------------------------------------------------------------------ */

/* Addresses of clients. */

/* inet_ntop prints, which takes longer than all else that is noted of a request. */
static void write_four(const uint8_t *bytes, char *ret) {
    int i;

    for (i = 0; i < 4; i++) {
        ret = gb_digits(ret, bytes[i]);
        *ret++ = i < 3 ? '.' : '\0';
    }
}

void gb_http_address_text(const struct gb_http_address *address, char *ret) {
    bool is_four = address->family == 4;
    const uint8_t *bytes = address->bytes;

    ret[0] = '\0';
    if (address->family == 6 && memcmp(bytes, mapped, sizeof(mapped)) == 0) {
        is_four = true; /* of a socket that listens for both */
        bytes += sizeof(mapped);
    }
    if (is_four)
        write_four(bytes, ret);
    else if (address->family == GB_HTTP_ADDRESS_UNKNOWN)
        strcpy(ret, "unknown");
    else if (address->family != 0)
        inet_ntop(AF_INET6, bytes, ret, GB_HTTP_ADDRESS_SIZE);
}

void gb_http_client_text(const struct gb_http_request *request, const struct gb_http_peer *peer, char *ret) {
    _Static_assert(GB_HTTP_ADDRESS_SIZE >= sizeof("unix:") + GB_DIGITS_MAX, "a user's number fits");

    if (request->from.family != 0) {
        gb_http_address_text(&request->from, ret);
        return;
    }
    strcpy(ret, "unix");
    if (peer)
        *gb_digits(stpcpy(ret + 4, ":"), peer->uid) = '\0';
}
