/* Memory of every kind: the kinds that a device offers, their access by CPU and device, and the attributes of an
 * address. */
#include <string.h>

#include "conf.h"

START_TEST(every_kind_is_had_or_refused_with_its_reason) {
    static const uint64_t sizes[] = {1, 4096, 3 * MIB + 1};
    struct gb_location place;
    void *none = NULL;
    int kind;
    size_t i;

    for (kind = GB_KIND_SHARED; kind < GB_KIND_COUNT; kind++) {
        if (conf.device.kind_missing[kind][0] != '\0') {
            ck_assert_int_eq(gb_mem_kind_alloc(conf.be, 0, (enum gb_kind)kind, 4096, &none, &conf.err), -1);
            ck_assert_int_eq(conf.err.code, GB_ERR_UNSUPPORTED);
            ck_assert_str_eq(conf.err.native_name, "cudaErrorNotSupported");
            conf.err = GB_ERROR_INIT;
            continue;
        }
        for (i = 0; i < 3; i++) {
            place = conf_place((enum gb_kind)kind, sizes[i]);
            ck_assert_uint_eq((uintptr_t)place.ptr % 256, 0);
            conf_place_write(&place, (unsigned)kind, sizes[i], conf.s1);
            conf_place_expect(&place, (unsigned)kind, sizes[i], conf.s1);
            conf_place_free(&place, sizes[i]);
        }
    }
}
END_TEST

START_TEST(capabilities_agree_with_kinds) {
    const struct gb_device_rec *rec = &conf.device;
    int i;

    ck_assert_str_eq(rec->kind_missing[GB_KIND_DEVICE], "");
    ck_assert_str_eq(rec->cap_missing[GB_CAP_MEMORY_POOLS], "");
    ck_assert((rec->cap_missing[GB_CAP_CPU_ACCESS][0] == '\0') == rec->cpu_access);
    ck_assert(rec->kind_cpu[GB_KIND_DEVICE] == rec->cpu_access);
    ck_assert(rec->kind_cpu[GB_KIND_PINNED] && rec->kind_cpu[GB_KIND_PAGEABLE]);
    ck_assert((rec->cap_missing[GB_CAP_MANAGED_MEMORY][0] == '\0') == (rec->kind_missing[GB_KIND_MANAGED][0] == '\0'));
    if (rec->managed_attach)
        ck_assert_str_ne(rec->cap_missing[GB_CAP_CONCURRENT_MANAGED_ACCESS], "");
    if (gb_backend_device_count(conf.be) < 2)
        ck_assert_str_ne(rec->cap_missing[GB_CAP_PEER_ACCESS], "");
    for (i = 0; i < GB_CAP_COUNT; i++)
        ck_assert_uint_lt(strlen(rec->cap_missing[i]), GB_REASON_SIZE);
}
END_TEST

/* The CPU writes and the device reads, and the other way round, without a copy by the device. */
START_TEST(the_cpu_uses_the_kinds_that_it_may) {
    const uint64_t bytes = 2 * MIB + 3;
    unsigned char *at;
    int kind;
    uint64_t i;

    for (kind = GB_KIND_SHARED; kind < GB_KIND_COUNT; kind++) {
        struct gb_location place;

        if (conf.device.kind_missing[kind][0] != '\0' || !conf.device.kind_cpu[kind])
            continue;
        place = conf_place((enum gb_kind)kind, bytes);
        at = place.ptr;
        conf_place_fill(&place, 0x31, 1, bytes, conf.s1);
        gb_assert_ok(gb_mem_prefetch(conf.be, &place, bytes, true, conf.s1, &conf.err), conf.err);
        gb_assert_ok(gb_mem_attach(conf.be, &place, true, conf.s1, &conf.err), conf.err);
        conf_wait_stream(conf.s1);
        for (i = 0; i < bytes; i++) {
            if (at[i] != 0x31)
                ck_abort_msg("kind %d: byte %llu is %u", kind, (unsigned long long)i, at[i]);
            at[i] = conf_byte(77, i);
        }
        gb_assert_ok(gb_mem_attach(conf.be, &place, false, conf.s1, &conf.err), conf.err);
        gb_assert_ok(gb_mem_prefetch(conf.be, &place, bytes, false, conf.s1, &conf.err), conf.err);
        conf_place_expect(&place, 77, bytes, conf.s1);
        conf_place_free(&place, bytes);
    }
}
END_TEST

START_TEST(prefetching_changes_nothing_but_the_place) {
    const uint64_t bytes = 4 * MIB;
    int kind;
    int i;

    for (kind = GB_KIND_DEVICE; kind < GB_KIND_COUNT; kind++) {
        struct gb_location place;

        if (conf.device.kind_missing[kind][0] != '\0')
            continue;
        place = conf_place((enum gb_kind)kind, bytes);
        conf_place_write(&place, 5, bytes, conf.s1);
        for (i = 0; i < 4; i++)
            gb_assert_ok(gb_mem_prefetch(conf.be, &place, bytes, i % 2 == 0, conf.s1, &conf.err), conf.err);
        conf_place_expect(&place, 5, bytes, conf.s1);
        conf_place_free(&place, bytes);
    }
}
END_TEST

START_TEST(what_no_kind_has_is_refused) {
    void *none = NULL;
    int kind;

    gb_assert_fails(gb_mem_kind_alloc(conf.be, 0, GB_KIND_DEVICE, 4096, &none, &conf.err), conf.err,
                    GB_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(gb_mem_kind_alloc(conf.be, 99, GB_KIND_PINNED, 4096, &none, &conf.err), -1);
    conf.err = GB_ERROR_INIT;
    for (kind = GB_KIND_SHARED; kind < GB_KIND_COUNT; kind++) {
        if (conf.device.kind_missing[kind][0] != '\0')
            continue;
        gb_assert_fails(gb_mem_kind_alloc(conf.be, 0, (enum gb_kind)kind, 0, &none, &conf.err), conf.err,
                        GB_ERR_INVALID_ARGUMENT);
        gb_assert_fails(gb_mem_kind_alloc(conf.be, 0, (enum gb_kind)kind, 1ull << 50, &none, &conf.err), conf.err,
                        GB_ERR_OUT_OF_MEMORY);
        gb_assert_fails(gb_mem_kind_alloc(conf.be, 0, (enum gb_kind)kind, UINT64_MAX, &none, &conf.err), conf.err,
                        GB_ERR_OUT_OF_MEMORY);
    }
    ck_assert_ptr_null(none);
    ck_assert(!gb_backend_dead(conf.be, NULL));
}
END_TEST

/* --- attributes of an address ------------------------------------------------------------------------------------- */

static struct gb_mem_attr attributes_of(const struct gb_location *place, struct gb_pool *pool) {
    struct gb_mem_attr attr = {.device = -7};

    gb_assert_ok(gb_mem_attributes(conf.be, place, pool, &attr, &conf.err), conf.err);
    return attr;
}

START_TEST(attributes_of_every_kind) {
    static const enum gb_memory_type types[GB_KIND_COUNT] = {GB_MEMORY_DEVICE,       GB_MEMORY_DEVICE,
                                                             GB_MEMORY_MANAGED,      GB_MEMORY_HOST,
                                                             GB_MEMORY_UNREGISTERED, GB_MEMORY_DEVICE};
    struct gb_mem_attr attr;
    int kind;

    for (kind = GB_KIND_DEVICE; kind < GB_KIND_COUNT; kind++) {
        struct gb_location place;

        if (conf.device.kind_missing[kind][0] != '\0')
            continue;
        place = conf_place((enum gb_kind)kind, MIB);
        attr = attributes_of(&place, conf.pool);
        ck_assert_str_eq(gb_memory_type_name(attr.type), gb_memory_type_name(types[kind]));
        ck_assert_int_eq(attr.device, kind == GB_KIND_PAGEABLE ? -1 : 0);
        ck_assert(attr.from_pool == (kind == GB_KIND_DEVICE) && attr.this_pool == (kind == GB_KIND_DEVICE));
        if (kind != GB_KIND_PAGEABLE)
            ck_assert_uint_ne(attr.device_address, 0);
        if (kind == GB_KIND_DEVICE || kind == GB_KIND_PAGEABLE)
            ck_assert_uint_eq(attr.context, 0);
        else if (kind != GB_KIND_SHARED) /* virtual memory need not have one */
            ck_assert_uint_ne(attr.context, 0);
        if (gb_kind_of_device((enum gb_kind)kind))
            ck_assert_uint_eq(attr.device_address, (uintptr_t)place.ptr);
        if (kind == GB_KIND_MANAGED || !gb_kind_of_device((enum gb_kind)kind))
            ck_assert_uint_eq(attr.host_address, (uintptr_t)place.ptr);
        conf_place_free(&place, MIB);
    }
}
END_TEST

START_TEST(attributes_name_the_pool) {
    struct gb_pool *pool = conf_pool(0, true, true, true);
    struct gb_location place = {.kind = GB_KIND_DEVICE, .device = 0};
    struct gb_mem_attr attr;

    place.ptr = (unsigned char *)conf_alloc(pool, conf.s1, MIB) + 4096;
    attr = attributes_of(&place, pool);
    ck_assert(attr.from_pool && attr.this_pool);
    attr = attributes_of(&place, conf.pool);
    ck_assert(attr.from_pool && !attr.this_pool);
    attr = attributes_of(&place, NULL);
    ck_assert(attr.from_pool && !attr.this_pool);
    conf_free((unsigned char *)place.ptr - 4096, conf.s1);
    conf_sync(conf.s1);
    place = (struct gb_location){.kind = GB_KIND_PINNED, .device = 0, .ptr = conf.pinned + 5};
    attr = attributes_of(&place, pool);
    ck_assert_int_eq(attr.type, GB_MEMORY_HOST);
    ck_assert(!attr.from_pool);
    gb_pool_destroy(conf.be, pool);
}
END_TEST

/* --- frees -------------------------------------------------------------------------------------------------------- */

struct freeing {
    struct gb_location place;
    struct gb_error err;
    int r;
};

static void *free_it(void *arg) {
    struct freeing *f = arg;

    f->err = GB_ERROR_INIT;
    f->r = gb_mem_kind_free(conf.be, &f->place, MIB, &f->err);
    return NULL;
}

/* A free of an idle device waits for nothing, and an event of the device shows when it is idle. On a busy device a free
 * may wait until the streams have done their work, and no longer; all other memory keeps its bytes. */
START_TEST(frees_wait_for_the_device_at_most) {
    struct gb_event *event = conf_event();
    struct gb_location other;
    struct gb_hold *hold;
    struct freeing f;
    pthread_t thread;
    int kind;

    for (kind = GB_KIND_SHARED; kind < GB_KIND_COUNT; kind++) {
        if (conf.device.kind_missing[kind][0] != '\0')
            continue;
        other = conf_place((enum gb_kind)kind, MIB);
        conf_place_write(&other, 5, MIB, conf.s1);
        f.place = conf_place((enum gb_kind)kind, MIB);
        gb_assert_ok(gb_event_record_device(conf.be, event, 0, &conf.err), conf.err);
        conf_wait(event);
        gb_assert_ok(gb_mem_kind_free(conf.be, &f.place, MIB, &conf.err), conf.err);

        f.place = conf_place((enum gb_kind)kind, MIB);
        gb_assert_ok(gb_stream_hold(conf.be, conf.s2, &hold, &conf.err), conf.err);
        gb_assert_ok(gb_event_record_device(conf.be, event, 0, &conf.err), conf.err);
        ck_assert(!conf_done(event));
        ck_assert_int_eq(pthread_create(&thread, NULL, free_it, &f), 0);
        gb_stream_release(conf.be, hold);
        pthread_join(thread, NULL);
        gb_assert_ok(f.r, f.err);
        conf_wait(event);
        conf_place_expect(&other, 5, MIB, conf.s1);
        conf_place_free(&other, MIB);
    }
    gb_event_destroy(conf.be, event);
}
END_TEST

void conf_add_kind(Suite *suite) {
    conf_add(suite, "every kind", every_kind_is_had_or_refused_with_its_reason);
    conf_add(suite, "capabilities", capabilities_agree_with_kinds);
    conf_add(suite, "kinds of the CPU", the_cpu_uses_the_kinds_that_it_may);
    conf_add(suite, "prefetch", prefetching_changes_nothing_but_the_place);
    conf_add(suite, "kinds refused", what_no_kind_has_is_refused);
    conf_add(suite, "frees of kinds", frees_wait_for_the_device_at_most);
    conf_add(suite, "attributes", attributes_of_every_kind);
    conf_add(suite, "attributes of pools", attributes_name_the_pool);
}
