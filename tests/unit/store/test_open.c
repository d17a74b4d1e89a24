/* Opening a store: databases that are refused and left unchanged, created, or migrated. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "gb_test.h"
#include "store/migrate.h"
#include "store_fixture.h"

/* Makes the records' tables those of an earlier schema: drops the columns that later ones have brought. */
static void drop_columns_since(const char *path, int schema) {
    static const struct {
        int since;
        const char *table;
        const char *name;
    } columns[] = {
#define GB_SESSION_FIELD(name, type, how, since) {since, "sessions", #name},
#define GB_SESSION_QUOTA(name, type, how, since) {since, "sessions", "quota_" #name},
#define GB_SESSION_PARTITION(name, type, how, since) {since, "sessions", #name},
#include "model/session.def"
#define GB_BUFFER_FIELD(name, type, how, since) {since, "buffers", #name},
#include "model/buffer.def"
#define GB_POOL_FIELD(name, type, how, since, ...) {since, "pools", #name},
#include "model/pool.def"
    };
    char sql[128];
    size_t i;

    for (i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        if (columns[i].since <= schema || (schema < 2 && strcmp(columns[i].table, "pools") == 0))
            continue;
        snprintf(sql, sizeof(sql), "ALTER TABLE %s DROP COLUMN %s", columns[i].table, columns[i].name);
        store_sql_exec(path, sql);
    }
    if (schema >= 8 && schema < 18)
        store_sql_exec(path, "ALTER TABLE sessions ADD COLUMN pool_id INTEGER NOT NULL DEFAULT 0");
    snprintf(sql, sizeof(sql), "PRAGMA user_version = %d", schema);
    store_sql_exec(path, sql);
}

/* The schema of a new database. */
static int64_t newest(void) {
    struct store_fixture f;
    int64_t schema;

    store_fixture_init(&f);
    schema = store_sql_int(f.path, "PRAGMA user_version");
    store_fixture_done(&f);
    return schema;
}

/* Asserts that opening is refused with INTERNAL and a sentence that contains `word`. */
static void assert_refused(const struct store_fixture *f, const char *word) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_store *store = NULL;

    ck_assert_int_eq(gb_store_open(&f->config, &store, &err), -1);
    ck_assert_ptr_null(store);
    ck_assert_int_eq(err.code, GB_ERR_INTERNAL);
    ck_assert_msg(strstr(err.detail, word) != NULL, "\"%s\" lacks \"%s\"", err.detail, word);
}

static void write_file(const char *path, const void *data, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, data, n), (ssize_t)n);
    close(fd);
}

static size_t read_file(const char *path, unsigned char *out, size_t size) {
    int fd = open(path, O_RDONLY);
    ssize_t n;

    ck_assert_int_ge(fd, 0);
    n = read(fd, out, size);
    ck_assert_int_ge(n, 0);
    close(fd);
    return (size_t)n;
}

START_TEST(a_new_database_is_private_and_marked) {
    struct store_fixture f;
    struct stat st;
    char mode[64];

    umask(0);
    store_fixture_init(&f);
    ck_assert_int_eq(stat(f.path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    ck_assert_int_ge(store_sql_int(f.path, "PRAGMA user_version"), 17);
    ck_assert_int_eq(store_sql_int(f.path, "PRAGMA application_id"), 0x47505542);
    store_sql_text(f.path, "PRAGMA journal_mode", mode);
    ck_assert_str_eq(mode, "wal");
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND type ="
                                           " 'table' AND name NOT LIKE 'sqlite%' AND NOT strict"),
                     0);
    store_fixture_done(&f);
}
END_TEST

START_TEST(closing_empties_the_log) {
    struct store_fixture f;
    struct gb_session_rec rec = store_session(1, "s");
    struct gb_error err = GB_ERROR_INIT;
    struct gb_token_store *tokens;
    struct stat st;
    char wal[128];

    store_fixture_init(&f);
    /* A second connection keeps SQLite from removing the log's file, so that the test can read its size. */
    gb_assert_ok(gb_token_store_open(f.path, &tokens, &err), err);
    gb_assert_ok(store_put_session_now(f.store, &rec, &err), err);
    snprintf(wal, sizeof(wal), "%s-wal", f.path);
    ck_assert_int_eq(stat(wal, &st), 0);
    ck_assert_int_gt(st.st_size, 0);
    store_fixture_close(&f);
    ck_assert_int_eq(stat(wal, &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    gb_token_store_close(tokens);
    store_fixture_done(&f);
}
END_TEST

START_TEST(no_database_is_refused_and_kept) {
    static const char text[] = "This is a letter to my mother. It is long enough to be a page of something, and it is "
                               "no database at all, whatever its name says.";
    unsigned char after[sizeof(text) + 1];
    struct store_fixture f;

    store_fixture_dir(&f);
    write_file(f.path, text, sizeof(text));
    assert_refused(&f, "cannot be read as a database");
    ck_assert_uint_eq(read_file(f.path, after, sizeof(after)), sizeof(text));
    ck_assert_mem_eq(after, text, sizeof(text));
    store_fixture_done(&f);
}
END_TEST

START_TEST(another_programs_database_is_refused_and_kept) {
    struct store_fixture f;
    unsigned char before[32768];
    unsigned char after[32768];
    size_t n;

    store_fixture_dir(&f);
    write_file(f.path, "", 0);
    store_sql_exec(f.path, "CREATE TABLE recipes(name TEXT)");
    n = read_file(f.path, before, sizeof(before));
    assert_refused(&f, "another program");
    ck_assert_uint_eq(read_file(f.path, after, sizeof(after)), n);
    ck_assert_mem_eq(after, before, n);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_damaged_database_is_refused_and_kept) {
    struct store_fixture f;
    struct gb_session_rec session = store_session(1, "s");
    static unsigned char before[1 << 20];
    static unsigned char after[1 << 20];
    struct gb_buffer_rec buffer;
    char name[16];
    size_t n;
    int i;

    store_fixture_init(&f);
    gb_store_put_session(f.store, &session, NULL, NULL, NULL);
    for (i = 1; i <= 300; i++) {
        snprintf(name, sizeof(name), "b%d", i);
        buffer = store_buffer(i, 1, name);
        gb_store_put_buffer(f.store, &buffer, NULL, NULL, NULL);
    }
    store_fixture_close(&f);
    n = read_file(f.path, before, sizeof(before));
    ck_assert_uint_gt(n, 40960);
    memset(before + n - 8192, 0x5a, 8192);
    write_file(f.path, before, n);
    assert_refused(&f, "is damaged");
    ck_assert_uint_eq(read_file(f.path, after, sizeof(after)), n);
    ck_assert_mem_eq(after, before, n);
    write_file(f.path, before, n / 2); /* cut short */
    assert_refused(&f, f.path);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_newer_schema_is_refused) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_token_store *tokens;

    store_fixture_init(&f);
    store_fixture_close(&f);
    store_sql_exec(f.path, "PRAGMA user_version = 1000");
    assert_refused(&f, "has schema 1000");
    gb_assert_fails(gb_token_store_open(f.path, &tokens, &err), err, GB_ERR_INTERNAL);
    ck_assert_int_eq(store_sql_int(f.path, "PRAGMA user_version"), 1000);
    store_fixture_done(&f);
}
END_TEST

static int see_buffer(void *arg, const void *row, struct gb_error *err) {
    const struct gb_buffer_rec *rec = row;
    (void)err;
    *(struct gb_buffer_rec *)arg = *rec;
    return 0;
}

/* A database of the first schema, as an earlier version left it. */
START_TEST(an_older_schema_is_migrated) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct gb_buffer_rec buffer = store_buffer(2, 1, "b");
    struct gb_pool_rec pool = {.id = 3, .session_id = 1, .name = {"p"}};
    struct gb_buffer_rec seen = {.id = 0};

    store_fixture_init(&f);
    buffer.mirrored = true;
    buffer.sealed = true;
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &buffer, &err), err);
    store_fixture_close(&f);
    store_sql_exec(
        f.path,
        "DROP VIEW v_daemon; DROP VIEW v_daemon_minutes; DROP VIEW v_daemon_hours; DROP VIEW v_devices; DROP VIEW "
        "v_devices_minutes;"
        "DROP VIEW v_devices_hours; DROP VIEW v_pools; DROP VIEW v_pools_minutes; DROP VIEW v_pools_hours; DROP VIEW "
        "v_sessions;"
        "DROP VIEW v_sessions_minutes; DROP VIEW v_sessions_hours; DROP VIEW v_starts; DROP TABLE history_series;"
        "DROP TABLE history_samples; DROP TABLE history_minutes; DROP TABLE history_hours; DROP TABLE history_starts; "
        "DROP TABLE history_counted; DROP TABLE feed; DROP TABLE feed_state; DROP TABLE audit;"
        "CREATE TABLE pool_samples(id INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, device INTEGER NOT NULL, pool TEXT "
        "NOT NULL,"
        " used_bytes INTEGER, used_peak_bytes INTEGER, reserved_bytes INTEGER, reserved_peak_bytes INTEGER) STRICT;"
        "INSERT INTO pool_samples VALUES(1, 1000000, 0, 'default', 7, 8, 9, 10), (2, 2000000, 0, 'default', 17, 18, "
        "19, 20);"
        "DROP TABLE answers; DROP TABLE pools; DROP TABLE seen;"
        "DROP TRIGGER tokens_revoked; DROP TABLE token_uses; DROP INDEX tokens_by_subject;"
        "ALTER TABLE tokens DROP COLUMN prefix; ALTER TABLE tokens DROP COLUMN subject;"
        "ALTER TABLE tokens DROP COLUMN expires_at_us; ALTER TABLE tokens DROP COLUMN old_sha256_hex;"
        "ALTER TABLE tokens DROP COLUMN old_until_us; DROP TABLE stored; DROP TABLE identity;"
        "INSERT INTO tokens(name, sha256_hex, scope, session, created_at_us) VALUES('t', 'a', 'read', '', 1);");
    drop_columns_since(f.path, 1);
    store_fixture_open(&f);
    ck_assert_int_eq(store_sql_int(f.path, "PRAGMA user_version"), newest());
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM tokens WHERE prefix = '' AND expires_at_us = 0"), 1);
    gb_assert_ok(gb_store_load(f.store, GB_STORE_BUFFERS, see_buffer, &seen, &err), err);
    ck_assert_int_eq(seen.id, 2);
    ck_assert(!seen.mirrored);
    ck_assert(!seen.sealed);
    ck_assert_int_eq(seen.head, GB_HEAD_UNINITIALIZED);
    ck_assert_int_eq(
        store_sql_int(f.path, "SELECT sum(used_bytes) + sum(reserved_bytes) FROM v_pools WHERE pool = 'default'"),
        7 + 17 + 9 + 19);
    gb_store_put_pool(f.store, &pool, NULL, NULL, NULL);
    gb_assert_ok(store_flush_now(f.store, &err), err);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM pools"), 1);
    store_fixture_done(&f);
}
END_TEST

/* A database of the schema before durable buffers. */
START_TEST(a_database_without_stored_bytes_is_migrated) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct gb_buffer_rec buffer = store_buffer(2, 1, "b");
    struct gb_buffer_rec seen = {.durability = GB_DURABILITY_SYNC};
    char uuid[GB_STORE_UUID_SIZE];

    store_fixture_init(&f);
    session.durability = buffer.durability = GB_DURABILITY_SYNC;
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    gb_assert_ok(store_put_buffer_now(f.store, &buffer, &err), err);
    store_fixture_close(&f);
    store_sql_exec(f.path, "DROP TABLE stored; DROP TABLE identity; DROP TABLE seen");
    drop_columns_since(f.path, 11);
    store_fixture_open(&f);
    ck_assert_int_eq(store_sql_int(f.path, "PRAGMA user_version"), newest());
    gb_assert_ok(gb_store_load(f.store, GB_STORE_BUFFERS, see_buffer, &seen, &err), err);
    ck_assert_int_eq(seen.id, 2);
    ck_assert_int_eq(seen.durability, GB_DURABILITY_NONE);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM sessions WHERE durability = 'none'"), 1);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM stored"), 0);
    gb_assert_ok(gb_store_uuid(f.store, uuid, &err), err);
    ck_assert_uint_eq(strlen(uuid), GB_STORE_UUID_SIZE - 1);
    store_fixture_done(&f);
}
END_TEST

static int see_session(void *arg, const void *row, struct gb_error *err) {
    const struct gb_session_rec *rec = row;
    (void)err;
    gb_session_rec_set(arg, rec);
    return 0;
}

/* A database of the schema before sessions were set aside. */
START_TEST(no_session_of_before_was_set_aside) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct gb_session_rec seen = {.labels = NULL};

    store_fixture_init(&f);
    gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
    store_fixture_close(&f);
    store_sql_exec(f.path, "ALTER TABLE identity DROP COLUMN fleet; DROP TABLE seen");
    drop_columns_since(f.path, 14);
    store_fixture_open(&f);
    ck_assert_int_eq(store_sql_int(f.path, "PRAGMA user_version"), newest());
    gb_assert_ok(gb_store_load(f.store, GB_STORE_SESSIONS, see_session, &seen, &err), err);
    ck_assert_int_eq(seen.fleet_epoch, session.fleet_epoch);
    ck_assert_int_eq(seen.aside_epoch, 0);
    gb_session_rec_done(&seen);
    store_fixture_done(&f);
}
END_TEST

/* A database of the schema with one current pool. */
START_TEST(a_current_pool_of_before_is_one_of_them) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_rec session = store_session(1, "s");
    struct gb_session_rec seen = {.labels = NULL};
    int i;

    for (i = 0; i < 2; i++) {
        store_fixture_init(&f);
        gb_assert_ok(store_put_session_now(f.store, &session, &err), err);
        store_fixture_close(&f);
        drop_columns_since(f.path, 17);
        if (i == 1)
            store_sql_exec(f.path, "UPDATE sessions SET pool_id = 5");
        store_fixture_open(&f);
        gb_assert_ok(gb_store_load(f.store, GB_STORE_SESSIONS, see_session, &seen, &err), err);
        ck_assert_str_eq(gb_text_s(seen.current_pools), i == 1 ? "5" : "");
        ck_assert_int_eq(
            store_sql_int(f.path, "SELECT count(*) FROM pragma_table_info('sessions') WHERE name = 'pool_id'"), 0);
        store_fixture_done(&f);
    }
    gb_session_rec_done(&seen);
}
END_TEST

START_TEST(a_missing_counter_is_added) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_counters counters = {.uploads = 3, .trims = 4};

    store_fixture_init(&f);
    gb_store_put_counters(f.store, &counters, NULL, NULL);
    store_fixture_close(&f);
    store_sql_exec(f.path, "ALTER TABLE counters DROP COLUMN trims");
    store_fixture_open(&f);
    gb_assert_ok(gb_store_load_counters(f.store, &counters, &err), err);
    ck_assert_uint_eq(counters.uploads, 3);
    ck_assert_uint_eq(counters.trims, 0);
    counters.trims = 9;
    gb_store_put_counters(f.store, &counters, NULL, NULL);
    store_fixture_close(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT trims FROM counters"), 9);
    store_fixture_done(&f);
}
END_TEST

START_TEST(tables_made_anew_are_what_they_were) {
    struct store_fixture f;

    store_fixture_init(&f);
    store_fixture_close(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM pragma_table_info('history_hours') WHERE pk > 0"), 2);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT strict + wr FROM pragma_table_list('history_hours')"), 2);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT strict FROM pragma_table_list('counters')"), 1);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT pk FROM pragma_table_info('counters') WHERE name = 'id'"), 1);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_second_opener_is_refused) {
    struct store_fixture f;
    struct gb_session_rec rec = store_session(1, "s");
    struct gb_error err = GB_ERROR_INIT;
    char who[48];

    store_fixture_init(&f);
    snprintf(who, sizeof(who), "another gpubufd, process %ld, uses", (long)getpid());
    assert_refused(&f, who);
    gb_assert_ok(store_put_session_now(f.store, &rec, &err), err);
    store_fixture_close(&f);
    store_fixture_open(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM sessions"), 1);
    store_fixture_done(&f);
}
END_TEST

START_TEST(another_process_is_refused) {
    struct store_fixture f;
    struct gb_store *store;
    int status = -1;
    pid_t child;

    store_fixture_dir(&f);
    store_fixture_open(&f);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(gb_store_open(&f.config, &store, NULL) == -1 ? 42 : 1);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_place_that_cannot_be_used_is_named) {
    struct store_fixture f;

    store_fixture_dir(&f);
    snprintf(f.path, sizeof(f.path), "%s/absent/gpubufd.db", f.dir);
    assert_refused(&f, "absent/gpubufd.db");
    snprintf(f.path, sizeof(f.path), "%s/folder", f.dir);
    ck_assert_int_eq(mkdir(f.path, 0700), 0);
    assert_refused(&f, "folder");
    store_fixture_done(&f);
}
END_TEST

START_TEST(closing_nothing_is_fine) {
    gb_store_close(NULL);
    gb_token_store_close(NULL);
}
END_TEST

/* Incrementing these values would overflow. */
START_TEST(numbers_near_the_end_are_refused_and_kept) {
    static const struct {
        const char *table;
        const char *column;
        const char *put; /* the table may be empty */
    } numbers[] = {
        {"feed", "id", "INSERT INTO feed(id, at_us, type) VALUES(5, 1, 'daemon.started')"},
        {"feed_state", "dropped_through", ""},
        {"sqlite_sequence", "seq", "DELETE FROM sqlite_sequence; INSERT INTO sqlite_sequence VALUES('buffers', 1)"},
        {"token_epoch", "value", ""},
        {"sessions", "id", NULL},
        {"sessions", "version", NULL},
        {"sessions", "updated_at_us", NULL},
        {"answers", "expires_at_us", "INSERT INTO answers VALUES(1, 'k', 'f', 1, 200, '', NULL)"},
        {"history_starts", "at_us", ""},
    };
    static const char *const values[] = {"9223372036854775807", "4611686018427387905", "-1"};
    char sql[512];
    size_t i;
    size_t k;

    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        for (k = 0; k < 3; k++) {
            struct store_fixture f;
            struct gb_session_rec rec = store_session(1, "s");

            store_fixture_init(&f);
            if (!numbers[i].put)
                gb_store_put_session(f.store, &rec, NULL, NULL, NULL);
            store_fixture_close(&f);
            if (numbers[i].put)
                store_sql_exec(f.path, numbers[i].put);
            snprintf(sql, sizeof(sql), "UPDATE %s SET %s = %s", numbers[i].table, numbers[i].column, values[k]);
            store_sql_exec(f.path, sql);
            assert_refused(&f, values[k]);
            assert_refused(&f, numbers[i].table);
            snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s WHERE %s = %s", numbers[i].table, numbers[i].column,
                     values[k]);
            ck_assert_int_ge(store_sql_int(f.path, sql), 1);
            store_fixture_done(&f);
        }
    }
}
END_TEST

static void assert_displaced(struct store_fixture *f, const char *word, bool durable) {
    struct gb_session_rec session = store_session(2, "refused");
    struct gb_buffer_rec buffer = store_buffer(3, 1, "refused");
    struct gb_store_edit edit = {.rec = &buffer, .durable = true};
    struct gb_error refusal = GB_ERROR_INIT;
    struct gb_error health = GB_ERROR_INIT;
    struct gb_error durability = GB_ERROR_INIT;
    int r =
        durable ? store_edit_now(f->store, &edit, 1, &refusal) : store_put_session_now(f->store, &session, &refusal);

    ck_assert_int_eq(r, -1);
    ck_assert_int_eq(refusal.code, GB_ERR_STORE_UNAVAILABLE);
    ck_assert_msg(strstr(refusal.detail, word) != NULL, "\"%s\" lacks \"%s\"", refusal.detail, word);
    ck_assert_int_eq(gb_store_health(f->store, &health), -1);
    ck_assert_int_eq(health.code, GB_ERR_STORE_UNAVAILABLE);
    ck_assert_int_eq(gb_store_durable_health(f->store, &durability), -1);
    ck_assert_int_eq(durability.code, GB_ERR_STORAGE_UNAVAILABLE);
}

/* Of each file, in turn: a commit that waits for the disk asks where it goes. */
START_TEST(a_database_that_is_moved_takes_no_change) {
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    struct gb_session_rec first = store_session(1, "first");
    struct gb_session_rec last = store_session(4, "last");
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;
    char away[128];
    char path[128];

    store_fixture_dir(&f);
    f.config.sync_full = _i >= 3;
    store_fixture_open(&f);
    gb_assert_ok(store_put_session_now(f.store, &first, &err), err);
    snprintf(path, sizeof(path), "%s%s", f.path, suffixes[_i % 3]);
    snprintf(away, sizeof(away), "%s.away", f.path);
    ck_assert_int_eq(rename(path, away), 0);
    assert_displaced(&f, "renamed or removed", _i < 3);
    write_file(path, "other", 5);
    assert_displaced(&f, "replaced", _i < 3);
    ck_assert_int_eq(rename(away, path), 0);
    while (gb_store_health(f.store, NULL) < 0)
        sched_yield(); /* it looks by itself */
    gb_assert_ok(gb_store_durable_health(f.store, &err), err);
    gb_assert_ok(store_put_session_now(f.store, &last, &err), err);
    store_fixture_close(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM sessions"), 2);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM buffers"), 0);
    store_fixture_done(&f);
}
END_TEST

/* Changes that wait for no disk are refused once the files were looked at. */
START_TEST(a_removed_database_is_noticed) {
    struct store_fixture f;

    store_fixture_init(&f);
    ck_assert_int_eq(unlink(f.path), 0);
    while (gb_store_health(f.store, NULL) == 0)
        sched_yield();
    assert_displaced(&f, "renamed or removed", false);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_removed_lock_is_made_again) {
    struct gb_session_rec rec = store_session(1, "s");
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;
    char path[128];

    store_fixture_dir(&f);
    f.config.sync_full = true;
    store_fixture_open(&f);
    snprintf(path, sizeof(path), "%s.lock", f.path);
    ck_assert_int_eq(unlink(path), 0);
    gb_assert_ok(store_put_session_now(f.store, &rec, &err), err);
    assert_refused(&f, "another gpubufd");
    store_fixture_done(&f);
}
END_TEST

/* Prints each table with its columns in their order, each index, trigger and row. */
static char *describe(sqlite3 *db) {
    static const char sql[] =
        "SELECT t.name, t.strict, t.wr, c.cid, c.name, c.type, c.\"notnull\", c.dflt_value, c.pk FROM "
        "pragma_table_list AS"
        " t JOIN pragma_table_info(t.name) AS c WHERE t.schema = 'main' ORDER BY t.name, c.cid;"
        "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('index', 'trigger') ORDER BY name;"
        "SELECT t.name, f.* FROM pragma_table_list AS t JOIN pragma_foreign_key_list(t.name) AS f ORDER BY t.name;"
        "SELECT 'user_version', user_version FROM pragma_user_version;"
        "SELECT * FROM token_epoch; SELECT * FROM feed_state; SELECT id, length(uuid), fleet FROM identity;"
        "SELECT count(*) FROM seen; SELECT count(*) FROM history_series";
    const char *next = sql;
    sqlite3_stmt *stmt;
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    int i;

    while (*next != '\0') {
        ck_assert_int_eq(sqlite3_prepare_v2(db, next, -1, &stmt, &next), SQLITE_OK);
        while (sqlite3_step(stmt) == SQLITE_ROW) {
            for (i = 0; i < sqlite3_column_count(stmt); i++)
                fprintf(out, "%s|", (const char *)sqlite3_column_text(stmt, i));
            fputc('\n', out);
        }
        ck_assert_int_eq(sqlite3_finalize(stmt), SQLITE_OK);
    }
    fclose(out);
    return text;
}

START_TEST(a_new_schema_is_what_the_steps_make) {
    struct gb_error err = GB_ERROR_INIT;
    char *text[2];
    sqlite3 *db;
    int i;

    for (i = 0; i < 2; i++) {
        ck_assert_int_eq(sqlite3_open(":memory:", &db), SQLITE_OK);
        gb_assert_ok(i == 0 ? gb_migrate(db, "here", &err) : gb_migrate_from(db, 0, &err), err);
        text[i] = describe(db);
        sqlite3_close(db);
    }
    ck_assert(strstr(text[0], "sessions|1|0|0|id|INTEGER|") && strstr(text[0], "tokens_revoked"));
    ck_assert_str_eq(text[0], text[1]);
    free(text[0]);
    free(text[1]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_open");

    gb_test_add(suite, "new", a_new_database_is_private_and_marked, 60);
    gb_test_add(suite, "log", closing_empties_the_log, 60);
    gb_test_add(suite, "no_database", no_database_is_refused_and_kept, 60);
    gb_test_add(suite, "foreign", another_programs_database_is_refused_and_kept, 60);
    gb_test_add(suite, "damaged", a_damaged_database_is_refused_and_kept, 60);
    gb_test_add(suite, "numbers", numbers_near_the_end_are_refused_and_kept, 60);
    gb_test_add(suite, "newer", a_newer_schema_is_refused, 60);
    gb_test_add(suite, "whole", a_new_schema_is_what_the_steps_make, 60);
    gb_test_add(suite, "older", an_older_schema_is_migrated, 60);
    gb_test_add(suite, "stored", a_database_without_stored_bytes_is_migrated, 60);
    gb_test_add(suite, "none aside", no_session_of_before_was_set_aside, 60);
    gb_test_add(suite, "current pools", a_current_pool_of_before_is_one_of_them, 60);
    gb_test_add(suite, "counter", a_missing_counter_is_added, 60);
    gb_test_add(suite, "tables made anew", tables_made_anew_are_what_they_were, 60);
    gb_test_add(suite, "second", a_second_opener_is_refused, 60);
    gb_test_add(suite, "process", another_process_is_refused, 60);
    gb_test_add(suite, "place", a_place_that_cannot_be_used_is_named, 60);
    gb_test_add_loop(suite, "moved", a_database_that_is_moved_takes_no_change, 60, 6);
    gb_test_add(suite, "removed", a_removed_database_is_noticed, 60);
    gb_test_add(suite, "lock", a_removed_lock_is_made_again, 60);
    gb_test_add(suite, "null", closing_nothing_is_fine, 60);
    return gb_test_run(suite);
}
