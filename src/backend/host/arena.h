/* The memory under the host backend's pools: segments from the system, cut into blocks. Knows nothing of streams but
 * the tag that a free block carries; not thread-safe. */
#ifndef GB_BACKEND_HOST_ARENA_H
#define GB_BACKEND_HOST_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

struct gb_pool;
struct gb_stream;

#define GB_HOST_GRAIN_BYTES 512u
#define GB_HOST_SEGMENT_BYTES (32ull << 20)
#define GB_HOST_HUGE_BYTES (2ull << 20)
#define GB_HOST_BINS 200 /* four to a power of two, from one grain on */

struct gb_host_segment {
    struct gb_host_segment *prev;
    struct gb_host_segment *next;
    struct gb_pool *pool; /* NULL: memory by kind_alloc */
    enum gb_kind kind;    /* DEVICE for a pool's */
    int device;
    bool foreign;  /* another process's: it only ends here */
    bool with_cpu; /* managed memory that is attached to the CPU */
    char *base;    /* what users of the memory see */
    char *real;    /* where it is; differs from base when only copies may reach it */
    int fd;        /* the file that other processes may map; -1: none */
    uint64_t bytes;
    uint64_t live; /* allocated blocks */
    struct gb_host_block *first;
};

struct gb_host_block {
    struct gb_host_segment *segment;
    struct gb_host_block *prev; /* by address, within the segment */
    struct gb_host_block *next;
    struct gb_host_block *bin_prev; /* free: its bin */
    struct gb_host_block *bin_next; /* free: its bin; allocated: the next in the table of blocks */
    uint64_t offset;
    uint64_t bytes;
    uint64_t asked; /* allocated: what was asked for, which is what a pool counts as used */
    bool free;
    /* Free: the last to use it is this stream, up to its operation seq. NULL: anyone may have it. */
    struct gb_stream *stream;
    uint64_t seq;
};

struct gb_host_arena {
    struct gb_host_segment *segments;
    struct gb_host_block *bins[GB_HOST_BINS];
};

/* May this free block be used? */
typedef bool gb_host_usable_fn(void *arg, const struct gb_host_block *block);

/* Maps a segment of bytes (any size, rounded up to pages by the system), aligned to 2 MiB when it is that large.
 * hidden: base is an address range that no code can touch. Its one block is allocated, not free. NULL with errno when
 * it cannot be had. */
struct gb_host_segment *gb_host_segment_map(uint64_t bytes, bool hidden);

/* The same in a file of its own, which keeps its descriptor; without one (fd -1) where none is to be had. */
struct gb_host_segment *gb_host_segment_map_file(uint64_t bytes, bool hidden);

/* The same of a file that exists, with its bytes; fd is not closed. */
struct gb_host_segment *gb_host_segment_map_kept(int fd, uint64_t bytes, bool hidden);
/* The same bytes at two addresses: base, which faults until mprotect opens it, and real. */
struct gb_host_segment *gb_host_segment_map_twice(uint64_t bytes);

/* Bytes [offset, offset + bytes) of another process's file, and what is before and after them in their pages: foreign,
 * without a descriptor. gb_memfd_check comes first. NULL with errno. */
struct gb_host_segment *gb_host_segment_map_foreign(int fd, uint64_t offset, uint64_t bytes);

/* Unmaps and frees a list of segments linked by next. Slow: call without locks. */
void gb_host_segment_unmap(struct gb_host_segment *list);

void gb_host_arena_add(struct gb_host_arena *arena, struct gb_host_segment *segment);

/* Takes a segment without allocated blocks out, for unmapping. */
void gb_host_arena_remove(struct gb_host_arena *arena, struct gb_host_segment *segment);

/* The smallest usable free block of at least bytes, the last freed among equals; NULL without one. */
struct gb_host_block *gb_host_arena_find(struct gb_host_arena *arena, uint64_t bytes, gb_host_usable_fn *usable,
                                         void *arg);

/* The first block of the smallest row of adjacent usable free blocks that together have bytes; NULL: none. */
struct gb_host_block *gb_host_arena_find_row(struct gb_host_arena *arena, uint64_t bytes, gb_host_usable_fn *usable,
                                             void *arg);

/* Allocates bytes (a multiple of the grain) at block; a row that begins there is joined first. What is left stays free
 * with its tag, or belongs to the block when there is no memory to describe it. Returns block, tag cleared. */
struct gb_host_block *gb_host_arena_take(struct gb_host_arena *arena, struct gb_host_block *block, uint64_t bytes);

/* Cuts what is beyond bytes from an allocated block and frees it without a tag. */
void gb_host_arena_cut(struct gb_host_arena *arena, struct gb_host_block *block, uint64_t bytes);

/* Frees an allocated block with a tag and joins it with free neighbours of the same tag stream. */
void gb_host_arena_give(struct gb_host_arena *arena, struct gb_host_block *block, struct gb_stream *stream,
                        uint64_t seq);

/* Clears the tags of the free blocks that `stale` says yes to, and joins neighbours. */
void gb_host_arena_coalesce(struct gb_host_arena *arena, gb_host_usable_fn *stale, void *arg);

char *gb_host_block_base(const struct gb_host_block *block);

/* --- tables by address -------------------------------------------------------------------------------------------- */

/* Allocated blocks by their first byte. */
struct gb_host_blocks {
    struct gb_host_block **buckets;
    size_t size; /* power of two */
    size_t count;
};

/* Returns 0, or -1 when memory is exhausted. */
int gb_host_blocks_init(struct gb_host_blocks *blocks);
void gb_host_blocks_done(struct gb_host_blocks *blocks);
void gb_host_blocks_put(struct gb_host_blocks *blocks, struct gb_host_block *block);

/* Removes and returns; NULL when no block begins there. */
struct gb_host_block *gb_host_blocks_take(struct gb_host_blocks *blocks, const void *base);

/* Segments by address. */
struct gb_host_ranges {
    struct gb_host_segment **sorted;
    size_t size;
    size_t count;
};

/* Makes room for one more. Returns 0, or -1 when memory is exhausted. */
int gb_host_ranges_reserve(struct gb_host_ranges *ranges);
void gb_host_ranges_put(struct gb_host_ranges *ranges, struct gb_host_segment *segment);
void gb_host_ranges_take(struct gb_host_ranges *ranges, struct gb_host_segment *segment);

/* The segment that holds address p; NULL when none does. */
struct gb_host_segment *gb_host_ranges_find(const struct gb_host_ranges *ranges, const void *p);

#endif
