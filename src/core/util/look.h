/* Watching events from a thread that works in turns (gb_core_begin_turn): for a time the thread itself looks whether
 * they are done, which spares it and the backend's thread a wake each. A copy of a mebibyte takes less than a wake. */
#ifndef GB_CORE_UTIL_LOOK_H
#define GB_CORE_UTIL_LOOK_H

#include <stdbool.h>

#include "backend/backend.h"

/* The turn of the calling thread begins. */
void gb_look_begin(void);

/* Looks at the events, and runs what waits for those that are done. Returns true while there are others to be looked
 * at; the thread must not sleep then, and its turn goes on. Otherwise the turn has ended. */
bool gb_look_end(void);

/* As gb_watch; in a turn, fn may run on the calling thread, in gb_look_end. */
int gb_look_watch(struct gb_backend *backend, struct gb_event *event, gb_watch_fn *fn, void *arg, struct gb_error *err);

#endif
