/* What the files about folders of checkpoints share. */
#ifndef GB_DISK_FOLDER_H
#define GB_DISK_FOLDER_H

#include "disk/checkpoint.h"
#include "disk/internal.h"

#define GB_DISK_CHECKPOINTS "checkpoints"
#define GB_DISK_OWNER ".session"

/* "DIR/checkpoints/NAME", or ".NAME", and "/file" behind it unless file is NULL. */
void gb_disk_checkpoint_path(const struct gb_disk *disk, const struct gb_name *name, bool hidden, const char *file,
                             char ret[PATH_MAX]);
/* Makes DIR/checkpoints, and syncs the entry for it. */
int gb_disk_checkpoints_make(struct gb_disk *disk, struct gb_error *err);
/* Syncs DIR/checkpoints. */
int gb_disk_checkpoints_sync(struct gb_disk *disk, struct gb_error *err);
/* Writes a new file in a folder and syncs it; on failure it is gone. */
int gb_disk_checkpoint_write(struct gb_disk *disk, int folder, const char *file, const void *head, size_t head_n,
                             const void *data, size_t n, struct gb_error *err);
/* Sees each name in DIR/checkpoints, whatever it is, in no order; none if that is not there. Returns 0, see's -1, or -1
 * with STORAGE_UNAVAILABLE. */
typedef int gb_disk_base_fn(struct gb_disk *disk, const char *base, void *arg, struct gb_error *err);
int gb_disk_checkpoints_each(struct gb_disk *disk, gb_disk_base_fn *see, void *arg, struct gb_error *err);
/* Removes a folder with the plain files in it. Returns 0, or -1 with errno and *ret_op. Absent is as good. */
int gb_disk_checkpoint_clear(struct gb_disk *disk, const char *path, enum gb_disk_op *ret_op);
/* The folder is not there: CHECKPOINT_NOT_FOUND, or STORAGE_UNAVAILABLE where all have gone. */
int gb_disk_checkpoint_absent(struct gb_disk *disk, const struct gb_name *name, struct gb_error *err);

/* Reads the manifest of that path; errors as gb_manifest_parse and gb_disk_read_open_path. */
int gb_disk_manifest_read(struct gb_disk *disk, const char *path, struct gb_manifest *ret, struct gb_error *err);

#endif
