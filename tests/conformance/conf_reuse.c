/* The three policies for reusing memory across streams, each on and off. The tests compare the address that another
 * stream gets, and the bytes that the pool then reserves. */
#include <sched.h>
#include <string.h>

#include "conf.h"

/* Asserts which memory s2 got after s1 freed p: the same, without a larger reservation, or other memory. */
static void expect_reuse(struct gb_pool *pool, const void *p, const void *q, bool reused) {
    uint64_t reserved = conf_stat(pool).reserved_bytes;

    if (reused) {
        ck_assert_ptr_eq(p, q);
        ck_assert_uint_lt(reserved, 64 * MIB);
    } else {
        ck_assert_ptr_ne(p, q);
        ck_assert_uint_ge(reserved, 64 * MIB);
    }
}

static void give_back(struct gb_pool *pool, void *q) {
    conf_free(q, conf.s2);
    conf_sync(conf.s1);
    conf_sync(conf.s2);
    gb_pool_destroy(conf.be, pool);
}

/* s1 is blocked before the free; s2 waits for an event behind it. */
START_TEST(event_dependencies_are_followed_only_where_allowed) {
    bool allowed = _i == 1;
    struct gb_pool *pool = conf_pool(0, allowed, false, false);
    unsigned char *p = conf_alloc(pool, conf.s1, 32 * MIB);
    struct conf_gate gate;
    struct gb_event *event;
    unsigned char *q;

    conf_gate_hold(&gate, conf.s1);
    gb_assert_ok(gb_mem_fill(conf.be, p, 1, 1, 32 * MIB, conf.s1, &conf.err), conf.err);
    conf_free(p, conf.s1);
    event = conf_event_on(conf.s1);
    gb_assert_ok(gb_stream_wait(conf.be, conf.s2, event, &conf.err), conf.err);
    q = conf_alloc(pool, conf.s2, 32 * MIB);
    expect_reuse(pool, p, q, allowed);
    gb_assert_ok(gb_mem_fill(conf.be, q, 2, 1, 32 * MIB, conf.s2, &conf.err), conf.err);
    conf_gate_let_go(&gate);
    conf_expect_byte(q, 2, 32 * MIB, conf.s2);
    gb_event_destroy(conf.be, event);
    give_back(pool, q);
}
END_TEST

/* s1 is blocked before its free, and s2 has no dependency on it. */
static void expect_untouched(struct gb_pool *pool) {
    unsigned char *p = conf_alloc(pool, conf.s1, 32 * MIB);
    struct conf_gate gate;
    unsigned char *q;

    conf_gate_hold(&gate, conf.s1);
    conf_free(p, conf.s1);
    q = conf_alloc(pool, conf.s2, 32 * MIB);
    expect_reuse(pool, p, q, false);
    conf_gate_let_go(&gate);
    give_back(pool, q);
}

/* Without an event between the streams the policy does not apply. */
START_TEST(without_an_event_nothing_is_followed) {
    expect_untouched(conf_pool(0, true, true, true));
}
END_TEST

/* Polls only memory that a copy writes. A driver call or a host function would show the driver that the stream is done;
 * then any stream could get the memory. */
__attribute__((no_sanitize("thread"))) static void await_byte(const volatile unsigned char *byte) {
    while (*byte != 1)
        sched_yield();
}

/* The free is complete, as a copy behind it shows. No thread has waited for its stream or for an event of it. */
START_TEST(finished_frees_are_taken_only_where_allowed) {
    bool allowed = _i == 1;
    struct gb_pool *pool = conf_pool(0, false, allowed, false);
    unsigned char *one = conf_alloc(conf.pool, conf.s1, 256);
    unsigned char *p = conf_alloc(pool, conf.s1, 32 * MIB);
    unsigned char *q;

    memset(conf.pinned, 0, 256);
    gb_assert_ok(gb_mem_fill(conf.be, one, 1, 1, 256, conf.s1, &conf.err), conf.err);
    conf_sync(conf.s1);
    gb_assert_ok(gb_mem_fill(conf.be, p, 1, 1, 32 * MIB, conf.s1, &conf.err), conf.err);
    conf_free(p, conf.s1);
    gb_assert_ok(gb_mem_copy(conf.be, conf.pinned, one, 256, GB_COPY_FROM_DEVICE, conf.s1, &conf.err), conf.err);
    await_byte(conf.pinned + 255);
    q = conf_alloc(pool, conf.s2, 32 * MIB);
    expect_reuse(pool, p, q, allowed);
    conf_free(one, conf.s1);
    give_back(pool, q);
}
END_TEST

/* While the stream is blocked, opportunistic reuse is impossible. */
START_TEST(unfinished_frees_are_no_opportunity) {
    expect_untouched(conf_pool(0, false, true, false));
}
END_TEST

START_TEST(synced_frees_are_for_everyone) {
    struct gb_pool *pool = conf_pool(0, false, false, false);
    unsigned char *p = conf_alloc(pool, conf.s1, 32 * MIB);
    unsigned char *q;

    conf_free(p, conf.s1);
    conf_sync(conf.s1);
    q = conf_alloc(pool, conf.s2, 32 * MIB);
    expect_reuse(pool, p, q, true);
    give_back(pool, q);
}
END_TEST

/* As a server waits: by a watch, then by synchronizing the complete event. */
static void sync_event(struct gb_event *event) {
    conf_wait(event);
    gb_assert_ok(gb_event_sync(conf.be, event, &conf.err), conf.err);
    gb_event_destroy(conf.be, event);
}

static void expect_freed_for_s2(bool whole_device) {
    struct gb_pool *pool = conf_pool(0, false, false, false);
    unsigned char *p = conf_alloc(pool, conf.s1, 32 * MIB);
    struct gb_event *event;
    unsigned char *q;

    conf_free(p, conf.s1);
    event = whole_device ? conf_event() : conf_event_on(conf.s1);
    if (whole_device)
        gb_assert_ok(gb_event_record_device(conf.be, event, 0, &conf.err), conf.err);
    sync_event(event);
    q = conf_alloc(pool, conf.s2, 32 * MIB);
    expect_reuse(pool, p, q, true);
    give_back(pool, q);
}

START_TEST(frees_behind_a_synced_event_are_for_everyone) {
    expect_freed_for_s2(_i == 1);
}
END_TEST

/* More streams than the host backend keeps as dependencies of one. */
START_TEST(an_event_of_the_device_covers_all_its_streams) {
    struct gb_pool *pool = conf_pool(0, false, false, false);
    unsigned char *p = conf_alloc(pool, conf.s1, 32 * MIB);
    struct gb_event *event = conf_event();
    struct gb_stream *more[40];
    unsigned char *q;
    size_t i;

    for (i = 0; i < 40; i++)
        gb_assert_ok(gb_stream_create(conf.be, 0, &more[i], &conf.err), conf.err);
    conf_free(p, conf.s1);
    gb_assert_ok(gb_event_record_device(conf.be, event, 0, &conf.err), conf.err);
    sync_event(event);
    q = conf_alloc(pool, more[39], 32 * MIB);
    expect_reuse(pool, p, q, true);
    conf_free(q, more[39]);
    for (i = 0; i < 40; i++)
        gb_stream_destroy(conf.be, more[i]);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

/* s2 waits for s1, so its event covers what s1 freed before. */
START_TEST(a_synced_event_covers_what_its_stream_waited_for) {
    struct gb_pool *pool = conf_pool(0, false, false, false);
    unsigned char *p = conf_alloc(pool, conf.s1, 32 * MIB);
    struct gb_stream *s3;
    struct gb_event *after;
    unsigned char *q;

    gb_assert_ok(gb_stream_create(conf.be, 0, &s3, &conf.err), conf.err);
    conf_free(p, conf.s1);
    after = conf_event_on(conf.s1);
    gb_assert_ok(gb_stream_wait(conf.be, conf.s2, after, &conf.err), conf.err);
    sync_event(conf_event_on(conf.s2));
    q = conf_alloc(pool, s3, 32 * MIB);
    expect_reuse(pool, p, q, true);
    conf_free(q, s3);
    gb_stream_destroy(conf.be, s3);
    gb_event_destroy(conf.be, after);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

/* As a client that removes the stream before it synchronizes the event. */
START_TEST(a_synced_event_outlives_its_stream) {
    struct gb_pool *pool = conf_pool(0, false, false, false);
    struct gb_event *event;
    struct gb_stream *s3;
    unsigned char *p;
    unsigned char *q;

    gb_assert_ok(gb_stream_create(conf.be, 0, &s3, &conf.err), conf.err);
    p = conf_alloc(pool, s3, 32 * MIB);
    conf_free(p, s3);
    event = conf_event_on(s3);
    gb_stream_destroy(conf.be, s3);
    sync_event(event);
    q = conf_alloc(pool, conf.s2, 32 * MIB);
    expect_reuse(pool, p, q, true);
    give_back(pool, q);
}
END_TEST

START_TEST(a_full_pool_waits_inside_only_where_it_may) {
    bool allowed = _i == 1;
    struct gb_pool *pool = conf_pool(32 * MIB, false, false, allowed);
    unsigned char *p = conf_alloc(pool, conf.s1, 32 * MIB);
    struct gb_event *after;
    struct conf_gate gate;
    void *q = NULL;

    conf_gate_hold(&gate, conf.s1);
    gb_assert_ok(gb_mem_fill(conf.be, p, 1, 1, 32 * MIB, conf.s1, &conf.err), conf.err);
    conf_free(p, conf.s1);
    if (!allowed) {
        gb_assert_fails(gb_mem_alloc(conf.be, pool, conf.s2, 32 * MIB, &q, &conf.err), conf.err, GB_ERR_OUT_OF_MEMORY);
        conf_gate_let_go(&gate);
        conf_sync(conf.s1);
        gb_pool_destroy(conf.be, pool);
        return;
    }
    q = conf_alloc(pool, conf.s2, 32 * MIB);
    expect_reuse(pool, p, q, true);
    gb_assert_ok(gb_mem_fill(conf.be, q, 2, 1, 32 * MIB, conf.s2, &conf.err), conf.err);
    after = conf_event_on(conf.s2);
    ck_assert(!conf_done(after));
    conf_gate_let_go(&gate);
    conf_expect_byte(q, 2, 32 * MIB, conf.s2);
    gb_event_destroy(conf.be, after);
    give_back(pool, q);
}
END_TEST

void conf_add_reuse(Suite *suite) {
    conf_add_off_and_on(suite, "event dependencies", event_dependencies_are_followed_only_where_allowed);
    conf_add(suite, "no event, no dependency", without_an_event_nothing_is_followed);
    conf_add_off_and_on(suite, "opportunity", finished_frees_are_taken_only_where_allowed);
    conf_add(suite, "no opportunity", unfinished_frees_are_no_opportunity);
    conf_add(suite, "synced frees", synced_frees_are_for_everyone);
    conf_add_off_and_on(suite, "synced events", frees_behind_a_synced_event_are_for_everyone);
    conf_add(suite, "synced event, many streams", an_event_of_the_device_covers_all_its_streams);
    conf_add(suite, "synced event, a stream it waited for", a_synced_event_covers_what_its_stream_waited_for);
    conf_add(suite, "synced event of a stream that ended", a_synced_event_outlives_its_stream);
    conf_add_off_and_on(suite, "internal dependencies", a_full_pool_waits_inside_only_where_it_may);
}
