/* The names and addresses that a certificate is for: read from options, compared, collected, and those of this machine,
 * which may take a question to the name server. A list has each name once. The maker of certificates (pair.c) and the
 * daemon's command tls call this. */
#include "tls/names.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
#define LABEL_MAX 63

void gb_tls_names_done(struct gb_tls_names *names) {
    free(names->items);
    *names = (struct gb_tls_names){0};
}

static bool same(const struct gb_tls_name *a, const struct gb_tls_name *b) {
    if (a->address_bytes != b->address_bytes)
        return false;
    return a->address_bytes > 0 ? memcmp(a->address, b->address, a->address_bytes) == 0
                                : strcasecmp(a->text, b->text) == 0;
}

static bool has(const struct gb_tls_names *names, const struct gb_tls_name *name) {
    size_t i;

    for (i = 0; names && i < names->count; i++) {
        if (same(&names->items[i], name))
            return true;
    }
    return false;
}

static int add(struct gb_tls_names *names, const struct gb_tls_name *name, struct gb_error *err) {
    struct gb_tls_name *items;

    if (has(names, name))
        return 0;
    items = realloc(names->items, (names->count + 1) * sizeof(*items));
    if (!items)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    names->items = items;
    items[names->count++] = *name;
    return 0;
}

int gb_tls_names_add_others(struct gb_tls_names *names, const struct gb_tls_names *from,
                            const struct gb_tls_names *without, struct gb_error *err) {
    size_t i;

    for (i = 0; i < from->count; i++) {
        if (!has(without, &from->items[i]) && add(names, &from->items[i], err) < 0)
            return -1;
    }
    return 0;
}

/* --- one of them -------------------------------------------------------------------------------------------------- */

static bool is_host(const char *text) {
    size_t n = strlen(text);

    if (strncmp(text, "*.", 2) == 0)
        text += 2;
    if (n == 0 || n >= GB_TLS_NAME_SIZE)
        return false;
    for (;;) {
        size_t label = strspn(text, LETTERS);

        if (label == 0 || label > LABEL_MAX || text[0] == '-' || text[label - 1] == '-')
            return false;
        if (text[label] == '\0')
            return true;
        if (text[label] != '.')
            return false;
        text += label + 1;
    }
}

static bool read_address(const char *text, struct gb_tls_name *ret) {
    if (inet_pton(AF_INET, text, ret->address) == 1)
        ret->address_bytes = 4;
    else if (inet_pton(AF_INET6, text, ret->address) == 1)
        ret->address_bytes = 16;
    else
        return false;
    return inet_ntop(ret->address_bytes == 4 ? AF_INET : AF_INET6, ret->address, ret->text, sizeof(ret->text));
}

int gb_tls_names_add_host(struct gb_tls_names *names, const char *text, struct gb_error *err) {
    struct gb_tls_name name = {.address_bytes = 0};

    if (read_address(text, &name))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--name \"%.64s\" is an address: give it with --ip", text);
    if (!is_host(text))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--name \"%.64s\" is no host name: labels of at most 63 letters, digits, - and _, "
                            "with dots between them",
                            text);
    strcpy(name.text, text);
    return add(names, &name, err);
}

int gb_tls_names_add_address(struct gb_tls_names *names, const char *text, struct gb_error *err) {
    struct gb_tls_name name = {.address_bytes = 0};

    if (!read_address(text, &name))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--ip \"%.64s\" is no address: give one such as 192.0.2.7 or 2001:db8::7", text);
    return add(names, &name, err);
}

/* --- the machine's ------------------------------------------------------------------------------------------------ */

/* What cannot stand in a certificate is left out: names that a name server or the kernel gives. */
static int add_if_host(struct gb_tls_names *names, const char *text, struct gb_error *err) {
    struct gb_tls_name name = {.address_bytes = 0};

    if (!is_host(text) || read_address(text, &name))
        return 0;
    strcpy(name.text, text);
    return add(names, &name, err);
}

static int add_own_names(struct gb_tls_names *names, struct gb_error *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME};
    char host[GB_TLS_NAME_SIZE];
    struct addrinfo *found = NULL;
    int r;

    if (gethostname(host, sizeof(host)) != 0)
        return gb_error_set(err, GB_ERR_INTERNAL, "this machine does not tell its name: give --name");
    host[sizeof(host) - 1] = '\0';
    r = add_if_host(names, host, err);
    if (r == 0 && getaddrinfo(host, NULL, &hints, &found) == 0 && found->ai_canonname)
        r = add_if_host(names, found->ai_canonname, err);
    if (found)
        freeaddrinfo(found);
    return r == 0 ? add_if_host(names, "localhost", err) : -1;
}

/* The text of an address that others may use as it stands; false for link-local addresses and other families. */
static bool text_of(const struct sockaddr *address, char *ret, size_t size) {
    const struct sockaddr_in6 *six = (const void *)address;
    const struct sockaddr_in *four = (const void *)address;

    if (address && address->sa_family == AF_INET)
        return inet_ntop(AF_INET, &four->sin_addr, ret, (socklen_t)size);
    if (!address || address->sa_family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
        return false;
    return inet_ntop(AF_INET6, &six->sin6_addr, ret, (socklen_t)size);
}

int gb_tls_names_add_machine(struct gb_tls_names *names, struct gb_error *err) {
    struct ifaddrs *all = NULL;
    const struct ifaddrs *at;
    char text[INET6_ADDRSTRLEN];
    int r = add_own_names(names, err);

    if (r == 0)
        r = gb_tls_names_add_address(names, "127.0.0.1", err);
    if (r == 0)
        r = gb_tls_names_add_address(names, "::1", err);
    if (r == 0 && getifaddrs(&all) == 0) {
        for (at = all; at && r == 0; at = at->ifa_next) {
            if ((at->ifa_flags & IFF_UP) != 0 && text_of(at->ifa_addr, text, sizeof(text)))
                r = gb_tls_names_add_address(names, text, err);
        }
        freeifaddrs(all);
    }
    return r;
}
