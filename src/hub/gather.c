/* Readings of many nodes as one transaction: what a request costs etcd is mostly the request. The first goes on at
 * once; those that come within a moment behind it go together. */
#include <stdlib.h>
#include <string.h>

#include "hub/internal.h"

#define GATHER_MS 40

/* --- the answer --------------------------------------------------------------------------------------------------- */

/* The part of one: its responses, with the header of all. */
static char *cut(const json_t *root, size_t from, size_t count) {
    const json_t *all = json_object_get(root, "responses");
    json_t *part = json_array();
    json_t *whole = json_object();
    char *text = NULL;
    size_t i;

    for (i = 0; i < count; i++)
        if (json_array_append(part, json_array_get(all, from + i)) < 0)
            break;
    if (i == count && json_object_set(whole, "header", json_object_get(root, "header")) == 0 &&
        json_object_set_new(whole, "succeeded", json_true()) == 0 && json_object_set(whole, "responses", part) == 0)
        text = json_dumps(whole, JSON_COMPACT);
    json_decref(part);
    json_decref(whole);
    return text;
}

static void give(struct gb_hub_item *item, const struct gb_hub_item *of, const json_t *root, size_t from) {
    item->error = of->relay.ask.error;
    item->status = of->relay.status;
    if (item->error.code == GB_OK) {
        item->answer = root ? cut(root, from, item->is.ops) : strdup(of->relay.answer ? of->relay.answer : "");
        if (!item->answer)
            gb_error_set(&item->error, GB_ERR_SATURATED, "no memory for the answer; try again later");
    }
    gb_hub_answer(item);
}

/* What came of one of them is for all: a range that cannot be read, or results that are too long together. Each is sent
 * by itself, so that none has what another asked for. */
static void send_each(struct gb_hub_item *item) {
    struct gb_hub_item *one;

    while ((one = gb_hub_list_take(&item->together)))
        gb_hub_pass(one);
    gb_hub_item_free(item);
}

/* A 200 in parts. What else is answered is that of the one that it is for. */
static void gathered(struct gb_hub_item *item) {
    bool several = item->together.first && item->together.first->next;
    struct gb_hub_item *one;
    json_t *root = item->relay.ask.error.code == GB_OK && item->relay.status == 200
                       ? json_loads(item->relay.answer ? item->relay.answer : "", 0, NULL)
                       : NULL;
    size_t from = 0;

    /* A directory that is silent, or has too much to do, would have even more. */
    if (!root && several && (item->relay.ask.error.code == GB_OK || item->relay.too_long)) {
        send_each(item);
        return;
    }
    if (item->relay.ask.error.code == GB_OK && item->relay.status == 200 && !root)
        gb_error_set(&item->relay.ask.error, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory's answer cannot be read");
    while ((one = gb_hub_list_take(&item->together))) {
        size_t ops = one->is.ops;

        give(one, item, root, from);
        from += ops;
    }
    json_decref(root);
    gb_hub_item_free(item);
}

/* --- the request -------------------------------------------------------------------------------------------------- */

/* Returns false if there is no memory: they go on in a moment. */
static bool send_all(struct gb_hub *hub) {
    struct gb_hub_item *item = gb_hub_item_new(hub);
    json_t *root = json_object();
    json_t *list = json_array();
    struct gb_hub_item *one;
    size_t ops = 0;
    size_t count = 0;
    char *text = NULL;

    while (item && (one = hub->reads.items.first) && ops + one->is.ops <= GB_HUB_OPS_MAX) {
        (void)gb_hub_batch_take(&hub->reads, one->is.ops);
        ops += one->is.ops;
        count++;
        json_array_extend(list, json_object_get(one->body, "success"));
        gb_hub_list_add(&item->together, one);
    }
    if (item && json_array_size(list) == ops && json_object_set(root, "success", list) == 0)
        text = json_dumps(root, JSON_COMPACT);
    json_decref(list);
    json_decref(root);
    if (!item)
        return false;
    if (count > 1)
        gb_hub_count_gathered(hub, count);
    gb_hub_relay(item, GB_RELAY_TXN, text ? text : "", true, false, gathered);
    free(text);
    return true;
}

void gb_hub_gather(struct gb_hub_item *item) {
    gb_hub_batch_add(&item->hub->reads, item, item->is.ops);
}

uint64_t gb_hub_gather_run(struct gb_hub *hub, uint64_t now_ms) {
    return gb_hub_batch_run(hub, &hub->reads, now_ms, GATHER_MS, GB_HUB_OPS_MAX, send_all);
}
