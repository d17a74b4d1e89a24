/* An upload: its steps and its bytes. Every step is made here, under the lock of the transfer, and one thread alone
 * takes an upload to its commit. Bytes come into the memory itself if the CPU reaches it. Else they come into slots,
 * which are copied to the device while the next slot fills. A durable payload goes to the disk at the same time. */
#include "core/transfer/upload.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/process.h"
#include "core/durable/stored.h"
#include "core/util/lane.h"

/* --- steps -------------------------------------------------------------------------------------------------------- */

#define TO(state) (1u << (state))

/* The steps that are permitted. A part is OPEN at once; an upload that grows allocates again; a device write has ENDED
 * before its memory is there; a commit that changed nothing may be tried again. */
static const unsigned permitted[GB_UPLOAD_STATES] = {
    [GB_UPLOAD_PLANNED] = TO(GB_UPLOAD_ALLOCATING) | TO(GB_UPLOAD_OPEN),
    [GB_UPLOAD_ALLOCATING] = TO(GB_UPLOAD_OPEN) | TO(GB_UPLOAD_ENDED) | TO(GB_UPLOAD_FAILED),
    [GB_UPLOAD_OPEN] = TO(GB_UPLOAD_ALLOCATING) | TO(GB_UPLOAD_ENDED) | TO(GB_UPLOAD_FAILED),
    [GB_UPLOAD_ENDED] = TO(GB_UPLOAD_COMMITTING) | TO(GB_UPLOAD_FAILED),
    [GB_UPLOAD_COMMITTING] = TO(GB_UPLOAD_DONE) | TO(GB_UPLOAD_OPEN) | TO(GB_UPLOAD_FAILED),
    [GB_UPLOAD_DONE] = 0,
    [GB_UPLOAD_FAILED] = 0,
};

struct gb_upload *gb_upload_of(struct gb_core_transfer *transfer) {
    return (struct gb_upload *)transfer;
}

struct gb_upload *gb_upload_new(size_t size, const struct gb_upload_role *role) {
    struct gb_upload *u = calloc(1, size);
    unsigned i;

    if (!u)
        return NULL;
    u->role = role;
    for (i = 0; i < GB_UPLOAD_COPIES_MAX; i++)
        u->pipe.copies[i].transfer = &u->t;
    return u;
}

struct gb_upload_plan *gb_upload_plan_of(struct gb_upload *u) {
    return (struct gb_upload_plan *)(uintptr_t)&u->plan; /* constant everywhere else */
}

uint64_t gb_upload_reach(const struct gb_upload *upload) {
    return upload->role->grow ? upload->segments.until : upload->plan.payload;
}

uint64_t gb_upload_offset(const struct gb_upload *upload, uint64_t at) {
    return upload->plan.at + at - upload->segments.from;
}

bool gb_upload_step_permitted(enum gb_upload_state from, enum gb_upload_state to) {
    return (permitted[from] & TO(to)) != 0;
}

bool gb_upload_step_locked(struct gb_upload *u, enum gb_upload_state to) {
    if (gb_upload_step_permitted(u->state, to)) {
        u->state = to;
        return true;
    }
#ifndef __OPTIMIZE__
    assert(!"a step of an upload that the table does not permit");
#endif
    gb_error_set(&u->t.error, GB_ERR_INTERNAL, "an upload cannot go from state %d to %d", (int)u->state, (int)to);
    return false;
}

bool gb_upload_step(struct gb_upload *u, enum gb_upload_state to) {
    bool r;

    pthread_mutex_lock(&u->t.lock);
    r = gb_upload_step_locked(u, to);
    pthread_mutex_unlock(&u->t.lock);
    return r;
}

/* --- failing ------------------------------------------------------------------------------------------------------ */

/* A running commit is not stopped, and an upload that has ended stays as it is. */
static bool stoppable(enum gb_upload_state state) {
    return state == GB_UPLOAD_ALLOCATING || state == GB_UPLOAD_OPEN || state == GB_UPLOAD_ENDED;
}

void gb_upload_fail_locked(struct gb_upload *u, const struct gb_error *error) {
    if (u->t.error.code == GB_OK)
        u->t.error = *error;
    if (stoppable(u->state))
        (void)gb_upload_step_locked(u, GB_UPLOAD_FAILED);
}

void gb_upload_fail(struct gb_upload *u, const struct gb_error *error) {
    gb_core_report_error(u->t.core, error);
    pthread_mutex_lock(&u->t.lock);
    gb_upload_fail_locked(u, error);
    gb_core_transfer_unlock_wake(&u->t);
}

int gb_upload_alive_locked(struct gb_upload *u, struct gb_error *err) {
    int r = gb_core_transfer_check_locked(&u->t, false, err);

    if (r < 0)
        gb_upload_fail_locked(u, &u->t.error);
    return r;
}

/* --- what the commit waits for ------------------------------------------------------------------------------------ */

void gb_upload_pend_locked(struct gb_upload *u) {
    u->pending++;
}

void gb_upload_pended_locked(struct gb_upload *u, const struct gb_error *error) {
    u->pending--;
    if (error)
        gb_upload_fail_locked(u, error);
}

int gb_upload_watch(struct gb_upload *u, struct gb_ev *event, void (*fn)(void *arg, const struct gb_error *error),
                    void *arg, struct gb_error *err) {
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pend_locked(u);
    pthread_mutex_unlock(&u->t.lock);
    gb_core_transfer_ref(&u->t);
    if (gb_poll_watch(u->t.core->backend, event->event, fn, arg, err) == 0)
        return 0;
    pthread_mutex_lock(&u->t.lock);
    gb_upload_pended_locked(u, NULL);
    pthread_mutex_unlock(&u->t.lock);
    gb_core_transfer_unref(&u->t); /* never the last: the caller has one */
    return -1;
}

void gb_upload_opened_locked(struct gb_upload *u) {
    u->pending--;
    if (u->state == GB_UPLOAD_ALLOCATING)
        (void)gb_upload_step_locked(u, GB_UPLOAD_OPEN);
}

bool gb_upload_complete_locked(struct gb_upload *u) {
    if (u->state != GB_UPLOAD_ENDED || u->pending > 0 || !gb_upload_step_locked(u, GB_UPLOAD_COMMITTING))
        return false;
    gb_core_transfer_ref(&u->t);
    return true;
}

void gb_upload_unlock_advance(struct gb_upload *u) {
    if (gb_upload_complete_locked(u)) {
        pthread_mutex_unlock(&u->t.lock);
        u->role->complete(u);
    } else {
        gb_core_transfer_unlock_wake(&u->t);
    }
}

/* --- bytes that do not lie side by side --------------------------------------------------------------------------- */

/* Slices, and arrays in Fortran order, whose bytes come in another order than that of the memory. */

#define SCRATCH_BYTES (64u * 1024u)
#define SLOT_BOXES 64 /* copies out of one slot; they are queued together, and CUDA's queue is bounded */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* --- by the CPU --------------------------------------------------------------------------------------------------- */

/* Gives room in the scratch buffer. The transfer's lock is held. Returns 1 or -1. */
static int scatter_room_locked(struct gb_upload *u, void **ret_ptr, struct gb_error *err) {
    uint64_t left = u->plan.payload - u->filled;

    if (!u->scratch && !(u->scratch = malloc(least(u->plan.payload, SCRATCH_BYTES))))
        return gb_no_memory(err);
    *ret_ptr = u->scratch + u->scratch_n;
    u->room = least(left, SCRATCH_BYTES - u->scratch_n);
    u->touched = true;
    return 1;
}

static void unpack(struct gb_upload *u, uint64_t at, const char *from, size_t n) {
    struct gb_cut cut;
    uint64_t offset;
    uint64_t packed;
    uint64_t i;

    for (; n > 0; at += cut.bytes, from += cut.bytes, n -= cut.bytes) {
        gb_view_cut(&u->plan.view, at, n, UINT64_MAX, &cut);
        for (i = 0; i < cut.boxes; i++) {
            gb_cut_box(&cut, i, &offset, &packed);
            gb_box_copy(&cut.box, (char *)u->content->ptr + offset, (char *)(uintptr_t)from + packed, false);
        }
    }
}

/* Copies the scratch buffer's bytes to their places. */
static void scatter_flush(struct gb_upload *u) {
    unpack(u, u->plan.at + u->filled - u->scratch_n, u->scratch, u->scratch_n);
    u->scratch_n = 0;
}

/* Counts n bytes of the scratch buffer, and copies a full one to its places. */
static void scatter_fill(struct gb_upload *u, size_t n) {
    u->scratch_n += n;
    if (u->scratch_n == SCRATCH_BYTES || u->filled == u->plan.payload)
        scatter_flush(u);
}

/* --- by the device ------------------------------------------------------------------------------------------------ */

/* The number of boxes of a cut whose bytes are in the order of the memory: one, or the number of separate rows of a
 * slice. */
static uint64_t boxes_upwards(const struct gb_cut *cut) {
    struct gb_view memory;
    struct gb_view packed;
    struct gb_cut whole;

    gb_cut_upwards(cut, &memory, &packed);
    gb_view_cut(&memory, 0, memory.bytes, UINT64_MAX, &whole);
    return whole.boxes;
}

/* Makes the next cut of a view, of at most `most` bytes and boxes_max boxes. Returns the number of boxes. */
static uint64_t next_cut(const struct gb_view *view, uint64_t at, uint64_t most, uint64_t boxes_max,
                         struct gb_cut *ret) {
    uint64_t boxes;

    if (gb_view_upwards(view)) {
        gb_view_cut(view, at, most, boxes_max, ret);
        return ret->boxes;
    }
    for (;; most = (ret->bytes + 1) / 2) {
        gb_view_cut(view, at, most, UINT64_MAX, ret);
        boxes = boxes_upwards(ret);
        if (boxes <= boxes_max)
            return boxes;
    }
}

/* The number of bytes that the next slot is to hold. */
static size_t scatter_slot(const struct gb_upload *u) {
    uint64_t most = least(u->plan.payload - u->filled, u->t.core->slots.slot_bytes);
    uint64_t at = u->plan.at + u->filled;
    uint64_t boxes = SLOT_BOXES;
    uint64_t bytes = 0;
    struct gb_cut cut;

    while (bytes < most && boxes > 0) {
        boxes -= next_cut(&u->plan.view, at + bytes, most - bytes, boxes, &cut);
        bytes += cut.bytes;
    }
    return bytes;
}

/* Queues the copies of `bytes` bytes of the slot, beginning at `from`, to their places in the view, beginning at `at`.
 * Returns 0 or -1. */
static int queue(struct gb_upload *u, struct gb_staged_copy *f, uint64_t from, const struct gb_view *view, uint64_t at,
                 uint64_t bytes, struct gb_error *err) {
    uint64_t done;
    uint64_t offset;
    uint64_t packed;
    uint64_t i;
    struct gb_cut cut;

    for (done = 0; done < bytes; done += cut.bytes) {
        gb_view_cut(view, at + done, bytes - done, SLOT_BOXES, &cut);
        for (i = 0; i < cut.boxes; i++) {
            struct gb_location place;

            gb_cut_box(&cut, i, &offset, &packed);
            place = gb_content_location(u->content, offset);
            if (gb_staged_copy_box(f, &place, from + done + packed, &cut.box, GB_COPY_TO_DEVICE, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* Brings packed bytes into the order of the view. Returns 0 or -1. */
static int reorder(char *bytes, const struct gb_view *view, struct gb_error *err) {
    char *ordered = malloc(view->bytes);
    uint64_t done;
    uint64_t offset;
    uint64_t packed;
    uint64_t i;
    struct gb_cut cut;

    if (!ordered)
        return gb_no_memory(err);
    for (done = 0; done < view->bytes; done += cut.bytes) {
        gb_view_cut(view, done, view->bytes - done, UINT64_MAX, &cut);
        for (i = 0; i < cut.boxes; i++) {
            gb_cut_box(&cut, i, &offset, &packed);
            gb_box_copy(&cut.box, bytes + offset, ordered + done + packed, true);
        }
    }
    memcpy(bytes, ordered, view->bytes);
    free(ordered);
    return 0;
}

/* A device copies rows, and each element would be a row of its own. Bringing the bytes into the order of the memory
 * first makes the rows as long as the slot permits. */
static int queue_reordered(struct gb_upload *u, struct gb_staged_copy *f, uint64_t at, struct gb_error *err) {
    struct gb_view memory;
    struct gb_view packed;
    struct gb_cut cut;
    uint64_t done;

    for (done = 0; done < f->bytes; done += cut.bytes) {
        (void)next_cut(&u->plan.view, at + done, f->bytes - done, SLOT_BOXES, &cut);
        gb_cut_upwards(&cut, &memory, &packed);
        if (reorder((char *)f->slot + done, &packed, err) < 0 || queue(u, f, done, &memory, 0, memory.bytes, err) < 0)
            return -1;
    }
    return 0;
}

/* Queues the copies of a full slot, between gb_staged_copy_open and _close. Returns 0 or -1. */
static int scatter_queue(struct gb_upload *u, struct gb_staged_copy *f, struct gb_error *err) {
    uint64_t at = u->plan.at + u->filled - f->bytes;

    if (gb_view_upwards(&u->plan.view))
        return queue(u, f, 0, &u->plan.view, at, f->bytes, err);
    return queue_reordered(u, f, at, err);
}

/* --- write through ------------------------------------------------------------------------------------------------ */

/* Memory goes to the disk in pieces of whole blocks. */
#define BLOCK_BYTES GB_STORED_BLOCK_BYTES
#define PIECE_BYTES (4 * BLOCK_BYTES) /* at most */

/* Bytes go to the disk as they come only if the commit would write all of them, in this order. */
static bool writes_through(const struct gb_upload *u, const struct gb_upload_draft *draft) {
    return draft->durability == GB_DURABILITY_SYNC && draft->payload == draft->bytes && u->role->from_client &&
           !u->plan.scattered && !u->plan.open_ended && !u->content->owner;
}

void gb_write_through_begin_locked(struct gb_upload *u, const struct gb_upload_draft *draft) {
    const struct gb_buffer *b = draft->buffer;
    struct gb_core *core = u->t.core;

    if (!writes_through(u, draft))
        return;
    if (draft->bytes <= GB_STORED_INLINE_BYTES) {
        u->disk.kept = malloc((size_t)draft->bytes + 1); /* if that fails, they are read back */
        return;
    }
    if (!b)
        u->disk.new_id = atomic_fetch_add(&core->last_buffer_id, 1) + 1;
    u->disk.tee = gb_tee_new(core, b ? b->id : u->disk.new_id, draft->bytes);
}

/* Every upload may have one slot, so that it makes progress. */
static bool write_through_may_take(const struct gb_upload *u) {
    const struct gb_slots *slots = &u->t.core->slots;

    return u->pipe.in_flight == 0 || atomic_load(&slots->free_count) > slots->total / 4 * 3;
}

/* --- write through: memory that the CPU reaches ------------------------------------------------------------------- */

static void written(struct gb_tee_piece *piece, const struct gb_error *error);

/* A place for one more piece, or NULL. Pieces of unaligned memory are written one at a time, because their order
 * matters. */
static struct gb_write_through_piece *free_place_locked(struct gb_upload *u) {
    bool aligned = ((uintptr_t)u->content->ptr + u->plan.at) % GB_DISK_ALIGN == 0;
    unsigned i;

    for (i = 0; i < (aligned ? GB_WRITE_THROUGH_PIECES : 1); i++) {
        if (!u->disk.pieces[i].running)
            return &u->disk.pieces[i];
    }
    return NULL;
}

/* The next piece, or NULL if its bytes have not come. The transfer's lock is held. */
static struct gb_write_through_piece *next_locked(struct gb_upload *u) {
    struct gb_write_through *w = &u->disk;
    uint64_t end = w->ready == u->plan.payload ? w->ready : w->ready / BLOCK_BYTES * BLOCK_BYTES;
    struct gb_write_through_piece *place = end > w->given ? free_place_locked(u) : NULL;

    if (!place)
        return NULL;
    if (end - w->given > PIECE_BYTES)
        end = w->given + PIECE_BYTES;
    place->piece = (struct gb_tee_piece){.ptr = (char *)u->content->ptr + u->plan.at + w->given,
                                         .n = (size_t)(end - w->given),
                                         .at = w->given,
                                         .done = written};
    place->upload = u;
    place->running = true;
    w->given = end;
    gb_upload_pend_locked(u);
    return place;
}

static void give(struct gb_upload *u, struct gb_write_through_piece *place) {
    gb_core_transfer_ref(&u->t);
    gb_tee_write(u->disk.tee, &place->piece);
}

static void written(struct gb_tee_piece *piece, const struct gb_error *error) {
    struct gb_write_through_piece *place = gb_container_of(piece, struct gb_write_through_piece, piece);
    struct gb_upload *u = place->upload;
    struct gb_write_through_piece *next;

    pthread_mutex_lock(&u->t.lock);
    place->running = false;
    next = error ? NULL : next_locked(u);
    gb_upload_pended_locked(u, error);
    gb_upload_unlock_advance(u);
    if (next)
        give(u, next);
    gb_core_transfer_unref(&u->t);
}

/* Gives filled memory, up to upload->filled, to the tee. */
static void write_filled(struct gb_upload *u) {
    struct gb_write_through_piece *next;

    do {
        pthread_mutex_lock(&u->t.lock);
        u->disk.ready = u->filled;
        next = next_locked(u);
        pthread_mutex_unlock(&u->t.lock);
        if (next)
            give(u, next);
    } while (next);
}

/* --- slots: the end of their copies ------------------------------------------------------------------------------- */

/* Ends one of the slot's uses. The last one gives the slot back. */
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

/* The slot's copy is done, or has failed. Keeps the reference. */
static void landed(struct gb_staged_copy *f, const struct gb_error *error) {
    struct gb_upload *u = gb_upload_of(f->transfer);

    if (!error)
        gb_staged_copy_account(f);
    use_ended(u, f, error);
}

/* The slot is on disk, or that has failed. */
static void stored(struct gb_tee_piece *piece, const struct gb_error *error) {
    struct gb_staged_copy *f = gb_container_of(piece, struct gb_staged_copy, piece);
    struct gb_upload *u = gb_upload_of(f->transfer);

    use_ended(u, f, error);
    pthread_mutex_lock(&u->t.lock);
    gb_upload_unlock_advance(u);
    gb_core_transfer_unref(&u->t);
}

/* The watch of the last of several copies. In the order of the stream the others are done as well. */
static void copied(void *arg, const struct gb_error *error) {
    struct gb_staged_copy *last = arg;
    struct gb_upload *u = gb_upload_of(last->transfer);
    struct gb_staged_copy *f = last->covers_from;
    struct gb_staged_copy *next;
    unsigned n;

    gb_core_report_error(u->t.core, error);
    for (n = 0; f; f = next, n++) {
        next = f->next; /* after landed() the slot may be filled again */
        landed(f, error);
    }
    pthread_mutex_lock(&u->t.lock);
    gb_upload_unlock_advance(u);
    for (; n > 0; n--)
        gb_core_transfer_unref(&u->t);
}

/* Watches the list from first to last. If that fails, abandons the copies and fails the upload. Returns 0 or -1. */
static int watch(struct gb_upload *u, struct gb_staged_copy *first, struct gb_staged_copy *last, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_staged_copy *next;

    last->covers_from = first;
    if (gb_poll_watch(u->t.core->backend, last->end->event, copied, last, &why) == 0)
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

/* Makes the end of a copy wake the caller: watches the oldest copy, unless one is watched. A failure is recorded in the
 * upload. */
static void watch_first(struct gb_upload *u) {
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

/* --- slots: sending ----------------------------------------------------------------------------------------------- */

static int copy(struct gb_upload *u, struct gb_staged_copy *f, struct gb_error *err) {
    struct gb_location dst = gb_content_location(u->content, gb_upload_offset(u, u->filled - f->bytes));

    if (f->bytes == u->plan.payload)
        gb_staged_copy_whole(f, GB_COPY_TO_DEVICE, f->bytes);
    if (!u->plan.scattered)
        return gb_staged_copy_copy(f, &dst, GB_COPY_TO_DEVICE, gb_core_transfer_part(&u->t), err);
    if (gb_staged_copy_open(f, gb_core_transfer_part(&u->t), err) < 0 || scatter_queue(u, f, err) < 0)
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
    /* Another upload may get a watched slot, and the copy of a scattered one reorders it. */
    if (!unwatched || u->plan.scattered)
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

/* --- slots: filling ----------------------------------------------------------------------------------------------- */

/* A slot for one more copy, or NULL. wait: stand in line if no slot is free. */
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
        return scatter_slot(u);
    return u->role->grow && left < most ? left : most; /* all of a slot goes into one segment */
}

/* Takes a slot to fill. While copies are under way the upload does not wait in line for a slot, because the end of a
 * copy wakes it. The transfer's lock is held. Returns false if no slot is free; wake follows. */
static bool begin_slot_locked(struct gb_upload *u) {
    struct gb_staged_copy *f = take_ahead(u);

    if (!f && u->disk.tee && !write_through_may_take(u))
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

/* Takes slots that are filled after that one, `count` at most, and only while slots are plenty. The transfer's lock is
 * held. Returns true if the upload has `count`. */
static bool begin_ahead_locked(struct gb_upload *u, unsigned count) {
    struct gb_staged_copy *f;

    while (u->pipe.ahead_count < count && gb_slots_plenty(&u->t.core->slots)) {
        f = take_slot_locked(u, false);
        if (!f)
            return false;
        u->pipe.ahead[u->pipe.ahead_count++] = f;
    }
    return u->pipe.ahead_count >= count;
}

/* Adds n bytes of the slot being filled to the checksum, and queues the copy of a full slot. Returns 0 or -1. */
static int fill_slot(struct gb_upload *u, size_t n, struct gb_error *err) {
    struct gb_staged_copy *f = u->pipe.filling;

    f->bytes += n;
    if (u->pipe.filling_max < u->plan.payload) /* a payload of one slot is summed up while it is copied */
        sum_up(u, f);
    if (n > 0 && (f->bytes == u->pipe.filling_max || u->filled == u->plan.payload))
        return send(u, err);
    return 0;
}

int gb_upload_flush(struct gb_upload *u, struct gb_error *err) {
    u->room = 0;
    if (u->scratch_n > 0)
        scatter_flush(u);
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

/* --- receiving: pages --------------------------------------------------------------------------------------------- */

/* An upload may fill a slot for this long. Then a partly filled slot is sent if others wait. Otherwise a few slow
 * clients could keep all slots for minutes. */
#define HOLD_NS (200 * GB_NS_PER_MS)

/* Room given at once if the CPU reaches the memory: as much as the server lets the socket gather, and little enough to
 * be in the cache when it is summed up. */
#define ROOM_BYTES (1u << 20)

static size_t at_once(const struct gb_upload *u) {
    return u->role->room_bytes > 0 ? u->role->room_bytes : ROOM_BYTES;
}

static char *ptr_of(const struct gb_upload *u, uint64_t at) {
    return (char *)u->content->ptr + gb_upload_offset(u, at);
}

static void touch(struct gb_task *task) {
    struct gb_upload *u = gb_container_of(task, struct gb_upload, touch);

    gb_pages_make(u->touch_at, u->touch_n);
    pthread_mutex_lock(&u->t.lock);
    u->pages = GB_UPLOAD_PAGES_THERE;
    gb_core_transfer_unlock_wake(&u->t);
    gb_core_transfer_unref(&u->t);
}

/* Clearing a huge page takes the time of a thousand requests, and one byte of a client causes it. So a computing lane
 * clears the pages, while the connection's thread serves others and the first bytes wait. The transfer's lock is held.
 * Returns false if they wait. */
static bool has_pages_locked(struct gb_upload *u, char *at, size_t n) {
    if (u->pages == GB_UPLOAD_PAGES_UNSEEN && (!u->t.device->rec.cpu_access || gb_pages_present(at, n)))
        u->pages = GB_UPLOAD_PAGES_THERE;
    if (u->pages == GB_UPLOAD_PAGES_UNSEEN) {
        u->pages = GB_UPLOAD_PAGES_COMING;
        u->touch_at = at;
        u->touch_n = n;
        u->touch.run = touch;
        gb_core_transfer_ref(&u->t);
        gb_lane_post(gb_core_compute_lane(u->t.core), &u->touch);
    }
    return u->pages == GB_UPLOAD_PAGES_THERE;
}

/* --- receiving: room ---------------------------------------------------------------------------------------------- */

static int too_long(const struct gb_upload *u, struct gb_error *err) {
    if (u->plan.open_ended && u->plan.in_table)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the tensor has %llu bytes from the offset on, and the body has more",
                            (unsigned long long)u->plan.payload);
    if (u->plan.open_ended && u->plan.partial)
        return gb_error_set(err, GB_ERR_SHAPE_MISMATCH,
                            "the buffer has %llu bytes from offset %llu on, and the body has more",
                            (unsigned long long)u->plan.payload, (unsigned long long)u->plan.at);
    return gb_error_set(err, GB_ERR_BODY_TOO_LARGE,
                        u->role->grow ? "the upload may bring %llu bytes, and the body has more"
                                      : "the payload has %llu bytes and no more",
                        (unsigned long long)u->plan.payload);
}

static int room_locked(struct gb_upload *u, void **ret_ptr, struct gb_error *err) {
    struct gb_staged_copy *f;
    uint64_t left;

    if (gb_upload_alive_locked(u, err) < 0)
        return -1;
    if (u->state == GB_UPLOAD_PLANNED) /* it waits for an earlier write */
        return 0;
    left = gb_upload_reach(u) - u->filled;
    if (left == 0 || u->state > GB_UPLOAD_OPEN)
        return too_long(u, err);
    if (u->state != GB_UPLOAD_OPEN)
        return 0;
    if (u->plan.direct && u->plan.scattered)
        return scatter_room_locked(u, ret_ptr, err);
    if (u->plan.direct) {
        *ret_ptr = ptr_of(u, u->filled);
        if (!has_pages_locked(u, *ret_ptr, least(left, at_once(u))))
            return 0;
        u->room = least(left, at_once(u));
        u->touched = true;
        return 1;
    }
    if (!u->pipe.filling && !begin_slot_locked(u))
        return 0;
    f = u->pipe.filling;
    *ret_ptr = (char *)f->slot + f->bytes;
    u->room = least(left, u->pipe.filling_max - f->bytes);
    return 1;
}

int gb_upload_begun(struct gb_upload *upload, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&upload->t.lock);
    r = gb_upload_alive_locked(upload, err) < 0 ? -1 : upload->state != GB_UPLOAD_PLANNED;
    upload->t.want_wake = r == 0;
    pthread_mutex_unlock(&upload->t.lock);
    return r;
}

int gb_upload_room(struct gb_upload *upload, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    int r;

    if (!upload->pipe.filling)
        gb_upload_reap(upload);
    if (upload->role->grow && upload->role->grow(upload, err) < 0)
        return -1;
    pthread_mutex_lock(&upload->t.lock);
    upload->room = 0;
    r = room_locked(upload, ret_ptr, err);
    upload->t.want_wake = r == 0;
    if (r > 0)
        *ret_n = upload->room;
    pthread_mutex_unlock(&upload->t.lock);
    if (r == 0)
        watch_first(upload);
    return r;
}

bool gb_upload_room_ahead(struct gb_upload *u, unsigned number, void **ret_ptr, size_t *ret_n) {
    size_t each = u->plan.direct ? at_once(u) : u->pipe.filling_max;
    uint64_t at = u->filled + u->room + (number - 1) * (uint64_t)each;
    bool given;

    if (at >= gb_upload_reach(u) || u->plan.scattered || u->room == 0)
        return false;
    if (u->plan.direct) {
        *ret_ptr = ptr_of(u, at);
        *ret_n = least(gb_upload_reach(u) - at, each);
        return true;
    }
    pthread_mutex_lock(&u->t.lock);
    given = u->pipe.filling->bytes + u->room == each && begin_ahead_locked(u, number);
    pthread_mutex_unlock(&u->t.lock);
    if (!given)
        return false;
    *ret_ptr = u->pipe.ahead[number - 1]->slot;
    *ret_n = least(gb_upload_reach(u) - at, each);
    return true;
}

/* Where the room given last begins. The payload is not scattered. */
static const char *room_ptr(const struct gb_upload *u) {
    const struct gb_staged_copy *f = u->pipe.filling;

    return f ? (char *)f->slot + f->bytes : ptr_of(u, u->filled);
}

int gb_upload_fill(struct gb_upload *upload, size_t n, struct gb_error *err) {
    uint64_t at = upload->filled;

    if (n > upload->room)
        return gb_error_set(err, GB_ERR_INTERNAL, "%zu bytes were filled into a room of %zu", n, upload->room);
    if (upload->disk.kept) {
        memcpy(upload->disk.kept + upload->disk.kept_bytes, room_ptr(upload), n);
        upload->disk.kept_bytes += n;
    }
    upload->filled += n;
    upload->room -= n;
    if (upload->pipe.filling)
        return fill_slot(upload, n, err);
    if (upload->plan.scattered) {
        upload->crc = gb_crc32c(upload->crc, upload->scratch + upload->scratch_n, n);
        scatter_fill(upload, n);
    } else {
        if (!upload->role->summed)
            upload->crc = gb_crc32c(upload->crc, ptr_of(upload, at), n);
        if (upload->disk.tee)
            write_filled(upload);
    }
    return 0;
}

int gb_upload_copy_in(struct gb_upload *upload, const void *bytes, size_t n, size_t *done, struct gb_error *err) {
    size_t size;
    void *room;
    int r;

    while (*done < n) {
        r = gb_upload_room(upload, &room, &size, err);
        if (r <= 0)
            return r;
        size = least(size, n - *done);
        memcpy(room, (const char *)bytes + *done, size);
        if (gb_upload_fill(upload, size, err) < 0)
            return -1;
        *done += size;
    }
    return 1;
}

void gb_upload_pause(struct gb_upload *upload, bool stalled) {
    struct gb_staged_copy *f = upload->pipe.filling;

    if (stalled)
        (void)gb_upload_watch_rest(upload, NULL); /* a failure is recorded in the upload */
    if (!f || !gb_slots_wanted(&upload->t.core->slots))
        return;
    if (f->bytes > 0 && !stalled && gb_clock_ns() - upload->pipe.filling_ns < HOLD_NS)
        return;
    upload->room = 0;
    if (f->bytes > 0)
        (void)gb_upload_flush(upload, NULL);
    else
        gb_upload_drop_slot(upload);
}
