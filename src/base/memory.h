/* The memory of this process: how much there is, and pages that the system has promised and not given yet. */
#ifndef GB_BASE_MEMORY_H
#define GB_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of memory that this process may have: the machine's, or less by its control groups. 0: not known. root: "" or
 * where /proc and /sys are found. */
uint64_t gb_memory_there(const char *root);

/* Whether all pages of at[0..n) are there: a write to them clears none. Also true where that cannot be asked. Takes a
 * system call. */
bool gb_pages_present(const void *at, size_t n);

/* Has the system clear those that are not there. Takes a tenth of a millisecond for each huge page, and more on a busy
 * machine. What the pages have stays; others may use them meanwhile. */
void gb_pages_make(void *at, size_t n);

#endif
