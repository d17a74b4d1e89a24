#include "core/observe/audit_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "core/observe/audit.h"
#include "model/audit.h"

/* Of records that wait for the disk: some 50,000. */
#define PENDING_MAX (8u << 20)
/* Text that is written at a time. */
#define TEXT 65536
/* While records come, so that a write has many of them. */
#define TICK_MS 25

struct gb_audit_file {
    char *path;
    char *old_path;     /* where it is renamed to */
    uint64_t bytes_max; /* 0: it is not */
    struct gb_worker worker;

    /* The worker's alone. */
    int fd; /* -1: it is not open */
    dev_t device;
    ino_t inode;
    uint64_t bytes;
    bool torn; /* a line was written in part */
    struct gb_audit_queue batch;
    uint64_t missing; /* records that no gap tells of yet */

    pthread_mutex_t lock; /* for all below; a leaf */
    struct gb_audit_queue pending;
    uint64_t lost; /* found no room since the worker last looked */
    bool asleep;   /* the worker must be kicked */
    bool reopen;
    uint64_t failures;
    struct gb_error error;
};

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* A pipe without a reader is refused, rather than waited for. */
#define OPEN_FLAGS (O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)

static int open_path(const char *path, struct gb_error *err) {
    int fd = open(path, OPEN_FLAGS | O_CREAT, 0600);

    if (fd < 0)
        gb_error_errno(err, errno == ENOSPC || errno == EDQUOT ? GB_ERR_STORAGE_FULL : GB_ERR_INTERNAL, "open", errno);
    return fd;
}

static int open_file(struct gb_audit_file *f, struct gb_error *err) {
    struct stat st;

    if (f->fd >= 0)
        return 0;
    f->fd = open_path(f->path, err);
    if (f->fd < 0)
        return -1;
    f->torn = false;
    if (fstat(f->fd, &st) == 0) {
        f->device = st.st_dev;
        f->inode = st.st_ino;
        f->bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    }
    return 0;
}

static void close_file(struct gb_audit_file *f) {
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

/* Whether the path still names the file that is open. */
static bool renamed(const struct gb_audit_file *f) {
    struct stat st;

    return stat(f->path, &st) < 0 || st.st_dev != f->device || st.st_ino != f->inode;
}

/* One that is too long goes out of the way; what cannot be renamed grows on. */
static void rotate(struct gb_audit_file *f, size_t written) {
    f->bytes += written;
    if (f->bytes_max == 0 || f->bytes < f->bytes_max || renamed(f) || rename(f->path, f->old_path) < 0)
        return;
    close_file(f);
}

static int write_all(int fd, const char *text, size_t n, size_t *ret_written, struct gb_error *err) {
    *ret_written = 0;
    while (*ret_written < n) {
        ssize_t r = write(fd, text + *ret_written, n - *ret_written);

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return gb_error_errno(err, errno == ENOSPC || errno == EDQUOT ? GB_ERR_STORAGE_FULL : GB_ERR_INTERNAL,
                                  "write", errno);
        *ret_written += (size_t)r;
    }
    return 0;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static void put_line(struct gb_json_writer *out, const struct gb_audit_rec *rec) {
    out->comma = false;
    gb_audit_render(out, rec);
    gb_json_put_text(out, "\n");
}

/* A line that was begun is ended first; a gap stands for records that are missing. */
static void begin_text(struct gb_audit_file *f, struct gb_json_writer *out) {
    const struct gb_audit_rec gap = {.at_us = gb_wall_us(), .event = GB_AUDIT_GAP, .count = f->missing};

    out->used = 0;
    out->failed = false;
    if (f->torn)
        gb_json_put_text(out, "\n");
    if (f->missing > 0)
        put_line(out, &gap);
}

static void failed(struct gb_audit_file *f, uint64_t n, const struct gb_error *err) {
    f->missing += n;
    pthread_mutex_lock(&f->lock);
    f->failures += n;
    f->error = *err;
    pthread_mutex_unlock(&f->lock);
}

/* n: records in the text. What of them was written when the disk had no more room counts as missing. */
static void flush(struct gb_audit_file *f, const struct gb_json_writer *out, uint64_t n) {
    struct gb_error err = GB_ERROR_INIT;
    size_t written = 0;

    if (out->failed)
        gb_error_set(&err, GB_ERR_INTERNAL, "out of memory");
    else if (open_file(f, &err) == 0)
        write_all(f->fd, out->s, out->used, &written, &err);
    if (err.code == GB_OK) {
        f->torn = false;
        f->missing = 0;
        rotate(f, written);
        return;
    }
    if (written > 0)
        f->torn = out->s[written - 1] != '\n';
    failed(f, n, &err);
    close_file(f);
}

static void write_batch(struct gb_audit_file *f) {
    struct gb_json_writer out = {0};
    struct gb_audit_rec rec;
    uint64_t n = 0;
    size_t at = 0;

    begin_text(f, &out);
    while (gb_audit_queue_next(&f->batch, &at, &rec)) {
        put_line(&out, &rec);
        n++;
        if (out.used >= TEXT) {
            flush(f, &out, n);
            begin_text(f, &out);
            n = 0;
        }
    }
    if (n > 0)
        flush(f, &out, n);
    gb_json_done(&out);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static bool take(struct gb_audit_file *f, bool *ret_reopen) {
    struct gb_audit_queue empty = f->batch;

    pthread_mutex_lock(&f->lock);
    f->batch = f->pending;
    f->pending = empty;
    f->missing += f->lost;
    f->lost = 0;
    f->asleep = f->batch.count == 0;
    *ret_reopen = f->reopen;
    f->reopen = false;
    pthread_mutex_unlock(&f->lock);
    return f->batch.count > 0;
}

static uint64_t work(void *arg) {
    struct gb_audit_file *f = arg;
    bool reopen = false;
    bool some = take(f, &reopen);

    if (f->fd >= 0 && (reopen || (some && renamed(f))))
        close_file(f);
    if (reopen)
        open_file(f, NULL); /* what hinders it is said of the next record */
    if (!some)
        return 0;
    write_batch(f);
    gb_audit_queue_clear(&f->batch);
    return TICK_MS;
}

int gb_audit_file_new(const char *path, uint64_t bytes_max, struct gb_audit_file **ret, struct gb_error *err) {
    struct gb_audit_file *f = calloc(1, sizeof(*f));
    struct gb_error why = GB_ERROR_INIT;

    if (!f)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    f->fd = -1;
    f->asleep = true;
    gb_mutex_init(&f->lock);
    gb_worker_init(&f->worker);
    f->bytes_max = bytes_max;
    f->path = strdup(path);
    if (!f->path || asprintf(&f->old_path, "%s.1", path) < 0) {
        f->old_path = NULL;
        gb_error_set(&why, GB_ERR_INTERNAL, "out of memory");
    }
    if (f->old_path && open_file(f, &why) < 0 && why.code == GB_ERR_STORAGE_FULL)
        why = GB_ERROR_INIT;
    if (why.code == GB_OK && gb_worker_start(&f->worker, "gb-audit", 0, work, f, &why) == 0) {
        *ret = f;
        return 0;
    }
    gb_audit_file_free(f);
    return gb_error_set(err, why.code, "the audit's file %.128s cannot be written: %s", path, why.detail);
}

void gb_audit_file_free(struct gb_audit_file *f) {
    if (!f)
        return;
    gb_worker_stop(&f->worker);
    while (work(f) > 0)
        ;
    gb_worker_done(&f->worker);
    close_file(f);
    gb_audit_queue_done(&f->batch);
    gb_audit_queue_done(&f->pending);
    pthread_mutex_destroy(&f->lock);
    free(f->path);
    free(f->old_path);
    free(f);
}

void gb_audit_file_put(struct gb_audit_file *f, const struct gb_audit_rec *rec) {
    bool kick;

    pthread_mutex_lock(&f->lock);
    if (!gb_audit_queue_put(&f->pending, rec, PENDING_MAX)) {
        f->lost++;
        f->failures++;
        f->error = GB_ERROR_INIT;
        gb_error_set(&f->error, GB_ERR_SATURATED, "records come faster than the disk takes them");
    }
    kick = f->asleep;
    f->asleep = false;
    pthread_mutex_unlock(&f->lock);
    if (kick)
        gb_worker_kick(&f->worker);
}

void gb_audit_file_reopen(struct gb_audit_file *f) {
    pthread_mutex_lock(&f->lock);
    f->reopen = true;
    pthread_mutex_unlock(&f->lock);
    gb_worker_kick(&f->worker);
}

uint64_t gb_audit_file_failures(struct gb_audit_file *f, struct gb_error *ret_error) {
    uint64_t failures;

    pthread_mutex_lock(&f->lock);
    failures = f->failures;
    *ret_error = f->error;
    pthread_mutex_unlock(&f->lock);
    return failures;
}

/* A file that root makes for a daemon of another user would not take that daemon's records. */
static int open_beside(const char *path, const char *dir, struct gb_error *err) {
    int fd = open(path, OPEN_FLAGS);
    struct stat st;

    if (fd >= 0 || errno != ENOENT)
        return fd >= 0 ? fd : open_path(path, err);
    fd = open(path, OPEN_FLAGS | O_CREAT | O_EXCL, 0600);
    if (fd < 0) /* the daemon was faster, or it is a link to nothing */
        return open_path(path, err);
    if (geteuid() == 0 && stat(dir, &st) == 0 && fchown(fd, st.st_uid, st.st_gid) < 0) {
        gb_error_errno(err, GB_ERR_INTERNAL, "fchown", errno);
        unlink(path);
        close(fd);
        return -1;
    }
    return fd;
}

int gb_audit_append(const char *path, const char *dir, const struct gb_audit_rec *rec, struct gb_error *err) {
    struct gb_json_writer out = {0};
    size_t written;
    int fd = open_beside(path, dir, err);
    int r = -1;

    if (fd < 0)
        return -1;
    put_line(&out, rec);
    if (out.failed)
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    else
        r = write_all(fd, out.s, out.used, &written, err);
    gb_json_done(&out);
    close(fd);
    return r;
}
