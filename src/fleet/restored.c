/* Whether the directory is what it was. One that was restored from a snapshot, or given old files, has lost what nodes
 * wrote since, and says so in no answer. But its processes were started anew, so that all connections to it have ended,
 * and its revision may have gone back. Then each node compares all its sessions with their records again. For as long
 * as that may take the slowest, a lease's time and some seconds, what is not there may be there again in a moment:
 * nothing is said to be absent, and no name is given or freed. */
#include <stdlib.h>

#include "base/clock.h"
#include "fleet/internal.h"

#define JOINING_S 5 /* what a node that has lost its lease needs beyond a lease's time, which may be short */

static void suspect(void *arg, bool surely, unsigned for_s) {
    struct gb_fleet *fleet = arg;
    struct gb_member *m = &fleet->member;
    uint64_t now = gb_boot_ms();
    uint64_t until = now + (for_s > 0 ? for_s : m->ttl_s + JOINING_S) * 1000ull;
    bool began = now >= atomic_load(&fleet->doubt_until_ms);

    /* A hub says the same with each answer: that is one doubt. */
    if (until > atomic_load(&fleet->doubt_until_ms))
        atomic_store(&fleet->doubt_until_ms, until);
    if (for_s > 0 && !began && !surely)
        return;
    m->compares = true;
    if (surely) {
        pthread_mutex_lock(&fleet->lock);
        fleet->epoch_floor = fleet->epoch_seen;
        pthread_mutex_unlock(&fleet->lock);
        gb_member_unsure(fleet);
    }
    gb_member_soon(fleet);
}

void gb_restored_watch(struct gb_fleet *fleet) {
    fleet->etcd.suspect = suspect;
    fleet->etcd.suspect_arg = fleet;
}

uint64_t gb_restored_floor(struct gb_fleet *fleet, const struct gb_name *session) {
    uint64_t known = 0;
    uint64_t ret;

    pthread_mutex_lock(&fleet->lock);
    if (atomic_load(&fleet->doubt_until_ms) > 0)
        known = gb_find_cache_epoch(fleet->finds, session);
    ret = known > fleet->epoch_floor ? known : fleet->epoch_floor;
    pthread_mutex_unlock(&fleet->lock);
    return ret;
}

bool gb_restored_maybe(struct gb_fleet *fleet) {
    gb_etcd_look(&fleet->etcd);
    return gb_boot_ms() < atomic_load(&fleet->doubt_until_ms);
}

void gb_restored_suspect(struct gb_fleet *fleet, unsigned for_s) {
    suspect(fleet, false, for_s);
}

int gb_restored_refuse(struct gb_fleet *fleet, const struct gb_name *session, struct gb_error *err) {
    if (!gb_restored_maybe(fleet) && !atomic_load(&fleet->fresh))
        return 0;
    return gb_error_set(err, GB_ERR_OWNER_UNKNOWN,
                        "the fleet's directory was away or was restored, and its nodes have not all told yet what they "
                        "have: whether one has the session \"%s\" is known in %u s",
                        session->s, gb_fleet_doubt_s(fleet) + 1);
}

unsigned gb_fleet_doubt_s(struct gb_fleet *fleet) {
    uint64_t until = atomic_load(&fleet->doubt_until_ms);
    uint64_t now = gb_boot_ms();

    return until > now ? (unsigned)((until - now + 999) / 1000) : 0;
}

/* --- space -------------------------------------------------------------------------------------------------------- */

static void on_space(struct gb_etcd_call *call) {
    struct gb_fleet *fleet = call->arg;

    if (call->error.code == GB_OK)
        fleet->etcd.full = false;
    gb_member_say(fleet);
}

/* A directory that is out of space refuses each transaction that could write, and this one never does. */
void gb_restored_ask_space(struct gb_fleet *fleet) {
    struct gb_member *m = &fleet->member;
    struct gb_txn txn = {0};
    char key[GB_FLEET_KEY_SIZE];
    uint64_t now = gb_boot_ms();

    if (m->space.open || (!fleet->etcd.full && now - m->space_ms < m->ttl_s * 1000ull))
        return;
    m->space_ms = now;
    gb_fleet_compare_meta(fleet, &txn);
    gb_txn_else(&txn);
    gb_fleet_key(fleet, "space", fleet->own.name.s, NULL, key);
    gb_txn_put(&txn, key, "", 0);
    m->space.arg = fleet;
    m->space.done = on_space;
    gb_etcd_send(&fleet->etcd, &m->space, GB_ETCD_TXN, gb_txn_finish(&txn), gb_member_deadline(fleet), false,
                 GB_ETCD_PROBE);
}
