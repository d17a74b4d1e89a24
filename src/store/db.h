/* What every use of SQLite here shares: opening, statements, columns that are added, numbers that are counted on from,
 * the lock beside the database and the place of its files. Internal to the store. A connection belongs to one thread at
 * a time. */
#ifndef GB_STORE_DB_H
#define GB_STORE_DB_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* Sets code and detail from what `call` returned and what the connection says about it; where the disk has no room the
 * code is STORAGE_FULL instead. db may be NULL. Returns -1. */
int gb_db_fail(sqlite3 *db, int result, const char *call, enum gb_code code, struct gb_error *err);

/* Opens path, created with mode 0600 when absent, and checks which program wrote it before anything is changed. A file
 * that is no database, or another program's, is refused with INTERNAL; STORAGE_FULL where the disk has no room for what
 * SQLite keeps beside the database. Sets WAL mode, foreign keys and a bounded wait for other writers. */
int gb_db_open(const char *path, sqlite3 **ret, struct gb_error *err);

/* A connection to a file or an URI as it is, with a bounded wait for other writers. flags: SQLITE_OPEN_... */
int gb_db_connect(const char *where, int flags, sqlite3 **ret, struct gb_error *err);
/* One that only reads. */
int gb_db_connect_read(const char *where, sqlite3 **ret, struct gb_error *err);

/* Whether a statement waits while another process has the database locked; else it is SQLITE_BUSY at once. */
void gb_db_patience(sqlite3 *db, bool patient);

/* The database at path into another one, without any room on its disk; no other connection may have it open. Without
 * one nothing is copied. Refused as by gb_db_open and gb_db_verify. */
int gb_db_copy(const char *path, sqlite3 *to, struct gb_error *err);

/* Reads the whole file for damage; INTERNAL with the first finding. */
int gb_db_verify(sqlite3 *db, const char *path, struct gb_error *err);

/* Runs statements that give no rows; failures are INTERNAL. */
int gb_db_exec(sqlite3 *db, const char *sql, struct gb_error *err);

/* A statement that is kept, or one of each text. Return 0, or -1 with INTERNAL. */
int gb_db_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct gb_error *err);
int gb_db_prepare_all(sqlite3 *db, const char *const *sql, int count, sqlite3_stmt **ret, struct gb_error *err);
/* Those that were prepared, also after a failure; each is NULL then. */
void gb_db_finalize_all(sqlite3_stmt **stmts, int count);

/* Carries out a bound statement that gives no rows. Returns 0, or -1 with STORE_FAILED. */
int gb_db_run(sqlite3 *db, sqlite3_stmt *stmt, struct gb_error *err);

/* The first column of the first row; 0 without one. Failures are INTERNAL. */
int gb_db_int(sqlite3 *db, const char *sql, int64_t *ret, struct gb_error *err);

/* Calls row(arg, stmt, err) for every row; one that returns other than 0 ends the walk with -1. Failures are
 * INTERNAL. */
int gb_db_each_row(sqlite3 *db, const char *sql, int (*row)(void *, sqlite3_stmt *, struct gb_error *), void *arg,
                   struct gb_error *err);

/* A connection of its own that only reads, with one statement. The first use opens both. */
struct gb_db_reader {
    pthread_mutex_t lock; /* for all below; during a read too */
    const char *where;    /* of gb_db_connect; borrowed */
    sqlite3 *db;
    sqlite3_stmt *stmt;
};

void gb_db_reader_init(struct gb_db_reader *reader, const char *where);
void gb_db_reader_done(struct gb_db_reader *reader);
/* Another place, which has the same. Waits for a read that is under way. */
void gb_db_reader_move(struct gb_db_reader *reader, const char *where);
/* Under its lock, before each use of the statement. Returns 0, or -1 with INTERNAL. */
int gb_db_reader_open(struct gb_db_reader *reader, const char *sql, struct gb_error *err);

/* That no number which is counted on from is near its end, or below nothing; INTERNAL with the first. */
int gb_db_check_numbers(sqlite3 *db, const char *path, struct gb_error *err);

/* Columns of numbers follow a list of the model's: what a table lacks is added when the database is opened. */

#define GB_COLUMNS_MAX 256

struct gb_columns {
    unsigned n;
    struct {
        char name[64];
        const char *type; /* with its constraints; outlives this */
    } column[GB_COLUMNS_MAX];
};

/* name and suffix: at most 63 bytes together. */
void gb_columns_want(struct gb_columns *columns, const char *name, const char *suffix, const char *type);

/* Inside a transaction. A table without rows is made again, wanted columns first: SQLite reads the whole schema again
 * for each column that is added, which made up most of the first start. */
int gb_columns_add(sqlite3 *db, const char *table, const struct gb_columns *wanted, struct gb_error *err);

/* --- lock file beside the database: one daemon at a time ---------------------------------------------------------- */

/* Takes PATH.lock. Returns 0 and a descriptor for gb_lock_drop, or -1 with INTERNAL naming the process that holds it.
 * Never blocks. */
int gb_lock_take(const char *path, int *ret_fd, struct gb_error *err);

/* Accepts -1. The file stays: removing it would let two daemons lock two files of one name. */
void gb_lock_drop(int fd);

/* The files that the database was opened from, and whether they still are the ones of their names. SQLite writes to the
 * files that it has open, whatever has become of their names: what was renamed, removed or replaced meanwhile takes
 * every change, and all are lost at a restart. Internal to the store; belongs to the thread that has the
 * database. */

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
