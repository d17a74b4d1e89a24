/* Events: the order of work across streams, shown by bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/transfer/upload.h"
#include "core_pools.h"
#include "gb_test.h"

#define BYTES (2 * CORE_SLOT_BYTES)

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};

static void make_streams(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_stream_make(f->core, "default", "a", &err), err);
    gb_assert_ok(core_stream_make(f->core, "default", "b", &err), err);
    gb_assert_ok(core_stream_make(f->core, "default", "c", &err), err);
    gb_assert_ok(core_event_make(f->core, "default", "e", &err), err);
}

struct one_upload {
    struct gb_upload *upload;
    struct core_wake wake;
};

static void begin(struct core_fixture *f, struct one_upload *u, const char *name, const char *stream,
                  const char *pool) {
    struct gb_upload_params p = core_upload_params("default", name, BYTES);
    struct gb_error err = GB_ERROR_INIT;

    core_wake_init(&u->wake);
    p.buffer.stream = core_name(stream);
    p.buffer.pool = core_name(pool);
    p.waker = core_waker(&u->wake);
    gb_assert_ok(gb_upload_begin(f->core, &p, &u->upload, &err), err);
}

static void finish(struct one_upload *u) {
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_upload_finish(u->upload, &u->wake, NULL, &err), err);
    gb_upload_free(u->upload);
    core_wake_done(&u->wake);
}

static int result(struct one_upload *u) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_transfer_times times;
    struct gb_buffer_rec rec;
    bool created;

    return gb_upload_result(u->upload, &rec, &created, &times, &err);
}

/* Reads the present device memory on a stream of its own. */
static void fetch(struct core_fixture *f, void *ptr, char *back) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_stream *stream;

    gb_assert_ok(gb_stream_create(f->backend, 0, &stream, &err), err);
    memset(back, 0, BYTES);
    gb_assert_ok(gb_mem_copy(f->backend, back, ptr, BYTES, GB_COPY_FROM_DEVICE, stream, &err), err);
    gb_assert_ok(gb_stream_sync(f->backend, stream, &err), err);
    gb_stream_destroy(f->backend, stream);
}

/* x is written on stream a, which is blocked. Stream b waits for the event that a recorded. When y is complete, x's
 * bytes are in x's memory. Stream c waits for nothing. */
START_TEST(bytes_come_in_order) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_event_view event;
    struct core_gate gate;
    struct one_upload x;
    struct one_upload y;
    char *data = malloc(BYTES);
    char *back;
    void *ptr;

    core_fixture_init(&f, "host:discrete,bytes=64M");
    gb_assert_ok(gb_pin_alloc(f.backend, BYTES, (void **)&back, &err), err);
    make_streams(&f);
    core_bytes(1, data, BYTES);
    core_gate_close_on(&gate, &f, "default", "a", 0);
    begin(&f, &x, "x", "a", "");
    gb_assert_ok(core_upload_send(x.upload, &x.wake, data, BYTES, &err), err);
    ptr = x.upload->content->ptr;
    gb_assert_ok(core_event_record(f.core, "default", "e", "a", &err), err);
    gb_assert_ok(core_event_get(f.core, "default", "e", &event, &err), err);
    ck_assert(event.recorded && !event.done);
    gb_assert_ok(core_event_wait(f.core, "default", "e", "b", &err), err);
    begin(&f, &y, "y", "b", "");
    gb_assert_ok(core_upload_send(y.upload, &y.wake, data, BYTES, &err), err);
    gb_assert_ok(gb_upload_end(y.upload, &err), err);
    /* After the event is recorded again and deleted, b still waits for the first recording. */
    gb_assert_ok(core_event_record(f.core, "default", "e", "c", &err), err);
    gb_assert_ok(core_event_get(f.core, "default", "e", &event, &err), err);
    ck_assert(event.done);
    gb_assert_ok(core_event_remove(f.core, "default", "e", &err), err);
    gb_assert_ok(core_upload_on(f.core, "default", "z", "c", "", data, BYTES, &err), err);
    gb_assert_ok(core_stream_sync(f.core, "default", "c", &err), err);
    ck_assert_int_eq(result(&y), 0);
    core_gate_open(&gate);
    while (result(&y) == 0)
        core_wake_wait(&y.wake);
    gb_assert_ok(core_stream_sync(f.core, "default", "b", &err), err);
    fetch(&f, ptr, back);
    ck_assert_int_eq(memcmp(data, back, BYTES), 0);
    finish(&x);
    gb_upload_free(y.upload);
    core_wake_done(&y.wake);
    gb_pin_free(f.backend, back);
    core_fixture_done(&f);
    free(data);
}
END_TEST

/* A download waits for its stream, also if the CPU reads the memory directly. */
START_TEST(a_download_waits_for_its_stream) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name s = core_name("default");
    struct gb_name n = core_name("x");
    struct gb_name b = core_name("b");
    struct gb_download *download;
    struct core_gate gate;
    struct core_wake w;
    const void *block;
    size_t size;
    char *data = malloc(BYTES);
    char *back = malloc(BYTES);

    core_fixture_init(&f, specs[_i]);
    core_wake_init(&w);
    make_streams(&f);
    core_bytes(1, data, BYTES);
    gb_assert_ok(core_upload_on(f.core, "default", "x", "", "", data, BYTES, &err), err);
    core_gate_close_on(&gate, &f, "default", "a", 0);
    gb_assert_ok(core_event_record(f.core, "default", "e", "a", &err), err);
    gb_assert_ok(core_event_wait(f.core, "default", "e", "b", &err), err);
    gb_assert_ok(gb_download_open(f.core, &s, &n, &b, core_waker(&w), &download, &err), err);
    gb_assert_ok(gb_download_start(download, 0, BYTES, &err), err);
    ck_assert_int_eq(gb_download_next(download, &block, &size, &err), 0);
    gb_assert_ok(core_download_on(f.core, "default", "x", "c", back, BYTES, &err), err);
    ck_assert_int_eq(gb_download_next(download, &block, &size, &err), 0);
    core_gate_open(&gate);
    gb_assert_ok(core_download_read(download, &w, back, BYTES, &err), err);
    ck_assert_int_eq(memcmp(data, back, BYTES), 0);
    gb_download_free(download, true);
    /* The second download is freed before it ends. */
    core_gate_close_on(&gate, &f, "default", "b", 0);
    gb_assert_ok(gb_download_open(f.core, &s, &n, &b, core_waker(&w), &download, &err), err);
    gb_assert_ok(gb_download_start(download, 0, BYTES, &err), err);
    ck_assert_int_eq(gb_download_next(download, &block, &size, &err), 0);
    gb_download_free(download, false);
    gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
    gb_assert_ok(core_stream_remove(f.core, "default", "b", &err), err);
    core_gate_open(&gate);
    core_until_idle(&f);
    core_fixture_done(&f);
    core_wake_done(&w);
    free(data);
    free(back);
}
END_TEST

/* A wait across devices. The native streams do not exist yet when the wait is queued. */
START_TEST(across_devices) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_stream_view stream;
    struct core_gate gate;
    struct one_upload y;
    char *data = malloc(BYTES);

    core_fixture_init(&f, "host:discrete,devices=2,bytes=64M");
    if (!core_on_host(&f) && gb_device_count(f.core) < 2) {
        printf("one device: nothing to see across devices\n");
        core_fixture_done(&f);
        free(data);
        return;
    }
    make_streams(&f);
    core_bytes(1, data, BYTES);
    core_gate_close_on(&gate, &f, "default", "a", 0);
    gb_assert_ok(core_event_record(f.core, "default", "e", "a", &err), err);
    gb_assert_ok(core_event_wait(f.core, "default", "e", "b", &err), err);
    gb_assert_ok(core_stream_get(f.core, "default", "b", &stream, &err), err);
    ck_assert_uint_eq(stream.devices, 2);
    begin(&f, &y, "y", "b", "default.1");
    gb_assert_ok(core_upload_send(y.upload, &y.wake, data, BYTES, &err), err);
    gb_assert_ok(gb_upload_end(y.upload, &err), err);
    gb_assert_ok(core_upload_on(f.core, "default", "z", "c", "default.1", data, BYTES, &err), err);
    ck_assert_int_eq(result(&y), 0);
    core_gate_open(&gate);
    while (result(&y) == 0)
        core_wake_wait(&y.wake);
    ck_assert_int_eq(result(&y), 1);
    gb_upload_free(y.upload);
    core_wake_done(&y.wake);
    core_fixture_done(&f);
    free(data);
}
END_TEST

/* --- waiting on the CPU ------------------------------------------------------------------------------------------- */

static void sync_begin(struct core_fixture *f, struct core_call *c) {
    struct gb_locator at = core_at("default", "e");

    core_call_begin(c);
    gb_event_sync_call(f->core, &at, c->call.event);
}

/* A sync is about the record that it found: a later one, or the event's end, changes nothing for it. */
START_TEST(a_sync_waits_for_the_record_that_it_found) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_event_view event;
    struct core_gate gate;
    struct core_call c[2];
    int i;

    core_fixture_init(&f, specs[_i]);
    make_streams(&f);
    gb_assert_ok(core_event_sync(f.core, "default", "e", &event, &err), err);
    ck_assert(!event.recorded && event.done);
    gb_assert_fails(core_event_sync(f.core, "default", "none", NULL, &err), err, GB_ERR_EVENT_NOT_FOUND);
    core_gate_close_on(&gate, &f, "default", "a", 0);
    gb_assert_ok(core_event_record(f.core, "default", "e", "a", &err), err);
    for (i = 0; i < 2; i++)
        sync_begin(&f, &c[i]);
    gb_assert_ok(core_event_record(f.core, "default", "e", "b", &err), err);
    gb_assert_ok(core_event_sync(f.core, "default", "e", &event, &err), err);
    ck_assert(event.done && strcmp(event.stream.s, "b") == 0);
    gb_assert_ok(core_event_remove(f.core, "default", "e", &err), err);
    gb_assert_ok(core_stream_remove(f.core, "default", "a", &err), err);
    for (i = 0; i < 2; i++)
        ck_assert(!core_call_over(&c[i]));
    core_gate_open(&gate);
    for (i = 0; i < 2; i++) {
        gb_assert_ok(core_call_wait(&c[i], &err), err);
        ck_assert(c[i].call.event->event.done && strcmp(c[i].call.event->event.stream.s, "a") == 0);
        core_call_free(&c[i]);
    }
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

struct before {
    struct core_fixture *f;
    uint64_t sequence;
};

static bool changed(void *arg) {
    const struct before *before = arg;

    return gb_core_sequence(before->f->core) > before->sequence;
}

/* Those who poll learn of the end of the device's work, on all devices, by the core's number of changes. */
START_TEST(the_end_of_the_work_is_announced) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_locator at = core_at("default", "e");
    struct gb_locator none = core_at("default", "none");
    struct before before = {.f = &f};
    struct gb_event_view event;
    struct core_gate gate;

    core_fixture_init(&f, "host:discrete,devices=2,bytes=64M");
    make_streams(&f);
    gb_event_announce(f.core, &at); /* never recorded, or not there: nothing to announce */
    gb_event_announce(f.core, &none);
    core_gate_close_on(&gate, &f, "default", "a", gb_device_count(f.core) - 1);
    gb_assert_ok(core_event_record(f.core, "default", "e", "a", &err), err);
    gb_event_announce(f.core, &at);
    gb_event_announce(f.core, &at);
    before.sequence = gb_core_sequence(f.core);
    gb_assert_ok(core_stream_sync(f.core, "default", "b", &err), err);
    ck_assert(!changed(&before));
    core_gate_open(&gate);
    core_until(changed, &before, "the end is announced");
    gb_assert_ok(core_event_get(f.core, "default", "e", &event, &err), err);
    ck_assert(event.done);
    ck_assert_uint_eq(gb_core_sequence(f.core), before.sequence + 1);
    core_fixture_done(&f);
}
END_TEST

/* --- what the device may refuse ----------------------------------------------------------------------------------- */

static const char *const faults[] = {"event_record",        "event_create", "stream_create", "stream_wait",
                                     "event_record_device", "watch",        "complete",      "event_query",
                                     "stream_query",        "event_sync"};

/* Returns how many steps failed. Each failure is reported, and nothing is left behind. */
static unsigned play(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    char data[1000] = {1};
    struct core_gate gate;
    unsigned failed = 0;
    int r[8];
    int i;

    core_gate_close_on(&gate, f, "default", "c", 0);
    r[0] = core_upload_on(f->core, "default", "x", "a", "", data, sizeof(data), &err);
    err = GB_ERROR_INIT;
    r[1] = core_event_record(f->core, "default", "e", "c", &err);
    err = GB_ERROR_INIT;
    r[2] = core_event_wait(f->core, "default", "e", "b", &err);
    core_gate_open(&gate);
    err = GB_ERROR_INIT;
    r[3] = core_stream_sync(f->core, "default", "b", &err);
    err = GB_ERROR_INIT;
    r[4] = core_session_sync(f->core, "default", &err);
    err = GB_ERROR_INIT;
    r[5] = core_device_sync(f->core, 0, &err);
    if (r[5] < 0)
        ck_assert_str_ne(err.native_name, "");
    err = GB_ERROR_INIT;
    r[7] = core_event_sync(f->core, "default", "e", NULL, &err);
    err = GB_ERROR_INIT;
    r[6] = core_download_on(f->core, "default", "x", "b", data, sizeof(data), &err);
    if (r[0] == 0)
        failed += r[6] < 0;
    for (i = 0; i < 6; i++)
        failed += r[i] < 0;
    failed += r[7] < 0;
    err = GB_ERROR_INIT;
    if (r[0] == 0)
        gb_assert_ok(core_buffer_delete(f->core, "default", "x", &err), err);
    core_until_idle(f);
    return failed;
}

START_TEST(each_call_fails_once) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    unsigned total = 0;
    unsigned failed;
    char spec[128];
    unsigned n;

    for (n = 1; n <= 12; n = CORE_FAULT_NEXT(n)) {
        snprintf(spec, sizeof(spec), "fault:%s@%u=cudaErrorInvalidValue:%s", faults[_i / 2], n, specs[_i % 2]);
        core_fixture_init(&f, spec);
        make_streams(&f);
        failed = play(&f);
        ck_assert_msg(failed <= 1, "%s: %u steps failed", spec, failed);
        if (failed > 0)
            ck_assert_msg(play(&f) == 0, "%s: does not recover", spec);
        total += failed;
        gb_assert_ok(core_stream_remove(f.core, "default", "a", &err), err);
        core_fixture_done(&f);
    }
    /* If the CPU uses the memory directly, transfers query the stream, and else events. */
    if (strcmp(faults[_i / 2], _i % 2 == 0 ? "event_query" : "stream_query") != 0)
        ck_assert_msg(total > 0, "%s never failed", faults[_i / 2]);
}
END_TEST

START_TEST(a_dead_device) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_pool_params p = core_pool_params("default", "p", 0, 0);
    struct gb_stream_view stream;
    struct gb_pool_view pool;

    core_fixture_init(&f, "fault:event_record_device=cudaErrorIllegalAddress:host:bytes=64M");
    make_streams(&f);
    gb_assert_ok(core_pool_make(f.core, &p, NULL, &err), err);
    gb_assert_fails(core_device_sync(f.core, 0, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(core_device_sync(f.core, 0, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(core_stream_sync(f.core, "default", "a", &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(core_session_sync(f.core, "default", &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(core_event_record(f.core, "default", "e", "a", &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(core_event_wait(f.core, "default", "e", "a", &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(core_event_sync(f.core, "default", "e", NULL, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(core_pool_patch(f.core, &p, NULL, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_fails(core_pool_trim(f.core, "default", "p", 0, NULL, &err), err, GB_ERR_DEVICE_LOST);
    p.rec.name = core_name("q");
    gb_assert_fails(core_pool_make(f.core, &p, NULL, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_ok(core_pool_get(f.core, "default", "p", &pool, &err), err);
    ck_assert(pool.lost);
    gb_assert_ok(core_stream_get(f.core, "default", "a", &stream, &err), err);
    gb_assert_ok(core_stream_remove(f.core, "default", "a", &err), err);
    gb_assert_ok(core_event_remove(f.core, "default", "e", &err), err);
    gb_assert_ok(core_pool_remove(f.core, "default", "p", false, &err), err); /* its record can go */
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_events");
    TCase *tc = tcase_create("events");

    tcase_add_test(tc, bytes_come_in_order);
    tcase_add_loop_test(tc, a_download_waits_for_its_stream, 0, 2);
    tcase_add_test(tc, across_devices);
    tcase_add_loop_test(tc, a_sync_waits_for_the_record_that_it_found, 0, 2);
    tcase_add_test(tc, the_end_of_the_work_is_announced);
    tcase_add_loop_test(tc, each_call_fails_once, 0, 20);
    tcase_add_test(tc, a_dead_device);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
    return gb_test_run(suite);
}
