/* The ceiling of page-locked memory: what counts against it, what a refusal says, and that all of it comes back. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "adopt_fixture.h"
#include "gb_test.h"

#define MIB (1u << 20)
#define PAGE 4096u

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

static uint64_t slots(struct core_fixture *f) {
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    return stats.slots_total * stats.slot_bytes;
}

static uint64_t pinned(struct core_fixture *f) {
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    return stats.pinned_bytes - slots(f);
}

static bool nothing_pinned(void *arg) {
    return pinned(arg) == 0;
}

/* room: beside the slots. */
static void open_with(struct core_fixture *f, const char *spec, uint64_t room) {
    core_fixture_prepare(f, spec);
    f->config.pinned_bytes_max = room + CORE_SLOTS * CORE_SLOT_BYTES;
    core_fixture_open(f);
}

static void close_empty(struct core_fixture *f) {
    core_until(nothing_pinned, f, "nothing is pinned");
    core_until_idle(f);
    core_fixture_done(f);
}

static void expect_refusal(struct core_fixture *f, const struct gb_error *err, uint64_t used, uint64_t requested) {
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    ck_assert_int_eq(err->code, GB_ERR_PINNED_LIMIT);
    ck_assert_ptr_nonnull(strstr(gb_code_title(err->code), "host"));
    ck_assert_ptr_null(strstr(gb_code_title(err->code), "pool"));
    ck_assert_ptr_nonnull(strstr(err->detail, "--max-pinned-bytes"));
    ck_assert_uint_eq(err->limit_bytes, stats.pinned_limit_bytes);
    ck_assert_uint_eq(err->used_bytes, used + slots(f));
    ck_assert_uint_eq(err->requested_bytes, requested);
}

START_TEST(buffers_and_host_sides_count) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params p = core_kind_params("a", GB_KIND_PINNED, MIB - 1);
    struct gb_upload_params u = core_upload_params("default", "m", MIB);
    struct gb_core_stats stats;
    static char data[MIB];

    open_with(&f, specs[_i], 2 * MIB);
    gb_assert_ok(core_create(f.core, &p, NULL, &err), err);
    ck_assert_uint_eq(pinned(&f), MIB); /* a page counts whole */
    u.buffer.mirrored = true;
    gb_assert_ok(core_upload(f.core, &u, data, NULL, &err), err);
    ck_assert_uint_eq(pinned(&f), 2 * MIB);
    p.name = core_name("b");
    p.bytes = 1;
    core_create(f.core, &p, NULL, &err);
    expect_refusal(&f, &err, 2 * MIB, PAGE);
    ck_assert(gb_error_retryable(&err));
    ck_assert_ptr_nonnull(strstr(err.detail, "delete pinned buffers"));
    ck_assert_ptr_nonnull(strstr(err.detail, "use kind \"pageable\""));
    err = GB_ERROR_INIT;
    u = core_upload_params("default", "m2", 1);
    u.buffer.mirrored = true;
    ck_assert_int_eq(gb_upload_check(f.core, &u, &err), -1);
    expect_refusal(&f, &err, 2 * MIB, PAGE);
    ck_assert_ptr_null(strstr(err.detail, "pageable")); /* a host side has no other kind */
    err = GB_ERROR_INIT;
    u = core_upload_params("default", "a", 1);
    ck_assert_int_eq(gb_upload_check(f.core, &u, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.detail, "a write in place needs no second copy"));
    err = GB_ERROR_INIT;
    u = core_upload_params("default", "c", 1);
    u.buffer.kind = GB_KIND_PINNED;
    ck_assert_int_eq(gb_upload_check(f.core, &u, &err), -1); /* before the body is sent */
    expect_refusal(&f, &err, 2 * MIB, PAGE);
    err = GB_ERROR_INIT;
    p.kind = GB_KIND_PAGEABLE;
    gb_assert_ok(core_create(f.core, &p, NULL, &err), err);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.counters.allocation_failures_pinned_limit_reached, 4);
    ck_assert_uint_eq(stats.counters.allocation_failures_limit_reached, 0);
    ck_assert_uint_eq(stats.kind_memory[GB_KIND_PINNED].failure[GB_FAILURE_pinned_limit_reached], 4);
    ck_assert_uint_eq(stats.kind_memory[GB_KIND_PINNED].failures, 4);
    gb_assert_ok(core_buffer_delete(f.core, "default", "m", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    core_until(nothing_pinned, &f, "nothing is pinned");
    p = core_kind_params("a", GB_KIND_PINNED, 2 * MIB + 1);
    core_create(f.core, &p, NULL, &err);
    expect_refusal(&f, &err, 0, 2 * MIB + PAGE);
    err = GB_ERROR_INIT;
    p.bytes = 2 * MIB;
    gb_assert_ok(core_create(f.core, &p, NULL, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    close_empty(&f);
}
END_TEST

/* More than the limit leaves beside the slots never fits, also where the limit itself is larger. */
START_TEST(too_large_is_not_to_be_repeated) {
    static const uint64_t sizes[] = {64 * MIB, MIB + 1};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params p = core_kind_params("a", GB_KIND_PINNED, 0);
    size_t i;

    open_with(&f, specs[_i], MIB);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        err = GB_ERROR_INIT;
        p.bytes = sizes[i];
        ck_assert_int_eq(core_create(f.core, &p, NULL, &err), -1);
        expect_refusal(&f, &err, 0, (sizes[i] + PAGE - 1) / PAGE * PAGE);
        ck_assert(!gb_error_retryable(&err));
        ck_assert_ptr_null(strstr(err.detail, "delete"));
        ck_assert_int_eq(strstr(err.detail, "--slots-bytes") != NULL, slots(&f) > 0);
    }
    close_empty(&f);
}
END_TEST

START_TEST(no_limit_unless_given) {
    struct core_fixture f;
    struct gb_core_stats stats;

    core_fixture_init(&f, specs[_i]);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.pinned_limit_bytes, GB_UNLIMITED);
    ck_assert_uint_eq(stats.pinned_bytes, stats.slots_total * stats.slot_bytes);
    core_fixture_done(&f);
}
END_TEST

START_TEST(slots_must_fit) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_prepare(&f, "host:discrete,bytes=64M");
    f.config.backend = f.backend;
    f.config.store = f.store.store;
    f.config.pinned_bytes_max = CORE_SLOTS * CORE_SLOT_BYTES - 1;
    gb_assert_fails(gb_core_open(&f.config, &f.core, &err), err, GB_ERR_PINNED_LIMIT);
    f.core = NULL;
    core_fixture_done(&f);
}
END_TEST

START_TEST(adopted_memory_counts_where_it_is_locked) {
    struct core_memory m = core_memory_new(MIB, F_SEAL_SHRINK);
    struct core_memory more = core_memory_new(1, F_SEAL_SHRINK);
    struct core_memory open_file = core_memory_new(MIB, 0);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_adopt_params p;
    struct core_result got;
    struct gb_holder *h;

    open_with(&f, specs[_i], MIB);
    h = core_holder(f.core);
    p = core_adopt_params(h, &open_file, "a", 0, MIB);
    gb_assert_fails(core_adopt(f.core, &p, NULL, &err), err, GB_ERR_CANNOT_ADOPT);
    core_until(nothing_pinned, &f, "the refused memory does not count");
    p = core_adopt_params(h, &m, "a", 0, MIB);
    gb_assert_ok(core_adopt(f.core, &p, &got, &err), err);
    ck_assert_uint_eq(pinned(&f), got.rec.kind == GB_KIND_PINNED ? MIB : 0);
    if (got.rec.kind == GB_KIND_PINNED) {
        p = core_adopt_params(h, &more, "b", 0, 1);
        ck_assert_int_eq(gb_adopt_check(f.core, &p, &err), -1);
        expect_refusal(&f, &err, MIB, PAGE);
        err = GB_ERROR_INIT;
        ck_assert_int_eq(core_adopt(f.core, &p, NULL, &err), -1);
        expect_refusal(&f, &err, MIB, PAGE);
    }
    gb_holder_end(h);
    core_until_none_adopted(&f);
    core_until(nothing_pinned, &f, "nothing is pinned");
    err = GB_ERROR_INIT;
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    close_empty(&f);
    core_memory_done(&m);
    core_memory_done(&more);
    core_memory_done(&open_file);
}
END_TEST

/* --- failures ----------------------------------------------------------------------------------------------------- */

static const char *const faults[] = {
    "kind_alloc+=cudaErrorMemoryAllocation", "kind_alloc+=cudaErrorInvalidValue",
    "kind_free@1=cudaErrorInvalidValue",     "place_fill@1=cudaErrorInvalidValue",
    "event_record+=cudaErrorInvalidValue",   "stream_create+=cudaErrorInvalidValue",
    "move@1=cudaErrorInvalidValue",          "copy@1=cudaErrorInvalidValue",
};
#define FAULTS ((int)(sizeof(faults) / sizeof(faults[0])))

START_TEST(failures_give_it_back) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params p = core_kind_params("a", GB_KIND_PINNED, 5000);
    struct gb_upload_params u = core_upload_params("default", "b", 5000);
    char data[5000] = {0};
    char spec[128];

    snprintf(spec, sizeof(spec), "fault:%s:%s", faults[_i / SPECS], specs[_i % SPECS]);
    open_with(&f, spec, MIB);
    (void)core_create(f.core, &p, NULL, &err);
    err = GB_ERROR_INIT;
    u.buffer.kind = GB_KIND_PINNED;
    (void)core_upload(f.core, &u, data, NULL, &err);
    err = GB_ERROR_INIT;
    (void)core_upload(f.core, &u, data, NULL, &err); /* replaces the first */
    err = GB_ERROR_INIT;
    (void)core_buffer_delete(f.core, "default", "a", &err);
    err = GB_ERROR_INIT;
    (void)core_buffer_delete(f.core, "default", "b", &err);
    close_empty(&f);
}
END_TEST

START_TEST(a_failed_import_gives_it_back) {
    struct core_memory m = core_memory_new(MIB, F_SEAL_SHRINK);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_adopt_params p;
    struct gb_holder *h;
    char spec[128];

    snprintf(spec, sizeof(spec), "fault:import@1=cudaErrorMemoryAllocation,import_end@1=cudaErrorInvalidValue:%s",
             specs[_i]);
    open_with(&f, spec, MIB);
    h = core_holder(f.core);
    p = core_adopt_params(h, &m, "a", 0, MIB);
    gb_assert_fails(core_adopt(f.core, &p, NULL, &err), err, GB_ERR_OUT_OF_MEMORY);
    core_until(nothing_pinned, &f, "nothing is pinned");
    gb_assert_ok(core_adopt(f.core, &p, NULL, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_holder_end(h);
    close_empty(&f);
    core_memory_done(&m);
}
END_TEST

START_TEST(slots_that_are_not_had_give_it_back) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_prepare(&f, "fault:pin_alloc@1=cudaErrorMemoryAllocation:host:discrete,bytes=64M");
    f.config.backend = f.backend;
    f.config.store = f.store.store;
    gb_assert_fails(gb_core_open(&f.config, &f.core, &err), err, GB_ERR_OUT_OF_MEMORY);
    f.core = NULL;
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_pinned");

    gb_test_add_loop(suite, "count", buffers_and_host_sides_count, 60, SPECS);
    gb_test_add_loop(suite, "large", too_large_is_not_to_be_repeated, 60, SPECS);
    gb_test_add_loop(suite, "no_limit", no_limit_unless_given, 60, SPECS);
    gb_test_add(suite, "slots", slots_must_fit, 60);
    gb_test_add(suite, "no_slots", slots_that_are_not_had_give_it_back, 60);
    gb_test_add_loop(suite, "adopted", adopted_memory_counts_where_it_is_locked, 60, SPECS);
    gb_test_add_loop(suite, "faults", failures_give_it_back, 60, SPECS * FAULTS);
    gb_test_add_loop(suite, "import", a_failed_import_gives_it_back, 60, SPECS);
    return gb_test_run(suite);
}
