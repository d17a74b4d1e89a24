#include "core/stored/block_reader.h"

#include "base/container.h"
#include "base/hash.h"
#include "core/stored/disks.h"

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
