/* Streams and events: order, concurrency, waiting, time. */
#include <string.h>

#include "conf.h"

struct list {
    int values[64];
    int count;
    struct item {
        struct list *list;
        int value;
    } items[64];
};

static void append(void *arg) {
    struct item *item = arg;

    item->list->values[item->list->count++] = item->value;
}

START_TEST(calls_run_in_order) {
    struct list list = {.count = 0};
    int i;

    for (i = 0; i < 64; i++) {
        list.items[i] = (struct item){.list = &list, .value = i};
        gb_assert_ok(gb_stream_call(conf.be, conf.s1, append, &list.items[i], &conf.err), conf.err);
    }
    conf_sync(conf.s1);
    ck_assert_int_eq(list.count, 64);
    for (i = 0; i < 64; i++)
        ck_assert_int_eq(list.values[i], i);
}
END_TEST

START_TEST(work_runs_in_order) {
    unsigned char *p = conf_alloc(conf.pool, conf.s1, MIB);
    unsigned char *q = conf_alloc(conf.pool, conf.s1, MIB);
    int i;

    for (i = 0; i < 50; i++) {
        gb_assert_ok(gb_mem_fill(conf.be, p, (uint64_t)i, 1, MIB, conf.s1, &conf.err), conf.err);
        gb_assert_ok(gb_mem_copy(conf.be, q, p, MIB, GB_COPY_ON_DEVICE, conf.s1, &conf.err), conf.err);
        gb_assert_ok(gb_mem_fill(conf.be, p, 0xee, 1, MIB, conf.s1, &conf.err), conf.err);
        conf_expect_byte(q, (unsigned char)i, MIB, conf.s1);
    }
    conf_free(p, conf.s1);
    conf_free(q, conf.s1);
}
END_TEST

START_TEST(queueing_does_not_wait_and_streams_are_independent) {
    struct conf_gate gate;
    struct gb_event *held;
    struct gb_event *other;
    unsigned char *p = conf_alloc(conf.pool, conf.s2, MIB);
    bool done = true;

    conf_gate_hold(&gate, conf.s1);
    held = conf_event_on(conf.s1);
    gb_assert_ok(gb_mem_fill(conf.be, p, 7, 1, MIB, conf.s2, &conf.err), conf.err);
    other = conf_event_on(conf.s2);
    conf_wait(other);
    ck_assert(!conf_done(held));
    conf_expect_byte(p, 7, MIB, conf.s2);
    ck_assert(!conf_done(held));
    gb_assert_ok(gb_stream_query(conf.be, conf.s1, &done, &conf.err), conf.err);
    ck_assert(!done);
    conf_gate_let_go(&gate);
    conf_wait(held);
    ck_assert(conf_done(held));
    conf_sync(conf.s1);
    gb_assert_ok(gb_stream_query(conf.be, conf.s1, &done, &conf.err), conf.err);
    ck_assert(done);
    conf_free(p, conf.s2);
    gb_event_destroy(conf.be, held);
    gb_event_destroy(conf.be, other);
}
END_TEST

START_TEST(a_stream_waits_for_an_event) {
    struct conf_gate gate;
    struct gb_event *source;
    struct gb_event *after;
    unsigned char *p = conf_alloc(conf.pool, conf.s1, MIB);
    int i;

    conf_write(p, 1, MIB, conf.s1);
    for (i = 0; i < 20; i++) {
        conf_gate_hold(&gate, conf.s1);
        gb_assert_ok(gb_mem_fill(conf.be, p, (uint64_t)i, 1, MIB, conf.s1, &conf.err), conf.err);
        source = conf_event_on(conf.s1);
        gb_assert_ok(gb_stream_wait(conf.be, conf.s2, source, &conf.err), conf.err);
        gb_assert_ok(gb_mem_copy(conf.be, conf.pinned, p, MIB, GB_COPY_FROM_DEVICE, conf.s2, &conf.err), conf.err);
        after = conf_event_on(conf.s2);
        ck_assert(!conf_done(after));
        conf_gate_let_go(&gate);
        conf_wait(after);
        ck_assert(conf_done(source));
        ck_assert_int_eq(conf.pinned[0], i);
        ck_assert_int_eq(conf.pinned[MIB - 1], i);
        gb_event_destroy(conf.be, source);
        gb_event_destroy(conf.be, after);
    }
    conf_free(p, conf.s1);
}
END_TEST

START_TEST(a_wait_covers_the_record_at_the_time_of_the_call) {
    struct gb_event *event = conf_event_on(conf.s1);
    struct conf_gate gate;

    conf_wait(event);
    gb_assert_ok(gb_stream_wait(conf.be, conf.s2, event, &conf.err), conf.err);
    conf_gate_hold(&gate, conf.s1);
    gb_assert_ok(gb_event_record(conf.be, event, conf.s1, &conf.err), conf.err);
    ck_assert(!conf_done(event));
    conf_wait_stream(conf.s2); /* not held by the second record */
    conf_gate_let_go(&gate);
    conf_wait(event);
    gb_event_destroy(conf.be, event);
}
END_TEST

START_TEST(an_event_never_recorded_is_done_and_holds_nobody) {
    struct gb_event *event = conf_event();

    ck_assert(conf_done(event));
    gb_assert_ok(gb_stream_wait(conf.be, conf.s1, event, &conf.err), conf.err);
    conf_sync(conf.s1);
    conf_wait(event);
    gb_event_destroy(conf.be, event);
}
END_TEST

START_TEST(an_event_may_go_before_its_record_is_reached) {
    struct conf_gate gate;
    struct gb_event *event;

    conf_gate_hold(&gate, conf.s1);
    event = conf_event_on(conf.s1);
    gb_assert_ok(gb_stream_wait(conf.be, conf.s2, event, &conf.err), conf.err);
    gb_event_destroy(conf.be, event);
    conf_gate_let_go(&gate);
    conf_sync(conf.s2);
    conf_sync(conf.s1);
}
END_TEST

START_TEST(elapsed_counts_device_time) {
    struct gb_event *mark = conf_event();
    struct conf_gate gate;
    struct gb_event *start;
    struct gb_event *end;
    uint64_t waited = 0;
    uint64_t ns = 0;
    unsigned char *p = conf_alloc(conf.pool, conf.s1, 8 * MIB);

    conf_gate_hold(&gate, conf.s1);
    gb_assert_ok(gb_event_mark(conf.be, mark, &conf.err), conf.err);
    conf_wait(mark); /* behind no work: blocked streams do not matter */
    start = conf_event_on(conf.s1);
    gb_assert_ok(gb_mem_fill(conf.be, p, 1, 1, 8 * MIB, conf.s1, &conf.err), conf.err);
    end = conf_event_on(conf.s1);
    gb_assert_fails(gb_event_elapsed(conf.be, mark, end, &ns, &conf.err), conf.err, GB_ERR_DEVICE_ERROR);
    conf_gate_let_go(&gate);
    conf_wait(end);
    gb_assert_ok(gb_event_elapsed(conf.be, start, end, &ns, &conf.err), conf.err);
    ck_assert_uint_gt(ns, 0);
    gb_assert_ok(gb_event_elapsed(conf.be, mark, start, &waited, &conf.err), conf.err);
    ck_assert_uint_gt(waited, 0);
    gb_assert_ok(gb_event_elapsed(conf.be, end, start, &ns, &conf.err), conf.err);
    ck_assert_uint_eq(ns, 0);
    conf_free(p, conf.s1);
    gb_event_destroy(conf.be, mark);
    gb_event_destroy(conf.be, start);
    gb_event_destroy(conf.be, end);
}
END_TEST

static void set_flag(void *arg) {
    *(int *)arg = 1;
}

START_TEST(destroying_a_stream_drains_it) {
    struct gb_stream *stream = NULL;
    int flag = 0;
    unsigned char *p;

    gb_assert_ok(gb_stream_create(conf.be, 0, &stream, &conf.err), conf.err);
    p = conf_alloc(conf.pool, stream, 64 * MIB);
    gb_assert_ok(gb_mem_fill(conf.be, p, 9, 1, 64 * MIB, stream, &conf.err), conf.err);
    gb_assert_ok(gb_stream_call(conf.be, stream, set_flag, &flag, &conf.err), conf.err);
    gb_stream_destroy(conf.be, stream);
    ck_assert_int_eq(flag, 1);
    conf_expect_byte(p, 9, 64 * MIB, conf.s1);
    conf_free(p, conf.s1);
    gb_stream_destroy(conf.be, NULL);
    gb_event_destroy(conf.be, NULL);
}
END_TEST

START_TEST(sync_waits_for_what_was_queued) {
    int flag = 0;

    gb_assert_ok(gb_stream_call(conf.be, conf.s1, set_flag, &flag, &conf.err), conf.err);
    conf_sync(conf.s1);
    ck_assert_int_eq(flag, 1);
    conf_sync(conf.s1);
}
END_TEST

/* Held is one stream alone, also where the other's work is the CPU's. A hold may end before the stream reaches it. */
START_TEST(a_held_stream_waits) {
    unsigned char *p = conf_alloc(conf.pool, conf.s1, MIB);
    struct gb_location from = {.kind = GB_KIND_PAGEABLE, .device = 0};
    struct gb_location to = {.kind = GB_KIND_PAGEABLE, .device = 0};
    enum gb_copy_way way;
    struct gb_hold *hold = NULL;
    struct gb_event *held;
    int i;

    gb_assert_ok(gb_mem_kind_alloc(conf.be, 0, GB_KIND_PAGEABLE, MIB, &from.ptr, &conf.err), conf.err);
    gb_assert_ok(gb_mem_kind_alloc(conf.be, 0, GB_KIND_PAGEABLE, MIB, &to.ptr, &conf.err), conf.err);
    for (i = 0; i < 20; i++) {
        gb_assert_ok(gb_stream_hold(conf.be, conf.s1, &hold, &conf.err), conf.err);
        gb_assert_ok(gb_mem_fill(conf.be, p, (uint64_t)i, 1, MIB, conf.s1, &conf.err), conf.err);
        held = conf_event_on(conf.s1);
        memset(from.ptr, i, MIB);
        gb_assert_ok(gb_mem_move(conf.be, &to, &from, MIB, conf.s2, &way, &conf.err), conf.err);
        conf_sync(conf.s2);
        ck_assert_int_eq(((unsigned char *)to.ptr)[MIB - 1], i);
        ck_assert(!conf_done(held));
        gb_stream_release(conf.be, hold);
        conf_wait(held);
        conf_expect_byte(p, (unsigned char)i, MIB, conf.s1);
        gb_event_destroy(conf.be, held);
        gb_assert_ok(gb_stream_hold(conf.be, conf.s1, &hold, &conf.err), conf.err);
        gb_stream_release(conf.be, hold);
    }
    conf_sync(conf.s1);
    gb_assert_ok(gb_mem_kind_free(conf.be, &from, MIB, &conf.err), conf.err);
    gb_assert_ok(gb_mem_kind_free(conf.be, &to, MIB, &conf.err), conf.err);
    conf_free(p, conf.s1);
}
END_TEST

/* A chain through many streams, each waiting for the one before. */
START_TEST(chains_of_waits_are_followed) {
    struct gb_stream *streams[12] = {NULL};
    struct gb_event *events[12] = {NULL};
    unsigned char *p = conf_alloc(conf.pool, conf.s1, MIB);
    struct conf_gate gate;
    int i;

    conf_sync(conf.s1);
    conf_gate_hold(&gate, conf.s1);
    for (i = 0; i < 12; i++) {
        gb_assert_ok(gb_stream_create(conf.be, 0, &streams[i], &conf.err), conf.err);
        events[i] = conf_event_on(i == 0 ? conf.s1 : streams[i - 1]);
        gb_assert_ok(gb_stream_wait(conf.be, streams[i], events[i], &conf.err), conf.err);
        gb_assert_ok(gb_mem_fill(conf.be, p, (uint64_t)i, 1, MIB, streams[i], &conf.err), conf.err);
    }
    conf_gate_let_go(&gate);
    conf_sync(streams[11]);
    conf_expect_byte(p, 11, MIB, conf.s1);
    for (i = 0; i < 12; i++) {
        gb_stream_destroy(conf.be, streams[i]);
        gb_event_destroy(conf.be, events[i]);
    }
    conf_free(p, conf.s1);
}
END_TEST

void conf_add_order(Suite *suite) {
    conf_add(suite, "calls run in order", calls_run_in_order);
    conf_add(suite, "work runs in order", work_runs_in_order);
    conf_add(suite, "streams are independent", queueing_does_not_wait_and_streams_are_independent);
    conf_add(suite, "a stream waits for an event", a_stream_waits_for_an_event);
    conf_add(suite, "a wait covers the present record", a_wait_covers_the_record_at_the_time_of_the_call);
    conf_add(suite, "never recorded is done", an_event_never_recorded_is_done_and_holds_nobody);
    conf_add(suite, "an event may go early", an_event_may_go_before_its_record_is_reached);
    conf_add(suite, "elapsed", elapsed_counts_device_time);
    conf_add(suite, "destroy drains", destroying_a_stream_drains_it);
    conf_add(suite, "a held stream waits", a_held_stream_waits);
    conf_add(suite, "sync waits", sync_waits_for_what_was_queued);
    conf_add(suite, "chains of waits", chains_of_waits_are_followed);
}
