/* The intakes of a session: found by id, listed, counted, forgotten when nothing has come for a while. */
#include "core/multipart/multipart.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/multipart/internal.h"

/* --- one --------------------------------------------------------------------------------------------------------------------- */

struct gb_intake *gb_intake_ref(struct gb_intake *intake) {
    atomic_fetch_add(&intake->refs, 1);
    return intake;
}

void gb_intake_unref(struct gb_intake *intake) {
    if (!intake || atomic_fetch_sub(&intake->refs, 1) != 1)
        return;
    if (intake->free_app)
        intake->free_app(intake->app);
    gb_ranges_done(&intake->ranges);
    free(intake->lead);
    pthread_mutex_destroy(&intake->lock);
    gb_session_unref(intake->session);
    free(intake);
}

static int enroll_locked(struct gb_session *s, struct gb_intake *intake, struct gb_error *err) {
    uint64_t max = s->core->config.intakes_max ? s->core->config.intakes_max : GB_INTAKES_MAX;

    if (gb_session_alive(s, err) < 0)
        return -1;
    if (s->intakes_open >= max)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "session \"%s\" has %llu open uploads, the permitted number (--max-uploads)", s->name.s,
                            (unsigned long long)s->intakes_open);
    if (gb_idlist_put(&s->intakes, intake->number, intake) < 0)
        return gb_no_memory(err);
    s->intakes_open++;
    intake->counted = true;
    intake->listed = true;
    gb_intake_ref(intake);
    return 0;
}

int gb_intake_new(struct gb_core *core, const struct gb_name *session, const struct gb_name *buffer, bool appends,
                  struct gb_intake **ret, struct gb_error *err) {
    struct gb_session *s = gb_session_use(core, session, err);
    struct gb_intake *intake = s ? calloc(1, sizeof(*intake)) : NULL;
    int r;

    if (!intake) {
        gb_session_unref(s);
        return gb_no_memory(err); /* unless it was something else */
    }
    atomic_init(&intake->refs, 1);
    intake->core = core;
    intake->session = s;
    intake->number = atomic_fetch_add(&core->last_intake, 1) + 1;
    intake->buffer = *buffer;
    intake->appends = appends;
    intake->created_at_us = gb_wall_us();
    intake->touched_ns = gb_clock_ns();
    pthread_mutex_init(&intake->lock, NULL);
    pthread_mutex_lock(&s->lock);
    r = enroll_locked(s, intake, err);
    pthread_mutex_unlock(&s->lock);
    if (r < 0) {
        gb_intake_unref(intake);
        return -1;
    }
    *ret = intake;
    return 0;
}

/* It is no longer one of those that are open. */
static void uncount_locked(struct gb_intake *intake) {
    intake->session->intakes_open -= intake->counted;
    intake->counted = false;
}

void gb_intake_withdraw(struct gb_intake *intake) {
    struct gb_session *s = intake->session;
    bool listed;

    pthread_mutex_lock(&s->lock);
    listed = intake->listed;
    if (listed)
        gb_idlist_take(&s->intakes, intake->number);
    uncount_locked(intake);
    intake->listed = false;
    pthread_mutex_unlock(&s->lock);
    if (listed)
        gb_intake_unref(intake);
}

/* --- what they hold ------------------------------------------------------------------------------------------------------------- */

int gb_intake_hold(struct gb_intake *intake, uint64_t bytes, struct gb_error *err) {
    struct gb_core *core = intake->core;
    uint64_t max = core->config.intake_bytes_max ? core->config.intake_bytes_max : GB_UNLIMITED;
    uint64_t held = atomic_fetch_add(&core->intake_bytes, bytes);

    if (held > max || bytes > max - held) {
        atomic_fetch_sub(&core->intake_bytes, bytes);
        gb_error_numbers(err, max, held, bytes);
        return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                            "open uploads may hold %llu bytes in all (--max-upload-bytes) and hold %llu: %llu more do "
                            "not fit",
                            (unsigned long long)max, (unsigned long long)held, (unsigned long long)bytes);
    }
    pthread_mutex_lock(&intake->session->lock);
    intake->session->intake_bytes += bytes;
    intake->held_bytes = bytes;
    pthread_mutex_unlock(&intake->session->lock);
    return 0;
}

void gb_intake_release(struct gb_intake *intake) {
    struct gb_session *s = intake->session;
    uint64_t bytes;

    pthread_mutex_lock(&s->lock);
    bytes = intake->held_bytes;
    s->intake_bytes -= bytes;
    intake->held_bytes = 0;
    pthread_mutex_unlock(&s->lock);
    atomic_fetch_sub(&intake->core->intake_bytes, bytes);
}

/* Completed ones that are listed; the first of them in *ret with a reference. */
static size_t count_done_locked(struct gb_session *s, struct gb_intake **ret) {
    struct gb_intake *intake;
    int64_t at = 0;
    size_t count = 0;

    *ret = NULL;
    while ((intake = gb_idlist_after(&s->intakes, at, &at))) {
        bool done;

        pthread_mutex_lock(&intake->lock);
        done = intake->state == GB_INTAKE_DONE;
        pthread_mutex_unlock(&intake->lock);
        count += done;
        if (done && !*ret)
            *ret = gb_intake_ref(intake);
    }
    return count;
}

void gb_intake_remember(struct gb_intake *intake) {
    struct gb_session *s = intake->session;
    struct gb_intake *oldest = NULL;
    size_t count;

    gb_intake_release(intake);
    pthread_mutex_lock(&s->lock);
    uncount_locked(intake);
    count = count_done_locked(s, &oldest);
    pthread_mutex_unlock(&s->lock);
    if (count > GB_INTAKES_DONE_MAX)
        gb_intake_withdraw(oldest);
    gb_intake_unref(oldest);
}

/* --- finding -------------------------------------------------------------------------------------------------------------------- */

static void write_id(const struct gb_intake *intake, char out[GB_INTAKE_ID_SIZE]) {
    snprintf(out, GB_INTAKE_ID_SIZE, "%08" PRIx32 "-%" PRId64, intake->core->run, intake->number);
}

int gb_intake_not_found(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_UPLOAD_NOT_FOUND,
                        "there is no such upload here; they end when they are deleted, when nothing has come for a "
                        "while, with their session and with the daemon");
}

struct gb_intake *gb_intake_find(struct gb_core *core, const struct gb_name *session, const char *id, bool use,
                                 struct gb_error *err) {
    struct gb_session *s = use ? gb_session_use(core, session, err) : gb_session_find(core, session, err);
    struct gb_intake *intake = NULL;
    char text[GB_INTAKE_ID_SIZE];
    const char *dash = strchr(id, '-');
    int64_t at;

    if (!s)
        return NULL;
    at = dash ? strtoll(dash + 1, NULL, 10) : 0;
    pthread_mutex_lock(&s->lock);
    if (at > 0)
        intake = gb_idlist_after(&s->intakes, at - 1, NULL);
    if (intake) {
        write_id(intake, text);
        intake = strcmp(text, id) == 0 ? gb_intake_ref(intake) : NULL;
    }
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    if (!intake)
        gb_intake_not_found(err);
    return intake;
}

/* --- looking -------------------------------------------------------------------------------------------------------------------- */

static uint64_t ttl_s(const struct gb_core *core) {
    return core->config.intake_ttl_s ? core->config.intake_ttl_s : GB_INTAKE_TTL_S;
}

uint64_t gb_intake_offset_locked(const struct gb_intake *intake) {
    uint64_t got;

    if (intake->state == GB_INTAKE_LEAD)
        return intake->lead_used;
    got = intake->skip + (intake->state == GB_INTAKE_DONE ? intake->bytes : gb_ranges_prefix(&intake->ranges));
    return got > intake->lead_used ? got : intake->lead_used;
}

static bool busy_locked(const struct gb_intake *intake) {
    return intake->running > 0 || intake->turn || intake->state == GB_INTAKE_READING ||
           intake->state == GB_INTAKE_COMPLETING;
}

void gb_intake_view_locked(struct gb_intake *intake, struct gb_intake_view *ret) {
    uint64_t now_ns = gb_clock_ns();
    bool busy = busy_locked(intake);
    uint64_t idle_ns = busy ? 0 : now_ns - intake->touched_ns;

    *ret = (struct gb_intake_view){.number = intake->number,
                                   .buffer = intake->buffer,
                                   .appends = intake->appends,
                                   .has_bytes = intake->state != GB_INTAKE_LEAD,
                                   .bytes = intake->bytes,
                                   .received_bytes = intake->ranges.bytes,
                                   .parts = intake->ranges.count,
                                   .running = intake->running,
                                   .completed = intake->state == GB_INTAKE_DONE,
                                   .offset = gb_intake_offset_locked(intake),
                                   .has_length = intake->has_length,
                                   .length = intake->length,
                                   .created_at_us = intake->created_at_us};
    write_id(intake, ret->id);
    ret->expires_at_us = gb_wall_us() + (int64_t)ttl_s(intake->core) * 1000000 - (int64_t)(idle_ns / 1000);
    if (ret->completed)
        return;
    ret->gap_count = gb_ranges_missing(&intake->ranges, intake->bytes, ret->gaps, GB_INTAKE_GAPS_MAX);
    ret->gaps_given = ret->gap_count < GB_INTAKE_GAPS_MAX ? ret->gap_count : GB_INTAKE_GAPS_MAX;
}

int gb_intake_check_locked(struct gb_intake *intake, struct gb_error *err) {
    switch (intake->state) {
    case GB_INTAKE_OPEN:
        if (intake->sealed)
            return gb_error_set(err, GB_ERR_UPLOAD_BUSY,
                                "everything arrived and it was tried to complete it: try that again, or delete it");
        return 0;
    case GB_INTAKE_LEAD:
    case GB_INTAKE_OPENING:
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "its memory is still being got; try again");
    case GB_INTAKE_READING:
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "its digest is being computed, before it is completed");
    case GB_INTAKE_COMPLETING:
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "it is just being completed");
    case GB_INTAKE_DONE:
        return gb_error_set(err, GB_ERR_UPLOAD_COMPLETED, "the upload is completed and takes nothing more");
    case GB_INTAKE_ENDED:
        break;
    }
    return gb_intake_not_found(err);
}

static void look(struct gb_intake *intake, struct gb_intake_view *ret) {
    pthread_mutex_lock(&intake->lock);
    gb_intake_view_locked(intake, ret);
    pthread_mutex_unlock(&intake->lock);
    gb_intake_unref(intake);
}

int gb_intake_get(struct gb_core *core, const struct gb_name *session, const char *id, struct gb_intake_view *ret,
                  struct gb_error *err) {
    struct gb_intake *intake = gb_intake_find(core, session, id, false, err);

    if (!intake)
        return -1;
    look(intake, ret);
    return 0;
}

static struct gb_intake *after(struct gb_session *s, int64_t number) {
    struct gb_intake *intake;

    pthread_mutex_lock(&s->lock);
    intake = gb_idlist_after(&s->intakes, number, NULL);
    if (intake)
        gb_intake_ref(intake);
    pthread_mutex_unlock(&s->lock);
    return intake;
}

int gb_intake_list(struct gb_core *core, const struct gb_name *session, int64_t after_number, unsigned limit,
                   int (*visit)(void *, const struct gb_intake_view *, struct gb_error *), void *arg, bool *ret_more,
                   struct gb_error *err) {
    struct gb_session *s = gb_session_find(core, session, err);
    struct gb_intake_view view = {.number = after_number};
    struct gb_intake *intake = NULL;
    unsigned n;
    int r = 0;

    if (!s)
        return -1;
    for (n = 0; n < limit && r == 0 && (intake = after(s, view.number)); n++) {
        look(intake, &view);
        r = visit(arg, &view, err);
    }
    if (r == 0) {
        intake = after(s, view.number);
        *ret_more = intake != NULL;
        gb_intake_unref(intake);
    }
    gb_session_unref(s);
    return r;
}

/* --- those that are idle or orphaned ---------------------------------------------------------------------------------------------- */

static bool idle(struct gb_intake *intake) {
    uint64_t idle_ns;
    bool busy;

    pthread_mutex_lock(&intake->lock);
    busy = busy_locked(intake) || intake->state == GB_INTAKE_OPENING;
    idle_ns = gb_clock_ns() - intake->touched_ns;
    pthread_mutex_unlock(&intake->lock);
    return !busy && idle_ns / GB_NS_PER_S >= ttl_s(intake->core);
}

void gb_intakes_expire(struct gb_session *s) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_intake *intake;
    int64_t at = 0;

    gb_intake_not_found(&why);
    while ((intake = after(s, at))) {
        at = intake->number;
        if (idle(intake)) {
            gb_intake_end(intake, &why);
            gb_intake_withdraw(intake); /* a completed one is forgotten */
        }
        gb_intake_unref(intake);
    }
}

void gb_intakes_end(struct gb_session *s, const struct gb_error *why) {
    struct gb_intake *intake;

    while ((intake = after(s, 0))) {
        gb_intake_end(intake, why);
        gb_intake_withdraw(intake);
        gb_intake_unref(intake);
    }
}
