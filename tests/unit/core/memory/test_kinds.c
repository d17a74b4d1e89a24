/* Kinds of memory: every use case on each of them. */
#include <stdlib.h>
#include <string.h>

#include "device_write_fixture.h"
#include "gb_test.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M",
                                    "host:discrete,managed=attach,bytes=64M",
                                    "host:managed=attach,devices=2,bytes=64M"};
#define SPECS 4

#define BYTES (3 * CORE_SLOT_BYTES + 123)

/* What the device takes such memory for. */
static enum gb_memory_type type_of(enum gb_kind kind) {
    switch (kind) {
    case GB_KIND_MANAGED:
        return GB_MEMORY_MANAGED;
    case GB_KIND_PINNED:
        return GB_MEMORY_HOST;
    case GB_KIND_PAGEABLE:
        return GB_MEMORY_UNREGISTERED;
    default:
        return GB_MEMORY_DEVICE;
    }
}

static void look(struct core_fixture *f, enum gb_kind kind, const char *name) {
    struct gb_error err = GB_ERROR_INIT;
    struct core_result r;

    gb_assert_ok(core_attributes(f->core, "default", name, &r, &err), err);
    ck_assert_int_eq(r.attr.type, type_of(kind));
    ck_assert_int_eq(r.attr.from_pool, kind == GB_KIND_DEVICE);
    ck_assert_int_eq(r.attr.this_pool, kind == GB_KIND_DEVICE);
    ck_assert_int_eq(r.attr.device_address != 0 || r.attr.host_address != 0, 1);
    ck_assert_int_eq(r.rec.kind, kind);
}

/* Uploads of a part and of all, in place and not. */
static void write_all_ways(struct core_fixture *f, const char *name, char *want) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params p = core_upload_params("default", name, BYTES);
    int i;

    for (i = 0; i < 4; i++) {
        p.partial = i % 2 == 0;
        p.in_place = i >= 2;
        p.offset = p.partial ? 1000 : 0;
        p.bytes = p.partial ? 70000 : BYTES;
        core_bytes(10 + (unsigned)i, want + p.offset, p.bytes);
        gb_assert_ok(core_upload(f->core, &p, want + p.offset, NULL, &err), err);
        core_expect(f->core, "default", name, want, BYTES);
    }
}

START_TEST(every_kind_does_it_all) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_core_stats stats;
    struct core_result r;
    enum gb_kind kind;
    char *want = malloc(BYTES);

    core_fixture_init(&f, specs[_i]);
    for (kind = 0; kind < GB_KIND_COUNT; kind++) {
        struct gb_buffer_params p = core_kind_params("x", kind, BYTES);

        if (!core_kind_offered(&f, kind)) {
            gb_assert_fails(core_create(f.core, &p, &r, &err), err, GB_ERR_UNSUPPORTED);
            continue;
        }
        gb_assert_ok(core_create(f.core, &p, &r, &err), err);
        ck_assert_int_eq(r.rec.kind, kind);
        ck_assert_int_eq(r.rec.pool.s[0] != '\0', kind == GB_KIND_DEVICE);
        memset(want, 0, BYTES);
        core_expect(f.core, "default", "x", want, BYTES);
        look(&f, kind, "x");
        write_all_ways(&f, "x", want);
        look(&f, kind, "x");
        gb_core_stats(f.core, &stats);
        ck_assert_uint_eq(stats.kinds[GB_UPLOAD][kind].count, 4);
        ck_assert_uint_eq(stats.kinds[GB_UPLOAD][kind].bytes, 2 * (BYTES + 70000));
        ck_assert_uint_eq(stats.kinds[GB_DOWNLOAD][kind].count, 5);
        ck_assert_uint_eq(stats.kinds[GB_DOWNLOAD][kind].bytes, 5ull * BYTES);
        gb_assert_ok(core_buffer_delete(f.core, "default", "x", &err), err);
        p.name = core_name("empty");
        p.bytes = 0;
        p.shape.dim[0] = 0;
        gb_assert_ok(core_create(f.core, &p, &r, &err), err);
        gb_assert_ok(core_attributes(f.core, "default", "empty", &r, &err), err);
        ck_assert_int_eq(r.attr.type, GB_MEMORY_UNREGISTERED);
        gb_assert_ok(core_buffer_delete(f.core, "default", "empty", &err), err);
    }
    core_until_idle(&f);
    core_fixture_done(&f);
    free(want);
}
END_TEST

/* Copies from each kind to each, and fills, in place and not. */
START_TEST(copies_between_kinds) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct core_result r;
    enum gb_kind from;
    enum gb_kind to;
    char *a = malloc(BYTES);
    char *b = malloc(BYTES);
    uint64_t pattern = 0x1122334455667788;

    core_fixture_init(&f, specs[_i]);
    for (from = 0; from < GB_KIND_COUNT; from++) {
        struct gb_upload_params u = core_upload_params("default", "a", BYTES);

        if (!core_kind_offered(&f, from))
            continue;
        u.buffer.kind = from;
        u.buffer.has_kind = true;
        core_put(f.core, &u, 1 + from, a);
        for (to = 0; to < GB_KIND_COUNT; to++) {
            struct gb_device_write_params w = core_copy_params("default", "a", "default", "b");

            if (!core_kind_offered(&f, to))
                continue;
            u = core_upload_params("default", "b", BYTES);
            u.buffer.kind = to;
            u.buffer.has_kind = true;
            core_put(f.core, &u, 20 + to, b);
            w.has_bytes = true;
            w.bytes = 50000;
            w.offset = 8;
            w.from_offset = 16;
            memcpy(b + 8, a + 16, 50000);
            gb_assert_ok(core_write(f.core, &w, &r, &err), err);
            ck_assert_int_eq(r.rec.kind, to);
            ck_assert_int_ne(r.way, GB_WAY_NONE);
            core_expect(f.core, "default", "b", b, BYTES);
            w.in_place = true;
            w.offset = 60000;
            memcpy(b + 60000, a + 16, 50000);
            gb_assert_ok(core_write(f.core, &w, &r, &err), err);
            core_expect(f.core, "default", "b", b, BYTES);
            w = core_fill_params("default", "b", pattern, 8);
            w.in_place = from % 2 == 0;
            w.has_bytes = true;
            w.bytes = 8;
            w.offset = 800;
            memcpy(b + 800, &pattern, 8);
            gb_assert_ok(core_write(f.core, &w, &r, &err), err);
            core_expect(f.core, "default", "b", b, BYTES);
        }
        gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
        { /* made by the copy: of the same kind */
            struct gb_device_write_params w = core_copy_params("default", "a", "default", "b");

            gb_assert_ok(core_write(f.core, &w, &r, &err), err);
            ck_assert_int_eq(r.rec.kind, from);
        }
    }
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
    free(a);
    free(b);
}
END_TEST

START_TEST(a_kind_stays_unless_another_is_named) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", 1000);
    struct gb_buffer_params p = core_kind_params("b", GB_KIND_PINNED, 10);
    struct gb_buffer_rec rec;
    char data[1000];

    core_fixture_init(&f, specs[_i]);
    core_bytes(1, data, sizeof(data));
    u.buffer.kind = GB_KIND_PINNED;
    gb_assert_ok(core_upload(f.core, &u, data, &rec, &err), err);
    ck_assert_int_eq(rec.kind, GB_KIND_PINNED);
    u.buffer.kind = GB_KIND_DEVICE;
    gb_assert_ok(core_upload(f.core, &u, data, &rec, &err), err);
    ck_assert_int_eq(rec.kind, GB_KIND_PINNED);
    u.buffer.kind = GB_KIND_PAGEABLE;
    u.in_place = true;
    gb_assert_fails(core_upload(f.core, &u, data, &rec, &err), err, GB_ERR_INVALID_ARGUMENT);
    u.in_place = false;
    gb_assert_ok(core_upload(f.core, &u, data, &rec, &err), err);
    ck_assert_int_eq(rec.kind, GB_KIND_PAGEABLE);
    ck_assert_str_eq(rec.pool.s, "");
    u.buffer.kind = GB_KIND_DEVICE;
    u.buffer.has_kind = true;
    gb_assert_ok(core_upload(f.core, &u, data, &rec, &err), err);
    ck_assert_int_eq(rec.kind, GB_KIND_DEVICE);
    ck_assert_str_eq(rec.pool.s, "default");
    /* Only kind "device" comes from a pool; all others are on a device. */
    p.pool = core_name("default");
    gb_assert_fails(core_create(f.core, &p, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
    u.buffer.kind = GB_KIND_PINNED;
    u.buffer.pool = core_name("default");
    gb_assert_fails(gb_upload_check(f.core, &u, &err), err, GB_ERR_INVALID_ARGUMENT);
    p.pool = core_name("");
    p.has_device = true;
    p.device = gb_device_count(f.core);
    gb_assert_fails(core_create(f.core, &p, NULL, &err), err, GB_ERR_DEVICE_NOT_FOUND);
    p.device--;
    gb_assert_ok(core_create(f.core, &p, NULL, &err), err);
    gb_assert_ok(core_buffer_get(f.core, "default", "b", &rec, &err), err);
    ck_assert_int_eq(rec.device, p.device);
    p.kind = GB_KIND_COUNT;
    p.name = core_name("c");
    gb_assert_fails(core_create(f.core, &p, NULL, &err), err, GB_ERR_INVALID_ARGUMENT);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_kinds");

    gb_test_add_loop(suite, "all", every_kind_does_it_all, 120, SPECS);
    gb_test_add_loop(suite, "between", copies_between_kinds, 120, SPECS);
    gb_test_add_loop(suite, "named", a_kind_stays_unless_another_is_named, 120, SPECS);
    return gb_test_run(suite);
}
