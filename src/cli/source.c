#include "cli/source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/progress.h"

#define PEEK 16                   /* bytes that tell what comes */
#define FRONT_BYTES (1024 * 1024) /* of a pipe that are read before it is sent */
#define LOOK_MS 100 /* a pipe from which nothing comes is left so often to see whether an interrupt came */
#define SPOOL_BYTES (256 * 1024)
#define DEVICE_BYTES (64ull << 20) /* that are taken of a device before it is thought to have no end */

/* When to give up a source that gives nothing; 0: never. */
static double deadline(const struct gb_cli *cli) {
    return cli->options.timeout > 0 ? gb_cli_now() + cli->options.timeout : 0;
}

/* Reads from a pipe without being deaf to interrupts: how many bytes, 0 at the end, -1 with errno. */
static ssize_t read_pipe(struct gb_cli_source *source, void *data, size_t size) {
    struct pollfd ready = {.fd = source->fd, .events = POLLIN};
    ssize_t n;

    for (;;) {
        if (atomic_load(&source->cli->interrupted) || (source->until > 0 && gb_cli_now() >= source->until)) {
            errno = atomic_load(&source->cli->interrupted) ? EINTR : ETIMEDOUT;
            return -1;
        }
        if (poll(&ready, 1, LOOK_MS) <= 0)
            continue;
        n = read(source->fd, data, size);
        if (n >= 0 || (errno != EINTR && errno != EAGAIN))
            return n;
    }
}

static int64_t next_bytes(void *arg, void *data, size_t size) {
    struct gb_cli_source *source = arg;
    size_t n = source->front_bytes - source->front_at;

    source->taken = true;
    if (n == 0)
        return read_pipe(source, data, size);
    n = n < size ? n : size;
    memcpy(data, source->front + source->front_at, n);
    source->front_at += n;
    return (int64_t)n;
}

/* Reads up to so many bytes into front; fewer, if the end comes before. -1 with errno. */
static int fill(struct gb_cli_source *source, size_t size) {
    source->front = malloc(size);
    if (source->front == NULL)
        return -1;
    while (source->front_bytes < size) {
        ssize_t n = read_pipe(source, source->front + source->front_bytes, size - source->front_bytes);

        if (n < 0)
            return -1;
        if (n == 0)
            break;
        source->front_bytes += (size_t)n;
        source->until = deadline(source->cli);
    }
    return 0;
}

/* Whether what begins so tells its length itself: .npy, or safetensors (eight bytes of length, then JSON). */
static bool tells_length(const struct gb_cli_source *source) {
    static const unsigned char npy[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

    return source->front_bytes >= PEEK &&
           (memcmp(source->front, npy, sizeof npy) == 0 || (source->front[7] == 0 && source->front[8] == '{'));
}

static int write_all(int fd, const unsigned char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);

        if (n < 0 && errno != EINTR)
            return -1;
        data += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static const char *spool_folder(void) {
    const char *folder = getenv("TMPDIR");

    return folder != NULL && folder[0] != '\0' ? folder : "/tmp";
}

/* A file without a name; where the file system has none such it loses its name at once. */
static int open_spool(void) {
    const char *folder = spool_folder();
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char *path;

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR) || asprintf(&path, "%s/gpubuf.XXXXXX", folder) < 0)
        return fd;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    free(path);
    return fd;
}

/* Puts all that comes of a device into that file, which then is the source. -1 with errno; EFBIG: more comes than may
 * be kept. */
static int spool(struct gb_cli_source *source) {
    unsigned char *data = malloc(SPOOL_BYTES);
    int fd = open_spool();
    int64_t n = fd < 0 || data == NULL ? -1 : 1;
    uint64_t bytes = 0;

    while (n > 0) {
        n = next_bytes(source, data, SPOOL_BYTES);
        if (n > 0 && (uint64_t)n > DEVICE_BYTES - bytes) {
            errno = EFBIG;
            n = -1;
        }
        if (n > 0 && write_all(fd, data, (size_t)n) < 0)
            n = -1;
        bytes += n > 0 ? (uint64_t)n : 0;
    }
    free(data);
    if (n < 0) {
        int why = errno;

        if (fd >= 0)
            close(fd);
        errno = why;
        return -1;
    }
    gb_cli_source_close(source);
    source->fd = fd;
    source->pipe = false;
    source->taken = false;
    source->bytes = bytes;
    return 0;
}

static int unread(struct gb_cli_source *source, const char *path) {
    char size[24];

    if (errno != EFBIG)
        return gb_cli_refused(source->cli, GB_CLI_FAILED, "%s cannot be read: %s", path, strerror(errno));
    return gb_cli_refused(source->cli, GB_CLI_FAILED,
                          "%s gives more than %s and does not say how much: give --shape and --dtype, or its "
                          "beginning by head -c BYTES %s | gpubuf put - NAME",
                          path, gb_cli_bytes_text(DEVICE_BYTES, size), path);
}

/* What is no file. The end of a pipe says how much it was: of a short one before it is sent, so that the daemon takes
 * no more memory than that, unless the caller says it or has the bytes written as they come. A device may have no end,
 * so that it is kept before any of it is sent, unless the caller, or what comes first, says how much it is. */
static int open_pipe(struct gb_cli_source *source, const char *path, bool knows_length, uint64_t expected) {
    bool at_once = source->device || knows_length || source->cli->options.in_place;
    size_t front = at_once ? PEEK : FRONT_BYTES;

    source->pipe = true;
    if (source->device)
        source->bytes = expected;
    if (fill(source, front) < 0)
        return unread(source, path);
    source->whole = !source->device && source->front_bytes < front;
    if (source->device && !knows_length && (source->cli->options.raw || !tells_length(source)) && spool(source) < 0)
        return unread(source, path);
    source->until = 0; /* from here the library counts */
    if (!source->pipe)
        source->front_at = 0;
    return 0;
}

/* Whether a file ends where stat says. Those of /proc, /sys and of some FUSE do not. */
static bool ends_at(int fd, off_t from, off_t size) {
    char byte;

    return pread(fd, &byte, 1, size) == 0 && (size <= from || pread(fd, &byte, 1, size - 1) == 1);
}

int gb_cli_source_open(struct gb_cli *cli, const char *path, bool knows_length, uint64_t expected,
                       struct gb_cli_source *ret) {
    struct gb_cli_source source = {.cli = cli, .bytes = GPUBUF_UNKNOWN, .until = deadline(cli)};
    struct stat info;
    off_t at = 0;
    int rc = 0;

    /* A FIFO that has no writer is opened at once, and waited for where interrupts are heard. */
    source.fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (source.fd < 0 || fstat(source.fd, &info) < 0)
        rc = gb_cli_refused(cli, GB_CLI_FAILED, "%s cannot be read: %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        rc = gb_cli_refused(cli, GB_CLI_USAGE, "%s is a folder; name a file", path);
    if (rc == 0 && S_ISREG(info.st_mode))
        at = lseek(source.fd, 0, SEEK_CUR);
    if (rc == 0 && S_ISREG(info.st_mode) && ends_at(source.fd, at, info.st_size)) {
        source.front_at = at > 0 ? (size_t)at : 0; /* of a file: where it begins for us */
        source.bytes = info.st_size > at ? (uint64_t)(info.st_size - at) : 0;
    } else if (rc == 0) {
        source.device = S_ISCHR(info.st_mode) && !isatty(source.fd);
        rc = open_pipe(&source, path, knows_length, expected);
    }
    if (rc != 0) {
        gb_cli_source_close(&source);
        return rc;
    }
    *ret = source;
    return 0;
}

void gb_cli_source_close(struct gb_cli_source *source) {
    if (source->fd >= 0)
        close(source->fd);
    source->fd = -1;
    free(source->front);
    source->front = NULL;
}

struct gpubuf_source gb_cli_source_of(struct gb_cli_source *source) {
    if (source->whole)
        return gpubuf_from_memory(source->front, source->front_bytes);
    if (source->pipe)
        return gpubuf_from_call(next_bytes, source, source->bytes);
    return gpubuf_from_fd(source->fd, (int64_t)source->front_at, source->bytes);
}
