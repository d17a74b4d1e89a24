/* The few things that every use of SQLite here shares. Internal to the store. A connection belongs to one thread at a
 * time. */
#ifndef GB_STORE_DB_H
#define GB_STORE_DB_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* "SQLITE_FULL", "SQLITE_CONSTRAINT_UNIQUE"; the primary code's name where the extended one is not known. */
const char *gb_db_code_name(int code);

/* Sets code and detail from what `call` returned and what the connection says about it; where the disk has no room the
 * code is STORAGE_FULL instead. db may be NULL. Returns -1. */
int gb_db_fail(sqlite3 *db, int result, const char *call, enum gb_code code, struct gb_error *err);

/* Opens path, created with mode 0600 when absent, and checks which program wrote it before anything is changed. A file
 * that is no database, or another program's, is refused with INTERNAL; STORAGE_FULL where the disk has no room for what
 * SQLite keeps beside the database. Sets WAL mode, foreign keys and a bounded wait for other writers. */
int gb_db_open(const char *path, sqlite3 **ret, struct gb_error *err);

/* A connection to a file or an URI as it is, with a bounded wait for other writers. flags: SQLITE_OPEN_... */
int gb_db_connect(const char *where, int flags, sqlite3 **ret, struct gb_error *err);

/* Whether a statement waits while another process has the database locked; else it is SQLITE_BUSY at once. */
void gb_db_patience(sqlite3 *db, bool patient);

/* The database at path into another one, without any room on its disk; no other connection may have it open. Without
 * one nothing is copied. Refused as by gb_db_open and gb_db_verify. */
int gb_db_copy(const char *path, sqlite3 *to, struct gb_error *err);

/* Reads the whole file for damage; INTERNAL with the first finding. */
int gb_db_verify(sqlite3 *db, const char *path, struct gb_error *err);

/* Runs statements that give no rows; failures are INTERNAL. */
int gb_db_exec(sqlite3 *db, const char *sql, struct gb_error *err);

/* The first column of the first row; 0 without one. Failures are INTERNAL. */
int gb_db_int(sqlite3 *db, const char *sql, int64_t *ret, struct gb_error *err);

/* Calls row(arg, stmt, err) for every row; one that returns other than 0 ends the walk with -1. Failures are
 * INTERNAL. */
int gb_db_each_row(sqlite3 *db, const char *sql, int (*row)(void *, sqlite3_stmt *, struct gb_error *), void *arg,
                   struct gb_error *err);

/* numbers.c: that no number which is counted on from is near its end, or below nothing; INTERNAL with the first. */
int gb_db_check_numbers(sqlite3 *db, const char *path, struct gb_error *err);

#endif
