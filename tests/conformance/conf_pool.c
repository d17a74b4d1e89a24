/* Pools: accounting, limits, threshold, trim. */
#include <string.h>

#include <stdio.h>

#include "conf.h"

START_TEST(the_default_pool_keeps_everything) {
    struct gb_pool_config config;
    struct gb_pool *again = NULL;

    gb_assert_ok(gb_pool_default(conf.be, 0, &again, &conf.err), conf.err);
    ck_assert_ptr_eq(again, conf.pool);
    gb_assert_ok(gb_pool_config(conf.be, conf.pool, &config, &conf.err), conf.err);
    /* Of the host backend, only one that pretends to be an integrated GPU keeps less. */
    if (!conf.device.integrated || strstr(conf.spec, "host"))
        ck_assert(config.release_threshold_bytes == GB_UNLIMITED);
    ck_assert(config.follow_event_dependencies && config.allow_opportunistic && config.allow_internal_dependencies);
}
END_TEST

START_TEST(use_is_counted) {
    struct gb_pool *pool = conf_pool(0, true, true, true);
    struct gb_pool_stat stat = conf_stat(pool);
    unsigned char *p;
    unsigned char *q;

    ck_assert_uint_eq(stat.used_bytes, 0);
    p = conf_alloc(pool, conf.s1, 32 * MIB);
    q = conf_alloc(pool, conf.s1, 32 * MIB);
    stat = conf_stat(pool);
    ck_assert_uint_eq(stat.used_bytes, 64 * MIB);
    ck_assert_uint_ge(stat.reserved_bytes, 64 * MIB);
    conf_free(p, conf.s1);
    conf_sync(conf.s1);
    stat = conf_stat(pool);
    ck_assert_uint_eq(stat.used_bytes, 32 * MIB);
    ck_assert_uint_eq(stat.used_peak_bytes, 64 * MIB);
    ck_assert_uint_ge(stat.reserved_bytes, 64 * MIB);
    conf_free(q, conf.s1);
    conf_sync(conf.s1);
    ck_assert_uint_eq(conf_stat(pool).used_bytes, 0);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

START_TEST(peaks_are_reset_to_the_present) {
    struct gb_pool *pool = conf_pool(0, true, true, true);
    unsigned char *p = conf_alloc(pool, conf.s1, 64 * MIB);
    struct gb_pool_stat stat;

    conf_free(p, conf.s1);
    conf_sync(conf.s1);
    gb_assert_ok(gb_pool_trim(conf.be, pool, 0, &conf.err), conf.err);
    stat = conf_stat(pool);
    ck_assert_uint_eq(stat.used_peak_bytes, 64 * MIB);
    ck_assert_uint_ge(stat.reserved_peak_bytes, 64 * MIB);
    gb_assert_ok(gb_pool_reset_peak(conf.be, pool, &conf.err), conf.err);
    stat = conf_stat(pool);
    ck_assert_uint_eq(stat.used_peak_bytes, 0);
    ck_assert_uint_eq(stat.reserved_peak_bytes, stat.reserved_bytes);
    p = conf_alloc(pool, conf.s1, 32 * MIB);
    gb_assert_ok(gb_pool_reset_peak(conf.be, pool, &conf.err), conf.err);
    ck_assert_uint_eq(conf_stat(pool).used_peak_bytes, 32 * MIB);
    conf_free(p, conf.s1);
    conf_sync(conf.s1);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

START_TEST(freed_memory_is_reused_on_its_stream) {
    struct gb_pool *pool = conf_pool(0, false, false, false);
    unsigned char *first = conf_alloc(pool, conf.s1, 32 * MIB);
    uint64_t reserved = conf_stat(pool).reserved_bytes;
    struct conf_gate gate;
    unsigned char *p = first;
    int i;

    conf_gate_hold(&gate, conf.s1);
    for (i = 0; i < 20; i++) {
        conf_free(p, conf.s1);
        p = conf_alloc(pool, conf.s1, 32 * MIB);
        ck_assert_ptr_eq(p, first);
    }
    ck_assert_uint_eq(conf_stat(pool).reserved_bytes, reserved);
    conf_gate_let_go(&gate);
    conf_free(p, conf.s1);
    conf_sync(conf.s1);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

START_TEST(trim_keeps_what_it_is_told_to) {
    struct gb_pool *pool = conf_pool(0, true, true, true);
    unsigned char *p[4];
    int i;

    for (i = 0; i < 4; i++)
        p[i] = conf_alloc(pool, conf.s1, 64 * MIB);
    ck_assert_uint_ge(conf_stat(pool).reserved_bytes, 256 * MIB);
    gb_assert_ok(gb_pool_trim(conf.be, pool, 0, &conf.err), conf.err);
    ck_assert_uint_ge(conf_stat(pool).reserved_bytes, 256 * MIB);
    conf_free(p[0], conf.s1);
    conf_free(p[1], conf.s1);
    conf_free(p[2], conf.s1);
    conf_sync(conf.s1);
    ck_assert_uint_ge(conf_stat(pool).reserved_bytes, 256 * MIB);
    gb_assert_ok(gb_pool_trim(conf.be, pool, 100 * MIB, &conf.err), conf.err);
    ck_assert_uint_ge(conf_stat(pool).reserved_bytes, 100 * MIB);
    ck_assert_uint_lt(conf_stat(pool).reserved_bytes, 256 * MIB);
    gb_assert_ok(gb_pool_trim(conf.be, pool, 0, &conf.err), conf.err);
    ck_assert_uint_ge(conf_stat(pool).reserved_bytes, 64 * MIB);
    ck_assert_uint_lt(conf_stat(pool).reserved_bytes, 128 * MIB);
    conf_free(p[3], conf.s1);
    conf_sync(conf.s1);
    gb_assert_ok(gb_pool_trim(conf.be, pool, 0, &conf.err), conf.err);
    ck_assert_uint_eq(conf_stat(pool).reserved_bytes, 0);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

/* Waits as the core does, which never blocks in a call of the device. */
START_TEST(a_trim_knows_what_was_freed_before_a_complete_event) {
    struct gb_pool *pool = conf_pool(0, true, true, true);
    struct gb_event *event = conf_event();
    int i;

    for (i = 0; i < 2; i++)
        conf_free(conf_alloc(pool, i ? conf.s2 : conf.s1, 64 * MIB), i ? conf.s2 : conf.s1);
    gb_assert_ok(gb_event_record_device(conf.be, event, 0, &conf.err), conf.err);
    conf_wait(event);
    gb_assert_ok(gb_pool_trim(conf.be, pool, 0, &conf.err), conf.err);
    ck_assert_uint_eq(conf_stat(pool).reserved_bytes, 0);
    gb_event_destroy(conf.be, event);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

START_TEST(memory_above_the_threshold_goes_back) {
    struct gb_pool *pool = conf_pool(0, true, true, true);
    struct gb_pool_config config;
    struct gb_pool_config got;
    unsigned char *p = conf_alloc(pool, conf.s1, 64 * MIB);

    conf_free(p, conf.s1);
    conf_sync(conf.s1);
    ck_assert_uint_ge(conf_stat(pool).reserved_bytes, 64 * MIB);
    gb_assert_ok(gb_pool_config(conf.be, pool, &config, &conf.err), conf.err);
    config.release_threshold_bytes = 0;
    config.allow_opportunistic = false;
    gb_assert_ok(gb_pool_configure(conf.be, pool, &config, &conf.err), conf.err);
    gb_assert_ok(gb_pool_config(conf.be, pool, &got, &conf.err), conf.err);
    ck_assert_uint_eq(got.release_threshold_bytes, 0);
    ck_assert(!got.allow_opportunistic && got.follow_event_dependencies);
    p = conf_alloc(pool, conf.s1, 64 * MIB);
    conf_free(p, conf.s1);
    conf_sync(conf.s1);
    ck_assert_uint_eq(conf_stat(pool).reserved_bytes, 0);
    config.max_bytes = 123 * MIB;
    gb_assert_fails(gb_pool_configure(conf.be, pool, &config, &conf.err), conf.err, GB_ERR_INVALID_ARGUMENT);
    config.max_bytes = 0;
    config.exportable = true;
    gb_assert_fails(gb_pool_configure(conf.be, pool, &config, &conf.err), conf.err, GB_ERR_INVALID_ARGUMENT);
    gb_pool_destroy(conf.be, pool);
    gb_pool_destroy(conf.be, NULL);
}
END_TEST

/* As a server synchronizes: no call waits, and what is above the threshold is trimmed. */
START_TEST(memory_above_the_threshold_goes_back_behind_a_synced_event) {
    struct gb_pool_config config = {.release_threshold_bytes = 64 * MIB};
    struct gb_pool *pool = NULL;
    struct gb_event *event;
    void *p[2];

    gb_assert_ok(gb_pool_create(conf.be, 0, &config, &pool, &conf.err), conf.err);
    p[0] = conf_alloc(pool, conf.s1, 64 * MIB);
    p[1] = conf_alloc(pool, conf.s1, 64 * MIB);
    conf_free(p[0], conf.s1);
    conf_free(p[1], conf.s1);
    event = conf_event_on(conf.s1);
    conf_wait(event);
    gb_assert_ok(gb_event_sync(conf.be, event, &conf.err), conf.err);
    gb_assert_ok(gb_pool_trim(conf.be, pool, 64 * MIB, &conf.err), conf.err);
    ck_assert_uint_eq(conf_stat(pool).reserved_bytes, 64 * MIB);
    gb_event_destroy(conf.be, event);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

static uint64_t free_bytes(void) {
    struct gb_device_rec rec;

    gb_assert_ok(gb_backend_device_get(conf.be, 0, &rec, &conf.err), conf.err);
    return rec.free_bytes;
}

static void tell_kept(const char *when, struct gb_pool *pool) {
    struct gb_pool_stat stat = conf_stat(pool);

    printf("%s: pool %s: %llu bytes used, %llu reserved, %llu free on the device\n", conf.spec, when,
           (unsigned long long)stat.used_bytes, (unsigned long long)stat.reserved_bytes,
           (unsigned long long)free_bytes());
}

/* An exportable pool with 128 MiB, one half of which was exported once; NULL where a device has no such pools. */
static struct gb_pool *exported_pool(void) {
    struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED, .exportable = true};
    struct gb_location place = {.kind = GB_KIND_DEVICE};
    struct gb_export got = GB_EXPORT_INIT;
    struct gb_pool *pool = NULL;
    void *other;

    if (gb_pool_create(conf.be, 0, &config, &pool, &conf.err) < 0) {
        ck_assert_str_eq(gb_code_slug(conf.err.code), gb_code_slug(GB_ERR_UNSUPPORTED));
        conf.err = GB_ERROR_INIT;
        return NULL;
    }
    place.ptr = conf_alloc(pool, conf.s1, 64 * MIB);
    other = conf_alloc(pool, conf.s1, 64 * MIB);
    conf_sync(conf.s1);
    tell_kept("before its export", pool);
    if (gb_mem_export(conf.be, &place, 64 * MIB, pool, GB_EXPORT_POOL, true, &got, &conf.err) < 0) {
        ck_assert_str_eq(gb_code_slug(conf.err.code), gb_code_slug(GB_ERR_UNSUPPORTED));
        printf("%s: trim after an export: skipped, %s\n", conf.spec, conf.err.detail);
        conf.err = GB_ERROR_INIT;
    } else {
        tell_kept("after its export", pool);
    }
    conf_free(place.ptr, conf.s1);
    conf_free(other, conf.s1);
    conf_sync(conf.s1);
    if (got.handle_bytes > 0) {
        gb_export_done(&got);
        return pool;
    }
    gb_pool_destroy(conf.be, pool);
    return NULL;
}

/* What the device has free says it, for the pool's own numbers may not. */
START_TEST(an_exported_pool_gives_nothing_back_until_it_is_destroyed) {
    struct gb_pool *pool = exported_pool();
    uint64_t free_before;
    void *p;

    if (!pool)
        return;
    free_before = free_bytes();
    gb_assert_ok(gb_pool_trim(conf.be, pool, 0, &conf.err), conf.err);
    tell_kept("after a trim", pool);
    /* A GPU may give back the half from which no pointer was exported. */
    ck_assert_uint_lt(free_bytes(), free_before + 80 * MIB);
    p = conf_alloc(pool, conf.s1, 64 * MIB); /* it is of use as before */
    conf_write(p, 3, 4 * MIB, conf.s1);
    conf_expect(p, 3, 4 * MIB, conf.s1);
    tell_kept("with new memory", pool);
    conf_free(p, conf.s1);
    conf_sync(conf.s1);
    free_before = free_bytes();
    gb_pool_destroy(conf.be, pool);
    ck_assert_uint_ge(free_bytes(), free_before + 48 * MIB);
}
END_TEST

/* On a GPU this holds until one of the pool's pointers was exported. */
START_TEST(an_exportable_pool_gives_back_as_others_do) {
    struct gb_pool_config config = {.release_threshold_bytes = GB_UNLIMITED, .exportable = true};
    struct gb_pool *pool = NULL;
    void *p;

    gb_assert_ok(gb_pool_create(conf.be, 0, &config, &pool, &conf.err), conf.err);
    p = conf_alloc(pool, conf.s1, 64 * MIB);
    conf_free(p, conf.s1);
    conf_sync(conf.s1);
    ck_assert_uint_ge(conf_stat(pool).reserved_bytes, 64 * MIB);
    gb_assert_ok(gb_pool_trim(conf.be, pool, 0, &conf.err), conf.err);
    ck_assert_uint_eq(conf_stat(pool).reserved_bytes, 0);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

START_TEST(a_full_pool_refuses_and_recovers) {
    struct gb_pool *pool = conf_pool(128 * MIB, true, true, true);
    unsigned char *p[4];
    void *more = NULL;
    int round;
    int i;

    for (round = 0; round < 3; round++) {
        for (i = 0; i < 4; i++)
            p[i] = conf_alloc(pool, conf.s1, 32 * MIB);
        ck_assert_int_eq(gb_mem_alloc(conf.be, pool, conf.s1, 32 * MIB, &more, &conf.err), -1);
        ck_assert_ptr_null(more);
        ck_assert_str_eq(gb_code_slug(conf.err.code), "out_of_memory");
        ck_assert_str_eq(conf.err.native_name, "cudaErrorMemoryAllocation");
        ck_assert_int_eq(conf.err.native_code, 2);
        ck_assert_str_eq(conf.err.call, "cudaMallocFromPoolAsync");
        ck_assert(conf.err.has_numbers);
        ck_assert_uint_eq(conf.err.requested_bytes, 32 * MIB);
        ck_assert_uint_eq(conf.err.used_bytes, 128 * MIB);
        ck_assert_uint_eq(conf.err.limit_bytes, 128 * MIB);
        conf.err = GB_ERROR_INIT;
        ck_assert(!gb_backend_dead(conf.be, NULL));
        conf_write(p[3], 4, MIB, conf.s1);
        conf_expect(p[3], 4, MIB, conf.s1);
        for (i = 0; i < 4; i++)
            conf_free(p[i], conf.s1);
        conf_sync(conf.s1);
    }
    gb_pool_destroy(conf.be, pool);
}
END_TEST

void conf_add_pool(Suite *suite) {
    conf_add(suite, "the default pool", the_default_pool_keeps_everything);
    conf_add(suite, "use is counted", use_is_counted);
    conf_add(suite, "peaks are reset", peaks_are_reset_to_the_present);
    conf_add(suite, "reuse on a stream", freed_memory_is_reused_on_its_stream);
    conf_add(suite, "trim", trim_keeps_what_it_is_told_to);
    conf_add(suite, "trim after an event", a_trim_knows_what_was_freed_before_a_complete_event);
    conf_add(suite, "trim, exported", an_exported_pool_gives_nothing_back_until_it_is_destroyed);
    conf_add(suite, "trim, exportable", an_exportable_pool_gives_back_as_others_do);
    conf_add(suite, "threshold", memory_above_the_threshold_goes_back);
    conf_add(suite, "threshold, synced event", memory_above_the_threshold_goes_back_behind_a_synced_event);
    conf_add(suite, "a full pool", a_full_pool_refuses_and_recovers);
}
