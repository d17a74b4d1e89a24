/* The devices' own pools, which can be shaped; a session's current pool; how pools count reuse and growth. */
#include <string.h>

#include "core_pools.h"
#include "gb_test.h"

#define MIB (1u << 20)

static const char *const specs[] = {"host:bytes=256M", "host:discrete,bytes=256M"};

static void upload(struct core_fixture *f, const char *name, const char *pool) {
    struct gb_error err = GB_ERROR_INIT;
    char data[1000] = {1};

    gb_assert_ok(core_upload_on(f->core, "default", name, "", pool, data, sizeof(data), &err), err);
}

static int choose(struct core_fixture *f, const char *pool, struct gb_error *err) {
    struct gb_session_params p = {.has_pool = true, .pool = core_name(pool)};

    return core_session_patch(f->core, "default", &p, err);
}

static void assert_pool_of(struct core_fixture *f, const char *buffer, const char *pool) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_ok(core_buffer_get(f->core, "default", buffer, &rec, &err), err);
    ck_assert_str_eq(rec.pool.s, pool);
    gb_buffer_rec_done(&rec);
}

/* --- the devices' own --------------------------------------------------------------------------------------------- */

START_TEST(shaped_for_every_session_until_the_end) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params session = {.name = core_name("s")};
    struct gb_pool_params p = core_pool_params("s", "default", 0, 0);
    struct gb_pool_view view;

    core_fixture_init(&f, specs[_i]);
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    p.rec.config.release_threshold_bytes = 0;
    p.given.release_threshold_bytes = p.given.allow_opportunistic = true;
    gb_assert_ok(core_pool_patch(f.core, &p, &view, &err), err);
    ck_assert_uint_eq(view.rec.config.release_threshold_bytes, 0);
    view = core_pool_look(&f, "default", "default");
    ck_assert_uint_eq(view.rec.config.release_threshold_bytes, 0);
    ck_assert(view.rec.config.follow_event_dependencies && !view.rec.config.allow_opportunistic);
    ck_assert_int_gt(view.rec.updated_at_us, 0);
    upload(&f, "x", "default");
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    gb_assert_ok(core_session_sync(f.core, "default", &err), err);
    ck_assert_uint_eq(core_pool_look(&f, "default", "default").stat.reserved_bytes, 0);
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_device_that_refuses_the_shape) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_params p = core_pool_params("default", "default", 0, 0);

    core_fixture_init(&f, "fault:pool_configure@1=cudaErrorInvalidValue:host:bytes=64M");
    p.given.release_threshold_bytes = true;
    gb_assert_fails(core_pool_patch(f.core, &p, NULL, &err), err, GB_ERR_DEVICE_ERROR);
    ck_assert_uint_eq(core_pool_look(&f, "default", "default").rec.config.release_threshold_bytes, GB_UNLIMITED);
    gb_assert_ok(core_pool_patch(f.core, &p, NULL, &err), err);
    ck_assert_uint_eq(core_pool_look(&f, "default", "default").rec.config.release_threshold_bytes, 0);
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_device_without_pools_has_none_to_shape) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_params p = core_pool_params("default", "default.1", 0, 0);

    core_fixture_init(&f, "host:devices=2,poolless=1,bytes=64M");
    p.given.release_threshold_bytes = true;
    gb_assert_fails(core_pool_patch(f.core, &p, NULL, &err), err, GB_ERR_UNSUPPORTED);
    p.rec.name = core_name("default");
    gb_assert_ok(core_pool_patch(f.core, &p, NULL, &err), err);
    core_fixture_done(&f);
}
END_TEST

START_TEST(shaped_from_the_start) {
    struct core_fixture f;
    struct gb_pool_view view;

    core_fixture_prepare(&f, "host:devices=2,bytes=64M");
    f.config.default_pools = (struct gb_default_pools){
        .has_threshold = true, .release_threshold_bytes = 5, .has_reuse = true, .allow_internal_dependencies = true};
    core_fixture_open(&f);
    view = core_pool_look(&f, "default", "default.1");
    ck_assert_uint_eq(view.rec.config.release_threshold_bytes, 5);
    ck_assert(!view.rec.config.follow_event_dependencies && !view.rec.config.allow_opportunistic);
    ck_assert(view.rec.config.allow_internal_dependencies);
    core_fixture_done(&f);
}
END_TEST

START_TEST(an_integrated_device_keeps_an_eighth) {
    struct core_fixture f;

    core_fixture_init(&f, "host:integrated,bytes=64M");
    ck_assert_uint_eq(core_pool_look(&f, "default", "default").rec.config.release_threshold_bytes, 8 * MIB);
    core_fixture_done(&f);
}
END_TEST

/* --- the current pool of a session -------------------------------------------------------------------------------- */

START_TEST(refusals) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_init(&f, "host:devices=2,bytes=64M");
    core_pool_assert_current(&f, "default");
    gb_assert_fails(choose(&f, "none", &err), err, GB_ERR_POOL_NOT_FOUND);
    gb_assert_fails(choose(&f, "default.2", &err), err, GB_ERR_POOL_NOT_FOUND);
    core_pool_assert_current(&f, "default");
    core_fixture_done(&f);
}
END_TEST

START_TEST(memory_comes_from_the_current_pool) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_init(&f, specs[_i]);
    core_pool_plain(&f, "default", "p", 0);
    upload(&f, "before", "");
    gb_assert_ok(choose(&f, "p", &err), err);
    core_pool_assert_current(&f, "p");
    upload(&f, "put", "");
    gb_assert_ok(core_buffer_create(f.core, "default", "made", 100, 0, &err), err);
    upload(&f, "named", "default");
    upload(&f, "before", ""); /* it stays where it is */
    assert_pool_of(&f, "put", "p");
    assert_pool_of(&f, "made", "p");
    assert_pool_of(&f, "named", "default");
    assert_pool_of(&f, "before", "default");
    gb_assert_ok(choose(&f, "default", &err), err);
    core_pool_assert_current(&f, "default");
    upload(&f, "after", "");
    assert_pool_of(&f, "after", "default");
    core_fixture_done(&f);
}
END_TEST

START_TEST(it_survives_a_restart_and_ends_with_the_pool) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_init(&f, specs[_i]);
    core_pool_plain(&f, "default", "p", 0);
    gb_assert_ok(choose(&f, "p", &err), err);
    core_fixture_close(&f);
    core_fixture_open(&f);
    core_pool_assert_current(&f, "p");
    upload(&f, "x", "");
    assert_pool_of(&f, "x", "p");
    gb_assert_ok(core_pool_remove(f.core, "default", "p", true, &err), err);
    core_pool_assert_current(&f, "default");
    core_pool_plain(&f, "default", "p", 0); /* another pool of that name */
    core_pool_assert_current(&f, "default");
    upload(&f, "y", "");
    assert_pool_of(&f, "y", "default");
    core_fixture_close(&f);
    core_fixture_open(&f);
    core_pool_assert_current(&f, "default");
    core_fixture_done(&f);
}
END_TEST

START_TEST(it_is_of_one_device) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_params p = core_pool_params("default", "p", 1, 0);
    struct gb_upload_params one = core_upload_params("default", "one", 100);
    char data[100] = {0};

    core_fixture_init(&f, "host:devices=2,bytes=64M");
    gb_assert_ok(core_pool_make(f.core, &p, NULL, &err), err);
    gb_assert_ok(choose(&f, "p", &err), err);
    upload(&f, "zero", "");
    one.buffer.has_device = true;
    one.buffer.device = 1;
    gb_assert_ok(core_upload(f.core, &one, data, NULL, &err), err);
    assert_pool_of(&f, "zero", "default");
    assert_pool_of(&f, "one", "p");
    core_fixture_done(&f);
}
END_TEST

static void add_name(void *arg, const struct gb_name *pool) {
    strcat(arg, pool ? pool->s : "-");
    strcat(arg, " ");
}

/* The current pools of all devices, and what the session's view says of them. */
static void assert_pools(struct core_fixture *f, const char *pools, const char *first) {
    struct gb_name name = core_name("default");
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_view view;
    char names[256] = "";

    gb_assert_ok(gb_session_get(f->core, &name, &view, &err), err);
    gb_session_current_pools(f->core, view.rec.id, add_name, names);
    ck_assert_str_eq(names, pools);
    ck_assert_str_eq(view.pool.s, first);
    ck_assert_int_eq(view.pools_mark != 0, strcmp(first, "default") != 0);
    gb_session_rec_done(&view.rec);
}

static void pool_on(struct core_fixture *f, const char *name, int device) {
    struct gb_pool_params p = core_pool_params("default", name, device, 0);
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_pool_make(f->core, &p, NULL, &err), err);
}

/* As cudaDeviceSetMempool: each device has its own, and one is undone without the others. */
START_TEST(each_device_has_one) {
    static const struct {
        const char *chosen, *pools, *first;
    } steps[] = {{"p", "p default.1 - ", "p"},
                 {"q", "p q - ", "p"},
                 {"p2", "p2 q - ", "p2"},
                 {"default", "default q - ", "q"},
                 {"default.2", "default q - ", "q"}, /* a device without pools has none to undo */
                 {"p", "p q - ", "p"},
                 {"default.1", "p default.1 - ", "p"},
                 {"q", "p q - ", "p"},
                 {"", "default default.1 - ", "default"},
                 {"q", "default q - ", "q"}};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    size_t i;

    core_fixture_init(&f, "host:devices=3,poolless=2,bytes=64M");
    pool_on(&f, "p", 0);
    pool_on(&f, "p2", 0);
    pool_on(&f, "q", 1);
    for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        gb_assert_ok(choose(&f, steps[i].chosen, &err), err);
        assert_pools(&f, steps[i].pools, steps[i].first);
    }
    gb_assert_ok(choose(&f, "p", &err), err);
    core_fixture_close(&f);
    core_fixture_open(&f);
    assert_pools(&f, "p q - ", "p");
    gb_assert_ok(core_pool_remove(f.core, "default", "p", true, &err), err);
    assert_pools(&f, "default q - ", "q");
    gb_assert_ok(choose(&f, "p2", &err), err); /* the removed one leaves the record */
    assert_pools(&f, "p2 q - ", "p2");
    core_fixture_done(&f);
}
END_TEST

static void reopen_on(struct core_fixture *f, const char *spec) {
    struct gb_error err = GB_ERROR_INIT;
    char note[GB_BACKEND_NOTE_SIZE];

    core_fixture_close(f);
    gb_backend_close(f->backend);
    gb_assert_ok(gb_backend_open(spec, &f->backend, note, &err), err);
    core_fixture_open(f);
}

/* The pool of a device that is missing stays current for that device, and another may take its place meanwhile. */
START_TEST(a_missing_device_keeps_its_own) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_init(&f, "host:devices=2,bytes=64M");
    pool_on(&f, "p", 0);
    pool_on(&f, "q", 1);
    gb_assert_ok(choose(&f, "p", &err), err);
    gb_assert_ok(choose(&f, "q", &err), err);
    reopen_on(&f, "host:devices=1,bytes=64M");
    assert_pools(&f, "p ", "p");
    gb_assert_fails(choose(&f, "q", &err), err, GB_ERR_DEVICE_NOT_FOUND);
    gb_assert_ok(choose(&f, "default", &err), err);
    assert_pools(&f, "default ", "default");
    reopen_on(&f, "host:devices=2,bytes=64M");
    assert_pools(&f, "default q ", "q");
    core_fixture_done(&f);
}
END_TEST

/* --- counting ----------------------------------------------------------------------------------------------------- */

START_TEST(growth_and_reuse_are_counted) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_view view;

    core_fixture_init(&f, specs[_i]);
    core_pool_plain(&f, "default", "p", 0);
    upload(&f, "x", "p");
    view = core_pool_look(&f, "default", "p");
    ck_assert_uint_eq(view.growths, 1);
    ck_assert_uint_eq(view.reuses, 0);
    upload(&f, "y", "p"); /* of what the first one left */
    gb_assert_ok(core_buffer_delete(f.core, "default", "y", &err), err);
    upload(&f, "z", "p"); /* of the free cache, where there is one */
    view = core_pool_look(&f, "default", "p");
    ck_assert_uint_eq(view.growths, 1);
    ck_assert_uint_eq(view.reuses, 2);
    ck_assert_uint_eq(view.memory.allocations, 3);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_current_pool");
    TCase *tc = tcase_create("current_pool");

    tcase_add_loop_test(tc, shaped_for_every_session_until_the_end, 0, 2);
    tcase_add_test(tc, a_device_that_refuses_the_shape);
    tcase_add_test(tc, a_device_without_pools_has_none_to_shape);
    tcase_add_test(tc, shaped_from_the_start);
    tcase_add_test(tc, an_integrated_device_keeps_an_eighth);
    tcase_add_test(tc, refusals);
    tcase_add_loop_test(tc, memory_comes_from_the_current_pool, 0, 2);
    tcase_add_loop_test(tc, it_survives_a_restart_and_ends_with_the_pool, 0, 2);
    tcase_add_test(tc, it_is_of_one_device);
    tcase_add_test(tc, each_device_has_one);
    tcase_add_test(tc, a_missing_device_keeps_its_own);
    tcase_add_loop_test(tc, growth_and_reuse_are_counted, 0, 2);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
