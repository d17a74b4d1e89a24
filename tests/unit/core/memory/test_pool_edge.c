/* Pools under stress: short memory, many threads, reuse by another session, and refusals of the device. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_pools.h"
#include "gb_test.h"

#define MIB (1u << 20)

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};

/* --- out of memory ------------------------------------------------------------------------------------------------ */

static int create(struct core_fixture *f, const char *name, const char *pool, uint64_t bytes, unsigned wait_ms,
                  struct gb_error *err) {
    struct gb_upload_params p = core_upload_params("default", name, bytes);

    p.buffer.pool = core_name(pool);
    return core_do(err, buffer, gb_buffer_create, f->core, &p.buffer, wait_ms);
}

/* A pool gets memory that another pool keeps unused, unless the first pool's own limit refuses the allocation. */
START_TEST(idle_pools_give) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_core_stats stats;
    uint64_t free_cache;

    core_fixture_init(&f, specs[_i]);
    if (!core_on_host(&f)) {
        core_fixture_done(&f);
        return;
    }
    core_pool_plain(&f, "default", "p", 0);
    core_pool_plain(&f, "default", "small", 4 * MIB);
    gb_assert_ok(create(&f, "a", "", 40 * MIB, 0, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_session_sync(f.core, "default", &err), err); /* the memory is free after its stream's work */
    core_until_idle(&f);
    free_cache = core_pool_look(&f, "default", "default").stat.reserved_bytes;
    ck_assert_uint_ge(free_cache, 40 * MIB);
    gb_assert_fails(create(&f, "a", "small", 5 * MIB, 0, &err), err, GB_ERR_OUT_OF_MEMORY);
    create(&f, "a", "small", 5 * MIB, 0, &err);
    ck_assert_uint_eq(err.limit_bytes, 4 * MIB);
    ck_assert_uint_eq(err.requested_bytes, 5 * MIB);
    ck_assert_uint_eq(err.used_bytes, 0);
    ck_assert_str_eq(err.native_name, "cudaErrorMemoryAllocation");
    ck_assert(!gb_error_retryable(&err) && strstr(err.detail, "waiting does not help") != NULL);
    err = GB_ERROR_INIT;
    ck_assert_uint_eq(core_pool_look(&f, "default", "default").stat.reserved_bytes, free_cache);
    gb_assert_ok(create(&f, "a", "p", 40 * MIB, 0, &err), err);
    ck_assert_uint_lt(core_pool_look(&f, "default", "default").stat.reserved_bytes, free_cache);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.counters.trims, 2); /* of p and of default; a refusal by small's limit trims nothing */
    ck_assert_uint_eq(core_pool_look(&f, "default", "small").memory.failures, 2);
    /* An allocation that waits in one pool gets memory that another pool frees. */
    gb_assert_fails(create(&f, "b", "", 40 * MIB, 20, &err), err, GB_ERR_OUT_OF_MEMORY);
    {
        struct gb_upload_params p = core_upload_params("default", "b", 40 * MIB);
        struct core_call c;

        core_call_begin(&c);
        gb_buffer_create(f.core, &p.buffer, 60000, c.call.buffer);
        gb_assert_ok(create(&f, "c", "small", MIB, 0, &err), err); /* other pools are not blocked */
        gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
        gb_assert_ok(core_call_end(&c, &err), err);
    }
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "c", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* --- many at once ------------------------------------------------------------------------------------------------- */

#define THREADS 64
#define ROUNDS 30
#define POOL_BYTES (2 * MIB)
#define QUOTA_BYTES (3 * MIB)
#define BYTES_EACH (100 * 1000)

struct worker {
    struct core_fixture *f;
    unsigned number;
    pthread_barrier_t *all;
    unsigned done;
    unsigned refused;
};

/* Checks that the session's quota and the pool's limit hold at this moment. */
static void watch(struct core_fixture *f) {
    struct gb_name name = core_name("s");
    struct gb_session_view view;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_view pool;

    gb_assert_ok(gb_session_get(f->core, &name, &view, &err), err);
    if (view.used_bytes > QUOTA_BYTES)
        ck_abort_msg("%llu bytes pass the quota", (unsigned long long)view.used_bytes);
    gb_assert_ok(core_pool_get(f->core, "s", "p", &pool, &err), err);
    if (pool.stat.used_peak_bytes > POOL_BYTES)
        ck_abort_msg("%llu bytes pass the pool's limit", (unsigned long long)pool.stat.used_peak_bytes);
}

static void *work(void *arg) {
    struct worker *w = arg;
    char data[64];
    char name[16];
    char stream[16];
    int i;

    snprintf(name, sizeof(name), "b%u", w->number);
    snprintf(stream, sizeof(stream), "st%u", w->number % 4);
    for (i = 0; i < ROUNDS; i++) {
        struct gb_upload_params p = core_upload_params("s", name, BYTES_EACH);
        struct gb_error err = GB_ERROR_INIT;
        struct core_call c;

        p.buffer.pool = core_name("p");
        p.buffer.stream = core_name(stream);
        bool made;

        core_call_begin(&c);
        gb_buffer_create(w->f->core, &p.buffer, i % 3 ? 20 : 0, c.call.buffer);
        made = core_call_end(&c, &err) == 0;
        if (i == 0) /* all workers allocate at once and cannot all fit */
            pthread_barrier_wait(w->all);
        if (made) {
            gb_assert_ok(core_download_on(w->f->core, "s", name, stream, data, sizeof(data), &err), err);
            ck_assert_int_eq(data[0], 0);
            gb_assert_ok(core_buffer_delete(w->f->core, "s", name, &err), err);
            w->done++;
        } else {
            if (err.code != GB_ERR_OUT_OF_MEMORY && err.code != GB_ERR_QUOTA_EXCEEDED)
                ck_abort_msg("%s", err.detail);
            w->refused++;
        }
        watch(w->f);
    }
    return NULL;
}

START_TEST(sixty_four_at_the_edge) {
    struct core_fixture f;
    struct gb_session_params session = {.name = core_name("s"), .has_quota_bytes = true};
    struct gb_error err = GB_ERROR_INIT;
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    struct gb_pool_view pool;
    pthread_barrier_t all;
    unsigned refused = 0;
    unsigned done = 0;
    char name[16];
    unsigned i;

    core_fixture_init(&f, specs[_i]);
    session.quota.bytes = QUOTA_BYTES;
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    core_pool_plain(&f, "s", "p", POOL_BYTES);
    for (i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "st%u", i);
        gb_assert_ok(core_stream_make(f.core, "s", name, &err), err);
    }
    pthread_barrier_init(&all, NULL, THREADS);
    for (i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.f = &f, .number = i, .all = &all};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        done += workers[i].done;
        refused += workers[i].refused;
    }
    pthread_barrier_destroy(&all);
    ck_assert_uint_gt(done, THREADS);
    if (core_on_host(&f)) /* other backends fit another number of buffers into 2 MiB */
        ck_assert_uint_gt(refused, 0);
    core_until_idle(&f);
    pool = core_pool_look(&f, "s", "p");
    ck_assert_uint_eq(pool.stat.used_bytes, 0);
    ck_assert_uint_eq(pool.memory.allocations, done);
    ck_assert_uint_eq(pool.memory.frees, done);
    ck_assert_uint_eq(pool.memory.freed_bytes, (uint64_t)done * BYTES_EACH);
    ck_assert_uint_eq(pool.live_buffers, 0);
    gb_assert_ok(core_pool_remove(f.core, "s", "p", false, &err), err);
    core_fixture_done(&f);
}
END_TEST

/* --- isolation ---------------------------------------------------------------------------------------------------- */

#define PIECE (256u * 1024u)
#define PATTERN 0x5a

/* Fills the pool, or all of a small device, with a pattern and frees it, so that another session can take all of it. */
static void plant(struct core_fixture *f, const char *session, const char *pool, unsigned pieces) {
    struct gb_error err = GB_ERROR_INIT;
    char *data = malloc(PIECE);
    char name[16];
    unsigned i;

    memset(data, PATTERN, PIECE);
    for (i = 0; i < pieces; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        gb_assert_ok(core_upload_on(f->core, session, name, i % 2 ? "st" : "", pool, data, PIECE, &err), err);
    }
    for (i = 0; i < pieces; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        gb_assert_ok(core_buffer_delete(f->core, session, name, &err), err);
    }
    free(data);
}

/* Creates buffers until memory runs out and checks that every byte is zero. Returns the number of buffers. */
static unsigned harvest(struct core_fixture *f, const char *session, const char *pool) {
    struct gb_error err = GB_ERROR_INIT;
    char *back = malloc(PIECE);
    char *zero = calloc(1, PIECE);
    char name[16];
    unsigned n;

    for (n = 0;; n++) {
        struct gb_upload_params p = core_upload_params(session, "", PIECE);
        struct core_call c;

        snprintf(name, sizeof(name), "c%u", n);
        p.buffer.name = core_name(name);
        p.buffer.pool = core_name(pool);
        p.buffer.stream = core_name(n % 2 ? "st" : "");
        core_call_begin(&c);
        gb_buffer_create(f->core, &p.buffer, 0, c.call.buffer);
        if (core_call_end(&c, &err) < 0)
            break;
        memset(back, 1, PIECE);
        gb_assert_ok(core_download_on(f->core, session, name, "", back, PIECE, &err), err);
        if (memcmp(back, zero, PIECE) != 0)
            ck_abort_msg("%s shows old bytes", name);
    }
    ck_assert_int_eq(err.code, GB_ERR_OUT_OF_MEMORY);
    free(back);
    free(zero);
    return n;
}

START_TEST(no_old_bytes) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params session = {.name = core_name("s")};
    unsigned pieces = 8 * MIB / PIECE;
    char spec[64];

    snprintf(spec, sizeof(spec), "%s8M", _i == 0 ? "host:bytes=" : "host:discrete,bytes=");
    core_fixture_init(&f, spec);
    if (!core_on_host(&f)) {
        core_fixture_done(&f);
        return;
    }
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    session.name = core_name("t");
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    gb_assert_ok(core_stream_make(f.core, "s", "st", &err), err);
    gb_assert_ok(core_stream_make(f.core, "t", "st", &err), err);
    plant(&f, "s", "", pieces);
    ck_assert_uint_eq(harvest(&f, "t", ""), pieces);
    gb_assert_ok(core_session_delete(f.core, "t", &err), err);
    /* Each session has a pool of its own over the same memory. */
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    gb_assert_ok(core_stream_make(f.core, "t", "st", &err), err);
    core_pool_plain(&f, "s", "p", 0);
    core_pool_plain(&f, "t", "p", 0);
    plant(&f, "s", "p", pieces / 2);
    gb_assert_ok(core_pool_remove(f.core, "s", "p", false, &err), err);
    ck_assert_uint_gt(harvest(&f, "t", "p"), 0);
    gb_assert_ok(core_session_delete(f.core, "t", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* --- what the device may refuse ----------------------------------------------------------------------------------- */

static const char *const faults[] = {"pool_create",     "pool_configure", "pool_trim", "pool_reset_peak",
                                     "pool_access_set", "alloc@1+",       "free",      "stream_create",
                                     "event_create",    "event_record"};

/* Returns how many steps failed. */
static unsigned play(struct core_fixture *f) {
    struct gb_pool_params p = core_pool_params("default", "p", 0, 8 * MIB);
    struct gb_error err[8] = {{0}};
    unsigned failed = 0;
    char *bytes = malloc(MIB);
    int r[8];
    int i;

    r[0] = core_pool_make(f->core, &p, NULL, &err[0]);
    if (r[0] < 0) {
        ck_assert_str_ne(err[0].native_name, "");
        err[0] = GB_ERROR_INIT;
        gb_assert_ok(core_pool_make(f->core, &p, NULL, &err[0]), err[0]); /* the name is free */
        failed++;
    }
    p.given.release_threshold_bytes = true;
    p.rec.config.release_threshold_bytes = MIB;
    r[1] = core_pool_patch(f->core, &p, NULL, &err[1]);
    ck_assert_uint_eq(core_pool_look(f, "default", "p").rec.config.release_threshold_bytes,
                      r[1] == 0 ? MIB : GB_UNLIMITED);
    r[2] = core_pool_trim(f->core, "default", "p", 0, NULL, &err[2]);
    r[3] = core_pool_reset(f->core, "default", "p", &err[3]);
    r[4] = core_pool_peer(f->core, "default", "p", 1, GB_POOL_ACCESS_READ_WRITE, &err[4]);
    r[5] = create(f, "x", "p", MIB, 0, &err[5]);
    r[6] = r[5] == 0 ? core_download(f->core, "default", "x", 0, MIB, bytes, &err[6]) : 0;
    r[7] = r[5] == 0 ? core_buffer_delete(f->core, "default", "x", &err[7]) : 0;
    free(bytes);
    for (i = 1; i < 8; i++) {
        failed += r[i] < 0;
        if (r[i] < 0)
            ck_assert_msg(err[i].native_name[0] != '\0', "step %d: %s", i, err[i].detail);
    }
    core_until_idle(f);
    err[0] = GB_ERROR_INIT;
    gb_assert_ok(core_pool_remove(f->core, "default", "p", false, &err[0]), err[0]);
    return failed;
}

START_TEST(each_call_fails_once) {
    const char *op = faults[_i / 2];
    bool always = strchr(op, '@') != NULL;
    struct core_fixture f;
    unsigned failed;
    char spec[128];

    snprintf(spec, sizeof(spec), "fault:%s%s=%s:%s,devices=2", op, always ? "" : "@1",
             always ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue", specs[_i % 2]);
    core_fixture_init(&f, spec);
    failed = play(&f);
    if (strcmp(op, "free") == 0 || strcmp(op, "event_create") == 0) /* free is retried; a trim needs no event */
        ck_assert_uint_eq(failed, 0);
    else
        ck_assert_msg(failed == 1, "%s: %u steps failed", spec, failed);
    if (!always)
        ck_assert_msg(play(&f) == 0, "%s: does not recover", spec);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_pool_edge");
    TCase *tc = tcase_create("edge");

    tcase_add_loop_test(tc, idle_pools_give, 0, 2);
    tcase_add_loop_test(tc, sixty_four_at_the_edge, 0, 2);
    tcase_add_loop_test(tc, no_old_bytes, 0, 2);
    tcase_add_loop_test(tc, each_call_fails_once, 0, 20);
    tcase_set_timeout(tc, 300);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
