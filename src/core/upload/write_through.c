#include "core/upload/write_through.h"

#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "core/stored/disks.h"
#include "core/upload/upload.h"

/* Memory goes to the disk in pieces of whole blocks, and of so many bytes at most. */
#define BLOCK_BYTES GB_STORED_BLOCK_BYTES
#define PIECE_BYTES (4 * BLOCK_BYTES)

/* Only what the commit would write anyway, and what comes in its order. */
static bool fits(const struct gb_upload *u, const struct gb_upload_draft *draft) {
    return draft->durability == GB_DURABILITY_SYNC && draft->payload == draft->bytes && u->role->from_client &&
           !u->plan.scattered && !u->plan.open_ended && !u->content->owner;
}

void gb_write_through_begin_locked(struct gb_upload *u, const struct gb_upload_draft *draft) {
    const struct gb_buffer *b = draft->buffer;
    struct gb_core *core = u->t.core;

    if (!fits(u, draft))
        return;
    if (draft->bytes <= GB_STORED_INLINE_BYTES) {
        u->disk.kept = malloc((size_t)draft->bytes + 1); /* without it they are read back */
        return;
    }
    if (!b)
        u->disk.new_id = atomic_fetch_add(&core->last_buffer_id, 1) + 1;
    u->disk.tee = gb_tee_new(core, b ? b->id : u->disk.new_id, draft->bytes);
}

/* One slot each is always permitted, so that every upload moves. */
bool gb_write_through_may_take(const struct gb_upload *u) {
    const struct gb_slots *slots = &u->t.core->slots;

    return u->pipe.in_flight == 0 || atomic_load(&slots->free_count) > slots->total / 4 * 3;
}

/* --- few bytes ---------------------------------------------------------------------------------------------------- */

void gb_write_through_keep(struct gb_upload *u, const void *ptr, size_t n) {
    memcpy(u->disk.kept + u->disk.kept_bytes, ptr, n);
    u->disk.kept_bytes += n;
}

void *gb_write_through_take_kept(struct gb_upload *u) {
    void *kept = u->disk.kept_bytes == u->plan.payload ? u->disk.kept : NULL; /* parts bring those of a target */

    if (kept)
        u->disk.kept = NULL;
    return kept;
}

/* --- memory that the CPU reaches ---------------------------------------------------------------------------------- */

static void written(struct gb_tee_piece *piece, const struct gb_error *error);

/* A place for one more piece. Pieces of memory that is not aligned must be written in their order: one at a time. */
static struct gb_write_through_piece *free_place_locked(struct gb_upload *u) {
    bool aligned = ((uintptr_t)u->content->ptr + u->plan.at) % GB_DISK_ALIGN == 0;
    unsigned i;

    for (i = 0; i < (aligned ? GB_WRITE_THROUGH_PIECES : 1); i++) {
        if (!u->disk.pieces[i].running)
            return &u->disk.pieces[i];
    }
    return NULL;
}

/* The next piece; NULL: there is none yet. The transfer's lock is held. */
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

void gb_write_through_filled(struct gb_upload *u) {
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
