/* --cors-origin: origins as browsers write them, since they are compared as a whole. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"

#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"
#define HOST_LETTERS "abcdefghijklmnopqrstuvwxyz" DIGITS "-_."
#define LABEL_MAX 63
#define HOST_MAX 253
#define PIECES 8 /* of an IPv6 address */

/* --- hosts -------------------------------------------------------------------------------------------------------- */

const char *gb_daemon_host_fault(const char *host, size_t n) {
    size_t at;

    if (n > HOST_MAX)
        return "a host has at most 253 characters";
    if (n > 1 && host[n - 1] == '.' && host[n - 2] != '.')
        return "leave out the dot at the end of the host";
    for (at = 0; at <= n;) {
        const char *dot = memchr(host + at, '.', n - at);
        size_t label = (dot ? (size_t)(dot - host) : n) - at;

        if (label == 0)
            return "the host has a dot too many, or none of it is there";
        if (label > LABEL_MAX)
            return "a host has at most 63 characters between two dots";
        at += label + 1;
    }
    return NULL;
}

/* A host whose last part is a number is an address to browsers, which write it as four decimal numbers. */
static const char *number_fault(const char *host, size_t n) {
    const char *last = memrchr(host, '.', n);
    char text[INET_ADDRSTRLEN];
    char again[INET_ADDRSTRLEN];
    unsigned char bytes[4];
    size_t len;

    last = last ? last + 1 : host;
    len = n - (size_t)(last - host);
    if (strspn(last, DIGITS) < len && (strncmp(last, "0x", 2) != 0 || strspn(last + 2, DIGITS "abcdef") < len - 2))
        return NULL;
    if (n < sizeof(text)) {
        memcpy(text, host, n);
        text[n] = '\0';
        if (inet_pton(AF_INET, text, bytes) == 1 && inet_ntop(AF_INET, bytes, again, sizeof(again)) &&
            strcmp(text, again) == 0)
            return NULL;
    }
    return "a host that ends in a number is an address, such as 192.0.2.1";
}

/* An IPv6 address as browsers write it: the longest zeros are left out, and no part is decimal. */
static void write_address(const unsigned char bytes[2 * PIECES], char *out, size_t size) {
    unsigned zeros_at = PIECES;
    unsigned zeros = 1; /* a single one is written */
    unsigned run = 0;
    unsigned i;
    size_t used = 0;

    for (i = 0; i < PIECES; i++) {
        run = bytes[2 * i] == 0 && bytes[2 * i + 1] == 0 ? run + 1 : 0;
        if (run > zeros) {
            zeros = run;
            zeros_at = i + 1 - run;
        }
    }
    for (i = 0; i < PIECES; i++) {
        if (i == zeros_at) {
            used += (size_t)snprintf(out + used, size - used, i == 0 ? "::" : ":");
            i += zeros - 1;
            continue;
        }
        used += (size_t)snprintf(out + used, size - used, "%x%s", bytes[2 * i] << 8 | bytes[2 * i + 1],
                                 i + 1 < PIECES ? ":" : "");
    }
}

/* text: behind the bracket. room: for what is said. */
static const char *address_fault(const char *text, size_t n, char *room, size_t size) {
    char address[INET6_ADDRSTRLEN];
    char right[INET6_ADDRSTRLEN];
    unsigned char bytes[2 * PIECES];

    if (n >= sizeof(address))
        return "within [ ] stands an IPv6 address";
    memcpy(address, text, n);
    address[n] = '\0';
    if (inet_pton(AF_INET6, address, bytes) != 1)
        return "within [ ] stands an IPv6 address";
    write_address(bytes, right, sizeof(right));
    if (strcmp(address, right) == 0)
        return NULL;
    snprintf(room, size, "browsers write this address as [%s]", right);
    return room;
}

/* --- origins ------------------------------------------------------------------------------------------------------ */

/* What stands where the host is to be, of n characters that may be of one. */
static const char *letter_fault(const char *host, size_t n) {
    if (strchr(UPPER, host[n]) != NULL && host[n] != '\0')
        return "browsers write the host in lower case";
    if ((unsigned char)host[n] >= 0x80)
        return "browsers write such a host in ASCII: xn--...";
    if (host[n] == '*')
        return "there are no patterns: name each origin";
    if (host[n] == '@')
        return "it has no user";
    return n == 0 ? "it names a host" : NULL;
}

/* What is wrong with the host at text; NULL: nothing. *ret_end: behind it. */
static const char *host_fault(const char *text, const char **ret_end, char *room, size_t size) {
    const char *fault;
    const char *close;
    size_t n;

    if (text[0] == '[') {
        close = strchr(text, ']');
        if (!close)
            return "within [ ] stands an IPv6 address";
        *ret_end = close + 1;
        return address_fault(text + 1, (size_t)(close - text) - 1, room, size);
    }
    n = strspn(text, HOST_LETTERS);
    *ret_end = text + n;
    fault = letter_fault(text, n);
    if (!fault)
        fault = gb_daemon_host_fault(text, n);
    return fault ? fault : number_fault(text, n);
}

static const char *port_fault(const char *end, bool tls) {
    size_t digits = end[0] == ':' ? strspn(end + 1, DIGITS) : 0;

    if (end[0] == '/' || end[0] == '?' || (end[0] == '#' && digits == 0))
        return "it ends with the host or the port, without a path";
    if (digits == 0 || end[1 + digits] != '\0')
        return "it is SCHEME://HOST or SCHEME://HOST:PORT";
    if (end[1] == '0' || digits > 5 || atoi(end + 1) > 65535)
        return "a port is a number from 1 to 65535, without zeros before it";
    if (strcmp(end, tls ? ":443" : ":80") == 0)
        return "browsers leave out the usual port";
    return NULL;
}

/* What is wrong with it; NULL: nothing. */
static const char *fault_of(const char *text, char *room, size_t size) {
    bool tls = strncmp(text, "https://", 8) == 0;
    const char *fault;
    const char *end;

    if (strcmp(text, "*") == 0)
        return "any page of any site could use what this daemon permits without a token: name the origins";
    if (strcmp(text, "null") == 0)
        return "any page can have the origin null, in a frame of its own: serve the page by HTTP and name its origin";
    if (!tls && strncmp(text, "http://", 7) != 0)
        return "it begins with http:// or https://, in lower case";
    fault = host_fault(text + (tls ? 8 : 7), &end, room, size);
    return fault || end[0] == '\0' ? fault : port_fault(end, tls);
}

int gb_daemon_check_origins(const struct gb_options *o, struct gb_error *err) {
    size_t i;

    for (i = 0; i < o->cors_origin.count; i++) {
        const char *text = o->cors_origin.items[i];
        char room[96];
        const char *fault = fault_of(text, room, sizeof(room));

        if (fault)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "--cors-origin: \"%.64s\" is no origin such as https://dash.example:8443: %s", text,
                                fault);
    }
    return 0;
}
