/* The host backend's arena: blocks and segments, compared with a model that records the owner of every byte. */
#include <stdlib.h>
#include <string.h>

#include "backend/host/arena.h"
#include "gb_test.h"

#define GRAIN GB_HOST_GRAIN_BYTES
#define MIB (1ull << 20)

static bool anyone(void *arg, const struct gb_host_block *block) {
    (void)arg;
    (void)block;
    return true;
}

/* arg: a stream; its blocks and the untagged ones are usable. */
static bool own(void *arg, const struct gb_host_block *block) {
    return !block->stream || block->stream == arg;
}

static struct gb_stream *tag(unsigned i) {
    static char streams[8];

    return (struct gb_stream *)(void *)&streams[i];
}

/* Every segment: blocks adjoin, cover it, and are counted; every free block is in a bin exactly once. */
static void check_arena(struct gb_host_arena *arena) {
    struct gb_host_segment *segment;
    struct gb_host_block *block;
    size_t in_bins = 0;
    size_t free_blocks = 0;
    unsigned i;

    for (segment = arena->segments; segment; segment = segment->next) {
        uint64_t at = 0;
        uint64_t live = 0;

        for (block = segment->first; block; block = block->next) {
            ck_assert_uint_eq(block->offset, at);
            ck_assert_uint_gt(block->bytes, 0);
            ck_assert_ptr_eq(block->segment, segment);
            ck_assert(!block->next || block->next->prev == block);
            ck_assert_msg(!block->free || !block->next || !block->next->free || block->next->stream != block->stream,
                          "two free neighbours of one tag");
            at += block->bytes;
            live += !block->free;
            free_blocks += block->free;
        }
        ck_assert_uint_eq(at, segment->bytes);
        ck_assert_uint_eq(live, segment->live);
    }
    for (i = 0; i < GB_HOST_BINS; i++) {
        for (block = arena->bins[i]; block; block = block->bin_next) {
            ck_assert(block->free);
            ck_assert(!block->bin_next || block->bin_next->bin_prev == block);
            in_bins++;
        }
    }
    ck_assert_uint_eq(in_bins, free_blocks);
}

static struct gb_host_segment *add_segment(struct gb_host_arena *arena, uint64_t bytes) {
    struct gb_host_segment *segment = gb_host_segment_map(bytes, false);

    ck_assert_ptr_nonnull(segment);
    gb_host_arena_add(arena, segment);
    gb_host_arena_give(arena, segment->first, NULL, 0);
    return segment;
}

static void done(struct gb_host_arena *arena) {
    while (arena->segments) {
        struct gb_host_segment *segment = arena->segments;

        gb_host_arena_remove(arena, segment);
        gb_host_segment_unmap(segment);
    }
}

START_TEST(random_work_agrees_with_the_model) {
    enum { SLOTS = 200, STEPS = 20000 };
    struct gb_host_arena arena = {.segments = NULL};
    struct gb_host_block *live[SLOTS] = {NULL};
    unsigned char mark[SLOTS] = {0};
    unsigned seed = 12345;
    unsigned full = 0;
    int step;
    int i;

    for (i = 0; i < 4; i++)
        add_segment(&arena, 4 * MIB);
    for (step = 0; step < STEPS; step++) {
        int slot = rand_r(&seed) % SLOTS;
        struct gb_stream *stream = tag((unsigned)rand_r(&seed) % 3);

        if (live[slot]) {
            /* The first and the last byte still hold this slot's mark, so the memory was not given out twice. */
            char *p = gb_host_block_base(live[slot]);

            ck_assert_uint_eq((unsigned char)p[0], mark[slot]);
            ck_assert_uint_eq((unsigned char)p[live[slot]->bytes - 1], mark[slot]);
            gb_host_arena_give(&arena, live[slot], stream, (uint64_t)step + 1);
            live[slot] = NULL;
        } else {
            uint64_t bytes = (1 + (uint64_t)rand_r(&seed) % (rand_r(&seed) % 8 == 0 ? 2000 : 60)) * GRAIN;
            struct gb_host_block *block = gb_host_arena_find(&arena, bytes, own, stream);

            if (!block)
                block = gb_host_arena_find_row(&arena, bytes, anyone, NULL);
            full += !block;
            if (block) {
                live[slot] = gb_host_arena_take(&arena, block, bytes);
                ck_assert(!live[slot]->free);
                ck_assert_uint_eq(live[slot]->bytes, bytes);
                mark[slot] = (unsigned char)step;
                memset(gb_host_block_base(live[slot]), mark[slot], bytes);
            }
        }
        if (step % 500 == 0) {
            gb_host_arena_coalesce(&arena, own, tag((unsigned)step / 500 % 3));
            check_arena(&arena);
        }
    }
    ck_assert_uint_gt(full, 0); /* the arena was full at least once */
    for (i = 0; i < SLOTS; i++) {
        if (live[i])
            gb_host_arena_give(&arena, live[i], NULL, 0);
    }
    gb_host_arena_coalesce(&arena, anyone, NULL);
    check_arena(&arena);
    ck_assert_ptr_null(arena.segments->first->next); /* all blocks are merged */
    done(&arena);
}
END_TEST

START_TEST(the_best_fit_is_found) {
    struct gb_host_arena arena = {.segments = NULL};
    struct gb_host_segment *segment = add_segment(&arena, 4 * MIB);
    struct gb_host_block *blocks[6];
    struct gb_host_block *hit;
    int i;

    /* Holes of 10, 30 and 20 grains between walls of 9. */
    static const uint64_t grains[6] = {10, 9, 30, 9, 20, 9};

    for (i = 0; i < 6; i++)
        blocks[i] =
            gb_host_arena_take(&arena, gb_host_arena_find(&arena, grains[i] * GRAIN, anyone, NULL), grains[i] * GRAIN);
    gb_host_arena_give(&arena, blocks[0], NULL, 0);
    gb_host_arena_give(&arena, blocks[2], tag(1), 5);
    gb_host_arena_give(&arena, blocks[4], tag(2), 6);
    hit = gb_host_arena_find(&arena, 11 * GRAIN, anyone, NULL);
    ck_assert_ptr_eq(hit, blocks[4]);
    hit = gb_host_arena_find(&arena, 11 * GRAIN, own, tag(1));
    ck_assert_ptr_eq(hit, blocks[2]);
    hit = gb_host_arena_find(&arena, 10 * GRAIN, own, tag(1));
    ck_assert_ptr_eq(hit, blocks[0]);
    hit = gb_host_arena_find(&arena, 31 * GRAIN, own, tag(1));
    ck_assert_uint_eq(hit->offset, 87 * GRAIN); /* after all of them */
    ck_assert_ptr_null(gb_host_arena_find(&arena, 4 * MIB, anyone, NULL));
    /* The remainder of a split block keeps the tag. */
    hit = gb_host_arena_take(&arena, blocks[2], 5 * GRAIN);
    ck_assert(hit->next->free && hit->next->stream == tag(1) && hit->next->seq == 5);
    ck_assert_uint_eq(hit->next->bytes, 25 * GRAIN);
    ck_assert_uint_eq(segment->live, 4);
    check_arena(&arena);
    done(&arena);
}
END_TEST

START_TEST(rows_of_neighbours_are_joined) {
    struct gb_host_arena arena = {.segments = NULL};
    struct gb_host_block *blocks[4];
    struct gb_host_block *hit;
    int i;

    add_segment(&arena, 40 * GRAIN);
    for (i = 0; i < 4; i++)
        blocks[i] = gb_host_arena_take(&arena, gb_host_arena_find(&arena, 10 * GRAIN, anyone, NULL), 10 * GRAIN);
    gb_host_arena_give(&arena, blocks[0], tag(0), 1);
    gb_host_arena_give(&arena, blocks[1], tag(1), 2);
    gb_host_arena_give(&arena, blocks[2], tag(0), 3);
    ck_assert_ptr_null(gb_host_arena_find(&arena, 15 * GRAIN, anyone, NULL));
    ck_assert_ptr_null(gb_host_arena_find_row(&arena, 15 * GRAIN, own, tag(0)));
    ck_assert_ptr_null(gb_host_arena_find_row(&arena, 31 * GRAIN, anyone, NULL));
    hit = gb_host_arena_find_row(&arena, 25 * GRAIN, anyone, NULL);
    ck_assert_ptr_eq(hit, blocks[0]);
    hit = gb_host_arena_take(&arena, hit, 25 * GRAIN);
    ck_assert_uint_eq(hit->bytes, 25 * GRAIN);
    ck_assert_uint_eq(hit->next->bytes, 5 * GRAIN);
    ck_assert_ptr_eq(hit->next->stream, tag(0));
    ck_assert_uint_eq(hit->next->seq, 3);
    check_arena(&arena);
    done(&arena);
}
END_TEST

START_TEST(segments_are_found_by_address) {
    struct gb_host_ranges ranges = {.count = 0};
    struct gb_host_segment *segments[40];
    int i;

    for (i = 0; i < 40; i++) {
        segments[i] = gb_host_segment_map(3 * 4096, i % 2 == 0);
        ck_assert_ptr_nonnull(segments[i]);
        ck_assert_int_eq(gb_host_ranges_reserve(&ranges), 0);
        gb_host_ranges_put(&ranges, segments[i]);
    }
    for (i = 0; i < 40; i++) {
        ck_assert_ptr_eq(gb_host_ranges_find(&ranges, segments[i]->base), segments[i]);
        ck_assert_ptr_eq(gb_host_ranges_find(&ranges, segments[i]->base + 3 * 4096 - 1), segments[i]);
        ck_assert_ptr_ne(gb_host_ranges_find(&ranges, segments[i]->base - 1), segments[i]);
        ck_assert_ptr_ne(gb_host_ranges_find(&ranges, segments[i]->base + 3 * 4096), segments[i]);
    }
    for (i = 0; i < 40; i += 3)
        gb_host_ranges_take(&ranges, segments[i]);
    for (i = 0; i < 40; i++)
        ck_assert_ptr_eq(gb_host_ranges_find(&ranges, segments[i]->base + 4096), i % 3 == 0 ? NULL : segments[i]);
    for (i = 0; i < 40; i++)
        gb_host_segment_unmap(segments[i]);
    free(ranges.sorted);
}
END_TEST

START_TEST(blocks_are_found_by_address) {
    enum { COUNT = 3000 };
    struct gb_host_arena arena = {.segments = NULL};
    struct gb_host_blocks table;
    struct gb_host_block **blocks = calloc(COUNT, sizeof(struct gb_host_block *));
    int i;

    ck_assert_ptr_nonnull(blocks);
    ck_assert_int_eq(gb_host_blocks_init(&table), 0);
    add_segment(&arena, 4 * MIB);
    for (i = 0; i < COUNT; i++) {
        blocks[i] = gb_host_arena_take(&arena, gb_host_arena_find(&arena, GRAIN, anyone, NULL), GRAIN);
        gb_host_blocks_put(&table, blocks[i]);
    }
    for (i = COUNT - 1; i >= 0; i--) {
        char *base = gb_host_block_base(blocks[i]);

        ck_assert_ptr_null(gb_host_blocks_take(&table, base + 1));
        ck_assert_ptr_eq(gb_host_blocks_take(&table, base), blocks[i]);
        ck_assert_ptr_null(gb_host_blocks_take(&table, base));
    }
    gb_host_blocks_done(&table);
    free(blocks);
    done(&arena);
}
END_TEST

START_TEST(large_segments_are_aligned_for_huge_pages) {
    struct gb_host_segment *plain = gb_host_segment_map(GB_HOST_SEGMENT_BYTES, false);
    struct gb_host_segment *hidden = gb_host_segment_map(GB_HOST_SEGMENT_BYTES + 3 * 512, true);

    ck_assert_ptr_nonnull(plain);
    ck_assert_ptr_nonnull(hidden);
    ck_assert_uint_eq((uintptr_t)plain->base % GB_HOST_HUGE_BYTES, 0);
    ck_assert_ptr_eq(plain->base, plain->real);
    ck_assert_uint_eq((uintptr_t)hidden->base % GB_HOST_HUGE_BYTES, 0);
    ck_assert_ptr_ne(hidden->base, hidden->real);
    memset(hidden->real, 1, hidden->bytes);
    gb_host_segment_unmap(plain);
    gb_host_segment_unmap(hidden);
    ck_assert_ptr_null(gb_host_segment_map(1ull << 60, false));
    ck_assert_ptr_null(gb_host_segment_map(UINT64_MAX, true));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host arena");

    gb_test_add(suite, "random work", random_work_agrees_with_the_model, 60);
    gb_test_add(suite, "best fit", the_best_fit_is_found, 10);
    gb_test_add(suite, "rows", rows_of_neighbours_are_joined, 10);
    gb_test_add(suite, "segments by address", segments_are_found_by_address, 10);
    gb_test_add(suite, "blocks by address", blocks_are_found_by_address, 10);
    gb_test_add(suite, "huge pages", large_segments_are_aligned_for_huge_pages, 10);
    return gb_test_run(suite);
}
