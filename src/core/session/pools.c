#include "core/session/pools.h"

#include <stdlib.h>

#include "base/thread.h"
#include "core/device/pool.h"
#include "core/session/session.h"

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
    gb_error_set(err, GB_ERR_POOL_NOT_FOUND, "session \"%s\" has no pool named \"%s\"", gb_session_told(session)->s,
                 name->s);
    return NULL;
}

/* Ids are never used again, so a pool that is gone is no other one. A lost pool is current again when its device makes
 * it. */
struct gb_core_pool *gb_session_current_pool_locked(struct gb_session *session) {
    struct gb_core_pool *p;
    int64_t id = 0;

    if (session->rec.pool_id == 0)
        return NULL;
    p = gb_idlist_after(&session->pools_by_id, session->rec.pool_id - 1, &id);
    return p && id == session->rec.pool_id && atomic_load(&p->state) == GB_POOL_LIVE && p->pool ? p : NULL;
}

struct gb_core_pool *gb_session_pool_locked(struct gb_session *session, const struct gb_core_device *device) {
    struct gb_core_pool *p = gb_session_current_pool_locked(session);

    return p && p->device == device ? p : device->pool;
}

int gb_session_choose_pool_locked(struct gb_session *session, const struct gb_name *name, int64_t *ret_id,
                                  struct gb_error *err) {
    struct gb_core_pool *p = gb_core_pool_find_locked(session, name, err);

    if (!p)
        return -1;
    if (p->own && p->device->index > 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "\"%s\" is a device's own pool, from which its memory comes anyway; give a pool of the "
                            "session, or \"default\" for none but the devices' own",
                            name->s);
    if (!p->own && gb_core_pool_check(p, err) < 0)
        return -1;
    *ret_id = p->own ? 0 : p->rec.id;
    return 0;
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
