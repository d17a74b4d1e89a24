/* On the lane: what comes before the payload. */
#include "base/clock.h"
#include "core/upload.h"

static void usable(void *arg, const struct gb_error *error) {
    struct gb_upload *u = arg;
    bool commit;

    gb_core_note(u->t.core, error);
    gb_content_drop_later(u->base);
    u->base = NULL;
    pthread_mutex_lock(&u->t.lock);
    if (error && u->t.error.code == GB_OK)
        u->t.error = *error;
    if (u->direct)
        u->t.queue_ns = gb_clock_ns() - u->prepared_ns;
    u->open = true;
    u->pending--;
    commit = gb_upload_complete_locked(u);
    gb_transfer_unlock_wake(&u->t);
    if (commit)
        gb_upload_commit(u);
    gb_transfer_unref(&u->t);
}

/* The bytes before and after the payload come from the old memory. */
static int copy_base(struct gb_upload *u, struct gb_stream *stream, struct gb_error *err) {
    uint64_t end = u->at + u->params.bytes;
    enum gb_copy_way way;

    if (u->base->ready && gb_stream_wait(u->t.core->backend, stream, u->base->ready->event, err) < 0)
        return -1;
    if (gb_content_move(u->content, 0, u->base, 0, u->at, stream, &way, err) < 0)
        return -1;
    return gb_content_move(u->content, end, u->base, end, u->bytes - end, stream, &way, err);
}

/* *ret_watched: usable() comes later, and drops the base if that is still there. */
static int queue(struct gb_upload *u, bool *ret_watched, struct gb_content **ret_base, struct gb_error *err) {
    struct gb_backend *be = u->t.core->backend;
    struct gb_content *c = u->content;
    struct gb_stream *stream;
    bool done = true;

    *ret_watched = false;
    if (gb_core_stream_part_make(u->t.stream, c->device->index, &stream, err) < 0)
        return -1;
    if (u->base && copy_base(u, stream, err) < 0)
        return -1;
    if (u->in_place && c->ready && gb_stream_wait(be, stream, c->ready->event, err) < 0)
        return -1;
    if (!u->direct && !u->base)
        return 0;
    u->usable = gb_events_take(&u->t.device->events, err);
    if (!u->usable || gb_event_record(be, u->usable->event, stream, err) < 0 ||
        gb_event_query(be, u->usable->event, &done, err) < 0)
        return -1;
    if (done)
        return 0;
    /* Freed in the order of its home: on another stream the copy must be done before. */
    if (u->base && u->base->home == u->t.stream) {
        *ret_base = u->base;
        u->base = NULL;
    }
    pthread_mutex_lock(&u->t.lock);
    u->pending++;
    pthread_mutex_unlock(&u->t.lock);
    gb_transfer_ref(&u->t);
    if (gb_watch(be, u->usable->event, usable, u, err) < 0) {
        gb_transfer_unref(&u->t); /* never the last: the lane has one */
        return -1;
    }
    *ret_watched = true;
    return 0;
}

static void prepare(struct gb_upload *u) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_content *base = NULL;
    bool watched;
    bool commit;
    int r;

    u->prepared_ns = gb_clock_ns();
    r = queue(u, &watched, &base, &err);
    if (!watched && u->base) {
        if (r < 0) /* whether a copy is under way nobody can tell: this once the lane waits */
            gb_stream_sync(u->t.core->backend, gb_transfer_part(&u->t), NULL);
        base = u->base;
        u->base = NULL;
    }
    gb_content_drop(base, NULL, NULL);
    if (r < 0) {
        gb_transfer_fail(&u->t, &err);
        gb_transfer_unref(&u->t);
        return;
    }
    pthread_mutex_lock(&u->t.lock);
    /* Slots may be filled and queued behind what the stream does first; the CPU itself has to wait for that. */
    if (!watched || !u->direct)
        u->open = true;
    commit = gb_upload_complete_locked(u);
    gb_transfer_unlock_wake(&u->t);
    if (commit)
        gb_upload_commit(u);
    gb_transfer_unref(&u->t);
}

void gb_upload_prepare(struct gb_task *task) {
    prepare((struct gb_upload *)((char *)task - offsetof(struct gb_upload, task)));
}

void gb_upload_allocated(struct gb_alloc *alloc, const struct gb_error *error) {
    struct gb_upload *u = (struct gb_upload *)((char *)alloc - offsetof(struct gb_upload, alloc));

    if (!error) {
        prepare(u);
        return;
    }
    gb_transfer_fail(&u->t, error);
    gb_transfer_unref(&u->t);
}
