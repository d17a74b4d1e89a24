/* Holds: a stream stands for a while, others continue, and no hold outlives the daemon's stop. */
#include <stdio.h>

#include "core_pools.h"
#include "gb_test.h"

#define LONG_MS GB_HOLD_MS_MAX

static const char *const specs[] = {"host:bytes=64M", "host:discrete,devices=2,bytes=64M"};

static int hold(struct core_fixture *f, const char *stream, int device, uint64_t ms, struct gb_error *err) {
    struct gb_locator at = core_at("default", stream);

    return core_do(err, hold, gb_stream_hold_call, f->core, &at, device, ms);
}

static bool busy(struct core_fixture *f, const char *stream) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_stream_view view;

    gb_assert_ok(core_stream_get(f->core, "default", stream, &view, &err), err);
    return view.busy;
}

START_TEST(a_hold_holds_one_stream_and_ends_at_the_stop) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_locator at = core_at("default", "a");
    struct core_call sync;
    char data[1000];

    core_fixture_init(&f, specs[_i]);
    gb_assert_ok(core_stream_make(f.core, "default", "a", &err), err);
    gb_assert_ok(hold(&f, "a", 0, LONG_MS, &err), err);
    ck_assert(busy(&f, "a"));
    core_call_begin(&sync);
    gb_stream_sync_call(f.core, &at, sync.call.base);
    gb_assert_fails(hold(&f, "a", 0, 1, &err), err, GB_ERR_STREAM_HELD);
    core_bytes(1, data, sizeof(data));
    gb_assert_ok(core_upload_on(f.core, "default", "x", "", "", data, sizeof(data), &err), err);
    gb_assert_ok(core_stream_sync(f.core, "default", "", &err), err);
    ck_assert(!core_call_over(&sync));
    gb_holds_release(f.core);
    gb_assert_ok(core_call_end(&sync, &err), err);
    gb_assert_fails(hold(&f, "a", 0, 1, &err), err, GB_ERR_DRAINING);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

struct again {
    struct core_fixture *f;
    int device;
};

/* The stream runs a moment before its hold is forgotten. */
static bool held_again(void *arg) {
    struct again *again = arg;
    struct gb_error err = GB_ERROR_INIT;
    int r = hold(again->f, "default", again->device, 1, &err);

    ck_assert(r == 0 || err.code == GB_ERR_STREAM_HELD);
    return r == 0;
}

/* Each device's part by itself, again and again. */
START_TEST(a_hold_ends_by_itself) {
    struct core_fixture f;
    struct again again = {.f = &f};
    struct gb_error err = GB_ERROR_INIT;
    int i;

    core_fixture_init(&f, specs[_i]);
    for (i = 0; i < 5; i++) {
        for (again.device = 0; again.device <= _i && again.device < gb_device_count(f.core); again.device++)
            core_until(held_again, &again, "it is held");
        gb_assert_ok(core_stream_sync(f.core, "default", "", &err), err);
    }
    core_fixture_done(&f);
}
END_TEST

/* A stream that is deleted goes when its hold ends; the core closes with holds. */
START_TEST(limits) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    char name[8];
    unsigned i;

    core_fixture_init(&f, specs[0]);
    gb_assert_fails(hold(&f, "default", 0, 0, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(hold(&f, "default", 0, GB_HOLD_MS_MAX + 1, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(hold(&f, "default", 1, 1, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    gb_assert_fails(hold(&f, "none", 0, 1, &err), err, GB_ERR_STREAM_NOT_FOUND);
    for (i = 0; i < GB_HOLDS_MAX; i++) {
        snprintf(name, sizeof(name), "s%u", i);
        gb_assert_ok(core_stream_make(f.core, "default", name, &err), err);
        gb_assert_ok(hold(&f, name, 0, LONG_MS, &err), err);
    }
    gb_assert_fails(hold(&f, "default", 0, 1, &err), err, GB_ERR_SATURATED);
    gb_assert_ok(core_stream_remove(f.core, "default", "s0", &err), err);
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_device_that_refuses) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_init(&f, "fault:stream_hold@1=cudaErrorInvalidValue:host:bytes=64M");
    gb_assert_fails(hold(&f, "default", 0, LONG_MS, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_ok(core_stream_sync(f.core, "default", "", &err), err);
    gb_assert_ok(hold(&f, "default", 0, 1, &err), err);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_hold");
    TCase *tc = tcase_create("hold");

    tcase_add_loop_test(tc, a_hold_holds_one_stream_and_ends_at_the_stop, 0, 2);
    tcase_add_loop_test(tc, a_hold_ends_by_itself, 0, 2);
    tcase_add_test(tc, limits);
    tcase_add_test(tc, a_device_that_refuses);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
