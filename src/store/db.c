/* SQLite for the files of this folder: connections and how they fail, statements, columns by a list, numbers that are
 * counted on from, the lock beside the database, and whether its files still are those that were opened. */
#include "store/db.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"

/* --- SQLite ------------------------------------------------------------------------------------------------------- */

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

/* "SQLITE_FULL", "SQLITE_CONSTRAINT_UNIQUE"; the primary code's name where the extended one is not known. */
static const char *db_code_name(int code) {
    size_t i;

    for (i = 0; i < sizeof(code_names) / sizeof(code_names[0]); i++) {
        if (code_names[i].code == code)
            return code_names[i].name;
    }
    return code > 0xff ? db_code_name(code & 0xff) : "unknown";
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

    gb_error_native(err, "sqlite", result, db_code_name(result), call);
    if (no_room(db, result))
        return gb_error_set(err, GB_ERR_STORAGE_FULL,
                            "the database cannot grow: %s; make room on the disk of the state directory", what);
    return gb_error_set(err, code, code == GB_ERR_STORE_FAILED ? "the database refused the change: %s" : "%s", what);
}

int gb_db_exec(sqlite3 *db, const char *sql, struct gb_error *err) {
    int r = sqlite3_exec(db, sql, NULL, NULL, NULL);

    return r == SQLITE_OK ? 0 : gb_db_fail(db, r, "sqlite3_exec", GB_ERR_INTERNAL, err);
}

int gb_db_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct gb_error *err) {
    int r = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL);

    return r == SQLITE_OK ? 0 : gb_db_fail(db, r, "sqlite3_prepare_v3", GB_ERR_INTERNAL, err);
}

int gb_db_prepare_all(sqlite3 *db, const char *const *sql, int count, sqlite3_stmt **ret, struct gb_error *err) {
    int i;

    for (i = 0; i < count; i++) {
        if (gb_db_prepare(db, sql[i], &ret[i], err) < 0)
            return -1;
    }
    return 0;
}

void gb_db_finalize_all(sqlite3_stmt **stmts, int count) {
    int i;

    for (i = 0; i < count; i++) {
        sqlite3_finalize(stmts[i]);
        stmts[i] = NULL;
    }
}

int gb_db_run(sqlite3 *db, sqlite3_stmt *stmt, struct gb_error *err) {
    int r = sqlite3_step(stmt);

    if (r != SQLITE_DONE)
        gb_db_fail(db, r, "sqlite3_step", GB_ERR_STORE_FAILED, err);
    sqlite3_reset(stmt);
    return r == SQLITE_DONE ? 0 : -1;
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
        gb_error_native(err, "sqlite", r, db_code_name(r), "sqlite3_open_v2");
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

int gb_db_connect_read(const char *where, sqlite3 **ret, struct gb_error *err) {
    return gb_db_connect(where, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, ret, err);
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

/* --- connections that only read ----------------------------------------------------------------------------------- */

void gb_db_reader_init(struct gb_db_reader *reader, const char *where) {
    *reader = (struct gb_db_reader){.where = where};
    gb_mutex_init(&reader->lock);
}

static void close_locked(struct gb_db_reader *reader) {
    gb_db_finalize_all(&reader->stmt, 1);
    sqlite3_close(reader->db);
    reader->db = NULL;
}

void gb_db_reader_done(struct gb_db_reader *reader) {
    close_locked(reader);
    pthread_mutex_destroy(&reader->lock);
}

void gb_db_reader_move(struct gb_db_reader *reader, const char *where) {
    pthread_mutex_lock(&reader->lock);
    close_locked(reader);
    reader->where = where;
    pthread_mutex_unlock(&reader->lock);
}

int gb_db_reader_open(struct gb_db_reader *reader, const char *sql, struct gb_error *err) {
    if (reader->stmt)
        return 0;
    if (!reader->db && gb_db_connect_read(reader->where, &reader->db, err) < 0)
        return -1;
    return gb_db_prepare(reader->db, sql, &reader->stmt, err);
}

/* --- columns ------------------------------------------------------------------------------------------------------ */

void gb_columns_want(struct gb_columns *columns, const char *name, const char *suffix, const char *type) {
    if (columns->n == GB_COLUMNS_MAX)
        abort(); /* the lists are part of the program */
    snprintf(columns->column[columns->n].name, sizeof(columns->column[0].name), "%s%s", name, suffix);
    columns->column[columns->n++].type = type;
}

static void mark(const struct gb_columns *wanted, const char *name, bool *present) {
    unsigned i;

    for (i = 0; i < wanted->n; i++)
        present[i] |= strcmp(wanted->column[i].name, name) == 0;
}

/* Those of wanted that the table lacks. One statement lists them all: a statement for each made up half of a start. */
static int find_missing(sqlite3 *db, const char *table, const struct gb_columns *wanted, struct gb_columns *ret,
                        struct gb_error *err) {
    bool present[GB_COLUMNS_MAX] = {false};
    const char *name;
    sqlite3_stmt *stmt;
    unsigned i;
    int r = sqlite3_prepare_v2(db, "SELECT name FROM pragma_table_info(?1)", -1, &stmt, NULL);

    if (r != SQLITE_OK)
        return gb_db_fail(db, r, "sqlite3_prepare_v2", GB_ERR_INTERNAL, err);
    sqlite3_bind_text(stmt, 1, table, -1, SQLITE_STATIC);
    while ((r = sqlite3_step(stmt)) == SQLITE_ROW) {
        name = (const char *)sqlite3_column_text(stmt, 0);
        if (!name) {
            r = SQLITE_NOMEM;
            break;
        }
        mark(wanted, name, present);
    }
    if (r != SQLITE_DONE)
        gb_db_fail(db, r, "sqlite3_step", GB_ERR_INTERNAL, err);
    sqlite3_finalize(stmt);
    if (r != SQLITE_DONE)
        return -1;
    ret->n = 0;
    for (i = 0; i < wanted->n; i++) {
        if (!present[i])
            gb_columns_want(ret, wanted->column[i].name, "", wanted->column[i].type);
    }
    return 0;
}

static int alter(sqlite3 *db, const char *table, const struct gb_columns *missing, struct gb_error *err) {
    char sql[256];
    unsigned i;

    for (i = 0; i < missing->n; i++) {
        snprintf(sql, sizeof(sql), "ALTER TABLE %s ADD COLUMN %s %s", table, missing->column[i].name,
                 missing->column[i].type);
        if (gb_db_exec(db, sql, err) < 0)
            return -1;
    }
    return 0;
}

/* The statement that made the table, with more columns in front; NULL when memory is exhausted. The caller frees it. */
static char *with_columns(const char *made, const struct gb_columns *missing) {
    const char *open = strchr(made, '(');
    char *sql = NULL;
    size_t n;
    FILE *out = open ? open_memstream(&sql, &n) : NULL;
    unsigned i;

    if (!out)
        return NULL;
    fprintf(out, "%.*s(", (int)(open - made), made);
    for (i = 0; i < missing->n; i++)
        fprintf(out, "%s %s, ", missing->column[i].name, missing->column[i].type);
    fputs(open + 1, out);
    if (fclose(out) == 0)
        return sql;
    free(sql);
    return NULL;
}

static int make_again(sqlite3 *db, const char *table, const struct gb_columns *missing, struct gb_error *err) {
    sqlite3_stmt *stmt = NULL;
    char *sql = NULL;
    char drop[96];
    int r;

    if (sqlite3_prepare_v2(db, "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1", -1, &stmt, NULL) !=
        SQLITE_OK)
        return gb_db_fail(db, sqlite3_errcode(db), "sqlite3_prepare_v2", GB_ERR_INTERNAL, err);
    sqlite3_bind_text(stmt, 1, table, -1, SQLITE_STATIC);
    r = sqlite3_step(stmt);
    if (r == SQLITE_ROW)
        sql = with_columns((const char *)sqlite3_column_text(stmt, 0), missing);
    sqlite3_finalize(stmt);
    if (r != SQLITE_ROW)
        return gb_db_fail(db, r, "sqlite3_step", GB_ERR_INTERNAL, err);
    if (!sql)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    snprintf(drop, sizeof(drop), "DROP TABLE %s", table);
    r = gb_db_exec(db, drop, err) < 0 ? -1 : gb_db_exec(db, sql, err);
    free(sql);
    return r;
}

int gb_columns_add(sqlite3 *db, const char *table, const struct gb_columns *wanted, struct gb_error *err) {
    struct gb_columns missing;
    int64_t rows;
    char sql[96];

    if (find_missing(db, table, wanted, &missing, err) < 0)
        return -1;
    if (missing.n == 0)
        return 0;
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM (SELECT 1 FROM %s LIMIT 1)", table);
    if (gb_db_int(db, sql, &rows, err) < 0)
        return -1;
    return rows ? alter(db, table, &missing, err) : make_again(db, table, &missing, err);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* Numbers of the database that this program counts on from. One that is near the end of 64 bits was not written by a
 * daemon: the fastest of them, the feed's ids, leave room for 2^42 starts. */

#define MOST (INT64_C(1) << 62)

static const struct {
    const char *table;
    const char *column;
} counted[] = {
    {"sqlite_sequence", "seq"},
    {"sessions", "id"},
    {"sessions", "version"},
    {"sessions", "created_at_us"},
    {"sessions", "updated_at_us"},
    {"buffers", "id"},
    {"buffers", "generation"},
    {"buffers", "version"},
    {"buffers", "created_at_us"},
    {"buffers", "updated_at_us"},
    {"stored", "generation"},
    {"pools", "id"},
    {"pools", "version"},
    {"pools", "created_at_us"},
    {"pools", "updated_at_us"},
    {"answers", "id"},
    {"answers", "expires_at_us"},
    {"audit", "id"},
    {"feed", "id"},
    {"feed_state", "dropped_through"},
    {"token_epoch", "value"},
    {"history_series", "id"},
    {"history_series", "first_at_us"},
    {"history_series", "last_at_us"},
    {"history_series", "minutes_until_us"},
    {"history_series", "hours_until_us"},
    {"history_series", "visited_us"},
    {"history_series", "sample_rows"},
    {"history_series", "minute_rows"},
    {"history_series", "hour_rows"},
    {"history_starts", "id"},
    {"history_starts", "at_us"},
    {"history_starts", "ended_at_us"},
};

static int check(sqlite3 *db, const char *path, const char *table, const char *column, struct gb_error *err) {
    char query[256];
    int64_t found;

    /* Two conditions, since an index serves each. */
    snprintf(query, sizeof(query), "SELECT %s FROM %s WHERE %s < 0 OR %s > %lld LIMIT 1", column, table, column, column,
             (long long)MOST);
    if (gb_db_int(db, query, &found, err) < 0)
        return -1;
    if (found == 0)
        return 0;
    return gb_error_set(
        err, GB_ERR_INTERNAL,
        "%s has the number %lld as %s in its table %s, which no daemon wrote: it was damaged or edited; it "
        "is left as it is: restore it from a copy, or set a number from 0 to %lld there",
        path, (long long)found, column, table, (long long)MOST);
}

int gb_db_check_numbers(sqlite3 *db, const char *path, struct gb_error *err) {
    size_t i;

    for (i = 0; i < sizeof(counted) / sizeof(counted[0]); i++) {
        if (check(db, path, counted[i].table, counted[i].column, err) < 0)
            return -1;
    }
    return 0;
}

/* --- the lock ----------------------------------------------------------------------------------------------------- */

/* The holder's process id is for the sentence only, so failing to read or write it is no failure. */
static int held_by_another(int fd, const char *path, struct gb_error *err) {
    char holder[16] = "";
    ssize_t n = pread(fd, holder, sizeof(holder) - 1, 0);

    holder[n > 0 ? strspn(holder, "0123456789") : 0] = '\0';
    return gb_error_set(err, GB_ERR_INTERNAL,
                        "another gpubufd%s%s%s uses the database %s; stop it, or choose another state directory",
                        holder[0] ? ", process " : "", holder, holder[0] ? "," : "", path);
}

static void write_holder(int fd) {
    char text[16];
    int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());

    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) < 0)
        return;
}

int gb_lock_take(const char *path, int *ret_fd, struct gb_error *err) {
    char lock_path[PATH_MAX];
    int fd;
    int r;

    if (snprintf(lock_path, sizeof(lock_path), "%s.lock", path) >= (int)sizeof(lock_path))
        return gb_error_set(err, GB_ERR_INTERNAL, "the path of the database is too long");
    fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        gb_error_native(err, "errno", errno, strerrorname_np(errno), "open");
        return gb_error_set(err, GB_ERR_INTERNAL, "the lock file %s cannot be opened: %s", lock_path,
                            strerrordesc_np(errno));
    }
    do
        r = flock(fd, LOCK_EX | LOCK_NB);
    while (r < 0 && errno == EINTR);
    if (r < 0) {
        if (errno == EWOULDBLOCK)
            held_by_another(fd, path, err);
        else
            gb_error_errno(err, GB_ERR_INTERNAL, "flock", errno);
        close(fd);
        return -1;
    }
    write_holder(fd);
    *ret_fd = fd;
    return 0;
}

void gb_lock_drop(int fd) {
    if (fd >= 0)
        close(fd);
}

/* --- the file's place --------------------------------------------------------------------------------------------- */

static const char *const suffixes[GB_PLACE_FILES] = {"", "-wal", "-shm"};

static int stat_file(const struct gb_place *place, const char *suffix, struct stat *ret) {
    char path[PATH_MAX];

    if (snprintf(path, sizeof(path), "%s%s", place->path, suffix) < (int)sizeof(path))
        return stat(path, ret);
    errno = ENAMETOOLONG;
    return -1;
}

int gb_place_note(struct gb_place *place, struct gb_error *err) {
    struct stat st;
    size_t i;

    for (i = 0; i < GB_PLACE_FILES; i++) {
        place->files[i].known = stat_file(place, suffixes[i], &st) == 0;
        if (!place->files[i].known && (errno != ENOENT || i == 0))
            return gb_error_errno(err, GB_ERR_INTERNAL, "stat", errno);
        if (place->files[i].known) {
            place->files[i].device = st.st_dev;
            place->files[i].inode = st.st_ino;
        }
    }
    return 0;
}

static int displaced(const struct gb_place *place, const char *suffix, const char *what, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_STORE_UNAVAILABLE,
                        "the database's file %.100s%s %s while the daemon runs, and what would be written now would be "
                        "gone after a restart: put the file back, or restart the daemon with the right one",
                        place->path, suffix, what);
}

/* One of the same name that is not locked any more: another daemon could take it. */
static int keep_lock(struct gb_place *place, struct gb_error *err) {
    struct stat ours;
    struct stat named;
    int fd;

    if (place->lock_fd < 0 || fstat(place->lock_fd, &ours) != 0)
        return 0;
    if (stat_file(place, ".lock", &named) == 0 && named.st_dev == ours.st_dev && named.st_ino == ours.st_ino)
        return 0;
    if (gb_lock_take(place->path, &fd, err) < 0)
        return -1;
    gb_lock_drop(place->lock_fd);
    place->lock_fd = fd;
    return 0;
}

int gb_place_check(struct gb_place *place, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    struct stat st;
    size_t i;

    for (i = 0; i < GB_PLACE_FILES; i++) {
        if (!place->files[i].known)
            continue;
        if (stat_file(place, suffixes[i], &st) != 0)
            return displaced(place, suffixes[i], errno == ENOENT ? "was renamed or removed" : "cannot be reached", err);
        if (st.st_dev != place->files[i].device || st.st_ino != place->files[i].inode)
            return displaced(place, suffixes[i], "was replaced by another one", err);
    }
    if (keep_lock(place, &why) == 0)
        return 0;
    why.code = GB_ERR_STORE_UNAVAILABLE;
    return gb_error_move(err, &why);
}
