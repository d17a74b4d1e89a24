/* The folder and its marker, which says to which database the files belong. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk/internal.h"

#define FORMAT "gpubufd data 1\n"
#define NEW GB_DISK_MARKER ".new"
#define TEXT_SIZE 256

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void marker_text(const struct gb_disk *disk, char ret[TEXT_SIZE]) {
    snprintf(ret, TEXT_SIZE, FORMAT "%s\n", disk->uuid);
}

static int unavailable(enum gb_disk_op op, int errnum, const char *what, struct gb_error *err) {
    if (gb_disk_is_shortage(errnum)) {
        gb_disk_explain(op, errnum, err);
        return -1;
    }
    gb_error_native(err, "errno", errnum, strerrorname_np(errnum), gb_disk_op_call(op));
    return gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE, "%s: %s: %s", what, gb_disk_op_call(op),
                        strerrordesc_np(errnum) ? strerrordesc_np(errnum) : "unknown error");
}

static int absent(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE,
                        "the folder of stored bytes has no file " GB_DISK_MARKER "; mount the disk that has it");
}

/* Reads at most TEXT_SIZE - 1 bytes. Returns how many, or -1 with errno and *ret_op. */
static ssize_t read_marker(struct gb_disk *disk, char ret[TEXT_SIZE], enum gb_disk_op *ret_op) {
    char path[PATH_MAX];
    int fd;
    ssize_t n;

    gb_disk_path(disk, GB_DISK_MARKER, path);
    *ret_op = GB_DISK_OP_open;
    fd = gb_disk_call_open(disk->plan, AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -1;
    *ret_op = GB_DISK_OP_read;
    n = gb_disk_call_read(disk->plan, fd, ret, TEXT_SIZE - 1, 0);
    if (n < 0) {
        int errnum = errno;

        close(fd);
        errno = errnum;
        return -1;
    }
    close(fd);
    ret[n] = '\0';
    return n;
}

int gb_disk_marker_look(struct gb_disk *disk, bool *ret_absent, struct gb_error *err) {
    char ours[TEXT_SIZE];
    char text[TEXT_SIZE];
    enum gb_disk_op op;
    ssize_t n = read_marker(disk, text, &op);
    int errnum = errno;

    *ret_absent = n < 0 && (errnum == ENOENT || errnum == ENOTDIR);
    if (*ret_absent)
        return absent(err);
    if (n < 0)
        return unavailable(op, errnum, "the marker of the folder of stored bytes cannot be read", err);
    marker_text(disk, ours);
    if ((size_t)n == strlen(ours) && memcmp(text, ours, (size_t)n) == 0)
        return 0;
    if (strncmp(text, FORMAT, strlen(FORMAT)) != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the file " GB_DISK_MARKER
                            " in the folder of stored bytes is none of this version's; choose another folder");
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "the folder of stored bytes belongs to another database: its file " GB_DISK_MARKER
                        " has another UUID; choose another folder");
}

int gb_disk_check_marker(struct gb_disk *disk, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    bool is_absent;

    if (gb_disk_marker_look(disk, &is_absent, &why) == 0)
        return 0;
    if (why.code == GB_ERR_SATURATED)
        return gb_error_move(err, &why);
    why.code = GB_ERR_STORAGE_UNAVAILABLE;
    return gb_disk_set_unavailable(disk, &why, err);
}

/* --- making ------------------------------------------------------------------------------------------------------- */

int gb_disk_sync_folder(struct gb_disk *disk, const char *path, enum gb_disk_op *ret_op) {
    int fd;
    int r;
    int errnum;

    *ret_op = GB_DISK_OP_open;
    fd = gb_disk_call_open(disk->plan, AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return -1;
    *ret_op = GB_DISK_OP_dirsync;
    r = gb_disk_call_dirsync(disk->plan, fd);
    errnum = errno;
    close(fd);
    errno = errnum;
    return r;
}

/* Makes the folder, if its parent is there, and syncs the entry for it, which an earlier attempt may have failed to. A
 * parent that this process may not read was not made by it. Returns 0, or -1 with errno and *ret_op. */
static int make_folder(struct gb_disk *disk, enum gb_disk_op *ret_op) {
    char parent[PATH_MAX];
    char *slash;

    *ret_op = GB_DISK_OP_mkdir;
    if (gb_disk_call_mkdir(disk->plan, AT_FDCWD, disk->dir) < 0 && errno != EEXIST)
        return -1;
    snprintf(parent, sizeof(parent), "%s", disk->dir);
    slash = strrchr(parent, '/');
    if (!slash)
        strcpy(parent, ".");
    else
        slash[slash == parent ? 1 : 0] = '\0';
    if (gb_disk_sync_folder(disk, parent, ret_op) < 0)
        return *ret_op == GB_DISK_OP_open && errno == EACCES ? 0 : -1;
    return 0;
}

static int write_new(struct gb_disk *disk, const char *path, enum gb_disk_op *ret_op) {
    char text[TEXT_SIZE];
    int errnum;
    ssize_t n;
    int fd;
    int r;

    marker_text(disk, text);
    *ret_op = GB_DISK_OP_create;
    fd = gb_disk_call_create(disk->plan, AT_FDCWD, path, O_TRUNC);
    if (fd < 0)
        return -1;
    *ret_op = GB_DISK_OP_write;
    n = gb_disk_call_write(disk->plan, fd, text, strlen(text), 0);
    r = n == (ssize_t)strlen(text) ? 0 : -1;
    if (r < 0 && n >= 0)
        errno = ENOSPC; /* so few bytes are cut short for no other reason */
    if (r == 0) {
        *ret_op = GB_DISK_OP_sync;
        r = gb_disk_call_sync(disk->plan, fd);
    }
    errnum = errno;
    close(fd);
    errno = errnum;
    return r;
}

/* The marker is there whole or not at all. */
int gb_disk_write_marker(struct gb_disk *disk, enum gb_disk_op *ret_op) {
    char made[PATH_MAX];
    char path[PATH_MAX];
    int errnum;

    gb_disk_path(disk, NEW, made);
    gb_disk_path(disk, GB_DISK_MARKER, path);
    if (write_new(disk, made, ret_op) == 0) {
        *ret_op = GB_DISK_OP_rename;
        if (gb_disk_call_rename(disk->plan, AT_FDCWD, made, AT_FDCWD, path) == 0)
            return gb_disk_sync_folder(disk, disk->dir, ret_op);
    }
    errnum = errno;
    gb_disk_call_unlink(disk->plan, AT_FDCWD, made);
    errno = errnum;
    return -1;
}

/* Which file the marker is. Returns false if it is missing. */
static bool identify(const struct gb_disk *disk, uint64_t *ret_dev, uint64_t *ret_inode) {
    char path[PATH_MAX];
    struct stat st;

    gb_disk_path(disk, GB_DISK_MARKER, path);
    if (lstat(path, &st) < 0)
        return false;
    *ret_dev = (uint64_t)st.st_dev;
    *ret_inode = (uint64_t)st.st_ino;
    return true;
}

bool gb_disk_same_marker(const struct gb_disk *disk) {
    uint64_t dev;
    uint64_t inode;

    return identify(disk, &dev, &inode) && dev == disk->marker_dev && inode == disk->marker_inode;
}

static void note(struct gb_disk *disk) {
    disk->expected = true;
    if (!identify(disk, &disk->marker_dev, &disk->marker_inode))
        disk->marker_dev = disk->marker_inode = 0; /* it has gone again: the next check finds that */
}

int gb_disk_attach(struct gb_disk *disk, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    enum gb_disk_op op;
    bool is_absent;

    if (gb_disk_marker_look(disk, &is_absent, &why) == 0) {
        note(disk);
        return 0;
    }
    if (!is_absent || disk->expected)
        return gb_error_move(err, &why);
    if (make_folder(disk, &op) < 0 || gb_disk_write_marker(disk, &op) < 0)
        return unavailable(op, errno, "the folder of stored bytes cannot be set up", err);
    note(disk);
    return 0;
}
