#include "cli/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS 100 /* a pipe that takes nothing is left so often to see whether an interrupt came */

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
    if (sink->path == NULL)
        sink->path = strdup(path);
    sink->seeks = true;
    if (sink->path == NULL || asprintf(&sink->temporary, "%s.XXXXXX", sink->path) < 0) {
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
    if (sink->temporary != NULL && !sink->unnamed && sink->temporary[0] != '\0')
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
    while (fd < 0 && errno == ENXIO && atomic_load(&cli->interrupted) == 0 && poll(NULL, 0, LOOK_MS) == 0);
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
            poll(&ready, 1, LOOK_MS);
        }
    }
    return 0;
}

int gb_cli_sink_open(struct gb_cli *cli, const char *path, struct gb_cli_sink *ret) {
    struct gb_cli_sink sink = {.fd = -1, .cli = cli};
    struct stat info;
    int rc = 0;

    if (path == NULL || strcmp(path, "-") == 0)
        sink.fd = standard_output(cli);
    else if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        sink.fd = open_pipe(cli, path);
    else
        rc = open_temporary(&sink, path);
    if (rc < 0 || sink.fd < 0) {
        int error = errno;

        drop(&sink);
        return gb_cli_refused(cli, GB_CLI_FAILED, "%s cannot be written: %s", path, strerror(error));
    }
    *ret = sink;
    return 0;
}

int gb_cli_sink_close(struct gb_cli *cli, struct gb_cli_sink *sink, bool good) {
    int rc = 0;

    if (good && sink->temporary != NULL) {
        if (give_name(sink) < 0 || rename(sink->temporary, sink->path) < 0)
            rc = gb_cli_refused(cli, GB_CLI_FAILED, "%s cannot be written: %s", sink->path, strerror(errno));
        else
            sink->temporary[0] = '\0'; /* nothing to take away */
    }
    drop(sink);
    return rc;
}

struct gpubuf_target gb_cli_target_of(struct gb_cli_sink *sink) {
    return sink->seeks ? gpubuf_to_fd(sink->fd, 0) : gpubuf_to_call(write_pipe, sink);
}
