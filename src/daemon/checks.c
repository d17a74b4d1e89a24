/* Each option whose text means more than its type says: users, hosts, networks, origins, pools, marks. A check writes
 * what it reads into the daemon and opens nothing. */
#include "daemon/checks.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "daemon/daemon.h"
#include "daemon/fleet.h"

/* --- users and groups --------------------------------------------------------------------------------------------- */

/* By number: names would be those of this machine, and the peers may be in containers. */
int gb_daemon_read_ids(const struct gb_text_list *words, const char *option, struct gb_id_list *ret,
                       struct gb_error *err) {
    size_t i;

    *ret = (struct gb_id_list){.any = false};
    for (i = 0; i < words->count; i++) {
        const char *word = words->items[i];
        uint64_t id;

        if (strcmp(word, "any") == 0) {
            ret->any = true;
            continue;
        }
        /* The last number stands for "none" in the system's own calls. */
        if (gb_parse_u64(word, strlen(word), &id) != GB_PARSE_OK || id >= UINT32_MAX)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "%s: \"%.64s\" is not permitted; permitted: numbers from 0 to 4294967294, or any",
                                option, word);
        if (ret->count == GB_MAP_IDS_MAX)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s: more than %d numbers", option, GB_MAP_IDS_MAX);
        ret->id[ret->count++] = (uint32_t)id;
    }
    return 0;
}

/* --- hosts -------------------------------------------------------------------------------------------------------- */

#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"
#define HOST_LETTERS "abcdefghijklmnopqrstuvwxyz" DIGITS "-_."
#define LABEL_MAX 63
#define HOST_MAX 253
#define PIECES 8 /* of an IPv6 address */

/* What is wrong with the name host[0..n), of letters that a host has: static text; NULL: nothing. */
static const char *host_name_fault(const char *host, size_t n) {
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
    if (strchr(UPPER, host[n]) && host[n] != '\0')
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
        fault = host_name_fault(text, n);
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

/* No Origin of a browser could equal another text, and two of them any page could have. */
static int check_origins(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
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

/* --- bounds, proxies and names ------------------------------------------------------------------------------------ */

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

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
    if (memcmp(base.bytes, ret->address.bytes, sizeof(base.bytes)) == 0)
        return 0;
    inet_ntop(base.family == 4 ? AF_INET : AF_INET6, base.bytes, right, sizeof(right));
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
static int check_hosts(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    size_t i;

    for (i = 0; i < o->host_name.count; i++) {
        const char *text = o->host_name.items[i];
        const char *host = strstr(text, "://") ? strstr(text, "://") + 3 : text;
        size_t n = strspn(host, NAME_LETTERS);
        const char *fault = host == text && text[n] == '\0' ? host_name_fault(text, n) : NULL;
        unsigned char address[16];

        if (fault)
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

static int read_bounds(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    struct gb_http_bounds *ret = &daemon->bounds;
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

/* --- the devices' own pools --------------------------------------------------------------------------------------- */

static int wrong(const char *option, const char *text, const char *permitted, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--%s: \"%.64s\" is not permitted; permitted: %s", option, text,
                        permitted);
}

static int read_threshold(const char *text, struct gb_default_pools *ret, struct gb_error *err) {
    if (strcmp(text, "auto") == 0)
        return 0;
    ret->has_threshold = true;
    ret->release_threshold_bytes = GB_UNLIMITED;
    if (strcmp(text, "unlimited") == 0 || strcmp(text, "none") == 0 ||
        gb_parse_size(text, strlen(text), &ret->release_threshold_bytes) == GB_PARSE_OK)
        return 0;
    return wrong("default-pool-threshold", text,
                 "a number of bytes (suffixes K, M, G, T), unlimited, none (the same), or auto", err);
}

static bool *policy(struct gb_default_pools *pools, const char *word, size_t len) {
    const struct {
        const char *word;
        bool *on;
    } words[] = {{"event", &pools->follow_event_dependencies},
                 {"opportunistic", &pools->allow_opportunistic},
                 {"internal", &pools->allow_internal_dependencies}};
    size_t i;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strlen(words[i].word) == len && memcmp(words[i].word, word, len) == 0)
            return words[i].on;
    }
    return NULL;
}

static int read_reuse(const char *text, struct gb_default_pools *ret, struct gb_error *err) {
    const char *at = text;

    ret->has_reuse = true;
    if (strcmp(text, "none") == 0)
        return 0;
    if (strcmp(text, "all") == 0) {
        ret->follow_event_dependencies = ret->allow_opportunistic = ret->allow_internal_dependencies = true;
        return 0;
    }
    for (;;) {
        size_t len = strcspn(at, ",");
        bool *on = policy(ret, at, len);

        if (!on)
            return wrong("default-pool-reuse", text, "event, opportunistic, internal between commas, or all or none",
                         err);
        *on = true;
        if (at[len] == '\0')
            return 0;
        at += len + 1;
    }
}

int gb_daemon_read_default_pools(const struct gb_options *options, struct gb_default_pools *ret, struct gb_error *err) {
    *ret = (struct gb_default_pools){.has_threshold = false};
    if (read_threshold(options->default_pool_threshold, ret, err) < 0)
        return -1;
    if (options->source[GB_OPTION_ID_default_pool_reuse] == GB_SOURCE_DEFAULT)
        return 0;
    return read_reuse(options->default_pool_reuse, ret, err);
}

/* --- the audit ---------------------------------------------------------------------------------------------------- */

#define DAY_US (86400 * 1000000LL)

enum gb_audit_mode gb_daemon_audit_mode(const struct gb_options *options) {
    static const char *const words[] = {
        [GB_AUDIT_AUTO] = "auto", [GB_AUDIT_OFF] = "off", [GB_AUDIT_CHANGES] = "changes", [GB_AUDIT_ALL] = "all"};
    int mode = GB_AUDIT_ALL;

    while (mode > GB_AUDIT_AUTO && strcmp(options->audit, words[mode]) != 0)
        mode--;
    return (enum gb_audit_mode)mode;
}

int64_t gb_daemon_audit_age_us(const struct gb_options *options) {
    return options->audit_days <= (uint64_t)(INT64_MAX / DAY_US) ? (int64_t)options->audit_days * DAY_US : 0;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

/* Beyond the one mark, and down to the other. */
static int check_marks(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;

    if (o->evict_high == 0 || o->evict_low <= o->evict_high)
        return 0;
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT, "--evict-low %llu is above --evict-high %llu: give --evict-low at most %llu",
        (unsigned long long)o->evict_low, (unsigned long long)o->evict_high, (unsigned long long)o->evict_high);
}

static int check_slots(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;

    if (o->slot_bytes > o->slots_bytes)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--slot-bytes is larger than --slots-bytes, which holds the slots");
    if (o->max_pinned_bytes == 0 || o->slots_bytes <= o->max_pinned_bytes)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "--slots-bytes %llu is more than --max-pinned-bytes %llu, which the slots count against: give "
                        "--max-pinned-bytes at least %llu, or fewer --slots-bytes",
                        (unsigned long long)o->slots_bytes, (unsigned long long)o->max_pinned_bytes,
                        (unsigned long long)o->slots_bytes);
}

static int read_uids(struct gb_daemon *daemon, struct gb_error *err) {
    return gb_daemon_read_ids(&daemon->options.map_uids, "--map-uids", &daemon->map_peers.uids, err);
}

static int read_gids(struct gb_daemon *daemon, struct gb_error *err) {
    return gb_daemon_read_ids(&daemon->options.map_gids, "--map-gids", &daemon->map_peers.gids, err);
}

static int read_pools(struct gb_daemon *daemon, struct gb_error *err) {
    return gb_daemon_read_default_pools(&daemon->options, &daemon->default_pools, err);
}

static int check_backend(struct gb_daemon *daemon, struct gb_error *err) {
    return gb_backend_check(daemon->options.backend, err);
}

const struct gb_options_check gb_options_checks[] = {
    {check_backend, GB_EXIT_USAGE},
    {check_slots, GB_EXIT_CONFIG},
    {check_marks, GB_EXIT_CONFIG},
    {read_uids, GB_EXIT_USAGE},
    {read_gids, GB_EXIT_USAGE},
    {read_pools, GB_EXIT_USAGE},
    {read_bounds, GB_EXIT_USAGE},
    {check_hosts, GB_EXIT_USAGE},
    {check_origins, GB_EXIT_USAGE},
    {gb_daemon_read_fleet, GB_EXIT_USAGE},
    {gb_daemon_read_pulls, GB_EXIT_USAGE},
};
const size_t gb_options_checks_count = sizeof(gb_options_checks) / sizeof(gb_options_checks[0]);

enum gb_exit gb_daemon_check_options(struct gb_daemon *daemon, struct gb_error *err) {
    size_t i;

    for (i = 0; i < gb_options_checks_count; i++) {
        if (gb_options_checks[i].run(daemon, err) != 0)
            return gb_options_checks[i].status;
    }
    return GB_EXIT_OK;
}
