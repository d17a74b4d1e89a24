#include "core/session/pools.h"

#include "core/session/session.h"

void gb_session_pools_init(struct gb_session_pools *pool_sessions) {
    pthread_mutex_init(&pool_sessions->lock, NULL);
    pool_sessions->sessions = (struct gb_idlist){0};
}

void gb_session_pools_done(struct gb_session_pools *pool_sessions) {
    gb_idlist_done(&pool_sessions->sessions);
    pthread_mutex_destroy(&pool_sessions->lock);
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

/* The next one that can be seen, with a reference. What stands in the list may be on its way out: it is asked for by its id. */
static struct gb_session *after(struct gb_core *core, int64_t *id) {
    struct gb_session_pools *pool_sessions = &core->pool_sessions;
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
                r = visit(arg, &s->name, &view, err);
        }
        gb_session_unref(s);
    }
    if (r == 0)
        *ret_omitted = omitted;
    return r;
}
