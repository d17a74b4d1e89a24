/* Operations that a lease blocks, and leases that are refused. */
#include <stdlib.h>
#include <string.h>

#include "gb_test.h"
#include "lease_fixture.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BYTES 10000

static char data[BYTES];

/* Both readable and writable leases block these operations. */
START_TEST(mapped_bytes_are_not_written) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_in_place("a", BYTES);
    struct gb_device_write_params fill = core_fill_params("default", "a", 7, 1);
    struct gb_device_write_params copy = core_copy_params("default", "b", "default", "a");
    struct gb_lease_params p;
    struct core_mapping m;
    struct gb_buffer_rec rec;
    struct gb_holder *h;

    core_open_two(&f, specs[_i % SPECS]);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    core_put_bytes(&f, "default", "b", BYTES, 2, NULL);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", _i / SPECS);
    gb_assert_ok(core_map(f.core, &p, &m, &err), err);
    gb_assert_fails(gb_upload_check(f.core, &u, &err), err, GB_ERR_MAPPED);
    gb_assert_fails(core_upload(f.core, &u, data, &rec, &err), err, GB_ERR_MAPPED);
    u.partial = true;
    u.offset = 10;
    u.bytes = 100;
    gb_assert_fails(core_upload(f.core, &u, data, &rec, &err), err, GB_ERR_MAPPED);
    fill.in_place = true;
    gb_assert_fails(core_write(f.core, &fill, NULL, &err), err, GB_ERR_MAPPED);
    copy.in_place = true;
    gb_assert_fails(core_write(f.core, &copy, NULL, &err), err, GB_ERR_MAPPED);
    gb_assert_fails(core_buffer_delete(f.core, "default", "a", &err), err, GB_ERR_MAPPED);
    core_buffer_delete(f.core, "default", "a", &err);
    ck_assert_ptr_nonnull(strstr(err.detail, "when=unmapped"));
    err = GB_ERROR_INIT;
    ck_assert_int_eq(memcmp(m.bytes, data, BYTES), 0);
    /* Without in_place, an upload or a fill goes to fresh memory. */
    u.in_place = false;
    gb_assert_ok(core_upload(f.core, &u, data, &rec, &err), err);
    ck_assert_uint_eq(rec.leases, 0);
    fill.in_place = false;
    gb_assert_ok(core_write(f.core, &fill, NULL, &err), err);
    ck_assert_int_eq(memcmp(m.bytes, data, BYTES), 0);
    core_mapping_done(&m);
    gb_holder_end(h);
    core_until_unmapped(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A buffer under a write is not mapped. A buffer under a download is not mapped for writing. */
START_TEST(busy_bytes_are_not_mapped) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_in_place("a", BYTES);
    struct gb_name s = core_name("default");
    struct gb_name n = core_name("a");
    struct gb_name none = core_name("");
    struct gb_lease_params p;
    struct core_call pending;
    struct gb_download *download;
    struct gb_upload *upload;
    struct gb_holder *h;
    struct core_wake w;

    core_open_two(&f, specs[_i]);
    core_wake_init(&w);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", false);
    u.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &u, &upload, &err), err);
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_BUFFER_BUSY);
    gb_assert_ok(core_upload_send(upload, &w, data, BYTES, &err), err);
    gb_assert_ok(core_upload_finish(upload, &w, NULL, &err), err);
    gb_upload_free(upload);
    gb_assert_ok(gb_download_open(f.core, &s, &n, &none, core_waker(&w), &download, &err), err);
    gb_assert_ok(core_map(f.core, &p, NULL, &err), err); /* a readable lease and a download do not conflict */
    p.write = true;
    p.wait_ms = 0;
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_BUFFER_BUSY);
    p.wait_ms = 60000;
    core_call_begin(&pending);
    gb_lease_map(f.core, &p, pending.call.lease);
    ck_assert(!core_call_over(&pending));
    gb_download_free(download, false);
    gb_assert_ok(core_map_end(&pending, NULL, &err), err); /* the waiting lease is granted */
    gb_holder_end(h);
    core_until_unmapped(&f);
    core_wake_done(&w);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

static bool is_partial(void *arg) {
    struct core_fixture *f = arg;
    struct gb_buffer_rec rec;

    return core_buffer_get(f->core, "default", "a", &rec, NULL) == 0 && rec.state == GB_BUFFER_PARTIAL;
}

START_TEST(broken_bytes_are_not_mapped) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_upload_params u = core_in_place("a", BYTES);
    struct gb_lease_params p;
    struct gb_upload *upload;
    struct gb_holder *h;
    struct core_wake w;

    core_open_two(&f, specs[_i]);
    core_wake_init(&w);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    u.waker = core_waker(&w);
    gb_assert_ok(gb_upload_begin(f.core, &u, &upload, &err), err);
    gb_assert_ok(core_upload_send(upload, &w, data, BYTES / 2, &err), err);
    gb_upload_free(upload);
    core_until(is_partial, &f, "partial");
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", false);
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_BUFFER_PARTIAL);
    gb_assert_fails(core_seal(f.core, "default", "a", &err), err, GB_ERR_BUFFER_PARTIAL);
    gb_holder_end(h);
    core_wake_done(&w);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(what_is_not_there_is_not_mapped) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, NULL);
    core_fixture_close(&f);
    core_fixture_open(&f); /* its bytes died */
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", false);
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_CONTENT_LOST);
    p.name = core_name("b");
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    p.session = core_name("none");
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_SESSION_NOT_FOUND);
    gb_assert_fails(core_lease_end(f.core, 1, h, &err), err, GB_ERR_LEASE_NOT_FOUND);
    gb_assert_fails(core_lease_end(f.core, 0, NULL, &err), err, GB_ERR_LEASE_NOT_FOUND);
    gb_assert_fails(core_lease_end(f.core, -5, NULL, &err), err, GB_ERR_LEASE_NOT_FOUND);
    gb_holder_end(h);
    gb_holder_end(NULL);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(a_lease_is_ended_by_its_own_holder) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct core_mapping m[2];
    struct gb_holder *h[2];
    int i;

    core_open_two(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, NULL);
    for (i = 0; i < 2; i++) {
        h[i] = core_holder(f.core);
        p = core_map_params(h[i], "default", "a", true);
        gb_assert_ok(core_map(f.core, &p, &m[i], &err), err);
    }
    gb_assert_fails(core_lease_end(f.core, m[0].id, h[1], &err), err, GB_ERR_MAP_NOT_PERMITTED);
    gb_assert_ok(core_lease_end(f.core, m[0].id, NULL, &err), err); /* a call without a holder may end any lease */
    gb_assert_fails(core_lease_end(f.core, m[0].id, h[0], &err), err, GB_ERR_LEASE_NOT_FOUND);
    gb_assert_ok(core_lease_end(f.core, m[1].id, h[1], &err), err);
    for (i = 0; i < 2; i++) {
        core_mapping_done(&m[i]);
        gb_holder_end(h[i]);
    }
    core_until_unmapped(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(leases_have_limits) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p[2];
    struct core_mapping m;
    struct gb_holder *h[2];
    int i;

    core_fixture_prepare(&f, specs[_i]);
    f.config.leases_max = 5;
    f.config.holder_leases_max = 3;
    core_fixture_open(&f);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, NULL);
    for (i = 0; i < 2; i++) {
        h[i] = core_holder(f.core);
        p[i] = core_map_params(h[i], "default", "a", false);
    }
    for (i = 0; i < 3; i++)
        gb_assert_ok(core_map(f.core, &p[0], NULL, &err), err);
    gb_assert_fails(core_map(f.core, &p[0], NULL, &err), err, GB_ERR_LIMIT_REACHED);
    gb_assert_ok(core_map(f.core, &p[1], NULL, &err), err);
    gb_assert_ok(core_map(f.core, &p[1], &m, &err), err);
    core_mapping_done(&m);
    gb_assert_fails(core_map(f.core, &p[1], NULL, &err), err, GB_ERR_LIMIT_REACHED);
    gb_assert_ok(core_lease_end(f.core, m.id, h[1], &err), err);
    gb_assert_ok(core_map(f.core, &p[1], NULL, &err), err);
    gb_holder_end(h[0]);
    gb_assert_ok(core_map(f.core, &p[1], NULL, &err), err);
    gb_holder_end(h[1]);
    core_until_unmapped(&f);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* The default limit of a holder, and one of all that four holders reach. */
START_TEST(leases_have_limits_of_their_own) {
    struct gb_holder *h[4 + 1];
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    unsigned count = sizeof(h) / sizeof(h[0]);
    unsigned i;
    unsigned k;

    core_fixture_prepare(&f, specs[0]);
    f.config.leases_max = 4 * GB_HOLDER_LEASES_MAX;
    core_fixture_open(&f);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, NULL);
    for (i = 0; i < count; i++) {
        h[i] = core_holder(f.core);
        p = core_map_params(h[i], "default", "a", false);
        for (k = 0; i + 1 < count && k < GB_HOLDER_LEASES_MAX; k++)
            gb_assert_ok(core_map(f.core, &p, NULL, &err), err);
        gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_LIMIT_REACHED);
    }
    ck_assert_uint_eq(core_leases(f.core, NULL, 0), 4 * GB_HOLDER_LEASES_MAX);
    for (i = 0; i < count; i++)
        gb_holder_end(h[i]);
    core_until_unmapped(&f);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* --- sessions ----------------------------------------------------------------------------------------------------- */

static bool is_gone(void *arg) {
    struct core_fixture *f = arg;
    struct gb_name s = core_name("other");
    struct gb_session_view view;

    return gb_session_get(f->core, &s, &view, NULL) < 0;
}

/* A session with a lease neither expires nor can be deleted, even after its buffer was deleted. */
START_TEST(a_session_stays_while_it_is_mapped) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params ttl = {.name = core_name("other"), .has_idle_ttl_s = true, .idle_ttl_s = 1};
    struct gb_upload_params u = core_upload_params("other", "a", BYTES);
    struct gb_name s = core_name("other");
    struct gb_session_view view;
    struct gb_lease_params p;
    struct gb_holder *h;
    uint64_t held;
    int i;

    core_fixture_init(&f, specs[_i]);
    gb_assert_ok(core_session_create(f.core, &ttl, &err), err);
    u.buffer.kind = GB_KIND_PAGEABLE;
    core_put(f.core, &u, 1, NULL);
    h = core_holder(f.core);
    p = core_map_params(h, "other", "a", false);
    gb_assert_ok(core_map(f.core, &p, NULL, &err), err);
    gb_assert_fails(core_session_delete(f.core, "other", &err), err, GB_ERR_MAPPED);
    gb_assert_ok(core_delete_when_unmapped(f.core, "other", "a", &held, &err), err);
    ck_assert_uint_eq(held, BYTES);
    gb_assert_fails(core_session_delete(f.core, "other", &err), err, GB_ERR_MAPPED);
    for (i = 0; i < 2; i++) { /* the lease keeps its expiry a second away */
        gb_assert_ok(gb_session_get(f.core, &s, &view, &err), err);
        ck_assert_int_gt(view.expires_at_us, view.rec.created_at_us + 900000);
    }
    gb_holder_end(h);
    core_until(is_gone, &f, "the idle session expired");
    core_until_unmapped(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_lease_refuse");

    gb_test_add_loop(suite, "mapped", mapped_bytes_are_not_written, 60, 2 * SPECS);
    gb_test_add_loop(suite, "busy", busy_bytes_are_not_mapped, 60, SPECS);
    gb_test_add_loop(suite, "broken", broken_bytes_are_not_mapped, 60, SPECS);
    gb_test_add_loop(suite, "absent", what_is_not_there_is_not_mapped, 60, SPECS);
    gb_test_add_loop(suite, "own", a_lease_is_ended_by_its_own_holder, 60, SPECS);
    gb_test_add_loop(suite, "limits", leases_have_limits, 60, SPECS);
    gb_test_add(suite, "own_limits", leases_have_limits_of_their_own, 280);
    gb_test_add_loop(suite, "session", a_session_stays_while_it_is_mapped, 60, SPECS);
    return gb_test_run(suite);
}
