/* Uploads in several requests when the device refuses at any operation, and when it dies: told, nothing leaks, and it
 * can be done again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"
#include "multipart_fixture.h"

#define BYTES (3 * CORE_SLOT_BYTES + 100)

static const char *const ops[] = {"alloc",        "copy",        "kind_alloc", "stream_create", "event_create",
                                  "event_record", "event_query", "watch",      "complete",      "stream_wait",
                                  "attach",       "move",        "free",       "kind_free"};
enum { OPS = sizeof(ops) / sizeof(ops[0]) };

static const struct {
    const char *spec;
    enum gb_kind kind;
} places[] = {{"host:bytes=16M", GB_KIND_DEVICE},
              {"host:discrete,bytes=16M", GB_KIND_DEVICE},
              {"host:discrete,bytes=16M,managed=attach", GB_KIND_MANAGED}};

struct play {
    struct core_fixture *f;
    unsigned failed;
    char want[BYTES]; /* what was acknowledged */
    bool there;
    char next[BYTES];
    char id[GB_MULTIPART_ID_SIZE];
};

/* A step may fail, but only by saying that the device did. */
static bool step(struct play *p, int r, struct gb_error *err) {
    if (r == 0)
        return true;
    ck_assert_msg(err->code == GB_ERR_DEVICE_ERROR || err->code == GB_ERR_OUT_OF_MEMORY, "%s: %s",
                  gb_code_slug(err->code), err->detail);
    ck_assert_str_ne(err->native_name, "");
    p->failed++;
    *err = GB_ERROR_INIT;
    return false;
}

static void finish(struct play *p) {
    struct gb_error err = GB_ERROR_INIT;
    struct intake_result r = {.created = false};
    int n = intake_complete_digest(p->f->core, p->id, p->next, BYTES, &r, &err);

    if (step(p, n, &err)) {
        ck_assert(r.view.completed);
        memcpy(p->want, p->next, BYTES);
        p->there = true;
    }
    /* It may have ended with the error; completed ones are forgotten. */
    if (intake_delete(p->f->core, p->id, &err) < 0)
        ck_assert_int_eq(err.code, GB_ERR_UPLOAD_NOT_FOUND);
}

static bool parts(struct play *p, enum gb_kind kind) {
    struct gb_upload_params params = core_upload_params("default", "x", BYTES);
    struct gb_error err = GB_ERROR_INIT;
    struct intake_result r;
    unsigned half = CORE_SLOT_BYTES + 50;

    params.buffer.kind = kind;
    params.buffer.has_kind = kind != GB_KIND_DEVICE;
    if (!step(p, intake_begin(p->f->core, &params, &r, &err), &err))
        return false;
    memcpy(p->id, r.view.id, sizeof(p->id));
    return step(p, intake_part(p->f->core, p->id, half, p->next + half, BYTES - half, &err), &err) &&
           step(p, intake_part_broken(p->f->core, p->id, 0, half, p->next, CORE_SLOT_BYTES + 1, &err), &err) &&
           (intake_until_quiet(p->f->core, p->id, &r.view), true) &&
           step(p, intake_part(p->f->core, p->id, 0, p->next, half, &err), &err);
}

static bool appends(struct play *p, enum gb_kind kind) {
    struct gb_upload_params params = core_upload_params("default", "x", BYTES);
    struct gb_error err = GB_ERROR_INIT;
    struct intake_result r;
    uint64_t at;

    params.buffer.kind = kind;
    params.buffer.has_kind = kind != GB_KIND_DEVICE;
    if (!step(p, intake_append(p->f->core, p->id, &params, 0, p->next, 10, true, &err), &err))
        return false;
    gb_assert_ok(intake_settle(p->f->core, p->id, &r, &err), err);
    if (r.view.offset < 10) { /* of what broke off, what the device refused is not there */
        p->failed++;
        return false;
    }
    if (!step(p, intake_append(p->f->core, p->id, NULL, 10, p->next + 10, CORE_SLOT_BYTES, true, &err), &err))
        return false;
    gb_assert_ok(intake_settle(p->f->core, p->id, &r, &err), err);
    at = r.view.offset;
    if (at < 10 + CORE_SLOT_BYTES)
        p->failed++;
    return step(p, intake_append(p->f->core, p->id, NULL, at, p->next + at, BYTES - at, false, &err), &err);
}

static unsigned play(struct core_fixture *f, enum gb_kind kind) {
    struct gb_error err = GB_ERROR_INIT;
    struct play *p = calloc(1, sizeof(*p));
    char *back = malloc(BYTES);
    unsigned failed;
    int append_locked;

    p->f = f;
    for (append_locked = 0; append_locked < 2; append_locked++) {
        core_bytes(5 + (unsigned)append_locked, p->next, BYTES);
        p->id[0] = '\0';
        if (append_locked == 0 ? parts(p, kind) : appends(p, kind)) {
            finish(p);
        } else if (p->id[0] && intake_delete(f->core, p->id, &err) < 0) {
            ck_assert_int_eq(err.code, GB_ERR_UPLOAD_NOT_FOUND);
            err = GB_ERROR_INIT;
        }
        if (p->there && step(p, core_download(f->core, "default", "x", 0, BYTES, back, &err), &err))
            ck_assert_int_eq(memcmp(p->want, back, BYTES), 0);
    }
    if (p->there)
        gb_assert_ok(core_buffer_delete(f->core, "default", "x", &err), err);
    core_until_idle(f);
    failed = p->failed;
    free(back);
    free(p);
    return failed;
}

/* Adds how many steps failed. Returns false if there are fewer calls than n. */
static bool play_with(const char *op, unsigned n, int place, unsigned *sum) {
    struct core_fixture f;
    unsigned failed;
    char spec[128];
    bool met;

    snprintf(spec, sizeof(spec), "fault:%s@%u=%s:%s", op, n,
             strstr(op, "alloc") ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue", places[place].spec);
    core_fixture_init(&f, spec);
    failed = play(&f, places[place].kind);
    /* An event that cannot be had may be wanted twice: by the copy and by the clean-up. */
    ck_assert_msg(failed <= 2, "%s: %u steps failed", spec, failed);
    if (failed > 0)
        ck_assert_msg(play(&f, places[place].kind) == 0, "%s: does not recover", spec);
    met = core_fault_met(&f);
    core_fixture_done(&f);
    *sum += failed;
    return met;
}

START_TEST(each_call_fails_once) {
    const char *op = ops[_i % OPS];
    int place = _i / OPS;
    unsigned failed = 0;
    unsigned n;

    for (n = 1; n <= 24 && play_with(op, n, place, &failed); n = CORE_FAULT_NEXT(n))
        ;
    if ((strcmp(op, "event_record") == 0 && place > 0) || (strcmp(op, "copy") == 0 && place == 1) ||
        (strcmp(op, "attach") == 0 && place == 2))
        ck_assert_msg(failed > 0, "%s never failed", op);
}
END_TEST

static bool gone(void *arg) {
    struct gb_core_stats stats;

    gb_core_stats(arg, &stats);
    return stats.open_upload_bytes == 0 && stats.uploads_running == 0;
}

START_TEST(the_device_dies) {
    struct gb_upload_params params = core_upload_params("default", "x", BYTES);
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;
    struct intake_result r;
    char *data = calloc(1, BYTES);

    core_fixture_prepare(&f, "fault:copy@2=cudaErrorIllegalAddress:host:discrete,bytes=16M");
    f.config.housekeeping_ms = 20;
    core_fixture_open(&f);
    gb_assert_ok(intake_begin(f.core, &params, &r, &err), err);
    gb_assert_fails(intake_part(f.core, r.view.id, 0, data, BYTES, &err), err, GB_ERR_DEVICE_LOST);
    core_until(gone, f.core, "it has ended");
    gb_assert_fails(intake_begin(f.core, &params, &r, &err), err, GB_ERR_DEVICE_LOST);
    free(data);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core: uploads in several requests, faults");

    gb_test_add_loop(suite, "each call fails once", each_call_fails_once, 120, 3 * OPS);
    gb_test_add(suite, "the device dies", the_device_dies, 60);
    return gb_test_run(suite);
}
