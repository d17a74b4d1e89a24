/* Copies and fills when the device refuses: each error is reported, nothing leaks, and only in-place writes stay half
 * done. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_write_fixture.h"
#include "gb_test.h"

static const char *const faults[] = {"alloc",         "copy",        "place_fill", "event_create",
                                     "event_record",  "event_query", "watch",      "complete",
                                     "stream_create", "event_mark",  "stream_wait"};
#define FAULTS 11

static bool step(unsigned *failed, int r, struct gb_error *err) {
    if (r == 0)
        return true;
    ck_assert_msg(err->code == GB_ERR_DEVICE_ERROR || err->code == GB_ERR_OUT_OF_MEMORY, "%s: %s",
                  gb_code_slug(err->code), err->detail);
    ck_assert_str_ne(err->native_name, "");
    (*failed)++;
    *err = GB_ERROR_INIT;
    return false;
}

static bool at_rest(void *arg) {
    struct core_fixture *f = arg;
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    return stats.writes_running == 0;
}

/* Copies (full, partial, in place) and a fill. Acknowledged writes are there. A failed write changed nothing, or, if it
 * was in place, its error says so. */
static unsigned play(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params up = core_upload_params("default", "a", 5000);
    struct gb_device_write_params p = core_copy_params("default", "a", "default", "b");
    struct gb_buffer_rec rec;
    struct core_result r;
    unsigned failed = 0;
    char a[5000];
    char b[5000];

    core_bytes(1, a, sizeof(a));
    if (!step(&failed, core_upload(f->core, &up, a, NULL, &err), &err) ||
        !step(&failed, core_write(f->core, &p, &r, &err), &err))
        return failed;
    memcpy(b, a, sizeof(b));
    p.from_offset = 1;
    p.offset = 2;
    p.has_bytes = true;
    p.bytes = 3000;
    if (step(&failed, core_write(f->core, &p, &r, &err), &err))
        memcpy(b + 2, a + 1, 3000);
    if (step(&failed, core_download(f->core, "default", "b", 0, sizeof(b), a, &err), &err))
        ck_assert_int_eq(memcmp(a, b, sizeof(b)), 0);
    p = core_fill_params("default", "b", 7, 8);
    p.in_place = true;
    if (step(&failed, core_write(f->core, &p, &r, &err), &err))
        return failed;
    core_until(at_rest, f, "nothing written any more");
    gb_assert_ok(core_buffer_get(f->core, "default", "b", &rec, &err), err);
    if (rec.state == GB_BUFFER_PARTIAL) {
        gb_assert_fails(core_download(f->core, "default", "b", 0, 1, a, &err), err, GB_ERR_BUFFER_PARTIAL);
        p.in_place = false;
        gb_assert_ok(core_write(f->core, &p, &r, &err), err); /* all of it: heals */
        ck_assert_int_eq(r.rec.state, GB_BUFFER_READY);
    } else {
        core_expect(f->core, "default", "b", b, sizeof(b));
    }
    return failed;
}

START_TEST(each_call_fails_once) {
    static const char *const backends[] = {"host:bytes=16M", "host:discrete,bytes=16M", "host:devices=2,bytes=16M"};
    const char *op = faults[_i % FAULTS];
    char spec[128];
    bool met = true;
    unsigned sum = 0;
    unsigned n;

    for (n = 1; met && n <= 20; n++) {
        struct core_fixture f;
        unsigned failed;

        snprintf(spec, sizeof(spec), "fault:%s@%u=%s:%s", op, n,
                 strcmp(op, "alloc") == 0 ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue",
                 backends[_i / FAULTS]);
        core_open_two(&f, spec);
        failed = play(&f);
        core_tidy(&f);
        ck_assert_msg(failed <= 1, "%s: %u steps failed", spec, failed);
        if (failed > 0)
            ck_assert_msg(play(&f) == 0, "%s: does not recover", spec);
        core_tidy(&f);
        met = core_fault_met(&f); /* else there are fewer calls */
        core_fixture_done(&f);
        sum += failed;
    }
    if (strcmp(op, "alloc") != 0 && strcmp(op, "stream_wait") != 0 &&
        (strcmp(op, "event_query") != 0 || strstr(backends[_i / FAULTS], "discrete")))
        ck_assert_msg(sum > 0, "%s never failed", op);
}
END_TEST

/* The device calls of one small copy: two records around it, a mark, one watch and no query. Further calls would fail
 * here. The upload before the copies makes one copy and one query. */
START_TEST(a_copy_costs_so_much) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params p = core_copy_params("default", "a", "default", "b");
    int i;

    core_open_two(&f, "fault:event_query@2+=cudaErrorInvalidValue,watch@102+=cudaErrorInvalidValue,"
                      "event_record@203+=cudaErrorInvalidValue,event_mark@102+=cudaErrorInvalidValue,"
                      "copy@102+=cudaErrorInvalidValue:host:discrete,bytes=16M");
    core_put_bytes(&f, "default", "a", 64, 1, NULL);
    for (i = 0; i < 100; i++)
        gb_assert_ok(core_write(f.core, &p, NULL, &err), err);
    gb_assert_fails(core_write(f.core, &p, NULL, &err), err, GB_ERR_DEVICE_ERROR); /* the rules hold */
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* On a discrete device, fresh memory is zeroed at its first use. */
START_TEST(zeros_come_when_they_are_needed) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params p = core_copy_params("default", "from", "default", "to");
    struct gb_upload_params part = core_upload_params("default", "part", 100);
    static const char *const names[] = {"read", "from", "part", "to"};
    static const char zeros[5000];
    char got[5000];
    char ones[100];
    int i;

    core_fixture_init(
        &f, "fault:fill@1=cudaErrorInvalidValue,event_record@5=cudaErrorInvalidValue:host:discrete,bytes=16M");
    gb_assert_ok(core_buffer_create(f.core, "default", "read", sizeof(got), 0, &err), err);
    gb_assert_ok(core_buffer_create(f.core, "default", "from", sizeof(got), 0, &err), err);
    gb_assert_ok(core_buffer_create(f.core, "default", "part", sizeof(got), 0, &err), err);
    gb_assert_fails(core_download(f.core, "default", "read", 0, sizeof(got), got, &err), err, GB_ERR_DEVICE_ERROR);
    memset(got, 1, sizeof(got));
    gb_assert_ok(core_download(f.core, "default", "read", 0, sizeof(got), got, &err), err);
    ck_assert_mem_eq(got, zeros, sizeof(got));
    /* A copy's source is zeroed, and so are the bytes that an in-place write does not touch. */
    while (core_write(f.core, &p, NULL, &err) < 0) {
        ck_assert_int_eq(err.code, GB_ERR_DEVICE_ERROR);
        err = GB_ERROR_INIT;
    }
    memset(got, 1, sizeof(got));
    gb_assert_ok(core_download(f.core, "default", "to", 0, sizeof(got), got, &err), err);
    ck_assert_mem_eq(got, zeros, sizeof(got));
    memset(ones, 1, sizeof(ones));
    part.partial = part.in_place = true;
    part.offset = 4000;
    gb_assert_ok(core_upload(f.core, &part, ones, NULL, &err), err);
    gb_assert_ok(core_download(f.core, "default", "part", 0, sizeof(got), got, &err), err);
    ck_assert_mem_eq(got, zeros, 4000);
    ck_assert_mem_eq(got + 4000, ones, 100);
    ck_assert_mem_eq(got + 4100, zeros, 900);
    for (i = 0; i < 4; i++)
        gb_assert_ok(core_buffer_delete(f.core, "default", names[i], &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_write_fault");

    gb_test_add_loop(suite, "once", each_call_fails_once, 120, 3 * FAULTS);
    gb_test_add_loop(suite, "zeros", zeros_come_when_they_are_needed, 120, 1);
    gb_test_add_loop(suite, "cost", a_copy_costs_so_much, 120, 1);
    return gb_test_run(suite);
}
