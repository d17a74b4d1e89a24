/* The schema, as numbered steps. Internal to the store. */
#ifndef GB_STORE_MIGRATE_H
#define GB_STORE_MIGRATE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "base/error.h"

/* Whether the database is older than this program. A newer one is refused with INTERNAL. */
int gb_migrate_pending(sqlite3 *db, const char *path, bool *ret_pending, struct gb_error *err);

/* Brings the database to the newest schema, each step in a transaction of its own. Only under the lock file. */
int gb_migrate(sqlite3 *db, const char *path, struct gb_error *err);

/* Adds the columns of counters.def that the database lacks, so that a new counter needs no step of its own. */
int gb_migrate_counters(sqlite3 *db, struct gb_error *err);

#endif
