/* Uploads whose length nothing tells: memory grows with them, and what remains is as large as what came. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core/runtime/runtime.h"
#include "core/session/session.h"
#include "device_write_fixture.h"
#include "gb_test.h"

#define MIB (1u << 20)
#define MOST (9 * MIB + 12345)

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

static char data[MOST];
static char back[MOST];

static struct gb_upload_params open_params(const char *name) {
    struct gb_upload_params p = core_upload_params("default", name, 0);

    p.open_ended = true;
    p.bytes = INT64_MAX;
    return p;
}

/* Sends n bytes, in one piece or in uneven ones. */
static int send_all(struct core_fixture *f, const struct gb_upload_params *params, size_t n, size_t piece,
                    struct gb_buffer_rec *ret, struct gb_error *err) {
    struct gb_upload_params p = *params;
    struct gb_upload *u = NULL;
    struct core_wake w;
    size_t at;
    int r;

    core_wake_init(&w);
    p.waker = core_waker(&w);
    r = gb_upload_begin(f->core, &p, &u, err);
    for (at = 0; r == 0 && at < n; at += piece)
        r = core_upload_send(u, &w, data + at, n - at < piece ? n - at : piece, err);
    if (r == 0)
        r = core_upload_finish(u, &w, ret, err);
    gb_upload_free(u);
    core_wake_done(&w);
    return r;
}

static bool at_rest(void *arg) {
    struct core_fixture *f = arg;
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    return stats.uploads_running == 0;
}

struct held {
    struct core_fixture *f;
    enum gb_kind kind;
    uint64_t bytes;
};

/* The quota and the memory hold just that. */
static bool holds(void *arg) {
    struct held *held = arg;
    struct gb_session *s = gb_session_after(held->f->core, 0);
    struct gb_memory_numbers n;
    uint64_t used;

    pthread_mutex_lock(&s->lock);
    used = s->used_bytes;
    pthread_mutex_unlock(&s->lock);
    gb_session_unref(s);
    gb_alloc_counters_read(&held->f->core->memory[held->kind], &n);
    return used == held->bytes && n.level.bytes == held->bytes;
}

/* The record, the bytes, the quota and the memory agree. */
static void check(struct core_fixture *f, const char *name, size_t n, enum gb_kind kind) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_ok(core_buffer_get(f->core, "default", name, &rec, &err), err);
    ck_assert_int_eq(rec.state, GB_BUFFER_READY);
    ck_assert_uint_eq(rec.bytes, n);
    ck_assert_uint_eq(rec.shape.dims, 1);
    ck_assert_uint_eq(rec.shape.dim[0], n);
    ck_assert(rec.has_crc32c);
    ck_assert_uint_eq(rec.crc32c, gb_crc32c(0, data, n));
    ck_assert_int_eq(rec.kind, kind);
    core_until(holds, &(struct held){f, kind, n}, "the bytes of the buffer are held, and no others");
    memset(back, 0x55, n);
    gb_assert_ok(core_download(f->core, "default", name, 0, n, back, &err), err);
    ck_assert(memcmp(data, back, n) == 0);
}

START_TEST(each_size_and_kind) {
    static const size_t sizes[] = {0,           1,       65535,       65536,   65537,       MIB - 1,       MIB, MIB + 1,
                                   2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 4 * MIB, 4 * MIB + 1, 5 * MIB + 777, MOST};
    static const size_t pieces[] = {MOST, 100003};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    enum gb_kind kind;
    unsigned i;

    core_open_two(&f, specs[_i / 2]);
    core_bytes(1, data, MOST);
    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        struct gb_upload_params p = open_params("a");

        p.buffer.kind = kind;
        p.buffer.has_kind = true;
        if (!core_kind_offered(&f, kind))
            continue;
        for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            gb_assert_ok(send_all(&f, &p, sizes[i], pieces[_i % 2], NULL, &err), err);
            check(&f, "a", sizes[i], kind);
        }
        gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
        core_until_idle(&f);
    }
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_reserve_is_shrunk) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = open_params("a");

    core_open_two(&f, specs[_i]);
    core_bytes(2, data, MOST);
    p.reserve = true;
    p.bytes = MOST;
    gb_assert_ok(send_all(&f, &p, MOST, MOST, NULL, &err), err);
    check(&f, "a", MOST, GB_KIND_DEVICE);
    gb_assert_ok(send_all(&f, &p, MOST - 1, MOST, NULL, &err), err);
    check(&f, "a", MOST - 1, GB_KIND_DEVICE);
    gb_assert_ok(send_all(&f, &p, 3, MOST, NULL, &err), err);
    check(&f, "a", 3, GB_KIND_DEVICE);
    p.bytes = 2;
    gb_assert_fails(send_all(&f, &p, 3, MOST, NULL, &err), err, GB_ERR_BODY_TOO_LARGE);
    p.bytes = 0;
    gb_assert_fails(send_all(&f, &p, 3, MOST, NULL, &err), err, GB_ERR_BODY_TOO_LARGE);
    check(&f, "a", 3, GB_KIND_DEVICE);
    p.bytes = 1ull << 40; /* more than there is, on a GPU too */
    gb_assert_fails(send_all(&f, &p, 3, MOST, NULL, &err), err, GB_ERR_OUT_OF_MEMORY);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(elements_are_whole) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = open_params("a");
    struct gb_buffer_rec rec;

    core_open_two(&f, specs[_i]);
    p.buffer.dtype = GB_DTYPE_FLOAT32;
    gb_assert_ok(send_all(&f, &p, 8, 8, &rec, &err), err);
    ck_assert_uint_eq(rec.shape.dim[0], 2);
    ck_assert_int_eq(rec.dtype, GB_DTYPE_FLOAT32);
    gb_buffer_rec_done(&rec);
    gb_assert_fails(send_all(&f, &p, 7, 8, NULL, &err), err, GB_ERR_SHAPE_MISMATCH);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 1);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* The quota is full during growth, or at the end, where the bytes are needed twice. */
START_TEST(the_quota_holds) {
    struct gb_session_params session = {.name = core_name("default")};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = open_params("a");
    struct gb_upload_params old = core_upload_params("default", "a", 1000);

    core_open_two(&f, specs[_i]);
    core_bytes(3, data, MOST);
    gb_assert_ok(core_upload(f.core, &old, data, NULL, &err), err);
    session.has_quota_bytes = true;
    session.quota.bytes = 6 * MIB;
    gb_assert_ok(core_session_patch(f.core, "default", &session, &err), err);
    gb_assert_fails(send_all(&f, &p, MOST, MOST, NULL, &err), err, GB_ERR_QUOTA_EXCEEDED);
    check(&f, "a", 1000, GB_KIND_DEVICE);
    ck_assert_int_lt(send_all(&f, &p, 4 * MIB, MOST, NULL, &err), 0);
    ck_assert_int_eq(err.code, GB_ERR_QUOTA_EXCEEDED);
    ck_assert_ptr_nonnull(strstr(err.detail, "needs its bytes twice"));
    err = GB_ERROR_INIT;
    check(&f, "a", 1000, GB_KIND_DEVICE);
    gb_assert_ok(send_all(&f, &p, 2 * MIB, MOST, NULL, &err), err);
    check(&f, "a", 2 * MIB, GB_KIND_DEVICE);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A quota that has no room for a segment of the usual size. */
START_TEST(a_small_quota_is_used) {
    static const size_t fits[] = {1, 4096, 4097, 300000, 340000};
    struct gb_session_params session = {.name = core_name("default"), .has_quota_bytes = true, .quota.bytes = 700000};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = open_params("a");
    size_t i;

    core_open_two(&f, specs[_i]);
    core_bytes(3, data, MOST);
    gb_assert_ok(core_session_patch(f.core, "default", &session, &err), err);
    for (i = 0; i < sizeof(fits) / sizeof(fits[0]); i++) {
        gb_assert_ok(send_all(&f, &p, fits[i], MOST, NULL, &err), err);
        check(&f, "a", fits[i], GB_KIND_DEVICE);
        gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    }
    gb_assert_ok(send_all(&f, &p, 340000, MOST, NULL, &err), err);
    session.quota.bytes = 340000 + 6000;
    gb_assert_ok(core_session_patch(f.core, "default", &session, &err), err);
    p.buffer.name = core_name("b");
    gb_assert_ok(send_all(&f, &p, 100, MOST, NULL, &err), err);
    gb_assert_fails(send_all(&f, &p, 5000, MOST, NULL, &err), err, GB_ERR_QUOTA_EXCEEDED);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* The device's memory is full during growth. */
START_TEST(the_device_is_full) {
    static const char *const small[] = {"host:bytes=8M", "host:discrete,bytes=8M"};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = open_params("a");
    struct gb_upload_params old = core_upload_params("default", "a", 1000);

    core_open_two(&f, small[_i]);
    if (core_on_host(&f)) {
        gb_assert_ok(core_upload(f.core, &old, data, NULL, &err), err);
        gb_assert_fails(send_all(&f, &p, MOST, MOST, NULL, &err), err, GB_ERR_OUT_OF_MEMORY);
        ck_assert_int_lt(send_all(&f, &p, 6 * MIB, MOST, NULL, &err), 0);
        ck_assert_int_eq(err.code, GB_ERR_OUT_OF_MEMORY);
        ck_assert_ptr_nonnull(strstr(err.detail, "needs its bytes twice"));
        check(&f, "a", 1000, GB_KIND_DEVICE);
        core_tidy(&f);
    }
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_client_goes_in_the_midst) {
    static const size_t sizes[] = {0, 1, MIB, MIB + 1, 3 * MIB, MOST};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = open_params("a");
    struct gb_upload_params old = core_upload_params("default", "a", 1000);
    unsigned i;

    core_open_two(&f, specs[_i]);
    core_bytes(4, data, MOST);
    gb_assert_ok(core_upload(f.core, &old, data, NULL, &err), err);
    for (i = 0; i < 2 * (sizeof(sizes) / sizeof(sizes[0])); i++) {
        struct gb_upload *u;
        struct core_wake w;
        size_t n;
        void *room;

        core_wake_init(&w);
        p.waker = core_waker(&w);
        gb_assert_ok(gb_upload_begin(f.core, &p, &u, &err), err);
        gb_assert_ok(core_upload_send(u, &w, data, sizes[i / 2], &err), err);
        if (i % 2 == 1) /* while more memory is being allocated, where all is full */
            ck_assert_int_ge(gb_upload_room(u, &room, &n, &err), 0);
        gb_upload_free(u);
        core_wake_done(&w);
    }
    core_until(at_rest, &f, "nothing runs any more");
    check(&f, "a", 1000, GB_KIND_DEVICE);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A body that ends early wrote what came; one that continues beyond the buffer is refused. */
START_TEST(a_part_ends_where_the_buffer_ends) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params whole = core_upload_params("default", "a", 3 * MIB);
    struct gb_upload_params p = open_params("a");
    static const struct {
        size_t offset;
        size_t bytes;
    } part[] = {{0, 0}, {0, 5}, {100, 70000}, {3 * MIB - 1, 1}, {3 * MIB, 0}, {0, 3 * MIB}, {12345, 2 * MIB + 3}};
    struct gb_buffer_rec rec;
    char *want = malloc(3 * MIB);
    unsigned i;

    core_open_two(&f, specs[_i / 3]);
    whole.buffer.mirrored = p.buffer.mirrored = _i % 3 == 2;
    core_bytes(5, want, 3 * MIB);
    gb_assert_ok(core_upload(f.core, &whole, want, NULL, &err), err);
    p.partial = true;
    p.in_place = _i % 3 == 1;
    for (i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        core_bytes(6 + i, data, part[i].bytes);
        memcpy(want + part[i].offset, data, part[i].bytes);
        p.offset = part[i].offset;
        gb_assert_ok(send_all(&f, &p, part[i].bytes, MOST, &rec, &err), err);
        ck_assert_uint_eq(rec.bytes, 3 * MIB);
        ck_assert_int_eq(rec.state, GB_BUFFER_READY);
        gb_buffer_rec_done(&rec);
        gb_assert_ok(core_download(f.core, "default", "a", 0, 3 * MIB, back, &err), err);
        ck_assert(memcmp(want, back, 3 * MIB) == 0);
    }
    p.offset = 3 * MIB + 1;
    gb_assert_fails(send_all(&f, &p, 0, MOST, NULL, &err), err, GB_ERR_SHAPE_MISMATCH);
    p.offset = 3 * MIB - 5;
    gb_assert_fails(send_all(&f, &p, 6, MOST, NULL, &err), err, GB_ERR_SHAPE_MISMATCH);
    core_until(at_rest, &f, "nothing runs any more");
    core_tidy(&f);
    core_fixture_done(&f);
    free(want);
}
END_TEST

/* A mirrored buffer of another size gets a host side of the new one; the other side follows it. */
START_TEST(a_mirrored_buffer_grows) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = open_params("a");
    struct gb_upload_params to_device = p;
    struct gb_buffer_rec rec;

    core_open_two(&f, specs[_i]);
    core_bytes(7, data, MOST);
    p.buffer.mirrored = to_device.buffer.mirrored = true;
    to_device.to_device_side = true;
    gb_assert_ok(send_all(&f, &p, 100, MOST, NULL, &err), err);
    gb_assert_ok(send_all(&f, &p, 5 * MIB, MOST, NULL, &err), err);
    gb_assert_ok(core_download(f.core, "default", "a", 0, 5 * MIB, back, &err), err);
    ck_assert(memcmp(data, back, 5 * MIB) == 0);
    gb_assert_ok(send_all(&f, &to_device, 3 * MIB, MOST, &rec, &err), err);
    ck_assert_uint_eq(rec.bytes, 3 * MIB);
    ck_assert_int_eq(rec.head, GB_HEAD_DEVICE);
    gb_buffer_rec_done(&rec);
    gb_assert_ok(core_download(f.core, "default", "a", 0, 3 * MIB, back, &err), err);
    ck_assert(memcmp(data, back, 3 * MIB) == 0);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* --- each call of the device fails once --------------------------------------------------------------------------- */

static const char *const faults[] = {"alloc",       "copy",  "kind_alloc", "event_create", "event_record",
                                     "event_query", "watch", "complete",   "stream_create"};
#define FAULTS (sizeof(faults) / sizeof(faults[0]))

static unsigned play(struct core_fixture *f) {
    struct gb_upload_params p = open_params("a");
    struct gb_error err = GB_ERROR_INIT;
    const size_t sizes[] = {1000, 3 * MIB + 5};
    unsigned failed = 0;
    size_t there = 0;
    unsigned i;

    for (i = 0; i < 2; i++) {
        if (send_all(f, &p, sizes[i], MOST, NULL, &err) == 0) {
            there = sizes[i];
        } else {
            ck_assert_msg(err.code == GB_ERR_DEVICE_ERROR || err.code == GB_ERR_OUT_OF_MEMORY, "%s: %s",
                          gb_code_slug(err.code), err.detail);
            failed++;
        }
        err = GB_ERROR_INIT;
    }
    core_until(at_rest, f, "nothing runs any more");
    if (core_download(f->core, "default", "a", 0, there, back, &err) < 0)
        return there > 0 ? failed + 1 : failed;
    ck_assert(memcmp(data, back, there) == 0);
    return failed;
}

START_TEST(each_call_fails_once) {
    const char *op = faults[(size_t)_i % FAULTS];
    char spec[128];
    bool met = true;
    unsigned sum = 0;
    unsigned n;

    core_bytes(8, data, MOST);
    for (n = 1; met && n <= 12; n = CORE_FAULT_NEXT(n)) {
        struct core_fixture f;
        unsigned failed;

        snprintf(spec, sizeof(spec), "fault:%s@%u=%s:%s", op, n,
                 strcmp(op, "alloc") == 0 ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue",
                 specs[(size_t)_i / FAULTS]);
        core_open_two(&f, spec);
        failed = play(&f);
        core_tidy(&f);
        ck_assert_msg(failed <= 1, "%s: %u steps failed", spec, failed);
        if (failed > 0)
            ck_assert_msg(play(&f) == 0, "%s: does not recover", spec);
        core_tidy(&f);
        met = core_fault_met(&f); /* else there are fewer calls */
        core_fixture_done(&f);
        sum += failed;
    }
    if (strcmp(op, "kind_alloc") != 0 && strcmp(op, "alloc") != 0 &&
        (strcmp(op, "event_query") != 0 || (size_t)_i >= FAULTS))
        ck_assert_msg(sum > 0, "%s never failed", op);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_grow");

    gb_test_add_loop(suite, "sizes", each_size_and_kind, 120, 2 * SPECS);
    gb_test_add_loop(suite, "reserve", a_reserve_is_shrunk, 60, SPECS);
    gb_test_add_loop(suite, "elements", elements_are_whole, 60, SPECS);
    gb_test_add_loop(suite, "quota", the_quota_holds, 60, SPECS);
    gb_test_add_loop(suite, "small quota", a_small_quota_is_used, 60, SPECS);
    gb_test_add_loop(suite, "memory", the_device_is_full, 60, SPECS);
    gb_test_add_loop(suite, "gone", a_client_goes_in_the_midst, 60, SPECS);
    gb_test_add_loop(suite, "parts", a_part_ends_where_the_buffer_ends, 60, 3 * SPECS);
    gb_test_add_loop(suite, "mirrored", a_mirrored_buffer_grows, 60, SPECS);
    gb_test_add_loop(suite, "once", each_call_fails_once, 120, SPECS * FAULTS);
    return gb_test_run(suite);
}
