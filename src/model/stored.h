/* What is kept of a buffer's bytes on disk, and how safe they are. */
#ifndef GB_MODEL_STORED_H
#define GB_MODEL_STORED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/tensor.h"

/* When the bytes of a new generation are on disk. */
enum gb_durability {
    GB_DURABILITY_NONE,   /* never: they end with the process */
    GB_DURABILITY_BEHIND, /* a short while after the change was acknowledged */
    GB_DURABILITY_SYNC,   /* before the change is acknowledged */
    GB_DURABILITY_COUNT
};
const char *gb_durability_name(enum gb_durability durability);
/* Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_durability_parse(const char *name, size_t len, enum gb_durability *ret, struct gb_error *err);

/* Where bytes that are not durable may go when memory is wanted for others, until they are wanted again or the process
 * ends. */
enum gb_spill {
    GB_SPILL_NEVER, /* they stay in memory */
    GB_SPILL_HOST,  /* to host memory while that has room, else to the disk */
    GB_SPILL_DISK,  /* to the disk */
    GB_SPILL_COUNT
};
const char *gb_spill_name(enum gb_spill spill);
/* Returns 0, or -1 with INVALID_ARGUMENT. */
int gb_spill_parse(const char *name, size_t len, enum gb_spill *ret, struct gb_error *err);

/* The bytes have a checksum for each block of this size; the last block may be shorter. */
#define GB_STORED_BLOCK_BYTES (1024u * 1024u)
/* Bytes up to this size lie in the database, beside the record. */
#define GB_STORED_INLINE_BYTES (64u * 1024u)

static inline size_t gb_stored_block_count(uint64_t bytes) {
    return (size_t)((bytes + GB_STORED_BLOCK_BYTES - 1) / GB_STORED_BLOCK_BYTES);
}

/* The bytes of one generation. They lie in the database if there are at most GB_STORED_INLINE_BYTES, else in a file.
 * The name of the file has buffer_id, file_generation and file_tag, and is never given again: bytes that become those
 * of another generation stay in their file. */
struct gb_stored_rec {
    int64_t buffer_id;
    int64_t generation;
    uint32_t run; /* of the process that gave them this generation; part of the entity tag */
    int64_t file_generation;
    uint32_t file_tag;
    uint64_t bytes;
    enum gb_dtype dtype; /* what the bytes were, where the record has become another */
    struct gb_shape shape;
    uint32_t crc32c;        /* of all */
    const uint32_t *blocks; /* CRC32C of each block: gb_stored_block_count(bytes). Borrowed */
};

static inline bool gb_stored_inline(const struct gb_stored_rec *rec) {
    return rec->bytes <= GB_STORED_INLINE_BYTES;
}

#endif
