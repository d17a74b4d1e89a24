#include "base/memory.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINE_SIZE 4096

/* The number in a file; UINT64_MAX: no number, as in "max", or no such file. */
static uint64_t read_number(const char *path) {
    FILE *file = fopen(path, "re");
    uint64_t value = UINT64_MAX;

    if (!file)
        return UINT64_MAX;
    if (fscanf(file, "%" SCNu64, &value) != 1)
        value = UINT64_MAX;
    fclose(file);
    return value;
}

/* The least limit from that group up: each bounds all that are below it. */
static uint64_t least_of(const char *root, const char *tree, char *group, const char *name) {
    char path[2 * LINE_SIZE];
    uint64_t least = UINT64_MAX;
    char *end;

    for (;;) {
        uint64_t limit;

        snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s/%s", root, tree, strcmp(group, "/") == 0 ? "" : group, name);
        limit = read_number(path);
        least = limit < least ? limit : least;
        end = strrchr(group, '/');
        if (!end)
            return least;
        *end = '\0';
    }
}

/* A line is "hierarchy:controllers:/group"; version 2 has hierarchy 0 and names no controller. */
static uint64_t limit_of(const char *root, char *line) {
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!group)
        return UINT64_MAX;
    *controllers++ = *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (strcmp(line, "0") == 0 && controllers[0] == '\0')
        return least_of(root, "", group, "memory.max");
    if (strcmp(controllers, "memory") == 0)
        return least_of(root, "/memory", group, "memory.limit_in_bytes");
    return UINT64_MAX;
}

static uint64_t groups_limit(const char *root) {
    char line[LINE_SIZE];
    uint64_t least = UINT64_MAX;
    FILE *file;

    snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
    file = fopen(line, "re");
    if (!file)
        return UINT64_MAX;
    while (fgets(line, sizeof(line), file)) {
        uint64_t limit = limit_of(root, line);

        least = limit < least ? limit : least;
    }
    fclose(file);
    return least;
}

static uint64_t machine_memory(const char *root) {
    char line[LINE_SIZE];
    uint64_t kib = 0;
    FILE *file;

    snprintf(line, sizeof(line), "%s/proc/meminfo", root);
    file = fopen(line, "re");
    if (!file)
        return 0;
    while (kib == 0 && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kib) != 1)
            kib = 0;
    }
    fclose(file);
    return kib * 1024;
}

uint64_t gb_memory_there(const char *root) {
    uint64_t machine = machine_memory(root);
    uint64_t limit = groups_limit(root);

    return limit < machine ? limit : machine;
}

/* --- pages -------------------------------------------------------------------------------------------------------- */

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
