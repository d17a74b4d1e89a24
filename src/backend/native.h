/* CUDA's errors by number, name and text, and what they mean to the program: shared by all backends, so that host and
 * fault report what CUDA would. Knows no CUDA header. The list is native.def. */
#ifndef GB_BACKEND_NATIVE_H
#define GB_BACKEND_NATIVE_H

#include <stddef.h>

#include "base/error.h"

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

#endif
