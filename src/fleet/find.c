/* Finds the owner of a session. A cache answers first. Otherwise one flight reads the directory for all asks of that
 * session. A session is reported as absent only if a majority of the directory says so. The API, fleet/arrival and
 * fleet/pull ask; flights run on the fleet's thread, and the fleet's lock guards the cache. */
#include "fleet/find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fleet/directory.h"
#include "fleet/state.h"

#define SESSIONS_MAX 4096
#define NODES_MAX 1024
#define FRESH_MS 10000         /* an entry of a session */
#define NODE_FRESH_MS 500      /* an entry of a node */
#define USABLE_MS (600 * 1000) /* both, while the directory does not answer */
#define OPEN_MAX 64

/* How an entry begins. */
struct stamp {
    const char *key;
    uint64_t at_ms; /* when it was read */
};

struct entry {
    struct stamp stamp;
    struct gb_fleet_session session;
    bool gone; /* the directory no longer has it: only the epoch counts */
};

struct node_entry {
    struct stamp stamp;
    struct gb_fleet_node node;
    uint64_t gone_ms; /* since when the node is away; 0: it is alive */
};

struct flight {
    struct gb_job job;
    struct gb_name session;
    bool linearizable;
    bool by_majority; /* this reading asks a majority */
    char key[GB_NAME_MAX + 3];
    struct gb_name guess; /* the presumed owner, read in the same transaction; "": unknown */
    struct gb_fleet_session found;
    struct gb_fleet_node owner;
    struct gb_fleet_node replica;
    bool borrowed; /* the owner was read a moment ago for another session */
    bool stale;
    uint64_t absent_s;
};

struct gb_find_cache {
    struct gb_map sessions;
    struct gb_map nodes;
    struct gb_map flights;
};

/* --- the cache ---------------------------------------------------------------------------------------------------- */

struct gb_find_cache *gb_find_cache_new(void) {
    return calloc(1, sizeof(struct gb_find_cache));
}

static void free_all(struct gb_map *map) {
    size_t at = 0;
    void *value;

    while ((value = gb_map_next(map, &at)))
        free(value);
    gb_map_done(map);
}

void gb_find_cache_free(struct gb_find_cache *cache) {
    if (!cache)
        return;
    free_all(&cache->sessions);
    free_all(&cache->nodes);
    gb_map_done(&cache->flights);
    free(cache);
}

void gb_find_cache_forget(struct gb_find_cache *cache, const struct gb_name *session) {
    free(gb_map_take(&cache->sessions, session->s));
}

static void mark_gone(struct gb_find_cache *cache, const struct gb_name *session) {
    struct entry *entry = gb_map_get(&cache->sessions, session->s);

    if (entry)
        entry->gone = true;
}

/* The epoch at which the session was found last, even if the directory has lost it; 0: it was not found. */
static uint64_t find_cache_epoch(struct gb_find_cache *cache, const struct gb_name *session) {
    const struct entry *entry = gb_map_get(&cache->sessions, session->s);

    return entry ? entry->session.epoch : 0;
}

/* Makes room in a full map. */
static void drop_oldest(struct gb_map *map, size_t max) {
    struct stamp *oldest = NULL;
    struct stamp *one;
    size_t at = 0;

    while (map->count >= max && (one = gb_map_next(map, &at)))
        if (!oldest || one->at_ms < oldest->at_ms)
            oldest = one;
    if (oldest)
        free(gb_map_take(map, oldest->key));
}

/* Without memory, the session is not cached. */
static void cache_session(struct gb_find_cache *cache, const struct gb_fleet_session *session) {
    struct entry *entry = gb_map_get(&cache->sessions, session->name.s);

    if (!entry) {
        drop_oldest(&cache->sessions, SESSIONS_MAX);
        entry = calloc(1, sizeof(*entry));
        if (!entry)
            return;
        entry->session.name = session->name;
        entry->stamp.key = entry->session.name.s;
        if (gb_map_put(&cache->sessions, entry->stamp.key, entry) < 0) {
            free(entry);
            return;
        }
    }
    entry->session = *session;
    entry->gone = false;
    entry->stamp.at_ms = gb_boot_ms();
}

static void cache_node(struct gb_find_cache *cache, const struct gb_fleet_node *node) {
    struct node_entry *entry = gb_map_get(&cache->nodes, node->name.s);
    uint64_t now = gb_boot_ms();

    if (!entry) {
        drop_oldest(&cache->nodes, NODES_MAX);
        entry = calloc(1, sizeof(*entry));
        if (!entry)
            return;
        entry->node.name = node->name;
        entry->stamp.key = entry->node.name.s;
        if (gb_map_put(&cache->nodes, entry->stamp.key, entry) < 0) {
            free(entry);
            return;
        }
        entry->stamp.at_ms = now;
    }
    if (node->alive)
        entry->gone_ms = 0;
    else if (entry->gone_ms == 0)
        entry->gone_ms = entry->stamp.at_ms; /* it was alive then, or is new here */
    entry->node = *node;
    entry->stamp.at_ms = now;
}

static uint64_t absent_s(const struct node_entry *entry) {
    uint64_t s;

    if (entry->node.alive)
        return 0;
    s = (gb_boot_ms() - entry->gone_ms) / 1000;
    return s > 0 ? s : 1;
}

/* Reads entries that are not older than that. An absent session is never cached: it may be made at any moment, and a
 * client that made it must find it. */
static bool cache_lookup(struct gb_find_cache *cache, const struct gb_name *session, uint64_t session_ms,
                         uint64_t node_ms, struct gb_fleet_session *ret, struct gb_fleet_node *ret_owner,
                         uint64_t *ret_absent_s) {
    struct entry *entry = gb_map_get(&cache->sessions, session->s);
    uint64_t now = gb_boot_ms();
    struct node_entry *node;

    if (!entry || entry->gone)
        return false;
    node = gb_map_get(&cache->nodes, entry->session.node.s);
    if (!node || now - entry->stamp.at_ms >= session_ms || now - node->stamp.at_ms >= node_ms)
        return false;
    *ret = entry->session;
    *ret_owner = node->node;
    *ret_absent_s = absent_s(node);
    /* While the owner is away and the directory answers, a live holder is searched each time. */
    return node->node.alive || entry->session.holder_count == 0 || session_ms >= USABLE_MS;
}

/* --- flights ------------------------------------------------------------------------------------------------------ */

static void give(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct flight *flight = gb_container_of(job, struct flight, job);
    struct gb_fleet_find *find = gb_container_of(ask, struct gb_fleet_find, ask);

    job->fleet->open_finds--;
    if (job->error.code != GB_OK) {
        job->fleet->stat.lookups_failed += job->error.code != GB_ERR_SESSION_NOT_FOUND;
        return;
    }
    find->session = flight->found;
    find->owner = flight->owner;
    find->replica = flight->replica;
    find->stale = flight->stale;
    find->absent_s = flight->absent_s;
}

/* No further ask joins the flight. */
static void close_flight_locked(struct flight *flight) {
    struct gb_find_cache *cache = flight->job.fleet->finds;

    if (gb_map_get(&cache->flights, flight->key) == flight)
        gb_map_take(&cache->flights, flight->key);
}

/* If the directory did not answer, the cache is used for longer. */
static void ending(struct gb_job *job) {
    struct flight *flight = gb_container_of(job, struct flight, job);
    struct gb_find_cache *cache = job->fleet->finds;

    close_flight_locked(flight);
    if (job->error.code != GB_ERR_DIRECTORY_UNAVAILABLE || flight->linearizable)
        return;
    if (cache_lookup(cache, &flight->session, USABLE_MS, USABLE_MS, &flight->found, &flight->owner,
                     &flight->absent_s)) {
        job->error = GB_ERROR_INIT;
        flight->stale = true;
    }
}

/* Caches what was found, and ends. */
static void end_found(struct flight *flight) {
    struct gb_fleet *fleet = flight->job.fleet;

    pthread_mutex_lock(&fleet->lock);
    cache_session(fleet->finds, &flight->found);
    if (flight->found.epoch > fleet->epoch_seen)
        fleet->epoch_seen = flight->found.epoch;
    if (!flight->borrowed)
        cache_node(fleet->finds, &flight->owner);
    if (!cache_lookup(fleet->finds, &flight->session, USABLE_MS, USABLE_MS, &flight->found, &flight->owner,
                      &flight->absent_s))
        flight->absent_s = flight->owner.alive ? 0 : 1;
    pthread_mutex_unlock(&fleet->lock);
    gb_job_end(&flight->job);
}

/* This node, if it is a holder; else a random live holder. */
static void choose_replica(struct flight *flight) {
    const struct gb_name *self = &flight->job.fleet->own.name;
    struct gb_fleet_node one;
    uint32_t seen = 0;
    uint32_t chance;
    size_t i;

    for (i = 0; i < flight->found.holder_count; i++) {
        const struct gb_name *name = &flight->found.holders[i].node;
        const struct gb_kvs *node = gb_txn_result(&flight->job.call.txn, 1 + 2 * i);
        const struct gb_kvs *alive = gb_txn_result(&flight->job.call.txn, 2 + 2 * i);

        if (node->count == 0 || alive->count == 0 ||
            gb_fleet_node_of(name->s, &node->items[0], &alive->items[0], &one, NULL) < 0 || !one.alive)
            continue;
        if (gb_name_equal(name, self)) {
            flight->replica = one;
            return;
        }
        if (one.url_count == 0) /* no client can be redirected there */
            continue;
        seen++;
        if (gb_random(&chance, sizeof(chance), NULL) == 0 && chance % seen == 0)
            flight->replica = one;
    }
}

static void on_replicas(struct gb_etcd_call *call) {
    struct flight *flight = gb_container_of((struct gb_job *)call->arg, struct flight, job);

    if (gb_job_check(&flight->job) < 0)
        return;
    choose_replica(flight);
    end_found(flight);
}

/* While the owner is away, its holders are read too. */
static void found(struct flight *flight) {
    struct gb_fleet *fleet = flight->job.fleet;
    struct gb_txn txn = {0};
    size_t i;

    if (flight->owner.alive || flight->found.holder_count == 0) {
        end_found(flight);
        return;
    }
    gb_fleet_read_meta(fleet, &txn, !flight->by_majority);
    for (i = 0; i < flight->found.holder_count; i++) {
        gb_fleet_get(fleet, &txn, "nodes", flight->found.holders[i].node.s, NULL, !flight->by_majority);
        gb_fleet_get(fleet, &txn, "alive", flight->found.holders[i].node.s, NULL, !flight->by_majority);
    }
    gb_job_txn(&flight->job, &txn, flight->by_majority ? GB_ETCD_MAJORITY : GB_ETCD_MEMBER, on_replicas);
}

static void absent(struct flight *flight) {
    struct gb_fleet *fleet = flight->job.fleet;
    struct gb_error err = GB_ERROR_INIT;

    if (gb_restored_refuse(fleet, &flight->session, &err) < 0) {
        gb_job_fail(&flight->job, &err);
        return;
    }
    pthread_mutex_lock(&fleet->lock);
    mark_gone(fleet->finds, &flight->session);
    pthread_mutex_unlock(&fleet->lock);
    gb_error_set(&err, GB_ERR_SESSION_NOT_FOUND, "the fleet has no session \"%s\"", flight->session.s);
    gb_job_fail(&flight->job, &err);
}

static void read_both(struct flight *flight, void (*done)(struct gb_etcd_call *call)) {
    struct gb_fleet *fleet = flight->job.fleet;
    struct gb_txn txn = {0};

    if (flight->by_majority) { /* a later ask must not get an earlier answer */
        pthread_mutex_lock(&fleet->lock);
        close_flight_locked(flight);
        pthread_mutex_unlock(&fleet->lock);
    }
    gb_fleet_read_meta(fleet, &txn, !flight->by_majority);
    gb_fleet_get(fleet, &txn, "sessions", flight->session.s, NULL, !flight->by_majority);
    if (flight->guess.s[0]) {
        gb_fleet_get(fleet, &txn, "nodes", flight->guess.s, NULL, !flight->by_majority);
        gb_fleet_get(fleet, &txn, "alive", flight->guess.s, NULL, !flight->by_majority);
    }
    gb_job_txn(&flight->job, &txn, flight->by_majority ? GB_ETCD_MAJORITY : GB_ETCD_MEMBER, done);
}

/* Reads the owner's records, if the guess was right. */
static int read_owner(struct flight *flight, struct gb_error *err) {
    const struct gb_kvs *node = gb_txn_result(&flight->job.call.txn, 2);
    const struct gb_kvs *alive = gb_txn_result(&flight->job.call.txn, 3);

    if (node->count == 0) { /* the node was forgotten meanwhile, with its sessions */
        flight->owner = (struct gb_fleet_node){.name = flight->guess};
        return 0;
    }
    return gb_fleet_node_of(flight->guess.s, &node->items[0], alive->count > 0 ? &alive->items[0] : NULL,
                            &flight->owner, err);
}

/* The owner may have been read a moment ago for another session. */
static bool knows_owner(struct flight *flight) {
    struct gb_fleet *fleet = flight->job.fleet;
    struct node_entry *entry;
    bool knows;

    pthread_mutex_lock(&fleet->lock);
    entry = gb_map_get(&fleet->finds->nodes, flight->guess.s);
    knows = !flight->linearizable && entry && gb_boot_ms() - entry->stamp.at_ms < NODE_FRESH_MS;
    if (knows)
        flight->owner = entry->node;
    flight->borrowed = knows;
    pthread_mutex_unlock(&fleet->lock);
    return knows;
}

static void on_read(struct gb_etcd_call *call) {
    struct flight *flight = gb_container_of((struct gb_job *)call->arg, struct flight, job);
    const struct gb_kvs *session = gb_txn_result(&call->txn, 1);
    struct gb_error err = GB_ERROR_INIT;
    bool there;

    if (gb_job_check(&flight->job) < 0)
        return;
    flight->found = (struct gb_fleet_session){.name = flight->session};
    if (session->count > 0 &&
        gb_fleet_session_read(session->items[0].value, session->items[0].bytes, &flight->found, &err) < 0) {
        gb_job_fail(&flight->job, &err);
        return;
    }
    there = session->count > 0 && !flight->found.deleted;
    if (!there && flight->by_majority) {
        absent(flight);
        return;
    }
    if (!there) { /* that member may be behind: asks a majority */
        flight->by_majority = true;
        read_both(flight, on_read);
        return;
    }
    if (!gb_name_equal(&flight->found.node, &flight->guess)) {
        flight->guess = flight->found.node;
        if (knows_owner(flight))
            found(flight);
        else
            read_both(flight, on_read);
        return;
    }
    if (read_owner(flight, &err) < 0)
        gb_job_fail(&flight->job, &err);
    else
        found(flight);
}

static void start(struct gb_job *job) {
    read_both(gb_container_of(job, struct flight, job), on_read);
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

static struct flight *new_flight(struct gb_fleet *fleet, const struct gb_name *session, bool linearizable,
                                 const char *key) {
    struct flight *flight = gb_job_new(fleet, sizeof(*flight), start);
    struct entry *entry = gb_map_get(&fleet->finds->sessions, session->s);

    if (!flight)
        return NULL;
    flight->job.give = give;
    flight->job.ending = ending;
    flight->session = *session;
    flight->linearizable = linearizable;
    flight->by_majority = linearizable;
    if (entry && !entry->gone)
        flight->guess = entry->session.node;
    snprintf(flight->key, sizeof(flight->key), "%s", key);
    if (gb_map_put(&fleet->finds->flights, flight->key, flight) < 0) {
        free(flight);
        return NULL;
    }
    gb_job_queue(fleet, &flight->job);
    return flight;
}

/* Joins the flight of that session, or starts one. Returns false with the error set. */
static bool join_flight(struct gb_fleet *fleet, const struct gb_name *session, bool linearizable,
                        struct gb_fleet_find *find) {
    char key[GB_NAME_MAX + 3];
    struct flight *flight;

    snprintf(key, sizeof(key), "%c%s", linearizable ? '!' : '?', session->s);
    if (fleet->stopping) {
        gb_error_set(&find->ask.error, GB_ERR_DRAINING, "the daemon leaves the fleet");
        return false;
    }
    if (fleet->open_finds >= OPEN_MAX) {
        gb_error_set(&find->ask.error, GB_ERR_SATURATED, "%d look-ups in the fleet are open", OPEN_MAX);
        return false;
    }
    flight = gb_map_get(&fleet->finds->flights, key);
    if (!flight)
        flight = new_flight(fleet, session, linearizable, key);
    if (!flight) {
        gb_error_set(&find->ask.error, GB_ERR_SATURATED, "no memory to ask the fleet");
        return false;
    }
    find->ask.what = flight;
    find->ask.next = flight->job.asks;
    flight->job.asks = &find->ask;
    flight->job.open_asks = &fleet->open_finds;
    fleet->open_finds++;
    return true;
}

bool gb_fleet_find(struct gb_fleet *fleet, const struct gb_name *session, bool linearizable,
                   struct gb_fleet_find *find) {
    bool waits = false;
    bool known = false;

    find->ask.error = GB_ERROR_INIT;
    find->ask.what = NULL;
    find->ask.next = NULL;
    find->stale = false;
    find->replica = (struct gb_fleet_node){.alive = false};
    pthread_mutex_lock(&fleet->lock);
    fleet->stat.lookups++;
    if (!linearizable)
        known =
            cache_lookup(fleet->finds, session, FRESH_MS, NODE_FRESH_MS, &find->session, &find->owner, &find->absent_s);
    if (known)
        fleet->stat.lookups_cached++;
    else
        waits = join_flight(fleet, session, linearizable, find);
    if (!known && !waits)
        fleet->stat.lookups_failed++;
    pthread_mutex_unlock(&fleet->lock);
    if (waits)
        gb_http_client_wake(fleet->client);
    return !waits;
}

uint64_t gb_epoch_floor(struct gb_fleet *fleet, const struct gb_name *session) {
    uint64_t known = 0;
    uint64_t ret;

    pthread_mutex_lock(&fleet->lock);
    if (atomic_load(&fleet->suspect_until_ms) > 0)
        known = find_cache_epoch(fleet->finds, session);
    ret = known > fleet->epoch_floor ? known : fleet->epoch_floor;
    pthread_mutex_unlock(&fleet->lock);
    return ret;
}
