/* Memory to disk, and the changes that store buffers that are behind. */
#ifndef GB_CORE_DURABLE_PERSIST_H
#define GB_CORE_DURABLE_PERSIST_H

#include "core/buffer/buffer.h"
#include "core/durable/stored.h"
#include "core/runtime/runtime.h"

/* core->persist. */
gb_persist_fn gb_durable_persist;

/* Once a second: stores buffers that have been behind for the lag, and probes a disk that failed. [never blocks, except
 * for the probe] */
void gb_durable_tick(struct gb_core *core);

/* [blocks] At the end of the process, while nothing else changes: stores all that is behind. */
void gb_durable_flush(struct gb_core *core);

/* Buffers with durability "behind": their latest bytes are stored within the lag. */

struct gb_behind;

/* NULL when memory is exhausted. gb_behind_free accepts NULL. */
struct gb_behind *gb_behind_new(struct gb_core *core);
void gb_behind_free(struct gb_behind *behind);

#endif
