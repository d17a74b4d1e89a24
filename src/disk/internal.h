/* What the files of this folder share: the disk as a struct, its paths and names, its state, room and marker. */
#ifndef GB_DISK_INTERNAL_H
#define GB_DISK_INTERNAL_H

#include <limits.h>
#include <pthread.h>

#include "disk/calls.h"
#include "disk/disk.h"

#define GB_DISK_FOLDERS 256
#define GB_DISK_ORPHANS "orphans"
#define GB_DISK_DAMAGED "damaged"
#define GB_DISK_MARKER "GPUBUFD-DATA"
#define GB_DISK_SCRUBBED "GPUBUFD-SCRUB"
/* The longest path below the folder, with its slash and NUL. */
#define GB_DISK_BELOW_MAX 256

struct gb_disk {
    char *dir;
    char *uuid;
    uint64_t reserve_bytes;
    struct gb_disk_plan rules;
    struct gb_disk_plan *plan; /* &rules, or NULL without any */
    bool offline;              /* no daemon runs: the marker may be any */
    bool expected;             /* the marker was there once; of gb_disk_open and gb_disk_probe alone, as the next */
    uint64_t marker_dev;       /* which file the marker is; another one: another folder, or another disk */
    uint64_t marker_inode;

    pthread_mutex_t lock;          /* a leaf: never held across a system call. Guards all below */
    bool folders[GB_DISK_FOLDERS]; /* is there, and the entry for it is synced */
    uint32_t unnamed;              /* files that were created without a name */
    uint64_t promised;             /* bytes of room that writers have been promised and not taken yet */
    uint64_t redeemed;             /* the sum of promises that have ended, which only grows */
    uint64_t epoch;                /* raised by every failure that sets the state */
    struct gb_disk_stat stat;      /* but for free_bytes */
};

/* "DIR/below". */
void gb_disk_path(const struct gb_disk *disk, const char *below, char ret[PATH_MAX]);
/* Closes it, and errno stays as it was. */
void gb_disk_shut(int fd);
/* "2a" and "298.7.0badcafe.safetensors". */
void gb_disk_name_folder(const struct gb_disk_name *name, char ret[4]);
const char *gb_disk_name_base(const char text[GB_DISK_NAME_SIZE]);
/* Parses a file's name without its folder. Returns false if it is not ours. */
bool gb_disk_name_parse(const char *base, struct gb_disk_name *ret);

/* --- state -------------------------------------------------------------------------------------------------------- */

/* Whether the process lacks descriptors or memory, which says nothing of the disk. */
bool gb_disk_is_shortage(int errnum);
/* Sets code, sentence and number of an error of that call: STORAGE_FULL, STORAGE_FAILED, SATURATED for a shortage. */
void gb_disk_explain(enum gb_disk_op op, int errnum, struct gb_error *err);
/* A call for writing has failed: counts it, and sets the state and the error. requested: bytes of the file, for the
 * numbers of STORAGE_FULL; 0: no numbers. Returns -1. */
int gb_disk_fail(struct gb_disk *disk, enum gb_disk_op op, int errnum, uint64_t requested, struct gb_error *err);
/* Counts a call that has failed and changes no state. */
void gb_disk_count_failure(struct gb_disk *disk);
/* A file is not what it should be. Returns -1 with CONTENT_DAMAGED. */
int gb_disk_say_damage(const char *why, struct gb_error *err);
/* Counts it as well. Damage of buffers' files is counted above, once for each file. */
int gb_disk_count_damage(struct gb_disk *disk, const char *why, struct gb_error *err);
/* The folder is not there: sets the state. Returns -1 with *why in err. */
int gb_disk_set_unavailable(struct gb_disk *disk, const struct gb_error *why, struct gb_error *err);
/* 0 if the folder was there at the last check; else -1 with STORAGE_UNAVAILABLE. */
int gb_disk_check_there(struct gb_disk *disk, struct gb_error *err);

/* --- room --------------------------------------------------------------------------------------------------------- */

/* Bytes that the file takes. */
uint64_t gb_disk_room_of(uint64_t bytes);
/* Reserves that many bytes for a file, or fails as gb_disk_check_room. */
int gb_disk_promise(struct gb_disk *disk, uint64_t bytes, struct gb_error *err);
/* The bytes were taken from the file system, or are not needed. */
void gb_disk_redeem(struct gb_disk *disk, uint64_t bytes);
/* What is free for files of bytes; 0 if the file system does not say. */
uint64_t gb_disk_free(struct gb_disk *disk);

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* A reader of all bytes of any file below the folder. CONTENT_LOST, CONTENT_DAMAGED, STORAGE_UNAVAILABLE. */
int gb_disk_read_open_path(struct gb_disk *disk, const char *path, struct gb_disk_reader **ret, uint64_t *ret_bytes,
                           struct gb_error *err);

/* The file system makes no links, or no more of that file. */
bool gb_disk_has_no_link(int errnum);
/* As gb_disk_link, of any file. */
int gb_disk_link_path(struct gb_disk *disk, const char *from, uint64_t bytes, const struct gb_disk_name *as,
                      struct gb_error *err);

/* As gb_disk_shared, of any file. */
uint64_t gb_disk_shared_path(const char *path);

/* --- the folder --------------------------------------------------------------------------------------------------- */

/* Whether the marker is there and ours: 0, or -1 with STORAGE_UNAVAILABLE, with INVALID_ARGUMENT for a marker of
 * another database, or with SATURATED. *ret_absent: it is missing. */
int gb_disk_marker_look(struct gb_disk *disk, bool *ret_absent, struct gb_error *err);
/* Whether the folder has gone; sets the state then. Returns -1 with STORAGE_UNAVAILABLE or SATURATED, 0 if it is
 * there. */
int gb_disk_check_marker(struct gb_disk *disk, struct gb_error *err);
/* Writes the marker in place of any that is there. Returns 0, or -1 with errno and *ret_op. */
int gb_disk_write_marker(struct gb_disk *disk, enum gb_disk_op *ret_op);
/* Syncs the folder of that path. Returns 0, or -1 with errno and *ret_op, the call that failed. */
int gb_disk_sync_folder(struct gb_disk *disk, const char *path, enum gb_disk_op *ret_op);

/* --- offline ------------------------------------------------------------------------------------------------------ */

typedef int gb_disk_visit_fn(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err);
struct gb_disk_header;

/* As gb_disk_scan, whatever the marker. */
int gb_disk_visit_data(struct gb_disk *disk, gb_disk_visit_fn *visit, void *arg, struct gb_error *err);
/* All files of orphans/ or damaged/. */
int gb_disk_visit_folder(struct gb_disk *disk, const char *folder, gb_disk_visit_fn *visit, void *arg,
                         struct gb_error *err);
/* As gb_disk_read_open, of the file at that path below the folder; ret_header may be NULL. */
int gb_disk_read_open_at(struct gb_disk *disk, const char *below, const struct gb_disk_name *name, uint64_t bytes,
                         struct gb_disk_header *ret_header, struct gb_disk_reader **ret, struct gb_error *err);

#endif
