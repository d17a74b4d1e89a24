#include "store/storage.h"

#include <stdio.h>

#include "base/clock.h"
#include "store/db.h"
#include "store/history.h"
#include "store/migrate.h"

static int tune(sqlite3 *db, bool sync_full, struct gb_error *err) {
    return gb_db_exec(db,
                      sync_full
                          ? "PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864; PRAGMA cache_size=-16384"
                          : "PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=67108864;"
                            "PRAGMA cache_size=-16384",
                      err);
}

static int bring_up_to_date(sqlite3 *db, const char *path, struct gb_error *err) {
    if (gb_migrate(db, path, err) < 0 || gb_migrate_counters(db, err) < 0 || gb_history_migrate(db, err) < 0)
        return -1;
    return gb_db_check_numbers(db, path, err);
}

/* Synced: if it went with the power, the run before, which had ended in order, would be taken for the last one. */
static int note_start(sqlite3 *db, bool sync_full, struct gb_error *err) {
    if (gb_db_exec(db, "PRAGMA synchronous=FULL", err) < 0 || gb_history_started(db, gb_wall_us(), err) < 0)
        return -1;
    return sync_full ? 0 : gb_db_exec(db, "PRAGMA synchronous=NORMAL", err);
}

/* The start is written last: a file that took it takes changes. */
int gb_storage_open_file(const struct gb_store_config *config, bool check, sqlite3 **ret, struct gb_error *err) {
    sqlite3 *db = NULL;

    if (gb_db_open(config->path, &db, err) < 0)
        return -1;
    if ((check && gb_db_verify(db, config->path, err) < 0) || tune(db, config->sync_full, err) < 0 ||
        bring_up_to_date(db, config->path, err) < 0 || note_start(db, config->sync_full, err) < 0) {
        sqlite3_close(db);
        return -1;
    }
    *ret = db;
    return 0;
}

int gb_storage_open_copy(struct gb_storage *storage, sqlite3 **ret, struct gb_error *err) {
    sqlite3 *db = NULL;

    /* The name is known in this process alone. */
    snprintf(storage->copy, sizeof(storage->copy), "file:gpubufd-%p?mode=memory&cache=shared", (void *)storage);
    if (gb_db_connect(storage->copy, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, &db, err) < 0)
        return -1;
    if (gb_db_copy(storage->file, db, err) < 0 || bring_up_to_date(db, storage->file, err) < 0) {
        sqlite3_close(db);
        return -1;
    }
    *ret = db;
    return 0;
}

int gb_storage_connect(const char *where, sqlite3 **ret, struct gb_error *err) {
    return gb_db_connect(where, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, ret, err);
}

const char *gb_storage_where(const struct gb_storage *storage) {
    return storage->copy[0] ? storage->copy : storage->file;
}
