/* The turn of an upload, which it takes with its last byte, and the bytes outside the payload of a part: copied from
 * what the upload sees then. begin.c prepares an upload, and commit.c ends it. */
#include <stdlib.h>

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

/* Later writes of the stream may build on the bytes. The last byte may be taking the turn on another thread. */
void gb_upload_queued(struct gb_upload *u) {
    struct gb_session *s = u->t.session;

    pthread_mutex_lock(&s->lock);
    if (u->turn)
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

static int check_seen_locked(struct gb_upload *u, struct gb_buffer *b, struct gb_error *err) {
    if (!b)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was deleted meanwhile");
    if (b->in_place || b->rec.mirrored || b->rec.bytes != u->plan.bytes)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    if (gb_guard_check_unsealed_locked(b, err) < 0 || gb_buffer_want_locked(u->t.session, b, err) < 0)
        return -1;
    if (b->rec.state == GB_BUFFER_READY && b->content)
        return 0;
    return b->rec.state == GB_BUFFER_LOST
               ? gb_lost(b, err)
               : gb_error_set(err, GB_ERR_BUFFER_PARTIAL,
                              "a write in place broke off here; upload the whole buffer again");
}

/* A scattered payload lies among the other bytes, which were copied at the beginning. If others have taken their place,
 * the payload is brought into fresh memory among those, through a slot. */
struct gb_overtaken {
    struct gb_upload *upload;
    struct gb_content *base;    /* the other bytes */
    struct gb_content *payload; /* the memory that has the payload */
    void *slot;                 /* NULL: the CPU reaches the memory */
    size_t slot_bytes;
    struct gb_slot_waiter waiter;
    struct gb_ev *end;
};

static int overtake_locked(struct gb_upload *u, struct gb_buffer *b, struct gb_error *err) {
    struct gb_content *old = u->content;
    struct gb_overtaken *o = calloc(1, sizeof(*o));

    if (!o)
        return gb_no_memory(err);
    if (gb_content_new_locked(u->t.session, old->pool, old->kind, u->t.stream, &u->plan.buffer.name, u->plan.bytes,
                              &u->content, err) < 0) {
        u->content = old;
        free(o);
        return -1;
    }
    o->upload = u;
    o->payload = old;
    o->base = gb_content_ref(b->content);
    u->overtaken = o;
    return 0;
}

/* Holds the other bytes as the upload sees them now. */
static int hold_base_locked(struct gb_upload *u, struct gb_error *err) {
    struct gb_upload_plan *plan = gb_upload_plan_of(u);
    const struct gb_after *after = &u->turn->after;
    struct gb_buffer seen;
    struct gb_buffer *b = gb_after_see_locked(u->t.session, &plan->buffer.name, after, &seen, NULL);
    bool same;

    if (gb_after_check_locked(after, err) < 0 || check_seen_locked(u, b, err) < 0)
        return -1;
    u->chained = gb_after_chained(after);
    same = !u->chained && plan->base_id == b->id && plan->base_generation == b->rec.generation;
    if (plan->scattered && !same && overtake_locked(u, b, err) < 0)
        return -1;
    if (!plan->scattered)
        u->base = gb_content_ref(b->content);
    plan->base_id = b->id;
    plan->base_generation = b->rec.generation;
    gb_upload_chain_locked(u);
    return 0;
}

static int queue_late(struct gb_upload *u, struct gb_stream *stream, struct gb_error *err) {
    if (u->plan.scattered) /* they are there */
        return 0;
    if (gb_content_materialize(u->base, err) < 0 || gb_upload_queue_rest(u, stream, err) < 0)
        return -1;
    if (!u->usable)
        u->usable = gb_event_pool_take(&u->t.device->events, err);
    if (!u->usable || gb_event_record(u->t.core->backend, u->usable->event, stream, err) < 0)
        return -1;
    return gb_upload_watch(u, u->usable, rest_done, u, err);
}

void gb_upload_rest_hold(struct gb_upload *u) {
    gb_core_transfer_ref(&u->t);
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pend_locked(u);
    u->rest |= GB_REST_HELD;
    pthread_mutex_unlock(&u->t.lock);
}

void gb_upload_rest_unhold(struct gb_upload *u, const struct gb_error *error) {
    pthread_mutex_lock(&u->t.lock);
    u->rest &= ~GB_REST_HELD;
    gb_upload_pended_locked(u, error);
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

/* Ends what gb_upload_rest_hold began. queued: work of the device may still run. */
static void rest_end(struct gb_upload *u, bool queued, const struct gb_error *error) {
    if (error->code == GB_OK) {
        gb_upload_queued(u);
    } else {
        gb_upload_fail(u, error);
        if (queued) {
            gb_core_transfer_ref(&u->t);
            gb_upload_finish_after_error(u, gb_core_transfer_part(&u->t));
        }
    }
    gb_upload_rest_unhold(u, NULL);
}

/* --- a payload that was overtaken --------------------------------------------------------------------------------- */

#define OVERTAKEN_BOXES 64 /* looked at in one go */
#define OVERTAKEN_BYTES (1u << 20)

/* Memory that the CPU reaches takes no boxes: row by row. */
static int move_rows(struct gb_overtaken *o, const struct gb_box *box, uint64_t offset, struct gb_stream *stream,
                     struct gb_error *err) {
    enum gb_copy_way way;
    uint64_t i;
    uint64_t j;

    for (i = 0; i < box->planes; i++) {
        for (j = 0; j < box->rows; j++) {
            uint64_t at = offset + i * box->plane + j * box->pitch;

            if (gb_content_move(o->upload->content, at, o->payload, at, box->width, stream, &way, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* Queues one box from the old memory to the new. */
static int move_box(struct gb_overtaken *o, const struct gb_box *box, uint64_t offset, struct gb_stream *stream,
                    struct gb_error *err) {
    struct gb_backend *be = o->upload->t.core->backend;
    struct gb_location from = gb_content_location(o->payload, offset);
    struct gb_location to = gb_content_location(o->upload->content, offset);

    if (gb_mem_box(be, &from, o->slot, box, GB_COPY_FROM_DEVICE, stream, err) < 0)
        return -1;
    return gb_mem_box(be, &to, o->slot, box, GB_COPY_TO_DEVICE, stream, err);
}

/* The bytes of a view, in the order of the memory. */
static int move_upwards(struct gb_overtaken *o, const struct gb_view *memory, struct gb_stream *stream,
                        struct gb_error *err) {
    struct gb_cut cut;
    uint64_t done;
    uint64_t offset;
    uint64_t packed;
    uint64_t i;

    for (done = 0; done < memory->bytes; done += cut.bytes) {
        gb_view_cut(memory, done, memory->bytes - done, OVERTAKEN_BOXES, &cut);
        for (i = 0; i < cut.boxes; i++) {
            gb_cut_box(&cut, i, &offset, &packed);
            if ((o->slot ? move_box : move_rows)(o, &cut.box, offset, stream, err) < 0)
                return -1;
        }
    }
    return 0;
}

static int move_payload(struct gb_overtaken *o, struct gb_stream *stream, struct gb_error *err) {
    const struct gb_upload *u = o->upload;
    struct gb_view memory;
    struct gb_view packed;
    struct gb_cut cut;
    uint64_t done;

    for (done = 0; done < u->plan.payload; done += cut.bytes) {
        uint64_t left = u->plan.payload - done;

        gb_view_cut(&u->plan.view, u->plan.at + done, left < o->slot_bytes ? left : o->slot_bytes, UINT64_MAX, &cut);
        gb_cut_upwards(&cut, &memory, &packed);
        if (move_upwards(o, &memory, stream, err) < 0)
            return -1;
    }
    return 0;
}

static void drop_slot(struct gb_overtaken *o) {
    if (o->slot)
        gb_slots_give(&o->upload->t.core->slots, o->slot);
    o->slot = NULL;
}

static void moved(void *arg, const struct gb_error *error) {
    struct gb_overtaken *o = arg;
    struct gb_upload *u = o->upload;

    gb_core_report_error(u->t.core, error);
    drop_slot(o);
    gb_content_drop_later(o->payload);
    gb_content_drop_later(o->base);
    o->payload = o->base = NULL;
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pended_locked(u, error);
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

static int queue_moves(struct gb_overtaken *o, struct gb_error *err) {
    struct gb_upload *u = o->upload;
    struct gb_backend *be = u->t.core->backend;
    struct gb_stream *stream = gb_core_transfer_part(&u->t);
    enum gb_copy_way way;

    if (gb_content_materialize(o->base, err) < 0 ||
        (o->base->ready && gb_stream_wait(be, stream, o->base->ready->event, err) < 0) ||
        gb_content_move(u->content, 0, o->base, 0, u->plan.bytes, stream, &way, err) < 0 ||
        move_payload(o, stream, err) < 0)
        return -1;
    o->end = gb_event_pool_take(&u->t.device->events, err);
    if (!o->end || gb_event_record(be, o->end->event, stream, err) < 0)
        return -1;
    return gb_upload_watch(u, o->end, moved, o, err);
}

static void move_task(struct gb_task *task);

static void slot_granted(struct gb_slot_waiter *waiter) {
    struct gb_upload *u = gb_container_of(waiter, struct gb_overtaken, waiter)->upload;

    u->task.run = move_task;
    gb_lane_post(&u->t.device->lane, &u->task);
}

/* On the lane, with memory. Runs again when a slot was granted. */
static void move(struct gb_overtaken *o) {
    struct gb_upload *u = o->upload;
    struct gb_slots *slots = &u->t.core->slots;
    struct gb_error err = GB_ERROR_INIT;

    o->slot_bytes = OVERTAKEN_BYTES;
    o->waiter.granted = slot_granted;
    if (!u->plan.direct) {
        o->slot_bytes = slots->slot_bytes;
        o->slot = gb_slots_take(slots, &o->waiter);
        if (!o->slot)
            return;
    }
    (void)queue_moves(o, &err);
    rest_end(u, true, &err);
}

static void move_task(struct gb_task *task) {
    move(gb_container_of(task, struct gb_upload, task)->overtaken);
}

static void fresh_allocated(struct gb_alloc *alloc, const struct gb_error *error) {
    struct gb_upload *u = gb_container_of(alloc, struct gb_upload, alloc);

    if (error)
        rest_end(u, false, error);
    else
        move(u->overtaken);
}

void gb_upload_rest_done(struct gb_upload *u) {
    struct gb_overtaken *o = u->overtaken;

    if (!o)
        return;
    drop_slot(o);
    gb_content_drop_later(o->payload);
    gb_content_drop_later(o->base);
    gb_event_pool_give(&u->t.device->events, o->end);
    free(o);
    u->overtaken = NULL;
}

/* --- on the lane -------------------------------------------------------------------------------------------------- */

static void rest(struct gb_task *task) {
    struct gb_upload *u = gb_container_of(task, struct gb_upload, task);
    struct gb_error err = GB_ERROR_INIT;
    int r = u->attached ? gb_upload_detach(u, &err) : 0;

    pthread_mutex_lock(&u->t.session->lock);
    if (r == 0)
        r = hold_base_locked(u, &err);
    pthread_mutex_unlock(&u->t.session->lock);
    if (r == 0 && u->overtaken) {
        u->alloc.content = u->content;
        u->alloc.done = fresh_allocated;
        u->alloc.anywhere = false;
        gb_alloc_start(&u->alloc, u->plan.wait_ms);
        return;
    }
    if (r == 0)
        (void)queue_late(u, gb_core_transfer_part(&u->t), &err);
    rest_end(u, r == 0, &err);
}

static void give_up(struct gb_upload *u) {
    struct gb_error why = GB_ERROR_INIT;

    gb_cancelled(&why);
    gb_upload_rest_unhold(u, &why);
}

void gb_upload_rest_part(struct gb_upload *u, unsigned part) {
    const unsigned all = GB_REST_MEMORY | GB_REST_TURN | GB_REST_PAYLOAD | GB_REST_HELD;
    bool runs;
    bool drops;

    pthread_mutex_lock(&u->t.lock);
    u->rest |= part;
    runs = (u->rest & (all | GB_REST_NEVER)) == all;
    drops = (u->rest & GB_REST_NEVER) && (u->rest & GB_REST_HELD) && part == GB_REST_TURN;
    if (runs || drops)
        u->rest &= ~GB_REST_HELD;
    pthread_mutex_unlock(&u->t.lock);
    if (runs) {
        u->task.run = rest;
        gb_lane_post(&u->t.device->lane, &u->task);
    } else if (drops) {
        give_up(u);
    }
}

void gb_upload_rest_never(struct gb_upload *u) {
    bool waited;
    bool drops;

    pthread_mutex_lock(&u->t.lock);
    u->rest |= GB_REST_NEVER;
    drops = u->rest & GB_REST_HELD;
    pthread_mutex_unlock(&u->t.lock);
    if (!drops || !u->own_turn)
        return;
    pthread_mutex_lock(&u->t.session->lock);
    waited = gb_after_stop_locked(&u->turn->after);
    pthread_mutex_unlock(&u->t.session->lock);
    pthread_mutex_lock(&u->t.lock);
    drops = (u->rest & GB_REST_HELD) && (waited || (u->rest & GB_REST_TURN));
    if (drops)
        u->rest &= ~GB_REST_HELD;
    pthread_mutex_unlock(&u->t.lock);
    if (drops)
        give_up(u);
}

static void rest_turned(struct gb_after *after) {
    gb_upload_rest_part(after->owner, GB_REST_TURN);
}

/* --- the turn ----------------------------------------------------------------------------------------------------- */

bool gb_upload_rest_waits_locked(struct gb_upload *u) {
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

static int take(struct gb_upload *u, struct gb_error *err) {
    u->turn = gb_turn_new();
    u->own_turn = true;
    if (!u->turn)
        return gb_no_memory(err);
    u->turn->writes = true;
    return gb_turn_take_locked(u->t.session, u->turn, &u->plan.buffer.name, NULL, u->t.stream, err);
}

/* complete: the payload is on the way to its memory, and later writes may build on it. */
int gb_upload_take_turn(struct gb_upload *u, bool complete, struct gb_error *err) {
    bool holds = !u->turn && (u->plan.late || u->unplanned);
    struct gb_session *s = u->t.session;
    bool waits = false;
    bool late = false;
    bool chains;
    int r = 0;

    pthread_mutex_lock(&u->t.lock);
    chains = complete && !u->role->grow && u->state == GB_UPLOAD_OPEN && !u->plan.late;
    pthread_mutex_unlock(&u->t.lock);
    if (holds)
        gb_upload_rest_hold(u);
    pthread_mutex_lock(&s->lock);
    if (!u->turn) {
        r = take(u, err);
        late = r == 0 && u->plan.late; /* one that is not planned yet: begin_now asks again */
        if (late)
            waits = gb_upload_rest_waits_locked(u);
    }
    if (r == 0 && chains && (!u->turn->after.on || gb_after_chained(&u->turn->after))) {
        gb_upload_chain_locked(u);
        gb_turn_stage_locked(u->turn, GB_TURN_QUEUED);
    }
    pthread_mutex_unlock(&s->lock);
    if (holds && !late)
        gb_upload_rest_unhold(u, NULL);
    else if (late && !waits)
        gb_upload_rest_part(u, GB_REST_TURN);
    if (r == 0 && complete && u->plan.late)
        gb_upload_rest_part(u, GB_REST_PAYLOAD);
    return r;
}

int gb_upload_arrived(struct gb_upload *u, struct gb_error *err) {
    return u->turn || !u->role->ordered ? 0 : gb_upload_take_turn(u, false, err);
}

void gb_upload_stay(struct gb_upload *u) {
    bool waited;

    pthread_mutex_lock(&u->t.session->lock);
    waited = gb_after_leave_locked(&u->begins);
    pthread_mutex_unlock(&u->t.session->lock);
    if (waited)
        gb_core_transfer_unref(&u->t); /* never the last: the caller has one */
}
