/* What is known of the disk: its state, and what was counted. */
#include <errno.h>
#include <string.h>

#include "disk/internal.h"

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
