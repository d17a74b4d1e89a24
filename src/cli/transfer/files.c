/* Where downloads go, and what uploads and downloads have in common. A file appears under its name when all of it is
 * there (a new file without a name until then, or one of another name beside it), so that a download that broke leaves
 * the old one. Pipes and standard output get the bytes as they come. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/transfer/files.h"

#define POLL_MS 100 /* a pipe that takes nothing is left so often to see whether an interrupt came */

/* --- paths -------------------------------------------------------------------------------------------------------- */

bool gb_cli_ends_in(const char *text, const char *end) {
    size_t n = strlen(text);
    size_t m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

char *gb_cli_path_in(const char *folder, const char *file) {
    char *path;

    return asprintf(&path, "%s%s%s", folder, gb_cli_ends_in(folder, "/") ? "" : "/", file) < 0 ? NULL : path;
}

bool gb_cli_is_folder(const char *path) {
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool gb_cli_is_file(const char *text) {
    return strcmp(text, "-") == 0 || text[0] == '/' || strncmp(text, "./", 2) == 0 || strncmp(text, "../", 3) == 0 ||
           strncmp(text, "file:", 5) == 0;
}

/* --- where a download goes ---------------------------------------------------------------------------------------- */

/* The mode that a new file gets, or the one of the file that it takes the place of. */
static mode_t mode_of(const char *path) {
    struct stat info;
    mode_t mask;

    if (stat(path, &info) == 0)
        return info.st_mode & 07777;
    mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

/* A file without a name, so that nothing stays of it however this ends; with one where the file system has none
 * such. */
static int open_unnamed(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int fd = folder ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;

    free(folder);
    return fd;
}

static int open_temporary(struct gb_cli_sink *sink, const char *path) {
    sink->path = realpath(path, NULL); /* what a link names is replaced, not the link */
    if (!sink->path)
        sink->path = strdup(path);
    sink->seeks = true;
    if (!sink->path || asprintf(&sink->temporary, "%s.XXXXXX", sink->path) < 0) {
        sink->temporary = NULL;
        return -1;
    }
    sink->fd = open_unnamed(sink->path);
    sink->unnamed = sink->fd >= 0;
    if (!sink->unnamed)
        sink->fd = mkostemp(sink->temporary, O_CLOEXEC);
    if (sink->fd < 0) {
        free(sink->temporary);
        sink->temporary = NULL;
        return -1;
    }
    return fchmod(sink->fd, mode_of(sink->path));
}

/* Its temporary name, for a moment. */
static int give_name(struct gb_cli_sink *sink) {
    char link[32];
    int fd;

    if (!sink->unnamed)
        return 0;
    fd = mkostemp(sink->temporary, O_CLOEXEC); /* a name that is not in use */
    if (fd < 0)
        return -1;
    close(fd);
    sink->unnamed = false;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", sink->fd);
    if (unlink(sink->temporary) < 0)
        return -1;
    return linkat(AT_FDCWD, link, AT_FDCWD, sink->temporary, AT_SYMLINK_FOLLOW);
}

static void drop(struct gb_cli_sink *sink) {
    if (sink->fd > STDERR_FILENO)
        close(sink->fd);
    if (sink->temporary && !sink->unnamed && sink->temporary[0] != '\0')
        unlink(sink->temporary);
    free(sink->temporary);
    free(sink->path);
    *sink = (struct gb_cli_sink){.fd = -1};
}

/* A pipe or a device, so that no write of it blocks; one without a reader is waited for, as open(2) does. */
static int open_pipe(const struct gb_cli *cli, const char *path) {
    int fd;

    do
        fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    while (fd < 0 && errno == ENXIO && atomic_load(&cli->interrupted) == 0 && poll(NULL, 0, POLL_MS) == 0);
    return fd;
}

/* Standard output; where it is a pipe or a terminal, opened again: whether writes block is not for us to set for those
 * that share it with us. One that cannot be written, as one that was closed, stays so. */
static int standard_output(const struct gb_cli *cli) {
    struct stat info;
    int fd = -1;

    if ((fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) != O_RDONLY && fstat(STDOUT_FILENO, &info) == 0 &&
        (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)))
        fd = open_pipe(cli, "/proc/self/fd/1");
    return fd >= 0 ? fd : STDOUT_FILENO;
}

/* A gpubuf_write_fn that is not deaf to interrupts. */
static int write_pipe(void *arg, const void *data, size_t bytes) {
    struct gb_cli_sink *sink = arg;
    struct pollfd ready = {.fd = sink->fd, .events = POLLOUT};
    const char *at = data;

    sink->given = true;
    while (bytes > 0) {
        ssize_t n = write(sink->fd, at, bytes);

        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return -1;
        } else if (atomic_load(&sink->cli->interrupted)) {
            errno = EINTR;
            return -1;
        } else if (n < 0 && errno == EAGAIN) {
            poll(&ready, 1, POLL_MS);
        }
    }
    return 0;
}

int gb_cli_sink_open(struct gb_cli *cli, const char *path, struct gb_cli_sink *ret) {
    struct gb_cli_sink sink = {.fd = -1, .cli = cli};
    struct stat info;
    int r = 0;

    if (!path || strcmp(path, "-") == 0)
        sink.fd = standard_output(cli);
    else if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        sink.fd = open_pipe(cli, path);
    else
        r = open_temporary(&sink, path);
    if (r < 0 || sink.fd < 0) {
        int error = errno;

        drop(&sink);
        return gb_cli_refused(cli, GB_CLI_FAILED, "%s cannot be written: %s", path, strerror(error));
    }
    *ret = sink;
    return 0;
}

int gb_cli_sink_close(struct gb_cli *cli, struct gb_cli_sink *sink, bool good) {
    int r = 0;

    if (good && sink->temporary) {
        if (give_name(sink) < 0 || rename(sink->temporary, sink->path) < 0)
            r = gb_cli_refused(cli, GB_CLI_FAILED, "%s cannot be written: %s", sink->path, strerror(errno));
        else
            sink->temporary[0] = '\0'; /* nothing to take away */
    }
    drop(sink);
    return r;
}

struct gpubuf_target gb_cli_sink_target(struct gb_cli_sink *sink) {
    return sink->seeks ? gpubuf_to_fd(sink->fd, 0) : gpubuf_to_call(write_pipe, sink);
}

/* A write that fails is said of the file, as by other programs. One of a pipe without a reader and an interrupt end the
 * command in ways of their own. */
int gb_cli_sink_failed(struct gb_cli *cli, const char *path) {
    const struct gpubuf_error *err = &cli->error;
    int why = err->code == GPUBUF_OUTPUT_FAILED ? err->native_code : 0;

    if (why == 0 || why == EPIPE || why == EINTR || atomic_load(&cli->interrupted))
        return gb_cli_failed(cli);
    return gb_cli_refused(cli, GB_CLI_FAILED, "%s cannot be written: %s", path, strerror(why));
}

/* --- what both have ----------------------------------------------------------------------------------------------- */

int gb_cli_moved(void *arg, uint64_t done, uint64_t total) {
    gb_cli_progress_move(arg, done, total == GPUBUF_UNKNOWN ? 0 : total);
    return 0;
}

void gb_cli_put_params(const struct gb_cli_options *o, struct gpubuf_put_params *ret) {
    ret->format = o->raw ? "raw" : NULL;
    ret->dtype = o->dtype;
    ret->shape = o->shape;
    ret->stream = o->stream;
    ret->kind = o->kind;
    ret->pool = o->pool;
    ret->device = o->device;
    ret->side = o->side;
    ret->durability = o->durability;
    ret->spill = o->spill;
    ret->mirrored = o->mirrored;
    ret->in_place = o->in_place;
    ret->slice = o->slice;
    ret->tensor = o->tensor;
    if (o->given[GB_CLI_ID_max_bytes] && o->max_bytes <= INT64_MAX)
        ret->max_bytes = gpubuf_some(o->max_bytes);
    ret->connections = (uint32_t)o->connections;
    if (o->given[GB_CLI_ID_offset])
        ret->offset = gpubuf_some(o->offset);
}
