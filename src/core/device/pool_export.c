/* What is kept for importers: once a pointer of a pool was exported, nothing of its memory goes back to the system
 * until the pool is destroyed. CUDA then says that less is reserved than is, so the number is kept here. */
#include "core/device/pool.h"
#include "core/runtime/runtime.h"

/* The stat_lock is held. */
static void follow_locked(struct gb_core_pool *p, uint64_t reserved_bytes) {
    uint64_t most = p->device->rec.total_bytes;

    if (reserved_bytes > p->kept_seen_bytes)
        p->kept_bytes += reserved_bytes - p->kept_seen_bytes;
    p->kept_seen_bytes = reserved_bytes;
    if (p->kept_bytes > most)
        p->kept_bytes = most;
}

void gb_core_pool_follow_locked(struct gb_core_pool *p, struct gb_pool_stat *stat) {
    if (!atomic_load(&p->exported))
        return;
    follow_locked(p, stat->reserved_bytes);
    stat->reserved_bytes = p->kept_bytes;
    if (stat->reserved_peak_bytes < stat->reserved_bytes)
        stat->reserved_peak_bytes = stat->reserved_bytes;
}

int gb_core_pool_export(struct gb_core_pool *p, const struct gb_location *place, uint64_t bytes, bool writable,
                        struct gb_export *ret, struct gb_error *err) {
    struct gb_backend *be = p->core->backend;
    struct gb_pool_stat before;

    /* The numbers of before are followed, too: the device may forget some of them with the first export. */
    if (gb_pool_stat(be, p->pool, &before, err) < 0 ||
        gb_mem_export(be, place, bytes, p->pool, GB_EXPORT_POOL, writable, ret, err) < 0)
        return -1;
    pthread_mutex_lock(&p->stat_lock);
    follow_locked(p, before.reserved_bytes); /* of the first export: all of it */
    atomic_store(&p->exported, true);
    pthread_mutex_unlock(&p->stat_lock);
    gb_core_pool_refresh(p);
    return 0;
}

uint64_t gb_core_pool_kept(struct gb_core_pool *p) {
    uint64_t kept;

    pthread_mutex_lock(&p->stat_lock);
    kept = p->kept_bytes;
    pthread_mutex_unlock(&p->stat_lock);
    return kept;
}

int gb_core_pool_trim(struct gb_core_pool *p, uint64_t keep_bytes, struct gb_error *err) {
    if (atomic_load(&p->exported))
        return 0;
    return gb_pool_trim(p->core->backend, p->pool, keep_bytes, err);
}
