/* Rows of the history, for the writer and the reader. Internal to the store. */
#ifndef GB_STORE_HISTORY_H
#define GB_STORE_HISTORY_H

#include <sqlite3.h>

#include "model/history.h"
#include "store/seen.h"
#include "store/store.h"

/* Arithmetic of the history: rows of a finer level, in the order of time, come to one point. Internal to the store. */

struct gb_rollup {
    struct gb_history_point point;
    double sum[GB_HISTORY_GAUGES]; /* of means, each by its weight */
    int64_t weight[GB_HISTORY_GAUGES];
    bool uncovered; /* of a row it is not known which time it covers, so that of the point neither */
};

/* Empty, of the span that begins at at_us. */
void gb_rollup_begin(struct gb_rollup *rollup, int64_t at_us);
/* A row: a sample (samples 1, min, mean, max and last alike) or a point. What is not known in it changes nothing. */
void gb_rollup_add(struct gb_rollup *rollup, const struct gb_history_point *row);
/* The point so far. */
void gb_rollup_end(const struct gb_rollup *rollup, struct gb_history_point *ret);

/* Tables get the columns that they lack, views are made again where they differ. Before the first change. */
int gb_history_migrate(sqlite3 *db, struct gb_error *err);

/* The daemon's start is noted, and how its last run ended. Then its end. */
int gb_history_started(sqlite3 *db, int64_t now_us, struct gb_error *err);
int gb_history_stopped(sqlite3 *db, int64_t now_us, struct gb_error *err);
/* started: the start of this run is noted. *ret: there was a run before, and it did not say that it ended. */
int gb_history_broke_off(sqlite3 *db, bool started, bool *ret, struct gb_error *err);

/* Prepares, of the level's table, series ?1 from ?2 to before ?3 by time, for gb_history_read; and "INSERT OR REPLACE",
 * for history_bind. 0, or -1 with INTERNAL. */
int gb_history_select(sqlite3 *db, enum gb_history_level level, sqlite3_stmt **ret, struct gb_error *err);

void gb_history_read(sqlite3_stmt *stmt, enum gb_history_level level, struct gb_history_point *ret);

/* --- the writer's side -------------------------------------------------------------------------------------------- */

enum gb_history_stmt {
    GB_HISTORY_TOUCH,
    GB_HISTORY_ADOPT,
    GB_HISTORY_COUNT,
    GB_HISTORY_TOTALS,
    GB_HISTORY_OLDEST,
    GB_HISTORY_CREATE,
    GB_HISTORY_DUE,
    GB_HISTORY_VISITED,
    GB_HISTORY_FORGET,
    GB_HISTORY_STMTS
};

struct gb_history {
    sqlite3 *db; /* borrowed */
    struct gb_history_limits limits;
    struct gb_seen *seen; /* borrowed, set by the owner; NULL: rows are as old as the clock says */
    sqlite3_stmt *stmts[GB_HISTORY_STMTS];
    sqlite3_stmt *select[GB_HISTORY_LEVELS];
    sqlite3_stmt *insert[GB_HISTORY_LEVELS];
    sqlite3_stmt *drop[GB_HISTORY_LEVELS];
};

int gb_history_init(struct gb_history *history, sqlite3 *db, const struct gb_history_limits *limits,
                    struct gb_error *err);
void gb_history_done(struct gb_history *history);

/* In the transaction that is open. Failures are STORE_FAILED. */
int gb_history_put(struct gb_history *history, const struct gb_history_sample *sample, struct gb_error *err);
int gb_history_roll(struct gb_history *history, int64_t now_us, bool *ret_more, struct gb_error *err);

#endif
