/* Reads a file of stored bytes, with O_DIRECT where memory and place permit it. The name and the size are checked when
 * the file is opened; the caller compares checksums. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "disk/header.h"
#include "disk/internal.h"

struct gb_disk_reader {
    struct gb_disk *disk;
    uint64_t at; /* where the bytes begin in the file */
    uint64_t bytes;
    int fd;
    bool direct;         /* the descriptor has O_DIRECT */
    bool refused;        /* it does not take it */
    unsigned char *page; /* aligned; for the header, and for the end of the file */
};

/* A failed read says nothing of what the disk writes: it is counted, and the state stays. */
static int read_failed(struct gb_disk *disk, enum gb_disk_op op, int errnum, struct gb_error *err) {
    const char *call = gb_disk_op_call(op);
    const char *text = strerrordesc_np(errnum) ? strerrordesc_np(errnum) : "unknown error";

    gb_disk_count_failure(disk);
    gb_error_native(err, "errno", errnum, strerrorname_np(errnum), call);
    if (gb_disk_is_shortage(errnum))
        return gb_error_set(err, GB_ERR_SATURATED, "no file can be opened: %s: %s; try again later", call, text);
    return gb_error_set(err, GB_ERR_STORAGE_FAILED, "the file of the bytes cannot be read: %s: %s", call, text);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void set_direct(struct gb_disk_reader *r, bool direct) {
    if (r->refused || r->direct == direct)
        return;
    if (gb_disk_call_direct(r->disk->plan, r->fd, direct) == 0)
        r->direct = direct;
    else
        r->refused = true;
}

/* Reads at least n bytes, and asks for up to room. at: a place of the file. */
static int get(struct gb_disk_reader *r, unsigned char *ptr, size_t n, size_t room, uint64_t at, struct gb_error *err) {
    size_t got = 0;

    while (got < n) {
        ssize_t done = gb_disk_call_read(r->disk->plan, r->fd, ptr + got, room - got, at + got);

        if (done < 0 && r->direct && (errno == EINVAL || errno == EFAULT)) {
            set_direct(r, false);
            r->refused = true;
            continue;
        }
        if (done < 0)
            return read_failed(r->disk, GB_DISK_OP_read, errno, err);
        if (done == 0)
            return gb_disk_say_damage("it ends early", err);
        got += (size_t)done;
    }
    return 0;
}

/* The end of the file is no whole page. O_DIRECT would write behind the caller's memory, so that it goes by way of the
 * reader's. */
int gb_disk_read(struct gb_disk_reader *r, void *ptr, size_t n, uint64_t offset, struct gb_error *err) {
    uint64_t at = r->at + offset;
    size_t over = n % GB_DISK_ALIGN;

    if (offset > r->bytes || n > r->bytes - offset)
        return gb_error_set(err, GB_ERR_INTERNAL, "bytes behind the end of a file are asked for");
    set_direct(r, (uintptr_t)ptr % GB_DISK_ALIGN == 0 && offset % GB_DISK_ALIGN == 0 &&
                      (over == 0 || offset + n == r->bytes));
    if (!r->direct)
        over = 0;
    if (get(r, ptr, n - over, n - over, at, err) < 0)
        return -1;
    if (over > 0) {
        if (get(r, r->page, over, GB_DISK_ALIGN, at + n - over, err) < 0)
            return -1;
        memcpy((unsigned char *)ptr + n - over, r->page, over);
    }
    pthread_mutex_lock(&r->disk->lock);
    r->disk->stat.read_bytes += n;
    pthread_mutex_unlock(&r->disk->lock);
    return 0;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

void gb_disk_read_close(struct gb_disk_reader *r) {
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    free(r->page);
    free(r);
}

static int fail_to_open(struct gb_disk *disk, int errnum, struct gb_error *err) {
    if (errnum == ELOOP || errnum == ENXIO)
        return gb_disk_say_damage("it is no plain file", err);
    if (!disk->offline && !gb_disk_is_shortage(errnum) && gb_disk_check_marker(disk, err) < 0)
        return -1;
    if (errnum == ENOENT || errnum == ENOTDIR)
        return gb_error_set(err, GB_ERR_CONTENT_LOST, "the file of the bytes is not there");
    return read_failed(disk, GB_DISK_OP_open, errnum, err);
}

static int check_file(struct gb_disk_reader *r, struct gb_error *err) {
    struct stat st;

    if (fstat(r->fd, &st) < 0)
        return read_failed(r->disk, GB_DISK_OP_open, errno, err);
    if (!S_ISREG(st.st_mode))
        return gb_disk_say_damage("it is no plain file", err);
    if ((uint64_t)st.st_size != GB_DISK_DATA_AT + r->bytes)
        return gb_disk_say_damage("it has another size", err);
    return 0;
}

static bool is_named(const struct gb_disk_header *header, const struct gb_disk_name *name) {
    return header->name.buffer_id == name->buffer_id && header->name.generation == name->generation &&
           header->name.run == name->run;
}

static int check_header(struct gb_disk_reader *r, const struct gb_disk_name *name, struct gb_disk_header *ret,
                        struct gb_error *err) {
    struct gb_disk_header header;

    set_direct(r, true);
    if (get(r, r->page, GB_DISK_DATA_AT, GB_DISK_DATA_AT, 0, err) < 0)
        return -1;
    if (gb_disk_header_parse(r->page, &header, err) < 0)
        return -1;
    if (header.bytes != r->bytes || !(name->generation & GB_DISK_LINKED || is_named(&header, name)))
        return gb_disk_say_damage("it holds other bytes than its name says", err);
    if (ret)
        *ret = header;
    return 0;
}

static void count(struct gb_disk *disk, uint64_t ns) {
    pthread_mutex_lock(&disk->lock);
    disk->stat.reads++;
    gb_histogram_add(&disk->stat.opening, ns);
    pthread_mutex_unlock(&disk->lock);
}

static struct gb_disk_reader *reader_new(struct gb_disk *disk, uint64_t at, uint64_t bytes, struct gb_error *err) {
    struct gb_disk_reader *r = calloc(1, sizeof(*r));

    if (r) {
        *r = (struct gb_disk_reader){.disk = disk, .at = at, .bytes = bytes, .fd = -1};
        r->page = aligned_alloc(GB_DISK_ALIGN, GB_DISK_ALIGN);
    }
    if (r && r->page)
        return r;
    gb_disk_read_close(r);
    gb_error_set(err, GB_ERR_SATURATED, "no memory to read a file of stored bytes; try again later");
    return NULL;
}

int gb_disk_read_share(const struct gb_disk_reader *of, struct gb_disk_reader **ret, struct gb_error *err) {
    struct gb_disk_reader *r = reader_new(of->disk, of->at, of->bytes, err);

    if (!r)
        return -1;
    r->direct = of->direct;
    r->refused = of->refused;
    r->fd = fcntl(of->fd, F_DUPFD_CLOEXEC, 0);
    if (r->fd < 0) {
        read_failed(of->disk, GB_DISK_OP_open, errno, err);
        gb_disk_read_close(r);
        return -1;
    }
    *ret = r;
    return 0;
}

int gb_disk_read_open_path(struct gb_disk *disk, const char *path, struct gb_disk_reader **ret, uint64_t *ret_bytes,
                           struct gb_error *err) {
    struct gb_disk_reader *r = gb_disk_check_there(disk, err) < 0 ? NULL : reader_new(disk, 0, 0, err);
    struct stat st;
    int failed;

    if (!r)
        return -1;
    r->fd = gb_disk_call_open(disk->plan, AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (r->fd < 0)
        failed = fail_to_open(disk, errno, err);
    else if (fstat(r->fd, &st) < 0)
        failed = read_failed(disk, GB_DISK_OP_open, errno, err);
    else
        failed = S_ISREG(st.st_mode) ? 0 : gb_disk_count_damage(disk, "it is no plain file", err);
    if (failed < 0) {
        gb_disk_read_close(r);
        return -1;
    }
    *ret_bytes = r->bytes = (uint64_t)st.st_size;
    *ret = r;
    return 0;
}

int gb_disk_read_open(struct gb_disk *disk, const struct gb_disk_name *name, uint64_t bytes,
                      struct gb_disk_reader **ret, struct gb_error *err) {
    char text[GB_DISK_NAME_SIZE];

    gb_disk_name_text(name, text);
    return gb_disk_read_open_at(disk, text, name, bytes, NULL, ret, err);
}

int gb_disk_read_open_at(struct gb_disk *disk, const char *below, const struct gb_disk_name *name, uint64_t bytes,
                         struct gb_disk_header *ret_header, struct gb_disk_reader **ret, struct gb_error *err) {
    uint64_t started_ns = gb_clock_ns();
    char path[PATH_MAX];
    struct gb_disk_reader *r;

    if (gb_disk_check_there(disk, err) < 0)
        return -1;
    r = reader_new(disk, GB_DISK_DATA_AT, bytes, err);
    if (!r)
        return -1;
    gb_disk_path(disk, below, path);
    /* A pipe would be waited for. */
    r->fd = gb_disk_call_open(disk->plan, AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (r->fd < 0 ? fail_to_open(disk, errno, err) < 0
                  : check_file(r, err) < 0 || check_header(r, name, ret_header, err) < 0) {
        gb_disk_read_close(r);
        return -1;
    }
    count(disk, gb_clock_ns() - started_ns);
    *ret = r;
    return 0;
}
