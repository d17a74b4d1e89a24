/* One generation's bytes on disk or in host memory: counted by references, read in blocks, asked for by a transaction,
 * and loads that wait for room. */
#include "core/durable/stored.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/thread.h"
#include "core/durable/disks.h"
#include "core/durable/host_tier.h"

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

/* --- one thread --------------------------------------------------------------------------------------------------- */

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

/* --- all ---------------------------------------------------------------------------------------------------------- */

/* As many threads as have something to do, in chunks of whole blocks. */
static unsigned divide(struct gb_block_reader *r) {
    size_t blocks = gb_stored_block_count(r->n);
    unsigned most =
        gb_disks_count(r->core) < GB_BLOCK_READER_THREADS ? gb_disks_count(r->core) : GB_BLOCK_READER_THREADS;
    unsigned count = blocks < most ? (unsigned)blocks : most;
    size_t each = (blocks + count - 1) / count * GB_STORED_BLOCK_BYTES;

    r->chunk = each < CHUNK_MAX ? each : CHUNK_MAX;
    return count;
}

/* Has other threads read, from that worker on. */
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
        gb_disks_post_beside(r->core, r->lane, &r->workers[i].task);
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

/* --- load --------------------------------------------------------------------------------------------------------- */

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
