/* Bytes of a generation that lie on disk or in the host tier: counted by references, written beside the device, read in
 * blocks, and loads that wait for room; and the disk and the host tier as the core knows them. */
#include "core/durable/stored.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/thread.h"
#include "core/util/staging.h"

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

/* How many there are. */
static unsigned disks_count(const struct gb_core *core) {
    return core->disks->count;
}

void gb_disks_post(struct gb_core *core, struct gb_task *task) {
    gb_lane_post(gb_disks_lane(core), task);
}

/* As above, on another thread than this lane's, if the lanes have more than one. */
static void disks_post_beside(struct gb_core *core, const struct gb_lane *lane, struct gb_task *task) {
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

/* --- tee: written beside the device ------------------------------------------------------------------------------- */

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
    bool alone;       /* no other piece may run beside this one */
    bool in_turn;     /* so do all from now on */
    struct gb_tee_piece *first;
    struct gb_tee_piece **last;
};

static void disks_run(struct gb_task *task);

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
    tee->count = disks_count(core) < WORKERS ? disks_count(core) : WORKERS;
    for (i = 0; i < tee->count; i++)
        tee->workers[i] = (struct worker){.task = {.run = disks_run}, .tee = tee, .lane = gb_disks_lane(core)};
    tee->refs = 1;
    tee->last = &tee->first;
    gb_mutex_init(&tee->lock);
    return tee;
}

int64_t gb_tee_buffer_id(const struct gb_tee *tee) {
    return tee->buffer_id;
}

/* --- tee: the end ------------------------------------------------------------------------------------------------- */

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

/* --- tee: which piece is written next ----------------------------------------------------------------------------- */

/* Returns true if the piece may be written beside others. After the first one that may not, all are written in turn. */
static bool is_beside_locked(const struct gb_tee *tee, const struct gb_tee_piece *piece) {
    return tee->file && !tee->in_turn && gb_disk_is_piece(tee->file, piece->ptr, piece->n, piece->at);
}

/* Returns true if the first piece may be written now. The piece that makes the file runs alone, as do pieces in
 * turn. */
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

/* --- tee: on a lane of the disk ----------------------------------------------------------------------------------- */

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

static void disks_run(struct gb_task *task) {
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

/* --- stored ------------------------------------------------------------------------------------------------------- */

struct gb_stored *gb_stored_new(struct gb_core *core, const struct gb_stored_rec *rec) {
    size_t bytes = gb_stored_block_count(rec->bytes) * sizeof(rec->blocks[0]);
    struct gb_stored *stored = malloc(sizeof(*stored) + bytes);

    if (!stored)
        return NULL;
    *stored = (struct gb_stored){.core = core, .rec = *rec};
    atomic_init(&stored->refs, 1);
    if (bytes > 0)
        memcpy(stored->blocks, rec->blocks, bytes);
    stored->rec.blocks = stored->blocks;
    stored->name = (struct gb_disk_name){rec->buffer_id, rec->file_generation, rec->file_tag};
    return stored;
}

struct gb_stored *gb_stored_new_in_host(struct gb_core *core, const struct gb_stored_rec *rec,
                                        struct gb_host_block *block) {
    struct gb_stored *stored = malloc(sizeof(*stored));

    if (!stored)
        return NULL;
    *stored = (struct gb_stored){.core = core, .rec = *rec, .spilled = true, .in_host = true, .block = block};
    atomic_init(&stored->refs, 1);
    return stored;
}

struct gb_stored *gb_stored_ref(struct gb_stored *stored) {
    atomic_fetch_add(&stored->refs, 1);
    return stored;
}

uint64_t gb_stored_look_file(struct gb_stored *stored) {
    uint64_t file = gb_disk_shared(stored->core->config.disk, &stored->name);

    atomic_store(&stored->file, file);
    return file;
}

void gb_stored_note_damage(struct gb_stored *stored) {
    if (atomic_exchange(&stored->damaged, true))
        return;
    atomic_fetch_add(&stored->core->damaged_buffers, 1);
    if (stored->core->config.disk)
        gb_disk_note_damage(stored->core->config.disk);
}

void gb_stored_note_whole(struct gb_stored *stored) {
    if (atomic_load(&stored->damaged) && atomic_exchange(&stored->damaged, false))
        atomic_fetch_sub(&stored->core->damaged_buffers, 1);
}

/* On a thread of the disk. */
static void remove_file(struct gb_task *task) {
    struct gb_stored *stored = gb_container_of(task, struct gb_stored, task);
    struct gb_core *core = stored->core;

    if (atomic_load(&stored->set_aside))
        gb_disk_set_aside(core->config.disk, &stored->name, true);
    else
        gb_disk_remove(core->config.disk, &stored->name);
    free(stored);
    gb_core_leave(core);
}

void gb_stored_unref(struct gb_stored *stored) {
    if (!stored || atomic_fetch_sub(&stored->refs, 1) != 1)
        return;
    gb_stored_note_whole(stored); /* no buffer has it any more */
    gb_host_block_unref(stored->block);
    if (!atomic_load(&stored->condemned) || !gb_stored_has_file(stored)) {
        free(stored);
        return;
    }
    gb_core_enter(stored->core);
    stored->task.run = remove_file;
    gb_disks_post(stored->core, &stored->task);
}

void gb_stored_condemn(struct gb_stored *stored) {
    if (stored)
        atomic_store(&stored->condemned, true);
}

int gb_stored_check_block(struct gb_stored *stored, size_t index, uint32_t crc32c, struct gb_error *err) {
    if (crc32c == stored->blocks[index])
        return 0;
    gb_stored_note_damage(stored);
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED,
                        "the stored bytes from offset %llu have the checksum %08x and should have %08x: upload the "
                        "buffer again",
                        (unsigned long long)index * GB_STORED_BLOCK_BYTES, crc32c, stored->blocks[index]);
}

/* --- persist ------------------------------------------------------------------------------------------------------ */

void gb_persist_done(struct gb_persist *persist, bool written, bool unknown) {
    if (!written && !unknown)
        gb_stored_condemn(persist->stored);
    gb_stored_unref(persist->stored);
    free(persist->data);
    *persist = (struct gb_persist){.stored = NULL};
}

/* --- block reader ------------------------------------------------------------------------------------------------- */

/* Read at once by one thread. */
#define CHUNK_MAX (4 * GB_STORED_BLOCK_BYTES)

static void run(struct gb_task *task);

void gb_block_reader_init(struct gb_block_reader *r, struct gb_core *core, struct gb_stored *stored,
                          struct gb_disk_reader *file, const struct gb_lane *lane, void (*done)(void *arg), void *arg) {
    unsigned i;

    *r = (struct gb_block_reader){.core = core, .stored = stored, .file = file, .lane = lane, .done = done, .arg = arg};
    gb_mutex_init(&r->lock);
    for (i = 0; i < GB_BLOCK_READER_THREADS; i++)
        r->workers[i] = (struct gb_block_reader_worker){.task = {.run = run}, .owner = r};
}

void gb_block_reader_close(struct gb_block_reader *r) {
    unsigned i;

    if (!r->core)
        return;
    for (i = 0; i < GB_BLOCK_READER_THREADS; i++)
        gb_disk_read_close(r->workers[i].reader);
    pthread_mutex_destroy(&r->lock);
    r->core = NULL;
}

bool gb_block_reader_may(const struct gb_stored *stored, uint64_t at, size_t n) {
    return !gb_stored_inline(&stored->rec) && at % GB_STORED_BLOCK_BYTES == 0 &&
           (n % GB_STORED_BLOCK_BYTES == 0 || at + n == stored->rec.bytes);
}

/* --- block reader: one thread ------------------------------------------------------------------------------------- */

static int check_blocks(struct gb_block_reader *r, const char *bytes, size_t n, uint64_t at, struct gb_error *err) {
    size_t index = (size_t)(at / GB_STORED_BLOCK_BYTES);

    for (; n > 0; index++) {
        size_t part = n < GB_STORED_BLOCK_BYTES ? n : GB_STORED_BLOCK_BYTES;

        if (gb_stored_check_block(r->stored, index, gb_crc32c(0, bytes, part), err) < 0)
            return -1;
        bytes += part;
        n -= part;
    }
    return 0;
}

static int read_chunk(struct gb_block_reader_worker *worker, size_t from, size_t n, struct gb_error *err) {
    struct gb_block_reader *r = worker->owner;
    char *ptr = r->ptr + from;

    if (!worker->reader && gb_disk_read_share(r->file, &worker->reader, err) < 0)
        return -1;
    if (gb_disk_read(worker->reader, ptr, n, r->at + from, err) < 0)
        return -1;
    return check_blocks(r, ptr, n, r->at + from, err);
}

/* The next chunk; 0 bytes: none is left. */
static size_t take_locked(struct gb_block_reader *r, size_t *ret_from) {
    size_t left = r->n - r->next;
    size_t n = r->error.code != GB_OK ? 0 : left < r->chunk ? left : r->chunk;

    *ret_from = r->next;
    r->next += n;
    return n;
}

/* Reads until nothing is left. The last thread tells the owner, unless that is the owner's own. It does so under the
 * lock: an owner that another thread has woken may not free the reader meanwhile. */
static void read_on(struct gb_block_reader_worker *worker, bool tells) {
    struct gb_block_reader *r = worker->owner;
    size_t from;
    size_t n;

    pthread_mutex_lock(&r->lock);
    while ((n = take_locked(r, &from)) > 0) {
        struct gb_error err = GB_ERROR_INIT;
        bool failed;

        pthread_mutex_unlock(&r->lock);
        failed = read_chunk(worker, from, n, &err) < 0;
        pthread_mutex_lock(&r->lock);
        if (failed && r->error.code == GB_OK)
            r->error = err;
    }
    if (--r->running == 0 && tells)
        r->done(r->arg);
    pthread_mutex_unlock(&r->lock);
}

static void run(struct gb_task *task) {
    struct gb_block_reader_worker *worker = gb_container_of(task, struct gb_block_reader_worker, task);

    read_on(worker, true);
}

/* --- block reader: several threads -------------------------------------------------------------------------------- */

/* As many threads as have something to do, in chunks of whole blocks. */
static unsigned divide(struct gb_block_reader *r) {
    size_t blocks = gb_stored_block_count(r->n);
    unsigned most = disks_count(r->core) < GB_BLOCK_READER_THREADS ? disks_count(r->core) : GB_BLOCK_READER_THREADS;
    unsigned count = blocks < most ? (unsigned)blocks : most;
    size_t each = (blocks + count - 1) / count * GB_STORED_BLOCK_BYTES;

    r->chunk = each < CHUNK_MAX ? each : CHUNK_MAX;
    return count;
}

/* Starts other threads of the reader, from that worker on. */
static void start(struct gb_block_reader *r, void *ptr, size_t n, uint64_t at, unsigned first) {
    unsigned count;
    unsigned i;

    r->ptr = ptr;
    r->n = n;
    r->at = at;
    r->next = 0;
    r->error = GB_ERROR_INIT;
    count = divide(r);
    r->running = count;
    for (i = first; i < count; i++)
        disks_post_beside(r->core, r->lane, &r->workers[i].task);
}

void gb_block_reader_begin(struct gb_block_reader *r, void *ptr, size_t n, uint64_t at) {
    start(r, ptr, n, at, 1);
    read_on(&r->workers[0], false);
}

void gb_block_reader_post(struct gb_block_reader *r, void *ptr, size_t n, uint64_t at) {
    start(r, ptr, n, at, 0);
}

int gb_block_reader_result(struct gb_block_reader *r, struct gb_error *err) {
    struct gb_error error;
    bool runs;

    pthread_mutex_lock(&r->lock);
    runs = r->running > 0;
    error = r->error;
    pthread_mutex_unlock(&r->lock);
    if (runs)
        return 0;
    return error.code == GB_OK ? 1 : gb_error_move(err, &error);
}

/* --- loads that wait for room ------------------------------------------------------------------------------------- */

void gb_load_unref_locked(struct gb_load *load) {
    if (load && --load->refs == 0)
        free(load);
}

struct gb_loads *gb_loads_new(void) {
    struct gb_loads *loads = calloc(1, sizeof(*loads));

    if (!loads)
        return NULL;
    gb_mutex_init(&loads->lock);
    TAILQ_INIT(&loads->waiters);
    return loads;
}

void gb_loads_free(struct gb_loads *loads) {
    if (!loads)
        return;
    pthread_mutex_destroy(&loads->lock);
    free(loads);
}

uint64_t gb_loads_sequence(struct gb_core *core) {
    return atomic_load(&core->loads->ended);
}

bool gb_loads_wait(struct gb_core *core, uint64_t sequence, struct gb_load_waiter *waiter) {
    struct gb_loads *loads = core->loads;
    bool waits;

    pthread_mutex_lock(&loads->lock);
    waits = atomic_load(&loads->ended) == sequence;
    if (waits)
        TAILQ_INSERT_TAIL(&loads->waiters, waiter, link);
    waiter->listed = waits;
    pthread_mutex_unlock(&loads->lock);
    return waits;
}

void gb_loads_leave(struct gb_core *core, struct gb_load_waiter *waiter) {
    pthread_mutex_lock(&core->loads->lock);
    if (waiter->listed)
        TAILQ_REMOVE(&core->loads->waiters, waiter, link);
    waiter->listed = false;
    pthread_mutex_unlock(&core->loads->lock);
}

void gb_loads_ended(struct gb_core *core) {
    struct gb_loads *loads = core->loads;
    struct gb_load_waiter *waiter;

    pthread_mutex_lock(&loads->lock);
    atomic_fetch_add(&loads->ended, 1);
    while ((waiter = TAILQ_FIRST(&loads->waiters))) {
        TAILQ_REMOVE(&loads->waiters, waiter, link);
        waiter->listed = false;
        waiter->waker.fn(waiter->waker.arg);
    }
    pthread_mutex_unlock(&loads->lock);
}

static uint64_t behind_ns(struct gb_core *core) {
    uint64_t since_ns = atomic_load(&core->behind_since_ns);
    uint64_t now_ns = gb_clock_ns();

    return since_ns > 0 && now_ns > since_ns ? now_ns - since_ns : 0;
}

void gb_storage_stat(struct gb_core *core, struct gb_storage_numbers *ret) {
    struct gb_host_tier_stat host;

    gb_host_tier_stat(core, &host);
    *ret = (struct gb_storage_numbers){
        .buffers = atomic_load(&core->stored_buffers),
        .bytes = atomic_load(&core->stored_bytes),
        .movable_bytes = atomic_load(&core->movable_bytes),
        .behind = {atomic_load(&core->behind_buffers), atomic_load(&core->behind_bytes), behind_ns(core)},
        .loads = atomic_load(&core->loads->loaded),
        .loaded_bytes = atomic_load(&core->loads->loaded_bytes),
        .load_failures = atomic_load(&core->loads->failed),
        .evictions = atomic_load(&core->loads->evicted),
        .evictions_for_room = atomic_load(&core->loads->evicted_for_room),
        .reloads = atomic_load(&core->loads->reloaded),
        .evictions_to_host = atomic_load(&core->loads->evicted_to_host),
        .loads_from_host = atomic_load(&core->loads->loaded_from_host),
        .host = {host.limit_bytes, host.used_bytes, host.kept_bytes, host.blocks},
        .cold_reads = atomic_load(&core->loads->cold_reads)};
    if (core->config.disk) {
        ret->present = true;
        gb_disk_stat(core->config.disk, &ret->disk);
        ret->commits = gb_store_durable_health(core->store, &ret->commit_error) == 0;
    }
}

/* --- host tier ---------------------------------------------------------------------------------------------------- */

#define PAGE_BYTES 4096u

struct gb_host_tier {
    uint64_t limit_bytes;
    _Atomic uint64_t used_bytes; /* of blocks in use; changed under the lock, read without it */
    pthread_mutex_t lock;        /* a leaf; for all below */
    uint64_t kept_bytes;
    uint64_t blocks;
    struct gb_host_block *kept; /* the one given back last is first */
};

struct gb_host_tier *gb_host_tier_new(uint64_t limit_bytes) {
    struct gb_host_tier *tier = calloc(1, sizeof(*tier));

    if (!tier)
        return NULL;
    tier->limit_bytes = limit_bytes;
    gb_mutex_init(&tier->lock);
    return tier;
}

/* A failure of a device that died leaves the memory to the end of the process. */
static void free_block(struct gb_core *core, struct gb_host_block *block) {
    const struct gb_location place = {GB_KIND_PINNED, block->device, block->ptr};
    struct gb_error err = GB_ERROR_INIT;

    if (block->ptr && gb_mem_kind_free(core->backend, &place, block->size, &err) < 0)
        gb_core_report_error(core, &err);
    gb_pinned_give(&core->pinned, block->size);
    free(block);
}

static void free_list(struct gb_core *core, struct gb_host_block *list) {
    while (list) {
        struct gb_host_block *next = list->next;

        free_block(core, list);
        list = next;
    }
}

void gb_host_tier_free(struct gb_core *core) {
    struct gb_host_tier *tier = core->host_tier;

    if (!tier)
        return;
    free_list(core, tier->kept);
    pthread_mutex_destroy(&tier->lock);
    free(tier);
}

bool gb_host_tier_has_room(const struct gb_core *core, uint64_t bytes) {
    uint64_t used = atomic_load(&core->host_tier->used_bytes);

    return used <= core->host_tier->limit_bytes && bytes <= core->host_tier->limit_bytes - used;
}

void gb_host_tier_stat(struct gb_core *core, struct gb_host_tier_stat *ret) {
    struct gb_host_tier *tier = core->host_tier;

    pthread_mutex_lock(&tier->lock);
    *ret = (struct gb_host_tier_stat){.limit_bytes = tier->limit_bytes,
                                      .used_bytes = atomic_load(&tier->used_bytes),
                                      .kept_bytes = tier->kept_bytes,
                                      .blocks = tier->blocks};
    pthread_mutex_unlock(&tier->lock);
}

/* --- host tier: blocks taken -------------------------------------------------------------------------------------- */

static struct gb_host_block *take_kept_locked(struct gb_host_tier *tier, int device, uint64_t size) {
    struct gb_host_block **at = &tier->kept;
    struct gb_host_block *block;

    while (*at && ((*at)->size != size || (*at)->device != device))
        at = &(*at)->next;
    block = *at;
    if (block) {
        *at = block->next;
        tier->kept_bytes -= size;
    }
    return block;
}

/* Takes out the blocks that have been kept for longest, until the rest leaves room. */
static struct gb_host_block *cut_kept_locked(struct gb_host_tier *tier) {
    struct gb_host_block **at = &tier->kept;
    uint64_t room = tier->limit_bytes - atomic_load(&tier->used_bytes);
    struct gb_host_block *list;

    while (*at && (*at)->size <= room) {
        room -= (*at)->size;
        at = &(*at)->next;
    }
    list = *at;
    *at = NULL;
    for (at = &list; *at; at = &(*at)->next)
        tier->kept_bytes -= (*at)->size;
    return list;
}

static int refuse(const struct gb_host_tier *tier, uint64_t bytes, struct gb_error *err) {
    uint64_t used = atomic_load(&tier->used_bytes);

    if (tier->limit_bytes == 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the daemon takes no bytes into host memory: start it with --spill-host-bytes, or evict to "
                            "\"disk\"");
    gb_error_numbers(err, tier->limit_bytes, used, bytes);
    return gb_error_set(err, GB_ERR_STORAGE_FULL,
                        "the host memory for bytes that have left a device holds %llu of %llu bytes "
                        "(--spill-host-bytes), and %llu more are asked for: load or delete buffers that are there, or "
                        "evict to \"disk\"",
                        (unsigned long long)used, (unsigned long long)tier->limit_bytes, (unsigned long long)bytes);
}

/* Counts the block as used. *ret is a kept block of its size, or NULL. */
static int reserve(struct gb_core *core, int device, uint64_t size, struct gb_host_block **ret, struct gb_error *err) {
    struct gb_host_tier *tier = core->host_tier;
    struct gb_host_block *useless = NULL;
    bool room;

    pthread_mutex_lock(&tier->lock);
    room = gb_host_tier_has_room(core, size);
    if (room) {
        *ret = take_kept_locked(tier, device, size);
        atomic_fetch_add(&tier->used_bytes, size);
        tier->blocks++;
        useless = cut_kept_locked(tier);
    }
    pthread_mutex_unlock(&tier->lock);
    free_list(core, useless);
    return room ? 0 : refuse(tier, size, err);
}

static void give_back_locked(struct gb_host_tier *tier, uint64_t size) {
    atomic_fetch_sub(&tier->used_bytes, size);
    tier->blocks--;
}

static struct gb_host_block *make(struct gb_core *core, int device, uint64_t size, struct gb_error *err) {
    struct gb_host_block *block = calloc(1, sizeof(*block));

    if (!block) {
        gb_no_memory(err);
        return NULL;
    }
    block->core = core;
    block->device = device;
    block->size = size;
    if (gb_pinned_take(&core->pinned, size, err) < 0) {
        free(block);
        return NULL;
    }
    if (gb_mem_kind_alloc(core->backend, device, GB_KIND_PINNED, size, &block->ptr, err) == 0)
        return block;
    gb_pinned_give(&core->pinned, size);
    free(block);
    return NULL;
}

int gb_host_block_new(struct gb_core *core, int device, uint64_t bytes, struct gb_host_block **ret,
                      struct gb_error *err) {
    uint64_t size = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    struct gb_host_block *block = NULL;

    if (reserve(core, device, size, &block, err) < 0)
        return -1;
    if (!block)
        block = make(core, device, size, err);
    if (!block) {
        pthread_mutex_lock(&core->host_tier->lock);
        give_back_locked(core->host_tier, size);
        pthread_mutex_unlock(&core->host_tier->lock);
        return -1;
    }
    atomic_init(&block->refs, 1);
    block->bytes = bytes;
    block->next = NULL;
    *ret = block;
    return 0;
}

/* --- host tier: blocks given back --------------------------------------------------------------------------------- */

struct gb_host_block *gb_host_block_ref(struct gb_host_block *block) {
    if (block)
        atomic_fetch_add(&block->refs, 1);
    return block;
}

/* In one step: room that is given back before the block is counted as kept would let the two exceed the limit. */
static void keep(struct gb_task *task) {
    struct gb_host_block *block = gb_container_of(task, struct gb_host_block, task);
    struct gb_core *core = block->core;
    struct gb_host_tier *tier = core->host_tier;

    pthread_mutex_lock(&tier->lock);
    give_back_locked(tier, block->size);
    block->next = tier->kept;
    tier->kept = block;
    tier->kept_bytes += block->size;
    pthread_mutex_unlock(&tier->lock);
    gb_core_changed(core);
    gb_core_leave(core);
}

void gb_host_block_unref(struct gb_host_block *block) {
    if (!block || atomic_fetch_sub(&block->refs, 1) != 1)
        return;
    gb_core_enter(block->core);
    block->task.run = keep;
    gb_disks_post(block->core, &block->task);
}
