/* Pools of the host backend: configuration, statistics, and giving memory back to the system. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/host/host.h"

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

/* --- giving back -------------------------------------------------------------------------------------------------- */

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

/* Detaches idle segments while the pool holds more than keep_bytes; strict: never below it. */
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

/* Detaches idle segments of together at least bytes, or none when there are not that many. */
void gb_host_pool_make_room_locked(struct gb_pool *pool, uint64_t bytes, struct gb_host_segment **list) {
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

/* The stream's work is done and it goes away: its tags may not outlive it. */
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

/* --- the interface ------------------------------------------------------------------------------------------------ */

/* CUDA's number for what a device cannot do. */
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
    gb_host_arena_settle(&pool->arena, done_locked, NULL);
    if (pool->fd < 0)
        shrink_locked(pool, keep_bytes, true, &gone);
    else if (pool->stat.reserved_bytes > keep_bytes) /* it says so, as CUDA, and keeps all */
        pool->unsaid_bytes = pool->stat.reserved_bytes - keep_bytes;
    pthread_mutex_unlock(&host->lock);
    gb_host_segment_unmap(gone);
    return 0;
}
