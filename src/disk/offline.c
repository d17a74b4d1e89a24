/* The folder of stored bytes as commands read it while no daemon runs. */
#include "disk/offline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "disk/checkpoint.h"
#include "disk/internal.h"

/* --- offline ------------------------------------------------------------------------------------------------------ */

int gb_disk_open_offline(const char *dir, const char *uuid, struct gb_disk **ret, struct gb_error *err) {
    struct gb_disk *disk;
    struct stat st;

    if (strlen(dir) + GB_DISK_BELOW_MAX > PATH_MAX || stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE,
                            "there is no folder of stored bytes %.200s: name it with --data-dir DIR", dir);
    disk = calloc(1, sizeof(*disk));
    if (!disk)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory for the disk");
    gb_mutex_init(&disk->lock);
    disk->offline = true;
    disk->dir = strdup(dir);
    disk->uuid = strdup(uuid);
    if (!disk->dir || !disk->uuid) {
        gb_disk_close(disk);
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory for the disk");
    }
    *ret = disk;
    return 0;
}

int gb_disk_check_owner(struct gb_disk *disk, struct gb_error *err) {
    bool is_absent;

    return gb_disk_marker_look(disk, &is_absent, err);
}

void gb_disk_file_text(enum gb_disk_place place, const struct gb_disk_name *name, char ret[GB_DISK_FILE_SIZE]) {
    char text[GB_DISK_NAME_SIZE];

    gb_disk_name_text(name, text);
    if (place == GB_DISK_IN_DATA)
        snprintf(ret, GB_DISK_FILE_SIZE, "%s", text);
    else
        snprintf(ret, GB_DISK_FILE_SIZE, "%s/%s", place == GB_DISK_IN_ORPHANS ? GB_DISK_ORPHANS : GB_DISK_DAMAGED,
                 gb_disk_name_base(text));
}

int gb_disk_visit(struct gb_disk *disk, enum gb_disk_place place,
                  int (*visit)(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err),
                  void *arg, struct gb_error *err) {
    if (place == GB_DISK_IN_DATA)
        return gb_disk_visit_data(disk, visit, arg, err);
    return gb_disk_visit_folder(disk, place == GB_DISK_IN_ORPHANS ? GB_DISK_ORPHANS : GB_DISK_DAMAGED, visit, arg, err);
}

int gb_disk_examine(struct gb_disk *disk, enum gb_disk_place place, const struct gb_disk_name *name, uint64_t bytes,
                    struct gb_disk_header *ret_header, struct gb_disk_reader **ret, struct gb_error *err) {
    char below[GB_DISK_FILE_SIZE];

    gb_disk_file_text(place, name, below);
    return gb_disk_read_open_at(disk, below, name, bytes, ret_header, ret, err);
}

int gb_disk_take_over(struct gb_disk *disk, struct gb_error *err) {
    enum gb_disk_op op;

    if (gb_disk_write_marker(disk, &op) == 0)
        return 0;
    gb_disk_explain(op, errno, err);
    return -1;
}

/* --- offline checkpoints ------------------------------------------------------------------------------------------ */

/* The folders of checkpoints as they are. */

#define FOLDER_SIZE (sizeof(GB_DISK_CHECKPOINTS) + 1 + GB_NAME_MAX + 1)

typedef int (*visit_fn)(void *arg, const struct gb_name *name, enum gb_disk_checkpoint_kind kind, const char *folder,
                        struct gb_error *err);

struct visiting {
    visit_fn visit;
    void *arg;
};

static int visit_one(struct gb_disk *disk, const char *base, void *arg, struct gb_error *err) {
    const struct visiting *to = arg;
    enum gb_disk_checkpoint_kind kind = GB_DISK_CHECKPOINT_UNFINISHED;
    bool hidden = base[0] == '.';
    char folder[FOLDER_SIZE];
    char path[PATH_MAX];
    struct gb_name name;
    struct stat st;

    if (gb_name_parse("checkpoint name", base + hidden, strlen(base + hidden), &name, NULL) < 0)
        return 0;
    gb_disk_checkpoint_path(disk, &name, hidden, NULL, path);
    if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    if (!hidden) {
        gb_disk_checkpoint_path(disk, &name, false, GB_CHECKPOINT_MANIFEST, path);
        kind = lstat(path, &st) == 0 ? GB_DISK_CHECKPOINT_WHOLE : GB_DISK_CHECKPOINT_PARTIAL;
    }
    snprintf(folder, sizeof(folder), GB_DISK_CHECKPOINTS "/%s%s", hidden ? "." : "", name.s);
    return to->visit(to->arg, &name, kind, folder, err);
}

int gb_disk_visit_checkpoints(struct gb_disk *disk, visit_fn visit, void *arg, struct gb_error *err) {
    struct visiting to = {visit, arg};

    return gb_disk_checkpoints_each(disk, visit_one, &to, err);
}

/* What the header says of the tensor. The buffer's number may be another daemon's. */
static int check_header(const struct gb_disk_header *header, const struct gb_manifest_entry *entry,
                        struct gb_error *err) {
    if (header->bytes != entry->bytes || header->crc32c != entry->crc32c)
        return gb_error_set(err, GB_ERR_CONTENT_DAMAGED,
                            "its header says %llu bytes of the checksum %08x, and the manifest %llu of %08x",
                            (unsigned long long)header->bytes, header->crc32c, (unsigned long long)entry->bytes,
                            entry->crc32c);
    if (!gb_name_equal(&header->buffer, &entry->buffer) || header->dtype != entry->dtype ||
        !gb_shape_equal(&header->shape, &entry->shape))
        return gb_error_set(err, GB_ERR_CONTENT_DAMAGED,
                            "its header is of the buffer \"%s\", and the manifest says \"%s\", or another shape",
                            header->buffer.s, entry->buffer.s);
    return 0;
}

static int check_file(struct gb_disk_reader *reader, uint64_t size, const struct gb_manifest_entry *entry,
                      struct gb_error *err) {
    unsigned char page[GB_DISK_DATA_AT];
    struct gb_disk_header header;

    if (size != entry->size)
        return gb_error_set(err, GB_ERR_CONTENT_DAMAGED, "it has %llu bytes and should have %llu",
                            (unsigned long long)size, (unsigned long long)entry->size);
    if (gb_disk_read(reader, page, sizeof(page), 0, err) < 0 || gb_disk_header_parse(page, &header, err) < 0)
        return -1;
    return check_header(&header, entry, err);
}

int gb_disk_checkpoint_examine(struct gb_disk *disk, const struct gb_name *name, size_t index,
                               const struct gb_manifest_entry *entry, struct gb_disk_reader **ret,
                               struct gb_error *err) {
    struct gb_disk_reader *reader;
    char file[GB_MANIFEST_FILE_SIZE];
    uint64_t size;

    gb_manifest_file(index, file);
    if (gb_disk_checkpoint_open(disk, name, file, &reader, &size, err) < 0)
        return -1;
    if (check_file(reader, size, entry, err) < 0) {
        gb_disk_read_close(reader);
        return -1;
    }
    *ret = reader;
    return 0;
}
