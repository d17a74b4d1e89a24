#include "daemon/fleet_options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/json_writer.h"
#include "base/parse.h"

#define ENGINE "etcd:"

static int wrong(const char *option, const char *text, const char *permitted, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--%s: \"%.80s\" is not permitted; permitted: %s", option, text,
                        permitted);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static int read_name(const char *option, const char *text, struct gb_name *ret, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_name_parse("name", text, strlen(text), ret, &why) == 0)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--%s: %.300s", option, why.detail);
}

/* The host's, with '-' for what a name may not have. */
static int read_node(const char *given, struct gb_name *ret, struct gb_error *err) {
    char host[GB_NAME_MAX + 1] = "";
    char *at;

    if (given[0] != '\0')
        return read_name("fleet-node", given, ret, err);
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the host has no name: name the node with --fleet-node");
    for (at = host; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && strchr("._-", *at) == NULL)
            *at = '-';
    return read_name("fleet-node", host + strspn(host, "._-"), ret, err);
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

static const char *after_scheme(const char *url) {
    if (strncmp(url, "http://", 7) == 0)
        return url + 7;
    return strncmp(url, "https://", 8) == 0 ? url + 8 : NULL;
}

/* HOST, HOST:PORT or [ADDRESS]:PORT, of n bytes. */
static bool is_authority(const char *text, size_t n) {
    size_t host = text[0] == '[' ? strcspn(text, "]") + 1 : strcspn(text, ":");
    uint64_t port = 1;

    if (n == 0 || host == 0 || host > n)
        return false;
    if (host < n && (text[host] != ':' || gb_parse_u64(text + host + 1, n - host - 1, &port) != GB_PARSE_OK))
        return false;
    return port > 0 && port <= 65535 && strcspn(text, "/?#@ \\\"'<>") >= n;
}

/* "etcd:URL,URL", or URLs of hubs. */
static int read_endpoints(const char *spec, struct gb_fleet_options *ret, struct gb_error *err) {
    const char *at = spec;

    ret->hubs = strncmp(spec, ENGINE, strlen(ENGINE)) != 0;
    at += ret->hubs ? 0 : strlen(ENGINE);
    ret->endpoints = at;
    while (true) {
        size_t n = strcspn(at, ",");
        const char *host = after_scheme(at);
        size_t skipped = host != NULL ? (size_t)(host - at) : 0;

        if (host == NULL || n < skipped || !is_authority(host, n - skipped))
            return wrong("fleet", spec, gb_option_specs[GB_OPTION_ID_fleet].permitted, err);
        if (at[n] == '\0')
            return 0;
        at += n + 1;
    }
}

static struct gb_fleet_url *add_url(struct gb_fleet_options *options, const struct gb_name *network,
                                    struct gb_error *err) {
    struct gb_fleet_url *url = &options->urls[options->url_count];

    if (options->url_count == GB_FLEET_NETWORKS_MAX) {
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a node of a fleet is in %d networks at most; \"%s\" is one more",
                     GB_FLEET_NETWORKS_MAX, network->s);
        return NULL;
    }
    url->network = *network;
    options->url_count++;
    return url;
}

static bool has_network(const struct gb_fleet_options *options, const struct gb_name *network) {
    size_t i;

    for (i = 0; i < options->url_count; i++)
        if (gb_name_equal(&options->urls[i].network, network))
            return true;
    return false;
}

static int read_advertise(const char *text, struct gb_fleet_options *ret, struct gb_error *err) {
    struct gb_fleet_url *url;
    struct gb_name network;
    const char *given = gb_listen_network(text, "advertise", &network, err);
    const char *host = given != NULL ? after_scheme(given) : NULL;
    size_t n = given != NULL ? strlen(given) : 0;

    if (strcmp(text, "none") == 0 && ret->url_count == 0) {
        ret->unreachable = true;
        return 0;
    }
    if (given == NULL)
        return -1;
    n -= n > 0 && given[n - 1] == '/';
    if (host == NULL || n < (size_t)(host - given) || !is_authority(host, n - (size_t)(host - given)) ||
        n >= sizeof url->url)
        return wrong("advertise", text, gb_option_specs[GB_OPTION_ID_advertise].permitted, err);
    if (ret->unreachable)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--advertise none goes with no other");
    if (has_network(ret, &network))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--advertise: the network \"%s\" is given twice", network.s);
    url = add_url(ret, &network, err);
    if (url == NULL)
        return -1;
    snprintf(url->url, sizeof url->url, "%.*s", (int)n, given);
    return 0;
}

static int check_wildcard(const struct gb_fleet_options *options, const struct gb_name *network, const char *address,
                          struct gb_error *err) {
    if (options->unreachable || has_network(options, network))
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "the listener %.80s takes connections on all addresses, so others of the fleet cannot be told "
                        "one: name it with --advertise %s%shttp://HOST:PORT",
                        address, strcmp(network->s, "default") == 0 ? "" : network->s,
                        strcmp(network->s, "default") == 0 ? "" : "=");
}

/* The first listener of a network stands for it. What can be told from the options is told before sockets open. */
static int check_listen(const struct gb_text_list *specs, const char *option, const struct gb_fleet_options *options,
                        struct gb_error *err) {
    struct gb_name seen[GB_LISTEN_MAX];
    size_t count = 0;
    size_t i;
    size_t k;

    for (i = 0; i < specs->count && count < GB_LISTEN_MAX; i++) {
        const char *address = gb_listen_network(specs->items[i], option, &seen[count], err);

        if (address == NULL)
            return -1;
        for (k = 0; k < count && !gb_name_equal(&seen[k], &seen[count]); k++)
            ;
        if (k < count)
            continue;
        if ((strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0) &&
            check_wildcard(options, &seen[count], specs->items[i], err) != 0)
            return -1;
        count++;
    }
    return 0;
}

int gb_fleet_options_listen(struct gb_fleet_options *options, const struct gb_listeners *listeners,
                            struct gb_error *err) {
    size_t i;

    for (i = 0; i < listeners->count && !options->unreachable; i++) {
        const struct gb_feed_listener *listener = &listeners->items[i];
        const char *address = listener->is_tls ? listener->text + strlen("tls:") : listener->text;
        struct gb_fleet_url *url;

        if (listener->is_unix || has_network(options, &listener->network))
            continue;
        if (listener->wildcard)
            return check_wildcard(options, &listener->network, address, err);
        url = add_url(options, &listener->network, err);
        if (url == NULL)
            return -1;
        snprintf(url->url, sizeof url->url, "%s://%s", listener->is_tls ? "https" : "http", address);
    }
    if (options->unreachable || options->url_count > 0)
        return 0;
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT,
        "--fleet: others cannot reach this node: it listens on no address, and --advertise names no URL; "
        "if that is meant, say --advertise none");
}

void gb_fleet_url_host(const char *url, char *ret) {
    const char *host = after_scheme(url);
    size_t n;

    host = host != NULL ? host : url;
    host += host[0] == '[';
    n = host > url && host[-1] == '[' ? strcspn(host, "]") : strcspn(host, ":/");
    snprintf(ret, GB_FLEET_URL_SIZE, "%.*s", (int)n, host);
}

/* --- labels ------------------------------------------------------------------------------------------------------- */

static int read_labels(const struct gb_text_list *list, char *ret, struct gb_error *err) {
    struct gb_json_writer out = gb_json_fixed(ret, GB_FLEET_LABELS_SIZE);
    size_t i;
    size_t k;

    gb_json_open(&out, NULL, '{');
    for (i = 0; i < list->count; i++) {
        const char *text = list->items[i];
        size_t n = strcspn(text, "=");
        char key[GB_NAME_MAX + 1];

        if (text[n] != '=' || n >= sizeof key || !gb_fleet_label_key_is_valid(text, n))
            return wrong("fleet-label", text,
                         "KEY=VALUE, where KEY is letters, digits and _, and neither node nor version", err);
        for (k = 0; k < i; k++)
            if (strncmp(list->items[k], text, n + 1) == 0)
                return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--fleet-label: \"%.*s\" is given twice", (int)n,
                                    text);
        snprintf(key, sizeof key, "%.*s", (int)n, text);
        gb_json_put_untrusted(&out, key, text + n + 1, SIZE_MAX);
    }
    gb_json_close(&out, '}');
    if (out.failed || out.used >= GB_FLEET_LABELS_SIZE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--fleet-label: all labels have less than %d bytes as JSON",
                            GB_FLEET_LABELS_SIZE);
    ret[out.used] = '\0';
    return 0;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* An option of a fleet without one is most likely a mistake. */
static int check_none(const struct gb_options *o, struct gb_error *err) {
    static const enum gb_option_id ids[] = {GB_OPTION_ID_fleet_name,       GB_OPTION_ID_fleet_node,
                                            GB_OPTION_ID_fleet_ttl,        GB_OPTION_ID_fleet_ca,
                                            GB_OPTION_ID_fleet_cert,       GB_OPTION_ID_fleet_key,
                                            GB_OPTION_ID_fleet_label,      GB_OPTION_ID_advertise,
                                            GB_OPTION_ID_fleet_orphan_ttl, GB_OPTION_ID_fleet_replica_bytes,
                                            GB_OPTION_ID_fleet_hub,        GB_OPTION_ID_fleet_token,
                                            GB_OPTION_ID_fleet_user};
    size_t i;

    for (i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (o->source[ids[i]] > GB_SOURCE_DEFAULT)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--%s needs --fleet", gb_option_specs[ids[i]].name);
    return 0;
}

/* The first line of the file, without blanks around it. */
static int read_secret(const char *option, const char *path, const char *what, char *ret, struct gb_error *err) {
    FILE *f = fopen(path, "re");
    char line[GB_FLEET_SECRET_SIZE + 2] = "";
    char *at = line;
    size_t n;
    bool read;

    if (f == NULL)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--%s: %s: %m", option, path);
    read = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    if (gb_conf_mark(line) != NULL)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--%s: %s %s", option, path, gb_conf_mark(line));
    at += strspn(at, " \t");
    n = strcspn(at, " \t\r\n");
    if (!read || n == 0 || n >= GB_FLEET_SECRET_SIZE || at[n + strspn(at + n, " \t\r\n")] != '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--%s: %s has no %s in its first line", option, path, what);
    snprintf(ret, GB_FLEET_SECRET_SIZE, "%.*s", (int)n, at);
    return 0;
}

/* A hub speaks to the directory itself, and only hubs know tokens. */
static int check_hubs(const struct gb_options *o, struct gb_fleet_options *ret, struct gb_error *err) {
    if (ret->hubs && o->fleet_hub)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "--fleet-hub: a hub speaks to etcd itself, by --fleet etcd:URL; --fleet names hubs here");
    if (ret->hubs && o->fleet_user[0] != '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--fleet-user is for etcd, and --fleet names hubs");
    if (!ret->hubs && o->fleet_token[0] != '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--fleet-token is for hubs, and --fleet names etcd");
    if (o->fleet_user[0] != '\0')
        return read_secret("fleet-user", o->fleet_user, "NAME:PASSWORD", ret->user, err);
    return o->fleet_token[0] == '\0' ? 0
                                     : read_secret("fleet-token", o->fleet_token,
                                                   "secret, as \"gpubufd token add\" prints it,", ret->secret, err);
}

int gb_fleet_options_read(const struct gb_options *o, struct gb_fleet_options *ret, struct gb_error *err) {
    size_t i;

    *ret = (struct gb_fleet_options){.endpoints = o->fleet};
    if (o->fleet[0] == '\0')
        return check_none(o, err);
    if (read_endpoints(o->fleet, ret, err) != 0 || check_hubs(o, ret, err) != 0 ||
        read_name("fleet-name", o->fleet_name, &ret->fleet, err) != 0 ||
        read_node(o->fleet_node, &ret->node, err) != 0 || read_labels(&o->fleet_label, ret->labels, err) != 0)
        return -1;
    if ((o->fleet_cert[0] == '\0') != (o->fleet_key[0] == '\0'))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--fleet-cert and --fleet-key go together");
    for (i = 0; i < o->advertise.count; i++)
        if (read_advertise(o->advertise.items[i], ret, err) != 0)
            return -1;
    if (check_listen(&o->listen, "listen", ret, err) != 0 || check_listen(&o->tls_listen, "tls-listen", ret, err) != 0)
        return -1;
    return 1;
}
