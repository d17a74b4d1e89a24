#include "core/session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/session/copies.h"
#include "core/session/streams.h"

#define STRANDED_TTL_S (24 * 3600)

/* --- one session -------------------------------------------------------------------------------------------------- */

struct gb_session *gb_session_new(struct gb_core *core, const struct gb_session_rec *rec, enum gb_session_state state) {
    static const struct gb_name standard = {"default"};
    struct gb_session *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    atomic_init(&s->refs, 1);
    s->core = core;
    s->id = rec->id;
    s->names[0] = rec->name;
    atomic_init(&s->called, &s->names[0]);
    s->standard = gb_session_stream_new(s, &standard, 0);
    if (!s->standard) {
        free(s);
        return NULL;
    }
    gb_session_rec_set(&s->rec, rec);
    s->aside = rec->aside_epoch > 0;
    if (rec->given) {
        s->frozen = gb_clock_ns();
        s->frozen_until_ns = UINT64_MAX;
    }
    if (rec->holders)
        gb_copies_set_locked(s, true); /* what they have is not known to this process */
    atomic_init(&s->state, state);
    atomic_init(&s->touched_ns, gb_clock_ns());
    s->past.looked_ns = gb_clock_ns();
    gb_mutex_init(&s->lock);
    gb_core_enter(core);
    return s;
}

struct gb_session *gb_session_ref(struct gb_session *session) {
    atomic_fetch_add(&session->refs, 1);
    return session;
}

void gb_session_release(struct gb_session *s) {
    struct gb_core *core = s->core;

    if (atomic_fetch_sub(&s->streams_open, 1) != 1)
        return;
    gb_map_done(&s->buffers);
    gb_idlist_done(&s->buffers_by_id);
    gb_map_done(&s->streams);
    gb_idlist_done(&s->streams_by_id);
    gb_map_done(&s->pools);
    gb_idlist_done(&s->pools_by_id);
    gb_map_done(&s->events);
    gb_idlist_done(&s->events_by_id);
    gb_idlist_done(&s->multiparts);
    gb_copies_done(s);
    pthread_mutex_destroy(&s->lock);
    gb_session_rec_done(&s->rec);
    free(s);
    gb_core_leave(core);
}

void gb_session_unref(struct gb_session *session) {
    struct gb_core_stream *st;
    struct gb_idlist pools;
    size_t at = 0;

    if (!session || atomic_fetch_sub(&session->refs, 1) != 1)
        return;
    pools = gb_session_take_pools_locked(session); /* no other user is left */
    gb_session_drop_pools(&pools);
    gb_session_forget_events(session);
    atomic_store(&session->streams_open, 2 + (unsigned)session->streams.count);
    while ((st = gb_map_next(&session->streams, &at))) {
        gb_core_stream_take_down(st);
        gb_core_stream_unref(st);
    }
    st = session->standard;
    gb_core_stream_take_down(st);
    gb_core_stream_unref(st);
    gb_session_release(session);
}

struct gb_idlist gb_session_take_pools_locked(struct gb_session *session) {
    struct gb_idlist pools = session->pools_by_id;
    size_t i;

    session->pools_by_id = (struct gb_idlist){0};
    if (pools.count > 0)
        gb_session_pools_update_locked(session->core->pool_sessions, session);
    for (i = 0; i < pools.count; i++) {
        struct gb_core_pool *p = pools.items[i].value;

        gb_map_take(&session->pools, p->rec.name.s);
        atomic_store(&p->state, GB_POOL_DEAD);
    }
    return pools;
}

void gb_session_drop_pools(struct gb_idlist *pools) {
    size_t i;

    for (i = 0; i < pools->count; i++)
        gb_core_pool_unref(pools->items[i].value);
    gb_idlist_done(pools);
}

/* For what had begun under the name that went along. */
static int has_left(const struct gb_name *name, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SESSION_MOVING,
                        "the session \"%s\" has gone to another node of the fleet meanwhile; try again, and the fleet "
                        "says which has it",
                        name->s);
}

int gb_session_alive(struct gb_session *session, struct gb_error *err) {
    const struct gb_name *left = atomic_load(&session->left);

    if (atomic_load(&session->state) == GB_SESSION_LIVE)
        return 0;
    if (left)
        return has_left(left, err);
    return gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "there is no session named \"%s\"", gb_session_name(session)->s);
}

int gb_session_open_locked(struct gb_session *session, struct gb_error *err) {
    if (gb_session_alive(session, err) < 0)
        return -1;
    if (!session->aside)
        return 0;
    if (atomic_load(&session->left))
        return has_left(atomic_load(&session->left), err);
    return gb_error_set(
        err, GB_ERR_SUPERSEDED,
        "another node of the fleet has the session now; what this one had of it can be read and deleted");
}

int gb_session_changeable_locked(struct gb_session *session, struct gb_error *err) {
    if (gb_session_open_locked(session, err) < 0)
        return -1;
    if (session->frozen == 0 || gb_clock_ns() >= session->frozen_until_ns)
        return 0;
    if (session->rec.given)
        return gb_error_set(
            err, GB_ERR_SESSION_MOVING,
            "the session \"%s\" was being handed to another node of the fleet when this one ended; "
            "it can be changed when the fleet's directory has said which has it, which a daemon asks that "
            "runs with --fleet",
            gb_session_name(session)->s);
    return gb_error_set(err, GB_ERR_SESSION_MOVING,
                        "the session \"%s\" is being handed to another node of the fleet; try again in a second",
                        gb_session_name(session)->s);
}

/* --- idle time ---------------------------------------------------------------------------------------------------- */

void gb_session_touch(struct gb_session *session) {
    atomic_store(&session->touched_ns, gb_clock_ns());
}

/* One that was to arrive and has not, when the process ended in between. */
static bool is_stranded(const struct gb_session_rec *rec) {
    return rec->fleet_epoch == 0 && rec->fleet_claim[0] != '\0';
}

bool gb_session_idle(struct gb_session *session) {
    uint64_t idle_ns = gb_clock_ns() - atomic_load(&session->touched_ns);
    uint64_t ttl_s = is_stranded(&session->rec) ? STRANDED_TTL_S : session->rec.idle_ttl_s;

    return ttl_s > 0 && atomic_load(&session->transfers) == 0 && session->leases == 0 && session->adopted == 0 &&
           idle_ns / GB_NS_PER_S >= ttl_s;
}

void gb_session_view_locked(struct gb_session *session, struct gb_session_view *ret) {
    const struct gb_core_pool *pool = gb_session_current_pool_locked(session);
    uint64_t now_ns = gb_clock_ns();
    bool active = atomic_load(&session->transfers) > 0 || session->leases > 0 || session->adopted > 0;
    uint64_t seen_ns = active ? now_ns : atomic_load(&session->touched_ns);

    gb_session_rec_set(&ret->rec, &session->rec);
    ret->used_bytes = session->used_bytes;
    ret->used_pinned_bytes = session->used_pinned_bytes;
    ret->used_stored_bytes = session->used_stored_bytes;
    ret->buffers = session->live_buffers;
    ret->pool = pool ? pool->rec.name : (struct gb_name){"default"};
    ret->pool_id = pool ? pool->rec.id : 0;
    ret->expires_at_us = 0;
    if (session->rec.idle_ttl_s > 0 && session->rec.idle_ttl_s < INT64_MAX / 4000000)
        ret->expires_at_us = gb_wall_us() + (int64_t)session->rec.idle_ttl_s * 1000000 -
                             (int64_t)((now_ns - (seen_ns < now_ns ? seen_ns : now_ns)) / 1000);
}

/* --- its next name ------------------------------------------------------------------------------------------------ */

/* One that is set aside gets no other name. */
static struct gb_name *next_name(struct gb_session *session) {
    return &session->names[gb_session_name(session) - session->names + 1];
}

/* core->sessions_lock is held. */
static void free_name_locked(struct gb_session *session) {
    struct gb_core *core = session->core;
    const struct gb_name *name;

    if (session->rec.aside_epoch > 0)
        return;
    name = next_name(session);
    if (name->s[0] != '\0' && gb_map_get(&core->sessions, name->s) == session) /* else it was not reserved */
        gb_map_take(&core->sessions, name->s);
}

/* --- names that went to other nodes ------------------------------------------------------------------------------- */

/* So long a request that had begun before may look its session up again. */
#define LEFT_NS (300 * GB_NS_PER_S)

struct gb_session_left {
    struct gb_session_left *next;
    uint64_t at_ns;
    struct gb_name name;
};

/* core->sessions_lock is held in these. */

static struct gb_session_left **left_at_locked(struct gb_core *core, const char *name) {
    struct gb_session_left **at = &core->sessions_left;

    while (*at && strcmp((*at)->name.s, name) != 0)
        at = &(*at)->next;
    return at;
}

static void drop_left_locked(struct gb_session_left **at) {
    struct gb_session_left *left = *at;

    if (!left)
        return;
    *at = left->next;
    free(left);
}

/* The newest is the first. Without memory, what had begun is told that there is no such session. */
static void add_left_locked(struct gb_core *core, const struct gb_name *name) {
    struct gb_session_left *left = malloc(sizeof(*left));
    struct gb_session_left **at = &core->sessions_left;

    drop_left_locked(left_at_locked(core, name->s));
    while (*at && gb_clock_ns() - (*at)->at_ns < LEFT_NS)
        at = &(*at)->next;
    while (*at)
        drop_left_locked(at);
    if (!left)
        return;
    *left = (struct gb_session_left){.next = core->sessions_left, .at_ns = gb_clock_ns(), .name = *name};
    core->sessions_left = left;
}

static bool has_left_locked(struct gb_core *core, const char *name) {
    const struct gb_session_left *left = *left_at_locked(core, name);

    return left && gb_clock_ns() - left->at_ns < LEFT_NS;
}

void gb_session_forget_left(struct gb_core *core, const struct gb_name *name) {
    pthread_mutex_lock(&core->sessions_lock);
    drop_left_locked(left_at_locked(core, name->s));
    pthread_mutex_unlock(&core->sessions_lock);
}

void gb_sessions_left_done(struct gb_core *core) {
    while (core->sessions_left)
        drop_left_locked(&core->sessions_left);
}

/* --- all sessions ------------------------------------------------------------------------------------------------- */

int gb_session_enroll(struct gb_session *session, uint64_t max, struct gb_error *err) {
    struct gb_core *core = session->core;
    int r = -1;

    pthread_mutex_lock(&core->sessions_lock);
    if (gb_map_get(&core->sessions, gb_session_name(session)->s))
        gb_error_set(err, GB_ERR_SESSION_EXISTS, "a session named \"%s\" exists", gb_session_name(session)->s);
    else if (core->sessions.count >= max)
        gb_error_set(err, GB_ERR_LIMIT_REACHED, "there are %zu sessions, the permitted number (--max-sessions)",
                     core->sessions.count);
    else if (gb_idlist_put(&core->sessions_by_id, session->id, session) < 0)
        gb_no_memory(err);
    else
        r = gb_map_put(&core->sessions, gb_session_name(session)->s, session);
    if (r < 0) {
        gb_idlist_take(&core->sessions_by_id, session->id);
        gb_no_memory(err); /* unless it was something else */
    } else {
        drop_left_locked(left_at_locked(core, gb_session_name(session)->s));
    }
    pthread_mutex_unlock(&core->sessions_lock);
    return r;
}

void gb_session_withdraw(struct gb_session *session) {
    struct gb_core *core = session->core;

    pthread_mutex_lock(&core->sessions_lock);
    gb_map_take(&core->sessions, gb_session_name(session)->s);
    free_name_locked(session);
    gb_idlist_take(&core->sessions_by_id, session->id);
    pthread_mutex_unlock(&core->sessions_lock);
    gb_session_unref(session);
}

/* The map has the name that one is about to get, too. core->sessions_lock is held. */
static struct gb_session *live_locked(struct gb_core *core, const char *name) {
    struct gb_session *s = gb_map_get(&core->sessions, name);

    return s && atomic_load(&s->state) == GB_SESSION_LIVE && strcmp(gb_session_name(s)->s, name) == 0 ? s : NULL;
}

struct gb_session *gb_session_find(struct gb_core *core, const struct gb_name *name, struct gb_error *err) {
    struct gb_session *s;
    bool left;

    pthread_mutex_lock(&core->sessions_lock);
    s = live_locked(core, name->s);
    left = !s && has_left_locked(core, name->s);
    if (s)
        gb_session_ref(s);
    pthread_mutex_unlock(&core->sessions_lock);
    if (left)
        has_left(name, err);
    else if (!s)
        gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "there is no session named \"%s\"", name->s);
    return s;
}

bool gb_session_bond(struct gb_core *core, const char *name, struct gb_session_bond *ret) {
    struct gb_session *s;
    bool named;

    pthread_mutex_lock(&core->sessions_lock);
    s = live_locked(core, name);
    if (s)
        gb_session_ref(s);
    pthread_mutex_unlock(&core->sessions_lock);
    if (!s)
        return false;
    pthread_mutex_lock(&s->lock);
    named = strcmp(gb_session_name(s)->s, name) == 0; /* it changes under this lock */
    if (named) {
        ret->epoch = s->rec.fleet_epoch;
        ret->aside_epoch = s->rec.aside_epoch;
        ret->arrives = is_stranded(&s->rec);
        ret->stops_on_partition = s->rec.stops_on_partition;
    }
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return named;
}

struct gb_session *gb_session_use(struct gb_core *core, const struct gb_name *name, struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, name, err);

    if (s)
        gb_session_touch(s);
    return s;
}

struct gb_session *gb_session_use_held(struct gb_core *core, struct gb_session *held, const struct gb_name *name,
                                       struct gb_error *err) {
    if (!held)
        return gb_session_use(core, name, err);
    if (gb_session_alive(held, err) < 0)
        return NULL;
    if (!gb_name_equal(gb_session_name(held), name)) {
        if (atomic_load(&held->left))
            has_left(name, err);
        gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "there is no session named \"%s\" here any more", name->s);
        return NULL;
    }
    gb_session_touch(held);
    return gb_session_ref(held);
}

struct gb_session *gb_session_after(struct gb_core *core, int64_t id) {
    struct gb_session *s;

    pthread_mutex_lock(&core->sessions_lock);
    s = gb_idlist_after(&core->sessions_by_id, id, NULL);
    if (s)
        gb_session_ref(s);
    pthread_mutex_unlock(&core->sessions_lock);
    return s;
}

/* --- another name ------------------------------------------------------------------------------------------------- */

#define SUFFIX_SIZE 64                        /* ".superseded-", two numbers and a dash */
#define ASIDE_MAX (GB_NOTICE_DETAIL_SIZE - 1) /* the notice has the name */
_Static_assert(ASIDE_MAX <= GB_NAME_MAX && ASIDE_MAX > SUFFIX_SIZE, "a name that is cut is one");

/* The name is cut where the whole would be too long. */
static void superseded(const struct gb_name *name, int64_t epoch, unsigned number, struct gb_name *ret) {
    char suffix[SUFFIX_SIZE];
    size_t n = strlen(name->s);
    int len;

    if (number > 1)
        len = snprintf(suffix, sizeof(suffix), ".superseded-%lld-%u", (long long)epoch, number);
    else
        len = snprintf(suffix, sizeof(suffix), ".superseded-%lld", (long long)epoch);
    if (n > ASIDE_MAX - (size_t)len)
        n = ASIDE_MAX - (size_t)len;
    memcpy(ret->s, name->s, n);
    memcpy(ret->s + n, suffix, (size_t)len + 1);
}

/* There are fewer sessions than numbers. */
int gb_session_reserve_name(struct gb_session *session, struct gb_error *err) {
    struct gb_core *core = session->core;
    struct gb_name *name = next_name(session);
    unsigned number = 1;
    int r;

    pthread_mutex_lock(&core->sessions_lock);
    do
        superseded(gb_session_name(session), session->rec.fleet_epoch, number++, name);
    while (gb_map_get(&core->sessions, name->s));
    r = gb_map_put(&core->sessions, name->s, session);
    pthread_mutex_unlock(&core->sessions_lock);
    return r < 0 ? gb_no_memory(err) : 0;
}

int gb_session_reserve(struct gb_session *session, const struct gb_name *wanted, struct gb_error *err) {
    struct gb_core *core = session->core;
    struct gb_name *name = next_name(session);
    struct gb_session *other;
    int r = 0;

    pthread_mutex_lock(&core->sessions_lock);
    other = gb_map_get(&core->sessions, wanted->s);
    if (other && other != session)
        r = gb_error_set(err, GB_ERR_SESSION_EXISTS, "this node has a session \"%s\" of its own", wanted->s);
    else if (!other) {
        *name = *wanted;
        r = gb_map_put(&core->sessions, name->s, session) < 0 ? gb_no_memory(err) : 0;
    }
    pthread_mutex_unlock(&core->sessions_lock);
    return r;
}

void gb_session_free_name(struct gb_session *session) {
    struct gb_core *core = session->core;

    pthread_mutex_lock(&core->sessions_lock);
    free_name_locked(session);
    pthread_mutex_unlock(&core->sessions_lock);
}

const struct gb_name *gb_session_next_name(const struct gb_session *session) {
    return atomic_load(&session->called) + 1;
}

void gb_session_rename(struct gb_session *session, const struct gb_session_rec *rec) {
    struct gb_core *core = session->core;

    pthread_mutex_lock(&core->sessions_lock);
    pthread_mutex_lock(&session->lock);
    gb_map_take(&core->sessions, gb_session_name(session)->s);
    gb_session_rec_set(&session->rec, rec);
    atomic_store(&session->called, next_name(session));
    pthread_mutex_unlock(&session->lock);
    drop_left_locked(left_at_locked(core, gb_session_name(session)->s));
    if (atomic_load(&session->left))
        add_left_locked(core, atomic_load(&session->left));
    pthread_mutex_unlock(&core->sessions_lock);
}
