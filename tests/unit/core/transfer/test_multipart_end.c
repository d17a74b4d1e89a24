/* How uploads in several requests end by themselves, and what is bounded. */
#include <string.h>

#include "gb_test.h"
#include "multipart_fixture.h"

static const char *const specs[] = {"host:bytes=16M", "host:discrete,bytes=16M"};

START_TEST(bytes_in_all_are_bounded) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", 1000);
    struct intake_result a;
    struct intake_result b;

    core_fixture_prepare(&f, "host:bytes=16M");
    f.config.multipart_bytes_max = 1500;
    core_fixture_open(&f);
    gb_assert_ok(intake_begin(f.core, &p, &a, &err), err);
    gb_assert_fails(intake_begin(f.core, &p, &b, &err), err, GB_ERR_LIMIT_REACHED);
    gb_assert_ok(intake_delete(f.core, a.view.id, &err), err);
    gb_assert_ok(intake_begin(f.core, &p, &b, &err), err);
    /* Closing ends it. */
    core_fixture_done(&f);
}
END_TEST

static bool is_gone(void *arg) {
    struct gb_core_stats stats;

    gb_core_stats(arg, &stats);
    return stats.open_upload_bytes == 0;
}

START_TEST(idle_ones_end) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", 1000);
    struct intake_result open;
    struct intake_result done;
    struct gb_upload *part;
    struct gb_name s = core_name("default");
    struct core_wake w;
    char byte = 0;

    core_wake_init(&w);
    core_fixture_prepare(&f, specs[_i]);
    f.config.multipart_ttl_s = 1;
    f.config.housekeeping_ms = 20;
    core_fixture_open(&f);
    gb_assert_ok(intake_begin(f.core, &p, &open, &err), err);
    p.bytes = p.buffer.bytes = 0;
    p.buffer.shape.dim[0] = 0;
    gb_assert_ok(intake_begin(f.core, &p, &done, &err), err);
    gb_assert_ok(intake_complete(f.core, done.view.id, NULL, NULL, &done, &err), err);
    ck_assert(done.view.completed);
    core_until(is_gone, f.core, "the open one has ended");
    gb_assert_fails(intake_part(f.core, open.view.id, 0, &byte, 1, &err), err, GB_ERR_UPLOAD_NOT_FOUND);
    while (gb_multipart_get(f.core, &s, done.view.id, &done.view, &err) == 0)
        continue;
    ck_assert_int_eq(err.code, GB_ERR_UPLOAD_NOT_FOUND);
    err = GB_ERROR_INIT;
    /* Not while a part is under way. */
    p = core_upload_params("default", "y", 1000);
    gb_assert_ok(intake_begin(f.core, &p, &open, &err), err);
    gb_assert_ok(gb_multipart_part(f.core, &s, open.view.id, 0, 10, false, core_waker(&w), &part, &err), err);
    gb_assert_ok(intake_begin(f.core, &p, &done, &err), err);
    while (gb_multipart_get(f.core, &s, done.view.id, &done.view, &err) == 0)
        continue;
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_multipart_get(f.core, &s, open.view.id, &open.view, &err), err);
    ck_assert_uint_eq(open.view.running, 1);
    gb_upload_free(part);
    core_until(is_gone, f.core, "all have ended");
    core_wake_done(&w);
    core_fixture_done(&f);
}
END_TEST

struct seen {
    unsigned count;
    int64_t last;
};

static int visit(void *arg, const struct gb_multipart_view *view, struct gb_error *err) {
    struct seen *seen = arg;

    (void)err;
    ck_assert_int_gt(view->number, seen->last);
    seen->last = view->number;
    seen->count++;
    return 0;
}

/* Completed ones are remembered, up to a limit; they count to no limit. */
START_TEST(the_list) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", 1);
    struct gb_name s = core_name("default");
    struct seen seen = {0, 0};
    struct intake_result r;
    struct gb_page page = {.limit = 7, .more = true};
    unsigned i;

    core_fixture_init(&f, specs[0]);
    for (i = 0; i < GB_MULTIPARTS_DONE_MAX + 5; i++) {
        gb_assert_ok(intake_begin(f.core, &p, &r, &err), err);
        gb_assert_ok(intake_part(f.core, r.view.id, 0, "1", 1, &err), err);
        gb_assert_ok(intake_complete(f.core, r.view.id, NULL, NULL, NULL, &err), err);
    }
    while (page.more) {
        page.after = seen.last;
        gb_assert_ok(gb_multipart_list(f.core, &s, &page, visit, &seen, &err), err);
    }
    ck_assert_uint_eq(seen.count, GB_MULTIPARTS_DONE_MAX);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core: uploads in several requests, ends and bounds");

    gb_test_add(suite, "bytes in all", bytes_in_all_are_bounded, 60);
    gb_test_add_loop(suite, "idle", idle_ones_end, 60, 2);
    gb_test_add(suite, "list", the_list, 60);
    return gb_test_run(suite);
}
