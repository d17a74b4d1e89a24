#include "core/memory/alloc_stats.h"

#include "core/memory/content.h"

/* The session and the daemon are counted apart: their numbers are in the counters. */
#define SCOPES 3

/* Memory of other kinds is in no pool. Returns how many there are. */
static int scopes_of(struct gb_content *c, struct gb_alloc_counters *ret[SCOPES]) {
    ret[0] = &c->device->memory;
    ret[1] = &c->device->core->memory[c->kind];
    ret[2] = &c->pool->memory;
    return c->kind == GB_KIND_DEVICE ? SCOPES : SCOPES - 1;
}

static void add(_Atomic uint64_t *count, uint64_t n) {
    atomic_fetch_add_explicit(count, n, memory_order_relaxed);
}

static void raise_to(_Atomic uint64_t *most, uint64_t value) {
    uint64_t before = atomic_load_explicit(most, memory_order_relaxed);

    while (value > before && !atomic_compare_exchange_weak(most, &before, value))
        ;
}

static void level_up(struct gb_level *level, uint64_t bytes) {
    raise_to(&level->peak_bytes, atomic_fetch_add_explicit(&level->bytes, bytes, memory_order_relaxed) + bytes);
    raise_to(&level->largest_bytes, bytes);
}

static void level_down(struct gb_level *level, uint64_t bytes) {
    atomic_fetch_sub_explicit(&level->bytes, bytes, memory_order_relaxed);
}

void gb_alloc_stats_taken(struct gb_content *c) {
    struct gb_core *core = c->device->core;
    struct gb_alloc_counters *scopes[SCOPES];
    int n = scopes_of(c, scopes);
    int i;

    for (i = 0; i < n; i++) {
        level_up(&scopes[i]->level, c->bytes);
        add(&scopes[i]->allocations, 1);
        atomic_fetch_add(&scopes[i]->allocated_bytes, c->bytes); /* ordered: a pool's limit is held against it */
    }
    level_up(&core->level, c->bytes);
    level_up(&c->session->level, c->bytes);
    GB_COUNT(core, c->session, allocations, 1);
    GB_COUNT(core, c->session, allocated_bytes, c->bytes);
}

void gb_alloc_stats_freed(struct gb_content *c) {
    struct gb_core *core = c->device->core;
    struct gb_alloc_counters *scopes[SCOPES];
    int n = scopes_of(c, scopes);
    int i;

    for (i = 0; i < n; i++) {
        level_down(&scopes[i]->level, c->bytes);
        add(&scopes[i]->frees, 1);
        atomic_fetch_add(&scopes[i]->freed_bytes, c->bytes);
    }
    level_down(&core->level, c->bytes);
    level_down(&c->session->level, c->bytes);
    GB_COUNT(core, c->session, frees, 1);
    GB_COUNT(core, c->session, freed_bytes, c->bytes);
}

void gb_alloc_stats_retried(struct gb_content *c) {
    struct gb_alloc_counters *scopes[SCOPES];
    int n = scopes_of(c, scopes);
    int i;

    for (i = 0; i < n; i++)
        add(&scopes[i]->retries, 1);
    GB_COUNT(c->device->core, c->session, allocation_retries, 1);
}

void gb_alloc_stats_trimmed(struct gb_content *c, unsigned pools) {
    struct gb_alloc_counters *scopes[SCOPES];
    int n = scopes_of(c, scopes);
    int i;

    for (i = 0; i < n; i++)
        add(&scopes[i]->trims, pools);
    GB_COUNT(c->device->core, c->session, trims, pools);
}

void gb_alloc_stats_refused(struct gb_content *c, const struct gb_error *error, bool pool_limit) {
    enum gb_failure why = pool_limit && error->code == GB_ERR_OUT_OF_MEMORY
                              ? GB_FAILURE_pool_limit
                              : gb_failure_of(error->code, GB_FAILED_POOL);
    struct gb_alloc_counters *scopes[SCOPES];
    int n = scopes_of(c, scopes);
    int i;

    for (i = 0; i < n; i++) {
        add(&scopes[i]->failures, 1);
        add(&scopes[i]->failure[why], 1);
    }
    gb_live_counters_failed(&c->device->core->live_counters, GB_FAILED_ALLOCATION, why);
    gb_live_counters_failed(&c->session->live_counters, GB_FAILED_ALLOCATION, why);
}
