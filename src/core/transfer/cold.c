/* Downloads of bytes that are on disk or in host memory alone: sent as they are read. download.c calls this. */
#include <stdlib.h>

#include "base/container.h"
#include "base/hash.h"
#include "base/thread.h"
#include "core/buffer/buffer.h"
#include "core/durable/stored.h"
#include "core/transfer/download.h"

/* Bytes that are not in memory are sent as they are read, and take no memory of the device. A few blocks are read
 * ahead. A block is sent only after its checksum was compared. */

/* Blocks in memory: one is sent while others are read. */
#define AHEAD 4

enum state { EMPTY, READING, FILLED };

struct block {
    struct gb_task task;
    struct gb_cold *cold;
    unsigned char *bytes;        /* aligned; GB_STORED_BLOCK_BYTES */
    struct gb_disk_reader *file; /* the block's own, because blocks are read at the same time */
    size_t index;
    enum state state; /* this and error: the lock */
    struct gb_error error;
};

struct gb_cold {
    atomic_uint refs; /* the download's, and one for each read */
    struct gb_core *core;
    struct gb_stored *stored;
    pthread_mutex_t lock;
    struct gb_core_transfer *wakes; /* a reference; NULL: the download has ended */
    struct block blocks[AHEAD];
};

static void free_block(struct block *b) {
    gb_disk_read_close(b->file);
    free(b->bytes);
}

static void unref(struct gb_cold *cold) {
    struct gb_core *core = cold->core;
    unsigned i;

    if (atomic_fetch_sub(&cold->refs, 1) != 1)
        return;
    gb_stored_unref(cold->stored);
    for (i = 0; i < AHEAD; i++)
        free_block(&cold->blocks[i]);
    pthread_mutex_destroy(&cold->lock);
    free(cold);
    gb_core_leave(core);
}

static struct gb_cold *make_cold(struct gb_download *d, struct gb_error *err) {
    struct gb_cold *cold;
    unsigned i;

    if (gb_disks_start(d->t.core, err) < 0)
        return NULL;
    cold = calloc(1, sizeof(*cold));
    if (!cold) {
        gb_no_memory(err);
        return NULL;
    }
    atomic_init(&cold->refs, 1);
    cold->core = d->t.core;
    gb_core_enter(cold->core);
    cold->stored = gb_stored_ref(d->stored);
    gb_mutex_init(&cold->lock);
    for (i = 0; i < AHEAD; i++)
        cold->blocks[i].cold = cold;
    gb_core_transfer_ref(&d->t);
    cold->wakes = &d->t;
    atomic_fetch_add(&cold->core->loads->cold_reads, 1);
    return cold;
}

/* --- from the disk, on a thread of the disk ----------------------------------------------------------------------- */

static int open_file(struct gb_cold *cold, struct block *b, struct gb_error *err) {
    if (b->file)
        return 0;
    return gb_disk_read_open(cold->core->config.disk, &cold->stored->name, cold->stored->rec.bytes, &b->file, err);
}

static size_t bytes_in(const struct gb_cold *cold, size_t index) {
    uint64_t left = cold->stored->rec.bytes - (uint64_t)index * GB_STORED_BLOCK_BYTES;

    return left < GB_STORED_BLOCK_BYTES ? (size_t)left : GB_STORED_BLOCK_BYTES;
}

static int read_block(struct gb_cold *cold, struct block *b, struct gb_error *err) {
    size_t n = bytes_in(cold, b->index);
    uint64_t at = (uint64_t)b->index * GB_STORED_BLOCK_BYTES;
    int r;

    if (gb_stored_inline(&cold->stored->rec))
        r = gb_store_read_stored(cold->core->store, &cold->stored->rec, b->bytes, err);
    else
        r = open_file(cold, b, err) < 0 ? -1 : gb_disk_read(b->file, b->bytes, n, at, err);
    return r < 0 ? -1 : gb_stored_check_block(cold->stored, b->index, gb_crc32c(0, b->bytes, n), err);
}

static void run(struct gb_task *task) {
    struct block *b = gb_container_of(task, struct block, task);
    struct gb_cold *cold = b->cold;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_core_transfer *t;

    read_block(cold, b, &err);
    pthread_mutex_lock(&cold->lock);
    b->error = err;
    b->state = FILLED;
    t = cold->wakes;
    if (t)
        gb_core_transfer_ref(t);
    pthread_mutex_unlock(&cold->lock);
    if (t) {
        pthread_mutex_lock(&t->lock);
        gb_core_transfer_unlock_wake(t);
        gb_core_transfer_unref(t);
    }
    unref(cold);
}

/* --- from the disk, on the caller's thread ------------------------------------------------------------------------ */

static int begin_read(struct gb_cold *cold, size_t index, struct gb_error *err) {
    struct block *b = &cold->blocks[index % AHEAD];

    if (!b->bytes && posix_memalign((void **)&b->bytes, GB_DISK_ALIGN, GB_STORED_BLOCK_BYTES) != 0) {
        b->bytes = NULL;
        return gb_no_memory(err);
    }
    b->index = index;
    b->error = GB_ERROR_INIT;
    b->state = READING;
    b->task.run = run;
    atomic_fetch_add(&cold->refs, 1);
    gb_disks_post(cold->core, &b->task);
    return 0;
}

/* Starts to read the blocks from `first` to `last`, as far as places are free. A block that is being read keeps its
 * place. Returns 0 or -1. */
static int read_ahead(struct gb_cold *cold, size_t first, size_t last, struct gb_error *err) {
    size_t index;
    int r = 0;

    pthread_mutex_lock(&cold->lock);
    for (index = first; index <= last && index < first + AHEAD && r == 0; index++) {
        const struct block *b = &cold->blocks[index % AHEAD];

        if (b->state == EMPTY || (b->state == FILLED && b->index != index))
            r = begin_read(cold, index, err);
    }
    pthread_mutex_unlock(&cold->lock);
    return r;
}

/* Bytes that are small enough for the database stay there until the buffer has others. */
static bool is_replaced(struct gb_download *d, const struct gb_error *error) {
    struct gb_session *s = d->t.session;
    bool left;

    if (!gb_stored_inline(&d->stored->rec) || !gb_damage_is(error))
        return false;
    pthread_mutex_lock(&s->lock);
    left = gb_buffer_may_have_left_locked(s, &d->rec.name, d->stored);
    pthread_mutex_unlock(&s->lock);
    return left;
}

static int fail(struct gb_download *d, const struct gb_error *error, struct gb_error *err) {
    if (is_replaced(d, error)) {
        d->replaced = true;
        return gb_error_set(err, GB_ERR_BUFFER_BUSY, "\"%s\" was written or deleted meanwhile; try again",
                            d->rec.name.s);
    }
    gb_damage_report(d->t.session, &d->rec.name, d->stored, error, true);
    return gb_error_move(err, error);
}

/* Returns 1 with the block in *ret if it is filled; 0: wake follows; -1. */
static int take_block(struct gb_download *d, size_t index, const struct block **ret, struct gb_error *err) {
    struct gb_cold *cold = d->cold;
    const struct block *b = &cold->blocks[index % AHEAD];
    bool filled;

    pthread_mutex_lock(&d->t.lock);
    d->t.want_wake = true;
    pthread_mutex_unlock(&d->t.lock);
    pthread_mutex_lock(&cold->lock);
    filled = b->state == FILLED && b->index == index;
    pthread_mutex_unlock(&cold->lock);
    *ret = b;
    if (filled && b->error.code != GB_OK)
        return fail(d, &b->error, err);
    return filled;
}

/* As gb_download_next. */
int gb_download_cold(struct gb_download *d, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    uint64_t left;
    uint64_t at = d->view.offset + gb_download_locate(d, d->sent, &left);
    size_t first = (size_t)(at / GB_STORED_BLOCK_BYTES);
    size_t last = (size_t)((at + left - 1) / GB_STORED_BLOCK_BYTES);
    size_t in_block = (size_t)(at % GB_STORED_BLOCK_BYTES);
    const struct block *b;
    int r;

    if (d->block) {
        *ret_ptr = (const char *)d->block->ptr + at;
        *ret_n = left < GB_STORED_BLOCK_BYTES ? (size_t)left : GB_STORED_BLOCK_BYTES;
        return 1;
    }
    if (!d->cold)
        d->cold = make_cold(d, err);
    if (!d->cold || read_ahead(d->cold, first, last, err) < 0)
        return -1;
    r = take_block(d, first, &b, err);
    if (r <= 0)
        return r;
    *ret_ptr = b->bytes + in_block;
    *ret_n = bytes_in(d->cold, first) - in_block;
    if (*ret_n > left)
        *ret_n = (size_t)left;
    return 1;
}

/* Ends the reading. Reads under way free what is left. NULL is accepted. */
void gb_cold_free(struct gb_cold *cold) {
    struct gb_core_transfer *t;

    if (!cold)
        return;
    pthread_mutex_lock(&cold->lock);
    t = cold->wakes;
    cold->wakes = NULL;
    pthread_mutex_unlock(&cold->lock);
    gb_core_transfer_unref(t);
    unref(cold);
}
