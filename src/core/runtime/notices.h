/* Posting notices of what happened, inside the core. A notice is posted when its fact is true and visible, not before.
 * [any thread, never blocks; a leaf: whatever locks are held] */
#ifndef GB_CORE_RUNTIME_NOTICES_H
#define GB_CORE_RUNTIME_NOTICES_H

#include "model/history.h"

struct gb_core;
struct gb_notice_limiters;

/* NULL when memory is exhausted. gb_notice_limiters_free accepts NULL. */
struct gb_notice_limiters *gb_notice_limiters_new(void);
void gb_notice_limiters_free(struct gb_notice_limiters *limiters);

/* A notice with its type and time; its device is -1. */
struct gb_notice gb_notice_new(enum gb_notice_type type);
void gb_notice_post(struct gb_core *core, const struct gb_notice *notice);

/* The same for what may happen many times a second: the first of its type and session is posted at once, then one a
 * second with the number of those that came meanwhile. */
void gb_notice_post_limited(struct gb_core *core, const struct gb_notice *notice);

/* Once a second: posts what the limiters have counted. */
void gb_notices_tick(struct gb_core *core);

#endif
