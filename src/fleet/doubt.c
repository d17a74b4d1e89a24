/* Sessions of this node that are to be compared with the directory: because a client says that it knows of a higher
 * epoch, because they have changed, or because it could not be done before. They wait here while the directory is
 * silent. What a client says changes the answers to that client alone: only the directory makes a session another's. */
#include <stdlib.h>
#include <string.h>

#include "fleet/internal.h"

#define DOUBTS_MAX 4096
#define DENIED_MAX_MS 10000 /* for which a denial is believed, but for a third of the lease at most */

struct gb_doubt {
    struct gb_name session;
    uint64_t epoch; /* that someone knows of; 0: none */
    enum gb_doubt_why why;
    bool looked; /* the directory was asked since it was added */
    uint64_t denied_ms;
    uint64_t contested_ms; /* since when another node has it by the directory, at no higher epoch; 0: none has */
    bool broken;           /* the lease had run out before that was found */
    uint64_t seq;          /* in the order in which they came */
};

static bool is_denied(const struct gb_fleet *fleet, const struct gb_doubt *doubt, uint64_t now_ms) {
    uint64_t third = fleet->member.ttl_s * 1000ull / 3;

    return doubt->why == GB_DOUBT_DENIED && now_ms - doubt->denied_ms < (third < DENIED_MAX_MS ? third : DENIED_MAX_MS);
}

static struct gb_doubt *new_doubt(struct gb_fleet *fleet, const struct gb_name *session) {
    struct gb_doubt *doubt;

    if (fleet->doubts.count >= DOUBTS_MAX)
        return NULL;
    doubt = calloc(1, sizeof(*doubt));
    if (!doubt)
        return NULL;
    doubt->session = *session;
    if (gb_map_put(&fleet->doubts, doubt->session.s, doubt) == 0)
        return doubt;
    free(doubt);
    return NULL;
}

void gb_doubt_add(struct gb_fleet *fleet, const struct gb_name *session, uint64_t epoch, enum gb_doubt_why why) {
    struct gb_doubt *doubt;

    pthread_mutex_lock(&fleet->lock);
    doubt = gb_map_get(&fleet->doubts, session->s);
    if (!doubt)
        doubt = new_doubt(fleet, session);
    if (doubt) { /* else the next joining finds it */
        /* One that is being looked at is not looked at anew for what is known. */
        if (why == GB_DOUBT_CHANGED || why > doubt->why || epoch > doubt->epoch) {
            doubt->looked = why == GB_DOUBT_SUPERSEDED; /* that is what the look has found */
            doubt->seq = ++fleet->doubt_seq;
        }
        if (why > doubt->why)
            doubt->why = why;
        if (epoch > doubt->epoch)
            doubt->epoch = epoch;
    }
    atomic_store(&fleet->doubt_count, fleet->doubts.count);
    pthread_mutex_unlock(&fleet->lock);
}

uint64_t gb_doubt_contest(struct gb_fleet *fleet, const struct gb_name *session, bool *ret_broken) {
    uint64_t now = gb_boot_ms();
    struct gb_doubt *doubt;
    uint64_t ret = 0;

    *ret_broken = true;
    pthread_mutex_lock(&fleet->lock);
    doubt = gb_map_get(&fleet->doubts, session->s);
    if (!doubt && (doubt = new_doubt(fleet, session)))
        doubt->seq = ++fleet->doubt_seq;
    if (doubt) {
        if (doubt->why == GB_DOUBT_DENIED)
            doubt->why = GB_DOUBT_CHANGED;
        if (doubt->contested_ms == 0) {
            doubt->contested_ms = now;
            doubt->broken = fleet->member.broken;
        }
        *ret_broken = doubt->broken;
        ret = now - doubt->contested_ms;
    }
    atomic_store(&fleet->doubt_count, fleet->doubts.count);
    pthread_mutex_unlock(&fleet->lock);
    return ret;
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
            gb_settle_start(s, fleet, on_settled);
            return;
        }
        drop(fleet, &name); /* it is gone, or another's already */
    }
}

void gb_doubts_cancel(struct gb_fleet *fleet) {
    gb_timer_clear(&fleet->timers, &fleet->doubt_again);
    if (fleet->doubting && fleet->doubting->open) {
        gb_settle_cancel(fleet->doubting);
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
