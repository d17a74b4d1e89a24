/* Files below the folders that an option names. A path is opened by openat2, which does not let it leave its folder,
 * whatever links it has. Each connection has a description of its own, so that the kernel reads ahead of each, and
 * reads straight into the memory or the slots of its part. A file is of one version while its size, its times and its
 * inode stay, and those say so of a file that was at rest when it was opened. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "source/source.h"
#include "source/way.h"

#define READ_MOST (8u << 20) /* at once, so that a fetch that is to end does */
#define REST_MS 20           /* two steps of the clock that the times of files are of, where it is slowest */
#define REST_LOOKS 50        /* a second */

struct file {
    struct gb_way way; /* first */
    char *path;
    char **folders;
    size_t folder_count;
    struct timespec change; /* since it was opened. Unlike the time in the tag, no writer can set it */
};

struct file_conn {
    struct gb_way_conn conn; /* first */
    int fd;                  /* -1: not open */
};

/* --- opening ------------------------------------------------------------------------------------------------------ */

static int open_below(const char *folder, const char *path) {
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int at = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = -1;
    int saved;

    if (at < 0)
        return -1;
    /* A name that changes meanwhile is resolved again. */
    do
        fd = (int)syscall(SYS_openat2, at, path, &how, sizeof(how));
    while (fd < 0 && (errno == EAGAIN || errno == EINTR));
    saved = errno;
    close(at);
    errno = saved;
    return fd;
}

static int refuse(const struct file *f, int why, struct gb_error *err) {
    switch (why) {
    case ENOENT:
    case ENOTDIR:
        return gb_error_set(err, GB_ERR_SOURCE_NOT_FOUND, "no folder of --files-from has a file \"%s\"", f->path);
    case EXDEV:
    case ELOOP:
        return gb_error_set(err, GB_ERR_SOURCE_NOT_PERMITTED,
                            "\"%s\" leads out of the folders of --files-from, or through too many links", f->path);
    case EACCES:
    case EPERM:
        return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "the daemon may not read \"%s\": its user needs the right to",
                            f->path);
    case ENAMETOOLONG:
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a name within the path \"%.64s...\" is too long", f->path);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return gb_error_set(err, GB_ERR_SATURATED, "no descriptor, or no memory, is left for \"%s\"; try again later",
                            f->path);
    default:
        return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "\"%s\" cannot be opened: %s", f->path, strerrordesc_np(why));
    }
}

/* Opens it in the first folder that has it. */
static int open_file(const struct file *f, struct stat *ret, struct gb_error *err) {
    int why = ENOENT;
    int fd = -1;
    size_t i;

    for (i = 0; i < f->folder_count && fd < 0; i++) {
        fd = open_below(f->folders[i], f->path);
        /* What is said is the most that was found of it. */
        if (fd < 0 && ((errno != ENOENT && errno != ENOTDIR) || why == ENOENT))
            why = errno;
    }
    if (fd < 0)
        return refuse(f, why, err);
    if (fstat(fd, ret) == 0 && S_ISREG(ret->st_mode))
        return fd;
    close(fd);
    return gb_error_set(err, GB_ERR_SOURCE_REFUSED, "\"%s\" is not a regular file", f->path);
}

static void write_tag(const struct stat *is, char ret[GB_PULL_TAG_SIZE]) {
    snprintf(ret, GB_PULL_TAG_SIZE, "\"%" PRIu64 "-%" PRIu64 "-%" PRIu64 "\"", (uint64_t)is->st_size,
             (uint64_t)is->st_mtim.tv_sec * 1000000000 + (uint64_t)is->st_mtim.tv_nsec, (uint64_t)is->st_ino);
}

static enum gb_pull_outcome changed(const struct file *f, struct gb_error *err) {
    gb_error_set(err, GB_ERR_SOURCE_CHANGED, "%s was changed while it was read", f->way.name);
    return GB_PULL_FAILED; /* who writes it may not have ended */
}

static bool is_same_time(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Whether what is there is what was opened first. */
static enum gb_pull_outcome compare(const struct file *f, const struct stat *is, struct gb_error *err) {
    char tag[GB_PULL_TAG_SIZE];

    write_tag(is, tag);
    return strcmp(tag, f->way.tag) == 0 && is_same_time(&is->st_ctim, &f->change) ? GB_PULL_OK : changed(f, err);
}

/* Of the last change, as this machine's clock has it; negative: another machine's clock is ahead. */
static int64_t age_ms(const struct stat *is) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return ((int64_t)now.tv_sec - is->st_ctim.tv_sec) * 1000 + (now.tv_nsec - is->st_ctim.tv_nsec) / 1000000;
}

/* A file's times have steps of milliseconds, and one write sets them before its first byte. Of a file that has just
 * been written they could be those of the bytes to come as well: it is opened once it has been at rest for a while. */
static enum gb_pull_outcome open_at_rest(const struct file *f, int *ret, struct stat *ret_is, struct gb_error *err) {
    struct timespec before = {.tv_nsec = -1};
    int64_t age;
    int looks;

    for (looks = 0; looks < REST_LOOKS; looks++) {
        *ret = open_file(f, ret_is, err);
        if (*ret < 0)
            return GB_PULL_FAILED;
        age = age_ms(ret_is);
        if (age >= REST_MS || (age < 0 && is_same_time(&ret_is->st_ctim, &before)))
            return GB_PULL_OK;
        close(*ret);
        *ret = -1;
        before = ret_is->st_ctim;
        if (gb_fetch_poll(f->way.fetch, -1, 0, REST_MS) < 0)
            return GB_PULL_STOPPED;
    }
    gb_error_set(err, GB_ERR_SOURCE_CHANGED, "%s is being written", f->way.name);
    return GB_PULL_FAILED;
}

static enum gb_pull_outcome file_open(struct gb_way *way, struct gb_way_conn *conn, struct gb_error *err) {
    struct file_conn *c = (struct file_conn *)conn;
    struct file *f = (struct file *)way;
    enum gb_pull_outcome outcome;
    struct stat is;

    outcome = open_at_rest(f, &c->fd, &is, err);
    if (outcome != GB_PULL_OK)
        return outcome;
    (void)posix_fadvise(c->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    way->length = (uint64_t)is.st_size;
    way->ranged = true;
    way->named = gb_image_named(f->path, strlen(f->path));
    write_tag(&is, way->tag);
    f->change = is.st_ctim;
    return GB_PULL_OK;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static struct gb_way_conn *conn_new(struct gb_way *way) {
    struct file_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->conn.way = way;
    c->fd = -1;
    return &c->conn;
}

static void conn_free(struct gb_way_conn *conn) {
    struct file_conn *c = (struct file_conn *)conn;

    if (c && c->fd >= 0)
        close(c->fd);
    free(c);
}

static bool has(struct gb_way_conn *conn, uint64_t at) {
    (void)at;
    return ((struct file_conn *)conn)->fd >= 0;
}

static enum gb_pull_outcome file_wait(struct gb_way_conn *conn, uint64_t at, uint64_t until, struct gb_error *err) {
    struct file_conn *c = (struct file_conn *)conn;
    const struct file *f = (const struct file *)conn->way;
    struct gb_error why = GB_ERROR_INIT;
    struct stat is;

    (void)at;
    (void)until;
    c->fd = open_file(f, &is, &why);
    if (c->fd < 0 && why.code == GB_ERR_SOURCE_NOT_FOUND)
        return changed(f, err);
    if (c->fd < 0) {
        gb_error_move(err, &why);
        return GB_PULL_FAILED;
    }
    (void)posix_fadvise(c->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return compare(f, &is, err);
}

static enum gb_pull_outcome file_read(struct gb_way_conn *conn, uint64_t at, void *room, size_t n, size_t *ret,
                                      struct gb_error *err) {
    const struct file *f = (const struct file *)conn->way;
    ssize_t got;

    do
        got = pread(((struct file_conn *)conn)->fd, room, n < READ_MOST ? n : READ_MOST, (off_t)at);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        gb_error_set(err, GB_ERR_SOURCE_REFUSED, "%s cannot be read at byte %" PRIu64 ": %s", f->way.name, at,
                     strerrordesc_np(errno));
        return GB_PULL_FAILED;
    }
    *ret = (size_t)got;
    return got == 0 && at < f->way.length ? changed(f, err) : GB_PULL_OK;
}

/* The name may lead to another file by now, and the file may have been written. */
static enum gb_pull_outcome file_check(struct gb_way *way, struct gb_error *err) {
    const struct file *f = (const struct file *)way;
    struct gb_error why = GB_ERROR_INIT;
    enum gb_pull_outcome outcome;
    struct stat is;
    int fd = open_file(f, &is, &why);

    if (fd < 0)
        return changed(f, err);
    outcome = compare(f, &is, err);
    close(fd);
    return outcome;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static void file_free(struct gb_way *way) {
    struct file *f = (struct file *)way;

    gb_texts_free(f->folders);
    free(f->path);
    free(f);
}

static const struct gb_way_kind kind = {.open = file_open,
                                        .conn_new = conn_new,
                                        .conn_free = conn_free,
                                        .has = has,
                                        .wait = file_wait,
                                        .read = file_read,
                                        .check = file_check,
                                        .free = file_free};

struct gb_way *gb_file_new(struct gb_fetch *fetch, const struct gb_source_params *params) {
    struct file *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->way.kind = &kind;
    f->way.fetch = fetch;
    snprintf(f->way.name, sizeof(f->way.name), "the file \"%s\"", params->file);
    f->path = strdup(params->file);
    f->folders = gb_texts_copy(params->folders, params->folder_count);
    f->folder_count = params->folder_count;
    if (f->path && f->folders)
        return &f->way;
    file_free(&f->way);
    return NULL;
}

int gb_source_file_read(const char *path, struct gb_error *err) {
    const char *at;
    size_t n;

    if (path[0] == '\0' || path[0] == '/' || strlen(path) > GB_SOURCE_PATH_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "'from_file' must be the path of a file relative to a folder of --files-from, of 1 to %d "
                            "bytes, as llama/model.safetensors",
                            GB_SOURCE_PATH_MAX);
    for (at = path;; at += n + 1) {
        n = strcspn(at, "/");
        if (n == 0 || (n == 2 && memcmp(at, "..", 2) == 0))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "'from_file' has an empty part, or \"..\": %.128s", path);
        if (at[n] == '\0')
            return 0;
    }
}
