/* A disk: opening, closing, and probing whether it is well again. */
#include "disk/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "disk/internal.h"

#define PROBE "GPUBUFD-PROBE"
#define PROBE_BYTES 4096

void gb_disk_path(const struct gb_disk *disk, const char *below, char ret[PATH_MAX]) {
    snprintf(ret, PATH_MAX, "%s/%s", disk->dir, below);
}

/* Copies a path without slashes at its end. */
static char *copy_dir(const char *dir) {
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/')
        n--;
    return strndup(dir, n);
}

int gb_disk_open(const struct gb_disk_config *config, struct gb_disk **ret, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_disk *disk;

    if (config->dir[0] == '\0' || strlen(config->dir) + GB_DISK_BELOW_MAX > PATH_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "the path of the folder of stored bytes is empty or too long");
    disk = calloc(1, sizeof(*disk));
    if (!disk)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory for the disk");
    gb_mutex_init(&disk->lock);
    disk->expected = config->expected;
    disk->reserve_bytes = config->reserve_bytes;
    disk->dir = copy_dir(config->dir);
    disk->uuid = strdup(config->uuid);
    if (!disk->dir || !disk->uuid)
        gb_error_set(&why, GB_ERR_INTERNAL, "out of memory for the disk");
    else if (config->faults)
        gb_disk_plan_init(&disk->rules, config->faults, &why);
    if (why.code == GB_OK && gb_disk_attach(disk, &why) < 0 && why.code != GB_ERR_INVALID_ARGUMENT) {
        why.code = GB_ERR_STORAGE_UNAVAILABLE;
        gb_disk_set_unavailable(disk, &why, NULL);
        why = GB_ERROR_INIT;
    }
    if (why.code != GB_OK) {
        gb_disk_close(disk);
        return gb_error_move(err, &why);
    }
    if (disk->rules.count > 0)
        disk->plan = &disk->rules;
    *ret = disk;
    return 0;
}

void gb_disk_close(struct gb_disk *disk) {
    if (!disk)
        return;
    gb_disk_plan_done(&disk->rules);
    pthread_mutex_destroy(&disk->lock);
    free(disk->dir);
    free(disk->uuid);
    free(disk);
}

void gb_disk_point(struct gb_disk *disk, enum gb_disk_op op) {
    gb_disk_call_point(disk->plan, op);
}

/* --- probing whether it is well again ----------------------------------------------------------------------------- */

/* Writes and syncs a file. Returns 0, or -1 with errno and *ret_op. */
static int write_probe(struct gb_disk *disk, int fd, enum gb_disk_op *ret_op) {
    static const char zeros[PROBE_BYTES];
    ssize_t n;

    *ret_op = GB_DISK_OP_write;
    n = gb_disk_call_write(disk->plan, fd, zeros, sizeof(zeros), 0);
    if (n < 0)
        return -1;
    if (n < (ssize_t)sizeof(zeros)) {
        errno = ENOSPC;
        return -1;
    }
    *ret_op = GB_DISK_OP_sync;
    return gb_disk_call_sync(disk->plan, fd);
}

/* The file is a new one each time: one whose sync has failed is never synced again. */
static int try_file(struct gb_disk *disk, enum gb_disk_op *ret_op) {
    char path[PATH_MAX];
    int errnum;
    int fd;
    int r;

    gb_disk_path(disk, PROBE, path);
    *ret_op = GB_DISK_OP_create;
    fd = gb_disk_call_create(disk->plan, AT_FDCWD, path, O_EXCL);
    if (fd < 0 && errno == EEXIST && gb_disk_call_unlink(disk->plan, AT_FDCWD, path) == 0)
        fd = gb_disk_call_create(disk->plan, AT_FDCWD, path, O_EXCL);
    if (fd < 0)
        return -1;
    r = write_probe(disk, fd, ret_op);
    errnum = errno;
    if (gb_disk_call_unlink(disk->plan, AT_FDCWD, path) < 0 && r == 0) {
        *ret_op = GB_DISK_OP_unlink;
        errnum = errno;
        r = -1;
    }
    close(fd);
    errno = errnum;
    return r < 0 ? -1 : gb_disk_sync_folder(disk, disk->dir, ret_op);
}

/* The state that the disk is in, found by writing. */
static enum gb_disk_state try_disk(struct gb_disk *disk, struct gb_error *why) {
    enum gb_disk_op op;

    if (try_file(disk, &op) < 0) {
        gb_disk_count_failure(disk);
        gb_disk_explain(op, errno, why);
        return why->code == GB_ERR_STORAGE_FULL ? GB_DISK_FULL : GB_DISK_FAILED;
    }
    if (gb_disk_free(disk) > 0)
        return GB_DISK_READY;
    gb_error_set(why, GB_ERR_STORAGE_FULL, "the disk has no room for files of bytes; make room on it");
    return GB_DISK_FULL;
}

static void forget_folders(struct gb_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    memset(disk->folders, 0, sizeof(disk->folders));
    pthread_mutex_unlock(&disk->lock);
}

/* Whether the folder of a disk that is READY has gone. Another one in its place that is ours, too, is taken. */
static bool look_for_folder(struct gb_disk *disk) {
    if (gb_disk_same_marker(disk))
        return false;
    if (gb_disk_check_marker(disk, NULL) < 0)
        return gb_disk_check_there(disk, NULL) < 0;
    forget_folders(disk);
    gb_disk_attach(disk, NULL);
    return false;
}

bool gb_disk_probe(struct gb_disk *disk) {
    struct gb_error why = GB_ERROR_INIT;
    enum gb_disk_state before;
    enum gb_disk_state state;
    uint64_t epoch;
    bool changed;

    pthread_mutex_lock(&disk->lock);
    before = disk->stat.state;
    epoch = disk->epoch;
    pthread_mutex_unlock(&disk->lock);
    if (before == GB_DISK_READY)
        return look_for_folder(disk);
    if (gb_disk_attach(disk, &why) < 0) {
        if (why.code == GB_ERR_SATURATED)
            return false;
        why.code = GB_ERR_STORAGE_UNAVAILABLE;
        state = GB_DISK_UNAVAILABLE;
    } else {
        state = before == GB_DISK_UNAVAILABLE ? GB_DISK_READY : try_disk(disk, &why);
    }
    pthread_mutex_lock(&disk->lock);
    if (disk->epoch == epoch) { /* a failure since then knows better */
        disk->stat.state = state;
        disk->stat.error = why;
        if (before == GB_DISK_UNAVAILABLE)
            memset(disk->folders, 0, sizeof(disk->folders));
    }
    changed = disk->stat.state != before;
    pthread_mutex_unlock(&disk->lock);
    return changed;
}
