/* Files of stored bytes by their names: visited, set aside, taken back, removed. What a scan cannot see counts as an
 * absent disk, so that nothing is called lost. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "disk/internal.h"

/* A file of a later time than that has it from a clock that was wrong. */
#define AHEAD_US (60 * (int64_t)1000000)

/* --- links -------------------------------------------------------------------------------------------------------- */

static int check_size(struct gb_disk *disk, const char *path, uint64_t bytes, struct gb_error *err) {
    struct stat st;

    if (lstat(path, &st) < 0) {
        if (gb_disk_check_marker(disk, err) == 0)
            gb_error_set(err, GB_ERR_CONTENT_LOST, "the file that would be linked is not there");
        return -1;
    }
    if (!S_ISREG(st.st_mode))
        return gb_disk_count_damage(disk, "it is no plain file", err);
    return (uint64_t)st.st_size == GB_DISK_DATA_AT + bytes ? 0 : gb_disk_count_damage(disk, "it has another size", err);
}

bool gb_disk_has_no_link(int errnum) {
    return errnum == EXDEV || errnum == EMLINK || errnum == EPERM || errnum == EOPNOTSUPP;
}

int gb_disk_link_path(struct gb_disk *disk, const char *from, uint64_t bytes, const struct gb_disk_name *as,
                      struct gb_error *err) {
    char text[GB_DISK_NAME_SIZE];
    enum gb_disk_op op = GB_DISK_OP_mkdir;
    char folder_name[4];
    char folder[PATH_MAX];
    char to[PATH_MAX];
    int made;

    gb_disk_name_text(as, text);
    gb_disk_path(disk, text, to);
    gb_disk_name_folder(as, folder_name);
    gb_disk_path(disk, folder_name, folder);
    if (gb_disk_check_room(disk, 0, err) < 0 || check_size(disk, from, bytes, err) < 0)
        return -1;
    made = gb_disk_call_mkdir(disk->plan, AT_FDCWD, folder);
    if ((made < 0 && errno != EEXIST) || (made == 0 && gb_disk_sync_folder(disk, disk->dir, &op) < 0))
        return gb_disk_fail(disk, op, errno, 0, err);
    if (gb_disk_call_link(disk->plan, AT_FDCWD, from, AT_FDCWD, to) < 0) {
        if (gb_disk_has_no_link(errno))
            return gb_error_set(err, GB_ERR_UNSUPPORTED,
                                "the file system of the data folder makes no links, or no more of this file");
        if (errno == ENOENT)
            return check_size(disk, from, bytes, err) < 0 ? -1 : gb_disk_fail(disk, GB_DISK_OP_link, ENOENT, 0, err);
        return gb_disk_fail(disk, GB_DISK_OP_link, errno, 0, err);
    }
    if (gb_disk_sync_folder(disk, folder, &op) == 0)
        return 0;
    gb_disk_fail(disk, op, errno, 0, err);
    gb_disk_remove(disk, as);
    return -1;
}

int gb_disk_link(struct gb_disk *disk, const struct gb_disk_name *from, uint64_t bytes, const struct gb_disk_name *as,
                 struct gb_error *err) {
    char text[GB_DISK_NAME_SIZE];
    char path[PATH_MAX];

    gb_disk_name_text(from, text);
    gb_disk_path(disk, text, path);
    return gb_disk_link_path(disk, path, bytes, as, err);
}

/* --- taking out of the way ---------------------------------------------------------------------------------------- */

void gb_disk_remove(struct gb_disk *disk, const struct gb_disk_name *name) {
    char text[GB_DISK_NAME_SIZE];
    char path[PATH_MAX];

    gb_disk_name_text(name, text);
    gb_disk_path(disk, text, path);
    if (gb_disk_call_unlink(disk->plan, AT_FDCWD, path) < 0 && errno != ENOENT && errno != ENOTDIR)
        gb_disk_count_failure(disk);
}

/* The time at which a file came to orphans/ is kept as that of its last change. It is set before the move, so that a
 * file is never taken for older than it is. */
void gb_disk_set_aside(struct gb_disk *disk, const struct gb_disk_name *name, bool damaged) {
    const char *aside = damaged ? GB_DISK_DAMAGED : GB_DISK_ORPHANS;
    char text[GB_DISK_NAME_SIZE];
    char path[PATH_MAX];
    char folder[PATH_MAX];
    char to[PATH_MAX + GB_DISK_NAME_SIZE];

    gb_disk_name_text(name, text);
    gb_disk_path(disk, text, path);
    if (utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            gb_disk_count_failure(disk);
        return;
    }
    gb_disk_path(disk, aside, folder);
    snprintf(to, sizeof(to), "%s/%s", folder, gb_disk_name_base(text));
    if ((gb_disk_call_mkdir(disk->plan, AT_FDCWD, folder) < 0 && errno != EEXIST) ||
        gb_disk_call_rename(disk->plan, AT_FDCWD, path, AT_FDCWD, to) < 0)
        gb_disk_count_failure(disk);
}

int gb_disk_take_back(struct gb_disk *disk, const struct gb_disk_name *name, struct gb_error *err) {
    enum gb_disk_op op = GB_DISK_OP_mkdir;
    char text[GB_DISK_NAME_SIZE];
    char folder_below[4];
    char orphans[PATH_MAX];
    char folder[PATH_MAX];
    char from[PATH_MAX + GB_DISK_NAME_SIZE];
    char to[PATH_MAX];

    gb_disk_name_folder(name, folder_below);
    gb_disk_path(disk, folder_below, folder);
    gb_disk_name_text(name, text);
    gb_disk_path(disk, text, to);
    gb_disk_path(disk, GB_DISK_ORPHANS, orphans);
    snprintf(from, sizeof(from), "%s/%s", orphans, gb_disk_name_base(text));
    if ((mkdir(folder, 0700) == 0 || errno == EEXIST) && gb_disk_sync_folder(disk, disk->dir, &op) == 0) {
        op = GB_DISK_OP_rename;
        if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0 &&
            gb_disk_sync_folder(disk, folder, &op) == 0)
            return 0;
    }
    gb_disk_explain(op, errno, err);
    return -1;
}

/* --- files of several names -------------------------------------------------------------------------------------- */

uint64_t gb_disk_shared_path(const char *path) {
    struct stat st;

    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink < 2)
        return 0;
    return (uint64_t)st.st_ino & INT64_MAX;
}

uint64_t gb_disk_shared(struct gb_disk *disk, const struct gb_disk_name *name) {
    char text[GB_DISK_NAME_SIZE];
    char path[PATH_MAX];

    gb_disk_name_text(name, text);
    gb_disk_path(disk, text, path);
    return gb_disk_shared_path(path);
}

/* --- visiting ----------------------------------------------------------------------------------------------------- */

/* Opens a folder below the disk's. Returns NULL with errno. */
static DIR *open_folder(struct gb_disk *disk, const char *below) {
    char path[PATH_MAX];
    DIR *dir;
    int fd;

    gb_disk_path(disk, below, path);
    fd = gb_disk_call_open(disk->plan, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (fd < 0)
        return NULL;
    dir = fdopendir(fd);
    if (!dir)
        gb_disk_shut(fd);
    return dir;
}

/* What may be there was not seen, so that nothing may be called lost: the disk is as good as absent. */
static int not_seen(struct gb_disk *disk, const char *folder, const char *call, int errnum, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    gb_disk_count_failure(disk);
    gb_error_native(&why, "errno", errnum, strerrorname_np(errnum), call);
    gb_error_set(&why, GB_ERR_STORAGE_UNAVAILABLE, "\"%s\" in the folder of stored bytes cannot be read: %s: %s",
                 folder, call, strerrordesc_np(errnum) ? strerrordesc_np(errnum) : "unknown error");
    return gb_disk_set_unavailable(disk, &why, err);
}

typedef gb_disk_visit_fn *visit_fn;

/* A name in another of the numbered folders than its own is not ours. */
static int visit_entry(struct gb_disk *disk, DIR *dir, const char *folder, const char *base, visit_fn visit, void *arg,
                       struct gb_error *err) {
    struct gb_disk_name name;
    struct stat st;
    char own[4];
    uint64_t bytes;

    if (!gb_disk_name_parse(base, &name))
        return 0;
    gb_disk_name_folder(&name, own);
    if (strcmp(own, folder) != 0 && strlen(folder) == 2)
        return 0;
    if (fstatat(dirfd(dir), base, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : not_seen(disk, folder, "fstatat", errno, err);
    bytes = S_ISREG(st.st_mode) && st.st_size > GB_DISK_DATA_AT ? (uint64_t)st.st_size - GB_DISK_DATA_AT : 0;
    return visit(arg, &name, bytes, err);
}

int gb_disk_visit_folder(struct gb_disk *disk, const char *folder, visit_fn visit, void *arg, struct gb_error *err) {
    DIR *dir = open_folder(disk, folder);
    struct dirent *entry;
    int r = 0;

    if (!dir)
        return errno == ENOENT ? 0 : not_seen(disk, folder, "openat", errno, err);
    while (r == 0) {
        errno = 0;
        entry = readdir(dir);
        if (!entry) {
            if (errno != 0)
                r = not_seen(disk, folder, "readdir", errno, err);
            break;
        }
        r = visit_entry(disk, dir, folder, entry->d_name, visit, arg, err);
    }
    closedir(dir);
    return r;
}

int gb_disk_scan(struct gb_disk *disk, visit_fn visit, void *arg, struct gb_error *err) {
    if (gb_disk_check_there(disk, err) < 0 || gb_disk_check_marker(disk, err) < 0)
        return -1;
    return gb_disk_visit_data(disk, visit, arg, err);
}

int gb_disk_scan_orphans(struct gb_disk *disk, visit_fn visit, void *arg, struct gb_error *err) {
    return gb_disk_visit_folder(disk, GB_DISK_ORPHANS, visit, arg, err);
}

int gb_disk_visit_data(struct gb_disk *disk, visit_fn visit, void *arg, struct gb_error *err) {
    char folder[4];
    unsigned i;

    for (i = 0; i < GB_DISK_FOLDERS; i++) {
        snprintf(folder, sizeof(folder), "%02x", i & 0xff);
        if (gb_disk_visit_folder(disk, folder, visit, arg, err) < 0)
            return -1;
    }
    return 0;
}

/* --- orphans ------------------------------------------------------------------------------------------------------ */

/* One of a time to come, which a wrong clock gave it, is as one of now. */
static void sweep_one(struct gb_disk *disk, DIR *dir, const char *base, int64_t before_us) {
    struct gb_disk_name name;
    struct stat st;
    int64_t at_us;

    if (!gb_disk_name_parse(base, &name) || fstatat(dirfd(dir), base, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    at_us = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
    if (at_us > gb_wall_us() + AHEAD_US)
        utimensat(dirfd(dir), base, NULL, AT_SYMLINK_NOFOLLOW);
    if (at_us >= before_us)
        return;
    if (gb_disk_call_unlink(disk->plan, dirfd(dir), base) < 0 && errno != ENOENT)
        gb_disk_count_failure(disk);
}

void gb_disk_sweep_orphans(struct gb_disk *disk, int64_t before_us) {
    DIR *dir = open_folder(disk, GB_DISK_ORPHANS);
    struct dirent *entry;

    if (!dir) {
        if (errno != ENOENT)
            gb_disk_count_failure(disk);
        return;
    }
    while ((entry = readdir(dir)))
        sweep_one(disk, dir, entry->d_name, before_us);
    closedir(dir);
}
