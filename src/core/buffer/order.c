/* The order of data on streams: the lines of turns, and the waits for them. Device writes, uploads, downloads and
 * transactions call this. */
#include "core/buffer/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "core/runtime/runtime.h"

/* --- waits -------------------------------------------------------------------------------------------------------- */

static void run_go(struct gb_task *task) {
    struct gb_after *a = gb_container_of(task, struct gb_after, task);

    a->go(a);
}

static void post_go(struct gb_after *a) {
    a->task.run = run_go;
    gb_lane_post(&a->core->devices[0].lane, &a->task);
}

static void reach(struct gb_after *a) {
    if (a->reached_locked)
        a->reached_locked(a);
    a->reached_locked = NULL;
}

static bool reached(const struct gb_after *a) {
    const struct gb_turn *on = a->on;

    if (!on)
        return true;
    if (a->batch && a->batch == on->batch) /* it is committed with the request itself, which looks at it */
        return on->stage >= GB_TURN_QUEUED;
    if (on->stage < a->until)
        return false;
    return !a->sees || on->chains;
}

/* Those that wait for this stage of the turn. */
static void wake_locked(struct gb_turn *t) {
    struct gb_after *a;

    LIST_FOREACH(a, &t->afters, link) {
        if (!a->waits || !reached(a))
            continue;
        a->waits = false;
        reach(a);
        post_go(a);
    }
}

bool gb_after_wait_locked(struct gb_after *a) {
    a->waits = !reached(a);
    if (!a->waits)
        reach(a);
    return a->waits;
}

void gb_after_done(struct gb_after *a) {
    free(a->why);
    a->why = NULL;
}

bool gb_after_leave_locked(struct gb_after *a) {
    bool waited = a->waits;

    if (a->on || waited)
        LIST_REMOVE(a, link);
    a->on = NULL;
    a->waits = false;
    return waited;
}

bool gb_after_stop_locked(struct gb_after *a) {
    bool waited = a->waits;

    if (!a->on)
        return gb_after_leave_locked(a);
    a->waits = false;
    return waited;
}

static void note_oldest_locked(struct gb_session *session) {
    const struct gb_turn *t = TAILQ_FIRST(&session->turns);

    atomic_store(&session->oldest_turn, t ? t->number : UINT64_MAX);
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

struct gb_turn *gb_turn_new(void) {
    return calloc(1, sizeof(struct gb_turn));
}

/* The place of a link's reader, for one of the same batch. A batch commits when all of it is there, in the order of the
 * turns: what waited for the link would wait for itself. */
static bool is_own_link(const struct gb_turn *t, const struct gb_after *a) {
    return t->reads && t->links && a->batch_number > 0 && t->batch_number == a->batch_number;
}

/* The latest turn of the line before a request that comes now. reads: that is no reader's place. */
static struct gb_turn *latest(const struct gb_buffer *b, const struct gb_core_stream *stream, const struct gb_after *a,
                              bool reads) {
    struct gb_turn *t;

    TAILQ_FOREACH_REVERSE(t, &b->turns, gb_turn_line, at_buffer) {
        if ((t->stream == stream->id || gb_stream_follows(stream, t->stream, t->number)) && !(reads && t->reads) &&
            !is_own_link(t, a))
            return t;
    }
    return NULL;
}

static void relate(struct gb_session *session, struct gb_after *a, struct gb_turn *on) {
    a->core = session->core;
    a->on = on;
    if (on)
        LIST_INSERT_HEAD(&on->afters, a, link);
}

static void find_locked(struct gb_session *session, const struct gb_name *buffer, const struct gb_core_stream *stream,
                        bool reads, struct gb_after *a) {
    const struct gb_buffer *b = TAILQ_EMPTY(&session->turns) ? NULL : gb_map_get(&session->buffers, buffer->s);

    relate(session, a, b ? latest(b, stream, a, reads) : NULL);
}

void gb_after_find_locked(struct gb_session *session, const struct gb_name *buffer, const struct gb_core_stream *stream,
                          struct gb_after *a) {
    find_locked(session, buffer, stream, false, a);
}

void gb_after_find_write_locked(struct gb_session *session, const struct gb_name *buffer,
                                const struct gb_core_stream *stream, struct gb_after *a) {
    find_locked(session, buffer, stream, true, a);
}

/* A reader that must wait for a load cannot hold the bytes at once. */
static bool must_load(const struct gb_session *session, const struct gb_name *source, const struct gb_buffer *dest) {
    const struct gb_buffer *b = source ? gb_map_get(&session->buffers, source->s) : NULL;

    return b && b != dest && b->live && b->rec.state == GB_BUFFER_STORED;
}

static void stand_locked(struct gb_session *session, struct gb_turn *t, struct gb_buffer *b,
                         const struct gb_core_stream *stream) {
    t->session = gb_session_ref(session);
    t->buffer = b;
    t->stream = stream->id;
    t->number = ++session->last_turn;
    t->stage = GB_TURN_ACCEPTED;
    relate(session, &t->after, latest(b, stream, &t->after, false));
    t->related = t->after.on || t->source.on;
    TAILQ_INSERT_TAIL(&b->turns, t, at_buffer);
    TAILQ_INSERT_TAIL(&session->turns, t, in_session);
    note_oldest_locked(session);
}

int gb_turn_take_locked(struct gb_session *session, struct gb_turn *t, const struct gb_name *buffer,
                        const struct gb_name *source, const struct gb_core_stream *stream, struct gb_error *err) {
    struct gb_buffer *b = gb_buffer_place_locked(session, buffer);

    if (!b)
        return gb_no_memory(err);
    if (must_load(session, source, b)) {
        t->reader = gb_turn_new();
        if (!t->reader)
            return gb_no_memory(err);
        t->reader->reads = true;
        t->reader->links = t->links;
        t->reader->batch_number = t->batch_number;
    }
    if (source) /* before the turn stands in line: it may be the same buffer */
        gb_after_find_write_locked(session, source, stream, &t->source);
    if (t->reader)
        stand_locked(session, t->reader, gb_map_get(&session->buffers, source->s), stream);
    stand_locked(session, t, b, stream);
    return 0;
}

void gb_turn_read_locked(struct gb_turn *t) {
    struct gb_buffer *b = t->reader ? t->reader->buffer : NULL;

    if (!b)
        return;
    gb_turn_end_locked(t->reader, NULL);
    gb_buffer_reap_locked(t->session, b);
}

void gb_turn_stage_locked(struct gb_turn *t, enum gb_turn_stage stage) {
    if (!t->buffer || stage <= t->stage)
        return;
    t->stage = stage;
    wake_locked(t);
}

void gb_turn_chain_locked(struct gb_turn *t, struct gb_content *content, struct gb_core_stream *stream,
                          void (*tell_locked)(struct gb_turn *turn, struct gb_buffer_rec *ret), void *teller) {
    if (gb_after_chained(&t->after)) /* so that a long chain is never asked at once */
        (void)gb_turn_rec_locked(t->after.on);
    t->content = content;
    t->stream_name = stream->name_text;
    t->tell_locked = tell_locked;
    t->teller = teller;
    t->chains = true;
}

const struct gb_buffer_rec *gb_turn_rec_locked(struct gb_turn *t) {
    if (t->rec)
        return t->rec;
    t->rec = calloc(1, sizeof(*t->rec));
    if (t->rec)
        t->tell_locked(t, t->rec);
    return t->rec;
}

/* --- the end of a turn -------------------------------------------------------------------------------------------- */

static bool is_skipped(const struct gb_turn *t, const struct gb_after *a) {
    return t->skipped && a->batch_number && a->batch_number == t->batch_number;
}

/* What follows a turn that has failed, or one that only reads, follows the one before it. */
static bool pass_on(struct gb_turn *t, struct gb_after *a, const struct gb_error *error) {
    struct gb_turn *before = error || t->reads ? t->after.on : NULL;

    while (before && is_own_link(before, a))
        before = before->after.on;
    if (error && t->writes && !is_skipped(t, a)) {
        a->failed = true;
        if (!a->why && (a->why = malloc(sizeof(*a->why))))
            *a->why = *error;
    }
    if (!before)
        return false;
    a->on = before;
    LIST_INSERT_HEAD(&before->afters, a, link);
    if (a->waits && reached(a)) {
        a->waits = false;
        reach(a);
        post_go(a);
    }
    return true;
}

static void end_one(struct gb_turn *t, struct gb_after *a, const struct gb_error *error) {
    struct gb_name name;

    LIST_REMOVE(a, link);
    if (pass_on(t, a, error))
        return;
    a->on = NULL;
    a->id = t->buffer->id;
    a->generation = t->buffer->rec.generation;
    if (a->ended_locked) {
        snprintf(name.s, sizeof(name.s), "%s", t->buffer->name);
        a->ended_locked(a, t->session, &name);
    }
    if (!a->waits)
        return;
    reach(a);
    if (a->late && !t->reads) {
        LIST_INSERT_HEAD(&t->late, a, link);
        return;
    }
    a->waits = false;
    post_go(a);
}

void gb_turn_end_locked(struct gb_turn *t, const struct gb_error *error) {
    struct gb_after *a;

    if (!t->buffer)
        return;
    gb_turn_read_locked(t);
    while ((a = LIST_FIRST(&t->afters)))
        end_one(t, a, error);
    TAILQ_REMOVE(&t->buffer->turns, t, at_buffer);
    TAILQ_REMOVE(&t->session->turns, t, in_session);
    note_oldest_locked(t->session);
    t->stage = GB_TURN_ENDED;
    t->chains = false;
    t->buffer = NULL;
    atomic_store(&t->ended, true);
}

void gb_turn_end(struct gb_turn *t, const struct gb_error *error) {
    struct gb_buffer *b;

    if (!t || !t->session || atomic_load(&t->ended))
        return;
    pthread_mutex_lock(&t->session->lock);
    b = t->buffer;
    gb_turn_end_locked(t, error);
    if (b)
        gb_buffer_reap_locked(t->session, b);
    pthread_mutex_unlock(&t->session->lock);
}

/* What waits for the last use of the memory, which was now. late changes no more once the turn has ended. */
static void leave_all(struct gb_turn *t) {
    struct gb_after *a;

    if (!t->related && LIST_EMPTY(&t->late))
        return;
    pthread_mutex_lock(&t->session->lock);
    gb_after_leave_locked(&t->after);
    gb_after_leave_locked(&t->source);
    while ((a = LIST_FIRST(&t->late))) {
        LIST_REMOVE(a, link);
        a->waits = false;
        post_go(a);
    }
    pthread_mutex_unlock(&t->session->lock);
}

static void give_up(struct gb_turn *t) {
    struct gb_error why = GB_ERROR_INIT;

    gb_cancelled(&why);
    gb_turn_end(t, &why);
}

void gb_turn_free(struct gb_turn *t) {
    if (!t)
        return;
    if (t->session) {
        if (!atomic_load(&t->ended))
            give_up(t);
        gb_turn_free(t->reader);
        leave_all(t);
        gb_session_unref(t->session);
    }
    gb_after_done(&t->after);
    gb_after_done(&t->source);
    if (t->rec)
        gb_buffer_rec_done(t->rec);
    free(t->rec);
    free(t);
}

/* --- turns of calls ----------------------------------------------------------------------------------------------- */

struct gb_turn *gb_call_take_turn(struct gb_call *call) {
    struct gb_turn *turn = call->turn;

    call->turn = NULL;
    return turn;
}

struct gb_turn *gb_turn_of_call(struct gb_session *session, struct gb_turn *turn, const struct gb_name *buffer,
                                const struct gb_name *source, const struct gb_name *stream, struct gb_error *err) {
    struct gb_core_stream *st = NULL;
    int r;

    if (turn)
        return turn;
    turn = gb_turn_new();
    if (!turn) {
        gb_no_memory(err);
        return NULL;
    }
    pthread_mutex_lock(&session->lock);
    r = gb_core_stream_use_locked(session, stream, &st, err);
    if (r == 0)
        r = gb_turn_take_locked(session, turn, buffer, source, st, err);
    pthread_mutex_unlock(&session->lock);
    gb_core_stream_unuse(st);
    if (r == 0)
        return turn;
    gb_turn_free(turn);
    return NULL;
}

/* --- what a request sees ------------------------------------------------------------------------------------------ */

bool gb_after_chained(const struct gb_after *a) {
    return a->on && a->on->stage >= GB_TURN_QUEUED && a->on->chains;
}

struct gb_buffer *gb_after_see_locked(struct gb_session *session, const struct gb_name *name, const struct gb_after *a,
                                      struct gb_buffer *seen, struct gb_error *err) {
    const struct gb_buffer_rec *rec;
    struct gb_content *c;

    if (!a || !gb_after_chained(a))
        return gb_buffer_find_locked(session, name, err);
    rec = gb_turn_rec_locked(a->on);
    if (!rec) {
        gb_no_memory(err);
        return NULL;
    }
    c = a->on->content;
    *seen = *a->on->buffer;
    gb_buffer_as(seen, rec, c->kind == GB_KIND_DEVICE ? c->pool->name : NULL, a->on->stream_name, c);
    return seen;
}

int gb_after_check_locked(const struct gb_after *a, struct gb_error *err) {
    bool refused = a->on && a->on->writes && a->on->refused;
    const struct gb_error *why = a->failed ? a->why : refused ? a->on->error : NULL;

    if (!a->failed && !refused)
        return 0;
    if (why && why->code == GB_ERR_DEPENDENCY_FAILED) /* the first cause is the one that helps */
        return gb_error_move(err, why);
    return gb_error_set(err, GB_ERR_DEPENDENCY_FAILED,
                        "an earlier request on the stream was to write these bytes and failed: %.200s",
                        why ? why->detail : "the daemon has no memory left");
}

bool gb_after_left_locked(const struct gb_after *a, const struct gb_buffer *b) {
    if (a->on)
        return b->id == a->on->id && b->rec.generation == a->on->generation;
    return b->id == a->id && b->rec.generation == a->generation;
}
