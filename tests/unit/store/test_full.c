/* A full disk: while the store runs, when it is opened, and when there is space again. */
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

#include "gb_test.h"
#include "store_fixture.h"
#include "store_vfs.h"

static struct store_vfs_faults *disk;

static void fill(void) {
    atomic_store(&disk->write_result, SQLITE_FULL);
}

static void make_room(void) {
    atomic_store(&disk->write_result, SQLITE_OK);
}

static void put(struct store_fixture *f, int64_t id, enum gb_code expected) {
    struct gb_session_rec rec = store_session(id, id == 1 ? "one" : "two");
    struct gb_error err = GB_ERROR_INIT;
    int r = store_put_session_now(f->store, &rec, &err);

    ck_assert_msg(err.code == expected && (r == 0) == (expected == GB_OK), "session %lld: %d %s", (long long)id,
                  err.code, err.detail);
}

/* No change is queued meanwhile: the store's own probe detects the free space. */
static void until_healthy(struct store_fixture *f) {
    while (gb_store_health(f->store, NULL) < 0)
        usleep(1000);
}

static int count_session(void *arg, const void *row, struct gb_error *err) {
    const struct gb_session_rec *rec = row;
    (void)rec;
    (void)err;
    ++*(int *)arg;
    return 0;
}

static int sessions_at_start(struct store_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    int count = 0;

    gb_assert_ok(gb_store_load(f->store, GB_STORE_SESSIONS, count_session, &count, &err), err);
    return count;
}

START_TEST(full_while_it_runs) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_store_stat stat;
    struct store_fixture f;

    disk = store_vfs_install();
    store_fixture_init(&f);
    put(&f, 1, GB_OK);
    ck_assert_int_eq(gb_store_health(f.store, NULL), 0);
    fill();
    put(&f, 2, GB_ERR_STORAGE_FULL);
    ck_assert_int_eq(gb_store_health(f.store, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_STORE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.detail, "make room"));
    gb_store_stat(f.store, &stat);
    ck_assert(!stat.writable);
    ck_assert_int_eq(stat.last_failure.code, GB_ERR_STORAGE_FULL); /* what the log tells */
    make_room();
    until_healthy(&f);
    gb_store_stat(f.store, &stat);
    ck_assert(stat.writable);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM sessions"), 1);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM feed"), 0);
    put(&f, 2, GB_OK);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM sessions"), 2);
    store_fixture_done(&f);
}
END_TEST

/* The probe fails as long as writes fail. */
START_TEST(full_for_longer) {
    struct store_fixture f;
    struct gb_store_stat before;
    struct gb_store_stat now;

    disk = store_vfs_install();
    store_fixture_init(&f);
    fill();
    put(&f, 1, GB_ERR_STORAGE_FULL);
    gb_store_stat(f.store, &before);
    atomic_store(&disk->refused, 0);
    while (atomic_load(&disk->refused) < 2)
        usleep(1000);
    gb_store_stat(f.store, &now);
    ck_assert(!now.writable);
    ck_assert_uint_eq(now.failures, before.failures);
    make_room();
    until_healthy(&f);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_bad_change_is_not_the_disk) {
    struct gb_buffer_rec orphan = store_buffer(1, 77, "b");
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;

    store_fixture_init(&f);
    ck_assert_int_eq(store_put_buffer_now(f.store, &orphan, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_STORE_FAILED);
    ck_assert_int_eq(gb_store_health(f.store, NULL), 0);
    store_fixture_done(&f);
}
END_TEST

static void check_opened_full(struct store_fixture *f, int known) {
    store_fixture_open(f);
    ck_assert_int_eq(sessions_at_start(f), known);
    ck_assert_int_eq(gb_store_health(f->store, NULL), -1);
    put(f, 2, GB_ERR_STORAGE_FULL);
    make_room();
    until_healthy(f);
    put(f, 2, GB_OK);
    ck_assert_int_eq(store_sql_int(f->path, "SELECT count(*) FROM sessions"), known + 1);
    store_fixture_close(f);
    store_fixture_open(f);
    ck_assert_int_eq(sessions_at_start(f), known + 1);
    store_fixture_done(f);
}

START_TEST(opened_full_and_new) {
    struct store_fixture f;

    disk = store_vfs_install();
    store_fixture_dir(&f);
    fill();
    check_opened_full(&f, 0);
}
END_TEST

START_TEST(opened_full_with_a_past) {
    struct store_fixture f;

    disk = store_vfs_install();
    store_fixture_init(&f);
    put(&f, 1, GB_OK);
    store_fixture_close(&f);
    fill();
    check_opened_full(&f, 1);
}
END_TEST

/* Constant retries of clients do not keep the store from probing. */
START_TEST(opened_full_and_busy) {
    struct gb_session_rec rec = store_session(1, "one");
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;

    disk = store_vfs_install();
    store_fixture_dir(&f);
    fill();
    store_fixture_open(&f);
    put(&f, 1, GB_ERR_STORAGE_FULL);
    make_room();
    while (store_put_session_now(f.store, &rec, &err) < 0) {
        ck_assert_int_eq(err.code, GB_ERR_STORAGE_FULL);
        err = GB_ERROR_INIT;
    }
    ck_assert_int_eq(gb_store_health(f.store, NULL), 0);
    store_fixture_done(&f);
}
END_TEST

/* A change that is committed but only in the write-ahead log, as after a crash. */
START_TEST(opened_full_with_a_log) {
    struct store_fixture f;
    sqlite3 *other;

    disk = store_vfs_install();
    store_fixture_init(&f);
    ck_assert_int_eq(sqlite3_open_v2(f.path, &other, SQLITE_OPEN_READWRITE, "unix"), SQLITE_OK);
    put(&f, 1, GB_OK);
    ck_assert_int_eq(sqlite3_exec(other, "BEGIN; SELECT * FROM sessions", NULL, NULL, NULL), SQLITE_OK);
    store_fixture_close(&f); /* the reader prevents the checkpoint */
    fill();
    sqlite3_close(other);
    check_opened_full(&f, 1);
}
END_TEST

/* Tokens stay in force from memory, and changes by other processes are read as soon as they can be written. */
/* The file opens by now, and its tables are the store's to make, which has the lock. */
START_TEST(tokens_where_there_is_room_again) {
    struct gb_token_store *tokens = NULL;
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;

    disk = store_vfs_install();
    store_fixture_dir(&f);
    fill();
    store_fixture_open(&f);
    make_room();
    gb_assert_ok(gb_token_store_beside(f.store, &tokens, &err), err);
    gb_token_store_close(tokens);
    store_fixture_done(&f);
}
END_TEST

START_TEST(tokens_beside_a_full_disk) {
    struct gb_token_rec rec = {.name = {"t"}, .scopes = 1u << GB_SCOPE_READ};
    struct gb_token_store *tokens = NULL;
    struct gb_token_store *command = NULL;
    struct gb_error err = GB_ERROR_INIT;
    struct store_fixture f;
    bool changed = false;

    disk = store_vfs_install();
    memset(rec.sha256_hex, 'a', sizeof(rec.sha256_hex) - 1);
    store_fixture_dir(&f);
    fill();
    store_fixture_open(&f);
    gb_assert_ok(gb_token_store_beside(f.store, &tokens, &err), err);
    gb_assert_ok(gb_token_changed(tokens, &changed, &err), err);
    ck_assert(!changed);
    put(&f, 1, GB_ERR_STORAGE_FULL);
    make_room();
    until_healthy(&f);
    gb_assert_ok(gb_token_store_open(f.path, &command, &err), err);
    gb_assert_ok(gb_token_add(command, &rec, &err), err);
    gb_token_store_close(command);
    gb_assert_ok(gb_token_changed(tokens, &changed, &err), err);
    ck_assert(changed);
    gb_token_store_close(tokens);
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_full");

    gb_test_add(suite, "room again", tokens_where_there_is_room_again, 60);
    gb_test_add(suite, "running", full_while_it_runs, 60);
    gb_test_add(suite, "longer", full_for_longer, 60);
    gb_test_add(suite, "bad_change", a_bad_change_is_not_the_disk, 60);
    gb_test_add(suite, "opened_new", opened_full_and_new, 60);
    gb_test_add(suite, "opened_again", opened_full_with_a_past, 60);
    gb_test_add(suite, "opened_busy", opened_full_and_busy, 60);
    gb_test_add(suite, "opened_log", opened_full_with_a_log, 60);
    gb_test_add(suite, "tokens", tokens_beside_a_full_disk, 60);
    return gb_test_run(suite);
}
