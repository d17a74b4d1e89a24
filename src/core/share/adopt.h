/* Adopted memory: buffers over memory that another process owns. Included by core.h.
 *
 * The owner is a holder (lease.h), and its connection is the owner's lease. When it ends the buffer is lost, and the
 * daemon's mapping goes once nothing uses it. The owner's memory is never freed by the daemon, and is written only in
 * place: an upload, a copy or a fill of an adopted buffer is always in place. An operation that needs fresh memory
 * (parts, groups) is refused with ADOPTED.
 *
 * Adopted memory has no checksum and cannot be sealed, because its owner may write at any time; nor can others map it.
 * It counts as a buffer, but not among the session's bytes.
 *
 * One side of a mirrored buffer may be adopted memory. When its owner ends, the buffer is lost only if the other side
 * is not current. */
#ifndef GB_CORE_SHARE_ADOPT_H
#define GB_CORE_SHARE_ADOPT_H

#include "core/public/call.h"
#include "model/device.h"

struct gb_holder;

#define GB_ADOPTED_MAX 16384 /* in all */
#define GB_ADOPTED_BYTES_MAX (64ull << 30)
#define GB_HOLDER_ADOPTED_MAX 1024 /* of one holder */

/* offset and the handle's bytes are multiples of it: the widest fill. */
#define GB_ADOPT_ALIGN 8

struct gb_adopt_params {
    struct gb_name session;
    struct gb_name name;
    struct gb_holder *holder; /* borrowed: it has not ended when the call is made */
    struct gb_import import;  /* fd: the call's from then on; closed by config.closer, where room for it is reserved */
    enum gb_dtype dtype;
    struct gb_shape shape; /* of import.bytes bytes */
    bool has_side;         /* the memory is one side of a mirrored buffer */
    enum gb_side side;
    bool has_device;              /* else import.device is that of the mirrored buffer, if it exists */
    struct gb_buffer_check check; /* of the buffer that has the name; check.arg is the call's */
};

/* Everything that can be refused without a descriptor: 0, or -1 as gb_buffer_adopt would fail. [now] */
int gb_adopt_check(struct gb_core *core, const struct gb_adopt_params *params, struct gb_error *err);

/* Makes a buffer over that memory, under a new name or that of a lost buffer. With a side, the buffer is mirrored and
 * may exist. The memory is then that side, as after an upload of all of it; the other side stays the daemon's.
 * BUFFER_EXISTS, BUFFER_BUSY, SEALED, CANNOT_ADOPT, UNSUPPORTED, LIMIT_REACHED, PINNED_LIMIT, QUOTA_EXCEEDED (of
 * buffers), CANCELLED if the holder ends, the check's. Result: call->buffer, created. */
void gb_buffer_adopt(struct gb_core *core, const struct gb_adopt_params *params, struct gb_buffer_call *call);

#endif
