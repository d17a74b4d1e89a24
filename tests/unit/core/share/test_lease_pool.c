/* Memory of pools in other processes: what an export leaves kept, and the importer's own event. The handles cannot be
 * opened; the test records the event in the importer's place. */
#include <semaphore.h>
#include <string.h>

#include "core/share/lease.h"
#include "core_pools.h"
#include "gb_test.h"
#include "lease_fixture.h"

#define SPEC "host:bytes=256M,ipc=fake,legacy=fake"
#define MIB (1ull << 20)
#define BYTES (3 * MIB)

static char data[BYTES];

/* --- pools -------------------------------------------------------------------------------------------------------- */

static void make_pool(struct core_fixture *f) {
    struct gb_pool_params p = core_pool_params("default", "shared", 0, 0);
    struct gb_error err = GB_ERROR_INIT;

    p.rec.config.exportable = p.given.exportable = true;
    gb_assert_ok(core_pool_make(f->core, &p, NULL, &err), err);
}

static void put(struct core_fixture *f, const char *name) {
    struct gb_error err = GB_ERROR_INIT;

    core_bytes(1, data, BYTES);
    gb_assert_ok(core_upload_on(f->core, "default", name, "", "shared", data, BYTES, &err), err);
}

/* Maps, and ends the lease. */
static struct gb_lease_grant map_once(struct core_fixture *f, const char *name) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_holder *h = core_holder(f->core);
    struct gb_lease_params p = core_map_params(h, "default", name, false);
    struct gb_lease_grant grant;
    struct core_call pending;
    struct gb_lease_call *call;

    core_call_begin(&pending);
    call = pending.call.lease;
    atomic_fetch_add(&call->base.refs, 1);
    gb_lease_map(f->core, &p, call);
    gb_assert_ok(core_map_end(&pending, NULL, &err), err);
    grant = call->lease;
    gb_call_unref(&call->base);
    gb_holder_end(h);
    core_until_unmapped(f);
    return grant;
}

START_TEST(what_was_exported_is_kept) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_grant first;
    struct gb_lease_grant second;
    struct gb_pool_trim trim;
    struct gb_pool_view view;
    uint64_t reserved;

    core_open_two(&f, SPEC);
    make_pool(&f);
    put(&f, "a");
    put(&f, "b");
    view = core_pool_look(&f, "default", "shared");
    ck_assert(!view.exported && view.kept_bytes == 0 && view.stat.reserved_bytes > 0);
    first = map_once(&f, "a");
    second = map_once(&f, "b");
    ck_assert_int_eq(first.export.way, GB_EXPORT_POOL);
    ck_assert_int_gt(first.pool_id, 0);
    ck_assert_int_eq(first.pool_id, second.pool_id);
    ck_assert_str_eq(first.pool.s, "shared");
    view = core_pool_look(&f, "default", "shared");
    reserved = view.stat.reserved_bytes;
    ck_assert(view.exported && view.kept_bytes == reserved && reserved >= 2 * BYTES);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    gb_assert_ok(core_buffer_delete(f.core, "default", "b", &err), err);
    gb_assert_ok(core_pool_trim(f.core, "default", "shared", 0, &trim, &err), err);
    ck_assert_uint_eq(trim.before_bytes, reserved);
    ck_assert_uint_eq(trim.after_bytes, reserved);
    view = core_pool_look(&f, "default", "shared");
    ck_assert(view.stat.reserved_bytes == reserved && view.kept_bytes == reserved);
    gb_assert_ok(core_pool_remove(f.core, "default", "shared", false, &err), err);
    core_fixture_done(&f);
}
END_TEST

/* The device says that all went back, as CUDA's pools do; what is added later is added to what is kept. */
START_TEST(what_the_device_forgets_is_remembered) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_core_pool *pool;
    struct gb_pool_view view;
    struct gb_pool_stat stat;
    struct gb_session *s;
    uint64_t kept;

    core_open_two(&f, SPEC);
    make_pool(&f);
    put(&f, "a");
    (void)map_once(&f, "a");
    kept = core_pool_look(&f, "default", "shared").kept_bytes;
    s = gb_session_find(f.core, &(struct gb_name){"default"}, &err);
    pthread_mutex_lock(&s->lock);
    pool = gb_core_pool_ref(gb_core_pool_find_locked(s, &(struct gb_name){"shared"}, &err));
    pthread_mutex_unlock(&s->lock);
    gb_assert_ok(gb_pool_trim(f.backend, pool->pool, 0, &err), err);
    gb_assert_ok(gb_pool_stat(f.backend, pool->pool, &stat, &err), err);
    ck_assert_uint_eq(stat.reserved_bytes, 0);
    gb_core_pool_refresh(pool);
    view = core_pool_look(&f, "default", "shared");
    ck_assert(view.kept_bytes == kept && view.stat.reserved_bytes == kept);
    gb_assert_ok(core_buffer_create(f.core, "default", "other", 1, 0, &err), err); /* of another pool: no growth */
    ck_assert_uint_eq(core_pool_look(&f, "default", "shared").kept_bytes, kept);
    put(&f, "b");
    put(&f, "c");
    gb_core_pool_refresh(pool);
    gb_assert_ok(gb_pool_stat(f.backend, pool->pool, &stat, &err), err);
    view = core_pool_look(&f, "default", "shared");
    ck_assert_uint_eq(view.kept_bytes, kept + stat.reserved_bytes);
    gb_core_pool_unref(pool);
    gb_session_unref(s);
    core_fixture_done(&f);
}
END_TEST

/* --- the importer's event ----------------------------------------------------------------------------------------- */

/* A lease on a buffer of kind ipc, and the importer's stream, which is held back. */
struct importer {
    struct core_fixture f;
    struct gb_holder *holder;
    struct core_mapping map;
    struct gb_stream *stream;
    sem_t entered;
    sem_t open;
};

static void stand(void *arg) {
    struct importer *im = arg;

    sem_post(&im->entered);
    while (sem_wait(&im->open) < 0)
        continue;
}

static void start(struct importer *im, bool write) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct gb_lease *lease;

    core_open_two(&im->f, SPEC);
    sem_init(&im->entered, 0, 0);
    sem_init(&im->open, 0, 0);
    core_put_kind(&im->f, "a", GB_KIND_IPC, BYTES, 1, data);
    im->holder = core_holder(im->f.core);
    p = core_map_params(im->holder, "default", "a", write);
    p.finished = true;
    gb_assert_ok(core_map(im->f.core, &p, &im->map, &err), err);
    ck_assert_int_eq(im->map.way, GB_EXPORT_LEGACY);
    lease = gb_lease_find(im->f.core, im->map.id, &err);
    ck_assert_ptr_nonnull(lease);
    ck_assert_ptr_nonnull(lease->finished);
    gb_assert_ok(gb_stream_create(im->f.backend, 0, &im->stream, &err), err);
    gb_assert_ok(gb_stream_call(im->f.backend, im->stream, stand, im, &err), err);
    while (sem_wait(&im->entered) < 0)
        continue;
    gb_assert_ok(gb_event_record(im->f.backend, lease->finished, im->stream, &err), err);
    gb_lease_unref(lease);
}

static void done(struct importer *im) {
    gb_holder_end(im->holder);
    core_until_unmapped(&im->f);
    gb_stream_destroy(im->f.backend, im->stream);
    core_fixture_done(&im->f);
}

START_TEST(a_lease_ends_when_the_importer_has_finished) {
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_rec before;
    struct gb_buffer_rec rec;
    struct core_call end;
    struct importer im;

    start(&im, true);
    gb_assert_ok(core_buffer_get(im.f.core, "default", "a", &before, &err), err);
    core_call_begin(&end);
    gb_lease_end(im.f.core, im.map.id, im.holder, false, end.call.base);
    ck_assert_int_eq(core_lease(im.f.core, im.map.id).state, GB_LEASE_ENDING);
    gb_assert_fails(core_buffer_delete(im.f.core, "default", "a", &err), err, GB_ERR_MAPPED);
    err = GB_ERROR_INIT;
    gb_assert_fails(core_lease_end(im.f.core, im.map.id, im.holder, &err), err, GB_ERR_LEASE_NOT_FOUND);
    err = GB_ERROR_INIT;
    gb_assert_ok(core_buffer_get(im.f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.generation, before.generation);
    sem_post(&im.open);
    gb_assert_ok(core_call_end(&end, &err), err);
    gb_assert_ok(core_buffer_get(im.f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.generation, before.generation + 1);
    gb_assert_ok(core_buffer_delete(im.f.core, "default", "a", &err), err);
    done(&im);
}
END_TEST

/* Without a request, with its connection; the memory that no buffer has any more is held as long. */
START_TEST(a_connection_that_ends_waits_for_it_too) {
    struct gb_error err = GB_ERROR_INIT;
    struct importer im;
    struct gb_session_stats stats;
    struct gb_name session = core_name("default");

    start(&im, false);
    gb_assert_ok(core_delete_when_unmapped(im.f.core, "default", "a", NULL, &err), err);
    gb_holder_end(im.holder);
    im.holder = NULL;
    ck_assert_int_eq(core_lease(im.f.core, im.map.id).state, GB_LEASE_ENDING);
    gb_assert_ok(gb_session_stats(im.f.core, &session, &stats, &err), err);
    ck_assert_uint_eq(stats.held_bytes, BYTES);
    sem_post(&im.open);
    done(&im);
}
END_TEST

/* The core closes while the event is not complete. */
START_TEST(the_end_of_the_core_waits_for_no_importer) {
    struct importer im;

    start(&im, true);
    gb_holder_end(im.holder);
    ck_assert_int_eq(core_lease(im.f.core, im.map.id).state, GB_LEASE_ENDING);
    gb_core_close(im.f.core);
    im.f.core = NULL;
    sem_post(&im.open);
    gb_stream_destroy(im.f.backend, im.stream);
    core_fixture_done(&im.f);
}
END_TEST

/* A process that is gone completes nothing any more. */
START_TEST(a_process_that_is_gone_is_not_waited_for) {
    struct importer im;

    start(&im, false);
    im.holder->pid = 0x7ffffff0; /* above every pid_max */
    gb_holder_end(im.holder);
    im.holder = NULL;
    core_until_unmapped(&im.f);
    sem_post(&im.open);
    done(&im);
}
END_TEST

START_TEST(host_memory_needs_no_event) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_holder *h;
    struct gb_lease_params p;
    struct core_call pending;
    struct gb_lease_call *call;

    core_open_two(&f, SPEC);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", false);
    p.finished = true;
    core_call_begin(&pending);
    call = pending.call.lease;
    atomic_fetch_add(&call->base.refs, 1);
    gb_lease_map(f.core, &p, call);
    gb_assert_ok(core_map_end(&pending, NULL, &err), err);
    ck_assert(!call->lease.has_finished);
    ck_assert_str_ne(call->lease.finished_missing, "");
    gb_call_unref(&call->base);
    gb_holder_end(h);
    core_until_unmapped(&f);
    core_fixture_done(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_lease_pool");

    gb_test_add(suite, "kept", what_was_exported_is_kept, 60);
    gb_test_add(suite, "forgotten", what_the_device_forgets_is_remembered, 60);
    gb_test_add(suite, "finished", a_lease_ends_when_the_importer_has_finished, 60);
    gb_test_add(suite, "connection", a_connection_that_ends_waits_for_it_too, 60);
    gb_test_add(suite, "close", the_end_of_the_core_waits_for_no_importer, 60);
    gb_test_add(suite, "gone", a_process_that_is_gone_is_not_waited_for, 60);
    gb_test_add(suite, "host", host_memory_needs_no_event, 60);
    return gb_test_run(suite);
}
