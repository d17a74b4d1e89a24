/* What all parts of the fleet share: keys of the directory, the node's state and lease, suspects, and the jobs that
 * asks wait for. Only the fleet's thread changes what the lock does not guard. All files of src/fleet call this one. */
#include "fleet/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fleet/directory.h"

/* --- keys and records --------------------------------------------------------------------------------------------- */

void gb_fleet_key(const struct gb_fleet *fleet, const char *kind, const char *name, const char *below,
                  char ret[GB_FLEET_KEY_SIZE]) {
    if (below)
        snprintf(ret, GB_FLEET_KEY_SIZE, "/gpubuf/%s/%s/%s/%s", fleet->name, kind, name, below);
    else if (name)
        snprintf(ret, GB_FLEET_KEY_SIZE, "/gpubuf/%s/%s/%s", fleet->name, kind, name);
    else
        snprintf(ret, GB_FLEET_KEY_SIZE, "/gpubuf/%s/%s", fleet->name, kind);
}

void gb_fleet_get(const struct gb_fleet *fleet, struct gb_txn *txn, const char *kind, const char *name,
                  const char *below, bool serializable) {
    char key[GB_FLEET_KEY_SIZE];
    struct gb_txn_range range = {.key = key, .serializable = serializable};

    gb_fleet_key(fleet, kind, name, below, key);
    gb_txn_get(txn, &range);
}

void gb_fleet_compare(const struct gb_fleet *fleet, struct gb_txn *txn, const char *kind, const char *name,
                      const char *below, enum gb_txn_target target, int64_t revision) {
    char key[GB_FLEET_KEY_SIZE];

    gb_fleet_key(fleet, kind, name, below, key);
    gb_txn_compare(txn, target, key, revision);
}

void gb_fleet_put(const struct gb_fleet *fleet, struct gb_txn *txn, const char *kind, const char *name,
                  const char *below, const char *value, int64_t lease) {
    char key[GB_FLEET_KEY_SIZE];

    gb_fleet_key(fleet, kind, name, below, key);
    gb_txn_put(txn, key, value, lease);
}

void gb_fleet_delete(const struct gb_fleet *fleet, struct gb_txn *txn, const char *kind, const char *name,
                     const char *below) {
    char key[GB_FLEET_KEY_SIZE];

    gb_fleet_key(fleet, kind, name, below, key);
    gb_txn_delete(txn, key);
}

void gb_fleet_get_all(const struct gb_fleet *fleet, struct gb_txn *txn, struct gb_txn_range range, const char *after,
                      const char *kind, const char *name, const char *below) {
    char prefix[GB_FLEET_KEY_SIZE];
    char end[GB_FLEET_KEY_SIZE];

    gb_fleet_key(fleet, kind, name, below, prefix);
    gb_prefix_end(prefix, end, sizeof(end));
    range.after = after[0] != '\0';
    range.key = range.after ? after : prefix;
    range.end = end;
    gb_txn_get(txn, &range);
}

void gb_fleet_read_meta(const struct gb_fleet *fleet, struct gb_txn *txn, bool serializable) {
    gb_fleet_get(fleet, txn, "meta", NULL, NULL, serializable);
}

void gb_fleet_compare_meta(const struct gb_fleet *fleet, struct gb_txn *txn) {
    gb_fleet_compare(fleet, txn, "meta", NULL, NULL, GB_TXN_CREATED, fleet->member.meta_created);
}

int gb_fleet_check_meta(const struct gb_fleet *fleet, const struct gb_kvs *meta, struct gb_error *err) {
    char uuid[40];

    if (fleet->member.meta_uuid[0] == '\0')
        return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "the fleet's directory has not been found yet");
    if (meta->count == 0)
        return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                            "the directory has lost the record of the fleet \"%s\": it was emptied or replaced",
                            fleet->name);
    if (gb_fleet_meta_read(meta->items[0].value, meta->items[0].bytes, uuid, err) < 0)
        return -1;
    if (strcmp(uuid, fleet->member.meta_uuid) == 0)
        return 0;
    return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                        "the directory is of another fleet: its uuid is %s, this one's is %s", uuid,
                        fleet->member.meta_uuid);
}

bool gb_fleet_name_of(const char *key, const char *prefix, struct gb_name *ret) {
    struct gb_error ignored = GB_ERROR_INIT;
    size_t n = strlen(prefix);

    return strncmp(key, prefix, n) == 0 && gb_name_parse("name", key + n, strlen(key + n), ret, &ignored) == 0;
}

void gb_fleet_behind(const char *key, char ret[GB_FLEET_KEY_SIZE]) {
    char cut[GB_FLEET_KEY_SIZE];

    if (snprintf(cut, sizeof(cut), "%s", key) < (int)sizeof(cut))
        memcpy(ret, cut, sizeof(cut));
    else
        gb_prefix_end(cut, ret, GB_FLEET_KEY_SIZE);
}

int gb_fleet_node_of(const char *name, const struct gb_kv *node, const struct gb_kv *alive, struct gb_fleet_node *ret,
                     struct gb_error *err) {
    struct gb_fleet_alive record;
    struct gb_error ignored = GB_ERROR_INIT;

    *ret = (struct gb_fleet_node){0};
    snprintf(ret->name.s, sizeof(ret->name.s), "%s", name);
    if (gb_fleet_node_read(node->value, node->bytes, ret, err) < 0)
        return -1;
    if (alive && gb_fleet_alive_read(alive->value, alive->bytes, &record, &ignored) == 0)
        gb_fleet_node_set_alive(ret, &record);
    return 0;
}

/* --- the state ---------------------------------------------------------------------------------------------------- */

const char *gb_fleet_state_name(enum gb_fleet_state state) {
    static const char *const names[] = {
        [GB_FLEET_ALONE] = "alone",
        [GB_FLEET_JOINED] = "joined",
        [GB_FLEET_EXPIRED] = "expired",
        [GB_FLEET_DUPLICATE] = "duplicate",
    };

    return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "alone";
}

void gb_fleet_set_state(struct gb_fleet *fleet, enum gb_fleet_state state, const struct gb_error *why) {
    bool changed;

    pthread_mutex_lock(&fleet->lock);
    changed = fleet->stat.state != state;
    if (changed)
        fleet->stat.since_ns = gb_clock_ns();
    fleet->stat.state = state;
    atomic_store(&fleet->joined, state == GB_FLEET_JOINED);
    fleet->stat.why = why ? *why : GB_ERROR_INIT;
    if (fleet->etcd.cluster_id != 0)
        snprintf(fleet->stat.cluster_id, sizeof(fleet->stat.cluster_id), "%llu",
                 (unsigned long long)fleet->etcd.cluster_id);
    pthread_mutex_unlock(&fleet->lock);
    if (changed && fleet->on.changed)
        fleet->on.changed(fleet->on.app);
}

int gb_fleet_not_joined(const struct gb_fleet *fleet, struct gb_error *err) {
    if (fleet->etcd.full)
        return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                            "the fleet's directory is out of space and refuses all changes");
    return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE, "this node is not joined to the fleet");
}

void gb_fleet_stat(struct gb_fleet *fleet, struct gb_fleet_stat *ret) {
    pthread_mutex_lock(&fleet->lock);
    *ret = fleet->stat;
    pthread_mutex_unlock(&fleet->lock);
    ret->draining = atomic_load(&fleet->draining);
    ret->requests = atomic_load(&fleet->etcd.requests);
    ret->failures = atomic_load(&fleet->etcd.failures);
    ret->clock_offset_ms = atomic_load(&fleet->etcd.offset_ms);
}

bool gb_fleet_is_joined(struct gb_fleet *fleet) {
    return atomic_load(&fleet->joined);
}

int64_t gb_fleet_now_s(const struct gb_fleet *fleet) {
    return gb_etcd_now_s(&fleet->etcd);
}

const char *gb_fleet_own_url(const struct gb_fleet *fleet, const struct gb_name *network) {
    return gb_fleet_url_on(&fleet->own, network);
}

/* --- the lease ---------------------------------------------------------------------------------------------------- */

#define STEP_MAX_MS 30000  /* between two renewals, and between two tries to join */
#define MARGIN_MAX_MS 2000 /* the lease stops being valid so long before it may run out */

uint64_t gb_member_third_ms(const struct gb_fleet *fleet) {
    uint64_t third = fleet->member.ttl_s * 1000ull / 3;

    return third < STEP_MAX_MS ? third : STEP_MAX_MS;
}

uint64_t gb_member_deadline(const struct gb_fleet *fleet) {
    uint64_t most = gb_member_third_ms(fleet);

    most = most < 1000 ? 1000 : most > GB_ETCD_TOTAL_MS ? GB_ETCD_TOTAL_MS : most;
    return gb_boot_ms() + most;
}

void gb_member_update_validity(struct gb_fleet *fleet) {
    const struct gb_member *m = &fleet->member;
    uint64_t margin = m->ttl_s * 1000ull / 3;

    if (margin > MARGIN_MAX_MS)
        margin = MARGIN_MAX_MS;
    atomic_store(&fleet->valid_until_ms,
                 m->held && m->reconciled && m->deadline_ms > margin ? m->deadline_ms - margin : 0);
}

/* Sessions with on_partition "stop" are not served until they are reconciled again. */
static void invalidate(struct gb_fleet *fleet) {
    fleet->member.reconciled = false;
    gb_member_update_validity(fleet);
}

void gb_member_note_write(struct gb_fleet *fleet, const struct gb_name *session, int64_t revision) {
    struct gb_member *m = &fleet->member;

    if (revision <= m->last_write_revision)
        return;
    m->last_write = *session;
    m->last_write_revision = revision;
}

void gb_member_renew_now(struct gb_fleet *fleet) {
    struct gb_member *m = &fleet->member;

    if (m->held && !m->call.open)
        gb_timer_set(&fleet->timers, &m->timer, gb_boot_ms(), m->renew, fleet);
}

void gb_member_update_state(struct gb_fleet *fleet) {
    struct gb_error why = GB_ERROR_INIT;

    if (!fleet->member.held || !fleet->member.reconciled)
        return;
    if (!fleet->etcd.full) {
        gb_fleet_set_state(fleet, GB_FLEET_JOINED, NULL);
        return;
    }
    gb_error_set(&why, GB_ERR_DIRECTORY_UNAVAILABLE,
                 "the directory is out of space and refuses all changes (etcd's alarm NOSPACE): compact and defragment "
                 "it, then disarm the alarm");
    gb_fleet_set_state(fleet, GB_FLEET_ALONE, &why);
}

bool gb_fleet_lease_is_valid(struct gb_fleet *fleet) {
    return gb_boot_ms() < atomic_load(&fleet->valid_until_ms);
}

int gb_own_record_read(const struct gb_kvs *kvs, const struct gb_name *session, struct gb_fleet_session *ret,
                       struct gb_error *err) {
    *ret = (struct gb_fleet_session){.name = *session};
    if (kvs->count > 0)
        return gb_fleet_session_read(kvs->items[0].value, kvs->items[0].bytes, ret, err);
    return gb_error_set(err, GB_ERR_DIRECTORY_UNAVAILABLE,
                        "the directory has lost the session \"%s\", which is being put right; try again", session->s);
}

int gb_own_record_check(const struct gb_fleet *fleet, const struct gb_fleet_session *there, const char *claim,
                        struct gb_error *err) {
    if (gb_name_equal(&there->node, &fleet->own.name) && strcmp(there->claim, claim) == 0)
        return 0;
    return gb_error_set(err, GB_ERR_SUPERSEDED, "the directory gives the session \"%s\" to the node \"%s\"",
                        there->name.s, there->node.s);
}

/* --- a directory that was restored -------------------------------------------------------------------------------- */

/* A directory that was restored from a snapshot has lost what nodes wrote since, and no answer says so. Two signs
 * remain: all connections to it have ended, and its revision may have gone back. On such a sign each node reconciles
 * all its sessions again. The slowest node needs the time of a lease and some seconds. For that long the directory is
 * suspect: no session is reported as absent, and no name is assigned or freed. */

#define JOINING_S 5 /* what a node that has lost its lease needs beyond a lease's time */

static void suspect(void *arg, bool certain, unsigned for_s) {
    struct gb_fleet *fleet = arg;
    struct gb_member *m = &fleet->member;
    uint64_t now = gb_boot_ms();
    uint64_t until = now + (for_s > 0 ? for_s : m->ttl_s + JOINING_S) * 1000ull;
    bool began = now >= atomic_load(&fleet->suspect_until_ms);

    /* A hub repeats it with each answer: that is one suspicion. */
    if (until > atomic_load(&fleet->suspect_until_ms))
        atomic_store(&fleet->suspect_until_ms, until);
    if (for_s > 0 && !began && !certain)
        return;
    m->must_reconcile = true;
    if (certain) {
        pthread_mutex_lock(&fleet->lock);
        fleet->epoch_floor = fleet->epoch_seen;
        pthread_mutex_unlock(&fleet->lock);
        invalidate(fleet);
    }
    gb_member_renew_now(fleet);
}

void gb_restored_watch(struct gb_fleet *fleet) {
    fleet->etcd.suspect = suspect;
    fleet->etcd.suspect_arg = fleet;
}

bool gb_restored_maybe(struct gb_fleet *fleet) {
    gb_etcd_check_connections(&fleet->etcd);
    return gb_boot_ms() < atomic_load(&fleet->suspect_until_ms);
}

void gb_restored_suspect(struct gb_fleet *fleet, unsigned for_s) {
    suspect(fleet, false, for_s);
}

int gb_restored_refuse(struct gb_fleet *fleet, const struct gb_name *session, struct gb_error *err) {
    if (!gb_restored_maybe(fleet) && !atomic_load(&fleet->starting))
        return 0;
    return gb_error_set(err, GB_ERR_OWNER_UNKNOWN,
                        "the fleet's directory was away or was restored, and its nodes have not all told yet what they "
                        "have: whether one has the session \"%s\" is known in %u s",
                        session->s, gb_fleet_suspect_s(fleet) + 1);
}

unsigned gb_fleet_suspect_s(struct gb_fleet *fleet) {
    uint64_t until = atomic_load(&fleet->suspect_until_ms);
    uint64_t now = gb_boot_ms();

    return until > now ? (unsigned)((until - now + 999) / 1000) : 0;
}

/* --- space -------------------------------------------------------------------------------------------------------- */

static void on_space(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;

    if (call->error.code == GB_OK)
        fleet->etcd.full = false;
    gb_member_update_state(fleet);
}

/* A directory that is out of space refuses every transaction that could write. This one could, and never does. */
void gb_member_check_space(struct gb_fleet *fleet) {
    struct gb_member *m = &fleet->member;
    struct gb_txn txn = {0};
    uint64_t now = gb_boot_ms();

    if (m->space.open || (!fleet->etcd.full && now - m->space_ms < m->ttl_s * 1000ull))
        return;
    m->space_ms = now;
    gb_fleet_compare_meta(fleet, &txn);
    gb_txn_else(&txn);
    gb_fleet_put(fleet, &txn, "space", fleet->own.name.s, NULL, "", 0);
    m->space.arg = fleet;
    m->space.done = on_space;
    gb_etcd_send(&fleet->etcd, &m->space, GB_ETCD_TXN, gb_txn_finish(&txn), gb_member_deadline(fleet), false,
                 GB_ETCD_PROBE);
}

/* --- suspects ----------------------------------------------------------------------------------------------------- */

#define SUSPECTS_MAX 4096

static struct gb_suspect *new_suspect(struct gb_fleet *fleet, const struct gb_name *session) {
    struct gb_suspect *suspect;

    if (fleet->suspects.count >= SUSPECTS_MAX)
        return NULL;
    suspect = calloc(1, sizeof(*suspect));
    if (!suspect)
        return NULL;
    suspect->session = *session;
    if (gb_map_put(&fleet->suspects, suspect->session.s, suspect) == 0)
        return suspect;
    free(suspect);
    return NULL;
}

void gb_suspect_add(struct gb_fleet *fleet, const struct gb_name *session, uint64_t epoch, enum gb_suspect_why why) {
    struct gb_suspect *suspect;

    pthread_mutex_lock(&fleet->lock);
    suspect = gb_map_get(&fleet->suspects, session->s);
    if (!suspect)
        suspect = new_suspect(fleet, session);
    if (suspect) { /* without memory, the next joining finds it */
        /* A suspect that is being checked is checked again only if something new is known. */
        if (why == GB_SUSPECT_CHANGED || why > suspect->why || epoch > suspect->epoch) {
            suspect->checked = why == GB_SUSPECT_SUPERSEDED; /* the check has found that */
            suspect->seq = ++fleet->suspect_seq;
        }
        if (why > suspect->why)
            suspect->why = why;
        if (epoch > suspect->epoch)
            suspect->epoch = epoch;
    }
    atomic_store(&fleet->suspect_count, fleet->suspects.count);
    pthread_mutex_unlock(&fleet->lock);
}

uint64_t gb_suspect_conflict(struct gb_fleet *fleet, const struct gb_name *session, bool *ret_lapsed) {
    uint64_t now = gb_boot_ms();
    struct gb_suspect *suspect;
    uint64_t ret = 0;

    *ret_lapsed = true;
    pthread_mutex_lock(&fleet->lock);
    suspect = gb_map_get(&fleet->suspects, session->s);
    if (!suspect && (suspect = new_suspect(fleet, session)))
        suspect->seq = ++fleet->suspect_seq;
    if (suspect) {
        if (suspect->why == GB_SUSPECT_REFUTED)
            suspect->why = GB_SUSPECT_CHANGED;
        if (suspect->conflict_ms == 0) {
            suspect->conflict_ms = now;
            suspect->lapsed = fleet->member.lapsed;
        }
        *ret_lapsed = suspect->lapsed;
        ret = now - suspect->conflict_ms;
    }
    atomic_store(&fleet->suspect_count, fleet->suspects.count);
    pthread_mutex_unlock(&fleet->lock);
    return ret;
}

/* --- job ---------------------------------------------------------------------------------------------------------- */

void *gb_job_new(struct gb_fleet *fleet, size_t size, void (*start)(struct gb_job *job)) {
    struct gb_job *job = calloc(1, size);

    if (!job)
        return NULL;
    job->fleet = fleet;
    job->start = start;
    job->call.arg = job;
    return job;
}

static void add_ask(struct gb_job *job, struct gb_fleet_ask *ask) {
    ask->what = job;
    ask->next = job->asks;
    job->asks = ask;
}

void gb_job_queue(struct gb_fleet *fleet, struct gb_job *job) {
    job->next = NULL;
    *fleet->queue_end = job;
    fleet->queue_end = &job->next;
}

void gb_job_ask(struct gb_fleet *fleet, struct gb_job *job, struct gb_fleet_ask *ask) {
    if (ask)
        ask->error = GB_ERROR_INIT;
    pthread_mutex_lock(&fleet->lock);
    if (!job)
        add_ask(&fleet->refused, ask);
    else if (ask)
        add_ask(job, ask);
    if (job)
        gb_job_queue(fleet, job);
    pthread_mutex_unlock(&fleet->lock);
    gb_http_client_wake(fleet->client);
}

/* Answers all asks of the job. done runs without the lock; gb_fleet_cancel waits for it. */
static void answer(struct gb_job *job) {
    struct gb_fleet *fleet = job->fleet;
    struct gb_fleet_ask *ask;

    pthread_mutex_lock(&fleet->lock);
    if (job->ending)
        job->ending(job);
    while ((ask = job->asks)) {
        job->asks = ask->next;
        ask->next = NULL;
        ask->what = NULL;
        ask->error = job->error;
        if (job->give)
            job->give(job, ask);
        fleet->delivering = ask;
        pthread_mutex_unlock(&fleet->lock);
        ask->done(ask);
        pthread_mutex_lock(&fleet->lock);
        fleet->delivering = NULL;
        pthread_cond_broadcast(&fleet->delivered);
    }
    pthread_mutex_unlock(&fleet->lock);
}

void gb_job_end(struct gb_job *job) {
    struct gb_job **at = &job->fleet->running;

    while (*at && *at != job)
        at = &(*at)->next;
    if (*at)
        *at = job->next;
    gb_etcd_cancel(&job->call);
    if (job->cancel)
        job->cancel(job);
    answer(job);
    if (job->free)
        job->free(job);
    free(job);
}

void gb_job_fail(struct gb_job *job, const struct gb_error *err) {
    job->error = *err;
    gb_job_end(job);
}

void gb_job_txn(struct gb_job *job, struct gb_txn *txn, enum gb_etcd_need need,
                void (*done)(struct gb_etcd_call *call)) {
    job->call.done = done;
    gb_etcd_send(&job->fleet->etcd, &job->call, GB_ETCD_TXN, gb_txn_finish(txn), job->deadline_ms, true, need);
}

int gb_job_check(struct gb_job *job) {
    struct gb_error err = job->call.error;

    if (err.code == GB_OK && job->call.refusal != 0)
        gb_error_set(&err, GB_ERR_DIRECTORY_UNAVAILABLE, "the directory refuses the transaction");
    if (err.code == GB_OK && gb_fleet_check_meta(job->fleet, gb_txn_result(&job->call.txn, 0), &err) == 0)
        return 0;
    gb_job_fail(job, &err);
    return -1;
}

void gb_fleet_cancel(struct gb_fleet *fleet, struct gb_fleet_ask *ask) {
    struct gb_job *job;
    struct gb_fleet_ask **at;

    pthread_mutex_lock(&fleet->lock);
    job = ask->what;
    if (job) {
        for (at = &job->asks; *at && *at != ask; at = &(*at)->next)
            ;
        if (*at)
            *at = ask->next;
        ask->what = NULL;
        if (job->open_asks)
            (*job->open_asks)--;
    }
    while (fleet->delivering == ask && !pthread_equal(pthread_self(), fleet->thread))
        pthread_cond_wait(&fleet->delivered, &fleet->lock);
    pthread_mutex_unlock(&fleet->lock);
}

/* --- the thread's side -------------------------------------------------------------------------------------------- */

/* Answers the asks that had no memory for a job. */
static void refuse(struct gb_fleet *fleet, bool stopping) {
    fleet->refused.error = GB_ERROR_INIT;
    gb_error_set(&fleet->refused.error, stopping ? GB_ERR_DRAINING : GB_ERR_SATURATED, "no memory to ask the fleet");
    answer(&fleet->refused);
}

bool gb_jobs_take(struct gb_fleet *fleet) {
    struct gb_job *job;
    struct gb_error err = GB_ERROR_INIT;
    bool stopping;

    for (;;) {
        pthread_mutex_lock(&fleet->lock);
        stopping = fleet->stopping;
        job = fleet->queue;
        if (job)
            fleet->queue = job->next;
        if (!fleet->queue)
            fleet->queue_end = &fleet->queue;
        pthread_mutex_unlock(&fleet->lock);
        if (!job)
            break;
        job->next = fleet->running;
        fleet->running = job;
        job->deadline_ms = gb_boot_ms() + GB_FLEET_CALL_MS;
        if (stopping) {
            gb_error_set(&err, GB_ERR_DRAINING, "the daemon leaves the fleet");
            gb_job_fail(job, &err);
        } else {
            job->start(job);
        }
    }
    refuse(fleet, stopping);
    return !stopping;
}

void gb_jobs_drain(struct gb_fleet *fleet) {
    struct gb_error err = GB_ERROR_INIT;

    gb_error_set(&err, GB_ERR_DRAINING, "the daemon leaves the fleet");
    while (fleet->running)
        gb_job_fail(fleet->running, &err);
}
