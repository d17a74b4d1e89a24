/* Disk to memory. */
#ifndef GB_CORE_DURABLE_LOAD_H
#define GB_CORE_DURABLE_LOAD_H

#include "core/buffer/buffer.h"

/* core->want. */
int gb_durable_want(struct gb_session *session, struct gb_buffer *buffer, struct gb_error *err);

/* Loads of many buffers have a number, which their buffers get and lose again (gb_buffer.sweep): none of them leaves
 * memory to make room for another one. */
uint64_t gb_sweep_number(struct gb_core *core);

/* Ends the loads. Their errors, such as that all did not fit together, are not kept for later requests. */
void gb_sweep_leave_locked(struct gb_buffer *buffer);

/* gb_buffer_load in a session that the caller holds, whatever its name is. */
int gb_buffer_load_in(struct gb_session *session, const struct gb_name *name, struct gb_buffer_rec *ret,
                      struct gb_error *err);

#endif
