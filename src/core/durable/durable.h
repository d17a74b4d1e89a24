/* What durable buffers need from transfers: memory to disk (persist.c), disk to memory (load.c), the changes that store
 * what is behind (store.c), and memory that is given back on request (evict.c, sweep.c) or for others (victims.c,
 * room.c). The core's hooks persist, want, make_room and spare lead here. */
#ifndef GB_CORE_DURABLE_DURABLE_H
#define GB_CORE_DURABLE_DURABLE_H

#include "core/buffer/buffer.h"
#include "core/stored/persist.h"

/* core->persist. */
gb_persist_fn gb_durable_persist;

/* core->want. */
int gb_durable_want(struct gb_session *session, struct gb_buffer *buffer, struct gb_error *err);

/* Loads of many buffers have a number, which their buffers get and lose again (gb_buffer.sweep): none of them leaves
 * memory to make room for another one. */
uint64_t gb_sweep_number(struct gb_core *core);
/* The loads are over. A failure among them, as that all did not fit together, is not told to requests that come later.
 */
void gb_sweep_leave_locked(struct gb_buffer *buffer);

/* gb_buffer_store, gb_buffer_evict_to and gb_buffer_load in a session that the caller holds, whatever its name is. */
void gb_buffer_store_in(struct gb_session *session, const struct gb_name *name, struct gb_buffer_call *call);
void gb_buffer_evict_in(struct gb_session *session, const struct gb_name *name, const struct gb_buffer_check *check,
                        enum gb_spill to, struct gb_buffer_call *call);
int gb_buffer_load_in(struct gb_session *session, const struct gb_name *name, struct gb_buffer_rec *ret,
                      struct gb_error *err);

/* core->make_room and core->spare. */
void gb_durable_make_room(struct gb_core *core, struct gb_room_ask *ask);
uint64_t gb_durable_spare(struct gb_session *session);

/* Once a second: makes room where memory is used beyond the high-water mark. [never blocks] */
void gb_durable_keep_room(struct gb_core *core);

/* Once a second: stores what has been behind for the lag, and looks after a disk that was not well. [never blocks, but
 * for the probe of a disk that is not well] */
void gb_durable_tick(struct gb_core *core);

/* [blocks] At the end of the process, while nothing else changes: stores all that is behind. */
void gb_durable_flush(struct gb_core *core);

#endif
