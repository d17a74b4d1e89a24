/* Rows of the history, for the writer and the reader. Internal to the store. */
#ifndef GB_STORE_PAST_H
#define GB_STORE_PAST_H

#include <sqlite3.h>

#include "store/history_query.h"
#include "store/rollup.h"

/* Tables get the columns that they lack, views are made anew where they differ. Before the first change. */
int gb_past_migrate(sqlite3 *db, struct gb_error *err);

/* The daemon's start is noted, and how its last run ended. Then its end. */
int gb_past_started(sqlite3 *db, int64_t now_us, struct gb_error *err);
int gb_past_stopped(sqlite3 *db, int64_t now_us, struct gb_error *err);

/* Prepares, of the level's table, series ?1 from ?2 to before ?3 by time, for gb_past_read; and "INSERT OR REPLACE", for
 * gb_past_bind. 0, or -1 with INTERNAL. */
int gb_past_select(sqlite3 *db, enum gb_history_level level, sqlite3_stmt **ret, struct gb_error *err);
int gb_past_insert(sqlite3 *db, enum gb_history_level level, sqlite3_stmt **ret, struct gb_error *err);
/* "history_samples" and so on. */
const char *gb_past_table(enum gb_history_level level);

void gb_past_read(sqlite3_stmt *stmt, enum gb_history_level level, struct gb_history_point *ret);
/* SQLITE_OK or the first failure. */
int gb_past_bind(sqlite3_stmt *stmt, enum gb_history_level level, int64_t series, const struct gb_history_point *point);
/* As a row of the level of samples. */
void gb_past_of_sample(const struct gb_history_sample *sample, struct gb_history_point *ret);

/* --- the writer's side ---------------------------------------------------------------------------------------------- */

enum gb_past_stmt {
    GB_PAST_TOUCH,
    GB_PAST_ADOPT,
    GB_PAST_COUNT,
    GB_PAST_TOTALS,
    GB_PAST_OLDEST,
    GB_PAST_CREATE,
    GB_PAST_DUE,
    GB_PAST_VISITED,
    GB_PAST_FORGET,
    GB_PAST_STMTS
};

struct gb_past {
    sqlite3 *db; /* borrowed */
    struct gb_history_limits limits;
    sqlite3_stmt *stmts[GB_PAST_STMTS];
    sqlite3_stmt *select[GB_HISTORY_LEVELS];
    sqlite3_stmt *insert[GB_HISTORY_LEVELS];
    sqlite3_stmt *drop[GB_HISTORY_LEVELS];
};

int gb_past_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct gb_error *err);
int gb_past_init(struct gb_past *past, sqlite3 *db, const struct gb_history_limits *limits, struct gb_error *err);
void gb_past_done(struct gb_past *past);

/* In the transaction that is open. Failures are STORE_FAILED. */
int gb_past_put(struct gb_past *past, const struct gb_history_sample *sample, struct gb_error *err);
int gb_past_roll(struct gb_past *past, int64_t now_us, bool *ret_more, struct gb_error *err);

/* Steps of these. */
int gb_past_fail(struct gb_past *past, int r, struct gb_error *err);
int gb_past_take(struct gb_past *past, sqlite3_stmt *stmt, int64_t *ret, struct gb_error *err);
int gb_past_run(struct gb_past *past, sqlite3_stmt *stmt, struct gb_error *err);
int gb_past_insert_row(struct gb_past *past, enum gb_history_level level, int64_t series,
                       const struct gb_history_point *point, struct gb_error *err);
int gb_past_give_up(struct gb_past *past, int64_t before_us, int64_t ret_rows[GB_HISTORY_LEVELS], struct gb_error *err);

#endif
