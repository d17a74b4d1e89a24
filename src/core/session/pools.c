#include "core/session/pools.h"

#include "core/session/session.h"

void gb_pooled_init(struct gb_pooled *pooled) {
    pthread_mutex_init(&pooled->lock, NULL);
    pooled->sessions = (struct gb_idlist){0};
}

void gb_pooled_done(struct gb_pooled *pooled) {
    gb_idlist_done(&pooled->sessions);
    pthread_mutex_destroy(&pooled->lock);
}

int gb_pooled_note_locked(struct gb_pooled *pooled, struct gb_session *s) {
    int64_t found = 0;
    int r = 0;

    pthread_mutex_lock(&pooled->lock);
    gb_idlist_after(&pooled->sessions, s->id - 1, &found);
    if (s->pools_by_id.count == 0)
        gb_idlist_take(&pooled->sessions, s->id);
    else if (found != s->id)
        r = gb_idlist_put(&pooled->sessions, s->id, s);
    pthread_mutex_unlock(&pooled->lock);
    return r;
}

/* The next one that can be seen, with a reference. What stands in the list may be on its way out: it is asked for by its id. */
static struct gb_session *after(struct gb_core *core, int64_t *id) {
    struct gb_pooled *pooled = &core->pooled;
    struct gb_session *s;
    void *next;

    for (;;) {
        pthread_mutex_lock(&pooled->lock);
        next = gb_idlist_after(&pooled->sessions, *id, id);
        pthread_mutex_unlock(&pooled->lock);
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
