/* Capacity for a side ahead of an upload: what is kept, what is charged, what is refused. */
#include <stdio.h>
#include <string.h>

#include "gb_test.h"
#include "lease_fixture.h"

static const char *const specs[] = {"host:bytes=16M", "host:discrete,bytes=16M"};
#define SPECS 2
#define BYTES 3000
#define MORE 50000

static struct gb_buffer_rec look(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec = {.labels = NULL};

    gb_assert_ok(core_buffer_get(f->core, "default", "m", &rec, &err), err);
    return rec;
}

static void expect_sides(const struct gb_buffer_rec *rec, uint64_t host, uint64_t device) {
    ck_assert_uint_eq(rec->sides[GB_SIDE_HOST].bytes, host);
    ck_assert_uint_eq(rec->sides[GB_SIDE_DEVICE].bytes, device);
    ck_assert(rec->sides[GB_SIDE_HOST].pinned == (host > 0) && !rec->sides[GB_SIDE_DEVICE].pinned);
    ck_assert(!rec->sides[GB_SIDE_HOST].adopted && !rec->sides[GB_SIDE_DEVICE].adopted);
}

struct wanted {
    struct core_fixture *f;
    uint64_t used;
    uint64_t pinned;
};

static bool is_charged(void *arg) {
    struct wanted *w = arg;
    struct gb_name s = core_name("default");
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_view view;

    gb_assert_ok(gb_session_get(w->f->core, &s, &view, &err), err);
    return view.used_bytes == w->used && view.used_pinned_bytes == w->pinned;
}

/* Replaced memory may be freed some time after the reply. */
static void until_charged(struct core_fixture *f, uint64_t used, uint64_t pinned) {
    struct wanted w = {.f = f, .used = used, .pinned = pinned};

    core_until(is_charged, &w, "the bytes charged");
}

static bool has_sides(void *arg) {
    struct wanted *w = arg;
    struct gb_buffer_rec rec = look(w->f);

    return rec.sides[GB_SIDE_HOST].bytes == w->pinned && rec.sides[GB_SIDE_DEVICE].bytes == w->used;
}

static void until_sides(struct core_fixture *f, uint64_t host, uint64_t device) {
    struct wanted w = {.f = f, .used = device, .pinned = host};

    core_until(has_sides, &w, "the memory of the sides");
}

static void reserve(struct core_fixture *f, bool host, uint64_t bytes, struct core_result *ret) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_reserve(f->core, "default", "m", host, bytes, ret, &err), err);
}

static void done(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_buffer_delete(f->core, "default", "m", &err), err);
    core_until_idle(f);
    core_fixture_done(f);
}

START_TEST(memory_that_is_large_enough_stays) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct gb_buffer_rec rec;
    struct core_result r;
    uint64_t n;

    core_fixture_init(&f, specs[_i]);
    gb_assert_ok(core_create(f.core, &p.buffer, &r, &err), err);
    rec = look(&f);
    expect_sides(&rec, 0, 0);
    reserve(&f, true, MORE, &r);
    expect_sides(&r.rec, MORE, 0);
    ck_assert_int_eq(r.rec.head, GB_HEAD_UNINITIALIZED);
    ck_assert_int_eq(r.rec.generation, rec.generation);
    ck_assert_int_gt(r.rec.version, rec.version);
    until_charged(&f, MORE, MORE);
    reserve(&f, false, MORE, &r);
    expect_sides(&r.rec, MORE, MORE);
    until_charged(&f, 2 * MORE, MORE);
    n = core_allocations(&f);
    rec = look(&f);
    reserve(&f, true, MORE, &r);
    reserve(&f, true, 1, &r);
    reserve(&f, false, 0, &r);
    ck_assert_int_eq(r.rec.version, rec.version);
    core_put(f.core, &p, 1, NULL);
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    p = core_mirrored(MORE);
    p.to_device_side = true;
    core_put(f.core, &p, 2, NULL);
    gb_assert_ok(core_sync(f.core, "default", "m", true, &r, &err), err);
    ck_assert_uint_eq(core_allocations(&f), n);
    until_charged(&f, 2 * MORE, MORE);
    gb_assert_ok(core_release(f.core, "default", "m", true, true, &r, &err), err);
    expect_sides(&r.rec, 0, 0);
    until_charged(&f, 0, 0);
    done(&f);
}
END_TEST

/* What a side has is there after it grew, whichever side is current. */
START_TEST(growing_keeps_bytes) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct gb_buffer_rec rec;
    struct core_result r;
    char want[BYTES];
    bool host;
    int head;

    core_fixture_init(&f, specs[_i]);
    for (head = GB_HEAD_HOST; head <= GB_HEAD_SYNCED; head++) {
        for (host = false;; host = true) {
            p.to_device_side = head == GB_HEAD_DEVICE;
            core_put(f.core, &p, 10 + head, want);
            if (head == GB_HEAD_SYNCED)
                gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
            rec = look(&f);
            ck_assert_int_eq(rec.head, head);
            reserve(&f, host, MORE, &r);
            ck_assert_uint_eq(r.rec.sides[host ? GB_SIDE_HOST : GB_SIDE_DEVICE].bytes, MORE);
            ck_assert(r.rec.head == rec.head && r.rec.generation == rec.generation && r.rec.has_crc32c);
            core_expect(f.core, "default", "m", want, BYTES);
            /* The side that grew, by itself. */
            gb_assert_ok(core_sync(f.core, "default", "m", host, &r, &err), err);
            gb_assert_ok(core_release(f.core, "default", "m", !host, host, &r, &err), err);
            core_expect(f.core, "default", "m", want, BYTES);
            gb_assert_ok(core_release(f.core, "default", "m", true, true, &r, &err), err);
            if (host)
                break;
        }
    }
    done(&f);
}
END_TEST

START_TEST(a_sync_zeroes_what_was_reserved) {
    static const char zeros[BYTES];
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct core_result r;

    core_fixture_init(&f, specs[_i]);
    core_put(f.core, &p, 1, NULL);
    gb_assert_ok(core_release(f.core, "default", "m", true, true, &r, &err), err);
    reserve(&f, true, MORE, &r);
    reserve(&f, false, MORE, &r);
    gb_assert_ok(core_sync(f.core, "default", "m", true, &r, &err), err);
    ck_assert(!r.copied && r.way == GB_WAY_NONE && r.rec.head == GB_HEAD_HOST);
    expect_sides(&r.rec, MORE, MORE);
    core_expect(f.core, "default", "m", zeros, BYTES);
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    ck_assert(r.copied && r.rec.head == GB_HEAD_SYNCED);
    core_expect(f.core, "default", "m", zeros, BYTES);
    done(&f);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void refused(struct core_fixture *f, const char *name, bool host, uint64_t bytes, enum gb_code code) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_fails(core_reserve(f->core, "default", name, host, bytes, NULL, &err), err, code);
}

START_TEST(refusals) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct gb_upload_params plain = core_upload_params("default", "x", 10);
    struct gb_buffer_rec before;
    struct gb_buffer_rec after;

    core_fixture_init(&f, specs[_i]);
    core_put(f.core, &p, 1, NULL);
    core_put(f.core, &plain, 1, NULL);
    before = look(&f);
    refused(&f, "none", true, 10, GB_ERR_BUFFER_NOT_FOUND);
    refused(&f, "x", true, 10, GB_ERR_INVALID_ARGUMENT);
    refused(&f, "m", false, 1ull << 50, GB_ERR_OUT_OF_MEMORY);
    refused(&f, "m", false, UINT64_MAX, GB_ERR_OUT_OF_MEMORY);
    after = look(&f);
    ck_assert(after.version == before.version && after.head == GB_HEAD_HOST);
    expect_sides(&after, BYTES, 0);
    gb_assert_ok(core_seal(f.core, "default", "m", &err), err);
    refused(&f, "m", true, MORE, GB_ERR_SEALED);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    done(&f);
}
END_TEST

START_TEST(a_mapped_side_does_not_grow) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct gb_lease_params map;
    struct core_mapping m;
    struct core_result r;
    struct gb_holder *h;

    core_fixture_init(&f, specs[_i]);
    h = core_holder(f.core);
    core_put(f.core, &p, 1, NULL);
    map = core_map_params(h, "default", "m", false);
    gb_assert_ok(core_map(f.core, &map, &m, &err), err);
    refused(&f, "m", true, MORE, GB_ERR_MAPPED);
    reserve(&f, true, BYTES, &r); /* it is large enough */
    core_mapping_done(&m);
    gb_holder_end(h);
    core_until_unmapped(&f);
    reserve(&f, true, MORE, &r);
    done(&f);
}
END_TEST

/* --- memory without current bytes is freed first ------------------------------------------------------------------ */

#define MIB (1ull << 20)

/* 10 and 12 MiB do not fit together. */
START_TEST(a_side_without_current_bytes_is_freed_first) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct core_result r;
    int64_t version;
    char want[BYTES];

    core_fixture_init(&f, specs[_i]);
    gb_assert_ok(core_create(f.core, &p.buffer, &r, &err), err);
    reserve(&f, false, 10 * MIB, &r);
    version = r.rec.version;
    reserve(&f, false, 12 * MIB, &r);
    expect_sides(&r.rec, 0, 12 * MIB);
    ck_assert(r.rec.head == GB_HEAD_UNINITIALIZED && r.rec.version == version + 2);
    core_put(f.core, &p, 1, want);
    reserve(&f, false, 13 * MIB, &r);
    expect_sides(&r.rec, BYTES, 13 * MIB);
    ck_assert(r.rec.head == GB_HEAD_HOST && r.rec.has_crc32c);
    core_expect(f.core, "default", "m", want, BYTES);
    refused(&f, "m", false, MIB << 24, GB_ERR_OUT_OF_MEMORY); /* more than any device has: the memory stays */
    until_sides(&f, BYTES, 13 * MIB);
    until_charged(&f, BYTES + 13 * MIB, BYTES);
    done(&f);
}
END_TEST

/* The memory is freed when its reader has ended. Until then both must fit. */
START_TEST(a_stale_side_that_is_read) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct core_reading reading;
    struct core_result r;
    char first[BYTES];
    char want[BYTES];
    char back[BYTES];

    core_fixture_init(&f, specs[_i]);
    core_put(f.core, &p, 1, first);
    gb_assert_ok(core_reading_open(&reading, &f, "m", &err), err);
    p.to_device_side = true;
    core_put(f.core, &p, 2, want);
    reserve(&f, true, MORE, &r);
    expect_sides(&r.rec, MORE, BYTES);
    until_charged(&f, 2 * BYTES + MORE, BYTES + MORE);
    gb_assert_ok(gb_download_start(reading.download, 0, BYTES, &err), err);
    gb_assert_ok(core_download_read(reading.download, &reading.wake, back, BYTES, &err), err);
    ck_assert(memcmp(back, first, BYTES) == 0);
    gb_download_free(reading.download, true);
    until_charged(&f, BYTES + MORE, MORE);
    core_expect(f.core, "default", "m", want, BYTES);
    done(&f);
}
END_TEST

/* Memory is freed behind the work of its stream, and only then the new memory is asked for. */
START_TEST(a_growth_waits_for_the_free) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct gb_session_params limits = core_session_params("default");
    struct gb_locator m = core_at("default", "m");
    bool host = _i >= SPECS;
    uint64_t more = host ? 5 * MIB : 12 * MIB;
    struct gb_mirror_reserve what = {.host = host, .bytes = more, .stream = {"default"}};
    struct core_gate gate;
    struct core_result r;
    struct core_call c;

    core_fixture_init(&f, specs[_i % SPECS]);
    limits.has_quota_pinned_bytes = true;
    limits.quota.pinned_bytes = 6 * MIB;
    gb_assert_ok(core_session_patch(f.core, "default", &limits, &err), err);
    gb_assert_ok(core_create(f.core, &p.buffer, &r, &err), err);
    reserve(&f, host, host ? 4 * MIB : 10 * MIB, &r);
    core_gate_close(&gate, &f, "default");
    core_call_begin(&c);
    gb_buffer_mirror_reserve(f.core, &m, &what, NULL, c.call.buffer);
    until_sides(&f, 0, 0);
    ck_assert(!core_call_over(&c));
    core_gate_open(&gate);
    gb_assert_ok(core_result_end(&c, &r, &err), err);
    expect_sides(&r.rec, host ? more : 0, host ? 0 : more);
    until_charged(&f, more, host ? more : 0);
    done(&f);
}
END_TEST

/* The device refuses the new memory after the free. */
START_TEST(a_growth_that_fails_leaves_the_side_empty) {
    static const char *const fails[] = {"alloc@2+", "kind_alloc@2+"};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct core_result r;
    char spec[80];

    snprintf(spec, sizeof(spec), "fault:%s=cudaErrorMemoryAllocation:host:bytes=16M", fails[_i]);
    core_fixture_init(&f, spec);
    gb_assert_ok(core_create(f.core, &p.buffer, &r, &err), err);
    reserve(&f, _i == 1, BYTES, &r);
    ck_assert_int_lt(core_reserve(f.core, "default", "m", _i == 1, MORE, NULL, &err), 0);
    ck_assert(err.code == GB_ERR_OUT_OF_MEMORY && gb_error_retryable(&err));
    ck_assert_ptr_nonnull(strstr(err.detail, "the side is empty: its 3000 bytes were freed before"));
    until_sides(&f, 0, 0);
    until_charged(&f, 0, 0);
    done(&f);
}
END_TEST

/* --- faults ------------------------------------------------------------------------------------------------------- */

/* The calls of the device that growing a side makes. alloc fails from then on, because it is tried again. */
static const struct fault {
    const char *op;
    bool host;
    bool lasts;
} faults[] = {
    {"kind_alloc", true, true},  {"alloc", false, true}, {"move", true, false},         {"copy", false, false},
    {"place_fill", true, false}, {"fill", false, false}, {"event_record", true, false}, {"event_record", false, false},
};
#define FAULTS 8

/* Returns whether the reserve failed. The buffer is then as it was. */
static bool try_fault(const struct fault *fault, unsigned n) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct gb_buffer_rec before;
    struct gb_buffer_rec after;
    struct core_result r;
    char want[BYTES];
    char spec[128];
    bool failed;

    snprintf(spec, sizeof(spec), "fault:%s@%u%s=%s:host:discrete,bytes=16M", fault->op, n, fault->lasts ? "+" : "",
             fault->lasts ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue");
    core_fixture_init(&f, spec);
    p.to_device_side = !fault->host;
    core_bytes(1, want, BYTES);
    if (core_upload(f.core, &p, want, NULL, &err) < 0) { /* it came too early */
        core_until_idle(&f);
        core_fixture_done(&f);
        return false;
    }
    before = look(&f);
    failed = core_reserve(f.core, "default", "m", fault->host, MORE, &r, &err) < 0;
    after = look(&f);
    ck_assert_uint_eq(after.sides[fault->host ? GB_SIDE_HOST : GB_SIDE_DEVICE].bytes, failed ? BYTES : MORE);
    ck_assert(after.head == before.head && after.generation == before.generation);
    ck_assert_int_eq(after.version, before.version + !failed);
    until_charged(&f, failed ? BYTES : MORE, !fault->host ? 0 : failed ? BYTES : MORE);
    if (failed) /* else it comes with a later call */
        core_expect(f.core, "default", "m", want, BYTES);
    if (failed && !fault->lasts) {
        reserve(&f, fault->host, MORE, &r);
        core_expect(f.core, "default", "m", want, BYTES);
    }
    done(&f);
    return failed;
}

START_TEST(a_failure_changes_nothing) {
    unsigned sum = 0;
    unsigned n;

    for (n = 1; n <= 6; n++)
        sum += try_fault(&faults[_i], n);
    ck_assert_msg(sum > 0, "%s never failed", faults[_i].op);
}
END_TEST

/* Whether the growth of a side without current bytes failed. The side then has its old memory, or none. */
static bool try_growth(const char *op, bool host, unsigned n) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct gb_buffer_rec after;
    struct core_result r;
    char spec[128];
    uint64_t bytes;
    bool failed;

    snprintf(spec, sizeof(spec), "fault:%s@%u=cudaErrorInvalidValue:host:discrete,bytes=16M", op, n);
    core_fixture_init(&f, spec);
    if (core_create(f.core, &p.buffer, &r, &err) < 0 ||
        core_reserve(f.core, "default", "m", host, BYTES, &r, &err) < 0) { /* it came too early */
        (void)core_buffer_delete(f.core, "default", "m", NULL);
        core_until_idle(&f);
        core_fixture_done(&f);
        return false;
    }
    failed = core_reserve(f.core, "default", "m", host, MORE, &r, &err) < 0;
    after = look(&f);
    bytes = after.sides[host ? GB_SIDE_HOST : GB_SIDE_DEVICE].bytes;
    ck_assert_msg(failed ? bytes == 0 || bytes == BYTES : bytes == MORE, "%s@%u: %llu bytes", op, n,
                  (unsigned long long)bytes);
    ck_assert(!failed || (bytes == 0) == (strstr(err.detail, "the side is empty") != NULL));
    reserve(&f, host, MORE, &r);
    done(&f);
    return failed;
}

START_TEST(a_fault_while_memory_without_current_bytes_grows) {
    static const char *const ops[] = {"event_record", "event_query", "watch", "free", "alloc", "fill"};
    static const char *const host_ops[] = {"event_record", "event_query", "watch",
                                           "kind_free",    "kind_alloc",  "place_fill"};
    unsigned n;

    for (n = 1; n <= 8; n++) {
        (void)try_growth(ops[_i], false, n);
        (void)try_growth(host_ops[_i], true, n);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_mirror_reserve");

    gb_test_add_loop(suite, "stays", memory_that_is_large_enough_stays, 60, SPECS);
    gb_test_add_loop(suite, "grows", growing_keeps_bytes, 60, SPECS);
    gb_test_add_loop(suite, "zeroes", a_sync_zeroes_what_was_reserved, 60, SPECS);
    gb_test_add_loop(suite, "refusals", refusals, 60, SPECS);
    gb_test_add_loop(suite, "mapped", a_mapped_side_does_not_grow, 60, SPECS);
    gb_test_add_loop(suite, "free", a_side_without_current_bytes_is_freed_first, 60, SPECS);
    gb_test_add_loop(suite, "free", a_stale_side_that_is_read, 60, SPECS);
    gb_test_add_loop(suite, "free", a_growth_waits_for_the_free, 60, 2 * SPECS);
    gb_test_add_loop(suite, "free", a_growth_that_fails_leaves_the_side_empty, 60, 2);
    gb_test_add_loop(suite, "faults", a_failure_changes_nothing, 60, FAULTS);
    gb_test_add_loop(suite, "faults", a_fault_while_memory_without_current_bytes_grows, 60, 6);
    return gb_test_run(suite);
}
