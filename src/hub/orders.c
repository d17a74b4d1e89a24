/* Nodes that wait for orders. The directory is looked at for all of them together, as long as some wait. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"
#include "fleet/messages.h"
#include "hub/internal.h"

#define LOOK_MS 500 /* between two looks */
#define LIST_MAX 4096

/* --- answering ---------------------------------------------------------------------------------------------------- */

/* As a transaction that reads the node's orders would be answered. kvs NULL: there are none. */
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

/* --- the orders of a look ----------------------------------------------------------------------------------------- */

struct orders {
    struct gb_name node;
    json_t *kvs;
};

static void add(struct gb_map *map, const char *node, json_t *kv) {
    struct orders *one = gb_map_get(map, node);

    if (!one) {
        one = calloc(1, sizeof(*one));
        if (!one)
            return; /* at the next look */
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

/* By node. */
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

/* --- looking ------------------------------------------------------------------------------------------------------ */

/* Answers those for which there are orders, and those whose time is over, or all. */
static void sweep(struct gb_hub *hub, const struct gb_map *map, uint64_t now_ms, bool all) {
    struct gb_hub_list waits = hub->waits;
    struct gb_hub_item *item;

    if (!waits.first)
        return;
    gb_hub_list_init(&hub->waits);
    while ((item = gb_hub_list_take(&waits))) {
        /* One that came after the look began may have taken out by then what the look has found. */
        const struct orders *own = map && item->since <= hub->looks ? gb_map_get(map, item->node.s) : NULL;

        if (own || all || now_ms >= item->until_ms) {
            hub->waiting--;
            answer(item, own ? own->kvs : NULL);
        } else {
            gb_hub_list_add(&hub->waits, item);
        }
    }
}

static void looked(struct gb_hub_item *item) {
    struct gb_hub *hub = item->hub;
    json_t *root = item->relay.ask.error.code == GB_OK && item->relay.status == 200
                       ? json_loads(item->relay.answer ? item->relay.answer : "", 0, NULL)
                       : NULL;
    const json_t *response = json_array_get(json_object_get(root, "responses"), 0);
    const json_t *kvs = json_object_get(json_object_get(response, "response_range"), "kvs");

    /* A wait that ends later is refused while the directory is silent: an old header would say that it was read. */
    json_decref(hub->header);
    hub->header = json_incref(json_object_get(root, "header"));
    if (root) {
        struct gb_map map = sort(hub, kvs);

        if (map.count > 0)
            sweep(hub, &map, gb_hub_now_ms(), false);
        map_free(&map);
        json_decref(root);
    }
    hub->look = NULL;
    gb_hub_item_free(item);
}

static void look(struct gb_hub *hub) {
    struct gb_txn_range range = {.limit = LIST_MAX, .serializable = true};
    struct gb_txn txn = {0};
    char prefix[GB_HUB_KEY_SIZE];
    char end[GB_HUB_KEY_SIZE];
    char *text;

    hub->look = gb_hub_item_new(hub);
    if (!hub->look)
        return;
    hub->looks++;
    gb_hub_key(hub->name, "ctl/", "", prefix);
    gb_prefix_end(prefix, end, sizeof(end));
    range.key = prefix;
    range.end = end;
    gb_txn_get(&txn, &range);
    text = gb_txn_finish(&txn);
    gb_hub_relay(hub->look, GB_RELAY_TXN, text ? text : "", true, true, looked);
    free(text);
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

void gb_hub_wait_begin(struct gb_hub_item *item) {
    struct gb_hub *hub = item->hub;

    item->until_ms = gb_hub_now_ms() + item->is.wait_ms;
    item->since = hub->looks + 1;
    gb_hub_list_add(&hub->waits, item);
    hub->waiting++;
    if (item->until_ms < hub->wait_due_ms)
        hub->wait_due_ms = item->until_ms;
}

/* All are walked twice a second, not for each request. */
uint64_t gb_hub_waits_run(struct gb_hub *hub, uint64_t now_ms, bool draining) {
    const struct gb_hub_item *item;

    if (!hub->waits.first)
        return UINT64_MAX;
    if (!draining && now_ms < hub->wait_due_ms)
        return hub->wait_due_ms;
    sweep(hub, NULL, now_ms, draining);
    if (!hub->look && now_ms >= hub->looked_ms + LOOK_MS) {
        hub->looked_ms = now_ms;
        look(hub);
    }
    hub->wait_due_ms = hub->looked_ms + LOOK_MS > now_ms ? hub->looked_ms + LOOK_MS : now_ms + LOOK_MS;
    for (item = hub->waits.first; item; item = item->next)
        hub->wait_due_ms = item->until_ms < hub->wait_due_ms ? item->until_ms : hub->wait_due_ms;
    return hub->waits.first ? hub->wait_due_ms : UINT64_MAX;
}
