/* Whose a lease is. A node uses its own alone: else any could keep one that is dead in the fleet, or put out one that
 * is not. A node's lease has the number of its uuid; a grave's is used by none but the one that granted it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/messages.h"
#include "fleet/records.h"
#include "hub/internal.h"

static void write_key(int64_t lease, char *ret, size_t size) {
    snprintf(ret, size, "%" PRId64, lease);
}

/* One that finds no room is asked for in the directory each time. */
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

void gb_hub_leases_free(struct gb_hub *hub) {
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

static void go_on(struct gb_hub_item *item) {
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
        go_on(item);
        return;
    }
    if (err.code == GB_OK)
        gb_error_set(&err, GB_ERR_FORBIDDEN, "the lease %" PRId64 " is not of the node \"%s\"", item->is.lease,
                     item->node.s);
    gb_hub_fail(item, &err);
}

/* The record is written with the node's lease, so the node has it unless it has just begun: then it waits until that
 * lease has run out. */
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

void gb_hub_lease_begin(struct gb_hub_item *item) {
    if (item->is.op == GB_RELAY_GRANT)
        gb_hub_relay(item, GB_RELAY_GRANT, item->text, false, false, granted);
    else if (item->is.op == GB_RELAY_TIMETOLIVE || is_known(item->hub, item->is.lease, &item->node))
        go_on(item);
    else
        ask_record(item);
}
