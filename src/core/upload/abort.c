/* What an upload leaves behind: nothing, or a buffer in state PARTIAL. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/multipart/internal.h"

static int decide_break_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct gb_upload *u = (struct gb_upload *)((char *)transaction - offsetof(struct gb_upload, transaction));

    if (!gb_upload_has_locked(u, b))
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer was lost meanwhile");
    transaction->rec = b->rec;
    transaction->rec.state = GB_BUFFER_PARTIAL;
    transaction->rec.head = u->mirrored ? u->head : GB_HEAD_UNINITIALIZED;
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

/* What the core found is why; else what those above said; else the client went away. */
static void count_failure(struct gb_upload *u) {
    enum gb_code code = u->t.error.code != GB_OK ? u->t.error.code : u->blamed;
    enum gb_failure why = code == GB_OK ? GB_FAILURE_incomplete_body : gb_failure_of(code, GB_FAILED_UPLOAD);

    gb_live_counters_failed(&u->t.core->live_counters, GB_FAILED_UPLOAD, why);
    gb_live_counters_failed(&u->t.session->live_counters, GB_FAILED_UPLOAD, why);
}

static void finalize(struct gb_upload *u) {
    struct gb_core *core = u->t.core;
    struct gb_session *s = u->t.session;
    struct gb_device_write *write = u->write;
    struct gb_multipart *multipart = u->multipart;
    struct gb_core_device *device = u->t.device;
    struct gb_upload *target = u->target;
    bool part = target != NULL;
    struct gb_upload_group *group = u->group;

    if (part)
        gb_part_gone(u);
    gb_content_drop_later(u->content); /* this may be a backend's thread */
    gb_content_drop_later(u->base);
    if (u->counted) {
        pthread_mutex_lock(&s->lock);
        gb_quota_give_locked(s, 0, 1);
        pthread_mutex_unlock(&s->lock);
    }
    if (!u->finished && !u->unstarted && !u->write && !part)
        count_failure(u);
    if (part || (!u->finished && !multipart && !u->unstarted))
        atomic_fetch_sub(u->write ? &core->writes_running : &core->uploads_running, 1);
    gb_core_changed(core);
    gb_event_pool_give(&u->t.device->events, u->usable);
    if (u->write)
        gb_staged_copy_release(&u->copies[0]);
    if (u->params.check.free_arg)
        u->params.check.free_arg(u->params.check.arg);
    if (u->end_check.free_arg)
        u->end_check.free_arg(u->end_check.arg);
    gb_core_transfer_done(&u->t);
    free(u->scratch);
    free(u);
    gb_upload_group_unref(group);
    if (write)
        gb_device_write_end(write);
    /* The target goes last: whoever waits for the end of the multipart upload finds the memory given back. */
    if (part)
        gb_core_transfer_unref(&target->t);
    if (part)
        gb_multipart_unref(multipart);
    else if (multipart)
        gb_multipart_target_gone(multipart, device);
}

static void break_end(struct gb_transaction *transaction) {
    struct gb_upload *u = (struct gb_upload *)((char *)transaction - offsetof(struct gb_upload, transaction));
    struct gb_session *s = u->t.session;
    struct gb_error none = GB_ERROR_INIT;
    struct gb_buffer *b;

    /* The database would not have it: true in memory all the same, and the next start calls it lost anyway. */
    if (transaction->error.code != GB_OK) {
        pthread_mutex_lock(&s->lock);
        b = gb_map_get(&s->buffers, u->params.buffer.name.s);
        if (b && b->live && decide_break_locked(transaction, b, &none) == 0)
            apply_break_locked(transaction, b);
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
    if (b && b->in_place && gb_upload_has_locked(u, b))
        b->in_place = false;
    pthread_mutex_unlock(&s->lock);
}

/* Whether managed memory could be handed back or not. */
static void destroy(struct gb_upload *u, const struct gb_error *error) {
    gb_core_report_error(u->t.core, error);
    if (!u->in_place || !u->touched) {
        if (u->in_place)
            undo_in_place(u);
        finalize(u);
        return;
    }
    u->transaction = (struct gb_transaction){.session = u->t.session,
                                             .name = u->params.buffer.name,
                                             .validate_locked = decide_break_locked,
                                             .publish_locked = apply_break_locked,
                                             .end = break_end};
    gb_transaction_start(&u->transaction);
}

void gb_upload_destroy(struct gb_core_transfer *transfer) {
    struct gb_upload *u = gb_upload_of(transfer);

    if (u->write && u->write->call)
        gb_call_withdraw(&u->write->call->base, NULL);
    if (u->attached)
        gb_upload_hand_back(u, destroy);
    else
        destroy(u, NULL);
}

void gb_upload_blame(struct gb_upload *upload, enum gb_code why) {
    if (upload && upload->blamed == GB_OK)
        upload->blamed = why;
}

void gb_upload_free(struct gb_upload *upload) {
    struct gb_staged_copy *f;

    if (!upload)
        return;
    gb_core_transfer_close(&upload->t);
    (void)gb_upload_watch_rest(upload, NULL);
    f = upload->filling;
    upload->filling = NULL;
    if (f)
        gb_staged_copy_release(f);
    atomic_store(&upload->alloc.cancelled, true);
    gb_core_transfer_unref(&upload->t);
}

/* What is overwritten where it is cannot be undone, once it is queued. */
bool gb_upload_cancel(struct gb_upload *u, bool act) {
    bool possible;

    pthread_mutex_lock(&u->t.lock);
    possible = u->ended && !u->placed && !u->committing && !u->finished && u->t.error.code == GB_OK;
    if (possible && act) {
        gb_cancelled(&u->t.error);
        atomic_store(&u->alloc.cancelled, true);
        gb_core_transfer_unlock_wake(&u->t);
    } else {
        pthread_mutex_unlock(&u->t.lock);
    }
    return possible;
}
