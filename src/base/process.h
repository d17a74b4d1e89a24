/* This process as the kernel sees it: its numbers, its memory, its standard descriptors, and a thread that closes
 * descriptors of clients. */
#ifndef GB_BASE_PROCESS_H
#define GB_BASE_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct gb_process {
    uint64_t cpu_ns; /* of all its threads, in user and system mode */
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t open_fds;
    uint64_t max_fds; /* UINT64_MAX: no limit */
};

/* What cannot be read is 0. [any thread] */
void gb_process_read(struct gb_process *ret);

/* Nanoseconds since the epoch at which the process began, by the clock as it is set now; 0 where that cannot be
 * read. */
uint64_t gb_process_started_ns(void);

/* --- memory: how much there is, and pages that the system has promised and not given yet -------------------------- */

/* Bytes of memory that this process may have: the machine's, or less by its control groups. 0: not known. root: "" or
 * where /proc and /sys are found. */
uint64_t gb_memory_there(const char *root);

/* Bytes of memory that this process can have now: what the machine has available, or less by its control groups. What
 * the kernel can drop, such as files that were read, counts as available. UINT64_MAX: not known. */
uint64_t gb_memory_left(const char *root);

/* What a part of this process may give out in all: what it has given, and what is left beside a reserve for the rest of
 * the process. Memory that was given and not yet written is not resident, so it is still among what is left. */
struct gb_memory_budget {
    const char *root;
    uint64_t reserve_bytes; /* a sixteenth of all memory, at most 256 MiB */
    uint64_t before_bytes;  /* resident before the part gave any */
    _Atomic uint64_t bytes; /* UINT64_MAX: not known */
    _Atomic uint64_t read_ns;
};

void gb_memory_budget_init(struct gb_memory_budget *budget, const char *root);

/* Reads the kernel's numbers again, at most five times a second. given_bytes: of the part. others_bytes: of the memory
 * that is mapped here, what the part did not give. [any thread] */
void gb_memory_budget_read(struct gb_memory_budget *budget, uint64_t given_bytes, uint64_t others_bytes);

/* The bytes that may still be given. [any thread, never blocks] */
uint64_t gb_memory_budget_left(const struct gb_memory_budget *budget, uint64_t given_bytes);

/* Returns true if all pages of at[0..n) are present, so that a write to them clears none; also if that cannot be
 * queried. Takes a system call. */
bool gb_pages_present(const void *at, size_t n);

/* Makes the system clear the pages that are not present. Takes a tenth of a millisecond for each huge page, and more on
 * a busy machine. The pages keep their bytes, and others may use them meanwhile. */
void gb_pages_make(void *at, size_t n);

/* --- standard descriptors ----------------------------------------------------------------------------------------- */

/* Before anything is opened: takes the numbers of those that are closed, so that no file gets them. Reading and writing
 * them fails as before. */
void gb_standard_hold(void);

/* Has the kernel refuse the descriptors that a client may send along with its bytes: on this UNIX socket, and on those
 * that it accepts. A read without room for them closes them, which may take as long as the client likes. Linux before
 * 6.16 does not know this: descriptors that are not read then stay with the connection, and count against what their
 * sender may have on the way. */
void gb_take_no_descriptors(int fd);

/* Closes descriptors that came from clients, on a thread of its own: such a close may block for as long as the client
 * likes. A socket with SO_LINGER waits for its linger time, a file of a FUSE file system for its server. The thread is
 * never joined. */

struct gb_closer;

/* Creates a closer with room for max descriptors, and starts its thread. Returns 0, or -1 with INTERNAL. */
int gb_closer_new(size_t max, struct gb_closer **ret, struct gb_error *err);

/* Leaves what is queued to the thread, which frees the closer at the end; does not wait for it. All reserved room must
 * have been used or given back. NULL is accepted. */
void gb_closer_free(struct gb_closer *closer);

/* Reserves room for count descriptors, before they are received. [any thread, never blocks] gb_closer_put uses it up,
 * gb_closer_give_back returns it. Returns false if no room is free now. */
bool gb_closer_reserve(struct gb_closer *closer, size_t count);
void gb_closer_give_back(struct gb_closer *closer, size_t count);

/* Takes ownership of fd, which uses up one reserved place. [any thread, never blocks] */
void gb_closer_put(struct gb_closer *closer, int fd);

#endif
