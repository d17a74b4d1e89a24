/* Memory to disk: core->persist, which transactions call between validation and commit, and changes that store buffers
 * that are behind, on request or within the lag. Passes keep a few stores under way. The housekeeper and handlers call
 * this. */
#include "core/durable/persist.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/hash.h"
#include "base/thread.h"
#include "core/buffer/batch.h"
#include "core/buffer/buffer.h"
#include "core/buffer/transaction.h"
#include "core/durable/evict.h"
#include "core/durable/stored.h"
#include "core/memory/alloc.h"
#include "core/memory/pool.h"
#include "core/public/durable.h"
#include "core/runtime/runtime.h"
#include "core/session/session.h"
#include "core/transfer/download.h"

static void buffer_store_in(struct gb_session *session, const struct gb_name *name, struct gb_buffer_call *call);

/* --- persist host ------------------------------------------------------------------------------------------------- */

/* Bytes of a device to host memory: one copy, in the order of the stream that their memory is freed in. */

struct host_job {
    struct gb_task task;
    struct gb_core *core;
    struct gb_persist *persist;
    struct gb_host_block *block;
    struct gb_ev *copied;
    struct gb_error error;
};

/* The copy has ended, so that the block may be given back. Runs on a thread of the disk. */
static void host_finish(struct gb_task *task) {
    struct host_job *host_job = gb_container_of(task, struct host_job, task);
    struct gb_persist *p = host_job->persist;
    struct gb_core *core = host_job->core;
    struct gb_stored_rec rec = {.buffer_id = p->rec->id,
                                .generation = p->rec->generation,
                                .run = p->rec->run,
                                .bytes = p->rec->bytes,
                                .dtype = p->rec->dtype,
                                .shape = p->rec->shape,
                                .crc32c = p->rec->crc32c};

    if (host_job->copied)
        gb_event_pool_give(&p->content->device->events, host_job->copied);
    if (host_job->error.code == GB_OK && !(p->stored = gb_stored_new_in_host(core, &rec, host_job->block)))
        gb_no_memory(&host_job->error);
    if (host_job->error.code != GB_OK) {
        gb_host_block_unref(host_job->block);
        p->error = host_job->error;
    }
    gb_content_drop(p->content, NULL, NULL);
    p->content = NULL;
    free(host_job);
    p->done(p);
    gb_core_leave(core);
}

static void end(struct host_job *host_job) {
    host_job->task.run = host_finish;
    gb_disks_post(host_job->core, &host_job->task);
}

static void copied(void *arg, const struct gb_error *error) {
    struct host_job *host_job = arg;

    gb_core_report_error(host_job->core, error);
    if (error)
        host_job->error = *error;
    end(host_job);
}

/* Whatever fails behind the copy, the block must not be given back before the copy has ended. */
static int copy(struct host_job *host_job, struct gb_stream *stream, struct gb_error *err) {
    struct gb_backend *be = host_job->core->backend;
    struct gb_content *c = host_job->persist->content;
    const struct gb_location to = {GB_KIND_PINNED, c->device->index, host_job->block->ptr};
    const struct gb_location from = gb_content_location(c, 0);
    enum gb_copy_way way;

    host_job->copied = gb_event_pool_take(&c->device->events, err);
    if (!host_job->copied || gb_content_materialize(c, err) < 0)
        return -1;
    if (c->ready && gb_stream_wait(be, stream, c->ready->event, err) < 0)
        return -1;
    if (gb_mem_move(be, &to, &from, c->bytes, stream, &way, err) == 0 &&
        gb_event_record(be, host_job->copied->event, stream, err) == 0 &&
        gb_watch(be, host_job->copied->event, copied, host_job, err) == 0)
        return 0;
    gb_stream_sync(be, stream, NULL);
    return -1;
}

/* On the device's lane. */
static void queue(struct gb_task *task) {
    struct host_job *host_job = gb_container_of(task, struct host_job, task);
    struct gb_content *c = host_job->persist->content;
    struct gb_stream *stream = gb_core_stream_part(c->alloc_stream, c->device->index);

    /* A part that is made for a stream that has drained would stay for ever. */
    if ((stream || gb_core_stream_part_make(c->session->standard, c->device->index, &stream, &host_job->error) == 0) &&
        copy(host_job, stream, &host_job->error) == 0)
        return;
    gb_core_report_error(host_job->core, &host_job->error);
    end(host_job);
}

/* On a thread of the disk, as page-locking takes long. */
static void get_block(struct gb_task *task) {
    struct host_job *host_job = gb_container_of(task, struct host_job, task);
    struct gb_core *core = host_job->core;
    struct gb_persist *p = host_job->persist;

    if (gb_host_block_new(core, p->content->device->index, p->rec->bytes, &host_job->block, &host_job->error) == 0) {
        host_job->task.run = queue;
        gb_lane_post(&p->content->device->lane, &host_job->task);
    } else if (p->strictly) {
        host_finish(task);
    } else {
        free(host_job);
        p->spills = GB_SPILL_DISK;
        gb_durable_persist(core, p);
        gb_core_leave(core);
    }
}

/* As gb_durable_persist, for a content of a device, after gb_disks_start. Returns 0, or -1: done will not run. */
static int persist_to_host(struct gb_core *core, struct gb_persist *persist, struct gb_error *err) {
    struct host_job *host_job = calloc(1, sizeof(*host_job));

    if (!host_job)
        return gb_no_memory(err);
    gb_core_enter(core);
    host_job->core = core;
    host_job->persist = persist;
    host_job->task.run = get_block;
    gb_disks_post(core, &host_job->task);
    return 0;
}

/* --- persist ------------------------------------------------------------------------------------------------------ */

/* Bytes of memory to a file, or to a block of memory for the database. A job reads the memory as a download does and
 * writes on one thread of the disk. */

/* Written at once of bytes that are in memory. */
#define PIECE_BYTES (4u << 20)

struct job {
    struct gb_task task;
    struct gb_core *core;
    struct gb_persist *persist; /* NULL: the job has ended, and this is its last run */
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

/* The checksum that came with the bytes must be that of the memory. */
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
        return persist_to_host(core, persist, err);
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

/* --- behind ------------------------------------------------------------------------------------------------------- */

/* A pass stores all buffers that have been behind for the lag. It keeps few stores under way, because all share the
 * disk. Each buffer has one turn in a pass, so that buffers that cannot be stored hold up no others. Bytes that came in
 * one change are stored in one (buffer.h), at the turn of its first buffer. */

#define AT_ONCE 64

struct gb_behind {
    struct gb_task task;
    struct gb_core *core;
    struct gb_lane *lane; /* one for ever: the task is never in two places */
    atomic_bool posted;
    atomic_bool passing; /* from then on the three below are the task's, before the tick's */
    int64_t session_id;
    int64_t buffer_id;
    uint64_t lag_ns;
    atomic_uint storing;
};

/* One store under way. */
struct item {
    struct gb_behind *behind;
    struct gb_session *session; /* a reference */
    struct gb_name name;
};

struct gb_behind *gb_behind_new(struct gb_core *core) {
    struct gb_behind *behind = calloc(1, sizeof(*behind));

    if (behind)
        behind->core = core;
    return behind;
}

void gb_behind_free(struct gb_behind *behind) {
    free(behind);
}

static void behind_run(struct gb_task *task);

static void post(struct gb_behind *behind) {
    if (atomic_exchange(&behind->posted, true))
        return;
    gb_core_enter(behind->core);
    behind->task.run = behind_run;
    gb_lane_post(behind->lane, &behind->task);
}

/* --- one buffer --------------------------------------------------------------------------------------------------- */

/* Gives back the reference to the session. */
static void over(struct gb_session *s, const struct gb_name *name) {
    struct gb_buffer *b;

    pthread_mutex_lock(&s->lock);
    b = gb_map_get(&s->buffers, name->s);
    if (b)
        b->storing = false;
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
}

static void ended(void *arg) {
    struct item *item = arg;
    struct gb_behind *behind = item->behind;
    struct gb_core *core = behind->core;

    over(item->session, &item->name);
    free(item);
    atomic_fetch_sub(&behind->storing, 1);
    if (atomic_load(&behind->passing))
        post(behind);
    gb_core_leave(core);
}

/* The session's lock is held. Its buffers that come after the id. */
static bool find_locked(struct gb_behind *behind, struct gb_session *s, struct gb_name *ret) {
    uint64_t now_ns = gb_clock_ns();
    struct gb_buffer *b;

    while (s->behind > 0 && (b = gb_idlist_after(&s->buffers_by_id, behind->buffer_id, &behind->buffer_id))) {
        if (!b->live || b->deleting || !b->behind || b->storing || now_ns - b->behind_ns < behind->lag_ns ||
            gb_together_leader(b) != b)
            continue;
        b->storing = true;
        strcpy(ret->s, b->name);
        return true;
    }
    return false;
}

/* The next buffer of the pass, with a reference to its session; NULL at the end. */
static struct gb_session *behind_next(struct gb_behind *behind, struct gb_name *ret) {
    struct gb_session *s;
    bool found;

    while ((s = gb_session_after(behind->core, behind->session_id - 1))) {
        if (s->id != behind->session_id)
            behind->buffer_id = 0;
        behind->session_id = s->id;
        pthread_mutex_lock(&s->lock);
        found = find_locked(behind, s, ret);
        pthread_mutex_unlock(&s->lock);
        if (found)
            return s;
        gb_session_unref(s);
        behind->session_id++;
        behind->buffer_id = 0;
    }
    return NULL;
}

/* Takes over the reference to the session. If memory is exhausted, a later pass stores it. */
static void store(struct gb_behind *behind, struct gb_session *s, const struct gb_name *name) {
    struct item *item = calloc(1, sizeof(*item));
    struct gb_buffer_call *call;

    if (!item) {
        over(s, name);
        return;
    }
    atomic_fetch_add(&behind->storing, 1);
    gb_core_enter(behind->core);
    *item = (struct item){.behind = behind, .session = s, .name = *name};
    call = gb_call_new(sizeof(*call), ended, item);
    if (!call) {
        ended(item);
        return;
    }
    buffer_store_in(s, name, call);
    gb_call_unref(&call->base);
}

/* --- a pass ------------------------------------------------------------------------------------------------------- */

static void behind_run(struct gb_task *task) {
    struct gb_behind *behind = gb_container_of(task, struct gb_behind, task);
    struct gb_core *core = behind->core;

    atomic_store(&behind->posted, false);
    while (atomic_load(&behind->passing) && atomic_load(&behind->storing) < AT_ONCE) {
        struct gb_name name;
        struct gb_session *s = behind_next(behind, &name);

        if (s)
            store(behind, s, &name);
        else
            atomic_store(&behind->passing, false);
    }
    gb_core_leave(core);
}

static bool takes_bytes(struct gb_core *core) {
    struct gb_error unused = GB_ERROR_INIT;
    enum gb_disk_state state = gb_disk_state_of(core->config.disk, &unused);

    return state != GB_DISK_FAILED && state != GB_DISK_UNAVAILABLE;
}

/* Once a second: begins a pass, unless one runs. [never blocks] */
static void behind_tick(struct gb_core *core) {
    struct gb_behind *behind = core->behind;
    uint64_t lag_ms = core->config.durable_lag_ms > 0 ? core->config.durable_lag_ms : 1000;

    if (atomic_load(&core->behind_buffers) == 0 || atomic_load(&behind->passing) || !takes_bytes(core))
        return;
    if (!behind->lane)
        behind->lane = gb_core_compute_lane(core);
    behind->session_id = 1;
    behind->buffer_id = 0;
    behind->lag_ns = lag_ms * GB_NS_PER_MS;
    atomic_store(&behind->passing, true);
    post(behind);
}

/* --- the end of the process --------------------------------------------------------------------------------------- */

/* Stores that are waited for. */
struct flush {
    pthread_mutex_t lock;
    pthread_cond_t none;
    size_t running;
};

static void flushed(void *arg) {
    struct flush *flush = arg;

    pthread_mutex_lock(&flush->lock);
    if (--flush->running == 0)
        pthread_cond_signal(&flush->none);
    pthread_mutex_unlock(&flush->lock);
}

static void flush_one(struct gb_session *s, const struct gb_name *name, struct flush *flush) {
    struct gb_buffer_call *call = gb_call_new(sizeof(*call), flushed, flush);

    if (!call)
        return;
    pthread_mutex_lock(&flush->lock);
    flush->running++;
    pthread_mutex_unlock(&flush->lock);
    buffer_store_in(s, name, call);
    gb_call_unref(&call->base);
}

static bool find_any(struct gb_session *s, int64_t *id, struct gb_name *ret) {
    struct gb_buffer *b;
    bool found = false;

    pthread_mutex_lock(&s->lock);
    while (!found && s->behind > 0 && (b = gb_idlist_after(&s->buffers_by_id, *id, id))) {
        found = b->live && !b->deleting && b->behind && gb_together_leader(b) == b;
        if (found)
            strcpy(ret->s, b->name);
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void flush_all(struct gb_core *core, struct flush *flush) {
    struct gb_session *s;
    struct gb_name name;
    int64_t session_id = 0;

    while ((s = gb_session_after(core, session_id))) {
        int64_t id = 0;

        session_id = s->id;
        while (find_any(s, &id, &name))
            flush_one(s, &name, flush);
        gb_session_unref(s);
    }
}

void gb_durable_flush(struct gb_core *core) {
    struct flush flush = {.running = 1};

    if (!core->config.disk)
        return;
    gb_mutex_init(&flush.lock);
    pthread_cond_init(&flush.none, NULL);
    flush_all(core, &flush);
    flushed(&flush);
    pthread_mutex_lock(&flush.lock);
    while (flush.running > 0)
        pthread_cond_wait(&flush.none, &flush.lock);
    pthread_mutex_unlock(&flush.lock);
    pthread_cond_destroy(&flush.none);
    pthread_mutex_destroy(&flush.lock);
}

/* --- store -------------------------------------------------------------------------------------------------------- */

/* Storing a buffer's present bytes on request, and the work of each second. */

#define SWEEP_NS (3600 * GB_NS_PER_S)
#define ORPHAN_TTL_S (24 * 3600)

static int check_locked(const struct gb_buffer *b, struct gb_error *err) {
    if (b->rec.durability == GB_DURABILITY_NONE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "\"%s\" has durability \"none\": give it \"sync\" or \"behind\" first", b->name);
    return gb_guard_check_complete_locked(b, "they are never durable; copy them, and make the copy durable", err);
}

/* The record does not change, except that it gets a missing checksum. */
static int validate_locked(struct gb_transaction *transaction, struct gb_buffer *b, struct gb_error *err) {
    if (gb_buffer_op_check_locked(gb_buffer_op_of(transaction), b, err) < 0 || check_locked(b, err) < 0)
        return -1;
    gb_buffer_copy_locked(b, &transaction->rec);
    transaction->stores = b->rec.state == GB_BUFFER_READY;
    transaction->unrecorded = b->rec.stored_generation == b->rec.generation &&
                              !(transaction->stores && b->stored && atomic_load(&b->stored->damaged));
    gb_buffer_op_of(transaction)->call->copied = !transaction->unrecorded;
    return 0;
}

static void publish_locked(struct gb_transaction *transaction, struct gb_buffer *b) {
    gb_transaction_publish_kept_locked(transaction, b);
    gb_buffer_copy_locked(b, &gb_buffer_op_of(transaction)->call->buffer);
}

static void fill_in(struct gb_buffer_op *op) {
    if (!op)
        return;
    op->transaction.upkeep = op->transaction.depends = true;
    gb_buffer_op_fill_in(op, validate_locked, publish_locked);
}

void gb_buffer_store(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call) {
    struct gb_buffer_op *op = gb_buffer_op_new(sizeof(*op), core, at, check, call);

    fill_in(op);
    gb_buffer_op_start_ordered(op, NULL);
}

/* gb_buffer_store in a session that the caller holds, whatever its name is, and in no order. */
static void buffer_store_in(struct gb_session *session, const struct gb_name *name, struct gb_buffer_call *call) {
    struct gb_buffer_op *op = gb_buffer_op_new_in(sizeof(*op), gb_session_ref(session), name, NULL, call);

    fill_in(op);
    if (op)
        gb_transaction_start(&op->transaction);
}

/* --- once a second ------------------------------------------------------------------------------------------------ */

struct lag {
    uint64_t bytes;
    uint64_t since_ns; /* of the buffer that waits longest; 0: no buffer waits */
};

static void add_lag(struct gb_session *s, struct lag *lag) {
    struct gb_buffer *b;
    int64_t id = 0;

    pthread_mutex_lock(&s->lock);
    while (s->behind > 0 && (b = gb_idlist_after(&s->buffers_by_id, id, &id))) {
        if (!b->behind)
            continue;
        lag->bytes += b->rec.bytes;
        if (lag->since_ns == 0 || b->behind_ns < lag->since_ns)
            lag->since_ns = b->behind_ns;
    }
    pthread_mutex_unlock(&s->lock);
}

static void note_lag(struct gb_core *core) {
    struct lag lag = {0};
    struct gb_session *s;
    int64_t id = 0;

    while (atomic_load(&core->behind_buffers) > 0 && (s = gb_session_after(core, id))) {
        id = s->id;
        add_lag(s, &lag);
        gb_session_unref(s);
    }
    atomic_store(&core->behind_bytes, lag.bytes);
    atomic_store(&core->behind_since_ns, lag.since_ns);
}

/* Posts a notice if durable writes are refused for another reason than before, or accepted again. */
static void tell_state(struct gb_core *core) {
    struct gb_error why = GB_ERROR_INIT;
    enum gb_disk_state state = gb_disk_state_of(core->config.disk, &why);
    struct gb_notice notice;

    if (state == GB_DISK_READY && gb_store_durable_health(core->store, &why) < 0)
        state = GB_DISK_FAILED;
    if ((int)state == core->storage_told)
        return;
    core->storage_told = state;
    notice = gb_notice_new(state == GB_DISK_READY  ? GB_NOTICE_STORAGE_RECOVERED
                           : state == GB_DISK_FULL ? GB_NOTICE_STORAGE_FULL
                                                   : GB_NOTICE_STORAGE_FAILED);
    snprintf(notice.detail, sizeof(notice.detail), "%.120s", why.detail);
    gb_notice_post(core, &notice);
}

/* A write may have changed the state since the last time. */
static void look_after_disk(struct gb_core *core) {
    tell_state(core);
    if (gb_disk_probe(core->config.disk))
        tell_state(core);
}

/* Orphans are kept for a while, so that an older database that is put back finds their files. */
static void sweep_orphans(struct gb_core *core) {
    uint64_t ttl_s = core->config.orphan_ttl_s > 0 ? core->config.orphan_ttl_s : ORPHAN_TTL_S;
    uint64_t now_ns = gb_clock_ns();

    if (core->orphans_swept_ns > 0 && now_ns - core->orphans_swept_ns < SWEEP_NS)
        return;
    core->orphans_swept_ns = now_ns;
    gb_disk_sweep_orphans(core->config.disk, gb_store_seen_since(core->store, (int64_t)ttl_s * 1000000));
}

void gb_durable_tick(struct gb_core *core) {
    if (!core->config.disk)
        return;
    look_after_disk(core);
    sweep_orphans(core);
    gb_durable_keep_room(core);
    behind_tick(core);
    note_lag(core);
}
