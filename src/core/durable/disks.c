/* The disk as the core knows it: its lanes and its state, and the tee, which gives each piece of a durable upload to
 * the disk beside the device. */
#include "core/durable/disks.h"

#include <stdlib.h>

#include "base/container.h"

/* --- disks -------------------------------------------------------------------------------------------------------- */

struct gb_disks {
    pthread_mutex_t lock; /* while the threads are made */
    atomic_bool started;
    atomic_uint number;
    unsigned count;
    struct gb_lane lanes[];
};

struct gb_disks *gb_disks_new(unsigned threads) {
    unsigned count = threads > 0 ? threads : GB_DISK_THREADS;
    struct gb_disks *disks = calloc(1, sizeof(*disks) + count * sizeof(disks->lanes[0]));

    if (!disks)
        return NULL;
    gb_mutex_init(&disks->lock);
    disks->count = count;
    return disks;
}

void gb_disks_free(struct gb_disks *disks) {
    unsigned i;

    if (!disks)
        return;
    for (i = 0; i < disks->count; i++)
        gb_lane_done(&disks->lanes[i]);
    pthread_mutex_destroy(&disks->lock);
    free(disks);
}

static int start_locked(struct gb_disks *disks, struct gb_error *err) {
    unsigned i;

    for (i = 0; i < disks->count; i++) {
        if (!disks->lanes[i].started && gb_lane_init(&disks->lanes[i], "gb-disk", gb_lane_no_more, NULL, err) < 0)
            return -1;
    }
    atomic_store(&disks->started, true);
    return 0;
}

int gb_disks_start(struct gb_core *core, struct gb_error *err) {
    struct gb_disks *disks = core->disks;
    int r = 0;

    if (!core->config.disk)
        return gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE,
                            "the bytes are in a folder, and the daemon was started without one: start it with "
                            "--data-dir");
    if (atomic_load(&disks->started))
        return 0;
    pthread_mutex_lock(&disks->lock);
    if (!atomic_load(&disks->started))
        r = start_locked(disks, err);
    pthread_mutex_unlock(&disks->lock);
    return r;
}

struct gb_lane *gb_disks_lane(struct gb_core *core) {
    return &core->disks->lanes[atomic_fetch_add(&core->disks->number, 1) % core->disks->count];
}

unsigned gb_disks_count(const struct gb_core *core) {
    return core->disks->count;
}

void gb_disks_post(struct gb_core *core, struct gb_task *task) {
    gb_lane_post(gb_disks_lane(core), task);
}

void gb_disks_post_beside(struct gb_core *core, const struct gb_lane *lane, struct gb_task *task) {
    struct gb_lane *other = gb_disks_lane(core);

    gb_lane_post(other == lane ? gb_disks_lane(core) : other, task);
}

int gb_disks_check_durability(const struct gb_core *core, enum gb_durability durability, struct gb_error *err) {
    if (durability == GB_DURABILITY_NONE || core->config.disk)
        return 0;
    return gb_error_set(
        err, GB_ERR_UNSUPPORTED,
        "the daemon has no folder for bytes, and no buffer can be durable or leave memory: start it with "
        "--data-dir");
}

int gb_disks_check_room(struct gb_core *core, enum gb_durability durability, uint64_t bytes, struct gb_error *err) {
    if (durability == GB_DURABILITY_NONE)
        return 0;
    if (gb_disks_check_durability(core, durability, err) < 0 || gb_store_durable_health(core->store, err) < 0)
        return -1;
    return bytes > GB_STORED_INLINE_BYTES ? gb_disk_check_room(core->config.disk, bytes, err) : 0;
}

void gb_disks_point(const struct gb_core *core, enum gb_disk_op op) {
    if (core->config.disk)
        gb_disk_point(core->config.disk, op);
}

/* --- tee ---------------------------------------------------------------------------------------------------------- */

/* Pieces that are written at once, by as many threads. */
#define WORKERS 4

struct worker {
    struct gb_task task;
    struct gb_tee *tee;
    struct gb_lane *lane;
    bool busy; /* it has a reference of the tee; the lock */
};

struct gb_tee {
    struct gb_core *core;
    int64_t buffer_id;
    uint64_t bytes;
    struct gb_task task;
    struct worker workers[WORKERS];
    unsigned count;              /* of workers */
    pthread_mutex_t lock;        /* for all below */
    unsigned refs;               /* the owner's, and one of each busy worker */
    struct gb_disk_writer *file; /* set by the first piece; those that are being written use it without the lock */
    struct gb_error error;       /* of the first piece that failed: the others fail as well */
    uint64_t written;
    unsigned running; /* pieces */
    bool alone;       /* the one that runs suffers none beside it */
    bool in_turn;     /* so do all from now on */
    struct gb_tee_piece *first;
    struct gb_tee_piece **last;
};

static void run(struct gb_task *task);

struct gb_tee *gb_tee_new(struct gb_core *core, int64_t buffer_id, uint64_t bytes) {
    struct gb_tee *tee;
    unsigned i;

    if (gb_disks_start(core, NULL) < 0)
        return NULL;
    tee = calloc(1, sizeof(*tee));
    if (!tee)
        return NULL;
    gb_core_enter(core);
    tee->core = core;
    tee->buffer_id = buffer_id;
    tee->bytes = bytes;
    tee->count = gb_disks_count(core) < WORKERS ? gb_disks_count(core) : WORKERS;
    for (i = 0; i < tee->count; i++)
        tee->workers[i] = (struct worker){.task = {.run = run}, .tee = tee, .lane = gb_disks_lane(core)};
    tee->refs = 1;
    tee->last = &tee->first;
    gb_mutex_init(&tee->lock);
    return tee;
}

int64_t gb_tee_buffer_id(const struct gb_tee *tee) {
    return tee->buffer_id;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* On a thread of the disk. */
static void dispose(struct gb_tee *tee) {
    struct gb_core *core = tee->core;

    gb_disk_discard(tee->file);
    pthread_mutex_destroy(&tee->lock);
    free(tee);
    gb_core_leave(core);
}

static void give_up(struct gb_task *task) {
    dispose(gb_container_of(task, struct gb_tee, task));
}

void gb_tee_free(struct gb_tee *tee) {
    bool last;

    if (!tee)
        return;
    pthread_mutex_lock(&tee->lock);
    last = --tee->refs == 0;
    pthread_mutex_unlock(&tee->lock);
    if (!last)
        return;
    tee->task.run = give_up;
    gb_lane_post(tee->workers[0].lane, &tee->task);
}

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

/* --- who writes --------------------------------------------------------------------------------------------------- */

/* The piece is one of those that are written side by side. From the first that is none, all are written in turn. */
static bool is_beside_locked(const struct gb_tee *tee, const struct gb_tee_piece *piece) {
    return tee->file && !tee->in_turn && gb_disk_is_piece(tee->file, piece->ptr, piece->n, piece->at);
}

/* The first piece may be written now. The one that makes the file is alone, as are those in turn. */
static bool may_begin_locked(const struct gb_tee *tee, bool *ret_alone) {
    if (!tee->first || tee->alone)
        return false;
    *ret_alone = tee->error.code == GB_OK && !is_beside_locked(tee, tee->first);
    return !*ret_alone || tee->running == 0;
}

static struct gb_tee_piece *begin_locked(struct gb_tee *tee) {
    struct gb_tee_piece *piece = tee->first;
    bool alone;

    if (!may_begin_locked(tee, &alone))
        return NULL;
    tee->alone = alone;
    tee->running++;
    tee->first = piece->next;
    if (!tee->first)
        tee->last = &tee->first;
    return piece;
}

/* One more worker, if there is something for it. The caller posts it behind the lock. */
static struct worker *call_locked(struct gb_tee *tee) {
    bool alone;
    unsigned i;

    if (!may_begin_locked(tee, &alone))
        return NULL;
    for (i = 0; i < tee->count; i++) {
        if (tee->workers[i].busy)
            continue;
        tee->workers[i].busy = true;
        tee->refs++;
        return &tee->workers[i];
    }
    return NULL;
}

static void post(struct worker *worker) {
    if (worker)
        gb_lane_post(worker->lane, &worker->task);
}

void gb_tee_write(struct gb_tee *tee, struct gb_tee_piece *piece) {
    struct worker *worker;

    piece->next = NULL;
    pthread_mutex_lock(&tee->lock);
    *tee->last = piece;
    tee->last = &piece->next;
    worker = call_locked(tee);
    pthread_mutex_unlock(&tee->lock);
    post(worker);
}

/* --- on a lane ---------------------------------------------------------------------------------------------------- */

static int make_file(struct gb_tee *tee, struct gb_error *err) {
    struct gb_disk_writer *file;

    if (gb_disk_create_unnamed(tee->core->config.disk, tee->buffer_id, tee->bytes, &file, err) < 0)
        return -1;
    pthread_mutex_lock(&tee->lock);
    tee->file = file;
    pthread_mutex_unlock(&tee->lock);
    return 0;
}

static int write_piece(struct gb_tee *tee, const struct gb_tee_piece *piece, struct gb_error *err) {
    bool beside;

    if (!tee->file && make_file(tee, err) < 0)
        return -1;
    pthread_mutex_lock(&tee->lock);
    beside = is_beside_locked(tee, piece);
    tee->in_turn |= !beside;
    pthread_mutex_unlock(&tee->lock);
    if (beside)
        return gb_disk_write_piece(tee->file, piece->ptr, piece->n, piece->at, err);
    return gb_disk_write(tee->file, piece->ptr, piece->n, err);
}

/* Returns the error that the piece ends with; code GB_OK: none. */
static struct gb_error write_one(struct gb_tee *tee, const struct gb_tee_piece *piece) {
    struct gb_error err;
    int r;

    pthread_mutex_lock(&tee->lock);
    err = tee->error;
    pthread_mutex_unlock(&tee->lock);
    r = err.code != GB_OK ? 0 : write_piece(tee, piece, &err);
    pthread_mutex_lock(&tee->lock);
    if (r < 0 && tee->error.code == GB_OK)
        tee->error = err;
    if (err.code == GB_OK)
        tee->written += piece->n;
    tee->running--;
    tee->alone = false;
    pthread_mutex_unlock(&tee->lock);
    return err;
}

static void run(struct gb_task *task) {
    struct worker *worker = gb_container_of(task, struct worker, task);
    struct gb_tee *tee = worker->tee;
    struct gb_tee_piece *piece;
    bool last;

    for (;;) {
        struct worker *other;
        struct gb_error error;

        pthread_mutex_lock(&tee->lock);
        piece = begin_locked(tee);
        other = piece ? call_locked(tee) : NULL;
        if (!piece)
            break;
        pthread_mutex_unlock(&tee->lock);
        post(other);
        error = write_one(tee, piece);
        piece->done(piece, error.code == GB_OK ? NULL : &error);
    }
    worker->busy = false;
    last = --tee->refs == 0;
    pthread_mutex_unlock(&tee->lock);
    if (last)
        dispose(tee);
}
