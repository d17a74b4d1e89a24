/* Files of a checkpoint that clients bring, each under a name of its own until it is complete. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "disk/folder.h"

#define TRIES 100
#define FILE_SIZE 64

struct gb_disk_put {
    struct gb_disk *disk;
    struct gb_name name;
    char file[FILE_SIZE];
    char made[FILE_SIZE]; /* its name until then; begins with a dot */
    int folder;
    int fd;
    bool direct;
    uint64_t size;
    uint64_t written;
    uint32_t crc;
};

static int failed(struct gb_disk_put *put, enum gb_disk_op op, struct gb_error *err) {
    return gb_disk_fail(put->disk, op, errno, put->size, err);
}

void gb_disk_put_discard(struct gb_disk_put *put) {
    if (!put)
        return;
    if (put->fd >= 0) {
        if (gb_disk_call_unlink(put->disk->plan, put->folder, put->made) < 0 && errno != ENOENT)
            gb_disk_count_failure(put->disk);
        close(put->fd);
    }
    if (put->folder >= 0)
        close(put->folder);
    free(put);
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

/* The folder of a checkpoint that clients bring, made with the first file. */
static int open_folder(struct gb_disk_put *put, const struct gb_name *session, struct gb_error *err) {
    struct gb_disk *disk = put->disk;
    char path[PATH_MAX];
    bool made;

    if (gb_disk_checkpoints_make(disk, err) < 0)
        return -1;
    gb_disk_checkpoint_path(disk, &put->name, false, NULL, path);
    made = gb_disk_call_mkdir(disk->plan, AT_FDCWD, path) == 0;
    if (!made && errno != EEXIST)
        return failed(put, GB_DISK_OP_mkdir, err);
    put->folder = gb_disk_call_open(disk->plan, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (put->folder < 0)
        return failed(put, GB_DISK_OP_open, err);
    if (!made)
        return 0;
    if (session->s[0] &&
        gb_disk_checkpoint_write(disk, put->folder, GB_DISK_OWNER, NULL, 0, session->s, strlen(session->s), err) < 0)
        return -1;
    return gb_disk_checkpoints_sync(disk, err);
}

/* Uploads of the same file may run side by side; the last one stays. */
static int create(struct gb_disk_put *put, struct gb_error *err) {
    int i;

    for (i = 0; i < TRIES; i++) {
        snprintf(put->made, sizeof(put->made), ".%.40s.%d", put->file, i);
        put->fd = gb_disk_call_create(put->disk->plan, put->folder, put->made, O_EXCL);
        if (put->fd >= 0)
            break;
        if (errno != EEXIST)
            return failed(put, GB_DISK_OP_create, err);
    }
    if (put->fd < 0)
        return gb_error_set(
            err, GB_ERR_SATURATED,
            "too many uploads of that file run or broke off; delete the checkpoint, or try again later");
    put->direct = gb_disk_call_direct(put->disk->plan, put->fd, true) == 0;
    if (put->size > 0 && gb_disk_call_fallocate(put->disk->plan, put->fd, put->size) < 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS)
        return failed(put, GB_DISK_OP_fallocate, err);
    return 0;
}

int gb_disk_put_begin(struct gb_disk *disk, const struct gb_name *name, const struct gb_name *session, const char *file,
                      uint64_t size, struct gb_disk_put **ret, struct gb_error *err) {
    struct gb_disk_put *put = calloc(1, sizeof(*put));

    if (!put)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the upload; try again later");
    put->disk = disk;
    put->name = *name;
    put->size = size;
    put->folder = put->fd = -1;
    snprintf(put->file, sizeof(put->file), "%s", file);
    if (gb_disk_check_room(disk, size, err) < 0 || open_folder(put, session, err) < 0 || create(put, err) < 0) {
        gb_disk_put_discard(put);
        return -1;
    }
    *ret = put;
    return 0;
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

static void set_direct(struct gb_disk_put *put, bool direct) {
    if (put->direct && !direct)
        gb_disk_call_direct(put->disk->plan, put->fd, false);
    put->direct = put->direct && direct;
}

/* Past the kernel's cache as long as the pieces are whole pages. */
int gb_disk_put_write(struct gb_disk_put *put, const void *ptr, size_t n, struct gb_error *err) {
    const char *at = ptr;

    put->crc = gb_crc32c(put->crc, ptr, n);
    if ((uintptr_t)ptr % GB_DISK_ALIGN != 0 || n % GB_DISK_ALIGN != 0 || put->written % GB_DISK_ALIGN != 0)
        set_direct(put, false);
    while (n > 0) {
        ssize_t done = gb_disk_call_write(put->disk->plan, put->fd, at, n, put->written);

        if (done < 0 && put->direct && (errno == EINVAL || errno == EFAULT)) {
            set_direct(put, false);
            continue;
        }
        if (done == 0)
            errno = EIO;
        if (done <= 0)
            return failed(put, GB_DISK_OP_write, err);
        if (done % GB_DISK_ALIGN != 0)
            set_direct(put, false);
        at += done;
        n -= (size_t)done;
        put->written += (uint64_t)done;
    }
    return 0;
}

int gb_disk_put_sync(struct gb_disk_put *put, uint32_t *ret_crc32c, struct gb_error *err) {
    if (put->written != put->size)
        return gb_error_set(err, GB_ERR_INTERNAL, "the file of the checkpoint is not complete");
    if (gb_disk_call_sync(put->disk->plan, put->fd) < 0)
        return failed(put, GB_DISK_OP_sync, err);
    *ret_crc32c = put->crc;
    return 0;
}

int gb_disk_put_manifest(struct gb_disk_put *put, struct gb_manifest *ret, struct gb_error *err) {
    char path[PATH_MAX];

    gb_disk_checkpoint_path(put->disk, &put->name, false, put->made, path);
    return gb_disk_manifest_read(put->disk, path, ret, err);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

int gb_disk_put_name(struct gb_disk_put *put, bool *ret_replaced, struct gb_error *err) {
    struct stat st;

    *ret_replaced = fstatat(put->folder, put->file, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (gb_disk_call_rename(put->disk->plan, put->folder, put->made, put->folder, put->file) < 0)
        return errno == ENOENT ? gb_disk_checkpoint_absent(put->disk, &put->name, err)
                               : failed(put, GB_DISK_OP_rename, err);
    if (gb_disk_call_dirsync(put->disk->plan, put->folder) < 0) {
        snprintf(put->made, sizeof(put->made), "%s", put->file); /* which is removed */
        return failed(put, GB_DISK_OP_dirsync, err);
    }
    close(put->fd);
    close(put->folder);
    free(put);
    return 0;
}
