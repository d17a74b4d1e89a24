/* The audit's table: what is put comes back, bounds, what the disk refuses, and questions. */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "gb_test.h"
#include "store_fixture.h"
#include "store_vfs.h"

#define HOUR_US 3600000000LL

static struct gb_audit_rec request(int64_t at_us, const char *session, const char *token, int status) {
    return (struct gb_audit_rec){
        .at_us = at_us,
        .event = GB_AUDIT_REQUEST,
        .status = status,
        .text = {[GB_AUDIT_METHOD] = "PUT", [GB_AUDIT_SESSION] = session, [GB_AUDIT_TOKEN] = token}};
}

static uint64_t told(struct store_fixture *f) {
    struct gb_audit_log_stat stat;

    gb_store_audit_stat(f->store, &stat);
    return stat.records + stat.dropped;
}

static void wait_for(struct store_fixture *f, uint64_t count) {
    while (told(f) < count)
        usleep(1000);
}

static void put_some(struct store_fixture *f, int64_t at_us, unsigned count) {
    struct gb_audit_rec rec = request(at_us, "s", "t", 200);
    uint64_t before = told(f);
    unsigned i;

    for (i = 0; i < count; i++)
        gb_store_audit(f->store, &rec);
    wait_for(f, before + count);
}

struct found {
    unsigned limit;
    unsigned count;
    int64_t ids[64];
    int statuses[64];
    uint64_t counts[64];
};

static int visit(void *arg, const struct gb_audit_rec *rec) {
    struct found *found = arg;

    if (found->count == found->limit)
        return 1;
    found->ids[found->count] = rec->id;
    found->counts[found->count] = rec->count;
    found->statuses[found->count++] = rec->status;
    return 0;
}

static int64_t ask(struct store_fixture *f, const struct gb_audit_query *query, struct found *ret, unsigned limit) {
    struct gb_error err = GB_ERROR_INIT;
    int64_t next = -1;

    *ret = (struct found){.limit = limit};
    gb_assert_ok(gb_store_audit_read(f->store, query, visit, ret, &next, &err), err);
    return next;
}

static const struct gb_audit_query all = {.until_us = INT64_MAX, .any_status = true};

START_TEST(filters_and_pages) {
    static const int statuses[] = {200, 201, 403, 404, 0, 503};
    struct gb_audit_query query = all;
    struct store_fixture f;
    struct found found;
    int64_t next;
    int i;

    store_fixture_init(&f);
    for (i = 0; i < 6; i++) {
        struct gb_audit_rec rec = request(1000 + i, i % 2 ? "b" : "a", i < 3 ? "one" : NULL, statuses[i]);

        gb_store_audit(f.store, &rec);
    }
    wait_for(&f, 6);
    ck_assert_int_eq(ask(&f, &query, &found, 64), 0);
    ck_assert_uint_eq(found.count, 6);
    ck_assert_int_eq(found.ids[0], 6);
    ck_assert_int_eq(found.statuses[0], 503);
    /* Pages. */
    next = ask(&f, &query, &found, 4);
    ck_assert_uint_eq(found.count, 4);
    ck_assert_int_eq(next, 3);
    query.before = next;
    ck_assert_int_eq(ask(&f, &query, &found, 2), 0);
    ck_assert_uint_eq(found.count, 2);
    ck_assert_int_eq(found.ids[0], 2);
    /* Filters. */
    query = all;
    query.session = "a";
    ask(&f, &query, &found, 64);
    ck_assert_uint_eq(found.count, 3);
    query.token = "one";
    ask(&f, &query, &found, 64);
    ck_assert_uint_eq(found.count, 2);
    query = (struct gb_audit_query){.until_us = INT64_MAX, .status_min = 400, .status_max = 499};
    ask(&f, &query, &found, 64);
    ck_assert_uint_eq(found.count, 2);
    query.status_min = query.status_max = 0;
    ask(&f, &query, &found, 64);
    ck_assert_uint_eq(found.count, 1);
    query = all;
    query.since_us = 1001;
    query.until_us = 1003;
    ask(&f, &query, &found, 64);
    ck_assert_uint_eq(found.count, 2);
    ck_assert_int_eq(found.ids[0], 3);
    store_fixture_done(&f);
}
END_TEST

START_TEST(the_oldest_go_where_there_are_too_many) {
    struct store_fixture f;
    struct found found;
    struct gb_audit_query query = all;

    store_fixture_dir(&f);
    f.config.audit_max = 10;
    store_fixture_open(&f);
    put_some(&f, 1, 25);
    ck_assert_int_eq(ask(&f, &query, &found, 64), 0);
    ck_assert_uint_eq(found.count, 10);
    ck_assert_int_eq(found.ids[9], 16);
    store_fixture_close(&f);

    /* With a lower bound the rest goes with the next record; numbers continue. */
    f.config.audit_max = 3;
    store_fixture_open(&f);
    put_some(&f, 1, 1);
    ask(&f, &query, &found, 64);
    ck_assert_uint_eq(found.count, 3);
    ck_assert_int_eq(found.ids[0], 26);
    store_fixture_done(&f);
}
END_TEST

START_TEST(many_go_a_few_at_a_time) {
    struct store_fixture f;

    store_fixture_init(&f);
    put_some(&f, 1, 5000);
    store_fixture_close(&f);
    f.config.audit_max = 7;
    store_fixture_open(&f);
    put_some(&f, 1, 1);
    while (store_sql_int(f.path, "SELECT count(*) FROM audit") > 7)
        usleep(1000);
    store_fixture_close(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT min(id) FROM audit"), 4995);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT max(id) FROM audit"), 5001);
    store_fixture_done(&f);
}
END_TEST

START_TEST(the_oldest_go_where_they_are_too_old) {
    int64_t now_us = gb_wall_us();
    struct store_fixture f;

    store_fixture_dir(&f);
    f.config.audit_age_us = HOUR_US;
    store_fixture_open(&f);
    put_some(&f, now_us - 2 * HOUR_US, 4000);
    put_some(&f, now_us - HOUR_US / 2, 2);
    store_fixture_close(&f);
    store_fixture_open(&f);
    put_some(&f, now_us, 1);
    while (store_sql_int(f.path, "SELECT count(*) FROM audit") > 3)
        usleep(1000);
    store_fixture_close(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT min(id) FROM audit"), 4001);

    /* The newest stays, since numbers continue from it. */
    store_sql_exec(f.path, "UPDATE audit SET at_us = 1");
    store_fixture_open(&f);
    put_some(&f, 1, 1);
    store_fixture_close(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM audit"), 1);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT id FROM audit"), 4004);
    store_fixture_done(&f);
}
END_TEST

START_TEST(what_the_disk_refused_is_a_gap) {
    struct store_vfs_faults *faults = store_vfs_install();
    struct gb_audit_query query = {.until_us = INT64_MAX, .session = "none", .any_status = true};
    struct gb_audit_log_stat stat;
    struct store_fixture f;
    struct found found;

    store_fixture_init(&f);
    put_some(&f, 1, 3);
    atomic_store(&faults->write_result, SQLITE_FULL);
    put_some(&f, 1, 2);
    put_some(&f, 1, 2);
    atomic_store(&faults->write_result, SQLITE_OK);
    put_some(&f, 1, 1);
    gb_store_audit_stat(f.store, &stat);
    ck_assert_uint_eq(stat.records, 4);
    ck_assert_uint_eq(stat.dropped, 4);
    /* Whatever is asked for, the gap is reported. */
    ask(&f, &query, &found, 64);
    ck_assert_uint_eq(found.count, 1);
    ck_assert_uint_eq(found.counts[0], 4);
    store_fixture_close(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM audit"), 5);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT id FROM audit WHERE event = 'audit.gap'"), 4);
    store_fixture_done(&f);
}
END_TEST

START_TEST(what_comes_too_fast_is_a_gap) {
    struct gb_audit_rec rec = request(1, "s", "t", 200);
    struct gb_audit_log_stat stat;
    struct store_fixture f;
    struct store_gate gate;
    uint64_t count = 0;

    store_fixture_init(&f);
    store_gate_close(&gate, f.store);
    do {
        gb_store_audit(f.store, &rec);
        count++;
        gb_store_audit_stat(f.store, &stat);
    } while (stat.dropped < 5);
    ck_assert_uint_gt(count, 20000);
    store_gate_open(&gate);
    wait_for(&f, count);
    put_some(&f, 1, 1);
    gb_store_audit_stat(f.store, &stat);
    ck_assert_uint_eq(stat.dropped, 5);
    ck_assert_uint_eq(stat.records, count - 4);
    store_fixture_close(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count FROM audit WHERE event = 'audit.gap'"), 5);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM audit WHERE event = 'request'"), (int64_t)count - 4);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_kill_is_a_gap) {
    struct gb_audit_rec started = {.at_us = 1, .event = GB_AUDIT_DAEMON_STARTED};
    struct gb_audit_rec stopped = {.at_us = 1, .event = GB_AUDIT_DAEMON_STOPPED};
    struct store_fixture f;

    store_fixture_init(&f);
    gb_store_audit(f.store, &started);
    wait_for(&f, 1);
    store_fixture_close(&f); /* it did not say that it stops */
    store_fixture_open(&f);
    gb_store_audit(f.store, &started);
    gb_store_audit(f.store, &stopped);
    store_fixture_close(&f); /* writes what waits */
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM audit"), 4);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT id FROM audit WHERE event = 'audit.gap' AND count IS NULL"), 2);
    store_fixture_open(&f);
    put_some(&f, 1, 1);
    store_fixture_close(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM audit WHERE event = 'audit.gap'"), 1);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_long_table_is_looked_at_in_windows) {
    struct gb_audit_query query = {.until_us = INT64_MAX, .session = "rare", .any_status = true};
    struct store_fixture f;
    struct found found;
    unsigned count = 0;

    store_fixture_init(&f);
    store_fixture_close(&f);
    store_sql_exec(f.path, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120000)"
                           " INSERT INTO audit(id, at_us, event, session, status) SELECT i, i, 'request',"
                           " CASE i WHEN 1 THEN 'rare' WHEN 60000 THEN 'rare' ELSE 'often' END, 200 FROM n");
    store_fixture_open(&f);
    do {
        query.before = ask(&f, &query, &found, 64);
        count += found.count;
    } while (query.before > 0);
    ck_assert_uint_eq(count, 2);
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_audit");

    gb_test_add(suite, "filters", filters_and_pages, 60);
    gb_test_add(suite, "rows", the_oldest_go_where_there_are_too_many, 60);
    gb_test_add(suite, "chunks", many_go_a_few_at_a_time, 60);
    gb_test_add(suite, "age", the_oldest_go_where_they_are_too_old, 60);
    gb_test_add(suite, "refused", what_the_disk_refused_is_a_gap, 60);
    gb_test_add(suite, "queue", what_comes_too_fast_is_a_gap, 60);
    gb_test_add(suite, "kill", a_kill_is_a_gap, 60);
    gb_test_add(suite, "windows", a_long_table_is_looked_at_in_windows, 60);
    return gb_test_run(suite);
}
