/* Appending to a multipart upload: one request at a time. Bytes that came before a connection broke are kept, unless
 * they are to be compared with a digest first. */
#include <stdlib.h>

#include "base/clock.h"
#include "core/multipart/internal.h"

/* --- the append lock ---------------------------------------------------------------------------------------------- */

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
    struct gb_multipart_waiter *settled = NULL;
    struct gb_error why = GB_ERROR_INIT;
    struct gb_multipart *multipart;

    if (!a)
        return;
    multipart = a->multipart;
    pthread_mutex_lock(&multipart->lock);
    if (multipart->append == a) {
        multipart->append = NULL;
        /* If there is a part, or memory of it, the end of that releases the append lock. */
        multipart->append_locked = multipart->append_locked && (a->part || a->discards);
        multipart->touched_ns = gb_clock_ns();
        gb_multipart_drained_locked(multipart, &settled);
    }
    pthread_mutex_unlock(&multipart->lock);
    if (a->part) {
        (void)gb_upload_flush(a->part, NULL);
        gb_upload_free(a->part);
    }
    gb_multipart_tell(multipart, settled, NULL);
    if (spoiled) {
        gb_multipart_not_found(&why);
        gb_multipart_end(multipart, &why);
    }
    free(a);
    gb_multipart_unref(multipart);
}

/* --- as a whole --------------------------------------------------------------------------------------------------- */

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

/* --- looking ------------------------------------------------------------------------------------------------------ */

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

/* -1: another request cut the append off, or the multipart upload has ended. The lock is held. */
static int alive_locked(struct gb_append *a, struct gb_error *err) {
    if (a->multipart->state == GB_MULTIPART_ENDED)
        return gb_error_move(err, &a->multipart->why);
    if (a->cut)
        return gb_error_set(err, GB_ERR_UPLOAD_BUSY,
                            "another request asked where the upload stands and goes on with it");
    return 0;
}

/* --- before it is known what it is -------------------------------------------------------------------------------- */

int gb_append_header_room(struct gb_append *append, size_t want, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct gb_multipart *multipart = append->multipart;
    size_t size = want < GB_MULTIPART_HEADER_MAX ? want : GB_MULTIPART_HEADER_MAX;
    char *header = multipart->header;
    int r;

    /* Only the holder of the append lock changes the header prefix; others read its length. */
    if (size > multipart->header_size) {
        header = realloc(header, size);
        if (!header)
            return gb_no_memory(err);
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

/* 1: there is a part; 0: memory is still being got; -1. */
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

/* The beginning of the payload that came with the header prefix. 1: all of that is in its place; 0: wait; -1. */
static int push_prefix(struct gb_append *a, struct gb_error *err) {
    const struct gb_multipart *multipart = a->multipart;
    uint64_t at = a->part->plan.at + a->part->filled;
    size_t n = multipart->header_used - multipart->skip;
    size_t done = (size_t)at;

    if (at >= n)
        return 1;
    return gb_upload_copy_in(a->part, multipart->header + multipart->skip, n, &done, err);
}

static int ready(struct gb_append *a, struct gb_error *err) {
    int r = need_part(a, err);

    return r > 0 ? push_prefix(a, err) : r;
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

/* --- where it stands ---------------------------------------------------------------------------------------------- */

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
