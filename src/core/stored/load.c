#include "core/stored/load.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/stored/host_tier.h"

void gb_load_unref_locked(struct gb_load *load) {
    if (load && --load->refs == 0)
        free(load);
}

struct gb_loads *gb_loads_new(void) {
    struct gb_loads *loads = calloc(1, sizeof(*loads));

    if (!loads)
        return NULL;
    gb_mutex_init(&loads->lock);
    TAILQ_INIT(&loads->waiters);
    return loads;
}

void gb_loads_free(struct gb_loads *loads) {
    if (!loads)
        return;
    pthread_mutex_destroy(&loads->lock);
    free(loads);
}

uint64_t gb_loads_sequence(struct gb_core *core) {
    return atomic_load(&core->loads->ended);
}

bool gb_loads_wait(struct gb_core *core, uint64_t sequence, struct gb_load_waiter *waiter) {
    struct gb_loads *loads = core->loads;
    bool waits;

    pthread_mutex_lock(&loads->lock);
    waits = atomic_load(&loads->ended) == sequence;
    if (waits)
        TAILQ_INSERT_TAIL(&loads->waiters, waiter, link);
    waiter->listed = waits;
    pthread_mutex_unlock(&loads->lock);
    return waits;
}

void gb_loads_leave(struct gb_core *core, struct gb_load_waiter *waiter) {
    pthread_mutex_lock(&core->loads->lock);
    if (waiter->listed)
        TAILQ_REMOVE(&core->loads->waiters, waiter, link);
    waiter->listed = false;
    pthread_mutex_unlock(&core->loads->lock);
}

void gb_loads_ended(struct gb_core *core) {
    struct gb_loads *loads = core->loads;
    struct gb_load_waiter *waiter;

    pthread_mutex_lock(&loads->lock);
    atomic_fetch_add(&loads->ended, 1);
    while ((waiter = TAILQ_FIRST(&loads->waiters))) {
        TAILQ_REMOVE(&loads->waiters, waiter, link);
        waiter->listed = false;
        waiter->waker.fn(waiter->waker.arg);
    }
    pthread_mutex_unlock(&loads->lock);
}

static uint64_t behind_ns(struct gb_core *core) {
    uint64_t since_ns = atomic_load(&core->behind_since_ns);
    uint64_t now_ns = gb_clock_ns();

    return since_ns > 0 && now_ns > since_ns ? now_ns - since_ns : 0;
}

void gb_storage_stat(struct gb_core *core, struct gb_storage_numbers *ret) {
    struct gb_host_tier_stat host;

    gb_host_tier_stat(core, &host);
    *ret = (struct gb_storage_numbers){
        .buffers = atomic_load(&core->stored_buffers),
        .bytes = atomic_load(&core->stored_bytes),
        .movable_bytes = atomic_load(&core->movable_bytes),
        .behind = {atomic_load(&core->behind_buffers), atomic_load(&core->behind_bytes), behind_ns(core)},
        .loads = atomic_load(&core->loads->loaded),
        .loaded_bytes = atomic_load(&core->loads->loaded_bytes),
        .load_failures = atomic_load(&core->loads->failed),
        .evictions = atomic_load(&core->loads->evicted),
        .evictions_for_room = atomic_load(&core->loads->evicted_for_room),
        .reloads = atomic_load(&core->loads->reloaded),
        .evictions_to_host = atomic_load(&core->loads->evicted_to_host),
        .loads_from_host = atomic_load(&core->loads->loaded_from_host),
        .host = {host.limit_bytes, host.used_bytes, host.kept_bytes, host.blocks},
        .cold_reads = atomic_load(&core->loads->cold_reads)};
    if (core->config.disk) {
        ret->present = true;
        gb_disk_stat(core->config.disk, &ret->disk);
        ret->commits = gb_store_durable_health(core->store, &ret->commit_error) == 0;
    }
}
