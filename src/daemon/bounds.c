/* What clients may take, as the options say. */
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"

static int read_networks(const struct gb_text_list *words, const char *option, struct gb_http_network **ret,
                         size_t *ret_count, struct gb_error *err) {
    struct gb_http_network *networks = calloc(words->count + 1, sizeof(*networks));
    size_t i;

    if (!networks)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    *ret = networks;
    *ret_count = words->count;
    for (i = 0; i < words->count; i++) {
        if (!gb_http_network_read(words->items[i], &networks[i]))
            return gb_error_set(
                err, GB_ERR_INVALID_ARGUMENT,
                "%s: \"%.64s\" is not permitted; permitted: an address, or a network as 192.0.2.0/24 or "
                "2001:db8::/32",
                option, words->items[i]);
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
    r = read_networks(&o->trusted_proxy, "--trusted-proxy", &trusted, &ret->trusted_count, err);
    if (r == 0)
        r = read_networks(&o->proxy_protocol, "--proxy-protocol", &proxies, &ret->proxy_count, err);
    ret->trusted = trusted;
    ret->proxies = proxies;
    return r;
}

void gb_daemon_free_bounds(struct gb_http_bounds *bounds) {
    free((void *)(uintptr_t)bounds->trusted);
    free((void *)(uintptr_t)bounds->proxies);
    *bounds = (struct gb_http_bounds){.failures = 0};
}
