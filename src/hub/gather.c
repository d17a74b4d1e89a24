/* What nodes ask at nearly the same time goes on as one request, since the request is what most of it costs etcd:
 * readings as one transaction, renewals of leases as several messages one behind the other, of which the gateway
 * answers each. The first goes on at once; those that come within a moment behind it go together. */
#include <stdlib.h>
#include <string.h>

#include "fleet/messages.h"
#include "hub/internal.h"

#define GATHER_MS 40
#define RENEW_MS 100      /* nodes renew each ten seconds or so: none of them notices */
#define MESSAGE_SIZE 29   /* {"ID":"9223372036854775807"} */
#define GATEWAY_READS 512 /* of a body, before its first answer; what is behind that it loses (etcd 3.4) */
#define TOGETHER_MAX (GATEWAY_READS / MESSAGE_SIZE)

/* --- readings ----------------------------------------------------------------------------------------------------- */

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

        give_readings(one, item, root, from);
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

/* --- renewals ----------------------------------------------------------------------------------------------------- */

/* --- the answer --------------------------------------------------------------------------------------------------- */

static void give_renewals(struct gb_hub_item *item, const struct gb_hub_item *of, char *answer) {
    item->error = of->relay.ask.error;
    item->status = of->relay.status;
    item->answer = answer;
    gb_hub_answer(item);
}

/* The next of the answers, one behind the other, or NULL. *text moves behind it. */
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

/* Answers come in the order of the messages. One that has none, since etcd ended the stream, goes on by itself. */
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

/* --- the request -------------------------------------------------------------------------------------------------- */

/* The text of up to TOGETHER_MAX that wait, which it moves to item->together. */
static void take_some(struct gb_hub *hub, struct gb_hub_item *item, char *text) {
    struct gb_hub_item *one;
    size_t count = 0;

    text[0] = '\0';
    while (count < TOGETHER_MAX && (one = gb_hub_batch_take(&hub->renewals, 1))) {
        char *message = gb_lease_text(one->is.lease, false);

        strcat(text, message ? message : ""); /* one without memory has no answer, and goes on by itself */
        free(message);
        gb_hub_list_add(&item->together, one);
        count++;
    }
    if (count > 1)
        gb_hub_count_gathered(hub, count);
}

/* Returns false if there is no memory: they go on in a moment. */
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
    gb_hub_batch_add(&item->hub->renewals, item, 1);
}

uint64_t gb_hub_renew_run(struct gb_hub *hub, uint64_t now_ms) {
    return gb_hub_batch_run(hub, &hub->renewals, now_ms, RENEW_MS, TOGETHER_MAX, send_some);
}
