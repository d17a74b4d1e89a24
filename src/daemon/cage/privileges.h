/* What the kernel would let the daemon do beyond its user's rights, and whether others may read its memory. All of
 * this is of the calling thread and of those that it starts later. */
#ifndef GB_DAEMON_CAGE_PRIVILEGES_H
#define GB_DAEMON_CAGE_PRIVILEGES_H

#include "base/error.h"

/* No program that this process starts gets more rights than it has. Returns 0 or -1. */
int gb_privileges_none_new(struct gb_error *err);

/* Gives up all capabilities, those of the bounding and the ambient set included, for good. A user without any keeps a
 * bounding set, of which no_new_privs leaves nothing. What root may lock in memory stays what it was. Returns 0; 1: a
 * sandbox forbids the calls, and something may be left; -1. */
int gb_privileges_drop(struct gb_error *err);

/* No core dump, and no process of the same user may attach or read the memory. */
void gb_privileges_hide(void);

#endif
