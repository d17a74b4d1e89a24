/* The steps of an upload: what is permitted, how it fails, what its commit waits for. Every step is made here, under
 * the lock of the transfer, and one thread alone takes an upload to its commit. The files that implement an upload call
 * this. */
#include "core/transfer/upload.h"

#include <assert.h>

#include "core/util/lane.h"

#define TO(state) (1u << (state))

/* The steps that are permitted. A part is OPEN at once; an upload that grows allocates again; a device write has ENDED
 * before its memory is there; a commit that changed nothing may be tried again. */
static const unsigned permitted[GB_UPLOAD_STATES] = {
    [GB_UPLOAD_PLANNED] = TO(GB_UPLOAD_ALLOCATING) | TO(GB_UPLOAD_OPEN),
    [GB_UPLOAD_ALLOCATING] = TO(GB_UPLOAD_OPEN) | TO(GB_UPLOAD_ENDED) | TO(GB_UPLOAD_FAILED),
    [GB_UPLOAD_OPEN] = TO(GB_UPLOAD_ALLOCATING) | TO(GB_UPLOAD_ENDED) | TO(GB_UPLOAD_FAILED),
    [GB_UPLOAD_ENDED] = TO(GB_UPLOAD_COMMITTING) | TO(GB_UPLOAD_FAILED),
    [GB_UPLOAD_COMMITTING] = TO(GB_UPLOAD_DONE) | TO(GB_UPLOAD_OPEN) | TO(GB_UPLOAD_FAILED),
    [GB_UPLOAD_DONE] = 0,
    [GB_UPLOAD_FAILED] = 0,
};

bool gb_upload_step_permitted(enum gb_upload_state from, enum gb_upload_state to) {
    return (permitted[from] & TO(to)) != 0;
}

bool gb_upload_step_locked(struct gb_upload *u, enum gb_upload_state to) {
    if (gb_upload_step_permitted(u->state, to)) {
        u->state = to;
        return true;
    }
#ifndef __OPTIMIZE__
    assert(!"a step of an upload that the table does not permit");
#endif
    gb_error_set(&u->t.error, GB_ERR_INTERNAL, "an upload cannot go from state %d to %d", (int)u->state, (int)to);
    return false;
}

bool gb_upload_step(struct gb_upload *u, enum gb_upload_state to) {
    bool r;

    pthread_mutex_lock(&u->t.lock);
    r = gb_upload_step_locked(u, to);
    pthread_mutex_unlock(&u->t.lock);
    return r;
}

/* --- failing ------------------------------------------------------------------------------------------------------ */

/* A commit that runs is not stopped, and what is over stays as it is. */
static bool stoppable(enum gb_upload_state state) {
    return state == GB_UPLOAD_ALLOCATING || state == GB_UPLOAD_OPEN || state == GB_UPLOAD_ENDED;
}

void gb_upload_fail_locked(struct gb_upload *u, const struct gb_error *error) {
    if (u->t.error.code == GB_OK)
        u->t.error = *error;
    if (stoppable(u->state))
        (void)gb_upload_step_locked(u, GB_UPLOAD_FAILED);
}

void gb_upload_fail(struct gb_upload *u, const struct gb_error *error) {
    gb_core_report_error(u->t.core, error);
    pthread_mutex_lock(&u->t.lock);
    gb_upload_fail_locked(u, error);
    gb_core_transfer_unlock_wake(&u->t);
}

int gb_upload_alive_locked(struct gb_upload *u, struct gb_error *err) {
    int r = gb_core_transfer_check_locked(&u->t, false, err);

    if (r < 0)
        gb_upload_fail_locked(u, &u->t.error);
    return r;
}

/* --- what the commit waits for ------------------------------------------------------------------------------------ */

void gb_upload_pend_locked(struct gb_upload *u) {
    u->pending++;
}

void gb_upload_pended_locked(struct gb_upload *u, const struct gb_error *error) {
    u->pending--;
    if (error)
        gb_upload_fail_locked(u, error);
}

int gb_upload_watch(struct gb_upload *u, struct gb_ev *event, void (*fn)(void *arg, const struct gb_error *error),
                    void *arg, struct gb_error *err) {
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pend_locked(u);
    pthread_mutex_unlock(&u->t.lock);
    gb_core_transfer_ref(&u->t);
    if (gb_look_watch(u->t.core->backend, event->event, fn, arg, err) == 0)
        return 0;
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pended_locked(u, NULL);
    pthread_mutex_unlock(&u->t.lock);
    gb_core_transfer_unref(&u->t); /* never the last: the caller has one */
    return -1;
}

void gb_upload_opened_locked(struct gb_upload *u) {
    u->pending--;
    if (u->state == GB_UPLOAD_ALLOCATING)
        (void)gb_upload_step_locked(u, GB_UPLOAD_OPEN);
}

bool gb_upload_complete_locked(struct gb_upload *u) {
    if (u->state != GB_UPLOAD_ENDED || u->pending > 0 || !gb_upload_step_locked(u, GB_UPLOAD_COMMITTING))
        return false;
    gb_core_transfer_ref(&u->t);
    return true;
}

void gb_upload_unlock_advance(struct gb_upload *u) {
    if (gb_upload_complete_locked(u)) {
        pthread_mutex_unlock(&u->t.lock);
        u->role->complete(u);
    } else {
        gb_core_transfer_unlock_wake(&u->t);
    }
}
