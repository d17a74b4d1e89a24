/* The daemon as a node of a fleet: joins when it listens, tells log and feed how that goes, leaves at the end. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/parse.h"
#include "base/thread.h"
#include "daemon/daemon.h"
#include "daemon/fleet_options.h"
#include "hub/hub.h"
#include "move/move.h"
#include "replica/replica.h"

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
    struct gb_hub *hub;   /* NULL: this node is none */
    pthread_mutex_t lock; /* for those below; held while the log is written */
    enum gb_fleet_state told;
    bool told_alone; /* that it has begun alone and stays so */
};

/* --- options ------------------------------------------------------------------------------------------------------ */

/* Those that others are told come in the requests of clients that were redirected. */
static int gather_hosts(struct gb_daemon_fleet *f, const struct gb_options *o, struct gb_error *err) {
    size_t i;

    f->host = calloc(o->host_name.count + GB_FLEET_NETWORKS_MAX, sizeof *f->host);
    if (f->host == NULL)
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
    struct gb_daemon_fleet *f = calloc(1, sizeof *f);
    int rc;

    if (f == NULL)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    rc = gb_fleet_options_read(&daemon->options, &f->options, err);
    if (rc <= 0) {
        free(f);
        return rc;
    }
    f->daemon = daemon;
    gb_mutex_init(&f->lock);
    daemon->fleet = f;
    return gather_hosts(f, &daemon->options, err);
}

const char *const *gb_daemon_hosts(const struct gb_daemon *daemon, size_t *ret_count) {
    if (daemon->fleet == NULL) {
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
    changed = stat.state != f->told;
    /* It begins alone: that is worth a line if the directory does not answer at once. */
    if (stat.state == GB_FLEET_ALONE && !f->told_alone && gb_clock_ns() - stat.since_ns > PATIENCE_NS)
        changed = true;
    if (changed) {
        f->told = stat.state;
        f->told_alone = true;
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

    if (fleet != NULL)
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

static void settle(void *app, const struct gb_fleet_session *mine, enum gb_fleet_verdict verdict, uint64_t epoch) {
    struct gb_daemon_fleet *f = app;

    if (verdict == GB_FLEET_RAISED) {
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
                                             .pulls = gb_daemon_pulls_of(f->daemon),
                                             .node = f->options.node,
                                             .urls = f->options.urls,
                                             .url_count = f->options.url_count};

    if (gb_moves_open(&config, &f->moves, err) != 0)
        return -1;
    gb_api_set_moves(f->daemon->api, f->moves);
    replicas.arrival = config;
    gb_api_node_who(&f->options.node, replicas.who, sizeof replicas.who);
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

    if (f == NULL)
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
                                      .app = f,
                                      .devices = devices,
                                      .known_uuid = known,
                                      .has = has,
                                      .sessions = sessions,
                                      .session = session,
                                      .settle = settle,
                                      .learned = learned,
                                      .changed = on_change,
                                      .order = follow};
    gb_api_set_fleet(daemon->api, NULL, &is); /* which the fleet's thread asks for */
    if (gb_fleet_open(&config, &fleet, err) != 0)
        return -1;
    atomic_store(&f->fleet, fleet);
    gb_api_set_fleet(daemon->api, fleet, &is);
    return open_moves(f, err) != 0 ? -1 : open_hub(f, err);
}

void gb_daemon_close_moves(struct gb_daemon *daemon) {
    if (daemon->fleet == NULL)
        return;
    if (daemon->fleet->replicas != NULL)
        gb_api_set_replicas(daemon->api, NULL);
    gb_replicas_close(daemon->fleet->replicas);
    daemon->fleet->replicas = NULL;
    if (daemon->fleet->moves != NULL)
        gb_api_set_moves(daemon->api, NULL);
    gb_moves_close(daemon->fleet->moves);
    daemon->fleet->moves = NULL;
}

void gb_daemon_check_fleet(struct gb_daemon *daemon) {
    if (daemon->fleet != NULL)
        tell(daemon->fleet, daemon->fleet->fleet);
}

void gb_daemon_drain_fleet(struct gb_daemon *daemon) {
    if (daemon->fleet == NULL)
        return;
    gb_fleet_set_draining(daemon->fleet->fleet, true);
    if (daemon->fleet->hub != NULL)
        gb_hub_drain(daemon->fleet->hub);
}

void gb_daemon_close_fleet(struct gb_daemon *daemon) {
    struct gb_daemon_fleet *f = daemon->fleet;

    if (f == NULL)
        return;
    if (f->hub != NULL)
        gb_api_set_hub(daemon->api, NULL);
    gb_hub_close(f->hub);
    if (f->fleet != NULL) {
        gb_api_leave_fleet(daemon->api);
        gb_fleet_close(f->fleet);
    }
    pthread_mutex_destroy(&f->lock);
    free(f->host);
    free(f);
    daemon->fleet = NULL;
}
