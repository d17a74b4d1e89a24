/* A part: an upload into the memory of a multipart upload. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/multipart/internal.h"

static const struct gb_upload_role part_role;

static struct gb_part *part_of(struct gb_upload *upload) {
    return (struct gb_part *)upload;
}

static struct gb_part *make_locked(struct gb_multipart *multipart, uint64_t at, uint64_t bytes) {
    struct gb_upload *target = multipart->target;
    struct gb_part *part = (struct gb_part *)gb_upload_new(sizeof(*part), &part_role);
    struct gb_upload_plan *plan;

    if (!part)
        return NULL;
    plan = gb_upload_plan_of(&part->upload);
    plan->bytes = multipart->bytes;
    plan->at = at;
    plan->payload = bytes;
    plan->open_ended = multipart->appends;
    plan->placed = true;
    plan->direct = target->plan.direct;
    plan->scattered = target->plan.scattered;
    plan->view = target->plan.view;
    plan->kind = target->plan.kind;
    part->multipart = gb_multipart_ref(multipart);
    part->target = target;
    part->upload.content = gb_content_ref(target->content);
    gb_core_transfer_ref(&target->t);
    return part;
}

struct gb_upload *gb_part_new_locked(struct gb_multipart *multipart, uint64_t at, uint64_t bytes, struct gb_waker waker,
                                     struct gb_error *err) {
    struct gb_part *part = NULL;
    struct gb_upload *u;

    if (gb_ranges_reserve(&multipart->ranges, multipart->ranges.count + multipart->running + 1) == 0)
        part = make_locked(multipart, at, bytes);
    if (!part) {
        gb_no_memory(err);
        return NULL;
    }
    u = &part->upload;
    gb_core_transfer_init(&u->t, multipart->session, waker, gb_upload_destroy);
    u->t.device = part->target->t.device;
    u->t.stream = gb_core_stream_use_more(part->target->t.stream);
    part->next = multipart->parts;
    multipart->parts = part;
    multipart->running++;
    (void)gb_upload_step(u, GB_UPLOAD_OPEN);
    gb_upload_count_running(u, &multipart->core->uploads_running);
    return u;
}

/* --- begin -------------------------------------------------------------------------------------------------------- */

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
    const struct gb_part *part;

    for (part = multipart->parts; part; part = part->next) {
        const struct gb_upload_plan *p = &part->upload.plan;

        if (part->arrived || p->at >= offset + bytes || offset >= p->at + p->payload)
            continue;
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "another request is sending %llu bytes at offset %llu",
                            (unsigned long long)p->payload, (unsigned long long)p->at);
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
                                      struct gb_waker waker, struct gb_error *err) {
    if (multipart->appends) {
        gb_error_set(err, GB_ERR_UPLOAD_WRONG_KIND,
                     "this upload takes bytes one after the other: PATCH it, or begin one with POST .../uploads");
        return NULL;
    }
    if (gb_multipart_check_locked(multipart, err) < 0 || check_range(multipart, offset, bytes, err) < 0 ||
        check_others(multipart, offset, bytes, err) < 0 || make_way(multipart, offset, bytes, replace, err) < 0)
        return NULL;
    return gb_part_new_locked(multipart, offset, bytes, waker, err);
}

int gb_multipart_part(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                      uint64_t bytes, bool replace, struct gb_waker waker, struct gb_upload **ret,
                      struct gb_error *err) {
    struct gb_multipart *multipart =
        gb_core_alive(core, err) < 0 ? NULL : gb_multipart_find(core, session, id, true, err);
    struct gb_upload *u;

    if (!multipart)
        return -1;
    pthread_mutex_lock(&multipart->lock);
    u = begin_locked(multipart, offset, bytes, replace, waker, err);
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

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void count_times(struct gb_part *part) {
    struct gb_core_transfer *t = &part->upload.t;
    struct gb_core_transfer *whole = &part->target->t;
    uint64_t copy_ns;
    uint64_t queue_ns;

    pthread_mutex_lock(&t->lock);
    copy_ns = t->copy_ns;
    queue_ns = t->queue_ns;
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_lock(&whole->lock);
    whole->copy_ns += copy_ns;
    whole->queue_ns += queue_ns;
    pthread_mutex_unlock(&whole->lock);
}

/* Under the lock: its bytes count now, and the next one may append. */
static void mark_locked(struct gb_part *part, uint64_t bytes, struct gb_multipart_waiter **ret_drained) {
    struct gb_multipart *multipart = part->multipart;
    const struct gb_upload *u = &part->upload;

    gb_ranges_add(&multipart->ranges, u->plan.at, bytes, u->crc, part->multipart->appends);
    multipart->touched_ns = gb_clock_ns();
    multipart->running--;
    part->arrived = true;
    if (multipart->appends)
        gb_multipart_appended_locked(multipart, ret_drained);
    else
        gb_multipart_drained_locked(multipart, ret_drained);
}

/* Instead of a commit. */
static void complete(struct gb_upload *u) {
    struct gb_part *part = part_of(u);
    struct gb_multipart_waiter *drained;

    count_times(part);
    pthread_mutex_lock(&part->multipart->lock);
    mark_locked(part, u->filled, &drained);
    pthread_mutex_unlock(&part->multipart->lock);
    gb_multipart_tell(part->multipart, drained, NULL);
    gb_core_changed(u->t.core);
    pthread_mutex_lock(&u->t.lock);
    (void)gb_upload_step_locked(u, GB_UPLOAD_DONE);
    gb_core_transfer_unlock_wake(&u->t);
    gb_core_transfer_unref(&u->t);
}

/* Takes the part out of the list. What came of one that keeps its bytes counts, unless it counts as a whole or a copy
 * failed. */
static void leave(struct gb_part *part) {
    struct gb_multipart *multipart = part->multipart;
    struct gb_multipart_waiter *drained = NULL;
    struct gb_upload *u = &part->upload;
    struct gb_part **at;

    if (!part->arrived && part->multipart->appends)
        count_times(part);
    pthread_mutex_lock(&multipart->lock);
    for (at = &multipart->parts; *at != part; at = &(*at)->next)
        continue;
    *at = part->next;
    if (!part->arrived && part->multipart->appends)
        mark_locked(part, u->t.error.code == GB_OK && !multipart->append_whole ? u->filled : 0, &drained);
    else if (!part->arrived)
        multipart->running--;
    multipart->touched_ns = gb_clock_ns();
    pthread_mutex_unlock(&multipart->lock);
    gb_multipart_tell(multipart, drained, NULL);
}

static void gone(struct gb_upload *u) {
    struct gb_part *part = part_of(u);
    struct gb_multipart *multipart = part->multipart;
    struct gb_upload *target = part->target;

    leave(part);
    gb_upload_dispose(u);
    /* The target goes last: a call that waits for the end of the multipart upload finds the memory given back. */
    gb_core_transfer_unref(&target->t);
    gb_multipart_unref(multipart);
}

static const struct gb_upload_role part_role = {.complete = complete, .gone = gone};

static int look(struct gb_multipart *multipart, struct gb_multipart_view *ret, struct gb_error *err) {
    int r = 1;

    pthread_mutex_lock(&multipart->lock);
    if (multipart->state == GB_MULTIPART_ENDED)
        r = gb_error_move(err, &multipart->why);
    else
        gb_multipart_view_locked(multipart, ret);
    pthread_mutex_unlock(&multipart->lock);
    return r;
}

int gb_part_result(struct gb_upload *part, uint32_t *ret_crc, struct gb_multipart_view *ret_view,
                   struct gb_error *err) {
    bool done;
    int r = 0;

    pthread_mutex_lock(&part->t.lock);
    done = part->state == GB_UPLOAD_DONE;
    if (!done)
        r = gb_upload_alive_locked(part, err);
    part->t.want_wake = !done && r == 0;
    pthread_mutex_unlock(&part->t.lock);
    if (!done)
        return r;
    *ret_crc = part->crc;
    return ret_view ? look(part_of(part)->multipart, ret_view, err) : 1;
}
