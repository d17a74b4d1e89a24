/* Reconciles sessions of this node with their records in the directory: one session, suspects as they come, and all
 * sessions after joining. Only the directory makes a session another node's; what a client reports only starts a check.
 * member.c starts the whole; the API and fleet/move add suspects. Everything runs on the fleet's thread. */
#include "fleet/reconcile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/directory.h"
#include "fleet/find.h"
#include "fleet/forget.h"
#include "fleet/state.h"
#include "fleet/tenant.h"

enum gb_reconcile_result {
    GB_RECONCILED,
    GB_RECONCILE_LATER /* the directory does not answer, or the records keep changing */
};
/* Reconciles one session with its record. Embedded by its owner. A zeroed one is not open. */
struct gb_reconcile_one {
    struct gb_fleet_session mine; /* set by the owner */
    struct gb_error error;
    bool open;

    struct gb_fleet *fleet;
    void (*done)(struct gb_reconcile_one *s, enum gb_reconcile_result outcome);
    struct gb_etcd_call call;
    struct gb_fleet_session record; /* as it was written */
    struct gb_name other;           /* the owner by the last reading of the record; "": none, or this node */
    bool was_lost;                  /* the directory had lost the session */
    unsigned tries;
};

/* --- one session -------------------------------------------------------------------------------------------------- */

/* A claim identifies a session among all sessions of its name. A record with the same claim is of this very session, at
 * an earlier or a later moment. A record with another claim is of another session; of the two, the one with the higher
 * epoch is the later. A restored directory is behind what its nodes know. */

#define TRIES_MAX 4

static void read_record(struct gb_reconcile_one *s);

static void finish(struct gb_reconcile_one *s, enum gb_reconcile_result outcome) {
    s->open = false;
    s->done(s, outcome);
}

static void reconcile_one_cancel(struct gb_reconcile_one *s) {
    gb_etcd_cancel(&s->call);
    s->open = false;
}

/* --- applying the outcome ----------------------------------------------------------------------------------------- */

static void drop_cached(struct gb_reconcile_one *s) {
    struct gb_fleet *fleet = s->fleet;

    pthread_mutex_lock(&fleet->lock);
    if (s->record.epoch > fleet->epoch_seen)
        fleet->epoch_seen = s->record.epoch;
    gb_find_cache_forget(fleet->finds, &s->mine.name);
    pthread_mutex_unlock(&fleet->lock);
}

static void apply(struct gb_reconcile_one *s, enum gb_fleet_outcome outcome, uint64_t epoch) {
    struct gb_fleet *fleet = s->fleet;

    if (outcome == GB_FLEET_SUPERSEDED) {
        pthread_mutex_lock(&fleet->lock);
        fleet->stat.superseded++;
        pthread_mutex_unlock(&fleet->lock);
        gb_suspect_add(fleet, &s->mine.name, epoch, GB_SUSPECT_SUPERSEDED);
    }
    if (fleet->on.reconcile)
        fleet->on.reconcile(fleet->on.app, &s->mine, outcome, epoch);
}

/* The session may have changed since it was listed. */
static bool is_here(struct gb_reconcile_one *s) {
    struct gb_fleet *fleet = s->fleet;
    struct gb_fleet_session now;

    if (!fleet->on.session)
        return true;
    return fleet->on.session(fleet->on.app, &s->mine.name, &now) && strcmp(now.claim, s->mine.claim) == 0;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void on_written(struct gb_etcd_call *call) {
    struct gb_reconcile_one *s = call->arg;
    struct gb_fleet *fleet = s->fleet;

    if (call->error.code != GB_OK) {
        s->error = call->error;
        finish(s, GB_RECONCILE_LATER);
        return;
    }
    if (call->refusal != 0 || !call->txn.succeeded) {
        /* A key has changed since it was read. */
        if (++s->tries < TRIES_MAX)
            read_record(s);
        else
            finish(s, GB_RECONCILE_LATER);
        return;
    }
    drop_cached(s);
    gb_member_note_write(fleet, &s->mine.name, call->txn.revision);
    if (!is_here(s)) { /* it was deleted meanwhile, when it had no record */
        gb_unregister_add_missing(fleet, &s->mine.name, s->mine.claim);
        finish(s, GB_RECONCILED);
        return;
    }
    if (s->was_lost) {
        pthread_mutex_lock(&fleet->lock);
        fleet->stat.registered_again++;
        pthread_mutex_unlock(&fleet->lock);
    }
    if (s->record.epoch > s->mine.epoch)
        apply(s, GB_FLEET_RAISED, s->record.epoch);
    finish(s, GB_RECONCILED);
}

/* Writes the record at that epoch over the one of that revision; revision 0: no record. from: the other node that the
 * directory names, or NULL. The transaction fails if that node is alive, unless `deposes` is set. */
static void write_record(struct gb_reconcile_one *s, uint64_t epoch, int64_t revision, const struct gb_name *from,
                         bool deposes) {
    struct gb_fleet *fleet = s->fleet;
    struct gb_txn txn = {0};
    char *text;

    s->record = s->mine;
    s->record.node = fleet->own.name;
    s->record.epoch = epoch;
    text = gb_fleet_session_write(&s->record, &s->error);
    if (!text) {
        finish(s, GB_RECONCILE_LATER);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_compare(fleet, &txn, "alive", fleet->own.name.s, NULL, GB_TXN_MODIFIED, fleet->member.alive_revision);
    if (from && !deposes) {
        gb_fleet_compare(fleet, &txn, "alive", from->s, NULL, GB_TXN_CREATED, 0);
    }
    gb_fleet_compare(fleet, &txn, "sessions", s->mine.name.s, NULL, GB_TXN_MODIFIED, revision);
    gb_fleet_put(fleet, &txn, "sessions", s->mine.name.s, NULL, text, 0);
    gb_fleet_put(fleet, &txn, "owned", fleet->own.name.s, s->mine.name.s, "", 0);
    gb_tenant_note(fleet, &txn, &s->record);
    if (from) {
        gb_fleet_delete(fleet, &txn, "owned", from->s, s->mine.name.s);
    }
    free(text);
    s->call.done = on_written;
    gb_etcd_send(&fleet->etcd, &s->call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + GB_ETCD_TOTAL_MS, false,
                 GB_ETCD_PROBE);
}

/* --- deciding ----------------------------------------------------------------------------------------------------- */

static bool same_text(const struct gb_fleet_session *a, const struct gb_fleet_session *b) {
    const char *labels_a = a->labels[0] ? a->labels : "{}";
    const char *labels_b = b->labels[0] ? b->labels : "{}";

    return !a->released && !a->former.node.s[0] && !b->former.node.s[0] && a->on_partition == b->on_partition &&
           a->quota_bytes == b->quota_bytes && a->replicas == b->replicas &&
           a->failover_after_s == b->failover_after_s && strcmp(labels_a, labels_b) == 0;
}

/* Whether session and record are the same. */
static bool matches_record(const struct gb_fleet *fleet, const struct gb_fleet_session *mine,
                           const struct gb_kvs *kvs) {
    struct gb_fleet_session there = {.name = mine->name};

    return kvs->count > 0 && gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, NULL) == 0 &&
           !there.deleted && gb_name_equal(&there.node, &fleet->own.name) && strcmp(there.claim, mine->claim) == 0 &&
           there.epoch == mine->epoch && same_text(&there, mine) && !mine->given;
}

/* The record has the session's claim. */
static void reconcile_own(struct gb_reconcile_one *s, const struct gb_fleet_session *there, int64_t revision) {
    if (there->epoch >= s->mine.epoch) { /* only gb_fleet_set_holders changes holders */
        memcpy(s->mine.holders, there->holders, sizeof(there->holders));
        s->mine.holder_count = there->holder_count;
    }
    memcpy(s->mine.later, there->later, sizeof(there->later));
    if (there->epoch < s->mine.epoch) { /* the directory was restored */
        s->was_lost = true;
        write_record(s, s->mine.epoch + 1, revision, NULL, false);
    } else if (s->mine.given) {
        /* It was not transferred. The new epoch fails any transaction that the process before this one sent. */
        write_record(s, there->epoch + 1, revision, NULL, false);
    } else if (!same_text(there, &s->mine)) {
        write_record(s, there->epoch, revision, NULL, false);
    } else {
        gb_member_note_write(s->fleet, &s->mine.name, revision);
        if (there->epoch > s->mine.epoch)
            apply(s, GB_FLEET_RAISED, there->epoch);
        finish(s, GB_RECONCILED);
    }
}

static void retry_later(struct gb_reconcile_one *s, enum gb_suspect_why why) {
    gb_suspect_add(s->fleet, &s->mine.name, 0, why);
    finish(s, GB_RECONCILE_LATER);
}

static void supersede(struct gb_reconcile_one *s, uint64_t epoch) {
    apply(s, GB_FLEET_SUPERSEDED, epoch);
    finish(s, GB_RECONCILED);
}

static void on_conceded(struct gb_etcd_call *call) {
    struct gb_reconcile_one *s = call->arg;

    s->error = call->error;
    if (s->error.code == GB_OK && call->refusal == 0 && call->txn.succeeded)
        supersede(s, s->record.epoch);
    else
        finish(s, GB_RECONCILE_LATER);
}

/* Concedes the session to the other node, above this node's epoch: clients that know this epoch learn that it ended. */
static void concede(struct gb_reconcile_one *s, const struct gb_fleet_session *there, int64_t revision) {
    struct gb_fleet *fleet = s->fleet;
    struct gb_txn txn = {0};
    char *text;

    s->record = *there;
    s->record.epoch = s->mine.epoch + 1;
    text = gb_fleet_session_write(&s->record, &s->error);
    if (!text) {
        finish(s, GB_RECONCILE_LATER);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_compare(fleet, &txn, "sessions", s->mine.name.s, NULL, GB_TXN_MODIFIED, revision);
    gb_fleet_put(fleet, &txn, "sessions", s->mine.name.s, NULL, text, 0);
    free(text);
    s->call.done = on_conceded;
    gb_etcd_send(&fleet->etcd, &s->call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + GB_ETCD_TOTAL_MS, false,
                 GB_ETCD_PROBE);
}

/* The record names another node at no higher epoch: the directory was restored. Either that node has transferred the
 * session since, and will release its record; or the session was created again there while this node was cut off. If
 * this node's lease has never run out, this node was the first. */
static void resolve_conflict(struct gb_reconcile_one *s, const struct gb_fleet_session *there, int64_t revision,
                             bool alive) {
    struct gb_fleet *fleet = s->fleet;
    uint64_t ttl_ms = fleet->member.ttl_s * 1000ull;
    bool lapsed;
    uint64_t since_ms = gb_suspect_conflict(fleet, &s->mine.name, &lapsed);
    bool equal = there->epoch == s->mine.epoch;

    s->was_lost = true;
    if (there->released)
        write_record(s, s->mine.epoch + 1, revision, &there->node, true);
    else if (!alive && (!equal || !lapsed))
        write_record(s, s->mine.epoch + 1, revision, &there->node, false);
    else if (!lapsed && since_ms >= ttl_ms)
        write_record(s, s->mine.epoch + 1, revision, &there->node, true);
    else if (!lapsed)
        retry_later(s, GB_SUSPECT_CHANGED);
    else if (equal && !gb_restored_maybe(fleet))
        supersede(s, there->epoch); /* other nodes have redirected clients there */
    else if (equal || since_ms < 2 * ttl_ms + gb_unregister_missing_ms(fleet))
        retry_later(s, GB_SUSPECT_UNCERTAIN);
    else
        concede(s, there, revision);
}

static void on_record(struct gb_etcd_call *call) {
    struct gb_reconcile_one *s = call->arg;
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    struct gb_fleet_session there = {.name = s->mine.name};
    struct gb_fleet *fleet = s->fleet;
    int64_t revision = kvs->count > 0 ? kvs->items[0].mod_revision : 0;

    s->error = call->error;
    if (!is_here(s)) {
        finish(s, GB_RECONCILED);
        return;
    }
    if (s->error.code == GB_OK)
        gb_fleet_check_meta(fleet, gb_txn_result(&call->txn, 0), &s->error);
    if (s->error.code == GB_OK && kvs->count > 0)
        gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, &s->error);
    if (s->error.code != GB_OK) {
        finish(s, GB_RECONCILE_LATER);
    } else if (kvs->count == 0) {
        s->was_lost = true;
        if (!fleet->member.lapsed) /* only this node removes it */
            gb_restored_suspect(fleet, 0);
        write_record(s, s->mine.epoch + 1, 0, NULL, false);
    } else if (!there.deleted && gb_name_equal(&there.node, &fleet->own.name) &&
               strcmp(there.claim, s->mine.claim) == 0) {
        reconcile_own(s, &there, revision);
    } else if (!there.deleted && gb_name_equal(&there.node, &fleet->own.name)) {
        /* A record of this node with another claim: the rest of an interrupted registration. */
        write_record(s, (there.epoch > s->mine.epoch ? there.epoch : s->mine.epoch) + 1, revision, NULL, false);
    } else if (!there.deleted && !gb_name_equal(&there.node, &s->other)) {
        s->other = there.node; /* read again, together with whether that node is alive */
        read_record(s);
    } else if (!there.deleted && there.epoch <= s->mine.epoch) {
        resolve_conflict(s, &there, revision, gb_txn_result(&call->txn, 2)->count > 0);
    } else if (there.epoch >= s->mine.epoch && gb_restored_maybe(fleet)) {
        /* Its node may take the record back once it finds that the directory was restored. */
        gb_suspect_add(fleet, &s->mine.name, there.epoch, GB_SUSPECT_UNCERTAIN);
        finish(s, GB_RECONCILE_LATER);
    } else if (there.epoch >= s->mine.epoch) {
        supersede(s, there.epoch);
    } else { /* the directory was restored to before this node got the session */
        s->was_lost = true;
        write_record(s, s->mine.epoch + 1, revision, NULL, false);
    }
}

static void read_record(struct gb_reconcile_one *s) {
    struct gb_txn txn = {0};

    s->was_lost = false;
    gb_fleet_read_meta(s->fleet, &txn, false);
    gb_fleet_get(s->fleet, &txn, "sessions", s->mine.name.s, NULL, false);
    if (s->other.s[0] != '\0') {
        gb_fleet_get(s->fleet, &txn, "alive", s->other.s, NULL, false);
    }
    s->call.done = on_record;
    gb_etcd_send(&s->fleet->etcd, &s->call, GB_ETCD_TXN, gb_txn_finish(&txn), gb_boot_ms() + GB_ETCD_TOTAL_MS, true,
                 GB_ETCD_PROBE);
}

/* Makes record and session the same, or reports the outcome to the application. done runs once, later. */
static void reconcile_one_start(struct gb_reconcile_one *s, struct gb_fleet *fleet,
                                void (*done)(struct gb_reconcile_one *s, enum gb_reconcile_result outcome)) {
    s->fleet = fleet;
    s->done = done;
    s->tries = 0;
    s->open = true;
    s->error = GB_ERROR_INIT;
    s->other = (struct gb_name){""};
    s->call.arg = s;
    read_record(s);
}

/* --- suspects ----------------------------------------------------------------------------------------------------- */

/* A suspect waits here while the directory does not answer. A client's report changes only the answers to that
 * client. */

#define REFUTED_MAX_MS 10000 /* for so long a refutation counts, but at most for a third of the lease */

static bool is_refuted(const struct gb_fleet *fleet, const struct gb_suspect *suspect, uint64_t now_ms) {
    uint64_t third = fleet->member.ttl_s * 1000ull / 3;

    return suspect->why == GB_SUSPECT_REFUTED &&
           now_ms - suspect->refuted_ms < (third < REFUTED_MAX_MS ? third : REFUTED_MAX_MS);
}

static void drop_locked(struct gb_fleet *fleet, const char *session) {
    free(gb_map_take(&fleet->suspects, session));
    atomic_store(&fleet->suspect_count, fleet->suspects.count);
}

void gb_suspects_free(struct gb_fleet *fleet) {
    size_t at = 0;
    struct gb_suspect *suspect;

    while ((suspect = gb_map_next(&fleet->suspects, &at)))
        free(suspect);
    gb_map_done(&fleet->suspects);
    free(fleet->checking);
}

bool gb_fleet_owner_is_uncertain(struct gb_fleet *fleet, const char *session) {
    const struct gb_suspect *suspect;
    bool ret = false;

    if (atomic_load(&fleet->suspect_count) == 0)
        return false;
    pthread_mutex_lock(&fleet->lock);
    suspect = gb_map_get(&fleet->suspects, session);
    ret = suspect && suspect->why >= GB_SUSPECT_UNCERTAIN;
    pthread_mutex_unlock(&fleet->lock);
    return ret;
}

void gb_fleet_reconciled(struct gb_fleet *fleet, const struct gb_name *session) {
    const struct gb_suspect *suspect;

    pthread_mutex_lock(&fleet->lock);
    suspect = gb_map_get(&fleet->suspects, session->s);
    if (suspect && suspect->why == GB_SUSPECT_SUPERSEDED)
        drop_locked(fleet, session->s);
    pthread_mutex_unlock(&fleet->lock);
}

/* The next renewal tries again: a disk that has just failed would fail again at once. */
void gb_fleet_reconcile_failed(struct gb_fleet *fleet, const struct gb_name *session) {
    gb_suspect_add(fleet, session, 0, GB_SUSPECT_CHANGED);
}

/* --- checking suspects -------------------------------------------------------------------------------------------- */

static void check_suspects(void *arg) {
    gb_suspects_check(arg);
}

static void check_suspects_later(struct gb_fleet *fleet) {
    gb_timer_set(&fleet->timers, &fleet->check_again, gb_etcd_again_ms(&fleet->etcd), check_suspects, fleet);
}

static void drop(struct gb_fleet *fleet, const struct gb_name *session) {
    pthread_mutex_lock(&fleet->lock);
    drop_locked(fleet, session->s);
    pthread_mutex_unlock(&fleet->lock);
}

/* The unchecked suspect that has waited longest. */
static bool next_suspect(struct gb_fleet *fleet, struct gb_name *ret) {
    struct gb_suspect *best = NULL;
    struct gb_suspect *one;
    size_t at = 0;

    pthread_mutex_lock(&fleet->lock);
    while ((one = gb_map_next(&fleet->suspects, &at)))
        if (!one->checked && (!best || one->seq < best->seq))
            best = one;
    if (best) {
        best->checked = true;
        *ret = best->session;
    }
    pthread_mutex_unlock(&fleet->lock);
    return best != NULL;
}

static void check_later(struct gb_fleet *fleet, const char *session) {
    struct gb_suspect *suspect;

    pthread_mutex_lock(&fleet->lock);
    suspect = gb_map_get(&fleet->suspects, session);
    if (suspect) {
        suspect->checked = false;
        suspect->seq = ++fleet->suspect_seq; /* after the others */
    }
    pthread_mutex_unlock(&fleet->lock);
}

/* The session is reconciled. A SUPERSEDED suspect stays until the application has set the session aside. A suspect that
 * was added again meanwhile is checked again. A refuted report is remembered, because a client that is wrong repeats
 * it. */
static void resolve(struct gb_fleet *fleet, const char *session) {
    struct gb_suspect *suspect;

    pthread_mutex_lock(&fleet->lock);
    suspect = gb_map_get(&fleet->suspects, session);
    if (suspect && suspect->checked && (suspect->why == GB_SUSPECT_REPORTED || suspect->why == GB_SUSPECT_UNCERTAIN)) {
        suspect->why = GB_SUSPECT_REFUTED;
        suspect->refuted_ms = gb_boot_ms();
        suspect->conflict_ms = 0;
    } else if (suspect && suspect->checked && suspect->why == GB_SUSPECT_CHANGED) {
        drop_locked(fleet, session);
    }
    pthread_mutex_unlock(&fleet->lock);
}

/* Drops refuted reports that are too old to count. */
static void drop_refuted(struct gb_fleet *fleet) {
    uint64_t now = gb_boot_ms();
    struct gb_suspect *one;
    size_t at = 0;

    pthread_mutex_lock(&fleet->lock);
    while ((one = gb_map_next(&fleet->suspects, &at)))
        if (one->why == GB_SUSPECT_REFUTED && !is_refuted(fleet, one, now))
            drop_locked(fleet, one->session.s);
    pthread_mutex_unlock(&fleet->lock);
}

static void on_checked(struct gb_reconcile_one *s, enum gb_reconcile_result outcome) {
    struct gb_fleet *fleet = s->fleet;

    if (outcome == GB_RECONCILE_LATER) {
        check_later(fleet, s->mine.name.s);
        check_suspects_later(fleet);
        return;
    }
    resolve(fleet, s->mine.name.s);
    gb_suspects_check(fleet);
}

void gb_suspects_check(struct gb_fleet *fleet) {
    struct gb_reconcile_one *s = fleet->checking;
    struct gb_name name;

    if (!fleet->member.held || fleet->member.reconcile || (s && s->open))
        return;
    drop_refuted(fleet);
    if (!s)
        s = fleet->checking = calloc(1, sizeof(*s));
    if (!s) {
        check_suspects_later(fleet);
        return;
    }
    while (next_suspect(fleet, &name)) {
        if (fleet->on.session && fleet->on.session(fleet->on.app, &name, &s->mine)) {
            reconcile_one_start(s, fleet, on_checked);
            return;
        }
        drop(fleet, &name); /* the session is gone, or another node's already */
    }
}

void gb_suspects_cancel(struct gb_fleet *fleet) {
    gb_timer_clear(&fleet->timers, &fleet->check_again);
    if (fleet->checking && fleet->checking->open) {
        reconcile_one_cancel(fleet->checking);
        check_later(fleet, fleet->checking->mine.name.s);
    }
}

/* --- asked from outside ------------------------------------------------------------------------------------------- */

static void start(struct gb_job *job) {
    struct gb_fleet *fleet = job->fleet;

    gb_job_end(job);
    gb_suspects_check(fleet);
}

static void add(struct gb_fleet *fleet, const struct gb_name *session, uint64_t epoch, enum gb_suspect_why why) {
    struct gb_job *job;

    gb_suspect_add(fleet, session, epoch, why);
    job = gb_job_new(fleet, sizeof(*job), start);
    if (job) /* without memory, the next renewal checks it */
        gb_job_ask(fleet, job, NULL);
}

bool gb_fleet_report_epoch(struct gb_fleet *fleet, const struct gb_name *session, uint64_t epoch) {
    const struct gb_suspect *suspect;
    bool refuted;

    pthread_mutex_lock(&fleet->lock);
    suspect = gb_map_get(&fleet->suspects, session->s);
    refuted = suspect && epoch <= suspect->epoch && is_refuted(fleet, suspect, gb_boot_ms());
    pthread_mutex_unlock(&fleet->lock);
    if (!refuted)
        add(fleet, session, epoch, GB_SUSPECT_REPORTED);
    return !refuted;
}

void gb_fleet_refresh(struct gb_fleet *fleet, const struct gb_name *session) {
    add(fleet, session, 0, GB_SUSPECT_CHANGED);
}

/* --- all sessions ------------------------------------------------------------------------------------------------- */

/* After joining, first the keys below owned/ are read: a crash may have left keys of sessions that the node does not
 * have. Then each session of the node is reconciled with its record. */

#define PAGE 64
#define OWN_PAGE 16

struct gb_reconcile_all {
    struct gb_fleet *fleet;
    struct gb_etcd_call call;
    void (*done)(struct gb_fleet *fleet, bool ok, const struct gb_error *why);
    struct gb_name names[PAGE];
    struct gb_name tenants[PAGE]; /* of the sessions that are dropped */
    size_t count;
    size_t at;
    bool more;
    char after[GB_FLEET_KEY_SIZE];
    bool drop[PAGE];
    int64_t revision[PAGE]; /* of the session's record; 0: no record */

    /* The node's own. */
    struct gb_fleet_session own[OWN_PAGE];
    int64_t cursor;
    struct gb_reconcile_one one;
};

static void read_page(struct gb_reconcile_all *r);
static void next_one(struct gb_reconcile_all *r);
static void own_page(struct gb_reconcile_all *r);

void gb_reconcile_all_cancel(struct gb_reconcile_all *reconcile) {
    if (!reconcile)
        return;
    gb_etcd_cancel(&reconcile->call);
    reconcile_one_cancel(&reconcile->one);
    free(reconcile);
}

static void reconcile_end(struct gb_reconcile_all *r, const struct gb_error *why) {
    struct gb_error copy = why ? *why : GB_ERROR_INIT;
    struct gb_fleet *fleet = r->fleet;
    void (*done)(struct gb_fleet * fleet, bool ok, const struct gb_error *why) = r->done;

    gb_reconcile_all_cancel(r);
    done(fleet, copy.code == GB_OK, &copy);
}

static void reconcile_send(struct gb_reconcile_all *r, struct gb_txn *txn, void (*done)(struct gb_etcd_call *call)) {
    r->call.arg = r;
    r->call.done = done;
    gb_etcd_send(&r->fleet->etcd, &r->call, GB_ETCD_TXN, gb_txn_finish(txn), gb_boot_ms() + GB_ETCD_TOTAL_MS, true,
                 GB_ETCD_PROBE);
}

/* Whether the call was answered by this fleet's directory with `count` results after meta. If not, the reconciliation
 * ends. */
static bool is_answer(struct gb_reconcile_all *r, size_t count) {
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
    struct gb_reconcile_all *r = call->arg;

    if (call->error.code != GB_OK)
        reconcile_end(r, &call->error);
    else
        next_one(r); /* a key that has changed meanwhile is another node's now */
}

/* Whether the record stays for now: it is another node's, or this node has the session. A record that this node may be
 * making, or whose epoch must be kept, is queued for removal instead. */
static bool stays(const struct gb_reconcile_all *r, const struct gb_name *session, const struct gb_kvs *kvs) {
    struct gb_fleet *fleet = r->fleet;
    struct gb_fleet_session there = {.name = *session};
    char made_now[20];

    if (gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, NULL) < 0)
        return true; /* perhaps of a later version */
    snprintf(made_now, sizeof(made_now), "%016" PRIx64 "-", fleet->member.incarnation);
    if (!gb_name_equal(&there.node, &fleet->own.name) || there.deleted ||
        (fleet->on.has && fleet->on.has(fleet->on.app, &there)))
        return true;
    if (gb_restored_maybe(fleet)) /* the session may have been transferred, and the directory has lost that */
        return gb_unregister_add_missing(fleet, &there.name, there.claim) == 0;
    if (strncmp(there.claim, made_now, strlen(made_now)) == 0) /* this process may be making the session now */
        return gb_unregister_add_missing(fleet, &there.name, there.claim) == 0;
    return gb_unregister_add_orphan(fleet, &there.name, there.claim) == 0;
}

static void next_one(struct gb_reconcile_all *r) {
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
    struct gb_reconcile_all *r = call->arg;
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

/* Reads the records of r->names. */
static void read_records(struct gb_reconcile_all *r, void (*done)(struct gb_etcd_call *call)) {
    struct gb_txn txn = {0};
    size_t i;

    gb_fleet_read_meta(r->fleet, &txn, false);
    for (i = 0; i < r->count; i++) {
        gb_fleet_get(r->fleet, &txn, "sessions", r->names[i].s, NULL, false);
    }
    reconcile_send(r, &txn, done);
}

static void on_page(struct gb_etcd_call *call) {
    struct gb_reconcile_all *r = call->arg;
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

static void read_page(struct gb_reconcile_all *r) {
    struct gb_txn txn = {0};
    struct gb_txn_range range = {.limit = PAGE, .keys_only = true};

    gb_fleet_read_meta(r->fleet, &txn, false);
    gb_fleet_get_all(r->fleet, &txn, range, r->after, "owned", r->fleet->own.name.s, "");
    reconcile_send(r, &txn, on_page);
}

/* --- the node's sessions ------------------------------------------------------------------------------------------ */

static void next_own(struct gb_reconcile_all *r);

/* A session that cannot be reconciled now, because another node has not rejoined yet, becomes a suspect. */
static void on_own(struct gb_reconcile_one *s, enum gb_reconcile_result outcome) {
    struct gb_reconcile_all *r = gb_container_of(s, struct gb_reconcile_all, one);

    if (s->call.error.code != GB_OK) {
        reconcile_end(r, &s->error);
        return;
    }
    if (outcome == GB_RECONCILE_LATER)
        gb_suspect_add(r->fleet, &s->mine.name, 0,
                       s->mine.on_partition == GB_ON_PARTITION_STOP ? GB_SUSPECT_UNCERTAIN : GB_SUSPECT_CHANGED);
    next_own(r);
}

static void next_own(struct gb_reconcile_all *r) {
    for (; r->at < r->count; r->at++) {
        if (!r->drop[r->at])
            continue;
        r->one.mine = r->own[r->at++];
        reconcile_one_start(&r->one, r->fleet, on_own);
        return;
    }
    own_page(r);
}

static void on_own_records(struct gb_etcd_call *call) {
    struct gb_reconcile_all *r = call->arg;
    size_t i;

    if (!is_answer(r, r->count))
        return;
    for (i = 0; i < r->count; i++) {
        const struct gb_kvs *kvs = gb_txn_result(&call->txn, i + 1);

        r->drop[i] = !matches_record(r->fleet, &r->own[i], kvs);
        if (!r->drop[i])
            gb_member_note_write(r->fleet, &r->own[i].name, kvs->items[0].mod_revision);
    }
    r->at = 0;
    next_own(r);
}

/* Reads the records of the next sessions at once: most of them match. */
static void own_page(struct gb_reconcile_all *r) {
    struct gb_fleet *fleet = r->fleet;
    size_t i;

    r->count = fleet->on.sessions ? fleet->on.sessions(fleet->on.app, &r->cursor, r->own, OWN_PAGE) : 0;
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

/* --- starting ----------------------------------------------------------------------------------------------------- */

struct gb_reconcile_all *gb_reconcile_all_start(struct gb_fleet *fleet, void (*done)(struct gb_fleet *fleet, bool ok,
                                                                                     const struct gb_error *why)) {
    struct gb_reconcile_all *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->fleet = fleet;
    r->done = done;
    read_page(r);
    return r;
}
