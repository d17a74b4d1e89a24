/* Host memory in a file of its own, which has no name and which other processes can map. */
#ifndef GB_BACKEND_MEMFD_H
#define GB_BACKEND_MEMFD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "model/export.h"

/* bytes in whole pages; less than bytes where there are not that many. */
static inline uint64_t gb_memfd_pages(uint64_t bytes) {
    return (bytes + 4095) & ~4095ull;
}

/* A file of gb_memfd_pages(bytes) zeros, of which nothing is resident. Its size is sealed: it cannot shrink under a
 * mapping. Processes of other users can at most read it, unless they are handed this descriptor. -1 with errno where it
 * is not to be had: EMFILE also when half of the descriptors that the process may have are in use, for the rest are for
 * connections. */
int gb_memfd_new(uint64_t bytes);

/* A descriptor of the file for another process, as gb_mem_export says; fd -1: memory that got no file. */
int gb_memfd_export(int fd, uint64_t file_bytes, uint64_t offset, bool writable, struct gb_export *ret,
                    struct gb_error *err);

/* Whether a client's file has bytes up to end that can be mapped for writing and stay: a memfd that cannot shrink.
 * CANNOT_ADOPT with what is wrong with it. Never asks a file system that may be a process of theirs. */
int gb_memfd_check(int fd, uint64_t end, struct gb_error *err);

#endif
