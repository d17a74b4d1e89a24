/* Uploads and downloads, on memory that the CPU reaches and on memory that only copies reach. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core_fixture.h"
#include "gb_test.h"

static const struct gb_locator default_pool = {{"default"}, {"default"}};

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BIG (5 * 1024 * 1024 + 12345)

START_TEST(bytes_come_back) {
    static const size_t sizes[] = {
        0,  1, 3, 4096, CORE_SLOT_BYTES - 1, CORE_SLOT_BYTES, CORE_SLOT_BYTES + 1, 7 * CORE_SLOT_BYTES, 1024 * 1024 + 7,
        BIG};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    char *data = malloc(BIG);
    char *back = malloc(BIG);
    unsigned i;

    core_fixture_init(&f, specs[_i]);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct gb_upload_params p = core_upload_params("default", "x", sizes[i]);
        struct gb_buffer_rec rec;

        core_bytes(i, data, sizes[i]);
        memset(back, 0xee, sizes[i]);
        gb_assert_ok(core_upload(f.core, &p, data, &rec, &err), err);
        ck_assert_int_eq(rec.generation, (int64_t)i + 1);
        ck_assert_uint_eq(rec.bytes, sizes[i]);
        ck_assert(rec.has_crc32c);
        ck_assert_uint_eq(rec.crc32c, gb_crc32c(0, data, sizes[i]));
        gb_assert_ok(core_download(f.core, "default", "x", 0, sizes[i], back, &err), err);
        ck_assert_int_eq(memcmp(data, back, sizes[i]), 0);
        if (sizes[i] > 100) {
            gb_assert_ok(core_download(f.core, "default", "x", 33, sizes[i] - 99, back, &err), err);
            ck_assert_int_eq(memcmp(data + 33, back, sizes[i] - 99), 0);
        }
    }
    gb_assert_fails(core_download(f.core, "default", "x", BIG, 1, back, &err), err, GB_ERR_RANGE_NOT_SATISFIABLE);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
    free(data);
    free(back);
}
END_TEST

/* The client's view: a refusal comes before the bytes. */
START_TEST(refusals_come_first) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params session = {.name = {"s"}, .has_quota_bytes = true, .has_quota_buffers = true};
    struct gb_upload_params p = core_upload_params("s", "x", 1000);

    core_fixture_init(&f, specs[_i]);
    session.quota.bytes = 999;
    session.quota.buffers = 1;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_ok(core_session_create(f.core, &session, &err), err);
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_QUOTA_EXCEEDED);
    gb_assert_fails(core_upload(f.core, &p, NULL, NULL, &err), err, GB_ERR_QUOTA_EXCEEDED);
    p.bytes = 999;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_SHAPE_MISMATCH);
    p = core_upload_params("s", "x", 999);
    gb_assert_ok(gb_upload_check(f.core, &p, &err), err);
    p.buffer.stream = core_name("other");
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_STREAM_NOT_FOUND);
    p.buffer.stream = core_name("default");
    p.buffer.pool = core_name("other");
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_POOL_NOT_FOUND);
    p.buffer.pool = core_name("default");
    p.buffer.kind = GB_KIND_MANAGED;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_INVALID_ARGUMENT); /* of a pool */
    p.buffer.kind = GB_KIND_DEVICE;
    p.partial = true;
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    p = core_upload_params("default", "x", core_on_host(&f) ? 65ull << 20 : 1ull << 50);
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_OUT_OF_MEMORY);
    gb_assert_ok(core_buffer_create(f.core, "s", "y", 10, 0, &err), err);
    p = core_upload_params("s", "x", 1);
    gb_assert_fails(gb_upload_check(f.core, &p, &err), err, GB_ERR_QUOTA_EXCEEDED);
    gb_assert_ok(core_buffer_delete(f.core, "s", "y", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(readers_keep_the_old_bytes) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BIG);
    struct gb_buffer_rec rec;
    struct core_reading reading;
    struct gb_pool_view pool;
    char *old = malloc(BIG);
    char *new = malloc(BIG);
    char *back = malloc(BIG);

    core_fixture_init(&f, specs[_i]);
    core_bytes(1, old, BIG);
    core_bytes(2, new, BIG);
    gb_assert_ok(core_upload(f.core, &p, old, &rec, &err), err);
    gb_assert_ok(core_reading_open(&reading, &f, "x", &err), err);
    gb_assert_ok(gb_download_start(reading.download, 0, BIG, &err), err);
    gb_assert_ok(core_download_read(reading.download, &reading.wake, back, 1000000, &err), err);
    gb_assert_ok(core_upload(f.core, &p, new, &rec, &err), err);
    ck_assert_int_eq(rec.generation, 2);
    ck_assert_int_eq(gb_download_record(reading.download)->generation, 1);
    gb_assert_ok(gb_pool_get(f.core, &default_pool, &pool, &err), err);
    ck_assert_uint_ge(pool.stat.used_bytes, 2 * BIG);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    gb_assert_ok(core_download_read(reading.download, &reading.wake, back + 1000000, BIG - 1000000, &err), err);
    ck_assert_int_eq(memcmp(old, back, BIG), 0);
    gb_download_free(reading.download, true);
    gb_assert_fails(core_reading_open(&reading, &f, "x", &err), err, GB_ERR_BUFFER_NOT_FOUND);
    core_until_idle(&f);
    core_fixture_done(&f);
    free(old);
    free(new);
    free(back);
}
END_TEST

START_TEST(a_broken_upload_leaves_the_old) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", BIG);
    struct gb_upload *upload;
    struct gb_buffer_rec rec;
    struct gb_core_stats stats;
    struct core_wake w;
    char *old = malloc(BIG);
    char *back = malloc(BIG);
    size_t sent[] = {0, 1, 3 * CORE_SLOT_BYTES + 5, BIG};
    unsigned i;

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&w);
    core_bytes(1, old, BIG);
    gb_assert_ok(core_upload(f.core, &p, old, &rec, &err), err);
    p.waker = core_waker(&w);
    for (i = 0; i < 4; i++) {
        gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
        memset(back, 0x55, BIG);
        gb_assert_ok(core_upload_send(upload, &w, back, sent[i], &err), err);
        if (i == 2)
            gb_assert_fails(gb_upload_end(upload, &err), err, GB_ERR_INCOMPLETE_BODY);
        gb_upload_free(upload);
    }
    gb_assert_ok(core_download(f.core, "default", "x", 0, BIG, back, &err), err);
    ck_assert_int_eq(memcmp(old, back, BIG), 0);
    gb_assert_ok(core_buffer_get(f.core, "default", "x", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 1);
    /* A name that never was is free again. */
    p.buffer.name = core_name("y");
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    gb_upload_free(upload);
    gb_assert_fails(core_buffer_get(f.core, "default", "y", &rec, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    gb_assert_ok(core_buffer_create(f.core, "default", "y", 5, 0, &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "y", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until_idle(&f);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.counters.uploads, 1);
    ck_assert_uint_eq(stats.counters.uploads_failed, 5);
    ck_assert_uint_eq(stats.counters.upload_bytes, BIG);
    ck_assert_uint_eq(stats.counters.downloads, 1);
    ck_assert_uint_eq(stats.counters.allocations, stats.counters.frees);
    ck_assert_uint_eq(stats.counters.allocated_bytes, stats.counters.freed_bytes);
    core_wake_done(&w);
    core_fixture_done(&f);
    free(old);
    free(back);
}
END_TEST

START_TEST(the_later_commit_wins) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", 300000);
    struct gb_upload *upload[2];
    struct gb_buffer_rec rec;
    struct core_wake w[2];
    char *data[2] = {malloc(300000), malloc(300000)};
    char *back = malloc(300000);
    int i;

    core_fixture_init(&f, specs[_i]);
    for (i = 0; i < 2; i++) {
        core_wake_init(&w[i]);
        p.waker = core_waker(&w[i]);
        core_bytes((unsigned)i, data[i], 300000);
        gb_assert_ok(gb_upload_begin(f.core, &p, &upload[i], &err), err);
        gb_assert_ok(core_upload_send(upload[i], &w[i], data[i], 300000, &err), err);
    }
    /* In the order of the ends, not of the beginnings. */
    gb_assert_ok(core_upload_finish(upload[1], &w[1], &rec, &err), err);
    ck_assert_int_eq(rec.generation, 1);
    gb_assert_ok(core_upload_finish(upload[0], &w[0], &rec, &err), err);
    ck_assert_int_eq(rec.generation, 2);
    gb_assert_ok(core_download(f.core, "default", "x", 0, 300000, back, &err), err);
    ck_assert_int_eq(memcmp(back, data[0], 300000), 0);
    for (i = 0; i < 2; i++) {
        gb_upload_free(upload[i]);
        core_wake_done(&w[i]);
        free(data[i]);
    }
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
    free(back);
}
END_TEST

START_TEST(a_session_deleted_meanwhile) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params session = {.name = {"s"}};
    struct gb_upload_params p = core_upload_params("s", "x", BIG);
    struct gb_name s = core_name("s");
    struct gb_name x = core_name("x");
    struct gb_name stream = core_name("default");
    struct gb_upload *upload;
    struct gb_download *download;
    struct core_wake w;
    struct core_wake rw;
    char *data = malloc(BIG);
    char *back = malloc(BIG);
    int i;

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&w);
    core_wake_init(&rw);
    core_bytes(1, data, BIG);
    for (i = 0; i < 3; i++) {
        gb_assert_ok(core_session_create(f.core, &session, &err), err);
        gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
        gb_assert_ok(gb_download_open(f.core, &s, &x, &stream, core_waker(&rw), &download, &err), err);
        gb_assert_ok(gb_download_start(download, 0, BIG, &err), err);
        gb_assert_ok(core_download_read(download, &rw, back, 100000, &err), err);
        p.waker = core_waker(&w);
        p.in_place = false;
        gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
        gb_assert_ok(core_upload_send(upload, &w, data, i == 0 ? 1000 : BIG, &err), err);
        gb_assert_ok(core_session_delete(f.core, "s", &err), err);
        if (i == 0)
            gb_assert_fails(core_upload_send(upload, &w, data, BIG - 1000, &err), err, GB_ERR_SESSION_NOT_FOUND);
        else
            gb_assert_fails(core_upload_finish(upload, &w, NULL, &err), err, GB_ERR_SESSION_NOT_FOUND);
        gb_upload_free(upload);
        if (i == 2)
            ck_assert_int_eq(core_download_read(download, &rw, back + 100000, BIG - 100000, &err), -1);
        err = GB_ERROR_INIT;
        gb_download_free(download, false);
    }
    core_until_idle(&f);
    core_wake_done(&w);
    core_wake_done(&rw);
    core_fixture_done(&f);
    free(data);
    free(back);
}
END_TEST

/* Work queued earlier on the stream holds a transfer back, and is reported as queue time, not as copy time. */
START_TEST(transfers_wait_their_turn_on_the_stream) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", "x", 100000);
    struct gb_upload *upload;
    struct gb_buffer_rec rec;
    struct gb_transfer_times times;
    struct core_gate gate;
    struct core_wake w;
    struct core_reading reading;
    char data[1000];
    const void *block;
    size_t n;
    bool created;

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&w);
    gb_assert_ok(core_buffer_create(f.core, "default", "z", 1000, 0, &err), err);
    core_gate_close(&gate, &f, "default");
    /* A buffer made behind the gate is zeroed behind the gate: readers wait. */
    gb_assert_ok(core_buffer_create(f.core, "default", "y", 1000, 0, &err), err);
    gb_assert_ok(core_reading_open(&reading, &f, "y", &err), err);
    gb_assert_ok(gb_download_start(reading.download, 0, 1000, &err), err);
    ck_assert_int_eq(gb_download_next(reading.download, &block, &n, &err), 0);
    p.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &p, &upload, &err), err);
    if (_i == 1) {
        memset(data, 7, sizeof(data));
        gb_assert_ok(core_upload_send(upload, &w, data, sizeof(data), &err), err);
        /* Filled, queued, not done. */
        ck_assert_int_eq(gb_upload_result(upload, &rec, &created, &times, &err), 0);
    }
    /* When the lane has come as far as this one, it has queued the zeros; the download's own copy goes behind them
     * now. */
    gb_assert_ok(core_buffer_create(f.core, "default", "w", 1000, 0, &err), err);
    ck_assert_int_eq(gb_download_next(reading.download, &block, &n, &err), 0);
    core_gate_open(&gate);
    memset(data, 0xee, sizeof(data));
    gb_assert_ok(core_download_read(reading.download, &reading.wake, data, 1000, &err), err);
    for (n = 0; n < 1000; n++)
        ck_assert_int_eq(data[n], 0);
    gb_download_times(reading.download, &times);
    ck_assert(times.queue_ms > 0);
    gb_download_free(reading.download, true);
    gb_upload_free(upload);
    gb_assert_ok(core_buffer_delete(f.core, "default", "w", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "y", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "z", &err), err);
    core_until_idle(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_transfer");

    gb_test_add_loop(suite, "bytes", bytes_come_back, 120, SPECS);
    gb_test_add_loop(suite, "refusals", refusals_come_first, 120, SPECS);
    gb_test_add_loop(suite, "readers", readers_keep_the_old_bytes, 120, SPECS);
    gb_test_add_loop(suite, "broken", a_broken_upload_leaves_the_old, 120, SPECS);
    gb_test_add_loop(suite, "later_wins", the_later_commit_wins, 120, SPECS);
    gb_test_add_loop(suite, "session_gone", a_session_deleted_meanwhile, 120, SPECS);
    gb_test_add_loop(suite, "stream_order", transfers_wait_their_turn_on_the_stream, 120, SPECS);
    return gb_test_run(suite);
}
