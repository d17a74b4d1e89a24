/* A file of stored bytes while it is written: the bytes first, then the header, then both syncs. A file counts when the
 * database names it; a writer that is given up leaves nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "disk/header.h"
#include "disk/internal.h"

#define BOUNCE_BYTES (1024u * 1024u)
#define UNNAMED_TRIES 100

struct gb_disk_writer {
    struct gb_disk *disk;
    struct gb_disk_name name;
    char text[GB_DISK_NAME_SIZE];
    struct gb_disk_name as; /* when it is complete; buffer_id 0: it has its name */
    uint64_t bytes;         /* that the file will have */
    pthread_mutex_t lock;   /* of the next three, and of filled, while several threads write */
    uint64_t taken;         /* of the caller, and in the checksums */
    uint64_t written;       /* a multiple of GB_DISK_ALIGN until the tail is written */
    uint64_t promised;
    uint64_t started_ns;
    int folder; /* the file's, so that the one that has the entry is synced; -1 */
    int fd;     /* -1: given up */
    atomic_bool direct;
    unsigned char *bounce; /* BOUNCE_BYTES, aligned */
    size_t filled;         /* of it: bytes that are not written yet */
    uint32_t *blocks;      /* a checksum each */
};

/* --- ending ------------------------------------------------------------------------------------------------------- */

static void redeem(struct gb_disk_writer *w, uint64_t bytes) {
    pthread_mutex_lock(&w->lock);
    if (bytes > w->promised)
        bytes = w->promised;
    w->promised -= bytes;
    pthread_mutex_unlock(&w->lock);
    if (bytes > 0)
        gb_disk_redeem(w->disk, bytes);
}

static void close_fds(struct gb_disk_writer *w) {
    if (w->fd >= 0)
        close(w->fd);
    if (w->folder >= 0)
        close(w->folder);
    w->fd = -1;
    w->folder = -1;
}

/* Removes the file before it is closed, so that what was not written yet is dropped and no sync is asked for. */
static void give_up(struct gb_disk_writer *w) {
    if (w->fd >= 0 && gb_disk_call_unlink(w->disk->plan, w->folder, gb_disk_name_base(w->text)) < 0 && errno != ENOENT)
        gb_disk_count_failure(w->disk);
    close_fds(w);
    redeem(w, UINT64_MAX);
}

static void writer_free(struct gb_disk_writer *w) {
    pthread_mutex_destroy(&w->lock);
    free(w->bounce);
    free(w->blocks);
    free(w);
}

void gb_disk_discard(struct gb_disk_writer *w) {
    if (!w)
        return;
    give_up(w);
    writer_free(w);
}

/* --- creating ----------------------------------------------------------------------------------------------------- */

static void know_folder(struct gb_disk_writer *w, bool known) {
    pthread_mutex_lock(&w->disk->lock);
    w->disk->folders[(uint64_t)w->name.buffer_id & 0xff] = known;
    pthread_mutex_unlock(&w->disk->lock);
}

/* Makes the folder and syncs the entry for it, once in the life of this process. The marker is searched for first, as
 * nothing may be made in the folder over which the disk should be mounted. */
static int make_folder(struct gb_disk_writer *w, struct gb_error *err) {
    struct gb_disk *disk = w->disk;
    enum gb_disk_op op = GB_DISK_OP_mkdir;
    char path[PATH_MAX];
    char folder[4];
    bool known;

    pthread_mutex_lock(&disk->lock);
    known = disk->folders[(uint64_t)w->name.buffer_id & 0xff];
    pthread_mutex_unlock(&disk->lock);
    if (known)
        return 0;
    if (gb_disk_check_marker(disk, err) < 0)
        return -1;
    gb_disk_name_folder(&w->name, folder);
    gb_disk_path(disk, folder, path);
    if ((gb_disk_call_mkdir(disk->plan, AT_FDCWD, path) < 0 && errno != EEXIST) ||
        gb_disk_sync_folder(disk, disk->dir, &op) < 0)
        return gb_disk_fail(disk, op, errno, w->bytes, err);
    know_folder(w, true);
    return 0;
}

/* Opens folder and file. Returns 0, or -1 with errno and *ret_op. */
static int open_both(struct gb_disk_writer *w, enum gb_disk_op *ret_op) {
    struct gb_disk_plan *plan = w->disk->plan;
    char path[PATH_MAX];
    char folder[4];

    gb_disk_name_folder(&w->name, folder);
    gb_disk_path(w->disk, folder, path);
    *ret_op = GB_DISK_OP_open;
    w->folder = gb_disk_call_open(plan, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (w->folder < 0)
        return -1;
    *ret_op = GB_DISK_OP_create;
    w->fd = gb_disk_call_create(plan, w->folder, gb_disk_name_base(w->text), O_EXCL);
    if (w->fd < 0)
        return -1;
    w->direct = gb_disk_call_direct(plan, w->fd, true) == 0;
    return 0;
}

/* Where the whole folder has gone, that is the reason. */
static int fail_to_open(struct gb_disk_writer *w, enum gb_disk_op op, int errnum, struct gb_error *err) {
    if (errnum != ENOSPC && errnum != EDQUOT && errnum != EEXIST && !gb_disk_is_shortage(errnum) &&
        gb_disk_check_marker(w->disk, err) < 0)
        return -1;
    return gb_disk_fail(w->disk, op, errnum, w->bytes, err);
}

static int open_file(struct gb_disk_writer *w, struct gb_error *err) {
    enum gb_disk_op op;

    if (make_folder(w, err) < 0)
        return -1;
    if (open_both(w, &op) == 0)
        return 0;
    if (errno != ENOENT)
        return fail_to_open(w, op, errno, err);
    close_fds(w); /* the folder was removed by others, or its disk has gone */
    know_folder(w, false);
    if (make_folder(w, err) < 0)
        return -1;
    return open_both(w, &op) == 0 ? 0 : fail_to_open(w, op, errno, err);
}

/* Takes the room at once where the file system can; otherwise the promise stands until the bytes are written. */
static int allocate(struct gb_disk_writer *w, struct gb_error *err) {
    if (gb_disk_call_fallocate(w->disk->plan, w->fd, GB_DISK_DATA_AT + w->bytes) == 0) {
        redeem(w, UINT64_MAX);
        return 0;
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS)
        return 0;
    return gb_disk_fail(w->disk, GB_DISK_OP_fallocate, errno, w->bytes, err);
}

static struct gb_disk_writer *writer_new(struct gb_disk *disk, const struct gb_disk_name *name, uint64_t bytes) {
    struct gb_disk_writer *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    *w = (struct gb_disk_writer){
        .disk = disk, .name = *name, .bytes = bytes, .started_ns = gb_clock_ns(), .folder = -1, .fd = -1};
    gb_mutex_init(&w->lock);
    gb_disk_name_text(name, w->text);
    w->bounce = aligned_alloc(GB_DISK_ALIGN, BOUNCE_BYTES);
    w->blocks = calloc(gb_stored_block_count(bytes) + 1, sizeof(w->blocks[0]));
    if (w->bounce && w->blocks)
        return w;
    writer_free(w);
    return NULL;
}

int gb_disk_create(struct gb_disk *disk, const struct gb_disk_name *name, uint64_t bytes, struct gb_disk_writer **ret,
                   struct gb_error *err) {
    uint64_t room = gb_disk_room_of(bytes);
    struct gb_disk_writer *w;

    if (gb_disk_promise(disk, room, err) < 0)
        return -1;
    w = writer_new(disk, name, bytes);
    if (!w) {
        gb_disk_redeem(disk, room);
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for a file of stored bytes; try again later");
    }
    w->promised = room;
    if (open_file(w, err) < 0 || allocate(w, err) < 0) {
        gb_disk_discard(w);
        return -1;
    }
    *ret = w;
    return 0;
}

int gb_disk_create_unnamed(struct gb_disk *disk, int64_t buffer_id, uint64_t bytes, struct gb_disk_writer **ret,
                           struct gb_error *err) {
    struct gb_disk_name name = {.buffer_id = buffer_id};
    struct gb_error why = GB_ERROR_INIT;
    int tries;

    /* Files of an earlier process that broke off may have the first numbers. */
    for (tries = 0; tries < UNNAMED_TRIES; tries++) {
        pthread_mutex_lock(&disk->lock);
        name.run = ++disk->unnamed;
        pthread_mutex_unlock(&disk->lock);
        why = GB_ERROR_INIT;
        if (gb_disk_create(disk, &name, bytes, ret, &why) == 0)
            return 0;
        if (strcmp(why.native_domain, "errno") != 0 || why.native_code != EEXIST)
            break;
    }
    return gb_error_move(err, &why);
}

void gb_disk_name_as(struct gb_disk_writer *writer, const struct gb_disk_name *name) {
    writer->as = *name;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static bool is_aligned(const void *ptr) {
    return (uintptr_t)ptr % GB_DISK_ALIGN == 0;
}

/* Writes n bytes at a place of the file. Where the file system or the memory is not one for O_DIRECT, the file goes
 * through the kernel's cache from then on. */
static int put(struct gb_disk_writer *w, const unsigned char *ptr, size_t n, uint64_t at, struct gb_error *err) {
    struct gb_disk_plan *plan = w->disk->plan;

    while (n > 0) {
        ssize_t done = gb_disk_call_write(plan, w->fd, ptr, n, at);

        if (done < 0 && w->direct && (errno == EINVAL || errno == EFAULT)) {
            gb_disk_call_direct(plan, w->fd, false);
            w->direct = false;
            continue;
        }
        if (done <= 0)
            return gb_disk_fail(w->disk, GB_DISK_OP_write, done < 0 ? errno : EIO, w->bytes, err);
        ptr += done;
        n -= (size_t)done;
        at += (uint64_t)done;
        redeem(w, (uint64_t)done);
    }
    return 0;
}

static int append(struct gb_disk_writer *w, const unsigned char *ptr, size_t n, struct gb_error *err) {
    if (put(w, ptr, n, GB_DISK_DATA_AT + w->written, err) < 0)
        return -1;
    w->written += n;
    return 0;
}

static int flush(struct gb_disk_writer *w, struct gb_error *err) {
    size_t n = w->filled;

    w->filled = 0;
    return append(w, w->bounce, n, err);
}

static void sum(struct gb_disk_writer *w, const unsigned char *ptr, size_t n) {
    while (n > 0) {
        size_t left = GB_STORED_BLOCK_BYTES - (size_t)(w->taken % GB_STORED_BLOCK_BYTES);
        size_t part = n < left ? n : left;
        uint32_t *block = &w->blocks[w->taken / GB_STORED_BLOCK_BYTES];

        *block = gb_crc32c(*block, ptr, part);
        w->taken += part;
        ptr += part;
        n -= part;
    }
}

/* Takes some of the bytes: whole pages straight, if they are aligned in memory and in the file, and others by way of
 * the bounce buffer. Returns how many, or -1. */
static ssize_t take(struct gb_disk_writer *w, const unsigned char *ptr, size_t n, struct gb_error *err) {
    size_t room = BOUNCE_BYTES - w->filled;

    if (w->filled % GB_DISK_ALIGN == 0 && is_aligned(ptr) && n >= GB_DISK_ALIGN) {
        n -= n % GB_DISK_ALIGN;
        return flush(w, err) < 0 || append(w, ptr, n, err) < 0 ? -1 : (ssize_t)n;
    }
    if (n > room)
        n = room;
    memcpy(w->bounce + w->filled, ptr, n);
    w->filled += n;
    return w->filled == BOUNCE_BYTES && flush(w, err) < 0 ? -1 : (ssize_t)n;
}

int gb_disk_write(struct gb_disk_writer *w, const void *ptr, size_t n, struct gb_error *err) {
    const unsigned char *at = ptr;

    if (w->fd < 0 || n > w->bytes - w->taken)
        return gb_error_set(err, GB_ERR_INTERNAL, "the file of stored bytes takes no more bytes");
    sum(w, at, n);
    while (n > 0) {
        ssize_t done = take(w, at, n, err);

        if (done < 0) {
            give_up(w);
            return -1;
        }
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

/* --- pieces side by side ------------------------------------------------------------------------------------------ */

bool gb_disk_is_piece(const struct gb_disk_writer *w, const void *ptr, size_t n, uint64_t at) {
    return is_aligned(ptr) && at % GB_STORED_BLOCK_BYTES == 0 && (n % GB_STORED_BLOCK_BYTES == 0 || at + n == w->bytes);
}

static void sum_piece(struct gb_disk_writer *w, const unsigned char *ptr, size_t n, uint64_t at) {
    uint32_t *block = &w->blocks[at / GB_STORED_BLOCK_BYTES];

    for (; n > 0; block++) {
        size_t part = n < GB_STORED_BLOCK_BYTES ? n : GB_STORED_BLOCK_BYTES;

        *block = gb_crc32c(0, ptr, part);
        ptr += part;
        n -= part;
    }
}

/* The last page, if it is no whole one, waits for the end as others do. */
int gb_disk_write_piece(struct gb_disk_writer *w, const void *ptr, size_t n, uint64_t at, struct gb_error *err) {
    size_t over = n % GB_DISK_ALIGN;

    if (w->fd < 0 || at > w->bytes || n > w->bytes - at || !gb_disk_is_piece(w, ptr, n, at))
        return gb_error_set(err, GB_ERR_INTERNAL, "the file of stored bytes does not take that piece");
    sum_piece(w, ptr, n, at);
    if (put(w, ptr, n - over, GB_DISK_DATA_AT + at, err) < 0)
        return -1;
    pthread_mutex_lock(&w->lock);
    w->taken += n;
    w->written += n - over;
    if (over > 0) {
        memcpy(w->bounce, (const char *)ptr + n - over, over);
        w->filled = over;
    }
    pthread_mutex_unlock(&w->lock);
    return 0;
}

/* --- completing --------------------------------------------------------------------------------------------------- */

/* The last page goes out whole, as O_DIRECT asks; the file is cut to its length afterwards. */
static int write_tail(struct gb_disk_writer *w, struct gb_error *err) {
    size_t over = w->filled % GB_DISK_ALIGN;

    if (over > 0) {
        memset(w->bounce + w->filled, 0, GB_DISK_ALIGN - over);
        w->filled += GB_DISK_ALIGN - over;
    }
    return flush(w, err);
}

static uint32_t joined(const struct gb_disk_writer *w) {
    size_t count = gb_stored_block_count(w->bytes);
    uint32_t crc = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        uint64_t left = w->bytes - (uint64_t)i * GB_STORED_BLOCK_BYTES;

        crc = gb_crc32c_join(crc, w->blocks[i], left < GB_STORED_BLOCK_BYTES ? left : GB_STORED_BLOCK_BYTES);
    }
    return crc;
}

static int write_header(struct gb_disk_writer *w, const struct gb_disk_meta *meta, uint32_t crc, struct gb_error *err) {
    if (gb_disk_call_truncate(w->disk->plan, w->fd, GB_DISK_DATA_AT + w->bytes) < 0)
        return gb_disk_fail(w->disk, GB_DISK_OP_truncate, errno, w->bytes, err);
    if (gb_disk_header_build(w->as.buffer_id != 0 ? &w->as : &w->name, meta, crc, w->bounce, err) < 0)
        return -1;
    return put(w, w->bounce, GB_DISK_DATA_AT, 0, err);
}

/* The sync of the folder that follows makes the name safe. */
static int rename_as(struct gb_disk_writer *w, struct gb_error *err) {
    char from[GB_DISK_NAME_SIZE];

    if (w->as.buffer_id == 0)
        return 0;
    memcpy(from, w->text, sizeof(from));
    gb_disk_name_text(&w->as, w->text);
    if (gb_disk_call_rename(w->disk->plan, w->folder, gb_disk_name_base(from), w->folder, gb_disk_name_base(w->text)) ==
        0)
        return 0;
    memcpy(w->text, from, sizeof(from));
    return gb_disk_fail(w->disk, GB_DISK_OP_rename, errno, w->bytes, err);
}

static int sync_both(struct gb_disk_writer *w, struct gb_error *err) {
    if (gb_disk_call_sync(w->disk->plan, w->fd) < 0)
        return gb_disk_fail(w->disk, GB_DISK_OP_sync, errno, w->bytes, err);
    if (rename_as(w, err) < 0)
        return -1;
    if (gb_disk_call_dirsync(w->disk->plan, w->folder) < 0)
        return gb_disk_fail(w->disk, GB_DISK_OP_dirsync, errno, w->bytes, err);
    return 0;
}

/* The folder may have been renamed or replaced while the file was written: a file that its name does not lead to is not
 * there after a restart. */
static int check_named(struct gb_disk_writer *w, struct gb_error *err) {
    char path[PATH_MAX];
    struct stat named;
    struct stat ours;

    gb_disk_path(w->disk, w->text, path);
    if (fstat(w->fd, &ours) < 0)
        return gb_disk_fail(w->disk, GB_DISK_OP_open, errno, w->bytes, err);
    if (lstat(path, &named) == 0 && named.st_dev == ours.st_dev && named.st_ino == ours.st_ino)
        return 0;
    return fail_to_open(w, GB_DISK_OP_open, ENOENT, err);
}

static void count(struct gb_disk_writer *w, uint64_t write_ns, uint64_t sync_ns) {
    struct gb_disk *disk = w->disk;

    pthread_mutex_lock(&disk->lock);
    disk->stat.writes++;
    disk->stat.written_bytes += w->bytes;
    gb_histogram_add(&disk->stat.write, write_ns);
    gb_histogram_add(&disk->stat.sync, sync_ns);
    pthread_mutex_unlock(&disk->lock);
}

/* All but the syncs. */
static int write_rest(struct gb_disk_writer *w, const struct gb_disk_meta *meta, uint32_t *ret_crc32c,
                      struct gb_error *err) {
    if (w->fd < 0 || w->taken != w->bytes || meta->buffer->bytes != w->bytes) {
        give_up(w);
        return gb_error_set(err, GB_ERR_INTERNAL, "the file of stored bytes is not complete");
    }
    *ret_crc32c = joined(w);
    if (write_tail(w, err) == 0 && write_header(w, meta, *ret_crc32c, err) == 0)
        return 0;
    give_up(w);
    return -1;
}

static void end(struct gb_disk_writer *w, uint32_t *blocks) {
    memcpy(blocks, w->blocks, gb_stored_block_count(w->bytes) * sizeof(blocks[0]));
    redeem(w, UINT64_MAX);
    close_fds(w);
    writer_free(w);
}

int gb_disk_complete(struct gb_disk_writer *w, const struct gb_disk_meta *meta, uint32_t *ret_crc32c, uint32_t *blocks,
                     struct gb_error *err) {
    uint64_t written_ns;

    if (write_rest(w, meta, ret_crc32c, err) < 0)
        return -1;
    written_ns = gb_clock_ns();
    if (sync_both(w, err) < 0 || check_named(w, err) < 0) {
        give_up(w);
        return -1;
    }
    count(w, written_ns - w->started_ns, gb_clock_ns() - written_ns);
    end(w, blocks);
    return 0;
}

int gb_disk_complete_spilled(struct gb_disk_writer *w, const struct gb_disk_meta *meta, uint32_t *ret_crc32c,
                             uint32_t *blocks, struct gb_disk_name *ret_name, struct gb_error *err) {
    if (write_rest(w, meta, ret_crc32c, err) < 0)
        return -1;
    *ret_name = w->name;
    end(w, blocks);
    return 0;
}
