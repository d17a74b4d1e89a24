/* Properties of the host backend alone: its options, hidden memory, threads started on demand, checked copies. */
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "gb_test.h"

#define MIB (1ull << 20)

static struct gb_backend *be;
static struct gb_error err;
static char note[GB_BACKEND_NOTE_SIZE];

static void open_spec(const char *spec) {
    err = GB_ERROR_INIT;
    gb_assert_ok(gb_backend_open(spec, &be, note, &err), err);
}

static struct gb_stream *new_stream(int device) {
    struct gb_stream *stream = NULL;

    gb_assert_ok(gb_stream_create(be, device, &stream, &err), err);
    return stream;
}

static struct gb_pool *default_pool(int device) {
    struct gb_pool *pool = NULL;

    gb_assert_ok(gb_pool_default(be, device, &pool, &err), err);
    return pool;
}

static char *new_memory(struct gb_pool *pool, struct gb_stream *stream, uint64_t bytes) {
    void *p = NULL;

    gb_assert_ok(gb_mem_alloc(be, pool, stream, bytes, &p, &err), err);
    return p;
}

START_TEST(specifications_are_checked) {
    static const char *const bad[] = {"",
                                      "hosts",
                                      "host:",
                                      "gpu",
                                      "host:devices",
                                      "host:devices=",
                                      "host:devices=0",
                                      "host:devices=17",
                                      "host:devices=1x",
                                      "host:bytes=1",
                                      "host:bytes=-5",
                                      "host:bytes=99999999999T",
                                      "host:discreet",
                                      "host:peers",
                                      "host:peers=maybe",
                                      "host:managed=attached",
                                      "host:discrete,",
                                      "host:discrete,,devices=2",
                                      "host:,devices=2",
                                      "fault",
                                      "fault:",
                                      "fault:host",
                                      "fault::nothing",
                                      "fault:x=1:host"};
    size_t i;

    err = GB_ERROR_INIT;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (strcmp(bad[i], "host:") == 0)
            continue;
        ck_assert_msg(gb_backend_open(bad[i], &be, note, &err) == -1, "'%s' was accepted", bad[i]);
        ck_assert_msg(err.code == GB_ERR_INVALID_ARGUMENT, "'%s': %s", bad[i], err.detail);
        ck_assert_msg(strstr(err.detail, "permitted") || strstr(err.detail, "form") || strstr(err.detail, "comma"),
                      "'%s': %s", bad[i], err.detail);
        err = GB_ERROR_INIT;
    }
    gb_backend_close(NULL);
}
END_TEST

START_TEST(options_take_effect) {
    struct gb_device_rec a;
    struct gb_device_rec b;

    open_spec("host:discrete,devices=3,bytes=64M");
    ck_assert_int_eq(gb_backend_device_count(be), 3);
    gb_assert_ok(gb_backend_device_get(be, 0, &a, &err), err);
    gb_assert_ok(gb_backend_device_get(be, 2, &b, &err), err);
    ck_assert_uint_eq(b.total_bytes, 64 * MIB);
    ck_assert(!a.cpu_access && !a.integrated);
    ck_assert_str_ne(a.uuid, b.uuid);
    ck_assert_str_eq(a.kind_missing[GB_KIND_DEVICE], "");
    ck_assert_str_eq(a.kind_missing[GB_KIND_MANAGED], "");
    ck_assert(!a.kind_cpu[GB_KIND_DEVICE] && !a.kind_cpu[GB_KIND_SHARED] && a.kind_cpu[GB_KIND_MANAGED]);
    ck_assert_ptr_nonnull(strstr(note, "copies only"));
    gb_backend_close(be);
    open_spec("host");
    gb_assert_ok(gb_backend_device_get(be, 0, &a, &err), err);
    ck_assert(a.cpu_access && a.integrated && a.kind_cpu[GB_KIND_SHARED] && !a.managed_attach);
    ck_assert_uint_gt(a.total_bytes, 0);
    gb_backend_close(be);
}
END_TEST

START_TEST(auto_says_why) {
    open_spec("auto");
    if (strcmp(gb_backend_name(be), "host") == 0)
        ck_assert_ptr_nonnull(strstr(note, "not cuda"));
    gb_backend_close(be);
}
END_TEST

START_TEST(hidden_memory_cannot_be_touched) {
    struct gb_stream *stream;
    volatile char *p;

    signal(SIGSEGV, SIG_DFL); /* a sanitizer may have installed its own handler */
    open_spec("host:discrete,bytes=64M");
    stream = new_stream(0);
    p = new_memory(default_pool(0), stream, MIB);
    gb_assert_ok(gb_stream_sync(be, stream, &err), err);
    p[_i == 0 ? 0 : MIB - 1] = 1; /* faults here */
}
END_TEST

START_TEST(copies_outside_device_memory_are_refused) {
    char local[64] = {0};
    struct gb_stream *stream;
    char *p;

    open_spec(_i == 0 ? "host:bytes=64M" : "host:discrete,bytes=64M");
    stream = new_stream(0);
    p = new_memory(default_pool(0), stream, 64 * MIB);
    gb_assert_fails(gb_mem_copy(be, local, local, 8, GB_COPY_TO_DEVICE, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_copy(be, local, local, 8, GB_COPY_FROM_DEVICE, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_copy(be, p, local, 8, GB_COPY_ON_DEVICE, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_copy(be, p + 64 * MIB - 7, local, 8, GB_COPY_TO_DEVICE, stream, &err), err,
                    GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_fill(be, p + 64 * MIB - 7, 0, 4, 2, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_fill(be, p + 2, 0, 4, 2, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_fill(be, p, 0, 4, 1ull << 63, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_free(be, p + 512, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_mem_free(be, local, stream, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_ok(gb_mem_copy(be, p + 64 * MIB - 8, local, 8, GB_COPY_TO_DEVICE, stream, &err), err);
    gb_assert_ok(gb_mem_free(be, p, stream, &err), err);
    ck_assert_int_eq(gb_mem_free(be, p, stream, &err), -1);
    ck_assert_str_eq(err.native_domain, "host");
    ck_assert_str_eq(err.native_name, "cudaErrorInvalidValue");
    ck_assert_int_eq(err.native_code, 1);
    gb_stream_destroy(be, stream);
    gb_backend_close(be);
}
END_TEST

START_TEST(devices_do_not_mix) {
    struct gb_stream *s0;
    struct gb_stream *s1;
    struct gb_event *event = NULL;
    char back[16] = {0};
    void *none = NULL;
    char *p0;
    char *p1;

    open_spec("host:discrete,devices=2,bytes=64M");
    s0 = new_stream(0);
    s1 = new_stream(1);
    gb_assert_fails(gb_mem_alloc(be, default_pool(0), s1, 512, &none, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    gb_assert_fails(gb_event_record(be, event, s1, &err), err, GB_ERR_DEVICE_ERROR);
    p0 = new_memory(default_pool(0), s0, 4096);
    p1 = new_memory(default_pool(1), s1, 4096);
    gb_assert_ok(gb_mem_fill(be, p0, 0x77, 1, 4096, s0, &err), err);
    gb_assert_ok(gb_event_record(be, event, s0, &err), err);
    gb_assert_ok(gb_stream_wait(be, s1, event, &err), err);
    gb_assert_ok(gb_mem_copy(be, p1, p0, 4096, GB_COPY_ON_DEVICE, s1, &err), err);
    gb_assert_ok(gb_mem_copy(be, back, p1 + 4080, 16, GB_COPY_FROM_DEVICE, s1, &err), err);
    gb_assert_ok(gb_stream_sync(be, s1, &err), err);
    ck_assert_int_eq(back[15], 0x77);
    gb_assert_fails(gb_stream_create(be, 2, &s0, &err), err, GB_ERR_DEVICE_ERROR);
    gb_assert_fails(gb_stream_create(be, -1, &s0, &err), err, GB_ERR_DEVICE_ERROR);
    gb_event_destroy(be, event);
    gb_stream_destroy(be, s0);
    gb_stream_destroy(be, s1);
    gb_backend_close(be);
}
END_TEST

static void pass_gate(void *arg) {
    while (sem_wait(arg) != 0)
        continue;
}

struct meeting {
    sem_t arrived;
    sem_t leave;
};

static void meet(void *arg) {
    struct meeting *meeting = arg;

    sem_post(&meeting->arrived);
    while (sem_wait(&meeting->leave) != 0)
        continue;
}

/* Twenty streams block in host functions at one time; another stream still makes progress. */
START_TEST(blocked_calls_do_not_use_up_the_threads) {
    enum { BLOCKED = 20 };
    struct gb_stream *streams[BLOCKED + 1];
    struct meeting meeting;
    int round;
    char *p;
    int i;

    open_spec("host:bytes=256M");
    sem_init(&meeting.arrived, 0, 0);
    sem_init(&meeting.leave, 0, 0);
    for (i = 0; i <= BLOCKED; i++)
        streams[i] = new_stream(0);
    for (round = 0; round < 3; round++) {
        for (i = 0; i < BLOCKED; i++)
            gb_assert_ok(gb_stream_call(be, streams[i], meet, &meeting, &err), err);
        for (i = 0; i < BLOCKED; i++)
            pass_gate(&meeting.arrived);
        p = new_memory(default_pool(0), streams[BLOCKED], 8 * MIB);
        gb_assert_ok(gb_mem_fill(be, p, 1, 1, 8 * MIB, streams[BLOCKED], &err), err);
        gb_assert_ok(gb_mem_free(be, p, streams[BLOCKED], &err), err);
        gb_assert_ok(gb_stream_sync(be, streams[BLOCKED], &err), err);
        for (i = 0; i < BLOCKED; i++)
            sem_post(&meeting.leave);
        for (i = 0; i < BLOCKED; i++)
            gb_assert_ok(gb_stream_sync(be, streams[i], &err), err);
    }
    for (i = 0; i <= BLOCKED; i++)
        gb_stream_destroy(be, streams[i]);
    gb_backend_close(be);
}
END_TEST

/* A thousand streams that wait for one event occupy no thread. */
START_TEST(parked_streams_need_no_thread) {
    enum { PARKED = 1000 };
    static struct gb_stream *streams[PARKED];
    struct gb_event *event = NULL;
    struct meeting meeting;
    struct gb_stream *first;
    char *p;
    int i;

    open_spec("host:bytes=256M");
    sem_init(&meeting.arrived, 0, 0);
    sem_init(&meeting.leave, 0, 0);
    first = new_stream(0);
    p = new_memory(default_pool(0), first, 64 * 1024);
    gb_assert_ok(gb_event_create(be, 0, &event, &err), err);
    gb_assert_ok(gb_stream_call(be, first, meet, &meeting, &err), err);
    gb_assert_ok(gb_mem_fill(be, p, 3, 1, 64 * 1024, first, &err), err);
    gb_assert_ok(gb_event_record(be, event, first, &err), err);
    for (i = 0; i < PARKED; i++) {
        streams[i] = new_stream(0);
        gb_assert_ok(gb_stream_wait(be, streams[i], event, &err), err);
        gb_assert_ok(gb_mem_fill(be, p + i, 4, 1, 1, streams[i], &err), err);
    }
    sem_post(&meeting.leave);
    for (i = 0; i < PARKED; i++)
        gb_stream_destroy(be, streams[i]);
    for (i = 0; i < PARKED; i++)
        ck_assert_int_eq(p[i], 4);
    ck_assert_int_eq(p[PARKED], 3);
    gb_event_destroy(be, event);
    gb_stream_destroy(be, first);
    gb_backend_close(be);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host backend");
    TCase *deadly = tcase_create("hidden memory");
    TCase *both = tcase_create("bounds");

    gb_test_add(suite, "specifications", specifications_are_checked, 10);
    gb_test_add(suite, "options", options_take_effect, 10);
    gb_test_add(suite, "auto", auto_says_why, 60);
    tcase_add_loop_test_raise_signal(deadly, hidden_memory_cannot_be_touched, SIGSEGV, 0, 2);
    suite_add_tcase(suite, deadly);
    tcase_add_loop_test(both, copies_outside_device_memory_are_refused, 0, 2);
    suite_add_tcase(suite, both);
    gb_test_add(suite, "devices do not mix", devices_do_not_mix, 10);
    gb_test_add(suite, "blocked calls", blocked_calls_do_not_use_up_the_threads, 60);
    gb_test_add(suite, "parked streams", parked_streams_need_no_thread, 60);
    return gb_test_run(suite);
}
