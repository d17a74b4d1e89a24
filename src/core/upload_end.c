/* The end of an upload: the commit, and the cleaning up behind one that broke off. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/upload.h"

bool gb_upload_complete_locked(struct gb_upload *u) {
    if (!u->ended || !u->open || u->pending > 0 || u->committing || u->t.error.code != GB_OK)
        return false;
    u->committing = true;
    gb_transfer_ref(&u->t);
    return true;
}

/* --- the record ------------------------------------------------------------------------------------------------------------- */

static void new_record(const struct gb_upload *u, struct gb_buffer_rec *rec) {
    *rec = (struct gb_buffer_rec){.name = u->params.buffer.name, .created_at_us = gb_wall_us()};
    strcpy(rec->labels, "{}");
}

static void describe(const struct gb_upload *u, struct gb_buffer_rec *rec) {
    const struct gb_buffer_params *p = &u->params.buffer;

    if (!u->params.partial) {
        rec->bytes = u->bytes;
        rec->dtype = p->dtype;
        rec->shape = p->shape;
        rec->kind = u->content->kind;
        rec->device = u->t.device->index;
        rec->pool = rec->kind == GB_KIND_DEVICE ? u->content->pool->rec.name : (struct gb_name){{0}};
        if (p->has_labels)
            memcpy(rec->labels, p->labels, sizeof(rec->labels));
    }
    rec->stream = u->t.stream->name;
    rec->state = GB_BUFFER_READY;
    rec->generation++;
    rec->version++;
    rec->has_crc32c = !u->merge;
    rec->crc32c = u->merge ? 0 : u->crc;
    rec->updated_at_us = gb_wall_us();
}

/* Is the buffer still what the upload was begun for? */
static int check_current(struct gb_upload *u, const struct gb_buffer *b, struct gb_error *err) {
    const struct gb_upload_params *p = &u->params;

    if (u->in_place)
        return b && b->content == u->content
                   ? 0
                   : gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was lost meanwhile");
    if (p->check.check && p->check.check(p->check.arg, b ? &b->rec : NULL, err) < 0)
        return -1;
    if (b && b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if (gb_core_pool_check(u->content->pool, err) < 0)
        return -1;
    if (!p->partial)
        return 0;
    if (!b)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was deleted meanwhile");
    if (b->rec.bytes != u->bytes || (u->merge && (b->id != u->base_id || b->rec.generation != u->base_generation)))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    return 0;
}

static int decide_locked(struct gb_change *change, struct gb_buffer *b, struct gb_error *err) {
    struct gb_upload *u = (struct gb_upload *)((char *)change - offsetof(struct gb_upload, change));

    if (check_current(u, b, err) < 0)
        return -1;
    /* The buffer that was to be replaced may have been deleted since. */
    if (!b && !u->counted) {
        if (gb_quota_take_locked(u->t.session, 0, 1, err) < 0)
            return -1;
        u->counted = true;
    }
    if (b)
        change->rec = b->rec;
    else
        new_record(u, &change->rec);
    describe(u, &change->rec);
    return 0;
}

static void apply_locked(struct gb_change *change, struct gb_buffer *b) {
    struct gb_upload *u = (struct gb_upload *)((char *)change - offsetof(struct gb_upload, change));

    u->created = !b->live;
    if (b->live && u->counted)
        gb_quota_give_locked(u->t.session, 0, 1);
    u->counted = false;
    u->replaced = gb_buffer_set_locked(u->t.session, b, &change->rec, u->content);
    if (u->in_place) {
        b->in_place = false;
        u->in_place = false;
        u->replaced = u->content; /* the upload's own reference */
    }
    u->content = NULL;
}

static void finished(void *arg) {
    struct gb_upload *u = arg;
    struct gb_core *core = u->t.core;
    struct gb_session *s = u->t.session;

    GB_TALLY(core, s, uploads, 1);
    GB_TALLY(core, s, upload_bytes, u->params.bytes);
    GB_TALLY(core, s, upload_ns, gb_clock_ns() - u->t.started_ns);
    GB_TALLY(core, s, upload_copy_ns, u->t.copy_ns);
    GB_TALLY(core, s, upload_queue_ns, u->t.queue_ns);
    atomic_fetch_sub(&core->uploads_running, 1);
    gb_core_changed(core);
    pthread_mutex_lock(&u->t.lock);
    u->finished = true;
    gb_transfer_unlock_wake(&u->t);
    gb_transfer_unref(&u->t);
}

static void commit_end(struct gb_change *change) {
    struct gb_upload *u = (struct gb_upload *)((char *)change - offsetof(struct gb_upload, change));
    struct gb_content *replaced = u->replaced;

    if (change->error.code == GB_OK) {
        u->replaced = NULL;
        gb_content_drop(replaced, finished, u);
        return;
    }
    gb_transfer_fail(&u->t, &change->error);
    gb_transfer_unref(&u->t);
}

void gb_upload_commit(struct gb_upload *u) {
    u->change = (struct gb_change){.session = u->t.session,
                                   .name = u->params.buffer.name,
                                   .decide_locked = decide_locked,
                                   .apply_locked = apply_locked,
                                   .end = commit_end};
    gb_change_start(&u->change);
}

int gb_upload_end(struct gb_upload *upload, struct gb_error *err) {
    bool commit = false;
    int r;

    pthread_mutex_lock(&upload->t.lock);
    r = gb_transfer_check_locked(&upload->t, err);
    if (r == 0 && upload->filled != upload->params.bytes)
        r = gb_error_set(err, GB_ERR_INCOMPLETE_BODY, "%llu of %llu bytes came", (unsigned long long)upload->filled,
                         (unsigned long long)upload->params.bytes);
    if (r == 0) {
        upload->ended = true;
        upload->t.want_wake = true;
        commit = gb_upload_complete_locked(upload);
    }
    pthread_mutex_unlock(&upload->t.lock);
    if (commit)
        gb_upload_commit(upload);
    return r;
}

int gb_upload_result(struct gb_upload *upload, struct gb_buffer_rec *ret_rec, bool *ret_created,
                     struct gb_transfer_times *ret_times, struct gb_error *err) {
    bool done;
    int r = 0;

    pthread_mutex_lock(&upload->t.lock);
    done = upload->finished;
    if (!done && upload->t.error.code != GB_OK) {
        if (err && err->code == GB_OK)
            *err = upload->t.error;
        r = -1;
    }
    upload->t.want_wake = !done && r == 0;
    pthread_mutex_unlock(&upload->t.lock);
    if (!done)
        return r;
    *ret_rec = upload->change.rec;
    *ret_created = upload->created;
    gb_transfer_times(&upload->t, ret_times);
    return 1;
}

/* --- breaking off ----------------------------------------------------------------------------------------------------------- */

static int decide_break_locked(struct gb_change *change, struct gb_buffer *b, struct gb_error *err) {
    struct gb_upload *u = (struct gb_upload *)((char *)change - offsetof(struct gb_upload, change));

    if (!b || b->content != u->content)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was lost meanwhile");
    change->rec = b->rec;
    change->rec.state = GB_BUFFER_PARTIAL;
    change->rec.generation++;
    change->rec.version++;
    change->rec.has_crc32c = false;
    change->rec.crc32c = 0;
    change->rec.updated_at_us = gb_wall_us();
    return 0;
}

static void apply_break_locked(struct gb_change *change, struct gb_buffer *b) {
    gb_buffer_set_locked(change->session, b, &change->rec, b->content);
    b->in_place = false;
}

static void finalize(struct gb_upload *u) {
    struct gb_core *core = u->t.core;
    struct gb_session *s = u->t.session;

    gb_content_drop_later(u->content); /* this may be a backend's thread */
    gb_content_drop_later(u->base);
    if (u->counted) {
        pthread_mutex_lock(&s->lock);
        gb_quota_give_locked(s, 0, 1);
        pthread_mutex_unlock(&s->lock);
    }
    if (!u->finished) {
        GB_TALLY(core, s, uploads_failed, 1);
        atomic_fetch_sub(&core->uploads_running, 1);
        gb_core_changed(core);
    }
    gb_events_give(&u->t.device->events, u->usable);
    if (u->params.check.free_arg)
        u->params.check.free_arg(u->params.check.arg);
    gb_transfer_done(&u->t);
    free(u);
}

static void break_end(struct gb_change *change) {
    struct gb_upload *u = (struct gb_upload *)((char *)change - offsetof(struct gb_upload, change));
    struct gb_session *s = u->t.session;
    struct gb_error none = GB_ERROR_INIT;
    struct gb_buffer *b;

    /* The database would not have it: true in memory all the same, and the next start calls it lost anyway. */
    if (change->error.code != GB_OK) {
        pthread_mutex_lock(&s->lock);
        b = gb_map_get(&s->buffers, u->params.buffer.name.s);
        if (b && b->live && decide_break_locked(change, b, &none) == 0)
            apply_break_locked(change, b);
        pthread_mutex_unlock(&s->lock);
    }
    finalize(u);
}

/* Nothing was written: as if it had never begun. */
static void undo_in_place(struct gb_upload *u) {
    struct gb_session *s = u->t.session;
    struct gb_buffer *b;

    pthread_mutex_lock(&s->lock);
    b = gb_map_get(&s->buffers, u->params.buffer.name.s);
    if (b && b->in_place && b->content == u->content)
        b->in_place = false;
    pthread_mutex_unlock(&s->lock);
}

void gb_upload_destroy(struct gb_transfer *transfer) {
    struct gb_upload *u = gb_upload_of(transfer);

    if (!u->in_place || !u->touched) {
        if (u->in_place)
            undo_in_place(u);
        finalize(u);
        return;
    }
    u->change = (struct gb_change){.session = u->t.session,
                                   .name = u->params.buffer.name,
                                   .decide_locked = decide_break_locked,
                                   .apply_locked = apply_break_locked,
                                   .end = break_end};
    gb_change_start(&u->change);
}

void gb_upload_free(struct gb_upload *upload) {
    struct gb_flight *f;

    if (!upload)
        return;
    gb_transfer_close(&upload->t);
    f = upload->filling;
    upload->filling = NULL;
    if (f)
        gb_flight_release(f);
    atomic_store(&upload->alloc.cancelled, true);
    gb_transfer_unref(&upload->t);
}
