/* A session of this node is given to another one, which has its bytes already. One transaction decides it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fleet/internal.h"

#define TRIES_MAX 6

struct handing {
    struct gb_job job;
    struct gb_fleet_session session; /* as it is here, then as it is there */
    uint64_t epoch;                  /* there */
    struct gb_name to;
    char claim[GB_FLEET_CLAIM_SIZE]; /* there */
    bool undecided;                  /* a transaction was sent, and its answer did not come */
    unsigned tries;
    struct gb_timer timer;
};

static void read_records(struct handing *h);

static void give_handed(struct gb_job *job, struct gb_fleet_ask *ask) {
    struct handing *h = gb_container_of(job, struct handing, job);
    struct gb_fleet_hand *hand = gb_container_of(ask, struct gb_fleet_hand, ask);

    if (job->error.code == GB_OK)
        hand->session = h->session;
    hand->undecided = job->error.code != GB_OK && h->undecided;
}

static void handed(struct handing *h) {
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
    struct handing *h = arg;

    h->job.deadline_ms = gb_boot_ms() + GB_FLEET_CALL_MS;
    read_records(h);
}

/* Until the directory has said what became of a transaction, the session is neither this node's nor the other's: then
 * requests for it are refused. */
static void wait(struct handing *h) {
    struct gb_fleet *fleet = h->job.fleet;

    gb_doubt_add(fleet, &h->session.name, h->epoch, GB_DOUBT_EPOCH);
    gb_timer_set(&fleet->timers, &h->timer, gb_etcd_again_ms(&fleet->etcd), ask_again, h);
}

static void cancel(struct gb_job *job) {
    gb_timer_clear(&job->fleet->timers, &gb_container_of(job, struct handing, job)->timer);
}

static void fail(struct handing *h, const struct gb_error *err) {
    if (h->undecided)
        wait(h);
    else
        gb_job_fail(&h->job, err);
}

/* Records have changed since they were read. */
static void again(struct handing *h) {
    struct gb_error err = GB_ERROR_INIT;

    if (++h->tries < TRIES_MAX) {
        read_records(h);
        return;
    }
    h->tries = 0;
    gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the record of the session changes all the time; try again");
    fail(h, &err);
}

static void on_given(struct gb_etcd_call *call) {
    struct handing *h = gb_container_of((struct gb_job *)call->arg, struct handing, job);
    struct gb_error err = call->error;

    if (err.code == GB_OK && call->refusal == 0 && call->txn.succeeded) {
        handed(h);
        return;
    }
    if (err.code == GB_OK) {
        again(h);
        return;
    }
    h->undecided = h->undecided || call->carried;
    fail(h, &err);
}

static void give(struct handing *h, const struct gb_fleet_session *there, int64_t revision, int64_t own_alive,
                 int64_t to_alive) {
    struct gb_fleet *fleet = h->job.fleet;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_fleet_session next = *there;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
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
    gb_fleet_key(fleet, "alive", fleet->own.name.s, NULL, key);
    gb_txn_compare(&txn, GB_TXN_MODIFIED, key, own_alive);
    gb_fleet_key(fleet, "alive", h->to.s, NULL, key);
    gb_txn_compare(&txn, GB_TXN_MODIFIED, key, to_alive);
    gb_fleet_key(fleet, "sessions", next.name.s, NULL, key);
    gb_txn_compare(&txn, GB_TXN_MODIFIED, key, revision);
    gb_txn_put(&txn, key, text, 0);
    free(text);
    gb_fleet_key(fleet, "owned", fleet->own.name.s, next.name.s, key);
    gb_txn_delete(&txn, key);
    gb_fleet_key(fleet, "owned", h->to.s, next.name.s, key);
    gb_txn_put(&txn, key, "", 0);
    h->job.call.done = on_given;
    gb_etcd_send(&fleet->etcd, &h->job.call, GB_ETCD_TXN, gb_txn_finish(&txn), h->job.deadline_ms, false,
                 GB_ETCD_MAJORITY);
}

/* --- what it depends on ------------------------------------------------------------------------------------------- */

static int check_owner(struct handing *h, const struct gb_fleet_session *there, const struct gb_kvs *own,
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
    struct handing *h = gb_container_of((struct gb_job *)call->arg, struct handing, job);
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    const struct gb_kvs *own = gb_txn_result(&call->txn, 2);
    const struct gb_kvs *to = gb_txn_result(&call->txn, 3);
    struct gb_fleet_session there;
    struct gb_error err = GB_ERROR_INIT;

    if (h->undecided && call->error.code != GB_OK) {
        wait(h);
        return;
    }
    if (gb_job_check(&h->job) < 0)
        return;
    gb_own_record_read(kvs, &h->session.name, &there, &err);
    if (err.code == GB_OK && strcmp(there.claim, h->claim) == 0) {
        h->epoch = there.epoch;
        handed(h); /* the first answer was lost */
        return;
    }
    if (err.code == GB_OK && check_owner(h, &there, own, to, &err) == 0) {
        give(h, &there, kvs->items[0].mod_revision, own->items[0].mod_revision, to->items[0].mod_revision);
        return;
    }
    /* What an earlier transaction compares has changed, so that it can no longer be carried out. */
    if (err.code == GB_ERR_SUPERSEDED || err.code == GB_ERR_NODE_UNREACHABLE)
        h->undecided = false;
    fail(h, &err);
}

static void read_records(struct handing *h) {
    struct gb_fleet *fleet = h->job.fleet;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];

    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_key(fleet, "sessions", h->session.name.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    gb_fleet_key(fleet, "alive", fleet->own.name.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    gb_fleet_key(fleet, "alive", h->to.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    gb_job_txn(&h->job, &txn, GB_ETCD_MAJORITY, on_records);
}

static void start(struct gb_job *job) {
    struct handing *h = gb_container_of(job, struct handing, job);
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

void gb_fleet_hand(struct gb_fleet *fleet, struct gb_fleet_hand *hand) {
    struct handing *h = gb_job_new(fleet, sizeof(*h), start);

    if (h) {
        h->session = hand->session;
        h->to = hand->to;
        memcpy(h->claim, hand->claim, sizeof(h->claim));
        h->job.give = give_handed;
        h->job.cancel = cancel;
    }
    gb_job_ask(fleet, h ? &h->job : NULL, &hand->ask);
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
