/* Shared by the backends: CUDA's errors by number, name and text, gates that hold up a stream, and host memory in
 * files. Includes no CUDA header. */
#ifndef GB_BACKEND_COMMON_H
#define GB_BACKEND_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/model.h"

/* An error of CUDA's, and its code here. host and fault report the errors that CUDA would. The list is native.def. */
struct gb_native {
    const char *name;  /* "cudaErrorMemoryAllocation" */
    int number;        /* 2 */
    enum gb_code code; /* OUT_OF_MEMORY, DEVICE_LOST, UNSUPPORTED or DEVICE_ERROR */
    const char *text;  /* "out of memory" */
};

/* Return NULL if the list does not have it. */
const struct gb_native *gb_native_by_number(int number);
const struct gb_native *gb_native_by_name(const char *name, size_t len);

/* The code of an error; DEVICE_ERROR if it is not listed. DEVICE_LOST kills the backend. */
enum gb_code gb_native_code(int number);

enum { GB_NATIVE_INVALID_VALUE = 1, GB_NATIVE_INVALID_DEVICE = 101, GB_NATIVE_NOT_SUPPORTED = 801 };

/* Sets err to UNSUPPORTED, with the error that CUDA's call would give, by its number; domain: of the backend. For what
 * is refused without that call. Returns -1. */
int gb_native_refuse(struct gb_error *err, const char *domain, int number, const char *call, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* CUDA's call that makes memory of that kind, or exports memory in that way. "malloc", "memfd_create": none of it. */
const char *gb_native_kind_call(enum gb_kind kind);
const char *gb_native_way_call(enum gb_export_way way);

/* A gate holds up a stream: a host function that waits until the gate is opened. */

struct gb_gate;

/* Makes a closed gate with two references, the function's and the opener's. Returns NULL if memory is exhausted. */
struct gb_gate *gb_gate_new(void);

/* The host function; arg is the gate. Blocks until the gate is open and drops the function's reference. */
void gb_gate_pass(void *arg);

/* Opens the gate and drops the opener's reference. [any thread, never blocks] */
void gb_gate_open(struct gb_gate *gate);

/* Frees a gate whose function was not queued. */
void gb_gate_free(struct gb_gate *gate);

/* Host memory in memfds, files without a name that other processes can map. */

/* bytes rounded up to whole pages; less than bytes if that overflows. */
static inline uint64_t gb_memfd_pages(uint64_t bytes) {
    return (bytes + 4095) & ~4095ull;
}

/* Makes a file of gb_memfd_pages(bytes) zeros, without resident pages. Its size is sealed, so it cannot shrink under a
 * mapping. Processes of other users can at most read it, unless they get this descriptor. Returns the descriptor, or -1
 * with errno: EMFILE also if half of the process's descriptors are in use, because connections need the rest. */
int gb_memfd_new(uint64_t bytes);

/* Makes a descriptor of the file for another process, by the contract of gb_mem_export. fd -1: memory without a
 * file. */
int gb_memfd_export(int fd, uint64_t file_bytes, uint64_t offset, bool writable, struct gb_export *ret,
                    struct gb_error *err);

/* Checks that a client's file is a memfd that cannot shrink, has bytes up to `end` and can be mapped for writing. Calls
 * no file system that may be a client's process. Returns 0, or -1 with CANNOT_ADOPT and what is wrong. */
int gb_memfd_check(int fd, uint64_t end, struct gb_error *err);

#endif
