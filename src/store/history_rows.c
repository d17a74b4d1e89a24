/* Rows of the three tables to and from points. A sample has one column for each number, minutes and hours four for each
 * gauge. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/db.h"
#include "store/history.h"

const char *gb_history_table(enum gb_history_level level) {
    static const char *const tables[] = {"history_samples", "history_minutes", "history_hours"};

    return tables[level];
}

int gb_history_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct gb_error *err) {
    int r = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL);

    return r == SQLITE_OK ? 0 : gb_db_fail(db, r, "sqlite3_prepare_v3", GB_ERR_INTERNAL, err);
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
    fprintf(out, " FROM %s WHERE series = ?1 AND at_us >= ?2 AND at_us < ?3 ORDER BY at_us", gb_history_table(level));
}

static void write_insert(FILE *out, enum gb_history_level level) {
    bool sample = level == GB_HISTORY_SAMPLES;

    fprintf(out, "INSERT OR REPLACE INTO %s(series, at_us%s", gb_history_table(level), sample ? "" : ", samples");
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
        r = gb_history_prepare(db, sql, ret, err);
    free(sql);
    return r;
}

int gb_history_select(sqlite3 *db, enum gb_history_level level, sqlite3_stmt **ret, struct gb_error *err) {
    return prepare(db, write_select, level, ret, err);
}

int gb_history_insert(sqlite3 *db, enum gb_history_level level, sqlite3_stmt **ret, struct gb_error *err) {
    return prepare(db, write_insert, level, ret, err);
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

int gb_history_bind(sqlite3_stmt *stmt, enum gb_history_level level, int64_t series,
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

void gb_history_of_sample(const struct gb_history_sample *sample, struct gb_history_point *ret) {
    int i;

    ret->at_us = sample->at_us;
    ret->samples = 1;
    for (i = 0; i < GB_HISTORY_GAUGES; i++) {
        double value = sample->gauge[i];

        ret->gauge[i] = (struct gb_history_span){value, value, value, value};
    }
    memcpy(ret->counter, sample->counter, sizeof(ret->counter));
}
