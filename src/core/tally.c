#include "core/tally.h"

void gb_tally_read(struct gb_tally *tally, struct gb_counters *ret) {
#define GB_COUNTER(name) ret->name = atomic_load_explicit(&tally->name, memory_order_relaxed);
#include "model/counters.def"
#undef GB_COUNTER
}

void gb_tally_set(struct gb_tally *tally, const struct gb_counters *counters) {
#define GB_COUNTER(name) atomic_store_explicit(&tally->name, counters->name, memory_order_relaxed);
#include "model/counters.def"
#undef GB_COUNTER
}

void gb_kind_tally_add(struct gb_kind_tally *tally, uint64_t bytes, uint64_t copy_ns, uint64_t queue_ns) {
    atomic_fetch_add_explicit(&tally->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&tally->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&tally->copy_ns, copy_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&tally->queue_ns, queue_ns, memory_order_relaxed);
}
