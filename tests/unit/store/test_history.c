/* The history: rollup of samples to minutes and hours, retention, and queries. The tests pass times in and never wait
 * for a clock. */
#include <math.h>
#include <string.h>

#include "gb_test.h"
#include "store/history.h"
#include "store_fixture.h"

#define S 1000000LL
#define T0 (1440000000LL * S) /* a full hour, and years ago */

static void put_at(struct store_fixture *f, enum gb_history_scope scope, int64_t id, int64_t at_us, double used,
                   double count) {
    struct gb_history_sample sample;
    struct gb_error err = GB_ERROR_INIT;

    gb_history_sample_init(&sample, scope, at_us);
    sample.key.id = id;
    strcpy(sample.name, "p");
    sample.gauge[GB_GAUGE_used_bytes] = used;
    sample.counter[GB_COUNTER_allocations] = count;
    gb_store_put_history(f->store, &sample, 1, NULL, NULL, NULL);
    gb_assert_ok(store_flush_now(f->store, &err), err);
}

static void put(struct store_fixture *f, int64_t at_us, double used, double count) {
    put_at(f, GB_HISTORY_DAEMON, 0, at_us, used, count);
}

static void roll(struct store_fixture *f, int64_t now_us) {
    struct gb_error err = GB_ERROR_INIT;
    bool more = true;

    while (more) {
        gb_store_roll(f->store, now_us, &more, NULL, NULL);
        gb_assert_ok(store_flush_now(f->store, &err), err);
    }
}

struct asked {
    struct store_wait wait;
    struct gb_history_answer answer;
};

static void answered(void *arg, struct gb_history_answer *answer, const struct gb_error *error) {
    struct asked *a = arg;

    if (answer) {
        a->answer = *answer;
        memset(answer, 0, sizeof(*answer));
    }
    store_wait_report(&a->wait, error);
}

static struct gb_history_answer ask(struct store_fixture *f, enum gb_history_level level, int64_t since_us,
                                    int64_t until_us, uint64_t step_s) {
    const struct gb_history_key key = {.scope = GB_HISTORY_DAEMON};
    const struct gb_history_plan plan = {level, since_us, until_us, step_s};
    struct asked a = {.answer.count = 0};

    store_wait_init(&a.wait);
    gb_store_history(f->store, &key, &plan, answered, &a);
    store_wait_until(&a.wait, 1);
    ck_assert_uint_eq(a.wait.failed, 0);
    store_wait_done(&a.wait);
    return a.answer;
}

static void assert_span(const struct gb_history_point *p, double min, double mean, double max, double last) {
    const struct gb_history_span *span = &p->gauge[GB_GAUGE_used_bytes];

    ck_assert_double_eq_tol(span->min, min, 1e-9);
    ck_assert_double_eq_tol(span->mean, mean, 1e-9);
    ck_assert_double_eq_tol(span->max, max, 1e-9);
    ck_assert_double_eq_tol(span->last, last, 1e-9);
}

START_TEST(points_are_summed) {
    struct gb_history_point rows[3];
    struct gb_history_point sum;
    struct gb_rollup r;
    int i;

    for (i = 0; i < 3; i++) {
        gb_rollup_begin(&r, 7);
        gb_rollup_end(&r, &rows[i]); /* nothing is known */
        rows[i].samples = i + 1;
    }
    rows[0].gauge[GB_GAUGE_used_bytes] = (struct gb_history_span){2, 4, 9, 5};
    rows[2].gauge[GB_GAUGE_used_bytes] = (struct gb_history_span){1, 8, 8, 8};
    rows[1].counter[GB_COUNTER_frees] = 3;
    rows[2].counter[GB_COUNTER_frees] = 4;
    gb_rollup_begin(&r, 7);
    for (i = 0; i < 3; i++)
        gb_rollup_add(&r, &rows[i]);
    gb_rollup_end(&r, &sum);
    ck_assert_int_eq(sum.at_us, 7);
    ck_assert_int_eq(sum.samples, 6);
    assert_span(&sum, 1, (4 * 1 + 8 * 3) / 4.0, 9, 8);
    ck_assert_double_eq(sum.counter[GB_COUNTER_frees], 7);
    ck_assert(isnan(sum.counter[GB_COUNTER_allocations]));
    ck_assert(isnan(sum.gauge[GB_GAUGE_leases].last));
}
END_TEST

/* A steady load in points of one sample, of two, and in a point that is not full: growth divided by covered time is the
 * same. */
START_TEST(points_say_what_they_cover) {
    struct store_fixture f;
    struct gb_history_sample sample;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_history_answer a;
    double covered_s = 0;
    size_t i;

    store_fixture_init(&f);
    for (i = 1; i <= 10; i++) {
        gb_history_sample_init(&sample, GB_HISTORY_DAEMON, T0 + (int64_t)i * 10 * S);
        sample.counter[GB_COUNTER_allocations] = 500;
        sample.counter[GB_COUNTER_covered_s] = 10;
        gb_store_put_history(f.store, &sample, 1, NULL, NULL, NULL);
    }
    gb_assert_ok(store_flush_now(f.store, &err), err);
    a = ask(&f, GB_HISTORY_SAMPLES, T0, T0 + 120 * S, 15);
    ck_assert_uint_eq(a.count, 7);
    for (i = 0; i < a.count; i++) {
        const double *counter = a.points[i].counter;

        ck_assert_double_eq(counter[GB_COUNTER_allocations] / counter[GB_COUNTER_covered_s], 50);
        covered_s += counter[GB_COUNTER_covered_s];
    }
    ck_assert_double_eq(covered_s, 100);
    gb_history_answer_done(&a);
    roll(&f, T0 + 130 * S);
    a = ask(&f, GB_HISTORY_MINUTES, T0, T0 + 3600 * S, 3600);
    ck_assert_uint_eq(a.count, 1);
    ck_assert_double_eq(a.points[0].counter[GB_COUNTER_covered_s], 100);
    gb_history_answer_done(&a);
    store_fixture_done(&f);
}
END_TEST

/* A query returns the same points before and after a level is rolled up. */
static void look(struct store_fixture *f) {
    struct gb_history_answer a = ask(f, GB_HISTORY_MINUTES, T0, T0 + 7200 * S, 60);

    ck_assert_uint_eq(a.count, 3);
    ck_assert_int_eq(a.points[0].at_us, T0);
    ck_assert_int_eq(a.points[0].samples, 2);
    assert_span(&a.points[0], 10, 15, 20, 20);
    ck_assert_double_eq(a.points[0].counter[GB_COUNTER_allocations], 3);
    ck_assert_int_eq(a.points[1].at_us, T0 + 60 * S);
    assert_span(&a.points[1], 5, 5, 5, 5);
    ck_assert_int_eq(a.points[2].at_us, T0 + 3660 * S);
    gb_history_answer_done(&a);
    a = ask(f, GB_HISTORY_HOURS, T0, T0 + 7200 * S, 3600);
    ck_assert_uint_eq(a.count, 2);
    ck_assert_int_eq(a.points[0].samples, 3);
    assert_span(&a.points[0], 5, 35.0 / 3, 20, 5);
    ck_assert_double_eq(a.points[0].counter[GB_COUNTER_allocations], 7);
    assert_span(&a.points[1], 100, 100, 100, 100);
    gb_history_answer_done(&a);
}

START_TEST(minutes_and_hours) {
    struct store_fixture f;

    store_fixture_init(&f);
    put(&f, T0 + 1 * S, 10, 1);
    put(&f, T0 + 11 * S, 20, 2);
    put(&f, T0 + 61 * S, 5, 4);
    put(&f, T0 + 3661 * S, 100, 8);
    look(&f);
    roll(&f, T0 + 62 * S);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_daemon_minutes"), 1);
    look(&f);
    roll(&f, T0 + 3662 * S);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_daemon_minutes"), 2);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_daemon_hours"), 1);
    look(&f);
    roll(&f, T0 + 7300 * S);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_daemon_minutes"), 3);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT sum(allocations) FROM v_daemon_hours"), 15);
    look(&f);
    store_fixture_close(&f);
    store_fixture_open(&f);
    look(&f);
    store_fixture_done(&f);
}
END_TEST

START_TEST(a_clock_that_is_set_back) {
    struct store_fixture f;

    store_fixture_init(&f);
    put(&f, T0 + 1 * S, 10, 1);
    put(&f, T0 + 121 * S, 20, 1);
    roll(&f, T0 + 200 * S);
    put(&f, T0 + 2 * S, 30, 1); /* another sample in a minute that was rolled up */
    roll(&f, T0 + 61 * S);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT used_bytes_max FROM v_daemon_minutes LIMIT 1"), 30);
    roll(&f, T0 + 200 * S);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_daemon_minutes"), 2);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT sum(allocations) FROM v_daemon_minutes"), 3);
    store_fixture_done(&f);
}
END_TEST

START_TEST(what_is_old_goes) {
    struct store_fixture f;

    store_fixture_init(&f);
    put(&f, T0, 1, 1);
    put(&f, T0 + 3600 * S, 1, 1);
    roll(&f, T0 + 86400 * S + 120 * S);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_daemon"), 1);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_daemon_minutes"), 2);
    roll(&f, T0 + 31 * 86400 * S);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_daemon"), 0);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_daemon_minutes"), 0);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_daemon_hours"), 2);
    roll(&f, T0 + 731 * 86400 * S);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM history_series"), 0);
    store_fixture_done(&f);
}
END_TEST

/* The limit is ten series. If rows exceed their limit, ended series lose theirs first, then each live series keeps its
 * share. */
START_TEST(bounds) {
    struct store_fixture f;
    int64_t i;

    store_fixture_init(&f);
    for (i = 1; i <= 10; i++)
        put_at(&f, GB_HISTORY_SESSION, i, T0, 1, 1);
    put_at(&f, GB_HISTORY_POOL, 1, T0, 1, 1); /* all series are still there */
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_pools"), 0);
    put_at(&f, GB_HISTORY_POOL, 1, T0 + S, 1, 1);
    put(&f, T0 + S, 1, 1); /* the daemon's own series does not count */
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_pools"), 1);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_sessions"), 9);
    roll(&f, T0 + 60 * S);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM history_samples"), 11);
    store_fixture_close(&f);
    f.config.history.rows[GB_HISTORY_SAMPLES] = 5;
    f.config.history.interval_s = 60;
    store_fixture_open(&f);
    for (i = 1; i < 100; i++)
        put_at(&f, GB_HISTORY_POOL, 1, T0 + i * 60 * S, 1, 1);
    roll(&f, T0 + 100 * 60 * S);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_sessions"), 0);
    ck_assert_int_le(store_sql_int(f.path, "SELECT count(*) FROM v_pools"), 6);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_pools_minutes"), 100);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_daemon"), 1);
    store_fixture_done(&f);
}
END_TEST

START_TEST(starts_are_noted) {
    struct gb_history_answer a;
    struct store_fixture f;

    store_fixture_init(&f);
    store_fixture_close(&f);
    store_fixture_open(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_starts WHERE how_it_ended = 'stopped'"), 1);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_starts WHERE how_it_ended = 'running'"), 1);
    store_sql_exec(f.path, "INSERT INTO history_starts(at_us, how_it_ended) VALUES(1, 'running')");
    store_fixture_close(&f);
    store_sql_exec(f.path, "UPDATE history_starts SET how_it_ended = 'running' WHERE id = 3");
    store_fixture_open(&f);
    ck_assert_int_eq(store_sql_int(f.path, "SELECT count(*) FROM v_starts WHERE how_it_ended = 'unknown'"), 1);
    a = ask(&f, GB_HISTORY_HOURS, 0, INT64_MAX, 3600);
    ck_assert_uint_eq(a.restart_count, 3);
    gb_history_answer_done(&a);
    store_fixture_done(&f);
}
END_TEST

static const struct gb_history_limits limits = {
    .keep_s = {86400, 30 * 86400, 730 * 86400}, .rows = {1000, 1000, 1000}, .series = 10, .interval_s = 10};

static struct gb_history_plan plan(int64_t since_s, int64_t until_s, uint64_t step_s) {
    const struct gb_history_query query = {
        .since_us = T0 + since_s * S, .until_us = T0 + until_s * S, .step_s = step_s};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_history_plan p;

    gb_assert_ok(gb_history_plan(&query, &limits, T0, &p, &err), err);
    ck_assert_int_le(p.since_us, query.since_us);
    ck_assert_int_ge(p.until_us, query.until_us);
    ck_assert_int_eq(p.since_us % ((int64_t)p.step_s * S), 0);
    ck_assert_int_eq(p.until_us % ((int64_t)p.step_s * S), 0);
    return p;
}

START_TEST(plans) {
    struct gb_history_query query = {.since_us = T0 - 30000 * S, .until_us = T0, .step_s = 10};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_history_plan p = plan(-3600, 0, 0);
    int64_t range;

    ck_assert_int_eq(p.level, GB_HISTORY_SAMPLES);
    ck_assert_uint_eq(p.step_s, 20); /* two samples each; with 15 s, points would have one and two samples in turn */
    ck_assert_uint_eq(plan(-3600, 0, 7).step_s, 10);
    ck_assert_uint_eq(plan(-3600, 0, 15).step_s, 15);
    p = plan(-30 * 86400, 0, 0);
    ck_assert_int_eq(p.level, GB_HISTORY_HOURS);
    ck_assert_uint_eq(p.step_s, 10800);
    p = plan(-86400, 0, 0);
    ck_assert_int_eq(p.level, GB_HISTORY_MINUTES);
    p = plan(-30 * 86400, 0, 3000); /* more minutes than one query may read */
    ck_assert_int_eq(p.level, GB_HISTORY_HOURS);
    ck_assert_uint_eq(p.step_s, 3600);
    p = plan(-100000, -99000, 10); /* samples that are not kept */
    ck_assert_int_eq(p.level, GB_HISTORY_MINUTES);
    ck_assert_uint_eq(p.step_s, 60);
    p = plan(-100, 0, 90);
    ck_assert_uint_eq(p.step_s, 120);
    for (range = 1; range < 200000000; range = range * 3 / 2 + 7) {
        p = plan(-range, 0, 0);
        ck_assert_int_le((p.until_us - p.since_us) / ((int64_t)p.step_s * S), GB_HISTORY_POINTS + 1);
    }
    gb_assert_fails(gb_history_plan(&query, &limits, T0, &p, &err), err, GB_ERR_INVALID_ARGUMENT);
}
END_TEST

/* Holds the reader thread in the first query's callback, so that the other queries wait. */
struct held {
    struct store_wait wait;
    struct store_gate gate;
};

static void hold(void *arg, struct gb_history_answer *answer, const struct gb_error *error) {
    struct held *h = arg;

    (void)answer; /* not taken over: the store frees it */
    sem_post(&h->gate.entered);
    while (sem_wait(&h->gate.opened) < 0)
        ;
    store_wait_report(&h->wait, error);
}

static void count(void *arg, struct gb_history_answer *answer, const struct gb_error *error) {
    (void)answer;
    store_wait_report(arg, error);
}

START_TEST(questions_are_bounded) {
    const struct gb_history_key key = {.scope = GB_HISTORY_DAEMON};
    const struct gb_history_plan plan = {GB_HISTORY_SAMPLES, T0, T0 + 60 * S, 10};
    struct store_fixture f;
    struct store_wait late;
    struct held h;
    unsigned i;

    store_fixture_init(&f);
    store_wait_init(&h.wait);
    store_wait_init(&late);
    sem_init(&h.gate.entered, 0, 0);
    sem_init(&h.gate.opened, 0, 0);
    gb_store_history(f.store, &key, &plan, hold, &h);
    while (sem_wait(&h.gate.entered) < 0)
        ;
    for (i = 0; i < GB_HISTORY_READS_MAX; i++)
        gb_store_history(f.store, &key, &plan, count, &h.wait);
    ck_assert_uint_eq(h.wait.reported, 0);
    gb_store_history(f.store, &key, &plan, count, &late);
    ck_assert_uint_eq(late.reported, 1); /* called at once, on the calling thread */
    ck_assert_uint_eq(late.failed, 1);
    ck_assert_int_eq(late.last.code, GB_ERR_SATURATED);
    sem_post(&h.gate.opened);
    store_wait_until(&h.wait, GB_HISTORY_READS_MAX + 1);
    ck_assert_uint_eq(h.wait.failed, 0);
    gb_store_history(f.store, &key, &plan, count, &late);
    store_wait_until(&late, 2);
    ck_assert_uint_eq(late.failed, 1); /* the queue has room again */
    sem_destroy(&h.gate.opened);
    sem_destroy(&h.gate.entered);
    store_wait_done(&late);
    store_wait_done(&h.wait);
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_history");

    gb_test_add(suite, "sum", points_are_summed, 30);
    gb_test_add(suite, "cover", points_say_what_they_cover, 30);
    gb_test_add(suite, "levels", minutes_and_hours, 60);
    gb_test_add(suite, "clock", a_clock_that_is_set_back, 60);
    gb_test_add(suite, "age", what_is_old_goes, 60);
    gb_test_add(suite, "bounds", bounds, 60);
    gb_test_add(suite, "questions", questions_are_bounded, 30);
    gb_test_add(suite, "starts", starts_are_noted, 60);
    gb_test_add(suite, "plans", plans, 30);
    return gb_test_run(suite);
}
