/* Many threads on one backend, with private and with shared streams. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "conf.h"

enum { THREADS = 8, ROUNDS = 60 };

struct worker {
    pthread_t thread;
    unsigned number;
    struct gb_stream *stream; /* NULL: a private pool for every ten rounds */
    struct gb_pool *pool;     /* for the test with a small shared pool */
    const char *failed;
    struct gb_error err;
};

/* Allocates, writes, copies, reads back and frees on a stream. Returns NULL or the failure. */
static const char *round_trip(struct worker *w, struct gb_stream *stream, unsigned char *pinned, unsigned seed) {
    const uint64_t bytes = 1 + seed * 7919 % 200000;
    unsigned char *back = pinned + 262144;
    struct gb_event *event = NULL;
    void *p = NULL;
    void *q = NULL;
    bool done = false;
    uint64_t i;

    for (i = 0; i < bytes; i++)
        pinned[i] = conf_byte(seed, i);
    memset(back, 0, bytes);
    if (gb_mem_alloc(conf.be, conf.pool, stream, bytes, &p, &w->err) < 0 ||
        gb_mem_alloc(conf.be, conf.pool, stream, bytes, &q, &w->err) < 0 ||
        gb_mem_copy(conf.be, p, pinned, bytes, GB_COPY_TO_DEVICE, stream, &w->err) < 0 ||
        gb_mem_copy(conf.be, q, p, bytes, GB_COPY_ON_DEVICE, stream, &w->err) < 0 ||
        gb_mem_fill(conf.be, p, 0, 1, bytes, stream, &w->err) < 0 ||
        gb_mem_copy(conf.be, back, q, bytes, GB_COPY_FROM_DEVICE, stream, &w->err) < 0 ||
        gb_mem_free(conf.be, p, stream, &w->err) < 0 || gb_mem_free(conf.be, q, stream, &w->err) < 0 ||
        gb_event_create(conf.be, 0, &event, &w->err) < 0 || gb_event_record(conf.be, event, stream, &w->err) < 0 ||
        gb_stream_sync(conf.be, stream, &w->err) < 0 || gb_event_query(conf.be, event, &done, &w->err) < 0)
        return "a call failed";
    gb_event_destroy(conf.be, event);
    if (!done)
        return "the event is not done after a sync";
    return memcmp(pinned, back, bytes) == 0 ? NULL : "the bytes differ";
}

static void *work(void *arg) {
    struct worker *w = arg;
    struct gb_stream *stream = w->stream;
    unsigned char *pinned = conf.pinned + w->number * MIB;
    struct gb_pool_stat stat;
    unsigned i;

    for (i = 0; i < ROUNDS && !w->failed; i++) {
        if (!w->stream && i % 10 == 0) {
            gb_stream_destroy(conf.be, stream);
            stream = NULL;
            if (gb_stream_create(conf.be, 0, &stream, &w->err) < 0) {
                w->failed = "no stream";
                break;
            }
        }
        w->failed = round_trip(w, stream, pinned, w->number * ROUNDS + i);
        if (gb_pool_stat(conf.be, conf.pool, &stat, &w->err) < 0)
            w->failed = "no statistics";
    }
    if (!w->stream)
        gb_stream_destroy(conf.be, stream);
    return NULL;
}

static void run_threads(bool shared) {
    struct worker workers[THREADS];
    unsigned i;

    for (i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.number = i, .err = GB_ERROR_INIT};
        if (shared)
            workers[i].stream = i % 2 == 0 ? conf.s1 : conf.s2;
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (i = 0; i < THREADS; i++)
        ck_assert_msg(!workers[i].failed, "thread %u: %s: %s", i, workers[i].failed, workers[i].err.detail);
    ck_assert_uint_eq(conf_stat(conf.pool).used_bytes, 0);
}

START_TEST(threads_with_streams_of_their_own) {
    run_threads(false);
}
END_TEST

START_TEST(threads_on_shared_streams) {
    run_threads(true);
}
END_TEST

/* One round in the small pool: fills a block, fetches its first and last bytes, and frees it, without waiting in
 * between. */
static const char *borrow(struct worker *w, struct gb_stream *stream, unsigned char *back, unsigned round) {
    const uint64_t bytes = 64 + (uint64_t)(w->number * 31 + round * 17) % 40 * 65536;
    struct gb_error full = GB_ERROR_INIT;
    void *p = NULL;

    while (gb_mem_alloc(conf.be, w->pool, stream, bytes, &p, &full) < 0) {
        if (full.code != GB_ERR_OUT_OF_MEMORY || gb_stream_sync(conf.be, stream, &w->err) < 0)
            return "an allocation failed";
        full = GB_ERROR_INIT;
    }
    if (gb_mem_fill(conf.be, p, w->number * 16 + round % 16, 1, bytes, stream, &w->err) < 0 ||
        gb_mem_copy(conf.be, back, p, 32, GB_COPY_FROM_DEVICE, stream, &w->err) < 0 ||
        gb_mem_copy(conf.be, back + 32, (char *)p + bytes - 32, 32, GB_COPY_FROM_DEVICE, stream, &w->err) < 0 ||
        gb_mem_free(conf.be, p, stream, &w->err) < 0)
        return "a call failed";
    return NULL;
}

static void *borrow_much(void *arg) {
    struct worker *w = arg;
    unsigned char *back = conf.pinned + w->number * MIB;
    unsigned i;
    unsigned j;

    for (i = 0; i < ROUNDS && !w->failed; i++)
        w->failed = borrow(w, w->stream, back + i * 64, i);
    if (gb_stream_sync(conf.be, w->stream, &w->err) < 0)
        w->failed = "no sync";
    for (i = 0; i < ROUNDS && !w->failed; i++) {
        for (j = 0; j < 64; j++) {
            if (back[i * 64 + j] != w->number * 16 + i % 16)
                w->failed = "the bytes are another's";
        }
    }
    return NULL;
}

/* The threads together need more memory than the pool has, so that blocks change streams by every policy. */
START_TEST(threads_share_a_small_pool) {
    struct gb_pool *pool = conf_pool(32 * MIB, true, true, true);
    struct worker workers[THREADS];
    unsigned i;

    for (i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.number = i, .pool = pool, .err = GB_ERROR_INIT};
        gb_assert_ok(gb_stream_create(conf.be, 0, &workers[i].stream, &conf.err), conf.err);
    }
    for (i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, borrow_much, &workers[i]), 0);
    for (i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        gb_stream_destroy(conf.be, workers[i].stream);
    }
    for (i = 0; i < THREADS; i++)
        ck_assert_msg(!workers[i].failed, "thread %u: %s: %s", i, workers[i].failed, workers[i].err.detail);
    ck_assert_uint_eq(conf_stat(pool).used_bytes, 0);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

/* Blocks pass from stream to stream through the pool, while writers check that no other thread writes into theirs. */
START_TEST(memory_changes_streams_without_mixing) {
    enum { STREAMS = 4, TIMES = 100 };
    const uint64_t bytes = 4 * MIB;
    struct gb_pool *pool = conf_pool(16 * MIB, true, true, true);
    struct gb_stream *streams[STREAMS];
    unsigned char *back = NULL;
    int i;

    gb_assert_ok(gb_pin_alloc(conf.be, STREAMS * 4096, (void **)&back, &conf.err), conf.err);
    for (i = 0; i < STREAMS; i++)
        gb_assert_ok(gb_stream_create(conf.be, 0, &streams[i], &conf.err), conf.err);
    for (i = 0; i < TIMES; i++) {
        int s = i % STREAMS;
        unsigned char *p = conf_alloc(pool, streams[s], bytes);

        conf_sync(streams[s]);
        if (i >= STREAMS)
            ck_assert_int_eq(back[s * 4096], (i - STREAMS) & 0xff);
        gb_assert_ok(gb_mem_fill(conf.be, p, (uint64_t)i, 1, bytes, streams[s], &conf.err), conf.err);
        gb_assert_ok(
            gb_mem_copy(conf.be, back + s * 4096, p + bytes - 4096, 4096, GB_COPY_FROM_DEVICE, streams[s], &conf.err),
            conf.err);
        conf_free(p, streams[s]);
    }
    for (i = 0; i < STREAMS; i++)
        gb_stream_destroy(conf.be, streams[i]);
    gb_pool_destroy(conf.be, pool);
    gb_pin_free(conf.be, back);
}
END_TEST

/* --- exports ------------------------------------------------------------------------------------------------------ */

/* The backend reads the bytes that the thread writes through the mapping. */
static const char *export_file(struct worker *w, unsigned char *pinned, unsigned seed) {
    const uint64_t bytes = 1 + seed * 7919 % 200000;
    struct gb_location place = {.kind = GB_KIND_PAGEABLE};
    struct gb_location back = {.kind = GB_KIND_PINNED, .ptr = pinned};
    struct gb_export got = GB_EXPORT_INIT;
    enum gb_copy_way way;
    unsigned char *at;

    if (gb_mem_kind_alloc(conf.be, 0, GB_KIND_PAGEABLE, bytes, &place.ptr, &w->err) < 0 ||
        gb_mem_export(conf.be, &place, bytes, NULL, GB_EXPORT_MEMFD, true, &got, &w->err) < 0)
        return "a call failed";
    at = mmap(NULL, got.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, got.fd, 0);
    gb_export_done(&got);
    if (at == MAP_FAILED)
        return "no mapping";
    memset(at, (int)(seed & 0xff), bytes);
    munmap(at, got.map_bytes);
    memset(pinned, ~(int)(seed & 0xff), bytes);
    if (gb_mem_move(conf.be, &back, &place, bytes, w->stream, &way, &w->err) < 0 ||
        gb_stream_sync(conf.be, w->stream, &w->err) < 0 || gb_mem_kind_free(conf.be, &place, bytes, &w->err) < 0)
        return "a call failed";
    return pinned[0] == (seed & 0xff) && memcmp(pinned, pinned + 1, bytes - 1) == 0 ? NULL : "the bytes differ";
}

/* All memory is of one pool, whose own handle is made once. */
static const char *export_from_pool(struct worker *w) {
    struct gb_location place = {.kind = GB_KIND_DEVICE};
    struct gb_export got = GB_EXPORT_INIT;

    if (gb_mem_alloc(conf.be, w->pool, w->stream, 65536, &place.ptr, &w->err) < 0)
        return "a call failed";
    if (gb_mem_export(conf.be, &place, 65536, w->pool, GB_EXPORT_POOL, true, &got, &w->err) < 0) {
        if (w->err.code != GB_ERR_UNSUPPORTED)
            return "the pool's export failed";
        w->err = GB_ERROR_INIT;
    }
    gb_export_done(&got);
    return gb_mem_free(conf.be, place.ptr, w->stream, &w->err) < 0 ? "a call failed" : NULL;
}

static void *export_work(void *arg) {
    struct worker *w = arg;
    unsigned i;

    for (i = 0; i < ROUNDS && !w->failed; i++) {
        w->failed = export_file(w, conf.pinned + w->number * MIB, w->number * ROUNDS + i);
        if (!w->failed)
            w->failed = export_from_pool(w);
    }
    return NULL;
}

START_TEST(threads_export_side_by_side) {
    const struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED, .exportable = true};
    struct worker workers[THREADS];
    struct gb_pool *pool = NULL;
    unsigned i;

    if (gb_pool_create(conf.be, 0, &config, &pool, &conf.err) < 0) {
        ck_assert_int_eq(conf.err.code, GB_ERR_UNSUPPORTED);
        conf.err = GB_ERROR_INIT;
    }
    for (i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.number = i, .pool = pool ? pool : conf.pool, .err = GB_ERROR_INIT};
        gb_assert_ok(gb_stream_create(conf.be, 0, &workers[i].stream, &conf.err), conf.err);
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, export_work, &workers[i]), 0);
    }
    for (i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        ck_assert_msg(!workers[i].failed, "thread %u: %s (%s)", i, workers[i].failed, workers[i].err.detail);
        gb_stream_destroy(conf.be, workers[i].stream);
    }
    gb_pool_destroy(conf.be, pool);
}
END_TEST

void conf_add_threads(Suite *suite) {
    conf_add(suite, "threads, exports", threads_export_side_by_side);
    conf_add(suite, "threads, own streams", threads_with_streams_of_their_own);
    conf_add(suite, "threads, shared streams", threads_on_shared_streams);
    conf_add(suite, "threads, a small pool", threads_share_a_small_pool);
    conf_add(suite, "memory changes streams", memory_changes_streams_without_mixing);
}
