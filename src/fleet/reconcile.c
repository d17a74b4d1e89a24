/* After joining: what the directory and this node say of its sessions is made the same. First the directory's: keys of
 * sessions that a crash left, and that the node has not. Then the node's: each of its sessions against its record. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/internal.h"

#define PAGE 64
#define OWN_PAGE 16

/* --- what a crash left -------------------------------------------------------------------------------------------- */

struct gb_reconcile {
    struct gb_fleet *fleet;
    struct gb_etcd_call call;
    void (*done)(struct gb_fleet *fleet, bool ok, const struct gb_error *why);
    struct gb_name names[PAGE];
    struct gb_name tenants[PAGE]; /* of those that are dropped */
    size_t count;
    size_t at;
    bool more;
    char after[GB_FLEET_KEY_SIZE];
    bool drop[PAGE];
    int64_t revision[PAGE]; /* of the session's record; 0: there is none */

    /* The node's own. */
    struct gb_fleet_session own[OWN_PAGE];
    int64_t cursor;
    struct gb_settling settling;
};

static void read_page(struct gb_reconcile *r);
static void next_one(struct gb_reconcile *r);
static void own_page(struct gb_reconcile *r);

void gb_reconcile_cancel(struct gb_reconcile *reconcile) {
    if (!reconcile)
        return;
    gb_etcd_cancel(&reconcile->call);
    gb_settle_cancel(&reconcile->settling);
    free(reconcile);
}

static void reconcile_end(struct gb_reconcile *r, const struct gb_error *why) {
    struct gb_error copy = why ? *why : GB_ERROR_INIT;
    struct gb_fleet *fleet = r->fleet;
    void (*done)(struct gb_fleet * fleet, bool ok, const struct gb_error *why) = r->done;

    gb_reconcile_cancel(r);
    done(fleet, copy.code == GB_OK, &copy);
}

static void reconcile_send(struct gb_reconcile *r, struct gb_txn *txn, void (*done)(struct gb_etcd_call *call)) {
    r->call.arg = r;
    r->call.done = done;
    gb_etcd_send(&r->fleet->etcd, &r->call, GB_ETCD_TXN, gb_txn_finish(txn), gb_boot_ms() + GB_ETCD_TOTAL_MS, true,
                 GB_ETCD_PROBE);
}

/* Ends with the reason if that is no answer of the fleet's directory with `count` results behind meta. */
static bool is_answer(struct gb_reconcile *r, size_t count) {
    struct gb_error err = r->call.error;

    if (err.code == GB_OK)
        gb_fleet_check_meta(r->fleet, gb_txn_result(&r->call.txn, 0), &err);
    if (err.code == GB_OK && r->call.txn.count != count + 1)
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory answers less than it was asked");
    if (err.code == GB_OK)
        return true;
    reconcile_end(r, &err);
    return false;
}

static void on_deleted(struct gb_etcd_call *call) {
    struct gb_reconcile *r = call->arg;

    if (call->error.code != GB_OK)
        reconcile_end(r, &call->error);
    else
        next_one(r); /* one that has changed in between is another's now */
}

/* Whether the record stays for now: it is another's, or the node has the session. One that the node may be making, or
 * whose epoch is to be kept, stays until it is unregistered. */
static bool stays(const struct gb_reconcile *r, const struct gb_name *session, const struct gb_kvs *kvs) {
    struct gb_fleet *fleet = r->fleet;
    struct gb_fleet_session there = {.name = *session};
    char made_now[20];

    if (gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, NULL) < 0)
        return true; /* of a later version, perhaps */
    snprintf(made_now, sizeof(made_now), "%016" PRIx64 "-", fleet->member.incarnation);
    if (!gb_name_equal(&there.node, &fleet->own.name) || there.deleted ||
        (fleet->has && fleet->has(fleet->app, &there)))
        return true;
    if (gb_restored_maybe(fleet)) /* the session went elsewhere, perhaps, and the directory has lost that */
        return gb_unregister_add_lacking(fleet, &there.name, there.claim) == 0;
    if (strncmp(there.claim, made_now, strlen(made_now)) == 0) /* it may be made at this moment */
        return gb_unregister_add_lacking(fleet, &there.name, there.claim) == 0;
    return gb_unregister_add_lost(fleet, &there.name, there.claim) == 0;
}

static void next_one(struct gb_reconcile *r) {
    for (; r->at < r->count; r->at++) {
        struct gb_fleet_session gone = {.name = r->names[r->at], .tenant = r->tenants[r->at]};
        struct gb_txn txn = {0};

        if (!r->drop[r->at])
            continue;
        gb_delete_session(r->fleet, &txn, r->fleet->own.name.s, &gone, r->revision[r->at]);
        r->at++;
        reconcile_send(r, &txn, on_deleted);
        return;
    }
    if (r->more)
        read_page(r);
    else
        own_page(r);
}

static void on_records(struct gb_etcd_call *call) {
    struct gb_reconcile *r = call->arg;
    size_t i;

    if (!is_answer(r, r->count))
        return;
    for (i = 0; i < r->count; i++) {
        const struct gb_kvs *kvs = gb_txn_result(&call->txn, i + 1);

        struct gb_fleet_session there = {.name = r->names[i]};

        r->drop[i] = kvs->count == 0 || !stays(r, &r->names[i], kvs);
        r->tenants[i] = (struct gb_name){""};
        if (kvs->count > 0 && gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, NULL) == 0)
            r->tenants[i] = there.tenant;
        r->revision[i] = kvs->count > 0 ? kvs->items[0].mod_revision : 0;
    }
    r->at = 0;
    next_one(r);
}

/* Reads the records of names. */
static void read_records(struct gb_reconcile *r, void (*done)(struct gb_etcd_call *call)) {
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    size_t i;

    gb_fleet_read_meta(r->fleet, &txn, false);
    for (i = 0; i < r->count; i++) {
        gb_fleet_key(r->fleet, "sessions", r->names[i].s, NULL, key);
        gb_fleet_get(&txn, key, false);
    }
    reconcile_send(r, &txn, done);
}

static void on_page(struct gb_etcd_call *call) {
    struct gb_reconcile *r = call->arg;
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    char prefix[GB_FLEET_KEY_SIZE];
    size_t i;

    if (!is_answer(r, 1))
        return;
    gb_fleet_key(r->fleet, "owned", r->fleet->own.name.s, "", prefix);
    r->count = 0;
    r->more = kvs->more && kvs->count > 0;
    for (i = 0; i < kvs->count && r->count < PAGE; i++)
        if (gb_fleet_name_of(kvs->items[i].key, prefix, &r->names[r->count]))
            r->count++;
    if (kvs->count > 0)
        gb_fleet_behind(kvs->items[kvs->count - 1].key, r->after);
    if (r->count > 0)
        read_records(r, on_records);
    else if (r->more)
        read_page(r);
    else
        own_page(r);
}

static void read_page(struct gb_reconcile *r) {
    struct gb_txn txn = {0};
    struct gb_txn_range range = {.limit = PAGE, .keys_only = true, .after = r->after[0] != '\0'};
    char prefix[GB_FLEET_KEY_SIZE];
    char end[GB_FLEET_KEY_SIZE];

    gb_fleet_key(r->fleet, "owned", r->fleet->own.name.s, "", prefix);
    gb_prefix_end(prefix, end, sizeof(end));
    gb_fleet_read_meta(r->fleet, &txn, false);
    range.key = r->after[0] ? r->after : prefix;
    range.end = end;
    gb_txn_get(&txn, &range);
    reconcile_send(r, &txn, on_page);
}

/* --- the node's sessions ------------------------------------------------------------------------------------------ */

static void next_own(struct gb_reconcile *r);

/* One that could not be settled now, as a node that is to say something is not there yet, is tried again later. */
static void on_own(struct gb_settling *s, enum gb_settled outcome) {
    struct gb_reconcile *r = gb_container_of(s, struct gb_reconcile, settling);

    if (s->call.error.code != GB_OK) {
        reconcile_end(r, &s->error);
        return;
    }
    if (outcome == GB_SETTLED_LATER)
        gb_doubt_add(r->fleet, &s->mine.name, 0,
                     s->mine.on_partition == GB_ON_PARTITION_STOP ? GB_DOUBT_EPOCH : GB_DOUBT_CHANGED);
    next_own(r);
}

static void next_own(struct gb_reconcile *r) {
    for (; r->at < r->count; r->at++) {
        if (!r->drop[r->at])
            continue;
        r->settling.mine = r->own[r->at++];
        gb_settle_start(&r->settling, r->fleet, on_own);
        return;
    }
    own_page(r);
}

static void on_own_records(struct gb_etcd_call *call) {
    struct gb_reconcile *r = call->arg;
    size_t i;

    if (!is_answer(r, r->count))
        return;
    for (i = 0; i < r->count; i++) {
        const struct gb_kvs *kvs = gb_txn_result(&call->txn, i + 1);

        r->drop[i] = !gb_settle_agrees(r->fleet, &r->own[i], kvs);
        if (!r->drop[i])
            gb_member_mark(r->fleet, &r->own[i].name, kvs->items[0].mod_revision);
    }
    r->at = 0;
    next_own(r);
}

/* Of the next ones, of which most are as they should be. */
static void own_page(struct gb_reconcile *r) {
    struct gb_fleet *fleet = r->fleet;
    size_t i;

    r->count = fleet->sessions ? fleet->sessions(fleet->app, &r->cursor, r->own, OWN_PAGE) : 0;
    pthread_mutex_lock(&fleet->lock);
    for (i = 0; i < r->count; i++) {
        r->names[i] = r->own[i].name;
        if (r->own[i].epoch > fleet->epoch_seen)
            fleet->epoch_seen = r->own[i].epoch;
    }
    pthread_mutex_unlock(&fleet->lock);
    if (r->count > 0)
        read_records(r, on_own_records);
    else
        reconcile_end(r, NULL);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

struct gb_reconcile *gb_reconcile_start(struct gb_fleet *fleet,
                                        void (*done)(struct gb_fleet *fleet, bool ok, const struct gb_error *why)) {
    struct gb_reconcile *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->fleet = fleet;
    r->done = done;
    read_page(r);
    return r;
}
