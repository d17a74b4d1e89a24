/* Sealed buffers: refused and permitted operations, and restarts. */
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"
#include "lease_fixture.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BYTES 10000

static char data[BYTES];

static void refuses_all(struct core_fixture *f) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_in_place("a", BYTES);
    struct gb_device_write_params fill = core_fill_params("default", "a", 7, 1);
    struct gb_device_write_params copy = core_copy_params("default", "b", "default", "a");
    struct gb_buffer_rec rec;

    gb_assert_fails(core_upload(f->core, &u, data, &rec, &err), err, GB_ERR_SEALED);
    u.in_place = false;
    gb_assert_fails(gb_upload_check(f->core, &u, &err), err, GB_ERR_SEALED);
    gb_assert_fails(core_upload(f->core, &u, data, &rec, &err), err, GB_ERR_SEALED);
    u.partial = true;
    u.bytes = 1;
    gb_assert_fails(core_upload(f->core, &u, data, &rec, &err), err, GB_ERR_SEALED);
    gb_assert_fails(core_write(f->core, &fill, NULL, &err), err, GB_ERR_SEALED);
    gb_assert_fails(core_write(f->core, &copy, NULL, &err), err, GB_ERR_SEALED);
}

/* A sealed buffer's bytes never change, and a restart does not break the seal. */
START_TEST(a_sealed_buffer_is_not_written) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params copy = core_copy_params("default", "a", "default", "c");
    struct gb_buffer_params patch = {.session = core_name("default"), .name = core_name("a"), .has_labels = true};
    struct gb_lease_params p;
    struct gb_buffer_rec rec;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    core_put_bytes(&f, "default", "b", BYTES, 2, NULL);
    gb_assert_ok(core_seal(f.core, "default", "a", &err), err);
    gb_assert_ok(core_seal(f.core, "default", "a", &err), err);
    refuses_all(&f);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", true);
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_SEALED);
    p.write = false;
    gb_assert_ok(core_map(f.core, &p, NULL, &err), err);
    gb_holder_end(h);
    core_until_unmapped(&f);
    patch.labels = store_labels("{\"x\":\"y\"}");
    gb_assert_ok(core_do(&err, buffer, gb_buffer_patch, f.core, &patch, NULL), err);
    gb_assert_ok(core_write(f.core, &copy, NULL, &err), err); /* its copy is not sealed */
    gb_assert_ok(core_buffer_get(f.core, "default", "c", &rec, &err), err);
    ck_assert(!rec.sealed);
    core_expect(f.core, "default", "a", data, BYTES);
    core_fixture_close(&f);
    core_fixture_open(&f);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert(rec.sealed);
    ck_assert_int_eq(rec.generation, 1);
    ck_assert_str_eq(gb_labels_text(rec.labels), "{\"x\":\"y\"}");
    gb_buffer_rec_done(&rec);
    core_put_bytes(&f, "default", "b", BYTES, 2, NULL);
    refuses_all(&f);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_put_bytes(&f, "default", "a", BYTES, 3, NULL); /* the name is free */
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert(!rec.sealed);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(what_may_change_is_not_sealed) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_in_place("a", BYTES);
    struct gb_lease_params p;
    struct gb_upload *fresh;
    struct gb_upload *upload;
    struct gb_holder *h;
    struct core_wake w;

    core_open_two(&f, specs[_i]);
    core_wake_init(&w);
    gb_assert_fails(core_seal(f.core, "default", "a", &err), err, GB_ERR_BUFFER_NOT_FOUND);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", true);
    gb_assert_ok(core_map(f.core, &p, NULL, &err), err);
    gb_assert_fails(core_seal(f.core, "default", "a", &err), err, GB_ERR_MAPPED);
    gb_holder_end(h);
    core_until_unmapped(&f);
    u.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &u, &upload, &err), err);
    gb_assert_fails(core_seal(f.core, "default", "a", &err), err, GB_ERR_BUFFER_BUSY);
    gb_assert_ok(core_upload_send(upload, &w, data, BYTES, &err), err);
    gb_assert_ok(core_upload_finish(upload, &w, NULL, &err), err);
    gb_upload_free(upload);
    /* An upload that began before the seal is refused at its end. */
    u.in_place = false;
    gb_assert_ok(gb_upload_begin(f.core, &u, &fresh, &err), err);
    gb_assert_ok(core_upload_send(fresh, &w, data, BYTES, &err), err);
    gb_assert_ok(core_seal(f.core, "default", "a", &err), err);
    gb_assert_fails(core_upload_finish(fresh, &w, NULL, &err), err, GB_ERR_SEALED);
    gb_upload_free(fresh);
    core_expect(f.core, "default", "a", data, BYTES);
    core_wake_done(&w);
    core_tidy(&f);
    core_put_bytes(&f, "default", "b", BYTES, 2, NULL);
    core_fixture_close(&f);
    core_fixture_open(&f);
    gb_assert_fails(core_seal(f.core, "default", "b", &err), err, GB_ERR_CONTENT_LOST);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A sealed mirrored buffer may sync a side, because no reader sees a change. It may not release both sides. */
START_TEST(a_sealed_mirrored_buffer) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct core_result r;

    core_open_two(&f, specs[_i]);
    u.buffer.mirrored = true;
    u.buffer.has_mirrored = true;
    core_put(f.core, &u, 1, data);
    gb_assert_ok(core_seal(f.core, "default", "a", &err), err);
    gb_assert_ok(core_sync(f.core, "default", "a", false, &r, &err), err);
    ck_assert(r.rec.sealed);
    gb_assert_ok(core_release(f.core, "default", "a", true, false, &r, &err), err);
    gb_assert_fails(core_release(f.core, "default", "a", true, true, &r, &err), err, GB_ERR_SEALED);
    gb_assert_fails(core_upload(f.core, &u, data, NULL, &err), err, GB_ERR_SEALED);
    core_expect(f.core, "default", "a", data, BYTES);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_seal");

    gb_test_add_loop(suite, "sealed", a_sealed_buffer_is_not_written, 60, SPECS);
    gb_test_add_loop(suite, "unsealed", what_may_change_is_not_sealed, 60, SPECS);
    gb_test_add_loop(suite, "sealed_mirror", a_sealed_mirrored_buffer, 60, SPECS);
    return gb_test_run(suite);
}
