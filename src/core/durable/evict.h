/* Memory that is given back on request. */
#ifndef GB_CORE_DURABLE_EVICT_H
#define GB_CORE_DURABLE_EVICT_H

#include "core/buffer/buffer.h"

/* gb_buffer_evict_to in a session that the caller holds, whatever its name is. */
void gb_buffer_evict_in(struct gb_session *session, const struct gb_name *name, const struct gb_buffer_check *check,
                        enum gb_spill to, struct gb_buffer_call *call);

#endif
