/* Leases of mirrored buffers: the side that is current is mapped. */
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"
#include "lease_fixture.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BYTES (3 * CORE_SLOT_BYTES + 123)

static char data[BYTES];
static char other[BYTES];

START_TEST(a_mirrored_buffer_has_its_host_side_mapped) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_buffer_params create = core_upload_params("default", "b", BYTES).buffer;
    struct gb_lease_params p;
    struct core_mapping m;
    struct core_result r;
    struct gb_buffer_rec rec;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    h = core_holder(f.core);
    create.mirrored = true;
    gb_assert_ok(core_create(f.core, &create, NULL, &err), err);
    p = core_map_params(h, "default", "b", false);
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_UNSUPPORTED); /* no memory yet */
    u.buffer.mirrored = true;
    u.buffer.has_mirrored = true;
    core_put(f.core, &u, 1, data);
    gb_assert_ok(core_sync(f.core, "default", "a", false, &r, &err), err);
    ck_assert_int_eq(r.rec.head, GB_HEAD_SYNCED);
    p = core_map_params(h, "default", "a", true);
    gb_assert_ok(core_map(f.core, &p, &m, &err), err);
    ck_assert_int_eq(m.kind, GB_KIND_PINNED);
    ck_assert_int_eq(m.rec.head, GB_HEAD_HOST); /* the importer is about to write this side */
    gb_assert_fails(core_sync(f.core, "default", "a", false, &r, &err), err, GB_ERR_MAPPED);
    gb_assert_ok(core_sync(f.core, "default", "a", true, &r, &err), err); /* nothing to do */
    gb_assert_fails(core_release(f.core, "default", "a", false, true, &r, &err), err, GB_ERR_MAPPED);
    gb_assert_fails(core_release(f.core, "default", "a", true, true, &r, &err), err, GB_ERR_MAPPED);
    u.partial = true;
    u.bytes = 100;
    gb_assert_fails(core_upload(f.core, &u, data, &rec, &err), err, GB_ERR_MAPPED);
    core_bytes(2, data, BYTES);
    memcpy(m.bytes, data, BYTES);
    gb_assert_ok(core_lease_end(f.core, m.id, h, &err), err);
    gb_assert_ok(core_sync(f.core, "default", "a", false, &r, &err), err);
    gb_assert_ok(core_release(f.core, "default", "a", true, false, &r, &err), err);
    core_expect(f.core, "default", "a", data, BYTES);
    core_mapping_done(&m);
    gb_holder_end(h);
    core_until_unmapped(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A full upload to the mapped side goes to fresh memory. An upload to the other side leaves the mapped side out of
 * date. */
START_TEST(a_mirrored_buffer_is_replaced_beside_it) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_lease_params p;
    struct core_mapping m[2];
    struct core_result r;
    struct gb_buffer_rec rec;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    h = core_holder(f.core);
    u.buffer.mirrored = true;
    u.buffer.has_mirrored = true;
    core_put(f.core, &u, 1, data);
    p = core_map_params(h, "default", "a", true);
    gb_assert_ok(core_map(f.core, &p, &m[0], &err), err);
    core_put(f.core, &u, 2, other);
    ck_assert_int_eq(memcmp(m[0].bytes, data, BYTES), 0);
    ck_assert_int_eq(core_lease(f.core, m[0].id).state, GB_LEASE_REPLACED);
    core_expect(f.core, "default", "a", other, BYTES);
    gb_assert_ok(core_map(f.core, &p, &m[1], &err), err);
    u.to_device_side = true;
    core_put(f.core, &u, 3, other);
    ck_assert_int_eq(core_lease(f.core, m[1].id).state, GB_LEASE_REPLACED);
    core_expect(f.core, "default", "a", other, BYTES);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.head, GB_HEAD_DEVICE);
    ck_assert_int_eq(rec.generation, 5);
    ck_assert_uint_eq(rec.leases, 1);
    gb_assert_fails(core_sync(f.core, "default", "a", true, &r, &err), err, GB_ERR_MAPPED); /* writes mapped memory */
    gb_holder_end(h);
    core_until_unmapped(&f);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 5); /* the lease could not write the content that readers get */
    gb_assert_ok(core_sync(f.core, "default", "a", true, &r, &err), err);
    core_expect(f.core, "default", "a", other, BYTES);
    core_mapping_done(&m[0]);
    core_mapping_done(&m[1]);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_lease_mirror");

    gb_test_add_loop(suite, "mirrored", a_mirrored_buffer_has_its_host_side_mapped, 60, SPECS);
    gb_test_add_loop(suite, "mirrored_beside", a_mirrored_buffer_is_replaced_beside_it, 60, SPECS);
    return gb_test_run(suite);
}
