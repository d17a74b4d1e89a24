#include "cli/backup/origin.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/doctor.h"

#define ALIGN ((size_t)4096)

/* --- the folder --------------------------------------------------------------------------------------------------- */

static bool is_same(int folder, const json_t *manifest) {
    int fd = openat(folder, GB_BACKUP_MANIFEST, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    json_t *here = fd >= 0 ? json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL) : NULL;
    bool same = here != NULL && json_equal(here, manifest);

    json_decref(here);
    if (fd >= 0)
        close(fd);
    return same;
}

void gb_origin_open_at(const char *data_dir, const char *checkpoint, const json_t *manifest, struct gb_origin *ret) {
    char *path = NULL;

    *ret = (struct gb_origin){.checkpoint = checkpoint, .folder = -1};
    if (data_dir[0] != '/' || asprintf(&path, "%s/checkpoints/%s", data_dir, checkpoint) < 0)
        return;
    ret->folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    free(path);
    if (ret->folder >= 0 && !is_same(ret->folder, manifest))
        gb_origin_close(ret);
}

/* Only an administrator is told where the folder is. */
void gb_origin_open(struct gb_cli *cli, const char *checkpoint, const json_t *manifest, struct gb_origin *ret) {
    json_t *storage = NULL;

    if (gb_cli_doctor_is_here(gpubuf_url(cli->client)))
        storage = gb_cli_request(cli, "GET", "/v1/storage", NULL);
    gb_origin_open_at(gb_cli_text(storage, "dir"), checkpoint, manifest, ret);
    json_decref(storage);
    memset(&cli->error, 0, sizeof cli->error);
}

void gb_origin_close(struct gb_origin *origin) {
    if (origin->folder >= 0)
        close(origin->folder);
    origin->folder = -1;
}

/* --- from the folder ---------------------------------------------------------------------------------------------- */

static int make_room(struct gb_piece *piece, size_t bytes) {
    void *room;

    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (piece->size >= bytes)
        return 0;
    if (posix_memalign(&room, ALIGN, bytes) != 0)
        return -1;
    free(piece->room);
    piece->room = room;
    piece->size = bytes;
    return 0;
}

/* Whether the kernel has all of it in its cache, from where it is faster had than from the disk. */
static bool is_cached(int fd, uint64_t offset, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t count = (bytes + page - 1) / page;
    unsigned char *pages = malloc(count);
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, (off_t)offset);
    bool cached = pages != NULL && at != MAP_FAILED && mincore(at, bytes, pages) == 0;
    size_t i;

    for (i = 0; i < count && cached; i++)
        cached = (pages[i] & 1) != 0;
    if (at != MAP_FAILED)
        munmap(at, bytes);
    free(pages);
    return cached;
}

/* The files were written past the kernel's cache, and are read so where offset and length allow it. */
static bool wants_direct(int fd, const struct gb_backup_file *file, uint64_t offset, size_t bytes) {
    bool aligned = offset % ALIGN == 0 && (bytes % ALIGN == 0 || offset + bytes == file->bytes);

    return aligned && !is_cached(fd, offset, bytes) && fcntl(fd, F_SETFL, O_DIRECT) == 0;
}

static int read_open(int fd, struct gb_piece *piece, const struct gb_backup_file *file, uint64_t offset, size_t bytes) {
    bool direct;
    size_t got = 0;

    if (make_room(piece, bytes) < 0)
        return -1;
    direct = wants_direct(fd, file, offset, bytes);
    while (got < bytes) {
        size_t left = bytes - got;
        ssize_t n =
            pread(fd, piece->room + got, direct ? (left + ALIGN - 1) / ALIGN * ALIGN : left, (off_t)(offset + got));

        if (n < 0 && direct && errno == EINVAL && fcntl(fd, F_SETFL, 0) == 0)
            direct = false;
        else if (n == 0 || (n < 0 && errno != EINTR))
            return -1;
        got += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int read_folder(const struct gb_origin *origin, struct gb_piece *piece, const struct gb_backup_file *file,
                       uint64_t offset, size_t bytes) {
    int fd = openat(origin->folder, file->file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;
    int rc = -1;

    if (fd < 0)
        return -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size == file->bytes)
        rc = read_open(fd, piece, file, offset, bytes);
    close(fd);
    return rc;
}

/* --- from the daemon ---------------------------------------------------------------------------------------------- */

static int ask(const struct gb_origin *origin, gpubuf_client *client, const struct gb_backup_file *file,
               uint64_t offset, uint64_t bytes, const char **ret, struct gpubuf_error *err) {
    const struct gpubuf_answer *answer;
    const char *headers[2] = {NULL, NULL};
    char target[GB_CLI_PATH];
    char name[GB_CLI_PATH / 4];
    char range[64];

    snprintf(range, sizeof range, "Range: bytes=%" PRIu64 "-%" PRIu64, offset, offset + bytes - 1);
    headers[0] = range;
    if (gpubuf_escape(origin->checkpoint, name, sizeof name) < 0)
        return gb_backup_fail(err, GPUBUF_BAD_ARGUMENT, "the checkpoint's name is too long");
    snprintf(target, sizeof target, "/v1/checkpoints/%s/files/%s", name, file->file);
    if (gpubuf_request(client, "GET", target, headers, NULL, 0, err) < 0)
        return -1;
    answer = gpubuf_answer_of(client);
    if (answer->bytes != bytes)
        return gb_backup_fail(err, GPUBUF_BAD_ANSWER, "%" PRIu64 " bytes of the file %s were asked for, and %zu came",
                              bytes, file->file, answer->bytes);
    *ret = answer->body;
    return 0;
}

/* --- either ------------------------------------------------------------------------------------------------------- */

/* What the folder does not give, the daemon does, or says why not. */
int gb_origin_read(const struct gb_origin *origin, struct gb_piece *piece, const struct gb_backup_file *file,
                   uint64_t offset, uint64_t bytes, const char **ret, struct gpubuf_error *err) {
    if (origin->folder < 0 || read_folder(origin, piece, file, offset, (size_t)bytes) < 0)
        return ask(origin, piece->client, file, offset, bytes, ret, err);
    *ret = piece->room;
    return 0;
}

void gb_piece_done(struct gb_piece *piece) {
    free(piece->room);
    piece->room = NULL;
    piece->size = 0;
}
