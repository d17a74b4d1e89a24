/* Memory of every kind: the kind and pool of a new buffer, allocation, copies, fills and frees. An allocation that
 * finds no memory waits on the lane and is tried again. Memory that is not from a pool is allocated on the slow lane;
 * its free waits for the work that uses it. content.c, and the files of buffers, uploads and leases call this. */
#include "core/memory/alloc.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/memory/content.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"
#include "core/session/session.h"

/* --- kind --------------------------------------------------------------------------------------------------------- */

#define FREE_TRIES 3

static struct gb_alloc *alloc_of(struct gb_task *task) {
    return gb_container_of(task, struct gb_alloc, task);
}

struct gb_location gb_content_location(const struct gb_content *content, uint64_t offset) {
    return (struct gb_location){content->kind, content->device->index, (char *)content->ptr + offset};
}

int gb_kind_check_pool(enum gb_kind kind, const struct gb_name *pool, struct gb_error *err) {
    if (kind == GB_KIND_DEVICE || pool->s[0] == '\0')
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "memory of kind \"%s\" comes from no pool: leave \"%s\" out, or choose kind \"device\"",
                        gb_kind_name(kind), pool->s);
}

int gb_kind_check_source(enum gb_kind kind, struct gb_core_pool *pool, struct gb_error *err) {
    return kind == GB_KIND_DEVICE ? gb_core_pool_check(pool, err) : 0;
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

bool gb_kind_attaches(const struct gb_core_device *device, enum gb_kind kind) {
    return kind == GB_KIND_MANAGED && device->rec.managed_attach;
}

/* Opens the content's pool for another device, before the first copy across them: a direct copy is ten times as fast as
 * one through the host. A pool stays closed if a client closed it, or if the device cannot open it. */
static void open_to(struct gb_content *c, const struct gb_core_device *device) {
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
        open_to(src, dst->device);
        open_to(dst, src->device);
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

/* --- allocation of memory that is not from a pool ----------------------------------------------------------------- */

/* Ends the allocation, or lets it wait. Runs on the ordinary lane, where later work queues. */
static void kind_allocated(struct gb_task *task) {
    struct gb_alloc *a = alloc_of(task);
    struct gb_error error = a->error;

    if (error.code == GB_ERR_OUT_OF_MEMORY && gb_kind_of_device(a->content->kind) &&
        a->content->bytes <= a->content->device->rec.total_bytes && gb_room_request(a, false)) {
        a->room_made = false;
        gb_retry_queue_put(&a->content->device->waiting, &a->waiter);
        return;
    }
    gb_alloc_finish(a, error.code == GB_OK ? NULL : &error);
}

static void end(struct gb_alloc *a) {
    a->task.run = kind_allocated;
    gb_lane_post(&a->content->device->lane, &a->task);
}

static bool may_wait(struct gb_alloc *a) {
    struct gb_content *c = a->content;

    if (gb_kind_of_device(c->kind) && c->bytes > c->device->rec.total_bytes)
        return false;
    return a->error.code == GB_ERR_OUT_OF_MEMORY && gb_clock_ns() < a->deadline_ns && !atomic_load(&a->cancelled);
}

static void kind_allocate(struct gb_task *task);

/* Trims the device's pools, whose unused memory may be the missing memory, and tries again. Runs on the ordinary
 * lane. */
static void make_room(struct gb_task *task) {
    struct gb_alloc *a = alloc_of(task);
    struct gb_content *c = a->content;

    gb_alloc_stats_trimmed(c, gb_core_pool_make_room(c->device->pool, c->bytes));
    gb_alloc_stats_retried(c);
    a->room_made = true;
    a->task.run = kind_allocate;
    gb_lane_post(&c->device->slow, &a->task);
}

static void retry(struct gb_alloc *a) {
    a->task.run = make_room;
    gb_lane_post(&a->content->device->lane, &a->task);
}

/* On the slow lane. */
static void kind_allocate(struct gb_task *task) {
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
    return true; /* kind_allocate queues those that find no memory again */
}

bool gb_kind_alloc_retry(void *arg) {
    struct gb_core_device *device = arg;

    if (!gb_retry_queue_due(&device->slow_waiting))
        return device->slow_waiting.first != NULL;
    return gb_retry_queue_run(&device->slow_waiting, go_round_again, NULL);
}

/* Allocates by way of the slow lane, then ends with gb_alloc_finish on the ordinary one. On the ordinary lane, with the
 * stream made. */
static void kind_alloc_start(struct gb_alloc *alloc) {
    alloc->task.run = kind_allocate;
    gb_lane_post(&alloc->content->device->slow, &alloc->task);
}

/* --- frees of memory that is not from a pool ---------------------------------------------------------------------- */

static struct gb_content *content_of(struct gb_task *task) {
    return gb_container_of(task, struct gb_content, task);
}

/* Frees the memory and ends the content. A free that fails on a living device is tried again, because its memory would
 * stay allocated for ever. Runs on the lane of frees. */
static void free_memory(struct gb_task *task) {
    struct gb_content *c = content_of(task);
    struct gb_core *core = c->device->core;
    struct gb_location place = gb_content_location(c, 0);
    bool freed = false;
    int tries;

    /* Logged before the free, because the next allocation may get the same address at once. */
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

/* Calls then while work of others still uses the content, which no client can see any more. The content is freed when
 * that work is done. */
static void run_then_early(struct gb_content *c) {
    void (*then)(void *arg) = c->then;

    c->then = NULL;
    if (then)
        then(c->then_arg);
}

/* Frees the content when the stream has finished its present work. Returns 0; -1 if that cannot be watched. */
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
    run_then_early(c);
    return gb_watch(be, c->used->event, unused, c, NULL);
}

/* Runs on the lane. */
static void wait_for_use(struct gb_task *task) {
    struct gb_content *c = content_of(task);
    struct gb_stream *part = gb_core_stream_part(c->alloc_stream, c->device->index);
    int tries;

    /* A stream without a part has drained: its work is done. */
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

/* --- allocation --------------------------------------------------------------------------------------------------- */

#define TRIM_NS (250 * GB_NS_PER_MS) /* trimming other pools makes them allocate their memory again */

/* Adds the numbers to a refusal, and says that waiting does not help if the memory can never have that many bytes. */
static void explain_limit(const struct gb_content *c, struct gb_error *error) {
    size_t said = strlen(error->detail);
    uint64_t limit = c->device->rec.total_bytes;
    uint64_t free_bytes = atomic_load(&c->device->free_bytes);
    uint64_t used = limit - (free_bytes < limit ? free_bytes : limit);

    if (c->kind == GB_KIND_DEVICE) {
        struct gb_pool_stat stat;

        gb_core_pool_stat(c->pool, &stat);
        limit = gb_core_pool_limit(c->pool);
        used = stat.used_bytes;
    } else if (!gb_kind_of_device(c->kind)) {
        return; /* the host's memory is not the daemon's alone */
    }
    gb_error_numbers(error, limit, used, c->bytes);
    if (c->bytes > limit)
        snprintf(error->detail + said, sizeof error->detail - said,
                 "; %llu bytes are more than the %s can ever give (%llu): waiting does not help, ask for less",
                 (unsigned long long)c->bytes, c->kind == GB_KIND_DEVICE ? "pool" : "device",
                 (unsigned long long)limit);
}

/* Posts a notice with the numbers, by the names that the refusal has. */
static void note_exhausted(const struct gb_content *c, const struct gb_error *error) {
    struct gb_notice n = gb_notice_of(c->session, GB_NOTICE_MEMORY_EXHAUSTED);

    if (c->kind == GB_KIND_DEVICE)
        n.pool = c->pool->rec.name;
    if (gb_kind_of_device(c->kind))
        n.device = c->device->index;
    n.has_bytes = true;
    n.bytes = c->bytes;
    if (error->has_numbers)
        snprintf(n.detail, sizeof(n.detail), "%s memory: limit_bytes %llu, used_bytes %llu, requested_bytes %llu",
                 gb_kind_name(c->kind), (unsigned long long)error->limit_bytes, (unsigned long long)error->used_bytes,
                 (unsigned long long)error->requested_bytes);
    else
        snprintf(n.detail, sizeof(n.detail), "%s memory: requested_bytes %llu", gb_kind_name(c->kind),
                 (unsigned long long)c->bytes);
    gb_notice_post_limited(c->device->core, &n);
}

void gb_alloc_denied(struct gb_session *session, struct gb_core_pool *pool, uint64_t bytes,
                     const struct gb_error *error) {
    struct gb_content c = {
        .session = session, .device = pool->device, .pool = pool, .kind = GB_KIND_DEVICE, .buffer = "", .bytes = bytes};

    gb_alloc_stats_refused(&c, error, pool->rec.config.max_bytes > 0 && bytes > pool->rec.config.max_bytes);
    note_exhausted(&c, error);
}

void gb_alloc_finish(struct gb_alloc *a, struct gb_error *error) {
    struct gb_content *c = a->content;
    struct gb_core_device *device = c->device;
    struct gb_core *core = device->core;

    if (!error) {
        gb_content_count_alloc(c);
    } else {
        gb_alloc_stats_refused(c, error, a->at_limit);
        gb_alloc_log_refused(c);
        gb_core_report_error(core, error);
        if (c->kind == GB_KIND_DEVICE)
            gb_core_pool_refresh(c->pool);
    }
    if (error && error->code == GB_ERR_QUOTA_EXCEEDED)
        gb_quota_denied(c->session, error);
    if (error && (error->code == GB_ERR_OUT_OF_MEMORY || error->code == GB_ERR_QUOTA_EXCEEDED))
        gb_room_explain(a, error);
    if (error && error->code == GB_ERR_OUT_OF_MEMORY) {
        explain_limit(c, error);
        note_exhausted(c, error);
    }
    gb_core_changed(core);
    a->done(a, error);
}

/* The bytes that are missing, as far as is known. beyond: by how much the pool's limit is exceeded. Otherwise the
 * device may have fewer bytes than it reported, or have them in pieces, so that buffers leave one at a time. */
static uint64_t missing(const struct gb_content *c, uint64_t beyond) {
    uint64_t free_bytes = atomic_load(&c->device->free_bytes);

    if (beyond > 0)
        return beyond;
    return c->pool->rec.config.max_bytes == 0 && c->bytes > free_bytes ? c->bytes - free_bytes : 1;
}

/* Checks the pool's own limit, which a device rounds up, to 32 MiB on a GPU. Memory of the free cache counts, because
 * an allocation may take it at any time; all others come by the lane, which this runs on. Returns 0 or -1. */
static int check_limit(struct gb_alloc *a, struct gb_error *err) {
    const struct gb_content *c = a->content;
    const struct gb_core_pool *p = c->pool;
    /* Read in this order, so that memory cached or taken meanwhile counts twice rather than not at all. */
    uint64_t freed = atomic_load(&p->memory.freed_bytes);
    uint64_t cached = atomic_load(&p->cached_bytes);
    uint64_t held = atomic_load(&p->memory.allocated_bytes) - freed + cached;

    a->at_limit = p->rec.config.max_bytes > 0 && held + c->bytes > p->rec.config.max_bytes;
    a->missing = missing(c, a->at_limit ? held + c->bytes - p->rec.config.max_bytes : 0);
    if (!a->at_limit)
        return 0;
    gb_error_native_told(err, gb_backend_name(p->core->backend), 2, "cudaErrorMemoryAllocation",
                         "cudaMallocFromPoolAsync", "out of memory");
    return gb_error_set(err, GB_ERR_OUT_OF_MEMORY, "pool \"%s\" may hold %llu bytes", p->rec.name.s,
                        (unsigned long long)p->rec.config.max_bytes);
}

static int try(struct gb_alloc *a, struct gb_error *err) {
    struct gb_content *c = a->content;
    struct gb_stream *stream;

    if (gb_core_stream_part_make(c->alloc_stream, c->device->index, &stream, err) < 0)
        return -1;
    if (c->bytes == 0)
        return 0;
    if (check_limit(a, err) < 0)
        return -1;
    return gb_core_pool_alloc(c->pool, stream, c->bytes, &c->ptr, err);
}

static void note_trims(struct gb_content *c, unsigned count) {
    struct gb_notice n = gb_notice_of(c->session, GB_NOTICE_POOL_TRIMMED);

    gb_alloc_stats_trimmed(c, count);
    n.device = c->device->index;
    n.pool = c->pool->rec.name;
    strcpy(n.detail, "to make room for an allocation");
    if (count > 0)
        gb_notice_post_limited(c->device->core, &n);
}

/* Trims and tries again, because the pool's unused memory may be in small pieces, and other pools may have unused
 * memory. Returns 0 or -1. */
static int trim_and_try(struct gb_alloc *a, struct gb_error *err) {
    struct gb_content *c = a->content;

    gb_free_cache_free(c->device);
    /* If the pool's own limit refuses, unused memory of others does not help. */
    if (check_limit(a, err) < 0)
        return -1;
    note_trims(c, gb_core_pool_make_room(c->pool, c->bytes));
    gb_alloc_stats_retried(c);
    return try(a, err);
}

/* Reserves promised bytes in the quota. If it has no room, the allocation waits as for memory, or ends. Returns true
 * then; *ret_ended: it has ended. */
static bool wait_for_quota(struct gb_alloc *a, bool *ret_ended) {
    struct gb_content *c = a->content;
    struct gb_error err = GB_ERROR_INIT;

    *ret_ended = false;
    if (!c->promised || gb_content_redeem(c, &err) == 0)
        return false;
    if (!gb_room_request(a, true)) {
        *ret_ended = true;
        gb_alloc_finish(a, &err);
    }
    return true;
}

static void wait_in_line(struct gb_alloc *a) {
    gb_retry_queue_put(&a->content->device->waiting, &a->waiter);
}

static void allocate(struct gb_task *task) {
    struct gb_alloc *a = alloc_of(task);
    struct gb_content *c = a->content;
    struct gb_error err = GB_ERROR_INIT;
    bool ended;

    if (wait_for_quota(a, &ended)) {
        if (!ended)
            wait_in_line(a);
        return;
    }
    if (c->kind != GB_KIND_DEVICE && c->bytes > 0) {
        struct gb_stream *stream;

        if (gb_core_stream_part_make(c->alloc_stream, c->device->index, &stream, &err) < 0)
            gb_alloc_finish(a, &err);
        else
            kind_alloc_start(a);
        return;
    }
    if (try(a, &err) == 0) {
        if (c->bytes == 0)
            a->done(a, NULL);
        else
            gb_alloc_finish(a, NULL);
        return;
    }
    if (err.code == GB_ERR_OUT_OF_MEMORY) {
        err = GB_ERROR_INIT;
        if (trim_and_try(a, &err) == 0) {
            gb_alloc_finish(a, NULL);
            return;
        }
        if (err.code == GB_ERR_OUT_OF_MEMORY && c->bytes <= gb_core_pool_limit(c->pool) && gb_error_retryable(&err) &&
            (gb_room_request(a, false) || (a->deadline_ns > gb_clock_ns() && !atomic_load(&a->cancelled)))) {
            wait_in_line(a);
            return;
        }
    }
    gb_alloc_finish(a, &err);
}

/* Returns true if the allocation waits no longer. Memory that another pool freed comes only by trimming that pool,
 * which is done at intervals. */
static bool try_again(struct gb_retry_waiter *waiter, void *arg) {
    struct gb_alloc *a = gb_container_of(waiter, struct gb_alloc, waiter);
    const bool *trim = arg;
    struct gb_error err = GB_ERROR_INIT;
    bool last = gb_clock_ns() >= a->deadline_ns || atomic_load(&a->cancelled);
    bool ended;
    int r;

    if (a->room_state == GB_ROOM_COMING) /* the ask is part of the allocation, which therefore cannot end */
        return false;
    if (wait_for_quota(a, &ended))
        return ended;
    if (a->content->kind != GB_KIND_DEVICE && a->content->bytes > 0) {
        kind_alloc_start(a);
        return true;
    }
    if (*trim || (last && a->room_until_ns == 0)) {
        r = trim_and_try(a, &err);
    } else {
        gb_alloc_stats_retried(a->content);
        r = try(a, &err);
    }
    if (r < 0 && err.code == GB_ERR_OUT_OF_MEMORY && (gb_room_request(a, false) || !last))
        return false;
    gb_alloc_finish(a, r < 0 ? &err : NULL);
    return true;
}

bool gb_alloc_retry(void *arg) {
    struct gb_core_device *device = arg;
    uint64_t now_ns = gb_clock_ns();
    bool trim = now_ns >= device->trim_next_ns;

    if (!gb_retry_queue_due(&device->waiting))
        return device->waiting.first != NULL;
    if (trim)
        device->trim_next_ns = now_ns + TRIM_NS;
    return gb_retry_queue_run(&device->waiting, try_again, &trim);
}

/* Enters the lane if the allocation is cheap. If the CPU reaches the memory, allocating unused memory of the pool is as
 * cheap as posting a task. A GPU's driver may block, which must not happen to an HTTP loop. */
static bool enter_lane(const struct gb_content *c) {
    if (c->bytes == 0) /* the device is not called */
        return gb_core_stream_part(c->alloc_stream, c->device->index) && gb_lane_enter(&c->device->lane);
    return c->device->rec.cpu_access && c->kind == GB_KIND_DEVICE && gb_lane_enter(&c->device->lane);
}

static bool allocate_at_once(struct gb_alloc *a) {
    struct gb_content *c = a->content;
    struct gb_lane *lane = &c->device->lane;
    struct gb_error err = GB_ERROR_INIT;
    bool done = false;

    if (c->promised)
        return false;
    if (a->anywhere && c->bytes > 0 && c->kind == GB_KIND_DEVICE && gb_free_cache_take(c)) {
        gb_core_changed(c->device->core);
        a->done(a, NULL);
        return true;
    }
    if (!enter_lane(c))
        return false;
    if (c->bytes == 0) {
        a->done(a, NULL);
        done = true;
    } else if (!c->device->waiting.first) {
        done = try(a, &err) == 0;
        /* If memory is exhausted, the lane trims, tries again and waits. */
        if (done || err.code != GB_ERR_OUT_OF_MEMORY) {
            gb_alloc_finish(a, done ? NULL : &err);
            done = true;
        }
    }
    gb_lane_leave(lane, false);
    return done;
}

void gb_alloc_start(struct gb_alloc *alloc, unsigned wait_ms) {
    struct gb_lane *lane = &alloc->content->device->lane;

    alloc->deadline_ns = wait_ms > 0 ? gb_clock_ns() + wait_ms * GB_NS_PER_MS : 0;
    alloc->task.run = allocate;
    alloc->at_limit = false;
    alloc->missing = alloc->content->bytes;
    alloc->room_state = GB_ROOM_UNASKED;
    alloc->room_until_ns = alloc->room_next_ns = 0;
    alloc->copies_went_ns = alloc->copies_until_ns = 0;
    if (!allocate_at_once(alloc))
        gb_lane_post(lane, &alloc->task);
}
