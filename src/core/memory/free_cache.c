#include "core/memory/free_cache.h"

#include "base/clock.h"
#include "core/memory/content.h"

#define KEEP_NS (GB_LANE_TICK_MS * GB_NS_PER_MS)
#define KEEP_MAX_NS (10 * KEEP_NS)
#define LINGER_NS (20 * KEEP_NS) /* the lane goes on ticking: waking it is what is to be saved */

void gb_kept_init(struct gb_kept *kept) {
    pthread_mutex_init(&kept->lock, NULL);
}

void gb_kept_done(struct gb_kept *kept) {
    pthread_mutex_destroy(&kept->lock);
}

bool gb_kept_put(struct gb_content *content) {
    struct gb_core_device *device = content->device;
    struct gb_kept *kept = &device->kept;
    bool put;

    if (content->kind != GB_KIND_DEVICE || device->rec.cpu_access || !content->ptr)
        return false;
    pthread_mutex_lock(&kept->lock);
    put = atomic_load(&kept->count) < GB_KEPT_COUNT && content->bytes <= GB_KEPT_BYTES - kept->bytes;
    if (put) {
        /* For everyone who looks it is free; for the pool's limit it is not, at no moment. */
        atomic_fetch_add(&content->pool->kept_bytes, content->bytes);
        gb_content_count_free(content);
        content->next = kept->first;
        kept->first = content;
        kept->bytes += content->bytes;
        atomic_fetch_add(&kept->count, 1);
        atomic_store(&kept->last_ns, gb_clock_ns());
    }
    pthread_mutex_unlock(&kept->lock);
    if (put)
        gb_lane_tend(&device->lane);
    return put;
}

static bool fits(const struct gb_content *kept, const struct gb_content *wanted) {
    return kept->pool == wanted->pool && kept->home == wanted->home && kept->bytes == wanted->bytes;
}

bool gb_kept_take(struct gb_content *content) {
    struct gb_kept *kept = &content->device->kept;
    struct gb_content *found = NULL;
    struct gb_content **at;

    if (atomic_load(&kept->count) == 0)
        return false;
    pthread_mutex_lock(&kept->lock);
    for (at = &kept->first; *at && !fits(*at, content); at = &(*at)->next)
        ;
    if (*at) {
        found = *at;
        *at = found->next;
        kept->bytes -= found->bytes;
        atomic_fetch_sub(&kept->count, 1);
    }
    pthread_mutex_unlock(&kept->lock);
    if (!found)
        return false;
    content->ptr = found->ptr;
    found->ptr = NULL;
    gb_content_count_alloc(content);
    atomic_fetch_sub(&found->pool->kept_bytes, found->bytes);
    gb_content_end(found);
    return true;
}

void gb_kept_free(void *arg) {
    struct gb_core_device *device = arg;
    struct gb_kept *kept = &device->kept;
    struct gb_content *list;
    struct gb_content *next;

    if (atomic_load(&kept->count) == 0)
        return;
    pthread_mutex_lock(&kept->lock);
    list = kept->first;
    kept->first = NULL;
    kept->bytes = 0;
    atomic_store(&kept->count, 0);
    pthread_mutex_unlock(&kept->lock);
    for (; list; list = next) {
        struct gb_core_pool *pool = gb_core_pool_ref(list->pool);
        uint64_t bytes = list->bytes;

        next = list->next;
        gb_content_free_memory(list);
        atomic_fetch_sub(&pool->kept_bytes, bytes);
        gb_core_pool_unref(pool);
    }
}

bool gb_kept_again(struct gb_core_device *device) {
    uint64_t idle_ns = gb_clock_ns() - atomic_load(&device->kept.last_ns);
    uint64_t now_ns = gb_clock_ns();

    if (device->starved || idle_ns >= KEEP_NS || now_ns - device->kept.freed_ns >= KEEP_MAX_NS) {
        gb_kept_free(device);
        device->kept.freed_ns = now_ns;
    }
    return atomic_load(&device->kept.count) > 0 || idle_ns < LINGER_NS;
}
