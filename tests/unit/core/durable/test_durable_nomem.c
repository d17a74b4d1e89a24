/* Durable buffers when malloc fails: every allocation of an upload, a restart and a load, on whatever thread, fails
 * once, in turn. What was acknowledged is there afterwards, and nothing else is left on the disk. */
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "durable_fixture.h"
#include "failing_malloc.h"
#include "gb_test.h"
#include "upload_group_fixture.h"

#ifdef GB_OWN_MALLOC

#define BYTES (GB_STORED_INLINE_BYTES + 3 * CORE_SLOT_BYTES + 100)
#define ALLOCATIONS 150

static const char *const specs[] = {"host:bytes=16M", "host:discrete,bytes=16M"};
static char data[2][BYTES];
static char back[BYTES];

/* ck_assert itself would need memory. */
static bool refused(int r, const struct gb_error *err) {
    if (r < 0 && err->code != GB_ERR_INTERNAL && err->code != GB_ERR_OUT_OF_MEMORY && err->code != GB_ERR_SATURATED &&
        err->code != GB_ERR_STORE_FAILED && err->code != GB_ERR_DEVICE_ERROR && err->code != GB_ERR_NOT_LOADED)
        ck_abort_msg("%s: %s", gb_code_slug(err->code), err->detail);
    return r < 0;
}

static int put(struct core_fixture *f, const char *name, int which, size_t n, struct gb_error *err) {
    struct gb_upload_params p = core_upload_params("default", name, n);

    p.buffer.has_durability = true;
    p.buffer.durability = GB_DURABILITY_SYNC;
    return core_upload(f->core, &p, data[which], NULL, err);
}

/* One of the two that were sent, and the second if that was acknowledged. */
static void check(struct core_fixture *f, const char *name, size_t n, bool second, long at) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_download(f->core, "default", name, 0, n, back, &err), err);
    ck_assert_msg(memcmp(back, data[1], n) == 0 || (!second && memcmp(back, data[0], n) == 0),
                  "allocation %ld: %s has other bytes", at, name);
}

static void check_files(struct core_fixture *f, long at) {
    char pattern[128];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "%s/data/[0-9a-f][0-9a-f]/*", f->store.dir);
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    ck_assert_msg(found.gl_pathc == 1, "allocation %ld: %zu files", at, found.gl_pathc);
    globfree(&found);
}

static unsigned play(const char *spec, long at) {
    struct core_fixture f;
    struct gb_error err[2] = {GB_ERROR_INIT, GB_ERROR_INIT};
    bool large;
    bool small;

    core_fixture_prepare(&f, spec);
    f.durable = true;
    core_fixture_open(&f);
    gb_assert_ok(put(&f, "large", 0, BYTES, &err[0]), err[0]);
    gb_assert_ok(put(&f, "small", 0, 1000, &err[0]), err[0]);
    atomic_store(&gb_allocations, at);
    large = !refused(put(&f, "large", 1, BYTES, &err[0]), &err[0]);
    small = !refused(put(&f, "small", 1, 1000, &err[1]), &err[1]);
    atomic_store(&gb_allocations, -1);
    check(&f, "large", BYTES, large, at);
    core_fixture_close(&f);
    core_fixture_open(&f);
    check(&f, "large", BYTES, large, at);
    check(&f, "small", 1000, small, at);
    check_files(&f, at);
    core_fixture_done(&f);
    return !large + !small;
}

START_TEST(each_allocation_of_a_change_fails_once) {
    unsigned failed = 0;
    long at;

    core_bytes(1, data[0], BYTES);
    core_bytes(2, data[1], BYTES);
    for (at = 0; at < ALLOCATIONS; at += gb_test_stride())
        failed += play(specs[_i], at);
    ck_assert_uint_gt(failed * gb_test_stride(), 10);
}
END_TEST

static bool is_stored(struct core_fixture *f, const char *name) {
    struct gb_buffer_rec rec = durable_get(f, name);

    return rec.stored_generation == rec.generation;
}

/* What came in one change is stored as a whole, or not at all. */
START_TEST(each_allocation_of_a_store_fails_once) {
    static const struct core_part list[] = {{"a", BYTES}, {"b", 1000}};
    static const enum gb_durability behind[] = {GB_DURABILITY_BEHIND, GB_DURABILITY_BEHIND};
    const struct core_parts parts = {list, 2, GB_KIND_DEVICE};
    static char both[BYTES + 1000];
    struct gb_error err = GB_ERROR_INIT;
    unsigned failed = 0;
    struct core_fixture f;
    long at;
    bool ok;

    durable_open(&f, specs[_i]);
    for (at = 0; at < ALLOCATIONS; at += gb_test_stride()) {
        gb_assert_ok(core_joint_durable(f.core, &parts, behind, both, &err), err);
        atomic_store(&gb_allocations, at);
        ok = !refused(durable_do(&f, gb_buffer_store, "a", NULL, &err), &err);
        atomic_store(&gb_allocations, -1);
        failed += !ok;
        ck_assert_msg(is_stored(&f, "a") == ok && is_stored(&f, "b") == ok, "allocation %ld", at);
        err = GB_ERROR_INIT;
    }
    ck_assert_uint_gt(failed, 2);
    core_fixture_done(&f);
}
END_TEST

/* A read of what is on disk alone, whose every allocation fails once; then it is read as if nothing had been. */
START_TEST(each_allocation_of_a_read_fails_once) {
    struct gb_error err = GB_ERROR_INIT;
    unsigned failed = 0;
    struct core_fixture f;
    long at;

    core_bytes(2, data[1], BYTES);
    core_fixture_prepare(&f, specs[_i]);
    f.durable = true;
    core_fixture_open(&f);
    gb_assert_ok(put(&f, "large", 1, BYTES, &err), err);
    for (at = 0; at < ALLOCATIONS / 2; at++) {
        core_fixture_close(&f);
        core_fixture_open(&f);
        atomic_store(&gb_allocations, at);
        failed += refused(core_download(f.core, "default", "large", 0, BYTES, back, &err), &err);
        atomic_store(&gb_allocations, -1);
        err = GB_ERROR_INIT;
        check(&f, "large", BYTES, true, at);
    }
    core_fixture_done(&f);
    ck_assert_uint_gt(failed, 1);
}
END_TEST

int main(void) {
    /* A GPU's driver dies of a malloc that fails, and this is about ours. */
    Suite *suite = (unsetenv("GB_TEST_BACKEND"), suite_create("durable_nomem"));
    TCase *tc = tcase_create("once");

    tcase_add_loop_test(tc, each_allocation_of_a_change_fails_once, 0, 2);
    tcase_add_loop_test(tc, each_allocation_of_a_store_fails_once, 0, 2);
    tcase_add_loop_test(tc, each_allocation_of_a_read_fails_once, 0, 2);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}

#else

int main(void) {
    return 77; /* skipped, to Automake: the sanitizers bring a malloc of their own */
}

#endif
