#include "disk/offline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "disk/internal.h"

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
