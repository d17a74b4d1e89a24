/* The folder of stored bytes: its state and what was counted, the marker that says whose it is, the room that writers
 * are promised, and the probe of a disk that failed. The core opens it once and probes it every second. */
#include "disk/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "disk/internal.h"

void gb_disk_path(const struct gb_disk *disk, const char *below, char ret[PATH_MAX]) {
    snprintf(ret, PATH_MAX, "%s/%s", disk->dir, below);
}

void gb_disk_shut(int fd) {
    int errnum = errno;

    close(fd);
    errno = errnum;
}

/* --- state -------------------------------------------------------------------------------------------------------- */

const char *gb_disk_state_name(enum gb_disk_state state) {
    static const char *const names[] = {[GB_DISK_READY] = "ready",
                                        [GB_DISK_FULL] = "full",
                                        [GB_DISK_FAILED] = "failed",
                                        [GB_DISK_UNAVAILABLE] = "unavailable"};

    return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

static bool is_full(int errnum) {
    return errnum == ENOSPC || errnum == EDQUOT;
}

bool gb_disk_is_shortage(int errnum) {
    return errnum == EMFILE || errnum == ENFILE || errnum == ENOMEM;
}

/* Errors that say nothing of the disk: they are the process's, or the file's alone. */
static bool is_of_caller(int errnum) {
    return gb_disk_is_shortage(errnum) || errnum == EEXIST || errnum == EFBIG;
}

void gb_disk_explain(enum gb_disk_op op, int errnum, struct gb_error *err) {
    const char *call = gb_disk_op_call(op);
    const char *text = strerrordesc_np(errnum) ? strerrordesc_np(errnum) : "unknown error";

    if (!err || err->code != GB_OK)
        return;
    gb_error_native(err, "errno", errnum, strerrorname_np(errnum), call);
    if (is_full(errnum))
        gb_error_set(err, GB_ERR_STORAGE_FULL, "the disk has no room for the bytes: %s: %s; make room on it", call,
                     text);
    else if (errnum == EFBIG)
        gb_error_set(err, GB_ERR_STORAGE_FULL, "the disk takes no file of that size: %s: %s", call, text);
    else if (gb_disk_is_shortage(errnum))
        gb_error_set(err, GB_ERR_SATURATED, "no file can be opened: %s: %s; try again later", call, text);
    else
        gb_error_set(err, GB_ERR_STORAGE_FAILED, "the disk did not take the bytes: %s: %s", call, text);
}

/* The worse state wins, and of equal ones the later reason. */
static void worsen_locked(struct gb_disk *disk, enum gb_disk_state state, const struct gb_error *why) {
    disk->epoch++;
    if (state < disk->stat.state)
        return;
    disk->stat.state = state;
    disk->stat.error = *why;
}

int gb_disk_fail(struct gb_disk *disk, enum gb_disk_op op, int errnum, uint64_t requested, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct statvfs fs;

    gb_disk_explain(op, errnum, &why);
    if (is_full(errnum) && requested > 0 && gb_disk_call_statvfs(disk->plan, disk->dir, &fs) == 0) {
        uint64_t total = (uint64_t)fs.f_blocks * fs.f_frsize;
        uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;

        gb_error_numbers(&why, total, total - left, requested);
    }
    pthread_mutex_lock(&disk->lock);
    disk->stat.failures++;
    if (!is_of_caller(errnum))
        worsen_locked(disk, is_full(errnum) ? GB_DISK_FULL : GB_DISK_FAILED, &why);
    pthread_mutex_unlock(&disk->lock);
    return gb_error_move(err, &why);
}

void gb_disk_count_failure(struct gb_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    disk->stat.failures++;
    pthread_mutex_unlock(&disk->lock);
}

int gb_disk_say_damage(const char *why, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "the file of the bytes is damaged: %s", why);
}

int gb_disk_count_damage(struct gb_disk *disk, const char *why, struct gb_error *err) {
    gb_disk_note_damage(disk);
    return gb_disk_say_damage(why, err);
}

int gb_disk_set_unavailable(struct gb_disk *disk, const struct gb_error *why, struct gb_error *err) {
    pthread_mutex_lock(&disk->lock);
    worsen_locked(disk, GB_DISK_UNAVAILABLE, why);
    pthread_mutex_unlock(&disk->lock);
    return gb_error_move(err, why);
}

int gb_disk_check_there(struct gb_disk *disk, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    pthread_mutex_lock(&disk->lock);
    if (disk->stat.state == GB_DISK_UNAVAILABLE)
        why = disk->stat.error;
    pthread_mutex_unlock(&disk->lock);
    return why.code == GB_OK ? 0 : gb_error_move(err, &why);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

void gb_disk_note_damage(struct gb_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    disk->stat.damaged++;
    pthread_mutex_unlock(&disk->lock);
}

uint64_t gb_disk_damaged(struct gb_disk *disk) {
    uint64_t damaged;

    pthread_mutex_lock(&disk->lock);
    damaged = disk->stat.damaged;
    pthread_mutex_unlock(&disk->lock);
    return damaged;
}

void gb_disk_stat(struct gb_disk *disk, struct gb_disk_stat *ret) {
    uint64_t free_bytes = gb_disk_free(disk);

    pthread_mutex_lock(&disk->lock);
    *ret = disk->stat;
    pthread_mutex_unlock(&disk->lock);
    ret->free_bytes = ret->state == GB_DISK_UNAVAILABLE ? 0 : free_bytes;
    if (ret->state != GB_DISK_READY || free_bytes > 0)
        return;
    ret->state = GB_DISK_FULL;
    gb_error_set(&ret->error, GB_ERR_STORAGE_FULL, "the disk has no room beside the reserve of %llu bytes",
                 (unsigned long long)disk->reserve_bytes);
}

enum gb_disk_state gb_disk_state_of(struct gb_disk *disk, struct gb_error *ret_why) {
    enum gb_disk_state state;

    pthread_mutex_lock(&disk->lock);
    state = disk->stat.state;
    *ret_why = disk->stat.error;
    pthread_mutex_unlock(&disk->lock);
    return state;
}

/* --- marker ------------------------------------------------------------------------------------------------------- */

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
    gb_disk_shut(fd);
    if (n >= 0)
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

    *ret_op = GB_DISK_OP_open;
    fd = gb_disk_call_open(disk->plan, AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return -1;
    *ret_op = GB_DISK_OP_dirsync;
    r = gb_disk_call_dirsync(disk->plan, fd);
    gb_disk_shut(fd);
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
    gb_disk_shut(fd);
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

/* Whether the marker is the file that it was when gb_disk_attach found it. [a stat] */
static bool disk_same_marker(const struct gb_disk *disk) {
    uint64_t dev;
    uint64_t inode;

    return identify(disk, &dev, &inode) && dev == disk->marker_dev && inode == disk->marker_inode;
}

static void note(struct gb_disk *disk) {
    disk->expected = true;
    if (!identify(disk, &disk->marker_dev, &disk->marker_inode))
        disk->marker_dev = disk->marker_inode = 0; /* it has gone again: the next check finds that */
}

/* The same, and makes folder and marker where none is expected. */
static int disk_attach(struct gb_disk *disk, struct gb_error *err) {
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

/* --- room --------------------------------------------------------------------------------------------------------- */

/* What the file system has, without the reserve and what writers were promised. */

uint64_t gb_disk_room_of(uint64_t bytes) {
    if (bytes > (uint64_t)INT64_MAX - 2 * GB_DISK_DATA_AT)
        return UINT64_MAX;
    return GB_DISK_DATA_AT + (bytes + GB_DISK_ALIGN - 1) / GB_DISK_ALIGN * GB_DISK_ALIGN;
}

/* Room of one moment. A promise that ended since `redeemed` was read may or may not be in what statvfs said, so that it
 * counts still. */
struct room {
    uint64_t total;
    uint64_t free;
    uint64_t redeemed;
};

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

/* Returns 0, or -1 with errno. */
static int look(struct gb_disk *disk, struct room *ret) {
    struct statvfs fs;

    pthread_mutex_lock(&disk->lock);
    ret->redeemed = disk->redeemed;
    pthread_mutex_unlock(&disk->lock);
    if (gb_disk_call_statvfs(disk->plan, disk->dir, &fs) < 0)
        return -1;
    ret->total = less((uint64_t)fs.f_blocks * fs.f_frsize, disk->reserve_bytes);
    ret->free = less((uint64_t)fs.f_bavail * fs.f_frsize, disk->reserve_bytes);
    return 0;
}

static uint64_t left_locked(const struct gb_disk *disk, const struct room *room) {
    return less(room->free, disk->promised + (disk->redeemed - room->redeemed));
}

static int refuse(const struct gb_disk *disk, const struct room *room, uint64_t left, uint64_t bytes,
                  struct gb_error *err) {
    gb_error_numbers(err, room->total, less(room->total, left), bytes);
    return gb_error_set(err, GB_ERR_STORAGE_FULL,
                        "the disk has room for %llu bytes, and the file takes %llu; %llu are kept free. Delete stored "
                        "buffers, or make room",
                        (unsigned long long)left, (unsigned long long)bytes, (unsigned long long)disk->reserve_bytes);
}

/* The disk's state forbids a file. */
static int refuse_state(const struct gb_error *why, struct gb_error *err) {
    if (why->code != GB_ERR_STORAGE_FAILED)
        return gb_error_move(err, why);
    gb_error_native(err, why->native_domain, why->native_code, why->native_name, why->call);
    return gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE, "%.300s; the disk is tried again every second", why->detail);
}

static int check(struct gb_disk *disk, uint64_t bytes, bool keep, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct room room;
    uint64_t left;

    pthread_mutex_lock(&disk->lock);
    if (disk->stat.state == GB_DISK_FAILED || disk->stat.state == GB_DISK_UNAVAILABLE)
        why = disk->stat.error;
    pthread_mutex_unlock(&disk->lock);
    if (why.code != GB_OK)
        return refuse_state(&why, err);
    if (look(disk, &room) < 0) {
        int errnum = errno;

        if (gb_disk_check_marker(disk, err) < 0)
            return -1;
        gb_disk_count_failure(disk);
        gb_disk_explain(GB_DISK_OP_statvfs, errnum, err);
        return -1;
    }
    pthread_mutex_lock(&disk->lock);
    left = left_locked(disk, &room);
    if (keep && bytes <= left)
        disk->promised += bytes;
    pthread_mutex_unlock(&disk->lock);
    return bytes <= left ? 0 : refuse(disk, &room, left, bytes, err);
}

int gb_disk_check_room(struct gb_disk *disk, uint64_t bytes, struct gb_error *err) {
    return check(disk, gb_disk_room_of(bytes), false, err);
}

int gb_disk_promise(struct gb_disk *disk, uint64_t bytes, struct gb_error *err) {
    return check(disk, bytes, true, err);
}

void gb_disk_redeem(struct gb_disk *disk, uint64_t bytes) {
    pthread_mutex_lock(&disk->lock);
    disk->promised -= bytes;
    disk->redeemed += bytes;
    pthread_mutex_unlock(&disk->lock);
}

uint64_t gb_disk_free(struct gb_disk *disk) {
    struct room room;
    uint64_t left;

    if (look(disk, &room) < 0)
        return 0;
    pthread_mutex_lock(&disk->lock);
    left = left_locked(disk, &room);
    pthread_mutex_unlock(&disk->lock);
    return left;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

#define PROBE "GPUBUFD-PROBE"
#define PROBE_BYTES 4096

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
    if (why.code == GB_OK && disk_attach(disk, &why) < 0 && why.code != GB_ERR_INVALID_ARGUMENT) {
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
    if (disk_same_marker(disk))
        return false;
    if (gb_disk_check_marker(disk, NULL) < 0)
        return gb_disk_check_there(disk, NULL) < 0;
    forget_folders(disk);
    disk_attach(disk, NULL);
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
    if (disk_attach(disk, &why) < 0) {
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

/* --- times -------------------------------------------------------------------------------------------------------- */

/* What the folder remembers by the times of its files. */

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
