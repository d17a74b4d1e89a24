/* What clients may take and be called, as the options say. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"

#define HOST_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

/* The network with no bit behind its prefix: 10.0.0.1/8 would say one address and mean millions. */
static struct gb_http_address base_of(const struct gb_http_network *network) {
    struct gb_http_address base = network->address;
    size_t bytes = base.family == 4 ? 4 : base.family == 6 ? 16 : 0;
    size_t i;

    for (i = network->bits / 8; i < bytes; i++)
        base.bytes[i] &= i == network->bits / 8 ? (unsigned char)(0xff00u >> network->bits % 8) : 0;
    return base;
}

static int read_network(const char *text, const char *option, bool unix_too, struct gb_http_network *ret,
                        struct gb_error *err) {
    char right[INET6_ADDRSTRLEN] = "";
    struct gb_http_address base;

    if (!gb_http_network_read(text, ret))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "%s: \"%.64s\" is not permitted; permitted: an address, or a network as 192.0.2.0/24 or "
                            "2001:db8::/32%s",
                            option, text, unix_too ? ", or unix for the UNIX socket" : "");
    base = base_of(ret);
    if (memcmp(base.bytes, ret->address.bytes, sizeof base.bytes) == 0)
        return 0;
    inet_ntop(base.family == 4 ? AF_INET : AF_INET6, base.bytes, right, sizeof right);
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT,
        "%s: \"%.64s\" has bits behind its prefix: write %s/%u for the network, or %.*s for the address", option, text,
        right, ret->bits, (int)strcspn(text, "/"), text);
}

static int read_networks(const struct gb_text_list *words, const char *option, bool unix_too,
                         struct gb_http_network **ret, size_t *ret_count, struct gb_error *err) {
    struct gb_http_network *networks = calloc(words->count + 1, sizeof(*networks));
    size_t i;

    if (!networks)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    *ret = networks;
    *ret_count = words->count;
    for (i = 0; i < words->count; i++) {
        if (read_network(words->items[i], option, unix_too, &networks[i], err) != 0)
            return -1;
    }
    return 0;
}

/* Host is compared with a name as a whole, without its port. */
int gb_daemon_check_host_names(const struct gb_options *o, struct gb_error *err) {
    size_t i;

    for (i = 0; i < o->host_name.count; i++) {
        const char *text = o->host_name.items[i];
        const char *host = strstr(text, "://") ? strstr(text, "://") + 3 : text;
        size_t n = strspn(host, HOST_LETTERS);
        const char *fault = host == text && text[n] == '\0' ? gb_daemon_host_fault(text, n) : NULL;
        unsigned char address[16];

        if (fault != NULL)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--host-name: \"%.64s\" is no host name: %s", text,
                                fault);
        if ((host == text && text[n] == '\0') || inet_pton(AF_INET6, text, address) == 1)
            continue;
        if (n > 0 && (host[n] == ':' || host[n] == '/' || host[n] == '\0'))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "--host-name: \"%.64s\" is no host name: write %.*s, without scheme, port and path",
                                text, (int)n, host);
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--host-name: \"%.64s\" is no host name, such as gpu1.lab: there are no patterns", text);
    }
    return 0;
}

int gb_daemon_read_bounds(const struct gb_options *o, struct gb_http_bounds *ret, struct gb_error *err) {
    struct gb_http_network *trusted = NULL;
    struct gb_http_network *proxies = NULL;
    int r;

    *ret = (struct gb_http_bounds){
        .address = {.requests_s = o->rate_requests,
                    .requests_burst = o->burst_requests,
                    .bytes_s = o->rate_bytes,
                    .bytes_burst = o->burst_bytes,
                    .uploads = (unsigned)o->max_uploads_per_client,
                    .waits = (unsigned)o->max_waits_per_client,
                    .listeners = (unsigned)o->max_listeners_per_client},
        .token = {.requests_s = o->token_rate_requests,
                  .requests_burst = o->token_burst_requests,
                  .bytes_s = o->token_rate_bytes,
                  .bytes_burst = o->token_burst_bytes,
                  .uploads = (unsigned)o->max_uploads_per_token,
                  .waits = (unsigned)o->max_waits_per_token,
                  .listeners = (unsigned)o->max_listeners_per_token},
        .local = o->bound_local,
        .failures = (unsigned)o->auth_failures,
        .handshakes_s = o->rate_handshakes,
        .forwarded = strcmp(o->forwarded_header, "forwarded") == 0,
    };
    r = read_networks(&o->trusted_proxy, "--trusted-proxy", true, &trusted, &ret->trusted_count, err);
    if (r == 0)
        r = read_networks(&o->proxy_protocol, "--proxy-protocol", false, &proxies, &ret->proxy_count, err);
    ret->trusted = trusted;
    ret->proxies = proxies;
    return r;
}

void gb_daemon_free_bounds(struct gb_http_bounds *bounds) {
    free((void *)(uintptr_t)bounds->trusted);
    free((void *)(uintptr_t)bounds->proxies);
    *bounds = (struct gb_http_bounds){.failures = 0};
}
