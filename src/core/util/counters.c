#include "core/util/counters.h"

#include <stddef.h>

void gb_live_counters_read(struct gb_live_counters *live_counters, struct gb_counters *ret) {
#define GB_COUNTER(name) ret->name = atomic_load_explicit(&live_counters->name, memory_order_relaxed);
#include "model/counters.def"
#undef GB_COUNTER
}

void gb_live_counters_set(struct gb_live_counters *live_counters, const struct gb_counters *counters) {
#define GB_COUNTER(name) atomic_store_explicit(&live_counters->name, counters->name, memory_order_relaxed);
#include "model/counters.def"
#undef GB_COUNTER
}

void gb_kind_live_counters_add(struct gb_kind_live_counters *live_counters, uint64_t bytes, uint64_t copy_ns,
                               uint64_t queue_ns) {
    atomic_fetch_add_explicit(&live_counters->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_counters->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_counters->copy_ns, copy_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_counters->queue_ns, queue_ns, memory_order_relaxed);
}

static void more(struct gb_live_counters *live_counters, size_t at) {
    atomic_fetch_add_explicit((_Atomic uint64_t *)(void *)((char *)live_counters + at), 1, memory_order_relaxed);
}

void gb_live_counters_failed(struct gb_live_counters *live_counters, enum gb_failed what, enum gb_failure why) {
#define AT(name) offsetof(struct gb_live_counters, name)
    static const size_t totals[GB_FAILED_COUNTED] = {AT(allocation_failures), AT(uploads_failed), AT(downloads_failed)};
    static const size_t parts[GB_FAILED_COUNTED][GB_FAILURES] = {
#define GB_FAILURE_COUNTER(what, prefix, name) [GB_FAILED_##what][GB_FAILURE_##name] = AT(prefix##_##name),
#include "model/failure_counters.def"
#undef GB_FAILURE_COUNTER
    };

    more(live_counters, totals[what]);
    more(live_counters, parts[what][gb_failure_may(why, what) ? why : GB_FAILURE_other]);
}

void gb_level_read(struct gb_level *level, struct gb_level_numbers *ret) {
    ret->bytes = atomic_load(&level->bytes);
    ret->peak_bytes = atomic_load(&level->peak_bytes);
    ret->largest_bytes = atomic_load(&level->largest_bytes);
}

void gb_alloc_counters_read(struct gb_alloc_counters *live_counters, struct gb_memory_numbers *ret) {
    int i;

    gb_level_read(&live_counters->level, &ret->level);
    ret->allocations = atomic_load(&live_counters->allocations);
    ret->allocated_bytes = atomic_load(&live_counters->allocated_bytes);
    ret->frees = atomic_load(&live_counters->frees);
    ret->freed_bytes = atomic_load(&live_counters->freed_bytes);
    ret->retries = atomic_load(&live_counters->retries);
    ret->trims = atomic_load(&live_counters->trims);
    ret->failures = atomic_load(&live_counters->failures);
    for (i = 0; i < GB_FAILURES; i++)
        ret->failure[i] = atomic_load(&live_counters->failure[i]);
}
