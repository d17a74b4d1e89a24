/* The host backend's tables by address. */
#include <stdlib.h>
#include <string.h>

#include "backend/host/arena.h"

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static size_t bucket_of(const struct gb_host_blocks *blocks, const void *base) {
    return (size_t)(((uintptr_t)base / GB_HOST_GRAIN_BYTES * 0x9e3779b97f4a7c15ull) >> 20) & (blocks->size - 1);
}

int gb_host_blocks_init(struct gb_host_blocks *blocks) {
    blocks->size = 256;
    blocks->count = 0;
    blocks->buckets = calloc(blocks->size, sizeof(struct gb_host_block *));
    return blocks->buckets ? 0 : -1;
}

void gb_host_blocks_done(struct gb_host_blocks *blocks) {
    free(blocks->buckets);
    blocks->buckets = NULL;
}

static void link_block(struct gb_host_blocks *blocks, struct gb_host_block *block) {
    struct gb_host_block **bucket = &blocks->buckets[bucket_of(blocks, gb_host_block_base(block))];

    block->bin_next = *bucket;
    *bucket = block;
}

/* Without memory the chains grow longer; nothing else changes. */
static void grow(struct gb_host_blocks *blocks) {
    struct gb_host_blocks bigger = {.size = blocks->size * 4, .count = blocks->count};
    size_t i;

    bigger.buckets = calloc(bigger.size, sizeof(struct gb_host_block *));
    if (!bigger.buckets)
        return;
    for (i = 0; i < blocks->size; i++) {
        while (blocks->buckets[i]) {
            struct gb_host_block *block = blocks->buckets[i];

            blocks->buckets[i] = block->bin_next;
            link_block(&bigger, block);
        }
    }
    free(blocks->buckets);
    *blocks = bigger;
}

void gb_host_blocks_put(struct gb_host_blocks *blocks, struct gb_host_block *block) {
    if (blocks->count >= blocks->size)
        grow(blocks);
    link_block(blocks, block);
    blocks->count++;
}

struct gb_host_block *gb_host_blocks_take(struct gb_host_blocks *blocks, const void *base) {
    struct gb_host_block **at = &blocks->buckets[bucket_of(blocks, base)];
    struct gb_host_block *block;

    while (*at && gb_host_block_base(*at) != base)
        at = &(*at)->bin_next;
    block = *at;
    if (block) {
        *at = block->bin_next;
        block->bin_next = NULL;
        blocks->count--;
    }
    return block;
}

/* --- segments ----------------------------------------------------------------------------------------------------- */

/* How many begin at or before p. */
static size_t rank_of(const struct gb_host_ranges *ranges, const void *p) {
    size_t low = 0;
    size_t high = ranges->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((uintptr_t)ranges->sorted[middle]->base <= (uintptr_t)p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int gb_host_ranges_reserve(struct gb_host_ranges *ranges) {
    size_t size = ranges->size > 0 ? ranges->size * 2 : 16;
    struct gb_host_segment **sorted;

    if (ranges->count < ranges->size)
        return 0;
    sorted = realloc(ranges->sorted, size * sizeof(struct gb_host_segment *));
    if (!sorted)
        return -1;
    ranges->sorted = sorted;
    ranges->size = size;
    return 0;
}

void gb_host_ranges_put(struct gb_host_ranges *ranges, struct gb_host_segment *segment) {
    size_t at = rank_of(ranges, segment->base);

    memmove(ranges->sorted + at + 1, ranges->sorted + at, (ranges->count - at) * sizeof(struct gb_host_segment *));
    ranges->sorted[at] = segment;
    ranges->count++;
}

void gb_host_ranges_take(struct gb_host_ranges *ranges, struct gb_host_segment *segment) {
    size_t after = rank_of(ranges, segment->base);

    memmove(ranges->sorted + after - 1, ranges->sorted + after,
            (ranges->count - after) * sizeof(struct gb_host_segment *));
    ranges->count--;
}

struct gb_host_segment *gb_host_ranges_find(const struct gb_host_ranges *ranges, const void *p) {
    size_t rank = rank_of(ranges, p);
    struct gb_host_segment *segment = rank > 0 ? ranges->sorted[rank - 1] : NULL;

    return segment && (uintptr_t)p - (uintptr_t)segment->base < segment->bytes ? segment : NULL;
}
