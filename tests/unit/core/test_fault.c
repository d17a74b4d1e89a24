/* The core reports every error, leaks nothing and continues if memory runs out, or the device refuses or dies. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/transfer/upload.h"
#include "core_fixture.h"
#include "gb_test.h"

#define BYTES (5 * CORE_SLOT_BYTES + 100)

/* Operations whose failure a caller gets, and those that the core can do without. */
static const char *const covers_from[] = {"alloc",        "copy",        "fill",  "stream_create", "event_create",
                                          "event_record", "event_query", "watch", "complete",      "stream_wait"};
static const char *const silent[] = {"free", "pool_stat", "pool_trim", "event_elapsed", "stream_sync"};

struct live_counters {
    unsigned failed;
    enum gb_code code;
};

/* A step may fail only with an error of the device. */
static bool step(struct live_counters *t, int r, struct gb_error *err) {
    if (r == 0)
        return true;
    ck_assert_msg(err->code == GB_ERR_DEVICE_ERROR || err->code == GB_ERR_OUT_OF_MEMORY, "%s: %s",
                  gb_code_slug(err->code), err->detail);
    ck_assert_str_ne(err->native_name, "");
    ck_assert_str_ne(err->call, "");
    t->failed++;
    *err = GB_ERROR_INIT;
    return false;
}

/* Runs each step once and checks that exactly the acknowledged changes remain. */
static struct live_counters play(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    struct live_counters t = {0};
    char *data = malloc(BYTES);
    char *want = malloc(BYTES);
    char *back = malloc(BYTES);
    bool there;

    if (step(&t, core_buffer_create(f->core, "default", "zero", 5000, 0, &err), &err) &&
        step(&t, core_download(f->core, "default", "zero", 0, 5000, back, &err), &err)) {
        memset(want, 0, 5000);
        ck_assert_int_eq(memcmp(want, back, 5000), 0);
    }
    core_bytes(1, want, BYTES);
    there = step(&t, core_upload(f->core, &p, want, NULL, &err), &err);
    if (there) {
        core_bytes(2, data, BYTES);
        if (step(&t, core_upload(f->core, &p, data, NULL, &err), &err))
            memcpy(want, data, BYTES);
        p.partial = true;
        p.offset = 100;
        p.bytes = 70000;
        core_bytes(3, data, BYTES);
        if (step(&t, core_upload(f->core, &p, data, NULL, &err), &err))
            memcpy(want + 100, data, 70000);
        if (step(&t, core_download(f->core, "default", "x", 0, BYTES, back, &err), &err))
            ck_assert_int_eq(memcmp(want, back, BYTES), 0);
    }
    free(data);
    free(want);
    free(back);
    return t;
}

static void tidy(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    static const char *const names[] = {"zero", "x"};
    int i;

    for (i = 0; i < 2; i++) {
        if (core_buffer_delete(f->core, "default", names[i], &err) < 0)
            ck_assert_int_eq(err.code, GB_ERR_BUFFER_NOT_FOUND);
        err = GB_ERROR_INIT;
    }
    core_until_idle(f);
}

/* Adds how many steps failed. Returns false if there are fewer calls than n. */
static bool play_with(const char *op, unsigned n, const char *backend, unsigned *sum) {
    struct core_fixture f;
    struct live_counters t;
    char spec[128];
    bool met;

    snprintf(spec, sizeof(spec), "fault:%s@%u=%s:%s", op, n,
             strcmp(op, "alloc") == 0 ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue", backend);
    core_fixture_init(&f, spec);
    t = play(&f);
    tidy(&f);
    ck_assert_msg(t.failed <= 1, "%s: %u steps failed", spec, t.failed);
    /* After the fault, or without one, every step succeeds. */
    if (t.failed > 0) {
        t.failed += play(&f).failed > 0 ? 100 : 0;
        ck_assert_msg(t.failed == 1, "%s: does not recover", spec);
        tidy(&f);
    }
    met = core_fault_met(&f);
    core_fixture_done(&f);
    *sum += t.failed;
    return met;
}

static const char *const backends[] = {"host:bytes=16M", "host:discrete,bytes=16M"};

START_TEST(each_call_fails_once) {
    const char *op = covers_from[_i % 10];
    const char *backend = backends[_i / 10];
    unsigned failed = 0;
    unsigned n;

    for (n = 1; n <= 24 && play_with(op, n, backend, &failed); n = CORE_FAULT_NEXT(n))
        ;
    /* stream_wait is called only if a write is still running when the next begins. alloc is retried. */
    if (strcmp(op, "stream_wait") != 0 && strcmp(op, "alloc") != 0 && !(_i < 10 && strcmp(op, "complete") == 0) &&
        !(_i < 10 && strcmp(op, "watch") == 0))
        ck_assert_msg(failed > 0, "%s never failed", op);
}
END_TEST

START_TEST(some_calls_are_not_missed) {
    const char *op = silent[_i % 5];
    const char *backend = backends[_i / 5];
    unsigned failed = 0;
    unsigned n;

    for (n = 1; n <= 6 && play_with(op, n, backend, &failed); n++)
        ck_assert_uint_eq(failed, 0);
    ck_assert_uint_eq(failed, 0);
}
END_TEST

START_TEST(memory_runs_out) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_core_stats stats;
    struct core_call c;
    struct gb_upload_params p = core_upload_params("default", "c", 30 << 20);
    struct gb_session_params session = {.name = core_name("s")};

    core_fixture_init(&f, _i == 0 ? "host:bytes=64M" : "host:discrete,bytes=64M");
    if (!core_on_host(&f)) {
        core_fixture_done(&f);
        return;
    }
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    gb_assert_ok(core_buffer_create(f.core, "default", "a", 40 << 20, 0, &err), err);
    gb_assert_fails(core_buffer_create(f.core, "s", "b", 30 << 20, 0, &err), err, GB_ERR_OUT_OF_MEMORY);
    core_buffer_create(f.core, "s", "b", 30 << 20, 0, &err);
    ck_assert_str_eq(err.native_name, "cudaErrorMemoryAllocation");
    ck_assert_str_eq(err.call, "cudaMallocFromPoolAsync");
    ck_assert(err.has_numbers);
    ck_assert_uint_eq(err.requested_bytes, 30 << 20);
    ck_assert_uint_ge(err.used_bytes, 40 << 20);
    ck_assert_uint_eq(err.limit_bytes, 64 << 20);
    err = GB_ERROR_INIT;
    gb_assert_fails(core_buffer_create(f.core, "s", "b", 30 << 20, 30, &err), err, GB_ERR_OUT_OF_MEMORY);
    /* A waiting allocation gets freed memory, also from another session. */
    core_call_begin(&c);
    gb_buffer_create(f.core, &p.buffer, 60000, c.call.buffer);
    gb_assert_ok(core_buffer_create(f.core, "default", "small", 1, 0, &err), err); /* other requests are not blocked */
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_call_end(&c, &err), err);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.counters.allocation_failures, 3);
    ck_assert_uint_ge(stats.counters.allocation_retries, 4);
    ck_assert_uint_ge(stats.counters.trims, 4);
    gb_assert_ok(core_buffer_delete(f.core, "default", "c", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "small", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* A permanent refusal carries CUDA's error. An in-place upload that breaks leaves the buffer partial. */
START_TEST(no_memory_for_good) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    struct gb_buffer_rec rec;
    char spec[128];
    char *data = malloc(BYTES);

    snprintf(spec, sizeof(spec), "fault:alloc@1+=cudaErrorMemoryAllocation:%s", backends[_i]);
    core_fixture_init(&f, spec);
    core_bytes(1, data, BYTES);
    core_upload(f.core, &p, data, NULL, &err);
    ck_assert_int_eq(err.code, GB_ERR_OUT_OF_MEMORY);
    ck_assert_str_eq(err.native_name, "cudaErrorMemoryAllocation");
    ck_assert(err.has_numbers);
    err = GB_ERROR_INIT;
    gb_assert_fails(core_buffer_create(f.core, "default", "x", 10, 30, &err), err, GB_ERR_OUT_OF_MEMORY);
    gb_assert_fails(core_buffer_get(f.core, "default", "x", &rec, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    core_until_idle(&f);
    core_fixture_done(&f);
    free(data);
}
END_TEST

static bool not_ready(void *arg) {
    struct core_fixture *f = arg;
    struct gb_buffer_rec rec;
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_buffer_get(f->core, "default", "x", &rec, &err), err);
    return rec.state == GB_BUFFER_PARTIAL;
}

START_TEST(in_place_breaks_on_the_device) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    char *data = malloc(BYTES);

    core_fixture_init(&f, "fault:copy@9=cudaErrorInvalidValue:host:discrete,bytes=16M");
    core_bytes(1, data, BYTES);
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err); /* copies 1 to 6 */
    p.in_place = true;
    gb_assert_fails(core_upload(f.core, &p, data, NULL, &err), err, GB_ERR_DEVICE_ERROR);
    core_until(not_ready, &f, "state partial");
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
    tidy(&f);
    core_fixture_done(&f);
    free(data);
}
END_TEST

/* A slot is not lent again while a queued copy that cannot be watched may still read it. */
START_TEST(a_slot_is_kept_until_its_copy_is_done) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    struct gb_upload *upload;
    struct gb_core_stats stats;
    struct core_gate gate;
    struct core_wake w;
    char *data = malloc(BYTES);
    int i;

    core_fixture_init(&f, "fault:watch@1=cudaErrorInvalidValue:host:discrete,bytes=16M");
    core_wake_init(&w);
    core_bytes(1, data, BYTES);
    gb_assert_ok(core_buffer_create(f.core, "default", "zero", 10, 0, &err), err);
    core_gate_close(&gate, &f, "default");
    p.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    gb_assert_fails(core_upload_send(upload, &w, data, BYTES, &err), err, GB_ERR_DEVICE_ERROR);
    gb_upload_free(upload);
    /* The same holds for the slots of earlier copies without a watch. */
    for (i = 0; i < 2000; i++) {
        sched_yield();
        gb_core_stats(f.core, &stats);
        ck_assert_uint_eq(stats.slots_free, stats.slots_total - GB_UPLOAD_COPIES);
    }
    core_gate_open(&gate);
    tidy(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
    free(data);
}
END_TEST

/* --- death -------------------------------------------------------------------------------------------------------- */

static bool all_lost(void *arg) {
    struct core_fixture *f = arg;
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    return stats.buffers == stats.lost_buffers;
}

START_TEST(a_device_dies) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    struct gb_name s = core_name("default");
    struct gb_buffer_rec rec;
    struct gb_session_view view;
    struct gb_download *download;
    struct core_wake w;
    char spec[128];
    char *data = malloc(BYTES);
    char *back = malloc(BYTES);

    snprintf(spec, sizeof(spec), "fault:alloc@3=cudaErrorIllegalAddress:%s", backends[_i]);
    core_fixture_init(&f, spec);
    core_wake_init(&w);
    core_bytes(1, data, BYTES);
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
    gb_assert_ok(core_buffer_create(f.core, "default", "zero", 5000, 0, &err), err);
    gb_assert_ok(gb_core_health(f.core, &err), err);
    gb_assert_ok(gb_download_open(f.core, &s, &p.buffer.name, &s, core_waker(&w), &download, &err), err);
    gb_assert_ok(gb_download_start(download, 0, BYTES, &err), err);
    gb_assert_ok(core_download_read(download, &w, back, 100, &err), err);
    gb_assert_fails(core_buffer_create(f.core, "default", "dies", 5000, 0, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(gb_core_health(f.core, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(core_download_read(download, &w, back, BYTES - 100, &err), err, GB_ERR_DEVICE_LOST);
    gb_download_free(download, false);
    core_until(all_lost, &f, "all buffers lost");
    gb_assert_ok(core_buffer_get(f.core, "default", "x", &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_LOST);
    gb_assert_ok(gb_session_get(f.core, &s, &view, &err), err);
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(core_download(f.core, "default", "x", 0, 1, back, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(core_buffer_delete(f.core, "default", "x", &err), err, GB_ERR_DEVICE_LOST);
    /* The process can end, and the next process reads the records. */
    core_fixture_close(&f);
    gb_backend_close(f.backend);
    gb_assert_ok(gb_backend_open(backends[_i], &f.backend, back, &err), err);
    core_fixture_open(&f);
    gb_assert_ok(core_buffer_get(f.core, "default", "x", &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_LOST);
    gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
    ck_assert_int_eq(rec.generation, 2);
    core_wake_done(&w);
    core_fixture_done(&f);
    free(data);
    free(back);
}
END_TEST

/* --- start -------------------------------------------------------------------------------------------------------- */

START_TEST(a_start_that_fails_leaves_nothing) {
    static const char *const faults[] = {"pin_alloc", "device_get", "pool_default", "pool_config"};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    char spec[128];

    snprintf(spec, sizeof(spec), "fault:%s@1=cudaErrorInvalidValue:host:discrete,bytes=16M", faults[_i]);
    core_fixture_prepare(&f, spec);
    f.config.backend = f.backend;
    f.config.store = f.store.store;
    gb_assert_fails(gb_core_open(&f.config, &f.core, &err), err, GB_ERR_DEVICE_ERROR);
    core_fixture_open(&f); /* the second start succeeds */
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_fault");

    gb_test_add_loop(suite, "once", each_call_fails_once, 300, 20);
    gb_test_add_loop(suite, "silent", some_calls_are_not_missed, 300, 10);
    gb_test_add_loop(suite, "out_of_memory", memory_runs_out, 300, 2);
    gb_test_add_loop(suite, "no_memory", no_memory_for_good, 300, 2);
    gb_test_add_loop(suite, "in_place", in_place_breaks_on_the_device, 300, 1);
    gb_test_add_loop(suite, "slot_kept", a_slot_is_kept_until_its_copy_is_done, 300, 1);
    gb_test_add_loop(suite, "death", a_device_dies, 300, 2);
    gb_test_add_loop(suite, "start", a_start_that_fails_leaves_nothing, 300, 4);
    return gb_test_run(suite);
}
