/* The scrubber: one thread, which exists while a pass runs. */
#ifndef GB_CORE_SCRUB_SCRUB_H
#define GB_CORE_SCRUB_SCRUB_H

#include "core/public/scrub.h"
#include "core/runtime/runtime.h"

struct gb_scrubber;
struct gb_session;
struct gb_stored;

/* NULL when memory is exhausted. gb_scrubber_free accepts NULL. */
struct gb_scrubber *gb_scrubber_new(void);
void gb_scrubber_free(struct gb_scrubber *scrubber);

/* Once a second: begins a pass if the latest ended --scrub-interval ago and there are files. [never blocks] */
void gb_scrub_tick(struct gb_core *core);

/* The daemon stops: ends the pass at its next block, and permits no further ones. [blocks until the thread has
 * ended] */
void gb_scrub_stop(struct gb_core *core);

/* heal.c: writes the stored bytes of the buffer again, from memory, if it still has them there: a new file in the same
 * generation. The damaged one goes to DIR/damaged. call->copied: it was done. Takes its own references. Errors:
 * CONTENT_LOST if memory has not these bytes; those of gb_buffer_store. */
void gb_scrub_heal(struct gb_session *session, const struct gb_name *buffer, struct gb_stored *stored,
                   struct gb_buffer_call *call);

#endif
