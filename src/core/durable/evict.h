/* Memory that is given back, on request and for others; see public/durable.h for evictions that clients ask for. */
#ifndef GB_CORE_DURABLE_EVICT_H
#define GB_CORE_DURABLE_EVICT_H

#include "core/buffer/buffer.h"

/* core->make_room and core->spare. */
void gb_durable_make_room(struct gb_core *core, struct gb_room_ask *ask);

uint64_t gb_durable_spare(struct gb_session *session);

/* Once a second: makes room if memory is used beyond the high-water mark. [never blocks] */
void gb_durable_keep_room(struct gb_core *core);

#endif
