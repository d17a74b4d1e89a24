/* The store as the layers above see it: opening and closing, and one function for each question and change. Changes go
 * to the writer; what is read at the start, answers and notices come from the files below. store.h has what always
 * holds. */
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/text.h"
#include "model/token.h"
#include "store/audit.h"
#include "store/db.h"
#include "store/feed.h"
#include "store/history.h"
#include "store/migrate.h"
#include "store/reader.h"
#include "store/records.h"
#include "store/writer.h"

struct gb_store {
    struct gb_store_config config;
    struct gb_storage storage; /* as db */
    struct gb_place place;     /* of the writer, with the lock */
    sqlite3 *db;               /* the writer's; others read between gb_writer_enter and gb_writer_leave */
    struct gb_feed_log *feed;
    struct gb_audit_log *audit;
    struct gb_seen *seen;
    struct gb_writer *writer; /* NULL: of gb_store_inspect */
    struct gb_reader *reader;
    struct gb_db_reader stored;
};

static int uuid_row(void *arg, sqlite3_stmt *stmt, struct gb_error *err) {
    char *uuid = arg;
    const char *text = (const char *)sqlite3_column_text(stmt, 0);

    if (!text || !gb_hex_lower(text, GB_STORE_UUID_SIZE - 1))
        return gb_error_set(err, GB_ERR_INTERNAL, "the database's own number cannot be understood");
    memcpy(uuid, text, GB_STORE_UUID_SIZE);
    return 0;
}

static int read_uuid(sqlite3 *db, char ret[GB_STORE_UUID_SIZE], struct gb_error *err) {
    char uuid[GB_STORE_UUID_SIZE] = "";

    if (gb_db_each_row(db, "SELECT uuid FROM identity WHERE id = 1", uuid_row, uuid, err) < 0)
        return -1;
    if (!uuid[0])
        return gb_error_set(err, GB_ERR_INTERNAL, "the database has no number of its own");
    memcpy(ret, uuid, sizeof(uuid));
    return 0;
}

static int fleet_row(void *arg, sqlite3_stmt *row, struct gb_error *err) {
    const char *text = (const char *)sqlite3_column_text(row, 0);

    (void)err;
    snprintf(arg, GB_STORE_FLEET_SIZE, "%s", text ? text : "");
    return 0;
}

static int read_fleet(sqlite3 *db, char ret[GB_STORE_FLEET_SIZE], struct gb_error *err) {
    ret[0] = '\0';
    return gb_db_each_row(db, "SELECT fleet FROM identity WHERE id = 1", fleet_row, ret, err) < 0 ? -1 : 0;
}

/* The uuid that the copy has is known to others by now. The file may have got its own only as it was opened. */
static int keep_uuid(struct gb_store *s, sqlite3 *file, struct gb_error *err) {
    char uuid[GB_STORE_UUID_SIZE];
    char fleet[GB_STORE_FLEET_SIZE];
    char sql[160];

    if (read_uuid(s->db, uuid, err) < 0 || read_fleet(s->db, fleet, err) < 0)
        return -1;
    snprintf(sql, sizeof(sql), "UPDATE identity SET uuid = '%s', fleet = '%s'", uuid, fleet);
    return gb_db_exec(file, sql, err);
}

/* Both or none. */
static int move_logs(struct gb_store *s, sqlite3 *db, struct gb_error *err) {
    if (gb_feed_log_move(s->feed, s->storage.file, db, err) < 0)
        return -1;
    if (gb_audit_log_move(s->audit, s->storage.file, db, err) == 0)
        return 0;
    gb_feed_log_move(s->feed, gb_storage_where(&s->storage), s->db, NULL);
    return -1;
}

/* On the writer's thread, which changes nothing while it has no file. */
static int move_to_file(void *arg, sqlite3 **ret, struct gb_error *err) {
    struct gb_store *s = arg;
    sqlite3 *db = NULL;

    if (gb_storage_open_file(&s->config, false, &db, err) < 0)
        return -1;
    if (keep_uuid(s, db, err) < 0 || move_logs(s, db, err) < 0) {
        sqlite3_close(db);
        return -1;
    }
    gb_reader_move(s->reader, s->storage.file);
    gb_db_reader_move(&s->stored, s->storage.file);
    sqlite3_close(s->db);
    s->db = db;
    s->storage.copy[0] = '\0';
    *ret = db;
    return 0;
}

/* Where the disk has no room for what SQLite needs beside the file, a copy in memory is read, and nothing is
 * changed. */
static int open_storage(struct gb_store *s, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;

    if (gb_storage_open_file(&s->config, true, &s->db, &why) == 0)
        return 0;
    if (why.code != GB_ERR_STORAGE_FULL)
        return gb_error_move(err, &why);
    return gb_storage_open_copy(&s->storage, &s->db, err);
}

static int open_locked(struct gb_store *s, struct gb_error *err) {
    struct gb_writer_logs logs;
    bool broke_off;
    bool copied;

    if (open_storage(s, err) < 0)
        return -1;
    copied = s->storage.copy[0] != '\0';
    gb_db_reader_move(&s->stored, gb_storage_where(&s->storage));
    if (gb_history_broke_off(s->db, !copied, &broke_off, err) < 0 || gb_seen_new(s->db, &s->seen, err) < 0 ||
        gb_feed_log_new(&s->config, gb_storage_where(&s->storage), s->db, broke_off, &s->feed, err) < 0 ||
        gb_audit_log_new(&s->config, gb_storage_where(&s->storage), s->db, broke_off, s->seen, &s->audit, err) < 0 ||
        gb_reader_new(gb_storage_where(&s->storage), &s->reader, err) < 0)
        return -1;
    logs = (struct gb_writer_logs){.feed = s->feed, .audit = s->audit, .place = &s->place, .seen = s->seen};
    return gb_writer_new(copied ? NULL : s->db, &s->config, &logs, copied ? move_to_file : NULL, s, &s->writer, err);
}

int gb_store_lock(const char *path, int *ret_fd, struct gb_error *err) {
    return gb_lock_take(path, ret_fd, err);
}

/* lock_fd is the store's from the call on, also one that fails; -1: no lock. */
static struct gb_store *store_new(const char *path, int lock_fd, struct gb_error *err) {
    struct gb_store *s = calloc(1, sizeof(*s));

    if (s)
        s->storage.file = strdup(path);
    if (!s || !s->storage.file) {
        gb_lock_drop(lock_fd);
        free(s);
        gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
        return NULL;
    }
    s->place.lock_fd = lock_fd;
    s->place.path = s->storage.file;
    gb_db_reader_init(&s->stored, s->storage.file);
    return s;
}

int gb_store_open(const struct gb_store_config *config, struct gb_store **ret, struct gb_error *err) {
    struct gb_store *s = store_new(config->path, config->locked ? config->lock_fd : -1, err);

    /* SQLite's count of its memory is never read, and takes a lock for each allocation. Where SQLite is in use
     * already the call is refused, which does no harm. */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    if (!s)
        return -1;
    s->config = *config;
    s->config.path = s->storage.file;
    if ((!config->locked && gb_lock_take(config->path, &s->place.lock_fd, err) < 0) || open_locked(s, err) < 0) {
        gb_store_close(s);
        return -1;
    }
    *ret = s;
    return 0;
}

static int check_schema(struct gb_store *s, struct gb_error *err) {
    bool pending;

    if (gb_migrate_pending(s->db, s->storage.file, &pending, err) < 0)
        return -1;
    if (!pending)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL,
                        "the database %s is of an older gpubufd; start and stop the daemon once, which brings it up to "
                        "date",
                        s->storage.file);
}

int gb_store_inspect(const char *path, struct gb_store **ret, struct gb_error *err) {
    struct gb_store *s = store_new(path, -1, err);

    if (!s)
        return -1;
    if (gb_db_connect_read(path, &s->db, err) < 0 || gb_db_verify(s->db, path, err) < 0 || check_schema(s, err) < 0) {
        gb_store_close(s);
        return -1;
    }
    *ret = s;
    return 0;
}

void gb_store_close(struct gb_store *s) {
    bool was_open;
    bool in_order;

    if (!s)
        return;
    was_open = s->writer != NULL;
    gb_writer_free(s->writer); /* first: it may still move the others */
    gb_reader_free(s->reader);
    gb_db_reader_done(&s->stored);
    was_open = was_open && s->storage.copy[0] == '\0';
    in_order = was_open && gb_feed_log_whole(s->feed);
    gb_feed_log_free(s->feed);
    gb_audit_log_free(s->audit);
    if (s->db) {
        if (was_open)
            gb_seen_save(s->seen, s->db, NULL);
        if (in_order)
            gb_history_stopped(s->db, gb_wall_us(), NULL);
        /* Also where a token connection is open, which would keep SQLite's own checkpoint at close from happening. What
         * cannot be moved now is read back from the log at the next open. */
        if (was_open)
            sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
        sqlite3_close(s->db);
    }
    gb_seen_free(s->seen);
    gb_lock_drop(s->place.lock_fd);
    free(s->storage.file);
    free(s);
}

/* --- time --------------------------------------------------------------------------------------------------------- */

int64_t gb_store_seen_since(struct gb_store *s, int64_t age_us) {
    return gb_seen_since(s->seen, age_us);
}

bool gb_store_clock(struct gb_store *s, struct gb_store_jump *ret) {
    return gb_seen_look(s->seen, ret);
}

/* --- reading all -------------------------------------------------------------------------------------------------- */

/* A start reads while the first changes and notices of its own are written already. */
static void enter(struct gb_store *s) {
    if (s->writer)
        gb_writer_enter(s->writer);
}

static void leave(struct gb_store *s) {
    if (s->writer)
        gb_writer_leave(s->writer);
}

int gb_store_load(struct gb_store *s, enum gb_store_kind kind, gb_store_visit_fn *visit, void *arg,
                  struct gb_error *err) {
    int r;

    enter(s);
    r = gb_row_walk(s->db, kind, visit, arg, err);
    leave(s);
    return r;
}

static int counters_row(void *arg, sqlite3_stmt *stmt, struct gb_error *err) {
    (void)err;
    gb_row_read_counters(stmt, arg);
    return 0;
}

static int load_counters(struct gb_store *s, const char *sql, struct gb_counters *ret, struct gb_error *err) {
    int r;

    enter(s);
    r = gb_db_each_row(s->db, sql, counters_row, ret, err);
    leave(s);
    return r;
}

int gb_store_load_counters(struct gb_store *s, struct gb_counters *ret, struct gb_error *err) {
    struct gb_counters counters = {0};

    if (load_counters(s, gb_row_get_counters_sql, &counters, err) < 0)
        return -1;
    *ret = counters;
    return 0;
}

int gb_store_load_counted(struct gb_store *s, struct gb_counters *ret, struct gb_error *err) {
    return load_counters(s, gb_row_get_counted_sql, ret, err);
}

static int read_last_ids(sqlite3 *db, struct gb_store_ids *ret, struct gb_error *err) {
    struct gb_store_ids ids = {0};

    if (gb_db_int(db, "SELECT seq FROM sqlite_sequence WHERE name = 'sessions'", &ids.session, err) < 0 ||
        gb_db_int(db, "SELECT seq FROM sqlite_sequence WHERE name = 'buffers'", &ids.buffer, err) < 0 ||
        gb_db_int(db, "SELECT seq FROM sqlite_sequence WHERE name = 'pools'", &ids.pool, err) < 0)
        return -1;
    *ret = ids;
    return 0;
}

int gb_store_last_ids(struct gb_store *s, struct gb_store_ids *ret, struct gb_error *err) {
    int r;

    enter(s);
    r = read_last_ids(s->db, ret, err);
    leave(s);
    return r;
}

int gb_store_fleet(struct gb_store *s, char ret[GB_STORE_FLEET_SIZE], struct gb_error *err) {
    int r;

    enter(s);
    r = read_fleet(s->db, ret, err);
    leave(s);
    return r;
}

int gb_store_set_fleet(struct gb_store *s, const char *uuid, struct gb_error *err) {
    char sql[128];
    size_t i;
    int r;

    for (i = 0; uuid[i]; i++)
        if (gb_hex_digit(uuid[i]) < 0 && uuid[i] != '-')
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "\"%s\" is no uuid", uuid);
    snprintf(sql, sizeof(sql), "UPDATE identity SET fleet = '%.*s'", GB_STORE_FLEET_SIZE - 1, uuid);
    if (gb_writer_health(s->writer, err) < 0)
        return -1;
    enter(s);
    r = gb_db_exec(s->db, sql, err);
    leave(s);
    return r;
}

int gb_store_uuid(struct gb_store *s, char ret[GB_STORE_UUID_SIZE], struct gb_error *err) {
    int r;

    enter(s);
    r = read_uuid(s->db, ret, err);
    leave(s);
    return r;
}

void gb_store_put_history(struct gb_store *s, const struct gb_history_sample *samples, size_t count,
                          const struct gb_counters *counters, gb_store_done_fn *done, void *arg) {
    size_t bytes = sizeof(struct gb_history_record) + count * sizeof(*samples);
    struct gb_history_record *record = malloc(bytes);

    if (!record) {
        gb_writer_lacks_memory(done, arg);
        return;
    }
    *record = (struct gb_history_record){.counted = counters != NULL, .count = count};
    if (counters)
        record->counters = *counters;
    if (count > 0)
        memcpy(record->samples, samples, count * sizeof(*samples));
    gb_writer_submit(s->writer, GB_CHANGE_PUT_HISTORY, record, bytes, NULL, done, arg);
    free(record);
}

void gb_store_roll(struct gb_store *s, int64_t now_us, bool *ret_more, gb_store_done_fn *done, void *arg) {
    struct gb_roll_record record = {.now_us = now_us, .ret_more = ret_more};

    *ret_more = false;
    gb_writer_submit(s->writer, GB_CHANGE_ROLL, &record, sizeof(record), NULL, done, arg);
}

void gb_store_history(struct gb_store *s, const struct gb_history_key *key, const struct gb_history_plan *plan,
                      gb_history_done_fn *done, void *arg) {
    gb_reader_ask(s->reader, key, plan, done, arg);
}

void gb_store_put_counters(struct gb_store *s, const struct gb_counters *counters, gb_store_done_fn *done, void *arg) {
    gb_writer_submit(s->writer, GB_CHANGE_PUT_COUNTERS, counters, sizeof(*counters), NULL, done, arg);
}

void gb_store_put_token_use(struct gb_store *s, const struct gb_token_use *use, gb_store_done_fn *done, void *arg) {
    gb_writer_submit(s->writer, GB_CHANGE_PUT_TOKEN_USE, use, sizeof(*use), NULL, done, arg);
}

void gb_store_flush(struct gb_store *s, gb_store_done_fn *done, void *arg) {
    gb_writer_submit(s->writer, GB_CHANGE_FLUSH, NULL, 0, NULL, done, arg);
}

/* --- stored bytes ------------------------------------------------------------------------------------------------- */

int gb_store_read_stored(struct gb_store *s, const struct gb_stored_rec *rec, void *out, struct gb_error *err) {
    return gb_stored_read(&s->stored, rec, out, err);
}

/* --- records ------------------------------------------------------------------------------------------------------ */

void gb_store_put_session(struct gb_store *s, const struct gb_session_rec *rec, const struct gb_store_mark *mark,
                          gb_store_done_fn *done, void *arg) {
    gb_writer_submit(s->writer, GB_CHANGE_PUT_SESSION, rec, sizeof(*rec), mark, done, arg);
}

void gb_store_put_buffer(struct gb_store *s, const struct gb_buffer_rec *rec, const struct gb_store_mark *mark,
                         gb_store_done_fn *done, void *arg) {
    gb_writer_submit(s->writer, GB_CHANGE_PUT_BUFFER, rec, sizeof(*rec), mark, done, arg);
}

void gb_store_put_pool(struct gb_store *s, const struct gb_pool_rec *rec, const struct gb_store_mark *mark,
                       gb_store_done_fn *done, void *arg) {
    gb_writer_submit(s->writer, GB_CHANGE_PUT_POOL, rec, sizeof(*rec), mark, done, arg);
}

void gb_store_delete_session(struct gb_store *s, int64_t id, bool durable, const struct gb_store_mark *mark,
                             gb_store_done_fn *done, void *arg) {
    const struct gb_session_deletion record = {.id = id, .durable = durable};

    gb_writer_submit(s->writer, GB_CHANGE_DEL_SESSION, &record, sizeof(record), mark, done, arg);
}

void gb_store_delete_buffer(struct gb_store *s, int64_t id, const struct gb_store_mark *mark, gb_store_done_fn *done,
                            void *arg) {
    gb_writer_submit(s->writer, GB_CHANGE_DEL_BUFFER, &id, sizeof(id), mark, done, arg);
}

void gb_store_delete_pool(struct gb_store *s, int64_t id, const struct gb_store_mark *mark, gb_store_done_fn *done,
                          void *arg) {
    gb_writer_submit(s->writer, GB_CHANGE_DEL_POOL, &id, sizeof(id), mark, done, arg);
}

void gb_store_edit_buffers(struct gb_store *s, const struct gb_store_edit *edits, size_t count,
                           const struct gb_store_mark *mark, gb_store_done_fn *done, void *arg) {
    const struct gb_store_edits record = {.edits = edits, .count = count};

    gb_writer_submit(s->writer, GB_CHANGE_EDIT_BUFFERS, &record, sizeof(record), mark, done, arg);
}

/* --- replies ------------------------------------------------------------------------------------------------------ */

void gb_store_marks_watch(struct gb_store *s, gb_store_marked_fn *marked, void *arg) {
    gb_writer_marks_watch(s->writer, marked, arg);
}

void gb_store_put_idempotency_reply(struct gb_store *s, const struct gb_store_idempotency_reply *answer, int64_t now_us,
                                    uint64_t keep, gb_store_done_fn *done, void *arg) {
    size_t headers_len = strlen(answer->headers);
    size_t bytes = sizeof(struct gb_idempotency_reply_record) + headers_len + answer->body_len;
    struct gb_idempotency_reply_record *record = malloc(bytes);

    if (!record) {
        gb_writer_lacks_memory(done, arg);
        return;
    }
    *record = (struct gb_idempotency_reply_record){.mark = answer->mark,
                                                   .durable = answer->durable,
                                                   .status = answer->status,
                                                   .now_us = now_us,
                                                   .keep = keep < INT64_MAX ? (int64_t)keep : INT64_MAX,
                                                   .headers_len = headers_len,
                                                   .body_len = answer->body_len};
    memcpy(record->text, answer->headers, headers_len);
    if (answer->body_len > 0)
        memcpy(record->text + headers_len, answer->body, answer->body_len);
    gb_writer_submit(s->writer, GB_CHANGE_PUT_ANSWER, record, bytes, NULL, done, arg);
    free(record);
}

int gb_token_store_beside(struct gb_store *s, struct gb_token_store **ret, struct gb_error *err) {
    /* The file may open, and lack a schema that there was no room for, which is then the store's to make. */
    if (s->storage.copy[0])
        return gb_token_store_read(s->storage.copy, s->storage.file, ret, err);
    return gb_token_store_open(s->storage.file, ret, err);
}

void gb_store_begin_turn(struct gb_store *s) {
    gb_writer_begin_turn(s->writer);
}

bool gb_store_end_turn(struct gb_store *s, bool idle) {
    return gb_writer_end_turn(s->writer, idle);
}

int gb_store_health(struct gb_store *s, struct gb_error *err) {
    return gb_writer_health(s->writer, err);
}

int gb_store_durable_health(struct gb_store *s, struct gb_error *err) {
    return gb_writer_durable_health(s->writer, err);
}

void gb_store_stat(struct gb_store *s, struct gb_store_stat *ret) {
    gb_writer_stat(s->writer, ret);
}

/* --- notices ------------------------------------------------------------------------------------------------------ */

int64_t gb_store_note(struct gb_store *s, const struct gb_notice *notice) {
    bool first;
    int64_t id = gb_feed_log_put(s->feed, notice, &first);

    if (first)
        gb_writer_tell(s->writer);
    return id;
}

void gb_store_feed_watch(struct gb_store *s, gb_store_noted_fn *noted, void *arg) {
    gb_feed_log_watch(s->feed, noted, arg);
}

void gb_store_feed_bounds(struct gb_store *s, struct gb_store_feed *ret) {
    gb_feed_log_bounds(s->feed, ret);
}

int gb_store_feed_read(struct gb_store *s, int64_t after, size_t max, int (*visit)(void *, const struct gb_notice *),
                       void *arg, struct gb_error *err) {
    return gb_feed_log_read(s->feed, after, max, visit, arg, err);
}

int gb_store_feed_recent(struct gb_store *s, size_t max, int (*visit)(void *, const struct gb_notice *), void *arg,
                         struct gb_error *err) {
    int r;

    enter(s);
    r = gb_feed_log_recent(s->feed, max, visit, arg, err);
    leave(s);
    return r;
}

/* --- the audit ---------------------------------------------------------------------------------------------------- */

void gb_store_audit(struct gb_store *s, const struct gb_audit_rec *rec) {
    if (gb_audit_log_put(s->audit, rec))
        gb_writer_tell(s->writer);
}

int gb_store_audit_read(struct gb_store *s, const struct gb_audit_query *query, gb_audit_visit_fn *visit, void *arg,
                        int64_t *ret_next, struct gb_error *err) {
    return gb_audit_log_read(s->audit, query, visit, arg, ret_next, err);
}

void gb_store_audit_stat(struct gb_store *s, struct gb_audit_log_stat *ret) {
    gb_audit_log_stat(s->audit, ret);
}
