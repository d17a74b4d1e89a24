/* How an upload ends. Its payload ends, its memory is handed back to the device, and a transaction makes that memory
 * the buffer's. Or the upload is given up, which leaves nothing behind, or a buffer in state PARTIAL. A caller ends an
 * upload with gb_upload_end; the roles use the other functions in their complete and gone. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/buffer/buffer.h"
#include "core/memory/content.h"
#include "core/memory/kept.h"
#include "core/session/quota.h"
#include "core/transfer/upload.h"
#include "core/util/lane.h"

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

int gb_upload_detach(struct gb_upload *u, struct gb_error *err) {
    int r = hand_back(u, err);

    u->attached = r < 0;
    return r;
}

static void on_lane(struct gb_task *task) {
    struct gb_upload *u = gb_container_of(task, struct gb_upload, task);
    struct gb_error err = GB_ERROR_INIT;

    (void)gb_upload_detach(u, &err);
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

static void describe(const struct gb_upload *u, bool is_new, struct gb_buffer_rec *rec) {
    const struct gb_buffer_params *p = &u->plan.buffer;

    if (!u->plan.partial || is_new) {
        if (p->has_durability)
            rec->durability = p->durability;
        if (p->has_spill)
            rec->spill = p->spill;
        rec->bytes = u->plan.bytes;
        rec->dtype = p->dtype;
        rec->shape = p->shape;
        rec->kind = u->content->kind;
        if (p->has_labels)
            gb_text_set(&rec->labels, p->labels);
    }
    if (u->plan.mirrored)
        rec->kind = gb_core_usual_kind(u->t.device);
    rec->device = u->t.device->index;
    rec->pool = u->plan.pool_name;
    rec->mirrored = u->plan.mirrored;
    rec->adopted = u->content->owner != NULL;
    rec->head = u->plan.mirrored ? u->plan.head : GB_HEAD_UNINITIALIZED;
    rec->stream = u->t.stream->name;
    rec->state = GB_BUFFER_READY;
    rec->generation++;
    if (!u->plan.merge) /* a write of all bytes of a table brings another table */
        rec->layout = rec->dtype == GB_DTYPE_TENSORS ? rec->generation : 0;
    rec->version++;
    rec->has_crc32c = !u->plan.merge && u->plan.has_crc32c;
    rec->crc32c = rec->has_crc32c ? u->crc : 0;
    rec->updated_at_us = gb_wall_us();
}

static void tell_locked(struct gb_turn *turn, struct gb_buffer_rec *ret) {
    struct gb_upload *u = turn->teller;
    struct gb_buffer seen;
    const struct gb_buffer *b = gb_after_see_locked(u->t.session, &u->plan.buffer.name, &turn->after, &seen, NULL);

    if (b)
        gb_buffer_copy_locked(b, ret);
    else
        new_record(u, ret);
    describe(u, !b, ret);
    ret->run = u->t.core->run;
}

void gb_upload_chain_locked(struct gb_upload *u) {
    if (!u->plan.placed && !u->plan.mirrored && u->content && !u->content->owner)
        gb_turn_chain_locked(u->turn, u->content, u->t.stream, tell_locked, u);
}

static int lost(const struct gb_buffer *b, struct gb_error *err) {
    if (b && b->live && b->rec.mirrored && b->rec.state != GB_BUFFER_LOST)
        return gb_error_set(err, GB_ERR_CONTENT_LOST,
                            "the memory of this side is gone meanwhile, with the process that owned it; upload again");
    return b && b->live && b->rec.adopted ? gb_lost(b, err)
                                          : gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was lost meanwhile");
}

/* The buffer's bytes are those that the upload has kept outside of its payload. */
static bool has_base(const struct gb_upload *u, const struct gb_buffer *b) {
    if (u->chained)
        return gb_after_left_locked(&u->turn->after, b);
    return b->id == u->plan.base_id && b->rec.generation == u->plan.base_generation;
}

int gb_upload_check_table(const struct gb_buffer *b, bool in_table, int64_t layout, struct gb_error *err) {
    if (in_table && (b->rec.dtype != GB_DTYPE_TENSORS || b->rec.layout != layout))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer's tensors were replaced meanwhile; try again");
    if (!in_table && b->rec.dtype == GB_DTYPE_TENSORS)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the buffer \"%s\" holds many tensors: write one of them by PUT or PATCH of its data with "
                            "?tensor=, or replace all by a safetensors file",
                            b->name);
    return 0;
}

/* Refuses the commit if the buffer is no longer what the upload was begun for. Returns 0 or -1. */
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
    if (!b && (!p->partial || p->remakes))
        return 0;
    if (!b)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was deleted meanwhile");
    if (b->rec.mirrored != p->mirrored || (p->partial && b->rec.bytes != p->bytes) || (p->merge && !has_base(u, b)))
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "the buffer was written meanwhile; try again");
    return p->merge ? gb_upload_check_table(b, p->in_table, p->layout, err) : 0;
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
    describe(u, !b, &transaction->rec);
    /* A process that maps, or mapped, memory written in place may still write to it; so may the owner of adopted
     * memory. */
    if (u->content->owner || (u->plan.placed && (u->content->pin_writers > 0 || u->content->tainted)))
        transaction->rec.has_crc32c = false;
    if (u->content->owner)
        transaction->rec.durability = GB_DURABILITY_NONE; /* its owner writes at any time */
    transaction->content = u->content;
    return 0;
}

/* Memory written in place is the buffer's already; only the upload's own reference is left to drop. */
static void apply_placed_locked(struct gb_upload *u, struct gb_buffer *b) {
    /* The device died while the database was busy. If only this side is gone, the transaction handles it. */
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

/* --- the end of the commit ---------------------------------------------------------------------------------------- */

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

/* All bytes, if they came by this upload and were kept; a target's came by its parts. The caller frees them. */
static void *take_kept(struct gb_upload *u) {
    void *kept = u->disk.kept_bytes == u->plan.payload ? u->disk.kept : NULL;

    if (kept)
        u->disk.kept = NULL;
    return kept;
}

/* The memory of one that grew is known only now. */
static void chain(struct gb_upload *u) {
    struct gb_session *s = u->t.session;

    pthread_mutex_lock(&s->lock);
    if (!u->turn->after.on || gb_after_chained(&u->turn->after))
        gb_upload_chain_locked(u);
    pthread_mutex_unlock(&s->lock);
}

bool gb_upload_ready(struct gb_upload *u, const struct gb_error *error,
                     void (*end)(struct gb_transaction *transaction)) {
    if (error) {
        fail(u, error);
        return false;
    }
    if (u->own_turn && u->role->grow)
        chain(u);
    gb_transaction_done(&u->transaction);
    u->transaction = (struct gb_transaction){.session = u->t.session,
                                             .name = u->plan.buffer.name,
                                             .mark = u->mark,
                                             .upkeep = u->role->upkeep,
                                             .whole = !u->plan.partial && !u->plan.merge,
                                             .begun = u->plan.in_place,
                                             .turn = u->turn,
                                             .depends = u->plan.merge,
                                             .tee = u->disk.tee,
                                             .kept = take_kept(u),
                                             .new_id = u->disk.new_id,
                                             .validate_locked = validate_locked,
                                             .publish_locked = publish_locked,
                                             .end = end};
    return true;
}

/* --- the end of the payload --------------------------------------------------------------------------------------- */

void gb_upload_mark(struct gb_upload *upload, const struct gb_store_mark *mark) {
    upload->mark = *mark;
}

/* The upload has failed: what its client asks for next does not follow it any more. */
static void end_turn(struct gb_upload *u, const struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (!u->own_turn)
        return;
    if (err)
        why = *err;
    else
        gb_cancelled(&why);
    gb_turn_end(u->turn, &why);
}

int gb_upload_end(struct gb_upload *upload, struct gb_error *err) {
    bool complete = false;
    int r;

    gb_upload_reap(upload);
    if (upload->plan.open_ended) { /* a slot may be partly filled */
        if (gb_upload_flush(upload, err) < 0)
            return -1;
        gb_upload_drop_slot(upload);
    }
    if (gb_upload_watch_rest(upload, err) < 0 || (upload->role->ended && upload->role->ended(upload, err) < 0))
        return -1;
    pthread_mutex_lock(&upload->t.lock);
    r = gb_upload_alive_locked(upload, err);
    pthread_mutex_unlock(&upload->t.lock);
    if (r == 0 && !upload->plan.open_ended && upload->filled != upload->plan.payload)
        r = gb_error_set(err, GB_ERR_INCOMPLETE_BODY, "%llu of %llu bytes came", (unsigned long long)upload->filled,
                         (unsigned long long)upload->plan.payload);
    if (r == 0 && upload->role->ordered)
        r = gb_upload_take_turn(upload, true, err);
    pthread_mutex_lock(&upload->t.lock);
    if (r == 0)
        r = gb_upload_alive_locked(upload, err);
    if (r == 0 && gb_upload_step_locked(upload, GB_UPLOAD_ENDED)) {
        upload->t.want_wake = !upload->t.wake_on_error;
        complete = gb_upload_complete_locked(upload);
    }
    pthread_mutex_unlock(&upload->t.lock);
    if (complete)
        upload->role->complete(upload);
    if (r < 0)
        end_turn(upload, err);
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
    if (r < 0)
        end_turn(upload, err);
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

const struct gb_upload_role gb_upload_plain = {.ended = ended,
                                               .complete = complete,
                                               .committed = gb_upload_count,
                                               .gone = gb_upload_gone,
                                               .from_client = true,
                                               .ordered = true};

/* --- release ------------------------------------------------------------------------------------------------------ */

void gb_upload_drop_segments(struct gb_upload *u) {
    struct gb_content *c = u->segments.full;
    struct gb_content *next;

    u->segments.full = u->segments.last = NULL;
    for (; c; c = next) {
        next = c->next;
        gb_content_drop_later(c);
    }
}

struct gb_upload *gb_upload_of_transaction(struct gb_transaction *transaction) {
    return gb_container_of(transaction, struct gb_upload, transaction);
}

bool gb_upload_has_locked(const struct gb_upload *u, const struct gb_buffer *b) {
    if (!b || !b->live)
        return false;
    return u->plan.mirrored ? b->rec.mirrored && b->sides[u->plan.side] == u->content : b->content == u->content;
}

/* The reason is the core's own error, else the code that the layers above gave, else that the client went away. */
void gb_upload_count_failure(struct gb_upload *u) {
    enum gb_code code = u->t.error.code != GB_OK ? u->t.error.code : u->failure_reason;
    enum gb_failure why = code == GB_OK ? GB_FAILURE_incomplete_body : gb_failure_of(code, GB_FAILED_UPLOAD);

    if (u->state == GB_UPLOAD_PLANNED || u->state == GB_UPLOAD_DONE)
        return;
    gb_live_counters_failed(&u->t.core->live_counters, GB_FAILED_UPLOAD, why);
    gb_live_counters_failed(&u->t.session->live_counters, GB_FAILED_UPLOAD, why);
}

void gb_upload_stop_running(struct gb_upload *u) {
    if (u->running)
        atomic_fetch_sub(u->running, 1);
    u->running = NULL;
}

void gb_upload_dispose(struct gb_upload *u) {
    struct gb_session *s = u->t.session;

    if (u->own_turn && u->state != GB_UPLOAD_DONE)
        end_turn(u, u->t.error.code == GB_OK ? NULL : &u->t.error);
    gb_tee_free(u->disk.tee);
    free(u->disk.kept);
    gb_content_drop_later(u->content); /* this may be a backend's thread */
    gb_content_drop_later(u->base);
    gb_upload_drop_segments(u);
    gb_upload_rest_done(u);
    if (u->own_turn)
        gb_turn_free(u->turn);
    if (u->counted) {
        pthread_mutex_lock(&s->lock);
        gb_quota_give_locked(s, 0, 1);
        pthread_mutex_unlock(&s->lock);
    }
    gb_upload_stop_running(u);
    gb_core_changed(u->t.core);
    gb_event_pool_give(&u->t.device->events, u->usable);
    if (u->plan.check.free_arg)
        u->plan.check.free_arg(u->plan.check.arg);
    gb_core_transfer_done(&u->t);
    gb_transaction_done(&u->transaction);
    gb_text_unref(u->plan.buffer.labels);
    gb_after_done(&u->begins);
    free(u->unplanned);
    free(u->scratch);
    free(u);
}

void gb_upload_gone(struct gb_upload *u) {
    gb_upload_count_failure(u);
    gb_upload_dispose(u);
}

/* --- giving up ---------------------------------------------------------------------------------------------------- */

static int decide_break_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);

    if (!gb_upload_has_locked(u, b))
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was lost meanwhile");
    gb_buffer_copy_locked(b, &transaction->rec);
    transaction->rec.state = GB_BUFFER_PARTIAL;
    transaction->rec.head = u->plan.mirrored ? u->plan.head : GB_HEAD_UNINITIALIZED;
    transaction->rec.generation++;
    transaction->rec.version++;
    transaction->rec.has_crc32c = false;
    transaction->rec.crc32c = 0;
    transaction->rec.updated_at_us = gb_wall_us();
    return 0;
}

static void apply_break_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    gb_buffer_set_locked(transaction->session, b, &transaction->rec, b->content);
    b->in_place = false;
}

static void break_end(struct gb_transaction *transaction) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);
    struct gb_session *s = u->t.session;
    struct gb_error none = GB_ERROR_INIT;
    struct gb_buffer *b;

    /* The database refused the write: apply the change in memory anyway, because the next start marks the buffer
     * lost. */
    if (transaction->error.code != GB_OK) {
        pthread_mutex_lock(&s->lock);
        b = gb_map_get(&s->buffers, u->plan.buffer.name.s);
        if (b && b->live && decide_break_locked(transaction, b, &none) == 0)
            apply_break_locked(transaction, b);
        pthread_mutex_unlock(&s->lock);
    }
    u->role->gone(u);
}

/* Nothing was written: the buffer is as it was before the upload. */
static void undo_in_place(struct gb_upload *u) {
    struct gb_session *s = u->t.session;
    struct gb_buffer *b;

    pthread_mutex_lock(&s->lock);
    b = gb_map_get(&s->buffers, u->plan.buffer.name.s);
    if (b && b->in_place && gb_upload_has_locked(u, b)) {
        b->in_place = false;
        gb_kept_unmark(u->content);
    }
    pthread_mutex_unlock(&s->lock);
}

/* error: managed memory could not be handed back; the upload is given up all the same. */
static void destroy(struct gb_upload *u, const struct gb_error *error) {
    gb_core_report_error(u->t.core, error);
    if (!u->marked || !u->touched) {
        if (u->marked)
            undo_in_place(u);
        u->role->gone(u);
        return;
    }
    gb_transaction_done(&u->transaction);
    u->transaction = (struct gb_transaction){.session = u->t.session,
                                             .name = u->plan.buffer.name,
                                             .upkeep = true,
                                             .validate_locked = decide_break_locked,
                                             .publish_locked = apply_break_locked,
                                             .end = break_end};
    gb_transaction_start(&u->transaction);
}

void gb_upload_destroy(struct gb_core_transfer *transfer) {
    gb_upload_hand_back(gb_upload_of(transfer), destroy);
}

void gb_upload_set_reason(struct gb_upload *upload, enum gb_code why) {
    if (upload && upload->failure_reason == GB_OK)
        upload->failure_reason = why;
}

void gb_upload_free(struct gb_upload *upload) {
    if (!upload)
        return;
    gb_core_transfer_close(&upload->t);
    if (upload->unplanned)
        gb_upload_stay(upload);
    gb_upload_rest_never(upload);
    (void)gb_upload_watch_rest(upload, NULL);
    gb_upload_drop_slot(upload);
    atomic_store(&upload->alloc.cancelled, true);
    gb_core_transfer_unref(&upload->t);
}

/* A write in place cannot be undone once it is queued. */
bool gb_upload_cancel(struct gb_upload *u, bool act) {
    struct gb_error why = GB_ERROR_INIT;
    bool possible;

    pthread_mutex_lock(&u->t.lock);
    possible = u->state == GB_UPLOAD_ENDED && !u->plan.placed;
    if (possible && act) {
        gb_cancelled(&why);
        gb_upload_fail_locked(u, &why);
        atomic_store(&u->alloc.cancelled, true);
        gb_core_transfer_unlock_wake(&u->t);
    } else {
        pthread_mutex_unlock(&u->t.lock);
    }
    if (possible && act)
        end_turn(u, &why);
    return possible;
}
