#include "base/process.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static uint64_t of_timeval(struct timeval tv) {
    return (uint64_t)tv.tv_sec * GB_NS_PER_S + (uint64_t)tv.tv_usec * 1000;
}

/* Linux since 6.2 tells it as the folder's size; before, the folder has to be read. */
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
