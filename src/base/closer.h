/* Closes descriptors that strangers handed over. A close may take as long as they like: of a socket with SO_LINGER its linger
 * time, of a file whose file system is a process of theirs for ever. So it is left to a thread that nobody waits for. */
#ifndef GB_BASE_CLOSER_H
#define GB_BASE_CLOSER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct gb_closer;

/* max: descriptors that it has room for. Starts the thread. INTERNAL. */
int gb_closer_new(size_t max, struct gb_closer **ret, struct gb_error *err);

/* What is left is closed by the thread, which a close that takes long keeps from ending: that is not waited for. Nobody may
 * hold room any more. NULL is accepted. */
void gb_closer_free(struct gb_closer *closer);

/* [any thread, never blocks] Room for so many, before they are taken from a stranger; false: there is none now. What was
 * asked for is used up by gb_closer_put, or given back. */
bool gb_closer_reserve(struct gb_closer *closer, size_t count);
void gb_closer_give_back(struct gb_closer *closer, size_t count);

/* [any thread, never blocks] fd is the closer's, and so is the room that was reserved for it. */
void gb_closer_put(struct gb_closer *closer, int fd);

#endif
