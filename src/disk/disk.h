/* Files of buffers' bytes: one immutable file for each generation. Knows nothing of sessions, memory or the database;
 * that a file counts is for the caller's database to say, which names it.
 *
 *   DIR/GPUBUFD-DATA                           marker: to which database the files belong
 *   DIR/GPUBUFD-SCRUB                          empty; its time is the end of the latest scrub
 *   DIR/00 to DIR/ff/ID.GENERATION.TAG.safetensors
 *       by the low byte of the buffer's id; decimal, decimal, 8 hex digits. Generation 0: the file has no name yet, or
 *       has spilled bytes; of an earlier process it is of no use
 *   DIR/orphans/, DIR/damaged/                 files that were taken out of the way
 *
 * A file is a plain safetensors file of one tensor, which any reader of that format opens: 8 bytes of length, a JSON
 * header padded with spaces so that the bytes begin at 4096, the bytes, and nothing behind them. The header is written
 * last, behind the bytes: a file without one was never complete.
 *
 * All functions that touch the disk block. They may be called on any thread, one at a time for each writer or reader,
 * and hold no lock across a system call. Modes: 0700 for folders, 0600 for files. */
#ifndef GB_DISK_DISK_H
#define GB_DISK_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/histogram.h"
#include "disk/calls.h"
#include "model/model.h"

#define GB_DISK_DATA_AT 4096u
/* The alignment of memory, offsets and lengths that goes past the kernel's cache. */
#define GB_DISK_ALIGN 4096u

struct gb_disk;

struct gb_disk_config {
    const char *dir;        /* made if its parent is there; copied */
    const char *uuid;       /* of the database; copied */
    bool expected;          /* the database has files here: without a marker the folder is not the right one */
    uint64_t reserve_bytes; /* of the file system's room, which files of bytes leave to others */
    const char *faults;     /* rules, as calls.h says; NULL: none. Copied */
};

/* Opens the folder. If its disk is absent (no marker where one is expected, or the folder cannot be reached), the disk
 * opens all the same, in state UNAVAILABLE, and gb_disk_probe searches for it. Returns 0; -1 with INVALID_ARGUMENT when
 * the rules are wrong or the marker is of another database, with INTERNAL when memory is exhausted. */
int gb_disk_open(const struct gb_disk_config *config, struct gb_disk **ret, struct gb_error *err);
void gb_disk_close(struct gb_disk *disk); /* all readers and writers have ended; NULL is accepted */

/* --- state -------------------------------------------------------------------------------------------------------- */

enum gb_disk_state {
    GB_DISK_READY,
    GB_DISK_FULL,       /* a write met no room; ends when there is room again */
    GB_DISK_FAILED,     /* a write or sync failed for another reason; ends when gb_disk_probe has written and synced */
    GB_DISK_UNAVAILABLE /* the folder is not there */
};
const char *gb_disk_state_name(enum gb_disk_state state);

struct gb_disk_stat {
    enum gb_disk_state state;
    struct gb_error error; /* why, unless READY */
    uint64_t free_bytes;   /* for files of bytes: without the reserve and what writers have reserved */
    uint64_t writes;       /* files completed */
    uint64_t written_bytes;
    uint64_t failures; /* of calls */
    uint64_t reads;    /* files opened */
    uint64_t read_bytes;
    uint64_t damaged;            /* files that were found to be */
    struct gb_histogram write;   /* ns from create to the end of the last write */
    struct gb_histogram sync;    /* ns of both syncs together */
    struct gb_histogram opening; /* ns of opening and checking a file */
};
/* [never blocks, but for statvfs] */
void gb_disk_stat(struct gb_disk *disk, struct gb_disk_stat *ret);
/* The state alone; why, unless READY. [never blocks] */
enum gb_disk_state gb_disk_state_of(struct gb_disk *disk, struct gb_error *ret_why);

/* Checks whether a disk that is not READY is well again, and whether the folder of one that is has gone. Returns true
 * if the state has changed. Called once a second, on one thread. */
bool gb_disk_probe(struct gb_disk *disk);

/* 0 if a file of that size could be begun now; else -1 with STORAGE_FULL (with numbers), STORAGE_UNAVAILABLE (also
 * while it is FAILED), or STORAGE_FAILED. [never blocks, but for statvfs] */
int gb_disk_check_room(struct gb_disk *disk, uint64_t bytes, struct gb_error *err);

/* --- files -------------------------------------------------------------------------------------------------------- */

struct gb_disk_name {
    int64_t buffer_id;
    int64_t generation;
    uint32_t run;
};
#define GB_DISK_NAME_SIZE 72
/* A generation with this bit: the file is a link to one that was written under another name, which its header has. A
 * checkpoint was restored so. */
#define GB_DISK_LINKED (INT64_C(1) << 62)
/* The generation without the bit. */
int64_t gb_disk_name_generation(const struct gb_disk_name *name);
/* "2a/298.7.0badcafe.safetensors". */
void gb_disk_name_text(const struct gb_disk_name *name, char ret[GB_DISK_NAME_SIZE]);

/* What the header says of the tensor, so that the files alone are enough to make the records again. Borrowed. */
struct gb_disk_meta {
    const char *session;
    const struct gb_buffer_rec *buffer; /* name, dtype, shape, kind, labels, sealed, bytes */
};

struct gb_disk_writer;

/* Creates the file, which must not exist, and reserves its room: STORAGE_FULL before a byte is written. STORAGE_FAILED,
 * STORAGE_UNAVAILABLE. */
int gb_disk_create(struct gb_disk *disk, const struct gb_disk_name *name, uint64_t bytes, struct gb_disk_writer **ret,
                   struct gb_error *err);
/* The same under a name of its own, generation 0, for a buffer whose generation is not known yet. gb_disk_name_as must
 * follow before gb_disk_complete; a file that still has such a name is of an upload that broke off. */
int gb_disk_create_unnamed(struct gb_disk *disk, int64_t buffer_id, uint64_t bytes, struct gb_disk_writer **ret,
                           struct gb_error *err);
/* The name that the file gets when it is complete; of the same buffer. */
void gb_disk_name_as(struct gb_disk_writer *writer, const struct gb_disk_name *name);
/* Appends. ptr and n may be anything; pieces of whole blocks of GB_DISK_ALIGN at aligned addresses go straight. After a
 * failure only gb_disk_discard may follow. */
int gb_disk_write(struct gb_disk_writer *writer, const void *ptr, size_t n, struct gb_error *err);
/* Pieces that several threads may write side by side, in any order: those that begin with a block of
 * GB_STORED_BLOCK_BYTES and end with one or with the bytes, at an aligned address. */
bool gb_disk_is_piece(const struct gb_disk_writer *writer, const void *ptr, size_t n, uint64_t at);
/* Writes such a piece, of bytes that no other piece has. When all that were begun have ended and their bytes have no
 * gap, gb_disk_write may continue behind them, and no more pieces follow. After a failure only gb_disk_discard may
 * follow, once the others have ended. */
int gb_disk_write_piece(struct gb_disk_writer *writer, const void *ptr, size_t n, uint64_t at, struct gb_error *err);
/* All bytes are there: writes the header, cuts the file to its exact length, syncs file and folder, closes. *ret_crc32c
 * is of all bytes; blocks gets gb_stored_block_count(bytes) checksums. On failure the file is given up: it is never
 * synced again, is removed, and only gb_disk_discard may follow. On success the writer is gone. */
int gb_disk_complete(struct gb_disk_writer *writer, const struct gb_disk_meta *meta, uint32_t *ret_crc32c,
                     uint32_t *blocks, struct gb_error *err);
/* The same without a sync, for bytes that need not outlive the process: the file keeps the name that
 * gb_disk_create_unnamed gave it, which goes to *ret_name. */
int gb_disk_complete_spilled(struct gb_disk_writer *writer, const struct gb_disk_meta *meta, uint32_t *ret_crc32c,
                             uint32_t *blocks, struct gb_disk_name *ret_name, struct gb_error *err);
/* Gives the file up and removes it. NULL is accepted. */
void gb_disk_discard(struct gb_disk_writer *writer);

struct gb_disk_reader;

/* Opens a complete file of that size and checks its header. CONTENT_LOST without a file, CONTENT_DAMAGED if it
 * is not what it should be (also a link, a folder, a pipe), STORAGE_UNAVAILABLE. */
int gb_disk_read_open(struct gb_disk *disk, const struct gb_disk_name *name, uint64_t bytes,
                      struct gb_disk_reader **ret, struct gb_error *err);
/* Reads n bytes at offset. Past the kernel's cache if ptr, n (but for the end of the file) and offset are aligned. The
 * caller checks checksums. STORAGE_FAILED; CONTENT_DAMAGED if the file ends early. */
int gb_disk_read(struct gb_disk_reader *reader, void *ptr, size_t n, uint64_t offset, struct gb_error *err);
/* Another reader of the same open file, for another thread; also if its name is another file's by now. SATURATED. */
int gb_disk_read_share(const struct gb_disk_reader *reader, struct gb_disk_reader **ret, struct gb_error *err);
void gb_disk_read_close(struct gb_disk_reader *reader); /* NULL is accepted */

/* Gives a file of that many bytes another name, which has GB_DISK_LINKED, and syncs its folder. Returns 0, or -1 with
 * CONTENT_LOST or CONTENT_DAMAGED if the file is not what it should be, UNSUPPORTED, or as gb_disk_create. */
int gb_disk_link(struct gb_disk *disk, const struct gb_disk_name *from, uint64_t bytes, const struct gb_disk_name *as,
                 struct gb_error *err);

/* Tells files that are one: the number that the file system has for the file, if it has several names; else 0. */
uint64_t gb_disk_shared(struct gb_disk *disk, const struct gb_disk_name *name);

/* Counts a file whose bytes have not their checksums. */
void gb_disk_note_damage(struct gb_disk *disk);
uint64_t gb_disk_damaged(struct gb_disk *disk); /* how many were counted. [never blocks] */

/* Removes the file. Absent is as good. A failure is counted, and what stays is an orphan at the next start. */
void gb_disk_remove(struct gb_disk *disk, const struct gb_disk_name *name);
/* Moves the file to orphans/ or to damaged/. Absent is as good. */
void gb_disk_set_aside(struct gb_disk *disk, const struct gb_disk_name *name, bool damaged);

/* Visits all files of the folders 00 to ff by their names, in no order: readdir and stat alone. bytes: of the tensor,
 * from the file's length; a file shorter than the header has 0. Names that are not ours are skipped. Returns 0, or
 * -1 with STORAGE_UNAVAILABLE or the visitor's error. */
int gb_disk_scan(struct gb_disk *disk,
                 int (*visit)(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err),
                 void *arg, struct gb_error *err);
/* When the folder was made, and when the latest scrub of all files ended: the times of GPUBUFD-DATA and of
 * GPUBUFD-SCRUB. 0: not known, or never. [a stat of each] */
struct gb_disk_times {
    int64_t made_us; /* since the epoch */
    int64_t scrubbed_us;
};
void gb_disk_times(struct gb_disk *disk, struct gb_disk_times *ret);
/* A scrub has ended. A failure is counted. */
void gb_disk_note_scrub(struct gb_disk *disk);

/* As gb_disk_scan, of orphans/. */
int gb_disk_scan_orphans(struct gb_disk *disk,
                         int (*visit)(void *arg, const struct gb_disk_name *name, uint64_t bytes, struct gb_error *err),
                         void *arg, struct gb_error *err);
/* Moves a file from orphans/ to where a row can name it, and syncs that folder. STORAGE_FAILED, STORAGE_FULL. */
int gb_disk_take_back(struct gb_disk *disk, const struct gb_disk_name *name, struct gb_error *err);
/* Removes what came to orphans/ before. */
void gb_disk_sweep_orphans(struct gb_disk *disk, int64_t before_us);

/* A point of the caller's, at which a rule of --disk-fault may hold up or kill the process. */
void gb_disk_point(struct gb_disk *disk, enum gb_disk_op op);

#endif
