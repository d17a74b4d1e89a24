/* Refusals in the audit: what repeats is folded, and a flood of them has its share of the rows and no more. */
#include "core/observe/audit.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gb_test.h"

#define DAY_US (86400 * 1000000LL)
#define DAY_NS (86400 * GB_NS_PER_S)

struct fixture {
    struct gb_audit_refusals *refusals;
    uint64_t now_ns;
    /* Of all that was reported: */
    uint64_t records;
    uint64_t refused; /* that the records stand for */
    uint64_t others;  /* those without a record of their own */
    struct gb_audit_rec last;
    char object[GB_AUDIT_TEXT_MAX + 1]; /* of it */
};

static void init(struct fixture *f, uint64_t rows, int64_t age_us) {
    struct gb_error err = GB_ERROR_INIT;

    *f = (struct fixture){.now_ns = GB_NS_PER_S};
    gb_assert_ok(gb_audit_refusals_new(rows, age_us, &f->refusals, &err), err);
}

static void done(struct fixture *f) {
    gb_audit_refusals_free(f->refusals);
}

static void take(struct fixture *f, struct gb_audit_queue *out) {
    size_t at = 0;

    while (gb_audit_queue_next(out, &at, &f->last)) {
        f->records++;
        if (f->last.event == GB_AUDIT_REFUSALS)
            f->others += f->last.count;
        f->refused += f->last.count > 0 ? f->last.count : 1;
        snprintf(f->object, sizeof(f->object), "%s",
                 f->last.text[GB_AUDIT_OBJECT] ? f->last.text[GB_AUDIT_OBJECT] : "");
    }
    gb_audit_queue_done(out);
}

static void refuse(struct fixture *f, const char *address, const char *route, const char *object) {
    const struct gb_audit_rec rec = {.event = GB_AUDIT_REQUEST,
                                     .status = 401,
                                     .text = {[GB_AUDIT_METHOD] = "GET",
                                              [GB_AUDIT_ROUTE] = route,
                                              [GB_AUDIT_ERROR] = "unauthenticated",
                                              [GB_AUDIT_ADDRESS] = address,
                                              [GB_AUDIT_OBJECT] = object}};
    struct gb_audit_queue out = {.at = NULL};

    gb_audit_refusals_put(f->refusals, &rec, f->now_ns, &out);
    take(f, &out);
}

static void tick(struct fixture *f, bool all) {
    struct gb_audit_queue out = {.at = NULL};

    gb_audit_refusals_tick(f->refusals, all, f->now_ns, &out);
    take(f, &out);
}

START_TEST(what_repeats_is_one_record) {
    struct fixture f;
    int i;

    init(&f, 1000000, 90 * DAY_US);
    refuse(&f, "192.0.2.1", "/v1", "a");
    ck_assert_uint_eq(f.records, 1); /* the first at once */
    ck_assert_uint_eq(f.last.count, 0);
    for (i = 0; i < 1000; i++)
        refuse(&f, "192.0.2.1", "/v1", i < 999 ? "b" : "c");
    tick(&f, false);
    ck_assert_uint_eq(f.records, 1); /* not due */
    f.now_ns += GB_NS_PER_S;
    tick(&f, false);
    ck_assert_uint_eq(f.records, 2);
    ck_assert_uint_eq(f.last.count, 1000);
    ck_assert_int_eq(f.last.status, 401);
    ck_assert_str_eq(f.last.text[GB_AUDIT_ROUTE], "/v1");
    ck_assert_str_eq(f.object, "c"); /* of the last of them */
    tick(&f, true);
    ck_assert_uint_eq(f.records, 2); /* nothing waits */
    done(&f);
}
END_TEST

START_TEST(others_are_told_apart) {
    struct fixture f;

    init(&f, 1000000, 90 * DAY_US);
    refuse(&f, "192.0.2.1", "/v1", NULL);
    refuse(&f, "192.0.2.2", "/v1", NULL);
    refuse(&f, "192.0.2.1", "/v1/stats", NULL);
    refuse(&f, NULL, "/v1", NULL);
    ck_assert_uint_eq(f.records, 4);
    refuse(&f, "192.0.2.2", "/v1", NULL);
    ck_assert_uint_eq(f.records, 4);
    tick(&f, true);
    ck_assert_uint_eq(f.records, 5);
    ck_assert_uint_eq(f.last.count, 0); /* one is no count */
    /* After a minute without one it is a first again. */
    f.now_ns += 100 * GB_NS_PER_S;
    tick(&f, false);
    refuse(&f, "192.0.2.2", "/v1", NULL);
    ck_assert_uint_eq(f.records, 6);
    done(&f);
}
END_TEST

/* A client at 100 requests a second, for an hour. */
START_TEST(one_client_that_floods) {
    struct fixture f;
    int second;
    int i;

    init(&f, 1000000, 90 * DAY_US);
    for (second = 0; second < 3600; second++) {
        for (i = 0; i < 100; i++)
            refuse(&f, "192.0.2.1", "/v1", NULL);
        f.now_ns += GB_NS_PER_S;
        tick(&f, false);
    }
    ck_assert_uint_le(f.records, 80);
    tick(&f, true);
    ck_assert_uint_eq(f.refused, 360000);
    ck_assert_uint_eq(f.others, 0);
    done(&f);
}
END_TEST

/* From more addresses than are kept apart, for as long as rows are kept: they take half of the rows. */
START_TEST(many_clients_that_flood) {
    uint64_t sent = 0;
    struct fixture f;
    int minute;
    int i;

    init(&f, 1000, DAY_US);
    for (minute = 0; minute < 24 * 60; minute++) {
        for (i = 0; i < 300; i++) {
            char address[32];

            snprintf(address, sizeof(address), "2001:db8::%llx", (unsigned long long)sent++);
            refuse(&f, address, "/v1", NULL);
        }
        f.now_ns += DAY_NS / (24 * 60);
        tick(&f, false);
    }
    ck_assert_uint_le(f.records, 500);
    ck_assert_uint_ge(f.records, 300);
    ck_assert_uint_gt(f.others, 0);
    tick(&f, true);
    ck_assert_uint_eq(f.refused, sent); /* none is forgotten */
    done(&f);
}
END_TEST

/* What may be written at once is a small part of what may wait for the disk. */
START_TEST(a_flood_leaves_the_queue_to_others) {
    struct fixture f;
    unsigned i;

    init(&f, 1000000000, 0);
    for (i = 0; i < 100000; i++) {
        char address[32];

        snprintf(address, sizeof(address), "2001:db8::%x", i);
        refuse(&f, address, "/v1", NULL);
    }
    ck_assert_uint_eq(f.records, GB_AUDIT_REFUSALS_BURST);
    done(&f);
}
END_TEST

START_TEST(a_small_table) {
    struct fixture f;

    init(&f, 1, DAY_US);
    refuse(&f, "192.0.2.1", "/v1", NULL);
    refuse(&f, "192.0.2.2", "/v1", NULL);
    ck_assert_uint_eq(f.records, 1);
    tick(&f, true);
    ck_assert_uint_eq(f.refused, 2);
    ck_assert_uint_eq(f.others, 1);
    done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_audit_refusals");

    gb_test_add(suite, "repeats", what_repeats_is_one_record, 60);
    gb_test_add(suite, "apart", others_are_told_apart, 60);
    gb_test_add(suite, "one", one_client_that_floods, 60);
    gb_test_add(suite, "many", many_clients_that_flood, 60);
    gb_test_add(suite, "queue", a_flood_leaves_the_queue_to_others, 60);
    gb_test_add(suite, "small", a_small_table, 60);
    return gb_test_run(suite);
}
