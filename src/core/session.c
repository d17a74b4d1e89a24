#include "core/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* --- one session ---------------------------------------------------------------------------------------------------------- */

struct gb_session *gb_session_new(struct gb_core *core, const struct gb_session_rec *rec, enum gb_session_state state) {
    struct gb_session *s = calloc(1, sizeof(*s) + (size_t)core->device_count * sizeof(s->streams[0]));
    int i;

    if (!s)
        return NULL;
    atomic_init(&s->refs, 1);
    s->core = core;
    s->id = rec->id;
    s->name = rec->name;
    s->rec = *rec;
    atomic_init(&s->state, state);
    atomic_init(&s->touched_ns, gb_clock_ns());
    pthread_mutex_init(&s->lock, NULL);
    for (i = 0; i < core->device_count; i++) {
        s->streams[i].session = s;
        s->streams[i].device = i;
    }
    gb_core_enter(core);
    return s;
}

struct gb_session *gb_session_ref(struct gb_session *session) {
    atomic_fetch_add(&session->refs, 1);
    return session;
}

static void release(struct gb_session *s) {
    struct gb_core *core = s->core;

    if (atomic_fetch_sub(&s->streams_open, 1) != 1)
        return;
    gb_map_done(&s->buffers);
    gb_idlist_done(&s->buffers_by_id);
    pthread_mutex_destroy(&s->lock);
    free(s);
    gb_core_leave(core);
}

static struct gb_session_stream *stream_of(struct gb_task *task) {
    return (struct gb_session_stream *)((char *)task - offsetof(struct gb_session_stream, task));
}

static void destroy_stream(struct gb_task *task) {
    struct gb_session_stream *st = stream_of(task);
    struct gb_core *core = st->session->core;

    gb_events_give(&core->devices[st->device].events, st->ev);
    gb_stream_destroy(core->backend, atomic_load(&st->stream));
    release(st->session);
}

static void stream_idle(void *arg, const struct gb_error *error) {
    struct gb_session_stream *st = arg;

    gb_core_note(st->session->core, error);
    st->task.run = destroy_stream;
    gb_lane_post(&st->session->core->devices[st->device].lane, &st->task);
}

/* Destroying a stream waits for its work, and the lane serves others too: so only once the stream is idle. */
static void take_down_stream(struct gb_task *task) {
    struct gb_session_stream *st = stream_of(task);
    struct gb_core *core = st->session->core;
    bool done = false;

    st->ev = gb_events_take(&core->devices[st->device].events, NULL);
    if (st->ev && gb_event_record(core->backend, st->ev->event, atomic_load(&st->stream), NULL) == 0 &&
        gb_event_query(core->backend, st->ev->event, &done, NULL) == 0 && !done &&
        gb_watch(core->backend, st->ev->event, stream_idle, st, NULL) == 0)
        return;
    destroy_stream(task);
}

void gb_session_unref(struct gb_session *session) {
    struct gb_core *core;
    int i;

    if (!session || atomic_fetch_sub(&session->refs, 1) != 1)
        return;
    core = session->core;
    atomic_store(&session->streams_open, 1);
    for (i = 0; i < core->device_count; i++) {
        if (!gb_session_stream(session, i))
            continue;
        atomic_fetch_add(&session->streams_open, 1);
        session->streams[i].task.run = take_down_stream;
        gb_lane_post(&core->devices[i].lane, &session->streams[i].task);
    }
    release(session);
}

int gb_session_stream_make(struct gb_session *session, int device, struct gb_stream **ret, struct gb_error *err) {
    struct gb_stream *stream = gb_session_stream(session, device);

    if (!stream) {
        if (gb_stream_create(session->core->backend, device, &stream, err) < 0)
            return -1;
        atomic_store(&session->streams[device].stream, stream);
    }
    *ret = stream;
    return 0;
}

int gb_session_alive(struct gb_session *session, struct gb_error *err) {
    if (atomic_load(&session->state) == GB_SESSION_LIVE)
        return 0;
    return gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "there is no session named \"%s\"", session->name.s);
}

/* --- idle time ------------------------------------------------------------------------------------------------------------ */

void gb_session_touch(struct gb_session *session) {
    atomic_store(&session->touched_ns, gb_clock_ns());
}

bool gb_session_idle(struct gb_session *session) {
    uint64_t idle_ns = gb_clock_ns() - atomic_load(&session->touched_ns);

    return session->rec.idle_ttl_s > 0 && atomic_load(&session->transfers) == 0 &&
           idle_ns / GB_NS_PER_S >= session->rec.idle_ttl_s;
}

void gb_session_view_locked(struct gb_session *session, struct gb_session_view *ret) {
    uint64_t now_ns = gb_clock_ns();
    uint64_t seen_ns = atomic_load(&session->transfers) > 0 ? now_ns : atomic_load(&session->touched_ns);

    ret->rec = session->rec;
    ret->used_bytes = session->used_bytes;
    ret->used_pinned_bytes = session->used_pinned_bytes;
    ret->buffers = session->live_buffers;
    ret->expires_at_us = 0;
    if (session->rec.idle_ttl_s > 0 && session->rec.idle_ttl_s < INT64_MAX / 4000000)
        ret->expires_at_us = gb_wall_us() + (int64_t)session->rec.idle_ttl_s * 1000000 -
                             (int64_t)((now_ns - (seen_ns < now_ns ? seen_ns : now_ns)) / 1000);
}

/* --- all sessions --------------------------------------------------------------------------------------------------------- */

int gb_session_enroll(struct gb_session *session, uint64_t max, struct gb_error *err) {
    struct gb_core *core = session->core;
    int r = -1;

    pthread_mutex_lock(&core->sessions_lock);
    if (gb_map_get(&core->sessions, session->name.s))
        gb_error_set(err, GB_ERR_SESSION_EXISTS, "a session named \"%s\" exists", session->name.s);
    else if (core->sessions.count >= max)
        gb_error_set(err, GB_ERR_LIMIT_REACHED, "there are %zu sessions, the permitted number", core->sessions.count);
    else if (gb_idlist_put(&core->sessions_by_id, session->id, session) < 0)
        gb_no_memory(err);
    else
        r = gb_map_put(&core->sessions, session->name.s, session);
    if (r < 0) {
        gb_idlist_take(&core->sessions_by_id, session->id);
        gb_no_memory(err); /* unless it was something else */
    }
    pthread_mutex_unlock(&core->sessions_lock);
    return r;
}

void gb_session_withdraw(struct gb_session *session) {
    struct gb_core *core = session->core;

    pthread_mutex_lock(&core->sessions_lock);
    gb_map_take(&core->sessions, session->name.s);
    gb_idlist_take(&core->sessions_by_id, session->id);
    pthread_mutex_unlock(&core->sessions_lock);
    gb_session_unref(session);
}

struct gb_session *gb_session_find(struct gb_core *core, const struct gb_name *name, struct gb_error *err) {
    struct gb_session *s;

    pthread_mutex_lock(&core->sessions_lock);
    s = gb_map_get(&core->sessions, name->s);
    if (s && atomic_load(&s->state) == GB_SESSION_LIVE)
        gb_session_ref(s);
    else
        s = NULL;
    pthread_mutex_unlock(&core->sessions_lock);
    if (!s)
        gb_error_set(err, GB_ERR_SESSION_NOT_FOUND, "there is no session named \"%s\"", name->s);
    return s;
}

struct gb_session *gb_session_use(struct gb_core *core, const struct gb_name *name, struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, name, err);

    if (s)
        gb_session_touch(s);
    return s;
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
