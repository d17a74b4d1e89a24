/* Slots of an upload: filled, sent, taken back. */
#include "core/upload/pipeline.h"

#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "core/upload/upload.h"
#include "core/util/look.h"

/* The slot is given back after its last use. */
static void use_ended(struct gb_upload *u, struct gb_staged_copy *f, const struct gb_error *error) {
    bool last;

    pthread_mutex_lock(&u->t.lock);
    last = --f->uses == 0;
    if (!last && error)
        gb_upload_fail_locked(u, error);
    pthread_mutex_unlock(&u->t.lock);
    if (!last)
        return;
    gb_staged_copy_release(f);
    pthread_mutex_lock(&u->t.lock);
    f->busy = false;
    u->pipe.in_flight--;
    gb_upload_pended_locked(u, error);
    pthread_mutex_unlock(&u->t.lock);
}

/* Its copy is done, or never will be. Without a reference dropped. */
static void landed(struct gb_staged_copy *f, const struct gb_error *error) {
    struct gb_upload *u = gb_upload_of(f->transfer);

    if (!error)
        gb_staged_copy_account(f);
    use_ended(u, f, error);
}

/* The slot is on disk, or never will be. */
static void stored(struct gb_tee_piece *piece, const struct gb_error *error) {
    struct gb_staged_copy *f = gb_container_of(piece, struct gb_staged_copy, piece);
    struct gb_upload *u = gb_upload_of(f->transfer);

    use_ended(u, f, error);
    pthread_mutex_lock(&u->t.lock);
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

/* The watch of the last of some. In a stream's order the others are done as well. */
static void copied(void *arg, const struct gb_error *error) {
    struct gb_staged_copy *last = arg;
    struct gb_upload *u = gb_upload_of(last->transfer);
    struct gb_staged_copy *f = last->covers_from;
    struct gb_staged_copy *next;
    unsigned n;

    gb_core_report_error(u->t.core, error);
    for (n = 0; f; f = next, n++) {
        next = f->next; /* from landed() on it may be filled again */
        landed(f, error);
    }
    pthread_mutex_lock(&u->t.lock);
    gb_upload_unlock_advance(u);
    for (; n > 0; n--)
        gb_core_transfer_unref(&u->t);
}

/* Takes the list from first to last out of the caller's hands. */
static int watch(struct gb_upload *u, struct gb_staged_copy *first, struct gb_staged_copy *last, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_staged_copy *next;

    last->covers_from = first;
    if (gb_look_watch(u->t.core->backend, last->end->event, copied, last, &why) == 0)
        return 0;
    gb_upload_fail(u, &why);
    for (; first; first = next) {
        next = first->next;
        gb_staged_copy_abandon(first);
    }
    return gb_error_move(err, &why);
}

static struct gb_staged_copy *take_first(struct gb_upload *u) {
    struct gb_staged_copy *f = u->pipe.unwatched;

    u->pipe.unwatched = f->next;
    if (!u->pipe.unwatched)
        u->pipe.unwatched_last = NULL;
    u->pipe.unwatched_count--;
    f->next = NULL;
    return f;
}

void gb_upload_watch_first(struct gb_upload *u) {
    bool watched;
    struct gb_staged_copy *f;

    pthread_mutex_lock(&u->t.lock);
    watched = u->pipe.in_flight > u->pipe.unwatched_count;
    pthread_mutex_unlock(&u->t.lock);
    if (watched || !u->pipe.unwatched)
        return;
    f = take_first(u);
    (void)watch(u, f, f, NULL); /* a failure is recorded in the upload */
}

int gb_upload_watch_rest(struct gb_upload *u, struct gb_error *err) {
    struct gb_staged_copy *first = u->pipe.unwatched;
    struct gb_staged_copy *last = u->pipe.unwatched_last;

    u->pipe.unwatched = u->pipe.unwatched_last = NULL;
    u->pipe.unwatched_count = 0;
    return first ? watch(u, first, last, err) : 0;
}

void gb_upload_reap(struct gb_upload *u) {
    struct gb_backend *be = u->t.core->backend;

    while (u->pipe.unwatched) {
        struct gb_error why = GB_ERROR_INIT;
        bool done = false;

        if (gb_event_query(be, u->pipe.unwatched->end->event, &done, &why) < 0) { /* the slot may still be read from */
            gb_upload_fail(u, &why);
            gb_staged_copy_abandon(take_first(u));
            return;
        }
        if (!done)
            return;
        landed(take_first(u), NULL);
        gb_core_transfer_unref(&u->t); /* never the last: the caller has one */
    }
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

static int copy(struct gb_upload *u, struct gb_staged_copy *f, struct gb_error *err) {
    struct gb_location dst = gb_content_location(u->content, gb_upload_offset(u, u->filled - f->bytes));

    if (f->bytes == u->plan.payload)
        gb_staged_copy_whole(f, GB_COPY_TO_DEVICE, f->bytes);
    if (!u->plan.scattered)
        return gb_staged_copy_copy(f, &dst, GB_COPY_TO_DEVICE, gb_core_transfer_part(&u->t), err);
    if (gb_staged_copy_open(f, gb_core_transfer_part(&u->t), err) < 0 || gb_scatter_queue(u, f, err) < 0)
        return -1;
    return gb_staged_copy_close(f, err);
}

static void sum_up(struct gb_upload *u, struct gb_staged_copy *f) {
    if (u->role->summed)
        return;
    u->crc = gb_crc32c(u->crc, (char *)f->slot + f->summed, f->bytes - f->summed);
    f->summed = f->bytes;
}

static int send(struct gb_upload *u, struct gb_error *err) {
    struct gb_staged_copy *f = u->pipe.filling;
    struct gb_error why = GB_ERROR_INIT;
    bool unwatched = gb_slots_plenty(&u->t.core->slots);

    u->pipe.filling = NULL;
    u->touched = true;
    pthread_mutex_lock(&u->t.lock);
    u->pipe.in_flight++;
    gb_upload_pend_locked(u);
    f->uses = u->disk.tee ? 2 : 1;
    pthread_mutex_unlock(&u->t.lock);
    gb_core_transfer_ref(&u->t);
    if (u->disk.tee) {
        f->piece = (struct gb_tee_piece){.ptr = f->slot, .n = f->bytes, .at = u->disk.sent, .done = stored};
        u->disk.sent += f->bytes;
        gb_core_transfer_ref(&u->t);
        gb_tee_write(u->disk.tee, &f->piece);
    }
    if (!unwatched ||
        u->plan.scattered) /* a watched slot may be another's, and the copy of a scattered one reorders it */
        sum_up(u, f);
    if (copy(u, f, &why) < 0) {
        gb_upload_fail(u, &why);
        gb_staged_copy_abandon(f);
        return gb_error_move(err, &why);
    }
    f->next = NULL;
    if (u->pipe.unwatched)
        u->pipe.unwatched_last->next = f;
    else
        u->pipe.unwatched = f;
    u->pipe.unwatched_last = f;
    u->pipe.unwatched_count++;
    if (!unwatched)
        return gb_upload_watch_rest(u, err);
    sum_up(u, f); /* while it is copied */
    return 0;
}

/* --- filling ------------------------------------------------------------------------------------------------------ */

void gb_upload_pipeline_init(struct gb_upload *u) {
    unsigned i;

    for (i = 0; i < GB_UPLOAD_COPIES_MAX; i++)
        u->pipe.copies[i].transfer = &u->t;
}

/* A slot for one more copy. wait: in line, if none is free. */
static struct gb_staged_copy *take_slot_locked(struct gb_upload *u, bool wait) {
    unsigned count = u->role->many_slots ? GB_UPLOAD_COPIES_MAX : GB_UPLOAD_COPIES;
    struct gb_staged_copy *f = NULL;
    unsigned i;

    for (i = 0; i < count && !f; i++) {
        if (!u->pipe.copies[i].busy)
            f = &u->pipe.copies[i];
    }
    if (!f)
        return NULL;
    f->slot = wait ? gb_core_transfer_slot_locked(&u->t) : gb_slots_try(&u->t.core->slots);
    if (!f->slot)
        return NULL;
    f->busy = true;
    f->bytes = 0;
    f->summed = 0;
    return f;
}

static struct gb_staged_copy *take_ahead(struct gb_upload *u) {
    struct gb_staged_copy *f = u->pipe.ahead[0];

    if (u->pipe.ahead_count == 0)
        return NULL;
    u->pipe.ahead_count--;
    memmove(&u->pipe.ahead[0], &u->pipe.ahead[1], u->pipe.ahead_count * sizeof(u->pipe.ahead[0]));
    return f;
}

static size_t slot_room(const struct gb_upload *u) {
    uint64_t left = gb_upload_reach(u) - u->filled;
    size_t most = u->t.core->slots.slot_bytes;

    if (u->plan.scattered)
        return gb_scatter_slot(u);
    return u->role->grows && left < most ? left : most; /* what is in a slot goes into one segment */
}

bool gb_upload_begin_slot_locked(struct gb_upload *u) {
    struct gb_staged_copy *f = take_ahead(u);

    if (!f && u->disk.tee && !gb_write_through_may_take(u))
        return false;
    if (!f)
        f = take_slot_locked(u, u->pipe.in_flight == 0);
    if (!f)
        return false;
    u->pipe.filling = f;
    u->pipe.filling_ns = gb_clock_ns();
    u->pipe.filling_max = slot_room(u);
    return true;
}

bool gb_upload_begin_ahead_locked(struct gb_upload *u, unsigned count) {
    struct gb_staged_copy *f;

    while (u->pipe.ahead_count < count && gb_slots_plenty(&u->t.core->slots)) {
        f = take_slot_locked(u, false);
        if (!f)
            return false;
        u->pipe.ahead[u->pipe.ahead_count++] = f;
    }
    return u->pipe.ahead_count >= count;
}

int gb_upload_fill_slot(struct gb_upload *u, size_t n, struct gb_error *err) {
    struct gb_staged_copy *f = u->pipe.filling;

    f->bytes += n;
    if (u->pipe.filling_max < u->plan.payload) /* else the one slot is summed up while it is copied */
        sum_up(u, f);
    if (n > 0 && (f->bytes == u->pipe.filling_max || u->filled == u->plan.payload))
        return send(u, err);
    return 0;
}

int gb_upload_flush(struct gb_upload *u, struct gb_error *err) {
    u->room = 0;
    if (u->scratch_n > 0)
        gb_scatter_flush(u);
    return u->pipe.filling && u->pipe.filling->bytes > 0 ? send(u, err) : 0;
}

static void drop(struct gb_upload *u, struct gb_staged_copy *f) {
    if (!f)
        return;
    gb_staged_copy_release(f);
    pthread_mutex_lock(&u->t.lock);
    f->busy = false;
    pthread_mutex_unlock(&u->t.lock);
}

void gb_upload_drop_slot(struct gb_upload *u) {
    drop(u, u->pipe.filling);
    u->pipe.filling = NULL;
    while (u->pipe.ahead_count > 0)
        drop(u, take_ahead(u));
}
