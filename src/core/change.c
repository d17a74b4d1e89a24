#include "core/change.h"

#include <stdlib.h>

static int no_session(struct gb_change *c) {
    c->error = GB_ERROR_INIT;
    return gb_session_alive(c->session, &c->error);
}

/* A new record needs an id, and its place in the list, before it goes to the database. */
static int number_locked(struct gb_change *c) {
    struct gb_session *session = c->session;
    int64_t id;

    if (c->removes)
        c->rec.id = c->buffer->id;
    c->rec.session_id = session->id;
    c->rec.run = session->core->run;
    if (c->rec.id != 0)
        return 0;
    id = atomic_fetch_add(&session->core->last_buffer_id, 1) + 1;
    if (gb_idlist_put(&session->buffers_by_id, id, c->buffer) < 0)
        return gb_no_memory(&c->error);
    c->buffer->id = id;
    c->rec.id = id;
    return 0;
}

static int decide_locked(struct gb_change *c) {
    struct gb_buffer *b = c->buffer;

    if (c->error.code != GB_OK || no_session(c) < 0 || gb_core_alive(c->session->core, &c->error) < 0)
        return -1;
    if (c->decide_locked(c, b->live ? b : NULL, &c->error) < 0 || number_locked(c) < 0)
        return -1;
    if (c->removes)
        b->deleting = true;
    return 0;
}

/* Passes the turn on. Returns who has it now. */
static struct gb_change *leave_locked(struct gb_session *session, struct gb_buffer *b) {
    struct gb_change *next = (struct gb_change *)gb_turns_leave(&b->turns);

    if (next)
        next->buffer = b;
    else
        gb_buffer_reap_locked(session, b);
    return next;
}

static void run(struct gb_change *c);

static void revert_locked(struct gb_change *c) {
    struct gb_buffer *b = c->buffer;

    b->deleting = false;
    if (!b->live && b->id != 0) {
        gb_idlist_take(&c->session->buffers_by_id, b->id);
        b->id = 0;
    }
    if (c->revert_locked)
        c->revert_locked(c, b);
}

/* The pool was deleted while the database had the record. Not written again: the next start calls it lost anyway. */
static struct gb_content *lose_homeless_locked(struct gb_session *session, struct gb_buffer *b) {
    const struct gb_content *c = b->rec.mirrored ? b->sides[GB_SIDE_DEVICE] : b->content;

    if (!b->live || !c || atomic_load(&c->pool->state) != GB_POOL_DEAD)
        return NULL;
    return gb_buffer_lose_locked(session, b);
}

static void committed(void *arg, const struct gb_error *error) {
    struct gb_change *c = arg;
    struct gb_session *session = c->session;
    struct gb_content *lost = NULL;
    struct gb_change *next;

    pthread_mutex_lock(&session->lock);
    if (error)
        c->error = *error;
    /* A session that was deleted meanwhile took the record with it, or let it not in. */
    if (atomic_load(&session->state) == GB_SESSION_DEAD || (error && atomic_load(&session->state) != GB_SESSION_LIVE))
        no_session(c);
    if (c->error.code == GB_OK) {
        c->apply_locked(c, c->buffer);
        lost = lose_homeless_locked(session, c->buffer);
    } else {
        revert_locked(c);
    }
    next = leave_locked(session, c->buffer);
    pthread_mutex_unlock(&session->lock);
    gb_content_drop_all(lost);
    c->end(c);
    run(next);
}

/* c has the turn, and the lock is not held. */
static void run(struct gb_change *c) {
    struct gb_session *session;
    struct gb_change *next;
    int r;

    for (; c; c = next) {
        session = c->session;
        pthread_mutex_lock(&session->lock);
        r = decide_locked(c);
        next = r < 0 ? leave_locked(session, c->buffer) : NULL;
        pthread_mutex_unlock(&session->lock);
        if (r < 0)
            c->end(c);
        else if (c->removes)
            gb_store_del_buffer(session->core->store, c->rec.id, committed, c);
        else
            gb_store_put_buffer(session->core->store, &c->rec, committed, c);
    }
}

/* The place of that name, made when there is none. NULL when memory is exhausted. */
static struct gb_buffer *place_locked(struct gb_session *session, const struct gb_name *name) {
    struct gb_buffer *b = gb_map_get(&session->buffers, name->s);

    if (b)
        return b;
    b = calloc(1, sizeof(*b));
    if (!b)
        return NULL;
    b->name = *name;
    if (gb_map_put(&session->buffers, b->name.s, b) < 0) {
        free(b);
        return NULL;
    }
    return b;
}

void gb_change_start(struct gb_change *change) {
    struct gb_session *session = change->session;
    struct gb_buffer *b;
    bool mine = false;

    pthread_mutex_lock(&session->lock);
    b = place_locked(session, &change->name);
    change->buffer = b;
    if (b)
        mine = gb_turns_enter(&b->turns, &change->turn);
    else
        gb_no_memory(&change->error);
    pthread_mutex_unlock(&session->lock);
    /* One that waits in line may have had its turn, and its end, by now. */
    if (mine)
        run(change);
    else if (!b)
        change->end(change);
}

int gb_change_reserve_locked(struct gb_change *change, struct gb_error *err) {
    struct gb_session *session = change->session;
    struct gb_buffer *b = place_locked(session, &change->name);

    if (!b)
        return gb_no_memory(err);
    if (b->live && !b->deleting)
        return gb_error_set(err, GB_ERR_BUFFER_EXISTS, "session \"%s\" has a buffer named \"%s\"", session->name.s,
                            change->name.s);
    if (b->turns.taken)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the name \"%s\" is just being made or deleted; try again",
                            change->name.s);
    change->buffer = b;
    gb_turns_enter(&b->turns, &change->turn);
    return 0;
}

void gb_change_proceed(struct gb_change *change) {
    run(change);
}

void gb_change_abandon(struct gb_change *change, const struct gb_error *error) {
    change->error = *error;
    run(change);
}
