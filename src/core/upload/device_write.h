/* Device writes, which the device makes without a payload from the client, and the sides of mirrored buffers. Included
 * by core.h. */
#ifndef GB_CORE_UPLOAD_DEVICE_WRITE_H
#define GB_CORE_UPLOAD_DEVICE_WRITE_H

#include "core/public/call.h"

/* --- copy and fill ------------------------------------------------------------------------------------------------ */

struct gb_content;

/* The bytes of a copy's source as of one moment, or why there are none. Zeroed: it was not looked for. */
struct gb_copy_source {
    bool looked;
    struct gb_content *content; /* a reference; NULL: zeros, or none */
    struct gb_buffer_rec rec;
    struct gb_error error;
};
/* NULL is accepted. [any thread, never blocks] */
void gb_copy_source_done(struct gb_copy_source *source);

/* A copy from another buffer or a fill with a pattern. It writes [offset, offset + bytes) of a buffer, in the order of
 * a stream of the destination's session. */
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
    bool has_bytes; /* else all bytes of the source from from_offset on; for a fill all of the buffer from offset on */
    uint64_t bytes;
    bool in_place;                     /* as in gb_upload_params */
    uint64_t holder;                   /* as in gb_upload_params */
    bool to_host_side;                 /* of a mirrored buffer; else its device side */
    bool side_named;                   /* refuse a buffer that is not mirrored; to_host_side always does */
    unsigned wait_ms;                  /* how long to wait for memory to become free */
    struct gb_buffer_check check;      /* of the destination */
    struct gb_buffer_check from_check; /* of the source, which is there; its arg lives until the call below returns */
    struct gb_copy_source *source;     /* what gb_copy_sources_look has found, which is taken; NULL: look for it */
};

/* Looks for the sources of writes that have params->source and copy: those of one session all at one moment. [now] */
void gb_copy_sources_look(struct gb_core *core, const struct gb_device_write_params *writes, size_t count);

/* Makes a device write. Without in_place readers see the old bytes or the new, as with an upload. The source's present
 * bytes are copied, even if the source is replaced or deleted meanwhile. A copy to offset 0 creates a destination that
 * does not exist: like the source if all of it is copied, else uint8 of its kind. The call ends when the bytes are
 * written and the record is committed. Result: call->buffer, created, way, times. Errors: INVALID_ARGUMENT for ranges
 * out of bounds and for overlapping in_place ranges of one buffer; BUFFER_NOT_FOUND; BUFFER_BUSY; BUFFER_PARTIAL or
 * CONTENT_LOST of the source, or of a destination that keeps other bytes; what the checks say. */
void gb_buffer_write(struct gb_core *core, const struct gb_device_write_params *params, struct gb_buffer_call *call);

/* --- mirrored buffers --------------------------------------------------------------------------------------------- */

/* Makes one side current; copies only if it is stale (call->copied). A buffer without a write so far gets that side,
 * zeroed, and the head moves there. check->arg is released with the call; check may be
 * NULL. Result: call->buffer, copied, way, times. Errors: INVALID_ARGUMENT if the buffer is not mirrored. */
void gb_buffer_mirror_sync(struct gb_core *core, const struct gb_locator *at, bool to_host,
                           const struct gb_name *stream, const struct gb_buffer_check *check,
                           struct gb_buffer_call *call);

struct gb_mirror_reserve {
    bool host; /* else the device side */
    uint64_t bytes;
    struct gb_name stream; /* "" is "default" */
    unsigned wait_ms;      /* how long to wait for memory to become free */
};

/* Gives one side memory of at least so many bytes, ahead of an upload. Memory that is large enough stays. Other memory
 * is replaced: the bytes of a current side are copied, the rest is zeroed. Head and generation stay. check as above.
 * Result: call->buffer. Errors: SEALED, MAPPED, ADOPTED, BUFFER_PARTIAL, CONTENT_LOST, BUFFER_BUSY; INVALID_ARGUMENT
 * if the buffer is not mirrored; QUOTA_EXCEEDED, OUT_OF_MEMORY. */
void gb_buffer_mirror_reserve(struct gb_core *core, const struct gb_locator *at, const struct gb_mirror_reserve *what,
                              const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* Frees one side or both. If both are freed, head becomes uninitialized and the buffer reads as zeros. Result:
 * call->buffer. Errors: BUFFER_SIDE_CURRENT if the only current side would be freed alone. */
void gb_buffer_mirror_release(struct gb_core *core, const struct gb_locator *at, bool host, bool device,
                              const struct gb_buffer_check *check, struct gb_buffer_call *call);

#endif
