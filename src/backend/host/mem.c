/* Memory of the host backend in stream order: allocation under CUDA's three reuse policies, and free. */
#include <stdlib.h>
#include <string.h>

#include "backend/host/host.h"

#define ALLOC_CALL "cudaMallocFromPoolAsync"

/* --- which stream may reuse a freed block ------------------------------------------------------------------------- */

struct asker {
    const struct gb_pool *pool;
    const struct gb_stream *stream;
};

static bool settled_locked(void *arg, const struct gb_host_block *block) {
    const struct asker *asker = arg;

    if (block->stream->synced_seq >= block->seq)
        return true;
    return asker->pool->config.allow_opportunistic && block->stream->done_seq >= block->seq;
}

static bool usable_locked(void *arg, const struct gb_host_block *block) {
    const struct asker *asker = arg;

    if (!block->stream || block->stream == asker->stream || settled_locked(arg, block))
        return true;
    return asker->pool->config.follow_event_dependencies &&
           gb_host_deps_has(&asker->stream->deps, block->stream->id, block->seq);
}

static bool any_locked(void *arg, const struct gb_host_block *block) {
    (void)arg;
    (void)block;
    return true;
}

/* Makes the stream wait for the stream that last used the row's first bytes. */
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

/* What the pool may still reserve. */
static uint64_t room_locked(const struct gb_pool *pool) {
    const struct gb_host_device *device = &pool->host->devices[pool->device];
    uint64_t room = device->total_bytes - device->reserved_bytes;

    if (pool->config.max_bytes > 0) {
        uint64_t left = limit_of(pool) - pool->stat.reserved_bytes;

        room = left < room ? left : room;
    }
    return room / GB_HOST_GRAIN_BYTES * GB_HOST_GRAIN_BYTES;
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

/* A new segment, whose first bytes are the allocation. NULL: no room. Drops the lock meanwhile. */
static struct gb_host_block *grow_locked(struct gb_pool *pool, uint64_t bytes) {
    struct gb_host *host = pool->host;
    struct gb_host_segment *segment;
    uint64_t room = room_locked(pool);
    uint64_t size;

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
        gb_host_arena_settle(&pool->arena, settled_locked, asker);
        block = gb_host_arena_find_row(&pool->arena, bytes, usable_locked, asker);
    }
    return block ? gb_host_arena_take(&pool->arena, block, bytes) : NULL;
}

/* The steps in CUDA's order: reuse, reserve more, give idle segments up for one of the right size, wait for another
 * stream's free. On success *ret_block is set; NULL there: out of memory. -1: another error. */
static int obtain_locked(struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes,
                         struct gb_host_block **ret_block, struct gb_host_segment **ret_gone, struct gb_error *err) {
    struct asker asker = {.pool = pool, .stream = stream};
    struct gb_host_block *block = reuse_locked(&asker, pool, bytes);

    if (!block)
        block = grow_locked(pool, bytes);
    if (!block && bytes > room_locked(pool) && pool->stat.reserved_bytes - pool->stat.used_bytes >= bytes) {
        gb_host_pool_make_room_locked(pool, bytes - room_locked(pool), ret_gone);
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
    /* Memory is given in whole grains: the rest of a limit holds nothing. A GPU rounds the limit up. */
    uint64_t limit = pool->host->discrete ? most : most / GB_HOST_GRAIN_BYTES * GB_HOST_GRAIN_BYTES;
    uint64_t used = pool->stat.used_bytes;
    const struct gb_pool *other;

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
    pthread_mutex_lock(&host->lock);
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

    pthread_mutex_lock(&host->lock);
    block = gb_host_blocks_take(&host->live, ptr);
    if (block) {
        pool = block->segment->pool;
        /* Without memory for a place of its own, the free takes that of the work before it. */
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
