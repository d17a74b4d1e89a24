/* Removes sessions from the directory: sessions of this node that no longer exist, and on request a node that never
 * returns, or a session whose node is away. A record whose epoch clients have seen becomes a tombstone. owner.c,
 * reconcile.c and the API queue removals; everything runs on the fleet's thread. */
#include "fleet/forget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fleet/directory.h"
#include "fleet/find.h"
#include "fleet/state.h"
#include "fleet/tenant.h"

/* --- records of this node's sessions ------------------------------------------------------------------------------ */

static int64_t tombstone_lease(void) {
    uint64_t id = 0;

    gb_random(&id, sizeof(id), NULL); /* the directory refuses an id that is in use */
    return (int64_t)(id >> 1 | 1);
}

/* Adds what turns a session's record into a tombstone, if the record still has that revision. */
static int put_tombstone(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_fleet_session *session,
                         int64_t lease, int64_t revision, struct gb_error *err) {
    struct gb_fleet_session tombstone = *session;
    char *text;

    tombstone.deleted = true;
    tombstone.released = false;
    text = gb_fleet_session_write(&tombstone, err);
    if (!text)
        return -1;
    gb_fleet_compare_meta(fleet, txn);
    gb_fleet_compare(fleet, txn, "sessions", session->name.s, NULL, GB_TXN_MODIFIED, revision);
    gb_fleet_put(fleet, txn, "sessions", session->name.s, NULL, text, lease);
    gb_fleet_delete(fleet, txn, "owned", session->node.s, session->name.s);
    gb_tenant_erase(fleet, txn, &session->tenant, session->name.s);
    free(text);
    return 0;
}

#define MISSING_MS 10000 /* longer than making a session takes; at most twice the lease */
#define RELEASED_MS 3000 /* a node that has the session checks each second, and takes the record within this time */

static int add(struct gb_fleet *fleet, const struct gb_name *session, const char *claim, bool made, bool releases,
               uint64_t not_before_ms) {
    struct gb_unregister *one = calloc(1, sizeof(*one));
    struct gb_unregister **at;

    if (!one)
        return -1;
    one->session = *session;
    one->made = made;
    one->releases = releases;
    one->not_before_ms = not_before_ms;
    snprintf(one->claim, sizeof(one->claim), "%s", claim);
    pthread_mutex_lock(&fleet->lock);
    gb_find_cache_forget(fleet->finds, session);
    for (at = &fleet->unregisters; *at; at = &(*at)->next)
        ;
    *at = one;
    pthread_mutex_unlock(&fleet->lock);
    return 0;
}

/* missing: also counts records that are kept if their session turns up. */
static bool is_listed(struct gb_fleet *fleet, const char *claim, bool missing) {
    const struct gb_unregister *one;

    pthread_mutex_lock(&fleet->lock);
    one = fleet->unregisters;
    while (one && (strcmp(one->claim, claim) != 0 || (one->not_before_ms > 0 && !missing)))
        one = one->next;
    pthread_mutex_unlock(&fleet->lock);
    return one != NULL;
}

uint64_t gb_unregister_missing_ms(const struct gb_fleet *fleet) {
    uint64_t twice_ms = 2000ull * fleet->member.ttl_s;

    return twice_ms < MISSING_MS ? twice_ms : MISSING_MS;
}

/* A record may have been queued before the directory became suspect: it waits no longer than until that time. */
static void shorten_wait(struct gb_fleet *fleet, const char *claim, uint64_t at_ms) {
    struct gb_unregister *one;

    pthread_mutex_lock(&fleet->lock);
    for (one = fleet->unregisters; one; one = one->next)
        if (strcmp(one->claim, claim) == 0 && !one->marked && one->not_before_ms > at_ms) {
            one->not_before_ms = at_ms;
            one->releases = true;
        }
    pthread_mutex_unlock(&fleet->lock);
}

int gb_unregister_add_missing(struct gb_fleet *fleet, const struct gb_name *session, const char *claim) {
    bool maybe = gb_fleet_suspect_s(fleet) > 0;
    uint64_t wait_ms = gb_unregister_missing_ms(fleet);

    /* The node that has the session takes the record once this node has released it. The directory is suspect until
     * then, so that no node assigns the name. */
    if (maybe && gb_member_third_ms(fleet) < wait_ms)
        wait_ms = gb_member_third_ms(fleet);
    if (!is_listed(fleet, claim, true))
        return add(fleet, session, claim, false, maybe, gb_boot_ms() + wait_ms);
    if (maybe)
        shorten_wait(fleet, claim, gb_boot_ms() + wait_ms);
    return 0;
}

int gb_unregister_add_orphan(struct gb_fleet *fleet, const struct gb_name *session, const char *claim) {
    return is_listed(fleet, claim, true) ? 0 : add(fleet, session, claim, false, false, 1);
}

bool gb_unregister_is_queued(struct gb_fleet *fleet, const char *claim) {
    return is_listed(fleet, claim, false);
}

bool gb_unregister_is_missing(struct gb_fleet *fleet, const char *claim) {
    return is_listed(fleet, claim, true) && !is_listed(fleet, claim, false);
}

/* The present removal has ended: continues with the next one. */
static void swept(struct gb_fleet *fleet) {
    struct gb_unregister *one = fleet->sweeping;
    struct gb_unregister **at;

    pthread_mutex_lock(&fleet->lock);
    for (at = &fleet->unregisters; *at != one; at = &(*at)->next)
        ;
    *at = one->next;
    gb_find_cache_forget(fleet->finds, &one->session);
    pthread_mutex_unlock(&fleet->lock);
    free(one);
    gb_unregister_sweep(fleet);
}

static void sweep(void *arg) {
    gb_unregister_sweep(arg);
}

static void sweep_later(struct gb_fleet *fleet) {
    gb_timer_set(&fleet->timers, &fleet->sweep_again, gb_etcd_again_ms(&fleet->etcd), sweep, fleet);
}

static void send(struct gb_fleet *fleet, struct gb_txn *txn, void (*done)(struct gb_etcd_call *call)) {
    fleet->sweep.arg = fleet;
    fleet->sweep.done = done;
    gb_etcd_send(&fleet->etcd, &fleet->sweep, GB_ETCD_TXN, gb_txn_finish(txn), gb_boot_ms() + GB_ETCD_TOTAL_MS, true,
                 GB_ETCD_MAJORITY);
}

static void on_unregistered(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;

    if (call->error.code == GB_OK && call->refusal == 0 && call->txn.succeeded)
        swept(fleet);
    else
        sweep_later(fleet); /* the record may have changed: reads it again */
}

void gb_delete_session(const struct gb_fleet *fleet, struct gb_txn *txn, const char *node,
                       const struct gb_fleet_session *session, int64_t revision) {
    gb_fleet_compare_meta(fleet, txn);
    gb_fleet_compare(fleet, txn, "sessions", session->name.s, NULL, GB_TXN_MODIFIED, revision);
    if (revision > 0)
        gb_fleet_delete(fleet, txn, "sessions", session->name.s, NULL);
    gb_fleet_delete(fleet, txn, "owned", node, session->name.s);
    gb_tenant_erase(fleet, txn, &session->tenant, session->name.s);
}

/* Clients have seen an epoch above 1. The tombstone keeps it, so that the next session of the name begins above it. */
static void on_sweep_lease(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    struct gb_txn txn = {0};

    if (call->error.code != GB_OK || call->refusal != 0 ||
        put_tombstone(fleet, &txn, &fleet->sweep_record, fleet->sweep_lease, fleet->sweep_revision, NULL) < 0) {
        sweep_later(fleet);
        return;
    }
    send(fleet, &txn, on_unregistered);
}

static void make_tombstone(struct gb_fleet *fleet, struct gb_etcd_call *call) {
    fleet->sweep_lease = tombstone_lease();
    call->done = on_sweep_lease;
    gb_etcd_send(&fleet->etcd, call, GB_ETCD_GRANT, gb_lease_grant_text(fleet->sweep_lease, GB_TOMBSTONE_S),
                 gb_boot_ms() + GB_ETCD_TOTAL_MS, false, GB_ETCD_MAJORITY);
}

/* The session was taken over, and then not made here: the former owner gets its record back. */
static void unregister_give_back(struct gb_fleet *fleet) {
    struct gb_fleet_session former = fleet->sweep_record;
    struct gb_txn txn = {0};
    char *text;

    former.node = former.former.node;
    /* The epoch stays, because clients may have seen it. By the claim the former owner recognises its session. */
    memcpy(former.claim, former.former.claim, sizeof(former.claim));
    former.former = (struct gb_fleet_former){.epoch = 0};
    former.released = false;
    text = gb_fleet_session_write(&former, NULL);
    if (!text) {
        sweep_later(fleet);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_compare(fleet, &txn, "alive", former.node.s, NULL, GB_TXN_CREATED, 0);
    gb_fleet_compare(fleet, &txn, "sessions", former.name.s, NULL, GB_TXN_MODIFIED, fleet->sweep_revision);
    gb_fleet_put(fleet, &txn, "sessions", former.name.s, NULL, text, 0);
    gb_fleet_put(fleet, &txn, "owned", former.node.s, former.name.s, "", 0);
    gb_fleet_delete(fleet, &txn, "owned", fleet->own.name.s, former.name.s);
    free(text);
    send(fleet, &txn, on_unregistered);
}

/* A former owner that has returned has seen the takeover and set its session aside: the record becomes a tombstone. */
static void on_former(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;

    if (call->error.code != GB_OK || gb_fleet_check_meta(fleet, gb_txn_result(&call->txn, 0), NULL) < 0)
        sweep_later(fleet);
    else if (gb_txn_result(&call->txn, 1)->count > 0)
        make_tombstone(fleet, call);
    else
        unregister_give_back(fleet);
}

static void read_former(struct gb_fleet *fleet) {
    struct gb_txn txn = {0};

    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_get(fleet, &txn, "alive", fleet->sweep_record.former.node.s, NULL, false);
    send(fleet, &txn, on_former);
}

static bool is_here_after_all(const struct gb_fleet *fleet, const struct gb_unregister *one,
                              const struct gb_fleet_session *there) {
    return one->not_before_ms > 0 && fleet->on.has && fleet->on.has(fleet->on.app, there);
}

static void on_marked(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;

    if (call->error.code != GB_OK || call->refusal != 0 || !call->txn.succeeded) {
        sweep_later(fleet);
        return;
    }
    pthread_mutex_lock(&fleet->lock);
    fleet->sweeping->marked = true;
    fleet->sweeping->not_before_ms = gb_boot_ms() + RELEASED_MS;
    pthread_mutex_unlock(&fleet->lock);
    gb_unregister_sweep(fleet);
}

/* Releases the record of a session that this node does not have. The name stays taken for a moment: if the directory
 * was restored, another node may have the session, and takes the record. */
static void release(struct gb_fleet *fleet) {
    struct gb_fleet_session *there = &fleet->sweep_record;
    struct gb_txn txn = {0};
    char *text;

    there->released = true;
    text = gb_fleet_session_write(there, NULL);
    if (!text) {
        sweep_later(fleet);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_compare(fleet, &txn, "sessions", there->name.s, NULL, GB_TXN_MODIFIED, fleet->sweep_revision);
    gb_fleet_put(fleet, &txn, "sessions", there->name.s, NULL, text, 0);
    free(text);
    send(fleet, &txn, on_marked);
}

static void on_sweep_read(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    const struct gb_unregister *one = fleet->sweeping;
    struct gb_fleet_session there = {.name = one->session};
    struct gb_txn txn = {0};

    if (call->error.code != GB_OK || gb_fleet_check_meta(fleet, gb_txn_result(&call->txn, 0), NULL) < 0) {
        sweep_later(fleet);
        return;
    }
    if (kvs->count == 0 || gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, NULL) < 0 ||
        there.deleted || strcmp(there.claim, one->claim) != 0 || !gb_name_equal(&there.node, &fleet->own.name) ||
        is_here_after_all(fleet, one, &there)) {
        if (there.released && strcmp(there.claim, one->claim) == 0)
            gb_suspect_add(fleet, &one->session, 0, GB_SUSPECT_CHANGED);
        swept(fleet);
        return;
    }
    fleet->sweep_record = there;
    fleet->sweep_revision = kvs->items[0].mod_revision;
    if (one->not_before_ms > 0 && !one->marked) {
        release(fleet);
        return;
    }
    if (!one->made && there.former.node.s[0]) {
        read_former(fleet);
        return;
    }
    if (there.epoch > 1) {
        make_tombstone(fleet, call);
        return;
    }
    gb_delete_session(fleet, &txn, fleet->own.name.s, &there, kvs->items[0].mod_revision);
    send(fleet, &txn, on_unregistered);
}

/* The first removal that is due. NULL: not yet, and a timer is set for the next one. */
static struct gb_unregister *next_due(struct gb_fleet *fleet) {
    uint64_t suspect_ms = gb_restored_maybe(fleet) ? atomic_load(&fleet->suspect_until_ms) : 0;
    uint64_t now = gb_boot_ms();
    uint64_t next_ms = 0;
    struct gb_unregister *one;

    pthread_mutex_lock(&fleet->lock);
    for (one = fleet->unregisters; one; one = one->next) {
        bool waits = one->not_before_ms > 0 && !one->releases && suspect_ms > one->not_before_ms;
        uint64_t due_ms = waits ? suspect_ms : one->not_before_ms;

        if (due_ms <= now)
            break;
        if (next_ms == 0 || due_ms < next_ms)
            next_ms = due_ms;
    }
    pthread_mutex_unlock(&fleet->lock);
    if (!one && next_ms > 0)
        gb_timer_set(&fleet->timers, &fleet->sweep_again, next_ms, sweep, fleet);
    return one;
}

void gb_unregister_sweep(struct gb_fleet *fleet) {
    struct gb_unregister *one;
    struct gb_txn txn = {0};

    if (fleet->sweep.open || !fleet->member.held)
        return;
    one = fleet->sweeping = next_due(fleet);
    if (!one)
        return;
    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_get(fleet, &txn, "sessions", one->session.s, NULL, false);
    send(fleet, &txn, on_sweep_read);
}

static void start_sweep(struct gb_job *job) {
    struct gb_fleet *fleet = job->fleet;

    gb_job_end(job);
    gb_unregister_sweep(fleet);
}

/* Without memory, the next renewal does it. */
static void sweep_soon(struct gb_fleet *fleet) {
    struct gb_job *job = gb_job_new(fleet, sizeof(*job), start_sweep);

    if (job)
        gb_job_ask(fleet, job, NULL);
}

void gb_fleet_unregister(struct gb_fleet *fleet, const struct gb_name *session, const char *claim, bool made) {
    /* Without memory, the record stays until this node restarts and reconciles. */
    if (add(fleet, session, claim, made, false, 0) == 0)
        sweep_soon(fleet);
}

void gb_fleet_report_missing(struct gb_fleet *fleet, const struct gb_name *session, const char *claim) {
    if (gb_unregister_add_missing(fleet, session, claim) == 0)
        sweep_soon(fleet);
}

/* --- a node ------------------------------------------------------------------------------------------------------- */

#define FORGET_PAGE 30 /* a transaction has 128 operations: three a session, and two comparisons */

struct forgetting {
    struct gb_job job;
    struct gb_name node;
    struct gb_name names[FORGET_PAGE];
    struct gb_name tenants[FORGET_PAGE];
    int64_t revision[FORGET_PAGE]; /* of the session's record; 0: the record is of another node */
    size_t count;
};

static void forget_page(struct forgetting *f);

static void compare_gone(struct forgetting *f, struct gb_txn *txn) {
    gb_fleet_compare_meta(f->job.fleet, txn);
    gb_fleet_compare(f->job.fleet, txn, "alive", f->node.s, NULL, GB_TXN_CREATED, 0);
}

static void on_node_deleted(struct gb_etcd_call *call) {
    struct forgetting *f = gb_container_of((struct gb_job *)call->arg, struct forgetting, job);

    if (call->error.code != GB_OK)
        gb_job_fail(&f->job, &call->error);
    else if (call->txn.succeeded)
        gb_job_end(&f->job);
    else
        forget_page(f); /* it has joined, or owns more sessions */
}

static void delete_node(struct forgetting *f) {
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];

    compare_gone(f, &txn);
    gb_fleet_delete(f->job.fleet, &txn, "nodes", f->node.s, NULL);
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
    size_t i;

    compare_gone(f, &txn);
    for (i = 0; i < f->count; i++)
        if (f->revision[i] > 0)
            gb_fleet_compare(f->job.fleet, &txn, "sessions", f->names[i].s, NULL, GB_TXN_MODIFIED, f->revision[i]);
    for (i = 0; i < f->count; i++) {
        if (f->revision[i] > 0)
            gb_fleet_delete(f->job.fleet, &txn, "sessions", f->names[i].s, NULL);
        gb_fleet_delete(f->job.fleet, &txn, "owned", f->node.s, f->names[i].s);
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
    size_t i;

    gb_fleet_read_meta(f->job.fleet, &txn, false);
    for (i = 0; i < f->count; i++) {
        gb_fleet_get(f->job.fleet, &txn, "sessions", f->names[i].s, NULL, false);
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

/* Reads the node and the next of its sessions. Deleted ones are not read again. */
static void forget_page(struct forgetting *f) {
    struct gb_fleet *fleet = f->job.fleet;
    struct gb_txn_range owned = {.limit = FORGET_PAGE, .keys_only = true};
    struct gb_txn txn = {0};

    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_get(fleet, &txn, "nodes", f->node.s, NULL, false);
    gb_fleet_get(fleet, &txn, "alive", f->node.s, NULL, false);
    gb_fleet_get_all(fleet, &txn, owned, "", "owned", f->node.s, "");
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

/* --- a session of a node that is away ----------------------------------------------------------------------------- */

struct tombstoning {
    struct gb_job job;
    struct gb_name name;
    struct gb_fleet_session session;
    int64_t revision;
    int64_t lease;
    struct gb_error why; /* why the lease is revoked again */
};

/* No key is attached to the lease: it has been revoked. */
static void on_lease_back(struct gb_etcd_call *call) {
    struct tombstoning *b = gb_container_of((struct gb_job *)call->arg, struct tombstoning, job);

    gb_job_fail(&b->job, &b->why);
}

static void give_back(struct tombstoning *b) {
    b->job.call.done = on_lease_back;
    gb_etcd_send(&b->job.fleet->etcd, &b->job.call, GB_ETCD_REVOKE, gb_lease_text(b->lease, false), b->job.deadline_ms,
                 true, GB_ETCD_PROBE);
}

/* The request was sent twice, and the first one was carried out. */
static bool is_tombstone(const struct tombstoning *b) {
    const struct gb_kvs *kvs = gb_txn_result(&b->job.call.txn, 1);
    struct gb_fleet_session there = {.name = b->name};

    return kvs->count > 0 && gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, &there, NULL) == 0 &&
           there.deleted && strcmp(there.claim, b->session.claim) == 0;
}

static void on_tombstone(struct gb_etcd_call *call) {
    struct tombstoning *b = gb_container_of((struct gb_job *)call->arg, struct tombstoning, job);
    struct gb_fleet *fleet = b->job.fleet;

    if (call->error.code == GB_OK && call->refusal == 0 && (call->txn.succeeded || is_tombstone(b))) {
        pthread_mutex_lock(&fleet->lock);
        gb_find_cache_forget(fleet->finds, &b->name);
        pthread_mutex_unlock(&fleet->lock);
        gb_job_end(&b->job);
        return;
    }
    if (call->error.code != GB_OK) { /* if it was carried out, the tombstone needs its lease */
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
    struct tombstoning *b = gb_container_of((struct gb_job *)call->arg, struct tombstoning, job);
    struct gb_fleet *fleet = b->job.fleet;
    struct gb_error err = call->error;
    struct gb_txn txn = {0};

    if (err.code == GB_OK && call->refusal != 0)
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory gives no lease; try again");
    if (err.code == GB_OK) {
        gb_fleet_compare(fleet, &txn, "alive", b->session.node.s, NULL, GB_TXN_CREATED, 0);
        put_tombstone(fleet, &txn, &b->session, b->lease, b->revision, &err);
    }
    if (err.code != GB_OK) {
        free(gb_txn_finish(&txn));
        gb_job_fail(&b->job, &err);
        return;
    }
    gb_txn_else(&txn);
    gb_fleet_get(fleet, &txn, "alive", b->session.node.s, NULL, false);
    gb_fleet_get(fleet, &txn, "sessions", b->name.s, NULL, false);
    b->job.call.done = on_tombstone;
    gb_etcd_send(&fleet->etcd, &b->job.call, GB_ETCD_TXN, gb_txn_finish(&txn), b->job.deadline_ms, false,
                 GB_ETCD_MAJORITY);
}

static void take_lease(struct tombstoning *b) {
    b->lease = tombstone_lease();
    b->job.call.done = on_lease;
    gb_etcd_send(&b->job.fleet->etcd, &b->job.call, GB_ETCD_GRANT, gb_lease_grant_text(b->lease, GB_TOMBSTONE_S),
                 b->job.deadline_ms, false, GB_ETCD_MAJORITY);
}

static void on_tombstone_owner(struct gb_etcd_call *call) {
    struct tombstoning *b = gb_container_of((struct gb_job *)call->arg, struct tombstoning, job);
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

static void on_tombstone_record(struct gb_etcd_call *call) {
    struct tombstoning *b = gb_container_of((struct gb_job *)call->arg, struct tombstoning, job);
    const struct gb_kvs *kvs = gb_txn_result(&call->txn, 1);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_txn txn = {0};

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
    gb_fleet_get(b->job.fleet, &txn, "alive", b->session.node.s, NULL, false);
    gb_job_txn(&b->job, &txn, GB_ETCD_MAJORITY, on_tombstone_owner);
}

static void start_tombstone(struct gb_job *job) {
    struct tombstoning *b = gb_container_of(job, struct tombstoning, job);
    struct gb_txn txn = {0};

    gb_fleet_read_meta(job->fleet, &txn, false);
    gb_fleet_get(job->fleet, &txn, "sessions", b->name.s, NULL, false);
    gb_job_txn(job, &txn, GB_ETCD_MAJORITY, on_tombstone_record);
}

void gb_fleet_tombstone(struct gb_fleet *fleet, struct gb_fleet_tombstone *tombstone) {
    struct tombstoning *b = gb_job_new(fleet, sizeof(*b), start_tombstone);

    if (b)
        b->name = tombstone->session;
    gb_job_ask(fleet, b ? &b->job : NULL, &tombstone->ask);
}
