/* How much memory there is for this process. */
#ifndef GB_BASE_MEMORY_H
#define GB_BASE_MEMORY_H

#include <stdint.h>

/* Bytes of memory that this process may have: the machine's, or less by its control groups. 0: not known. root: "" or
 * where /proc and /sys are found. */
uint64_t gb_memory_there(const char *root);

#endif
