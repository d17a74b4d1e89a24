/* Closes descriptors that came from clients, on a thread of its own: such a close may block for as long as the client
 * likes. A socket with SO_LINGER waits for its linger time, a file of a FUSE file system for its server. The thread is
 * never joined. */
#ifndef GB_BASE_CLOSER_H
#define GB_BASE_CLOSER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct gb_closer;

/* Creates a closer with room for max descriptors, and starts its thread. Returns 0, or -1 with INTERNAL. */
int gb_closer_new(size_t max, struct gb_closer **ret, struct gb_error *err);

/* Leaves what is queued to the thread, which frees the closer at the end; does not wait for it. All reserved room must
 * have been used or given back. NULL is accepted. */
void gb_closer_free(struct gb_closer *closer);

/* Reserves room for count descriptors, before they are received. [any thread, never blocks] gb_closer_put uses it up,
 * gb_closer_give_back returns it. False: none now. */
bool gb_closer_reserve(struct gb_closer *closer, size_t count);
void gb_closer_give_back(struct gb_closer *closer, size_t count);

/* Takes ownership of fd, which uses up one reserved place. [any thread, never blocks] */
void gb_closer_put(struct gb_closer *closer, int fd);

#endif
