/* The membership of this node. To join, it reads its records, tests whether a duplicate renews its lease, grants or
 * adopts the lease, and writes alive/N. Then it renews the lease, reads the records, and publishes its free memory.
 * Losing the lease changes only what other nodes see: no session ends. Runs on the fleet's thread, started by
 * fleet.c. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "fleet/directory.h"
#include "fleet/forget.h"
#include "fleet/reconcile.h"
#include "fleet/state.h"
#include "fleet/ticket.h"

/* --- peers at the start ------------------------------------------------------------------------------------------- */

/* A process that has just started cannot know that the directory was restored a moment ago. The other nodes do, because
 * their connections to it have ended. Some of them are asked, at /livez, whether they suspect the directory. Until they
 * have answered, this node reconciles no session and reports no name as absent. */

#define NODES_READ 16
#define PEERS_MAX 8
#define PEER_MS 1000

struct peer {
    struct gb_peer_check *check;
    struct gb_http_ask http;
    char url[GB_FLEET_URL_SIZE + 8];
};

struct gb_peer_check {
    struct gb_fleet *fleet;
    struct gb_etcd_call call;
    struct peer peers[PEERS_MAX];
    size_t count;
    size_t open;
};

static void peer_check_cancel(struct gb_fleet *fleet) {
    struct gb_peer_check *check = fleet->member.peer_check;
    size_t i;

    if (!check)
        return;
    gb_etcd_cancel(&check->call);
    for (i = 0; i < check->count; i++)
        gb_http_client_cancel(&check->peers[i].http);
    free(check);
    fleet->member.peer_check = NULL;
}

static void end(struct gb_fleet *fleet) {
    peer_check_cancel(fleet);
    atomic_store(&fleet->starting, false);
    gb_member_renew_now(fleet);
}

static void on_peer(struct gb_http_ask *http) {
    struct gb_peer_check *check = gb_container_of(http, struct peer, http)->check;
    struct gb_fleet *fleet = check->fleet;

    free(http->answer);
    http->answer = NULL;
    if (http->status > 0 && http->suspect_s > 0)
        gb_restored_suspect(fleet, http->suspect_s);
    if (--check->open == 0)
        end(fleet);
}

static void ask(struct gb_peer_check *check, struct peer *peer) {
    peer->check = check;
    peer->http = (struct gb_http_ask){.method = "GET", .url = peer->url};
    peer->http.connect_ms = PEER_MS;
    peer->http.total_ms = PEER_MS;
    peer->http.answer_max = 1 << 16;
    peer->http.done = on_peer;
    if (gb_fleet_http_start(check->fleet->client, &peer->http, NULL) == 0)
        check->open++;
}

/* Samples the nodes that were read: each is as likely as any other. */
static void choose(struct gb_peer_check *check, const struct gb_kv *kv, const char *prefix, size_t seen) {
    struct gb_fleet_node node;
    struct gb_name name;
    uint32_t at = (uint32_t)seen;

    if (seen >= PEERS_MAX && (gb_random(&at, sizeof(at), NULL) < 0 || (at %= seen + 1) >= PEERS_MAX))
        return;
    if (!gb_fleet_name_of(kv->key, prefix, &name) || gb_name_equal(&name, &check->fleet->own.name) ||
        gb_fleet_node_of(name.s, kv, NULL, &node, NULL) < 0 || node.url_count == 0)
        return;
    at = check->count < PEERS_MAX ? (uint32_t)check->count++ : at;
    snprintf(check->peers[at].url, sizeof(check->peers[at].url), "%s/livez", node.urls[0].url);
}

static void on_nodes(struct gb_etcd_call *call) {
    struct gb_peer_check *check = call->arg;
    struct gb_fleet *fleet = check->fleet;
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    char prefix[GB_FLEET_KEY_SIZE];
    size_t i;

    if (call->error.code != GB_OK || gb_fleet_check_meta(fleet, gb_txn_result(&call->txn, 0), NULL) < 0) {
        /* The next renewal tries again, unless the list is too long to be read. */
        if (call->ask.too_long)
            end(fleet);
        else
            peer_check_cancel(fleet);
        return;
    }
    gb_fleet_key(fleet, "nodes", "", NULL, prefix);
    for (i = 0; i < kvs->count; i++)
        choose(check, &kvs->items[i], prefix, i);
    for (i = 0; i < check->count; i++)
        ask(check, &check->peers[i]);
    if (check->open == 0)
        end(fleet);
}

/* Asks peers after the start. Returns whether their answers are still awaited. */
static bool check_peers(struct gb_fleet *fleet) {
    struct gb_peer_check *check = fleet->member.peer_check;
    struct gb_txn txn = {0};
    struct gb_txn_range range = {.limit = NODES_READ};

    if (!atomic_load(&fleet->starting))
        return false;
    if (fleet->etcd.as) { /* a hub says so with each answer */
        atomic_store(&fleet->starting, false);
        return false;
    }
    if (check)
        return true;
    check = fleet->member.peer_check = calloc(1, sizeof(*check));
    if (!check)
        return true;
    check->fleet = fleet;
    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_get_all(fleet, &txn, range, "", "nodes", "", NULL);
    check->call.arg = check;
    check->call.done = on_nodes;
    gb_etcd_send(&fleet->etcd, &check->call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_member_deadline(fleet), true,
                 GB_ETCD_PROBE);
    return true;
}

/* --- what alive/N says -------------------------------------------------------------------------------------------- */

/* What alive/N is to say now. */
static void member_describe(struct gb_fleet *fleet, struct gb_fleet_alive *ret, struct gb_fleet_node *node) {
    size_t i;

    *node = fleet->own;
    node->device_count = fleet->on.devices ? fleet->on.devices(fleet->on.app, node->devices) : 0;
    *ret = (struct gb_fleet_alive){.uuid = fleet->own.uuid, .incarnation = fleet->member.incarnation};
    ret->draining = atomic_load(&fleet->draining);
    ret->count = node->device_count;
    for (i = 0; i < ret->count; i++) {
        ret->free_bytes[i] = node->devices[i].free_bytes;
        ret->committed_bytes[i] = node->devices[i].committed_bytes;
    }
}

/* More than a twentieth of the device. */
static bool differs(uint64_t a, uint64_t b, uint64_t of) {
    return (a > b ? a - b : b - a) > of / 20;
}

static bool worth_publishing(const struct gb_fleet *fleet, const struct gb_fleet_alive *now,
                             const struct gb_fleet_node *node) {
    const struct gb_member *m = &fleet->member;
    bool changed = now->count != m->published.count;
    size_t i;

    if (now->draining != m->published.draining)
        return true;
    for (i = 0; i < now->count && !changed; i++)
        changed = differs(now->free_bytes[i], m->published.free_bytes[i], node->devices[i].bytes) ||
                  differs(now->committed_bytes[i], m->published.committed_bytes[i], node->devices[i].bytes);
    return changed && gb_boot_ms() - m->published_ms >= 3 * gb_member_third_ms(fleet) / 2;
}

static void on_published(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    struct gb_member *m = &fleet->member;

    if (call->error.code != GB_OK || call->refusal != 0 || !call->txn.succeeded) {
        m->published =
            (struct gb_fleet_alive){.draining = !atomic_load(&fleet->draining)}; /* the next renewal writes it again */
        return;
    }
    m->alive_revision = call->txn.revision;
    fleet->etcd.full = false;
    if (m->published.draining != atomic_load(&fleet->draining))
        gb_member_publish(fleet);
}

void gb_member_publish(struct gb_fleet *fleet) {
    struct gb_member *m = &fleet->member;
    struct gb_fleet_alive now;
    struct gb_fleet_node node;
    struct gb_txn txn = {0};
    char *text;

    if (!m->held || m->write.open)
        return;
    member_describe(fleet, &now, &node);
    if (!worth_publishing(fleet, &now, &node))
        return;
    text = gb_fleet_alive_write(&now, m->old_alive, NULL);
    if (!text)
        return;
    m->published = now;
    m->published_ms = gb_boot_ms();
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_compare(fleet, &txn, "alive", fleet->own.name.s, NULL, GB_TXN_MODIFIED, m->alive_revision);
    gb_fleet_put(fleet, &txn, "alive", fleet->own.name.s, NULL, text, (int64_t)fleet->own.uuid);
    m->write.arg = fleet;
    m->write.done = on_published;
    gb_etcd_send(&fleet->etcd, &m->write, GB_ETCD_TXN, gb_txn_finish(&txn), gb_member_deadline(fleet), false,
                 GB_ETCD_PROBE);
    free(text);
}

/* --- joining and renewing ----------------------------------------------------------------------------------------- */

static void begin_join(void *arg);
static void poll_records(struct gb_fleet *fleet);

static uint64_t chance(uint64_t below) {
    uint32_t n = 0;

    gb_random(&n, sizeof(n), NULL);
    return below > 0 ? n % below : 0;
}

/* The time between two samples of a lease that a duplicate may renew. */
static uint64_t sample_ms(const struct gb_fleet *fleet) {
    uint64_t sample = gb_member_third_ms(fleet) / 8;

    return sample < 200 ? 200 : sample > 1000 ? 1000 : sample;
}

static void send(struct gb_fleet *fleet, enum gb_etcd_kind kind, char *body, void (*done)(struct gb_etcd_call *call)) {
    struct gb_etcd_call *call = &fleet->member.call;

    call->arg = fleet;
    call->done = done;
    gb_etcd_send(&fleet->etcd, call, kind, body, gb_member_deadline(fleet), true, GB_ETCD_PROBE);
}

/* The call has renewed the lease. If the lease had run out when it was sent, other nodes may have taken sessions over,
 * although the directory kept the lease: after a restart or restore it gives all leases their full length. */
static void extend_lease(struct gb_fleet *fleet, const struct gb_etcd_call *call) {
    struct gb_member *m = &fleet->member;

    if (call->sent_ms >= m->lapse_ms) {
        m->lapsed = true;
        m->must_reconcile = true;
        m->reconciled = false;
    }
    m->deadline_ms = call->sent_ms + (uint64_t)call->lease.ttl_s * 1000;
    m->lapse_ms = m->deadline_ms;
}

/* --- losing the lease --------------------------------------------------------------------------------------------- */

/* As far as this node knows, it holds no lease. */
static void reset(struct gb_fleet *fleet) {
    struct gb_member *m = &fleet->member;

    gb_etcd_cancel(&m->call);
    gb_etcd_cancel(&m->write);
    gb_etcd_cancel(&m->space);
    gb_reconcile_all_cancel(m->reconcile);
    gb_suspects_cancel(fleet);
    m->reconcile = NULL;
    m->held = false;
    m->reconciled = false;
    m->deadline_ms = 0;
    gb_member_update_validity(fleet);
    m->failing_ms = 0;
    m->test_ms = 0;
}

/* Joins again later: when the breaker closes, or after a random part of a third of the lease. */
static void retry(struct gb_fleet *fleet, enum gb_fleet_state state, const struct gb_error *why) {
    struct gb_member *m = &fleet->member;
    uint64_t now = gb_boot_ms();
    uint64_t third = gb_member_third_ms(fleet);
    uint64_t at = now + third / 2 + chance(third / 2 + 1);

    reset(fleet);
    if (fleet->etcd.majority.retry_ms > now)
        at = fleet->etcd.majority.retry_ms;
    gb_fleet_set_state(fleet, state, why);
    gb_timer_set(&fleet->timers, &m->timer, at, begin_join, fleet);
}

static void duplicate(struct gb_fleet *fleet, const char *what) {
    struct gb_error why = GB_ERROR_INIT;

    gb_error_set(&why, GB_ERR_DIRECTORY_UNAVAILABLE, "%s", what);
    retry(fleet, GB_FLEET_DUPLICATE, &why);
}

/* The lease ran out: joins again at once. */
static void expire(struct gb_fleet *fleet, const char *what) {
    struct gb_error why = GB_ERROR_INIT;

    reset(fleet);
    gb_error_set(&why, GB_ERR_DIRECTORY_UNAVAILABLE, "%s", what);
    gb_fleet_set_state(fleet, GB_FLEET_EXPIRED, &why);
    begin_join(fleet);
}

/* --- reading the records ------------------------------------------------------------------------------------------ */

static int keep(const struct gb_kvs *kvs, char **ret_text, int64_t *ret_revision) {
    free(*ret_text);
    *ret_text = NULL;
    *ret_revision = 0;
    if (kvs->count == 0)
        return 0;
    *ret_text = strdup(kvs->items[0].value);
    *ret_revision = kvs->items[0].mod_revision;
    return *ret_text ? 0 : -1;
}

/* A node that has registered sessions joins no other fleet. */
static int check_known(const struct gb_fleet *fleet, const char *uuid, struct gb_error *err) {
    struct gb_fleet_session one;
    int64_t cursor = 0;

    if (fleet->known_uuid[0] == '\0' || strcmp(fleet->known_uuid, uuid) == 0 || !fleet->on.sessions ||
        fleet->on.sessions(fleet->on.app, &cursor, &one, 1) == 0)
        return 0;
    return gb_error_set(
        err, GB_ERR_DIRECTORY_UNAVAILABLE,
        "this node has sessions of the fleet %s, and the directory is of the fleet %s; if the first was "
        "lost, empty the directory and run gpubuf fleet init --rebuild --uuid %s",
        fleet->known_uuid, uuid, fleet->known_uuid);
}

static int learn_fleet(struct gb_fleet *fleet, const struct gb_kvs *meta, struct gb_error *err) {
    char uuid[40];

    if (meta->count == 0)
        return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                            "the directory has no fleet \"%s\"; gpubuf fleet init makes it", fleet->name);
    if (gb_fleet_meta_read(meta->items[0].value, meta->items[0].bytes, uuid, err) < 0 ||
        check_known(fleet, uuid, err) < 0)
        return -1;
    memcpy(fleet->member.meta_uuid, uuid, sizeof(uuid));
    pthread_mutex_lock(&fleet->lock);
    memcpy(fleet->stat.fleet_uuid, uuid, sizeof(uuid));
    pthread_mutex_unlock(&fleet->lock);
    if (strcmp(uuid, fleet->known_uuid) != 0 && fleet->on.learned)
        fleet->on.learned(fleet->on.app, uuid);
    memcpy(fleet->known_uuid, uuid, sizeof(uuid));
    return 0;
}

/* A node without registered sessions may join another fleet. */
static bool may_go(const struct gb_fleet *fleet, const struct gb_kvs *meta) {
    struct gb_fleet_session one;
    char uuid[40];
    int64_t cursor = 0;

    return fleet->on.sessions && meta->count > 0 &&
           gb_fleet_meta_read(meta->items[0].value, meta->items[0].bytes, uuid, NULL) == 0 &&
           strcmp(uuid, fleet->member.meta_uuid) != 0 && fleet->on.sessions(fleet->on.app, &cursor, &one, 1) == 0;
}

/* Learns which fleet the directory is of, or checks that it is the same fleet. The directory may have been restored or
 * created again. */
static int check_fleet(struct gb_fleet *fleet, const struct gb_etcd_call *call, struct gb_error *err) {
    struct gb_member *m = &fleet->member;
    const struct gb_kvs *meta = gb_txn_result(&call->txn, 0);

    if (m->meta_uuid[0] != '\0' && may_go(fleet, meta))
        m->meta_uuid[0] = '\0';
    if ((m->meta_uuid[0] == '\0' && learn_fleet(fleet, meta, err) < 0) || gb_fleet_check_meta(fleet, meta, err) < 0)
        return -1;
    if (m->cluster_id != 0 && m->cluster_id != call->txn.cluster_id)
        gb_etcd_rolled_back(&fleet->etcd);
    fleet->etcd.cluster_id = m->cluster_id = call->txn.cluster_id;
    m->meta_created = meta->items[0].create_revision;
    return 0;
}

/* Whether alive/N is of this process (1), of an earlier one of this node (0), or of another node (-1). */
static int whose(const struct gb_fleet *fleet, const char *text, struct gb_error *err) {
    struct gb_fleet_alive alive;

    if (gb_fleet_alive_read(text, strlen(text), &alive, err) < 0)
        return -1;
    if (alive.uuid != fleet->own.uuid) {
        gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                     "another machine with the name \"%s\" is joined; give one of them another with --fleet-node",
                     fleet->own.name.s);
        return -1;
    }
    return alive.incarnation == fleet->member.incarnation;
}

/* The name of another state folder is free once the directory has no sessions of it. */
static int check_name(struct gb_fleet *fleet, const struct gb_kvs *owned, struct gb_error *err) {
    struct gb_member *m = &fleet->member;
    struct gb_fleet_node node = {0};
    struct gb_error ignored = GB_ERROR_INIT;

    if (!m->old_node || owned->count == 0)
        return 0;
    if (gb_fleet_node_read(m->old_node, strlen(m->old_node), &node, &ignored) == 0 && node.uuid == fleet->own.uuid)
        return 0;
    return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                        "the name \"%s\" is of another state folder, whose sessions the fleet still has; take another "
                        "name, or forget that node",
                        fleet->own.name.s);
}

static void ask_ttl(void *arg);

static void on_join_read(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    struct gb_member *m = &fleet->member;
    struct gb_error err = call->error;
    int own = 0;

    if (err.code != GB_OK || check_fleet(fleet, call, &err) < 0) {
        retry(fleet, GB_FLEET_ALONE, &err);
        return;
    }
    check_peers(fleet);
    if (keep(gb_txn_result(&call->txn, 1), &m->old_node, &m->node_revision) < 0 ||
        keep(gb_txn_result(&call->txn, 2), &m->old_alive, &m->alive_revision) < 0) {
        gb_error_set(&err, GB_ERR_SATURATED, "no memory to join");
        retry(fleet, GB_FLEET_ALONE, &err);
        return;
    }
    if (m->old_alive)
        own = whose(fleet, m->old_alive, &err);
    if (own < 0 || check_name(fleet, gb_txn_result(&call->txn, 3), &err) < 0) {
        retry(fleet, GB_FLEET_DUPLICATE, &err);
        return;
    }
    m->test_ms = 0;
    m->foreign = false;
    m->held = own == 1; /* no test: this process wrote it */
    ask_ttl(fleet);
}

static void begin_join(void *arg) {
    struct gb_fleet *fleet = arg;
    struct gb_txn txn = {0};
    struct gb_txn_range owned = {.limit = 1, .keys_only = true};

    fleet->etcd.cluster_id = 0;
    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_get(fleet, &txn, "nodes", fleet->own.name.s, NULL, false);
    gb_fleet_get(fleet, &txn, "alive", fleet->own.name.s, NULL, false);
    gb_fleet_get_all(fleet, &txn, owned, "", "owned", fleet->own.name.s, "");
    send(fleet, GB_ETCD_TXN, gb_txn_finish(&txn), on_join_read);
}

/* --- writing the records ------------------------------------------------------------------------------------------ */

static void on_entered(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    struct gb_member *m = &fleet->member;
    const struct gb_kvs *alive = gb_txn_result(&call->txn, 0);
    struct gb_error err = GB_ERROR_INIT;

    if (call->error.code != GB_OK) {
        retry(fleet, GB_FLEET_ALONE, &call->error);
        return;
    }
    if (call->refusal == 0 && call->txn.succeeded) {
        m->alive_revision = call->txn.revision;
    } else if (call->refusal == 0 && alive->count > 0 && whose(fleet, alive->items[0].value, &err) == 1) {
        m->alive_revision = alive->items[0].mod_revision; /* the first answer was lost */
    } else {
        m->held = false; /* a record has changed: joins again, but not in a tight loop */
        gb_timer_set(&fleet->timers, &m->timer, gb_boot_ms() + 100, begin_join, fleet);
        return;
    }
    m->held = true;
    m->published_ms = gb_boot_ms();
    m->failing_ms = 0;
    m->rotated = false;
    poll_records(fleet);
}

static void enter(struct gb_fleet *fleet) {
    struct gb_member *m = &fleet->member;
    struct gb_fleet_node node;
    struct gb_txn txn = {0};
    struct gb_error err = GB_ERROR_INIT;
    char *node_text;
    char *alive_text;

    member_describe(fleet, &m->published, &node);
    node_text = gb_fleet_node_write(&node, m->old_node, &err);
    alive_text = gb_fleet_alive_write(&m->published, m->old_alive, &err);
    if (!node_text || !alive_text) {
        free(node_text);
        free(alive_text);
        retry(fleet, GB_FLEET_ALONE, &err);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_compare(fleet, &txn, "nodes", fleet->own.name.s, NULL, GB_TXN_MODIFIED, m->node_revision);
    gb_fleet_compare(fleet, &txn, "alive", fleet->own.name.s, NULL, GB_TXN_MODIFIED, m->alive_revision);
    if (!m->old_node || strcmp(m->old_node, node_text) != 0)
        gb_fleet_put(fleet, &txn, "nodes", fleet->own.name.s, NULL, node_text, 0);
    gb_fleet_put(fleet, &txn, "alive", fleet->own.name.s, NULL, alive_text, (int64_t)fleet->own.uuid);
    gb_txn_else(&txn);
    gb_fleet_get(fleet, &txn, "alive", fleet->own.name.s, NULL, false);
    send(fleet, GB_ETCD_TXN, gb_txn_finish(&txn), on_entered);
    free(node_text);
    free(alive_text);
}

static void on_granted(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;

    if (call->error.code != GB_OK) {
        retry(fleet, GB_FLEET_ALONE, &call->error);
    } else if (call->refusal != 0) { /* a duplicate was faster, or an answer was lost */
        fleet->member.held = false;
        begin_join(fleet);
    } else {
        extend_lease(fleet, call);
        enter(fleet);
    }
}

static void grant(struct gb_fleet *fleet) {
    send(fleet, GB_ETCD_GRANT, gb_lease_grant_text((int64_t)fleet->own.uuid, fleet->member.ttl_s), on_granted);
}

/* --- the test for a duplicate ------------------------------------------------------------------------------------- */

static void on_adopted(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;

    if (call->error.code != GB_OK) {
        retry(fleet, GB_FLEET_ALONE, &call->error);
    } else if (call->lease.ttl_s <= 0) {
        grant(fleet);
    } else {
        extend_lease(fleet, call);
        enter(fleet);
    }
}

static void on_given_back(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;

    if (call->error.code != GB_OK)
        retry(fleet, GB_FLEET_ALONE, &call->error);
    else
        begin_join(fleet);
}

/* No other process renews the lease: it is from an earlier process of this node. */
static void adopt(struct gb_fleet *fleet) {
    char *body = gb_lease_text((int64_t)fleet->own.uuid, false);

    if (fleet->member.foreign)
        send(fleet, GB_ETCD_REVOKE, body, on_given_back);
    else
        send(fleet, GB_ETCD_KEEPALIVE, body, on_adopted);
}

static bool has_foreign_key(const struct gb_fleet *fleet, const struct gb_lease_answer *lease) {
    char key[GB_FLEET_KEY_SIZE];
    size_t i;

    gb_fleet_key(fleet, "alive", fleet->own.name.s, NULL, key);
    for (i = 0; i < lease->key_count; i++)
        if (strcmp(lease->keys[i], key) != 0)
            return true;
    return lease->granted_s != fleet->member.ttl_s;
}

/* A lease with more time left than is possible was renewed by another process. The ttl is cut to seconds, so the first
 * sample may have had almost one second more, but never more than the lease's length. A process that renews every third
 * is found within the test. After its renewal at least two thirds less a second are left. Without it, a full lease that
 * has aged for a third and a second has less. */
static bool has_risen(const struct gb_member *m, const struct gb_etcd_call *call) {
    const struct gb_lease_answer *lease = &call->lease;
    int64_t first_s = m->test_ttl + 1 < lease->granted_s ? m->test_ttl + 1 : lease->granted_s;

    return call->sent_ms > m->test_ms && lease->ttl_s * 1000 > first_s * 1000 - (int64_t)(call->sent_ms - m->test_ms);
}

/* The test takes a third of the lease. A node in the state DUPLICATE stays in it until the test has ended. */
static void set_testing(struct gb_fleet *fleet) {
    struct gb_error why = GB_ERROR_INIT;

    gb_error_set(&why, GB_ERR_DIRECTORY_UNAVAILABLE, "waits to see whether another process renews this node's lease");
    if (fleet->stat.state == GB_FLEET_ALONE)
        gb_fleet_set_state(fleet, GB_FLEET_ALONE, &why);
}

static void on_ttl(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    struct gb_member *m = &fleet->member;
    uint64_t now = gb_boot_ms();
    unsigned ttl = m->ttl_s;
    uint64_t end;

    if (call->error.code != GB_OK) {
        retry(fleet, GB_FLEET_ALONE, &call->error);
        return;
    }
    if (call->lease.ttl_s < 0) { /* 0: it has less than a second */
        grant(fleet);
        return;
    }
    m->foreign = has_foreign_key(fleet, &call->lease);
    if (call->lease.granted_s > ttl)
        ttl = call->lease.granted_s < 3600 ? (unsigned)call->lease.granted_s : 3600;
    end = m->test_ms + ttl * 1000ull / 3 + 1000;
    if (m->held) {
        adopt(fleet);
    } else if (m->test_ms == 0) {
        m->test_ms = now;
        m->test_ttl = call->lease.ttl_s;
        set_testing(fleet);
        gb_timer_set(&fleet->timers, &m->timer, now + sample_ms(fleet), ask_ttl, fleet);
    } else if (has_risen(m, call)) {
        duplicate(fleet, "another process with the same state folder is joined: was it copied?");
    } else if (now < end) {
        gb_timer_set(&fleet->timers, &m->timer, end - now < sample_ms(fleet) ? end : now + sample_ms(fleet), ask_ttl,
                     fleet);
    } else {
        adopt(fleet);
    }
}

static void ask_ttl(void *arg) {
    struct gb_fleet *fleet = arg;

    send(fleet, GB_ETCD_TIMETOLIVE, gb_lease_text((int64_t)fleet->own.uuid, true), on_ttl);
}

/* --- renewing ----------------------------------------------------------------------------------------------------- */

static void renew_later(struct gb_fleet *fleet) {
    struct gb_member *m = &fleet->member;
    uint64_t third = gb_member_third_ms(fleet);

    m->rotated = false;
    gb_timer_set(&fleet->timers, &m->timer, gb_boot_ms() + third - chance(third / 5), m->renew, fleet);
}

/* The directory did not answer. Renewals are tried until the lease has run out; other nodes see this one for as
 * long. */
static void fail(struct gb_fleet *fleet, const struct gb_error *why) {
    struct gb_member *m = &fleet->member;
    uint64_t now = gb_boot_ms();
    /* An overloaded hub is overloaded for all its nodes: they retry less often. */
    uint64_t most = fleet->etcd.as ? gb_member_third_ms(fleet) / 2 : 1000;
    uint64_t wait;

    if (now >= m->deadline_ms) {
        retry(fleet, GB_FLEET_ALONE, why);
        return;
    }
    if (m->failing_ms == 0)
        m->failing_ms = now;
    if (now - m->failing_ms >= gb_member_third_ms(fleet) || !m->reconciled)
        gb_fleet_set_state(fleet, GB_FLEET_ALONE, why);
    wait = (m->deadline_ms - now) / 3;
    wait = wait > most ? most : wait < 100 ? 100 : wait;
    gb_timer_set(&fleet->timers, &m->timer, now + wait / 2 + chance(wait / 2 + 1), m->renew, fleet);
}

static void on_reconciled(struct gb_fleet *fleet, bool ok, const struct gb_error *why) {
    struct gb_member *m = &fleet->member;

    m->reconcile = NULL;
    m->must_reconcile = m->must_reconcile || !ok;
    m->reconciled = m->reconciled || ok;
    m->lapsed = m->lapsed && !ok;
    gb_member_update_validity(fleet);
    if (m->reconciled) {
        gb_member_update_state(fleet);
        gb_unregister_sweep(fleet);
        gb_suspects_check(fleet);
    } else {
        gb_fleet_set_state(fleet, GB_FLEET_ALONE, why); /* the next renewal tries again */
    }
}

/* The lease is renewed, and alive/N is this process's. */
static void after_renewal(struct gb_fleet *fleet) {
    struct gb_member *m = &fleet->member;
    struct gb_error err = GB_ERROR_INIT;

    m->failing_ms = 0;
    renew_later(fleet);
    gb_member_publish(fleet);
    gb_member_check_space(fleet);
    if (m->reconciled) {
        gb_member_update_state(fleet);
        gb_unregister_sweep(fleet);
        gb_suspects_check(fleet);
    }
    if (!check_peers(fleet) && (!m->reconciled || m->must_reconcile) && !m->reconcile) {
        m->must_reconcile = false;
        m->last_write_revision = 0;
        m->reconcile = gb_reconcile_all_start(fleet, on_reconciled);
        if (!m->reconcile && gb_error_set(&err, GB_ERR_SATURATED, "no memory to join") < 0)
            gb_fleet_set_state(fleet, GB_FLEET_ALONE, &err);
    }
}

static void on_rotated(struct gb_etcd_call *call) {
    poll_records(call->arg);
}

/* Checks that the record which this node wrote last is still there. If its revision is older, the directory was
 * restored. If another node changed or deleted it, all sessions are reconciled. */
static void check_last_write(struct gb_fleet *fleet, const struct gb_kvs *kvs) {
    struct gb_member *m = &fleet->member;
    int64_t revision = kvs->count > 0 ? kvs->items[0].mod_revision : 0;

    if (m->last_write_revision == 0 || m->last_write_revision != m->polled_write_revision ||
        revision == m->last_write_revision)
        return;
    if (revision > 0 && revision < m->last_write_revision)
        gb_etcd_rolled_back(&fleet->etcd);
    m->must_reconcile = true;
    m->last_write_revision = 0;
}

static void on_polled(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    struct gb_member *m = &fleet->member;
    const struct gb_kvs *alive = gb_txn_result(&call->txn, 1);
    struct gb_error err = GB_ERROR_INIT;
    char *rotation;
    int own;

    if (call->error.code != GB_OK) {
        fail(fleet, &call->error);
        return;
    }
    if (gb_fleet_check_meta(fleet, gb_txn_result(&call->txn, 0), &err) < 0) {
        retry(fleet, GB_FLEET_ALONE, &err);
        return;
    }
    if (alive->count == 0) {
        expire(fleet, "the directory has lost this node's lease");
        return;
    }
    own = whose(fleet, alive->items[0].value, &err);
    if (own != 1) {
        if (own == 0)
            gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE,
                         "another process with the same state folder has joined: was it copied?");
        retry(fleet, GB_FLEET_DUPLICATE, &err);
        return;
    }
    if (!m->write.open) {
        if (alive->items[0].mod_revision < m->alive_revision) /* the last write of this node is lost */
            gb_etcd_rolled_back(&fleet->etcd);
        m->alive_revision = alive->items[0].mod_revision;
    }
    m->polled_ms = gb_boot_ms();
    check_last_write(fleet, gb_txn_result(&call->txn, 3));
    gb_keys_learn(fleet, gb_txn_result(&call->txn, 2));
    rotation = m->rotated ? NULL : gb_keys_rotation(fleet);
    if (rotation) {
        m->rotated = true;
        send(fleet, GB_ETCD_TXN, rotation, on_rotated);
    } else {
        after_renewal(fleet);
    }
}

static void poll_records(struct gb_fleet *fleet) {
    struct gb_txn txn = {0};
    struct gb_txn_range keys = {.limit = 16};

    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_get(fleet, &txn, "alive", fleet->own.name.s, NULL, false);
    gb_fleet_get_all(fleet, &txn, keys, "", "keys", "", NULL);
    fleet->member.polled_write_revision = fleet->member.last_write_revision;
    if (fleet->member.last_write_revision > 0) {
        gb_fleet_get(fleet, &txn, "sessions", fleet->member.last_write.s, NULL, false);
    }
    send(fleet, GB_ETCD_TXN, gb_txn_finish(&txn), on_polled);
}

static void on_renewed(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    struct gb_member *m = &fleet->member;

    if (call->error.code != GB_OK) {
        fail(fleet, &call->error);
        return;
    }
    if (call->lease.ttl_s <= 0) {
        expire(fleet, "this node's lease ran out before it was renewed");
        return;
    }
    extend_lease(fleet, call);
    gb_member_update_validity(fleet);
    pthread_mutex_lock(&fleet->lock);
    fleet->stat.renewals++;
    pthread_mutex_unlock(&fleet->lock);
    /* Reading the records costs the directory twice as much as the renewal, and they change rarely. */
    if (m->reconciled && !m->must_reconcile && m->failing_ms == 0 &&
        gb_boot_ms() - m->polled_ms < 2 * gb_member_third_ms(fleet))
        after_renewal(fleet);
    else
        poll_records(fleet);
}

static void renew(void *arg) {
    struct gb_fleet *fleet = arg;

    if (fleet->member.call.open) /* that call renews when it is answered */
        return;
    send(fleet, GB_ETCD_KEEPALIVE, gb_lease_text((int64_t)fleet->own.uuid, false), on_renewed);
}

/* --- the beginning and the end ------------------------------------------------------------------------------------ */

void gb_member_start(struct gb_fleet *fleet) {
    fleet->member.renew = renew;
    fleet->etcd.most_ms = (unsigned)gb_member_third_ms(fleet);
    begin_join(fleet);
}

void gb_member_cancel(struct gb_fleet *fleet) {
    gb_timer_clear(&fleet->timers, &fleet->member.timer);
    peer_check_cancel(fleet);
    reset(fleet);
}

void gb_member_done(struct gb_fleet *fleet) {
    free(fleet->member.old_node);
    free(fleet->member.old_alive);
}
