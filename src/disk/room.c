/* Room for files: what the file system has, without the reserve and what writers were promised. */
#include <errno.h>

#include "disk/internal.h"

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
