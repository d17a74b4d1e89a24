/* Appending to an intake: one request at a time, and what it brought before its line broke is kept. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/multipart/internal.h"

/* --- the turn ------------------------------------------------------------------------------------------------------------------ */

static struct gb_append *append_new(struct gb_intake *intake, void (*wake)(void *arg), void *arg,
                                    struct gb_error *err) {
    struct gb_append *a = calloc(1, sizeof(*a));

    if (!a) {
        gb_no_memory(err);
        return NULL;
    }
    a->intake = gb_intake_ref(intake);
    a->wake = wake;
    a->arg = arg;
    return a;
}

int gb_append_new(struct gb_core *core, const struct gb_name *session, const struct gb_name *buffer,
                  const uint64_t *length, void *app, void (*free_app)(void *app), void (*wake)(void *arg), void *arg,
                  struct gb_append **ret, struct gb_error *err) {
    struct gb_intake *intake;
    struct gb_append *a;

    if (gb_intake_new(core, session, buffer, true, &intake, err) < 0) {
        free_app(app);
        return -1;
    }
    a = append_new(intake, wake, arg, err);
    pthread_mutex_lock(&intake->lock);
    intake->app = app;
    intake->free_app = free_app;
    intake->has_length = length != NULL;
    intake->length = length ? *length : 0;
    intake->turn = a != NULL;
    intake->append = a;
    pthread_mutex_unlock(&intake->lock);
    if (a)
        *ret = a;
    else
        gb_intake_end(intake, err);
    gb_intake_unref(intake);
    return a ? 0 : -1;
}

static int check_locked(struct gb_intake *intake, uint64_t offset, uint64_t *ret_offset, struct gb_error *err) {
    uint64_t stands = gb_intake_offset_locked(intake);

    *ret_offset = stands;
    if (intake->state == GB_INTAKE_ENDED)
        return gb_intake_not_found(err);
    if (!intake->appends)
        return gb_error_set(err, GB_ERR_UPLOAD_WRONG_KIND,
                            "this upload takes parts: PUT .../parts?offset=N; one that is appended to begins with "
                            "Upload-Complete: ?0");
    if (intake->turn)
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY,
                            "another request is appending; where it is not to be waited for, HEAD cuts it off");
    if (intake->state > GB_INTAKE_OPEN || intake->sealed)
        return gb_intake_check_locked(intake, err);
    if (offset == stands)
        return 0;
    return gb_error_set(err, GB_ERR_UPLOAD_OFFSET_MISMATCH,
                        "the upload has %llu bytes and the request goes on at %llu: go on where it stands",
                        (unsigned long long)stands, (unsigned long long)offset);
}

int gb_append_open(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                   void (*wake)(void *arg), void *arg, struct gb_append **ret, uint64_t *ret_offset,
                   struct gb_error *err) {
    struct gb_intake *intake = gb_core_alive(core, err) < 0 ? NULL : gb_intake_find(core, session, id, true, err);
    struct gb_append *a = intake ? append_new(intake, wake, arg, err) : NULL;
    int r = -1;

    if (a) {
        pthread_mutex_lock(&intake->lock);
        r = check_locked(intake, offset, ret_offset, err);
        if (r == 0) {
            intake->turn = true;
            intake->append = a;
        }
        pthread_mutex_unlock(&intake->lock);
    }
    if (a && r < 0) {
        gb_intake_unref(intake);
        free(a);
    }
    gb_intake_unref(intake);
    if (r == 0)
        *ret = a;
    return r;
}

void gb_append_free(struct gb_append *a, bool spoiled) {
    struct gb_intake_waiter *settled = NULL;
    struct gb_error why = GB_ERROR_INIT;
    struct gb_intake *intake;

    if (!a)
        return;
    intake = a->intake;
    pthread_mutex_lock(&intake->lock);
    if (intake->append == a) {
        intake->append = NULL;
        /* Where there is a part, its end gives the turn back. */
        intake->turn = intake->turn && a->part;
        intake->touched_ns = gb_clock_ns();
        gb_intake_settled_locked(intake, &settled);
    }
    pthread_mutex_unlock(&intake->lock);
    if (a->part) {
        (void)gb_upload_flush(a->part, NULL);
        gb_upload_free(a->part);
    }
    gb_intake_tell(intake, settled, NULL);
    if (spoiled) {
        gb_intake_not_found(&why);
        gb_intake_end(intake, &why);
    }
    free(a);
    gb_intake_unref(intake);
}

/* --- looking ---------------------------------------------------------------------------------------------------------------------- */

void *gb_append_app(struct gb_append *append) {
    return append->intake->app;
}

void gb_append_view(struct gb_append *append, struct gb_intake_view *ret) {
    pthread_mutex_lock(&append->intake->lock);
    gb_intake_view_locked(append->intake, ret);
    pthread_mutex_unlock(&append->intake->lock);
}

bool gb_append_described(struct gb_append *append) {
    bool described;

    pthread_mutex_lock(&append->intake->lock);
    described = append->intake->state != GB_INTAKE_LEAD;
    pthread_mutex_unlock(&append->intake->lock);
    return described;
}

int gb_append_length(struct gb_append *append, uint64_t length, struct gb_error *err) {
    struct gb_intake *intake = append->intake;
    int r = 0;

    pthread_mutex_lock(&intake->lock);
    if (intake->has_length && intake->length != length)
        r = gb_error_set(err, GB_ERR_UPLOAD_LENGTH_MISMATCH,
                         "the upload has %llu bytes in all, and now %llu are told of",
                         (unsigned long long)intake->length, (unsigned long long)length);
    else
        intake->length = length;
    intake->has_length = true;
    pthread_mutex_unlock(&intake->lock);
    return r;
}

/* Somebody else cut it off, or ended all. The lock is held. */
static int alive_locked(struct gb_append *a, struct gb_error *err) {
    if (a->intake->state == GB_INTAKE_ENDED) {
        if (err && err->code == GB_OK)
            *err = a->intake->why;
        return -1;
    }
    if (a->cut)
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY,
                            "another request asked where the upload stands and goes on with it");
    return 0;
}

/* --- before it is known what it is --------------------------------------------------------------------------------------------------- */

int gb_append_lead_room(struct gb_append *append, size_t want, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct gb_intake *intake = append->intake;
    size_t size = want < GB_INTAKE_LEAD_MAX ? want : GB_INTAKE_LEAD_MAX;
    char *lead = intake->lead;
    int r;

    /* Who has the turn alone changes the lead; others read how long it is. */
    if (size > intake->lead_size) {
        lead = realloc(lead, size);
        if (!lead)
            return gb_no_memory(err);
        intake->lead = lead;
        intake->lead_size = size;
    }
    pthread_mutex_lock(&intake->lock);
    r = alive_locked(append, err);
    pthread_mutex_unlock(&intake->lock);
    if (r < 0)
        return -1;
    *ret_ptr = lead + intake->lead_used;
    *ret_n = size - intake->lead_used;
    return 1;
}

void gb_append_lead_fill(struct gb_append *append, size_t n) {
    pthread_mutex_lock(&append->intake->lock);
    append->intake->lead_used += n;
    pthread_mutex_unlock(&append->intake->lock);
}

const char *gb_append_lead(struct gb_append *append, size_t *ret_n) {
    *ret_n = append->intake->lead_used;
    return append->intake->lead;
}

int gb_append_describe(struct gb_append *append, const struct gb_upload_params *params, uint64_t skip,
                       struct gb_error *err) {
    append->intake->skip = skip;
    return gb_intake_carry(append->intake, params, err);
}

/* --- the payload --------------------------------------------------------------------------------------------------------------------- */

/* 1: there is a part; 0: memory is still being got; -1. */
static int part_locked(struct gb_append *a, struct gb_error *err) {
    struct gb_intake *intake = a->intake;
    uint64_t at;

    if (alive_locked(a, err) < 0)
        return -1;
    if (intake->state == GB_INTAKE_OPENING)
        return 0;
    if (a->part)
        return 1;
    if (gb_intake_check_locked(intake, err) < 0)
        return -1;
    at = gb_ranges_prefix(&intake->ranges);
    a->part = gb_part_new_locked(intake, at, intake->bytes - at, true, a->wake, a->arg, err);
    return a->part ? 1 : -1;
}

static int need_part(struct gb_append *a, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&a->intake->lock);
    r = part_locked(a, err);
    pthread_mutex_unlock(&a->intake->lock);
    return r;
}

/* What of the payload came before it was known what it is. 1: all of that is in its place; 0: wait; -1. */
static int push_lead(struct gb_append *a, struct gb_error *err) {
    struct gb_intake *intake = a->intake;
    uint64_t lead = intake->lead_used - intake->skip;
    uint64_t at = a->part->at + a->part->filled;
    void *room;
    size_t n;
    int r;

    for (; at < lead; at += n) {
        r = gb_upload_room(a->part, &room, &n, err);
        if (r <= 0)
            return r;
        if (n > lead - at)
            n = (size_t)(lead - at);
        memcpy(room, intake->lead + intake->skip + at, n);
        if (gb_upload_fill(a->part, n, err) < 0)
            return -1;
    }
    return 1;
}

static int ready(struct gb_append *a, struct gb_error *err) {
    int r = need_part(a, err);

    return r > 0 ? push_lead(a, err) : r;
}

int gb_append_room(struct gb_append *append, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    int r = ready(append, err);

    return r > 0 ? gb_upload_room(append->part, ret_ptr, ret_n, err) : r;
}

int gb_append_fill(struct gb_append *append, size_t n, struct gb_error *err) {
    return gb_upload_fill(append->part, n, err);
}

void gb_append_pause(struct gb_append *append, bool stalled) {
    if (append->part)
        gb_upload_pause(append->part, stalled);
}

int gb_append_end(struct gb_append *a, struct gb_error *err) {
    int r = ready(a, err);

    if (r <= 0)
        return r;
    a->part->params.bytes = a->part->filled;
    if (gb_upload_flush(a->part, err) < 0 || gb_upload_end(a->part, err) < 0)
        return -1;
    return 1;
}

int gb_append_result(struct gb_append *append, struct gb_intake_view *ret, struct gb_error *err) {
    uint32_t crc;
    int r = gb_part_result(append->part, &crc, err);

    if (r > 0)
        gb_append_view(append, ret);
    return r;
}

/* --- where it stands ----------------------------------------------------------------------------------------------------------------- */

void gb_intake_settle(struct gb_core *core, const struct gb_name *session, const char *id, struct gb_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_intake *intake;
    struct gb_append *a;
    bool waits = false;

    gb_core_enter(core);
    intake = gb_intake_find(core, session, id, false, &err);
    if (intake) {
        pthread_mutex_lock(&intake->lock);
        a = intake->append;
        if (intake->turn && !gb_intake_wait_locked(&intake->settlers, call))
            gb_no_memory(&err);
        waits = intake->turn && err.code == GB_OK;
        if (waits && a) {
            a->cut = true;
            a->wake(a->arg);
        }
        if (!waits)
            gb_intake_view_locked(intake, &call->intake);
        pthread_mutex_unlock(&intake->lock);
    }
    if (!waits) {
        gb_call_finish(call, err.code == GB_OK ? NULL : &err);
        gb_core_leave(core);
    }
    gb_intake_unref(intake);
}
