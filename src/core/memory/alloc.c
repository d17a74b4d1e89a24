/* Allocation of buffers' memory of every kind: the kind and pool of a new buffer, and how it gets its memory. An
 * allocation that finds no memory asks other buffers for room, waits on the lane and is tried again. Memory that is not
 * from a pool is allocated on the slow lane. The files of buffers, uploads and leases call this; content.c frees. */
#include "core/memory/alloc.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/container.h"
#include "core/memory/frees.h"
#include "core/memory/kept.h"
#include "core/runtime/runtime.h"
#include "core/session/quota.h"
#include "core/session/session.h"

/* --- kind --------------------------------------------------------------------------------------------------------- */

static struct gb_alloc *alloc_of(struct gb_task *task) {
    return gb_container_of(task, struct gb_alloc, task);
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

int gb_kind_check_mirrored(const struct gb_core_device *device, enum gb_kind kind, struct gb_error *err) {
    enum gb_kind usual = gb_core_usual_kind(device);

    if (kind == usual)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a mirrored buffer of device %d is of kind \"%s\", not \"%s\"",
                        device->index, gb_kind_name(usual), gb_kind_name(kind));
}

enum gb_kind gb_kind_choose(const struct gb_core *core, const struct gb_buffer_params *params) {
    int device = params->has_device ? params->device : 0;

    if (params->has_kind || params->kind != GB_KIND_DEVICE || params->pool.s[0] != '\0' || device < 0 ||
        device >= core->device_count)
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

/* --- room --------------------------------------------------------------------------------------------------------- */

/* How long an allocation asks for room, and how often at most. */
#define PATIENCE_NS (10 * GB_NS_PER_S)
#define AGAIN_NS (20 * GB_NS_PER_MS)
#define COPIES_NS GB_NS_PER_S /* the wait after copies for other nodes were dropped */

static void room_ended(struct gb_room_ask *ask) {
    struct gb_alloc *a = gb_container_of(ask, struct gb_alloc, room);

    a->room_state = GB_ROOM_ENDED;
    ask->device->waiting.freed = true;
}

/* The bytes that the quota lacks now. Other uses of the quota change that; the next try computes it again. */
static uint64_t missing_quota(struct gb_content *c) {
    struct gb_session *s = c->session;
    uint64_t lacking = c->bytes;

    pthread_mutex_lock(&s->lock);
    if (s->used_bytes < s->rec.quota.bytes && s->rec.quota.bytes - s->used_bytes < lacking)
        lacking -= s->rec.quota.bytes - s->used_bytes;
    pthread_mutex_unlock(&s->lock);
    return lacking;
}

static void ask_for_room(struct gb_alloc *a, bool at_quota) {
    struct gb_content *c = a->content;

    a->room = (struct gb_room_ask){.device = c->device, .content = c, .bytes = a->missing, .ended = room_ended};
    if (at_quota) {
        a->room.session = c->session;
        a->room.bytes = missing_quota(c);
    } else if (c->kind == GB_KIND_DEVICE && c->pool->rec.config.max_bytes > 0) {
        a->room.pool = c->pool;
    }
    a->room_state = GB_ROOM_COMING;
    c->device->core->make_room(c->device->core, &a->room);
}

/* Drops copies that this node keeps for other nodes, unless the allocation is for such a copy. Returns true if some
 * were dropped. */
static bool drop_copies(const struct gb_alloc *a) {
    struct gb_core *core = a->content->device->core;
    struct gb_session *s = a->content->session;
    bool goes = false;
    bool is_copy;

    if (!atomic_load(&core->keeps_copies) || atomic_load(&a->cancelled))
        return false;
    pthread_mutex_lock(&s->lock);
    is_copy = s->rec.fleet_epoch == 0 && s->rec.fleet_claim[0] != '\0';
    pthread_mutex_unlock(&s->lock);
    if (is_copy)
        return false;
    pthread_mutex_lock(&core->gone_lock);
    if (core->shortage)
        goes = core->shortage(core->copied_arg, a->missing);
    pthread_mutex_unlock(&core->gone_lock);
    return goes;
}

/* The memory of dropped copies is freed in stream order, some time later. Returns true while the allocation waits for
 * that. */
static bool wait_for_copies(struct gb_alloc *a) {
    uint64_t now_ns = gb_clock_ns();

    if (drop_copies(a)) {
        a->copies_until_ns = a->copies_until_ns == 0 ? now_ns + PATIENCE_NS : a->copies_until_ns;
        a->copies_went_ns = now_ns;
    }
    return a->copies_went_ns > 0 && now_ns - a->copies_went_ns < COPIES_NS && now_ns < a->copies_until_ns;
}

/* After a try that found no memory: has the frees made that were put off. Returns true if the allocation should try
 * again, because some wait, or were made since its last try. */
static bool wait_for_frees(struct gb_alloc *a) {
    struct gb_core_device *device = a->content->device;
    uint64_t made = gb_frees_made(device->frees);
    uint64_t now_ns = gb_clock_ns();

    if (a->at_limit || atomic_load(&a->cancelled) || (!gb_frees_hurry(device) && made == a->frees_made))
        return false;
    a->frees_made = made;
    a->frees_until_ns = a->frees_until_ns == 0 ? now_ns + GB_FREES_S * GB_NS_PER_S : a->frees_until_ns;
    return now_ns < a->frees_until_ns;
}

/* After a try that found no memory, or no room in the quota (at_quota): asks for room. Returns true if the allocation
 * should wait and try again, because bytes of others are leaving memory. On the device's lane. */
static bool request_room(struct gb_alloc *a, bool at_quota) {
    struct gb_core *core = a->content->device->core;
    uint64_t now_ns;

    if (!at_quota && (wait_for_frees(a) || wait_for_copies(a)))
        return true;
    if (!core->make_room || atomic_load(&core->movable_buffers) == 0 || atomic_load(&a->cancelled) ||
        (a->room_state == GB_ROOM_ENDED && !a->room.made && !a->room.later))
        return false;
    now_ns = gb_clock_ns();
    if (a->room_until_ns == 0)
        a->room_until_ns = now_ns + PATIENCE_NS;
    if (now_ns >= a->room_until_ns)
        return false;
    if (now_ns >= a->room_next_ns) {
        a->room_next_ns = now_ns + (a->room.made ? 0 : AGAIN_NS);
        ask_for_room(a, at_quota);
    }
    return true;
}

/* Adds to a refusal how many bytes could have left memory, if room was asked for. */
static void explain_room(const struct gb_alloc *a, struct gb_error *error) {
    size_t said = strlen(error->detail);

    if (a->room_state == GB_ROOM_ENDED)
        snprintf(error->detail + said, sizeof(error->detail) - said, "; evictable_bytes: %llu of other buffers",
                 (unsigned long long)a->room.evictable);
}

/* --- results --- */

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

/* Counts the result and calls done. error NULL: content has its memory. On the lane, or see anywhere. */
static void finish(struct gb_alloc *a, struct gb_error *error) {
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
        explain_room(a, error);
    if (error && error->code == GB_ERR_OUT_OF_MEMORY) {
        explain_limit(c, error);
        note_exhausted(c, error);
    }
    gb_core_changed(core);
    a->done(a, error);
}

/* --- allocation of memory that is not from a pool ----------------------------------------------------------------- */

/* Ends the allocation, or lets it wait. Runs on the ordinary lane, where later work queues. */
static void kind_allocated(struct gb_task *task) {
    struct gb_alloc *a = alloc_of(task);
    struct gb_error error = a->error;

    if (error.code == GB_ERR_OUT_OF_MEMORY &&
        (gb_kind_of_device(a->content->kind)
             ? a->content->bytes <= a->content->device->rec.total_bytes && request_room(a, false)
             : wait_for_frees(a))) {
        a->room_made = false;
        gb_retry_queue_put(&a->content->device->waiting, &a->waiter);
        return;
    }
    finish(a, error.code == GB_OK ? NULL : &error);
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
    if (gb_mem_kind_alloc(c->device->core->backend, c->device->index, c->kind, c->bytes, &c->ptr, &a->error) == 0)
        gb_kept_add(c);
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

/* --- allocation --------------------------------------------------------------------------------------------------- */

#define TRIM_NS (250 * GB_NS_PER_MS) /* trimming other pools makes them allocate their memory again */

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
    gb_error_native_text(err, gb_backend_name(p->core->backend), 2, "cudaErrorMemoryAllocation",
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
    if (!request_room(a, true)) {
        *ret_ended = true;
        finish(a, &err);
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
            finish(a, &err);
        else
            kind_alloc_start(a);
        return;
    }
    if (try(a, &err) == 0) {
        if (c->bytes == 0)
            a->done(a, NULL);
        else
            finish(a, NULL);
        return;
    }
    if (err.code == GB_ERR_OUT_OF_MEMORY) {
        err = GB_ERROR_INIT;
        if (trim_and_try(a, &err) == 0) {
            finish(a, NULL);
            return;
        }
        if (err.code == GB_ERR_OUT_OF_MEMORY && c->bytes <= gb_core_pool_limit(c->pool) && gb_error_retryable(&err) &&
            (request_room(a, false) || (a->deadline_ns > gb_clock_ns() && !atomic_load(&a->cancelled)))) {
            wait_in_line(a);
            return;
        }
    }
    finish(a, &err);
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
    if (r < 0 && err.code == GB_ERR_OUT_OF_MEMORY && (request_room(a, false) || !last))
        return false;
    finish(a, r < 0 ? &err : NULL);
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
            finish(a, done ? NULL : &err);
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
    alloc->frees_made = gb_frees_made(alloc->content->device->frees);
    alloc->frees_until_ns = 0;
    if (!allocate_at_once(alloc))
        gb_lane_post(lane, &alloc->task);
}
