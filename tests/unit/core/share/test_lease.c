/* Leases: the importer's descriptor, its view of the bytes, and the readers' view. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gb_test.h"
#include "lease_fixture.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

static const enum gb_kind kinds[] = {GB_KIND_PINNED, GB_KIND_PAGEABLE};
#define KINDS 2

#define BYTES (3 * CORE_SLOT_BYTES + 123)

#define MEMFD (1u << GB_EXPORT_MEMFD)

static char data[BYTES];
static char other[BYTES];

/* The importer maps the buffer's own memory, for every kind that has its own file. */
START_TEST(an_importer_sees_the_bytes) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct core_mapping m;
    struct gb_holder *h;

    core_open_two(&f, specs[_i % SPECS]);
    core_put_kind(&f, "a", kinds[_i / SPECS], BYTES, 1, data);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", false);
    gb_assert_ok(core_map(f.core, &p, &m, &err), err);
    ck_assert_int_eq(m.way, GB_EXPORT_MEMFD);
    ck_assert_int_eq(m.kind, kinds[_i / SPECS]);
    ck_assert_int_eq(m.rec.generation, 1);
    ck_assert(m.rec.has_crc32c);
    ck_assert_int_eq(memcmp(m.bytes, data, BYTES), 0);
    ck_assert_uint_eq(m.passed, 3); /* and why not */
    ck_assert_str_ne(m.reason, "");
    gb_assert_ok(core_lease_end(f.core, m.id, h, &err), err);
    core_mapping_done(&m);
    gb_holder_end(h);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* Each writable lease makes one generation at its begin and one at its end. */
START_TEST(what_an_importer_writes_is_there) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct core_mapping m[2];
    struct gb_buffer_rec rec;
    struct gb_holder *h;

    core_open_two(&f, specs[_i % SPECS]);
    core_put_kind(&f, "a", kinds[_i / SPECS], BYTES, 1, data);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", true);
    gb_assert_ok(core_map(f.core, &p, &m[0], &err), err);
    gb_assert_ok(core_map(f.core, &p, &m[1], &err), err);
    ck_assert_int_eq(m[0].rec.generation, 2);
    ck_assert_int_eq(m[1].rec.generation, 3);
    ck_assert(!m[0].rec.has_crc32c);
    ck_assert_uint_eq(m[1].rec.leases, 2);
    core_bytes(2, data, BYTES);
    memcpy(m[0].bytes, data, BYTES / 2);
    memcpy(m[1].bytes + BYTES / 2, data + BYTES / 2, BYTES - BYTES / 2);
    core_expect(f.core, "default", "a", data, BYTES);
    gb_assert_ok(core_lease_end(f.core, m[0].id, h, &err), err);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 4);
    ck_assert_uint_eq(rec.leases, 1);
    gb_holder_end(h);
    core_until_unmapped(&f);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 5);
    ck_assert(!rec.has_crc32c);
    ck_assert_uint_eq(rec.leases, 0);
    core_mapping_done(&m[0]);
    core_mapping_done(&m[1]);
    core_expect(f.core, "default", "a", data, BYTES);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A descriptor for reading permits no writable mapping. */
START_TEST(a_reader_cannot_write) {
    struct core_fixture f;
    struct gb_lease_params p;
    struct core_call pending;
    struct gb_holder *h;
    int fd;

    core_open_two(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", false);
    core_call_begin(&pending);
    gb_lease_map(f.core, &p, pending.call.lease);
    core_wake_wait(&pending.wake);
    ck_assert_int_eq(pending.call.base->error.code, GB_OK);
    fd = gb_lease_take_fd(pending.call.lease);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(gb_lease_take_fd(pending.call.lease), -1); /* once */
    ck_assert(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    close(fd);
    gb_call_unref(pending.call.base);
    core_wake_done(&pending.wake);
    gb_holder_end(h);
    core_until_unmapped(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* If no way of export works, the error gives every reason, and no lease is left. */
START_TEST(there_may_be_no_way) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct gb_buffer_params empty = core_kind_params("b", GB_KIND_PAGEABLE, 0);
    struct core_call pending;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "a", BYTES, 1, NULL);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", false);
    core_call_begin(&pending);
    gb_lease_map(f.core, &p, pending.call.lease);
    core_wake_wait(&pending.wake);
    ck_assert_int_eq(pending.call.base->error.code, GB_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(pending.call.base->error.detail, "memfd: "));
    ck_assert_int_eq(pending.call.lease->lease.id, 0);
    ck_assert_uint_eq(pending.call.lease->lease.passed_count, GB_EXPORT_WAYS);
    gb_call_unref(pending.call.base);
    core_wake_done(&pending.wake);
    core_put_kind(&f, "c", GB_KIND_PAGEABLE, 100, 1, NULL);
    p.name = core_name("c");
    p.ways = 1u << GB_EXPORT_POOL | 1u << GB_EXPORT_LEGACY; /* other ways are not tried */
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_UNSUPPORTED);
    p.ways = MEMFD;
    gb_assert_ok(core_map(f.core, &p, NULL, &err), err);
    gb_assert_ok(core_create(f.core, &empty, NULL, &err), err);
    p.name = core_name("b");
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_UNSUPPORTED);
    ck_assert_uint_eq(core_leases(f.core, NULL, 0), 1);
    gb_holder_end(h);
    core_until_unmapped(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A mapping is granted only after the zeros are written. The wait for them is bounded. */
START_TEST(zeros_come_first) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct gb_buffer_params create = core_kind_params("a", GB_KIND_PINNED, BYTES);
    struct core_call pending;
    struct core_mapping m;
    struct core_gate gate;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "b", 100, 1, NULL);
    core_gate_close(&gate, &f, "default");
    gb_assert_ok(core_create(f.core, &create, NULL, &err), err); /* its zeros are queued behind the gate */
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", false);
    p.wait_ms = 0;
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_TIMED_OUT);
    p.wait_ms = 30;
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_TIMED_OUT);
    core_until_unmapped(&f);
    p.wait_ms = 60000;
    core_call_begin(&pending);
    gb_lease_map(f.core, &p, pending.call.lease);
    ck_assert(!core_call_over(&pending));
    core_gate_open(&gate);
    gb_assert_ok(core_map_end(&pending, &m, &err), err);
    memset(data, 0, BYTES);
    ck_assert_int_eq(memcmp(m.bytes, data, BYTES), 0);
    core_mapping_done(&m);
    gb_holder_end(h);
    core_until_unmapped(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* The only holder of a buffer's leases may have the daemon write it. If a lease is writable, no checksum is stored. */
START_TEST(a_holder_has_the_daemon_write) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_device_write_params copy = core_copy_params("default", "b", "default", "a");
    struct gb_lease_params p;
    struct core_mapping m[2];
    struct core_result r;
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PINNED, BYTES, 1, NULL);
    core_put_kind(&f, "b", GB_KIND_PINNED, BYTES, 2, data);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", false);
    gb_assert_ok(core_map(f.core, &p, &m[0], &err), err);
    copy.in_place = true;
    copy.holder = gb_holder_id(h);
    gb_assert_ok(core_write(f.core, &copy, &r, &err), err);
    ck_assert(r.rec.has_crc32c); /* it only reads */
    ck_assert_int_eq(memcmp(m[0].bytes, data, BYTES), 0);
    p.write = true;
    gb_assert_ok(core_map(f.core, &p, &m[1], &err), err);
    gb_assert_ok(core_write(f.core, &copy, &r, &err), err);
    ck_assert(!r.rec.has_crc32c);
    ck_assert_uint_eq(r.rec.leases, 2);
    m[1].bytes[0]++;
    copy.holder++; /* another */
    gb_assert_fails(core_write(f.core, &copy, &r, &err), err, GB_ERR_MAPPED);
    gb_holder_end(h);
    core_until_unmapped(&f);
    core_mapping_done(&m[0]);
    core_mapping_done(&m[1]);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* --- lists and replacements --------------------------------------------------------------------------------------- */

START_TEST(leases_are_listed) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct core_mapping m[3];
    struct gb_lease_view v[4];
    struct gb_locator at = core_at("default", "a");
    struct gb_core_stats stats;
    struct gb_session_stats mine;
    struct gb_holder *h;
    int i;

    core_open_two(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, NULL);
    h = core_holder(f.core);
    for (i = 0; i < 3; i++) {
        p = core_map_params(h, "default", "a", i == 1);
        gb_assert_ok(core_map(f.core, &p, &m[i], &err), err);
    }
    ck_assert_uint_eq(core_leases(f.core, v, 4), 3);
    for (i = 0; i < 3; i++) {
        ck_assert_int_eq(v[i].id, m[i].id);
        ck_assert_str_eq(v[i].session.s, "default");
        ck_assert_str_eq(v[i].buffer.s, "a");
        ck_assert_int_eq(v[i].write, i == 1);
        ck_assert_int_eq(v[i].way, GB_EXPORT_MEMFD);
        ck_assert_int_eq(v[i].pid, getpid());
        ck_assert_uint_eq(v[i].uid, getuid());
        ck_assert_int_eq(v[i].generation, i == 0 ? 1 : 2);
        ck_assert_uint_eq(v[i].bytes, BYTES);
        ck_assert_int_eq(v[i].state, GB_LEASE_PRESENT);
        ck_assert_int_gt(v[i].since_us, 0);
    }
    ck_assert_uint_eq(gb_lease_holders(f.core, &at, v, 2), 2);
    ck_assert_uint_eq(gb_lease_holders(f.core, &at, v, 4), 3);
    ck_assert_int_eq(v[2].id, m[2].id);
    at.name = core_name("none");
    ck_assert_uint_eq(gb_lease_holders(f.core, &at, v, 4), 0);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.leases, 3);
    ck_assert_uint_eq(stats.counters.maps, 3);
    gb_assert_ok(gb_session_stats(f.core, &at.session, &mine, &err), err);
    ck_assert_uint_eq(mine.leases, 3);
    gb_holder_end(h);
    core_until_unmapped(&f);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_eq(stats.counters.unmaps, 3);
    for (i = 0; i < 3; i++)
        core_mapping_done(&m[i]);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A full replacement goes to fresh memory. The mapped memory stays unchanged and is counted until the last unmap. */
START_TEST(a_replacement_stands_beside_it) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_session_params quota = {.has_quota_bytes = true, .quota.bytes = 2 * BYTES + 100};
    struct gb_name session = core_name("default");
    struct gb_lease_params p;
    struct core_mapping m[2];
    struct gb_session_stats mine;
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_holder *h;

    core_open_two(&f, specs[_i]);
    gb_assert_ok(core_session_patch(f.core, "default", &quota, &err), err);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", true);
    gb_assert_ok(core_map(f.core, &p, &m[0], &err), err);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 2, other);
    ck_assert_int_eq(memcmp(m[0].bytes, data, BYTES), 0);
    core_expect(f.core, "default", "a", other, BYTES);
    ck_assert_int_eq(core_lease(f.core, m[0].id).state, GB_LEASE_REPLACED);
    gb_assert_ok(gb_session_stats(f.core, &session, &mine, &err), err);
    ck_assert_uint_eq(mine.held_bytes, BYTES);
    ck_assert_uint_eq(mine.session.used_bytes, 2 * BYTES);
    u.buffer.kind = GB_KIND_PAGEABLE;
    gb_assert_fails(core_upload(f.core, &u, data, NULL, &err), err, GB_ERR_QUOTA_EXCEEDED);
    /* No lease maps the present content, so it may be written in place. */
    u.in_place = true;
    gb_assert_ok(core_upload(f.core, &u, data, NULL, &err), err);
    /* The end of a lease on replaced content does not change the buffer. */
    memset(m[0].bytes, 7, BYTES);
    gb_assert_ok(core_map(f.core, &p, &m[1], &err), err);
    ck_assert_int_eq(m[1].rec.generation, 5); /* 1 put, 2 mapped, 3 put, 4 in place, 5 mapped */
    gb_assert_ok(core_lease_end(f.core, m[0].id, h, &err), err);
    gb_assert_ok(gb_session_stats(f.core, &session, &mine, &err), err);
    ck_assert_uint_eq(mine.held_bytes, 0);
    ck_assert_int_eq(memcmp(m[1].bytes, data, BYTES), 0);
    gb_holder_end(h);
    core_until_unmapped(&f);
    core_mapping_done(&m[0]);
    core_mapping_done(&m[1]);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_lease");

    gb_test_add_loop(suite, "read", an_importer_sees_the_bytes, 60, SPECS * KINDS);
    gb_test_add_loop(suite, "write", what_an_importer_writes_is_there, 60, SPECS * KINDS);
    gb_test_add_loop(suite, "read_only", a_reader_cannot_write, 60, SPECS);
    gb_test_add_loop(suite, "no_way", there_may_be_no_way, 60, SPECS);
    gb_test_add_loop(suite, "zeros", zeros_come_first, 60, SPECS);
    gb_test_add_loop(suite, "list", leases_are_listed, 60, SPECS);
    gb_test_add_loop(suite, "own_write", a_holder_has_the_daemon_write, 60, SPECS);
    gb_test_add_loop(suite, "replaced", a_replacement_stands_beside_it, 60, SPECS);
    return gb_test_run(suite);
}
