/* Exports: leases without a connection, which end at their time limit or on request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gb_test.h"
#include "lease_fixture.h"

static const char *const specs[] = {"host:bytes=64M,legacy=fake", "host:discrete,bytes=64M,legacy=fake"};
#define SPECS 2

#define BYTES (CORE_SLOT_BYTES + 123)

#define LONG_S 86400 /* exceeds the duration of every test */

static char data[BYTES];
static char other[BYTES];

static struct gb_export_params params_of(const char *name, bool write, uint64_t ttl_s) {
    return (struct gb_export_params){.session = core_name("default"),
                                     .name = core_name(name),
                                     .write = write,
                                     .ttl_s = ttl_s,
                                     .uid = 4242,
                                     .gid = 4343,
                                     .wait_ms = 60000};
}

/* ret may be NULL. */
static int export(struct gb_core *core, const struct gb_export_params *params, struct gb_lease_grant *ret,
                  struct gb_error *err) {
    struct core_call p;
    struct gb_lease_call *call;
    int r;

    core_call_begin(&p);
    call = p.call.lease;
    atomic_fetch_add(&call->base.refs, 1); /* for checks after the call */
    gb_lease_export(core, params, call);
    r = core_call_end(&p, err);
    if (r == 0 && ret)
        *ret = call->lease;
    gb_call_unref(&call->base);
    return r;
}

static bool expect_export(struct core_fixture *f, const char *spec, const char *name) {
    core_open_two(f, spec);
    if (!core_kind_offered(f, GB_KIND_IPC)) {
        core_fixture_done(f);
        return false;
    }
    core_put_kind(f, name, GB_KIND_IPC, BYTES, 1, data);
    return true;
}

START_TEST(whoever_has_the_handle_has_the_bytes) {
    static const unsigned char nothing[GB_EXPORT_HANDLE_BYTES];
    struct gb_error err = GB_ERROR_INIT;
    struct gb_export_params p = params_of("a", false, LONG_S);
    struct gb_lease_grant g[3];
    struct gb_lease_view view;
    struct gb_buffer_rec rec;
    struct core_fixture f;
    int i;

    if (!expect_export(&f, specs[_i], "a"))
        return;
    core_put_kind(&f, "b", GB_KIND_IPC, BYTES, 2, other);
    for (i = 0; i < 3; i++) {
        p.name = core_name(i < 2 ? "a" : "b");
        gb_assert_ok(export(f.core, &p, &g[i], &err), err);
        ck_assert_int_eq(g[i].export.way, GB_EXPORT_LEGACY);
        ck_assert_uint_eq(g[i].export.handle_bytes, GB_EXPORT_HANDLE_BYTES);
        ck_assert_uint_eq(g[i].export.offset, 0);
        ck_assert_int_eq(g[i].export.fd, -1);
        ck_assert_mem_ne(g[i].export.handle, nothing, sizeof(nothing));
        ck_assert(!g[i].has_event); /* an export has no connection that could pass an event */
        ck_assert_int_gt(g[i].expires_at_us, gb_wall_us());
        ck_assert_int_eq(g[i].kind, GB_KIND_IPC);
    }
    ck_assert_mem_ne(g[0].export.handle, g[2].export.handle, GB_EXPORT_HANDLE_BYTES);
    ck_assert_int_ne(g[0].id, g[1].id);
    gb_assert_ok(gb_lease_get(f.core, g[0].id, &view, &err), err);
    ck_assert_int_eq(view.pid, 0);
    ck_assert_uint_eq(view.uid, 4242);
    ck_assert_int_eq(view.expires_at_us, g[0].expires_at_us);
    ck_assert_int_eq(view.state, GB_LEASE_PRESENT);
    ck_assert_int_eq(view.way, GB_EXPORT_LEGACY);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_uint_eq(rec.leases, 2);
    ck_assert_int_eq(rec.generation, 1); /* they read */
    for (i = 0; i < 3; i++)
        gb_assert_ok(core_lease_end(f.core, g[i].id, NULL, &err), err);
    gb_assert_fails(gb_lease_get(f.core, g[0].id, &view, &err), err, GB_ERR_LEASE_NOT_FOUND);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* Exported memory is protected like mapped memory. */
START_TEST(exported_bytes_are_kept) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_export_params p = params_of("a", false, LONG_S);
    struct gb_upload_params u = core_in_place("a", BYTES);
    struct gb_locator at = core_at("default", "a");
    struct gb_session_stats stats;
    struct gb_lease_view holder;
    struct gb_lease_grant g;
    struct core_fixture f;

    if (!expect_export(&f, specs[_i], "a"))
        return;
    gb_assert_ok(export(f.core, &p, &g, &err), err);
    u.buffer.kind = GB_KIND_IPC;
    gb_assert_fails(core_upload(f.core, &u, data, NULL, &err), err, GB_ERR_MAPPED);
    err = GB_ERROR_INIT;
    ck_assert_int_eq(core_buffer_delete(f.core, "default", "a", &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_MAPPED);
    ck_assert_msg(strstr(err.detail, "is exported by lease") != NULL, "%s", err.detail);
    err = GB_ERROR_INIT;
    gb_assert_fails(core_session_delete(f.core, "default", &err), err, GB_ERR_SESSION_PROTECTED);
    ck_assert_uint_eq(gb_lease_holders(f.core, &at, &holder, 1), 1);
    ck_assert_int_eq(holder.id, g.id);
    core_put_kind(&f, "a", GB_KIND_IPC, BYTES, 2, other);
    ck_assert_int_eq(core_lease(f.core, g.id).state, GB_LEASE_REPLACED);
    gb_assert_ok(gb_session_stats(f.core, &at.session, &stats, &err), err);
    ck_assert_uint_eq(stats.held_bytes, BYTES);
    core_expect(f.core, "default", "a", other, BYTES);
    gb_assert_ok(core_lease_end(f.core, g.id, NULL, &err), err);
    gb_assert_ok(gb_session_stats(f.core, &at.session, &stats, &err), err);
    ck_assert_uint_eq(stats.held_bytes, 0);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

static bool has_ended(void *arg) {
    return core_leases(((struct core_fixture *)arg)->core, NULL, 0) == 0;
}

/* The housekeeper ends an export at its time limit. Importers of a writable export may write on, so it taints. */
START_TEST(its_time_is_over) {
    bool write = _i / SPECS == 1;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_export_params p = params_of("a", write, 1);
    struct gb_buffer_rec rec;
    struct core_fixture f;

    if (!expect_export(&f, specs[_i % SPECS], "a"))
        return;
    gb_assert_ok(export(f.core, &p, NULL, &err), err);
    core_until(has_ended, &f, "its time is over");
    core_until_unmapped(&f);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_uint_eq(rec.leases, 0);
    ck_assert(rec.tainted == write);
    ck_assert(rec.has_crc32c == !write);
    ck_assert_int_eq(rec.generation, write ? 3 : 1);
    core_expect(f.core, "default", "a", data, BYTES);
    if (write)
        gb_assert_fails(core_seal(f.core, "default", "a", &err), err, GB_ERR_ESCAPED);
    else
        gb_assert_ok(core_seal(f.core, "default", "a", &err), err);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* If a request ends an export, the content is not tainted: the caller vouches for the importers. */
START_TEST(an_end_that_was_asked_for) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_export_params p = params_of("a", true, LONG_S);
    struct gb_lease_grant g;
    struct gb_buffer_rec rec;
    struct core_fixture f;

    if (!expect_export(&f, specs[_i], "a"))
        return;
    gb_assert_ok(export(f.core, &p, &g, &err), err);
    ck_assert(g.write);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert(rec.mapped_for_writing && !rec.tainted && !rec.has_crc32c);
    gb_assert_ok(core_do(&err, base, gb_lease_end, f.core, g.id, NULL, false), err);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert(!rec.mapped_for_writing && !rec.tainted);
    ck_assert_int_eq(rec.generation, 3);
    gb_assert_ok(core_seal(f.core, "default", "a", &err), err);
    gb_assert_fails(export(f.core, &p, NULL, &err), err, GB_ERR_SEALED);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

START_TEST(what_has_no_handle) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_export_params p = params_of("a", false, LONG_S);
    struct core_fixture f;

    core_open_two(&f, specs[_i]);
    gb_assert_fails(export(f.core, &p, NULL, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    core_put_bytes(&f, "default", "b", BYTES, 1, NULL);
    ck_assert_int_eq(export(f.core, &p, NULL, &err), -1);
    ck_assert_int_eq(err.code, GB_ERR_UNSUPPORTED);
    ck_assert_msg(strstr(err.detail, "legacy: only memory of kind ipc") && strstr(err.detail, "Map it instead"), "%s",
                  err.detail);
    err = GB_ERROR_INIT;
    p.name = core_name("b");
    gb_assert_fails(export(f.core, &p, NULL, &err), err, GB_ERR_UNSUPPORTED);
    p.session = core_name("nobody");
    gb_assert_fails(export(f.core, &p, NULL, &err), err, GB_ERR_SESSION_NOT_FOUND);
    ck_assert_uint_eq(core_leases(f.core, NULL, 0), 0);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* The number of exports is limited. An export that ends makes room for another. */
START_TEST(not_too_many) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_export_params p = params_of("a", false, LONG_S);
    struct gb_lease_params map;
    struct gb_lease_grant g;
    struct core_fixture f;
    struct gb_holder *h;
    int64_t first = 0;
    unsigned i;

    if (!expect_export(&f, specs[_i], "a"))
        return;
    for (i = 0; i < GB_EXPORTS_MAX; i++) {
        gb_assert_ok(export(f.core, &p, &g, &err), err);
        first = first ? first : g.id;
    }
    gb_assert_fails(export(f.core, &p, NULL, &err), err, GB_ERR_LIMIT_REACHED);
    core_put_kind(&f, "b", GB_KIND_PAGEABLE, BYTES, 2, other);
    h = core_holder(f.core);
    map = core_map_params(h, "default", "b", false);
    gb_assert_ok(core_map(f.core, &map, NULL, &err), err); /* those are others */
    gb_assert_ok(core_lease_end(f.core, first, NULL, &err), err);
    gb_assert_ok(export(f.core, &p, NULL, &err), err);
    gb_assert_fails(export(f.core, &p, NULL, &err), err, GB_ERR_LIMIT_REACHED);
    gb_holder_end(h);
    core_fixture_close(&f); /* exports do not keep it from closing */
    core_fixture_open(&f);
    ck_assert_uint_eq(core_leases(f.core, NULL, 0), 0);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A failed export leaves no lease and does not count against the limit. */
START_TEST(what_fails_leaves_nothing) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_export_params p = params_of("a", true, LONG_S);
    struct core_fixture f;
    char spec[128];
    unsigned i;

    snprintf(spec, sizeof(spec), "fault:export@1=cudaErrorInvalidValue:%s", specs[_i]);
    if (!expect_export(&f, spec, "a"))
        return;
    ck_assert_int_eq(export(f.core, &p, NULL, &err), -1);
    ck_assert_str_eq(err.native_name, "cudaErrorInvalidValue");
    err = GB_ERROR_INIT;
    ck_assert_uint_eq(core_leases(f.core, NULL, 0), 0);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_put_kind(&f, "a", GB_KIND_IPC, BYTES, 1, data);
    p.write = false;
    for (i = 0; i < GB_EXPORTS_MAX; i++)
        gb_assert_ok(export(f.core, &p, NULL, &err), err);
    core_fixture_close(&f);
    core_fixture_open(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* An export carries no event, so the request waits for the work queued on its bytes. */
START_TEST(its_bytes_are_complete) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_export_params p = params_of("a", false, LONG_S);
    struct gb_buffer_params create = core_kind_params("a", GB_KIND_IPC, BYTES);
    struct core_call pending;
    struct gb_lease_grant g;
    struct gb_lease_call *call;
    struct core_gate gate;
    struct core_fixture f;

    core_open_two(&f, specs[_i]);
    if (!core_kind_offered(&f, GB_KIND_IPC)) {
        core_fixture_done(&f);
        return;
    }
    core_put_bytes(&f, "default", "b", 100, 1, NULL);
    core_gate_close(&gate, &f, "default");
    gb_assert_ok(core_create(f.core, &create, NULL, &err), err); /* its zeros are queued behind the gate */
    p.wait_ms = 1;
    gb_assert_fails(export(f.core, &p, NULL, &err), err, GB_ERR_TIMED_OUT);
    p.wait_ms = 60000;
    core_call_begin(&pending);
    call = pending.call.lease;
    atomic_fetch_add(&call->base.refs, 1);
    gb_lease_export(f.core, &p, call);
    ck_assert(!core_call_over(&pending));
    core_gate_open(&gate);
    gb_assert_ok(core_call_end(&pending, &err), err);
    g = call->lease;
    gb_call_unref(&call->base);
    ck_assert(!g.has_event);
    gb_assert_ok(core_lease_end(f.core, g.id, NULL, &err), err);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A lease id of an earlier process must not end a lease of this process. */
START_TEST(no_id_is_given_twice) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_export_params p = params_of("a", false, LONG_S);
    struct gb_lease_grant g[2];
    struct gb_lease_view view;
    struct core_fixture f;

    if (!expect_export(&f, specs[_i], "a"))
        return;
    gb_assert_ok(export(f.core, &p, &g[0], &err), err);
    core_fixture_close(&f);
    core_fixture_open(&f);
    gb_assert_fails(gb_lease_get(f.core, g[0].id, &view, &err), err, GB_ERR_LEASE_NOT_FOUND);
    gb_assert_fails(export(f.core, &p, NULL, &err), err, GB_ERR_CONTENT_LOST);
    core_put_kind(&f, "a", GB_KIND_IPC, BYTES, 1, data);
    gb_assert_ok(export(f.core, &p, &g[1], &err), err);
    ck_assert_int_gt(g[1].id, g[0].id);
    gb_assert_fails(core_lease_end(f.core, g[0].id, NULL, &err), err, GB_ERR_LEASE_NOT_FOUND);
    gb_assert_ok(core_lease_end(f.core, g[1].id, NULL, &err), err);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_export");

    gb_test_add_loop(suite, "handles", whoever_has_the_handle_has_the_bytes, 60, SPECS);
    gb_test_add_loop(suite, "kept", exported_bytes_are_kept, 60, SPECS);
    gb_test_add_loop(suite, "time", its_time_is_over, 120, SPECS * 2);
    gb_test_add_loop(suite, "end", an_end_that_was_asked_for, 60, SPECS);
    gb_test_add_loop(suite, "refused", what_has_no_handle, 60, SPECS);
    gb_test_add_loop(suite, "limit", not_too_many, 120, SPECS);
    gb_test_add_loop(suite, "faults", what_fails_leaves_nothing, 120, SPECS);
    gb_test_add_loop(suite, "complete", its_bytes_are_complete, 120, SPECS);
    gb_test_add_loop(suite, "ids", no_id_is_given_twice, 60, SPECS);
    return gb_test_run(suite);
}
