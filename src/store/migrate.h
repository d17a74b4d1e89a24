/* The schema, as numbered steps. Internal to the store. */
#ifndef GB_STORE_MIGRATE_H
#define GB_STORE_MIGRATE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "base/error.h"
#include "store/store.h"

/* Whether the database is older than this program. A newer one is refused with INTERNAL. */
int gb_migrate_pending(sqlite3 *db, const char *path, bool *ret_pending, struct gb_error *err);

/* Brings the database to the newest schema: an empty one at once, an older one by steps, each in a transaction of its
 * own. Only under the lock file. */
int gb_migrate(sqlite3 *db, const char *path, struct gb_error *err);
/* The steps behind `version`. [gb_migrate, tests] */
int gb_migrate_from(sqlite3 *db, int64_t version, struct gb_error *err);

/* Where the database is read: the file, or a copy in memory while the disk has no room to open the file. */
struct gb_storage {
    char *file;
    char copy[64]; /* "": the file itself is open */
};

/* Opens the file for changes, with the newest schema. check: searches for damage first. STORAGE_FULL where the disk has
 * no room. */
int gb_storage_open_file(const struct gb_store_config *config, bool check, sqlite3 **ret, struct gb_error *err);

/* A copy in memory with the newest schema, of what the file has; it lasts as long as one connection to it is open. */
int gb_storage_open_copy(struct gb_storage *storage, sqlite3 **ret, struct gb_error *err);

/* What a connection that only reads is opened with; the one for changes is open. */
const char *gb_storage_where(const struct gb_storage *storage);

/* token.c: of the copy, until file can be opened. */
int gb_token_store_read(const char *copy, const char *file, struct gb_token_store **ret, struct gb_error *err);

#endif
