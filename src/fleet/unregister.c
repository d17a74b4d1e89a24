/* Sessions that are gone: their records leave the directory when it answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fleet/internal.h"

int64_t gb_tombstone_lease(void) {
    uint64_t id = 0;

    gb_random(&id, sizeof(id), NULL); /* one that is taken is refused by the directory */
    return (int64_t)(id >> 1 | 1);
}

int gb_bury_session(const struct gb_fleet *fleet, struct gb_txn *txn, const struct gb_fleet_session *session,
                    int64_t lease, int64_t revision, struct gb_error *err) {
    struct gb_fleet_session tombstone = *session;
    char key[GB_FLEET_KEY_SIZE];
    char *text;

    tombstone.deleted = true;
    tombstone.released = false;
    text = gb_fleet_session_write(&tombstone, err);
    if (!text)
        return -1;
    gb_fleet_compare_meta(fleet, txn);
    gb_fleet_key(fleet, "sessions", session->name.s, NULL, key);
    gb_txn_compare(txn, GB_TXN_MODIFIED, key, revision);
    gb_txn_put(txn, key, text, lease);
    gb_fleet_key(fleet, "owned", session->node.s, session->name.s, key);
    gb_txn_delete(txn, key);
    gb_tenant_erase(fleet, txn, &session->tenant, session->name.s);
    free(text);
    return 0;
}

#define LACKING_MS 10000 /* more than the making of a session takes; at most twice the lease */
#define RELEASED_MS 3000 /* in which a node that has the session looks again, as it does each second */

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

int gb_unregister_add(struct gb_fleet *fleet, const struct gb_name *session, const char *claim, bool made) {
    return add(fleet, session, claim, made, false, 0);
}

/* lacking: those count, too, that may be here after all. */
static bool is_listed(struct gb_fleet *fleet, const char *claim, bool lacking) {
    const struct gb_unregister *one;

    pthread_mutex_lock(&fleet->lock);
    one = fleet->unregisters;
    while (one && (strcmp(one->claim, claim) != 0 || (one->not_before_ms > 0 && !lacking)))
        one = one->next;
    pthread_mutex_unlock(&fleet->lock);
    return one != NULL;
}

uint64_t gb_unregister_lacking_ms(const struct gb_fleet *fleet) {
    uint64_t twice_ms = 2000ull * fleet->member.ttl_s;

    return twice_ms < LACKING_MS ? twice_ms : LACKING_MS;
}

/* One that waits already, as a client was sent here before the directory was doubted, waits no longer than that. */
static void hasten(struct gb_fleet *fleet, const char *claim, uint64_t at_ms) {
    struct gb_unregister *one;

    pthread_mutex_lock(&fleet->lock);
    for (one = fleet->unregisters; one; one = one->next)
        if (strcmp(one->claim, claim) == 0 && !one->marked && one->not_before_ms > at_ms) {
            one->not_before_ms = at_ms;
            one->releases = true;
        }
    pthread_mutex_unlock(&fleet->lock);
}

int gb_unregister_add_lacking(struct gb_fleet *fleet, const struct gb_name *session, const char *claim) {
    bool maybe = gb_fleet_doubt_s(fleet) > 0;
    uint64_t wait_ms = gb_unregister_lacking_ms(fleet);

    /* The node that has it writes its record when this one has given it up,
     * while no node gives the name away. */
    if (maybe && gb_member_third_ms(fleet) < wait_ms)
        wait_ms = gb_member_third_ms(fleet);
    if (!is_listed(fleet, claim, true))
        return add(fleet, session, claim, false, maybe, gb_boot_ms() + wait_ms);
    if (maybe)
        hasten(fleet, claim, gb_boot_ms() + wait_ms);
    return 0;
}

int gb_unregister_add_lost(struct gb_fleet *fleet, const struct gb_name *session, const char *claim) {
    return is_listed(fleet, claim, true) ? 0 : add(fleet, session, claim, false, false, 1);
}

bool gb_unregister_waits(struct gb_fleet *fleet, const char *claim) {
    return is_listed(fleet, claim, false);
}

bool gb_unregister_lacks(struct gb_fleet *fleet, const char *claim) {
    return is_listed(fleet, claim, true) && !is_listed(fleet, claim, false);
}

/* The one that was looked at is done with. */
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
        sweep_later(fleet); /* it may have changed in between: looks again */
}

void gb_delete_session(const struct gb_fleet *fleet, struct gb_txn *txn, const char *node,
                       const struct gb_fleet_session *session, int64_t revision) {
    char session_key[GB_FLEET_KEY_SIZE];
    char owned_key[GB_FLEET_KEY_SIZE];

    gb_fleet_key(fleet, "sessions", session->name.s, NULL, session_key);
    gb_fleet_key(fleet, "owned", node, session->name.s, owned_key);
    gb_fleet_compare_meta(fleet, txn);
    gb_txn_compare(txn, GB_TXN_MODIFIED, session_key, revision);
    if (revision > 0)
        gb_txn_delete(txn, session_key);
    gb_txn_delete(txn, owned_key);
    gb_tenant_erase(fleet, txn, &session->tenant, session->name.s);
}

/* Clients have seen epochs above the first: they are kept, so that a session that is made next is above them, too. */
static void on_sweep_lease(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;
    struct gb_txn txn = {0};

    if (call->error.code != GB_OK || call->refusal != 0 ||
        gb_bury_session(fleet, &txn, &fleet->burying, fleet->sweep_lease, fleet->sweep_revision, NULL) < 0) {
        sweep_later(fleet);
        return;
    }
    send(fleet, &txn, on_unregistered);
}

static void bury(struct gb_fleet *fleet, struct gb_etcd_call *call) {
    fleet->sweep_lease = gb_tombstone_lease();
    call->done = on_sweep_lease;
    gb_etcd_send(&fleet->etcd, call, GB_ETCD_GRANT, gb_lease_grant_text(fleet->sweep_lease, GB_TOMBSTONE_S),
                 gb_boot_ms() + GB_ETCD_TOTAL_MS, false, GB_ETCD_MAJORITY);
}

/* The session was taken over, and then not made here: its record is what it was. */
static void give_back(struct gb_fleet *fleet) {
    struct gb_fleet_session former = fleet->burying;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    char *text;

    former.node = former.former.node;
    /* At this epoch: clients may have seen it. The claim tells the former owner that it is its own. */
    memcpy(former.claim, former.former.claim, sizeof(former.claim));
    former.former = (struct gb_fleet_former){.epoch = 0};
    former.released = false;
    text = gb_fleet_session_write(&former, NULL);
    if (!text) {
        sweep_later(fleet);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_key(fleet, "alive", former.node.s, NULL, key);
    gb_txn_compare(&txn, GB_TXN_CREATED, key, 0);
    gb_fleet_key(fleet, "sessions", former.name.s, NULL, key);
    gb_txn_compare(&txn, GB_TXN_MODIFIED, key, fleet->sweep_revision);
    gb_txn_put(&txn, key, text, 0);
    gb_fleet_key(fleet, "owned", former.node.s, former.name.s, key);
    gb_txn_put(&txn, key, "", 0);
    gb_fleet_key(fleet, "owned", fleet->own.name.s, former.name.s, key);
    gb_txn_delete(&txn, key);
    free(text);
    send(fleet, &txn, on_unregistered);
}

/* A former owner that is back has seen the takeover, and set the session aside: it takes nothing back. */
static void on_former(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;

    if (call->error.code != GB_OK || gb_fleet_check_meta(fleet, gb_txn_result(&call->txn, 0), NULL) < 0)
        sweep_later(fleet);
    else if (gb_txn_result(&call->txn, 1)->count > 0)
        bury(fleet, call);
    else
        give_back(fleet);
}

static void look_at_former(struct gb_fleet *fleet) {
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];

    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_key(fleet, "alive", fleet->burying.former.node.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    send(fleet, &txn, on_former);
}

static bool is_here_after_all(const struct gb_fleet *fleet, const struct gb_unregister *one,
                              const struct gb_fleet_session *there) {
    return one->not_before_ms > 0 && fleet->has && fleet->has(fleet->app, there);
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

/* The record of a session that this node has not got does not go at once, nor is the name free: if the directory was
 * restored, the session may be at another node, which takes it from here. */
static void release(struct gb_fleet *fleet) {
    struct gb_fleet_session *there = &fleet->burying;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    char *text;

    there->released = true;
    text = gb_fleet_session_write(there, NULL);
    if (!text) {
        sweep_later(fleet);
        return;
    }
    gb_fleet_compare_meta(fleet, &txn);
    gb_fleet_key(fleet, "sessions", there->name.s, NULL, key);
    gb_txn_compare(&txn, GB_TXN_MODIFIED, key, fleet->sweep_revision);
    gb_txn_put(&txn, key, text, 0);
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
            gb_doubt_add(fleet, &one->session, 0, GB_DOUBT_CHANGED);
        swept(fleet);
        return;
    }
    fleet->burying = there;
    fleet->sweep_revision = kvs->items[0].mod_revision;
    if (one->not_before_ms > 0 && !one->marked) {
        release(fleet);
        return;
    }
    if (!one->made && there.former.node.s[0]) {
        look_at_former(fleet);
        return;
    }
    if (there.epoch > 1) {
        bury(fleet, call);
        return;
    }
    gb_delete_session(fleet, &txn, fleet->own.name.s, &there, kvs->items[0].mod_revision);
    send(fleet, &txn, on_unregistered);
}

/* The first whose time has come; NULL, and when to look again if there is another. */
static struct gb_unregister *next_due(struct gb_fleet *fleet) {
    uint64_t doubt_ms = gb_restored_maybe(fleet) ? atomic_load(&fleet->doubt_until_ms) : 0;
    uint64_t now = gb_boot_ms();
    uint64_t next_ms = 0;
    struct gb_unregister *one;

    pthread_mutex_lock(&fleet->lock);
    for (one = fleet->unregisters; one; one = one->next) {
        bool waits = one->not_before_ms > 0 && !one->releases && doubt_ms > one->not_before_ms;
        uint64_t due_ms = waits ? doubt_ms : one->not_before_ms;

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
    char key[GB_FLEET_KEY_SIZE];

    if (fleet->sweep.open || !fleet->member.held)
        return;
    one = fleet->sweeping = next_due(fleet);
    if (!one)
        return;
    gb_fleet_read_meta(fleet, &txn, false);
    gb_fleet_key(fleet, "sessions", one->session.s, NULL, key);
    gb_fleet_get(&txn, key, false);
    send(fleet, &txn, on_sweep_read);
}

static void start_sweep(struct gb_job *job) {
    struct gb_fleet *fleet = job->fleet;

    gb_job_end(job);
    gb_unregister_sweep(fleet);
}

/* Without memory the next renewal does it. */
static void sweep_soon(struct gb_fleet *fleet) {
    struct gb_job *job = gb_job_new(fleet, sizeof(*job), start_sweep);

    if (job)
        gb_job_ask(fleet, job, NULL);
}

void gb_fleet_unregister(struct gb_fleet *fleet, const struct gb_name *session, const char *claim, bool made) {
    /* Without memory it stays until this node starts again, which looks for such. */
    if (gb_unregister_add(fleet, session, claim, made) == 0)
        sweep_soon(fleet);
}

void gb_fleet_lacks(struct gb_fleet *fleet, const struct gb_name *session, const char *claim) {
    if (gb_unregister_add_lacking(fleet, session, claim) == 0)
        sweep_soon(fleet);
}
