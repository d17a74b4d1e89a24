/* Copies and fills: what they write, what they refuse, what happens meanwhile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"
#include "write_fixture.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M", "host:devices=2,bytes=64M"};
#define SPECS 3

#define BYTES (3 * CORE_SLOT_BYTES + 123)

static void open_two(struct core_fixture *f, const char *spec) {
    struct gb_session_params session = {.name = core_name("other")};
    struct gb_error err = GB_ERROR_INIT;

    core_fixture_init(f, spec);
    gb_assert_ok(core_session_create(f->core, &session, &err), err);
}

static void put(struct core_fixture *f, const char *session, const char *name, uint64_t bytes, unsigned seed,
                void *out) {
    struct gb_upload_params p = core_upload_params(session, name, bytes);

    core_put(f->core, &p, seed, out);
}

static void tidy(struct core_fixture *f) {
    static const char *const names[] = {"a", "b", "c"};
    struct gb_error err = GB_ERROR_INIT;
    int i;

    for (i = 0; i < 6; i++) {
        if (core_buffer_delete(f->core, i < 3 ? "default" : "other", names[i % 3], &err) < 0)
            ck_assert_int_eq(err.code, GB_ERR_BUFFER_NOT_FOUND);
        err = GB_ERROR_INIT;
    }
    core_until_idle(f);
}

START_TEST(copies_make_and_replace) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_write_params p = core_copy_params("default", "a", "other", "b");
    struct core_result r;
    struct gb_core_stats stats;
    struct gb_buffer_params create = {.session = core_name("default"), .name = core_name("c"), .bytes = 24};
    char *a = malloc(BYTES);
    char *b = malloc(BYTES);

    open_two(&f, specs[_i]);
    put(&f, "default", "a", BYTES, 1, a);
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert(r.created);
    ck_assert_int_eq(r.way, GB_WAY_DEVICE);
    ck_assert_int_eq(r.rec.generation, 1);
    ck_assert_uint_eq(r.rec.bytes, BYTES);
    ck_assert(!r.rec.has_crc32c);
    core_expect(f.core, "other", "b", a, BYTES);
    /* Into the middle of what is there. */
    memcpy(b, a, BYTES);
    p.from_offset = 100;
    p.offset = 7;
    p.has_bytes = true;
    p.bytes = 70001;
    memcpy(b + 7, a + 100, 70001);
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert(!r.created);
    ck_assert_int_eq(r.rec.generation, 2);
    core_expect(f.core, "other", "b", b, BYTES);
    p.in_place = true;
    p.offset = BYTES - 3;
    p.bytes = 3;
    memcpy(b + p.offset, a + 100, 3);
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert_int_eq(r.rec.generation, 3);
    core_expect(f.core, "other", "b", b, BYTES);
    /* What is not there is made like what it is made of. */
    create.dtype = GB_DTYPE_FLOAT32;
    create.shape = (struct gb_shape){.dims = 2, .dim = {2, 3}};
    gb_assert_ok(core_create(f.core, &create, NULL, &err), err);
    p = core_copy_params("default", "c", "other", "c");
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert_int_eq(r.rec.dtype, GB_DTYPE_FLOAT32);
    ck_assert_int_eq(r.rec.shape.dims, 2);
    p = core_copy_params("default", "c", "default", "b");
    p.from_offset = 4;
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert_int_eq(r.rec.dtype, GB_DTYPE_UINT8);
    ck_assert_uint_eq(r.rec.shape.dim[0], 20);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.counters.device_copies, 5);
    ck_assert_uint_eq(stats.counters.device_copy_bytes, BYTES + 70001 + 3 + 24 + 20);
    ck_assert_uint_eq(stats.counters.uploads, 1);
    tidy(&f);
    core_fixture_done(&f);
    free(a);
    free(b);
}
END_TEST

/* Within one buffer, and nothing at all. */
START_TEST(copies_to_itself) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_write_params p = core_copy_params("default", "a", "default", "a");
    struct core_result r;
    char *a = malloc(BYTES);

    open_two(&f, specs[_i]);
    put(&f, "default", "a", BYTES, 1, a);
    p.has_bytes = true;
    p.from_offset = 10;
    p.offset = 1000;
    p.bytes = 50000; /* they overlap: fresh memory does not mind */
    memmove(a + 1000, a + 10, 50000);
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    core_expect(f.core, "default", "a", a, BYTES);
    p.in_place = true;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.bytes = 991;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.bytes = 990;
    memcpy(a + 1000, a + 10, 990);
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    core_expect(f.core, "default", "a", a, BYTES);
    p.offset = 0;
    p.from_offset = 990;
    memcpy(a, a + 990, 990);
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    core_expect(f.core, "default", "a", a, BYTES);
    p.bytes = 0;
    p.offset = BYTES;
    p.from_offset = 5;
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert_int_eq(r.way, GB_WAY_NONE);
    p.in_place = false;
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    core_expect(f.core, "default", "a", a, BYTES);
    p = core_copy_params("default", "a", "default", "b");
    p.from_offset = BYTES;
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert_uint_eq(r.rec.bytes, 0);
    p = core_copy_params("default", "b", "other", "b");
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert_uint_eq(r.rec.bytes, 0);
    tidy(&f);
    core_fixture_done(&f);
    free(a);
}
END_TEST

START_TEST(fills_repeat_a_pattern) {
    static const uint64_t patterns[] = {0xab, 0xbeef, 0xdeadbeef, 0x0123456789abcdef};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_write_params p;
    struct core_result r;
    struct gb_core_stats stats;
    const size_t bytes = 80000;
    char *want = malloc(bytes);
    unsigned i;
    size_t at;

    open_two(&f, specs[_i]);
    put(&f, "default", "a", bytes, 1, want);
    for (i = 0; i < 8; i++) {
        unsigned width = 1u << (i % 4);

        p = core_fill_params("default", "a", patterns[i % 4], width);
        p.in_place = i >= 4;
        if (i > 0) {
            p.offset = width * (i + 3);
            p.has_bytes = i != 5;
            p.bytes = i != 5 ? width * 1001 : 0;
        }
        for (at = p.offset; at < (p.has_bytes ? p.offset + p.bytes : bytes); at += width)
            memcpy(want + at, &patterns[i % 4], width); /* little-endian, as every device */
        gb_assert_ok(core_write(f.core, &p, &r, &err), err);
        ck_assert_int_eq(r.way, GB_WAY_NONE);
        ck_assert_int_eq(r.rec.generation, (int64_t)i + 2);
        core_expect(f.core, "default", "a", want, bytes);
    }
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.counters.fills, 8);
    p = core_fill_params("default", "a", 1, 3);
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p = core_fill_params("default", "a", 256, 1);
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p = core_fill_params("default", "a", 1, 4);
    p.offset = 2;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.offset = 4;
    p.has_bytes = true;
    p.bytes = 6;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.bytes = bytes;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.offset = UINT64_MAX - 3;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.bytes = 0;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p = core_fill_params("default", "b", 1, 4);
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    core_expect(f.core, "default", "a", want, bytes);
    tidy(&f);
    core_fixture_done(&f);
    free(want);
}
END_TEST

static int never(void *arg, const struct gb_buffer_rec *rec, struct gb_error *err) {
    (void)rec;
    (*(int *)arg)++;
    return gb_error_set(err, GB_ERR_PRECONDITION_FAILED, "never");
}

static void freed(void *arg) {
    *(int *)arg += 100;
}

START_TEST(refusals_name_the_numbers) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_write_params p = core_copy_params("default", "a", "other", "b");
    struct gb_session_params quota = {.has_quota_bytes = true, .quota.bytes = 1000};
    struct core_result r;
    int checked = 0;

    open_two(&f, specs[_i]);
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    put(&f, "default", "a", 1000, 1, NULL);
    p.offset = 1;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    put(&f, "other", "b", 500, 2, NULL);
    p.offset = 0;
    core_write(f.core, &p, &r, &err);
    ck_assert_int_eq(err.code, GB_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.detail, "1000"));
    ck_assert_ptr_nonnull(strstr(err.detail, "500"));
    err = GB_ERROR_INIT;
    p.from_offset = 1001;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.from_offset = 999;
    p.has_bytes = true;
    p.bytes = 2;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.bytes = UINT64_MAX;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.bytes = 1;
    p.offset = UINT64_MAX;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.offset = 0;
    p.to_host_side = true;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.to_host_side = false;
    p.stream = core_name("nosuch");
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_STREAM_NOT_FOUND);
    p.stream = core_name("default");
    p.from_session = core_name("nosuch");
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_SESSION_NOT_FOUND);
    p.from_session = core_name("default");
    p.check = (struct gb_buffer_check){never, &checked, freed};
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_PRECONDITION_FAILED);
    ck_assert_int_eq(checked, 101);
    p.check = (struct gb_buffer_check){0};
    gb_assert_ok(core_session_patch(f.core, "other", &quota, &err), err);
    p.name = core_name("c");
    p.has_bytes = false;
    p.from_offset = 0;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_QUOTA_EXCEEDED);
    p.name = core_name("b");
    p.has_bytes = true;
    p.bytes = 500;
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    quota.quota.bytes = 500;
    gb_assert_ok(core_session_patch(f.core, "other", &quota, &err), err);
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_QUOTA_EXCEEDED);
    p.in_place = true;
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* While the destination's stream is held back. */
START_TEST(the_source_is_held) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_write_params p = core_copy_params("default", "a", "other", "b");
    struct core_pending pending[3];
    struct core_result r;
    struct core_gate gate;
    char *a = malloc(BYTES);
    int i;

    open_two(&f, specs[_i]);
    put(&f, "default", "a", BYTES, 1, a);
    put(&f, "other", "c", 100, 2, NULL);
    core_gate_close(&gate, &f, "other");
    for (i = 0; i < 2; i++) {
        core_pending_init(&pending[i]);
        p.name = core_name(i == 0 ? "a" : "b");
        gb_buffer_write(f.core, &p, pending[i].call);
    }
    /* Nobody else waits: not the source's session. */
    put(&f, "default", "a", BYTES, 3, NULL);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    put(&f, "default", "a", 77, 4, NULL);
    core_pending_init(&pending[2]);
    p = core_copy_params("default", "a", "other", "c");
    p.in_place = true;
    gb_buffer_write(f.core, &p, pending[2].call);
    gb_assert_fails(core_buffer_delete(f.core, "other", "c", &err), err, GB_ERR_BUFFER_BUSY);
    for (i = 0; i < 3; i++)
        ck_assert(!core_pending_done(&pending[i]));
    core_gate_open(&gate);
    for (i = 0; i < 3; i++)
        gb_assert_ok(core_pending_end(&pending[i], &r, &err), err);
    core_expect(f.core, "other", "a", a, BYTES);
    core_expect(f.core, "other", "b", a, BYTES);
    core_bytes(4, a, 77);
    {
        char *c = malloc(100);

        core_bytes(2, c, 100);
        memcpy(c, a, 77);
        core_expect(f.core, "other", "c", c, 100);
        free(c);
    }
    tidy(&f);
    core_fixture_done(&f);
    free(a);
}
END_TEST

/* What is built upon bytes that changed meanwhile does not bring them back; what replaces all of them does not mind. */
START_TEST(the_destination_changes) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_write_params p = core_copy_params("default", "a", "other", "b");
    struct gb_session_params again = {.name = core_name("other")};
    struct core_pending part;
    struct core_pending all;
    struct core_result r;
    struct core_gate gate;
    char *a = malloc(1000);

    open_two(&f, specs[_i]);
    put(&f, "default", "a", 1000, 1, a);
    put(&f, "other", "b", 2000, 2, NULL);
    put(&f, "other", "c", 1000, 3, NULL);
    core_gate_close(&gate, &f, "other");
    core_pending_init(&part);
    gb_buffer_write(f.core, &p, part.call);
    core_pending_init(&all);
    p.name = core_name("c");
    gb_buffer_write(f.core, &p, all.call);
    gb_assert_ok(core_buffer_delete(f.core, "other", "b", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "other", "c", &err), err);
    core_gate_open(&gate);
    gb_assert_fails(core_pending_end(&part, &r, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    gb_assert_fails(core_pending_end(&all, &r, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    /* With its whole session. */
    put(&f, "other", "c", 1000, 3, NULL);
    core_gate_close(&gate, &f, "other");
    core_pending_init(&all);
    gb_buffer_write(f.core, &p, all.call);
    gb_assert_ok(core_session_delete(f.core, "other", &err), err);
    core_gate_open(&gate);
    gb_assert_fails(core_pending_end(&all, &r, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_ok(core_session_create(f.core, &again, &err), err);
    tidy(&f);
    core_fixture_done(&f);
    free(a);
}
END_TEST

/* Readers of the old bytes finish undisturbed; in place they are in the way. */
START_TEST(readers_are_undisturbed) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_write_params p = core_fill_params("default", "a", 0, 1);
    struct gb_name s = core_name("default");
    struct gb_name n = core_name("a");
    struct gb_download *download;
    struct core_result r;
    struct core_wake w;
    char *a = malloc(BYTES);
    char *back = malloc(BYTES);

    open_two(&f, specs[_i]);
    core_wake_init(&w);
    put(&f, "default", "a", BYTES, 1, a);
    gb_assert_ok(gb_download_open(f.core, &s, &n, &s, core_wake, &w, &download, &err), err);
    gb_assert_ok(gb_download_start(download, 0, BYTES, &err), err);
    gb_assert_ok(core_download_read(download, &w, back, 100, &err), err);
    p.in_place = true;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_BUFFER_BUSY);
    p.in_place = false;
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    gb_assert_ok(core_download_read(download, &w, back + 100, BYTES - 100, &err), err);
    ck_assert_int_eq(memcmp(a, back, BYTES), 0);
    gb_download_free(download, true);
    memset(a, 0, BYTES);
    core_expect(f.core, "default", "a", a, BYTES);
    tidy(&f);
    core_wake_done(&w);
    core_fixture_done(&f);
    free(a);
    free(back);
}
END_TEST

#define BATCH 1000

/* Many at once on one stream: all are done, in order, none is looked after by asking again and again. */
START_TEST(a_batch_of_small_ones) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_write_params p = core_copy_params("default", "a", "other", "b");
    struct core_pending *pending = calloc(BATCH, sizeof(*pending));
    struct core_gate gate;
    struct gb_core_stats stats;
    char name[32];
    char a[64];
    int i;

    open_two(&f, specs[_i]);
    put(&f, "default", "a", sizeof(a), 1, a);
    put(&f, "other", "c", 1, 1, NULL);
    core_gate_close(&gate, &f, "other");
    for (i = 0; i < BATCH; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        p.name = core_name(name);
        core_pending_init(&pending[i]);
        gb_buffer_write(f.core, &p, pending[i].call);
    }
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.writes_running, BATCH);
    core_gate_open(&gate);
    for (i = 0; i < BATCH; i++)
        gb_assert_ok(core_pending_end(&pending[i], NULL, &err), err);
    for (i = 0; i < BATCH; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        core_expect(f.core, "other", name, a, sizeof(a));
        gb_assert_ok(core_buffer_delete(f.core, "other", name, &err), err);
    }
    tidy(&f);
    core_fixture_done(&f);
    free(pending);
}
END_TEST

/* --- between devices ------------------------------------------------------------------------------------------------------- */

static void across(const char *spec, enum gb_copy_way way) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_write_params p = core_copy_params("default", "a", "other", "b");
    struct gb_upload_params u = core_upload_params("other", "b", BYTES);
    struct core_result r;
    char *a = malloc(BYTES);

    open_two(&f, spec);
    u.buffer.pool = core_name("default.1");
    put(&f, "default", "a", BYTES, 1, a);
    core_put(f.core, &u, 2, NULL);
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert_int_eq(r.rec.device, 1);
    ck_assert_int_eq(r.way, way);
    core_expect(f.core, "other", "b", a, BYTES);
    p = core_copy_params("other", "b", "default", "c"); /* made where its source is */
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert_int_eq(r.rec.device, 1);
    ck_assert_str_eq(r.rec.pool.s, "default.1");
    ck_assert_int_eq(r.way, GB_WAY_DEVICE);
    core_expect(f.core, "default", "c", a, BYTES);
    p = core_copy_params("other", "b", "default", "a");
    p.offset = 5;
    p.has_bytes = true;
    p.bytes = 1000;
    p.in_place = true;
    memmove(a + 5, a, 1000);
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert_int_eq(r.rec.device, 0);
    core_expect(f.core, "default", "a", a, BYTES);
    tidy(&f);
    core_fixture_done(&f);
    free(a);
}

START_TEST(copies_between_devices) {
    across("host:devices=2,bytes=64M", GB_WAY_STAGED);
    across("host:discrete,devices=2,peers=no,bytes=64M", GB_WAY_STAGED);
}
END_TEST

/* --- failures ------------------------------------------------------------------------------------------------------------------ */

static const char *const faults[] = {"alloc",         "copy",        "place_fill", "event_create",
                                     "event_record",  "event_query", "watch",      "complete",
                                     "stream_create", "event_mark",  "stream_wait"};
#define FAULTS 11

static bool step(unsigned *failed, int r, struct gb_error *err) {
    if (r == 0)
        return true;
    ck_assert_msg(err->code == GB_ERR_DEVICE_ERROR || err->code == GB_ERR_OUT_OF_MEMORY, "%s: %s",
                  gb_code_slug(err->code), err->detail);
    ck_assert_str_ne(err->native_name, "");
    (*failed)++;
    *err = GB_ERROR_INIT;
    return false;
}

static bool at_rest(void *arg) {
    struct core_fixture *f = arg;
    struct gb_core_stats stats;

    gb_core_stats(f->core, &stats);
    return stats.writes_running == 0;
}

/* A copy, a part of one, one in place, a fill: what was acknowledged is there, what failed changed nothing, or, in place,
 * says that it may have. */
static unsigned play(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params up = core_upload_params("default", "a", 5000);
    struct gb_write_params p = core_copy_params("default", "a", "default", "b");
    struct gb_buffer_rec rec;
    struct core_result r;
    unsigned failed = 0;
    char a[5000];
    char b[5000];

    core_bytes(1, a, sizeof(a));
    if (!step(&failed, core_upload(f->core, &up, a, NULL, &err), &err) ||
        !step(&failed, core_write(f->core, &p, &r, &err), &err))
        return failed;
    memcpy(b, a, sizeof(b));
    p.from_offset = 1;
    p.offset = 2;
    p.has_bytes = true;
    p.bytes = 3000;
    if (step(&failed, core_write(f->core, &p, &r, &err), &err))
        memcpy(b + 2, a + 1, 3000);
    if (step(&failed, core_download(f->core, "default", "b", 0, sizeof(b), a, &err), &err))
        ck_assert_int_eq(memcmp(a, b, sizeof(b)), 0);
    p = core_fill_params("default", "b", 7, 8);
    p.in_place = true;
    if (step(&failed, core_write(f->core, &p, &r, &err), &err))
        return failed;
    core_until(at_rest, f, "nothing written any more");
    gb_assert_ok(core_buffer_get(f->core, "default", "b", &rec, &err), err);
    if (rec.state == GB_BUFFER_PARTIAL) {
        gb_assert_fails(core_download(f->core, "default", "b", 0, 1, a, &err), err, GB_ERR_BUFFER_PARTIAL);
        p.in_place = false;
        gb_assert_ok(core_write(f->core, &p, &r, &err), err); /* all of it: heals */
        ck_assert_int_eq(r.rec.state, GB_BUFFER_READY);
    } else {
        core_expect(f->core, "default", "b", b, sizeof(b));
    }
    return failed;
}

START_TEST(each_call_fails_once) {
    static const char *const backends[] = {"host:bytes=16M", "host:discrete,bytes=16M", "host:devices=2,bytes=16M"};
    const char *op = faults[_i % FAULTS];
    char spec[128];
    unsigned sum = 0;
    unsigned n;

    for (n = 1; n <= 20; n++) {
        struct core_fixture f;
        unsigned failed;

        snprintf(spec, sizeof(spec), "fault:%s@%u=%s:%s", op, n,
                 strcmp(op, "alloc") == 0 ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue",
                 backends[_i / FAULTS]);
        open_two(&f, spec);
        failed = play(&f);
        tidy(&f);
        ck_assert_msg(failed <= 1, "%s: %u steps failed", spec, failed);
        if (failed > 0)
            ck_assert_msg(play(&f) == 0, "%s: does not recover", spec);
        tidy(&f);
        core_fixture_done(&f);
        sum += failed;
    }
    if (strcmp(op, "alloc") != 0 && strcmp(op, "stream_wait") != 0)
        ck_assert_msg(sum > 0, "%s never failed", op);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test, int count) {
    TCase *tc = tcase_create(name);

    tcase_add_loop_test(tc, test, 0, count);
    tcase_set_timeout(tc, 120);
    suite_add_tcase(suite, tc);
}

int main(void) {
    Suite *suite = suite_create("core_write");

    add(suite, "copy", copies_make_and_replace, SPECS);
    add(suite, "self", copies_to_itself, SPECS);
    add(suite, "fill", fills_repeat_a_pattern, SPECS);
    add(suite, "refuse", refusals_name_the_numbers, SPECS);
    add(suite, "source", the_source_is_held, SPECS);
    add(suite, "destination", the_destination_changes, SPECS);
    add(suite, "readers", readers_are_undisturbed, SPECS);
    add(suite, "batch", a_batch_of_small_ones, SPECS);
    add(suite, "devices", copies_between_devices, 1);
    add(suite, "fault", each_call_fails_once, 3 * FAULTS);
    return gb_test_run(suite);
}
