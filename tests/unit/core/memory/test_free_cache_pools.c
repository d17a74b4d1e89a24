/* Pools and the database: what comes back, what is missing then, what happens when it refuses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_pools.h"
#include "gb_test.h"

#define MIB (1u << 20)

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};

static void reopen_on(struct core_fixture *f, const char *spec) {
    struct gb_error err = GB_ERROR_INIT;
    char note[GB_BACKEND_NOTE_SIZE];

    core_fixture_close(f);
    gb_backend_close(f->backend);
    gb_assert_ok(gb_backend_open(spec, &f->backend, note, &err), err);
    core_fixture_open(f);
}

START_TEST(they_come_back) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_params p = core_pool_params("s", "kept", 0, 8 * MIB);
    struct gb_session_params session = {.name = core_name("s")};
    struct gb_pool_view before;
    struct gb_pool_view after;
    struct gb_buffer_rec rec;
    char names[512];
    char data[1000];

    core_fixture_init(&f, "host:bytes=64M");
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    p.given.release_threshold_bytes = p.given.allow_internal_dependencies = true;
    p.rec.config.release_threshold_bytes = MIB;
    p.rec.config.exportable = p.given.exportable = true;
    gb_assert_ok(core_pool_make(f.core, &p, NULL, &err), err);
    p.given.allow_internal_dependencies = p.given.release_threshold_bytes = false;
    p.given.allow_opportunistic = true;
    gb_assert_ok(core_pool_patch(f.core, &p, &before, &err), err);
    core_pool_plain(&f, "s", "gone", 0);
    core_pool_plain(&f, "default", "kept", 0);
    gb_assert_ok(core_pool_remove(f.core, "s", "gone", false, &err), err);
    core_bytes(1, data, sizeof(data));
    gb_assert_ok(core_upload_on(f.core, "s", "x", "", "kept", data, sizeof(data), &err), err);
    core_fixture_close(&f);
    core_fixture_open(&f);
    ck_assert_str_eq(core_pool_names(&f, "s", names), "default kept ");
    ck_assert_str_eq(core_pool_names(&f, "default", names), "default kept ");
    after = core_pool_look(&f, "s", "kept");
    ck_assert_int_eq(after.rec.id, before.rec.id);
    ck_assert_int_eq(after.rec.version, before.rec.version);
    ck_assert_int_eq(after.rec.created_at_us, before.rec.created_at_us);
    ck_assert_int_eq(memcmp(&after.rec.config, &before.rec.config, sizeof(after.rec.config)), 0);
    ck_assert(!after.lost);
    ck_assert_uint_eq(after.memory.allocations, 0);
    gb_assert_ok(core_buffer_get(f.core, "s", "x", &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_LOST);
    gb_assert_ok(core_upload_on(f.core, "s", "x", "", "", data, sizeof(data), &err), err); /* where it was */
    ck_assert_uint_eq(core_pool_look(&f, "s", "kept").live_buffers, 1);
    core_pool_plain(&f, "s", "new", 0);
    ck_assert_int_gt(core_pool_look(&f, "s", "new").rec.id, core_pool_look(&f, "default", "kept").rec.id);
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM pools"), 3);
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    ck_assert_int_eq(store_sql_int(f.store.path, "SELECT count(*) FROM pools"), 1);
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_device_is_missing) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_params p = core_pool_params("default", "far", 1, 0);
    struct gb_pool_view view;
    char data[1000] = {1};

    core_fixture_init(&f, "host:devices=2,bytes=64M");
    gb_assert_ok(core_pool_make(f.core, &p, NULL, &err), err);
    gb_assert_ok(core_upload_on(f.core, "default", "x", "", "far", data, sizeof(data), &err), err);
    gb_assert_ok(core_upload_on(f.core, "default", "y", "", "default.1", data, sizeof(data), &err), err);
    reopen_on(&f, "host:devices=1,bytes=64M");
    view = core_pool_look(&f, "default", "far");
    ck_assert(view.lost);
    ck_assert_int_eq(view.rec.device, 1);
    gb_assert_fails(core_upload_on(f.core, "default", "z", "", "far", data, sizeof(data), &err), err,
                    GB_ERR_DEVICE_NOT_FOUND);
    gb_assert_fails(core_upload_on(f.core, "default", "x", "", "", data, sizeof(data), &err), err,
                    GB_ERR_DEVICE_NOT_FOUND);
    gb_assert_fails(core_upload_on(f.core, "default", "y", "", "", data, sizeof(data), &err), err,
                    GB_ERR_DEVICE_NOT_FOUND);
    gb_assert_fails(core_pool_trim(f.core, "default", "far", 0, NULL, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    gb_assert_fails(core_pool_patch(f.core, &p, NULL, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    gb_assert_ok(core_upload_on(f.core, "default", "x", "", "default", data, sizeof(data), &err), err);
    reopen_on(&f, "host:devices=2,bytes=64M"); /* its record was kept */
    ck_assert(!core_pool_look(&f, "default", "far").lost);
    gb_assert_ok(core_upload_on(f.core, "default", "z", "", "far", data, sizeof(data), &err), err);
    reopen_on(&f, "fault:pool_create=cudaErrorInvalidValue:host:devices=2,bytes=64M"); /* refuses to make it */
    ck_assert(core_pool_look(&f, "default", "far").lost);
    gb_assert_fails(core_upload_on(f.core, "default", "z", "", "far", data, sizeof(data), &err), err,
                    GB_ERR_DEVICE_NOT_FOUND);
    gb_assert_ok(core_pool_remove(f.core, "default", "far", false, &err), err);
    reopen_on(&f, "host:devices=1,bytes=64M");
    gb_assert_fails(core_pool_get(f.core, "default", "far", &view, &err), err, GB_ERR_POOL_NOT_FOUND);
    core_fixture_done(&f);
}
END_TEST

/* Nothing has changed, on the device as in sight. */
START_TEST(the_database_refuses) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_params p = core_pool_params("default", "p", 0, 0);
    struct gb_pool_view view;
    struct gb_pool_view before;
    struct gb_buffer_rec rec;
    char names[512];
    char data[1000] = {1};

    core_fixture_init(&f, specs[_i]);
    core_pool_plain(&f, "default", "p", 0);
    before = core_pool_look(&f, "default", "p");
    gb_assert_ok(core_upload_on(f.core, "default", "x", "", "p", data, sizeof(data), &err), err);
    store_sql_exec(f.store.path, "CREATE TRIGGER a BEFORE INSERT ON pools BEGIN SELECT RAISE(ABORT, 'no'); END;"
                                 "CREATE TRIGGER b BEFORE UPDATE ON pools BEGIN SELECT RAISE(ABORT, 'no'); END;"
                                 "CREATE TRIGGER c BEFORE DELETE ON pools BEGIN SELECT RAISE(ABORT, 'no'); END;");
    p.given.release_threshold_bytes = true;
    gb_assert_fails(core_pool_patch(f.core, &p, NULL, &err), err, GB_ERR_STORE_FAILED);
    gb_assert_fails(core_pool_remove(f.core, "default", "p", true, &err), err, GB_ERR_STORE_FAILED);
    p.rec.name = core_name("q");
    gb_assert_fails(core_pool_make(f.core, &p, NULL, &err), err, GB_ERR_STORE_FAILED);
    ck_assert_str_eq(core_pool_names(&f, "default", names), "default p ");
    view = core_pool_look(&f, "default", "p");
    ck_assert_uint_eq(view.rec.config.release_threshold_bytes, before.rec.config.release_threshold_bytes);
    ck_assert_int_eq(view.rec.version, 1);
    ck_assert_uint_eq(view.live_buffers, 1);
    gb_assert_ok(core_buffer_get(f.core, "default", "x", &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_READY);
    gb_assert_ok(core_upload_on(f.core, "default", "x", "", "p", data, sizeof(data), &err), err);
    store_sql_exec(f.store.path, "DROP TRIGGER a; DROP TRIGGER b; DROP TRIGGER c;");
    gb_assert_ok(core_pool_make(f.core, &p, NULL, &err), err);
    gb_assert_ok(core_pool_remove(f.core, "default", "p", true, &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_pool_kept");
    TCase *tc = tcase_create("kept");

    tcase_add_test(tc, they_come_back);
    tcase_add_test(tc, a_device_is_missing);
    tcase_add_loop_test(tc, the_database_refuses, 0, 2);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
