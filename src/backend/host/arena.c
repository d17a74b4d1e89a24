#include "backend/host/arena.h"

#include <stdlib.h>

static unsigned bin_of(uint64_t bytes) {
    uint64_t grains = bytes / GB_HOST_GRAIN_BYTES;
    unsigned log2;
    unsigned bin;

    if (grains < 4)
        return (unsigned)grains;
    log2 = 63u - (unsigned)__builtin_clzll(grains);
    bin = log2 * 4 - 4 + (unsigned)((grains >> (log2 - 2)) & 3);
    return bin < GB_HOST_BINS ? bin : GB_HOST_BINS - 1;
}

static void bin_put(struct gb_host_arena *arena, struct gb_host_block *block) {
    struct gb_host_block **bin = &arena->bins[bin_of(block->bytes)];

    block->free = true;
    block->bin_prev = NULL;
    block->bin_next = *bin;
    if (*bin)
        (*bin)->bin_prev = block;
    *bin = block;
}

static void bin_take(struct gb_host_arena *arena, struct gb_host_block *block) {
    if (block->bin_prev)
        block->bin_prev->bin_next = block->bin_next;
    else
        arena->bins[bin_of(block->bytes)] = block->bin_next;
    if (block->bin_next)
        block->bin_next->bin_prev = block->bin_prev;
    block->bin_prev = NULL;
    block->bin_next = NULL;
    block->free = false;
}

/* Joins block with the next one, both taken out of their bins. */
static void swallow_next(struct gb_host_block *block) {
    struct gb_host_block *next = block->next;

    block->bytes += next->bytes;
    block->next = next->next;
    if (block->next)
        block->next->prev = block;
    free(next);
}

/* --- segments ----------------------------------------------------------------------------------------------------- */

void gb_host_arena_add(struct gb_host_arena *arena, struct gb_host_segment *segment) {
    segment->prev = NULL;
    segment->next = arena->segments;
    if (segment->next)
        segment->next->prev = segment;
    arena->segments = segment;
}

void gb_host_arena_remove(struct gb_host_arena *arena, struct gb_host_segment *segment) {
    struct gb_host_block *block;

    for (block = segment->first; block; block = block->next) {
        if (block->free)
            bin_take(arena, block);
    }
    if (segment->prev)
        segment->prev->next = segment->next;
    else
        arena->segments = segment->next;
    if (segment->next)
        segment->next->prev = segment->prev;
    segment->prev = NULL;
    segment->next = NULL;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

struct gb_host_block *gb_host_arena_find(struct gb_host_arena *arena, uint64_t bytes, gb_host_usable_fn *usable,
                                         void *arg) {
    unsigned bin;

    for (bin = bin_of(bytes); bin < GB_HOST_BINS; bin++) {
        struct gb_host_block *best = NULL;
        struct gb_host_block *at;

        for (at = arena->bins[bin]; at; at = at->bin_next) {
            if (at->bytes < bytes || (best && at->bytes >= best->bytes) || !usable(arg, at))
                continue;
            best = at;
            if (at->bytes == bytes)
                break;
        }
        if (best)
            return best;
    }
    return NULL;
}

struct gb_host_block *gb_host_arena_find_row(struct gb_host_arena *arena, uint64_t bytes, gb_host_usable_fn *usable,
                                             void *arg) {
    struct gb_host_block *best = NULL;
    uint64_t best_bytes = UINT64_MAX;
    struct gb_host_segment *segment;

    for (segment = arena->segments; segment; segment = segment->next) {
        struct gb_host_block *first = NULL;
        struct gb_host_block *at;
        uint64_t sum = 0;

        if (segment->bytes < bytes)
            continue;
        for (at = segment->first; at; at = at->next) {
            bool good = at->free && usable(arg, at);

            if (good && !first) {
                first = at;
                sum = 0;
            }
            if (good)
                sum += at->bytes;
            if (first && (!good || !at->next)) {
                if (sum >= bytes && sum < best_bytes) {
                    best = first;
                    best_bytes = sum;
                }
                first = NULL;
            }
        }
    }
    return best;
}

/* Cuts block, which is in no bin, after bytes; returns the new block behind it, NULL when there is nothing to cut or no
 * memory to describe it. */
static struct gb_host_block *cut(struct gb_host_block *block, uint64_t bytes) {
    struct gb_host_block *rest;

    if (block->bytes - bytes < GB_HOST_GRAIN_BYTES)
        return NULL;
    rest = malloc(sizeof(*rest));
    if (!rest)
        return NULL;
    *rest = *block;
    rest->offset += bytes;
    rest->bytes -= bytes;
    rest->prev = block;
    block->bytes = bytes;
    block->next = rest;
    if (rest->next)
        rest->next->prev = rest;
    return rest;
}

struct gb_host_block *gb_host_arena_take(struct gb_host_arena *arena, struct gb_host_block *block, uint64_t bytes) {
    struct gb_host_block *rest;

    bin_take(arena, block);
    while (block->bytes < bytes) {
        bin_take(arena, block->next);
        /* The rest of the row keeps the tag of its last block. */
        block->stream = block->next->stream;
        block->seq = block->next->seq;
        swallow_next(block);
    }
    rest = cut(block, bytes);
    if (rest)
        bin_put(arena, rest);
    block->stream = NULL;
    block->seq = 0;
    block->segment->live++;
    return block;
}

void gb_host_arena_cut(struct gb_host_arena *arena, struct gb_host_block *block, uint64_t bytes) {
    struct gb_host_block *rest = cut(block, bytes);

    if (rest)
        bin_put(arena, rest);
}

static void join_neighbours(struct gb_host_arena *arena, struct gb_host_block *block) {
    struct gb_host_block *prev = block->prev;

    while (block->next && block->next->free && block->next->stream == block->stream) {
        bin_take(arena, block->next);
        block->seq = block->seq > block->next->seq ? block->seq : block->next->seq;
        swallow_next(block);
    }
    if (prev && prev->free && prev->stream == block->stream) {
        bin_take(arena, prev);
        prev->seq = block->seq > prev->seq ? block->seq : prev->seq;
        swallow_next(prev);
        block = prev;
    }
    bin_put(arena, block);
}

void gb_host_arena_give(struct gb_host_arena *arena, struct gb_host_block *block, struct gb_stream *stream,
                        uint64_t seq) {
    block->segment->live--;
    block->stream = stream;
    block->seq = seq;
    join_neighbours(arena, block);
}

void gb_host_arena_settle(struct gb_host_arena *arena, gb_host_usable_fn *settled, void *arg) {
    struct gb_host_segment *segment;
    struct gb_host_block *at;

    for (segment = arena->segments; segment; segment = segment->next) {
        for (at = segment->first; at; at = at->next) {
            if (!at->free || (at->stream && !settled(arg, at)))
                continue;
            at->stream = NULL;
            at->seq = 0;
            while (at->prev && at->prev->free && !at->prev->stream) {
                struct gb_host_block *prev = at->prev;

                bin_take(arena, prev);
                bin_take(arena, at);
                swallow_next(prev);
                at = prev;
                bin_put(arena, at);
            }
        }
    }
}
