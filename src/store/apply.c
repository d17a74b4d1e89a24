/* Changes on their way to the tables: queued as copies, applied in a transaction with statements that are prepared
 * once, and the fence behind a commit that failed. */
#include "store/apply.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "store/db.h"

/* --- changes ------------------------------------------------------------------------------------------------------ */

/* The labels that the copy of a record has a reference to. */
static struct gb_text *labels_of(const struct gb_change *c) {
    switch (c->kind) {
    case GB_CHANGE_PUT_SESSION:
        return ((const struct gb_session_rec *)c->record)->labels;
    case GB_CHANGE_PUT_BUFFER:
        return ((const struct gb_buffer_rec *)c->record)->labels;
    default:
        return NULL;
    }
}

static bool is_durable(const struct gb_change *c) {
    const struct gb_store_edits *record = (const struct gb_store_edits *)c->record;
    size_t i;

    if (c->kind == GB_CHANGE_DEL_SESSION)
        return ((const struct gb_session_deletion *)c->record)->durable;
    if (c->kind == GB_CHANGE_PUT_ANSWER)
        return ((const struct gb_idempotency_reply_record *)c->record)->durable;
    for (i = 0; c->kind == GB_CHANGE_EDIT_BUFFERS && i < record->count; i++) {
        if (record->edits[i].durable)
            return true;
    }
    return false;
}

struct gb_change *gb_change_new(enum gb_change_kind kind, const void *record, size_t bytes,
                                const struct gb_store_mark *mark, gb_store_done_fn *done, void *arg) {
    size_t mark_at = (bytes + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    struct gb_change *c = malloc(sizeof(*c) + mark_at + (mark ? sizeof(*mark) : 0));

    if (!c)
        return NULL;
    *c = (struct gb_change){.kind = kind, .done = done, .arg = arg, .queued_ns = gb_clock_ns()};
    if (mark) {
        c->mark = (struct gb_store_mark *)(c->record + mark_at);
        *c->mark = *mark;
    }
    if (bytes > 0)
        memcpy(c->record, record, bytes);
    c->durable = is_durable(c);
    gb_text_ref(labels_of(c));
    return c;
}

void gb_change_free(struct gb_change *change) {
    if (change)
        gb_text_unref(labels_of(change));
    free(change);
}

void gb_change_refuse(struct gb_change *change) {
    gb_text_unref(labels_of(change));
    change->kind = GB_CHANGE_REFUSED;
}

bool gb_change_writes(const struct gb_change *change) {
    return change->kind != GB_CHANGE_FLUSH && change->kind != GB_CHANGE_REFUSED;
}

bool gb_change_is_long(const struct gb_change *change) {
    switch (change->kind) {
    case GB_CHANGE_DEL_SESSION:  /* with its buffers; may be durable */
    case GB_CHANGE_EDIT_BUFFERS: /* may be durable */
    case GB_CHANGE_PUT_HISTORY:
    case GB_CHANGE_ROLL:
        return true;
    case GB_CHANGE_PUT_ANSWER:
        return change->durable;
    default:
        return false;
    }
}

/* --- applying ----------------------------------------------------------------------------------------------------- */

int gb_apply_init(struct gb_apply *apply, sqlite3 *db, const struct gb_history_limits *limits, bool sync_full,
                  struct gb_error *err) {
    memset(apply, 0, sizeof(*apply));
    apply->db = db;
    apply->sync_full = sync_full;
    if (gb_db_prepare_all(db, gb_row_put_sql, GB_ROW_STMT_COUNT, apply->stmts, err) < 0 ||
        gb_history_init(&apply->history, db, limits, err) < 0 ||
        gb_db_prepare(db, "BEGIN IMMEDIATE", &apply->begin, err) < 0)
        return -1;
    return gb_db_prepare(db, "COMMIT", &apply->commit, err);
}

void gb_apply_done(struct gb_apply *apply) {
    gb_db_finalize_all(apply->stmts, GB_ROW_STMT_COUNT);
    gb_history_done(&apply->history);
    sqlite3_finalize(apply->begin);
    sqlite3_finalize(apply->commit);
    memset(apply, 0, sizeof(*apply));
}

/* Runs a bound statement. `bound` is what binding it returned. */
static int run(struct gb_apply *apply, sqlite3_stmt *stmt, int bound, struct gb_error *err) {
    if (bound != SQLITE_OK)
        return gb_db_fail(apply->db, bound, "sqlite3_bind", GB_ERR_STORE_FAILED, err);
    return gb_db_run(apply->db, stmt, err);
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

/* --- the fence ---------------------------------------------------------------------------------------------------- */

/* Between two attempts to mend. */
#define RETRY_NS GB_NS_PER_S

void gb_fence_init(struct gb_fence *fence) {
    gb_mutex_init(&fence->lock);
}

void gb_fence_done(struct gb_fence *fence) {
    pthread_mutex_destroy(&fence->lock);
}

/* why: durable changes are refused, from now on or still; its code OK: they are taken. */
static void set_trouble(struct gb_fence *fence, const struct gb_error *why) {
    pthread_mutex_lock(&fence->lock);
    fence->trouble = *why;
    fence->retry_ns = gb_clock_ns() + RETRY_NS;
    pthread_mutex_unlock(&fence->lock);
}

static struct gb_error trouble_of(struct gb_fence *fence) {
    struct gb_error trouble;

    pthread_mutex_lock(&fence->lock);
    trouble = fence->trouble;
    pthread_mutex_unlock(&fence->lock);
    return trouble;
}

int gb_fence_health(struct gb_fence *fence, struct gb_error *err) {
    struct gb_error trouble = trouble_of(fence);

    if (trouble.code == GB_OK)
        return 0;
    gb_error_native(err, trouble.native_domain, trouble.native_code, trouble.native_name, trouble.call);
    return gb_error_set(err, GB_ERR_STORAGE_UNAVAILABLE,
                        "the disk of the state directory makes no change safe: %s; it is tried again once a second",
                        trouble.detail);
}

uint64_t gb_fence_retry_ns(struct gb_fence *fence) {
    uint64_t ns;

    pthread_mutex_lock(&fence->lock);
    ns = fence->trouble.code != GB_OK ? fence->retry_ns : UINT64_MAX;
    pthread_mutex_unlock(&fence->lock);
    return ns;
}

int gb_fence_commit_page(struct gb_apply *apply, struct gb_error *err) {
    int r = gb_apply_sync(apply, true, err);

    if (r == 0)
        r = gb_apply_begin(apply, err);
    if (r == 0)
        r = gb_apply_probe(apply, err);
    if (r == 0)
        r = gb_apply_commit(apply, err);
    if (r < 0)
        gb_apply_rollback(apply);
    gb_apply_sync(apply, false, NULL);
    return r;
}

/* All pages of the log go to the database, which is synced. The commit after that writes a new head of the log and
 * syncs it: from then on the old log counts no more, whatever of it is on the disk. A reader, which may be another
 * process, keeps the log from being begun again; waiting for it would hold up all other changes. */
static int restart_log(struct gb_apply *apply, struct gb_error *err) {
    int r;

    gb_db_patience(apply->db, false);
    r = sqlite3_wal_checkpoint_v2(apply->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    if (r == SQLITE_OK)
        r = gb_fence_commit_page(apply, err);
    else
        r = gb_db_fail(apply->db, r, "sqlite3_wal_checkpoint_v2", GB_ERR_STORE_FAILED, err);
    gb_db_patience(apply->db, true);
    return r;
}

void gb_fence_mend(struct gb_fence *fence, struct gb_apply *apply) {
    struct gb_error err = GB_ERROR_INIT;

    restart_log(apply, &err);
    set_trouble(fence, &err);
}

/* A transaction counts once its last frame is whole in the log. It is not if a frame could not be written, which is
 * SQLITE_FULL, or SQLITE_IOERR_WRITE where a quota leaves no room. Other errors of kind SQLITE_IOERR may come after the
 * last frame, from the sync of the log or from its index. Frames of a transaction that no fence has written over could
 * complete those of the same change tried again. */
static bool is_unknown(struct gb_fence *fence, const struct gb_error *failure) {
    if (trouble_of(fence).code != GB_OK)
        return true;
    return (failure->native_code & 0xff) == SQLITE_IOERR &&
           !(failure->native_code == SQLITE_IOERR_WRITE && failure->code == GB_ERR_STORAGE_FULL);
}

void gb_fence_raise(struct gb_fence *fence, struct gb_apply *apply, struct gb_error *failure) {
    struct gb_error unknown = GB_ERROR_INIT;
    struct gb_error why = GB_ERROR_INIT;

    if (!is_unknown(fence, failure))
        return;
    if (gb_fence_commit_page(apply, &why) == 0) {
        gb_fence_mend(fence, apply);
        return;
    }
    set_trouble(fence, &why);
    gb_error_native(&unknown, failure->native_domain, failure->native_code, failure->native_name, failure->call);
    gb_error_set(&unknown, GB_ERR_STORAGE_FAILED,
                 "%s; nor did the disk take what undoes it: it is not known whether the change is there after a "
                 "restart",
                 failure->detail);
    *failure = unknown;
}

void gb_fence_sync_failed(struct gb_fence *fence, const struct gb_error *failure) {
    if (failure->native_code == SQLITE_IOERR_FSYNC)
        set_trouble(fence, failure);
}
