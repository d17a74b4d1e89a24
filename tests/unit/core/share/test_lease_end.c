/* The ends of leases: by request, with their connection, while pending, in many threads, with the device, with the
 * core. No lease leaves anything behind. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gb_test.h"
#include "lease_fixture.h"

static const char *const specs[] = {"host:bytes=64M", "host:discrete,bytes=64M"};
#define SPECS 2

#define BYTES 20000

static char data[BYTES];

static bool nothing_pinned(void *arg) {
    struct gb_name session = core_name("default");
    struct gb_session_stats mine;
    struct gb_error err = GB_ERROR_INIT;

    gb_assert_ok(gb_session_stats(arg, &session, &mine, &err), err);
    return mine.session.used_pinned_bytes == 0;
}

/* A mapped buffer's name is deleted at once. Its memory is freed after the last unmap. */
START_TEST(memory_goes_with_the_last_unmap) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_name session = core_name("default");
    struct gb_lease_params p;
    struct core_mapping m[2];
    struct gb_session_stats mine;
    struct gb_buffer_rec rec;
    struct gb_holder *h;
    uint64_t held;
    int i;

    core_open_two(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PINNED, BYTES, 1, data);
    h = core_holder(f.core);
    for (i = 0; i < 2; i++) {
        p = core_map_params(h, "default", "a", i == 1);
        gb_assert_ok(core_map(f.core, &p, &m[i], &err), err);
    }
    gb_assert_fails(core_buffer_delete(f.core, "default", "a", &err), err, GB_ERR_MAPPED);
    gb_assert_ok(core_delete_when_unmapped(f.core, "default", "a", &held, &err), err);
    ck_assert_uint_eq(held, BYTES);
    gb_assert_fails(core_buffer_get(f.core, "default", "a", &rec, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    ck_assert_int_eq(core_lease(f.core, m[0].id).state, GB_LEASE_DELETED);
    core_put_bytes(&f, "default", "a", 100, 2, NULL); /* a new buffer of that name is independent */
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_uint_eq(rec.leases, 0);
    gb_assert_ok(gb_session_stats(f.core, &session, &mine, &err), err);
    ck_assert_uint_eq(mine.held_bytes, BYTES);
    ck_assert_uint_eq(mine.session.used_pinned_bytes, BYTES);
    gb_assert_ok(core_lease_end(f.core, m[0].id, h, &err), err);
    ck_assert_int_eq(memcmp(m[1].bytes, data, BYTES), 0);
    gb_assert_ok(gb_session_stats(f.core, &session, &mine, &err), err);
    ck_assert_uint_eq(mine.held_bytes, BYTES);
    gb_assert_ok(core_lease_end(f.core, m[1].id, h, &err), err);
    gb_assert_ok(gb_session_stats(f.core, &session, &mine, &err), err);
    ck_assert_uint_eq(mine.held_bytes, 0);
    core_until(nothing_pinned, f.core, "the pinned bytes are given back");
    gb_assert_ok(core_buffer_get(f.core, "default", "a", &rec, &err), err);
    ck_assert_int_eq(rec.generation, 1);
    gb_assert_ok(core_delete_when_unmapped(f.core, "default", "a", &held, &err), err); /* no lease maps it */
    ck_assert_uint_eq(held, 0);
    gb_assert_fails(core_delete_when_unmapped(f.core, "default", "a", &held, &err), err, GB_ERR_BUFFER_NOT_FOUND);
    gb_holder_end(h);
    for (i = 0; i < 2; i++)
        core_mapping_done(&m[i]);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* --- while it is made --------------------------------------------------------------------------------------------- */

/* While a mapping waits for the bytes, its connection ends or the buffer is deleted. */
START_TEST(a_holder_ends_while_it_maps) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params create = core_kind_params("a", GB_KIND_PAGEABLE, BYTES);
    struct gb_lease_params p;
    struct core_call pending[2];
    struct core_mapping m;
    struct core_gate gate;
    struct gb_holder *h[2];
    int i;

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "b", 100, 1, NULL);
    core_gate_close(&gate, &f, "default");
    gb_assert_ok(core_create(f.core, &create, NULL, &err), err); /* its zeros are queued behind the gate */
    for (i = 0; i < 2; i++) {
        h[i] = core_holder(f.core);
        p = core_map_params(h[i], "default", "a", false);
        core_call_begin(&pending[i]);
        gb_lease_map(f.core, &p, pending[i].call.lease);
    }
    ck_assert_uint_eq(core_leases(f.core, NULL, 0), 0); /* not yet */
    gb_assert_fails(core_buffer_delete(f.core, "default", "a", &err), err, GB_ERR_MAPPED);
    gb_holder_end(h[0]);
    gb_assert_fails(core_map_end(&pending[0], NULL, &err), err, GB_ERR_CANCELLED);
    gb_assert_ok(core_delete_when_unmapped(f.core, "default", "a", NULL, &err), err);
    ck_assert(!core_call_over(&pending[1]));
    core_gate_open(&gate);
    gb_assert_ok(core_map_end(&pending[1], &m, &err), err);
    memset(data, 0, BYTES);
    ck_assert_int_eq(memcmp(m.bytes, data, BYTES), 0);
    ck_assert_int_eq(core_lease(f.core, m.id).state, GB_LEASE_DELETED);
    core_mapping_done(&m);
    gb_holder_end(h[1]);
    core_until_unmapped(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* A pending writable lease fails if the buffer is replaced before the grant. */
START_TEST(the_buffer_is_replaced_while_it_is_mapped) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_buffer_params create = core_kind_params("a", GB_KIND_PAGEABLE, BYTES);
    struct gb_upload_params u = core_upload_params("default", "a", BYTES);
    struct gb_locator stream = core_at("default", "s");
    struct gb_lease_params p;
    struct core_call pending[2];
    struct core_mapping m;
    struct core_gate gate;
    struct gb_holder *h;
    int i;

    core_open_two(&f, specs[_i]);
    core_put_bytes(&f, "default", "b", 100, 1, NULL);
    gb_assert_ok(core_do(&err, stream, gb_stream_make, f.core, &stream), err);
    core_gate_close(&gate, &f, "default");
    gb_assert_ok(core_create(f.core, &create, NULL, &err), err);
    h = core_holder(f.core);
    for (i = 0; i < 2; i++) {
        p = core_map_params(h, "default", "a", i == 1);
        core_call_begin(&pending[i]);
        gb_lease_map(f.core, &p, pending[i].call.lease);
    }
    u.buffer.kind = GB_KIND_PAGEABLE;
    u.buffer.stream = stream.name;
    core_put(f.core, &u, 2, NULL);
    core_gate_open(&gate);
    gb_assert_ok(core_map_end(&pending[0], &m, &err), err); /* a reader maps the old content */
    ck_assert_int_eq(m.rec.generation, 1);
    ck_assert_int_eq(m.bytes[5], 0);
    gb_assert_fails(core_map_end(&pending[1], NULL, &err), err, GB_ERR_BUFFER_BUSY);
    core_mapping_done(&m);
    gb_holder_end(h);
    core_until_unmapped(&f);
    core_tidy(&f);
    core_fixture_done(&f);
}
END_TEST

/* --- many --------------------------------------------------------------------------------------------------------- */

#define THREADS 4
#define HOLDERS 1000
#define LEASES 3

struct crowd {
    struct core_fixture *f;
    atomic_int next;
    atomic_uint granted;
};

static void nap(unsigned *seed) {
    struct timespec t = {.tv_nsec = (long)(rand_r(seed) % 400) * 1000};

    nanosleep(&t, NULL);
}

static void check_refusal(const struct gb_error *err) {
    if (err->code != GB_ERR_CANCELLED && err->code != GB_ERR_BUFFER_BUSY && err->code != GB_ERR_BUFFER_NOT_FOUND)
        ck_abort_msg("%s: %s", gb_code_slug(err->code), err->detail);
}

/* A client maps a few buffers and dies before, during or after the answers. */
static void live_and_die(struct crowd *c, unsigned *seed) {
    static const char *const names[] = {"a", "b", "c"};
    struct core_call pending[LEASES];
    struct gb_holder *h = core_holder(c->f->core);
    int i;

    for (i = 0; i < LEASES; i++) {
        struct gb_lease_params p = core_map_params(h, "default", names[rand_r(seed) % 3], rand_r(seed) % 2 == 0);

        core_call_begin(&pending[i]);
        gb_lease_map(c->f->core, &p, pending[i].call.lease);
    }
    if (rand_r(seed) % 2)
        nap(seed);
    if (rand_r(seed) % 4 == 0)
        core_wake_wait(&pending[0].wake);
    if (atomic_load(&pending[0].call.base->finished) && pending[0].call.base->error.code == GB_OK) {
        struct gb_error err = GB_ERROR_INIT;

        if (core_lease_end(c->f->core, pending[0].call.lease->lease.id, h, &err) < 0)
            ck_abort_msg("%s: %s", gb_code_slug(err.code), err.detail);
    }
    gb_holder_end(h);
    for (i = 0; i < LEASES; i++) {
        while (!core_call_over(&pending[i]))
            nap(seed);
        if (pending[i].call.base->error.code == GB_OK)
            atomic_fetch_add(&c->granted, 1);
        else
            check_refusal(&pending[i].call.base->error);
        gb_call_unref(pending[i].call.base); /* closes descriptors that were not taken */
        if (pending[i].wake.seen == 0)
            core_wake_wait(&pending[i].wake);
        core_wake_done(&pending[i].wake);
    }
}

static void *client_main(void *arg) {
    struct crowd *c = arg;
    int i;

    while ((i = atomic_fetch_add(&c->next, 1)) < HOLDERS) {
        unsigned seed = 7919u * (unsigned)i + 1;

        live_and_die(c, &seed);
    }
    return NULL;
}

/* Replaces and deletes the buffers while the clients map them. */
static void *owner_main(void *arg) {
    static const char *const names[] = {"a", "b", "c"};
    struct crowd *c = arg;
    unsigned seed = 3;

    while (atomic_load(&c->next) < HOLDERS) {
        const char *name = names[rand_r(&seed) % 3];
        struct gb_error err = GB_ERROR_INIT;

        if (rand_r(&seed) % 3 == 0 && core_delete_when_unmapped(c->f->core, "default", name, NULL, &err) < 0 &&
            err.code != GB_ERR_BUFFER_NOT_FOUND && err.code != GB_ERR_BUFFER_BUSY)
            ck_abort_msg("%s: %s", gb_code_slug(err.code), err.detail);
        core_put_kind(c->f, name, GB_KIND_PAGEABLE, BYTES, rand_r(&seed), NULL);
        nap(&seed);
    }
    return NULL;
}

static unsigned descriptors(void) {
    unsigned n = 0;
    int fd;

    for (fd = 0; fd < 4096; fd++)
        n += lseek(fd, 0, SEEK_CUR) >= 0;
    return n;
}

START_TEST(a_thousand_holders_leave_nothing) {
    static const char *const names[] = {"a", "b", "c"};
    struct core_fixture f;
    struct crowd crowd = {.f = &f};
    pthread_t thread[THREADS + 1];
    struct gb_core_stats stats;
    unsigned before;
    int i;

    core_open_two(&f, specs[_i]);
    before = descriptors();
    for (i = 0; i < 3; i++)
        core_put_kind(&f, names[i], GB_KIND_PAGEABLE, BYTES, (unsigned)i, NULL);
    for (i = 0; i <= THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, i < THREADS ? client_main : owner_main, &crowd), 0);
    for (i = 0; i <= THREADS; i++)
        pthread_join(thread[i], NULL);
    core_until_unmapped(&f);
    gb_core_stats(f.core, &stats);
    ck_assert_uint_gt(atomic_load(&crowd.granted), HOLDERS / 10);
    ck_assert_uint_eq(stats.counters.maps, atomic_load(&crowd.granted));
    ck_assert_uint_eq(stats.counters.unmaps, stats.counters.maps);
    core_tidy(&f);
    ck_assert_uint_eq(descriptors(), before);
    core_fixture_done(&f);
}
END_TEST

/* --- the core ends ------------------------------------------------------------------------------------------------ */

/* The daemon ends its connections before it closes the core. A lease that is left does not block the close. */
START_TEST(the_core_closes) {
    struct core_fixture f;
    struct gb_error err = GB_ERROR_INIT;
    struct gb_lease_params p;
    struct core_mapping m;
    struct gb_holder *h;

    core_fixture_init(&f, specs[_i]);
    core_put_kind(&f, "a", GB_KIND_PAGEABLE, BYTES, 1, data);
    h = core_holder(f.core);
    p = core_map_params(h, "default", "a", true);
    gb_assert_ok(core_map(f.core, &p, &m, &err), err);
    gb_holder_end(h); /* the commit of the new generation may still be running */
    h = core_holder(f.core);
    p.holder = h;
    p.wait_ms = 60000;
    if (core_map(f.core, &p, NULL, &err) < 0)
        ck_assert_int_eq(err.code, GB_ERR_BUFFER_BUSY);
    core_fixture_close(&f);
    ck_assert_int_eq(memcmp(m.bytes, data, BYTES), 0); /* the importer keeps its mapping after the core's end */
    core_mapping_done(&m);
    core_fixture_open(&f);
    gb_assert_ok(core_buffer_delete(f.core, "default", "a", &err), err);
    core_until_idle(&f);
    core_fixture_done(&f);
    free(h);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_lease_end");

    gb_test_add_loop(suite, "deleted", memory_goes_with_the_last_unmap, 60, SPECS);
    gb_test_add_loop(suite, "while_mapping", a_holder_ends_while_it_maps, 60, SPECS);
    gb_test_add_loop(suite, "replaced", the_buffer_is_replaced_while_it_is_mapped, 60, SPECS);
    gb_test_add_loop(suite, "crowd", a_thousand_holders_leave_nothing, 300, SPECS);
    gb_test_add_loop(suite, "close", the_core_closes, 60, SPECS);
    return gb_test_run(suite);
}
