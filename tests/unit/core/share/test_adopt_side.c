/* One side of a mirrored buffer over memory of another process; the other side stays the daemon's. */
#include <fcntl.h>
#include <string.h>

#include "adopt_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BYTES 20000

static char data[BYTES];
static const char zeros[BYTES];

struct given {
    struct core_fixture f;
    struct core_memory m;
    struct gb_holder *h;
};

static void begin(struct given *g, int spec) {
    g->m = core_memory_new(BYTES, F_SEAL_SHRINK);
    core_open_two(&g->f, specs[spec]);
    g->h = core_holder(g->f.core);
}

static void end(struct given *g) {
    core_until_none_adopted(&g->f);
    core_tidy(&g->f);
    core_fixture_done(&g->f);
    core_memory_done(&g->m);
}

static struct gb_adopt_params side_params(struct given *g, uint64_t bytes) {
    struct gb_adopt_params p = core_adopt_params(g->h, &g->m, "a", 0, bytes);

    p.has_side = true;
    p.side = GB_SIDE_HOST;
    return p;
}

static struct gb_upload_params mirrored(uint64_t bytes, bool device) {
    struct gb_upload_params p = core_upload_params("default", "a", bytes);

    p.buffer.mirrored = true;
    p.to_device_side = device;
    return p;
}

static struct gb_buffer_rec look(struct given *g) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec = {.labels = NULL};

    gb_assert_ok(core_buffer_get(g->f.core, "default", "a", &rec, &err), err);
    return rec;
}

static void adopt(struct given *g, struct core_result *ret) {
    struct gb_adopt_params p = side_params(g, BYTES);
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_adopt(g->f.core, &p, ret, &err), err);
    ck_assert(ret->rec.mirrored && ret->rec.adopted && ret->rec.head == GB_HEAD_HOST && !ret->rec.has_crc32c);
    ck_assert(ret->rec.sides[GB_SIDE_HOST].adopted && !ret->rec.sides[GB_SIDE_DEVICE].adopted);
    ck_assert_uint_eq(ret->rec.sides[GB_SIDE_HOST].bytes, BYTES);
}

static void sync_to(struct given *g, bool host) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_sync(g->f.core, "default", "a", host, NULL, &err), err);
}

/* --- what it is --------------------------------------------------------------------------------------------------- */

/* set_cpu_data of an object that has bytes: they are those of the owner now, and go to the device and back. */
START_TEST(the_side_of_a_buffer_that_is_there) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = mirrored(BYTES, false);
    struct core_result r;
    struct given g;

    begin(&g, _i);
    core_put(g.f.core, &p, 1, data);
    sync_to(&g, false);
    core_bytes(2, g.m.bytes, BYTES);
    adopt(&g, &r);
    ck_assert(!r.created && r.rec.generation == 2 && r.rec.kind == GB_KIND_DEVICE);
    ck_assert_uint_eq(r.rec.sides[GB_SIDE_DEVICE].bytes, BYTES);
    core_expect(g.f.core, "default", "a", g.m.bytes, BYTES);
    sync_to(&g, false);
    memcpy(data, g.m.bytes, BYTES);
    gb_assert_ok(core_release(g.f.core, "default", "a", true, false, &r, &err), err);
    ck_assert(!r.rec.adopted && r.rec.head == GB_HEAD_DEVICE && r.rec.sides[GB_SIDE_HOST].bytes == 0);
    core_until_none_adopted(&g.f);
    memset(g.m.bytes, 0, BYTES);
    core_expect(g.f.core, "default", "a", data, BYTES);
    gb_holder_end(g.h);
    ck_assert_int_eq(look(&g).state, GB_BUFFER_READY);
    end(&g);
}
END_TEST

START_TEST(a_new_buffer_whose_host_side_it_is) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = mirrored(BYTES, true);
    struct core_result r;
    struct given g;

    begin(&g, _i);
    core_bytes(1, g.m.bytes, BYTES);
    adopt(&g, &r);
    ck_assert(r.created && r.rec.generation == 1);
    ck_assert_str_eq(r.rec.pool.s, "default");
    sync_to(&g, false);
    core_expect(g.f.core, "default", "a", g.m.bytes, BYTES);
    /* A write to the device side, and a sync back into the owner's memory. */
    core_put(g.f.core, &p, 2, data);
    ck_assert(look(&g).adopted && look(&g).head == GB_HEAD_DEVICE);
    sync_to(&g, true);
    ck_assert_int_eq(memcmp(g.m.bytes, data, BYTES), 0);
    ck_assert(!look(&g).has_crc32c);
    /* A write to the host side is one into the owner's memory. */
    p = mirrored(100, false);
    core_put(g.f.core, &p, 3, data);
    ck_assert_int_eq(memcmp(g.m.bytes, data, 100), 0);
    ck_assert(look(&g).sides[GB_SIDE_HOST].adopted);
    gb_assert_ok(core_buffer_delete(g.f.core, "default", "a", &err), err);
    core_until_none_adopted(&g.f);
    gb_holder_end(g.h);
    end(&g);
}
END_TEST

/* --- its owner goes ----------------------------------------------------------------------------------------------- */

START_TEST(the_other_side_outlives_the_owner) {
    struct core_result r;
    struct given g;

    begin(&g, _i);
    core_bytes(1, g.m.bytes, BYTES);
    memcpy(data, g.m.bytes, BYTES);
    adopt(&g, &r);
    sync_to(&g, false);
    gb_holder_end(g.h);
    ck_assert(look(&g).state == GB_BUFFER_READY && look(&g).head == GB_HEAD_DEVICE && !look(&g).adopted);
    ck_assert_uint_eq(look(&g).sides[GB_SIDE_HOST].bytes, 0);
    core_expect(g.f.core, "default", "a", data, BYTES);
    sync_to(&g, true);
    core_expect(g.f.core, "default", "a", data, BYTES);
    end(&g);
}
END_TEST

START_TEST(bytes_that_are_there_alone_are_lost) {
    struct gb_upload_params p = mirrored(BYTES, false);
    struct core_result r;
    struct given g;

    begin(&g, _i);
    adopt(&g, &r);
    gb_holder_end(g.h);
    ck_assert(look(&g).state == GB_BUFFER_LOST && look(&g).adopted && look(&g).head == GB_HEAD_UNINITIALIZED);
    core_until_none_adopted(&g.f);
    g.h = core_holder(g.f.core); /* and had again */
    core_bytes(2, g.m.bytes, BYTES);
    adopt(&g, &r);
    ck_assert(!r.created && r.rec.state == GB_BUFFER_READY);
    core_expect(g.f.core, "default", "a", g.m.bytes, BYTES);
    gb_holder_end(g.h);
    core_put(g.f.core, &p, 3, data);
    core_expect(g.f.core, "default", "a", data, BYTES);
    ck_assert(!look(&g).adopted && look(&g).sides[GB_SIDE_HOST].pinned);
    end(&g);
}
END_TEST

/* A change that was on its way to the database when the owner went says too much: the side is gone. */
START_TEST(the_owner_goes_during_a_commit) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_locator at = core_at("default", "a");
    struct gb_name stream = core_name("");
    struct core_call pending;
    struct core_busy busy;
    struct core_result r;
    struct given g;

    begin(&g, _i);
    core_bytes(1, g.m.bytes, BYTES);
    memcpy(data, g.m.bytes, BYTES);
    adopt(&g, &r);
    core_busy_begin(&busy, &g.f);
    core_call_begin(&pending);
    gb_buffer_mirror_sync(g.f.core, &at, false, &stream, NULL, pending.call.buffer);
    core_until_queued(&g.f);
    gb_holder_end(g.h);
    core_busy_end(&busy);
    gb_assert_ok(core_result_end(&pending, &r, &err), err);
    ck_assert(look(&g).state == GB_BUFFER_READY && look(&g).head == GB_HEAD_DEVICE && !look(&g).adopted);
    core_expect(g.f.core, "default", "a", data, BYTES);
    end(&g);
}
END_TEST

START_TEST(the_owner_goes_during_the_adoption) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = mirrored(BYTES, true);
    struct gb_adopt_params a;
    struct core_call pending;
    struct core_busy busy;
    struct given g;

    begin(&g, _i);
    core_put(g.f.core, &p, 1, data);
    a = side_params(&g, BYTES);
    a.import.fd = fcntl(g.m.fd, F_DUPFD_CLOEXEC, 0);
    core_busy_begin(&busy, &g.f);
    core_call_begin(&pending);
    gb_buffer_adopt(g.f.core, &a, pending.call.buffer);
    core_until_queued(&g.f);
    gb_holder_end(g.h);
    core_busy_end(&busy);
    gb_assert_ok(core_call_end(&pending, &err), err);
    ck_assert_int_eq(look(&g).state, GB_BUFFER_LOST); /* as it would be had it gone after */
    end(&g);
}
END_TEST

/* A write of the owner's memory is under way: the bytes of the other side stay, and the next write may begin. */
START_TEST(the_owner_goes_during_a_write) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = mirrored(BYTES, false);
    struct gb_upload *upload;
    struct core_result r;
    struct core_wake w;
    struct given g;

    begin(&g, _i);
    core_bytes(1, g.m.bytes, BYTES);
    adopt(&g, &r);
    sync_to(&g, false);
    memcpy(data, g.m.bytes, BYTES);
    core_wake_init(&w);
    p.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(g.f.core, &p, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &w, zeros, BYTES / 2, &err), err);
    gb_holder_end(g.h);
    core_expect(g.f.core, "default", "a", data, BYTES);
    gb_assert_ok(core_upload_send(upload, &w, zeros, BYTES / 2, &err), err);
    gb_assert_fails(core_upload_finish(upload, &w, NULL, &err), err, GB_ERR_CONTENT_LOST);
    gb_upload_free(upload);
    core_wake_done(&w);
    ck_assert(look(&g).state == GB_BUFFER_READY && look(&g).head == GB_HEAD_DEVICE);
    core_expect(g.f.core, "default", "a", data, BYTES);
    p = mirrored(BYTES, false);
    core_put(g.f.core, &p, 2, data);
    core_expect(g.f.core, "default", "a", data, BYTES);
    end(&g);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static int refuse_all(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    (void)arg;
    (void)rec;
    return gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "no");
}

START_TEST(what_it_cannot_be) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params plain = core_upload_params("default", "b", 10);
    struct gb_upload_params p = mirrored(BYTES + 1, true);
    struct gb_adopt_params a;
    struct core_result r;
    struct given g;

    begin(&g, _i);
    core_put(g.f.core, &plain, 1, NULL);
    a = side_params(&g, BYTES);
    a.name = core_name("b");
    gb_assert_fails(core_adopt(g.f.core, &a, NULL, &err), err, GB_ERR_BUFFER_EXISTS); /* it has no sides */
    a = side_params(&g, BYTES);
    a.side = GB_SIDE_DEVICE;
    gb_assert_fails(core_adopt(g.f.core, &a, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
    a = side_params(&g, BYTES);
    a.check.check = refuse_all;
    gb_assert_fails(core_adopt(g.f.core, &a, NULL, &err), err, GB_ERR_PRECONDITION_FAILED);
    adopt(&g, &r);
    gb_assert_fails(core_seal(g.f.core, "default", "a", &err), err, GB_ERR_ADOPTED);
    core_put(g.f.core, &p, 2, NULL); /* larger, to the other side */
    gb_assert_fails(core_sync(g.f.core, "default", "a", true, NULL, &err), err, GB_ERR_ADOPTED);
    p = mirrored(BYTES + 1, false);
    gb_assert_fails(core_upload(g.f.core, &p, data, NULL, &err), err, GB_ERR_ADOPTED);
    gb_assert_ok(core_release(g.f.core, "default", "a", true, false, &r, &err), err);
    sync_to(&g, true);
    gb_assert_ok(core_seal(g.f.core, "default", "a", &err), err);
    a = side_params(&g, BYTES);
    gb_assert_fails(core_adopt(g.f.core, &a, NULL, &err), err, GB_ERR_SEALED);
    gb_holder_end(g.h);
    end(&g);
}
END_TEST

/* Nothing is imported: the buffer is as it was. */
START_TEST(the_device_refuses) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = mirrored(BYTES, false);
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    struct gb_adopt_params a;
    struct gb_buffer_rec rec;
    struct core_fixture f;
    struct gb_holder *h;

    core_open_two(&f, "fault:import@1=cudaErrorMemoryAllocation:host:discrete,bytes=64M");
    h = core_holder(f.core);
    core_put(f.core, &p, 1, data);
    a = core_adopt_params(h, &m, "a", 0, BYTES);
    a.has_side = true;
    gb_assert_fails(core_adopt(f.core, &a, NULL, &err), err, GB_ERR_OUT_OF_MEMORY);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert(!rec.adopted && rec.head == GB_HEAD_HOST && rec.generation == 1 && rec.has_crc32c);
    core_expect(f.core, "default", "a", data, BYTES);
    gb_holder_end(h);
    core_until_none_adopted(&f);
    core_tidy(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_adopt_side");

    gb_test_add_loop(suite, "existing", the_side_of_a_buffer_that_is_there, 60, SPECS);
    gb_test_add_loop(suite, "new", a_new_buffer_whose_host_side_it_is, 60, SPECS);
    gb_test_add_loop(suite, "outlives", the_other_side_outlives_the_owner, 60, SPECS);
    gb_test_add_loop(suite, "lost", bytes_that_are_there_alone_are_lost, 60, SPECS);
    gb_test_add_loop(suite, "commit", the_owner_goes_during_a_commit, 60, SPECS);
    gb_test_add_loop(suite, "adoption", the_owner_goes_during_the_adoption, 60, SPECS);
    gb_test_add_loop(suite, "write", the_owner_goes_during_a_write, 60, SPECS);
    gb_test_add_loop(suite, "refused", what_it_cannot_be, 60, SPECS);
    gb_test_add(suite, "faults", the_device_refuses, 60);
    return gb_test_run(suite);
}
