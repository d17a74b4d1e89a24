/* Getting memory: on the lane, with patience when there is none. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/memory/content.h"
#include "core/memory/kind.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"
#include "core/session/session.h"

#define TRIM_NS (250 * GB_NS_PER_MS) /* other pools give unused memory only if trimmed, and must allocate it again */

static struct gb_alloc *alloc_of(struct gb_task *task) {
    return gb_container_of(task, struct gb_alloc, task);
}

/* The numbers, and that waiting is of no use where there will never be as much. */
static void tell_room(const struct gb_content *c, struct gb_error *error) {
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
        return; /* how much memory the host has is not ours to say */
    }
    gb_error_numbers(error, limit, used, c->bytes);
    if (c->bytes > limit)
        snprintf(error->detail + said, sizeof error->detail - said,
                 "; %llu bytes are more than the %s can ever give (%llu): waiting does not help, ask for less",
                 (unsigned long long)c->bytes, c->kind == GB_KIND_DEVICE ? "pool" : "device",
                 (unsigned long long)limit);
}

/* The numbers by the names that the refusal has. */
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
        gb_room_tell(a, error);
    if (error && error->code == GB_ERR_OUT_OF_MEMORY) {
        tell_room(c, error);
        note_exhausted(c, error);
    }
    gb_core_changed(core);
    a->done(a, error);
}

/* beyond: the pool's limit. Else the device may have fewer bytes than it said, or have them in pieces: what leaves then
 * makes the difference, one buffer at a time. */
static uint64_t missing(const struct gb_content *c, uint64_t beyond) {
    uint64_t free_bytes = atomic_load(&c->device->free_bytes);

    if (beyond > 0)
        return beyond;
    return c->pool->rec.config.max_bytes == 0 && c->bytes > free_bytes ? c->bytes - free_bytes : 1;
}

/* A device rounds a pool's limit up, to 32 MiB on a GPU, so the core checks it. On the lane: all allocations and frees
 * of a pool go by it but those of the free cache, whose memory counts, because an allocation may take it at any
 * time. */
static int check_limit(struct gb_alloc *a, struct gb_error *err) {
    const struct gb_content *c = a->content;
    const struct gb_core_pool *p = c->pool;
    /* In this order: memory cached or taken meanwhile is counted twice rather than not at all. */
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

/* Unused memory of the pool may be in pieces too small, and unused memory of others is wanted here. */
static int trim_and_try(struct gb_alloc *a, struct gb_error *err) {
    struct gb_content *c = a->content;

    gb_free_cache_free(c->device);
    /* If the pool's own limit refuses, unused memory of others is of no use. */
    if (check_limit(a, err) < 0)
        return -1;
    note_trims(c, gb_core_pool_make_room(c->pool, c->bytes));
    gb_alloc_stats_retried(c);
    return try(a, err);
}

/* Bytes that the quota has no room for yet wait as those do that the device has none for. True: the allocation waits,
 * or has ended. */
static bool wait_for_quota(struct gb_alloc *a, bool *ret_ended) {
    struct gb_content *c = a->content;
    struct gb_error err = GB_ERROR_INIT;

    *ret_ended = false;
    if (!c->promised || gb_content_redeem(c, &err) == 0)
        return false;
    if (!gb_room_hope(a, true)) {
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
            gb_kind_alloc_start(a);
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
            (gb_room_hope(a, false) || (a->deadline_ns > gb_clock_ns() && !atomic_load(&a->cancelled)))) {
            wait_in_line(a);
            return;
        }
    }
    gb_alloc_finish(a, &err);
}

/* True if the allocation has ended. Memory that another pool freed comes only by trimming it, which is not done every
 * time. */
static bool try_again(struct gb_retry_waiter *waiter, void *arg) {
    struct gb_alloc *a = gb_container_of(waiter, struct gb_alloc, waiter);
    const bool *trim = arg;
    struct gb_error err = GB_ERROR_INIT;
    bool last = gb_clock_ns() >= a->deadline_ns || atomic_load(&a->cancelled);
    bool ended;
    int r;

    if (a->room_state == GB_ROOM_COMING) /* which is the allocation's own, so that it cannot end before */
        return false;
    if (wait_for_quota(a, &ended))
        return ended;
    if (a->content->kind != GB_KIND_DEVICE && a->content->bytes > 0) {
        gb_kind_alloc_start(a);
        return true;
    }
    if (*trim || (last && a->room_until_ns == 0)) {
        r = trim_and_try(a, &err);
    } else {
        gb_alloc_stats_retried(a->content);
        r = try(a, &err);
    }
    if (r < 0 && err.code == GB_ERR_OUT_OF_MEMORY && (gb_room_hope(a, false) || !last))
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

/* Where the CPU reaches the memory, an allocation from unused memory of the pool is as cheap as posting it to another
 * thread. A GPU's driver may hold it up, which must not happen to an HTTP loop. */
static bool enter_lane(const struct gb_content *c) {
    if (c->bytes == 0) /* the device is not asked */
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
        /* Being out of memory is the lane's affair: it trims, tries again and waits. */
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
