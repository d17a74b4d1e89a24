/* checkpoints get and put: the folder of a checkpoint, copied from the daemon and to it.
 *
 * get fills DIR.part, which becomes DIR when all is there and on disk, so that DIR is never a part of a checkpoint.
 * put sends the manifest last, so that the daemon has a checkpoint only if it has all files. Both compare each file
 * with the manifest's checksum, and leave out what an earlier run has copied. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/hash.h"
#include "cli/out.h"
#include "cli/transfer/files.h"

#define CHECKPOINT "/v1/checkpoints/{}"
#define MANIFEST "manifest.json"
#define INDEX "model.safetensors.index.json"
#define SUFFIX ".safetensors"
#define FORMAT_VERSION 1
#define FILE_NAME_SIZE 40
#define MANIFEST_MAX ((size_t)1 << 30)
#define PIECE ((size_t)4 << 20) /* what one request brings of a file */
#define TRIES 5
#define PAUSE_S 1

/* --- the folder of a checkpoint ----------------------------------------------------------------------------------- */

/* A file of a checkpoint, as the manifest says. The first is 00001.safetensors. */
struct file {
    const char *buffer; /* the manifest's */
    uint64_t bytes;
    uint32_t crc;
    bool there; /* put: an earlier run has brought it */
};

/* A copy that is under way. */
struct copy {
    struct gb_cli *cli;
    const char *checkpoint; /* its name in the daemon */
    char *dir;              /* how messages call the folder */
    int fd;                 /* of it; -1: not open */
    char *text;             /* of the manifest */
    size_t text_bytes;
    json_t *manifest;
    struct file *files;
    size_t count;
    uint64_t bytes; /* of all files */
    struct gb_cli_progress progress;
    uint64_t done; /* bytes that were copied or compared, for progress */
    uint64_t copied_bytes;
    size_t copied_files;
};

static void copy_done(struct copy *copy) {
    if (copy->fd >= 0)
        close(copy->fd);
    json_decref(copy->manifest);
    free(copy->files);
    free(copy->text);
    free(copy->dir);
}

static void file_name(size_t index, char ret[FILE_NAME_SIZE]) {
    snprintf(ret, FILE_NAME_SIZE, "%05zu" SUFFIX, index + 1);
}

/* What a system call could not do with a file of the folder, or with the folder itself. -1. */
static int failed_on(struct copy *copy, int code, const char *file, const char *what) {
    int error = errno;

    gb_cli_error(copy->cli, code, "%s%s%s cannot be %s: %s", copy->dir, file[0] != '\0' ? "/" : "", file, what,
                 strerror(error));
    copy->cli->error.native_code = error;
    return -1;
}

static int unread(struct copy *copy, const char *file) {
    return failed_on(copy, GPUBUF_INPUT_FAILED, file, "read");
}

static int unwritten(struct copy *copy, const char *file) {
    return failed_on(copy, GPUBUF_OUTPUT_FAILED, file, "written");
}

static int interrupted(struct copy *copy) {
    return atomic_load(&copy->cli->interrupted) != 0 ? gb_cli_error(copy->cli, GPUBUF_INTERRUPTED, "interrupted") : 0;
}

static void moved(struct copy *copy, uint64_t bytes) {
    copy->done += bytes;
    gb_cli_progress_move(&copy->progress, copy->done, copy->bytes);
}

/* --- the manifest ------------------------------------------------------------------------------------------------- */

static bool read_crc(const char *text, uint32_t *ret) {
    return gb_hex_lower(text, GB_HEX_U32) && gb_hex_u32(text, GB_HEX_U32, ret);
}

static int read_entry(struct copy *copy, json_t *entry, size_t index) {
    struct file *file = &copy->files[index];
    json_int_t bytes = json_integer_value(json_object_get(entry, "size"));
    char name[FILE_NAME_SIZE];

    file_name(index, name);
    file->buffer = gb_cli_text(entry, "buffer");
    if (strcmp(gb_cli_text(entry, "file"), name) != 0 || bytes <= 0 ||
        !read_crc(gb_cli_text(entry, "file_crc32c"), &file->crc))
        return gb_cli_error(copy->cli, GPUBUF_BAD_ANSWER,
                            "entry %zu of the checkpoint's manifest must have the file %s, its size and its "
                            "file_crc32c: the manifest is damaged",
                            index + 1, name);
    file->bytes = (uint64_t)bytes;
    copy->bytes += file->bytes;
    return 0;
}

/* Of copy->text. */
static int read_manifest(struct copy *copy) {
    json_error_t why;
    json_t *entries;
    size_t i;

    copy->manifest = json_loadb(copy->text, copy->text_bytes, JSON_REJECT_DUPLICATES, &why);
    if (!copy->manifest)
        return gb_cli_error(copy->cli, GPUBUF_BAD_ANSWER, "the checkpoint's manifest is damaged: %s, at byte %d",
                            why.text, why.position);
    entries = json_object_get(copy->manifest, "entries");
    if ((int)gb_cli_number(copy->manifest, "version") != FORMAT_VERSION || !json_is_array(entries))
        return gb_cli_error(copy->cli, GPUBUF_BAD_ANSWER,
                            "the checkpoint's manifest is not of version %d, which this gpubuf knows, or is damaged",
                            FORMAT_VERSION);
    copy->count = json_array_size(entries);
    copy->files = calloc(copy->count + 1, sizeof(*copy->files));
    if (!copy->files)
        return gb_cli_error(copy->cli, GPUBUF_NO_MEMORY, "out of memory");
    for (i = 0; i < copy->count; i++)
        if (read_entry(copy, json_array_get(entries, i), i) < 0)
            return -1;
    return 0;
}

static json_t *view_of(struct copy *copy) {
    char target[GB_CLI_PATH];

    return gb_cli_target(copy->cli, target, CHECKPOINT, copy->checkpoint) == 0
               ? gb_cli_request(copy->cli, "GET", target, NULL)
               : NULL;
}

/* A small file of the daemon's. *ret is valid until the next request. */
static int ask_file(struct copy *copy, const char *file, const char **ret, size_t *ret_bytes) {
    char target[GB_CLI_PATH];
    json_t *answer = NULL;

    if (gb_cli_target(copy->cli, target, CHECKPOINT "/files/{}", copy->checkpoint, file) == 0)
        answer = gb_cli_request(copy->cli, "GET", target, NULL);
    if (!answer)
        return -1;
    json_decref(answer);
    *ret = gpubuf_answer_of(copy->cli->client)->body;
    *ret_bytes = gpubuf_answer_of(copy->cli->client)->bytes;
    return 0;
}

static int ask_manifest(struct copy *copy) {
    const char *text;

    if (ask_file(copy, MANIFEST, &text, &copy->text_bytes) < 0)
        return -1;
    copy->text = malloc(copy->text_bytes + 1);
    if (!copy->text)
        return gb_cli_error(copy->cli, GPUBUF_NO_MEMORY, "out of memory");
    memcpy(copy->text, text, copy->text_bytes);
    return read_manifest(copy);
}

/* The manifest in the folder: 1, 0 if it is not there, or -1. *ret is malloc'd. */
static int load_manifest(struct copy *copy, char **ret, size_t *ret_bytes) {
    int fd = openat(copy->fd, MANIFEST, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char *text = NULL;
    struct stat info;
    ssize_t n = -1;

    if (fd < 0)
        return errno == ENOENT ? 0 : unread(copy, MANIFEST);
    errno = EINVAL; /* of what is no plain file, or has the size of none */
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size <= MANIFEST_MAX)
        text = malloc((size_t)info.st_size + 1);
    if (text)
        n = pread(fd, text, (size_t)info.st_size, 0);
    if (n < 0) {
        unread(copy, MANIFEST);
        free(text);
    } else {
        *ret = text;
        *ret_bytes = (size_t)n;
    }
    close(fd);
    return n < 0 ? -1 : 1;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* Reads the first bytes of a file. *ret: their checksum. 0, or -1 also when there are fewer. */
static int sum_file(struct copy *copy, int fd, const char *name, uint64_t bytes, uint32_t *ret) {
    char *room = malloc(PIECE);
    uint64_t at = 0;
    int r = room ? 0 : gb_cli_error(copy->cli, GPUBUF_NO_MEMORY, "out of memory");

    *ret = 0;
    while (r == 0 && at < bytes) {
        size_t n = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        ssize_t got = pread(fd, room, n, (off_t)at);

        errno = got == 0 ? EIO : errno;
        r = got > 0 ? interrupted(copy) : unread(copy, name);
        if (r < 0)
            break;
        *ret = gb_crc32c(*ret, room, (size_t)got);
        at += (uint64_t)got;
        moved(copy, (uint64_t)got);
    }
    free(room);
    return r;
}

/* Whether the file is there with the size that the manifest says; -1 with the error if not. */
static int check_size(struct copy *copy, size_t index) {
    const struct file *file = &copy->files[index];
    char name[FILE_NAME_SIZE];
    struct stat info;
    int r;

    file_name(index, name);
    r = fstatat(copy->fd, name, &info, AT_SYMLINK_NOFOLLOW);
    if (r < 0 && errno != ENOENT)
        return unread(copy, name);
    if (r < 0)
        return gb_cli_error(copy->cli, GPUBUF_INPUT_FAILED, "%s lacks the file %s, which has buffer %.200s", copy->dir,
                            name, file->buffer);
    if (S_ISREG(info.st_mode) && (uint64_t)info.st_size == file->bytes)
        return 0;
    return gb_cli_error(copy->cli, GPUBUF_CHECK_FAILED,
                        "%s/%s, which has buffer %.200s, has %" PRIu64 " bytes, and the manifest says %" PRIu64,
                        copy->dir, name, file->buffer, S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0, file->bytes);
}

static int damaged(struct copy *copy, size_t index, uint32_t crc) {
    char name[FILE_NAME_SIZE];

    file_name(index, name);
    return gb_cli_error(copy->cli, GPUBUF_CHECK_FAILED,
                        "%s/%s, which has buffer %.200s, is damaged: its CRC32C is %08" PRIx32
                        ", and the manifest says %08" PRIx32,
                        copy->dir, name, copy->files[index].buffer, crc, copy->files[index].crc);
}

static int open_file(struct copy *copy, const char *name, int flags) {
    return openat(copy->fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
}

/* --- get ---------------------------------------------------------------------------------------------------------- */

static int write_all(struct copy *copy, int fd, const char *name, const char *data, size_t bytes, uint64_t at) {
    while (bytes > 0) {
        ssize_t n = pwrite(fd, data, bytes, (off_t)at);

        if (n < 0 && errno != EINTR)
            return unwritten(copy, name);
        data += n > 0 ? n : 0;
        at += n > 0 ? (uint64_t)n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* A file of the daemon's from byte `at` on. *crc is the checksum of the bytes before, and then of all. */
static int fetch(struct copy *copy, size_t index, int fd, uint64_t at, uint32_t *crc) {
    struct gb_cli *cli = copy->cli;
    uint64_t bytes = copy->files[index].bytes;
    const struct gpubuf_answer *answer;
    char target[GB_CLI_PATH];
    char name[FILE_NAME_SIZE];
    char range[80];
    const char *const headers[] = {range, NULL};
    size_t n;

    file_name(index, name);
    if (gb_cli_target(cli, target, CHECKPOINT "/files/{}", copy->checkpoint, name) < 0)
        return -1;
    for (; at < bytes; at += n) {
        n = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        snprintf(range, sizeof(range), "Range: bytes=%" PRIu64 "-%" PRIu64, at, at + n - 1);
        if (gpubuf_request(cli->client, "GET", target, headers, NULL, 0, &cli->error) < 0)
            return -1;
        answer = gpubuf_answer_of(cli->client);
        if (answer->bytes != n)
            return gb_cli_error(cli, GPUBUF_BAD_ANSWER, "the daemon sent %zu bytes of the file %s in place of %zu",
                                answer->bytes, name, n);
        if (write_all(copy, fd, name, answer->body, n, at) < 0)
            return -1;
        *crc = gb_crc32c(*crc, answer->body, n);
        copy->copied_bytes += n;
        moved(copy, n);
    }
    return 0;
}

/* Continues behind the bytes that are there; from the first one if these turn out to be others. */
static int fill_file(struct copy *copy, size_t index, int fd, const char *name, uint64_t there) {
    const struct file *file = &copy->files[index];
    uint32_t crc;
    int r = sum_file(copy, fd, name, there, &crc);

    if (r < 0 || (there == file->bytes && crc == file->crc))
        return r;
    copy->copied_files++;
    r = fetch(copy, index, fd, there, &crc);
    if (r == 0 && crc != file->crc && there > 0) {
        copy->done -= file->bytes;
        crc = 0;
        r = fetch(copy, index, fd, 0, &crc);
    }
    if (r == 0 && crc != file->crc)
        return gb_cli_error(copy->cli, GPUBUF_CHECK_FAILED,
                            "the file %s, which has buffer %.200s, came with the CRC32C %08" PRIx32
                            ", and the manifest says %08" PRIx32 ": \"gpubuf checkpoints verify %s\" reads it there",
                            name, file->buffer, crc, file->crc, copy->checkpoint);
    return r;
}

static int get_file(struct copy *copy, size_t index) {
    char name[FILE_NAME_SIZE];
    struct stat info;
    int fd;
    int r;

    file_name(index, name);
    fd = open_file(copy, name, O_RDWR | O_CREAT);
    if (fd < 0)
        return unwritten(copy, name);
    r = fstat(fd, &info) < 0 ? unwritten(copy, name) : interrupted(copy);
    if (r == 0 && (uint64_t)info.st_size > copy->files[index].bytes) {
        r = ftruncate(fd, 0) < 0 ? unwritten(copy, name) : 0;
        info.st_size = 0;
    }
    if (r == 0)
        r = fill_file(copy, index, fd, name, (uint64_t)info.st_size);
    if (r == 0 && fsync(fd) < 0)
        r = unwritten(copy, name);
    close(fd);
    return r;
}

static int write_text(struct copy *copy, const char *name, const char *text, size_t bytes) {
    int fd = open_file(copy, name, O_WRONLY | O_CREAT | O_TRUNC);
    int r = fd < 0 ? unwritten(copy, name) : write_all(copy, fd, name, text, bytes, 0);

    if (r == 0 && fsync(fd) < 0)
        r = unwritten(copy, name);
    if (fd >= 0)
        close(fd);
    return r;
}

static int get_files(struct copy *copy) {
    const char *index = NULL;
    size_t bytes = 0;
    size_t i;

    for (i = 0; i < copy->count; i++)
        if (get_file(copy, i) < 0)
            return -1;
    if (ask_file(copy, INDEX, &index, &bytes) < 0 || write_text(copy, INDEX, index, bytes) < 0 ||
        write_text(copy, MANIFEST, copy->text, copy->text_bytes) < 0)
        return -1;
    return fsync(copy->fd) < 0 ? unwritten(copy, "") : 0;
}

/* Calls each for the names in the folder, until one gives another value than 0, which is returned; -1 with the
 * error. */
static int each_name(struct copy *copy, int (*each)(struct copy *copy, const char *name)) {
    int fd = openat(copy->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    int r = 0;

    if (!folder) {
        r = unread(copy, "");
        if (fd >= 0)
            close(fd);
        return r;
    }
    while (r == 0 && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = each(copy, entry->d_name);
    closedir(folder);
    return r;
}

static int any_name(struct copy *copy, const char *name) {
    (void)copy;
    (void)name;
    return 1;
}

/* A file that a run for another checkpoint has left. */
static int remove_stranger(struct copy *copy, const char *name) {
    char *end;
    unsigned long number = strtoul(name, &end, 10);

    if (end == name || strcmp(end, SUFFIX) != 0 || (number > 0 && number <= copy->count))
        return 0;
    return unlinkat(copy->fd, name, 0) < 0 ? unwritten(copy, name) : 0;
}

/* The folder that is filled; a second command would write the same files. */
static int open_part(struct copy *copy) {
    struct stat named;
    struct stat opened;

    if (mkdir(copy->dir, 0777) < 0 && errno != EEXIST)
        return failed_on(copy, GPUBUF_OUTPUT_FAILED, "", "made");
    copy->fd = open(copy->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (copy->fd < 0)
        return unwritten(copy, "");
    if (flock(copy->fd, LOCK_EX | LOCK_NB) < 0 || fstat(copy->fd, &opened) < 0 || stat(copy->dir, &named) < 0 ||
        named.st_ino != opened.st_ino)
        return gb_cli_error(copy->cli, GPUBUF_OUTPUT_FAILED, "another gpubuf fills the folder %s, or has just done so",
                            copy->dir);
    return each_name(copy, remove_stranger);
}

/* The folder gets its name when all of it is on disk. */
static int name_folder(struct copy *copy, const char *dir) {
    int parent;
    int r = -1;

    if (rename(copy->dir, dir) < 0)
        return gb_cli_error(copy->cli, GPUBUF_OUTPUT_FAILED, "%s is whole and cannot be called %s: %s", copy->dir, dir,
                            strerror(errno));
    parent = openat(copy->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent >= 0) {
        r = fsync(parent);
        close(parent);
    }
    return r < 0 ? unwritten(copy, "") : 0;
}

static int fill(struct copy *copy) {
    char *dir = copy->dir;
    int r;

    if (asprintf(&copy->dir, "%s.part", dir) < 0) {
        copy->dir = dir;
        return gb_cli_error(copy->cli, GPUBUF_NO_MEMORY, "out of memory");
    }
    r = open_part(copy) < 0 || get_files(copy) < 0 ? -1 : name_folder(copy, dir);
    free(copy->dir);
    copy->dir = dir;
    return r;
}

/* The folder is there: 1 if it has this checkpoint, 0 if it is empty, or -1. */
static int compare_folder(struct copy *copy) {
    char name[FILE_NAME_SIZE];
    char *text = NULL;
    size_t bytes = 0;
    uint32_t crc = 0;
    size_t i;
    int fd;
    int r = load_manifest(copy, &text, &bytes);
    bool same = r > 0 && bytes == copy->text_bytes && memcmp(text, copy->text, bytes) == 0;

    free(text);
    if (r == 0)
        r = each_name(copy, any_name);
    if (r > 0 && !same)
        return gb_cli_error(copy->cli, GPUBUF_OUTPUT_FAILED,
                            "%s is there and is not the checkpoint \"%s\": name another folder, or remove this one",
                            copy->dir, copy->checkpoint);
    for (i = 0; r > 0 && i < copy->count; i++) {
        if (check_size(copy, i) < 0)
            return -1;
        file_name(i, name);
        fd = open_file(copy, name, O_RDONLY);
        r = fd >= 0 && sum_file(copy, fd, name, copy->files[i].bytes, &crc) == 0 ? 1 : -1;
        if (fd < 0)
            unread(copy, name);
        else
            close(fd);
        if (r > 0 && crc != copy->files[i].crc)
            r = damaged(copy, i, crc);
    }
    return r;
}

static int get_folder(struct copy *copy) {
    char *real;
    int r;

    copy->fd = open(copy->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy->fd < 0)
        return errno == ENOENT ? fill(copy) : unwritten(copy, "");
    r = compare_folder(copy);
    if (r != 0)
        return r < 0 ? -1 : 0;
    close(copy->fd);
    copy->fd = -1;
    real = realpath(copy->dir, NULL); /* "." cannot be replaced, and the folder that it is can */
    if (!real)
        return unwritten(copy, "");
    free(copy->dir);
    copy->dir = real;
    return fill(copy);
}

static int get(struct copy *copy) {
    json_t *view = view_of(copy);
    bool complete = view && strcmp(gb_cli_text(view, "state"), "complete") == 0;

    if (!view)
        return -1;
    json_decref(view);
    if (!complete)
        return gb_cli_error(copy->cli, GPUBUF_INPUT_FAILED,
                            "the checkpoint \"%s\" is not complete: a client brings its files, or has broken off",
                            copy->checkpoint);
    return ask_manifest(copy) < 0 ? -1 : get_folder(copy);
}

/* --- put ---------------------------------------------------------------------------------------------------------- */

/* A file on its way. */
struct sent {
    struct copy *copy;
    size_t index;
    const char *name;
    int fd;
    uint64_t at;
    uint32_t crc;
    struct gpubuf_error error; /* why a read failed */
};

/* A gpubuf_read_fn. The last bytes of a damaged file are not given out, so that the daemon drops it. */
static int64_t read_file(void *arg, void *data, size_t size) {
    struct sent *sent = arg;
    struct copy *copy = sent->copy;
    const struct file *file = &copy->files[sent->index];
    uint64_t left = file->bytes - sent->at;
    ssize_t n;
    int r = interrupted(copy);

    if (left == 0)
        return 0;
    n = pread(sent->fd, data, size < left ? size : (size_t)left, (off_t)sent->at);
    errno = n == 0 ? EIO : errno;
    if (r == 0 && n <= 0)
        r = unread(copy, sent->name);
    if (r == 0) {
        sent->crc = gb_crc32c(sent->crc, data, (size_t)n);
        sent->at += (uint64_t)n;
        moved(copy, (uint64_t)n);
        if (sent->at == file->bytes && sent->crc != file->crc)
            r = damaged(copy, sent->index, sent->crc);
    }
    sent->error = r < 0 ? copy->cli->error : sent->error;
    return r < 0 ? -1 : n;
}

static int send_once(struct copy *copy, size_t index, const char *name, const char *target) {
    static const char *const headers[] = {"Content-Type: application/x-safetensors", NULL};
    struct gb_cli *cli = copy->cli;
    struct sent sent = {.copy = copy, .index = index, .name = name, .fd = open_file(copy, name, O_RDONLY)};
    int r;

    if (sent.fd < 0)
        return unread(copy, name);
    r = gpubuf_request_from(cli->client, "PUT", target, headers,
                            gpubuf_from_call(read_file, &sent, copy->files[index].bytes), &cli->error);
    close(sent.fd);
    if (r < 0 && sent.error.code != GPUBUF_OK)
        cli->error = sent.error;
    if (r < 0)
        copy->done -= sent.at;
    return r;
}

/* Waits before the next try, if there is one and the error may pass. */
static bool again(struct copy *copy, int tried) {
    const struct gpubuf_error *err = &copy->cli->error;
    bool passes = err->code == GPUBUF_CONNECTION_LOST || err->code == GPUBUF_BUFFER_BUSY || err->retryable;

    return passes && tried < TRIES && gb_cli_pause(copy->cli, err->retry_after_s > 0 ? err->retry_after_s : PAUSE_S);
}

/* The daemon drops a file whose upload broke off: it is sent again from its first byte. */
static int send_file(struct copy *copy, size_t index) {
    char target[GB_CLI_PATH];
    char name[FILE_NAME_SIZE];
    int tried = 0;
    int r;

    file_name(index, name);
    if (gb_cli_target(copy->cli, target, CHECKPOINT "/files/{}", copy->checkpoint, name) < 0)
        return -1;
    do
        r = send_once(copy, index, name, target);
    while (r < 0 && again(copy, ++tried));
    copy->copied_bytes += copy->files[index].bytes;
    copy->copied_files++;
    return r;
}

static int refused_manifest(struct copy *copy) {
    char why[sizeof(copy->cli->error.detail)];

    snprintf(why, sizeof(why), "%s", copy->cli->error.detail);
    return gb_cli_error(copy->cli, GPUBUF_CHECK_FAILED, "%s/" MANIFEST " was refused: %s", copy->dir, why);
}

/* With it the daemon has the checkpoint, if all files are there. */
static int send_manifest(struct copy *copy) {
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    char target[GB_CLI_PATH];
    int tried = 0;
    int r;

    if (gb_cli_target(copy->cli, target, CHECKPOINT "/files/" MANIFEST, copy->checkpoint) < 0)
        return -1;
    do
        r = gpubuf_request(copy->cli->client, "PUT", target, headers, copy->text, copy->text_bytes, &copy->cli->error);
    while (r < 0 && again(copy, ++tried));
    return r < 0 && copy->cli->error.code == GPUBUF_INVALID_ARGUMENT ? refused_manifest(copy) : r;
}

/* The daemon has a checkpoint of that name: 1 if it is this one, or -1. */
static int compare_checkpoint(struct copy *copy) {
    const char *text;
    size_t bytes;

    if (ask_file(copy, MANIFEST, &text, &bytes) < 0)
        return -1;
    if (bytes == copy->text_bytes && memcmp(text, copy->text, bytes) == 0)
        return 1;
    return gb_cli_error(copy->cli, GPUBUF_OUTPUT_FAILED,
                        "the daemon has another checkpoint \"%s\": --name gives this one another name",
                        copy->checkpoint);
}

/* Marks the files that an earlier run has brought. */
static void mark_brought(struct copy *copy, json_t *view) {
    json_t *brought;
    size_t i;

    json_array_foreach(json_object_get(view, "brought"), i, brought) {
        unsigned long number = strtoul(gb_cli_text(brought, "file"), NULL, 10);
        struct file *file = number > 0 && number <= copy->count ? &copy->files[number - 1] : NULL;
        uint32_t crc;

        if (file && read_crc(gb_cli_text(brought, "crc32c"), &crc) && crc == file->crc)
            file->there = json_integer_value(json_object_get(brought, "size")) == (json_int_t)file->bytes;
    }
}

/* What the daemon has of the checkpoint: 1 if all, 0 if files are to be sent, or -1. Where it has nothing, the manifest
 * is shown to it before any file: one that is damaged is refused then, and so is a token that may not do this. */
static int ask_daemon(struct copy *copy) {
    struct gb_cli *cli = copy->cli;
    json_t *view = view_of(copy);
    bool complete;

    if (!view && cli->error.code != GPUBUF_CHECKPOINT_NOT_FOUND)
        return -1;
    if (!view && send_manifest(copy) == 0)
        return 1;
    if (!view)
        return cli->error.code == GPUBUF_CHECKPOINT_INCOMPLETE ? 0 : -1;
    complete = strcmp(gb_cli_text(view, "state"), "complete") == 0;
    mark_brought(copy, view);
    json_decref(view);
    return complete ? compare_checkpoint(copy) : 0;
}

/* Of the folder that is given. */
static int open_source(struct copy *copy) {
    int r;

    copy->fd = open(copy->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy->fd < 0)
        return unread(copy, "");
    r = load_manifest(copy, &copy->text, &copy->text_bytes);
    if (r == 0)
        return gb_cli_error(copy->cli, GPUBUF_INPUT_FAILED,
                            "%s has no " MANIFEST ": it is not the folder of a checkpoint, or a part of one",
                            copy->dir);
    return r < 0 ? -1 : read_manifest(copy);
}

static int put(struct copy *copy) {
    size_t i;
    int r;

    if (open_source(copy) < 0)
        return -1;
    copy->checkpoint = copy->cli->options.name;
    if (!copy->checkpoint)
        copy->checkpoint = gb_cli_text(copy->manifest, "name");
    if (copy->checkpoint[0] == '\0')
        return gb_cli_error(copy->cli, GPUBUF_BAD_ARGUMENT, "the manifest has no name: give the checkpoint a --name");
    for (i = 0; i < copy->count; i++)
        if (check_size(copy, i) < 0)
            return -1;
    r = ask_daemon(copy);
    if (r != 0)
        return r < 0 ? -1 : 0;
    for (i = 0; i < copy->count; i++)
        if (copy->files[i].there)
            moved(copy, copy->files[i].bytes);
        else if (send_file(copy, i) < 0)
            return -1;
    return send_manifest(copy);
}

/* --- get and put -------------------------------------------------------------------------------------------------- */

static int show_copy(const struct copy *copy) {
    json_int_t kept = (json_int_t)(copy->count - copy->copied_files);
    json_t *value =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "checkpoint", copy->checkpoint, "dir", copy->dir, "files",
                  (json_int_t)copy->count, "bytes", (json_int_t)copy->bytes, "copied_files",
                  (json_int_t)copy->copied_files, "copied_bytes", (json_int_t)copy->copied_bytes, "kept_files", kept);
    char all[24];
    char copied[24];

    if (!value)
        return gb_cli_refused(copy->cli, GB_CLI_FAILED,
                              "the folder's name is not UTF-8 and cannot be shown; all was copied");
    if (copy->cli->options.json)
        return gb_cli_show(copy->cli, value, NULL, 0);
    json_decref(value);
    if (copy->cli->options.quiet)
        return GB_CLI_DONE;
    gb_cli_put(stdout, copy->checkpoint);
    printf("  %s in %zu files  ", gb_cli_bytes_text(copy->bytes, all), copy->count);
    gb_cli_put(stdout, copy->dir);
    printf("  copied %zu, %s  kept %zu\n", copy->copied_files, gb_cli_bytes_text(copy->copied_bytes, copied),
           (size_t)kept);
    return GB_CLI_DONE;
}

int gb_cli_copy_folder(struct gb_cli *cli, int argc, char **argv) {
    bool gets = strcmp(argv[0], "get") == 0;
    struct copy copy = {.cli = cli, .checkpoint = gets ? argv[1] : NULL, .fd = -1};
    size_t n;
    int r;

    if (argc != (gets ? 3 : 2))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "it is gpubuf checkpoints get CHECKPOINT DIR, and gpubuf checkpoints put DIR");
    if (cli->host && gets && !strstr(argv[2], "%h"))
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "with --hosts each host needs a folder of its own: put %%h into the name");
    copy.dir = gb_cli_host_path(cli, argv[argc - 1]);
    if (!copy.dir)
        return gb_cli_refused(cli, GB_CLI_FAILED, "out of memory");
    for (n = strlen(copy.dir); n > 1 && copy.dir[n - 1] == '/'; n--)
        copy.dir[n - 1] = '\0';
    gb_cli_progress_begin(&copy.progress, stderr, gb_cli_draws(cli), argv[1]);
    if (n == 0)
        r = gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "the folder has no name");
    else
        r = gets ? get(&copy) : put(&copy);
    gb_cli_progress_end(&copy.progress, r == 0);
    r = r < 0 ? gb_cli_failed(cli) : show_copy(&copy);
    copy_done(&copy);
    return r;
}
