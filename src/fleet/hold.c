/* Which nodes may have copies of a session: written by its owner, read by them. */
#include <stdlib.h>
#include <string.h>

#include "fleet/internal.h"

#define TRIES_MAX 4
#define HELD_MAX 4096

/* --- writing ------------------------------------------------------------------------------------------------------ */

struct holding {
    struct gb_job job;
    struct gb_fleet_session session;
    unsigned tries;
};

static void read_record(struct holding *h);

static void on_written(struct gb_etcd_call *call) {
    struct holding *h = gb_container_of((struct gb_job *)call->arg, struct holding, job);
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
    gb_member_mark(fleet, &h->session.name, call->txn.revision);
    pthread_mutex_lock(&fleet->lock);
    gb_find_cache_forget(fleet->finds, &h->session.name);
    pthread_mutex_unlock(&fleet->lock);
    gb_job_end(&h->job);
}

static void write_record(struct holding *h, const struct gb_fleet_session *there, int64_t revision) {
    struct gb_fleet *fleet = h->job.fleet;
    struct gb_fleet_session next = *there;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
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
    gb_fleet_key(fleet, "sessions", next.name.s, NULL, key);
    gb_txn_compare(&txn, GB_TXN_MODIFIED, key, revision);
    gb_txn_put(&txn, key, text, 0);
    free(text);
    for (i = 0; i < next.holder_count; i++) {
        if (gb_fleet_holder_of(there, &next.holders[i].node))
            continue;
        gb_fleet_key(fleet, "held", next.holders[i].node.s, next.name.s, key);
        gb_txn_put(&txn, key, "", 0);
    }
    h->job.call.done = on_written;
    gb_etcd_send(&fleet->etcd, &h->job.call, GB_ETCD_TXN, gb_txn_finish(&txn), h->job.deadline_ms, false,
                 GB_ETCD_MAJORITY);
}

static void on_record(struct gb_etcd_call *call) {
    struct holding *h = gb_container_of((struct gb_job *)call->arg, struct holding, job);
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

static void read_record(struct holding *h) {
    struct gb_fleet *fleet = h->job.fleet;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];

    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_key(fleet, "sessions", h->session.name.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    gb_job_txn(&h->job, &txn, GB_ETCD_MAJORITY, on_record);
}

static void start_holding(struct gb_job *job) {
    read_record(gb_container_of(job, struct holding, job));
}

void gb_fleet_hold(struct gb_fleet *fleet, struct gb_fleet_hold *hold) {
    struct holding *h = gb_job_new(fleet, sizeof(*h), start_holding);

    if (h)
        h->session = hold->session;
    gb_job_ask(fleet, h ? &h->job : NULL, &hold->ask);
}

/* --- what this node holds ----------------------------------------------------------------------------------------- */

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
    char prefix[GB_FLEET_KEY_SIZE];
    char end[GB_FLEET_KEY_SIZE];
    struct gb_txn_range range = {.key = prefix, .end = end, .limit = HELD_MAX, .keys_only = true};
    struct gb_txn txn = {0};

    gb_fleet_read_meta(job->fleet, &txn, false);
    gb_fleet_key(job->fleet, "held", job->fleet->own.name.s, "", prefix);
    gb_prefix_end(prefix, end, sizeof(end));
    gb_txn_get(&txn, &range);
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

struct unholding {
    struct gb_job job;
    struct gb_name session;
};

static void on_unhold(struct gb_etcd_call *call) {
    struct gb_job *job = call->arg;

    if (gb_job_check(job) == 0)
        gb_job_end(job);
}

static void start_unholding(struct gb_job *job) {
    struct unholding *l = gb_container_of(job, struct unholding, job);
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];

    gb_fleet_read_meta(job->fleet, &txn, false);
    gb_fleet_key(job->fleet, "held", job->fleet->own.name.s, l->session.s, key);
    gb_txn_delete(&txn, key);
    gb_job_txn(job, &txn, GB_ETCD_MAJORITY, on_unhold);
}

void gb_fleet_unhold(struct gb_fleet *fleet, struct gb_fleet_unhold *unhold) {
    struct unholding *l = gb_job_new(fleet, sizeof(*l), start_unholding);

    if (l)
        l->session = unhold->session;
    gb_job_ask(fleet, l ? &l->job : NULL, &unhold->ask);
}
