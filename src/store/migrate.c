/* The database is opened, checked and brought to the newest schema; a copy of it in memory while the disk has no room
 * for that. */
#include "store/migrate.h"

#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "store/db.h"
#include "store/history.h"

/* --- migrations --------------------------------------------------------------------------------------------------- */

/* Step n takes a database from user_version n to n + 1. A step that was released is never changed.
 *
 * AUTOINCREMENT keeps the highest id ever committed in sqlite_sequence, so that ids are not reused after deletions.
 * Words instead of numbers for types and states: people read this database with the sqlite3 shell. */
static const char *const steps[] = {
    "CREATE TABLE sessions("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " name TEXT NOT NULL UNIQUE,"
    " quota_bytes INTEGER," /* NULL in a quota: unlimited */
    " quota_buffers INTEGER,"
    " quota_pinned_bytes INTEGER,"
    " idle_ttl_s INTEGER,"
    " labels TEXT NOT NULL,"
    " version INTEGER NOT NULL,"
    " created_at_us INTEGER NOT NULL,"
    " updated_at_us INTEGER NOT NULL"
    ") STRICT;"
    "CREATE TABLE buffers("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL,"
    " bytes INTEGER,"
    " dtype TEXT NOT NULL,"
    " shape TEXT NOT NULL,"
    " kind TEXT NOT NULL,"
    " device INTEGER NOT NULL,"
    " pool TEXT NOT NULL,"
    " stream TEXT NOT NULL,"
    " state TEXT NOT NULL,"
    " generation INTEGER NOT NULL,"
    " version INTEGER NOT NULL,"
    " crc32c INTEGER," /* NULL: not known */
    " labels TEXT NOT NULL,"
    " created_at_us INTEGER NOT NULL,"
    " updated_at_us INTEGER NOT NULL,"
    " UNIQUE(session_id, name)" /* serves the cascade too */
    ") STRICT;"
    "CREATE TABLE counters(id INTEGER PRIMARY KEY CHECK(id = 1)) STRICT;"
    "CREATE TABLE pool_samples("
    " id INTEGER PRIMARY KEY,"
    " at_us INTEGER NOT NULL,"
    " device INTEGER NOT NULL,"
    " pool TEXT NOT NULL,"
    " used_bytes INTEGER,"
    " used_peak_bytes INTEGER,"
    " reserved_bytes INTEGER,"
    " reserved_peak_bytes INTEGER"
    ") STRICT;"
    "CREATE TABLE tokens("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " name TEXT NOT NULL UNIQUE,"
    " sha256_hex TEXT NOT NULL,"
    " scope TEXT NOT NULL,"
    " session TEXT NOT NULL,"
    " created_at_us INTEGER NOT NULL"
    ") STRICT;"
    /* Raised by every change of the tokens: data_version alone moves with every commit of the writer. */
    "CREATE TABLE token_epoch(id INTEGER PRIMARY KEY CHECK(id = 1), value INTEGER NOT NULL) STRICT;"
    "INSERT INTO token_epoch VALUES(1, 0);",

    "CREATE TABLE pools("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL,"
    " device INTEGER NOT NULL,"
    " max_bytes INTEGER NOT NULL,"      /* 0: the whole device */
    " release_threshold_bytes INTEGER," /* NULL: keep everything */
    " follow_event_dependencies INTEGER NOT NULL,"
    " allow_opportunistic INTEGER NOT NULL,"
    " allow_internal_dependencies INTEGER NOT NULL,"
    " exportable INTEGER NOT NULL,"
    " version INTEGER NOT NULL,"
    " created_at_us INTEGER NOT NULL,"
    " updated_at_us INTEGER NOT NULL,"
    " UNIQUE(session_id, name)"
    ") STRICT;"
    "ALTER TABLE buffers ADD COLUMN mirrored INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE buffers ADD COLUMN head TEXT NOT NULL DEFAULT 'uninitialized';",

    "CREATE TABLE answers("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " key TEXT NOT NULL UNIQUE,"
    " fingerprint TEXT NOT NULL,"
    " expires_at_us INTEGER NOT NULL,"
    " status INTEGER NOT NULL," /* 0: carried out, and the answer is not known */
    " headers TEXT NOT NULL,"
    " body BLOB"
    ") STRICT;"
    "CREATE INDEX answers_by_expiry ON answers(expires_at_us);",

    "ALTER TABLE buffers ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0;",

    "CREATE TABLE feed("
    " id INTEGER PRIMARY KEY,"
    " at_us INTEGER NOT NULL,"
    " type TEXT NOT NULL,"
    " session TEXT," /* NULL in these: does not apply */
    " pool TEXT,"
    " buffer TEXT,"
    " device INTEGER,"
    " bytes INTEGER,"
    " count INTEGER,"
    " generation INTEGER,"
    " lease INTEGER,"
    " detail TEXT"
    ") STRICT;"
    "CREATE TABLE feed_state(id INTEGER PRIMARY KEY CHECK(id = 1), dropped_through INTEGER NOT NULL) STRICT;"
    "INSERT INTO feed_state VALUES(1, 0);",

    /* The columns of numbers follow model/history.def (gb_history_migrate). The series of a device's own pool is found
     * by the device's UUID, which old samples lack: "old N" until the first new one (history.c). */
    "CREATE TABLE history_series("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " scope TEXT NOT NULL,"
    " object_id INTEGER NOT NULL,"
    " uuid TEXT NOT NULL,"
    " session TEXT NOT NULL,"
    " name TEXT NOT NULL,"
    " device INTEGER NOT NULL,"
    " first_at_us INTEGER NOT NULL,"
    " last_at_us INTEGER NOT NULL,"
    " minutes_until_us INTEGER NOT NULL," /* what is before is rolled up */
    " hours_until_us INTEGER NOT NULL,"
    " visited_us INTEGER NOT NULL,"
    " sample_rows INTEGER NOT NULL,"
    " minute_rows INTEGER NOT NULL,"
    " hour_rows INTEGER NOT NULL,"
    " UNIQUE(scope, object_id, uuid)"
    ") STRICT;"
    "CREATE TABLE history_samples("
    " series INTEGER NOT NULL,"
    " at_us INTEGER NOT NULL,"
    " used_bytes INTEGER,"
    " reserved_bytes INTEGER,"
    " PRIMARY KEY(series, at_us)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE history_minutes("
    " series INTEGER NOT NULL,"
    " at_us INTEGER NOT NULL,"
    " samples INTEGER NOT NULL,"
    " PRIMARY KEY(series, at_us)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE history_hours("
    " series INTEGER NOT NULL,"
    " at_us INTEGER NOT NULL,"
    " samples INTEGER NOT NULL,"
    " PRIMARY KEY(series, at_us)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE history_starts("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " at_us INTEGER NOT NULL,"
    " ended_at_us INTEGER," /* where it did not say: last seen */
    " how_it_ended TEXT NOT NULL"
    ") STRICT;"
    "INSERT INTO history_series(scope, object_id, uuid, session, name, device, first_at_us, last_at_us, "
    "minutes_until_us,"
    " hours_until_us, visited_us, sample_rows, minute_rows, hour_rows) SELECT 'pool', 0, 'old ' || device, '', pool,"
    " device, min(at_us), max(at_us), 0, 0, 0, count(*), 0, 0"
    " FROM pool_samples GROUP BY device;"
    "INSERT OR REPLACE INTO history_samples SELECT s.id, p.at_us, p.used_bytes, p.reserved_bytes"
    " FROM pool_samples AS p JOIN history_series AS s ON s.device = p.device;"
    "DROP TABLE pool_samples;",

    /* The lifetime counters as of the last sample: what is saved between two samples is not in the history yet. */
    "CREATE TABLE history_counted(id INTEGER PRIMARY KEY CHECK(id = 1)) STRICT;"
    /* Of a session's pool, whose series is not found by it. */
    "ALTER TABLE history_series ADD COLUMN device_uuid TEXT NOT NULL DEFAULT '';",

    "ALTER TABLE sessions ADD COLUMN pool_id INTEGER NOT NULL DEFAULT 0;", /* 0: the device's own */

    "ALTER TABLE feed ADD COLUMN head TEXT;", /* NULL: not of a mirrored buffer */

    "ALTER TABLE tokens ADD COLUMN prefix TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE tokens ADD COLUMN subject TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE tokens ADD COLUMN expires_at_us INTEGER NOT NULL DEFAULT 0;" /* 0: never */
    "ALTER TABLE tokens ADD COLUMN old_sha256_hex TEXT NOT NULL DEFAULT '';"  /* before the last rotation */
    "ALTER TABLE tokens ADD COLUMN old_until_us INTEGER NOT NULL DEFAULT 0;"
    "CREATE UNIQUE INDEX tokens_by_subject ON tokens(subject) WHERE subject <> '';"
    /* Apart: a use changes no token, and a token of a file has no other row. */
    "CREATE TABLE token_uses("
    " token_id INTEGER PRIMARY KEY,"
    " at_us INTEGER NOT NULL,"
    " address TEXT NOT NULL" /* '': a UNIX socket */
    ") STRICT;"
    "CREATE TRIGGER tokens_revoked AFTER DELETE ON tokens BEGIN"
    " DELETE FROM token_uses WHERE token_id = old.id; END;",
    /* NULL in all but the first three: does not apply. Status 0: the connection ended before the answer was out. */
    "CREATE TABLE audit("
    " id INTEGER PRIMARY KEY,"
    " at_us INTEGER NOT NULL,"
    " event TEXT NOT NULL,"
    " method TEXT,"
    " route TEXT,"
    " code TEXT,"
    " request_id TEXT,"
    " address TEXT,"
    " token TEXT,"
    " certificate TEXT,"
    " session TEXT,"
    " object TEXT,"
    " token_id INTEGER,"
    " status INTEGER,"
    " bytes INTEGER,"
    " count INTEGER"
    ") STRICT;",

    "ALTER TABLE buffers ADD COLUMN durability TEXT NOT NULL DEFAULT 'none';"
    "ALTER TABLE sessions ADD COLUMN durability TEXT NOT NULL DEFAULT 'none';"
    "CREATE TABLE stored("
    " buffer_id INTEGER PRIMARY KEY REFERENCES buffers(id) ON DELETE CASCADE,"
    " generation INTEGER NOT NULL,"
    " run INTEGER NOT NULL,"
    " file_generation INTEGER NOT NULL," /* with file_tag, the name of the file */
    " file_tag INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " dtype TEXT NOT NULL,"
    " shape TEXT NOT NULL,"
    " crc32c INTEGER NOT NULL,"
    " blocks BLOB NOT NULL," /* CRC32C of each MiB: four bytes each, little-endian */
    " data BLOB"             /* last, so that reading the others leaves it out; NULL: a file has the bytes */
    ") STRICT;"
    /* Which files of bytes belong to this database. */
    "CREATE TABLE identity(id INTEGER PRIMARY KEY CHECK(id = 1), uuid TEXT NOT NULL) STRICT;",

    "ALTER TABLE buffers ADD COLUMN spill TEXT NOT NULL DEFAULT 'never';"
    "ALTER TABLE buffers ADD COLUMN resident INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sessions ADD COLUMN spill TEXT NOT NULL DEFAULT 'never';"
    "ALTER TABLE sessions ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sessions ADD COLUMN quota_stored_bytes INTEGER;"
    "INSERT INTO identity VALUES(1, lower(hex(randomblob(16))));",

    "ALTER TABLE sessions ADD COLUMN fleet_epoch INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sessions ADD COLUMN fleet_claim TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE sessions ADD COLUMN on_partition TEXT NOT NULL DEFAULT 'serve';",

    "ALTER TABLE sessions ADD COLUMN aside_epoch INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE identity ADD COLUMN fleet TEXT NOT NULL DEFAULT '';",

    "ALTER TABLE sessions ADD COLUMN failover_after_s INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sessions ADD COLUMN replicas INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sessions ADD COLUMN holders TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE sessions ADD COLUMN tenant TEXT NOT NULL DEFAULT '';",

    /* The time that the daemon has seen pass, by the wall clock: the latest spans, numbered from 0. */
    "CREATE TABLE seen(id INTEGER PRIMARY KEY, from_us INTEGER NOT NULL, to_us INTEGER NOT NULL) STRICT;"
    "INSERT INTO seen SELECT row_number() OVER (ORDER BY id) - 1, at_us, ended_at_us FROM history_starts"
    " WHERE ended_at_us >= at_us ORDER BY id;",
    /* A current pool for each device. */
    "ALTER TABLE sessions ADD COLUMN current_pools TEXT NOT NULL DEFAULT '';"
    "UPDATE sessions SET current_pools = pool_id WHERE pool_id > 0;"
    "ALTER TABLE sessions DROP COLUMN pool_id;",

    "ALTER TABLE buffers ADD COLUMN link_id INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE buffers ADD COLUMN link_generation INTEGER NOT NULL DEFAULT 0;",
};

/* What all steps make of an empty database, at once: each ALTER TABLE reads the whole schema again, and all of them
 * took a fifth of a first start. tests/unit/store/test_open.c compares the two. */
static const char whole[] =
    "CREATE TABLE sessions("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " name TEXT NOT NULL UNIQUE,"
    " quota_bytes INTEGER," /* NULL in a quota: unlimited */
    " quota_buffers INTEGER,"
    " quota_pinned_bytes INTEGER,"
    " idle_ttl_s INTEGER,"
    " labels TEXT NOT NULL,"
    " version INTEGER NOT NULL,"
    " created_at_us INTEGER NOT NULL,"
    " updated_at_us INTEGER NOT NULL,"
    " durability TEXT NOT NULL DEFAULT 'none',"
    " spill TEXT NOT NULL DEFAULT 'never',"
    " priority INTEGER NOT NULL DEFAULT 0,"
    " quota_stored_bytes INTEGER,"
    " fleet_epoch INTEGER NOT NULL DEFAULT 0,"
    " fleet_claim TEXT NOT NULL DEFAULT '',"
    " on_partition TEXT NOT NULL DEFAULT 'serve',"
    " aside_epoch INTEGER NOT NULL DEFAULT 0,"
    " failover_after_s INTEGER NOT NULL DEFAULT 0,"
    " replicas INTEGER NOT NULL DEFAULT 0,"
    " holders TEXT NOT NULL DEFAULT '',"
    " tenant TEXT NOT NULL DEFAULT '',"
    " current_pools TEXT NOT NULL DEFAULT ''"
    ") STRICT;"
    "CREATE TABLE buffers("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL,"
    " bytes INTEGER,"
    " dtype TEXT NOT NULL,"
    " shape TEXT NOT NULL,"
    " kind TEXT NOT NULL,"
    " device INTEGER NOT NULL,"
    " pool TEXT NOT NULL,"
    " stream TEXT NOT NULL,"
    " state TEXT NOT NULL,"
    " generation INTEGER NOT NULL,"
    " version INTEGER NOT NULL,"
    " crc32c INTEGER," /* NULL: not known */
    " labels TEXT NOT NULL,"
    " created_at_us INTEGER NOT NULL,"
    " updated_at_us INTEGER NOT NULL,"
    " mirrored INTEGER NOT NULL DEFAULT 0,"
    " head TEXT NOT NULL DEFAULT 'uninitialized',"
    " sealed INTEGER NOT NULL DEFAULT 0,"
    " durability TEXT NOT NULL DEFAULT 'none',"
    " spill TEXT NOT NULL DEFAULT 'never',"
    " resident INTEGER NOT NULL DEFAULT 0,"
    " link_id INTEGER NOT NULL DEFAULT 0,"
    " link_generation INTEGER NOT NULL DEFAULT 0,"
    " UNIQUE(session_id, name)" /* serves the cascade too */
    ") STRICT;"
    "CREATE TABLE counters(id INTEGER PRIMARY KEY CHECK(id = 1)) STRICT;"
    "CREATE TABLE tokens("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " name TEXT NOT NULL UNIQUE,"
    " sha256_hex TEXT NOT NULL,"
    " scope TEXT NOT NULL,"
    " session TEXT NOT NULL,"
    " created_at_us INTEGER NOT NULL,"
    " prefix TEXT NOT NULL DEFAULT '',"
    " subject TEXT NOT NULL DEFAULT '',"
    " expires_at_us INTEGER NOT NULL DEFAULT 0," /* 0: never */
    " old_sha256_hex TEXT NOT NULL DEFAULT '',"  /* before the last rotation */
    " old_until_us INTEGER NOT NULL DEFAULT 0"
    ") STRICT;"
    "CREATE TABLE token_epoch(id INTEGER PRIMARY KEY CHECK(id = 1), value INTEGER NOT NULL) STRICT;"
    "CREATE TABLE pools("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " session_id INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL,"
    " device INTEGER NOT NULL,"
    " max_bytes INTEGER NOT NULL,"      /* 0: the whole device */
    " release_threshold_bytes INTEGER," /* NULL: keep everything */
    " follow_event_dependencies INTEGER NOT NULL,"
    " allow_opportunistic INTEGER NOT NULL,"
    " allow_internal_dependencies INTEGER NOT NULL,"
    " exportable INTEGER NOT NULL,"
    " version INTEGER NOT NULL,"
    " created_at_us INTEGER NOT NULL,"
    " updated_at_us INTEGER NOT NULL,"
    " UNIQUE(session_id, name)"
    ") STRICT;"
    "CREATE TABLE answers("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " key TEXT NOT NULL UNIQUE,"
    " fingerprint TEXT NOT NULL,"
    " expires_at_us INTEGER NOT NULL,"
    " status INTEGER NOT NULL," /* 0: carried out, and the answer is not known */
    " headers TEXT NOT NULL,"
    " body BLOB"
    ") STRICT;"
    "CREATE TABLE feed("
    " id INTEGER PRIMARY KEY,"
    " at_us INTEGER NOT NULL,"
    " type TEXT NOT NULL,"
    " session TEXT," /* NULL in these: does not apply */
    " pool TEXT,"
    " buffer TEXT,"
    " device INTEGER,"
    " bytes INTEGER,"
    " count INTEGER,"
    " generation INTEGER,"
    " lease INTEGER,"
    " detail TEXT,"
    " head TEXT" /* NULL: not of a mirrored buffer */
    ") STRICT;"
    "CREATE TABLE feed_state(id INTEGER PRIMARY KEY CHECK(id = 1), dropped_through INTEGER NOT NULL) STRICT;"
    "CREATE TABLE history_series("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " scope TEXT NOT NULL,"
    " object_id INTEGER NOT NULL,"
    " uuid TEXT NOT NULL,"
    " session TEXT NOT NULL,"
    " name TEXT NOT NULL,"
    " device INTEGER NOT NULL,"
    " first_at_us INTEGER NOT NULL,"
    " last_at_us INTEGER NOT NULL,"
    " minutes_until_us INTEGER NOT NULL," /* what is before is rolled up */
    " hours_until_us INTEGER NOT NULL,"
    " visited_us INTEGER NOT NULL,"
    " sample_rows INTEGER NOT NULL,"
    " minute_rows INTEGER NOT NULL,"
    " hour_rows INTEGER NOT NULL,"
    " device_uuid TEXT NOT NULL DEFAULT '',"
    " UNIQUE(scope, object_id, uuid)"
    ") STRICT;"
    "CREATE TABLE history_samples("
    " series INTEGER NOT NULL,"
    " at_us INTEGER NOT NULL,"
    " used_bytes INTEGER,"
    " reserved_bytes INTEGER,"
    " PRIMARY KEY(series, at_us)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE history_minutes("
    " series INTEGER NOT NULL,"
    " at_us INTEGER NOT NULL,"
    " samples INTEGER NOT NULL,"
    " PRIMARY KEY(series, at_us)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE history_hours("
    " series INTEGER NOT NULL,"
    " at_us INTEGER NOT NULL,"
    " samples INTEGER NOT NULL,"
    " PRIMARY KEY(series, at_us)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE history_starts("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " at_us INTEGER NOT NULL,"
    " ended_at_us INTEGER," /* where it did not say: last seen */
    " how_it_ended TEXT NOT NULL"
    ") STRICT;"
    "CREATE TABLE history_counted(id INTEGER PRIMARY KEY CHECK(id = 1)) STRICT;"
    "CREATE TABLE token_uses("
    " token_id INTEGER PRIMARY KEY,"
    " at_us INTEGER NOT NULL,"
    " address TEXT NOT NULL" /* '': a UNIX socket */
    ") STRICT;"
    "CREATE TABLE audit("
    " id INTEGER PRIMARY KEY,"
    " at_us INTEGER NOT NULL,"
    " event TEXT NOT NULL,"
    " method TEXT,"
    " route TEXT,"
    " code TEXT,"
    " request_id TEXT,"
    " address TEXT,"
    " token TEXT,"
    " certificate TEXT,"
    " session TEXT,"
    " object TEXT,"
    " token_id INTEGER,"
    " status INTEGER,"
    " bytes INTEGER,"
    " count INTEGER"
    ") STRICT;"
    "CREATE TABLE stored("
    " buffer_id INTEGER PRIMARY KEY REFERENCES buffers(id) ON DELETE CASCADE,"
    " generation INTEGER NOT NULL,"
    " run INTEGER NOT NULL,"
    " file_generation INTEGER NOT NULL," /* with file_tag, the name of the file */
    " file_tag INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " dtype TEXT NOT NULL,"
    " shape TEXT NOT NULL,"
    " crc32c INTEGER NOT NULL,"
    " blocks BLOB NOT NULL," /* CRC32C of each MiB: four bytes each, little-endian */
    " data BLOB"             /* last, so that reading the others leaves it out; NULL: a file has the bytes */
    ") STRICT;"
    "CREATE TABLE identity("
    " id INTEGER PRIMARY KEY CHECK(id = 1),"
    " uuid TEXT NOT NULL," /* which files of bytes belong to this database */
    " fleet TEXT NOT NULL DEFAULT ''"
    ") STRICT;"
    "CREATE TABLE seen(id INTEGER PRIMARY KEY, from_us INTEGER NOT NULL, to_us INTEGER NOT NULL) STRICT;"
    "CREATE INDEX answers_by_expiry ON answers(expires_at_us);"
    "CREATE UNIQUE INDEX tokens_by_subject ON tokens(subject) WHERE subject <> '';"
    "CREATE TRIGGER tokens_revoked AFTER DELETE ON tokens BEGIN"
    " DELETE FROM token_uses WHERE token_id = old.id; END;"
    "INSERT INTO token_epoch VALUES(1, 0);"
    "INSERT INTO feed_state VALUES(1, 0);"
    "INSERT INTO identity VALUES(1, lower(hex(randomblob(16))), '');";

#define NEWEST ((int64_t)(sizeof(steps) / sizeof(steps[0])))

static int read_version(sqlite3 *db, const char *path, int64_t *ret_version, struct gb_error *err) {
    int64_t version;

    if (gb_db_int(db, "PRAGMA user_version", &version, err) < 0)
        return -1;
    if (version < 0 || version > NEWEST)
        return gb_error_set(err, GB_ERR_INTERNAL,
                            "the database %s has schema %lld and this gpubufd knows schemas up to %lld; use the newer "
                            "gpubufd that wrote it, or choose another state directory",
                            path, (long long)version, (long long)NEWEST);
    *ret_version = version;
    return 0;
}

int gb_migrate_pending(sqlite3 *db, const char *path, bool *ret_pending, struct gb_error *err) {
    int64_t version = 0;

    if (read_version(db, path, &version, err) < 0)
        return -1;
    *ret_pending = version < NEWEST;
    return 0;
}

/* Carries out sql, which makes the schema `version`. */
static int step(sqlite3 *db, const char *sql, int64_t version, struct gb_error *err) {
    char mark[48];

    snprintf(mark, sizeof(mark), "PRAGMA user_version=%lld", (long long)version);
    if (gb_db_exec(db, "BEGIN IMMEDIATE", err) < 0)
        return -1;
    if (gb_db_exec(db, sql, err) == 0 && gb_db_exec(db, mark, err) == 0 && gb_db_exec(db, "COMMIT", err) == 0)
        return 0;
    if (!sqlite3_get_autocommit(db))
        gb_db_exec(db, "ROLLBACK", NULL);
    return -1;
}

int gb_migrate_from(sqlite3 *db, int64_t version, struct gb_error *err) {
    for (; version < NEWEST; version++) {
        if (step(db, steps[version], version + 1, err) < 0)
            return -1;
    }
    return 0;
}

int gb_migrate(sqlite3 *db, const char *path, struct gb_error *err) {
    int64_t version = 0;

    if (read_version(db, path, &version, err) < 0)
        return -1;
    return version == 0 ? step(db, whole, NEWEST, err) : gb_migrate_from(db, version, err);
}

/* Adds the columns of counters.def that the database lacks, so that a new counter needs no step of its own. */
static int migrate_counters(sqlite3 *db, struct gb_error *err) {
    static const char *const names[] = {
#define GB_COUNTER(name) #name,
#include "model/counters.def"
#undef GB_COUNTER
    };
    struct gb_columns columns = {0};
    size_t i;
    int r;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        gb_columns_want(&columns, names[i], "", "INTEGER NOT NULL DEFAULT 0");
    if (gb_db_exec(db, "BEGIN IMMEDIATE", err) < 0)
        return -1;
    r = gb_columns_add(db, "counters", &columns, err);
    if (r == 0)
        r = gb_columns_add(db, "history_counted", &columns, err);
    if (r == 0)
        r = gb_db_exec(db, "COMMIT", err);
    if (!sqlite3_get_autocommit(db))
        gb_db_exec(db, "ROLLBACK", NULL);
    return r;
}

/* --- the file, or a copy ------------------------------------------------------------------------------------------ */

static int tune(sqlite3 *db, bool sync_full, struct gb_error *err) {
    return gb_db_exec(db,
                      sync_full
                          ? "PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864; PRAGMA cache_size=-16384"
                          : "PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=67108864;"
                            "PRAGMA cache_size=-16384",
                      err);
}

static int bring_up_to_date(sqlite3 *db, const char *path, struct gb_error *err) {
    if (gb_migrate(db, path, err) < 0 || migrate_counters(db, err) < 0 || gb_history_migrate(db, err) < 0)
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

const char *gb_storage_where(const struct gb_storage *storage) {
    return storage->copy[0] ? storage->copy : storage->file;
}
