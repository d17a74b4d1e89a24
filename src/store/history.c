/* The history in the database: its tables, rows to and from points, samples that go in, and what has ended is rolled
 * up. The writer's side; the reader has a connection of its own. */
#include "store/history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/db.h"

/* --- rolling up points -------------------------------------------------------------------------------------------- */

void gb_rollup_begin(struct gb_rollup *r, int64_t at_us) {
    int i;

    memset(r, 0, sizeof(*r));
    r->point.at_us = at_us;
    for (i = 0; i < GB_HISTORY_GAUGES; i++)
        r->point.gauge[i] = (struct gb_history_span){NAN, NAN, NAN, NAN};
    for (i = 0; i < GB_HISTORY_COUNTERS; i++)
        r->point.counter[i] = NAN;
}

static void add_gauge(struct gb_rollup *r, int i, const struct gb_history_span *row, int64_t samples) {
    struct gb_history_span *span = &r->point.gauge[i];

    if (isnan(row->last))
        return;
    /* Comparisons with what is no number are false. */
    if (!(span->min <= row->min))
        span->min = row->min;
    if (!(span->max >= row->max))
        span->max = row->max;
    span->last = row->last;
    r->sum[i] += row->mean * (double)samples;
    r->weight[i] += samples;
}

void gb_rollup_add(struct gb_rollup *r, const struct gb_history_point *row) {
    int i;

    r->point.samples += row->samples;
    r->uncovered |= isnan(row->counter[GB_COUNTER_covered_s]);
    for (i = 0; i < GB_HISTORY_GAUGES; i++)
        add_gauge(r, i, &row->gauge[i], row->samples);
    for (i = 0; i < GB_HISTORY_COUNTERS; i++) {
        double *sum = &r->point.counter[i];

        if (!isnan(row->counter[i]))
            *sum = isnan(*sum) ? row->counter[i] : *sum + row->counter[i];
    }
}

void gb_rollup_end(const struct gb_rollup *r, struct gb_history_point *ret) {
    int i;

    *ret = r->point;
    if (r->uncovered)
        ret->counter[GB_COUNTER_covered_s] = NAN;
    for (i = 0; i < GB_HISTORY_GAUGES; i++) {
        if (r->weight[i] > 0)
            ret->gauge[i].mean = r->sum[i] / (double)r->weight[i];
    }
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Rows of the three tables to and from points. A sample has one column for each number, minutes and hours four for each
 * gauge. */

/* "history_samples" and so on. */
static const char *history_table(enum gb_history_level level) {
    static const char *const tables[] = {"history_samples", "history_minutes", "history_hours"};

    return tables[level];
}

/* --- statements --------------------------------------------------------------------------------------------------- */

static void write_columns(FILE *out, enum gb_history_level level) {
    int i;

    for (i = 0; i < GB_HISTORY_GAUGES; i++) {
        const char *name = gb_history_gauges[i].name;

        if (level == GB_HISTORY_SAMPLES)
            fprintf(out, ", %s", name);
        else
            fprintf(out, ", %s_min, %s_mean, %s_max, %s_last", name, name, name, name);
    }
    for (i = 0; i < GB_HISTORY_COUNTERS; i++)
        fprintf(out, ", %s", gb_history_counters[i].name);
}

static void write_marks(FILE *out, enum gb_history_level level) {
    int count = GB_HISTORY_GAUGES * (level == GB_HISTORY_SAMPLES ? 1 : 4) + GB_HISTORY_COUNTERS;
    int i;

    for (i = 0; i < count; i++)
        fputs(", ?", out);
}

static void write_select(FILE *out, enum gb_history_level level) {
    fprintf(out, "SELECT at_us, %s", level == GB_HISTORY_SAMPLES ? "1" : "samples");
    write_columns(out, level);
    fprintf(out, " FROM %s WHERE series = ?1 AND at_us >= ?2 AND at_us < ?3 ORDER BY at_us", history_table(level));
}

static void write_insert(FILE *out, enum gb_history_level level) {
    bool sample = level == GB_HISTORY_SAMPLES;

    fprintf(out, "INSERT OR REPLACE INTO %s(series, at_us%s", history_table(level), sample ? "" : ", samples");
    write_columns(out, level);
    fprintf(out, ") VALUES(?, ?%s", sample ? "" : ", ?");
    write_marks(out, level);
    fputc(')', out);
}

static int prepare(sqlite3 *db, void (*write)(FILE *, enum gb_history_level), enum gb_history_level level,
                   sqlite3_stmt **ret, struct gb_error *err) {
    char *sql = NULL;
    size_t n;
    FILE *out = open_memstream(&sql, &n);
    int r = -1;

    if (out)
        write(out, level);
    if (!out || fclose(out) != 0)
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    else
        r = gb_db_prepare(db, sql, ret, err);
    free(sql);
    return r;
}

int gb_history_select(sqlite3 *db, enum gb_history_level level, sqlite3_stmt **ret, struct gb_error *err) {
    return prepare(db, write_select, level, ret, err);
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static double read_number(sqlite3_stmt *stmt, int column) {
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? NAN : sqlite3_column_double(stmt, column);
}

void gb_history_read(sqlite3_stmt *stmt, enum gb_history_level level, struct gb_history_point *ret) {
    int at = 2;
    int i;

    ret->at_us = sqlite3_column_int64(stmt, 0);
    ret->samples = sqlite3_column_int64(stmt, 1);
    for (i = 0; i < GB_HISTORY_GAUGES; i++) {
        struct gb_history_span *span = &ret->gauge[i];

        span->min = read_number(stmt, at++);
        span->mean = level == GB_HISTORY_SAMPLES ? span->min : read_number(stmt, at++);
        span->max = level == GB_HISTORY_SAMPLES ? span->min : read_number(stmt, at++);
        span->last = level == GB_HISTORY_SAMPLES ? span->min : read_number(stmt, at++);
    }
    for (i = 0; i < GB_HISTORY_COUNTERS; i++)
        ret->counter[i] = read_number(stmt, at++);
}

struct binder {
    sqlite3_stmt *stmt;
    int at;
    int result;
};

/* Whole numbers as such: the columns of most take no others. */
static void bind_number(struct binder *b, double value) {
    int r;

    if (isnan(value))
        r = sqlite3_bind_null(b->stmt, ++b->at);
    else if (value > -9e18 && value < 9e18 && value == (double)(int64_t)value)
        r = sqlite3_bind_int64(b->stmt, ++b->at, (int64_t)value);
    else
        r = sqlite3_bind_double(b->stmt, ++b->at, value);
    if (b->result == SQLITE_OK)
        b->result = r;
}

/* SQLITE_OK or the first failure. */
static int history_bind(sqlite3_stmt *stmt, enum gb_history_level level, int64_t series,
                        const struct gb_history_point *point) {
    struct binder b = {.stmt = stmt};
    int i;

    b.result = sqlite3_bind_int64(stmt, ++b.at, series);
    if (b.result == SQLITE_OK)
        b.result = sqlite3_bind_int64(stmt, ++b.at, point->at_us);
    if (level != GB_HISTORY_SAMPLES)
        bind_number(&b, (double)point->samples);
    for (i = 0; i < GB_HISTORY_GAUGES; i++) {
        const struct gb_history_span *span = &point->gauge[i];

        if (level != GB_HISTORY_SAMPLES) {
            bind_number(&b, span->min);
            bind_number(&b, span->mean);
            bind_number(&b, span->max);
        }
        bind_number(&b, span->last);
    }
    for (i = 0; i < GB_HISTORY_COUNTERS; i++)
        bind_number(&b, point->counter[i]);
    return b.result;
}

/* As a row of the level of samples. */
static void history_of_sample(const struct gb_history_sample *sample, struct gb_history_point *ret) {
    int i;

    ret->at_us = sample->at_us;
    ret->samples = 1;
    for (i = 0; i < GB_HISTORY_GAUGES; i++) {
        double value = sample->gauge[i];

        ret->gauge[i] = (struct gb_history_span){value, value, value, value};
    }
    memcpy(ret->counter, sample->counter, sizeof(ret->counter));
}

/* --- tables and starts -------------------------------------------------------------------------------------------- */

/* Columns and views of the history, which follow model/history.def; starts of the daemon. */

static const char *const gauge_types[] = {
#define GB_GAUGE(name, type, scopes) #type,
#include "model/history.def"
};
static const char *const counter_types[] = {
#define GB_COUNTER(name, type, scopes) #type,
#include "model/history.def"
};

/* --- columns ------------------------------------------------------------------------------------------------------ */

static void want_gauge(struct gb_columns *columns, bool sample, int i) {
    const char *name = gb_history_gauges[i].name;
    const char *type = gauge_types[i];

    if (sample) {
        gb_columns_want(columns, name, "", type);
        return;
    }
    gb_columns_want(columns, name, "_min", type);
    gb_columns_want(columns, name, "_mean", "REAL");
    gb_columns_want(columns, name, "_max", type);
    gb_columns_want(columns, name, "_last", type);
}

static int add_columns(sqlite3 *db, enum gb_history_level level, struct gb_error *err) {
    struct gb_columns columns = {0};
    int i;

    for (i = 0; i < GB_HISTORY_GAUGES; i++)
        want_gauge(&columns, level == GB_HISTORY_SAMPLES, i);
    for (i = 0; i < GB_HISTORY_COUNTERS; i++)
        gb_columns_want(&columns, gb_history_counters[i].name, "", counter_types[i]);
    return gb_columns_add(db, history_table(level), &columns, err);
}

/* --- views -------------------------------------------------------------------------------------------------------- */

#define TIME(column) "strftime('%Y-%m-%dT%H:%M:%fZ', " column " / 1000000.0, 'unixepoch')"

/* What tells one series of the scope from another, for people. */
static const char *const view_keys[] = {
    [GB_HISTORY_DAEMON] = "",
    [GB_HISTORY_DEVICE] = ", s.device AS device, s.uuid AS uuid",
    [GB_HISTORY_POOL] = ", s.session AS session, s.name AS pool, s.object_id AS pool_id, s.device AS device,"
                        " CASE s.device_uuid WHEN '' THEN s.uuid ELSE s.device_uuid END AS uuid",
    [GB_HISTORY_SESSION] = ", s.session AS session, s.object_id AS session_id",
};

static void write_view(FILE *out, const char *view, enum gb_history_scope scope, enum gb_history_level level) {
    bool sample = level == GB_HISTORY_SAMPLES;
    int i;

    fprintf(out, "CREATE VIEW %s AS SELECT %s AS at%s%s", view, TIME("h.at_us"), view_keys[scope],
            sample ? "" : ", h.samples AS samples");
    for (i = 0; i < GB_HISTORY_GAUGES; i++) {
        const char *n = gb_history_gauges[i].name;

        if (!gb_history_has(&gb_history_gauges[i], scope))
            continue;
        if (sample)
            fprintf(out, ", h.%s AS %s", n, n);
        else
            fprintf(out, ", h.%s_min AS %s_min, h.%s_mean AS %s_mean, h.%s_max AS %s_max, h.%s_last AS %s_last", n, n,
                    n, n, n, n, n, n);
    }
    for (i = 0; i < GB_HISTORY_COUNTERS; i++) {
        const char *n = gb_history_counters[i].name;

        if (gb_history_has(&gb_history_counters[i], scope))
            fprintf(out, ", h.%s AS %s", n, n);
    }
    fprintf(out, " FROM history_series AS s JOIN %s AS h ON h.series = s.id WHERE s.scope = '%s'", history_table(level),
            gb_history_scope_name(scope));
}

/* Made again where it is another: a start that changes nothing writes nothing. */
static int put_view(sqlite3 *db, const char *view, const char *sql, struct gb_error *err) {
    sqlite3_stmt *stmt = NULL;
    char drop[64];
    bool same;

    if (gb_db_prepare(db, "SELECT 1 FROM sqlite_schema WHERE type = 'view' AND name = ?1 AND sql = ?2", &stmt, err) < 0)
        return -1;
    sqlite3_bind_text(stmt, 1, view, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, sql, -1, SQLITE_STATIC);
    same = sqlite3_step(stmt) == SQLITE_ROW;
    sqlite3_finalize(stmt);
    if (same)
        return 0;
    snprintf(drop, sizeof(drop), "DROP VIEW IF EXISTS %s", view);
    return gb_db_exec(db, drop, err) < 0 ? -1 : gb_db_exec(db, sql, err);
}

static int make_view(sqlite3 *db, enum gb_history_scope scope, enum gb_history_level level, struct gb_error *err) {
    static const char *const names[] = {"daemon", "devices", "pools", "sessions"};
    static const char *const suffixes[] = {"", "_minutes", "_hours"};
    char view[32];
    char *sql = NULL;
    size_t n;
    FILE *out = open_memstream(&sql, &n);
    int r = -1;

    snprintf(view, sizeof(view), "v_%s%s", names[scope], suffixes[level]);
    if (out)
        write_view(out, view, scope, level);
    if (!out || fclose(out) != 0)
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    else
        r = put_view(db, view, sql, err);
    free(sql);
    return r;
}

static int make_views(sqlite3 *db, struct gb_error *err) {
    static const char starts[] = "CREATE VIEW v_starts AS SELECT " TIME("at_us") " AS at, " TIME(
        "ended_at_us") " AS ended_at, how_it_ended FROM history_starts";
    int scope;
    int level;

    for (scope = 0; scope < GB_HISTORY_SCOPES; scope++) {
        for (level = 0; level < GB_HISTORY_LEVELS; level++) {
            if (make_view(db, (enum gb_history_scope)scope, (enum gb_history_level)level, err) < 0)
                return -1;
        }
    }
    return put_view(db, "v_starts", starts, err);
}

int gb_history_migrate(sqlite3 *db, struct gb_error *err) {
    int r = gb_db_exec(db, "BEGIN IMMEDIATE", err);
    int level;

    if (r < 0)
        return -1;
    for (level = 0; level < GB_HISTORY_LEVELS && r == 0; level++)
        r = add_columns(db, (enum gb_history_level)level, err);
    if (r == 0)
        r = make_views(db, err);
    if (r == 0)
        r = gb_db_exec(db, "COMMIT", err);
    if (!sqlite3_get_autocommit(db))
        gb_db_exec(db, "ROLLBACK", NULL);
    return r;
}

/* --- starts ------------------------------------------------------------------------------------------------------- */

/* A run that did not say that it ended was killed, or the machine was: it was last seen at its last sample. */
int gb_history_started(sqlite3 *db, int64_t now_us, struct gb_error *err) {
    char sql[640];

    snprintf(sql, sizeof(sql),
             "BEGIN IMMEDIATE;"
             "UPDATE history_starts SET how_it_ended = 'unknown', ended_at_us = max(at_us, coalesce((SELECT last_at_us"
             " FROM history_series WHERE scope = 'daemon'), at_us)) WHERE how_it_ended = 'running';"
             "INSERT INTO history_starts(at_us, how_it_ended) VALUES(%lld, 'running');"
             "DELETE FROM history_starts WHERE id <= last_insert_rowid() - %d;"
             "COMMIT",
             (long long)now_us, GB_HISTORY_STARTS_MAX);
    if (gb_db_exec(db, sql, err) == 0)
        return 0;
    if (!sqlite3_get_autocommit(db))
        gb_db_exec(db, "ROLLBACK", NULL);
    return -1;
}

int gb_history_stopped(sqlite3 *db, int64_t now_us, struct gb_error *err) {
    char sql[160];

    snprintf(sql, sizeof(sql),
             "UPDATE history_starts SET how_it_ended = 'stopped', ended_at_us = %lld WHERE how_it_ended = 'running'",
             (long long)now_us);
    return gb_db_exec(db, sql, err);
}

int gb_history_broke_off(sqlite3 *db, bool started, bool *ret, struct gb_error *err) {
    static const char last[] = "SELECT how_it_ended <> 'stopped' FROM history_starts ORDER BY id DESC LIMIT 1";
    static const char before[] =
        "SELECT how_it_ended <> 'stopped' FROM history_starts ORDER BY id DESC LIMIT 1 OFFSET 1";
    int64_t broke_off = 0;

    if (gb_db_int(db, started ? before : last, &broke_off, err) < 0)
        return -1;
    *ret = broke_off != 0;
    return 0;
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

/* Samples go in, and what has ended is rolled up: the writer's side. */

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
    if (gb_db_prepare_all(db, sqls, GB_HISTORY_STMTS, history->stmts, err) < 0 ||
        gb_db_prepare_all(db, drops, GB_HISTORY_LEVELS, history->drop, err) < 0)
        return -1;
    for (i = 0; i < GB_HISTORY_LEVELS; i++) {
        if (gb_history_select(db, (enum gb_history_level)i, &history->select[i], err) < 0 ||
            prepare(db, write_insert, (enum gb_history_level)i, &history->insert[i], err) < 0)
            return -1;
    }
    return 0;
}

void gb_history_done(struct gb_history *history) {
    gb_db_finalize_all(history->stmts, GB_HISTORY_STMTS);
    gb_db_finalize_all(history->select, GB_HISTORY_LEVELS);
    gb_db_finalize_all(history->insert, GB_HISTORY_LEVELS);
    gb_db_finalize_all(history->drop, GB_HISTORY_LEVELS);
    memset(history, 0, sizeof(*history));
}

/* Steps of these. */
static int history_fail(struct gb_history *history, int r, struct gb_error *err) {
    return gb_db_fail(history->db, r, "sqlite3_step", GB_ERR_STORE_FAILED, err);
}

/* 1: *ret is the first column of the one row; 0: none; -1. */
static int history_take(struct gb_history *history, sqlite3_stmt *stmt, int64_t *ret, struct gb_error *err) {
    int r = sqlite3_step(stmt);
    int found = r == SQLITE_ROW;

    if (found) {
        *ret = sqlite3_column_int64(stmt, 0);
        r = sqlite3_step(stmt);
    }
    if (r != SQLITE_DONE)
        history_fail(history, r, err);
    sqlite3_reset(stmt);
    return r == SQLITE_DONE ? found : -1;
}

static int history_run(struct gb_history *history, sqlite3_stmt *stmt, struct gb_error *err) {
    int64_t unused;

    return history_take(history, stmt, &unused, err) < 0 ? -1 : 0;
}

/* --- a sample goes in --------------------------------------------------------------------------------------------- */

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
static int history_give_up(struct gb_history *history, int64_t before_us, int64_t ret_rows[GB_HISTORY_LEVELS],
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
        history_fail(history, r, err);
    sqlite3_reset(stmt);
    return r == SQLITE_DONE ? found : -1;
}

/* 1, 0 (all that have a past are there still: this one gets none), -1. The daemon, devices and their own pools are not
 * counted: no client makes them. */
static int make_room(struct gb_history *history, const struct gb_history_sample *s, struct gb_error *err) {
    int64_t count = 0;

    if (s->key.id == 0)
        return 1;
    if (history_take(history, history->stmts[GB_HISTORY_COUNT], &count, err) < 0)
        return -1;
    return (uint64_t)count < history->limits.series ? 1 : history_give_up(history, s->at_us, NULL, err);
}

/* 1: *ret is its number; 0: no number; -1. */
static int find_series(struct gb_history *history, const struct gb_history_sample *s, int64_t *ret,
                       struct gb_error *err) {
    int r = history_take(history, bind_series(history, GB_HISTORY_TOUCH, s), ret, err);

    if (r == 0 && s->key.scope == GB_HISTORY_POOL && s->key.id == 0) {
        if (history_run(history, bind_series(history, GB_HISTORY_ADOPT, s), err) < 0)
            return -1;
        r = history_take(history, bind_series(history, GB_HISTORY_TOUCH, s), ret, err);
    }
    if (r != 0)
        return r;
    r = make_room(history, s, err);
    return r <= 0 ? r : history_take(history, bind_series(history, GB_HISTORY_CREATE, s), ret, err);
}

static int history_insert_row(struct gb_history *history, enum gb_history_level level, int64_t series,
                              const struct gb_history_point *point, struct gb_error *err) {
    sqlite3_stmt *stmt = history->insert[level];
    int r = history_bind(stmt, level, series, point);

    if (r != SQLITE_OK)
        return gb_db_fail(history->db, r, "sqlite3_bind", GB_ERR_STORE_FAILED, err);
    return history_run(history, stmt, err);
}

int gb_history_put(struct gb_history *history, const struct gb_history_sample *sample, struct gb_error *err) {
    struct gb_history_point point;
    int64_t series = 0;
    int r = find_series(history, sample, &series, err);

    if (r <= 0)
        return r;
    history_of_sample(sample, &point);
    return history_insert_row(history, GB_HISTORY_SAMPLES, series, &point, err);
}

/* --- rolling up and forgetting ------------------------------------------------------------------------------------ */

/* Rows that one visit of a series reads, or drops, of a level: the rest waits for the next. */
#define VISIT_ROWS 2000

/* --- rolling up --------------------------------------------------------------------------------------------------- */

struct series {
    int64_t id;
    bool dropped;
    bool shares;                     /* its rows with others */
    int64_t rows[GB_HISTORY_LEVELS]; /* more than before this visit */
    int64_t last_us;
    int64_t until_us[GB_HISTORY_LEVELS]; /* rolled up; of samples: not used */
};

/* Spans of `level` from rows of the finer one, from until_us[level] to before end_us, which is a whole number of spans.
 * Where there are too many rows for now, the last span that was begun is left for the next visit. */
static int roll(struct gb_history *history, struct series *s, enum gb_history_level level, int64_t end_us,
                struct gb_error *err) {
    enum gb_history_level finer = level - 1;
    int64_t span_us = gb_history_period_us(level);
    sqlite3_stmt *stmt = history->select[finer];
    struct gb_history_point row;
    struct gb_rollup sum = {.point.samples = 0};
    int rows = 0;
    int r;

    sqlite3_bind_int64(stmt, 1, s->id);
    sqlite3_bind_int64(stmt, 2, s->until_us[level]);
    sqlite3_bind_int64(stmt, 3, end_us);
    while ((r = sqlite3_step(stmt)) == SQLITE_ROW) {
        int64_t at_us;

        gb_history_read(stmt, finer, &row);
        at_us = gb_history_floor(row.at_us, span_us);
        if (sum.point.samples > 0 && at_us != sum.point.at_us) {
            gb_rollup_end(&sum, &row);
            if (history_insert_row(history, level, s->id, &row, err) < 0)
                break;
            s->rows[level]++;
            gb_history_read(stmt, finer, &row);
            sum.point.samples = 0;
            if (rows >= VISIT_ROWS) {
                end_us = at_us;
                r = SQLITE_DONE;
                break;
            }
        }
        if (sum.point.samples == 0)
            gb_rollup_begin(&sum, at_us);
        gb_rollup_add(&sum, &row);
        rows++;
    }
    sqlite3_reset(stmt);
    if (r == SQLITE_ROW)
        return -1; /* of the insert */
    if (r != SQLITE_DONE)
        return history_fail(history, r, err);
    if (sum.point.samples > 0) {
        gb_rollup_end(&sum, &row);
        if (history_insert_row(history, level, s->id, &row, err) < 0)
            return -1;
        s->rows[level]++;
    }
    s->until_us[level] = end_us;
    return 0;
}

/* For how long it may be kept, where all that share have more rows than they may: 0: no less than by age. */
struct shares {
    uint64_t keep_s[GB_HISTORY_LEVELS];
};

static int64_t before(const struct gb_history *history, const struct series *s, const struct shares *shares, int level,
                      int64_t now_us) {
    uint64_t keep_s = history->limits.keep_s[level];
    int64_t before_us;

    if (s->dropped)
        return INT64_MAX;
    if (s->shares && shares->keep_s[level] > 0 && shares->keep_s[level] < keep_s)
        keep_s = shares->keep_s[level];
    before_us = keep_s < (uint64_t)now_us / 1000000 ? now_us - (int64_t)keep_s * 1000000 : 0;
    if (before_us > 0 && history->seen) {
        int64_t since_us = gb_seen_since(history->seen, (int64_t)keep_s * 1000000);

        before_us = since_us < before_us ? since_us : before_us;
    }
    /* What is not rolled up yet stays, so that it can be. */
    if (level < GB_HISTORY_HOURS && before_us > s->until_us[level + 1])
        before_us = s->until_us[level + 1];
    return before_us;
}

static int expire(struct gb_history *history, struct series *s, const struct shares *shares, int64_t now_us,
                  struct gb_error *err) {
    int level;

    for (level = 0; level < GB_HISTORY_LEVELS; level++) {
        sqlite3_stmt *stmt = history->drop[level];

        sqlite3_bind_int64(stmt, 1, s->id);
        sqlite3_bind_int64(stmt, 2, before(history, s, shares, level, now_us));
        sqlite3_bind_int64(stmt, 3, VISIT_ROWS);
        if (history_run(history, stmt, err) < 0)
            return -1;
        s->rows[level] -= sqlite3_changes(history->db);
    }
    return 0;
}

static int note_visit(struct gb_history *history, const struct series *s, int64_t minute_us, struct gb_error *err) {
    sqlite3_stmt *stmt = history->stmts[GB_HISTORY_VISITED];
    int i;

    sqlite3_bind_int64(stmt, 1, s->id);
    sqlite3_bind_int64(stmt, 2, s->until_us[GB_HISTORY_MINUTES]);
    sqlite3_bind_int64(stmt, 3, s->until_us[GB_HISTORY_HOURS]);
    sqlite3_bind_int64(stmt, 4, minute_us);
    for (i = 0; i < GB_HISTORY_LEVELS; i++)
        sqlite3_bind_int64(stmt, 5 + i, s->rows[i]);
    if (history_run(history, stmt, err) < 0)
        return -1;
    if (!s->dropped && s->last_us >= minute_us)
        return 0;
    sqlite3_bind_int64(history->stmts[GB_HISTORY_FORGET], 1, s->id);
    return history_run(history, history->stmts[GB_HISTORY_FORGET], err);
}

static int visit(struct gb_history *history, struct series *s, const struct shares *shares, int64_t now_us,
                 struct gb_error *err) {
    int64_t minute_us = gb_history_floor(now_us, gb_history_period_us(GB_HISTORY_MINUTES));
    int64_t hour_us = gb_history_floor(now_us, gb_history_period_us(GB_HISTORY_HOURS));

    if (!s->dropped && s->until_us[GB_HISTORY_MINUTES] < minute_us &&
        roll(history, s, GB_HISTORY_MINUTES, minute_us, err) < 0)
        return -1;
    /* An hour only of minutes that are there. */
    if (hour_us > s->until_us[GB_HISTORY_MINUTES])
        hour_us = gb_history_floor(s->until_us[GB_HISTORY_MINUTES], gb_history_period_us(GB_HISTORY_HOURS));
    if (!s->dropped && s->until_us[GB_HISTORY_HOURS] < hour_us && roll(history, s, GB_HISTORY_HOURS, hour_us, err) < 0)
        return -1;
    return expire(history, s, shares, now_us, err) < 0 ? -1 : note_visit(history, s, minute_us, err);
}

/* --- bounds ------------------------------------------------------------------------------------------------------- */

/* Where sessions and pools have more rows than they may, the pasts of those that ended first are given up, some in each
 * turn; where none has ended, each has its share. */
static int share(struct gb_history *history, int64_t now_us, struct shares *ret, struct gb_error *err) {
    sqlite3_stmt *stmt = history->stmts[GB_HISTORY_TOTALS];
    int64_t ended_us = now_us - gb_history_period_us(GB_HISTORY_HOURS);
    int64_t rows[GB_HISTORY_LEVELS] = {0};
    int64_t gone[GB_HISTORY_LEVELS] = {0};
    int64_t live = 0;
    int turn = 0;
    int found = 1;
    int i;
    int r;

    sqlite3_bind_int64(stmt, 1, ended_us);
    r = sqlite3_step(stmt);
    for (i = 0; i < GB_HISTORY_LEVELS && r == SQLITE_ROW; i++)
        rows[i] = sqlite3_column_int64(stmt, i);
    if (r == SQLITE_ROW)
        live = sqlite3_column_int64(stmt, GB_HISTORY_LEVELS);
    sqlite3_reset(stmt);
    if (r != SQLITE_ROW)
        return history_fail(history, r, err);
    for (i = 0; i < GB_HISTORY_LEVELS; i++) {
        uint64_t period_s = (uint64_t)(gb_history_period_us((enum gb_history_level)i) / 1000000);
        uint64_t most = history->limits.rows[i];

        for (; (uint64_t)rows[i] > most && found > 0 && turn < GB_HISTORY_CHUNK; turn++) {
            int k;

            found = history_give_up(history, ended_us, gone, err);
            if (found < 0)
                return -1;
            for (k = 0; k < GB_HISTORY_LEVELS && found; k++)
                rows[k] -= gone[k];
        }
        if (i == GB_HISTORY_SAMPLES)
            period_s = history->limits.interval_s;
        if ((uint64_t)rows[i] > most)
            ret->keep_s[i] = most / (uint64_t)(live > 0 ? live : 1) * (period_s > 0 ? period_s : 1) + 1;
    }
    return 0;
}

static int read_due(struct gb_history *history, int64_t now_us, struct series due[GB_HISTORY_CHUNK], int *ret_count,
                    struct gb_error *err) {
    sqlite3_stmt *stmt = history->stmts[GB_HISTORY_DUE];
    int count = 0;
    int r;

    sqlite3_bind_int64(stmt, 1, gb_history_floor(now_us, gb_history_period_us(GB_HISTORY_MINUTES)));
    sqlite3_bind_int64(stmt, 2, GB_HISTORY_CHUNK);
    while ((r = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct series *s = &due[count++];
        const char *scope = (const char *)sqlite3_column_text(stmt, 1);

        *s = (struct series){.id = sqlite3_column_int64(stmt, 0),
                             .dropped = scope && strcmp(scope, "dropped") == 0,
                             .shares = sqlite3_column_int64(stmt, 2) > 0,
                             .last_us = sqlite3_column_int64(stmt, 3)};
        s->until_us[GB_HISTORY_MINUTES] = sqlite3_column_int64(stmt, 4);
        s->until_us[GB_HISTORY_HOURS] = sqlite3_column_int64(stmt, 5);
    }
    sqlite3_reset(stmt);
    *ret_count = count;
    return r == SQLITE_DONE ? 0 : history_fail(history, r, err);
}

int gb_history_roll(struct gb_history *history, int64_t now_us, bool *ret_more, struct gb_error *err) {
    struct series due[GB_HISTORY_CHUNK];
    struct shares shares = {{0}};
    int count = 0;
    int i;

    if (share(history, now_us, &shares, err) < 0 || read_due(history, now_us, due, &count, err) < 0)
        return -1;
    for (i = 0; i < count; i++) {
        if (visit(history, &due[i], &shares, now_us, err) < 0)
            return -1;
    }
    *ret_more = count == GB_HISTORY_CHUNK;
    return 0;
}
