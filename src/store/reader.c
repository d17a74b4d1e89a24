/* Connections that only read: one with a thread that answers queries of the past, and one for stored bytes that lie in
 * the database. */
#include "store/reader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "store/db.h"
#include "store/history.h"

/* --- queries of the past ------------------------------------------------------------------------------------------ */

/* Instructions of SQLite's machine between two readings of the clock. */
#define LOOK_EVERY 10000

struct ask {
    struct ask *next;
    struct gb_history_key key;
    struct gb_history_plan plan;
    gb_history_done_fn *done;
    void *arg;
};

struct gb_reader {
    char *where;
    sqlite3 *db; /* the thread's alone from the start on, as all of these; NULL: to be opened again */
    sqlite3_stmt *find;
    sqlite3_stmt *starts;
    sqlite3_stmt *select[GB_HISTORY_LEVELS];
    uint64_t until_ns; /* of the query under way */
    pthread_t thread;
    bool thread_started;
    pthread_mutex_t lock; /* for all below */
    pthread_cond_t wake;
    struct ask *first;
    struct ask **last;
    unsigned waiting;
    bool stopping;
    char *move; /* where to continue; NULL: where it is */
};

void gb_history_answer_done(struct gb_history_answer *answer) {
    free(answer->points);
    free(answer->restarts);
    answer->points = NULL;
    answer->restarts = NULL;
}

/* --- one query ---------------------------------------------------------------------------------------------------- */

struct building {
    struct gb_reader *reader;
    const struct gb_history_plan *plan;
    int64_t step_us;
    int64_t series;
    struct gb_history_answer *answer;
    size_t room;
    struct gb_rollup sum;
};

static int too_long(void *arg) {
    struct gb_reader *r = arg;

    return gb_clock_ns() > r->until_ns;
}

static int fail(struct gb_reader *r, int result, struct gb_error *err) {
    if ((result & 0xff) == SQLITE_INTERRUPT)
        return gb_error_set(err, GB_ERR_SATURATED,
                            "the history could not be read in the permitted time; try again later");
    return gb_db_fail(r->db, result, "sqlite3_step", GB_ERR_INTERNAL, err);
}

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SATURATED, "no memory for the reply; try again later");
}

/* The point that was being summed up is complete. */
static int push(struct building *b, struct gb_error *err) {
    struct gb_history_answer *a = b->answer;
    struct gb_history_point *bigger;

    if (b->sum.point.samples == 0)
        return 0;
    if (a->count == b->room) {
        size_t room = b->room ? b->room * 2 : 64;

        bigger = realloc(a->points, room * sizeof(*bigger));
        if (!bigger)
            return no_memory(err);
        a->points = bigger;
        b->room = room;
    }
    gb_rollup_end(&b->sum, &a->points[a->count++]);
    b->sum.point.samples = 0;
    return 0;
}

/* Rows of one level, in the order of time after what was read before. */
static int read_rows(struct building *b, enum gb_history_level level, int64_t from_us, int64_t to_us,
                     struct gb_error *err) {
    sqlite3_stmt *stmt = b->reader->select[level];
    struct gb_history_point row;
    int failed = 0;
    int r;

    if (from_us >= to_us)
        return 0;
    sqlite3_bind_int64(stmt, 1, b->series);
    sqlite3_bind_int64(stmt, 2, from_us);
    sqlite3_bind_int64(stmt, 3, to_us);
    while (!failed && (r = sqlite3_step(stmt)) == SQLITE_ROW) {
        int64_t at_us;

        gb_history_read(stmt, level, &row);
        at_us = gb_history_floor(row.at_us, b->step_us);
        if (b->sum.point.samples > 0 && at_us != b->sum.point.at_us)
            failed = push(b, err);
        if (b->sum.point.samples == 0)
            gb_rollup_begin(&b->sum, at_us);
        gb_rollup_add(&b->sum, &row);
    }
    if (!failed && r != SQLITE_DONE)
        failed = fail(b->reader, r, err);
    sqlite3_reset(stmt);
    return failed;
}

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* What is rolled up from the rows of the level, the rest from finer ones. */
static int read_series(struct building *b, int64_t minutes_until_us, int64_t hours_until_us, struct gb_error *err) {
    int64_t at_us = b->plan->since_us;
    int64_t end_us = b->plan->until_us;

    if (b->plan->level == GB_HISTORY_HOURS) {
        if (read_rows(b, GB_HISTORY_HOURS, at_us, earlier(end_us, hours_until_us), err) < 0)
            return -1;
        at_us = later(at_us, hours_until_us);
    }
    if (b->plan->level >= GB_HISTORY_MINUTES) {
        if (read_rows(b, GB_HISTORY_MINUTES, at_us, earlier(end_us, minutes_until_us), err) < 0)
            return -1;
        at_us = later(at_us, minutes_until_us);
    }
    if (read_rows(b, GB_HISTORY_SAMPLES, at_us, end_us, err) < 0)
        return -1;
    return push(b, err);
}

static int read_starts(struct gb_reader *r, const struct gb_history_plan *plan, struct gb_history_answer *a,
                       struct gb_error *err) {
    int result;

    a->restarts = malloc(GB_HISTORY_STARTS_MAX * sizeof(*a->restarts));
    if (!a->restarts)
        return no_memory(err);
    sqlite3_bind_int64(r->starts, 1, plan->since_us);
    sqlite3_bind_int64(r->starts, 2, plan->until_us);
    while ((result = sqlite3_step(r->starts)) == SQLITE_ROW && a->restart_count < GB_HISTORY_STARTS_MAX)
        a->restarts[a->restart_count++] = sqlite3_column_int64(r->starts, 0);
    sqlite3_reset(r->starts);
    return result == SQLITE_DONE || result == SQLITE_ROW ? 0 : fail(r, result, err);
}

static int answer(struct gb_reader *r, const struct ask *ask, struct gb_history_answer *ret, struct gb_error *err) {
    struct building b = {
        .reader = r, .plan = &ask->plan, .answer = ret, .step_us = (int64_t)ask->plan.step_s * 1000000};
    int64_t until_us[2] = {0};
    int result;

    ret->plan = ask->plan;
    r->until_ns = gb_clock_ns() + GB_HISTORY_READ_NS;
    sqlite3_bind_text(r->find, 1, gb_history_scope_name(ask->key.scope), -1, SQLITE_STATIC);
    sqlite3_bind_int64(r->find, 2, ask->key.id);
    sqlite3_bind_text(r->find, 3, ask->key.uuid, -1, SQLITE_STATIC);
    result = sqlite3_step(r->find);
    if (result == SQLITE_ROW) {
        b.series = sqlite3_column_int64(r->find, 0);
        until_us[0] = sqlite3_column_int64(r->find, 1);
        until_us[1] = sqlite3_column_int64(r->find, 2);
    }
    sqlite3_reset(r->find);
    if (result != SQLITE_ROW && result != SQLITE_DONE)
        return fail(r, result, err);
    if (result == SQLITE_ROW && read_series(&b, until_us[0], until_us[1], err) < 0)
        return -1;
    return read_starts(r, &ask->plan, ret, err);
}

static int open_db(struct gb_reader *r, struct gb_error *err) {
    int level;

    if (r->db)
        return 0;
    if (gb_db_connect_read(r->where, &r->db, err) < 0)
        return -1;
    sqlite3_busy_timeout(r->db, 1000);
    r->until_ns = UINT64_MAX;
    sqlite3_progress_handler(r->db, LOOK_EVERY, too_long, r);
    if (gb_db_exec(r->db, "PRAGMA cache_size=-8192", err) < 0 ||
        gb_db_prepare(r->db,
                      "SELECT id, minutes_until_us, hours_until_us FROM history_series"
                      " WHERE scope = ?1 AND object_id = ?2 AND uuid = ?3",
                      &r->find, err) < 0 ||
        gb_db_prepare(r->db, "SELECT at_us FROM history_starts WHERE id > 1 AND at_us >= ?1 AND at_us < ?2 ORDER BY id",
                      &r->starts, err) < 0)
        return -1;
    for (level = 0; level < GB_HISTORY_LEVELS; level++) {
        if (gb_history_select(r->db, (enum gb_history_level)level, &r->select[level], err) < 0)
            return -1;
    }
    return 0;
}

static void close_db(struct gb_reader *r) {
    gb_db_finalize_all(&r->find, 1);
    gb_db_finalize_all(&r->starts, 1);
    gb_db_finalize_all(r->select, GB_HISTORY_LEVELS);
    sqlite3_close(r->db);
    r->db = NULL;
}

/* In one transaction: a roll between two reads would count rows twice or not at all. */
static void carry_out(struct gb_reader *r, struct ask *ask) {
    struct gb_history_answer a = {.count = 0};
    struct gb_error err = GB_ERROR_INIT;

    if (open_db(r, &err) < 0)
        close_db(r);
    else if (gb_db_exec(r->db, "BEGIN", &err) == 0)
        answer(r, ask, &a, &err);
    r->until_ns = UINT64_MAX;
    if (r->db && !sqlite3_get_autocommit(r->db))
        gb_db_exec(r->db, "COMMIT", NULL);
    ask->done(ask->arg, err.code == GB_OK ? &a : NULL, err.code == GB_OK ? NULL : &err);
    gb_history_answer_done(&a);
    free(ask);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void refuse(struct ask *ask) {
    struct gb_error err = GB_ERROR_INIT;

    gb_error_set(&err, GB_ERR_DRAINING, "the daemon is stopping");
    ask->done(ask->arg, NULL, &err);
    free(ask);
}

static void *reader_main(void *arg) {
    struct gb_reader *r = arg;

    pthread_mutex_lock(&r->lock);
    for (;;) {
        struct ask *ask;
        bool stopping;

        while (!r->first && !r->stopping && !r->move)
            pthread_cond_wait(&r->wake, &r->lock);
        if (r->move) {
            close_db(r);
            free(r->where);
            r->where = r->move;
            r->move = NULL;
            continue;
        }
        ask = r->first;
        if (!ask)
            break;
        r->first = ask->next;
        if (!r->first)
            r->last = &r->first;
        r->waiting--;
        stopping = r->stopping;
        pthread_mutex_unlock(&r->lock);
        if (stopping)
            refuse(ask);
        else
            carry_out(r, ask);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

int gb_reader_new(const char *where, struct gb_reader **ret, struct gb_error *err) {
    struct gb_reader *r = calloc(1, sizeof(*r));

    if (!r)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    r->last = &r->first;
    gb_mutex_init(&r->lock);
    pthread_cond_init(&r->wake, NULL);
    r->where = strdup(where);
    if (!r->where) {
        gb_reader_free(r);
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    }
    if (open_db(r, err) < 0 || gb_thread_start(&r->thread, "gb-history", reader_main, r, err) < 0) {
        gb_reader_free(r);
        return -1;
    }
    r->thread_started = true;
    *ret = r;
    return 0;
}

void gb_reader_move(struct gb_reader *r, const char *where) {
    pthread_mutex_lock(&r->lock);
    free(r->move);
    r->move = strdup(where);
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
}

void gb_reader_free(struct gb_reader *r) {
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    if (r->thread_started)
        pthread_join(r->thread, NULL);
    close_db(r);
    free(r->where);
    free(r->move);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void gb_reader_ask(struct gb_reader *r, const struct gb_history_key *key, const struct gb_history_plan *plan,
                   gb_history_done_fn *done, void *arg) {
    struct gb_error err = GB_ERROR_INIT;
    struct ask *ask = malloc(sizeof(*ask));
    bool full;

    if (!ask) {
        no_memory(&err);
        done(arg, NULL, &err);
        return;
    }
    *ask = (struct ask){.key = *key, .plan = *plan, .done = done, .arg = arg};
    pthread_mutex_lock(&r->lock);
    full = r->stopping || r->waiting >= GB_HISTORY_READS_MAX;
    if (!full) {
        *r->last = ask;
        r->last = &ask->next;
        r->waiting++;
    }
    pthread_mutex_unlock(&r->lock);
    if (!full) {
        pthread_cond_signal(&r->wake);
        return;
    }
    free(ask);
    gb_error_set(&err, GB_ERR_SATURATED,
                 "%d questions about the past wait for an answer, the permitted number; try again",
                 GB_HISTORY_READS_MAX);
    done(arg, NULL, &err);
}

/* --- stored bytes ------------------------------------------------------------------------------------------------- */

static int damaged(const struct gb_stored_rec *rec, const char *how, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_CONTENT_DAMAGED,
                        "the database has %s of generation %lld of buffer %lld, which has %llu bytes", how,
                        (long long)rec->generation, (long long)rec->buffer_id, (unsigned long long)rec->bytes);
}

static int copy_bytes(sqlite3_stmt *row, const struct gb_stored_rec *rec, void *out, struct gb_error *err) {
    const void *data = sqlite3_column_blob(row, 0);
    uint64_t n = (uint64_t)sqlite3_column_bytes(row, 0);

    if (sqlite3_column_type(row, 0) != SQLITE_BLOB)
        return damaged(rec, "no bytes", err);
    if (n != rec->bytes)
        return damaged(rec, n < rec->bytes ? "too few bytes" : "too many bytes", err);
    if (n > 0 && !data)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (n > 0)
        memcpy(out, data, n);
    return 0;
}

static int read_locked(struct gb_db_reader *r, const struct gb_stored_rec *rec, void *out, struct gb_error *err) {
    static const char sql[] = "SELECT data FROM stored WHERE buffer_id = ?1 AND file_generation = ?2 AND file_tag = ?3";
    int result;
    int failed;

    if (gb_db_reader_open(r, sql, err) < 0)
        return -1;
    sqlite3_bind_int64(r->stmt, 1, rec->buffer_id);
    sqlite3_bind_int64(r->stmt, 2, rec->file_generation);
    sqlite3_bind_int64(r->stmt, 3, rec->file_tag);
    result = sqlite3_step(r->stmt);
    if (result == SQLITE_ROW)
        failed = copy_bytes(r->stmt, rec, out, err);
    else if (result == SQLITE_DONE)
        failed = damaged(rec, "no row", err);
    else
        failed = gb_db_fail(r->db, result, "sqlite3_step", GB_ERR_INTERNAL, err);
    sqlite3_reset(r->stmt); /* a row that is held would keep the log from being begun again */
    return failed;
}

int gb_stored_read(struct gb_db_reader *reader, const struct gb_stored_rec *rec, void *out, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&reader->lock);
    r = read_locked(reader, rec, out, err);
    pthread_mutex_unlock(&reader->lock);
    return r;
}
