/* Durable changes: which commits wait for the disk, and what is true after a sync has failed.
 *
 * A kill -9 is simulated by a copy of the database and its log, made while the store runs: it is what the next process
 * would find. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gb_test.h"
#include "store_fixture.h"
#include "store_vfs.h"

#define FOR_EVER 1000000 /* syncs */

static struct store_vfs_faults *disk;
static unsigned char data[100];

static void fail_syncs(int pass, int fail) {
    atomic_store(&disk->log_syncs_to_pass, pass);
    atomic_store(&disk->log_syncs_to_fail, fail);
}

/* --- a killed process --------------------------------------------------------------------------------------------- */

static void copy_file(const char *from, const char *to) {
    static char block[65536];
    int in = open(from, O_RDONLY);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t n;

    ck_assert_int_ge(in, 0);
    ck_assert_int_ge(out, 0);
    while ((n = read(in, block, sizeof(block))) > 0)
        ck_assert_int_eq(write(out, block, (size_t)n), n);
    ck_assert_int_eq(n, 0);
    close(in);
    close(out);
}

/* What a process would find that opens the database after this one was killed. To read it: f->dir/killed. */
static void kill_now(const struct store_fixture *f) {
    char from[128];
    char to[128];

    snprintf(to, sizeof(to), "%s/killed", f->dir);
    copy_file(f->path, to);
    snprintf(from, sizeof(from), "%s-wal", f->path);
    snprintf(to, sizeof(to), "%s/killed-wal", f->dir);
    copy_file(from, to);
}

static int64_t killed_int(const struct store_fixture *f, const char *sql) {
    char path[128];

    snprintf(path, sizeof(path), "%s/killed", f->dir);
    return store_sql_int(path, sql);
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

/* One change, and the copy that is made when its result is reported: no later commit is in it. */
struct change {
    const struct store_fixture *f; /* NULL: no copy */
    struct gb_buffer_rec rec;
    struct gb_stored_rec stored;
    struct gb_store_edit edit;
    struct gb_error error;
    struct store_wait wait;
};

static void change_done(void *arg, const struct gb_error *error) {
    struct change *c = arg;

    if (error)
        c->error = *error;
    if (c->f)
        kill_now(c->f);
    store_wait_report(&c->wait, error);
}

static void change_init(struct change *c, const struct store_fixture *f, int64_t id, int64_t version) {
    memset(c, 0, sizeof(*c));
    c->f = f;
    c->rec = store_buffer(id, 1, "");
    snprintf(c->rec.name.s, sizeof(c->rec.name.s), "b%lld", (long long)id);
    c->rec.version = version;
    store_wait_init(&c->wait);
}

static void start_put(struct store_fixture *f, struct change *c, int64_t id, int64_t version) {
    change_init(c, NULL, id, version);
    gb_store_put_buffer(f->store, &c->rec, NULL, change_done, c);
}

static void start_durable(struct store_fixture *f, struct change *c, int64_t id, int64_t version) {
    static const uint32_t block = 1;

    change_init(c, NULL, id, version);
    c->stored = (struct gb_stored_rec){
        .buffer_id = id, .generation = version, .run = 1, .bytes = sizeof(data), .blocks = &block};
    c->edit = (struct gb_store_edit){.rec = &c->rec, .durable = true, .stored = &c->stored, .data = data};
    gb_store_edit_buffers(f->store, &c->edit, 1, NULL, change_done, c);
}

static void finish(struct change *c, enum gb_code expected) {
    store_wait_until(&c->wait, 1);
    ck_assert_msg(c->error.code == expected, "buffer %lld: %s (%s), not %s", (long long)c->rec.id,
                  gb_code_slug(c->error.code), c->error.detail, gb_code_slug(expected));
    store_wait_done(&c->wait);
}

static void put(struct store_fixture *f, int64_t id, int64_t version, enum gb_code expected) {
    struct change c;

    start_put(f, &c, id, version);
    finish(&c, expected);
}

static void put_durable(struct store_fixture *f, int64_t id, int64_t version, enum gb_code expected) {
    struct change c;

    start_durable(f, &c, id, version);
    finish(&c, expected);
}

/* Killed as soon as the result is reported. */
static void put_durable_and_kill(struct store_fixture *f, int64_t id, int64_t version, enum gb_code expected) {
    struct store_gate gate;
    struct change c;

    store_gate_close(&gate, f->store);
    start_durable(f, &c, id, version);
    c.f = f;
    store_gate_open(&gate);
    finish(&c, expected);
}

/* A session, and a durable buffer 2 of version 5. The log has pages from then on. */
static void with_buffer(struct store_fixture *f, bool sync_full) {
    struct gb_session_rec session = store_session(1, "s");
    struct gb_error err = GB_ERROR_INIT;

    disk = store_vfs_install();
    store_fixture_dir(f);
    f->config.sync_full = sync_full;
    store_fixture_open(f);
    gb_assert_ok(store_put_session_now(f->store, &session, &err), err);
    put_durable(f, 2, 5, GB_OK);
}

static int64_t version_of(const struct store_fixture *f, int64_t id) {
    char sql[80];

    snprintf(sql, sizeof(sql), "SELECT sum(version) FROM buffers WHERE id = %lld", (long long)id);
    return store_sql_int(f->path, sql);
}

static void assert_durable(struct store_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_store_durable_health(f->store, &err), err);
}

static void assert_not_durable(struct store_fixture *f, const char *why) {
    struct gb_error err = GB_ERROR_INIT;

    ck_assert_int_eq(gb_store_durable_health(f->store, &err), -1);
    ck_assert_str_eq(gb_code_slug(err.code), gb_code_slug(GB_ERR_STORAGE_UNAVAILABLE));
    ck_assert_msg(strstr(err.detail, why) != NULL, "\"%s\" lacks \"%s\"", err.detail, why);
}

/* No change is queued meanwhile: the store mends itself. */
static void until_durable(struct store_fixture *f) {
    while (gb_store_durable_health(f->store, NULL) < 0)
        usleep(1000);
}

static int64_t log_bytes(const struct store_fixture *f) {
    char path[128];
    struct stat st;

    snprintf(path, sizeof(path), "%s-wal", f->path);
    ck_assert_int_eq(stat(path, &st), 0);
    return (int64_t)st.st_size;
}

static uint64_t transactions(struct store_fixture *f) {
    struct gb_store_stat stat;

    gb_store_stat(f->store, &stat);
    return gb_histogram_count(&stat.took);
}

/* --- how many syncs ----------------------------------------------------------------------------------------------- */

static int syncs_since(int before) {
    return atomic_load(&disk->log_syncs) - before;
}

START_TEST(a_durable_change_is_synced_once) {
    struct store_fixture f;
    struct gb_store_stat stat;
    int before;
    int i;

    with_buffer(&f, false);
    for (i = 0; i < 3; i++) {
        before = atomic_load(&disk->log_syncs);
        put(&f, 3, 10 + i, GB_OK);
        ck_assert_int_eq(syncs_since(before), 0);
        put_durable(&f, 2, 10 + i, GB_OK);
        ck_assert_int_eq(syncs_since(before), 1);
        put(&f, 3, 20 + i, GB_OK);
        put(&f, 4, 20 + i, GB_OK);
        ck_assert_int_eq(syncs_since(before), 1);
    }
    gb_store_stat(f.store, &stat);
    ck_assert_uint_eq(stat.durable_commits, 4);
    ck_assert_uint_eq(stat.commits, 1 + 1 + 3 * 4);
    store_fixture_done(&f);
}
END_TEST

START_TEST(an_edit_that_is_not_durable_is_not_synced) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec = store_buffer(3, 1, "b3");
    struct gb_store_edit edit = {.rec = &rec};
    int before;

    with_buffer(&f, false);
    before = atomic_load(&disk->log_syncs);
    gb_assert_ok(store_edit_now(f.store, &edit, 1, &err), err);
    gb_store_delete_session(f.store, 99, false, NULL, NULL, NULL);
    gb_assert_ok(store_flush_now(f.store, &err), err);
    ck_assert_int_eq(syncs_since(before), 0);
    store_fixture_done(&f);
}
END_TEST

/* The commit that made what is there already may not be on the disk. */
START_TEST(a_durable_change_without_a_difference_is_synced) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec = store_buffer(3, 1, "b3");
    struct gb_store_edit edit = {.rec = &rec, .durable = true};
    int before;

    with_buffer(&f, false);
    gb_assert_ok(store_put_buffer_now(f.store, &rec, &err), err);
    before = atomic_load(&disk->log_syncs);
    gb_assert_ok(store_edit_now(f.store, &edit, 1, &err), err);
    ck_assert_int_eq(syncs_since(before), 1);
    edit.removes = true;
    gb_assert_ok(store_edit_now(f.store, &edit, 1, &err), err);
    gb_assert_ok(store_edit_now(f.store, &edit, 1, &err), err);
    ck_assert_int_eq(syncs_since(before), 3);
    gb_store_delete_session(f.store, 99, true, NULL, NULL, NULL);
    gb_assert_ok(store_flush_now(f.store, &err), err);
    ck_assert_int_eq(syncs_since(before), 4);
    fail_syncs(0, 1);
    gb_assert_fails(store_edit_now(f.store, &edit, 1, &err), err, GB_ERR_STORE_FAILED);
    gb_assert_ok(store_edit_now(f.store, &edit, 1, &err), err);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_group_is_synced_once) {
    struct store_fixture f;
    struct store_gate gate;
    struct change c[10];
    uint64_t commits;
    int before;
    int i;

    with_buffer(&f, false);
    commits = transactions(&f);
    before = atomic_load(&disk->log_syncs);
    store_gate_close(&gate, f.store);
    for (i = 0; i < 10; i++) {
        if (i % 2)
            start_durable(&f, &c[i], 10 + i, 1);
        else
            start_put(&f, &c[i], 10 + i, 1);
    }
    store_gate_open(&gate);
    for (i = 0; i < 10; i++)
        finish(&c[i], GB_OK);
    ck_assert_int_eq(syncs_since(before), 1);
    ck_assert_uint_eq(transactions(&f), commits + 1);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM stored"), 6);
    store_fixture_done(&f);
}
END_TEST

START_TEST(all_are_synced_where_all_are_to_be) {
    struct store_fixture f;
    int before;

    with_buffer(&f, true);
    before = atomic_load(&disk->log_syncs);
    put(&f, 3, 1, GB_OK);
    put_durable(&f, 2, 6, GB_OK);
    put(&f, 3, 2, GB_OK);
    ck_assert_int_eq(syncs_since(before), 3);
    store_fixture_done(&f);
}
END_TEST

/* --- groups ------------------------------------------------------------------------------------------------------- */

struct group {
    struct store_gate gate;
    struct change put_before;
    struct change durable;
    struct change put_between;
    struct change other;
    struct change put_after;
};

static void start_group(struct store_fixture *f, struct group *g) {
    store_gate_close(&g->gate, f->store);
    start_put(f, &g->put_before, 10, 1);
    start_durable(f, &g->durable, 2, 6);
    start_put(f, &g->put_between, 11, 1);
    start_durable(f, &g->other, 12, 1);
    start_put(f, &g->put_after, 13, 1);
    store_gate_open(&g->gate);
}

static void finish_group(struct group *g, enum gb_code of_durable) {
    finish(&g->put_before, GB_OK);
    finish(&g->durable, of_durable);
    finish(&g->put_between, GB_OK);
    finish(&g->other, of_durable);
    finish(&g->put_after, GB_OK);
}

/* --- a sync that fails -------------------------------------------------------------------------------------------- */

/* What the fence is for: SQLite alone refuses the row, and has it when it opens the database again. */
START_TEST(without_a_fence_a_refused_row_comes_back) {
    struct store_fixture f;
    sqlite3 *db;

    disk = store_vfs_install();
    store_fixture_dir(&f);
    ck_assert_int_eq(sqlite3_open(f.path, &db), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(db,
                                  "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(v);"
                                  "INSERT INTO t VALUES(5)",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    fail_syncs(0, 1);
    ck_assert_int_eq(sqlite3_exec(db, "UPDATE t SET v = 6", NULL, NULL, NULL), SQLITE_IOERR);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT v FROM t"), 5);
    kill_now(&f);
    ck_assert_int_eq(killed_int(&f, "SELECT v FROM t"), 6);
    sqlite3_close(db);
    store_fixture_done(&f);
}
END_TEST

static void one_sync_fails(bool sync_full) {
    struct store_fixture f;
    struct change c;

    with_buffer(&f, sync_full);
    fail_syncs(0, 1);
    put_durable_and_kill(&f, 2, 6, GB_ERR_STORE_FAILED);
    ck_assert_int_eq(killed_int(&f, "SELECT version FROM buffers WHERE id = 2"), 5);
    ck_assert_int_eq(killed_int(&f, "SELECT generation FROM stored"), 5);
    ck_assert_int_eq(version_of(&f, 2), 5);
    assert_durable(&f);
    start_durable(&f, &c, 2, 7);
    finish(&c, GB_OK);
    ck_assert_int_eq(version_of(&f, 2), 7);
    store_fixture_close(&f);
    ck_assert_int_eq(version_of(&f, 2), 7);
    store_fixture_done(&f);
}

START_TEST(a_refused_change_does_not_come_back) {
    one_sync_fails(false);
}
END_TEST

START_TEST(a_refused_change_does_not_come_back_where_all_are_synced) {
    one_sync_fails(true);
}
END_TEST

/* As with --store-sync full for a change that is not durable itself. */
START_TEST(a_refused_put_does_not_come_back) {
    struct store_fixture f;
    struct store_gate gate;
    struct change c;

    with_buffer(&f, true);
    fail_syncs(0, 1);
    store_gate_close(&gate, f.store);
    start_put(&f, &c, 2, 6);
    c.f = &f;
    store_gate_open(&gate);
    finish(&c, GB_ERR_STORE_FAILED);
    ck_assert_str_eq(c.error.native_name, "SQLITE_IOERR_FSYNC");
    ck_assert_int_eq(killed_int(&f, "SELECT version FROM buffers WHERE id = 2"), 5);
    fail_syncs(0, 2);
    put(&f, 2, 6, GB_ERR_STORAGE_FAILED);
    put(&f, 2, 6, GB_OK); /* not refused at once */
    assert_durable(&f);
    store_fixture_done(&f);
}
END_TEST

/* A page that the failed sync left behind may be lost although later syncs succeed: none of the log is relied on. */
START_TEST(the_log_is_begun_anew) {
    struct store_fixture f;
    int64_t before;
    int i;

    with_buffer(&f, false);
    for (i = 0; i < 50; i++)
        put(&f, 3 + i, 1, GB_OK);
    before = log_bytes(&f);
    fail_syncs(0, 1);
    put_durable(&f, 2, 6, GB_ERR_STORE_FAILED);
    ck_assert_int_lt(log_bytes(&f) * 4, before);
    assert_durable(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM buffers"), 51);
    store_fixture_done(&f);
}
END_TEST

START_TEST(two_failed_syncs_leave_it_open) {
    struct store_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct change c;
    uint64_t tried;

    with_buffer(&f, false);
    fail_syncs(0, FOR_EVER);
    start_durable(&f, &c, 2, 6);
    finish(&c, GB_ERR_STORAGE_FAILED);
    ck_assert_str_eq(c.error.native_name, "SQLITE_IOERR_FSYNC");
    ck_assert_str_eq(c.error.call, "sqlite3_step");
    ck_assert_int_eq(version_of(&f, 2), 5);
    assert_not_durable(&f, "I/O error");
    tried = transactions(&f);
    put_durable(&f, 2, 7, GB_ERR_STORAGE_UNAVAILABLE);
    gb_store_delete_session(f.store, 1, true, NULL, NULL, NULL);
    gb_assert_ok(store_flush_now(f.store, &err), err);
    ck_assert_uint_eq(transactions(&f), tried);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM sessions"), 1);
    put(&f, 3, 1, GB_OK); /* no sync is due */
    ck_assert_int_eq(version_of(&f, 3), 1);
    assert_not_durable(&f, "I/O error");
    fail_syncs(0, 0);
    until_durable(&f);
    put_durable(&f, 2, 8, GB_OK);
    ck_assert_int_eq(version_of(&f, 2), 8);
    store_fixture_done(&f);
}
END_TEST

/* Exactly two: the commit and the fence. */
START_TEST(the_fence_is_one_commit) {
    struct store_fixture f;

    with_buffer(&f, false);
    fail_syncs(0, 2);
    put_durable(&f, 2, 6, GB_ERR_STORAGE_FAILED);
    ck_assert_int_eq(atomic_load(&disk->log_syncs_to_fail), 0);
    until_durable(&f);
    put_durable(&f, 2, 7, GB_OK);
    store_fixture_done(&f);
}
END_TEST

/* The fence succeeds, but the log cannot be begun again: the outcome is certain, the next durable change has to wait.
 * */
START_TEST(a_log_that_is_not_mended_takes_no_durable_change) {
    struct store_fixture f;
    struct group group;
    sqlite3 *reader;

    with_buffer(&f, false);
    ck_assert_int_eq(sqlite3_open_v2(f.path, &reader, SQLITE_OPEN_READONLY, "unix"), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM buffers", NULL, NULL, NULL), SQLITE_OK);
    fail_syncs(0, 1);
    put_durable_and_kill(&f, 2, 6, GB_ERR_STORE_FAILED);
    ck_assert_int_eq(killed_int(&f, "SELECT version FROM buffers WHERE id = 2"), 5);
    assert_not_durable(&f, "locked");
    put_durable(&f, 2, 7, GB_ERR_STORAGE_UNAVAILABLE);
    start_group(&f, &group);
    finish_group(&group, GB_ERR_STORAGE_UNAVAILABLE);
    sqlite3_close(reader);
    until_durable(&f);
    put_durable(&f, 2, 8, GB_OK);
    store_fixture_done(&f);
}
END_TEST

/* --- groups that meet a failed sync ------------------------------------------------------------------------------- */

START_TEST(a_group_is_tried_again_behind_the_fence) {
    struct store_fixture f;
    struct group g;

    with_buffer(&f, false);
    fail_syncs(0, 1);
    start_group(&f, &g);
    finish_group(&g, GB_OK);
    assert_durable(&f);
    ck_assert_int_eq(version_of(&f, 2), 6);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT sum(id) FROM buffers"), 2 + 10 + 11 + 12 + 13);
    store_fixture_done(&f);
}
END_TEST

/* It is known of none of its durable changes what became of them; the others are tried again, each alone. */
START_TEST(a_group_without_a_fence_leaves_it_open) {
    struct store_fixture f;
    struct group g;

    with_buffer(&f, false);
    fail_syncs(0, FOR_EVER);
    start_group(&f, &g);
    finish_group(&g, GB_ERR_STORAGE_FAILED);
    assert_not_durable(&f, "I/O error");
    ck_assert_int_eq(version_of(&f, 2), 5);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT sum(id) FROM buffers"), 2 + 10 + 11 + 13);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_group_is_refused_in_part) {
    struct store_fixture f;
    struct group g;

    with_buffer(&f, false);
    fail_syncs(0, FOR_EVER);
    put_durable(&f, 2, 9, GB_ERR_STORAGE_FAILED);
    start_group(&f, &g);
    finish_group(&g, GB_ERR_STORAGE_UNAVAILABLE);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT sum(id) FROM buffers"), 2 + 10 + 11 + 13);
    store_fixture_done(&f);
}
END_TEST

START_TEST(each_failed_commit_has_its_own_fence) {
    struct store_fixture f;

    with_buffer(&f, false);
    put_durable(&f, 12, 1, GB_OK);
    fail_syncs(0, 1);
    put_durable_and_kill(&f, 2, 7, GB_ERR_STORE_FAILED);
    ck_assert_int_eq(killed_int(&f, "SELECT version FROM buffers WHERE id = 2"), 5);
    fail_syncs(0, 1);
    put_durable_and_kill(&f, 12, 7, GB_ERR_STORE_FAILED);
    ck_assert_int_eq(killed_int(&f, "SELECT version FROM buffers WHERE id = 12"), 1);
    assert_durable(&f);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_bad_durable_change_fails_alone) {
    struct store_fixture f;
    struct store_gate gate;
    struct change good;
    struct change bad;
    struct change other;
    int before;

    with_buffer(&f, false);
    before = atomic_load(&disk->log_syncs);
    store_gate_close(&gate, f.store);
    start_durable(&f, &good, 2, 6);
    change_init(&bad, NULL, 77, 1);
    bad.rec.session_id = 99;
    bad.edit = (struct gb_store_edit){.rec = &bad.rec, .durable = true};
    gb_store_edit_buffers(f.store, &bad.edit, 1, NULL, change_done, &bad);
    start_put(&f, &other, 10, 1);
    store_gate_open(&gate);
    finish(&good, GB_OK);
    finish(&bad, GB_ERR_STORE_FAILED);
    finish(&other, GB_OK);
    ck_assert_str_eq(bad.error.native_name, "SQLITE_CONSTRAINT_FOREIGNKEY");
    ck_assert_int_eq(syncs_since(before), 1); /* of the good one: no fence */
    assert_durable(&f);
    store_fixture_done(&f);
}
END_TEST

/* --- other failures ----------------------------------------------------------------------------------------------- */

START_TEST(a_full_disk_is_no_failed_sync) {
    struct store_fixture f;
    int before;

    with_buffer(&f, false);
    before = atomic_load(&disk->log_syncs);
    atomic_store(&disk->write_result, SQLITE_FULL);
    put_durable_and_kill(&f, 2, 6, GB_ERR_STORAGE_FULL);
    ck_assert_int_eq(syncs_since(before), 0);
    assert_durable(&f);
    atomic_store(&disk->write_result, SQLITE_OK);
    ck_assert_int_eq(killed_int(&f, "SELECT version FROM buffers WHERE id = 2"), 5);
    put_durable(&f, 2, 7, GB_OK);
    store_fixture_done(&f);
}
END_TEST

START_TEST(writes_that_fail_leave_it_open) {
    struct store_fixture f;

    with_buffer(&f, false);
    atomic_store(&disk->write_result, SQLITE_IOERR_WRITE);
    put_durable(&f, 2, 6, GB_ERR_STORAGE_FAILED);
    put_durable(&f, 2, 7, GB_ERR_STORAGE_UNAVAILABLE);
    put(&f, 3, 1, GB_ERR_STORE_FAILED); /* it is tried */
    atomic_store(&disk->write_result, SQLITE_OK);
    put(&f, 3, 1, GB_OK);
    until_durable(&f);
    put_durable(&f, 2, 8, GB_OK);
    store_fixture_done(&f);
}
END_TEST

/* A checkpoint syncs the log, too. Its failure is reported once, to it. */
START_TEST(a_failed_sync_of_a_checkpoint_counts) {
    static char body[1 << 20];
    struct gb_store_idempotency_reply reply = {.mark = {.key = "k", .fingerprint = "f", .expires_at_us = INT64_MAX},
                                               .status = 200,
                                               .headers = "",
                                               .body = body,
                                               .body_len = sizeof(body)};
    struct store_fixture f;

    with_buffer(&f, false);
    fail_syncs(0, FOR_EVER);
    while (gb_store_durable_health(f.store, NULL) == 0) {
        struct gb_error err = GB_ERROR_INIT;

        body[0]++;
        gb_store_put_idempotency_reply(f.store, &reply, 0, 10, NULL, NULL);
        gb_assert_ok(store_flush_now(f.store, &err), err);
    }
    put_durable(&f, 2, 6, GB_ERR_STORAGE_UNAVAILABLE);
    fail_syncs(0, 0);
    until_durable(&f);
    put_durable(&f, 2, 6, GB_OK);
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_durable");

    gb_test_add(suite, "one sync", a_durable_change_is_synced_once, 60);
    gb_test_add(suite, "no sync", an_edit_that_is_not_durable_is_not_synced, 60);
    gb_test_add(suite, "no difference", a_durable_change_without_a_difference_is_synced, 60);
    gb_test_add(suite, "group", a_group_is_synced_once, 60);
    gb_test_add(suite, "all", all_are_synced_where_all_are_to_be, 60);
    gb_test_add(suite, "control", without_a_fence_a_refused_row_comes_back, 60);
    gb_test_add(suite, "fence", a_refused_change_does_not_come_back, 60);
    gb_test_add(suite, "fence all", a_refused_change_does_not_come_back_where_all_are_synced, 60);
    gb_test_add(suite, "fence put", a_refused_put_does_not_come_back, 60);
    gb_test_add(suite, "log", the_log_is_begun_anew, 60);
    gb_test_add(suite, "two", two_failed_syncs_leave_it_open, 60);
    gb_test_add(suite, "two exactly", the_fence_is_one_commit, 60);
    gb_test_add(suite, "reader", a_log_that_is_not_mended_takes_no_durable_change, 60);
    gb_test_add(suite, "group again", a_group_is_tried_again_behind_the_fence, 60);
    gb_test_add(suite, "group open", a_group_without_a_fence_leaves_it_open, 60);
    gb_test_add(suite, "group refused", a_group_is_refused_in_part, 60);
    gb_test_add(suite, "each", each_failed_commit_has_its_own_fence, 60);
    gb_test_add(suite, "bad change", a_bad_durable_change_fails_alone, 60);
    gb_test_add(suite, "full", a_full_disk_is_no_failed_sync, 60);
    gb_test_add(suite, "writes", writes_that_fail_leave_it_open, 60);
    gb_test_add(suite, "checkpoint", a_failed_sync_of_a_checkpoint_counts, 300);
    return gb_test_run(suite);
}
