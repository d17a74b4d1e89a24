/* Buffers with durability "behind": their latest bytes are stored within the lag. */
#ifndef GB_CORE_DURABLE_BEHIND_H
#define GB_CORE_DURABLE_BEHIND_H

#include "core/runtime/runtime.h"

struct gb_behind;

/* NULL when memory is exhausted. gb_behind_free accepts NULL. */
struct gb_behind *gb_behind_new(struct gb_core *core);
void gb_behind_free(struct gb_behind *behind);

/* Once a second: begins to store all that has been behind for the lag, unless it is still at that. [never blocks] */
void gb_behind_tick(struct gb_core *core);

#endif
