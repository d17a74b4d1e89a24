#include "core/stored/tee.h"

#include <stdlib.h>

#include "base/container.h"
#include "core/stored/disks.h"

struct gb_tee {
    struct gb_core *core;
    struct gb_lane *lane;
    struct gb_task task;
    int64_t buffer_id;
    uint64_t bytes;
    uint64_t written;
    struct gb_disk_writer *file; /* the lane's, until the pieces are done */
    struct gb_error error;       /* of the first piece that failed: the others fail as well */
    pthread_mutex_t lock;        /* for all below */
    struct gb_tee_piece *first;
    struct gb_tee_piece **last;
};

static void run(struct gb_task *task);

struct gb_tee *gb_tee_new(struct gb_core *core, int64_t buffer_id, uint64_t bytes) {
    struct gb_tee *tee;

    if (gb_disks_start(core, NULL) < 0)
        return NULL;
    tee = calloc(1, sizeof(*tee));
    if (!tee)
        return NULL;
    gb_core_enter(core);
    tee->core = core;
    tee->lane = gb_disks_lane(core);
    tee->buffer_id = buffer_id;
    tee->bytes = bytes;
    tee->last = &tee->first;
    gb_mutex_init(&tee->lock);
    return tee;
}

int64_t gb_tee_buffer_id(const struct gb_tee *tee) {
    return tee->buffer_id;
}

void gb_tee_write(struct gb_tee *tee, struct gb_tee_piece *piece) {
    bool idle;

    piece->next = NULL;
    pthread_mutex_lock(&tee->lock);
    idle = !tee->first;
    *tee->last = piece;
    tee->last = &piece->next;
    pthread_mutex_unlock(&tee->lock);
    if (!idle)
        return;
    tee->task.run = run;
    gb_lane_post(tee->lane, &tee->task);
}

/* --- on the lane -------------------------------------------------------------------------------------------------- */

static void write_piece(struct gb_tee *tee, const struct gb_tee_piece *piece) {
    struct gb_error err = GB_ERROR_INIT;
    int r = 0;

    if (tee->error.code != GB_OK)
        return;
    if (!tee->file)
        r = gb_disk_create_unnamed(tee->core->config.disk, tee->buffer_id, tee->bytes, &tee->file, &err);
    if (r == 0)
        r = gb_disk_write(tee->file, piece->ptr, piece->n, &err);
    if (r == 0)
        tee->written += piece->n;
    else
        tee->error = err;
}

/* The tee may be freed from the last piece's done on. */
static void run(struct gb_task *task) {
    struct gb_tee *tee = gb_container_of(task, struct gb_tee, task);
    struct gb_error error;
    struct gb_tee_piece *piece;
    bool more = true;

    while (more) {
        piece = tee->first; /* only this thread takes pieces out */
        write_piece(tee, piece);
        error = tee->error;
        pthread_mutex_lock(&tee->lock);
        tee->first = piece->next;
        if (!tee->first)
            tee->last = &tee->first;
        more = tee->first != NULL;
        pthread_mutex_unlock(&tee->lock);
        piece->done(piece, error.code == GB_OK ? NULL : &error);
    }
}

static void give_up(struct gb_task *task) {
    struct gb_tee *tee = gb_container_of(task, struct gb_tee, task);
    struct gb_core *core = tee->core;

    gb_disk_discard(tee->file);
    pthread_mutex_destroy(&tee->lock);
    free(tee);
    gb_core_leave(core);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

struct gb_disk_writer *gb_tee_take(struct gb_tee *tee) {
    struct gb_disk_writer *file = NULL;

    pthread_mutex_lock(&tee->lock);
    if (tee->file && tee->written == tee->bytes && tee->error.code == GB_OK) {
        file = tee->file;
        tee->file = NULL;
    }
    pthread_mutex_unlock(&tee->lock);
    return file;
}

void gb_tee_free(struct gb_tee *tee) {
    if (!tee)
        return;
    tee->task.run = give_up;
    gb_lane_post(tee->lane, &tee->task);
}
