/* Bytes of a device to host memory: one copy, in the order of the stream that their memory is freed in. */
#include <stdlib.h>

#include "base/container.h"
#include "core/device/stream.h"
#include "core/durable/durable.h"
#include "core/durable/persist_host.h"
#include "core/memory/kind.h"
#include "core/stored/disks.h"

struct job {
    struct gb_task task;
    struct gb_core *core;
    struct gb_persist *persist;
    struct gb_host_block *block;
    struct gb_ev *copied;
    struct gb_error error;
};

/* On a thread of the disk. The copy is over, so that the block may be given back. */
static void finish(struct gb_task *task) {
    struct job *job = gb_container_of(task, struct job, task);
    struct gb_persist *p = job->persist;
    struct gb_core *core = job->core;
    struct gb_stored_rec rec = {.buffer_id = p->rec->id,
                                .generation = p->rec->generation,
                                .run = p->rec->run,
                                .bytes = p->rec->bytes,
                                .dtype = p->rec->dtype,
                                .shape = p->rec->shape,
                                .crc32c = p->rec->crc32c};

    if (job->copied)
        gb_event_pool_give(&p->content->device->events, job->copied);
    if (job->error.code == GB_OK && !(p->stored = gb_stored_new_in_host(core, &rec, job->block)))
        gb_no_memory(&job->error);
    if (job->error.code != GB_OK) {
        gb_host_block_unref(job->block);
        p->error = job->error;
    }
    gb_content_drop(p->content, NULL, NULL);
    p->content = NULL;
    free(job);
    p->done(p);
    gb_core_leave(core);
}

static void end(struct job *job) {
    job->task.run = finish;
    gb_disks_post(job->core, &job->task);
}

static void copied(void *arg, const struct gb_error *error) {
    struct job *job = arg;

    gb_core_report_error(job->core, error);
    if (error)
        job->error = *error;
    end(job);
}

/* Whatever fails behind the copy, the block must not be given back before the copy has ended. */
static int copy(struct job *job, struct gb_stream *stream, struct gb_error *err) {
    struct gb_backend *be = job->core->backend;
    struct gb_content *c = job->persist->content;
    const struct gb_location to = {GB_KIND_PINNED, c->device->index, job->block->ptr};
    const struct gb_location from = gb_content_location(c, 0);
    enum gb_copy_way way;

    job->copied = gb_event_pool_take(&c->device->events, err);
    if (!job->copied || gb_content_materialize(c, err) < 0)
        return -1;
    if (c->ready && gb_stream_wait(be, stream, c->ready->event, err) < 0)
        return -1;
    if (gb_mem_move(be, &to, &from, c->bytes, stream, &way, err) == 0 &&
        gb_event_record(be, job->copied->event, stream, err) == 0 &&
        gb_watch(be, job->copied->event, copied, job, err) == 0)
        return 0;
    gb_stream_sync(be, stream, NULL);
    return -1;
}

/* On the device's lane. */
static void queue(struct gb_task *task) {
    struct job *job = gb_container_of(task, struct job, task);
    struct gb_content *c = job->persist->content;
    struct gb_stream *stream;

    if (gb_core_stream_part_make(c->alloc_stream, c->device->index, &stream, &job->error) == 0 &&
        copy(job, stream, &job->error) == 0)
        return;
    gb_core_report_error(job->core, &job->error);
    end(job);
}

/* On a thread of the disk, as page-locking takes long. */
static void get_block(struct gb_task *task) {
    struct job *job = gb_container_of(task, struct job, task);
    struct gb_core *core = job->core;
    struct gb_persist *p = job->persist;

    if (gb_host_block_new(core, p->content->device->index, p->rec->bytes, &job->block, &job->error) == 0) {
        job->task.run = queue;
        gb_lane_post(&p->content->device->lane, &job->task);
    } else if (p->strictly) {
        finish(task);
    } else {
        free(job);
        p->spills = GB_SPILL_DISK;
        gb_durable_persist(core, p);
        gb_core_leave(core);
    }
}

int gb_persist_to_host(struct gb_core *core, struct gb_persist *persist, struct gb_error *err) {
    struct job *job = calloc(1, sizeof(*job));

    if (!job)
        return gb_no_memory(err);
    gb_core_enter(core);
    job->core = core;
    job->persist = persist;
    job->task.run = get_block;
    gb_disks_post(core, &job->task);
    return 0;
}
