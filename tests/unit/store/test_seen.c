/* The time that daemons have seen pass: what a clock that jumps must not make old. */
#include <stdio.h>

#include "base/clock.h"
#include "gb_test.h"
#include "store/seen.h"
#include "store_fixture.h"

#define S ((int64_t)1000000)
#define DAY (86400 * S)
#define YEARS (4383 * DAY)

static struct gb_seen_spans spans;

static void span(int64_t from_us, int64_t to_us) {
    gb_seen_spans_begin(&spans, from_us);
    spans.spans[spans.count - 1].to_us = to_us;
}

START_TEST(gaps_do_not_count) {
    spans.count = 0;
    span(1000 * DAY, 1010 * DAY);
    ck_assert_int_eq(gb_seen_spans_since(&spans, 3 * DAY), 1007 * DAY);
    ck_assert_int_eq(gb_seen_spans_since(&spans, 30 * DAY), 980 * DAY); /* before the first all counts */
    span(1020 * DAY, 1021 * DAY);
    ck_assert_int_eq(gb_seen_spans_since(&spans, DAY / 2), 1020 * DAY + DAY / 2);
    ck_assert_int_eq(gb_seen_spans_since(&spans, 3 * DAY), 1008 * DAY);
    ck_assert_int_eq(gb_seen_spans_since(&spans, 30 * DAY), 981 * DAY);
}
END_TEST

START_TEST(a_clock_that_is_wrong_for_a_start) {
    spans.count = 0;
    span(1000 * DAY, 1030 * DAY);
    span(1030 * DAY + YEARS, 1030 * DAY + YEARS + 3 * S);
    ck_assert_int_eq(gb_seen_spans_since(&spans, 30 * DAY), 1000 * DAY + 3 * S);
    span(1030 * DAY + 5 * S, 1031 * DAY);
    ck_assert_int_eq(gb_seen_spans_since(&spans, 30 * DAY), 1001 * DAY - 2 * S);
    span(1000 * DAY, 1000 * DAY + 10 * S); /* put back, over what was seen before */
    ck_assert_int_eq(gb_seen_spans_since(&spans, 5 * S), 1000 * DAY + 5 * S);
    ck_assert_int_eq(gb_seen_spans_since(&spans, 30 * DAY), 1001 * DAY + 8 * S);
}
END_TEST

/* However many starts there were, the sum stays, and what is lost is the shortest gap. */
START_TEST(many_starts) {
    int64_t all = 0;
    int i;

    spans.count = 0;
    for (i = 0; i < 200; i++)
        span(1000 * DAY + i * DAY, 1000 * DAY + i * DAY + DAY / 4);
    ck_assert_int_le(spans.count, GB_SEEN_MAX);
    span(1300 * DAY, 1300 * DAY);
    span(1300 * DAY + S, 1300 * DAY + S);
    ck_assert_int_eq(spans.spans[spans.count - 1].from_us, 1300 * DAY + S);
    for (i = 0; i < spans.count; i++)
        all += spans.spans[i].to_us - spans.spans[i].from_us;
    ck_assert_int_eq(all, 200 * DAY / 4);
}
END_TEST

static int64_t rows(struct store_fixture *f) {
    return store_sql_int(f->path, "SELECT count(*) FROM audit");
}

/* The last run ended twelve years from now, or as long ago: no hour has passed for the daemon. */
static void check_start(int64_t by_us, bool tells) {
    int64_t now_us = gb_wall_us();
    struct gb_store_jump jump;
    struct store_fixture f;
    char sql[160];

    store_fixture_init(&f);
    ck_assert(!gb_store_clock(f.store, &jump));
    store_fixture_close(&f);
    snprintf(sql, sizeof(sql), "UPDATE seen SET from_us = %lld, to_us = %lld", (long long)(now_us + by_us - 60 * S),
             (long long)(now_us + by_us));
    store_sql_exec(f.path, sql);
    store_fixture_open(&f);
    ck_assert(gb_store_clock(f.store, &jump) == tells);
    ck_assert(!gb_store_clock(f.store, &jump)); /* once */
    if (tells)
        ck_assert(jump.from_us == now_us + by_us && !jump.running);
    ck_assert_int_le(gb_store_seen_since(f.store, 3600 * S), now_us + by_us - 3500 * S);
    store_fixture_done(&f);
}

START_TEST(a_start_at_another_time) {
    check_start(-YEARS, true);
    check_start(YEARS, true);
    check_start(-DAY, false); /* a machine that stood still */
}
END_TEST

/* A row of the audit that is old by the clock, and not by what was seen. */
START_TEST(the_audit_stays) {
    int64_t now_us = gb_wall_us();
    struct gb_audit_rec rec = {.at_us = now_us - YEARS, .event = GB_AUDIT_REQUEST};
    struct store_fixture f;
    char sql[160];

    store_fixture_dir(&f);
    f.config.audit_age_us = 3600 * S;
    store_fixture_open(&f);
    store_fixture_close(&f);
    snprintf(sql, sizeof(sql), "UPDATE seen SET from_us = %lld, to_us = %lld", (long long)(now_us - YEARS - 60 * S),
             (long long)(now_us - YEARS));
    store_sql_exec(f.path, sql);
    store_fixture_open(&f);
    gb_store_audit(f.store, &rec);
    rec.at_us = now_us;
    gb_store_audit(f.store, &rec);
    store_fixture_close(&f);
    ck_assert_int_eq(rows(&f), 2);
    store_sql_exec(f.path, "DELETE FROM seen");
    store_fixture_open(&f);
    gb_store_audit(f.store, &rec);
    store_fixture_close(&f);
    ck_assert_int_eq(rows(&f), 2);
    store_fixture_open(&f);
    store_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("seen");

    gb_test_add(suite, "gaps", gaps_do_not_count, 60);
    gb_test_add(suite, "wrong start", a_clock_that_is_wrong_for_a_start, 60);
    gb_test_add(suite, "many starts", many_starts, 60);
    gb_test_add(suite, "start", a_start_at_another_time, 60);
    gb_test_add(suite, "audit", the_audit_stays, 60);
    return gb_test_run(suite);
}
