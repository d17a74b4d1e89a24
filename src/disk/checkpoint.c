/* Folders of checkpoints: made, listed, read, removed, and filled with files that clients bring. A folder gets its name
 * when all of it is on the disk: one with a manifest is whole. */
#include "disk/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "disk/header.h"

/* --- folder ------------------------------------------------------------------------------------------------------- */

/* Making the folder of a checkpoint. */

struct gb_disk_folder {
    struct gb_disk *disk;
    struct gb_name name;
    char path[PATH_MAX];
    int fd;
};

/* --- shared ------------------------------------------------------------------------------------------------------- */

void gb_disk_checkpoint_path(const struct gb_disk *disk, const struct gb_name *name, bool hidden, const char *file,
                             char ret[PATH_MAX]) {
    char below[GB_DISK_BELOW_MAX];

    snprintf(below, sizeof(below), GB_DISK_CHECKPOINTS "/%s%s%s%s", hidden ? "." : "", name->s, file ? "/" : "",
             file ? file : "");
    gb_disk_path(disk, below, ret);
}

/* Syncs DIR/checkpoints. */
static int disk_checkpoints_sync(struct gb_disk *disk, struct gb_error *err) {
    enum gb_disk_op op;
    char path[PATH_MAX];

    gb_disk_path(disk, GB_DISK_CHECKPOINTS, path);
    return gb_disk_sync_folder(disk, path, &op) < 0 ? gb_disk_fail(disk, op, errno, 0, err) : 0;
}

/* Makes DIR/checkpoints, and syncs the entry for it. */
static int disk_checkpoints_make(struct gb_disk *disk, struct gb_error *err) {
    enum gb_disk_op op = GB_DISK_OP_mkdir;
    char path[PATH_MAX];

    if (gb_disk_check_room(disk, 0, err) < 0 || gb_disk_check_marker(disk, err) < 0)
        return -1;
    gb_disk_path(disk, GB_DISK_CHECKPOINTS, path);
    if (gb_disk_call_mkdir(disk->plan, AT_FDCWD, path) < 0)
        return errno == EEXIST ? 0 : gb_disk_fail(disk, op, errno, 0, err);
    return gb_disk_sync_folder(disk, disk->dir, &op) < 0 ? gb_disk_fail(disk, op, errno, 0, err) : 0;
}

/* The folder is not there: CHECKPOINT_NOT_FOUND, or STORAGE_UNAVAILABLE where all have gone. */
static int disk_checkpoint_absent(struct gb_disk *disk, const struct gb_name *name, struct gb_error *err) {
    if (gb_disk_check_marker(disk, err) < 0)
        return -1;
    return gb_error_set(err, GB_ERR_CHECKPOINT_NOT_FOUND, "there is no checkpoint named \"%s\"", name->s);
}

static int write_all(struct gb_disk *disk, int fd, const char *ptr, size_t n, uint64_t at) {
    while (n > 0) {
        ssize_t done = gb_disk_call_write(disk->plan, fd, ptr, n, at);

        if (done < 0)
            return -1;
        if (done == 0) {
            errno = EIO;
            return -1;
        }
        ptr += done;
        n -= (size_t)done;
        at += (uint64_t)done;
    }
    return 0;
}

/* Writes a new file in a folder and syncs it; on failure it is gone. */
static int disk_checkpoint_write(struct gb_disk *disk, int folder, const char *file, const void *head, size_t head_n,
                                 const void *data, size_t n, struct gb_error *err) {
    enum gb_disk_op op = GB_DISK_OP_write;
    int fd = gb_disk_call_create(disk->plan, folder, file, O_EXCL);
    int errnum;

    if (fd < 0)
        return gb_disk_fail(disk, GB_DISK_OP_create, errno, n, err);
    if (write_all(disk, fd, head, head_n, 0) == 0 && write_all(disk, fd, data, n, head_n) == 0) {
        op = GB_DISK_OP_sync;
        if (gb_disk_call_sync(disk->plan, fd) == 0) {
            close(fd);
            return 0;
        }
    }
    errnum = errno;
    gb_disk_call_unlink(disk->plan, folder, file);
    close(fd);
    return gb_disk_fail(disk, op, errnum, n, err);
}

static int clear_open(struct gb_disk *disk, DIR *dir) {
    struct dirent *entry;

    while ((entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (gb_disk_call_unlink(disk->plan, dirfd(dir), entry->d_name) < 0 && errno != ENOENT)
            return -1;
    }
    return 0;
}

/* Removes a folder with the plain files in it. Returns 0, or -1 with errno and *ret_op. Absent is as good. */
static int disk_checkpoint_clear(struct gb_disk *disk, const char *path, enum gb_disk_op *ret_op) {
    int fd = gb_disk_call_open(disk->plan, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    DIR *dir;
    int errnum;
    int r;

    *ret_op = GB_DISK_OP_open;
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    dir = fdopendir(fd);
    if (!dir) {
        gb_disk_shut(fd);
        return -1;
    }
    *ret_op = GB_DISK_OP_unlink;
    r = clear_open(disk, dir);
    errnum = errno;
    closedir(dir);
    errno = errnum;
    if (r < 0)
        return -1;
    return gb_disk_call_rmdir(disk->plan, AT_FDCWD, path) < 0 && errno != ENOENT ? -1 : 0;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

void gb_disk_folder_discard(struct gb_disk_folder *f) {
    enum gb_disk_op op;

    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    if (disk_checkpoint_clear(f->disk, f->path, &op) < 0)
        gb_disk_count_failure(f->disk); /* the next start removes it */
    free(f);
}

/* One that an earlier attempt left is removed first. */
static int make(struct gb_disk_folder *f, struct gb_error *err) {
    struct gb_disk *disk = f->disk;
    enum gb_disk_op op;

    if (disk_checkpoints_make(disk, err) < 0)
        return -1;
    if (disk_checkpoint_clear(disk, f->path, &op) < 0)
        return gb_disk_fail(disk, op, errno, 0, err);
    if (gb_disk_call_mkdir(disk->plan, AT_FDCWD, f->path) < 0)
        return gb_disk_fail(disk, GB_DISK_OP_mkdir, errno, 0, err);
    f->fd = gb_disk_call_open(disk->plan, AT_FDCWD, f->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    return f->fd < 0 ? gb_disk_fail(disk, GB_DISK_OP_open, errno, 0, err) : 0;
}

int gb_disk_folder_make(struct gb_disk *disk, const struct gb_name *name, struct gb_disk_folder **ret,
                        struct gb_error *err) {
    struct gb_disk_folder *f = calloc(1, sizeof(*f));

    if (!f)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the checkpoint; try again later");
    f->disk = disk;
    f->name = *name;
    f->fd = -1;
    gb_disk_checkpoint_path(disk, name, true, NULL, f->path);
    if (make(f, err) < 0) {
        gb_disk_folder_discard(f);
        return -1;
    }
    *ret = f;
    return 0;
}

/* --- links -------------------------------------------------------------------------------------------------------- */

static int read_page(struct gb_disk *disk, int fd, unsigned char page[GB_DISK_DATA_AT]) {
    size_t got = 0;

    while (got < GB_DISK_DATA_AT) {
        ssize_t n = gb_disk_call_read(disk->plan, fd, page + got, GB_DISK_DATA_AT - got, got);

        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    if (got < GB_DISK_DATA_AT)
        memset(page, 0, GB_DISK_DATA_AT);
    return 0;
}

static void sum_file(const unsigned char page[GB_DISK_DATA_AT], struct gb_manifest_entry *entry) {
    entry->size = GB_DISK_DATA_AT + entry->bytes;
    entry->file_crc32c = gb_crc32c_join(gb_crc32c(0, page, GB_DISK_DATA_AT), entry->crc32c, entry->bytes);
}

/* The header must be that of the bytes. What it says of the tensor is for other programs: 0 if the record says
 * something else. */
static int check_page(struct gb_disk *disk, const unsigned char page[GB_DISK_DATA_AT], struct gb_manifest_entry *entry,
                      struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_disk_header header;

    if (gb_disk_header_parse(page, &header, &why) < 0) {
        if (why.code == GB_ERR_CONTENT_DAMAGED)
            gb_disk_count_damage(disk, "", NULL);
        return gb_error_move(err, &why);
    }
    if (header.bytes != entry->bytes || header.crc32c != entry->crc32c)
        return gb_disk_count_damage(disk, "it holds other bytes than its name says", err);
    sum_file(page, entry);
    return gb_name_equal(&header.buffer, &entry->buffer) && header.dtype == entry->dtype &&
           gb_shape_equal(&header.shape, &entry->shape);
}

static int check_linked(struct gb_disk_folder *f, const char *file, struct gb_manifest_entry *entry,
                        struct gb_error *err) {
    int fd = gb_disk_call_open(f->disk->plan, f->fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    unsigned char page[GB_DISK_DATA_AT];
    struct stat st;
    int r;

    if (fd < 0 && errno == ELOOP)
        return gb_disk_count_damage(f->disk, "it is no plain file", err);
    if (fd < 0)
        return gb_disk_fail(f->disk, GB_DISK_OP_open, errno, 0, err);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != GB_DISK_DATA_AT + entry->bytes)
        r = gb_disk_count_damage(f->disk, "it has another size", err);
    else if (read_page(f->disk, fd, page) < 0)
        r = gb_disk_fail(f->disk, GB_DISK_OP_read, errno, 0, err);
    else
        r = check_page(f->disk, page, entry, err);
    close(fd);
    return r;
}
int gb_disk_folder_link(struct gb_disk_folder *f, size_t index, const struct gb_disk_name *name,
                        struct gb_manifest_entry *entry, struct gb_error *err) {
    char file[GB_MANIFEST_FILE_SIZE];
    char text[GB_DISK_NAME_SIZE];
    char from[PATH_MAX];
    int r;

    gb_manifest_file(index, file);
    gb_disk_name_text(name, text);
    gb_disk_path(f->disk, text, from);
    if (gb_disk_call_link(f->disk->plan, AT_FDCWD, from, f->fd, file) < 0) {
        if (gb_disk_has_no_link(errno))
            return 0;
        if (errno != ENOENT)
            return gb_disk_fail(f->disk, GB_DISK_OP_link, errno, 0, err);
        if (gb_disk_check_marker(f->disk, err) == 0)
            gb_error_set(err, GB_ERR_CONTENT_LOST, "the file of the bytes is not there");
        return -1;
    }
    r = check_linked(f, file, entry, err);
    if (r <= 0 && gb_disk_call_unlink(f->disk->plan, f->fd, file) < 0)
        gb_disk_count_failure(f->disk);
    return r;
}

int gb_disk_folder_write(struct gb_disk_folder *f, size_t index, const struct gb_disk_meta *meta, const void *data,
                         struct gb_manifest_entry *entry, struct gb_error *err) {
    const struct gb_disk_name name = {entry->id, entry->generation, entry->run};
    unsigned char page[GB_DISK_DATA_AT];
    char file[GB_MANIFEST_FILE_SIZE];

    gb_manifest_file(index, file);
    if (gb_disk_check_room(f->disk, GB_DISK_DATA_AT + entry->bytes, err) < 0 ||
        gb_disk_header_build(&name, meta, entry->crc32c, page, err) < 0)
        return -1;
    sum_file(page, entry);
    return disk_checkpoint_write(f->disk, f->fd, file, page, sizeof(page), data, (size_t)entry->bytes, err);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static int write_texts(struct gb_disk_folder *f, const struct gb_manifest *manifest, struct gb_error *err) {
    struct gb_json_writer index = {0};
    struct gb_json_writer text = {0};
    int r;

    gb_manifest_write_index(manifest, &index);
    gb_manifest_write(manifest, &text);
    if (index.failed || text.failed)
        r = gb_error_set(err, GB_ERR_SATURATED, "no memory for the manifest; try again later");
    else
        r = disk_checkpoint_write(f->disk, f->fd, GB_CHECKPOINT_INDEX, NULL, 0, index.s, index.used, err) < 0 ||
                    disk_checkpoint_write(f->disk, f->fd, GB_CHECKPOINT_MANIFEST, NULL, 0, text.s, text.used, err) < 0
                ? -1
                : 0;
    gb_json_done(&index);
    gb_json_done(&text);
    return r;
}

int gb_disk_folder_commit(struct gb_disk_folder *f, const struct gb_manifest *manifest, struct gb_error *err) {
    struct gb_disk *disk = f->disk;
    char path[PATH_MAX];

    if (write_texts(f, manifest, err) < 0)
        return -1;
    if (gb_disk_call_dirsync(disk->plan, f->fd) < 0)
        return gb_disk_fail(disk, GB_DISK_OP_dirsync, errno, 0, err);
    gb_disk_checkpoint_path(disk, &f->name, false, NULL, path);
    if (gb_disk_call_rename(disk->plan, AT_FDCWD, f->path, AT_FDCWD, path) < 0)
        return gb_disk_fail(disk, GB_DISK_OP_rename, errno, 0, err);
    memcpy(f->path, path, sizeof(path)); /* to be removed if what follows fails */
    if (disk_checkpoints_sync(disk, err) < 0)
        return -1;
    close(f->fd);
    free(f);
    return 0;
}

/* --- checkpoints that are there ----------------------------------------------------------------------------------- */

/* A manifest beyond that is not ours. */
#define MANIFEST_MAX (UINT64_C(1) << 30)

/* --- finding them ------------------------------------------------------------------------------------------------- */

typedef int (*visit_fn)(void *arg, const struct gb_name *name, bool complete, const struct gb_name *session,
                        int64_t changed_us, struct gb_error *err);

struct visiting {
    visit_fn visit;
    void *arg;
};

/* Absent, or no name: it has no owner. */
static void read_owner(struct gb_disk *disk, const struct gb_name *name, struct gb_name *ret) {
    char text[GB_NAME_MAX + 1];
    char path[PATH_MAX];
    ssize_t n;
    int fd;

    *ret = (struct gb_name){""};
    gb_disk_checkpoint_path(disk, name, false, GB_DISK_OWNER, path);
    fd = gb_disk_call_open(disk->plan, AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    n = gb_disk_call_read(disk->plan, fd, text, sizeof(text), 0);
    if (n > 0)
        gb_name_parse("session name", text, (size_t)n, ret, NULL);
    close(fd);
}

static int visit_one(struct gb_disk *disk, const char *base, void *arg, struct gb_error *err) {
    const struct visiting *to = arg;
    struct gb_name session = {""};
    struct gb_name name;
    char path[PATH_MAX];
    enum gb_disk_op op;
    struct stat st;
    bool complete;

    if (base[0] == '.' && gb_name_parse("checkpoint name", base + 1, strlen(base + 1), &name, NULL) == 0) {
        gb_disk_checkpoint_path(disk, &name, true, NULL, path);
        if (disk_checkpoint_clear(disk, path, &op) < 0)
            gb_disk_count_failure(disk);
        return 0;
    }
    if (gb_name_parse("checkpoint name", base, strlen(base), &name, NULL) < 0)
        return 0;
    gb_disk_checkpoint_path(disk, &name, false, GB_CHECKPOINT_MANIFEST, path);
    complete = lstat(path, &st) == 0;
    gb_disk_checkpoint_path(disk, &name, false, NULL, path);
    if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    if (!complete)
        read_owner(disk, &name, &session);
    return to->visit(to->arg, &name, complete, &session,
                     (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000, err);
}

int gb_disk_checkpoints_each(struct gb_disk *disk, gb_disk_base_fn *see, void *arg, struct gb_error *err) {
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *dir;
    int r = 0;

    gb_disk_path(disk, GB_DISK_CHECKPOINTS, path);
    dir = opendir(path);
    if (!dir && errno == ENOENT)
        return 0;
    if (!dir)
        return gb_error_errno(err, GB_ERR_STORAGE_UNAVAILABLE, "opendir", errno);
    while (r == 0 && (entry = readdir(dir)))
        r = see(disk, entry->d_name, arg, err);
    closedir(dir);
    return r;
}

int gb_disk_checkpoints(struct gb_disk *disk, visit_fn visit, void *arg, struct gb_error *err) {
    struct visiting to = {visit, arg};

    return gb_disk_check_there(disk, err) < 0 ? -1 : gb_disk_checkpoints_each(disk, visit_one, &to, err);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

int gb_disk_checkpoint_open(struct gb_disk *disk, const struct gb_name *name, const char *file,
                            struct gb_disk_reader **ret, uint64_t *ret_size, struct gb_error *err) {
    char path[PATH_MAX];

    gb_disk_checkpoint_path(disk, name, false, file, path);
    return gb_disk_read_open_path(disk, path, ret, ret_size, err);
}

/* Reads the manifest of that path; errors as gb_manifest_parse and gb_disk_read_open_path. */
static int disk_manifest_read(struct gb_disk *disk, const char *path, struct gb_manifest *ret, struct gb_error *err) {
    struct gb_disk_reader *reader;
    struct gb_error why = GB_ERROR_INIT;
    uint64_t size;
    char *text;
    int r;

    if (gb_disk_read_open_path(disk, path, &reader, &size, err) < 0)
        return -1;
    text = size <= MANIFEST_MAX ? malloc((size_t)size + 1) : NULL;
    if (!text)
        r = gb_error_set(&why, GB_ERR_SATURATED, "no memory for the manifest; try again later");
    else
        r = gb_disk_read(reader, text, (size_t)size, 0, &why) < 0 ? -1
                                                                  : gb_manifest_parse(text, (size_t)size, ret, &why);
    free(text);
    gb_disk_read_close(reader);
    return r < 0 ? gb_error_move(err, &why) : 0;
}

int gb_disk_checkpoint_manifest(struct gb_disk *disk, const struct gb_name *name, struct gb_manifest *ret,
                                struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    char path[PATH_MAX];

    gb_disk_checkpoint_path(disk, name, false, GB_CHECKPOINT_MANIFEST, path);
    if (disk_manifest_read(disk, path, ret, &why) == 0)
        return 0;
    if (why.code == GB_ERR_CONTENT_LOST)
        return disk_checkpoint_absent(disk, name, err);
    if (why.code == GB_ERR_INVALID_ARGUMENT || why.code == GB_ERR_INVALID_NAME) {
        why.code = GB_ERR_CONTENT_DAMAGED;
        gb_disk_note_damage(disk);
    }
    return gb_error_move(err, &why);
}

int gb_disk_checkpoint_index(struct gb_disk *disk, const struct gb_name *name, const struct gb_manifest *manifest,
                             struct gb_error *err) {
    struct gb_json_writer out = {0};
    char path[PATH_MAX];
    struct stat st;
    int r;

    gb_disk_checkpoint_path(disk, name, false, GB_CHECKPOINT_INDEX, path);
    if (lstat(path, &st) == 0)
        return 0;
    gb_manifest_write_index(manifest, &out);
    r = out.failed ? gb_error_set(err, GB_ERR_SATURATED, "no memory for the index; try again later")
                   : disk_checkpoint_write(disk, AT_FDCWD, path, NULL, 0, out.s, out.used, err);
    gb_json_done(&out);
    return r;
}

uint64_t gb_disk_checkpoint_shared(struct gb_disk *disk, const struct gb_name *name, size_t index) {
    char file[GB_MANIFEST_FILE_SIZE];
    char path[PATH_MAX];

    gb_manifest_file(index, file);
    gb_disk_checkpoint_path(disk, name, false, file, path);
    return gb_disk_shared_path(path);
}

/* --- links out, and removing -------------------------------------------------------------------------------------- */

int gb_disk_checkpoint_link_out(struct gb_disk *disk, const struct gb_name *name, size_t index, uint64_t bytes,
                                const struct gb_disk_name *as, struct gb_error *err) {
    char file[GB_MANIFEST_FILE_SIZE];
    char from[PATH_MAX];

    gb_manifest_file(index, file);
    gb_disk_checkpoint_path(disk, name, false, file, from);
    return gb_disk_link_path(disk, from, bytes, as, err);
}

/* --- removing ----------------------------------------------------------------------------------------------------- */

int gb_disk_checkpoint_remove(struct gb_disk *disk, const struct gb_name *name, struct gb_error *err) {
    enum gb_disk_op op = GB_DISK_OP_rename;
    char hidden[PATH_MAX];
    char path[PATH_MAX];

    if (gb_disk_check_there(disk, err) < 0 || gb_disk_check_marker(disk, err) < 0)
        return -1;
    gb_disk_checkpoint_path(disk, name, true, NULL, hidden);
    gb_disk_checkpoint_path(disk, name, false, NULL, path);
    if (disk_checkpoint_clear(disk, hidden, &op) < 0)
        return gb_disk_fail(disk, op, errno, 0, err);
    op = GB_DISK_OP_rename;
    if (gb_disk_call_rename(disk->plan, AT_FDCWD, path, AT_FDCWD, hidden) < 0)
        return errno == ENOENT ? 0 : gb_disk_fail(disk, op, errno, 0, err);
    if (disk_checkpoints_sync(disk, err) < 0)
        return -1;
    if (disk_checkpoint_clear(disk, hidden, &op) < 0)
        gb_disk_count_failure(disk); /* the next start removes it */
    return 0;
}

/* --- files that clients bring ------------------------------------------------------------------------------------- */

/* Each is under a name of its own until it is complete. */

#define TRIES 100
#define FILE_SIZE 64

struct gb_disk_put {
    struct gb_disk *disk;
    struct gb_name name;
    char file[FILE_SIZE];
    char made[FILE_SIZE]; /* its name until then; begins with a dot */
    int folder;
    int fd;
    bool direct;
    uint64_t size;
    uint64_t written;
    uint32_t crc;
};

static int failed(struct gb_disk_put *put, enum gb_disk_op op, struct gb_error *err) {
    return gb_disk_fail(put->disk, op, errno, put->size, err);
}

void gb_disk_put_discard(struct gb_disk_put *put) {
    if (!put)
        return;
    if (put->fd >= 0) {
        if (gb_disk_call_unlink(put->disk->plan, put->folder, put->made) < 0 && errno != ENOENT)
            gb_disk_count_failure(put->disk);
        close(put->fd);
    }
    if (put->folder >= 0)
        close(put->folder);
    free(put);
}

/* --- a file begins ------------------------------------------------------------------------------------------------ */

/* The folder of a checkpoint that clients bring, made with the first file. */
static int open_folder(struct gb_disk_put *put, const struct gb_name *session, struct gb_error *err) {
    struct gb_disk *disk = put->disk;
    char path[PATH_MAX];
    bool made;

    if (disk_checkpoints_make(disk, err) < 0)
        return -1;
    gb_disk_checkpoint_path(disk, &put->name, false, NULL, path);
    made = gb_disk_call_mkdir(disk->plan, AT_FDCWD, path) == 0;
    if (!made && errno != EEXIST)
        return failed(put, GB_DISK_OP_mkdir, err);
    put->folder = gb_disk_call_open(disk->plan, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (put->folder < 0)
        return failed(put, GB_DISK_OP_open, err);
    if (!made)
        return 0;
    if (session->s[0] &&
        disk_checkpoint_write(disk, put->folder, GB_DISK_OWNER, NULL, 0, session->s, strlen(session->s), err) < 0)
        return -1;
    return disk_checkpoints_sync(disk, err);
}

/* Uploads of the same file may run side by side; the last one stays. */
static int create(struct gb_disk_put *put, struct gb_error *err) {
    int i;

    for (i = 0; i < TRIES; i++) {
        snprintf(put->made, sizeof(put->made), ".%.40s.%d", put->file, i);
        put->fd = gb_disk_call_create(put->disk->plan, put->folder, put->made, O_EXCL);
        if (put->fd >= 0)
            break;
        if (errno != EEXIST)
            return failed(put, GB_DISK_OP_create, err);
    }
    if (put->fd < 0)
        return gb_error_set(
            err, GB_ERR_SATURATED,
            "too many uploads of that file run or broke off; delete the checkpoint, or try again later");
    put->direct = gb_disk_call_direct(put->disk->plan, put->fd, true) == 0;
    if (put->size > 0 && gb_disk_call_fallocate(put->disk->plan, put->fd, put->size) < 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS)
        return failed(put, GB_DISK_OP_fallocate, err);
    return 0;
}

int gb_disk_put_begin(struct gb_disk *disk, const struct gb_name *name, const struct gb_name *session, const char *file,
                      uint64_t size, struct gb_disk_put **ret, struct gb_error *err) {
    struct gb_disk_put *put = calloc(1, sizeof(*put));

    if (!put)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the upload; try again later");
    put->disk = disk;
    put->name = *name;
    put->size = size;
    put->folder = put->fd = -1;
    snprintf(put->file, sizeof(put->file), "%s", file);
    if (gb_disk_check_room(disk, size, err) < 0 || open_folder(put, session, err) < 0 || create(put, err) < 0) {
        gb_disk_put_discard(put);
        return -1;
    }
    *ret = put;
    return 0;
}

/* --- its bytes ---------------------------------------------------------------------------------------------------- */

static void set_direct(struct gb_disk_put *put, bool direct) {
    if (put->direct && !direct)
        gb_disk_call_direct(put->disk->plan, put->fd, false);
    put->direct = put->direct && direct;
}

/* Past the kernel's cache as long as the pieces are whole pages. */
int gb_disk_put_write(struct gb_disk_put *put, const void *ptr, size_t n, struct gb_error *err) {
    const char *at = ptr;

    put->crc = gb_crc32c(put->crc, ptr, n);
    if ((uintptr_t)ptr % GB_DISK_ALIGN != 0 || n % GB_DISK_ALIGN != 0 || put->written % GB_DISK_ALIGN != 0)
        set_direct(put, false);
    while (n > 0) {
        ssize_t done = gb_disk_call_write(put->disk->plan, put->fd, at, n, put->written);

        if (done < 0 && put->direct && (errno == EINVAL || errno == EFAULT)) {
            set_direct(put, false);
            continue;
        }
        if (done == 0)
            errno = EIO;
        if (done <= 0)
            return failed(put, GB_DISK_OP_write, err);
        if (done % GB_DISK_ALIGN != 0)
            set_direct(put, false);
        at += done;
        n -= (size_t)done;
        put->written += (uint64_t)done;
    }
    return 0;
}

int gb_disk_put_sync(struct gb_disk_put *put, uint32_t *ret_crc32c, struct gb_error *err) {
    if (put->written != put->size)
        return gb_error_set(err, GB_ERR_INTERNAL, "the file of the checkpoint is not complete");
    if (gb_disk_call_sync(put->disk->plan, put->fd) < 0)
        return failed(put, GB_DISK_OP_sync, err);
    *ret_crc32c = put->crc;
    return 0;
}

int gb_disk_put_manifest(struct gb_disk_put *put, struct gb_manifest *ret, struct gb_error *err) {
    char path[PATH_MAX];

    gb_disk_checkpoint_path(put->disk, &put->name, false, put->made, path);
    return disk_manifest_read(put->disk, path, ret, err);
}

/* --- its name ----------------------------------------------------------------------------------------------------- */

int gb_disk_put_name(struct gb_disk_put *put, bool *ret_replaced, struct gb_error *err) {
    struct stat st;

    *ret_replaced = fstatat(put->folder, put->file, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (gb_disk_call_rename(put->disk->plan, put->folder, put->made, put->folder, put->file) < 0)
        return errno == ENOENT ? disk_checkpoint_absent(put->disk, &put->name, err)
                               : failed(put, GB_DISK_OP_rename, err);
    if (gb_disk_call_dirsync(put->disk->plan, put->folder) < 0) {
        snprintf(put->made, sizeof(put->made), "%s", put->file); /* which is removed */
        return failed(put, GB_DISK_OP_dirsync, err);
    }
    close(put->fd);
    close(put->folder);
    free(put);
    return 0;
}
