/* The bytes of a multipart upload: parts in any order, or appends in sequence; and the checks before its commit. A part
 * is an upload into the target's memory, whose end records a range. Handlers call this. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "core/transfer/download.h"
#include "core/transfer/multipart.h"

static struct gb_part *part_of(struct gb_upload *upload) {
    return (struct gb_part *)upload;
}

/* --- the end of a part -------------------------------------------------------------------------------------------- */

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

/* Records the part's bytes, and lets the next request append. The lock is held. */
static void mark_locked(struct gb_part *part, uint64_t bytes, struct gb_multipart_waiter **ret_drained) {
    struct gb_multipart *multipart = part->multipart;
    const struct gb_upload *u = &part->upload;

    if (part->gapped && bytes > 0)
        gb_ranges_add(&multipart->file_ranges, part->file_at, part->file_filled, part->file_crc, multipart->appends);
    gb_ranges_add(&multipart->ranges, u->plan.at, bytes, u->crc, part->multipart->appends);
    multipart->touched_ns = gb_clock_ns();
    multipart->running--;
    part->arrived = true;
    if (multipart->appends)
        gb_multipart_appended_locked(multipart, ret_drained);
    else
        gb_multipart_drained_locked(multipart, ret_drained);
}

/* Records the range; a part has no commit of its own. */
static void complete(struct gb_upload *u) {
    struct gb_part *part = part_of(u);
    struct gb_multipart_waiter *drained;

    count_times(part);
    pthread_mutex_lock(&part->multipart->lock);
    mark_locked(part, u->filled, &drained);
    pthread_mutex_unlock(&part->multipart->lock);
    gb_multipart_finish_calls(part->multipart, drained, NULL);
    gb_core_changed(u->t.core);
    pthread_mutex_lock(&u->t.lock);
    (void)gb_upload_step_locked(u, GB_UPLOAD_DONE);
    gb_core_transfer_unlock_wake(&u->t);
    gb_core_transfer_unref(&u->t);
}

/* Takes the part out of the list. The bytes of an append that broke off count, unless the append counts as a whole or a
 * copy failed. */
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
    gb_multipart_finish_calls(multipart, drained, NULL);
}

static void gone(struct gb_upload *u) {
    struct gb_part *part = part_of(u);
    struct gb_multipart *multipart = part->multipart;
    struct gb_upload *target = part->target;

    leave(part);
    gb_upload_dispose(u);
    /* The target goes last, so that the memory is free when a call that waits for the end returns. */
    gb_core_transfer_unref(&target->t);
    gb_multipart_unref(multipart);
}

static const struct gb_upload_role part_role = {.complete = complete, .gone = gone};

/* The range of the file that lies in a range of memory. */
static void in_file_locked(const struct gb_multipart *multipart, uint64_t at, uint64_t bytes, uint64_t *ret_at,
                           uint64_t *ret_bytes) {
    const struct gb_gaps *gaps = &multipart->gaps;

    *ret_at = at;
    *ret_bytes = bytes;
    if (!gb_multipart_gapped_locked(multipart))
        return;
    *ret_at = gaps->before(gaps->arg, at);
    *ret_bytes = gaps->before(gaps->arg, at + bytes) - *ret_at;
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
    part->gapped = gb_multipart_gapped_locked(multipart);
    in_file_locked(multipart, at, bytes, &part->file_at, &part->file_bytes);
    part->target = target;
    part->upload.content = gb_content_ref(target->content);
    gb_core_transfer_ref(&target->t);
    return part;
}

struct gb_upload *gb_part_new_locked(struct gb_multipart *multipart, uint64_t at, uint64_t bytes, struct gb_waker waker,
                                     struct gb_error *err) {
    const size_t count = multipart->ranges.count + multipart->running + 1;
    struct gb_part *part = NULL;
    struct gb_upload *u;

    if (gb_ranges_reserve(&multipart->ranges, count) == 0 && gb_ranges_reserve(&multipart->file_ranges, count) == 0)
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

/* --- beginning ---------------------------------------------------------------------------------------------------- */

static int check_range(const struct gb_multipart *multipart, uint64_t offset, uint64_t bytes, struct gb_error *err) {
    uint64_t total = gb_multipart_bytes_locked(multipart);

    if (bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a part of no bytes: leave it out");
    if (offset <= total && bytes <= total - offset)
        return 0;
    return gb_error_set(err, GB_ERR_RANGE_NOT_SATISFIABLE,
                        "%llu bytes at offset %llu do not fit into the %llu bytes of the upload",
                        (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)total);
}

static int check_others(const struct gb_multipart *multipart, uint64_t offset, uint64_t bytes, struct gb_error *err) {
    const struct gb_part *part;

    for (part = multipart->parts; part; part = part->next) {
        if (part->arrived || part->file_at >= offset + bytes || offset >= part->file_at + part->file_bytes)
            continue;
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "another request is sending %llu bytes at offset %llu",
                            (unsigned long long)part->file_bytes, (unsigned long long)part->file_at);
    }
    return 0;
}

/* Refuses a range that bytes have arrived in, unless the request replaces whole parts. Takes those out. Returns 0 or
 * -1. */
static int make_way(struct gb_multipart *multipart, uint64_t offset, uint64_t bytes, uint64_t memory_at,
                    uint64_t memory_bytes, bool replace, struct gb_error *err) {
    if (multipart->ranges.count + multipart->running >= GB_MULTIPART_PARTS_MAX)
        return gb_error_set(err, GB_ERR_LIMIT_REACHED, "an upload is made of at most %d parts", GB_MULTIPART_PARTS_MAX);
    if (!replace && gb_ranges_meet(gb_multipart_ranges_locked(multipart), offset, bytes))
        return gb_error_set(err, GB_ERR_UPLOAD_OVERLAP,
                            "of %llu bytes at offset %llu some arrived: send what is missing; ?replace=true overwrites "
                            "parts that arrived",
                            (unsigned long long)bytes, (unsigned long long)offset);
    if (gb_ranges_take(&multipart->ranges, memory_at, memory_bytes)) {
        if (gb_multipart_gapped_locked(multipart))
            (void)gb_ranges_take(&multipart->file_ranges, offset, bytes); /* has the same pieces */
        return 0;
    }
    return gb_error_set(err, GB_ERR_UPLOAD_OVERLAP,
                        "%llu bytes at offset %llu cut through a part that arrived: send missing ranges, or parts as "
                        "they were sent before",
                        (unsigned long long)bytes, (unsigned long long)offset);
}

static struct gb_upload *begin_locked(struct gb_multipart *multipart, uint64_t offset, uint64_t bytes, bool replace,
                                      struct gb_waker waker, struct gb_error *err) {
    const struct gb_gaps *gaps = &multipart->gaps;
    uint64_t at = offset;
    uint64_t end = offset + bytes;

    if (multipart->appends) {
        gb_error_set(err, GB_ERR_UPLOAD_WRONG_KIND,
                     "this upload takes bytes one after the other: PATCH it, or begin one with POST .../uploads");
        return NULL;
    }
    if (gb_multipart_check_locked(multipart, err) < 0 || check_range(multipart, offset, bytes, err) < 0)
        return NULL;
    if (gb_multipart_gapped_locked(multipart)) {
        at = gaps->place(gaps->arg, at);
        end = gaps->place(gaps->arg, end);
    }
    if (check_others(multipart, offset, bytes, err) < 0 ||
        make_way(multipart, offset, bytes, at, end - at, replace, err) < 0)
        return NULL;
    return gb_part_new_locked(multipart, at, end - at, waker, err);
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
    uint64_t total;
    bool arrived;

    if (!multipart)
        return false;
    pthread_mutex_lock(&multipart->lock);
    total = gb_multipart_bytes_locked(multipart);
    arrived = multipart->state == GB_MULTIPART_OPEN && offset <= total && bytes <= total - offset &&
              gb_ranges_cover(gb_multipart_ranges_locked(multipart), offset, bytes, ret_crc);
    pthread_mutex_unlock(&multipart->lock);
    gb_multipart_unref(multipart);
    return arrived;
}

static int view_open(struct gb_multipart *multipart, struct gb_multipart_view *ret, struct gb_error *err) {
    int r = 1;

    pthread_mutex_lock(&multipart->lock);
    if (multipart->state == GB_MULTIPART_ENDED)
        r = gb_error_move(err, &multipart->why);
    else
        gb_multipart_view_locked(multipart, ret);
    pthread_mutex_unlock(&multipart->lock);
    return r;
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

/* The gap before bytes of the file belongs to the part that has them. */
int gb_part_room(struct gb_upload *u, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct gb_part *part = part_of(u);
    const struct gb_gaps *gaps = &part->multipart->gaps;
    uint64_t run;
    bool gap = true;
    int r;

    while (gap) {
        r = gb_upload_room(u, &part->room, ret_n, err);
        if (r <= 0)
            return r;
        if (!part->gapped)
            break;
        run = gaps->run(gaps->arg, u->plan.at + u->filled, &gap);
        if (*ret_n > run)
            *ret_n = (size_t)run;
        if (!gap)
            break;
        memset(part->room, 0, *ret_n);
        if (gb_upload_fill(u, *ret_n, err) < 0)
            return -1;
    }
    *ret_ptr = part->room;
    return 1;
}

int gb_part_fill(struct gb_upload *u, size_t n, struct gb_error *err) {
    struct gb_part *part = part_of(u);
    const struct gb_gaps *gaps = &part->multipart->gaps;

    if (part->gapped) {
        if (gaps->check(gaps->arg, u->plan.at + u->filled, part->room, n, err) < 0)
            return -1;
        part->file_crc = gb_crc32c(part->file_crc, part->room, n);
        part->file_filled += n;
    }
    return gb_upload_fill(u, n, err);
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
    *ret_crc = part_of(part)->gapped ? part_of(part)->file_crc : part->crc;
    return ret_view ? view_open(part_of(part)->multipart, ret_view, err) : 1;
}

/* --- the append lock ---------------------------------------------------------------------------------------------- */

/* One request appends at a time. Bytes that came before a connection broke are kept, unless they are to be compared
 * with a digest first. */

static struct gb_append *append_new(struct gb_multipart *multipart, struct gb_waker waker, struct gb_error *err) {
    struct gb_append *a = calloc(1, sizeof(*a));

    if (!a) {
        gb_no_memory(err);
        return NULL;
    }
    a->multipart = gb_multipart_ref(multipart);
    a->waker = waker;
    return a;
}

static void lock_locked(struct gb_multipart *multipart, struct gb_append *a) {
    multipart->append_locked = true;
    multipart->append_whole = false;
    multipart->append = a;
    a->before = (struct gb_append_before){multipart->header_used, multipart->has_length, multipart->length};
}

int gb_append_new(struct gb_core *core, const struct gb_upload_params *params, const uint64_t *length, void *app,
                  void (*free_app)(void *app), struct gb_waker waker, struct gb_append **ret, struct gb_error *err) {
    struct gb_multipart *multipart;
    struct gb_append *a;

    if (gb_multipart_new(core, params, true, &multipart, err) < 0) {
        free_app(app);
        return -1;
    }
    a = append_new(multipart, waker, err);
    pthread_mutex_lock(&multipart->lock);
    multipart->app = app;
    multipart->free_app = free_app;
    multipart->has_length = length != NULL;
    multipart->length = length ? *length : 0;
    if (a)
        lock_locked(multipart, a);
    pthread_mutex_unlock(&multipart->lock);
    if (a)
        *ret = a;
    else
        gb_multipart_end(multipart, err);
    gb_multipart_unref(multipart);
    return a ? 0 : -1;
}

static int check_locked(struct gb_multipart *multipart, uint64_t offset, uint64_t *ret_offset, struct gb_error *err) {
    uint64_t stands = gb_multipart_offset_locked(multipart);

    *ret_offset = stands;
    if (multipart->state == GB_MULTIPART_ENDED)
        return gb_multipart_not_found(err);
    if (!multipart->appends)
        return gb_error_set(err, GB_ERR_UPLOAD_WRONG_KIND,
                            "this upload takes parts: PUT .../parts?offset=N; one that is appended to begins with "
                            "Upload-Complete: ?0");
    if (multipart->append_locked)
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY,
                            "another request is appending; where it is not to be waited for, HEAD cuts it off");
    if (multipart->state > GB_MULTIPART_OPEN || multipart->sealed)
        return gb_multipart_check_locked(multipart, err);
    if (offset == stands)
        return 0;
    return gb_error_set(err, GB_ERR_UPLOAD_OFFSET_MISMATCH,
                        "the upload has %llu bytes and the request goes on at %llu: go on where it stands",
                        (unsigned long long)stands, (unsigned long long)offset);
}

int gb_append_open(struct gb_core *core, const struct gb_name *session, const char *id, uint64_t offset,
                   struct gb_waker waker, struct gb_append **ret, uint64_t *ret_offset, struct gb_error *err) {
    struct gb_multipart *multipart =
        gb_core_alive(core, err) < 0 ? NULL : gb_multipart_find(core, session, id, true, err);
    struct gb_append *a = multipart ? append_new(multipart, waker, err) : NULL;
    int r = -1;

    if (a) {
        pthread_mutex_lock(&multipart->lock);
        r = check_locked(multipart, offset, ret_offset, err);
        if (r == 0)
            lock_locked(multipart, a);
        pthread_mutex_unlock(&multipart->lock);
    }
    if (a && r < 0) {
        gb_multipart_unref(multipart);
        free(a);
    }
    gb_multipart_unref(multipart);
    if (r == 0)
        *ret = a;
    return r;
}

void gb_append_free(struct gb_append *a, bool spoiled) {
    struct gb_multipart_waiter *waiters = NULL;
    struct gb_error why = GB_ERROR_INIT;
    struct gb_multipart *multipart;

    if (!a)
        return;
    multipart = a->multipart;
    pthread_mutex_lock(&multipart->lock);
    if (multipart->append == a) {
        multipart->append = NULL;
        /* A part, or memory that is being freed, keeps the append lock until its end. */
        multipart->append_locked = multipart->append_locked && (a->part || a->discards);
        multipart->touched_ns = gb_clock_ns();
        gb_multipart_drained_locked(multipart, &waiters);
    }
    pthread_mutex_unlock(&multipart->lock);
    if (a->part) {
        (void)gb_upload_flush(a->part, NULL);
        gb_upload_free(a->part);
    }
    gb_multipart_finish_calls(multipart, waiters, NULL);
    if (spoiled) {
        gb_multipart_not_found(&why);
        gb_multipart_end(multipart, &why);
    }
    free(a);
    gb_multipart_unref(multipart);
}

/* --- appends that count as a whole -------------------------------------------------------------------------------- */

void gb_append_whole(struct gb_append *append) {
    struct gb_multipart *multipart = append->multipart;

    pthread_mutex_lock(&multipart->lock);
    multipart->append_whole = true;
    pthread_mutex_unlock(&multipart->lock);
}

void gb_append_discard(struct gb_append *a) {
    struct gb_multipart *multipart = a->multipart;
    struct gb_upload *target = NULL;
    struct gb_upload *part = a->part;

    pthread_mutex_lock(&multipart->lock);
    if (a->describes)
        target = gb_multipart_retract_locked(multipart);
    multipart->header_used = a->before.header_used;
    multipart->has_length = a->before.has_length;
    multipart->length = a->before.length;
    a->discards = part || target;
    a->part = NULL;
    pthread_mutex_unlock(&multipart->lock);
    gb_upload_free(part);
    gb_upload_free(target);
}

bool gb_append_discarded(struct gb_append *a) {
    struct gb_multipart *multipart = a->multipart;
    bool discarded;

    pthread_mutex_lock(&multipart->lock);
    discarded = !a->discards || !multipart->append_locked || multipart->append != a;
    pthread_mutex_unlock(&multipart->lock);
    return discarded;
}

/* --- views -------------------------------------------------------------------------------------------------------- */

void *gb_append_app(struct gb_append *append) {
    return append->multipart->app;
}

void gb_append_view(struct gb_append *append, struct gb_multipart_view *ret) {
    pthread_mutex_lock(&append->multipart->lock);
    gb_multipart_view_locked(append->multipart, ret);
    pthread_mutex_unlock(&append->multipart->lock);
}

bool gb_append_described(struct gb_append *append) {
    bool described;

    pthread_mutex_lock(&append->multipart->lock);
    described = append->multipart->state != GB_MULTIPART_HEADER;
    pthread_mutex_unlock(&append->multipart->lock);
    return described;
}

int gb_append_length(struct gb_append *append, uint64_t length, struct gb_error *err) {
    struct gb_multipart *multipart = append->multipart;
    int r = 0;

    pthread_mutex_lock(&multipart->lock);
    if (multipart->has_length && multipart->length != length)
        r = gb_error_set(err, GB_ERR_UPLOAD_LENGTH_MISMATCH,
                         "the upload has %llu bytes in all, and now %llu are told of",
                         (unsigned long long)multipart->length, (unsigned long long)length);
    else
        multipart->length = length;
    multipart->has_length = true;
    pthread_mutex_unlock(&multipart->lock);
    return r;
}

/* Returns 0; -1 if another request cut the append off, or the multipart upload has ended. The lock is held. */
static int alive_locked(struct gb_append *a, struct gb_error *err) {
    if (a->multipart->state == GB_MULTIPART_ENDED)
        return gb_error_move(err, &a->multipart->why);
    if (a->cut)
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY,
                            "another request asked where the upload stands and goes on with it");
    return 0;
}

/* --- the header prefix -------------------------------------------------------------------------------------------- */

static int hold_header(struct gb_multipart *multipart, size_t more, struct gb_error *err) {
    _Atomic uint64_t *held = &multipart->core->multipart_headers;

    if (atomic_fetch_add(held, more) + more <= GB_MULTIPART_HEADERS_BYTES_MAX)
        return 0;
    atomic_fetch_sub(held, more);
    return gb_error_set(err, GB_ERR_LIMIT_REACHED,
                        "open uploads hold %u bytes of headers, as many as they may: complete or delete some, or PUT "
                        "the file in one request",
                        GB_MULTIPART_HEADERS_BYTES_MAX);
}

int gb_append_header_room(struct gb_append *append, size_t want, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct gb_multipart *multipart = append->multipart;
    size_t size = want < GB_MULTIPART_HEADER_MAX ? want : GB_MULTIPART_HEADER_MAX;
    char *header = multipart->header;
    int r;

    /* Only the holder of the append lock changes the header prefix; others read its length. */
    if (size > multipart->header_size) {
        if (hold_header(multipart, size - multipart->header_size, err) < 0)
            return -1;
        header = realloc(header, size);
        if (!header) {
            atomic_fetch_sub(&multipart->core->multipart_headers, size - multipart->header_size);
            return gb_no_memory(err);
        }
        multipart->header = header;
        multipart->header_size = size;
    }
    pthread_mutex_lock(&multipart->lock);
    r = alive_locked(append, err);
    pthread_mutex_unlock(&multipart->lock);
    if (r < 0)
        return -1;
    *ret_ptr = header + multipart->header_used;
    *ret_n = size - multipart->header_used;
    return 1;
}

void gb_append_header_fill(struct gb_append *append, size_t n) {
    pthread_mutex_lock(&append->multipart->lock);
    append->multipart->header_used += n;
    pthread_mutex_unlock(&append->multipart->lock);
}

const char *gb_append_header(struct gb_append *append, size_t *ret_n) {
    *ret_n = append->multipart->header_used;
    return append->multipart->header;
}

int gb_append_describe(struct gb_append *append, const struct gb_upload_params *params, uint64_t skip,
                       struct gb_error *err) {
    append->multipart->skip = skip;
    append->describes = true;
    return gb_multipart_target_start(append->multipart, params, err);
}

/* --- the payload -------------------------------------------------------------------------------------------------- */

/* Returns 1 if the append has a part; 0 while memory is being allocated; -1. The lock is held. */
static int part_locked(struct gb_append *a, struct gb_error *err) {
    struct gb_multipart *multipart = a->multipart;
    uint64_t at;

    if (alive_locked(a, err) < 0)
        return -1;
    if (multipart->state == GB_MULTIPART_OPENING)
        return 0;
    if (a->part)
        return 1;
    if (gb_multipart_check_locked(multipart, err) < 0)
        return -1;
    at = gb_ranges_prefix(&multipart->ranges);
    a->part = gb_part_new_locked(multipart, at, multipart->bytes - at, a->waker, err);
    return a->part ? 1 : -1;
}

static int need_part(struct gb_append *a, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&a->multipart->lock);
    r = part_locked(a, err);
    pthread_mutex_unlock(&a->multipart->lock);
    return r;
}

/* Copies the payload's beginning, which came with the header prefix. Returns 1 if all of that is copied; 0: wake
 * follows; -1. */
static int push_prefix(struct gb_append *a, struct gb_error *err) {
    const struct gb_multipart *multipart = a->multipart;
    uint64_t at = a->part->plan.at + a->part->filled;
    size_t n = multipart->header_used - multipart->skip;
    size_t done = (size_t)at;
    int r;

    if (at >= n)
        return 1;
    r = gb_upload_copy_in(a->part, multipart->header + multipart->skip, n, &done, err);
    if (part_of(a->part)->gapped) { /* the beginning of the file, which has no gap */
        part_of(a->part)->file_crc = gb_crc32c(part_of(a->part)->file_crc, multipart->header + at, done - (size_t)at);
        part_of(a->part)->file_filled += done - (size_t)at;
    }
    return r;
}

static int ready(struct gb_append *a, struct gb_error *err) {
    int r = need_part(a, err);

    return r > 0 ? push_prefix(a, err) : r;
}

int gb_append_room(struct gb_append *append, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    int r = ready(append, err);

    return r > 0 ? gb_part_room(append->part, ret_ptr, ret_n, err) : r;
}

int gb_append_fill(struct gb_append *append, size_t n, struct gb_error *err) {
    return gb_part_fill(append->part, n, err);
}

void gb_append_pause(struct gb_append *append, bool stalled) {
    if (append->part)
        gb_upload_pause(append->part, stalled);
}

int gb_append_end(struct gb_append *a, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&a->multipart->lock);
    a->multipart->append_whole = false;
    pthread_mutex_unlock(&a->multipart->lock);
    r = ready(a, err);

    if (r <= 0)
        return r;
    return gb_upload_end(a->part, err) < 0 ? -1 : 1;
}

int gb_append_result(struct gb_append *append, struct gb_multipart_view *ret, struct gb_error *err) {
    uint32_t crc;
    int r = gb_part_result(append->part, &crc, NULL, err);

    if (r > 0)
        gb_append_view(append, ret);
    return r;
}

/* --- the offset --------------------------------------------------------------------------------------------------- */

void gb_multipart_drain(struct gb_core *core, const struct gb_name *session, const char *id,
                        struct gb_multipart_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_multipart *multipart;
    struct gb_append *a;
    bool waits = false;

    gb_core_enter(core);
    multipart = gb_multipart_find(core, session, id, false, &err);
    if (multipart) {
        pthread_mutex_lock(&multipart->lock);
        a = multipart->append;
        if (multipart->append_locked && !gb_multipart_wait_locked(&multipart->drain_waiters, call))
            gb_no_memory(&err);
        waits = multipart->append_locked && err.code == GB_OK;
        if (waits && a) {
            a->cut = true;
            gb_waker_run(&a->waker);
        }
        if (!waits)
            gb_multipart_view_locked(multipart, &call->multipart);
        pthread_mutex_unlock(&multipart->lock);
    }
    if (!waits) {
        gb_call_finish(&call->base, err.code == GB_OK ? NULL : &err);
        gb_core_leave(core);
    }
    gb_multipart_unref(multipart);
}

/* --- completing: digests ------------------------------------------------------------------------------------------ */

/* Reads the memory of a multipart upload in state HASHING. The end of the multipart upload cuts the reading off; the
 * memory stays until then. */
struct inspection {
    struct gb_hash_reader reader;   /* first */
    struct gb_multipart *multipart; /* a reference */
    struct gb_upload *target;       /* a reference */
    struct gb_buffer_check check;
    struct gb_digest_set expected;
};

static void choice_free(const struct gb_scan_choice *choice) {
    if (choice->free_arg)
        choice->free_arg(choice->arg);
}

static void inspection_free(struct inspection *n) {
    if (!n)
        return;
    gb_hash_reader_done(&n->reader);
    choice_free(&n->reader.choice);
    if (n->check.free_arg)
        n->check.free_arg(n->check.arg);
    if (n->target)
        gb_core_transfer_unref(&n->target->t);
    gb_multipart_unref(n->multipart);
    free(n);
}

static int compare(struct inspection *n, struct gb_error *err) {
    char expected[GB_BASE64_SIZE_MAX];
    char actual[GB_BASE64_SIZE_MAX];
    struct gb_digest digest;
    unsigned i;

    for (i = 0; i < GB_DIGEST_ALGS; i++) {
        if (!n->reader.hash[i])
            continue;
        gb_hash_get(n->reader.hash[i], &digest);
        if (gb_digest_equal(&digest, &n->expected.digest[i]))
            continue;
        gb_digest_text(&n->expected.digest[i], expected);
        gb_digest_text(&digest, actual);
        return gb_error_set(err, GB_ERR_DIGEST_MISMATCH,
                            "%s: expected %s, the upload has %s; send the wrong parts again, or delete it",
                            gb_digest_name((enum gb_digest_alg)i), expected, actual);
    }
    return 0;
}

static void read_end(struct gb_hash_reader *reader, const struct gb_error *error) {
    struct inspection *n = (struct inspection *)reader;
    struct gb_multipart *multipart = n->multipart;
    struct gb_core *core = multipart->core;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_multipart_call *call = NULL;
    bool good;

    if (error)
        err = *error;
    good = !error && compare(n, &err) == 0;
    if (!good)
        gb_upload_drop_turn(n->target, &err);
    gb_download_free(reader->download, true); /* only the target holds the memory now */
    reader->download = NULL;
    pthread_mutex_lock(&multipart->lock);
    multipart->reader = NULL;
    if (multipart->state != GB_MULTIPART_HASHING) {
        good = false; /* the multipart upload was ended */
    } else if (good) {
        gb_multipart_prepare_locked(multipart, &n->check);
        n->check = (struct gb_buffer_check){0};
    } else {
        multipart->state = GB_MULTIPART_OPEN;
        call = multipart->call;
        multipart->call = NULL;
    }
    multipart->touched_ns = gb_clock_ns();
    pthread_mutex_unlock(&multipart->lock);
    if (good)
        gb_multipart_commit(multipart, n->target);
    if (call)
        gb_multipart_finish_call(multipart, call, &err);
    inspection_free(n);
    gb_core_leave(core);
}

/* Takes the choice. */
static struct inspection *inspection_new(struct gb_multipart *multipart, const struct gb_multipart_expected *expected,
                                         struct gb_error *err) {
    struct inspection *n = calloc(1, sizeof(*n));
    int r;

    if (!n) {
        choice_free(&expected->choice);
        gb_no_memory(err);
        return NULL;
    }
    n->multipart = gb_multipart_ref(multipart);
    n->expected = expected->digests;
    r = gb_hash_reader_init(&n->reader, multipart->core, GB_HASH_READER_WRITE, expected->digests.given, err);
    n->reader.choice = expected->choice;
    n->reader.end = read_end;
    if (r == 0 && gb_hash_reader_head(&n->reader, expected->head, expected->head_n, err) == 0)
        return n;
    inspection_free(n);
    return NULL;
}

static int open_memory(struct inspection *n, struct gb_error *err) {
    struct gb_upload *u = n->target;
    struct gb_download *d = gb_download_of(u->t.session, u->t.stream, gb_content_ref(u->content), u->plan.kind,
                                           u->plan.bytes, (struct gb_waker){gb_hash_reader_wake, &n->reader});

    if (!d) {
        gb_content_drop(u->content, NULL, NULL); /* never the last: the target has one */
        return gb_no_memory(err);
    }
    d->silent = true;
    /* No copy may read managed memory that is attached to the CPU. */
    d->direct = d->direct || u->attached;
    n->reader.download = d;
    n->reader.left = u->plan.bytes;
    if (n->multipart->gaps.run) {
        choice_free(&n->reader.choice);
        n->reader.choice = (struct gb_scan_choice){n->multipart->gaps.run, n->multipart->gaps.arg, NULL};
    }
    return gb_download_start(d, 0, u->plan.bytes, err);
}

static void inspect(struct inspection *n) {
    struct gb_error err = GB_ERROR_INIT;

    gb_core_enter(n->multipart->core);
    /* Its place is where it was accepted, however long the reading takes. */
    if (gb_upload_take_turn(n->target, false, &err) < 0 || open_memory(n, &err) < 0)
        read_end(&n->reader, &err);
    else
        gb_hash_reader_start(&n->reader);
}

/* --- completing: the call ----------------------------------------------------------------------------------------- */

/* Evaluates the check before the commit does, while a refusal changes nothing. Returns 0 or -1. */
static int ask_check(struct gb_multipart *multipart, const struct gb_buffer_check *check, struct gb_error *err) {
    struct gb_session *s = multipart->session;
    struct gb_buffer *b;
    int r;

    if (!check || !check->check)
        return 0;
    pthread_mutex_lock(&s->lock);
    b = gb_buffer_find_locked(s, &multipart->buffer, NULL);
    r = gb_buffer_check_locked(check, b, err);
    pthread_mutex_unlock(&s->lock);
    return r;
}

/* Returns 1 if the multipart upload may be committed; 0 if bytes are missing; -1. The lock is held. */
static int completable_locked(struct gb_multipart *multipart, const struct gb_multipart_expected *expected,
                              struct gb_error *err) {
    uint32_t crc;

    if (multipart->state == GB_MULTIPART_HEADER)
        return 0;
    if (!multipart->sealed && gb_multipart_check_locked(multipart, err) < 0)
        return -1;
    if (multipart->sealed && multipart->state != GB_MULTIPART_OPEN)
        return gb_multipart_check_locked(multipart, err);
    if (multipart->ranges.bytes < multipart->bytes)
        return 0;
    if (multipart->append_locked || multipart->running > 0)
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY, "another request still writes to it");
    crc = gb_ranges_crc(gb_multipart_ranges_locked(multipart));
    if (expected && expected->has_crc32c && expected->crc32c != crc)
        return gb_error_set(err, GB_ERR_DIGEST_MISMATCH,
                            "the bytes that arrived have the CRC32C %08x and %08x was expected; send the wrong parts "
                            "again, or delete the upload",
                            crc, expected->crc32c);
    return 1;
}

/* Starts the commit, or with n the reading before it. Returns 1, and takes check and n; 0 if bytes are missing; -1. */
static int start(struct gb_multipart *multipart, const struct gb_buffer_check *check,
                 const struct gb_multipart_expected *expected, struct inspection *n, struct gb_multipart_call *call,
                 struct gb_error *err) {
    struct gb_upload *target = NULL;
    int r;

    pthread_mutex_lock(&multipart->lock);
    r = completable_locked(multipart, expected, err);
    if (r > 0) {
        multipart->call = call;
        target = multipart->target;
        gb_core_transfer_ref(&target->t);
    }
    if (r > 0 && n) {
        multipart->state = GB_MULTIPART_HASHING;
        multipart->reader = &n->reader;
        n->target = target;
        n->check = check ? *check : (struct gb_buffer_check){0};
    } else if (r > 0) {
        gb_multipart_prepare_locked(multipart, check);
    }
    pthread_mutex_unlock(&multipart->lock);
    if (r <= 0)
        return r;
    if (n) {
        inspect(n);
    } else {
        gb_multipart_commit(multipart, target);
        gb_core_transfer_unref(&target->t);
    }
    return 1;
}

void gb_multipart_complete(struct gb_core *core, const struct gb_name *session, const char *id,
                           const struct gb_buffer_check *check, const struct gb_multipart_expected *expected,
                           struct gb_multipart_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_multipart *multipart;
    struct inspection *n = NULL;
    int r;

    gb_core_enter(core);
    multipart = gb_multipart_find(core, session, id, true, &err);
    r = multipart ? ask_check(multipart, check, &err) : -1;
    if (r == 0 && expected && expected->digests.given) {
        n = inspection_new(multipart, expected, &err);
        r = n ? 0 : -1;
    } else if (expected) {
        choice_free(&expected->choice);
    }
    if (r == 0)
        r = start(multipart, check, expected, n, call, &err);
    if (r <= 0) {
        inspection_free(n);
        if (check && check->free_arg)
            check->free_arg(check->arg);
    }
    if (r <= 0 && multipart) {
        gb_multipart_finish_call(multipart, call, r < 0 ? &err : NULL);
    } else if (r <= 0) {
        gb_call_finish(&call->base, &err);
        gb_core_leave(core);
    }
    gb_multipart_unref(multipart);
}
