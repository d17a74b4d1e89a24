/* What the folder remembers by the times of its files. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk/internal.h"

static int64_t time_of(const struct gb_disk *disk, const char *base) {
    char path[PATH_MAX];
    struct stat st;

    gb_disk_path(disk, base, path);
    if (lstat(path, &st) < 0)
        return 0;
    return (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
}

void gb_disk_times(struct gb_disk *disk, struct gb_disk_times *ret) {
    *ret = (struct gb_disk_times){.made_us = time_of(disk, GB_DISK_MARKER),
                                  .scrubbed_us = time_of(disk, GB_DISK_SCRUBBED)};
}

void gb_disk_note_scrub(struct gb_disk *disk) {
    char path[PATH_MAX];
    int fd;

    gb_disk_path(disk, GB_DISK_SCRUBBED, path);
    fd = gb_disk_call_create(disk->plan, AT_FDCWD, path, O_TRUNC);
    if (fd < 0 || futimens(fd, NULL) < 0)
        gb_disk_count_failure(disk);
    if (fd >= 0)
        close(fd);
}
