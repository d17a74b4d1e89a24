/* The feed's log when the database refuses writes. */
#include <check.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gb_test.h"
#include "store_fixture.h"
#include "store_vfs.h"

/* Listeners get the event even if the log does not. */
static void heard(void *arg, const struct gb_notice *notices, size_t count) {
    atomic_store((atomic_llong *)arg, notices[count - 1].id);
}

static void note_and_wait(struct store_fixture *f, atomic_llong *told, unsigned count) {
    struct gb_notice n = {.at_us = 1, .type = GB_NOTICE_BUFFER_CREATED, .device = -1};
    int64_t id = 0;

    while (count-- > 0)
        id = gb_store_note(f->store, &n);
    while (atomic_load(told) < id)
        usleep(1000);
}

START_TEST(what_the_disk_refused_is_a_gap) {
    struct store_vfs_faults *faults = store_vfs_install();
    struct store_fixture f;
    struct gb_store_feed bounds;
    atomic_llong told = 0;

    store_fixture_init(&f);
    gb_store_feed_watch(f.store, heard, &told);
    note_and_wait(&f, &told, 3);
    atomic_store(&faults->write_result, SQLITE_FULL);
    note_and_wait(&f, &told, 2);
    note_and_wait(&f, &told, 2);
    atomic_store(&faults->write_result, SQLITE_OK);
    note_and_wait(&f, &told, 4);
    note_and_wait(&f, &told, 1);
    gb_store_feed_bounds(f.store, &bounds);
    ck_assert_int_eq(bounds.dropped_through, 7);
    gb_store_feed_watch(f.store, NULL, NULL);
    store_fixture_close(&f);

    /* For a later reader, event 7 stands for the events 4 to 7. */
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM feed"), 9);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT sum(id) FROM feed WHERE type = 'feed.gap'"), 7);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT sum(id) FROM feed"), 1 + 2 + 3 + 7 + 8 + 9 + 10 + 11 + 12);
    store_fixture_open(&f);
    gb_store_feed_bounds(f.store, &bounds);
    ck_assert_int_eq(bounds.dropped_through, 0);
    store_fixture_done(&f);
}
END_TEST

static bool broke_off(struct store_fixture *f) {
    struct gb_store_feed bounds;

    gb_store_feed_bounds(f->store, &bounds);
    return bounds.broke_off;
}

static void open_and_break_off(struct store_fixture *f) {
    pid_t pid = fork();
    int status;

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        store_fixture_open(f);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

START_TEST(who_breaks_off_is_found_out) {
    struct store_fixture f;

    store_fixture_init(&f);
    ck_assert(!broke_off(&f)); /* there was none before */
    store_fixture_close(&f);
    store_fixture_open(&f);
    ck_assert(!broke_off(&f));
    store_fixture_close(&f);
    open_and_break_off(&f);
    store_fixture_open(&f);
    ck_assert(broke_off(&f));
    store_fixture_close(&f);
    store_fixture_open(&f);
    ck_assert(!broke_off(&f));
    store_fixture_done(&f);
}
END_TEST

/* The database takes writes again before the end, but no more events come, which would bring the gap with them. */
START_TEST(what_was_refused_at_the_end_is_known) {
    struct store_vfs_faults *faults = store_vfs_install();
    struct store_fixture f;
    atomic_llong told = 0;

    store_fixture_init(&f);
    gb_store_feed_watch(f.store, heard, &told);
    atomic_store(&faults->write_result, SQLITE_FULL);
    note_and_wait(&f, &told, 2);
    atomic_store(&faults->write_result, SQLITE_OK);
    gb_store_feed_watch(f.store, NULL, NULL);
    store_fixture_close(&f);
    store_fixture_open(&f);
    ck_assert(broke_off(&f));
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_feed");

    gb_test_add(suite, "broke off", who_breaks_off_is_found_out, 60);
    gb_test_add(suite, "refused at the end", what_was_refused_at_the_end_is_known, 60);
    gb_test_add(suite, "refused", what_the_disk_refused_is_a_gap, 60);
    return gb_test_run(suite);
}
