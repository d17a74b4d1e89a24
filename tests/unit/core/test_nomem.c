/* The core when malloc fails: every allocation of a few use cases, on whatever thread, fails once, in turn. A use case
 * may be refused then; nothing may crash or hang, nothing may be left over, and all continues afterwards. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failing_malloc.h"
#include "gb_test.h"
#include "lease_fixture.h"
#include "upload_group_fixture.h"

#ifdef GB_OWN_MALLOC

#define BYTES (3 * CORE_SLOT_BYTES + 100)

static char data[BYTES];
static char back[BYTES];

static const char *const specs[] = {"host:bytes=16M", "host:discrete,bytes=16M"};

/* Returns 1 when it was refused for want of memory. */
static unsigned step(int r, struct gb_error *err) {
    if (r == 0)
        return 0;
    /* ck_assert itself would need memory. */
    if (err->code != GB_ERR_INTERNAL && err->code != GB_ERR_OUT_OF_MEMORY && err->code != GB_ERR_SATURATED &&
        err->code != GB_ERR_STORE_FAILED && err->code != GB_ERR_DEVICE_ERROR)
        ck_abort_msg("%s: %s", gb_code_slug(err->code), err->detail);
    *err = GB_ERROR_INIT;
    return 1;
}

/* Nothing tells its length. */
static int upload_open(struct core_fixture *f, struct gb_error *err) {
    struct gb_upload_params p = core_upload_params("default", "x", INT64_MAX);
    struct gb_upload *upload = NULL;
    struct core_wake w;
    int r;

    core_wake_init(&w);
    p.open_ended = true;
    p.waker = core_waker(&w);
    r = gb_upload_begin(f->core, &p, &upload, err);
    if (r == 0)
        r = core_upload_send(upload, &w, data, BYTES, err);
    if (r == 0)
        r = core_upload_finish(upload, &w, NULL, err);
    gb_upload_free(upload);
    core_wake_done(&w);
    return r;
}

/* Each use case that allocates, on a session and a buffer that are there. Names are new each time, so that the maps and
 * lists grow. */
static unsigned play(struct core_fixture *f, unsigned round) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params session = {.name = core_name("s")};
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    char names[3][32];
    struct core_part some[3] = {{names[0], 100}, {"x", BYTES - 200}, {names[2], 100}};
    const struct core_parts parts = {some, 3, GB_KIND_DEVICE};
    unsigned failed = 0;
    char name[32];

    snprintf(name, sizeof(name), "b%u", round);
    snprintf(names[0], sizeof(names[0]), "j%u", round);
    snprintf(names[2], sizeof(names[2]), "k%u", round);
    failed += step(core_buffer_create(f->core, "default", name, 1000, 0, &err), &err);
    if (failed == 0)
        failed += step(core_upload(f->core, &p, data, NULL, &err), &err);
    if (failed == 0)
        failed += step(upload_open(f, &err), &err);
    if (failed == 0)
        failed += step(core_download(f->core, "default", "x", 0, BYTES, back, &err), &err);
    if (failed == 0)
        failed += step(core_joint(f->core, &parts, data, &err), &err);
    if (failed == 0)
        failed += step(core_bundle(f->core, &parts, back, &err), &err);
    if (failed == 0)
        failed += step(core_session_create(f->core, &session, &err), &err);
    if (failed == 0)
        failed += step(core_buffer_create(f->core, "s", "y", 1000, 0, &err), &err);
    if (failed == 0)
        failed += step(core_session_patch(f->core, "s", &session, &err), &err);
    if (failed == 0)
        failed += step(core_session_delete(f->core, "s", &err), &err);
    if (failed == 0)
        failed += step(core_buffer_delete(f->core, "default", name, &err), &err);
    return failed;
}

/* A buffer that others map, to read and to write; then it is sealed. */
static unsigned share(struct core_fixture *f) {
    struct gb_buffer_params create = core_kind_params("m", GB_KIND_PAGEABLE, 1000);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_holder *h = NULL;
    unsigned failed = step(gb_holder_new(f->core, 1, 2, 3, &h, &err), &err);
    struct gb_lease_params p = core_map_params(h, "default", "m", false);
    struct core_mapping m = {.id = 0};
    int i;

    if (failed == 0)
        failed += step(core_create(f->core, &create, NULL, &err), &err);
    for (i = 0; i < 2 && failed == 0; i++) {
        p.write = i == 1;
        failed += step(core_map(f->core, &p, &m, &err), &err);
        core_mapping_done(&m);
    }
    if (failed == 0)
        failed += step(core_lease_end(f->core, m.id, h, &err), &err);
    gb_holder_end(h);
    core_until_unmapped(f);
    if (failed == 0)
        failed += step(core_seal(f->core, "default", "m", &err), &err);
    return failed;
}

static void tidy(struct core_fixture *f, unsigned round) {
    struct gb_error err = GB_ERROR_INIT;
    char name[32];

    snprintf(name, sizeof(name), "b%u", round);
    core_buffer_delete(f->core, "default", name, &err);
    name[0] = 'j';
    core_buffer_delete(f->core, "default", name, &err);
    name[0] = 'k';
    core_buffer_delete(f->core, "default", name, &err);
    core_buffer_delete(f->core, "default", "x", &err);
    core_buffer_delete(f->core, "default", "m", &err);
    core_session_delete(f->core, "s", &err);
    core_until_idle(f);
}

START_TEST(each_allocation_fails_once) {
    struct core_fixture f;
    unsigned refused = 0;
    long n;

    core_bytes(1, data, BYTES);
    for (n = 0; n < 260; n += gb_test_stride()) {
        unsigned failed;

        core_fixture_init(&f, specs[_i]);
        atomic_store(&gb_allocations, n);
        failed = play(&f, (unsigned)n);
        failed += failed == 0 ? share(&f) : 0;
        atomic_store(&gb_allocations, -1);
        refused += failed;
        tidy(&f, (unsigned)n);
        ck_assert_msg(play(&f, 1000) == 0 && share(&f) == 0, "allocation %ld: does not recover", n);
        ck_assert_int_eq(memcmp(data, back, BYTES), 0);
        tidy(&f, 1000);
        core_fixture_done(&f);
    }
    ck_assert_uint_gt(refused, 10);
}
END_TEST

int main(void) {
    /* A GPU's driver dies of a malloc that fails, and this is about ours. */
    Suite *suite = (unsetenv("GB_TEST_BACKEND"), suite_create("core_nomem"));
    TCase *tc = tcase_create("once");

    tcase_add_loop_test(tc, each_allocation_fails_once, 0, 2);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}

#else

int main(void) {
    return 77; /* skipped, to Automake: the sanitizers bring a malloc of their own */
}

#endif
