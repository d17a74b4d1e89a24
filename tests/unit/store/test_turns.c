/* Threads that work in turns: they carry out their changes at the end of one, unless something would hold them up. */
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "gb_test.h"
#include "store_fixture.h"

#define MANY 64

/* The reports of the changes, in their order, with the threads that they came on. */
struct report {
    struct journal *journal;
    int number;
};

struct journal {
    struct report reports[MANY];
    int order[MANY];
    pthread_t thread[MANY]; /* by number */
    unsigned count;         /* written by one thread at a time; read after store_wait_until, or by the thread itself */
    struct store_wait wait;
};

static void journal_init(struct journal *j) {
    int i;

    memset(j, 0, sizeof(*j));
    for (i = 0; i < MANY; i++)
        j->reports[i] = (struct report){j, i};
    store_wait_init(&j->wait);
}

static void journal_report(void *arg, const struct gb_error *error) {
    struct report *r = arg;
    struct journal *j = r->journal;

    j->order[j->count++] = r->number;
    j->thread[r->number] = pthread_self();
    store_wait_report(&j->wait, error);
}

static unsigned reported(struct journal *j) {
    unsigned count;

    pthread_mutex_lock(&j->wait.lock);
    count = j->wait.reported;
    pthread_mutex_unlock(&j->wait.lock);
    return count;
}

static bool mine(const struct journal *j, int number) {
    return pthread_equal(j->thread[number], pthread_self());
}

static void put(struct store_fixture *f, int64_t id, gb_store_done_fn *done, void *arg) {
    struct gb_buffer_rec rec;
    char name[24];

    snprintf(name, sizeof(name), "b%lld", (long long)id);
    rec = store_buffer(id, 1, name);
    gb_store_put_buffer(f->store, &rec, NULL, done, arg);
}

static void put_numbered(struct store_fixture *f, struct journal *j, int number) {
    put(f, number + 1, journal_report, &j->reports[number]);
}

static void with_session(struct store_fixture *f, bool sync_full) {
    struct gb_session_rec session = store_session(1, "s");
    struct gb_error err = GB_ERROR_INIT;

    store_fixture_dir(f);
    f->config.sync_full = sync_full;
    store_fixture_open(f);
    gb_assert_ok(store_put_session_now(f->store, &session, &err), err);
}

/* Changes in turns until this thread carries one out: the writer is at rest then, and the log has pages. A commit that
 * is slow leaves the next to the writer, so that one may have to be tried again. */
static void settle(struct store_fixture *f) {
    struct journal j;
    bool own = false;

    while (!own) {
        journal_init(&j);
        gb_store_begin_turn(f->store);
        put(f, 1000, journal_report, &j.reports[0]);
        ck_assert(!gb_store_end_turn(f->store, true));
        store_wait_until(&j.wait, 1);
        own = mine(&j, 0);
        store_wait_done(&j.wait);
    }
}

START_TEST(the_thread_itself_commits) {
    struct store_fixture f;
    struct journal j;
    bool own = false;

    with_session(&f, false);
    while (!own) {
        settle(&f);
        store_sql_exec(f.path, "DELETE FROM buffers");
        journal_init(&j);
        gb_store_begin_turn(f.store);
        put_numbered(&f, &j, 0);
        put_numbered(&f, &j, 1);
        ck_assert_uint_eq(reported(&j), 0);
        ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM buffers"), 0);
        ck_assert(!gb_store_end_turn(f.store, true));
        own = reported(&j) == 2 && mine(&j, 0);
        if (own)
            ck_assert_int_eq(store_sql_int(f.path, "SELECT sum(id) FROM buffers"), 3);
        store_wait_until(&j.wait, 2);
        ck_assert_uint_eq(j.wait.failed, 0);
    }
    ck_assert(mine(&j, 1));
    ck_assert(!gb_store_end_turn(f.store, false)); /* nothing is left of the turn */
    store_fixture_done(&f);
}
END_TEST

/* No event tells that nothing happens: the writer has time to show that it was woken. */
START_TEST(a_turn_wakes_nobody) {
    struct store_fixture f;
    struct journal j;

    with_session(&f, false);
    settle(&f);
    journal_init(&j);
    gb_store_begin_turn(f.store);
    put_numbered(&f, &j, 0);
    usleep(20 * 1000);
    ck_assert_uint_eq(reported(&j), 0);
    ck_assert(!gb_store_end_turn(f.store, true));
    store_wait_until(&j.wait, 1);
    store_fixture_done(&f);
}
END_TEST

/* What may take long, with all that is queued beside it. */
START_TEST(a_long_change_is_left_to_the_writer) {
    struct store_fixture f;
    struct journal j;

    with_session(&f, false);
    settle(&f);
    journal_init(&j);
    gb_store_begin_turn(f.store);
    put_numbered(&f, &j, 0);
    gb_store_delete_session(f.store, 4711, false, NULL, journal_report, &j.reports[1]);
    ck_assert(!gb_store_end_turn(f.store, true));
    store_wait_until(&j.wait, 2);
    ck_assert_uint_eq(j.wait.failed, 0);
    ck_assert(!mine(&j, 0));
    ck_assert(!mine(&j, 1));
    settle(&f); /* the next are the thread's own again */
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_few_changes_are_put_off) {
    struct store_fixture f;
    struct journal j;
    bool put_off = false;
    bool own = false;

    with_session(&f, false);
    /* More than the permitted time may pass before the end of the turn. */
    while (!put_off || !own) {
        settle(&f);
        journal_init(&j);
        gb_store_begin_turn(f.store);
        put_numbered(&f, &j, 0);
        put_off = gb_store_end_turn(f.store, false);
        if (put_off) {
            ck_assert_uint_eq(reported(&j), 0);
            ck_assert(!gb_store_end_turn(f.store, true));
        }
        store_wait_until(&j.wait, 1);
        own = mine(&j, 0);
    }
    /* Not for ever. */
    settle(&f);
    journal_init(&j);
    gb_store_begin_turn(f.store);
    put_numbered(&f, &j, 0);
    while (gb_store_end_turn(f.store, false))
        gb_store_begin_turn(f.store);
    store_wait_until(&j.wait, 1);
    store_fixture_done(&f);
}
END_TEST

START_TEST(many_are_not_put_off) {
    struct store_fixture f;
    struct journal j;
    int round;
    int i;

    with_session(&f, false);
    for (round = 0; round < 20; round++) {
        settle(&f);
        journal_init(&j);
        gb_store_begin_turn(f.store);
        for (i = 0; i < 32; i++)
            put_numbered(&f, &j, i);
        ck_assert(!gb_store_end_turn(f.store, false));
        store_wait_until(&j.wait, 32);
        ck_assert_uint_eq(j.wait.failed, 0);
    }
    store_fixture_done(&f);
}
END_TEST

struct other {
    struct store_fixture *f;
    struct journal *j;
};

static void *put_second(void *arg) {
    struct other *o = arg;

    put_numbered(o->f, o->j, 1);
    return NULL;
}

START_TEST(a_change_from_elsewhere_waits_for_no_turn) {
    struct store_fixture f;
    struct journal j;
    struct other other = {&f, &j};
    pthread_t thread;

    with_session(&f, false);
    settle(&f);
    journal_init(&j);
    gb_store_begin_turn(f.store);
    put_numbered(&f, &j, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, put_second, &other), 0);
    store_wait_until(&j.wait, 2);
    pthread_join(thread, NULL);
    ck_assert(!mine(&j, 0));
    ck_assert(!mine(&j, 1));
    ck_assert_int_eq(j.order[0], 0);
    ck_assert(!gb_store_end_turn(f.store, true));
    ck_assert_uint_eq(j.count, 2);
    store_fixture_done(&f);
}
END_TEST

/* The writer waits five seconds for a lock of another process; a thread in turns does not. */
START_TEST(a_locked_database_is_left_to_the_writer) {
    struct store_fixture f;
    struct gb_store_stat stat;
    struct journal j;
    uint64_t began_ns;
    sqlite3 *other;

    with_session(&f, false);
    settle(&f);
    journal_init(&j);
    ck_assert_int_eq(sqlite3_open(f.path, &other), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    gb_store_begin_turn(f.store);
    put_numbered(&f, &j, 0);
    put_numbered(&f, &j, 1);
    began_ns = gb_clock_ns();
    ck_assert(!gb_store_end_turn(f.store, true));
    ck_assert_uint_lt(gb_clock_ns() - began_ns, 2 * GB_NS_PER_S);
    ck_assert_uint_eq(reported(&j), 0);
    ck_assert_int_eq(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    store_wait_until(&j.wait, 2);
    ck_assert_uint_eq(j.wait.failed, 0);
    ck_assert(!mine(&j, 0));
    ck_assert_int_eq(j.order[0], 0);
    ck_assert_int_eq(j.order[1], 1);
    gb_store_stat(f.store, &stat);
    ck_assert_uint_eq(stat.failures, 0);
    ck_assert(stat.writable);
    sqlite3_close(other);
    settle(&f);
    store_fixture_done(&f);
}
END_TEST

START_TEST(only_the_writer_waits_for_the_disk) {
    struct store_fixture f;
    struct journal j;
    int i;

    with_session(&f, true);
    journal_init(&j);
    for (i = 0; i < 10; i++) {
        gb_store_begin_turn(f.store);
        put_numbered(&f, &j, i);
        ck_assert(!gb_store_end_turn(f.store, true));
        store_wait_until(&j.wait, (unsigned)i + 1);
        ck_assert(!mine(&j, i));
    }
    ck_assert_uint_eq(j.wait.failed, 0);
    store_fixture_done(&f);
}
END_TEST

START_TEST(reports_come_in_order) {
    struct store_fixture f;
    struct journal j;
    int round;
    int i;

    with_session(&f, false);
    for (round = 0; round < 10; round++) {
        settle(&f);
        journal_init(&j);
        gb_store_begin_turn(f.store);
        for (i = 0; i < MANY; i++) {
            if (i % 10 == 3)
                gb_store_flush(f.store, journal_report, &j.reports[i]);
            else
                put_numbered(&f, &j, i);
            if (i == 40)
                (void)gb_store_end_turn(f.store, false);
            if (i == 40)
                gb_store_begin_turn(f.store);
        }
        ck_assert(!gb_store_end_turn(f.store, true));
        store_wait_until(&j.wait, MANY);
        ck_assert_uint_eq(j.wait.failed, 0);
        for (i = 0; i < MANY; i++)
            ck_assert_int_eq(j.order[i], i);
    }
    store_fixture_done(&f);
}
END_TEST

/* Each report queues the next change, of which the last are more than the end of one turn carries out. */
struct chain {
    struct store_fixture *f;
    struct journal *j;
    int next;
};

static void chain_next(void *arg, const struct gb_error *error) {
    struct chain *c = arg;
    int number = c->next - 1;

    if (c->next < 5)
        put(c->f, ++c->next, chain_next, c);
    journal_report(&c->j->reports[number], error);
}

START_TEST(what_reports_queue_is_not_forgotten) {
    struct store_fixture f;
    struct journal j;
    struct chain chain = {&f, &j, 1};
    int i;

    with_session(&f, false);
    settle(&f);
    journal_init(&j);
    gb_store_begin_turn(f.store);
    put(&f, 1, chain_next, &chain);
    ck_assert(!gb_store_end_turn(f.store, true));
    store_wait_until(&j.wait, 5);
    ck_assert_uint_eq(j.wait.failed, 0);
    for (i = 0; i < 5; i++)
        ck_assert_int_eq(j.order[i], i);
    store_fixture_done(&f);
}
END_TEST

/* While one thread commits, another ends a turn with a change. */
static void *second_turn(void *arg) {
    struct other *o = arg;

    gb_store_begin_turn(o->f->store);
    put_numbered(o->f, o->j, 1);
    ck_assert(!gb_store_end_turn(o->f->store, true));
    ck_assert_uint_eq(reported(o->j), 0);
    return NULL;
}

static void commit_meets_second(void *arg, const struct gb_error *error) {
    struct other *o = arg;
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, second_turn, o), 0);
    pthread_join(thread, NULL);
    journal_report(&o->j->reports[0], error);
}

START_TEST(turns_that_meet) {
    struct store_fixture f;
    struct journal j;
    struct other other = {&f, &j};
    bool own = false;

    with_session(&f, false);
    while (!own) {
        settle(&f);
        journal_init(&j);
        gb_store_begin_turn(f.store);
        put(&f, 1, commit_meets_second, &other);
        ck_assert(!gb_store_end_turn(f.store, true));
        store_wait_until(&j.wait, 2);
        ck_assert_uint_eq(j.wait.failed, 0);
        ck_assert_int_eq(j.order[0], 0);
        own = mine(&j, 0);
    }
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM buffers WHERE id IN (1, 2)"), 2);
    store_fixture_done(&f);
}
END_TEST

/* --- the log ------------------------------------------------------------------------------------------------------ */

#define LARGE (1 << 20)

static int64_t bytes_of(const char *path) {
    struct stat st;

    ck_assert_int_eq(stat(path, &st), 0);
    return (int64_t)st.st_size;
}

/* A frame of the log is a page with 24 bytes before it. */
static int64_t log_pages(const struct store_fixture *f) {
    char path[sizeof(f->path) + 4];

    snprintf(path, sizeof(path), "%s-wal", f->path);
    return bytes_of(path) / (store_sql_int(f->path, "PRAGMA page_size") + 24);
}

static void large_turn(struct store_fixture *f, int number) {
    static char body[LARGE];
    struct gb_store_idempotency_reply reply = {.mark = {.fingerprint = "f", .expires_at_us = INT64_MAX},
                                               .status = 200,
                                               .headers = "",
                                               .body = body,
                                               .body_len = sizeof(body)};
    struct store_wait wait;

    store_wait_init(&wait);
    snprintf(reply.mark.key, sizeof(reply.mark.key), "key %d", number);
    gb_store_begin_turn(f->store);
    gb_store_put_idempotency_reply(f->store, &reply, 0, 1000, store_wait_report, &wait);
    ck_assert(!gb_store_end_turn(f->store, true));
    store_wait_until(&wait, 1);
    ck_assert_uint_eq(wait.failed, 0);
    store_wait_done(&wait);
}

/* Only a checkpoint moves pages from the log to the database. SQLite's own would come after 1000 of them. Ours comes
 * though the turns have ended. */
START_TEST(a_long_log_is_checkpointed) {
    struct store_fixture f;
    int64_t count = 0;

    with_session(&f, false);
    settle(&f);
    while (log_pages(&f) < 4000) {
        ck_assert_int_lt(bytes_of(f.path), LARGE);
        large_turn(&f, (int)count++);
    }
    while (bytes_of(f.path) < count * LARGE)
        usleep(1000);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT sum(length(body)) FROM answers"), count * LARGE);
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_turns");

    gb_test_add(suite, "own", the_thread_itself_commits, 60);
    gb_test_add(suite, "quiet", a_turn_wakes_nobody, 60);
    gb_test_add(suite, "long", a_long_change_is_left_to_the_writer, 60);
    gb_test_add(suite, "put off", a_few_changes_are_put_off, 60);
    gb_test_add(suite, "many", many_are_not_put_off, 60);
    gb_test_add(suite, "elsewhere", a_change_from_elsewhere_waits_for_no_turn, 60);
    gb_test_add(suite, "locked", a_locked_database_is_left_to_the_writer, 60);
    gb_test_add(suite, "sync", only_the_writer_waits_for_the_disk, 60);
    gb_test_add(suite, "order", reports_come_in_order, 60);
    gb_test_add(suite, "chain", what_reports_queue_is_not_forgotten, 60);
    gb_test_add(suite, "meet", turns_that_meet, 60);
    gb_test_add(suite, "checkpoint", a_long_log_is_checkpointed, 60);
    return gb_test_run(suite);
}
