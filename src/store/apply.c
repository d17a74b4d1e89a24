#include "store/apply.h"

#include <string.h>

#include "store/db.h"

static int prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct gb_error *err) {
    int r = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL);

    return r == SQLITE_OK ? 0 : gb_db_fail(db, r, "sqlite3_prepare_v3", GB_ERR_INTERNAL, err);
}

int gb_apply_init(struct gb_apply *apply, sqlite3 *db, const struct gb_history_limits *limits, bool sync_full,
                  struct gb_error *err) {
    int i;

    memset(apply, 0, sizeof(*apply));
    apply->db = db;
    apply->sync_full = sync_full;
    for (i = 0; i < GB_ROW_STMT_COUNT; i++) {
        if (prepare(db, gb_row_put_sql[i], &apply->stmts[i], err) < 0)
            return -1;
    }
    if (gb_history_init(&apply->history, db, limits, err) < 0)
        return -1;
    if (prepare(db, "BEGIN IMMEDIATE", &apply->begin, err) < 0)
        return -1;
    return prepare(db, "COMMIT", &apply->commit, err);
}

void gb_apply_done(struct gb_apply *apply) {
    int i;

    for (i = 0; i < GB_ROW_STMT_COUNT; i++)
        sqlite3_finalize(apply->stmts[i]);
    gb_history_done(&apply->history);
    sqlite3_finalize(apply->begin);
    sqlite3_finalize(apply->commit);
    memset(apply, 0, sizeof(*apply));
}

/* Runs a bound statement. `bound` is what binding it returned. */
static int run(struct gb_apply *apply, sqlite3_stmt *stmt, int bound, struct gb_error *err) {
    int r = bound;

    if (r != SQLITE_OK)
        return gb_db_fail(apply->db, r, "sqlite3_bind", GB_ERR_STORE_FAILED, err);
    r = sqlite3_step(stmt);
    if (r != SQLITE_DONE)
        gb_db_fail(apply->db, r, "sqlite3_step", GB_ERR_STORE_FAILED, err);
    sqlite3_reset(stmt);
    return r == SQLITE_DONE ? 0 : -1;
}

static int run_with_int(struct gb_apply *apply, enum gb_row_stmt which, int64_t value, struct gb_error *err) {
    sqlite3_stmt *stmt = apply->stmts[which];

    return run(apply, stmt, sqlite3_bind_int64(stmt, 1, value), err);
}

static int put_counters(struct gb_apply *apply, enum gb_row_stmt which, const struct gb_counters *counters,
                        struct gb_error *err) {
    sqlite3_stmt *stmt = apply->stmts[which];

    return run(apply, stmt, gb_row_bind_counters(stmt, counters), err);
}

static int put_history(struct gb_apply *apply, const struct gb_history_record *record, struct gb_error *err) {
    size_t i;

    for (i = 0; i < record->count; i++) {
        if (gb_history_put(&apply->history, &record->samples[i], err) < 0)
            return -1;
    }
    if (!record->counted)
        return 0;
    if (put_counters(apply, GB_ROW_PUT_COUNTED, &record->counters, err) < 0)
        return -1;
    return put_counters(apply, GB_ROW_PUT_COUNTERS, &record->counters, err);
}

static int roll(struct gb_apply *apply, const struct gb_roll_record *record, struct gb_error *err) {
    if (gb_history_roll(&apply->history, record->now_us, record->ret_more, err) < 0)
        return -1;
    return apply->history.seen ? gb_seen_save(apply->history.seen, apply->db, err) : 0;
}

/* One that was written before is there most often, and an update costs half as much. */
static int put_buffer(struct gb_apply *apply, const struct gb_buffer_rec *rec, struct gb_error *err) {
    sqlite3_stmt *update = apply->stmts[GB_ROW_UPDATE_BUFFER];
    sqlite3_stmt *put = apply->stmts[GB_ROW_PUT_BUFFER];

    if (rec->version > 1) {
        int bound = gb_row_bind_buffer(update, rec, apply->updated);

        apply->updated = rec;
        if (run(apply, update, bound, err) < 0)
            return -1;
        if (sqlite3_changes(apply->db) > 0)
            return 0;
    }
    return run(apply, put, gb_row_bind_buffer(put, rec, NULL), err);
}

static int put_stored(struct gb_apply *apply, const struct gb_store_edit *edit, struct gb_error *err) {
    sqlite3_stmt *put = apply->stmts[GB_ROW_PUT_STORED];
    sqlite3_stmt *renumber = apply->stmts[GB_ROW_RENUMBER_STORED];

    if (edit->renumbers)
        return run(apply, renumber, gb_row_bind_renumbered(renumber, edit->stored), err);
    return run(apply, put, gb_row_bind_stored(put, edit->stored, edit->data), err);
}

/* The stored bytes of a buffer that is removed go with its record. */
static int edit_buffer(struct gb_apply *apply, const struct gb_store_edit *edit, struct gb_error *err) {
    if (edit->removes)
        return run_with_int(apply, GB_ROW_DEL_BUFFER, edit->rec->id, err);
    if (put_buffer(apply, edit->rec, err) < 0)
        return -1;
    if (edit->forgets && run_with_int(apply, GB_ROW_DEL_STORED, edit->rec->id, err) < 0)
        return -1;
    return edit->stored ? put_stored(apply, edit, err) : 0;
}

/* A failure takes the whole transaction with it. */
static int edit_buffers(struct gb_apply *apply, const struct gb_store_edits *record, struct gb_error *err) {
    size_t i;
    int r = 0;

    for (i = 0; i < record->count && r == 0; i++)
        r = edit_buffer(apply, &record->edits[i], err);
    return r;
}

int gb_apply_mark(struct gb_apply *apply, const struct gb_store_mark *mark, struct gb_error *err) {
    sqlite3_stmt *stmt = apply->stmts[GB_ROW_PUT_ANSWER];

    return run(apply, stmt, gb_row_bind_answer(stmt, mark, 0, "", 0, NULL, 0), err);
}

static int put_answer(struct gb_apply *apply, const struct gb_idempotency_reply_record *a, struct gb_error *err) {
    sqlite3_stmt *stmt = apply->stmts[GB_ROW_PUT_ANSWER];
    int bound =
        gb_row_bind_answer(stmt, &a->mark, a->status, a->text, a->headers_len, a->text + a->headers_len, a->body_len);

    if (run(apply, stmt, bound, err) < 0 || run_with_int(apply, GB_ROW_EXPIRE_ANSWERS, a->now_us, err) < 0)
        return -1;
    return run_with_int(apply, GB_ROW_DROP_ANSWERS, a->keep, err);
}

static int delete_session(struct gb_apply *apply, int64_t id, struct gb_error *err) {
    if (run_with_int(apply, GB_ROW_DEL_SESSION, id, err) < 0)
        return -1;
    return run_with_int(apply, GB_ROW_DEL_ANSWERS_OF, id, err);
}

int gb_apply_change(struct gb_apply *apply, enum gb_change_kind kind, const void *record, struct gb_error *err) {
    sqlite3_stmt **s = apply->stmts;

    switch (kind) {
    case GB_CHANGE_PUT_SESSION:
        return run(apply, s[GB_ROW_PUT_SESSION], gb_row_bind_session(s[GB_ROW_PUT_SESSION], record), err);
    case GB_CHANGE_PUT_BUFFER:
        return put_buffer(apply, record, err);
    case GB_CHANGE_PUT_POOL:
        return run(apply, s[GB_ROW_PUT_POOL], gb_row_bind_pool(s[GB_ROW_PUT_POOL], record), err);
    case GB_CHANGE_PUT_COUNTERS:
        return put_counters(apply, GB_ROW_PUT_COUNTERS, record, err);
    case GB_CHANGE_PUT_TOKEN_USE:
        return run(apply, s[GB_ROW_PUT_TOKEN_USE], gb_row_bind_token_use(s[GB_ROW_PUT_TOKEN_USE], record), err);
    case GB_CHANGE_DEL_SESSION:
        return delete_session(apply, ((const struct gb_session_deletion *)record)->id, err);
    case GB_CHANGE_DEL_BUFFER:
        return run_with_int(apply, GB_ROW_DEL_BUFFER, *(const int64_t *)record, err);
    case GB_CHANGE_DEL_POOL:
        return run_with_int(apply, GB_ROW_DEL_POOL, *(const int64_t *)record, err);
    case GB_CHANGE_EDIT_BUFFERS:
        return edit_buffers(apply, record, err);
    case GB_CHANGE_PUT_ANSWER:
        return put_answer(apply, record, err);
    case GB_CHANGE_PUT_HISTORY:
        return put_history(apply, record, err);
    case GB_CHANGE_ROLL:
        return roll(apply, record, err);
    case GB_CHANGE_FLUSH:
    case GB_CHANGE_REFUSED:
        break;
    }
    return 0;
}

/* SQLite carries this out when it prepares the statement, which therefore cannot be kept. */
int gb_apply_sync(struct gb_apply *apply, bool full, struct gb_error *err) {
    const char *sql = full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL";
    int r = SQLITE_OK;

    if (apply->db && !apply->sync_full)
        r = sqlite3_exec(apply->db, sql, NULL, NULL, NULL);
    return r == SQLITE_OK ? 0 : gb_db_fail(apply->db, r, "sqlite3_exec", GB_ERR_STORE_FAILED, err);
}

int gb_apply_begin(struct gb_apply *apply, struct gb_error *err) {
    if (!apply->db)
        return gb_error_set(err, GB_ERR_STORAGE_FULL,
                            "the database could not be opened for changes, as the disk of the state directory has no "
                            "room; make room there");
    if (apply->displaced.code != GB_OK)
        return gb_error_move(err, &apply->displaced);
    apply->updated = NULL; /* records live until their transaction has ended */
    return run(apply, apply->begin, SQLITE_OK, err);
}

int gb_apply_commit(struct gb_apply *apply, struct gb_error *err) {
    return run(apply, apply->commit, SQLITE_OK, err);
}

/* No reader sees the row, and yet a page goes to the disk: what is written without a difference would not. */
int gb_apply_probe(struct gb_apply *apply, struct gb_error *err) {
    int r = sqlite3_exec(apply->db, "INSERT INTO feed(id, at_us, type) VALUES(0, 0, ''); DELETE FROM feed WHERE id = 0",
                         NULL, NULL, NULL);

    return r == SQLITE_OK ? 0 : gb_db_fail(apply->db, r, "sqlite3_exec", GB_ERR_STORE_FAILED, err);
}

/* A failing rollback leaves nothing to do: SQLite has then ended the transaction itself. */
void gb_apply_rollback(struct gb_apply *apply) {
    if (apply->db && !sqlite3_get_autocommit(apply->db))
        sqlite3_exec(apply->db, "ROLLBACK", NULL, NULL, NULL);
}
