/* put: from files or a pipe into buffers, again where it broke off. A source is a descriptor that can be read again
 * from its start, or a pipe, whose bytes are spooled to a file if their number must be known. With --retry an upload
 * is one in several requests, which continues with the bytes that the daemon does not have. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/encoding.h"
#include "cli/cli.h"
#include "cli/transfer/files.h"
#include "cli/transfer/models.h"

#define PEEK 16                   /* bytes that tell what comes */
#define FRONT_BYTES (1024 * 1024) /* of a pipe that are read before it is sent */
#define POLL_MS 100 /* a pipe from which nothing comes is left so often to see whether an interrupt came */
#define SPOOL_BYTES (256 * 1024)
#define DEVICE_BYTES (64ull << 20) /* that are taken of a device before it is thought to have no end */
#define PAUSE_MS 100               /* before the first retry; each is twice as long as the one before */
#define PAUSE_MAX_MS 5000
#define RETRY_AFTER_MAX_S 60 /* of the daemon's Retry-After */
#define DROP_S 2             /* for an upload that is given up */
#define KEY_BYTES 16
#define KEY_SIZE (2 * KEY_BYTES + 1)

struct gb_cli_source {
    struct gb_cli *cli;
    int fd;
    double until;         /* while it is being opened: when to give up; 0: never */
    bool pipe;            /* read front first */
    bool whole;           /* of a pipe: it ended within front, which is all of it */
    bool taken;           /* of a pipe: bytes that cannot be given again */
    bool device;          /* of characters: a terminal, or what may have no end */
    unsigned char *front; /* of a pipe: what was read already, malloc'd */
    size_t front_bytes;
    size_t front_at;
    uint64_t bytes; /* GPUBUF_UNKNOWN: what comes tells it itself */
};

/* --- what an upload reads ----------------------------------------------------------------------------------------- */

static void source_close(struct gb_cli_source *source) {
    if (source->fd >= 0)
        close(source->fd);
    source->fd = -1;
    free(source->front);
    source->front = NULL;
}

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
        if (poll(&ready, 1, POLL_MS) <= 0)
            continue;
        n = read(source->fd, data, size);
        if (n >= 0 || (errno != EINTR && errno != EAGAIN))
            return n;
    }
}

static int64_t next_bytes_source(void *arg, void *data, size_t size) {
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

/* Reads up to that many bytes into front; fewer, if the end comes before. -1 with errno. */
static int fill(struct gb_cli_source *source, size_t size) {
    source->front = malloc(size);
    if (!source->front)
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
           (memcmp(source->front, npy, sizeof(npy)) == 0 || (source->front[7] == 0 && source->front[8] == '{'));
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

    return folder && folder[0] != '\0' ? folder : "/tmp";
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
    int64_t n = fd < 0 || !data ? -1 : 1;
    uint64_t bytes = 0;

    while (n > 0) {
        n = next_bytes_source(source, data, SPOOL_BYTES);
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
    source_close(source);
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

/* Opens path, - for standard input. A pipe that ends within its first MiB is read whole, so that its length is known;
 * of a longer one the length stays unknown. Neither is waited for with --in-place or if knows_length: the caller gave a
 * shape or a slice. Raw bytes of a device without these go to an unnamed temporary file first. expected: the bytes that
 * the shape makes, GPUBUF_UNKNOWN if unknown. From a device without an end (/dev/zero) that many are read, from a pipe
 * all of them. Returns 0, or the exit status of the error that was printed. */
static int source_open(struct gb_cli *cli, const char *path, bool knows_length, uint64_t expected,
                       struct gb_cli_source *ret) {
    struct gb_cli_source source = {.cli = cli, .bytes = GPUBUF_UNKNOWN, .until = deadline(cli)};
    struct stat info;
    off_t at = 0;
    int r = 0;

    /* A FIFO that has no writer is opened at once, and waited for where interrupts are heard. */
    source.fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (source.fd < 0 || fstat(source.fd, &info) < 0)
        r = gb_cli_refused(cli, GB_CLI_FAILED, "%s cannot be read: %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        r = gb_cli_refused(cli, GB_CLI_USAGE,
                           "%s is a folder; name a file, or the model that it has a name: gpubuf put %s NAME", path,
                           path);
    if (r == 0 && S_ISREG(info.st_mode))
        at = lseek(source.fd, 0, SEEK_CUR);
    if (r == 0 && S_ISREG(info.st_mode) && ends_at(source.fd, at, info.st_size)) {
        source.front_at = at > 0 ? (size_t)at : 0; /* of a file: where it begins for us */
        source.bytes = info.st_size > at ? (uint64_t)(info.st_size - at) : 0;
    } else if (r == 0) {
        source.device = S_ISCHR(info.st_mode) && !isatty(source.fd);
        r = open_pipe(&source, path, knows_length, expected);
    }
    if (r != 0) {
        source_close(&source);
        return r;
    }
    *ret = source;
    return 0;
}

/* For the library. */
static struct gpubuf_source source_of(struct gb_cli_source *source) {
    if (source->whole)
        return gpubuf_from_memory(source->front, source->front_bytes);
    if (source->pipe)
        return gpubuf_from_call(next_bytes_source, source, source->bytes);
    return gpubuf_from_fd(source->fd, (int64_t)source->front_at, source->bytes);
}

/* --- files that hold tensors in a form that is stored as bytes: archives and pickles ------------------------------ */

/* Endings of pickles; .bin is one of raw bytes as well. */
static const char *const pickles[] = {".pkl", ".pickle", ".pt", ".pth", ".bin"};

#define COUNT (sizeof(pickles) / sizeof(pickles[0]))

/* The bytes that a file begins with, without taking them. */
static size_t peek(const struct gb_cli_source *source, unsigned char ret[4]) {
    ssize_t n;

    if (source->pipe) {
        memcpy(ret, source->front, 4);
        return source->front_bytes < 4 ? source->front_bytes : 4;
    }
    n = pread(source->fd, ret, 4, (off_t)source->front_at);
    return n > 0 ? (size_t)n : 0;
}

/* By the beginning of a file. */
static bool is_archive(const unsigned char front[4]) {
    return memcmp(front, "PK\003\004", 4) == 0;
}

static bool is_pickle(const unsigned char front[4]) {
    return front[0] == 0x80 && front[1] >= 2 && front[1] <= 5;
}

/* Warns on standard error if the file holds tensors in a form that is stored as bytes, unless --raw or --quiet is
 * given. Returns whether it did. */
static bool warn_archive(const struct gb_cli *cli, const struct gb_cli_source *source, const char *path) {
    const char *what = NULL;
    unsigned char front[4];
    size_t i;

    if (cli->options.raw || cli->options.quiet || peek(source, front) < 4)
        return false;
    if (is_archive(front))
        what = gb_cli_ends_in(path, ".npz") ? "a .npz archive" : "a zip archive, as torch.save() writes";
    for (i = 0; i < COUNT; i++)
        if (is_pickle(front) && gb_cli_ends_in(path, pickles[i]))
            what = "a pickle";
    if (!what)
        return false;
    fputs("gpubuf: warning: ", stderr);
    gb_cli_put(stderr, path);
    fprintf(stderr,
            " is %s and is stored as its bytes, not as tensors: convert it to safetensors or .npy if these are "
            "meant (--raw says that the bytes are)\n",
            what);
    return true;
}

void gb_cli_warn_no_archive(const struct gb_cli *cli, int fd, const char *path) {
    const char *what = gb_cli_ends_in(path, ".npz") ? "a .npz archive" : NULL;
    unsigned char front[4] = {0};
    size_t i;

    for (i = 0; i < COUNT; i++)
        if (gb_cli_ends_in(path, pickles[i]) && strcmp(pickles[i], ".bin") != 0)
            what = "what its ending says";
    if (cli->options.raw || cli->options.quiet || !what || fd < 0)
        return;
    if (pread(fd, front, sizeof(front), 0) == sizeof(front) && (is_archive(front) || is_pickle(front)))
        return; /* that was put as its bytes */
    fputs("gpubuf: warning: ", stderr);
    gb_cli_put(stderr, path);
    fprintf(stderr,
            " has the buffer's bytes as they are and is not %s: a FILE that ends in .npy or .safetensors has the dtype "
            "and shape, too (--raw says that the bytes are meant)\n",
            what);
}

/* --- --retry: an upload that continues where it broke off --------------------------------------------------------- */

struct resumed {
    struct gb_cli *cli;
    const struct gb_cli_source *source;
    const struct gb_cli_name *name;
    const struct gpubuf_put_params *params;
    struct gb_cli_progress *progress;
    char id[GPUBUF_ID_SIZE]; /* of the upload; "": no upload */
    uint64_t at;             /* the next byte that is read */
    uint64_t left;           /* retries */
    unsigned pause_ms;
};

/* Whether --retry is given, and the upload is one that the daemon can continue: of a file, into a whole buffer, over
 * one connection. */
static bool resumes(const struct gb_cli *cli, const struct gb_cli_source *source) {
    const struct gb_cli_options *o = &cli->options;

    return o->retry > 0 && !source->pipe && source->bytes != GPUBUF_UNKNOWN && o->connections <= 1 && !o->in_place &&
           !o->given[GB_CLI_ID_offset] && !o->slice && !o->tensor && !o->side;
}

static int64_t next_bytes_resume(void *arg, void *data, size_t size) {
    struct resumed *resumed = arg;
    ssize_t n;

    do
        n = pread(resumed->source->fd, data, size, (off_t)(resumed->source->front_at + resumed->at));
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        resumed->at += (uint64_t)n;
        gb_cli_progress_move(resumed->progress, resumed->at, resumed->source->bytes);
    }
    return n;
}

/* Adds a query parameter behind a path; value NULL: none. -1 with cli->error: it is too long. */
static int add_query(struct gb_cli *cli, char *target, const char *key, const char *value) {
    size_t at = strlen(target);
    int n;

    if (!value)
        return 0;
    n = snprintf(target + at, GB_CLI_PATH - at, "%c%s=", strchr(target, '?') ? '&' : '?', key);
    if (n < 0 || (size_t)n >= GB_CLI_PATH - at ||
        gpubuf_escape(value, target + at + n, GB_CLI_PATH - at - (size_t)n) < 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "the options are too long for a request");
    return 0;
}

static int begin_target(struct resumed *resumed, char *ret) {
    const struct gpubuf_put_params *p = resumed->params;
    char max_bytes[24];
    const struct {
        const char *key;
        const char *value;
    } queries[] = {
        {"format", p->format},
        {"dtype", p->dtype},
        {"shape", p->shape},
        {"stream", p->stream},
        {"kind", p->kind},
        {"pool", p->pool},
        {"device", p->device},
        {"durability", p->durability},
        {"spill", p->spill},
        {"mirrored", p->mirrored ? "true" : NULL},
        {"pack", p->pack ? "true" : NULL},
        {"max_bytes", p->max_bytes.set ? max_bytes : NULL},
    };
    int r = gb_cli_target(resumed->cli, ret, "/v1/sessions/{}/buffers/{}/data", resumed->name->session,
                          resumed->name->name);
    size_t i;

    snprintf(max_bytes, sizeof(max_bytes), "%" PRIu64, p->max_bytes.value);
    for (i = 0; i < sizeof(queries) / sizeof(queries[0]) && r == 0; i++)
        r = add_query(resumed->cli, ret, queries[i].key, queries[i].value);
    return r;
}

/* A new key in text[KEY_SIZE]. -1 with cli->error. */
static int make_key(struct gb_cli *cli, char *text) {
    unsigned char random[KEY_BYTES];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return gb_cli_error(cli, GPUBUF_INPUT_FAILED, "there are no random numbers: %s", strerror(errno));
    gb_hex(random, sizeof(random), text);
    return 0;
}

/* Without bytes: what breaks off is the part that can continue. The key makes it one upload, however often it is sent.
 * */
static int begin(struct resumed *resumed) {
    char idempotency[sizeof "Idempotency-Key: " + KEY_SIZE] = "Idempotency-Key: ";
    char length[48];
    const char *const headers[] = {"Upload-Complete: ?0", length, idempotency,
                                   resumed->params->how.if_none_match ? "If-None-Match: *" : NULL, NULL};
    const struct gpubuf_answer *answer = gpubuf_answer_of(resumed->cli->client);
    char target[GB_CLI_PATH];
    json_t *upload;

    resumed->at = 0;
    resumed->id[0] = '\0';
    if (begin_target(resumed, target) < 0 || make_key(resumed->cli, idempotency + strlen(idempotency)) < 0)
        return -1;
    snprintf(length, sizeof(length), "Upload-Length: %" PRIu64, resumed->source->bytes);
    if (gpubuf_request(resumed->cli->client, "POST", target, headers, "", 0, &resumed->cli->error) < 0)
        return -1;
    upload = json_loadb(answer->body, answer->bytes, 0, NULL);
    snprintf(resumed->id, sizeof(resumed->id), "%s", gb_cli_text(upload, "id"));
    json_decref(upload);
    return resumed->id[0] != '\0' ? 0 : gb_cli_error(resumed->cli, GPUBUF_BAD_ANSWER, "the answer names no upload");
}

static int upload_target(const struct resumed *resumed, char *ret) {
    return gb_cli_target(resumed->cli, ret, "/v1/sessions/{}/uploads/{}", resumed->name->session, resumed->id);
}

static int append(struct resumed *resumed) {
    char offset[48];
    const char *const headers[] = {offset, "Upload-Complete: ?1", "Content-Type: application/partial-upload", NULL};
    struct gpubuf_source rest = gpubuf_from_call(next_bytes_resume, resumed, resumed->source->bytes - resumed->at);
    char target[GB_CLI_PATH];

    snprintf(offset, sizeof(offset), "Upload-Offset: %" PRIu64, resumed->at);
    if (upload_target(resumed, target) < 0)
        return -1;
    return gpubuf_request_from(resumed->cli->client, "PATCH", target, headers, rest, &resumed->cli->error);
}

static bool may_pass(const struct gpubuf_error *err) {
    switch (err->code) {
    case GPUBUF_CANNOT_CONNECT:
    case GPUBUF_CONNECTION_LOST:
    case GPUBUF_CLIENT_TIMEOUT:
    case GPUBUF_UPLOAD_BUSY:
    case GPUBUF_UPLOAD_OFFSET_MISMATCH:
    case GPUBUF_UPLOAD_NOT_FOUND: /* the daemon was restarted */
        return true;
    default:
        return err->retryable;
    }
}

/* Waits, if the error may pass and retries are left. False: it stands. */
static bool again(struct resumed *resumed) {
    const struct gpubuf_error *err = &resumed->cli->error;
    int seconds = err->retry_after_s < RETRY_AFTER_MAX_S ? err->retry_after_s : RETRY_AFTER_MAX_S;
    double pause_s = seconds > 0 ? seconds : resumed->pause_ms / 1e3;

    if (resumed->left == 0 || !may_pass(err))
        return false;
    resumed->left--;
    resumed->pause_ms = resumed->pause_ms * 2 < PAUSE_MAX_MS ? resumed->pause_ms * 2 : PAUSE_MAX_MS;
    return gb_cli_pause(resumed->cli, pause_s);
}

/* Asks what the daemon has; begins again if it has no such upload any more. */
static int find_place(struct resumed *resumed, bool *ret_complete) {
    const struct gpubuf_answer *answer = gpubuf_answer_of(resumed->cli->client);
    char target[GB_CLI_PATH];

    *ret_complete = false;
    if (resumed->cli->error.code == GPUBUF_UPLOAD_NOT_FOUND)
        return begin(resumed);
    if (upload_target(resumed, target) < 0)
        return -1;
    if (gpubuf_request(resumed->cli->client, "GET", target, NULL, NULL, 0, &resumed->cli->error) < 0)
        return resumed->cli->error.code == GPUBUF_UPLOAD_NOT_FOUND ? begin(resumed) : -1;
    if (!answer->upload_offset.set)
        return gb_cli_error(resumed->cli, GPUBUF_BAD_ANSWER, "the answer has no Upload-Offset");
    resumed->at = answer->upload_offset.value;
    *ret_complete = answer->upload_complete;
    return 0;
}

/* By a client of its own, which no interrupt stops and which has little patience: the upload ends by itself in time. */
static void drop(struct resumed *resumed) {
    struct gb_cli_options given = resumed->cli->options;
    struct gpubuf_error why = resumed->cli->error;
    char target[GB_CLI_PATH];
    gpubuf_client *hasty;

    if (resumed->id[0] == '\0' || upload_target(resumed, target) < 0)
        return;
    resumed->cli->options.timeout = DROP_S;
    resumed->cli->options.retry = 0;
    if (gb_cli_open(resumed->cli, NULL, NULL, &hasty) == 0) {
        gpubuf_request(hasty, "DELETE", target, NULL, NULL, 0, NULL);
        gpubuf_close(hasty);
    }
    resumed->cli->options = given;
    resumed->cli->error = why;
}

/* Uploads the source. The buffer; NULL with cli->error set, and no upload left where the daemon can be reached. The
 * caller's. */
static json_t *put_resumable(struct gb_cli *cli, const struct gb_cli_source *source, const struct gb_cli_name *name,
                             const struct gpubuf_put_params *params, struct gb_cli_progress *progress) {
    struct resumed resumed = {cli, source, name, params, progress, "", 0, cli->options.retry, PAUSE_MS};
    const struct gpubuf_answer *answer;
    char target[GB_CLI_PATH];
    bool complete = false;
    int r = begin(&resumed);

    while (r == 0 && !complete) {
        r = append(&resumed);
        if (r == 0) {
            answer = gpubuf_answer_of(cli->client);
            return json_loadb(answer->body, answer->bytes, 0, NULL);
        }
        while (r < 0 && again(&resumed))
            r = find_place(&resumed, &complete);
    }
    if (complete) { /* the answer was lost */
        if (gb_cli_target(cli, target, "/v1/sessions/{}/buffers/{}", name->session, name->name) < 0)
            return NULL;
        return gb_cli_request(cli, "GET", target, NULL);
    }
    drop(&resumed);
    return NULL;
}

static json_t *put_continued(struct gb_cli *cli, int fd, uint64_t bytes, const struct gb_cli_name *name,
                             const struct gpubuf_put_params *params, struct gb_cli_progress *progress) {
    const struct gb_cli_source source = {.cli = cli, .fd = fd, .bytes = bytes};

    return put_resumable(cli, &source, name, params, progress);
}

/* --- put ---------------------------------------------------------------------------------------------------------- */

/* The file's name without folder and ending. */
static int name_from(struct gb_cli *cli, const char *path, struct gb_cli_name *ret) {
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    char name[GPUBUF_NAME_SIZE];

    if (strcmp(path, "-") == 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "standard input has no name: gpubuf put - NAME");
    snprintf(name, sizeof(name), "%.*s", dot && dot != base ? (int)(dot - base) : (int)strlen(base), base);
    return gb_cli_name(cli, name, ret);
}

struct moving {
    struct gb_cli_progress progress;
    uint64_t expected; /* bytes, where the library does not know; GPUBUF_UNKNOWN: unknown here too */
};

static int moved(void *arg, uint64_t done, uint64_t total) {
    struct moving *moving = arg;

    total = total == GPUBUF_UNKNOWN ? moving->expected : total;
    gb_cli_progress_move(&moving->progress, done, total == GPUBUF_UNKNOWN ? 0 : total);
    return 0;
}

/* Bytes that --shape and --dtype make, of a pipe or device: dtypes have their bits in their names, or are bool.
 * GPUBUF_UNKNOWN: they do not say it. */
static uint64_t expected_bytes(const struct gb_cli_options *o) {
    const char *bits = o->dtype ? o->dtype + strcspn(o->dtype, "0123456789") : "8";
    const char *shape = o->shape;
    uint64_t bytes = o->dtype && strcmp(o->dtype, "bool") == 0 ? 1 : strtoull(bits, NULL, 10) / 8;

    if (!shape || bytes == 0)
        return GPUBUF_UNKNOWN;
    while (*shape != '\0') {
        char *end;

        if (*shape < '0' || *shape > '9' || __builtin_mul_overflow(bytes, strtoull(shape, &end, 10), &bytes))
            return GPUBUF_UNKNOWN;
        shape = *end == ',' ? end + 1 : end;
    }
    return bytes;
}

/* An upload has none: they are set once the buffer is there. */
static int set_labels(struct gb_cli *cli, const struct gb_cli_name *name) {
    json_t *body = json_object();
    char target[GB_CLI_PATH];

    if (gb_cli_label_settings(cli, body) < 0 ||
        gb_cli_target(cli, target, "/v1/sessions/{}/buffers/{}", name->session, name->name) < 0) {
        json_decref(body);
        return gb_cli_failed(cli);
    }
    return gb_cli_show_buffer(cli, gb_cli_request(cli, "PATCH", target, body));
}

/* What the daemon says of bytes that it took as they are. */
static void warn(const struct gb_cli *cli, const struct gb_cli_name *name, json_t *buffer) {
    const char *warning = json_string_value(json_object_get(buffer, "warning"));

    if (!warning || cli->options.quiet)
        return;
    fprintf(stderr, "gpubuf: warning: %s: ", name->name);
    gb_cli_put(stderr, warning);
    fputc('\n', stderr);
}

/* The format that the ending of a file promises, so that what is none is refused and not stored as raw bytes. NULL:
 * the ending says nothing, or the options say what the bytes are. */
static const char *promised(const struct gb_cli_options *o, const char *path) {
    if (o->raw || o->dtype || o->shape || o->slice || o->tensor || o->given[GB_CLI_ID_offset])
        return NULL;
    if (gb_cli_ends_in(path, ".safetensors"))
        return "safetensors";
    return gb_cli_ends_in(path, ".npy") ? "npy" : NULL;
}

/* warned: of what the file is. */
static int put_buffer(struct gb_cli *cli, struct gb_cli_source *source, const char *path, struct gb_cli_name *name,
                      bool warned) {
    struct gpubuf_put_params params = {0};
    struct moving moving = {.expected = expected_bytes(&cli->options)};
    const struct gpubuf_answer *answer;
    json_t *buffer = NULL;
    int r;

    gb_cli_put_params(&cli->options, &params);
    params.format = params.format ? params.format : promised(&cli->options, path);
    params.progress = moved;
    params.progress_arg = &moving;
    gb_cli_progress_begin(&moving.progress, stderr, gb_cli_draws(cli), name->name);
    if (resumes(cli, source)) {
        buffer = put_resumable(cli, source, name, &params, &moving.progress);
        r = buffer ? 0 : -1;
    } else {
        do
            r = gpubuf_put(cli->client, name->session, name->name, source_of(source), &params, NULL, &cli->error);
        while (r < 0 && !source->taken && (gb_cli_again(cli) || gb_cli_model_shard(cli, name)));
    }
    gb_cli_progress_end(&moving.progress, r == 0);
    if (r < 0) {
        int status;

        cli->about = name->name;
        status = gb_cli_failed(cli);
        cli->about = NULL; /* it ends with this file */
        return status;
    }
    gb_cli_times_put(cli);
    answer = gpubuf_answer_of(cli->client);
    if (!buffer)
        buffer = json_loadb(answer->body, answer->bytes, 0, NULL);
    if (!warned)
        warn(cli, name, buffer);
    if (cli->options.labels) {
        json_decref(buffer);
        return set_labels(cli, name);
    }
    return gb_cli_show_buffer(cli, buffer);
}

static int put_tensors(struct gb_cli *cli, struct gb_cli_source *source, const char *label) {
    const struct gb_cli_options *o = &cli->options;
    struct gpubuf_tensors_params params = {0};
    struct moving moving = {.expected = GPUBUF_UNKNOWN};
    const struct gpubuf_answer *answer;
    struct gpubuf_tensors tensors;
    char size[24];
    int r;

    params.prefix = o->prefix;
    params.stream = o->stream;
    params.kind = o->kind;
    params.pool = o->pool;
    params.device = o->device;
    params.progress = moved;
    params.progress_arg = &moving;
    gb_cli_progress_begin(&moving.progress, stderr, gb_cli_draws(cli), label);
    do
        r = gpubuf_tensors_put(cli->client, cli->session, source_of(source), &params, &tensors, &cli->error);
    while (r < 0 && !source->taken && gb_cli_again(cli));
    gb_cli_progress_end(&moving.progress, r == 0);
    if (r < 0)
        return gb_cli_failed(cli);
    gb_cli_times_put(cli);
    answer = gpubuf_answer_of(cli->client);
    if (o->json)
        return gb_cli_show(cli, json_loadb(answer->body, answer->bytes, 0, NULL), NULL, 0);
    if (!o->quiet)
        printf("%llu tensors  %s  %llu new, %llu replaced\n", (unsigned long long)tensors.tensors,
               gb_cli_bytes_text(tensors.bytes, size), (unsigned long long)tensors.created,
               (unsigned long long)tensors.replaced);
    return GB_CLI_DONE;
}

/* Options that would be ignored, said before anything is read. */
static int check_idle(const struct gb_cli *cli, bool many) {
    if (many)
        return gb_cli_options_idle(&cli->options,
                                   "dtype shape npy mirrored max-bytes in-place offset bytes slice tensor "
                                   "connections",
                                   "the tensors of a safetensors file become buffers of their own; with a NAME, or "
                                   "--raw, the file becomes one");
    return gb_cli_options_idle(&cli->options, "prefix",
                               "it goes before the names of tensors: a FILE ending in .safetensors, and no NAME");
}

static int refuse_of_one(struct gb_cli *cli) {
    const char *durability = cli->options.durability;
    const char *option = durability ? "--durability" : "--spill";

    if (cli->options.labels)
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "--labels is of one buffer: \"gpubuf set 'NAME*' --labels %s\" gives them to the tensors "
                              "of a file",
                              cli->options.labels);

    return gb_cli_refused(
        cli, GB_CLI_USAGE,
        "%s is of one buffer; the tensors of a file have that of their session: \"gpubuf sessions set "
        "%s %s %s\"",
        option, cli->session, option, durability ? durability : cli->options.spill);
}

/* "FILE" of "file:FILE". */
static const char *path_in(const char *given) {
    return strncmp(given, "file:", 5) == 0 ? given + 5 : given;
}

/* Whether a file without a NAME becomes a buffer for each of its tensors. */
static bool is_tensors(const struct gb_cli *cli, const char *given) {
    return !cli->options.raw && gb_cli_ends_in(given, ".safetensors");
}

int gb_cli_put_file(struct gb_cli *cli, const char *given, const char *name) {
    bool many = !name && is_tensors(cli, given);
    char *path = gb_cli_host_path(cli, path_in(given));
    struct gb_cli_name target;
    struct gb_cli_source source;
    int r;

    if (!path)
        return gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    if (check_idle(cli, many) < 0) {
        free(path);
        return GB_CLI_USAGE;
    }
    if (many && cli->options.side) {
        free(path);
        return gb_cli_refused(cli, GB_CLI_USAGE, "--side is of one buffer: gpubuf put FILE NAME --side SIDE");
    }
    if (many && (cli->options.durability || cli->options.spill || cli->options.labels)) {
        free(path);
        return refuse_of_one(cli);
    }
    if (!many && (name ? gb_cli_one_name(cli, name, &target) : name_from(cli, path, &target)) < 0)
        r = gb_cli_failed(cli);
    else if (cli->host && strcmp(path, "-") == 0)
        r = gb_cli_refused(cli, GB_CLI_USAGE, "standard input cannot go to several hosts; name a file");
    else
        r = source_open(cli, path, cli->options.shape || cli->options.slice, expected_bytes(&cli->options), &source);
    if (r == 0 && !many && is_tensors(cli, path) && !cli->options.tensor) {
        r = gb_cli_model_hides(cli, &target);
        if (r != 0)
            source_close(&source);
    }
    if (r == 0) {
        bool warned = warn_archive(cli, &source, path);

        r = many ? put_tensors(cli, &source, path) : put_buffer(cli, &source, path, &target, warned);
        source_close(&source);
    }
    free(path);
    return r;
}

/* Whether a folder is given, in which a model may be. */
static bool is_model(const struct gb_cli *cli, const char *given) {
    char *path = gb_cli_host_path(cli, path_in(given));
    bool is = path && gb_cli_is_folder(path);

    free(path);
    return is;
}

/* "SESSION/", into which files go by their own names. */
static bool is_session(const char *text) {
    const char *slash = strchr(text, '/');

    return slash && slash != text && slash[1] == '\0' && text[0] != '.';
}

/* Of "put *.npy" where two files match, the second is not meant as a name. */
static bool looks_like_file(const char *file, const char *name) {
    const char *dot = strrchr(file, '.');
    struct stat info;

    return dot && !strchr(dot, '/') && gb_cli_ends_in(name, dot) && stat(name, &info) == 0 && S_ISREG(info.st_mode);
}

/* One of several files: that it is there, and what its buffer is called. */
static int check_file(struct gb_cli *cli, const char *given, char *ret_name) {
    char *path = gb_cli_host_path(cli, path_in(given));
    struct gb_cli_name name = {.name = ""};
    struct stat info;
    int r = GB_CLI_DONE;

    if (!path)
        return gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    if (!is_tensors(cli, given) && name_from(cli, path, &name) < 0)
        r = gb_cli_failed(cli);
    else if (stat(path, &info) < 0)
        r = gb_cli_refused(cli, GB_CLI_FAILED, "%s cannot be read: %s; nothing was uploaded", path, strerror(errno));
    else if (name.name[0] != '\0' && !gb_cli_is_name(name.name))
        r = gb_cli_refused(cli, GB_CLI_USAGE,
                           "%s would become the buffer \"%s\", which is no name: letters, digits and, after the "
                           "first, . _ and -; \"gpubuf put %s NAME\" gives it another. Nothing was uploaded",
                           path, name.name, path);
    snprintf(ret_name, GPUBUF_NAME_SIZE, "%s", name.name);
    free(path);
    return r;
}

/* What is wrong with one of several files is said before any of them is sent: also that two have one name, of which the
 * second would take the place of the first. */
static int check_files(struct gb_cli *cli, int argc, char **argv) {
    char(*names)[GPUBUF_NAME_SIZE] = calloc((size_t)argc, sizeof(*names));
    int r = names ? GB_CLI_DONE : gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    int i;
    int j;

    for (i = 0; i < argc && r == GB_CLI_DONE; i++) {
        r = check_file(cli, argv[i], names[i]);
        for (j = 0; j < i && r == GB_CLI_DONE; j++)
            if (names[i][0] != '\0' && strcmp(names[i], names[j]) == 0)
                r = gb_cli_refused(cli, GB_CLI_USAGE,
                                   "%s and %s would both become the buffer \"%s\", called as the file without its "
                                   "last ending: \"gpubuf put FILE NAME\" gives one another name. Nothing was "
                                   "uploaded",
                                   argv[j], argv[i], names[i]);
    }
    free(names);
    return r;
}

/* What can be checked is checked of all before; then all are tried. The exit status of the first that failed. */
static int put_several(struct gb_cli *cli, int argc, char **argv) {
    const char *own = cli->session;
    char session[GPUBUF_NAME_SIZE];
    int worst = GB_CLI_DONE;
    int i;

    if (is_session(argv[argc - 1])) {
        snprintf(session, sizeof(session), "%.*s", (int)strcspn(argv[argc - 1], "/"), argv[argc - 1]);
        cli->session = session;
        argc--;
    }
    worst = check_files(cli, argc, argv);
    if (worst != GB_CLI_DONE) {
        cli->session = own;
        return worst;
    }
    cli->several = json_array();
    for (i = 0; i < argc && !atomic_load(&cli->interrupted); i++) {
        int status = gb_cli_put_file(cli, argv[i], NULL);

        worst = worst == GB_CLI_DONE ? status : worst;
    }
    if (cli->options.json && worst == GB_CLI_DONE)
        gb_cli_json(stdout, cli->several);
    json_decref(cli->several);
    cli->several = NULL;
    cli->session = own;
    return worst;
}

int gb_cli_run_put(struct gb_cli *cli, int argc, char **argv) {
    bool named = argc == 2 && !is_session(argv[1]) && (strcmp(argv[1], "-") == 0 || !gb_cli_is_file(argv[1]));

    json_t *labels = json_object();
    int r = gb_cli_label_settings(cli, labels);

    json_decref(labels);
    if (r < 0) /* before anything is uploaded */
        return gb_cli_failed(cli);
    if (named && looks_like_file(argv[0], argv[1]))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "%s is a file here, and as the second word it would be the buffer's name: with a "
                              "session behind them both are uploaded, \"gpubuf put %s %s %s/\"",
                              argv[1], argv[0], argv[1], cli->session);
    if (named && is_model(cli, argv[0]))
        return gb_cli_put_model(cli, path_in(argv[0]), argv[1], put_continued);
    if (argc == 1 || named)
        return gb_cli_put_file(cli, argv[0], argc > 1 ? argv[1] : NULL);
    return put_several(cli, argc, argv);
}
