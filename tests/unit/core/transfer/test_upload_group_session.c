/* Several buffers at once, while their session goes. */
#include "core_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

struct meanwhile {
    struct core_fixture *f;
    size_t at; /* before which one the session is deleted and made again */
};

static void make_session(struct core_fixture *f) {
    struct gb_session_params params = {.name = {"w"}};
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_session_create(f->core, &params, &err), err);
}

static int describe(void *arg, size_t i, struct gb_upload_params *params, struct gb_error *err) {
    static const char *const names[] = {"a", "b", "c"};
    const struct meanwhile *m = arg;
    bool fresh = params->fresh;

    if (i == m->at) {
        gb_assert_ok(core_session_delete(m->f->core, "w", err), *err);
        make_session(m->f);
    }
    *params = core_upload_params("w", names[i], 5);
    params->fresh = fresh;
    return 0;
}

START_TEST(another_of_the_same_name) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_view view;
    struct gb_upload_group *group;
    struct core_fixture f;
    struct core_wake w;
    struct meanwhile m = {.f = &f, .at = (size_t)_i / SPECS};
    struct gb_upload_group_params params = {
        .session = {"w"}, .count = 3, .bytes = 15, .describe = describe, .describe_arg = &m, .waker = core_waker(&w)};

    core_fixture_init(&f, specs[_i % SPECS]);
    core_wake_init(&w);
    make_session(&f);
    gb_assert_fails(gb_upload_group_begin(f.core, &params, &group, &err), err, GB_ERR_SESSION_NOT_FOUND);
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_session_get(f.core, &params.session, &view, &err), err);
    ck_assert_uint_eq(view.used_bytes, 0);
    ck_assert_uint_eq(view.buffers, 0);
    gb_assert_ok(core_session_delete(f.core, "w", &err), err);
    core_wake_done(&w);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_joint_session");
    TCase *both = tcase_create("both");

    tcase_set_timeout(both, 60);
    tcase_add_loop_test(both, another_of_the_same_name, 0, 3 * SPECS);
    suite_add_tcase(suite, both);
    return gb_test_run(suite);
}
