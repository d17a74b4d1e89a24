/* The files that the database was opened from, and whether they still are the ones of their names. SQLite writes to the
 * files that it has open, whatever has become of their names: what was renamed, removed or replaced meanwhile takes
 * every change, and all are lost at a restart. Internal to the store; belongs to the thread that has the
 * database. */
#ifndef GB_STORE_PLACE_H
#define GB_STORE_PLACE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

#define GB_PLACE_FILES 3 /* the database, its log, the log's index */

struct gb_place {
    const char *path; /* borrowed */
    int lock_fd;      /* of gb_lock_take; -1 */
    struct {
        bool known;
        dev_t device;
        ino_t inode;
    } files[GB_PLACE_FILES];
};

/* The database of path was opened and written to just now. Returns 0, or -1 with INTERNAL. */
int gb_place_note(struct gb_place *place, struct gb_error *err);

/* 0; -1 with STORE_UNAVAILABLE and what has happened. A lock file that was removed is made again, so that no other
 * daemon takes the database. */
int gb_place_check(struct gb_place *place, struct gb_error *err);

#endif
