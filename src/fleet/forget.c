/* What an operator takes out of the directory: a node that does not come back, and a session whose node is away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/internal.h"

/* --- a node ------------------------------------------------------------------------------------------------------- */

#define FORGET_PAGE 30 /* of a transaction's 128 operations, three a session and two comparisons */

struct forgetting {
    struct gb_job job;
    struct gb_name node;
    struct gb_name names[FORGET_PAGE];
    struct gb_name tenants[FORGET_PAGE];
    int64_t revision[FORGET_PAGE]; /* of the session's record; 0: it is not this node's */
    size_t count;
};

static void forget_page(struct forgetting *f);

static void compare_gone(struct forgetting *f, struct gb_txn *txn) {
    char key[GB_FLEET_KEY_SIZE];

    gb_fleet_compare_meta(f->job.fleet, txn);
    gb_fleet_key(f->job.fleet, "alive", f->node.s, NULL, key);
    gb_txn_compare(txn, GB_TXN_CREATED, key, 0);
}

static void on_node_deleted(struct gb_etcd_call *call) {
    struct forgetting *f = gb_container_of((struct gb_job *)call->arg, struct forgetting, job);

    if (call->error.code != GB_OK)
        gb_job_fail(&f->job, &call->error);
    else if (call->txn.succeeded)
        gb_job_end(&f->job);
    else
        forget_page(f); /* it has come to life, or owns more */
}

static void delete_node(struct forgetting *f) {
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];

    compare_gone(f, &txn);
    gb_fleet_key(f->job.fleet, "nodes", f->node.s, NULL, key);
    gb_txn_delete(&txn, key);
    gb_fleet_key(f->job.fleet, "ctl", f->node.s, "", key);
    gb_txn_delete_below(&txn, key);
    gb_job_txn(&f->job, &txn, GB_ETCD_MAJORITY, on_node_deleted);
}

static void on_page_deleted(struct gb_etcd_call *call) {
    struct forgetting *f = gb_container_of((struct gb_job *)call->arg, struct forgetting, job);
    struct gb_fleet *fleet = f->job.fleet;
    size_t i;

    if (call->error.code != GB_OK) {
        gb_job_fail(&f->job, &call->error);
        return;
    }
    pthread_mutex_lock(&fleet->lock);
    for (i = 0; i < f->count; i++)
        gb_find_cache_forget(fleet->finds, &f->names[i]);
    pthread_mutex_unlock(&fleet->lock);
    forget_page(f);
}

static void delete_page(struct forgetting *f) {
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    size_t i;

    compare_gone(f, &txn);
    for (i = 0; i < f->count; i++) {
        gb_fleet_key(f->job.fleet, "sessions", f->names[i].s, NULL, key);
        if (f->revision[i] > 0)
            gb_txn_compare(&txn, GB_TXN_MODIFIED, key, f->revision[i]);
    }
    for (i = 0; i < f->count; i++) {
        gb_fleet_key(f->job.fleet, "sessions", f->names[i].s, NULL, key);
        if (f->revision[i] > 0)
            gb_txn_delete(&txn, key);
        gb_fleet_key(f->job.fleet, "owned", f->node.s, f->names[i].s, key);
        gb_txn_delete(&txn, key);
        if (f->revision[i] > 0)
            gb_tenant_erase(f->job.fleet, &txn, &f->tenants[i], f->names[i].s);
    }
    gb_job_txn(&f->job, &txn, GB_ETCD_MAJORITY, on_page_deleted);
}

static void on_page_records(struct gb_etcd_call *call) {
    struct forgetting *f = gb_container_of((struct gb_job *)call->arg, struct forgetting, job);
    size_t i;

    if (gb_job_check(&f->job) < 0)
        return;
    for (i = 0; i < f->count; i++) {
        const struct gb_kvs *kvs = gb_txn_result(&call->txn, i + 1);
        struct gb_fleet_session there = {0};

        f->revision[i] = 0;
        if (kvs->count > 0 && gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, NULL) == 0 &&
            gb_name_equal(&there.node, &f->node))
            f->revision[i] = kvs->items[0].mod_revision;
        f->tenants[i] = there.tenant;
    }
    delete_page(f);
}

static void read_page_records(struct forgetting *f) {
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    size_t i;

    gb_fleet_read_meta(f->job.fleet, &txn, false);
    for (i = 0; i < f->count; i++) {
        gb_fleet_key(f->job.fleet, "sessions", f->names[i].s, NULL, key);
        gb_fleet_get(&txn, key, false);
    }
    gb_job_txn(&f->job, &txn, GB_ETCD_MAJORITY, on_page_records);
}

static void on_forget_page(struct gb_etcd_call *call) {
    struct forgetting *f = gb_container_of((struct gb_job *)call->arg, struct forgetting, job);
    const struct gb_kvs *owned = gb_txn_result(&call->txn, 3);
    struct gb_error err = GB_ERROR_INIT;
    char prefix[GB_FLEET_KEY_SIZE];
    size_t i;

    if (gb_job_check(&f->job) < 0)
        return;
    if (gb_txn_result(&call->txn, 1)->count == 0)
        gb_error_set(&err, GB_ERR_NODE_NOT_FOUND, "the fleet has no node \"%s\"", f->node.s);
    else if (gb_txn_result(&call->txn, 2)->count > 0)
        gb_error_set(&err, GB_ERR_NODE_ALIVE, "node \"%s\" is alive; stop it first", f->node.s);
    if (err.code != GB_OK) {
        gb_job_fail(&f->job, &err);
        return;
    }
    gb_fleet_key(f->job.fleet, "owned", f->node.s, "", prefix);
    f->count = 0;
    for (i = 0; i < owned->count && f->count < FORGET_PAGE; i++)
        if (gb_fleet_name_of(owned->items[i].key, prefix, &f->names[f->count]))
            f->count++;
    if (f->count > 0)
        read_page_records(f);
    else
        delete_node(f);
}

/* Looks at the node and at what it still owns. What is deleted is not there the next time. */
static void forget_page(struct forgetting *f) {
    struct gb_fleet *fleet = f->job.fleet;
    struct gb_txn_range owned = {.limit = FORGET_PAGE, .keys_only = true};
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    char end[GB_FLEET_KEY_SIZE];

    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_key(fleet, "nodes", f->node.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    gb_fleet_key(fleet, "alive", f->node.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    gb_fleet_key(fleet, "owned", f->node.s, "", key);
    gb_prefix_end(key, end, sizeof(end));
    owned.key = key;
    owned.end = end;
    gb_txn_get(&txn, &owned);
    gb_job_txn(&f->job, &txn, GB_ETCD_MAJORITY, on_forget_page);
}

static void start_forgetting(struct gb_job *job) {
    forget_page(gb_container_of(job, struct forgetting, job));
}

void gb_fleet_forget(struct gb_fleet *fleet, struct gb_fleet_forget *forget) {
    struct forgetting *f = gb_job_new(fleet, sizeof(*f), start_forgetting);

    if (f)
        f->node = forget->node;
    gb_job_ask(fleet, f ? &f->job : NULL, &forget->ask);
}

/* --- a session ---------------------------------------------------------------------------------------------------- */

struct burying {
    struct gb_job job;
    struct gb_name name;
    struct gb_fleet_session session;
    int64_t revision;
    int64_t lease;
    struct gb_error why; /* the lease is given back for that */
};

/* What is said of it in the end; the lease that nothing hangs on is not kept. */
static void on_lease_back(struct gb_etcd_call *call) {
    struct burying *b = gb_container_of((struct gb_job *)call->arg, struct burying, job);

    gb_job_fail(&b->job, &b->why);
}

static void give_back(struct burying *b) {
    b->job.call.done = on_lease_back;
    gb_etcd_send(&b->job.fleet->etcd, &b->job.call, GB_ETCD_REVOKE, gb_lease_text(b->lease, false), b->job.deadline_ms,
                 true, GB_ETCD_PROBE);
}

/* The request was sent twice, and the first had been carried out. */
static bool is_buried(const struct burying *b) {
    const struct gb_kvs *kvs = gb_txn_result(&b->job.call.txn, 1);
    struct gb_fleet_session there = {.name = b->name};

    return kvs->count > 0 && gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, NULL) == 0 &&
           there.deleted && strcmp(there.claim, b->session.claim) == 0;
}

static void on_buried(struct gb_etcd_call *call) {
    struct burying *b = gb_container_of((struct gb_job *)call->arg, struct burying, job);
    struct gb_fleet *fleet = b->job.fleet;

    if (call->error.code == GB_OK && call->refusal == 0 && (call->txn.succeeded || is_buried(b))) {
        pthread_mutex_lock(&fleet->lock);
        gb_find_cache_forget(fleet->finds, &b->name);
        pthread_mutex_unlock(&fleet->lock);
        gb_job_end(&b->job);
        return;
    }
    if (call->error.code != GB_OK) { /* it may have been carried out: then the tombstone needs its lease */
        gb_job_fail(&b->job, &call->error);
        return;
    }
    if (gb_txn_result(&call->txn, 0)->count > 0)
        gb_error_set(&b->why, GB_ERR_NODE_ALIVE, "node \"%s\" has come back; delete the session there",
                     b->session.node.s);
    else
        gb_error_set(&b->why, GB_ERR_DIRECTORY_UNAVAILABLE, "the record of the session has just changed; try again");
    give_back(b);
}

static void on_lease(struct gb_etcd_call *call) {
    struct burying *b = gb_container_of((struct gb_job *)call->arg, struct burying, job);
    struct gb_fleet *fleet = b->job.fleet;
    struct gb_error err = call->error;
    struct gb_txn txn = {0};
    char alive_key[GB_FLEET_KEY_SIZE];

    gb_fleet_key(fleet, "alive", b->session.node.s, NULL, alive_key);
    if (err.code == GB_OK && call->refusal != 0)
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory gives no lease; try again");
    if (err.code == GB_OK) {
        gb_txn_compare(&txn, GB_TXN_CREATED, alive_key, 0);
        gb_bury_session(fleet, &txn, &b->session, b->lease, b->revision, &err);
    }
    if (err.code != GB_OK) {
        free(gb_txn_finish(&txn));
        gb_job_fail(&b->job, &err);
        return;
    }
    gb_txn_else(&txn);
    gb_fleet_get(&txn, alive_key, false);
    gb_fleet_key(fleet, "sessions", b->name.s, NULL, alive_key);
    gb_fleet_get(&txn, alive_key, false);
    b->job.call.done = on_buried;
    gb_etcd_send(&fleet->etcd, &b->job.call, GB_ETCD_TXN, gb_txn_finish(&txn), b->job.deadline_ms, false,
                 GB_ETCD_MAJORITY);
}

static void take_lease(struct burying *b) {
    b->lease = gb_tombstone_lease();
    b->job.call.done = on_lease;
    gb_etcd_send(&b->job.fleet->etcd, &b->job.call, GB_ETCD_GRANT, gb_lease_grant_text(b->lease, GB_TOMBSTONE_S),
                 b->job.deadline_ms, false, GB_ETCD_MAJORITY);
}

static void on_bury_owner(struct gb_etcd_call *call) {
    struct burying *b = gb_container_of((struct gb_job *)call->arg, struct burying, job);
    struct gb_error err = GB_ERROR_INIT;

    if (gb_job_check(&b->job) < 0)
        return;
    if (gb_txn_result(&call->txn, 1)->count == 0) {
        take_lease(b);
        return;
    }
    gb_error_set(&err, GB_ERR_NODE_ALIVE, "the session \"%s\" is on the node \"%s\", which is alive; delete it there",
                 b->name.s, b->session.node.s);
    gb_job_fail(&b->job, &err);
}

static void on_bury_record(struct gb_etcd_call *call) {
    struct burying *b = gb_container_of((struct gb_job *)call->arg, struct burying, job);
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];

    if (gb_job_check(&b->job) < 0)
        return;
    b->session.name = b->name;
    if (kvs->count > 0 && gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &b->session, &err) < 0) {
        gb_job_fail(&b->job, &err);
        return;
    }
    if (kvs->count == 0 || b->session.deleted) {
        gb_error_set(&err, GB_ERR_SESSION_NOT_FOUND, "the fleet has no session \"%s\"", b->name.s);
        gb_job_fail(&b->job, &err);
        return;
    }
    b->revision = kvs->items[0].mod_revision;
    gb_fleet_read_meta(b->job.fleet, &txn, false);
    gb_fleet_key(b->job.fleet, "alive", b->session.node.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    gb_job_txn(&b->job, &txn, GB_ETCD_MAJORITY, on_bury_owner);
}

static void start_burying(struct gb_job *job) {
    struct burying *b = gb_container_of(job, struct burying, job);
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];

    gb_fleet_read_meta(job->fleet, &txn, false);
    gb_fleet_key(job->fleet, "sessions", b->name.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    gb_job_txn(job, &txn, GB_ETCD_MAJORITY, on_bury_record);
}

void gb_fleet_bury(struct gb_fleet *fleet, struct gb_fleet_bury *bury) {
    struct burying *b = gb_job_new(fleet, sizeof(*b), start_burying);

    if (b)
        b->name = bury->session;
    gb_job_ask(fleet, b ? &b->job : NULL, &bury->ask);
}
