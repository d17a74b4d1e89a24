/* The log of notices: a queue before the writer, a table of bounded length, a connection that reads. */
#include "store/feed.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "store/db.h"
#include "store/migrate.h"

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Notices to and from rows. Texts are borrowed until the statement has run. */

#define COLUMNS "id, at_us, type, session, pool, buffer, device, bytes, count, generation, lease, detail, head"

static void bind_text(sqlite3_stmt *stmt, int at, const char *text) {
    if (text[0])
        sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(stmt, at);
}

static void bind_count(sqlite3_stmt *stmt, int at, int64_t value) {
    if (value > 0)
        sqlite3_bind_int64(stmt, at, value);
    else
        sqlite3_bind_null(stmt, at);
}

static void bind_place(sqlite3_stmt *stmt, const struct gb_notice *n, const struct gb_notice *before) {
    if (!before || n->type != before->type)
        bind_text(stmt, 3, gb_notice_word(n->type));
    if (!before || strcmp(n->session.s, before->session.s) != 0)
        bind_text(stmt, 4, n->session.s);
    if (!before || strcmp(n->pool.s, before->pool.s) != 0)
        bind_text(stmt, 5, n->pool.s);
    if (!before || strcmp(n->buffer.s, before->buffer.s) != 0)
        bind_text(stmt, 6, n->buffer.s);
    if (before && n->device == before->device)
        return;
    if (n->device >= 0)
        sqlite3_bind_int(stmt, 7, n->device);
    else
        sqlite3_bind_null(stmt, 7);
}

static void bind_bytes(sqlite3_stmt *stmt, const struct gb_notice *n, const struct gb_notice *before) {
    if (before && n->has_bytes == before->has_bytes && n->bytes == before->bytes)
        return;
    if (n->has_bytes && n->bytes <= INT64_MAX)
        sqlite3_bind_int64(stmt, 8, (int64_t)n->bytes);
    else
        sqlite3_bind_null(stmt, 8);
}

/* Notices that follow each other have most in common, and binding costs a quarter of the row. */
static void feed_bind(sqlite3_stmt *stmt, const struct gb_notice *n, const struct gb_notice *before) {
    sqlite3_bind_int64(stmt, 1, n->id);
    sqlite3_bind_int64(stmt, 2, n->at_us);
    bind_place(stmt, n, before);
    bind_bytes(stmt, n, before);
    if (!before || n->count != before->count)
        bind_count(stmt, 9, (int64_t)n->count);
    if (!before || n->generation != before->generation)
        bind_count(stmt, 10, n->generation);
    if (!before || n->lease != before->lease)
        bind_count(stmt, 11, n->lease);
    if (!before || strcmp(n->detail, before->detail) != 0)
        bind_text(stmt, 12, n->detail);
    if (!before || n->has_head != before->has_head || n->head != before->head)
        bind_text(stmt, 13, n->has_head ? gb_head_name(n->head) : "");
}

static void copy_text(sqlite3_stmt *stmt, int at, char *out, size_t size) {
    const char *text = (const char *)sqlite3_column_text(stmt, at);
    size_t n = text ? strnlen(text, size - 1) : 0;

    if (n > 0)
        memcpy(out, text, n);
    out[n] = '\0';
}

static void read_head(sqlite3_stmt *stmt, int at, struct gb_notice *ret) {
    char word[16];

    copy_text(stmt, at, word, sizeof(word));
    ret->has_head = word[0] && gb_head_parse(word, strlen(word), &ret->head, NULL) == 0;
}

/* False: of a type unknown here. */
static bool feed_row(sqlite3_stmt *stmt, struct gb_notice *ret) {
    char word[40];

    copy_text(stmt, 2, word, sizeof(word));
    ret->id = sqlite3_column_int64(stmt, 0);
    ret->at_us = sqlite3_column_int64(stmt, 1);
    ret->type = gb_notice_type_of(word);
    copy_text(stmt, 3, ret->session.s, sizeof(ret->session.s));
    copy_text(stmt, 4, ret->pool.s, sizeof(ret->pool.s));
    copy_text(stmt, 5, ret->buffer.s, sizeof(ret->buffer.s));
    ret->device = sqlite3_column_type(stmt, 6) == SQLITE_NULL ? -1 : sqlite3_column_int(stmt, 6);
    ret->has_bytes = sqlite3_column_type(stmt, 7) != SQLITE_NULL;
    ret->bytes = (uint64_t)sqlite3_column_int64(stmt, 7);
    ret->count = (uint64_t)sqlite3_column_int64(stmt, 8);
    ret->generation = sqlite3_column_int64(stmt, 9);
    ret->lease = sqlite3_column_int64(stmt, 10);
    copy_text(stmt, 11, ret->detail, sizeof(ret->detail));
    read_head(stmt, 12, ret);
    return ret->type < GB_NOTICE_TYPES;
}

/* --- the log ------------------------------------------------------------------------------------------------------ */

/* How long one waits for others: a transaction of its own for each would cost the changes beside it. */
#define DELAY_NS (25 * GB_NS_PER_MS)
/* Of one transaction, so that changes that come meanwhile wait for a millisecond at most. */
#define BATCH 512
#define PENDING_MAX 16384
#define FEED_MAX 100000

/* Commits that were lost with the power may have been seen: what a process gives out is this far above what it finds.
 * More than the log between two checkpoints can hold. */
#define SKIP (1 << 20)

enum { INSERT, NTH, DROP, NOTE_DROP, STATEMENTS };

static const char *const sql[STATEMENTS] = {
    [INSERT] = "INSERT INTO feed(" COLUMNS ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    [NTH] = "SELECT id FROM feed ORDER BY id LIMIT 1 OFFSET ?1",
    [DROP] = "DELETE FROM feed WHERE id <= ?1",
    [NOTE_DROP] = "UPDATE feed_state SET dropped_through = ?1",
};

struct gb_feed_log {
    sqlite3 *db;
    sqlite3_stmt *stmts[STATEMENTS];
    int64_t max;
    int64_t rows;            /* the writer's alone */
    struct gb_notice *batch; /* the writer's alone */
    int64_t refused; /* the writer's alone: the last that the database did not take, 0: none since it took some */

    pthread_mutex_t watch_lock; /* held while noted runs */
    gb_store_noted_fn *noted;
    void *noted_arg;

    pthread_mutex_t lock; /* for all below; a leaf */
    struct gb_notice *pending;
    size_t count;
    size_t size;
    bool broke_off; /* the process before */
    uint64_t due_ns;
    int64_t last_id;         /* given out */
    int64_t first_id;        /* that this process gives */
    int64_t dropped_through; /* what is not in the table up to there is lost */

    struct gb_db_reader reader;
};

static int count_rows(struct gb_feed_log *log, struct gb_error *err) {
    return gb_db_int(log->db, "SELECT count(*) FROM feed", &log->rows, err);
}

static int measure(struct gb_feed_log *log, struct gb_error *err) {
    int64_t last = 0;

    if (count_rows(log, err) < 0 ||
        gb_db_int(log->db, "SELECT dropped_through FROM feed_state", &log->dropped_through, err) < 0 ||
        gb_db_int(log->db, "SELECT max(id) FROM feed", &last, err) < 0)
        return -1;
    if (last < log->dropped_through)
        last = log->dropped_through;
    log->last_id = last > 0 ? last + SKIP : 0;
    log->first_id = log->last_id + 1;
    return 0;
}

int gb_feed_log_new(const struct gb_store_config *config, const char *where, sqlite3 *db, bool broke_off,
                    struct gb_feed_log **ret, struct gb_error *err) {
    struct gb_feed_log *log = calloc(1, sizeof(*log));

    if (!log)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    gb_mutex_init(&log->lock);
    gb_db_reader_init(&log->reader, where);
    gb_mutex_init(&log->watch_lock);
    log->db = db;
    log->broke_off = broke_off;
    log->max = config->feed_max ? (int64_t)config->feed_max : FEED_MAX;
    log->batch = calloc(BATCH, sizeof(*log->batch));
    if (!log->batch)
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    if (!log->batch || gb_db_prepare_all(db, sql, STATEMENTS, log->stmts, err) < 0 || measure(log, err) < 0) {
        gb_feed_log_free(log);
        return -1;
    }
    *ret = log;
    return 0;
}

int gb_feed_log_move(struct gb_feed_log *log, const char *where, sqlite3 *db, struct gb_error *err) {
    sqlite3 *before = log->db;

    gb_db_finalize_all(log->stmts, STATEMENTS);
    log->db = db;
    if (gb_db_prepare_all(db, sql, STATEMENTS, log->stmts, err) < 0 || count_rows(log, err) < 0) {
        gb_db_finalize_all(log->stmts, STATEMENTS); /* nothing is written before another one is brought */
        log->db = before;
        return -1;
    }
    gb_db_reader_move(&log->reader, where);
    return 0;
}

bool gb_feed_log_whole(const struct gb_feed_log *log) {
    return log->count == 0 && log->refused == 0;
}

void gb_feed_log_free(struct gb_feed_log *log) {
    if (!log)
        return;
    gb_db_finalize_all(log->stmts, STATEMENTS);
    gb_db_reader_done(&log->reader);
    pthread_mutex_destroy(&log->watch_lock);
    pthread_mutex_destroy(&log->lock);
    free(log->pending);
    free(log->batch);
    free(log);
}

void gb_feed_log_watch(struct gb_feed_log *log, gb_store_noted_fn *noted, void *arg) {
    pthread_mutex_lock(&log->watch_lock);
    log->noted = noted;
    log->noted_arg = arg;
    pthread_mutex_unlock(&log->watch_lock);
}

/* --- the queue ---------------------------------------------------------------------------------------------------- */

static bool room_locked(struct gb_feed_log *log) {
    size_t size = log->size ? 2 * log->size : 64;
    struct gb_notice *bigger;

    if (log->count < log->size)
        return true;
    if (log->size >= PENDING_MAX)
        return false;
    bigger = realloc(log->pending, size * sizeof(*bigger));
    if (!bigger)
        return false;
    log->pending = bigger;
    log->size = size;
    return true;
}

/* The last place is for one that tells of those that found none, and counts them. */
static void put_locked(struct gb_feed_log *log, const struct gb_notice *notice, int64_t id) {
    struct gb_notice *at = &log->pending[log->count];

    if (log->count > 0 && at[-1].type == GB_NOTICE_FEED_GAP && at[-1].count > 0) {
        at[-1].id = id;
        at[-1].count++;
        return;
    }
    if (log->count == 0)
        log->due_ns = gb_clock_ns() + DELAY_NS;
    *at = *notice;
    at->id = id;
    if (++log->count < PENDING_MAX)
        return;
    *at = (struct gb_notice){.id = id, .at_us = notice->at_us, .type = GB_NOTICE_FEED_GAP, .device = -1, .count = 1};
    strcpy(at->detail, "too many events at a time");
}

int64_t gb_feed_log_put(struct gb_feed_log *log, const struct gb_notice *notice, bool *ret_first) {
    bool urgent = notice->type == GB_NOTICE_DAEMON_STOPPING || notice->type == GB_NOTICE_FEED_GAP;
    int64_t id;

    pthread_mutex_lock(&log->lock);
    id = ++log->last_id;
    *ret_first = log->count == 0 || urgent;
    if (room_locked(log) || log->count == PENDING_MAX)
        put_locked(log, notice, id);
    if (urgent)
        log->due_ns = 0;
    pthread_mutex_unlock(&log->lock);
    return id;
}

uint64_t gb_feed_log_due_ns(struct gb_feed_log *log) {
    uint64_t due_ns = UINT64_MAX;

    pthread_mutex_lock(&log->lock);
    if (log->count > 0)
        due_ns = log->due_ns;
    pthread_mutex_unlock(&log->lock);
    return due_ns;
}

/* The oldest, and those that are left are due at once. */
static size_t take(struct gb_feed_log *log) {
    size_t n;

    pthread_mutex_lock(&log->lock);
    n = log->count < BATCH ? log->count : BATCH;
    if (n > 0)
        memcpy(log->batch, log->pending, n * sizeof(*log->batch));
    log->count -= n;
    if (log->count > 0)
        memmove(log->pending, log->pending + n, log->count * sizeof(*log->pending));
    log->due_ns = 0;
    if (log->count == 0 && log->size > BATCH) {
        free(log->pending);
        log->pending = NULL;
        log->size = 0;
    }
    pthread_mutex_unlock(&log->lock);
    return n;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static int insert(struct gb_feed_log *log, const struct gb_notice *n, const struct gb_notice *before,
                  struct gb_error *err) {
    feed_bind(log->stmts[INSERT], n, before);
    return gb_db_run(log->db, log->stmts[INSERT], err);
}

/* The id of the row that is number n from the start, 0: none. */
static int64_t nth(struct gb_feed_log *log, int64_t n) {
    sqlite3_stmt *stmt = log->stmts[NTH];
    int64_t id = 0;

    sqlite3_bind_int64(stmt, 1, n);
    if (sqlite3_step(stmt) == SQLITE_ROW)
        id = sqlite3_column_int64(stmt, 0);
    sqlite3_reset(stmt);
    return id;
}

/* Drops what is too much; *ret_through: up to there, 0: nothing. */
static int trim(struct gb_feed_log *log, int64_t rows, int64_t *ret_through, struct gb_error *err) {
    int64_t through = rows > log->max ? nth(log, rows - log->max - 1) : 0;

    *ret_through = through;
    if (through == 0)
        return 0;
    sqlite3_bind_int64(log->stmts[DROP], 1, through);
    sqlite3_bind_int64(log->stmts[NOTE_DROP], 1, through);
    if (gb_db_run(log->db, log->stmts[DROP], err) < 0)
        return -1;
    return gb_db_run(log->db, log->stmts[NOTE_DROP], err);
}

/* In the place of those that the database did not take: who reads the log in another process' time is to know of
 * them. */
static int insert_gap(struct gb_feed_log *log, struct gb_error *err) {
    struct gb_notice gap = {.id = log->refused, .at_us = log->batch[0].at_us, .type = GB_NOTICE_FEED_GAP, .device = -1};

    strcpy(gap.detail, "the database took no events for a time, those before this are missing");
    return insert(log, &gap, NULL, err);
}

static int put_all(struct gb_feed_log *log, struct gb_apply *apply, size_t n, int64_t *ret_through,
                   struct gb_error *err) {
    int64_t rows = log->rows + (int64_t)n + (log->refused > 0);
    size_t i;
    int r = gb_apply_begin(apply, err);

    if (r == 0 && log->refused > 0)
        r = insert_gap(log, err);
    for (i = 0; i < n && r == 0; i++)
        r = insert(log, &log->batch[i], i > 0 ? &log->batch[i - 1] : NULL, err);
    if (r == 0)
        r = trim(log, rows, ret_through, err);
    if (r == 0)
        r = gb_apply_commit(apply, err);
    if (r < 0) {
        gb_apply_rollback(apply);
        return -1;
    }
    log->rows = *ret_through == 0 ? rows : log->max;
    log->refused = 0;
    return 0;
}

/* What the database refuses is published all the same, and is missing in the log. */
int gb_feed_log_write(struct gb_feed_log *log, struct gb_apply *apply, struct gb_error *err) {
    size_t n = take(log);
    int64_t through = 0;
    int r;

    if (n == 0)
        return 0;
    r = put_all(log, apply, n, &through, err);
    if (r < 0)
        through = log->refused = log->batch[n - 1].id;
    pthread_mutex_lock(&log->lock);
    if (through > log->dropped_through)
        log->dropped_through = through;
    pthread_mutex_unlock(&log->lock);
    pthread_mutex_lock(&log->watch_lock);
    if (log->noted)
        log->noted(log->noted_arg, log->batch, n);
    pthread_mutex_unlock(&log->watch_lock);
    return r < 0 ? -1 : 1;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

int gb_feed_log_read(struct gb_feed_log *log, int64_t after, size_t max, int (*visit)(void *, const struct gb_notice *),
                     void *arg, struct gb_error *err) {
    struct gb_db_reader *reader = &log->reader;
    struct gb_notice notice;
    int r = -1;

    pthread_mutex_lock(&reader->lock);
    if (gb_db_reader_open(reader, "SELECT " COLUMNS " FROM feed WHERE id > ?1 ORDER BY id LIMIT ?2", err) == 0) {
        sqlite3_bind_int64(reader->stmt, 1, after);
        sqlite3_bind_int64(reader->stmt, 2, (int64_t)max);
        while ((r = sqlite3_step(reader->stmt)) == SQLITE_ROW) {
            if (feed_row(reader->stmt, &notice) && visit(arg, &notice) != 0)
                break;
        }
        if (r != SQLITE_DONE && r != SQLITE_ROW)
            r = gb_db_fail(reader->db, r, "sqlite3_step", GB_ERR_STORE_FAILED, err);
        else
            r = 0;
        sqlite3_reset(reader->stmt);
    }
    pthread_mutex_unlock(&reader->lock);
    return r;
}

int gb_feed_log_recent(struct gb_feed_log *log, size_t max, int (*visit)(void *, const struct gb_notice *), void *arg,
                       struct gb_error *err) {
    char query[96];
    int64_t after = 0;

    snprintf(query, sizeof(query), "SELECT id FROM feed ORDER BY id DESC LIMIT 1 OFFSET %zu", max);
    if (gb_db_int(log->db, query, &after, err) < 0)
        return -1;
    return gb_feed_log_read(log, after, max, visit, arg, err);
}

void gb_feed_log_bounds(struct gb_feed_log *log, struct gb_store_feed *ret) {
    pthread_mutex_lock(&log->lock);
    *ret = (struct gb_store_feed){.first_id = log->first_id,
                                  .last_id = log->last_id,
                                  .dropped_through = log->dropped_through,
                                  .broke_off = log->broke_off};
    pthread_mutex_unlock(&log->lock);
}
