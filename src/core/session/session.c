/* A session in memory: its names, pools, streams and events, the copies of its buffers at other nodes, and operations
 * that hold it. The session's lock guards its tables. All folders of the core above this one call it. */
#include "core/session/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/memory/pool.h"

/* --- streams ------------------------------------------------------------------------------------------------------ */

int gb_core_stream_use_locked(struct gb_session *session, const struct gb_name *name, struct gb_core_stream **ret,
                              struct gb_error *err) {
    struct gb_core_stream *st = session->standard;

    if (name->s[0] != '\0' && strcmp(name->s, "default") != 0)
        st = gb_map_get(&session->streams, name->s);
    if (!st)
        return gb_error_set(err, GB_ERR_STREAM_NOT_FOUND, "session \"%s\" has no stream named \"%s\"",
                            gb_session_client_name(session)->s, name->s);
    atomic_fetch_add(&st->users, 1);
    *ret = gb_core_stream_ref(st);
    return 0;
}

/* --- events ------------------------------------------------------------------------------------------------------- */

/* A stream that waits for one of the events has taken note of it by then. */
void gb_event_mark_unref(struct gb_event_mark *m) {
    int i;

    if (!m || atomic_fetch_sub(&m->refs, 1) != 1)
        return;
    for (i = 0; i < m->core->device_count; i++)
        gb_event_pool_give(&m->core->devices[i].events, m->evs[i]);
    free(m->frontier);
    free(m);
}

void gb_core_event_unref(struct gb_core_event *e) {
    if (!e || atomic_fetch_sub(&e->refs, 1) != 1)
        return;
    gb_event_mark_unref(e->mark);
    free(e);
}

/* At the session's end, when it has no other user. */
static void session_forget_events(struct gb_session *session) {
    struct gb_core_event *e;
    size_t at = 0;

    while ((e = gb_map_next(&session->events, &at)))
        gb_core_event_unref(e);
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

struct gb_session_pools {
    pthread_mutex_t lock; /* a leaf */
    struct gb_idlist sessions;
};

struct gb_session_pools *gb_session_pools_new(void) {
    struct gb_session_pools *pool_sessions = calloc(1, sizeof(*pool_sessions));

    if (pool_sessions)
        gb_mutex_init(&pool_sessions->lock);
    return pool_sessions;
}

void gb_session_pools_free(struct gb_session_pools *pool_sessions) {
    if (!pool_sessions)
        return;
    gb_idlist_done(&pool_sessions->sessions);
    pthread_mutex_destroy(&pool_sessions->lock);
    free(pool_sessions);
}

int gb_session_pools_update_locked(struct gb_session_pools *pool_sessions, struct gb_session *s) {
    int64_t found = 0;
    int r = 0;

    pthread_mutex_lock(&pool_sessions->lock);
    gb_idlist_after(&pool_sessions->sessions, s->id - 1, &found);
    if (s->pools_by_id.count == 0)
        gb_idlist_take(&pool_sessions->sessions, s->id);
    else if (found != s->id)
        r = gb_idlist_put(&pool_sessions->sessions, s->id, s);
    pthread_mutex_unlock(&pool_sessions->lock);
    return r;
}

/* --- the pools of a session --------------------------------------------------------------------------------------- */

struct gb_core_pool *gb_core_pool_find_locked(struct gb_session *session, const struct gb_name *name,
                                              struct gb_error *err) {
    struct gb_core *core = session->core;
    struct gb_core_pool *p;
    int i;

    if (name->s[0] == '\0')
        return core->devices[0].pool;
    for (i = 0; i < core->device_count; i++) {
        if (gb_name_equal(name, &core->devices[i].pool->rec.name))
            return core->devices[i].pool;
    }
    p = gb_map_get(&session->pools, name->s);
    if (p && atomic_load(&p->state) == GB_POOL_LIVE)
        return p;
    if (gb_session_alive(session, err) < 0)
        return NULL;
    gb_error_set(err, GB_ERR_POOL_NOT_FOUND, "session \"%s\" has no pool named \"%s\"",
                 gb_session_client_name(session)->s, name->s);
    return NULL;
}

/* The next of a record's current_pools, as far as the session has it still; ids are not used twice. NULL at the end. */
static struct gb_core_pool *next_current_locked(struct gb_session *session, const char **at) {
    struct gb_core_pool *p = NULL;

    while (!p && **at != '\0') {
        char *end;
        int64_t id = strtoll(*at, &end, 10);
        int64_t found = 0;

        *at = *end == ',' ? end + 1 : end;
        p = gb_idlist_after(&session->pools_by_id, id - 1, &found);
        if (found != id)
            p = NULL;
    }
    return p;
}

/* A lost pool is current again after its device has made it. */
struct gb_core_pool *gb_session_pool_locked(struct gb_session *session, const struct gb_core_device *device) {
    const char *at = gb_text_s(session->rec.current_pools);
    struct gb_core_pool *p;

    while ((p = next_current_locked(session, &at))) {
        if (p->device == device && atomic_load(&p->state) == GB_POOL_LIVE && p->pool)
            return p;
    }
    return device->pool;
}

int gb_session_choose_pool_locked(struct gb_session *session, const struct gb_name *name, struct gb_text **current,
                                  struct gb_error *err) {
    struct gb_core_pool *chosen = name->s[0] ? gb_core_pool_find_locked(session, name, err) : NULL;
    const char *at = gb_text_s(*current);
    size_t size = strlen(at) + 24;
    struct gb_text *text = NULL;
    struct gb_core_pool *p;
    char *list;
    size_t n = 0;

    if (name->s[0] && (!chosen || (!chosen->own && gb_core_pool_check(chosen, err) < 0)))
        return -1;
    list = malloc(size);
    if (!list)
        return gb_no_memory(err);
    if (chosen && !chosen->own)
        n = (size_t)snprintf(list, size, "%" PRId64, chosen->rec.id);
    while (chosen && (p = next_current_locked(session, &at))) {
        if (p->rec.device != chosen->rec.device)
            n += (size_t)snprintf(list + n, size - n, "%s%" PRId64, n > 0 ? "," : "", p->rec.id);
    }
    if (n > 0)
        text = gb_text_new(list, n);
    free(list);
    if (n > 0 && !text)
        return gb_no_memory(err);
    gb_text_unref(*current);
    *current = text;
    return 0;
}

void gb_session_current_pools(struct gb_core *core, int64_t session,
                              void (*visit)(void *arg, const struct gb_name *pool), void *arg) {
    struct gb_session *s = gb_session_after(core, session - 1);
    int i;

    if (s)
        pthread_mutex_lock(&s->lock);
    for (i = 0; i < core->device_count; i++) {
        const struct gb_core_device *device = &core->devices[i];
        struct gb_core_pool *p = s && s->id == session ? gb_session_pool_locked(s, device) : device->pool;

        visit(arg, gb_core_pool_absent(p) ? NULL : &p->rec.name);
    }
    if (s)
        pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
}

struct gb_core_pool *gb_core_pool_lock(struct gb_core *core, const struct gb_locator *at,
                                       struct gb_session **ret_session, struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, &at->session, err);
    struct gb_core_pool *p;

    if (!s)
        return NULL;
    pthread_mutex_lock(&s->lock);
    p = gb_core_pool_find_locked(s, &at->name, err);
    if (p && gb_core_pool_absent(p)) {
        gb_error_move(err, &p->why);
        p = NULL;
    }
    if (p)
        *ret_session = s;
    else
        gb_core_pool_unlock(s);
    return p;
}

void gb_core_pool_unlock(struct gb_session *session) {
    pthread_mutex_unlock(&session->lock);
    gb_session_unref(session);
}

int gb_core_pool_enroll_locked(struct gb_session *s, struct gb_core_pool *p, struct gb_error *err) {
    if (gb_idlist_put(&s->pools_by_id, p->rec.id, p) < 0)
        return gb_no_memory(err);
    if (gb_map_put(&s->pools, p->rec.name.s, p) == 0) {
        if (gb_session_pools_update_locked(s->core->pool_sessions, s) == 0)
            return 0;
        gb_map_take(&s->pools, p->rec.name.s);
    }
    gb_idlist_take(&s->pools_by_id, p->rec.id);
    return gb_no_memory(err);
}

struct gb_core_pool *gb_session_pool_after(struct gb_session *s, int64_t *id) {
    struct gb_core_pool *p;

    pthread_mutex_lock(&s->lock);
    p = gb_idlist_after(&s->pools_by_id, *id, id);
    if (p)
        gb_core_pool_ref(p);
    pthread_mutex_unlock(&s->lock);
    return p;
}

/* --- of all sessions ---------------------------------------------------------------------------------------------- */

/* The next live session, with a reference. An entry of the list may be about to end, so the session is looked up by its
 * id. */
static struct gb_session *after(struct gb_core *core, int64_t *id) {
    struct gb_session_pools *pool_sessions = core->pool_sessions;
    struct gb_session *s;
    void *next;

    for (;;) {
        pthread_mutex_lock(&pool_sessions->lock);
        next = gb_idlist_after(&pool_sessions->sessions, *id, id);
        pthread_mutex_unlock(&pool_sessions->lock);
        if (!next)
            return NULL;
        s = gb_session_after(core, *id - 1);
        if (s && s->id == *id && atomic_load(&s->state) == GB_SESSION_LIVE)
            return s;
        gb_session_unref(s);
    }
}

int gb_pool_list_owned(struct gb_core *core, unsigned limit,
                       int (*visit)(void *, const struct gb_name *, const struct gb_pool_view *, struct gb_error *),
                       void *arg, uint64_t *ret_omitted, struct gb_error *err) {
    struct gb_session *s;
    uint64_t omitted = 0;
    unsigned n = 0;
    int64_t id = 0;
    int r = 0;

    while (r == 0 && (s = after(core, &id))) {
        struct gb_core_pool *p;
        int64_t pool_id = 0;

        while (r == 0 && (p = gb_session_pool_after(s, &pool_id))) {
            struct gb_pool_view view;
            bool seen = false;

            pthread_mutex_lock(&s->lock);
            if (atomic_load(&p->state) == GB_POOL_LIVE) {
                seen = n < limit;
                n += seen;
                omitted += !seen;
            }
            if (seen)
                gb_core_pool_view(p, &view);
            pthread_mutex_unlock(&s->lock);
            gb_core_pool_unref(p);
            if (seen)
                r = visit(arg, gb_session_name(s), &view, err);
        }
        gb_session_unref(s);
    }
    if (r == 0)
        *ret_omitted = omitted;
    return r;
}

/* --- what holders know -------------------------------------------------------------------------------------------- */

struct withheld {
    uint64_t edition;
    char name[];
};

/* Editions of two processes differ. */
static uint64_t next_edition(struct gb_copies *copies) {
    uint64_t now = (uint64_t)gb_wall_us();

    copies->edition = now > copies->edition ? now : copies->edition + 1;
    return copies->edition;
}

static void free_names(struct gb_copies *copies) {
    struct withheld *one;
    size_t at = 0;

    while ((one = gb_map_next(&copies->withheld, &at)))
        free(one);
    gb_map_done(&copies->withheld);
}

int gb_copies_check_name_locked(struct gb_session *s, const char *name, struct gb_error *err) {
    struct gb_copies *copies = &s->copies;

    if (!s->rec.holders || (copies->all == 0 && !gb_map_get(&copies->withheld, name)))
        return 0;
    return gb_error_set(err, GB_ERR_COPIES_REMAIN,
                        "nodes that hold copies for the session \"%s\" may have sealed bytes under the name \"%s\"; "
                        "it is free when they have dropped those, or when the fleet has struck them",
                        gb_session_client_name(s)->s, name);
}

static void withhold(struct gb_copies *copies, const char *name, uint64_t edition) {
    size_t n = strlen(name) + 1;
    struct withheld *one = gb_map_get(&copies->withheld, name);

    if (!one) {
        one = malloc(sizeof(*one) + n);
        if (one)
            memcpy(one->name, name, n);
        if (!one || gb_map_put(&copies->withheld, one->name, one) < 0) {
            free(one);
            copies->all = edition; /* rather all names than none */
            return;
        }
    }
    one->edition = edition;
}

static void tell(struct gb_core *core) {
    pthread_mutex_lock(&core->gone_lock);
    if (core->copied)
        core->copied(core->copied_arg);
    pthread_mutex_unlock(&core->gone_lock);
}

void gb_copies_note_locked(struct gb_session *s, const char *name, bool was_sealed, bool is_sealed) {
    if (was_sealed == is_sealed || (s->rec.replicas == 0 && !s->rec.holders))
        return;
    next_edition(&s->copies);
    if (was_sealed && s->rec.holders)
        withhold(&s->copies, name, s->copies.edition);
    tell(s->core);
}

void gb_copies_set_locked(struct gb_session *s, bool withhold_all) {
    if (s->copies.edition == 0)
        next_edition(&s->copies);
    if (!s->rec.holders) {
        free_names(&s->copies);
        s->copies.all = 0;
    } else if (withhold_all) {
        s->copies.all = next_edition(&s->copies);
    }
}

static void copies_done(struct gb_session *s) {
    free_names(&s->copies);
}

/* --- the public ones ---------------------------------------------------------------------------------------------- */

void gb_core_keep_copies(struct gb_core *core) {
    atomic_store(&core->keeps_copies, true);
}

void gb_core_set_copied(struct gb_core *core, void (*copied)(void *arg), bool (*shortage)(void *arg, uint64_t bytes),
                        void *arg) {
    pthread_mutex_lock(&core->gone_lock);
    core->copied = copied;
    core->shortage = shortage;
    core->copied_arg = arg;
    pthread_mutex_unlock(&core->gone_lock);
}

uint64_t gb_session_edition(struct gb_core *core, const struct gb_name *name) {
    struct gb_session *s = gb_session_find(core, name, NULL);
    uint64_t edition;

    if (!s)
        return 0;
    pthread_mutex_lock(&s->lock);
    if (s->copies.edition == 0)
        next_edition(&s->copies);
    edition = s->copies.edition;
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    return edition;
}

void gb_session_release_names(struct gb_core *core, const struct gb_name *name, uint64_t edition) {
    struct gb_session *s = gb_session_find(core, name, NULL);
    struct withheld *one;
    size_t at = 0;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    if (s->copies.all <= edition)
        s->copies.all = 0;
    while ((one = gb_map_next(&s->copies.withheld, &at)))
        if (one->edition <= edition) {
            gb_map_take(&s->copies.withheld, one->name);
            free(one);
        }
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
}

/* --- session ------------------------------------------------------------------------------------------------------ */

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
    TAILQ_INIT(&s->turns);
    atomic_init(&s->oldest_turn, UINT64_MAX);
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
        gb_copies_set_locked(s, true); /* this process does not know their copies */
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

const struct gb_name *gb_session_name(const struct gb_session *session) {
    return atomic_load(&session->called);
}

const struct gb_name *gb_session_client_name(const struct gb_session *session) {
    const struct gb_name *left = atomic_load(&session->left);

    return left ? left : gb_session_name(session);
}

/* Counts a stream that was taken down. The last one frees the session. */
static void session_release(struct gb_session *s) {
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
    copies_done(s);
    pthread_mutex_destroy(&s->lock);
    gb_session_rec_done(&s->rec);
    free(s);
    gb_core_leave(core);
}

static void drained(void *arg) {
    struct gb_session *session = arg;

    pthread_mutex_lock(&session->lock);
    session->streams_held--;
    pthread_mutex_unlock(&session->lock);
    gb_session_unref(session);
}

static void gone(void *arg) {
    session_release(arg);
}

struct gb_core_stream *gb_session_stream_new(struct gb_session *session, const struct gb_name *name, int64_t id) {
    static const struct gb_stream_owner owner = {.drained = drained, .gone = gone};

    return gb_core_stream_new(session->core, &owner, session, name, id);
}

void gb_session_unref(struct gb_session *session) {
    struct gb_core_stream *st;
    struct gb_idlist pools;
    size_t at = 0;

    if (!session || atomic_fetch_sub(&session->refs, 1) != 1)
        return;
    pools = gb_session_take_pools_locked(session); /* no other user is left */
    gb_session_drop_pools(&pools);
    session_forget_events(session);
    atomic_store(&session->streams_open, 2 + (unsigned)session->streams.count);
    while ((st = gb_map_next(&session->streams, &at))) {
        gb_core_stream_take_down(st);
        gb_core_stream_unref(st);
    }
    st = session->standard;
    gb_core_stream_take_down(st);
    gb_core_stream_unref(st);
    session_release(session);
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

/* For requests that had begun under the former name. */
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

/* A session that was to arrive when the process ended. */
static bool is_stranded(const struct gb_session_rec *rec) {
    return rec->fleet_epoch == 0 && rec->fleet_claim[0] != '\0';
}

bool gb_session_idle(struct gb_session *session) {
    uint64_t idle_ns = gb_clock_ns() - atomic_load(&session->touched_ns);
    uint64_t ttl_s = is_stranded(&session->rec) ? STRANDED_TTL_S : session->rec.idle_ttl_s;

    return ttl_s > 0 && atomic_load(&session->transfers) == 0 && session->leases == 0 && session->adopted == 0 &&
           idle_ns / GB_NS_PER_S >= ttl_s;
}

static void view_pools_locked(struct gb_session *session, struct gb_session_view *ret) {
    int i;

    ret->pool = (struct gb_name){"default"};
    ret->pools_mark = 0;
    for (i = 0; session->rec.current_pools && i < session->core->device_count; i++) {
        const struct gb_core_pool *pool = gb_session_pool_locked(session, &session->core->devices[i]);

        if (pool->own)
            continue;
        if (ret->pools_mark == 0)
            ret->pool = pool->rec.name;
        ret->pools_mark = ret->pools_mark * 1000003 + (uint64_t)pool->rec.id;
    }
}

void gb_session_view_locked(struct gb_session *session, struct gb_session_view *ret) {
    uint64_t now_ns = gb_clock_ns();
    bool active = atomic_load(&session->transfers) > 0 || session->leases > 0 || session->adopted > 0;
    uint64_t seen_ns = active ? now_ns : atomic_load(&session->touched_ns);

    gb_session_rec_set(&ret->rec, &session->rec);
    ret->used_bytes = session->used_bytes;
    ret->used_pinned_bytes = session->used_pinned_bytes;
    ret->used_stored_bytes = session->used_stored_bytes;
    ret->buffers = session->live_buffers;
    view_pools_locked(session, ret);
    ret->expires_at_us = 0;
    if (session->rec.idle_ttl_s > 0 && session->rec.idle_ttl_s < INT64_MAX / 4000000)
        ret->expires_at_us = gb_wall_us() + (int64_t)session->rec.idle_ttl_s * 1000000 -
                             (int64_t)((now_ns - (seen_ns < now_ns ? seen_ns : now_ns)) / 1000);
}

/* --- its next name ------------------------------------------------------------------------------------------------ */

/* A session that is set aside gets no other name. */
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

/* For this long a request that had begun before may find its session by the former name. */
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

/* The newest name is the first. If memory is exhausted, requests that had begun get SESSION_NOT_FOUND. */
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
    bool enrolled;

    pthread_mutex_lock(&core->sessions_lock);
    enrolled = gb_idlist_after(&core->sessions_by_id, session->id - 1, NULL) == session;
    if (enrolled) {
        gb_map_take(&core->sessions, gb_session_name(session)->s);
        free_name_locked(session);
        gb_idlist_take(&core->sessions_by_id, session->id);
    }
    pthread_mutex_unlock(&core->sessions_lock);
    if (enrolled)
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

/* The name is cut if the whole would be too long. */
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

/* --- operations --------------------------------------------------------------------------------------------------- */

struct gb_session *gb_op_session(struct gb_core *core, const struct gb_name *name, struct gb_error *err) {
    return gb_core_alive(core, err) < 0 ? NULL : gb_session_use(core, name, err);
}

void *gb_op_new(size_t size, struct gb_session *session, struct gb_call *call, void (*free_arg)(void *arg), void *arg,
                struct gb_error *err) {
    struct gb_op *op = session ? calloc(1, size) : NULL;

    if (op) {
        *op = (struct gb_op){.session = session, .call = call, .free_arg = free_arg, .arg = arg};
        return op;
    }
    if (session)
        gb_no_memory(err);
    if (free_arg)
        free_arg(arg);
    gb_session_unref(session);
    gb_call_finish(call, err);
    return NULL;
}

void gb_op_end(struct gb_op *op, const struct gb_error *error) {
    struct gb_session *session = op->session;

    gb_core_report_error(session->core, error);
    if (op->free_arg)
        op->free_arg(op->arg);
    gb_call_finish(op->call, error && error->code != GB_OK ? error : NULL);
    free(op);
    gb_session_unref(session);
}
