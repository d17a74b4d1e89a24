/* Mirrored buffers when the device refuses or dies. */
#include <stdio.h>
#include <string.h>

#include "device_write_fixture.h"
#include "gb_test.h"

static const char *const faults[] = {"alloc", "kind_alloc", "move",     "copy",         "place_fill",
                                     "fill",  "watch",      "complete", "event_record", "event_create"};
#define FAULTS 10

static bool step(unsigned *failed, int r, struct gb_error *err) {
    bool follows = *failed > 0 && (err->code == GB_ERR_BUFFER_BUSY || err->code == GB_ERR_BUFFER_PARTIAL);

    if (r == 0)
        return true;
    ck_assert_msg(follows || err->code == GB_ERR_DEVICE_ERROR || err->code == GB_ERR_OUT_OF_MEMORY, "%s: %s",
                  gb_code_slug(err->code), err->detail);
    *failed += !follows; /* of a write that broke off where the side is */
    *err = GB_ERROR_INIT;
    return false;
}

/* Not being written: a write that failed may still be tidied up after. */
static bool settled(void *arg) {
    struct core_fixture *f = arg;
    struct gb_upload_params p = core_mirrored(2000);
    struct gb_error err = GB_ERROR_INIT;

    return gb_upload_check(f->core, &p, &err) == 0 || err.code != GB_ERR_BUFFER_BUSY;
}

/* A write of a part into nothing, syncs both ways, a write of a part on the stale side. */
static unsigned play(struct core_fixture *f) {
    struct gb_upload_params p = core_mirrored(2000);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;
    unsigned failed = 0;
    char want[2000] = {0};
    char back[2000];
    char data[100];

    core_bytes(1, data, sizeof(data));
    step(&failed, core_create(f->core, &p.buffer, NULL, &err), &err);
    p.partial = true;
    p.bytes = sizeof(data);
    p.offset = 50;
    if (step(&failed, core_upload(f->core, &p, data, NULL, &err), &err))
        memcpy(want + 50, data, sizeof(data));
    step(&failed, core_sync(f->core, "default", "m", false, NULL, &err), &err);
    p.to_device_side = true;
    p.offset = 500;
    if (step(&failed, core_upload(f->core, &p, data, NULL, &err), &err))
        memcpy(want + 500, data, sizeof(data));
    step(&failed, core_sync(f->core, "default", "m", true, NULL, &err), &err);
    core_until(settled, f, "partial, or free");
    gb_assert_ok(core_buffer_get(f->core, "default", "m", &rec, &err), err);
    if (rec.state == GB_BUFFER_PARTIAL) /* a write where the side is broke off */
        return failed;
    if (step(&failed, core_download(f->core, "default", "m", 0, 2000, back, &err), &err))
        ck_assert_int_eq(memcmp(want, back, 2000), 0);
    return failed;
}

/* Returns false if there are fewer calls than n. */
static bool try_fault(const char *op, unsigned n, const char *backend, unsigned *sum) {
    struct core_fixture f;
    unsigned failed;
    char spec[128];
    bool met;

    snprintf(spec, sizeof(spec), "fault:%s@%u=%s:%s", op, n,
             strstr(op, "alloc") ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue", backend);
    core_fixture_init(&f, spec);
    failed = play(&f);
    core_remove_mirrored(&f);
    if (failed > 0) /* the fault has been */
        ck_assert_msg(play(&f) == 0, "%s: does not recover", spec);
    if (failed > 0)
        core_remove_mirrored(&f);
    met = core_fault_met(&f);
    core_fixture_done(&f);
    *sum += failed;
    return met;
}

START_TEST(each_call_fails_once) {
    static const char *const backends[] = {"host:bytes=16M", "host:discrete,bytes=16M"};
    unsigned sum = 0;
    unsigned n;

    for (n = 1; n <= 16 && try_fault(faults[_i % FAULTS], n, backends[_i / FAULTS], &sum); n = CORE_FAULT_NEXT(n))
        ;
    /* Allocations are tried again; device memory is neither copied within the device nor zeroed here. */
    if (!strstr(faults[_i % FAULTS], "alloc") && strcmp(faults[_i % FAULTS], "fill") != 0 &&
        (strcmp(faults[_i % FAULTS], "copy") != 0 || _i >= FAULTS))
        ck_assert_msg(sum > 0, "%s never failed", faults[_i % FAULTS]);
}
END_TEST

static bool lost(void *arg) {
    struct core_fixture *f = arg;
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    return stats.lost_buffers == stats.buffers;
}

START_TEST(a_device_dies) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(1000);

    core_fixture_init(&f, "fault:move@2=cudaErrorIllegalAddress:host:discrete,bytes=16M");
    core_put(f.core, &p, 1, NULL);
    gb_assert_ok(core_sync(f.core, "default", "m", false, NULL, &err), err);
    core_put(f.core, &p, 2, NULL);
    gb_assert_fails(core_sync(f.core, "default", "m", false, NULL, &err), err, GB_ERR_DEVICE_LOST);
    core_until(lost, &f, "lost");
    gb_assert_fails(core_sync(f.core, "default", "m", false, NULL, &err), err, GB_ERR_DEVICE_LOST);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_mirror_fault");

    gb_test_add_loop(suite, "fault", each_call_fails_once, 120, 2 * FAULTS);
    gb_test_add_loop(suite, "death", a_device_dies, 120, 1);
    return gb_test_run(suite);
}
