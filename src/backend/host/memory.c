/* Pools of the host backend, allocation in stream order under CUDA's three reuse policies, and copies and fills. The
 * statistics of pools are CUDA's. Functions ending in _locked need the backend's lock; none holds it while bytes
 * move. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/host/internal.h"

/* --- pools -------------------------------------------------------------------------------------------------------- */

struct gb_pool *gb_host_pool_new_locked(struct gb_host *host, int device, const struct gb_pool_config *config) {
    struct gb_pool *pool = calloc(1, sizeof(*pool));

    if (!pool)
        return NULL;
    pool->host = host;
    pool->device = device;
    pool->open_to = 1u << device;
    pool->fd = -1;
    pool->config = *config;
    pool->next = host->devices[device].pools;
    host->devices[device].pools = pool;
    return pool;
}

/* --- pools: memory goes back to the system ------------------------------------------------------------------------ */

static bool done_locked(void *arg, const struct gb_host_block *block) {
    (void)arg;
    return !block->stream || block->stream->done_seq >= block->seq;
}

static bool idle_locked(const struct gb_host_segment *segment) {
    const struct gb_host_block *block;

    if (segment->live > 0)
        return false;
    for (block = segment->first; block; block = block->next) {
        if (!done_locked(NULL, block))
            return false;
    }
    return true;
}

static void detach_locked(struct gb_pool *pool, struct gb_host_segment *segment, struct gb_host_segment **list) {
    gb_host_ranges_take(&pool->host->spans, segment);
    gb_host_arena_remove(&pool->arena, segment);
    pool->stat.reserved_bytes -= segment->bytes;
    pool->host->devices[pool->device].reserved_bytes -= segment->bytes;
    segment->next = *list;
    *list = segment;
}

/* Detaches idle segments while the pool has more than keep_bytes. strict: never below that. */
static void shrink_locked(struct gb_pool *pool, uint64_t keep_bytes, bool strict, struct gb_host_segment **list) {
    struct gb_host_segment *segment;
    struct gb_host_segment *next;

    for (segment = pool->arena.segments; segment && pool->stat.reserved_bytes > keep_bytes; segment = next) {
        next = segment->next;
        if (strict && pool->stat.reserved_bytes - segment->bytes < keep_bytes)
            continue;
        if (idle_locked(segment))
            detach_locked(pool, segment, list);
    }
}

/* Detaches idle segments of at least `bytes` bytes in all, or no segment if they have less. */
static void make_room_locked(struct gb_pool *pool, uint64_t bytes, struct gb_host_segment **list) {
    struct gb_host_segment *segment;
    uint64_t idle = 0;

    for (segment = pool->fd < 0 ? pool->arena.segments : NULL; segment; segment = segment->next)
        idle += idle_locked(segment) ? segment->bytes : 0;
    if (idle >= bytes)
        shrink_locked(pool, pool->stat.reserved_bytes - bytes, false, list);
}

static void free_pool(struct gb_pool *pool) {
    if (pool->fd >= 0)
        close(pool->fd);
    free(pool);
}

static void free_if_dead_locked(struct gb_pool **at) {
    struct gb_pool *pool = *at;

    if (!pool->dying || pool->arena.segments)
        return;
    *at = pool->next;
    free_pool(pool);
}

struct gb_host_segment *gb_host_release_locked(struct gb_host *host) {
    struct gb_host_segment *list = NULL;
    bool again = false;
    int device;

    if (!host->release_wanted)
        return NULL;
    for (device = 0; device < host->device_count; device++) {
        struct gb_pool **at = &host->devices[device].pools;

        while (*at) {
            struct gb_pool *pool = *at;
            uint64_t keep = pool->dying ? 0 : pool->fd >= 0 ? GB_UNLIMITED : pool->config.release_threshold_bytes;

            shrink_locked(pool, keep, false, &list);
            again = again || pool->dying || (pool->stat.reserved_bytes > keep && pool->stat.reserved_bytes > 0);
            free_if_dead_locked(at);
            if (*at == pool)
                at = &pool->next;
        }
    }
    host->release_wanted = again;
    return list;
}

/* Removes the tags of a stream that ends; its work is done. */
void gb_host_forget_stream_locked(struct gb_host *host, struct gb_stream *stream) {
    struct gb_host_segment *segment;
    struct gb_host_block *block;
    struct gb_pool *pool;
    int device;

    for (device = 0; device < host->device_count; device++) {
        for (pool = host->devices[device].pools; pool; pool = pool->next) {
            for (segment = pool->arena.segments; segment; segment = segment->next) {
                for (block = segment->first; block; block = block->next) {
                    if (block->free && block->stream == stream)
                        block->stream = NULL;
                }
            }
        }
    }
}

void gb_host_pools_free(struct gb_host *host) {
    struct gb_host_segment *list = NULL;
    int device;

    for (device = 0; device < host->device_count; device++) {
        while (host->devices[device].pools) {
            struct gb_pool *pool = host->devices[device].pools;

            while (pool->arena.segments)
                detach_locked(pool, pool->arena.segments, &list);
            host->devices[device].pools = pool->next;
            free_pool(pool);
        }
    }
    gb_host_segment_unmap(list);
}

/* --- pools: the vtable -------------------------------------------------------------------------------------------- */

/* Checks that the device exists and has pools. The error has CUDA's number. */
static bool pools_ok(struct gb_host *host, int device, const char *call, struct gb_error *err) {
    if (!gb_host_device_ok(host, device, call, err))
        return false;
    if (!gb_host_poolless(host, device))
        return true;
    gb_host_error(err, GB_HOST_NOT_SUPPORTED, call, "device %d: %s", device, GB_HOST_NO_POOLS);
    return false;
}

int gb_host_pool_default(struct gb_backend *be, int device, struct gb_pool **ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    if (!pools_ok(host, device, "cudaDeviceGetDefaultMemPool", err))
        return -1;
    *ret = host->devices[device].default_pool;
    return 0;
}

int gb_host_pool_create(struct gb_backend *be, int device, const struct gb_pool_config *config, struct gb_pool **ret,
                        struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_pool *pool;

    if (!pools_ok(host, device, "cudaMemPoolCreate", err))
        return -1;
    pthread_mutex_lock(&host->lock);
    pool = gb_host_pool_new_locked(host, device, config);
    pthread_mutex_unlock(&host->lock);
    if (!pool)
        return gb_host_no_memory(err, "cudaMemPoolCreate");
    *ret = pool;
    return 0;
}

void gb_host_pool_destroy(struct gb_backend *be, struct gb_pool *pool) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_segment *gone;

    if (!pool)
        return;
    pthread_mutex_lock(&host->lock);
    pool->dying = true;
    host->release_wanted = true;
    gone = gb_host_release_locked(host);
    pthread_mutex_unlock(&host->lock);
    gb_host_segment_unmap(gone);
}

int gb_host_pool_config(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_config *ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    (void)err;
    pthread_mutex_lock(&host->lock);
    *ret = pool->config;
    pthread_mutex_unlock(&host->lock);
    return 0;
}

int gb_host_pool_configure(struct gb_backend *be, struct gb_pool *pool, const struct gb_pool_config *config,
                           struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    bool fixed;

    pthread_mutex_lock(&host->lock);
    fixed = config->max_bytes == pool->config.max_bytes && config->exportable == pool->config.exportable;
    if (fixed) {
        pool->config = *config;
        host->release_wanted = true;
    }
    pthread_mutex_unlock(&host->lock);
    if (!fixed)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "max_bytes and exportable are fixed when a pool is created and cannot be changed");
    return 0;
}

int gb_host_pool_stat(struct gb_backend *be, struct gb_pool *pool, struct gb_pool_stat *ret, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    (void)err;
    pthread_mutex_lock(&host->lock);
    *ret = pool->stat;
    ret->reserved_bytes -= pool->unsaid_bytes;
    pthread_mutex_unlock(&host->lock);
    return 0;
}

int gb_host_pool_reset_peak(struct gb_backend *be, struct gb_pool *pool, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);

    (void)err;
    pthread_mutex_lock(&host->lock);
    pool->stat.used_peak_bytes = pool->stat.used_bytes;
    pool->stat.reserved_peak_bytes = pool->stat.reserved_bytes;
    pthread_mutex_unlock(&host->lock);
    return 0;
}

int gb_host_pool_trim(struct gb_backend *be, struct gb_pool *pool, uint64_t keep_bytes, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_segment *gone = NULL;

    (void)err;
    pthread_mutex_lock(&host->lock);
    gb_host_arena_coalesce(&pool->arena, done_locked, NULL);
    if (pool->fd < 0)
        shrink_locked(pool, keep_bytes, true, &gone);
    else if (pool->stat.reserved_bytes > keep_bytes) /* it says so, as CUDA, and keeps all */
        pool->unsaid_bytes = pool->stat.reserved_bytes - keep_bytes;
    pthread_mutex_unlock(&host->lock);
    gb_host_segment_unmap(gone);
    return 0;
}

/* --- memory in stream order --------------------------------------------------------------------------------------- */

#define ALLOC_CALL "cudaMallocFromPoolAsync"

/* --- which stream may reuse a freed block ------------------------------------------------------------------------- */

struct asker {
    const struct gb_pool *pool;
    const struct gb_stream *stream;
};

static bool stale_locked(void *arg, const struct gb_host_block *block) {
    const struct asker *asker = arg;

    if (block->stream->synced_seq >= block->seq)
        return true;
    return asker->pool->config.allow_opportunistic && block->stream->done_seq >= block->seq;
}

static bool usable_locked(void *arg, const struct gb_host_block *block) {
    const struct asker *asker = arg;

    if (!block->stream || block->stream == asker->stream || stale_locked(arg, block))
        return true;
    return asker->pool->config.follow_event_dependencies &&
           gb_host_deps_has(&asker->stream->deps, block->stream->id, block->seq);
}

static bool any_locked(void *arg, const struct gb_host_block *block) {
    (void)arg;
    (void)block;
    return true;
}

/* Makes the stream wait for the last user of the row's first bytes. Returns 0 or -1. */
static int wait_for_row_locked(struct asker *asker, struct gb_stream *stream, struct gb_host_block *first,
                               uint64_t bytes, struct gb_error *err) {
    struct gb_host_block *block;
    uint64_t sum = 0;

    for (block = first; sum < bytes; block = block->next) {
        sum += block->bytes;
        if (!usable_locked(asker, block) &&
            gb_host_stream_follow_locked(stream, block->stream, block->seq, ALLOC_CALL, err) < 0)
            return -1;
    }
    return 0;
}

/* --- allocation --------------------------------------------------------------------------------------------------- */

/* A GPU rounds the limit up to a whole segment. */
static uint64_t limit_of(const struct gb_pool *pool) {
    uint64_t limit = pool->config.max_bytes;

    if (!pool->host->discrete)
        return limit;
    return (limit + GB_HOST_SEGMENT_BYTES - 1) / GB_HOST_SEGMENT_BYTES * GB_HOST_SEGMENT_BYTES;
}

/* The bytes that the pool may still reserve, as far as device and pool are concerned. */
static uint64_t room_of_device_locked(const struct gb_pool *pool) {
    const struct gb_host_device *device = &pool->host->devices[pool->device];
    uint64_t room = device->total_bytes - device->reserved_bytes;

    if (pool->config.max_bytes > 0) {
        uint64_t left = limit_of(pool) - pool->stat.reserved_bytes;

        room = left < room ? left : room;
    }
    return room / GB_HOST_GRAIN_BYTES * GB_HOST_GRAIN_BYTES;
}

static uint64_t room_locked(const struct gb_pool *pool) {
    uint64_t machine = gb_host_left_locked(pool->host) / GB_HOST_GRAIN_BYTES * GB_HOST_GRAIN_BYTES;
    uint64_t room = room_of_device_locked(pool);

    return machine < room ? machine : room;
}

static void reserve_locked(struct gb_pool *pool, uint64_t bytes) {
    pool->stat.reserved_bytes += bytes;
    if (pool->stat.reserved_bytes > pool->stat.reserved_peak_bytes)
        pool->stat.reserved_peak_bytes = pool->stat.reserved_bytes;
    pool->host->devices[pool->device].reserved_bytes += bytes;
}

static void unreserve_locked(struct gb_pool *pool, uint64_t bytes) {
    pool->stat.reserved_bytes -= bytes;
    pool->host->devices[pool->device].reserved_bytes -= bytes;
}

/* Adds a segment, whose first bytes are the allocation. Returns NULL without room. Drops the lock meanwhile. */
static struct gb_host_block *grow_locked(struct gb_pool *pool, uint64_t bytes) {
    struct gb_host *host = pool->host;
    struct gb_host_segment *segment;
    uint64_t room;
    uint64_t size;

    pthread_mutex_unlock(&host->lock);
    gb_host_left_read(host);
    pthread_mutex_lock(&host->lock);
    room = room_locked(pool);
    if (bytes > room)
        return NULL;
    size = (bytes + GB_HOST_HUGE_BYTES - 1) / GB_HOST_HUGE_BYTES * GB_HOST_HUGE_BYTES;
    size = size < GB_HOST_SEGMENT_BYTES ? GB_HOST_SEGMENT_BYTES : size;
    size = size > room ? room : size;
    reserve_locked(pool, size);
    pthread_mutex_unlock(&host->lock);
    segment = gb_host_segment_map(size, host->discrete);
    pthread_mutex_lock(&host->lock);
    if (segment && gb_host_ranges_reserve(&host->spans) == 0) {
        segment->pool = pool;
        segment->device = pool->device;
        gb_host_ranges_put(&host->spans, segment);
        gb_host_arena_add(&pool->arena, segment);
        gb_host_arena_cut(&pool->arena, segment->first, bytes);
        return segment->first;
    }
    unreserve_locked(pool, size);
    pthread_mutex_unlock(&host->lock);
    gb_host_segment_unmap(segment);
    pthread_mutex_lock(&host->lock);
    return NULL;
}

static struct gb_host_block *reuse_locked(struct asker *asker, struct gb_pool *pool, uint64_t bytes) {
    struct gb_host_block *block = gb_host_arena_find(&pool->arena, bytes, usable_locked, asker);

    if (!block && pool->stat.reserved_bytes - pool->stat.used_bytes >= bytes) {
        gb_host_arena_coalesce(&pool->arena, stale_locked, asker);
        block = gb_host_arena_find_row(&pool->arena, bytes, usable_locked, asker);
    }
    return block ? gb_host_arena_take(&pool->arena, block, bytes) : NULL;
}

/* Finds memory by CUDA's steps in CUDA's order: reuse, reserve more, give back idle segments for one of the right size,
 * wait for another stream's free. Returns 0 with *ret_block, NULL if memory is exhausted; -1 for another error. */
static int obtain_locked(struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes,
                         struct gb_host_block **ret_block, struct gb_host_segment **ret_gone, struct gb_error *err) {
    struct asker asker = {.pool = pool, .stream = stream};
    struct gb_host_block *block = reuse_locked(&asker, pool, bytes);

    if (!block)
        block = grow_locked(pool, bytes);
    if (!block && bytes > room_locked(pool) && pool->stat.reserved_bytes - pool->stat.used_bytes >= bytes) {
        make_room_locked(pool, bytes - room_locked(pool), ret_gone);
        block = grow_locked(pool, bytes);
    }
    if (!block && pool->config.allow_internal_dependencies) {
        block = gb_host_arena_find_row(&pool->arena, bytes, any_locked, NULL);
        if (block && wait_for_row_locked(&asker, stream, block, bytes, err) < 0)
            return -1;
        block = block ? gb_host_arena_take(&pool->arena, block, bytes) : NULL;
    }
    *ret_block = block;
    return 0;
}

static int out_of_memory_locked(const struct gb_pool *pool, uint64_t bytes, struct gb_error *err) {
    const struct gb_host_device *device = &pool->host->devices[pool->device];
    bool by_pool = pool->config.max_bytes > 0 && pool->config.max_bytes < device->total_bytes;
    uint64_t most = by_pool ? pool->config.max_bytes : device->total_bytes;
    /* Memory is given in whole grains, so the rest of a limit is not used. A GPU rounds the limit up. */
    uint64_t limit = pool->host->discrete ? most : most / GB_HOST_GRAIN_BYTES * GB_HOST_GRAIN_BYTES;
    uint64_t used = pool->stat.used_bytes;
    const struct gb_pool *other;

    if (bytes <= limit && bytes <= room_of_device_locked(pool) && gb_host_left_locked(pool->host) < bytes)
        return gb_host_left_refuse(pool->host, gb_host_left_locked(pool->host), bytes, ALLOC_CALL, err);
    for (other = by_pool ? NULL : device->pools; other; other = other->next)
        used += other == pool ? 0 : other->stat.reserved_bytes;
    gb_error_numbers(err, limit, used, bytes);
    if (bytes > limit)
        return gb_host_error(err, GB_HOST_NO_MEMORY, ALLOC_CALL,
                             "%llu bytes can never fit: of the %s's %llu, in units of %u, %llu can be given",
                             (unsigned long long)bytes, by_pool ? "pool" : "device", (unsigned long long)most,
                             GB_HOST_GRAIN_BYTES, (unsigned long long)limit);
    if (by_pool)
        return gb_host_error(
            err, GB_HOST_NO_MEMORY, ALLOC_CALL,
            "%llu bytes do not fit: of the pool's %llu, %llu are reserved and %llu of those in use; the "
            "rest is not in one piece",
            (unsigned long long)bytes, (unsigned long long)limit, (unsigned long long)pool->stat.reserved_bytes,
            (unsigned long long)used);
    return gb_host_error(err, GB_HOST_NO_MEMORY, ALLOC_CALL,
                         "%llu bytes do not fit: %llu of the device's %llu are in use or kept by other pools",
                         (unsigned long long)bytes, (unsigned long long)used, (unsigned long long)limit);
}

int gb_host_alloc(struct gb_backend *be, struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes, void **ret,
                  struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_block *block = NULL;
    struct gb_host_segment *gone = NULL;
    uint64_t rounded = (bytes + GB_HOST_GRAIN_BYTES - 1) / GB_HOST_GRAIN_BYTES * GB_HOST_GRAIN_BYTES;
    int r;

    if (bytes == 0 || pool->device != stream->device)
        return gb_host_error(err, GB_HOST_INVALID_VALUE, ALLOC_CALL,
                             bytes == 0 ? "zero bytes cannot be allocated" : "pool and stream are of two devices");
    gb_host_lock(host);
    r = rounded < bytes ? 0 : obtain_locked(pool, stream, rounded, &block, &gone, err);
    if (block && block->bytes > rounded) { /* no memory to describe the rest: the block is given back */
        gb_host_arena_give(&pool->arena, block, stream, stream->last_seq);
        r = gb_host_no_memory(err, ALLOC_CALL);
    } else if (block) {
        gb_host_blocks_put(&host->live, block);
        block->asked = bytes;
        pool->stat.used_bytes += bytes;
        if (pool->stat.used_bytes > pool->stat.used_peak_bytes)
            pool->stat.used_peak_bytes = pool->stat.used_bytes;
        *ret = gb_host_block_base(block);
    } else if (r == 0) {
        r = out_of_memory_locked(pool, bytes, err);
    }
    pthread_mutex_unlock(&host->lock);
    gb_host_segment_unmap(gone);
    return r;
}

int gb_host_free(struct gb_backend *be, void *ptr, struct gb_stream *stream, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_NOTHING};
    struct gb_host_block *block;
    struct gb_pool *pool;

    gb_host_lock(host);
    block = gb_host_blocks_take(&host->live, ptr);
    if (block) {
        pool = block->segment->pool;
        /* If memory for its own operation is exhausted, the free counts as done with the work before it. */
        (void)gb_host_submit_locked(stream, &op, "cudaFreeAsync", NULL);
        pool->stat.used_bytes -= block->asked;
        gb_host_arena_give(&pool->arena, block, stream, stream->last_seq);
        if (pool->stat.reserved_bytes > pool->config.release_threshold_bytes)
            host->release_wanted = true;
    }
    pthread_mutex_unlock(&host->lock);
    if (!block)
        return gb_host_error(err, GB_HOST_INVALID_VALUE, "cudaFreeAsync", "%p was not allocated here, or freed already",
                             ptr);
    return 0;
}

/* --- copies and fills --------------------------------------------------------------------------------------------- */

#define SLICE_BYTES (64ull << 20) /* a long copy lets others in between; shorter ones would not get past the caches */

/* --- copies and fills: the work ----------------------------------------------------------------------------------- */

static void fill(void *dst, uint64_t pattern, unsigned width, uint64_t count) {
    uint16_t *half = dst;
    uint32_t *word = dst;
    uint64_t *twin = dst;
    uint64_t i;

    if (width == 1)
        memset(dst, (int)(pattern & 0xff), count);
    for (i = 0; width == 2 && i < count; i++)
        half[i] = (uint16_t)pattern;
    for (i = 0; width == 4 && i < count; i++)
        word[i] = (uint32_t)pattern;
    for (i = 0; width == 8 && i < count; i++)
        twin[i] = pattern;
}

/* Copies the rest of the box, or a plane of it, or some rows. */
static void box_slice(char **memory, char **packed, struct gb_box *box, bool pack) {
    struct gb_box now = *box;
    uint64_t rows_max = box->width < SLICE_BYTES ? SLICE_BYTES / box->width : 1;

    if (now.rows * now.planes > rows_max)
        now.planes = 1;
    if (now.rows > rows_max && box->planes == 1)
        now.rows = rows_max;
    gb_box_copy(&now, *memory, *packed, pack);
    if (now.rows < box->rows) {
        box->rows -= now.rows;
        *memory += now.rows * now.pitch;
        *packed += now.rows * now.packed_pitch;
    } else {
        box->planes -= now.planes;
        *memory += now.planes * now.plane;
        *packed += now.planes * now.packed_plane;
    }
}

bool gb_host_worked(const struct gb_host_op *op) {
    if (op->kind == GB_HOST_COPY)
        return op->u.copy.bytes == 0;
    return op->kind == GB_HOST_BOX ? op->u.box.box.planes == 0 : op->u.fill.count == 0;
}

void gb_host_work(struct gb_host_op *op) {
    uint64_t n;

    if (op->kind == GB_HOST_COPY) {
        n = op->u.copy.bytes < SLICE_BYTES ? op->u.copy.bytes : SLICE_BYTES;
        memmove(op->u.copy.dst, op->u.copy.src, n);
        op->u.copy.dst = (char *)op->u.copy.dst + n;
        op->u.copy.src = (const char *)op->u.copy.src + n;
        op->u.copy.bytes -= n;
    } else if (op->kind == GB_HOST_BOX) {
        box_slice(&op->u.box.memory, &op->u.box.packed, &op->u.box.box, op->u.box.pack);
    } else {
        n = op->u.fill.count < SLICE_BYTES / 8 ? op->u.fill.count : SLICE_BYTES / 8;
        fill(op->u.fill.dst, op->u.fill.pattern, op->u.fill.width, n);
        op->u.fill.dst = (char *)op->u.fill.dst + n * op->u.fill.width;
        op->u.fill.count -= n;
    }
}

/* --- copies and fills: addresses ---------------------------------------------------------------------------------- */

/* The real address of the segment's bytes [p, p + bytes), or NULL if the segment does not have all of them. */
static char *real_in(const struct gb_host_segment *segment, const void *p, uint64_t bytes) {
    uint64_t offset = (uintptr_t)p - (uintptr_t)segment->base;

    return bytes <= segment->bytes - offset ? segment->real + offset : NULL;
}

/* The real address of device memory [p, p + bytes), or NULL if no segment has all of it. */
static char *real_locked(const struct gb_host *host, const void *p, uint64_t bytes) {
    const struct gb_host_segment *segment = gb_host_ranges_find(&host->spans, p);

    return segment && gb_kind_of_device(segment->kind) ? real_in(segment, p, bytes) : NULL;
}

/* The host side of a copy: any memory but a discrete device's. */
static char *host_side_locked(const struct gb_host *host, const void *p) {
    const struct gb_host_segment *segment = gb_host_ranges_find(&host->spans, p);

    return segment && segment->base != segment->real ? NULL : (char *)(uintptr_t)p;
}

/* --- copies and fills by direction -------------------------------------------------------------------------------- */

int gb_host_copy(struct gb_backend *be, void *dst, const void *src, uint64_t bytes, enum gb_copy_direction direction,
                 struct gb_stream *stream, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_COPY};
    int r;

    if (bytes == 0)
        return 0;
    gb_host_lock(host);
    op.u.copy.dst = direction == GB_COPY_FROM_DEVICE ? host_side_locked(host, dst) : real_locked(host, dst, bytes);
    op.u.copy.src = direction == GB_COPY_TO_DEVICE ? host_side_locked(host, src) : real_locked(host, src, bytes);
    op.u.copy.bytes = bytes;
    if (!op.u.copy.dst || !op.u.copy.src)
        r = gb_host_error(err, GB_HOST_INVALID_VALUE, "cudaMemcpyAsync",
                          "%llu bytes at the %s's address are not where the direction says", (unsigned long long)bytes,
                          op.u.copy.dst ? "source" : "destination");
    else
        r = gb_host_submit_locked(stream, &op, "cudaMemcpyAsync", err);
    pthread_mutex_unlock(&host->lock);
    return r;
}

int gb_host_fill(struct gb_backend *be, void *dst, uint64_t pattern, unsigned width, uint64_t count,
                 struct gb_stream *stream, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_FILL};
    uint64_t bytes;
    int r = -1;

    if (width != 1 && width != 2 && width != 4)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a fill's width is 1, 2 or 4 bytes, not %u", width);
    if (count == 0)
        return 0;
    gb_host_lock(host);
    if (!__builtin_mul_overflow(count, (uint64_t)width, &bytes) && (uintptr_t)dst % width == 0)
        op.u.fill.dst = real_locked(host, dst, bytes);
    op.u.fill.pattern = pattern;
    op.u.fill.width = width;
    op.u.fill.count = count;
    if (op.u.fill.dst)
        r = gb_host_submit_locked(stream, &op, "cudaMemset2DAsync", err);
    else
        gb_host_error(err, GB_HOST_INVALID_VALUE, "cudaMemset2DAsync",
                      "%llu elements do not lie in device memory, or are not aligned to their width",
                      (unsigned long long)count);
    pthread_mutex_unlock(&host->lock);
    return r;
}

/* --- copies and fills by place ------------------------------------------------------------------------------------ */

/* Finds the real address of a place's bytes. *ret_segment: their segment, or NULL for host memory of other origin.
 * Returns 0; -1 if the place is wrong. */
static int find_locked(const struct gb_host *host, const struct gb_location *place, uint64_t bytes, const char *call,
                       const struct gb_host_segment **ret_segment, char **ret, struct gb_error *err) {
    const struct gb_host_segment *segment = gb_host_ranges_find(&host->spans, place->ptr);
    int device = segment && segment->pool ? segment->pool->device : segment ? segment->device : place->device;
    char *real = segment ? real_in(segment, place->ptr, bytes) : (char *)place->ptr;

    if (!real || (segment ? segment->kind != place->kind : gb_kind_of_device(place->kind)) ||
        (gb_kind_of_device(place->kind) && device != place->device))
        return gb_host_error(err, GB_HOST_INVALID_VALUE, call, "%llu bytes at %p are not of kind %s of device %d",
                             (unsigned long long)bytes, place->ptr, gb_kind_name(place->kind), place->device);
    if (segment && segment->with_cpu)
        return gb_host_error(err, GB_HOST_INVALID_VALUE, call, "the managed memory at %p is attached to the CPU",
                             place->ptr);
    *ret_segment = segment;
    *ret = real;
    return 0;
}

static bool place_ok(const struct gb_host *host, const struct gb_location *place) {
    return (unsigned)place->kind < GB_KIND_COUNT && place->device >= 0 && place->device < host->device_count;
}

/* Memory of a device takes streams of that device, and a copy between two devices a stream of either. */
static bool stream_ok(const struct gb_stream *stream, const struct gb_location *a, const struct gb_location *b) {
    bool any = gb_kind_of_device(a->kind) || gb_kind_of_device(b->kind);

    return !any || (gb_kind_of_device(a->kind) && a->device == stream->device) ||
           (gb_kind_of_device(b->kind) && b->device == stream->device);
}

static enum gb_copy_way way_between_locked(const struct gb_host *host, const struct gb_location *dst,
                                           const struct gb_location *src, const struct gb_host_segment *source) {
    bool open;

    if (!gb_kind_of_device(src->kind))
        return gb_kind_of_device(dst->kind) ? GB_WAY_TO_DEVICE : GB_WAY_HOST;
    if (!gb_kind_of_device(dst->kind))
        return GB_WAY_FROM_DEVICE;
    if (dst->device == src->device)
        return GB_WAY_DEVICE;
    open = source->pool ? (source->pool->open_to & 1u << dst->device) != 0 : host->peers && src->kind != GB_KIND_IPC;
    return open ? GB_WAY_PEER : GB_WAY_STAGED;
}

int gb_host_move(struct gb_backend *be, const struct gb_location *dst, const struct gb_location *src, uint64_t bytes,
                 struct gb_stream *stream, enum gb_copy_way *ret_way, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_COPY, .u.copy.bytes = bytes};
    const struct gb_host_segment *to = NULL;
    const struct gb_host_segment *from = NULL;
    enum gb_copy_way way;
    char *real_dst = NULL;
    char *real_src = NULL;
    int r;

    if (!place_ok(host, dst) || !place_ok(host, src) || !stream_ok(stream, dst, src))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a copy from device %d to device %d has no such kind or device, or is on a stream of "
                            "device %d",
                            src->device, dst->device, stream->device);
    if (bytes == 0) {
        *ret_way = GB_WAY_NONE;
        return 0;
    }
    gb_host_lock(host);
    r = find_locked(host, dst, bytes, "cudaMemcpyAsync", &to, &real_dst, err);
    if (r == 0)
        r = find_locked(host, src, bytes, "cudaMemcpyAsync", &from, &real_src, err);
    if (r == 0) {
        way = way_between_locked(host, dst, src, from);
        op.u.copy.dst = real_dst;
        op.u.copy.src = real_src;
        r = gb_host_submit_locked(stream, &op, "cudaMemcpyAsync", err);
    }
    if (r == 0)
        *ret_way = way;
    pthread_mutex_unlock(&host->lock);
    return r;
}

int gb_host_box(struct gb_backend *be, const struct gb_location *place, void *pinned, const struct gb_box *box,
                enum gb_copy_direction direction, struct gb_stream *stream, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_BOX, .u.box = {.box = *box, .pack = direction == GB_COPY_FROM_DEVICE}};
    const struct gb_host_segment *segment = NULL;
    uint64_t extent;
    uint64_t packed;
    int r;

    if (!place_ok(host, place) || !gb_kind_of_device(place->kind) || !stream_ok(stream, place, place) ||
        (direction != GB_COPY_FROM_DEVICE && direction != GB_COPY_TO_DEVICE))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a box of memory of kind %d of device %d, on a stream of device %d, in direction %d",
                            (int)place->kind, place->device, stream->device, (int)direction);
    if (gb_box_check(box, &extent, &packed, err) < 0)
        return -1;
    if (extent == 0)
        return 0;
    gb_host_lock(host);
    r = find_locked(host, place, extent, "cudaMemcpy3DAsync", &segment, &op.u.box.memory, err);
    op.u.box.packed = host_side_locked(host, pinned);
    if (r == 0 && !op.u.box.packed)
        r = gb_host_error(err, GB_HOST_INVALID_VALUE, "cudaMemcpy3DAsync", "%p is not host memory", pinned);
    if (r == 0)
        r = gb_host_submit_locked(stream, &op, "cudaMemcpy3DAsync", err);
    pthread_mutex_unlock(&host->lock);
    return r;
}

int gb_host_location_fill(struct gb_backend *be, const struct gb_location *dst, uint64_t pattern, unsigned width,
                          uint64_t count, struct gb_stream *stream, struct gb_error *err) {
    struct gb_host *host = gb_host_of(be);
    struct gb_host_op op = {.kind = GB_HOST_FILL, .u.fill = {.pattern = pattern, .width = width, .count = count}};
    const struct gb_host_segment *segment = NULL;
    char *real = NULL;
    uint64_t bytes;
    int r;

    if (width != 1 && width != 2 && width != 4 && width != 8)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a fill's width is 1, 2, 4 or 8 bytes, not %u", width);
    if (!place_ok(host, dst) || !stream_ok(stream, dst, dst) || (uintptr_t)dst->ptr % width != 0 ||
        __builtin_mul_overflow(count, (uint64_t)width, &bytes))
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "%llu elements of width %u at %p: no such kind or device, another device's stream, too many, or "
            "not aligned",
            (unsigned long long)count, width, dst->ptr);
    if (count == 0)
        return 0;
    gb_host_lock(host);
    r = find_locked(host, dst, bytes, "cudaMemset2DAsync", &segment, &real, err);
    if (r == 0) {
        op.u.fill.dst = real;
        r = gb_host_submit_locked(stream, &op, "cudaMemset2DAsync", err);
    }
    pthread_mutex_unlock(&host->lock);
    return r;
}
