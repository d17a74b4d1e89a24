/* A file of a checkpoint on its way to a client: one block is sent while others are read. */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/hash.h"
#include "base/thread.h"
#include "core/checkpoint/checkpoint.h"
#include "core/stored/disks.h"

/* Blocks in memory: one that is sent, others that are read side by side. */
#define AHEAD 4
#define FILE_SIZE 64

enum state { EMPTY, READING, HERE };

struct block {
    struct gb_task task;
    struct gb_checkpoint_read *read;
    unsigned char *bytes;          /* aligned; GB_STORED_BLOCK_BYTES; made with the first read */
    struct gb_disk_reader *reader; /* its own, of the same file */
    uint64_t at;                   /* where it begins: a multiple of GB_DISK_ALIGN */
    size_t from;                   /* what is sent of it */
    size_t end;
    enum state state; /* the lock, as error */
    struct gb_error error;
};

struct gb_checkpoint_read {
    struct gb_task task; /* opens the file */
    struct gb_core *core;
    struct gb_name name;
    char file[FILE_SIZE];
    struct gb_disk_reader *reader; /* the task's, as size; const once the file is open */
    uint64_t size;
    uint64_t first;       /* const once it has started, as end */
    uint64_t end;         /* behind the last byte that is sent */
    pthread_mutex_t lock; /* for all below; also held while the waker runs */
    struct gb_waker waker;
    unsigned busy; /* tasks that are under way */
    bool closed;
    bool open;
    struct gb_checkpoint_file head;
    struct gb_error error; /* of opening */
    struct block blocks[AHEAD];
    uint64_t at;    /* where the next block begins */
    unsigned asked; /* blocks whose reads were begun */
    unsigned sent;  /* blocks that were sent */
};

static void read_free(struct gb_checkpoint_read *r) {
    struct gb_core *core = r->core;
    int i;

    for (i = 0; i < AHEAD; i++) {
        gb_disk_read_close(r->blocks[i].reader);
        free(r->blocks[i].bytes);
    }
    gb_disk_read_close(r->reader);
    pthread_mutex_destroy(&r->lock);
    free(r);
    gb_core_leave(core);
}

/* The end of a task; the lock is given up. wake: the caller may wait for it. */
static void leave_unlock(struct gb_checkpoint_read *r, bool wake) {
    bool over;

    if (wake && !r->closed)
        r->waker.fn(r->waker.arg);
    over = --r->busy == 0 && r->closed;
    pthread_mutex_unlock(&r->lock);
    if (over)
        read_free(r);
}

static int make_block(struct block *b, struct gb_error *err) {
    if (b->bytes || posix_memalign((void **)&b->bytes, GB_DISK_ALIGN, GB_STORED_BLOCK_BYTES) == 0)
        return 0;
    b->bytes = NULL;
    return gb_no_memory(err);
}

/* --- on a thread of the disk -------------------------------------------------------------------------------------- */

/* Manifest and index are small: their checksum is found by reading them. */
static int sum_small(struct gb_checkpoint_read *r, struct gb_checkpoint_file *head, struct gb_error *err) {
    unsigned char *block;
    uint64_t at;

    if (make_block(&r->blocks[0], err) < 0)
        return -1;
    block = r->blocks[0].bytes;
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

    if (gb_disk_checkpoint_open(r->core->config.disk, &r->name, r->file, &r->reader, &r->size, &why) < 0)
        return is_known(r) ? gb_error_move(err, &why) : absent(r, &why, err);
    head->size = r->size;
    return sum(r, head, err);
}

static void run_open(struct gb_task *task) {
    struct gb_checkpoint_read *r = gb_container_of(task, struct gb_checkpoint_read, task);
    struct gb_checkpoint_file head = {.size = 0};
    struct gb_error err = GB_ERROR_INIT;

    open_file(r, &head, &err);
    pthread_mutex_lock(&r->lock);
    r->error = err;
    r->head = head;
    r->open = true;
    leave_unlock(r, true);
}

/* All blocks are of the file that was opened, also if another one has its name by now. */
static int read_block(struct block *b, struct gb_error *err) {
    struct gb_checkpoint_read *r = b->read;
    uint64_t left = r->size - b->at;
    size_t n = left < GB_STORED_BLOCK_BYTES ? (size_t)left : GB_STORED_BLOCK_BYTES;

    if (make_block(b, err) < 0 || (!b->reader && gb_disk_read_share(r->reader, &b->reader, err) < 0) ||
        gb_disk_read(b->reader, b->bytes, n, b->at, err) < 0)
        return -1;
    b->from = r->first > b->at ? (size_t)(r->first - b->at) : 0;
    b->end = r->end < b->at + n ? (size_t)(r->end - b->at) : n;
    return 0;
}

static void run_read(struct gb_task *task) {
    struct block *b = gb_container_of(task, struct block, task);
    struct gb_checkpoint_read *r = b->read;
    struct gb_error err = GB_ERROR_INIT;

    read_block(b, &err);
    pthread_mutex_lock(&r->lock);
    b->error = err;
    b->state = HERE;
    leave_unlock(r, b == &r->blocks[r->sent % AHEAD]);
}

/* --- for the caller ----------------------------------------------------------------------------------------------- */

int gb_checkpoint_read_open(struct gb_core *core, const struct gb_name *name, const char *file, struct gb_waker waker,
                            struct gb_checkpoint_read **ret, struct gb_error *err) {
    struct gb_checkpoint_view view;
    struct gb_checkpoint_read *r;
    int i;

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
    r->task.run = run_open;
    r->busy = 1;
    for (i = 0; i < AHEAD; i++) {
        r->blocks[i].read = r;
        r->blocks[i].task.run = run_read;
    }
    gb_mutex_init(&r->lock);
    gb_disks_post(core, &r->task);
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

/* Begins as many reads as there are blocks to take them. */
static void read_ahead_locked(struct gb_checkpoint_read *r) {
    while (r->at < r->end && r->blocks[r->asked % AHEAD].state == EMPTY) {
        struct block *b = &r->blocks[r->asked % AHEAD];

        b->at = r->at;
        b->state = READING;
        r->at += GB_STORED_BLOCK_BYTES;
        r->asked++;
        r->busy++;
        gb_disks_post(r->core, &b->task);
    }
}

void gb_checkpoint_read_start(struct gb_checkpoint_read *r, uint64_t offset, uint64_t length) {
    pthread_mutex_lock(&r->lock);
    r->at = offset - offset % GB_DISK_ALIGN;
    r->first = offset;
    r->end = offset + length;
    read_ahead_locked(r);
    pthread_mutex_unlock(&r->lock);
}

int gb_checkpoint_read_next(struct gb_checkpoint_read *r, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    struct block *b;
    int result = 0;

    pthread_mutex_lock(&r->lock);
    b = &r->blocks[r->sent % AHEAD];
    if (r->error.code != GB_OK) {
        result = gb_error_move(err, &r->error);
    } else if (b->state == HERE && b->error.code != GB_OK) {
        result = gb_error_move(err, &b->error);
    } else if (b->state == HERE) {
        *ret_ptr = b->bytes + b->from;
        *ret_n = b->end - b->from;
        result = 1;
    }
    pthread_mutex_unlock(&r->lock);
    return result;
}

void gb_checkpoint_read_sent(struct gb_checkpoint_read *r, size_t n) {
    struct block *b;

    pthread_mutex_lock(&r->lock);
    b = &r->blocks[r->sent % AHEAD];
    b->from += n;
    if (b->from == b->end) {
        b->state = EMPTY;
        r->sent++;
        read_ahead_locked(r);
    }
    pthread_mutex_unlock(&r->lock);
}

void gb_checkpoint_read_free(struct gb_checkpoint_read *r) {
    bool over;

    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->closed = true;
    over = r->busy == 0;
    pthread_mutex_unlock(&r->lock);
    if (over)
        read_free(r);
}
