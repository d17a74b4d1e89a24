/* The writer: order, groups, one bad change among good ones, a full queue, a failing disk. */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "gb_test.h"
#include "store_fixture.h"
#include "store_vfs.h"

#define MANY 200

/* The result of each change, in the order of the reports (all on the writer thread). */
struct report {
    struct journal *journal;
    int number;
};

struct journal {
    struct report reports[MANY + 1];
    int order[MANY + 1];
    struct gb_error error[MANY + 1]; /* by number */
    unsigned count;
    struct store_wait wait;
};

static void journal_init(struct journal *j) {
    int i;

    memset(j, 0, sizeof(*j));
    for (i = 0; i <= MANY; i++)
        j->reports[i] = (struct report){j, i};
    store_wait_init(&j->wait);
}

static void journal_report(void *arg, const struct gb_error *error) {
    struct report *r = arg;
    struct journal *j = r->journal;

    j->order[j->count++] = r->number;
    if (error)
        j->error[r->number] = *error;
    store_wait_report(&j->wait, error);
}

static void put_named(struct store_fixture *f, int64_t id, const char *name, struct report *report) {
    struct gb_buffer_rec rec = store_buffer(id, 1, name);

    gb_store_put_buffer(f->store, &rec, NULL, journal_report, report);
}

static void put_numbered(struct store_fixture *f, int64_t id, struct report *report) {
    char name[24];

    snprintf(name, sizeof(name), "b%lld", (long long)id);
    put_named(f, id, name, report);
}

static void with_session(struct store_fixture *f) {
    struct gb_session_rec session = store_session(1, "s");
    struct gb_error err = GB_ERROR_INIT;

    store_fixture_init(f);
    gb_assert_ok(store_put_session_now(f->store, &session, &err), err);
}

START_TEST(reports_come_in_order) {
    static struct journal j;
    struct store_fixture f;
    int i;

    with_session(&f);
    journal_init(&j);
    for (i = 0; i < MANY; i++) {
        if (i % 10 == 3)
            gb_store_flush(f.store, journal_report, &j.reports[i]);
        else
            put_numbered(&f, i + 1, &j.reports[i]);
    }
    store_wait_until(&j.wait, MANY);
    ck_assert_uint_eq(j.wait.failed, 0);
    for (i = 0; i < MANY; i++)
        ck_assert_int_eq(j.order[i], i);
    store_fixture_done(&f);
}
END_TEST

START_TEST(what_waits_is_one_commit) {
    static struct journal j;
    struct store_fixture f;
    struct store_gate gate;
    struct gb_store_stat before;
    struct gb_store_stat after;
    int i;

    with_session(&f);
    journal_init(&j);
    gb_store_stat(f.store, &before);
    ck_assert_uint_eq(before.commits, 1);
    ck_assert_uint_eq(before.changes, 1);
    ck_assert_uint_eq(before.queued, 0);
    store_gate_close(&gate, f.store);
    for (i = 0; i < MANY; i++)
        put_numbered(&f, i + 1, &j.reports[i]);
    gb_store_stat(f.store, &after);
    ck_assert_uint_eq(after.queued, MANY);
    ck_assert_uint_eq(after.commits, before.commits);
    store_gate_open(&gate);
    store_wait_until(&j.wait, MANY);
    gb_store_stat(f.store, &after);
    ck_assert_uint_eq(after.commits, before.commits + 1);
    ck_assert_uint_eq(after.changes, before.changes + MANY);
    ck_assert_uint_eq(after.failures, 0);
    ck_assert_uint_gt(after.took.ns, before.took.ns);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM buffers"), MANY);
    store_fixture_done(&f);
}
END_TEST

START_TEST(one_bad_change_fails_alone) {
    static struct journal j;
    struct store_fixture f;
    struct store_gate gate;
    struct gb_buffer_rec orphan = store_buffer(4, 99, "orphan");
    struct gb_store_stat stat;
    int i;

    with_session(&f);
    journal_init(&j);
    store_gate_close(&gate, f.store);
    put_named(&f, 1, "same", &j.reports[0]);
    put_named(&f, 2, "same", &j.reports[1]);
    put_named(&f, 3, "other", &j.reports[2]);
    gb_store_put_buffer(f.store, &orphan, NULL, journal_report, &j.reports[3]);
    gb_store_flush(f.store, journal_report, &j.reports[4]);
    gb_store_delete_buffer(f.store, 1, NULL, journal_report, &j.reports[5]);
    put_named(&f, 5, "same", &j.reports[6]);
    store_gate_open(&gate);
    store_wait_until(&j.wait, 7);
    for (i = 0; i < 7; i++) {
        ck_assert_int_eq(j.order[i], i);
        ck_assert_int_eq(j.error[i].code, i == 1 || i == 3 ? GB_ERR_STORE_FAILED : GB_OK);
    }
    ck_assert_str_eq(j.error[1].native_domain, "sqlite");
    ck_assert_str_eq(j.error[1].native_name, "SQLITE_CONSTRAINT_UNIQUE");
    ck_assert_int_eq(j.error[1].native_code, SQLITE_CONSTRAINT_UNIQUE);
    ck_assert_str_eq(j.error[1].call, "sqlite3_step");
    ck_assert_str_eq(j.error[3].native_name, "SQLITE_CONSTRAINT_FOREIGNKEY");
    gb_store_stat(f.store, &stat);
    ck_assert_uint_eq(stat.failures, 2);
    ck_assert_uint_eq(stat.orphans, 1);
    ck_assert_uint_eq(stat.changes, 5);
    ck_assert_uint_eq(stat.queued, 0);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT group_concat(id, '') FROM (SELECT id FROM buffers ORDER BY id)"),
                     35);
    store_fixture_done(&f);
}
END_TEST

static void edit(struct store_fixture *f, const struct gb_store_edit *edits, size_t count, struct report *report) {
    gb_store_edit_buffers(f->store, edits, count, NULL, journal_report, report);
}

/* A change of several records is committed whole or not at all. It shares a transaction with its neighbours; if one of
 * those fails, it gets its own. */
START_TEST(a_group_is_never_split) {
    static struct journal j;
    struct store_fixture f;
    struct store_gate gate;
    struct gb_buffer_rec recs[6];
    struct gb_store_edit good[] = {{.rec = &recs[0]}, {.rec = &recs[1]}, {.rec = &recs[5], .removes = true}};
    struct gb_store_edit bad[] = {{.rec = &recs[2]}, {.rec = &recs[3]}, {.rec = &recs[4]}};
    struct gb_store_stat stat;
    int i;

    with_session(&f);
    journal_init(&j);
    for (i = 0; i < 6; i++) {
        char name[16];

        snprintf(name, sizeof(name), "g%d", i == 4 ? 2 : i); /* the last record of the bad change reuses the first one's
                                                              * name */
        recs[i] = store_buffer(10 + i, 1, name);
    }
    gb_store_put_buffer(f.store, &recs[5], NULL, NULL, NULL);
    store_gate_close(&gate, f.store);
    put_named(&f, 1, "before", &j.reports[0]);
    edit(&f, bad, 3, &j.reports[1]);
    edit(&f, good, 3, &j.reports[2]);
    edit(&f, NULL, 0, &j.reports[3]);
    put_named(&f, 2, "after", &j.reports[4]);
    store_gate_open(&gate);
    store_wait_until(&j.wait, 5);
    for (i = 0; i < 5; i++) {
        ck_assert_int_eq(j.order[i], i);
        ck_assert_int_eq(j.error[i].code, i == 1 ? GB_ERR_STORE_FAILED : GB_OK);
    }
    ck_assert_str_eq(j.error[1].native_name, "SQLITE_CONSTRAINT_UNIQUE");
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM buffers"), 4);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM buffers WHERE id IN (1, 2, 10, 11)"), 4);
    gb_store_stat(f.store, &stat);
    ck_assert_uint_eq(stat.failures, 1);
    ck_assert_uint_eq(stat.queued, 0);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_full_queue_refuses) {
    static struct journal j;
    struct store_fixture f;
    struct store_gate gate;
    struct gb_store_stat stat;
    int i;

    with_session(&f);
    journal_init(&j);
    store_fixture_close(&f);
    f.config.queue_max = 5;
    store_fixture_open(&f);
    store_gate_close(&gate, f.store);
    for (i = 0; i < 7; i++)
        put_numbered(&f, i + 1, &j.reports[i]);
    gb_store_delete_buffer(f.store, 1, NULL, NULL, NULL); /* refused, too, but without a callback */
    gb_store_flush(f.store, journal_report, &j.reports[7]);
    gb_store_stat(f.store, &stat);
    ck_assert_uint_eq(stat.queued, 5);
    store_gate_open(&gate);
    store_wait_until(&j.wait, 8);
    for (i = 0; i < 8; i++) {
        ck_assert_int_eq(j.order[i], i);
        ck_assert_int_eq(j.error[i].code, i == 5 || i == 6 ? GB_ERR_SATURATED : GB_OK);
    }
    gb_store_stat(f.store, &stat);
    ck_assert_uint_eq(stat.failures, 3);
    ck_assert_uint_eq(stat.changes, 5);
    put_numbered(&f, 8, &j.reports[8]);
    store_wait_until(&j.wait, 9);
    ck_assert_int_eq(j.error[8].code, GB_OK);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM buffers"), 6);
    store_fixture_done(&f);
}
END_TEST

/* Each report queues the next change, as a daemon's completions do. */
struct chain {
    struct store_fixture *f;
    int left;
};

static void chain_next(void *arg, const struct gb_error *error) {
    struct chain *c = arg;
    char name[16];
    struct gb_buffer_rec rec;

    if (error || c->left == 0)
        return;
    snprintf(name, sizeof(name), "b%d", c->left);
    rec = store_buffer(c->left--, 1, name);
    gb_store_put_buffer(c->f->store, &rec, NULL, chain_next, c);
}

START_TEST(closing_carries_out_what_reports_queue) {
    struct store_fixture f;
    struct chain chain = {.f = &f, .left = 50};

    with_session(&f);
    gb_store_flush(f.store, chain_next, &chain);
    gb_store_close(f.store);
    f.store = NULL;
    ck_assert_int_eq(chain.left, 0);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM buffers"), 50);
    store_fixture_done(&f);
}
END_TEST

static void disk_fails(atomic_int *knob, int result, const char *name, bool sync_full, enum gb_code code) {
    static struct journal j;
    struct store_fixture f;
    int i;

    with_session(&f);
    store_fixture_close(&f);
    f.config.sync_full = sync_full;
    store_fixture_open(&f);
    journal_init(&j);
    put_numbered(&f, 1, &j.reports[0]);
    store_wait_until(&j.wait, 1);
    atomic_store(knob, result);
    for (i = 1; i < 5; i++)
        put_numbered(&f, i + 1, &j.reports[i]);
    store_wait_until(&j.wait, 5);
    atomic_store(knob, SQLITE_OK);
    put_numbered(&f, 6, &j.reports[5]);
    store_wait_until(&j.wait, 6);
    for (i = 1; i < 5; i++) {
        ck_assert_str_eq(gb_code_slug(j.error[i].code), gb_code_slug(code));
        ck_assert_str_eq(j.error[i].native_name, name);
        ck_assert_str_eq(j.error[i].call, "sqlite3_step");
        ck_assert_int_eq(j.error[i].native_code, result);
    }
    ck_assert_int_eq(j.error[5].code, GB_OK);
    store_fixture_close(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT sum(id) FROM buffers"), 7);
    store_fixture_done(&f);
}

START_TEST(a_full_disk_fails_changes_until_there_is_room) {
    struct store_vfs_faults *faults = store_vfs_install();

    disk_fails(&faults->write_result, SQLITE_FULL, "SQLITE_FULL", false, GB_ERR_STORAGE_FULL);
}
END_TEST

START_TEST(a_failing_disk_fails_changes) {
    struct store_vfs_faults *faults = store_vfs_install();

    disk_fails(&faults->sync_result, SQLITE_IOERR_FSYNC, "SQLITE_IOERR_FSYNC", true, GB_ERR_STORAGE_FAILED);
}
END_TEST

/* Takes five seconds, the writer's timeout for a lock of another process. */
START_TEST(a_locked_database_fails_the_group) {
    static struct journal j;
    struct store_fixture f;
    struct store_gate gate;
    sqlite3 *other;
    int i;

    with_session(&f);
    journal_init(&j);
    ck_assert_int_eq(sqlite3_open(f.path, &other), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    store_gate_close(&gate, f.store);
    for (i = 0; i < 3; i++)
        put_numbered(&f, i + 1, &j.reports[i]);
    gb_store_flush(f.store, journal_report, &j.reports[3]);
    store_gate_open(&gate);
    store_wait_until(&j.wait, 4);
    ck_assert_int_eq(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    for (i = 0; i < 3; i++) {
        ck_assert_int_eq(j.error[i].code, GB_ERR_STORE_FAILED);
        ck_assert_str_eq(j.error[i].native_name, "SQLITE_BUSY");
    }
    ck_assert_int_eq(j.error[3].code, GB_OK);
    put_numbered(&f, 9, &j.reports[4]);
    store_wait_until(&j.wait, 5);
    ck_assert_int_eq(j.error[4].code, GB_OK);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT sum(id) FROM buffers"), 9);
    sqlite3_close(other);
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_writer");

    gb_test_add(suite, "order", reports_come_in_order, 60);
    gb_test_add(suite, "group", what_waits_is_one_commit, 60);
    gb_test_add(suite, "bad_change", one_bad_change_fails_alone, 60);
    gb_test_add(suite, "edits", a_group_is_never_split, 60);
    gb_test_add(suite, "full_queue", a_full_queue_refuses, 60);
    gb_test_add(suite, "close", closing_carries_out_what_reports_queue, 60);
    gb_test_add(suite, "disk_full", a_full_disk_fails_changes_until_there_is_room, 60);
    gb_test_add(suite, "disk_error", a_failing_disk_fails_changes, 60);
    gb_test_add(suite, "locked", a_locked_database_fails_the_group, 60);
    return gb_test_run(suite);
}
