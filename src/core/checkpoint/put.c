/* A file of a checkpoint on its way from a client: one block is written while the next one comes. */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/thread.h"
#include "core/checkpoint/check.h"
#include "core/stored/disks.h"

#define BLOCKS 2
#define FILE_SIZE 64

struct block {
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
    struct block blocks[BLOCKS];
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

/* --- on a thread of the disk -------------------------------------------------------------------------------------- */

static int begin(struct gb_checkpoint_put *put, struct gb_error *err) {
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

/* What is to be done next, without the lock; as complete. block NULL: all were written. */
static int work(struct gb_checkpoint_put *put, const struct block *block, struct gb_error *err) {
    if (!put->begun && begin(put, err) < 0)
        return -1;
    return block ? (gb_disk_put_write(put->disk, block->bytes, block->filled, err) < 0 ? -1 : 2) : conclude(put, err);
}

/* False: nothing is to be done just now. The lock is held, and is given up meanwhile. */
static bool step_locked(struct gb_checkpoint_put *put) {
    struct block *b = &put->blocks[put->written % BLOCKS];
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

static void run(struct gb_task *task) {
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

/* --- for the caller ----------------------------------------------------------------------------------------------- */

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
    put->task.run = run;
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
    struct block *b;
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
    struct block *b;
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
