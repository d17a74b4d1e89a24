/* Changes of a session's record by its owner, or by the node that becomes its owner: registering, taking over,
 * transferring, and the list of holders. Each change is one transaction that compares what was read. The API,
 * src/daemon and fleet/replica ask for them; all work runs on the fleet's thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fleet/directory.h"
#include "fleet/find.h"
#include "fleet/forget.h"
#include "fleet/state.h"
#include "fleet/tenant.h"

#define TRIES_MAX 4

/* --- registering -------------------------------------------------------------------------------------------------- */

struct registering {
    struct gb_job job;
    struct gb_fleet_session session;
    struct gb_fleet_node owner;
    char *record;
    /* The revision of the record that this one replaces: this node's own that is queued for removal, a tombstone, or
     * the one that is taken over. 0: no record. */
    int64_t replaces;
    bool takes_over;
    bool from_copies;
    bool empty;
    char claim[GB_FLEET_CLAIM_SIZE]; /* from_copies: the claim that the caller chose */
    struct gb_name from;             /* takes_over: the former owner, which must not be alive */
    struct gb_tenant_guard guard;    /* of its tenant, as it was read */
    unsigned tries;
    bool asked_again;
    bool made;
    bool cancelled;
};

static void attempt(struct registering *r);
static void read_taken(struct registering *r);

static void give_registered(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct registering *r = gb_container_of(job, struct registering, job);
    struct gb_fleet_register *to = gb_container_of(ask, struct gb_fleet_register, ask);

    to->session = r->session;
    to->owner = r->owner;
}

static void note_cancelled(struct gb_job *job) {
    gb_container_of(job, struct registering, job)->cancelled = !job->asks;
}

/* A cancelled registration is undone: no client knows its claim. */
static void free_registering(struct gb_job *job) {
    struct registering *r = gb_container_of(job, struct registering, job);

    if (r->cancelled && r->made)
        gb_fleet_unregister(job->fleet, &r->session.name, r->session.claim, false);
    free(r->record);
}

static void on_owner(struct gb_etcd_call *call) {
    struct registering *r = gb_container_of((struct gb_job *)call->arg, struct registering, job);
    const struct gb_kvs *node = gb_txn_result(&call->txn, 1);
    const struct gb_kvs *alive = gb_txn_result(&call->txn, 2);
    struct gb_error err = GB_ERROR_INIT;

    if (gb_job_check(&r->job) < 0)
        return;
    r->owner.name = r->session.node;
    if (node->count > 0)
        gb_fleet_node_of(r->session.node.s, &node->items[0], alive->count > 0 ? &alive->items[0] : NULL, &r->owner,
                         NULL);
    gb_error_set(&err, GB_ERR_SESSION_EXISTS, "node \"%s\" of the fleet has a session \"%s\"", r->session.node.s,
                 r->session.name.s);
    gb_job_fail(&r->job, &err);
}

/* Another node owns the name: the error says which. */
static void exists(struct registering *r) {
    struct gb_fleet *fleet = r->job.fleet;
    struct gb_txn txn = {0};

    gb_fleet_read_meta(fleet, &txn, true);
    gb_fleet_get(fleet, &txn, "nodes", r->session.node.s, NULL, true);
    gb_fleet_get(fleet, &txn, "alive", r->session.node.s, NULL, true);
    gb_job_txn(&r->job, &txn, GB_ETCD_MEMBER, on_owner);
}

static void registered(struct registering *r) {
    struct gb_fleet *fleet = r->job.fleet;
    struct gb_error err = GB_ERROR_INIT;

    /* The answer has shown that the directory may have lost another node's session of that name. */
    if (gb_restored_refuse(fleet, &r->session.name, &err) < 0) {
        gb_fleet_unregister(fleet, &r->session.name, r->session.claim, false);
        gb_job_fail(&r->job, &err);
        return;
    }
    r->made = true;
    pthread_mutex_lock(&fleet->lock);
    if (r->session.epoch > fleet->epoch_seen)
        fleet->epoch_seen = r->session.epoch;
    gb_find_cache_forget(fleet->finds, &r->session.name);
    pthread_mutex_unlock(&fleet->lock);
    gb_job_end(&r->job);
}

/* Fails. If the transaction may have been carried out, its record is removed when the directory answers again. */
static void give_up(struct registering *r, const struct gb_error *why, bool carried) {
    if (carried)
        gb_fleet_unregister(r->job.fleet, &r->session.name, r->session.claim, false);
    gb_job_fail(&r->job, why);
}

/* Makes the text of the record for that epoch, or for the floor of a restored directory. */
static int set_epoch(struct registering *r, uint64_t epoch, struct gb_error *err) {
    uint64_t floor = r->takes_over ? 0 : gb_epoch_floor(r->job.fleet, &r->session.name);

    r->session.epoch = epoch > floor ? epoch : floor + 1;
    free(r->record);
    r->record = gb_fleet_session_write(&r->session, err);
    return r->record ? 0 : -1;
}

/* Replaces the record of a session that no longer exists. Clients may have seen its epoch, so this one begins above. */
static void replace(struct registering *r, const struct gb_fleet_session *there, int64_t revision) {
    struct gb_error err = GB_ERROR_INIT;

    r->replaces = revision;
    if (r->tries >= TRIES_MAX)
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the record of the session changes all the time; try again");
    if (err.code != GB_OK || set_epoch(r, there->deleted || there->epoch > 1 ? there->epoch + 1 : 1, &err) < 0)
        gb_job_fail(&r->job, &err);
    else
        attempt(r);
}

/* alive/N may have been written again since it was read. Returns whether it is this process's. */
static bool learn_alive(struct gb_fleet *fleet, const struct gb_kvs *alive) {
    struct gb_fleet_alive record;

    if (alive->count == 0 || gb_fleet_alive_read(alive->items[0].value, alive->items[0].bytes, &record, NULL) < 0 ||
        record.incarnation != fleet->member.incarnation)
        return false;
    fleet->member.alive_revision = alive->items[0].mod_revision;
    return true;
}

/* The transaction was refused: the directory has another record, or what was compared has changed. */
static void refused(struct registering *r, const struct gb_kvs *session, const struct gb_kvs *alive) {
    struct gb_fleet *fleet = r->job.fleet;
    struct gb_fleet_session there = {.name = r->session.name};
    struct gb_error err = GB_ERROR_INIT;
    bool is_alive = learn_alive(fleet, alive);

    if (session->count > 0) {
        const struct gb_kv *kv = &session->items[0];

        if (gb_fleet_session_read(kv->value, kv->bytes, &there, &err) < 0) {
            gb_job_fail(&r->job, &err);
        } else if (strcmp(there.claim, r->session.claim) == 0) {
            registered(r); /* the first answer was lost */
        } else if (r->takes_over) {
            read_taken(r);
        } else if (there.released || gb_unregister_is_missing(fleet, there.claim)) {
            gb_error_set(
                &err, GB_ERR_OWNER_UNKNOWN,
                "the node \"%s\" has not got the session \"%s\", which the directory says: whether another has "
                "it is known in a moment",
                there.node.s, there.name.s);
            gb_job_fail(&r->job, &err);
        } else if (there.deleted ||
                   (gb_name_equal(&there.node, &fleet->own.name) && gb_unregister_is_queued(fleet, there.claim))) {
            replace(r, &there, kv->mod_revision);
        } else if (gb_name_equal(&there.node, &fleet->own.name) && !r->asked_again) {
            /* It may have been removed since it was read. */
            r->asked_again = true;
            r->replaces = 0;
            attempt(r);
        } else {
            r->session = there;
            exists(r);
        }
        return;
    }
    if (r->takes_over) {
        read_taken(r);
        return;
    }
    r->replaces = 0;
    if (is_alive && r->tries < TRIES_MAX) {
        attempt(r);
        return;
    }
    gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "this node has just lost its place in the fleet");
    gb_job_fail(&r->job, &err);
}

static void on_registered(struct gb_etcd_call *call) {
    struct registering *r = gb_container_of((struct gb_job *)call->arg, struct registering, job);
    struct gb_error err = call->error;

    if (err.code != GB_OK) {
        /* Sent again, it either succeeds or shows whose claim the record has. */
        if (call->carried && r->tries < TRIES_MAX && gb_boot_ms() < r->job.deadline_ms)
            attempt(r);
        else
            give_up(r, &err, call->carried || r->tries > 1);
    } else if (call->refusal == 0 && call->txn.succeeded) {
        gb_member_note_write(r->job.fleet, &r->session.name, call->txn.revision);
        registered(r);
    } else if (gb_fleet_check_meta(r->job.fleet, gb_txn_result(&call->txn, 0), &err) < 0) {
        gb_job_fail(&r->job, &err);
    } else {
        refused(r, gb_txn_result(&call->txn, 1), gb_txn_result(&call->txn, 2));
    }
}

/* A session that is taken over counts for its tenant already. */
static bool has_guard(const struct registering *r) {
    return !r->takes_over && r->session.tenant.s[0] != '\0';
}

static void send_attempt(struct registering *r) {
    struct gb_fleet *fleet = r->job.fleet;
    struct gb_txn txn = {0};

    r->tries++;
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_compare(fleet, &txn, "sessions", r->session.name.s, NULL, GB_TXN_MODIFIED, r->replaces);
    gb_fleet_compare(fleet, &txn, "alive", fleet->own.name.s, NULL, GB_TXN_MODIFIED, fleet->member.alive_revision);
    if (r->takes_over) {
        gb_fleet_compare(fleet, &txn, "alive", r->from.s, NULL, GB_TXN_CREATED, 0);
        gb_fleet_delete(fleet, &txn, "owned", r->from.s, r->session.name.s);
    }
    if (has_guard(r))
        gb_tenant_guard(fleet, &txn, &r->session.tenant, &r->guard);
    gb_fleet_put(fleet, &txn, "sessions", r->session.name.s, NULL, r->record, 0);
    gb_fleet_put(fleet, &txn, "owned", fleet->own.name.s, r->session.name.s, "", 0);
    gb_tenant_note(fleet, &txn, &r->session);
    if (has_guard(r))
        gb_tenant_touch(fleet, &txn, &r->session.tenant, &r->guard);
    gb_txn_else(&txn);
    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_get(fleet, &txn, "sessions", r->session.name.s, NULL, false);
    gb_fleet_get(fleet, &txn, "alive", fleet->own.name.s, NULL, false);
    r->job.call.done = on_registered;
    gb_etcd_send(&fleet->etcd, &r->job.call, GB_ETCD_TXN, gb_txn_finish(&txn), r->job.deadline_ms, false,
                 r->tries > 1 ? GB_ETCD_PROBE : GB_ETCD_MAJORITY);
}

static void on_tenant(struct gb_etcd_call *call) {
    struct registering *r = gb_container_of((struct gb_job *)call->arg, struct registering, job);
    struct gb_error err = GB_ERROR_INIT;

    if (gb_job_check(&r->job) < 0)
        return;
    if (gb_tenant_check(r->job.fleet, gb_txn_result(&call->txn, 1), gb_txn_result(&call->txn, 2), &r->session,
                        &r->guard, &err) < 0)
        give_up(r, &err, r->tries > 0);
    else
        send_attempt(r);
}

/* The tenant is read again for each attempt: a change of it may be why the last attempt was refused. */
static void attempt(struct registering *r) {
    struct gb_txn txn = {0};

    if (!has_guard(r)) {
        send_attempt(r);
        return;
    }
    gb_fleet_read_meta(r->job.fleet, &txn, false);
    gb_tenant_read(r->job.fleet, &txn, &r->session.tenant);
    gb_job_txn(&r->job, &txn, GB_ETCD_MAJORITY, on_tenant);
}

/* Checks that this node may own sessions now, and makes the new record. */
static int begin(struct registering *r, uint64_t epoch, struct gb_error *err) {
    struct gb_fleet *fleet = r->job.fleet;
    uint64_t chance = 0;

    gb_etcd_check_connections(&fleet->etcd);
    if (!fleet->member.held || fleet->stat.state != GB_FLEET_JOINED)
        return gb_fleet_not_joined(fleet, err);
    if (fleet->etcd.lost)
        return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory does not answer at this moment");
    if (gb_restored_refuse(fleet, &r->session.name, err) < 0)
        return -1;
    if (gb_random(&chance, sizeof(chance), err) < 0)
        return -1;
    r->session.node = fleet->own.name;
    if (r->from_copies) {
        memcpy(r->session.claim, r->claim, sizeof(r->claim));
        return set_epoch(r, epoch, err);
    }
    /* The first half distinguishes claims of this process from those of an earlier one. */
    snprintf(r->session.claim, sizeof(r->session.claim), "%016" PRIx64 "-%016" PRIx64, fleet->member.incarnation,
             chance);
    return set_epoch(r, epoch, err);
}

static void start_registering(struct gb_job *job) {
    struct registering *r = gb_container_of(job, struct registering, job);
    struct gb_error err = GB_ERROR_INIT;

    if (begin(r, 1, &err) < 0)
        gb_job_fail(job, &err);
    else
        attempt(r);
}

static void ask(struct gb_fleet *fleet, struct gb_fleet_register *session, void (*start)(struct gb_job *job)) {
    struct registering *r = gb_job_new(fleet, sizeof(*r), start);

    if (r) {
        r->session = session->session;
        r->from_copies = session->from_copies;
        r->empty = session->empty;
        memcpy(r->claim, session->session.claim, sizeof(r->claim));
        r->job.give = give_registered;
        r->job.ending = note_cancelled;
        r->job.free = free_registering;
    }
    gb_job_ask(fleet, r ? &r->job : NULL, &session->ask);
}

void gb_fleet_register(struct gb_fleet *fleet, struct gb_fleet_register *session) {
    ask(fleet, session, start_registering);
}

/* --- taking over -------------------------------------------------------------------------------------------------- */

static void on_taken_owner(struct gb_etcd_call *call) {
    struct registering *r = gb_container_of((struct gb_job *)call->arg, struct registering, job);
    struct gb_error err = GB_ERROR_INIT;

    if (gb_job_check(&r->job) < 0)
        return;
    if (gb_txn_result(&call->txn, 1)->count > 0)
        gb_error_set(&err, GB_ERR_NODE_ALIVE, "the session \"%s\" is on the node \"%s\", which is alive",
                     r->session.name.s, r->from.s);
    else if (r->tries >= TRIES_MAX)
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the record of the session changes all the time; try again");
    if (err.code != GB_OK || begin(r, r->session.epoch + 1, &err) < 0)
        gb_job_fail(&r->job, &err);
    else
        attempt(r);
}

/* This node becomes the owner, and so is no holder any more. */
static bool leave_holders(struct registering *r, struct gb_fleet_session *there, struct gb_error *err) {
    const struct gb_name *self = &r->job.fleet->own.name;
    size_t i = 0;

    while (i < there->holder_count && !gb_name_equal(&there->holders[i].node, self))
        i++;
    if (i == there->holder_count && !gb_name_equal(&there->node, self)) {
        gb_error_set(err, GB_ERR_SUPERSEDED, "this node is no holder of copies for the session \"%s\" any more",
                     there->name.s);
        return false;
    }
    if (i < there->holder_count)
        there->holders[i] = there->holders[--there->holder_count];
    return true;
}

static bool has_copies(const struct gb_fleet_session *there, struct gb_error *err) {
    char names[256] = "";
    size_t used = 0;
    size_t i;

    for (i = 0; i < there->holder_count && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s\"%s\"", i > 0 ? ", " : "",
                                 there->holders[i].node.s);
    if (there->holder_count > 0)
        gb_error_set(err, GB_ERR_COPIES_REMAIN,
                     "copies of sealed buffers of the session \"%s\" are at %s: take it over there, or say that it is "
                     "to be empty",
                     there->name.s, names);
    return there->holder_count > 0;
}

static void on_taken(struct gb_etcd_call *call) {
    struct registering *r = gb_container_of((struct gb_job *)call->arg, struct registering, job);
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    struct gb_fleet_session there = {.name = r->session.name};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_txn txn = {0};

    if (gb_job_check(&r->job) < 0)
        return;
    if (kvs->count > 0 && gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, &err) < 0) {
        gb_job_fail(&r->job, &err);
        return;
    }
    if (kvs->count == 0 || there.deleted)
        gb_error_set(&err, GB_ERR_SESSION_NOT_FOUND, "the fleet has no session \"%s\"", r->session.name.s);
    else if (r->from.s[0] && there.epoch >= r->session.epoch)
        gb_error_set(&err, GB_ERR_SUPERSEDED, "the node \"%s\" has taken the session \"%s\" first", there.node.s,
                     there.name.s);
    /* An earlier takeover by this node, which was to be undone, continues. */
    else if (gb_name_equal(&there.node, &r->job.fleet->own.name) &&
             (!there.former.node.s[0] || !gb_unregister_is_queued(r->job.fleet, there.claim)))
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE,
                     "the directory says that this node has the session \"%s\", which is being put right; try again",
                     there.name.s);
    if (err.code != GB_OK) {
        gb_job_fail(&r->job, &err);
        return;
    }
    if (r->from_copies && !leave_holders(r, &there, &err)) {
        gb_job_fail(&r->job, &err);
        return;
    }
    if (!r->from_copies && !r->empty && has_copies(&there, &err)) {
        gb_job_fail(&r->job, &err);
        return;
    }
    if (!r->from_copies)
        there.holder_count = 0; /* the session begins empty: the copies of other nodes are not part of it */
    r->session = there;
    if (!gb_name_equal(&there.node, &r->job.fleet->own.name)) {
        r->session.former = (struct gb_fleet_former){.node = there.node, .epoch = there.epoch};
        memcpy(r->session.former.claim, there.claim, sizeof(there.claim));
    }
    r->from = r->session.former.node;
    r->replaces = kvs->items[0].mod_revision;
    gb_fleet_read_meta(r->job.fleet, &txn, false);
    gb_fleet_get(r->job.fleet, &txn, "alive", r->from.s, NULL, false);
    gb_job_txn(&r->job, &txn, GB_ETCD_MAJORITY, on_taken_owner);
}

static void read_taken(struct registering *r) {
    struct gb_txn txn = {0};

    gb_fleet_read_meta(r->job.fleet, &txn, false);
    gb_fleet_get(r->job.fleet, &txn, "sessions", r->session.name.s, NULL, false);
    gb_job_txn(&r->job, &txn, GB_ETCD_MAJORITY, on_taken);
}

static void start_taking(struct gb_job *job) {
    struct registering *r = gb_container_of(job, struct registering, job);

    r->takes_over = true;
    read_taken(r);
}

void gb_fleet_take_over(struct gb_fleet *fleet, struct gb_fleet_register *session) {
    ask(fleet, session, start_taking);
}

/* --- transferring ------------------------------------------------------------------------------------------------- */

/* The other node has the session's bytes already. One transaction decides the transfer. */

#define TRANSFER_TRIES_MAX 6

struct transferring {
    struct gb_job job;
    struct gb_fleet_session session; /* as this node has it; after the transfer, as the other node has it */
    uint64_t epoch;                  /* after the transfer */
    struct gb_name to;
    char claim[GB_FLEET_CLAIM_SIZE]; /* after the transfer */
    bool undecided;                  /* a transaction was sent, and its answer was lost */
    unsigned tries;
    struct gb_timer timer;
};

static void read_records(struct transferring *h);

static void give_transferred(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct transferring *h = gb_container_of(job, struct transferring, job);
    struct gb_fleet_transfer *transfer = gb_container_of(ask, struct gb_fleet_transfer, ask);

    if (job->error.code == GB_OK)
        transfer->session = h->session;
    transfer->undecided = job->error.code != GB_OK && h->undecided;
}

static void transferred(struct transferring *h) {
    struct gb_fleet *fleet = h->job.fleet;

    h->session.epoch = h->epoch;
    h->session.node = h->to;
    memcpy(h->session.claim, h->claim, sizeof(h->claim));
    pthread_mutex_lock(&fleet->lock);
    gb_find_cache_forget(fleet->finds, &h->session.name);
    pthread_mutex_unlock(&fleet->lock);
    gb_job_end(&h->job);
}

/* --- the transaction ---------------------------------------------------------------------------------------------- */

static void ask_again(void *arg) {
    struct transferring *h = arg;

    h->job.deadline_ms = gb_boot_ms() + GB_FLEET_CALL_MS;
    read_records(h);
}

/* Until the directory says what became of the transaction, either node may own the session. Requests for it are refused
 * meanwhile. */
static void await_outcome(struct transferring *h) {
    struct gb_fleet *fleet = h->job.fleet;

    gb_suspect_add(fleet, &h->session.name, h->epoch, GB_SUSPECT_UNCERTAIN);
    gb_timer_set(&fleet->timers, &h->timer, gb_etcd_again_ms(&fleet->etcd), ask_again, h);
}

static void cancel(struct gb_job *job) {
    gb_timer_clear(&job->fleet->timers, &gb_container_of(job, struct transferring, job)->timer);
}

static void fail(struct transferring *h, const struct gb_error *err) {
    if (h->undecided)
        await_outcome(h);
    else
        gb_job_fail(&h->job, err);
}

/* A record has changed since it was read. */
static void again(struct transferring *h) {
    struct gb_error err = GB_ERROR_INIT;

    if (++h->tries < TRANSFER_TRIES_MAX) {
        read_records(h);
        return;
    }
    h->tries = 0;
    gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the record of the session changes all the time; try again");
    fail(h, &err);
}

static void on_given(struct gb_etcd_call *call) {
    struct transferring *h = gb_container_of((struct gb_job *)call->arg, struct transferring, job);
    struct gb_error err = call->error;

    if (err.code == GB_OK && call->refusal == 0 && call->txn.succeeded) {
        transferred(h);
        return;
    }
    if (err.code == GB_OK) {
        again(h);
        return;
    }
    h->undecided = h->undecided || call->carried;
    fail(h, &err);
}

static void give(struct transferring *h, const struct gb_fleet_session *there, int64_t revision, int64_t own_alive,
                 int64_t to_alive) {
    struct gb_fleet *fleet = h->job.fleet;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_fleet_session next = *there;
    struct gb_txn txn = {0};
    char *text;

    next.node = h->to;
    next.epoch = there->epoch + 1;
    strcpy(next.claim, h->claim);
    text = gb_fleet_session_write(&next, &err);
    if (!text) {
        gb_job_fail(&h->job, &err);
        return;
    }
    h->epoch = next.epoch;
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_compare(fleet, &txn, "alive", fleet->own.name.s, NULL, GB_TXN_MODIFIED, own_alive);
    gb_fleet_compare(fleet, &txn, "alive", h->to.s, NULL, GB_TXN_MODIFIED, to_alive);
    gb_fleet_compare(fleet, &txn, "sessions", next.name.s, NULL, GB_TXN_MODIFIED, revision);
    gb_fleet_put(fleet, &txn, "sessions", next.name.s, NULL, text, 0);
    free(text);
    gb_fleet_delete(fleet, &txn, "owned", fleet->own.name.s, next.name.s);
    gb_fleet_put(fleet, &txn, "owned", h->to.s, next.name.s, "", 0);
    h->job.call.done = on_given;
    gb_etcd_send(&fleet->etcd, &h->job.call, GB_ETCD_TXN, gb_txn_finish(&txn), h->job.deadline_ms, false,
                 GB_ETCD_MAJORITY);
}

/* --- the conditions of a transfer --------------------------------------------------------------------------------- */

static int check_owner(struct transferring *h, const struct gb_fleet_session *there, const struct gb_kvs *own,
                       const struct gb_kvs *to, struct gb_error *err) {
    struct gb_fleet *fleet = h->job.fleet;
    struct gb_fleet_alive record;

    if (gb_own_record_check(fleet, there, h->session.claim, err) < 0)
        return -1;
    if (own->count == 0 || gb_fleet_alive_read(own->items[0].value, own->items[0].bytes, &record, NULL) < 0 ||
        record.incarnation != fleet->member.incarnation)
        return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "this node has just lost its place in the fleet");
    if (to->count == 0)
        return gb_error_set(err, GB_ERR_NODE_UNREACHABLE, "the node \"%s\" is not alive", h->to.s);
    return 0;
}

static void on_records(struct gb_etcd_call *call) {
    struct transferring *h = gb_container_of((struct gb_job *)call->arg, struct transferring, job);
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    const struct gb_kvs *own = gb_txn_result(&call->txn, 2);
    const struct gb_kvs *to = gb_txn_result(&call->txn, 3);
    struct gb_fleet_session there;
    struct gb_error err = GB_ERROR_INIT;

    if (h->undecided && call->error.code != GB_OK) {
        await_outcome(h);
        return;
    }
    if (gb_job_check(&h->job) < 0)
        return;
    gb_own_record_read(kvs, &h->session.name, &there, &err);
    if (err.code == GB_OK && strcmp(there.claim, h->claim) == 0) {
        h->epoch = there.epoch;
        transferred(h); /* the first answer was lost */
        return;
    }
    if (err.code == GB_OK && check_owner(h, &there, own, to, &err) == 0) {
        give(h, &there, kvs->items[0].mod_revision, own->items[0].mod_revision, to->items[0].mod_revision);
        return;
    }
    /* What an earlier transaction compares has changed: it can no longer be carried out. */
    if (err.code == GB_ERR_SUPERSEDED || err.code == GB_ERR_NODE_UNREACHABLE)
        h->undecided = false;
    fail(h, &err);
}

static void read_records(struct transferring *h) {
    struct gb_fleet *fleet = h->job.fleet;
    struct gb_txn txn = {0};

    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_get(fleet, &txn, "sessions", h->session.name.s, NULL, false);
    gb_fleet_get(fleet, &txn, "alive", fleet->own.name.s, NULL, false);
    gb_fleet_get(fleet, &txn, "alive", h->to.s, NULL, false);
    gb_job_txn(&h->job, &txn, GB_ETCD_MAJORITY, on_records);
}

static void start(struct gb_job *job) {
    struct transferring *h = gb_container_of(job, struct transferring, job);
    struct gb_error err = GB_ERROR_INIT;

    if (!job->fleet->member.held || job->fleet->stat.state != GB_FLEET_JOINED)
        gb_fleet_not_joined(job->fleet, &err);
    else if (gb_restored_refuse(job->fleet, &h->session.name, &err) == 0) {
        read_records(h);
        return;
    }
    gb_job_fail(job, &err);
}

/* --- asked from outside ------------------------------------------------------------------------------------------- */

void gb_fleet_transfer(struct gb_fleet *fleet, struct gb_fleet_transfer *transfer) {
    struct transferring *h = gb_job_new(fleet, sizeof(*h), start);

    if (h) {
        h->session = transfer->session;
        h->to = transfer->to;
        memcpy(h->claim, transfer->claim, sizeof(h->claim));
        h->job.give = give_transferred;
        h->job.cancel = cancel;
    }
    gb_job_ask(fleet, h ? &h->job : NULL, &transfer->ask);
}

int gb_fleet_claim_make(struct gb_fleet *fleet, char ret[GB_FLEET_CLAIM_SIZE], struct gb_error *err) {
    struct gb_fleet_stat stat;
    uint64_t chance = 0;

    if (gb_random(&chance, sizeof(chance), err) < 0)
        return -1;
    gb_fleet_stat(fleet, &stat);
    snprintf(ret, GB_FLEET_CLAIM_SIZE, "%016" PRIx64 "-%016" PRIx64, stat.incarnation, chance);
    return 0;
}

/* --- holders of copies -------------------------------------------------------------------------------------------- */

#define HELD_MAX 4096

/* --- writing ------------------------------------------------------------------------------------------------------ */

struct holder_write {
    struct gb_job job;
    struct gb_fleet_session session;
    unsigned tries;
};

static void read_record(struct holder_write *h);

static void on_written(struct gb_etcd_call *call) {
    struct holder_write *h = gb_container_of((struct gb_job *)call->arg, struct holder_write, job);
    struct gb_fleet *fleet = h->job.fleet;
    struct gb_error err = call->error;

    if (err.code == GB_OK && (call->refusal != 0 || !call->txn.succeeded)) {
        if (++h->tries < TRIES_MAX) {
            read_record(h);
            return;
        }
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the record of the session changes all the time; try again");
    }
    if (err.code != GB_OK) {
        gb_job_fail(&h->job, &err);
        return;
    }
    gb_member_note_write(fleet, &h->session.name, call->txn.revision);
    pthread_mutex_lock(&fleet->lock);
    gb_find_cache_forget(fleet->finds, &h->session.name);
    pthread_mutex_unlock(&fleet->lock);
    gb_job_end(&h->job);
}

static void write_record(struct holder_write *h, const struct gb_fleet_session *there, int64_t revision) {
    struct gb_fleet *fleet = h->job.fleet;
    struct gb_fleet_session next = *there;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_txn txn = {0};
    char *text;
    size_t i;

    memcpy(next.holders, h->session.holders, sizeof(next.holders));
    next.holder_count = h->session.holder_count;
    text = gb_fleet_session_write(&next, &err);
    if (!text) {
        gb_job_fail(&h->job, &err);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_compare(fleet, &txn, "sessions", next.name.s, NULL, GB_TXN_MODIFIED, revision);
    gb_fleet_put(fleet, &txn, "sessions", next.name.s, NULL, text, 0);
    free(text);
    for (i = 0; i < next.holder_count; i++) {
        if (gb_fleet_holder_of(there, &next.holders[i].node))
            continue;
        gb_fleet_put(fleet, &txn, "held", next.holders[i].node.s, next.name.s, "", 0);
    }
    h->job.call.done = on_written;
    gb_etcd_send(&fleet->etcd, &h->job.call, GB_ETCD_TXN, gb_txn_finish(&txn), h->job.deadline_ms, false,
                 GB_ETCD_MAJORITY);
}

static void on_record(struct gb_etcd_call *call) {
    struct holder_write *h = gb_container_of((struct gb_job *)call->arg, struct holder_write, job);
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    struct gb_fleet_session there;
    struct gb_error err = GB_ERROR_INIT;

    if (gb_job_check(&h->job) < 0)
        return;
    if (gb_own_record_read(kvs, &h->session.name, &there, &err) == 0 &&
        gb_own_record_check(h->job.fleet, &there, h->session.claim, &err) == 0)
        write_record(h, &there, kvs->items[0].mod_revision);
    else
        gb_job_fail(&h->job, &err);
}

static void read_record(struct holder_write *h) {
    struct gb_fleet *fleet = h->job.fleet;
    struct gb_txn txn = {0};

    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_get(fleet, &txn, "sessions", h->session.name.s, NULL, false);
    gb_job_txn(&h->job, &txn, GB_ETCD_MAJORITY, on_record);
}

static void start_holder_write(struct gb_job *job) {
    read_record(gb_container_of(job, struct holder_write, job));
}

void gb_fleet_set_holders(struct gb_fleet *fleet, struct gb_fleet_holder_set *set) {
    struct holder_write *h = gb_job_new(fleet, sizeof(*h), start_holder_write);

    if (h)
        h->session = set->session;
    gb_job_ask(fleet, h ? &h->job : NULL, &set->ask);
}

/* --- sessions of which this node is a holder ---------------------------------------------------------------------- */

struct listing {
    struct gb_job job;
    struct gb_name *names;
    size_t count;
};

static void give_list(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct listing *l = gb_container_of(job, struct listing, job);
    struct gb_fleet_held *held = gb_container_of(ask, struct gb_fleet_held, ask);

    held->names = l->names;
    held->count = l->count;
    l->names = NULL;
}

static void free_listing(struct gb_job *job) {
    free(gb_container_of(job, struct listing, job)->names);
}

static void on_listed(struct gb_etcd_call *call) {
    struct listing *l = gb_container_of((struct gb_job *)call->arg, struct listing, job);
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    struct gb_error err = GB_ERROR_INIT;
    char prefix[GB_FLEET_KEY_SIZE];
    size_t i;

    if (gb_job_check(&l->job) < 0)
        return;
    gb_fleet_key(l->job.fleet, "held", l->job.fleet->own.name.s, "", prefix);
    l->names = kvs->count > 0 ? calloc(kvs->count, sizeof(*l->names)) : NULL;
    if (kvs->count > 0 && !l->names) {
        gb_error_set(&err, GB_ERR_SATURATED, "no memory for the list of copies");
        gb_job_fail(&l->job, &err);
        return;
    }
    for (i = 0; i < kvs->count; i++)
        l->count += gb_fleet_name_of(kvs->items[i].key, prefix, &l->names[l->count]);
    gb_job_end(&l->job);
}

static void start_listing(struct gb_job *job) {
    struct gb_txn_range range = {.limit = HELD_MAX, .keys_only = true};
    struct gb_txn txn = {0};

    gb_fleet_read_meta(job->fleet, &txn, false);
    gb_fleet_get_all(job->fleet, &txn, range, "", "held", job->fleet->own.name.s, "");
    gb_job_txn(job, &txn, GB_ETCD_MAJORITY, on_listed);
}

void gb_fleet_list_held(struct gb_fleet *fleet, struct gb_fleet_held *held) {
    struct listing *l = gb_job_new(fleet, sizeof(*l), start_listing);

    held->names = NULL;
    held->count = 0;
    if (l) {
        l->job.give = give_list;
        l->job.free = free_listing;
    }
    gb_job_ask(fleet, l ? &l->job : NULL, &held->ask);
}

struct held_drop {
    struct gb_job job;
    struct gb_name session;
};

static void on_held_dropped(struct gb_etcd_call *call) {
    struct gb_job *job = call->arg;

    if (gb_job_check(job) == 0)
        gb_job_end(job);
}

static void start_held_drop(struct gb_job *job) {
    struct held_drop *l = gb_container_of(job, struct held_drop, job);
    struct gb_txn txn = {0};

    gb_fleet_read_meta(job->fleet, &txn, false);
    gb_fleet_delete(job->fleet, &txn, "held", job->fleet->own.name.s, l->session.s);
    gb_job_txn(job, &txn, GB_ETCD_MAJORITY, on_held_dropped);
}

void gb_fleet_drop_held(struct gb_fleet *fleet, struct gb_fleet_held_drop *drop) {
    struct held_drop *l = gb_job_new(fleet, sizeof(*l), start_held_drop);

    if (l)
        l->session = drop->session;
    gb_job_ask(fleet, l ? &l->job : NULL, &drop->ask);
}
