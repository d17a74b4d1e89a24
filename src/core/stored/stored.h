/* The bytes of one generation on disk, counted by references: the buffer's and each reader's. When no row of the
 * database names them any more and the last reader has gone, their file is removed. */
#ifndef GB_CORE_STORED_STORED_H
#define GB_CORE_STORED_STORED_H

#include "core/runtime/runtime.h"
#include "core/stored/host_tier.h"
#include "disk/disk.h"

struct gb_stored {
    atomic_uint refs;
    atomic_bool condemned;
    struct gb_core *core;
    struct gb_stored_rec rec; /* its blocks are behind this */
    struct gb_disk_name name; /* of the file, unless gb_stored_inline */
    bool spilled;             /* it ends with the process, and no row names it */
    bool in_host;             /* spilled, and there is no file: the block has the bytes, without checksums */
    /* In host memory, too, from where loads and downloads take them; a reference. NULL: not there. Constant if in_host,
     * else guarded by the lock of the buffer's session. */
    struct gb_host_block *block;
    atomic_bool damaged;      /* was found so: it does not count as having the bytes that memory has */
    atomic_bool set_aside;    /* condemned, its file goes to DIR/damaged */
    bool found;               /* at the start of the process: the bytes are there */
    _Atomic uint64_t read_ns; /* when a download last began to read them */
    struct gb_task task;      /* removes the file */
    uint32_t blocks[];
};

/* Copies rec with its blocks. Returns it with one reference, or NULL when memory is exhausted. */
struct gb_stored *gb_stored_new(struct gb_core *core, const struct gb_stored_rec *rec);
/* The same of bytes that are in a block alone; takes over its reference. rec has no blocks. */
struct gb_stored *gb_stored_new_in_host(struct gb_core *core, const struct gb_stored_rec *rec,
                                        struct gb_host_block *block);
struct gb_stored *gb_stored_ref(struct gb_stored *stored);
/* NULL is accepted. [any thread, never blocks] */
void gb_stored_unref(struct gb_stored *stored);
/* No row names the bytes any more, or none was written. NULL is accepted. [any thread, never blocks] */
void gb_stored_condemn(struct gb_stored *stored);

/* There is a file. */
static inline bool gb_stored_has_file(const struct gb_stored *stored) {
    return !stored->in_host && !gb_stored_inline(&stored->rec);
}

/* The bytes were found damaged or missing, or were found whole. Counted once, until the other is the case. [any thread,
 * never blocks] */
void gb_stored_note_damage(struct gb_stored *stored);
void gb_stored_note_whole(struct gb_stored *stored);

/* The checksum of block `index` is that of the n bytes at ptr: 0, or -1 with CONTENT_DAMAGED, which is noted. */
int gb_stored_check_block(struct gb_stored *stored, size_t index, uint32_t crc32c, struct gb_error *err);

#endif
