/* Rolling up and forgetting: the writer's side. */
#include <string.h>

#include "store/db.h"
#include "store/history.h"

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
            if (gb_history_insert_row(history, level, s->id, &row, err) < 0)
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
        return gb_history_fail(history, r, err);
    if (sum.point.samples > 0) {
        gb_rollup_end(&sum, &row);
        if (gb_history_insert_row(history, level, s->id, &row, err) < 0)
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
        if (gb_history_run(history, stmt, err) < 0)
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
    if (gb_history_run(history, stmt, err) < 0)
        return -1;
    if (!s->dropped && s->last_us >= minute_us)
        return 0;
    sqlite3_bind_int64(history->stmts[GB_HISTORY_FORGET], 1, s->id);
    return gb_history_run(history, history->stmts[GB_HISTORY_FORGET], err);
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
        return gb_history_fail(history, r, err);
    for (i = 0; i < GB_HISTORY_LEVELS; i++) {
        uint64_t period_s = (uint64_t)(gb_history_period_us((enum gb_history_level)i) / 1000000);
        uint64_t most = history->limits.rows[i];

        for (; (uint64_t)rows[i] > most && found > 0 && turn < GB_HISTORY_CHUNK; turn++) {
            int k;

            found = gb_history_give_up(history, ended_us, gone, err);
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
    return r == SQLITE_DONE ? 0 : gb_history_fail(history, r, err);
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
