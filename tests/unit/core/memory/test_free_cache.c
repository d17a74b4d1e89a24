/* The free cache: allocations that reuse its memory without the lane, those that cannot, and its return to the pool. */
#include <stdio.h>
#include <stdlib.h>

#include "core/memory/alloc.h"
#include "core/memory/content.h"
#include "core/runtime/runtime.h"
#include "core_pools.h"
#include "gb_test.h"

#define BYTES 100000u

static struct core_fixture f;
static struct gb_error err;

static struct gb_core_device *device(void) {
    return &f.core->devices[0];
}

static void setup(void) {
    err = (struct gb_error)GB_ERROR_INIT;
    core_fixture_init(&f, "host:discrete,bytes=64M");
}

static void teardown(void) {
    core_until_idle(&f);
    core_fixture_done(&f);
}

static bool entered(void *arg) {
    (void)arg;
    return gb_lane_enter(&device()->lane);
}

/* Enters the lane. Until the lane is left, only this thread allocates or frees. */
static void hold_lane(void) {
    core_until(entered, NULL, "the lane is free");
}

static void leave_lane(void) {
    gb_lane_leave(&device()->lane, false);
}

/* Returns true, with the lane held, when an allocation waits for memory. */
static bool waits(void *arg) {
    if (!entered(arg))
        return false;
    if (device()->waiting.first)
        return true;
    leave_lane();
    return false;
}

static uint64_t used_on_device(void) {
    struct gb_pool_stat stat;

    gb_assert_ok(gb_pool_stat(f.backend, device()->pool->pool, &stat, &err), err);
    return stat.used_bytes;
}

static bool nothing_used(void *arg) {
    (void)arg;
    return used_on_device() == 0;
}

static void create(const char *name, uint64_t bytes) {
    gb_assert_ok(core_buffer_create(f.core, "default", name, bytes, 0, &err), err);
}

static void erase(const char *name) {
    gb_assert_ok(core_buffer_delete(f.core, "default", name, &err), err);
}

static uint64_t session_bytes(void) {
    struct gb_core_stats stats;

    gb_core_stats(f.core, &stats);
    return stats.buffer_bytes;
}

START_TEST(the_next_of_its_size_takes_it) {
    char *data = malloc(BYTES);
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    struct gb_pool_view before = core_pool_look(&f, "default", "default");
    struct gb_pool_view view;
    size_t i;

    core_bytes(1, data, BYTES);
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
    hold_lane();
    erase("x");
    ck_assert_uint_eq(session_bytes(), 0);
    view = core_pool_look(&f, "default", "default");
    ck_assert_uint_eq(view.stat.used_bytes, 0);
    ck_assert_uint_eq(view.memory.frees, before.memory.frees + 1);
    ck_assert_uint_ge(used_on_device(), BYTES);
    create("y", BYTES);
    view = core_pool_look(&f, "default", "default");
    ck_assert_uint_ge(view.stat.used_bytes, BYTES);
    ck_assert_uint_eq(view.memory.allocations, before.memory.allocations + 2);
    ck_assert_uint_eq(session_bytes(), BYTES);
    ck_assert_uint_eq(atomic_load(&device()->free_cache->count), 0);
    leave_lane();
    gb_assert_ok(core_download(f.core, "default", "y", 0, BYTES, data, &err), err);
    for (i = 0; i < BYTES; i++)
        ck_assert_int_eq(data[i], 0);
    erase("y");
    core_until(nothing_used, NULL, "what nobody takes is given back");
    free(data);
}
END_TEST

/* Uploads replace a buffer repeatedly without the lane. Each reuses the memory of the generation before the last. */
START_TEST(uploads_take_it_in_turns) {
    char *data = malloc(BYTES);
    char *got = malloc(BYTES);
    struct gb_upload_params p = core_upload_params("default", "x", BYTES);
    unsigned i;

    create("spare", BYTES);
    core_bytes(0, data, BYTES);
    gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
    hold_lane();
    erase("spare");
    for (i = 1; i < 6; i++) {
        core_bytes(i, data, BYTES);
        gb_assert_ok(core_upload(f.core, &p, data, NULL, &err), err);
        ck_assert_uint_eq(atomic_load(&device()->free_cache->count), 1);
    }
    leave_lane();
    gb_assert_ok(core_download(f.core, "default", "x", 0, BYTES, got, &err), err);
    ck_assert_mem_eq(data, got, BYTES);
    erase("x");
    core_until(nothing_used, NULL, "what nobody takes is given back");
    free(got);
    free(data);
}
END_TEST

/* An allocation of another size or pool goes to the lane. The lane first returns the cached memory. */
START_TEST(others_do_not) {
    struct gb_buffer_params other[2] = {{.name = core_name("y"), .bytes = BYTES + 1},
                                        {.name = core_name("y"), .bytes = BYTES, .pool = core_name("p")}};
    struct gb_buffer_params *p = &other[_i];
    struct core_call c;

    p->session = core_name("default");
    p->dtype = GB_DTYPE_UINT8;
    p->shape = (struct gb_shape){.dims = 1, .dim = {p->bytes}};
    core_pool_plain(&f, "default", "p", 0);
    create("x", BYTES);
    hold_lane();
    erase("x");
    core_call_begin(&c);
    gb_buffer_create(f.core, p, 0, c.call.buffer);
    ck_assert(!core_call_over(&c));
    ck_assert_uint_eq(atomic_load(&device()->free_cache->count), 1);
    leave_lane();
    gb_assert_ok(core_call_end(&c, &err), err);
    ck_assert_uint_eq(atomic_load(&device()->free_cache->count), 0);
    erase("y");
    gb_assert_ok(core_pool_remove(f.core, "default", "p", false, &err), err);
}
END_TEST

/* Cached memory counts against the pool's limit, because another allocation may reuse it before a waiter runs. */
START_TEST(the_limit_counts_it) {
    struct gb_buffer_params p = {.session = core_name("default"), .name = core_name("y"), .dtype = GB_DTYPE_UINT8};
    struct core_call c;
    struct gb_buffer_params first;

    core_pool_plain(&f, "default", "p", 2 * 1024 * 1024);
    p.pool = core_name("p");
    p.bytes = 1000000;
    p.shape = (struct gb_shape){.dims = 1, .dim = {p.bytes}};
    first = p;
    first.name = core_name("x");
    first.bytes = first.shape.dim[0] = 1500000;
    core_call_begin(&c);
    gb_buffer_create(f.core, &first, 0, c.call.buffer);
    gb_assert_ok(core_call_end(&c, &err), err);
    core_call_begin(&c);
    gb_buffer_create(f.core, &p, 60000, c.call.buffer);
    core_until(waits, NULL, "there is no room for the second");
    erase("x");
    ck_assert_uint_eq(atomic_load(&device()->free_cache->count), 1);
    /* The lane retries like this between two tasks, before it returns cached memory. */
    device()->trim_next_ns = UINT64_MAX;
    device()->waiting.freed = true;
    ck_assert(gb_alloc_retry(device()));
    ck_assert(!core_call_over(&c));
    device()->trim_next_ns = 0;
    leave_lane();
    gb_assert_ok(core_call_end(&c, &err), err);
    erase("y");
    gb_assert_ok(core_pool_remove(f.core, "default", "p", false, &err), err);
}
END_TEST

START_TEST(no_more_than_some) {
    char name[16];
    unsigned i;

    for (i = 0; i < GB_FREE_CACHE_COUNT + 5; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        create(name, 4096);
    }
    hold_lane();
    for (i = 0; i < GB_FREE_CACHE_COUNT + 5; i++) {
        snprintf(name, sizeof(name), "b%u", i);
        erase(name);
        ck_assert_uint_eq(atomic_load(&device()->free_cache->count),
                          i < GB_FREE_CACHE_COUNT ? i + 1 : GB_FREE_CACHE_COUNT);
    }
    ck_assert_uint_eq(session_bytes(), 0);
    leave_lane();
    core_until(nothing_used, NULL, "all is given back");
}
END_TEST

/* The end of a session and of the core returns cached memory. */
START_TEST(it_ends_with_its_session) {
    struct gb_session_params p = {.name = core_name("s")};

    gb_assert_ok(core_session_create(f.core, &p, &err), err);
    gb_assert_ok(core_buffer_create(f.core, "s", "x", BYTES, 0, &err), err);
    create("x", BYTES);
    hold_lane();
    gb_assert_ok(core_buffer_delete(f.core, "s", "x", &err), err);
    erase("x");
    ck_assert_uint_eq(atomic_load(&device()->free_cache->count), 2);
    leave_lane();
    gb_assert_ok(core_session_delete(f.core, "s", &err), err);
    core_fixture_close(&f);
    core_fixture_open(&f);
    core_until(nothing_used, NULL, "all is given back");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("core_kept");
    TCase *t = tcase_create("kept");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_next_of_its_size_takes_it);
    tcase_add_test(t, uploads_take_it_in_turns);
    tcase_add_loop_test(t, others_do_not, 0, 2);
    tcase_add_test(t, the_limit_counts_it);
    tcase_add_test(t, no_more_than_some);
    tcase_add_test(t, it_ends_with_its_session);
    suite_add_tcase(suite, t);
    return gb_test_run(suite);
}
