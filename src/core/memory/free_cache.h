/* Memory of a pool that nobody has any more, kept for a moment: the next allocation of that size on that stream takes it
 * without the device being asked, and whoever let it go waits for no free. In a stream's own order that is what a pool
 * does as well, but a pool must be asked on the lane, and two changes of thread cost more than the rest of a small request.
 *
 * Everything that is done on the lane begins by freeing what is kept, so that nobody finds less memory than there is; what
 * nobody takes is freed after a tick or two. Only where the CPU does not reach the memory: elsewhere the pool is asked at once. */
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
    struct gb_content *first; /* linked by next; the last let go first */
    atomic_uint count;
    uint64_t bytes;
    _Atomic uint64_t last_ns; /* when one was kept last */
    uint64_t freed_ns;        /* when all were freed last; the lane's alone */
};

#define GB_FREE_CACHE_COUNT 64
#define GB_FREE_CACHE_BYTES (256ull << 20)

/* NULL when memory is exhausted. gb_free_cache_end accepts NULL; nothing is cached any more. */
struct gb_free_cache *gb_free_cache_new(void);
void gb_free_cache_end(struct gb_free_cache *free_cache);

/* [any thread, never blocks] Takes content, whose last reference is gone, whose quota is given back, and which no work on
 * another stream than its home uses. False: it is not to be kept. */
bool gb_free_cache_put(struct gb_content *content);

/* [any thread, never blocks] Memory for content, if some of that pool, home and size is kept: its ptr is set, and it is counted
 * as an allocation. */
bool gb_free_cache_take(struct gb_content *content);

/* On the lane: frees all. */
void gb_free_cache_free(void *device);

/* On the lane, each tick: frees all when none was added since the last one, and now and then in any case. True while it wants
 * to be called again. */
bool gb_free_cache_retry(struct gb_core_device *device);

#endif
