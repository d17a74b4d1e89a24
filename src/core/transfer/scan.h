/* Reading for checksums: a download whose bytes are hashed in turns on one of the core's computing lanes. */
#ifndef GB_CORE_TRANSFER_SCAN_H
#define GB_CORE_TRANSFER_SCAN_H

#include "base/hash.h"
#include "core/transfer/download.h"

struct gb_hash_reader {
    struct gb_task task;
    struct gb_lane *lane;
    atomic_int state;
    atomic_bool cut;
    struct gb_core *core;
    enum gb_hash_reader_use use;
    struct gb_download *download; /* set by the owner before the start, and freed by it after the end */
    bool sums;                    /* the CRC32C too */
    struct gb_hash *hash[GB_DIGEST_ALGS];
    uint64_t left; /* bytes; set by the owner before the start */
    uint32_t crc;
    /* Called once, on the lane, when all was read (error NULL) or the reading failed. It is the reading's last call. */
    void (*end)(struct gb_hash_reader *reader, const struct gb_error *error);
};

/* digests: a set of 1u << enum gb_digest_alg. 0, or -1 with SATURATED beyond GB_SCANS_MAX of that use;
 * gb_hash_reader_done follows either way. */
int gb_hash_reader_init(struct gb_hash_reader *reader, struct gb_core *core, enum gb_hash_reader_use use,
                        unsigned digests, struct gb_error *err);
void gb_hash_reader_start(struct gb_hash_reader *reader);
void gb_hash_reader_wake(void *reader); /* the download's wake */
/* Makes the reading end soon, with an error. [until end has begun] */
void gb_hash_reader_cut(struct gb_hash_reader *reader);
void gb_hash_reader_done(struct gb_hash_reader *reader); /* frees the download */

#endif
