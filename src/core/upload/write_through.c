#include "core/upload/write_through.h"

#include "base/container.h"
#include "core/stored/disks.h"
#include "core/upload/upload.h"

/* Memory goes to the disk in pieces of whole blocks. */
#define PIECE_BYTES GB_STORED_BLOCK_BYTES

/* Only what the commit would write anyway, and what comes in its order. */
static bool fits(const struct gb_upload *u, const struct gb_upload_draft *draft) {
    return draft->durability == GB_DURABILITY_SYNC && draft->bytes > GB_STORED_INLINE_BYTES &&
           draft->payload == draft->bytes && u->role->from_client && !u->plan.scattered && !u->plan.open_ended &&
           !u->content->owner;
}

void gb_write_through_begin_locked(struct gb_upload *u, const struct gb_upload_draft *draft) {
    const struct gb_buffer *b = draft->buffer;
    struct gb_core *core = u->t.core;

    if (!fits(u, draft))
        return;
    if (!b)
        u->disk.new_id = atomic_fetch_add(&core->last_buffer_id, 1) + 1;
    u->disk.tee = gb_tee_new(core, b ? b->id : u->disk.new_id, draft->bytes);
}

/* One slot each is always permitted, so that every upload moves. */
bool gb_write_through_may_take(const struct gb_upload *u) {
    const struct gb_slots *slots = &u->t.core->slots;

    return u->pipe.in_flight == 0 || atomic_load(&slots->free_count) > slots->total / 4 * 3;
}

/* --- memory that the CPU reaches ---------------------------------------------------------------------------------- */

static void written(struct gb_tee_piece *piece, const struct gb_error *error);

/* The next piece. Returns false if there is none yet. The transfer's lock is held. */
static bool next_locked(struct gb_upload *u) {
    struct gb_write_through *w = &u->disk;
    uint64_t end = w->ready == u->plan.payload ? w->ready : w->ready / PIECE_BYTES * PIECE_BYTES;

    if (w->running || end == w->given)
        return false;
    w->piece = (struct gb_tee_piece){
        .ptr = (char *)u->content->ptr + u->plan.at + w->given, .n = (size_t)(end - w->given), .done = written};
    w->given = end;
    w->running = true;
    gb_upload_pend_locked(u);
    return true;
}

static void give(struct gb_upload *u) {
    gb_core_transfer_ref(&u->t);
    gb_tee_write(u->disk.tee, &u->disk.piece);
}

static void written(struct gb_tee_piece *piece, const struct gb_error *error) {
    struct gb_upload *u = gb_container_of(piece, struct gb_upload, disk.piece);
    bool more;

    pthread_mutex_lock(&u->t.lock);
    u->disk.running = false;
    more = !error && next_locked(u);
    gb_upload_pended_locked(u, error);
    gb_upload_unlock_advance(u);
    if (more)
        give(u);
    gb_core_transfer_unref(&u->t);
}

void gb_write_through_filled(struct gb_upload *u) {
    bool more;

    pthread_mutex_lock(&u->t.lock);
    u->disk.ready = u->filled;
    more = next_locked(u);
    pthread_mutex_unlock(&u->t.lock);
    if (more)
        give(u);
}
