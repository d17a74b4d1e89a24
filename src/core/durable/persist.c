/* Bytes of memory to a file, or to a block of memory for the database. A job reads the memory as a download does and
 * writes on one thread of the disk. */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/hash.h"
#include "core/download/download.h"
#include "core/durable/durable.h"
#include "core/durable/persist_host.h"
#include "core/stored/disks.h"

/* Written at once of bytes that are in memory. */
#define PIECE_BYTES (4u << 20)

struct job {
    struct gb_task task;
    struct gb_core *core;
    struct gb_persist *persist; /* NULL: the job is over, and this is its last run */
    struct gb_lane *lane;
    atomic_bool posted;
    struct gb_download *source;
    struct gb_disk_writer *file; /* NULL: the bytes go to persist->data */
    struct gb_disk_name name;
    bool begun;
    uint64_t written;
    uint32_t *blocks;
};

static void run(struct gb_task *task);

/* Copies arrived. [any thread] */
static void wake(void *arg) {
    struct job *job = arg;

    if (!atomic_exchange(&job->posted, true))
        gb_lane_post(job->lane, &job->task);
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

static struct gb_disk_name new_name(struct gb_core *core, const struct gb_buffer_rec *rec) {
    return (struct gb_disk_name){rec->id, rec->generation, atomic_fetch_add(&core->file_tags, 1)};
}

static int open_source(struct job *job, struct gb_error *err) {
    struct gb_persist *p = job->persist;
    struct gb_content *c = p->content;

    p->content = NULL;
    job->source = gb_download_of(p->session, c ? c->alloc_stream : p->session->standard, c, p->rec->kind, p->rec->bytes,
                                 (struct gb_waker){wake, job});
    if (!job->source) {
        gb_content_drop_later(c);
        return gb_no_memory(err);
    }
    job->source->silent = true;
    gb_core_transfer_silence(&job->source->t);
    return gb_download_start_view(job->source, NULL, NULL, 0, err);
}

static int open_file(struct job *job, struct gb_error *err) {
    struct gb_persist *p = job->persist;
    job->blocks = calloc(gb_stored_block_count(p->rec->bytes) + 1, sizeof(*job->blocks));
    if (!job->blocks)
        return gb_no_memory(err);
    if (p->spills)
        return gb_disk_create_unnamed(job->core->config.disk, p->rec->id, p->rec->bytes, &job->file, err);
    if (p->rec->bytes > GB_STORED_INLINE_BYTES)
        return gb_disk_create(job->core->config.disk, &job->name, p->rec->bytes, &job->file, err);
    p->data = malloc((size_t)p->rec->bytes + 1);
    return p->data ? 0 : gb_no_memory(err);
}

/* The file may be there already, with all bytes. */
static int begin(struct job *job, struct gb_error *err) {
    struct gb_persist *p = job->persist;

    job->begun = true;
    job->name = new_name(job->core, p->rec);
    job->file = p->tee ? gb_tee_take(p->tee) : NULL;
    if (!job->file && p->block)
        return open_file(job, err);
    if (!job->file)
        return open_source(job, err) < 0 ? -1 : open_file(job, err);
    gb_disk_name_as(job->file, &job->name);
    job->written = p->rec->bytes;
    gb_content_drop_later(p->content);
    p->content = NULL;
    job->blocks = calloc(gb_stored_block_count(p->rec->bytes) + 1, sizeof(*job->blocks));
    return job->blocks ? 0 : gb_no_memory(err);
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

static int take(struct job *job, const void *bytes, size_t n, struct gb_error *err) {
    if (job->file)
        return gb_disk_write(job->file, bytes, n, err);
    memcpy((char *)job->persist->data + job->written, bytes, n);
    return 0;
}

/* 1; 0: wake comes; -1. */
static int next(struct job *job, const void **ret_ptr, size_t *ret_n, struct gb_error *err) {
    const struct gb_host_block *block = job->persist->block;
    uint64_t left = job->persist->rec->bytes - job->written;

    if (!block)
        return gb_download_next(job->source, ret_ptr, ret_n, err);
    *ret_ptr = (const char *)block->ptr + job->written;
    *ret_n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    return 1;
}

/* 1: all bytes are written; 0: wake comes; -1. */
static int move(struct job *job, struct gb_error *err) {
    while (job->written < job->persist->rec->bytes) {
        const void *bytes;
        size_t n;
        int r = next(job, &bytes, &n, err);

        if (r <= 0)
            return r;
        if (take(job, bytes, n, err) < 0)
            return -1;
        if (job->source)
            gb_download_sent(job->source, n);
        job->written += n;
    }
    return 1;
}

/* What came with the bytes must be what the memory has. */
static int check_memory(const struct gb_buffer_rec *rec, uint32_t crc32c, struct gb_error *err) {
    if (!rec->has_crc32c || rec->crc32c == crc32c || rec->mapped_for_writing || rec->tainted || rec->adopted)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL,
                        "the memory of \"%s\" has bytes of the checksum %08x and was given bytes of %08x: upload it "
                        "again",
                        rec->name.s, crc32c, rec->crc32c);
}

static int complete_file(struct job *job, const struct gb_disk_meta *meta, uint32_t *ret_crc32c,
                         struct gb_disk_name *ret_spilled, struct gb_error *err) {
    if (job->persist->spills)
        return gb_disk_complete_spilled(job->file, meta, ret_crc32c, job->blocks, ret_spilled, err);
    return gb_disk_complete(job->file, meta, ret_crc32c, job->blocks, err);
}

static struct gb_stored_rec stored_rec(const struct gb_buffer_rec *rec, const struct gb_disk_name *name,
                                       const uint32_t *blocks) {
    return (struct gb_stored_rec){.buffer_id = rec->id,
                                  .generation = rec->generation,
                                  .run = rec->run,
                                  .file_generation = name->generation,
                                  .file_tag = name->run,
                                  .bytes = rec->bytes,
                                  .dtype = rec->dtype,
                                  .shape = rec->shape,
                                  .blocks = blocks};
}

static int complete(struct job *job, struct gb_error *err) {
    struct gb_persist *p = job->persist;
    const struct gb_disk_meta meta = {gb_session_name(p->session)->s, p->rec};
    struct gb_stored_rec rec = stored_rec(p->rec, &job->name, job->blocks);
    struct gb_disk_name spilled = {0};

    if (job->file) {
        if (complete_file(job, &meta, &rec.crc32c, &spilled, err) < 0)
            return -1;
        job->file = NULL;
    } else {
        rec.crc32c = job->blocks[0] = gb_crc32c(0, p->data, (size_t)p->rec->bytes);
    }
    p->stored = gb_stored_new(job->core, &rec);
    if (!p->stored) {
        if (!p->data)
            gb_disk_remove(job->core->config.disk, p->spills ? &spilled : &job->name);
        return gb_no_memory(err);
    }
    if (p->spills) {
        p->stored->spilled = true;
        p->stored->name = spilled;
    }
    return check_memory(p->rec, rec.crc32c, err);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void free_job(struct job *job) {
    struct gb_core *core = job->core;

    free(job->blocks);
    free(job);
    gb_core_leave(core);
}

/* A wake may have posted the job once more: then that run frees it. */
static void finish(struct job *job, const struct gb_error *error) {
    struct gb_persist *p = job->persist;

    gb_disk_discard(job->file);
    job->file = NULL;
    gb_download_free(job->source, error == NULL);
    gb_host_block_unref(p->block);
    p->block = NULL;
    if (error) {
        gb_stored_condemn(p->stored);
        gb_stored_unref(p->stored);
        p->stored = NULL;
        p->error = *error;
    }
    job->persist = NULL;
    if (!atomic_load(&job->posted))
        free_job(job);
    p->done(p);
}

static void run(struct gb_task *task) {
    struct job *job = gb_container_of(task, struct job, task);
    struct gb_error err = GB_ERROR_INIT;
    int r = 0;

    atomic_store(&job->posted, false);
    if (!job->persist) {
        free_job(job);
        return;
    }
    if (!job->begun)
        r = begin(job, &err);
    if (r == 0)
        r = move(job, &err);
    if (r > 0)
        r = complete(job, &err) < 0 ? -1 : 1;
    if (r != 0)
        finish(job, r < 0 ? &err : NULL);
}

/* The bytes are here already, and the database takes them: no thread is needed. */
static void persist_kept(struct gb_core *core, struct gb_persist *p) {
    const struct gb_disk_name name = new_name(core, p->rec);
    uint32_t crc32c = gb_crc32c(0, p->data, (size_t)p->rec->bytes);
    struct gb_stored_rec rec = stored_rec(p->rec, &name, &crc32c);

    rec.crc32c = crc32c;
    gb_content_drop_later(p->content);
    p->content = NULL;
    p->stored = gb_stored_new(core, &rec);
    if (!p->stored)
        gb_no_memory(&p->error);
    p->done(p);
}

static int start(struct gb_core *core, struct gb_persist *persist, struct gb_error *err) {
    struct job *job;

    if (gb_disks_start(core, err) < 0)
        return -1;
    if (persist->spills == GB_SPILL_HOST)
        return gb_persist_to_host(core, persist, err);
    job = calloc(1, sizeof(*job));
    if (!job)
        return gb_no_memory(err);
    gb_core_enter(core);
    job->core = core;
    job->persist = persist;
    job->lane = gb_disks_lane(core);
    job->task.run = run;
    wake(job);
    return 0;
}

void gb_durable_persist(struct gb_core *core, struct gb_persist *persist) {
    struct gb_error err = GB_ERROR_INIT;

    if (persist->data) {
        persist_kept(core, persist);
        return;
    }
    if (start(core, persist, &err) == 0)
        return;
    gb_content_drop_later(persist->content);
    gb_host_block_unref(persist->block);
    persist->content = NULL;
    persist->block = NULL;
    persist->error = err;
    persist->done(persist);
}
