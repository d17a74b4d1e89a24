/* The fleet's thread, its beginning and end, and what all parts need. */
#include "fleet/fleet.h"
#include "base/encoding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "fleet/internal.h"

#define LEAVE_MS 1500 /* to give the lease back */
#define TTL_S 30
#define TTL_MAX_S 3600

/* --- keys and records --------------------------------------------------------------------------------------------- */

void gb_fleet_key(const struct gb_fleet *fleet, const char *kind, const char *name, const char *below,
                  char ret[GB_FLEET_KEY_SIZE]) {
    if (below)
        snprintf(ret, GB_FLEET_KEY_SIZE, "/gpubuf/%s/%s/%s/%s", fleet->name, kind, name, below);
    else if (name)
        snprintf(ret, GB_FLEET_KEY_SIZE, "/gpubuf/%s/%s/%s", fleet->name, kind, name);
    else
        snprintf(ret, GB_FLEET_KEY_SIZE, "/gpubuf/%s/%s", fleet->name, kind);
}

void gb_fleet_get(struct gb_txn *txn, const char *key, bool serializable) {
    struct gb_txn_range range = {.key = key, .serializable = serializable};

    gb_txn_get(txn, &range);
}

void gb_fleet_read_meta(const struct gb_fleet *fleet, struct gb_txn *txn, bool serializable) {
    char key[GB_FLEET_KEY_SIZE];

    gb_fleet_key(fleet, "meta", NULL, NULL, key);
    gb_fleet_get(txn, key, serializable);
}

void gb_fleet_compare_meta(const struct gb_fleet *fleet, struct gb_txn *txn) {
    char key[GB_FLEET_KEY_SIZE];

    gb_fleet_key(fleet, "meta", NULL, NULL, key);
    gb_txn_compare(txn, GB_TXN_CREATED, key, fleet->member.meta_created);
}

int gb_fleet_check_meta(const struct gb_fleet *fleet, const struct gb_kvs *meta, struct gb_error *err) {
    char uuid[40];

    if (fleet->member.meta_uuid[0] == '\0')
        return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "the fleet's directory has not been found yet");
    if (meta->count == 0)
        return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                            "the directory has lost the record of the fleet \"%s\": it was emptied or replaced",
                            fleet->name);
    if (gb_fleet_meta_read(meta->items[0].value, meta->items[0].bytes, uuid, err) < 0)
        return -1;
    if (strcmp(uuid, fleet->member.meta_uuid) == 0)
        return 0;
    return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                        "the directory is of another fleet: its uuid is %s, this one's is %s", uuid,
                        fleet->member.meta_uuid);
}

bool gb_fleet_name_of(const char *key, const char *prefix, struct gb_name *ret) {
    struct gb_error ignored = GB_ERROR_INIT;
    size_t n = strlen(prefix);

    return strncmp(key, prefix, n) == 0 && gb_name_parse("name", key + n, strlen(key + n), ret, &ignored) == 0;
}

void gb_fleet_behind(const char *key, char ret[GB_FLEET_KEY_SIZE]) {
    char cut[GB_FLEET_KEY_SIZE];

    if (snprintf(cut, sizeof(cut), "%s", key) < (int)sizeof(cut))
        memcpy(ret, cut, sizeof(cut));
    else
        gb_prefix_end(cut, ret, GB_FLEET_KEY_SIZE);
}

int gb_fleet_node_of(const char *name, const struct gb_kv *node, const struct gb_kv *alive, struct gb_fleet_node *ret,
                     struct gb_error *err) {
    struct gb_fleet_alive record;
    struct gb_error ignored = GB_ERROR_INIT;

    *ret = (struct gb_fleet_node){0};
    snprintf(ret->name.s, sizeof(ret->name.s), "%s", name);
    if (gb_fleet_node_read(node->value, node->bytes, ret, err) < 0)
        return -1;
    if (alive && gb_fleet_alive_read(alive->value, alive->bytes, &record, &ignored) == 0)
        gb_fleet_node_set_alive(ret, &record);
    return 0;
}

/* --- the state ---------------------------------------------------------------------------------------------------- */

const char *gb_fleet_state_name(enum gb_fleet_state state) {
    static const char *const names[] = {
        [GB_FLEET_ALONE] = "alone",
        [GB_FLEET_JOINED] = "joined",
        [GB_FLEET_EXPIRED] = "expired",
        [GB_FLEET_DUPLICATE] = "duplicate",
    };

    return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "alone";
}

void gb_fleet_set_state(struct gb_fleet *fleet, enum gb_fleet_state state, const struct gb_error *why) {
    bool changed;

    pthread_mutex_lock(&fleet->lock);
    changed = fleet->stat.state != state;
    if (changed)
        fleet->stat.since_ns = gb_clock_ns();
    fleet->stat.state = state;
    atomic_store(&fleet->joined, state == GB_FLEET_JOINED);
    fleet->stat.why = why ? *why : GB_ERROR_INIT;
    if (fleet->etcd.cluster_id != 0)
        snprintf(fleet->stat.cluster_id, sizeof(fleet->stat.cluster_id), "%llu",
                 (unsigned long long)fleet->etcd.cluster_id);
    pthread_mutex_unlock(&fleet->lock);
    if (changed && fleet->changed)
        fleet->changed(fleet->app);
}

int gb_fleet_not_joined(const struct gb_fleet *fleet, struct gb_error *err) {
    if (fleet->etcd.full)
        return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                            "the fleet's directory is out of space and refuses all changes");
    return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "this node is not joined to the fleet");
}

void gb_fleet_stat(struct gb_fleet *fleet, struct gb_fleet_stat *ret) {
    pthread_mutex_lock(&fleet->lock);
    *ret = fleet->stat;
    pthread_mutex_unlock(&fleet->lock);
    ret->draining = atomic_load(&fleet->draining);
    ret->requests = atomic_load(&fleet->etcd.requests);
    ret->failures = atomic_load(&fleet->etcd.failures);
    ret->clock_offset_ms = atomic_load(&fleet->etcd.offset_ms);
}

bool gb_fleet_is_joined(struct gb_fleet *fleet) {
    return atomic_load(&fleet->joined);
}

int64_t gb_fleet_now_s(const struct gb_fleet *fleet) {
    return gb_etcd_now_s(&fleet->etcd);
}

const char *gb_fleet_own_url(const struct gb_fleet *fleet, const struct gb_name *network) {
    return gb_fleet_url_on(&fleet->own, network);
}

static void tell(struct gb_job *job) {
    struct gb_fleet *fleet = job->fleet;

    gb_job_end(job);
    gb_member_tell(fleet);
}

void gb_fleet_set_draining(struct gb_fleet *fleet, bool draining) {
    struct gb_job *job;

    if (atomic_exchange(&fleet->draining, draining) == draining)
        return;
    job = gb_job_new(fleet, sizeof(*job), tell);
    if (job) /* without memory it is told with the next renewal */
        gb_job_ask(fleet, job, NULL);
}

/* --- tickets ------------------------------------------------------------------------------------------------------ */

int gb_fleet_ticket_make(struct gb_fleet *fleet, const char *method, const char *path, const char *query,
                         const struct gb_name *node, const char *who, char ret[GB_FLEET_TICKET_SIZE],
                         struct gb_error *err) {
    struct gb_ticket_scope scope = {.method = method, .path = path, .query = query, .node = node->s};
    struct gb_ticket_keys keys;

    pthread_mutex_lock(&fleet->lock);
    keys = fleet->keys;
    pthread_mutex_unlock(&fleet->lock);
    return gb_ticket_make(&keys, gb_etcd_now_s(&fleet->etcd), &scope, who, ret, err);
}

char *gb_fleet_ticket_query(struct gb_fleet *fleet, const char *method, const char *path, const struct gb_name *node,
                            const char *who) {
    char ticket[GB_FLEET_TICKET_SIZE];
    char *query;

    if (gb_fleet_ticket_make(fleet, method, path, "", node, who, ticket, NULL) < 0 ||
        asprintf(&query, "ticket=%s", ticket) < 0)
        return NULL;
    return query;
}

int gb_fleet_ticket_check(struct gb_fleet *fleet, const char *ticket, const char *method, const char *path,
                          const char *query, char *ret_who, size_t who_size, struct gb_error *err) {
    struct gb_ticket_scope scope = {.method = method, .path = path, .query = query, .node = fleet->own.name.s};
    struct gb_ticket_keys keys;

    pthread_mutex_lock(&fleet->lock);
    keys = fleet->keys;
    pthread_mutex_unlock(&fleet->lock);
    return gb_ticket_check(&keys, gb_etcd_now_s(&fleet->etcd), &scope, ticket, ret_who, who_size, err);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void on_revoked(struct gb_etcd_call *call) {
    (void)call;
}

/* Gives the lease back, unless the directory is silent anyway. */
static void leave(struct gb_fleet *fleet) {
    struct gb_etcd_call *call = &fleet->member.call;
    bool holds = fleet->member.held && fleet->member.deadline_ms > gb_boot_ms() && fleet->member.failing_ms == 0;

    gb_member_cancel(fleet);
    gb_orders_cancel(fleet);
    gb_etcd_cancel(&fleet->sweep);
    gb_timer_clear(&fleet->timers, &fleet->sweep_again);
    if (!holds)
        return;
    call->done = on_revoked;
    gb_etcd_send(&fleet->etcd, call, GB_ETCD_REVOKE, gb_lease_text((int64_t)fleet->own.uuid, false),
                 gb_boot_ms() + LEAVE_MS, true, GB_ETCD_PROBE);
    while (call->open)
        gb_http_client_run(fleet->client, gb_timers_run(&fleet->timers, 100));
}

static void *run(void *arg) {
    struct gb_fleet *fleet = arg;
    bool ended = false;

    gb_restored_watch(fleet);
    gb_member_start(fleet);
    gb_orders_start(fleet);
    while (gb_jobs_take(fleet))
        gb_http_client_run(fleet->client, gb_timers_run(&fleet->timers, 60000));
    gb_jobs_drain(fleet);
    leave(fleet);
    while (!ended) {
        gb_jobs_take(fleet);
        pthread_mutex_lock(&fleet->lock);
        ended = !fleet->queue && !fleet->refused.asks;
        pthread_mutex_unlock(&fleet->lock);
    }
    return NULL;
}

/* --- the beginning and the end ------------------------------------------------------------------------------------ */

static int take_own(struct gb_fleet *fleet, const struct gb_fleet_config *config, struct gb_error *err) {
    struct gb_fleet_node *own = &fleet->own;
    const char *labels = config->labels && config->labels[0] ? config->labels : "{}";
    size_t i;

    own->name = config->node;
    own->uuid = config->uuid;
    if (config->uuid == 0 || config->uuid > INT64_MAX || config->node.s[0] == '\0')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a node needs a name and a uuid");
    if (!gb_fleet_labels_are_valid(labels))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the labels of the node must be texts, %d bytes in all",
                            GB_FLEET_LABELS_SIZE - 1);
    snprintf(own->labels, sizeof(own->labels), "%s", labels);
    snprintf(own->version, sizeof(own->version), "%s", config->version ? config->version : "");
    if (config->url_count > GB_FLEET_NETWORKS_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a node is in %d networks at most", GB_FLEET_NETWORKS_MAX);
    for (i = 0; i < config->url_count; i++) {
        if (!gb_fleet_url_is_valid(config->urls[i].url))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "\"%s\" is no URL of a node", config->urls[i].url);
        own->urls[i] = config->urls[i];
    }
    own->url_count = config->url_count;
    return 0;
}

/* Those that are given can be read, so that a wrong name is found at the start. */
static int check_files(const struct gb_fleet_config *config, struct gb_error *err) {
    const char *const files[] = {config->ca_file, config->cert_file, config->key_file};
    size_t i;

    for (i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (files[i] && files[i][0] && access(files[i], R_OK) < 0)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                                "the file \"%s\" for the fleet's directory cannot be read", files[i]);
    return 0;
}

static int take_directory(struct gb_fleet *fleet, const struct gb_fleet_config *config, struct gb_error *err) {
    struct gb_http_tls tls = {.ca = config->ca_file, .cert = config->cert_file, .key = config->key_file};
    const char *name = config->fleet && config->fleet[0] ? config->fleet : "main";
    struct gb_name checked;

    if (gb_name_parse("fleet name", name, strlen(name), &checked, err) < 0) {
        err->code = GB_ERR_INVALID_ARGUMENT;
        return -1;
    }
    if (check_files(config, err) < 0)
        return -1;
    fleet->name = strdup(name);
    if (gb_http_begin() == 0) {
        fleet->client = gb_http_client_new(&tls, false);
        if (!fleet->client)
            gb_http_end();
    }
    if (!fleet->client)
        return gb_error_set(err, GB_ERR_INTERNAL, "libcurl does not start");
    if (!fleet->name)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the fleet");
    if (gb_etcd_init(&fleet->etcd, config->endpoints, fleet->client, &fleet->timers, err) < 0)
        return -1;
    if (config->user && config->user[0] && gb_etcd_login_init(&fleet->etcd.login, config->user, err) < 0)
        return -1;
    return config->hubs ? gb_etcd_by_hubs(&fleet->etcd, config->node.s, config->secret, err) : 0;
}

static void destroy(struct gb_fleet *fleet) {
    struct gb_unregister *one;

    gb_member_done(fleet);
    while ((one = fleet->unregisters)) {
        fleet->unregisters = one->next;
        free(one);
    }
    gb_breakers_free(fleet);
    gb_doubts_free(fleet);
    gb_find_cache_free(fleet->finds);
    gb_etcd_done(&fleet->etcd);
    if (fleet->client) {
        gb_http_client_free(fleet->client);
        gb_http_end();
    }
    pthread_cond_destroy(&fleet->delivered);
    pthread_mutex_destroy(&fleet->lock);
    free(fleet->name);
    free(fleet);
}

static struct gb_fleet *make(void) {
    struct gb_fleet *fleet = calloc(1, sizeof(*fleet));

    if (!fleet)
        return NULL;
    gb_mutex_init(&fleet->lock);
    gb_cond_init(&fleet->delivered);
    fleet->queue_end = &fleet->queue;
    fleet->refused.fleet = fleet;
    fleet->finds = gb_find_cache_new();
    return fleet;
}

static int prepare(struct gb_fleet *fleet, const struct gb_fleet_config *config, struct gb_error *err) {
    uint64_t chance = 0;

    if (!fleet->finds)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the fleet");
    if (take_own(fleet, config, err) < 0 || take_directory(fleet, config, err) < 0 ||
        gb_random(&chance, sizeof(chance), err) < 0)
        return -1;
    fleet->member.ttl_s = config->ttl_s > 0 ? config->ttl_s : TTL_S;
    if (fleet->member.ttl_s < 2 || fleet->member.ttl_s > TTL_MAX_S)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a lease lives for 2 to %d seconds", TTL_MAX_S);
    /* Programs that read JSON keep 53 bits. */
    fleet->member.incarnation = (chance >> 12) | 1;
    fleet->app = config->app;
    fleet->devices = config->devices;
    fleet->has = config->has;
    fleet->sessions = config->sessions;
    fleet->session = config->session;
    fleet->settle = config->settle;
    fleet->learned = config->learned;
    snprintf(fleet->known_uuid, sizeof(fleet->known_uuid), "%s", config->known_uuid ? config->known_uuid : "");
    memcpy(fleet->stat.fleet_uuid, fleet->known_uuid, sizeof(fleet->known_uuid));
    fleet->changed = config->changed;
    fleet->order = config->order;
    fleet->stat.incarnation = fleet->member.incarnation;
    atomic_store(&fleet->fresh, true);
    fleet->stat.since_ns = gb_clock_ns();
    gb_error_set(&fleet->stat.why, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory has not answered yet");
    return 0;
}

int gb_fleet_open(const struct gb_fleet_config *config, struct gb_fleet **ret, struct gb_error *err) {
    struct gb_fleet *fleet = make();

    *ret = NULL;
    if (!fleet)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the fleet");
    if (prepare(fleet, config, err) < 0 || gb_thread_start(&fleet->thread, "gb-fleet", run, fleet, err) < 0) {
        destroy(fleet);
        return -1;
    }
    *ret = fleet;
    return 0;
}

void gb_fleet_close(struct gb_fleet *fleet) {
    if (!fleet)
        return;
    pthread_mutex_lock(&fleet->lock);
    fleet->stopping = true;
    pthread_mutex_unlock(&fleet->lock);
    gb_http_client_wake(fleet->client);
    pthread_join(fleet->thread, NULL);
    destroy(fleet);
}

/* --- making a fleet ----------------------------------------------------------------------------------------------- */

static int make_uuid(char ret[40], struct gb_error *err) {
    unsigned char b[16];

    if (gb_random(b, sizeof(b), err) < 0)
        return -1;
    b[6] = (unsigned char)((b[6] & 15) | 64);
    b[8] = (unsigned char)((b[8] & 63) | 128);
    gb_uuid_text(b, ret);
    return 0;
}

struct making {
    char uuid[40];
    int result;
    struct gb_error error;
};

static void on_made(struct gb_etcd_call *call) {
    struct making *making = call->arg;
    const struct gb_kvs *meta = gb_txn_result(&call->txn, 0);
    char uuid[40];

    making->result = -1;
    making->error = call->error;
    if (call->error.code != GB_OK)
        return;
    making->result = 0;
    if (call->txn.succeeded)
        return;
    if (meta->count == 0)
        making->result = gb_error_set(&making->error, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory does not say why");
    else if (gb_fleet_meta_read(meta->items[0].value, meta->items[0].bytes, uuid, &making->error) < 0)
        making->result = -1;
    else if (strcmp(uuid, making->uuid) != 0) /* else an answer was lost, and this is the repetition */
        making->result = 1;
    if (making->result == 1)
        memcpy(making->uuid, uuid, sizeof(uuid));
}

static int make_meta(struct gb_fleet *fleet, struct making *making, struct gb_error *err) {
    struct gb_etcd_call call = {.arg = making, .done = on_made};
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    char value[80];

    if (make_uuid(making->uuid, err) < 0)
        return -1;
    gb_fleet_key(fleet, "meta", NULL, NULL, key);
    snprintf(value, sizeof(value), "{\"uuid\":\"%s\",\"schema\":1}", making->uuid);
    gb_txn_compare(&txn, GB_TXN_CREATED, key, 0);
    gb_txn_put(&txn, key, value, 0);
    gb_txn_else(&txn);
    gb_fleet_get(&txn, key, false);
    gb_etcd_send(&fleet->etcd, &call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + 2 * GB_ETCD_TOTAL_MS, true,
                 GB_ETCD_PROBE);
    while (call.open)
        gb_http_client_run(fleet->client, gb_timers_run(&fleet->timers, 100));
    if (making->result < 0)
        gb_error_move(err, &making->error);
    return making->result;
}

int gb_fleet_init(const struct gb_fleet_config *config, char ret_uuid[40], struct gb_error *err) {
    struct gb_fleet *fleet = make();
    struct making making = {0};
    int r = -1;

    if (!fleet)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the fleet");
    if (take_directory(fleet, config, err) == 0)
        r = make_meta(fleet, &making, err);
    if (r >= 0)
        memcpy(ret_uuid, making.uuid, sizeof(making.uuid));
    destroy(fleet);
    return r;
}
