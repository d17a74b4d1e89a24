/* Memory of every kind behind a content: which kind and pool a new buffer has, copies and fills there, and memory that
 * is from no pool, got and given back by way of the slow lanes. A free waits for the work that uses the memory, and is
 * tried again where it fails. alloc.c, content.c, and the files of buffers, uploads and leases call this. */
#include "core/memory/kind.h"

#include "base/clock.h"
#include "base/container.h"
#include "core/session/session.h"

#define FREE_TRIES 3

int gb_kind_check_pool(enum gb_kind kind, const struct gb_name *pool, struct gb_error *err) {
    if (kind == GB_KIND_DEVICE || pool->s[0] == '\0')
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "memory of kind \"%s\" comes from no pool: leave \"%s\" out, or choose kind \"device\"",
                        gb_kind_name(kind), pool->s);
}

enum gb_kind gb_kind_choose(const struct gb_core *core, const struct gb_buffer_params *params) {
    int device = params->has_device ? params->device : 0;

    if (params->has_kind || params->kind != GB_KIND_DEVICE || params->mirrored || params->pool.s[0] != '\0' ||
        device < 0 || device >= core->device_count)
        return params->kind;
    return gb_core_usual_kind(&core->devices[device]);
}

struct gb_core_pool *gb_kind_pool_locked(struct gb_session *session, const struct gb_buffer_params *params,
                                         struct gb_error *err) {
    struct gb_core *core = session->core;
    int device = params->has_device ? params->device : 0;

    if (params->pool.s[0] != '\0')
        return gb_core_pool_find_locked(session, &params->pool, err);
    if (device >= 0 && device < core->device_count)
        return params->kind == GB_KIND_DEVICE ? gb_session_pool_locked(session, &core->devices[device])
                                              : core->devices[device].pool;
    gb_error_set(err, GB_ERR_DEVICE_NOT_FOUND, "there is no device %d; there are %d", device, core->device_count);
    return NULL;
}

bool gb_kind_direct_in(const struct gb_core_device *device, enum gb_kind kind) {
    return device->rec.kind_cpu[kind];
}

bool gb_kind_direct_out(const struct gb_core_device *device, enum gb_kind kind) {
    return device->rec.kind_cpu[kind] && !gb_kind_attaches(device, kind);
}

/* Called before the first copy across devices, because a direct copy is ten times as fast as one by way of the host. A
 * pool stays closed if a client closed it, or if the device cannot open it. */
static void let_in(struct gb_content *c, const struct gb_core_device *device) {
    _Atomic int *access = &c->pool->access[device->index];
    int is = GB_POOL_ACCESS_NONE;
    int r;

    if (c->kind != GB_KIND_DEVICE || atomic_load(access) != GB_POOL_ACCESS_NONE)
        return;
    r = gb_pool_access_set(device->core->backend, c->pool->pool, device->index, GB_POOL_ACCESS_READ_WRITE, NULL);
    atomic_compare_exchange_strong(access, &is, r == 0 ? (int)GB_POOL_ACCESS_READ_WRITE : GB_POOL_CLOSED);
}

int gb_content_move(struct gb_content *dst, uint64_t dst_offset, struct gb_content *src, uint64_t src_offset,
                    uint64_t bytes, struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err) {
    struct gb_location to = gb_content_location(dst, dst_offset);
    struct gb_location from = gb_content_location(src, src_offset);

    *ret_way = GB_WAY_NONE;
    if (bytes == 0)
        return 0;
    if (dst->device != src->device) {
        let_in(src, dst->device);
        let_in(dst, src->device);
    }
    if (dst->kind != GB_KIND_DEVICE || src->kind != GB_KIND_DEVICE || dst->device != src->device)
        return gb_mem_move(dst->device->core->backend, &to, &from, bytes, stream, ret_way, err);
    *ret_way = GB_WAY_DEVICE;
    return gb_mem_copy(dst->device->core->backend, to.ptr, from.ptr, bytes, GB_COPY_ON_DEVICE, stream, err);
}

int gb_content_zero(struct gb_content *dst, uint64_t offset, uint64_t bytes, struct gb_stream *stream,
                    struct gb_error *err) {
    struct gb_location to = gb_content_location(dst, offset);

    if (bytes == 0)
        return 0;
    if (dst->kind != GB_KIND_DEVICE)
        return gb_location_fill(dst->device->core->backend, &to, 0, 1, bytes, stream, err);
    return gb_mem_fill(dst->device->core->backend, to.ptr, 0, 1, bytes, stream, err);
}

/* --- getting ------------------------------------------------------------------------------------------------------ */

static struct gb_alloc *alloc_of(struct gb_task *task) {
    return gb_container_of(task, struct gb_alloc, task);
}

/* Back on the ordinary lane: later work queues there. */
static void tell(struct gb_task *task) {
    struct gb_alloc *a = alloc_of(task);
    struct gb_error error = a->error;

    if (error.code == GB_ERR_OUT_OF_MEMORY && gb_kind_of_device(a->content->kind) &&
        a->content->bytes <= a->content->device->rec.total_bytes && gb_room_hope(a, false)) {
        a->room_made = false;
        gb_retry_queue_put(&a->content->device->waiting, &a->waiter);
        return;
    }
    gb_alloc_finish(a, error.code == GB_OK ? NULL : &error);
}

static void end(struct gb_alloc *a) {
    a->task.run = tell;
    gb_lane_post(&a->content->device->lane, &a->task);
}

static bool may_wait(struct gb_alloc *a) {
    struct gb_content *c = a->content;

    if (gb_kind_of_device(c->kind) && c->bytes > c->device->rec.total_bytes)
        return false;
    return a->error.code == GB_ERR_OUT_OF_MEMORY && gb_clock_ns() < a->deadline_ns && !atomic_load(&a->cancelled);
}

static void allocate(struct gb_task *task);

/* On the ordinary lane: unused memory of the device's pools may be the memory that is missing. */
static void make_room(struct gb_task *task) {
    struct gb_alloc *a = alloc_of(task);
    struct gb_content *c = a->content;

    gb_alloc_stats_trimmed(c, gb_core_pool_make_room(c->device->pool, c->bytes));
    gb_alloc_stats_retried(c);
    a->room_made = true;
    a->task.run = allocate;
    gb_lane_post(&c->device->slow, &a->task);
}

static void retry(struct gb_alloc *a) {
    a->task.run = make_room;
    gb_lane_post(&a->content->device->lane, &a->task);
}

/* On the slow lane. */
static void allocate(struct gb_task *task) {
    struct gb_alloc *a = alloc_of(task);
    struct gb_content *c = a->content;

    a->error = GB_ERROR_INIT;
    gb_mem_kind_alloc(c->device->core->backend, c->device->index, c->kind, c->bytes, &c->ptr, &a->error);
    if (a->error.code == GB_ERR_OUT_OF_MEMORY && !a->room_made)
        retry(a);
    else if (may_wait(a))
        gb_retry_queue_put(&c->device->slow_waiting, &a->waiter);
    else
        end(a);
}

static bool go_round_again(struct gb_retry_waiter *waiter, void *arg) {
    (void)arg;
    retry(gb_container_of(waiter, struct gb_alloc, waiter));
    return true; /* those that find nothing come back into the queue */
}

bool gb_kind_alloc_retry(void *arg) {
    struct gb_core_device *device = arg;

    if (!gb_retry_queue_due(&device->slow_waiting))
        return device->slow_waiting.first != NULL;
    return gb_retry_queue_run(&device->slow_waiting, go_round_again, NULL);
}

void gb_kind_alloc_start(struct gb_alloc *alloc) {
    alloc->task.run = allocate;
    gb_lane_post(&alloc->content->device->slow, &alloc->task);
}

/* --- giving back -------------------------------------------------------------------------------------------------- */

static struct gb_content *content_of(struct gb_task *task) {
    return gb_container_of(task, struct gb_content, task);
}

/* On the lane of frees. A free that fails on a living device would leak for ever, so it is tried again. */
static void free_memory(struct gb_task *task) {
    struct gb_content *c = content_of(task);
    struct gb_core *core = c->device->core;
    struct gb_location place = gb_content_location(c, 0);
    bool freed = false;
    int tries;

    /* Logged before it is free: the next allocation may get the same address at once, and be logged first. */
    gb_alloc_log_freed(c);
    for (tries = 0; tries < FREE_TRIES && !freed; tries++) {
        struct gb_error err = GB_ERROR_INIT;

        freed = (c->owner ? gb_mem_import_end(core->backend, &place, &err)
                          : gb_mem_kind_free(core->backend, &place, c->bytes, &err)) == 0;
        gb_core_report_error(core, &err);
        if (!freed && gb_backend_dead(core->backend, NULL))
            break;
    }
    if (freed && !c->owner)
        gb_alloc_stats_freed(c);
    gb_core_changed(core);
    gb_content_end(c);
}

static void unused(void *arg, const struct gb_error *error) {
    struct gb_content *c = arg;

    gb_core_report_error(c->device->core, error);
    c->task.run = free_memory;
    gb_lane_post(&c->device->ends, &c->task);
}

/* Calls then while others' work still uses the content: its caller has waited long enough. The content is out of sight,
 * and is freed when that work is done. */
static void tell_early(struct gb_content *c) {
    void (*then)(void *arg) = c->then;

    c->then = NULL;
    if (then)
        then(c->then_arg);
}

/* -1: no callback will come when the stream is through. */
static int watch_use(struct gb_content *c, struct gb_stream *part) {
    struct gb_backend *be = c->device->core->backend;
    bool done = true;

    if (!c->used)
        c->used = gb_event_pool_take(&c->device->events, NULL);
    if (!c->used || gb_event_record(be, c->used->event, part, NULL) < 0 ||
        gb_event_query(be, c->used->event, &done, NULL) < 0)
        return -1;
    if (done) {
        unused(c, NULL);
        return 0;
    }
    tell_early(c);
    return gb_watch(be, c->used->event, unused, c, NULL);
}

/* On the lane. */
static void wait_for_use(struct gb_task *task) {
    struct gb_content *c = content_of(task);
    struct gb_stream *part = gb_core_stream_part(c->alloc_stream, c->device->index);
    int tries;

    /* A stream that has drained has done all its work. */
    if (!part) {
        unused(c, NULL);
        return;
    }
    for (tries = 0; tries < FREE_TRIES; tries++) {
        if (watch_use(c, part) == 0)
            return;
    }
    gb_stream_sync(c->device->core->backend, part, NULL); /* the uses that have no event */
    unused(c, NULL);
}

void gb_kind_free_start(struct gb_content *content) {
    content->task.run = wait_for_use;
    gb_lane_post(&content->device->lane, &content->task);
}
