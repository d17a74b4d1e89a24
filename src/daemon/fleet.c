/* The daemon's part in a fleet: the options of the node and of copies, the node itself, moves, copies and the hub,
 * opened and closed in their order. A daemon that is in no fleet has none of them but the copies. */
#include "daemon/fleet.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/thread.h"
#include "daemon/daemon.h"
#include "fleet/hub/hub.h"
#include "fleet/move/move.h"
#include "fleet/pull/pull.h"
#include "fleet/replica/replica.h"

/* --- options ------------------------------------------------------------------------------------------------------ */

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
    if (gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the host has no name: name the node with --fleet-node");
    for (at = host; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && !strchr("._-", *at))
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
        size_t skipped = host ? (size_t)(host - at) : 0;

        if (!host || n < skipped || !is_authority(host, n - skipped))
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
    const char *host = given ? after_scheme(given) : NULL;
    size_t n = given ? strlen(given) : 0;

    if (strcmp(text, "none") == 0 && ret->url_count == 0) {
        ret->unreachable = true;
        return 0;
    }
    if (!given)
        return -1;
    n -= n > 0 && given[n - 1] == '/';
    if (!host || n < (size_t)(host - given) || !is_authority(host, n - (size_t)(host - given)) || n >= sizeof(url->url))
        return wrong("advertise", text, gb_option_specs[GB_OPTION_ID_advertise].permitted, err);
    if (ret->unreachable)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--advertise none goes with no other");
    if (has_network(ret, &network))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--advertise: the network \"%s\" is given twice", network.s);
    url = add_url(ret, &network, err);
    if (!url)
        return -1;
    snprintf(url->url, sizeof(url->url), "%.*s", (int)n, given);
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

/* The first listener of a network stands for it. Mistakes that the options alone show are reported before sockets
 * open. */
static int check_listen(const struct gb_text_list *specs, const char *option, const struct gb_fleet_options *options,
                        struct gb_error *err) {
    struct gb_name seen[GB_LISTEN_MAX];
    size_t count = 0;
    size_t i;
    size_t k;

    for (i = 0; i < specs->count && count < GB_LISTEN_MAX; i++) {
        const char *address = gb_listen_network(specs->items[i], option, &seen[count], err);

        if (!address)
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
        if (!url)
            return -1;
        snprintf(url->url, sizeof(url->url), "%s://%s", listener->is_tls ? "https" : "http", address);
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

    host = host ? host : url;
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

        if (text[n] != '=' || n >= sizeof(key) || !gb_fleet_label_key_is_valid(text, n))
            return wrong("fleet-label", text,
                         "KEY=VALUE, where KEY is letters, digits and _, and neither node nor version", err);
        for (k = 0; k < i; k++)
            if (strncmp(list->items[k], text, n + 1) == 0)
                return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--fleet-label: \"%.*s\" is given twice", (int)n,
                                    text);
        snprintf(key, sizeof(key), "%.*s", (int)n, text);
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

    for (i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
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

    if (!f)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--%s: %s: %m", option, path);
    read = fgets(line, sizeof(line), f);
    fclose(f);
    if (gb_conf_mark(line))
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

/* --- copies from other daemons ------------------------------------------------------------------------------------ */

struct gb_daemon_pulls {
    struct gb_pulls *pulls;
    size_t count;
    const char **origin;
    char text[][GB_PULL_ORIGIN_SIZE];
};

static int check_folders(const struct gb_text_list *list, struct gb_error *err) {
    struct stat is;
    size_t i;

    for (i = 0; i < list->count; i++) {
        if (list->items[i][0] != '/')
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--files-from %.128s: give a path that begins with /",
                                list->items[i]);
        if (stat(list->items[i], &is) != 0)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--files-from %.128s: %s", list->items[i],
                                strerrordesc_np(errno));
        if (!S_ISDIR(is.st_mode))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--files-from %.128s: it is not a folder",
                                list->items[i]);
    }
    return 0;
}

int gb_daemon_read_pulls(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_text_list *from = &daemon->options.pull_from;
    struct gb_error why = GB_ERROR_INIT;
    struct gb_daemon_pulls *p;
    size_t i;

    if (from->count == 0 && daemon->options.files_from.count == 0 && daemon->options.fleet[0] == '\0')
        return 0;
    p = calloc(1, sizeof(*p) + from->count * sizeof(p->text[0]));
    if (p)
        p->origin = calloc(from->count + 1, sizeof(*p->origin));
    daemon->pulls = p;
    if (!p || !p->origin)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    for (i = 0; i < from->count; i++) {
        if (gb_pull_origin_read(from->items[i], p->text[i], &why) != 0)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "--pull-from: %s", why.detail);
        p->origin[p->count++] = p->text[i];
    }
    return check_folders(&daemon->options.files_from, err);
}

int gb_daemon_open_pulls(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    struct gb_daemon_pulls *p = daemon->pulls;
    const struct gb_pulls_config config = {.core = daemon->core,
                                           .ca_file = o->pull_ca[0] != '\0' ? o->pull_ca : o->fleet_ca,
                                           .version = PACKAGE_VERSION,
                                           .running_max = (unsigned)o->pulls,
                                           .rate_bytes_s = o->pull_rate,
                                           .min_rate_bytes_s = o->min_rate};

    if (!p)
        return 0;
    if (gb_pulls_open(&config, &p->pulls, err) != 0)
        return -1;
    gb_api_set_pulls(daemon->api, p->pulls, p->origin, p->count);
    gb_api_set_files(daemon->api, (const char *const *)o->files_from.items, o->files_from.count);
    return 0;
}

static struct gb_pulls *pulls_of(const struct gb_daemon *daemon) {
    return daemon->pulls ? daemon->pulls->pulls : NULL;
}

void gb_daemon_close_pulls(struct gb_daemon *daemon) {
    if (!daemon->pulls)
        return;
    gb_pulls_close(daemon->pulls->pulls);
    free(daemon->pulls->origin);
    free(daemon->pulls);
    daemon->pulls = NULL;
}

/* --- the node ----------------------------------------------------------------------------------------------------- */

#define PATIENCE_NS (2 * GB_NS_PER_S)

struct gb_daemon_fleet {
    struct gb_daemon *daemon;
    struct gb_fleet_options options;
    struct gb_name networks[GB_LISTEN_MAX]; /* by listener */
    char hosts[GB_FLEET_NETWORKS_MAX][GB_FLEET_URL_SIZE];
    const char **host; /* those of --host-name, then these */
    size_t host_count;
    struct gb_fleet *_Atomic fleet;
    struct gb_moves *moves;
    struct gb_replicas *replicas;
    struct gb_hub *hub;   /* NULL: this node is no hub */
    pthread_mutex_t lock; /* for those below; held while the log is written */
    enum gb_fleet_state logged;
    bool logged_alone; /* that it has begun alone and stays so */
};

/* --- options of the node ------------------------------------------------------------------------------------------ */

/* Requests of clients that others redirected name the hosts that the fleet knows. */
static int gather_hosts(struct gb_daemon_fleet *f, const struct gb_options *o, struct gb_error *err) {
    size_t i;

    f->host = calloc(o->host_name.count + GB_FLEET_NETWORKS_MAX, sizeof(*f->host));
    if (!f->host)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    for (i = 0; i < o->host_name.count; i++)
        f->host[f->host_count++] = o->host_name.items[i];
    for (i = 0; i < f->options.url_count; i++) {
        gb_fleet_url_host(f->options.urls[i].url, f->hosts[i]);
        f->host[f->host_count++] = f->hosts[i];
    }
    return 0;
}

int gb_daemon_read_fleet(struct gb_daemon *daemon, struct gb_error *err) {
    struct gb_daemon_fleet *f = calloc(1, sizeof(*f));
    int r;

    if (!f)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    r = gb_fleet_options_read(&daemon->options, &f->options, err);
    if (r <= 0) {
        free(f);
        return r;
    }
    f->daemon = daemon;
    gb_mutex_init(&f->lock);
    daemon->fleet = f;
    return gather_hosts(f, &daemon->options, err);
}

const char *const *gb_daemon_hosts(const struct gb_daemon *daemon, size_t *ret_count) {
    if (!daemon->fleet) {
        *ret_count = daemon->options.host_name.count;
        return (const char *const *)daemon->options.host_name.items;
    }
    *ret_count = daemon->fleet->host_count;
    return daemon->fleet->host;
}

/* --- how it goes -------------------------------------------------------------------------------------------------- */

static const struct {
    enum gb_notice_type notice;
    enum gb_log_level level;
    const char *text;
} words[] = {
    [GB_FLEET_ALONE] = {GB_NOTICE_FLEET_ALONE, GB_LOG_WARNING, "alone"},
    [GB_FLEET_JOINED] = {GB_NOTICE_FLEET_JOINED, GB_LOG_INFO, "joined"},
    [GB_FLEET_EXPIRED] = {GB_NOTICE_FLEET_EXPIRED, GB_LOG_WARNING, "the lease has run out, and it joins again"},
    [GB_FLEET_DUPLICATE] = {GB_NOTICE_FLEET_DUPLICATE, GB_LOG_ERROR,
                            "another process is joined as this node, which goes on alone"},
};

static void tell(struct gb_daemon_fleet *f, struct gb_fleet *fleet) {
    struct gb_fleet_stat stat;
    bool changed;

    pthread_mutex_lock(&f->lock);
    gb_fleet_stat(fleet, &stat);
    changed = stat.state != f->logged;
    /* It begins alone: that is worth a line if the directory does not answer at once. */
    if (stat.state == GB_FLEET_ALONE && !f->logged_alone && gb_clock_ns() - stat.since_ns > PATIENCE_NS)
        changed = true;
    if (changed) {
        f->logged = stat.state;
        f->logged_alone = true;
        gb_log(&f->daemon->log, words[stat.state].level, "fleet", "%s, node %s: %s%s%s", f->options.fleet.s,
               f->options.node.s, words[stat.state].text, stat.why.code != GB_OK ? ": " : "",
               stat.why.code != GB_OK ? stat.why.detail : "");
        gb_feed_say(f->daemon->core, words[stat.state].notice, stat.why.code != GB_OK ? stat.why.detail : "");
    }
    pthread_mutex_unlock(&f->lock);
}

static void on_change(void *app) {
    struct gb_daemon_fleet *f = app;
    struct gb_fleet *fleet = atomic_load(&f->fleet);

    if (fleet)
        tell(f, fleet);
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static size_t devices(void *app, struct gb_fleet_device ret[GB_FLEET_DEVICES_MAX]) {
    return gb_api_fleet_devices(((struct gb_daemon_fleet *)app)->daemon->api, ret);
}

static bool has(void *app, const struct gb_fleet_session *record) {
    return gb_api_fleet_has(((struct gb_daemon_fleet *)app)->daemon->api, record);
}

static size_t sessions(void *app, int64_t *cursor, struct gb_fleet_session *ret, size_t max) {
    return gb_api_fleet_own_sessions(((struct gb_daemon_fleet *)app)->daemon->api, cursor, ret, max);
}

static bool session(void *app, const struct gb_name *name, struct gb_fleet_session *ret) {
    return gb_api_fleet_own_session(((struct gb_daemon_fleet *)app)->daemon->api, name, ret);
}

static void reconcile(void *app, const struct gb_fleet_session *mine, enum gb_fleet_outcome outcome, uint64_t epoch) {
    struct gb_daemon_fleet *f = app;

    if (outcome == GB_FLEET_RAISED) {
        gb_log(&f->daemon->log, GB_LOG_INFO, "fleet", "session %s is at epoch %llu, it was at %llu", mine->name.s,
               (unsigned long long)epoch, (unsigned long long)mine->epoch);
        gb_api_fleet_raise(f->daemon->api, mine, epoch);
        return;
    }
    gb_log(&f->daemon->log, GB_LOG_WARNING, "fleet",
           "session %s: at epoch %llu it is another node's, or was deleted; what is here, of epoch %llu, is set aside",
           mine->name.s, (unsigned long long)epoch, (unsigned long long)mine->epoch);
    gb_api_fleet_set_aside(f->daemon->api, mine);
}

/* Once for a state folder, and again when a node without registered sessions goes to another fleet. */
static void learned(void *app, const char *uuid) {
    struct gb_daemon_fleet *f = app;
    struct gb_error err = GB_ERROR_INIT;

    if (gb_store_set_fleet(f->daemon->store, uuid, &err) < 0)
        gb_log(&f->daemon->log, GB_LOG_WARNING, "fleet", "which fleet this node is in is not noted: %s", err.detail);
}

static void not_done(void *arg, const struct gb_name *name, const struct gb_error *err) {
    struct gb_daemon_fleet *f = arg;

    gb_log(&f->daemon->log, GB_LOG_WARNING, "fleet", "what the directory wants for session %s is not done: %s", name->s,
           err->detail);
}

static bool follow(void *app, enum gb_order_what what, const struct gb_name *name) {
    struct gb_daemon_fleet *f = app;

    gb_log(&f->daemon->log, GB_LOG_INFO, "fleet", "told by the directory to %s%s%s", gb_order_word(what),
           name->s[0] != '\0' ? " session " : "", name->s);
    return gb_api_fleet_follow(f->daemon->api, what, name, not_done, f);
}

/* Of the database, so that it stays after a restart and goes with a copy, which others can tell by it. */
static int read_uuid(struct gb_daemon *daemon, uint64_t *ret, struct gb_error *err) {
    char text[GB_STORE_UUID_SIZE];
    uint64_t uuid;

    if (gb_store_uuid(daemon->store, text, err) != 0)
        return -1;
    gb_hex_u64(text, 16, &uuid);
    uuid &= INT64_MAX;
    *ret = uuid > 0 ? uuid : 1;
    return 0;
}

/* Unless the options say how many, copies may take as many bytes as all devices have: they are no more than what owners
 * ask for, who look for nodes with free memory. */
static uint64_t replica_bytes(struct gb_daemon_fleet *f) {
    const struct gb_options *o = &f->daemon->options;
    struct gb_fleet_device list[GB_FLEET_DEVICES_MAX];
    uint64_t bytes = 0;
    size_t count;
    size_t i;

    if (o->source[GB_OPTION_ID_fleet_replica_bytes] > GB_SOURCE_DEFAULT)
        return (uint64_t)o->fleet_replica_bytes;
    count = devices(f, list);
    for (i = 0; i < count; i++)
        bytes += list[i].bytes;
    return bytes;
}

static int open_moves(struct gb_daemon_fleet *f, struct gb_error *err) {
    struct gb_replicas_config replicas = {.bytes_max = replica_bytes(f)};
    const struct gb_arrival_config config = {.core = f->daemon->core,
                                             .fleet = f->fleet,
                                             .pulls = pulls_of(f->daemon),
                                             .node = f->options.node,
                                             .urls = f->options.urls,
                                             .url_count = f->options.url_count};

    if (gb_moves_open(&config, &f->moves, err) != 0)
        return -1;
    gb_api_set_moves(f->daemon->api, f->moves);
    replicas.arrival = config;
    gb_api_node_who(&f->options.node, replicas.who, sizeof(replicas.who));
    if (gb_replicas_open(&replicas, &f->replicas, err) != 0)
        return -1;
    gb_api_set_replicas(f->daemon->api, f->replicas);
    return 0;
}

static int open_hub(struct gb_daemon_fleet *f, struct gb_error *err) {
    struct gb_hub_config config = {.fleet = f->fleet, .name = f->options.fleet.s};

    if (!f->daemon->options.fleet_hub)
        return 0;
    if (gb_hub_open(&config, &f->hub, err) != 0)
        return -1;
    gb_api_set_hub(f->daemon->api, f->hub);
    return 0;
}

int gb_daemon_open_fleet(struct gb_daemon *daemon, struct gb_error *err) {
    const struct gb_options *o = &daemon->options;
    struct gb_daemon_fleet *f = daemon->fleet;
    struct gb_fleet *fleet;
    struct gb_api_fleet is;
    struct gb_fleet_config config;
    char known[GB_STORE_FLEET_SIZE];
    uint64_t uuid;
    size_t i;

    if (!f)
        return 0;
    if (gb_fleet_options_listen(&f->options, &daemon->listeners, err) != 0 || read_uuid(daemon, &uuid, err) != 0 ||
        gb_store_fleet(daemon->store, known, err) != 0)
        return -1;
    for (i = 0; i < daemon->listeners.count; i++)
        f->networks[i] = daemon->listeners.items[i].network;
    is = (struct gb_api_fleet){.name = f->options.fleet.s,
                               .node = f->options.node,
                               .uuid = uuid,
                               .labels = f->options.labels,
                               .networks = f->networks,
                               .network_count = daemon->listeners.count,
                               .urls = f->options.urls,
                               .url_count = f->options.url_count,
                               .orphan_ttl_s = (uint64_t)o->fleet_orphan_ttl};
    config = (struct gb_fleet_config){.endpoints = f->options.endpoints,
                                      .hubs = f->options.hubs,
                                      .secret = f->options.secret,
                                      .user = f->options.user,
                                      .ca_file = o->fleet_ca,
                                      .cert_file = o->fleet_cert,
                                      .key_file = o->fleet_key,
                                      .fleet = f->options.fleet.s,
                                      .node = f->options.node,
                                      .uuid = uuid,
                                      .urls = f->options.urls,
                                      .url_count = f->options.url_count,
                                      .labels = f->options.labels,
                                      .version = PACKAGE_VERSION,
                                      .ttl_s = (unsigned)o->fleet_ttl,
                                      .on.app = f,
                                      .on.devices = devices,
                                      .known_uuid = known,
                                      .on.has = has,
                                      .on.sessions = sessions,
                                      .on.session = session,
                                      .on.reconcile = reconcile,
                                      .on.learned = learned,
                                      .on.changed = on_change,
                                      .on.order = follow};
    gb_api_set_fleet(daemon->api, NULL, &is); /* which the fleet's thread asks for */
    if (gb_fleet_open(&config, &fleet, err) != 0)
        return -1;
    atomic_store(&f->fleet, fleet);
    gb_api_set_fleet(daemon->api, fleet, &is);
    return open_moves(f, err) != 0 ? -1 : open_hub(f, err);
}

void gb_daemon_close_moves(struct gb_daemon *daemon) {
    if (!daemon->fleet)
        return;
    if (daemon->fleet->replicas)
        gb_api_set_replicas(daemon->api, NULL);
    gb_replicas_close(daemon->fleet->replicas);
    daemon->fleet->replicas = NULL;
    if (daemon->fleet->moves)
        gb_api_set_moves(daemon->api, NULL);
    gb_moves_close(daemon->fleet->moves);
    daemon->fleet->moves = NULL;
}

void gb_daemon_check_fleet(struct gb_daemon *daemon) {
    if (daemon->fleet)
        tell(daemon->fleet, daemon->fleet->fleet);
}

void gb_daemon_drain_fleet(struct gb_daemon *daemon) {
    if (!daemon->fleet)
        return;
    gb_fleet_set_draining(daemon->fleet->fleet, true);
    if (daemon->fleet->hub)
        gb_hub_drain(daemon->fleet->hub);
}

void gb_daemon_close_fleet(struct gb_daemon *daemon) {
    struct gb_daemon_fleet *f = daemon->fleet;

    if (!f)
        return;
    if (f->hub)
        gb_api_set_hub(daemon->api, NULL);
    gb_hub_close(f->hub);
    if (f->fleet) {
        gb_api_leave_fleet(daemon->api);
        gb_fleet_close(f->fleet);
    }
    pthread_mutex_destroy(&f->lock);
    free(f->host);
    free(f);
    daemon->fleet = NULL;
}
