#include "core/util/counters.h"

#include <stddef.h>

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

static void more(struct gb_tally *tally, size_t at) {
    atomic_fetch_add_explicit((_Atomic uint64_t *)(void *)((char *)tally + at), 1, memory_order_relaxed);
}

void gb_tally_failed(struct gb_tally *tally, enum gb_failed what, enum gb_failure why) {
#define AT(name) offsetof(struct gb_tally, name)
    static const size_t totals[GB_FAILED_COUNTED] = {AT(allocation_failures), AT(uploads_failed), AT(downloads_failed)};
    static const size_t parts[GB_FAILED_COUNTED][GB_FAILURES] = {
#define GB_FAILURE_COUNTER(what, prefix, name) [GB_FAILED_##what][GB_FAILURE_##name] = AT(prefix##_##name),
#include "model/failure_counters.def"
#undef GB_FAILURE_COUNTER
    };

    more(tally, totals[what]);
    more(tally, parts[what][gb_failure_may(why, what) ? why : GB_FAILURE_other]);
}
