/* Requests at a hub: their lists, relaying them to the directory, answering them, and gathering reads and renewals into
 * one request. Each item is answered once and then freed. hub.c calls; everything runs on the hub's thread. */
#include "fleet/hub/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/encoding.h"
#include "base/thread.h"
#include "fleet/hub/check.h"
#include "fleet/messages.h"
#include "fleet/records.h"

/* --- request ------------------------------------------------------------------------------------------------------ */

uint64_t gb_hub_now_ms(void) {
    return gb_clock_ns() / GB_NS_PER_MS;
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

void gb_hub_list_init(struct gb_hub_list *list) {
    list->first = NULL;
    list->end = &list->first;
}

void gb_hub_list_add(struct gb_hub_list *list, struct gb_hub_item *item) {
    item->next = NULL;
    *list->end = item;
    list->end = &item->next;
}

struct gb_hub_item *gb_hub_list_take(struct gb_hub_list *list) {
    struct gb_hub_item *item = list->first;

    if (!item)
        return NULL;
    list->first = item->next;
    if (!list->first)
        list->end = &list->first;
    return item;
}

static void hub_batch_add(struct gb_hub_batch *batch, struct gb_hub_item *item, size_t size) {
    gb_hub_list_add(&batch->items, item);
    batch->size += size;
}

/* size: of the first item */
static struct gb_hub_item *hub_batch_take(struct gb_hub_batch *batch, size_t size) {
    struct gb_hub_item *item = gb_hub_list_take(&batch->items);

    batch->size -= item ? size : 0;
    return item;
}

/* Sends a batch every every_ms, or as soon as its size reaches max. send takes items from the batch; it returns false
 * without memory, and is tried again later. Returns when the next batch is due, or UINT64_MAX. */
static uint64_t hub_batch_run(struct gb_hub *hub, struct gb_hub_batch *batch, uint64_t now_ms, uint64_t every_ms,
                              size_t max, bool (*send)(struct gb_hub *hub)) {
    while (batch->items.first && (now_ms >= batch->sent_ms + every_ms || batch->size >= max)) {
        batch->sent_ms = now_ms;
        if (!send(hub))
            break;
    }
    return batch->items.first ? batch->sent_ms + every_ms : UINT64_MAX;
}

/* --- items -------------------------------------------------------------------------------------------------------- */

struct gb_hub_item *gb_hub_item_new(struct gb_hub *hub) {
    struct gb_hub_item *item = calloc(1, sizeof(*item));

    if (!item)
        return NULL;
    item->hub = hub;
    gb_hub_list_init(&item->together);
    return item;
}

void gb_hub_item_free(struct gb_hub_item *item) {
    json_decref(item->body);
    free(item->text);
    free(item->answer);
    free(item->relay.answer);
    free(item->delayed);
    free(item);
}

void gb_hub_answer(struct gb_hub_item *item) {
    struct gb_hub *hub = item->hub;
    struct gb_hub_ask *ask;

    if (item->error.code == GB_OK && !item->answer)
        gb_error_set(&item->error, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory answered %d without a word",
                     item->status);
    pthread_mutex_lock(&hub->lock);
    ask = item->ask;
    if (ask) {
        ask->error = item->error;
        ask->status = item->status;
        ask->answer = item->answer;
        item->answer = NULL;
        ask->item = NULL;
        hub->delivering = ask;
    }
    hub->stat.refused += item->error.code == GB_ERR_FORBIDDEN || item->error.code == GB_ERR_INVALID_ARGUMENT;
    pthread_mutex_unlock(&hub->lock);
    if (ask) {
        ask->done(ask);
        pthread_mutex_lock(&hub->lock);
        hub->delivering = NULL;
        pthread_cond_broadcast(&hub->delivered);
        pthread_mutex_unlock(&hub->lock);
    }
    gb_hub_item_free(item);
}

void gb_hub_answer_relayed(struct gb_hub_item *item) {
    item->error = item->relay.ask.error;
    item->status = item->relay.status;
    item->answer = item->relay.answer;
    item->relay.answer = NULL;
    gb_hub_answer(item);
}

void gb_hub_fail(struct gb_hub_item *item, const struct gb_error *err) {
    item->error = *err;
    gb_hub_answer(item);
}

/* --- relaying ----------------------------------------------------------------------------------------------------- */

/* On the fleet's thread. */
static void on_relayed(struct gb_fleet_ask *ask) {
    struct gb_hub_item *item = gb_container_of(ask, struct gb_hub_item, relay.ask);
    struct gb_hub *hub = item->hub;

    pthread_mutex_lock(&hub->lock);
    gb_hub_list_add(&hub->relayed, item);
    pthread_cond_signal(&hub->woken);
    pthread_mutex_unlock(&hub->lock);
}

static void send(struct gb_hub_item *item, const char *text) {
    struct gb_hub *hub = item->hub;

    item->relay.body = text;
    hub->relays++;
    pthread_mutex_lock(&hub->lock);
    hub->stat.sent++;
    pthread_mutex_unlock(&hub->lock);
    gb_fleet_relay(hub->fleet, &item->relay);
}

/* An overloaded etcd that gets all requests answers all of them too late: some are delayed here. */
static void hold(struct gb_hub_item *item, const char *text) {
    item->delayed = strdup(text);
    item->delayed_ms = gb_hub_now_ms();
    gb_hub_list_add(&item->hub->delayed, item);
}

void gb_hub_relay(struct gb_hub_item *item, enum gb_fleet_relay_op op, const char *text, bool reads, bool serializable,
                  void (*relayed)(struct gb_hub_item *item)) {
    struct gb_hub *hub = item->hub;

    item->relayed = relayed;
    item->relay =
        (struct gb_fleet_relay){.ask = {.done = on_relayed}, .op = op, .reads = reads, .serializable = serializable};
    if (hub->relays < GB_HUB_RELAYS_MAX && !hub->delayed.first)
        send(item, text ? text : "");
    else
        hold(item, text ? text : "");
}

void gb_hub_send_delayed(struct gb_hub *hub) {
    struct gb_hub_item *item;

    while (hub->relays < GB_HUB_RELAYS_MAX && (item = gb_hub_list_take(&hub->delayed))) {
        char *text = item->delayed;

        item->delayed = NULL;
        if (text && gb_hub_now_ms() - item->delayed_ms < GB_HUB_DELAY_MS) {
            send(item, text);
        } else {
            gb_error_set(&item->relay.ask.error, GB_ERR_SATURATED, "the hub has too much to do; try again later");
            item->relayed(item);
        }
        free(text);
    }
}

/* Counts requests that were relayed as one. */
static void hub_count_gathered(struct gb_hub *hub, size_t count) {
    pthread_mutex_lock(&hub->lock);
    hub->stat.gathered += count;
    pthread_mutex_unlock(&hub->lock);
}

void gb_hub_pass(struct gb_hub_item *item) {
    gb_hub_relay(item, item->is.op, item->text, item->is.reads, item->is.serializable, gb_hub_answer_relayed);
}

/* --- gather ------------------------------------------------------------------------------------------------------- */

/* Requests that come at nearly the same time are relayed as one, because a request costs etcd more than its content.
 * Reads become one transaction. Renewals become several messages in one body, and the gateway answers each. The first
 * request is relayed at once; those that follow within a moment are relayed together. */

#define GATHER_MS 40
#define RENEW_MS 100      /* a short delay of a renewal that comes every ten seconds */
#define MESSAGE_SIZE 29   /* {"ID":"9223372036854775807"} */
#define GATEWAY_READS 512 /* of a body: etcd 3.4 loses what follows before its first answer */
#define TOGETHER_MAX (GATEWAY_READS / MESSAGE_SIZE)

/* --- readings: the answer ----------------------------------------------------------------------------------------- */

/* The answer to one item: its own responses, with the common header. */
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

static void give_readings(struct gb_hub_item *item, const struct gb_hub_item *of, const json_t *root, size_t from) {
    item->error = of->relay.ask.error;
    item->status = of->relay.status;
    if (item->error.code == GB_OK) {
        item->answer = root ? cut(root, from, item->is.ops) : strdup(of->relay.answer ? of->relay.answer : "");
        if (!item->answer)
            gb_error_set(&item->error, GB_ERR_SATURATED, "no memory for the answer; try again later");
    }
    gb_hub_answer(item);
}

/* An error may concern one item alone: a range that cannot be read, or results that are too long together. Each item is
 * then relayed by itself. */
static void send_each(struct gb_hub_item *item) {
    struct gb_hub_item *one;

    while ((one = gb_hub_list_take(&item->together)))
        gb_hub_pass(one);
    gb_hub_item_free(item);
}

/* Splits an answer with status 200. After another answer each item is relayed by itself. */
static void gathered(struct gb_hub_item *item) {
    bool several = item->together.first && item->together.first->next;
    struct gb_hub_item *one;
    json_t *root = item->relay.ask.error.code == GB_OK && item->relay.status == 200
                       ? json_loads(item->relay.answer ? item->relay.answer : "", 0, NULL)
                       : NULL;
    size_t from = 0;

    /* A directory that does not answer gets no further requests: all items fail. */
    if (!root && several && (item->relay.ask.error.code == GB_OK || item->relay.too_long)) {
        send_each(item);
        return;
    }
    if (item->relay.ask.error.code == GB_OK && item->relay.status == 200 && !root)
        gb_error_set(&item->relay.ask.error, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory's answer cannot be read");
    while ((one = gb_hub_list_take(&item->together))) {
        size_t ops = one->is.ops;

        give_readings(one, item, root, from);
        from += ops;
    }
    json_decref(root);
    gb_hub_item_free(item);
}

/* --- readings: the request ---------------------------------------------------------------------------------------- */

/* Returns false without memory; the caller tries again later. */
static bool send_all(struct gb_hub *hub) {
    struct gb_hub_item *item = gb_hub_item_new(hub);
    json_t *root = json_object();
    json_t *list = json_array();
    struct gb_hub_item *one;
    size_t ops = 0;
    size_t count = 0;
    char *text = NULL;

    while (item && (one = hub->reads.items.first) && ops + one->is.ops <= GB_HUB_OPS_MAX) {
        (void)hub_batch_take(&hub->reads, one->is.ops);
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
        hub_count_gathered(hub, count);
    gb_hub_relay(item, GB_RELAY_TXN, text ? text : "", true, false, gathered);
    free(text);
    return true;
}

void gb_hub_gather(struct gb_hub_item *item) {
    hub_batch_add(&item->hub->reads, item, item->is.ops);
}

uint64_t gb_hub_gather_run(struct gb_hub *hub, uint64_t now_ms) {
    return hub_batch_run(hub, &hub->reads, now_ms, GATHER_MS, GB_HUB_OPS_MAX, send_all);
}

/* --- renewals: the answer ----------------------------------------------------------------------------------------- */

static void give_renewals(struct gb_hub_item *item, const struct gb_hub_item *of, char *answer) {
    item->error = of->relay.ask.error;
    item->status = of->relay.status;
    item->answer = answer;
    gb_hub_answer(item);
}

/* The next answer of the stream, or NULL. *text advances. */
static json_t *next_answer(const char **text) {
    json_error_t at;
    json_t *root = json_loads(*text, JSON_DISABLE_EOF_CHECK, &at);

    if (root)
        *text += at.position;
    return root;
}

static bool is_for(const json_t *answer, int64_t lease) {
    const char *id = json_string_value(json_object_get(json_object_get(answer, "result"), "ID"));

    return id && strtoll(id, NULL, 10) == lease;
}

/* Answers come in the order of the messages. An item without one, because etcd ended the stream, is relayed by
 * itself. */
static void give_each(struct gb_hub_item *item) {
    const char *text = item->relay.answer ? item->relay.answer : "";
    json_t *answer = next_answer(&text);
    struct gb_hub_item *one;

    while ((one = gb_hub_list_take(&item->together))) {
        char *own = answer && is_for(answer, one->is.lease) ? json_dumps(answer, JSON_COMPACT) : NULL;

        if (own) {
            give_renewals(one, item, own);
            json_decref(answer);
            answer = next_answer(&text);
        } else {
            gb_hub_pass(one);
        }
    }
    json_decref(answer);
}

static void renewed(struct gb_hub_item *item) {
    struct gb_hub_item *one;

    if (item->relay.ask.error.code == GB_OK && item->relay.status == 200)
        give_each(item);
    else
        while ((one = gb_hub_list_take(&item->together)))
            give_renewals(one, item, item->relay.answer ? strdup(item->relay.answer) : NULL);
    gb_hub_item_free(item);
}

/* --- renewals: the request ---------------------------------------------------------------------------------------- */

/* The text of up to TOGETHER_MAX waiting items, which it moves to item->together. */
static void take_some(struct gb_hub *hub, struct gb_hub_item *item, char *text) {
    struct gb_hub_item *one;
    size_t count = 0;

    text[0] = '\0';
    while (count < TOGETHER_MAX && (one = hub_batch_take(&hub->renewals, 1))) {
        char *message = gb_lease_text(one->is.lease, false);

        strcat(text, message ? message : ""); /* without memory it gets no answer, and is relayed by itself */
        free(message);
        gb_hub_list_add(&item->together, one);
        count++;
    }
    if (count > 1)
        hub_count_gathered(hub, count);
}

/* Returns false without memory; the caller tries again later. */
static bool send_some(struct gb_hub *hub) {
    char text[GATEWAY_READS + 1];
    struct gb_hub_item *item = gb_hub_item_new(hub);

    if (!item)
        return false;
    take_some(hub, item, text);
    gb_hub_relay(item, GB_RELAY_KEEPALIVE, text, false, false, renewed);
    return true;
}

void gb_hub_renew(struct gb_hub_item *item) {
    hub_batch_add(&item->hub->renewals, item, 1);
}

uint64_t gb_hub_renew_run(struct gb_hub *hub, uint64_t now_ms) {
    return hub_batch_run(hub, &hub->renewals, now_ms, RENEW_MS, TOGETHER_MAX, send_some);
}
