/* Uploads in parts: any order, broken parts, conditions, quota, limits, ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core/session/session.h"
#include "gb_test.h"
#include "multipart_fixture.h"

#define BYTES (5 * CORE_SLOT_BYTES + 1234)

static const char *const specs[] = {"host:bytes=16M", "host:discrete,bytes=16M"};

struct fix {
    struct core_fixture f;
    struct gb_core *core;
    struct gb_error err;
    char data[BYTES];
    char other[BYTES];
    struct gb_upload_params params; /* of "x" */
};

static struct fix *fix_open(const char *spec) {
    struct fix *x = calloc(1, sizeof(*x));

    core_fixture_prepare(&x->f, spec);
    x->f.config.multiparts_max = 3;
    core_fixture_open(&x->f);
    x->core = x->f.core;
    x->err = GB_ERROR_INIT;
    core_bytes(11, x->data, BYTES);
    core_bytes(12, x->other, BYTES);
    x->params = core_upload_params("default", "x", BYTES);
    return x;
}

static void fix_done(struct fix *x) {
    intake_fixture_done(&x->f);
    free(x);
}

static uint64_t used(struct fix *x) {
    struct gb_name name = core_name("default");
    struct gb_session_view view;

    gb_assert_ok(gb_session_get(x->core, &name, &view, &x->err), x->err);
    return view.used_bytes;
}

START_TEST(parts_in_any_order) {
    static const unsigned cut[] = {0, 1, 100, CORE_SLOT_BYTES, 2 * CORE_SLOT_BYTES + 7, 4 * CORE_SLOT_BYTES, BYTES};
    static const unsigned order[] = {3, 0, 5, 1, 4, 2};
    struct fix *x = fix_open(specs[_i]);
    struct intake_result r;
    struct gb_multipart_view view;
    unsigned i;

    core_put(x->core, &x->params, 1, NULL);
    x->params.buffer.has_labels = true;
    x->params.buffer.labels = store_labels("{\"a\":\"b\"}");
    gb_assert_ok(intake_begin(x->core, &x->params, &r, &x->err), x->err);
    ck_assert_uint_eq(r.view.gap_count, 1);
    ck_assert_uint_eq(r.view.bytes, BYTES);
    ck_assert_uint_eq(used(x), 2 * BYTES);
    for (i = 0; i < 6; i++) {
        unsigned at = cut[order[i]];
        unsigned n = cut[order[i] + 1] - at;

        gb_assert_ok(intake_complete(x->core, r.view.id, NULL, NULL, &r, &x->err), x->err);
        ck_assert(!r.view.completed);
        ck_assert_uint_gt(r.view.gap_count, 0);
        gb_assert_ok(intake_part(x->core, r.view.id, at, x->data + at, n, &x->err), x->err);
    }
    intake_until_quiet(x->core, r.view.id, &view);
    ck_assert_uint_eq(view.parts, 6);
    ck_assert_uint_eq(view.gap_count, 0);
    core_bytes(1, x->other, BYTES);
    core_expect(x->core, "default", "x", x->other, BYTES); /* readers see the old content until the upload completes */
    gb_assert_ok(intake_complete(x->core, r.view.id, NULL, NULL, &r, &x->err), x->err);
    ck_assert(r.view.completed && !r.created);
    ck_assert_int_eq(r.rec.generation, 2);
    ck_assert(r.rec.has_crc32c);
    ck_assert_uint_eq(r.rec.crc32c, gb_crc32c(0, x->data, BYTES));
    ck_assert_str_eq(gb_labels_text(r.rec.labels), "{\"a\":\"b\"}");
    gb_buffer_rec_done(&r.rec);
    core_expect(x->core, "default", "x", x->data, BYTES);
    gb_assert_fails(intake_complete(x->core, r.view.id, NULL, NULL, NULL, &x->err), x->err, GB_ERR_UPLOAD_COMPLETED);
    gb_assert_fails(intake_part(x->core, r.view.id, 0, x->data, 1, &x->err), x->err, GB_ERR_UPLOAD_COMPLETED);
    gb_assert_ok(intake_delete(x->core, r.view.id, &x->err), x->err);
    gb_assert_fails(intake_delete(x->core, r.view.id, &x->err), x->err, GB_ERR_UPLOAD_NOT_FOUND);
    core_expect(x->core, "default", "x", x->data, BYTES);
    fix_done(x);
}
END_TEST

START_TEST(a_broken_part_is_missing) {
    struct fix *x = fix_open(specs[_i]);
    static const unsigned sent[] = {0, 1, CORE_SLOT_BYTES, CORE_SLOT_BYTES + 1, 2 * CORE_SLOT_BYTES - 1};
    struct intake_result r;
    struct gb_multipart_view view;
    unsigned i;

    gb_assert_ok(intake_begin(x->core, &x->params, &r, &x->err), x->err);
    gb_assert_ok(intake_part(x->core, r.view.id, 0, x->other, 100, &x->err), x->err);
    for (i = 0; i < 5; i++) {
        gb_assert_ok(intake_part_broken(x->core, r.view.id, 100, 2 * CORE_SLOT_BYTES, x->other, sent[i], &x->err),
                     x->err);
        intake_until_quiet(x->core, r.view.id, &view);
        ck_assert_uint_eq(view.received_bytes, 100);
        ck_assert_uint_eq(view.gaps[0].offset, 100);
        ck_assert_uint_eq(view.gaps[0].bytes, BYTES - 100);
    }
    /* If a repeated part breaks, its range is missing again. */
    gb_assert_ok(intake_part_broken(x->core, r.view.id, 0, 100, x->data, 50, &x->err), x->err);
    intake_until_quiet(x->core, r.view.id, &view);
    ck_assert_uint_eq(view.received_bytes, 0);
    gb_assert_ok(intake_part(x->core, r.view.id, 0, x->other, 100, &x->err), x->err);
    gb_assert_ok(intake_part(x->core, r.view.id, 0, x->data, 100, &x->err), x->err);
    gb_assert_fails(intake_part(x->core, r.view.id, 99, x->data, 100, &x->err), x->err, GB_ERR_UPLOAD_OVERLAP);
    gb_assert_fails(intake_part(x->core, r.view.id, 50, x->data, 10, &x->err), x->err, GB_ERR_UPLOAD_OVERLAP);
    gb_assert_ok(intake_part(x->core, r.view.id, 100, x->data + 100, BYTES - 100, &x->err), x->err);
    gb_assert_ok(intake_complete(x->core, r.view.id, NULL, NULL, &r, &x->err), x->err);
    ck_assert(r.created);
    ck_assert_uint_eq(r.rec.crc32c, gb_crc32c(0, x->data, BYTES));
    core_expect(x->core, "default", "x", x->data, BYTES);
    fix_done(x);
}
END_TEST

START_TEST(parts_that_cannot_be) {
    struct fix *x = fix_open(specs[_i]);
    struct gb_name s = core_name("default");
    struct intake_result r;
    struct gb_upload *part;
    struct gb_upload *more;
    struct core_wake w;

    core_wake_init(&w);
    gb_assert_ok(intake_begin(x->core, &x->params, &r, &x->err), x->err);
    gb_assert_fails(intake_part(x->core, r.view.id, BYTES, x->data, 1, &x->err), x->err, GB_ERR_RANGE_NOT_SATISFIABLE);
    gb_assert_fails(gb_multipart_part(x->core, &s, r.view.id, UINT64_MAX, 2, false, core_waker(&w), &part, &x->err),
                    x->err, GB_ERR_RANGE_NOT_SATISFIABLE);
    gb_assert_fails(gb_multipart_part(x->core, &s, r.view.id, 1, BYTES, false, core_waker(&w), &part, &x->err), x->err,
                    GB_ERR_RANGE_NOT_SATISFIABLE);
    gb_assert_fails(gb_multipart_part(x->core, &s, r.view.id, 5, 0, false, core_waker(&w), &part, &x->err), x->err,
                    GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(gb_multipart_part(x->core, &s, "00000000-1", 5, 1, false, core_waker(&w), &part, &x->err), x->err,
                    GB_ERR_UPLOAD_NOT_FOUND);
    gb_assert_fails(gb_multipart_part(x->core, &s, "", 5, 1, false, core_waker(&w), &part, &x->err), x->err,
                    GB_ERR_UPLOAD_NOT_FOUND);
    gb_assert_ok(gb_multipart_part(x->core, &s, r.view.id, 100, 100, false, core_waker(&w), &part, &x->err), x->err);
    gb_assert_fails(gb_multipart_part(x->core, &s, r.view.id, 199, 1, false, core_waker(&w), &more, &x->err), x->err,
                    GB_ERR_UPLOAD_BUSY);
    gb_assert_fails(gb_multipart_part(x->core, &s, r.view.id, 0, BYTES, false, core_waker(&w), &more, &x->err), x->err,
                    GB_ERR_UPLOAD_BUSY);
    gb_assert_ok(gb_multipart_part(x->core, &s, r.view.id, 200, 1, false, core_waker(&w), &more, &x->err), x->err);
    gb_upload_free(more);
    /* The upload is deleted while a part is running. */
    gb_assert_fails(intake_delete(x->core, "nothing-1", &x->err), x->err, GB_ERR_UPLOAD_NOT_FOUND);
    {
        struct core_call p;
        struct gb_error err = GB_ERROR_INIT;
        void *room;
        size_t n;

        core_call_begin(&p);
        gb_multipart_delete(x->core, &s, r.view.id, p.call.multipart);
        gb_assert_fails(gb_upload_room(part, &room, &n, &err), err, GB_ERR_UPLOAD_NOT_FOUND);
        gb_upload_free(part);
        gb_assert_ok(core_call_end(&p, &err), err);
    }
    ck_assert_uint_eq(used(x), 0); /* the call finished, so the memory is returned */
    core_wake_done(&w);
    fix_done(x);
}
END_TEST

struct judge {
    int64_t generation; /* 0: the buffer must not exist */
};

static int judge(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    const struct judge *j = arg;

    if (j->generation == (rec ? rec->generation : 0))
        return 0;
    return gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "another generation");
}

START_TEST(conditions_of_both_ends) {
    struct fix *x = fix_open(specs[_i]);
    struct judge j = {.generation = 1};
    struct judge end = {.generation = 2};
    struct gb_buffer_check check = {.check = judge, .arg = &end};
    uint32_t crc = gb_crc32c(0, x->data, BYTES);
    uint32_t wrong = crc ^ 1;
    struct gb_upload_params put = x->params;
    struct intake_result r;

    x->params.check = (struct gb_buffer_check){.check = judge, .arg = &j};
    gb_assert_fails(intake_begin(x->core, &x->params, &r, &x->err), x->err, GB_ERR_PRECONDITION_FAILED);
    core_put(x->core, &put, 3, NULL);
    gb_assert_ok(intake_begin(x->core, &x->params, &r, &x->err), x->err);
    gb_assert_ok(intake_part(x->core, r.view.id, 0, x->data, BYTES, &x->err), x->err);
    gb_assert_fails(intake_complete(x->core, r.view.id, NULL, &wrong, &r, &x->err), x->err, GB_ERR_DIGEST_MISMATCH);
    gb_assert_fails(intake_complete(x->core, r.view.id, &check, &crc, &r, &x->err), x->err, GB_ERR_PRECONDITION_FAILED);
    /* The refusals changed nothing: a part may still be sent. */
    gb_assert_ok(intake_part(x->core, r.view.id, 0, x->data, BYTES, &x->err), x->err);
    core_put(x->core, &put, 4, NULL);
    gb_assert_fails(intake_complete(x->core, r.view.id, NULL, &crc, &r, &x->err), x->err, GB_ERR_PRECONDITION_FAILED);
    gb_assert_fails(intake_part(x->core, r.view.id, 0, x->data, BYTES, &x->err), x->err, GB_ERR_UPLOAD_BUSY);
    j.generation = 2;
    gb_assert_ok(intake_complete(x->core, r.view.id, &check, &crc, &r, &x->err), x->err);
    ck_assert_int_eq(r.rec.generation, 3);
    core_expect(x->core, "default", "x", x->data, BYTES);
    fix_done(x);
}
END_TEST

START_TEST(quota_and_limits) {
    struct fix *x = fix_open(specs[_i]);
    struct gb_session_params q = {.has_quota_bytes = true, .quota.bytes = 3 * BYTES};
    struct gb_upload_params large = core_upload_params("default", "large", 64 << 20);
    struct intake_result r[4];
    struct gb_core_stats stats;
    struct gb_session_stats of_session;
    struct gb_name s = core_name("default");
    int i;

    if (core_on_host(&x->f))
        gb_assert_fails(intake_begin(x->core, &large, &r[0], &x->err), x->err, GB_ERR_OUT_OF_MEMORY);
    for (i = 0; i < 3; i++)
        gb_assert_ok(intake_begin(x->core, &x->params, &r[i], &x->err), x->err);
    gb_assert_fails(intake_begin(x->core, &x->params, &r[3], &x->err), x->err, GB_ERR_LIMIT_REACHED);
    gb_core_stats(x->core, &stats);
    ck_assert_uint_eq(stats.open_upload_bytes, 3 * BYTES);
    ck_assert_uint_eq(stats.uploads_running, 0);
    gb_assert_ok(gb_session_stats(x->core, &s, &of_session, &x->err), x->err);
    ck_assert_uint_eq(of_session.open_uploads, 3);
    ck_assert_uint_eq(of_session.open_upload_bytes, 3 * BYTES);
    ck_assert_uint_eq(of_session.session.used_bytes, 3 * BYTES);
    gb_assert_ok(intake_delete(x->core, r[1].view.id, &x->err), x->err);
    gb_assert_ok(core_session_patch(x->core, "default", &q, &x->err), x->err);
    gb_assert_ok(intake_begin(x->core, &x->params, &r[1], &x->err), x->err);
    gb_assert_ok(intake_delete(x->core, r[0].view.id, &x->err), x->err);
    q.quota.bytes = 3 * BYTES - 1;
    gb_assert_ok(core_session_patch(x->core, "default", &q, &x->err), x->err);
    gb_assert_fails(intake_begin(x->core, &x->params, &r[0], &x->err), x->err, GB_ERR_QUOTA_EXCEEDED);
    gb_assert_ok(intake_delete(x->core, r[1].view.id, &x->err), x->err);
    gb_assert_ok(intake_delete(x->core, r[2].view.id, &x->err), x->err);
    gb_core_stats(x->core, &stats);
    ck_assert_uint_eq(stats.open_upload_bytes, 0);
    ck_assert_uint_eq(used(x), 0);
    fix_done(x);
}
END_TEST

START_TEST(a_session_takes_them_along) {
    struct fix *x = fix_open(specs[_i]);
    struct gb_session_params sp = {.name = core_name("gone")};
    struct gb_upload_params p = core_upload_params("gone", "x", BYTES);
    struct gb_name s = core_name("gone");
    struct gb_multipart_view view;
    struct intake_result r;
    struct gb_upload *part;
    struct gb_append *append;
    struct core_wake w;
    uint64_t length = 5;
    void *room;
    size_t n;

    core_wake_init(&w);
    gb_assert_ok(core_session_create(x->core, &sp, &x->err), x->err);
    gb_assert_ok(intake_begin(x->core, &p, &r, &x->err), x->err);
    gb_assert_ok(gb_multipart_part(x->core, &s, r.view.id, 0, BYTES, false, core_waker(&w), &part, &x->err), x->err);
    gb_assert_ok(core_upload_send(part, &w, x->data, CORE_SLOT_BYTES + 5, &x->err), x->err);
    gb_assert_ok(gb_append_new(x->core, &p, &length, malloc(1), free, core_waker(&w), &append, &x->err), x->err);
    gb_assert_ok(core_session_delete(x->core, "gone", &x->err), x->err);
    gb_assert_fails(gb_upload_room(part, &room, &n, &x->err), x->err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(gb_append_header_room(append, 5, &room, &n, &x->err), x->err, GB_ERR_SESSION_NOT_FOUND);
    gb_upload_free(part);
    gb_append_free(append, false);
    gb_assert_fails(gb_multipart_get(x->core, &s, r.view.id, &view, &x->err), x->err, GB_ERR_SESSION_NOT_FOUND);
    core_wake_done(&w);
    fix_done(x);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core: uploads in parts");

    gb_test_add_loop(suite, "any order", parts_in_any_order, 60, 2);
    gb_test_add_loop(suite, "broken", a_broken_part_is_missing, 60, 2);
    gb_test_add_loop(suite, "cannot be", parts_that_cannot_be, 60, 2);
    gb_test_add_loop(suite, "conditions", conditions_of_both_ends, 60, 2);
    gb_test_add_loop(suite, "quota and limits", quota_and_limits, 60, 2);
    gb_test_add_loop(suite, "session", a_session_takes_them_along, 60, 2);
    return gb_test_run(suite);
}
