#include "core/session/streams.h"

#include <stdlib.h>
#include <string.h>

#include "core/session/session.h"

/* --- streams ------------------------------------------------------------------------------------------------------ */

static void drained(void *arg) {
    struct gb_session *session = arg;

    pthread_mutex_lock(&session->lock);
    session->streams_held--;
    pthread_mutex_unlock(&session->lock);
    gb_session_unref(session);
}

static void gone(void *arg) {
    gb_session_release(arg);
}

struct gb_core_stream *gb_session_stream_new(struct gb_session *session, const struct gb_name *name, int64_t id) {
    static const struct gb_stream_owner owner = {.drained = drained, .gone = gone};

    return gb_core_stream_new(session->core, &owner, session, name, id);
}

int gb_core_stream_use_locked(struct gb_session *session, const struct gb_name *name, struct gb_core_stream **ret,
                              struct gb_error *err) {
    struct gb_core_stream *st = session->standard;

    if (name->s[0] != '\0' && strcmp(name->s, "default") != 0)
        st = gb_map_get(&session->streams, name->s);
    if (!st)
        return gb_error_set(err, GB_ERR_STREAM_NOT_FOUND, "session \"%s\" has no stream named \"%s\"",
                            gb_session_told(session)->s, name->s);
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
    free(m);
}

void gb_core_event_unref(struct gb_core_event *e) {
    if (!e || atomic_fetch_sub(&e->refs, 1) != 1)
        return;
    gb_event_mark_unref(e->mark);
    free(e);
}

void gb_session_forget_events(struct gb_session *session) {
    struct gb_core_event *e;
    size_t at = 0;

    while ((e = gb_map_next(&session->events, &at)))
        gb_core_event_unref(e);
}
