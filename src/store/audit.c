/* The audit's table: a queue before the writer, rows of bounded number and age, a connection that reads. */
#include "store/audit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "model/audit.h"
#include "store/db.h"
#include "store/migrate.h"

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Records to and from rows of the table. */

static const char select_sql[] =
    "SELECT id, " GB_AUDIT_COLUMNS " FROM audit WHERE id BETWEEN ?1 AND ?2 AND at_us >= ?3 AND at_us < ?4"
    " AND (event IN ('audit.gap', 'audit.refusals') OR ((?5 IS NULL OR session = ?5) AND (?6 IS NULL OR token = ?6)"
    " AND (?7 < 0 OR status BETWEEN ?7 AND ?8))) ORDER BY id DESC";

static void bind_text(sqlite3_stmt *stmt, int at, const char *text) {
    if (text)
        sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(stmt, at);
}

static void bind_count(sqlite3_stmt *stmt, int at, uint64_t value) {
    if (value > 0 && value <= INT64_MAX)
        sqlite3_bind_int64(stmt, at, (int64_t)value);
    else
        sqlite3_bind_null(stmt, at);
}

static bool same(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void bind_answer(sqlite3_stmt *stmt, const struct gb_audit_rec *rec) {
    if (rec->event == GB_AUDIT_REQUEST) {
        sqlite3_bind_int(stmt, 13, rec->status);
        sqlite3_bind_int64(stmt, 14, rec->bytes <= INT64_MAX ? (int64_t)rec->bytes : INT64_MAX);
    } else {
        sqlite3_bind_null(stmt, 13);
        sqlite3_bind_null(stmt, 14);
    }
}

/* Records that follow each other have most in common, and binding costs a quarter of the row. */
void gb_audit_bind(sqlite3_stmt *stmt, const struct gb_audit_rec *rec, const struct gb_audit_rec *before) {
    int i;

    sqlite3_bind_int64(stmt, 1, rec->at_us);
    if (!before || rec->event != before->event)
        bind_text(stmt, 2, gb_audit_event_word(rec->event));
    for (i = 0; i < GB_AUDIT_TEXTS; i++) {
        if (!before || !same(rec->text[i], before->text[i]))
            bind_text(stmt, 3 + i, rec->text[i]);
    }
    if (!before || rec->token_id != before->token_id)
        bind_count(stmt, 12, rec->token_id > 0 ? (uint64_t)rec->token_id : 0);
    if (!before || rec->event != before->event || rec->status != before->status || rec->bytes != before->bytes)
        bind_answer(stmt, rec);
    if (!before || rec->count != before->count)
        bind_count(stmt, 15, rec->count);
}

static void audit_bind_query(sqlite3_stmt *stmt, const struct gb_audit_query *query, int64_t from, int64_t to) {
    sqlite3_bind_int64(stmt, 1, from);
    sqlite3_bind_int64(stmt, 2, to);
    sqlite3_bind_int64(stmt, 3, query->since_us);
    sqlite3_bind_int64(stmt, 4, query->until_us);
    bind_text(stmt, 5, query->session);
    bind_text(stmt, 6, query->token);
    sqlite3_bind_int(stmt, 7, query->any_status ? -1 : query->status_min);
    sqlite3_bind_int(stmt, 8, query->status_max);
}

/* Texts last until the next step. False: of an event unknown here. */
static bool audit_row(sqlite3_stmt *stmt, struct gb_audit_rec *ret) {
    const char *word = (const char *)sqlite3_column_text(stmt, 2);
    int i;

    ret->id = sqlite3_column_int64(stmt, 0);
    ret->at_us = sqlite3_column_int64(stmt, 1);
    ret->event = gb_audit_event_of(word ? word : "");
    for (i = 0; i < GB_AUDIT_TEXTS; i++)
        ret->text[i] = (const char *)sqlite3_column_text(stmt, 3 + i);
    ret->token_id = sqlite3_column_int64(stmt, 12);
    ret->status = sqlite3_column_int(stmt, 13);
    ret->bytes = (uint64_t)sqlite3_column_int64(stmt, 14);
    ret->count = (uint64_t)sqlite3_column_int64(stmt, 15);
    return ret->event < GB_AUDIT_EVENTS;
}

/* --- the log ------------------------------------------------------------------------------------------------------ */

/* As of the feed: how long a record waits for others, and the records of one transaction. */
#define DELAY_NS (25 * GB_NS_PER_MS)
#define BATCH 512
/* Of records that wait: some 50,000. */
#define PENDING_MAX (8u << 20)
#define ROWS_MAX 1000000
/* Between two searches for rows that are too old, and the rows that go in one transaction. */
#define LOOK_NS (60 * GB_NS_PER_S)
#define DROP_MAX 2048
/* Rows that one statement reads, and how long a question reads. */
#define WINDOW 50000
#define READ_NS (300 * GB_NS_PER_MS)

enum { INSERT, OLD, DROP, STATEMENTS };

static const char *const sql[STATEMENTS] = {
    [INSERT] = GB_AUDIT_INSERT_SQL,
    [OLD] = "SELECT max(id) FROM (SELECT id, at_us FROM audit ORDER BY id LIMIT 2048) WHERE at_us < ?1",
    [DROP] = "DELETE FROM audit WHERE id <= ?1",
};

struct gb_audit_log {
    /* The writer's alone. Ids follow each other without holes: rows go at the lower end. */
    sqlite3 *db;
    sqlite3_stmt *stmts[STATEMENTS];
    int64_t max;
    int64_t age_us;       /* INT64_MAX: no bound */
    struct gb_seen *seen; /* borrowed */
    int64_t first_id;
    int64_t last_id; /* below first_id: there is no row */
    struct gb_audit_queue batch;
    size_t batch_at;
    uint64_t missing; /* records that are not in the table, and no gap reports them yet */
    bool killed;      /* the daemon before did not stop in order, and no gap reports it yet */
    uint64_t look_ns;

    pthread_mutex_t lock; /* for all below; a leaf */
    struct gb_audit_queue pending;
    uint64_t lost; /* found no room since the writer last checked */
    uint64_t due_ns;
    struct gb_audit_log_stat stat;

    struct gb_db_reader reader;
};

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static int prepare(struct gb_audit_log *log, struct gb_error *err) {
    if (gb_db_prepare_all(log->db, sql, STATEMENTS, log->stmts, err) < 0 ||
        gb_db_int(log->db, "SELECT ifnull(min(id), 1) FROM audit", &log->first_id, err) < 0)
        return -1;
    return gb_db_int(log->db, "SELECT max(id) FROM audit", &log->last_id, err);
}

/* The daemon before did not say that it stopped. That it started may have been dropped since. */
static int find_killed(struct gb_audit_log *log, bool broke_off, struct gb_error *err) {
    bool unsaid = broke_off && log->last_id >= log->first_id;
    int64_t killed = 0;
    char query[192];

    snprintf(query, sizeof(query),
             "SELECT coalesce((SELECT event = 'daemon.started' FROM audit WHERE event LIKE 'daemon.%%'"
             " ORDER BY id DESC LIMIT 1), %d)",
             unsaid);
    if (gb_db_int(log->db, query, &killed, err) < 0)
        return -1;
    log->killed = killed != 0;
    return 0;
}

int gb_audit_log_new(const struct gb_store_config *config, const char *where, sqlite3 *db, bool broke_off,
                     struct gb_seen *seen, struct gb_audit_log **ret, struct gb_error *err) {
    struct gb_audit_log *log = calloc(1, sizeof(*log));

    if (!log)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    gb_mutex_init(&log->lock);
    gb_db_reader_init(&log->reader, where);
    log->db = db;
    log->seen = seen;
    log->max = config->audit_max > 0 ? (int64_t)config->audit_max : ROWS_MAX;
    log->age_us = config->audit_age_us > 0 ? config->audit_age_us : INT64_MAX;
    if (prepare(log, err) < 0 || find_killed(log, broke_off, err) < 0) {
        gb_audit_log_free(log);
        return -1;
    }
    *ret = log;
    return 0;
}

int gb_audit_log_move(struct gb_audit_log *log, const char *where, sqlite3 *db, struct gb_error *err) {
    sqlite3 *before = log->db;

    gb_db_finalize_all(log->stmts, STATEMENTS);
    log->db = db;
    if (prepare(log, err) < 0) {
        gb_db_finalize_all(log->stmts, STATEMENTS); /* nothing is written before another one is brought */
        log->db = before;
        return -1;
    }
    gb_db_reader_move(&log->reader, where);
    return 0;
}

void gb_audit_log_free(struct gb_audit_log *log) {
    if (!log)
        return;
    gb_db_finalize_all(log->stmts, STATEMENTS);
    gb_db_reader_done(&log->reader);
    gb_audit_queue_done(&log->pending);
    gb_audit_queue_done(&log->batch);
    pthread_mutex_destroy(&log->lock);
    free(log);
}

/* --- the queue ---------------------------------------------------------------------------------------------------- */

bool gb_audit_log_put(struct gb_audit_log *log, const struct gb_audit_rec *rec) {
    bool urgent = rec->event == GB_AUDIT_DAEMON_STOPPED;
    bool first;

    pthread_mutex_lock(&log->lock);
    first = log->pending.count == 0 && log->lost == 0;
    if (first)
        log->due_ns = gb_clock_ns() + DELAY_NS;
    if (urgent)
        log->due_ns = 0;
    if (!gb_audit_queue_put(&log->pending, rec, PENDING_MAX)) {
        log->lost++;
        log->stat.dropped++;
    }
    pthread_mutex_unlock(&log->lock);
    return first || urgent;
}

uint64_t gb_audit_log_due_ns(struct gb_audit_log *log, bool records) {
    uint64_t due_ns = records || log->look_ns == 0 ? UINT64_MAX : log->look_ns;

    if (log->batch_at < log->batch.used)
        return 0;
    pthread_mutex_lock(&log->lock);
    if ((log->pending.count > 0 || log->lost > 0) && log->due_ns < due_ns)
        due_ns = log->due_ns;
    pthread_mutex_unlock(&log->lock);
    return due_ns;
}

/* What waits becomes the batch, if the one before is through. */
static void take(struct gb_audit_log *log) {
    struct gb_audit_queue empty;

    if (log->batch_at < log->batch.used)
        return;
    gb_audit_queue_clear(&log->batch);
    log->batch_at = 0;
    pthread_mutex_lock(&log->lock);
    empty = log->batch;
    log->batch = log->pending;
    log->pending = empty;
    log->missing += log->lost;
    log->lost = 0;
    pthread_mutex_unlock(&log->lock);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static int insert(struct gb_audit_log *log, const struct gb_audit_rec *rec, const struct gb_audit_rec *before,
                  struct gb_error *err) {
    gb_audit_bind(log->stmts[INSERT], rec, before);
    return gb_db_run(log->db, log->stmts[INSERT], err);
}

/* In the place of records that are missing; after a kill it is not known how many are. */
static int insert_gaps(struct gb_audit_log *log, struct gb_error *err) {
    struct gb_audit_rec gap = {.at_us = gb_wall_us(), .event = GB_AUDIT_GAP};

    if (log->killed && insert(log, &gap, NULL, err) < 0)
        return -1;
    gap.count = log->missing;
    return log->missing > 0 ? insert(log, &gap, NULL, err) : 0;
}

/* r: how the transaction went so far; the records of a failed one are counted alone. */
static int insert_some(struct gb_audit_log *log, int r, size_t *at, size_t *ret_n, struct gb_error *err) {
    struct gb_audit_rec recs[2]; /* one, and the one before */
    struct gb_audit_rec *rec = &recs[0];

    *ret_n = 0;
    while (*ret_n < BATCH && gb_audit_queue_next(&log->batch, at, rec)) {
        if (r == 0)
            r = insert(log, rec, *ret_n > 0 ? &recs[1 - (rec - recs)] : NULL, err);
        ++*ret_n;
        rec = &recs[1 - (rec - recs)];
    }
    return r;
}

/* Where the rows begin that are young enough; 0: all are. */
static int find_old(struct gb_audit_log *log, int64_t *ret_through, struct gb_error *err) {
    sqlite3_stmt *stmt = log->stmts[OLD];
    int r;

    *ret_through = 0;
    if (log->age_us == INT64_MAX)
        return 0;
    sqlite3_bind_int64(stmt, 1, gb_seen_since(log->seen, log->age_us));
    r = sqlite3_step(stmt);
    if (r == SQLITE_ROW)
        *ret_through = sqlite3_column_int64(stmt, 0);
    else
        gb_db_fail(log->db, r, "sqlite3_step", GB_ERR_STORE_FAILED, err);
    sqlite3_reset(stmt);
    return r == SQLITE_ROW ? 0 : -1;
}

/* Drops what is too much or too old, but never the newest row, since ids continue from it. *ret_more: there is more. */
static int trim(struct gb_audit_log *log, int64_t last_id, bool look, int64_t *ret_first, bool *ret_more,
                struct gb_error *err) {
    int64_t through = last_id - log->max;
    int64_t most = log->first_id + DROP_MAX - 1;
    int64_t old = 0;

    if (look && find_old(log, &old, err) < 0)
        return -1;
    if (old > through)
        through = old;
    if (through >= last_id)
        through = last_id - 1;
    *ret_more = through > most || (look && old >= most);
    if (through > most)
        through = most;
    *ret_first = through >= log->first_id ? through + 1 : log->first_id;
    if (through < log->first_id)
        return 0;
    sqlite3_bind_int64(log->stmts[DROP], 1, through);
    return gb_db_run(log->db, log->stmts[DROP], err);
}

/* One transaction. *ret_at: the place in the batch behind its records. Returns 1 if there are more rows to drop. */
static int write_some(struct gb_audit_log *log, struct gb_apply *apply, bool look, size_t *ret_at, size_t *ret_n,
                      struct gb_error *err) {
    int64_t before = log->last_id;
    int64_t last_id = before;
    int64_t first_id = log->first_id;
    bool more = false;
    int r = gb_apply_begin(apply, err);

    if (r == 0)
        r = insert_gaps(log, err);
    r = insert_some(log, r, ret_at, ret_n, err);
    if (r == 0 && (*ret_n > 0 || log->missing > 0 || log->killed))
        last_id = sqlite3_last_insert_rowid(log->db);
    if (r == 0)
        r = trim(log, last_id, look, &first_id, &more, err);
    if (r == 0)
        r = gb_apply_commit(apply, err);
    if (r < 0) {
        gb_apply_rollback(apply);
        return -1;
    }
    log->last_id = last_id;
    log->first_id = first_id;
    log->missing = 0;
    log->killed = false;
    return more ? 1 : 0;
}

static void count(struct gb_audit_log *log, size_t n, bool written) {
    pthread_mutex_lock(&log->lock);
    log->stat.records += written ? n : 0;
    log->stat.dropped += written ? 0 : n;
    pthread_mutex_unlock(&log->lock);
}

int gb_audit_log_write(struct gb_audit_log *log, struct gb_apply *apply, struct gb_error *err) {
    uint64_t now_ns = gb_clock_ns();
    bool look = now_ns >= log->look_ns;
    size_t n = 0;
    size_t at;
    int r;

    take(log);
    at = log->batch_at;
    if (at >= log->batch.used && log->missing == 0 && !look)
        return 0;
    r = write_some(log, apply, look, &at, &n, err);
    log->batch_at = at;
    count(log, n, r >= 0);
    if (r < 0)
        log->missing += n;
    if (r <= 0 && look)
        log->look_ns = now_ns + LOOK_NS;
    else if (r > 0)
        log->look_ns = 1; /* at once */
    return r < 0 ? -1 : 1;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* The rows of one window. Returns 1 if visit has had enough: *ret_next is then the last that it took. */
static int read_window(struct gb_audit_log *log, const struct gb_audit_query *query, int64_t from, int64_t to,
                       gb_audit_visit_fn *visit, void *arg, int64_t *ret_next, struct gb_error *err) {
    struct gb_audit_rec rec;
    bool full = false;
    int r;

    audit_bind_query(log->reader.stmt, query, from, to);
    while (!full && (r = sqlite3_step(log->reader.stmt)) == SQLITE_ROW) {
        if (!audit_row(log->reader.stmt, &rec))
            continue;
        full = visit(arg, &rec) != 0;
        if (!full)
            *ret_next = rec.id;
    }
    if (!full && r != SQLITE_DONE)
        r = gb_db_fail(log->reader.db, r, "sqlite3_step", GB_ERR_STORE_FAILED, err);
    else
        r = full;
    sqlite3_reset(log->reader.stmt);
    return r;
}

static int read_locked(struct gb_audit_log *log, const struct gb_audit_query *query, gb_audit_visit_fn *visit,
                       void *arg, int64_t *ret_next, struct gb_error *err) {
    uint64_t until_ns = gb_clock_ns() + READ_NS;
    int64_t lowest = 0;
    int64_t to = 0;
    int r = 0;

    if (gb_db_reader_open(&log->reader, select_sql, err) < 0 ||
        gb_db_int(log->reader.db, "SELECT min(id) FROM audit", &lowest, err) < 0 ||
        gb_db_int(log->reader.db, "SELECT max(id) FROM audit", &to, err) < 0)
        return -1;
    if (query->before > 0 && query->before <= to)
        to = query->before - 1;
    while (to >= lowest && to > 0) {
        int64_t from = to - WINDOW + 1;

        *ret_next = to + 1; /* where visit takes none */
        r = read_window(log, query, from, to, visit, arg, ret_next, err);
        if (r != 0)
            return r < 0 ? -1 : 0;
        to = from - 1;
        *ret_next = from;
        if (gb_clock_ns() >= until_ns && to >= lowest)
            return 0;
    }
    *ret_next = 0;
    return 0;
}

int gb_audit_log_read(struct gb_audit_log *log, const struct gb_audit_query *query, gb_audit_visit_fn *visit, void *arg,
                      int64_t *ret_next, struct gb_error *err) {
    int r;

    pthread_mutex_lock(&log->reader.lock);
    r = read_locked(log, query, visit, arg, ret_next, err);
    pthread_mutex_unlock(&log->reader.lock);
    return r;
}

void gb_audit_log_stat(struct gb_audit_log *log, struct gb_audit_log_stat *ret) {
    pthread_mutex_lock(&log->lock);
    *ret = log->stat;
    pthread_mutex_unlock(&log->lock);
}
