/* Segments: memory from the system, by one address or two, in a file of its own or not. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/host/arena.h"
#include "backend/memfd.h"

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
static struct gb_host_segment *map(int fd, int base_fd, uint64_t bytes, bool hidden) {
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
    return map(-1, -1, bytes, hidden);
}

struct gb_host_segment *gb_host_segment_map_file(uint64_t bytes, bool hidden) {
    int fd = gb_memfd_new(bytes);
    struct gb_host_segment *segment = map(fd, -1, bytes, hidden);

    if (!segment && fd >= 0)
        close(fd);
    return segment;
}

struct gb_host_segment *gb_host_segment_map_twice(uint64_t bytes) {
    int fd = gb_memfd_new(bytes);
    struct gb_host_segment *segment = fd >= 0 ? map(fd, fd, bytes, true) : NULL;

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
