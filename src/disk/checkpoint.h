/* The folders of checkpoints: DIR/checkpoints/NAME/ with a file for each buffer (00001.safetensors and so on), Hugging
 * Face's index of them (model.safetensors.index.json) and manifest.json, which says that all of it is there.
 *
 * A folder is made under the name .NAME, and its last step is a rename: what has a dot is of a process that died. A
 * folder without a manifest is one whose files are brought by clients; the file .session in it says whose it is.
 *
 * All functions block. */
#ifndef GB_DISK_CHECKPOINT_H
#define GB_DISK_CHECKPOINT_H

#include "disk/disk.h"
#include "disk/internal.h"
#include "disk/manifest.h"

#define GB_CHECKPOINT_MANIFEST "manifest.json"
#define GB_CHECKPOINT_INDEX "model.safetensors.index.json"

/* --- making one --------------------------------------------------------------------------------------------------- */

struct gb_disk_folder;

/* STORAGE_FULL, STORAGE_FAILED, STORAGE_UNAVAILABLE, as all below. */
int gb_disk_folder_make(struct gb_disk *disk, const struct gb_name *name, struct gb_disk_folder **ret,
                        struct gb_error *err);
/* Links a file of stored bytes as the file `index`, and completes *entry, which has all but size and file_crc32c.
 * Returns 1; 0 if the bytes have to be written again, because the file has another name or type of the tensor in its
 * header, or because the file system makes no link; -1, also with CONTENT_LOST or CONTENT_DAMAGED. */
int gb_disk_folder_link(struct gb_disk_folder *folder, size_t index, const struct gb_disk_name *file,
                        struct gb_manifest_entry *entry, struct gb_error *err);
/* Writes bytes that are in memory as the file `index`, and completes *entry as before. */
int gb_disk_folder_write(struct gb_disk_folder *folder, size_t index, const struct gb_disk_meta *meta, const void *data,
                         struct gb_manifest_entry *entry, struct gb_error *err);
/* Writes index and manifest, syncs all, gives the folder its name. On success the folder is gone. */
int gb_disk_folder_commit(struct gb_disk_folder *folder, const struct gb_manifest *manifest, struct gb_error *err);
void gb_disk_folder_discard(struct gb_disk_folder *folder); /* NULL is accepted */

/* --- those that are there ----------------------------------------------------------------------------------------- */

/* Visits all folders by their names, in no order, and removes those of a process that died. complete: there is a
 * manifest; else session is what .session says ("" for none), and changed_us when a file last came. */
int gb_disk_checkpoints(struct gb_disk *disk,
                        int (*visit)(void *arg, const struct gb_name *name, bool complete,
                                     const struct gb_name *session, int64_t changed_us, struct gb_error *err),
                        void *arg, struct gb_error *err);
/* Also CHECKPOINT_NOT_FOUND, and CONTENT_DAMAGED if it cannot be read as what it is. */
int gb_disk_checkpoint_manifest(struct gb_disk *disk, const struct gb_name *name, struct gb_manifest *ret,
                                struct gb_error *err);
/* Writes the index if it is missing. */
int gb_disk_checkpoint_index(struct gb_disk *disk, const struct gb_name *name, const struct gb_manifest *manifest,
                             struct gb_error *err);
/* Opens a file for gb_disk_read, which then reads from the first byte of the file on. CONTENT_LOST, CONTENT_DAMAGED,
 * STORAGE_UNAVAILABLE. */
int gb_disk_checkpoint_open(struct gb_disk *disk, const struct gb_name *name, const char *file,
                            struct gb_disk_reader **ret, uint64_t *ret_size, struct gb_error *err);
/* As gb_disk_shared. */
uint64_t gb_disk_checkpoint_shared(struct gb_disk *disk, const struct gb_name *name, size_t index);
/* Links a file of that size of the tensor into the folders of stored bytes, and syncs its entry. CONTENT_LOST,
 * CONTENT_DAMAGED. */
int gb_disk_checkpoint_link_out(struct gb_disk *disk, const struct gb_name *name, size_t index, uint64_t bytes,
                                const struct gb_disk_name *as, struct gb_error *err);
/* The folder first gets the name of one that is made, so that a crash leaves no checkpoint. Absent is as good. */
int gb_disk_checkpoint_remove(struct gb_disk *disk, const struct gb_name *name, struct gb_error *err);

/* --- files that clients bring ------------------------------------------------------------------------------------- */

struct gb_disk_put;

/* Begins a file of `size` bytes; the folder is made if it is not there, for that session ("" for none). */
int gb_disk_put_begin(struct gb_disk *disk, const struct gb_name *name, const struct gb_name *session, const char *file,
                      uint64_t size, struct gb_disk_put **ret, struct gb_error *err);
int gb_disk_put_write(struct gb_disk_put *put, const void *ptr, size_t n, struct gb_error *err);
/* All bytes are there: syncs them. *ret_crc32c is theirs. */
int gb_disk_put_sync(struct gb_disk_put *put, uint32_t *ret_crc32c, struct gb_error *err);
/* Reads the manifest that was brought so, before it has its name. */
int gb_disk_put_manifest(struct gb_disk_put *put, struct gb_manifest *ret, struct gb_error *err);
/* Gives the file its name, in place of one that was there. *ret_replaced: there was one. On success put is gone. */
int gb_disk_put_name(struct gb_disk_put *put, bool *ret_replaced, struct gb_error *err);
void gb_disk_put_discard(struct gb_disk_put *put); /* NULL is accepted */

/* What the files about folders of checkpoints share. */

#define GB_DISK_CHECKPOINTS "checkpoints"
#define GB_DISK_OWNER ".session"

/* "DIR/checkpoints/NAME", or ".NAME", and "/file" behind it unless file is NULL. */
void gb_disk_checkpoint_path(const struct gb_disk *disk, const struct gb_name *name, bool hidden, const char *file,
                             char ret[PATH_MAX]);
/* Sees each name in DIR/checkpoints, whatever it is, in no order; none if that is not there. Returns 0, see's -1, or -1
 * with STORAGE_UNAVAILABLE. */
typedef int gb_disk_base_fn(struct gb_disk *disk, const char *base, void *arg, struct gb_error *err);
int gb_disk_checkpoints_each(struct gb_disk *disk, gb_disk_base_fn *see, void *arg, struct gb_error *err);

#endif
