/* Orders to nodes that none can call: written into the directory by others, found there by the node itself. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fleet/internal.h"

#define WAIT_MS 10000 /* of one wait at a hub */
#define SLACK_MS 3000 /* in which its answer is to come */
#define ORDERS_MAX 64 /* in one answer */

static const char *const words[] = {
    [GB_ORDER_DRAIN] = "drain",
    [GB_ORDER_UNDRAIN] = "undrain",
    [GB_ORDER_MOVE] = "move",
    [GB_ORDER_HOLD] = "hold",
};

const char *gb_order_word(enum gb_order_what what) {
    return words[what];
}

/* --- giving one --------------------------------------------------------------------------------------------------- */

struct ordering {
    struct gb_job job;
    struct gb_name node;
    int64_t lease;
    char *record;
};

static void free_ordering(struct gb_job *job) {
    free(gb_container_of(job, struct ordering, job)->record);
}

static void on_written(struct gb_etcd_call *call) {
    struct ordering *o = gb_container_of((struct gb_job *)call->arg, struct ordering, job);
    struct gb_error err = call->error;

    if (err.code == GB_OK && (call->refusal != 0 || !call->txn.succeeded))
        gb_error_set(&err, GB_ERR_NODE_UNREACHABLE,
                     "the node \"%s\" has no address, and is not there to ask for orders; try again when it is",
                     o->node.s);
    gb_job_fail(&o->job, &err);
}

/* A node that is not there, or goes before it has heard it, would do it when none expects it any more. */
static void start_ordering(struct gb_job *job) {
    struct ordering *o = gb_container_of(job, struct ordering, job);
    struct gb_fleet *fleet = job->fleet;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    char id[24];
    uint64_t number;

    if (gb_random(&number, sizeof(number), &err) < 0 || !o->record) {
        gb_error_set(&err, GB_ERR_SATURATED, "no memory for an order; try again later");
        gb_job_fail(job, &err);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_key(fleet, "alive", o->node.s, NULL, key);
    gb_txn_compare_there(&txn, key);
    snprintf(id, sizeof(id), "%016" PRIx64, number);
    gb_fleet_key(fleet, "ctl", o->node.s, id, key);
    gb_txn_put(&txn, key, o->record, o->lease);
    job->call.done = on_written;
    gb_etcd_send(&fleet->etcd, &job->call, GB_ETCD_TXN, gb_txn_finish(&txn), job->deadline_ms, true, GB_ETCD_MAJORITY);
}

void gb_fleet_order(struct gb_fleet *fleet, struct gb_fleet_order *order) {
    struct ordering *o = gb_job_new(fleet, sizeof(*o), start_ordering);

    if (o) {
        o->node = order->node;
        o->lease = (int64_t)order->uuid;
        o->record = gb_fleet_order_write(words[order->what], &order->session);
        o->job.free = free_ordering;
    }
    gb_job_ask(fleet, o ? &o->job : NULL, &order->ask);
}

/* --- following them ----------------------------------------------------------------------------------------------- */

static void ask(void *arg);

static void again(struct gb_fleet *fleet, uint64_t ms) {
    gb_timer_set(&fleet->timers, &fleet->orders.timer, gb_boot_ms() + ms, ask, fleet);
}

/* Without hubs the directory is asked now and then: none waits there. */
static uint64_t pause_ms(const struct gb_fleet *fleet) {
    return fleet->etcd.as ? 0 : gb_member_third_ms(fleet);
}

static void on_deleted(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;

    /* What could not be deleted is done again, which does no harm; what could not be done is asked for again. */
    again(fleet, call->error.code == GB_OK && call->txn.count > 0 ? 0 : 1000);
}

/* Whether it is dealt with: what is no order, or one of a later version, is too. */
static bool follow(struct gb_fleet *fleet, const struct gb_kv *kv) {
    struct gb_name session = {""};
    char word[16];
    size_t i;

    if (!fleet->order || !gb_fleet_order_read(kv->value, kv->bytes, word, sizeof(word), &session))
        return true;
    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(words[i], word) == 0)
            return fleet->order(fleet->app, (enum gb_order_what)i, &session);
    return true;
}

static void on_orders(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 0);
    struct gb_txn txn = {0};
    size_t i;

    if (call->error.code != GB_OK) {
        again(fleet, gb_etcd_again_ms(&fleet->etcd) - gb_boot_ms());
        return;
    }
    if (kvs->count == 0) {
        again(fleet, pause_ms(fleet));
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    for (i = 0; i < kvs->count && i < ORDERS_MAX; i++)
        if (follow(fleet, &kvs->items[i]))
            gb_txn_delete(&txn, kvs->items[i].key);
    call->done = on_deleted;
    gb_etcd_send(&fleet->etcd, call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + GB_ETCD_TOTAL_MS, true,
                 GB_ETCD_PROBE);
}

static void ask_hub(struct gb_fleet *fleet) {
    char *body = NULL;

    if (asprintf(&body, "{\"wait_ms\":%d}", WAIT_MS) < 0)
        body = NULL;
    gb_etcd_send(&fleet->etcd, &fleet->orders.call, GB_ETCD_WAIT, body, gb_boot_ms() + WAIT_MS + SLACK_MS, true,
                 GB_ETCD_PROBE);
}

static void ask_directory(struct gb_fleet *fleet) {
    struct gb_txn_range range = {.limit = ORDERS_MAX, .serializable = true};
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    char end[GB_FLEET_KEY_SIZE];

    gb_fleet_key(fleet, "ctl", fleet->own.name.s, "", key);
    gb_prefix_end(key, end, sizeof(end));
    range.key = key;
    range.end = end;
    gb_txn_get(&txn, &range);
    gb_etcd_send(&fleet->etcd, &fleet->orders.call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + GB_ETCD_TOTAL_MS,
                 true, GB_ETCD_MEMBER);
}

static void ask(void *arg) {
    struct gb_fleet *fleet = arg;

    fleet->orders.call.arg = fleet;
    fleet->orders.call.done = on_orders;
    if (!fleet->member.held)
        again(fleet, 1000); /* they are for a node that is there */
    else if (fleet->etcd.as)
        ask_hub(fleet);
    else
        ask_directory(fleet);
}

void gb_orders_start(struct gb_fleet *fleet) {
    if (fleet->own.url_count == 0)
        again(fleet, 0);
}

void gb_orders_cancel(struct gb_fleet *fleet) {
    gb_timer_clear(&fleet->timers, &fleet->orders.timer);
    gb_etcd_cancel(&fleet->orders.call);
}
