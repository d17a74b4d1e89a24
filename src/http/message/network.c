/* Networks of addresses, and the address that proxies tell of. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"
#include "http/http.h"
#include "http/message/network.h"

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

/* Goes one element to the left. False: none. */
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
