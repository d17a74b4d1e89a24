/* The folder of stored bytes as it is, for commands that read it while no daemon runs. Only the function at the
 * end changes anything. */
#ifndef GB_DISK_OFFLINE_H
#define GB_DISK_OFFLINE_H

#include "disk/checkpoint.h"
#include "disk/header.h"

/* Opens the folder, without making it or its marker. uuid: of the database. STORAGE_UNAVAILABLE if there is no folder,
 * INTERNAL when memory is exhausted. gb_disk_close ends it. */
int gb_disk_open_offline(const char *dir, const char *uuid, struct gb_disk **ret, struct gb_error *err);

/* Whether the marker names the database: 0, or -1 with STORAGE_UNAVAILABLE for an absent one, INVALID_ARGUMENT for one
 * of another database. */
int gb_disk_check_owner(struct gb_disk *disk, struct gb_error *err);

enum gb_disk_place { GB_DISK_IN_DATA, GB_DISK_IN_ORPHANS, GB_DISK_IN_DAMAGED };

#define GB_DISK_FILE_SIZE (GB_DISK_NAME_SIZE + 16)
/* "2a/298.7.0badcafe.safetensors", "orphans/298.7.0badcafe.safetensors". */
void gb_disk_file_text(enum gb_disk_place place, const struct gb_disk_name *name, char ret[GB_DISK_FILE_SIZE]);

/* As gb_disk_scan. */
int gb_disk_visit(struct gb_disk *disk, enum gb_disk_place place,
                  int (*visit)(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err),
                  void *arg, struct gb_error *err);

/* As gb_disk_read_open, in any place; *ret_header has what the header says. */
int gb_disk_examine(struct gb_disk *disk, enum gb_disk_place place, const struct gb_disk_name *name, uint64_t bytes,
                    struct gb_disk_header *ret_header, struct gb_disk_reader **ret, struct gb_error *err);

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

enum gb_disk_checkpoint_kind {
    GB_DISK_CHECKPOINT_WHOLE,     /* it has a manifest */
    GB_DISK_CHECKPOINT_PARTIAL,   /* no files of its own: clients bring them */
    GB_DISK_CHECKPOINT_UNFINISHED /* it was being made or removed: the next start removes it */
};

/* Visits all folders, in no order. folder: "checkpoints/c1", "checkpoints/.c1". */
int gb_disk_visit_checkpoints(struct gb_disk *disk,
                              int (*visit)(void *arg, const struct gb_name *name, enum gb_disk_checkpoint_kind kind,
                                           const char *folder, struct gb_error *err),
                              void *arg, struct gb_error *err);

/* Opens the file of an entry, whose size and header must be those that the entry says. gb_disk_read then reads from the
 * first byte of the file on. CONTENT_LOST, CONTENT_DAMAGED. */
int gb_disk_checkpoint_examine(struct gb_disk *disk, const struct gb_name *name, size_t index,
                               const struct gb_manifest_entry *entry, struct gb_disk_reader **ret,
                               struct gb_error *err);

/* --- what changes something --------------------------------------------------------------------------------------- */

/* Writes the marker: the folder belongs to the database from now on, and to no other. */
int gb_disk_take_over(struct gb_disk *disk, struct gb_error *err);

#endif
