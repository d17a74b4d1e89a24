/* The fault decorator: the syntax of its rules, and their effects on calls. */
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "backend/fault/fault.h"
#include "base/clock.h"
#include "gb_test.h"

static struct gb_backend *be;
static struct gb_pool *pool;
static struct gb_stream *stream;
static struct gb_error err;

static void open_with(const char *rules) {
    char spec[256];
    char note[GB_BACKEND_NOTE_SIZE];

    err = GB_ERROR_INIT;
    snprintf(spec, sizeof(spec), "fault:%s:host:discrete,bytes=64M", rules);
    gb_assert_ok(gb_backend_open(spec, &be, note, &err), err);
    gb_assert_ok(gb_pool_default(be, 0, &pool, &err), err);
    gb_assert_ok(gb_stream_create(be, 0, &stream, &err), err);
}

static void close_all(void) {
    gb_stream_destroy(be, stream);
    gb_backend_close(be);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

static int parse(const char *text, struct gb_fault_plan *plan) {
    err = GB_ERROR_INIT;
    return gb_fault_plan_init(plan, text, strlen(text), &err);
}

START_TEST(rules_are_parsed) {
    struct gb_fault_plan plan;
    const struct gb_fault_rule *r;

    gb_assert_ok(parse("alloc=cudaErrorMemoryAllocation,copy@3=cudaErrorIllegalAddress,free@2+=delay/50,"
                       "complete@1=cudaErrorLaunchFailure,fill+=delay/0",
                       &plan),
                 err);
    ck_assert_uint_eq(plan.count, 5);
    r = plan.rules;
    ck_assert(r[0].op == GB_FAULT_alloc && r[0].first == 1 && r[0].last == UINT64_MAX);
    ck_assert_int_eq(r[0].native->number, 2);
    ck_assert(r[1].op == GB_FAULT_copy && r[1].first == 3 && r[1].last == 3);
    ck_assert(r[2].op == GB_FAULT_free && r[2].first == 2 && r[2].last == UINT64_MAX && !r[2].native);
    ck_assert_uint_eq(r[2].delay_ms, 50);
    ck_assert(r[3].op == GB_FAULT_complete && r[3].first == 1 && r[3].last == 1);
    ck_assert(r[4].op == GB_FAULT_fill && r[4].first == 1 && r[4].last == UINT64_MAX);
    gb_fault_plan_done(&plan);
    gb_assert_ok(parse("", &plan), err);
    ck_assert_uint_eq(plan.count, 0);
    gb_fault_plan_done(&plan);
}
END_TEST

START_TEST(wrong_rules_are_refused_with_what_is_permitted) {
    static const struct {
        const char *text;
        const char *says;
    } bad[] = {
        {"alloc", "OP[@N][+]=ERROR"},
        {"=cudaErrorUnknown", "pin_*, pool_*, stream_*"},
        {"malloc=cudaErrorUnknown", "watch, alloc, free, copy, fill, kind_*, move, box, place_fill, prefetch"},
        {"allo=cudaErrorUnknown", "attributes, export, import, import_end, complete"},
        {"pool_trin=cudaErrorUnknown", "pin_*, pool_default, pool_create"},
        {"pool_trin=cudaErrorUnknown", "pool_access_get, stream_*"},
        {"alloc@=cudaErrorUnknown", "counts calls from 1"},
        {"alloc@0=cudaErrorUnknown", "counts calls from 1"},
        {"alloc@-1=cudaErrorUnknown", "counts calls from 1"},
        {"alloc@1x=cudaErrorUnknown", "counts calls from 1"},
        {"alloc@99999999999999999999=cudaErrorUnknown", "counts calls from 1"},
        {"alloc@1++=cudaErrorUnknown", "counts calls from 1"},
        {"alloc=", "cudaErrorMemoryAllocation"},
        {"alloc=cudaErrorNoSuchThing", "cudaErrorMemoryAllocation"},
        {"alloc=delay/", "milliseconds"},
        {"alloc=delay/1s", "milliseconds"},
        {"alloc=delay/3600001", "milliseconds"},
        {"copy=stall/1s", "milliseconds"},
        {"alloc=stall/1", "move, box, place_fill"},
        {"pool_destroy=cudaErrorUnknown", "cannot fail"},
        {"close=delay/1", "no such operation"},
        {"alloc=delay/1,", "OP[@N][+]=ERROR"},
        {",alloc=delay/1", "OP[@N][+]=ERROR"},
    };
    struct gb_fault_plan plan;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(parse(bad[i].text, &plan) == -1, "'%s' was accepted", bad[i].text);
        ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
        ck_assert_msg(strstr(err.detail, bad[i].says), "'%s': %s", bad[i].text, err.detail);
    }
}
END_TEST

START_TEST(every_operation_can_be_named) {
    struct gb_fault_plan plan;
    char rule[64];
    int op;

    for (op = 0; op < GB_FAULT_OP_COUNT; op++) {
        snprintf(rule, sizeof(rule), "%s@7=delay/1", gb_fault_op_name((enum gb_fault_op)op));
        gb_assert_ok(parse(rule, &plan), err);
        ck_assert_int_eq((int)plan.rules[0].op, op);
        gb_fault_plan_done(&plan);
    }
}
END_TEST

START_TEST(calls_are_counted_by_operation) {
    struct gb_fault_plan plan;
    int i;

    gb_assert_ok(parse("copy@3=cudaErrorInvalidValue,fill@2+=delay/5,fill@3=delay/7", &plan), err);
    for (i = 1; i <= 5; i++) {
        struct gb_fault_verdict copy = gb_fault_plan_call(&plan, GB_FAULT_copy);
        struct gb_fault_verdict fill = gb_fault_plan_call(&plan, GB_FAULT_fill);

        ck_assert_uint_eq(copy.call, (uint64_t)i);
        ck_assert((copy.native != NULL) == (i == 3));
        ck_assert_uint_eq(fill.delay_ms, i == 1 ? 0 : i == 3 ? 12 : 5);
    }
    gb_fault_plan_done(&plan);
}
END_TEST

/* --- effects ------------------------------------------------------------------------------------------------------ */

START_TEST(the_named_call_fails_alone) {
    void *p = NULL;
    void *q = NULL;

    open_with("alloc@2=cudaErrorMemoryAllocation,copy@1=cudaErrorInvalidValue");
    gb_assert_ok(gb_mem_alloc(be, pool, stream, 4096, &p, &err), err);
    ck_assert_int_eq(gb_mem_alloc(be, pool, stream, 4096, &q, &err), -1);
    ck_assert_ptr_null(q);
    ck_assert_int_eq(err.code, GB_ERR_OUT_OF_MEMORY);
    ck_assert_str_eq(err.native_domain, "host");
    ck_assert_str_eq(err.native_name, "cudaErrorMemoryAllocation");
    ck_assert_int_eq(err.native_code, 2);
    ck_assert_str_eq(err.call, "cudaMallocFromPoolAsync");
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_mem_alloc(be, pool, stream, 4096, &q, &err), err);
    gb_assert_fails(gb_mem_copy(be, q, p, 4096, GB_COPY_ON_DEVICE, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_ok(gb_mem_copy(be, q, p, 4096, GB_COPY_ON_DEVICE, stream, &err), err);
    ck_assert(!gb_backend_dead(be, NULL));
    gb_assert_ok(gb_mem_free(be, p, stream, &err), err);
    gb_assert_ok(gb_mem_free(be, q, stream, &err), err);
    close_all();
}
END_TEST

START_TEST(from_the_nth_on_every_call_fails) {
    int i;

    open_with("stream_sync@3+=cudaErrorNotReady");
    for (i = 1; i <= 6; i++) {
        ck_assert_int_eq(gb_stream_sync(be, stream, &err), i < 3 ? 0 : -1);
        err = GB_ERROR_INIT;
    }
    close_all();
}
END_TEST

START_TEST(a_deadly_error_kills_the_backend) {
    struct gb_error why = GB_ERROR_INIT;
    struct gb_event *event = NULL;
    struct gb_pool_stat stat;
    struct gb_device_rec rec;
    bool done = false;
    void *p = NULL;

    open_with("fill@1=cudaErrorECCUncorrectable");
    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    gb_assert_ok(gb_mem_alloc(be, pool, stream, 4096, &p, &err), err);
    ck_assert(!gb_backend_dead(be, &why));
    gb_assert_fails(gb_mem_fill(be, p, 0, 1, 4096, stream, &err), err, GB_ERR_DEVICE_LOST);
    ck_assert(gb_backend_dead(be, &why));
    ck_assert_str_eq(why.native_name, "cudaErrorECCUncorrectable");
    ck_assert_int_eq(why.native_code, 214);
    ck_assert_int_eq(why.code, GB_ERR_DEVICE_LOST);
    ck_assert(gb_backend_dead(be, NULL));
    gb_assert_fails(gb_mem_fill(be, p, 0, 1, 4096, stream, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(gb_mem_free(be, p, stream, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(gb_stream_sync(be, stream, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(gb_event_query(be, event, &done, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(gb_pool_stat(be, pool, &stat, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(gb_backend_device_get(be, 0, &rec, &err), err, GB_ERR_DEVICE_LOST);
    gb_event_destroy(be, event);
    close_all();
}
END_TEST

struct heard {
    sem_t fired;
    struct gb_error error;
    bool failed;
};

static void hear(void *arg, const struct gb_error *error) {
    struct heard *heard = arg;

    heard->failed = error != NULL;
    heard->error = error ? *error : GB_ERROR_INIT;
    sem_post(&heard->fired);
}

static void listen_to(struct gb_event *event, struct heard *heard) {
    sem_init(&heard->fired, 0, 0);
    gb_assert_ok(gb_watch(be, event, hear, heard, &err), err);
}

static void await(struct heard *heard) {
    while (sem_wait(&heard->fired) != 0)
        continue;
}

START_TEST(a_watch_is_told_of_the_error) {
    struct heard heard[3];
    struct gb_event *event = NULL;
    int i;

    open_with("complete@2=cudaErrorInvalidValue,complete@1=delay/1");
    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    for (i = 0; i < 3; i++) {
        gb_assert_ok(gb_event_record(be, event, stream, &err), err);
        listen_to(event, &heard[i]);
        await(&heard[i]);
        ck_assert(heard[i].failed == (i == 1));
    }
    ck_assert_str_eq(heard[1].error.native_name, "cudaErrorInvalidValue");
    ck_assert_int_eq(heard[1].error.code, GB_ERR_DEVICE_ERROR);
    ck_assert(!gb_backend_dead(be, NULL));
    gb_event_destroy(be, event);
    close_all();
}
END_TEST

static void pass_gate(void *arg) {
    while (sem_wait(arg) != 0)
        continue;
}

START_TEST(pending_watches_are_told_of_the_death) {
    struct gb_event *event = NULL;
    struct heard pending;
    sem_t gate;

    open_with("event_mark@1=cudaErrorLaunchFailure");
    sem_init(&gate, 0, 0);
    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    gb_assert_ok(gb_stream_call(be, stream, pass_gate, &gate, &err), err);
    gb_assert_ok(gb_event_record(be, event, stream, &err), err);
    listen_to(event, &pending);
    gb_assert_fails(gb_event_mark(be, event, &err), err, GB_ERR_DEVICE_LOST);
    sem_post(&gate);
    await(&pending);
    ck_assert(pending.failed);
    ck_assert_str_eq(pending.error.native_name, "cudaErrorLaunchFailure");
    gb_assert_fails(gb_watch(be, event, hear, &pending, &err), err, GB_ERR_DEVICE_LOST);
    gb_event_destroy(be, event);
    close_all();
}
END_TEST

START_TEST(a_death_in_a_watch_kills_the_backend) {
    struct gb_event *event = NULL;
    struct heard heard;

    open_with("complete=cudaErrorIllegalAddress");
    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    gb_assert_ok(gb_event_record(be, event, stream, &err), err);
    listen_to(event, &heard);
    await(&heard);
    ck_assert_int_eq(heard.error.code, GB_ERR_DEVICE_LOST);
    ck_assert(gb_backend_dead(be, NULL));
    gb_event_destroy(be, event);
    close_all();
}
END_TEST

START_TEST(a_delay_holds_the_call_up) {
    struct gb_event *event = NULL;
    uint64_t before;

    open_with("event_destroy@1=delay/30,copy=delay/20");
    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    before = gb_clock_ns();
    gb_event_destroy(be, event);
    ck_assert_uint_ge(gb_clock_ns() - before, 30 * GB_NS_PER_MS);
    before = gb_clock_ns();
    gb_assert_ok(gb_mem_copy(be, NULL, NULL, 0, GB_COPY_TO_DEVICE, stream, &err), err);
    ck_assert_uint_ge(gb_clock_ns() - before, 20 * GB_NS_PER_MS);
    close_all();
}
END_TEST

/* The call returns at once; the delay holds back this work and all later work of the stream. */
START_TEST(a_stall_holds_the_stream_up) {
    uint64_t before;

    open_with("copy@1=stall/200");
    before = gb_clock_ns();
    gb_assert_ok(gb_mem_copy(be, NULL, NULL, 0, GB_COPY_ON_DEVICE, stream, &err), err);
    gb_assert_ok(gb_stream_sync(be, stream, &err), err);
    ck_assert_uint_ge(gb_clock_ns() - before, 200 * GB_NS_PER_MS);
    close_all();
}
END_TEST

START_TEST(decorators_nest) {
    struct gb_backend *nested = NULL;
    char note[GB_BACKEND_NOTE_SIZE];

    err = GB_ERROR_INIT;
    gb_assert_ok(
        gb_backend_open("fault:alloc=delay/0:fault:pool_default=cudaErrorNotSupported:host", &nested, note, &err), err);
    ck_assert_str_eq(gb_backend_name(nested), "fault");
    ck_assert_int_eq(gb_pool_default(nested, 0, &pool, &err), -1);
    ck_assert_str_eq(err.native_domain, "host");
    gb_backend_close(nested);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fault decorator");

    gb_test_add(suite, "rules", rules_are_parsed, 10);
    gb_test_add(suite, "wrong rules", wrong_rules_are_refused_with_what_is_permitted, 10);
    gb_test_add(suite, "every operation", every_operation_can_be_named, 10);
    gb_test_add(suite, "counting", calls_are_counted_by_operation, 10);
    gb_test_add(suite, "the named call", the_named_call_fails_alone, 20);
    gb_test_add(suite, "from the n-th on", from_the_nth_on_every_call_fails, 20);
    gb_test_add(suite, "death", a_deadly_error_kills_the_backend, 20);
    gb_test_add(suite, "watches are told", a_watch_is_told_of_the_error, 20);
    gb_test_add(suite, "pending watches", pending_watches_are_told_of_the_death, 20);
    gb_test_add(suite, "death in a watch", a_death_in_a_watch_kills_the_backend, 20);
    gb_test_add(suite, "delays", a_delay_holds_the_call_up, 20);
    gb_test_add(suite, "stalls", a_stall_holds_the_stream_up, 20);
    gb_test_add(suite, "nesting", decorators_nest, 20);
    return gb_test_run(suite);
}
