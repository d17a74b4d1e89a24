/* Buffers: create, read, change and delete their records. upload.h and download.h move their bytes. Included by
 * core.h. */
#ifndef GB_CORE_PUBLIC_BUFFER_H
#define GB_CORE_PUBLIC_BUFFER_H

#include "core/public/types.h"

struct gb_call;
struct gb_core;

/* Creates a buffer of zeroed memory under a new name. params->bytes may be 0. wait_ms: how long to wait for memory to
 * become free. Result: call->buffer. Errors: BUFFER_EXISTS, QUOTA_EXCEEDED, OUT_OF_MEMORY, LIMIT_REACHED; UNSUPPORTED
 * for the kind. */
void gb_buffer_create(struct gb_core *core, const struct gb_buffer_params *params, unsigned wait_ms,
                      struct gb_buffer_call *call);
/* [now] Reads a buffer's record. *ret holds a reference, which gb_buffer_rec_done() drops. */
int gb_buffer_get(struct gb_core *core, const struct gb_locator *at, struct gb_buffer_rec *ret, struct gb_error *err);
/* [now] Reads the times of the last large transfer of the bytes that the buffer has now. See struct
 * gb_last_transfer. */
int gb_buffer_last_transfer(struct gb_core *core, const struct gb_locator *at, struct gb_last_transfer *ret,
                            struct gb_error *err);
/* Changes labels, dtype and shape. Result: call->buffer. Errors: SHAPE_MISMATCH if dtype and shape describe another
 * number of bytes. */
void gb_buffer_patch(struct gb_core *core, const struct gb_buffer_params *params, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call);
/* Deletes a buffer. Reads of its bytes that have begun finish undisturbed. Result: call->buffer. */
void gb_buffer_delete(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                      struct gb_buffer_call *call);
/* [now] As gb_buffer_get, in a session that the caller holds. */
int gb_buffer_get_in(struct gb_session *session, const struct gb_name *name, struct gb_buffer_rec *ret,
                     struct gb_error *err);
/* [now] As gb_session_list. */
int gb_buffer_list(struct gb_core *core, const struct gb_name *session, struct gb_page *page,
                   int (*visit)(void *, const struct gb_buffer_rec *, struct gb_error *), void *arg,
                   struct gb_error *err);

/* Makes the content immutable: later writes and leases for writing are refused with SEALED. Deleting is still
 * permitted, and so are new labels and another shape of the same bytes. check as for gb_buffer_patch. A sealed buffer
 * stays sealed, without an error. Result: call->buffer. Errors: MAPPED while there is a lease for writing; BUFFER_BUSY
 * during a write in place; BUFFER_PARTIAL, CONTENT_LOST, ESCAPED. */
void gb_buffer_seal(struct gb_core *core, const struct gb_locator *at, const struct gb_buffer_check *check,
                    struct gb_buffer_call *call);

/* As gb_buffer_delete, but mapped bytes do not prevent it. The buffer is deleted when the call ends; its memory is
 * freed when the last lease ends. Result: call->buffer, and call->held_bytes: bytes that are still mapped. */
void gb_buffer_delete_when_unmapped(struct gb_core *core, const struct gb_locator *at,
                                    const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* Reads the pointer attributes of a buffer's memory. For a mirrored buffer the result has the device address of one
 * side and the host address of the other. A buffer without memory has type UNREGISTERED and no address. Result:
 * call->buffer, call->attr. Errors: CONTENT_LOST. */
void gb_buffer_attributes(struct gb_core *core, const struct gb_locator *at, struct gb_attributes_call *call);

#endif
