/* Leases when the device refuses or dies, and with events for other processes, which only a GPU has. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_pools.h"
#include "gb_test.h"
#include "lease_fixture.h"
#include "store_vfs.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BYTES 20000

static char data[BYTES];
static char back[BYTES];

/* --- the device refuses ------------------------------------------------------------------------------------------- */

static const char *const faults[] = {"export", "place_fill", "kind_alloc",  "kind_free",   "event_record",
                                     "watch",  "complete",   "event_query", "event_create"};
#define FAULTS 9

static unsigned play(struct core_fixture *f) {
    struct gb_buffer_params create = core_kind_params("a", GB_KIND_PAGEABLE, BYTES);
    struct gb_error err = GB_ERROR_INIT;
    struct gb_holder *h = core_holder(f->core);
    struct gb_lease_params p = core_map_params(h, "default", "a", false);
    struct core_mapping m;
    unsigned failed = 0;

    if (core_step(&failed, core_create(f->core, &create, NULL, &err), &err)) {
        if (core_step(&failed, core_map(f->core, &p, &m, &err), &err)) {
            memset(data, 0, BYTES);
            ck_assert_int_eq(memcmp(m.bytes, data, BYTES), 0);
            core_mapping_done(&m);
        }
        p.write = true;
        if (core_step(&failed, core_map(f->core, &p, &m, &err), &err)) {
            core_bytes(1, m.bytes, BYTES);
            core_bytes(1, data, BYTES);
            core_mapping_done(&m);
            core_step(&failed, core_lease_end(f->core, m.id, h, &err), &err);
        }
        if (core_step(&failed, core_download(f->core, "default", "a", 0, BYTES, back, &err), &err) && failed == 0)
            ck_assert_int_eq(memcmp(back, data, BYTES), 0);
        gb_assert_ok(core_delete_when_unmapped(f->core, "default", "a", NULL, &err), err);
    }
    gb_holder_end(h);
    core_until_unmapped(f);
    core_until_idle(f);
    return failed;
}

START_TEST(each_call_fails_once) {
    bool met = true;
    unsigned sum = 0;
    unsigned n;

    for (n = 1; met && n <= 6; n++) {
        struct core_fixture f;
        unsigned failed;
        char spec[128];

        snprintf(spec, sizeof(spec), "fault:%s@%u=cudaErrorInvalidValue:%s", faults[_i % FAULTS], n,
                 specs[_i / FAULTS]);
        core_fixture_init(&f, spec);
        failed = play(&f);
        ck_assert_msg(failed <= 1, "%s: %u steps failed", spec, failed);
        if (failed > 0)
            ck_assert_msg(play(&f) == 0, "%s: does not recover", spec);
        met = core_fault_met(&f); /* else there are fewer calls */
        core_fixture_done(&f);
        sum += failed;
    }
    if (_i % FAULTS == 0)
        ck_assert_uint_ge(sum, 2); /* one for reading, one for writing */
}
END_TEST

/* --- the database refuses ----------------------------------------------------------------------------------------- */

START_TEST(the_database_refuses) {
    struct store_vfs_faults *disk = store_vfs_install();
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct core_mapping m;
    struct gb_buffer_rec rec;
    struct gb_holder *h;

    core_fixture_init(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", true);
    gb_assert_ok(core_map(f.core, &p, &m, &err), err);
    core_mapping_done(&m);
    atomic_store(&disk->write_result, SQLITE_FULL);
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_STORAGE_FULL);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 2);
    ck_assert_uint_eq(rec.leases, 1);
    core_expect(f.core, "default", "a", data, BYTES); /* readers are not blocked */
    gb_assert_fails(core_seal(f.core, "default", "a", &err), err, GB_ERR_MAPPED);
    /* The lease ends despite the error, and the new bytes get a generation of their own. */
    gb_assert_fails(core_lease_end(f.core, m.id, h, &err), err, GB_ERR_STORAGE_FULL);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 3);
    ck_assert_uint_eq(rec.leases, 0);
    gb_assert_fails(core_seal(f.core, "default", "a", &err), err, GB_ERR_STORAGE_FULL);
    atomic_store(&disk->write_result, SQLITE_OK);
    gb_assert_ok(core_seal(f.core, "default", "a", &err), err);
    gb_holder_end(h);
    core_until_unmapped(&f);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
}
END_TEST

/* --- the device dies ---------------------------------------------------------------------------------------------- */

static bool is_lost(void *arg) {
    struct core_fixture *f = arg;
    struct gb_buffer_rec rec;
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(core_buffer_get(f->core, "default", "a", &rec, &err), err);
    return rec.state == GB_BUFFER_LOST;
}

START_TEST(the_device_dies) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name session = core_name("default");
    struct gb_session_stats mine;
    struct gb_lease_params p;
    struct core_mapping m[2];
    struct gb_buffer_rec rec;
    struct gb_holder *h;
    char spec[128];
    int i;

    /* Each lease asks four ways. */
    snprintf(spec, sizeof(spec), "fault:export@9=cudaErrorIllegalAddress:%s", specs[_i]);
    core_fixture_init(&f, spec);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    h = core_holder(f.core);
    for (i = 0; i < 2; i++) {
        p = core_map_params(h, "default", "a", i == 1);
        gb_assert_ok(core_map(f.core, &p, &m[i], &err), err);
    }
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_DEVICE_LOST);
    core_until(is_lost, &f, "the buffer is lost");
    ck_assert_int_eq(core_lease(f.core, m[0].id).state, GB_LEASE_LOST);
    ck_assert_int_eq(memcmp(m[1].bytes, data, BYTES), 0);
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_uint_eq(rec.leases, 0);
    gb_assert_ok(gb_session_stats(f.core, &session, &mine, &err), err);
    ck_assert_uint_eq(mine.held_bytes, BYTES);
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_DEVICE_LOST);
    gb_assert_ok(core_lease_end(f.core, m[1].id, h, &err), err);
    gb_holder_end(h);
    core_until_unmapped(&f);
    for (i = 0; i < 2; i++)
        core_mapping_done(&m[i]);
    core_fixture_done(&f);
}
END_TEST

/* --- events for other processes ----------------------------------------------------------------------------------- */

/* The host backend's operations, except for three that act like a GPU. */
struct shared_events {
    struct gb_backend_ops ops;
    const struct gb_backend_ops *host;
    struct gb_event *made;
    int made_count;
    int destroyed;
    bool refuse;
};
static struct shared_events gpu;

static int export(struct gb_backend *be, const struct gb_location *place, uint64_t bytes, struct gb_pool *pool,
                  enum gb_export_way way, bool writable, struct gb_export *ret, struct gb_error *err) {
    if (way == GB_EXPORT_POOL && place->kind == GB_KIND_DEVICE) {
        *ret = (struct gb_export){.way = way, .fd = -1, .handle_bytes = GB_EXPORT_HANDLE_BYTES, .map_bytes = bytes};
        memcpy(ret->handle, &pool, sizeof(pool));
        return 0;
    }
    if (way != GB_EXPORT_VMM || place->kind == GB_KIND_DEVICE)
        return gpu.host->export(be, place, bytes, pool, way, writable, ret, err);
    if (gpu.host->export(be, place, bytes, pool, GB_EXPORT_MEMFD, writable, ret, err) < 0)
        return -1;
    ret->way = GB_EXPORT_VMM;
    return 0;
}

static int event_create_shared(struct gb_backend *be, int device, struct gb_event **ret, struct gb_error *err) {
    if (gpu.refuse)
        return gpu.host->event_create_shared(be, device, ret, err);
    if (gpu.host->event_create(be, device, ret, err) < 0)
        return -1;
    gpu.made = *ret;
    gpu.made_count++;
    return 0;
}

static int event_export(struct gb_backend *be, struct gb_event *event, unsigned char ret[GB_EXPORT_HANDLE_BYTES],
                        struct gb_error *err) {
    (void)be;
    (void)err;
    memset(ret, 0, GB_EXPORT_HANDLE_BYTES);
    memcpy(ret, &event, sizeof(event));
    return 0;
}

static void event_destroy(struct gb_backend *be, struct gb_event *event) {
    gpu.destroyed += event && event == gpu.made;
    gpu.host->event_destroy(be, event);
}

static void become_gpu(struct core_fixture *f) {
    gpu = (struct shared_events){.ops = *f->backend->ops, .host = f->backend->ops};
    gpu.ops.export = export;
    gpu.ops.event_create_shared = event_create_shared;
    gpu.ops.event_export = event_export;
    gpu.ops.event_destroy = event_destroy;
    f->backend->ops = &gpu.ops;
}

/* The importer gets its mapping at once, and an event that tells when the bytes are complete. */
START_TEST(an_event_stands_for_queued_work) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params create = core_kind_params("a", GB_KIND_PAGEABLE, BYTES);
    struct gb_lease_params p;
    struct core_call pending;
    struct gb_lease_grant *g;
    struct core_gate gate;
    struct gb_holder *h;
    struct gb_event *event;
    bool done = true;
    int64_t id;

    core_fixture_prepare(&f, specs[_i]);
    if (!core_on_host(&f)) { /* it has its own */
        store_fixture_done(&f.store);
        gb_backend_close(f.backend);
        return;
    }
    become_gpu(&f);
    core_fixture_open(&f);
    core_put_bytes(&f, "default", "b", 100, 1, NULL);
    core_gate_close(&gate, &f, "default");
    gb_assert_ok(core_create(f.core, &create, NULL, &err), err); /* its zeros are queued behind the gate */
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", false);
    p.wait_ms = 0;
    core_call_begin(&pending);
    gb_lease_map(f.core, &p, pending.call.lease);
    core_wake_wait(&pending.wake);
    ck_assert_msg(pending.call.base->error.code == GB_OK, "%s", pending.call.base->error.detail);
    g = &pending.call.lease->lease;
    ck_assert_int_eq(g->export.way, GB_EXPORT_VMM);
    ck_assert_uint_eq(g->passed_count, 0);
    ck_assert(g->has_event);
    memcpy(&event, g->event, sizeof(event));
    ck_assert_ptr_eq(event, gpu.made);
    gb_assert_ok(gb_event_query(f.backend, event, &done, &err), err);
    ck_assert(!done);
    id = g->id;
    gb_call_unref(pending.call.base);
    core_wake_done(&pending.wake);
    /* Without an event, the request waits for the bytes. */
    gpu.refuse = true;
    gb_assert_fails(core_map(f.core, &p, NULL, &err), err, GB_ERR_TIMED_OUT);
    gpu.refuse = false;
    core_gate_open(&gate);
    while (!done)
        gb_assert_ok(gb_event_query(f.backend, event, &done, &err), err);
    gb_assert_ok(core_lease_end(f.core, id, h, &err), err);
    ck_assert_int_eq(gpu.destroyed, 1);                  /* with the lease */
    gb_assert_ok(core_map(f.core, &p, NULL, &err), err); /* the bytes are complete: no event */
    ck_assert_int_eq(gpu.made_count, 1);
    gb_holder_end(h);
    core_until_unmapped(&f);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    core_until_idle(&f);
    core_fixture_close(&f);
    f.backend->ops = gpu.host;
    core_fixture_done(&f);
}
END_TEST

/* A pool whose memory is mapped cannot be removed. A handle without a descriptor has no other effect. */
START_TEST(a_pool_stays_while_it_is_mapped) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct core_call pending;
    struct gb_holder *h;

    core_fixture_prepare(&f, specs[_i]);
    if (!core_on_host(&f)) {
        store_fixture_done(&f.store);
        gb_backend_close(f.backend);
        return;
    }
    become_gpu(&f);
    core_fixture_open(&f);
    core_pool_plain(&f, "default", "p", 0);
    gb_assert_ok(core_upload_on(f.core, "default", "a", "", "p", data, BYTES, &err), err);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", true);
    core_call_begin(&pending);
    gb_lease_map(f.core, &p, pending.call.lease);
    core_wake_wait(&pending.wake);
    ck_assert_msg(pending.call.base->error.code == GB_OK, "%s", pending.call.base->error.detail);
    ck_assert_int_eq(pending.call.lease->lease.export.way, GB_EXPORT_POOL);
    ck_assert_uint_eq(pending.call.lease->lease.passed_count, 1);
    ck_assert_int_eq(gb_lease_take_fd(pending.call.lease), -1);
    gb_call_unref(pending.call.base);
    core_wake_done(&pending.wake);
    gb_assert_fails(core_pool_remove(f.core, "default", "p", true, &err), err, GB_ERR_MAPPED);
    gb_assert_ok(core_delete_when_unmapped(f.core, "default", "a", NULL, &err), err);
    gb_assert_fails(core_pool_remove(f.core, "default", "p", false, &err), err, GB_ERR_MAPPED);
    ck_assert_uint_eq(core_pool_look(&f, "default", "p").stat.used_bytes > 0, true);
    gb_holder_end(h);
    core_until_unmapped(&f);
    gb_assert_ok(core_pool_remove(f.core, "default", "p", false, &err), err);
    core_until_idle(&f);
    core_fixture_close(&f);
    f.backend->ops = gpu.host;
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_lease_fault");

    gb_test_add_loop(suite, "fault", each_call_fails_once, 120, SPECS * FAULTS);
    gb_test_add_loop(suite, "store", the_database_refuses, 60, SPECS);
    gb_test_add_loop(suite, "dead", the_device_dies, 60, SPECS);
    gb_test_add_loop(suite, "event", an_event_stands_for_queued_work, 60, SPECS);
    gb_test_add_loop(suite, "pool", a_pool_stays_while_it_is_mapped, 60, SPECS);
    return gb_test_run(suite);
}
