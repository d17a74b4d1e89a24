/* Addresses of clients. */
#include <arpa/inet.h>
#include <string.h>

#include "base/encoding.h"
#include "http/http.h"

static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

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
