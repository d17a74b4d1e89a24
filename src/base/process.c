/* This process as the kernel sees it: its numbers, its memory and its standard descriptors; and a closer, a thread that
 * closes clients' descriptors, which may block. The daemon, the core and the connections call it. */
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

/* --- process ------------------------------------------------------------------------------------------------------ */

static uint64_t of_timeval(struct timeval tv) {
    return (uint64_t)tv.tv_sec * GB_NS_PER_S + (uint64_t)tv.tv_usec * 1000;
}

/* Linux since 6.2 gives it as the folder's size; otherwise the folder is read. */
static uint64_t count_fds(void) {
    static const char path[] = "/proc/self/fd";
    uint64_t count = 0;
    struct stat st;
    DIR *dir;

    if (stat(path, &st) == 0 && st.st_size > 0)
        return (uint64_t)st.st_size;
    dir = opendir(path);
    if (!dir)
        return 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count > 3 ? count - 3 : 0; /* ".", ".." and the one that reads it */
}

static void read_memory(struct gb_process *ret) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/self/statm", "re");
    uint64_t resident;
    uint64_t size;

    if (!file)
        return;
    if (fscanf(file, "%" SCNu64 " %" SCNu64, &size, &resident) == 2) {
        ret->virtual_bytes = size * page;
        ret->resident_bytes = resident * page;
    }
    fclose(file);
}

void gb_process_read(struct gb_process *ret) {
    struct rlimit files;
    struct rusage usage;

    *ret = (struct gb_process){.open_fds = count_fds()};
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        ret->cpu_ns = of_timeval(usage.ru_utime) + of_timeval(usage.ru_stime);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        ret->max_fds = files.rlim_cur == RLIM_INFINITY ? UINT64_MAX : (uint64_t)files.rlim_cur;
    read_memory(ret);
}

/* Field 22 of /proc/self/stat; the second one, the program's name, may hold anything but ends with the last ')'. */
static uint64_t start_ticks(void) {
    FILE *file = fopen("/proc/self/stat", "re");
    uint64_t ticks = 0;
    char line[1024];
    char *at;
    int field;

    if (!file)
        return 0;
    at = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
    fclose(file);
    for (field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, " %" SCNu64, &ticks) == 1 ? ticks : 0;
}

uint64_t gb_process_started_ns(void) {
    uint64_t ticks = start_ticks();
    struct timespec boot;
    uint64_t after_ns;
    uint64_t up_ns;

    if (ticks == 0 || clock_gettime(CLOCK_BOOTTIME, &boot) < 0)
        return 0;
    after_ns = ticks * (GB_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
    up_ns = (uint64_t)boot.tv_sec * GB_NS_PER_S + (uint64_t)boot.tv_nsec;
    return (uint64_t)gb_wall_us() * 1000 - (up_ns - after_ns);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

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

/* What the machine or a group bounds: the memory in all, and what of it can be had now. */
struct bound {
    uint64_t limit_bytes;
    uint64_t left_bytes;
};

static void lower(struct bound *bound, uint64_t limit_bytes, uint64_t left_bytes) {
    bound->limit_bytes = limit_bytes < bound->limit_bytes ? limit_bytes : bound->limit_bytes;
    bound->left_bytes = left_bytes < bound->left_bytes ? left_bytes : bound->left_bytes;
}

/* The names of a version's files, in a group's folder. */
struct group_files {
    const char *tree;
    const char *limit;
    const char *used;
    const char *inactive; /* in memory.stat: bytes of files that the kernel drops first */
};

static const struct group_files version_1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                             "total_inactive_file"};
static const struct group_files version_2 = {"", "memory.max", "memory.current", "inactive_file"};

/* The bytes that the kernel can take back from a group: files that are not in use, and its own caches of them. */
static uint64_t reclaimable(const char *path, const char *inactive) {
    FILE *file = fopen(path, "re");
    uint64_t bytes = 0;
    char line[LINE_SIZE];
    uint64_t value;
    char name[64];

    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%63s %" SCNu64, name, &value) == 2 &&
            (strcmp(name, inactive) == 0 || strcmp(name, "slab_reclaimable") == 0))
            bytes += value;
    }
    fclose(file);
    return bytes;
}

/* Reads that group and those above it, because each bounds those below it. A limit that the machine does not reach
 * bounds nothing. */
static void read_group(const char *root, const struct group_files *files, char *group, struct bound *bound) {
    const uint64_t machine = bound->limit_bytes;
    char path[2 * LINE_SIZE];
    char *end;

    for (;;) {
        int n = snprintf(path, sizeof(path) - 64, "%s/sys/fs/cgroup%s%s/", root, files->tree,
                         strcmp(group, "/") == 0 ? "" : group);
        uint64_t limit;

        if (n < 0 || (size_t)n >= sizeof(path) - 64)
            return;
        strcpy(path + n, files->limit);
        limit = read_number(path);
        if (limit < machine) {
            uint64_t used;
            uint64_t back;

            strcpy(path + n, files->used);
            used = read_number(path);
            strcpy(path + n, "memory.stat");
            back = reclaimable(path, files->inactive);
            used = used == UINT64_MAX || used < back ? 0 : used - back;
            lower(bound, limit, used < limit ? limit - used : 0);
        }
        end = strrchr(group, '/');
        if (!end)
            return;
        *end = '\0';
    }
}

/* A line is "hierarchy:controllers:/group"; version 2 has hierarchy 0 and names no controller. */
static void read_group_line(const char *root, char *line, struct bound *bound) {
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!group)
        return;
    *controllers++ = *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (strcmp(line, "0") == 0 && controllers[0] == '\0')
        read_group(root, &version_2, group, bound);
    else if (strcmp(controllers, "memory") == 0)
        read_group(root, &version_1, group, bound);
}

static void read_groups(const char *root, struct bound *bound) {
    char line[LINE_SIZE];
    FILE *file;

    snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
    file = fopen(line, "re");
    if (!file)
        return;
    while (fgets(line, sizeof(line), file))
        read_group_line(root, line, bound);
    fclose(file);
}

static void read_machine(const char *root, struct bound *bound) {
    char line[LINE_SIZE];
    uint64_t kib;
    FILE *file;

    snprintf(line, sizeof(line), "%s/proc/meminfo", root);
    file = fopen(line, "re");
    if (!file)
        return;
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kib) == 1)
            lower(bound, kib * 1024, UINT64_MAX);
        else if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
            lower(bound, UINT64_MAX, kib * 1024);
    }
    fclose(file);
}

static struct bound read_bound(const char *root) {
    struct bound bound = {UINT64_MAX, UINT64_MAX};

    read_machine(root, &bound);
    if (bound.limit_bytes < UINT64_MAX)
        read_groups(root, &bound);
    return bound;
}

uint64_t gb_memory_there(const char *root) {
    uint64_t bytes = read_bound(root).limit_bytes;

    return bytes < UINT64_MAX ? bytes : 0;
}

uint64_t gb_memory_left(const char *root) {
    return read_bound(root).left_bytes;
}

/* --- memory: a budget --------------------------------------------------------------------------------------------- */

#define BUDGET_NS (200 * GB_NS_PER_MS)
#define RESERVE_MAX (256ull << 20)

static uint64_t resident(void) {
    struct gb_process process = {0};

    read_memory(&process);
    return process.resident_bytes;
}

void gb_memory_budget_init(struct gb_memory_budget *budget, const char *root) {
    uint64_t reserve = gb_memory_there(root) / 16;

    budget->root = root;
    budget->reserve_bytes = reserve < RESERVE_MAX ? reserve : RESERVE_MAX;
    budget->before_bytes = resident();
    atomic_init(&budget->read_ns, 0);
    atomic_init(&budget->bytes, UINT64_MAX);
    gb_memory_budget_read(budget, 0, 0);
}

void gb_memory_budget_read(struct gb_memory_budget *budget, uint64_t given_bytes, uint64_t others_bytes) {
    uint64_t read_ns = atomic_load(&budget->read_ns);
    uint64_t now_ns = gb_clock_ns();
    uint64_t before = budget->before_bytes + others_bytes;
    uint64_t left;
    uint64_t have;

    if (read_ns > 0 && now_ns - read_ns < BUDGET_NS)
        return;
    if (!atomic_compare_exchange_strong(&budget->read_ns, &read_ns, now_ns))
        return;
    left = gb_memory_left(budget->root);
    have = resident();
    have = have > before ? have - before : 0;
    have = have < given_bytes ? have : given_bytes;
    if (left == UINT64_MAX)
        atomic_store(&budget->bytes, UINT64_MAX);
    else
        atomic_store(&budget->bytes, left + have > budget->reserve_bytes ? left + have - budget->reserve_bytes : 0);
}

uint64_t gb_memory_budget_left(const struct gb_memory_budget *budget, uint64_t given_bytes) {
    uint64_t bytes = atomic_load(&budget->bytes);

    return bytes == UINT64_MAX ? bytes : bytes > given_bytes ? bytes - given_bytes : 0;
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

/* madvise would hold the lock of all mappings while pages are cleared, and a thread that maps memory, for malloc, would
 * wait for it. A fault holds the lock of one mapping. */
void gb_pages_make(void *at, size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p;

    /* A write that changes nothing, also beside others. Bytes before `at` are not ours. */
    for (p = at; p < (char *)at + n; p = (char *)page_of(p, page) + page)
        (void)__atomic_fetch_or(p, 0, __ATOMIC_RELAXED);
}

/* --- standard ----------------------------------------------------------------------------------------------------- */

void gb_standard_hold(void) {
    int fd;

    /* Input that cannot be read, and outputs that cannot be written. The lowest free number is taken. */
    for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
            return;
    }
}

/* --- descriptors of clients --------------------------------------------------------------------------------------- */

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

void gb_take_no_descriptors(int fd) {
    int no = 0;

    (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

/* --- closer ------------------------------------------------------------------------------------------------------- */

#define PATIENCE_MS 2000

struct gb_closer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool stopping;
    bool ended;     /* the thread has no more work */
    bool abandoned; /* its maker has gone: the thread frees it */
    size_t max;
    size_t taken; /* room that is reserved or in use */
    size_t first;
    size_t count;
    int fd[]; /* a ring */
};

static void closer_destroy(struct gb_closer *closer) {
    pthread_cond_destroy(&closer->changed);
    pthread_mutex_destroy(&closer->lock);
    free(closer);
}

/* -1: the end. */
static int next_locked(struct gb_closer *closer) {
    int fd;

    while (closer->count == 0 && !closer->stopping)
        pthread_cond_wait(&closer->changed, &closer->lock);
    if (closer->count == 0)
        return -1;
    fd = closer->fd[closer->first];
    closer->first = (closer->first + 1) % closer->max;
    closer->count--;
    return fd;
}

static void *closer_main(void *arg) {
    struct gb_closer *closer = arg;
    bool abandoned;
    int fd;

    pthread_mutex_lock(&closer->lock);
    while ((fd = next_locked(closer)) >= 0) {
        pthread_mutex_unlock(&closer->lock);
        close(fd);
        pthread_mutex_lock(&closer->lock);
        closer->taken--;
    }
    closer->ended = true;
    abandoned = closer->abandoned;
    pthread_cond_broadcast(&closer->changed);
    pthread_mutex_unlock(&closer->lock);
    if (abandoned)
        closer_destroy(closer);
    return NULL;
}

int gb_closer_new(size_t max, struct gb_closer **ret, struct gb_error *err) {
    struct gb_closer *closer = calloc(1, sizeof(*closer) + max * sizeof(closer->fd[0]));

    if (!closer)
        return gb_error_errno(err, GB_ERR_INTERNAL, "calloc", ENOMEM);
    closer->max = max;
    gb_mutex_init(&closer->lock);
    gb_cond_init(&closer->changed);
    if (gb_thread_start(&closer->thread, "gb-closer", closer_main, closer, err) < 0) {
        closer_destroy(closer);
        return -1;
    }
    *ret = closer;
    return 0;
}

void gb_closer_free(struct gb_closer *closer) {
    struct timespec until = gb_after_ms(PATIENCE_MS);
    bool ended;
    int r = 0;

    if (!closer)
        return;
    pthread_mutex_lock(&closer->lock);
    closer->stopping = true;
    pthread_cond_broadcast(&closer->changed);
    while (!closer->ended && r == 0)
        r = pthread_cond_timedwait(&closer->changed, &closer->lock, &until);
    ended = closer->ended;
    closer->abandoned = !ended;
    if (!ended)
        pthread_detach(closer->thread);
    pthread_mutex_unlock(&closer->lock);
    if (!ended)
        return;
    pthread_join(closer->thread, NULL);
    closer_destroy(closer);
}

bool gb_closer_reserve(struct gb_closer *closer, size_t count) {
    bool room;

    pthread_mutex_lock(&closer->lock);
    room = count <= closer->max - closer->taken;
    if (room)
        closer->taken += count;
    pthread_mutex_unlock(&closer->lock);
    return room;
}

void gb_closer_give_back(struct gb_closer *closer, size_t count) {
    pthread_mutex_lock(&closer->lock);
    closer->taken -= count;
    pthread_mutex_unlock(&closer->lock);
}

void gb_closer_put(struct gb_closer *closer, int fd) {
    pthread_mutex_lock(&closer->lock);
    closer->fd[(closer->first + closer->count++) % closer->max] = fd;
    pthread_cond_signal(&closer->changed);
    pthread_mutex_unlock(&closer->lock);
}
