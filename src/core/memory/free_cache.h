/* Freed pool memory is cached briefly. An allocation with the same pool, stream and size reuses it without asking the
 * device, and the request that freed it waits for no free. In a stream's own order a pool does the same, but a pool
 * must be asked on the lane, and two changes of thread cost more than the rest of a small request.
 *
 * All work on the lane begins by freeing the cached memory, so that no allocation finds less memory than there is.
 * Memory that is not reused is freed after a tick or two. Only memory that the CPU does not reach is cached: elsewhere
 * the pool is asked at once. */
#ifndef GB_CORE_MEMORY_FREE_CACHE_H
#define GB_CORE_MEMORY_FREE_CACHE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gb_content;
struct gb_core_device;

struct gb_free_cache {
    pthread_mutex_t lock;     /* a leaf */
    struct gb_content *first; /* linked by next; the one freed last first */
    atomic_uint count;
    uint64_t bytes;
    _Atomic uint64_t last_ns; /* when memory was cached last */
    uint64_t freed_ns;        /* when all were freed last; the lane's alone */
};

#define GB_FREE_CACHE_COUNT 64
#define GB_FREE_CACHE_BYTES (256ull << 20)

/* NULL if memory is exhausted. gb_free_cache_end accepts NULL; the cache is empty by then. */
struct gb_free_cache *gb_free_cache_new(void);
void gb_free_cache_end(struct gb_free_cache *free_cache);

/* Caches the memory of content, whose last reference is gone, whose quota is given back, and which no work on another
 * stream than its alloc_stream uses. False: it is not to be cached. [any thread, never blocks] */
bool gb_free_cache_put(struct gb_content *content);

/* Gives content cached memory of its pool, alloc_stream and size: sets its ptr and counts an allocation. False: there
 * is none. [any thread, never blocks] */
bool gb_free_cache_take(struct gb_content *content);

/* Frees all cached memory. On the lane. */
void gb_free_cache_free(void *device);

/* Frees all cached memory if none was added since the last tick, and now and then in any case. True while it must be
 * called again. On the lane, at each tick. */
bool gb_free_cache_retry(struct gb_core_device *device);

#endif
