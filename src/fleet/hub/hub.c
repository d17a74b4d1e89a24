/* The thread of a hub: leases and whose they are, nodes that wait for orders, and the queue of requests. Only the
 * thread touches items; the lock guards the queues to and from it. The API sends requests; the fleet's thread returns
 * relayed answers. */
#include "fleet/hub/hub.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/encoding.h"
#include "base/thread.h"
#include "fleet/hub/check.h"
#include "fleet/hub/request.h"
#include "fleet/messages.h"
#include "fleet/records.h"

#define POLL_MS 500 /* between two polls */
#define LIST_MAX 4096

/* --- leases ------------------------------------------------------------------------------------------------------- */

/* The id of a node's lease is its uuid. Only the node that granted a tombstone's lease uses that one. */

static void write_key(int64_t lease, char *ret, size_t size) {
    snprintf(ret, size, "%" PRId64, lease);
}

/* A lease for which the map has no room is looked up in the directory each time. */
static void remember(struct gb_hub *hub, int64_t lease, const struct gb_name *node) {
    struct gb_hub_lease *one;

    if (hub->leases.count >= GB_HUB_LEASES_MAX)
        return;
    one = calloc(1, sizeof(*one));
    if (!one)
        return;
    write_key(lease, one->key, sizeof(one->key));
    one->node = *node;
    free(gb_map_take(&hub->leases, one->key));
    if (gb_map_put(&hub->leases, one->key, one) < 0)
        free(one);
}

static bool is_known(const struct gb_hub *hub, int64_t lease, const struct gb_name *node) {
    const struct gb_hub_lease *one;
    char key[24];

    write_key(lease, key, sizeof(key));
    one = gb_map_get(&hub->leases, key);
    return one && gb_name_equal(&one->node, node);
}

static void hub_leases_free(struct gb_hub *hub) {
    struct gb_hub_lease *one;
    size_t at = 0;

    while ((one = gb_map_next(&hub->leases, &at)))
        free(one);
    gb_map_done(&hub->leases);
}

/* --- granting ----------------------------------------------------------------------------------------------------- */

static void granted(struct gb_hub_item *item) {
    if (item->relay.ask.error.code == GB_OK && item->relay.status == 200)
        remember(item->hub, item->is.lease, &item->node);
    gb_hub_answer_relayed(item);
}

/* --- using -------------------------------------------------------------------------------------------------------- */

static bool is_of_node(const struct gb_hub_item *item) {
    const char *text = item->relay.answer ? item->relay.answer : "";
    struct gb_txn_answer answer = {0};
    struct gb_fleet_node node = {.name = item->node};
    const struct gb_kvs *kvs;
    bool same;

    if (item->relay.status != 200 || gb_txn_read(text, strlen(text), &answer, NULL) < 0)
        return false;
    kvs = gb_txn_result(&answer, 0);
    same = kvs->count == 1 && gb_fleet_node_read(kvs->items[0].value, kvs->items[0].bytes, &node, NULL) == 0 &&
           node.uuid == (uint64_t)item->is.lease;
    gb_txn_answer_done(&answer);
    return same;
}

static void forward(struct gb_hub_item *item) {
    if (item->is.op == GB_RELAY_KEEPALIVE)
        gb_hub_renew(item);
    else
        gb_hub_pass(item);
}

static void on_record(struct gb_hub_item *item) {
    struct gb_error err = item->relay.ask.error;
    bool same = err.code == GB_OK && is_of_node(item);

    free(item->relay.answer);
    item->relay.answer = NULL;
    if (same) {
        remember(item->hub, item->is.lease, &item->node);
        forward(item);
        return;
    }
    if (err.code == GB_OK)
        gb_error_set(&err, GB_ERR_FORBIDDEN, "the lease %" PRId64 " is not of the node \"%s\"", item->is.lease,
                     item->node.s);
    gb_hub_fail(item, &err);
}

/* nodes/N shows the node's uuid, which is the id of its lease. A new node of the same name waits until the old lease
 * has run out. */
static void ask_record(struct gb_hub_item *item) {
    struct gb_txn_range range = {.key = NULL};
    struct gb_txn txn = {0};
    char key[GB_HUB_KEY_SIZE];
    char *text;

    gb_hub_key(item->hub->name, "nodes/", item->node.s, key);
    range.key = key;
    gb_txn_get(&txn, &range);
    text = gb_txn_finish(&txn);
    gb_hub_relay(item, GB_RELAY_TXN, text, true, false, on_record);
    free(text);
}

/* A request with a lease is relayed if the lease is the node's. */
static void hub_lease_begin(struct gb_hub_item *item) {
    if (item->is.op == GB_RELAY_GRANT)
        gb_hub_relay(item, GB_RELAY_GRANT, item->text, false, false, granted);
    else if (item->is.op == GB_RELAY_TIMETOLIVE || is_known(item->hub, item->is.lease, &item->node))
        forward(item);
    else
        ask_record(item);
}

/* --- orders: answering -------------------------------------------------------------------------------------------- */

/* Answers as the directory would answer a transaction that reads the node's orders. kvs NULL: no orders. */
static void answer(struct gb_hub_item *item, json_t *kvs) {
    const struct gb_hub *hub = item->hub;
    json_t *range = json_object();
    json_t *root = hub->header ? json_pack("{s:O, s:b, s:[{s:O}]}", "header", hub->header, "succeeded", 1, "responses",
                                           "response_range", range)
                               : NULL;

    item->status = 200;
    if (root && (!kvs || json_object_set(range, "kvs", kvs) == 0))
        item->answer = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    json_decref(range);
    if (!hub->header)
        gb_error_set(&item->error, GB_ERR_DIRECTORY_UNAVAILABLE, "the hub's directory does not answer");
    else if (!item->answer)
        gb_error_set(&item->error, GB_ERR_SATURATED, "no memory for the answer; try again later");
    gb_hub_answer(item);
}

/* --- the orders of a poll ----------------------------------------------------------------------------------------- */

struct orders {
    struct gb_name node;
    json_t *kvs;
};

static void add(struct gb_map *map, const char *node, json_t *kv) {
    struct orders *one = gb_map_get(map, node);

    if (!one) {
        one = calloc(1, sizeof(*one));
        if (!one)
            return; /* the next poll adds it */
        snprintf(one->node.s, sizeof(one->node.s), "%s", node);
        one->kvs = json_array();
        if (gb_map_put(map, one->node.s, one) < 0) {
            json_decref(one->kvs);
            free(one);
            return;
        }
    }
    json_array_append(one->kvs, kv);
}

/* Groups orders by node. */
static struct gb_map sort(const struct gb_hub *hub, const json_t *kvs) {
    struct gb_map map = {0};
    char prefix[GB_HUB_KEY_SIZE];
    size_t i;

    gb_hub_key(hub->name, "ctl/", "", prefix);
    for (i = 0; i < json_array_size(kvs); i++) {
        json_t *kv = json_array_get(kvs, i);
        const char *text = json_string_value(json_object_get(kv, "key"));
        char *key;
        size_t n;

        if (!text || !gb_base64_read(text, strlen(text), false, &key, &n))
            continue;
        if (strncmp(key, prefix, strlen(prefix)) == 0) {
            char *node = key + strlen(prefix);

            node[strcspn(node, "/")] = '\0';
            if (strlen(node) <= GB_NAME_MAX)
                add(&map, node, kv);
        }
        free(key);
    }
    return map;
}

static void map_free(struct gb_map *map) {
    struct orders *one;
    size_t at = 0;

    while ((one = gb_map_next(map, &at))) {
        json_decref(one->kvs);
        free(one);
    }
    gb_map_done(map);
}

/* --- polling ------------------------------------------------------------------------------------------------------ */

/* Answers waits of nodes that have orders, and waits whose time has ended; all waits if `all` is set. */
static void answer_waits(struct gb_hub *hub, const struct gb_map *map, uint64_t now_ms, bool all) {
    struct gb_hub_list waits = hub->waits;
    struct gb_hub_item *item;

    if (!waits.first)
        return;
    gb_hub_list_init(&hub->waits);
    while ((item = gb_hub_list_take(&waits))) {
        /* A wait that came after the poll began may be of a node that has already deleted these orders. */
        const struct orders *own = map && item->since <= hub->polls ? gb_map_get(map, item->node.s) : NULL;

        if (own || all || now_ms >= item->until_ms) {
            hub->waiting--;
            answer(item, own ? own->kvs : NULL);
        } else {
            gb_hub_list_add(&hub->waits, item);
        }
    }
}

static void polled(struct gb_hub_item *item) {
    struct gb_hub *hub = item->hub;
    json_t *root = item->relay.ask.error.code == GB_OK && item->relay.status == 200
                       ? json_loads(item->relay.answer ? item->relay.answer : "", 0, NULL)
                       : NULL;
    const json_t *response = json_array_get(json_object_get(root, "responses"), 0);
    const json_t *kvs = json_object_get(json_object_get(response, "response_range"), "kvs");

    /* Without a new header, later waits fail while the directory does not answer. An old header would claim a fresh
     * read. */
    json_decref(hub->header);
    hub->header = json_incref(json_object_get(root, "header"));
    if (root) {
        struct gb_map map = sort(hub, kvs);

        if (map.count > 0)
            answer_waits(hub, &map, gb_hub_now_ms(), false);
        map_free(&map);
        json_decref(root);
    }
    hub->poll = NULL;
    gb_hub_item_free(item);
}

static void poll(struct gb_hub *hub) {
    struct gb_txn_range range = {.limit = LIST_MAX, .serializable = true};
    struct gb_txn txn = {0};
    char prefix[GB_HUB_KEY_SIZE];
    char end[GB_HUB_KEY_SIZE];
    char *text;

    hub->poll = gb_hub_item_new(hub);
    if (!hub->poll)
        return;
    hub->polls++;
    gb_hub_key(hub->name, "ctl/", "", prefix);
    gb_prefix_end(prefix, end, sizeof(end));
    range.key = prefix;
    range.end = end;
    gb_txn_get(&txn, &range);
    text = gb_txn_finish(&txn);
    gb_hub_relay(hub->poll, GB_RELAY_TXN, text ? text : "", true, true, polled);
    free(text);
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static void hub_wait_begin(struct gb_hub_item *item) {
    struct gb_hub *hub = item->hub;

    item->until_ms = gb_hub_now_ms() + item->is.wait_ms;
    item->since = hub->polls + 1;
    gb_hub_list_add(&hub->waits, item);
    hub->waiting++;
    if (item->until_ms < hub->wait_due_ms)
        hub->wait_due_ms = item->until_ms;
}

/* The list of waits is walked twice a second, not for each request. */
static uint64_t hub_waits_run(struct gb_hub *hub, uint64_t now_ms, bool draining) {
    const struct gb_hub_item *item;

    if (!hub->waits.first)
        return UINT64_MAX;
    if (!draining && now_ms < hub->wait_due_ms)
        return hub->wait_due_ms;
    answer_waits(hub, NULL, now_ms, draining);
    if (!hub->poll && now_ms >= hub->polled_ms + POLL_MS) {
        hub->polled_ms = now_ms;
        poll(hub);
    }
    hub->wait_due_ms = hub->polled_ms + POLL_MS > now_ms ? hub->polled_ms + POLL_MS : now_ms + POLL_MS;
    for (item = hub->waits.first; item; item = item->next)
        hub->wait_due_ms = item->until_ms < hub->wait_due_ms ? item->until_ms : hub->wait_due_ms;
    return hub->waits.first ? hub->wait_due_ms : UINT64_MAX;
}

/* --- the hub ------------------------------------------------------------------------------------------------------ */

static void begin(struct gb_hub_item *item) {
    if (item->is.waits)
        hub_wait_begin(item);
    else if (item->is.op != GB_RELAY_TXN)
        hub_lease_begin(item);
    else if (item->is.reads && !item->is.serializable && item->is.ops > 0)
        gb_hub_gather(item);
    else
        gb_hub_pass(item);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

/* `to` is empty. */
static void move_all(struct gb_hub_list *from, struct gb_hub_list *to) {
    if (!from->first)
        return;
    *to = *from;
    gb_hub_list_init(from);
}

/* Waits for requests or answers, until due_ms at most. Returns false once the hub stops. */
static bool await(struct gb_hub *hub, uint64_t due_ms, struct gb_hub_list *queue, struct gb_hub_list *relayed) {
    uint64_t now_ms = gb_hub_now_ms();
    bool stopping;

    pthread_mutex_lock(&hub->lock);
    if (!hub->stopping && !hub->queue.first && !hub->relayed.first && due_ms > now_ms) {
        struct timespec until = gb_after_ms(due_ms == UINT64_MAX ? 60000 : due_ms - now_ms);

        pthread_cond_timedwait(&hub->woken, &hub->lock, &until);
    }
    stopping = hub->stopping;
    move_all(&hub->queue, queue);
    move_all(&hub->relayed, relayed);
    pthread_mutex_unlock(&hub->lock);
    return !stopping;
}

static void run_relayed(struct gb_hub *hub, struct gb_hub_list *relayed) {
    struct gb_hub_item *item;

    while ((item = gb_hub_list_take(relayed))) {
        hub->relays--;
        item->relayed(item);
    }
}

static void fail_all(struct gb_hub_list *list) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_hub_item *item;

    gb_error_set(&err, GB_ERR_DRAINING, "the hub stops");
    while ((item = gb_hub_list_take(list)))
        gb_hub_fail(item, &err);
}

/* Relayed requests are awaited: the directory answers within seconds. */
static void drain(struct gb_hub *hub, struct gb_hub_list *queue, struct gb_hub_list *relayed) {
    for (;;) {
        run_relayed(hub, relayed);
        gb_hub_send_delayed(hub);
        fail_all(queue);
        fail_all(&hub->reads.items);
        fail_all(&hub->renewals.items);
        fail_all(&hub->waits);
        if (hub->relays == 0)
            return;
        pthread_mutex_lock(&hub->lock);
        while (!hub->relayed.first)
            pthread_cond_wait(&hub->woken, &hub->lock);
        pthread_mutex_unlock(&hub->lock);
        await(hub, 0, queue, relayed);
    }
}

static void *run(void *arg) {
    struct gb_hub *hub = arg;
    struct gb_hub_list queue;
    struct gb_hub_list relayed;
    uint64_t due_ms = UINT64_MAX;

    gb_hub_list_init(&queue);
    gb_hub_list_init(&relayed);
    while (await(hub, due_ms, &queue, &relayed)) {
        struct gb_hub_item *item;
        uint64_t now_ms;
        uint64_t renew_ms;
        uint64_t waits_ms;
        bool draining;

        run_relayed(hub, &relayed);
        gb_hub_send_delayed(hub);
        while ((item = gb_hub_list_take(&queue)))
            begin(item);
        pthread_mutex_lock(&hub->lock);
        draining = hub->draining;
        hub->stat.waiting = hub->waiting;
        pthread_mutex_unlock(&hub->lock);
        now_ms = gb_hub_now_ms();
        due_ms = gb_hub_gather_run(hub, now_ms);
        renew_ms = gb_hub_renew_run(hub, now_ms);
        waits_ms = hub_waits_run(hub, now_ms, draining);
        due_ms = renew_ms < due_ms ? renew_ms : due_ms;
        due_ms = waits_ms < due_ms ? waits_ms : due_ms;
    }
    drain(hub, &queue, &relayed);
    return NULL;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static struct gb_hub_item *item_of(struct gb_hub *hub, struct gb_hub_ask *ask, struct gb_error *err) {
    struct gb_hub_item *item = gb_hub_item_new(hub);

    if (!item) {
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
        return NULL;
    }
    item->ask = ask;
    item->node = ask->node;
    if (gb_hub_check(hub->name, &ask->node, ask->op, ask->body, &item->is, &item->body, err) == 0) {
        item->text = strdup(ask->body);
        if (item->text)
            return item;
        gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    }
    gb_hub_item_free(item);
    return NULL;
}

int gb_hub_send(struct gb_hub *hub, struct gb_hub_ask *ask, struct gb_error *err) {
    struct gb_hub_item *item = item_of(hub, ask, err);

    ask->error = GB_ERROR_INIT;
    ask->status = 0;
    ask->answer = NULL;
    ask->item = item;
    pthread_mutex_lock(&hub->lock);
    hub->stat.requests++;
    hub->stat.refused += !item;
    if (item)
        gb_hub_list_add(&hub->queue, item);
    pthread_cond_signal(&hub->woken);
    pthread_mutex_unlock(&hub->lock);
    return item ? 0 : -1;
}

void gb_hub_cancel(struct gb_hub *hub, struct gb_hub_ask *ask) {
    pthread_mutex_lock(&hub->lock);
    if (ask->item)
        ((struct gb_hub_item *)ask->item)->ask = NULL;
    ask->item = NULL;
    while (hub->delivering == ask)
        pthread_cond_wait(&hub->delivered, &hub->lock);
    pthread_mutex_unlock(&hub->lock);
}

void gb_hub_drain(struct gb_hub *hub) {
    pthread_mutex_lock(&hub->lock);
    hub->draining = true;
    pthread_cond_signal(&hub->woken);
    pthread_mutex_unlock(&hub->lock);
}

void gb_hub_stat(struct gb_hub *hub, struct gb_hub_stat *ret) {
    pthread_mutex_lock(&hub->lock);
    *ret = hub->stat;
    pthread_mutex_unlock(&hub->lock);
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static void destroy(struct gb_hub *hub) {
    hub_leases_free(hub);
    json_decref(hub->header);
    pthread_cond_destroy(&hub->delivered);
    pthread_cond_destroy(&hub->woken);
    pthread_mutex_destroy(&hub->lock);
    free(hub->name);
    free(hub);
}

int gb_hub_open(const struct gb_hub_config *config, struct gb_hub **ret, struct gb_error *err) {
    struct gb_hub *hub = calloc(1, sizeof(*hub));

    *ret = NULL;
    if (!hub)
        return gb_error_set(err, GB_ERR_INTERNAL, "no memory for the hub");
    hub->fleet = config->fleet;
    hub->name = strdup(config->name);
    gb_hub_list_init(&hub->delayed);
    gb_hub_list_init(&hub->reads.items);
    gb_hub_list_init(&hub->renewals.items);
    gb_hub_list_init(&hub->waits);
    gb_hub_list_init(&hub->queue);
    gb_hub_list_init(&hub->relayed);
    gb_mutex_init(&hub->lock);
    gb_cond_init(&hub->woken);
    gb_cond_init(&hub->delivered);
    if (!hub->name)
        gb_error_set(err, GB_ERR_INTERNAL, "no memory for the hub");
    if (!hub->name || gb_thread_start(&hub->thread, "gb-hub", run, hub, err) < 0) {
        destroy(hub);
        return -1;
    }
    *ret = hub;
    return 0;
}

void gb_hub_close(struct gb_hub *hub) {
    if (!hub)
        return;
    pthread_mutex_lock(&hub->lock);
    hub->stopping = true;
    pthread_cond_signal(&hub->woken);
    pthread_mutex_unlock(&hub->lock);
    pthread_join(hub->thread, NULL);
    destroy(hub);
}
