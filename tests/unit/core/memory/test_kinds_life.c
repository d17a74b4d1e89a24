/* Kinds of memory: their cost in each quota, when they are freed, and refusals of the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_write_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M",
                                    "host:discrete,managed=attach,bytes=64M",
                                    "host:managed=attach,devices=2,bytes=64M"};
#define SPECS 4

#define BYTES (3 * CORE_SLOT_BYTES + 123)

static uint64_t pinned(struct core_fixture *f) {
    struct gb_name s = core_name("default");
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_view view;

    gb_assert_ok(gb_session_get(f->core, &s, &view, &err), err);
    return view.used_pinned_bytes;
}

static bool nothing_pinned(void *arg) {
    return pinned(arg) == 0;
}

START_TEST(pinned_memory_has_its_quota) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params quota = {.has_quota_pinned_bytes = true, .quota.pinned_bytes = 1500};
    struct gb_upload_params u = core_upload_params("default", "a", 1000);
    struct gb_buffer_params p = core_kind_params("b", GB_KIND_PINNED, 501);
    struct gb_buffer_rec rec;
    char data[1000];

    core_fixture_init(&f, specs[_i]);
    core_bytes(1, data, sizeof(data));
    gb_assert_ok(core_session_patch(f.core, "default", &quota, &err), err);
    u.buffer.kind = GB_KIND_PINNED;
    gb_assert_ok(core_upload(f.core, &u, data, &rec, &err), err);
    ck_assert_uint_eq(pinned(&f), 1000);
    gb_assert_fails(core_create(f.core, &p, NULL, &err), err, GB_ERR_QUOTA_EXCEEDED);
    core_create(f.core, &p, NULL, &err);
    ck_assert_uint_eq(err.limit_bytes, 1500);
    ck_assert_uint_eq(err.used_bytes, 1000);
    ck_assert_uint_eq(err.requested_bytes, 501);
    err = GB_ERROR_INIT;
    gb_assert_fails(core_upload(f.core, &u, data, &rec, &err), err, GB_ERR_QUOTA_EXCEEDED); /* both copies count */
    gb_assert_fails(gb_upload_check(f.core, &u, &err), err, GB_ERR_QUOTA_EXCEEDED);
    u.in_place = true;
    gb_assert_ok(core_upload(f.core, &u, data, &rec, &err), err);
    p.kind = GB_KIND_PAGEABLE;
    gb_assert_ok(core_create(f.core, &p, NULL, &err), err);
    ck_assert_uint_eq(pinned(&f), 1000);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_until(nothing_pinned, &f, "nothing is pinned");
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* Memory is freed only after the queued work that uses it, and no thread waits for that. */
START_TEST(a_free_waits_for_the_work) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params p = core_kind_params("a", GB_KIND_PINNED, 4096);
    struct core_gate gate;
    struct core_result r;

    core_fixture_init(&f, specs[_i]);
    gb_assert_ok(core_create(f.core, &p, &r, &err), err);
    core_gate_close(&gate, &f, "default");
    p.name = core_name("b");
    gb_assert_ok(core_create(f.core, &p, &r, &err), err); /* its zeros are queued behind the gate */
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    p.name = core_name("c"); /* the pending frees do not block the lanes */
    gb_assert_ok(core_create(f.core, &p, &r, &err), err);
    ck_assert_uint_eq(pinned(&f), 3 * 4096);
    core_gate_open(&gate);
    gb_assert_ok(core_buffer_delete(f.core, "default", "c", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* Managed and shared memory come out of the device's limited memory. */
START_TEST(memory_runs_out) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params p = core_kind_params("a", _i == 0 ? GB_KIND_MANAGED : GB_KIND_SHARED, 40 << 20);
    struct core_call pending;
    struct gb_core_stats stats;

    core_fixture_init(&f, "host:discrete,bytes=64M");
    if (!core_on_host(&f)) {
        core_fixture_done(&f);
        return;
    }
    gb_assert_ok(core_create(f.core, &p, NULL, &err), err);
    p.name = core_name("b");
    gb_assert_fails(core_create(f.core, &p, NULL, &err), err, GB_ERR_OUT_OF_MEMORY);
    core_create(f.core, &p, NULL, &err);
    ck_assert_str_ne(err.native_name, "");
    ck_assert(err.has_numbers && gb_error_retryable(&err));
    err = GB_ERROR_INIT;
    p.bytes = 65 << 20; /* more than the device's total memory */
    core_create(f.core, &p, NULL, &err);
    ck_assert(err.code == GB_ERR_OUT_OF_MEMORY && !gb_error_retryable(&err));
    ck_assert_ptr_nonnull(strstr(err.detail, "waiting does not help"));
    err = GB_ERROR_INIT;
    p.bytes = 40 << 20;
    core_call_begin(&pending);
    gb_buffer_create(f.core, &p, 20, pending.call.buffer);
    gb_assert_fails(core_call_end(&pending, &err), err, GB_ERR_OUT_OF_MEMORY);
    /* A waiting allocation gets freed memory. */
    core_call_begin(&pending);
    gb_buffer_create(f.core, &p, 60000, pending.call.buffer);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_call_end(&pending, &err), err);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.counters.allocation_failures, 4);
    /* An allocation gets the memory that a pool keeps unused. */
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    gb_assert_ok(core_buffer_create(f.core, "default", "c", 40 << 20, 60000, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "c", &err), err);
    core_call_begin(&pending);
    gb_buffer_create(f.core, &p, 60000, pending.call.buffer);
    gb_assert_ok(core_call_end(&pending, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

static bool is_partial(void *arg) {
    struct core_fixture *f = arg;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_ok(core_buffer_get(f->core, "default", "a", &rec, &err), err);
    return rec.state == GB_BUFFER_PARTIAL;
}

static bool readable(void *arg) {
    struct core_fixture *f = arg;
    struct gb_error err = GB_ERROR_INIT;
    char byte;

    if (core_download(f->core, "default", "a", 0, 1, &byte, &err) == 0)
        return true;
    ck_assert_int_eq(err.code, GB_ERR_BUFFER_BUSY);
    return false;
}

/* An upload that breaks off returns managed memory from the CPU to the device. */
START_TEST(managed_memory_is_handed_back) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_device_write_params w = core_copy_params("default", "a", "default", "b");
    struct gb_upload *upload;
    struct core_wake wake;
    char *a = malloc(BYTES);
    void *room;
    size_t n;
    int r;

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&wake);
    if (!core_kind_offered(&f, GB_KIND_MANAGED)) {
        core_fixture_done(&f);
        free(a);
        return;
    }
    u.buffer.kind = GB_KIND_MANAGED;
    u.waker = core_waker(&wake);
    gb_assert_ok(gb_upload_begin(f.core, &u, &upload, &err), err); /* into fresh memory */
    while ((r = gb_upload_room(upload, &room, &n, &err)) == 0)
        core_wake_wait(&wake);
    gb_assert_ok(r < 0 ? r : 0, err);
    gb_upload_free(upload);
    core_until_idle(&f);
    core_put(f.core, &u, 1, a);
    u.in_place = true;
    gb_assert_ok(gb_upload_begin(f.core, &u, &upload, &err), err); /* nothing written */
    gb_upload_free(upload);
    core_until(readable, &f, "readable again");
    core_expect(f.core, "default", "a", a, BYTES);
    gb_assert_ok(gb_upload_begin(f.core, &u, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &wake, a, CORE_SLOT_BYTES + 1000, &err), err); /* a slot's copy is running */
    gb_upload_free(upload);
    core_until(is_partial, &f, "partial");
    core_put(f.core, &u, 2, a);
    gb_assert_ok(core_write(f.core, &w, NULL, &err), err); /* the device can access the memory */
    core_expect(f.core, "default", "b", a, BYTES);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    core_until_idle(&f);
    core_wake_done(&wake);
    core_fixture_done(&f);
    free(a);
}
END_TEST

/* --- failures ----------------------------------------------------------------------------------------------------- */

static const char *const faults[] = {"kind_alloc",   "kind_free", "move",     "place_fill",  "attach",
                                     "event_record", "watch",     "complete", "event_query", "event_create"};
#define FAULTS 10

/* Runs each step once and checks that exactly the acknowledged changes remain. */
static unsigned play(struct core_fixture *f, enum gb_kind kind) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params c = core_kind_params("z", kind, 5000);
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_device_write_params w = core_copy_params("default", "a", "default", "z");
    unsigned failed = 0;
    char *want = malloc(BYTES);
    char *back = malloc(BYTES);

    core_bytes(1, want, BYTES);
    u.buffer.kind = kind;
    u.buffer.has_kind = true;
    if (core_step(&failed, core_create(f->core, &c, NULL, &err), &err) &&
        core_step(&failed, core_upload(f->core, &u, want, NULL, &err), &err)) {
        u.partial = true;
        u.offset = 100;
        u.bytes = 70000;
        core_bytes(2, back, u.bytes);
        if (core_step(&failed, core_upload(f->core, &u, back, NULL, &err), &err))
            memcpy(want + 100, back, u.bytes);
        w.has_bytes = true;
        w.bytes = 4000;
        core_step(&failed, core_write(f->core, &w, NULL, &err), &err);
        if (core_step(&failed, core_download(f->core, "default", "a", 0, BYTES, back, &err), &err))
            ck_assert_int_eq(memcmp(want, back, BYTES), 0);
    }
    free(want);
    free(back);
    return failed;
}

static void tidy(struct core_fixture *f) {
    static const char *const names[] = {"a", "z"};
    struct gb_error err = GB_ERROR_INIT;
    int i;

    for (i = 0; i < 2; i++) {
        if (core_buffer_delete(f->core, "default", names[i], &err) < 0)
            ck_assert_int_eq(err.code, GB_ERR_BUFFER_NOT_FOUND);
        err = GB_ERROR_INIT;
    }
    core_until_idle(f);
}

/* Adds how many steps failed. Returns false if there are fewer calls than n. */
static bool play_with(const char *op, unsigned n, const char *backend, enum gb_kind kind, unsigned *sum) {
    struct core_fixture f;
    unsigned failed;
    char spec[128];
    bool met;

    snprintf(spec, sizeof(spec), "fault:%s@%u=%s:%s", op, n,
             strcmp(op, "kind_alloc") == 0 ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue", backend);
    core_fixture_init(&f, spec);
    failed = play(&f, kind);
    tidy(&f);
    ck_assert_msg(failed <= 1, "%s: %u steps failed", spec, failed);
    if (failed > 0)
        ck_assert_msg(play(&f, kind) == 0, "%s: does not recover", spec);
    tidy(&f);
    met = core_fault_met(&f);
    core_fixture_done(&f);
    *sum += failed;
    return met;
}

START_TEST(each_call_fails_once) {
    static const char *const backends[] = {"host:bytes=16M", "host:discrete,bytes=16M",
                                           "host:discrete,managed=attach,bytes=16M"};
    static const enum gb_kind kinds[] = {GB_KIND_SHARED, GB_KIND_MANAGED, GB_KIND_PINNED};
    const char *op = faults[_i % FAULTS];
    unsigned sum = 0;
    unsigned kind;
    unsigned n;

    for (kind = 0; kind < 3; kind++) {
        for (n = 1; n <= 8 && play_with(op, n, backends[_i / FAULTS], kinds[kind], &sum); n = CORE_FAULT_NEXT(n))
            ;
    }
    /* Memory of the first backend is written by the CPU while its stream is idle, and waits for an event otherwise. */
    if (strcmp(op, "event_query") == 0 && _i < FAULTS)
        return;
    /* kind_alloc and kind_free are retried. Only managed memory on the last backend is attached. */
    if (strcmp(op, "kind_alloc") == 0 || strcmp(op, "kind_free") == 0 || (strcmp(op, "attach") == 0 && _i < 2 * FAULTS))
        ck_assert_uint_eq(sum, 0);
    else
        ck_assert_msg(sum > 0, "%s never failed", op);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_kinds_life");

    gb_test_add_loop(suite, "pinned", pinned_memory_has_its_quota, 120, SPECS);
    gb_test_add_loop(suite, "free", a_free_waits_for_the_work, 120, SPECS);
    gb_test_add_loop(suite, "out_of_memory", memory_runs_out, 120, 2);
    gb_test_add_loop(suite, "attach", managed_memory_is_handed_back, 120, SPECS);
    gb_test_add_loop(suite, "fault", each_call_fails_once, 120, 3 * FAULTS);
    return gb_test_run(suite);
}
