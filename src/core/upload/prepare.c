/* On the lane: queues the work that precedes the payload, and the payload itself if the role queues it. */
#include "base/clock.h"
#include "base/container.h"
#include "core/upload/upload.h"

static void usable(void *arg, const struct gb_error *error) {
    struct gb_upload *u = arg;

    gb_core_report_error(u->t.core, error);
    gb_content_drop_later(u->base);
    u->base = NULL;
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pended_locked(u, error);
    if (u->plan.direct) { /* else it was opened without waiting for this */
        u->t.queue_ns += gb_clock_ns() - u->prepared_ns;
        gb_upload_opened_locked(u);
    }
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

/* The bytes before and after the payload: from the old memory, from the other side, or zeros. */
static int queue_rest(struct gb_upload *u, struct gb_stream *stream, struct gb_error *err) {
    struct gb_backend *be = u->t.core->backend;
    struct gb_content *c = u->content;
    uint64_t at = u->plan.at;
    uint64_t end;
    enum gb_copy_way way;

    if (!u->base && !u->plan.zero) /* the size of one that grows may be set just now */
        return 0;
    /* A scattered payload may go anywhere, and an open-ended one end anywhere: it is written over the copied bytes. */
    if (u->plan.scattered || u->plan.open_ended)
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

/* Records an event behind all that is queued. *ret_watched: usable() comes later, and drops the base if that is still
 * there. */
static int watch(struct gb_upload *u, struct gb_stream *stream, bool *ret_watched, struct gb_content **ret_base,
                 struct gb_error *err) {
    struct gb_backend *be = u->t.core->backend;
    bool done = true;

    if (!u->usable) /* else it is the last segment's */
        u->usable = gb_event_pool_take(&u->t.device->events, err);
    if (!u->usable || gb_event_record(be, u->usable->event, stream, err) < 0 ||
        gb_event_query(be, u->usable->event, &done, err) < 0)
        return -1;
    /* Freed in the order of its home: on another stream the copy must be done before. */
    if (u->base && (done || u->base->alloc_stream == u->t.stream)) {
        *ret_base = u->base;
        u->base = NULL;
    }
    if (done)
        return 0;
    *ret_watched = true;
    return gb_upload_watch(u, u->usable, usable, u, err);
}

static int queue(struct gb_upload *u, struct gb_stream *stream, bool *ret_watched, struct gb_content **ret_base,
                 struct gb_error *err) {
    struct gb_backend *be = u->t.core->backend;
    struct gb_content *c = u->content;
    struct gb_location place = gb_content_location(c, 0);

    if (u->role->queue && gb_staged_copy_open(&u->pipe.copies[0], stream, err) < 0)
        return -1;
    if ((u->plan.placed && gb_content_materialize(c, err) < 0) || gb_content_materialize(u->base, err) < 0)
        return -1;
    if (u->plan.placed && c->ready && gb_stream_wait(be, stream, c->ready->event, err) < 0)
        return -1;
    if (queue_rest(u, stream, err) < 0)
        return -1;
    if (u->role->queue)
        return u->role->queue(u, stream, err);
    if (u->plan.direct && c->ptr && gb_kind_attaches(u->t.device, c->kind)) {
        u->attached = true;
        if (gb_mem_attach(be, &place, true, stream, err) < 0)
            return -1;
    }
    if (!u->plan.direct && !u->base)
        return 0;
    return watch(u, stream, ret_watched, ret_base, err);
}

/* --- after a failure ---------------------------------------------------------------------------------------------- */

static void settled(void *arg, const struct gb_error *error) {
    struct gb_upload *u = arg;

    gb_core_report_error(u->t.core, error);
    gb_core_transfer_unref(&u->t);
}

static void settle_slowly(struct gb_task *task) {
    struct gb_upload *u = gb_container_of(task, struct gb_upload, task);

    gb_stream_sync(u->t.core->backend, gb_core_transfer_part(&u->t), NULL);
    gb_core_transfer_unref(&u->t);
}

/* Queued work may still run: the lane's reference is kept until the stream is done with it. */
static void settle(struct gb_upload *u, struct gb_stream *stream) {
    struct gb_backend *be = u->t.core->backend;

    if (!u->usable)
        u->usable = gb_event_pool_take(&u->t.device->events, NULL);
    if (u->usable && gb_event_record(be, u->usable->event, stream, NULL) == 0 &&
        gb_watch(be, u->usable->event, settled, u, NULL) == 0)
        return;
    u->task.run = settle_slowly;
    gb_lane_post(&u->t.device->slow, &u->task);
}

/* --- the task ----------------------------------------------------------------------------------------------------- */

static void prepare(struct gb_upload *u) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_content *base = NULL;
    struct gb_stream *stream;
    bool watched = false;

    u->prepared_ns = gb_clock_ns();
    if (gb_core_stream_part_make(u->t.stream, u->t.device->index, &stream, &err) < 0) {
        gb_upload_fail(u, &err);
        gb_core_transfer_unref(&u->t);
        return;
    }
    if (queue(u, stream, &watched, &base, &err) < 0) {
        gb_upload_fail(u, &err);
        settle(u, stream);
        gb_content_drop(base, NULL, NULL); /* its home is this stream */
        return;
    }
    gb_content_drop(base, NULL, NULL);
    pthread_mutex_lock(&u->t.lock);
    /* Slots may be filled and queued behind what the stream does first; the CPU itself has to wait for that. */
    if (!watched || !u->plan.direct)
        gb_upload_opened_locked(u);
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

void gb_upload_prepare(struct gb_task *task) {
    prepare(gb_container_of(task, struct gb_upload, task));
}

void gb_upload_allocate(struct gb_upload *u) {
    u->alloc.content = u->content;
    u->alloc.done = gb_upload_allocated;
    u->alloc.anywhere = !u->base && !u->plan.zero && !u->role->queue && !u->plan.direct;
    gb_alloc_start(&u->alloc, u->plan.wait_ms);
}

void gb_upload_allocated(struct gb_alloc *alloc, const struct gb_error *error) {
    struct gb_upload *u = gb_container_of(alloc, struct gb_upload, alloc);
    struct gb_error why;

    if (!error) {
        prepare(u);
        return;
    }
    why = *error;
    if (u->role->grows)
        gb_upload_advise_length(&why);
    gb_upload_fail(u, &why);
    gb_core_transfer_unref(&u->t);
}

/* --- managed memory ----------------------------------------------------------------------------------------------- */

/* The next user of the memory waits for the event. */
static int hand_back(struct gb_upload *u, struct gb_error *err) {
    struct gb_backend *be = u->t.core->backend;
    struct gb_content *c = u->content;
    struct gb_location place = gb_content_location(c, 0);
    struct gb_stream *stream = gb_core_transfer_part(&u->t);
    struct gb_ev *ready;

    if (gb_mem_attach(be, &place, false, stream, err) < 0)
        return -1;
    ready = gb_event_pool_take(&u->t.device->events, err);
    if (!ready)
        return -1;
    if (gb_event_record(be, ready->event, stream, err) < 0) {
        gb_event_pool_give(&u->t.device->events, ready);
        return -1;
    }
    gb_event_pool_give(&u->t.device->events, c->ready);
    c->ready = ready;
    return 0;
}

static void on_lane(struct gb_task *task) {
    struct gb_upload *u = gb_container_of(task, struct gb_upload, task);
    struct gb_error err = GB_ERROR_INIT;

    u->attached = hand_back(u, &err) < 0;
    u->handed_back(u, err.code == GB_OK ? NULL : &err);
}

void gb_upload_hand_back(struct gb_upload *upload,
                         void (*then)(struct gb_upload *upload, const struct gb_error *error)) {
    if (!upload->attached) {
        then(upload, NULL);
        return;
    }
    upload->handed_back = then;
    upload->task.run = on_lane;
    gb_lane_post(&upload->t.device->lane, &upload->task);
}
