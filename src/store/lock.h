/* The lock file beside the database: one daemon at a time. Internal to the store. */
#ifndef GB_STORE_LOCK_H
#define GB_STORE_LOCK_H

#include "base/error.h"

/* Takes PATH.lock. Returns 0 and a descriptor for gb_lock_drop, or -1 with INTERNAL naming the process that holds it.
 * Never blocks. */
int gb_lock_take(const char *path, int *ret_fd, struct gb_error *err);

/* Accepts -1. The file stays: removing it would let two daemons lock two files of one name. */
void gb_lock_drop(int fd);

#endif
