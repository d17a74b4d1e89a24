/* Samples go in, and what has ended is rolled up: the writer's side. */
#include "store/history.h"

#include <string.h>

#include "store/db.h"

static const char *const sqls[GB_HISTORY_STMTS] = {
    /* A clock that was set back: what comes again is rolled up again. */
    [GB_HISTORY_TOUCH] =
        "UPDATE history_series SET sample_rows = sample_rows + 1, last_at_us = ?4, session = ?5, name = "
        "?6, device = ?7, device_uuid = ?10,"
        " minutes_until_us = min(minutes_until_us, ?8), hours_until_us = min(hours_until_us, ?9)"
        " WHERE scope = ?1 AND object_id = ?2 AND uuid = ?3 RETURNING id",
    [GB_HISTORY_ADOPT] =
        "UPDATE history_series SET uuid = ?3 WHERE scope = ?1 AND object_id = ?2 AND uuid = 'old ' || ?7",
    [GB_HISTORY_COUNT] = "SELECT count(*) FROM history_series WHERE scope IN ('pool', 'session') AND object_id > 0",
    [GB_HISTORY_TOTALS] =
        "SELECT sum(sample_rows), sum(minute_rows), sum(hour_rows), sum(last_at_us >= ?1) FROM history_series"
        " WHERE scope IN ('pool', 'session') AND object_id > 0",
    [GB_HISTORY_OLDEST] =
        "UPDATE history_series SET scope = 'dropped', object_id = -id WHERE id = (SELECT id FROM history_series"
        " WHERE scope IN ('pool', 'session') AND object_id > 0 AND last_at_us < ?1 ORDER BY last_at_us LIMIT 1)"
        " RETURNING sample_rows, minute_rows, hour_rows",
    [GB_HISTORY_CREATE] = "INSERT INTO history_series(scope, object_id, uuid, first_at_us, last_at_us, session, name, "
                          "device, device_uuid,"
                          " minutes_until_us, hours_until_us, visited_us, sample_rows, minute_rows, hour_rows)"
                          " VALUES(?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?10, ?8, ?9, 0, 1, 0, 0) RETURNING id",
    [GB_HISTORY_DUE] = "SELECT id, scope, object_id, last_at_us, minutes_until_us, hours_until_us FROM history_series"
                       " WHERE visited_us <> ?1 ORDER BY visited_us LIMIT ?2",
    [GB_HISTORY_VISITED] = "UPDATE history_series SET minutes_until_us = ?2, hours_until_us = ?3, visited_us = ?4,"
                           " sample_rows = max(0, sample_rows + ?5), minute_rows = max(0, minute_rows + ?6),"
                           " hour_rows = max(0, hour_rows + ?7) WHERE id = ?1",
    [GB_HISTORY_FORGET] = "DELETE FROM history_series WHERE id = ?1"
                          " AND NOT EXISTS(SELECT 1 FROM history_samples WHERE series = ?1)"
                          " AND NOT EXISTS(SELECT 1 FROM history_minutes WHERE series = ?1)"
                          " AND NOT EXISTS(SELECT 1 FROM history_hours WHERE series = ?1)",
};

/* The oldest rows before ?2, a bounded number of them. */
static const char *const drops[GB_HISTORY_LEVELS] = {
    "DELETE FROM history_samples WHERE series = ?1 AND at_us < min(?2, coalesce((SELECT at_us FROM history_samples"
    " WHERE series = ?1 ORDER BY at_us LIMIT 1 OFFSET ?3), ?2))",
    "DELETE FROM history_minutes WHERE series = ?1 AND at_us < min(?2, coalesce((SELECT at_us FROM history_minutes"
    " WHERE series = ?1 ORDER BY at_us LIMIT 1 OFFSET ?3), ?2))",
    "DELETE FROM history_hours WHERE series = ?1 AND at_us < min(?2, coalesce((SELECT at_us FROM history_hours"
    " WHERE series = ?1 ORDER BY at_us LIMIT 1 OFFSET ?3), ?2))",
};

int gb_history_init(struct gb_history *history, sqlite3 *db, const struct gb_history_limits *limits,
                    struct gb_error *err) {
    int i;

    memset(history, 0, sizeof(*history));
    history->db = db;
    history->limits = *limits;
    for (i = 0; i < GB_HISTORY_STMTS; i++) {
        if (gb_history_prepare(db, sqls[i], &history->stmts[i], err) < 0)
            return -1;
    }
    for (i = 0; i < GB_HISTORY_LEVELS; i++) {
        if (gb_history_select(db, (enum gb_history_level)i, &history->select[i], err) < 0 ||
            gb_history_insert(db, (enum gb_history_level)i, &history->insert[i], err) < 0 ||
            gb_history_prepare(db, drops[i], &history->drop[i], err) < 0)
            return -1;
    }
    return 0;
}

void gb_history_done(struct gb_history *history) {
    int i;

    for (i = 0; i < GB_HISTORY_STMTS; i++)
        sqlite3_finalize(history->stmts[i]);
    for (i = 0; i < GB_HISTORY_LEVELS; i++) {
        sqlite3_finalize(history->select[i]);
        sqlite3_finalize(history->insert[i]);
        sqlite3_finalize(history->drop[i]);
    }
    memset(history, 0, sizeof(*history));
}

int gb_history_fail(struct gb_history *history, int r, struct gb_error *err) {
    return gb_db_fail(history->db, r, "sqlite3_step", GB_ERR_STORE_FAILED, err);
}

/* 1: *ret is the first column of the one row; 0: none; -1. */
int gb_history_take(struct gb_history *history, sqlite3_stmt *stmt, int64_t *ret, struct gb_error *err) {
    int r = sqlite3_step(stmt);
    int found = r == SQLITE_ROW;

    if (found) {
        *ret = sqlite3_column_int64(stmt, 0);
        r = sqlite3_step(stmt);
    }
    if (r != SQLITE_DONE)
        gb_history_fail(history, r, err);
    sqlite3_reset(stmt);
    return r == SQLITE_DONE ? found : -1;
}

int gb_history_run(struct gb_history *history, sqlite3_stmt *stmt, struct gb_error *err) {
    int64_t unused;

    return gb_history_take(history, stmt, &unused, err) < 0 ? -1 : 0;
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

static sqlite3_stmt *bind_series(struct gb_history *history, enum gb_history_stmt which,
                                 const struct gb_history_sample *s) {
    sqlite3_stmt *stmt = history->stmts[which];

    sqlite3_bind_text(stmt, 1, gb_history_scope_name(s->key.scope), -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, s->key.id);
    sqlite3_bind_text(stmt, 3, s->key.uuid, -1, SQLITE_STATIC);
    if (which != GB_HISTORY_ADOPT) {
        sqlite3_bind_int64(stmt, 4, s->at_us);
        sqlite3_bind_text(stmt, 5, s->session, -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 6, s->name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 8, gb_history_floor(s->at_us, gb_history_period_us(GB_HISTORY_MINUTES)));
        sqlite3_bind_int64(stmt, 9, gb_history_floor(s->at_us, gb_history_period_us(GB_HISTORY_HOURS)));
        sqlite3_bind_text(stmt, 10, s->device_uuid, -1, SQLITE_STATIC);
    }
    sqlite3_bind_int64(stmt, 7, s->device);
    return stmt;
}

/* The past of the session or pool that ended first, before before_us, is given up: its rows go with the next visits. 1,
 * 0: none ended; -1. ret_rows (may be NULL): how many these are. */
int gb_history_give_up(struct gb_history *history, int64_t before_us, int64_t ret_rows[GB_HISTORY_LEVELS],
                       struct gb_error *err) {
    sqlite3_stmt *stmt = history->stmts[GB_HISTORY_OLDEST];
    int found;
    int i;
    int r;

    sqlite3_bind_int64(stmt, 1, before_us);
    r = sqlite3_step(stmt);
    found = r == SQLITE_ROW;
    for (i = 0; i < GB_HISTORY_LEVELS && found && ret_rows; i++)
        ret_rows[i] = sqlite3_column_int64(stmt, i);
    if (found)
        r = sqlite3_step(stmt);
    if (r != SQLITE_DONE)
        gb_history_fail(history, r, err);
    sqlite3_reset(stmt);
    return r == SQLITE_DONE ? found : -1;
}

/* 1, 0 (all that have a past are there still: this one gets none), -1. The daemon, devices and their own pools are not
 * counted: no client makes them. */
static int make_room(struct gb_history *history, const struct gb_history_sample *s, struct gb_error *err) {
    int64_t count = 0;

    if (s->key.id == 0)
        return 1;
    if (gb_history_take(history, history->stmts[GB_HISTORY_COUNT], &count, err) < 0)
        return -1;
    return (uint64_t)count < history->limits.series ? 1 : gb_history_give_up(history, s->at_us, NULL, err);
}

/* 1: *ret is its number; 0: no number; -1. */
static int find_series(struct gb_history *history, const struct gb_history_sample *s, int64_t *ret,
                       struct gb_error *err) {
    int r = gb_history_take(history, bind_series(history, GB_HISTORY_TOUCH, s), ret, err);

    if (r == 0 && s->key.scope == GB_HISTORY_POOL && s->key.id == 0) {
        if (gb_history_run(history, bind_series(history, GB_HISTORY_ADOPT, s), err) < 0)
            return -1;
        r = gb_history_take(history, bind_series(history, GB_HISTORY_TOUCH, s), ret, err);
    }
    if (r != 0)
        return r;
    r = make_room(history, s, err);
    return r <= 0 ? r : gb_history_take(history, bind_series(history, GB_HISTORY_CREATE, s), ret, err);
}

int gb_history_insert_row(struct gb_history *history, enum gb_history_level level, int64_t series,
                          const struct gb_history_point *point, struct gb_error *err) {
    sqlite3_stmt *stmt = history->insert[level];
    int r = gb_history_bind(stmt, level, series, point);

    if (r != SQLITE_OK)
        return gb_db_fail(history->db, r, "sqlite3_bind", GB_ERR_STORE_FAILED, err);
    return gb_history_run(history, stmt, err);
}

int gb_history_put(struct gb_history *history, const struct gb_history_sample *sample, struct gb_error *err) {
    struct gb_history_point point;
    int64_t series = 0;
    int r = find_series(history, sample, &series, err);

    if (r <= 0)
        return r;
    gb_history_of_sample(sample, &point);
    return gb_history_insert_row(history, GB_HISTORY_SAMPLES, series, &point, err);
}
