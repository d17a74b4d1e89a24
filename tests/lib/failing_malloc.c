#include "failing_malloc.h"

#ifdef GB_OWN_MALLOC
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *ptr, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *ptr, size_t size);
void *aligned_alloc(size_t alignment, size_t size);
int posix_memalign(void **ret, size_t alignment, size_t size);

atomic_long gb_allocations = -1;
__thread long gb_allocations_here = -1;

static bool fails_now(void) {
    bool here = gb_allocations_here >= 0 && gb_allocations_here-- == 0;

    if (!here && (atomic_load(&gb_allocations) < 0 || atomic_fetch_sub(&gb_allocations, 1) != 0))
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size) {
    return fails_now() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    return fails_now() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *ptr, size_t size) {
    return fails_now() ? NULL : __libc_realloc(ptr, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return fails_now() ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **ret, size_t alignment, size_t size) {
    void *made = aligned_alloc(alignment, size);

    if (!made)
        return ENOMEM;
    *ret = made;
    return 0;
}
#else
typedef int gb_no_own_malloc; /* a file is not empty */
#endif
