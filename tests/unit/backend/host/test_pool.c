/* Pools of the host backend: the budget of a device, the release of segments, and the reuse of freed memory. */
#include <semaphore.h>
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

static struct gb_pool_stat stat_of(struct gb_pool *pool) {
    struct gb_pool_stat stat = {0};

    gb_assert_ok(gb_pool_stat(be, pool, &stat, &err), err);
    return stat;
}

static void pass_gate(void *arg) {
    while (sem_wait(arg) != 0)
        continue;
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
    Suite *suite = suite_create("host pools");

    gb_test_add(suite, "between two grains", a_limit_between_two_grains, 30);
    gb_test_add(suite, "budget", the_device_is_a_budget_of_all_its_pools, 30);
    gb_test_add(suite, "segments too small", a_pool_gives_up_segments_that_are_too_small, 30);
    gb_test_add(suite, "queued frees", a_pool_outlives_its_queued_frees, 30);
    gb_test_add(suite, "opportunity off", without_opportunity_a_finished_free_is_not_shared, 30);
    gb_test_add(suite, "dependencies", dependencies_pass_through_streams, 30);
    gb_test_add(suite, "last freed, first given", a_freed_block_is_the_next_one_given, 30);
    return gb_test_run(suite);
}
