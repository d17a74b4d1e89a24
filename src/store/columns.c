#include "store/columns.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int make_anew(sqlite3 *db, const char *table, const struct gb_columns *missing, struct gb_error *err) {
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
    return rows ? alter(db, table, &missing, err) : make_anew(db, table, &missing, err);
}
