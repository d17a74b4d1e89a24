/* Mirrored buffers: mutual exclusion, broken writes, restarts, removed pools. */
#include <stdlib.h>
#include <string.h>

#include "device_write_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BYTES (2 * CORE_SLOT_BYTES + 77)

START_TEST(refusals) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "m", 1000);
    struct gb_session_params quota = {.has_quota_pinned_bytes = true, .quota.pinned_bytes = 999};

    core_fixture_init(&f, specs[_i]);
    gb_assert_fails(core_sync(f.core, "default", "m", true, NULL, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    gb_assert_fails(core_release(f.core, "default", "m", true, true, NULL, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    p.to_device_side = true;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.to_device_side = false;
    core_put(f.core, &p, 1, NULL); /* an ordinary one */
    gb_assert_fails(core_sync(f.core, "default", "m", true, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(core_release(f.core, "default", "m", true, true, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.buffer.mirrored = true;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_INVALID_ARGUMENT);
    core_remove_mirrored(&f);
    p.buffer.kind = GB_KIND_PINNED;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_fails(core_create(f.core, &p.buffer, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.buffer.kind = GB_KIND_DEVICE;
    gb_assert_ok(core_session_patch(f.core, "default", &quota, &err), err);
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_QUOTA_EXCEEDED);
    p.to_device_side = true;
    core_put(f.core, &p, 1, NULL);
    gb_assert_fails(core_sync(f.core, "default", "m", true, NULL, &err), err, GB_ERR_QUOTA_EXCEEDED);
    gb_assert_fails(core_release(f.core, "default", "m", false, false, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.buffer.pool = core_name("default.7");
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_INVALID_ARGUMENT); /* its pool cannot change */
    core_remove_mirrored(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(readers_and_writers) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct gb_name s = core_name("default");
    struct gb_download *download;
    struct core_result r;
    struct core_wake w;
    char *want = malloc(BYTES);
    char *other = malloc(BYTES);
    char *back = malloc(BYTES);

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&w);
    core_put(f.core, &p, 1, want);
    gb_assert_ok(gb_download_open(f.core, &s, &p.buffer.name, &s, core_waker(&w), &download, &err), err);
    gb_assert_ok(gb_download_start(download, 0, BYTES, &err), err);
    gb_assert_ok(core_download_read(download, &w, back, 100, &err), err);
    /* A side that is read is written in fresh memory, unless the write asks for its place. */
    p.in_place = true;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_BUFFER_BUSY);
    p.in_place = false;
    core_put(f.core, &p, 3, other);
    core_expect(f.core, "default", "m", other, BYTES);
    p.to_device_side = true;
    core_put(f.core, &p, 2, other);
    core_expect(f.core, "default", "m", other, BYTES);
    gb_assert_ok(core_sync(f.core, "default", "m", true, &r, &err), err);
    gb_assert_ok(core_release(f.core, "default", "m", true, false, &r, &err), err);
    gb_assert_ok(core_download_read(download, &w, back + 100, BYTES - 100, &err), err);
    ck_assert_int_eq(memcmp(back, want, BYTES), 0);
    gb_download_free(download, true);
    gb_assert_ok(core_sync(f.core, "default", "m", true, &r, &err), err);
    core_expect(f.core, "default", "m", other, BYTES);
    core_remove_mirrored(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
    free(want);
    free(other);
    free(back);
}
END_TEST

/* A running sync blocks no reader. If a write overtakes the sync, the write wins. */
START_TEST(a_sync_under_way) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct gb_name s = core_name("default");
    struct gb_name other = core_name("side");
    struct gb_locator at = {s, p.buffer.name};
    struct core_call sync[2];
    struct gb_buffer_rec rec;
    struct core_result r;
    struct core_gate gate;
    char *want = malloc(2 * BYTES);
    int i;

    core_fixture_init(&f, specs[_i]);
    gb_assert_ok(core_do(&err, stream, gb_stream_make, f.core, &(struct gb_locator){s, other}), err);
    core_put(f.core, &p, 1, want);
    p.buffer.stream = other;
    core_gate_close(&gate, &f, "default");
    for (i = 0; i < 2; i++) {
        core_call_begin(&sync[i]);
        gb_buffer_mirror_sync(f.core, &at, false, &s, NULL, sync[i].call.buffer);
    }
    gb_assert_ok(core_buffer_get(f.core, "default", "m", &rec, &err), err);
    ck_assert_int_eq(rec.head, GB_HEAD_HOST);
    {
        struct gb_download *download;
        struct core_wake w;
        char byte;

        core_wake_init(&w);
        gb_assert_ok(gb_download_open(f.core, &s, &p.buffer.name, &other, core_waker(&w), &download, &err), err);
        gb_assert_ok(gb_download_start(download, 0, 1, &err), err);
        gb_assert_ok(core_download_read(download, &w, &byte, 1, &err), err);
        ck_assert_int_eq(byte, want[0]);
        gb_download_free(download, true);
        core_wake_done(&w);
    }
    core_put(f.core, &p, 2, want); /* beside its source */
    p = core_mirrored(2 * BYTES);
    p.buffer.stream = other;
    core_put(f.core, &p, 2, want);
    core_gate_open(&gate);
    gb_assert_fails(core_result_end(&sync[0], &r, &err), err, GB_ERR_BUFFER_BUSY);
    gb_assert_fails(core_result_end(&sync[1], &r, &err), err, GB_ERR_DEPENDENCY_FAILED);
    gb_assert_ok(core_buffer_get(f.core, "default", "m", &rec, &err), err);
    ck_assert_int_eq(rec.head, GB_HEAD_HOST);
    core_expect(f.core, "default", "m", want, 2 * BYTES);
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    ck_assert_int_eq(r.rec.head, GB_HEAD_SYNCED);
    core_remove_mirrored(&f);
    core_fixture_done(&f);
    free(want);
}
END_TEST

/* --- growth beside all else --------------------------------------------------------------------------------------- */

#define SMALL 5000
#define ROUNDS 150

struct worker {
    struct core_fixture *f;
    int what;
};

/* Grows sides, which frees memory that is not current first; releases them; fills all bytes; or syncs. */
static int step(struct core_fixture *f, int what, int i, struct gb_error *err) {
    struct gb_device_write_params w = core_fill_params("default", "m", (uint64_t)(1 + i % 250), 1);
    bool host = i % 2;

    if (what == 0 && i % 10 == 9)
        return core_release(f->core, "default", "m", host, !host, NULL, err);
    if (what == 0)
        return core_reserve(f->core, "default", "m", host, SMALL + 1000ull * (uint64_t)(i % 10), NULL, err);
    if (what == 1)
        return core_sync(f->core, "default", "m", host, NULL, err);
    w.to_host_side = host;
    w.side_named = true;
    return core_write(f->core, &w, NULL, err);
}

static void *work(void *arg) {
    const struct worker *worker = arg;
    int i;

    for (i = 0; i < ROUNDS; i++) {
        struct gb_error err = GB_ERROR_INIT;

        if (step(worker->f, worker->what, i, &err) < 0)
            ck_assert_msg(err.code == GB_ERR_BUFFER_BUSY || err.code == GB_ERR_BUFFER_SIDE_CURRENT, "%d: %s: %s",
                          worker->what, gb_code_slug(err.code), err.detail);
    }
    return NULL;
}

/* The bytes are always those of one fill. */
static void expect_one_fill(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    char back[SMALL];
    int i;

    if (core_download(f->core, "default", "m", 0, SMALL, back, &err) < 0) {
        ck_assert_msg(err.code == GB_ERR_BUFFER_BUSY, "%s", err.detail);
        return;
    }
    for (i = 1; i < SMALL; i++)
        ck_assert_int_eq(back[i], back[0]);
}

START_TEST(growth_beside_all_else) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(SMALL);
    struct worker workers[3];
    pthread_t threads[3];
    struct core_result r;
    int i;

    core_fixture_init(&f, specs[_i]);
    gb_assert_ok(core_create(f.core, &p.buffer, &r, &err), err);
    for (i = 0; i < 3; i++) {
        workers[i] = (struct worker){&f, i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (i = 0; i < ROUNDS; i++)
        expect_one_fill(&f);
    for (i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    expect_one_fill(&f);
    core_remove_mirrored(&f);
    core_fixture_done(&f);
}
END_TEST

static bool is_partial(void *arg) {
    struct core_fixture *f = arg;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_ok(core_buffer_get(f->core, "default", "m", &rec, &err), err);
    return rec.state == GB_BUFFER_PARTIAL;
}

START_TEST(a_broken_write_is_partial) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(BYTES);
    struct gb_upload *upload;
    struct gb_buffer_rec rec;
    struct core_result r;
    struct core_wake w;
    char *want = malloc(BYTES);

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&w);
    p.waker = core_waker(&w);
    core_put(f.core, &p, 1, want);
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &w, want, 1000, &err), err);
    gb_assert_fails(core_release(f.core, "default", "m", true, true, &r, &err), err, GB_ERR_BUFFER_BUSY);
    gb_assert_fails(core_sync(f.core, "default", "m", true, &r, &err), err, GB_ERR_BUFFER_BUSY);
    gb_upload_free(upload);
    core_until(is_partial, &f, "partial");
    gb_assert_ok(core_buffer_get(f.core, "default", "m", &rec, &err), err);
    ck_assert_int_eq(rec.head, GB_HEAD_HOST);
    gb_assert_fails(core_download(f.core, "default", "m", 0, 1, want, &err), err, GB_ERR_BUFFER_PARTIAL);
    gb_assert_fails(core_sync(f.core, "default", "m", false, &r, &err), err, GB_ERR_BUFFER_PARTIAL);
    gb_assert_fails(core_release(f.core, "default", "m", false, true, &r, &err), err, GB_ERR_BUFFER_PARTIAL);
    p.to_device_side = true; /* a full write to either side repairs the buffer */
    core_put(f.core, &p, 2, want);
    gb_assert_ok(core_sync(f.core, "default", "m", true, &r, &err), err);
    core_expect(f.core, "default", "m", want, BYTES);
    p.to_device_side = false;
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &w, want, 1000, &err), err);
    gb_upload_free(upload);
    core_until(is_partial, &f, "partial");
    gb_assert_ok(core_release(f.core, "default", "m", true, true, &r, &err), err); /* a release repairs the buffer */
    ck_assert_int_eq(r.rec.state, GB_BUFFER_READY);
    memset(want, 0, BYTES);
    core_expect(f.core, "default", "m", want, BYTES);
    core_remove_mirrored(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
    free(want);
}
END_TEST

START_TEST(a_restart_loses_bytes_that_were_written) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(1000);
    struct gb_upload_params z = core_mirrored(1000);
    struct gb_buffer_rec rec;
    char want[1000];

    core_fixture_init(&f, specs[_i]);
    core_put(f.core, &p, 1, want);
    z.buffer.name = core_name("z");
    gb_assert_ok(core_create(f.core, &z.buffer, NULL, &err), err);
    core_fixture_close(&f);
    core_fixture_open(&f);
    gb_assert_ok(core_buffer_get(f.core, "default", "m", &rec, &err), err);
    ck_assert(rec.mirrored);
    ck_assert_int_eq(rec.state, GB_BUFFER_LOST);
    gb_assert_fails(core_sync(f.core, "default", "m", true, NULL, &err), err, GB_ERR_CONTENT_LOST);
    gb_assert_fails(core_release(f.core, "default", "m", true, true, NULL, &err), err, GB_ERR_CONTENT_LOST);
    gb_assert_fails(core_attributes(f.core, "default", "m", NULL, &err), err, GB_ERR_CONTENT_LOST);
    gb_assert_fails(core_download(f.core, "default", "m", 0, 1, want, &err), err, GB_ERR_CONTENT_LOST);
    memset(want, 0, sizeof(want));
    core_expect(f.core, "default", "z", want, 1000); /* a buffer that was never written still reads zeros */
    p.to_device_side = true;
    core_put(f.core, &p, 2, want);
    core_expect(f.core, "default", "m", want, 1000);
    gb_assert_ok(core_buffer_delete(f.core, "default", "z", &err), err);
    core_remove_mirrored(&f);
    core_fixture_done(&f);
}
END_TEST

static int remove_pool(struct core_fixture *f, bool force, struct gb_error *err) {
    struct gb_locator at = core_at("default", "p");

    return core_do(err, pool, gb_pool_remove, f->core, &at, force);
}

static void make_pool(struct core_fixture *f) {
    struct gb_pool_params pool = {.session = core_name("default"), .rec.name = core_name("p")};
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_do(&err, pool, gb_pool_make, f->core, &pool), err);
}

/* Only the device side is in a pool. */
START_TEST(a_pool_goes) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_mirrored(1000);
    struct core_result r;
    char want[1000];

    core_fixture_init(&f, specs[_i]);
    make_pool(&f);
    p.buffer.pool = core_name("p");
    core_put(f.core, &p, 1, want);
    gb_assert_ok(remove_pool(&f, false, &err), err);
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    ck_assert_str_eq(r.rec.pool.s, "default");
    core_expect(f.core, "default", "m", want, 1000);
    core_remove_mirrored(&f);
    make_pool(&f);
    core_put(f.core, &p, 2, want);
    gb_assert_ok(core_sync(f.core, "default", "m", false, &r, &err), err);
    ck_assert_str_eq(r.rec.pool.s, "p");
    gb_assert_fails(remove_pool(&f, false, &err), err, GB_ERR_POOL_BUSY);
    gb_assert_ok(remove_pool(&f, true, &err), err);
    gb_assert_ok(core_buffer_get(f.core, "default", "m", &r.rec, &err), err);
    ck_assert_int_eq(r.rec.state, GB_BUFFER_LOST);
    core_remove_mirrored(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_mirror_races");

    gb_test_add_loop(suite, "refuse", refusals, 120, SPECS);
    gb_test_add_loop(suite, "readers", readers_and_writers, 120, SPECS);
    gb_test_add_loop(suite, "sync", a_sync_under_way, 120, SPECS);
    gb_test_add_loop(suite, "growth", growth_beside_all_else, 120, SPECS);
    gb_test_add_loop(suite, "broken", a_broken_write_is_partial, 120, SPECS);
    gb_test_add_loop(suite, "restart", a_restart_loses_bytes_that_were_written, 120, SPECS);
    gb_test_add_loop(suite, "pool", a_pool_goes, 120, SPECS);
    return gb_test_run(suite);
}
