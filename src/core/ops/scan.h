/* Reading a buffer for itself: every byte once, for checksums. Included by core.h. */
#ifndef GB_CORE_OPS_SCAN_H
#define GB_CORE_OPS_SCAN_H

#include "base/hash.h"
#include "core/public/call.h"
#include "core/public/types.h"

struct gb_call;
struct gb_core;

struct gb_scan_params {
    struct gb_name session;
    struct gb_name name;
    struct gb_name stream; /* "" is "default" */
    const void *head;      /* hashed before the bytes of the buffer; copied */
    size_t head_n;
    unsigned digests;             /* of head and bytes: a set of 1u << enum gb_digest_alg */
    bool verify;                  /* the bytes' CRC32C too, which goes into a record that does not know it */
    struct gb_buffer_check check; /* asked once, of the bytes that are read */
};

struct gb_scan_call {
    struct gb_call base;
    struct gb_buffer_rec buffer; /* as it was read */
    bool had_crc32c;             /* of the record, when the reading began */
    uint32_t crc32c;             /* as read, with verify */
    struct gb_digest digest[GB_DIGEST_ALGS];
};

/* Reads the bytes as they are now, whatever becomes of the buffer meanwhile, in the order of the stream, out of the
 * device's memory as a download does, on a thread for that. Not counted as a download. BUFFER_BUSY, BUFFER_PARTIAL,
 * CONTENT_LOST; SATURATED beyond GB_SCANS_MAX; DRAINING when the core closes before the end. */
void gb_buffer_scan(struct gb_core *core, const struct gb_scan_params *params, struct gb_scan_call *call);

#endif
