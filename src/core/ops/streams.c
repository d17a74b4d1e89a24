/* Use cases of streams. */
#include <stdlib.h>
#include <string.h>

#include "core/session/session.h"

/* What cannot be asked counts as idle. */
static bool busy(struct gb_core_stream *st) {
    struct gb_core *core = st->core;
    bool idle = true;
    int i;

    for (i = 0; i < core->device_count && idle; i++) {
        struct gb_stream *part = gb_core_stream_part(st, i);

        if (part)
            gb_stream_query(core->backend, part, &idle, NULL);
    }
    return !idle;
}

/* The stream is used. */
static void view(struct gb_core_stream *st, struct gb_stream_view *ret) {
    int i;

    *ret =
        (struct gb_stream_view){.id = st->id, .name = st->name, .created_at_us = st->created_at_us, .busy = busy(st)};
    for (i = 0; i < st->core->device_count; i++)
        ret->devices += gb_core_stream_part(st, i) != NULL;
}

int gb_stream_get(struct gb_core *core, const struct gb_locator *at, struct gb_stream_view *ret, struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, &at->session, err);
    struct gb_core_stream *st;
    int r;

    if (!s)
        return -1;
    pthread_mutex_lock(&s->lock);
    r = gb_core_stream_use_locked(s, &at->name, &st, err);
    pthread_mutex_unlock(&s->lock);
    if (r == 0) {
        view(st, ret);
        gb_core_stream_unuse(st);
    }
    gb_session_unref(s);
    return r;
}

/* The next one, used. */
static bool after(struct gb_session *s, int64_t id, struct gb_stream_view *ret) {
    struct gb_core_stream *st;

    pthread_mutex_lock(&s->lock);
    st = gb_idlist_after(&s->streams_by_id, id, NULL);
    if (st) {
        atomic_fetch_add(&st->users, 1);
        gb_core_stream_ref(st);
    }
    pthread_mutex_unlock(&s->lock);
    if (!st)
        return false;
    view(st, ret);
    gb_core_stream_unuse(st);
    return true;
}

int gb_stream_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                   int (*visit)(void *, const struct gb_stream_view *, struct gb_error *), void *arg,
                   struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, session, err);
    struct gb_stream_view v;
    int64_t id = page->after;
    unsigned n;
    int r = 0;

    if (!s)
        return -1;
    if (id == 0) {
        view(s->standard, &v);
        r = visit(arg, &v, err);
    }
    for (n = 0; n < page->limit && r == 0 && after(s, id, &v); n++) {
        id = v.id;
        r = visit(arg, &v, err);
    }
    if (r == 0)
        page->more = after(s, id, &v);
    gb_session_unref(s);
    return r;
}

/* --- making and removing ------------------------------------------------------------------------------------------ */

static struct gb_core_stream *make_locked(struct gb_session *s, const struct gb_name *name, struct gb_error *err) {
    uint64_t max = s->core->config.streams_max ? s->core->config.streams_max : GB_STREAMS_MAX;
    struct gb_core_stream *st;

    if (gb_session_changeable_locked(s, err) < 0)
        return NULL;
    if (strcmp(name->s, "default") == 0 || gb_map_get(&s->streams, name->s)) {
        gb_error_set(err, GB_ERR_STREAM_EXISTS, "session \"%s\" has a stream named \"%s\"", gb_session_told(s)->s,
                     name->s);
        return NULL;
    }
    if (s->streams_held >= max) {
        gb_error_set(err, GB_ERR_LIMIT_REACHED, "session \"%s\" has %llu streams, the permitted number (--max-streams)",
                     gb_session_told(s)->s, (unsigned long long)s->streams_held);
        return NULL;
    }
    st = gb_session_stream_new(s, name, s->last_order_id + 1);
    if (st && gb_idlist_put(&s->streams_by_id, st->id, st) == 0) {
        if (gb_map_put(&s->streams, st->name.s, st) == 0) {
            s->last_order_id++;
            s->streams_held++;
            return st;
        }
        gb_idlist_take(&s->streams_by_id, st->id);
    }
    gb_core_stream_unref(st);
    gb_no_memory(err);
    return NULL;
}

void gb_stream_make(struct gb_core *core, const struct gb_locator *at, struct gb_stream_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = gb_session_use(core, &at->session, &err);
    struct gb_core_stream *st = NULL;

    if (s) {
        pthread_mutex_lock(&s->lock);
        st = make_locked(s, &at->name, &err);
        if (st)
            call->stream = (struct gb_stream_view){.id = st->id, .name = st->name, .created_at_us = st->created_at_us};
        pthread_mutex_unlock(&s->lock);
        gb_core_changed(core);
    }
    gb_call_finish(&call->base, st ? NULL : &err);
    gb_session_unref(s);
}

void gb_stream_remove(struct gb_core *core, const struct gb_locator *at, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = gb_session_use(core, &at->session, &err);
    struct gb_core_stream *st = NULL;

    if (s && strcmp(at->name.s, "default") == 0)
        gb_error_set(&err, GB_ERR_STREAM_PROTECTED, "the stream \"default\" always exists");
    if (s && err.code == GB_OK) {
        pthread_mutex_lock(&s->lock);
        st = gb_map_take(&s->streams, at->name.s);
        if (st)
            gb_idlist_take(&s->streams_by_id, st->id);
        else
            gb_error_set(&err, GB_ERR_STREAM_NOT_FOUND, "session \"%s\" has no stream named \"%s\"",
                         gb_session_told(s)->s, at->name.s);
        pthread_mutex_unlock(&s->lock);
        if (st) {
            gb_session_ref(s); /* until the stream has drained */
            gb_core_stream_unuse(st);
        }
        gb_core_changed(core);
    }
    gb_call_finish(call, st ? NULL : &err);
    gb_session_unref(s);
}
