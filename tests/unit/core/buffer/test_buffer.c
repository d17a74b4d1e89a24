/* Buffers: what is durable, what is refused, what comes back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_fixture.h"
#include "gb_test.h"

static const struct gb_locator default_pool = {{"default"}, {"default"}};

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};

START_TEST(new_buffers_are_zero) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", 1000000);
    struct gb_pool_view view;
    struct gb_buffer_rec rec;
    struct gb_core_stats stats;
    char *data = malloc(1000000);
    size_t i;

    core_fixture_init(&f, specs[_i]);
    memset(data, 0x77, 1000000);
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    gb_assert_ok(gb_pool_get(f.core, &default_pool, &view, &err), err);
    ck_assert_uint_eq(view.stat.used_bytes, 0); /* without a wait: the deletion was acknowledged */
    gb_assert_ok(core_buffer_create(f.core, "default", "y", 1000000, 0, &err), err);
    gb_assert_ok(gb_pool_get(f.core, &default_pool, &view, &err), err);
    ck_assert_uint_ge(view.stat.used_bytes, 1000000);
    gb_assert_ok(core_download(f.core, "default", "y", 0, 1000000, data, &err), err);
    for (i = 0; i < 1000000; i++)
        ck_assert_int_eq(data[i], 0);
    gb_assert_fails(core_buffer_create(f.core, "default", "y", 5, 0, &err), err, GB_ERR_BUFFER_EXISTS);
    gb_assert_ok(core_buffer_get(f.core, "default", "y", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 1);
    ck_assert(!rec.has_crc32c);
    ck_assert_str_eq(rec.pool.s, "default");
    ck_assert_str_eq(gb_labels_text(rec.labels), "{}");
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.buffers, 1);
    ck_assert_uint_eq(stats.buffer_bytes, 1000000);
    gb_assert_ok(core_buffer_create(f.core, "default", "empty", 0, 0, &err), err);
    gb_assert_ok(core_download(f.core, "default", "empty", 0, 0, data, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "empty", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "y", &err), err);
    gb_assert_fails(core_buffer_delete(f.core, "default", "y", &err), err, GB_ERR_BUFFER_NOT_FOUND);
    core_until_idle(&f);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.buffers, 0);
    ck_assert_uint_eq(stats.buffer_bytes, 0);
    core_fixture_done(&f);
    free(data);
}
END_TEST

/* A check that fails from the n-th time on. */
struct counted {
    int calls;
    int fail_from;
    atomic_int freed;
};

static int counted_check(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    struct counted *c = arg;

    (void)rec;
    return ++c->calls >= c->fail_from ? gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "no") : 0;
}

static void counted_free(void *arg) {
    atomic_fetch_add(&((struct counted *)arg)->freed, 1);
}

/* The upload frees its check when the last thread has left the upload. */
static bool counted_freed(void *arg) {
    return atomic_load(&((struct counted *)arg)->freed) == 1;
}

static int patch(struct core_fixture *f, const struct gb_buffer_params *p, const struct gb_buffer_check *check,
                 struct gb_error *err) {
    return core_do(err, buffer, gb_buffer_patch, f->core, p, check);
}

START_TEST(patches_and_preconditions) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", 24);
    struct counted counted = {.fail_from = 1};
    struct counted twice = {.fail_from = 2};
    struct counted thrice = {.fail_from = 3};
    struct gb_buffer_check check = {counted_check, &counted, counted_free};
    struct gb_buffer_rec rec;
    char data[24] = "abc";

    core_fixture_init(&f, specs[_i]);
    gb_assert_fails(patch(&f, &p.buffer, &check, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    ck_assert_int_eq(atomic_load(&counted.freed), 1);
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
    gb_assert_fails(patch(&f, &p.buffer, &check, &err), err, GB_ERR_PRECONDITION_FAILED);
    ck_assert_int_eq(atomic_load(&counted.freed), 2);
    p.buffer.has_shape = p.buffer.has_labels = true;
    p.buffer.dtype = GB_DTYPE_FLOAT32;
    p.buffer.shape = (struct gb_shape){.dims = 2, .dim = {2, 3}};
    p.buffer.labels = store_labels("{\"a\":1}");
    gb_assert_ok(patch(&f, &p.buffer, NULL, &err), err);
    gb_assert_ok(core_buffer_get(f.core, "default", "x", &rec, &err), err);
    ck_assert_int_eq(rec.dtype, GB_DTYPE_FLOAT32);
    ck_assert_uint_eq(rec.shape.dim[1], 3);
    ck_assert_str_eq(gb_labels_text(rec.labels), "{\"a\":1}");
    gb_buffer_rec_done(&rec);
    ck_assert_int_eq(rec.generation, 1);
    ck_assert_int_eq(rec.version, 2);
    ck_assert(rec.has_crc32c);
    p.buffer.bytes = 25;
    gb_assert_fails(patch(&f, &p.buffer, NULL, &err), err, GB_ERR_SHAPE_MISMATCH);
    /* An upload runs its check before it receives bytes, and again before it replaces the content. */
    p = core_upload_params("default", "x", 24);
    p.check = check;
    p.check.arg = &twice;
    gb_assert_fails(core_upload(f.core, &p, data, NULL, &err), err, GB_ERR_PRECONDITION_FAILED);
    ck_assert_int_eq(twice.calls, 2);
    core_until(counted_freed, &twice, "the check of the failed upload let go");
    p.check.arg = &thrice;
    gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
    ck_assert_int_eq(rec.generation, 2);
    ck_assert_str_eq(gb_labels_text(rec.labels), "{\"a\":1}"); /* not given: kept */
    gb_buffer_rec_done(&rec);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until(counted_freed, &thrice, "the check of the upload let go");
    core_until_idle(&f);
    core_fixture_done(&f);
    ck_assert_int_eq(atomic_load(&thrice.freed), 1);
}
END_TEST

START_TEST(records_survive_bytes_do_not) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params session = core_session_params("s");
    struct gb_upload_params p = core_upload_params("s", "x", 1000);
    struct gb_buffer_rec before;
    struct gb_buffer_rec rec;
    struct gb_core_stats stats;
    struct gb_session_stats ss;
    char data[1000];
    char back[1000];

    core_fixture_init(&f, specs[_i]);
    session.has_quota_bytes = session.has_quota_buffers = true;
    session.quota.bytes = 1500;
    session.quota.buffers = 2;
    core_bytes(3, data, sizeof(data));
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    gb_assert_ok(core_upload(f.core, &p, data, &before, &err), err);
    gb_assert_ok(core_buffer_create(f.core, "s", "y", 10, 0, &err), err);
    core_fixture_close(&f);
    core_fixture_open(&f);

    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.sessions, 2);
    ck_assert_uint_eq(stats.buffers, 2);
    ck_assert_uint_eq(stats.lost_buffers, 2);
    ck_assert_uint_eq(stats.buffer_bytes, 0);
    ck_assert_uint_eq(stats.counters.uploads, 1);
    ck_assert_uint_eq(stats.counters.allocations, 2);
    ck_assert_uint_eq(stats.counters.frees, 2);
    gb_assert_ok(core_buffer_get(f.core, "s", "x", &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_LOST);
    ck_assert_int_eq(rec.generation, before.generation);
    ck_assert_int_eq(rec.version, before.version + 1);
    ck_assert_uint_eq(rec.crc32c, before.crc32c);
    gb_assert_fails(core_download(f.core, "s", "x", 0, 1000, back, &err), err, GB_ERR_CONTENT_LOST);
    p.partial = true;
    p.offset = 1;
    p.bytes = 5;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_CONTENT_LOST);
    /* The quota no longer counts lost bytes, but it still counts the records. */
    gb_assert_ok(gb_session_stats(f.core, &session.name, &ss, &err), err);
    ck_assert_uint_eq(ss.session.used_bytes, 0);
    ck_assert_uint_eq(ss.session.buffers, 2);
    ck_assert_uint_eq(ss.lost_buffers, 2);
    gb_assert_fails(core_buffer_create(f.core, "s", "z", 1, 0, &err), err, GB_ERR_QUOTA_EXCEEDED);
    p = core_upload_params("s", "x", 1000);
    p.in_place = true; /* the buffer has no content to overwrite */
    gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
    ck_assert_int_eq(rec.id, before.id);
    ck_assert_int_eq(rec.generation, before.generation + 1);
    gb_assert_ok(core_download(f.core, "s", "x", 0, 1000, back, &err), err);
    ck_assert_int_eq(memcmp(data, back, 1000), 0);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.lost_buffers, 1);
    ck_assert_uint_eq(stats.buffer_bytes, 1000);
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    core_fixture_close(&f);
    core_fixture_open(&f);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.sessions, 1);
    ck_assert_uint_eq(stats.buffers, 0);
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_session_takes_its_buffers_along) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params session = core_session_params("s");
    struct gb_pool_view view;
    struct gb_core_stats stats;
    char name[16];
    int round;
    int i;

    core_fixture_init(&f, specs[_i]);
    for (round = 0; round < 3; round++) {
        gb_assert_ok(core_session_create(f.core, &session, &err), err);
        for (i = 0; i < 50; i++) {
            snprintf(name, sizeof(name), "b%d", i);
            gb_assert_ok(core_buffer_create(f.core, "s", name, (uint64_t)i * 1000, 0, &err), err);
        }
        gb_assert_ok(core_session_delete(f.core, "s", &err), err);
        gb_assert_ok(gb_pool_get(f.core, &default_pool, &view, &err), err);
        ck_assert_uint_eq(view.stat.used_bytes, 0);
        gb_core_stats(f.core, &stats);
        ck_assert_uint_eq(stats.buffers, 0);
        ck_assert_uint_eq(stats.buffer_bytes, 0);
    }
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

static bool x_is_partial(void *arg) {
    struct core_fixture *f = arg;
    struct gb_buffer_rec rec;

    return core_buffer_get(f->core, "default", "x", &rec, NULL) == 0 && rec.state == GB_BUFFER_PARTIAL;
}

/* If the database refuses the write, neither the content nor the totals change. */
START_TEST(the_database_refuses) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params session = core_session_params("s");
    struct gb_upload_params p = core_upload_params("default", "x", 1000);
    struct gb_name name = core_name("default");
    struct gb_core_stats stats;
    struct gb_buffer_rec rec;
    struct core_listing l = {.text = ""};
    struct gb_page page = {.limit = 10, .more = true};
    char data[1000];
    char back[1000];

    core_fixture_init(&f, specs[_i]);
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    core_bytes(1, data, 1000);
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
    store_sql_exec(f.store.path, "CREATE TRIGGER a BEFORE INSERT ON buffers BEGIN SELECT RAISE(ABORT, 'no'); END;"
                                 "CREATE TRIGGER b BEFORE UPDATE ON buffers BEGIN SELECT RAISE(ABORT, 'no'); END;"
                                 "CREATE TRIGGER c BEFORE DELETE ON buffers BEGIN SELECT RAISE(ABORT, 'no'); END;"
                                 "CREATE TRIGGER d BEFORE DELETE ON sessions BEGIN SELECT RAISE(ABORT, 'no'); END;"
                                 "CREATE TRIGGER e BEFORE UPDATE ON sessions BEGIN SELECT RAISE(ABORT, 'no'); END;");
    gb_assert_fails(core_buffer_create(f.core, "default", "y", 10, 0, &err), err, GB_ERR_STORE_FAILED);
    gb_assert_fails(core_buffer_create(f.core, "s", "y", 10, 0, &err), err, GB_ERR_STORE_FAILED);
    p.buffer.name = core_name("z");
    gb_assert_fails(core_upload(f.core, &p, data, NULL, &err), err, GB_ERR_STORE_FAILED);
    gb_assert_ok(gb_buffer_list(f.core, &name, &page, core_list_buffer, &l, &err), err);
    ck_assert_str_eq(l.text, "x ");
    ck_assert(!page.more);
    p.buffer.name = core_name("x");
    gb_assert_fails(core_upload(f.core, &p, back, NULL, &err), err, GB_ERR_STORE_FAILED);
    gb_assert_fails(core_buffer_delete(f.core, "default", "x", &err), err, GB_ERR_STORE_FAILED);
    gb_assert_fails(core_session_delete(f.core, "s", &err), err, GB_ERR_STORE_FAILED);
    gb_assert_fails(core_session_patch(f.core, "s", &session, &err), err, GB_ERR_STORE_FAILED);
    gb_assert_ok(core_buffer_get(f.core, "default", "x", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 1);
    gb_assert_ok(core_download(f.core, "default", "x", 0, 1000, back, &err), err);
    ck_assert_int_eq(memcmp(data, back, 1000), 0);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.sessions, 2);
    ck_assert_uint_eq(stats.buffers, 1);
    /* An in-place upload did change the bytes, so they must not pass for the old generation. */
    p.in_place = true;
    gb_assert_fails(core_upload(f.core, &p, data, NULL, &err), err, GB_ERR_STORE_FAILED);
    core_until(x_is_partial, &f, "state partial");
    store_sql_exec(f.store.path, "DROP TRIGGER a; DROP TRIGGER b; DROP TRIGGER c; DROP TRIGGER d; DROP TRIGGER e;");
    gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_READY);
    gb_assert_ok(core_buffer_create(f.core, "s", "y", 10, 0, &err), err);
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(buffers_have_a_limit_in_all) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params session = core_session_params("s");
    struct gb_upload_params p = core_upload_params("s", "c", 1);

    core_fixture_prepare(&f, specs[_i]);
    f.config.buffers_max = 2;
    core_fixture_open(&f);
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    gb_assert_ok(core_buffer_create(f.core, "default", "a", 1, 0, &err), err);
    gb_assert_ok(core_buffer_create(f.core, "s", "b", 1, 0, &err), err);
    gb_assert_fails(core_buffer_create(f.core, "s", "c", 1, 0, &err), err, GB_ERR_LIMIT_REACHED);
    gb_assert_fails(core_upload(f.core, &p, "x", NULL, &err), err, GB_ERR_LIMIT_REACHED);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_upload(f.core, &p, "x", NULL, &err), err);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_buffer");

    gb_test_add_loop(suite, "create", new_buffers_are_zero, 120, 2);
    gb_test_add_loop(suite, "patch", patches_and_preconditions, 120, 2);
    gb_test_add_loop(suite, "reload", records_survive_bytes_do_not, 120, 2);
    gb_test_add_loop(suite, "session_delete", a_session_takes_its_buffers_along, 120, 2);
    gb_test_add_loop(suite, "store_refuses", the_database_refuses, 120, 2);
    gb_test_add_loop(suite, "buffer_limit", buffers_have_a_limit_in_all, 120, 2);
    return gb_test_run(suite);
}
