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
    if (s->record.epoch > fleet->epoch_seen)
        fleet->epoch_seen = s->record.epoch;
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
    gb_member_mark(fleet, &s->mine.name, call->txn.revision);
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
 * directory; NULL: none or this one. It must not be alive, unless it is to lose the session at any rate (`deposes`). */
static void write_record(struct gb_settling *s, uint64_t epoch, int64_t revision, const struct gb_name *from,
                         bool deposes) {
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
    if (from && !deposes) {
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

    return !a->released && !a->former.node.s[0] && !b->former.node.s[0] && a->on_partition == b->on_partition &&
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
        write_record(s, s->mine.epoch + 1, revision, NULL, false);
    } else if (s->mine.given) {
        /* It was not given, and cannot be any more by what was sent before. */
        write_record(s, there->epoch + 1, revision, NULL, false);
    } else if (!same_text(there, &s->mine)) {
        write_record(s, there->epoch, revision, NULL, false);
    } else {
        gb_member_mark(s->fleet, &s->mine.name, revision);
        if (there->epoch > s->mine.epoch)
            tell(s, GB_FLEET_RAISED, there->epoch);
        finish(s, GB_SETTLED);
    }
}

static void later(struct gb_settling *s, enum gb_doubt_why why) {
    gb_doubt_add(s->fleet, &s->mine.name, 0, why);
    finish(s, GB_SETTLED_LATER);
}

static void supersede(struct gb_settling *s, uint64_t epoch) {
    tell(s, GB_FLEET_SUPERSEDED, epoch);
    finish(s, GB_SETTLED);
}

static void on_yielded(struct gb_etcd_call *call) {
    struct gb_settling *s = call->arg;

    s->error = call->error;
    if (s->error.code == GB_OK && call->refusal == 0 && call->txn.succeeded)
        supersede(s, s->record.epoch);
    else
        finish(s, GB_SETTLED_LATER);
}

/* The session is the other's, at an epoch above this one: clients that know this one's must know that it is over. */
static void yield(struct gb_settling *s, const struct gb_fleet_session *there, int64_t revision) {
    struct gb_fleet *fleet = s->fleet;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    char *text;

    s->record = *there;
    s->record.epoch = s->mine.epoch + 1;
    text = gb_fleet_session_write(&s->record, &s->error);
    if (!text) {
        finish(s, GB_SETTLED_LATER);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_key(fleet, "sessions", s->mine.name.s, NULL, key);
    gb_txn_compare(&txn, GB_TXN_MODIFIED, key, revision);
    gb_txn_put(&txn, key, text, 0);
    free(text);
    s->call.done = on_yielded;
    gb_etcd_send(&fleet->etcd, &s->call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + GB_ETCD_TOTAL_MS, false,
                 GB_ETCD_PROBE);
}

/* The record is of another node at no higher epoch: the directory was restored. Either that node has given the session
 * up since, and says so once it has looked; or the session was made again there while this node could not tell that it
 * has it. If this one's lease has never run out, it was the first. */
static void contest(struct gb_settling *s, const struct gb_fleet_session *there, int64_t revision, bool alive) {
    struct gb_fleet *fleet = s->fleet;
    uint64_t ttl_ms = fleet->member.ttl_s * 1000ull;
    bool broken;
    uint64_t since_ms = gb_doubt_contest(fleet, &s->mine.name, &broken);
    bool equal = there->epoch == s->mine.epoch;

    s->again = true;
    if (there->released)
        write_record(s, s->mine.epoch + 1, revision, &there->node, true);
    else if (!alive && (!equal || !broken))
        write_record(s, s->mine.epoch + 1, revision, &there->node, false);
    else if (!broken && since_ms >= ttl_ms)
        write_record(s, s->mine.epoch + 1, revision, &there->node, true);
    else if (!broken)
        later(s, GB_DOUBT_CHANGED);
    else if (equal && !gb_restored_maybe(fleet))
        supersede(s, there->epoch); /* others have told it to clients */
    else if (equal || since_ms < 2 * ttl_ms + gb_unregister_lacking_ms(fleet))
        later(s, GB_DOUBT_EPOCH);
    else
        yield(s, there, revision);
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
        if (!fleet->member.broken) /* none but this node deletes it */
            gb_restored_suspect(fleet, 0);
        write_record(s, s->mine.epoch + 1, 0, NULL, false);
    } else if (!there.deleted && gb_name_equal(&there.node, &fleet->own.name) &&
               strcmp(there.claim, s->mine.claim) == 0) {
        settle_own(s, &there, revision);
    } else if (!there.deleted && gb_name_equal(&there.node, &fleet->own.name)) {
        /* Another one of this node, which has only this one: what was left of a registration. */
        write_record(s, (there.epoch > s->mine.epoch ? there.epoch : s->mine.epoch) + 1, revision, NULL, false);
    } else if (!there.deleted && !gb_name_equal(&there.node, &s->other)) {
        s->other = there.node; /* whether it is alive is to be read at the same moment */
        read_record(s);
    } else if (!there.deleted && there.epoch <= s->mine.epoch) {
        contest(s, &there, revision, gb_txn_result(&call->txn, 2)->count > 0);
    } else if (there.epoch >= s->mine.epoch && gb_restored_maybe(fleet)) {
        /* It may be one that is taken back, since its node has found that the directory was restored. */
        gb_doubt_add(fleet, &s->mine.name, there.epoch, GB_DOUBT_EPOCH);
        finish(s, GB_SETTLED_LATER);
    } else if (there.epoch >= s->mine.epoch) {
        supersede(s, there.epoch);
    } else { /* it was restored from before this node got the session */
        s->again = true;
        write_record(s, s->mine.epoch + 1, revision, NULL, false);
    }
}

static void read_record(struct gb_settling *s) {
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];

    s->again = false;
    gb_fleet_read_meta(s->fleet, &txn, false);
    gb_fleet_key(s->fleet, "sessions", s->mine.name.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    if (s->other.s[0] != '\0') {
        gb_fleet_key(s->fleet, "alive", s->other.s, NULL, key);
        gb_fleet_get(&txn, key, false);
    }
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
    s->other = (struct gb_name){""};
    s->call.arg = s;
    read_record(s);
}
