/* The end of an upload: the commit. */
#include <string.h>

#include "base/clock.h"
#include "core/buffer/guard.h"
#include "core/multipart/internal.h"

static bool complete_locked(struct gb_upload *u) {
    if (!u->ended || !u->open || u->pending > 0 || u->committing || u->t.error.code != GB_OK)
        return false;
    u->committing = true;
    gb_core_transfer_ref(&u->t);
    return true;
}

/* --- the record ------------------------------------------------------------------------------------------------------------- */

static void new_record(const struct gb_upload *u, struct gb_buffer_rec *rec) {
    *rec = (struct gb_buffer_rec){.name = u->params.buffer.name, .created_at_us = gb_wall_us()};
    strcpy(rec->labels, "{}");
}

/* Of the whole buffer, as far as it is known without reading it: as it came, or as it was where it is copied from. */
static bool knows_crc(const struct gb_upload *u, uint32_t *ret) {
    const struct gb_device_write *w = u->write;
    const struct gb_buffer_rec *source = w ? &w->source_rec : NULL;
    bool copied = w && w->what == GB_DEVICE_WRITE_COPY && w->bytes == source->bytes && source->has_crc32c;
    bool known = !u->merge && (copied || !w);

    *ret = !known ? 0 : w ? source->crc32c : u->crc;
    return known;
}

static void describe(const struct gb_upload *u, struct gb_buffer_rec *rec) {
    const struct gb_buffer_params *p = &u->params.buffer;

    if (!u->params.partial) {
        rec->bytes = u->bytes;
        rec->dtype = p->dtype;
        rec->shape = p->shape;
        rec->kind = u->mirrored ? GB_KIND_DEVICE : u->content->kind;
        if (p->has_labels)
            memcpy(rec->labels, p->labels, sizeof(rec->labels));
    }
    rec->device = u->t.device->index;
    rec->pool = u->pool_name;
    rec->mirrored = u->mirrored;
    rec->adopted = u->content->owner != NULL;
    rec->head = u->mirrored ? u->head : GB_HEAD_UNINITIALIZED;
    rec->stream = u->t.stream->name;
    rec->state = GB_BUFFER_READY;
    rec->generation++;
    rec->version++;
    rec->has_crc32c = knows_crc(u, &rec->crc32c);
    rec->updated_at_us = gb_wall_us();
}

bool gb_upload_has_locked(const struct gb_upload *u, const struct gb_buffer *b) {
    if (!b || !b->live)
        return false;
    return u->mirrored ? b->rec.mirrored && b->sides[u->side] == u->content : b->content == u->content;
}

static int lost(const struct gb_buffer *b, struct gb_error *err) {
    return b && b->live && b->rec.adopted ? gb_lost(b, err)
                                          : gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was lost meanwhile");
}

/* Is the buffer still what the upload was begun for? */
static int check_current(struct gb_upload *u, const struct gb_buffer *b, struct gb_error *err) {
    const struct gb_upload_params *p = &u->params;

    if (u->in_place)
        return gb_upload_has_locked(u, b) ? 0 : lost(b, err);
    if (p->check.check && p->check.check(p->check.arg, b ? &b->rec : NULL, err) < 0)
        return -1;
    if (u->end_check.check && u->end_check.check(u->end_check.arg, b ? &b->rec : NULL, err) < 0)
        return -1;
    if (b && b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if ((b && gb_guard_check_unsealed_locked(b, err) < 0) || gb_core_pool_check(u->content->pool, err) < 0)
        return -1;
    if (!b)
        return p->partial ? gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was deleted meanwhile") : 0;
    if (b->rec.mirrored != u->mirrored || (p->partial && b->rec.bytes != u->bytes) ||
        (u->merge && (b->id != u->base_id || b->rec.generation != u->base_generation)))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    return 0;
}

/* A sync changes no byte that anybody reads: both sides must be what they were. */
static int decide_sync_locked(struct gb_upload *u, const struct gb_buffer *b, struct gb_buffer_rec *rec,
                              struct gb_error *err) {
    struct gb_content *source = b ? b->sides[gb_other_side(u->side)] : NULL;

    if (!b || b->in_place || b->id != u->base_id || b->rec.generation != u->base_generation ||
        b->rec.state != GB_BUFFER_READY || source != u->write->source || b->sides[u->side] != u->was)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    *rec = b->rec;
    rec->head = u->head;
    rec->pool = u->pool_name; /* another when the buffer's was removed */
    rec->version++;
    rec->updated_at_us = gb_wall_us();
    return 0;
}

static struct gb_upload *upload_of(struct gb_transaction *transaction) {
    return (struct gb_upload *)((char *)transaction - offsetof(struct gb_upload, transaction));
}

static bool syncs(const struct gb_upload *u) {
    return u->write && u->write->what == GB_DEVICE_WRITE_SYNC;
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct gb_upload *u = upload_of(transaction);

    if (syncs(u))
        return decide_sync_locked(u, b, &transaction->rec, err);
    if (check_current(u, b, err) < 0)
        return -1;
    /* The buffer that was to be replaced may have been deleted since. */
    if (!b && !u->counted) {
        if (gb_quota_take_locked(u->t.session, 0, 1, err) < 0)
            return -1;
        u->counted = true;
    }
    if (b)
        transaction->rec = b->rec;
    else
        new_record(u, &transaction->rec);
    describe(u, &transaction->rec);
    /* Whoever maps, or mapped, what was written in place may write on; so may whoever's memory it is. */
    if (u->content->owner || (u->placed && (u->content->pin_writers > 0 || u->content->tainted)))
        transaction->rec.has_crc32c = false;
    return 0;
}

/* What was written where it is belongs to the buffer already: what is left over is the upload's own reference. */
static void apply_placed_locked(struct gb_upload *u, struct gb_buffer *b) {
    if (!gb_upload_has_locked(u, b)) { /* the device died while the database was busy */
        u->transaction.rec.state = GB_BUFFER_LOST;
        u->transaction.rec.head = GB_HEAD_UNINITIALIZED;
    }
    gb_buffer_set_locked(u->t.session, b, &u->transaction.rec, b->content);
    u->replaced = u->content;
    if (u->in_place)
        b->in_place = false;
    u->in_place = false;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct gb_upload *u = upload_of(transaction);

    u->created = !b->live;
    if (b->live && u->counted)
        gb_quota_give_locked(u->t.session, 0, 1);
    u->counted = false;
    if (u->placed) {
        apply_placed_locked(u, b);
    } else if (u->mirrored) {
        gb_buffer_set_locked(u->t.session, b, &transaction->rec, NULL);
        u->replaced = gb_buffer_set_side_locked(b, u->side, u->content);
    } else {
        u->replaced = gb_buffer_set_locked(u->t.session, b, &transaction->rec, u->content);
    }
    u->content = NULL;
}

static void tally_upload(struct gb_upload *u) {
    struct gb_core *core = u->t.core;
    struct gb_session *s = u->t.session;

    GB_COUNT(core, s, uploads, 1);
    GB_COUNT(core, s, upload_bytes, u->params.bytes);
    GB_COUNT(core, s, upload_ns, gb_clock_ns() - u->t.started_ns);
    GB_COUNT(core, s, upload_copy_ns, u->t.copy_ns);
    GB_COUNT(core, s, upload_queue_ns, u->t.queue_ns);
    gb_kind_live_counters_add(&core->kinds[GB_UPLOAD][u->kind], u->params.bytes, u->t.copy_ns, u->t.queue_ns);
}

static void live_counters(struct gb_upload *u) {
    struct gb_core *core = u->t.core;
    struct gb_session *s = u->t.session;

    GB_COUNT(core, s, mirror_copies, u->mirror_copied);
    GB_COUNT(core, s, mirror_copy_bytes, u->mirror_copied ? u->bytes - u->params.bytes : 0);
    if (!u->write) {
        tally_upload(u);
    } else if (u->write->what == GB_DEVICE_WRITE_COPY) {
        GB_COUNT(core, s, device_copies, 1);
        GB_COUNT(core, s, device_copy_bytes, u->params.bytes);
        GB_COUNT(core, s, device_copy_ns, u->t.copy_ns);
        GB_COUNT(core, s, device_copy_queue_ns, u->t.queue_ns);
    } else if (u->write->what == GB_DEVICE_WRITE_FILL) {
        GB_COUNT(core, s, fills, 1);
        GB_COUNT(core, s, fill_bytes, u->params.bytes);
    } else {
        GB_COUNT(core, s, mirror_copies, 1);
        GB_COUNT(core, s, mirror_copy_bytes, u->params.bytes);
    }
}

static void finished(void *arg) {
    struct gb_upload *u = arg;
    struct gb_core *core = u->t.core;

    live_counters(u);
    if (!u->multipart)
        atomic_fetch_sub(u->write ? &core->writes_running : &core->uploads_running, 1);
    gb_core_changed(core);
    pthread_mutex_lock(&u->t.lock);
    u->finished = true;
    gb_core_transfer_unlock_wake(&u->t);
    if (u->group)
        gb_upload_group_finished(u->group);
    gb_core_transfer_unref(&u->t);
}

/* Nothing was changed: a multipart upload may be completed another time. */
static void refuse(struct gb_upload *u, const struct gb_error *error) {
    gb_core_report_error(u->t.core, error);
    pthread_mutex_lock(&u->t.lock);
    u->refused = *error;
    u->committing = false;
    u->ended = false;
    gb_core_transfer_unlock_wake(&u->t);
}

void gb_upload_committed(struct gb_upload *u) {
    struct gb_content *replaced = u->replaced;

    u->replaced = NULL;
    gb_content_retire(replaced, finished, u);
}

static void commit_end(struct gb_transaction *transaction) {
    struct gb_upload *u = upload_of(transaction);

    if (transaction->error.code == GB_OK) {
        gb_upload_committed(u);
        return;
    }
    if (u->multipart)
        refuse(u, &transaction->error);
    else
        gb_core_transfer_fail(&u->t, &transaction->error);
    gb_core_transfer_unref(&u->t);
}

static void fill_change(struct gb_upload *u) {
    u->transaction = (struct gb_transaction){.session = u->t.session,
                                             .call = u->write ? &u->write->call->base : NULL,
                                             .mark = u->mark,
                                             .name = u->params.buffer.name,
                                             .validate_locked = validate_locked,
                                             .publish_locked = publish_locked,
                                             .end = commit_end};
}

static void commit(struct gb_upload *u, const struct gb_error *error) {
    if (error) {
        gb_core_transfer_fail(&u->t, error);
        gb_core_transfer_unref(&u->t);
        return;
    }
    fill_change(u);
    if (u->group)
        gb_upload_group_ready(u);
    else
        gb_transaction_start(&u->transaction);
}

static void begin_commit(struct gb_upload *u) {
    if (u->target)
        gb_part_arrived(u);
    else if (u->attached)
        gb_upload_hand_back(u, commit);
    else
        commit(u, NULL);
}

void gb_upload_unlock_advance(struct gb_upload *u) {
    if (complete_locked(u)) {
        pthread_mutex_unlock(&u->t.lock);
        begin_commit(u);
    } else {
        gb_core_transfer_unlock_wake(&u->t);
    }
}

int gb_upload_end(struct gb_upload *upload, struct gb_error *err) {
    bool complete = false;
    int r;

    gb_upload_reap(upload);
    if (gb_upload_watch_rest(upload, err) < 0)
        return -1;
    pthread_mutex_lock(&upload->t.lock);
    r = gb_core_transfer_check_locked(&upload->t, err);
    if (r == 0 && upload->filled != upload->params.bytes)
        r = gb_error_set(err, GB_ERR_INCOMPLETE_BODY, "%llu of %llu bytes came", (unsigned long long)upload->filled,
                         (unsigned long long)upload->params.bytes);
    if (r == 0) {
        upload->ended = true;
        upload->t.want_wake = !upload->group;
        complete = complete_locked(upload);
    }
    pthread_mutex_unlock(&upload->t.lock);
    if (complete)
        begin_commit(upload);
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
    *ret_rec = upload->transaction.rec;
    *ret_created = upload->created;
    gb_transfer_times(&upload->t, ret_times);
    return 1;
}

/* --- of a target ----------------------------------------------------------------------------------------------------------- */

int gb_upload_opened(struct gb_upload *upload, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&upload->t.lock);
    r = gb_core_transfer_check_locked(&upload->t, err);
    if (r == 0)
        r = upload->open;
    upload->t.want_wake = r == 0;
    pthread_mutex_unlock(&upload->t.lock);
    return r;
}

void gb_upload_fed(struct gb_upload *upload, const struct gb_buffer_check *check, const struct gb_store_mark *mark,
                   uint32_t crc) {
    if (upload->end_check.free_arg)
        upload->end_check.free_arg(upload->end_check.arg);
    upload->end_check = check ? *check : (struct gb_buffer_check){0};
    upload->mark = *mark;
    upload->filled = upload->params.bytes;
    upload->crc = crc;
    pthread_mutex_lock(&upload->t.lock);
    upload->refused = GB_ERROR_INIT;
    pthread_mutex_unlock(&upload->t.lock);
}

bool gb_upload_refused(struct gb_upload *upload) {
    bool refused;

    pthread_mutex_lock(&upload->t.lock);
    refused = upload->refused.code != GB_OK && upload->t.error.code == GB_OK;
    pthread_mutex_unlock(&upload->t.lock);
    return refused;
}

int gb_upload_outcome(struct gb_upload *upload, struct gb_buffer_rec *ret_rec, bool *ret_created,
                      struct gb_transfer_times *ret_times, struct gb_error *err) {
    if (gb_upload_refused(upload)) {
        *err = upload->refused;
        return -1;
    }
    return gb_upload_result(upload, ret_rec, ret_created, ret_times, err);
}
