/* The turn of an upload, which it takes with its last byte, and the bytes outside the payload of a part: copied from
 * what the upload sees then. begin.c prepares an upload, and commit.c ends it. */
#include "base/container.h"
#include "core/buffer/buffer.h"
#include "core/buffer/order.h"
#include "core/transfer/upload.h"

/* --- after a failure ---------------------------------------------------------------------------------------------- */

static void error_finished(void *arg, const struct gb_error *error) {
    struct gb_upload *u = arg;

    gb_core_report_error(u->t.core, error);
    gb_core_transfer_unref(&u->t);
}

static void finish_after_error_slowly(struct gb_task *task) {
    struct gb_upload *u = gb_container_of(task, struct gb_upload, task);

    gb_stream_sync(u->t.core->backend, gb_core_transfer_part(&u->t), NULL);
    gb_core_transfer_unref(&u->t);
}

/* Queued work may still run. Keeps the lane's reference until the stream has finished that work. */
void gb_upload_finish_after_error(struct gb_upload *u, struct gb_stream *stream) {
    struct gb_backend *be = u->t.core->backend;

    if (!u->usable)
        u->usable = gb_event_pool_take(&u->t.device->events, NULL);
    if (u->usable && gb_event_record(be, u->usable->event, stream, NULL) == 0 &&
        gb_watch(be, u->usable->event, error_finished, u, NULL) == 0)
        return;
    u->task.run = finish_after_error_slowly;
    gb_lane_post(&u->t.device->slow, &u->task);
}

/* --- the other bytes ---------------------------------------------------------------------------------------------- */

/* The bytes before and after the payload: from the old memory, from the other side, or zeros. */
int gb_upload_queue_rest(struct gb_upload *u, struct gb_stream *stream, struct gb_error *err) {
    struct gb_backend *be = u->t.core->backend;
    struct gb_content *c = u->content;
    uint64_t at = u->plan.at;
    uint64_t end;
    enum gb_copy_way way;

    if (!u->base && !u->plan.zero) /* the caller may be setting the size of a growing upload */
        return 0;
    /* A scattered payload may go anywhere, and an open-ended one may end anywhere. Both overwrite the copied bytes. */
    if (u->plan.scattered || (u->plan.open_ended && !u->plan.late))
        at = end = u->plan.bytes;
    else
        end = at + u->plan.payload;
    u->touched = u->touched || u->plan.placed;
    if (u->plan.zero) {
        if (gb_content_zero(c, 0, at, stream, err) < 0)
            return -1;
        return gb_content_zero(c, end, u->plan.bytes - end, stream, err);
    }
    u->mirror_copied = u->plan.mirrored;
    if (u->base->ready && gb_stream_wait(be, stream, u->base->ready->event, err) < 0)
        return -1;
    if (gb_content_move(c, 0, u->base, 0, at, stream, &way, err) < 0)
        return -1;
    return gb_content_move(c, end, u->base, end, u->plan.bytes - end, stream, &way, err);
}

/* Later writes of the stream may build on the bytes. */
void gb_upload_queued(struct gb_upload *u) {
    struct gb_session *s = u->t.session;

    pthread_mutex_lock(&s->lock);
    gb_turn_stage_locked(u->turn, GB_TURN_QUEUED);
    pthread_mutex_unlock(&s->lock);
}

/* --- the other bytes, at the end ---------------------------------------------------------------------------------- */

/* The bytes outside the payload are copied when the upload has its memory and its turn: they are those that it sees
 * then. */
static void rest_done(void *arg, const struct gb_error *error) {
    struct gb_upload *u = arg;

    gb_core_report_error(u->t.core, error);
    gb_content_drop_later(u->base);
    u->base = NULL;
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pended_locked(u, error);
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

static int hold_base(struct gb_upload *u, struct gb_error *err) {
    struct gb_upload_plan *plan = gb_upload_plan_of(u);
    const struct gb_after *after = &u->turn->after;
    struct gb_session *s = u->t.session;
    struct gb_buffer seen;
    struct gb_buffer *b;

    if (gb_after_check_locked(after, err) < 0)
        return -1;
    b = gb_after_see_locked(s, &plan->buffer.name, after, &seen, NULL);
    if (!b)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was deleted meanwhile");
    if (b->in_place || b->rec.mirrored || b->rec.bytes != plan->bytes)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    if (gb_guard_check_unsealed_locked(b, err) < 0 || gb_buffer_want_locked(s, b, err) < 0)
        return -1;
    if (b->rec.state != GB_BUFFER_READY || !b->content)
        return b->rec.state == GB_BUFFER_LOST ? gb_lost(b, err)
                                              : gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                                                             "a write in place broke off here; upload the whole buffer "
                                                             "again");
    u->base = gb_content_ref(b->content);
    u->chained = gb_after_chained(after);
    plan->base_id = b->id;
    plan->base_generation = b->rec.generation;
    gb_upload_promise_locked(u, b);
    return 0;
}

static int queue_rest_late(struct gb_upload *u, struct gb_stream *stream, struct gb_error *err) {
    if (u->attached && gb_upload_detach(u, err) < 0)
        return -1;
    if (gb_content_materialize(u->base, err) < 0 || gb_upload_queue_rest(u, stream, err) < 0)
        return -1;
    if (!u->usable)
        u->usable = gb_event_pool_take(&u->t.device->events, err);
    if (!u->usable || gb_event_record(u->t.core->backend, u->usable->event, stream, err) < 0)
        return -1;
    return gb_upload_watch(u, u->usable, rest_done, u, err);
}

/* On the device's lane. Ends what gb_upload_take_turn began. */
static void rest(struct gb_task *task) {
    struct gb_upload *u = gb_container_of(task, struct gb_upload, task);
    struct gb_stream *stream = gb_core_transfer_part(&u->t);
    struct gb_error err = GB_ERROR_INIT;
    int r;

    pthread_mutex_lock(&u->t.session->lock);
    r = hold_base(u, &err);
    pthread_mutex_unlock(&u->t.session->lock);
    if (r < 0)
        gb_upload_fail(u, &err);
    else if (queue_rest_late(u, stream, &err) < 0) {
        gb_upload_fail(u, &err);
        gb_core_transfer_ref(&u->t);
        gb_upload_finish_after_error(u, stream);
    } else {
        gb_upload_queued(u);
    }
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pended_locked(u, NULL);
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

void gb_upload_rest_part(struct gb_upload *u, unsigned part) {
    bool all;

    pthread_mutex_lock(&u->t.lock);
    u->rest |= part;
    all = u->rest == (GB_REST_MEMORY | GB_REST_TURN);
    pthread_mutex_unlock(&u->t.lock);
    if (!all)
        return;
    u->task.run = rest;
    gb_lane_post(&u->t.device->lane, &u->task);
}

static void rest_turned(struct gb_after *after) {
    gb_upload_rest_part(after->owner, GB_REST_TURN);
}

/* --- the turn ----------------------------------------------------------------------------------------------------- */

/* The bytes of a payload that has its memory are on the way to it, in the order of the stream. */
static bool is_queued(struct gb_upload *u) {
    bool r;

    pthread_mutex_lock(&u->t.lock);
    r = u->state == GB_UPLOAD_OPEN;
    pthread_mutex_unlock(&u->t.lock);
    return r && !u->role->grow;
}

static bool waits_for_rest_locked(struct gb_upload *u) {
    struct gb_after *after = &u->turn->after;

    after->sees = true;
    after->until = after->on && after->on->stream == u->turn->stream ? GB_TURN_QUEUED : GB_TURN_READY;
    after->go = rest_turned;
    after->owner = u;
    return gb_after_wait_locked(after);
}

void gb_upload_drop_turn(struct gb_upload *u, const struct gb_error *error) {
    if (!u->own_turn)
        return;
    gb_turn_end(u->turn, error);
    gb_turn_free(u->turn);
    u->own_turn = false;
    u->turn = NULL;
}

int gb_upload_take_turn(struct gb_upload *u, struct gb_error *err) {
    struct gb_session *s = u->t.session;
    struct gb_turn *turn = gb_turn_new();
    bool waits = false;
    struct gb_buffer seen;
    int r;

    if (!turn)
        return gb_no_memory(err);
    turn->writes = true;
    u->turn = turn;
    u->own_turn = true;
    if (u->plan.late) {
        gb_core_transfer_ref(&u->t); /* until rest() has run */
        pthread_mutex_lock(&u->t.lock);
        gb_upload_pend_locked(u);
        pthread_mutex_unlock(&u->t.lock);
    }
    pthread_mutex_lock(&s->lock);
    r = gb_turn_take_locked(s, turn, &u->plan.buffer.name, NULL, u->t.stream, err);
    if (r == 0 && u->plan.late)
        waits = waits_for_rest_locked(u);
    else if (r == 0 && is_queued(u) && (!turn->after.on || gb_after_chained(&turn->after))) {
        gb_upload_promise_locked(u, gb_after_see_locked(s, &u->plan.buffer.name, &turn->after, &seen, NULL));
        gb_turn_stage_locked(turn, GB_TURN_QUEUED);
    }
    pthread_mutex_unlock(&s->lock);
    if (u->plan.late && !waits)
        gb_upload_rest_part(u, GB_REST_TURN);
    return r;
}

void gb_upload_stay(struct gb_upload *u) {
    bool waited;

    pthread_mutex_lock(&u->t.session->lock);
    waited = gb_after_leave_locked(&u->begins);
    pthread_mutex_unlock(&u->t.session->lock);
    if (waited)
        gb_core_transfer_unref(&u->t); /* never the last: the caller has one */
}
