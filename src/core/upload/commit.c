/* The end of an upload: the commit. */
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/buffer/guard.h"
#include "core/memory/last_transfer.h"
#include "core/upload/upload.h"

/* --- the record --------------------------------------------------------------------------------------------------- */

static void new_record(const struct gb_upload *u, struct gb_buffer_rec *rec) {
    gb_buffer_rec_done(rec);
    *rec = (struct gb_buffer_rec){
        .name = u->plan.buffer.name,
        .durability = u->t.session->rec.durability,
        .spill = u->t.session->rec.spill,
        .created_at_us = gb_wall_us(),
    };
}

static void describe(const struct gb_upload *u, struct gb_buffer_rec *rec) {
    const struct gb_buffer_params *p = &u->plan.buffer;

    if (!u->plan.partial) {
        if (p->has_durability)
            rec->durability = p->durability;
        if (p->has_spill)
            rec->spill = p->spill;
        rec->bytes = u->plan.bytes;
        rec->dtype = p->dtype;
        rec->shape = p->shape;
        rec->kind = u->plan.mirrored ? GB_KIND_DEVICE : u->content->kind;
        if (p->has_labels)
            gb_text_set(&rec->labels, p->labels);
    }
    rec->device = u->t.device->index;
    rec->pool = u->plan.pool_name;
    rec->mirrored = u->plan.mirrored;
    rec->adopted = u->content->owner != NULL;
    rec->head = u->plan.mirrored ? u->plan.head : GB_HEAD_UNINITIALIZED;
    rec->stream = u->t.stream->name;
    rec->state = GB_BUFFER_READY;
    rec->generation++;
    rec->version++;
    rec->has_crc32c = !u->plan.merge && u->plan.has_crc32c;
    rec->crc32c = rec->has_crc32c ? u->crc : 0;
    rec->updated_at_us = gb_wall_us();
}

bool gb_upload_has_locked(const struct gb_upload *u, const struct gb_buffer *b) {
    if (!b || !b->live)
        return false;
    return u->plan.mirrored ? b->rec.mirrored && b->sides[u->plan.side] == u->content : b->content == u->content;
}

static int lost(const struct gb_buffer *b, struct gb_error *err) {
    if (b && b->live && b->rec.mirrored && b->rec.state != GB_BUFFER_LOST)
        return gb_error_set(err, GB_ERR_CONTENT_LOST,
                            "the memory of this side is gone meanwhile, with the process that owned it; upload again");
    return b && b->live && b->rec.adopted ? gb_lost(b, err)
                                          : gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was lost meanwhile");
}

/* Is the buffer still what the upload was begun for? */
static int check_current(struct gb_upload *u, const struct gb_buffer *b, struct gb_error *err) {
    const struct gb_upload_plan *p = &u->plan;

    if (p->in_place)
        return gb_upload_has_locked(u, b) ? 0 : lost(b, err);
    if (gb_buffer_check_locked(&p->check, b, err) < 0 ||
        (u->end_check && gb_buffer_check_locked(u->end_check, b, err) < 0))
        return -1;
    if (b && b->in_place)
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer is being overwritten in place; try again");
    if ((b && gb_guard_check_unsealed_locked(b, err) < 0) ||
        gb_kind_check_source(u->content->kind, u->content->pool, err) < 0)
        return -1;
    if (!b)
        return p->partial ? gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was deleted meanwhile") : 0;
    if (b->rec.mirrored != p->mirrored || (p->partial && b->rec.bytes != p->bytes) ||
        (p->merge && (b->id != p->base_id || b->rec.generation != p->base_generation)))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    return 0;
}

struct gb_upload *gb_upload_of_transaction(struct gb_transaction *transaction) {
    return gb_container_of(transaction, struct gb_upload, transaction);
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);

    if (check_current(u, b, err) < 0)
        return -1;
    /* The buffer that was to be replaced may have been deleted since. */
    if (!b && !u->counted) {
        if (gb_quota_take_locked(u->t.session, 0, 1, err) < 0)
            return -1;
        u->counted = true;
    }
    if (b)
        gb_buffer_copy_locked(b, &transaction->rec);
    else
        new_record(u, &transaction->rec);
    describe(u, &transaction->rec);
    /* A process that maps, or mapped, memory written in place may go on writing; so may the owner of adopted memory. */
    if (u->content->owner || (u->plan.placed && (u->content->pin_writers > 0 || u->content->tainted)))
        transaction->rec.has_crc32c = false;
    if (u->content->owner)
        transaction->rec.durability = GB_DURABILITY_NONE; /* its owner writes without a word */
    transaction->content = u->content;
    return 0;
}

/* Memory written in place is the buffer's already; only the upload's own reference is left to drop. */
static void apply_placed_locked(struct gb_upload *u, struct gb_buffer *b) {
    /* The device died while the database was busy. Of a side that alone is gone the transaction takes care. */
    if (!gb_upload_has_locked(u, b) && (!u->plan.mirrored || b->rec.state == GB_BUFFER_LOST)) {
        u->transaction.rec.state = GB_BUFFER_LOST;
        u->transaction.rec.head = GB_HEAD_UNINITIALIZED;
    }
    gb_buffer_set_locked(u->t.session, b, &u->transaction.rec, b->content);
    u->replaced = u->content;
    if (u->marked)
        b->in_place = false;
    u->marked = false;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);

    u->created = !b->live;
    if (u->role->from_client)
        gb_last_transfer_keep_locked(u->content, GB_UPLOAD, u->plan.payload, u->t.queue_ns, u->t.copy_ns);
    if (b->live && u->counted)
        gb_quota_give_locked(u->t.session, 0, 1);
    u->counted = false;
    if (u->plan.placed) {
        apply_placed_locked(u, b);
    } else if (u->plan.mirrored) {
        gb_buffer_set_locked(u->t.session, b, &transaction->rec, NULL);
        u->replaced = gb_buffer_set_side_locked(b, u->plan.side, u->content);
    } else {
        u->replaced = gb_buffer_set_locked(u->t.session, b, &transaction->rec, u->content);
    }
    u->content = NULL;
}

/* --- the commit --------------------------------------------------------------------------------------------------- */

void gb_upload_count(struct gb_upload *u) {
    struct gb_core *core = u->t.core;
    struct gb_session *s = u->t.session;

    GB_COUNT(core, s, uploads, 1);
    GB_COUNT(core, s, upload_bytes, u->plan.payload);
    GB_COUNT(core, s, upload_ns, gb_clock_ns() - u->t.started_ns);
    GB_COUNT(core, s, upload_copy_ns, u->t.copy_ns);
    GB_COUNT(core, s, upload_queue_ns, u->t.queue_ns);
    gb_kind_live_counters_add(&core->kinds[GB_UPLOAD][u->plan.kind], u->plan.payload, u->t.copy_ns, u->t.queue_ns);
}

static void finished(void *arg) {
    struct gb_upload *u = arg;
    struct gb_core *core = u->t.core;
    struct gb_session *s = u->t.session;

    GB_COUNT(core, s, mirror_copies, u->mirror_copied);
    GB_COUNT(core, s, mirror_copy_bytes, u->mirror_copied ? u->plan.bytes - u->plan.payload : 0);
    if (u->role->committed)
        u->role->committed(u);
    gb_upload_stop_running(u);
    gb_core_changed(core);
    pthread_mutex_lock(&u->t.lock);
    (void)gb_upload_step_locked(u, GB_UPLOAD_DONE);
    gb_core_transfer_unlock_wake(&u->t);
    gb_core_transfer_unref(&u->t);
}

void gb_upload_committed(struct gb_upload *u) {
    struct gb_content *replaced = u->replaced;

    u->replaced = NULL;
    gb_content_retire(replaced, finished, u);
}

static void fail(struct gb_upload *u, const struct gb_error *error) {
    gb_core_report_error(u->t.core, error);
    pthread_mutex_lock(&u->t.lock);
    gb_upload_fail_locked(u, error);
    (void)gb_upload_step_locked(u, GB_UPLOAD_FAILED);
    gb_core_transfer_unlock_wake(&u->t);
    gb_core_transfer_unref(&u->t);
}

void gb_upload_commit_end(struct gb_transaction *transaction) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);

    if (transaction->error.code == GB_OK)
        gb_upload_committed(u);
    else
        fail(u, &transaction->error);
}

bool gb_upload_ready(struct gb_upload *u, const struct gb_error *error,
                     void (*end)(struct gb_transaction *transaction)) {
    if (error) {
        fail(u, error);
        return false;
    }
    gb_transaction_done(&u->transaction);
    u->transaction = (struct gb_transaction){.session = u->t.session,
                                             .name = u->plan.buffer.name,
                                             .mark = u->mark,
                                             .upkeep = u->role->upkeep,
                                             .whole = !u->plan.partial && !u->plan.merge,
                                             .begun = u->plan.in_place,
                                             .tee = u->disk.tee,
                                             .kept = gb_write_through_take_kept(u),
                                             .new_id = u->disk.new_id,
                                             .validate_locked = validate_locked,
                                             .publish_locked = publish_locked,
                                             .end = end};
    return true;
}

/* --- the end, for the caller -------------------------------------------------------------------------------------- */

/* Sends what is in a slot that would hold more. */
static int flush(struct gb_upload *u, struct gb_error *err) {
    if (gb_upload_flush(u, err) < 0)
        return -1;
    gb_upload_drop_slot(u);
    return 0;
}

void gb_upload_mark(struct gb_upload *upload, const struct gb_store_mark *mark) {
    upload->mark = *mark;
}

int gb_upload_end(struct gb_upload *upload, struct gb_error *err) {
    bool complete = false;
    int r;

    gb_upload_reap(upload);
    if (upload->plan.open_ended && flush(upload, err) < 0)
        return -1;
    if (gb_upload_watch_rest(upload, err) < 0 || (upload->role->ended && upload->role->ended(upload, err) < 0))
        return -1;
    pthread_mutex_lock(&upload->t.lock);
    r = gb_upload_alive_locked(upload, err);
    if (r == 0 && !upload->plan.open_ended && upload->filled != upload->plan.payload)
        r = gb_error_set(err, GB_ERR_INCOMPLETE_BODY, "%llu of %llu bytes came", (unsigned long long)upload->filled,
                         (unsigned long long)upload->plan.payload);
    if (r == 0 && gb_upload_step_locked(upload, GB_UPLOAD_ENDED)) {
        upload->t.want_wake = !upload->t.wake_on_error;
        complete = gb_upload_complete_locked(upload);
    }
    pthread_mutex_unlock(&upload->t.lock);
    if (complete)
        upload->role->complete(upload);
    return r;
}

int gb_upload_result(struct gb_upload *upload, struct gb_buffer_rec *ret_rec, bool *ret_created,
                     struct gb_transfer_times *ret_times, struct gb_error *err) {
    bool done;
    int r = 0;

    pthread_mutex_lock(&upload->t.lock);
    done = upload->state == GB_UPLOAD_DONE;
    if (!done && upload->t.error.code != GB_OK) {
        gb_error_move(err, &upload->t.error);
        r = -1;
    }
    upload->t.want_wake = !done && r == 0;
    pthread_mutex_unlock(&upload->t.lock);
    if (!done)
        return r;
    ret_rec->labels = NULL;
    gb_buffer_rec_set(ret_rec, &upload->transaction.rec);
    *ret_created = upload->created;
    gb_transfer_times(&upload->t, ret_times);
    return 1;
}

/* --- a plain upload ----------------------------------------------------------------------------------------------- */

void gb_upload_commit(struct gb_upload *u, const struct gb_error *error) {
    if (gb_upload_ready(u, error, gb_upload_commit_end))
        gb_transaction_start(&u->transaction);
}

static void complete(struct gb_upload *u) {
    gb_upload_hand_back(u, gb_upload_commit);
}

static int ended(struct gb_upload *u, struct gb_error *err) {
    (void)err;
    if (u->plan.open_ended)
        gb_upload_plan_of(u)->payload = u->filled;
    return 0;
}

void gb_upload_gone(struct gb_upload *u) {
    gb_upload_count_failure(u);
    gb_upload_dispose(u);
}

const struct gb_upload_role gb_upload_plain = {
    .ended = ended, .complete = complete, .committed = gb_upload_count, .gone = gb_upload_gone, .from_client = true};
