#include "store/db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUSY_TIMEOUT_MS 5000

/* "GPUB": tells our databases from those of other programs. */
#define APPLICATION_ID 0x47505542

struct code_name {
    int code;
    const char *name;
};

#define CODE(symbol)                                                                                                   \
    { symbol, #symbol }

static const struct code_name code_names[] = {
    CODE(SQLITE_OK),
    CODE(SQLITE_ERROR),
    CODE(SQLITE_INTERNAL),
    CODE(SQLITE_PERM),
    CODE(SQLITE_ABORT),
    CODE(SQLITE_BUSY),
    CODE(SQLITE_LOCKED),
    CODE(SQLITE_NOMEM),
    CODE(SQLITE_READONLY),
    CODE(SQLITE_INTERRUPT),
    CODE(SQLITE_IOERR),
    CODE(SQLITE_CORRUPT),
    CODE(SQLITE_NOTFOUND),
    CODE(SQLITE_FULL),
    CODE(SQLITE_CANTOPEN),
    CODE(SQLITE_PROTOCOL),
    CODE(SQLITE_SCHEMA),
    CODE(SQLITE_TOOBIG),
    CODE(SQLITE_CONSTRAINT),
    CODE(SQLITE_MISMATCH),
    CODE(SQLITE_MISUSE),
    CODE(SQLITE_NOLFS),
    CODE(SQLITE_AUTH),
    CODE(SQLITE_RANGE),
    CODE(SQLITE_NOTADB),
    CODE(SQLITE_CONSTRAINT_CHECK),
    CODE(SQLITE_CONSTRAINT_FOREIGNKEY),
    CODE(SQLITE_CONSTRAINT_NOTNULL),
    CODE(SQLITE_CONSTRAINT_PRIMARYKEY),
    CODE(SQLITE_CONSTRAINT_UNIQUE),
    CODE(SQLITE_IOERR_FSYNC),
    CODE(SQLITE_IOERR_LOCK),
    CODE(SQLITE_IOERR_READ),
    CODE(SQLITE_IOERR_SHMMAP),
    CODE(SQLITE_IOERR_SHORT_READ),
    CODE(SQLITE_IOERR_TRUNCATE),
    CODE(SQLITE_IOERR_WRITE),
    CODE(SQLITE_BUSY_RECOVERY),
    CODE(SQLITE_BUSY_SNAPSHOT),
    CODE(SQLITE_BUSY_TIMEOUT),
};

const char *gb_db_code_name(int code) {
    size_t i;

    for (i = 0; i < sizeof(code_names) / sizeof(code_names[0]); i++) {
        if (code_names[i].code == code)
            return code_names[i].name;
    }
    return code > 0xff ? gb_db_code_name(code & 0xff) : "unknown";
}

/* A quota and a limit on the size of files leave no room either; SQLite itself knows ENOSPC alone. */
static bool lacks_room(int error_number) {
    return error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
}

static bool file_lacks_room(sqlite3_file *file) {
    int number = 0;

    return file && file->pMethods &&
           file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &number) == SQLITE_OK && lacks_room(number);
}

/* Of a commit that failed, the log's file alone knows why. */
static bool log_lacks_room(sqlite3 *db) {
    sqlite3_file *log = NULL;

    return sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) == SQLITE_OK && file_lacks_room(log);
}

static bool no_room(sqlite3 *db, int result) {
    switch (result & 0xff) {
    case SQLITE_FULL:
        return true;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        return db && (lacks_room(sqlite3_system_errno(db)) || (result == SQLITE_IOERR_WRITE && log_lacks_room(db)));
    default:
        return false;
    }
}

int gb_db_fail(sqlite3 *db, int result, const char *call, enum gb_code code, struct gb_error *err) {
    const char *what = db ? sqlite3_errmsg(db) : sqlite3_errstr(result);

    gb_error_native(err, "sqlite", result, gb_db_code_name(result), call);
    if (no_room(db, result))
        return gb_error_set(err, GB_ERR_STORAGE_FULL,
                            "the database cannot grow: %s; make room on the disk of the state directory", what);
    return gb_error_set(err, code, code == GB_ERR_STORE_FAILED ? "the database refused the change: %s" : "%s", what);
}

int gb_db_exec(sqlite3 *db, const char *sql, struct gb_error *err) {
    int r = sqlite3_exec(db, sql, NULL, NULL, NULL);

    return r == SQLITE_OK ? 0 : gb_db_fail(db, r, "sqlite3_exec", GB_ERR_INTERNAL, err);
}

int gb_db_int(sqlite3 *db, const char *sql, int64_t *ret, struct gb_error *err) {
    sqlite3_stmt *stmt;
    int r = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    int64_t value = 0;

    if (r != SQLITE_OK)
        return gb_db_fail(db, r, "sqlite3_prepare_v2", GB_ERR_INTERNAL, err);
    r = sqlite3_step(stmt);
    if (r == SQLITE_ROW)
        value = sqlite3_column_int64(stmt, 0);
    else if (r != SQLITE_DONE)
        gb_db_fail(db, r, "sqlite3_step", GB_ERR_INTERNAL, err);
    sqlite3_finalize(stmt);
    if (r != SQLITE_ROW && r != SQLITE_DONE)
        return -1;
    *ret = value;
    return 0;
}

int gb_db_each_row(sqlite3 *db, const char *sql, int (*row)(void *, sqlite3_stmt *, struct gb_error *), void *arg,
                   struct gb_error *err) {
    sqlite3_stmt *stmt = NULL;
    int r = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    int failed = 0;

    if (r != SQLITE_OK)
        return gb_db_fail(db, r, "sqlite3_prepare_v2", GB_ERR_INTERNAL, err);
    while (!failed && (r = sqlite3_step(stmt)) == SQLITE_ROW)
        failed = row(arg, stmt, err);
    if (!failed && r != SQLITE_DONE)
        failed = gb_db_fail(db, r, "sqlite3_step", GB_ERR_INTERNAL, err);
    sqlite3_finalize(stmt);
    return failed ? -1 : 0;
}

/* SQLite would create the file with the umask's mode. Only a file that did not exist is opened here: closing a
 * descriptor of a database in use would drop the process's locks on it. */
static int create_private(const char *path, struct gb_error *err) {
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd >= 0) {
        close(fd);
        return 0;
    }
    if (errno == EEXIST)
        return 0;
    gb_error_native(err, "errno", errno, strerrorname_np(errno), "open");
    return gb_error_set(err, lacks_room(errno) ? GB_ERR_STORAGE_FULL : GB_ERR_INTERNAL,
                        "the database %s cannot be created: %s", path, strerrordesc_np(errno));
}

/* Only reads, so that a file that is not ours stays as it is. */
static int identify(sqlite3 *db, const char *path, bool *ret_fresh, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    int64_t application_id = 0;
    int64_t objects = 0;

    if (gb_db_int(db, "PRAGMA application_id", &application_id, &why) < 0 ||
        gb_db_int(db, "SELECT count(*) FROM sqlite_schema", &objects, &why) < 0) {
        gb_error_native(err, why.native_domain, why.native_code, why.native_name, why.call);
        if (why.code == GB_ERR_STORAGE_FULL)
            return gb_error_set(err, why.code, "%s", why.detail);
        return gb_error_set(err, GB_ERR_INTERNAL,
                            "%s cannot be read as a database (%s); it is left as it is: restore it from a copy, move "
                            "it away, or choose another state directory",
                            path, why.detail);
    }
    if (application_id != APPLICATION_ID && (objects > 0 || application_id != 0))
        return gb_error_set(err, GB_ERR_INTERNAL,
                            "%s is a database of another program; it is left as it is: choose another state directory",
                            path);
    *ret_fresh = application_id == 0;
    return 0;
}

static int configure(sqlite3 *db, bool fresh, struct gb_error *err) {
    char sql[64];

    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    snprintf(sql, sizeof(sql), "PRAGMA application_id=%d", APPLICATION_ID);
    if (gb_db_exec(db, "PRAGMA foreign_keys=ON", err) < 0 || gb_db_exec(db, "PRAGMA journal_mode=WAL", err) < 0)
        return -1;
    return fresh ? gb_db_exec(db, sql, err) : 0;
}

int gb_db_connect(const char *where, int flags, sqlite3 **ret, struct gb_error *err) {
    sqlite3 *db = NULL;
    int r = sqlite3_open_v2(where, &db, flags | SQLITE_OPEN_NOMUTEX, NULL);

    if (r != SQLITE_OK) {
        gb_error_native(err, "sqlite", r, gb_db_code_name(r), "sqlite3_open_v2");
        gb_error_set(err, no_room(db, r) ? GB_ERR_STORAGE_FULL : GB_ERR_INTERNAL,
                     "the database %s cannot be opened: %s", where, sqlite3_errstr(r));
        sqlite3_close(db);
        return -1;
    }
    sqlite3_extended_result_codes(db, 1);
    gb_db_patience(db, true);
    *ret = db;
    return 0;
}

void gb_db_patience(sqlite3 *db, bool patient) {
    sqlite3_busy_timeout(db, patient ? BUSY_TIMEOUT_MS : 0);
}

int gb_db_open(const char *path, sqlite3 **ret, struct gb_error *err) {
    sqlite3 *db = NULL;
    bool fresh;

    if (create_private(path, err) < 0 || gb_db_connect(path, SQLITE_OPEN_READWRITE, &db, err) < 0)
        return -1;
    if (identify(db, path, &fresh, err) < 0 || configure(db, fresh, err) < 0) {
        sqlite3_close(db);
        return -1;
    }
    *ret = db;
    return 0;
}

static int copy_pages(sqlite3 *from, sqlite3 *to, struct gb_error *err) {
    sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
    int r;

    if (!backup)
        return gb_db_fail(to, sqlite3_errcode(to), "sqlite3_backup_init", GB_ERR_INTERNAL, err);
    sqlite3_backup_step(backup, -1);
    r = sqlite3_backup_finish(backup);
    return r == SQLITE_OK ? 0 : gb_db_fail(to, r, "sqlite3_backup_step", GB_ERR_INTERNAL, err);
}

/* Alone with the file, SQLite keeps the log's index in its own memory: beside others it would need a file for it. */
int gb_db_copy(const char *path, sqlite3 *to, struct gb_error *err) {
    sqlite3 *from = NULL;
    bool fresh;
    int r = -1;

    if (access(path, F_OK) != 0)
        return 0;
    if (gb_db_connect(path, SQLITE_OPEN_READWRITE, &from, err) < 0)
        return -1;
    if (gb_db_exec(from, "PRAGMA locking_mode=EXCLUSIVE", err) == 0 && identify(from, path, &fresh, err) == 0)
        r = fresh ? 0 : gb_db_verify(from, path, err);
    if (r == 0 && !fresh)
        r = copy_pages(from, to, err);
    sqlite3_close(from);
    return r;
}

int gb_db_verify(sqlite3 *db, const char *path, struct gb_error *err) {
    sqlite3_stmt *stmt = NULL;
    const char *finding = NULL;
    int r = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &stmt, NULL);

    if (r == SQLITE_OK)
        r = sqlite3_step(stmt);
    if (r == SQLITE_ROW)
        finding = (const char *)sqlite3_column_text(stmt, 0);
    if (!finding)
        finding = sqlite3_errmsg(db);
    if (strcmp(finding, "ok") != 0) {
        gb_error_native(err, "sqlite", SQLITE_CORRUPT, "SQLITE_CORRUPT", "PRAGMA quick_check");
        gb_error_set(err, GB_ERR_INTERNAL,
                     "the database %s is damaged (%s); restore it from a copy, or move it away to start empty", path,
                     finding);
    }
    r = strcmp(finding, "ok") == 0 ? 0 : -1;
    sqlite3_finalize(stmt);
    return r;
}
