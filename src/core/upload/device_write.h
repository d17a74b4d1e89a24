/* Writes that a device does itself, mirrored buffers, and what the device knows of a buffer. Comes with core.h. */
#ifndef GB_CORE_UPLOAD_DEVICE_WRITE_H
#define GB_CORE_UPLOAD_DEVICE_WRITE_H

#include "core/public/call.h"

/* --- copy and fill ------------------------------------------------------------------------------------------------ */

/* Bytes from another buffer (copy) or a pattern (fill) into [offset, offset + bytes) of a buffer, in the order of a
 * stream of the destination's session. */
struct gb_device_write_params {
    struct gb_name session;
    struct gb_name name;
    struct gb_name stream; /* "" is "default" */
    bool copy;             /* else fill */
    struct gb_name from_session, from;
    uint64_t from_offset;
    uint64_t pattern; /* its low `width` bytes, least significant first */
    unsigned width;   /* 1, 2, 4 or 8; offset and bytes are multiples of it */
    uint64_t offset;
    bool has_bytes; /* else: what the source has from from_offset on; for a fill what the buffer has from offset on */
    uint64_t bytes;
    bool in_place;                /* as with uploads */
    uint64_t holder;              /* the same */
    bool to_host_side;            /* of a mirrored buffer; else its device side */
    bool side_named;              /* refused where the buffer has no sides; to_host_side is always */
    unsigned wait_ms;             /* how long to wait for memory to become free */
    struct gb_buffer_check check; /* of the destination */
};

/* The semantics of uploads: without in_place readers see the old bytes or the new. The source is held as it is now,
 * whatever becomes of it meanwhile. A destination that is not there is made by a copy to offset 0: like the source when
 * all of it is copied, else uint8 of its kind. Done when the bytes are there and the record is committed.
 * INVALID_ARGUMENT: ranges out of bounds, in_place ranges of one buffer that overlap; BUFFER_NOT_FOUND; BUFFER_BUSY;
 * BUFFER_PARTIAL, CONTENT_LOST of the source, or of a destination that is to be kept in part. Result: call->buffer,
 * created, way, times. */
void gb_buffer_write(struct gb_core *core, const struct gb_device_write_params *params, struct gb_buffer_call *call);

/* --- mirrored buffers --------------------------------------------------------------------------------------------- */

/* Makes that side current; copies only when it is stale (call->copied). INVALID_ARGUMENT when the buffer is not
 * mirrored. check->arg is released with the call; check may be NULL. Result: call->buffer, copied, way, times. */
void gb_buffer_mirror_sync(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                           bool to_host, const struct gb_name *stream, const struct gb_buffer_check *check,
                           struct gb_buffer_call *call);

/* Frees one side or both. BUFFER_SIDE_CURRENT when the bytes would be lost; both: head becomes uninitialized, and the
 * buffer reads as zeros. Result: call->buffer. */
void gb_buffer_mirror_release(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                              bool host, bool device, const struct gb_buffer_check *check, struct gb_buffer_call *call);

#endif
