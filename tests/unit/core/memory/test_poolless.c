/* A device without memory pools beside one that has them: its buffers are of another kind, and what needs a pool is
 * refused with the reason. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "adopt_fixture.h"
#include "core_pools.h"
#include "gb_test.h"

static const char *const specs[] = {"host:devices=2,poolless=0,bytes=64M", "host:devices=2,poolless=1,bytes=64M",
                                    "host:discrete,devices=2,poolless=0,bytes=64M"};
#define SPECS 3

#define BYTES (3 * CORE_SLOT_BYTES + 123)

static char data[BYTES];
static char back[BYTES];

/* The device without pools. */
static int lacking(int spec) {
    return spec == 1 ? 1 : 0;
}

/* "default.1", "default" */
static const char *own_pool(int device) {
    return device == 0 ? "default" : "default.1";
}

static struct gb_buffer_params plain(const char *name, int device) {
    struct gb_buffer_params p = core_kind_params(name, GB_KIND_DEVICE, BYTES);

    p.has_kind = false;
    p.has_device = true;
    p.device = device;
    return p;
}

static void expect_reason(struct gb_error *err) {
    ck_assert_msg(err->code == GB_ERR_UNSUPPORTED, "%s: %s", gb_code_slug(err->code), err->detail);
    ck_assert_ptr_nonnull(strstr(err->detail, "the device has no memory pools"));
    *err = GB_ERROR_INIT;
}

START_TEST(its_buffers_are_of_another_kind) {
    int none = lacking(_i);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_buffer_params p = plain("b", none);
    struct core_result got;
    struct gb_buffer_rec rec;
    int device;

    core_fixture_init(&f, specs[_i]);
    core_bytes(1, data, BYTES);
    for (device = 0; device < 2; device++) {
        enum gb_kind usual = device == none ? GB_KIND_IPC : GB_KIND_DEVICE;

        u.buffer.has_device = true;
        u.buffer.device = device;
        gb_assert_ok(core_upload(f.core, &u, data, &rec, &err), err);
        ck_assert(rec.kind == usual && rec.device == device);
        ck_assert_str_eq(rec.pool.s, device == none ? "" : own_pool(device));
        gb_assert_ok(core_upload(f.core, &u, data, &rec, &err), err);
        gb_assert_ok(core_download(f.core, "default", "a", 0, BYTES, back, &err), err);
        ck_assert_int_eq(memcmp(data, back, BYTES), 0);
        p = plain("b", device);
        gb_assert_ok(core_create(f.core, &p, &got, &err), err);
        ck_assert(got.rec.kind == usual && got.rec.device == device);
        gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
        gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    }
    p = core_kind_params("c", GB_KIND_MANAGED, BYTES); /* a kind that is named is that one */
    p.has_device = true;
    p.device = none;
    gb_assert_ok(core_create(f.core, &p, &got, &err), err);
    ck_assert_int_eq(got.rec.kind, GB_KIND_MANAGED);
    gb_assert_ok(core_buffer_delete(f.core, "default", "c", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* Its device side is of the device's own memory. */
START_TEST(a_mirrored_buffer) {
    int none = lacking(_i);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params p = plain("m", none);
    struct gb_upload_params u = core_upload_params("default", "m", BYTES);
    struct core_result r;

    core_fixture_init(&f, specs[_i]);
    p.mirrored = true;
    gb_assert_ok(core_create(f.core, &p, &r, &err), err);
    ck_assert(r.rec.mirrored && r.rec.kind == GB_KIND_IPC && r.rec.pool.s[0] == '\0');
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    ck_assert(r.rec.head == GB_HEAD_DEVICE && !r.copied && r.rec.kind == GB_KIND_IPC);
    core_bytes(1, data, BYTES);
    gb_assert_ok(core_upload(f.core, &u, data, NULL, &err), err);
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    ck_assert(r.copied && r.rec.sides[GB_SIDE_DEVICE].bytes == BYTES);
    gb_assert_ok(core_release(f.core, "default", "m", true, false, &r, &err), err);
    core_expect(f.core, "default", "m", data, BYTES);
    gb_assert_ok(core_reserve(f.core, "default", "m", false, 2 * BYTES, &r, &err), err);
    ck_assert(r.rec.head == GB_HEAD_DEVICE && r.rec.sides[GB_SIDE_DEVICE].bytes == 2 * BYTES);
    core_expect(f.core, "default", "m", data, BYTES);
    p.has_kind = true;
    p.kind = GB_KIND_MANAGED;
    p.name = core_name("n");
    gb_assert_fails(core_create(f.core, &p, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.kind = GB_KIND_IPC;
    p.device = 1 - none;
    gb_assert_fails(core_create(f.core, &p, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_ok(core_buffer_delete(f.core, "default", "m", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(what_needs_a_pool_is_refused) {
    int none = lacking(_i);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_pool_params pool = core_pool_params("default", "p", none, 0);
    struct gb_buffer_params p = plain("b", none);
    struct gb_pool_view view;

    core_fixture_init(&f, specs[_i]);
    p.has_kind = true;
    ck_assert_int_eq(core_create(f.core, &p, NULL, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.detail, "\"ipc\""));
    expect_reason(&err);
    p.mirrored = true;
    ck_assert_int_eq(core_create(f.core, &p, NULL, &err), -1);
    expect_reason(&err);
    u.buffer.has_device = true;
    u.buffer.device = none;
    u.buffer.has_kind = true;
    ck_assert_int_eq(core_upload(f.core, &u, data, NULL, &err), -1);
    expect_reason(&err);
    ck_assert_int_eq(gb_upload_check(f.core, &u, &err), -1);
    expect_reason(&err);
    u.buffer.mirrored = true;
    ck_assert_int_eq(core_upload(f.core, &u, data, NULL, &err), -1);
    expect_reason(&err);
    ck_assert_int_eq(core_upload_on(f.core, "default", "a", "", own_pool(none), data, 100, &err), -1);
    expect_reason(&err);
    ck_assert_int_eq(core_pool_make(f.core, &pool, NULL, &err), -1);
    expect_reason(&err);
    ck_assert_int_eq(core_pool_get(f.core, "default", own_pool(none), &view, &err), -1);
    expect_reason(&err);
    ck_assert_int_eq(core_pool_trim(f.core, "default", own_pool(none), 0, NULL, &err), -1);
    expect_reason(&err);
    ck_assert_int_eq(core_pool_reset(f.core, "default", own_pool(none), &err), -1);
    expect_reason(&err);
    ck_assert_int_eq(core_pool_peer(f.core, "default", own_pool(none), 1 - none, GB_POOL_ACCESS_READ_WRITE, &err), -1);
    expect_reason(&err);
    pool.rec.name = core_name(own_pool(none));
    ck_assert_int_eq(core_pool_patch(f.core, &pool, NULL, &err), -1);
    expect_reason(&err);
    ck_assert_int_eq(core_pool_remove(f.core, "default", own_pool(none), true, &err), -1);
    expect_reason(&err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(memory_of_another_process) {
    struct core_memory m = core_memory_new(BYTES, F_SEAL_SHRINK);
    int none = lacking(_i);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_adopt_params p;
    struct core_result r;
    struct gb_holder *h;

    core_fixture_init(&f, specs[_i]);
    h = core_holder(f.core);
    p = core_adopt_params(h, &m, "a", 0, BYTES);
    p.import.device = none;
    p.has_side = true;
    p.side = GB_SIDE_HOST;
    gb_assert_ok(core_adopt(f.core, &p, NULL, &err), err);
    gb_assert_ok(core_sync(f.core, "default", "a", false, &r, &err), err);
    ck_assert(r.rec.adopted && r.rec.kind == GB_KIND_IPC && r.rec.head == GB_HEAD_SYNCED && r.rec.device == none);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_until_none_adopted(&f);
    p.has_side = false;
    gb_assert_ok(core_adopt(f.core, &p, NULL, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_holder_end(h);
    core_until_none_adopted(&f);
    core_until_idle(&f);
    core_fixture_done(&f);
    core_memory_done(&m);
}
END_TEST

static int note_pool(void *arg, const struct gb_pool_view *view, struct gb_error *err) {
    (void)err;
    strcat(arg, view->rec.name.s);
    strcat(arg, " ");
    return 0;
}

START_TEST(lists_and_numbers_leave_it_out) {
    int has = 1 - lacking(_i);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name session = core_name("default");
    struct gb_pool_params pool = core_pool_params("default", "q", has, 0);
    struct gb_page page = {.limit = 100};
    struct gb_device_numbers numbers;
    struct gb_pool_view view;
    char names[256] = "";
    char want[64] = "";

    core_fixture_init(&f, specs[_i]);
    ck_assert_uint_eq(gb_pool_count(f.core), 1);
    gb_assert_ok(gb_pool_at(f.core, 0, &view, &err), err);
    ck_assert_str_eq(view.rec.name.s, own_pool(has));
    gb_assert_fails(gb_pool_at(f.core, 1, &view, &err), err, GB_ERR_POOL_NOT_FOUND);
    gb_assert_ok(core_pool_make(f.core, &pool, NULL, &err), err);
    gb_assert_ok(gb_pool_list(f.core, &session, &page, note_pool, names, &err), err);
    strcat(strcat(want, own_pool(has)), " q ");
    ck_assert_str_eq(names, want);
    gb_assert_ok(gb_device_numbers(f.core, lacking(_i), &numbers, &err), err);
    ck_assert_uint_eq(numbers.pools, 0);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* Its memory is the device's all the same, and one buffer waits for another's. */
START_TEST(memory_runs_out_and_comes_back) {
    int none = lacking(_i);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params p = plain("a", none);
    struct core_call pending;

    core_fixture_init(&f, specs[_i]);
    p.bytes = p.shape.dim[0] = 40 << 20;
    gb_assert_ok(core_create(f.core, &p, NULL, &err), err);
    p.name = core_name("b");
    gb_assert_fails(core_create(f.core, &p, NULL, &err), err, GB_ERR_OUT_OF_MEMORY);
    core_call_begin(&pending);
    gb_buffer_create(f.core, &p, 60000, pending.call.buffer);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_call_end(&pending, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(copies_reach_it_and_leave_it) {
    int none = lacking(_i);
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_buffer_params p = plain("b", 1 - none);
    struct gb_device_write_params w = core_copy_params("default", "a", "default", "b");
    struct core_result got;

    core_fixture_init(&f, specs[_i]);
    u.buffer.has_device = true;
    u.buffer.device = none;
    core_put(f.core, &u, 3, data);
    gb_assert_ok(core_create(f.core, &p, NULL, &err), err);
    gb_assert_ok(core_write(f.core, &w, &got, &err), err);
    core_expect(f.core, "default", "b", data, BYTES);
    w = core_copy_params("default", "a", "default", "c"); /* like its source */
    gb_assert_ok(core_write(f.core, &w, &got, &err), err);
    ck_assert(got.rec.kind == GB_KIND_IPC && got.rec.device == none);
    w = core_fill_params("default", "c", 7, 1);
    gb_assert_ok(core_write(f.core, &w, &got, &err), err);
    memset(data, 7, BYTES);
    core_expect(f.core, "default", "c", data, BYTES);
    gb_assert_ok(core_device_sync(f.core, none, &err), err);
    gb_assert_ok(core_session_sync(f.core, "default", &err), err);
    gb_assert_ok(core_attributes(f.core, "default", "c", &got, &err), err);
    ck_assert(!got.attr.from_pool);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "c", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* A pool that was made when its device had pools is lost, with all others served. */
START_TEST(a_pool_of_before) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_params pool = core_pool_params("default", "p", 1, 0);
    char note[GB_BACKEND_NOTE_SIZE];
    struct gb_pool_view view;
    struct gb_session_params session = {.has_pool = true, .pool = {"p"}};

    core_fixture_init(&f, "host:devices=2,bytes=64M");
    gb_assert_ok(core_pool_make(f.core, &pool, NULL, &err), err);
    gb_assert_ok(core_session_patch(f.core, "default", &session, &err), err);
    core_pool_assert_current(&f, "p");
    core_fixture_close(&f);
    gb_backend_close(f.backend);
    gb_assert_ok(gb_backend_open("host:devices=2,poolless=1,bytes=64M", &f.backend, note, &err), err);
    core_fixture_open(&f);
    gb_assert_ok(core_pool_get(f.core, "default", "p", &view, &err), err);
    ck_assert(view.lost);
    core_pool_assert_current(&f, "default");
    gb_assert_fails(core_session_patch(f.core, "default", &session, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    ck_assert_int_eq(core_upload_on(f.core, "default", "a", "", "p", data, 100, &err), -1);
    ck_assert_ptr_nonnull(strstr(err.detail, "the device has no memory pools"));
    err = GB_ERROR_INIT;
    gb_assert_ok(core_pool_remove(f.core, "default", "p", false, &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    /* A GPU has pools. */
    Suite *suite = (unsetenv("GB_TEST_BACKEND"), suite_create("core_poolless"));

    gb_test_add_loop(suite, "kind", its_buffers_are_of_another_kind, 60, SPECS);
    gb_test_add_loop(suite, "mirrored", a_mirrored_buffer, 60, SPECS);
    gb_test_add_loop(suite, "refused", what_needs_a_pool_is_refused, 60, SPECS);
    gb_test_add_loop(suite, "adopted", memory_of_another_process, 60, SPECS);
    gb_test_add_loop(suite, "lists", lists_and_numbers_leave_it_out, 60, 2);
    gb_test_add_loop(suite, "memory", memory_runs_out_and_comes_back, 60, SPECS);
    gb_test_add_loop(suite, "copies", copies_reach_it_and_leave_it, 60, SPECS);
    gb_test_add(suite, "before", a_pool_of_before, 60);
    return gb_test_run(suite);
}
