/* This node's sessions against their records in the directory: one, those in doubt, and all of them after joining. */
#include "fleet/reconcile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/find.h"
#include "fleet/forget.h"
#include "fleet/state.h"
#include "fleet/tenant.h"

enum gb_settled {
    GB_SETTLED,
    GB_SETTLED_LATER /* the directory does not answer, or the records change all the time */
};
/* The comparison of one session with its record, embedded by its owner. A zeroed one is not open. */
struct gb_settling {
    struct gb_fleet_session mine; /* given */
    struct gb_error error;
    bool open;

    struct gb_fleet *fleet;
    void (*done)(struct gb_settling *s, enum gb_settled outcome);
    struct gb_etcd_call call;
    struct gb_fleet_session record; /* as it is written */
    struct gb_name other;           /* the node that has it by the record as read before; "": none, or this one */
    bool again;                     /* the directory had lost it */
    unsigned tries;
};

/* --- settle ------------------------------------------------------------------------------------------------------- */

/* One session of this node against its record in the directory: which of them is right, and what is done.
 *
 * A claim tells a session from every other one of its name. The record of a session with the same claim is this node's
 * own, of an earlier or a later moment. One with another claim is another session, and of two sessions with one name
 * the one of the higher epoch is the later. A directory that was restored is behind what its nodes know. */

#define TRIES_MAX 4

static void read_record(struct gb_settling *s);

static void finish(struct gb_settling *s, enum gb_settled outcome) {
    s->open = false;
    s->done(s, outcome);
}

static void settle_cancel(struct gb_settling *s) {
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

/* Whether there is nothing to settle, by what was read of the record. */
static bool settle_agrees(const struct gb_fleet *fleet, const struct gb_fleet_session *mine, const struct gb_kvs *kvs) {
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

/* Makes record and session the same, or tells the application. done runs once, never within this. */
static void settle_start(struct gb_settling *s, struct gb_fleet *fleet,
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

/* --- doubt -------------------------------------------------------------------------------------------------------- */

/* Sessions of this node that are to be compared with the directory: because a client says that it knows of a higher
 * epoch, because they have changed, or because it could not be done before. They wait here while the directory is
 * silent. What a client says changes the answers to that client alone: only the directory makes a session another's. */

#define DENIED_MAX_MS 10000 /* for which a denial is believed, but for a third of the lease at most */

static bool is_denied(const struct gb_fleet *fleet, const struct gb_doubt *doubt, uint64_t now_ms) {
    uint64_t third = fleet->member.ttl_s * 1000ull / 3;

    return doubt->why == GB_DOUBT_DENIED && now_ms - doubt->denied_ms < (third < DENIED_MAX_MS ? third : DENIED_MAX_MS);
}

static void drop_locked(struct gb_fleet *fleet, const char *session) {
    free(gb_map_take(&fleet->doubts, session));
    atomic_store(&fleet->doubt_count, fleet->doubts.count);
}

void gb_doubts_free(struct gb_fleet *fleet) {
    size_t at = 0;
    struct gb_doubt *doubt;

    while ((doubt = gb_map_next(&fleet->doubts, &at)))
        free(doubt);
    gb_map_done(&fleet->doubts);
    free(fleet->doubting);
}

bool gb_fleet_doubts(struct gb_fleet *fleet, const char *session) {
    const struct gb_doubt *doubt;
    bool ret = false;

    if (atomic_load(&fleet->doubt_count) == 0)
        return false;
    pthread_mutex_lock(&fleet->lock);
    doubt = gb_map_get(&fleet->doubts, session);
    ret = doubt && doubt->why >= GB_DOUBT_EPOCH;
    pthread_mutex_unlock(&fleet->lock);
    return ret;
}

void gb_fleet_settled(struct gb_fleet *fleet, const struct gb_name *session) {
    const struct gb_doubt *doubt;

    pthread_mutex_lock(&fleet->lock);
    doubt = gb_map_get(&fleet->doubts, session->s);
    if (doubt && doubt->why == GB_DOUBT_SUPERSEDED)
        drop_locked(fleet, session->s);
    pthread_mutex_unlock(&fleet->lock);
}

/* The next renewal takes it up: a disk that takes nothing now does not either a moment later. */
void gb_fleet_unsettled(struct gb_fleet *fleet, const struct gb_name *session) {
    gb_doubt_add(fleet, session, 0, GB_DOUBT_CHANGED);
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

static void sweep(void *arg) {
    gb_doubts_sweep(arg);
}

static void sweep_later(struct gb_fleet *fleet) {
    gb_timer_set(&fleet->timers, &fleet->doubt_again, gb_etcd_again_ms(&fleet->etcd), sweep, fleet);
}

static void drop(struct gb_fleet *fleet, const struct gb_name *session) {
    pthread_mutex_lock(&fleet->lock);
    drop_locked(fleet, session->s);
    pthread_mutex_unlock(&fleet->lock);
}

/* Of those that were not looked at, the one that has waited longest. */
static bool oldest(struct gb_fleet *fleet, struct gb_name *ret) {
    struct gb_doubt *best = NULL;
    struct gb_doubt *one;
    size_t at = 0;

    pthread_mutex_lock(&fleet->lock);
    while ((one = gb_map_next(&fleet->doubts, &at)))
        if (!one->looked && (!best || one->seq < best->seq))
            best = one;
    if (best) {
        best->looked = true;
        *ret = best->session;
    }
    pthread_mutex_unlock(&fleet->lock);
    return best != NULL;
}

static void look_again(struct gb_fleet *fleet, const char *session) {
    struct gb_doubt *doubt;

    pthread_mutex_lock(&fleet->lock);
    doubt = gb_map_get(&fleet->doubts, session);
    if (doubt) {
        doubt->looked = false;
        doubt->seq = ++fleet->doubt_seq; /* behind the others */
    }
    pthread_mutex_unlock(&fleet->lock);
}

/* The directory agrees with the node, or what it says was told: one that was superseded stays until that is seen to,
 * and one that was added meanwhile is looked at anew. A denial is remembered: a client that is wrong asks again. */
static void resolve(struct gb_fleet *fleet, const char *session) {
    struct gb_doubt *doubt;

    pthread_mutex_lock(&fleet->lock);
    doubt = gb_map_get(&fleet->doubts, session);
    if (doubt && doubt->looked && (doubt->why == GB_DOUBT_SAID || doubt->why == GB_DOUBT_EPOCH)) {
        doubt->why = GB_DOUBT_DENIED;
        doubt->denied_ms = gb_boot_ms();
        doubt->contested_ms = 0;
    } else if (doubt && doubt->looked && doubt->why == GB_DOUBT_CHANGED) {
        drop_locked(fleet, session);
    }
    pthread_mutex_unlock(&fleet->lock);
}

/* Forgets denials that are not believed any more. */
static void forget_denials(struct gb_fleet *fleet) {
    uint64_t now = gb_boot_ms();
    struct gb_doubt *one;
    size_t at = 0;

    pthread_mutex_lock(&fleet->lock);
    while ((one = gb_map_next(&fleet->doubts, &at)))
        if (one->why == GB_DOUBT_DENIED && !is_denied(fleet, one, now))
            drop_locked(fleet, one->session.s);
    pthread_mutex_unlock(&fleet->lock);
}

static void on_settled(struct gb_settling *s, enum gb_settled outcome) {
    struct gb_fleet *fleet = s->fleet;

    if (outcome == GB_SETTLED_LATER) {
        look_again(fleet, s->mine.name.s);
        sweep_later(fleet);
        return;
    }
    resolve(fleet, s->mine.name.s);
    gb_doubts_sweep(fleet);
}

void gb_doubts_sweep(struct gb_fleet *fleet) {
    struct gb_settling *s = fleet->doubting;
    struct gb_name name;

    if (!fleet->member.held || fleet->member.reconcile || (s && s->open))
        return;
    forget_denials(fleet);
    if (!s)
        s = fleet->doubting = calloc(1, sizeof(*s));
    if (!s) {
        sweep_later(fleet);
        return;
    }
    while (oldest(fleet, &name)) {
        if (fleet->session && fleet->session(fleet->app, &name, &s->mine)) {
            settle_start(s, fleet, on_settled);
            return;
        }
        drop(fleet, &name); /* it is gone, or another's already */
    }
}

void gb_doubts_cancel(struct gb_fleet *fleet) {
    gb_timer_clear(&fleet->timers, &fleet->doubt_again);
    if (fleet->doubting && fleet->doubting->open) {
        settle_cancel(fleet->doubting);
        look_again(fleet, fleet->doubting->mine.name.s);
    }
}

/* --- asked from outside ------------------------------------------------------------------------------------------- */

static void start(struct gb_job *job) {
    struct gb_fleet *fleet = job->fleet;

    gb_job_end(job);
    gb_doubts_sweep(fleet);
}

static void add(struct gb_fleet *fleet, const struct gb_name *session, uint64_t epoch, enum gb_doubt_why why) {
    struct gb_job *job;

    gb_doubt_add(fleet, session, epoch, why);
    job = gb_job_new(fleet, sizeof(*job), start);
    if (job) /* else the next renewal takes it up */
        gb_job_ask(fleet, job, NULL);
}

bool gb_fleet_doubt(struct gb_fleet *fleet, const struct gb_name *session, uint64_t epoch) {
    const struct gb_doubt *doubt;
    bool denied;

    pthread_mutex_lock(&fleet->lock);
    doubt = gb_map_get(&fleet->doubts, session->s);
    denied = doubt && epoch <= doubt->epoch && is_denied(fleet, doubt, gb_boot_ms());
    pthread_mutex_unlock(&fleet->lock);
    if (!denied)
        add(fleet, session, epoch, GB_DOUBT_SAID);
    return !denied;
}

void gb_fleet_refresh(struct gb_fleet *fleet, const struct gb_name *session) {
    add(fleet, session, 0, GB_DOUBT_CHANGED);
}

/* --- reconcile ---------------------------------------------------------------------------------------------------- */

/* After joining: what the directory and this node say of its sessions is made the same. First the directory's: keys of
 * sessions that a crash left, and that the node has not. Then the node's: each of its sessions against its record. */

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
    settle_cancel(&reconcile->settling);
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
        settle_start(&r->settling, r->fleet, on_own);
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

        r->drop[i] = !settle_agrees(r->fleet, &r->own[i], kvs);
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
