#include "core/memory/free_cache.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/memory/content.h"

#define KEEP_NS (GB_LANE_TICK_MS * GB_NS_PER_MS)
#define KEEP_MAX_NS (10 * KEEP_NS)
#define LINGER_NS (20 * KEEP_NS) /* the lane goes on ticking: waking it is what is to be saved */

struct gb_free_cache *gb_free_cache_new(void) {
    struct gb_free_cache *free_cache = calloc(1, sizeof(*free_cache));

    if (free_cache)
        gb_mutex_init(&free_cache->lock);
    return free_cache;
}

void gb_free_cache_end(struct gb_free_cache *free_cache) {
    if (!free_cache)
        return;
    pthread_mutex_destroy(&free_cache->lock);
    free(free_cache);
}

bool gb_free_cache_put(struct gb_content *content) {
    struct gb_core_device *device = content->device;
    struct gb_free_cache *free_cache = device->free_cache;
    bool put;

    if (content->kind != GB_KIND_DEVICE || device->rec.cpu_access || !content->ptr)
        return false;
    pthread_mutex_lock(&free_cache->lock);
    put = atomic_load(&free_cache->count) < GB_FREE_CACHE_COUNT &&
          content->bytes <= GB_FREE_CACHE_BYTES - free_cache->bytes;
    if (put) {
        /* The statistics see it as freed. The pool's limit never does: it counts cached_bytes. */
        atomic_fetch_add(&content->pool->cached_bytes, content->bytes);
        gb_content_count_free(content);
        content->next = free_cache->first;
        free_cache->first = content;
        free_cache->bytes += content->bytes;
        atomic_fetch_add(&free_cache->count, 1);
        atomic_store(&free_cache->last_ns, gb_clock_ns());
    }
    pthread_mutex_unlock(&free_cache->lock);
    if (put)
        gb_lane_schedule_tick(&device->lane);
    return put;
}

static bool fits(const struct gb_content *cached, const struct gb_content *wanted) {
    return cached->pool == wanted->pool && cached->alloc_stream == wanted->alloc_stream &&
           cached->bytes == wanted->bytes;
}

bool gb_free_cache_take(struct gb_content *content) {
    struct gb_free_cache *free_cache = content->device->free_cache;
    struct gb_content *found = NULL;
    struct gb_content **at;

    if (atomic_load(&free_cache->count) == 0)
        return false;
    pthread_mutex_lock(&free_cache->lock);
    for (at = &free_cache->first; *at && !fits(*at, content); at = &(*at)->next)
        ;
    if (*at) {
        found = *at;
        *at = found->next;
        free_cache->bytes -= found->bytes;
        atomic_fetch_sub(&free_cache->count, 1);
    }
    pthread_mutex_unlock(&free_cache->lock);
    if (!found)
        return false;
    content->ptr = found->ptr;
    found->ptr = NULL;
    gb_content_count_alloc(content);
    atomic_fetch_add(&content->pool->reuses, 1);
    atomic_fetch_sub(&found->pool->cached_bytes, found->bytes);
    gb_content_end(found);
    return true;
}

void gb_free_cache_free(void *arg) {
    struct gb_core_device *device = arg;
    struct gb_free_cache *free_cache = device->free_cache;
    struct gb_content *list;
    struct gb_content *next;

    if (atomic_load(&free_cache->count) == 0)
        return;
    pthread_mutex_lock(&free_cache->lock);
    list = free_cache->first;
    free_cache->first = NULL;
    free_cache->bytes = 0;
    atomic_store(&free_cache->count, 0);
    pthread_mutex_unlock(&free_cache->lock);
    for (; list; list = next) {
        struct gb_core_pool *pool = gb_core_pool_ref(list->pool);
        uint64_t bytes = list->bytes;

        next = list->next;
        gb_content_free_memory(list);
        atomic_fetch_sub(&pool->cached_bytes, bytes);
        gb_core_pool_unref(pool);
    }
}

bool gb_free_cache_retry(struct gb_core_device *device) {
    uint64_t idle_ns = gb_clock_ns() - atomic_load(&device->free_cache->last_ns);
    uint64_t now_ns = gb_clock_ns();

    if (device->waiting.first || idle_ns >= KEEP_NS || now_ns - device->free_cache->freed_ns >= KEEP_MAX_NS) {
        gb_free_cache_free(device);
        device->free_cache->freed_ns = now_ns;
    }
    return atomic_load(&device->free_cache->count) > 0 || idle_ns < LINGER_NS;
}
