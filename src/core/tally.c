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
