/* Columns and views of the history, which follow model/history.def; starts of the daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/columns.h"
#include "store/history.h"

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
    return gb_columns_add(db, gb_history_table(level), &columns, err);
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
    fprintf(out, " FROM history_series AS s JOIN %s AS h ON h.series = s.id WHERE s.scope = '%s'",
            gb_history_table(level), gb_history_scope_name(scope));
}

/* Made again where it is another: a start that changes nothing writes nothing. */
static int put_view(sqlite3 *db, const char *view, const char *sql, struct gb_error *err) {
    sqlite3_stmt *stmt = NULL;
    char drop[64];
    bool same;

    if (gb_history_prepare(db, "SELECT 1 FROM sqlite_schema WHERE type = 'view' AND name = ?1 AND sql = ?2", &stmt,
                           err) < 0)
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
