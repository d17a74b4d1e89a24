/* A multipart upload's memory, from the reservation to the commit or the end. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/multipart/internal.h"

/* --- waiting calls ------------------------------------------------------------------------------------------------ */

bool gb_multipart_wait_locked(struct gb_multipart_waiter **list, struct gb_multipart_call *call) {
    struct gb_multipart_waiter *w = malloc(sizeof(*w));

    if (!w)
        return false;
    *w = (struct gb_multipart_waiter){.next = *list, .call = call};
    *list = w;
    return true;
}

void gb_multipart_drained_locked(struct gb_multipart *multipart, struct gb_multipart_waiter **ret) {
    *ret = NULL;
    if (multipart->append_locked)
        return;
    *ret = multipart->drain_waiters;
    multipart->drain_waiters = NULL;
}

void gb_multipart_appended_locked(struct gb_multipart *multipart, struct gb_multipart_waiter **ret) {
    multipart->append_locked = multipart->retracts;
    if (!multipart->retracts && multipart->append && multipart->append->discards)
        gb_waker_run(&multipart->append->waker);
    gb_multipart_drained_locked(multipart, ret);
}

void gb_multipart_finish_call(struct gb_multipart *multipart, struct gb_multipart_call *call,
                              const struct gb_error *error) {
    (void)gb_call_withdraw(&call->base, NULL);
    pthread_mutex_lock(&multipart->lock);
    gb_multipart_view_locked(multipart, &call->multipart);
    pthread_mutex_unlock(&multipart->lock);
    gb_call_finish(&call->base, error);
    gb_core_leave(multipart->core);
}

void gb_multipart_tell(struct gb_multipart *multipart, struct gb_multipart_waiter *list, const struct gb_error *error) {
    struct gb_multipart_waiter *next;

    for (; list; list = next) {
        next = list->next;
        gb_multipart_finish_call(multipart, list->call, error);
        free(list);
    }
}

/* --- the role of a target ----------------------------------------------------------------------------------------- */

/* A target receives no bytes itself: it holds the memory and the quota, and commits when all of its parts are there. */

/* The commit failed and changed nothing: the client may try it again. */
static void refuse(struct gb_upload *u, const struct gb_error *error) {
    struct gb_multipart *multipart = u->owner;

    gb_core_report_error(u->t.core, error);
    pthread_mutex_lock(&u->t.lock);
    multipart->refused = *error;
    (void)gb_upload_step_locked(u, GB_UPLOAD_OPEN);
    gb_core_transfer_unlock_wake(&u->t);
    gb_core_transfer_unref(&u->t);
}

static void commit_end(struct gb_transaction *transaction) {
    struct gb_upload *u = gb_upload_of_transaction(transaction);

    if (transaction->error.code == GB_OK)
        gb_upload_committed(u);
    else
        refuse(u, &transaction->error);
}

static void commit(struct gb_upload *u, const struct gb_error *error) {
    if (gb_upload_ready(u, error, commit_end))
        gb_transaction_start(&u->transaction);
}

static void complete(struct gb_upload *u) {
    gb_upload_hand_back(u, commit);
}

static void free_check(struct gb_buffer_check *check) {
    if (check->free_arg)
        check->free_arg(check->arg);
    *check = (struct gb_buffer_check){0};
}

static void behind_frees(struct gb_task *task) {
    struct gb_multipart *multipart = gb_container_of(task, struct gb_multipart, task);
    struct gb_multipart_waiter *end_waiters;

    pthread_mutex_lock(&multipart->lock);
    end_waiters = multipart->end_waiters;
    multipart->end_waiters = NULL;
    pthread_mutex_unlock(&multipart->lock);
    gb_multipart_tell(multipart, end_waiters, NULL);
    gb_multipart_unref(multipart);
}

/* The memory that bytes described which were taken back is free: others may come. */
static void behind_retracts(struct gb_task *task) {
    struct gb_multipart *multipart = gb_container_of(task, struct gb_multipart, task);
    struct gb_multipart_waiter *drained;

    pthread_mutex_lock(&multipart->lock);
    multipart->retracts = false;
    gb_multipart_appended_locked(multipart, &drained);
    pthread_mutex_unlock(&multipart->lock);
    gb_multipart_tell(multipart, drained, NULL);
    gb_multipart_unref(multipart);
}

struct gb_upload *gb_multipart_retract_locked(struct gb_multipart *multipart) {
    struct gb_upload *target = multipart->target;

    if (!target || (multipart->state != GB_MULTIPART_OPENING && multipart->state != GB_MULTIPART_OPEN))
        return NULL;
    gb_upload_plan_of(target)->check = (struct gb_buffer_check){0};
    multipart->target = NULL;
    multipart->state = GB_MULTIPART_HEADER;
    multipart->retracts = true;
    return target;
}

static void gone(struct gb_upload *u) {
    struct gb_multipart *multipart = u->owner;
    struct gb_core_device *device = u->t.device;
    bool retracts;

    pthread_mutex_lock(&multipart->lock);
    retracts = multipart->retracts;
    pthread_mutex_unlock(&multipart->lock);

    gb_upload_count_failure(u);
    free_check(&multipart->end_check);
    gb_upload_dispose(u);
    gb_multipart_release(multipart);
    multipart->task.run = retracts ? behind_retracts : behind_frees;
    gb_lane_post(&device->lane, &multipart->task); /* the free of its memory is ahead on the lane */
}

static const struct gb_upload_role target_role = {
    .complete = complete, .committed = gb_upload_count, .gone = gone, .from_client = true};

/* 1: bytes may be written into its memory; 0: wake follows; -1. */
static int opened(struct gb_upload *target, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&target->t.lock);
    r = gb_upload_alive_locked(target, err);
    if (r == 0)
        r = target->state == GB_UPLOAD_OPEN;
    target->t.want_wake = r == 0;
    pthread_mutex_unlock(&target->t.lock);
    return r;
}

static bool refused(struct gb_multipart *multipart) {
    struct gb_core_transfer *t = &multipart->target->t;
    bool r;

    pthread_mutex_lock(&t->lock);
    r = multipart->refused.code != GB_OK && t->error.code == GB_OK;
    pthread_mutex_unlock(&t->lock);
    return r;
}

static void result_done(struct gb_call *call) {
    gb_buffer_rec_done(&gb_container_of(call, struct gb_multipart_call, base)->buffer);
}

/* 1: the call has the result; 0: not yet, wake follows; -1: failed; when it was refused alone, it may be tried
 * again. */
static int outcome(struct gb_multipart *multipart, struct gb_multipart_call *call, struct gb_error *err) {
    if (refused(multipart)) {
        *err = multipart->refused;
        return -1;
    }
    call->base.free_result = result_done;
    return gb_upload_result(multipart->target, &call->buffer, &call->created, &call->times, err);
}

void gb_multipart_feed_locked(struct gb_multipart *multipart, const struct gb_buffer_check *check) {
    struct gb_upload *target = multipart->target;

    free_check(&multipart->end_check);
    if (check)
        multipart->end_check = *check;
    gb_upload_mark(target, &multipart->call->base.mark);
    multipart->state = GB_MULTIPART_COMPLETING;
    target->filled = target->plan.payload;
    target->crc = gb_ranges_crc(&multipart->ranges);
    pthread_mutex_lock(&target->t.lock);
    multipart->refused = GB_ERROR_INIT;
    pthread_mutex_unlock(&target->t.lock);
}

void gb_multipart_commit(struct gb_multipart *multipart, struct gb_upload *target) {
    struct gb_error err = GB_ERROR_INIT;

    (void)gb_upload_end(target, &err); /* a failure is recorded in the target */
    gb_multipart_look(multipart);
}

/* --- progress of the target --------------------------------------------------------------------------------------- */

/* Takes the target's progress over into the state. *ret_call: the call that ends with it, which is taken; NULL: none.
 * *ret_dead: the target has failed for good. The lock is held. Returns false if there is no progress. */
static bool progress_locked(struct gb_multipart *multipart, struct gb_multipart_call **ret_call, bool *ret_dead,
                            struct gb_error *err) {
    struct gb_upload *target = multipart->target;
    struct gb_multipart_call *call = multipart->call;
    int r;

    if (!target || (multipart->state != GB_MULTIPART_OPENING && multipart->state != GB_MULTIPART_COMPLETING))
        return false;
    if (multipart->state == GB_MULTIPART_OPENING)
        r = opened(target, err);
    else
        r = outcome(multipart, call, err);
    if (r == 0)
        return false;
    multipart->touched_ns = gb_clock_ns();
    *ret_dead = r < 0 && !refused(multipart);
    if (multipart->state == GB_MULTIPART_OPENING && r > 0) {
        multipart->state = GB_MULTIPART_OPEN;
        if (multipart->append)
            gb_waker_run(&multipart->append->waker);
    } else if (multipart->state == GB_MULTIPART_COMPLETING) {
        multipart->state = r > 0 ? GB_MULTIPART_DONE : GB_MULTIPART_OPEN;
        multipart->sealed = r < 0;
        if (r > 0)
            multipart->target = NULL;
    }
    *ret_call = call;
    multipart->call = NULL;
    return true;
}

void gb_multipart_look(struct gb_multipart *multipart) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload *target;
    struct gb_multipart_call *call = NULL;
    bool dead = false;
    bool news;
    bool done;

    pthread_mutex_lock(&multipart->lock);
    target = multipart->target;
    news = progress_locked(multipart, &call, &dead, &err);
    done = news && multipart->state == GB_MULTIPART_DONE;
    pthread_mutex_unlock(&multipart->lock);
    if (!news)
        return;
    gb_multipart_ref(multipart);
    if (done) {
        gb_multipart_remember(multipart);
        gb_upload_free(target);
    }
    if (dead)
        gb_multipart_end(multipart, &err);
    if (call)
        gb_multipart_finish_call(multipart, call, err.code == GB_OK ? NULL : &err);
    gb_multipart_unref(multipart);
}

static void woken(void *arg) {
    gb_multipart_look(arg);
}

int gb_multipart_target_start(struct gb_multipart *multipart, const struct gb_upload_params *params,
                              struct gb_error *err) {
    struct gb_upload_params p = *params;
    struct gb_upload *target;

    if (gb_multipart_hold(multipart, p.bytes, err) < 0)
        return -1;
    p.session = multipart->session;
    p.fresh = true;
    p.in_place = false;
    p.waker = (struct gb_waker){woken, multipart};
    gb_multipart_ref(multipart);
    target = gb_upload_make(multipart->core, &p, &target_role, multipart, err);
    if (!target) {
        gb_multipart_release(multipart);
        gb_multipart_unref(multipart);
        return -1;
    }
    target->end_check = &multipart->end_check;
    target->t.want_wake = true;
    gb_core_transfer_silence(&target->t);
    gb_upload_start(target, NULL);
    pthread_mutex_lock(&multipart->lock);
    multipart->bytes = p.bytes;
    if (multipart->state == GB_MULTIPART_HEADER) {
        multipart->target = target;
        multipart->state = GB_MULTIPART_OPENING;
        target = NULL;
    }
    pthread_mutex_unlock(&multipart->lock);
    gb_upload_free(target); /* not NULL: the multipart upload has ended meanwhile */
    gb_multipart_look(multipart);
    return 0;
}

/* --- begin -------------------------------------------------------------------------------------------------------- */

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Fails and wakes every part and append under way. */
static void cut_all_locked(struct gb_multipart *multipart, const struct gb_error *why) {
    struct gb_part *part;

    for (part = multipart->parts; part; part = part->next) {
        struct gb_upload *u = &part->upload;

        pthread_mutex_lock(&u->t.lock);
        u->t.want_wake = true; /* even if it waits only for its client */
        pthread_mutex_unlock(&u->t.lock);
        gb_upload_fail(u, why);
    }
    if (multipart->reader)
        gb_hash_reader_cut(multipart->reader);
    if (multipart->append) {
        multipart->append->cut = true;
        gb_waker_run(&multipart->append->waker);
    }
}

/* Returns false if the multipart upload is done or has ended already. The lock is held. */
static bool end_locked(struct gb_multipart *multipart, const struct gb_error *why) {
    if (multipart->state == GB_MULTIPART_DONE || multipart->state == GB_MULTIPART_ENDED)
        return false;
    multipart->state = GB_MULTIPART_ENDED;
    multipart->why = *why;
    cut_all_locked(multipart, why);
    return true;
}

/* Returns false without effect if it is done, has ended or, with opening, waits for no memory any more. */
static bool end(struct gb_multipart *multipart, const struct gb_error *why, bool opening) {
    struct gb_multipart_waiter *drain_waiters = NULL;
    struct gb_error gone = GB_ERROR_INIT;
    struct gb_upload *target = NULL;
    struct gb_multipart_call *call = NULL;
    bool ends;

    pthread_mutex_lock(&multipart->lock);
    ends = (!opening || multipart->state == GB_MULTIPART_OPENING) && end_locked(multipart, why);
    if (ends) {
        target = multipart->target;
        multipart->target = NULL;
        call = multipart->call;
        multipart->call = NULL;
        drain_waiters = multipart->drain_waiters;
        multipart->drain_waiters = NULL;
    }
    pthread_mutex_unlock(&multipart->lock);
    if (!ends)
        return false;
    gb_multipart_withdraw(multipart);
    gb_upload_free(target);
    /* Status queries get 404; writers get the cause. */
    gb_multipart_not_found(&gone);
    gb_multipart_tell(multipart, drain_waiters, &gone);
    if (call)
        gb_multipart_finish_call(multipart, call, why);
    gb_core_changed(multipart->core);
    return true;
}

void gb_multipart_end(struct gb_multipart *multipart, const struct gb_error *why) {
    (void)end(multipart, why, false);
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

static bool hold(void *arg) {
    gb_multipart_ref(arg);
    return true;
}

/* While it waits for memory. */
static bool cancel_opening(void *arg, bool act) {
    struct gb_multipart *multipart = arg;
    struct gb_error why = GB_ERROR_INIT;
    bool r;

    gb_cancelled(&why);
    if (act) {
        r = end(multipart, &why, true);
    } else {
        pthread_mutex_lock(&multipart->lock);
        r = multipart->state == GB_MULTIPART_OPENING;
        pthread_mutex_unlock(&multipart->lock);
    }
    gb_multipart_unref(multipart);
    return r;
}

void gb_multipart_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_multipart_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_multipart *multipart = NULL;

    gb_core_enter(core);
    if (gb_multipart_new(core, params, false, &multipart, &err) == 0) {
        multipart->call = call;
        gb_call_offer(&call->base, hold, cancel_opening, multipart);
        if (gb_multipart_target_start(multipart, params, &err) == 0) {
            gb_multipart_unref(multipart);
            return;
        }
        pthread_mutex_lock(&multipart->lock);
        call = multipart->call; /* unless it was told already: the session has ended */
        multipart->call = NULL;
        pthread_mutex_unlock(&multipart->lock);
        gb_multipart_end(multipart, &err);
        gb_multipart_unref(multipart);
    }
    if (params->check.free_arg)
        params->check.free_arg(params->check.arg);
    if (call) {
        (void)gb_call_withdraw(&call->base, NULL);
        gb_call_finish(&call->base, &err);
        gb_core_leave(core);
    }
}

/* --- deletion ----------------------------------------------------------------------------------------------------- */

/* 1: the call waits until the memory is free; 0: there is none; -1. */
static int start_delete(struct gb_multipart *multipart, struct gb_multipart_call *call, struct gb_error *err) {
    int r = 0;

    pthread_mutex_lock(&multipart->lock);
    if (multipart->state == GB_MULTIPART_COMPLETING)
        r = gb_multipart_check_locked(multipart, err);
    else if (multipart->state == GB_MULTIPART_ENDED)
        r = gb_multipart_not_found(err);
    else if (multipart->target)
        r = gb_multipart_wait_locked(&multipart->end_waiters, call) ? 1 : gb_no_memory(err);
    pthread_mutex_unlock(&multipart->lock);
    return r;
}

void gb_multipart_delete(struct gb_core *core, const struct gb_name *session, const char *id,
                         struct gb_multipart_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_error why = GB_ERROR_INIT;
    struct gb_multipart *multipart;
    int r = -1;

    gb_core_enter(core);
    multipart = gb_multipart_find(core, session, id, true, &err);
    if (multipart)
        r = start_delete(multipart, call, &err);
    if (r >= 0) {
        gb_multipart_not_found(&why);
        gb_multipart_end(multipart, &why);
        gb_multipart_withdraw(multipart); /* a completed one is forgotten */
    }
    if (r <= 0) {
        gb_call_finish(&call->base, r < 0 ? &err : NULL);
        gb_core_leave(core);
    }
    gb_multipart_unref(multipart);
}
