/* Properties of the host backend alone: its options, hidden memory, threads started on demand, checked copies. Its
 * pools: the budget of a device, the release of segments, and the reuse of freed memory. */
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "gb_test.h"

#define MIB (1ull << 20)

static struct gb_backend *be;
static struct gb_error err;
static char note[GB_BACKEND_NOTE_SIZE];

static void open_spec(const char *spec) {
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_backend_open(spec, &be, note, &err), err);
}

static struct gb_stream *new_stream(int device) {
    struct gb_stream *stream = NULL;

    gb_assert_ok(gb_stream_create(be, device, &stream, &err), err);
    return stream;
}

static struct gb_pool *default_pool(int device) {
    struct gb_pool *pool = NULL;

    gb_assert_ok(gb_pool_default(be, device, &pool, &err), err);
    return pool;
}

static char *new_memory(struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes) {
    void *p = NULL;

    gb_assert_ok(gb_mem_alloc(be, pool, stream, bytes, &p, &err), err);
    return p;
}

START_TEST(specifications_are_checked) {
    static const char *const bad[] = {"",
                                      "hosts",
                                      "host:",
                                      "gpu",
                                      "host:devices",
                                      "host:devices=",
                                      "host:devices=0",
                                      "host:devices=17",
                                      "host:devices=1x",
                                      "host:bytes=1",
                                      "host:bytes=-5",
                                      "host:bytes=99999999999T",
                                      "host:discreet",
                                      "host:peers",
                                      "host:peers=maybe",
                                      "host:managed=attached",
                                      "host:discrete,",
                                      "host:discrete,,devices=2",
                                      "host:,devices=2",
                                      "fault",
                                      "fault:",
                                      "fault:host",
                                      "fault::nothing",
                                      "fault:x=1:host"};
    size_t i;

    err = GB_ERROR_INIT;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (strcmp(bad[i], "host:") == 0)
            continue;
        ck_assert_msg(gb_backend_open(bad[i], &be, note, &err) == -1, "'%s' was accepted", bad[i]);
        ck_assert_msg(err.code == GB_ERR_INVALID_ARGUMENT, "'%s': %s", bad[i], err.detail);
        ck_assert_msg(strstr(err.detail, "permitted") || strstr(err.detail, "form") || strstr(err.detail, "comma"),
                      "'%s': %s", bad[i], err.detail);
        err = GB_ERROR_INIT;
    }
    gb_backend_close(NULL);
}
END_TEST

START_TEST(options_take_effect) {
    struct gb_device_rec a;
    struct gb_device_rec b;

    open_spec("host:discrete,devices=3,bytes=64M");
    ck_assert_int_eq(gb_backend_device_count(be), 3);
    gb_assert_ok(gb_backend_device_get(be, 0, &a, &err), err);
    gb_assert_ok(gb_backend_device_get(be, 2, &b, &err), err);
    ck_assert_uint_eq(b.total_bytes, 64 * MIB);
    ck_assert(!a.cpu_access && !a.integrated);
    ck_assert_str_ne(a.uuid, b.uuid);
    ck_assert_str_eq(a.kind_missing[GB_KIND_DEVICE], "");
    ck_assert_str_eq(a.kind_missing[GB_KIND_MANAGED], "");
    ck_assert(!a.kind_cpu[GB_KIND_DEVICE] && !a.kind_cpu[GB_KIND_SHARED] && a.kind_cpu[GB_KIND_MANAGED]);
    ck_assert_ptr_nonnull(strstr(note, "copies only"));
    gb_backend_close(be);
    open_spec("host");
    gb_assert_ok(gb_backend_device_get(be, 0, &a, &err), err);
    ck_assert(a.cpu_access && a.integrated && a.kind_cpu[GB_KIND_SHARED] && !a.managed_attach);
    ck_assert_uint_gt(a.total_bytes, 0);
    gb_backend_close(be);
}
END_TEST

START_TEST(auto_says_why) {
    open_spec("auto");
    if (strcmp(gb_backend_name(be), "host") == 0)
        ck_assert_ptr_nonnull(strstr(note, "not cuda"));
    gb_backend_close(be);
}
END_TEST

START_TEST(hidden_memory_cannot_be_touched) {
    struct gb_stream *stream;
    volatile char *p;

    signal(SIGSEGV, SIG_DFL); /* a sanitizer may have installed its own handler */
    open_spec("host:discrete,bytes=64M");
    stream = new_stream(0);
    p = new_memory(default_pool(0), stream, MIB);
    gb_assert_ok(gb_stream_sync(be, stream, &err), err);
    p[_i == 0 ? 0 : MIB - 1] = 1; /* faults here */
}
END_TEST

START_TEST(copies_outside_device_memory_are_refused) {
    char local[64] = {0};
    struct gb_stream *stream;
    char *p;

    open_spec(_i == 0 ? "host:bytes=64M" : "host:discrete,bytes=64M");
    stream = new_stream(0);
    p = new_memory(default_pool(0), stream, 64 * MIB);
    gb_assert_fails(gb_mem_copy(be, local, local, 8, GB_COPY_TO_DEVICE, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_copy(be, local, local, 8, GB_COPY_FROM_DEVICE, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_copy(be, p, local, 8, GB_COPY_ON_DEVICE, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_copy(be, p + 64 * MIB - 7, local, 8, GB_COPY_TO_DEVICE, stream, &err), err,
                    GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_fill(be, p + 64 * MIB - 7, 0, 4, 2, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_fill(be, p + 2, 0, 4, 2, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_fill(be, p, 0, 4, 1ull << 63, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_free(be, p + 512, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_free(be, local, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_ok(gb_mem_copy(be, p + 64 * MIB - 8, local, 8, GB_COPY_TO_DEVICE, stream, &err), err);
    gb_assert_ok(gb_mem_free(be, p, stream, &err), err);
    ck_assert_int_eq(gb_mem_free(be, p, stream, &err), -1);
    ck_assert_str_eq(err.native_domain, "host");
    ck_assert_str_eq(err.native_name, "cudaErrorInvalidValue");
    ck_assert_int_eq(err.native_code, 1);
    gb_stream_destroy(be, stream);
    gb_backend_close(be);
}
END_TEST

START_TEST(devices_do_not_mix) {
    struct gb_stream *s0;
    struct gb_stream *s1;
    struct gb_event *event = NULL;
    char back[16] = {0};
    void *none = NULL;
    char *p0;
    char *p1;

    open_spec("host:discrete,devices=2,bytes=64M");
    s0 = new_stream(0);
    s1 = new_stream(1);
    gb_assert_fails(gb_mem_alloc(be, default_pool(0), s1, 512, &none, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    gb_assert_fails(gb_event_record(be, event, s1, &err), err, GB_ERR_DEVICE_ERROR);
    p0 = new_memory(default_pool(0), s0, 4096);
    p1 = new_memory(default_pool(1), s1, 4096);
    gb_assert_ok(gb_mem_fill(be, p0, 0x77, 1, 4096, s0, &err), err);
    gb_assert_ok(gb_event_record(be, event, s0, &err), err);
    gb_assert_ok(gb_stream_wait(be, s1, event, &err), err);
    gb_assert_ok(gb_mem_copy(be, p1, p0, 4096, GB_COPY_ON_DEVICE, s1, &err), err);
    gb_assert_ok(gb_mem_copy(be, back, p1 + 4080, 16, GB_COPY_FROM_DEVICE, s1, &err), err);
    gb_assert_ok(gb_stream_sync(be, s1, &err), err);
    ck_assert_int_eq(back[15], 0x77);
    gb_assert_fails(gb_stream_create(be, 2, &s0, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_stream_create(be, -1, &s0, &err), err, GB_ERR_DEVICE_ERROR);
    gb_event_destroy(be, event);
    gb_stream_destroy(be, s0);
    gb_stream_destroy(be, s1);
    gb_backend_close(be);
}
END_TEST

static void pass_gate(void *arg) {
    while (sem_wait(arg) != 0)
        continue;
}

struct meeting {
    sem_t arrived;
    sem_t leave;
};

static void meet(void *arg) {
    struct meeting *meeting = arg;

    sem_post(&meeting->arrived);
    while (sem_wait(&meeting->leave) != 0)
        continue;
}

/* Twenty streams block in host functions at one time; another stream still makes progress. */
START_TEST(blocked_calls_do_not_use_up_the_threads) {
    enum { BLOCKED = 20 };
    struct gb_stream *streams[BLOCKED + 1];
    struct meeting meeting;
    int round;
    char *p;
    int i;

    open_spec("host:bytes=256M");
    sem_init(&meeting.arrived, 0, 0);
    sem_init(&meeting.leave, 0, 0);
    for (i = 0; i <= BLOCKED; i++)
        streams[i] = new_stream(0);
    for (round = 0; round < 3; round++) {
        for (i = 0; i < BLOCKED; i++)
            gb_assert_ok(gb_stream_call(be, streams[i], meet, &meeting, &err), err);
        for (i = 0; i < BLOCKED; i++)
            pass_gate(&meeting.arrived);
        p = new_memory(default_pool(0), streams[BLOCKED], 8 * MIB);
        gb_assert_ok(gb_mem_fill(be, p, 1, 1, 8 * MIB, streams[BLOCKED], &err), err);
        gb_assert_ok(gb_mem_free(be, p, streams[BLOCKED], &err), err);
        gb_assert_ok(gb_stream_sync(be, streams[BLOCKED], &err), err);
        for (i = 0; i < BLOCKED; i++)
            sem_post(&meeting.leave);
        for (i = 0; i < BLOCKED; i++)
            gb_assert_ok(gb_stream_sync(be, streams[i], &err), err);
    }
    for (i = 0; i <= BLOCKED; i++)
        gb_stream_destroy(be, streams[i]);
    gb_backend_close(be);
}
END_TEST

/* A thousand streams that wait for one event occupy no thread. */
START_TEST(parked_streams_need_no_thread) {
    enum { PARKED = 1000 };
    static struct gb_stream *streams[PARKED];
    struct gb_event *event = NULL;
    struct meeting meeting;
    struct gb_stream *first;
    char *p;
    int i;

    open_spec("host:bytes=256M");
    sem_init(&meeting.arrived, 0, 0);
    sem_init(&meeting.leave, 0, 0);
    first = new_stream(0);
    p = new_memory(default_pool(0), first, 64 * 1024);
    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    gb_assert_ok(gb_stream_call(be, first, meet, &meeting, &err), err);
    gb_assert_ok(gb_mem_fill(be, p, 3, 1, 64 * 1024, first, &err), err);
    gb_assert_ok(gb_event_record(be, event, first, &err), err);
    for (i = 0; i < PARKED; i++) {
        streams[i] = new_stream(0);
        gb_assert_ok(gb_stream_wait(be, streams[i], event, &err), err);
        gb_assert_ok(gb_mem_fill(be, p + i, 4, 1, 1, streams[i], &err), err);
    }
    sem_post(&meeting.leave);
    for (i = 0; i < PARKED; i++)
        gb_stream_destroy(be, streams[i]);
    for (i = 0; i < PARKED; i++)
        ck_assert_int_eq(p[i], 4);
    ck_assert_int_eq(p[PARKED], 3);
    gb_event_destroy(be, event);
    gb_stream_destroy(be, first);
    gb_backend_close(be);
}
END_TEST

/* --- pools -------------------------------------------------------------------------------------------------------- */

static struct gb_pool_stat stat_of(struct gb_pool *pool) {
    struct gb_pool_stat stat = {0};

    gb_assert_ok(gb_pool_stat(be, pool, &stat, &err), err);
    return stat;
}

/* A limit that is no whole number of grains is rounded down to whole grains, and a retry does not change that. */
START_TEST(a_limit_between_two_grains) {
    struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED, .max_bytes = 100};
    struct gb_pool *small = NULL;
    struct gb_pool *pool = NULL;
    struct gb_stream *stream;
    void *none = NULL;
    char *p;

    open_spec("host:bytes=100M");
    stream = new_stream(0);
    gb_assert_ok(gb_pool_create(be, 0, &config, &small, &err), err);
    ck_assert_int_eq(gb_mem_alloc(be, small, stream, 1, &none, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_OUT_OF_MEMORY);
    ck_assert_uint_eq(err.limit_bytes, 0);
    ck_assert(!gb_error_retryable(&err));
    err = GB_ERROR_INIT;
    config.max_bytes = 1000;
    gb_assert_ok(gb_pool_create(be, 0, &config, &pool, &err), err);
    ck_assert_int_eq(gb_mem_alloc(be, pool, stream, 513, &none, &err), -1);
    ck_assert_uint_eq(err.limit_bytes, 512);
    ck_assert(!gb_error_retryable(&err));
    err = GB_ERROR_INIT;
    p = new_memory(pool, stream, 512);
    /* A request that fits an empty pool is retryable. */
    ck_assert_int_eq(gb_mem_alloc(be, pool, stream, 512, &none, &err), -1);
    ck_assert(gb_error_retryable(&err));
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_mem_free(be, p, stream, &err), err);
    gb_pool_destroy(be, small);
    gb_pool_destroy(be, pool);
    gb_stream_destroy(be, stream);
    gb_backend_close(be);
}
END_TEST

START_TEST(the_device_is_a_budget_of_all_its_pools) {
    const struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED};
    struct gb_pool *pool = NULL;
    struct gb_device_rec rec;
    struct gb_stream *stream;
    void *none = NULL;
    char *p;

    open_spec("host:bytes=100M");
    stream = new_stream(0);
    gb_assert_ok(gb_pool_create(be, 0, &config, &pool, &err), err);
    p = new_memory(default_pool(0), stream, 80 * MIB);
    gb_assert_ok(gb_backend_device_get(be, 0, &rec, &err), err);
    ck_assert_uint_eq(rec.free_bytes, 20 * MIB);
    ck_assert_int_eq(gb_mem_alloc(be, pool, stream, 30 * MIB, &none, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_OUT_OF_MEMORY);
    ck_assert_str_eq(err.native_domain, "host");
    ck_assert_uint_eq(err.limit_bytes, 100 * MIB);
    ck_assert_uint_eq(err.used_bytes, 80 * MIB);
    ck_assert_uint_eq(err.requested_bytes, 30 * MIB);
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_mem_free(be, p, stream, &err), err);
    /* The memory is free but still reserved by the default pool. */
    gb_assert_fails(gb_mem_alloc(be, pool, stream, 30 * MIB, &none, &err), err, GB_ERR_OUT_OF_MEMORY);
    gb_assert_ok(gb_pool_trim(be, default_pool(0), 0, &err), err);
    p = new_memory(pool, stream, 100 * MIB);
    gb_assert_ok(gb_backend_device_get(be, 0, &rec, &err), err);
    ck_assert_uint_eq(rec.free_bytes, 0);
    gb_assert_ok(gb_mem_free(be, p, stream, &err), err);
    /* One segment holds several blocks. */
    p = new_memory(pool, stream, 10 * MIB);
    (void)new_memory(pool, stream, 90 * MIB);
    gb_stream_destroy(be, stream);
    gb_pool_destroy(be, pool);
    gb_backend_close(be);
}
END_TEST

START_TEST(a_pool_gives_up_segments_that_are_too_small) {
    const struct gb_pool_config config = {.max_bytes = 128 * MIB, .release_threshold_bytes = GB_UNLIMITED};
    struct gb_pool *pool = NULL;
    struct gb_stream *stream;
    char *p[4];
    int i;

    open_spec("host:bytes=1G");
    stream = new_stream(0);
    gb_assert_ok(gb_pool_create(be, 0, &config, &pool, &err), err);
    for (i = 0; i < 4; i++)
        p[i] = new_memory(pool, stream, 32 * MIB);
    for (i = 0; i < 4; i++)
        gb_assert_ok(gb_mem_free(be, p[i], stream, &err), err);
    p[0] = new_memory(pool, stream, 128 * MIB);
    ck_assert_uint_eq(stat_of(pool).reserved_bytes, 128 * MIB);
    memset(p[0], 1, 128 * MIB);
    gb_assert_ok(gb_mem_free(be, p[0], stream, &err), err);
    gb_stream_destroy(be, stream);
    gb_pool_destroy(be, pool);
    gb_backend_close(be);
}
END_TEST

/* A pool may be destroyed while frees are queued behind other work; its memory is released when they are done. */
START_TEST(a_pool_outlives_its_queued_frees) {
    const struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED};
    struct gb_pool *pool = NULL;
    struct gb_device_rec rec;
    struct gb_stream *stream;
    sem_t gate;
    char *p;

    open_spec("host:bytes=64M");
    sem_init(&gate, 0, 0);
    stream = new_stream(0);
    gb_assert_ok(gb_pool_create(be, 0, &config, &pool, &err), err);
    p = new_memory(pool, stream, 64 * MIB);
    gb_assert_ok(gb_stream_call(be, stream, pass_gate, &gate, &err), err);
    gb_assert_ok(gb_mem_fill(be, p, 1, 1, 64 * MIB, stream, &err), err);
    gb_assert_ok(gb_mem_free(be, p, stream, &err), err);
    gb_pool_destroy(be, pool);
    gb_assert_ok(gb_backend_device_get(be, 0, &rec, &err), err);
    ck_assert_uint_eq(rec.free_bytes, 0);
    sem_post(&gate);
    gb_assert_ok(gb_stream_sync(be, stream, &err), err);
    gb_assert_ok(gb_backend_device_get(be, 0, &rec, &err), err);
    ck_assert_uint_eq(rec.free_bytes, 64 * MIB);
    gb_stream_destroy(be, stream);
    gb_backend_close(be);
}
END_TEST

/* With opportunistic reuse off, memory stays with the stream that freed it until another stream has waited for that
 * free. */
START_TEST(without_opportunity_a_finished_free_is_not_shared) {
    const struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED};
    struct gb_event *event = NULL;
    struct gb_pool *pool = NULL;
    struct gb_stream *s1;
    struct gb_stream *s2;
    bool done = false;
    char *p;
    char *q;

    open_spec("host:bytes=256M");
    s1 = new_stream(0);
    s2 = new_stream(0);
    gb_assert_ok(gb_pool_create(be, 0, &config, &pool, &err), err);
    p = new_memory(pool, s1, 32 * MIB);
    gb_assert_ok(gb_mem_free(be, p, s1, &err), err);
    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    gb_assert_ok(gb_event_record(be, event, s1, &err), err);
    while (!done)
        gb_assert_ok(gb_event_query(be, event, &done, &err), err);
    q = new_memory(pool, s2, 32 * MIB);
    ck_assert_ptr_ne(p, q);
    gb_event_destroy(be, event);
    gb_stream_destroy(be, s1);
    /* Destroying the stream ends its claim on the memory. */
    ck_assert_ptr_eq(new_memory(pool, s2, 32 * MIB), p);
    gb_stream_destroy(be, s2);
    gb_pool_destroy(be, pool);
    gb_backend_close(be);
}
END_TEST

/* s1 frees, s2 waits for s1, s3 waits for s2: s3 may have the memory. */
START_TEST(dependencies_pass_through_streams) {
    const struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED, .follow_event_dependencies = true};
    struct gb_stream *streams[3];
    struct gb_event *events[2];
    struct gb_pool *pool = NULL;
    sem_t gate;
    char *p;
    int i;

    open_spec("host:bytes=256M");
    sem_init(&gate, 0, 0);
    for (i = 0; i < 3; i++)
        streams[i] = new_stream(0);
    gb_assert_ok(gb_pool_create(be, 0, &config, &pool, &err), err);
    p = new_memory(pool, streams[0], 32 * MIB);
    gb_assert_ok(gb_stream_call(be, streams[0], pass_gate, &gate, &err), err);
    gb_assert_ok(gb_mem_free(be, p, streams[0], &err), err);
    for (i = 0; i < 2; i++) {
        gb_assert_ok(gb_event_create(be, 0, &events[i], &err), err);
        gb_assert_ok(gb_event_record(be, events[i], streams[i], &err), err);
        gb_assert_ok(gb_stream_wait(be, streams[i + 1], events[i], &err), err);
    }
    ck_assert_ptr_eq(new_memory(pool, streams[2], 32 * MIB), p);
    sem_post(&gate);
    for (i = 0; i < 2; i++)
        gb_event_destroy(be, events[i]);
    for (i = 0; i < 3; i++)
        gb_stream_destroy(be, streams[i]);
    gb_pool_destroy(be, pool);
    gb_backend_close(be);
}
END_TEST

START_TEST(a_freed_block_is_the_next_one_given) {
    struct gb_stream *stream;
    struct gb_pool *pool;
    char *first;
    char *p;
    int i;

    open_spec("host:bytes=1G");
    stream = new_stream(0);
    pool = default_pool(0);
    first = new_memory(pool, stream, 5 * MIB);
    (void)new_memory(pool, stream, 512); /* keeps the free block from merging with the next */
    p = first;
    for (i = 0; i < 10; i++) {
        gb_assert_ok(gb_mem_free(be, p, stream, &err), err);
        p = new_memory(pool, stream, 5 * MIB - 100);
        ck_assert_ptr_eq(p, first);
    }
    ck_assert_uint_eq(stat_of(pool).reserved_bytes, 32 * MIB);
    gb_stream_destroy(be, stream);
    gb_backend_close(be);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host backend");
    TCase *deadly = tcase_create("hidden memory");
    TCase *both = tcase_create("bounds");

    gb_test_add(suite, "specifications", specifications_are_checked, 10);
    gb_test_add(suite, "options", options_take_effect, 10);
    gb_test_add(suite, "auto", auto_says_why, 60);
    tcase_add_loop_test_raise_signal(deadly, hidden_memory_cannot_be_touched, SIGSEGV, 0, 2);
    suite_add_tcase(suite, deadly);
    tcase_add_loop_test(both, copies_outside_device_memory_are_refused, 0, 2);
    suite_add_tcase(suite, both);
    gb_test_add(suite, "devices do not mix", devices_do_not_mix, 10);
    gb_test_add(suite, "blocked calls", blocked_calls_do_not_use_up_the_threads, 60);
    gb_test_add(suite, "parked streams", parked_streams_need_no_thread, 60);
    gb_test_add(suite, "between two grains", a_limit_between_two_grains, 30);
    gb_test_add(suite, "budget", the_device_is_a_budget_of_all_its_pools, 30);
    gb_test_add(suite, "segments too small", a_pool_gives_up_segments_that_are_too_small, 30);
    gb_test_add(suite, "queued frees", a_pool_outlives_its_queued_frees, 30);
    gb_test_add(suite, "opportunity off", without_opportunity_a_finished_free_is_not_shared, 30);
    gb_test_add(suite, "dependencies", dependencies_pass_through_streams, 30);
    gb_test_add(suite, "last freed, first given", a_freed_block_is_the_next_one_given, 30);
    return gb_test_run(suite);
}
