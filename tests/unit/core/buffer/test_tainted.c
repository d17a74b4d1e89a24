/* Writable leases that another client ends: the mapping process may write on, so the content is tainted. */
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"
#include "lease_fixture.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BYTES (3 * CORE_SLOT_BYTES + 123)

static char data[BYTES];
static char other[BYTES];

static struct gb_buffer_rec record_of(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec rec;

    gb_assert_ok(core_buffer_get(f->core, "default", "a", &rec, &err), err);
    return rec;
}

/* Maps "a" and ends the lease without its holder. The process keeps its mapping. */
static struct core_mapping escape(struct core_fixture *f, bool write) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_holder *h = core_holder(f->core);
    struct gb_lease_params p = core_map_params(h, "default", "a", write);
    struct core_mapping m;

    gb_assert_ok(core_map(f->core, &p, &m, &err), err);
    gb_assert_ok(core_lease_end(f->core, m.id, NULL, &err), err);
    gb_holder_end(h);
    return m;
}

static void verify(struct core_fixture *f) {
    struct gb_scan_params p = {.session = core_name("default"), .name = core_name("a"), .verify = true};
    struct gb_error err = GB_ERROR_INIT;

    p.stream = core_name("default");
    gb_assert_ok(core_do(&err, scan, gb_buffer_scan, f->core, &p), err);
}

START_TEST(nothing_is_claimed_of_the_bytes) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_in_place("a", BYTES);
    struct core_mapping m;
    struct core_fixture f;

    core_open_two(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    ck_assert(!record_of(&f).tainted);
    m = escape(&f, true);
    ck_assert(record_of(&f).tainted && !record_of(&f).mapped_for_writing);
    ck_assert_uint_eq(record_of(&f).leases, 0);
    gb_assert_fails(core_seal(f.core, "default", "a", &err), err, GB_ERR_ESCAPED);
    verify(&f); /* a verification of untainted content would store the checksum */
    ck_assert(!record_of(&f).has_crc32c);
    m.bytes[7] ^= 1;
    data[7] ^= 1;
    core_expect(f.core, "default", "a", data, BYTES); /* so it can happen */
    core_bytes(2, other, BYTES);
    gb_assert_ok(core_upload(f.core, &u, other, NULL, &err), err); /* the upload writes into the same memory */
    ck_assert(record_of(&f).tainted && !record_of(&f).has_crc32c);
    gb_assert_fails(core_seal(f.core, "default", "a", &err), err, GB_ERR_ESCAPED);
    ck_assert_int_eq(memcmp(m.bytes, other, BYTES), 0);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 3, other); /* into other memory */
    ck_assert(!record_of(&f).tainted && record_of(&f).has_crc32c);
    memset(m.bytes, 0, BYTES);
    core_expect(f.core, "default", "a", other, BYTES);
    gb_assert_ok(core_seal(f.core, "default", "a", &err), err);
    core_mapping_done(&m);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* Content is not tainted if the lease was for reading, its process ended it, or its connection ended. */
START_TEST(other_ends_are_ends) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct core_mapping m;
    struct core_fixture f;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    m = escape(&f, false);
    core_mapping_done(&m);
    ck_assert(!record_of(&f).tainted && record_of(&f).has_crc32c);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", true);
    gb_assert_ok(core_map(f.core, &p, &m, &err), err);
    core_mapping_done(&m);
    gb_assert_ok(core_lease_end(f.core, m.id, h, &err), err);
    ck_assert(!record_of(&f).tainted);
    gb_assert_ok(core_map(f.core, &p, &m, &err), err);
    core_mapping_done(&m);
    gb_holder_end(h);
    core_until_unmapped(&f);
    ck_assert(!record_of(&f).tainted);
    verify(&f);
    ck_assert(record_of(&f).has_crc32c);
    gb_assert_ok(core_seal(f.core, "default", "a", &err), err);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A partial upload writes into a fresh copy of the content. Neither that copy nor another buffer's copy is tainted. */
START_TEST(copies_do_not_escape) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", 10);
    struct gb_device_write_params copy = core_copy_params("default", "a", "default", "b");
    struct gb_buffer_rec rec;
    struct core_mapping m;
    struct core_fixture f;

    core_open_two(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    m = escape(&f, true);
    gb_assert_ok(core_write(f.core, &copy, NULL, &err), err);
    gb_assert_ok(core_buffer_get(f.core, "default", "b", &rec, &err), err);
    ck_assert(!rec.tainted && !rec.has_crc32c);
    u.partial = true;
    u.offset = 5;
    memset(data + 5, 'x', 10);
    gb_assert_ok(core_upload(f.core, &u, data + 5, NULL, &err), err);
    ck_assert(!record_of(&f).tainted);
    memset(m.bytes, 0, BYTES);
    core_expect(f.core, "default", "a", data, BYTES);
    core_mapping_done(&m);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* Only the current side counts. A tainted side becomes current again only in fresh memory. */
START_TEST(a_mirrored_buffer_leaves_the_side) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct core_mapping m;
    struct core_result r;
    struct core_fixture f;

    core_open_two(&f, specs[_i]);
    u.buffer.mirrored = true;
    u.buffer.has_mirrored = true;
    core_put(f.core, &u, 1, data);
    m = escape(&f, true); /* the host side */
    ck_assert(record_of(&f).tainted);
    gb_assert_ok(core_sync(f.core, "default", "a", false, &r, &err), err);
    ck_assert(record_of(&f).tainted);
    u.to_device_side = true;
    core_put(f.core, &u, 2, data);
    ck_assert(!record_of(&f).tainted && record_of(&f).has_crc32c);
    gb_assert_ok(core_sync(f.core, "default", "a", true, &r, &err), err);
    ck_assert(r.copied && !record_of(&f).tainted);
    memset(m.bytes, 0, BYTES);
    core_expect(f.core, "default", "a", data, BYTES);
    core_mapping_done(&m);
    m = escape(&f, true);
    u.to_device_side = false;
    core_put(f.core, &u, 3, data);
    ck_assert(!record_of(&f).tainted && record_of(&f).has_crc32c);
    memset(m.bytes, 0, BYTES);
    core_expect(f.core, "default", "a", data, BYTES);
    core_mapping_done(&m);
    gb_assert_ok(core_seal(f.core, "default", "a", &err), err);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_escaped");

    gb_test_add_loop(suite, "claims", nothing_is_claimed_of_the_bytes, 60, SPECS);
    gb_test_add_loop(suite, "ends", other_ends_are_ends, 60, SPECS);
    gb_test_add_loop(suite, "copies", copies_do_not_escape, 60, SPECS);
    gb_test_add_loop(suite, "mirrored", a_mirrored_buffer_leaves_the_side, 60, SPECS);
    return gb_test_run(suite);
}
