/* Renewals of many leases as one request. The gateway takes several messages one behind the other and answers each:
 * what a renewal costs etcd is mostly the request, and a fleet's requests are mostly renewals. */
#include <stdlib.h>
#include <string.h>

#include "fleet/messages.h"
#include "hub/internal.h"

#define RENEW_MS 100      /* nodes renew each ten seconds or so: none of them notices */
#define MESSAGE_SIZE 29   /* {"ID":"9223372036854775807"} */
#define GATEWAY_READS 512 /* of a body, before its first answer; what is behind that it loses (etcd 3.4) */
#define TOGETHER_MAX (GATEWAY_READS / MESSAGE_SIZE)

/* --- the answer --------------------------------------------------------------------------------------------------- */

static void give(struct gb_hub_item *item, const struct gb_hub_item *of, char *answer) {
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
            give(one, item, own);
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
            give(one, item, item->relay.answer ? strdup(item->relay.answer) : NULL);
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
