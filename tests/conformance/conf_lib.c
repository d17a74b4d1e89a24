#include "conf.h"

#include <stdlib.h>
#include <string.h>

struct conf conf;

void conf_setup(void) {
    conf.err = GB_ERROR_INIT;
    gb_assert_ok(gb_backend_open(conf.spec, &conf.be, conf.note, &conf.err), conf.err);
    gb_assert_ok(gb_backend_device_get(conf.be, 0, &conf.device, &conf.err), conf.err);
    gb_assert_ok(gb_pool_default(conf.be, 0, &conf.pool, &conf.err), conf.err);
    gb_assert_ok(gb_stream_create(conf.be, 0, &conf.s1, &conf.err), conf.err);
    gb_assert_ok(gb_stream_create(conf.be, 0, &conf.s2, &conf.err), conf.err);
    gb_assert_ok(gb_pin_alloc(conf.be, CONF_PINNED_BYTES, (void **)&conf.pinned, &conf.err), conf.err);
}

void conf_teardown(void) {
    gb_stream_destroy(conf.be, conf.s1);
    gb_stream_destroy(conf.be, conf.s2);
    gb_pin_free(conf.be, conf.pinned);
    gb_backend_close(conf.be);
}

void conf_add(Suite *suite, const char *name, const TTest *test) {
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, conf_setup, conf_teardown);
    tcase_add_test(tcase, test);
    suite_add_tcase(suite, tcase);
}

void conf_add_off_and_on(Suite *suite, const char *name, const TTest *test) {
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, conf_setup, conf_teardown);
    tcase_add_loop_test(tcase, test, 0, 2);
    suite_add_tcase(suite, tcase);
}

/* --- gates -------------------------------------------------------------------------------------------------------- */

static void stand_at_gate(void *arg) {
    struct conf_gate *gate = arg;

    sem_post(&gate->entered);
    while (sem_wait(&gate->open) != 0)
        continue;
}

void conf_gate_hold(struct conf_gate *gate, struct gb_stream *stream) {
    sem_init(&gate->entered, 0, 0);
    sem_init(&gate->open, 0, 0);
    gb_assert_ok(gb_stream_call(conf.be, stream, stand_at_gate, gate, &conf.err), conf.err);
    while (sem_wait(&gate->entered) != 0)
        continue;
}

void conf_gate_let_go(struct conf_gate *gate) {
    sem_post(&gate->open);
}

/* --- events ------------------------------------------------------------------------------------------------------- */

struct waiter {
    sem_t fired;
    bool failed;
};

static void wake(void *arg, const struct gb_error *error) {
    struct waiter *waiter = arg;

    waiter->failed = error != NULL;
    sem_post(&waiter->fired);
}

void conf_wait(struct gb_event *event) {
    struct waiter waiter = {.failed = false};

    sem_init(&waiter.fired, 0, 0);
    gb_assert_ok(gb_watch(conf.be, event, wake, &waiter, &conf.err), conf.err);
    while (sem_wait(&waiter.fired) != 0)
        continue;
    ck_assert_msg(!waiter.failed, "the watch reported an error");
}

struct gb_event *conf_event(void) {
    struct gb_event *event = NULL;

    gb_assert_ok(gb_event_create(conf.be, 0, &event, &conf.err), conf.err);
    return event;
}

struct gb_event *conf_event_on(struct gb_stream *stream) {
    struct gb_event *event = conf_event();

    gb_assert_ok(gb_event_record(conf.be, event, stream, &conf.err), conf.err);
    return event;
}

void conf_wait_stream(struct gb_stream *stream) {
    struct gb_event *event = conf_event_on(stream);

    conf_wait(event);
    gb_event_destroy(conf.be, event);
}

bool conf_done(struct gb_event *event) {
    bool done = false;

    gb_assert_ok(gb_event_query(conf.be, event, &done, &conf.err), conf.err);
    return done;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

void *conf_alloc(struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes) {
    void *ptr = NULL;

    gb_assert_ok(gb_mem_alloc(conf.be, pool, stream, bytes, &ptr, &conf.err), conf.err);
    ck_assert_ptr_nonnull(ptr);
    ck_assert_uint_eq((uintptr_t)ptr % 256, 0);
    return ptr;
}

void conf_free(void *ptr, struct gb_stream *stream) {
    gb_assert_ok(gb_mem_free(conf.be, ptr, stream, &conf.err), conf.err);
}

void conf_sync(struct gb_stream *stream) {
    gb_assert_ok(gb_stream_sync(conf.be, stream, &conf.err), conf.err);
}

struct gb_pool_stat conf_stat(struct gb_pool *pool) {
    struct gb_pool_stat stat = {0};

    gb_assert_ok(gb_pool_stat(conf.be, pool, &stat, &conf.err), conf.err);
    return stat;
}

struct gb_pool *conf_pool(uint64_t max_bytes, bool follow, bool opportunistic, bool internal) {
    struct gb_pool_config config = {
        .max_bytes = max_bytes,
        .release_threshold_bytes = GB_UNLIMITED,
        .follow_event_dependencies = follow,
        .allow_opportunistic = opportunistic,
        .allow_internal_dependencies = internal,
    };
    struct gb_pool *pool = NULL;

    gb_assert_ok(gb_pool_create(conf.be, 0, &config, &pool, &conf.err), conf.err);
    return pool;
}

void conf_write(void *device, unsigned seed, uint64_t bytes, struct gb_stream *stream) {
    uint64_t at;
    uint64_t i;

    for (at = 0; at < bytes; at += CONF_PINNED_BYTES) {
        uint64_t n = bytes - at < CONF_PINNED_BYTES ? bytes - at : CONF_PINNED_BYTES;

        for (i = 0; i < n; i++)
            conf.pinned[i] = conf_byte(seed, at + i);
        gb_assert_ok(gb_mem_copy(conf.be, (char *)device + at, conf.pinned, n, GB_COPY_TO_DEVICE, stream, &conf.err),
                     conf.err);
        conf_sync(stream);
    }
}

/* Fetches the next piece at offset into pinned memory; returns its size. */
static uint64_t fetch(const void *device, uint64_t at, uint64_t bytes, struct gb_stream *stream) {
    uint64_t n = bytes - at < CONF_PINNED_BYTES ? bytes - at : CONF_PINNED_BYTES;

    memset(conf.pinned, 0x5a, n);
    gb_assert_ok(
        gb_mem_copy(conf.be, conf.pinned, (const char *)device + at, n, GB_COPY_FROM_DEVICE, stream, &conf.err),
        conf.err);
    conf_sync(stream);
    return n;
}

void conf_expect(const void *device, unsigned seed, uint64_t bytes, struct gb_stream *stream) {
    uint64_t at;
    uint64_t i;
    uint64_t n;

    for (at = 0; at < bytes; at += n) {
        n = fetch(device, at, bytes, stream);
        for (i = 0; i < n; i++) {
            if (conf.pinned[i] != conf_byte(seed, at + i))
                ck_abort_msg("byte %llu is %u, not %u", (unsigned long long)(at + i), conf.pinned[i],
                             conf_byte(seed, at + i));
        }
    }
}

void conf_expect_byte(const void *device, unsigned char value, uint64_t bytes, struct gb_stream *stream) {
    uint64_t at;
    uint64_t i;
    uint64_t n;

    for (at = 0; at < bytes; at += n) {
        n = fetch(device, at, bytes, stream);
        for (i = 0; i < n; i++) {
            if (conf.pinned[i] != value)
                ck_abort_msg("byte %llu is %u, not %u", (unsigned long long)(at + i), conf.pinned[i], value);
        }
    }
}

bool conf_offered(int kind) {
    return conf.device.kind_missing[kind][0] == '\0';
}
