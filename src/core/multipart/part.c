/* A part: an upload into the memory of a multipart upload. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/multipart/internal.h"

static struct gb_upload *make_locked(struct gb_multipart *multipart, uint64_t at, uint64_t bytes) {
    struct gb_upload *target = multipart->target;
    struct gb_upload *u = calloc(1, sizeof(*u));
    unsigned i;

    if (!u)
        return NULL;
    u->multipart = gb_multipart_ref(multipart);
    u->target = target;
    u->params.bytes = bytes;
    u->bytes = multipart->bytes;
    u->at = at;
    u->kind = target->kind;
    u->direct = target->direct;
    u->placed = true;
    u->open = true;
    u->content = gb_content_ref(target->content);
    for (i = 0; i < GB_UPLOAD_COPIES; i++)
        u->copies[i].transfer = &u->t;
    return u;
}

struct gb_upload *gb_part_new_locked(struct gb_multipart *multipart, uint64_t at, uint64_t bytes, bool keeps,
                                     void (*wake)(void *arg), void *arg, struct gb_error *err) {
    struct gb_upload *u = NULL;

    if (gb_ranges_reserve(&multipart->ranges, multipart->ranges.count + multipart->running + 1) == 0)
        u = make_locked(multipart, at, bytes);
    if (!u) {
        gb_no_memory(err);
        return NULL;
    }
    gb_core_transfer_init(&u->t, multipart->session, wake, arg, gb_upload_destroy);
    u->t.device = multipart->target->t.device;
    u->t.stream = gb_core_stream_use_more(multipart->target->t.stream);
    gb_core_transfer_ref(&multipart->target->t);
    u->keeps = keeps;
    u->part_next = multipart->parts;
    multipart->parts = u;
    multipart->running++;
    atomic_fetch_add(&multipart->core->uploads_running, 1);
    gb_core_changed(multipart->core);
    return u;
}

/* --- begin ---------------------------------------------------------------------------------------------------------------------- */

static int check_range(const struct gb_multipart *multipart, uint64_t offset, uint64_t bytes, struct gb_error *err) {
    if (bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a part of no bytes: leave it out");
    if (offset <= multipart->bytes && bytes <= multipart->bytes - offset)
        return 0;
    return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE,
                        "%llu bytes at offset %llu do not fit into the %llu bytes of the upload",
                        (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)multipart->bytes);
}

static int check_others(const struct gb_multipart *multipart, uint64_t offset, uint64_t bytes, struct gb_error *err) {
    const struct gb_upload *u;

    for (u = multipart->parts; u; u = u->part_next) {
        if (u->arrived || u->at >= offset + bytes || offset >= u->at + u->params.bytes)
            continue;
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "another request is sending %llu bytes at offset %llu",
                            (unsigned long long)u->params.bytes, (unsigned long long)u->at);
    }
    return 0;
}

/* What arrived there before is overwritten from now on. */
static int make_way(struct gb_multipart *multipart, uint64_t offset, uint64_t bytes, bool replace,
                    struct gb_error *err) {
    if (multipart->ranges.count + multipart->running >= GB_MULTIPART_PARTS_MAX)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED, "an upload is made of at most %d parts", GB_MULTIPART_PARTS_MAX);
    if (!replace && gb_ranges_meet(&multipart->ranges, offset, bytes))
        return gb_error_set(err, GB_ERR_UPLOAD_OVERLAP,
                            "of %llu bytes at offset %llu some arrived: send what is missing; ?replace=true overwrites "
                            "parts that arrived",
                            (unsigned long long)bytes, (unsigned long long)offset);
    if (gb_ranges_take(&multipart->ranges, offset, bytes))
        return 0;
    return gb_error_set(err, GB_ERR_UPLOAD_OVERLAP,
                        "%llu bytes at offset %llu cut through a part that arrived: send missing ranges, or parts as "
                        "they were sent before",
                        (unsigned long long)bytes, (unsigned long long)offset);
}

static struct gb_upload *begin_locked(struct gb_multipart *multipart, uint64_t offset, uint64_t bytes, bool replace,
                                      void (*wake)(void *arg), void *arg, struct gb_error *err) {
    if (multipart->appends) {
        gb_error_set(err, GB_ERR_UPLOAD_WRONG_KIND,
                     "this upload takes bytes one after the other: PATCH it, or begin one with POST .../uploads");
        return NULL;
    }
    if (gb_multipart_check_locked(multipart, err) < 0 || check_range(multipart, offset, bytes, err) < 0 ||
        check_others(multipart, offset, bytes, err) < 0 || make_way(multipart, offset, bytes, replace, err) < 0)
        return NULL;
    return gb_part_new_locked(multipart, offset, bytes, false, wake, arg, err);
}

int gb_multipart_part(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                      uint64_t bytes, bool replace, void (*wake)(void *arg), void *arg, struct gb_upload **ret,
                      struct gb_error *err) {
    struct gb_multipart *multipart =
        gb_core_alive(core, err) < 0 ? NULL : gb_multipart_find(core, session, id, true, err);
    struct gb_upload *u;

    if (!multipart)
        return -1;
    pthread_mutex_lock(&multipart->lock);
    u = begin_locked(multipart, offset, bytes, replace, wake, arg, err);
    pthread_mutex_unlock(&multipart->lock);
    gb_multipart_unref(multipart);
    if (!u)
        return -1;
    *ret = u;
    return 0;
}

bool gb_multipart_arrived(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                          uint64_t bytes, uint32_t *ret_crc) {
    struct gb_multipart *multipart = gb_multipart_find(core, session, id, true, NULL);
    bool arrived;

    if (!multipart)
        return false;
    pthread_mutex_lock(&multipart->lock);
    arrived = multipart->state == GB_MULTIPART_OPEN && offset <= multipart->bytes &&
              bytes <= multipart->bytes - offset && gb_ranges_cover(&multipart->ranges, offset, bytes, ret_crc);
    pthread_mutex_unlock(&multipart->lock);
    gb_multipart_unref(multipart);
    return arrived;
}

/* --- the end ----------------------------------------------------------------------------------------------------------------------- */

static void count_times(struct gb_upload *u) {
    struct gb_core_transfer *whole = &u->target->t;
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
static void mark_locked(struct gb_upload *u, struct gb_multipart_waiter **ret_settled) {
    struct gb_multipart *multipart = u->multipart;

    gb_ranges_add(&multipart->ranges, u->at, u->filled, u->crc, u->keeps);
    multipart->touched_ns = gb_clock_ns();
    multipart->running--;
    u->arrived = true;
    if (u->keeps)
        multipart->append_locked = false;
    gb_multipart_drained_locked(multipart, ret_settled);
}

void gb_part_arrived(struct gb_upload *u) {
    struct gb_multipart_waiter *settled;

    count_times(u);
    pthread_mutex_lock(&u->multipart->lock);
    mark_locked(u, &settled);
    pthread_mutex_unlock(&u->multipart->lock);
    gb_multipart_tell(u->multipart, settled, NULL);
    gb_core_changed(u->t.core);
    pthread_mutex_lock(&u->t.lock);
    u->finished = true;
    gb_core_transfer_unlock_wake(&u->t);
    gb_core_transfer_unref(&u->t);
}

void gb_part_gone(struct gb_upload *u) {
    struct gb_multipart *multipart = u->multipart;
    struct gb_multipart_waiter *settled = NULL;
    struct gb_upload **at;

    if (!u->arrived && u->keeps)
        count_times(u);
    pthread_mutex_lock(&multipart->lock);
    for (at = &multipart->parts; *at != u; at = &(*at)->part_next)
        continue;
    *at = u->part_next;
    if (!u->arrived && u->keeps) {
        if (u->t.error.code != GB_OK)
            u->filled = 0; /* what of it was copied is not known */
        mark_locked(u, &settled);
    } else if (!u->arrived) {
        multipart->running--;
    }
    multipart->touched_ns = gb_clock_ns();
    pthread_mutex_unlock(&multipart->lock);
    gb_multipart_tell(multipart, settled, NULL);
}

int gb_part_result(struct gb_upload *part, uint32_t *ret_crc, struct gb_error *err) {
    bool done;
    int r = 0;

    pthread_mutex_lock(&part->t.lock);
    done = part->finished;
    if (!done)
        r = gb_core_transfer_check_locked(&part->t, err);
    part->t.want_wake = !done && r == 0;
    pthread_mutex_unlock(&part->t.lock);
    if (!done)
        return r;
    *ret_crc = part->crc;
    return 1;
}
