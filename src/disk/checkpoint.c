/* Checkpoints that are there. */
#include "disk/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk/folder.h"

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
        if (gb_disk_checkpoint_clear(disk, path, &op) < 0)
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

int gb_disk_manifest_read(struct gb_disk *disk, const char *path, struct gb_manifest *ret, struct gb_error *err) {
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
    if (gb_disk_manifest_read(disk, path, ret, &why) == 0)
        return 0;
    if (why.code == GB_ERR_CONTENT_LOST)
        return gb_disk_checkpoint_absent(disk, name, err);
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
                   : gb_disk_checkpoint_write(disk, AT_FDCWD, path, NULL, 0, out.s, out.used, err);
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

/* --- links -------------------------------------------------------------------------------------------------------- */

static int check_size(struct gb_disk *disk, const char *path, uint64_t bytes, struct gb_error *err) {
    struct stat st;

    if (lstat(path, &st) < 0) {
        if (gb_disk_check_marker(disk, err) == 0)
            gb_error_set(err, GB_ERR_CONTENT_LOST, "a file of the checkpoint is not there");
        return -1;
    }
    if (!S_ISREG(st.st_mode))
        return gb_disk_count_damage(disk, "it is no plain file", err);
    return (uint64_t)st.st_size == GB_DISK_DATA_AT + bytes ? 0 : gb_disk_count_damage(disk, "it has another size", err);
}

int gb_disk_checkpoint_link_out(struct gb_disk *disk, const struct gb_name *name, size_t index, uint64_t bytes,
                                const struct gb_disk_name *as, struct gb_error *err) {
    char file[GB_MANIFEST_FILE_SIZE];
    char text[GB_DISK_NAME_SIZE];
    enum gb_disk_op op = GB_DISK_OP_mkdir;
    char folder_name[4];
    char folder[PATH_MAX];
    char from[PATH_MAX];
    char to[PATH_MAX];
    int made;

    gb_manifest_file(index, file);
    gb_disk_checkpoint_path(disk, name, false, file, from);
    gb_disk_name_text(as, text);
    gb_disk_path(disk, text, to);
    gb_disk_name_folder(as, folder_name);
    gb_disk_path(disk, folder_name, folder);
    if (gb_disk_check_room(disk, 0, err) < 0 || check_size(disk, from, bytes, err) < 0)
        return -1;
    made = gb_disk_call_mkdir(disk->plan, AT_FDCWD, folder);
    if ((made < 0 && errno != EEXIST) || (made == 0 && gb_disk_sync_folder(disk, disk->dir, &op) < 0))
        return gb_disk_fail(disk, op, errno, 0, err);
    if (gb_disk_call_link(disk->plan, AT_FDCWD, from, AT_FDCWD, to) < 0) {
        if (errno == ENOENT)
            return check_size(disk, from, bytes, err) < 0 ? -1 : gb_disk_fail(disk, GB_DISK_OP_link, ENOENT, 0, err);
        return gb_disk_fail(disk, GB_DISK_OP_link, errno, 0, err);
    }
    if (gb_disk_sync_folder(disk, folder, &op) == 0)
        return 0;
    gb_disk_fail(disk, op, errno, 0, err);
    gb_disk_remove(disk, as);
    return -1;
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
    if (gb_disk_checkpoint_clear(disk, hidden, &op) < 0)
        return gb_disk_fail(disk, op, errno, 0, err);
    op = GB_DISK_OP_rename;
    if (gb_disk_call_rename(disk->plan, AT_FDCWD, path, AT_FDCWD, hidden) < 0)
        return errno == ENOENT ? 0 : gb_disk_fail(disk, op, errno, 0, err);
    if (gb_disk_checkpoints_sync(disk, err) < 0)
        return -1;
    if (gb_disk_checkpoint_clear(disk, hidden, &op) < 0)
        gb_disk_count_failure(disk); /* the next start removes it */
    return 0;
}
