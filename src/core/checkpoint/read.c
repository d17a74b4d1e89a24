/* A file of a checkpoint on its way to a client: one block is sent while the next is read. */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/crc32c.h"
#include "base/thread.h"
#include "core/checkpoint/checkpoint.h"
#include "core/stored/disks.h"

#define BLOCKS 2
#define FILE_SIZE 64

struct block {
    unsigned char *bytes; /* aligned; GB_STORED_BLOCK_BYTES */
    size_t from;          /* what is sent of it */
    size_t end;
    bool here;
};

struct gb_checkpoint_read {
    struct gb_task task;
    struct gb_core *core;
    struct gb_lane *lane;
    struct gb_name name;
    char file[FILE_SIZE];
    struct gb_disk_reader *reader; /* the lane's, as the four below */
    uint64_t size;
    uint64_t at; /* where the next block begins: a multiple of GB_DISK_ALIGN */
    uint64_t first;
    unsigned read;        /* blocks that were read */
    pthread_mutex_t lock; /* for all below; also held while the waker runs */
    struct gb_waker waker;
    bool posted;
    bool closed;
    bool open;
    bool started;
    uint64_t end; /* behind the last byte that is sent */
    struct gb_checkpoint_file head;
    struct gb_error error;
    struct block blocks[BLOCKS];
    unsigned sent; /* blocks that were sent */
};

static void read_free(struct gb_checkpoint_read *r) {
    struct gb_core *core = r->core;
    int i;

    gb_disk_read_close(r->reader);
    for (i = 0; i < BLOCKS; i++)
        free(r->blocks[i].bytes);
    pthread_mutex_destroy(&r->lock);
    free(r);
    gb_core_leave(core);
}

static void post_locked(struct gb_checkpoint_read *r) {
    if (r->posted)
        return;
    r->posted = true;
    gb_lane_post(r->lane, &r->task);
}

/* --- on a thread of the disk -------------------------------------------------------------------------------------- */

/* Manifest and index are small: their checksum is found by reading them. */
static int sum_small(struct gb_checkpoint_read *r, struct gb_checkpoint_file *head, struct gb_error *err) {
    unsigned char *block = r->blocks[0].bytes;
    uint64_t at;

    for (at = 0; at < r->size;) {
        uint64_t left = r->size - at;
        size_t n = left < GB_STORED_BLOCK_BYTES ? (size_t)left : GB_STORED_BLOCK_BYTES;

        if (gb_disk_read(r->reader, block, n, at, err) < 0)
            return -1;
        head->crc32c = gb_crc32c(head->crc32c, block, n);
        at += n;
    }
    head->has_crc32c = true;
    return 0;
}

static int sum(struct gb_checkpoint_read *r, struct gb_checkpoint_file *head, struct gb_error *err) {
    struct gb_checkpoint_sum said;
    size_t index;

    if (!gb_manifest_file_parse(r->file, &index))
        return sum_small(r, head, err);
    head->has_crc32c = gb_checkpoints_sum(r->core, &r->name, index, &said);
    if (!head->has_crc32c)
        return 0;
    head->crc32c = said.crc32c;
    if (said.size == r->size)
        return 0;
    gb_disk_note_damage(r->core->config.disk);
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the file %s of the checkpoint has another size", r->file);
}

/* The manifest says that the file is there. */
static bool is_known(const struct gb_checkpoint_read *r) {
    struct gb_checkpoint_sum said;
    size_t index;

    return gb_manifest_file_parse(r->file, &index) && gb_checkpoints_sum(r->core, &r->name, index, &said);
}

static int absent(const struct gb_checkpoint_read *r, const struct gb_error *why, struct gb_error *err) {
    if (why->code != GB_ERR_CONTENT_LOST)
        return gb_error_move(err, why);
    return gb_error_set(err, GB_ERR_CHECKPOINT_NOT_FOUND, "the checkpoint \"%s\" has no file %s", r->name.s, r->file);
}

static int open_file(struct gb_checkpoint_read *r, struct gb_checkpoint_file *head, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int i;

    for (i = 0; i < BLOCKS; i++) {
        if (posix_memalign((void **)&r->blocks[i].bytes, GB_DISK_ALIGN, GB_STORED_BLOCK_BYTES) != 0) {
            r->blocks[i].bytes = NULL;
            return gb_no_memory(err);
        }
    }
    if (gb_disk_checkpoint_open(r->core->config.disk, &r->name, r->file, &r->reader, &r->size, &why) < 0)
        return is_known(r) ? gb_error_move(err, &why) : absent(r, &why, err);
    head->size = r->size;
    return sum(r, head, err);
}

static int read_block(struct gb_checkpoint_read *r, struct block *b, uint64_t end, struct gb_error *err) {
    uint64_t left = r->size - r->at;
    size_t n = left < GB_STORED_BLOCK_BYTES ? (size_t)left : GB_STORED_BLOCK_BYTES;

    if (gb_disk_read(r->reader, b->bytes, n, r->at, err) < 0)
        return -1;
    b->from = r->first > r->at ? (size_t)(r->first - r->at) : 0;
    b->end = end < r->at + n ? (size_t)(end - r->at) : n;
    r->at += n;
    return 0;
}

static void wake_locked(struct gb_checkpoint_read *r) {
    if (!r->closed)
        r->waker.fn(r->waker.arg);
}

/* Returns false if nothing is to be done just now. The lock is held, and is given up meanwhile. */
static bool step_locked(struct gb_checkpoint_read *r) {
    struct block *b = &r->blocks[r->read % BLOCKS];
    struct gb_checkpoint_file head = {.size = 0};
    struct gb_error err = GB_ERROR_INIT;
    uint64_t end = r->end;
    bool open = r->open;

    if (r->closed || r->error.code != GB_OK || (open && (!r->started || b->here || r->at >= end)))
        return false;
    pthread_mutex_unlock(&r->lock);
    if (open)
        read_block(r, b, end, &err);
    else
        open_file(r, &head, &err);
    pthread_mutex_lock(&r->lock);
    r->error = err;
    if (open) {
        b->here = true;
        r->read++;
    } else {
        r->head = head;
        r->open = true;
    }
    wake_locked(r);
    return true;
}

static void run(struct gb_task *task) {
    struct gb_checkpoint_read *r = gb_container_of(task, struct gb_checkpoint_read, task);
    bool over;

    pthread_mutex_lock(&r->lock);
    while (step_locked(r))
        ;
    r->posted = false;
    over = r->closed;
    pthread_mutex_unlock(&r->lock);
    if (over)
        read_free(r);
}

/* --- for the caller ----------------------------------------------------------------------------------------------- */

int gb_checkpoint_read_open(struct gb_core *core, const struct gb_name *name, const char *file, struct gb_waker waker,
                            struct gb_checkpoint_read **ret, struct gb_error *err) {
    struct gb_checkpoint_view view;
    struct gb_checkpoint_read *r;

    if (gb_checkpoint_check_file(file, err) < 0 || gb_checkpoints_look(core, name, false, &view, err) < 0 ||
        gb_disks_start(core, err) < 0)
        return -1;
    r = calloc(1, sizeof(*r));
    if (!r)
        return gb_no_memory(err);
    gb_core_enter(core);
    r->core = core;
    r->name = *name;
    strncpy(r->file, file, sizeof(r->file) - 1);
    r->waker = waker;
    r->lane = gb_disks_lane(core);
    r->task.run = run;
    gb_mutex_init(&r->lock);
    pthread_mutex_lock(&r->lock);
    post_locked(r);
    pthread_mutex_unlock(&r->lock);
    *ret = r;
    return 0;
}

int gb_checkpoint_read_head(struct gb_checkpoint_read *r, struct gb_checkpoint_file *ret, struct gb_error *err) {
    int result;

    pthread_mutex_lock(&r->lock);
    result = r->error.code != GB_OK ? gb_error_move(err, &r->error) : r->open;
    *ret = r->head;
    pthread_mutex_unlock(&r->lock);
    return result;
}

void gb_checkpoint_read_start(struct gb_checkpoint_read *r, uint64_t offset, uint64_t length) {
    pthread_mutex_lock(&r->lock);
    r->at = offset - offset % GB_DISK_ALIGN;
    r->first = offset;
    r->end = offset + length;
    r->started = true;
    post_locked(r);
    pthread_mutex_unlock(&r->lock);
}

int gb_checkpoint_read_next(struct gb_checkpoint_read *r, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct block *b;
    int result = 0;

    pthread_mutex_lock(&r->lock);
    b = &r->blocks[r->sent % BLOCKS];
    if (b->here && r->error.code == GB_OK) {
        *ret_ptr = b->bytes + b->from;
        *ret_n = b->end - b->from;
        result = 1;
    } else if (r->error.code != GB_OK) {
        result = gb_error_move(err, &r->error);
    }
    pthread_mutex_unlock(&r->lock);
    return result;
}

void gb_checkpoint_read_sent(struct gb_checkpoint_read *r, size_t n) {
    struct block *b;

    pthread_mutex_lock(&r->lock);
    b = &r->blocks[r->sent % BLOCKS];
    b->from += n;
    if (b->from == b->end) {
        b->here = false;
        r->sent++;
        post_locked(r);
    }
    pthread_mutex_unlock(&r->lock);
}

void gb_checkpoint_read_free(struct gb_checkpoint_read *r) {
    bool posted;

    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->closed = true;
    posted = r->posted;
    pthread_mutex_unlock(&r->lock);
    if (!posted)
        read_free(r);
}
