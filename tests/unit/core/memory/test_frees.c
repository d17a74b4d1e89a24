/* Frees that wait until their device is idle: no request waits for them, they are made in the end, and an allocation
 * that finds no memory has them made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device_write_fixture.h"
#include "gb_test.h"

#define MIB (1ull << 20)

static const enum gb_kind kinds[] = {GB_KIND_IPC, GB_KIND_MANAGED, GB_KIND_PINNED};
#define KINDS 3

static uint64_t pending(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_rec rec;

    gb_assert_ok(gb_device_get(f->core, 0, &rec, &err), err);
    return rec.pending_free_bytes;
}

static bool none_pending(void *arg) {
    return pending(arg) == 0;
}

static bool some_pending(void *arg) {
    return pending(arg) > 0;
}

/* A session "busy" whose stream is held, and buffer "a" of the kind in another one. */
static void begin(struct core_fixture *f, const char *spec, enum gb_kind kind, uint64_t bytes, struct core_gate *gate) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params p = core_kind_params("a", kind, bytes);
    struct gb_session_params session = {.name = core_name("busy")};

    core_fixture_init(f, spec);
    gb_assert_ok(core_session_create(f->core, &session, &err), err);
    gb_assert_ok(core_buffer_create(f->core, "busy", "x", 4096, 0, &err), err); /* makes its stream */
    gb_assert_ok(core_create(f->core, &p, NULL, &err), err);
    core_gate_close(gate, f, "busy");
}

static void end(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_buffer_delete(f->core, "busy", "x", &err), err);
    core_until_idle(f);
    core_fixture_done(f);
}

/* While the device is busy, a deletion is answered and its quota is free; no other request waits. */
START_TEST(no_request_waits) {
    enum gb_kind kind = kinds[_i % KINDS];
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "b", 3000);
    struct gb_name name = core_name("default");
    struct gb_session_view view;
    struct gb_buffer_rec rec;
    struct core_fixture f;
    struct core_gate gate;
    char data[3000];

    begin(&f, _i < KINDS ? "host:free=waits,bytes=64M" : "host:discrete,free=waits,bytes=64M", kind, MIB, &gate);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_until(some_pending, &f, "the free was put off");
    ck_assert_uint_eq(pending(&f), MIB);
    gb_assert_ok(gb_session_get(f.core, &name, &view, &err), err);
    ck_assert_uint_eq(view.used_bytes, 0);
    core_bytes(1, data, sizeof(data));
    u.buffer.kind = kind;
    gb_assert_ok(core_upload(f.core, &u, data, &rec, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    ck_assert(some_pending(&f));
    core_gate_open(&gate);
    core_until(none_pending, &f, "an idle device frees");
    end(&f);
}
END_TEST

/* An allocation that finds no memory has the frees made on a busy device, and gets their memory. */
START_TEST(an_allocation_hurries) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params p = core_kind_params("b", _i == 0 ? GB_KIND_IPC : GB_KIND_DEVICE, 32 * MIB);
    struct core_fixture f;
    struct core_gate gate;

    begin(&f, "host:bytes=64M", GB_KIND_IPC, 7 * MIB, &gate); /* the segment of x's pool has 32 */
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_until(some_pending, &f, "the free was put off");
    gb_assert_ok(core_create(f.core, &p, NULL, &err), err);
    ck_assert(none_pending(&f));
    p.name = core_name("c");
    gb_assert_fails(core_create(f.core, &p, NULL, &err), err, GB_ERR_OUT_OF_MEMORY);
    core_gate_open(&gate);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    end(&f);
}
END_TEST

/* Beyond an eighth of the device's memory a free is not put off any longer, and waits for the device. */
START_TEST(no_more_than_a_share_waits) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;
    struct core_gate gate;

    begin(&f, "host:bytes=64M", GB_KIND_IPC, 8 * MIB + 1, &gate);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_until(none_pending, &f, "the free is made on a busy device");
    core_gate_open(&gate);
    end(&f);
}
END_TEST

/* A device that is never idle frees in the end. The clock runs five times as fast. */
START_TEST(time_ends_the_wait) {
    const struct timespec pause = {.tv_nsec = 50000000};
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;
    struct core_gate gate;

    begin(&f, "host:bytes=64M", GB_KIND_IPC, MIB, &gate);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_until(some_pending, &f, "the free was put off");
    while (!none_pending(&f)) /* check's time-out ends a wait for ever */
        nanosleep(&pause, NULL);
    core_gate_open(&gate);
    end(&f);
}
END_TEST

/* The end frees what was put off; the leak checker says so. */
START_TEST(the_end_frees_all) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;
    struct core_gate gate;

    begin(&f, "host:free=waits,bytes=64M", kinds[_i], MIB, &gate);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_until(some_pending, &f, "the free was put off");
    core_gate_open(&gate);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("frees that wait");

    gb_test_add_loop(suite, "others", no_request_waits, 20, 2 * KINDS);
    gb_test_add_loop(suite, "hurry", an_allocation_hurries, 20, 2);
    gb_test_add(suite, "share", no_more_than_a_share_waits, 20);
    gb_test_add(suite, "time", time_ends_the_wait, 40);
    gb_test_add_loop(suite, "end", the_end_frees_all, 20, KINDS);
    return gb_test_run(suite);
}
