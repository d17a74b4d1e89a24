/* An intake's memory, from the reservation to the commit or the end. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/multipart/internal.h"

/* --- who waits ---------------------------------------------------------------------------------------------------------------- */

bool gb_intake_wait_locked(struct gb_intake_waiter **list, struct gb_call *call) {
    struct gb_intake_waiter *w = malloc(sizeof(*w));

    if (!w)
        return false;
    *w = (struct gb_intake_waiter){.next = *list, .call = call};
    *list = w;
    return true;
}

void gb_intake_settled_locked(struct gb_intake *intake, struct gb_intake_waiter **ret) {
    *ret = NULL;
    if (intake->turn)
        return;
    *ret = intake->settlers;
    intake->settlers = NULL;
}

void gb_intake_finish_call(struct gb_intake *intake, struct gb_call *call, const struct gb_error *error) {
    pthread_mutex_lock(&intake->lock);
    gb_intake_view_locked(intake, &call->intake);
    pthread_mutex_unlock(&intake->lock);
    gb_call_finish(call, error);
    gb_core_leave(intake->core);
}

void gb_intake_tell(struct gb_intake *intake, struct gb_intake_waiter *list, const struct gb_error *error) {
    struct gb_intake_waiter *next;

    for (; list; list = next) {
        next = list->next;
        gb_intake_finish_call(intake, list->call, error);
        free(list);
    }
}

/* --- what became of the carrier -------------------------------------------------------------------------------------------------- */

/* Under the lock. True: there is something to tell intake->call, which is taken. *ret_dead: it has failed for good. */
static bool progress_locked(struct gb_intake *intake, struct gb_call **ret_call, bool *ret_dead, struct gb_error *err) {
    struct gb_upload *carrier = intake->carrier;
    struct gb_call *call = intake->call;
    int r;

    if (!carrier || (intake->state != GB_INTAKE_OPENING && intake->state != GB_INTAKE_COMPLETING))
        return false;
    if (intake->state == GB_INTAKE_OPENING)
        r = gb_upload_opened(carrier, err);
    else
        r = gb_upload_outcome(carrier, call, err);
    if (r == 0)
        return false;
    intake->touched_ns = gb_clock_ns();
    *ret_dead = r < 0 && !gb_upload_refused(carrier);
    if (intake->state == GB_INTAKE_OPENING && r > 0) {
        intake->state = GB_INTAKE_OPEN;
        if (intake->append)
            intake->append->wake(intake->append->arg);
    } else if (intake->state == GB_INTAKE_COMPLETING) {
        intake->state = r > 0 ? GB_INTAKE_DONE : GB_INTAKE_OPEN;
        intake->sealed = r < 0;
        if (r > 0)
            intake->carrier = NULL;
    }
    *ret_call = call;
    intake->call = NULL;
    return true;
}

/* Something may have happened. */
void gb_intake_look(struct gb_intake *intake) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload *carrier;
    struct gb_call *call = NULL;
    bool dead = false;
    bool news;
    bool done;

    pthread_mutex_lock(&intake->lock);
    carrier = intake->carrier;
    news = progress_locked(intake, &call, &dead, &err);
    done = news && intake->state == GB_INTAKE_DONE;
    pthread_mutex_unlock(&intake->lock);
    if (!news)
        return;
    gb_intake_ref(intake);
    if (done) {
        gb_intake_remember(intake);
        gb_upload_free(carrier);
    }
    if (dead)
        gb_intake_end(intake, &err);
    if (call)
        gb_intake_finish_call(intake, call, err.code == GB_OK ? NULL : &err);
    gb_intake_unref(intake);
}

static void woken(void *arg) {
    gb_intake_look(arg);
}

int gb_intake_carry(struct gb_intake *intake, const struct gb_upload_params *params, struct gb_error *err) {
    struct gb_upload_params p = *params;
    struct gb_upload *carrier;

    if (gb_intake_hold(intake, p.bytes, err) < 0)
        return -1;
    p.fresh = true;
    p.in_place = false;
    p.wake = woken;
    p.arg = intake;
    gb_intake_ref(intake);
    if (gb_upload_carry(intake->core, &p, intake, &carrier, err) < 0) {
        gb_intake_release(intake);
        gb_intake_unref(intake);
        return -1;
    }
    pthread_mutex_lock(&intake->lock);
    intake->bytes = p.bytes;
    if (intake->state == GB_INTAKE_LEAD) {
        intake->carrier = carrier;
        intake->state = GB_INTAKE_OPENING;
        carrier = NULL;
    }
    pthread_mutex_unlock(&intake->lock);
    gb_upload_free(carrier); /* it was ended meanwhile */
    gb_intake_look(intake);
    return 0;
}

/* --- begin ---------------------------------------------------------------------------------------------------------------------- */

void gb_intake_begin(struct gb_core *core, const struct gb_upload_params *params, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_intake *intake = NULL;

    gb_core_enter(core);
    if (gb_intake_new(core, &params->buffer.session, &params->buffer.name, false, &intake, &err) == 0) {
        intake->call = call;
        if (gb_intake_carry(intake, params, &err) == 0) {
            gb_intake_unref(intake);
            return;
        }
        pthread_mutex_lock(&intake->lock);
        call = intake->call; /* unless it was told already: the session has ended */
        intake->call = NULL;
        pthread_mutex_unlock(&intake->lock);
        gb_intake_end(intake, &err);
        gb_intake_unref(intake);
    }
    if (params->check.free_arg)
        params->check.free_arg(params->check.arg);
    if (call)
        gb_call_finish(call, &err);
    if (call)
        gb_core_leave(core);
}

/* --- the end ------------------------------------------------------------------------------------------------------------------------ */

static void behind_frees(struct gb_task *task) {
    struct gb_intake *intake = (struct gb_intake *)((char *)task - offsetof(struct gb_intake, task));
    struct gb_intake_waiter *enders;

    pthread_mutex_lock(&intake->lock);
    enders = intake->enders;
    intake->enders = NULL;
    pthread_mutex_unlock(&intake->lock);
    gb_intake_tell(intake, enders, NULL);
    gb_intake_unref(intake);
}

void gb_intake_carrier_gone(struct gb_intake *intake, struct gb_core_device *device) {
    gb_intake_release(intake);
    intake->task.run = behind_frees;
    gb_lane_post(&device->lane, &intake->task); /* its free stands there already */
}

/* Whoever is under way hears of it. */
static void cut_all_locked(struct gb_intake *intake, const struct gb_error *why) {
    struct gb_upload *part;

    for (part = intake->parts; part; part = part->part_next) {
        pthread_mutex_lock(&part->t.lock);
        part->t.want_wake = true; /* though it waits for nothing but its client */
        pthread_mutex_unlock(&part->t.lock);
        gb_transfer_fail(&part->t, why);
    }
    if (intake->reading)
        gb_reading_cut(intake->reading);
    if (intake->append) {
        intake->append->cut = true;
        intake->append->wake(intake->append->arg);
    }
}

/* NULL: it is done, or ended already. */
static bool end_locked(struct gb_intake *intake, const struct gb_error *why) {
    if (intake->state == GB_INTAKE_DONE || intake->state == GB_INTAKE_ENDED)
        return false;
    intake->state = GB_INTAKE_ENDED;
    intake->why = *why;
    cut_all_locked(intake, why);
    return true;
}

void gb_intake_end(struct gb_intake *intake, const struct gb_error *why) {
    struct gb_intake_waiter *settlers = NULL;
    struct gb_error gone = GB_ERROR_INIT;
    struct gb_upload *carrier = NULL;
    struct gb_call *call = NULL;
    bool ends;

    pthread_mutex_lock(&intake->lock);
    ends = end_locked(intake, why);
    if (ends) {
        carrier = intake->carrier;
        intake->carrier = NULL;
        call = intake->call;
        intake->call = NULL;
        settlers = intake->settlers;
        intake->settlers = NULL;
    }
    pthread_mutex_unlock(&intake->lock);
    if (!ends)
        return;
    gb_intake_withdraw(intake);
    gb_upload_free(carrier);
    /* Who asked where it stands is told that it is no more: why is for those that wrote to it. */
    gb_intake_not_found(&gone);
    gb_intake_tell(intake, settlers, &gone);
    if (call)
        gb_intake_finish_call(intake, call, why);
    gb_core_changed(intake->core);
}

/* 1: the call waits until the memory is free; 0: there is none; -1. */
static int start_delete(struct gb_intake *intake, struct gb_call *call, struct gb_error *err) {
    int r = 0;

    pthread_mutex_lock(&intake->lock);
    if (intake->state == GB_INTAKE_COMPLETING)
        r = gb_intake_check_locked(intake, err);
    else if (intake->state == GB_INTAKE_ENDED)
        r = gb_intake_not_found(err);
    else if (intake->carrier)
        r = gb_intake_wait_locked(&intake->enders, call) ? 1 : gb_no_memory(err);
    pthread_mutex_unlock(&intake->lock);
    return r;
}

void gb_intake_delete(struct gb_core *core, const struct gb_name *session, const char *id, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_error why = GB_ERROR_INIT;
    struct gb_intake *intake;
    int r = -1;

    gb_core_enter(core);
    intake = gb_intake_find(core, session, id, true, &err);
    if (intake)
        r = start_delete(intake, call, &err);
    if (r >= 0) {
        gb_intake_not_found(&why);
        gb_intake_end(intake, &why);
        gb_intake_withdraw(intake); /* a completed one is forgotten */
    }
    if (r <= 0) {
        gb_call_finish(call, r < 0 ? &err : NULL);
        gb_core_leave(core);
    }
    gb_intake_unref(intake);
}
