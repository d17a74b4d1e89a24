/* The log of allocations and the list of what is taken: that they agree, whatever happens meanwhile. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core_fixture.h"
#include "gb_test.h"

#define ROOM 64

static struct core_fixture f;
static struct gb_error err;

static void setup(void) {
    err = (struct gb_error)GB_ERROR_INIT;
    core_fixture_prepare(&f, "host:discrete,bytes=64M");
    f.config.allocation_log = ROOM;
    core_fixture_open(&f);
}

static void teardown(void) {
    core_until_idle(&f);
    core_fixture_done(&f);
}

static void create(const char *name, uint64_t bytes) {
    gb_assert_ok(core_buffer_create(f.core, "default", name, bytes, 0, &err), err);
}

static void erase(const char *name) {
    gb_assert_ok(core_buffer_delete(f.core, "default", name, &err), err);
}

struct seen {
    unsigned count;
    uint64_t bytes;
    unsigned leaving;
    struct gb_alloc_log_block last;
};

static int see(void *arg, const struct gb_alloc_log_block *b, struct gb_error *why) {
    struct seen *seen = arg;

    (void)why;
    seen->count++;
    seen->bytes += b->bytes;
    seen->leaving += b->leaving;
    ck_assert(b->address > 0 && b->number > 0 && b->session.s[0] != '\0' && b->buffer.s[0] != '\0');
    seen->last = *b;
    return 0;
}

static struct seen look(void) {
    struct seen seen = {0};

    gb_assert_ok(gb_alloc_log_blocks(f.core, see, &seen, &err), err);
    return seen;
}

static uint64_t end_of_log(void) {
    uint64_t first;
    uint64_t end;

    gb_alloc_log_range(f.core, &first, &end);
    ck_assert(first <= end && end - first <= ROOM);
    return end;
}

static bool nothing_taken(void *arg) {
    (void)arg;
    return look().count == 0;
}

START_TEST(agrees) {
    struct gb_alloc_log_event e[8];
    uint64_t from = 1;
    unsigned n;

    create("a", 1000);
    create("b", 3000);
    create("empty", 0);
    ck_assert(look().count == 2 && look().bytes == 4000 && look().leaving == 0);
    ck_assert_str_eq(look().last.buffer.s, "b");
    erase("a");
    erase("b");
    core_until(nothing_taken, NULL, "all is given back");
    n = gb_alloc_log_events(f.core, &from, UINT64_MAX, e, 8);
    ck_assert_uint_eq(n, 4);
    ck_assert(e[0].action == GB_ALLOC_LOG_ALLOC && e[1].action == GB_ALLOC_LOG_ALLOC &&
              e[2].action == GB_ALLOC_LOG_FREE);
    ck_assert(e[0].bytes == 1000 && e[0].number == 1 && e[0].kind == GB_KIND_DEVICE && e[0].device == 0);
    ck_assert_str_eq(e[0].session, "default");
    ck_assert_str_eq(e[0].buffer, "a");
    ck_assert(e[0].address == e[2].address || e[0].address == e[3].address);
    ck_assert_uint_eq(gb_alloc_log_events(f.core, &from, UINT64_MAX, e, 8), 0);
    ck_assert_uint_eq(from, 5);
}
END_TEST

START_TEST(wraps) {
    struct gb_alloc_log_event e[ROOM];
    uint64_t from = 1;
    uint64_t end;
    unsigned n;
    unsigned i;

    for (i = 0; i < ROOM; i++) {
        create("a", 100 + i);
        erase("a");
    }
    core_until(nothing_taken, NULL, "all is given back");
    end = end_of_log();
    ck_assert_uint_eq(end, 2 * ROOM + 1);
    n = gb_alloc_log_events(f.core, &from, end, e, ROOM);
    ck_assert_uint_eq(n, ROOM);
    for (i = 0; i < n; i++)
        ck_assert_uint_eq(e[i].number, end - ROOM + i);
    from = end - 3;
    ck_assert_uint_eq(gb_alloc_log_events(f.core, &from, end - 1, e, ROOM), 2);
}
END_TEST

START_TEST(refused) {
    struct gb_alloc_log_event e;
    uint64_t from = 1;

    if (!core_on_host(&f)) /* which has as much */
        return;
    gb_assert_fails(core_buffer_create(f.core, "default", "big", 1u << 30, 0, &err), err, GB_ERR_OUT_OF_MEMORY);
    ck_assert_uint_eq(gb_alloc_log_events(f.core, &from, UINT64_MAX, &e, 1), 1);
    ck_assert(e.action == GB_ALLOC_LOG_FAILURE && e.address == 0 && e.bytes == 1u << 30 && e.free_bytes > 0);
    ck_assert_uint_eq(look().count, 0);
}
END_TEST

static atomic_bool over;

static void *walk(void *arg) {
    (void)arg;
    while (!atomic_load(&over)) {
        struct gb_alloc_log_event e[16];
        uint64_t from = 0;

        ck_assert_uint_le(look().count, 400);
        while (gb_alloc_log_events(f.core, &from, UINT64_MAX, e, 16) == 16)
            ;
    }
    return NULL;
}

/* Two walk while memory comes and goes. */
START_TEST(busy) {
    pthread_t walkers[2];
    char name[16];
    unsigned round;
    unsigned i;

    for (i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&walkers[i], NULL, walk, NULL), 0);
    for (round = 0; round < 3; round++) {
        for (i = 0; i < 200; i++) {
            snprintf(name, sizeof(name), "b%u", i);
            create(name, 64 + i);
        }
        for (i = 0; i < 200; i++) {
            snprintf(name, sizeof(name), "b%u", i);
            erase(name);
        }
    }
    atomic_store(&over, true);
    for (i = 0; i < 2; i++)
        pthread_join(walkers[i], NULL);
    core_until(nothing_taken, NULL, "all is given back");
    ck_assert_uint_eq(end_of_log(), 1201);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test) {
    TCase *tc = tcase_create(name);

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, test);
    suite_add_tcase(suite, tc);
}

int main(void) {
    Suite *suite = suite_create("core_trace");

    add(suite, "agrees", agrees);
    add(suite, "wraps", wraps);
    add(suite, "refused", refused);
    add(suite, "busy", busy);
    return gb_test_run(suite);
}
