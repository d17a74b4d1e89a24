/* One session of this node against its record in the directory: which of them is right, and what is done.
 *
 * A claim tells a session from every other one of its name. The record of a session with the same claim is this node's
 * own, of an earlier or a later moment. One with another claim is another session, and of two sessions with one name
 * the one of the higher epoch is the later. A directory that was restored is behind what its nodes know. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/internal.h"

#define TRIES_MAX 4

static void read_record(struct gb_settling *s);

static void finish(struct gb_settling *s, enum gb_settled outcome) {
    s->open = false;
    s->done(s, outcome);
}

void gb_settle_cancel(struct gb_settling *s) {
    gb_etcd_cancel(&s->call);
    s->open = false;
}

/* --- what follows ------------------------------------------------------------------------------------------------- */

static void forget_found(struct gb_settling *s) {
    struct gb_fleet *fleet = s->fleet;

    pthread_mutex_lock(&fleet->lock);
    gb_find_cache_forget(fleet->finds, &s->mine.name);
    pthread_mutex_unlock(&fleet->lock);
}

static void tell(struct gb_settling *s, enum gb_fleet_verdict verdict, uint64_t epoch) {
    struct gb_fleet *fleet = s->fleet;

    if (verdict == GB_FLEET_SUPERSEDED) {
        pthread_mutex_lock(&fleet->lock);
        fleet->stat.superseded++;
        pthread_mutex_unlock(&fleet->lock);
        gb_doubt_add(fleet, &s->mine.name, epoch, GB_DOUBT_SUPERSEDED);
    }
    if (fleet->settle)
        fleet->settle(fleet->app, &s->mine, verdict, epoch);
}

/* What is compared may have changed since it was listed. */
static bool is_still_here(struct gb_settling *s) {
    struct gb_fleet *fleet = s->fleet;
    struct gb_fleet_session now;

    if (!fleet->session)
        return true;
    return fleet->session(fleet->app, &s->mine.name, &now) && strcmp(now.claim, s->mine.claim) == 0;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void on_written(struct gb_etcd_call *call) {
    struct gb_settling *s = call->arg;
    struct gb_fleet *fleet = s->fleet;

    if (call->error.code != GB_OK) {
        s->error = call->error;
        finish(s, GB_SETTLED_LATER);
        return;
    }
    if (call->refusal != 0 || !call->txn.succeeded) {
        /* Something has changed in between. */
        if (++s->tries < TRIES_MAX)
            read_record(s);
        else
            finish(s, GB_SETTLED_LATER);
        return;
    }
    forget_found(s);
    if (!is_still_here(s)) { /* it was deleted meanwhile, when there was no record to delete */
        gb_unregister_add_lacking(fleet, &s->mine.name, s->mine.claim);
        finish(s, GB_SETTLED);
        return;
    }
    if (s->again) {
        pthread_mutex_lock(&fleet->lock);
        fleet->stat.registered_again++;
        pthread_mutex_unlock(&fleet->lock);
    }
    if (s->record.epoch > s->mine.epoch)
        tell(s, GB_FLEET_RAISED, s->record.epoch);
    finish(s, GB_SETTLED);
}

/* Writes the record at that epoch over the one of that revision, 0: where none is. from: the node that has it by the
 * directory, and is not alive; NULL: none or this one. */
static void write_record(struct gb_settling *s, uint64_t epoch, int64_t revision, const struct gb_name *from) {
    struct gb_fleet *fleet = s->fleet;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    char *text;

    s->record = s->mine;
    s->record.node = fleet->own.name;
    s->record.epoch = epoch;
    text = gb_fleet_session_write(&s->record, &s->error);
    if (!text) {
        finish(s, GB_SETTLED_LATER);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_key(fleet, "alive", fleet->own.name.s, NULL, key);
    gb_txn_compare(&txn, GB_TXN_MODIFIED, key, fleet->member.alive_revision);
    if (from) {
        gb_fleet_key(fleet, "alive", from->s, NULL, key);
        gb_txn_compare(&txn, GB_TXN_CREATED, key, 0);
    }
    gb_fleet_key(fleet, "sessions", s->mine.name.s, NULL, key);
    gb_txn_compare(&txn, GB_TXN_MODIFIED, key, revision);
    gb_txn_put(&txn, key, text, 0);
    gb_fleet_key(fleet, "owned", fleet->own.name.s, s->mine.name.s, key);
    gb_txn_put(&txn, key, "", 0);
    gb_tenant_note(fleet, &txn, &s->record);
    if (from) {
        gb_fleet_key(fleet, "owned", from->s, s->mine.name.s, key);
        gb_txn_delete(&txn, key);
    }
    free(text);
    s->call.done = on_written;
    gb_etcd_send(&fleet->etcd, &s->call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + GB_ETCD_TOTAL_MS, false,
                 GB_ETCD_PROBE);
}

/* --- which is right ----------------------------------------------------------------------------------------------- */

static bool same_text(const struct gb_fleet_session *a, const struct gb_fleet_session *b) {
    const char *labels_a = a->labels[0] ? a->labels : "{}";
    const char *labels_b = b->labels[0] ? b->labels : "{}";

    return !a->former.node.s[0] && !b->former.node.s[0] && a->on_partition == b->on_partition &&
           a->quota_bytes == b->quota_bytes && a->replicas == b->replicas &&
           a->failover_after_s == b->failover_after_s && strcmp(labels_a, labels_b) == 0;
}

bool gb_settle_agrees(const struct gb_fleet *fleet, const struct gb_fleet_session *mine, const struct gb_kvs *kvs) {
    struct gb_fleet_session there = {.name = mine->name};

    return kvs->count > 0 && gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, NULL) == 0 &&
           !there.deleted && gb_name_equal(&there.node, &fleet->own.name) && strcmp(there.claim, mine->claim) == 0 &&
           there.epoch == mine->epoch && same_text(&there, mine) && !mine->given;
}

/* The record is of this very session. */
static void settle_own(struct gb_settling *s, const struct gb_fleet_session *there, int64_t revision) {
    if (there->epoch >= s->mine.epoch) { /* holders are written by gb_fleet_hold alone */
        memcpy(s->mine.holders, there->holders, sizeof(there->holders));
        s->mine.holder_count = there->holder_count;
    }
    memcpy(s->mine.later, there->later, sizeof(there->later));
    if (there->epoch < s->mine.epoch) { /* the directory was restored */
        s->again = true;
        write_record(s, s->mine.epoch + 1, revision, NULL);
    } else if (s->mine.given) {
        /* It was not given, and cannot be any more by what was sent before. */
        write_record(s, there->epoch + 1, revision, NULL);
    } else if (!same_text(there, &s->mine)) {
        write_record(s, there->epoch, revision, NULL);
    } else {
        if (there->epoch > s->mine.epoch)
            tell(s, GB_FLEET_RAISED, there->epoch);
        finish(s, GB_SETTLED);
    }
}

static void on_record(struct gb_etcd_call *call) {
    struct gb_settling *s = call->arg;
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    struct gb_fleet_session there = {.name = s->mine.name};
    struct gb_fleet *fleet = s->fleet;
    int64_t revision = kvs->count > 0 ? kvs->items[0].mod_revision : 0;

    s->error = call->error;
    if (!is_still_here(s)) {
        finish(s, GB_SETTLED);
        return;
    }
    if (s->error.code == GB_OK)
        gb_fleet_check_meta(fleet, gb_txn_result(&call->txn, 0), &s->error);
    if (s->error.code == GB_OK && kvs->count > 0)
        gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, &s->error);
    if (s->error.code != GB_OK) {
        finish(s, GB_SETTLED_LATER);
    } else if (kvs->count == 0) {
        s->again = true;
        write_record(s, s->mine.epoch + 1, 0, NULL);
    } else if (!there.deleted && gb_name_equal(&there.node, &fleet->own.name) &&
               strcmp(there.claim, s->mine.claim) == 0) {
        settle_own(s, &there, revision);
    } else if (!there.deleted && gb_name_equal(&there.node, &fleet->own.name)) {
        /* Another one of this node, which has only this one: what was left of a registration. */
        write_record(s, (there.epoch > s->mine.epoch ? there.epoch : s->mine.epoch) + 1, revision, NULL);
    } else if (there.epoch >= s->mine.epoch && gb_restored_maybe(fleet)) {
        /* It may be one that is taken back, since its node has found that the directory was restored. */
        gb_doubt_add(fleet, &s->mine.name, there.epoch, GB_DOUBT_EPOCH);
        finish(s, GB_SETTLED_LATER);
    } else if (there.epoch >= s->mine.epoch) {
        tell(s, GB_FLEET_SUPERSEDED, there.epoch);
        finish(s, GB_SETTLED);
    } else { /* it was restored from before this node got the session */
        s->again = true;
        write_record(s, s->mine.epoch + 1, revision, there.deleted ? NULL : &there.node);
    }
}

static void read_record(struct gb_settling *s) {
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];

    s->again = false;
    gb_fleet_read_meta(s->fleet, &txn, false);
    gb_fleet_key(s->fleet, "sessions", s->mine.name.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    s->call.done = on_record;
    gb_etcd_send(&s->fleet->etcd, &s->call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + GB_ETCD_TOTAL_MS, true,
                 GB_ETCD_PROBE);
}

void gb_settle_start(struct gb_settling *s, struct gb_fleet *fleet,
                     void (*done)(struct gb_settling *s, enum gb_settled outcome)) {
    s->fleet = fleet;
    s->done = done;
    s->tries = 0;
    s->open = true;
    s->error = GB_ERROR_INIT;
    s->call.arg = s;
    read_record(s);
}
