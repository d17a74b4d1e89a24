/* Bytes that leave memory on request, one buffer's or a session's, and come back. */
#include <stdio.h>
#include <string.h>

#include "durable_fixture.h"
#include "gb_test.h"

#define LARGE DURABLE_LARGE

static uint64_t used(struct core_fixture *f) {
    const struct gb_name name = {"default"};
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_view view;

    gb_assert_ok(gb_session_get(f->core, &name, &view, &err), err);
    gb_session_rec_done(&view.rec);
    return view.used_bytes;
}

typedef void sweep_fn(struct gb_core *core, const struct gb_name *session, const struct gb_name *prefix,
                      struct gb_sweep_call *call);

/* The caller drops it. */
static struct gb_sweep_call *sweep(struct core_fixture *f, sweep_fn *fn, const char *prefix) {
    const struct gb_name session = {"default"};
    const struct gb_name begin = core_name(prefix);
    struct core_wake wake;
    struct gb_sweep_call *call;

    core_wake_init(&wake);
    call = gb_call_new(sizeof(*call), core_wake, &wake);
    fn(f->core, &session, &begin, call);
    core_wake_wait(&wake);
    ck_assert_int_eq(call->base.error.code, GB_OK);
    core_wake_done(&wake);
    return call;
}

static void check_one(const char *spec, enum gb_durability durability) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec before;
    struct gb_buffer_rec after;
    struct core_fixture f;

    durable_open(&f, spec);
    durable_put_ok(&f, "x", 1, LARGE, durability);
    before = durable_get(&f, "x");
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "x", NULL, &err), err);
    after = durable_get(&f, "x");
    ck_assert_int_eq(after.state, GB_BUFFER_STORED);
    ck_assert_int_eq(after.generation, before.generation);
    ck_assert_int_eq(after.run, before.run);
    ck_assert_int_eq(after.stored_generation, durability == GB_DURABILITY_NONE ? 0 : before.generation);
    ck_assert_uint_eq(used(&f), 0);
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "x", NULL, &err), err); /* again: nothing to do */
    durable_assert_bytes(&f, "x", 1, LARGE);
    ck_assert_uint_eq(used(&f), 0);
    gb_call_unref(&sweep(&f, gb_session_load, "")->base);
    ck_assert_int_eq(durable_get(&f, "x").state, GB_BUFFER_READY);
    ck_assert_uint_eq(used(&f), LARGE);
    durable_assert_bytes(&f, "x", 1, LARGE);
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "x", NULL, &err), err);
    durable_put_ok(&f, "x", 2, LARGE, durability); /* over bytes that are on disk alone */
    durable_assert_bytes(&f, "x", 2, LARGE);
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "x", NULL, &err), err);
    core_fixture_close(&f);
    core_fixture_open(&f);
    ck_assert_int_eq(durable_get(&f, "x").state, durability == GB_DURABILITY_NONE ? GB_BUFFER_LOST : GB_BUFFER_STORED);
    core_fixture_done(&f);
}

START_TEST(test_one) {
    check_one("host", GB_DURABILITY_NONE);
    check_one("host", GB_DURABILITY_BEHIND);
    check_one("host", GB_DURABILITY_SYNC);
    check_one("host:discrete", GB_DURABILITY_NONE);
    check_one("host:discrete", GB_DURABILITY_SYNC);
}
END_TEST

START_TEST(test_small_bytes_stay) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    durable_open(&f, "host");
    durable_put_ok(&f, "x", 1, 1000, GB_DURABILITY_NONE);
    ck_assert_int_eq(durable_do(&f, gb_buffer_evict, "x", NULL, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    durable_put_ok(&f, "y", 1, 1000, GB_DURABILITY_SYNC);
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "y", NULL, &(struct gb_error){0}), err);
    durable_assert_bytes(&f, "y", 1, 1000);
    core_fixture_done(&f);
}
END_TEST

/* What reads has the bytes until it ends. */
START_TEST(test_bytes_in_use_stay) {
    struct gb_error err = GB_ERROR_INIT;
    const struct gb_name session = {"default"};
    const struct gb_name name = {"x"};
    struct gb_download *download;
    struct core_fixture f;
    struct core_wake wake;

    durable_open(&f, "host");
    core_wake_init(&wake);
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_SYNC);
    gb_assert_ok(gb_download_open(f.core, &session, &name, &session, core_waker(&wake), &download, &err), err);
    ck_assert_int_eq(durable_do(&f, gb_buffer_evict, "x", NULL, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_BUFFER_BUSY);
    gb_download_free(download, false);
    err = GB_ERROR_INIT;
    gb_assert_ok(durable_do(&f, gb_buffer_evict, "x", NULL, &err), err);
    core_wake_done(&wake);
    core_fixture_done(&f);
}
END_TEST

/* More than go at one time, some of them not at all. */
START_TEST(test_session) {
    struct gb_sweep_call *call;
    struct core_fixture f;
    char name[16];
    int i;

    durable_open(&f, "host");
    for (i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "%s%d", i % 2 ? "odd" : "even", i);
        durable_put_ok(&f, name, (unsigned)i, 100000, i % 4 ? GB_DURABILITY_NONE : GB_DURABILITY_SYNC);
    }
    durable_put_ok(&f, "odd.small", 1, 10, GB_DURABILITY_NONE);
    call = sweep(&f, gb_session_evict, "odd");
    ck_assert_uint_eq(call->buffers, 20);
    ck_assert_uint_eq(call->bytes, 20 * 100000);
    ck_assert_uint_eq(call->skipped, 1);
    ck_assert_uint_eq(call->listed_count, 1);
    ck_assert_str_eq(call->listed[0].name.s, "odd.small");
    ck_assert_int_eq(call->listed[0].code, GB_ERR_INVALID_ARGUMENT);
    gb_call_unref(&call->base);
    ck_assert_uint_eq(used(&f), 20 * 100000 + 10);
    call = sweep(&f, gb_session_evict, "");
    ck_assert_uint_eq(call->buffers, 20);
    gb_call_unref(&call->base);
    ck_assert_uint_eq(used(&f), 10);
    call = sweep(&f, gb_session_load, "");
    ck_assert_uint_eq(call->buffers, 40);
    ck_assert_uint_eq(call->skipped, 0);
    gb_call_unref(&call->base);
    for (i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "%s%d", i % 2 ? "odd" : "even", i);
        ck_assert_int_eq(durable_get(&f, name).state, GB_BUFFER_READY);
        durable_assert_bytes(&f, name, (unsigned)i, 100000);
    }
    core_fixture_done(&f);
}
END_TEST

/* The disk takes nothing: the bytes stay where they are. */
START_TEST(test_no_room_on_disk) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_fixture f;

    core_fixture_prepare(&f, "host");
    f.durable = true;
    f.disk_faults = "fallocate=ENOSPC";
    core_fixture_open(&f);
    durable_put_ok(&f, "x", 1, LARGE, GB_DURABILITY_NONE);
    ck_assert_int_eq(durable_do(&f, gb_buffer_evict, "x", NULL, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_STORAGE_FULL);
    ck_assert_int_eq(durable_get(&f, "x").state, GB_BUFFER_READY);
    durable_assert_bytes(&f, "x", 1, LARGE);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("evict");

    gb_test_add(suite, "one", test_one, 60);
    gb_test_add(suite, "small bytes", test_small_bytes_stay, 60);
    gb_test_add(suite, "bytes in use", test_bytes_in_use_stay, 60);
    gb_test_add(suite, "session", test_session, 60);
    gb_test_add(suite, "no room on disk", test_no_room_on_disk, 60);
    return gb_test_run(suite);
}
