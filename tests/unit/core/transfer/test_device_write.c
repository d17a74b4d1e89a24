/* Copies and fills: what they write, what they refuse, what happens meanwhile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "device_write_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M", "host:devices=2,bytes=64M"};
#define SPECS 3

#define BYTES (3 * CORE_SLOT_BYTES + 123)

START_TEST(copies_make_and_replace) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params p = core_copy_params("default", "a", "other", "b");
    struct core_result r;
    struct gb_core_stats stats;
    struct gb_buffer_params create = {.session = core_name("default"), .name = core_name("c"), .bytes = 24};
    char *a = malloc(BYTES);
    char *b = malloc(BYTES);

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "a", BYTES, 1, a);
    gb_assert_ok(core_write(f.core, &p, &r, &err), err);
    ck_assert(r.created);
    ck_assert_int_eq(r.way, GB_WAY_DEVICE);
    ck_assert_int_eq(r.rec.generation, 1);
    ck_assert_uint_eq(r.rec.bytes, BYTES);
    ck_assert(r.rec.has_crc32c); /* that of the source */
    ck_assert_uint_eq(r.rec.crc32c, gb_crc32c(0, a, BYTES));
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
    ck_assert(!r.rec.has_crc32c);
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
    core_tidy(&f);
    core_fixture_done(&f);
    free(a);
    free(b);
}
END_TEST

/* Within one buffer, and nothing at all. */
START_TEST(copies_to_itself) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params p = core_copy_params("default", "a", "default", "a");
    struct core_result r;
    char *a = malloc(BYTES);

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "a", BYTES, 1, a);
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
    core_tidy(&f);
    core_fixture_done(&f);
    free(a);
}
END_TEST

START_TEST(fills_repeat_a_pattern) {
    static const uint64_t patterns[] = {0xab, 0xbeef, 0xdeadbeef, 0x0123456789abcdef};
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params p;
    struct core_result r;
    struct gb_core_stats stats;
    const size_t bytes = 80000;
    char *want = malloc(bytes);
    unsigned i;
    size_t at;

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "a", bytes, 1, want);
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
    core_tidy(&f);
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
    struct gb_device_write_params p = core_copy_params("default", "a", "other", "b");
    struct gb_session_params quota = {.has_quota_bytes = true, .quota.bytes = 1000};
    struct core_result r;
    int checked = 0;

    core_open_two(&f, specs[_i]);
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    core_put_bytes(&f, "default", "a", 1000, 1, NULL);
    p.offset = 1;
    gb_assert_fails(core_write(f.core, &p, &r, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    core_put_bytes(&f, "other", "b", 500, 2, NULL);
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
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* --- between devices ---------------------------------------------------------------------------------------------- */

static void across(const char *spec, enum gb_copy_way way) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params p = core_copy_params("default", "a", "other", "b");
    struct gb_upload_params u = core_upload_params("other", "b", BYTES);
    struct core_result r;
    char *a = malloc(BYTES);

    core_open_two(&f, spec);
    if (gb_device_count(f.core) < 2) {
        printf("skipped: \"%s\" has one device\n", gb_backend_name(f.backend));
        core_fixture_done(&f);
        free(a);
        return;
    }
    u.buffer.pool = core_name("default.1");
    core_put_bytes(&f, "default", "a", BYTES, 1, a);
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
    core_tidy(&f);
    core_fixture_done(&f);
    free(a);
}

START_TEST(copies_between_devices) {
    across("host:discrete,devices=2,bytes=64M", GB_WAY_PEER);
    across("host:devices=2,peers=no,bytes=64M", GB_WAY_STAGED);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_write");

    gb_test_add_loop(suite, "copy", copies_make_and_replace, 120, SPECS);
    gb_test_add_loop(suite, "self", copies_to_itself, 120, SPECS);
    gb_test_add_loop(suite, "fill", fills_repeat_a_pattern, 120, SPECS);
    gb_test_add_loop(suite, "refuse", refusals_name_the_numbers, 120, SPECS);
    gb_test_add_loop(suite, "devices", copies_between_devices, 120, 1);
    return gb_test_run(suite);
}
