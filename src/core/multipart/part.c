/* A part: an upload into the memory of an intake. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/multipart/internal.h"

static struct gb_upload *make_locked(struct gb_intake *intake, uint64_t at, uint64_t bytes) {
    struct gb_upload *carrier = intake->carrier;
    struct gb_upload *u = calloc(1, sizeof(*u));
    unsigned i;

    if (!u)
        return NULL;
    u->intake = gb_intake_ref(intake);
    u->carrier = carrier;
    u->params.bytes = bytes;
    u->bytes = intake->bytes;
    u->at = at;
    u->kind = carrier->kind;
    u->direct = carrier->direct;
    u->placed = true;
    u->open = true;
    u->content = gb_content_ref(carrier->content);
    for (i = 0; i < GB_UPLOAD_FLIGHTS; i++)
        u->flights[i].transfer = &u->t;
    return u;
}

struct gb_upload *gb_part_new_locked(struct gb_intake *intake, uint64_t at, uint64_t bytes, bool keeps,
                                     void (*wake)(void *arg), void *arg, struct gb_error *err) {
    struct gb_upload *u = NULL;

    if (gb_ranges_reserve(&intake->ranges, intake->ranges.count + intake->running + 1) == 0)
        u = make_locked(intake, at, bytes);
    if (!u) {
        gb_no_memory(err);
        return NULL;
    }
    gb_transfer_init(&u->t, intake->session, wake, arg, gb_upload_destroy);
    u->t.device = intake->carrier->t.device;
    u->t.stream = gb_core_stream_use_more(intake->carrier->t.stream);
    gb_transfer_ref(&intake->carrier->t);
    u->keeps = keeps;
    u->part_next = intake->parts;
    intake->parts = u;
    intake->running++;
    atomic_fetch_add(&intake->core->uploads_running, 1);
    gb_core_changed(intake->core);
    return u;
}

/* --- begin ---------------------------------------------------------------------------------------------------------------------- */

static int check_range(const struct gb_intake *intake, uint64_t offset, uint64_t bytes, struct gb_error *err) {
    if (bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a part of no bytes: leave it out");
    if (offset <= intake->bytes && bytes <= intake->bytes - offset)
        return 0;
    return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE,
                        "%llu bytes at offset %llu do not fit into the %llu bytes of the upload",
                        (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)intake->bytes);
}

static int check_others(const struct gb_intake *intake, uint64_t offset, uint64_t bytes, struct gb_error *err) {
    const struct gb_upload *u;

    for (u = intake->parts; u; u = u->part_next) {
        if (u->arrived || u->at >= offset + bytes || offset >= u->at + u->params.bytes)
            continue;
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "another request is sending %llu bytes at offset %llu",
                            (unsigned long long)u->params.bytes, (unsigned long long)u->at);
    }
    return 0;
}

/* What arrived there before is overwritten from now on. */
static int make_way(struct gb_intake *intake, uint64_t offset, uint64_t bytes, bool replace, struct gb_error *err) {
    if (intake->ranges.count + intake->running >= GB_INTAKE_PARTS_MAX)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED, "an upload is made of at most %d parts", GB_INTAKE_PARTS_MAX);
    if (!replace && gb_ranges_meet(&intake->ranges, offset, bytes))
        return gb_error_set(err, GB_ERR_UPLOAD_OVERLAP,
                            "of %llu bytes at offset %llu some arrived: send what is missing; ?replace=true overwrites "
                            "parts that arrived",
                            (unsigned long long)bytes, (unsigned long long)offset);
    if (gb_ranges_take(&intake->ranges, offset, bytes))
        return 0;
    return gb_error_set(err, GB_ERR_UPLOAD_OVERLAP,
                        "%llu bytes at offset %llu cut through a part that arrived: send missing ranges, or parts as "
                        "they were sent before",
                        (unsigned long long)bytes, (unsigned long long)offset);
}

static struct gb_upload *begin_locked(struct gb_intake *intake, uint64_t offset, uint64_t bytes, bool replace,
                                      void (*wake)(void *arg), void *arg, struct gb_error *err) {
    if (intake->appends) {
        gb_error_set(err, GB_ERR_UPLOAD_WRONG_KIND,
                     "this upload takes bytes one after the other: PATCH it, or begin one with POST .../uploads");
        return NULL;
    }
    if (gb_intake_check_locked(intake, err) < 0 || check_range(intake, offset, bytes, err) < 0 ||
        check_others(intake, offset, bytes, err) < 0 || make_way(intake, offset, bytes, replace, err) < 0)
        return NULL;
    return gb_part_new_locked(intake, offset, bytes, false, wake, arg, err);
}

int gb_intake_part(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset, uint64_t bytes,
                   bool replace, void (*wake)(void *arg), void *arg, struct gb_upload **ret, struct gb_error *err) {
    struct gb_intake *intake = gb_core_alive(core, err) < 0 ? NULL : gb_intake_find(core, session, id, true, err);
    struct gb_upload *u;

    if (!intake)
        return -1;
    pthread_mutex_lock(&intake->lock);
    u = begin_locked(intake, offset, bytes, replace, wake, arg, err);
    pthread_mutex_unlock(&intake->lock);
    gb_intake_unref(intake);
    if (!u)
        return -1;
    *ret = u;
    return 0;
}

bool gb_intake_arrived(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                       uint64_t bytes, uint32_t *ret_crc) {
    struct gb_intake *intake = gb_intake_find(core, session, id, true, NULL);
    bool arrived;

    if (!intake)
        return false;
    pthread_mutex_lock(&intake->lock);
    arrived = intake->state == GB_INTAKE_OPEN && offset <= intake->bytes && bytes <= intake->bytes - offset &&
              gb_ranges_cover(&intake->ranges, offset, bytes, ret_crc);
    pthread_mutex_unlock(&intake->lock);
    gb_intake_unref(intake);
    return arrived;
}

/* --- the end ----------------------------------------------------------------------------------------------------------------------- */

static void count_times(struct gb_upload *u) {
    struct gb_transfer *whole = &u->carrier->t;
    uint64_t copy_ns;
    uint64_t queue_ns;

    pthread_mutex_lock(&u->t.lock);
    copy_ns = u->t.copy_ns;
    queue_ns = u->t.queue_ns;
    pthread_mutex_unlock(&u->t.lock);
    pthread_mutex_lock(&whole->lock);
    whole->copy_ns += copy_ns;
    whole->queue_ns += queue_ns;
    pthread_mutex_unlock(&whole->lock);
}

/* Under the lock: its bytes count now, and the next one may append. */
static void mark_locked(struct gb_upload *u, struct gb_intake_waiter **ret_settled) {
    struct gb_intake *intake = u->intake;

    gb_ranges_add(&intake->ranges, u->at, u->filled, u->crc, u->keeps);
    intake->touched_ns = gb_clock_ns();
    intake->running--;
    u->arrived = true;
    if (u->keeps)
        intake->turn = false;
    gb_intake_settled_locked(intake, ret_settled);
}

void gb_part_arrived(struct gb_upload *u) {
    struct gb_intake_waiter *settled;

    count_times(u);
    pthread_mutex_lock(&u->intake->lock);
    mark_locked(u, &settled);
    pthread_mutex_unlock(&u->intake->lock);
    gb_intake_tell(u->intake, settled, NULL);
    gb_core_changed(u->t.core);
    pthread_mutex_lock(&u->t.lock);
    u->finished = true;
    gb_transfer_unlock_wake(&u->t);
    gb_transfer_unref(&u->t);
}

void gb_part_gone(struct gb_upload *u) {
    struct gb_intake *intake = u->intake;
    struct gb_intake_waiter *settled = NULL;
    struct gb_upload **at;

    if (!u->arrived && u->keeps)
        count_times(u);
    pthread_mutex_lock(&intake->lock);
    for (at = &intake->parts; *at != u; at = &(*at)->part_next)
        continue;
    *at = u->part_next;
    if (!u->arrived && u->keeps) {
        if (u->t.error.code != GB_OK)
            u->filled = 0; /* what of it was copied is not known */
        mark_locked(u, &settled);
    } else if (!u->arrived) {
        intake->running--;
    }
    intake->touched_ns = gb_clock_ns();
    pthread_mutex_unlock(&intake->lock);
    gb_intake_tell(intake, settled, NULL);
}

int gb_part_result(struct gb_upload *part, uint32_t *ret_crc, struct gb_error *err) {
    bool done;
    int r = 0;

    pthread_mutex_lock(&part->t.lock);
    done = part->finished;
    if (!done)
        r = gb_transfer_check_locked(&part->t, err);
    part->t.want_wake = !done && r == 0;
    pthread_mutex_unlock(&part->t.lock);
    if (!done)
        return r;
    *ret_crc = part->crc;
    return 1;
}
