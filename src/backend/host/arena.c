/* Segments, which are memory from the system (by one address or two, in a file of its own or not), and the arenas that
 * cut them into blocks. memory.c and share.c of the backends call this, and hold the lock of an arena; a segment is
 * mapped and unmapped without one. */
#include "backend/host/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/common.h"

/* --- segment ------------------------------------------------------------------------------------------------------ */

/* What clients store is no business of a core dump. */
static void keep_from_dumps(char *base, uint64_t bytes) {
    (void)madvise(base, bytes, MADV_DONTDUMP);
}

/* fd -1: anonymous. */
static char *map_aligned(int fd, uint64_t bytes, int protection) {
    uint64_t align = bytes >= GB_HOST_HUGE_BYTES ? GB_HOST_HUGE_BYTES : 0;
    char *raw =
        mmap(NULL, bytes + align, fd < 0 ? protection : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *base = raw;

    if (raw == MAP_FAILED)
        return NULL;
    if (align > 0) {
        uint64_t before = (align - (uintptr_t)raw % align) % align;

        base = raw + before;
        if (before > 0)
            munmap(raw, before);
        if (align > before)
            munmap(base + bytes, align - before);
    }
    if (fd >= 0 && mmap(base, bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(base, bytes);
        return NULL;
    }
    if (align > 0 && protection != PROT_NONE)
        madvise(base, bytes, MADV_HUGEPAGE);
    keep_from_dumps(base, bytes);
    return base;
}

/* Around mapped memory. NULL without memory for it; nothing is unmapped then. */
static struct gb_host_segment *segment_new(char *base, char *real, uint64_t bytes, int fd) {
    struct gb_host_segment *segment = calloc(1, sizeof(*segment));
    struct gb_host_block *block = calloc(1, sizeof(*block));

    if (!segment || !block) {
        free(segment);
        free(block);
        return NULL;
    }
    segment->base = base;
    segment->real = real;
    segment->fd = fd;
    segment->bytes = bytes;
    segment->first = block;
    segment->live = 1;
    block->segment = segment;
    block->bytes = bytes;
    return segment;
}

/* Takes the descriptor when it succeeds. base_fd: what a hidden base shows when it is opened; -1: nothing. */
static struct gb_host_segment *segment_map(int fd, int base_fd, uint64_t bytes, bool hidden) {
    uint64_t pages = gb_memfd_pages(bytes);
    char *real = pages >= bytes ? map_aligned(fd, pages, PROT_READ | PROT_WRITE) : NULL;
    char *base = real && hidden ? map_aligned(base_fd, pages, PROT_NONE) : real;
    struct gb_host_segment *segment = base ? segment_new(base, real, bytes, fd) : NULL;

    if (segment)
        return segment;
    if (base && base != real)
        munmap(base, pages);
    if (real)
        munmap(real, pages);
    errno = ENOMEM;
    return NULL;
}

struct gb_host_segment *gb_host_segment_map(uint64_t bytes, bool hidden) {
    return segment_map(-1, -1, bytes, hidden);
}

struct gb_host_segment *gb_host_segment_map_file(uint64_t bytes, bool hidden) {
    int fd = gb_memfd_new(bytes);
    struct gb_host_segment *segment = segment_map(fd, -1, bytes, hidden);

    if (!segment && fd >= 0)
        close(fd);
    return segment;
}

struct gb_host_segment *gb_host_segment_map_kept(int fd, uint64_t bytes, bool hidden) {
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    struct gb_host_segment *segment = own >= 0 ? segment_map(own, -1, bytes, hidden) : NULL;

    if (!segment && own >= 0)
        close(own);
    return segment;
}

struct gb_host_segment *gb_host_segment_map_twice(uint64_t bytes) {
    int fd = gb_memfd_new(bytes);
    struct gb_host_segment *segment = fd >= 0 ? segment_map(fd, fd, bytes, true) : NULL;

    if (fd >= 0)
        close(fd);
    if (segment)
        segment->fd = -1; /* the mappings keep the file */
    else
        errno = ENOMEM;
    return segment;
}

struct gb_host_segment *gb_host_segment_map_foreign(int fd, uint64_t offset, uint64_t bytes) {
    uint64_t begin = offset & ~4095ull;
    uint64_t pages = gb_memfd_pages(offset + bytes) - begin;
    char *base = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)begin);
    struct gb_host_segment *segment;

    if (base == MAP_FAILED)
        return NULL;
    keep_from_dumps(base, pages);
    segment = segment_new(base, base, pages, -1);
    if (segment) {
        segment->foreign = true;
        return segment;
    }
    munmap(base, pages);
    errno = ENOMEM;
    return NULL;
}

void gb_host_segment_unmap(struct gb_host_segment *list) {
    while (list) {
        struct gb_host_segment *segment = list;
        uint64_t pages = gb_memfd_pages(segment->bytes);

        list = segment->next;
        while (segment->first) {
            struct gb_host_block *block = segment->first;

            segment->first = block->next;
            free(block);
        }
        munmap(segment->real, pages);
        if (segment->base != segment->real)
            munmap(segment->base, pages);
        if (segment->fd >= 0)
            close(segment->fd);
        free(segment);
    }
}

/* --- arena -------------------------------------------------------------------------------------------------------- */

char *gb_host_block_base(const struct gb_host_block *block) {
    return block->segment->base + block->offset;
}

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

void gb_host_arena_coalesce(struct gb_host_arena *arena, gb_host_usable_fn *stale, void *arg) {
    struct gb_host_segment *segment;
    struct gb_host_block *at;

    for (segment = arena->segments; segment; segment = segment->next) {
        for (at = segment->first; at; at = at->next) {
            if (!at->free || (at->stream && !stale(arg, at)))
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
