/* The end of a lease: written bytes get a generation, the memory is freed after its last user. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/share/lease_internal.h"

/* --- a new generation --------------------------------------------------------------------------------------------- */

void gb_lease_commit(struct gb_lease *lease, const struct gb_transaction *how) {
    lease->transaction->decided = false;
    gb_transaction_done(&lease->transaction->transaction);
    lease->transaction->transaction = *how;
    lease->transaction->transaction.session = lease->session;
    lease->transaction->transaction.name = lease->buffer;
    gb_transaction_start(&lease->transaction->transaction);
}

void gb_lease_describe(const struct gb_buffer *b, enum gb_head head, struct gb_buffer_rec *ret) {
    gb_buffer_copy_locked(b, ret);
    ret->head = head;
    ret->generation++;
    ret->version++;
    ret->has_crc32c = false;
    ret->crc32c = 0;
    ret->updated_at_us = gb_wall_us();
}

void gb_lease_apply_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    /* If the device died while the database was busy, the bytes stay lost. */
    gb_buffer_keep_state_locked(b, &transaction->rec);
    gb_buffer_set_locked(transaction->session, b, &transaction->rec, b->content);
}

static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    struct gb_lease *lease = gb_lease_of(transaction);
    enum gb_head head;

    (void)b;
    b = gb_lease_current_locked(lease, &head);
    if (!b)
        return gb_error_set(err, GB_ERR_BUFFER_NOT_FOUND, "the buffer has other bytes by now");
    gb_lease_describe(b, head, &transaction->rec);
    lease->transaction->decided = true;
    return 0;
}

static void left(struct gb_transaction *transaction) {
    struct gb_lease *lease = gb_lease_of(transaction);
    struct gb_session *s = lease->session;
    struct gb_error none = GB_ERROR_INIT;

    /* The database write failed; apply the change in memory anyway, because a restart loses the content. */
    if (transaction->error.code != GB_OK && lease->transaction->decided) {
        lease->error = transaction->error;
        pthread_mutex_lock(&s->lock);
        if (validate_locked(transaction, NULL, &none) == 0)
            gb_lease_apply_locked(transaction, gb_lease_buffer_locked(lease));
        if (gb_lease_buffer_locked(lease))
            gb_buffer_note_behind_locked(s, gb_lease_buffer_locked(lease));
        pthread_mutex_unlock(&s->lock);
    }
    gb_lease_over(lease);
}

/* --- over --------------------------------------------------------------------------------------------------------- */

static void gone(void *arg) {
    struct gb_lease *lease = arg;
    struct gb_call *call = lease->call;
    struct gb_error error = lease->error;

    gb_session_touch(lease->session); /* until now it was in use */
    gb_core_changed(lease->core);
    gb_lease_unref(lease);
    if (call)
        gb_call_finish(call, error.code == GB_OK ? NULL : &error);
}

static void drop(struct gb_lease *lease) {
    struct gb_content *c = lease->content;

    lease->content = NULL;
    if (lease->call) {
        gb_content_drop(c, gone, lease);
        return;
    }
    gb_content_drop_later(c);
    gone(lease);
}

/* On the lane. */
static void drop_event(struct gb_task *task) {
    struct gb_lease *lease = (struct gb_lease *)task;

    gb_event_destroy(lease->core->backend, lease->event);
    gb_event_destroy(lease->core->backend, lease->finished);
    drop(lease);
}

void gb_lease_over(struct gb_lease *lease) {
    struct gb_session *s = lease->session;
    struct gb_lane *lane = &lease->content->device->lane;

    gb_export_done(&lease->export);
    pthread_mutex_lock(&s->lock);
    if (gb_lease_withdraw_locked(lease))
        lease->content = NULL;
    pthread_mutex_unlock(&s->lock);
    if (lease->granted) {
        atomic_fetch_sub(&lease->core->leases->live, 1);
        GB_COUNT(lease->core, s, unmaps, 1);
        gb_notice_post_lease(lease, GB_NOTICE_LEASE_ENDED);
    }
    if (!lease->event && !lease->finished) {
        drop(lease);
        return;
    }
    lease->task.run = drop_event;
    gb_lane_post(lane, &lease->task);
}

/* --- asking for it ------------------------------------------------------------------------------------------------ */

bool gb_lease_decide_locked(struct gb_lease *lease) {
    enum gb_head head;
    bool commit = lease->pin.write && !atomic_load(&lease->core->closing) && gb_lease_current_locked(lease, &head);

    lease->step = commit ? GB_LEASE_LEAVING : GB_LEASE_OVER;
    return commit;
}

/* True when there is something to do for the caller: leave. */
static bool close_locked(struct gb_lease *lease, bool outside, bool *ret_commit) {
    if (lease->step == GB_LEASE_MAKING)
        lease->cut = true;
    if (lease->step != GB_LEASE_LIVE)
        return false;
    if (outside &&
        lease->pin.write) /* the record says so when the lease is withdrawn: until then it is one that writes */
        lease->content->tainted = true;
    if (lease->finished && !atomic_load(&lease->core->closing))
        lease->step = GB_LEASE_FINISHING;
    else
        *ret_commit = gb_lease_decide_locked(lease);
    return true;
}

void gb_lease_leave(struct gb_lease *lease, bool commit) {
    static const struct gb_transaction how = {
        .upkeep = true, .validate_locked = validate_locked, .publish_locked = gb_lease_apply_locked, .end = left};

    if (commit)
        gb_lease_commit(lease, &how);
    else
        gb_lease_over(lease);
}

/* Only the lane takes a lease that is finishing any further. */
static void leave(struct gb_lease *lease, bool commit) {
    if (lease->step == GB_LEASE_FINISHING)
        gb_lease_finish(lease);
    else
        gb_lease_leave(lease, commit);
}

void gb_lease_close(struct gb_lease *lease, bool outside) {
    bool commit = false;
    bool go;

    pthread_mutex_lock(&lease->session->lock);
    go = close_locked(lease, outside, &commit);
    pthread_mutex_unlock(&lease->session->lock);
    if (go)
        leave(lease, commit);
}

int gb_lease_not_found(int64_t id, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_LEASE_NOT_FOUND, "there is no lease %lld, or it has ended", (long long)id);
}

struct gb_lease *gb_lease_find(struct gb_core *core, int64_t id, struct gb_error *err) {
    struct gb_lease *lease;

    pthread_mutex_lock(&core->leases->lock);
    lease = id > 0 ? gb_idlist_after(&core->leases->by_id, id - 1, NULL) : NULL;
    if (lease && lease->pin.id == id)
        gb_lease_ref(lease);
    else
        lease = NULL;
    pthread_mutex_unlock(&core->leases->lock);
    if (!lease)
        gb_lease_not_found(id, err);
    return lease;
}

static int end_locked(struct gb_lease *lease, const struct gb_holder *holder, bool outside, struct gb_call *call,
                      bool *ret_commit, struct gb_error *err) {
    if (lease->step != GB_LEASE_LIVE)
        return gb_lease_not_found(lease->pin.id, err);
    if (holder && lease->holder != holder)
        return gb_error_set(err, GB_ERR_MAP_NOT_PERMITTED,
                            "lease %lld belongs to another connection: that one ends it, or a token of scope admin",
                            (long long)lease->pin.id);
    lease->call = call;
    close_locked(lease, outside, ret_commit);
    return 0;
}

void gb_lease_end(struct gb_core *core, int64_t id, struct gb_holder *holder, bool outside, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease *lease = gb_lease_find(core, id, &err);
    bool commit = false;
    int r = -1;

    if (lease) {
        pthread_mutex_lock(&lease->session->lock);
        r = end_locked(lease, holder, outside, call, &commit, &err);
        pthread_mutex_unlock(&lease->session->lock);
    }
    if (r == 0)
        leave(lease, commit);
    else
        gb_call_finish(call, &err);
    gb_lease_unref(lease);
}
