/* What an upload leaves behind: nothing, or a buffer in state PARTIAL. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/upload/upload.h"

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

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The core's own error is the reason; else what the layers above said; else the client went away. */
void gb_upload_count_failure(struct gb_upload *u) {
    enum gb_code code = u->t.error.code != GB_OK ? u->t.error.code : u->blamed;
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

    gb_tee_free(u->disk.tee);
    free(u->disk.kept);
    gb_content_drop_later(u->content); /* this may be a backend's thread */
    gb_content_drop_later(u->base);
    gb_upload_drop_segments(u);
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
    free(u->scratch);
    free(u);
}

/* --- in place ----------------------------------------------------------------------------------------------------- */

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
    if (b && b->in_place && gb_upload_has_locked(u, b))
        b->in_place = false;
    pthread_mutex_unlock(&s->lock);
}

/* Whether managed memory could be handed back or not. */
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

/* --- giving up ---------------------------------------------------------------------------------------------------- */

void gb_upload_blame(struct gb_upload *upload, enum gb_code why) {
    if (upload && upload->blamed == GB_OK)
        upload->blamed = why;
}

void gb_upload_free(struct gb_upload *upload) {
    if (!upload)
        return;
    gb_core_transfer_close(&upload->t);
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
    return possible;
}
