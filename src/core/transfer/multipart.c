/* Multipart uploads: the list of a session's, and the target of each, the upload that owns memory, quota and commit. A
 * session lists an open one until it ends, and remembers a completed one for clients that missed the reply. Handlers,
 * the housekeeper and parts.c call this. */
#include "core/transfer/multipart.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/thread.h"
#include "core/public/upload.h"

/* --- making ------------------------------------------------------------------------------------------------------- */

struct gb_multipart *gb_multipart_ref(struct gb_multipart *multipart) {
    atomic_fetch_add(&multipart->refs, 1);
    return multipart;
}

static void free_gaps(struct gb_gaps *gaps) {
    if (gaps->free_arg)
        gaps->free_arg(gaps->arg);
    *gaps = (struct gb_gaps){0};
}

static void free_header(struct gb_multipart *multipart) {
    atomic_fetch_sub(&multipart->core->multipart_headers, multipart->header_size);
    free(multipart->header);
    multipart->header = NULL;
    multipart->header_size = 0;
}

void gb_multipart_unref(struct gb_multipart *multipart) {
    if (!multipart || atomic_fetch_sub(&multipart->refs, 1) != 1)
        return;
    if (multipart->free_app)
        multipart->free_app(multipart->app);
    gb_ranges_done(&multipart->ranges);
    gb_ranges_done(&multipart->file_ranges);
    free_gaps(&multipart->gaps);
    free_header(multipart);
    pthread_mutex_destroy(&multipart->lock);
    gb_session_unref(multipart->session);
    free(multipart);
}

static int enroll_locked(struct gb_session *s, struct gb_multipart *multipart, struct gb_place *place,
                         struct gb_error *err) {
    uint64_t max = s->core->config.multiparts_max ? s->core->config.multiparts_max : GB_MULTIPARTS_MAX;

    if (gb_session_changeable_locked(s, err) < 0)
        return -1;
    if (s->multiparts_open >= max)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "session \"%s\" has %llu open uploads, the permitted number (--max-uploads)",
                            gb_session_client_name(s)->s, (unsigned long long)s->multiparts_open);
    if (gb_idlist_put(&s->multiparts, multipart->number, multipart) < 0)
        return gb_no_memory(err);
    s->multiparts_open++;
    multipart->counted = true;
    multipart->listed = true;
    if (place) {
        multipart->place = *place;
        place->end = NULL;
    }
    gb_multipart_ref(multipart);
    return 0;
}

int gb_multipart_new(struct gb_core *core, const struct gb_upload_params *params, bool appends,
                     struct gb_multipart **ret, struct gb_error *err) {
    struct gb_session *s = gb_session_use_held(core, params->session, &params->buffer.session, err);
    struct gb_multipart *multipart = s ? calloc(1, sizeof(*multipart)) : NULL;
    int r;

    if (!multipart) {
        gb_session_unref(s);
        return gb_no_memory(err); /* the first error stays */
    }
    atomic_init(&multipart->refs, 1);
    multipart->core = core;
    multipart->session = s;
    multipart->number = atomic_fetch_add(&core->last_multipart, 1) + 1;
    multipart->buffer = params->buffer.name;
    multipart->appends = appends;
    multipart->created_at_us = gb_wall_us();
    multipart->touched_ns = gb_clock_ns();
    gb_mutex_init(&multipart->lock);
    pthread_mutex_lock(&s->lock);
    r = enroll_locked(s, multipart, params->place, err);
    pthread_mutex_unlock(&s->lock);
    if (r < 0) {
        gb_multipart_unref(multipart);
        return -1;
    }
    *ret = multipart;
    return 0;
}

/* Takes the multipart upload out of the number of open ones. The session's lock is held. */
static void uncount_locked(struct gb_multipart *multipart) {
    multipart->session->multiparts_open -= multipart->counted;
    multipart->counted = false;
    if (multipart->place.end)
        multipart->place.end(multipart->place.arg);
    multipart->place.end = NULL;
}

/* Takes the multipart upload out of the list and drops the list's reference. */
static void withdraw(struct gb_multipart *multipart) {
    struct gb_session *s = multipart->session;
    bool listed;

    pthread_mutex_lock(&s->lock);
    listed = multipart->listed;
    if (listed)
        gb_idlist_take(&s->multiparts, multipart->number);
    uncount_locked(multipart);
    multipart->listed = false;
    pthread_mutex_unlock(&s->lock);
    if (listed)
        gb_multipart_unref(multipart);
}

/* --- the bytes that they hold ------------------------------------------------------------------------------------- */

/* Counts the bytes that the multipart upload holds, against the limit of all. Returns 0 or -1. Errors:
 * LIMIT_REACHED. */
static int hold_bytes(struct gb_multipart *multipart, uint64_t bytes, struct gb_error *err) {
    struct gb_core *core = multipart->core;
    uint64_t max = core->config.multipart_bytes_max ? core->config.multipart_bytes_max : GB_UNLIMITED;
    uint64_t held = atomic_fetch_add(&core->multipart_bytes, bytes);

    if (held > max || bytes > max - held) {
        atomic_fetch_sub(&core->multipart_bytes, bytes);
        gb_error_numbers(err, max, held, bytes);
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "open uploads may hold %llu bytes in all (--max-upload-bytes) and hold %llu: %llu more do "
                            "not fit",
                            (unsigned long long)max, (unsigned long long)held, (unsigned long long)bytes);
    }
    pthread_mutex_lock(&multipart->session->lock);
    multipart->session->multipart_bytes += bytes;
    multipart->held_bytes = bytes;
    pthread_mutex_unlock(&multipart->session->lock);
    return 0;
}

static void release_bytes(struct gb_multipart *multipart) {
    struct gb_session *s = multipart->session;
    uint64_t bytes;

    pthread_mutex_lock(&s->lock);
    bytes = multipart->held_bytes;
    s->multipart_bytes -= bytes;
    multipart->held_bytes = 0;
    pthread_mutex_unlock(&s->lock);
    atomic_fetch_sub(&multipart->core->multipart_bytes, bytes);
}

/* The number of completed ones that are listed. *ret: the first of them with a reference, or NULL. */
static size_t count_done_locked(struct gb_session *s, struct gb_multipart **ret) {
    struct gb_multipart *multipart;
    int64_t at = 0;
    size_t count = 0;

    *ret = NULL;
    while ((multipart = gb_idlist_after(&s->multiparts, at, &at))) {
        bool done;

        pthread_mutex_lock(&multipart->lock);
        done = multipart->state == GB_MULTIPART_DONE;
        pthread_mutex_unlock(&multipart->lock);
        count += done;
        if (done && !*ret)
            *ret = gb_multipart_ref(multipart);
    }
    return count;
}

/* Of a completed one only the numbers are wanted. */
static void forget_bytes(struct gb_multipart *multipart) {
    pthread_mutex_lock(&multipart->lock);
    multipart->bytes = gb_multipart_bytes_locked(multipart);
    free_gaps(&multipart->gaps);
    free_header(multipart);
    pthread_mutex_unlock(&multipart->lock);
}

/* Takes a completed multipart upload out of the open ones and remembers it. The oldest remembered ones are dropped. */
static void remember(struct gb_multipart *multipart) {
    struct gb_session *s = multipart->session;
    struct gb_multipart *oldest = NULL;
    size_t count;

    release_bytes(multipart);
    forget_bytes(multipart);
    pthread_mutex_lock(&s->lock);
    uncount_locked(multipart);
    count = count_done_locked(s, &oldest);
    pthread_mutex_unlock(&s->lock);
    if (count > GB_MULTIPARTS_DONE_MAX)
        withdraw(oldest);
    gb_multipart_unref(oldest);
}

/* --- finding ------------------------------------------------------------------------------------------------------ */

static void write_id(const struct gb_multipart *multipart, char out[GB_MULTIPART_ID_SIZE]) {
    snprintf(out, GB_MULTIPART_ID_SIZE, "%08" PRIx32 "-%" PRId64, multipart->core->run, multipart->number);
}

int gb_multipart_not_found(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_UPLOAD_NOT_FOUND,
                        "there is no such upload here; they end when they are deleted, when nothing has come for a "
                        "while, with their session and with the daemon");
}

struct gb_multipart *gb_multipart_find(struct gb_core *core, const struct gb_name *session, const char *id, bool use,
                                       struct gb_error *err) {
    struct gb_session *s = use ? gb_session_use(core, session, err) : gb_session_find(core, session, err);
    struct gb_multipart *multipart = NULL;
    char text[GB_MULTIPART_ID_SIZE];
    const char *dash = strchr(id, '-');
    int64_t at;

    if (!s)
        return NULL;
    at = dash ? strtoll(dash + 1, NULL, 10) : 0;
    pthread_mutex_lock(&s->lock);
    if (at > 0)
        multipart = gb_idlist_after(&s->multiparts, at - 1, NULL);
    if (multipart) {
        write_id(multipart, text);
        multipart = strcmp(text, id) == 0 ? gb_multipart_ref(multipart) : NULL;
    }
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    if (!multipart)
        gb_multipart_not_found(err);
    return multipart;
}

/* --- views -------------------------------------------------------------------------------------------------------- */

static uint64_t ttl_s(const struct gb_core *core) {
    return core->config.multipart_ttl_s ? core->config.multipart_ttl_s : GB_MULTIPART_TTL_S;
}

bool gb_multipart_gapped_locked(const struct gb_multipart *multipart) {
    return multipart->gapped;
}

const struct gb_ranges *gb_multipart_ranges_locked(const struct gb_multipart *multipart) {
    return gb_multipart_gapped_locked(multipart) ? &multipart->file_ranges : &multipart->ranges;
}

uint64_t gb_multipart_bytes_locked(const struct gb_multipart *multipart) {
    const struct gb_gaps *gaps = &multipart->gaps;

    return gaps->before ? gaps->before(gaps->arg, multipart->bytes) : multipart->bytes;
}

uint64_t gb_multipart_offset_locked(const struct gb_multipart *multipart) {
    uint64_t got;

    if (multipart->state == GB_MULTIPART_HEADER)
        return multipart->header_used;
    got = multipart->skip + (multipart->state == GB_MULTIPART_DONE
                                 ? gb_multipart_bytes_locked(multipart)
                                 : gb_ranges_prefix(gb_multipart_ranges_locked(multipart)));
    return got > multipart->header_used ? got : multipart->header_used;
}

static bool busy_locked(const struct gb_multipart *multipart) {
    return multipart->running > 0 || multipart->append_locked || multipart->state == GB_MULTIPART_HASHING ||
           multipart->state == GB_MULTIPART_COMPLETING;
}

void gb_multipart_view_locked(struct gb_multipart *multipart, struct gb_multipart_view *ret) {
    const struct gb_ranges *ranges = gb_multipart_ranges_locked(multipart);
    uint64_t now_ns = gb_clock_ns();
    bool busy = busy_locked(multipart);
    uint64_t idle_ns = busy ? 0 : now_ns - multipart->touched_ns;

    *ret = (struct gb_multipart_view){.number = multipart->number,
                                      .buffer = multipart->buffer,
                                      .appends = multipart->appends,
                                      .has_bytes = multipart->state != GB_MULTIPART_HEADER,
                                      .bytes = gb_multipart_bytes_locked(multipart),
                                      .received_bytes = ranges->bytes,
                                      .parts = ranges->count,
                                      .running = multipart->running,
                                      .completed = multipart->state == GB_MULTIPART_DONE,
                                      .offset = gb_multipart_offset_locked(multipart),
                                      .has_length = multipart->has_length,
                                      .length = multipart->length,
                                      .created_at_us = multipart->created_at_us};
    write_id(multipart, ret->id);
    ret->expires_at_us = gb_wall_us() + (int64_t)ttl_s(multipart->core) * 1000000 - (int64_t)(idle_ns / 1000);
    if (ret->completed)
        return;
    ret->gap_count = gb_ranges_missing(ranges, ret->bytes, ret->gaps, GB_MULTIPART_GAPS_MAX);
    ret->gaps_given = ret->gap_count < GB_MULTIPART_GAPS_MAX ? ret->gap_count : GB_MULTIPART_GAPS_MAX;
}

int gb_multipart_check_locked(struct gb_multipart *multipart, struct gb_error *err) {
    switch (multipart->state) {
    case GB_MULTIPART_OPEN:
        if (multipart->sealed)
            return gb_error_set(err, GB_ERR_UPLOAD_BUSY,
                                "everything arrived and it was tried to complete it: try that again, or delete it");
        return 0;
    case GB_MULTIPART_HEADER:
    case GB_MULTIPART_OPENING:
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "its memory is still being got; try again");
    case GB_MULTIPART_HASHING:
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "its digest is being computed, before it is completed");
    case GB_MULTIPART_COMPLETING:
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "it is just being completed");
    case GB_MULTIPART_DONE:
        return gb_error_set(err, GB_ERR_UPLOAD_COMPLETED, "the upload is completed and takes nothing more");
    case GB_MULTIPART_ENDED:
        break;
    }
    return gb_multipart_not_found(err);
}

static void view_and_unref(struct gb_multipart *multipart, struct gb_multipart_view *ret) {
    pthread_mutex_lock(&multipart->lock);
    gb_multipart_view_locked(multipart, ret);
    pthread_mutex_unlock(&multipart->lock);
    gb_multipart_unref(multipart);
}

int gb_multipart_get(struct gb_core *core, const struct gb_name *session, const char *id, struct gb_multipart_view *ret,
                     struct gb_error *err) {
    struct gb_multipart *multipart = gb_multipart_find(core, session, id, false, err);

    if (!multipart)
        return -1;
    view_and_unref(multipart, ret);
    return 0;
}

static struct gb_multipart *after(struct gb_session *s, int64_t number) {
    struct gb_multipart *multipart;

    pthread_mutex_lock(&s->lock);
    multipart = gb_idlist_after(&s->multiparts, number, NULL);
    if (multipart)
        gb_multipart_ref(multipart);
    pthread_mutex_unlock(&s->lock);
    return multipart;
}

int gb_multipart_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                      int (*visit)(void *, const struct gb_multipart_view *, struct gb_error *), void *arg,
                      struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, session, err);
    struct gb_multipart_view view = {.number = page->after};
    struct gb_multipart *multipart = NULL;
    unsigned n;
    int r = 0;

    if (!s)
        return -1;
    for (n = 0; n < page->limit && r == 0 && (multipart = after(s, view.number)); n++) {
        view_and_unref(multipart, &view);
        r = visit(arg, &view, err);
    }
    if (r == 0) {
        multipart = after(s, view.number);
        page->more = multipart != NULL;
        gb_multipart_unref(multipart);
    }
    gb_session_unref(s);
    return r;
}

/* --- expiry ------------------------------------------------------------------------------------------------------- */

static bool idle(struct gb_multipart *multipart) {
    uint64_t idle_ns;
    bool busy;

    pthread_mutex_lock(&multipart->lock);
    busy = busy_locked(multipart) || multipart->state == GB_MULTIPART_OPENING;
    idle_ns = gb_clock_ns() - multipart->touched_ns;
    pthread_mutex_unlock(&multipart->lock);
    return !busy && idle_ns / GB_NS_PER_S >= ttl_s(multipart->core);
}

void gb_multiparts_expire(struct gb_session *s) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_multipart *multipart;
    int64_t at = 0;

    gb_multipart_not_found(&why);
    while ((multipart = after(s, at))) {
        at = multipart->number;
        if (idle(multipart)) {
            gb_multipart_end(multipart, &why);
            withdraw(multipart); /* a completed one is forgotten */
        }
        gb_multipart_unref(multipart);
    }
}

void gb_multiparts_end(struct gb_session *s, const struct gb_error *why) {
    struct gb_multipart *multipart;

    while ((multipart = after(s, 0))) {
        gb_multipart_end(multipart, why);
        withdraw(multipart);
        gb_multipart_unref(multipart);
    }
}

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

void gb_multipart_finish_calls(struct gb_multipart *multipart, struct gb_multipart_waiter *list,
                               const struct gb_error *error) {
    struct gb_multipart_waiter *next;

    for (; list; list = next) {
        next = list->next;
        gb_multipart_finish_call(multipart, list->call, error);
        free(list);
    }
}

/* --- the role of a target ----------------------------------------------------------------------------------------- */

/* A target receives no bytes itself. It holds the memory and the quota, and commits when all of its parts have
 * arrived. */

/* The commit failed and changed nothing, so the client may try it again. */
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

    if (transaction->error.code == GB_OK) {
        gb_upload_committed(u);
        return;
    }
    gb_upload_drop_turn(u, &transaction->error);
    refuse(u, &transaction->error);
}

/* A commit that is refused gives its turn up, and a later one takes another. */
static void commit(struct gb_upload *u, const struct gb_error *error) {
    struct gb_error err = GB_ERROR_INIT;

    if (error)
        err = *error;
    else
        (void)gb_upload_take_turn(u, true, &err);
    if (gb_upload_ready(u, err.code == GB_OK ? NULL : &err, commit_end))
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
    gb_multipart_finish_calls(multipart, end_waiters, NULL);
    gb_multipart_unref(multipart);
}

/* The memory of a description that was taken back is free, so other bytes may come. */
static void behind_retracts(struct gb_task *task) {
    struct gb_multipart *multipart = gb_container_of(task, struct gb_multipart, task);
    struct gb_multipart_waiter *drained;

    pthread_mutex_lock(&multipart->lock);
    multipart->retracts = false;
    gb_multipart_appended_locked(multipart, &drained);
    pthread_mutex_unlock(&multipart->lock);
    gb_multipart_finish_calls(multipart, drained, NULL);
    gb_multipart_unref(multipart);
}

struct gb_upload *gb_multipart_retract_locked(struct gb_multipart *multipart) {
    struct gb_upload *target = multipart->target;

    if (!target || (multipart->state != GB_MULTIPART_OPENING && multipart->state != GB_MULTIPART_OPEN))
        return NULL;
    gb_upload_plan_of(target)->check = (struct gb_buffer_check){0};
    free_gaps(&multipart->gaps);
    multipart->gapped = false;
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
    release_bytes(multipart);
    multipart->task.run = retracts ? behind_retracts : behind_frees;
    gb_lane_post(&device->lane, &multipart->task); /* runs after the free of its memory */
}

static const struct gb_upload_role target_role = {
    .complete = complete, .committed = gb_upload_count, .gone = gone, .from_client = true};

/* Returns 1 if bytes may be written into the target's memory; 0: wake follows; -1. */
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

/* Returns 1 if the call has the result; 0: wake follows; -1: the commit failed, and may be tried again if refused() is
 * true. */
static int outcome(struct gb_multipart *multipart, struct gb_multipart_call *call, struct gb_error *err) {
    if (refused(multipart)) {
        *err = multipart->refused;
        return -1;
    }
    call->base.free_result = result_done;
    return gb_upload_result(multipart->target, &call->buffer, &call->created, &call->times, err);
}

void gb_multipart_prepare_locked(struct gb_multipart *multipart, const struct gb_buffer_check *check) {
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

/* --- progress of the target --------------------------------------------------------------------------------------- */

/* Sets the state by the target's. Takes the call that ends with it into *ret_call. *ret_dead: the target has failed for
 * good. The lock is held. Returns false if the target made no progress. */
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

/* Handles the target's progress: called when it may have opened, committed or failed. */
static void check_progress(struct gb_multipart *multipart) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload *target;
    struct gb_multipart_call *call = NULL;
    bool dead = false;
    bool progress;
    bool done;

    pthread_mutex_lock(&multipart->lock);
    target = multipart->target;
    progress = progress_locked(multipart, &call, &dead, &err);
    done = progress && multipart->state == GB_MULTIPART_DONE;
    pthread_mutex_unlock(&multipart->lock);
    if (!progress)
        return;
    gb_multipart_ref(multipart);
    if (done) {
        remember(multipart);
        gb_upload_free(target);
    }
    if (dead)
        gb_multipart_end(multipart, &err);
    if (call)
        gb_multipart_finish_call(multipart, call, err.code == GB_OK ? NULL : &err);
    gb_multipart_unref(multipart);
}

void gb_multipart_commit(struct gb_multipart *multipart, struct gb_upload *target) {
    struct gb_error err = GB_ERROR_INIT;

    (void)gb_upload_end(target, &err); /* a failure is recorded in the target */
    check_progress(multipart);
}

static void woken(void *arg) {
    check_progress(arg);
}

int gb_multipart_target_start(struct gb_multipart *multipart, const struct gb_upload_params *params,
                              struct gb_error *err) {
    struct gb_upload_params p = *params;
    struct gb_upload *target;

    if (hold_bytes(multipart, p.bytes, err) < 0)
        return -1;
    p.session = multipart->session;
    p.fresh = true;
    p.in_place = false;
    p.waker = (struct gb_waker){woken, multipart};
    gb_multipart_ref(multipart);
    target = gb_upload_make(multipart->core, &p, &target_role, multipart, err);
    if (!target) {
        release_bytes(multipart);
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
        if (p.gaps) {
            multipart->gapped = true;
            multipart->gaps = *p.gaps;
            *p.gaps = (struct gb_gaps){0};
        }
        target = NULL;
    }
    pthread_mutex_unlock(&multipart->lock);
    gb_upload_free(target); /* NULL, unless the multipart upload has ended meanwhile */
    check_progress(multipart);
    return 0;
}

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

/* Sets the state ENDED. Returns false if the multipart upload is done or has ended already. The lock is held. */
static bool end_locked(struct gb_multipart *multipart, const struct gb_error *why) {
    if (multipart->state == GB_MULTIPART_DONE || multipart->state == GB_MULTIPART_ENDED)
        return false;
    multipart->state = GB_MULTIPART_ENDED;
    multipart->why = *why;
    cut_all_locked(multipart, why);
    return true;
}

/* Ends the multipart upload. opening: only if it waits for memory. Returns false, without effect, if it is done, has
 * ended or, with opening, has its memory. */
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
    withdraw(multipart);
    gb_upload_free(target);
    /* Queries of the offset get 404; writers get the cause. */
    gb_multipart_not_found(&gone);
    gb_multipart_finish_calls(multipart, drain_waiters, &gone);
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

/* Cancels the call that begins the multipart upload, while that waits for memory. */
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
        call = multipart->call; /* NULL: the session has ended and finished the call */
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

/* Returns 1 if the call waits until the memory is free; 0 if there is no memory; -1. */
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
        withdraw(multipart); /* a completed one is forgotten */
    }
    if (r <= 0) {
        gb_call_finish(&call->base, r < 0 ? &err : NULL);
        gb_core_leave(core);
    }
    gb_multipart_unref(multipart);
}
