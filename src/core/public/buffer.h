/* Buffers: making, looking, changing, deleting. Their bytes: upload.h, download.h. Comes with core.h. */
#ifndef GB_CORE_PUBLIC_BUFFER_H
#define GB_CORE_PUBLIC_BUFFER_H

#include "core/public/types.h"

struct gb_call;
struct gb_core;

/* Zeroed memory under a new name. BUFFER_EXISTS, QUOTA_EXCEEDED, OUT_OF_MEMORY, LIMIT_REACHED, UNSUPPORTED kind.
 * bytes may be 0. wait_ms: how long to wait for memory to become free. Result: call->buffer. */
void gb_buffer_create(struct gb_core *core, const struct gb_buffer_params *params, unsigned wait_ms,
                      struct gb_buffer_call *call);
/* [now] *ret holds a reference: gb_buffer_rec_done(). */
int gb_buffer_get(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                  struct gb_buffer_rec *ret, struct gb_error *err);
/* Labels; dtype and shape when they describe the same number of bytes (SHAPE_MISMATCH otherwise). */
void gb_buffer_patch(struct gb_core *core, const struct gb_buffer_params *params, const struct gb_buffer_check *check,
                     struct gb_buffer_call *call);
/* Readers of the bytes finish undisturbed. */
void gb_buffer_delete(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                      const struct gb_buffer_check *check, struct gb_buffer_call *call);
/* [now] The same of a session that is held. */
int gb_buffer_get_in(struct gb_session *session, const struct gb_name *name, struct gb_buffer_rec *ret,
                     struct gb_error *err);
/* [now] As gb_session_list. */
int gb_buffer_list(struct gb_core *core, const struct gb_name *session, int64_t after_id, unsigned limit,
                   int (*visit)(void *, const struct gb_buffer_rec *, struct gb_error *), void *arg, bool *ret_more,
                   struct gb_error *err);

/* The content never changes again: later writes, and leases for writing, are refused with SEALED. Deleting is
 * permitted, and so are labels, and another shape of the same bytes. check as gb_buffer_patch. MAPPED while a lease for
 * writing lives; BUFFER_BUSY while it is written in place; BUFFER_PARTIAL, CONTENT_LOST, ESCAPED. Twice is once.
 * Result: call->buffer. */
void gb_buffer_seal(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                    const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* As gb_buffer_delete, but mapped bytes do not stand in the way: the buffer is gone when the call ends, its memory is
 * freed when the last lease ends. Result: call->buffer, and call->held_bytes: how much of it is still mapped. */
void gb_buffer_delete_when_unmapped(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                                    const struct gb_buffer_check *check, struct gb_buffer_call *call);

/* Of a mirrored buffer both sides in one: the device address of the one, the host address of the other. A buffer
 * without memory has type UNREGISTERED and no address. CONTENT_LOST. Result: call->buffer, call->attr. */
void gb_buffer_attributes(struct gb_core *core, const struct gb_name *session, const struct gb_name *name,
                          struct gb_attributes_call *call);

#endif
