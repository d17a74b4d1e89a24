#include "base/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOK_PAGES 256

static uintptr_t page_of(const void *at, size_t page) {
    return (uintptr_t)at / page * page;
}

bool gb_pages_present(const void *at, size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t end = (uintptr_t)at + n;
    unsigned char there[LOOK_PAGES];
    uintptr_t from;
    size_t i;

    for (from = page_of(at, page); from < end; from += LOOK_PAGES * page) {
        size_t pages = (end - from + page - 1) / page;

        if (pages > LOOK_PAGES)
            pages = LOOK_PAGES;
        if (mincore((void *)from, pages * page, there) < 0)
            return true;
        for (i = 0; i < pages; i++) {
            if (!(there[i] & 1))
                return false;
        }
    }
    return true;
}

/* Not by madvise: that holds the lock of all mappings while pages are cleared, and a thread that maps memory, for
 * malloc, would wait for it. A fault holds that of one mapping. */
void gb_pages_make(void *at, size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p;

    /* A write that changes nothing, also beside others. Bytes before `at` are not ours. */
    for (p = at; p < (char *)at + n; p = (char *)page_of(p, page) + page)
        (void)__atomic_fetch_or(p, 0, __ATOMIC_RELAXED);
}
