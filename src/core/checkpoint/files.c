/* Files of checkpoints: checked, sent to clients, and put by clients. One block is sent or written while others are
 * read. The scrubber and handlers of checkpoints call this. */

#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/hash.h"
#include "base/thread.h"
#include "core/buffer/buffer.h"
#include "core/checkpoint/checkpoint.h"
#include "core/durable/stored.h"
#include "core/runtime/call.h"

/* --- check -------------------------------------------------------------------------------------------------------- */

#define STEPS 64

static int begin(struct gb_checkpoint_check *c, struct gb_error *err) {
    const struct gb_manifest_entry *entry = &c->manifest->entries[c->index];
    struct gb_checkpoint_sum came;
    char file[GB_MANIFEST_FILE_SIZE];
    uint64_t size;

    gb_manifest_file(c->index, file);
    if (!c->block && posix_memalign((void **)&c->block, GB_DISK_ALIGN, GB_STORED_BLOCK_BYTES) != 0) {
        c->block = NULL;
        return gb_no_memory(err);
    }
    if (gb_disk_checkpoint_open(c->disk, &c->name, file, &c->reader, &size, err) < 0)
        return -1;
    c->at = 0;
    c->crc = 0;
    if (size == entry->size && c->core && gb_checkpoints_came(c->core, &c->name, c->index, &came) &&
        came.size == size) {
        c->at = size;
        c->crc = came.crc32c;
    }
    if (size == entry->size)
        return 0;
    gb_disk_note_damage(c->disk);
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the file %s has %llu bytes and should have %llu", file,
                        (unsigned long long)size, (unsigned long long)entry->size);
}

static int read_some(struct gb_checkpoint_check *c, struct gb_error *err) {
    const struct gb_manifest_entry *entry = &c->manifest->entries[c->index];
    unsigned steps = c->steps > 0 ? c->steps : STEPS;
    unsigned i;

    for (i = 0; i < steps && c->at < entry->size; i++) {
        uint64_t left = entry->size - c->at;
        size_t n = left < GB_STORED_BLOCK_BYTES ? (size_t)left : GB_STORED_BLOCK_BYTES;

        if (gb_disk_read(c->reader, c->block, n, c->at, err) < 0)
            return -1;
        c->crc = gb_crc32c(c->crc, c->block, n);
        c->at += n;
    }
    if (c->at < entry->size)
        return 2;
    if (c->crc == entry->file_crc32c)
        return 1;
    gb_disk_note_damage(c->disk);
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the file of \"%s\" has the checksum %08x and should have %08x",
                        entry->buffer.s, c->crc, entry->file_crc32c);
}

int gb_checkpoint_check_step(struct gb_checkpoint_check *c, struct gb_error *err) {
    int r;

    if (c->index == c->manifest->count)
        return 0;
    r = !c->reader && begin(c, err) < 0 ? -1 : read_some(c, err);
    if (r == 2)
        return r;
    gb_disk_read_close(c->reader);
    c->reader = NULL;
    c->index++;
    return r;
}

void gb_checkpoint_check_done(struct gb_checkpoint_check *c) {
    gb_disk_read_close(c->reader);
    free(c->block);
    *c = (struct gb_checkpoint_check){.disk = NULL};
}

/* --- verify ------------------------------------------------------------------------------------------------------- */

/* Reading all files of a checkpoint. */

struct job {
    struct gb_task task;
    struct gb_core *core;
    struct gb_lane *lane;
    struct gb_checkpoint_view view;
    struct gb_checkpoint_verify_call *call;
    struct gb_manifest manifest;
    struct gb_checkpoint_check check;
    bool begun;
};

static void finish(struct job *job, const struct gb_error *error) {
    struct gb_core *core = job->core;
    struct gb_checkpoint_verify_call *call = job->call;

    gb_checkpoint_check_done(&job->check);
    gb_manifest_done(&job->manifest);
    free(job);
    gb_call_finish(&call->base, error);
    gb_core_leave(core);
}

static int verify_begin(struct job *job, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_checkpoint_manifest(job->core, &job->view.name, &job->manifest, &why) < 0) {
        if (gb_damage_is(&why) && gb_checkpoints_judge(job->core, &job->view, GB_CHECKPOINT_OF_MANIFEST, why.code))
            gb_checkpoints_tell_damage(job->core, &job->view, GB_CHECKPOINT_OF_MANIFEST, NULL, true);
        return gb_error_move(err, &why);
    }
    gb_checkpoints_judge(job->core, &job->view, GB_CHECKPOINT_OF_MANIFEST, GB_OK);
    job->begun = true;
    job->check = (struct gb_checkpoint_check){
        .disk = job->core->config.disk, .manifest = &job->manifest, .name = job->view.name};
    return 0;
}

/* An error that is no damage says nothing about the file, and ends the call. */
static int note(struct job *job, const struct gb_error *why, struct gb_error *err) {
    size_t index = job->check.index - 1;
    const struct gb_manifest_entry *entry = &job->manifest.entries[index];
    struct gb_checkpoint_verify_call *call = job->call;
    bool there;

    call->buffers++;
    call->bytes += entry->bytes;
    if (why->code != GB_OK && !gb_damage_is(why))
        return gb_error_move(err, why);
    there = gb_checkpoints_judge(job->core, &job->view, index, why->code);
    if (why->code == GB_OK)
        return 0;
    if (gb_checkpoints_still(job->core, &job->view, err) < 0)
        return -1;
    if (there)
        gb_checkpoints_tell_damage(job->core, &job->view, index, &entry->buffer, true);
    if (call->listed_count < GB_SWEEP_LISTED)
        call->files[call->listed_count] = index;
    gb_checkpoint_skip(call->listed, &call->listed_count, &call->damaged, &entry->buffer, why->code);
    return 0;
}

/* 0: all were read; 1: there is more; -1. */
static int step(struct job *job, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int r;

    if (!job->begun && verify_begin(job, err) < 0)
        return -1;
    r = gb_checkpoint_check_step(&job->check, &why);
    if (r == 0 || r == 2)
        return r > 0;
    return note(job, &why, err) < 0 ? -1 : 1;
}

static void run(struct gb_task *task) {
    struct job *job = gb_container_of(task, struct job, task);
    struct gb_error err = GB_ERROR_INIT;

    if (step(job, &err) > 0)
        gb_lane_post(job->lane, &job->task);
    else
        finish(job, &err);
}

void gb_checkpoint_verify(struct gb_core *core, const struct gb_name *name, struct gb_checkpoint_verify_call *call) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_checkpoint_view view;
    struct job *job = NULL;

    if (gb_checkpoints_look(core, name, true, &view, &err) == 0 && gb_disks_start(core, &err) == 0) {
        job = calloc(1, sizeof(*job));
        if (!job)
            gb_no_memory(&err);
    }
    if (!job) {
        gb_call_finish(&call->base, &err);
        return;
    }
    gb_core_enter(core);
    job->core = core;
    job->view = view;
    job->call = call;
    job->lane = gb_disks_lane(core);
    job->task.run = run;
    gb_lane_post(job->lane, &job->task);
}

/* --- read --------------------------------------------------------------------------------------------------------- */

/* Blocks in memory: one is sent while others are read. */
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

/* --- put ---------------------------------------------------------------------------------------------------------- */

#define BLOCKS 2

struct put_block {
    unsigned char *bytes; /* aligned; GB_STORED_BLOCK_BYTES */
    size_t filled;
    bool full; /* it is to be written */
};

struct gb_checkpoint_put {
    struct gb_task task;
    struct gb_core *core;
    struct gb_lane *lane;
    struct gb_name name;
    struct gb_name session; /* that it must be of */
    char file[FILE_SIZE];
    bool is_manifest;
    uint64_t size;
    uint64_t received;        /* the caller's */
    struct gb_disk_put *disk; /* the lane's, as all up to the lock */
    bool begun;
    bool synced;
    bool left; /* the table counts it no longer */
    struct gb_manifest manifest;
    struct gb_checkpoint_check check;
    pthread_mutex_t lock; /* for all below; also held while the waker runs */
    struct gb_waker waker;
    bool posted;
    bool closed;
    bool ended;              /* all bytes have come */
    struct gb_error refused; /* they are taken back for this reason */
    bool done;
    bool replaced;
    uint32_t crc;
    struct gb_error error;
    struct put_block blocks[BLOCKS];
    unsigned taken;   /* blocks that were filled */
    unsigned written; /* blocks that were written */
};

/* Before the client learns the end, so that its next request finds the checkpoint free. */
static void leave(struct gb_checkpoint_put *put, bool brought) {
    if (!put->left)
        gb_checkpoints_put_end(put->core, &put->name, put->is_manifest, brought);
    put->left = true;
}

static void put_free(struct gb_checkpoint_put *put) {
    struct gb_core *core = put->core;
    int i;

    gb_checkpoint_check_done(&put->check);
    gb_manifest_done(&put->manifest);
    gb_disk_put_discard(put->disk);
    leave(put, false);
    for (i = 0; i < BLOCKS; i++)
        free(put->blocks[i].bytes);
    pthread_mutex_destroy(&put->lock);
    free(put);
    gb_core_leave(core);
}

static void post_locked(struct gb_checkpoint_put *put) {
    if (put->posted)
        return;
    put->posted = true;
    gb_lane_post(put->lane, &put->task);
}

/* --- the manifest ------------------------------------------------------------------------------------------------- */

static int read_manifest(struct gb_checkpoint_put *put, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_disk_put_manifest(put->disk, &put->manifest, &why) < 0)
        return gb_error_move(err, &why);
    if (put->session.s[0] && !gb_name_equal(&put->session, &put->manifest.session))
        return gb_error_set(err, GB_ERR_FORBIDDEN,
                            "the manifest is of session \"%s\", and the token is good for \"%s\" alone",
                            put->manifest.session.s, put->session.s);
    put->check = (struct gb_checkpoint_check){
        .core = put->core, .disk = put->core->config.disk, .manifest = &put->manifest, .name = put->name};
    return 0;
}

static int incomplete(const struct gb_checkpoint_put *put, const struct gb_error *why, struct gb_error *err) {
    char file[GB_MANIFEST_FILE_SIZE];

    if (why->code != GB_ERR_CONTENT_LOST && why->code != GB_ERR_CONTENT_DAMAGED)
        return gb_error_move(err, why);
    gb_manifest_file(put->check.index - 1, file);
    if (why->code == GB_ERR_CONTENT_LOST)
        return gb_error_set(err, GB_ERR_CHECKPOINT_INCOMPLETE, "the file %s is not there: bring it, then the manifest",
                            file);
    return gb_error_set(err, GB_ERR_CHECKPOINT_INCOMPLETE, "the file %s is not what the manifest says: %.200s", file,
                        why->detail);
}

/* 1: the checkpoint is complete; 2: there is more to be read; -1. */
static int complete(struct gb_checkpoint_put *put, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_checkpoint_view view;
    int r;

    if (!put->check.disk && read_manifest(put, err) < 0)
        return -1;
    r = gb_checkpoint_check_step(&put->check, &why);
    if (r < 0)
        return incomplete(put, &why, err);
    if (r > 0)
        return 2;
    if (gb_checkpoints_check_count(put->core, &put->name, &put->manifest.session, err) < 0 ||
        gb_disk_checkpoint_index(put->core->config.disk, &put->name, &put->manifest, err) < 0 ||
        gb_disk_put_name(put->disk, &put->replaced, err) < 0)
        return -1;
    put->disk = NULL;
    if (gb_checkpoints_complete(put->core, &put->manifest, &put->name, &view, err) < 0)
        return -1;
    gb_checkpoints_tell(put->core, GB_NOTICE_CHECKPOINT_CREATED, &view, NULL);
    return 1;
}

/* --- put: on a thread of the disk --------------------------------------------------------------------------------- */

static int put_begin(struct gb_checkpoint_put *put, struct gb_error *err) {
    put->begun = true;
    return gb_disk_put_begin(put->core->config.disk, &put->name, &put->session, put->file, put->size, &put->disk, err);
}

/* What was computed while the bytes came spares the manifest another read of them. */
static int give_name(struct gb_checkpoint_put *put, struct gb_error *err) {
    const struct gb_checkpoint_sum sum = {.size = put->size, .crc32c = put->crc};
    unsigned naming = 0;
    size_t index;
    bool counts = gb_manifest_file_parse(put->file, &index);

    if (counts)
        naming = gb_checkpoints_naming(put->core, &put->name, index);
    if (gb_disk_put_name(put->disk, &put->replaced, err) < 0)
        return -1;
    put->disk = NULL;
    if (counts)
        gb_checkpoints_named(put->core, &put->name, index, naming, &sum);
    return 0;
}

/* As complete. */
static int conclude(struct gb_checkpoint_put *put, struct gb_error *err) {
    if (!put->synced && gb_disk_put_sync(put->disk, &put->crc, err) < 0)
        return -1;
    put->synced = true;
    if (put->is_manifest)
        return complete(put, err);
    return give_name(put, err) < 0 ? -1 : 1;
}

/* Does the next work, without the lock. block NULL: all blocks were written. */
static int work(struct gb_checkpoint_put *put, const struct put_block *put_block, struct gb_error *err) {
    if (!put->begun && put_begin(put, err) < 0)
        return -1;
    return put_block ? (gb_disk_put_write(put->disk, put_block->bytes, put_block->filled, err) < 0 ? -1 : 2)
                     : conclude(put, err);
}

/* Does the next work, if any. Returns false if there was none. The lock is held, and dropped meanwhile. */
static bool step_locked(struct gb_checkpoint_put *put) {
    struct put_block *b = &put->blocks[put->written % BLOCKS];
    struct gb_error err = put->refused;
    bool refused = err.code != GB_OK;
    bool full = b->full && !refused;
    int r;

    if (put->closed || put->done || put->error.code != GB_OK || (!full && !put->ended))
        return false;
    pthread_mutex_unlock(&put->lock);
    r = refused ? -1 : work(put, full ? b : NULL, &err);
    if (r < 0) {
        gb_disk_put_discard(put->disk);
        put->disk = NULL;
    }
    if (r != 2)
        leave(put, r == 1);
    pthread_mutex_lock(&put->lock);
    put->error = err;
    put->done = r == 1;
    if (full) {
        b->full = false;
        b->filled = 0;
        put->written++;
    }
    if (!put->closed && (r != 2 || full))
        put->waker.fn(put->waker.arg);
    return true;
}

static void put_run(struct gb_task *task) {
    struct gb_checkpoint_put *put = gb_container_of(task, struct gb_checkpoint_put, task);
    bool over;

    pthread_mutex_lock(&put->lock);
    put->posted = false;
    if (step_locked(put))
        post_locked(put); /* others have their turn first */
    over = put->closed && !put->posted;
    pthread_mutex_unlock(&put->lock);
    if (over)
        put_free(put);
}

/* --- put: for the caller ------------------------------------------------------------------------------------------ */

static struct gb_checkpoint_put *put_new(struct gb_core *core, const struct gb_checkpoint_put_params *params) {
    struct gb_checkpoint_put *put = calloc(1, sizeof(*put));
    int i;

    if (!put)
        return NULL;
    for (i = 0; i < BLOCKS; i++) {
        if (posix_memalign((void **)&put->blocks[i].bytes, GB_DISK_ALIGN, GB_STORED_BLOCK_BYTES) != 0)
            put->blocks[i].bytes = NULL;
    }
    if (!put->blocks[0].bytes || !put->blocks[1].bytes) {
        free(put->blocks[0].bytes);
        free(put->blocks[1].bytes);
        free(put);
        return NULL;
    }
    put->core = core;
    put->name = params->name;
    put->session = params->session;
    strncpy(put->file, params->file, sizeof(put->file) - 1);
    put->is_manifest = strcmp(params->file, GB_CHECKPOINT_MANIFEST) == 0;
    put->size = params->size;
    put->waker = params->waker;
    put->task.run = put_run;
    gb_mutex_init(&put->lock);
    return put;
}

int gb_checkpoint_put_begin(struct gb_core *core, const struct gb_checkpoint_put_params *params,
                            struct gb_checkpoint_put **ret, struct gb_error *err) {
    struct gb_checkpoint_put *put;
    bool manifest = strcmp(params->file, GB_CHECKPOINT_MANIFEST) == 0;

    if (gb_checkpoint_check_file(params->file, err) < 0 ||
        (core->config.disk && gb_disk_check_room(core->config.disk, params->size, err) < 0) ||
        gb_checkpoints_put_begin(core, params, manifest, err) < 0)
        return -1;
    put = put_new(core, params);
    if (!put) {
        gb_checkpoints_put_end(core, &params->name, manifest, true); /* the sweep removes it */
        return gb_no_memory(err);
    }
    gb_core_enter(core);
    put->lane = gb_disks_lane(core);
    *ret = put;
    return 0;
}

int gb_checkpoint_put_room(struct gb_checkpoint_put *put, void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    uint64_t left = put->size - put->received;
    struct put_block *b;
    int r = 0;

    pthread_mutex_lock(&put->lock);
    b = &put->blocks[put->taken % BLOCKS];
    if (put->error.code != GB_OK) {
        r = gb_error_move(err, &put->error);
    } else if (!b->full) {
        *ret_ptr = b->bytes + b->filled;
        *ret_n = GB_STORED_BLOCK_BYTES - b->filled;
        if (*ret_n > left)
            *ret_n = (size_t)left;
        r = 1;
    }
    pthread_mutex_unlock(&put->lock);
    return r;
}

int gb_checkpoint_put_fill(struct gb_checkpoint_put *put, size_t n, struct gb_error *err) {
    struct put_block *b;
    int r = 0;

    pthread_mutex_lock(&put->lock);
    b = &put->blocks[put->taken % BLOCKS];
    put->received += n;
    b->filled += n;
    if (b->filled == GB_STORED_BLOCK_BYTES || put->received == put->size) {
        b->full = true;
        put->taken++;
        post_locked(put);
    }
    if (put->error.code != GB_OK)
        r = gb_error_move(err, &put->error);
    pthread_mutex_unlock(&put->lock);
    return r;
}

void gb_checkpoint_put_end(struct gb_checkpoint_put *put) {
    pthread_mutex_lock(&put->lock);
    if (!put->ended) {
        put->ended = true;
        post_locked(put);
    }
    pthread_mutex_unlock(&put->lock);
}

void gb_checkpoint_put_refuse(struct gb_checkpoint_put *put, const struct gb_error *why) {
    pthread_mutex_lock(&put->lock);
    put->ended = true;
    put->refused = *why;
    post_locked(put);
    pthread_mutex_unlock(&put->lock);
}

int gb_checkpoint_put_result(struct gb_checkpoint_put *put, uint32_t *ret_crc32c, bool *ret_replaced,
                             struct gb_error *err) {
    int r;

    pthread_mutex_lock(&put->lock);
    r = put->error.code != GB_OK ? gb_error_move(err, &put->error) : put->done;
    *ret_crc32c = r > 0 ? put->crc : 0; /* both are the lane's until then */
    *ret_replaced = r > 0 && put->replaced;
    pthread_mutex_unlock(&put->lock);
    return r;
}

/* The file may have to be removed, which a thread of the disk does. */
void gb_checkpoint_put_free(struct gb_checkpoint_put *put) {
    if (!put)
        return;
    pthread_mutex_lock(&put->lock);
    put->closed = true;
    post_locked(put);
    pthread_mutex_unlock(&put->lock);
}
