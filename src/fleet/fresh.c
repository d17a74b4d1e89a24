/* A process that has just begun knows nothing of what the directory was a moment ago. If that was restored then, its
 * nodes have noticed, as their connections to it have ended: some of them are asked, at /livez, whether they are in
 * doubt. Until they have answered, this node compares none of its sessions, and says of no name that it is absent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/hash.h"
#include "fleet/internal.h"

#define NODES_READ 16
#define PEERS_MAX 8
#define PEER_MS 1000

struct peer {
    struct gb_fresh *fresh;
    struct gb_http_ask http;
    char url[GB_FLEET_URL_SIZE + 8];
};

struct gb_fresh {
    struct gb_fleet *fleet;
    struct gb_etcd_call call;
    struct peer peers[PEERS_MAX];
    size_t count;
    size_t open;
};

void gb_fresh_cancel(struct gb_fleet *fleet) {
    struct gb_fresh *fresh = fleet->member.fresh;
    size_t i;

    if (!fresh)
        return;
    gb_etcd_cancel(&fresh->call);
    for (i = 0; i < fresh->count; i++)
        gb_http_client_cancel(&fresh->peers[i].http);
    free(fresh);
    fleet->member.fresh = NULL;
}

static void end(struct gb_fleet *fleet) {
    gb_fresh_cancel(fleet);
    atomic_store(&fleet->fresh, false);
    gb_member_soon(fleet);
}

static void on_peer(struct gb_http_ask *http) {
    struct gb_fresh *fresh = gb_container_of(http, struct peer, http)->fresh;
    struct gb_fleet *fleet = fresh->fleet;

    free(http->answer);
    http->answer = NULL;
    if (http->status > 0 && http->doubt_s > 0)
        gb_restored_suspect(fleet, http->doubt_s);
    if (--fresh->open == 0)
        end(fleet);
}

static void ask(struct gb_fresh *fresh, struct peer *peer) {
    peer->fresh = fresh;
    peer->http = (struct gb_http_ask){.method = "GET", .url = peer->url};
    peer->http.connect_ms = PEER_MS;
    peer->http.total_ms = PEER_MS;
    peer->http.answer_max = 1 << 16;
    peer->http.done = on_peer;
    if (gb_fleet_http_start(fresh->fleet->client, &peer->http, NULL) == 0)
        fresh->open++;
}

/* Each of those that were read is as likely as another. */
static void choose(struct gb_fresh *fresh, const struct gb_kv *kv, const char *prefix, size_t seen) {
    struct gb_fleet_node node;
    struct gb_name name;
    uint32_t at = (uint32_t)seen;

    if (seen >= PEERS_MAX && (gb_random(&at, sizeof(at), NULL) < 0 || (at %= seen + 1) >= PEERS_MAX))
        return;
    if (!gb_fleet_name_of(kv->key, prefix, &name) || gb_name_equal(&name, &fresh->fleet->own.name) ||
        gb_fleet_node_of(name.s, kv, NULL, &node, NULL) < 0 || node.url_count == 0)
        return;
    at = fresh->count < PEERS_MAX ? (uint32_t)fresh->count++ : at;
    snprintf(fresh->peers[at].url, sizeof(fresh->peers[at].url), "%s/livez", node.urls[0].url);
}

static void on_nodes(struct gb_etcd_call *call) {
    struct gb_fresh *fresh = call->arg;
    struct gb_fleet *fleet = fresh->fleet;
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    char prefix[GB_FLEET_KEY_SIZE];
    size_t i;

    if (call->error.code != GB_OK || gb_fleet_check_meta(fleet, gb_txn_result(&call->txn, 0), NULL) < 0) {
        /* The next renewal takes it up, unless there is more than can be read. */
        if (call->ask.too_long)
            end(fleet);
        else
            gb_fresh_cancel(fleet);
        return;
    }
    gb_fleet_key(fleet, "nodes", "", NULL, prefix);
    for (i = 0; i < kvs->count; i++)
        choose(fresh, &kvs->items[i], prefix, i);
    for (i = 0; i < fresh->count; i++)
        ask(fresh, &fresh->peers[i]);
    if (fresh->open == 0)
        end(fleet);
}

bool gb_fresh_look(struct gb_fleet *fleet) {
    struct gb_fresh *fresh = fleet->member.fresh;
    struct gb_txn txn = {0};
    struct gb_txn_range range = {.limit = NODES_READ};
    char key[GB_FLEET_KEY_SIZE];
    char last[GB_FLEET_KEY_SIZE];

    if (!atomic_load(&fleet->fresh))
        return false;
    if (fleet->etcd.as) { /* a hub tells with each answer */
        atomic_store(&fleet->fresh, false);
        return false;
    }
    if (fresh)
        return true;
    fresh = fleet->member.fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return true;
    fresh->fleet = fleet;
    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_key(fleet, "nodes", "", NULL, key);
    gb_prefix_end(key, last, sizeof(last));
    range.key = key;
    range.end = last;
    gb_txn_get(&txn, &range);
    fresh->call.arg = fresh;
    fresh->call.done = on_nodes;
    gb_etcd_send(&fleet->etcd, &fresh->call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_member_deadline(fleet), true,
                 GB_ETCD_PROBE);
    return true;
}
