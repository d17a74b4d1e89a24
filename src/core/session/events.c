/* Streams and events as clients see them: made, recorded, waited for, listed and removed. An event keeps the mark of
 * its last record. Handlers call this. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/session/session.h"

/* --- streams ------------------------------------------------------------------------------------------------------ */

/* A stream whose query fails counts as idle. */
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

/* --- streams: making and removing --------------------------------------------------------------------------------- */

static struct gb_core_stream *make_locked(struct gb_session *s, const struct gb_name *name, struct gb_error *err) {
    uint64_t max = s->core->config.streams_max ? s->core->config.streams_max : GB_STREAMS_MAX;
    struct gb_core_stream *st;

    if (gb_session_changeable_locked(s, err) < 0)
        return NULL;
    if (strcmp(name->s, "default") == 0 || gb_map_get(&s->streams, name->s)) {
        gb_error_set(err, GB_ERR_STREAM_EXISTS, "session \"%s\" has a stream named \"%s\"",
                     gb_session_client_name(s)->s, name->s);
        return NULL;
    }
    if (s->streams_held >= max) {
        gb_error_set(err, GB_ERR_LIMIT_REACHED, "session \"%s\" has %llu streams, the permitted number (--max-streams)",
                     gb_session_client_name(s)->s, (unsigned long long)s->streams_held);
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
                         gb_session_client_name(s)->s, at->name.s);
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

/* --- events ------------------------------------------------------------------------------------------------------- */

/* A record covers a stream's parts on all devices. A mark keeps the covered positions. Waiters hold their mark while
 * another record takes its place. */

/* --- marks and events --------------------------------------------------------------------------------------------- */

static struct gb_event_mark *mark_new(struct gb_core *core) {
    struct gb_event_mark *m = calloc(1, sizeof(*m) + (size_t)core->device_count * sizeof(m->evs[0]));

    if (!m)
        return NULL;
    atomic_init(&m->refs, 1);
    m->core = core;
    return m;
}

/* --- the order between streams ------------------------------------------------------------------------------------ */

bool gb_stream_follows(const struct gb_core_stream *st, int64_t other, uint64_t number) {
    const struct gb_frontier *f = st->frontier;
    size_t i;

    for (i = 0; f && i < f->count; i++) {
        if (f->at[i].stream == other)
            return number <= f->at[i].number;
    }
    return false;
}

static void frontier_add(struct gb_frontier *f, int64_t stream, uint64_t number) {
    size_t i;

    for (i = 0; i < f->count && f->at[i].stream != stream; i++)
        ;
    if (i == f->count)
        f->at[f->count++] = (struct gb_frontier_entry){.stream = stream};
    if (f->at[i].number < number)
        f->at[i].number = number;
}

/* Turns that have ended are before all later work anyway. */
static void frontier_add_all(struct gb_frontier *f, const struct gb_frontier *from, uint64_t oldest) {
    size_t i;

    for (i = 0; from && i < from->count; i++) {
        if (from->at[i].number >= oldest)
            frontier_add(f, from->at[i].stream, from->at[i].number);
    }
}

/* What is before the work that follows a and b, and room for one entry more. NULL if memory is exhausted. */
static struct gb_frontier *frontier_join(const struct gb_session *s, const struct gb_frontier *a,
                                         const struct gb_frontier *b) {
    size_t most = (a ? a->count : 0) + (b ? b->count : 0) + 1;
    struct gb_frontier *f = calloc(1, sizeof(*f) + most * sizeof(f->at[0]));
    uint64_t oldest = atomic_load(&s->oldest_turn);

    if (!f)
        return NULL;
    frontier_add_all(f, a, oldest);
    frontier_add_all(f, b, oldest);
    return f;
}

/* The mark covers what is before the stream's later work, and its own work. */
static int record_frontier_locked(const struct gb_session *s, const struct gb_core_stream *st,
                                  struct gb_event_mark *m) {
    m->frontier = frontier_join(s, st->frontier, NULL);
    if (!m->frontier)
        return -1;
    frontier_add(m->frontier, st->id, s->last_turn);
    return 0;
}

static int wait_frontier_locked(const struct gb_session *s, struct gb_core_stream *st, const struct gb_event_mark *m) {
    struct gb_frontier *f;

    if (!m || !m->frontier)
        return 0;
    f = frontier_join(s, st->frontier, m->frontier);
    if (!f)
        return -1;
    free(st->frontier);
    st->frontier = f;
    return 0;
}

/* --- marks and events --------------------------------------------------------------------------------------------- */

static struct gb_event_mark *mark_ref(struct gb_event_mark *m) {
    if (m)
        atomic_fetch_add(&m->refs, 1);
    return m;
}

/* A position whose query fails counts as not done. */
static bool mark_done(const struct gb_event_mark *m) {
    bool done = true;
    int i;

    for (i = 0; m && i < m->core->device_count && done; i++)
        done = !m->evs[i] || (gb_event_query(m->core->backend, m->evs[i]->event, &done, NULL) == 0 && done);
    return done;
}

static struct gb_core_event *find_locked(struct gb_session *s, const struct gb_name *name, struct gb_error *err) {
    struct gb_core_event *e = gb_map_get(&s->events, name->s);

    if (!e)
        gb_error_set(err, GB_ERR_EVENT_NOT_FOUND, "session \"%s\" has no event named \"%s\"",
                     gb_session_client_name(s)->s, name->s);
    return e;
}

/* --- events: reading ---------------------------------------------------------------------------------------------- */

/* *ret_mark has a reference; the caller queries it without the lock. */
static void view_locked(const struct gb_core_event *e, struct gb_event_view *ret, struct gb_event_mark **ret_mark) {
    *ret = (struct gb_event_view){.id = e->id,
                                  .name = e->name,
                                  .created_at_us = e->created_at_us,
                                  .recorded = e->mark != NULL,
                                  .stream = e->stream,
                                  .records = e->records};
    *ret_mark = mark_ref(e->mark);
}

static void view_end(struct gb_event_view *view, struct gb_event_mark *mark) {
    view->done = mark_done(mark);
    gb_event_mark_unref(mark);
}

int gb_event_mark_get(struct gb_session *s, const struct gb_name *name, struct gb_event_view *ret,
                      struct gb_event_mark **ret_mark, struct gb_error *err) {
    struct gb_core_event *e;

    pthread_mutex_lock(&s->lock);
    e = find_locked(s, name, err);
    if (e)
        view_locked(e, ret, ret_mark);
    pthread_mutex_unlock(&s->lock);
    return e ? 0 : -1;
}

int gb_event_get(struct gb_core *core, const struct gb_locator *at, struct gb_event_view *ret, struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, &at->session, err);
    struct gb_event_mark *mark;
    int r;

    if (!s)
        return -1;
    r = gb_event_mark_get(s, &at->name, ret, &mark, err);
    if (r == 0)
        view_end(ret, mark);
    gb_session_unref(s);
    return r;
}

static void await_next(struct gb_event_mark *mark);

/* A failure is a change as well. */
static void awaited(void *arg, const struct gb_error *error) {
    struct gb_event_mark *mark = arg;

    (void)error;
    mark->awaited++;
    await_next(mark);
}

static void await_next(struct gb_event_mark *mark) {
    struct gb_core *core = mark->core;

    for (; mark->awaited < core->device_count; mark->awaited++) {
        struct gb_ev *ev = mark->evs[mark->awaited];

        if (ev && gb_watch(core->backend, ev->event, awaited, mark, NULL) == 0)
            return;
    }
    gb_event_mark_unref(mark);
    gb_core_changed(core);
    gb_core_leave(core);
}

void gb_event_announce(struct gb_core *core, const struct gb_locator *at) {
    struct gb_session *s = gb_session_find(core, &at->session, NULL);
    struct gb_event_mark *mark = NULL;
    struct gb_event_view view;

    if (!s)
        return;
    if (gb_event_mark_get(s, &at->name, &view, &mark, NULL) == 0 && mark && !atomic_exchange(&mark->announced, true)) {
        gb_core_enter(core);
        await_next(mark);
        mark = NULL;
    }
    gb_event_mark_unref(mark);
    gb_session_unref(s);
}

static bool event_after(struct gb_session *s, int64_t id, struct gb_event_view *ret) {
    struct gb_core_event *e;
    struct gb_event_mark *mark;

    pthread_mutex_lock(&s->lock);
    e = gb_idlist_after(&s->events_by_id, id, NULL);
    if (e)
        view_locked(e, ret, &mark);
    pthread_mutex_unlock(&s->lock);
    if (e)
        view_end(ret, mark);
    return e != NULL;
}

int gb_event_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                  int (*visit)(void *, const struct gb_event_view *, struct gb_error *), void *arg,
                  struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, session, err);
    struct gb_event_view view;
    int64_t id = page->after;
    unsigned n;
    int r = 0;

    if (!s)
        return -1;
    for (n = 0; n < page->limit && r == 0 && event_after(s, id, &view); n++) {
        id = view.id;
        r = visit(arg, &view, err);
    }
    if (r == 0)
        page->more = event_after(s, id, &view);
    gb_session_unref(s);
    return r;
}

/* --- events: making and removing ---------------------------------------------------------------------------------- */

static struct gb_core_event *make_event_locked(struct gb_session *s, const struct gb_name *name, struct gb_error *err) {
    uint64_t max = s->core->config.events_max ? s->core->config.events_max : GB_EVENTS_MAX;
    struct gb_core_event *e;

    if (gb_session_changeable_locked(s, err) < 0)
        return NULL;
    if (gb_map_get(&s->events, name->s)) {
        gb_error_set(err, GB_ERR_EVENT_EXISTS, "session \"%s\" has an event named \"%s\"", gb_session_client_name(s)->s,
                     name->s);
        return NULL;
    }
    if (s->events.count >= max) {
        gb_error_set(err, GB_ERR_LIMIT_REACHED, "session \"%s\" has %zu events, the permitted number (--max-events)",
                     gb_session_client_name(s)->s, s->events.count);
        return NULL;
    }
    e = calloc(1, sizeof(*e));
    if (e) {
        atomic_init(&e->refs, 1);
        e->id = s->last_order_id + 1;
        e->name = *name;
        e->created_at_us = gb_wall_us();
        if (gb_idlist_put(&s->events_by_id, e->id, e) == 0) {
            if (gb_map_put(&s->events, e->name.s, e) == 0) {
                s->last_order_id++;
                return e;
            }
            gb_idlist_take(&s->events_by_id, e->id);
        }
    }
    free(e);
    gb_no_memory(err);
    return NULL;
}

void gb_event_make(struct gb_core *core, const struct gb_locator *at, struct gb_event_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = gb_session_use(core, &at->session, &err);
    struct gb_core_event *e = NULL;
    struct gb_event_mark *mark = NULL;

    if (s) {
        pthread_mutex_lock(&s->lock);
        e = make_event_locked(s, &at->name, &err);
        if (e)
            view_locked(e, &call->event, &mark);
        pthread_mutex_unlock(&s->lock);
        call->event.done = e != NULL;
        call->created = e != NULL;
        gb_core_changed(core);
    }
    gb_call_finish(&call->base, e ? NULL : &err);
    gb_session_unref(s);
}

void gb_event_remove(struct gb_core *core, const struct gb_locator *at, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session *s = gb_session_use(core, &at->session, &err);
    struct gb_core_event *e = NULL;

    if (s) {
        pthread_mutex_lock(&s->lock);
        e = find_locked(s, &at->name, &err);
        if (e) {
            gb_map_take(&s->events, e->name.s);
            gb_idlist_take(&s->events_by_id, e->id);
        }
        pthread_mutex_unlock(&s->lock);
        gb_core_event_unref(e);
        gb_core_changed(core);
    }
    gb_call_finish(call, e ? NULL : &err);
    gb_session_unref(s);
}

/* --- recording and waiting ---------------------------------------------------------------------------------------- */

/* Goes from lane to lane. */
struct order_op {
    struct gb_op base; /* first */
    struct gb_task task;
    int (*ask)(struct order_op *op, struct gb_error *err);
    struct gb_event_call *call;
    struct gb_core_event *event;   /* a reference */
    struct gb_core_stream *stream; /* used */
    struct gb_event_mark *mark;    /* record: the event's new mark; wait: the mark that is waited for */
    bool records;
    int device;
};

static int record(struct order_op *op, struct gb_error *err) {
    struct gb_core *core = op->base.session->core;
    struct gb_stream *part = gb_core_stream_part(op->stream, op->device);
    struct gb_ev *ev;

    if (!part)
        return 0;
    ev = gb_event_pool_take(&core->devices[op->device].events, err);
    op->mark->evs[op->device] = ev;
    return ev ? gb_event_record(core->backend, ev->event, part, err) : -1;
}

static int wait(struct order_op *op, struct gb_error *err) {
    struct gb_core *core = op->base.session->core;
    struct gb_stream *part;
    int i;

    if (gb_core_stream_part_make(op->stream, op->device, &part, err) < 0)
        return -1;
    for (i = 0; i < core->device_count; i++) {
        struct gb_ev *ev = op->mark->evs[i];

        if (ev && gb_stream_wait(core->backend, part, ev->event, err) < 0)
            return -1;
    }
    return 0;
}

static void op_end(struct order_op *op, const struct gb_error *error) {
    gb_event_mark_unref(op->mark);
    gb_core_event_unref(op->event);
    gb_core_stream_unuse(op->stream);
    gb_op_end(&op->base, error);
}

/* error NULL: a record's mark becomes the event's. */
static void ordered(struct order_op *op, const struct gb_error *error) {
    struct gb_session *s = op->base.session;
    struct gb_event_mark *mark;

    pthread_mutex_lock(&s->lock);
    if (op->records && !error) {
        mark = op->event->mark;
        op->event->mark = op->mark;
        op->event->stream = op->stream->name;
        op->event->records++;
        op->mark = mark;
    }
    view_locked(op->event, &op->call->event, &mark);
    pthread_mutex_unlock(&s->lock);
    view_end(&op->call->event, mark);
    gb_core_changed(s->core);
    op_end(op, error);
}

static void op_next(struct order_op *op);

static void op_run(struct gb_task *task) {
    struct order_op *op = gb_container_of(task, struct order_op, task);
    struct gb_error err = GB_ERROR_INIT;

    if (op->ask(op, &err) < 0) {
        ordered(op, &err);
        return;
    }
    op->device++;
    op_next(op);
}

static void op_next(struct order_op *op) {
    struct gb_core *core = op->base.session->core;

    /* A stream without a part on the device has nothing to cover. For a wait it gets a part, because work may
     * follow. */
    while (op->records && op->device < core->device_count && !gb_core_stream_part(op->stream, op->device))
        op->device++;
    if (op->device == core->device_count || (!op->records && mark_done(op->mark)))
        ordered(op, NULL);
    else
        gb_lane_post(&core->devices[op->device].lane, &op->task);
}

static int take_locked(struct order_op *op, const struct gb_name *event, const struct gb_name *stream,
                       struct gb_error *err) {
    struct gb_core_event *e = find_locked(op->base.session, event, err);

    if (!e || gb_core_stream_use_locked(op->base.session, stream, &op->stream, err) < 0)
        return -1;
    op->mark = op->records ? mark_new(op->base.session->core) : mark_ref(e->mark);
    if ((op->records && !op->mark) || (op->records ? record_frontier_locked(op->base.session, op->stream, op->mark)
                                                   : wait_frontier_locked(op->base.session, op->stream, op->mark)) < 0)
        return gb_no_memory(err);
    op->event = e;
    atomic_fetch_add(&e->refs, 1);
    return 0;
}

static void order(struct gb_core *core, const struct gb_locator *at, const struct gb_name *stream, bool records,
                  struct gb_event_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct order_op *op =
        gb_op_new(sizeof(*op), gb_op_session(core, &at->session, &err), &call->base, NULL, NULL, &err);
    int r;

    if (!op)
        return;
    op->task.run = op_run;
    op->ask = records ? record : wait;
    op->records = records;
    op->call = call;
    pthread_mutex_lock(&op->base.session->lock);
    r = take_locked(op, &at->name, stream, &err);
    pthread_mutex_unlock(&op->base.session->lock);
    if (r == 0)
        op_next(op);
    else
        op_end(op, &err);
}

void gb_event_record_call(struct gb_core *core, const struct gb_locator *at, const struct gb_name *stream,
                          struct gb_event_call *call) {
    order(core, at, stream, true, call);
}

void gb_event_wait_call(struct gb_core *core, const struct gb_locator *at, const struct gb_name *stream,
                        struct gb_event_call *call) {
    order(core, at, stream, false, call);
}
