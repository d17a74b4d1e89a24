/* What the backends share: CUDA's errors by number, name and text, gates in a stream's way, and host memory in a file.
 * Knows no CUDA header. */
#ifndef GB_BACKEND_COMMON_H
#define GB_BACKEND_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/model.h"

/* An error of CUDA's, and what it means to the program: host and fault report what CUDA would. The list is
 * native.def. */
struct gb_native {
    const char *name;  /* "cudaErrorMemoryAllocation" */
    int number;        /* 2 */
    enum gb_code code; /* OUT_OF_MEMORY, DEVICE_LOST, UNSUPPORTED or DEVICE_ERROR */
    const char *text;  /* "out of memory" */
};

/* NULL when the list does not have it. */
const struct gb_native *gb_native_by_number(int number);
const struct gb_native *gb_native_by_name(const char *name, size_t len);

/* What the error means; DEVICE_ERROR for one that is not listed. DEVICE_LOST kills the backend. */
enum gb_code gb_native_code(int number);

/* A gate in a stream's way: a host function that stands until the gate is opened. */

struct gb_gate;

/* Closed, with a reference for the function and one for the opener. NULL when memory is exhausted. */
struct gb_gate *gb_gate_new(void);

/* The host function; arg is the gate. Blocks until the gate is open and gives the function's reference back. */
void gb_gate_pass(void *arg);

/* Opens the gate and gives the opener's reference back. [any thread, never blocks] */
void gb_gate_open(struct gb_gate *gate);

/* Frees a gate whose function was not queued. */
void gb_gate_free(struct gb_gate *gate);

/* Host memory in a file of its own, which has no name and which other processes can map. */

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
